"""What is measured of a command that was run, and of a report that a runner of tests wrote."""

import enum
import shlex
from collections.abc import Sequence
from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.quantities.base import record, rows

NONZERO = "nonzero"
KEPT = 1 << 16  # bytes kept of the end of each stream
AS_BOUND = "as bound"
HIDING = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


def case_of(arguments: Sequence[str]) -> str:
    """Return the name of a run with further arguments: these as a shell takes them."""
    return shlex.join(arguments) or AS_BOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """One thing that a command left in the folder that it ran in."""

    path: Annotated[str, Doc("relative path")]
    what: Annotated[str, Doc("run-directory, directory or file")]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandOutcome:
    """How a command ended, what it said, and what it left."""

    exit_code: Annotated[
        int | None, Doc("exit code, negative for the signal that killed it; null where it was stopped", typical=3)
    ]
    timed_out: Annotated[bool, Doc("it was stopped at its time limit", typical=False)]
    timeout_s: Annotated[float, Doc("time limit", unit="s", typical=30.0)]
    wall_seconds: Annotated[float, Doc("time from its start to its end", unit="s", typical=2.0)]
    stdout: Annotated[str, Doc("last 64 KiB of its standard output", typical="")]
    stderr: Annotated[str, Doc("last 64 KiB of its standard error", typical="DEVICE_UNAVAILABLE\n")]
    stdout_bytes: Annotated[int, Doc("length of its standard output", unit="bytes", typical=0)]
    stderr_bytes: Annotated[int, Doc("length of its standard error", unit="bytes", typical=19)]
    left: Annotated[tuple[Leftover, ...], Doc("what it left, run directories first, at most 1000", typical=())]
    left_total: Annotated[int, Doc("number of things that it left", typical=0)]
    outlived: Annotated[int, Doc("processes that it left running, in whatever session; they were ended", typical=0)]
    watched: Annotated[
        tuple[str, ...], Doc("folders where new runs were looked for, beside its own", typical=(".", "~"))
    ]
    hidden: Annotated[tuple[str, ...], Doc("environment variables that hid the accelerators", typical=HIDING)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRun(CommandOutcome):
    """One run of a command: the arguments that followed those that were bound, and how it ended."""

    case: Annotated[
        str, Doc("the arguments as a shell takes them; `as bound` where there were none", typical="--device cpu")
    ]


class Result(enum.StrEnum):
    """How a test ended, from best to worst."""

    PASSED = "passed"
    SKIPPED = "skipped"
    FAILED = "failed"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedTest:
    """One test, as the report has it; where it stands there several times, its worst result."""

    name: Annotated[str, Doc("`classname::name`; its name where these are one", typical="gate::falsify_a")]
    result: Annotated[Result, Doc("how it ended", typical=Result.PASSED)]
    message: Annotated[str, Doc("what it failed or was skipped with, its first line", typical="")]
    times: Annotated[int, Doc("how often it stands in the report", typical=1)]
    contradicted_by: Annotated[
        tuple[str, ...], Doc("counts of the suites that it is in, which differ from what is in them", typical=())
    ]


QUANTITIES = (
    record("command_outcome", CommandOutcome),
    rows("command_runs", CommandRun, key="case"),
    rows("test_results", ReportedTest),
)


def cut_short(timeout_s: float, within_s: float | None) -> list[str]:
    """Return the problem of a command that is stopped before the time that it may take is over."""
    if within_s is None or timeout_s > within_s:
        return []
    return [f"timeout_s: {timeout_s:g} s would stop the command before the {within_s:g} s are over"]
