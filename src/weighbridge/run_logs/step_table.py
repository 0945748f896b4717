"""Join what was logged apart into rows: what is logged at one step is one row, and what is logged twice is another."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import Fields, SubjectError
from weighbridge.run_logs.json_log import no_rows
from weighbridge.run_logs.log_table import MAX_CELLS, MAX_ROWS, STEP, Cells, Log, TableBuilder, read_cell

Sample: TypeAlias = tuple[float, int, str, object]  # when it was logged, its step, its name, and a number


class StepTable:
    """Collects cells by step and name; a step that has the name already begins a new row, as a resumed run's does."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        self._table = TableBuilder(str(path))
        self._latest: dict[int, int] = {}
        self._steps = Cells()

    def add(self, step: int | None, cells: Mapping[str, object], beside: Mapping[str, object] | None = None) -> None:
        """Put cells on the latest row of a step that has none of them, else on a new one; `beside` where there is none.

        What stands beside does not make a row: it is said again with each part of one.
        """
        columns, row = self._table.columns, -1 if step is None else self._latest.get(step, -1)
        everything = {**(beside or {}), **cells}
        for name in everything:
            if name not in columns:
                self._table.open({name: None}, self.rows)
                columns[name] = Cells()
        if row < 0 or any(row < len(columns[name].state) and columns[name].state[row] for name in cells):
            row = self._new(step)
        for name, cell in everything.items():
            column = columns[name]
            _lengthened(column, row + 1)
            if name in cells or not column.state[row]:
                column.state[row], column.values[row], _unit = read_cell(cell)

    def _new(self, step: int | None) -> int:
        if self.rows >= MAX_ROWS or self.rows * len(self._table.columns) > MAX_CELLS:
            what, remedy = f"{self.rows} rows and more", f"at most {MAX_ROWS} rows and {MAX_CELLS} cells are read"
            raise SubjectError("too-large", what, where=str(self._path), remedy=remedy)
        self._steps.add([step])
        if step is not None:
            self._latest[step] = self.rows
        self.rows += 1
        return self.rows - 1

    def log(self, *, facts: Fields, notes: Fields, units: Mapping[str, str]) -> Log:
        """Return what was collected; refuse with `no-rows` where that is nothing."""
        if not self.rows:
            raise no_rows(self._path)
        for column in self._table.columns.values():
            _lengthened(column, self.rows)
        steps = {STEP: self._steps} if self._latest else {}
        columns = steps | {name: one for name, one in self._table.columns.items() if name not in steps}
        return Log(self.rows, columns, facts=facts, notes=notes, units=units)


def _lengthened(column: Cells, rows: int) -> None:
    """Make a column this long, with missing cells."""
    missing = max(rows - len(column.state), 0)
    column.values.frombytes(bytes(8 * missing))
    column.state.extend(bytes(missing))


def joined(path: Path, series: Iterable[Iterable[Sample]], *, facts: Fields, notes: Fields) -> Log:
    """Join series that were each logged in order, in the order of time; each keeps its own where a clock was set."""
    table = StepTable(path)
    for _when, step, name, value in heapq.merge(*series, key=itemgetter(0)):
        table.add(step, {name: value})
    return table.log(facts=facts, notes=notes, units={})
