"""forward_errors: how far a candidate's forward pass lies from float64 truth at each capture point, and how far a
trusted run in the candidate's own dtype does. It knows no limit.

Truth T is the reference computed in float64, R the reference in the candidate's dtype, C the candidate; all from
weights rounded to that dtype first, so that rounding them is nobody's error. rl2(X) = ‖X − T‖₂ / ‖T‖₂ over a point.
"""  # noqa: D205 -- the quantity's definition needs its two lines

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from weighbridge.canonical import dumps, sha256
from weighbridge.errors import SubjectError
from weighbridge.model import Fields, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.forward import ForwardError, Weights
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.forward_subject import Captured, ForwardSubject, ModelView, Tokens
from weighbridge.views.torch_forward import Float64Audit, float64_audit, rounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ROUNDOFF: Mapping[str, float] = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
NO_AUDIT = Float64Audit()


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Compare reference and candidate at every point that either names.

    Raises:
        SubjectError: where a factory or a forward pass raises, or a point is not `[sequences, tokens, channels]`.
    """
    reference, candidate = views
    sides = _sides(reference, candidate)
    if isinstance(sides, Unmeasured):
        return sides
    trusted_side, candidate_side, tokens = sides
    dtype = candidate_side.dtype
    truth, audit = _truth(reference, tokens, dtype)
    trusted, _ = reference.run(tokens, dtype, dtype, contextlib.nullcontext)
    found, _ = candidate.run(tokens, dtype, dtype, contextlib.nullcontext)
    constants = rounded(trusted_side.constants())
    shared: dict[str, Any] = {
        "dtype": dtype,
        "u": ROUNDOFF[dtype],
        "weights": _weights(reference.weights(dtype), candidate.weights(dtype)),
        "sequences": len(set(tokens)),
        "tokens": len(tokens[0]),
        "distinct_tokens": min(len(set(row)) for row in tokens),
        "inputs_digest": sha256(dumps([list(row) for row in tokens])),
        "audited_ops": audit.operations,
        "lower_ops": audit.lower,
        "first_lower_op": audit.first,
        "rounded_constants": len(constants),
        "first_rounded_constant": next(iter(constants), ""),
    }
    order = tuple(dict.fromkeys((*truth, *reference.points(), *candidate.points(), *found)))
    rows = tuple(
        ForwardError(
            point=point, order=index, **shared, **_compared(truth.get(point), trusted.get(point), found.get(point))
        )
        for index, point in enumerate(order)
    )
    return Measurement(
        quantity="forward_errors",
        value=Rows("point", rows),
        by="weighbridge.forward_errors/1",
        at="forward pass, end to end",
        unit="relative L2",
        examined=len(rows),
        total=len(rows),
    )


def _sides(reference: ModelView, candidate: ModelView) -> tuple[ForwardSubject, ForwardSubject, Tokens] | Unmeasured:
    first, second = reference.subject(), candidate.subject()
    for side in (first, second):
        if isinstance(side, Unmeasured):
            return side
    assert isinstance(first, ForwardSubject)
    assert isinstance(second, ForwardSubject)
    if second.dtype not in ROUNDOFF:
        return Unmeasured(
            code="dtype-unsupported",
            why=f"a candidate in {second.dtype} cannot be told from a float64 truth",
            remedy=f"compute in one of {', '.join(ROUNDOFF)}",
        )
    given = [tuple(tuple(int(token) for token in row) for row in side.tokens) for side in (first, second)]
    stated = [tokens for tokens in given if tokens]
    if not stated or not stated[0][0] or len({len(row) for row in stated[0]}) != 1:
        return Unmeasured(
            code="no-inputs",
            why="neither side gives token sequences of one length",
            remedy="give `tokens` as a list of equally long lists of token ids",
        )
    if stated[0] != stated[-1]:
        return Unmeasured(
            code="inputs-differ",
            why="the two sides give different token sequences",
            remedy="give the same tokens in both factories, or leave them out of the candidate's",
        )
    return first, second, stated[0]


def _truth(reference: ModelView, tokens: Tokens, storage: str) -> tuple[Mapping[str, Captured], Float64Audit]:
    """Compute in float64 under audit; a stack that cannot, or that no audit can watch, has no operation counted."""
    try:
        return reference.run(tokens, "float64", storage, float64_audit)
    except SubjectError as problem:
        if isinstance(problem.__cause__, NotImplementedError):
            return {}, NO_AUDIT
        raise


def _weights(ours: Mapping[str, str], theirs: Mapping[str, str]) -> Weights:
    """Compare the digests of both sides' weights; names that are not on both sides cannot be compared."""
    both = sorted(set(ours) & set(theirs))
    differing = [name for name in both if ours[name] != theirs[name]]
    return Weights(
        reference_digest=sha256(dumps(dict(ours))) if ours else "",
        candidate_digest=sha256(dumps(dict(theirs))) if theirs else "",
        of=len(set(ours) | set(theirs)),
        on_both_sides=len(both),
        differing=len(differing),
        first_differing=next(iter(differing), ""),
    )


