"""One harness for whatever writes: a disk that refuses, a process that dies, at each effect on the disk in its turn."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import itertools
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.robustness.apart import RAISED, SECONDS, Tally, Told, apart, forked, refused
from tests.robustness.worlds import World, leftovers

from weighbridge.core.errors import WeighbridgeError

EFFECTS = ("read", "open", "write", "fsync", "link", "rename", "replace", "mkdir", "unlink", "rmdir")
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CRASH = 0
FAULTS = (CRASH, errno.ENOSPC, errno.EIO)
DIED, NEVER = 9, 71
NEW_MOUNTS, NEW_USER = 0x20000, 0x10000000
PRIVATE, READ_ONLY, REMOUNT = 0x44000, 1, 32


def made(world: World, folder: Path) -> Path:
    """Return a folder with what is there before a world's act.

    The act is done once, so that no copy of this process must first import what it needs.
    """
    before, once = folder / "before", folder / "once"
    if not before.exists():
        before.mkdir(parents=True)
        with contextlib.chdir(before):
            world.make()
        shutil.copytree(before, once)
        with contextlib.chdir(once):
            assert world.whole()
            assert not world.done()
            world.act()
            assert world.done()
    return before


def fails(at: int, number: int) -> Callable[[], int]:
    """Let the `at`-th effect on the disk fail from now on in this process, and return how to count them.

    What only reads can fail by EIO alone.
    """
    seen, opens = itertools.count(1), os.open
    last = [0]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def effect(*args: Any, **named: Any) -> Any:
            if number != errno.EIO and real is opens and not args[1] & WRITES:
                return real(*args, **named)
            last[0] = next(seen)
            if last[0] != at:
                return real(*args, **named)
            if number == CRASH:
                os._exit(DIED)
            raise OSError(number, os.strerror(number))

        return effect

    for name in EFFECTS if number == errno.EIO else EFFECTS[1:]:
        setattr(os, name, failing(getattr(os, name)))
    return lambda: last[0]


def every_effect(world: World, folder: Path, number: int, every: int = 1) -> Tally:
    """Fail at each effect of an act, one after the other; then the act, done again, must reach its end."""
    before, tally = made(world, folder), Tally()
    for at in itertools.count(1, every):
        case = folder / f"{number}-{at}"
        shutil.copytree(before, case)

        def work(at: int = at, case: Path = case) -> None:
            os.chdir(case)
            seen = fails(at, number)
            with contextlib.suppress(WeighbridgeError, OSError):
                world.act()
            if seen() < at:
                os._exit(NEVER)

        code = _ended(forked(work))
        broken = {RAISED: Told.CORRUPTED, None: Told.HUNG}.get(code)
        tally += Tally({broken: 1}) if broken else _afterwards(world, case)
        shutil.rmtree(case)
        if code == NEVER:
            return tally
    raise AssertionError("an act without end")


def _ended(child: int, seconds: float = SECONDS) -> int | None:
    """Wait for a copy of this process, and return its exit code; one that does not end is killed and gives None."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def _afterwards(world: World, case: Path) -> Tally:
    """Hold the state as it was left, act again, and hold what that comes to."""

    def look() -> Iterator[Told]:
        if not world.whole():
            yield Told.CORRUPTED
            return
        world.act()
        assert leftovers() == []
        yield Told.HELD if world.done() else Told.CORRUPTED

    return apart(look, case)


def storm(world: World, folder: Path, kills: int, seed: int = 1) -> Tally:
    """Kill the act at any moment, again and again, from where the last kill has left it."""
    before, tally, chance = made(world, folder), Tally(), random.Random(seed)
    case, took = folder / "storm", 0.05
    for number in range(kills):
        if number % 8 == 0:  # what one kill has left, the next seven must live with
            shutil.rmtree(case, ignore_errors=True)
            shutil.copytree(before, case)

        def work() -> None:
            os.chdir(case)
            world.act()

        began = time.monotonic()
        child = forked(work)
        time.sleep(chance.random() * took)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        took = max(0.01, min(0.2, 0.9 * took + 0.2 * (time.monotonic() - began)))
        tally += apart(lambda: [Told.HELD if world.whole() else Told.CORRUPTED], case)
        if number % 8 == 7:
            tally += _afterwards(world, case) - Tally({Told.HELD: 1})
    return tally


