"""forward-parity: do candidate and reference compute the same at every capture point, within what precision explains?

The error at a point is local: of what float64 makes of the values captured before it. Errors end to end never fail
alone. A point over its limit has DIVERGED, unless what was made from it does not fit it either: then the capture is of
another state than the value that was used.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, TypeAlias

from weighbridge.clauses.clause import listed, or_nan
from weighbridge.clauses.error_words import likely, place_of, related
from weighbridge.clauses.kind import Evidence, Kind, Need, blocked, failed, passed, rows_of
from weighbridge.core import Fields, Offence, SubjectKind, Verdict, plain
from weighbridge.gates.families import local_errors
from weighbridge.gates.families.local_errors import Limits, allowed, detectable, known, lacks, share_of
from weighbridge.quantities.forward import ForwardError

END_TO_END = 3.0  # times the trusted run's error: where two errors end to end differ
UNLIKE, UNLIKE_ROW = 0.6, 6.0  # of its norm, and times the error of all rows: a matrix farther off is no rounding
ROUNDED = 0.01  # of its norm: a row this near is one, whatever the others are
MOVED, AS_SAID = 32, 0.5  # u: what no float32 kernel makes; of the trusted run's error, which what is said makes
SAME = "all elements have the trusted run's bits, so both sides ran the same kernels, which shows nothing of others"
FITS_BETTER = 0.5  # of the error left: then the value that was captured is not the one that was used


def _unfit(row: ForwardError, limits: Limits) -> str:
    run = row.run
    few = run.tokens < limits.min_tokens or run.sequences < limits.min_sequences
    if few or run.distinct_tokens < 2:  # one token, repeated, is blind to where tokens stand
        return "one-token"
    if not run.audited_ops or run.lower_ops or run.rounded_constants:
        return "reference-not-float64"
    if limits.dtype and run.dtype != limits.dtype:
        return "other-dtype"
    if not run.weights.on_both_sides and not limits.other_weights:
        return "weights-not-compared"
    return "other-device" if limits.device and run.device != limits.device else ""


def _wrong(row: ForwardError, limits: Limits) -> str:
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
    if not known(row.candidate):
        return "nonfinite"
    if not known(row.trusted):
        return ""  # without a trusted run there is no limit: `_unclear` says so
    return "" if share_of(row, limits)[0] <= 1 else "diverged"


def _unclear(row: ForwardError, limits: Limits) -> str:
    if row.nonfinite_reference:
        return "reference-nonfinite"
    if row.elements < limits.min_elements:
        return "too-few-elements"
    if not row.truth_norm:  # a truth of zeros agrees with every dead candidate
        return ""
    if not known(row.trusted):
        return "no-trusted-run"
    return "too-coarse" if or_nan(allowed(row, limits).all) > limits.max_limit else ""


def _beyond_end_to_end(row: ForwardError) -> bool:
    return not or_nan(row.candidate_end_to_end) <= END_TO_END * max(or_nan(row.trusted_end_to_end), row.run.u)


# --- Points over their limit: a bug there, or a capture of another state ----------------------------------------------


Sorted: TypeAlias = tuple[list[str], list[str], list[str]]  # points: with a bug, of another state, of another basis


def _over(rows: Sequence[ForwardError], limits: Limits) -> dict[str, str]:
    """Return what is wrong by point; a value that is not finite counts where it first arises."""
    over: dict[str, str] = {}
    spoilt: set[str] = set()
    for row in rows:
        code = _wrong(row, limits)
        inherited = code == "nonfinite" and bool(spoilt.intersection(row.made_from))
        if code == "nonfinite":
            spoilt.add(row.point)
        if code and not inherited:
            over[row.point] = code
    return over


def _sorted(rows: Sequence[ForwardError], over: Mapping[str, str], limits: Limits) -> Sorted:
    """Return bugs apart from captures of another state, by what was made from each point.

    After a bug, what is made next fits the value it was given. Where it fits what should have been given much better,
    the value that was captured is not the one that was used.
    """
    diverged = [row.point for row in rows if over.get(row.point) == "diverged"]
    given: set[str] = set()
    explained: set[str] = set()
    for row in rows:
        makers = set(row.made_from).intersection(diverged)
        if row.point in diverged and makers and known(row.candidate_otherwise):
            otherwise = replace(row, candidate=row.candidate_otherwise)
            if share_of(otherwise, limits)[0] < FITS_BETTER * share_of(row, limits)[0]:
                explained.add(row.point)
                given |= makers
    bugs = [point for point in diverged if point not in given | explained]
    mismatched = [point for point in diverged if point in given]
    if bugs and not mismatched and _another_basis(rows, over):
        return [], [], bugs
    return bugs, mismatched, []


def _another_basis(rows: Sequence[ForwardError], over: Mapping[str, str]) -> bool:
    """Return whether all that follows those over their limit is in order end to end, which only float32 can show."""
    first = next(at for at, row in enumerate(rows) if row.point in over)
    after = [row for row in rows[first:] if row.point not in over]
    used = {point for row in after for point in row.made_from}
    exact = rows[0].run.dtype == "float32" and rows[0].run.products in {"", "float32"}
    if not exact or set(over.values()) != {"diverged"} or not used.intersection(over):
        return False
    shown = all(_beyond_end_to_end(row) for row in rows if row.point in over)
    return shown and not any(_beyond_end_to_end(row) for row in after)


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return FAIL where a step is not what the reference computes there, led by the first such point in order."""
    everything = sorted(rows_of(evidence, "points", ForwardError), key=lambda row: row.order)
    rows = [row for row in everything if listed(row.point, limits.points)]
    unseen = _unseen(rows, limits)
    rows = [row for row in rows if row.point not in unseen]
    telling = [row for row in rows if row.truth_norm]
    counts: Fields = {"compared": len(telling), "points": len(rows), "min_points": limits.min_points}
    idle = [glob for glob in limits.points if not any(fnmatchcase(row.point, glob) for row in rows)]
    if not rows or idle:
        return blocked("names-nothing" if rows else "nothing-compared", {**counts, "globs": ", ".join(idle)})
    for row in rows:
        if code := _unfit(row, limits):
            return _doubted(code, [row], rows, limits)
    over = _over(rows, limits)
    diverged, mismatched, other_basis = _sorted(rows, over, limits)
    offences = _offences(rows, over, diverged, limits)
    unsaid = [row for row in rows if row.run.products_like and row.point == row.run.products_at]
    if unsaid and {one.code for one in offences} == {"diverged"} and unsaid[0].point in diverged:
        return _doubted("products-unsaid", unsaid, rows, limits)
    if offences:
        return _failed(rows, offences, limits)
    for code, points in (("capture-mismatch", mismatched), ("other-basis", other_basis)):
        if points:
            return _doubted(code, [row for row in rows if row.point in points], rows, limits)
    for row in rows:
        unreached = next((f"inputs-reach-no-{name}" for name in limits.reach if name not in row.run.reached), "")
        if code := unreached or _unclear(row, limits) or _not_as_said(row, rows, limits):
            return _doubted(code, [row], rows, limits)
    if len(telling) < limits.min_points:
        return blocked("nothing-compared", counts)
    moved = _not_rounded(telling)
    otherwise = moved and _doubted("products-otherwise", moved[:1], rows, limits)
    return otherwise or _within(rows, limits, unseen)


