"""The reader of distributed checkpoints, against torch.distributed.checkpoint as oracle, in one process and in two."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.formats.torch_file import DTYPES  # noqa: E402
from weighbridge.quantities.base import rows_of  # noqa: E402
from weighbridge.quantities.checkpoints import FileStructure  # noqa: E402
from weighbridge.verifiers.file_structure import VERIFIER  # noqa: E402
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")


def saved(folder: Path, state: Mapping[str, Any], **options: Any) -> CheckpointView:
    from torch.distributed.checkpoint.filesystem import FileSystemWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    save(dict(state), storage_writer=FileSystemWriter(folder, **options), no_dist=True)
    return open_checkpoint(folder)


def stored(tensor: Any) -> bytes:
    return bytes(tensor.detach().clone(memory_format=torch.contiguous_format).flatten().view(torch.uint8).tolist())


def agree(view: CheckpointView, expected: Mapping[str, Any]) -> None:
    assert view.names() == tuple(sorted(expected))
    for name, tensor in expected.items():
        found = view.tensor(name)
        assert (getattr(torch, next(key for key, dtype in DTYPES.items() if dtype == found.dtype)), found.shape) == (
            tensor.dtype,
            tuple(tensor.shape),
        )
        assert b"".join(map(bytes, view.chunks(name, 7))) == stored(tensor)
    assert all(checksum.found(view.files[checksum.file]) == checksum.stored for checksum in view.checksums)


def compared(*paths: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "weighbridge", "compare", *map(str, paths)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True)
    return ended.returncode, ended.stdout


def flipped(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 4
    file.write_bytes(data)


def test_every_dtype_and_view_is_read(tmp_path: Path) -> None:
    words = torch.arange(1, 49, dtype=torch.uint8)
    tensors = {
        name: words > 9 if name == "bool" else words.clone().view(getattr(torch, name))
        for name in DTYPES
        if name != "float4_e2m1fn_x2"
    }
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    views = {"turned": base.T, "row": base[2], "column": base[:, 1], "scalar": base[1, 1], "empty": base[:0]}
    agree(saved(tmp_path / "x", tensors | views), tensors | views)


def test_packed_four_bit_values_have_the_shape_that_safetensors_gives_them(tmp_path: Path) -> None:
    packed = torch.arange(16, dtype=torch.uint8).reshape(2, 8).view(torch.float4_e2m1fn_x2)
    view = saved(tmp_path / "x", {"w": packed})
    assert (view.tensor("w").dtype, view.tensor("w").shape) == ("F4", (2, 16))
    assert b"".join(map(bytes, view.chunks("w", 5))) == bytes(range(16))


@pytest.mark.parametrize("options", [{}, {"single_file_per_rank": False}, {"thread_count": 3}], ids=str)
def test_a_model_with_its_optimizer_is_read_and_what_is_no_tensor_is_counted(tmp_path: Path, options: Any) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    view = saved(
        tmp_path / "x", {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}, **options
    )
    expected = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for key, entries in optimizer.state_dict()["state"].items():
        expected |= {f"optimizer.state.{key}.{name}": tensor for name, tensor in entries.items()}
    agree(view, expected)
    settings = len(optimizer.state_dict()["param_groups"][0])
    assert view.metadata == {"dcp.unweighed_items": settings + 1}
    assert open_checkpoint(tmp_path / "x" / ".metadata").names() == view.names()


@pytest.mark.parametrize("protocol", [2, 3, 5])
def test_every_pickle_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    folder, tensors = tmp_path / "x", {"w": torch.ones(3), "n": torch.zeros(2, 2)}
    saved(folder, {**tensors, "step": 3})
    with (folder / ".metadata").open("rb") as file:
        described = pickle.load(file)
    (folder / ".metadata").write_bytes(pickle.dumps(described, protocol=protocol))
    agree(open_checkpoint(folder), tensors)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_properties_are_read_as_pytorch_before_2_4_wrote_them(tmp_path: Path) -> None:
    from torch.distributed._shard.sharded_tensor.metadata import TensorProperties

    folder = tmp_path / "x"
    saved(folder, {"w": torch.ones(3, dtype=torch.bfloat16)})
    with (folder / ".metadata").open("rb") as file:
        described = pickle.load(file)
    described.state_dict_metadata["w"].properties = TensorProperties(dtype=torch.bfloat16)
    del described.storage_meta, described.version
    (folder / ".metadata").write_bytes(pickle.dumps(described, protocol=4))
    agree(open_checkpoint(folder), {"w": torch.ones(3, dtype=torch.bfloat16)})


def test_another_dtype_than_the_metadata_says_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    saved(folder, {"w": torch.ones(3, dtype=torch.bfloat16)})
    data = (folder / ".metadata").read_bytes()
    changed = data.replace(b"\x8c\x08bfloat16", b"\x8c\x07float16").replace(
        (len(data) - 11).to_bytes(8, "little"), (len(data) - 12).to_bytes(8, "little")
    )
    assert pickle.loads(changed).state_dict_metadata["w"].properties.dtype is torch.float16
    (folder / ".metadata").write_bytes(changed)
    with pytest.raises(
        SubjectError, match=r"dcp-piece 'w' from \[0\] on holds BF16 \[3\], the metadata says F16 \[3\]"
    ):
        open_checkpoint(folder)


def test_a_file_left_over_from_another_save_is_reported_and_a_rank_without_items_is_not(tmp_path: Path) -> None:
    view = saved(tmp_path / "x", {"w": torch.ones(3)})
    (tmp_path / "x" / "__1_0.distcp").touch()
    (tmp_path / "x" / "__2_0.distcp").write_bytes(b"left over")
    found = VERIFIER.measure((view,), {})
    assert [(row.name, row.role, row.tensor_bytes) for row in rows_of(found, FileStructure)] == [
        ("file .metadata", "index", 12),
        ("file __0_0.distcp", "weights", 12),
        ("file __2_0.distcp", "beside", 0),
    ]


TWO_RANKS = """
import os, sys, torch
from safetensors.torch import save_file
from torch import distributed as dist
from torch.distributed import checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

