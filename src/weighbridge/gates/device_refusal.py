"""device-refusal: does an impossible request exit non-zero, in time, naming the reason, leaving no run behind?

The other half of no-silent-cpu-fallback: a run that never started cannot have fallen back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.gates.gate_kind import Evidence, Kind, Need, blocked, each_record, failed, passed, record_of
from weighbridge.limits import Doc
from weighbridge.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict

NONZERO = "nonzero"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a refusal looks."""

    exit: Annotated[object, Doc("nonzero, or the very exit code", pattern=NONZERO, ge=1, le=255)] = NONZERO
    within_s: Annotated[float, Doc("how long a refusal may take", unit="s", gt=0, le=3600, tight="down")]
    names: Annotated[tuple[str, ...], Doc("words that the output must contain, as they are written", min_items=1)]
    leaves_no: Annotated[
        tuple[Annotated[str, Doc(choices=("run-directory", "file", "directory"))], ...],
        Doc("what must not be left in the folder that it ran in"),
    ] = ("run-directory",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the command is run."""

    timeout_s: Annotated[float, Doc("when the command is stopped", unit="s", gt=0, le=3600)] = 30.0


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand that the command refused."""
    seen = record_of(evidence, "outcome")
    if not seen:
        return blocked("not-run")
    looked = ["exit", "time", "output", *(["leftovers"] if limits.leaves_no else [])]
    offences = list(_offences(seen, limits))
    figures = {"exit_code": seen["exit_code"], "seconds": _seconds(seen), "names": limits.names}
    shown = {"measured": _seconds(seen), "limit": limits.within_s, "unit": "s", "figures": figures}
    return failed(offences, looked=looked, **shown) if offences else passed(looked=looked, **shown)


def _offences(seen: Fields, limits: Limits) -> Iterator[Offence]:
    code = seen["exit_code"]
    if code == 0:
        yield Offence(place="exit", code="exits-zero", figures={"limit": _wanted(limits)})
    elif code is not None and not _refuses(code, limits):
        yield Offence(place="exit", code="wrong-exit", figures={"exit_code": code, "limit": _wanted(limits)})
    if seen["timed_out"] or not _seconds(seen) <= limits.within_s:
        yield Offence(place="time", code="too-late", figures={"seconds": _seconds(seen), "limit": limits.within_s})
    missing = [name for name in limits.names if name not in _output(seen)]
    if missing:
        yield Offence(place="output", code="says-nothing", figures={"missing": missing, "said": _last_line(seen)})
    left = [item for item in _left(seen) if item["what"] in limits.leaves_no]
    if left:
        yield Offence(place="leftovers", code="left-behind", figures={"left": [item["path"] for item in left]})


def _refuses(code: Json, limits: Limits) -> bool:
    """Tell an exit code of a refusal from that of a crash: a process killed by a signal refused nothing."""
    return isinstance(code, int) and code > 0 and _wanted(limits) in (NONZERO, code)


def _wanted(limits: Limits) -> int | str:
    return limits.exit if isinstance(limits.exit, int) else NONZERO


def _seconds(seen: Fields) -> float:
    return float(str(seen["wall_seconds"]))


def _output(seen: Fields) -> str:
    return f"{seen['stdout']}\n{seen['stderr']}"


def _last_line(seen: Fields) -> str:
    lines = [line.strip() for line in _output(seen).splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing"


def _left(seen: Fields) -> tuple[Fields, ...]:
    left = seen["left"]
    assert isinstance(left, Sequence)
    return tuple(item for item in left if isinstance(item, Mapping))


def check(limits: Limits, measure: Measure) -> list[str]:
    """Say what no command could satisfy."""
    problems = []
    if isinstance(limits.exit, (bool, float)) or limits.exit is None:
        problems.append(f"exit: {limits.exit!r} is neither nonzero nor a whole number")
    if any(not name.strip() for name in limits.names):
        problems.append("names: an empty word is in every output")
    if measure.timeout_s <= limits.within_s:
        problems.append(
            f"timeout_s: {measure.timeout_s:g} s would stop the command before the {limits.within_s:g} s are over"
        )
    return problems


def _without(seen: Fields, word: str) -> Fields:
    return {**seen, "stdout": str(seen["stdout"]).replace(word, ""), "stderr": str(seen["stderr"]).replace(word, "")}


def _leaving(seen: Fields, limits: Limits) -> Fields | None:
    if not limits.leaves_no:
        return None
    harmless = {"path": "cache", "what": "none of these"}
    return {**seen, "left": [harmless, *_left(seen), {"path": "runs/left", "what": limits.leaves_no[-1]}, harmless]}


KIND = Kind(
    name="device-refusal",
    version=1,
    roles={"command": SubjectKind.COMMAND},
    needs={"outcome": Need("command_outcome", of=("command",), options=("timeout_s",))},
    limits=Limits,
    measure=Measure,
    codes={
        "exits-zero": Outcome.FAIL,
        "wrong-exit": Outcome.FAIL,
        "too-late": Outcome.FAIL,
        "says-nothing": Outcome.FAIL,
        "left-behind": Outcome.FAIL,
        "not-run": Outcome.BLOCKED,
    },
    judge=judge,
    check=check,
    falsifiers=(
        each_record("exits 0", "exits-zero", "outcome", lambda seen, _: {**seen, "exit_code": 0}, place="exit"),
        each_record(
            "killed by a signal", "wrong-exit", "outcome", lambda seen, _: {**seen, "exit_code": -11}, place="exit"
        ),
        each_record(
            "another exit code",
            "wrong-exit",
            "outcome",
            lambda seen, limits: {**seen, "exit_code": limits.exit + 1} if isinstance(limits.exit, int) else None,
            place="exit",
            why="every exit code but 0 is a refusal",
        ),
        each_record(
            "just too late",
            "too-late",
            "outcome",
            lambda seen, limits: {**seen, "wall_seconds": math.nextafter(limits.within_s, math.inf)},
            place="time",
        ),
        each_record(
            "a clock that tells no time",
            "too-late",
            "outcome",
            lambda seen, _: {**seen, "wall_seconds": math.nan},
            place="time",
        ),
        each_record(
            "stopped at its time limit",
            "too-late",
            "outcome",
            lambda seen, _: {**seen, "timed_out": True, "exit_code": None},
            place="time",
        ),
        each_record(
            "does not say the last word",
            "says-nothing",
            "outcome",
            lambda seen, limits: _without(seen, limits.names[-1]),
            place="output",
        ),
        each_record(
            "does not say the first word",
            "says-nothing",
            "outcome",
            lambda seen, limits: _without(seen, limits.names[0]),
            place="output",
        ),
        each_record(
            "says it in other letters",
            "says-nothing",
            "outcome",
            lambda seen, limits: (
                {**seen, "stdout": str(seen["stdout"]).swapcase(), "stderr": str(seen["stderr"]).swapcase()}
                if limits.names[-1].swapcase() != limits.names[-1]
                else None
            ),
            place="output",
            why="the word has no letters",
        ),
        each_record(
            "leaves something behind",
            "left-behind",
            "outcome",
            _leaving,
            place="leftovers",
            why="the contract lets it leave anything",
        ),
    ),
)
