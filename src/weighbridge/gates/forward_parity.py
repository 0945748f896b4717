"""forward-parity: do candidate and reference agree at every capture point, within what the precision explains?

At a point the candidate's relative L2 error against float64 truth may be a small multiple of what a trusted run in the
same dtype makes there, with a floor in units of the dtype's roundoff; never an absolute tolerance, never cosine. The
errors are end to end: a point after the first one over its limit may only have inherited its error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.gates.gate_kind import (
    Damage,
    Evidence,
    Falsifier,
    Kind,
    Need,
    NotApplicable,
    blocked,
    each_row,
    failed,
    passed,
    rows_of,
    with_value,
)
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, Rows, SubjectKind, Verdict

POINT = r"[A-Za-z][A-Za-z0-9_.]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How far a candidate may lie from the truth, and how much must have been looked at."""

    ratio: Annotated[float, Doc("times the trusted run's error at the point", gt=1, le=10, tight="down")] = 3.0
    floor_u: Annotated[
        float, Doc("the least limit, in units of the dtype's roundoff", unit="u", gt=0, le=10, tight="down")
    ] = 1.25
    max_limit: Annotated[
        float, Doc("a limit above this could not tell a broken point; it is BLOCKED", gt=0, le=0.5, tight="down")
    ] = 0.5
    required: Annotated[
        tuple[Annotated[str, Doc(pattern=POINT)], ...], Doc("capture points that must be there, by exact id")
    ] = ()
    dtype: Annotated[str, Doc("what the candidate must compute in", choices=("", "bfloat16", "float16", "float32"))] = (
        ""
    )
    device: Annotated[str, Doc("where the candidate must compute", choices=("", "cpu", "cuda"))] = ""
    min_sequences: Annotated[int, Doc("different sequences", ge=2, le=1_000_000, tight="up")] = 2
    min_tokens: Annotated[int, Doc("tokens in a sequence", ge=2, le=10_000_000, tight="up")] = 2
    min_points: Annotated[int, Doc("points compared", ge=1, le=1_000_000, tight="up")] = 1
    min_elements: Annotated[int, Doc("finite elements compared at a point", ge=1, le=10**12, tight="up")] = 1


def allowed(row: Fields, limits: Limits) -> float:
    """Give the largest relative error that a point may have: max(ratio × the trusted run's, floor_u × u)."""
    return max(limits.ratio * _number(row["rl2_reference"]), limits.floor_u * _number(row["u"]))


