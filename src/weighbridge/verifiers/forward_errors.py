"""forward_errors: how far a candidate and a trusted run in its dtype lie from float64 truth at each capture point.

The truth at a point is what the reference, widened to float64, makes of the values captured before it: a local error.
The trusted run is the reference in the candidate's dtype. All start from weights rounded to that dtype. Knows no limit.
"""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

from weighbridge.core import Basis, Fields, Measurement, SubjectError, SubjectKind, Unmeasured, dumps, np, sha256
from weighbridge.forward import local_pass
from weighbridge.forward.between_traces import equal_share, outcome_of
from weighbridge.forward.local_pass import NOTHING, Distance, Step, Steps, end_to_end
from weighbridge.forward.points import CACHE
from weighbridge.forward.products import in_words
from weighbridge.forward.reach import PLAIN, Form, drawn_form, head_channels, reached
from weighbridge.forward.stacks import Tokens, Torch
from weighbridge.forward.trace_file import ROUNDOFF, Trace, inputs_digest
from weighbridge.forward.widened import Audit, Constants
from weighbridge.quantities.forward import NO_RELATION, NOT_TRIED, ForwardError, ForwardRun, LocalError, Weights
from weighbridge.verifiers.own_weights import as_candidate, own_digests
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.model_view import ModelView

