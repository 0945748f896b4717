"""What happened to gradients between their arrival and the update, tensor by tensor, and which there were."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from weighbridge.recorder.channels import Cell, Channel, Watched
from weighbridge.recorder.learning.tensor_norms import gradient_norms, here, samples

FAINT = 1e-9  # of the largest norm: what is below is noise of rounding


class EditedGradients(Channel):
    """How unevenly norms were scaled (clipping is even), the least cosine of samples, and how many have no gradient."""

    columns = ("gradient_edit_ratio", "gradient_cosine", "zero_gradients")

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._arrived: tuple[list[int], torch.Tensor, torch.Tensor] | None = None  # tensors, norms, samples
        self._found: dict[str, Cell] = {}

    def backward_ended(self) -> None:
        """Keep what arrived."""
        self._arrived = self._now()

    def update_ended(self) -> None:
        """Compare it with what was used, where that is of the same tensors."""
        before, after = self._arrived, self._now()
        self._arrived = None
        trained = {id(one) for one in self.watched.trained()}
        given = (after[1] != 0)[[one in trained for one in after[0]]].sum() if after is not None else 0.0
        self._found = {"zero_gradients": len(trained) - given}
        if before is None or after is None or before[0] != after[0]:
            return
        (_, arrived, was), (_, used, now) = before, after
        if used.is_cpu and torch.equal(arrived, used) and torch.equal(was, now) and was.any():
            self._found |= {"gradient_edit_ratio": 1.0, "gradient_cosine": 1.0}
            return
        seen = arrived > FAINT * arrived.max()
        by_tensor = used / arrived
        largest, least = (by_tensor.where(seen, -torch.inf).max(), by_tensor.where(seen, torch.inf).min())
        cosines = torch.nn.functional.cosine_similarity(_in_range(was), _in_range(now), eps=1e-12)
        told = seen & (was != 0).any(1) & (used != 0)
        self._found |= {
            "gradient_edit_ratio": largest / least,
            "gradient_cosine": torch.where(told.any(), cosines.where(told, torch.inf).min(), torch.nan),
        }

    def row(self) -> Mapping[str, Cell]:
        """Return what the update was found to use."""
        found, self._found, self._arrived = self._found, {}, None
        return found

    def _now(self) -> tuple[list[int], torch.Tensor, torch.Tensor] | None:
        held = [id(one) for one in self.watched.parameters() if one.grad is not None]
        gradients = self.watched.gradients()
        return (held, gradient_norms(self.watched, gradients), samples(here(gradients))) if held else None


class StaleGradients(Channel):
    """How many tensors had a gradient left of the step before when the first of this one arrived."""

    columns = ("stale_gradients",)

    def __init__(self, watched: Watched) -> None:
        super().__init__(watched)
        self._left: Cell = None

    def backward_begins(self, gradient: torch.Tensor) -> None:
        """Count them in the first pass of a step."""
        if self._left is None:
            gradients = self.watched.gradients()
            self._left = (gradient_norms(self.watched, gradients) != 0).sum() if gradients else 0.0

    def row(self) -> Mapping[str, Cell]:
        """Return their number."""
        left, self._left = self._left, None
        return {} if left is None else {"stale_gradients": left}


class Ownership(Channel):
    """How many tensors that are trained no optimizer holds, and how many are not trained."""

    columns = ("unowned", "frozen")

    def row(self) -> Mapping[str, Cell]:
        """Count them; an optimizer of copies in float32 holds none of a narrow model's own."""
        parameters = self.watched.parameters()
        training = [one for one in parameters if one.requires_grad]
        found: dict[str, Cell] = {"frozen": float(len(parameters) - len(training))}
        if self.watched.optimizer is not None:
            owned = {id(one) for group in self.watched.optimizer.param_groups for one in group.get("params", ())}
            unowned = sum(id(one) not in owned for one in training)
            if unowned < len(training) or all(one.element_size() >= 4 for one in training):
                found["unowned"] = float(unowned)
        return found


def _in_range(rows: torch.Tensor) -> torch.Tensor:
    return rows / rows.abs().amax(1, keepdim=True)
