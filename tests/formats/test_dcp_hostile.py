"""Distributed checkpoints that nobody wrote in good faith: refused with place and reason; nothing outside is opened."""

from __future__ import annotations

import dataclasses
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.cases import each
from tests.formats import dcp_files
from tests.formats.dcp_files import NONE, Chunk, Damage, Saved, write
from verifiers.specimens.make_formats import Raw, View, called, opcodes, pickled, torch_legacy, torch_zip

from weighbridge.core.errors import SubjectError
from weighbridge.views.checkpoint import open_checkpoint

W = bytes(range(1, 25))
TOP, BOTTOM = Chunk(at=(0, 0), sizes=(2, 2), data=W[:16]), Chunk(at=(2, 0), sizes=(1, 2), data=W[16:])
OTHER = dataclasses.replace(BOTTOM, file="__1_0.distcp")
GOOD = Saved(dtype="F32", shape=(3, 2), chunks=(TOP, OTHER))


def refused(folder: Path) -> str:
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(folder)
    assert caught.value.remedy
    assert caught.value.where.startswith(str(folder))
    return f"{caught.value.code} {caught.value.what}"


def of(*chunks: Chunk, **changes: Any) -> Saved:
    return dataclasses.replace(GOOD, chunks=chunks, **changes)


def changed(chunk: Chunk, **changes: Any) -> Chunk:
    return dataclasses.replace(chunk, **changes)


def item(**fields: Any) -> Damage:
    return Damage(fields=fields)


def test_a_checkpoint_written_by_hand_is_read(tmp_path: Path) -> None:
    view = open_checkpoint(write(tmp_path / "x", {"w": GOOD, "b": Saved(), "c": Saved(), "a": of(TOP, BOTTOM)}))
    assert (view.format, view.names(), view.metadata) == ("torch-dcp", ("a", "w"), {"dcp.unweighed_items": 2})
    assert [Path(part.file).name for part in view.tensor("w").stored] == ["__0_0.distcp", "__1_0.distcp"]
    assert {name: b"".join(map(bytes, view.chunks(name, 5))) for name in view.names()} == {"a": W, "w": W}
    assert sorted(view.digest()) == [".metadata", "__0_0.distcp", "__1_0.distcp"]
    assert view.cut(["w"]).tensor("w").nbytes == 24


def test_pieces_are_in_the_order_of_their_elements_and_empty_ones_are_none(tmp_path: Path) -> None:
    empty = Chunk(at=(3, 0), sizes=(0, 2), data=b"", file="__2_0.distcp")
    saved = {"w": of(OTHER, empty, TOP), "one": of(empty, changed(TOP, sizes=(3, 2), data=W))}
    saved["no"] = of(changed(empty, at=(0, 0)), shape=(0, 2))
    view = open_checkpoint(write(tmp_path / "x", saved))
    files = {name: [Path(part.file).name for part in view.tensor(name).stored] for name in saved}
    assert files == {"w": ["__0_0.distcp", "__1_0.distcp"], "one": ["__0_0.distcp"], "no": ["__2_0.distcp"]}
    assert [Path(view.tensor(name).file).name for name in saved] == [kept[0] for kept in files.values()]
    assert view.tensor("w").offset == view.tensor("w").stored[0].offset
    assert {name: b"".join(map(bytes, view.chunks(name, 5))) for name in saved} == {"w": W, "one": W, "no": b""}


