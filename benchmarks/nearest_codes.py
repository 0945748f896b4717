"""Quantise matrices to every block type by ggml, right and of other revisions, and count what is refused.

Needs ggml's library (llama.cpp's target `ggml-base`), and a checkpoint of trained weights:

    python -m benchmarks.nearest_codes --library …/libggml-base.so --source model.safetensors --work /tmp/codes

One line a type: the share of codes that are not the nearest, the largest of right conversions and the least of
others, and how many tensors value-preservation refused. Right are those without and with drawn importances (log-normal,
a spread of e and e²), and of values that were rounded to F16 or BF16 before; the others carry noise, of a share of the
tensor's own spread, or are multiplied. A type that needs importances gets equal ones where none are drawn.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement
from weighbridge.gates.families.block_types import BLOCK, NOT_NEAREST, TYPICAL_ERROR
from weighbridge.gates.value_preservation import KIND, code_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

COLUMNS, ROWS = 768, 128
NEEDED = ("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS")  # importances
RNG = np.random.default_rng(7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of making the file: what happens to the values first, and the spread of the importances."""

    name: str
    noise: float = 0.0
    factor: float = 1.0
    rounded: Any = np.float32
    spread: float = 0.0

    def values(self, matrix: Floats) -> Floats:
        """Return the values that are quantised."""
        noise = self.noise * matrix.std() * RNG.standard_normal(matrix.shape)
        found: Floats = ((matrix + noise) * self.factor).astype(self.rounded).astype(np.float32)
        return found


RIGHT = (
    Way(name="plain"), Way(name="matrix, e", spread=1.0), Way(name="matrix, e²", spread=2.0),
    Way(name="through F16", rounded=np.float16), Way(name="through BF16", rounded=ml_dtypes.bfloat16),
    Way(name="BF16, matrix e", rounded=ml_dtypes.bfloat16, spread=1.0),
)  # fmt: skip
OTHERS = (
    *(Way(name=f"{noise:.0%}", noise=noise) for noise in (0.01, 0.02, 0.05, 0.09)),
    Way(name="2%, matrix", noise=0.02, spread=1.0), Way(name="x1.01", factor=1.01), Way(name="x1.03", factor=1.03),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """ggml, the matrices, and where files go."""

    library: ctypes.CDLL
    matrices: Mapping[str, Floats]
    work: Path

    def weighed(self, dtype: str, way: Way) -> Sequence[TensorPair]:
        """Quantise every matrix in one way, and hold the file against the source."""
        target = self.work / "quantised.gguf"
        writer = gguf.GGUFWriter(target, "llama")
        for name, matrix in self.matrices.items():
            stored = self._quantised(way.values(matrix), dtype, way.spread)
            writer.add_tensor(name, stored, raw_dtype=gguf.GGMLQuantizationType[dtype])
        for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
            write()
        writer.close()
        found = VERIFIER.measure((open_checkpoint(self.work / "source.safetensors"), open_checkpoint(target)), {})
        assert isinstance(found, Measurement)
        return rows_of(found, TensorPair)

    def _quantised(self, values: Floats, dtype: str, spread: float) -> NDArray[np.uint8]:
        kind, floats = gguf.GGMLQuantizationType[dtype], ctypes.POINTER(ctypes.c_float)
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        stored = np.zeros((len(values), values.shape[1] // elements * size), np.uint8)
        drawn = np.exp(spread * RNG.standard_normal(values.shape[1])).astype(np.float32)
        importances = drawn.ctypes.data_as(floats) if spread or dtype in NEEDED else None
        counts = (ctypes.c_int64(count) for count in (0, *values.shape))
        self.library.ggml_quantize_init(int(kind))
        self.library.ggml_quantize_chunk(
            int(kind), values.ctypes.data_as(floats), ctypes.c_void_p(stored.ctypes.data), *counts, importances
        )
        return stored


def told(dtype: str, ways: Sequence[Way], shop: Workshop) -> Iterator[tuple[str, int, Sequence[float]]]:
    """Yield of each way its name, how many tensors were refused, and the shares of codes that are not the nearest."""
    limits = read(KIND.limits, {"policy": f"quantised:{'MXFP4_MOE' if dtype == 'MXFP4' else dtype}"})
    for way in ways:
        rows = shop.weighed(dtype, way)
        refused = sum(bool(code_of(row, limits)) for row in rows)
        yield way.name, refused, [(row.not_nearest or 0) / row.elements for row in rows]


def matrices(source: Path, many: int) -> Mapping[str, Floats]:
    """Return the first matrices of a checkpoint, cut to one size."""
    stored = load_file(source)
    large = (name for name in sorted(stored) if stored[name].ndim == 2 and stored[name].size >= ROWS * COLUMNS)
    chosen = list(large)[:: max(1, sum(1 for one in stored.values() if one.ndim == 2) // many)][:many]
    return {
        name: stored[name].reshape(-1)[: ROWS * COLUMNS].reshape(ROWS, COLUMNS).astype(np.float32) for name in chosen
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--library", "--source", "--work"):
        parser.add_argument(name, type=Path, required=True)
    parser.add_argument("--types", default=",".join(TYPICAL_ERROR))
    parser.add_argument("--matrices", type=int, default=12)
    given = parser.parse_args()
    given.work.mkdir(exist_ok=True)
    found = matrices(given.source, given.matrices)
    save_file(dict(found), given.work / "source.safetensors")
    shop = Workshop(library=ctypes.CDLL(str(given.library)), matrices=found, work=given.work)
    print(f"{len(found)} matrices of {ROWS}x{COLUMNS}; share of codes not nearest (refused)")
    for dtype in given.types.split(","):
        assert COLUMNS % BLOCK[dtype] == 0
        right = [f"{name} {max(shares):.4%} ({no})" for name, no, shares in told(dtype, RIGHT, shop)]
        others = [f"{name} {min(shares):.4%} ({no})" for name, no, shares in told(dtype, OTHERS, shop)]
        print(f"{dtype:8} bound {NOT_NEAREST.get(dtype, 1):.4%} | {', '.join(right)} | {', '.join(others)}", flush=True)


if __name__ == "__main__":
    main()
