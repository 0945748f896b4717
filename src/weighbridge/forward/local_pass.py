"""Local errors: one float64 pass of the reference, in which each point is compared with a capture and replaced by it.

So an error is that of one step alone: rounding inherited from earlier layers does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from weighbridge.core import SubjectError, dataclass, replace, torch
from weighbridge.forward.points import ReachedError, Visit
from weighbridge.forward.products import rounded
from weighbridge.forward.relations import Neighbours, extent_of
from weighbridge.forward.stacks import Tokens, Torch, captured, raised_at
from weighbridge.forward.trace_file import ROUNDED_TO, ROUNDOFF, Trace
from weighbridge.forward.widened import Audit, Constants, rebuilt, unwatched, widened
from weighbridge.quantities.forward import Extent, Relation

PLAIN = (1e-200, 1e200)  # sums of squares between these neither overflowed nor vanished
TILE = 1 << 16  # elements that are compared while they stay in a core's cache
SMALL = 1e-3  # of the mean norm: a token or channel of less is measured against so much


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """The relative L2 from what was made of the values before, over what is finite; None where the truth is zeros."""

    all: float | None = None
    token: float | None = None
    channel: float | None = None
    worst_token: str = ""
    worst_channel: int = 0
    absolute: float = 0.0
    truth_norm: float = 0.0
    elements: int = 0
    nonfinite: int = 0
    truth_nonfinite: int = 0


NOTHING = Distance()
WHOLE = (None, None)  # all sequences, all tokens of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One point of a pass: how far its values lie, from which points they were made, and what relates the two."""

    distance: Distance
    shape: tuple[int, ...]
    made_from: tuple[str, ...]
    relation: Relation | None = None
    extent: Extent | None = None
    operations: tuple[str, ...] = ()
    beside: Step | None = None  # the same of a second trace, made from the values of the first


Steps = Mapping[str, Step]


def local_errors(  # noqa: PLR0917 -- what a pass is about; most of it is left out
    reference: Torch,
    tokens: Tokens,
    trace: Trace,
    than: Steps = MappingProxyType({}),
    suspicious: Callable[[Distance, Distance], bool] = lambda *_: False,
    as_made: Collection[str] = (),
    beside: Trace | None = None,
    part: tuple[int | None, int | None] = WHOLE,
) -> tuple[Steps, Audit, Constants]:
    """Return, for each point of the reference, how far a trace's capture lies from what is made before it.

    What relates the two is looked for where that is `suspicious`, `than` being what a trusted run's steps are. A point
    that the trace lacks goes on as it was made, and so do those of `as_made`. What a trace `beside` this one captured
    is compared as well, with what is made from the values of this one. Of a `part`, these first sequences and tokens
    alone are compared; of what lies beside, all.
    """
    steps, near = dict[str, Step](), Neighbours(reference.plain, reference.padded)
    with rebuilt(reference.plain) as constants, widened() as audit:

        def look(
            of: Trace, point: str, made: torch.Tensor, least: Step | None, part: tuple[int | None, int | None] = WHOLE
        ) -> tuple[Step, torch.Tensor | None]:
            shape = made.shape if made.shape[0] in (1, len(tokens)) else (len(tokens), *made.shape[1:])
            found = Step(distance=NOTHING, shape=tuple(shape), made_from=audit.made_from(made))
            if of.shape(point) != tuple(made.shape):
                return found, None
            values, shown = (reference.unpadded(one) for one in (captured(of, point, made), made))
            truth, value = (one[: part[0], : part[1]] for one in (shown, values))
            if not made.is_floating_point():
                return replace(found, distance=_choices(near.scores(point), truth, value)), values
            distance, padded = compare(truth, value), sum(reference.padded[: len(truth)])  # which is 0 in both
            distance = replace(distance, elements=distance.elements - padded * truth.shape[2])
            if least is None or not suspicious(distance, least.distance):
                return replace(found, distance=distance), values
            relation, names = near.relation(point, shown, values.double()), audit.made_by(made)
            extent = _extent(truth, value, least.distance, ROUNDOFF[of.facts.dtype])
            return replace(found, distance=distance, relation=relation, extent=extent, operations=names), values

        def visit(point: str, made: torch.Tensor) -> torch.Tensor | None:
            with unwatched():
                step, values = look(trace, point, made, than.get(point), part)
                if beside is not None and point in beside.tensors:
                    step = replace(step, beside=look(beside, point, made, step)[0])
                steps[point] = step
                if values is None or (point in as_made and made.is_floating_point()):
                    return None
                replaced = values.to(made.dtype)
                if made.is_floating_point():
                    near.note(point, values)
                    audit.is_point(point, made)  # one of them goes on
                audit.is_point(point, replaced)
                return replaced

        _forward(reference, tokens, visit, frozenset(trace.tensors))
    return steps, audit, constants


def rounded_like(reference: Torch, trace: Trace, point: str) -> tuple[str, float]:
    """Return the rounding of factors by which a capture is made nearest from those before it, and what it leaves."""
    made: list[torch.Tensor] = []

    def visit(name: str, rows: torch.Tensor) -> torch.Tensor | None:
        if name == point:
            made.append(rows)
            raise ReachedError
        return captured(trace, name, rows).to(rows.dtype) if trace.shape(name) == tuple(rows.shape) else None

    found: dict[str, float] = {}
    for one in ROUNDED_TO:
        with suppress(ReachedError), rounded(reference.plain, {"*": one}):
            reference.forward(trace.facts.tokens, visit, casts=frozenset(trace.tensors))
        rows = reference.unpadded(made.pop()).double()
        values = captured(trace, point, rows).double()
        found[one] = float((values - rows).norm() / values.norm())
    nearest = min(found, key=lambda one: found[one])
    return nearest, found[nearest]


