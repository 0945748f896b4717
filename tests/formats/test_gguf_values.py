"""Long values of a GGUF header are read where they lie, exactly as the library wrote them, and hostile ones are not."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path

import gguf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.files import gguf_bytes, key, text

from weighbridge.errors import SubjectError
from weighbridge.formats.gguf_file import LongValues
from weighbridge.storage.mapped_file import MappedFile

STRING, ARRAY, UINT32 = 8, 9, 4


def values(folder: Path, *keys: bytes) -> LongValues:
    (folder / "x.gguf").write_bytes(gguf_bytes(keys))
    return LongValues(MappedFile(folder / "x.gguf"))


def strings(*items: bytes, count: int | None = None) -> bytes:
    return struct.pack("<IQ", STRING, len(items) if count is None else count) + b"".join(map(text, items))


@settings(max_examples=30)
@given(tokens=st.lists(st.text(max_size=20), max_size=20), template=st.text(min_size=1, max_size=3000), layers=st.lists(
    st.integers(0, 2**31 - 1), min_size=1, max_size=50))  # fmt: skip
def test_what_the_library_writes_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, tokens: list[str], template: str, layers: list[int]
) -> None:
    path = tmp_path_factory.mktemp("g") / "x.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("list", [*tokens, "end"])
    writer.add_string("template", template)
    writer.add_array("layers", layers)
    writer.add_uint32("number", 7)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found = LongValues(MappedFile(path))
    assert [piece.decode() for piece in found.strings("list")] == [*tokens, "end"]
    assert (found.count("list"), found.text("template"), found.numbers("layers")) == (len(tokens) + 1, template, layers)
    for name in ("number", "none", "template"):
        assert (found.count(name), found.numbers(name), list(found.strings(name))) == (None, None, [])
    assert (found.text("number"), found.text("list"), found.text("none")) == (None, None, None)
    assert (found.count("layers"), found.numbers("list")) == (None, None)


def test_a_vocabulary_of_152064_entries_is_walked_in_the_memory_of_one(tmp_path: Path) -> None:
    found = values(tmp_path, key("list", ARRAY, strings(*(b"token-%d" % at for at in range(152_064)))))
    tracemalloc.start()
    assert sum(len(piece) for piece in found.strings("list")) > 152_064
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000


def test_a_walk_may_begin_anywhere_before_and_after_the_whole_was_walked(tmp_path: Path) -> None:
    pieces = [b"%d" % at * (at % 3) for at in range(10_000)]
    found = values(tmp_path, key("list", ARRAY, strings(*pieces)))
    for start in (0, 9_999, 4_096, 4_095, 8_193, 10_000, 0, 1):
        assert list(found.strings("list", start)) == pieces[start:]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (strings(b"a", count=2**40), "1099511627776 elements of 'list' cannot fit into the "),
        (strings(b"a" * 70_000), "an entry of 'list' is 70000 bytes long, at most 65536"),
    ],
)
def test_a_hostile_list_is_refused(tmp_path: Path, value: bytes, message: str) -> None:
    with pytest.raises(SubjectError) as raised:
        list(values(tmp_path, key("list", ARRAY, value)).strings("list"))
    assert message in str(raised.value)


def test_a_text_that_is_too_long_or_no_text_is_refused(tmp_path: Path) -> None:
    for value, message in ((b"a" * (1 << 20) + b"a", "is 1048577 bytes long, at most 1048576"), (b"\xff", "not UTF-8")):
        with pytest.raises(SubjectError, match=message):
            values(tmp_path, key("template", STRING, text(value))).text("template")


def test_a_long_array_of_numbers_is_not_read_at_once(tmp_path: Path) -> None:
    numbers = struct.pack("<IQ5000I", UINT32, 5000, *range(5000))
    assert values(tmp_path, key("types", ARRAY, numbers)).numbers("types") is None


def test_a_file_that_is_written_to_while_its_list_is_walked_is_an_error(tmp_path: Path) -> None:
    found = values(tmp_path, key("list", ARRAY, strings(b"a", b"b")))
    with (tmp_path / "x.gguf").open("r+b") as file:
        file.write(b"GGUF")
    with pytest.raises(SubjectError, match="subject-changed"):
        list(found.strings("list"))
