"""Time watching a run log of a million rows to its end, against one `verify` of the same log by the same contract.

Prints processor seconds of both, each in a process of its own, and the ratio. The log is written in pieces, with a look
after each, as if the rows came ten a second: by default a thousand pieces, so that each look finds a thousand rows.
Usage: python benchmarks/watched_log.py [ROWS [PIECES]]
"""

from __future__ import annotations

import json
import resource
import runpy
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weighbridge.evaluation.verification import VerifyRequest, verify
from weighbridge.report import verdict_lines
from weighbridge.watch.judges import Judges

CONTRACT = "builtin:training-run"
ROWS_A_SECOND = 10


def request(*subjects: str) -> VerifyRequest:
    return VerifyRequest(contracts=(CONTRACT,), subjects=subjects, evidence=None, ledger=Path("ledger"))


def watched(source: Path, pieces: int) -> None:
    rows = (source / "steps.jsonl").read_bytes().splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        for name in ("run.json", "events.jsonl"):
            (run / name).write_bytes((source / name).read_bytes())
        judges, looked, stops = Judges(request(), run, verdict_lines), 0.0, 0
        size = -(-len(rows) // pieces)
        with (run / "steps.jsonl").open("ab", buffering=0) as log:
            for first in range(0, len(rows), size):
                log.write(b"".join(rows[first : first + size]))
                began = time.process_time()
                stops += judges.look(first / ROWS_A_SECOND) is not None
                looked += time.process_time() - began
        began = time.process_time()
        results = judges.finish()
        show(results, cpu_s=looked + time.process_time() - began, looking_s=looked, stops=stops)


def verified(source: Path) -> None:
    began = time.process_time()
    results = verify(request(f"run={source}"), lambda _text: None)
    show(results, cpu_s=time.process_time() - began)


def show(results: object, **more: float) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({**more, "peak_mib": peak}))


def main() -> None:
    if sys.argv[1:2] == ["--watch"]:
        return watched(Path(sys.argv[2]), int(sys.argv[3]))
    if sys.argv[1:2] == ["--verify"]:
        return verified(Path(sys.argv[2]))
    rows, pieces = (int(one) for one in (*sys.argv[1:3], *("1000000", "1000")[len(sys.argv) - 1 :]))
    with tempfile.TemporaryDirectory() as folder:
        runpy.run_path(str(Path(__file__).with_name("run_log.py")))["write"](Path(folder), rows)
        answers = []
        for verb in (["--verify", folder], ["--watch", folder, str(pieces)]):
            done = subprocess.run([sys.executable, __file__, *verb], check=True, capture_output=True, text=True)
            answers.append(json.loads(done.stdout.splitlines()[-1]))
    once, live = answers
    print(f"one verify: {once['cpu_s']:.1f} s of a processor, {once['peak_mib']:.0f} MiB")
    print(
        f"watched in {pieces} pieces: {live['cpu_s']:.1f} s, {live['looking_s']:.1f} of them before the end, ", end=""
    )
    print(f"{live['peak_mib']:.0f} MiB, {live['stops']} stops")
    print(f"ratio: {live['cpu_s'] / once['cpu_s']:.2f}")
    return None


if __name__ == "__main__":
    main()
