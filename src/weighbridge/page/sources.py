"""What a page is drawn from: bundles judged again, and run directories that are those which were sealed."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from weighbridge.core import BundleError, Measurement, Outcome, SubjectKind, dataclass
from weighbridge.evidence import review
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.review import State
from weighbridge.judging.requests import keys_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import StepCourse
from weighbridge.report import Row, checked
from weighbridge.report.rows import rows_of_bundle
from weighbridge.verifiers import step_course
from weighbridge.views.run import RunView, open_run

REMEDY = "nothing is drawn of it; see: weighbridge evidence verify"


@dataclass(frozen=True, slots=True)
class Judged:
    """One finding, the bundle that holds it, what it stands on and looks at by name, and what a newer bundle says."""

    bundle: Bundle
    row: Row
    keys: tuple[str, ...]
    subjects: frozenset[str]
    older: str
    waits: bool = False  # its run goes on, and may yet bring what it lacks

    @property
    def word(self) -> str:
        """Return what the gate came to, as it is shown."""
        return "NOT JUDGED YET" if self.waits else str(self.outcome)

    @property
    def outcome(self) -> Outcome:
        """Return what the gate came to."""
        return self.row.outcome

    @property
    def checked(self) -> str:
        """Return what its bundle checked."""
        return checked_by(self.bundle)

    @property
    def faults(self) -> str:
        """Return how many faults that were planted it caught."""
        return self.row.said.trials.replace("/", " of ", 1)


def checked_by(bundle: Bundle, names: Collection[str] | None = None) -> str:
    """Return what a bundle checked, of these subjects alone where they are named."""
    bound = (one for one in bundle.statement.subjects if names is None or one.name in names)
    return checked(bundle.contract, ((one.name, one.instance, one.path, one.unwitnessed) for one in bound))


def of_the_same(one: Bundle, other: Bundle, names: Collection[str] | None = None) -> bool:
    """Return whether two bundles checked the same: each subject is at the same path, or is the same to the byte."""
    mine, theirs = (
        {(item.name, item.instance): item for item in bundle.statement.subjects if names is None or item.name in names}
        for bundle in (one, other)
    )
    pairs = [(mine[key], theirs[key]) for key in mine.keys() & theirs.keys()]
    alike = all(
        a.path == b.path or (a.digests and sorted(a.digests.values()) == sorted(b.digests.values())) for a, b in pairs
    )
    return mine.keys() == theirs.keys() and alike


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """All that a page is drawn from."""

    bundles: tuple[Bundle, ...]
    judged: tuple[Judged, ...]
    run: RunView | None = None
    run_of: Bundle | None = None  # which sealed that run
    run_name: str = ""
    base: RunView | None = None
    base_name: str = ""

    def courses(self) -> tuple[Mapping[str, StepCourse], Bundle | None]:
        """Return the course of every column of a run, and the newest bundle that sealed it; else those of `run`."""
        for bundle in reversed(self.bundles):
            for key, item in bundle.measured.items():
                if key.startswith("step_course.") and isinstance(item, Measurement):
                    return {row.column: row for row in rows_of(item, StepCourse)}, bundle
        return courses_of(self.run) if self.run else {}, self.run_of


def sources(paths: Sequence[Path], run: Path | None, base: Path | None) -> Sources:
    """Judge every bundle again, and open the run that it is of; refuse what does not hold."""
    found = (review.judged_again(path, "not-judged-again", REMEDY) for path in paths)
    bundles = sorted(found, key=lambda one: (one.statement.finished, one.id))
    judged, of_gate = list[Judged](), dict[object, list[Judged]]()  # those of the newest bundle first
    for bundle in reversed({one.id: one for one in bundles}.values()):
        for row in rows_of_bundle(bundle):
            finding, subjects = row.finding, frozenset(bundle.contract.gate(row.finding.gate).subjects.values())
            newer = of_gate.setdefault((bundle.contract.id, finding.gate, finding.instance, subjects), [])
            older = _newer(bundle, subjects, newer)
            newer.append(Judged(bundle, row, keys_of(bundle.contract, finding), subjects, older))
            judged.append(newer[-1])
    run_of = _sealed(bundles, run) if run else None
    view = open_run(run) if run else None
    of_base = open_run(base) if base else None
    names = {"run_name": run.name if run else "", "base_name": base.name if base else ""}
    return Sources(bundles=tuple(bundles), judged=tuple(judged), run=view, run_of=run_of, base=of_base, **names)


def _newer(bundle: Bundle, subjects: Collection[str], newer: Iterable[Judged]) -> str:
    """Return what the newest that judged a gate of the same subjects says of it; else nothing."""
    for other in newer:
        if of_the_same(bundle, other.bundle, subjects):
            when = other.bundle.statement.finished[:19]
            return f"a newer bundle of {checked_by(other.bundle, subjects)} ({when}) says {other.outcome}"
    return ""


def _sealed(bundles: Sequence[Bundle], path: Path) -> Bundle:
    """Return the newest bundle that is of a run's directory, by the digests of its files."""
    runs = [(one, item) for one in bundles for item in one.statement.subjects if item.kind is SubjectKind.RUN]
    for one, item in reversed(runs):
        if item.digests and review.subject(one.statement, item.name, path).state is State.HOLDS:
            return one
    what = "is not the run that was sealed: a file of it is missing or has another digest"
    what = what if runs else "no bundle is of a run"
    raise BundleError("other-run", what, where=str(path), remedy="name the directory that `verify` looked at")


def courses_of(view: RunView) -> dict[str, StepCourse]:
    """Return the course of every column of a run that is open."""
    found = step_course.measure((view,), {})
    return {row.column: row for row in rows_of(found, StepCourse)} if isinstance(found, Measurement) else {}