def detectable(row: Fields, limits: Limits) -> float:
    """Give the least relative error, independent of rounding, that would be noticed: √(limit² − trusted²)."""
    limit, trusted = allowed(row, limits), _number(row["rl2_reference"])
    return math.sqrt(max(limit - trusted, 0.0) * (limit + trusted))


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every point's error against what the trusted run's precision explains; name the first over its limit."""
    rows = sorted(rows_of(evidence, "points"), key=lambda row: _number(row["order"]))
    unfit = next((Offence(place=_place(row), code=code) for row in rows if (code := _unfit(row, limits))), None)
    if unfit is not None:
        return blocked(unfit.code, {**_setting(rows), **_asked(limits)}, offences=(unfit,))
    if not rows:
        return blocked("nothing-compared", {"compared": 0, "points": 0, "min_points": limits.min_points})
    looked = [*map(_place, rows), *(_absent(rows, limits))]
    offences = [*(o for row in rows if (o := _offence(row, limits))), *_never(rows, limits)]
    if offences:
        return _over(rows, offences, looked, limits)
    return _unclear(rows, limits) or _within(rows, looked, limits)


def _unfit(row: Fields, limits: Limits) -> str:
    """Tell why this run can show nothing, whatever its errors are."""
    if _number(row["tokens"]) < limits.min_tokens or _number(row["sequences"]) < limits.min_sequences:
        return "one-token"
    if _number(row["distinct_tokens"]) < 2:  # one token, repeated, is blind to where tokens stand
        return "one-token"
    if not row["audited_ops"] or row["lower_ops"] or row["rounded_constants"]:
        return "reference-not-float64"
    if limits.dtype and row["dtype"] != limits.dtype:
        return "other-dtype"
    return "other-device" if limits.device and row["device"] not in ("", limits.device) else ""


def _offence(row: Fields, limits: Limits) -> Offence | None:
    code = _code(row, limits)
    return Offence(place=_place(row), code=code, figures=_figures(row, limits)) if code else None


def _code(row: Fields, limits: Limits) -> str:
    if row["reference_shape"] is None:
        return "missing-reference"
    if row["candidate_shape"] is None:
        return "missing-candidate"
    if row["reference_shape"] != row["candidate_shape"]:
        return "shape"
    if row["nonfinite_candidate"] != 0:
        return "nonfinite"
    if row["truth_norm"] == 0:
        return "" if row["candidate_error"] == 0 else "zero-truth"
    if not _is_error(row["rl2_candidate"]):
        return "nonfinite"
    if not _is_error(row["rl2_reference"]):
        return ""  # without a trusted run there is no limit: `_unclear` says so
    return "" if _number(row["rl2_candidate"]) <= allowed(row, limits) else "diverged"


def _is_error(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value >= 0


def _unclear(rows: list[Fields], limits: Limits) -> Verdict | None:
    """Tell why points that broke nothing still show nothing."""
    for row in rows:
        code = _doubt(row, limits)
        if code:
            offence = Offence(place=_place(row), code=code, figures=_figures(row, limits))
            return blocked(code, _setting(rows), offences=(offence,))
    compared = sum(_tells(row) for row in rows)
    if compared < limits.min_points:
        figures = {"compared": compared, "points": len(rows), "min_points": limits.min_points}
        return blocked("nothing-compared", figures)
    return None


def _doubt(row: Fields, limits: Limits) -> str:
    if row["nonfinite_reference"] != 0:
        return "reference-nonfinite"
    if _number(row["elements"]) < limits.min_elements:
        return "too-few-elements"
    if not _tells(row):
        return ""
    if not _is_error(row["rl2_reference"]):
        return "no-trusted-run"
    return "too-coarse" if allowed(row, limits) > limits.max_limit else ""


def _tells(row: Fields) -> bool:
    """Tell whether a point carries any signal: a truth of zeros agrees with every dead candidate."""
    return bool(row["truth_norm"])


def _absent(rows: list[Fields], limits: Limits) -> list[str]:
    present = set(map(_place, rows))
    return [point for point in limits.required if point not in present]


def _never(rows: list[Fields], limits: Limits) -> list[Offence]:
    return [Offence(place=point, code="missing-required") for point in _absent(rows, limits)]


def _over(rows: list[Fields], offences: list[Offence], looked: list[str], limits: Limits) -> Verdict:
    """Build the FAIL; its numbers are those of the first point in order."""
    first = offences[0]
    numbers = {key: first.figures.get(name) for key, name in (("measured", "rl2_candidate"), ("limit", "limit"))}
    more = {"first": first.place, "over": sum(o.code == "diverged" for o in offences), "points": len(rows)}
    return failed(
        offences,
        looked=looked,
        unit="relative L2",
        enough=first.figures.get("limit"),
        figures={**_setting(rows), **more, "ratio": limits.ratio, "floor_u": limits.floor_u},
        **numbers,
    )


def _within(rows: list[Fields], looked: list[str], limits: Limits) -> Verdict:
    telling = [row for row in rows if _tells(row)]
    worst = max(telling, key=lambda row: _share(row, limits))
    coarsest = max(telling, key=lambda row: detectable(row, limits))
    return passed(
        looked=looked,
        measured=_number(worst["rl2_candidate"]),
        limit=allowed(worst, limits),
        unit="relative L2",
        figures={
            **_setting(rows),
            "worst": _place(worst),
            "budget_used": _share(worst, limits),
            "trusted": _number(worst["rl2_reference"]),
            "detectable": detectable(coarsest, limits),
            "coarsest": _place(coarsest),
        },
    )


def _share(row: Fields, limits: Limits) -> float:
    return _number(row["rl2_candidate"]) / allowed(row, limits)


def _figures(row: Fields, limits: Limits) -> Fields:
    kept = ("order", "reference_shape", "candidate_shape", "rl2_candidate", "rl2_reference", "candidate_error")
    more = ("elements", "nonfinite_candidate", "nonfinite_reference", "dtype")
    figures = {key: row[key] for key in (*kept, *more)}
    if not (_is_error(row["rl2_candidate"]) and _is_error(row["rl2_reference"])):
        return figures
    limits_here = {"limit": allowed(row, limits), "detectable": detectable(row, limits)}
    return {**figures, **limits_here, "budget_used": _share(row, limits)}


def _setting(rows: list[Fields]) -> Fields:
    """Say on what the verdict stands: the same in every row."""
    kept = ("dtype", "device", "sequences", "tokens", "distinct_tokens", "audited_ops", "lower_ops")
    setting = {key: rows[0][key] for key in (*kept, "rounded_constants", "inputs_digest", "weights")}
    firsts = {key: rows[0][key] or "none" for key in ("first_lower_op", "first_rounded_constant")}
    return {**setting, **firsts, "elements": sum(int(_number(row["elements"])) for row in rows)}


def _asked(limits: Limits) -> Fields:
    return {
        "asked_dtype": limits.dtype,
        "asked_device": limits.device,
        "min_sequences": limits.min_sequences,
        "min_tokens": limits.min_tokens,
    }


def _place(row: Fields) -> str:
    return str(row["point"])


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan


# --- Falsifiers: they reckon their own limits, so that a mistake in the judge cannot hide in theirs -------------------


def _beyond(value: float) -> float:
    return math.nextafter(value, math.inf)


def _lays_over(row: Fields, limits: Limits, trusted: float) -> Fields | None:
    """Put the candidate at the next number above the limit that a trusted error makes."""
    if not row["truth_norm"]:
        return None
    limit = max(limits.ratio * trusted, limits.floor_u * _number(row["u"]))
    return {**row, "rl2_reference": trusted, "rl2_candidate": _beyond(limit)}


def _diverge(row: Fields, limits: Limits) -> Fields | None:
    return _lays_over(row, limits, _number(row["rl2_reference"])) if row["truth_norm"] else None


def _beyond_ratio(row: Fields, limits: Limits) -> Fields | None:
    """Lie just beyond the ratio where the trusted run's error, not the floor, makes the limit."""
    return _lays_over(row, limits, 2 * limits.floor_u * _number(row["u"]))


