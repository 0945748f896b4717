"""A small language to learn: some tokens are common, as in any; each has four likely successors, and may surprise."""

from __future__ import annotations

import torch

VOCAB, SUCCESSORS, SURPRISE = 64, 4, 0.1


def drawn(shape: tuple[int, ...], chance: torch.Generator) -> torch.Tensor:
    """Draw tokens 1 .. VOCAB - 1, token k about as often as 1 / k."""
    return ((VOCAB - 1) ** torch.rand(shape, generator=chance)).long().clamp(1, VOCAB - 1)


def table(dialect: int) -> torch.Tensor:
    """Return the likely successors of each token `[VOCAB, SUCCESSORS]`; a third of them differ between dialects."""
    known = drawn((VOCAB, SUCCESSORS), torch.Generator().manual_seed(0))
    other = drawn((VOCAB, SUCCESSORS), torch.Generator().manual_seed(dialect))
    known[::3] = other[::3]
    return known


def rows(count: int, length: int, seed: int, dialect: int = 0) -> torch.Tensor:
    """Write `count` rows of `length` tokens; token 0 is never written, it pads."""
    chance, successors = torch.Generator().manual_seed(1000 + seed), table(dialect)
    found = drawn((count, length), chance)
    for at in range(1, length):
        likely = successors[found[:, at - 1], torch.randint(0, SUCCESSORS, (count,), generator=chance)]
        surprised = torch.rand(count, generator=chance) < SURPRISE
        found[:, at] = torch.where(surprised, found[:, at], likely)
    return found
