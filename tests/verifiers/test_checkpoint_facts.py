"""The facts of a checkpoint are counted from its headers, and a missing tensor shows."""

from __future__ import annotations

from pathlib import Path

from tests.formats.dcp_files import Chunk, Saved, write
from tests.formats.files import safetensors

from weighbridge.core.model import Basis, Measurement
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.verifiers.checkpoint_facts import VERIFIER
from weighbridge.verifiers.verifier import Canary, NoCanary
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

TENSORS = {"a": ("F32", (2,), bytes(8)), "b": ("BF16", (3,), bytes(6)), "c": ("F32", (1,), bytes(4))}


def view(folder: Path) -> CheckpointView:
    return open_checkpoint(safetensors(folder / "x", TENSORS, {"format": "pt"}))


def measured(found: CheckpointView) -> Measurement:
    result = VERIFIER.measure((found,), {})
    assert isinstance(result, Measurement)
    return result


def test_counts_what_the_headers_say(tmp_path: Path) -> None:
    counted = {"format": "safetensors", "files": 1, "tensors": 3, "elements": 6, "bytes": 18}
    counted |= {"dtypes": {"BF16": 1, "F32": 2}, "metadata_keys": 1}
    facts = {fact.name: fact for fact in rows_of(measured(view(tmp_path)), Fact)}
    assert facts.pop("written_by") == Fact(name="written_by", value="pt", basis=Basis.REPORTED, contradicted_by=())
    assert {name: fact.value for name, fact in facts.items()} == counted
    assert {(fact.basis, fact.contradicted_by) for fact in facts.values()} == {(Basis.MEASURED, ())}


def test_a_taken_away_tensor_is_seen_and_a_constant_is_blind(tmp_path: Path) -> None:
    found = view(tmp_path)
    canary = VERIFIER.canary((found,), {}, measured(found))
    assert isinstance(canary, Canary)
    assert canary.place == "c"
    assert canary.seen(VERIFIER.measure(canary.views, {}))
    assert not canary.seen(measured(found))
    assert not canary.seen(measured(found.cut(["a"])))


def test_nothing_can_be_taken_from_nothing(tmp_path: Path) -> None:
    found = view(tmp_path).cut([])
    assert isinstance(VERIFIER.canary((found,), {}, measured(found)), NoCanary)
    assert VERIFIER.extent((found,), {}) == 0


def test_the_files_of_a_tensor_in_pieces_are_all_counted(tmp_path: Path) -> None:
    rows = [Chunk(at=(row, 0), sizes=(1, 2), data=bytes(8), file=f"__{row}_0.distcp") for row in range(3)]
    found = open_checkpoint(write(tmp_path / "x", {"w": Saved(dtype="F32", shape=(3, 2), chunks=tuple(rows))}))
    assert {fact.name: fact.value for fact in rows_of(measured(found), Fact)}["files"] == 3
