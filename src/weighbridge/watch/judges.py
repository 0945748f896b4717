"""Judge a run while it goes on: `look` returns what should stop it, and only what the judge of all its rows says."""

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import Fields, Offence, Outcome, SubjectError, SubjectKind, UsageError, dataclass, model, replace
from weighbridge.evaluation.binding import Binding, all_instances, found
from weighbridge.evaluation.verification import ContractResult, VerifyRequest, bind_all, load_all, verify
from weighbridge.run_logs.json_log import RANK
from weighbridge.run_logs.log_table import NUMBER, STEP
from weighbridge.views.run import RunView
from weighbridge.watch.following import FollowedFile, FollowedRun, Names
from weighbridge.watch.gate_watch import GateWatch, watch

DEFAULT_CONTRACT = "builtin:training-run"
FIRST_LENGTH, GROWTH = 64, 1.5  # of the rows, or the bytes of what is not followed, until all are judged again
SHARE = 0.02  # of the time that this may take
LOOK_SECONDS = 0.5  # between two looks at what is not followed
FIRST_ROWS = 8  # by which a judge that goes row by row knows what is logged
Words: TypeAlias = Callable[[str, model.Verdict], Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """What should stop a run: a required gate that is broken for good, from which step on, and in words why."""

    gate: str
    instance: str
    step: int | None
    code: str
    why: str


@dataclass(slots=True)
class Reading:
    """How far the rows and events of one run were judged, and when all of them are judged again."""

    fed: int = 0
    generation: int = 0
    columns: int = 0
    events: int = 0  # that were given to judges with a row
    alone: int = 0  # and to judges of events alone
    last_step: float = -math.inf
    last_row_s: float = math.inf
    next_s: float = -math.inf  # when what is not followed is looked at
    length: float = FIRST_LENGTH
    past: tuple[int, int] = (-1, -1)  # rows and generation that lay there before a run was begun again


class Judges:
    """The judges of a run; `request` is what `verify` is asked at its end, but for the run, `words` say a verdict."""

    def __init__(self, request: VerifyRequest, run: Path, words: Words) -> None:
        names = request.contracts or (DEFAULT_CONTRACT,)
        self.loaded, self.words, self.run = load_all(names, request.params), words, run
        self.names = Names(str(run), RANK)
        named = dict.fromkeys(_watched(one.contract, request.subjects) for one in self.loaded)
        subjects = (*request.subjects, *(f"{name}={run}" for name in named))
        self.request = replace(request, contracts=names, subjects=subjects)
        self.stand_still: Callable[[], object] = lambda: None  # what keeps the run from going on while it is judged
        self.advice: list[Stop] = []  # of advisory gates, since the caller last took them
        self.unconfirmed: list[str] = []  # what the whole judge denies, and what raised: faults of this program
        self.gates: list[GateWatch] = []
        self.runs: dict[Any, tuple[FollowedRun, Reading]] = {}  # by path, and by what the contract calls its columns
        self._began, self._spent, self._ranks = math.inf, 0.0, tuple[str, ...]([""])

    @property
    def notes(self) -> list[str]:
        """Return what befell the logs: which were truncated, replaced or removed, and which are not followed."""
        return list(dict.fromkeys(note for run, _ in self.runs.values() for note in run.notes))

    def files(self) -> dict[Path, FollowedFile]:
        """Return the files that are followed."""
        return {path: file for run, _ in self.runs.values() if not run.problem for path, file in run.files.items()}

    def _bind(self) -> None:
        firsts = (run.logs[0] for run, _ in self.runs.values() if run.path == self.run)
        if any(one.folder and one.steps.node for one in firsts) or self.names() == self._ranks:
            return  # a folder with rows of its own is none of ranks
        self._ranks, known = self.names.names, {(one.contract.id, one.gate.id, one.instance): one for one in self.gates}
        self.gates = []
        for loaded, bound in zip(self.loaded, bind_all(self.loaded, self.request.subjects), strict=True):
            on = all_instances(loaded.contract, bound)
            for one, instance in ((gate, instance) for gate in loaded.contract.gates for instance in on[gate.id]):
                old = known.get((loaded.contract.id, one.id, instance))
                mine = found(one.subjects.values(), bound, instance)
                contract = replace(loaded.contract, gates=(one,))
                self.gates.append(old or watch(contract, instance, mine, self._followed(mine)))
        asked = {one.run for one in self.gates}  # a folder is no run any more where it holds ranks
        self.runs = {key: one for key, one in self.runs.items() if one[0] in asked}

    def _followed(self, bound: Sequence[Binding]) -> FollowedRun | None:
        for one in bound:
            path = Path(one.target)
            if one.kind is SubjectKind.RUN and not one.ranks and self.run in (path, path.parent):
                key = (path, *sorted(one.columns.items()), "", *sorted(one.units.items()), one.lines)
                begun = FollowedRun(path, one.columns, one.units, one.lines), Reading()
                return self.runs.setdefault(key, begun)[0]
        return None

    def begin_again(self) -> None:
        """Count what lies there as the past of a run that is begun again: it is judged with the next row."""
        self._bind()
        for run, reading in self.runs.values():
            run.look()
            reading.past = run.rows, run.generation

    def look(self, now_s: float) -> Stop | None:
        """Judge what was logged since, and return what should stop the run; `now_s` is of a clock that never falls."""
        self._began = min(self._began, now_s)
        self._bind()
        for run, reading in self.runs.values():
            before = run.rows, run.generation
            if run.problem and now_s < reading.next_s:
                continue
            reading.next_s = now_s + LOOK_SECONDS
            grown, now = run.look(), (run.rows, run.generation)
            reading.last_row_s = now_s if before != now else reading.last_row_s
            if now == reading.past:
                continue
            mine = [one for one in self.gates if one.run is run and not one.done]
            if grown and not run.problem and (stop := self._by_row(run, reading, mine)):
                return stop
            those = run, reading, mine, now_s
            if stop := self._due(*those) or self._again(*those) or self._silent(*those):
                return stop
        return None

    # --- Row by row -------------------------------------------------------------------------------------------------

    def _by_row(self, run: FollowedRun, reading: Reading, mine: Sequence[GateWatch]) -> Stop | None:
        """Judge every row, and confirm what is found by the whole judge of the rows so far."""
        columns, anew = len(run.logs[-1].table.columns), run.generation != reading.generation
        if not run.rows:
            return None
        if columns != reading.columns or anew:
            self._begin(run, reading, [one for one in mine if anew or one.tripwire is None], anew=anew)
            reading.columns, reading.generation = columns, run.generation
        going = [one for one in mine if one.tripwire]
        events = run.logs[-1].events
        for row in range(reading.fed, run.rows):
            numbers, reading.fed = run.numbers(row), row + 1
            step = numbers.get(STEP)
            reading.last_step = max(reading.last_step, -math.inf if step is None else step)
            more = _until(events, reading.events, reading.last_step)
            reading.events += len(more)
            broken = [one for one in going if one.row(step, numbers, more)]
            if broken and (stop := self._confirm(run, reading, broken)):
                return stop
        self._by_event(run, reading, mine)
        self.unconfirmed += [one.raised for one in going if one.raised and not one.tripwire and not one.done]
        waiting = [one for one in mine if one.broken and not one.done and one.again <= run.rows]
        return self._confirm(run, reading, waiting) if waiting else None

    def _by_event(self, run: FollowedRun, reading: Reading, mine: Sequence[GateWatch]) -> None:
        """Judge the events that came since, each by itself, by the judges of events alone."""
        fresh = run.logs[-1].events[reading.alone :]
        reading.alone += len(fresh)
        for one in [one for one in mine if not one.of_rows] if fresh else ():
            offence = one.of_all({}, run.of_events(fresh))
            one.broken = one.broken or offence

    def _begin(self, run: FollowedRun, reading: Reading, fresh: Sequence[GateWatch], *, anew: bool) -> None:
        """Begin judges that go row by row, and let them catch up; `anew` all, where the past is another one."""
        view = run.view()
        reading.fed = run.rows if anew else reading.fed
        reading.events, reading.alone = (0, 0) if anew else (reading.events, reading.alone)
        few, known = view.first(min(view.rows, FIRST_ROWS)), dict[Any, Any]()
        for one in fresh:
            one.broken = None
            one.begin(few, known)
        begun, seen = [one for one in fresh if one.tripwire], 0
        for row in range(view.rows - run.rows + reading.fed if begun else 0):
            numbers = {name: of.values[row] for name, of in view.cells.items() if of.state[row] == NUMBER}
            more = _until(view.events, seen, numbers.get(STEP, -math.inf))
            seen += len(more)
            for one in begun:
                one.row(numbers.get(STEP), numbers, more)

    def _confirm(
        self, run: FollowedRun, reading: Reading, broken: Sequence[GateWatch], view: RunView | None = None
    ) -> Stop | None:
        """Ask the whole judge of the rows that were given so far, and no others."""
        if any(one.required for one in broken):
            self.stand_still()
        if view is None:
            view = run.view()
            view = view.first(view.rows - run.rows + reading.fed)
        for one in broken:
            offence, finding = one.broken, one.confirmed(view, reading.fed)
            if isinstance(finding, str):
                self.unconfirmed.append(finding)
            elif finding and offence and (stop := self._stop(one, finding, offence, reading)):
                return stop
        return None

    def _stop(self, one: GateWatch, finding: model.Finding, worst: Offence, reading: Reading) -> Stop | None:
        """Return what stops the run, or put a gate that is advisory with the advice."""
        where = worst.figures.get("step", reading.last_step)
        step = int(where) if isinstance(where, (int, float)) and math.isfinite(where) else None
        words = "; ".join(self.words(one.gate.kind, finding.verdict)) if finding.verdict.offences else ""
        why = str(worst.figures.get("why", words))
        stop = Stop(gate=one.gate.id, instance=one.instance, step=step, code=worst.code, why=why)
        self.advice += [] if one.required else [stop]
        return stop if one.required else None

    # --- All rows together ------------------------------------------------------------------------------------------

    def _due(self, run: FollowedRun, reading: Reading, mine: Sequence[GateWatch], now_s: float) -> Stop | None:
        past = now_s - self._began
        due = [one for one in mine if not one.judged and (reading.last_step >= one.due_step or past >= one.due_s)]
        for one in due:
            if finding := one.when_due(self._view(run, one)):  # it is known with this step, whichever row it is of
                worst = Offence(place=finding.verdict.offences[0].place, code=finding.verdict.code)
                if stop := self._stop(one, finding, worst, reading):
                    return stop
        return None

    def _again(self, run: FollowedRun, reading: Reading, mine: Sequence[GateWatch], now_s: float) -> Stop | None:
        """Judge all rows at lengths that grow by half, as far as no judge goes row by row and time allows."""
        length = run.rows if run.problem is None else run.size()
        able = [one for one in mine if one.required] if length >= reading.length else []
        if not able or self._spent > SHARE * (now_s - self._began):
            return None
        reading.length, began, known = GROWTH * length, time.process_time(), dict[Any, Any]()
        try:
            view = self._view(run, able[0])
            reading.last_step = max(view.cells[STEP].numbers(), default=-math.inf)
            for one in able:
                one.broken = one.broken or one.of_all(known, view)
                if one.broken and (stop := self._confirm(run, reading, [one], view)):
                    return stop
        except SubjectError as problem:
            run.notes.append(f"{run.path.name} could not be read whole: {problem.what}")
        finally:
            self._spent += time.process_time() - began
        return None

    def _silent(self, run: FollowedRun, reading: Reading, mine: Sequence[GateWatch], now_s: float) -> Stop | None:
        """Return the gate that is broken because no row comes, of a run that has begun, and has not ended well."""
        since, events = now_s - reading.last_row_s, run.logs[-1].events
        if events and events[-1].get("event") == "end" and not events[-1].get("by"):  # who failed may be restarted
            return None
        for one in [one for one in mine if since > one.silent_s]:
            finding = one.whole(self._view(run, one))
            one.done = True
            why = f"no row for {since:.3g} s, {one.silent_s:g} s may go by; the last step is {reading.last_step:g}"
            silent = Offence(place=run.path.name, code="silent", figures={"why": why})
            meant = finding.verdict.outcome is not Outcome.NOT_APPLICABLE
            if meant and (stop := self._stop(one, finding, silent, reading)):
                return stop
        return None

    @staticmethod
    def _view(run: FollowedRun, one: GateWatch) -> RunView:
        if run.problem is None:
            view = run.view()
            return view.first(view.rows)
        opened: RunView = next(at for at in one.bound if Path(at.target) == run.path).open()
        return opened

    # --- What is not decided, and the end ---------------------------------------------------------------------------

    def waiting(self) -> str:
        """Say how many gates are PENDING and until when, and how many came to what when they were due."""
        states = (
            f"{one.judged.outcome} ({one.judged.code}) when due" if one.judged else f"until {one.due_in_words}"
            for one in sorted((one for one in self.gates if not one.done), key=lambda one: (one.due_step, one.due_s))
        )
        return ", ".join(f"{count} {state}" for state, count in Counter(states).items())

    def late(self) -> str:
        """Say which gates are not judged while rows come, or ""."""
        ids = list(dict.fromkeys(one.gate.id for one in self.gates if one.is_late))
        of_all = len({one.gate.id for one in self.gates})
        return f"not judged before they are due: {len(ids)} of {of_all}: {', '.join(ids)}" if ids else ""

    def finish(self) -> tuple[ContractResult, ...]:
        """Verify the whole contracts of the run as it lies there, as `verify` does."""
        return verify(self.request, lambda _text: None)


def _until(events: Sequence[Fields], begun: int, step: float) -> Sequence[Fields]:
    """Return the events from one on, up to the first that is of a later step."""
    end = begun
    while end < len(events) and (type(at := events[end].get(STEP)) is not int or at <= step):
        end += 1
    return events[begun:end]


def _watched(contract: model.Contract, given: Sequence[str]) -> str:
    """Return the subject that the run stands for: the one that is `run`, or that nothing else is bound to."""
    by_hand = {text.partition("=")[0].partition("@")[0] for text in given}
    asked = {name for gate in contract.gates for name in gate.subjects.values()} - by_hand
    runs = [name for name, of in contract.subjects.items() if of.kind is SubjectKind.RUN and name in asked]
    free = [name for name in runs if name == "run"] or [name for name in runs if not contract.subjects[name].path]
    if len(free) != 1:
        what = f"{contract.id} has {'several runs' if free else 'no gate over a run'} to watch"
        raise UsageError("nothing-to-watch", what, remedy="bind the other runs by --subject NAME=PATH")
    return free[0]
