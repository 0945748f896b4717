"""Make the run specimens, the same bytes each time: run logs, good and damaged, with known figures.

`report.json` carries the figures of a published 100-step report: tokens_per_sec × wall_ms is 8192 tokens on every
step, wall_ms has a median of 264.720 over all steps (upper middle 264.738), of 265.953 over steps 20 to 49, and is
467.664 at step 0; gpu_util_pct is 50 + uniform(-5, 5); four lines of banner stand before the JSON.
Usage: python verifiers/specimens/runs/make.py
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from pathlib import Path

HERE = Path(__file__).parent
TOKENS = 512
BANNER = "device: one\nblocks uploaded: 24\nstate allocated\nclipping fused\n"


def wall_times(chance: random.Random) -> list[float]:
    """Give 100 times in milliseconds with the published medians."""
    near = [round(chance.uniform(265.0, 265.9), 3) for _ in range(6)]
    window = [265.943, 265.963, *near, *(round(266 + abs(chance.gauss(0, 2)), 3) for _ in range(14))]
    window += [round(264.6 - abs(chance.gauss(0, 2)), 3) for _ in range(8)]
    others = [264.702, 264.738, *(round(264.6 - abs(chance.gauss(0, 2)), 3) for _ in range(41))]
    others += [round(264.9 + abs(chance.gauss(0, 2)), 3) for _ in range(26)]
    chance.shuffle(window)
    chance.shuffle(others)
    return [467.664, *others[:19], *window, *others[19:]]


def report_rows() -> list[dict[str, float]]:
    """Give the rows of the report."""
    chance = random.Random(5)
    walls = wall_times(chance)
    return [
        {
            "step": step,
            "train_loss": round(11.02 - 0.005 * step + chance.gauss(0, 0.05), 6),
            "grad_norm": round(chance.gauss(1.6, 0.15), 6),
            "lr": 5e-07 * step,
            "tokens_per_sec": round(8192 / (wall / 1000), 3),
            "gpu_util_pct": round(50 + chance.uniform(-5, 5), 6),
            "wall_ms": wall,
        }
        for step, wall in enumerate(walls)
    ]


def directory(name: str, *, corpus: int, events: list[int], dry: int | None = None, steps: int = 60) -> None:
    """Write a run directory; from step `dry` on its iterator gives placeholders."""
    chance = random.Random(11)
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    head = {
        "schema": "weighbridge.run/v0", "requested_device": "cpu", "resolved_device": "cpu", "pid": 4711,
        "host": "host-0123456789ab", "commit": "", "started": "2026-01-02T03:04:05Z",
        "model": {"parameters": 4096, "vocab": 256}, "seeds": {"torch": 1}, "versions": {},
        "data": {"seq_len": TOKENS // 4, "batch_size": 4, "corpus_tokens": corpus},
    }  # fmt: skip
    rows = []
    for step in range(steps):
        row = {
            "step": step, "loss": round(5 * math.exp(-step / 80) + chance.gauss(0, 0.05), 6), "lr": 0.001,
            "grad_norm": round(chance.gauss(2, 0.2), 6), "tokens": TOKENS, "wall_ms": round(chance.gauss(100, 3), 3),
            "corpus_position": step * TOKENS % corpus + TOKENS, "wraps": step * TOKENS // corpus,
        }  # fmt: skip
        if dry is not None and step >= dry:
            row |= {"loss": 1.0, "grad_norm": 1.0, "wall_ms": round(0.4 + step / 1e5, 5)}
        rows.append(row)
    told = [{"event": "wrap", "step": step, "wraps": turn + 1} for turn, step in enumerate(events)]
    told.append({"event": "end", "step": steps, "steps": steps, "by": ""})
    (folder / "run.json").write_text(json.dumps(head, indent=1) + "\n")
    (folder / "steps.jsonl").write_text(lines(rows))
    (folder / "events.jsonl").write_text(lines(told))


def ranks(name: str, *, flipped: int | None = None, tensors: bool = False) -> None:
    """Write two ranks of six steps, whose parameters differ by a bit from step `flipped` on, and tensors' norms."""
    chance = random.Random(13)
    norms = [round(chance.gauss(2, 0.2), 6) for _ in range(6)]
    for rank in range(2):
        folder = HERE / name / f"rank-{rank}"
        folder.mkdir(exist_ok=True, parents=True)
        head = {
            "schema": "weighbridge.run/v0", "pid": 4711 + rank, "host": "host-0123456789ab", "commit": "",
            "started": f"2026-01-02T03:04:0{rank}Z", "rank": rank, "world_size": 2, "seeds": {"torch": 1},
        }  # fmt: skip
        bits = [1000 * step + (rank if flipped is not None and step >= flipped else 0) for step in range(6)]
        rows: list[dict[str, object]] = [
            {
                "step": step, "loss": round(chance.gauss(3, 0.2), 6), "grad_norm": norms[step],
                **({"parameters_sum": bits[step]} if step < 4 else {}), "batch_crc": 100 * step + rank,
            }
            for step in range(6)
        ]  # fmt: skip
        (folder / "run.json").write_text(json.dumps(head, indent=1) + "\n")
        (folder / "steps.jsonl").write_text(lines(rows))
        if tensors:
            norm = 0.5 + (0.25 if rank else 0)
            each: list[dict[str, object]] = [
                {"step": step, "name": tensor, "grad": norm if (step, tensor) == (1, "b") else 0.5, "weight": 1.0}
                for step in range(2)
                for tensor in ("a", "b")
            ]
            (folder / "layers.jsonl").write_text(lines(each))


