"""The GGUF reader, against the gguf library as oracle and against bytes that no library writes."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.formats.files import gguf_bytes, info, key, text
from tests.formats.test_safetensors_file import refusal, viewed_or_refused

from weighbridge.core.errors import SubjectError
from weighbridge.formats.gguf_file import LongValues
from weighbridge.formats.tensor import GGUF_TYPES
from weighbridge.storage.mapped_file import MappedFile
from weighbridge.views.checkpoint import open_checkpoint

F32, F16, Q4_0 = 0, 1, 2
TWO = [info("a", (8,), F32, 0), info("b", (2, 3), F16, 32)]
BODY = bytes(range(32)) + b"123456789012"
NATIVE = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "I64": np.int64}


def test_types_and_block_sizes_are_the_librarys() -> None:
    ours = {kind: unit for kind, (_, *unit) in GGUF_TYPES.items()}
    theirs = {int(kind): list(sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    assert {kind: ours[kind] for kind in theirs if kind in ours} == {k: v for k, v in theirs.items() if k in ours}
    assert all(GGUF_TYPES[int(kind)][0] == kind.name for kind in gguf.GGML_QUANT_SIZES if int(kind) in GGUF_TYPES)


tensor_names = st.text(st.characters(min_codepoint=33, max_codepoint=0x24F), min_size=1, max_size=12)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=30)
@given(st.dictionaries(tensor_names, st.tuples(st.sampled_from(sorted(NATIVE)), shapes), min_size=1, max_size=4))
def test_reads_what_the_library_writes(tmp_path: Path, layout: dict[str, tuple[str, list[int]]]) -> None:
    path = tmp_path / "x"
    rng = np.random.default_rng(0)
    arrays = {name: rng.integers(0, 100, shape).astype(NATIVE[dtype]) for name, (dtype, shape) in layout.items()}
    written(path, arrays)
    view = open_checkpoint(path)
    assert view.format == "gguf"
    assert view.names() == tuple(sorted(arrays))
    assert view.metadata["general.architecture"] == "llama"
    for name, array in arrays.items():
        tensor = view.tensor(name)
        assert (tensor.dtype, tensor.shape) == (layout[name][0], array.shape)
        assert b"".join(view.chunks(name, 16)) == array.tobytes()


def written(path: Path, arrays: dict[str, np.ndarray[Any, Any]], tokens: int = 3) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_token_list([f"token{i}" for i in range(tokens)])
    writer.add_token_scores([0.5] * tokens)
    for name, array in arrays.items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_reads_blocks_with_the_shape_of_their_values(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gguf_bytes([], [info("q", (64, 2), Q4_0, 0)], bytes(72)))
    tensor = open_checkpoint(path).tensor("q")
    assert (tensor.dtype, tensor.shape, tensor.nbytes) == ("Q4_0", (2, 64), 72)


def test_reads_version_2_and_a_wider_alignment(tmp_path: Path) -> None:
    path = tmp_path / "x"
    aligned = [key("general.alignment", 4, struct.pack("<I", 64))]
    infos = [info("a", (1,), F32, 0), info("b", (1,), F32, 64)]
    path.write_bytes(gguf_bytes(aligned, infos, b"1234" + bytes(60) + b"5678", version=2, alignment=64))
    assert bytes(open_checkpoint(path).read("b", 0, 4)) == b"5678"


def test_a_vocabulary_without_tensors_is_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(gguf_bytes([key("a.b", 9, struct.pack("<IQ", 8, 2) + text("x") + text(b"\xff"))]))
    assert open_checkpoint(path).names() == ()


def array(kind: int, count: int, body: bytes = b"") -> bytes:
    return key("k", 9, struct.pack("<IQ", kind, count) + body)


def nested(depth: int) -> bytes:
    return key("k", 9, struct.pack("<IQ", 9, 1) * depth + struct.pack("<IQ", 0, 0))


def alignment(value: int) -> bytes:
    return gguf_bytes([key("general.alignment", 4, struct.pack("<I", value))])


HOSTILE = {
    "2^60 tensors": (
        b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0),
        "at byte 8: gguf-count 1152921504606846976 tensors cannot fit into the 8 bytes that are left",
    ),
    "2^60 keys": (
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60),
        "at byte 16: gguf-count 1152921504606846976 keys cannot fit into the 0 bytes that are left",
    ),
    "a string of 2^62": (
        gguf_bytes([key("k", 8, struct.pack("<Q", 2**62))]),
        "at byte 45: gguf-truncated 'k' takes 4611686018427387904 bytes, 19 are left",
    ),
    "a key of 2^62": (
        gguf_bytes([struct.pack("<QII", 2**62, 0, 0)]),
        "at byte 24: gguf-length a key is 4611686018427387904 bytes long, at most 65536 are read",
    ),
    "an array of 2^40": (
        gguf_bytes([array(0, 2**40)]),
        "at byte 41: gguf-count 1099511627776 elements of 'k' cannot fit into the 15 bytes that are left",
    ),
    "an array of 2^40 strings": (
        gguf_bytes([array(8, 2**40)]),
        "at byte 41: gguf-count 1099511627776 elements of 'k' cannot fit into the 15 bytes that are left",
    ),
    "strings beyond the end": (
        gguf_bytes([array(8, 1, struct.pack("<Q", 2**40))]),
        "at byte 49: gguf-truncated elements of 'k' run beyond the end of the file",
    ),
    "arrays in arrays": (gguf_bytes([nested(9)]), "at byte 85: gguf-depth 'k' nests arrays more than 4 deep"),
    "an array of no type": (
        gguf_bytes([array(77, 0)]),
        "at byte 37: gguf-type 'k' is an array of the unknown type 77",
    ),
    "a value of no type": (gguf_bytes([key("k", 13, b"")]), "at byte 33: gguf-type 'k' has the unknown type 13"),
    "a doubled key": (
        gguf_bytes([key("k", 0, b"1"), key("k", 0, b"2")]),
        "at byte 38: gguf-twice the key 'k' is given twice",
    ),
    "a doubled tensor": (
        gguf_bytes([], [info("a", (8,), F32, 0), info("a", (8,), F32, 32)], bytes(64)),
        "at byte 57: gguf-twice the tensor 'a' is given twice",
    ),
    "2^31 dimensions": (
        gguf_bytes([], [text("a") + struct.pack("<I", 2**31) + bytes(40)]),
        "at byte 33: gguf-shape 'a' has 2147483648 dimensions, at most 8 are read",
    ),
    "dimensions that overflow": (
        gguf_bytes([], [info("a", (2**62, 4), F32, 0)]),
        (
            "at byte 33: gguf-shape 'a': F32 [4, 4611686018427387904] takes more than can be counted, "
            "or rows are not whole blocks"
        ),
    ),
    "half a block": (
        gguf_bytes([], [info("a", (16, 2), Q4_0, 0)], bytes(18)),
        "at byte 33: gguf-shape 'a': Q4_0 [2, 16] takes more than can be counted, or rows are not whole blocks",
    ),
    "a tensor of no type": (
        gguf_bytes([], [info("a", (1,), 99, 0)], bytes(4)),
        "at byte 45: gguf-type 'a' has the unknown type 99",
    ),
    "a removed type": (
        gguf_bytes([], [info("a", (1,), 4, 0)], bytes(4)),
        "at byte 45: gguf-type 'a' has the unknown type 4",
    ),
    "alignment 0": (alignment(0), "at byte 57: gguf-alignment general.alignment is 0, not a power of two"),
    "alignment 33": (alignment(33), "at byte 57: gguf-alignment general.alignment is 33, not a power of two"),
    "alignment as text": (
        gguf_bytes([key("general.alignment", 8, text("32"))]),
        "at byte 24: gguf-alignment general.alignment is not a 32-bit whole number",
    ),
    "a name that is not UTF-8": (
        gguf_bytes([], [text(b"\xff") + struct.pack("<IQIQ", 1, 1, 0, 0)], bytes(4)),
        "at byte 32: gguf-text a tensor's name is not UTF-8",
    ),
    "version 1": (gguf_bytes(version=1), "at byte 4: gguf-version version 1; versions 2 and 3 are read"),
    "big-endian": (
        gguf_bytes(version=3 << 24),
        "at byte 4: gguf-version version 50331648 (a big-endian file?); versions 2 and 3 are read",
    ),
    "overlap": (
        gguf_bytes([], [info("a", (16,), F32, 0), info("b", (8,), F32, 32)], bytes(96)),
        "at byte 57: gguf-overlap 'b' starts at byte 128, byte 160 is where it belongs",
    ),
    "hole": (
        gguf_bytes([], [info("a", (8,), F32, 0), info("b", (8,), F32, 64)], bytes(96)),
        "at byte 57: gguf-hole 'b' starts at byte 160, byte 128 is where it belongs",
    ),
    "cut by one byte": (
        gguf_bytes([], TWO, BODY[:-1]),
        "at byte 160: gguf-truncated 'b' ends at byte 172, the file at byte 171",
    ),
    "trailing bytes": (
        gguf_bytes([], TWO, BODY + bytes(20) + b"x"),
        "at byte 192: gguf-trailing 1 bytes after the last tensor",
    ),
    "only the magic": (b"GGUF", "at byte 4: gguf-truncated the version takes 4 bytes, 0 are left"),
}


@each("case", HOSTILE)
def test_refuses_what_is_malformed_and_says_what_and_where(tmp_path: Path, case: str) -> None:
    data, message = HOSTILE[case]
    assert refusal(tmp_path / "x", data) == message


@pytest.mark.slow
def test_any_flipped_byte_and_any_truncation_gives_a_view_or_a_subject_error(tmp_path: Path) -> None:
    keys = [key("general.alignment", 4, struct.pack("<I", 32)), array(8, 2, text("x") + text("yz")), nested(2)]
    good = gguf_bytes([*keys[:2], keys[2].replace(b"k", b"n")], TWO, BODY)
    mutants = [good[:size] for size in range(len(good))]
    for at, flip in [(at, flip) for at in range(len(good)) for flip in (1, 2, 0x20, 0x80, 0xFF)]:
        mutants.append(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
    assert viewed_or_refused(tmp_path / "x", mutants) < len(mutants)


# --- Long values, read where they lie ---------------------------------------------------------------------------------

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


@pytest.mark.exhaustive
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
