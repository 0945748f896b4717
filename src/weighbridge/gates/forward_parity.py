"""forward-parity: do candidate and reference compute the same at every capture point, within what precision explains?

The error at a point is local: of what float64 makes of the values captured before it. It may be a small multiple of
what a trusted run in the same dtype makes there, with a floor in units of the dtype's roundoff; never an absolute
tolerance, never cosine, never an error end to end alone. A point over its limit has DIVERGED, unless what was made from
it does not fit it either: then the capture is of another state than the value that was used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

from weighbridge.clauses.faults import Injected, RowsFault, Way, in_rows
from weighbridge.clauses.kind import Evidence, Falsifier, Kind, Need, blocked, failed, passed, rows_of, with_rows
from weighbridge.limits import Doc, plain
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict
from weighbridge.quantities.forward import ForwardError, LocalError

POINT = r"[A-Za-z][A-Za-z0-9_.*?]*"
NONE = LocalError(all=None, token=None, channel=None)
EXPLAINS = 2  # times the limit: a relation that leaves no more over names the cause


# --- How what a limit bounds is moved ---------------------------------------------------------------------------------


def _alone(row: ForwardError, **changes: Any) -> ForwardError | None:
    """Return a row with another error, made from no other point, so that no point before it is doubted for it."""
    return replace(row, made_from=(), **changes) if row.truth_norm else None


def _beyond_ratio(of: str) -> Callable[[ForwardError, Limits, float], ForwardError | None]:
    def change(row: ForwardError, limits: Limits, ratio: float) -> ForwardError | None:
        """Leave the trusted run an error that makes the limit, a power of two, so that its multiple is exact."""
        floor = limits.floor_u if of == "all" else limits.tail_floor_u
        trusted = 2.0 ** math.ceil(math.log2(2 * floor * row.run.u))
        return _alone(
            row, trusted=replace(row.trusted, **{of: trusted}), candidate=replace(row.candidate, **{of: ratio * trusted})
        )

    return change


def _beyond_floor(of: str) -> Callable[[ForwardError, Limits, float], ForwardError | None]:
    def change(row: ForwardError, _limits: Limits, floor: float) -> ForwardError | None:
        trusted = replace(row.trusted, **{of: 0.0})
        return _alone(row, trusted=trusted, candidate=replace(row.candidate, **{of: floor * row.run.u}))

    return change


def _too_coarse(row: ForwardError, limits: Limits, limit: float) -> ForwardError | None:
    """Make the trusted run so poor that the limit at this point is the one given."""
    trusted = limit / limits.ratio
    while limits.ratio * trusted < limit:
        trusted = math.nextafter(trusted, math.inf)
    return _alone(row, trusted=replace(row.trusted, all=trusted))


def _noisy(row: ForwardError, _limits: Limits, ratio: float) -> ForwardError | None:
    trusted = max(row.trusted.all or 0.0, row.run.u)
    noise = ratio * trusted
    return replace(row, trusted=replace(row.trusted, all=trusted), noise=noise) if row.truth_norm else None


@dataclass(frozen=True, slots=True)
class Silence:
    """Fault of the number of points that carry a signal: the others agree on zeros."""

    def inject(
        self, evidence: Evidence, _held: Any, _limits: Any, value: Any, _places: Sequence[str]
    ) -> Iterator[Injected]:
        """Yield the points with so many left that carry a signal."""
        rows = list(rows_of(evidence, "points", ForwardError))
        telling = [at for at, row in enumerate(rows) if row.truth_norm]
        for at in telling[value:]:
            rows[at] = replace(rows[at], truth_norm=0.0, candidate_error=0.0)
        yield Injected("too few", "nothing-compared", with_rows(evidence, "points", rows))


Change = Callable[[ForwardError, Any, Any], ForwardError | None]


def _moved(code: str, *changes: tuple[str, Change]) -> RowsFault[ForwardError]:
    return RowsFault(need="points", row=ForwardError, ways=tuple(Way(name, code, change) for name, change in changes))


def _in_run(code: str, column: str) -> RowsFault[ForwardError]:
    """Return the fault of a figure that is the same at every point."""
    return _moved(code, ("beyond", lambda row, _, value: replace(row, run=replace(row.run, **{column: value}))))


def _demand(text: str, least: int, most: int, fault: object) -> Doc:
    return Doc(text, ge=least, le=most, tight="up", must="at least", fault=fault, comes_to="BLOCKED")


def _bound(text: str, most: float, *faults: tuple[str, Change], unit: str = "") -> Doc:
    return Doc(text, gt=0, le=most, tight="down", must="at most", unit=unit, fault=_moved("diverged", *faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a candidate may lie from the truth, and how much must have been looked at."""

    ratio: Annotated[
        float, _bound("times the trusted run's error at the point", 10, ("beyond", _beyond_ratio("all")))
    ] = 2.5
    floor_u: Annotated[
        float,
        _bound("the least limit, in units of the dtype's roundoff", 10, ("beyond", _beyond_floor("all")), unit="u"),
    ] = 1.25
    tail_ratio: Annotated[
        float,
        _bound("times the trusted run's error over its worst token or channel", 10,
               ("token", _beyond_ratio("token")), ("channel", _beyond_ratio("channel"))),
    ] = 3.0  # fmt: skip
    tail_floor_u: Annotated[
        float,
        _bound("the least limit of the worst token or channel", 50,
               ("token", _beyond_floor("token")), ("channel", _beyond_floor("channel")), unit="u"),
    ] = 8.0  # fmt: skip
    max_limit: Annotated[
        float,
        Doc("a limit above this could not tell a broken point; it is BLOCKED", gt=0, le=0.5, tight="down",
            must="at most", fault=_moved("too-coarse", ("beyond", _too_coarse)), comes_to="BLOCKED"),
    ] = 0.5  # fmt: skip
    noise_ratio: Annotated[
        float,
        Doc("times the trusted run's error that a second run may lie from the first, where it first does", ge=0, le=1,
            tight="down", must="at most", fault=_moved("not-repeatable", ("beyond", _noisy)), comes_to="BLOCKED"),
    ] = 1.0  # fmt: skip
    points: Annotated[
        tuple[Annotated[str, Doc(pattern=POINT)], ...],
        Doc("globs of the points that are compared; each of them must be on both sides", min_items=1, tight="up"),
    ] = ("*",)
    required: Annotated[
        tuple[Annotated[str, Doc(pattern=POINT)], ...], Doc("capture points that must be there, by exact id", tight="up")
    ] = ()
    other_weights: Annotated[
        tuple[str, ...], Doc("globs of weights that may differ, or that the candidate cannot name", tight="down")
    ] = ()
    dtype: Annotated[
        str, Doc("what the candidate must compute in", choices=("", "bfloat16", "float16", "float32"))
    ] = ""  # fmt: skip
    device: Annotated[str, Doc("where the candidate must compute", choices=("", "cpu", "cuda"))] = ""
    min_sequences: Annotated[int, _demand("different sequences", 2, 10**6, _in_run("one-token", "sequences"))] = 2
    min_tokens: Annotated[int, _demand("tokens in a sequence", 2, 10**7, _in_run("one-token", "tokens"))] = 2
    min_points: Annotated[int, _demand("points compared", 1, 10**6, Silence())] = 1
    min_elements: Annotated[
        int,
        _demand("finite elements compared at a point", 1, 10**12,
                _moved("too-few-elements", ("beyond", lambda row, _, value: replace(row, elements=value)))),
    ] = 1  # fmt: skip


