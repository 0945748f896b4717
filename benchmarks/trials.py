"""CPU time of trials and of canaries beside reading and measuring, on two large checkpoints.

    python benchmarks/trials.py [GIB] [F32|BF16]

The candidate is the same bytes, the quickest of all to measure, or the same values rounded to BF16.
Nothing of what is timed is another process: seconds are this one's, of all its threads.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from weighbridge.core.model import Contract, Fields, GateDecl, SubjectDecl, SubjectKind
from weighbridge.evaluation import runner
from weighbridge.evaluation.binding import Binding
from weighbridge.judging import judging, requests

BUDGET = 0.10  # of what reading and measuring cost
GATES: dict[str, dict[str, Fields]] = {
    "F32": {
        "value-preservation": {"policy": "lossless"},
        "dtype-preservation": {"policy": "lossless"},
        "byte-identity": {},
    },
    "BF16": {
        "value-preservation": {"policy": "rounded:BF16"},
    },
}
ROLES = ("source", "candidate")
WORDS = 1 << 24  # 64 MiB a tensor


def write(folder: Path, gib: float, dtype: str) -> None:
    chance = np.random.default_rng(7)
    tensors = {f"blk.{at}.weight": chance.standard_normal(WORDS, np.float32) for at in range(int(gib * 16))}
    save_file(tensors, folder / "source.safetensors")
    if dtype == "BF16":
        tensors = {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in tensors.items()}
    save_file(tensors, folder / "candidate.safetensors")


def timed(spent: dict[str, float], name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        before = time.process_time()
        found = function(*arguments)
        found = tuple(found) if name == "trials" else found  # of a generator, or nothing would be timed
        spent[name] += time.process_time() - before
        return found

    return call


def main() -> None:
    gib, dtype = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0, sys.argv[2] if len(sys.argv) > 2 else "F32"
    spent = {"trials": 0.0, "canaries": 0.0}
    runner.lay_canary = timed(spent, "canaries", runner.lay_canary)
    vars(judging)["falsify"] = timed(spent, "trials", judging.falsify)
    kind = SubjectKind.CHECKPOINT
    gates = tuple(
        GateDecl(id=name, kind=name, title="", subjects={role: role for role in ROLES}, limits=limits)
        for name, limits in GATES[dtype].items()
    )
    subjects = dict.fromkeys(ROLES, SubjectDecl(kind=kind))
    contract = Contract(id="trials", version="0.0.0", title="", owner="", subjects=subjects, gates=gates)
    on = {gate.id: (requests.DEFAULT,) for gate in gates}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, gib, dtype)
        paths = {role: str(folder / f"{role}.safetensors") for role in ROLES}
        bound = [
            Binding(subject=one, instance=requests.DEFAULT, kind=kind, target=path, by_hand=True)
            for one, path in paths.items()
        ]
        before = time.process_time()
        found = runner.EvaluationSession(contract=contract, bound=bound, on=on).evaluate()
        whole = time.process_time() - before
    looking = whole - spent["canaries"] - spent["trials"]
    print(*(f"{one.gate} {one.verdict.outcome} {one.verdict.code}" for one in found.findings), sep=", ")
    for name in ("trials", "canaries"):
        share = spent[name] / looking
        print(f"{name}: {spent[name]:.3f} s, {share:.1%} of the {looking:.2f} s beside them (budget {BUDGET:.0%})")


if __name__ == "__main__":
    main()
