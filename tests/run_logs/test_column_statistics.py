"""Statistics of columns are what plain Python counts, one row after the other."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.run_logs.column_statistics import Dense, counts, order
from weighbridge.run_logs.log_table import MISSING, NUMBER, UNREADABLE

STEPS = st.one_of(st.integers(0, 12).map(float), st.sampled_from([0.5, 3.25, 7.0]))
CELLS = st.tuples(st.sampled_from([MISSING, NUMBER, UNREADABLE]), st.sampled_from([0.0, 1.5, math.nan, math.inf]))


def dense(values: list[float], state: list[int] | None = None) -> Dense:
    kept = np.array(values, dtype=np.float64)
    states = np.array([NUMBER] * len(values) if state is None else state, dtype=np.uint8)
    return Dense(kept, states, (states == NUMBER) & np.isfinite(kept))


@given(st.lists(STEPS, min_size=1, max_size=30))
def test_every_step_that_is_out_of_order_is_counted(steps: list[float]) -> None:
    found = order(dense(steps))
    every = sorted(set(steps))
    assert (found.steps, found.first_step, found.last_step) == (len(every), every[0], every[-1])
    assert found.fractional == sum(not step.is_integer() for step in steps)
    assert found.repeated_steps == sum(times > 1 for times in Counter(steps).values())
    assert found.backward_steps + found.resumptions == sum(after < before for before, after in pairwise(steps))
    assert found.largest_gap == max((after - before for before, after in pairwise(every)), default=0)


@given(st.lists(CELLS, min_size=1, max_size=30))
def test_every_cell_is_a_number_missing_or_unreadable(cells: list[tuple[int, float]]) -> None:
    states, values = [state for state, _ in cells], [value for _, value in cells]
    steps = dense([float(row) for row in range(len(cells))])
    found = counts(dense(values, states), steps)
    numbers = [row for row, state in enumerate(states) if state == NUMBER]
    assert [found[name] for name in ("samples", "missing", "unreadable")] == [
        states.count(one) for one in (NUMBER, MISSING, UNREADABLE)
    ]
    assert found["nan"] == sum(math.isnan(values[row]) for row in numbers)
    assert found["infinite"] == sum(math.isinf(values[row]) for row in numbers)
    finite = [at for at, row in enumerate(numbers) if math.isfinite(values[row])]
    assert found["begins_not_finite"] == (finite[0] if finite else len(numbers))
    assert found["ends_not_finite"] == (len(numbers) - 1 - finite[-1] if finite else len(numbers))
    assert found["steps_missing"] == len(cells) - len(numbers)
    assert found["first_missing_step"] == next((row for row, state in enumerate(states) if state != NUMBER), None)
