"""Have the tasks of a job done by the workers of an existing engine, Dask or Ray, through joblib's backends.

Tasks carry paths, never payloads, and bring rows back. What a lost worker had not finished goes to another one. What
reaches an engine knows its address and its workers, nothing of what they do.
"""

import dataclasses
import functools
import hashlib
import importlib
import importlib.util
import os
import platform
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeAlias
from uuid import uuid4

from weighbridge.core import EngineError, Fields, Json, Origin, SubjectError, UsageError, __version__, dataclass, field
from weighbridge.core.errors import FAULTS
from weighbridge.formats.tensor import Tensor
from weighbridge.scheduling.threads import Job, JobSpec, Progress
from weighbridge.storage.readable import ReadableFile
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

CONNECT_S = 10.0
ANSWER_S = 5.0  # what a scheduler may take to say who works for it
PATIENCE_S = 30.0  # without any worker, before the job is given up: long enough for one to be started again
LOOK_S = 0.5  # between two looks at who still works
Came: TypeAlias = "queue.Queue[WorkerAnswer | Exception]"
# What tells a file from another one of the same name: its size, what it says of its change, a digest of its ends.
FileIdentity: TypeAlias = tuple[int, str, str]
ENDS = 1 << 20  # bytes digested at either end of a file; headers and directories stand there


@dataclass(slots=True)
class Ran:
    """What an engine did; `here` counts tasks that came back to this process, `again` those that lost workers had."""

    tasks: int = 0
    here: int = 0
    workers: set[str] = field(default_factory=set)
    lost: int = 0
    again: int = 0

    def counts(self) -> dict[str, Json]:
        """Count for machines."""
        workers = len(self.workers)
        return {"tasks": self.tasks, "workers": workers, "here": self.here, "lost": self.lost, "again": self.again}

    def summary(self) -> str:
        """Return it in one line."""
        here = f", {self.here} of them in this process" if self.here else ""
        lost = f"; {self.lost} lost on the way, {self.again} tasks given to others" if self.lost else ""
        return f"{self.tasks} tasks were done by {len(self.workers)} workers{here}{lost}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task, as it travels: its job, which all tasks of one run share, and what the job must be on a worker."""

    run: str
    prepare: Callable[[tuple[Any, ...], Fields], Job] = field(compare=False)
    views: "tuple[PackedView, ...]" = field(compare=False)
    options: Fields = field(compare=False)
    fingerprint: str = field(compare=False)
    version: str = field(default=__version__, compare=False)

    def __str__(self) -> str:
        return self.run  # what an engine calls it

    def __call__(self, at: int, place: Any) -> "WorkerAnswer":
        """Describe one place; whatever goes wrong is brought back as an answer."""
        worker = _worker()
        try:
            return WorkerAnswer(at=at, worker=worker, row=_prepared(self).row(place))
        except SubjectError as error:
            return WorkerAnswer(at=at, worker=worker, problem=(error.code, error.what, error.where, error.remedy))
        except FAULTS:  # a fault goes to who asked, not to the engine, which would try it again
            return WorkerAnswer(at=at, worker=worker, fault=traceback.format_exc())


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAnswer:
    """What a task brought back: the row of its place, or why there is none."""

    at: int
    worker: str
    row: Any = None
    problem: tuple[str, str, str, str] | None = None
    fault: str = ""

    def taken(self) -> Any:
        """Return the row; raise what the task's subject gave, or a RuntimeError for a fault of the tool."""
        if self.problem is not None:
            code, what, where, remedy = self.problem
            raise SubjectError(code, what, where=where, remedy=remedy)
        if self.row is None:
            raise RuntimeError(f"on a worker:\n{self.fault}")
        return self.row


