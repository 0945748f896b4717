"""Run directories typed by hand, and books of a witness beside them, sealed as the real one seals."""

from __future__ import annotations

import datetime as dt
import json
import random
from pathlib import Path
from typing import Any

from weighbridge.core.canonical import dumps
from weighbridge.core.pseudonym import seal_of
from weighbridge.evidence.disk import digest_regular
from weighbridge.evidence.redact import own_key
from weighbridge.evidence.statement import utc
from weighbridge.quantities.book_lines import (
    BOOK,
    SCHEMA,
    SEAL,
    Begin,
    End,
    FileState,
    Image,
    Line,
    Process,
    Sample,
)

CUDA = {"cuda:0": 9}
HEAD = {
    "schema": "weighbridge.run/v0",
    "run": "a1",
    "pid": 4711,
    "host": "host-1",
    "commit": "c0ffee0",
    "dirty": False,
    "requested_device": "cuda",
    "resolved_device": "cuda:0",
    "requested_steps": 60,
    "started": "2026-04-26T12:00:00.000Z",
}


def typed(run: Path, **head: Any) -> Path:
    """Type a run on CUDA with an NVML witness, on whatever machine this is."""
    run.mkdir(parents=True)
    (run / "run.json").write_text(json.dumps(HEAD | head))
    draw = random.Random(7)
    rows = [{"step": step, "loss": 4.0 - step / 30 + draw.gauss(0, 0.05)} for step in range(60)]
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    nvml = {"by": "nvml", "pid": (HEAD | head)["pid"], "device": "GPU-1", "used_mib": 812.0}
    found = dict.fromkeys(("parameters", "gradients", "optimizer", "updated", "ops"), CUDA) | {"buffers": {}}
    probe = {"event": "device", "dispatch": "audited", "witnesses": [nvml], "allocated_bytes": 1 << 29, "why": {}}
    events = [probe | found | {"step": step} for step in (0, 30, 59)] + [{"event": "end", "step": 59, "steps": 60}]
    (run / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return run


CONTRACT = """\
weighbridge: contract/v0
id: on-cuda
version: 1.0.0
title: A run trained on CUDA
owner: training
subjects:
  run: {kind: run}
gates:
  - id: GATE-CUDA
    title: The run did its work on CUDA
    kind: no-silent-cpu-fallback
    subjects: {run: run}
    with: {requested: cuda}
  - id: GATE-STEPS
    title: The run took the steps that it was asked for
    kind: steps-asked
    subjects: {run: run}
  - id: GATE-LEARNED
    title: The loss fell
    kind: learning-progress
    subjects: {run: run}
"""


def kept(target: Path) -> Path:
    """Return the folder of the book beside a run or a file."""
    return target.with_name(f"{target.name}.watch")


def lines_of(target: Path, *segments: dict[str, Any]) -> list[Line]:
    """Return the lines of a book about what lies there now; a segment changes fields of what the witness saw."""
    files = [target] if target.is_file() else sorted(path for path in target.rglob("*") if path.is_file())
    names = {path.name if path == target else path.relative_to(target).as_posix(): path for path in files}
    states = {name: FileState(sha256=digest_regular(path), size=path.stat().st_size) for name, path in names.items()}
    head = HEAD | (json.loads((target / "run.json").read_text()) if (target / "run.json").exists() else {})
    began, second = dt.datetime.fromisoformat(head["started"]), dt.timedelta(seconds=1)
    lines: list[Line] = []
    for number, given in enumerate(segments or ({},), start=1):
        seen = {"pids": (head["pid"],), "commit": head["commit"], "dirty": False, "code": 0, "signal": None}
        seen |= {"executable": Image(name="python", sha256="a" * 64)} | given
        nobody: dict[str, Any] = {"witnessed": (), "not_witnessed": {}}
        at = {"pid": 4700, "start_ticks": 1}
        begin = Begin(
            tool="0",
            run=target.name,
            command=("python", "train.py"),
            host="host-1",
            grace_s=30.0,
            **{"contracts": {}, **nobody, **at},
            **{name: seen[name] for name in ("commit", "dirty", "executable")},
        )
        grown: list[Any] = [
            Process(pid=pid, start_ticks=2, parent=4700, name="python", inner_pid=pid) for pid in seen["pids"]
        ]
        stored = {str(pid): ("/dev/nvidia0",) for pid in seen["pids"]} if given.get("cuda", True) else {}
        grown.append(Sample(processes=2, cpu_s=1.0, rss_kib=512, device_memory_mib={}, device_files=stored))
        counted = {"exit": 0, "wall_s": 9.0, "cpu_s": 8.0, "max_rss_kib": 512, "processes": 2}
        end = End(**{name: seen[name] for name in ("code", "signal")}, **counted, files=states, **nobody)  # type: ignore[arg-type]
        times = {"begin": utc(began - second), "end": utc(began + 9 * second)} | given.get("times", {})
        bodies = [begin, *grown, *given.get("more", ()), end]
        for body in bodies:
            time = times["end" if body is end else "begin"]
            lines.append(Line(time=time, monotonic_s=float(len(lines)), segment=number, body=body))
    return lines


def watched(target: Path, *segments: dict[str, Any], key: bytes | None = None) -> Path:
    """Write and seal the book of a witness who saw what lies there now being made, and return what it is of."""
    data = b"".join(dumps(line.plain()) for line in lines_of(target, *segments))
    folder = kept(target)
    folder.mkdir()
    (folder / BOOK).write_bytes(data)
    (folder / SEAL).write_text(seal_of(data, SCHEMA, key or own_key()))
    return target
