"""compare and inspect answer across formats, and refuse damaged files of each without a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Cli

SPECIMENS = Path(__file__).parents[2] / "verifiers" / "specimens"
SOURCE = SPECIMENS / "checkpoints" / "source.safetensors"
FORMATS = SPECIMENS / "formats"


@pytest.mark.parametrize(
    "name",
    ["source.pt", "transposed-view.pt", "legacy.pt", "old-codes.apr", "new-codes.apr", "source.onnx", "beside.onnx"],
)
def test_the_same_tensors_in_another_format_are_the_same(cli: Cli, name: str) -> None:
    for pair in ((SOURCE, FORMATS / name), (FORMATS / name, SPECIMENS / "checkpoints" / "import.gguf")):
        ended = cli("compare", *pair, "--policy", "same")
        assert (ended.code, "SAME: 2 of 2 tensors" in ended.out) == (0, True), ended.out


@pytest.mark.parametrize("path", sorted((FORMATS / "damaged").iterdir()), ids=lambda path: path.name)
def test_a_damaged_file_of_any_format_is_unreadable_with_place_and_reason(cli: Cli, path: Path) -> None:
    for verb in (("inspect", path), ("compare", SOURCE, path), ("compare", path, SOURCE)):
        ended = cli(*verb)
        assert ended.code == 4, ended.out
        assert "Traceback" not in ended.out + ended.err
