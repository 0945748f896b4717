"""A trainer in one file of the standard library: writes rows into RUN, and does on demand what trainers do at night."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    read = argparse.ArgumentParser()
    read.add_argument("run", type=Path)
    read.add_argument("--rows", type=int, default=5)
    read.add_argument("--hz", type=float, default=100.0)
    read.add_argument("--nan", type=int, default=-1)
    read.add_argument("--ignore-term", action="store_true")
    read.add_argument("--detach", action="store_true")
    read.add_argument("--ends", default="0")  # a code, KILL, STOP, OOM, EAT
    read.add_argument("--log", default="keep")  # truncate, rotate, rewrite
    read.add_argument("--rank", default=f"rank-{os.environ['RANK']}" if "RANK" in os.environ else "")
    read.add_argument("--uid", type=int, default=0)
    read.add_argument("--ranks", type=int, default=0)
    asked = read.parse_args()
    if asked.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if asked.detach and os.fork():
        return
    if asked.detach:
        os.setsid()
        if os.fork():
            os._exit(0)
    if asked.ranks:
        words = [word for word in sys.argv[1:] if not word.startswith("--ranks")]
        each = [[sys.executable, __file__, *words, f"--rank=rank-{rank}"] for rank in range(asked.ranks)]
        each[0] += ["--nan=-1"]
        ranks = [subprocess.Popen(one) for one in each]
        sys.exit(max(abs(one.wait()) for one in ranks))
    train(asked)


def train(asked: argparse.Namespace) -> None:
    folder = asked.run / asked.rank
    folder.mkdir(parents=True)
    log = folder / "steps.jsonl"
    kept = log.open("a") if asked.uid else None
    if kept:
        os.setuid(asked.uid)
    for step in range(asked.rows):
        if step == 3 and asked.log == "truncate":
            os.truncate(log, 10)
        if step == 3 and asked.log == "rotate":
            log.rename(folder / "steps.1.jsonl")
        if step == 15 and asked.log == "rewrite":
            with log.open("r+b") as file:
                file.write(b" " * len(file.readline()[:-1]))
        row = {
            "monotonic_s": time.monotonic(),
            "step": step,
            "loss": float("nan") if step == asked.nan else 4.0 - 0.01 * step**1.1,
        }
        file = kept or log.open("a")
        file.write(json.dumps(row) + "\n")
        file.flush() if kept else file.close()
        time.sleep(1 / asked.hz)
    match asked.ends:
        case "KILL" | "STOP":
            os.kill(os.getpid(), getattr(signal, f"SIG{asked.ends}"))
        case "OOM":
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
            bytearray(1 << 30)
        case "EAT":
            eaten = [bytes([1]) * (1 << 23) for _ in range(64)]
            sys.exit(len(eaten))
        case code:
            sys.exit(int(code))


main()
