"""What relates a captured value to the one that was made there: a bias, a scale, a permutation, another point."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from weighbridge.core import torch
from weighbridge.quantities.forward import Relation

RECENT = 8  # points whose values are kept to be compared with
LARGE = 1 << 22  # elements: a larger point is not kept
WIDE = 1 << 12  # channels: among more, no order is looked for
NEAR, EQUAL = 0.1, 1e-3  # of its norm: a weight that lies farther is not named, nor one where a constant is nearer


class Neighbours:
    """The captured values of the last points, as they are stored, the model's weights, and its inputs' padding."""

    def __init__(self, module: torch.nn.Module, padded: Sequence[int] = ()) -> None:
        self.module, self.padded = module, padded
        self.recent: deque[tuple[str, torch.Tensor]] = deque(maxlen=RECENT)

    def note(self, point: str, values: torch.Tensor) -> None:
        """Keep the values of a point."""
        if values.numel() <= LARGE:
            self.recent.append((point, values))

    def scores(self, point: str) -> torch.Tensor | None:
        """Return the values of the first output of the module whose output a point is; None where they are gone."""
        return dict(self.recent).get(point.rpartition(".")[0])

    def relation(self, point: str, made: torch.Tensor, captured: torch.Tensor) -> Relation | None:
        """Return the simplest relation among those that leave least over; None where nothing is finite."""
        if made.shape != captured.shape or not bool(torch.isfinite(made).all() and torch.isfinite(captured).all()):
            return None
        near = [(name, self._kept(values).double()) for name, values in self.recent if values.shape == made.shape]
        made, captured = self._kept(made), self._kept(captured)
        norm = float(captured.norm()) or 1.0
        fitted = list(self._simple(made, captured, norm))
        for name, other in near:
            fitted.append(Relation(name="neighbour", to=name, left=float((captured - other).norm()) / norm))
            for how, sign in (("without", -1), ("with", 1)):  # it is missing from the sum, or in it twice
                left = float((captured - made - sign * other).norm()) / norm
                fitted.append(Relation(name="residual", to=f"{how} {name}", left=left))
        # A factor for each channel always leaves a little less over than one factor that explains all.
        least = min(one.left or 0.0 for one in fitted)
        return next(one for one in fitted if (one.left or 0.0) <= 2 * least)

    def _kept(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what is no padding, as one sequence where any is."""
        some = any(self.padded) and len(rows) > 1
        return torch.cat([row[many:] for row, many in zip(rows, self.padded, strict=True)])[None] if some else rows

    def _simple(self, made: torch.Tensor, captured: torch.Tensor, norm: float) -> Iterator[Relation]:
        flat_made, flat_captured = made.flatten(0, 1), captured.flatten(0, 1)
        factor = float((captured * made).sum() / (made * made).sum().clamp(min=1e-300))
        yield Relation(name="scale", to=f"{factor:.6g}", left=float((captured - factor * made).norm()) / norm)
        offset = (flat_captured - flat_made).mean(0)
        left = float((flat_captured - flat_made - offset).norm()) / norm
        yield Relation(name="bias", to=self._weight(offset), left=left)
        one, other = flat_made - flat_made.mean(0), flat_captured - flat_captured.mean(0)  # a norm may have a bias too
        gains = (one * other).sum(0) / one.square().sum(0).clamp(min=1e-300)
        left = float((other - one * gains).norm()) / norm
        yield Relation(name="channel-scale", to=self._weight(gains) or self._weight(1 / gains), left=left)
        if 1 < made.shape[2] <= WIDE:
            one, other = (flat / flat.norm(dim=0).clamp(min=1e-300) for flat in (flat_made, flat_captured))
            order = (one.T @ other).argmax(0)
            moved = int((order != torch.arange(len(order), device=order.device)).sum())
            left = float((flat_captured - flat_made[:, order]).norm()) / norm
            yield Relation(name="permutation", to=f"{moved} channels moved", left=left)
        for name, step in (("one token early", -1), ("one token late", 1)):
            left = float((captured - made.roll(step, 1)).norm()) / norm
            yield Relation(name="shift", to=name, left=left)

    def _weight(self, vector: torch.Tensor) -> str:
        """Return the weight nearest to a vector or its negative; empty where none is near, or a constant is nearer."""
        found = []
        for name, weight in self.module.named_parameters():
            if weight.numel() == vector.numel() and weight.ndim == 1:
                wide = weight.detach().to(vector)
                for sign in (1, -1):
                    rest = float((vector - sign * wide).norm()) / max(float(vector.norm()), 1e-300)
                    found.append((rest, name if sign > 0 else f"-{name}"))
        near = min(found, default=(1.0, ""))
        constant = float((vector - vector.mean()).norm()) / max(float(vector.norm()), 1e-300)
        return near[1] if near[0] < NEAR and near[0] <= max(constant, EQUAL) else ""
