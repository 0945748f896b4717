"""What a recorder logged of tensors, those of one block together: norms by group and step, for a person to look at."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

from weighbridge.core import SubjectError, dataclass
from weighbridge.run_logs.json_log import LAYERS
from weighbridge.verifiers.layer_course import layer_of
from weighbridge.views.run import RunView

MOST = 256 << 20  # bytes of layers.jsonl
GROUPS = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Norms by group of layers and step, `[groups][steps]`; None where nothing was logged."""

    names: tuple[str, ...]
    steps: tuple[float, ...]
    grad: tuple[tuple[float | None, ...], ...]
    change: tuple[tuple[float | None, ...], ...]  # update over weight
    zero: Mapping[str, int]  # tensors whose gradient is exactly 0, at how many steps
    more: int  # groups that are left out
    moved: Mapping[str, float]  # how far each tensor went: updates over its weight, added up


def layers_of(view: RunView) -> Layers | None:
    """Read what a recorder logged of tensors, tensors of one block together."""
    if view.layers is None or view.layers.stat().st_size > MOST:
        return None
    sums: dict[str, dict[float, dict[str, float]]] = {}
    steps: dict[float, None] = {}
    zero, moved = Counter[str](), dict[str, float]()
    try:
        for line in view.layers.read_text(encoding="utf-8").splitlines():
            row: dict[str, Any] = json.loads(line)
            name, step = str(row["name"]), float(row["step"])
            block = layer_of(name) or name.rpartition(".")[0] or name
            steps[step] = None
            cell = sums.setdefault(block, {}).setdefault(step, {})
            found = {
                "grad": row.get("grad_used", row.get("grad")),
                "weight": row.get("weight"),
                "update": row.get("update"),
            }
            zero.update([name] if found["grad"] == 0 else [])
            if found["weight"] and found["update"] is not None:
                moved[name] = moved.get(name, 0.0) + float(found["update"]) / float(found["weight"])
            for key, norm_of in found.items():
                if isinstance(norm_of, (int, float)):
                    cell[key] = cell.get(key, 0.0) + float(norm_of) ** 2
    except (ValueError, KeyError, TypeError) as problem:
        raise SubjectError("layer-rows", f"holds no row of layers ({problem})", where=LAYERS, remedy="") from None
    order, names = sorted(steps), list(sums)[:GROUPS]

    norms = {name: [{key: math.sqrt(square) for key, square in sums[name].get(step, {}).items()} for step in order]
             for name in names}  # fmt: skip
    change = {name: [one["update"] / one["weight"] if one.get("weight") and "update" in one else None for one in row]
              for name, row in norms.items()}  # fmt: skip
    return Layers(
        names=tuple(names),
        steps=tuple(order),
        grad=tuple(tuple(one.get("grad") for one in row) for row in norms.values()),
        change=tuple(map(tuple, change.values())),
        zero=dict(zero.most_common()),
        more=len(sums) - len(names),
        moved=moved,
    )
