"""forward-parity: do candidate and reference agree at every capture point, within what the precision explains?

At a point the candidate's relative L2 error against float64 truth may be a small multiple of what a trusted run in the
same dtype makes there, with a floor in units of the dtype's roundoff; never an absolute tolerance, never cosine. The
errors are end to end: a point after the first one over its limit may only have inherited its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from weighbridge.clauses.faults import Injected, RowFault, RowsFault, Way, in_rows
from weighbridge.clauses.kind import Evidence, Falsifier, Kind, Need, blocked, failed, passed, rows_of, with_rows
from weighbridge.limits import Doc, plain
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict
from weighbridge.quantities.forward import ForwardError

POINT = r"[A-Za-z][A-Za-z0-9_.]*"


# --- How what a limit bounds is moved ---------------------------------------------------------------------------------


def _beyond_ratio(row: ForwardError, limits: Limits, ratio: float) -> ForwardError | None:
    """Leave the trusted run an error that makes the limit, a power of two, so that its multiple is exact."""
    trusted = 2.0 ** math.ceil(math.log2(2 * limits.floor_u * row.u))
    return replace(row, rl2_reference=trusted, rl2_candidate=ratio * trusted) if row.truth_norm else None


def _beyond_floor(row: ForwardError, _limits: Limits, floor_u: float) -> ForwardError | None:
    return replace(row, rl2_reference=0.0, rl2_candidate=floor_u * row.u) if row.truth_norm else None


def _too_coarse(row: ForwardError, limits: Limits, limit: float) -> ForwardError | None:
    """Make the trusted run so poor that the limit at this point is the one given."""
    trusted = limit / limits.ratio
    while limits.ratio * trusted < limit:
        trusted = math.nextafter(trusted, math.inf)
    return replace(row, rl2_reference=trusted) if row.truth_norm else None


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


def _moved(code: str, change: Callable[[ForwardError, Any, Any], ForwardError | None]) -> RowsFault[ForwardError]:
    return RowsFault(need="points", row=ForwardError, ways=(Way("beyond", code, change),))


def _few(code: str, column: str) -> RowFault:
    return RowFault(code=code, need="points", column=column)


def _demand(text: str, least: int, most: int, fault: object) -> Doc:
    return Doc(text, ge=least, le=most, tight="up", must="at least", fault=fault, comes_to="BLOCKED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a candidate may lie from the truth, and how much must have been looked at."""

    ratio: Annotated[
        float,
        Doc("times the trusted run's error at the point", gt=1, le=10, tight="down",
            must="at most", fault=_moved("diverged", _beyond_ratio)),
    ] = 3.0  # fmt: skip
    floor_u: Annotated[
        float,
        Doc("the least limit, in units of the dtype's roundoff", unit="u", gt=0, le=10, tight="down",
            must="at most", fault=_moved("diverged", _beyond_floor)),
    ] = 1.25  # fmt: skip
    max_limit: Annotated[
        float,
        Doc("a limit above this could not tell a broken point; it is BLOCKED", gt=0, le=0.5, tight="down",
            must="at most", fault=_moved("too-coarse", _too_coarse), comes_to="BLOCKED"),
    ] = 0.5  # fmt: skip
    required: Annotated[
        tuple[Annotated[str, Doc(pattern=POINT)], ...], Doc("capture points that must be there, by exact id")
    ] = ()
    dtype: Annotated[
        str, Doc("what the candidate must compute in", choices=("", "bfloat16", "float16", "float32"))
    ] = ""  # fmt: skip
    device: Annotated[str, Doc("where the candidate must compute", choices=("", "cpu", "cuda"))] = ""
    min_sequences: Annotated[int, _demand("different sequences", 2, 10**6, _few("one-token", "sequences"))] = 2
    min_tokens: Annotated[int, _demand("tokens in a sequence", 2, 10**7, _few("one-token", "tokens"))] = 2
    min_points: Annotated[int, _demand("points compared", 1, 10**6, Silence())] = 1
    min_elements: Annotated[
        int, _demand("finite elements compared at a point", 1, 10**12, _few("too-few-elements", "elements"))
    ] = 1


# --- One point --------------------------------------------------------------------------------------------------------


def allowed(row: ForwardError, limits: Limits) -> float:
    """Return the largest relative error that a point may have: max(ratio × the trusted run's, floor_u × u)."""
    return max(limits.ratio * _or_nan(row.rl2_reference), limits.floor_u * row.u)


def detectable(row: ForwardError, limits: Limits) -> float:
    """Return the least relative error, independent of rounding, that would be noticed: √(limit² − trusted²)."""
    limit, trusted = allowed(row, limits), _or_nan(row.rl2_reference)
    return math.sqrt(max(limit - trusted, 0.0) * (limit + trusted))


