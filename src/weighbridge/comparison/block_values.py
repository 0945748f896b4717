"""Quantise values to ggml's block types and read them back, by gguf's own arithmetic, which is ggml's bit for bit.

Knows no tensor and no file. What gguf cannot do has no answer here.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weighbridge.comparison.casts import Values

# Types whose quantiser gives the same bytes as ggml's, whatever the values.
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")
BITE = 1 << 15  # elements quantised at once, whole blocks: what they are computed through stays in a cache
UNREAD = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")  # no library reads these back

BLOCKS = (
    *REQUANTISED, *UNREAD, "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S",
    "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "NVFP4",
)  # fmt: skip


@functools.cache
def _type(dtype: str) -> Any:
    import gguf

    return gguf.GGMLQuantizationType[dtype]


def quantise(values: Values, dtype: str) -> NDArray[np.uint8]:
    """Quantise float32 values, whole blocks of them, and give the bytes; one long row costs a tenth of short ones."""
    import gguf
    import numpy as np

    rows = values.astype(np.float32, copy=False).reshape(1, -1)
    bites = [rows[:, at : at + BITE] for at in range(0, rows.shape[1], BITE)] or [rows]
    with np.errstate(all="ignore"):
        return np.concatenate([gguf.quantize(bite, _type(dtype)) for bite in bites], axis=1)


def dequantise(stored: NDArray[np.uint8], dtype: str) -> Values:
    """Read the bytes of whole blocks back as float32 values, `[elements]`."""
    import gguf
    import numpy as np

    with np.errstate(all="ignore"):
        values: Values = gguf.dequantize(stored.reshape(1, -1), _type(dtype)).reshape(-1)
    return values