def _unseen(rows: Sequence[ForwardError], limits: Limits) -> list[str]:
    """Return the points of which a partial candidate has no value, before one that it has: that is made from them."""
    last = max((at for at, row in enumerate(rows) if not lacks(row)), default=0)
    return [row.point for row in rows[:last] if lacks(row) and row.point not in limits.required]


def _not_as_said(row: ForwardError, rows: Sequence[ForwardError], limits: Limits) -> str:
    """Return why a step that is in order still is not what the candidate is said to be: noise, or another dtype."""
    first = next((one.point for one in rows if one.noise), "")
    inherited = 0.0 if row.point == first else END_TO_END * (row.trusted_end_to_end or 0.0)
    if row.noise and not row.noise <= max(limits.noise_ratio * (row.trusted.all or 0.0), inherited):
        return "not-repeatable"
    due = [one for one in rows if one.trusted_held_as == one.run.dtype]
    return "held-otherwise" if row in due and all(one.held_as != one.run.dtype for one in due) else ""


def _not_rounded(rows: Sequence[ForwardError]) -> list[ForwardError]:
    """Return the points that rounded factors should move, where none of them is moved by half of that."""
    rounded = [row for row in rows if row.run.products not in {"", "float32"} and row.run.dtype == "float32"]
    moved = [row for row in rounded if or_nan(row.trusted.all) > MOVED * row.run.u]
    return [] if any(not or_nan(row.candidate.all) < AS_SAID * or_nan(row.trusted.all) for row in moved) else moved


