from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from weighbridge.demo import mislabel, to_gguf  # noqa: E402
from weighbridge.demo.models import read_gguf  # noqa: E402
from weighbridge.demo.train import GPT  # noqa: E402
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint  # noqa: E402


@pytest.fixture
def source(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    state = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in GPT().state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


def payloads(view: CheckpointView) -> dict[str, bytes]:
    return {name: b"".join(bytes(chunk) for chunk in view.chunks(name, 1 << 20)) for name in view.names()}


def test_the_gguf_import_holds_the_same_tensors_bit_for_bit(source: Path) -> None:
    to_gguf(source, source.with_name("model.gguf"))
    before, after = open_checkpoint(source), open_checkpoint(source.with_name("model.gguf"))
    assert payloads(after) == payloads(before)
    assert len(before.names()) == 53
    for name in before.names():
        assert (after.tensor(name).dtype, after.tensor(name).shape) == ("BF16", before.tensor(name).shape)


def test_the_numpy_backend_reads_the_import_as_exact_float32(source: Path) -> None:
    to_gguf(source, source.with_name("model.gguf"))
    read, kept = read_gguf(source.with_name("model.gguf")), load_file(source)
    assert set(read) == set(kept)
    for name, tensor in kept.items():
        assert read[name].dtype.name == "float32"
        assert torch.equal(torch.from_numpy(read[name]), tensor.float())


def test_mislabelling_changes_every_label_and_nothing_else(source: Path) -> None:
    mislabel(source, source.with_name("mislabelled.safetensors"))
    before, after = open_checkpoint(source), open_checkpoint(source.with_name("mislabelled.safetensors"))
    assert payloads(after) == payloads(before)
    assert {after.tensor(name).dtype for name in after.names()} == {"F16"}
    for name in before.names():
        assert after.tensor(name).shape == before.tensor(name).shape