# --- One point --------------------------------------------------------------------------------------------------------


def allowed(row: ForwardError, limits: Limits) -> LocalError:
    """Return the largest errors that a point may have: max(ratio × the trusted run's, floor × u), over all and tails."""
    tails = [
        max(limits.tail_ratio * _or_nan(error), limits.tail_floor_u * row.run.u)
        for error in (row.trusted.token, row.trusted.channel)
    ]
    whole = max(limits.ratio * _or_nan(row.trusted.all), limits.floor_u * row.run.u)
    return LocalError(all=whole, token=tails[0], channel=tails[1])


def detectable(row: ForwardError, limits: Limits) -> float:
    """Return the least relative error, independent of rounding, that would be noticed: √(limit² − trusted²)."""
    limit, trusted = _or_nan(allowed(row, limits).all), _or_nan(row.trusted.all)
    return math.sqrt(max(limit - trusted, 0.0) * (limit + trusted))


def _share(row: ForwardError, limits: Limits) -> tuple[float, str]:
    """Return the largest share of a limit that a point uses, and whether over all, a token or a channel."""
    found, limit = row.candidate, allowed(row, limits)
    pairs = [(found.all, limit.all, "all"), (found.token, limit.token, "token"),
             (found.channel, limit.channel, "channel")]  # fmt: skip
    return max((_or_nan(error) / _or_nan(bound), name) for error, bound, name in pairs)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _known(error: LocalError) -> bool:
    figures = (error.all, error.token, error.channel)
    return all(figure is not None and math.isfinite(figure) and figure >= 0 for figure in figures)


