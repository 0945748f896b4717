"""What recording costs: CPU time of a training step with the recorder, as a ratio to the same step without it.

Run as `python benchmarks/recorder.py [--rounds N]`. Both train the same GPT of about 3M parameters in turns, in one
process; the ratio is the median over paired rounds, with their spread. Plain against plain is the control. The
budget is 1.01 at the default cadence. A probed step is counted by itself, for it comes once in `probe_every` steps.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import nn

from weighbridge.recorder import Recorder

VOCAB, CONTEXT, BATCH, WIDTH, LAYERS, HEADS = 512, 128, 4, 256, 4, 4
STEPS = 8  # a round


class Block(nn.Module):
    """One transformer block, causal."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        heads = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape))
        mixed: torch.Tensor = x + self.mlp(self.norms[1](x))
        return mixed


class Loop:
    """One training loop, recorded or plain."""

    def __init__(self, directory: Path | None, probe_every: int = 1_000_000) -> None:
        torch.manual_seed(0)
        layers = [nn.Embedding(VOCAB, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, VOCAB)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.rows = torch.randint(0, VOCAB, (64, CONTEXT + 1))
        self.recorder: Recorder | None = None
        self.batches: Iterator[torch.Tensor] = self.cycle()
        if directory is not None:
            self.recorder = Recorder(
                directory, self.model, self.optimizer, loader=self, probe_every=probe_every, seq_len=CONTEXT
            ).__enter__()
            self.batches = self.recorder.cycle()

    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.split(self.rows, BATCH))

    def cycle(self) -> Iterator[torch.Tensor]:
        while True:
            yield from self

    def step(self) -> None:
        batch = next(self.batches)
        loss = nn.functional.cross_entropy(self.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.recorder is not None:
            self.recorder.step(loss)
        else:
            loss.item()

    def round(self) -> float:
        started = time.process_time()
        for _ in range(STEPS):
            self.step()
        return time.process_time() - started


def ratios(plain: Loop, other: Loop, rounds: int) -> list[float]:
    """Time both in turns, each first in every other round; `[rounds]`."""
    found = []
    for number in range(rounds + 1):
        order = (plain, other) if number % 2 else (other, plain)
        spent = {loop: loop.round() for loop in order}
        found.append(spent[other] / spent[plain])
    return found[1:]  # the first warms up


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds: int = parser.parse_args().rounds
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plain = Loop(None)
        size = sum(parameter.numel() for parameter in plain.model.parameters())
        print(
            f"GPT of {size / 1e6:.2f}M parameters, {BATCH} × {CONTEXT} tokens a step, {rounds} rounds of {STEPS} steps"
        )
        others: dict[str, Callable[[], Loop]] = {
            "plain (control)": lambda: Loop(None),
            "recorded": lambda: Loop(Path(folder) / "a"),
            "recorded, every step probed": lambda: Loop(Path(folder) / "b", probe_every=1),
        }
        for name, make in others.items():
            found = sorted(ratios(plain, make(), rounds))
            print(f"{name:30} median {statistics.median(found):.3f}, from {found[0]:.3f} to {found[-1]:.3f}")


if __name__ == "__main__":
    main()
