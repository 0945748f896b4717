"""command-succeeds: does a command, with each list of arguments, end, say and leave what it must?

A promise that a program keeps about itself: its exit code, its words, the fields of its JSON, its files.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires
from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, codes, rows_of
from weighbridge.clauses.mutations import column_moves, in_rows, only_rows
from weighbridge.core.canonical import at_pointer, loads
from weighbridge.core.errors import WeighbridgeError
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Outcome, SubjectKind
from weighbridge.quantities.commands import KEPT, CommandRun, Leftover, case_of

RUNS = "runs"
NONZERO = "nonzero"
TEXT = "a text in one line of the output, in which `*` stands for anything"
LATE = column_moves("too-late", RUNS, "wall_seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text that must be in so many lines of the output, no more and no fewer."""

    text: Annotated[str, Doc(TEXT)]
    times: Annotated[int, Doc("lines that hold it", ge=1, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonField:
    """What a field of the JSON output must hold; without either key it must be there."""

    one_of: Annotated[tuple[object, ...], Doc("the values that it may have")] = ()
    matches: Annotated[str | None, Doc("a glob that its text must fit")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One list of arguments, and what the command must do with it."""

    args: Annotated[tuple[str, ...], Doc("arguments that follow those that were bound")] = ()
    exit: Annotated[int | str, Doc("the exit code, or nonzero", pattern=NONZERO, ge=0, le=255)] = 0
    says: Annotated[tuple[str | Said, ...], Doc(f"what it must say: {TEXT}")] = ()
    never_says: Annotated[tuple[str, ...], Doc(f"what it must not say: {TEXT}")] = ()
    json: Annotated[
        Mapping[str, str | int | float | bool | JsonField],
        Doc("JSON pointer into its standard output to the value there", keys="(/.*)", form="a JSON pointer (/a/b)"),
    ] = field(default_factory=dict)
    files: Annotated[tuple[str, ...], Doc("globs of files that it must leave in the folder that it ran in")] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the command must do, with each list of arguments."""

    within_s: Annotated[
        float | None,
        Doc("how long each run may take", unit="s", gt=0, le=86400, must="at most", moves=LATE),
    ] = None
    cases: Annotated[tuple[Case, ...], Doc("lists of arguments, and what each must do", min_items=1, tight="up")] = (
        Case(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the command is run."""

    timeout_s: Annotated[float, Doc("when a run is stopped", unit="s", gt=0, le=86400)] = 600.0
    hide_accelerators: Annotated[bool, Doc("run it where no accelerator can be seen")] = False


# --- What one run said and left ---------------------------------------------------------------------------------------


def _holds(line: str, text: str) -> bool:
    """Return whether a line holds a text, in which `*` stands for anything: each part is looked for once."""
    at = 0
    for part in text.split("*"):
        found = line.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _lines(run: CommandRun) -> list[str]:
    return f"{run.stdout}\n{run.stderr}".splitlines()


def _count(run: CommandRun, text: str) -> int:
    return sum(_holds(line, text) for line in _lines(run))


def _unsaid(case: Case, run: CommandRun) -> list[str]:
    counts = [(one, _count(run, _text(one))) for one in case.says]
    return [
        f"{_text(one)!r} in {count} lines{f', not {one.times}' if isinstance(one, Said) else ''}"
        for one, count in counts
        if (count != one.times if isinstance(one, Said) else not count)
    ]


def _text(said: str | Said) -> str:
    return said.text if isinstance(said, Said) else said


def _document(run: CommandRun) -> Any:
    """Return the JSON of the whole standard output; raises WeighbridgeError where it is none."""
    return loads(run.stdout, spelled=False)


def _odd_fields(case: Case, run: CommandRun) -> list[str]:
    document = _document(run)
    odd = []
    for pointer, wanted in case.json.items():
        try:
            found = at_pointer(document, pointer)
        except KeyError:
            odd.append(f"nothing at {pointer}")
            continue
        if not _fits(found, wanted):
            odd.append(f"{json.dumps(found)[:80]} at {pointer}")
    return odd


def _fits(found: object, wanted: object) -> bool:
    if not isinstance(wanted, JsonField):
        return isinstance(found, bool) is isinstance(wanted, bool) and found == wanted
    if wanted.one_of and not any(_fits(found, one) for one in wanted.one_of):
        return False
    return wanted.matches is None or (isinstance(found, str) and fnmatchcase(found, wanted.matches))


def _not_left(case: Case, run: CommandRun) -> list[str]:
    files = [item.path for item in run.left if item.what == "file"]
    return [glob for glob in case.files if not any(fnmatchcase(path, glob) for path in files)]


def _kept_in_part(case: Case, run: CommandRun) -> str:
    """Return what was kept only in part, where the whole would be needed to judge it."""
    if run.stdout_bytes > KEPT and case.json:
        return "standard output"
    counted = any(isinstance(one, Said) for one in case.says)
    if max(run.stdout_bytes, run.stderr_bytes) > KEPT and (case.never_says or counted or _unsaid(case, run)):
        return "output"
    return "list of files" if run.left_total > len(run.left) and _not_left(case, run) else ""


# --- The clauses ------------------------------------------------------------------------------------------------------


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that each list of arguments was run, ended as it must, and said and left what it must."""
    cases = {case_of(case.args): case for case in limits.cases}

    def not_run(evidence: Evidence) -> Fields | None:
        there = {run.case for run in rows_of(evidence, RUNS, CommandRun)}
        missing = [name for name in cases if name not in there]
        return {"missing": missing, "cases": len(cases)} if missing else None

    def each(
        code: str, broken: Callable[[Case, CommandRun], Fields | None], outcome: Outcome = Outcome.FAIL
    ) -> Each[CommandRun]:
        def of(run: CommandRun) -> Fields | None:
            case = cases.get(run.case)
            return None if case is None else broken(case, run)

        return Each(code=code, need=RUNS, row=CommandRun, broken=of, outcome=outcome)

    return (
        Requires(code="not-run", lacking=not_run),
        each("stopped", lambda _, run: {"timeout": run.timeout_s} if run.timed_out else None),
        each("wrong-exit", _wrong_exit),
        each("too-late", lambda _, run: _too_late(run, limits)),
        each("forbidden-output", lambda case, run: _told("said", [t for t in case.never_says if _count(run, t)])),
        each("kept-in-part", lambda case, run: _told("what", _kept_in_part(case, run)), Outcome.BLOCKED),
        each("wrong-output", lambda case, run: _told("unsaid", _unsaid(case, run))),
        each("wrong-json", _wrong_json),
        each("not-left", lambda case, run: _told("files", _not_left(case, run))),
    )


def _told(name: str, what: Sequence[str]) -> Fields | None:
    return {name: what} if what else None


def _wrong_exit(case: Case, run: CommandRun) -> Fields | None:
    code = run.exit_code
    # A negative code is the signal that killed it, and a process that crashed refused nothing.
    as_it_must = code is not None and (code > 0 if case.exit == NONZERO else code == case.exit)
    if as_it_must or run.timed_out:
        return None
    lines = [line.strip() for line in _lines(run) if line.strip()]
    return {"exit_code": code, "expected": case.exit, "last": lines[-1][:200] if lines else "nothing"}


def _too_late(run: CommandRun, limits: Limits) -> Fields | None:
    if limits.within_s is None or run.wall_seconds <= limits.within_s:
        return None
    return {"seconds": run.wall_seconds, "within": limits.within_s}


def _wrong_json(case: Case, run: CommandRun) -> Fields | None:
    if not case.json:
        return None
    try:
        return _told("odd", _odd_fields(case, run))
    except WeighbridgeError as problem:
        return {"odd": [problem.what]}


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    slowest = max((run.wall_seconds for run in rows_of(evidence, RUNS, CommandRun)), default=None)
    return {"measured": slowest, "limit": limits.within_s, "unit": "s", "cases": len(limits.cases)}


def check(limits: Limits, measure: Measure) -> list[str]:
    """Return what no command could satisfy, or would be satisfied by any."""
    names = [case_of(case.args) for case in limits.cases]
    problems = [f"cases: {name} is there twice" for name in sorted({one for one in names if names.count(one) > 1})]
    texts = [text for case in limits.cases for text in (*map(_text, case.says), *case.never_says)]
    if any(not text.replace("*", "").strip() or len(text.splitlines()) > 1 for text in texts):
        problems.append("says, never_says: a text needs a letter, and stands in one line")
    if limits.within_s is not None and measure.timeout_s <= limits.within_s:
        problems.append(
            f"timeout_s: {measure.timeout_s:g} s would stop the command before the {limits.within_s:g} s are over"
        )
    return problems


# --- How what no limit bounds is broken -------------------------------------------------------------------------------


def _arguments(limits: Fields) -> Fields:
    cases: Any = limits["cases"]
    return {"cases": [case["args"] for case in cases]}


Change = Callable[[Case, CommandRun], CommandRun | None]


def _breaks(name: str, code: str, change: Change, outcome: Outcome = Outcome.FAIL) -> Mutation[Limits]:
    def changed(run: CommandRun, limits: Limits) -> CommandRun | None:
        return change(next(case for case in limits.cases if case_of(case.args) == run.case), run)

    return in_rows(name, code, RUNS, CommandRun, changed, why="no case promises it", outcome=outcome)


def _without(case: Case, run: CommandRun, at: int) -> CommandRun | None:
    if not case.says:
        return None
    text = _text(case.says[at])
    streams = (run.stdout, run.stderr)
    out, err = ("\n".join(line for line in part.splitlines() if not _holds(line, text)) for part in streams)
    return replace(run, stdout=out, stderr=err)


def _adding(run: CommandRun, texts: Sequence[str]) -> CommandRun | None:
    return replace(run, stderr="\n".join([run.stderr, texts[0].replace("*", "")])) if texts else None


def _with_field(case: Case, run: CommandRun, at: int, value: object) -> CommandRun | None:
    """Return the run with another value in a field; with None, without what holds the field."""
    fields = [pointer for pointer, wanted in case.json.items() if value is None or wanted != JsonField()]
    if not fields:
        return None
    document = copy.deepcopy(_document(run))
    above, _, key = fields[at].rpartition("/")
    if value is None:
        at_pointer(document, above).clear()
    else:
        holder = at_pointer(document, above)
        holder[int(key) if isinstance(holder, list) else key.replace("~1", "/").replace("~0", "~")] = value
    return replace(run, stdout=json.dumps(document))


def _leaving_less(case: Case, run: CommandRun, at: int) -> CommandRun | None:
    if not case.files:
        return None
    left = tuple(item for item in run.left if not fnmatchcase(item.path, case.files[at]))
    return replace(run, left=(*left, *(Leftover(path=glob, what="directory") for glob in case.files[at:][:1])))


KIND = Kind(
    name="command-succeeds",
    version=1,
    roles={"command": SubjectKind.COMMAND},
    needs={
        RUNS: Need(
            "command_runs",
            of=("command",),
            options=("timeout_s", "hide_accelerators"),
            of_limits=_arguments,
        )
    },
    limits=Limits,
    measure=Measure,
    codes=codes(
        "stopped", "wrong-exit", "too-late", "forbidden-output", "wrong-output", "wrong-json", "not-left",
        blocked=("not-run", "kept-in-part"),
    ),
    judge=ClauseJudge(clauses, figures=_figures),
    check=check,
    mutations=(
        _breaks(
            "another exit code", "wrong-exit",
            lambda case, run: replace(run, exit_code=0 if case.exit == NONZERO else int(case.exit) + 1),
        ),
        _breaks("killed by a signal", "wrong-exit", lambda _, run: replace(run, exit_code=-11)),
        _breaks("stopped at its time limit", "stopped", lambda _, run: replace(run, timed_out=True, exit_code=None)),
        in_rows(
            "a clock that shows no time", "too-late", RUNS, CommandRun,
            lambda run, limits: None if limits.within_s is None else replace(run, wall_seconds=math.nan),
            why="it may take any time",
        ),
        _breaks("lacks the first text", "wrong-output", lambda case, run: _without(case, run, 0)),
        _breaks("lacks the last text", "wrong-output", lambda case, run: _without(case, run, -1)),
        _breaks(
            "says it once more", "wrong-output",
            lambda case, run: _adding(run, [one.text for one in case.says if isinstance(one, Said)]),
        ),
        _breaks("says the first that it must not", "forbidden-output", lambda case, run: _adding(run, case.never_says)),
        _breaks(
            "says the last that it must not", "forbidden-output",
            lambda case, run: _adding(run, case.never_says[::-1]),
        ),
        _breaks("no JSON", "wrong-json", lambda case, run: replace(run, stdout="no JSON") if case.json else None),
        _breaks("lacks the first field", "wrong-json", lambda case, run: _with_field(case, run, 0, None)),
        _breaks("lacks the last field", "wrong-json", lambda case, run: _with_field(case, run, -1, None)),
        _breaks("another first value", "wrong-json", lambda case, run: _with_field(case, run, 0, ["another"])),
        _breaks("another last value", "wrong-json", lambda case, run: _with_field(case, run, -1, ["another"])),
        _breaks("leaves nothing of the first name", "not-left", lambda case, run: _leaving_less(case, run, 0)),
        _breaks("leaves nothing of the last name", "not-left", lambda case, run: _leaving_less(case, run, -1)),
        _breaks(
            "only the end of the output was kept", "kept-in-part",
            lambda case, run: replace(run, stdout_bytes=KEPT + 1) if case.never_says or case.json else None,
            Outcome.BLOCKED,
        ),
        only_rows(
            "a case that was not run", "not-run", RUNS, CommandRun,
            lambda run, limits: None if run.case == case_of(limits.cases[-1].args) else run,
            why="there is one case",
        ),
    ),
)  # fmt: skip
