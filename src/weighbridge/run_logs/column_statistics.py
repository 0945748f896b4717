"""Raw statistics of each column of a run, float64 `[rows]`, as plain numbers; no threshold, no name for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from weighbridge.core import NDArray, dataclass, np
from weighbridge.quantities.runs import QuickSteps, Recurrence, StepOrder, Stretch
from weighbridge.run_logs.log_table import MISSING, NOT_OWED, NUMBER, STEP, UNREADABLE
from weighbridge.views.run import RunView

Floats: TypeAlias = "NDArray[np.float64]"
Marks: TypeAlias = "NDArray[np.bool_]"
LARGEST_STEP = 2.0**53  # beyond, whole numbers have gaps
LONGEST_STRETCHES = 64  # of these the least likely are listed
NEAR = 8  # moves on either side of a stretch that are looked at, and as many that are no repetition
ENOUGH_MOVES = 3
PRINTED_ROWS = 256  # a printed resolution is looked for on so many samples
NEARLY = 3e-6  # of a number: nearer ones are the same with dust on it; float32 keeps 25 times as much
DUST = 1e-9  # of a number: what arithmetic in float64 leaves on a decimal
DECIMALS, BITS = range(17), range(-20, 80)  # powers that a resolution is looked for among
IN_A_ROW, SLOW_IN_A_ROW = 3, 16  # one short last batch is quick, a few first steps are slow: in a row is another thing
GAPS = 8  # widest gaps between times that are looked at


@dataclass(frozen=True, slots=True)
class Dense:
    """A column `[rows]`: its numbers, which rows hold a number, and which of those are finite."""

    values: Floats
    state: NDArray[np.uint8]
    known: Marks


def dense(view: RunView, name: str) -> Dense:
    """Return a column as arrays."""
    cells = view.dense(name)
    values = np.frombuffer(cells.values, dtype=np.float64) if cells.values else np.zeros(0)
    state = np.frombuffer(bytes(cells.state), dtype=np.uint8)
    return Dense(values, state, (state == NUMBER) & np.isfinite(values))


def counts(column: Dense, steps: Dense) -> Mapping[str, Any]:
    """Count a column's cells by what they hold, and the steps of which no row holds a number."""
    numbers = column.state == NUMBER
    nan, infinite = numbers & np.isnan(column.values), numbers & np.isinf(column.values)
    unreadable = column.state == UNREADABLE
    finite = np.flatnonzero(column.known[numbers])
    begins, ends = (finite[0], numbers.sum() - 1 - finite[-1]) if len(finite) else (numbers.sum(), numbers.sum())
    values = steps.values[steps.known & ~numbers & (column.state != NOT_OWED)]
    without = np.setdiff1d(values, steps.values[steps.known & numbers]) if len(values) else values
    return {
        "rows": len(column.values),
        "samples": int(numbers.sum()),
        "missing": int(((column.state == MISSING) | (column.state == NOT_OWED)).sum()),
        "unreadable": int(unreadable.sum()),
        "nan": int(nan.sum()),
        "infinite": int(infinite.sum()),
        "first_nan_step": _first(steps.values[nan & steps.known]),
        "first_non_finite_step": _first(steps.values[(nan | infinite) & steps.known]),
        "first_unreadable_step": _first(steps.values[unreadable & steps.known]),
        "begins_not_finite": int(begins),
        "ends_not_finite": int(ends),
        "steps_missing": len(without),
        "first_missing_step": _first(without),
    }


def _first(steps: Floats) -> int | float | None:
    """Return the first of some steps, as a whole number where it is one that a float64 holds exactly."""
    if not len(steps):
        return None
    first = float(steps[0])
    return int(first) if first.is_integer() and abs(first) <= LARGEST_STEP else first


# Both as NumPy has them, which loads its masked arrays for it: as long as all of a small log takes.
def _different(values: Floats) -> Floats:
    return np.unique(values, return_counts=True)[0]


def _median(values: Floats) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2 : len(values) // 2 + 1].mean())


def distinct(column: Dense) -> int:
    """Count the different finite numbers of a column."""
    return len(_different(column.values[column.known]))


def order(steps: Dense) -> StepOrder:
    """Count what is out of order in the steps, and find where first: repeats, backward steps, the largest gap."""
    values = steps.values[steps.known]
    falls = np.flatnonzero(np.diff(values) < 0) + 1
    reached = np.maximum.accumulate(values)[falls - 1]
    ends = np.append(falls[1:], len(values)) - 1  # a pass rises, so that its last step is its greatest
    resumed = (values[falls] > values[:1]) & (values[ends] >= reached)
    backward = falls[~resumed]
    every, times = np.unique(values, return_counts=True)
    gaps = np.diff(every)
    widest = slice(int(gaps.argmax()), None) if len(gaps) else slice(0)
    return StepOrder(
        steps=len(every),
        first_step=_first(every),
        last_step=_first(every[-1:]),
        fractional=int((values != np.floor(values)).sum()),
        repeated_steps=int((times > 1).sum()),
        first_repeated_step=_first(every[times > 1]),
        backward_steps=len(backward),
        first_backward_step=_first(values[backward]),
        largest_gap=_first(gaps[widest]) or 0,
        largest_gap_after_step=_first(every[widest]),
        resumptions=int(resumed.sum()),
    )


