"""Start the witness under a guard that outlives it, and the child under the witness, standing still until it may go."""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from weighbridge.core import UsageError, dataclass
from weighbridge.watch.processes import Tree

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if sys.platform != "win32" else ()
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2) if sys.platform != "win32" else ()  # a scheduler's word to the trainer
ORPHANED = signal.SIGRTMIN if sys.platform == "linux" else 0  # to the witness, when its guard died
LAST_SECONDS = 5.0
GO = b"g"


def demand_linux() -> None:
    """Refuse a system that has no processes by descriptor."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        remedy = "start it by itself: it is reported, not witnessed"
        raise UsageError("not-linux", "a witness needs Linux: /proc and pidfd", where=sys.platform, remedy=remedy)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def go_on_guarded() -> None:
    """Go on in a child of this process, which waits for it, and which ends what it leaves behind if it is killed.

    Each notices the end of the other: what was started outlives neither.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    guard = os.getpid()
    witness = os.fork()
    if witness:
        os._exit(_wait_for(witness))
    os.setsid()  # who kills a process group kills one of the two
    _prctl(PR_SET_PDEATHSIG, ORPHANED)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != guard:
        os._exit(128 + signal.SIGKILL)


def _wait_for(witness: int) -> int:
    for number in (*ENDING, *PASSED_ON):
        signal.signal(number, lambda number, _: _pass_on(witness, number))
    _, status = os.waitpid(witness, 0)
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code
    tree = Tree(child=0)
    tree.kill(LAST_SECONDS, lambda: list(tree.reap()))
    said = f"the witness was killed by signal {-code}: what it started was killed, and the run has no witness\n"
    with contextlib.suppress(OSError):
        os.write(2, said.encode())
    return 128 - code


def _pass_on(witness: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(witness, number)  # its number is not given again before it was waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A child that stands still before its first instruction."""

    pid: int
    may_go: int
    failed: int

    def go(self) -> OSError | None:
        """Let it become the command, and return why it could not."""
        os.write(self.may_go, GO)
        os.close(self.may_go)
        with os.fdopen(self.failed, "rb") as file:
            number = file.read()
        return OSError(int(number), os.strerror(int(number))) if number else None

    def give_up(self) -> None:
        """End it before it became anything."""
        os.close(self.may_go)
        os.close(self.failed)
        os.waitpid(self.pid, 0)


def start(command: Sequence[str], host: str = "") -> Started:
    """Start a child in a session of its own that waits for `go`, and that the kernel kills where this process dies."""
    may_go, failed = os.pipe(), os.pipe()
    witness = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(may_go[1])
        os.environ["WEIGHBRIDGE_HOST"] = host  # for a run.json that no recorder writes
        _become(command, may_go[0], failed[1], witness)
    os.close(may_go[0])
    os.close(failed[1])
    return Started(pid=pid, may_go=may_go[1], failed=failed[0])


def _become(command: Sequence[str], may_go: int, failed: int, witness: int) -> NoReturn:
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        for number in (*ENDING, *PASSED_ON, ORPHANED, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        if os.read(may_go, 1) == GO and os.getppid() == witness:
            os.execvp(command[0], list(command))  # noqa: S606 -- as it was typed
    except OSError as problem:
        os.write(failed, str(problem.errno or 0).encode())
    finally:
        os._exit(127)
