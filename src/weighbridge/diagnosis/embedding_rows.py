"""Whether the rows of an embedding have moved apart: those of the commonest tokens, then and now."""

from __future__ import annotations

from typing import Any

import torch

COMMON, FEWEST = 64, 8


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
    norms = (one.T @ one).norm() * (other.T @ other).norm()
    return float((other.T @ one).square().sum() / norms)
