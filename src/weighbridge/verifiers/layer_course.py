"""What a recorder logged of each tensor (`layers.jsonl`) beside the steps of the same run."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from weighbridge.core import Fields, Measurement, SubjectError, SubjectKind, Unmeasured, data, dataclass, field, replace
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import Role, TensorCourse
from weighbridge.run_logs.json_log import LAYERS, read_layers
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table
from weighbridge.views.run import GRAD_NORM, STEP, RunView

QUANTITY, NAME, NORMS = "layer_course", "name", ("grad", "grad_used", "weight", "update")
MAX_CELLS = 1_000_000  # norms that are sealed of one run
ALWAYS = (-math.inf, math.inf)
ALIKE = 0.01  # of a norm: what adding up in another order, and printing, may change
RECORD = "record the run with weighbridge.recorder.Recorder(…, probe_every=10), which writes layers.jsonl"
BLOCK = re.compile(r"((?:.*?\.)?\d+)\.")  # a layer, by the first number in a name
ROLES = tuple((Role(role), pattern) for role, pattern in data.table("verifiers/tensor_roles").items())


@dataclass(frozen=True, slots=True)
class Logged:
    """What is logged of one tensor, in the order of the log."""

    steps: list[int] = field(default_factory=list)
    norms: Mapping[str, list[float | None]] = field(default_factory=lambda: {name: [] for name in NORMS})


def layer_of(name: str) -> str:
    """Return the numbered layer that a tensor is of, empty for one outside of all."""
    return match[1] if (match := BLOCK.match(name)) else ""


def role_of(name: str) -> Role:
    """Return what a tensor is for, as its name tells."""
    return next((role for role, pattern in ROLES if re.search(pattern, name, re.IGNORECASE)), Role.MATRIX)


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Return the norms of every tensor over the steps of `steps` (all without the option)."""
    view: RunView = views[0]
    if view.layers is None:
        return Unmeasured(code="no-layers", why=f"the run has no {LAYERS}", remedy=RECORD)
    read, tensors = logged(view, options, MAX_CELLS)
    _without_a_torn_step(tensors)
    if not tensors:
        why = f"{LAYERS} holds no row of a trained tensor in these steps; one is written where an update was seen"
        return Unmeasured(code="no-layers", why=why, remedy=RECORD)
    steps = sorted(int(step) for step in view.dense(STEP).numbers() if step.is_integer())
    if (stranger := _of_another_run(view, tensors, steps)) is not None:
        return stranger
    window: Any = options.get("steps") or ALWAYS
    last, rates = min(max(steps), window[1]), _by_step(view, "lr")
    rows = [
        TensorCourse(
            tensor=name, layer=layer_of(name), role=role_of(name), last_step=int(last), step=tuple(one.steps),
            lr=tuple(map(rates.get, one.steps)), **{norm: tuple(values) for norm, values in one.norms.items()},
        )
        for name, one in tensors.items()
    ]  # fmt: skip
    return replace(table(QUANTITY, rows, basis=view.basis), examined=read, total=read)


def _rows(view: RunView) -> Iterator[Mapping[str, Any]]:
    if view.layer_rows is not None:
        return iter(view.layer_rows)
    if view.layers is None or not view.layers.stat().st_size:  # no update was seen
        return iter(())
    return read_layers(view.layers, cast(dict[str, str], view.digests))


def logged(view: RunView, options: Fields, most: float) -> tuple[int, dict[str, Logged]]:
    """Return how many rows there are, and what those of the window hold by tensor."""
    window: Any = options.get("steps") or ALWAYS
    tensors, cells, count = dict[str, Logged](), 0, 0
    for count, row in enumerate(_rows(view), 1):
        name, step = row.get(NAME), row.get(STEP)
        if type(step) is not int or not isinstance(name, str) or not name:
            raise _bad(count, "a row needs a whole number as `step` and a text as `name`")
        if not window[0] <= step <= window[1]:
            continue
        one = tensors.setdefault(name, Logged())
        if one.steps and one.steps[-1] >= step:
            raise _bad(count, f"{name} is logged twice at step {step}, or after a later one")
        one.steps.append(step)
        for norm, values in one.norms.items():
            values.append(_norm(row.get(norm), count))
        if (cells := cells + len(NORMS)) > most:
            what, remedy = f"more than {most} norms of tensors", "name fewer `steps` under measure:"
            raise SubjectError("too-large", what, where=LAYERS, remedy=remedy)
    return count, tensors


def layers(view: RunView) -> int:
    """Count the numbered layers whose tensors were looked at in the first step that was."""
    rows = _rows(view)
    first = next(rows, {})
    same = itertools.takewhile(lambda row: row.get(STEP) == first.get(STEP), rows)
    return len({layer_of(str(row.get(NAME))) for row in (first, *same)} - {""})


