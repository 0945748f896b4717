"""test-report: did the named tests run, and did each of them pass? One that did not run has shown nothing."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires, Whole, listed
from weighbridge.clauses.kind import Evidence, Kind, Mutated, Mutation, Need, codes, rows_of, with_rows
from weighbridge.clauses.mutations import Breaks, Limit
from weighbridge.core import Doc, Fields, Outcome, SubjectKind, dataclass
from weighbridge.quantities.commands import ReportedTest, Result

TESTS = "tests"
GLOBS = "globs of tests that must have passed, by `classname::name` or its end after `::`"
BROKEN = (Result.FAILED, Result.ERROR)


def _anywhere(globs: Sequence[str]) -> tuple[str, ...]:
    """Return globs that name a test by its whole name, or by its end after `::`."""
    return tuple(part for glob in globs for part in (glob, f"*::{glob}"))


def _named(evidence: Evidence, globs: Sequence[str]) -> list[ReportedTest]:
    return [row for row in rows_of(evidence, TESTS, ReportedTest) if listed(row.name, _anywhere(globs))]


def _fewer(limit: Limit) -> Iterator[Mutation[Any]]:
    def apply(evidence: Evidence, limits: Limits, _places: Sequence[str]) -> Mutated:
        gone = _named(evidence, limits.tests)[int(limit.value) :]
        kept = [row for row in rows_of(evidence, TESTS, ReportedTest) if row not in gone]
        return Mutated(with_rows(evidence, TESTS, kept))

    yield Mutation("fewer tests", "too-few-tests", apply, Outcome.BLOCKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which tests must have passed, and how many of them there must be."""

    tests: Annotated[tuple[str, ...], Doc(GLOBS, min_items=1, tight="up")] = ("*",)
    at_least: Annotated[int, Doc("tests of these names", ge=1, must="at least", moves=_fewer)] = 1


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that no named test failed, that there are enough, and that each ran and is counted right."""

    def each(code: str, broken: Callable[[ReportedTest], Fields | None], outcome: Outcome) -> Each[ReportedTest]:
        names = _anywhere(limits.tests)
        return Each(code=code, need=TESTS, row=ReportedTest, names=names, broken=broken, outcome=outcome)

    def shown(row: ReportedTest) -> Fields:
        return {"result": row.result, "message": row.message or "no message"}

    def enough(evidence: Evidence) -> tuple[float, Fields]:
        found, there = len(_named(evidence, limits.tests)), len(rows_of(evidence, TESTS, ReportedTest))
        return found, {"named": found, "all": there, "needed": limits.at_least, "globs": limits.tests}

    def missing(evidence: Evidence) -> Fields | None:
        idle = [glob for glob in limits.tests if not _named(evidence, [glob])]
        return {"idle": idle, "all": len(rows_of(evidence, TESTS, ReportedTest))} if idle else None

    def contradicted(row: ReportedTest) -> Fields | None:
        return {"doubts": row.contradicted_by} if row.contradicted_by else None

    few = Whole(code="too-few-tests", place=lambda _: "report", read=enough, must="at least", bound=limits.at_least,
                outcome=Outcome.BLOCKED)  # fmt: skip
    return (
        each("failed", lambda row: shown(row) if row.result in BROKEN else None, Outcome.FAIL),
        few,
        Requires(code="missing", lacking=missing),
        each("skipped", lambda row: shown(row) if row.result is Result.SKIPPED else None, Outcome.BLOCKED),
        each("contradicted", contradicted, Outcome.BLOCKED),
    )


def _without_a_glob(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Remove all that one glob names, that of the first place where it can be, while enough others are named."""
    mine = sorted(limits.tests, key=lambda glob: not any(fnmatchcase(one, glob) for one in places[:1]))
    for glob in mine:
        gone = _named(evidence, [glob])
        left = with_rows(evidence, TESTS, [row for row in rows_of(evidence, TESTS, ReportedTest) if row not in gone])
        if len(_named(left, limits.tests)) >= limits.at_least:
            return Mutated(left)
    return "no glob can be spared"


BLOCKED = ("too-few-tests", "missing", "skipped", "contradicted")
_breaks = Breaks(
    need=TESTS, row=ReportedTest, blocked=BLOCKED, why="no named test there",
    spares=lambda row, limits, _: not listed(row.name, _anywhere(limits.tests)),
)  # fmt: skip

KIND = Kind(
    name="test-report", version=2, roles={"report": SubjectKind.REPORT},
    needs={TESTS: Need("test_results", of=("report",))}, limits=Limits, codes=codes("failed", blocked=BLOCKED),
    judge=ClauseJudge(
        clauses,
        figures=lambda evidence, limits: {"globs": limits.tests, "all": len(rows_of(evidence, TESTS, ReportedTest))},
    ),
    mutations=(
        _breaks("a test fails", "failed", result=Result.FAILED),
        _breaks("a test breaks", "failed", result=Result.ERROR),
        _breaks("a test is skipped", "skipped", result=Result.SKIPPED),
        _breaks("a count that differs", "contradicted", contradicted_by=("it says otherwise",)),
        Mutation("a glob that names nothing", "missing", _without_a_glob, Outcome.BLOCKED),
    ),
)  # fmt: skip