WORTH_A_LOOK = 2  # times the trusted run's error: below it, no relation is looked for, which takes time
GRAVE = 16  # times that: below it, no rounding of factors is looked for
LOOKED_AT = 2  # odd points, each in passes that end there: the first may be a weight that is stored rounded
EXPLAINED = 0.25  # of an error: a rounding that leaves no more over is the one
COARSE = 0.1  # of a step that is a trusted run's own error: its rows may be no tokens, as those of experts in a batch
TAIL = 6  # u: a worst token or channel of less asks for no rough run
ASTRAY = 1.5  # an error of more no rounding makes, however rough: values that have nothing to do with it make 1.4
CANARY_TOKENS = 13  # a number that no model has of heads, so that no dimension is taken for another


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Compare reference and candidate at every point that either names; refuse what raises, or is of another shape."""
    candidate, pair = views[1], both_runs(views, options)
    if isinstance(pair, Unmeasured):
        return pair
    reference, stack, trusted, found, noise, _ = pair
    shares = {point: equal_share(trusted, found, point) for point in found.facts.order}
    other = {point for point, share in shares.items() if share != 1} | {*trusted.facts.order} ^ {*found.facts.order}
    forms = candidate.runs.forms[id(views[0].runs)][0]
    passes = _passes(pair, other, settled=len(forms) == 1)
    if passes is None:
        del forms[0]
        return measure(views, options)
    run, ends = _run(pair, passes), dict[str, Mapping[str, float]]()
    # A cut is there to show that a local error is seen; nothing end to end is judged in it, or where all is in order.
    if reference.part is None and (passes.loud or any((noise or {}).values())):
        runs = {"trusted": trusted, "candidate": found} if other else {"trusted": trusted}
        ends |= end_to_end(stack, found.facts.tokens[:1], runs)
    ours = ends.get("trusted", {})
    theirs = ends.get("candidate", ours)
    rows = [
        _row(
            point, pair, passes, run=run, order=at, equal_share=shares.get(point), noise=(noise or {}).get(point),
            candidate_end_to_end=theirs.get(point), trusted_end_to_end=ours.get(point),
        )
        for at, point in enumerate(dict.fromkeys((*trusted.facts.order, *found.facts.order)))
    ]  # fmt: skip
    measured = table("forward_errors", rows, at="forward pass, step by step", unit="relative L2")
    # What a trace that no witness saw says of itself is no more than what it says.
    basis = dict.fromkeys(("run", "noise"), Basis.REPORTED) if candidate.book == "" else {}
    return replace(measured, by="weighbridge.forward_errors/7", basis=basis)


class Runs(NamedTuple):
    """The reference as the candidate's products and weights want it, ready and run; the candidate's run, its noise."""

    reference: ModelView
    stack: Torch
    trusted: Trace
    found: Trace
    noise: Mapping[str, float] | None
    taken: tuple[Any, ...]


class Passes(NamedTuple):
    """Local errors: of the trusted run, of the candidate, of it with odd values as made, and of rougher runs."""

    loud: bool  # whether one of the candidate's may be no rounding, so that errors end to end are asked for
    ours: Steps
    theirs: Steps
    otherwise: Steps
    rough: Mapping[str, LocalError]
    audit: Audit
    constants: Constants


def _passes(pair: Runs, other: set[str], *, settled: bool) -> Passes | None:
    """Make the passes that can change the verdict; None where the reference itself is off in a form that has others."""
    _, stack, trusted, found, *_ = pair
    tokens, u, part = found.facts.tokens, ROUNDOFF[found.facts.dtype], trusted.at_once
    whole = part == (len(tokens), len(tokens[0]))

    def suspicious(error: Distance, least: Distance) -> bool:
        return (error.all or 0) > WORTH_A_LOOK * max(least.all or 0, u)

    def telling(error: Distance, least: Distance) -> bool:
        both = ((error.token, least.token), (error.channel, least.channel))
        return suspicious(error, least) or any((one or 0) > max(WORTH_A_LOOK * (of or 0), TAIL * u) for one, of in both)

    last = {trusted.facts.order[-1]}  # from which nothing more is made
    once = other <= last  # all steps before it are the same
    # Our runs start each step from the points that the candidate has too: equal steps, equal roundings.
    run, beside = trusted.only(found.tensors), found.only(other) if once and other else None
    beside = beside if whole else found if once else trusted
    ours, audit, constants = local_pass.local_errors(stack, tokens, run, {}, telling, last, beside, part)
    # A trusted run is trusted in what it computed at once and without padding; in the rest it may be wrong as well.
    own = [step for point, step in ours.items() if not (whole or settled) and (not once or point not in other)]
    if any((one.distance.all or 0) > COARSE or telling((one.beside or one).distance, one.distance) for one in own):
        return None
    theirs: Steps = {point: step.beside or step for point, step in ours.items()}
    if not once:
        theirs = local_pass.local_errors(stack, tokens, found, ours, telling, last)[0]
    odd = {point for point, step in theirs.items() if suspicious(step.distance, ours[point].distance)}
    # Where what was made from an odd point is odd too, was the captured value what was used?
    doubtful = {one for point in odd for one in theirs[point].made_from} & odd
    otherwise = local_pass.local_errors(stack, tokens, found, as_made=doubtful | last)[0] if doubtful else {}
    loud = {*trusted.facts.order} != {*found.facts.order} or any(
        step.distance.nonfinite or found.shape(point) != step.shape or telling(step.distance, ours[point].distance)
        for point, step in theirs.items()
    )
    return Passes(loud, ours, theirs, otherwise, _rougher(pair, ours, theirs), audit, constants)


def _rougher(pair: Runs, ours: Steps, theirs: Steps) -> Mapping[str, LocalError]:
    """Return the errors of runs that may be off by more than the trusted one, where the candidate is worse."""
    reference, stack, _, found, *_ = pair
    tokens, dtype, last = found.facts.tokens, found.facts.dtype, {[*ours][-1]}
    rough, u = dict[str, LocalError](), ROUNDOFF[dtype]

    def worse() -> bool:  # by so much that rougher runs must tell what is right
        least = {point: _larger(_local(step), rough.get(point, NOT_TRIED)) for point, step in ours.items()}
        for point, step in theirs.items():
            their, our = step.distance, least[point]
            pairs = ((their.all, our.all, 1), (their.token, our.token, TAIL), (their.channel, our.channel, TAIL))
            limits = ((error or 0, max(WORTH_A_LOOK * (known or 0), floor * u)) for error, known, floor in pairs)
            if (their.all or 0) < ASTRAY and any(error > limit for error, limit in limits):
                return True
        return False

    if worse():
        run = reference.rough(tokens, dtype).only(found.tensors)  # by the roughest kernels that are right
        steps = local_pass.local_errors(stack, tokens, run, as_made=last)[0]
        rough = {point: _local(step) for point, step in steps.items()}
    if rough and worse():  # from the candidate's values a rounding may tip a threshold, or a choice of experts
        run = reference.stepwise(tokens, dtype, found)
        steps = local_pass.local_errors(stack, tokens, found, as_made=last, beside=run)[0]
        rough = {point: _larger(error, _local(steps[point].beside)) for point, error in rough.items()}
    return rough


def _larger(one: LocalError, other: LocalError) -> LocalError:
    both = {each.name: [getattr(side, each.name) for side in (one, other)] for each in fields(one)}
    most = (max((error for error in errors if error is not None), default=None) for errors in both.values())
    return LocalError(**dict(zip(both, most, strict=True)))


def _run(pair: Runs, passes: Passes) -> ForwardRun:
    reference, stack, trusted, found, noise, taken = pair
    facts, audit, constants = found.facts, passes.audit, passes.constants
    tokens, device = facts.tokens, facts.device.observed or facts.device.requested
    ours, theirs = trusted.facts.weights, facts.weights
    both = sorted({*ours} & {*theirs})  # names of one side alone cannot be compared
    one, other = (sha256(dumps(dict(side))) if side else "" for side in (ours, theirs))
    differing = tuple(name for name in both if ours[name] != theirs[name])
    weights = Weights(
        reference_digest=one, candidate_digest=other, differing=differing, of=len({*ours} | {*theirs}),
        on_both_sides=len(both), taken=taken,
    )  # fmt: skip
    saw = reached(stack.plain, trusted, facts.decoded)
    sides = [tuple(name for name, whether in saw.items() if whether is wanted) for wanted in (True, False)]
    return ForwardRun(
        dtype=facts.dtype, u=ROUNDOFF[facts.dtype], stack=facts.stack, device=device, weights=weights,
        inputs_digest=inputs_digest(tokens), sequences=len(set(tokens)), tokens=len(tokens[0]),
        distinct_tokens=min(len(set(row)) for row in tokens), repeated=noise is not None,
        outcome=outcome_of(trusted, found), audited_ops=audit.operations, lower_ops=audit.lower,
        first_lower_op=audit.first, constants=constants.of, rebuilt_constants=constants.rebuilt,
        rounded_constants=constants.rounded, first_rounded_constant=constants.first_rounded, partial=facts.partial,
        head=head_channels(stack.plain), decoded=facts.decoded, reached=sides[0], not_reached=sides[1],
        **_products(reference, stack, found, passes),
    )  # fmt: skip


def _row(point: str, pair: Runs, passes: Passes, **known: Any) -> ForwardError:
    trusted, found, mine, other = pair.trusted, pair.found, passes.ours.get(point), passes.theirs.get(point)
    error = other.distance if other is not None else NOTHING
    captured = point in found.tensors
    return ForwardError(
        point=point, made_from=other.made_from if other is not None else (),
        truth_norm=error.truth_norm if captured else None, candidate_error=error.absolute if captured else None,
        held_as=found.held_as(point) if captured else "",
        trusted_held_as=trusted.held_as(point) if point in trusted.tensors else "",
        candidate=_local(other), candidate_otherwise=_local(passes.otherwise.get(point)),
        trusted=_local(mine), rough=passes.rough.get(point, NOT_TRIED),
        reference_shape=mine.shape if mine else None, candidate_shape=found.shape(point),
        elements=error.elements, worst_token=error.worst_token, worst_channel=error.worst_channel,
        relation=other.relation if other and other.relation else NO_RELATION,
        nonfinite_reference=mine.distance.nonfinite + mine.distance.truth_nonfinite if mine else 0,
        nonfinite_candidate=error.nonfinite,
        extent=other.extent if other else None, operations=other.operations if other else (), **known,
    )  # fmt: skip


def both_runs(views: Views, options: Fields) -> Runs | Unmeasured:
    """Run both, the reference in the candidate's dtype and with what its products take."""
    reference, candidate = views
    stack, said = reference.stack(), candidate.dtype_and_tokens()
    if isinstance(stack, Unmeasured):
        return stack
    if isinstance(said, Unmeasured):
        return said
    if not isinstance(stack, Torch):
        what = "the reference is no PyTorch module, so nothing in it can be widened to float64"
        return Unmeasured(code="reference-not-torch", why=what, remedy="bind a PyTorch module as the reference")
    dtype, theirs = said
    given = [tuple(tuple(int(token) for token in row) for row in side) for side in (stack.tokens, theirs) if side]
    tokens = given[0] if given else stack.drawn()
    if not tokens[0] or len({len(row) for row in tokens}) != 1:
        what = "the token sequences are not of one length"
        return Unmeasured(code="no-inputs", why=what, remedy="give `tokens` as a list of equally long lists of ids")
    if given and given[0] != given[-1]:
        remedy = "give the same tokens on both sides, or leave them out of one"
        return Unmeasured(code="inputs-differ", why="the two sides give different token sequences", remedy=remedy)
    reference, named, taken = as_candidate(reference, candidate, dtype, options)
    forms = forms_of(reference, candidate, dtype, tokens, drawn=not given)
    while True:
        reference, candidate = (replace(one, form=forms[0]) for one in (reference, candidate))
        try:
            trusted = reference.capture(tokens, dtype)
            points = frozenset(trusted.facts.order)
            found, noise = candidate.capture(tokens, dtype, points, reference), candidate.noise(tokens, dtype, points)
            break
        except SubjectError:  # a cache or a mask of its own
            if len(forms) == 1:
                raise
            del forms[0]
    trusted = replace(trusted, facts=replace(trusted.facts, weights=named or trusted.facts.weights))
    candidate.release()
    if more := frozenset(found.facts.order) - points:  # of them, those that are the very tensor of another point here
        again = reference.capture(tokens, dtype, more)
        trusted = replace(again, facts=replace(again.facts, weights=trusted.facts.weights))
    if not found.facts.weights and candidate.weights_file() is not None:
        found = replace(found, facts=replace(found.facts, weights=own_digests(reference, candidate, dtype)))
    return Runs(reference, replace(reference.prepared(dtype), decode=0), trusted, found, noise, taken)


