"""A run as columns of numbers over steps, whatever it was logged to, with overlays that leave the log untouched."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import Basis, Fields, Origin, SubjectError, bare, dataclass, field, np, replace, table
from weighbridge.core.local_files import exists, is_folder, local_path
from weighbridge.run_logs import log_table
from weighbridge.run_logs.book import Book, read_book, utc
from weighbridge.run_logs.formats.recognition import read_log
from weighbridge.run_logs.json_log import LAYERS, lack_of, ranks_inside
from weighbridge.run_logs.log_table import EPOCH, IS_NUMBER, MISSING, NOT_OWED, NUMBER, UNREADABLE, Cells
from weighbridge.run_logs.units import PLAIN, factor

STEP = log_table.STEP
Names: TypeAlias = Mapping[str, str]
SKIPPED, IDLE, FINITE, GRAD_NORM = "skipped", "idle_update", "gradients_finite", "grad_norm"
IS_OUT, IS_KNOWN = (bytes(state in states for state in range(256)) for states in ((NOT_OWED,), (NOT_OWED, NUMBER)))
_MAX_STEP = 2.0**53
# One number throughout may be a whole number of something, such as detectron2's samples an image, and a script's bound.
COUNT = re.compile(r"(?:.*/)?num_\w+")
SETTING = re.compile(r"(?:.*[_/])?(?:thresh|threshold|coef|coeff)|(?:.*/)?target_(?!\w*_share)\w+")
# The Trainer prints seconds to four decimals: of an evaluation in less than a millisecond they are always the same.
QUICK, MILLISECOND = re.compile(r"(?:.*[_/])?runtime"), 1e-3


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
    heads: tuple[Fields, ...] = ()  # run.json of each attempt, where all have complete provenance
    witness: Book | None = None
    digests: Mapping[str, str] = field(default_factory=dict)
    stated: Mapping[str, Mapping[int, str]] = field(default_factory=dict)  # digests in the log, by column and row
    overlay: Mapping[tuple[int, str], float | None] = field(default_factory=dict)
    ranks: tuple[RunView, ...] = ()  # of a folder of ranks: each of them, and no cells of its own
    folder: Path | None = None  # that it was recorded into, where files lie beside the rows
    layers: Path | None = None  # what is logged of tensors, read by those alone who need it
    layer_rows: tuple[Fields, ...] | None = None  # instead of the rows of that file, of a canary

    @property
    def unwitnessed(self) -> str:
        """Return what it lacks to be witnessed: provenance, or a book that stands for what was read so far."""
        if self.ranks:
            several = "no one witness saw all of its ranks" if len({one.book for one in self.ranks}) > 1 else ""
            return next(filter(None, (one.unwitnessed for one in self.ranks)), several)
        if self.witness is None:
            lacks = lack_of(self.facts) or "an attempt has no complete provenance"
            return lacks if "schema" in self.facts else ""  # of a log of others nothing is asked
        return self.witness.doubt(self.digests, self.heads) or self.witness.elsewhen(self._first_and_last())

    def _first_and_last(self) -> tuple[float, ...]:
        cells = self.cells.get("time", Cells())
        times = np.asarray(cells.values)[np.frombuffer(cells.state, np.uint8) == NUMBER]
        return (float(times.min()), float(times.max())) if len(times) else ()

    @property
    def origin(self) -> Origin:
        """Return LIVE for a run that a witness saw, REPORTED for one of complete provenance; FIXTURE for any other."""
        if not all(one.heads for one in self.ranks or (self,)):
            return Origin.FIXTURE
        return Origin.REPORTED if self.unwitnessed else Origin.LIVE

    @property
    def basis(self) -> Basis:
        """Return MEASURED for what is logged in a run that a witness saw, REPORTED in any other."""
        return Basis.MEASURED if self.origin is Origin.LIVE else Basis.REPORTED

    @property
    def book(self) -> str:
        """Return the digest of the book that stands for it; empty where none does."""
        witness = (self.ranks[0] if self.ranks else self).witness
        return "" if witness is None or self.origin is not Origin.LIVE else witness.digest

    @property
    def started(self) -> str:
        """Return when it began, in UTC, as a run of complete provenance tells; empty where that is not known."""
        if self.origin is Origin.FIXTURE:
            return ""
        return utc(dt.datetime.fromisoformat(str(self.facts["started"])).timestamp())

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
        if (known := self.named(name)) is None:
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
            picked.add_rows(self.dense(name), rows)
        texts = {name: {at: of[row] for at, row in enumerate(rows) if row in of} for name, of in self.stated.items()}
        return replace(self, rows=len(rows), cells=cells, overlay={}, stated=texts)

    def first(self, rows: int) -> RunView:
        """Return the view of so many rows at the beginning, and of the events up to the step of the last of them."""
        cells = {name: one.first(rows) for name, one in self.cells.items()}
        reached = max(cells[STEP].numbers(), default=-1.0)
        events = tuple(one for one in self.events if type(at := one.get(STEP)) is not int or at <= reached)
        texts = {name: {row: text for row, text in of.items() if row < rows} for name, of in self.stated.items()}
        return replace(self, rows=rows, cells=cells, events=events, stated=texts)

    def overlaid(self, row: int, column: str, value: float | None) -> RunView:
        """Return the view with another number, or a missing cell (None), over one cell."""
        return replace(self, overlay={**self.overlay, (row, column): value})

    def with_events(self, events: Sequence[Fields]) -> RunView:
        """Return the view with other events."""
        return replace(self, events=tuple(events))

    def digest(self) -> Mapping[str, str]:
        """Return the SHA-256 of every file that was read, by its name."""
        return self.digests


def open_run(target: str | Path, columns: Names | None = None, units: Names | None = None, lines: str = "") -> RunView:
    """Open a run's directory or log; `columns` and `units` go by standard name, `lines` is a text's pattern."""
    if (path := local_path(str(target))) is None:
        what = "runs are read on this machine only"
        raise SubjectError("run-elsewhere", what, where=bare(str(target)), remedy="fetch it, bind its path")
    digests: dict[str, str] = {}
    return view_of(read_log(path, digests, lines), path, digests, columns, units)


def view_of(log: log_table.Log, path: Path, digests: Names, columns: Names | None, units: Names | None) -> RunView:
    """Return the view of a log that was read, or that is being followed."""
    scaled = scales(log, path, columns, units)
    names = {name: logged for name, (logged, _) in scaled.items()}
    cells: dict[str, Cells] = {}
    for name, (logged, by) in scaled.items():
        one = log.columns[logged]
        one = one.plain() if name in PLAIN and one.units else one
        one = one if by == 1.0 else one.times(by)
        if NUMBER in one.state or UNREADABLE not in one.state:  # else texts; one of numbers may lack some of them
            cells[name] = one
    if SKIPPED in log.columns and GRAD_NORM in cells:  # a step without an update has no norm of one
        cells[GRAD_NORM] = cells[GRAD_NORM].owing_none(log.columns[SKIPPED])
    cells |= _updates(cells, log.rows) if log.recorded else {}
    facts, notes = {**_constants(cells, columns or {}), **log.facts}, dict(log.notes)
    if what := _several_runs(cells):
        remedy = "split it, and bind one of them, or map `step` to a column that goes on"
        raise SubjectError("several-runs", what, where=str(path), remedy=remedy)
    if STEP not in cells and EPOCH in cells:
        whole = set(cells[EPOCH].state) == {NUMBER} and all(map(float.is_integer, cells[EPOCH].values))
        if whole and all(after > before for before, after in itertools.pairwise(cells[EPOCH].values)):
            cells, notes["steps_are"] = {STEP: cells[EPOCH], **cells}, EPOCH
    if STEP not in cells:
        counted = Cells(log.rows)
        counted.values, counted.state = array("d", range(log.rows)), bytearray([NUMBER]) * log.rows
        cells = {STEP: counted, **cells}
        notes["steps_are_row_numbers"] = True
    if "no_header" in notes and not set(names.values()).isdisjoint((columns or {}).values()):
        notes["mapped_by_place"] = notes.pop("no_header")
    logged_as = {name: names.get(name, "") for name in cells}
    filtered = frozenset(name for name in cells if names.get(name) in log.nan_filtered)
    kept: dict[str, Any] = {"rows": log.rows, "facts": facts, "events": log.events, "notes": notes}
    kept["stated"] = {name: found for name, logged in names.items() if (found := log.columns[logged].digests)}
    kept["layers"] = path / LAYERS if exists(path / LAYERS) and "attempts" not in notes else None
    kept["folder"] = path if is_folder(path) else None
    kept |= {"heads": log.heads, "witness": read_book(path) if log.heads else None}
    return RunView(cells=cells, logged_as=logged_as, nan_filtered=filtered, digests=digests, **kept)


def scales(log: log_table.Log, path: Path, columns: Names | None, units: Names | None) -> dict[str, tuple[str, float]]:
    """Return, by standard name, what a log calls a column, and by what its numbers are multiplied."""
    found = {}
    for name, logged in log_table.standard_names(log.columns, columns or {}).items():
        header, said = {log.units.get(logged, "")}, log.columns[logged].units_said() if name not in PLAIN else {""}
        mapped = (columns or {}).get(name, name) != name
        said = (said - {""}) | header if "" in said or header != {""} else said  # a header speaks for cells without one
        given = (units or {}).get(name, "")
        by = 1.0 if name in PLAIN else factor(name, logged, given, said, mapped=mapped, where=str(path))
        found[name] = logged, by
    return found


def _updates(cells: Mapping[str, Cells], rows: int) -> dict[str, Cells]:
    """Return which steps of a recorder made no update, and which of these although no gradient forbade one."""
    # A step without a norm that is not said to have made none is unknown, but in a run that has no norm at all.
    known = cells[GRAD_NORM].state if GRAD_NORM in cells else bytes(rows)
    if NUMBER not in known:
        known = bytes([NOT_OWED]) * rows
    out, finite, found = known.translate(IS_OUT), cells.get(FINITE, Cells(rows)), (Cells(), Cells())
    for one in found:
        one.values, one.state = array("d", iter(out)), bytearray(known.translate(IS_KNOWN))
    for row in compress(range(rows), out):
        if finite.state[row] == NUMBER and finite.values[row] == 0:
            found[1].values[row] = 0.0
    return dict(zip((SKIPPED, IDLE), found, strict=True))


def open_ranks(folders: Sequence[Path], columns: Names | None = None, units: Names | None = None) -> RunView:
    """Open the ranks of one run at once; what is said of the run as a whole, the first of them says."""
    return of_ranks(folders, tuple(open_run(folder, columns, units) for folder in folders))


def of_ranks(folders: Sequence[Path], ranks: tuple[RunView, ...]) -> RunView:
    """Return the view of all ranks of one run."""
    named = zip(folders, ranks, strict=True)
    digests = {f"{folder.name}/{name}": digest for folder, one in named for name, digest in one.digests.items()}
    more: dict[str, Any] = {"facts": ranks[0].facts, "digests": digests, "ranks": ranks}
    return RunView(rows=sum(one.rows for one in ranks), cells={}, logged_as={}, **more)


def open_rank(folder: Path, columns: Names | None = None, units: Names | None = None) -> RunView:
    """Open one rank of a folder that holds all; refuse with `ranks-missing` where it does not."""
    view, here = open_run(folder, columns, units), len(ranks_inside(folder.parent))
    if (size := view.facts.get("world_size", here)) != here:
        what, remedy = f"{here} of {size} ranks are here", "bring them together, or bind each rank by itself"
        raise SubjectError("ranks-missing", what, where=str(folder.parent), remedy=remedy)
    return view


def _constants(cells: dict[str, Cells], given: Names) -> Fields:
    """Return what columns say that are constant by nature, and drop these; a contract keeps one by its name."""
    facts, constant = dict[str, Any](), table("views/constant_columns")
    maybe = (name for name in cells if name in constant or any(one.fullmatch(name) for one in (COUNT, QUICK, SETTING)))
    for name in [name for name in maybe if name not in given]:
        numbers = set(cells[name].numbers())
        number = next(iter(numbers), 0.0)
        natural = name in constant or bool(SETTING.fullmatch(name)) or number.is_integer()
        natural = number < MILLISECOND if QUICK.fullmatch(name) else natural
        if len(numbers) == 1 and UNREADABLE not in cells[name].state and natural:
            facts[name] = int(number) if number.is_integer() else number
            del cells[name]
    asked, steps = facts.get("max_steps", facts.get("total_steps")), cells.get(STEP)
    known = list(steps.numbers()) if steps else []
    if type(asked) is int and known and known[-1].is_integer():
        facts |= {"max_steps": asked, "global_step": int(known[-1])}  # it counts to what was asked
    return facts


def _several_runs(cells: Mapping[str, Cells]) -> str:
    """Return what tells of several writers: epochs that alone number the rows and begin again; all steps twice."""
    known = list((cells.get(STEP) or cells.get(EPOCH) or Cells()).numbers())
    if known == sorted(known):
        return ""
    falls = [after for before, after in itertools.pairwise(known) if before > after]
    if STEP not in cells and (again := falls.count(known[0])):
        return f"{1 + again} runs, one below the other, as its epochs say"
    if STEP in cells and len(falls) > 1 and min(Counter(known).values()) > 1:
        times = f"every step is there twice or more, and steps fall {len(falls)} times"
        return f"{times}: several runs or ranks wrote it, or each epoch counts anew"
    return ""