GEOMETRY = {
    "a piece outside the tensor": (
        of(TOP, changed(BOTTOM, at=(2, 1))),
        "dcp-piece 'w': a piece of [1, 2] at [2, 1] lies outside [3, 2]",
    ),
    "a piece at 2^60": (
        of(TOP, changed(BOTTOM, at=(2**60, 0))),
        "dcp-piece 'w': a piece of [1, 2] at [1152921504606846976, 0] lies outside [3, 2]",
    ),
    "a piece of another rank": (
        of(TOP, changed(BOTTOM, at=(2,), sizes=(1,))),
        "dcp-piece 'w': offsets and sizes of a piece are not 2 whole numbers",
    ),
    "a piece with one offset too few": (
        of(TOP, changed(BOTTOM, at=(2,))),
        "dcp-piece 'w': offsets and sizes of a piece are not 2 whole numbers",
    ),
    "a negative offset": (
        of(TOP, changed(BOTTOM, at=(-1, 0))),
        "dcp-piece 'w': offsets and sizes of a piece are not 2 whole numbers",
    ),
    "a piece missing": (of(TOP), "dcp-hole 'w': its 1 pieces hold 4 elements together, it has 6"),
    "no piece": (of(), "dcp-hole 'w': its 0 pieces hold 0 elements together, it has 6"),
    "no piece of nothing": (of(shape=(0, 2)), "dcp-hole 'w': its 0 pieces hold 0 elements together, it has 0"),
    "more elements than there are": (
        of(TOP, TOP, BOTTOM),
        "dcp-overlap 'w': its 3 pieces hold 10 elements together, it has 6",
    ),
    "an element twice and one never": (
        of(TOP, changed(BOTTOM, at=(1, 0))),
        "dcp-overlap 'w': two of its 2 pieces hold element [1, 0]",
    ),
    "2^60 elements": (
        of(changed(TOP, sizes=(2**60,), at=(0,)), shape=(2**60,)),
        "torch-span 'tensor': F32 [1152921504606846976] at element 0, steps [1], reaches beyond its storage of 16"
        " bytes",
    ),
    "2^62 times 2^62": (
        of(shape=(2**62, 2**62)),
        "dcp-shape 'w': F32 [4611686018427387904, 4611686018427387904] has more elements than can be counted",
    ),
    "33 dimensions": (of(shape=(1,) * 33), "dcp-shape 'w': its size is not at most 32 whole numbers"),
    "a size that is no number": (of(shape=("3", 2)), "dcp-shape 'w': its size is not at most 32 whole numbers"),
}


@each("saved, message", GEOMETRY.values(), ids=GEOMETRY)
def test_pieces_must_be_the_tensor(tmp_path: Path, saved: Saved, message: str) -> None:
    assert refused(write(tmp_path / "x", {"w": saved})) == message


def test_a_tiling_of_too_many_cells_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.formats.dcp_directory.MAX_CELLS", 1)
    assert refused(write(tmp_path / "x", {"w": GOOD})) == "dcp-pieces 'w': its 2 pieces cut it into more than 1 cells"


PATHS = ["../x/__0_0.distcp", "/etc/passwd", "sub/__0_0.distcp", "..", ".", "", "a\\b", "a\0b"]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_never_leads_out_of_the_directory(tmp_path: Path, path: str) -> None:
    message = refused(write(tmp_path / "x", {"w": of(TOP, BOTTOM)}, item(relative_path=path)))
    assert message == f"dcp-path 'w' from [0, 0] on is said to lie in {path!r}, which is not a plain file name"


def test_a_link_out_of_the_directory_is_refused_and_one_inside_is_not(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"w": GOOD})
    (folder / "__1_0.distcp").rename(folder / "moved")
    (folder / "__1_0.distcp").symlink_to("moved")
    assert open_checkpoint(folder).names() == ("w",)
    shutil.move(folder / "moved", tmp_path / "outside")
    (folder / "__1_0.distcp").unlink()
    (folder / "__1_0.distcp").symlink_to(tmp_path / "outside")
    assert refused(folder) == "dcp-path '__1_0.distcp' is a link that leads out of the directory"
    (tmp_path / "link").symlink_to(write(tmp_path / "y", {"w": GOOD}))
    assert open_checkpoint(tmp_path / "link").names() == ("w",)


def test_a_file_that_is_missing_a_fifo_or_a_directory_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"w": GOOD})
    (folder / "__1_0.distcp").unlink()
    assert refused(folder) == "dcp-file '__1_0.distcp', which .metadata names, is not beside it"
    os.mkfifo(folder / "__1_0.distcp")
    assert refused(folder) == "file-kind is a FIFO, not a regular file"
    (folder / ".metadata").unlink()
    os.mkfifo(folder / ".metadata")
    assert refused(folder) == "file-kind is a FIFO, not a regular file"
    (folder / ".metadata").unlink()
    (folder / ".metadata").mkdir()
    assert refused(folder) == "file-kind is a directory, not a regular file"


def test_one_file_of_several_items_says_to_bind_the_directory(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"w": GOOD, "v": GOOD})
    with pytest.raises(SubjectError, match="zip-directory") as caught:
        open_checkpoint(folder / "__0_0.distcp")
    assert caught.value.remedy == "bind its directory: a .distcp file holds a part of a distributed checkpoint"


def test_a_save_that_was_not_finished_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"w": GOOD})
    (folder / ".metadata").unlink()
    message = "checkpoint-none 2 .distcp files and no .metadata, which is written last"
    assert refused(folder) == message