def _unfit(row: ForwardError, limits: Limits) -> str:
    """Return why this run can show nothing, whatever its errors are."""
    run = row.run
    if run.tokens < limits.min_tokens or run.sequences < limits.min_sequences:
        return "one-token"
    if run.distinct_tokens < 2:  # one token, repeated, is blind to where tokens stand
        return "one-token"
    if not run.audited_ops or run.lower_ops or run.rounded_constants:
        return "reference-not-float64"
    if limits.dtype and run.dtype != limits.dtype:
        return "other-dtype"
    if not run.weights.on_both_sides and not limits.other_weights:
        return "weights-not-compared"
    return "other-device" if limits.device and run.device != limits.device else ""


def _wrong(row: ForwardError, limits: Limits) -> str:
    """Return what is wrong with the candidate at this point."""
    if row.reference_shape is None:
        return "missing-reference"
    if row.candidate_shape is None:
        return "missing-candidate"
    if row.reference_shape != row.candidate_shape:
        return "shape"
    if row.nonfinite_candidate:
        return "nonfinite"
    if row.truth_norm == 0:
        return "" if row.candidate_error == 0 else "zero-truth"
    if not _known(row.candidate):
        return "nonfinite"
    if not _known(row.trusted):
        return ""  # without a trusted run there is no limit: `_unclear` says so
    return "" if _share(row, limits)[0] <= 1 else "diverged"


def _unclear(row: ForwardError, limits: Limits) -> str:
    """Return why a point that broke nothing still shows nothing."""
    if row.nonfinite_reference:
        return "reference-nonfinite"
    if row.elements < limits.min_elements:
        return "too-few-elements"
    if not row.truth_norm:  # a truth of zeros agrees with every dead candidate
        return ""
    if not _known(row.trusted):
        return "no-trusted-run"
    return "too-coarse" if _or_nan(allowed(row, limits).all) > limits.max_limit else ""


# --- Points over their limit: a bug there, or a capture of another state ----------------------------------------------


class Sorted(NamedTuple):
    """The points over their limit, by what they are; those made from a misfit capture are in none."""

    diverged: list[str]
    mismatched: list[str]
    other_basis: list[str]


def _sort(rows: Sequence[ForwardError], over: Mapping[str, str]) -> Sorted:
    """Tell bugs from captures of another state, by what was made from each point.

    After a bug, what is made next fits the value it was given. Where it does not, the value given was another.
    """
    found = Sorted([], [], [])
    for row in rows:
        if over.get(row.point) != "diverged" or set(row.made_from).intersection(found.mismatched):
            continue
        made = [one for one in rows if row.point in one.made_from and one.trusted.all and one.candidate.all is not None]
        if made and all(over.get(one.point) == "diverged" for one in made):
            found.mismatched.append(row.point)
        else:
            found.diverged.append(row.point)
    if found.diverged and not found.mismatched and _another_basis(rows, over):
        return Sorted([], [], found.diverged)
    return found


def _another_basis(rows: Sequence[ForwardError], over: Mapping[str, str]) -> bool:
    """Return whether all that follows the points over their limit is in order end to end, which only float32 can show."""
    first = next(at for at, row in enumerate(rows) if row.point in over)
    after = [row for row in rows[first:] if row.point not in over and row.made_from]
    if rows[0].run.dtype != "float32" or not after or set(over.values()) != {"diverged"}:
        return False
    shown = [_beyond_end_to_end(row) for row in rows if row.point in over]
    return all(shown) and not any(_beyond_end_to_end(row) for row in after)


