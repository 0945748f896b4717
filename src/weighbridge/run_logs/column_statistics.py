"""Raw statistics of the columns of a run, as plain numbers; no threshold, no name for what they mean.

NumPy in, plain floats out. Columns are float64 `[rows]`; `known` marks `[rows]` the finite numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from weighbridge.model import Fields, Json
from weighbridge.run_logs.cells import MISSING, NUMBER, UNREADABLE
from weighbridge.views.run import RunView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Marks = NDArray[np.bool_]

RANKED_ROWS = 1 << 14  # rank correlations are of at most so many evenly spaced rows
LARGEST_STEP = 2.0**53  # beyond, whole numbers have gaps
MANY_COLUMNS = 32  # beyond, pairs that were not logged in the same rows are ranked on fewer
PARTNER_ROWS = 256  # a relation's partner is chosen on so many rows; its deviation is over all


@dataclass(frozen=True, slots=True)
class Dense:
    """A column `[rows]`: its numbers, which rows hold a number, and which of those are finite."""

    values: Floats
    state: NDArray[np.uint8]
    known: Marks


def dense(view: RunView, name: str) -> Dense:
    """Take a column as arrays."""
    import numpy as np

    cells = view.dense(name)
    values = np.frombuffer(cells.values, dtype=np.float64) if view.rows else np.zeros(0)
    state = np.frombuffer(bytes(cells.state), dtype=np.uint8)
    return Dense(values, state, (state == NUMBER) & np.isfinite(values))


def counts(column: Dense, steps: Dense) -> Fields:
    """Count a column's cells by what they hold, and the steps of which no row holds a number."""
    import numpy as np

    numbers = column.state == NUMBER
    held = column.values[numbers]
    nan = np.isnan(held)
    infinite = np.isinf(held)
    return {
        "rows": len(column.values),
        "samples": int(numbers.sum()),
        "missing": int((column.state == MISSING).sum()),
        "unreadable": int((column.state == UNREADABLE).sum()),
        "nan": int(nan.sum()),
        "infinite": int(infinite.sum()),
        "first_nan_step": _first(steps, numbers & np.isnan(column.values)),
        "first_non_finite_step": _first(steps, numbers & ~np.isfinite(column.values)),
        "first_unreadable_step": _first(steps, column.state == UNREADABLE),
        **_steps_without(numbers, steps),
    }


def _first(steps: Dense, where: Marks) -> int | float | None:
    import numpy as np

    rows = np.flatnonzero(where & steps.known)
    return _step(steps.values[rows[0]]) if len(rows) else None


def _step(value: float) -> int | float:
    """Give a step as a whole number, where it is one that a float64 holds exactly."""
    return int(value) if abs(value) <= LARGEST_STEP else float(value)


def _steps_without(numbers: Marks, steps: Dense) -> Fields:
    """Count the steps of which no row holds a number, and name the first."""
    import numpy as np

    held = steps.values[steps.known & ~numbers]
    without = np.setdiff1d(held, steps.values[steps.known & numbers]) if len(held) else held
    return {
        "steps_missing": len(without),
        "first_missing_step": _step(without[0]) if len(without) else None,
    }


def distinct(column: Dense) -> int:
    """Count the different finite numbers of a column."""
    import numpy as np

    return len(np.unique(column.values[column.known]))


def order(steps: Dense) -> Fields:
    """Count what is out of order in the steps, and say where first: repeats, backward steps, the largest gap."""
    import numpy as np

    held = steps.values[steps.known]
    moves = np.diff(held)
    backward = np.flatnonzero(moves < 0)
    every, times = np.unique(held, return_counts=True)
    gaps = np.diff(every)
    widest = int(gaps.argmax()) if len(gaps) else -1
    return {
        "steps": len(every),
        "first_step": _step(every[0]) if len(every) else None,
        "last_step": _step(every[-1]) if len(every) else None,
        "fractional": int((held != np.floor(held)).sum()),
        "repeated_steps": int((times > 1).sum()),
        "first_repeated_step": _step(every[times > 1][0]) if (times > 1).any() else None,
        "backward_steps": len(backward),
        "first_backward_step": _step(held[backward[0] + 1]) if len(backward) else None,
        "largest_gap": _step(gaps[widest]) if widest >= 0 else 0,
        "largest_gap_after_step": _step(every[widest]) if widest >= 0 else None,
    }


