"""Logs as other people's tools write them, and what a contract comes to on one."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from weighbridge.contract.load import load_contract
from weighbridge.core.model import Finding
from weighbridge.evaluation.binding import all_instances, bind
from weighbridge.evaluation.runner import EvaluationSession


def trainer_state(path: Path, *, every: int = 1, evaluate: int = 0, reached: int = 120, asked: int = 120) -> Path:
    """Write what the Trainer of Transformers writes: keys in order of the alphabet, summary and evaluation as rows."""
    history: list[dict[str, Any]] = []
    chance = random.Random(7)
    for step in range(1, reached + 1):
        stamp = {"epoch": step / asked, "step": step}
        if step % every == 0:
            norm, rate = 4 * (1 - step / 2 / asked) * chance.lognormvariate(0, 0.1), 0.001 * (1 - step / 2 / asked)
            loss = norm**2 / 4 + chance.gauss(0, 0.02)
            history.append({"grad_norm": norm, "learning_rate": rate, "loss": loss, **stamp})
        if evaluate and step % evaluate == 0:
            history.append(
                {"eval_loss": 4 - 3 * step / asked, "eval_runtime": 0.2 * chance.lognormvariate(0, 0.1), **stamp}
            )
    if reached >= asked:
        history.append({"step": reached, "total_flos": 0.0, "train_loss": 2.4, "train_runtime": 1.5})
    state = {"global_step": reached, "max_steps": asked, "log_history": history, "epoch": reached / asked}
    path.write_text(json.dumps(state, indent=2, sort_keys=True))
    return path


def weighed(run: Path, folder: Path, **gate: Any) -> Finding:
    """Return the finding of one gate on a run, of step-metrics unless it names another kind."""
    columns = gate.pop("columns", None)
    subject = {"kind": "run", **({"columns": columns} if columns else {})}
    one = {"id": "G-1", "title": "t", "kind": "step-metrics", "subjects": {"run": "run"}, **gate}
    contract = {"weighbridge": "contract/v0", "id": "c", "version": "1.0.0", "title": "t", "owner": "o"}
    path = folder / "c.yaml"
    path.write_text(json.dumps({**contract, "subjects": {"run": subject}, "gates": [one]}))
    loaded = load_contract(str(path)).contract
    bound = bind(loaded, folder, [f"run={run}"])
    session = EvaluationSession(contract=loaded, bound=bound, on=all_instances(loaded, bound))
    (finding,) = session.evaluate().findings
    return finding
