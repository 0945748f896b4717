"""Time reading and judging a run log of a million steps, against a bare `json.loads` loop over the same lines.

Prints seconds, the ratio between the two in this one run, and the peak memory of the process that judges; then what all
of `builtin:training-log` takes, beside four gates of `builtin:training-run`: processor seconds, and the peak memory.
Usage: python benchmarks/run_log.py [ROWS]
"""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weighbridge.core.model import CanaryResult, GateDecl, Json, Measured, SubjectKind
from weighbridge.gates import KINDS
from weighbridge.judging.judging import judge_gate
from weighbridge.judging.requests import request_for
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.verifier import Canary
from weighbridge.views.run import RunView, open_run

TOKENS = 4096
GATES: tuple[tuple[str, dict[str, Json]], ...] = (
    ("wall-time-budget", {"steps": [20, 10_000_000], "at_most_ms": 1000, "min_samples": 30}),
    ("step-metrics", {"required": ["loss", "grad_norm", "lr", "wall_ms", "tokens"]}),
    ("corpus-wrap-around", {}),
)


def write(path: Path, rows: int) -> None:
    chance = random.Random(7)
    corpus = TOKENS * max(rows // 3, 1)
    head = {
        "schema": "weighbridge.run/v0", "requested_device": "cpu", "resolved_device": "cpu", "pid": 1, "host": "host-0",
        "commit": "0", "data": {"seq_len": TOKENS // 4, "batch_size": 4, "corpus_tokens": corpus},
    }  # fmt: skip
    (path / "run.json").write_text(json.dumps(head))
    wraps = [step for step in range(1, rows) if step * TOKENS % corpus == 0]
    (path / "events.jsonl").write_text("".join(json.dumps({"event": "wrap", "step": step}) + "\n" for step in wraps))
    with (path / "steps.jsonl").open("w") as log:
        for step in range(rows):
            wall = chance.gauss(100, 3)
            row = {
                "step": step, "loss": 3 + chance.gauss(0, 0.1), "lr": 1e-3, "grad_norm": chance.gauss(2, 0.2),
                "tokens": TOKENS, "wall_ms": wall, "tokens_per_sec": 1000 * TOKENS / wall,
                "corpus_position": step * TOKENS % corpus + TOKENS,
            }  # fmt: skip
            log.write(json.dumps(row) + "\n")


def judge(view: RunView, kind: str, limits: dict[str, Json]) -> str:
    gate = GateDecl(id="G", kind=kind, title="", subjects={"run": "run"}, limits=limits)
    measured: dict[str, Measured] = {}
    canaries: dict[str, CanaryResult] = {}
    for need in KINDS[kind].needs.values():
        key = request_for(gate, need, "default").key
        verifier = VERIFIERS[need.quantity, (SubjectKind.RUN,)]
        found = measured[key] = verifier.measure((view,), {})
        laid = verifier.canary((view,), {}, found)  # type: ignore[arg-type]
        assert isinstance(laid, Canary)
        seen = laid.seen(verifier.measure(laid.views, {}))
        canaries[key] = CanaryResult(name=laid.name, place=laid.place, applied=True, seen=seen)
    return str(judge_gate(gate, "default", measured, canaries).verdict.outcome)


def bare(path: Path) -> float:
    started = time.perf_counter()
    with (path / "steps.jsonl").open("rb") as log:
        for line in log:
            json.loads(line)
    return time.perf_counter() - started


def weighed(path: Path) -> None:
    started = time.perf_counter()
    view = open_run(path)
    read = time.perf_counter() - started
    outcomes = {}
    for kind, limits in GATES:
        began = time.perf_counter()
        outcomes[kind] = (judge(view, kind, limits), round(time.perf_counter() - began, 2))
    total = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"rows": view.rows, "read_s": read, "total_s": total, "peak_mib": peak, "outcomes": outcomes}))


CONTRACTS: dict[str, tuple[str, ...]] = {
    "training-run": tuple(f"GATE-RUN-00{number}" for number in range(1, 5)), "training-log": ()
}  # fmt: skip


def verified(contract: str, path: Path) -> None:
    from weighbridge import verify

    with tempfile.TemporaryDirectory() as evidence:
        found = verify(
            f"builtin:{contract}", subjects={"run": path}, gates=CONTRACTS[contract], evidence=evidence
        ).findings
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    outcomes = {one.gate: str(one.verdict.outcome) for one in found}
    print(json.dumps({"cpu_s": time.process_time(), "peak_mib": peak, "outcomes": outcomes}))


def main() -> None:
    if sys.argv[1:2] == ["--weigh"]:
        return weighed(Path(sys.argv[2]))
    if sys.argv[1:2] == ["--verify"]:
        return verified(sys.argv[2], Path(sys.argv[3]))
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        write(path, rows)
        loop = bare(path)
        answer = subprocess.run(
            [sys.executable, __file__, "--weigh", folder], check=True, capture_output=True, text=True
        )
        found = json.loads(answer.stdout)
        print(f"{found['rows']} rows; bare json.loads loop {loop:.2f} s")
        print(f"read   {found['read_s']:.2f} s = {found['read_s'] / loop:.2f} × the loop")
        print(
            f"judged {found['total_s']:.2f} s = {found['total_s'] / loop:.2f} × the loop, trials and canaries included"
        )
        print(f"peak memory {found['peak_mib']:.0f} MiB; {found['outcomes']}")
        of = {}
        for contract in CONTRACTS:
            words = [sys.executable, __file__, "--verify", contract, folder]
            of[contract] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
            took = f"{of[contract]['cpu_s']:.1f} s of the processor, peak memory {of[contract]['peak_mib']:.0f} MiB"
            print(f"{contract}: {took}; {of[contract]['outcomes']}")
        print(f"training-log is {of['training-log']['cpu_s'] / of['training-run']['cpu_s']:.2f} × the four gates")
    return None


if __name__ == "__main__":
    main()
