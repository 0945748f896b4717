"""The rows of a log as columns of numbers. Never guesses: what is not plainly a number is counted as unreadable."""

from __future__ import annotations

import heapq
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, compress
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from weighbridge.core import Fields, SubjectError, data, dataclass, field
from weighbridge.run_logs.log_file import no_rows
from weighbridge.run_logs.units import DATE

Sample: TypeAlias = tuple[float, int, str, object]  # when it was logged, its step, its name, and a number
STEP, EPOCH = "step", "epoch"
MISSING, NUMBER, UNREADABLE, NOT_OWED = 0, 1, 2, 3
_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(%|[KMGTk]i?B|B|[mk]?W|C|[KMG]?Hz|[mun]?s|min|h|tok/s)?\s*",
    re.ASCII,
)
_DAY, _CLOCK = r"(\d{4})[-/](\d\d)[-/](\d\d)", r"(\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?"
_TIME = re.compile(rf"\s*{_DAY}[ T]{_CLOCK}\s*", re.ASCII)
IS_NUMBER = bytes(int(state == NUMBER) for state in range(256))
UNITS = (
    *("", DATE, "%", "B", *(f"{size}{binary}B" for size in "KMGTk" for binary in ("i", ""))),
    *("mW", "kW", "W", "C", "KHz", "MHz", "GHz", "Hz", "ns", "us", "ms", "s", "min", "h", "tok/s"),
)
MAX_ROWS, MAX_COLUMNS, MAX_CELLS = 20_000_000, 512, 160_000_000
MAX_NAME = 200
DIGEST, MAX_DIGESTS = re.compile(r"[0-9a-fA-F]{64}"), 10_000


class Cells:
    """One column `[rows]`: a float64 and a state a row; it starts with `rows` missing cells."""

    __slots__ = ("digests", "state", "units", "values")

    def __init__(self, rows: int = 0) -> None:
        self.values = array("d", bytes(8 * rows))
        self.state = bytearray(rows)
        self.digests: dict[int, str] = {}  # by row, texts that are of SHA-256; not all of too many
        self.units = bytearray()  # as far as the last cell with a unit: its place in UNITS

    @classmethod
    def of(cls, values: array[float], state: bytearray) -> Cells:
        """Return a column of these values and states."""
        made = cls()
        made.values, made.state = values, state
        return made

    def add(self, cells: Sequence[object]) -> None:
        """Add cells as JSON gave them."""
        self._add(cells, plain={int, float}.issuperset(map(type, cells)))

    def add_texts(self, cells: Sequence[str]) -> None:
        """Add cells as CSV gave them."""
        together = "".join(cells)
        self._add(cells, plain=together.isascii() and "_" not in together)

    def _add(self, cells: Sequence[object], *, plain: bool) -> None:
        """Add plain numbers at once, and where one is none, each cell by itself."""
        before = len(self.values)
        if plain:
            try:
                self.values.extend(map(float, cells))  # type: ignore[arg-type]
            except (ValueError, OverflowError):
                del self.values[before:]
            else:
                self.state.extend(b"\x01" * len(cells))
                return
        for cell, (state, value, unit) in zip(cells, map(read_cell, cells), strict=True):
            if type(cell) is str and len(self.digests) <= MAX_DIGESTS and DIGEST.fullmatch(cell):
                self.digests[len(self.state)] = cell.lower()
            self.state.append(state)
            self.values.append(value)
            if unit:
                self.units.extend(bytes(len(self.state) - 1 - len(self.units)))
                self.units.append(UNITS.index(unit))

    def add_rows(self, other: Cells, rows: Sequence[int]) -> None:
        """Add these rows of another column, in this order."""
        self.values.extend(other.values[row] for row in rows)
        self.state.extend(other.state[row] for row in rows)

    def lengthen(self, rows: int) -> None:
        """Make it this long, with missing cells."""
        missing = max(rows - len(self.state), 0)
        self.values.frombytes(bytes(8 * missing))
        self.state.extend(bytes(missing))

    def numbers(self) -> Iterator[float]:
        """Return the numbers, without the rows that hold none."""
        return compress(self.values, self.state.translate(IS_NUMBER))

    def first(self, rows: int) -> Cells:
        """Return the cells of so many rows at the beginning."""
        return self.of(self.values[:rows], self.state[:rows])

    def units_said(self) -> set[str]:
        """Return the units of the cells that hold a number, "" among them where some say none."""
        places = self.units + bytes(len(self.state) - len(self.units))
        return {UNITS[place] for place in set(compress(places, self.state.translate(IS_NUMBER)))}

    def plain(self) -> Cells:
        """Return the cells with every number that has a unit, or is a date, as unreadable."""
        changed = self.of(self.values, self.state[:])
        for row, unit in enumerate(self.units):
            if unit:
                changed.state[row] = UNREADABLE
        return changed

    def owing_none(self, skipped: Cells) -> Cells:
        """Return the cells with those that are missing as not owed where another column holds a truth value `true`."""
        changed = self.of(self.values, self.state[:])
        for row, (state, value) in enumerate(zip(skipped.state, skipped.values, strict=True)):
            if self.state[row] == MISSING and state == UNREADABLE and value == 1.0:
                changed.state[row] = NOT_OWED
        return changed

    def times(self, factor: float) -> Cells:
        """Return the cells with every number so many times as large."""
        return self.of(array("d", [factor * value for value in self.values]), self.state)


