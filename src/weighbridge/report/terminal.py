"""Findings on a terminal: a PASS in a line, all else in twelve, what has one cause together, and a table at the end."""

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from weighbridge.core import Finding, Outcome, Severity, grouped, printable
from weighbridge.quantities.facts import HAS
from weighbridge.report import COLOURS, INDENT, NAMED, SIGNS, UNCOUNTED, Level, Row, capped, gate_name

SCREEN, ONE_LINE, A_FAIL = 78, 118, 12  # columns beside a sign, characters of a PASS, rows of anything else
SIGN = 2  # columns before an outcome on a terminal
CLAUSE = re.compile(r"[;,:] | \(")  # where one ends
ROW = SCREEN - 2 * len(INDENT)  # what `tell` leaves of a row of a broken line
HEAD = "outcome"  # of the table
A_NAME = 32  # columns of the table for a gate
WORST_FIRST = (Outcome.ERROR, Outcome.FAIL, Outcome.BLOCKED, Outcome.NOT_APPLICABLE, Outcome.PASS)
LACKED = re.compile(r"(the run logs no column|the subject) '([^']+)'( is not bound|).*")
MORE = re.compile(r"\+(\d+) more")
QUIET = (Outcome.PASS, Outcome.NOT_APPLICABLE)
Besides = Callable[[Row], Iterable[str]]


def outcome_line(finding: Finding, title: str) -> str:
    """Return the line that says what a gate came to."""
    return f"{outcome_word(finding.verdict.outcome)} {gate_named(finding)}  {printable(title)}"


def outcome_word(outcome: Outcome, width: int = 8) -> str:
    """Return an outcome in its colour."""
    return click.style(f"{outcome:<{width}}", fg=COLOURS[outcome], bold=True)


def gate_named(finding: Finding) -> str:
    """Return a gate's name as it is shown, and that it is advisory."""
    return printable(gate_name(finding)) + " (advisory)" * (finding.severity is Severity.ADVISORY)


def blocks(
    rows: Sequence[Row], besides: Besides = lambda _: (), *, everything: bool = False, columns: int | None = None
) -> Iterator[str]:
    """Yield the lines of some findings: those of one cause in one block, and last the gates that are not meant."""
    width = min(columns - SIGN, ONE_LINE) if columns else ONE_LINE
    if everything:
        yield from (line for row in rows for line in block(row, [*besides(row)], everything=True))
        return
    for alike in _alike(row for row in rows if row.outcome is not Outcome.NOT_APPLICABLE):
        lines = block(alike[0], [*besides(alike[0])], alone=len(alike) == 1, width=width)
        if len(alike) > 1:
            counts = Counter(row.finding.uncounted.outcome for row in alike if row.finding.uncounted)
            otherwise = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            names = ", ".join(capped([printable(gate_name(row.finding)) for row in alike]))
            advisory = " (advisory)" * all(row.finding.severity is Severity.ADVISORY for row in alike)
            lines[0] = f"{outcome_word(alike[0].outcome)} {names}{advisory}"
            lines[1] = f"{INDENT}{_together(alike)}" if _cause(alike[0])[1] else lines[1]
            lines[2:2] = [f"{INDENT}{UNCOUNTED} {otherwise}"] if otherwise else []
        yield from lines
    yield from _unmeant([row for row in rows if row.outcome is Outcome.NOT_APPLICABLE])


def _alike(rows: Iterable[Row]) -> Iterable[list[Row]]:
    own = ((gate_name(row.finding) if row.outcome is Outcome.PASS else "", row) for row in rows)
    return grouped(((name, row.outcome, *_cause(row)[0]), row) for name, row in own).values()


def _cause(row: Row) -> tuple[Iterable[str], str]:
    """Return what findings of one block share, and the name of what was not there to look at: without it."""
    lines = [*row.lines(alone=False), *row.said.hints]
    bare = row.outcome is Outcome.BLOCKED and not (row.finding.uncounted or row.remarks)
    if not bare or (named := LACKED.match(row.said.brief[0])) is None:
        return lines, ""
    return (row.level, *(line.partition(";")[0].replace(named[2], "") for line in lines)), named[2]


def _together(rows: Sequence[Row]) -> str:
    """Return the sentence that findings of one block share, with the names of all that they lack."""
    names, said = [*dict.fromkeys(_cause(row)[1] for row in rows)], rows[0].said.brief[0]
    if len(names) == 1:
        return LACKED.sub(r"\1 '\2'\3", said)
    return LACKED.sub(rf"\1s {', '.join(capped(names))}\3", said).replace(" is ", " are ")