EXTENTS = {
    "a hole": (item(offset=3), "dcp-hole 3 bytes from byte 0 on belong to no item"),
    "a length of 2^60": (item(length=2**60), "dcp-truncated 'w' takes 1152921504606846976 bytes from byte 0 on, "),
    "an offset of 2^60": (item(offset=2**60), "dcp-hole 1152921504606846976 bytes from byte 0 on belong to no item"),
    "a length of nothing": (item(length=0), "dcp-metadata 'w': offset and length are not whole numbers"),
    "a length that is text": (item(length="9"), "dcp-metadata 'w': offset and length are not whole numbers"),
    "a negative offset": (item(offset=-1), "dcp-metadata 'w': offset and length are not whole numbers"),
    "a truth value as offset": (item(offset=False), "dcp-metadata 'w': offset and length are not whole numbers"),
    "no path": (item(relative_path=None), "dcp-path 'w' is said to lie in no text, which is not a plain file name"),
    "compressed": (
        item(transform_descriptors=["stream.zstd/1"]),
        "dcp-transformed 'w' is stored through 'stream.zstd/1', not as torch.save wrote it",
    ),
    "transformed by a number": (
        item(transform_descriptors=7),
        "dcp-transformed 'w' is stored through a transform, not as torch.save wrote it",
    ),
}


@pytest.mark.parametrize(("damage", "message"), EXTENTS.values(), ids=EXTENTS)
def test_items_must_be_their_file(tmp_path: Path, damage: Damage, message: str) -> None:
    one = {"w": Saved(dtype="U8", shape=(4,), chunks=(Chunk(at=(0,), sizes=(4,), data=b"abcd"),))}
    folder = write(tmp_path / "x", one, damage)
    assert refused(folder).replace("'w' from [0] on", "'w'").startswith(message)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(folder)
    remedies = {
        "dcp-path": "fetch it again from",
        "dcp-transformed": "save it without _extensions",
        "dcp-metadata": "load",
    }
    assert caught.value.remedy.startswith(remedies.get(caught.value.code, "copy the whole directory again"))


def test_two_items_may_not_share_bytes(tmp_path: Path) -> None:
    folder = write(tmp_path / "x", {"a": GOOD, "b": GOOD}, item(offset=0))
    length = (folder / "__0_0.distcp").stat().st_size // 2
    assert refused(folder) == f"dcp-overlap 'b' from [0, 0] on begins {length} bytes before the end of another"


def test_untransformed_is_what_older_writers_say_by_nothing(tmp_path: Path) -> None:
    said: list[str] | tuple[str, ...] | None
    for number, said in enumerate((None, [], ())):
        folder = write(tmp_path / str(number), {"w": GOOD}, item(transform_descriptors=said))
        assert open_checkpoint(folder).names() == ("w",)


@pytest.mark.parametrize("cut", [1, 4096])
@pytest.mark.parametrize("name", [".metadata", "__0_0.distcp", "__1_0.distcp"])
def test_a_file_cut_short_is_refused(tmp_path: Path, name: str, cut: int) -> None:
    wide = Chunk(at=(0, 0), sizes=(2048, 2), data=bytes(16384))
    saved = of(wide, changed(OTHER, at=(2048, 0), sizes=(2048, 2), data=bytes(16384)), shape=(4096, 2))
    folder = write(tmp_path / "x", {"w" * 5000: saved})
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[:-cut])
    expected = "pickle-truncated" if name == ".metadata" else "dcp-truncated"
    assert refused(folder).startswith(expected)
    (folder / name).write_bytes(data + bytes(cut))
    assert refused(folder).startswith(f"dcp-trailing {cut} bytes follow the ")


