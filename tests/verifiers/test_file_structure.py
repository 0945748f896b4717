"""file_structure counts files and what lies beside them, and holds their own checksums against their bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.dcp_files import Chunk, Saved, write

from weighbridge.core.data import data_path
from weighbridge.core.model import Measurement, Rows
from weighbridge.verifiers.file_structure import VERIFIER
from weighbridge.verifiers.verifier import NoCanary
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

SPECIMENS = data_path("verifiers") / "specimens" / "checkpoints"


def rows_of(view: Any) -> dict[str, Any]:
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    assert VERIFIER.extent((view,), {}) == len(found.value.rows) == found.examined
    return {row.name: row for row in found.value.rows}


def sharded(folder: Path) -> CheckpointView:
    shutil.copytree(SPECIMENS / "sharded", folder / "x")
    return open_checkpoint(folder / "x")


@pytest.mark.parametrize("total", [None, "44", True])
def test_an_index_that_declares_no_number_declares_nothing(tmp_path: Path, total: object) -> None:
    sharded(tmp_path)
    index = tmp_path / "x" / "model.safetensors.index.json"
    index.write_text(json.dumps({**json.loads(index.read_text()), "metadata": {"total_size": total}}))
    rows = rows_of(open_checkpoint(tmp_path / "x"))
    assert rows["file model.safetensors.index.json"].declared_bytes is None


def test_shards_of_another_revision_are_found(tmp_path: Path) -> None:
    view = sharded(tmp_path)
    assert {row.role for row in rows_of(view).values()} == {"index", "weights"}
    shutil.copy(SPECIMENS / "source.safetensors", tmp_path / "x" / "model-00003-of-00002.safetensors")
    (tmp_path / "x" / "tokenizer.json").write_text("{}")
    beside = [name for name, row in rows_of(view).items() if row.role == "beside"]
    assert beside == ["file model-00003-of-00002.safetensors"]


def test_an_index_beside_the_file_that_was_bound_is_found(tmp_path: Path) -> None:
    sharded(tmp_path)
    shutil.copy(SPECIMENS / "source.safetensors", tmp_path / "x" / "model.safetensors")
    rows = rows_of(open_checkpoint(tmp_path / "x" / "model.safetensors"))
    assert {name: row.role for name, row in rows.items()} == {
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


def archive(folder: Path, *, flipped: bool = False) -> CheckpointView:
    np.savez(folder / "x.npz", a=np.arange(3.0), b=np.arange(500.0), c=-np.arange(7.0))
    data = bytearray((folder / "x.npz").read_bytes())
    if flipped:
        data[data.index((-np.arange(7.0)).tobytes()[8:]) + 3] ^= 1
    (folder / "x.npz").write_bytes(data)
    return open_checkpoint(folder / "x.npz")


def test_checksums_that_do_not_agree_are_reported_with_both_values(tmp_path: Path) -> None:
    row = rows_of(archive(tmp_path))["file x.npz"]
    assert (row.checksums, row.wrong_checksums) == (3, ())
    (wrong,) = rows_of(archive(tmp_path, flipped=True))["file x.npz"].wrong_checksums
    assert wrong.place == "c.npy"
    assert wrong.stored != wrong.computed


@pytest.mark.parametrize("shard", ["1.npz", "2.npz"])
def test_every_shard_is_compared_with_its_checksums(tmp_path: Path, shard: str) -> None:
    np.savez(tmp_path / "1.npz", a=np.arange(9.0))
    np.savez(tmp_path / "2.npz", b=np.arange(9.0))
    homes = {"weight_map": {"a": "1.npz", "b": "2.npz"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(homes))
    data = bytearray((tmp_path / shard).read_bytes())
    data[data.index(np.arange(9.0).tobytes()) + 11] ^= 1
    (tmp_path / shard).write_bytes(data)
    rows = rows_of(open_checkpoint(tmp_path))
    assert [name for name, row in rows.items() if row.wrong_checksums] == [f"file {shard}"]


@pytest.mark.parametrize("piece", range(3))
def test_every_piece_of_a_tensor_is_compared_with_its_checksum(tmp_path: Path, piece: int) -> None:
    rows = [bytes([10 + row]) * 8 for row in range(3)]
    chunks = [Chunk(at=(row, 0), sizes=(1, 2), data=data) for row, data in enumerate(rows)]
    folder = write(tmp_path / "x", {"w": Saved(dtype="F32", shape=(3, 2), chunks=chunks)})
    assert rows_of(open_checkpoint(folder))["file __0_0.distcp"].wrong_checksums == ()
    shard = folder / "__0_0.distcp"
    shard.write_bytes(shard.read_bytes().replace(rows[piece], rows[piece][:-1] + b"!"))
    assert len(rows_of(open_checkpoint(folder))["file __0_0.distcp"].wrong_checksums) == 1


@pytest.mark.parametrize("flipped", [False, True])
def test_a_contradicted_checksum_is_seen(tmp_path: Path, flipped: bool) -> None:
    view = archive(tmp_path, flipped=flipped)
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = VERIFIER.canary((view,), {}, found)
    assert not isinstance(canary, NoCanary)
    assert [checksum.place for checksum in canary.views[0].checksums] == ["a.npy", "c.npy"]
    assert canary.seen(VERIFIER.measure(canary.views, {}))
    assert not canary.seen(found)
