"""command_outcome: run a command that a person bound, where no accelerator can be seen: how it ended, said and left."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from weighbridge.core import Fields, Measurement, Record, SubjectError, SubjectKind, Unmeasured, dataclass, field
from weighbridge.quantities.base import record_of
from weighbridge.quantities.commands import KEPT, CommandOutcome, Leftover
from weighbridge.run_logs.json_log import RUN_FILES, is_run
from weighbridge.verifiers.verifier import Canary, Verifier, Views
from weighbridge.views.command import CommandView

MAX_LEFT = 1000
MAX_DEPTH = 16
SHALLOW = 2  # how deep runs are looked for where the person stands and at home, which may hold anything
MAX_FOLDERS = 100_000
TIMEOUT_S = 30.0
DRAIN_S = 2.0  # how long a stream may stay open after the group was killed
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
GRACE_S, PAUSE_S = 1.0, 0.01  # how long what ends by itself may take, and from one look at it to the next
ROUNDS = 100  # of ending what is there: each may have started more
PROC = Path("/proc")
RUN = "run-directory"
HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "-1", "ROCR_VISIBLE_DEVICES": "-1"}

KNOWN = """
import pathlib, sys, time
for run, file in ("known", "run.json"), ("steps", "steps.jsonl"):
    (pathlib.Path("runs") / run).mkdir(parents=True); (pathlib.Path("runs") / run / file).touch()
print("weighbridge canary says", *sys.argv[1:], flush=True)
print("weighbridge canary complains", file=sys.stderr, flush=True)
time.sleep(0.05)
sys.exit(7)
"""
KNOWN_COMMAND = (sys.executable, "-I", "-S", "-c", KNOWN)
CANARY = "a command with a known end"
KNOWN_LEFT = [
    *(("runs/known", RUN), ("runs/steps", RUN), ("runs", "directory")),
    *(("runs/known/run.json", "file"), ("runs/steps/steps.jsonl", "file")),
]


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Run the command once, with accelerators hidden; refuse what cannot be started."""
    if not (PROC / "self" / "stat").is_file():
        why = "what a command leaves running can only be found on Linux"
        return Unmeasured(code="needs-linux", why=why, remedy="run this gate on Linux; the others need no command")
    view: CommandView = views[0]
    timeout_s = float(str(options.get("timeout_s", TIMEOUT_S)))
    given: Any = options.get("run_roots") or ()
    roots = {str(root): MAX_DEPTH for root in given} | {root: SHALLOW for root in (".", "~") if root not in given}
    found, at = Record(run(view, timeout_s, roots, HIDDEN)), "exit of the command"
    return Measurement(quantity="command_outcome", value=found, by="subprocess", at=at, examined=1, total=1)


@dataclass(slots=True)
class _Tail:
    """The end of a stream, read as it comes so that its writer never waits."""

    stream: IO[bytes]
    kept: bytearray = field(default_factory=bytearray)
    read: int = 0

    def drain(self) -> None:
        with contextlib.suppress(OSError, ValueError), self.stream:
            while chunk := self.stream.read1(KEPT):  # type: ignore[attr-defined]  # a buffered pipe has read1
                self.read += len(chunk)
                self.kept += chunk
                del self.kept[:-KEPT]


def run(view: CommandView, timeout_s: float, roots: Mapping[str, int], hidden: Mapping[str, str]) -> CommandOutcome:
    """Run a command once in a fresh folder, `hidden` being what hides accelerators; refuse what cannot be started."""
    with tempfile.TemporaryDirectory(prefix="weighbridge-", ignore_cleanup_errors=True) as sandbox:
        argv, earlier = view.resolved(), found_under(view.base, roots)
        work, scratch = (Path(sandbox) / name for name in ("work", "tmp"))
        work.mkdir()
        scratch.mkdir()
        ended = _ended(argv, work, environment({**os.environ, **hidden}, view, scratch), timeout_s)
        fresh = (item for item, mark in found_under(view.base, roots).items() if earlier.get(item) != mark)
        # ".." and TMPDIR hold other files, too.
        beside = (item for item in left_behind(Path(sandbox), work) if item.what == RUN)
        found = dict.fromkeys((*left_behind(work, work), *beside, *fresh))
    left = sorted(found, key=lambda item: item.what != RUN)  # first, where the list is cut
    listed: dict[str, Any] = {"left": tuple(left[:MAX_LEFT]), "left_total": len(left), "watched": tuple(roots)}
    return CommandOutcome(timeout_s=timeout_s, hidden=tuple(sorted(hidden)), **ended, **listed)


