"""Kinds that hold several runs against each other, and what all of them ask: that they are several, and all compared.

- one-change: does a run state the same as another but for the one thing that was declared?
- replay-determinism: do two runs of one program with one seed log the same, step by step?
- replica-consistency: do the ranks of one run hold the same model, and train on other data? It judges a folder of ranks
  as a whole. What an all-reduce leaves is equal bit for bit on all of them, so no tolerance is allowed; a loss that is
  equal on all at every step is one that was not computed from data of their own.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias, cast

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, codes, rows_of, settings
from weighbridge.clauses.mutations import Breaks
from weighbridge.core import Doc, Fields, SubjectKind, dataclass, plain
from weighbridge.quantities.facts import ColumnAgreement, FactAgreement, Parting

Globs: TypeAlias = tuple[str, ...]
COLUMNS, FACTS = "columns", "facts"
LOG, BEGAN, ENDED, STEP = "log_sha256", "began_s", "last_row_s", "step"
OF_A_PROCESS = ("host", "pid", "started")  # two runs differ in one of these
OWN = (*OF_A_PROCESS, "run", "attempt", "rank", LOG, BEGAN, ENDED)  # what two runs of one program state otherwise
INCOMPLETE = ("not-compared", "too-few-steps", "one-sided", "stands-still")
BREAKS = Breaks(
    need=COLUMNS, row=ColumnAgreement, blocked=INCOMPLETE, why="no such column is judged",
    spares=lambda row, limits, code: not limits.asks(code, row.column),
)  # fmt: skip
BREAKS_FACTS = Breaks(need=FACTS, row=FactAgreement)
FEWER = BREAKS.beyond(("fewer steps", "too-few-steps", lambda _row, _limits, value: {"steps": value}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What all that is compared must have; `asks` tells whether a code is asked of a column."""

    min_steps: Annotated[int, Doc("steps at which each is compared", ge=1, must="at least", moves=FEWER)] = 2


def needs(*roles: str) -> dict[str, Need]:
    """Return the needs of a kind that compares columns."""
    named = {COLUMNS: "column_agreement", FACTS: "fact_agreement"}
    return {need: Need(quantity, of=roles, options=("steps",)) for need, quantity in named.items()}


def fact(evidence: Evidence, name: str) -> tuple[Any, ...]:
    """Return what each run states, nothing where none does."""
    return next((row.values for row in rows_of(evidence, FACTS, FactAgreement) if row.fact == name), ())


def differs(row: FactAgreement) -> bool:
    """Return whether a fact is not the same in all runs; 1 is not true, and no text."""
    return any((type(one), one) != (type(row.values[0]), row.values[0]) for one in row.values)


def _several(evidence: Evidence) -> Fields | None:
    """Return which two are one run: of one process and start, or of one log where that is unknown."""
    logs, stated = fact(evidence, LOG), [fact(evidence, name) for name in OF_A_PROCESS]
    who = list(zip(*stated, strict=True)) if all(stated) else [(None,)] * len(logs)
    for one, other in itertools.combinations(range(len(logs)), 2):
        known = None not in who[one] + who[other]
        if who[one] == who[other] if known else logs[one] == logs[other]:
            return {"first": one, "second": other}
    return None if len(logs) > 1 else {"first": 0, "second": 0}


ARE_SEVERAL = Requires(code="same-run", lacking=_several)
TWICE: Mutation[Any] = BREAKS_FACTS.only(
    "the first run twice",
    "same-run",
    lambda row, _: {"values": row.values[:1] * len(row.values)} if row.fact in (*OF_A_PROCESS, LOG) else row,
    "nothing is known of the runs",
)


