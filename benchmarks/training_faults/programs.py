"""Train one run of a program, patched or not, and say what the gates say of it."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_faults import faults_of_data, faults_of_models, faults_of_steps
from benchmarks.training_faults.conv import Classification
from benchmarks.training_faults.fault import FAULTS, Patch
from benchmarks.training_faults.fine_tune import FineTune
from benchmarks.training_faults.gpt import Pretraining
from benchmarks.training_faults.harmless import VARIANTS
from benchmarks.training_faults.judged import Said, failed, first_step, judge

from weighbridge.recorder.run_directory import STEPS

PROGRAMS: dict[str, type[Any]] = {one.name: one for one in (Pretraining, Classification, FineTune)}
REGISTERED = (faults_of_data, faults_of_models, faults_of_steps)  # importing them registers their faults


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run to be made: a fault, or a harmless variant where `onset` is None."""

    program: str
    name: str
    group: str
    seed: int
    onset: int | None = None


@dataclass(kw_only=True)
class Answer:
    """What came of one run: `steps` gives for each gate that failed how many steps after the onset it did."""

    case: Case
    said: list[Said] = field(default_factory=list)
    steps: dict[str, int | None] = field(default_factory=dict)
    crashed: str = ""
    rows: int = 0
    seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None

    @property
    def failed(self) -> list[Said]:
        return failed(self.said)

    def as_json(self) -> dict[str, Any]:
        found = dataclasses.asdict(self)
        return found | {"said": [one for one in found["said"] if one["outcome"] not in ("PASS", "NOT_APPLICABLE")]}


def fault_cases(programs: Sequence[str], seeds: Sequence[int], only: Sequence[str] = ()) -> list[Case]:
    faults = [one for one in FAULTS.values() if not only or one.name in only]
    return [
        Case(program=program, name=one.name, group=one.group, seed=seed, onset=one.onset)
        for program in programs
        for one in faults
        if program in one.programs
        for seed in seeds
    ]


def harmless_cases(programs: Sequence[str], seeds: Sequence[int], only: Sequence[str] = ()) -> list[Case]:
    return [
        Case(program=program, name=patch.__name__, group="harmless", seed=seed)
        for program in programs
        for patch in VARIANTS[program]
        if not only or patch.__name__ in only
        for seed in seeds
    ]


def patch_of(case: Case) -> Patch:
    if case.onset is not None:
        return FAULTS[case.name].patch
    return next(patch for patch in VARIANTS[case.program] if patch.__name__ == case.name)


def answered(case: Case, contracts: Sequence[str], channels: str, keep: Path | None = None) -> Answer:
    """Train, record and judge one case."""
    torch.set_num_threads(1)
    started, answer = time.process_time(), Answer(case=case)
    folder = Path(tempfile.mkdtemp(prefix="training-fault-"))
    run = folder / "run"
    params: Mapping[str, str] = {}
    try:
        program = PROGRAMS[case.program](case.seed)
        patch_of(case)(program)
        params = program.params
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch and Transformers, about what the fault does
            program.train(run, channels)
    except Exception as problem:  # noqa: BLE001 -- a program that its fault ends is an answer, too
        answer.crashed = f"{type(problem).__name__}: {problem}"[:200]
    look(answer, run, contracts, params)
    if keep is not None:
        shutil.copytree(run, keep / f"{case.program}-{case.name}-{case.seed}", dirs_exist_ok=True)
    shutil.rmtree(folder)
    answer.seconds = round(time.process_time() - started, 2)
    return answer


def look(answer: Answer, run: Path, contracts: Sequence[str], params: Mapping[str, str]) -> None:
    """Judge a recorded run, and find from when each gate failed."""
    rows = [json.loads(line) for line in (run / STEPS).read_text().splitlines()]
    answer.rows = len(rows)
    if rows:
        answer.first_loss, answer.last_loss = rows[0].get("loss"), rows[-1].get("loss")
    answer.said = judge(contracts, run, params)
    if answer.case.onset is not None:
        for one in answer.failed:
            step = first_step(contracts, run, params, one.gate, answer.case.onset)
            answer.steps[one.gate] = None if step is None else step - answer.case.onset
