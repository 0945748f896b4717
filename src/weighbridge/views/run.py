"""A run as columns of numbers over steps, whatever it was logged to, with overlays that leave the log untouched."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from array import array
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import Fields, Origin, SubjectError, WeighbridgeError, bare, is_folder, local_path
from weighbridge.core.plugins import Brought
from weighbridge.run_logs import log_table
from weighbridge.run_logs.csv_log import read_csv
from weighbridge.run_logs.json_log import decode, read_jsonl, read_report, read_run_directory
from weighbridge.run_logs.log_file import open_regular
from weighbridge.run_logs.log_table import IS_NUMBER, MISSING, NUMBER, UNREADABLE, Cells, Log, LogFormat, standard_names
from weighbridge.run_logs.units import PLAIN, factor

STEP = log_table.STEP
Names: TypeAlias = Mapping[str, str]
SKIPPED, GRAD_NORM = "skipped", "grad_norm"
_MAX_STEP = 2.0**53
SUFFIXES = {".csv": read_csv, ".tsv": read_csv, ".jsonl": read_jsonl, ".ndjson": read_jsonl}
BROUGHT: Brought[LogFormat] = Brought("reader of run logs", [*(suffix[1:] for suffix in SUFFIXES), "json"])
TELL = "tell whoever wrote that reader"
FORMATS = (
    "a recorder's run directory, JSONL (.jsonl, .ndjson), CSV (.csv, .tsv; nvidia-smi's too), "
    "and a JSON report (.json; trainer_state.json too)"
)


@dataclass(frozen=True, slots=True)
class Column:
    """`value[i]` was logged at `step[i]`; `stepless` counts numbers in rows whose step is unknown, the others cells."""

    step: array[int]
    value: array[float]
    missing: int
    unreadable: int
    stepless: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """The rows of a run by standard names where known; `logged_as` gives the log's own, `notes` what reading found."""

    rows: int
    cells: Mapping[str, Cells]
    logged_as: Mapping[str, str]
    facts: Fields = field(default_factory=dict)
    events: tuple[Fields, ...] = ()
    notes: Fields = field(default_factory=dict)
    nan_filtered: frozenset[str] = frozenset()
    origin: Origin = Origin.FIXTURE
    digests: Mapping[str, str] = field(default_factory=dict)
    overlay: Mapping[tuple[int, str], float | None] = field(default_factory=dict)

    @property
    def started(self) -> str:
        """Return when it began, in UTC, as a run of complete provenance tells; empty where that is not known."""
        if self.origin is not Origin.LIVE:
            return ""
        began = dt.datetime.fromisoformat(str(self.facts["started"])).astimezone(dt.UTC)
        return began.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def program(self) -> tuple[str, bool | None]:
        """Return the commit that the run is of, and whether the tree had changed since, as run.json tells."""
        commit, dirty = self.facts.get("commit"), self.facts.get("dirty")
        known = isinstance(commit, str) and re.fullmatch(r"[0-9a-f]{7,64}", commit) is not None
        return (str(commit), dirty if isinstance(dirty, bool) else None) if known else ("", None)

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the name of every column of numbers, `step` among them, in the order of the log."""
        return tuple(self.cells)

    def dense(self, name: str) -> Cells:
        """Return a column's cells `[rows]`, overlays applied."""
        cells, overlay = self.cells[name], {row: value for (row, at), value in self.overlay.items() if at == name}
        if not overlay:
            return cells
        changed = Cells()
        changed.values, changed.state = cells.values[:], cells.state[:]
        for row, value in overlay.items():
            changed.values[row] = 0.0 if value is None else value
            changed.state[row] = MISSING if value is None else NUMBER
        return changed

    def column(self, name: str) -> Column | None:
        """Return a column's samples, by standard name or by its name in the log; None where there is no such column."""
        known = self.named(name)
        if known is None:
            return None
        cells, steps = self.dense(known), self.dense(STEP)
        present = cells.state.translate(IS_NUMBER)
        whole = bytes(steps.state.translate(IS_NUMBER))  # whether it is a whole number that a step can be, `[rows]`
        if not all(map(float.is_integer, steps.values)) or max(map(abs, steps.values), default=0.0) > _MAX_STEP:
            pairs = zip(whole, steps.values, strict=True)
            whole = bytes(known and value.is_integer() and abs(value) <= _MAX_STEP for known, value in pairs)
        both = (int.from_bytes(present, "big") & int.from_bytes(whole, "big")).to_bytes(self.rows, "big")
        step, value = array("q", map(int, compress(steps.values, both))), array("d", compress(cells.values, both))
        unreadable = cells.state.count(UNREADABLE)
        missing = self.rows - unreadable - present.count(1)
        return Column(step, value, missing, unreadable, stepless=present.count(1) - both.count(1))

    def named(self, name: str) -> str | None:
        """Find a column's standard name by that name or by its name in the log."""
        if name in self.cells:
            return name
        return next((standard for standard, logged in self.logged_as.items() if logged == name), None)

    def cut(self, rows: Sequence[int]) -> RunView:
        """Return the view of these rows only, in this order."""
        cells = {name: Cells() for name in self.cells}
        for name, picked in cells.items():
            column = self.dense(name)
            picked.values.extend(column.values[row] for row in rows)
            picked.state.extend(column.state[row] for row in rows)
        return dataclasses.replace(self, rows=len(rows), cells=cells, overlay={})

    def overlaid(self, row: int, column: str, value: float | None) -> RunView:
        """Return the view with another number, or a missing cell (None), over one cell."""
        return dataclasses.replace(self, overlay={**self.overlay, (row, column): value})

    def with_events(self, events: Sequence[Fields]) -> RunView:
        """Return the view with other events."""
        return dataclasses.replace(self, events=tuple(events))

    def digest(self) -> Mapping[str, str]:
        """Return the SHA-256 of every file that was read, by its name."""
        return self.digests