def _beyond_floor(row: Fields, limits: Limits) -> Fields | None:
    return _lays_over(row, limits, 0.0)


def _coarsen(row: Fields, limits: Limits) -> Fields | None:
    """Make the trusted run so poor that the limit is the next number above `max_limit`."""
    if not row["truth_norm"]:
        return None
    trusted = limits.max_limit / limits.ratio
    while limits.ratio * trusted <= limits.max_limit:
        trusted = _beyond(trusted)
    return {**row, "rl2_reference": trusted}


def _telling(change: Fields) -> Callable[[Fields, Limits], Fields | None]:
    return lambda row, _limits: {**row, **change} if row["truth_norm"] else None


def _changed(change: Fields) -> Callable[[Fields, Limits], Fields]:
    return lambda row, _limits: {**row, **change}


def _silence(evidence: Evidence, limits: Limits, _places: tuple[str, ...]) -> Damage:
    """Leave one telling point fewer than needed; the others agree on zeros."""
    kept, rows = 0, []
    for row in rows_of(evidence, "points"):
        keep = bool(row["truth_norm"]) and kept < limits.min_points - 1
        kept += keep
        rows.append(row if keep else {**row, "truth_norm": 0.0, "candidate_error": 0.0})
    return Damage(with_value(evidence, "points", Rows("point", tuple(rows))), frozenset(map(_place, rows)))


