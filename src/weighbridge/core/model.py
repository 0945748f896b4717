"""The nouns: what a contract, a measurement, a verdict and a finding are. Floor 1: imports nothing of ours."""

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeAlias, TypeVar

from weighbridge.core.frozen import dataclass, field

Scalar: TypeAlias = str | int | float | bool | None
Json: TypeAlias = Scalar | Sequence["Json"] | Mapping[str, "Json"]
Fields: TypeAlias = Mapping[str, Json]
EMPTY: Fields = MappingProxyType({})
R = TypeVar("R")
LATER = "later"  # of a field that came later: not sealed while it is its default, so that old digests stay


class Outcome(enum.StrEnum):
    """What a verdict comes to."""

    PASS = "PASS"  # noqa: S105 -- a verdict, not a password
    FAIL = "FAIL"
    BLOCKED = "BLOCKED"
    NOT_APPLICABLE = "NOT_APPLICABLE"
    ERROR = "ERROR"


class Severity(enum.StrEnum):
    """Whether a gate's outcome sets the exit code."""

    REQUIRED = "required"
    ADVISORY = "advisory"


class SubjectKind(enum.StrEnum):
    """What can be measured."""

    CHECKPOINT = "checkpoint"
    RUN = "run"
    TRACE = "trace"
    MODEL = "model"
    COMMAND = "command"
    REPORT = "report"


EXECUTED = (SubjectKind.COMMAND, SubjectKind.MODEL)  # only what the person at the keyboard names


class Origin(enum.StrEnum):
    """Where a subject came from; a contract cannot declare it."""

    LIVE = "live"
    REPORTED = "reported"  # a run or a trace that recorded itself, with no book of a witness that stands
    FIXTURE = "fixture"
    SYNTHETIC = "synthetic"


class Basis(enum.StrEnum):
    """How a number came about."""

    MEASURED = "measured"
    DERIVED = "derived"
    REPORTED = "reported"


class Status(enum.StrEnum):
    """Where a gate stands on one instance; ordered from lowest to highest by `STATUS_ORDER`."""

    RETIRED = "RETIRED"
    REGRESSED = "REGRESSED"
    DRAFT = "DRAFT"
    PARTIAL_ALGORITHM_LEVEL = "PARTIAL_ALGORITHM_LEVEL"
    ACTIVE_WITH_LIVE_EVIDENCE = "ACTIVE_WITH_LIVE_EVIDENCE"
    DISCHARGED = "DISCHARGED"


STATUS_ORDER: tuple[Status, ...] = tuple(Status)


# --- Measurements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Record(Generic[R]):
    """One thing: a dataclass of `weighbridge.quantities`. None only where a trial took it away."""

    value: R | None


@dataclass(frozen=True, slots=True)
class Rows(Generic[R]):
    """A table of one dataclass of `weighbridge.quantities`; the field `key` names a row's place and is unique."""

    key: str
    rows: tuple[R, ...]

    def places(self) -> tuple[str, ...]:
        """Return the name of every place in the table, in order."""
        return tuple(str(getattr(row, self.key)) for row in self.rows)


@dataclass(frozen=True, slots=True)
class Series:
    """One column of a run: `value[i]` was logged at `step[i]`; a missing cell is absent, a NaN is NaN."""

    step: Sequence[int]  # [samples], 64 bits each, in log order; a step may repeat
    value: Sequence[float]  # [samples], float64


Value: TypeAlias = Record[Any] | Rows[Any] | Series


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What an instrument saw: a value with its unit, capture point, instrument, and how each column came about."""

    quantity: str
    value: Value
    by: str
    at: str = ""
    unit: str = ""
    basis: Mapping[str, Basis] = field(default_factory=dict)
    examined: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """Why a quantity could not be measured, and what would make it measurable. Never a number."""

    code: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Faulted:
    """Why measuring broke: an unreadable subject or a tool fault. `why` is ours, never an exception's text."""

    code: str
    why: str
    remedy: str


Measured: TypeAlias = Measurement | Unmeasured | Faulted


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryResult:
    """Whether an instrument saw one known damage of its subject; `applied` is false where there could be none."""

    name: str
    place: str
    applied: bool
    seen: bool
    why: str = ""


# --- Verdicts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """One place that broke one clause, with the figures its message needs."""

    place: str
    code: str
    figures: Fields = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a gate came to, no prose: `counted` of `of` places were in order; `enough` is what would have sufficed."""

    outcome: Outcome
    code: str
    counted: int = 0
    of: int = 0
    measured: Scalar = None
    limit: Scalar = None
    enough: Scalar = None
    unit: str = ""
    offences: tuple[Offence, ...] = ()
    figures: Fields = field(default_factory=dict)
    looked: tuple[str, ...] = ()  # every place that the judge looked at, which the trials damage; not sealed


class TrialResult(enum.StrEnum):
    """How a trial ended."""

    CAUGHT = "caught"
    SURVIVED = "survived"
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One attempt to show that a pass is able to fail, or that an instrument is able to see."""

    kind: str  # "mutation", "nothing-left" or "canary"
    name: str
    code: str
    result: TrialResult
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One gate on one instance: its verdict, the facts it stood on, and the trials of that verdict."""

    gate: str
    instance: str
    kind: str
    kind_version: int
    severity: Severity
    verdict: Verdict
    facts: Fields = field(default_factory=dict)
    trials: tuple[Trial, ...] = ()
    uncounted: Verdict | None = None  # what it would have been where its conditions do not hold: shown, never counted


# --- Contracts --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDecl:
    """A subject as a contract declares it; `path` is relative to the contract's folder."""

    kind: SubjectKind
    path: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)  # standard name (`loss`, `wall_ms`) to that in the log
    for_each: str = ""  # a glob beside the contract instead of a path: each file that it finds is an instance
    units: Mapping[str, str] = field(default_factory=dict)  # standard name to the unit that it is logged in
    lines: str = field(default="", metadata={LATER: True})  # the pattern of a text log's rows


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDecl:
    """One promise, resolved: parameters substituted, limits still as plain values that the kind's `Limits` reads."""

    id: str
    kind: str
    title: str
    subjects: Mapping[str, str]
    limits: Fields = field(default_factory=dict)
    measure: Fields = field(default_factory=dict)
    when: Mapping[str, Scalar] = field(default_factory=dict, metadata={LATER: True})
    where: Mapping[str, Scalar] = field(default_factory=dict)
    requires: Mapping[str, bool] = field(default_factory=dict)
    severity: Severity = Severity.REQUIRED
    why: str = ""
    binds: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    max_age_days: float | None = None
    stale_on: tuple[str, ...] = ()
    due: Mapping[str, float] = field(default_factory=dict, metadata={LATER: True})  # `step` or `after_s`: of a watch


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """Subjects and gates, with id and version."""

    id: str
    version: str
    title: str
    owner: str
    subjects: Mapping[str, SubjectDecl]
    gates: tuple[GateDecl, ...]
    params: Fields = field(default_factory=dict)
    overridden: tuple[str, ...] = ()

    def gate(self, name: str) -> GateDecl:
        """Return the gate of an id that this contract has."""
        return next(one for one in self.gates if one.id == name)

    @property
    def overrides(self) -> tuple[str, ...]:
        """Return the parameters that were overridden, as `NAME=VALUE`."""
        return tuple(f"{name}={self.params[name]}" if name in self.params else name for name in self.overridden)
