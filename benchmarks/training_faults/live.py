"""Train under `weighbridge watch`, each run a process of its own: which healthy ones are stopped, which faulty when.

    python -m benchmarks.training_faults.live --healthy 34 --steps 1000 --keep runs   # of each program
    python -m benchmarks.training_faults.live --faults --keep runs

Programs and faults are those of this folder, and `benchmarks/watching_live.md` is what it said. What ended in `--keep`
is not trained again. `after` is from the first step that the fault touches to the last row that the log has.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from benchmarks.training_faults.fault import FAULTS
from benchmarks.training_faults.programs import PROGRAMS, Case, fault_cases, harmless_cases
from benchmarks.training_faults.watched import TEN, made

ENDED = "watched.json"  # beside a run, what came of it


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a run ended: the exit code of `watch`, the last step, and what stopped it, gate and code."""

    exit_code: int
    last_step: int
    stopped_by: str


def train(run: Path, case: Case, steps: int | None) -> None:
    """Train in this process, as a user's script does."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    made(case, steps).train(run, "default")


def watched(case: Case, keep: Path, steps: int | None) -> Ended:
    """Return how a run under a witness ended; what ended before is not made again."""
    folder = keep / f"{case.program}-{case.name}-{case.seed}"
    if (folder / ENDED).exists():
        return Ended(**json.loads((folder / ENDED).read_text()))
    folder.mkdir(parents=True)
    run, named = folder / "run", json.dumps(asdict(case) | {"steps": steps})
    program = (sys.executable, "-m", "benchmarks.training_faults.live", "--train", str(run), named)
    command = (sys.executable, "-m", "weighbridge", "watch", str(run), "--evidence", str(folder / "ev"), "--", *program)
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    (folder / "said.txt").write_text(done.stdout + done.stderr)
    stop = json.loads((run / "STOP.json").read_text()) if (run / "STOP.json").exists() else {}
    rows = (run / "steps.jsonl").read_text().splitlines() if (run / "steps.jsonl").exists() else []
    stopped_by = f"{stop.get('gate')} `{stop.get('code')}`" if stop else ""
    ended = Ended(
        exit_code=done.returncode, last_step=json.loads(rows[-1])["step"] if rows else -1, stopped_by=stopped_by
    )
    (folder / ENDED).write_text(json.dumps(asdict(ended)))
    return ended


def every(cases: Sequence[Case], keep: Path, steps: int | None) -> list[Ended]:
    """Return how each ended, two at a time."""
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda case: watched(case, keep, steps), cases))


def healthy(given: argparse.Namespace) -> None:
    """Print a row for each program."""
    for program in given.programs:
        cases = sorted(harmless_cases([program], range(given.healthy)), key=lambda case: case.seed)[: given.healthy]
        found = every(cases, given.keep, given.steps)
        rows, stopped = sum(one.last_step + 1 for one in found), [one.stopped_by for one in found if one.stopped_by]
        codes = ", ".join(f"{code}: {times}" for code, times in sorted(Counter(one.exit_code for one in found).items()))
        print(f"| {program} | {len(found)} | {rows:,} | {len(stopped)} {' '.join(stopped)} | {codes} |", flush=True)


def faulty(given: argparse.Namespace) -> None:
    """Print a row for each fault."""
    cases = fault_cases(given.programs, [0], TEN)
    for case, one in zip(cases, every(cases, given.keep, None), strict=True):
        name, onset, fired = (
            case.name.replace("_", " "),
            FAULTS[case.name].onset,
            one.stopped_by or "nothing before the end",
        )
        after = str(one.last_step - onset) if one.stopped_by else ""
        print(f"| {name} | {case.program} | {onset} | {fired} | {after} | {one.exit_code} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", nargs=2, metavar=("RUN", "CASE"), help="train one here; what the others start")
    parser.add_argument("--healthy", type=int, default=0, help="runs of each program")
    parser.add_argument("--programs", nargs="+", default=[*PROGRAMS], choices=[*PROGRAMS])
    parser.add_argument("--steps", type=int, default=1000, help="of a healthy run")
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--keep", type=Path, default=Path("runs"), help="a folder for the runs")
    given = parser.parse_args()
    if given.train:
        named = json.loads(given.train[1])
        steps = named.pop("steps")
        train(Path(given.train[0]), Case(**named), steps)
        return
    if given.healthy:
        healthy(given)
    if given.faults:
        faulty(given)


if __name__ == "__main__":
    main()
