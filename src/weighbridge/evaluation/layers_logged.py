"""What a recorder logged of tensors, those of one block together: norms by group and step, for a person to look at."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping

from weighbridge.core import dataclass
from weighbridge.verifiers.layer_course import NORMS, layer_of, logged
from weighbridge.views.run import RunView

MOST = 256 << 20  # bytes of layers.jsonl
GROUPS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Norms by group of layers and step, `[groups][steps]`; None where nothing was logged."""

    names: tuple[str, ...]
    steps: tuple[int, ...]
    grad: tuple[tuple[float | None, ...], ...]
    change: tuple[tuple[float | None, ...], ...]  # update over weight
    zero: Mapping[str, int]  # tensors whose gradient is exactly 0, at how many steps
    more: int  # groups that are left out
    moved: Mapping[str, float]  # how far each tensor went: updates over its weight, added up


def layers_of(view: RunView) -> Layers | None:
    """Read what a recorder logged of tensors, tensors of one block together."""
    if view.layers is None or view.layers.stat().st_size > MOST:
        return None
    groups: dict[str, dict[tuple[str, int], float]] = {}
    zero, moved, steps = Counter[str](), defaultdict[str, float](float), set[int]()
    for name, one in logged(view, {}, MOST)[1].items():
        group = groups.setdefault(layer_of(name) or name.rpartition(".")[0] or name, {})
        steps.update(one.steps)
        for step, arrived, used, weight, update in zip(one.steps, *(one.norms[norm] for norm in NORMS), strict=True):
            grad = arrived if used is None else used
            zero.update([name] if grad == 0 else [])
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
