"""What the weights are, at first whether they were drawn apart, and who writes to them.

An update has to move each tensor that has a gradient, and between updates nobody may.
"""

from collections.abc import Mapping
from typing import Any

import torch

from weighbridge.recorder.channels import SELDOM, Cell, Channel, stamps
from weighbridge.recorder.learning.tensor_norms import bit_sums, every_so_many, gradient_norms, here, norms, samples

SAMPLE = 4096  # elements of a tensor
MANY = 64  # elements: two tensors of fewer may be equal by chance
FAINT = 1e-6  # of the largest gradient: what is below may be too little to move a weight
LOW = 2**32 - 1


class Weights(Channel):
    """The 2-norm of all weights, and the share of matrices in float32 whose values bfloat16 would hold as well."""

    columns = ("weight_norm", "bf16_share")
    period = SELDOM

    def row(self) -> Mapping[str, Cell]:
        """Look at them after the step; 0, NaN and infinities have every precision, and do not count."""
        weights = here(one for one in self.watched.parameters() if one.is_floating_point() or one.is_complex())
        found: dict[str, Cell] = {"weight_norm": norms(weights).norm()} if weights else {}
        matrices = [one for one in here(self.watched.trained()) if one.dim() == 2 and one.dtype == torch.float32]
        if matrices:
            sampled = [every_so_many(one, SAMPLE).view(torch.int32) for one in matrices]
            words = torch.cat([one.to(sampled[0].device) for one in sampled])
            counted = ((words & 0x7FFFFFFF) != 0) & ((words & 0x7F800000) != 0x7F800000)
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
        if many := [one for one in weights if one.numel() >= MANY]:
            device, kinds, sums = many[0].device, dict[Any, int](), bit_sums(many)
            varies = torch.stack([(one.amin() != one.amax()).to(device) for one in many])
            kind = torch.tensor([kinds.setdefault((one.shape, one.dtype), len(kinds)) for one in many], device=device)
            place = torch.tensor([one.untyped_storage().data_ptr() for one in many], device=device)
            same = (kind == kind[:, None]) & (sums == sums[:, None]) & (place != place[:, None]) & varies
            self.found["equal_tensors"] = same.triu(1).sum()


class CountedWrites(Channel):
    """Tensors written to since the update before: where torch's count of writes in place went on, by samples of each.

    Weights that were exchanged and put back were written to, too: where no sample differs, that is left open. What goes
    around the count (`.data`) is seen where all channels look. From an evaluation on all bits are compared, at most
    once in ten steps, unless it got other weights than the update left.
    """

    columns = ("outside_writes",)
    every_step = True

    _after: tuple[int, list[tuple[int, int]], torch.Tensor] | None = None  # step, counts, samples
    _bits: torch.Tensor | None = None  # sums of all of them, where an evaluation began
    _evaluated = -SELDOM  # the step in which they were summed last

    def evaluation_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Sum all bits of what the update left, for an average that is evaluated in its place is put back."""
        if (after := self._after) is None or self._bits is not None or self.watched.step < self._evaluated + SELDOM:
            return
        self._evaluated, parameters = self.watched.step, self.watched.parameters()
        if stamps(parameters) == after[1] and torch.equal(after[2], self._samples()):
            self._bits = bit_sums(here(parameters))

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Compare with what the update of the step before left."""
        (after, self._after), (bits, self._bits) = (self._after, None), (self._bits, None)
        if after is None or after[0] != self.watched.step - 1:
            return
        now = stamps(self.watched.parameters())
        if bits is not None and [one for one, _ in now] == [one for one, _ in after[1]]:
            self.found["outside_writes"] = (bit_sums(here(self.watched.parameters())).to(bits.device) != bits).sum()
        elif now == after[1]:
            self.found["outside_writes"] = 0.0
        else:
            few, many = sorted((after[2], self._samples().to(after[2].device)), key=len)
            alike = (few == many).all(1) if len(few) == len(many) else _among(few, many)
            if differ := int((~alike).sum()):
                self.found["outside_writes"] = float(differ)

    def update_ended(self) -> None:
        """Keep the counts, and samples: which will be asked for is not known before it is too late."""
        self._after = (self.watched.step, stamps(self.watched.parameters()), self._samples())

    def _samples(self) -> torch.Tensor:
        # What is of one byte may be a float8, which no other dtype is promoted with; of bits, for NaN is unlike itself.
        parameters = here(self.watched.parameters())
        bare = [one.view(torch.uint8) if one.element_size() == 1 else one for one in parameters]
        return samples(bare).view(torch.int32) if bare else torch.zeros(0, 1)


def _among(few: torch.Tensor, many: torch.Tensor) -> torch.Tensor:
    """Return of each row whether it is one of the others: tensors came or went, and those that stayed moved up."""
    return torch.stack([(many == row).all(1).any() for row in few])


class WeightWrites(Channel):
    """Tensors written to since the update before, those that an update left bit for bit, and the sum of all bits."""

    columns = ("outside_writes", "unmoved", "parameters_sum")

    _after: tuple[int, torch.Tensor] | None = None  # step and sums of the last update
    _before: torch.Tensor | None = None

    def forward_begins(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Compare with what the update of the step before left."""
        after, own = self._after, len(self.watched.parameters())
        if self._before is not None:
            if after is not None and self.watched.updated:  # running means move by rights, as a critic's in a GAN
                self._after = after[0], after[1][:own]
            return
        self._before = self._sums()
        if after is not None and after[0] == self.watched.step - 1 and len(after[1]) in (own, len(self._before)):
            self.found["outside_writes"] = (self._before[: len(after[1])] != after[1]).sum()

    def update_begins(self) -> None:
        """Look here where no forward pass was seen."""
        if self._before is None:
            self._before = self._sums()

    def update_ended(self) -> None:
        """Count what the update left as it was."""
        now, before = self._sums(), self._before
        if before is not None and len(before) == len(now):
            self.found["unmoved"] = self._unmoved(before == now)
        self._after, self._before = (self.watched.step, now), now
        if now.device.type != "mps":  # a device without float64 cannot bring it over whole
            self.found["parameters_sum"] = parameters_sum(now[: len(self.watched.parameters())])

    def row(self) -> Mapping[str, Cell]:
        """Return what was found."""
        self._before = None
        return super().row()

    def _sums(self) -> torch.Tensor:
        # An evaluation in training mode moves running means, which training passes alone may write to.
        return bit_sums(here([*self.watched.parameters(), *self.watched.statistics()]))

    def _unmoved(self, same: torch.Tensor) -> Cell:
        if same.is_cpu and not same.any():
            return 0.0
        groups = [] if self.watched.optimizer is None else self.watched.optimizer.param_groups
        owned = {id(one) for group in groups if float(group.get("lr", 1)) > 0 for one in group["params"]}
        seen = [(at, id(one) in owned) for at, one in enumerate(self.watched.parameters()) if one.grad is not None]
        if not any(moves for _, moves in seen):
            return 0.0
        at, moves = torch.tensor(seen, device=same.device).unbind(1)
        by_tensor = gradient_norms(self.watched, self.watched.gradients()) * moves
        return (same[at] & (by_tensor > FAINT * by_tensor.max())).sum()


def parameters_sum(sums: torch.Tensor) -> torch.Tensor:
    """Return what a log holds of all parameters at once, below 2^53; both halves count, so that no bit is lost."""
    return ((sums & LOW) + ((sums >> 32) & LOW)).sum() & (2**53 - 1)