def _offences(
    rows: Sequence[ForwardError], over: Mapping[str, str], diverged: Sequence[str], limits: Limits
) -> list[Offence]:
    weights = dict.fromkeys(name for row in rows for name in row.run.weights.differing)
    differing = [name for name in weights if not listed(name, limits.other_weights)]
    offences = [Offence(place=name, code="weights-differ", figures={"differing": len(differing)}) for name in differing]
    taken = {one.name: one for row in rows for one in row.run.weights.taken}
    for name, one in taken.items():
        if not (one.all <= UNLIKE and one.row <= max(UNLIKE_ROW * one.all, ROUNDED)):
            figures = {"taken_all": one.all, "taken_row": one.row}
            offences.append(Offence(place=name, code="weights-unlike", figures=figures))
    for row in rows:
        code = over.get(row.point, "")
        if code and (code != "diverged" or row.point in diverged):
            offences.append(_offence(row, code, limits))
    named = {row.point for row in rows}
    offences += [Offence(place=name, code="missing-required") for name in limits.required if name not in named]
    return offences


def _failed(rows: Sequence[ForwardError], offences: Sequence[Offence], limits: Limits) -> Verdict:
    places = {offence.place for offence in offences}
    at = next((n for n, row in enumerate(rows) if row.point in places), len(rows))
    lead = next((one for one in offences if "limit" in one.figures), offences[0])
    after = [row for row in rows[at:] if row.point not in places and row.candidate_end_to_end is not None]
    error, limit = lead.figures.get("error"), lead.figures.get("limit")
    more: Fields = {
        "first": rows[at].point if at < len(rows) else "none",
        "last_in_order": rows[at - 1].point if at else "",
        "inherited": sum(map(_beyond_end_to_end, after)),
        "over": sum(row.point in places for row in rows),
        "points": len(rows),
    }
    looked = list(dict.fromkeys((*(row.point for row in rows), *(one.place for one in offences))))
    figures = {**_setting(rows[at % len(rows)], rows, limits), **more}
    return failed(
        offences, looked=looked, measured=error, limit=limit, enough=limit, unit="relative L2", figures=figures
    )


def _doubted(code: str, doubted: Sequence[ForwardError], rows: Sequence[ForwardError], limits: Limits) -> Verdict:
    offences = [_offence(row, code, limits) for row in doubted]
    return blocked(code, {**_setting(doubted[0], rows, limits), "doubted": len(doubted)}, offences=offences)


def _within(rows: Sequence[ForwardError], limits: Limits, unseen: Sequence[str]) -> Verdict:
    telling = [row for row in rows if row.truth_norm]
    worst = max(telling, key=lambda row: share_of(row, limits)[0])
    coarsest = max(telling, key=lambda row: detectable(row, limits))
    share, over = share_of(worst, limits)
    taken = rows[0].run.weights.taken
    shared, same = _equal_share(rows), all(row.equal_share == 1 for row in rows)
    figures: Fields = {
        "worst": worst.point,
        "worst_over": over,
        "budget_used": share,
        "trusted": getattr(worst.trusted, over),
        "detectable": detectable(coarsest, limits),
        "coarsest": coarsest.point,
        "taken": f"; the reference computes with {len(taken)} matrices of the candidate" if taken else "",
        "products": f", factors rounded to {rows[0].run.products}" if rows[0].run.products else "",
        "not_reached": list(rows[0].run.not_reached),
        "unreached": f"; not reached: {', '.join(rows[0].run.not_reached)}" if rows[0].run.not_reached else "",
        "unseen": f"; {len(unseen)} points have no value in the candidate: {unseen[0]}, …" if unseen else "",
        "kernels": "; bits equal: the same kernels" if same else "",
        "equality": SAME if same else f"{shared:.0%} of the elements have the trusted run's bits",
    }
    found, limit = (getattr(error, over) for error in (worst.candidate, allowed(worst, limits)))
    figures = {**_setting(worst, rows, limits), **figures}
    return passed(looked=[row.point for row in rows], measured=found, limit=limit, unit="relative L2", figures=figures)


def _equal_share(rows: Sequence[ForwardError]) -> float:
    elements = sum(one.elements for one in rows)
    equal = sum(one.equal_share * one.elements for one in rows if one.equal_share)
    return equal / elements if elements else 0.0


OF_A_POINT = (
    *("order", "reference_shape", "candidate_shape", "candidate", "trusted", "candidate_error", "elements"),
    *("made_from", "nonfinite_candidate", "nonfinite_reference", "worst_token", "worst_channel"),
    *("candidate_end_to_end", "held_as", "noise"),
)
OF_THE_RUN = (
    *("dtype", "device", "stack", "sequences", "tokens", "distinct_tokens", "audited_ops", "lower_ops"),
    *("rounded_constants", "inputs_digest", "repeated"),
)


