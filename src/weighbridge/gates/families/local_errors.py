"""Local errors: how large they may be at a capture point, how much of that one uses, and how each limit is broken.

A limit is a multiple of what a trusted run in the same dtype makes at the point, or a run by the roughest kernels that
are right, with a floor in units of the dtype's roundoff; never an absolute tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import listed, or_nan
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Limit, Moves, Way
from weighbridge.core import Doc, Outcome, dataclass, replace
from weighbridge.quantities.forward import NOT_TRIED, ForwardError, LocalError

EXACT = LocalError(all=0.0, token=0.0, channel=0.0)
Points: TypeAlias = tuple[Annotated[str, Doc(pattern=r"[A-Za-z*?][A-Za-z0-9_.*?]*")], ...]


def _alone(row: ForwardError, **changes: Any) -> ForwardError | None:
    """Return a row with another error that is its own: made from no other point, and of no other state."""
    own = {"made_from": (), "candidate_end_to_end": 0.0, "rough": NOT_TRIED, **changes}
    return replace(row, **own) if row.truth_norm else None


def _beyond_ratio(of: str) -> Callable[[ForwardError, Limits, float], ForwardError | None]:
    def change(row: ForwardError, limits: Limits, ratio: float) -> ForwardError | None:
        """Leave the trusted run an error that makes the limit, a power of two, so that its multiple is exact."""
        floor = limits.floor_u if of == "all" else limits.tail_floor_u
        trusted = 2.0 ** math.ceil(math.log2(2 * floor * row.run.u))
        candidate = replace(row.candidate, **{of: ratio * trusted})
        return _alone(row, trusted=replace(row.trusted, **{of: trusted}), candidate=candidate)

    return change


def _beyond_floor(of: str) -> Callable[[ForwardError, Limits, float], ForwardError | None]:
    def change(row: ForwardError, _limits: Limits, floor: float) -> ForwardError | None:
        trusted = replace(row.trusted, **{of: 0.0})
        return _alone(row, trusted=trusted, candidate=replace(row.candidate, **{of: floor * row.run.u}))

    return change


def _beyond_rough(row: ForwardError, _limits: Limits, ratio: float) -> ForwardError | None:
    """Leave a rough run an error of one, far above the trusted run's and the floor."""
    rough = LocalError(all=1.0, token=1.0, channel=1.0)
    return _alone(row, trusted=EXACT, rough=rough, candidate=replace(row.candidate, all=ratio))


def _too_coarse(row: ForwardError, limits: Limits, limit: float) -> ForwardError | None:
    """Make the trusted run so poor that the limit at this point is the one given."""
    trusted = limit / limits.ratio
    while limits.ratio * trusted < limit:
        trusted = math.nextafter(trusted, math.inf)
    return _alone(row, trusted=replace(row.trusted, all=trusted), rough=row.rough)


def _noisy(row: ForwardError, _limits: Limits, ratio: float) -> ForwardError | None:
    trusted = max(row.trusted.all or 0.0, row.run.u)
    changed = replace(row, trusted=replace(row.trusted, all=trusted), trusted_end_to_end=0.0, noise=ratio * trusted)
    return changed if row.truth_norm else None


def silence(limit: Limit) -> Iterator[Mutation[Any]]:
    """Yield the points with so many left that carry a signal; the others agree on zeros."""

    def apply(evidence: Evidence, limits: Limits, _places: Sequence[str]) -> Mutated:
        rows = list(rows_of(evidence, "points", ForwardError))
        telling = [at for at, row in enumerate(rows) if row.truth_norm and listed(row.point, limits.points)]
        for at in telling[limit.value :]:
            rows[at] = replace(rows[at], truth_norm=0.0, candidate_error=0.0)
        return Mutated(with_rows(evidence, "points", rows))

    yield Mutation("too few", "nothing-compared", apply, Outcome.BLOCKED)


Change = Callable[[ForwardError, Any, Any], ForwardError | None]


REACHED = ("window", "rope-limit", "expert", "cache", "padding")
BLOCKED = (
    *("names-nothing", "one-token", "reference-not-float64", "other-dtype", "weights-not-compared", "other-device"),
    *("capture-mismatch", "other-basis", "no-trusted-run", "reference-nonfinite", "too-few-elements", "too-coarse"),
    *("not-repeatable", "held-otherwise", "nothing-compared", "products-unsaid", "products-otherwise"),
    *(f"inputs-reach-no-{name}" for name in REACHED),
)
breaks = Breaks(
    need="points", row=ForwardError, blocked=BLOCKED, why="no point",
    spares=lambda row, limits, _code: not compared(row, limits),
)  # fmt: skip


def compared(row: ForwardError, limits: Any) -> bool:
    """Return whether a point is compared: the contract names it, and it has a value where a candidate may lack some."""
    return listed(row.point, limits.points) and not lacks(row)


def lacks(row: ForwardError) -> bool:
    """Return whether a candidate that may lack values has none for a point."""
    return row.run.partial and row.candidate_shape is None and row.reference_shape is not None


def _in_run(code: str, column: str) -> Moves:
    return breaks.beyond(("beyond", code, lambda row, _, value: {"run": replace(row.run, **{column: value})}))


def _demand(text: str, least: int, most: int, moves: Moves) -> Doc:
    return Doc(text, ge=least, le=most, must="at least", moves=moves)


def _bound(text: str, above: float, most: float, *ways: Way, unit: str = "") -> Doc:
    return Doc(text, gt=above, le=most, must="at most", unit=unit, moves=breaks.beyond(*ways))