def _drop_required(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Damage | NotApplicable:
    rows = rows_of(evidence, "points")
    named = {place for place in places if place in limits.required}
    named -= {_place(rows[0])} if len(named) == len(rows) else set()
    if not named:
        return NotApplicable("no point is required, or it is the only one")
    kept = tuple(row for row in rows if _place(row) not in named)
    return Damage(with_value(evidence, "points", Rows("point", kept)), frozenset(named))


def _fails(name: str, code: str, change: Callable[[Fields, Limits], Fields | None]) -> Falsifier[Limits]:
    return each_row(name, code, "points", change, why="every point holds zeros")


def _blocks(name: str, code: str, change: Callable[[Fields, Limits], Fields | None], why: str = "") -> Falsifier[Any]:
    return each_row(name, code, "points", change, why=why or "no point to damage", outcome=Outcome.BLOCKED)


def _other_than(key: str, other: str) -> Callable[[Fields, Limits], Fields | None]:
    return lambda row, limits: {**row, key: other} if getattr(limits, key) else None


CODES: Mapping[str, Outcome] = {
    "diverged": Outcome.FAIL,
    "missing-candidate": Outcome.FAIL,
    "missing-reference": Outcome.FAIL,
    "missing-required": Outcome.FAIL,
    "shape": Outcome.FAIL,
    "nonfinite": Outcome.FAIL,
    "zero-truth": Outcome.FAIL,
    "one-token": Outcome.BLOCKED,
    "reference-not-float64": Outcome.BLOCKED,
    "other-dtype": Outcome.BLOCKED,
    "other-device": Outcome.BLOCKED,
    "no-trusted-run": Outcome.BLOCKED,
    "reference-nonfinite": Outcome.BLOCKED,
    "too-few-elements": Outcome.BLOCKED,
    "too-coarse": Outcome.BLOCKED,
    "nothing-compared": Outcome.BLOCKED,
}

NO_SIGNAL: Fields = {"truth_norm": 0.0, "rl2_candidate": None, "rl2_reference": None}

KIND = Kind(
    name="forward-parity",
    version=1,
    roles={"reference": SubjectKind.MODEL, "candidate": SubjectKind.MODEL},
    needs={"points": Need("forward_errors", of=("reference", "candidate"))},
    limits=Limits,
    codes=CODES,
    judge=judge,
    falsifiers=(
        _fails("just over its limit, as with a bias dropped", "diverged", _diverge),
        _fails("just over the ratio", "diverged", _beyond_ratio),
        _fails("just over the floor", "diverged", _beyond_floor),
        _fails("an error that is not a number", "nonfinite", _telling({"rl2_candidate": math.nan})),
        _fails("an error without bound", "nonfinite", _telling({"rl2_candidate": math.inf})),
        _fails("an error below zero", "nonfinite", _telling({"rl2_candidate": -5e-324})),
        _fails("an error never computed", "nonfinite", _telling({"rl2_candidate": None})),
        _fails("one value not finite", "nonfinite", _changed({"nonfinite_candidate": 1})),
        _fails("a channel more", "shape", lambda row, _: {**row, "candidate_shape": [row["candidate_shape"], 1]}),
        _fails("not captured in the candidate", "missing-candidate", _changed({"candidate_shape": None})),
        _fails("not captured in the reference", "missing-reference", _changed({"reference_shape": None})),
        _fails("no zero where the truth is zero", "zero-truth", _changed({**NO_SIGNAL, "candidate_error": 5e-324})),
        _fails("no number where the truth is zero", "zero-truth", _changed({**NO_SIGNAL, "candidate_error": math.nan})),
        Falsifier("a required point in neither", "missing-required", _drop_required),
        _blocks("a token too few", "one-token", lambda row, limits: {**row, "tokens": limits.min_tokens - 1}),
        _blocks("a sequence too few", "one-token", lambda row, limits: {**row, "sequences": limits.min_sequences - 1}),
        _blocks("one token, repeated", "one-token", _changed({"distinct_tokens": 1})),
        _blocks("one operation below float64", "reference-not-float64", _changed({"lower_ops": 1})),
        _blocks("no operation audited", "reference-not-float64", _changed({"audited_ops": 0})),
        _blocks("a rounded constant", "reference-not-float64", _changed({"rounded_constants": 1})),
        _blocks("another dtype", "other-dtype", _other_than("dtype", "another"), "the contract names no dtype"),
        _blocks("a dtype of no name", "other-dtype", _other_than("dtype", "unknown"), "the contract names no dtype"),
        _blocks("another device", "other-device", _other_than("device", "another"), "the contract names no device"),
        _blocks("no trusted run", "no-trusted-run", _telling({"rl2_reference": None})),
        _blocks("a trusted run that is not a number", "no-trusted-run", _telling({"rl2_reference": math.nan})),
        _blocks("a trusted run without bound", "no-trusted-run", _telling({"rl2_reference": math.inf})),
        _blocks("a trusted run below zero", "no-trusted-run", _telling({"rl2_reference": -5e-324})),
        _blocks("one value of the reference not finite", "reference-nonfinite", _changed({"nonfinite_reference": 1})),
        _blocks(
            "an element too few",
            "too-few-elements",
            lambda row, limits: {**row, "elements": limits.min_elements - 1},
        ),
        _blocks("a limit too coarse to tell", "too-coarse", _coarsen),
        Falsifier("a telling point too few", "nothing-compared", _silence, Outcome.BLOCKED),
    ),
)
