"""Norms by tensor, for `layers.jsonl`: the gradient as it arrived and as it was used, the weight and its update."""

from __future__ import annotations

from typing import Any

import torch

from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import here, norms

MOST_COPIED = 2**26  # bytes of weights: more are not held twice


class Layers(Channel):
    """A row for each tensor that is trained, at the default cadence even where all else is looked at in every step."""

    columns = ("layers",)

    def __init__(self, watched: Watched, every: int) -> None:
        super().__init__(watched)
        self.period = every
        self._norms: dict[str, tuple[list[int], torch.Tensor]] = {}
        self._copies: tuple[list[int], list[torch.Tensor]] | None = None
        self._rows: list[dict[str, Any]] = []

    def backward_ended(self) -> None:
        """Measure the gradients as they arrived."""
        self._take("grad", graded=True)

    def update_begins(self) -> None:
        """Copy the weights of a small model."""
        weights = self.watched.trained()
        if sum(one.numel() * one.element_size() for one in weights) <= MOST_COPIED:
            self._copies = [id(one) for one in weights], [one.clone() for one in here(weights)]

    def update_ended(self) -> None:
        """Measure the gradients as they were used, the weights, and by how much they moved."""
        self._take("grad_used", graded=True)
        self._take("weight", graded=False)
        ids, copies = self._copies or ([], [])
        if ids and ids == self._norms["weight"][0]:
            torch._foreach_sub_(copies, here(self.watched.trained()))
            self._norms["update"] = ids, norms(copies)
        self._copies = None
        if (scale := self.watched.scale) is not None and (arrived := self._norms.get("grad")) is not None:
            self._norms["grad"] = arrived[0], arrived[1] / scale.to(arrived[1].device)

    def row(self) -> dict[str, Cell]:
        """Bring all to the host at once; of a step without an update there is no row."""
        found, self._norms, self._copies = self._norms, {}, None
        if "weight" not in found:
            return {}
        together = iter(torch.cat([one.float() for _, one in found.values()]).tolist())
        by_tensor: dict[int, dict[str, float]] = {}
        for name, (ids, _) in found.items():
            for one in ids:
                by_tensor.setdefault(one, {})[name] = next(together)
        names = ((name, by_tensor.get(id(one))) for name, one in self.watched.model.named_parameters())
        self._rows = [{"step": self.watched.step, "name": name, **given} for name, given in names if given]
        return {}

    def taken(self) -> list[dict[str, Any]]:
        """Return the rows since the last time."""
        found, self._rows = self._rows, []
        return found

    def _take(self, name: str, *, graded: bool) -> None:
        owners = [one for one in self.watched.trained() if not graded or one.grad is not None]
        tensors = [one.grad if graded else one for one in owners]
        if owners:
            self._norms[name] = [id(one) for one in owners], norms(here(one for one in tensors if one is not None))
