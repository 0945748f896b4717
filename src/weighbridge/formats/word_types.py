"""Which of NumPy's types reads a dtype's stored words."""

import functools
from typing import Any

from weighbridge.core import np

EXTENDED = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}
EXTENDED |= {"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
INTEGERS = {f"{letter}{8 * size}": f"<{letter.lower()}{size}" for size in (1, 2, 4, 8) for letter in "IU"}


@functools.cache
def numpy_dtype(dtype: str) -> "np.dtype[Any] | None":
    """Return the NumPy type that reads this dtype's words, or None for blocks, packed bits, booleans and complex."""
    if dtype in EXTENDED:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, EXTENDED[dtype]))
        return extended
    plain = FLOATS.get(dtype) or INTEGERS.get(dtype)
    return np.dtype(plain) if plain else None
