"""A small convolutional net, trained on pictures of ten classes by a loop."""

from __future__ import annotations

from typing import Any

import torch
from benchmarks.training_faults.loop import Loop
from torch import nn

CLASSES, SIDE, PICTURES = 10, 12, 960


def pictures(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw pictures `[count, 3, SIDE, SIDE]` in 0 .. 1 and their classes: a pattern, shifted, under noise."""
    patterns = torch.rand(CLASSES, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    chance = torch.Generator().manual_seed(1000 + seed)
    labels = torch.randint(0, CLASSES, (count,), generator=chance)
    noise = torch.rand(count, 3, SIDE, SIDE, generator=chance)
    return 0.35 * patterns[labels] + 0.65 * noise, labels


class Net(nn.Sequential):
    """Two convolutions with batch norm, and a linear layer."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Dropout(0.0), nn.Linear(128, CLASSES),
        )  # fmt: skip


class Classification(Loop):
    name, batch_size = "conv", 32
    model: Net
    repeat_augmentation = False

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = Net()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        self.chance = torch.Generator().manual_seed(seed)
        self.held_out = list(pictures(128, seed + 10_000))
        self.load(list(zip(*pictures(PICTURES, seed), strict=True)))
        self.on_batch.append(self.augmented)
        self.declare_decay()
        self.declare_rate(0.05)
        self.params["tokens_per_step"] = str(self.batch_size * 3 * SIDE * SIDE)
        self.declared |= {"vocab": CLASSES, "corpus_tokens": PICTURES * 3 * SIDE * SIDE}

    @property
    def middle(self) -> nn.Module:
        return self.model[4]

    def augmented(self, batch: list[torch.Tensor]) -> list[torch.Tensor]:
        """Flip half of the pictures."""
        if self.repeat_augmentation:
            self.chance.manual_seed(0)
        flipped = torch.rand(len(batch[1]), generator=self.chance) < 0.5
        return [torch.where(flipped[:, None, None, None], batch[0].flip(-1), batch[0]), batch[1]]

    def pair(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return (batch[0] - 0.5) / 0.25, batch[1]
