"""What the weights are: how large, how precise, and at first whether they were drawn apart."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import SELDOM, Cell, Channel
from weighbridge.recorder.learning.bit_sums import bit_sums
from weighbridge.recorder.learning.tensor_norms import every_so_many, here, norms

SAMPLE = 4096  # elements of a tensor
MANY = 64  # elements: two tensors of fewer may be equal by chance


class Weights(Channel):
    """The 2-norm of all weights, and the share of matrices in float32 whose values bfloat16 would hold as well."""

    columns = ("weight_norm", "bf16_share")
    period = SELDOM

    def row(self) -> Mapping[str, Cell]:
        """Look at them after the step; 0 has every precision, and does not count."""
        weights = here(one for one in self.watched.parameters() if one.is_floating_point() or one.is_complex())
        found: dict[str, Cell] = {"weight_norm": norms(weights).norm()} if weights else {}
        matrices = [one for one in here(self.watched.trained()) if one.dim() == 2 and one.dtype == torch.float32]
        if matrices:
            sampled = [every_so_many(one, SAMPLE).view(torch.int32) for one in matrices]
            words = torch.cat([one.to(sampled[0].device) for one in sampled])
            counted = (words & 0x7FFFFFFF) != 0
            found["bf16_share"] = (counted & ((words & 0xFFFF) == 0)).sum() / counted.sum()
        return found


class FirstWeights(Channel):
    """Of the weights before the first update: equal rows, equal tensors, and the largest deviation of a matrix."""

    columns = ("equal_rows", "equal_tensors", "init_std_max")

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Look once; a weight of zeros is meant so, and one of each pair of equal tensors counts."""
        if self.watched.step or self.found or self.watched.updated:
            return
        trained = here(self.watched.trained())
        if not (weights := [one for one in trained if one.dim() > 1 and len(one) > 1]):
            return
        device = weights[0].device
        equal = [(one.amin(0) == one.amax(0)).all() & one[0].any() for one in weights]
        self.found = {"equal_rows": torch.stack([one.to(device) for one in equal]).sum()}
        if matrices := [one for one in weights if one.dim() == 2]:
            self.found["init_std_max"] = torch.stack([one.std().to(device, torch.float32) for one in matrices]).max()
        if many := [one for one in trained if one.numel() >= MANY]:
            device, kinds, sums = many[0].device, dict[Any, int](), bit_sums(many)
            varies = torch.stack([(one.amin() != one.amax()).to(device) for one in many])
            kind = torch.tensor([kinds.setdefault((one.shape, one.dtype), len(kinds)) for one in many], device=device)
            place = torch.tensor([one.untyped_storage().data_ptr() for one in many], device=device)
            same = (kind == kind[:, None]) & (sums == sums[:, None]) & (place != place[:, None]) & varies
            self.found["equal_tensors"] = same.triu(1).sum()
