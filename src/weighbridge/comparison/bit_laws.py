"""How well the magnitudes of 16-bit words follow the laws that weights follow, under either reading of their bits.

A symbol is the eight bits after the sign: F16 reads them as five of exponent and three of mantissa, BF16 as its whole
exponent. The laws are zero-centred (normal, Laplace, Cauchy, uniform), of scales 2^-16 (BF16: 2^-32) to 2^4.
Measures how many bits an element costs beyond its entropy; knows no threshold, and no file.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Counts: TypeAlias = NDArray[np.int64]  # [256], how often each symbol occurs
    Masses: TypeAlias = NDArray[np.float64]

READINGS = ("BF16", "F16")
SYMBOLS = 256
SHIFT = 7  # a symbol leaves out so many bits of a word
SCALES = {  # quarter octaves; F16 holds nothing of the smaller ones
    "BF16": tuple(2.0 ** (quarter / 4) for quarter in range(-128, 17)),
    "F16": tuple(2.0 ** (quarter / 4) for quarter in range(-64, 17)),
}
DIGITS = 6  # of a bit; what lies behind depends on the order of summing
STRAY = 2.0**-10  # of the mass of every law is spread evenly, so that a stray outlier costs bits and not everything


def symbols(words: NDArray[Any]) -> NDArray[Any]:
    """Return the eight bits after the sign of 16-bit words, `[elements]`."""
    return words >> SHIFT & (SYMBOLS - 1)


def excess(counts: Counts) -> dict[str, float]:
    """Return the bits per element that the best law costs beyond the entropy, by reading, of at least one element.

    This is the Kullback-Leibler divergence of the symbols from the nearest law.
    """
    import numpy as np

    seen = counts > 0
    share = counts[seen] / int(counts.sum())
    gained = float((share * np.log2(share)).sum())
    return {
        reading: round(gained - float((_log2_masses(reading)[:, seen] @ share).max()), DIGITS) for reading in READINGS
    }


def divergence(one: Counts, other: Counts) -> float | None:
    """Return the Jensen-Shannon divergence of two distributions over the same symbols, in bits: 0 equal, 1 disjoint."""
    if not one.sum() or not other.sum():
        return None
    shares = one / one.sum(), other / other.sum()
    apart = _entropy((shares[0] + shares[1]) / 2) - (_entropy(shares[0]) + _entropy(shares[1])) / 2
    return round(min(max(apart, 0.0), 1.0), DIGITS)


def entropy(one: Counts, other: Counts) -> float:
    """Return the entropy of two distributions put together, in bits."""
    return round(_entropy((one / one.sum() + other / other.sum()) / 2), DIGITS)


def _entropy(share: Masses) -> float:
    import numpy as np

    kept = share[share > 0]
    return -float((kept * np.log2(kept)).sum())


@functools.cache
def _log2_masses(reading: str) -> Masses:
    """Return the logarithm of what each law expects of each symbol, `[laws x scales, 256]`."""
    import numpy as np

    edges = _edges(reading)
    masses = [np.diff(below(edges / scale)) for below in _laws() for scale in SCALES[reading]]
    logarithms: Masses = np.log2(np.stack([(1 - STRAY) * mass / mass.sum() + STRAY / SYMBOLS for mass in masses]))
    return logarithms


def _edges(reading: str) -> Masses:
    """Return the magnitudes where each symbol begins, and the end, `[257]`; zero itself is left out."""
    import numpy as np

    at = np.arange(SYMBOLS + 1, dtype=np.int64) << SHIFT
    exponents, bits = (8, 7) if reading == "BF16" else (5, 10)
    bias = (1 << exponents - 1) - 1
    exponent, fraction = at >> bits, (at & (1 << bits) - 1) / (1 << bits)
    normal = exponent > 0
    edges: Masses = np.ldexp(fraction + normal, np.where(normal, exponent, 1) - bias)
    edges[0] = math.ldexp(0.5, 1 - bias - bits)  # half of the least magnitude: what is smaller is rounded to zero
    beyond = at >= (1 << exponents) - 1 << bits  # infinity and NaN have no mass
    edges[beyond] = edges[beyond].min()
    return edges


def _laws() -> tuple[Callable[[Masses], Masses], ...]:
    """Return the share of magnitudes below each edge by law: normal, Laplace, Cauchy, uniform."""
    import numpy as np

    return (
        lambda x: np.array([math.erf(value / math.sqrt(2)) for value in x]),
        lambda x: -np.expm1(-x),
        lambda x: 2 / math.pi * np.arctan(x),
        lambda x: np.minimum(x, 1.0),
    )
