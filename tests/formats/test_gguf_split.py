"""A split GGUF file is read as one from any of its parts, as gguf-py splits it, or not at all."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from tests.formats.files import gguf_bytes, key

from weighbridge.core.errors import SubjectError
from weighbridge.model_config.model_description import describe_model
from weighbridge.views.checkpoint import open_checkpoint

TENSORS = {f"blk.{at}.ffn_up.weight": np.full((4, 8), at, np.float32) for at in range(7)}
PARTS = [f"m-0000{at}-of-00003.gguf" for at in (1, 2, 3)]


def written(path: Path, **split: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(path, "llama", **split)  # type: ignore[arg-type]
    writer.add_block_count(7)
    writer.add_token_list(["a", "b", "c"])
    for name, values in TENSORS.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.parent


@pytest.fixture
def parts(tmp_path: Path) -> Path:
    folder = written(tmp_path / "split" / "m.gguf", split_max_tensors=3)
    assert sorted(path.name for path in folder.iterdir()) == PARTS
    return folder


def test_the_folder_and_every_part_are_the_whole(parts: Path, tmp_path: Path) -> None:
    whole = open_checkpoint(written(tmp_path / "whole" / "m.gguf"))
    for path in (parts, *(parts / name for name in PARTS)):
        view = open_checkpoint(path)
        assert view.names() == whole.names() == tuple(sorted(TENSORS))
        assert [Path(name).name for name in view.files] == PARTS
        assert all(bytes(view.read(name, 0, 128)) == values.tobytes() for name, values in TENSORS.items())
        assert view.digest().keys() == set(PARTS)
        vocabulary = describe_model(view).vocabulary
        assert vocabulary is not None
        assert vocabulary.count == 3


def copied(old: str, new: str) -> Callable[[Path], object]:
    return lambda folder: shutil.copy(folder / old, folder / new)


def removed(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def rewritten(folder: Path) -> None:
    """Make the last part of another split, with as many parts and fewer tensors."""
    fewer = {name: TENSORS[name] for name in list(TENSORS)[:6]}
    other = gguf.GGUFWriter(folder.parent / "other.gguf", "llama", split_max_tensors=2)
    for name, values in fewer.items():
        other.add_tensor("other." + name, values)
    other.write_header_to_file()
    other.write_kv_data_to_file()
    other.write_tensors_to_file()
    other.close()
    shutil.copy(folder.parent / "other-00003-of-00003.gguf", folder / PARTS[2])


@pytest.mark.parametrize(
    ("damage", "bound", "printed"),
    [
        (removed(PARTS[1]), "", f"shard-missing 1 of 3 parts are not beside it: '{PARTS[1]}'"),
        (removed(PARTS[0]), "", f"shard-missing 1 of 3 parts are not beside it: '{PARTS[0]}'"),
        (
            copied(PARTS[0], PARTS[1]), "",
            "shard-wrong by its name it is part 2 of 3, and its header says split.no 0 (from 0) and split.count 3",
        ),
        (rewritten, "", "shard-wrong 3 parts hold 8 tensors, split.tensors.count is 7"),
        (
            copied(PARTS[1], "b.gguf"), "b.gguf",
            "shard-wrong by its name it is no part, and its header says split.count 3",
        ),
        (
            copied(PARTS[1], "b-00001-of-00002.gguf"), "b-00001-of-00002.gguf",
            "shard-wrong by its name it is part 1 of 2, and its header says split.count 3",
        ),
        (copied(PARTS[1], "b.gguf"), "", "checkpoint-ambiguous 2 .gguf checkpoints"),
    ],
)  # fmt: skip
def test_a_part_that_is_missing_or_another_is_an_error(
    parts: Path, damage: Callable[[Path], object], bound: str, printed: str
) -> None:
    damage(parts)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(parts / bound)
    assert f"{caught.value.code} {caught.value.what}" == printed


def test_a_file_whose_name_alone_says_that_it_is_a_part_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "one" / "m.gguf")
    assert len(open_checkpoint(folder).tensors) == 7
    (folder / "m.gguf").rename(folder / PARTS[0])
    with pytest.raises(SubjectError, match="shard-wrong") as caught:
        open_checkpoint(folder)
    assert caught.value.what == "by its name it is part 1 of 3, and its header has no split.count"


def test_a_split_of_more_parts_than_are_looked_for_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m-00001-of-09999.gguf"
    path.write_bytes(gguf_bytes([key("split.count", 2, struct.pack("<H", 9999))], []))
    with pytest.raises(SubjectError, match="shard-wrong") as caught:
        open_checkpoint(path)
    assert caught.value.what == "split.count is 9999, more than the 1024 parts that are read"
