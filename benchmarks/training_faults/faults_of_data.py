"""Faults of data: what is learnt from is not what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from benchmarks.training_faults.fault import fault
from benchmarks.training_faults.fine_tune import IGNORED, PAD, fresh
from benchmarks.training_faults.language import VOCAB

LATE = 40


def each(batch: Any, change: Any) -> Any:
    """Change every tensor of a batch."""
    if isinstance(batch, dict):
        return {name: change(one) for name, one in batch.items()}
    return [change(one) for one in batch] if isinstance(batch, list) else change(batch)


@fault("data", "gpt")
def labels_not_shifted(p: Any) -> None:
    p.pair = lambda rows: (rows[:, :-1], rows[:, :-1])


@fault("data", "gpt fine-tune")
def labels_shifted_by_two(p: Any) -> None:
    if p.name == "gpt":
        p.pair = lambda rows: (rows[:, :-2], rows[:, 2:])
    else:  # the Trainer's model shifts, and the author did, too
        p.on_batch.append(lambda batch: batch | {"labels": batch["labels"].roll(-1, 1)})


@fault("data", "gpt conv fine-tune")
def labels_shuffled(p: Any) -> None:
    def shuffled(labels: torch.Tensor) -> torch.Tensor:
        return labels.flatten()[torch.randperm(labels.numel())].view(labels.shape)

    if p.name == "fine-tune":
        p.on_batch.append(lambda batch: batch | {"labels": shuffled(batch["labels"])})
    else:
        plain = p.pair
        p.pair = lambda batch: (plain(batch)[0], shuffled(plain(batch)[1]))


@fault("data", "gpt fine-tune")
def text_shuffled(p: Any) -> None:
    def jumbled(row: torch.Tensor) -> torch.Tensor:
        return row[torch.randperm(len(row))]

    if p.name == "gpt":
        p.load(torch.stack([jumbled(row) for row in p.data]))
    else:
        p.data = [one | {"input_ids": (ids := jumbled(one["input_ids"])), "labels": ids} for one in p.data]


@fault("data", "gpt", LATE)
def constant_tokens(p: Any) -> None:
    p.on_batch.append(lambda rows: torch.full_like(rows, 7) if p.step >= LATE else rows)


@fault("data", "gpt fine-tune")
def unknown_tokens(p: Any) -> None:
    def lost(ids: torch.Tensor) -> torch.Tensor:
        return torch.where(torch.rand(ids.shape) < 0.6, torch.ones_like(ids), ids)

    def change(batch: Any) -> Any:
        if p.name == "gpt":
            return lost(batch)
        ids = lost(batch["input_ids"])
        return batch | {"input_ids": ids, "labels": torch.where(batch["labels"] == IGNORED, IGNORED, ids)}

    p.on_batch.append(change)


@fault("data", "gpt conv fine-tune")
def same_batch(p: Any) -> None:
    first: list[Any] = []

    def kept(batch: Any) -> Any:
        first[:] = first or [batch]
        return first[0]

    p.on_batch.append(kept)


@fault("data", "gpt")
def order_repeated(p: Any) -> None:
    class Again(torch.utils.data.RandomSampler):
        def __iter__(self) -> Iterator[int]:
            self.generator = torch.Generator().manual_seed(p.seed)
            return super().__iter__()

    p.load(p.data, sampler=Again(p.data))


@fault("data", "gpt conv")
def wrap_unlogged(p: Any) -> None:
    class Endless:
        def __init__(self, loader: Any) -> None:
            self.loader = loader

        def __iter__(self) -> Iterator[Any]:
            while True:
                yield from self.loader

    p.loader = Endless(p.loader)


@fault("data", "gpt conv fine-tune")
def duplicated_worker_rows(p: Any) -> None:
    p.on_batch.append(lambda batch: each(batch, lambda one: one[: len(one) // 2].repeat(2, *[1] * (one.dim() - 1))))


@fault("data", "gpt fine-tune")
def nearly_all_masked(p: Any) -> None:
    def masked(labels: torch.Tensor) -> torch.Tensor:
        kept = torch.rand(labels.shape) < 0.05
        kept[:, -1] = True
        return torch.where(kept, labels, IGNORED)

    if p.name == "fine-tune":
        p.on_batch.append(lambda batch: batch | {"labels": masked(batch["labels"])})
    else:
        p.pair = lambda rows: (rows[:, :-1], masked(rows[:, 1:]))


@fault("data", "fine-tune")
def all_masked(p: Any) -> None:
    p.on_batch.append(lambda batch: batch | {"labels": torch.full_like(batch["labels"], IGNORED)})


@fault("data", "gpt conv fine-tune")
def leaking_validation(p: Any) -> None:
    p.evaluate_every = 20
    if p.name == "conv":
        p.held_out = [torch.stack(list(part)) for part in zip(*p.data[:128], strict=True)]
    else:
        p.held_out = p.data[:32]


@fault("data", "conv")
def labels_of_the_next_picture(p: Any) -> None:
    p.on_batch.append(lambda batch: [batch[0], batch[1].roll(1)])


@fault("data", "conv")
def one_class(p: Any) -> None:
    p.on_batch.append(lambda batch: [batch[0], torch.zeros_like(batch[1])])


@fault("data", "conv", LATE)
def pictures_blank(p: Any) -> None:
    p.on_batch.append(lambda batch: [batch[0] * 0, batch[1]] if p.step >= LATE else batch)


@fault("data", "conv")
def not_normalised(p: Any) -> None:
    p.pair = lambda batch: (batch[0] * 255, batch[1])


@fault("data", "conv")
def sorted_by_class(p: Any) -> None:
    p.load(sorted(p.data, key=lambda item: int(item[1])), shuffle=False)


@fault("data", "conv")
def augmentation_repeated(p: Any) -> None:
    p.repeat_augmentation = True


@fault("data", "fine-tune")
def padding_in_the_loss(p: Any) -> None:
    p.pad_label = PAD


@fault("data", "fine-tune")
def padding_attended_to(p: Any) -> None:
    p.side, p.mask_padding = "left", False


@fault("data", "fine-tune")
def wrong_tokenizer(p: Any) -> None:
    def other(ids: torch.Tensor) -> torch.Tensor:
        return torch.where(ids > 0, (ids * 5) % (VOCAB - 1) + 1, ids)

    p.data = [one | {"input_ids": other(one["input_ids"]), "labels": other(one["labels"])} for one in p.data]


@fault("data", "fine-tune")
def pretrained_weights_not_loaded(p: Any) -> None:
    p.model.load_state_dict(fresh().state_dict())
