"""ONNX models: those that the onnx package writes, and those that nobody should."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each
from verifiers.specimens.make_formats import ProtobufField, message, onnx, onnx_beside, onnx_tensor, varint

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Origin
from weighbridge.formats.onnx_file import DTYPES, UNREAD, begins
from weighbridge.views.checkpoint import ORIGIN_KEY, CheckpointView, open_checkpoint

F32, I64 = 1, 7
OPSET: ProtobufField = (8, b"\x10\x15")


def tensor(name: str = "w", *data: ProtobufField, dims: Sequence[int] = (2,), dtype: int = F32) -> bytes:
    return onnx_tensor(name, dtype, dims, *data)


def written(folder: Path, data: bytes) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(data)
    return path


def refusal(folder: Path, data: bytes) -> str:
    path = written(folder, data)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return str(caught.value).partition("\n")[0].replace(str(path), "M")


def held(view: CheckpointView) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {
        name: (view.tensor(name).dtype, view.tensor(name).shape, b"".join(map(bytes, view.chunks(name, 1000))))
        for name in view.names()
    }


TWO = tensor("w", (9, b"12345678"))


# --- What the onnx package writes -------------------------------------------------------------------------------------


@pytest.fixture
def exported() -> Any:
    theirs = pytest.importorskip("onnx")
    import ml_dtypes
    import numpy as np

    arrays = {
        "w": np.arange(600, dtype=np.float32).reshape(20, 30),
        "ids": np.arange(7, dtype=np.int64) - 3,
        "half": np.linspace(-2, 2, 9, dtype=np.float16),
        "brain": np.linspace(-2, 2, 8).astype(ml_dtypes.bfloat16),
        "eighth": np.linspace(-2, 2, 8).astype(ml_dtypes.float8_e4m3fn),
        "flag": np.array([True, False]),
        "one": np.float64(3.5),
        "none": np.zeros((0, 4), np.float32),
    }
    stored = [theirs.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    typed = theirs.helper.make_tensor("typed", theirs.TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    constant = theirs.helper.make_node("Constant", [], ["c"], value=theirs.numpy_helper.from_array(np.ones(100)))
    output = theirs.helper.make_tensor_value_info("y", theirs.TensorProto.FLOAT, [20, 30])
    nodes = [constant, theirs.helper.make_node("Identity", ["w"], ["y"])]
    graph = theirs.helper.make_graph(nodes, "g", [], [output], [*stored, typed])
    made = theirs.helper.make_model(graph, producer_name="tests")
    theirs.helper.set_model_props(made, {"note": "mine"})
    theirs.checker.check_model(made)
    wanted = {name: np.asarray(array).tobytes() for name, array in arrays.items()}
    return theirs, made, wanted | {"typed": struct.pack("<3f", 1, 2, 3)}


def test_what_onnx_writes_is_read_where_it_lies(exported: Any, tmp_path: Path) -> None:
    theirs, made, wanted = exported
    theirs.save(made, tmp_path / "a.onnx")
    view = open_checkpoint(tmp_path / "a.onnx")
    assert view.format == "onnx"
    assert {name: data for name, (_, _, data) in held(view).items()} == wanted
    assert {name: (view.tensor(name).dtype, view.tensor(name).shape) for name in ("w", "brain", "eighth", "one")} == {
        "w": ("F32", (20, 30)), "brain": ("BF16", (8,)), "eighth": ("F8_E4M3", (8,)), "one": ("F64", ()),
    }  # fmt: skip
    assert (view.metadata["note"], view.metadata["onnx.producer_name"]) == ("mine", "tests")
    assert view.metadata["onnx.constants"] == 1
    assert 800 < int(str(view.metadata["onnx.constant_bytes"])) < 900


@pytest.mark.parametrize("together", [True, False])
def test_what_onnx_writes_beside_the_model_is_read_there(exported: Any, tmp_path: Path, together: bool) -> None:
    theirs, made, wanted = exported
    theirs.save(
        made, tmp_path / "a.onnx", save_as_external_data=True, all_tensors_to_one_file=together, size_threshold=0,
        location="a.data" if together else None,
    )  # fmt: skip
    view = open_checkpoint(tmp_path / "a.onnx")
    assert {name: data for name, (_, _, data) in held(view).items()} == wanted
    assert len(view.digest()) == (2 if together else len(wanted) - 1)  # "none" needs no file, "typed" stays inside
    assert view.tensor("w").file == str(tmp_path / ("a.data" if together else "w"))


@pytest.mark.parametrize("graph", ["initialization", "algorithm"])
def test_what_training_starts_from_is_read_too(exported: Any, tmp_path: Path, graph: str) -> None:
    theirs, made, wanted = exported
    trained, moment = theirs.ModelProto(), theirs.helper.make_tensor("m", 1, [3], struct.pack("<3f", 1, 2, 3), raw=True)
    trained.CopyFrom(made)
    getattr(trained.training_info.add(), graph).initializer.append(moment)
    theirs.save(trained, tmp_path / "a.onnx")
    found = {name: data for name, (_, _, data) in held(open_checkpoint(tmp_path / "a.onnx")).items()}
    assert found == {**wanted, "m": moment.raw_data}


def test_every_dtype_of_onnx_is_read_or_refused_by_name() -> None:
    theirs = pytest.importorskip("onnx")
    known = {code: name for name, code in theirs.TensorProto.DataType.items() if code}
    assert set(DTYPES) | set(UNREAD) == set(known)
    assert {code: known[code] for code in UNREAD} == UNREAD


def test_each_dtype_takes_the_bytes_that_onnx_gives_it(tmp_path: Path) -> None:
    theirs = pytest.importorskip("onnx")
    import numpy as np

    for code, dtype in DTYPES.items():
        array = np.zeros(8, theirs.helper.tensor_dtype_to_np_dtype(code))
        made = theirs.numpy_helper.from_array(array, "x").SerializeToString()
        assert made.count(varint(2 << 3) + varint(code)) >= 1
        view = open_checkpoint(written(tmp_path, onnx(made)))
        assert view.tensor("x").dtype == dtype


def test_a_fixture_says_that_it_is_one(tmp_path: Path) -> None:
    entry = message((1, ORIGIN_KEY.encode()), (2, b"fixture"))
    assert open_checkpoint(written(tmp_path, onnx(TWO, more=[OPSET, (14, entry)]))).origin is Origin.FIXTURE
    assert open_checkpoint(written(tmp_path, onnx(TWO))).origin is Origin.LIVE


def test_initializers_of_graphs_inside_nodes_are_read_too(tmp_path: Path) -> None:
    inner = message((5, tensor("inner", (9, b"abcdefgh"))))
    node = message((5, message((1, b"then_branch"), (6, inner))))
    view = open_checkpoint(written(tmp_path, onnx(TWO, graph=message((1, node)))))
    assert view.names() == ("inner", "w")


def test_packed_dims_and_unknown_fields_are_read_as_protobuf_allows(tmp_path: Path) -> None:
    odd = message((99, b"new"), (1, varint(2) + varint(1)), (98, 7), (2, F32), (8, b"w"), (9, b"12345678"))
    view = open_checkpoint(written(tmp_path, onnx(odd)))
    assert held(view) == {"w": ("F32", (2, 1), b"12345678")}


def test_one_tensor_may_have_two_names_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"12345678")
    view = open_checkpoint(written(tmp_path, onnx(*(tensor(name, *onnx_beside("d")) for name in "ab"))))
    assert [data for _, _, data in held(view).values()] == [b"12345678"] * 2


# --- What is refused --------------------------------------------------------------------------------------------------


@each(
    "data, said",
    [
        (onnx(tensor("w", (9, b"1234"))), "onnx-span 'w' takes 8 bytes, 4 are there"),
        (onnx(tensor("w")), "onnx-span 'w' takes 8 bytes, and has none"),
        (onnx(tensor("w", (9, b"12345678"), (4, b"12345678"))), "onnx-twice 'w' has its data in two places"),
        (onnx(tensor("w", (9, b"12345678"), (9, b"12345678"))), "onnx-twice the field 9 is given twice"),
        (onnx(TWO, TWO), "onnx-name the initializer 'w' is given twice"),
        (onnx(tensor("", (9, b"12345678"))), "onnx-name one has no name"),
        (onnx(TWO, more=[OPSET, (7, b"")]), "onnx-twice the field 7 is given twice"),
        (onnx(tensor("w", (9, b"1"), dtype=8)), "onnx-dtype 'w' has the dtype STRING, which is not read here"),
        (onnx(tensor("w", (9, b"1"), dtype=22)), "onnx-dtype 'w' has the dtype INT4, which is not read here"),
        (onnx(tensor("w", (9, b"1"), dtype=99)), "onnx-dtype 'w' has the dtype 99, which is not read here"),
        (onnx(tensor("w", (9, b"1"), dtype=23, dims=(3,))), "onnx-shape 'w': F4 [3] has too many dimensions"),
        (onnx(tensor("w", (9, b"1"), dims=(1 << 63,))), "onnx-shape 'w': F32 [9223372036854775808] has too many"),
        (onnx(tensor("w", (9, b"1"), dims=(1 << 60, 1 << 60))), "onnx-shape 'w': F32 [1152921504606846976, "),
        (onnx(tensor("w", (9, b"1"), dims=(1,) * 33)), "onnx-shape 'w': F32 [1, 1, 1, 1, 1, 1, 1, 1] has too many"),
        (onnx(tensor("w", (9, b"1"), (1, b"\x01" * 999))), "onnx-shape 'w' has more than 32 dimensions"),
        (onnx(tensor("w", (7, b"\1\2"), dtype=I64)), "onnx-typed 'w' is I64 in int64_data, whose numbers do not lie"),
        (onnx(tensor("w", (5, b"\1\2"), dtype=10)), "onnx-typed 'w' is F16 in int32_data, whose numbers do not lie"),
        (onnx(tensor("w", (4, b"1234"), (4, b"5678"))), "onnx-typed 'w' has its numbers in several fields"),
        (onnx(tensor("w", (3, b""), (9, b"12345678"))), "onnx-segment 'w' is only a segment of a tensor"),
        (onnx(TWO, graph=message((15, b""))), "onnx-sparse an initializer is sparse; dense ones are read"),
        (onnx(tensor("w", (1 << 28, 3), (9, b"12345678"))) + b"\x00", "onnx-wire no field has the number 0"),
        (onnx(TWO) + b"\x0b", "onnx-wire the field 1 has the wire type 3"),
        (onnx(TWO) + b"\xff" * 10 + b"\x01", "onnx-wire a number has more than 64 bits"),
        (message((1, 10), (2, b"x"), OPSET), "onnx-model no graph: the file is not a whole model"),
        (onnx(TWO, more=[]), "onnx-model no opset_import: the file is not a whole model"),
        (message((1, 10), (3, b"x"), (7, 5), OPSET), "onnx-wire the field 7 has the wire type 0"),
        (onnx(message((1, 2), (2, F32), (8, b"\xff\xfe"), (9, b"12345678"))), "onnx-text a name is not UTF-8"),
        (onnx(tensor("x" * 70_000, (9, b"12345678"))), "onnx-text a name is 70000 bytes long, at most 65536 are read"),
        (
            onnx(tensor("w", (9, b"12345678"), *onnx_beside("d"))),
            "onnx-external 'w' has data in the model and",
        ),
        (onnx(tensor("w", *onnx_beside("d")[:1])), "onnx-external 'w' has its data in two places"),
        (onnx(tensor("w", *onnx_beside("none"))), "onnx-missing 'none', which holds 'w', is not beside the model"),
        (
            onnx(tensor("w", *onnx_beside("d", offset="-1"))),
            "onnx-external 'w' has the offset '-1', which is",
        ),
        (onnx(tensor("w", *onnx_beside("d", offset="9" * 20))), "onnx-external 'w' has the offset"),
        (onnx(tensor("w", *onnx_beside("d", offset="9"))), "onnx-truncated 'w' ends at byte 17 of 'd', the file at"),
        (onnx(tensor("w", *onnx_beside("d", length="7"))), "onnx-span 'w' takes 8 bytes, 7 are declared beside"),
        (
            onnx(tensor("w", (13, message((1, b"location"))), *onnx_beside("d"))),
            "onnx-twice the key 'location' is given",
        ),
        (
            onnx(tensor("a", *onnx_beside("d")), tensor("b", *onnx_beside("d", offset="4"))),
            "onnx-overlap 'b' starts at byte 4, inside 'a'",
        ),
    ],
)
def test_what_breaks_the_format_is_refused_with_place_and_reason(data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "d").write_bytes(b"0123456789ab")
    found = refusal(tmp_path, data)
    where, _, what = found.partition(": ")
    assert what.startswith(said), found
    assert where.startswith("M at byte ")
    assert int(where.rpartition(" ")[2]) <= len(data)


@pytest.mark.parametrize("location", ["../d", "/etc/passwd", "..", ".", "", "a/d", "a\\d", "d\0"])
def test_a_file_beside_the_model_never_leaves_its_folder(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "d").write_bytes(b"12345678")
    said = refusal(folder, onnx(tensor("w", *onnx_beside(location))))
    assert "onnx-external 'w' is in " in said
    assert "which is not a plain file name" in said


def test_graphs_nested_without_end_are_refused(tmp_path: Path) -> None:
    graph = b""
    for _ in range(5000):
        graph = message((1, message((5, message((6, graph))))))
    assert "onnx-depth graphs are nested more than 16 deep" in refusal(tmp_path, onnx(TWO, graph=graph))


@pytest.mark.parametrize("number", [7, 14, 99])
def test_a_length_of_2_to_the_60_is_refused_at_once(number: int, tmp_path: Path) -> None:
    data = onnx(TWO) + varint(number << 3 | 2) + varint(1 << 60)
    assert refusal(tmp_path, data) == (
        f"M at byte {len(onnx(TWO))}: onnx-truncated the field {number} takes 1152921504606846976 bytes, 0 are left"
    )


def test_a_number_of_fields_beyond_reason_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from weighbridge.formats import protobuf

    monkeypatch.setattr(protobuf, "MAX_FIELDS", 1000)
    assert "onnx-size more than 1000 fields" in refusal(tmp_path, onnx(TWO, graph=message(*[(99, 0)] * 2000)))


@pytest.mark.parametrize("cut", [1, 2, 3, 4096])
def test_a_model_cut_short_is_refused(cut: int, tmp_path: Path) -> None:
    large = onnx(tensor("w", (9, bytes(8000)), dims=(2000,)))
    assert "onnx-" in refusal(tmp_path, large[:-cut])


@given(st.data())
def test_no_cut_of_a_model_reads_as_the_whole(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = onnx(TWO, tensor("v", (9, b"abcdefgh")))
    cut = data.draw(st.integers(5, len(whole) - 1))
    with pytest.raises(SubjectError):
        open_checkpoint(written(tmp_path_factory.mktemp("cut"), whole[:cut]))


@pytest.mark.slow
@given(st.data())
def test_any_damage_is_an_error_or_is_read(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(onnx(TWO, tensor("v", *onnx_beside("model.onnx")), tensor("u", (4, b"abcdefgh"))))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(3, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.mktemp("damage"), bytes(whole))
    try:
        view = open_checkpoint(path)
    except SubjectError as error:
        assert error.where
    else:
        assert all(len(data) == view.tensor(name).nbytes for name, (_, _, data) in held(view).items())


@pytest.mark.parametrize(
    "head", [b"", b"\x08", b"\x08\x0a", b"\x08\x0a\x00\x00\x00\x00\x00\x00{}", b"\x08\x00\x12\x00\x00"]
)
def test_other_beginnings_are_not_taken_for_a_model(head: bytes) -> None:
    assert not begins(head)


def test_a_safetensors_file_whose_header_is_as_long_as_a_model_begins_is_no_model(tmp_path: Path) -> None:
    header = b'{"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}}'
    length = int.from_bytes(b"\x08\x0a\x12", "little")
    (tmp_path / "x").write_bytes(struct.pack("<Q", length) + header.ljust(length) + b"abc")
    assert begins((tmp_path / "x").read_bytes()[:32])
    view = open_checkpoint(tmp_path / "x")
    assert (view.format, bytes(view.read("w", 0, 3))) == ("safetensors", b"abc")
