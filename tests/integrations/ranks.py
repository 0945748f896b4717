"""Two ranks under each framework, recorded and not; torchrun runs it as `-m tests.integrations.ranks FOLDER`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tests.integrations import test_accelerate, test_lightning, test_transformers
from tests.ranks import leave
from tests.recorder.scenarios import digest
from torch import nn

from weighbridge.integrations.lightning import Callback as OfLightning
from weighbridge.integrations.transformers import Callback as OfTransformers

RANKS = 2


def of_transformers(folder: Path, directory: Path | None) -> Any:
    recording = [OfTransformers(directory, on_fail="raise")] if directory else []
    options: dict[str, Any] = {"gradient_accumulation_steps": 2, "max_grad_norm": 0.1, "ddp_backend": "gloo"}
    made = test_transformers.trainer(folder, *recording, max_steps=4, **options)
    made.train()
    return made.model


def of_accelerate(_: Path, directory: Path | None) -> Any:
    losses: list[float] = []
    return test_accelerate.trained(directory, losses, [], accumulated=2, clip=0.1, passes=2)


def of_lightning(folder: Path, directory: Path | None) -> Any:
    recording = [OfLightning(directory, on_fail="raise")] if directory else []
    options: dict[str, Any] = {
        "devices": RANKS,
        "strategy": "ddp",
        "accumulate_grad_batches": 2,
        "gradient_clip_val": 0.1,
    }
    return test_lightning.fitted(folder, *recording, max_epochs=2, **options).work.model


TRAININGS: dict[str, Callable[[Path, Path | None], Any]] = {
    "transformers": of_transformers, "accelerate": of_accelerate, "lightning": of_lightning
}  # fmt: skip


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    for name, train in TRAININGS.items():
        for directory in (None, folder / name):
            made: nn.Module = train(folder, directory)
            text = digest(*made.state_dict().values(), torch.get_rng_state())
            Path(f"{folder}/{name}-{'recorded' if directory else 'alone'}-{os.environ['RANK']}").write_text(text)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
