"""Count the elements that a cast or a hypothesis gives, and measure how far the others are off. Decides nothing."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from weighbridge.comparison import bytewise
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import BLOCKS, ExactCast, decode, overflowed, shown, values, words
from weighbridge.comparison.nearest_codes import not_nearest
from weighbridge.core import Bytes, Doubles, NDArray, Values, Words, dataclass, field, np
from weighbridge.formats.tensor import INTEGERS, numpy_dtype
from weighbridge.quantities.tensors import FirstDifference
from weighbridge.views.checkpoint import CheckpointView

Hypothesis: TypeAlias = Callable[[Words], Words]  # source words -> the candidate's words, if it were so

BITE = 1 << 15  # elements; whole blocks
# The most that rounding moves a value, relative, and the smallest number, of which it moves a subnormal one by half.
PRECISION = {"F64": 2.0**-53, "F32": 2.0**-24, "F16": 2.0**-11, "BF16": 2.0**-8}
SMALLEST = {"F32": 2.0**-149, "F16": 2.0**-24, "BF16": 2.0**-133}
CORRELATED, BEYOND = 0.5, 4.0  # of a block and its values: what tells that it is not theirs
ROUNDINGS = 4  # of the smallest number of a dtype, before multiplying and after
FEW = 8  # values, of which any change could be a factor


class Counted(NamedTuple):
    """The elements that an exact cast gives, the first that it does not, and, where nothing is converted, the bytes."""

    elements: int
    first: FirstDifference | None
    differing_bytes: int | None
    overflowed: int  # finite elements of the source that the cast makes infinite or NaN


def count(aligned: AlignedTensor, exact_cast: ExactCast) -> Counted:
    """Count the elements that an exact cast reproduces bit for bit, and find the first that it does not."""
    per, size = aligned.new.unit
    wrong, differing, first, walk = 0, 0, None, _Walk(aligned, exact_cast)
    for at, stored, predicted, there in walk.unequal():
        same = (predicted.reshape(-1, size) == there.reshape(-1, size)).all(axis=1)
        wrong += int(np.count_nonzero(~same)) * per
        differing += int(np.count_nonzero(predicted != there)) if exact_cast.name == "identical" else 0
        if first is None:
            unit = int(same.argmin())
            span = slice(unit * size, (unit + 1) * size)
            word = stored[unit].tobytes() if per == 1 and len(stored) == len(same) else b""
            first = _difference(aligned, at + unit * per, word, predicted[span].tobytes(), there[span].tobytes())
    return Counted(walk.looked - wrong, first, differing if exact_cast.name == "identical" else None, walk.overflowed)


@dataclass(slots=True)
class _Walk:
    """A walk over a tensor beside what a cast predicts; `looked` counts elements, so that none is right unseen."""

    aligned: AlignedTensor
    exact_cast: ExactCast
    looked: int = 0
    overflowed: int = 0

    def unequal(self) -> Iterator[tuple[int, Words, Bytes, Bytes]]:
        """Yield the stretches that differ: first element, the source's words, what they predict, what is there."""
        aligned, (per, size), converts = self.aligned, self.aligned.new.unit, self.exact_cast.name != "identical"
        if not converts and aligned.pairing.plain:  # bytes that are equal cost one look, and nothing is decoded
            sides = (aligned.source, aligned.pairing.parts[0].source), (aligned.candidate, aligned.new.name)
            for at, *both in bytewise.unequal(*sides, size):
                was, found = (np.frombuffer(side, np.uint8) for side in both)
                yield at // size * per, was.view(f"V{size}"), was, found
            self.looked = aligned.new.elements
            return
        for at, stored, there in aligned.steps():
            made = self.exact_cast.predict(stored)
            self.overflowed += overflowed(stored, made, aligned.dtype, aligned.new.dtype) if converts else 0
            predicted = np.ascontiguousarray(made).reshape(-1).view(np.uint8)
            if predicted.nbytes != there.nbytes or not bytewise.equal(predicted, there):
                yield at, stored, predicted, there
            self.looked += there.nbytes // size * per


def explains(aligned: AlignedTensor, exact_cast: ExactCast) -> bool:
    """Return whether an exact cast reproduces every element; the first that it does not ends the walk."""
    walk = _Walk(aligned, exact_cast)
    return next(walk.unequal(), None) is None and walk.looked == aligned.new.elements


def explains_back(aligned: AlignedTensor, exact_cast: ExactCast) -> bool:
    """Return whether an exact cast gives the source from the candidate: were the two sides exchanged?"""
    # A tensor that was widened rightly but for a few low bits casts back, too; so most of what is no zero must differ.
    forth, differing, nonzero = aligned.exact_cast, 0, 0
    for _, stored, there in aligned.steps():
        found = words(there.data, aligned.new.dtype)
        predicted = np.ascontiguousarray(exact_cast.predict(found))
        if predicted.nbytes != stored.nbytes or not bytewise.equal(predicted, stored):
            return False
        nonzero += int(np.count_nonzero(found))
        differing += found.size if forth is None else int(np.count_nonzero(forth.predict(stored) != found))
    return 2 * differing > nonzero


