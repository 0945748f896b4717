"""Quantise values to ggml's block types and read them back, by gguf's own arithmetic, which is ggml's bit for bit.

Knows no tensor and no file. What gguf cannot do has no answer here.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Types whose quantiser gives the same bytes as ggml's, whatever the values.
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")
BITE = 1 << 15  # elements quantised at once, whole blocks: what they are computed through stays in a cache
UNREAD = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")  # no library reads these back

BLOCKS = (
    *REQUANTISED, *UNREAD, "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "NVFP4"
)  # fmt: skip


@functools.cache
def _type(dtype: str) -> Any:
    import gguf

    return gguf.GGMLQuantizationType[dtype]


def quantise(values: NDArray[Any], dtype: str) -> NDArray[np.uint8]:
    """Quantise float32 values, whole blocks of them, and give the bytes; one long row costs a tenth of short ones."""
    import gguf
    import numpy as np

    rows = values.astype(np.float32, copy=False).reshape(1, -1)
    bites = [rows[:, at : at + BITE] for at in range(0, rows.shape[1], BITE)] or [rows]
    with np.errstate(all="ignore"):
        return np.concatenate([gguf.quantize(bite, _type(dtype)) for bite in bites], axis=1)


def dequantise(stored: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Read the bytes of whole blocks back as float32 values, `[elements]`."""
    import gguf
    import numpy as np

    with np.errstate(all="ignore"):
        values: NDArray[np.float32] = gguf.dequantize(stored.reshape(1, -1), _type(dtype)).reshape(-1)
    return values


DECODED = tuple(dtype for dtype in BLOCKS if dtype not in UNREAD)
# Bytes at which the F16 scales of a block start, from ggml's block structures.
F16_FIELDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S"), (0,)),
    **dict.fromkeys(("IQ3_XXS", "IQ3_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)
}  # fmt: skip
AT_ONCE = 1 << 10  # blocks that are decoded together
LARGEST_FINITE = 250  # of an E8M0 scale, whatever number it is multiplied with


def not_finite(stored: NDArray[np.uint8], dtype: str, size: int) -> tuple[int, int]:
    """Count NaN and infinities in whole blocks of `size` bytes, as ggml decodes them."""
    import numpy as np

    blocks = stored.reshape(-1, size)
    suspects = np.flatnonzero(_suspect(blocks, dtype))
    nan = infinite = 0
    for at in range(0, len(suspects), AT_ONCE):
        values = dequantise(blocks[suspects[at : at + AT_ONCE]].reshape(-1), dtype)
        nan += int(np.count_nonzero(np.isnan(values)))
        infinite += int(np.count_nonzero(np.isinf(values)))
    return nan, infinite


def _suspect(blocks: NDArray[np.uint8], dtype: str) -> NDArray[np.bool_]:
    """Mark the blocks with a scale that is not finite, or can overflow."""
    import numpy as np

    found: NDArray[np.bool_] = np.zeros(len(blocks), bool)
    for at in F16_FIELDS.get(dtype, ()):
        found |= blocks[:, at + 1] & 0x7C == 0x7C
    if dtype == "IQ1_M":  # the four nibbles of its scale are the highest ones of four words
        found |= (blocks[:, 55] & 0x70 == 0x70) & (blocks[:, 53] & 0xC0 == 0xC0)
    if dtype == "MXFP4":
        found |= blocks[:, 0] > LARGEST_FINITE
    return found