rank, home = int(sys.argv[1]), sys.argv[2]

def save():
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (2,))
    whole = {
        "row": torch.randn(5, 6), "col": torch.randn(5, 6).to(torch.bfloat16), "middle": torch.randn(2, 3, 4),
        "one": torch.randn(1, 3), "replicated": torch.randn(4), "plain": torch.randn(3),
    }
    axes = {"row": 0, "col": 1, "middle": 1, "one": 0}
    state = {name: distribute_tensor(whole[name], mesh, [Shard(axis)]) for name, axis in axes.items()}
    state["replicated"] = distribute_tensor(whole["replicated"], mesh, [Replicate()])
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.LayerNorm(5))
    whole |= {f"model.{name}": tensor.clone() for name, tensor in model.state_dict().items()}
    fully_shard(model, mesh=mesh)
    dcp.save({**state, "plain": whole["plain"], "model": model.state_dict(), "step": 3}, checkpoint_id=f"{home}/x")
    if rank == 0:
        save_file(whole, f"{home}/model.safetensors")


dist.init_process_group("gloo", rank=rank, world_size=2, init_method=f"file://{home}/rendezvous")
save()  # and drop what still holds the group: nothing of it may be left to the end of the interpreter
dist.barrier()  # neither leaves while the other still writes
dist.destroy_process_group()
os._exit(0)  # a rank of torch aborts now and then while the interpreter ends, without us, too
"""


@pytest.mark.exhaustive
def test_shards_of_two_ranks_are_the_tensors_that_were_sharded(tmp_path: Path) -> None:
    ranks = [subprocess.Popen([sys.executable, "-c", TWO_RANKS, str(rank), str(tmp_path)]) for rank in range(2)]
    assert [rank.wait(300) for rank in ranks] == [0, 0]
    view = open_checkpoint(tmp_path / "x")
    assert view.metadata == {"dcp.unweighed_items": 1}
    assert {name for name in view.names() if len(view.tensor(name).stored) == 2} == {
        "row", "col", "middle", "model.0.weight", "model.0.bias", "model.1.weight", "model.1.bias",
    }  # fmt: skip
    code, output = compared(tmp_path / "model.safetensors", tmp_path / "x")
    assert (code, output.splitlines()[-1].partition(" (")[0]) == (0, "SAME: 10 of 10 tensors"), output
    assert all(checksum.found(view.files[checksum.file]) == checksum.stored for checksum in view.checksums)
    last = view.tensor("col").stored[1]
    flipped(Path(last.file), last.offset)
    code, output = compared(tmp_path / "model.safetensors", tmp_path / "x")
    assert code == 1
    assert "col: BF16 -> BF16, but 1 of 30 elements is not the source's: element 3 at byte " in output
    assert output.splitlines()[-1].startswith("DIFFERENT: 1 of 10 tensors")
