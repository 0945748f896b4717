"""Two ranks on the CPU, clean or with one fault; run as `-m tests.recorder.replicas FOLDER FAULT [SEED]`."""

from __future__ import annotations

import contextlib
import sys

import torch
from tests.recorder.training import SHAPE, VOCAB
from torch import nn

from weighbridge.recorder import Recorder

STEPS, ONSET, RANKS = 24, 9, 2


def batch(seed: int, step: int, rank: int) -> torch.Tensor:
    return torch.randint(0, VOCAB, (4, 9), generator=torch.Generator().manual_seed(1000 * seed + RANKS * step + rank))


def damaged(fault: str, rank: int, step: int, model: nn.Module) -> None:
    """Do to one rank, between two steps, what a fault does."""
    if fault == "flipped-bit" and rank == 1 and step == ONSET:
        words = next(model.parameters()).detach().view(torch.int32)
        words.view(-1)[3] ^= 1


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train(rank: int, folder: str, fault: str, seed: int) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    torch.manual_seed(seed)
    inner = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB))
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-2)
    model = nn.parallel.DistributedDataParallel(inner)
    options = {"requested_steps": STEPS, "on_fail": "raise", "channels": "all", **SHAPE}
    with Recorder(f"{folder}/run", inner, optimizer, **options) as recorder:
        for step in range(STEPS):
            rows = batch(seed, step, 0 if fault == "same-shard" else rank)
            damaged(fault, rank, step, inner)
            late = step >= ONSET
            alone = model.no_sync() if fault == "no-sync" and late else contextlib.nullcontext()
            optimizer.zero_grad()
            with alone:
                loss = loss_of(inner if fault == "bypassed" and late else model, rows)
                loss.backward()  # type: ignore[no-untyped-call]
            if fault == "clip-on-one" and rank == 0:
                nn.utils.clip_grad_norm_(inner.parameters(), 0.1)
            optimizer.step()
            if fault == "shared-loss":
                torch.distributed.all_reduce(loss.detach())
            recorder.step(loss)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    given = (sys.argv[1], sys.argv[2], int((*sys.argv[3:], "0")[0]))
    torch.multiprocessing.spawn(train, given, nprocs=RANKS)  # type: ignore[attr-defined,no-untyped-call]
