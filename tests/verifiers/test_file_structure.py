"""file_structure counts files and what lies beside them, and holds their own checksums against their bytes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from weighbridge.data import data_path
from weighbridge.model import Measurement, Rows
from weighbridge.verifiers.base import NoCanary
from weighbridge.verifiers.file_structure import VERIFIER
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint
from weighbridge.views.mapped_file import MappedFile

SPECIMENS = data_path("verifiers") / "specimens" / "checkpoints"


def rows_of(view: Any) -> dict[str, Any]:
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    assert VERIFIER.extent((view,), {}) == len(found.value.rows) == found.examined
    return {str(row["name"]): row for row in found.value.rows}


def sharded(folder: Path) -> CheckpointView:
    shutil.copytree(SPECIMENS / "sharded", folder / "x")
    return open_checkpoint(folder / "x")


@pytest.mark.parametrize("total", [None, "44", True])
def test_an_index_that_declares_no_number_declares_nothing(tmp_path: Path, total: object) -> None:
    sharded(tmp_path)
    index = tmp_path / "x" / "model.safetensors.index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "metadata": {"total_size": total}}))
    rows = rows_of(open_checkpoint(tmp_path / "x"))
    assert rows["file model.safetensors.index.json"]["declared_bytes"] is None


def test_shards_of_another_revision_are_told(tmp_path: Path) -> None:
    view = sharded(tmp_path)
    assert {row["role"] for row in rows_of(view).values()} == {"index", "weights"}
    shutil.copy(SPECIMENS / "source.safetensors", tmp_path / "x" / "model-00003-of-00002.safetensors")
    (tmp_path / "x" / "tokenizer.json").write_text("{}")
    beside = [name for name, row in rows_of(view).items() if row["role"] == "beside"]
    assert beside == ["file model-00003-of-00002.safetensors"]


def test_an_index_beside_the_file_that_was_bound_is_told(tmp_path: Path) -> None:
    sharded(tmp_path)
    shutil.copy(SPECIMENS / "source.safetensors", tmp_path / "x" / "model.safetensors")
    rows = rows_of(open_checkpoint(tmp_path / "x" / "model.safetensors"))
    assert {name: row["role"] for name, row in rows.items()} == {
        "file model.safetensors": "weights",
        "file model.safetensors.index.json": "beside",
    }


def test_a_tensor_that_is_taken_away_is_seen_and_a_constant_is_blind(tmp_path: Path) -> None:
    view = sharded(tmp_path)
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    assert canary.seen(VERIFIER.measure(canary.views, {}))
    assert not canary.seen(found)
    assert isinstance(VERIFIER.canary((view.cut([]),), {}, found), NoCanary)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sum:
    """A checksum as the readers of formats that carry some give it."""

    place: str
    file: str
    parts: tuple[tuple[int, int], ...]
    stored: int

    def found(self, file: MappedFile) -> int:
        return zlib.crc32(b"".join(bytes(file.read(start, stop)) for start, stop in self.parts))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Summed(CheckpointView):
    checksums: tuple[Sum, ...] = ()


def summed(*wrong: int) -> Summed:
    plain = open_checkpoint(SPECIMENS / "source.safetensors")
    (file,) = plain.files.values()
    parts = ((0, 8), (8, 100), (0, file.size))
    right = [Sum(place=f"part {at}", file=file.name, parts=(part,), stored=0) for at, part in enumerate(parts)]
    sums = [dataclasses.replace(one, stored=one.found(file) ^ 2 * (at in wrong)) for at, one in enumerate(right)]
    kept = {item.name: getattr(plain, item.name) for item in dataclasses.fields(plain)}
    return Summed(**{**kept, "checksums": tuple(sums)})


def test_checksums_that_do_not_agree_are_told_with_both_values() -> None:
    assert rows_of(summed())["file source.safetensors"]["wrong_checksums"] == []
    row = rows_of(summed(1))["file source.safetensors"]
    (wrong,) = row["wrong_checksums"]
    assert (row["checksums"], wrong["place"]) == (3, "part 1")
    assert int(wrong["stored"], 16) == int(wrong["computed"], 16) ^ 2


@pytest.mark.parametrize("wrong", [(), (1,)])
def test_a_contradicted_checksum_is_seen(wrong: tuple[int, ...]) -> None:
    view = summed(*wrong)
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    assert len(canary.views[0].checksums) == 2
    assert canary.seen(VERIFIER.measure(canary.views, {}))
    assert not canary.seen(found)
