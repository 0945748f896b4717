"""command-succeeds: does a command, with each list of arguments, end, say and leave what it must?"""

import copy
import json
import math
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from weighbridge.clauses.clause import Clause, ClauseJudge, Each, Requires
from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, codes, rows_of
from weighbridge.clauses.mutations import Breaks, Change
from weighbridge.core import Doc, Fields, Outcome, SubjectKind, WeighbridgeError, at_pointer, dataclass, field, loads
from weighbridge.quantities.commands import KEPT, NONZERO, CommandRun, Leftover, case_of, cut_short

TEXT = "a text in one line of the output, in which `*` stands for anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text that must be in so many lines of the output, no more and no fewer."""

    text: Annotated[str, Doc(TEXT)]
    times: Annotated[int, Doc("lines that have it", ge=1, le=10_000)]


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


def lines_of(run: CommandRun) -> list[str]:
    """Return the lines of both streams."""
    return f"{run.stdout}\n{run.stderr}".splitlines()


def wrong_exit(case: Case, run: CommandRun) -> Fields | None:
    """Return the exit code that it must not have ended with."""
    code = run.exit_code
    # A negative code is the signal that killed it, and a process that crashed refused nothing.
    as_it_must = code is not None and (code > 0 if case.exit == NONZERO else code == case.exit)
    if as_it_must or run.timed_out:
        return None
    lines = [line.strip() for line in lines_of(run) if line.strip()]
    return {"exit_code": code, "expected": case.exit, "last": lines[-1][:200] if lines else "nothing"}


def has(line: str, text: str) -> bool:
    """Return whether a line has a text, in which `*` stands for anything: each part is looked for once."""
    at = 0
    for part in text.split("*"):
        if (found := line.find(part, at)) < 0:
            return False
        at = found + len(part)
    return True


def count(run: CommandRun, text: str) -> int:
    """Return how many lines have a text."""
    return sum(has(line, text) for line in lines_of(run))


def unsaid(case: Case, run: CommandRun) -> list[str]:
    """Return the texts that too few or too many lines have."""
    found = []
    for one in case.says:
        many, times = count(run, text_of(one)), one.times if isinstance(one, Said) else None
        if not many if times is None else many != times:
            found.append(f"{text_of(one)!r} in {many} lines" + ("" if times is None else f", not {times}"))
    return found


def text_of(said: str | Said) -> str:
    """Return the text that must be said."""
    return said.text if isinstance(said, Said) else said


def _fits(found: object, wanted: object) -> bool:
    if not isinstance(wanted, JsonField):
        return isinstance(found, bool) is isinstance(wanted, bool) and found == wanted
    if wanted.one_of and not any(_fits(found, one) for one in wanted.one_of):
        return False
    return wanted.matches is None or (isinstance(found, str) and fnmatchcase(found, wanted.matches))


def not_left(case: Case, run: CommandRun) -> list[str]:
    """Return the globs that no file fits that it left."""
    files = [item.path for item in run.left if item.what == "file"]
    return [glob for glob in case.files if not any(fnmatchcase(path, glob) for path in files)]


def kept_in_part(case: Case, run: CommandRun) -> str:
    """Return what was kept only in part, where the whole would be needed to judge it."""
    if run.stdout_bytes > KEPT and case.json:
        return "standard output"
    counted = any(isinstance(one, Said) for one in case.says)
    if max(run.stdout_bytes, run.stderr_bytes) > KEPT and (case.never_says or counted or unsaid(case, run)):
        return "output"
    return "list of files" if run.left_total > len(run.left) and not_left(case, run) else ""


def wrong_json(case: Case, run: CommandRun) -> Fields | None:
    """Return the fields of its JSON, which is the whole standard output, that are not as they must be."""
    odd = []
    try:
        document = loads(run.stdout, spelled=False) if case.json else None
    except WeighbridgeError as problem:
        return {"odd": [problem.what]}
    for pointer, wanted in case.json.items():
        try:
            found = at_pointer(document, pointer)
        except KeyError:
            odd.append(f"nothing at {pointer}")
            continue
        if not _fits(found, wanted):
            odd.append(f"{json.dumps(found)[:80]} at {pointer}")
    return {"odd": odd} if odd else None


