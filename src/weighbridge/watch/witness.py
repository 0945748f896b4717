"""The witness at work: one loop over the tree, the clock and the log; the stop; the end, and the seal over it all."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.core import FAULTS, WeighbridgeError, __version__, dataclass, dumps, field, git, singular
from weighbridge.evidence.disk import disk_error, write_new
from weighbridge.evidence.redact import host_pseudonym, own_key, redactor_here
from weighbridge.quantities import book_lines as of
from weighbridge.watch import processes
from weighbridge.watch.book_file import begin_book, now_text, states
from weighbridge.watch.following import Growth
from weighbridge.watch.launch import ENDING, LAST_SECONDS, ORPHANED, PASSED_ON, Started, start
from weighbridge.watch.processes import Mapped, Seen, Tree

if TYPE_CHECKING:
    from weighbridge.watch.judges import Judges
    from weighbridge.watch.judges import Stop as Found

POLL_MS = 45  # how late a row may be seen: many of a fast log are judged at once
WALK_SECONDS, WALK_SHARE = 1.0, 400  # between two walks over /proc, which may take a four-hundredth of the time
SAMPLE_SECONDS = 10.0
JUMP_SECONDS = 0.5
AWAY_SECONDS = 2.0  # between two looks, which are a few hundredths apart
MOST_PROCESSES = 10_000  # lines of the book about them
NOT_FOUND = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the person at the keyboard asked for."""

    run: Path
    command: tuple[str, ...]
    contracts: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 30.0
    stops: bool = True  # at the first gate that failed
    resume: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Witnessed:
    """How it ended: the code to exit with where the contract adds nothing, and why no seal is set."""

    exit: int
    asked: int = 0  # the signal by which a person ended it
    started: bool = True
    unsealed: str = ""


