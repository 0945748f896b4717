"""What an analysis checkpoint says of one tensor: moments of all of it, order statistics of a sample, and a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from weighbridge.core import Doubles
from weighbridge.diagnosis.attention_maps import spread
from weighbridge.recorder.learning.tensor_norms import every_so_many, here

LEVELS = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
BINS, SIDE = 64, 32
SAMPLED, PART = 2**20, 2**22  # elements: of order statistics; that are widened at a time


def statistics(tensor: torch.Tensor, *, grid: bool) -> dict[str, Any]:
    """Return mean, std, min, max, percentiles and histogram of what is finite, and how much is not."""
    (flat,) = here([tensor.detach()])
    flat = flat.reshape(-1)
    finite = flat[torch.isfinite(flat)]
    found: dict[str, Any] = {"elements": flat.numel(), "not_finite": flat.numel() - finite.numel()}
    if not finite.numel():
        return found
    wide = torch.float32 if flat.is_mps else torch.float64
    parts = finite.split(PART)  # type: ignore[no-untyped-call]
    mean = float(sum(float(part.to(wide).sum()) for part in parts)) / finite.numel()
    spread = float(sum(float((part.to(wide) - mean).square().sum()) for part in parts)) / finite.numel()
    low, high = (float(one) for one in finite.float().aminmax())
    found |= {"mean": rounded(mean), "std": rounded(spread**0.5), "min": rounded(low), "max": rounded(high)}
    ordered = _ordered(finite)
    places = (round(level * (len(ordered) - 1)) for level in LEVELS)
    found["percentiles"] = {f"{level:g}": rounded(ordered[at]) for level, at in zip(LEVELS, places, strict=True)}
    found["histogram"] = _histogram(ordered)
    return found | ({"sampled_grid_32x32": sampled_grid(tensor)} if grid else {})


def gradient_statistics(gradient: torch.Tensor) -> dict[str, Any]:
    """Return its 2-norm and histogram; the norm is absent where it is not finite."""
    (flat,) = here([gradient.detach()])
    norm = float(torch.linalg.vector_norm(flat.float()))
    finite = flat[torch.isfinite(flat)]
    found = {"norm": rounded(norm)} if np.isfinite(norm) else {}
    return found | ({"histogram": _histogram(_ordered(finite))} if finite.numel() else {})


def sampled_grid(tensor: torch.Tensor) -> Any:
    """Return at most 32 rows of 32 elements spread over a tensor, seen as a matrix; None for what is not finite."""
    (whole,) = here([tensor.detach()])
    matrix = whole.reshape(len(whole), -1) if whole.dim() > 1 else whole.reshape(1, -1)
    rows, columns = (spread(size, SIDE) for size in matrix.shape)
    cells = matrix[rows][:, columns].double().cpu() if not matrix.is_mps else matrix.cpu()[rows][:, columns].double()
    return rounded_or_none(cells.tolist())


def rounded(value: float) -> float:
    """Return a number with six digits."""
    return float(f"{value:.6g}")


def rounded_or_none(value: Any) -> Any:
    """Return a number with six digits, None for what is not finite; of lists each of theirs."""
    if isinstance(value, (list, tuple)):
        return [rounded_or_none(one) for one in value]
    return rounded(value) if math.isfinite(value) else None


def _ordered(finite: torch.Tensor) -> Doubles:
    sample = every_so_many(finite, SAMPLED) if finite.numel() > SAMPLED else finite
    ordered: Doubles = np.sort(sample.float().cpu().numpy().astype(np.float64))
    return ordered


def _histogram(ordered: Doubles) -> dict[str, Any]:
    edges = np.linspace(ordered[0], ordered[-1], BINS + 1)
    below = np.searchsorted(ordered, edges[1:-1], side="left")
    counts = np.diff(np.concatenate([[0], below, [len(ordered)]]))
    return {"bins": [rounded(one) for one in edges.tolist()], "counts": counts.tolist()}
