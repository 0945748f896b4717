"""What matrices have become: rows of an embedding that move apart, and largest singular values by power iteration."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from weighbridge.diagnosis.fixed_batch import scattered

COMMON, FEWEST = 64, 8
MOST_OFF = 1e-2  # residual
MOST = 60  # iterations


def embedding(model: torch.nn.Module) -> torch.Tensor | None:
    """Return the table that a model looks its tokens up in."""
    asked: Any = getattr(model, "get_input_embeddings", None)
    try:
        found = asked() if asked else None
    except NotImplementedError:
        found = None
    tables: list[Any] = [found, *(one for one in model.modules() if isinstance(one, torch.nn.Embedding))]
    weight = next((one.weight for one in tables if isinstance(getattr(one, "weight", None), torch.Tensor)), None)
    return weight if weight is not None and weight.dim() == 2 else None


def commonest(ids: torch.Tensor, most: int = COMMON) -> torch.Tensor | None:
    """Return the tokens that occur most often, the smaller first of equals; None of fewer than eight."""
    values, counts = torch.unique(ids, return_counts=True)
    return values[torch.argsort(counts, descending=True, stable=True)[:most]] if len(values) >= FEWEST else None


def alignment(before: torch.Tensor, after: torch.Tensor) -> float:
    """Return the linear CKA of two sets of rows: 1 where one is the other, turned, moved or scaled."""
    one, other = (rows.detach().double() - rows.detach().double().mean(0) for rows in (before, after))
    return float((other.T @ one).square().sum() / ((one.T @ one).norm() * (other.T @ other).norm()))


@dataclass(frozen=True, slots=True)
class SpectralNorm:
    """What a power iteration came to: `value` is near where `residual` is small, and never above it."""

    name: str
    value: float
    residual: float
    iterations: int

    @property
    def known(self) -> bool:
        """Return whether the residual says so."""
        return self.residual <= MOST_OFF


class PowerIteration:
    """The spectral norms of matrices, with the vector of each kept from one time to the next."""

    def __init__(self) -> None:
        self._vectors: dict[str, torch.Tensor] = {}

    def measure(self, matrices: Iterable[tuple[str, torch.Tensor]]) -> tuple[SpectralNorm, ...]:
        """Return the spectral norm of each, of a tensor of more dimensions that of its rows.

        Only the greatest is iterated until it is known: to know all takes as long as a step.
        """
        wide = {name: one.detach().flatten(1).float() for name, one in matrices}
        found = {name: self._of(name, one, 3 if name in self._vectors else 10, 0) for name, one in wide.items()}
        size: Any = lambda one: -math.inf if math.isnan(one.value) else one.value  # noqa: E731
        while found and not (top := max(found.values(), key=size)).known and top.iterations < MOST:
            found[top.name] = self._of(top.name, wide[top.name], 10, top.iterations)
        return tuple(found.values())

    def _of(self, name: str, matrix: torch.Tensor, steps: int, done: int) -> SpectralNorm:
        if not matrix.any():
            return SpectralNorm(name, 0.0, 0.0, done + steps)
        vector = self._vectors.get(name)
        if vector is None or vector.shape[0] != matrix.shape[1] or not vector.isfinite().all():
            vector = scattered(matrix.shape[1], torch.float32)
        self._vectors[name], value, residual = power(matrix, vector.to(matrix.device), steps)
        return SpectralNorm(name, value, residual if math.isfinite(residual) else math.inf, done + steps)


def power(matrix: torch.Tensor, vector: torch.Tensor, steps: int) -> tuple[torch.Tensor, float, float]:
    """Return the vector after so many iterations, the norm, and by what share of it the pair is no singular pair."""
    vector = vector / vector.norm()
    for _ in range(steps):
        image = matrix @ vector
        value = image.norm()
        back = matrix.mT @ (image / value)
        residual = (back - value * vector).norm() / value
        vector = back / back.norm()
    found, off = torch.stack([value, residual]).tolist()
    return vector, found, off
