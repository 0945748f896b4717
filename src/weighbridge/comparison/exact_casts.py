"""The exact ways from a source's words to a candidate's bytes, plainest first. Knows no tensor and no file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weighbridge.comparison.block_values import BLOCKS, REQUANTISED, UNREAD, dequantise, quantise
from weighbridge.comparison.casts import EXTENDED, cast, castable, decode, numpy_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from weighbridge.comparison.casts import Values, Words

    Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ExactCast:
    """One exact way: its name, and what it predicts, as words or bytes of the candidate, until it predicts again.

    `cast` says that the name `value-cast` is as true of it.
    """

    name: str
    predict: Callable[[Words], Words]
    cast: bool = False


def find_exact_cast(old: str, new: str, *, computed: bool) -> ExactCast | None:
    """Give the plainest exact way between two dtypes, or None where there is none."""
    if old == new:
        exact = numpy_dtype(old) is not None
        if computed:
            return ExactCast("value-cast", lambda stored: stored) if exact else None
        return ExactCast("identical", lambda stored: stored, cast=exact)
    if old in EXTENDED and new == "F32":
        return ExactCast("value-cast", _widening(old))
    if castable(old, new):
        return ExactCast("value-cast", lambda stored: cast(stored, old, new))
    if new in REQUANTISED and numpy_dtype(old) is not None:
        return ExactCast("requantised", lambda stored: quantise(decode(stored, old), new))
    return None


def _widening(old: str) -> Callable[[Words], Words]:
    """Widen to F32 into one array, which each call overwrites: another for every stretch costs a tenth of the time."""
    import numpy as np

    kind, kept = numpy_dtype(old), [np.empty(0, np.float32)]
    assert kind is not None

    def predict(stored: Words) -> Words:
        if kept[0].size < stored.size:
            kept[0] = np.empty(stored.size, np.float32)
        widened = kept[0][: stored.size]
        with np.errstate(all="ignore"):
            np.copyto(widened, stored.view(kind))
        return widened.view("<u4")

    return predict


def two_step_casts(old: str, new: str) -> tuple[ExactCast, ...]:
    """Give the ways over a rounding to sixteen bits before blocks were made."""
    if new not in REQUANTISED:
        return ()
    between = (dtype for dtype in ("F16", "BF16") if dtype != old and castable(old, dtype))
    return tuple(_through(old, dtype, new) for dtype in between)


def _through(old: str, between: str, new: str) -> ExactCast:
    def predict(stored: Words) -> Words:
        return quantise(decode(cast(stored, old, between), between), new)

    return ExactCast(f"requantised-through-{between.lower()}", predict)


def values(stored: Bytes, dtype: str) -> Values | None:
    """Read a candidate's bytes as values, `[elements]`, or None where nothing reads its dtype."""
    if dtype in BLOCKS:
        return None if dtype in UNREAD else dequantise(stored, dtype)
    found = numpy_dtype(dtype)
    return None if found is None else decode(stored.view(f"<u{found.itemsize}"), dtype)
