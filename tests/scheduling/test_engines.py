"""Tasks that travel bring back the rows that one process measures, whoever is lost on the way, or a clear error."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.formats.files import Entry, safetensors
from tests.verifiers.test_tensor_values import bf16

import weighbridge
from weighbridge.core.errors import EngineError, SubjectError, UsageError
from weighbridge.core.model import Measurement, Rows
from weighbridge.evaluation.runner import lay_canary
from weighbridge.scheduling import engines
from weighbridge.scheduling.engines import Cluster, Engine, Task, pack_view, reach
from weighbridge.scheduling.threads import Execution, Progress, unheard
from weighbridge.verifiers import tensor_values
from weighbridge.verifiers.verifier import MeasurementJob, Views
from weighbridge.views.checkpoint import open_checkpoint

TENSORS = 60
RNG = np.random.default_rng(5)
VALUES = {f"layers.{at:02}.weight": RNG.standard_normal(60_000).astype(np.float32) for at in range(TENSORS)}


def sharded(folder: Path, tensors: dict[str, Entry], shards: int) -> Path:
    """Write a checkpoint in so many shards, with its index."""
    folder.mkdir()
    homes: dict[str, str] = {}
    for shard in range(shards):
        part = dict(list(tensors.items())[shard::shards])
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        safetensors(folder / name, part)
        homes |= dict.fromkeys(part, name)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": homes}))
    return index


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Write BF16 in two shards, and the same values in F32 in three, one of them damaged."""
    old: dict[str, Entry] = {name: ("BF16", values.shape, bf16(values)) for name, values in VALUES.items()}
    wide = {name: np.frombuffer(data, "<u2").astype("<u4") << 16 for name, (_, _, data) in old.items()}
    wide["layers.07.weight"][99] ^= 1
    new: dict[str, Entry] = {name: ("F32", words.shape, words.tobytes()) for name, words in wide.items()}
    return sharded(tmp_path / "old", old, 2), sharded(tmp_path / "new", new, 3)


def views(paths: tuple[Path, Path]) -> Views:
    return tuple(map(open_checkpoint, paths))


def rows(pair: Views, engine: Engine | None = None, on_progress: Progress = unheard) -> tuple[Any, ...]:
    asked = [MeasurementJob(tensor_values.VERIFIER, pair)]
    (found,) = tensor_values.batch(asked, {}, Execution(engine=engine, on_progress=on_progress))
    if isinstance(found, SubjectError):
        raise found
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    return found.value.rows


def at_hand(backend: str = "threading", **changed: Any) -> Engine:
    """Stand in for a cluster by joblib's own threads."""
    pytest.importorskip("joblib")
    local = Cluster(
        backend=lambda: backend, answers="generator_unordered", workers=lambda: frozenset("w"),
        lost=lambda _: {}, close=lambda: None,
    )  # fmt: skip
    return Engine("here://", dataclasses.replace(local, **changed))


def task(pair: Views, **changed: Any) -> Task:
    job = tensor_values.pair(pair, {})
    made = Task(
        run=f"test-{time.monotonic_ns()}", prepare=tensor_values.pair, views=tuple(map(pack_view, pair)), options={},
        fingerprint=job.fingerprint(),
    )  # fmt: skip
    return dataclasses.replace(made, **changed)


# --- Without a cluster ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("answers", ["generator_unordered", "list"])
def test_joblib_brings_back_the_rows_of_one_process_in_order_and_tells_how_far_it_is(
    pair: tuple[Path, Path], answers: str
) -> None:
    heard: list[int] = []
    engine = at_hand(answers=answers)
    found = rows(views(pair), engine, lambda done, whole: heard.append(whole - done))
    assert found == rows(views(pair))
    assert engine.ran.summary() == f"{TENSORS} tasks were done by 1 workers, {TENSORS} of them in this process"
    assert heard == sorted(heard, reverse=True)
    assert (len(heard), heard[-1]) == (TENSORS, 0)


def test_the_canary_travels_too_and_is_seen(pair: tuple[Path, Path]) -> None:
    verifier, both, engine = tensor_values.VERIFIER, views(pair), at_hand()
    whole = verifier.measure(both, {})
    assert isinstance(whole, Measurement)
    assert lay_canary(verifier, both, {}, whole, Execution(engine=engine)).seen
    assert engine.ran.tasks == 2


