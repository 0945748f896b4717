"""The course of a column: no spike is lost, three absences are told apart, and its size is bounded."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest
from tests.verifiers.weighing import recorded

from weighbridge.core import Measurement, dumps, plain
from weighbridge.evaluation.verification import VerifyRequest, verify
from weighbridge.evidence.bundle import unseal
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StepCourse
from weighbridge.run_logs.log_table import MISSING, Cells
from weighbridge.verifiers.step_course import BUCKETS, VERIFIER
from weighbridge.views.run import RunView


def a_run(columns: int, rows: int) -> RunView:
    """Return a run whose numbers take all their digits."""
    cells = {}
    for name in ("step", *(f"c{index}" for index in range(columns))):
        one = Cells(rows)
        values = range(rows) if name == "step" else (-1.23456789e-05 * (1 + row % 997) for row in range(rows))
        one.values, one.state = array("d", values), bytearray([1]) * rows
        cells[name] = one
    return RunView(rows=rows, cells=cells, logged_as={name: name for name in cells})


def courses(view: RunView) -> dict[str, StepCourse]:
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    return {row.column: row for row in rows_of(found, StepCourse)}


def test_a_spike_of_one_step_stays() -> None:
    view = a_run(1, 100_000)
    view.cells["c0"].values[65_432] = 7.0
    course = courses(view)["c0"]
    (at,) = (index for index, value in enumerate(course.greatest) if value == 7.0)
    assert (course.step[at] or 0) <= 65_432 < (course.step[at + 1] or 0)
    assert len(course.step) <= BUCKETS


def test_not_finite_exactly_zero_and_missing_are_three_counts() -> None:
    view = a_run(1, 10)
    view.cells["c0"].values[2], view.cells["c0"].values[3] = math.nan, 0.0
    view.cells["c0"].state[4] = MISSING
    course = courses(view)["c0"]
    at = {
        name: [index for index, count in enumerate(getattr(course, name)) if count]
        for name in ("nan", "zeros", "missing")
    }
    assert at == {"nan": [2], "zeros": [3], "missing": [4]}
    assert [course.least[index] for index in (2, 3, 4)] == [None, 0.0, None]


@pytest.mark.parametrize("columns", [1, 200])
def test_a_column_takes_64_kib_at_most_and_very_many_take_less(columns: int) -> None:
    view = a_run(columns, 4_000)
    for row in range(0, 4_000, 3):
        view.cells["c0"].values[row] = 0.0
    sizes = [len(dumps(plain(course))) for course in courses(view).values()]
    assert max(sizes) <= 64 << 10
    assert sum(sizes) <= 64 * (64 << 10)


def test_every_bundle_of_a_run_holds_the_course_of_every_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = VerifyRequest(
        contracts=("builtin:training-log",), subjects=(f"run={recorded(tmp_path / 'run')}",),
        evidence=tmp_path / "kept", ledger=tmp_path / "ledger",
    )  # fmt: skip
    (result,) = verify(asked, lambda _text: None)
    assert result.bundle is not None
    sealed = unseal(result.bundle.path).measured["step_course.run.default"]
    assert {"loss", "lr", "grad_norm", "wall_ms"} <= {row.column for row in rows_of(sealed, StepCourse)}