def cadences(columns: Mapping[str, Dense]) -> Mapping[str, Mapping[str, Any]]:
    """Return for each column how often it holds a number or owes none, where it lacks one longest, where several."""
    steps = columns[STEP]
    values = steps.values[steps.known]
    passes = np.cumsum(np.diff(values, prepend=values[:1]) < 0)
    alike: dict[bytes, Mapping[str, Any]] = {}  # most columns hold a number in the very same rows
    found = {}
    for name, column in columns.items():
        mine = ((column.state == NUMBER) | (column.state == NOT_OWED))[steps.known]
        marks = mine.tobytes()
        if marks not in alike:
            alike[marks] = _cadence(values[mine], passes[mine], values)
        found[name] = alike[marks]
    return found


def _cadence(mine: Floats, passes: NDArray[np.int64], values: Floats) -> Mapping[str, Any]:
    every = _different(mine)
    ends = np.concatenate(([values.min()], every, [values.max()])) if len(values) else every
    holes = np.diff(ends)
    widest = slice(int(holes.argmax()), None) if len(holes) else slice(0)
    order = np.lexsort((mine, passes))
    again = mine[order][1:][(np.diff(mine[order]) == 0) & (np.diff(passes[order]) == 0)]
    return {
        "interval": _median(np.diff(every)) if len(every) > 1 else None,
        "largest_hole": _first(holes[widest]) or 0,
        "hole_after_step": _first(ends[widest]),
        "logged_twice": len(_different(again)),
        "first_logged_twice": _first(np.sort(again)),
    }


def shape(column: Dense) -> Mapping[str, Any]:
    """Describe how a column's finite numbers lie: range, evenness over the range, memory from one to the next."""
    values = column.values[column.known]
    low, high = (float(values.min()), float(values.max())) if len(values) else (None, None)
    found: dict[str, Any] = {"finite": len(values), "distinct": distinct(column), "min": low, "max": high}
    if low is None or high is None or low == high:
        return found | dict.fromkeys(("relative_spread", "range_over_std", "uniform_ks_root_n", "lag1_root_n"), 0.0)
    scale = max(abs(low), abs(high))
    unit = values / scale  # so that squares of huge or tiny numbers neither overflow nor vanish
    away = unit - unit.mean()
    variance = float((away * away).sum())
    root = math.sqrt(len(values))
    even = (np.sort(unit) - low / scale) / (high / scale - low / scale)
    turn = np.arange(len(values))
    distance = max(float((even - turn / len(values)).max()), float(((turn + 1) / len(values) - even).max()))
    return found | {
        "relative_spread": (high / scale - low / scale) / (abs(high) / scale + abs(low) / scale),
        "range_over_std": (high / scale - low / scale) / math.sqrt(variance / len(values)) if variance else 0.0,
        "uniform_ks_root_n": distance * root,
        "lag1_root_n": abs(float((away[:-1] * away[1:]).sum())) / variance * root if variance else 0.0,
    }


def levels(column: Dense, steps: Dense) -> Mapping[str, Any]:
    """Describe a column's printed resolution, its most frequent number, its signs, and its least likely repetitions."""
    values = column.values[column.known]
    return {
        "resolution": _decimal(_some(values)),
        "commonest": int(np.unique(values, return_counts=True)[1].max(initial=0)),
        "recurrence": _recurrence(values),
        "negative": int((values < 0).sum()),
        "zeros": int((values == 0).sum()),
        "first_not_positive_step": _first(steps.values[column.known & (column.values <= 0) & steps.known]),
        "stretches": tuple(one for _, one in stretches_at(column, steps)),
    }