def test_what_a_subject_gives_on_a_worker_is_raised_where_it_was_asked_for(pair: tuple[Path, Path]) -> None:
    both = views(pair)
    shard = pair[1].parent / "model-00002-of-00003.safetensors"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(SubjectError) as raised:
        rows(both, at_hand())
    assert raised.value.code == "subject-elsewhere"
    assert raised.value.where == str(shard)


def test_a_worker_of_another_version_or_another_mapping_is_refused(pair: tuple[Path, Path]) -> None:
    both = views(pair)
    answer = task(both, version="0.0.0")(3, ("layers.03.weight", True))
    assert answer.problem is not None
    assert answer.problem[:2] == ("engine-version", f"a worker runs weighbridge {weighbridge.__version__}, not 0.0.0")
    answer = task(both, fingerprint="other")(3, ("layers.03.weight", True))
    assert answer.problem is not None
    assert answer.problem[0] == "engine-outline"
    assert "the same config.json beside the source" in answer.problem[3]


def test_a_fault_on_a_worker_is_a_fault_of_the_tool_here(pair: tuple[Path, Path]) -> None:
    answer = task(views(pair))(0, ("no such tensor", True))
    with pytest.raises(RuntimeError, match=r"(?s)^on a worker:.*KeyError: 'no such tensor'"):
        answer.taken()


def test_an_engine_that_ends_or_has_no_worker_leaves_an_error_and_never_a_row(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "LOOK_S", 0.01)
    monkeypatch.setattr(engines, "PATIENCE_S", 0.05)
    with pytest.raises(SubjectError) as raised:
        rows(views(pair), at_hand("no-such-backend"))
    assert raised.value.code == "engine-lost"
    assert raised.value.what.startswith(f"the engine left {TENSORS} tensors undone: it ended with ")
    monkeypatch.setattr(engines, "_ask", lambda *_: None)
    with pytest.raises(SubjectError) as raised:
        rows(views(pair), at_hand(workers=frozenset))
    assert raised.value.what == f"the engine left {TENSORS} tensors undone: it has had no worker for 0.05 s"


@pytest.mark.parametrize("address", ["spark://h:1", "dask://", "localhost:8786", ""])
def test_an_address_of_no_engine_is_a_usage_error(address: str) -> None:
    with pytest.raises(UsageError) as raised:
        reach(address)
    expected = f"engine {address!r} names no engine\n  write dask://HOST:PORT or ray://HOST:PORT"
    assert str(raised.value) == expected


@pytest.mark.parametrize(
    ("scheme", "absent", "command"),
    [("dask", "joblib", ""), ("dask", "distributed", ""), ("ray", "ray", " ray")],
)
def test_a_library_that_is_not_installed_is_reported_with_what_installs_it(
    scheme: str, absent: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == absent else name)
    with pytest.raises(UsageError) as raised:
        reach(f"{scheme}://h:1")
    printed = f"extra-missing --engine {scheme}:// needs {absent}\n  pip install 'weighbridge[cluster]'{command}"
    assert str(raised.value) == printed


# --- A real scheduler with two worker processes -----------------------------------------------------------------------

Start = Callable[[], subprocess.Popen[bytes]]


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[tuple[str, Start]]:
    """Start a scheduler; give its address, and what starts a worker and waits for it."""
    pytest.importorskip("distributed")
    pytest.importorskip("joblib")
    printed = tmp_path / "scheduler.json"
    source = str(Path(weighbridge.__file__).parent.parent)
    environment = {**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    with contextlib.ExitStack() as started, (tmp_path / "log").open("wb") as log:

        def start(role: str, *options: str) -> subprocess.Popen[bytes]:
            words = [
                sys.executable,
                "-m",
                f"distributed.cli.dask_{role}",
                "--no-dashboard",
                "--scheduler-file",
                str(printed),
            ]
            process = subprocess.Popen(
                [*words, "--scheduler-file", printed, *options], env=environment, stdout=log, stderr=log, cwd=tmp_path
            )
            started.callback(process.wait)
            started.callback(process.kill)
            return process

        scheduler = start("scheduler", "--host", "127.0.0.1", "--port", "0")
        _wait(lambda: printed.exists() and printed.read_text().endswith("}"), scheduler)
        address = json.loads(printed.read_text())["address"].replace("tcp://", "dask://")
        yield address, lambda: start("worker", "--no-nanny", "--nthreads", "1", "--host", "127.0.0.1")


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 60
    while not ready():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)


