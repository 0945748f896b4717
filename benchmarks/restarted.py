"""Train a small model by two ranks of torchrun and record it into RUN; one kills itself once, in its first life.

With OWN_KEYS=1 each life has keys of its own in the store by which the ranks meet.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import distributed, nn
from torch.distributed import PrefixStore, rendezvous  # type: ignore[attr-defined]
from torch.utils.data import DataLoader, TensorDataset

from weighbridge.recorder import Recorder

STEPS, LAST, SECONDS = 80, 40, 0.03
LIFE = os.environ["TORCHELASTIC_RESTART_COUNT"]


def meet() -> None:
    if not os.environ.get("OWN_KEYS"):
        return distributed.init_process_group("gloo")
    store, rank, size = next(rendezvous("env://"))
    mine = PrefixStore(f"life-{LIFE}", store)
    return distributed.init_process_group("gloo", store=mine, rank=rank, world_size=size)


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    meet()
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Embedding(64, 32), nn.Linear(32, 64)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(TensorDataset(torch.randint(64, (4 * STEPS, 9))), batch_size=4)
    with Recorder(sys.argv[1], model, optimizer, loader=loader, requested_steps=STEPS, requested_device="cpu") as rec:
        for step, (batch,) in enumerate(rec.loader):
            loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rec.step(loss)
            time.sleep(SECONDS)
            if (step, LIFE, distributed.get_rank()) == (LAST, "0", 1):
                os.kill(os.getpid(), signal.SIGKILL)
    distributed.destroy_process_group()


main()