def _some(values: Floats) -> Floats:
    return values[:: -(-len(values) // PRINTED_ROWS) or 1]


def _recurrence(values: Floats) -> Recurrence | None:
    """Return the number that most samples come near, and how far the others that follow them lie from it."""
    ordered = np.sort(values[values != 0])
    times = np.searchsorted(ordered, ordered + NEARLY * np.abs(ordered), side="right") - np.arange(len(ordered))
    if not len(times) or times.max() < 2:
        return None
    value, band = float(ordered[times.argmax()]), NEARLY * abs(float(ordered[times.argmax()]))
    there = (values >= value) & (values <= value + band)
    after = values[1:][there[:-1] & ~there[1:]][:PRINTED_ROWS]
    alike = values[np.abs(values - 1.25 * value) <= 0.75 * abs(value)]  # half to twice as large: printed as it is
    unit = resolution(np.append(after, _some(alike)))
    unit = max(unit if unit < 1 else resolution(_some(values)), band)  # whole numbers among others were not printed so
    changes = _median(np.abs(after - value)) / unit if len(after) else 0.0
    return Recurrence(value=value, times=int(times.max()), changes=changes)


def resolution(values: Floats) -> float:
    """Return the largest power of 10 (not above 1) or of 2 that all of some numbers are multiples of."""
    scale = float(np.abs(values).max(initial=0.0))
    with np.errstate(over="ignore", invalid="ignore"):
        binary = next((2.0**-n for n in BITS if (np.ldexp(values, n) == np.floor(np.ldexp(values, n))).all()), 0.0)
    return max(_decimal(values), binary) or scale * 2.0**-53


def _decimal(values: Floats) -> float:
    """Return the power of 10, at most 1, that all of some numbers are multiples of but for dust, 0 where none is."""
    dust = DUST * np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        return next((10.0**-n for n in DECIMALS if (np.abs(np.round(values, n) - values) <= dust).all()), 0.0)


def stretches_at(column: Dense, steps: Dense) -> list[tuple[int, Stretch]]:
    """Return the runs of samples of one number that rounding explains worst, at most 8, each with its first place."""
    rows = np.flatnonzero(column.known)
    values, found = column.values[rows], dict[tuple[int, int], Stretch]()
    for share in (0.0, NEARLY):
        apart = np.abs(np.diff(values)) > share * np.abs(values[1:])
        begins = np.flatnonzero(np.r_[True, apart]) if len(values) else rows
        lengths = np.diff(np.r_[begins, len(values)])
        for at in np.argsort(-lengths, kind="stable")[:LONGEST_STRETCHES]:
            begin, end = int(begins[at]), int(begins[at] + lengths[at])
            value, dust = float(values[begin]), float(np.ptp(values[begin:end]))
            if end - begin < 2 or (begin, end) in found or dust > share * abs(value):  # what drifts comes far
                continue
            if share and len(set(np.sign(np.diff(values[begin:end]))) - {0}) < 2:  # what converges goes one way
                continue
            first, last = (_step_at(steps, int(rows[place])) for place in (begin, end - 1))
            near = dict(zip(("jump", "moves", "changes"), _nearby(values, begin, end, begins, dust), strict=True))
            one = Stretch(first_step=first, last_step=last, length=end - begin, value=value, dust=dust, **near)
            found[begin, end] = one
    likely = sorted(found.items(), key=lambda one: (1 - one[1].length) * math.log1p(min(one[1].jump, one[1].changes)))
    return [(begin, one) for (begin, _), one in likely[:8]]


def _step_at(steps: Dense, row: int) -> int | float | None:
    return _first(steps.values[row : row + 1][steps.known[row : row + 1]])


def _nearby(values: Floats, begin: int, end: int, begins: NDArray[np.int64], dust: float) -> tuple[float, float, float]:
    """Return jump, moves and changes of a run of equal numbers among its neighbours, in units of their resolution."""
    sides = values[max(begin - NEAR - 1, 0) : begin], values[end : end + NEAR + 1]
    moves = [np.abs(np.diff(side)) for side in sides]
    enough = [side for side in moves if len(side) >= ENOUGH_MOVES]
    turn = int(np.searchsorted(begins, begin))
    differing = values[begins[max(turn - NEAR, 0) : turn + NEAR + 1]]
    aside = begin - 1 if begin else end
    jump = abs(values[begin] - values[aside]) if aside < len(values) else 0.0
    unit = resolution(np.r_[sides[0], values[begin], sides[1], differing]) or 1.0
    unit = max(unit, NEARLY * abs(float(values[begin]))) if dust else unit
    liveliest = max((_median(side) for side in enough), default=0.0)
    # After its first few samples alone, only a number close to the last digit may have come there by rounding.
    changed = min(float(jump), abs(float(values[begin])))
    if len(differing) > ENOUGH_MOVES:
        changed = _median(np.abs(np.diff(differing)))
    return float(jump) / unit, liveliest / unit, changed / unit


def quick_steps(column: Dense, steps: Dense) -> QuickSteps | None:
    """Return the times below the widest gap that parts three times in a row from 16 in a row, or from half of all."""
    rows = np.flatnonzero(column.known & (column.values > 0))
    times = column.values[rows]
    ordered = _different(times)
    for gap in np.argsort(-(ordered[1:] / ordered[:-1]), kind="stable")[:GAPS]:
        quick = times <= ordered[gap]
        begin, length = _longest(quick)
        if length >= IN_A_ROW and (_longest(~quick)[1] >= SLOW_IN_A_ROW or 2 * quick.sum() <= len(times)):
            first, last = (_step_at(steps, int(rows[place])) for place in (begin, begin + length - 1))
            below, above = float(ordered[gap]), float(ordered[gap + 1])
            return QuickSteps(first_step=first, last_step=last, length=length, below_ms=below, above_ms=above)
    return None


def _longest(marks: Marks) -> tuple[int, int]:
    """Return where the longest run of marks begins, and how long it is."""
    edges = np.flatnonzero(np.diff(np.r_[False, marks, False].astype(np.int8)))
    begins, lengths = edges[::2], edges[1::2] - edges[::2]
    at = int(lengths.argmax()) if len(lengths) else 0
    return (int(begins[at]), int(lengths[at])) if len(lengths) else (0, 0)