def _ended(argv: tuple[str, ...], work: Path, env: Mapping[str, str], timeout_s: float) -> dict[str, Any]:
    """Run a command, and return how it ended, what it said, and how many of its processes outlived it."""
    started = time.monotonic()
    process, exit_code = None, None
    with adopted() as others:
        try:
            with _uninterrupted():
                process = _start(argv, work, env)
                tails = [_Tail(stream) for stream in (process.stdout, process.stderr) if stream is not None]
                threads = [threading.Thread(target=tail.drain, daemon=True) for tail in tails]
                for thread in threads:
                    thread.start()
            with contextlib.suppress(subprocess.TimeoutExpired):
                exit_code = process.wait(timeout_s)
            wall_seconds = time.monotonic() - started
        finally:
            if process is not None and exit_code is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            outlived = end_all_but(others)
    for thread in threads:
        thread.join(DRAIN_S)
    ended: dict[str, Any] = {"exit_code": exit_code, "timed_out": exit_code is None, "outlived": outlived}
    for name, tail in zip(("stdout", "stderr"), tails, strict=True):
        ended |= {name: bytes(tail.kept).decode("utf-8", "replace"), f"{name}_bytes": tail.read}
    return {"wall_seconds": wall_seconds, **ended}


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Keep an interrupt back to the end of the block: between the start and its return nobody could end the command."""
    if threading.current_thread() is not threading.main_thread():  # which alone is interrupted, or may set handlers
        yield
        return
    came: list[int] = []
    before = {one: signal.signal(one, lambda got, _frame: came.append(got)) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for got in came:
            signal.raise_signal(got)


@contextlib.contextmanager
def adopted() -> Iterator[set[int]]:
    """Adopt orphans, as their nearest ancestor that does, to the end of the block; yield earlier descendants."""
    control = ctypes.CDLL(None).prctl
    control(ADOPT_ORPHANS, 1, 0, 0, 0)
    try:
        yield descendants()
    finally:
        control(ADOPT_ORPHANS, 0, 0, 0, 0)


def descendants() -> set[int]:
    """Return all processes that descend from this one and have not ended."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            state, parent, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            if state != "Z":
                children.setdefault(int(parent), []).append(pid)
    found, waiting = set[int](), [os.getpid()]
    while waiting:
        mine = children.get(waiting.pop(), [])
        found.update(mine)
        waiting += mine
    return found


def end_all_but(before: set[int]) -> int:
    """End every descendant that was not there before; return how many had not ended by themselves."""
    until = time.monotonic() + GRACE_S
    while (left := descendants() - before) and time.monotonic() < until:
        time.sleep(PAUSE_S)
    running = len(left)
    for _ in range(ROUNDS):
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        left = descendants() - before
        if not left:
            break
        time.sleep(PAUSE_S)
    return running


def _start(argv: tuple[str, ...], work: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        return subprocess.Popen(argv, cwd=work, env=env, start_new_session=True, **streams)
    except (OSError, ValueError) as problem:
        what = f"the command does not start: {type(problem).__name__}"
        remedy = "run it by hand once; it must be a program for this machine"
        raise SubjectError("command-not-started", what, where=Path(argv[0]).name, remedy=remedy) from None


def environment(inherited: Mapping[str, str], view: CommandView, scratch: Path) -> dict[str, str]:
    """Make the environment of the command: a scratch folder of its own, `-m` modules found."""
    env = {**inherited, "TMPDIR": str(scratch)}
    if "-m" in view.argv:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, (inherited.get("PYTHONPATH", ""), str(view.base))))
    return env


