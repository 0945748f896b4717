"""Compare packed weights with their source: ours against reading the same files, as ratios in one run.

    python -m benchmarks.packed [--matrices 6] [--rounds 5] [--only fp8-block mlx-q4 …]

A row is one packing against its source in BF16, or the other way round: `weighbridge compare` on large files beyond the
same on tiny ones, against reading both files from the page cache into a buffer, a MiB at a time. Every figure is a
subprocess of its own, rounds are interleaved, ratios are medians of each round's. Memory is the process's high-water
mark, file pages included, above that on tiny files.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import gguf
import ml_dtypes
import numpy as np
from benchmarks.compare import Peer
from safetensors.numpy import save_file

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float32]
    Packed: TypeAlias = tuple[Mapping[str, Any], dict[str, Any]]

BF16, F8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
NF4 = (-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0, 0.0795803, 0.1609302,
       0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0)  # fmt: skip
FP4 = np.array((0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0), np.float32)
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
GROUP = 128

READ = """
import sys
buffer = bytearray(1 << 20)
for path in sys.argv[1:3]:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
"""


def scaled(high: int, wide: int, kind: Any, largest: float, name: str) -> Callable[[Floats], Packed]:
    """Pack bytes with a scale for each block of rows and columns; 0 is all of them."""

    def pack(values: Floats) -> Packed:
        rows, columns = high or len(values), wide or values.shape[1]
        blocks = values.reshape(len(values) // rows, rows, -1, columns)
        scales = np.abs(blocks).max((1, 3)) / np.float32(largest)
        codes = (blocks / scales[:, None, :, None]).reshape(values.shape)
        codes = (np.rint(codes) if kind is np.int8 else codes).astype(kind)
        settings = {"quant_method": "fp8" if wide and high > 1 else "compressed-tensors"}
        return {"weight": codes, name: scales if scales.size > 1 else scales.reshape(1)}, settings

    return pack


def affine(bits: int) -> Callable[[Floats], Packed]:
    """Pack as MLX does: groups of 64 with scale and bias."""

    def pack(values: Floats) -> Packed:
        groups = values.reshape(len(values), -1, 64)
        least = groups.min(2).astype(BF16)
        scales = ((groups.max(2) - least.astype("f4")) / np.float32((1 << bits) - 1)).astype(BF16)
        codes = np.rint((groups - least.astype("f4")[..., None]) / scales.astype("f4")[..., None])
        held = np.clip(codes, 0, (1 << bits) - 1).astype(np.uint8).reshape(values.shape)
        stored = held if bits == 8 else held[:, ::2] | held[:, 1::2] << 4
        tensors = {"weight": np.ascontiguousarray(stored).view("<u4"), "scales": scales, "biases": least}
        return tensors, {"bits": bits, "group_size": 64}

    return pack


def pack_quantized(values: Floats) -> Packed:
    """Pack as compressed-tensors does: symmetric, four bits in words along rows."""
    groups = values.reshape(len(values), -1, GROUP)
    scales = (np.abs(groups).max(2) / np.float32(7.5)).astype(BF16)
    codes = np.clip(np.rint(groups / scales.astype("f4")[..., None]), -8, 7).astype(np.int8) + 8
    held = codes.astype(np.uint8).reshape(values.shape)
    tensors = {
        "weight_packed": (held[:, ::2] | held[:, 1::2] << 4).view("<i4"), "weight_scale": scales,
        "weight_shape": np.array(values.shape, np.int64),
    }  # fmt: skip
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True}
    return tensors, {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}


def by_outputs(method: str) -> Callable[[Floats], Packed]:
    """Pack as GPTQ or AWQ's GEMM does: inputs by outputs, groups of inputs with a zero point."""

    def pack(values: Floats) -> Packed:
        groups = values.T.reshape(-1, GROUP, len(values))
        least, most = np.minimum(groups.min(1), 0), np.maximum(groups.max(1), 0)
        scales = ((most - least) / np.float32(15)).astype(np.float16)
        wide = scales.astype("f4")
        zeros = np.clip(np.rint(-least / wide), 0, 15)
        codes = np.clip(np.rint(groups / wide[:, None]) + zeros[:, None], 0, 15).astype(np.uint32)
        codes = codes.reshape(-1, len(values))
        order = AWQ_ORDER if method == "awq" else tuple(range(8))

        def along(numbers: NDArray[np.uint32]) -> NDArray[np.int32]:
            words = numbers.reshape(len(numbers), -1, 8)
            found: NDArray[np.int32] = np.bitwise_or.reduce(
                [words[..., at] << (4 * i) for i, at in enumerate(order)]
            ).view("<i4")
            return found

        down = np.bitwise_or.reduce([codes[at::8] << (4 * at) for at in range(8)]).view("<i4")
        held = zeros.astype(np.uint32) - (method == "gptq")
        tensors = {"qweight": along(codes) if method == "awq" else down, "qzeros": along(held & 15), "scales": scales}
        if method == "gptq":
            tensors["g_idx"] = (np.arange(values.shape[1]) // GROUP).astype(np.int32)
        return tensors, {"quant_method": method, "bits": 4, "group_size": GROUP, "version": "gemm"}

    return pack


def nf4(values: Floats) -> Packed:
    """Pack as bitsandbytes does: blocks of 64 of the flat weight, the upper half of a byte first."""
    points = np.array(NF4, np.float32)
    blocks = values.reshape(-1, 64)
    absmax = np.abs(blocks).max(1)
    codes = np.searchsorted((points[1:] + points[:-1]) / 2, blocks / absmax[:, None]).astype(np.uint8).reshape(-1, 2)
    state = json.dumps({"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": list(values.shape)})
    tensors = {
        "weight": codes[:, :1] << 4 | codes[:, 1:], "weight.absmax": absmax, "weight.quant_map": points,
        "weight.quant_state.bitsandbytes__nf4": np.frombuffer(state.encode(), np.uint8),
    }  # fmt: skip
    return tensors, {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "nf4"}


def int8_rows(values: Floats) -> Packed:
    """Pack as bitsandbytes does in eight bits."""
    most = np.abs(values).max(1)
    return {"weight": np.rint(values * (127 / most)[:, None]).astype(np.int8), "SCB": most}, {
        "quant_method": "bitsandbytes"
    }


def mxfp4(values: Floats) -> Packed:
    """Pack as gpt-oss does, from ggml's codes, whose bytes hold elements 16 apart; a stack of 32 experts."""
    stored = gguf.quantize(values, gguf.GGMLQuantizationType.MXFP4).reshape(32, -1, values.shape[1] // 32, 17)
    codes = np.concatenate([stored[..., 1:] & 15, stored[..., 1:] >> 4], -1)
    return {
        "weight_blocks": codes[..., ::2] | codes[..., 1::2] << 4,
        "weight_scales": np.ascontiguousarray(stored[..., 0]),
    }, {"quant_method": "mxfp4"}


PACKERS: Mapping[str, Callable[[Floats], Packed]] = {
    "fp8-tensor": scaled(0, 0, F8, 448, "weight_scale"), "fp8-channel": scaled(1, 0, F8, 448, "weight_scale"),
    "fp8-block": scaled(128, 128, F8, 448, "weight_scale_inv"),
    "int8-channel": scaled(1, 0, np.int8, 127, "weight_scale"),
    "pack-quantized": pack_quantized, "gptq": by_outputs("gptq"), "awq": by_outputs("awq"), "bnb-nf4": nf4,
    "bnb-int8": int8_rows, "mxfp4": mxfp4, "mlx-q4": affine(4), "mlx-q8": affine(8),
}  # fmt: skip
UNPACKED = ("fp8-channel", "fp8-block", "int8-channel", "bnb-nf4", "mxfp4")  # whose values are a source, too


def unpacked(name: str, values: Floats, tensors: Mapping[str, Any]) -> Floats:
    """Return what a packing unpacks to, rounded to BF16 by whoever writes it."""
    if name == "mxfp4":
        blocks = gguf.quantize(values, gguf.GGMLQuantizationType.MXFP4)
        found = gguf.dequantize(blocks, gguf.GGMLQuantizationType.MXFP4).reshape(32, -1, values.shape[1])
        return np.ascontiguousarray(found.transpose(0, 2, 1))
    if name == "bnb-nf4":
        halves = np.concatenate([tensors["weight"] >> 4, tensors["weight"] & 15], 1).reshape(-1, 64)
        found = np.array(NF4, np.float32)[halves] * tensors["weight.absmax"][:, None]
        flat: Floats = found.reshape(values.shape)
        return flat
    scales = tensors.get("weight_scale", tensors.get("weight_scale_inv"))
    high, wide = (size // many for size, many in zip(values.shape, scales.shape, strict=True))
    whole: Floats = tensors["weight"].astype("f4") * np.repeat(np.repeat(scales, high, 0), wide, 1)
    return whole


def written(folder: Path, tensors: Mapping[str, Any], settings: dict[str, Any] | None, matrices: int) -> Path:
    """Write a model whose matrices are all this one."""
    folder.mkdir()
    stem = "model.layers.{}.mlp.up_proj."
    held = {stem.format(at) + end: np.ascontiguousarray(one) for at in range(matrices) for end, one in tensors.items()}
    save_file(held | {"model.norm.weight": np.ones(64, np.float32)}, folder / "model.safetensors")
    config = {"model_type": "llama"} | ({} if settings is None else {"quantization_config": settings})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def pairs_of(folder: Path, name: str, matrices: int) -> dict[str, list[tuple[Path, Path]]]:
    """Write the files of a packing; return them by row of the table, tiny ones first."""
    pairs: dict[str, list[tuple[Path, Path]]] = {}
    for at, (size, many) in enumerate(((256, 1), (4096, matrices))):
        drawn = np.random.default_rng(0).standard_normal((size, size), np.float32) * np.float32(0.02)
        values = drawn.astype(BF16).astype("f4")
        tensors, settings = PACKERS[name](values)
        packed = written(folder / f"{name}-{at}", tensors, settings, many)
        like = values.reshape(32, -1, size).transpose(0, 2, 1) if name == "mxfp4" else values
        source = written(folder / f"{name}-{at}-source", {"weight": like.astype(BF16)}, None, many)
        pairs.setdefault(f"BF16 -> {name}", []).append((source, packed))
        if name in UNPACKED:
            back = {"weight": unpacked(name, values, tensors).astype(BF16)}
            there = written(folder / f"{name}-{at}-back", back, None, many)
            pairs.setdefault(f"{name} -> BF16", []).append((packed, there))
    return pairs


def peers(folder: Path, name: str, matrices: int) -> dict[str, tuple[Peer, Peer]]:
    """Return reading and comparing by row; files are made elsewhere, for a process starts with its parent's peak."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pairs = pool.submit(pairs_of, folder, name, matrices).result()
    ours, reading = (sys.executable, "-m", "weighbridge", "compare"), (sys.executable, "-c", READ)
    found = {}
    for row, (tiny, large) in pairs.items():
        inside = [[one / "model.safetensors" for one in pair] for pair in (tiny, large)]
        found[row] = Peer([*reading, *inside[0]], [*reading, *inside[1]]), Peer([*ours, *tiny], [*ours, *large])
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--matrices", type=int, default=6, help="of 4096x4096 each")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(PACKERS), choices=list(PACKERS))
    chosen = parser.parse_args(arguments)
    print(
        f"{'':26}{'MB':>6}{'read':>8}{'compare':>9}{'of read bandwidth':>19}{'by CPU':>8}{'MB/s':>8}{'MiB above':>11}"
    )
    for name in chosen.only:
        with tempfile.TemporaryDirectory() as folder:
            for row, (reading, ours) in peers(Path(folder), name, chosen.matrices).items():
                for _ in range(chosen.rounds):
                    reading.once()
                    ours.once()
                size = sum(Path(path).stat().st_size for path in reading.large[-2:])
                share = [
                    statistics.median(a / b for a, b in zip(reading.beyond(what), ours.beyond(what), strict=True))
                    for what in ("wall", "cpu")
                ]
                read, wall = (statistics.median(one.beyond("wall")) for one in (reading, ours))
                print(
                    f"{row:26}{size / 1e6:6.0f}{read:8.3f}{wall:9.3f}{share[0]:19.0%}{share[1]:8.0%}"
                    f"{size / wall / 1e6:8.0f}{ours.above():11.1f}", flush=True
                )  # fmt: skip


if __name__ == "__main__":
    main()
