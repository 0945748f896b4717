"""The largest singular value of each matrix by power iteration, which begins anew where it ended the last time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

MOST_OFF = 1e-2  # residual
AT_A_TIME, MOST = 10, 60  # iterations


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
        """Return the spectral norm of each; of a tensor of more dimensions, of its rows."""
        return tuple(self._of(name, one.detach().flatten(1).float()) for name, one in matrices)

    def _of(self, name: str, matrix: torch.Tensor) -> SpectralNorm:
        vector = self._vectors.get(name)
        if vector is None or vector.shape[0] != matrix.shape[1]:
            places = torch.arange(matrix.shape[1], device=matrix.device)
            vector = torch.cos(places.float() * 2.399963)  # as good as drawn
            vector /= vector.norm()
        value, residual, done = 0.0, math.inf, 0
        while residual > MOST_OFF and done < MOST:
            steps = 3 if not done and name in self._vectors else AT_A_TIME
            vector, value, residual = power(matrix, vector.to(matrix.device), steps)
            done += steps
            if not math.isfinite(residual):
                return SpectralNorm(name, value, math.inf, done)
        self._vectors[name] = vector
        return SpectralNorm(name, value, residual, done)


def power(matrix: torch.Tensor, vector: torch.Tensor, steps: int) -> tuple[torch.Tensor, float, float]:
    """Return the vector after so many iterations, the norm, and by what share of it the pair is no singular pair."""
    for _ in range(steps):
        image = matrix @ vector
        value = image.norm()
        back = matrix.mT @ (image / value)
        residual = (back - value * vector).norm() / value
        vector = back / back.norm()
    found, off = torch.stack([value, residual]).tolist()
    return (vector, found, off) if found else (vector, 0.0, math.inf)
