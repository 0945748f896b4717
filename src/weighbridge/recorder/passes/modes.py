"""Modules that a training step runs as if it evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import Channel


class Modes(Channel):
    """How many modules have `training` off in a forward pass with gradients; the most of the step's passes.

    What has parameters and trains none of them may evaluate for good, with all that it holds.
    """

    columns = ("evaluating_modules",)
    every_step = True

    _modules: tuple[torch.nn.Module, ...] = ()
    _known: tuple[list[torch.nn.Parameter], list[bool]] | None = None

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Count them."""
        parameters = self.watched.parameters()
        known = parameters, [one.requires_grad for one in parameters]
        if self._known is None or self._known[0] is not parameters or self._known[1] != known[1]:
            self._known = known
            self._modules = tuple(_trained(self.watched.model, {self.watched.model}))
        evaluating = sum([not module.training for module in self._modules])
        self.found["evaluating_modules"] = max(self.found.get("evaluating_modules", 0), evaluating)


def _trained(module: torch.nn.Module, seen: set[torch.nn.Module]) -> Iterator[torch.nn.Module]:
    parameters = list(module.parameters())
    if parameters and not any(parameter.requires_grad for parameter in parameters):
        return
    own = list(module.parameters(recurse=False))
    if not own or any(parameter.requires_grad for parameter in own):
        yield module
    for child in module.children():
        if child not in seen:
            seen.add(child)
            yield from _trained(child, seen)
