"""What happened to gradients between their arrival and the update, tensor by tensor, and which there were."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import here, norms, samples, trained

FAINT = 1e-9  # of the largest norm: what is below is noise of rounding


class EditedGradients(Channel):
    """How unevenly norms were scaled (clipping does it evenly), and the least cosine; of samples of each tensor."""

    columns = ("gradient_edit_ratio", "gradient_cosine")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._arrived: tuple[list[int], torch.Tensor, torch.Tensor] | None = None
        self._found: dict[str, Cell] = {}

    def backward_ended(self) -> None:
        """Keep what arrived."""
        self._arrived = self._now()

    def update_ended(self) -> None:
        """Compare it with what was used, where that is of the same tensors."""
        before, after = self._arrived, self._now()
        self._arrived = None
        if before is None or after is None or before[0] != after[0]:
            return
        (_, arrived, was), (_, used, now) = before, after
        seen = arrived > FAINT * arrived.max()
        by_tensor = used / arrived
        largest, least = (by_tensor.where(seen, -torch.inf).max(), by_tensor.where(seen, torch.inf).min())
        cosines = torch.nn.functional.cosine_similarity(_in_range(was), _in_range(now), eps=1e-12)
        told = seen & (was != 0).any(1) & (used != 0)
        self._found = {
            "gradient_edit_ratio": largest / least,
            "gradient_cosine": torch.where(told.any(), cosines.where(told, torch.inf).min(), torch.nan),
        }

    def row(self) -> Mapping[str, Cell]:
        """Return what the update was found to use."""
        found, self._found, self._arrived = self._found, {}, None
        return found

    def _now(self) -> tuple[list[int], torch.Tensor, torch.Tensor] | None:
        held = [(one, one.grad) for _, one in trained(self.watched.model) if one.grad is not None]
        gradients = here(gradient for _, gradient in held)
        return ([id(one) for one, _ in held], norms(gradients), samples(gradients)) if held else None


class GradientCoverage(Channel):
    """How many tensors had a gradient before the first of a step arrived, and how many had none at the update."""

    columns = ("stale_gradients", "zero_gradients")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._stale: Cell = None
        self._zero: Cell = None

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Count what the step before left."""
        if self._stale is None:
            self._stale = _filled(self.watched)

    def update_ended(self) -> None:
        """Count what the update had nothing of."""
        self._zero = len(trained(self.watched.model)) - _filled(self.watched)

    def row(self) -> Mapping[str, Cell]:
        """Return both."""
        found = {"stale_gradients": self._stale, "zero_gradients": self._zero}
        self._stale = self._zero = None
        return {name: value for name, value in found.items() if value is not None}


class Ownership(Channel):
    """How many tensors that are trained no optimizer holds, and how many are not trained."""

    columns = ("unowned", "frozen")

    def row(self) -> Mapping[str, Cell]:
        """Count them; an optimizer of copies in float32 holds none of a narrow model's own."""
        parameters = list(self.watched.model.parameters())
        training = [one for one in parameters if one.requires_grad]
        found: dict[str, Cell] = {"frozen": float(len(parameters) - len(training))}
        if self.watched.optimizer is not None:
            owned = {id(one) for group in self.watched.optimizer.param_groups for one in group.get("params", ())}
            unowned = sum(id(one) not in owned for one in training)
            if unowned < len(training) or all(one.element_size() >= 4 for one in training):
                found["unowned"] = float(unowned)
        return found


def _filled(watched: Watched) -> torch.Tensor | float:
    gradients = [one.grad for _, one in trained(watched.model) if one.grad is not None]
    return (norms(here(gradients), torch.inf) != 0).sum() if gradients else 0.0


def _in_range(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.abs().amax(1, keepdim=True)
