"""Runs that grow under a test's hand."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weighbridge.evaluation.verification import VerifyRequest
from weighbridge.report import verdict_lines
from weighbridge.watch.judges import Judges, Stop

HEAD = {
    "schema": "weighbridge.run/v0", "requested_device": "cpu", "resolved_device": "cpu", "pid": 1, "host": "host-0",
    "commit": "0" * 40, "started": "2026-01-01T00:00:00+00:00", "requested_steps": 200,
    "data": {"seq_len": 64, "batch_size": 8, "corpus_tokens": 512 * 50},
}  # fmt: skip
GATES = """
- {id: METRICS, title: a, kind: step-metrics, subjects: {run: run}, with: {required: [loss, grad_norm]}}
- {id: LOW, title: b, kind: series-bound, subjects: {run: run}, with: {at_most: 50}}
- {id: CORPUS, title: c, kind: corpus-wrap-around, subjects: {run: run}}
- {id: LEARNS, title: d, kind: learning-progress, subjects: {run: run}}
"""


def rows(count: int, first: int = 0, corpus: int = 512 * 50) -> Iterator[dict[str, Any]]:
    """Yield the rows of a healthy run of 512 tokens a step."""
    draw = random.Random(first)
    for step in range(first, first + count):
        wall = draw.gauss(100, 3)
        yield {
            "step": step, "loss": 3.0 * 0.99**step + draw.gauss(0.2, 0.02), "grad_norm": draw.gauss(2, 0.2),
            "lr": 1e-3, "tokens": 512, "wall_ms": wall, "corpus_position": step * 512 % corpus + 512,
        }  # fmt: skip


class Writer:
    """Who writes a run directory, a row at a time."""

    def __init__(self, path: Path, head: Mapping[str, Any] = HEAD) -> None:
        path.mkdir(parents=True)
        self.path = path
        (path / "run.json").write_text(json.dumps(head))

    def row(self, row: Mapping[str, Any]) -> None:
        """Write a row, a wrap before it where its position begins anew."""
        if row["step"] and row.get("corpus_position") == 512:
            self.event({"event": "wrap", "step": row["step"]})
        self.text(json.dumps(row) + "\n")

    def event(self, event: Mapping[str, Any]) -> None:
        with (self.path / "events.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")

    def text(self, text: str) -> None:
        with (self.path / "steps.jsonl").open("a") as file:
            file.write(text)


def judges(folder: Path, run: Path, gates: str = GATES, *, subjects: Sequence[str] = (), run_as: str = "run") -> Judges:
    """Return the judges of a run by gates in YAML."""
    contract = folder / "contract.yaml"
    listed = "".join(f"  {line}\n" for line in gates.strip().splitlines())
    base = "  base: {kind: run}\n" if "base" in gates else ""
    head = "weighbridge: contract/v0\nid: watched\nversion: 1.0.0\ntitle: t\nowner: o\n"
    contract.write_text(f"{head}subjects:\n  {run_as}: {{kind: run}}\n{base}gates:\n{listed}")
    request = VerifyRequest(
        contracts=(str(contract),), subjects=tuple(subjects), evidence=None, ledger=folder / "ledger"
    )
    return Judges(request, run, verdict_lines)


def written(of: Judges, writer: Writer, some: Iterable[Mapping[str, Any]]) -> tuple[int, Stop] | None:
    """Write row by row and look after each; return the step of the row after which it should stop, and why."""
    for now, row in enumerate(some):
        writer.row(row)
        if stop := of.look(float(now)):
            return row["step"], stop
    return None