def found_under(base: Path, roots: Mapping[str, int]) -> dict[Leftover, tuple[int, ...]]:
    """Return the run directories under each root, so deep, each with what another in its place would change.

    Under a root that the contract names, other files and empty directories, too: these are the trainer's own.
    """
    found: dict[Leftover, tuple[int, ...]] = {}
    seen = set[str]()  # roots may lie in each other
    for root, deep in roots.items():
        top = base / Path(os.path.expandvars(root)).expanduser()
        if "$" in str(top):
            raise _unlisted(f"{root} names a variable that is not set")
        for at, (folder, folders, files) in enumerate(os.walk(top)):
            if at > MAX_FOLDERS:
                raise _unlisted(f"{root} holds more than {MAX_FOLDERS} folders, which are not all looked into")
            if len(Path(folder).relative_to(top).parts) >= deep:
                folders.clear()
            run = [name for name in RUN_FILES if name in files]
            named = files if deep == MAX_DEPTH and not run else ()
            if not (run or named or deep == MAX_DEPTH) or os.path.realpath(folder) in seen:
                continue
            seen.add(os.path.realpath(folder))
            place = Path(root) / Path(folder).relative_to(top)
            if run:
                found[Leftover(path=str(place), what=RUN)] = _mark(folder, run)
            elif not (folders or files):
                found[Leftover(path=str(place), what="directory")] = ()
            found |= {Leftover(path=str(place / name), what="file"): _mark(folder, [name]) for name in named}
    return found


def _mark(folder: str, files: Sequence[str]) -> tuple[int, ...]:
    """Return what another file in the place of one of these would change."""
    marks: list[int] = []
    for name in files:
        with contextlib.suppress(FileNotFoundError):  # others may write there, too
            one = (Path(folder) / name).lstat()
            marks += (one.st_ino, one.st_size, one.st_mtime_ns)
    return tuple(marks)


def left_behind(folder: Path, origin: Path) -> Iterator[Leftover]:
    """List what is in a folder: run directories, other directories, and files, by their path from `origin`."""
    for path in sorted(_inside(folder, 0)):
        is_folder = path.is_dir() and not path.is_symlink()
        what = "file" if not is_folder else RUN if is_run(path) else "directory"
        yield Leftover(path=os.path.relpath(path, origin), what=what)
    if is_run(folder):
        yield Leftover(path=os.path.relpath(folder, origin), what=RUN)


def _inside(folder: Path, depth: int) -> Iterator[Path]:
    if depth > MAX_DEPTH:
        raise _unlisted(f"the command left folders nested deeper than {MAX_DEPTH}, which are not looked into")
    try:
        entries = list(folder.iterdir())
    except PermissionError:  # its maker closed it: opened again, so that nothing can be hidden in it
        folder.chmod(0o700)
        entries = list(folder.iterdir())
    for path in entries:
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _inside(path, depth + 1)


def _unlisted(what: str) -> SubjectError:
    return SubjectError("left-unlisted", what, remedy="run the command by hand, and see what it writes")


def extent(_views: Views, _options: Fields) -> int:
    """Count the places to look at: one."""
    return 1


def canary(views: Views, _options: Fields, _measured: Measurement) -> Canary:
    """Run a command with a known end by the same instrument: exit code 7, two words, a run directory, a short sleep."""

    def seen(again: Measurement | Unmeasured) -> bool:
        found = record_of(again, CommandOutcome)
        return found is not None and ended_as_known(found)

    return Canary(name=CANARY, place="command", views=(views[0].overlaid(KNOWN_COMMAND),), seen=seen)


def ended_as_known(found: CommandOutcome, arguments: Sequence[str] = ()) -> bool:
    """Return whether a command is measured as the known one ends, which says the arguments that it was given."""
    ended = (found.exit_code, found.timed_out, found.stdout, found.stderr)
    said = (" ".join(["weighbridge canary says", *arguments]) + "\n", "weighbridge canary complains\n")
    left = [(item.path, item.what) for item in found.left]
    return ended == (7, False, *said) and left == KNOWN_LEFT and found.wall_seconds >= 0.05  # that long it slept


KINDS = (SubjectKind.COMMAND,)
VERIFIER = Verifier(quantity="command_outcome", kinds=KINDS, measure=measure, extent=extent, canary=canary)
