"""device-refusal: does an impossible request exit non-zero, in time, naming the reason, leaving no run behind?

The other half of no-silent-cpu-fallback: a run that never started cannot have fallen back.
"""

import math
from collections.abc import Callable, Iterator
from typing import Annotated

from weighbridge.clauses.kind import Evidence, Kind, Need, blocked, codes, failed, passed, record_of
from weighbridge.clauses.mutations import Breaks, Change
from weighbridge.core import Doc, Fields, Offence, SubjectKind, Verdict, dataclass, replace
from weighbridge.quantities.commands import NONZERO, CommandOutcome, Leftover, cut_short

_breaks = Breaks(need="outcome", row=CommandOutcome)
LATE = _breaks.beyond(("beyond", "too-late", lambda _row, _limits, value: {"wall_seconds": value}), place="time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How a refusal looks."""

    exit: Annotated[int | str, Doc("nonzero, or the very exit code", pattern=NONZERO, ge=1, le=255)] = NONZERO
    within_s: Annotated[float, Doc("how long a refusal may take", unit="s", gt=0, le=3600, must="at most", moves=LATE)]
    names: Annotated[tuple[str, ...], Doc("words that the output must contain, as they are written", min_items=1)]
    leaves_no: Annotated[
        tuple[Annotated[str, Doc(choices=("run-directory", "file", "directory"))], ...],
        Doc("what must not be left in the folder that it ran in"),
    ] = ("run-directory",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the command is run."""

    timeout_s: Annotated[float, Doc("when the command is stopped", unit="s", gt=0, le=3600)] = 30.0
    run_roots: Annotated[
        tuple[str, ...],
        Doc("where the trainer writes its runs, from where the person stands; `~` and `$NAME` are what they are here"),
    ] = ()


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return PASS where the command refused as the limits say."""
    seen = record_of(evidence, "outcome", CommandOutcome)
    if seen is None:
        return blocked("not-run")
    looked = ["exit", "time", "output", "processes", *(["leftovers"] if limits.leaves_no else [])]
    broken = [Offence(place=place, code=code, figures=figures) for place, code, figures in _broken(seen, limits)]
    figures: Fields = {"exit_code": seen.exit_code, "seconds": seen.wall_seconds}
    figures = {**figures, "names": limits.names, "watched": seen.watched}
    shown = {"measured": seen.wall_seconds, "limit": limits.within_s, "unit": "s", "figures": figures}
    return failed(broken, looked=looked, **shown) if broken else passed(looked=looked, **shown)


def _broken(seen: CommandOutcome, limits: Limits) -> Iterator[tuple[str, str, Fields]]:
    code = seen.exit_code
    if code == 0:
        yield "exit", "exits-zero", {"limit": limits.exit}
    # A negative code is the signal that killed it, and a process that crashed refused nothing.
    elif code is not None and (code < 0 or limits.exit not in (NONZERO, code)):
        yield "exit", "wrong-exit", {"exit_code": code, "limit": limits.exit}
    if seen.timed_out or not seen.wall_seconds <= limits.within_s:
        yield "time", "too-late", {"seconds": seen.wall_seconds, "limit": limits.within_s}
    output = f"{seen.stdout}\n{seen.stderr}"
    missing = [name for name in limits.names if name not in output]
    if missing:
        lines = [line.strip() for line in output.splitlines() if line.strip()]
        yield "output", "says-nothing", {"missing": missing, "said": lines[-1][:200] if lines else "nothing"}
    if seen.outlived:
        yield "processes", "left-running", {"processes": seen.outlived}
    left = [item.path for item in seen.left if item.what in limits.leaves_no]
    if left:
        yield "leftovers", "left-behind", {"left": left}


def check(limits: Limits, measure: Measure) -> list[str]:
    """Return what no command could satisfy."""
    empty = [] if all(name.strip() for name in limits.names) else ["names: an empty word is in every output"]
    return [*empty, *cut_short(measure.timeout_s, limits.within_s)]


def _lacking(at: int) -> Change:
    return _saying(lambda text, limits: text.replace(limits.names[at], ""))


def _saying(change: Callable[[str, Limits], str]) -> Change:
    """Return the change of both streams; None where that leaves them as they are."""

    def changed(seen: CommandOutcome, limits: Limits) -> Fields | None:
        other = {"stdout": change(seen.stdout, limits), "stderr": change(seen.stderr, limits)}
        return None if other == {"stdout": seen.stdout, "stderr": seen.stderr} else other

    return changed


def _leaving(seen: CommandOutcome, limits: Limits) -> CommandOutcome | None:
    harmless = Leftover(path="cache", what="none of these")
    left = [Leftover(path="runs/left", what=what) for what in limits.leaves_no[-1:]]
    return replace(seen, left=(harmless, *seen.left, *left, harmless)) if left else None


ANY_EXIT, ANY_LEFT = "every exit code but 0 is a refusal", "it may leave anything"
FAILS = ("exits-zero", "wrong-exit", "too-late", "says-nothing", "left-behind", "left-running")

KIND = Kind(
    name="device-refusal", version=4, roles={"command": SubjectKind.COMMAND},
    needs={"outcome": Need("command_outcome", of=("command",), options=("timeout_s", "run_roots"))}, limits=Limits,
    measure=Measure, codes=codes(*FAILS, blocked=("not-run",)), judge=judge, check=check,
    mutations=(
        _breaks("exits 0", "exits-zero", place="exit", exit_code=0),
        _breaks("killed by a signal", "wrong-exit", place="exit", exit_code=-11),
        _breaks("another exit code", "wrong-exit",
                lambda _, of: {"exit_code": of.exit + 1} if isinstance(of.exit, int) else None, ANY_EXIT, place="exit"),
        _breaks("a clock that shows no time", "too-late", place="time", wall_seconds=math.nan),
        _breaks("stopped at its time limit", "too-late", place="time", timed_out=True, exit_code=None),
        _breaks("lacks the last word", "says-nothing", _lacking(-1), place="output"),
        _breaks("lacks the first word", "says-nothing", _lacking(0), place="output"),
        _breaks(
            "says it in other letters", "says-nothing",
            _saying(lambda text, limits: text.replace(limits.names[-1], limits.names[-1].swapcase())),
            "it has no letters", place="output",
        ),
        _breaks("leaves a process", "left-running", place="processes", outlived=1),
        _breaks("leaves something behind", "left-behind", _leaving, ANY_LEFT, place="leftovers"),
    ),
)  # fmt: skip
