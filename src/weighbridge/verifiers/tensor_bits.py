"""tensor_bits: what the bits of each tensor of one checkpoint look like, whatever its label says.

One row a tensor. Every word is read for `or_word` and `zeros`; at most 65,536 evenly spaced ones, the last among them,
for the rest, zeros left out. What a dtype has no use for is null. A symbol is the eight bits after the sign of a 16-bit
word: F16 reads five of exponent and three of mantissa, BF16 its whole exponent.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from weighbridge.comparison.casts import words
from weighbridge.core import NDArray, Words, dataclass, field, np
from weighbridge.packing.unpacked_view import packed_alone
from weighbridge.quantities.tensors import BitReading, TensorBits
from weighbridge.verifiers.tensor_walk import Damage, instrument
from weighbridge.views.checkpoint import CheckpointView, Tensor

Counts: TypeAlias = "NDArray[np.int64]"  # [256], how often each symbol occurs
Masses: TypeAlias = "NDArray[np.float64]"

MANTISSA = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
ONE = {"F16": 0x3C00, "BF16": 0x3F80, "F32": 0x3F800000, "F64": 0x3FF0000000000000}
SAMPLE = 1 << 16  # elements
UNREAD = {
    **dict.fromkeys(("as_stored", "byte_swapped", "half_divergence", "half_entropy")),
    **dict.fromkeys(("zeros", "or_word", "trailing_zero_bits", "mantissa_bits")),
}


@dataclass(slots=True)
class Bits:
    """What is known of a tensor so far: all bits that occur, how many words are zero but for their sign, the sample."""

    tensor: Tensor
    weights: Mapping[str, int] = field(default_factory=dict)  # of packed codes, how many they stand for
    occurring: int = 0
    zeros: int = 0
    at: int = 0  # where the next sampled word lies in the next chunk
    kept: list[Words] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.at = (self.tensor.elements - 1) % self._stride

    @property
    def reads(self) -> bool:
        """Return whether these are floating words."""
        return self.tensor.dtype in MANTISSA and self.tensor.elements > 0

    @property
    def _stride(self) -> int:
        return max(-(-self.tensor.elements // SAMPLE), 1)

    def take(self, chunk: memoryview) -> None:
        """Look at the next words."""
        stored = words(chunk, self.tensor.dtype)
        self.occurring |= int(np.bitwise_or.reduce(stored))
        self.zeros += len(stored) - int(np.count_nonzero(stored << 1))
        self.kept.append(stored[self.at :: self._stride].copy())
        self.at = (self.at - len(stored)) % self._stride

    def row(self) -> TensorBits:
        """Describe the tensor: its precision from all words, its looks in either order of bytes from the sample."""
        name, dtype, elements = self.tensor.name, self.tensor.dtype, self.weights.get(self.tensor.name)
        stored = np.concatenate(self.kept) if self.kept else np.empty(0, np.uint8)
        nonzero = stored[stored << 1 != 0]
        found: dict[str, Any] = {**UNREAD, "sampled": len(stored), "nonzero": len(nonzero)}
        if self.reads:
            mantissa, bits = MANTISSA[dtype], self.occurring
            used = bool(bits & ((1 << mantissa) - 1))  # whether any word uses the mantissa
            free = (bits & -bits).bit_length() - 1 if used else mantissa
            some = bits << 1 & (1 << 8 * self.tensor.unit[1]) - 1  # 0 where every word is zero
            found |= {"zeros": self.zeros, "or_word": f"{bits:#x}", "trailing_zero_bits": free if some else None}
            found["mantissa_bits"] = mantissa
        if len(nonzero) and dtype != "F64":
            # Two numbers packed in one word look alike in its upper and in its lower half.
            wide = dtype == "F32"
            halves = (symbols(nonzero >> 16), symbols(nonzero & 0xFFFF)) if wide else (nonzero >> 8, nonzero & 0xFF)
            high, low = (np.bincount(half, minlength=SYMBOLS) for half in halves)
            found |= {"half_divergence": divergence(high, low), "half_entropy": entropy(high, low)}
            found |= {"as_stored": _reading(nonzero, wide), "byte_swapped": _reading(nonzero.byteswap(), wide)}
        return TensorBits(name=name, dtype=dtype, elements=elements or self.tensor.elements, **found)


def _reading(stored: Words, wide: bool) -> BitReading:
    """Read the 16 bits that hold sign and exponent; of F32 (`wide`) they are what BF16 would be."""
    upper = stored.view(np.uint16)[1::2] if wide else stored
    counts = np.bincount(symbols(upper), minlength=SYMBOLS)
    known = {"negative": int(np.count_nonzero(upper & 0x8000)), "symbols": int(np.count_nonzero(counts))}
    return BitReading(excess=excess(counts), **known)


# The laws that the magnitudes of weights follow, as either reading of 16-bit words sees them; all are zero-centred.
READINGS = ("BF16", "F16")
SYMBOLS = 256
SHIFT = 7  # a symbol leaves out so many bits of a word
SCALES = {  # quarter octaves; F16 holds nothing of the smaller ones
    "BF16": tuple(2.0 ** (quarter / 4) for quarter in range(-128, 17)),
    "F16": tuple(2.0 ** (quarter / 4) for quarter in range(-64, 17)),
}
DIGITS = 6  # of a bit; what lies behind depends on the order of summing
STRAY = 2.0**-10  # of the mass of every law is spread evenly, so that a stray outlier costs bits and not everything


def symbols(words: "NDArray[Any]") -> "NDArray[Any]":
    """Return the eight bits after the sign of 16-bit words, `[elements]`."""
    return words >> SHIFT & (SYMBOLS - 1)


def excess(counts: Counts) -> dict[str, float]:
    """Return the Kullback-Leibler divergence of one symbol or more from the nearest law, in bits, by reading."""
    seen = counts > 0
    share = counts[seen] / int(counts.sum())
    gained = float((share * np.log2(share)).sum())
    best = {reading: float((_log2_masses(reading)[:, seen] @ share).max()) for reading in READINGS}
    return {reading: round(gained - bits, DIGITS) for reading, bits in best.items()}


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
    kept = share[share > 0]
    return -float((kept * np.log2(kept)).sum())


@functools.cache
def _log2_masses(reading: str) -> Masses:
    """Return the logarithm of what each law expects of each symbol, `[laws x scales, 256]`."""
    # The magnitudes where each symbol begins, and the end, `[257]`; zero itself is left out.
    at = np.arange(SYMBOLS + 1, dtype=np.int64) << SHIFT
    exponents, bits = (8, 7) if reading == "BF16" else (5, 10)
    bias = (1 << exponents - 1) - 1
    exponent, fraction = at >> bits, (at & (1 << bits) - 1) / (1 << bits)
    normal = exponent > 0
    edges: Masses = np.ldexp(fraction + normal, np.where(normal, exponent, 1) - bias)
    edges[0] = math.ldexp(0.5, 1 - bias - bits)  # half of the least magnitude: what is smaller is rounded to zero
    beyond = at >= (1 << exponents) - 1 << bits  # infinity and NaN have no mass
    edges[beyond] = edges[beyond].min()
    laws: tuple[Callable[[Masses], Masses], ...] = (  # the share of magnitudes below each edge
        lambda x: np.array([*map(math.erf, (x / math.sqrt(2)).ravel().tolist())]).reshape(x.shape),  # normal
        lambda x: -np.expm1(-x),  # Laplace
        lambda x: 2 / math.pi * np.arctan(x),  # Cauchy
        lambda x: np.minimum(x, 1.0),  # uniform
    )
    scaled = edges / np.array(SCALES[reading])[:, None]
    masses = np.diff(np.concatenate([below(scaled) for below in laws]))
    logarithms: Masses = np.log2((1 - STRAY) * masses / masses.sum(axis=1, keepdims=True) + STRAY / SYMBOLS)
    return logarithms


def _damaged(cut: CheckpointView, tensor: Tensor) -> tuple[CheckpointView, dict[str, Any]]:
    """Write ones, and minus the next number after one at the end; reckon what the pattern foretells."""
    size, elements = tensor.unit[1], tensor.elements
    most = ONE[tensor.dtype]
    last = most | 1 << 8 * size - 1 | 1  # this word alone sets the sign and the last bit
    pattern = most.to_bytes(size, "little") * (elements - 1) + last.to_bytes(size, "little")
    damaged = cut.overlaid(tensor.name, 0, pattern)
    sampled = (elements - 1) // -(-elements // SAMPLE) + 1
    wanted: dict[str, Any] = {"zeros": 0, "trailing_zero_bits": 0, "sampled": sampled, "nonzero": sampled}
    wanted["or_word"] = f"{most | last if elements > 1 else last:#x}"
    if tensor.dtype != "F64":
        counts = np.zeros(SYMBOLS, np.int64)
        counts[0x78 if tensor.dtype == "F16" else 0x7F] = sampled
        wanted["as_stored"] = BitReading(negative=1, symbols=1, excess=excess(counts))
        wanted["half_divergence"] = 1.0
    return damaged, wanted


DAMAGE = Damage(
    name="ones, and one word unlike them",
    fits=lambda tensor: tensor.dtype in ONE and tensor.elements > 0,
    without="no tensor holds floating words",
    lay=_damaged,
)


def _begin(view: CheckpointView) -> Callable[[Tensor], Bits]:
    whole, packed = packed_alone(view)
    weights = dict[str, int]()
    for name, one in packed.items():
        in_words = one.rule is None and one.codes.dtype in ("I32", "U32")  # of unknown bits: of four, as most are
        weights[one.codes.name] = one.codes.nbytes * 2 if in_words else whole.tensor(name).elements
    return functools.partial(Bits, weights=weights)


VERIFIER = instrument("tensor_bits", _begin, DAMAGE)