def whole(limits: Any, globs: Sequence[str]) -> tuple[Requires, ...]:
    """Return the clauses that what globs name was compared, over all steps, and that what should move does."""

    def idle(evidence: Evidence) -> Fields | None:
        rows = [row.column for row in rows_of(evidence, COLUMNS, ColumnAgreement)]
        missing = [glob for glob in (*globs, STEP) if not any(listed(one, [glob]) for one in rows)]
        return {"column": missing[0], "runs": 0} if missing else None

    def none(code: str, wrong: Callable[[ColumnAgreement, int], object]) -> Requires:
        def lacking(evidence: Evidence) -> Fields | None:
            rows, runs = rows_of(evidence, COLUMNS, ColumnAgreement), len(fact(evidence, LOG))
            asked = (row for row in rows if limits.asks(code, row.column) or row.column == STEP)
            found = next((row for row in asked if wrong(row, runs)), None)
            return None if found is None else {**cast(Fields, plain(found)), "needed": limits.min_steps}

        return Requires(code=code, lacking=lacking)

    return (
        Requires(code="not-compared", lacking=idle),
        none("not-compared", lambda row, runs: row.runs < runs),
        none("too-few-steps", lambda row, _: row.steps < limits.min_steps),
        none("one-sided", lambda row, _: row.one_sided),
        none("stands-still", lambda row, _: row.column != STEP and not row.changes),
    )


MUTATIONS: tuple[Mutation[Any], ...] = (
    TWICE,
    BREAKS("logged by one alone", "not-compared", runs=1),
    BREAKS("a step that one has alone", "one-sided", one_sided=1, first_one_sided=0),
    BREAKS("a column that stands still", "stands-still", changes=0),
)

# --- one-change -------------------------------------------------------------------------------------------------------

