"""The NumPy reader, against numpy.save and numpy.savez as oracles, and against headers that they never write."""

from __future__ import annotations

import io
import random
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.cases import each
from tests.formats.files import joined
from verifiers.specimens.make_formats import archive, npy

from weighbridge.core.errors import SubjectError
from weighbridge.views.checkpoint import open_checkpoint

WORDS = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4", "U64": "<u8",
    "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
GOOD = npy("<f4", (2, 2), bytes(range(16)))


def saved(array: Any) -> bytes:
    data = io.BytesIO()
    np.save(data, array, allow_pickle=True)
    return data.getvalue()


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return f"{caught.value.code} {caught.value.what}"


arrays = st.sampled_from(sorted(WORDS)).flatmap(
    lambda dtype: hnp.arrays(np.dtype(WORDS[dtype]), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
)


@pytest.mark.slow
@settings(max_examples=60)
@given(array=arrays, fortran=st.booleans())
def test_reads_what_numpy_saves_in_either_order(tmp_path: Path, array: np.ndarray[Any, Any], fortran: bool) -> None:
    path = tmp_path / "x"
    path.write_bytes(saved(np.asfortranarray(array) if fortran and array.ndim else array))
    view = open_checkpoint(path)
    tensor = view.tensor("tensor")
    assert (view.format, np.dtype(WORDS[tensor.dtype]), tensor.shape) == ("npy", array.dtype, array.shape)
    assert joined(view, "tensor") == array.tobytes()


def test_reads_what_numpy_archives(tmp_path: Path) -> None:
    one, other = np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(8, dtype="<i2").reshape(2, 4))
    with (tmp_path / "x").open("wb") as file:
        np.savez(file, one, other=other)
    view = open_checkpoint(tmp_path / "x")
    assert (view.format, view.names()) == ("npz", ("arr_0", "other"))
    assert (joined(view, "arr_0"), joined(view, "other")) == (one.tobytes(), other.tobytes())
    assert all(printed.found(view.files[printed.file]) == printed.stored for printed in view.checksums)


def test_compressed_archives_are_refused_with_what_to_do(tmp_path: Path) -> None:
    with (tmp_path / "x").open("wb") as file:
        np.savez_compressed(file, w=np.zeros(100))
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(tmp_path / "x")
    assert caught.value.what == "a member is compressed, so it cannot be mapped: 'w.npy'"
    what, script = caught.value.remedy.split("; ")
    assert what == "write it again without compression (torch.save and numpy.savez store their members)"
    assert script == "of a TorchScript program, save torch.jit.load(FILE).state_dict() with torch.save"


LOST = (
    "npy-dtype 'tensor' has the dtype '<V{}', bytes without a meaning: numpy.save writes bfloat16 as V2 and 8-bit"
    " floats as V1"
)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros(3, ml_dtypes.bfloat16), LOST.format(2)),
        (np.zeros(3, ml_dtypes.float8_e4m3fn), LOST.format(1)),
        (np.array([None]), "npy-dtype 'tensor' is an array of Python objects, which is a pickle"),
        (np.zeros(3, ">f4"), "npy-byteorder 'tensor' has the dtype '>f4', which is not little-endian"),
        (np.zeros(2, "M8[s]"), "npy-dtype 'tensor' has the dtype '<M8[s]', which is not read here"),
        (np.zeros(2, "<c16"), "npy-dtype 'tensor' has the dtype '<c16', which is not read here"),
        (np.zeros(2, "U3"), "npy-dtype 'tensor' has the dtype '<U3', which is not read here"),
        (np.zeros(2, [("a", "<f4")]), "npy-dtype 'tensor' is an array of records, not of numbers"),
    ],
    ids=str,
)
def test_what_is_no_plain_number_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    assert refusal(tmp_path / "x", saved(array)) == message