def of_tensors(name: str, *, of_another: bool = False) -> None:
    """Write a run of twelve steps with the norms of its tensors; `of_another` writes those of another run."""
    chance, folder = random.Random(17), HERE / name
    folder.mkdir(exist_ok=True)
    names = [f"h.{layer}.{part}" for layer in range(3) for part in ("w", "k_proj.bias", "ln_1.weight")]
    each: list[dict[str, object]] = []
    rows: list[dict[str, object]] = []
    for step in range(12):
        grads = {tensor: round(chance.lognormvariate(0, 0.3), 6) for tensor in ("wte.weight", *names)}
        whole = math.sqrt(sum(one**2 for one in grads.values()))
        rows.append({"step": step, "loss": round(3 - step / 20 + chance.gauss(0, 0.05), 6), "lr": 0.001})
        rows[-1]["grad_norm"] = round(whole * (2 if of_another else 1), 6)
        for tensor, grad in grads.items():
            update, weight = round(chance.lognormvariate(-4, 0.2), 6), round(10 + chance.gauss(0, 0.1), 6)
            each.append(
                {"step": step, "name": tensor, "grad": grad, "grad_used": grad, "weight": weight, "update": update}
            )
    (folder / "steps.jsonl").write_text(lines(rows))
    (folder / "layers.jsonl").write_text(lines(each))


