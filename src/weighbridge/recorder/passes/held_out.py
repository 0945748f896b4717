"""Rows that are evaluated although the model learnt from them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.passes.batches import ROW, Array, parts_of

PASSES, ROWS, ELEMENTS = 16, 64, 4096  # of a step, of each, and of each row: looked at
REMEMBERED = 1 << 18  # rows


class HeldOut(Channel):
    """The share of the rows of an evaluation that went into a training pass of an earlier step, bit for bit.

    Of tokens, what `attention_mask` leaves in is a row: it may be padded otherwise. Training rows are remembered of
    steps in which all channels look.
    """

    columns = ("evaluation_rows_trained",)
    every_step = True

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._known: dict[int, None] = {}
        self._evaluated: list[list[torch.Tensor]] = []
        self._trained: list[list[torch.Tensor]] = []

    def evaluation_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep rows of an evaluation; in training mode it may be any pass."""
        if not self.watched.model.training:
            _keep(self._evaluated, args, kwargs)

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Keep rows that are learnt from."""
        if self.watched.early:
            _keep(self._trained, args, kwargs)

    def row(self) -> Mapping[str, Cell]:
        """Return the share; a row that is trained on in this very step is in no evaluation that holds anything out."""
        if not (self._evaluated or self._trained):
            return {}
        trained = dict.fromkeys(_rows(self._trained))
        evaluated = set(_rows(self._evaluated)) - trained.keys()
        share = len(evaluated & self._known.keys()) / len(evaluated) if evaluated and self._known else None
        self._known |= trained
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return {"evaluation_rows_trained": share}


def _keep(kept: list[list[torch.Tensor]], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    parts = parts_of([*args, kwargs]) if len(kept) < PASSES else None
    if parts is not None and parts.inputs.dim() > 1:
        rows = (one[:ROWS].flatten(1) for one in parts[:2] if one is not None)  # inputs, and their mask
        cut = (one[:, :: -(-one.shape[1] // ELEMENTS) | 1] for one in rows)
        kept.append([one.clone(memory_format=torch.contiguous_format) for one in cut])


def _rows(kept: list[list[torch.Tensor]]) -> Iterator[int]:
    while kept:
        rows, *mask = (one.cpu() for one in kept.pop())
        read, size = rows.view(torch.uint8).numpy(), rows.element_size()
        cut: Iterable[Array] = read
        if mask:
            cut = map(operator.getitem, read, np.repeat((mask[0] != 0).numpy(), size, axis=1))
        yield from (hash(one.tobytes()) for one in cut if len(one) >= ROW * size)
