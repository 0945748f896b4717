"""tensor_bits: what the bits of each tensor of one checkpoint look like, whatever its label says.

One row a tensor. Every word is read for `or_word` and `zeros`; of at most 65,536 evenly spaced ones, the last among
them, the rest is told, zeros left out. What a dtype has no use for is null. Gives no verdict and knows no threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weighbridge.comparison import bit_laws
from weighbridge.comparison.casts import words
from weighbridge.quantities.tensors import BitReading, TensorBits
from weighbridge.verifiers.tensor_walk import ENOUGH, Damage, instrument
from weighbridge.verifiers.verifier import two_of
from weighbridge.views.checkpoint import CheckpointView, Tensor

if TYPE_CHECKING:
    import numpy as np

    from weighbridge.comparison.casts import Words

QUANTITY = "tensor_bits"
MANTISSA = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
SAMPLE = 1 << 16  # elements


@dataclass(slots=True)
class Bits:
    """What is known of a tensor so far: all bits that occur, how many words are zero but for their sign, the sample."""

    tensor: Tensor
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
        import numpy as np

        stored = words(chunk, self.tensor.dtype)
        self.occurring |= int(np.bitwise_or.reduce(stored))
        self.zeros += len(stored) - int(np.count_nonzero(stored << 1))
        self.kept.append(stored[self.at :: self._stride].copy())
        self.at = (self.at - len(stored)) % self._stride

    def row(self) -> TensorBits:
        """Describe the tensor: its precision from all words, its looks in either order of bytes from the sample."""
        import numpy as np

        dtype = self.tensor.dtype
        stored = np.concatenate(self.kept) if self.kept else np.empty(0, np.uint8)
        unread: dict[str, Any] = dict.fromkeys(
            ("as_stored", "byte_swapped", "half_divergence", "half_entropy", "zeros", "or_word", "trailing_zero_bits")
        )
        if self.reads:
            unread |= {"zeros": self.zeros, "or_word": f"{self.occurring:#x}", "trailing_zero_bits": self._free()}
        nonzero = stored[stored << 1 != 0]
        if len(nonzero) and dtype != "F64":
            high, low = _halves(nonzero, dtype)
            unread |= {
                "as_stored": _reading(_upper(nonzero, dtype)),
                "byte_swapped": _reading(_upper(nonzero.byteswap(), dtype)),
                "half_divergence": bit_laws.divergence(high, low),
                "half_entropy": bit_laws.entropy(high, low),
            }
        return TensorBits(
            name=self.tensor.name,
            dtype=dtype,
            elements=self.tensor.elements,
            mantissa_bits=MANTISSA.get(dtype) if self.reads else None,
            sampled=len(stored),
            nonzero=len(nonzero),
            **unread,
        )

    def _free(self) -> int | None:
        """Count the mantissa's last bits that no word uses; None where every word is zero."""
        mantissa, found = MANTISSA[self.tensor.dtype], self.occurring
        if not found << 1 & (1 << 8 * self.tensor.unit[1]) - 1:
            return None
        return (found & -found).bit_length() - 1 if found & ((1 << mantissa) - 1) else mantissa


def _upper(stored: Words, dtype: str) -> Words:
    """Return the 16 bits that hold sign and exponent; of F32 they are what BF16 would be."""
    import numpy as np

    return stored.view(np.uint16)[1::2] if dtype == "F32" else stored


def _reading(stored: Words) -> BitReading:
    import numpy as np

    counts = np.bincount(bit_laws.symbols(stored), minlength=bit_laws.SYMBOLS)
    return BitReading(
        negative=int(np.count_nonzero(stored & 0x8000)),
        symbols=int(np.count_nonzero(counts)),
        excess=bit_laws.excess(counts),
    )


def _halves(stored: Words, dtype: str) -> tuple[bit_laws.Counts, bit_laws.Counts]:
    """Count the symbols of the upper and of the lower half of each word: two numbers packed in one look alike."""
    import numpy as np

    if dtype == "F32":
        parts: tuple[np.ndarray, ...] = (bit_laws.symbols(stored >> 16), bit_laws.symbols(stored & 0xFFFF))
    else:
        parts = stored >> 8, stored & 0xFF
    high, low = (np.bincount(part, minlength=bit_laws.SYMBOLS) for part in parts)
    return high, low


def begin(_view: object) -> type[Bits]:
    """Begin a checkpoint."""
    return Bits


# One, and minus the next number after it: the last word alone sets the sign and the last bit.
ONES: Mapping[str, tuple[int, int]] = {
    "F16": (0x3C00, 0xBC01),
    "BF16": (0x3F80, 0xBF81),
    "F32": (0x3F800000, 0xBF800001),
    "F64": (0x3FF0000000000000, 0xBFF0000000000001),
}


def _chosen(view: CheckpointView) -> tuple[str, ...]:
    names = [name for name in view.weights() if view.tensor(name).dtype in ONES and view.tensor(name).elements]
    return two_of(names, lambda name: min(view.tensor(name).elements, ENOUGH))


def _damaged(cut: CheckpointView, tensor: Tensor) -> tuple[CheckpointView, dict[str, Any]]:
    """Lay down ones, and minus the next number after one at the end; reckon what the pattern foretells."""
    import numpy as np

    most, last = ONES[tensor.dtype]
    size, elements = tensor.unit[1], tensor.elements
    damaged = cut.overlaid(
        tensor.name, 0, most.to_bytes(size, "little") * (elements - 1) + last.to_bytes(size, "little")
    )
    sampled = (elements - 1) // -(-elements // SAMPLE) + 1
    wanted: dict[str, Any] = {
        "zeros": 0,
        "or_word": f"{most | last if elements > 1 else last:#x}",
        "trailing_zero_bits": 0,
        "sampled": sampled,
        "nonzero": sampled,
    }
    if tensor.dtype != "F64":
        counts = np.zeros(bit_laws.SYMBOLS, np.int64)
        counts[0x78 if tensor.dtype == "F16" else 0x7F] = sampled
        wanted["as_stored"] = BitReading(negative=1, symbols=1, excess=bit_laws.excess(counts))
        wanted["half_divergence"] = 1.0
    return damaged, wanted


DAMAGE = Damage(
    name="ones, and one word unlike them", choose=_chosen, without="no tensor holds floating words", lay=_damaged
)
VERIFIER = instrument(QUANTITY, begin, DAMAGE)