def open_run(target: str | Path, columns: Names | None = None, units: Names | None = None) -> RunView:
    """Open a run's directory or log; `columns` maps standard names to logged ones, `units` to the units logged."""
    path = local_path(str(target))
    if path is None:
        what, remedy = "runs are read on this machine only", "fetch it, bind its path"
        raise SubjectError("run-elsewhere", what, where=bare(str(target)), remedy=remedy)
    digests: dict[str, str] = {}
    read = read_run_directory if is_folder(path) else SUFFIXES.get(path.suffix)
    if read is None:
        brought = BROUGHT.get(path.suffix[1:]) if path.suffix not in ("", ".json") else None
        read = partial(_read_brought, brought.read) if brought else _by_content
    log = read(path, digests)
    names = standard_names(log.columns, columns or {})
    cells: dict[str, Cells] = {}
    for name, logged in names.items():
        mapped = (columns or {}).get(name, name) != name
        times = partial(factor, name, logged, (units or {}).get(name, ""), mapped=mapped, where=str(path))
        one = _in_its_unit(name, log.columns[logged], {log.units.get(logged, "")}, times)
        if NUMBER in one.state or UNREADABLE not in one.state:  # else texts; one of numbers may lack some of them
            cells[name] = one
    if SKIPPED in log.columns and GRAD_NORM in cells:  # a step without an update has no norm of one
        cells[GRAD_NORM] = cells[GRAD_NORM].owing_none(log.columns[SKIPPED])
    notes = dict(log.notes)
    if STEP not in cells:
        counted = Cells(log.rows)
        counted.values, counted.state = array("d", range(log.rows)), bytearray([NUMBER]) * log.rows
        cells = {STEP: counted, **cells}
        notes["steps_are_row_numbers"] = True
    if "no_header" in notes and not set(names.values()).isdisjoint((columns or {}).values()):
        notes["mapped_by_place"] = notes.pop("no_header")
    logged_as = {name: names.get(name, "") for name in cells}
    filtered = frozenset(name for name in cells if names.get(name) in log.nan_filtered)
    kept: dict[str, Any] = {"rows": log.rows, "facts": log.facts, "events": log.events, "notes": notes}
    origin = Origin.LIVE if log.traced else Origin.FIXTURE
    return RunView(cells=cells, logged_as=logged_as, nan_filtered=filtered, origin=origin, digests=digests, **kept)


def _in_its_unit(
    name: str, cells: Cells, header: AbstractSet[str], times: Callable[[AbstractSet[str]], float]
) -> Cells:
    """Return a column in the unit that its standard name promises; the header speaks for the cells that say none."""
    if name in PLAIN:
        return cells.plain() if cells.units else cells
    said = cells.units_said()
    by = times((said - {""}) | header if "" in said or header != {""} else said)
    return cells if by == 1.0 else cells.times(by)


def _read_brought(read: Callable[[Path, dict[str, str]], Log], path: Path, digests: dict[str, str]) -> Log:
    """Read a log with the reader of another package."""
    try:
        log = read(path, digests)
    except WeighbridgeError:
        raise
    except Exception as error:  # noqa: BLE001 -- somebody else's code may raise anything
        what = f"the reader of {path.suffix} logs raised {type(error).__name__}: {error}"
        raise SubjectError("reader-raised", what, where=str(path), remedy=TELL) from None
    if type(log) is not Log or path.name not in digests:
        what = f"the reader of {path.suffix} logs returned no Log, or did not digest what it read"
        raise SubjectError("reader-raised", what, where=str(path), remedy=TELL)
    return log


def _by_content(path: Path, digests: dict[str, str]) -> Log:
    """Read a log whose name does not say what it is; refuse with `unknown-format` where it is none that is read."""
    with open_regular(path) as file:
        head = file.read(1 << 16).decode("utf-8", "replace").lstrip("\ufeff")
    lines, read = [line for line in head.split("\n") if line.strip()], read_csv
    if len(lines) > 1 and lines[1].startswith("{") and _is_object(lines[0]):
        read = read_jsonl  # which has an object in line one and begins one in line two
    elif path.suffix == ".json" or any(line.lstrip().startswith(("{", "[")) for line in lines):
        read = read_report
    try:
        log = read(path, digests)
    except SubjectError as problem:
        not_this = ("log-syntax", "column-name", "not-utf8", "no-rows", "line-too-long")
        if path.suffix == ".json" or problem.code not in not_this:
            raise
        raise _unknown(path, f"{problem.what} at {problem.where}") from None
    if not any(NUMBER in cells.state for cells in log.columns.values()):
        raise _unknown(path, "no column of it holds a number")
    return log


def _unknown(path: Path, why: str) -> SubjectError:
    what, remedy = f"this is no log of a format that is read ({why})", f"bind one of these: {FORMATS}"
    return SubjectError("unknown-format", what, where=str(path), remedy=remedy)


def _is_object(line: str) -> bool:
    try:
        return isinstance(decode(line), dict)
    except ValueError:
        return False
