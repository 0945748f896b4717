"""Reach the engines that tensors can be compared on. Knows their addresses and workers, nothing of what they do."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

from weighbridge.core import EngineError, UsageError, dataclass

CONNECT_S = 10.0
ANSWER_S = 5.0  # what a scheduler may take to say who works for it
FORMS = "dask://HOST:PORT or ray://HOST:PORT"


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
        raise UsageError("engine", f"{address!r} names no engine", remedy=f"write {FORMS}")
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