RUNS = "runs"
BLOCKED = ("not-run", "kept-in-part")
_breaks = Breaks(need=RUNS, row=CommandRun, blocked=BLOCKED, why="no case promises it")
LATE = _breaks.beyond(("beyond", "too-late", lambda _run, _limits, value: {"wall_seconds": value}))
ONE = (Case(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the command must do, with each list of arguments."""

    within_s: Annotated[
        float | None, Doc("how long each run may take", unit="s", gt=0, le=86400, must="at most", moves=LATE)
    ] = None
    cases: Annotated[tuple[Case, ...], Doc("lists of arguments, and what each must do", min_items=1, tight="up")] = ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """How the command is run."""

    timeout_s: Annotated[float, Doc("when a run is stopped", unit="s", gt=0, le=86400)] = 600.0
    hide_accelerators: Annotated[bool, Doc("run it where no accelerator can be seen")] = False


def clauses(limits: Limits) -> Sequence[Clause]:
    """Return that each list of arguments was run, ended as it must, and said and left what it must."""
    cases = {case_of(case.args): case for case in limits.cases}

    def not_run(evidence: Evidence) -> Fields | None:
        there = {run.case for run in rows_of(evidence, RUNS, CommandRun)}
        missing = [name for name in cases if name not in there]
        return {"missing": missing, "cases": len(cases)} if missing else None

    def too_late(_case: Case, run: CommandRun) -> Fields | None:
        late = limits.within_s is not None and not run.wall_seconds <= limits.within_s
        return {"seconds": run.wall_seconds, "within": limits.within_s} if late else None

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
        each("wrong-exit", wrong_exit),
        each("too-late", too_late),
        each("forbidden-output", lambda case, run: _any("said", [one for one in case.never_says if count(run, one)])),
        each("kept-in-part", lambda case, run: _any("what", kept_in_part(case, run)), Outcome.BLOCKED),
        each("wrong-output", lambda case, run: _any("unsaid", unsaid(case, run))),
        each("wrong-json", wrong_json),
        each("not-left", lambda case, run: _any("files", not_left(case, run))),
    )


def _any(name: str, what: Sequence[str]) -> Fields | None:
    return {name: what} if what else None


def _figures(evidence: Evidence, limits: Limits) -> Fields:
    slowest = max((run.wall_seconds for run in rows_of(evidence, RUNS, CommandRun)), default=None)
    return {"measured": slowest, "limit": limits.within_s, "unit": "s", "cases": len(limits.cases)}


def check(limits: Limits, measure: Measure) -> list[str]:
    """Return what no command could satisfy, or would be satisfied by any."""
    names = [case_of(case.args) for case in limits.cases]
    problems = [f"cases: {name} is there twice" for name in sorted({one for one in names if names.count(one) > 1})]
    texts = [text for case in limits.cases for text in (*map(text_of, case.says), *case.never_says)]
    if any(not text.replace("*", "").strip() or len(text.splitlines()) > 1 for text in texts):
        problems.append("says, never_says: a text needs a letter, and stands in one line")
    return [*problems, *cut_short(measure.timeout_s, limits.within_s)]


def _arguments(limits: Fields) -> Fields:
    cases: Any = limits["cases"]
    return {"cases": [case["args"] for case in cases]}


def _of_case(change: Callable[[Case, CommandRun], Any]) -> Change:
    return lambda run, limits: change(next(case for case in limits.cases if case_of(case.args) == run.case), run)


def _lacking_text(case: Case, run: CommandRun, at: int) -> Fields | None:
    if not case.says:
        return None
    text = text_of(case.says[at])
    streams = (run.stdout, run.stderr)
    out, err = ("\n".join(line for line in part.splitlines() if not has(line, text)) for part in streams)
    return {"stdout": out, "stderr": err}


def _saying(run: CommandRun, texts: Sequence[str], at: int) -> Fields | None:
    return {"stderr": "\n".join([run.stderr, texts[at].replace("*", "")])} if texts else None


def _with_field(case: Case, run: CommandRun, at: int, value: object = None) -> Fields | None:
    """Return another value in a field; with None, no such field nor what is beside it."""
    fields = [pointer for pointer, wanted in case.json.items() if value is None or wanted != JsonField()]
    if not fields:
        return None
    data = copy.deepcopy(loads(run.stdout, spelled=False))
    above, _, key = fields[at].rpartition("/")
    within = at_pointer(data, above)
    if value is None:
        within.clear()
    else:
        within[int(key) if isinstance(within, list) else key.replace("~1", "/").replace("~0", "~")] = value
    return {"stdout": json.dumps(data)}


def _leaving_less(case: Case, run: CommandRun, at: int) -> dict[str, Any] | None:
    if not case.files:
        return None
    left = tuple(item for item in run.left if not fnmatchcase(item.path, case.files[at]))
    return {"left": (*left, *(Leftover(path=glob, what="directory") for glob in case.files[at:][:1]))}


def _counted(case: Case) -> list[str]:
    return [one.text for one in case.says if isinstance(one, Said)]


def _first_or_last(name: str, code: str, change: Callable[[Case, CommandRun, int], Any]) -> list[Mutation[Any]]:
    def of(at: int) -> Change:
        return _of_case(lambda case, run: change(case, run, at))

    return [_breaks(name.format("first"), code, of(0)), _breaks(name.format("last"), code, of(-1))]


KIND = Kind(
    name="command-succeeds", version=2, roles={"command": SubjectKind.COMMAND},
    needs={RUNS: Need("command_runs", of=("command",), options=("timeout_s", "hide_accelerators"),
                      of_limits=_arguments)},
    limits=Limits, measure=Measure,
    codes=codes("stopped", "wrong-exit", "too-late", "forbidden-output", "wrong-output", "wrong-json", "not-left",
                blocked=BLOCKED),
    judge=ClauseJudge(clauses, figures=_figures), check=check,
    mutations=(
        _breaks("killed by a signal", "wrong-exit", exit_code=-11),
        _breaks("stopped at its time limit", "stopped", timed_out=True, exit_code=None),
        _breaks("a clock that shows no time", "too-late",
                lambda _, of: None if of.within_s is None else {"wall_seconds": math.nan}, "it may take any time"),
        _breaks("another exit code", "wrong-exit",
                _of_case(lambda case, _: {"exit_code": 0 if case.exit == NONZERO else int(case.exit) + 1})),
        _breaks("says it once more", "wrong-output", _of_case(lambda case, run: _saying(run, _counted(case), 0))),
        _breaks("no JSON", "wrong-json", _of_case(lambda case, _: {"stdout": "no JSON"} if case.json else None)),
        _breaks("only the end of the output was kept", "kept-in-part",
                _of_case(lambda case, _: {"stdout_bytes": KEPT + 1} if case.never_says or case.json else None)),
        *_first_or_last("lacks the {} text", "wrong-output", _lacking_text),
        *_first_or_last("says the {} that it must not", "forbidden-output",
                        lambda case, run, at: _saying(run, case.never_says, at)),
        *_first_or_last("lacks the {} field", "wrong-json", _with_field),
        *_first_or_last("another {} value", "wrong-json",
                        lambda case, run, at: _with_field(case, run, at, ["another"])),
        *_first_or_last("leaves nothing of the {} name", "not-left", _leaving_less),
        _breaks.only("a case that was not run", "not-run",
                     lambda run, of: None if run.case == case_of(of.cases[-1].args) else run, "there is one case"),
    ),
)  # fmt: skip