ITEMS = {
    "another dtype": (
        torch_zip(View("BFloat16", "0", 8, (2, 2), (2, 1)), {"0": bytes(16)}),
        "dcp-piece 'w' from [0, 0] on holds BF16 [2, 2], the metadata says F32 [2, 2]",
    ),
    "another shape": (
        torch_zip(View("Float", "0", 4, (4,), (1,)), {"0": bytes(16)}),
        "dcp-piece 'w' from [0, 0] on holds F32 [4], the metadata says F32 [2, 2]",
    ),
    "two tensors": (
        torch_zip({"a": View("Float", "0", 4, (2, 2), (2, 1))}, {"0": bytes(16)}),
        "dcp-item 'w' from [0, 0] on at byte 0 is 1 tensors by name, not one without",
    ),
    "no tensor": (
        torch_zip(3, {}),
        "dcp-item 'w' from [0, 0] on at byte 0 is 0 tensors by name, not one without",
    ),
    "a pickle of its own": (
        torch_legacy(View("Float", "0", 4, (2, 2), (2, 1)), {"0": (4, bytes(16))}),
        "dcp-item 'w' from [0, 0] on at byte 0 is no archive of torch.save",
    ),
    "three bytes": (b"abc", "dcp-item 'w' from [0, 0] on at byte 0 is no archive of torch.save"),
    "an empty archive": (
        b"PK\5\6" + bytes(18),
        "dcp-item 'w' from [0, 0] on at byte 0 is 0 tensors by name, not one without",
    ),
    "a pickle that would run code": (
        torch_zip(called("posix.system", "false"), {}),
        "pickle-global names 'posix.system', which no state dictionary needs; nothing was imported or called",
    ),
}


@pytest.mark.parametrize(("data", "message"), ITEMS.values(), ids=ITEMS)
def test_an_item_must_be_its_piece(tmp_path: Path, data: bytes, message: str) -> None:
    folder = write(tmp_path / "x", {"w": GOOD}, Damage(item=lambda good: data if W[:16] in good else good))
    assert refused(folder) == message


def test_the_place_in_an_item_is_reported_with_the_item(tmp_path: Path) -> None:
    good = {"a": GOOD, "w": Saved(dtype="U8", shape=(4,), chunks=(Chunk(at=(0,), sizes=(4,), data=b"abcd"),))}
    folder = write(tmp_path / "x", good)
    data = (folder / "__0_0.distcp").read_bytes()
    start = data.index(b"PK\3\4", data.index(b"PK\5\6"))
    at = data.index(b"little", start)
    (folder / "__0_0.distcp").write_bytes(data[:at] + b"bigger" + data[at + 6 :])
    with pytest.raises(SubjectError, match="zip-checksum 'archive/byteorder' has the CRC-32") as caught:
        open_checkpoint(folder)
    assert caught.value.where == f"{folder}/__0_0.distcp, in the item at byte {start}, at byte {at - start}"
    at = data.rindex(b"3\n", start)
    (folder / "__0_0.distcp").write_bytes(data[:at] + b"4" + data[at + 1 :])
    with pytest.raises(SubjectError, match="zip-checksum 'archive/version' has the CRC-32"):
        open_checkpoint(folder)


