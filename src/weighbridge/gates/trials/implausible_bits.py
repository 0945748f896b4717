"""How trials break label-plausibility: bits wrong by exactly one limit, by rules that no judge can weaken."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Limit, Moves, without_all_of_a_glob
from weighbridge.core import Outcome
from weighbridge.quantities.tensors import BitReading, TensorBits

Limits: TypeAlias = Any  # those of label-plausibility, which imports this module
Words: TypeAlias = Callable[[TensorBits, Limits], TensorBits | None]
Short: TypeAlias = Callable[[TensorBits, Limits, Any], TensorBits | None]  # with the value that breaks a limit

MANY = 10**13  # elements, of which one more or fewer is next to nothing
FAR = 20.0  # bits: under no reading like weights
_breaks = Breaks(need="bits", row=TensorBits)
READINGS = {"F16": ("F16", "BF16"), "BF16": ("BF16", "F16"), "F32": ("BF16", "F16")}  # the label's, and the other


def too_many(*ways: tuple[str, str, Words]) -> Moves:
    """Return how to break a share of the elements: as many as just go beyond it are wrong, all others plain weights."""

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        for way, code, change in ways:

            def apply(evidence: Evidence, limits: Any, places: Sequence[str], change: Words = change) -> Mutated | str:
                rows, wanted = rows_of(evidence, "bits", TensorBits), set(places)
                wrong = {row.name: new for row in rows if row.name in wanted and (new := change(row, limits))}
                if not wrong:
                    return "not at these places"
                right = {row.name: new for row in rows if row.name not in wrong and (new := words(row, limits))}
                *others, last = wrong
                right_elements, share = sum(row.elements for row in right.values()), limit.value
                least = math.floor(share * right_elements / (1 - share)) + 1
                wrong[last] = replace(wrong[last], elements=max(least - sum(wrong[one].elements for one in others), 1))
                changed = [wrong.get(row.name) or right.get(row.name) or row for row in rows]
                return Mutated(with_rows(evidence, "bits", changed), frozenset(wrong))

            yield Mutation(way, code, apply)

    return moves


def too_little(limit: Limit) -> Iterator[Mutation[Any]]:
    """Yield one tensor of plain weights, short of the share by one element, among others that decide nothing."""

    def apply(evidence: Evidence, limits: Any, _places: Sequence[str]) -> Mutated | str:
        plain = [new for row in rows_of(evidence, "bits", TensorBits) if (new := words(row, limits))]
        if len(plain) < 2:
            return "there is one tensor"
        decided = math.ceil(limit.value * MANY)
        others = [replace(row, elements=0, as_stored=None, byte_swapped=None) for row in plain[1:]]
        others[0] = replace(others[0], elements=max(MANY - decided, 1))
        return Mutated(with_rows(evidence, "bits", [replace(plain[0], elements=decided - 1), *others]))

    yield Mutation("too little decided", "too-little-decided", apply, Outcome.BLOCKED)


def undecided(*ways: tuple[str, Short]) -> Moves:
    """Return how to break a limit of a decision: every tensor just short of it, so that nothing is decided."""

    def moves(limit: Limit) -> Iterator[Mutation[Any]]:
        for way, change in ways:

            def short(row: TensorBits, limits: Limits, change: Short = change) -> TensorBits | None:
                return change(row, limits, limit.value)

            yield _breaks.only(way, "nothing-decided", short, "no tensor is words")

    return moves


def words(
    row: TensorBits, limits: Limits, *, label: float = 0.0, other: float = FAR, swapped: float = FAR, **more: Any
) -> TensorBits | None:
    """Return a row of words with these excesses, or None where the promise is not about such a row."""
    if row.dtype not in READINGS or not any(fnmatchcase(row.name, glob) for glob in limits.tensors):
        return None
    reading, rival = READINGS[row.dtype]
    many = more.get("nonzero", limits.min_nonzero)
    stored = BitReading(
        negative=math.floor(many * limits.one_sign_at_most_share),
        symbols=limits.min_symbols,
        excess={reading: label, rival: other},
    )
    turned = swapped if row.dtype != "F32" else min(other, swapped)
    order = {"as_stored": stored, "byte_swapped": replace(stored, excess={reading: turned, rival: FAR})}
    halves = {"half_divergence": 1.0, "half_entropy": 6.0, "trailing_zero_bits": 0}
    return replace(row, **{"nonzero": many, **order, **halves, **more})


def _above(limit: float) -> float:
    return math.nextafter(limit, math.inf)


def _below(limit: float) -> float:
    return math.nextafter(limit, -math.inf)


def _mislabelled(row: TensorBits, limits: Limits) -> TensorBits | None:
    label, other = _above(limits.fits_not_above_bits), _below(limits.fits_below_bits)
    return None if row.dtype == "F32" else words(row, limits, label=label, other=other)


def _swapped(row: TensorBits, limits: Limits, **more: Any) -> TensorBits | None:
    label, fits = _above(limits.fits_not_above_bits), _below(limits.fits_below_bits)
    # The other reading is not implausible, so that words whose order tells nothing are undecided under any limits.
    return words(row, limits, label=label, other=limits.implausible_above_bits, swapped=fits, **more)


def _changed(row: TensorBits | None, reading: str, **more: Any) -> TensorBits | None:
    return row and replace(row, **{reading: replace(getattr(row, reading), **more)})


def _pairs(row: TensorBits, limits: Limits) -> TensorBits | None:
    divergence, entropy = _below(limits.halves_alike_below_bits), _below(limits.random_from_bits)
    return words(row, limits, half_divergence=divergence, half_entropy=entropy)


def _implausible(row: TensorBits, limits: Limits) -> TensorBits | None:
    far = _above(limits.implausible_above_bits)
    return words(row, limits, label=far, other=far)


def _no_better(row: TensorBits, limits: Limits, apart: float) -> TensorBits | None:
    label = limits.fits_below_bits / 2
    other = label + apart
    while other - label > apart:
        other = _below(other)
    return words(row, limits, label=label, other=other)


def _one_sign(share: float, limits: Limits) -> int:
    return int(limits.min_nonzero * share) + 1


def _but_for(column: str, figure: Callable[[Any, Limits], int]) -> tuple[tuple[str, Short], ...]:
    """Return words that are plausible, or swapped, but for one figure of the reading that decides."""

    def of(make: Words, reading: str) -> Short:
        return lambda row, limits, value: _changed(make(row, limits), reading, **{column: figure(value, limits)})

    return ("stored", of(words, "as_stored")), ("swapped", of(_swapped, "byte_swapped"))


def _words(*given: str, **fixed: str | float) -> Short:
    """Return words with the limit's value in these figures, and in others a number, or the limit of that name."""

    def change(row: TensorBits, limits: Limits, value: Any) -> TensorBits | None:
        others = {name: getattr(limits, one) if isinstance(one, str) else one for name, one in fixed.items()}
        return words(row, limits, **dict.fromkeys(given, value), **others)

    return change