# --- One point --------------------------------------------------------------------------------------------------------


def _compared(truth: Captured | None, trusted: Captured | None, found: Captured | None) -> Mapping[str, Any]:
    """Measure one point; what could not be computed is None."""
    import numpy as np

    row: dict[str, Any] = {
        "reference_shape": truth.values.shape if truth is not None else None,
        "candidate_shape": found.values.shape if found is not None else None,
        "device": found.device if found is not None else "",
        "held_as": found.dtype if found is not None else "",
        **NOTHING_COMPARED,
    }
    if truth is None:
        return row
    base = truth.values
    if trusted is not None and trusted.values.shape == base.shape:
        row["rl2_reference"] = _distance(base, trusted.values)[1]
        row["nonfinite_reference"] = int(np.isnan(base).sum()) + _states_differing(base, trusted.values)
    if found is not None and found.values.shape == base.shape:
        row["candidate_error"], row["rl2_candidate"] = _distance(base, found.values)
        row["nonfinite_candidate"] = _states_differing(base, found.values)
        row["elements"] = int((np.isfinite(base) & np.isfinite(found.values)).sum())
    row["truth_norm"] = _norm(base[np.isfinite(base)])
    return row


NOTHING_COMPARED: Mapping[str, int | None] = {
    "elements": 0,
    "truth_norm": None,
    "candidate_error": None,
    "rl2_candidate": None,
    "rl2_reference": None,
    "nonfinite_candidate": 0,
    "nonfinite_reference": 0,
}


def _distance(truth: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float | None]:
    """Return ‖X − T‖₂ and ‖X − T‖₂ / ‖T‖₂ over elements that are finite in both; None where ‖T‖₂ is 0."""
    import numpy as np

    both = np.isfinite(truth) & np.isfinite(values)
    if not both.all():
        truth, values = truth[both], values[both]
    error, norm = _norm(values - truth), _norm(truth)
    return error, error / norm if norm else None


def _norm(values: NDArray[np.float64]) -> float:
    """Return the L2 norm in float64, scaled so that no square overflows or vanishes."""
    import numpy as np

    largest = float(np.max(np.abs(values))) if values.size else 0.0
    if largest == 0.0:
        return 0.0
    scaled = values / largest
    return largest * float(np.sqrt(np.sum(scaled * scaled)))


def _states_differing(truth: NDArray[np.float64], values: NDArray[np.float64]) -> int:
    """Count the elements that are finite, NaN, +∞ or −∞ on one side and something else on the other."""
    import numpy as np

    odd = ~(np.isfinite(truth) & np.isfinite(values))
    return int(np.count_nonzero(~((truth[odd] == values[odd]) | (np.isnan(truth[odd]) & np.isnan(values[odd])))))


# --- Places and canary ------------------------------------------------------------------------------------------------


def extent(views: Views, _options: Fields) -> int:
    """Count the points that either side names."""
    reference, candidate = views
    return len({*reference.points(), *candidate.points()})


def canary(views: Views, _options: Fields, measured: Measurement) -> Canary | NoCanary:
    """Lay a value twice the truth's norm over the last channel of the last token of the last sequence of a point."""
    reference, candidate = views
    before = {row.point: row for row in rows_of(measured, ForwardError)}
    shared = [point for point in reference.points() if point in candidate.points()]
    both = [point for point in shared if point not in before or before[point].elements]
    if not both:
        return NoCanary("no point holds finite values on both sides in one shape")
    places = both[-2:]
    last = places[-1]
    if not set(places) <= set(before):
        return Canary(name="a point left out", place=last, views=views, seen=lambda _again: False)
    damaged = candidate.cut(places).overlaid(last, 2 * max(1.0, before[last].truth_norm or 0.0))

    def seen(again: Measurement | Unmeasured) -> bool:
        rows = rows_of(again, ForwardError) if isinstance(again, Measurement) else ()
        after = {row.point: _errors(row) for row in rows}
        return [point for point in places if after.get(point) != _errors(before[point])] == [last]

    return Canary(name="one value", place=last, views=(reference.cut(places), damaged), seen=seen)


def _errors(row: ForwardError) -> tuple[float | None, ...]:
    return row.rl2_candidate, row.candidate_error, row.nonfinite_candidate


VERIFIER = Verifier(
    quantity="forward_errors",
    kinds=(SubjectKind.MODEL, SubjectKind.MODEL),
    measure=measure,
    extent=extent,
    canary=canary,
)