def lines(rows: list[dict[str, object]]) -> str:
    """Write one JSON object a line."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def snapshot(step: int) -> bytes:
    """Give an analysis checkpoint of one tensor."""
    levels = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
    weight = {
        "elements": 8, "not_finite": 0, "mean": 0.25, "std": 0.5, "min": -1.0, "max": 1.0,
        "percentiles": {f"{level:g}": 2 * level - 1 for level in levels},
        "histogram": {"bins": [-1.0, 0.0, 1.0], "counts": [3, 5]},
    }  # fmt: skip
    content = {
        "schema_version": "ck.analysis.v1", "model_scale_hint": "8e-06M", "step": step, "run": "0123456789abcdef",
        "attempt": 1, "loss": 3.0 - step / 16, "reasons": ["schedule"], "weights": {"w": weight},
        "gradients": {"w": {"norm": 0.5}},
    }  # fmt: skip
    return json.dumps(content, separators=(",", ":")).encode()


def kept(name: str, *, copied: bool = False) -> None:
    """Write a run with files beside its rows; where they were `copied`, another step's and other probes."""
    folder = HERE / name
    (folder / "analysis").mkdir(parents=True, exist_ok=True)
    seal, other = (hashlib.sha256(word).hexdigest() for word in (b"probes", b"others"))
    head = {"schema": "weighbridge.run/v0", "run": "0123456789abcdef", "attempt": 1, "digests": {"probes": seal}}
    (folder / "run.json").write_text(json.dumps(head, indent=2, sort_keys=True) + "\n")
    (folder / "steps.jsonl").write_text(lines([{"step": step, "loss": 3.0 - step / 16} for step in range(21)]))
    events: list[dict[str, object]] = []
    for step in (0, 10, 20):
        data, file = snapshot(step), f"analysis/step-{step:07}.json"
        sha = hashlib.sha256(data).hexdigest()
        events.append({"event": "analysis", "step": step, "reasons": ["schedule"], "file": file, "sha256": sha})
        events.append({"event": "probes", "step": step, "sha256": other if copied and step else seal, "probes": 20})
        (folder / file).write_bytes(snapshot(0) if copied and step == 10 else data)
    (folder / "a.pt").write_bytes(b"weights")
    sha = {"checkpoint": hashlib.sha256(b"weights").hexdigest()}
    saved = {"event": "checkpoint", "step": 20, "files": sha, "name": "a.pt", "path": "a.pt", "earlier": 0}
    (folder / "events.jsonl").write_text(lines([*events, saved, {"event": "end", "step": 21, "steps": 21, "by": ""}]))


def main() -> None:
    """Write all specimens."""
    report = {"status": "ABORTED", "steps_recorded": 100, "per_step_metrics": report_rows()}
    (HERE / "report.json").write_text(BANNER + json.dumps(report, indent=1) + "\n")
    directory("wrapped", corpus=TOKENS * 40, events=[40])
    directory("silent-wrap", corpus=TOKENS * 16, events=[16, 32])
    directory("dry", corpus=TOKENS * 40, events=[], dry=40)
    ranks("ranks", tensors=True)
    ranks("ranks-parted", flipped=2)
    of_tensors("layers")
    of_tensors("layers-of-another", of_another=True)
    kept("kept")
    kept("kept-copied", copied=True)
    few: list[dict[str, object]] = [{"step": step, "loss": 3.0 - step / 4, "wall_ms": 10.0 + step} for step in range(4)]
    (HERE / "torn.jsonl").write_text(lines(few) + '{"step": 4, "lo')
    (HERE / "torn-middle.jsonl").write_text(lines(few[:2]) + '{"step": 2, "lo\n' + lines(few[3:]))
    (HERE / "doubled.jsonl").write_text(lines(few[:1]) + '{"step": 1, "step": 2}\n')
    (HERE / "empty.jsonl").write_text("")
    (HERE / "blank.jsonl").write_text("\n\n")
    (HERE / "holes.csv").write_text(
        "step,loss,note,wall_ms\n0,2.5,warm,12.5\n1,nan,,\n2,,,9.25\n2,2.25,again,9.5\n5,inf,,x\n"
    )
    (HERE / "samples.csv").write_text(
        "timestamp, memory.used [MiB], utilization.gpu [%]\n"
        "2026/01/02 03:04:05.250, 903 MiB, 39 %\n"
        "2026/01/02 03:04:07.250, 5492 MiB, [N/A]\n"
    )
    (HERE / "samples-bare.csv").write_text(
        "2026/01/02 03:04:05.250, 903 MiB, 39 %\n2026/01/02 03:04:07.250, 5492 MiB, 99 %\n"
    )


if __name__ == "__main__":
    main()