FAR_OFF, FITS = "implausible_above_bits", "fits_below_bits"
WRONG = too_many(
    ("the other reading fits", "mislabelled", _mislabelled),
    ("the other order of bytes fits", "byte-swapped", _swapped),
    (
        "the other order of bytes fits, this one has no order",
        "byte-swapped",
        lambda row, limits: _changed(_swapped(row, limits), "as_stored", negative=0, symbols=1),
    ),
    ("both halves of every word alike", "pairs", _pairs),
)
IMPLAUSIBLE = too_many(("no reading fits", "implausible", _implausible))
FEW = undecided(("stored", _words("nonzero")), ("swapped", lambda row, given, many: _swapped(row, given, nonzero=many)))
FEW_SYMBOLS = undecided(*_but_for("symbols", lambda symbols, _: int(symbols)))
ONE_SIGN = undecided(
    *((f"negative, {way}", change) for way, change in _but_for("negative", _one_sign)),
    *(
        (f"positive, {way}", change)
        for way, change in _but_for("negative", lambda share, of: of.min_nonzero - _one_sign(share, of))
    ),
)
NO_FIT = undecided(
    ("the label's reading", _words("label")),
    ("the other reading", _words("other", label=FAR_OFF)),
    ("swapped", _words("swapped", label=FAR_OFF)),
)
STILL_FITS = undecided(
    ("the other reading better", _words("label", other=0.0)), ("swapped better", _words("label", swapped=0.0))
)
NO_BETTER = undecided(("no reading better", _no_better))
ALMOST = undecided(
    ("both", lambda row, limits, bits: words(row, limits, label=_above(bits), other=bits)),
    ("the label's reading", _words("label")),
)
HALVES_APART = undecided(("halves", _words("half_divergence", label=FITS)))
HALVES_OF_NOISE = undecided(("halves", _words("half_entropy", label=FITS, half_divergence=0.0)))


def _unused(row: TensorBits, limits: Limits) -> TensorBits | None:
    most = limits.trailing_zero_bits_at_most.get(row.dtype)
    named = any(fnmatchcase(row.name, glob) for glob in limits.tensors)
    return None if most is None or not named else replace(row, nonzero=limits.min_nonzero, trailing_zero_bits=most + 1)


ZEROS = functools.partial(words, as_stored=None, byte_swapped=None)
MUTATIONS: tuple[Mutation[Limits], ...] = (
    _breaks("bits unused", "unused-bits", _unused, "no dtype is bounded in its bits"),
    _breaks.only("all zeros", "nothing-decided", ZEROS, "no tensor is of 16 or 32 bits"),
    without_all_of_a_glob("names-nothing", "bits", TensorBits, lambda limits: limits.tensors, words),
)
