"""Local errors: how large they may be at a capture point, how much of that one uses, and how each promise is broken.

A limit is a multiple of what a trusted run in the same dtype makes at the point, or a run by the roughest kernels that
are right, with a floor in units of the dtype's roundoff; never an absolute tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import listed, or_nan
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, codes, rows_of, settings, with_rows
from weighbridge.clauses.mutations import Breaks, Limit, Moves, Way, without_all_of_a_glob
from weighbridge.core import Doc, Fields, Outcome, dataclass, replace
from weighbridge.quantities.forward import NOT_TRIED, ForwardError, LocalError, Taken

TAILS = ("token", "channel")
EXACT = LocalError(all=0.0, token=0.0, channel=0.0)
Points: TypeAlias = tuple[Annotated[str, Doc(pattern=r"[A-Za-z*?][A-Za-z0-9_.*?]*")], ...]


def _alone(row: ForwardError, **changes: Any) -> ForwardError | None:
    """Return a row with another error that is its own: made from no other point, and of no other state."""
    own = {"made_from": (), "candidate_end_to_end": 0.0, "rough": NOT_TRIED, **changes}
    return replace(row, **own) if row.truth_norm else None


def _beyond_ratio(of: str, row: ForwardError, limits: Limits, ratio: float) -> ForwardError | None:
    """Leave the trusted run an error that makes the limit, a power of two, so that its multiple is exact."""
    floor = limits.floor_u if of == "all" else limits.tail_floor_u
    trusted = 2.0 ** math.ceil(math.log2(2 * floor * row.run.u))
    candidate = replace(row.candidate, **{of: ratio * trusted})
    return _alone(row, trusted=replace(row.trusted, **{of: trusted}), candidate=candidate)


def _beyond_floor(of: str, row: ForwardError, _limits: Limits, floor: float) -> ForwardError | None:
    trusted = replace(row.trusted, **{of: 0.0})
    return _alone(row, trusted=trusted, candidate=replace(row.candidate, **{of: floor * row.run.u}))


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


def _over(beyond: Callable[[str, ForwardError, Any, Any], ForwardError | None], *overs: str) -> tuple[Way, ...]:
    return tuple(("beyond" if of == "all" else of, "diverged", partial(beyond, of)) for of in overs)


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
        float, _bound("times the trusted run's error at the point", 1, 10, *_over(_beyond_ratio, "all"))
    ] = 2.5
    rough_ratio: Annotated[float, _bound(ROUGH, 1, 10, ("beyond", "diverged", _beyond_rough))] = 1.5
    floor_u: Annotated[float, _bound(FLOOR, 0, 10, *_over(_beyond_floor, "all"), unit="u")] = 1.25
    tail_ratio: Annotated[float, _bound(TAIL, 1, 10, *_over(_beyond_ratio, *TAILS))] = 3.0
    tail_floor_u: Annotated[
        float, _bound("the least limit of the worst token or channel", 0, 50, *_over(_beyond_floor, *TAILS), unit="u")
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


WHOSE = "whose weights the reference computes with; those taken still differ"
MEASURE = settings(weights=(str, Doc(WHOSE, choices=("reference", "candidate")), "reference"))


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
    overs = ("all", *TAILS)
    return max((or_nan(getattr(found, over)) / or_nan(getattr(limit, over)), over) for over in overs)


def known(error: LocalError) -> bool:
    """Return whether all figures of an error are there and are errors."""
    figures = (error.all, error.token, error.channel)
    return all(figure is not None and math.isfinite(figure) and figure >= 0 for figure in figures)


# --- How a pass is made to fail where no limit is the reason, and with which code -------------------------------------

CODES = codes(
    *("weights-differ", "weights-unlike", "diverged", "missing-candidate", "missing-reference", "missing-required"),
    *("shape", "nonfinite", "zero-truth"),
    blocked=BLOCKED,
)
ANY_WEIGHT = "the contract lets every weight differ"
NO_SIGNAL: dict[str, Any] = {"truth_norm": 0.0, "candidate": NOT_TRIED, "trusted": NOT_TRIED}


def _run(name: str, code: str, asked: str = "", **fields: Any) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
        return {"run": replace(row.run, **fields)} if not asked or getattr(limits, asked) else None

    return breaks(name, code, change, f"the contract names no {asked}")


def _misnamed(name: str, form: str) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> Fields | None:
        other = form.format(row.point)
        return {"point": other} if row.point in limits.required and listed(other, limits.points) else None

    return breaks(name, "missing-required", change, "the contract requires no such point")


def _weights(name: str, code: str, place: str, why: str, **fields: Any) -> Mutation[Limits]:
    """Return the mutation of what the candidate's weights are, which the judge says at the place of a weight."""

    def apply(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
        rows = list(rows_of(evidence, "points", ForwardError))
        mine = [at for at, row in enumerate(rows) if row.point in places and compared(row, limits)]
        if not mine or ("differing" in fields and listed(place, limits.other_weights)):
            return why
        for at in mine:
            run = rows[at].run
            rows[at] = replace(rows[at], run=replace(run, weights=replace(run.weights, **fields)))
        return Mutated(with_rows(evidence, "points", rows), frozenset({place}))

    return Mutation(name, code, apply)


def _unlike(name: str, whole: float, row: float) -> Mutation[Limits]:
    taken = Taken(name="matrix", all=whole, row=row)
    return _weights(name, "weights-unlike", "matrix", "no point is compared", taken=(taken,))


def _without_weights(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
    weights = replace(row.run.weights, on_both_sides=0)
    return None if limits.other_weights else {"run": replace(row.run, weights=weights)}


def _rounded_factors(row: ForwardError, _limits: Limits) -> dict[str, Any] | None:
    run = replace(row.run, products_like="bfloat16", products_at=row.point, products_left=0.0)
    odd = replace(row.candidate, all=1e9)
    return {"run": run, "candidate": odd, "made_from": (), "candidate_end_to_end": 0.0} if row.truth_norm else None


def _unreached(name: str) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
        others = tuple(one for one in REACHED if one != name)
        return {"run": replace(row.run, reached=others)} if name in limits.reach else None

    return breaks(f"inputs that reach no {name}", f"inputs-reach-no-{name}", change, "the contract does not ask for it")


def _not_captured(row: ForwardError, _limits: Limits) -> dict[str, Any]:
    return {"candidate_shape": None, "run": replace(row.run, partial=False)}


def _stored_otherwise(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "points", ForwardError)
    if not any(row.trusted_held_as == row.run.dtype for row in rows):
        return "the trusted run stores nothing in the dtype"
    return Mutated(with_rows(evidence, "points", [replace(row, held_as="another") for row in rows]))


def _rounded_less(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "points", ForwardError)
    if rows[0].run.dtype != "float32":
        return "only values in float32 are finer than rounded factors"
    said = replace(rows[0].run, products="q8_0")
    if not any(row.truth_norm for row in rows):
        return "all points hold zeros"
    coarse = LocalError(all=0.01, token=0.02, channel=0.02)
    changed = [replace(row, run=said, candidate=EXACT, trusted=coarse) if row.truth_norm else row for row in rows]
    return Mutated(with_rows(evidence, "points", changed))


def _no_error(column: str, code: str, who: str) -> Iterator[Mutation[Limits]]:
    none = {"was never computed": None, "is not a number": math.nan, "has no bound": math.inf}
    for what, value in {**none, "lies below zero": -5e-324}.items():
        for of in ("all", "token", "channel"):

            def change(row: ForwardError, _limits: Limits, of: str = of, value: Any = value) -> Fields | None:
                broken = {column: replace(getattr(row, column), **{of: value})}
                return {"made_from": (), **broken} if row.truth_norm else None

            yield breaks(f"an error of the {who} over {of} that {what}", code, change, "all points hold zeros")


MUTATIONS: tuple[Mutation[Limits], ...] = (
    *_no_error("candidate", "nonfinite", "candidate"),
    breaks("one value not finite", "nonfinite", nonfinite_candidate=1, made_from=()),
    breaks("a layout turned over", "shape", candidate_shape=(2, 3), reference_shape=(3, 2)),
    breaks("a layout turned over, the other way", "shape", candidate_shape=(3, 2), reference_shape=(2, 3)),
    breaks("an error as of factors rounded otherwise", "products-unsaid", _rounded_factors, "all points hold zeros"),
    breaks("not captured in the candidate", "missing-candidate", _not_captured),
    breaks("not captured in the reference", "missing-reference", reference_shape=None),
    breaks("no zero where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=5e-324),
    breaks("no number where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=math.nan),
    _misnamed("a required point under a longer name", "{}.x"),
    _misnamed("a required point under a longer name, at its end", "x.{}"),
    _weights("a weight that differs", "weights-differ", "weight", ANY_WEIGHT, differing=("weight",)),
    _unlike("a matrix that is another one", 1.4, 1.5),
    _unlike("a row of a matrix that is another one", 0.03, 0.7),
    _unlike("a matrix that is no number", math.nan, math.nan),
    without_all_of_a_glob("names-nothing", "points", ForwardError, lambda limits: limits.points),
    _run("one token, repeated", "one-token", distinct_tokens=1),
    _run("one operation below float64", "reference-not-float64", lower_ops=1),
    _run("no operation audited", "reference-not-float64", audited_ops=0),
    _run("a rounded constant", "reference-not-float64", rounded_constants=1),
    *map(_unreached, REACHED),
    _run("another dtype", "other-dtype", "dtype", dtype="another"),
    _run("a dtype of no name", "other-dtype", "dtype", dtype="unknown"),
    _run("another device", "other-device", "device", device="another"),
    breaks("no weight compared", "weights-not-compared", _without_weights, "the contract lets weights differ"),
    *_no_error("trusted", "no-trusted-run", "trusted run"),
    breaks("one value of the reference not finite", "reference-nonfinite", nonfinite_reference=1),
    Mutation("products that round nothing", "products-otherwise", _rounded_less, Outcome.BLOCKED),
    Mutation("all stored in another dtype", "held-otherwise", _stored_otherwise, Outcome.BLOCKED),
)
