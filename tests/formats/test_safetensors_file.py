"""The safetensors reader, against the library as oracle and against bytes that no library writes."""

from __future__ import annotations

import json
import struct
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save
from tests.cases import each
from tests.formats.files import framed, safetensors_bytes

from weighbridge.core.errors import SubjectError
from weighbridge.formats.tensor import SAFETENSORS_UNITS
from weighbridge.views.checkpoint import open_checkpoint

WORDS = {"F32": np.float32, "F16": np.float16, "F64": np.float64, "I8": np.int8, "U64": np.uint64, "BOOL": np.bool_}
GOOD = {"w": ("F32", (2,), b"\0\0\x80?\0\0\0@"), "b": ("F16", (1,), b"\0<")}


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return str(caught.value).partition("\n")[0].replace(f"{path} ", "")


def header(entries: dict[str, Any], body: bytes = b"") -> bytes:
    return framed(json.dumps(entries).encode(), body)


def entry(dtype: object = "U8", shape: object = (1,), offsets: object = (0, 1)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda name: name != "__metadata__")
arrays = st.sampled_from(sorted(WORDS)).flatmap(
    lambda dtype: hnp.arrays(WORDS[dtype], hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
)


@pytest.mark.slow
@settings(max_examples=60)
@given(tensors=st.dictionaries(names, arrays, max_size=5), metadata=st.dictionaries(names, names, max_size=2))
def test_reads_what_the_library_writes(
    tmp_path: Path, tensors: dict[str, np.ndarray[Any, Any]], metadata: dict[str, str]
) -> None:
    path = tmp_path / "x"
    path.write_bytes(save(tensors, metadata or None))
    view = open_checkpoint(path)
    assert view.names() == tuple(sorted(tensors))
    assert view.metadata == metadata
    for name, array in tensors.items():
        tensor = view.tensor(name)
        assert (WORDS[tensor.dtype], tensor.shape) == (array.dtype, array.shape)
        assert b"".join(view.chunks(name, 7)) == array.tobytes()


@each("dtype, unit", SAFETENSORS_UNITS.items())
def test_every_dtype_of_the_format_is_sized(tmp_path: Path, dtype: str, unit: tuple[int, int]) -> None:
    elements, size = unit
    path = tmp_path / "x"
    path.write_bytes(safetensors_bytes({"w": (dtype, (3, elements), bytes(range(3 * size)))}))
    assert open_checkpoint(path).tensor("w").nbytes == 3 * size
    if elements > 1:
        path.write_bytes(safetensors_bytes({"w": (dtype, (1,), b"\0")}))
        with pytest.raises(SubjectError, match="safetensors-span"):
            open_checkpoint(path)


HOSTILE = {
    "header of 2^63 bytes": (
        struct.pack("<Q", 2**63) + b"{}",
        "at byte 0: safetensors-truncated the header says 9223372036854775808 bytes, the file has 2 after it",
    ),
    "shorter than the length": (
        b"\1\0\0",
        "at byte 0: safetensors-truncated 3 bytes cannot hold the header's length (8 bytes)",
    ),
    "header beyond the file": (
        struct.pack("<Q", 100) + b"{}",
        "at byte 0: safetensors-truncated the header says 100 bytes, the file has 2 after it",
    ),
    "payload cut by one byte": (
        safetensors_bytes(GOOD)[:-1],
        "at byte 139: safetensors-truncated 'b' ends at byte 141, the file at byte 140",
    ),
    "trailing bytes": (
        safetensors_bytes(GOOD) + b"xyz",
        "at byte 141: safetensors-trailing 3 bytes after the last tensor",
    ),
    "hole": (
        header({"a": entry(), "b": entry(offsets=[3, 4])}, b"1234"),
        "at byte 129: safetensors-hole 2 bytes before 'b' belong to none",
    ),
    "overlap": (
        header({"a": entry(shape=[2], offsets=[0, 2]), "b": entry(offsets=[1, 2])}, b"12"),
        "at byte 129: safetensors-overlap 'b' begins at byte 129, the tensor before it ends at 130",
    ),
    "shape and span disagree": (
        header({"a": entry("F32", [2], [0, 4])}, b"1234"),
        "at byte 69: safetensors-span 'a': F32 [2] takes 8 bytes, data_offsets span 4",
    ),
    "a product that overflows": (
        header({"a": entry("F32", [2**62, 2**62], [0, 4])}, b"1234"),
        (
            "at byte 108: safetensors-span 'a': F32 [4611686018427387904, 4611686018427387904] takes more than can be "
            "counted, or no whole bytes, data_offsets span 4"
        ),
    ),
    "doubled name": (
        framed(b'{"w":{"dtype":"F16","shape":[1],"data_offsets":[0,2]},"w":{"dtype":"BF16","shape":[1],'
               b'"data_offsets":[0,2]}}', b"12"),
        "at byte 8: safetensors-header not strict JSON: the key 'w' is given twice",
    ),
    "not UTF-8": (framed(b'{"\xff":1}'), "at byte 10: safetensors-header not UTF-8"),
    "half a surrogate pair": (
        framed(b'{"\\ud800":{}}'),
        "at byte 8: safetensors-header an escaped half of a surrogate pair",
    ),
    "nested 100,000 deep": (
        framed(b'{"a":' * 100_000),
        "at byte 8: safetensors-header not strict JSON: nested too deep",
    ),
    "a list": (framed(b"[]"), "at byte 8: safetensors-header the header is not a JSON object"),
    "a negative offset": (
        header({"a": entry(offsets=[-1, 0])}),
        "at byte 8: safetensors-header 'a': shape or data_offsets are not whole numbers in order",
    ),
    "a dimension of true": (
        header({"a": entry(shape=[True])}, b"1"),
        "at byte 8: safetensors-header 'a': shape or data_offsets are not whole numbers in order",
    ),
    "an unknown dtype": (
        header({"a": entry("F7\x1b[31m")}, b"1"),
        "at byte 8: safetensors-dtype 'a' has dtype 'F7\\x1b[31m', which safetensors does not define",
    ),
    "a name without an entry": (
        header({"../a": 3}),
        "at byte 8: safetensors-header '../a' has no dtype, shape and data_offsets",
    ),
    "metadata that is no mapping": (
        header({"__metadata__": {"a": 1}}),
        "at byte 8: safetensors-header __metadata__ is not a mapping of texts",
    ),
}  # fmt: skip


@each("case", HOSTILE)
def test_refuses_what_is_malformed_and_says_what_and_where(tmp_path: Path, case: str) -> None:
    data, message = HOSTILE[case]
    assert refusal(tmp_path / "x.safetensors", data) == message


def test_a_payload_cut_by_4_kib_is_refused(tmp_path: Path) -> None:
    data = safetensors_bytes({"w": ("U8", (5000,), bytes(5000))})
    assert f"ends at byte {len(data)}, the file at byte {len(data) - 4096}" in refusal(tmp_path / "x", data[:-4096])


def test_a_header_larger_than_is_read_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "x"
    size = 17 << 20
    path.write_bytes(struct.pack("<Q", size) + b"{")
    with path.open("r+b") as file:
        file.truncate(size + 8)
    with pytest.raises(SubjectError, match="safetensors-header the header says 17825792 bytes"):
        open_checkpoint(path)


def test_hostile_names_are_only_data(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(safetensors_bytes({"../../etc/passwd": ("U8", (1,), b"1"), "a\x1b[2J\n": ("U8", (1,), b"2")}))
    assert open_checkpoint(path).names() == ("../../etc/passwd", "a\x1b[2J\n")


@pytest.mark.slow
def test_metadata_may_bear_the_key_that_spells_a_number_in_our_own_files(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(framed(b'{"__metadata__":{"$num":"nan"}}'))
    assert open_checkpoint(tmp_path / "x").metadata == {"$num": "nan"}


@pytest.mark.slow
def test_any_flipped_byte_and_any_truncation_gives_a_view_or_a_subject_error(tmp_path: Path) -> None:
    good = safetensors_bytes(GOOD, {"format": "pt"})
    mutants = [good[:size] for size in range(len(good))]
    for at, flip in [(at, flip) for at in range(len(good)) for flip in (1, 2, 0x20, 0x80, 0xFF)]:
        mutants.append(good[:at] + bytes([good[at] ^ flip]) + good[at + 1 :])
    assert viewed_or_refused(tmp_path / "x", mutants) < len(mutants)


def viewed_or_refused(path: Path, mutants: list[bytes]) -> int:
    """Count the mutants that still give a view; each takes next to no computing."""
    viewed = 0
    for data in mutants:
        path.write_bytes(data)
        began = time.process_time()
        refusal = opened(path)
        assert time.process_time() - began < 1
        assert refusal is None or (refusal.where.startswith(str(path)) and refusal.remedy)
        viewed += refusal is None
    return viewed


def opened(path: Path) -> SubjectError | None:
    try:
        view = open_checkpoint(path)
    except SubjectError as refusal:
        return refusal
    for name in view.names():
        assert sum(map(len, view.chunks(name, 64))) == view.tensor(name).nbytes
    return None
