"""What recording costs: CPU time of a training step with the recorder, as a ratio to the same step without it.

Run as `python benchmarks/recorder.py [--steps N] [--small]`. All loops train the same GPT of about 3M parameters (100k
with `--small`) in turns, a step each, in one process; the ratio is the median over pairs of steps. Plain against plain
is the control. The budget is 1.01 at the default cadence (1.04 with `--small`), and 1.25 with every channel in every
step. A channel is counted by itself, in every step, beside those that look at every step anyhow.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from weighbridge.recorder import Recorder, columns
from weighbridge.recorder.channels import Channel

VOCAB, CONTEXT, BATCH, WIDTH, LAYERS, HEADS = 512, 128, 4, 256, 4, 4
SMALL = {"VOCAB": 64, "CONTEXT": 64, "BATCH": 8, "WIDTH": 64, "LAYERS": 2}
WARM = 12  # steps, the early ones among them
ALL = columns.CHANNELS


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

    def __init__(
        self, directory: Path | None, channels: str = "default", looking: tuple[type[Channel], ...] = ALL
    ) -> None:
        torch.manual_seed(0)
        layers = [nn.Embedding(VOCAB, WIDTH), *(Block() for _ in range(LAYERS)), nn.Linear(WIDTH, VOCAB)]
        self.model = nn.Sequential(*layers)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.rows = torch.randint(0, VOCAB, (64, CONTEXT + 1))
        self.recorder: Recorder | None = None
        self.batches: Iterator[torch.Tensor] = self.cycle()
        if directory is not None:
            columns.CHANNELS = looking
            options: dict[str, Any] = {
                "probe_every": 1_000_000,
                "seq_len": CONTEXT,
                "channels": channels,
                "on_fail": "raise",
            }
            self.recorder = Recorder(directory, self.model, self.optimizer, loader=self, **options).__enter__()
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

    def timed(self) -> float:
        started = time.process_time()
        self.step()
        return time.process_time() - started


def ratios(loops: dict[str, Loop], steps: int) -> dict[str, tuple[float, float]]:
    """Let each take a step in turns; return the median of each step to the first's of the same turn, and of all steps.

    The median leaves out what is looked at in two steps of ten; all steps hold it, and the noise of the host.
    """
    for loop in loops.values():
        for _ in range(WARM):
            loop.step()
    turns = [{name: loop.timed() for name, loop in loops.items()} for _ in range(steps)]
    spent = {name: [turn[name] for turn in turns] for name in loops}
    pairs = {name: zip(steps_of, spent["plain"], strict=True) for name, steps_of in spent.items()}
    medians = {name: statistics.median(one / plain for one, plain in pair) for name, pair in pairs.items()}
    return {name: (medians[name], sum(spent[name]) / sum(spent["plain"])) for name in loops}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    if given.small:
        globals().update(SMALL)
    torch.set_num_threads(1)
    every_step = tuple(channel for channel in ALL if channel.every_step)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        loops = {"plain": Loop(None), "plain (control)": Loop(None), "recorded": Loop(root / "a")}
        loops["recorded, channels=all"] = Loop(root / "b", "all")
        loops["  what every step has"] = Loop(root / "c", "all", every_step)
        for channel in ALL:
            if not channel.every_step:
                loops[f"  and {channel.__name__}"] = Loop(root / channel.__name__, "all", (*every_step, channel))
        size = sum(parameter.numel() for parameter in loops["plain"].model.parameters())
        print(f"GPT of {size / 1e6:.2f}M parameters, {BATCH} × {CONTEXT} tokens a step, {given.steps} turns")
        for name, (median, whole) in ratios(loops, given.steps).items():
            print(f"{name:30} {median:.3f} {whole:.3f}")


if __name__ == "__main__":
    main()
