"""Read what training prints, a line a step: by the words of programs that are known, or by a person's pattern."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from weighbridge.core import Json, dataclass, field
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


TIMES: Final = ("elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms", "time_per_iteration_ms")
PIPED: Final = {"lm loss": "loss", "lm_loss": "loss", "learning rate": "lr", "grad norm": "grad_norm"}
PROGRAMS: Final = (
    Program(
        "nanoGPT",
        re.compile(r"^(?:iter|step) (?P<step>\d+): (?=(?:train )?loss )"),
        re.compile(rf"(?P<name>[a-z][a-z ]*?) (?P<value>{NUMBER})(?P<unit>ms|%)?(?:,|$)"),
        {"time": "wall_ms", "train loss": "eval/train_loss", "val loss": "val_loss"},
    ),
    Program(
        "modded-nanogpt",
        re.compile(r"^step:(?P<step>\d+)/(?P<of>\d+) (?=\w+:)"),
        re.compile(rf"(?P<name>\w+):(?P<value>{NUMBER})(?P<unit>ms|s)?"),
    ),
    Program(
        "llm.c",
        re.compile(r"^step +(?P<step>\d+)/(?P<of>\d+)(?=:? ?\|? *(?:train )?loss )"),
        re.compile(rf"(?P<name>\b(?:train loss|loss|norm|lr)\b)? *(?P<value>{NUMBER})(?P<unit> ms| tok/s|% )?"),
        {"train loss": "loss", "norm": "grad_norm", " ms": "wall_ms", " tok/s": "tokens_per_sec", "% ": "mfu_pct"},
    ),
    Program(
        "llm.c's main.log",
        re.compile(r"^s:(?P<step>\d+) (?=(?:trl|tel|eval):)"),
        re.compile(rf"(?P<name>\w+):(?P<value>{NUMBER})(?P<unit>$^)?"),
        {"trl": "loss", "tel": "val_loss", "norm": "grad_norm", "eval": "eval/accuracy"},
    ),
    Program(
        "torchtitan",
        re.compile(r"(?P<other>validate )?\bstep: *(?P<step>\d+) +(?=loss:)"),
        re.compile(rf"(?P<name>\w+): +(?P<value>{NUMBER})(?P<unit>GiB|%)?"),
        {"tps": "tokens_per_sec"},
        "Training completed",
    ),
    Program(
        "Megatron-LM and nanotron",
        re.compile(r"\biteration:? +(?P<step>\d+) */ *(?P<of>\d+) \|"),
        re.compile(rf"(?<=\|)(?P<name>[^|:]{{1,80}}): *(?P<value>{NUMBER})(?P<unit>[KMBGT])? *(?=\||$)"),
        PIPED | dict.fromkeys(TIMES, "wall_ms"),
    ),
    Program(  # what so many scripts print; how many epochs were asked for is no count of theirs, which may begin at 0
        "an epoch a line",
        re.compile(r"(?i)\bepoch\W*(?P<step>\d+)(?: */ *\d+)?\W+(?!.*\b(?:step|batch|iter))(?=.*loss *[:=])"),
        re.compile(rf"(?P<name>[A-Za-z][A-Za-z_ /-]*?) *[:=] *(?P<value>{NUMBER})(?P<unit>%|s\b)?"),
        {"val_loss": "eval_loss"},  # beside the loss of its epoch it makes the row no evaluation's own
    ),
)
Row: TypeAlias = tuple[str, dict[str, object]]  # its step, if it tells one, and its cells
RowOf: TypeAlias = Callable[[str], Row | None]


def reader_of(line: str) -> Callable[[Path, dict[str, str]], Log] | None:
    """Return what reads the rows that a known program prints; None where the line is no row of one."""
    program = next((program for program in PROGRAMS if _row(program, {}, {}, line) is not None), None)
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
