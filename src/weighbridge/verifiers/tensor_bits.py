"""tensor_bits: what the bits of each tensor of one checkpoint look like, whatever its label says.

One row a tensor. Every word is read for `or_word` and `zeros`; of at most 65,536 evenly spaced ones, the last among
them, the rest is told, zeros left out. What a dtype has no use for is null. Gives no verdict and knows no threshold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from weighbridge.comparison import bit_laws
from weighbridge.comparison.casts import words
from weighbridge.model import Fields, Measurement, SubjectKind
from weighbridge.quantities.tensors import BitReading, TensorBits
from weighbridge.verifiers import tensor_walk
from weighbridge.verifiers.canary_bits import damage
from weighbridge.verifiers.verifier import Verifier, Views
from weighbridge.views.checkpoint import Tensor

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
        """Tell whether these are floating words."""
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
        dtype, stored = self.tensor.dtype, self._sample()
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

    def _sample(self) -> Words:
        import numpy as np

        return np.concatenate(self.kept) if self.kept else np.empty(0, np.uint8)

    def _free(self) -> int | None:
        """Count the mantissa's last bits that no word uses; None where every word is zero."""
        mantissa, found = MANTISSA[self.tensor.dtype], self.occurring
        if not found << 1 & (1 << 8 * self.tensor.unit[1]) - 1:
            return None
        return (found & -found).bit_length() - 1 if found & ((1 << mantissa) - 1) else mantissa


def _upper(stored: Words, dtype: str) -> Words:
    """Take the 16 bits that hold sign and exponent; of F32 they are what BF16 would be."""
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


def measure(views: Views, _options: Fields) -> Measurement:
    """Read every tensor of floating words once.

    Raises:
        SubjectError: `subject-changed`, when the file was written to meanwhile.
    """
    (found,) = tensor_walk.walk(views[0], [(QUANTITY, begin)])
    return found


def begin(_view: object) -> type[Bits]:
    """Begin a checkpoint."""
    return Bits


VERIFIER = Verifier(
    quantity=QUANTITY,
    kinds=(SubjectKind.CHECKPOINT,),
    measure=measure,
    extent=tensor_walk.extent,
    canary=lambda views, options, _measurement: damage(
        views[0], 2 * tensor_walk.STEP + 256, SAMPLE, lambda cut: measure((cut,), options)
    ),
    batch=tensor_walk.batch,
    reading=begin,
)