def _offence(row: ForwardError, code: str, limits: Limits) -> Offence:
    figures: dict[str, Any] = {name: plain(getattr(row, name)) for name in OF_A_POINT}
    figures |= {"dtype": row.run.dtype, "trusted_error": row.trusted.all}
    if known(row.candidate) and known(row.trusted):
        share, over = share_of(row, limits)
        over = "all" if code == "too-coarse" else over
        where = {"token": f" in {row.worst_token}, the worst", "channel": f" in channel {row.worst_channel}, the worst"}
        figures |= {"error": getattr(row.candidate, over), "over": over, "where": where.get(over, "")}
        figures |= {"budget_used": share, **_limit(row, limits, over)}
        figures |= {"products": row.run.products or "nothing", "products_like": row.run.products_like}
        figures["products_left"] = row.run.products_left
        relation = related(row.relation, row.candidate.all or 0.0, or_nan(allowed(row, limits).all))
        figures |= {"detectable": detectable(row, limits), "extent": place_of(row), "relation": relation}
        figures["likely"] = likely(row, bool(relation))
    return Offence(place=row.point, code=code, figures=figures)


def _limit(row: ForwardError, limits: Limits, over: str) -> Fields:
    """Return the limit over all, a token or a channel, what it is made of, and in words which of it makes it."""
    whole = (limits.ratio, limits.rough_ratio, limits.floor_u)
    ratio, rough_ratio, floor = whole if over == "all" else (limits.tail_ratio,) * 2 + (limits.tail_floor_u,)
    errors = local_errors.of_rough(row), row.trusted, allowed(row, limits)
    rough, trusted, limit = (getattr(one, over) for one in errors)
    because = f"the least limit, {floor:g} roundings of {row.run.dtype}"
    if limit == ratio * trusted:
        because = f"{ratio:g} times what the reference itself makes in {row.run.dtype}"
    elif limit == rough_ratio * rough:
        because = f"{rough_ratio:g} times what the roughest kernels that are right make in {row.run.dtype}"
    made = {"ratio": ratio, "rough_ratio": rough_ratio, "floor_u": floor, "rough_error": rough}
    return {"limit": limit, "trusted_error": trusted, "because": because, **made}


def _setting(row: ForwardError, rows: Sequence[ForwardError], limits: Limits) -> Fields:
    """Return on what the verdict stands: the run, which is the same in every row, and what was asked of it."""
    run, outcome = row.run, row.run.outcome
    noise = max((one.noise or 0.0 for one in rows), default=0.0)
    apart = f"run twice, at most {noise:.2g} apart" if noise else "run twice with equal bits"
    kl = "no KL" if outcome.kl_mean is None else f"KL {outcome.kl_mean:.2g} nats ({outcome.kl_max or 0:.2g} at worst)"
    lead = "" if outcome.widest_flip is None else f", by {outcome.widest_flip:.2g} logits at most"
    flips = f"{outcome.point}: {kl}, another token is the likeliest in {outcome.flips} of {outcome.of} places{lead}"
    return {
        **{name: plain(getattr(run, name)) for name in OF_THE_RUN},
        "first_lower_op": run.first_lower_op or "none",
        "first_rounded_constant": run.first_rounded_constant or "none",
        "weights_compared": run.weights.on_both_sides,
        "weights_of": run.weights.of,
        "asked_dtype": limits.dtype,
        "asked_device": limits.device,
        "min_sequences": limits.min_sequences,
        "min_tokens": limits.min_tokens,
        "elements": sum(one.elements for one in rows),
        "equal_share": _equal_share(rows),
        "noise": noise,
        "repeats": apart if run.repeated else "run once",
        "outcome": flips if outcome.of else "no logits compared",
        **{name: getattr(outcome, name) for name in ("kl_mean", "kl_max", "flips", "widest_flip")},
    }


KIND = Kind(
    name="forward-parity", version=9, roles={"reference": SubjectKind.MODEL, "candidate": SubjectKind.MODEL},
    recordable=("candidate",), limits=Limits,
    needs={"points": Need("forward_errors", of=("reference", "candidate"), options=("weights",))},
    measure=local_errors.MEASURE, codes=local_errors.CODES, judge=judge, mutations=local_errors.MUTATIONS,
)  # fmt: skip