def forms_of(reference: ModelView, candidate: ModelView, dtype: str, tokens: Tokens, *, drawn: bool) -> list[Form]:
    """Return the forms in which both sides may be run, the best first; those that did not do are gone from it."""
    known, facts = candidate.runs.forms, candidate.trace.facts if candidate.trace is not None else None
    if id(reference.runs) in known:
        return known[id(reference.runs)][0]
    forms = [PLAIN]
    if facts is not None:  # without the values of the cache, it is compared with what was computed at once
        cached = any(name.endswith(CACHE) for name in facts.order)
        forms = [Form(facts.padded, facts.decoded if cached else 0)]
    elif isinstance(candidate.stack(), Torch):
        sides = [one.prepared(dtype) for one in (reference, candidate)]
        own = Form(tuple(sides[1].padded), sides[1].decode)
        forms = [own, own._replace(decode=0)]
        if drawn and not any(one.call or one.padded for one in sides):
            most = drawn_form([one.module for one in sides], len(tokens), len(tokens[0]))
            forms = [most._replace(decode=own.decode or most.decode), most._replace(decode=0), *forms]
    forms = list(dict.fromkeys(forms))
    known[id(reference.runs)] = forms, reference.runs  # whose id is no other's
    return forms


def _products(reference: ModelView, stack: Torch, found: Trace, passes: Passes) -> dict[str, Any]:
    """Return what is said of the candidate's products, and what its first odd point says of them."""
    facts: dict[str, Any] = {"products": in_words(reference.products)}
    errors = {point: step.distance.all or 0.0 for point, step in passes.theirs.items()}
    least = {point: max(passes.ours[point].distance.all or 0.0, ROUNDOFF["float32"]) for point in errors}
    grave = WORTH_A_LOOK if reference.products else GRAVE
    odd = [point for point, error in errors.items() if grave * least[point] < error < ASTRAY]
    for point in odd[:LOOKED_AT] if found.facts.dtype == "float32" else ():  # what holds less rounds all
        like, left = local_pass.rounded_like(stack, found, point)
        if left < EXPLAINED * errors[point]:
            return facts | {"products_like": like, "products_at": point, "products_left": left}
    return facts