def _share(row: ForwardError, limits: Limits) -> float:
    return _or_nan(row.rl2_candidate) / allowed(row, limits)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _known(error: float | None) -> bool:
    return error is not None and math.isfinite(error) and error >= 0


def _unfit(row: ForwardError, limits: Limits) -> str:
    """Return why this run can show nothing, whatever its errors are."""
    if row.tokens < limits.min_tokens or row.sequences < limits.min_sequences:
        return "one-token"
    if row.distinct_tokens < 2:  # one token, repeated, is blind to where tokens stand
        return "one-token"
    if not row.audited_ops or row.lower_ops or row.rounded_constants:
        return "reference-not-float64"
    if limits.dtype and row.dtype != limits.dtype:
        return "other-dtype"
    return "other-device" if limits.device and row.device not in ("", limits.device) else ""


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
    if not _known(row.rl2_candidate):
        return "nonfinite"
    if not _known(row.rl2_reference):
        return ""  # without a trusted run there is no limit: `_unclear` says so
    return "" if _or_nan(row.rl2_candidate) <= allowed(row, limits) else "diverged"


def _unclear(row: ForwardError, limits: Limits) -> str:
    """Return why a point that broke nothing still shows nothing."""
    if row.nonfinite_reference:
        return "reference-nonfinite"
    if row.elements < limits.min_elements:
        return "too-few-elements"
    if not row.truth_norm:  # a truth of zeros agrees with every dead candidate
        return ""
    if not _known(row.rl2_reference):
        return "no-trusted-run"
    return "too-coarse" if allowed(row, limits) > limits.max_limit else ""


# --- All points -------------------------------------------------------------------------------------------------------


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return FAIL where an error is more than the trusted run's precision explains, led by the first point in order."""
    rows = sorted(rows_of(evidence, "points", ForwardError), key=lambda row: row.order)
    for row in rows:
        if code := _unfit(row, limits):
            asked: Fields = {"asked_dtype": limits.dtype, "asked_device": limits.device, "device": row.device}
            least: Fields = {"min_sequences": limits.min_sequences, "min_tokens": limits.min_tokens}
            return blocked(code, {**_setting(rows), **asked, **least}, offences=(Offence(place=row.point, code=code),))
    if not rows:
        return blocked("nothing-compared", {"compared": 0, "points": 0, "min_points": limits.min_points})
    offences = [_offence(row, code, limits) for row in rows if (code := _wrong(row, limits))]
    absent = [point for point in limits.required if point not in {row.point for row in rows}]
    offences += [Offence(place=point, code="missing-required") for point in absent]
    looked = [*(row.point for row in rows), *absent]
    if offences:
        return _over(rows, offences, looked, limits)
    for row in rows:
        if code := _unclear(row, limits):
            return blocked(code, _setting(rows), offences=(_offence(row, code, limits),))
    telling = [row for row in rows if row.truth_norm]
    if len(telling) < limits.min_points:
        figures = {"compared": len(telling), "points": len(rows), "min_points": limits.min_points}
        return blocked("nothing-compared", figures)
    return _within(rows, telling, looked, limits)


def _over(rows: Sequence[ForwardError], offences: Sequence[Offence], looked: Sequence[str], limits: Limits) -> Verdict:
    first = offences[0]
    diverged = sum(offence.code == "diverged" for offence in offences)
    more: Fields = {"first": first.place, "over": diverged, "points": len(rows)}
    return failed(
        offences,
        looked=looked,
        measured=first.figures.get("rl2_candidate"),
        limit=first.figures.get("limit"),
        enough=first.figures.get("limit"),
        unit="relative L2",
        figures={**_setting(rows), **more, "ratio": limits.ratio, "floor_u": limits.floor_u},
    )


def _within(
    rows: Sequence[ForwardError], telling: Sequence[ForwardError], looked: Sequence[str], limits: Limits
) -> Verdict:
    worst = max(telling, key=lambda row: _share(row, limits))
    coarsest = max(telling, key=lambda row: detectable(row, limits))
    figures: Fields = {
        "worst": worst.point,
        "budget_used": _share(worst, limits),
        "trusted": worst.rl2_reference,
        "detectable": detectable(coarsest, limits),
        "coarsest": coarsest.point,
    }
    return passed(
        looked=looked,
        measured=worst.rl2_candidate,
        limit=allowed(worst, limits),
        unit="relative L2",
        figures={**_setting(rows), **figures},
    )