# --- Disks that are full, or not to be written on ---------------------------------------------------------------------


def on_small_disk(folder: Path, size: str, *, read_only: bool = False, fill: Path | None = None) -> None:
    """Put a small disk in memory over a folder, for this process alone, with what is in another folder on it.

    Raises:
        OSError: where this machine lets nobody do so.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def call(done: int) -> None:
        if done:
            raise OSError(ctypes.get_errno(), "no disk can be mounted here")

    call(libc.unshare(NEW_MOUNTS | (NEW_USER if os.geteuid() else 0)))
    call(libc.mount(None, b"/", None, PRIVATE, None))
    call(libc.mount(b"tmpfs", bytes(folder), b"tmpfs", 0, f"size={size}".encode()))
    if fill is not None:
        shutil.copytree(fill, folder, dirs_exist_ok=True)
    if read_only:
        call(libc.mount(None, bytes(folder), None, REMOUNT | READ_ONLY, None))


def mountable(folder: Path) -> bool:
    """Return whether a disk can be mounted here at all."""

    def mounts() -> Iterator[Told]:
        on_small_disk(folder, "64k")
        yield Told.HELD

    return apart(mounts, folder) == {Told.HELD: 1}


def full_disks(world: World, folder: Path, step: int) -> Tally:
    """Act on a disk with a little more room each time, until it is enough: no half of anything may be left."""
    before, small, tally = made(world, folder), folder / "small", Tally()
    small.mkdir(exist_ok=True)
    for room in range(4, 4096, step):
        enough = folder / f"enough-{room}"

        def look(room: int = room, enough: Path = enough) -> Iterator[Told]:
            try:
                on_small_disk(small, f"{room}k", fill=before)
            except shutil.Error:
                return  # too small even for what is there before
            os.chdir(small)
            try:
                world.act()
            except (WeighbridgeError, OSError):
                yield Told.HELD if world.whole() and not leftovers() else Told.CORRUPTED
            else:
                enough.touch()
                yield Told.HELD if world.done() and not leftovers() else Told.CORRUPTED

        tally += apart(look, folder)
        if enough.exists() or tally.keys() - {Told.HELD}:
            return tally
    raise AssertionError("no disk is large enough")


def unwritable(world: World, folder: Path) -> Tally:
    """Act on a disk that is read-only, and as somebody whose folder it is not; then under the strictest umask."""
    before, tally = made(world, folder), Tally()
    with tempfile.TemporaryDirectory() as name:
        case = Path(name)
        case.chmod(0o755)

        def read_only() -> None:
            on_small_disk(case, "4m", read_only=True, fill=before)
            os.chdir(case)

        def of_another() -> None:
            shutil.copytree(before, case, dirs_exist_ok=True)
            for path in (case, *(one for one in case.rglob("*") if one.is_dir())):
                path.chmod(0o555)
            if os.geteuid() == 0:
                os.setuid(65534)

        for forbid in (read_only, of_another):

            def look(forbid: Callable[[], None] = forbid) -> Iterator[Told]:
                forbid()
                printed = refused(world.act, WeighbridgeError, OSError)
                yield printed if world.whole() and not leftovers() else Told.CORRUPTED

            tally += apart(look, case)
        for path in (case, *(one for one in case.rglob("*") if one.is_dir())):
            path.chmod(0o755)

    def private() -> Iterator[Told]:
        shutil.copytree(before, "private")
        os.chdir("private")
        os.umask(0o077)
        world.act()
        yield Told.HELD if world.done() else Told.CORRUPTED

    return tally + apart(private, folder)
