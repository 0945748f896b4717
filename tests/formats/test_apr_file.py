"""The APR reader, against files written to the layout byte by byte, of both generations of dtype codes."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.formats.files import joined
from verifiers.specimens.make_formats import NORM, Q4_K, Apr, apr, apr_entry, apr_of, gguf, signed

from weighbridge.core.errors import SubjectError
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

GOOD = apr({"b": Apr(2, (6,), NORM), "a": Apr(0, (3, 2), bytes(range(24)))})
WIDTHS = {0: ("F32", 4), 1: ("F16", 2), 3: ("F64", 8), 4: ("I32", 4), 5: ("I64", 8), 6: ("I8", 1), 7: ("U8", 1)}


def view_of(path: Path, data: bytes) -> CheckpointView:
    path.write_bytes(data)
    return open_checkpoint(path)


def refusal(path: Path, data: bytes) -> str:
    with pytest.raises(SubjectError) as caught:
        view_of(path, data)
    return f"{caught.value.where.removeprefix(str(path))}: {caught.value.code} {caught.value.what}".lstrip()


def header(data: bytes, at: int, form: str, value: int) -> bytes:
    """Change a field of the header and set both checksums right."""
    changed = bytearray(data[:-4])
    struct.pack_into(form, changed, at, value)
    struct.pack_into("<I", changed, 40, zlib.crc32(changed[44:64], zlib.crc32(changed[:40])))
    return signed(bytes(changed))


@settings(max_examples=50)
@given(
    tensors=st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        st.tuples(st.sampled_from(sorted(WIDTHS)), st.lists(st.integers(0, 4), max_size=4)),
        max_size=5,
    ),
    bf16=st.sampled_from([2, 30]),
)
@example(tensors={"bf16": (0, [])}, bf16=2)
def test_reads_what_is_written_to_the_layout(
    tmp_path: Path, tensors: dict[str, tuple[int, list[int]]], bf16: int
) -> None:
    written = dict[str, Apr]()
    for name, (code, shape) in tensors.items():
        count = WIDTHS[code][1]
        for size in shape:
            count *= size
        written[name] = Apr(code, shape, random.Random(count).randbytes(count))
    written["bf16"] = Apr(bf16, (1, 3), b"abcdef")  # in place of any drawn tensor of that name
    view = view_of(tmp_path / "x", apr(written))
    assert view.names() == tuple(sorted(written))
    for name, tensor in written.items():
        assert joined(view, name) == tensor.data
        assert view.tensor(name).shape == tuple(tensor.shape)
        assert view.tensor(name).dtype == {2: "BF16", 30: "BF16"}.get(tensor.code) or WIDTHS[tensor.code][0]
    assert view.metadata["apr.dtype_codes"] == {2: "old (BF16 is 2)", 30: "new (BF16 is 30)"}[bf16]


def test_a_file_without_bf16_is_of_either_generation(tmp_path: Path) -> None:
    view = view_of(
        tmp_path / "x", apr({"a": Apr(0, (), b"abcd")}, metadata=b'{"n":3,"q":{"bits":4},"t":"' + b"x" * 2000 + b'"}')
    )
    assert view.metadata == {"n": 3, "q": None, "t": None, "apr.dtype_codes": "either"}
    assert view_of(tmp_path / "x", apr({}, metadata=b"")).names() == ()


def test_q4_k_blocks_are_those_of_gguf_byte_for_byte(tmp_path: Path) -> None:
    one = view_of(tmp_path / "x", apr({"w": Apr(12, (2, 256), Q4_K)}))
    other = view_of(tmp_path / "y", gguf({"w": (12, (2, 256), Q4_K)}))
    assert one.tensor("w").dtype == other.tensor("w").dtype == "Q4_K"
    assert one.tensor("w").shape == other.tensor("w").shape
    assert joined(one, "w") == joined(other, "w") == Q4_K


def test_header_and_footer_carry_checksums(tmp_path: Path) -> None:
    view = view_of(tmp_path / "x", GOOD)
    assert [printed.place for printed in view.checksums] == ["header", "file"]
    assert all(printed.found(view.files[printed.file]) == printed.stored for printed in view.checksums)
    flipped = bytearray(GOOD)
    flipped[view.tensor("a").offset] ^= 1
    damaged = view_of(tmp_path / "x", bytes(flipped))
    assert [printed.found(damaged.files[printed.file]) == printed.stored for printed in damaged.checksums] == [
        True,
        False,
    ]


A, B = apr_entry("a", 0, (16,), 64, 0), apr_entry("b", 0, (16,), 64, 64)
HOSTILE = {
    "another version": (header(GOOD, 4, "<B", 1), "at byte 4: apr-version version 1.0; version 2 is read"),
    "too short": (GOOD[:67], "at byte 0: apr-truncated 67 bytes hold no header and footer"),
    "a flipped bit in the header": (
        GOOD[:6] + b"\1" + GOOD[7:],
        "at byte 40: apr-checksum the header has the CRC-32 ",
    ),
    "a flipped reserved bit": (GOOD[:63] + b"\1" + GOOD[64:], "at byte 40: apr-checksum the header has the CRC-32 "),
    "encrypted": (apr({}, flags=0x404), "at byte 6: apr-flags the file is encrypted"),
    "column-major": (apr({}, flags=0x800), "at byte 6: apr-flags the file says that it is column-major"),
    "metadata beyond the file": (
        header(GOOD, 20, "<I", 2**32 - 1),
        "at byte 12: apr-truncated metadata, index and data do not follow each other before the end of the file",
    ),
    "an index at 2^60": (header(GOOD, 24, "<Q", 2**60), "at byte 12: apr-truncated metadata, index and data"),
    "data at 2^60": (header(GOOD, 32, "<Q", 2**60), "at byte 12: apr-truncated metadata, index and data"),
    "2^32 tensors": (
        header(GOOD, 8, "<I", 2**32 - 1),
        "at byte 8: apr-count 4294967295 tensors do not fit into an index of 128 bytes",
    ),
    "metadata that is no object": (
        apr({}, metadata=b"[]"),
        "at byte 64: apr-metadata the metadata is not a JSON object",
    ),
    "metadata with a doubled key": (apr({}, metadata=b'{"a":1,"a":2}'), "at byte 64: apr-metadata not strict JSON"),
    "a long name": (
        apr_of([apr_entry("n" * 257, 0, (), 4, 0)], bytes(64)),
        "at byte 128: apr-name a name of 257 bytes, at most 256 and before the data",
    ),
    "a name that is not UTF-8": (
        apr_of([A.replace(b"a", b"\xff")], bytes(64)),
        "at byte 130: apr-name a tensor's name is not UTF-8",
    ),
    "nine dimensions": (
        apr_of([apr_entry("a", 0, (1,) * 9, 4, 0)], bytes(64)),
        "at byte 132: apr-shape 'a' has 9 dimensions, at most 8 are read",
    ),
    "APR's own blocks": (
        apr_of([apr_entry("a", 8, (32,), 18, 0)], bytes(64)),
        "at byte 131: apr-dtype 'a' has the dtype code 8: AprQ4, blocks of APR's own that are not read here",
    ),
    "an unknown code": (
        apr_of([apr_entry("a", 99, (32,), 18, 0)], bytes(64)),
        "at byte 131: apr-dtype 'a' has the dtype code 99: unknown in both generations of the format",
    ),
    "an entry that runs into the data": (
        header(apr_of([A, B, apr_entry("c", 0, (16,) * 1, 64, 128)[:-1]], bytes(192)), 32, "<Q", 128 + 64 + 20),
        "at byte 207: apr-truncated the index runs into the data",
    ),
    "Q4_0 under the old code of BF16": (
        apr_of([apr_entry("a", 2, (32,), 18, 0)], bytes(64)),
        "at byte 128: apr-span 'a': BF16 [32] takes 64 bytes, the index says 18",
    ),
    "2^60 elements": (
        apr_of([apr_entry("a", 0, (2**40, 2**40), 0, 0)], bytes(64)),
        "at byte 128: apr-span 'a': F32 [1099511627776, 1099511627776] takes more than can be counted, or no whole"
        " blocks, the index says 0",
    ),
    "beyond the data": (
        apr_of([apr_entry("a", 0, (32,), 128, 0)], bytes(64)),
        "at byte 128: apr-truncated 'a' ends 64 bytes beyond the end of the data",
    ),
    "an offset of 2^63": (
        apr_of([apr_entry("a", 0, (16,), 64, 2**63)], bytes(64)),
        "at byte 128: apr-truncated 'a' ends 9223372036854775808 bytes beyond the end of the data",
    ),
    "off the alignment": (
        apr_of([apr_entry("a", 0, (1,), 4, 4)], bytes(64)),
        "at byte 128: apr-alignment 'a' starts at no multiple of 64 bytes",
    ),
    "twice": (apr_of([A, A], bytes(64)), "at byte 157: apr-twice the tensor 'a' is given twice"),
    "out of order": (apr_of([B, A], bytes(128)), "at byte 157: apr-order 'a' comes after 'b' in the index"),
    "overlapping": (
        apr_of([A, apr_entry("b", 0, (16,), 64, 0)], bytes(128)),
        "at byte 157: apr-overlap 'b' starts before the tensor before it ends",
    ),
    "a hole": (
        apr_of([A, apr_entry("b", 0, (16,), 64, 128)], bytes(192)),
        "at byte 256: apr-hole 64 bytes before 'b' belong to none",
    ),
    "bytes behind the last": (
        apr_of([A], bytes(65)),
        "at byte 256: apr-trailing 1 bytes between the last tensor and the footer, 0 belong there",
    ),
    "a byte cut off": (
        GOOD[:-1],
        "at byte 344: apr-truncated 39 bytes between the last tensor and the footer, 40 belong there",
    ),
    "both generations": (
        apr({"a": Apr(2, (6,), NORM), "b": Apr(30, (6,), NORM)}),
        "at byte 128: apr-dtype BF16 is written as 2 and as 30 in one file",
    ),
    "a hole behind the index": (
        header(apr_of([A], bytes(128)), 32, "<Q", 256),
        "at byte 157: apr-hole 99 bytes between the index and the data",
    ),
}


@each("data, message", HOSTILE.values(), ids=HOSTILE)
def test_what_the_layout_forbids_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "x", data).startswith(message)


def test_metadata_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.formats.apr_file.MAX_METADATA", 9)
    message = refusal(tmp_path / "x", apr({}, metadata=b'{"a":"bc"}'))
    assert message == "at byte 20: apr-metadata 10 bytes of metadata, more than the 9 that are read"
    assert view_of(tmp_path / "x", apr({}, metadata=b'{"a":"b"}')).metadata["a"] == "b"


def test_version_1_is_named(tmp_path: Path) -> None:
    assert "is an APR file of version 1" in refusal(tmp_path / "x", b"APRN" + bytes(100))


@pytest.mark.slow
def test_a_flipped_or_cut_byte_anywhere_is_a_view_or_a_refusal(tmp_path: Path) -> None:
    for at in range(len(GOOD)):
        flipped = bytearray(GOOD)
        flipped[at] ^= 1 << at % 8
        (tmp_path / "x").write_bytes(flipped)
        try:
            view = open_checkpoint(tmp_path / "x")
        except SubjectError:
            continue
        assert any(printed.found(view.files[printed.file]) != printed.stored for printed in view.checksums)
    for length in range(1, len(GOOD)):
        (tmp_path / "x").write_bytes(GOOD[:length])
        with pytest.raises(SubjectError):
            open_checkpoint(tmp_path / "x")