OF_A_POINT = (
    "order", "reference_shape", "candidate_shape", "rl2_candidate", "rl2_reference", "candidate_error", "elements",
    "nonfinite_candidate", "nonfinite_reference", "dtype",
)  # fmt: skip
OF_THE_RUN = (
    "dtype", "device", "sequences", "tokens", "distinct_tokens", "audited_ops", "lower_ops", "rounded_constants",
    "inputs_digest", "weights",
)  # fmt: skip


def _offence(row: ForwardError, code: str, limits: Limits) -> Offence:
    figures: dict[str, Any] = {key: value for key, value in plain(row).items() if key in OF_A_POINT}
    if _known(row.rl2_candidate) and _known(row.rl2_reference):
        figures |= {"limit": allowed(row, limits), "detectable": detectable(row, limits)}
        figures |= {"budget_used": _share(row, limits)}
    return Offence(place=row.point, code=code, figures=figures)


def _setting(rows: Sequence[ForwardError]) -> Fields:
    """Return on what the verdict stands: the same in every row, but for the elements."""
    setting = {key: value for key, value in plain(rows[0]).items() if key in OF_THE_RUN}
    firsts = {key: getattr(rows[0], key) or "none" for key in ("first_lower_op", "first_rounded_constant")}
    return {**setting, **firsts, "elements": sum(row.elements for row in rows)}


# --- How what no limit bounds is broken -------------------------------------------------------------------------------


def _breaks(name: str, code: str, *, why: str = "no point", telling: bool = False, **changes: Any) -> Falsifier[Limits]:
    """Return the falsifier that puts these figures into rows, with `telling` only where the truth is not all zeros."""
    return in_rows(
        name, code, "points", ForwardError,
        lambda row, _: replace(row, **changes) if row.truth_norm or not telling else None,
        why=why, outcome=CODES[code],
    )  # fmt: skip


def _other(name: str, key: str, other: str) -> Falsifier[Limits]:
    """Return the falsifier that computes in, or on, another than the contract names."""
    changes: dict[str, Any] = {key: other}
    return in_rows(
        name, f"other-{key}", "points", ForwardError,
        lambda row, limits: replace(row, **changes) if getattr(limits, key) else None,
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
        changes: dict[str, Any] = {column: value}
        yield _breaks(f"an error of the {who} that {what}", code, telling=True, why="all points hold zeros", **changes)


CODES = {
    **dict.fromkeys(
        ("diverged", "missing-candidate", "missing-reference", "missing-required", "shape", "nonfinite", "zero-truth"),
        Outcome.FAIL,
    ),
    **dict.fromkeys(
        ("one-token", "reference-not-float64", "other-dtype", "other-device", "no-trusted-run", "reference-nonfinite",
         "too-few-elements", "too-coarse", "nothing-compared"),
        Outcome.BLOCKED,
    ),
}  # fmt: skip
NO_SIGNAL: dict[str, Any] = {"truth_norm": 0.0, "rl2_candidate": None, "rl2_reference": None}

KIND = Kind(
    name="forward-parity",
    version=2,
    roles={"reference": SubjectKind.MODEL, "candidate": SubjectKind.MODEL},
    needs={"points": Need("forward_errors", of=("reference", "candidate"))},
    limits=Limits,
    codes=CODES,
    judge=judge,
    falsifiers=(
        *_no_error("rl2_candidate", "nonfinite", "candidate"),
        _breaks("one value not finite", "nonfinite", nonfinite_candidate=1),
        _breaks("a layout turned over", "shape", candidate_shape=(2, 3), reference_shape=(3, 2)),
        _breaks("a layout turned over, the other way", "shape", candidate_shape=(3, 2), reference_shape=(2, 3)),
        _breaks("not captured in the candidate", "missing-candidate", candidate_shape=None),
        _breaks("not captured in the reference", "missing-reference", reference_shape=None),
        _breaks("no zero where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=5e-324),
        _breaks("no number where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=math.nan),
        _misnamed("a required point under a longer name", "{}.x"),
        _misnamed("a required point under a longer name, at its end", "x.{}"),
        _breaks("one token, repeated", "one-token", distinct_tokens=1),
        _breaks("one operation below float64", "reference-not-float64", lower_ops=1),
        _breaks("no operation audited", "reference-not-float64", audited_ops=0),
        _breaks("a rounded constant", "reference-not-float64", rounded_constants=1),
        _other("another dtype", "dtype", "another"),
        _other("a dtype of no name", "dtype", "unknown"),
        _other("another device", "device", "another"),
        *_no_error("rl2_reference", "no-trusted-run", "trusted run"),
        _breaks("one value of the reference not finite", "reference-nonfinite", nonfinite_reference=1),
    ),
)