def with_header(text: str, data: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    raw = text.encode("latin-1")
    form = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(form, len(raw) if length is None else length) + raw + data


@pytest.mark.parametrize(
    "text",
    [
        "{'shape': (2,), 'descr': '<u2', 'fortran_order': False}",
        '{"descr": "<u2", "fortran_order": False, "shape": (2L,), }  \n',
        "{'fortran_order':False,'descr':'<u2','shape':( 2 , )}",
    ],
)
@pytest.mark.parametrize("version", [1, 2, 3])
def test_headers_of_other_writers_are_read(tmp_path: Path, text: str, version: int) -> None:
    (tmp_path / "x").write_bytes(with_header(text, b"abcd", version=version))
    assert open_checkpoint(tmp_path / "x").tensor("tensor").shape == (2,)


NO_ITEMS = "npy-header 'tensor' has a header that is not NumPy's three items"
HOSTILE = {
    "code": (with_header("__import__('os').system('true')"), NO_ITEMS),
    "code as shape": (with_header("{'descr': '<u2', 'fortran_order': False, 'shape': (2, f()), }"), NO_ITEMS),
    "a doubled key": (with_header("{'descr': '<u2', 'descr': '<f2', 'fortran_order': False, 'shape': ()}"), NO_ITEMS),
    "a missing key": (with_header("{'descr': '<u2', 'fortran_order': False}"), NO_ITEMS),
    "another key": (with_header("{'descr': '<u2', 'fortran_order': False, 'shape': (), 'x': 1}"), NO_ITEMS),
    "a number as order": (with_header("{'descr': '<u2', 'fortran_order': 0, 'shape': ()}"), NO_ITEMS),
    "a truth value as shape": (with_header("{'descr': '<u2', 'fortran_order': False, 'shape': True}"), NO_ITEMS),
    "a shape as dtype": (
        with_header("{'descr': (2,), 'fortran_order': False, 'shape': ()}"),
        "npy-dtype 'tensor' has the dtype '(2,)', which is not read here",
    ),
    "a negative size": (with_header("{'descr': '<u2', 'fortran_order': False, 'shape': (-1,)}"), NO_ITEMS),
    "no brackets": (with_header("'descr': '<u2', 'fortran_order': False, 'shape': ()"), NO_ITEMS),
    "an empty dtype": (
        with_header("{'descr': '', 'fortran_order': False, 'shape': ()}"),
        "npy-dtype 'tensor' has the dtype '', which is not read here",
    ),
    **{
        f"the byte order {order}": (
            with_header(f"{{'descr': '{order}f4', 'fortran_order': False, 'shape': (1,)}}", bytes(4)),
            f"npy-byteorder 'tensor' has the dtype '{order}f4', which is not little-endian",
        )
        for order in "=|"
    },
    "a huge number": (
        with_header("{'descr': '<u2', 'fortran_order': False, 'shape': (" + "9" * 5000 + ",)}"),
        NO_ITEMS,
    ),
    "2^60 elements": (
        npy("<f8", (2**60,), b""),
        "npy-span 'tensor': F64 [1152921504606846976] takes 9223372036854775808 bytes, there are 0",
    ),
    "2^80 elements": (
        npy("<f4", (2**40, 2**40), b""),
        "npy-span 'tensor': F32 [1099511627776, 1099511627776] takes more bytes than can be counted, there are 0",
    ),
    "33 dimensions": (npy("<f4", (1,) * 33, bytes(4)), "npy-shape 'tensor' has 33 dimensions, at most 32 are read"),
    "a byte too few": (GOOD[:-1], "npy-span 'tensor': F32 [2, 2] takes 16 bytes, there are 15"),
    "a byte too many": (GOOD + b"!", "npy-span 'tensor': F32 [2, 2] takes 16 bytes, there are 17"),
    "a header beyond the file": (
        with_header("{}", version=2, length=2**31),
        "npy-header 'tensor' has a header of 2147483648 bytes; 2 are left, at most 65536 are read",
    ),
    "version 9": (with_header("{}", version=9), "npy-header 'tensor' has version 9; versions 1 to 3 are read"),
    "only the mark": (b"\x93NUMPY\1", "npy-header 'tensor' is no array: it does not begin with NumPy's mark"),
    "no length": (b"\x93NUMPY\1\0\1", "npy-header 'tensor' ends inside the length of its header"),
    "a member that is no array": (
        archive({"w.npy": b"PK and so on"}),
        "npy-header 'w' is no array: it does not begin with NumPy's mark",
    ),
}


@each("data, message", HOSTILE.values(), ids=HOSTILE)
def test_a_header_is_matched_and_never_evaluated(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "x", data) == message


def test_names_in_an_archive_are_names(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(archive({"../../etc/passwd.npy": GOOD, "a/b.npy": GOOD}))
    assert open_checkpoint(tmp_path / "x").names() == ("../../etc/passwd", "a/b")


@pytest.mark.parametrize("good", [GOOD, archive({"w.npy": GOOD})], ids=["npy", "npz"])
def test_a_flipped_or_cut_byte_anywhere_is_a_view_or_a_refusal(tmp_path: Path, good: bytes) -> None:
    chosen = random.Random(3)
    for at in range(len(good)):
        flipped = bytearray(good)
        flipped[at] ^= 1 << chosen.randrange(8)
        (tmp_path / "x").write_bytes(flipped)
        try:
            view = open_checkpoint(tmp_path / "x")
        except SubjectError as problem:
            assert problem.what
            continue
        assert all(len(joined(view, name)) == view.tensor(name).nbytes for name in view.names())
    for length in range(1, len(good)):
        (tmp_path / "x").write_bytes(good[:length])
        with pytest.raises(SubjectError):
            open_checkpoint(tmp_path / "x")