def scaled(aligned: AlignedTensor) -> bool:
    """Return whether all is the source's times one factor, but for the rounding of the narrower dtype.

    Each value gives an interval that the factor must lie in: values were rounded once after they were multiplied, and
    once before where the dtypes differ. A factor that roundings alone could make is none, nor is one of few values.
    """
    least, most, many = -math.inf, math.inf, 0
    narrow = max(PRECISION.get(aligned.dtype, 0.0), PRECISION.get(aligned.new.dtype, 0.0))
    share = narrow * (1 + (aligned.dtype != aligned.new.dtype)) + 2 * PRECISION["F32"]  # multiplied in float32
    smallest = ROUNDINGS * SMALLEST.get(aligned.new.dtype, 0.0)
    for _, stored, there in aligned.steps():
        after = values(there, aligned.new.dtype)
        if after is None or not narrow:
            return False
        with np.errstate(all="ignore"):
            before = decode(stored, aligned.dtype).astype("f8")
            size, same_way = np.abs(before), after.astype("f8") * np.sign(before)
            off = share * np.abs(same_way) + smallest
            some = size > 0
            least = max(least, float(((same_way - off)[some] / size[some]).max(initial=-math.inf)))
            most = min(most, float(((same_way + off)[some] / size[some]).min(initial=math.inf)))
            many += int(np.count_nonzero(some))
            if not (least <= most and np.all(np.abs(after[~some]) <= smallest)):
                return False
    apart = max(least - 1, 1 - most) > 0 and abs((least + most) / 2 - 1) > 2 * narrow
    return many >= FEW and least * most > 0 and apart


def from_table(view: CheckpointView, name: str, meant: Sequence[float]) -> float | None:
    """Return the largest relative error of a small tensor, by computed values; None for another dtype or size."""
    tensor = view.tensor(name)
    if tensor.dtype != "F32" or tensor.elements != len(meant):
        return None
    found = np.frombuffer(view.read(name, 0, tensor.nbytes), "<f4").astype("f8")
    with np.errstate(all="ignore"):
        error = float(np.max(np.abs(found - meant) / np.maximum(np.abs(meant), 1e-300), initial=0.0))
    return error if math.isfinite(error) else None


def reproduced(aligned: AlignedTensor, tried: Mapping[str, Hypothesis]) -> dict[str, int]:
    """Count the elements that each hypothesis reproduces bit for bit, in one walk."""
    counts = dict.fromkeys(tried, 0)
    for _, stored, there in aligned.steps() if tried else ():
        found = words(there.data, aligned.new.dtype)
        for name, predict in tried.items():
            counts[name] += int(np.count_nonzero(predict(stored) == found))
    return counts


@dataclass(slots=True)
class _Sums:
    """What adds up over a tensor: squares of values and errors, the largest error, blocks lost, codes not nearest."""

    squares: float = 0.0
    errors: float = 0.0
    lost: float = 0.0
    largest: float = 0.0
    ulps: int | None = None
    not_nearest: int | None = None
    prints: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, old: Values, new: Values, block: int) -> None:
        """Add up in float64, whatever the values are stored in."""

        def products(one: Values, other: Values) -> Doubles:
            found: Doubles = np.einsum("ij,ij->i", one, other, dtype=np.float64)
            return found

        with np.errstate(all="ignore"):
            old, new = old.reshape(-1, block), new.reshape(-1, block)
            off = old - new
            squares, there, errors = products(old, old), products(new, new), products(off, off)
            unlike = products(old, new) <= CORRELATED * np.sqrt(squares * there)
            self.squares += float(squares.sum())
            self.errors += float(errors.sum())
            self.lost += float(squares[unlike | (errors >= BEYOND * squares)].sum())
            largest = float(np.abs(off, out=off).max(initial=0.0))
        self.largest = largest if math.isnan(largest) else max(self.largest, largest)

    def add_words(self, predicted: Words, there: Bytes) -> None:
        """Compare words: the largest distance in units of the last place, and order-free prints of both."""
        words = there.view(predicted.dtype)
        if self.ulps is not None:
            self.ulps = max(self.ulps, int(abs(_ordered(predicted) - _ordered(words)).max(initial=0)))
        for side, one in enumerate((predicted, words)):
            self.prints[side] = (self.prints[side] + int(_mixed(one).sum(dtype="u8"))) % (1 << 64)

    def summary(self) -> dict[str, Any]:
        """Return what is measured, by the columns of a row."""
        whole = self.squares if math.isfinite(self.squares) and self.squares > 0 else None
        lost = None if whole is None or not math.isfinite(self.lost) else self.lost / whole
        relative = None if whole is None or not math.isfinite(self.errors) else math.sqrt(self.errors / whole)
        return {
            "relative_rmse": 0.0 if whole is None and self.errors == 0 == self.squares else relative,
            "lost_share": 0.0 if whole is None and self.squares == 0 else lost,
            "max_error": self.largest if math.isfinite(self.largest) else None,
            "max_ulps": self.ulps,
            "not_nearest": self.not_nearest,
        }


