"""Two ranks on the CPU: clean, again, another seed, one fault each; run as `-m tests.recorder.replicas FOLDER`."""

from __future__ import annotations

import contextlib
import sys

import torch
from tests.ranks import leave
from tests.recorder.training import SHAPE, VOCAB
from torch import nn

from weighbridge.recorder import Recorder

STEPS, ONSET, RANKS = 16, 9, 2
CASES = (
    *("clean", "again", "other-seed", "bypassed", "no-sync", "clip-on-one", "same-shard", "flipped-bit", "shared-loss"),
)


def batches(seed: int, rank: int) -> list[torch.Tensor]:
    drawn = torch.Generator().manual_seed(1000 * seed + rank)
    return [torch.randint(0, VOCAB, (4, 9), generator=drawn) for _ in range(STEPS)]


def loss_of(model: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())


def train_all(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=RANKS)
    for case in CASES:
        train(rank, folder, case, int(case == "other-seed"))
    leave()


def train(rank: int, folder: str, fault: str, seed: int) -> None:
    torch.manual_seed(seed)
    inner = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB))
    optimizer = torch.optim.AdamW(inner.parameters(), lr=1e-2)
    model = nn.parallel.DistributedDataParallel(inner)
    loader = batches(seed, 0 if fault == "same-shard" else rank)
    shape = SHAPE | {"corpus_tokens": STEPS * 32}
    with Recorder(
        f"{folder}/{fault}", model, optimizer, loader=loader, requested_steps=STEPS, on_fail="raise", **shape
    ) as recorder:
        for step, rows in enumerate(recorder.loader):
            late = step >= ONSET
            if fault == "flipped-bit" and rank == 1 and step == ONSET:
                next(inner.parameters()).detach().view(torch.int32).view(-1)[3] ^= 1
            optimizer.zero_grad()
            with model.no_sync() if fault == "no-sync" and late else contextlib.nullcontext():
                loss = loss_of(inner if fault == "bypassed" and late else model, rows)
                loss.backward()  # type: ignore[no-untyped-call]
            if fault == "clip-on-one" and rank == 0:
                nn.utils.clip_grad_norm_(inner.parameters(), 0.1)
            optimizer.step()
            shown = loss.detach().clone()
            if fault == "shared-loss":
                torch.distributed.all_reduce(shown)
            recorder.step(shown)


if __name__ == "__main__":
    torch.multiprocessing.spawn(train_all, (sys.argv[1],), nprocs=RANKS)  # type: ignore[attr-defined,no-untyped-call]
