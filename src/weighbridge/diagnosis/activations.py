"""What goes through a model: the output of each block, the hidden units of its feed-forward part, the last norm."""

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import torch

DEAD = 1e-3  # of the deviation of its layer: a unit that stays below does nothing
FIGURES = ("mean", "std", "absmean", "absmax", "zeros", "kurtosis", "not_finite", "added")
ATTENTION = ("attn", "attention")


class Place(StrEnum):
    """Where in a model values were taken."""

    BLOCK = "block"
    HIDDEN = "hidden"
    NORM = "norm"


@dataclass(frozen=True, slots=True, eq=False)
class Activation:
    """The values of one place: moments of the finite ones, the shares of zeros, and how many are not finite.

    `peaks` is the largest magnitude of each unit, `stack` names the blocks of one kind that this one is among,
    `added` is the deviation of what a block adds to what goes into it, or its own where the two are of two shapes.
    """

    name: str
    place: Place
    stack: str
    values: int
    mean: float
    std: float
    absmean: float
    absmax: float
    zeros: float
    kurtosis: float  # in excess of a normal distribution's
    not_finite: float
    added: float
    peaks: torch.Tensor

    @property
    def dead(self) -> torch.Tensor:
        """Return which units stayed below a thousandth of the deviation of all."""
        return self.peaks <= DEAD * self.std


def blocks(model: torch.nn.Module) -> dict[str, torch.nn.Module]:
    """Return the blocks of a model by path: what its outermost lists hold, else its sequences, else its parts."""
    for kind in (torch.nn.ModuleList, torch.nn.Sequential):
        lists = [(path, one) for path, one in model.named_modules() if type(one) is kind and _learns(one)]
        outer = [(path, one) for path, one in lists if not any(_inside(path, other) for other, _ in lists)]
        parts = ((f"{path}.{name}".lstrip("."), part) for path, one in outer for name, part in one.named_children())
        if found := {path: part for path, part in parts if _learns(part)}:
            return found
    return {name: one for name, one in model.named_children() if _learns(one)}


def hidden(block: torch.nn.Module) -> tuple[str, torch.nn.Module] | None:
    """Return what takes the hidden units of a block in: of the maps that narrow, the one from most units."""
    narrowing = [(given, path, one) for path, one in block.named_modules() if (given := _narrows(path, one))]
    return max(narrowing, key=lambda one: one[0])[1:] if narrowing else None


@contextlib.contextmanager
def watching(model: torch.nn.Module) -> Iterator[list[Activation]]:
    """Fill a list with the activations of a forward pass inside the block, in the order of computing."""
    found: list[tuple[str, Place, str, int, torch.Tensor, torch.Tensor]] = []
    read: list[Activation] = []

    def taken(spot: tuple[str, Place, str], _module: object, given: Any, named: Any, output: Any) -> None:
        out = _first(given if spot[1] is Place.HIDDEN else output)
        before = _first((*given, *named.values())) if spot[1] is Place.BLOCK else None
        if out is not None and out.is_floating_point() and out.dim() > 1 and out.numel():
            before = before if before is not None and before.shape == out.shape else torch.zeros_like(out)
            found.append((*spot, out.numel(), *_taken(out, before)))

    within = blocks(model)
    norms = [(path, one) for path, one in model.named_modules() if "Norm" in type(one).__name__]
    outside = [one for one in norms if not any(_inside(one[0], block) or one[0] == block for block in within)]
    places = [(norm, (path, Place.NORM, "")) for path, norm in outside[-1:]]
    for path, block in within.items():
        stack = f"{path.rpartition('.')[0]} {type(block).__name__}"
        places.append((block, (path, Place.BLOCK, stack)))
        if inner := hidden(block):
            places.append((inner[1], (f"{path}.{inner[0]}".rstrip("."), Place.HIDDEN, stack)))
    with contextlib.ExitStack() as hooks:
        for part, of in places:
            hooks.callback(part.register_forward_hook(functools.partial(taken, of), with_kwargs=True).remove)
        yield read
    if found:
        numbers = torch.stack([one[4].to(found[0][4].device) for one in found]).tolist()
        rows: list[dict[str, Any]] = [dict(zip(FIGURES, row, strict=True)) for row in numbers]
        read += [Activation(*one[:4], **row, peaks=one[5].cpu()) for one, row in zip(found, rows, strict=True)]


def outliers(found: Mapping[str, float]) -> dict[str, float]:
    """Return of each block how many times its deviation is that of the middle of its stack, or the middle its own."""
    known = sorted(value for value in found.values() if value > 0 and math.isfinite(value))
    if not known:
        return {}
    middle = known[len(known) // 2]
    times = {name: max(value / middle, middle / value) if value > 0 else math.inf for name, value in found.items()}
    return {name: one for name, one in times.items() if not math.isnan(found[name])}


def _taken(value: torch.Tensor, before: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    rows = value.detach().flatten(0, -2).float()
    finite = rows.isfinite()
    count = finite.sum().clamp_min(1)
    known = torch.where(finite, rows, 0.0)
    mean = known.sum() / count
    squares = torch.where(finite, known - mean, 0.0).square()
    variance, sizes = squares.sum() / count, known.abs()
    kurtosis = squares.square().sum() / count / variance.square().clamp_min(1e-30) - 3
    zeros = ((known == 0) & finite).sum() / count
    added = (rows - before.detach().flatten(0, -2).float()).std(correction=0)
    more = (sizes.sum() / count, sizes.amax(), zeros, kurtosis, (~finite).sum(), added)
    return torch.stack([one.double() for one in (mean, variance.sqrt(), *more)]), sizes.amax(0)


def _first(value: Any) -> torch.Tensor | None:
    """Return a tensor, or the first of several."""
    found = value if isinstance(value, (tuple, list)) else (value,)
    return next((one for one in found if isinstance(one, torch.Tensor)), None)


def _learns(one: torch.nn.Module) -> bool:
    return any(True for _ in one.parameters())


def _inside(path: str, other: str) -> bool:
    return path != other and path.startswith(f"{other}." if other else "")


def _narrows(path: str, one: torch.nn.Module) -> int:
    """Return the inputs of a linear map that has fewer outputs, else 0; a Conv1D is stored the other way."""
    weight = None if any(word in path.lower() for word in ATTENTION) else getattr(one, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or isinstance(one, torch.nn.Embedding):
        return 0
    given, taken = weight.shape if type(one).__name__ == "Conv1D" else weight.shape[::-1]
    return given if given > taken else 0