META = "torch.distributed.checkpoint.metadata"
GOOD_INDEX = dcp_files.index("w", dcp_files.size(0))
PROPERTIES = dcp_files.new(f"{META}.TensorProperties", (Raw(b"ctorch\nuint8\n"), None, False, None, False))
ONE = [dcp_files.chunk_of((0,), (4,))]
DESCRIBED = {
    "a tensor twice": ([("w", dcp_files.bytes_of()), ("w", dcp_files.bytes_of())], "dcp-twice 'w' is described twice"),
    "a name that is no text": ([(1, dcp_files.bytes_of())], "dcp-metadata a name is no text"),
    "a tensor that is none": ([("w", 1)], "dcp-metadata no TensorStorageMetadata where one belongs"),
    "a tensor of another class": ([("w", GOOD_INDEX)], "dcp-metadata no TensorStorageMetadata where one belongs"),
    "a tensor without a state": (
        [("w", dcp_files.new(f"{META}.TensorStorageMetadata", 3))],
        "dcp-metadata no dictionary where one belongs",
    ),
    "no dtype": (
        [("w", dcp_files.tensor_of(None, dcp_files.size(4), ONE))],
        "dcp-metadata 'w' has no dtype",
    ),
    "a dtype that is none": (
        [("w", dcp_files.tensor_of(dcp_files.new(f"{META}.TensorProperties", ("uint8",)), dcp_files.size(4), ONE))],
        "dcp-metadata 'w' has no dtype",
    ),
    "pieces that are no list": (
        [("w", dcp_files.tensor_of(PROPERTIES, dcp_files.size(4), 1))],
        "dcp-metadata 'w' has no list of pieces",
    ),
    "a piece that is none": (
        [("w", dcp_files.tensor_of(PROPERTIES, dcp_files.size(4), [1]))],
        "dcp-metadata no ChunkStorageMetadata where one belongs",
    ),
    "a piece with a list as a key": (
        [("w", dcp_files.tensor_of(PROPERTIES, dcp_files.size(4), [
            dcp_files.new(f"{META}.ChunkStorageMetadata", Raw(b"}(]Nu"))]))],
        "dcp-piece 'w': offsets and sizes of a piece are not 1 whole numbers",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("tensors", "message"), DESCRIBED.values(), ids=DESCRIBED)
def test_a_description_must_be_one(tmp_path: Path, tensors: list[tuple[Any, Any]], message: str) -> None:
    assert refused(write(tmp_path / "x", {"w": GOOD}, Damage(tensors=lambda _: tensors))) == message


STORED = {
    "an item twice": (lambda entries: [*entries, entries[0]], "dcp-twice 'w' from [0, 0] on is stored twice"),
    "a piece that is nowhere": (
        lambda entries: entries[1:],
        "dcp-item 'w' has 2 pieces, and 1 items are left to hold them",
    ),
    "a piece that is another's": (
        lambda entries: [*entries[1:], (dcp_files.index("v", None), entries[0][1])],
        "dcp-item 'w' from [0, 0] on is stored nowhere; 1 such items",
    ),
    "a piece of nothing": (
        lambda entries: [*entries, (dcp_files.index("v", None), entries[0][1])],
        "dcp-unread 'v' is stored, but neither a piece of a tensor nor named; 1 such items",
    ),
    "an index that is none": (
        lambda entries: [(1, 1), *entries[1:]],
        "dcp-metadata no MetadataIndex where one belongs",
    ),
    "an index without a name": (
        lambda entries: [(dcp_files.index(3, None), entries[0][1]), *entries[1:]],
        "dcp-metadata an item belongs to no name, or to no whole numbers as its place",
    ),
    "an index of no numbers": (
        lambda entries: [(dcp_files.index("w", "0"), entries[0][1]), *entries[1:]],
        "dcp-metadata an item belongs to no name, or to no whole numbers as its place",
    ),
    "a place that is none": (
        lambda entries: [(entries[0][0], Raw(b"}")), *entries[1:]],
        "dcp-metadata no _StorageInfo where one belongs",
    ),
}


@pytest.mark.parametrize(("entries", "message"), STORED.values(), ids=STORED)
def test_every_piece_is_stored_once_and_nothing_else(tmp_path: Path, entries: Any, message: str) -> None:
    assert refused(write(tmp_path / "x", {"w": GOOD}, Damage(entries=entries))) == message


def test_pieces_that_many_tensors_share_are_counted_before_they_are_read(tmp_path: Path) -> None:
    chunks = Raw(opcodes([dcp_files.chunk_of((0,), (4,))] * 50) + b"q\7")
    first = [("a", dcp_files.tensor_of(PROPERTIES, dcp_files.size(4), chunks))]
    shared = [(str(at), dcp_files.tensor_of(PROPERTIES, dcp_files.size(4), Raw(b"h\7"))) for at in range(50)]
    folder = write(tmp_path / "x", {"w": GOOD}, Damage(tensors=lambda _: [*first, *shared]))
    assert refused(folder) == "dcp-item 'a' has 50 pieces, and 2 items are left to hold them"


def test_fields_and_sizes_that_many_objects_share_are_few(tmp_path: Path) -> None:
    fields = {str(at): at for at in range(65)}
    tensors = [("a", dcp_files.new(f"{META}.TensorStorageMetadata", fields))]
    folder = write(tmp_path / "x", {"w": GOOD}, Damage(tensors=lambda _: tensors))
    assert refused(folder) == "dcp-metadata a TensorStorageMetadata has 65 fields"
    wide = [("a", dcp_files.tensor_of(PROPERTIES, dcp_files.size(*[1] * 1025), ONE))]
    folder = write(tmp_path / "y", {"w": GOOD}, Damage(tensors=lambda _: wide))
    assert refused(folder) == "dcp-shape 'a': its size is not at most 32 whole numbers"


def with_metadata(folder: Path, data: bytes) -> Path:
    write(folder, {"w": GOOD})
    (folder / ".metadata").write_bytes(data)
    return folder


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


def test_metadata_that_runs_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    head = (write(tmp_path / "y", {"w": GOOD}) / ".metadata").read_bytes()[:-1]
    hostile = pickle.dumps(Hostile(f"touch {trace}"), protocol=2)[2:]
    folder = with_metadata(tmp_path / "x", head + b"0" + hostile)
    assert refused(folder) == (
        "pickle-global names 'posix.system', which no state dictionary needs; nothing was imported or called"
    )
    assert not trace.exists()
    pickle.loads(pickle.dumps(Hostile(f"touch {trace}")))  # so the trace would have been seen
    assert trace.exists()


def test_metadata_larger_than_any_that_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "x", {"w": GOOD})
    size = (folder / ".metadata").stat().st_size
    monkeypatch.setattr("weighbridge.formats.dcp_directory.MAX_PICKLE", size)
    assert open_checkpoint(folder).names() == ("w",)
    monkeypatch.setattr("weighbridge.formats.dcp_directory.MAX_PICKLE", size - 1)
    assert refused(folder) == f"dcp-size has {size} bytes, more than the {size - 1} that are read"


