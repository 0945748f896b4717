"""`demo --files` writes files that are what the tutorials say of them, the same on every machine, without PyTorch."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli

__all__ = ["cli"]

LISTED = {
    "good/trainer_state.json", "hf/config.json", "hf/model.safetensors", "lightning_logs/version_0/metrics.csv",
    "mislabelled.gguf", "mislabelled.safetensors", "model.gguf", "out/trainer_state.json", "q8_0.gguf",
}  # fmt: skip


def written(cli: Cli, folder: str) -> dict[str, str]:
    ended = cli("demo", "--files", folder)
    assert ended.code == 0
    assert ended.lines == sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())
    return {line.partition("/")[2]: hashlib.sha256(Path(line).read_bytes()).hexdigest() for line in ended.lines}


def test_they_are_the_same_every_time_and_small(cli: Cli) -> None:
    first = written(cli, "try")
    assert first.keys() == LISTED
    assert first == written(cli, "again")
    assert sum(path.stat().st_size for path in Path("try").rglob("*") if path.is_file()) < 2 << 20


def test_a_folder_that_is_there_is_left_alone(cli: Cli, workplace: Path) -> None:
    (workplace / "try").mkdir()
    ended = cli("demo", "--files", "try")
    assert (ended.code, "folder-exists" in ended.err) == (2, True)
    assert list((workplace / "try").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("imported", "policy", "answer"),
    [
        ("model.gguf", "lossless", "SAME VALUES: 21 of 21"),
        ("mislabelled.gguf", "lossless", "DIFFERENT: 16 of 21"),
        ("q8_0.gguf", "requant:Q8_0", "AS MEANT: 21 of 21"),
        ("model.gguf", "requant:Q8_0", "DIFFERENT: 21 of 21"),
    ],
)
def test_an_import_is_what_its_name_says(cli: Cli, imported: str, policy: str, answer: str) -> None:
    cli("demo", "--files", "try")
    assert cli("compare", "try/hf", f"try/{imported}", "--policy", policy).lines[-1].startswith(answer)