def shape(column: Dense) -> Fields:
    """Describe how a column's finite numbers lie: range, evenness over the range, memory from one to the next.

    `uniform_ks_root_n`: Kolmogorov–Smirnov distance to the uniform law on [min, max], × √n.
    `lag1_root_n`: |lag-1 autocorrelation| × √n. `range_over_std`: (max - min) / population standard deviation.
    `relative_spread`: (max - min) / (|max| + |min|), 0 for a constant and 1 where the sign changes.
    """
    import numpy as np

    held = column.values[column.known]
    low, high = (float(held.min()), float(held.max())) if len(held) else (None, None)
    facts: dict[str, Json] = {
        "finite": len(held),
        "distinct": distinct(column),
        "min": low,
        "max": high,
    }
    if low is None or high is None or low == high:
        return facts | dict.fromkeys(("relative_spread", "range_over_std", "uniform_ks_root_n", "lag1_root_n"), 0.0)
    scale = max(abs(low), abs(high))
    unit = held / scale  # so that squares of huge or tiny numbers neither overflow nor vanish
    away = unit - unit.mean()
    variance = float((away * away).sum())
    root = math.sqrt(len(held))
    even = (np.sort(unit) - low / scale) / (high / scale - low / scale)
    turn = np.arange(len(held))
    distance = max(float((even - turn / len(held)).max()), float(((turn + 1) / len(held) - even).max()))
    return facts | {
        "relative_spread": (high / scale - low / scale) / (abs(high) / scale + abs(low) / scale),
        "range_over_std": (high / scale - low / scale) / math.sqrt(variance / len(held)) if variance else 0.0,
        "uniform_ks_root_n": distance * root,
        "lag1_root_n": abs(float((away[:-1] * away[1:]).sum())) / variance * root if variance else 0.0,
    }


def rank_correlations(columns: Mapping[str, Dense]) -> Mapping[str, Fields]:
    """Give each column's largest |rank correlation| × √n with another, ties at their mean rank, and that other."""
    import numpy as np

    names = list(columns)
    some = [_every(columns[name], RANKED_ROWS) for name in names]
    strengths, told = _correlations(some), np.zeros((len(names), len(names)), dtype=bool)
    for group in _alike(some):
        told[np.ix_(group, group)] = True
    fewer = some if len(names) <= MANY_COLUMNS else [_every(columns[name], PARTNER_ROWS) for name in names]
    for left, right in np.argwhere(np.tril(~told, -1)):
        both = fewer[left].known & fewer[right].known
        strength = _correlation(_ranks(fewer[left].values[both]), _ranks(fewer[right].values[both]))
        strengths[left, right] = strengths[right, left] = strength
    np.fill_diagonal(strengths, -1.0)
    best = strengths.argmax(axis=1) if len(names) > 1 else [0] * len(names)
    return {name: _strongest(names, strengths[place], int(best[place])) for place, name in enumerate(names)}


def _strongest(names: Sequence[str], strengths: Floats, best: int) -> Fields:
    strength = float(strengths[best])
    found = strength > 0
    return {"rank_correlation_root_n": strength if found else 0.0, "correlated_with": names[best] if found else ""}


def _alike(columns: Sequence[Dense]) -> Sequence[Sequence[int]]:
    """Group the places of columns that hold a number in the very same rows."""
    groups: dict[bytes, list[int]] = {}
    for place, column in enumerate(columns):
        groups.setdefault(column.known.tobytes(), []).append(place)
    return tuple(groups.values())


def _correlations(columns: Sequence[Dense]) -> Floats:
    """Give |correlation| × √n of the ranks `[columns, columns]` of columns known in the same rows, 0 for the others."""
    import numpy as np

    strengths = np.zeros((len(columns), len(columns)))
    for group in _alike(columns):
        ranked = np.stack([_ranks(columns[place].values[columns[place].known]) for place in group])
        squares = (ranked * ranked).sum(axis=1)
        norm = np.sqrt(squares[:, None] * squares[None, :])
        rows = ranked.shape[1]
        if rows > 2:
            crossed = np.abs(ranked @ ranked.T)
            strengths[np.ix_(group, group)] = np.divide(crossed, norm, where=norm > 0, out=np.zeros_like(norm))
            strengths[np.ix_(group, group)] *= math.sqrt(rows)
    return strengths


