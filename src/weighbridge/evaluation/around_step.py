"""A run for a person to look at: its columns before, at and after a step, and the norms of its layers by step."""

import bisect
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weighbridge.core import Finding, Outcome, UsageError, dataclass
from weighbridge.verifiers.layer_course import NORMS, layer_of, logged
from weighbridge.views.run import RunView

AROUND = 20  # samples before and after, whose median is shown
STEPS = "first_step", "worst_step", "step"  # figures of an offence that name its step
AT_ONCE = ("step-metrics", "loss-spike", "gradient-jump", "update-jump", "diverging")  # kinds of what happens at a step
NOT_SHOWN = {"step", "time", "monotonic_s", "batch_crc", "parameters_sum"}  # clocks and checksums, which mean no size
COST = ("_ms", "_per_sec")  # ends of columns that say what a step cost, and not what it did
MOST = 256 << 20  # bytes of layers.jsonl
GROUPS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Norms by group of layers and step, `[groups][steps]`; None where nothing was logged."""

    names: tuple[str, ...]
    steps: tuple[int, ...]
    grad: tuple[tuple[float | None, ...], ...]
    change: tuple[tuple[float | None, ...], ...]  # update over weight
    zero: Mapping[str, int]  # tensors without a gradient, or with one of exactly 0, at how many steps
    more: int  # groups that are left out
    moved: Mapping[str, float]  # how far each tensor went: updates over its weight, added up


def layers_of(view: RunView) -> Layers | None:
    """Read what a recorder logged of tensors, tensors of one block together."""
    if view.layers is None or view.layers.stat().st_size > MOST:
        return None
    groups: dict[str, dict[tuple[str, int], float]] = {}
    zero, moved, steps = Counter[str](), defaultdict[str, float](float), set[int]()
    for name, one in logged(view, {}, math.inf)[1].items():
        group = groups.setdefault(layer_of(name) or name.rpartition(".")[0] or name, {})
        steps.update(one.steps)
        for step, arrived, used, weight, update in zip(one.steps, *(one.norms[norm] for norm in NORMS), strict=True):
            grad = arrived if used is None else used
            zero.update([] if grad else [name])
            if weight and update is not None:
                moved[name] += update / weight
            for key, norm in (("grad", grad), ("weight", weight), ("update", update)):
                if norm is not None:
                    group[key, step] = math.hypot(group.get((key, step), 0.0), norm)
    names, order = tuple(groups)[:GROUPS], tuple(sorted(steps))

    def change(group: Mapping[tuple[str, int], float], step: int) -> float | None:
        weight, update = group.get(("weight", step)), group.get(("update", step))
        return update / weight if weight and update is not None else None

    return Layers(
        names=names,
        steps=order,
        grad=tuple(tuple(groups[name].get(("grad", step)) for step in order) for name in names),
        change=tuple(tuple(change(groups[name], step) for step in order) for name in names),
        zero=dict(zero.most_common()),
        more=len(groups) - len(names),
        moved=moved,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """One column or layer: the median before, the numbers just before, at and just after, and the median after."""

    name: str
    before: float | None
    last: float | None
    at: float | None
    following: float | None
    after: float | None

    @property
    def times(self) -> float | None:
        """Return how many times what it was before it is at the step."""
        return self.at / self.before if self.at is not None and self.before else None

    @property
    def change(self) -> float:
        """Return how far it is from what it was before, for an order: not finite is the farthest."""
        times = self.times
        if times is None or not math.isfinite(times):
            return math.inf if self.at is not None and not math.isfinite(self.at) else -1.0
        return abs(math.log(abs(times))) if times else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Autopsy:
    """What a run did around a step: columns, and gradients and updates of layers at the recorded step nearest to it."""

    step: int
    columns: tuple[Around, ...]
    layers: tuple[Around, ...]
    layers_at: int | None


def named_step(findings: Iterable[Finding]) -> tuple[str, int] | None:
    """Return the gate that FAILs of what happens at a step, and the step; of several the first step."""
    failed = (one for one in findings if one.verdict.outcome is Outcome.FAIL and one.kind in AT_ONCE)
    offences: list[tuple[str, Any]] = [(one.gate, of.figures) for one in failed for of in one.verdict.offences]
    steps = ((gate, [of[name] for name in STEPS if isinstance(of.get(name), int)]) for gate, of in offences)
    return min(((gate, named[0]) for gate, named in steps if named), key=lambda both: both[1], default=None)


def autopsy(view: RunView, step: int, found: Layers | None) -> Autopsy:
    """Look at a run around a step, what changed most first; refuse a step that it has not."""
    names = [name for name in view.column_names if name not in NOT_SHOWN]
    columns = [(name, column) for name in names if (column := view.column(name)) is not None and len(column.step)]
    steps = sorted({at for _, column in columns for at in column.step})
    if step not in steps:
        some = f"steps {steps[0]} to {steps[-1]}" if steps else "no step"
        raise UsageError("unknown-step", f"the run logs {some}, and not step {step}", remedy="name one that it logs")
    rows = [_around(name, column.step, column.value, step) for name, column in columns]
    layers, at = list[Around](), None
    if found is not None and found.steps:
        at = next((one for one in found.steps if one >= step), found.steps[-1])
        for label, norms in (("gradient", found.grad), ("update", found.change)):
            pairs = zip(found.names, norms, strict=True)
            layers += [_around(f"{label} {name}", found.steps, row, at) for name, row in pairs]
    return Autopsy(step=step, columns=_ordered(rows), layers=_ordered(layers), layers_at=at)


def _ordered(rows: Iterable[Around]) -> tuple[Around, ...]:
    known = (one for one in rows if one.at is not None)
    return tuple(sorted(known, key=lambda one: (one.name.endswith(COST), -one.change)))


def _around(name: str, steps: Sequence[float], values: Sequence[float | None], step: float) -> Around:
    first, end = bisect.bisect_left(steps, step), bisect.bisect_right(steps, step)
    before, after = values[max(first - AROUND, 0) : first], values[end : end + AROUND]
    return Around(
        name=name,
        before=_median(before),
        last=before[-1] if before else None,
        at=values[first] if first < end else None,
        following=after[0] if after else None,
        after=_median(after),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return statistics.median(known) if known and all(map(math.isfinite, known)) else math.nan if known else None