def end_to_end(reference: Torch, tokens: Tokens, traces: Mapping[str, Trace]) -> Mapping[str, Mapping[str, float]]:
    """Return by trace and point how far captures lie from float64 truth, relative L2, with nothing replaced."""
    found: dict[str, dict[str, float]] = {name: {} for name in traces}

    def visit(point: str, made: torch.Tensor) -> None:
        with unwatched():
            for name, trace in traces.items():
                shape = trace.shape(point) if made.is_floating_point() else None
                if shape is None or shape[1:] != tuple(made.shape[1:]):
                    continue
                values = captured(trace, point, made)
                norm, error = (float(one.norm()) for one in (made, values.double().sub_(made)))
                # In fewer passes where everything is finite.
                plain = PLAIN[0] < norm * norm < PLAIN[1] and math.isfinite(error)
                apart = error / norm if plain else compare(made, values).all
                if apart is not None:
                    found[name][point] = apart

    with rebuilt(reference.plain), widened():
        _forward(reference, tokens, visit)
    return found


def _forward(reference: Torch, tokens: Tokens, visit: Visit, casts: frozenset[str] = frozenset()) -> None:
    try:
        reference.forward(tokens, visit, casts=casts)
    except (SubjectError, KeyboardInterrupt):
        raise
    except BaseException as problem:
        what = f"the reference, widened to float64, raised {type(problem).__name__}"
        remedy = "an operation of it may know no float64: choose another implementation; --debug shows the traceback"
        remedy = raised_at(problem) + remedy
        raise SubjectError("forward-raised", what, remedy=remedy) from problem


def _choices(scores: torch.Tensor | None, made: torch.Tensor, values: torch.Tensor) -> Distance:
    wide = made.double()  # by their scores, where there are any: a tie may fall either way
    if scores is None or min(wide.min(), values.min()) < 0 or max(wide.max(), values.max()) >= scores.shape[2]:
        return compare(wide, values)
    return compare(*(scores.double().gather(2, chosen.long()) for chosen in (wide, values)))


def compare(made: torch.Tensor, values: torch.Tensor) -> Distance:
    """Compare captured values with those made in float64, both `[sequences, tokens, channels]`; NaN equals nothing."""
    sums = _sums(made, values)
    largest, odd, truth_odd, elements = 1.0, 0, 0, made.numel()
    if not all(bool(torch.isfinite(one).all()) for one in sums) or not PLAIN[0] < float(sums[0].sum()) < PLAIN[1]:
        values = values.double()
        finite = torch.isfinite(made) & torch.isfinite(values)
        odd, truth_odd = int((~finite & ~(made == values)).sum()), int(torch.isnan(made).sum())
        elements = int(finite.sum())
        truth, value = torch.where(finite, made, 0.0), torch.where(finite, values, 0.0)
        largest = max(float(truth.abs().max()) or float(value.abs().max()), 1e-300)
        sums = _sums(truth / largest, value / largest)
    roots = [one.sqrt() for one in sums]  # norms and errors by token, then by channel
    norm, absolute = float(sums[0].sum().sqrt()), float(sums[1].sum().sqrt())
    tokens, channels = (one.flatten() for one in _relative(roots))
    at = int(tokens.argmax())
    found = Distance(elements=elements, nonfinite=odd, truth_nonfinite=truth_odd, absolute=absolute * largest)
    worst, channel = f"sequence {at // made.shape[1]}, token {at % made.shape[1]}", int(channels.argmax())
    found = replace(found, worst_token=worst, worst_channel=channel, truth_norm=norm * largest)
    if not norm:
        return found
    return replace(found, all=absolute / norm, token=float(tokens.max()), channel=float(channels.max()))


def _relative(roots: Sequence[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return errors by token and by channel, each of the norm of its own values, of norms and errors of both."""
    return tuple(off / long.clamp(min=float(long.mean()) * SMALL or 1.0) for long, off in (roots[:2], roots[2:]))  # type: ignore[return-value]


def _extent(made: torch.Tensor, values: torch.Tensor, least: Distance, u: float) -> Extent | None:
    """Return where an error stands out from a trusted run's; None where not all is finite, or where nothing does."""
    sums = _sums(made, values)
    if not all(bool(torch.isfinite(one).all()) for one in sums):
        return None
    return extent_of(*_relative([one.sqrt() for one in sums]), (least.token or 0.0, least.channel or 0.0), u)


def _sums(made: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the squares of values and of errors summed by token and by channel, without copies of whole tensors."""
    truth, value = made.flatten(0, 1), values.flatten(0, 1)
    tokens, channels = truth.new_empty(2, truth.shape[0]), truth.new_zeros(2, truth.shape[1])
    height = max(1, TILE // truth.shape[1])
    kept, ones = truth.new_empty(height, truth.shape[1]), truth.new_ones(max(height, truth.shape[1]))
    each = ones[: truth.shape[1]]
    for tile, other, norms, errors in zip(*(one.split(height) for one in (truth, value, *tokens)), strict=True):
        squares, every = kept[: len(tile)], ones[: len(tile)]
        torch.mul(tile, tile, out=squares)
        torch.mv(squares, each, out=norms)
        channels[0].addmv_(squares.t(), every)
        squares.copy_(other).sub_(tile).square_()
        torch.mv(squares, each, out=errors)
        channels[1].addmv_(squares.t(), every)
    tokens = tokens.view(2, *made.shape[:2])
    return tokens[0], tokens[1], channels[0], channels[1]