def test_what_is_only_written_down_is_never_looked_up(tmp_path: Path) -> None:
    stray = called("builtins.getattr", Raw(b"ctorch\nuint8\n"), "__class__")
    state = {"state_dict_metadata": {}, "storage_data": {}, "planner_data": stray}
    data = pickled(dcp_files.new(f"{META}.Metadata", state))
    assert open_checkpoint(with_metadata(tmp_path / "x", data)).names() == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Raw(b"0(" + opcodes(1) + b"l"), "dcp-metadata no Metadata where one belongs"),
        (Raw(b")\x81"), "dcp-metadata no dictionary where one belongs"),
        (Raw(b")\x81}b"), "dcp-metadata no dictionary where one belongs"),
    ],
)
def test_metadata_of_something_else_is_refused(tmp_path: Path, value: Raw, message: str) -> None:
    head = f"c{META}\nMetadata\n".encode()
    assert refused(with_metadata(tmp_path / "x", pickled(Raw(head + value.opcodes)))) == message


def test_a_pickle_of_anything_else_named_metadata_is_foreign(tmp_path: Path) -> None:
    message = refused(with_metadata(tmp_path / "x", pickle.dumps({"a": 1}, protocol=4)))
    assert message.startswith("checkpoint-format is a Python pickle, but not of PyTorch; safetensors, GGUF, PyTorch")


@pytest.mark.slow
def test_a_flipped_or_cut_byte_anywhere_is_a_view_or_a_refusal(tmp_path: Path) -> None:
    folder, chosen = write(tmp_path / "x", {"w": GOOD, "b": Saved()}, NONE), random.Random(5)
    for name in (".metadata", "__1_0.distcp"):
        good = (folder / name).read_bytes()
        for at in range(0, len(good), 7):
            damaged = bytearray(good)
            damaged[at] ^= 1 << chosen.randrange(8)
            survives(folder, name, bytes(damaged))
        for length in range(1, len(good), 31):
            (folder / name).write_bytes(good[:length])
            with pytest.raises(SubjectError):
                open_checkpoint(folder)
        (folder / name).write_bytes(good)


def survives(folder: Path, name: str, data: bytes) -> None:
    (folder / name).write_bytes(data)
    try:
        view = open_checkpoint(folder)
    except SubjectError as problem:
        assert problem.code
        assert problem.what
        return
    for tensor in view.names():
        assert sum(len(chunk) for chunk in view.chunks(tensor, 5)) == view.tensor(tensor).nbytes


ODD = [None, True, -1, 2**64, "", "x", (), ("",), (1,), [], [()], {}, {"a": 1}, called("torch.Size"), Raw(b"C\1a")]


@pytest.mark.parametrize("field", ["relative_path", "offset", "length", "transform_descriptors"])
def test_anything_as_the_place_of_an_item_is_a_view_or_a_refusal(tmp_path: Path, field: str) -> None:
    for number, odd in enumerate(ODD):
        folder = write(tmp_path / str(number), {"w": GOOD}, item(**{field: odd}))
        survives(folder, ".metadata", (folder / ".metadata").read_bytes())


@pytest.mark.parametrize("field", ["fqn", "offset", "properties", "size", "chunks", "offsets", "sizes"])
def test_anything_as_a_description_is_a_view_or_a_refusal(tmp_path: Path, field: str) -> None:
    folder = write(tmp_path / "x", {"w": GOOD})
    good = (folder / ".metadata").read_bytes()
    for odd in ODD:
        at = good.index(opcodes(field)) + len(opcodes(field))
        survives(folder, ".metadata", good[:at] + opcodes(odd) + b"0" + good[at:])  # put on the stack, and taken off
        survives(folder, ".metadata", good[:at] + opcodes(odd) + opcodes("more") + good[at:])
