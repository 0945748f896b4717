"""PyTorch files that nobody wrote in good faith: refused with place and reason, or read; never another exception."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from verifiers.specimens.make_formats import (
    EMBED,
    NORM,
    STATE,
    Raw,
    View,
    archive,
    called,
    named,
    opcodes,
    pickled,
    torch_legacy,
    torch_zip,
)

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Origin
from weighbridge.views.checkpoint import open_checkpoint

GOOD = torch_zip(STATE, {"0": EMBED, "1": NORM})
LEGACY = torch_legacy(STATE, {"0": (8, EMBED), "1": (6, NORM)})
ONE = View("Float", "0", 8, (8,), (1,))


def refusal(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return f"{caught.value.code} {caught.value.what}"


def of(value: Any, **storages: bytes) -> bytes:
    return torch_zip(value, storages or {"0": EMBED})


def replaced(value: Any, **changes: Any) -> Any:
    return value._replace(**changes)


def made(*args: Any, function: str = "torch._utils._rebuild_tensor_v2") -> Raw:
    return called(function, *args)


def reference(*parts: Any) -> Raw:
    return Raw(opcodes(parts) + b"Q")


FLOATS = named("torch.FloatStorage")
HOOKS = called("collections.OrderedDict")
STORAGE = reference("storage", FLOATS, "0", "cpu", 8)
TENSORS = {
    "beyond its storage": (
        replaced(ONE, first=1),
        "torch-span 'w': F32 [8] at element 1, steps [1], reaches beyond its storage of 32 bytes",
    ),
    "steps beyond its storage": (
        replaced(ONE, steps=(2,)),
        "torch-span 'w': F32 [8] at element 0, steps [2], reaches beyond its storage of 32 bytes",
    ),
    "2^60 elements": (
        replaced(ONE, shape=(2**60,)),
        "torch-span 'w': F32 [1152921504606846976] at element 0, steps [1], reaches beyond its storage of 32 bytes",
    ),
    "2^60 elements of one": (
        replaced(ONE, shape=(2**60,), steps=(0,)),
        "torch-expanded 'w': 4611686018427387904 bytes out of a storage of 32: an expanded view, whose elements are not"
        " stored",
    ),
    "2^62 times 2^62": (
        replaced(ONE, shape=(2**62, 2**62), steps=(0, 0)),
        "torch-span 'w': F32 [4611686018427387904, 4611686018427387904] at element 0, steps [0, 0], reaches beyond its"
        " storage of 32 bytes",
    ),
    "a storage of 2^60": (
        replaced(ONE, size=2**60),
        "torch-span 'w': the storage '0' has 32 bytes, its reference says 4611686018427387904",
    ),
    "a storage with more than its reference says": (
        replaced(ONE, shape=(4,), size=4),
        "torch-span 'w': the storage '0' has 32 bytes, its reference says 16",
    ),
    "a storage that is not there": (
        replaced(ONE, key="../../etc/passwd"),
        "torch-storage 'w' looks into the storage '../../etc/passwd', which is not there",
    ),
    "a negative step": (
        replaced(ONE, steps=(-1,)),
        "torch-tensor 'w': size, stride or offset are not whole numbers",
    ),
    "a negative offset": (
        replaced(ONE, first=-1),
        "torch-tensor 'w': size, stride or offset are not whole numbers",
    ),
    "a truth value as size": (
        replaced(ONE, shape=(True,)),
        "torch-tensor 'w': size, stride or offset are not whole numbers",
    ),
    "more sizes than steps": (
        replaced(ONE, shape=(2, 4)),
        "torch-tensor 'w': size, stride or offset are not whole numbers",
    ),
    "33 dimensions": (
        replaced(ONE, shape=(1,) * 33, steps=(1,) * 33),
        "torch-tensor 'w' has 33 dimensions, at most 32 are read",
    ),
    "too few arguments": (made(STORAGE, 0, (8,)), "torch-tensor 'w' is made from 3 arguments"),
    "no storage": (made(1, 0, (8,), (1,), False, HOOKS), "torch-storage 'w' looks into no storage"),
    "no known dtype": (
        made(STORAGE, 0, (8,), (1,), False, HOOKS, FLOATS, function="torch._utils._rebuild_tensor_v3"),
        "",
    ),
    "a dtype that is none": (
        made(STORAGE, 0, (8,), (1,), False, HOOKS, 3, function="torch._utils._rebuild_tensor_v3"),
        "torch-dtype 'w' has a dtype that is not known",
    ),
    "a storage that is none": (
        made(reference("storage", named("torch.Tensor"), "0", "cpu", 8), 0, (8,), (1,), False, HOOKS),
        "torch-dtype 'torch.Tensor' is no storage",
    ),
    "a reference to a part": (
        made(reference("storage", FLOATS, "0", "cpu", 8, ("0", 0, 4)), 0, (8,), (1,), False, HOOKS),
        "torch-storage a reference is to no storage, or to a part of one as PyTorch before 0.4 wrote it",
    ),
    "a reference without a size": (
        made(reference("storage", FLOATS, "0", "cpu", "8"), 0, (8,), (1,), False, HOOKS),
        "torch-storage a reference to a storage has no type, key and size",
    ),
    "a parameter of nothing": (
        made(3, True, HOOKS, function="torch._utils._rebuild_parameter"),
        "torch-tensor 'w' is a parameter without a tensor",
    ),
    "a subclass by an unknown way": (
        made(1, 2, 3, 4, function="torch._tensor._rebuild_from_type_v2"),
        "torch-tensor 'w' is made in a way that is not known",
    ),
    "a turned sign": (
        made(STORAGE, 0, (8,), (1,), False, HOOKS, {"neg": True}),
        "torch-tensor 'w' is a view with its sign or imaginary part turned, not plain values",
    ),
}


@each("value, message", TENSORS.values(), ids=TENSORS)
def test_a_tensor_is_compared_with_its_storage(tmp_path: Path, value: Any, message: str) -> None:
    path, data = tmp_path / "x", of({"w": value})
    if message:
        assert refusal(path, data) == message
    else:
        path.write_bytes(data)
        assert open_checkpoint(path).tensor("w").dtype == "F32"


def test_a_key_is_text_or_a_number(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x", of({"w": Raw(b"}(" + opcodes((1,)) + opcodes(ONE) + b"u")}))
    assert message == "torch-name a key under 'w' is neither text nor number"


def test_views_that_show_a_file_many_times_over_are_refused(tmp_path: Path) -> None:
    data = of({str(at): replaced(ONE, key="0", size=2048, shape=(2048,)) for at in range(400)}, **{"0": bytes(8192)})
    assert refusal(tmp_path / "x", data).startswith("torch-expanded 3276800 bytes of tensors look into a file of ")


@pytest.mark.parametrize("name", ["../escape", "a\x1b[31mb", "", "x" * 5000, "\u202e"])
def test_odd_names_are_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").write_bytes(of({name: ONE}))
    assert open_checkpoint(tmp_path / "x").names() == (name,)


PICKLES = {
    "ends at once": (b"", "pickle-truncated an opcode takes 1 bytes, 0 are left"),
    "an unknown opcode": (b"\x80\x02\xff.", "pickle-opcode the opcode 0xff has no place in a checkpoint"),
    "an instance opcode": (b"(ios\nsystem\n.", "pickle-opcode the opcode 0x69 has no place in a checkpoint"),
    "a copyreg code": (b"\x80\x02\x82\x01.", "pickle-opcode the opcode 0x82 has no place in a checkpoint"),
    "protocol 9": (b"\x80\x09N.", "pickle-opcode the pickle protocol 9; 2 to 5 are read"),
    "a text of 2^60": (
        b"\x80\x04\x8d" + struct.pack("<Q", 2**60) + b".",
        "pickle-truncated a text takes 1152921504606846976 bytes, 1 are left",
    ),
    "bytes of 2^60": (
        b"\x80\x04\x8e" + struct.pack("<Q", 2**60) + b".",
        "pickle-truncated a text takes 1152921504606846976 bytes, 1 are left",
    ),
    "a frame of 2^60": (
        b"\x80\x04\x95" + struct.pack("<Q", 2**60) + b".",
        "pickle-truncated a frame takes 1152921504606846976 bytes, 1 are left",
    ),
    "a negative length": (b"\x80\x02T\xff\xff\xff\xff.", "pickle-length a length of -1"),
    "a long number": (b"\x80\x02\x8b\x00\x01\0\0" + bytes(256) + b".", "pickle-length a number of 256 bytes"),
    "no UTF-8": (b"\x80\x02X\x02\0\0\0\xed\xa0.", "pickle-text a text is not UTF-8"),
    "an empty stack": (b"\x80\x02.", "pickle-stack takes more from the stack than was put on it"),
    "below a mark": (b"\x80\x02N(0.", "pickle-stack takes more from the stack than was put on it"),
    "no mark": (b"\x80\x02t.", "pickle-stack goes back to a mark that was not set"),
    "nothing remembered": (
        b"\x80\x02j\xff\xff\xff\xff.",
        "pickle-stack recalls 4294967295, which was never remembered",
    ),
    "a key alone": (b"\x80\x02}(Nu.", "pickle-stack a key has no value"),
    "an endless name": (b"\x80\x02c" + b"x" * 2000, "pickle-truncated the name of a global has no end"),
    "builtins.eval": (
        pickled(called("builtins.eval", "1")),
        "pickle-global names 'builtins.eval', which no state dictionary needs; nothing was imported or called",
    ),
    "a global by stack": (
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "pickle-global names 'os.system', which no state dictionary needs; nothing was imported or called",
    ),
    "a global by numbers": (b"\x80\x04K\1K\2\x93.", "pickle-global names a global by something else than text"),
    "a call of what is only named": (
        pickled(called("torch.FloatStorage")),
        "pickle-call calls 'torch.FloatStorage', which is only ever named",
    ),
    "a call of a text": (
        b"\x80\x02X\x01\0\0\0a)R.",
        "pickle-call calls what is no global, or with no tuple of arguments",
    ),
    "items put into a tensor": (
        pickled(Raw(opcodes(ONE) + opcodes(0) + opcodes(1) + b"s")),
        "pickle-call puts items into what is no dictionary",
    ),
    "a tensor's state set": (
        pickled(Raw(opcodes(ONE) + b"}b")),
        "pickle-call sets the state of what has none, or twice",
    ),
    "an append to a dictionary": (b"\x80\x02}Na.", "pickle-call appends to what is no list"),
    "a list in itself": (
        b"\x80\x02]q\0h\0a.",
        "torch-nested is nested more than 64 deep, or refers to itself, at '" + "0." * 29 + "0…'",
    ),
    "lists that double": (
        b"\x80\x02]"
        + b"".join(b"q" + bytes([at]) + b"0](h" + bytes([at]) + b"h" + bytes([at]) + b"e" for at in range(60))
        + b".",
        "torch-nested is nested more than 64 deep, or refers to itself, at",
    ),
    "bytes behind it": (b"\x80\x02N.N.", "torch-trailing 2 bytes follow the pickle in 'archive/data.pkl'"),
}


@pytest.mark.slow
@each("data, message", PICKLES.values(), ids=PICKLES)
def test_a_pickle_is_data(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "x", archive({"archive/data.pkl": data})).startswith(message)


def test_a_step_that_is_never_taken_may_be_anything(tmp_path: Path) -> None:
    view = replaced(ONE, shape=(4, 1, 2), steps=(1, 2**70, 4))
    (tmp_path / "x").write_bytes(of({"w": view}))
    found = open_checkpoint(tmp_path / "x")
    words = [EMBED[at * 4 : at * 4 + 4] for at in (0, 4, 1, 5, 2, 6, 3, 7)]
    assert b"".join(bytes(chunk) for chunk in found.chunks("w", 5)) == b"".join(words)


MANY = 1 << 16
LIST_OF_MANY = b"](" + b"N" * MANY + b"eq\0"


@pytest.mark.exhaustive
def test_a_long_list_that_is_referred_to_many_times_costs_little(tmp_path: Path) -> None:
    data = b"\x80\x02]" + LIST_OF_MANY + b"0](" + b"h\0" * MANY + b"e."
    message = refusal(tmp_path / "x", archive({"archive/data.pkl": data}))
    assert message.startswith("torch-nested lists refer to more than 16777216 elements")


def test_long_keys_and_names_are_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x", of({"k" * 70000: ONE}))
    assert message == "torch-name a key under 'tensor' has 70000 characters, more than 65536"
    many = b"".join(opcodes(str(at)) + b"h\1" for at in range(40))
    deep = b"}q\1(" + opcodes("k" * 60000) + b"N" + b"u" + b"0}(" + many + b"u"
    inner = b"\x80\x02" + deep + b"q\1" + b"".join(b"0}(" + many + b"uq\1" for _ in range(2)) + b"."
    message = refusal(tmp_path / "x", archive({"archive/data.pkl": inner}))
    assert message == "torch-name the names together have more than 67108864 characters"


@pytest.mark.parametrize(
    ("limit", "data", "message"),
    [
        ("MAX_OPCODES", b"\x80\x02NN0NN00.", "pickle-size more than 4 opcodes"),
        ("MAX_MADE", b"\x80\x02}}}}}.", "pickle-size more than 4 objects"),
        ("MAX_MADE", b"\x80\x02]]]]].", "pickle-size more than 4 objects"),
    ],
)
def test_opcodes_and_objects_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, data: bytes, message: str
) -> None:
    monkeypatch.setattr(f"weighbridge.formats.pickle_machine.{limit}", 4)
    assert refusal(tmp_path / "x", archive({"archive/data.pkl": data})) == message


def test_packed_four_bit_values_must_be_in_order(tmp_path: Path) -> None:
    storage = reference("storage", named("torch.storage.UntypedStorage"), "0", "cpu", 32)
    dtype = named("torch.float4_e2m1fn_x2")
    rebuild = "torch._utils._rebuild_tensor_v3"
    message = "torch-tensor 'w' is a view of packed 4-bit values that are not in order"
    for shape, steps in (((8, 4), (1, 8)), ((), ())):
        value = made(storage, 0, shape, steps, False, HOOKS, dtype, function=rebuild)
        assert refusal(tmp_path / "x", of({"w": value})) == message


def test_a_memo_entry_far_away_takes_no_memory(tmp_path: Path) -> None:
    data = b"\x80\x02}r\xff\xff\xff\xff."
    (tmp_path / "x").write_bytes(archive({"archive/data.pkl": data}))
    assert open_checkpoint(tmp_path / "x").names() == ()


PAIRS = "torch-tensor a dictionary is made from what is no list of pairs"


@pytest.mark.parametrize(
    "dictionary",
    [
        called("collections.OrderedDict", [("w", ONE), ["n", 3]]),
        called("collections.Counter", {"w": ONE, "n": 3}),
        Raw(
            called("collections.OrderedDict", ()).opcodes + b"(" + opcodes("w") + opcodes(ONE) + opcodes("n") + b"K\3u"
        ),
    ],
    ids=["pairs", "dictionary", "items"],
)
def test_a_dictionary_may_be_made_from_its_entries(tmp_path: Path, dictionary: Raw) -> None:
    (tmp_path / "x").write_bytes(of(dictionary))
    view = open_checkpoint(tmp_path / "x")
    assert (view.names(), view.metadata) == (("w",), {"n": 3})


@pytest.mark.parametrize("args", [([("w", ONE), 3],), ([("w", ONE, 3)],), (3,), ([("w", ONE)], [("v", ONE)])], ids=str)
def test_a_dictionary_made_from_anything_else_is_refused(tmp_path: Path, args: tuple[Any, ...]) -> None:
    assert refusal(tmp_path / "x", of(called("collections.OrderedDict", *args))) == PAIRS


def test_a_big_endian_file_is_refused(tmp_path: Path) -> None:
    data = torch_zip(STATE, {"0": EMBED, "1": NORM}, order=b"big")
    assert refusal(tmp_path / "x", data) == "torch-byteorder its byte order is 'big', not 'little'"


def test_a_storage_that_no_tensor_looks_into_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x", of({"w": ONE}, **{"0": EMBED, "1": NORM}))
    assert message == "torch-unread no tensor looks into the storage 'archive/data/1'"


LEGACIES = {
    "big-endian": (
        torch_legacy(STATE, {"0": (8, EMBED), "1": (6, NORM)}, little=False),
        "torch-byteorder does not say that it is little-endian",
    ),
    "another protocol": (
        LEGACY.replace(pickled(1001), pickled(1002)),
        "torch-version the protocol is not 1001",
    ),
    "keys that are numbers": (
        LEGACY.replace(pickled(["0", "1"]), pickled([0, 1])),
        "torch-storage the keys of the storages are no list of different texts",
    ),
    "a key that is given twice": (
        LEGACY.replace(pickled(["0", "1"]), pickled(["0", "0"])),
        "torch-storage the keys of the storages are no list of different texts",
    ),
    "keys that are no list": (
        LEGACY.replace(pickled(["0", "1"]), pickled(7)),
        "torch-storage the keys of the storages are no list of different texts",
    ),
    "a byte too few": (LEGACY[:-1], "torch-truncated the storage '1' takes 12 bytes, 11 are left"),
    "no last storage": (LEGACY[:-20], "torch-truncated the size of the storage '1' is missing"),
    "a byte too many": (LEGACY + b"!", "torch-trailing 1 bytes after the last storage"),
    "a storage of 2^60": (
        torch_legacy({"w": ONE}, {"0": (2**60, EMBED)}),
        "torch-truncated the storage '0' takes 4611686018427387904 bytes, 32 are left",
    ),
    "another size than referred to": (
        torch_legacy({"w": ONE}, {"0": (7, EMBED[:28])}),
        "torch-span 'w': the storage '0' has 28 bytes, its reference says 32",
    ),
    "an unread storage": (
        torch_legacy({"w": ONE}, {"0": (8, EMBED), "9": (1, b"1234")}),
        "torch-unread no tensor looks into the storage '9'",
    ),
}


@pytest.mark.parametrize(("data", "message"), LEGACIES.values(), ids=LEGACIES)
def test_a_legacy_file_is_read_to_its_last_byte(tmp_path: Path, data: bytes, message: str) -> None:
    assert refusal(tmp_path / "x", data) == message


def test_the_maker_s_word_makes_a_fixture(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(GOOD)
    (tmp_path / "y").write_bytes(of({"w": ONE}))
    assert open_checkpoint(tmp_path / "x").origin is Origin.FIXTURE
    assert open_checkpoint(tmp_path / "y").origin is Origin.LIVE


def survives(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    try:
        view = open_checkpoint(path)
    except SubjectError as problem:
        assert problem.code
        assert problem.what
        return
    for name in view.names():
        assert sum(len(chunk) for chunk in view.chunks(name, 5)) == view.tensor(name).nbytes


@pytest.mark.slow
@pytest.mark.parametrize("good", [GOOD, LEGACY], ids=["zip", "legacy"])
def test_a_flipped_or_cut_byte_anywhere_is_a_view_or_a_refusal(tmp_path: Path, good: bytes) -> None:
    chosen = random.Random(5)
    for at in range(0, len(good), 3):
        changed = bytearray(good)
        changed[at] ^= 1 << chosen.randrange(8)
        survives(tmp_path / "x", bytes(changed))
    for length in range(1, len(good), 17):
        (tmp_path / "x").write_bytes(good[:length])
        with pytest.raises(SubjectError):
            open_checkpoint(tmp_path / "x")


CODES = b"(012NJKMXTUB}])aesultcRbqrhjQ.\x80\x81\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8f\x90\x91\x93\x94"
PARTS = [bytes([code]) for code in CODES]
PARTS += [opcodes(ONE), named("torch.Size").opcodes, b"\0\0\0\1", b"X\1\0\0\0a", b"q\0", b"h\0"]


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(st.sampled_from(PARTS), max_size=30))
def test_any_opcodes_are_a_view_or_a_refusal(tmp_path: Path, parts: list[bytes]) -> None:
    data = b"\x80\x02" + b"".join(parts) + b"."
    survives(tmp_path / "x", archive({"archive/data.pkl": data, "archive/data/0": EMBED}))