@dataclass(slots=True)
class Engine:
    """An engine that was reached; call it with a job to have it done."""

    address: str
    cluster: "Cluster"
    ran: Ran = field(default_factory=Ran)

    def __call__(self, job: Job, spec: JobSpec, on_progress: Progress) -> tuple[Any, ...]:
        """Have a job done, and give its rows in order; refuse with a subject's own error, or with `engine-lost`."""
        sizes = job.sizes()
        run, views = f"weighbridge-{uuid4().hex}", tuple(map(pack_view, spec.views))
        task = Task(run=run, prepare=spec.prepare, views=views, options=spec.options, fingerprint=job.fingerprint())
        before = self.cluster.workers()
        whole, done = sum(sizes.values()), 0
        rows: dict[int, Any] = {}
        weights = tuple(sizes.values())
        for answer in self._answers(task, list(enumerate(sizes))):
            rows[answer.at] = answer.taken()
            self.ran.workers.add(answer.worker)
            self.ran.here += answer.worker == _worker()
            done += weights[answer.at]
            on_progress(done, whole)
        self.ran.tasks += len(rows)
        lost = self.cluster.lost(task.run)
        self.ran.lost += len((before - self.cluster.workers()) | set(lost))
        self.ran.again += sum(lost.values())
        return tuple(rows[at] for at in range(len(sizes)))

    def _answers(self, task: Task, places: list[tuple[int, Any]]) -> Iterator[WorkerAnswer]:
        came: Came = queue.Queue()
        threading.Thread(target=_ask, args=(self.cluster, task, places, came), daemon=True).start()
        seen, missing = time.monotonic(), len(places)
        while missing:
            try:
                answer = came.get(timeout=LOOK_S)
            except queue.Empty:
                seen = time.monotonic() if self.cluster.workers() else seen
                if time.monotonic() - seen > PATIENCE_S:
                    self._give_up(missing, f"it has had no worker for {PATIENCE_S:g} s")
                continue
            if isinstance(answer, Exception):
                workers = self.cluster.workers()
                self._give_up(missing, f"it ended with {type(answer).__name__}" if workers else "it has no worker")
            seen, missing = time.monotonic(), missing - 1
            yield answer

    def _give_up(self, missing: int, why: str) -> NoReturn:
        what = f"the engine left {missing} tensors undone: {why}"
        remedy = "look at its workers' logs and start them again, or compare without --engine"
        raise SubjectError("engine-lost", what, where=self.address, remedy=remedy)


def _worker() -> str:
    return f"{platform.node()}, process {os.getpid()}"


def _ask(cluster: "Cluster", task: Task, places: list[tuple[int, Any]], came: Came) -> None:
    import joblib  # which waits here, so that nobody else has to

    try:
        with joblib.parallel_config(backend=cluster.backend()):
            asked = joblib.Parallel(n_jobs=-1, batch_size=1, pre_dispatch="all", return_as=cluster.answers)
            for answer in asked(joblib.delayed(task)(at, place) for at, place in places):
                came.put(answer)
    except Exception as problem:  # noqa: BLE001 -- whatever an engine raises, the job is not done
        came.put(problem)


@functools.lru_cache(maxsize=4)
def _prepared(task: Task) -> Job:
    if task.version != __version__:
        what = f"a worker runs weighbridge {__version__}, not {task.version}"
        raise SubjectError("engine-version", what, where=platform.node(), remedy="install one version on all of them")
    job = task.prepare(tuple(map(unpack_view, task.views)), task.options)
    if job.fingerprint() != task.fingerprint:
        what = "a worker maps the tensors' names in another way"
        remedy = "give every worker the same config.json beside the source"
        raise SubjectError("engine-outline", what, where=platform.node(), remedy=remedy)
    return job


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedView:
    """A view on its way, with what of it no file holds; `path` may be a URL with credentials, so it is not shown."""

    path: str = field(repr=False)
    files: Mapping[str, FileIdentity]
    tensors: Mapping[str, Tensor] | None
    patches: Mapping[str, tuple[tuple[int, bytes], ...]]


def pack_view(view: CheckpointView) -> PackedView:
    """Return what another process needs to open a view again; it must have been opened by an absolute path."""
    path = view.url or next(iter(view.files))
    assert view.url or Path(path).is_absolute()
    files = {name: file_identity(file) for name, file in view.files.items()}
    tensors = dict(view.tensors) if view.origin is Origin.SYNTHETIC else None
    return PackedView(path=path, files=files, tensors=tensors, patches=dict(view.patches))


