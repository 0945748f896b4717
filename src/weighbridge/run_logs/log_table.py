"""The rows of a log as columns, built in chunks, so that a million steps take memory for their numbers only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from weighbridge.errors import SubjectError
from weighbridge.model import Fields
from weighbridge.run_logs.cells import Cells

MAX_ROWS = 20_000_000
MAX_COLUMNS = 512
MAX_CELLS = 160_000_000
MAX_NAME = 200


@dataclass(frozen=True, slots=True)
class Log:
    """What a reader made of a log: columns `[rows]` by the name in the log, facts, events, and notes on the reading."""

    rows: int
    columns: Mapping[str, Cells]
    facts: Fields = field(default_factory=dict)
    events: tuple[Fields, ...] = ()
    notes: Fields = field(default_factory=dict)
    traced: bool = False  # whether the reader found a recorder's run.json with complete provenance


class TableBuilder:
    """Collects rows into columns; the only mutable thing between a file and a view."""

    def __init__(self, where: str) -> None:
        """Start empty; `where` names the log in errors."""
        self.where = where
        self.rows = 0
        self.columns: dict[str, Cells] = {}

    def add_mappings(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows of JSON."""
        names = dict.fromkeys(chain.from_iterable(rows))
        self.open(names, len(rows))
        for name, cells in self.columns.items():
            if name in names:
                cells.add([row.get(name) for row in rows])
            else:
                cells.pad(len(rows))
        self.rows += len(rows)

    def add_texts(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add rows of CSV, each as long as `names`."""
        self.open(dict.fromkeys(names), len(rows))
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            self.columns[name].add_texts(cells)
        self.rows += len(rows)

    def open(self, names: Mapping[str, object], more: int) -> None:
        """Make room for `more` rows of these columns, before any of them is held in memory.

        Raises:
            SubjectError: `too-large` or `column-name`.
        """
        rows, columns = self.rows + more, len(self.columns.keys() | names.keys())
        if columns > MAX_COLUMNS or rows > MAX_ROWS or rows * columns > MAX_CELLS:
            what = f"{rows} rows of {columns} columns and more"
            remedy = f"at most {MAX_ROWS} rows, {MAX_COLUMNS} columns and {MAX_CELLS} cells are read"
            raise SubjectError("too-large", what, where=self.where, remedy=remedy)
        for name in [one for one in names if one not in self.columns]:
            if len(name) > MAX_NAME or not name.isprintable():
                what = f"a column's name is not a line of at most {MAX_NAME} printable characters: {name[:40]!r}"
                raise SubjectError("column-name", what, where=self.where, remedy="give the column a plain name")
            self.columns[name] = Cells(self.rows)