def errors(aligned: AlignedTensor, exact_cast: ExactCast | None) -> dict[str, Any]:
    """Measure how far a tensor is from its source, and whether it holds the same values in another order.

    `relative_rmse` is the root of the sum of squared errors over that of squared values; `lost_share` the share of
    the squared values in blocks that are not like theirs; null where they are not finite. With an importance matrix, a
    block of two bits a value may err by more than its values and still be theirs, so a block is lost when it is at most
    half correlated with its values, or when the sum of squared errors is four times that of the values.
    """
    dtype, new = aligned.dtype, aligned.new
    if numpy_dtype(dtype) is None:
        return {}
    counted = exact_cast is not None and _counted_in_ulps(new.dtype) and new.unit[1] <= 4
    sums, block = _Sums(ulps=0 if counted else None), new.unit[0]
    for stored, there in _bites(aligned):
        if (after := values(there, new.dtype)) is None:
            return {}
        before = decode(stored, dtype)
        if block > 1:
            wrong = not_nearest(before.astype("f4", copy=False), after, there.reshape(-1, new.unit[1]), new.dtype)
            sums.not_nearest = None if wrong is None else wrong + (sums.not_nearest or 0)
        wide = "f4" if block > 1 and before.dtype == "f4" else "f8"  # blocks end far below the range of either
        with np.errstate(all="ignore"):
            sums.add(before.astype(wide, copy=False), after.astype(wide, copy=False), block)
        if exact_cast is not None and new.dtype not in BLOCKS:
            sums.add_words(exact_cast.predict(stored), there)
    same = sums.prints[0] == sums.prints[1] if exact_cast is not None and new.dtype not in BLOCKS else None
    return sums.summary() | {"same_values": same}


def _bites(aligned: AlignedTensor) -> Iterator[tuple[Words, Bytes]]:
    """Walk in steps whose float64 values stay in a cache; larger arrays cost more in page faults than in sums."""
    per, size = aligned.new.unit
    for _, stored, there in aligned.steps():
        elements = there.nbytes // size * per
        for at in range(0, elements, BITE):
            stop = min(at + BITE, elements)
            yield stored[at:stop], there[at // per * size : stop // per * size]


def _ordered(words: Words) -> "NDArray[np.int64]":
    """Number words of at most four bytes in the order of their values."""
    half = 1 << (8 * words.itemsize - 1)
    placed = words.astype(np.int64)
    return np.where(placed < half, placed, half - placed)


def _mixed(words: Words) -> Values:
    """Mix words so that their sum tells a multiset (splitmix64's finaliser)."""
    mixed = words.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))


def _difference(aligned: AlignedTensor, index: int, stored: bytes, was: bytes, found: bytes) -> FirstDifference:
    """Describe the first unit that is not as predicted; `stored` is empty where the source has no word for it alone."""
    new, (per, size) = aligned.new, aligned.new.unit
    counted = per == 1 and aligned.dtype != new.dtype  # in whole words, because the source's have another size
    inside = 0 if counted else next(i for i in range(size) if was[i] != found[i])
    offset = index // per * size + inside
    texts = {"source_value": shown(stored or was, aligned.dtype), "candidate_value": shown(found, new.dtype)}
    if per > 1:
        old, there = (values(np.frombuffer(block, np.uint8), new.dtype) for block in (was, found))
        if old is not None and there is not None:
            at = int((old != there).argmax())
            index, texts = index + at, {"source_value": str(old[at]), "candidate_value": str(there[at])}
        else:
            texts = dict.fromkeys(texts, "a byte")
        was, found = was[inside : inside + 1], found[inside : inside + 1]
    texts |= {"source_hex": _hex(stored or was), "candidate_hex": _hex(found), "expected_hex": _hex(was)}
    ulps = abs(_place(was) - _place(found)) if _counted_in_ulps(new.dtype) else None
    return FirstDifference(offset=offset, file_offset=new.file_offset(offset), index=index, ulps=ulps, **texts)


def _hex(word: bytes) -> str:
    return "0x" + word[::-1].hex()


def _counted_in_ulps(dtype: str) -> bool:
    return numpy_dtype(dtype) is not None and dtype not in INTEGERS


def _place(word: bytes) -> int:
    """Number a word in the order of values: sign and magnitude become one line."""
    value, half = int.from_bytes(word, "little"), 1 << (8 * len(word) - 1)
    return value if value < half else half - value
