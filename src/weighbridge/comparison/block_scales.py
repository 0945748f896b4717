"""Find values of ggml's blocks that are not finite, without decoding the others: their scales say where to look.

A block's value is a small whole number times its scales, so a NaN or an infinity comes from a scale field alone. Only
blocks whose field can give one are decoded, by gguf's own arithmetic. Knows no tensor and no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from weighbridge.comparison.block_values import BLOCKS, UNREAD, dequantise

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DECODED = tuple(dtype for dtype in BLOCKS if dtype not in UNREAD)
# Bytes at which the F16 scales of a block start, from ggml's block structures.
F16_FIELDS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S"), (0,)),
    **dict.fromkeys(("IQ3_XXS", "IQ3_S"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    "Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,),
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
