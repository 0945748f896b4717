"""A report in GitHub Actions: annotations, which are commands on standard output, and the step summary, a file."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from weighbridge.contract.load import BUILTIN
from weighbridge.core import ContractError, WeighbridgeError, printable
from weighbridge.report import Level, gate_name
from weighbridge.report.markdown import escaped, page
from weighbridge.report.rows import Report, shown

CAP = 10  # annotations a level and step that GitHub shows
SUMMARY = 1 << 20  # bytes of a step's summary
PLACE = re.compile(r"(?P<file>.+?)(:(?P<line>\d+))?(:(?P<column>\d+))?", re.DOTALL)


def annotation(level: Level, title: str, text: str, at: tuple[str, int, int] = ("", 0, 0)) -> str:
    """Return the command for one remark at a line of a file of the repository; without such a file at the run."""
    place = {} if at[0].startswith((BUILTIN, "../")) else dict(zip(("file", "line", "col"), at, strict=True))
    named = {**place, "title": title}.items()
    given = (f"{key}={_escaped(str(value), property_too=True)}" for key, value in named if value)
    return f"::{level} {','.join(given)}::{_escaped(text)}\n"


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


def _escaped(text: str, *, property_too: bool = False) -> str:
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
