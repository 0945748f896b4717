"""A report in GitHub Actions: annotations, which are commands on standard output, and the step summary, a file.

GitHub shows ten annotations a level and step: where there are more, the tenth says how many.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weighbridge.contract.load import BUILTIN
from weighbridge.core.errors import ContractError, WeighbridgeError
from weighbridge.core.printable import printable
from weighbridge.report import Level, gate_name
from weighbridge.report.markdown import escaped, page
from weighbridge.report.rows import Report, shown

CAP = 10
SUMMARY = 1 << 20  # bytes of a step's summary
PLACE = re.compile(r"(?P<file>.+?)(:(?P<line>\d+))?(:(?P<column>\d+))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One remark at a line of a file of the repository; without a file at the run."""

    level: Level
    title: str
    text: str
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        place = {"file": self.file, "line": self.line, "col": self.column, "title": self.title}
        if self.file.startswith((BUILTIN, "../")):  # no file of the repository
            place = {"title": self.title}
        given = (f"{key}={_escaped(str(value), property_too=True)}" for key, value in place.items() if value)
        return f"::{self.level} {','.join(given)}::{_escaped(self.text)}"


def commands(report: Report) -> str:
    """Return a command for each finding that did not pass."""
    found = [
        Annotation(
            level=row.level,
            title=f"{row.outcome} {gate_name(row.finding)}",
            text="\n".join((row.title, *row.lines(), *row.said.hints)),
            file=row.file,
            line=row.line,
            column=row.column,
        )
        for _, row in report.rows
        if row.level is not Level.NONE
    ]
    if report.nothing_shown:
        found.insert(0, Annotation(level=Level.ERROR, title="weighbridge", text=report.nothing_shown))
    return "".join(f"{one}\n" for one in capped(found))


def of_problems(problems: Iterable[tuple[Level, WeighbridgeError]]) -> str:
    """Return a command for each problem of a contract or of the command line, at its place."""
    found = [
        Annotation(
            level=level,
            title=problem.code,
            text="\n".join(filter(None, (printable(problem.what), printable(problem.remedy)))),
            file=shown(place["file"]) if place else "",
            line=int(place["line"] or 0) if place else 0,
            column=int(place["column"] or 0) if place else 0,
        )
        for level, problem in problems
        for place in [PLACE.fullmatch(problem.where) if isinstance(problem, ContractError) else None]
    ]
    return "".join(f"{one}\n" for one in capped(found))


def capped(found: Sequence[Annotation]) -> Iterator[Annotation]:
    """Yield at most ten annotations a level, the last of more than ten being how many more there are."""
    for level, group in itertools.groupby(
        sorted(found, key=lambda one: list(Level).index(one.level)), lambda one: one.level
    ):
        alike = list(group)
        if len(alike) <= CAP:
            yield from alike
            continue
        yield from alike[: CAP - 1]
        text = f"+{len(alike) - CAP + 1} more; the step summary and the log have them all"
        yield Annotation(level=level, title="weighbridge", text=text)


def _escaped(text: str, *, property_too: bool = False) -> str:
    signs = "%\r\n:," if property_too else "%\r\n"
    return "".join(f"%{ord(char):02X}" if char in signs else char for char in text)


# --- The step summary -------------------------------------------------------------------------------------------------


def summarise(report: Report) -> None:
    """Append the report to the summary of the step, as much as there is room for."""
    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(path), page(report, SUMMARY - _held(Path(path))))


def summarise_problems(problems: Sequence[tuple[Level, WeighbridgeError]]) -> None:
    """Append what is wrong with contracts to the summary of the step."""
    if problems and (path := os.environ.get("GITHUB_STEP_SUMMARY")):
        lines = [f"- {level}: {escaped(' '.join(str(problem).split()))}" for level, problem in problems]
        _append(
            Path(path), "\n".join((f"### weighbridge: {len(lines)} problem{'s' * (len(lines) > 1)}", "", *lines, ""))
        )


def _held(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


def _append(path: Path, text: str) -> None:
    data = f"{text}\n".encode(errors="backslashreplace")
    if _held(path) + len(data) <= SUMMARY:
        with contextlib.suppress(OSError), path.open("ab") as file:  # the log has all of it, and the exit code is right
            file.write(data)