def _unmeant(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a line for each cause why gates are not meant for what was looked at."""
    for cause, lacked in grouped(map(_unmet, rows)).items():
        names, lacking = [name for name, _ in lacked], [*dict.fromkeys(what for _, what in lacked)]
        many = f"{len(names)} gates: " if len(names) > 1 else ""
        why = cause + printable(", ".join(capped(lacking, NAMED)))
        yield f"{outcome_word(Outcome.NOT_APPLICABLE)} {many}{', '.join(capped(names, NAMED))} ({why})"


def _unmet(row: Row) -> tuple[str, tuple[str, str]]:
    """Return why a gate is not meant for what was looked at, its name, and what was lacking."""
    fact = str(row.finding.verdict.figures.get("fact"))
    name, _, count = fact.removeprefix(HAS).partition(":")
    cause, what = ("too few numbers: ", f"{name} needs {count}") if count else ("the run has no ", name)
    if row.remarks or not fact.startswith(HAS) or row.finding.verdict.figures.get("found") is not False:
        cause, what = row.lines()[0], ""
    return cause, (gate_named(row.finding), what)


def block(
    row: Row, besides: Sequence[str] = (), *, everything: bool = False, alone: bool = True, width: int = ONE_LINE
) -> list[str]:
    """Return the lines of a finding: a PASS in one of a `width`, all else in twelve rows of 80, or `everything`.

    They come in this order: outcome, gate and title, what was found, hints, what would have passed, what may have been
    meant `besides`, and where the gate is written.
    """
    if row.outcome is Outcome.PASS and not everything:
        left = width - len(click.unstyle(outcome_line(row.finding, "")))
        said, brief = cut(row.said.brief[0], left), row.said.brief[0]
        ends = [end.start() for end in CLAUSE.finditer(brief) if end.start() < min(len(said), len(brief)) - 1]
        said = f"{brief[: ends[-1]]} …" if ends and said != brief else said
        return [outcome_line(row.finding, said), *(f"{INDENT}{why}" for why in row.remarks)]
    found, hints = row.lines(everything=everything, alone=alone), [*row.said.hints]
    enough = [found.pop()] if row.said.enough else []
    last = [printable(f"{row.file}:{row.line}")] if row.file else []
    if row.outcome is Outcome.PASS:
        last = [f"trials: {row.said.trials}"]
    head = outcome_line(row.finding, row.title)
    if not everything and _rows((head, *found, *hints, *enough, *besides, *last)) > A_FAIL:
        found = [cut(line, 3 * ROW - 12) for line in found]
        hints, enough = ([cut(line, 2 * ROW - 12) for line in lines] for lines in (hints, enough))
        shown, over = _fitting(found, _rows((head, *found, *hints, *enough, *besides, *last)) - A_FAIL, least=1)
        hints, _ = _fitting(hints, over, said=shown != found)
        found = shown
    faint, meant = [click.style(line, dim=True) for line in hints], [click.style(line, bold=True) for line in besides]
    lines = (*found, *faint, *enough, *meant, *(click.style(line, dim=True) for line in last))
    return [head, *(f"{INDENT}{line}" for line in lines)]


def _fitting(lines: list[str], over: int, least: int = 0, *, said: bool = False) -> tuple[list[str], int]:
    """Return the first lines, how many more there are unless it is `said`, and how many rows are over then."""
    kept, more = [*lines], 0
    while over > 0 and len(kept) > least:
        over += (not more and not said) - _rows([last := kept.pop()])
        more += int(counted[1]) if (counted := MORE.fullmatch(last)) else 1
    return [*kept, *([f"+{more} more (--verbose)"] if more and not said else [])], over


def _rows(lines: Iterable[str]) -> int:
    return sum(len(textwrap.wrap(click.unstyle(line), ROW)) for line in lines)


def cut(text: str, width: int) -> str:
    """Return a text in at most so many characters, cut between words."""
    return textwrap.shorten(text, max(width, 2), placeholder=" …") if len(text) > width else text


def signed(line: str) -> str:
    """Return a line with the sign of the outcome that it begins with, for a terminal."""
    first = click.unstyle(line).partition(" ")[0]
    return f"{SIGNS[first]} {line}" if first in SIGNS else f"  {line}" if first == HEAD else line


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of what did not pass, the worst first, of 80 columns; nothing of one gate, or where all passed."""
    bad = sorted((row for row in rows if row.outcome not in QUIET), key=lambda row: WORST_FIRST.index(row.outcome))
    if not bad or len(rows) == 1:
        return
    cells = []
    for alike in _alike(bad):
        more = f" +{len(alike) - 1} more" if len(alike) > 1 else ""
        why = "excused: " if alike[0].excused else "advisory: " * (alike[0].level is Level.WARNING)
        said = why + _together(alike)
        cells.append((alike[0].outcome, cut(gate_name(alike[0].finding), A_NAME - len(more)) + more, said))
    counts = Counter(row.outcome for row in rows)
    cells += [(quiet, f"{counts[quiet]} gates", "") for quiet in QUIET if counts[quiet]]
    first, second = (max(len(str(cell[index])) for cell in (*cells, (HEAD, "gate"))) for index in (0, 1))
    yield ""
    yield click.style(f"{HEAD:<{first}}  {'gate':<{second}}  found", underline=True)
    for outcome, name, found in cells:
        yield f"{outcome_word(outcome, first)}  {name:<{second}}  {cut(found, SCREEN - first - second - 4)}".rstrip()
