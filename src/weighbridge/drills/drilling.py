"""Run a drill: train its arms one after the other, judge each, draw its page, and say what had to fire and did."""

import dataclasses
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from weighbridge import api
from weighbridge.core import Outcome, UsageError, WeighbridgeError, dataclass
from weighbridge.drills.setups import DIAGNOSTICS, KNOCK, Arm, Drill, differing, row_of
from weighbridge.evaluation.inspection import cells
from weighbridge.evaluation.verification import ContractResult
from weighbridge.views.run import open_run

RISE, COST = 5, "M9"  # steps from the knock on; the row of what looking costs: beside so small a step, the machine's


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """One arm as it was trained and judged."""

    arm: Arm
    run: Path
    seconds: float
    result: ContractResult
    page: Path | None

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Return what every row came to."""
        return {row_of(one.gate): one.verdict.outcome for one in self.result.evaluation.findings}

    def of(self, outcome: Outcome) -> tuple[str, ...]:
        """Return the rows that came to an outcome."""
        return tuple(row for row, one in self.outcomes.items() if one is outcome)

    @property
    def silent(self) -> tuple[str, ...]:
        """Return the rows that had to FAIL, and did not."""
        return tuple(row for row in self.arm.fails if self.outcomes.get(row) is not Outcome.FAIL)

    @property
    def turned(self) -> tuple[str, ...]:
        """Return the rows that had to stay green, and did not; of a healthy arm, each that FAILs but that of cost."""
        found = [row for row in self.arm.passes if self.outcomes.get(row) is not Outcome.PASS]
        return tuple(found) if self.arm.against else (*found, *(one for one in self.of(Outcome.FAIL) if one != COST))


def drilled(drill: Drill, folder: Path, show: Callable[[str], None]) -> Iterator[Drilled]:
    """Train all arms of a drill into a new folder, each in a process of its own, then judge each and draw its page."""
    seconds = {}
    for arm in drill.arms:
        show(f"training {arm.name}, {arm.setup.steps} steps")
        began, run = time.monotonic(), folder / arm.name
        setups = (json.dumps(dataclasses.asdict(one)) for one in (arm.setup, drill.arms[0].setup))
        command = (sys.executable, "-m", "weighbridge.drills.training", str(run), *setups)
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
            what = f"the training of {arm.name} ended with exit {done.returncode}: {last}"
            raise WeighbridgeError("drill-training", what, where=str(run), remedy="look at the disk and at PyTorch")
        seconds[arm.name] = time.monotonic() - began
    for arm in drill.arms:
        show(f"judging {arm.name}")
        bound = {one.role: folder / one.name for one in drill.arms if one.role and one.against == arm.name}
        bound |= {"run": folder / arm.name} | ({arm.beside: folder / arm.against} if arm.beside else {})
        judged = api.verify(DIAGNOSTICS, subjects=bound, evidence=folder / "evidence").results[0]
        page = _page(judged, arm, folder)
        yield Drilled(arm=arm, run=folder / arm.name, seconds=seconds[arm.name], result=judged, page=page)


def _page(judged: ContractResult, arm: Arm, folder: Path) -> Path | None:
    """Draw what an arm came to, beside the one that it is compared with; None where the page's library is missing."""
    from weighbridge.page.one_file import page
    from weighbridge.page.sources import sources

    assert judged.bundle is not None
    file, base = folder / f"{arm.name}.html", folder / arm.against if arm.against else None
    try:
        file.write_bytes(page(sources([judged.bundle.path], folder / arm.name, base)))
    except UsageError:
        return None
    return file


def changed(arm: Arm, drill: Drill) -> str:
    """Return in words what an arm changes."""
    other = next((one for one in drill.arms if one.name == arm.against), arm)
    if not (found := differing(other.setup, arm.setup)):
        return f"as {arm.against}, once more" if arm.against else "healthy"
    ((name, (was, now)),) = found.items()
    return f"{name} {was!r} -> {now!r}" if was != "" else f"{name} {now}"


def rises(drill: Drill, found: Sequence[Drilled]) -> list[tuple[float, str]]:
    """Return by how much the loss of each arm rose above the other's just after the knock, the farthest first."""
    losses = {one.arm.name: dict(cells(open_run(one.run).column("loss"))) for one in found}
    mean = {name: statistics.fmean(of[KNOCK + at] for at in range(RISE)) for name, of in losses.items()}
    return sorted(((mean[one.name] - mean[one.against], one.name) for one in drill.arms if one.against), reverse=True)
