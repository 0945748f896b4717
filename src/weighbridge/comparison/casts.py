"""Read stored words under a dtype, and convert values between dtypes: round to nearest even, bit for bit.

Knows no tensor and no file. A pair of dtypes without an exactly rounded conversion has none here, never a near one.
ggml's block types are quantised and read back by gguf's own arithmetic, which is ggml's bit for bit.
"""

import functools
from collections.abc import Callable, Mapping

from weighbridge.core import Bytes, Floats, NDArray, Values, Words, dataclass, np
from weighbridge.formats.tensor import EXTENDED, GGUF_TYPES, INTEGERS, numpy_dtype

INFINITE_F16 = 0xF800  # the least word of an infinity or NaN, without its sign, shifted by one
# By range, least first: the exponent of infinities and NaN; F8_E4M3 has NaN alone, all bits set.
NOT_FINITE = {"F8_E4M3": 0x7F, "F8_E5M2": 0x7C, "F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000, "F64": 0x7FF << 52}


@functools.cache
def castable(source: str, candidate: str) -> bool:
    """Return whether source values convert to the candidate's dtype with one correct rounding."""
    old, new = numpy_dtype(source), numpy_dtype(candidate)
    if old is None or new is None:
        return False
    if candidate in (source, "F8_E8M0"):
        return candidate == source
    if candidate in INTEGERS:
        return source in INTEGERS and bool(np.can_cast(old, new, "safe"))
    if source == "F64" or (source in INTEGERS and old.itemsize > 2):
        # Narrower targets are reached through float32 by both libraries, which would round twice.
        return candidate in ("F32", "F64") or (source == "F64" and candidate == "F16")
    return True


def words(data: memoryview, dtype: str) -> Words:
    """View bytes as unsigned words of the dtype's size, `[elements]`."""
    found = numpy_dtype(dtype)
    assert found is not None
    return np.frombuffer(data, f"<u{found.itemsize}")


def cast(stored: Words, source: str, candidate: str) -> Words:
    """Convert stored words to the words that the same values have under another dtype, `[elements]`."""
    return encode(decode(stored, source), candidate)


def decode(stored: Words, dtype: str) -> Values:
    """Read words as values: floats of at most four bytes as float32, which holds each of them exactly."""
    kind = numpy_dtype(dtype)
    assert kind is not None
    values: Values = stored.view(kind)
    if dtype == "F16":
        return _widened(stored)
    if dtype in EXTENDED:
        with np.errstate(all="ignore"):
            return values.astype(np.float32)
    return values


def _widened(stored: Words) -> Values:
    """Read F16 words as float32 by their bits, four times as fast as NumPy does; infinities and NaN by NumPy."""
    # Exponent and fraction stand in a float32 whose exponent is too small by 127 - 15, subnormal numbers included.
    if (stored << 1).max(initial=0) >= INFINITE_F16:
        return stored.view("<f2").astype("f4")
    words = stored.view("<i2").astype("i4")  # the sign fills the upper half
    words <<= 13
    words &= -0x70002000  # sign, exponent and fraction: 0x8fffe000
    values: Values = words.view("f4")
    values *= 2.0**112
    return values


def encode(values: Values, dtype: str) -> Words:
    """Round values to a dtype, to nearest even, and give the words."""
    target = numpy_dtype(dtype)
    assert target is not None
    if dtype in EXTENDED and values.dtype.kind in "iu":
        values = values.astype(np.float32)
    with np.errstate(all="ignore"):
        rounded = values.astype(target, copy=False)
    return rounded.view(f"<u{target.itemsize}")


def overflowed(stored: Words, made: Words, source: str, candidate: str) -> int:
    """Count the elements that are finite as they are stored, and infinite or NaN in the words that a cast made."""
    if candidate in REQUANTISED:
        beyond = sum(not_finite(made.reshape(-1), candidate))
        return max(beyond - int(np.count_nonzero(~np.isfinite(decode(stored, source)))), 0) if beyond else 0
    exponent, ranges = NOT_FINITE.get(candidate, 0), [*NOT_FINITE]
    wider = candidate in ranges and source not in ranges[: ranges.index(candidate) + 1]
    # The largest word without its sign tells at once that there is none, as nearly always.
    if not wider or (made << 1).max(initial=0) < exponent << 1:
        return 0
    beyond = int(np.count_nonzero((made & exponent) == exponent))
    return beyond - int(np.count_nonzero(~np.isfinite(decode(stored, source))))


def shorten(values: Values, dtype: str) -> Words:
    """Cut values to a floating dtype, towards zero, and give the words."""
    nearest = encode(values, dtype)
    with np.errstate(all="ignore"):
        beyond = np.abs(decode(nearest, dtype).astype(np.float64)) > np.abs(values.astype(np.float64))
    # Sign and magnitude: one word less is the next value towards zero.
    return nearest - beyond.astype(nearest.dtype)


def shown(data: bytes, dtype: str) -> str:
    """Write one stored word's value exactly, as the shortest text that reads back to it; "" without such a value."""
    kind = numpy_dtype(dtype)
    if kind is None or len(data) != kind.itemsize:
        return ""
    value = decode(words(memoryview(data), dtype), dtype)[0]
    return str(int(value)) if dtype in INTEGERS else repr(float(value))


@dataclass(frozen=True, slots=True)
class ExactCast:
    """One exact way: its name, and what it predicts, as words or bytes of the candidate, until it predicts again."""

    name: str
    predict: Callable[[Words], Words]
    cast: bool = False  # the name `value-cast` is as true of it


def find_exact_cast(old: str, new: str, *, computed: bool) -> ExactCast | None:
    """Return the plainest exact way between two dtypes, or None where there is none."""
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
    """Return the ways over a rounding to sixteen bits before blocks were made."""

    def through(between: str) -> ExactCast:
        name = f"requantised-through-{between.lower()}"
        return ExactCast(name, lambda stored: quantise(decode(cast(stored, old, between), between), new))

    narrow = [dtype for dtype in ("F16", "BF16") if dtype != old and castable(old, dtype)]
    return tuple(map(through, narrow)) if new in REQUANTISED else ()


def values(stored: Bytes, dtype: str) -> Values | None:
    """Read a candidate's bytes as values, `[elements]`, or None where nothing reads its dtype."""
    if dtype in BLOCKS:
        return None if dtype in UNREAD else dequantise(stored, dtype)
    return None if numpy_dtype(dtype) is None else decode(words(stored.data, dtype), dtype)


# --- Block types ------------------------------------------------------------------------------------------------------

# Types whose quantiser gives the same bytes as ggml's, whatever the values.
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")
BITE = 1 << 15  # elements quantised at once, whole blocks: what they are computed through stays in a cache
UNREAD = ("Q8_1", "Q8_K", "Q1_0", "Q2_0")  # no library reads these back

BLOCKS = {dtype: size for dtype, elements, size in GGUF_TYPES.values() if elements > 1}  # with the bytes of one


def quantise(values: Values, dtype: str) -> Bytes:
    """Quantise float32 values, whole blocks of them, and give the bytes; one long row costs a tenth of short ones."""
    import gguf

    rows = values.astype(np.float32, copy=False).reshape(1, -1)
    bites = [rows[:, at : at + BITE] for at in range(0, rows.shape[1], BITE)] or [rows]
    with np.errstate(all="ignore"):
        return np.concatenate([gguf.quantize(bite, gguf.GGMLQuantizationType[dtype]) for bite in bites], axis=1)


def dequantise(stored: Bytes, dtype: str) -> Floats:
    """Read the bytes of whole blocks back as float32 values, `[elements]`."""
    import gguf

    with np.errstate(all="ignore"):
        values: Floats = gguf.dequantize(stored.reshape(1, -1), gguf.GGMLQuantizationType[dtype])
    return values.reshape(-1)


DECODED = tuple(dtype for dtype in BLOCKS if dtype not in UNREAD)
# Bytes at which the F16 scales of a block start, from ggml's block structures.
F16_FIELDS: Mapping[str, tuple[int, ...]] = (
    dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS", "IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S"), (0,))
    | dict.fromkeys(("IQ3_XXS", "IQ3_S"), (0,))
    | dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2))
    | {"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)}
)
AT_ONCE = 1 << 10  # blocks that are decoded together
LARGEST_FINITE = 250  # of an E8M0 scale, whatever number it is multiplied with


def not_finite(stored: Bytes, dtype: str) -> tuple[int, int]:
    """Count NaN and infinities in whole blocks, as ggml decodes them."""
    blocks = stored.reshape(-1, BLOCKS[dtype])
    suspect: NDArray[np.bool_] = np.zeros(len(blocks), bool)  # a scale is not finite, or can overflow
    for at in F16_FIELDS.get(dtype, ()):
        suspect |= blocks[:, at + 1] & 0x7C == 0x7C
    if dtype == "IQ1_M":  # the four nibbles of its scale are the highest ones of four words
        suspect |= (blocks[:, 55] & 0x70 == 0x70) & (blocks[:, 53] & 0xC0 == 0xC0)
    if dtype == "MXFP4":
        suspect |= blocks[:, 0] > LARGEST_FINITE
    suspects = np.flatnonzero(suspect)
    nan = infinite = 0
    for at in range(0, len(suspects), AT_ONCE):
        values = dequantise(blocks[suspects[at : at + AT_ONCE]].reshape(-1), dtype)
        nan += int(np.count_nonzero(np.isnan(values)))
        infinite += int(np.count_nonzero(np.isinf(values)))
    return nan, infinite
