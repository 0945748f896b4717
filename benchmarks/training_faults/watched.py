"""Replay recorded trainings row by row through the judges of `watch`: which healthy ones they stop, which faulty when.

    python -m benchmarks.training_faults.watched --healthy 34 --steps 1000 --keep runs   # of each program
    python -m benchmarks.training_faults.watched --faults

Programs and faults are those of this folder, and `benchmarks/watching_faults.md` is what it said. What lies in `--keep`
is not trained again. Each row is written, its events before it, and looked at once, as if ten came a second; `after` is
from the first step that the fault touches to the row after which the run would stop.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_faults.fault import FAULTS
from benchmarks.training_faults.programs import PROGRAMS, Case, fault_cases, harmless_cases, patch_of

from weighbridge.evaluation.verification import VerifyRequest
from weighbridge.report import verdict_lines
from weighbridge.watch.judges import Judges, Stop

CONTRACT = "builtin:training-run"
TEN = (
    *("weight_becomes_nan", "bit_of_exponent", "wrap_unlogged", "same_batch", "updates_skipped", "layer_in_no_group"),
    *("no_zero_grad", "placeholder_one", "device_fallback", "more_steps"),
)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What the judges said of one log: the row after which they stop it, and what only a step form found."""

    rows: int
    row: int | None
    stop: Stop | None
    advice: tuple[str, ...]
    unconfirmed: tuple[str, ...]


def replayed(source: Path) -> Replayed:
    """Write a recorded log anew, row by row, and look after each."""
    rows = (source / "steps.jsonl").read_text().splitlines(keepends=True)
    events = (
        (source / "events.jsonl").read_text().splitlines(keepends=True) if (source / "events.jsonl").exists() else []
    )
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        run.mkdir()
        shutil.copy(source / "run.json", run)
        request = VerifyRequest(contracts=(CONTRACT,), evidence=None, ledger=Path(folder))
        judges = Judges(request, run, verdict_lines)
        found = next(_stops(judges, run, rows, events), None)
    advice = tuple(f"{one.gate} `{one.code}`" for one in judges.advice)
    row, stop = found or (None, None)
    return Replayed(rows=len(rows), row=row, stop=stop, advice=advice, unconfirmed=tuple(judges.unconfirmed))


def _stops(judges: Judges, run: Path, rows: Sequence[str], events: Sequence[str]) -> Iterator[tuple[int, Stop]]:
    waiting = list(events)
    with (run / "steps.jsonl").open("a") as log, (run / "events.jsonl").open("a") as beside:
        for number, row in enumerate(rows):
            step = json.loads(row)["step"]
            while waiting and json.loads(waiting[0]).get("step", 0) <= step and '"end"' not in waiting[0]:
                beside.write(waiting.pop(0))
            beside.flush()
            log.write(row)
            log.flush()
            if stop := judges.look(number / 10):
                yield step, stop


def made(case: Case, steps: int | None) -> Any:
    """Return the program of a case, patched, over so many steps."""
    program: Any = PROGRAMS[case.program](case.seed)
    if steps is not None:
        program.steps = program.declared["requested_steps"] = steps
        if case.program == "fine-tune":
            program.scheduled(lambda step: 1 - step / (2 * steps))
    patch_of(case)(program)
    return program


def recorded(case: Case, keep: Path, steps: int | None) -> Path:
    """Return the log of a case: as it lies there, else trained."""
    run = keep / f"{case.program}-{case.name}-{case.seed}"
    if run.exists():
        return run
    torch.set_num_threads(1)
    program = made(case, steps)
    fresh = run.with_name(f".{run.name}")
    shutil.rmtree(fresh, ignore_errors=True)
    try:
        program.train(fresh, "default")
    except Exception as problem:  # noqa: BLE001 -- a program that its fault ends is an answer, too
        print(f"{run.name}: {type(problem).__name__}")
    fresh.rename(run)
    return run


def healthy(given: argparse.Namespace, keep: Path) -> None:
    for program in given.programs:
        cases = harmless_cases([program], range(given.healthy))
        cases = sorted(cases, key=lambda case: case.seed)[: given.healthy]
        found = [replayed(recorded(case, keep, given.steps)) for case in cases]
        stopped = [f"{one.stop.gate} `{one.stop.code}` at row {one.row}" for one in found if one.stop]
        rows, doubted = sum(one.rows for one in found), sum(len(one.unconfirmed) for one in found)
        print(f"| {program} | {len(found)} | {rows:,} | {len(stopped)} {' '.join(stopped)} | {doubted} |", flush=True)


def faulty(given: argparse.Namespace, keep: Path) -> None:
    for case in fault_cases(given.programs, [0], TEN):
        one = replayed(recorded(case, keep, None))
        fired = f"{one.stop.gate} `{one.stop.code}`" if one.stop else "nothing before the end"
        onset = FAULTS[case.name].onset
        after = "" if one.row is None else str(one.row - onset)
        name = case.name.replace("_", " ")
        print(f"| {name} | {case.program} | {onset} | {fired} | {after} | {len(one.unconfirmed)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--healthy", type=int, default=0, help="runs of each program")
    parser.add_argument("--programs", nargs="+", default=[*PROGRAMS], choices=[*PROGRAMS])
    parser.add_argument("--steps", type=int, default=1000, help="of a healthy run")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--keep", type=Path, help="a folder for the recorded runs")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        keep = given.keep or Path(folder)
        keep.mkdir(parents=True, exist_ok=True)
        if given.healthy:
            healthy(given, keep)
        if given.faults:
            faulty(given, keep)


if __name__ == "__main__":
    main()
