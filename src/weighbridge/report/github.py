"""A report on GitHub: annotations, which are commands on standard output, and Markdown, for a summary or a comment."""

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from weighbridge.contract.load import BUILTIN
from weighbridge.core import ContractError, WeighbridgeError, printable
from weighbridge.report import Level, Row, gate_name
from weighbridge.report.rows import Report, Suite, shown

CAP = 10  # annotations a level and step that GitHub shows
SUMMARY = 1 << 20  # bytes of a step's summary
COMMENT = 65_536  # characters that GitHub takes in a comment; counted in bytes here, which are never fewer
MARKUP = re.compile(r"([\\`*_{}\[\]<>#!|&~$@:])")
SPARE = 200  # for what is said at the end
PLACE = re.compile(r"(?P<file>.+?)(:(?P<line>\d+))?(:(?P<column>\d+))?", re.DOTALL)


def annotation(level: Level, title: str, text: str, at: tuple[str, int, int] = ("", 0, 0)) -> str:
    """Return the command for one remark at a line of a file of the repository; without such a file at the run."""
    place = {} if at[0].startswith((BUILTIN, "../")) else dict(zip(("file", "line", "col"), at, strict=True))
    named = {**place, "title": title}.items()
    given = (f"{key}={_in_command(str(value), property_too=True)}" for key, value in named if value)
    return f"::{level} {','.join(given)}::{_in_command(text)}\n"


def commands(report: Report) -> str:
    """Return a command for each finding that did not pass."""
    nothing = report.nothing_shown
    found = [(Level.ERROR, annotation(Level.ERROR, "weighbridge", nothing))] if nothing else []
    for suite, row in (pair for pair in report.rows if pair[1].level is not Level.NONE):
        title, lines = f"{row.outcome} {gate_name(row.finding)}", (row.title, *row.lines(), *row.said.hints)
        text = "\n".join((*lines, f"checked: {suite.checked}"))
        found.append((row.level, annotation(row.level, title, text, (row.file, row.line, row.column))))
    return capped(found)


def of_problems(problems: Iterable[tuple[Level, WeighbridgeError]]) -> str:
    """Return a command for each problem of a contract or of the command line, at its place."""
    found = []
    for level, problem in problems:
        text = "\n".join(filter(None, (printable(problem.what), printable(problem.remedy))))
        place = PLACE.fullmatch(problem.where) if isinstance(problem, ContractError) else None
        at = (shown(place["file"]), int(place["line"] or 0), int(place["column"] or 0)) if place else ("", 0, 0)
        found.append((level, annotation(level, problem.code, text, at)))
    return capped(found)


def capped(found: Sequence[tuple[Level, str]]) -> str:
    """Return at most ten commands a level, the last of more than ten being how many more there are."""
    kept = []
    for level in Level:
        alike = [one for its, one in found if its is level]
        if len(alike) > CAP:
            text = f"+{len(alike) - CAP + 1} more; the step summary and the log have them all"
            alike[CAP - 1 :] = [annotation(level, "weighbridge", text)]
        kept += alike
    return "".join(kept)


def _in_command(text: str, *, property_too: bool = False) -> str:
    return re.sub("[%\r\n:,]" if property_too else "[%\r\n]", lambda sign: f"%{ord(sign[0]):02X}", text)


def summarise(report: Report) -> None:
    """Append the report to the summary of the step, as much as there is room for."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(path), page(report, SUMMARY - _held(Path(path))))


def summarise_problems(problems: Sequence[tuple[Level, WeighbridgeError]]) -> None:
    """Append what is wrong with contracts to the summary of the step."""
    if problems and (path := os.environ.get("GITHUB_STEP_SUMMARY")):
        lines = [f"- {level}: {escaped(' '.join(str(problem).split()))}" for level, problem in problems]
        head = f"### weighbridge: {len(lines)} problem{'s' * (len(lines) > 1)}"
        _append(Path(path), "\n".join((head, "", *lines, "")))


def _held(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _append(path: Path, text: str) -> None:
    data = f"{text}\n".encode(errors="backslashreplace")
    if _held(path) + len(data) <= SUMMARY:
        with contextlib.suppress(OSError), path.open("ab") as file:  # the log has all of it, and the exit code is right
            file.write(data)


def page(report: Report, limit: int = COMMENT) -> str:
    """Return the report in at most so many bytes."""
    rows = sorted(report.rows, key=lambda pair: list(Level).index(pair[1].level))
    head = [f"### weighbridge: {escaped(report.tally)}", ""]
    head += [f"**{report.nothing_shown}**", ""] if report.nothing_shown else []
    head += [f"{escaped(f'{suite.contract} {suite.version}')}: {_cell(suite.checked)}\n" for suite in report.suites]
    head += ["| outcome | gate | promise | found | contract |", "|---|---|---|---|---|"]
    evidence = [f"evidence of {escaped(suite.contract)}: {escaped(suite.bundle)}\n" for suite in report.suites]
    left = limit - SPARE - sum(_size(line) for line in (*head, *evidence))
    table, left = _fitting((_line(suite, row) for suite, row in rows), len(rows), left)
    bad = [row for _, row in rows if row.level is not Level.NONE]
    found, _ = _fitting(map(_found, bad), len(bad), left)
    return "\n".join((*head, *table, "", *found, *evidence))


def escaped(text: str) -> str:
    """Return a text from outside as Markdown shows it letter by letter."""
    return MARKUP.sub(r"\\\1", printable(text))


def _fitting(parts: Iterable[str], many: int, left: int) -> tuple[list[str], int]:
    kept: list[str] = []
    for part in parts:
        if (size := _size(part)) > left:
            return [*kept, f"\n+{many - len(kept)} more\n"], 0
        kept.append(part)
        left -= size
    return kept, left


def _size(text: str) -> int:
    return len(text.encode(errors="replace")) + 1


def _line(suite: Suite, row: Row) -> str:
    besides = "excused" if row.excused else "unexpected" if row.unexpected else ""
    besides = besides or ("advisory" if row.level is Level.WARNING else "")
    outcome = f"{row.outcome} ({besides})" if besides else str(row.outcome)
    cells = (gate_name(row.finding), row.title, row.lines()[0], f"{suite.contract} {suite.version}")
    return f"| {' | '.join((outcome, *map(_cell, cells)))} |"


def _cell(text: str) -> str:
    return escaped(text).replace("\\@", "@<!-- -->")  # an escaped @ still mentions


def _found(row: Row) -> str:
    lines = "\n".join((row.title, *(f"  {line}" for line in (*row.lines(), *row.said.hints))))
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
    # Inside an element, Markdown's own escapes would be shown.
    name = "".join(f"&#{ord(one)};" if one in "&<>\"'`*_@[]:|#~" else one for one in printable(gate_name(row.finding)))
    head = f"<details><summary><b>{row.outcome}</b> {name}</summary>"
    return f"{head}\n\n{_cell(row.file)}:{row.line}\n\n{fence}text\n{lines}\n{fence}\n\n</details>\n"
