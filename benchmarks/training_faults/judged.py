"""Judge recorded runs by a contract, in this process; find the first step from which a gate fails."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weighbridge.contract.load import LoadedContract, load_contract
from weighbridge.core import Finding, Outcome
from weighbridge.evaluation.binding import all_instances, bind
from weighbridge.evaluation.runner import EvaluationSession
from weighbridge.recorder.run_directory import EVENTS, RUN, STEPS


@dataclass(frozen=True, kw_only=True)
class Said:
    """What one gate said of a run; `place` is where its first offence is."""

    gate: str
    kind: str
    outcome: str
    code: str
    place: str
    severity: str = "required"


def judge(
    contracts: Sequence[str], run: Path, params: Mapping[str, str], only: Collection[str] = (), subject: str = "run"
) -> list[Said]:
    """Judge one run by each contract; with `only`, by these gates."""
    return [said for name in contracts for said in _judge(_loaded(name, *params.items()), run, only, subject)]


def _judge(loaded: LoadedContract, run: Path, only: Collection[str], subject: str) -> list[Said]:
    if subject not in loaded.contract.subjects:
        return []
    bound = bind(loaded.contract, loaded.path.parent, [f"{subject}={run}"])
    on = all_instances(loaded.contract, bound)
    on = {gate: names if not only or gate in only else () for gate, names in on.items()}
    found = EvaluationSession(contract=loaded.contract, bound=bound, on=on).evaluate().findings
    return [_said(one) for one in found]


@functools.cache
def _loaded(name: str, *params: tuple[str, str]) -> LoadedContract:
    known = load_contract(name, {}).contract.params
    return load_contract(name, {key: value for key, value in params if key in known})


def _said(finding: Finding) -> Said:
    verdict = finding.verdict
    place = verdict.offences[0].place if verdict.offences else ""
    return Said(
        gate=finding.gate, kind=finding.kind, outcome=verdict.outcome.value, code=verdict.code, place=str(place),
        severity=finding.severity.value,
    )  # fmt: skip


def failed(said: Sequence[Said]) -> list[Said]:
    return [one for one in said if one.outcome == Outcome.FAIL]


def first_step(contracts: Sequence[str], run: Path, params: Mapping[str, str], gate: str, onset: int) -> int | None:
    """Return the last step that a gate had to see to fail, by doubling and halving; None where it needs the end."""
    ranks = sorted(run.glob("rank-*"))
    rows = ((ranks or [run])[0] / STEPS).read_text().splitlines()
    prefix = run.with_name(f"{run.name}-prefix")

    def fails(count: int) -> bool:
        shutil.rmtree(prefix, ignore_errors=True)
        for one in ranks or [run]:
            cut(one, prefix / one.relative_to(run), count)
        return bool(failed(judge(contracts, prefix, params, {gate})))

    low, high = onset, min(onset + 1, len(rows))  # it fails not with `low` rows, and is to with `high`
    while not fails(high):
        if high == len(rows):
            return None
        low, high = high, min(onset + 2 * (high - onset), len(rows))
    while high - low > 1:
        between = (low + high) // 2
        low, high = (low, between) if fails(between) else (between, high)
    return int(json.loads(rows[high - 1])["step"])


def cut(run: Path, prefix: Path, count: int) -> None:
    """Write what a run had written after so many rows."""
    rows = (run / STEPS).read_text().splitlines()
    prefix.mkdir(parents=True)
    shutil.copy(run / RUN, prefix / RUN)
    (prefix / STEPS).write_text("".join(f"{row}\n" for row in rows[:count]))
    last = json.loads(rows[count - 1])["step"]
    events = [line for line in (run / EVENTS).read_text().splitlines() if json.loads(line)["step"] <= last]
    (prefix / EVENTS).write_text("".join(f"{line}\n" for line in events if json.loads(line)["event"] != "end"))
    for other in run.glob("*.jsonl"):
        if other.name not in (STEPS, EVENTS):
            kept = [line for line in other.read_text().splitlines() if json.loads(line).get("step", 0) <= last]
            (prefix / other.name).write_text("".join(f"{line}\n" for line in kept))
