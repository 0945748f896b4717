"""Compare the codes of ggml's blocks with values: how many are not the nearest that the scales of the file allow.

One row of `CODES` a block type: the codes of a value, and where its scales are, by ggml's block structures. Types whose
codes stand for several values at once have no nearest code for each; their signs tell, where each value has one.
Knows no threshold.
"""

import functools
from collections.abc import Callable, Mapping
from typing import TypeAlias

from weighbridge.core import Bytes, Floats, NDArray, dataclass, np

Scales: TypeAlias = tuple[Floats, Floats | None]  # of each part of a block: factor, and what is added

HALF_ULP = 2.0**-11  # of a scale: some quantisers choose codes before they round the scale to F16
HALF_SUBNORMAL = 2.0**-25  # the same where F16 is subnormal
ROUNDING = 1e-5  # of a step: what is between two codes may go either way
HALVES = 256  # beyond the largest point


@dataclass(frozen=True, slots=True)
class Codes:
    """The codes of a block type: evenly spaced from `least` to `most`, or `points`; `scales` reads those of blocks."""

    scales: Callable[[Bytes], Scales]
    least: int = 0
    most: int = 0
    points: tuple[int, ...] = ()


def not_nearest(values: Floats, decoded: Floats, blocks: Bytes, dtype: str) -> int | None:
    """Count the codes of `[blocks, bytes]` that are not the nearest to these values; None where nobody can tell."""
    if dtype in SIGNED:
        return int(np.maximum((values * decoded < 0).reshape(-1, 8).sum(axis=1) - SIGNED[dtype], 0).sum())
    if (codes := CODES.get(dtype)) is None:
        return None
    with np.errstate(all="ignore"):
        scale, added = codes.scales(blocks)
        of_parts = values.reshape(scale.size, -1), decoded.reshape(scale.size, -1), scale.reshape(-1, 1)
        more = np.zeros((1, 1), np.float32) if added is None else added.reshape(-1, 1)
        near = _among_points(codes, *of_parts) if codes.points else _in_steps(codes, *of_parts, more)
    return int(values.size - np.count_nonzero(near))


def _in_steps(codes: Codes, meant: Floats, there: Floats, scale: Floats, added: Floats) -> "NDArray[np.bool_]":
    """Mark the codes at most half a step from their values, or from the end that lies nearest to them."""
    ends = codes.least * scale + added, codes.most * scale + added
    slack = HALF_ULP * np.maximum(*map(np.abs, ends)) + np.float32(HALF_SUBNORMAL * codes.most)
    off = np.clip(meant, np.minimum(*ends), np.maximum(*ends))
    off -= there
    return np.abs(off, out=off) <= np.abs(scale) * np.float32(0.5 + ROUNDING) + slack


def _among_points(codes: Codes, meant: Floats, there: Floats, scale: Floats) -> "NDArray[np.bool_]":
    """Mark the codes that are as near to their values as the nearest point is; points are whole numbers."""
    at = meant * (2 / scale)  # in halves, between which no two points have their middle
    at += HALVES
    np.clip(at, 0, 2 * HALVES - 1, out=at)
    best = _nearest_points(codes.points).take(at.astype(np.int16), mode="clip") * scale
    best -= meant
    slack = 2 * max(map(abs, codes.points)) * (HALF_ULP * np.abs(scale) + np.float32(HALF_SUBNORMAL))
    off = np.abs(meant - there)
    off -= np.abs(best, out=best)
    near: NDArray[np.bool_] = off <= slack
    return near


@functools.cache
def _nearest_points(points: tuple[int, ...]) -> Floats:
    """Return the point that is nearest to each half, and to what is between it and the next."""
    middles = (np.arange(-HALVES, HALVES) + 0.5) / 2
    found: Floats = np.array(points, np.float32)
    nearest: Floats = found[np.abs(middles[:, None] - found).argmin(axis=1)]
    return nearest


def _half(blocks: Bytes, at: int) -> Floats:
    """Return the F16 of each block that starts at a byte, `[blocks, 1]`."""
    return blocks[:, at : at + 2].copy().view("<f2").astype("f4")


def _at(byte: int) -> Callable[[Bytes], Scales]:
    return lambda blocks: (_half(blocks, byte), None)


def _two(blocks: Bytes) -> Scales:
    return _half(blocks, 0), _half(blocks, 2)


def _q2_k(blocks: Bytes) -> Scales:
    both = blocks[:, :16]
    return _half(blocks, 80) * (both & 15).astype("f4"), -_half(blocks, 82) * (both >> 4).astype("f4")


def _q3_k(blocks: Bytes) -> Scales:
    low, high = blocks[:, 96:104], blocks[:, 104:108]
    lower = np.concatenate([low & 15, low >> 4], axis=1)
    upper = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    return _half(blocks, 108) * ((lower | upper << 4).astype(np.float32) - 32), None


def _q45_k(blocks: Bytes) -> Scales:
    first, second, both = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    factors = np.concatenate([first & 63, both & 15 | first >> 2 & 48], axis=1)
    added = np.concatenate([second & 63, both >> 4 | second >> 2 & 48], axis=1)
    return _half(blocks, 0) * factors.astype(np.float32), -_half(blocks, 2) * added.astype(np.float32)


def _iq4_xs(blocks: Bytes) -> Scales:
    lower = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    high = blocks[:, 2:4].copy().view("<u2")
    upper = (high >> np.arange(0, 16, 2, dtype=np.uint16) & 3).astype(np.uint8)
    return _half(blocks, 0) * ((lower | upper << 4).astype(np.float32) - 32), None


def _nvfp4(blocks: Bytes) -> Scales:
    import ml_dtypes

    return blocks[:, :4].copy().view(ml_dtypes.float8_e4m3fn).astype("f4") / 2, None


_one = _at(0)
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4 = (-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12)  # twice its values, as ggml has them
CODES: Mapping[str, Codes] = {
    "Q4_0": Codes(_one, -8, 7),
    "Q4_1": Codes(_two, 0, 15),
    "Q5_0": Codes(_one, -16, 15),
    "Q5_1": Codes(_two, 0, 31),
    "Q8_0": Codes(_one, -128, 127),
    "Q2_K": Codes(_q2_k, 0, 3),
    "Q3_K": Codes(_q3_k, -4, 3),
    "Q4_K": Codes(_q45_k, 0, 15),
    "Q5_K": Codes(_q45_k, 0, 31),
    "Q6_K": Codes(lambda blocks: (_half(blocks, 208) * blocks[:, 192:208].view("i1").astype("f4"), None), -32, 31),
    "TQ1_0": Codes(_at(52), -1, 1),
    "TQ2_0": Codes(_at(64), -1, 1),
    "IQ4_NL": Codes(_one, points=IQ4),
    "IQ4_XS": Codes(_iq4_xs, points=IQ4),
    "MXFP4": Codes(lambda blocks: (np.ldexp(np.float32(0.5), blocks[:, :1].astype("i4") - 127), None), points=FP4),
    "NVFP4": Codes(_nvfp4, points=FP4),
}
# Types of grids with a sign for each value, and how many of eight may be wrong: seven bits for eight signs make their
# number even.
SIGNED: Mapping[str, int] = {"IQ2_S": 0, "IQ3_S": 0, "IQ2_XXS": 1, "IQ2_XS": 1, "IQ3_XXS": 1}
