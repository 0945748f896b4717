"""Read what training prints, a line a step: by the words of programs that are known, or by a person's pattern.

Such a pattern of named groups is looked for in time that no pattern and no line can stretch. It is read as parts
between its gaps (`.*`); each part is looked for once, behind the one before. Within a part a repeat takes what it can
and gives nothing back, so that no part is tried in more than one way from one place.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Final, TypeAlias

from weighbridge.core import Json, SubjectError, dataclass, field, quoted
from weighbridge.core.data import table
from weighbridge.run_logs.log_file import batches
from weighbridge.run_logs.log_table import STEP, Log, StepTable

NUMBER: Final = r"[-+]?(?:\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+|(?i:nan|inf))"
SIZES: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}  # as nanotron rounds its numbers
ANSI: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
NO_SHARE: Final = -100.0  # percent
EVALUATED: Final = "val_loss"
OF_EVALUATION: Final = (EVALUATED, "eval/train_loss")
MAX_LINE: Final = 4000  # characters; no program prints a longer row
MAX_PATTERN: Final = 500
MAX_LOOKED_AT: Final = 1000  # characters of a line that are looked at
MAX_REPEAT: Final = 1000
REMEDY: Final = r"write it as 'step (?P<step>\d+).*loss (?P<loss>\S+)': named groups of characters, and .* between them"
_TOKEN = re.compile(
    r"(?P<gap>\.[*+]\??)|(?P<set>\[\^?\]?(?:\\.|(?!--|&&|\|\||~~)[^]\\[])*\])|(?P<name>\(\?P<[A-Za-z_]\w*>)|(?P<open>\(\?:|\((?!\?))"
    r"|(?P<close>\))|(?P<repeat>[*+?]|\{\d{1,4}(?:,\d{0,4})?\})|(?P<one>\\[dDwWsStbB]|\\[^A-Za-z0-9]|[^\\()*+?{\[])"
)


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
    if (start := program.begins.search(text)) is None:
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


@dataclass(frozen=True, slots=True)
class LinePattern:
    """A pattern that was found harmless; `parts` lie behind one another in a line."""

    parts: tuple[re.Pattern[str], ...]

    def row(self, line: str) -> dict[str, str] | None:
        """Return what the named groups hold in a line; None where the line is no row."""
        found: dict[str, str] = {}
        at = 0
        for part in self.parts:
            if (match := part.search(line, at, MAX_LOOKED_AT)) is None:
                return None
            at = match.end()
            found |= {name: text.strip() for name, text in match.groupdict().items() if text is not None}
        return found


def line_pattern(text: str) -> LinePattern:
    """Read a pattern; refuse with `pattern` what is none, names no group, or could take long."""
    if not 0 < len(text) <= MAX_PATTERN:
        raise _refused(f"it has {len(text)} characters, at most {MAX_PATTERN} are read")
    parts, at, depth, last = [""], 0, 0, ""
    while at < len(text):
        if (token := _TOKEN.match(text, at)) is None:
            raise _refused(f"what stands at character {at + 1} is not read: {quoted(text[at : at + 12])}")
        kind, word, at = token.lastgroup or "", token[0], token.end()
        depth += (kind in ("name", "open")) - (kind == "close")
        if kind == "gap" and not depth:
            parts.append("")
        elif kind == "gap":
            parts[-1] += word[:2] + "+"
        elif kind == "repeat":
            parts[-1] += _repeat(word, last, at)
        else:
            parts[-1] += word + ("(?>" if kind in ("name", "open") else ")" if kind == "close" else "")
        last = word if kind == "repeat" else kind
    try:
        compiled = tuple(re.compile(part, re.ASCII) for part in parts if part)
    except (re.error, OverflowError) as problem:
        raise _refused(str(problem)) from None
    names = [name for part in compiled for name in part.groupindex]
    if not names or len(set(names)) < len(names):
        raise _refused("it names no group, or one twice")
    return LinePattern(compiled)


def _repeat(word: str, last: str, at: int) -> str:
    """Return a repeat that gives nothing back; only a single character may be repeated more than once."""
    most = max((int(number) for number in re.findall(r"\d+", word)), default=0)
    if last not in ("set", "one", "close") or (last == "close" and word != "?") or most > MAX_REPEAT:
        raise _refused(f"the repeat that ends at character {at} could take long: {word}")
    return word + "+"


def _refused(what: str) -> SubjectError:
    return SubjectError("pattern", f"the pattern of lines cannot be used: {what}", where="lines", remedy=REMEDY)
