"""Describe tensors on two threads where their bytes are worth it; the answers keep the order in which was asked.

Comparing mapped bytes takes page faults and runs without the interpreter lock, so a second thread helps: about one
and a half times as fast where there are two cores.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from weighbridge.errors import SubjectError
from weighbridge.model import Fields
from weighbridge.scheduling.job import ENGINE, LISTENER, Job, JobSpec

Name = TypeVar("Name")
Answer = TypeVar("Answer")

THREADS = 2
WORTH = 64 << 20  # bytes; below it a thread costs more than it saves


def map_in_order(describe: Callable[[Name], Answer], sizes: Mapping[Name, int]) -> tuple[Answer, ...]:
    """Describe every name, `sizes` being the bytes that there are to read of it; the first error in order is raised.

    `describe` must be safe to call from two threads at once.
    """
    answers: dict[Name, Answer] = {}
    failed: dict[int, BaseException] = {}
    waiting = enumerate(sizes)
    heard = _heard(sizes)

    def run_worker() -> None:
        for at, name in _until(failed, waiting):
            try:
                answers[name] = describe(name)
            except BaseException as error:  # noqa: BLE001 -- whatever a thread raises is raised to who asked
                failed[at] = error
            else:
                heard(name)

    others = [threading.Thread(target=run_worker, daemon=True) for _ in range(_more(sizes))]
    for thread in others:
        thread.start()
    run_worker()
    for thread in others:
        thread.join()
    if failed:
        raise failed[min(failed)]
    return tuple(answers[name] for name in sizes)


def run_jobs(jobs: Sequence[tuple[Job, JobSpec]]) -> tuple[tuple[Fields, ...] | SubjectError, ...]:
    """Do several jobs, by the engine that was asked for or by threads; an error ends its own job alone.

    Tasks that read the same stand side by side, so that what several jobs read comes from the disk once.
    """
    engine = ENGINE.get()
    failed: dict[int, SubjectError] = {}
    rows: dict[int, tuple[Fields, ...]] = {}
    if engine is None:
        rows = _side_by_side([job for job, _ in jobs], failed)
    else:
        for at, (job, spec) in enumerate(jobs):
            try:
                rows[at] = engine(job, spec)
            except SubjectError as error:
                failed[at] = error
    return tuple(failed[at] if at in failed else rows[at] for at in range(len(jobs)))


def _side_by_side(jobs: Sequence[Job], failed: dict[int, SubjectError]) -> dict[int, tuple[Fields, ...]]:
    sizes = {(at, place): size for at, job in enumerate(jobs) for place, size in job.sizes().items()}
    if len(jobs) > 1:
        sizes = {task: sizes[task] for task in sorted(sizes, key=lambda task: jobs[task[0]].locality(task[1]))}

    def describe(task: tuple[int, Any]) -> Fields:
        at, place = task
        try:
            return {} if at in failed else jobs[at].row(place)
        except SubjectError as error:
            failed.setdefault(at, error)
            return {}

    found = dict(zip(sizes, map_in_order(describe, sizes), strict=True))
    return {at: tuple(found[at, place] for place in job.sizes()) for at, job in enumerate(jobs)}


def _more(sizes: Mapping[Name, int]) -> int:
    """Count the threads that help the one that asks."""
    return THREADS - 1 if sum(sizes.values()) >= WORTH else 0


def _until(failed: Mapping[int, BaseException], waiting: Iterator[tuple[int, Name]]) -> Iterator[tuple[int, Name]]:
    """Take what waits, until something failed: all that stands before it in order has been taken by then."""
    for taken in waiting:
        yield taken
        if failed:
            return


def _heard(sizes: Mapping[Name, int]) -> Callable[[Name], None]:
    """Tell the listener of the thread that asks, whichever thread has read a name, how far all of them have come."""
    listen, whole, done, one_by_one = LISTENER.get(), sum(sizes.values()), [0], threading.Lock()

    def hear(name: Name) -> None:
        with one_by_one:
            done[0] += sizes[name]
            listen(done[0], whole)

    return hear
