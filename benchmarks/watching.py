"""Watch runs that go wrong, and one that goes well: `watching.py [--runs N] [--seconds S] [--only …]`.

Prints of N runs with a NaN, at 20 rows a second, the last row in the log; of other mishaps the exit code and what the
book says; what watching 50 rows a second costs, of one process and of two ranks under torchrun, each paired with the
same trainer alone; and how torchrun's restarts of a rank that was killed end, alone and watched in turn.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weighbridge.watch.processes import TICKS, descendants, read_process

TRAINER = (sys.executable, str(Path(__file__).parents[1] / "tests" / "watch" / "trainer.py"))
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", TRAINER[1])
CONTRACT = """\
weighbridge: contract/v0
id: finite
version: 1.0.0
title: Losses are numbers
owner: training
subjects:
  run: {kind: run}
gates:
  - {id: GATE-LOSS, title: The loss is a number, kind: step-metrics, subjects: {run: run}, with: {required: [loss]}}
"""
RESTARTED = str(Path(__file__).with_name("restarted.py"))
WAYS = ((), ("--ignore-term",), ("--detach",), ("--ranks=2",))
COSTS = {"50 rows a second": TRAINER, "two ranks under torchrun, 50 rows a second each": TORCHRUN}
PARTS = ("stops", "mishaps", "cost", "restarts")
PORT = "--master-port={port}"
LAUNCHES: dict[str, tuple[str, dict[str, str]]] = {
    "`--standalone`": ("--standalone", {}),
    "a fixed `--master-port`": (PORT, {}),
    "`--standalone`, `TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`": (
        "--standalone",
        {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
    ),
    "a fixed `--master-port`, keys of each life's own": (PORT, {"OWN_KEYS": "1"}),
}
STILL_SECONDS = 60.0  # in which a run that does not hang begins or ends a process, or logs a row
SHOWN = ("stop", "signal", "gone", "note", "clock", "end")


def watching(
    run: Path,
    *options: str,
    more: tuple[str, ...] = (),
    under: tuple[str, ...] = (),
    trainer: tuple[str, ...] = TRAINER,
) -> list[str]:
    words = ["weighbridge", "watch", run, "--contract", run.parent / "c.yaml", *more, "--", *trainer, run, *options]
    return [*under, sys.executable, "-m", *map(str, words)]


def book(run: Path) -> list[dict[str, Any]]:
    lines = run.with_name(f"{run.name}.watch").joinpath("book.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def stops(folder: Path, runs: int) -> None:
    print("| run | NaN at | last row | ms from its row to SIGSTOP | exit |\n|---|---|---|---|---|")
    for number in range(runs):
        run, at, way = folder / f"stop-{number}", 3 + 7 * number % 40, WAYS[number % len(WAYS)]
        words = watching(run, "--rows=2000", "--hz=20", f"--nan={at}", *way, more=("--grace", "2"))
        code = subprocess.run(words, check=False, cwd=folder, capture_output=True).returncode
        log = run / ("rank-1" if "--ranks=2" in way else "") / "steps.jsonl"
        rows = [json.loads(line) for line in log.read_text().splitlines()]
        frozen = next(line["monotonic_s"] for line in book(run) if line["kind"] == "signal")
        late = 1e3 * (frozen - rows[at]["monotonic_s"])
        print(f"| {' '.join(way) or 'plain'} | {at} | {rows[-1]['step']} | {late:.0f} | {code} |", flush=True)


def mishaps(folder: Path) -> None:
    print("\n| what happens | exit | book |\n|---|---|---|")
    for name, options, under in (
        ("killed by SIGKILL", ("--ends=KILL",), ()),
        ("out of memory (RLIMIT_AS)", ("--ends=OOM",), ()),
        ("exits 3", ("--ends=3",), ()),
        ("log shortened", ("--rows=20", "--hz=10", "--log=truncate"), ()),
        ("log rotated", ("--rows=20", "--hz=10", "--log=rotate"), ()),
        ("disk full for the book", ("--ranks=8",), ("bash", "-c", 'ulimit -f 2; exec "$@"', "bash")),
    ):
        run = folder / name.replace(" ", "-")
        words = watching(run, *options, under=under)
        code = subprocess.run(words, check=False, cwd=folder, capture_output=True).returncode
        print(f"| {name} | {code} | {said(run)} |")
    for name, send in (
        ("stopped from outside", signal.SIGSTOP),
        ("witness killed", signal.SIGKILL),
        ("Ctrl-C", signal.SIGINT),
    ):
        run = folder / name.replace(" ", "-")
        started = subprocess.Popen(watching(run, "--rows=60", "--hz=20", "--detach"), cwd=folder, stdout=-3, stderr=-3)
        while not (run / "steps.jsonl").exists():
            time.sleep(0.02)
        time.sleep(1)
        tree = list(descendants(started.pid))
        to = {signal.SIGSTOP: tree[-1].pid, signal.SIGKILL: tree[0].pid, signal.SIGINT: started.pid}[send]
        os.kill(to, send)
        if send == signal.SIGSTOP:
            time.sleep(3)
            os.kill(to, signal.SIGCONT)
        code = started.wait()
        now = (read_process(one.pid) for one in tree)
        left = [one.pid for one in now if one and one.state not in "ZX"]  # nobody waits for a dead one here
        print(f"| {name} | {code} | {said(run)}; {len(left)} processes left |", flush=True)


def said(run: Path) -> str:
    lines = [line for line in book(run) if line["kind"] in SHOWN]
    kept = ("gate", "signal", "code", "step", "what", "why", "exit")
    each = (" ".join(str(line[at]) for at in ("kind", *kept) if line.get(at) is not None) for line in lines)
    return "; ".join(dict.fromkeys(each)) + (
        "" if (run.with_name(f"{run.name}.watch") / "seal").exists() else "; no seal"
    )


def cost(folder: Path, seconds: int, name: str, trainer: tuple[str, ...]) -> None:
    print(f"\n| {name} | CPU of guard and witness, share of a core | CPU of the trainer |\n|---|---|---|")
    pairs = []
    for number in range(3):
        spent = []
        for watched in (True, False):
            run = folder / f"{name.replace(' ', '-')}-{number}-{watched}"
            options = (f"--rows={50 * (seconds + 30)}", "--hz=50")
            words = watching(run, *options, trainer=trainer) if watched else [*trainer, str(run), *options]
            with ended(subprocess.Popen(words, cwd=folder, stdout=-3, stderr=-3)) as started:
                while not any(run.rglob("steps.jsonl")):
                    time.sleep(0.05)
                time.sleep(3)
                tree = [one.pid for one in descendants(started.pid)]
                own, theirs = ([started.pid, *tree[:1]], tree[1:]) if watched else ([], [started.pid, *tree])
                before = [used(pids) for pids in (own, theirs)]
                time.sleep(seconds)
                after = [used(pids) for pids in (own, theirs)]
            spent.append([(b - a) / seconds for a, b in zip(before, after, strict=True)])
        pairs.append((spent[0][0], spent[0][1], spent[1][1]))
        print(
            f"| pair {number + 1} | {spent[0][0]:.2%} | {spent[0][1]:.2%} watched, {spent[1][1]:.2%} alone |",
            flush=True,
        )
    print(f"\nMedian: {statistics.median(one[0] for one in pairs):.2%} of a core.")


def restarts(folder: Path, runs: int) -> None:
    print("\n| torchrun, two ranks, one killed once | how | ended well | failed | hung |\n|---|---|---|---|---|")
    for launch, (name, (option, env)) in enumerate(LAUNCHES.items()):
        counts = {"alone": Counter[str](), "watched": Counter[str]()}
        for number, how in itertools.product(range(runs), counts):
            with socket.create_server(("127.0.0.1", 0)) as server:
                port = server.getsockname()[1]
            run = folder / f"restarts-{launch}-{number}-{how}"
            trainer = (*TORCHRUN[:3], option.format(port=port), "--nproc-per-node=2", "--max-restarts=2", RESTARTED)
            words = watching(run, trainer=trainer) if how == "watched" else [*trainer, str(run)]
            counts[how][restarted(words, run, {**os.environ, "OMP_NUM_THREADS": "1", **env})] += 1
        for how, of in counts.items():
            print(f"| {name} | {how} | {of['well']} | {of['failed']} | {of['hung']} |", flush=True)


def restarted(words: list[str], run: Path, env: dict[str, str]) -> str:
    """Return how it ended: well, failed, or hung, so that it had to be ended."""
    started = subprocess.Popen(words, cwd=run.parent, env=env, stdout=-3, stderr=-3)
    seen, since = None, time.monotonic()
    while started.poll() is None and time.monotonic() - since < STILL_SECONDS:
        time.sleep(0.5)
        now = {one.key for one in descendants(started.pid)}, sum(one.stat().st_size for one in run.rglob("*.jsonl"))
        seen, since = now, since if now == seen else time.monotonic()
    if started.poll() is not None:
        return "failed" if started.returncode else "well"
    for one in [*descendants(started.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one.pid, signal.SIGKILL)
    started.kill()
    started.wait()
    return "hung"


def used(pids: list[int]) -> float:
    return sum(one.cpu_s for pid in pids if (one := read_process(pid)))


@contextlib.contextmanager
def ended(started: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield started
    finally:
        started.terminate()
        started.wait()


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("--runs", type=int, default=20)
    read.add_argument("--seconds", type=int, default=30)
    read.add_argument("--only", nargs="+", default=PARTS, choices=PARTS)
    asked = read.parse_args()
    print(f"Load before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; ticks {TICKS} a second.\n")
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "c.yaml").write_text(CONTRACT)
        if "stops" in asked.only:
            stops(Path(name), asked.runs)
        if "mishaps" in asked.only:
            mishaps(Path(name))
        for of, trainer in COSTS.items() if "cost" in asked.only else ():
            cost(Path(name), asked.seconds, of, trainer)
        if "restarts" in asked.only:
            restarts(Path(name), asked.runs)
    print(f"\nLoad after: {os.getloadavg()[0]:.1f}.")


main()
