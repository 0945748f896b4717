"""A report as Markdown, for a comment on a pull request or a step summary: all gates, and what did not pass."""

from __future__ import annotations

import re
from collections.abc import Iterable

from weighbridge.core import printable
from weighbridge.report import Level, Row, gate_name
from weighbridge.report.rows import Report, Suite

COMMENT = 65_536  # characters that GitHub takes in a comment; counted in bytes here, which are never fewer
MARKUP = re.compile(r"([\\`*_{}\[\]<>#!|&~$@:])")
SPARE = 200  # for what is said at the end


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
