"""tensor_bits: what the bits of each tensor of one checkpoint look like, whatever its label says.

One row a tensor. Every word is read for `or_word` and `zeros`; of at most 65,536 evenly spaced ones, the last among
them, the rest is told, zeros left out. What a dtype has no use for is null. Gives no verdict and knows no threshold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weighbridge.comparison import bit_laws
from weighbridge.comparison.casts import words
from weighbridge.model import Basis, Fields, Json, Measurement, Rows, SubjectKind
from weighbridge.verifiers.canary_bits import damage
from weighbridge.verifiers.verifier import Verifier, Views
from weighbridge.views.checkpoint import CheckpointView, Tensor

if TYPE_CHECKING:
    import numpy as np

    from weighbridge.comparison.casts import Words

QUANTITY = "tensor_bits"
MANTISSA = {"F64": 52, "F32": 23, "F16": 10, "BF16": 7}
STEP = 1 << 18  # elements read at once
SAMPLE = 1 << 16  # elements
UNREAD: Fields = {"zeros": None, "or_word": None, "trailing_zero_bits": None, "mantissa_bits": None}
UNFITTED: Fields = {
    "sampled": 0,
    "nonzero": 0,
    "as_stored": None,
    "byte_swapped": None,
    "half_divergence": None,
    "half_entropy": None,
}


def measure(views: Views, _options: Fields) -> Measurement:
    """Read every tensor of floating words once.

    Raises:
        SubjectError: `subject-changed`, when the file was written to meanwhile.
    """
    view: CheckpointView = views[0]
    rows = tuple(row(view, name) for name in view.names())
    return Measurement(
        quantity=QUANTITY,
        value=Rows("name", rows),
        by="weighbridge.verifiers.tensor_bits/1",
        unit="bits",
        basis=dict.fromkeys(rows[0], Basis.MEASURED) if rows else {},
        examined=len(rows),
        total=len(rows),
    )


def row(view: CheckpointView, name: str) -> Fields:
    """Describe one tensor."""
    tensor = view.tensor(name)
    told: Fields = {"name": name, "dtype": tensor.dtype, "elements": tensor.elements}
    if tensor.dtype not in MANTISSA or not tensor.elements:
        return {**told, **UNREAD, **UNFITTED}
    found, kept, zeros = _read(view, tensor)
    return {**told, **_precision(found, tensor.dtype, zeros), **_fitted(kept, tensor.dtype)}


def _read(view: CheckpointView, tensor: Tensor) -> tuple[int, Words, int]:
    """Walk over a tensor: all bits that occur, the sample, and how many words are zero but for their sign."""
    import numpy as np

    stride = -(-tensor.elements // SAMPLE)
    at, found, zeros, kept = (tensor.elements - 1) % stride, 0, 0, []
    for chunk in view.chunks(tensor.name, STEP * tensor.unit[1]):
        stored = words(chunk, tensor.dtype)
        found |= int(np.bitwise_or.reduce(stored))
        zeros += len(stored) - int(np.count_nonzero(stored << 1))
        kept.append(stored[at::stride].copy())
        at = (at - len(stored)) % stride
    return found, np.concatenate(kept), zeros


def _precision(found: int, dtype: str, zeros: int) -> Fields:
    """Tell how many of the mantissa's last bits no word uses."""
    mantissa = MANTISSA[dtype]
    free = (found & -found).bit_length() - 1 if found & ((1 << mantissa) - 1) else mantissa
    return {
        "zeros": zeros,
        "or_word": f"{found:#x}",
        "trailing_zero_bits": free if found << 1 & (1 << _width(dtype)) - 1 else None,
        "mantissa_bits": mantissa,
    }


def _width(dtype: str) -> int:
    return {"F64": 64, "F32": 32}.get(dtype, 16)


def _fitted(kept: Words, dtype: str) -> Fields:
    """Fit the laws to the sample, as it is stored and with its bytes in the other order."""
    told: Fields = {**UNFITTED, "sampled": len(kept)}
    nonzero = kept[kept << 1 != 0]
    if not len(nonzero) or dtype == "F64":
        return {**told, "nonzero": len(nonzero)}
    halves = _halves(nonzero, dtype)
    return {
        "sampled": len(kept),
        "nonzero": len(nonzero),
        "as_stored": _reading(_upper(nonzero, dtype)),
        "byte_swapped": _reading(_upper(nonzero.byteswap(), dtype)),
        "half_divergence": bit_laws.divergence(*halves),
        "half_entropy": bit_laws.entropy(*halves),
    }


def _upper(stored: Words, dtype: str) -> Words:
    """Take the 16 bits that hold sign and exponent; of F32 they are what BF16 would be."""
    import numpy as np

    return stored.view(np.uint16)[1::2] if dtype == "F32" else stored


def _reading(stored: Words) -> Json:
    """Tell what the words look like under each reading of their upper bits, in bits an element."""
    import numpy as np

    counts = np.bincount(bit_laws.symbols(stored), minlength=bit_laws.SYMBOLS)
    return {
        "negative": int(np.count_nonzero(stored & 0x8000)),
        "symbols": int(np.count_nonzero(counts)),
        "excess": bit_laws.excess(counts),
    }


def _halves(stored: Words, dtype: str) -> tuple[bit_laws.Counts, bit_laws.Counts]:
    """Count the symbols of the upper and of the lower half of each word: two numbers packed in one look alike."""
    import numpy as np

    size: int = bit_laws.SYMBOLS
    if dtype == "F32":
        parts: tuple[np.ndarray, ...] = (bit_laws.symbols(stored >> 16), bit_laws.symbols(stored & 0xFFFF))
    else:
        parts = stored >> 8, stored & 0xFF
    high, low = (np.bincount(part, minlength=size) for part in parts)
    return high, low


def extent(views: Views, _options: Fields) -> int:
    """Count the tensors."""
    return len(views[0].names())


VERIFIER = Verifier(
    quantity=QUANTITY,
    kinds=(SubjectKind.CHECKPOINT,),
    measure=measure,
    extent=extent,
    canary=lambda views, options, _measurement: damage(
        views[0], STEP + 256, SAMPLE, lambda cut: measure((cut,), options)
    ),
)