def _local(step: Step | None) -> LocalError:
    if step is None:
        return NOT_TRIED
    return LocalError(all=step.distance.all, token=step.distance.token, channel=step.distance.channel)


def _excess(row: ForwardError) -> float:
    return (row.candidate.all or 0.0) - (row.trusted.all or 0.0)


def extent(views: Views, options: Fields) -> int:
    """Count the points that either side captured."""
    pair = both_runs(views, options)
    return 0 if isinstance(pair, Unmeasured) else len({*pair.trusted.facts.order, *pair.found.facts.order})


def canary(views: Views, options: Fields, measured: Measurement) -> Canary | NoCanary:
    """Overlay the last of a few tokens at the last point of the runs with twice its norm, by what is off most."""
    reference, candidate = views
    pair = both_runs(views, options)
    assert not isinstance(pair, Unmeasured)
    given = pair.trusted.facts.tokens[0]
    tokens = min(CANARY_TOKENS, len(given))
    try:
        pair.stack.forward([given[:tokens]], lambda *_: None)
    except Exception:  # noqa: BLE001 -- a model's own code, which may be run on no fewer
        tokens = len(given)
    trusted, found = pair.trusted.cut(1, tokens), pair.found.cut(1, tokens)
    both = (name for name in reversed(trusted.facts.order) if trusted.shape(name) == found.shape(name))
    norms = ((name, float(np.linalg.norm(trusted.stored(name).astype(np.float64)))) for name in both)
    last, norm = next(((name, norm) for name, norm in norms if 0 < norm < math.inf), ("", 0.0))
    if not last:
        return NoCanary("no point holds finite values on both sides in one shape")

    def seen(again: Measurement | Unmeasured) -> bool:
        after: Mapping[str, ForwardError] = rows_by_name(again)
        # None other exceeds the trusted run's so far as that of a value larger than all others there together: that a
        # model sees what comes later, which is cut off, is both runs' error.
        # Past the range of float16 it is an infinity, which is counted.
        worst = max(after, key=lambda name: _excess(after[name]), default="")
        whole = set(after) == {*trusted.facts.order, *found.facts.order}
        return whole and (worst == last or after[last].nonfinite_candidate > broken)

    broken = int(np.count_nonzero(~np.isfinite(found.stored(last).astype(np.float64))))
    grossest = max(filter(math.isfinite, map(_excess, rows_by_name(measured).values())), default=0.0)  # 50 times a norm
    damaged = candidate.cut(1, tokens).overlaid(last, 2 * max(1.0, norm) * max(1.0, 2 * grossest))
    return Canary(name="one value", place=last, views=(reference.cut(1, tokens), damaged), seen=seen)


KINDS = (SubjectKind.MODEL, SubjectKind.MODEL)
VERIFIER = Verifier(quantity="forward_errors", kinds=KINDS, measure=measure, extent=extent, canary=canary)
