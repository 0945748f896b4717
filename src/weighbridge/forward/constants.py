"""Computed constants (rotary frequencies): made again in float64 for the truth, and compared with those of the model.

A model that was cast to bfloat16 and back keeps them rounded for good. Parts that have their `config` make them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from weighbridge.core import Doc, NDArray, dataclass, np, torch
from weighbridge.forward.widened import widened

DIGITS = {8: "bfloat16", 11: "float16"}  # significant binary digits
DIGITS_PLAIN = 4  # a value of at most so many digits (0.5, 0.75, 8) tells nothing about rounding
TELLING = 4  # so many distinct values with more digits do
FLOAT32 = 2.0**-21  # relative: what a few operations in float32 leave


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the computed constants of a model are worth as a truth."""

    of: Annotated[int, Doc("computed floating constants")] = 0
    rebuilt: Annotated[int, Doc("of them, made again in float64 for the truth")] = 0
    rounded: Annotated[int, Doc("of them, those that only a lower precision than float32 could have made")] = 0
    first_rounded: Annotated[str, Doc("the first of those and what it was rounded to, empty where there is none")] = ""


@contextmanager
def rebuilt(module: torch.nn.Module) -> Iterator[Constants]:
    """Put float64 constants in the place of computed ones inside the block, and return what was found."""
    stored, parts = set(module.state_dict()), dict(module.named_modules())
    computed = ((name, current) for name, current in module.named_buffers() if name not in stored)
    names = [name for name, current in computed if current.is_floating_point() and current.numel()]
    before: list[tuple[torch.nn.Module, str, torch.Tensor]] = []
    made: dict[str, Any] = {}
    rounded: list[str] = []
    for part in parts.values():  # a pass over long inputs computes these, keeps them, and writes them over a constant
        for own in [own for own in vars(part) if own.endswith("long_inv_freq")]:
            before.append((part, own, getattr(part, own)))
            delattr(part, own)
    overwritten = {(part, own.replace("long_inv_freq", "inv_freq")) for part, own, _ in before}
    for name in names:
        path, _, own = name.rpartition(".")
        part = parts[path]
        if path not in made:
            made[path] = _made_again(part)
        again: Any = getattr(made[path], own, None)
        current = getattr(part, own)
        near = False
        if isinstance(again, torch.Tensor) and again.shape == current.shape:
            wide, exact = current.double(), again.to(current.device, torch.float64)
            near = (part, own) in overwritten or bool(((wide - exact).abs() <= FLOAT32 * exact.abs()).all())
        if near:
            before.append((part, own, current))
            setattr(part, own, again.to(current.device))
        elif lower := _lower(current):
            rounded.append(f"{name} to {lower}")
    try:
        yield Constants(
            of=len(names),
            rebuilt=len(before) - len(overwritten),
            rounded=len(rounded),
            first_rounded=next(iter(rounded), ""),
        )
    finally:
        for part, own, current in before:
            setattr(part, own, current)


def _made_again(part: torch.nn.Module) -> Any:
    """Return a part like this one, made in float64 from its configuration; None where it cannot be."""
    if (config := getattr(part, "config", None)) is None:
        return None
    try:
        with widened():
            return type(part)(config)
    except Exception:  # noqa: BLE001 -- any code may stand behind it; then it is as if there were no configuration
        return None


def _lower(current: torch.Tensor) -> str:
    """Return the lower precision that every value of a constant has, though they are not round numbers; else empty."""

    def to_digits(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
        mantissa, exponent = np.frexp(values)
        near: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
        return near

    values = current.detach().cpu().double().numpy()
    finite = np.unique(values[np.isfinite(values)])
    telling = (finite != np.rint(finite)) & (finite != to_digits(finite, DIGITS_PLAIN))
    if int(np.count_nonzero(telling)) < TELLING:
        return ""
    return next((name for digits, name in DIGITS.items() if np.array_equal(finite, to_digits(finite, digits))), "")