def _every(column: Dense, rows: int) -> Dense:
    """Thin a column to at most so many evenly spaced rows."""
    stride = -(-len(column.values) // rows) or 1
    return Dense(column.values[::stride], column.state[::stride], column.known[::stride])


def _correlation(one: Floats, other: Floats) -> float:
    """Give |correlation| × √n of two columns of centred ranks; two points always lie on a line."""
    norm = math.sqrt(float((one * one).sum()) * float((other * other).sum()))
    return abs(float((one * other).sum())) / norm * math.sqrt(len(one)) if norm and len(one) > 2 else 0.0


def _ranks(values: Floats) -> Floats:
    import numpy as np

    if not len(values):
        return values
    _, place, times = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (np.cumsum(times) - (times - 1) / 2)[place]
    centred: Floats = ranks - ranks.mean()
    return centred


def relations(columns: Mapping[str, Dense]) -> Mapping[str, Sequence[Fields]]:
    """Give each column's closest constant product and quotient with another column, and its closest line in the step.

    `deviation` is of the product or quotient: (max - min) / (|max| + |min|) over the rows where both are finite and
    not zero; of the line: largest residual over the column's range. `constant` is its middle, or the slope.
    """
    names = [name for name in columns if name != "step"]
    found: dict[str, list[Fields]] = {name: [] for name in columns}
    partners = {kind: _partners(kind, columns) for kind in ("product", "quotient")}
    for name in names:
        for kind in ("product", "quotient"):
            partner = partners[kind][name]
            if partner:
                earlier = names.index(partner) < names.index(name) if partner != "step" else True
                body = _relation(kind, columns[name], columns[partner])
                found[name].append({"kind": kind, "with": partner, "earlier": earlier, **body})
        line = _line(columns[name], columns["step"])
        if line:
            found[name].append({"kind": "linear", "with": "step", "earlier": True, **line})
    return found


def _partners(kind: str, columns: Mapping[str, Dense]) -> Mapping[str, str]:
    """Choose for each column the other one whose product or quotient with it is the steadiest on a few rows."""
    import numpy as np

    few = {name: _every(column, PARTNER_ROWS) for name, column in columns.items()}
    values = np.stack([column.values for column in few.values()])
    usable = np.stack([column.known & (column.values != 0) for column in few.values()])
    varies = {name: _varies(column) for name, column in few.items()}
    partners: dict[str, str] = {}
    for place, name in enumerate(few):
        deviations = _deviations(kind, values[place], values, usable & usable[place]) if varies[name] else ()
        able = [
            (float(deviation), other)
            for deviation, other in zip(deviations, few, strict=False)
            if deviation < math.inf and other != name and varies[other]
        ]
        partners[name] = min(able)[1] if able else ""
    return partners


def _deviations(kind: str, one: Floats, others: Floats, both: Marks) -> Floats:
    """Give the deviation of a column's product or quotient with each other `[columns]`; infinite where there is none.

    `others` and `both` are `[columns, rows]`.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        formed = one * others if kind == "product" else one / others
        low, high = np.where(both, formed, math.inf).min(axis=1), np.where(both, formed, -math.inf).max(axis=1)
        size = np.abs(low) + np.abs(high)
        deviation = np.where((size > 0) & np.isfinite(size), (high - low) / size, 1.0)
    finite = np.where(both, np.isfinite(formed), True).all(axis=1) & both.any(axis=1)
    return np.where(finite, deviation, math.inf)


def _varies(column: Dense) -> bool:
    held = column.values[column.known]
    return bool(len(held)) and bool(held.min() != held.max())


def _relation(kind: str, one: Dense, other: Dense) -> dict[str, int | float]:
    import numpy as np

    both = one.known & other.known & (one.values != 0) & (other.values != 0)
    left, right = one.values[both], other.values[both]
    with np.errstate(all="ignore"):
        formed = left * right if kind == "product" else left / right
    if not len(formed) or not np.isfinite(formed).all():
        return {"over": 0, "deviation": 1.0, "constant": 0.0}
    low, high = float(formed.min()), float(formed.max())
    size = abs(low) + abs(high)
    deviation = (high - low) / size if 0 < size < math.inf else 1.0
    return {"over": len(formed), "deviation": deviation, "constant": (low + high) / 2}


def _line(column: Dense, steps: Dense) -> dict[str, int | float]:
    import numpy as np

    both = column.known & steps.known
    held, step = column.values[both], steps.values[both]
    if len(held) < 3 or held.min() == held.max() or step.min() == step.max():
        return {}
    scale = float(np.abs(held).max())
    unit, along = held / scale, step - step.mean()
    slope = float((along * (unit - unit.mean())).sum()) / float((along * along).sum())
    residual = np.abs(unit - unit.mean() - slope * along).max()
    return {
        "over": len(held),
        "deviation": float(residual) / float(unit.max() - unit.min()),
        "constant": slope * scale,
    }


def rate_agreement(columns: Mapping[str, Dense]) -> Fields:
    """Give the median of tokens_per_sec × wall_ms / 1000 / tokens over the rows that have all three, if any do."""
    import numpy as np

    if not {"tokens", "wall_ms"} <= columns.keys():
        return {"rate_rows": 0, "rate_over_tokens": None}
    rate, wall, tokens = columns["tokens_per_sec"], columns["wall_ms"], columns["tokens"]
    all_three = rate.known & wall.known & tokens.known & (tokens.values > 0)
    if not all_three.any():
        return {"rate_rows": 0, "rate_over_tokens": None}
    ratio = rate.values[all_three] * wall.values[all_three] / 1000 / tokens.values[all_three]
    return {"rate_rows": len(ratio), "rate_over_tokens": float(np.median(ratio))}
