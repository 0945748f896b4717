"""A tiny GPT on two ranks, by DistributedDataParallel over gloo; both ranks are spawned once for all runs."""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from benchmarks.training_faults.gpt import Pretraining
from benchmarks.training_faults.judged import failed, first_step, judge
from benchmarks.training_faults.programs import Answer, Case, look

Patch = Callable[[Any], None]
STEPS, LATE = 60, 10


class Ranks(Pretraining):
    """The same program on each rank, with a shard of its own; `model` stays the raw one, `wrapped` is called."""

    name = "ranks"
    wrapped: Any

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.rank = torch.distributed.get_rank()
        self.steps = STEPS
        self.declared["requested_steps"] = STEPS
        self.declared["corpus_tokens"] //= 2
        self.params["requested_steps"] = str(STEPS)
        self.rows = self.data
        self.shard(self.rank)

    def shard(self, number: int) -> None:
        self.load(self.rows[number::2])

    def micro(self) -> torch.Tensor:
        inputs, targets = self.pair(next(self.batches))
        loss = self.loss(self.wrapped(inputs), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def train(self, directory: Path, channels: str) -> None:
        self.wrapped = getattr(self, "wrapped", None) or torch.nn.parallel.DistributedDataParallel(self.model)
        super().train(directory, channels)


def clean(_: Ranks) -> None: ...


def ddp_bypassed(p: Ranks) -> None:
    p.wrapped = p.model


def one_rank_clips(p: Ranks) -> None:
    p.clip = 0.1 if p.rank == 0 else None


def no_sync_left_on(p: Ranks) -> None:
    p.before_forward.append(
        p.at_step(LATE, lambda: setattr(p.wrapped, "require_backward_grad_sync", False))  # as in no_sync()
    )


def same_shard(p: Ranks) -> None:
    p.shard(0)


def bit_flipped_on_one_rank(p: Ranks) -> None:
    def flip() -> None:
        if p.rank == 1:
            weight: torch.Tensor = p.middle.weight.data  # type: ignore[assignment]
            weight.view(torch.int32).view(-1)[5] ^= 1 << 18

    p.between.append(p.at_step(LATE - 1, flip))


def another_rate_on_one_rank(p: Ranks) -> None:
    if p.rank == 1:
        p.rate(2.0)


def one_rank_does_not_clear(p: Ranks) -> None:
    if p.rank == 1:
        p.clear = lambda: None  # type: ignore[method-assign]


def with_clipping(p: Ranks) -> None:
    p.clip = 0.5


FAULTS: dict[Patch, int] = {
    ddp_bypassed: 0, one_rank_clips: 0, no_sync_left_on: LATE, same_shard: 0, bit_flipped_on_one_rank: LATE,
    another_rate_on_one_rank: 0, one_rank_does_not_clear: 0,
}  # fmt: skip
HARMLESS: tuple[Patch, ...] = (clean, with_clipping)


def work(rank: int, cases: Sequence[Case], folder: str, channels: str) -> None:
    """Train every case on this rank."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    patches = {patch.__name__: patch for patch in (*FAULTS, *HARMLESS)}
    for number, case in enumerate(cases):
        program = Ranks(case.seed)
        patches[case.name](program)
        program.train(Path(folder) / str(number), channels)
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def cases(seeds: Sequence[int], clean_seeds: Sequence[int]) -> list[Case]:
    wrong = [
        Case(program="ranks", name=patch.__name__, group="ranks", seed=seed, onset=onset)
        for patch, onset in FAULTS.items()
        for seed in seeds
    ]
    right = [
        Case(program="ranks", name=patch.__name__, group="harmless", seed=seed)
        for patch in HARMLESS
        for seed in clean_seeds
    ]
    return wrong + right


def answers(given: argparse.Namespace, progress: Callable[[Answer], None]) -> list[Answer]:
    """Train all cases, and judge each rank by itself and, by the contracts that are for that, the ranks together."""
    listed = cases([] if given.no_faults else given.seeds, given.clean_seeds)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (listed, folder, given.channels), nprocs=2)  # type: ignore[attr-defined,no-untyped-call]
        for number, case in enumerate(listed):
            started, answer, run = time.process_time(), Answer(case=case), Path(folder) / str(number)
            for rank in (0, 1):
                said, steps = answer.said, answer.steps
                look(answer, run / f"rank-{rank}", given.contract, {})
                answer.said, answer.steps = said + answer.said, answer.steps | steps
            whole = judge(given.of_ranks, run, {})
            for one in failed(whole) if case.onset is not None else ():
                step = first_step(given.of_ranks, run, {}, one.gate, case.onset or 0)
                answer.steps[one.gate] = None if step is None else step - (case.onset or 0)
            answer.said += whole
            answer.seconds = round(time.process_time() - started, 2)
            found.append(answer)
            progress(answer)
            if given.keep is not None:
                shutil.copytree(run, given.keep / f"ranks-{case.name}-{case.seed}", dirs_exist_ok=True)
    return found
