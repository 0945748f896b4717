"""Patterns: what the gates said of runs that were diagnosed, and which of them another run looks like."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from weighbridge import api
from weighbridge.core import BundleError, Finding, Outcome, SubjectError, SubjectKind, UsageError, WeighbridgeError
from weighbridge.core.canonical import dumps, loads
from weighbridge.core.frozen import dataclass
from weighbridge.core.local_files import exists, read_regular_file
from weighbridge.drills.setups import DIAGNOSTICS, drills, row_of
from weighbridge.evaluation.inspection import opened
from weighbridge.evaluation.verification import VerifyRequest, verify
from weighbridge.evidence import review
from weighbridge.report import finding_text

SCHEMA, FILE, MOST = "weighbridge.pattern/v0", "pattern.json", 1 << 20
AGAIN = "keep it again with this version: weighbridge drill keep"
ALIKE = 0.5  # of the rows that FAIL of either, more than this share FAILs of both


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A named diagnosis: what it is, which rows FAIL of it and which pass, and how its first FAIL is mended."""

    name: str
    says: str
    fails: frozenset[str]
    passes: frozenset[str]
    where: str = ""  # the folder that it is kept in; empty of one that ships


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """How a run compares with a pattern: how many of its FAILs and PASSes say the same, and how alike both are."""

    pattern: Pattern
    fails: int
    passes: int
    alike: float

    @property
    def holds(self) -> bool:
        """Return whether the run looks like it."""
        return self.alike > ALIKE


def shipped() -> Iterator[Pattern]:
    """Yield the pattern of each arm of a drill of which a gate must FAIL."""
    for drill in drills():
        for arm in (one for one in drill.arms if one.fails):
            fails, passes = frozenset(arm.fails), frozenset(arm.passes)
            yield Pattern(name=f"{drill.name}/{arm.name}", says=drill.title, fails=fails, passes=passes)


def kept(folder: Path) -> Iterator[Pattern]:
    """Yield the patterns that a project keeps, each by its bundle judged again; refuse one that does not hold."""
    for file in sorted(folder.glob(f"*/{FILE}")):
        try:
            given: Any = loads(read_regular_file(file, MOST, BundleError).decode())
        except (ValueError, WeighbridgeError):
            raise BundleError("pattern-form", "is no JSON", where=str(file), remedy=AGAIN) from None
        if not isinstance(given, dict) or given.get("pattern") != SCHEMA:
            raise BundleError("pattern-form", f"is no {SCHEMA}", where=str(file), remedy=AGAIN)
        bundles = list(file.parent.glob("bundles/*"))
        if len(bundles) != 1:
            what = f"{len(bundles)} bundles are beside it, and it is what one says"
            raise BundleError("pattern-form", what, where=str(file), remedy=AGAIN)
        sealed = review.judged_again(bundles[0], "pattern-form", AGAIN)
        yield _pattern(file.parent.name, str(given.get("says")), sealed.findings, str(file.parent))


def judged(run: Path) -> tuple[Finding, ...]:
    """Return what the diagnosis says of a run, and keep nothing; refuse what is none, or shows no gate anything."""
    opened(str(run), SubjectKind.RUN)
    ledger = Path("evidence/ledger")  # which nothing is recorded in
    request = VerifyRequest(contracts=(DIAGNOSTICS,), subjects=(f"run={run}",), evidence=None, ledger=ledger)
    findings = verify(request, lambda _text: None)[0].evaluation.findings
    if not any(rows_that(findings, one) for one in (Outcome.PASS, Outcome.FAIL)):
        what = f"none of {len(findings)} gates could look, so there is nothing to compare"
        raise SubjectError("nothing-shown", what, where=str(run), remedy="`weighbridge verify` says what each lacks")
    return findings


def keep(name: str, run: Path, says: str, folder: Path) -> Pattern:
    """Judge a run, and keep what its gates said under a name; refuse one of which no gate FAILs."""
    target = folder / name
    if not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,59}", name):
        remedy = "write lower-case letters, digits and hyphens"
        raise UsageError("pattern-name", f"{name!r} is no name of a pattern", remedy=remedy)
    if exists(target):
        raise UsageError("folder-exists", "the folder is there already", where=str(target), remedy="name a new one")
    if not rows_that(judged(run), Outcome.FAIL):
        what = "no gate FAILs of this run, and a pattern is what FAILs"
        raise UsageError("no-pattern", what, where=str(run), remedy="keep a run that was diagnosed")
    evaluation = api.verify(DIAGNOSTICS, subjects={"run": run}, evidence=target).results[0].evaluation
    failed = next(one for one in evaluation.findings if one.verdict.outcome is Outcome.FAIL)
    first = finding_text(failed, evaluation.measured)
    says = says or dict(first.helps).get("cause") or first.brief[0]
    (target / FILE).write_bytes(dumps({"pattern": SCHEMA, "says": says}))
    return _pattern(name, says, evaluation.findings, str(target))


def _pattern(name: str, says: str, findings: Sequence[Finding], where: str) -> Pattern:
    fails, passes = (rows_that(findings, one) for one in (Outcome.FAIL, Outcome.PASS))
    return Pattern(name=name, says=says, fails=fails, passes=passes, where=where)


def rows_that(findings: Iterable[Finding], outcome: Outcome) -> frozenset[str]:
    """Return the rows that came to an outcome."""
    return frozenset(row_of(one.gate) for one in findings if one.verdict.outcome is outcome)


def likenesses(patterns: Iterable[Pattern], findings: Sequence[Finding]) -> list[Likeness]:
    """Return how a run compares with each pattern, the likest first."""
    fails, passes = (rows_that(findings, one) for one in (Outcome.FAIL, Outcome.PASS))
    found = []
    for one in patterns:
        both, alike = len(one.fails & fails), len(one.fails & fails) / max(len(one.fails | fails), 1)
        found.append(Likeness(pattern=one, fails=both, passes=len(one.passes & passes), alike=alike))
    return sorted(found, key=lambda one: (-one.alike, -one.passes, one.pattern.name))
