"""compare, inspect and verify take a distributed checkpoint of PyTorch as any other, its tensors in pieces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cases import each
from tests.cli.conftest import Cli
from tests.formats.dcp_files import Chunk, Damage, Saved, write
from tests.formats.files import safetensors

from weighbridge.views.checkpoint import open_checkpoint

torch = pytest.importorskip("torch")
save = pytest.importorskip("torch.distributed.checkpoint.state_dict_saver").save

VALUES = (0.02 * np.random.default_rng(0).standard_normal((40, 50))).astype("<f4")
NORM = np.arange(16256, 16306, dtype="<u2")  # BF16 from 1.0 on


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two tensors, one in four pieces, beside the same in one safetensors file."""
    cut = [((row, column), (20, 25)) for row in (0, 20) for column in (0, 25)]
    pieces = [
        Chunk(at=at, sizes=sizes, data=block(VALUES, at, sizes).tobytes(), file=f"__{number % 2}_0.distcp")
        for number, (at, sizes) in enumerate(cut)
    ]
    halves = [Chunk(at=(at,), sizes=(25,), data=NORM[at : at + 25].tobytes()) for at in (0, 25)]
    saved = {
        "layer.weight": Saved(dtype="F32", shape=(40, 50), chunks=pieces),
        "norm.weight": Saved(dtype="BF16", shape=(50,), chunks=halves),
        "step": Saved(),
    }
    tensors = {"layer.weight": ("F32", (40, 50), VALUES.tobytes()), "norm.weight": ("BF16", (50,), NORM.tobytes())}
    safetensors(tmp_path / "model.safetensors", tensors)
    return write(tmp_path / "dcp", saved)


def block(array: Any, at: tuple[int, ...], sizes: tuple[int, ...]) -> Any:
    return array[tuple(slice(start, start + size) for start, size in zip(at, sizes, strict=True))]


def test_the_same_tensors_are_the_same_both_ways(cli: Cli, folder: Path) -> None:
    single = folder.parent / "model.safetensors"
    for pair in ((single, folder), (folder, single)):
        ended = cli("compare", *pair, "--policy", "same")
        assert (ended.code, ended.lines[-1].partition(" (")[0]) == (0, "SAME: 2 of 2 tensors"), ended.out


def test_one_flipped_bit_in_one_piece_is_found_at_its_tensor_and_element(cli: Cli, folder: Path) -> None:
    single = folder.parent / "model.safetensors"
    last = open_checkpoint(folder).tensor("layer.weight").stored[-1]
    data = bytearray(Path(last.file).read_bytes())
    data[last.offset + 4 * (25 * 2 + 3)] ^= 1  # the piece begins at [20, 25]
    Path(last.file).write_bytes(data)
    ended = cli("compare", single, folder)
    assert ended.code == 1
    printed = f"1 of 2000 elements is not the source's: element {22 * 50 + 28} at byte {last.offset + 4 * 53} was "
    assert f"layer.weight: F32 -> F32, but {printed}" in ended.out
    assert ended.lines[-1] == "DIFFERENT: 1 of 2 tensors: 1 changed (different content)"
    assert (
        "file __1_0.distcp: 1 of 2 checksums do not agree, the first of layer.weight at byte "
        in cli("inspect", folder).out
    )


def test_inspect_counts_files_and_what_is_not_weighed(cli: Cli, folder: Path) -> None:
    for path in (folder, folder / ".metadata"):
        ended = cli("inspect", path, "--all")
        assert ended.code == 0
        assert "  format             torch-dcp  (measured)" in ended.lines
        assert "  files              2  (measured)" in ended.lines
        assert "  unweighed_items    1  (reported)" in ended.lines
        assert "  looks wrong        nothing" in ended.lines, ended.out