def _norm(cell: object, row: int) -> float | None:
    if cell is None:
        return None
    if not isinstance(cell, (int, float)) or isinstance(cell, bool) or cell < 0:
        raise _bad(row, "a norm is a number of 0 and more")
    try:
        return float(f"{float(cell):.6g}")
    except OverflowError:
        return math.inf


def _bad(row: int, what: str) -> SubjectError:
    return SubjectError("layer-rows", what, where=f"{LAYERS}, row {row}", remedy="bind the run as it was recorded")


def _of_another_run(view: RunView, tensors: Mapping[str, Logged], steps: list[int]) -> Unmeasured | None:
    """Return that the rows are not of this run's steps, or that nothing shows that they are."""
    every, sums = dict[int, float](), {"grad_used": dict[int, float](), "grad": dict[int, float]()}
    for one in tensors.values():
        every |= dict.fromkeys(one.steps, 0.0)
        for norm, by_step in sums.items():
            known = ((step, grad) for step, grad in zip(one.steps, one.norms[norm], strict=True) if grad is not None)
            by_step |= {step: math.hypot(by_step.get(step, 0.0), grad) for step, grad in known}
    added = every | sums["grad_used"] | sums["grad"]  # what arrived, where it was seen
    norms = _by_step(view, GRAD_NORM)
    both = [(step, added[step], norms[step]) for step in added if step in norms]
    apart = [one for one in both if not math.isclose(*one[1:], rel_tol=ALIKE) and all(map(math.isfinite, one[1:]))]
    remedy = "bind the run as it was recorded; hand rec.step() no grad_norm but that of all gradients as they arrived"
    if strange := sorted(added.keys() - set(steps)):
        why = f"{LAYERS} has step {strange[0]}, which the run did not log ({len(strange)} such steps)"
    elif apart:
        step, found, whole = apart[0]
        why = f"at step {step} the gradients of {LAYERS} add up to {found:.6g}, and the run logs a norm of {whole:.6g}"
    elif not both and view.layer_rows is None:
        why = f"the run logs no {GRAD_NORM} at the steps of {LAYERS}, so that nothing shows that both are of one run"
        remedy = RECORD
    else:
        return None
    return Unmeasured(code="layers-of-another", why=why, remedy=remedy)


def _by_step(view: RunView, name: str) -> dict[int, float]:
    column = view.column(name)
    return dict(zip(column.step, column.value, strict=True)) if column else {}


def _without_a_torn_step(tensors: dict[str, Logged]) -> None:
    """Leave out the last step where a killed run had not come to all of its tensors."""
    count = Counter(step for one in tensors.values() for step in one.steps)
    *_, before, last = [-1, -1, *sorted(count)]
    torn = [one for one in tensors.values() if one.steps[-1] == last and count[last] < count[before]]
    for one in torn:
        one.steps.pop()
        for values in one.norms.values():
            values.pop()
    for name in [name for name, one in tensors.items() if not one.steps]:
        del tensors[name]


def extent(views: Views, _options: Fields) -> int:
    """Count the rows that there are."""
    return sum(1 for _ in _rows(views[0]))


def canary(views: Views, _options: Fields, measured: Measurement) -> Canary | NoCanary:
    """Lay another gradient over the last row of the last of two tensors, and take its update away."""
    rows = rows_of(measured, TensorCourse)
    end = max(row.step[-1] for row in rows)
    few = [row for row in rows if row.step[-1] == end][-2:]
    shared = sorted(set.intersection(*(set(row.step) for row in few)))[-4:]
    kept = [_logged(row, step) for row in few for step in shared]
    if not all(math.isfinite(row[norm] or 0.0) for row in kept for norm in NORMS):
        return NoCanary("its norms are not finite")
    strange = 2 * max(row["grad"] or 0.0 for row in kept) + 2
    kept[-1] = {**kept[-1], "grad": float(f"{strange:.6g}"), "update": None}
    view: RunView = views[0]
    part: Any = {  # some tensors add up to less than the norm of all
        of: {name: one for name, one in getattr(view, of).items() if name != GRAD_NORM} for of in ("cells", "logged_as")
    }
    overlaid = replace(view, **part, layer_rows=tuple(kept))

    def seen(again: Measurement | Unmeasured) -> bool:
        return kept == [_logged(row, step) for row in rows_by_name(again).values() for step in row.step]

    return Canary(name="another gradient in the last row", place=few[-1].tensor, views=(overlaid,), seen=seen)


def _logged(row: TensorCourse, step: int) -> dict[str, Any]:
    at = row.step.index(step)
    return {NAME: row.tensor, STEP: step, **{norm: getattr(row, norm)[at] for norm in NORMS}}


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
