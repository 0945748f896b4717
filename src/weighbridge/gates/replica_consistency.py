"""replica-consistency: do the ranks of one run hold the same model, and train on other data?

Judges a folder of ranks as a whole. What an all-reduce leaves is equal bit for bit on all of them, so no tolerance is
allowed; a loss that is equal on all at every step is one that was not computed from data of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, listed
from weighbridge.clauses.kind import Evidence, Kind, codes, rows_of
from weighbridge.core import Doc, Fields, SubjectKind, dataclass, plain
from weighbridge.gates.families import several_runs
from weighbridge.gates.families.several_runs import BREAKS, COLUMNS, FACTS, LOG, differs, fact
from weighbridge.quantities.facts import ColumnAgreement, FactAgreement, Parting

OF_ONE_RUN = ("world_size", "commit", "model.parameters", "requested_steps", "versions.torch")
PARTED = (Parting(step=0, difference=1e-7, least=1.0, greatest=1.0000001, least_in=0, greatest_in=1, tensor=""),)
FAILS = {"ranks-differ": "equal", "stands-still": "equal", "all-equal": "differ", "same-batch": "disjoint"}
Globs: TypeAlias = tuple[str, ...]
SAME: Globs = ("grad_norm", "parameters_sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(several_runs.Compared):
    """Which columns must be the same on all ranks, and which must not."""

    equal: Annotated[Globs, Doc("globs of columns that are equal on all ranks at every step", tight="up")] = SAME
    differ: Annotated[Globs, Doc("globs of columns that are not equal at every step", tight="up")] = ("loss",)
    disjoint: Annotated[Globs, Doc("globs of columns that no two ranks share at a step", tight="up")] = ("batch_crc",)

    def asks(self, code: str, column: str) -> bool:
        """Return whether a code is asked of a column."""
        return listed(column, getattr(self, FAILS[code]) if code in FAILS else _globs(self))


def _globs(limits: Limits, _measure: object = None) -> Globs:
    return (*limits.equal, *limits.differ, *limits.disjoint)


def _clauses(limits: Limits) -> Sequence[Clause]:
    def promised(code: str, wrong: Callable[[ColumnAgreement], object]) -> Clause:
        def broken(row: ColumnAgreement) -> Any:
            return plain(row) if wrong(row) else None

        return Each(code=code, need=COLUMNS, row=ColumnAgreement, names=getattr(limits, FAILS[code]), broken=broken)

    return (
        several_runs.ARE_SEVERAL,
        Requires(code="ranks-missing", lacking=_missing),
        Requires(code="not-one-run", lacking=_strangers),
        promised("ranks-differ", lambda row: row.parted),
        promised("all-equal", lambda row: row.shared and not row.unequal),
        promised("same-batch", lambda row: row.shared),
        *several_runs.whole(limits, _globs(limits)),
    )


def _missing(evidence: Evidence) -> Fields | None:
    ranks, size = len(fact(evidence, LOG)), next(iter(fact(evidence, "world_size")), None)
    return None if size == ranks else {"ranks": ranks, "world_size": size}


def _strangers(evidence: Evidence) -> Fields | None:
    rows = (row for row in rows_of(evidence, FACTS, FactAgreement) if row.fact in OF_ONE_RUN and differs(row))
    wrong: dict[str, Any] = {row.fact: row.values for row in rows}
    began, ended, ranks = (fact(evidence, name) for name in (several_runs.BEGAN, several_runs.ENDED, "rank"))
    if not began or not ended or None in began + ended or max(began) > min(ended):
        wrong["time"] = [f"{at} to {last}" for at, last in zip(began, ended, strict=False)]
    if not ranks or ranks != tuple(range(len(ranks))):
        wrong["rank"] = ranks
    return next(({"fact": name, "values": list(values) or None} for name, values in wrong.items()), None)


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    rows = [row for row in rows_of(evidence, COLUMNS, ColumnAgreement) if limits.asks("", row.column)]
    return {"ranks": len(fact(evidence, LOG)), "columns": [f"{row.column} at {row.steps} steps" for row in rows]}


def _facts(code: str, name: str, **values: object) -> Any:
    def change(row: FactAgreement, _limits: object) -> Any:
        return {"values": (values[row.fact],) * len(row.values)} if row.fact in values else row

    return several_runs.BREAKS_FACTS.only(name, code, change, "nothing is known of the ranks")


KIND = Kind(
    name="replica-consistency", version=1, roles={"run": SubjectKind.RUN}, of_ranks=True,
    needs=several_runs.needs("run"), limits=Limits, columns=_globs, judge=ClauseJudge(_clauses, figures=_figures),
    codes=codes(
        "ranks-differ", "all-equal", "same-batch",
        blocked=("same-run", "ranks-missing", "not-one-run", *several_runs.INCOMPLETE),
    ),
    mutations=(
        *several_runs.MUTATIONS,
        _facts("ranks-missing", "a rank that is not there", world_size=10**6),
        _facts("not-one-run", "ranks of one number", rank=0),
        _facts("not-one-run", "a rank that had ended before another began", began_s=1.0, last_row_s=0.0),
        BREAKS("a step that differs in its last bits", "ranks-differ", unequal=1, parted=PARTED),
        BREAKS("equal at every step", "all-equal", unequal=0, shared=1),
        BREAKS("one batch on two ranks", "same-batch", shared=1, first_shared=0),
    ),
)  # fmt: skip