@pytest.mark.parametrize("contract", ["checkpoint-import", "checkpoint-health"])
def test_contracts_are_judged_over_it(cli: Cli, folder: Path, contract: str) -> None:
    subjects = {
        "checkpoint-import": (f"source={folder.parent / 'model.safetensors'}", f"import={folder}"),
        "checkpoint-health": (f"checkpoint={folder}",),
    }[contract]
    ended = cli("verify", f"builtin:{contract}", *(part for bound in subjects for part in ("--subject", bound)))
    assert ended.code == 0, ended.out + ended.err


def test_a_hostile_one_is_unreadable_with_place_and_reason(cli: Cli, folder: Path) -> None:
    saved = {"w": Saved(dtype="U8", shape=(4,), chunks=(Chunk(at=(0,), sizes=(4,), data=b"abcd"),))}
    hostile = write(folder.parent / "hostile", saved, Damage(fields={"relative_path": "../../etc/passwd"}))
    for verb in (("inspect", hostile), ("compare", folder, hostile), ("compare", hostile, folder)):
        ended = cli(*verb)
        assert ended.code == 4
        assert "dcp-path" in ended.out + ended.err
        assert "Traceback" not in ended.out + ended.err


WEIGHTS = {"w": torch.arange(6.0), "norm.weight": torch.ones(3)}
RNG = torch.arange(9, dtype=torch.uint8)
BESIDE: dict[str, dict[str, object]] = {
    "step": {"model": WEIGHTS, "step": torch.tensor(7)},
    "rng and more": {"model": WEIGHTS, "rng": RNG, "epoch": torch.tensor(1), "scaler": {"_scale": torch.tensor(2.0)}},
    "below app": {"app": {"model": WEIGHTS, "step": torch.tensor(7), "optim": {"state": {"w": {"m": torch.ones(6)}}}}},
}
PART_OF_IT: dict[str, dict[str, object]] = {
    "a buffer among the weights": {**WEIGHTS, "step": torch.tensor(7)},
    "a buffer of the model": {"model": {**WEIGHTS, "step": torch.tensor(7)}},
    "a name that no trainer has": {"model": WEIGHTS, "steepness": torch.tensor(7)},
}


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("distributed", [False, True])
@each("state, beside", [*((one, True) for one in BESIDE.values()), *((one, False) for one in PART_OF_IT.values())])
def test_what_a_loop_counts_by_is_left_out_beside_a_model_and_never_within_it(
    cli: Cli, tmp_path: Path, state: dict[str, object], *, beside: bool, distributed: bool
) -> None:
    plain, saved = tmp_path / "plain.pt", tmp_path / "saved"
    torch.save(WEIGHTS, plain)
    if distributed:
        save(state, checkpoint_id=saved)
    else:
        torch.save(state, saved)
    for pair in ((plain, saved), (saved, plain)):
        ended = cli("compare", *pair)
        assert ended.code == (0 if beside else 1)
        assert any("left out: training state beside the model" in line for line in ended.lines) is beside


@each("name, expected", [("rotary_emb.inv_freq", 0), ("rotary_emb.inv_freq_scale", 1), ("rotary.inv_freq", 1)])
def test_a_table_that_every_model_computes_may_be_on_one_side(
    cli: Cli, tmp_path: Path, name: str, expected: int
) -> None:
    kept = {"w": ("F32", (4,), VALUES.tobytes()[:16])}
    plain = safetensors(tmp_path / "plain", kept)
    more = safetensors(tmp_path / "more", kept | {f"model.layers.0.self_attn.{name}": ("F32", (2,), bytes(range(8)))})
    for pair in ((plain, more), (more, plain)):
        ended = cli("compare", *pair)
        assert ended.code == expected
        assert ("  1 left out: a table of rotary frequencies that the model computes" in ended.lines) is (not expected)
    other = safetensors(tmp_path / "o", kept | {f"model.layers.0.self_attn.{name}": ("F32", (2,), bytes(8))})
    assert cli("compare", more, other).code == 1
