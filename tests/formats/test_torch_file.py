"""The PyTorch readers, against torch.save as oracle: both formats, views, shared storages, parameters, every dtype."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from hypothesis import given, settings  # noqa: E402 -- only where torch is
from hypothesis import strategies as st  # noqa: E402
from tests.formats.files import joined  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint  # noqa: E402

BOTH = pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
DTYPES = {
    "BOOL": torch.bool, "U8": torch.uint8, "I8": torch.int8, "I16": torch.int16, "U16": torch.uint16,
    "I32": torch.int32, "U32": torch.uint32, "I64": torch.int64, "U64": torch.uint64, "F16": torch.float16,
    "BF16": torch.bfloat16, "F32": torch.float32, "F64": torch.float64, "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2, "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz, "F8_E8M0": torch.float8_e8m0fnu,
}  # fmt: skip


def saved(path: Path, value: Any, zipped: bool = True, **options: Any) -> CheckpointView:
    torch.save(value, path, _use_new_zipfile_serialization=zipped, **options)
    return open_checkpoint(path)


def stored(tensor: Any) -> bytes:
    return bytes(tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).tolist())


def refused(path: Path, value: Any) -> str:
    torch.save(value, path)
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(path)
    return f"{caught.value.code} {caught.value.what}"


def agree(view: CheckpointView, expected: Mapping[str, Any]) -> None:
    assert view.names() == tuple(sorted(expected))
    for name, tensor in expected.items():
        found = view.tensor(name)
        assert (DTYPES[found.dtype], found.shape) == (tensor.dtype, tuple(tensor.shape))
        assert found.nbytes == tensor.nbytes
        assert joined(view, name) == stored(tensor)
        assert bytes(view.read(name, 1, 10)) == stored(tensor)[1:10]
        size = found.unit[1]
        for at in range(0, found.nbytes, 3):
            there = view.files[found.file].read(found.file_offset(at), found.file_offset(at) + 1)
            assert bytes(there) == stored(tensor)[at : at + 1], (name, at, size)


@BOTH
def test_every_dtype_that_torch_stores_is_read(tmp_path: Path, zipped: bool) -> None:
    words = torch.arange(1, 49, dtype=torch.uint8)
    tensors = {name: words.clone().view(dtype) if name != "BOOL" else words > 9 for name, dtype in DTYPES.items()}
    agree(saved(tmp_path / "x", tensors, zipped), tensors)


@BOTH
def test_views_are_read_in_row_major_order(tmp_path: Path, zipped: bool) -> None:
    base = torch.arange(120, dtype=torch.float32).reshape(4, 5, 6)
    tensors = {
        "base": base, "turned": base.permute(2, 0, 1), "column": base[:, 2, 3], "slice": base[1:3, ::2, 1:],
        "step": base[:, :, ::4], "last": base[3], "empty": base[:0], "scalar": base[1, 1, 1], "one": base[1:2, :, 5],
        "repeated": base[0, 0].expand(3, 6), "t16": torch.arange(12, dtype=torch.int16).reshape(3, 4).T,
    }  # fmt: skip
    agree(saved(tmp_path / "x", tensors, zipped), tensors)


@BOTH
def test_a_shared_storage_is_stored_once_and_read_twice(tmp_path: Path, zipped: bool) -> None:
    head = torch.randn(6, 4)
    view = saved(tmp_path / "x", {"embed": head, "head": head, "tied": torch.nn.Parameter(head.T)}, zipped)
    agree(view, {"embed": head, "head": head, "tied": head.T})
    assert view.tensor("embed").offset == view.tensor("head").offset


@BOTH
def test_a_module_s_state_dict_and_an_optimizer_s_are_flattened(tmp_path: Path, zipped: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3, "note": "x" * 2000}
    view = saved(tmp_path / "x", kept, zipped)
    expected = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for key, entries in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer.state.{key}.{name}": tensor for name, tensor in entries.items()}
    agree(view, expected)
    assert (view.metadata["epoch"], view.metadata["note"]) == (3, None)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@BOTH
def test_every_pickle_protocol_that_torch_writes_is_read(tmp_path: Path, zipped: bool, protocol: int) -> None:
    tensors = {"w": torch.randn(3), "list": [torch.ones(2)], "set": {1, 2}, "size": torch.Size([3]), "bytes": b"ab"}
    view = saved(tmp_path / "x", tensors, zipped, pickle_protocol=protocol)
    agree(view, {"w": tensors["w"], "list.0": torch.ones(2)})
    assert {"set", "size", "bytes"} <= set(view.metadata)


def test_a_tensor_a_list_or_a_storage_alone_has_a_name(tmp_path: Path) -> None:
    one = torch.arange(3.0)
    agree(saved(tmp_path / "x", one), {"tensor": one})
    agree(saved(tmp_path / "x", [one, (one,)]), {"0": one, "1.0": one})
    agree(saved(tmp_path / "x", {"s": one.untyped_storage()}), {"s": one.view(torch.uint8)})


def test_attributes_of_a_parameter_are_looked_into(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.scale = torch.full((1,), 2.0)
    agree(saved(tmp_path / "x", {"p": parameter}), {"p": torch.ones(2), "p.scale": torch.full((1,), 2.0)})


def test_packed_four_bit_values_have_the_shape_that_safetensors_gives_them(tmp_path: Path) -> None:
    packed = torch.arange(16, dtype=torch.uint8).reshape(2, 8).view(torch.float4_e2m1fn_x2)
    view = saved(tmp_path / "x", {"w": packed})
    assert (view.tensor("w").dtype, view.tensor("w").shape, joined(view, "w")) == ("F4", (2, 16), bytes(range(16)))


def test_numpy_scalars_are_metadata(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    view = saved(tmp_path / "x", {"loss": np.float64(3.0), "w": torch.ones(1)})
    assert (view.names(), view.metadata) == (("w",), {"loss": None})


def test_two_names_that_become_one_are_refused(tmp_path: Path) -> None:
    message = refused(tmp_path / "x", {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}})
    assert message == "torch-twice two tensors are called 'a.b' once names are joined with dots"


def test_what_is_no_plain_stored_tensor_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert refused(path, {"c": torch.ones(2, dtype=torch.complex64).conj()}).startswith("torch-tensor 'c' is a view")
    assert "'torch._utils._rebuild_sparse_tensor'" in refused(path, {"s": torch.eye(3).to_sparse()})
    assert "'torch.ComplexDoubleStorage'" in refused(path, {"z": torch.ones(2, dtype=torch.complex128)})
    assert refused(path, {"e": torch.zeros(1).expand(2**40)}).startswith("torch-expanded 'e': 4398046511104 bytes")
    assert "'torch.nn.modules.linear.Linear'" in refused(path, torch.nn.Linear(1, 1))


class Hostile:
    """Runs a command when it is unpickled."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


