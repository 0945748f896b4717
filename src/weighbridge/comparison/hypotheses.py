"""How a candidate's bits may have come from a source's: each hypothesis counts the elements that it reproduces.

Measures every hypothesis and names none; which one explains a tensor is judged elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from weighbridge.comparison import identical_tensors
from weighbridge.comparison.casts import INTEGERS, cast, castable, decode, numpy_dtype, shorten
from weighbridge.views.checkpoint import CheckpointView, Tensor

if TYPE_CHECKING:
    from weighbridge.comparison.casts import Words

    Hypothesis: TypeAlias = Callable[[Words], Words]  # source words -> the candidate's words, if it were so

MAX_TRIES = 16


def elementwise(source: Tensor, candidate: Tensor) -> dict[str, Hypothesis]:
    """List what may have been done element by element between these two dtypes."""
    old, new = source.dtype, candidate.dtype
    sizes = numpy_dtype(old), numpy_dtype(new)
    if sizes[0] is None or sizes[1] is None:
        return {}
    found: dict[str, Hypothesis] = {}
    if castable("F16", new) and old == "BF16":
        found["bf16-bits-as-f16"] = lambda stored: cast(stored, "F16", new)
    if castable("BF16", new) and old == "F16":
        found["f16-bits-as-bf16"] = lambda stored: cast(stored, "BF16", new)
    if sizes[0].itemsize == sizes[1].itemsize and old != new:
        found["relabelled"] = lambda stored: stored
    # The bytes of what the candidate was meant to hold, or of the source's words where nothing else can be.
    if sizes[1].itemsize > 1 and castable(old, new):
        found["byte-swapped"] = lambda stored: cast(stored, old, new).byteswap()
    elif 1 < sizes[0].itemsize == sizes[1].itemsize:
        found["byte-swapped"] = lambda stored: stored.byteswap()
    return found | _rounded(old, new)


def _rounded(old: str, new: str) -> dict[str, Hypothesis]:
    """List roundings: towards zero, and on the way through a narrower type."""
    if old in INTEGERS or new in INTEGERS or new == "F8_E8M0" or not castable(old, new):
        return {}
    found: dict[str, Hypothesis] = {}
    if old != new:
        found["truncated"] = lambda stored: shorten(decode(stored, old), new)
    for name, narrow in (("through-f16", "F16"), ("through-bf16", "BF16")):
        if narrow not in (old, new) and castable(old, narrow):
            found[name] = lambda stored, narrow=narrow: cast(cast(stored, old, narrow), narrow, new)  # type: ignore[misc]
    return found


@dataclass(slots=True)
class Namesakes:
    """Finds the tensor of a checkpoint that holds exactly the bytes of another one, without comparing all with all."""

    view: CheckpointView
    _by_probe: dict[tuple[str, int, bytes], list[str]] = field(default_factory=dict)
    _probing: threading.Lock = field(default_factory=threading.Lock)

    def of(self, candidate: CheckpointView, name: str) -> str | None:
        """Name another tensor of the same dtype and size with the same bytes."""
        with self._probing:  # another thread must not search what is half filled
            if not self._by_probe:
                for other in self.view.names():
                    self._by_probe.setdefault(identical_tensors.probe(self.view, other), []).append(other)
        alike = [other for other in self._by_probe.get(identical_tensors.probe(candidate, name), ()) if other != name]
        return next(
            (other for other in alike[:MAX_TRIES] if identical_tensors.same((self.view, other), (candidate, name))),
            None,
        )