class Witness:
    """One segment of a run, from the start of the command to the end of its last process."""

    def __init__(self, asked: Asked, judges: Judges, tell: Callable[[str], None], *, live: bool = False) -> None:
        self.asked, self.judges, self.tell, self.live = asked, judges, tell, live  # what is PENDING is shown live
        self.growth, self.mapped = Growth(run=asked.run, judged=judges.files), Mapped()
        self.redactor = redactor_here(own_key(), run=Path.cwd(), named=asked.command)
        self.cpu_s, self.seen, self.standing = 0.0, 0, False
        self.signals, self.booked = list[int](), set[tuple[str, str]]()
        self.next_walk = self.next_sample = 0.0
        self.paused, self.waiting, self.left_behind = False, "", False
        self.stop: Found | None = None
        self.end: of.End | None = None  # None, too, where not all could be ended, or be read

    def run(self) -> Witnessed:
        """Witness the command and all that comes of it to the end; what breaks here leaves none of that."""
        self.book = begin_book(self.asked.run, resume=self.asked.resume)
        self.began, self.offset = time.monotonic(), time.time() - time.monotonic()
        child = start(self.asked.command, host=host_pseudonym(self.redactor.key))
        self.tree = Tree(child=child.pid)
        self.judges.stand_still = self._pause
        try:
            with self._listening():
                if not self._begin(child):
                    return Witnessed(exit=NOT_FOUND, started=False)
                self._watch()
                return self._end()
        except BaseException:
            self.tree.kill(LAST_SECONDS, self._reap)
            raise

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Have every signal wake the loop, and be kept for it."""
        self.bell, ringing = socket.socketpair()
        for one in (self.bell, ringing):
            one.setblocking(False)
        self.bells = select.poll()
        self.bells.register(self.bell, select.POLLIN)
        numbers = (*ENDING, *PASSED_ON, ORPHANED)
        before = {number: signal.signal(number, lambda number, _: self.signals.append(number)) for number in numbers}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        wakeup = signal.set_wakeup_fd(ringing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self.bell.close()
            ringing.close()

    def _begin(self, child: Started) -> bool:
        """Write the first line, and let the child go; return whether it could be started."""
        seen = next(iter(self.tree.alive()), None)
        self.can_see: dict[str, Any] = dict(zip(("witnessed", "not_witnessed"), processes.seen_here(), strict=True))
        commit, asked = git.commit(Path()), self.asked
        line = of.Begin(
            tool=__version__,
            run=asked.run.name,
            command=tuple(map(self.redactor.text, asked.command)),
            pid=child.pid,
            start_ticks=seen.start_ticks if seen else 0,
            executable=processes.program(asked.command[0]),
            host=host_pseudonym(self.redactor.key),
            commit=commit,
            dirty=git.is_dirty(Path()) if commit else None,
            grace_s=asked.grace_s,
            contracts=asked.contracts,
            **self.can_see,
        )
        self.book.add(line, durable=True)
        if self.tree.blind:
            self.book.unsealed = "there is no /proc: what came of the command was not seen"
        if self.book.unsealed:
            self.book.note("no seal", self.book.unsealed)
        if refused := self.book.problem:
            child.give_up()
            self.book.unmake()
            raise disk_error(refused, "the book", self.book.folder)
        if problem := child.go():
            self.book.unmake()
            why = f"cannot be executed: {os.strerror(problem.errno or 0)}"
            why = "not found, it or its interpreter" if problem.errno == errno.ENOENT else why
            self.tell(f"{asked.command[0]}: {why}; nothing was started, and there is no book")
        elif line.dirty is not False:
            why = "no commit is known here" if line.dirty is None else "the tree has changes"
            self.tell(f"this run cannot become live: {why}; start it in a git repository, all of it committed")
        self.tree.max_rss_kib = 0  # until now the child was a copy of this process
        return problem is None

    def _watch(self) -> None:
        """Look until no process is left, a gate failed for good, or a person ended it."""
        alone, looked = False, time.monotonic()
        while True:
            rang = self._wait()
            now = time.monotonic()
            if now - looked > AWAY_SECONDS:
                self.book.note("the witness", f"did not look for {now - looked:.1f} s")
            looked = now
            if rang and alone:
                self.next_walk = now
            if self._asked_to_end() or self._judge(now):
                return
            if self.tree.status is not None and not alone:
                alone, self.next_walk = True, now
            if now >= self.next_walk or self.growth.begun:
                left = self._walk(now)
                if alone and left:
                    self._say_left(left)
                elif alone and self.tree.childless():
                    return

    def _wait(self) -> bool:
        """Wait for a signal or the next look; return whether there was one, and book who ended."""
        if not self.bells.poll(POLL_MS):
            return False
        with contextlib.suppress(BlockingIOError):
            self.bell.recv(4096)
        self._reap()
        return True

    def _say_left(self, left: Sequence[Seen]) -> None:
        if not self.left_behind:
            self.left_behind = True
            named = ", ".join(f"{one.name} ({one.pid})" for one in left[:5])
            self.tell(f"the command ended and left {len(left)} processes, which are waited for: {named}")

    def _asked_to_end(self) -> bool:
        while self.signals and self.signals[0] in PASSED_ON:
            number, first = self.signals.pop(0), [one for one in self.tree.alive() if one.pid == self.tree.child]
            self._send(number, first)
        return bool(self.signals)

    def _judge(self, now: float) -> bool:
        """Have the judges look; return whether one stops the run."""
        for note in self.growth.look(now):
            self.book.add(note)
        found = None
        try:
            found = self.judges.look(now)
        except FAULTS as problem:  # training goes on whatever a judge does
            self._once("judging", f"broke: {type(problem).__name__}; judged again at the end", str(problem))
        for why in self.judges.notes:
            self._once("a log:", why)
        self.stop = found if self.asked.stops else None
        if found is not None and self.stop is None:
            self._find(found, "--stop-at never")
        if self.paused and self.stop is None:
            self.paused = False
            self.tree.send(signal.SIGCONT)
        while self.judges.advice:
            self._find(self.judges.advice.pop(0), "advisory")
        while self.judges.unconfirmed:
            fault = self.judges.unconfirmed.pop(0)
            self._once("a step form", f"is not confirmed by its judge, so nothing is stopped: {fault}", "our bug")
        return self.stop is not None

    def _pause(self) -> None:
        """Have the tree stand still while a gate may be broken: the judge of all rows takes its time."""
        if self.asked.stops:
            self.paused = True
            self.tree.send(signal.SIGSTOP)

    def _find(self, found: Found, why: str) -> None:
        """Book what a gate came to that stops nothing, once."""
        if (found.gate, found.instance) not in self.booked:
            self.booked.add((found.gate, found.instance))
            self.book.add(of.Finding(**_place(found), outcome="FAIL"))
            self.tell(f"FAIL  {found.gate}  {found.why}; the run goes on ({why})")

    def _once(self, what: str, why: str, more: str = "") -> None:
        if (what, why) not in self.booked:
            self.booked.add((what, why))
            self.book.note(what, self.redactor.text(why))
            self.tell(f"{what} {why} ({more})" if more else f"{what} {why}")

    def _reap(self) -> None:
        for new, gone in self.tree.reap():
            if new is not None:
                self._appeared(new)
            self.cpu_s += gone.cpu_s or 0.0
            if self.seen <= MOST_PROCESSES:
                self.book.add(gone)

    def _walk(self, now: float) -> list[Seen]:
        """Look at the tree and the clock; at cadence book what it uses and how far the logs are."""
        self._say_pending()
        alive = self.tree.alive()
        for one in alive:
            if one.key not in self.tree.known:
                self._appeared(one)
        for key in self.tree.known.keys() - {one.key for one in alive}:
            del self.tree.known[key]
            if key[0] != self.tree.child:
                self.book.add(of.Gone(pid=key[0], start_ticks=key[1]))
        self.tree.known.update({one.key: one for one in alive})
        if (standing := any(one.state in "Tt" for one in alive)) != self.standing:
            self.standing = standing
            what = "stands still, by a signal that is not of this witness" if standing else "goes on"
            self.book.note("a process", what)
        if abs(jump := time.time() - time.monotonic() - self.offset) > JUMP_SECONDS:
            self.offset += jump
            self.book.add(of.Clock(jump_s=round(jump, 3)))
        if now >= self.next_sample or self.growth.begun:
            self._sample(alive)
            self.next_sample = now + SAMPLE_SECONDS
            self.tree.foreign.clear()
        self.next_walk = now + max(WALK_SECONDS, WALK_SHARE * (time.monotonic() - now))
        return alive

    def _say_pending(self) -> None:
        """Say which gates are judged late, once, and on a terminal what is PENDING, whenever it is something else."""
        if late := self.judges.late():
            self._once("gates", late)
        if self.live and (waiting := self.judges.waiting()) not in ("", self.waiting):
            self.waiting = waiting
            self.tell(f"PENDING  gates: {waiting}")

    def _appeared(self, one: Seen) -> None:
        self.seen += 1
        if self.seen <= MOST_PROCESSES:
            fields = {"pid": one.pid, "start_ticks": one.start_ticks, "parent": one.parent}
            inner = processes.inner_pid(one.pid)
            self.book.add(of.Process(**fields, name=self.redactor.text(one.name), inner_pid=inner))
        if self.seen == MOST_PROCESSES:
            self.book.note("processes", f"more than {MOST_PROCESSES}: of the others, none is listed")

    def _sample(self, alive: Sequence[Seen]) -> None:
        self.mapped.look(alive)
        sample = of.Sample(
            processes=len(alive),
            cpu_s=round(self.cpu_s + sum(one.cpu_s for one in alive), 3),
            rss_kib=sum(one.rss_kib for one in alive),
            device_memory_mib=processes.device_memory(alive) if "device-memory" in self.can_see["witnessed"] else {},
            device_files=processes.open_devices(alive),
        )
        for line in (sample, *self.growth.counts()):
            self.book.add(line)

    # --- The stop and the end ----------------------------------------------------------------------------------------

    def _end(self) -> Witnessed:
        self.growth.judged, orphaned = dict, ORPHANED in self.signals
        left: Sequence[Seen] = ()
        if self.stop is not None:
            self._stop(self.stop)
        if orphaned:
            left = self.tree.kill(LAST_SECONDS, self._reap)
        elif self.stop is not None or self.signals:
            left = self._end_tree()
        code = os.waitstatus_to_exitcode(self.tree.status) if self.tree.status is not None else None
        asked = self.signals[0] if self.signals else 0
        own = 128 + asked if asked else code if code is not None and code >= 0 else 128 - (code or 0)
        exit_code = 1 if self.stop is not None else own
        unsealed = "the guard of the witness was killed" if orphaned else self._last_lines(code, exit_code, left)
        self.book.close()
        return Witnessed(exit=exit_code, asked=asked, unsealed=unsealed)

    def _stop(self, stop: Found) -> None:
        """Have the whole tree stand still, and write why before anything else is done to it."""
        sent = self._send(signal.SIGSTOP)
        self.book.add(of.Stop(**_place(stop), confirmed=True), durable=True)
        folder = self.asked.run if self.asked.run.is_dir() else self.book.folder
        try:
            write_new(folder / of.STOPPED, dumps({**_place(stop), "time": now_text(), "book": self.book.digest()}))
        except OSError as problem:
            self.book.note(of.STOPPED, f"could not be written: {os.strerror(problem.errno or 0)}")
        refused = f", {sent[1]} take no signal of this user" if sent[1] else ""
        at = "" if stop.step is None else f" at step {stop.step}"
        what = f"stopped{at}, processes in all: {sent[0]}{refused}"
        what = what if any(sent) else f"found{at}, and nothing was stopped: the command had ended by itself"
        self.tell(singular(f"FAIL  {stop.gate}  {stop.why}; {what}"))

    def _end_tree(self) -> Sequence[Seen]:
        """Ask every process to end, wait, kill what is left; return what is there all the same."""
        until, asked = time.monotonic() + self.asked.grace_s, len(self.signals)
        if self.stop is not None:  # who ignores that would train on
            self._send(signal.SIGKILL, [one for one in self.tree.alive() if processes.ignores(one.pid, signal.SIGTERM)])
        if self.signals:
            self.tell(f"interrupted: SIGTERM is sent, up to {self.asked.grace_s:g} s are given; again to kill")
        for number in (signal.SIGTERM, signal.SIGCONT):
            self._send(number)
        rows = self.growth.rows()
        while (left := self.tree.alive()) and time.monotonic() < until and len(self.signals) == asked:
            self._wait()
            list(self.growth.look(time.monotonic()))
            if self.stop is not None and any(now - rows.get(path, 0) > 1 for path, now in self.growth.rows().items()):
                self.book.note("the grace", "a second row was written in it: it is no grace to train on")
                break
        if left or not self.tree.childless():
            self._send(signal.SIGKILL)
            left = self.tree.kill(LAST_SECONDS, self._reap)
        return left

    def _send(self, number: int, to: Sequence[Seen] | None = None) -> tuple[int, int]:
        """Send a signal to every process, or to these, and book it."""
        if to is None:
            sent = self.tree.send(number)
        else:
            allowed = sum(self.tree.send_to(one, number) for one in to)
            sent = allowed, len(to) - allowed
        if any(sent):
            self.book.add(of.Signal(signal=signal.Signals(number).name, processes=sent[0], refused=sent[1]))
        return sent

    def _last_lines(self, code: int | None, exit_code: int, left: Sequence[Seen]) -> str:
        """Write the last lines and the seal; return why no seal is set, or ""."""
        self._reap()
        if left:
            why = f"{len(left)} processes could not be ended and run on, as {left[0].name} ({left[0].pid})"
            self.book.note("the end", why)
            return why
        self.growth.scan()  # a quick run's log may be younger than the last look
        for line in (*self.growth.counts(), *self.mapped.lines(self.redactor.text)):
            self.book.add(line)
        try:
            files = states(self.asked.run)
        except WeighbridgeError as problem:
            self.book.note("files", problem.what)
            return f"what lies in the run could not be read: {problem}"
        for note in self.growth.rewritten(files):
            self.book.add(note)
        used: dict[str, Any] = {"cpu_s": round(self.cpu_s, 3), "max_rss_kib": self.tree.max_rss_kib, **self.can_see}
        used |= {"wall_s": round(time.monotonic() - self.began, 3), "processes": self.seen, **processes.how_ended(code)}
        roots = tuple(map(self.redactor.text, self.mapped.write_roots()))
        self.end = of.End(exit=exit_code, files=files, write_roots=roots, **used)
        self.book.add(self.end, durable=True)
        return self.book.seal()


def _place(found: Found) -> dict[str, Any]:
    return {"gate": found.gate, "instance": found.instance, "step": found.step, "code": found.code}