@BOTH
def test_a_pickle_that_runs_code_is_refused_and_runs_none(tmp_path: Path, zipped: bool) -> None:
    trace = tmp_path / "trace"
    torch.save(
        {"w": torch.ones(1), "x": Hostile(f"touch {trace}")}, tmp_path / "x", _use_new_zipfile_serialization=zipped
    )
    with pytest.raises(SubjectError, match=r"pickle-global names 'posix.system'.*nothing was imported or called"):
        open_checkpoint(tmp_path / "x")
    assert not trace.exists()
    subprocess.run(["touch", trace], check=True)  # so the trace would have been seen
    assert trace.exists()


def test_a_torchscript_archive_is_refused(tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "x", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02N.")
        archive.writestr("m/constants.pkl", b"\x80\x02).")
    with pytest.raises(SubjectError, match="torch-script is a TorchScript program"):
        open_checkpoint(tmp_path / "x")


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_what_is_to_be_saved_of_a_torchscript_program_is_read(tmp_path: Path) -> None:
    torch.jit.script(torch.nn.Linear(3, 2)).save(str(tmp_path / "x"))
    with pytest.raises(SubjectError) as caught:
        open_checkpoint(tmp_path / "x")
    assert "torch.jit.load(FILE).state_dict()" in str(caught.value.remedy)
    torch.save(torch.jit.load(tmp_path / "x").state_dict(), tmp_path / "y")
    assert open_checkpoint(tmp_path / "y").names() == ("bias", "weight")


def test_a_flipped_bit_in_a_storage_breaks_its_checksum(tmp_path: Path) -> None:
    view = saved(tmp_path / "x", {"w": torch.arange(8.0)})
    assert all(checksum.found(view.files[checksum.file]) == checksum.stored for checksum in view.checksums)
    data = bytearray((tmp_path / "x").read_bytes())
    data[view.tensor("w").offset + 5] ^= 1
    (tmp_path / "x").write_bytes(data)
    damaged = open_checkpoint(tmp_path / "x")
    wrong = [
        printed.place for printed in damaged.checksums if printed.found(damaged.files[printed.file]) != printed.stored
    ]
    assert [place.partition("/")[2] for place in wrong] == ["data/0"]


layouts = st.tuples(
    st.lists(st.integers(0, 4), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.complex64]),
)


@settings(max_examples=40)
@given(layout=layouts, size=st.integers(1, 50), zipped=st.booleans())
def test_any_permuted_slice_is_read_as_torch_reads_it(
    tmp_path: Path, layout: tuple[list[int], Any, Any], size: int, zipped: bool
) -> None:
    shape, random, dtype = layout
    base = torch.arange(int(torch.tensor(shape).prod())).to(dtype).reshape(shape)
    order = list(range(len(shape)))
    random.shuffle(order)
    tensor = base.permute(order)[tuple(slice(random.randrange(2), None, random.randrange(1, 3)) for _ in shape)]
    view = saved(tmp_path / "x", {"w": tensor}, zipped)
    assert view.tensor("w").shape == tuple(tensor.shape)
    assert joined(view, "w", size) == stored(tensor)
    if tensor.numel() > 2:
        assert joined(view.cut(["w"], 2), "w", size) == stored(tensor.reshape(-1)[-2:])
        damaged = view.overlaid("w", tensor.nbytes - 1, b"!")
        assert joined(damaged.cut(["w"], 2), "w", size) == stored(tensor.reshape(-1)[-2:])[:-1] + b"!"