def unpack_view(packed: PackedView) -> CheckpointView:
    """Open a view where it was carried to; refuse with `subject-elsewhere` where another file has its path."""
    view = open_checkpoint(packed.path)
    found = {name: file_identity(file) for name, file in view.files.items()}
    if found != packed.files:
        other = next(name for name in {**packed.files, **found} if found.get(name) != packed.files.get(name))
        both = (found.get(other), packed.files.get(other))
        here, there = (f"{one[0]} bytes {one[1]} with ends {one[2][:12]}" if one else "none" for one in both)
        what = f"a worker found another file under this path: {here}, not {there}"
        remedy = "give every worker the same files under the same paths: a shared folder, or copies that keep times"
        raise SubjectError("subject-elsewhere", what, where=other, remedy=remedy)
    if packed.tensors is None:
        return view
    return dataclasses.replace(view, tensors=packed.tensors, patches=packed.patches, origin=Origin.SYNTHETIC)


def file_identity(file: ReadableFile) -> FileIdentity:
    """Return what a file can be known by on another machine."""
    digest = hashlib.sha256(file.read(0, min(ENDS, file.size)))
    digest.update(file.read(max(file.size - ENDS, 0), file.size))
    file.release(0, file.size)
    return file.size, file.version, digest.hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """An engine that was reached: what makes joblib's backend, and what the engine tells of its workers.

    `answers` is joblib's `return_as`; `workers` are names, none where the engine does not answer; `lost` counts tasks
    with a text in their names, by worker that was lost; `close` leaves the engine as it was.
    """

    backend: Callable[[], Any]
    answers: str
    workers: Callable[[], frozenset[str]]
    lost: Callable[[str], Mapping[str, int]]
    close: Callable[[], None]


def reach(address: str) -> Cluster:
    """Reach an engine by its address; refuse with `engine`, `extra-missing` or `engine-unreachable`."""
    scheme, _, place = address.partition("://")
    if scheme not in CLUSTERS or not place:
        raise UsageError("engine", f"{address!r} names no engine", remedy="write dask://HOST:PORT or ray://HOST:PORT")
    for library in ("joblib", {"dask": "distributed", "ray": "ray"}[scheme]):
        if importlib.util.find_spec(library) is None:
            remedy = f"pip install 'weighbridge[cluster]'{' ray' if library == 'ray' else ''}"
            raise UsageError("extra-missing", f"--engine {scheme}:// needs {library}", remedy=remedy)
    return CLUSTERS[scheme](place)


def _dask(place: str) -> Cluster:
    import logging

    distributed: Any = importlib.import_module("distributed")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # what matters of it is said here
    try:
        client = distributed.Client(f"tcp://{place}", timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as problem:
        raise _unreachable(f"dask://{place}", problem) from None

    def workers() -> frozenset[str]:
        try:
            known = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=ANSWER_S)
        except (OSError, TimeoutError, AttributeError):  # no scheduler any more
            return frozenset()
        return frozenset(known["workers"])

    def lost(run: str) -> Mapping[str, int]:
        removed = [event for _, event in client.get_events("all") or () if event.get("action") == "remove-worker"]
        tasks_of = {event["worker"]: sum(run in str(key) for key in event["processing-tasks"]) for event in removed}
        return {worker: tasks for worker, tasks in tasks_of.items() if tasks}

    def backend() -> Any:
        plain: Any = importlib.import_module("joblib._dask").DaskDistributedBackend

        class Elsewhere(plain):  # type: ignore[misc]  # joblib leaves tasks to this process where there is one worker
            def effective_n_jobs(self, n_jobs: int) -> int:
                return max(int(super().effective_n_jobs(n_jobs)), 2)

        return Elsewhere(client=client)

    return Cluster(backend=backend, answers="generator_unordered", workers=workers, lost=lost, close=client.close)


def _ray(place: str) -> Cluster:
    ray: Any = importlib.import_module("ray")
    try:
        ray.init(address=f"ray://{place}", logging_level="ERROR")
    except (ConnectionError, OSError, TimeoutError, ValueError) as problem:
        raise _unreachable(f"ray://{place}", problem) from None
    importlib.import_module("ray.util.joblib").register_ray()

    def workers() -> frozenset[str]:
        return frozenset(node["NodeID"] for node in ray.nodes() if node["Alive"])

    return Cluster(backend=lambda: "ray", answers="list", workers=workers, lost=lambda _run: {}, close=ray.shutdown)


def _unreachable(address: str, problem: BaseException) -> EngineError:
    what = f"the engine does not answer: {type(problem).__name__}"
    return EngineError("engine-unreachable", what, where=address, remedy="start its scheduler, or look at the address")


CLUSTERS: Mapping[str, Callable[[str], Cluster]] = {"dask": _dask, "ray": _ray}