@dataclass(frozen=True, slots=True)
class Log:
    """What a reader made of a log: columns `[rows]` by the name in the log, facts, events, and notes on the reading."""

    rows: int
    columns: Mapping[str, Cells]
    facts: Fields = field(default_factory=dict)
    events: tuple[Fields, ...] = ()
    notes: Fields = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)  # by column, as its header has it
    nan_filtered: frozenset[str] = frozenset()  # columns that the logger keeps free of NaN, whatever happened
    recorded: bool = False  # whether a recorder wrote it
    heads: tuple[Fields, ...] = ()  # a recorder's run.json, of each attempt, where all have complete provenance


@dataclass(frozen=True, slots=True)
class LogFormat:
    """A format of another package: its suffix without the dot; `read` puts file digests by name into the dict given."""

    name: str
    read: Callable[[Path, dict[str, str]], Log]


class TableBuilder:
    """Collects rows into columns; `where` names the log in errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.rows = 0
        self.columns: dict[str, Cells] = {}

    def add_mappings(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Add rows of JSON."""
        names = dict.fromkeys(chain.from_iterable(rows))
        self.open(names, len(rows))
        for name in names:
            self.columns[name].add([row.get(name) for row in rows])
        for name in self.columns.keys() - names.keys():
            self.columns[name].lengthen(self.rows + len(rows))
        self.rows += len(rows)

    def add_texts(self, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add rows of CSV, each as long as `names`."""
        self.open(dict.fromkeys(names), len(rows))
        for name, cells in zip(names, zip(*rows, strict=True), strict=True):
            self.columns[name].add_texts(cells)
        self.rows += len(rows)

    def open(self, names: Mapping[str, object], more: int) -> None:
        """Make room for `more` rows of these columns before any is kept; refuse with `too-large` or `column-name`."""
        rows, fresh = self.rows + more, [one for one in names if one not in self.columns]
        if (columns := len(self.columns) + len(fresh)) > MAX_COLUMNS or rows > MAX_ROWS or rows * columns > MAX_CELLS:
            what = f"{rows} rows of {columns} columns and more"
            remedy = f"at most {MAX_ROWS} rows, {MAX_COLUMNS} columns and {MAX_CELLS} cells are read"
            raise SubjectError("too-large", what, where=self.where, remedy=remedy)
        for name in fresh:
            if len(name) > MAX_NAME or not name.isprintable():
                what = f"a column's name is not a line of at most {MAX_NAME} printable characters: {name[:40]!r}"
                raise SubjectError("column-name", what, where=self.where, remedy="give the column a plain name")
            self.columns[name] = Cells(self.rows)


class StepTable(TableBuilder):
    """Collects cells by step and name; a step that has the name already begins a new row, as a resumed run's does."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self._latest: dict[int, int] = {}
        self._steps = Cells()

    def add(self, step: int | None, cells: Mapping[str, object], beside: Mapping[str, object] | None = None) -> None:
        """Put cells on the latest row of a step that has none of them, else on a new one; `beside` where there is none.

        What stands beside does not make a row: it is said again with each part of one.
        """
        columns, row = self.columns, -1 if step is None else self._latest.get(step, -1)
        everything = {**(beside or {}), **cells}
        for name in [one for one in everything if one not in columns]:
            self.open({name: None}, 0)
        if row < 0 or any(row < len(columns[name].state) and columns[name].state[row] for name in cells):
            row = self._new(step)
        for name, cell in everything.items():
            column = columns[name]
            column.lengthen(row + 1)
            if name in cells or not column.state[row]:
                column.state[row], column.values[row], _unit = read_cell(cell)

    def _new(self, step: int | None) -> int:
        if self.rows >= MAX_ROWS or self.rows * len(self.columns) > MAX_CELLS:
            what, remedy = f"{self.rows} rows and more", f"at most {MAX_ROWS} rows and {MAX_CELLS} cells are read"
            raise SubjectError("too-large", what, where=self.where, remedy=remedy)
        self._steps.add([step])
        if step is not None:
            self._latest[step] = self.rows
        self.rows += 1
        return self.rows - 1

    def log(self, *, facts: Fields, notes: Fields, units: Mapping[str, str]) -> Log:
        """Return what was collected; refuse with `no-rows` where that is nothing."""
        if not self.rows:
            raise no_rows(Path(self.where))
        for column in self.columns.values():
            column.lengthen(self.rows)
        steps = {STEP: self._steps} if self._latest else {}
        columns = steps | {name: one for name, one in self.columns.items() if name not in steps}
        return Log(self.rows, columns, facts=facts, notes=notes, units=units)


def joined(path: Path, series: Iterable[Iterable[Sample]], *, facts: Fields, notes: Fields) -> Log:
    """Join series that were each logged in order, in the order of time; each keeps its own where a clock was set."""
    table = StepTable(path)
    for _when, step, name, value in heapq.merge(*series, key=itemgetter(0)):
        table.add(step, {name: value})
    return table.log(facts=facts, notes=notes, units={})


def standard_names(logged: Iterable[str], given: Mapping[str, str]) -> dict[str, str]:
    """Return logged names by standard name: as given, else own, else alias, however it is spelled (`Train Loss`)."""
    remaining = [name for name in logged if name not in given.values()]
    names = {standard: name for standard, name in given.items() if name in set(logged)}
    taken = set(given) | set(remaining)
    spelled = {one.lower().replace(" ", "_"): one for one in reversed(remaining)} | {one: one for one in remaining}
    known = data.table("run_logs/aliases").items()
    aliases = {of: next((spelled[one] for one in (*others, of) if one in spelled), "") for of, others in known}
    alias_of = {name: standard for standard, name in aliases.items() if standard not in taken}
    return names | {alias_of.get(name, name): name for name in remaining if name not in given}


def read_cell(cell: object) -> tuple[int, float, str]:
    """Read one cell as (state, number, unit); the number is 0.0 and the unit empty where there is none."""
    if cell is None:
        return MISSING, 0.0, ""
    if isinstance(cell, str):
        return _read_text(cell)
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return UNREADABLE, float(cell is True), ""
    try:
        return NUMBER, float(cell), ""
    except OverflowError:
        return UNREADABLE, 0.0, ""


def _read_text(text: str) -> tuple[int, float, str]:
    word = text.strip().lower()
    if word in {"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "null", "none"}:
        return MISSING, 0.0, ""
    if len(word) > 64:
        return UNREADABLE, 0.0, ""
    if word in {"nan", "+nan", "-nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}:
        return NUMBER, float(word), ""
    if match := _QUANTITY.fullmatch(text):
        return NUMBER, float(match[1]), match[2] or ""
    if (match := _TIME.fullmatch(text)) is None:
        return UNREADABLE, 0.0, ""
    year, month, day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{clock}.{(fraction or '0').ljust(6, '0')}{zone or 'Z'}")
        return NUMBER, moment.astimezone(UTC).timestamp(), DATE
    except (ValueError, OverflowError):
        return UNREADABLE, 0.0, ""
