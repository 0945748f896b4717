"""Read the folder of one MLflow run: `metrics/NAME` has a line a sample, `meta.yaml` how the run ended."""

import re
from collections.abc import Iterator
from pathlib import Path

from weighbridge.core import is_file, is_folder
from weighbridge.run_logs.log_file import bad_line, batches, read_whole, several_runs
from weighbridge.run_logs.log_table import Log, Sample, joined

META, METRICS = "meta.yaml", "metrics"
STATUS = {"1": "running", "3": "finished", "4": "failed", "5": "killed"}
MAX_META = 1 << 16


def runs_in(path: Path) -> list[Path]:
    """List the runs in a folder of MLflow's: itself, those of an experiment, or those of all."""
    found = [path / METRICS, *sorted(path.glob(f"*/{METRICS}")), *sorted(path.glob(f"*/*/{METRICS}"))]
    return [one.parent for one in found if is_folder(one) and is_file(one.parent / META)]


def read_mlflow(path: Path, digests: dict[str, str]) -> Log:
    """Read the one run of a folder; refuse with `several-runs`, `log-syntax` and the line, or `no-rows`."""
    runs = runs_in(path)
    if len(runs) > 1:
        raise several_runs(path, [run.relative_to(path).as_posix() for run in runs])
    run = runs[0]
    meta = read_whole(run / META, digests, MAX_META).decode("utf-8", "replace")
    status = re.search(r"^status: (\d)\s*$", meta, re.MULTILINE)
    facts = {"status": STATUS.get(status[1], "")} if status else {}
    files = sorted(file for file in (run / METRICS).rglob("*") if is_file(file))
    torn: dict[str, int] = {}
    log_of = [_samples(file, file.relative_to(run / METRICS).as_posix(), digests, torn) for file in files]
    return joined(path, log_of, facts=facts, notes=torn)


def _samples(file: Path, name: str, digests: dict[str, str], torn: dict[str, int]) -> Iterator[Sample]:
    """Yield the samples of one metric: when, in ms, the number, and the step, with more behind it in later versions."""
    found: dict[str, str] = {}
    for batch in batches(file, found):
        for number, line in enumerate(batch.lines, batch.first):
            if not (words := line.split()):
                continue
            try:
                yield float(words[0]), int(words[2]), name, float(words[1])
            except (ValueError, IndexError):
                if batch.terminated:
                    what = "not a line of a metric: its moment in ms, its number and its step"
                    raise bad_line(file, number, what) from None
                torn["torn_last_line"] = number
    digests[f"{METRICS}/{name}"] = found[file.name]