def _tails(beyond: Callable[[str], Change]) -> tuple[Way, ...]:
    return ("token", "diverged", beyond("token")), ("channel", "diverged", beyond("channel"))


TOO_COARSE = breaks.beyond(("beyond", "too-coarse", _too_coarse))
NOISY = breaks.beyond(("beyond", "not-repeatable", _noisy))
FEW_ELEMENTS = breaks.beyond(("beyond", "too-few-elements", lambda row, _, elements: replace(row, elements=elements)))
ROUGH = "times the error of the roughest kernels that are right, where that is more"
FLOOR = "the least limit, in units of the dtype's roundoff"
TAIL = "times the trusted or rough run's error over its worst token or channel"
COARSE = "a limit above this could not tell a broken point; it is BLOCKED"
NOISE = "times the trusted run's error that a second run may lie from the first, where it first does"
COMPARED = "globs of the points that are compared; each of them must be on both sides"
DTYPES = ("", "bfloat16", "float16", "float32")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a candidate may lie from the truth, and how much must have been looked at."""

    ratio: Annotated[
        float, _bound("times the trusted run's error at the point", 1, 10, ("beyond", "diverged", _beyond_ratio("all")))
    ] = 2.5
    rough_ratio: Annotated[float, _bound(ROUGH, 1, 10, ("beyond", "diverged", _beyond_rough))] = 1.5
    floor_u: Annotated[float, _bound(FLOOR, 0, 10, ("beyond", "diverged", _beyond_floor("all")), unit="u")] = 1.25
    tail_ratio: Annotated[float, _bound(TAIL, 1, 10, *_tails(_beyond_ratio))] = 3.0
    tail_floor_u: Annotated[
        float, _bound("the least limit of the worst token or channel", 0, 50, *_tails(_beyond_floor), unit="u")
    ] = 8.0
    max_limit: Annotated[float, Doc(COARSE, gt=0, le=0.5, must="at most", moves=TOO_COARSE)] = 0.5
    noise_ratio: Annotated[float, Doc(NOISE, ge=0, le=1, must="at most", moves=NOISY)] = 1.0
    points: Annotated[Points, Doc(COMPARED, min_items=1, tight="up")] = ("*",)
    required: Annotated[Points, Doc("capture points that must be there, by exact id", tight="up")] = ()
    reach: Annotated[
        tuple[Annotated[str, Doc(choices=REACHED)], ...],
        Doc("what the inputs must reach, of what the reference has: beyond its window, past its cache", tight="up"),
    ] = ()
    other_weights: Annotated[
        tuple[str, ...], Doc("globs of weights that may differ, or that the candidate cannot name", tight="down")
    ] = ()
    dtype: Annotated[str, Doc("what the candidate must compute in", choices=DTYPES)] = ""
    device: Annotated[str, Doc("where the candidate must compute", choices=("", "cpu", "cuda"))] = ""
    min_sequences: Annotated[int, _demand("different sequences", 2, 10**6, _in_run("one-token", "sequences"))] = 2
    min_tokens: Annotated[int, _demand("tokens in a sequence", 2, 10**7, _in_run("one-token", "tokens"))] = 2
    min_points: Annotated[int, _demand("points compared", 1, 10**6, silence)] = 1
    min_elements: Annotated[int, _demand("finite elements compared at a point", 1, 10**12, FEW_ELEMENTS)] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """What the reference computes with."""

    weights: Annotated[
        str,
        Doc("whose weights the reference computes with; those taken still differ", choices=("reference", "candidate")),
    ] = "reference"


def allowed(row: ForwardError, limits: Limits) -> LocalError:
    """Return the largest errors that a point may have: max(ratio × the trusted or rough run's, floor × u)."""
    rough = of_rough(row)
    tails = [
        max(limits.tail_ratio * or_nan(error), limits.tail_ratio * or_nan(least), limits.tail_floor_u * row.run.u)
        for error, least in ((row.trusted.token, rough.token), (row.trusted.channel, rough.channel))
    ]
    of_trusted, of_roughest = limits.ratio * or_nan(row.trusted.all), limits.rough_ratio * or_nan(rough.all)
    whole = max(of_trusted, of_roughest, limits.floor_u * row.run.u)
    return LocalError(all=whole, token=tails[0], channel=tails[1])


def of_rough(row: ForwardError) -> LocalError:
    """Return the error of a rough run, none at all where there was none."""
    return row.rough if known(row.rough) else EXACT


def detectable(row: ForwardError, limits: Limits) -> float:
    """Return the least relative error, independent of rounding, that would be noticed: √(limit² − trusted²)."""
    limit, trusted = or_nan(allowed(row, limits).all), or_nan(row.trusted.all)
    return math.sqrt(max(limit - trusted, 0.0) * (limit + trusted))


def share_of(row: ForwardError, limits: Limits) -> tuple[float, str]:
    """Return the largest share of a limit that a point uses, and whether over all, a token or a channel."""
    found, limit = row.candidate, allowed(row, limits)
    overs = ("all", "token", "channel")
    return max((or_nan(getattr(found, over)) / or_nan(getattr(limit, over)), over) for over in overs)


def known(error: LocalError) -> bool:
    """Return whether all figures of an error are there and are errors."""
    figures = (error.all, error.token, error.channel)
    return all(figure is not None and math.isfinite(figure) and figure >= 0 for figure in figures)
