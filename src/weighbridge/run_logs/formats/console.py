"""Read what training prints, a line a step: by the words of programs that are known, or by a person's pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeAlias

from weighbridge.core import Json, dataclass, field
from weighbridge.core.data import table
from weighbridge.run_logs.formats.line_pattern import line_pattern
from weighbridge.run_logs.log_file import batches
from weighbridge.run_logs.log_table import STEP, Log, StepTable

NUMBER: Final = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf))"
SIZES: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}  # as nanotron rounds its numbers
ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NO_SHARE: Final = -100.0  # percent
EVALUATED: Final = "val_loss"
OF_EVALUATION: Final = (EVALUATED, "eval/train_loss")
MAX_LINE: Final = 4000  # characters; no program prints a longer row


@dataclass(frozen=True, slots=True)
class Program:
    """How a program prints a row: how it begins, what it holds by pairs, and what some of them are called here."""

    name: str
    begins: re.Pattern[str]  # `step`, and `of` where it tells how many were asked for
    pair: re.Pattern[str]  # `name` and `value`, or `unit` where that alone tells what it is
    called: Mapping[str, str] = field(default_factory=dict)
    ended: str = ""


Row: TypeAlias = tuple[str, dict[str, object]]  # its step, if it tells one, and its cells
RowOf: TypeAlias = Callable[[str], Row | None]


@cache
def programs() -> tuple[Program, ...]:
    """Return the programs whose rows are known."""
    rows = table("run_logs/programs")
    found = ((row, re.compile(row["begins"]), re.compile(row["pair"].replace("{NUMBER}", NUMBER))) for row in rows)
    return tuple(Program(**row | {"begins": begins, "pair": pair}) for row, begins, pair in found)


def reader_of(line: str) -> Callable[[Path, dict[str, str]], Log] | None:
    """Return what reads the rows that a known program prints; None where the line is no row of one."""
    program = next((program for program in programs() if _row(program, {}, {}, line) is not None), None)
    return partial(_read_program, program=program) if program else None


def _read_program(path: Path, digests: dict[str, str], program: Program) -> Log:
    facts, units = dict[str, Json](), dict[str, str]()
    return _read(path, digests, partial(_row, program, facts, units), facts, units)


def read_lines(path: Path, digests: dict[str, str], pattern: str) -> Log:
    """Read the lines that a person's pattern fits; refuse with `pattern`, or with `no-rows` where it fits none."""
    found = line_pattern(pattern)

    def row(line: str) -> Row | None:
        cells = found.row(ANSI.sub("", line[:MAX_LINE]))
        return None if cells is None else (cells.pop(STEP, ""), {name: _number(one) for name, one in cells.items()})

    return _read(path, digests, row, {}, {})


def _row(program: Program, facts: dict[str, Json], units: dict[str, str], line: str) -> Row | None:
    text = ANSI.sub("", line[:MAX_LINE]).rstrip()
    start = program.begins.search(text)
    if start is None:
        if program.ended and program.ended in text:
            facts["status"] = "completed"
        return None
    said, cells = start.groupdict(), dict[str, object]()
    for pair in program.pair.finditer(text, start.end()):
        name, unit = pair["name"] or pair["unit"], pair["unit"] or ""
        if not name:
            continue
        name = program.called.get(name.strip(), program.called.get(name, name.strip()))
        name = f"validation/{name}" if said.get("other") else name
        number = _number(pair["value"], SIZES.get(unit, 1.0))
        if (name.startswith("mfu") and number == NO_SHARE) or (unit.strip() and pair["value"].lower().endswith("nan")):
            continue  # how a program says that it has not measured it yet
        cells[name] = number
        if unit.strip() and unit not in SIZES:
            units.setdefault(name, unit.strip())
    if EVALUATED in cells:  # the clock of an evaluation is not that of the step that has the same number
        cells = {name if name in OF_EVALUATION else f"validation/{name}": cell for name, cell in cells.items()}
    if cells and said.get("of"):
        facts |= {"max_steps": int(said["of"]), "global_step": int(said["step"])}
    return (said["step"], cells) if cells else None


def _number(text: str, times: float = 1.0) -> object:
    try:
        return float(text.replace(",", "")) * times
    except ValueError:
        return text


def _read(path: Path, digests: dict[str, str], row_of: RowOf, facts: dict[str, Json], units: Mapping[str, str]) -> Log:
    """Read rows; one without its end, which may be cut in a number, is left out and noted."""
    table, torn = StepTable(path), dict[str, Json]()
    for batch in batches(path, digests):
        for number, line in enumerate(batch.lines, batch.first):
            row = row_of(line)
            if row is not None and batch.terminated:
                table.add(int(row[0]) if row[0].isdecimal() else None, row[1])
            elif row is not None:
                torn["torn_last_line"] = number
                facts.pop("global_step", None)  # a step that is not whole was not reached
    return table.log(facts=facts, notes=torn, units=units)
