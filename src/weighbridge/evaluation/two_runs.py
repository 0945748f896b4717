"""Hold two runs beside each other: the first step at which they part, which one ends worse, and by what."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from weighbridge.core import Outcome, Severity, SubjectKind, UsageError, dataclass
from weighbridge.evaluation.inspection import Inspection, opened
from weighbridge.views.run import Column

COMPARED = ("batch_crc", "lr", "tokens", "loss", "grad_norm", "val_loss", "weight_norm", "parameters_sum")
Cells: TypeAlias = Iterable[tuple[Any, Any]]  # a step and its number; without one, None
LOSS, LAST = "loss", 10  # of so many steps of both, a tenth is the end


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Two runs: the steps of both by column, where each column parts, the loss of both at the end, and the worse one.

    `above` is since when the loss of the second stays above that of the first (1) or below it (-1), to the end.
    """

    steps: Mapping[str, int]
    parts: Mapping[str, tuple[int, float, float]]
    above: tuple[int, int] | None
    ends: tuple[float, float] | None
    worse: int | None
    by: str


def beside(one: Inspection, other: Inspection) -> Beside:
    """Compare the columns that both runs have at the steps that both logged, bit for bit."""
    if one.kind is not SubjectKind.RUN or other.kind is not SubjectKind.RUN:
        remedy = "`weighbridge compare SOURCE IMPORT` compares checkpoints"
        raise UsageError("two-files", "two files are looked at together where both are runs", remedy=remedy)
    views: list[Any] = [opened(found.target, found.kind) for found in (one, other)]
    mine, theirs = (view.ranks[0] if view.ranks else view for view in views)
    both = {name: rows for name in COMPARED if (rows := at_both(cells(mine.column(name)), cells(theirs.column(name))))}
    parts = {name: apart[0] for name, rows in both.items() if (apart := [row for row in rows if parts_at(row)])}
    losses = [row for row in both.get(LOSS, []) if math.isfinite(row[1]) and math.isfinite(row[2])]
    last = losses[-max(len(losses) // LAST, 1) :]
    ends = (statistics.median(row[1] for row in last), statistics.median(row[2] for row in last)) if last else None
    failed, worse, by = [_failed(found) for found in (one, other)], None, ""
    if failed[0] != failed[1]:
        many, few = sorted(map(sum, failed), reverse=True)
        worse = int(failed[1] > failed[0])
        by = f"{many} gates fail, {few} of the other" if many != few else "a graver gate fails"
    elif ends and ends[0] != ends[1]:
        worse, by = int(ends[1] > ends[0]), f"loss {max(ends):.6g} against {min(ends):.6g} at the end"
    steps = {name: len(rows) for name, rows in both.items()}
    return Beside(steps=steps, parts=parts, above=_above(losses), ends=ends, worse=worse, by=by)


def cells(column: Column | None) -> Cells:
    """Yield the steps of a column with their numbers."""
    return zip(column.step, column.value, strict=True) if column else ()


def at_both(mine: Cells, theirs: Cells) -> list[tuple[Any, float, float]]:
    """Return the steps at which two columns both hold a number, each with both numbers."""
    here, there = ({step: value for step, value in one if None not in (step, value)} for one in (mine, theirs))
    return [(step, here[step], there[step]) for step in sorted(here.keys() & there.keys())]


def parts_at(both: tuple[Any, float, float]) -> bool:
    """Return whether two numbers of one step are not the same to the bit; NaN is NaN."""
    return repr(both[1]) != repr(both[2])


def _above(losses: list[tuple[int, float, float]]) -> tuple[int, int] | None:
    """Return the step since which one loss stays on its side of the other, and the side; None where they end equal."""
    sides = [(step, (there > here) - (there < here)) for step, here, there in losses]
    if not sides or not (side := sides[-1][1]):
        return None
    others = [at for at, (_, one) in enumerate(sides) if one != side]
    return sides[others[-1] + 1 if others else 0][0], side


def _failed(found: Inspection) -> tuple[int, int]:
    of = [one for one in found.judged.findings if one.verdict.outcome is Outcome.FAIL] if found.judged else []
    advisory = sum(one.severity is Severity.ADVISORY for one in of)
    return len(of) - advisory, advisory