DIRTY, COMMIT = "dirty", "commit"
UNKNOWN = {COMMIT: lambda one: not one, DIRTY: lambda one: one is not False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """What was meant to change."""

    change: Annotated[str, Doc("the fact that was meant to change, or a glob where several are one change")] = ""
    ignored: Annotated[tuple[str, ...], Doc("globs of facts that say nothing of the program", tight="down")] = ()

    @property
    def spared(self) -> tuple[str, ...]:
        """Return the globs of facts that need not be the same."""
        return (*OWN, DIRTY, self.change, *self.ignored)


def _changes(limits: Declared) -> Sequence[Clause]:
    def broken(row: FactAgreement) -> Any:
        return {"baseline": row.values[0], "run": row.values[1]} if differs(row) else None

    def unknown(evidence: Evidence) -> Fields | None:
        for name in (one for one in UNKNOWN if not listed(one, limits.ignored)):
            said = fact(evidence, name) or (None,)
            if any(map(UNKNOWN[name], said)):
                return {"fact": name, "values": list(said)}
        return None

    return (
        ARE_SEVERAL,
        Each(code="undeclared", need=FACTS, row=FactAgreement, exempt=limits.spared, broken=broken),
        Requires(code="unknown-code", lacking=unknown),
    )


def _changed(evidence: Evidence, limits: Declared) -> Fields:
    rows = [row for row in rows_of(evidence, FACTS, FactAgreement) if differs(row)]
    changed = [row for row in rows if listed(row.fact, [limits.change])]
    return {"changes": [f"{row.fact} {row.values[0]} -> {row.values[1]}" for row in changed] or None}


def _unsaid(name: str) -> Any:
    def change(row: FactAgreement, limits: Declared) -> Any:
        return None if row.fact == name or listed(name, limits.ignored) else row

    return BREAKS_FACTS.only(f"no {name}", "unknown-code", change, "it is ignored")


ONE_CHANGE = Kind(
    name="one-change", version=1, roles={"baseline": SubjectKind.RUN, "run": SubjectKind.RUN}, limits=Declared,
    needs={FACTS: Need("fact_agreement", of=("baseline", "run"), of_rows=False)},
    codes=codes("undeclared", blocked=("same-run", "unknown-code")), judge=ClauseJudge(_changes, figures=_changed),
    mutations=(
        TWICE,
        BREAKS_FACTS(
            "a change that nobody declared", "undeclared",
            lambda row, limits: None if listed(row.fact, limits.spared) else {"values": (0, 1)},
        ),
        *map(_unsaid, UNKNOWN),
    ),
    window=lambda *_: (0, 0),  # what is judged was written before the first step, however the run ended
)  # fmt: skip

# --- replay-determinism -----------------------------------------------------------------------------------------------

# Times, and what follows from them, are of the host and never of the program.
TIMES = (
    *("time", "timestamp", "_timestamp", "_runtime", "monotonic_s", "elapsed_time", "remaining_time", "*_ms"),
    *("*_per_sec", "*_per_second", "*_runtime", "*util_pct", "*_mib", "mfu", STEP),
)


def _apart(by: float) -> dict[str, Any]:
    ends: Any = {"least": 1.0, "greatest": 1.0 + by, "least_in": 0, "greatest_in": 1}
    return {"unequal": 1, "parted": (Parting(step=0, difference=by, tensor="", **ends),)}


FARTHER = BREAKS.beyond(("farther apart", "parts", lambda _row, _limits, value: {"whole": False, **_apart(value)}))
LOGGED: Globs = ("loss", "grad_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed(Compared):
    """Which columns must be the same, and how far apart they may be."""

    columns: Annotated[Globs, Doc("globs of the columns that must be the same", min_items=1, tight="up")] = ("*",)
    ignored: Annotated[Globs, Doc("globs of columns that may differ, besides times", tight="down")] = ()
    required: Annotated[Globs, Doc("globs of columns that both must log", min_items=1, tight="up")] = LOGGED
    within: Annotated[
        float,
        Doc("how far apart two numbers may be; whole ones not at all", ge=0, le=1e9, must="at most", moves=FARTHER),
    ] = 0.0

    def asks(self, code: str, column: str) -> bool:
        """Return whether a code is asked of a column."""
        globs = self.columns if code in ("parts", "one-sided") else self.required
        return listed(column, globs) and not listed(column, (*TIMES, *self.ignored))


MEASURE = settings(steps=(tuple[int, int] | None, Doc("first and last step that are compared; all without it"), None))


def _replayed(limits: Replayed) -> Sequence[Clause]:
    def parts(row: ColumnAgreement) -> Fields | None:
        allowed = 0.0 if row.whole else limits.within
        first = next((one for one in row.parted if one.difference > allowed), None)
        if first is None:
            return None
        ends = (first.least, first.greatest) if first.least_in == 0 else (first.greatest, first.least)
        named = {"tensor": first.tensor} if first.tensor else {}
        return {**plain(row), "first": plain(first), "allowed": allowed, "run": ends[0], "replay": ends[1], **named}

    among: Any = {"names": limits.columns, "exempt": (*TIMES, *limits.ignored)}
    each = Each(code="parts", need=COLUMNS, row=ColumnAgreement, broken=parts, **among)
    return (ARE_SEVERAL, each, *whole(limits, limits.required))


def _compared(evidence: Evidence, limits: Replayed) -> Fields:
    rows = [row for row in rows_of(evidence, COLUMNS, ColumnAgreement) if limits.asks("parts", row.column)]
    both, alone = [row for row in rows if row.runs > 1], [row.column for row in rows if row.runs == 1]
    facts = [row for row in rows_of(evidence, FACTS, FactAgreement) if row.fact not in OWN and differs(row)]
    other = [f"{row.fact}: {row.values[0]}, {row.values[1]}" for row in facts]
    shown: Fields = {"columns": [row.column for row in both], "steps": max((row.steps for row in both), default=0)}
    named = {name: said for name, said in (("other", other), ("alone", alone)) if said}
    farthest = max((row.parted[-1].difference for row in both if row.parted), default=0.0)
    return {**shown, **named, "of": len(both), "measured": farthest, "limit": limits.within}


def _step(offence: Any) -> tuple[int, bool]:
    return offence.figures["first"]["step"], "tensor" in offence.figures


REPLAY = Kind(
    name="replay-determinism", version=1, roles={"run": SubjectKind.RUN, "replay": SubjectKind.RUN},
    needs=needs("run", "replay"), limits=Replayed, measure=MEASURE,
    codes=codes("parts", blocked=("same-run", *INCOMPLETE)),
    judge=ClauseJudge(_replayed, figures=_compared, first=_step), columns=lambda limits, _: limits.required,
    window=lambda _limits, measure: measure.steps,
    mutations=(
        *MUTATIONS,
        BREAKS("one whole number off by one", "parts", whole=True, **_apart(1.0)),
        BREAKS("NaN on one side", "parts", whole=False, **_apart(float("inf"))),
    ),
)  # fmt: skip

# --- replica-consistency ----------------------------------------------------------------------------------------------

OF_ONE_RUN = ("world_size", "commit", "model.parameters", "requested_steps", "versions.torch")
PARTED = (Parting(step=0, difference=1e-7, least=1.0, greatest=1.0000001, least_in=0, greatest_in=1, tensor=""),)
ASKED = {"ranks-differ": "equal", "stands-still": "equal", "all-equal": "differ", "same-batch": "disjoint"}
SAME: Globs = ("grad_norm", "parameters_sum")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnRanks(Compared):
    """Which columns must be the same on all ranks, and which must not."""

    equal: Annotated[Globs, Doc("globs of columns that are equal on all ranks at every step", tight="up")] = SAME
    differ: Annotated[Globs, Doc("globs of columns that are not equal at every step", tight="up")] = ("loss",)
    disjoint: Annotated[Globs, Doc("globs of columns that no two ranks share at a step", tight="up")] = ("batch_crc",)

    def asks(self, code: str, column: str) -> bool:
        """Return whether a code is asked of a column."""
        return listed(column, getattr(self, ASKED[code]) if code in ASKED else _globs(self))


def _globs(limits: OnRanks, _measure: object = None) -> Globs:
    return (*limits.equal, *limits.differ, *limits.disjoint)


def _on_ranks(limits: OnRanks) -> Sequence[Clause]:
    def promised(code: str, wrong: Callable[[ColumnAgreement], object]) -> Clause:
        def broken(row: ColumnAgreement) -> Any:
            return plain(row) if wrong(row) else None

        return Each(code=code, need=COLUMNS, row=ColumnAgreement, names=getattr(limits, ASKED[code]), broken=broken)

    return (
        ARE_SEVERAL,
        Requires(code="ranks-missing", lacking=_missing),
        Requires(code="not-one-run", lacking=_strangers),
        promised("ranks-differ", lambda row: row.parted),
        promised("all-equal", lambda row: row.shared and not row.unequal),
        promised("same-batch", lambda row: row.shared),
        *whole(limits, _globs(limits)),
    )


def _missing(evidence: Evidence) -> Fields | None:
    ranks, size = len(fact(evidence, LOG)), next(iter(fact(evidence, "world_size")), None)
    return None if size == ranks else {"ranks": ranks, "world_size": size}


def _strangers(evidence: Evidence) -> Fields | None:
    rows = (row for row in rows_of(evidence, FACTS, FactAgreement) if row.fact in OF_ONE_RUN and differs(row))
    wrong: dict[str, Any] = {row.fact: row.values for row in rows}
    began, ended, ranks = (fact(evidence, name) for name in (BEGAN, ENDED, "rank"))
    if not began or not ended or None in began + ended or max(began) > min(ended):
        wrong["time"] = [f"{at} to {last}" for at, last in zip(began, ended, strict=False)]
    if not ranks or ranks != tuple(range(len(ranks))):
        wrong["rank"] = ranks
    return next(({"fact": name, "values": list(values) or None} for name, values in wrong.items()), None)


def _ranks(evidence: Evidence, limits: OnRanks) -> Fields:
    rows = [row for row in rows_of(evidence, COLUMNS, ColumnAgreement) if limits.asks("", row.column)]
    return {"ranks": len(fact(evidence, LOG)), "columns": [f"{row.column} at {row.steps} steps" for row in rows]}


def _facts(code: str, name: str, **values: object) -> Any:
    def change(row: FactAgreement, _limits: object) -> Any:
        return {"values": (values[row.fact],) * len(row.values)} if row.fact in values else row

    return BREAKS_FACTS.only(name, code, change, "nothing is known of the ranks")


REPLICAS = Kind(
    name="replica-consistency", version=1, roles={"run": SubjectKind.RUN}, of_ranks=True,
    needs=needs("run"), limits=OnRanks, columns=_globs, judge=ClauseJudge(_on_ranks, figures=_ranks),
    codes=codes(
        "ranks-differ", "all-equal", "same-batch",
        blocked=("same-run", "ranks-missing", "not-one-run", *INCOMPLETE),
    ),
    mutations=(
        *MUTATIONS,
        _facts("ranks-missing", "a rank that is not there", world_size=10**6),
        _facts("not-one-run", "ranks of one number", rank=0),
        _facts("not-one-run", "a rank that had ended before another began", began_s=1.0, last_row_s=0.0),
        BREAKS("a step that differs in its last bits", "ranks-differ", unequal=1, parted=PARTED),
        BREAKS("equal at every step", "all-equal", unequal=0, shared=1),
        BREAKS("one batch on two ranks", "same-batch", shared=1, first_shared=0),
    ),
)  # fmt: skip

KIND: dict[str, Kind[Any]] = {one.name: one for one in (ONE_CHANGE, REPLAY, REPLICAS)}