def _beyond_end_to_end(row: ForwardError) -> bool:
    found, trusted = _or_nan(row.candidate_end_to_end), _or_nan(row.trusted_end_to_end)
    return not found <= max(END_TO_END * trusted, END_TO_END * row.run.u)


END_TO_END = 3.0  # times the trusted run's error, where errors end to end are told apart; they never fail alone


# --- All points -------------------------------------------------------------------------------------------------------


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return FAIL where a step is not what the reference computes there, led by the first such point in order."""
    everything = sorted(rows_of(evidence, "points", ForwardError), key=lambda row: row.order)
    rows = [row for row in everything if any(fnmatchcase(row.point, glob) for glob in limits.points)]
    for row in rows:
        if code := _unfit(row, limits):
            asked: Fields = {"asked_dtype": limits.dtype, "asked_device": limits.device}
            least: Fields = {"min_sequences": limits.min_sequences, "min_tokens": limits.min_tokens}
            return blocked(code, {**_setting(rows), **asked, **least}, offences=(Offence(place=row.point, code=code),))
    if not rows:
        return blocked("nothing-compared", {"compared": 0, "points": 0, "min_points": limits.min_points})
    over = {row.point: code for row in rows if (code := _wrong(row, limits))}
    sorted_ = _sort(rows, over)
    absent = [point for point in limits.required if point not in {row.point for row in rows}]
    weights = [
        name for name in rows[0].run.weights.differing if not any(fnmatchcase(name, g) for g in limits.other_weights)
    ]
    named = {row.point: row for row in rows}
    offences = [Offence(place=name, code="weights-differ", figures={"differing": len(weights)}) for name in weights]
    offences += [
        _offence(named[point], code, limits)
        for point, code in over.items()
        if code != "diverged" or point in sorted_.diverged
    ]
    offences += [Offence(place=point, code="missing-required") for point in absent]
    looked = [*named, *absent]
    if offences:
        return _over(rows, offences, [*looked, *weights], limits, sorted_)
    for code, points in (("capture-mismatch", sorted_.mismatched), ("other-basis", sorted_.other_basis)):
        if points:
            doubted = tuple(_offence(named[point], code, limits) for point in points)
            return blocked(code, {**_setting(rows), "doubted": len(points)}, offences=doubted)
    for row in rows:
        if code := _unclear(row, limits):
            return blocked(code, _setting(rows), offences=(_offence(row, code, limits),))
    if stop := _unshown(rows, limits):
        return stop
    telling = [row for row in rows if row.truth_norm]
    if len(telling) < limits.min_points:
        figures = {"compared": len(telling), "points": len(rows), "min_points": limits.min_points}
        return blocked("nothing-compared", figures)
    return _within(rows, telling, looked, limits)


def _unshown(rows: Sequence[ForwardError], limits: Limits) -> Verdict | None:
    """Return why a run whose every step is in order still is not what it is said to be: noise, or another dtype."""
    first = next((row for row in rows if row.noise), None)
    if first is not None and _or_nan(first.noise) > limits.noise_ratio * (first.trusted.all or 0.0):
        figures = {"noise": first.noise, "trusted": first.trusted.all or 0.0}
        return blocked("not-repeatable", {**_setting(rows), **figures}, offences=(Offence(place=first.point,
                       code="not-repeatable", figures=figures),))  # fmt: skip
    due = [row for row in rows if row.trusted_held_as == row.run.dtype]
    if due and all(row.held_as != row.run.dtype for row in due):
        figures = {"held_as": due[0].held_as, "due": len(due)}
        return blocked("held-otherwise", {**_setting(rows), **figures}, offences=(Offence(place=due[0].point,
                       code="held-otherwise", figures=figures),))  # fmt: skip
    return None


def _over(
    rows: Sequence[ForwardError], offences: Sequence[Offence], looked: Sequence[str], limits: Limits, found: Sorted
) -> Verdict:
    first = offences[0]
    at = next((n for n, row in enumerate(rows) if row.point in {one.place for one in offences}), 0)
    inherited = [row for row in rows if row.point not in found.diverged and _beyond_end_to_end(row)]
    more: Fields = {
        "first": first.place,
        "over": len(found.diverged),
        "points": len(rows),
        "last_in_order": rows[at - 1].point if at else "none",
        "inherited": len(inherited),
        "mismatched": len(found.mismatched),
    }
    return failed(
        offences,
        looked=looked,
        measured=first.figures.get("error"),
        limit=first.figures.get("limit"),
        enough=first.figures.get("limit"),
        unit="relative L2",
        figures={**_setting(rows), **more, "ratio": limits.ratio, "floor_u": limits.floor_u},
    )


def _within(
    rows: Sequence[ForwardError], telling: Sequence[ForwardError], looked: Sequence[str], limits: Limits
) -> Verdict:
    worst = max(telling, key=lambda row: _share(row, limits)[0])
    coarsest = max(telling, key=lambda row: detectable(row, limits))
    shares = [row.equal_share for row in rows if row.equal_share is not None]
    share, over = _share(worst, limits)
    figures: Fields = {
        "worst": worst.point,
        "worst_over": over,
        "budget_used": share,
        "trusted": getattr(worst.trusted, over),
        "detectable": detectable(coarsest, limits),
        "coarsest": coarsest.point,
        "equal_share": sum(shares) / len(shares) if shares else 0.0,
        "noise": max((row.noise or 0.0 for row in rows), default=0.0),
    }
    return passed(
        looked=looked,
        measured=getattr(worst.candidate, over),
        limit=getattr(allowed(worst, limits), over),
        unit="relative L2",
        figures={**_setting(rows), **figures},
    )


OF_A_POINT = (
    "order", "reference_shape", "candidate_shape", "candidate", "trusted", "candidate_error", "elements", "made_from",
    "nonfinite_candidate", "nonfinite_reference", "worst_token", "worst_channel", "candidate_end_to_end",
)  # fmt: skip
OF_THE_RUN = (
    "dtype", "device", "stack", "sequences", "tokens", "distinct_tokens", "audited_ops", "lower_ops",
    "rounded_constants", "inputs_digest", "repeated",
)  # fmt: skip


def _offence(row: ForwardError, code: str, limits: Limits) -> Offence:
    figures: dict[str, Any] = {key: value for key, value in plain(row).items() if key in OF_A_POINT}
    figures["dtype"] = row.run.dtype
    if _known(row.candidate) and _known(row.trusted):
        share, over = _share(row, limits)
        limit = allowed(row, limits)
        figures |= {
            "limit": getattr(limit, over), "error": getattr(row.candidate, over), "over": over,
            "trusted_error": getattr(row.trusted, over), "detectable": detectable(row, limits), "budget_used": share,
            "where": {"token": f" over {row.worst_token}", "channel": f" over channel {row.worst_channel}"}.get(over, ""),
            "relation": _relation(row, limits),
        }  # fmt: skip
    return Offence(place=row.point, code=code, figures=figures)


def _relation(row: ForwardError, limits: Limits) -> str:
    """Return what relates the captured values to those made there, in words; empty where nothing explains them."""
    found = row.relation
    if not found.name or _or_nan(found.left) > EXPLAINS * _or_nan(allowed(row, limits).all):
        return ""
    return f"; it is the right value but for a {found.name} ({found.to or 'of no weight'})"


def _setting(rows: Sequence[ForwardError]) -> Fields:
    """Return on what the verdict stands: the same in every row, but for the elements."""
    run = rows[0].run
    setting = {key: value for key, value in plain(run).items() if key in OF_THE_RUN}
    firsts = {key: getattr(run, key) or "none" for key in ("first_lower_op", "first_rounded_constant")}
    weights = {"weights_compared": run.weights.on_both_sides, "weights_of": run.weights.of}
    outcome = {key: _or_nan(value) if value is None else value for key, value in plain(run.outcome).items()}
    return {**setting, **firsts, **weights, **outcome, "elements": sum(row.elements for row in rows)}


# --- How what no limit bounds is broken -------------------------------------------------------------------------------


def _breaks(name: str, code: str, *, why: str = "no point", telling: bool = False, **changes: Any) -> Falsifier[Limits]:
    """Return the falsifier that puts these figures into rows, with `telling` only where the truth is not all zeros."""
    return in_rows(
        name, code, "points", ForwardError,
        lambda row, _: replace(row, **changes) if row.truth_norm or not telling else None,
        why=why, outcome=CODES[code],
    )  # fmt: skip


def _in_the_run(name: str, code: str, **changes: Any) -> Falsifier[Limits]:
    return in_rows(
        name, code, "points", ForwardError, lambda row, _: replace(row, run=replace(row.run, **changes)),
        why="no point", outcome=CODES[code],
    )  # fmt: skip


def _other(name: str, key: str, other: str) -> Falsifier[Limits]:
    """Return the falsifier that computes in, or on, another than the contract names."""
    changes: dict[str, Any] = {key: other}
    return in_rows(
        name, f"other-{key}", "points", ForwardError,
        lambda row, limits: replace(row, run=replace(row.run, **changes)) if getattr(limits, key) else None,
        why=f"the contract names no {key}", outcome=Outcome.BLOCKED,
    )  # fmt: skip


def _misnamed(name: str, form: str) -> Falsifier[Limits]:
    return in_rows(
        name, "missing-required", "points", ForwardError,
        lambda row, limits: replace(row, point=form.format(row.point)) if row.point in limits.required else None,
        why="the contract requires no point",
    )  # fmt: skip


def _no_error(column: str, code: str, who: str) -> Iterator[Falsifier[Limits]]:
    for what, value in (
        ("was never computed", None), ("is not a number", math.nan), ("has no bound", math.inf),
        ("lies below zero", -5e-324),
    ):  # fmt: skip
        for of in ("all", "token", "channel"):
            yield in_rows(
                f"an error of the {who} over {of} that {what}", code, "points", ForwardError,
                lambda row, _, of=of, value=value: (
                    replace(row, **{column: replace(getattr(row, column), **{of: value})}) if row.truth_norm else None
                ),
                why="all points hold zeros", outcome=CODES[code],
            )  # fmt: skip


CODES = {
    **dict.fromkeys(
        ("weights-differ", "diverged", "missing-candidate", "missing-reference", "missing-required", "shape",
         "nonfinite", "zero-truth"),
        Outcome.FAIL,
    ),
    **dict.fromkeys(
        ("one-token", "reference-not-float64", "other-dtype", "weights-not-compared", "other-device",
         "capture-mismatch", "other-basis", "no-trusted-run", "reference-nonfinite", "too-few-elements", "too-coarse",
         "not-repeatable", "held-otherwise", "nothing-compared"),
        Outcome.BLOCKED,
    ),
}  # fmt: skip
NO_SIGNAL: dict[str, Any] = {"truth_norm": 0.0, "candidate": NONE, "trusted": NONE}

KIND = Kind(
    name="forward-parity",
    version=3,
    roles={"reference": SubjectKind.MODEL, "candidate": SubjectKind.MODEL},
    needs={"points": Need("forward_errors", of=("reference", "candidate"))},
    limits=Limits,
    codes=CODES,
    judge=judge,
    falsifiers=(
        *_no_error("candidate", "nonfinite", "candidate"),
        _breaks("one value not finite", "nonfinite", nonfinite_candidate=1),
        _breaks("a layout turned over", "shape", candidate_shape=(2, 3), reference_shape=(3, 2)),
        _breaks("a layout turned over, the other way", "shape", candidate_shape=(3, 2), reference_shape=(2, 3)),
        _breaks("not captured in the candidate", "missing-candidate", candidate_shape=None),
        _breaks("not captured in the reference", "missing-reference", reference_shape=None),
        _breaks("no zero where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=5e-324),
        _breaks("no number where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=math.nan),
        _misnamed("a required point under a longer name", "{}.x"),
        _misnamed("a required point under a longer name, at its end", "x.{}"),
        _in_the_run("one token, repeated", "one-token", distinct_tokens=1),
        _in_the_run("one operation below float64", "reference-not-float64", lower_ops=1),
        _in_the_run("no operation audited", "reference-not-float64", audited_ops=0),
        _in_the_run("a rounded constant", "reference-not-float64", rounded_constants=1),
        _other("another dtype", "dtype", "another"),
        _other("a dtype of no name", "dtype", "unknown"),
        _other("another device", "device", "another"),
        *_no_error("trusted", "no-trusted-run", "trusted run"),
        _breaks("one value of the reference not finite", "reference-nonfinite", nonfinite_reference=1),
    ),
)