def reached(address: str, workers: list[subprocess.Popen[bytes]]) -> Engine:
    engine = Engine(address, reach(address))
    _wait(lambda: len(engine.cluster.workers()) == len(workers), workers[0])
    return engine


@pytest.mark.exhaustive
def test_a_worker_killed_on_the_way_changes_no_row_and_is_reported(
    pair: tuple[Path, Path], dask: tuple[str, Start]
) -> None:
    workers = [dask[1](), dask[1]()]
    engine = reached(dask[0], workers)

    def kill_one(done: int, _whole: int) -> None:
        if done:
            os.kill(workers[0].pid, signal.SIGKILL)

    with contextlib.closing(engine.cluster):
        found = rows(views(pair), engine, kill_one)
    assert found == rows(views(pair))
    assert engine.ran.lost == 1
    assert engine.ran.again > 0
    assert engine.ran.summary().endswith(f"; 1 lost on the way, {engine.ran.again} tasks given to others")
    assert engine.ran.here == 0


@pytest.mark.exhaustive
def test_when_all_workers_are_killed_the_comparison_ends_in_an_error_in_time(
    pair: tuple[Path, Path], dask: tuple[str, Start], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "PATIENCE_S", 2.0)
    workers = [dask[1](), dask[1]()]
    engine = reached(dask[0], workers)

    def kill_all(_done: int, _whole: int) -> None:
        for worker in workers:
            os.kill(worker.pid, signal.SIGKILL)

    with contextlib.closing(engine.cluster), pytest.raises(SubjectError) as raised:
        rows(views(pair), engine, kill_all)
    assert raised.value.code == "engine-lost"
    assert raised.value.what.endswith(" tensors undone: it has had no worker for 2 s")


@pytest.mark.exhaustive
def test_compare_answers_with_an_engine_as_without_and_says_who_did_the_work(
    pair: tuple[Path, Path], dask: tuple[str, Start]
) -> None:
    reached(dask[0], [dask[1](), dask[1]()]).cluster.close()
    words = [sys.executable, "-m", "weighbridge", "compare", "old", "new"]
    where = pair[0].parent.parent
    alone = subprocess.run(words, cwd=where, capture_output=True, text=True, check=False)
    shared = subprocess.run([*words, "--engine", dask[0]], cwd=where, capture_output=True, text=True, check=False)
    assert (alone.returncode, shared.returncode) == (1, 1)
    *lines, printed = shared.stdout.splitlines()
    assert lines == alone.stdout.splitlines()
    assert printed == f"{dask[0]}: {TENSORS + 2} tasks were done by 2 workers"  # the canary's two tensors, too
    assert shared.stderr == ""
    told_to_machines = subprocess.run(
        [*words, "--engine", dask[0], "--json"], cwd=where, capture_output=True, text=True, check=False
    )
    (answer,) = json.loads(told_to_machines.stdout)
    counts = {"tasks": TENSORS + 2, "workers": 2, "here": 0, "lost": 0, "again": 0}
    assert answer["engine"] == {"address": dask[0], **counts}


@pytest.mark.slow
def test_one_worker_alone_does_all_of_it_and_leaves_nothing_to_this_process(
    pair: tuple[Path, Path], dask: tuple[str, Start]
) -> None:
    engine = reached(dask[0], [dask[1]()])
    with contextlib.closing(engine.cluster):
        found = rows(views(pair), engine)
    assert found == rows(views(pair))
    assert engine.ran.summary() == f"{TENSORS} tasks were done by 1 workers"


@pytest.mark.slow
def test_a_scheduler_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "CONNECT_S", 0.5)
    with pytest.raises(EngineError) as raised:
        reach("dask://127.0.0.1:9")
    assert raised.value.code == "engine-unreachable"
    assert raised.value.where == "dask://127.0.0.1:9"
