"""Two ranks, spawned as torch does it, with no environment; run as `-m tests.recorder.spawned FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from tests.ranks import leave
from tests.recorder.scenarios import digest
from tests.recorder.training import SHAPE, Training, training

from weighbridge.recorder import Recorder

STEPS = 2


def steps(work: Training, model: torch.nn.Module, rank: int, rec: Recorder | None) -> None:
    for batch in list(work.loader)[rank : 2 * STEPS : 2]:
        loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        work.optimizer.step()
        if rec:
            rec.step(loss)
        work.optimizer.zero_grad()


def train(rank: int, folder: str) -> None:
    """Train without a recorder, with one made before the ranks meet, and with one made after."""
    torch.set_num_threads(1)
    early_work = training()
    early = Recorder(f"{folder}/early", early_work.model, early_work.optimizer, on_fail="raise", **SHAPE)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    for name in ("alone", "early", "late"):
        work = training()
        if name == "early":
            early_work.model.load_state_dict(work.model.state_dict())
            work.model, work.optimizer = early_work.model, early_work.optimizer
        model = torch.nn.parallel.DistributedDataParallel(work.model)
        if name == "alone":
            steps(work, model, rank, None)
        else:
            late = Recorder(f"{folder}/late", model, work.optimizer, on_fail="raise", **SHAPE)
            with early if name == "early" else late as rec:
                steps(work, model, rank, rec)
        Path(f"{folder}/{name}-{rank}").write_text(digest(*work.weights(), torch.get_rng_state()))
    leave()


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (sys.argv[1],), nprocs=2)  # type: ignore[attr-defined,no-untyped-call]
