"""How a candidate's bits may have come from a source's: each hypothesis counts the elements that it reproduces.

Measures every hypothesis and names none; which one explains a tensor is judged elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from weighbridge.comparison import identical_tensors
from weighbridge.comparison.casts import INTEGERS, cast, castable, decode, encode, numpy_dtype, shorten, words
from weighbridge.views.checkpoint import CheckpointView, Tensor

if TYPE_CHECKING:
    from weighbridge.comparison.casts import Words

    Hypothesis: TypeAlias = Callable[[Words], Words]  # source words -> the candidate's words, if it were so

ELEMENTS = 1 << 18  # in one step
TILE = 1 << 10  # rows and columns of one step of a transposed look
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
    return found | _swapped(old, new) | _rounded(old, new)


def _swapped(old: str, new: str) -> dict[str, Hypothesis]:
    """Swap the bytes of what the candidate was meant to hold, or of the source's words where nothing else can be."""
    sizes = numpy_dtype(old), numpy_dtype(new)
    assert sizes[0] is not None
    assert sizes[1] is not None
    if sizes[1].itemsize > 1 and castable(old, new):
        return {"byte-swapped": lambda stored: cast(stored, old, new).byteswap()}
    if 1 < sizes[0].itemsize == sizes[1].itemsize:
        return {"byte-swapped": lambda stored: stored.byteswap()}
    return {}


def _rounded(old: str, new: str) -> dict[str, Hypothesis]:
    """List roundings: towards zero, and on the way through a narrower type."""
    if old in INTEGERS or new in INTEGERS or new == "F8_E8M0" or not castable(old, new):
        return {}
    found: dict[str, Hypothesis] = {}
    if old != new:
        found["truncated"] = lambda stored: shorten(decode(stored, old), new)
    for name, narrow in (("through-f16", "F16"), ("through-bf16", "BF16")):
        if narrow not in (old, new) and castable(old, narrow):
            found[name] = _through(old, narrow, new)
    return found


def _through(old: str, narrow: str, new: str) -> Hypothesis:
    return lambda stored: encode(decode(cast(stored, old, narrow), narrow), new)


def count(source: CheckpointView, candidate: CheckpointView, name: str, tried: dict[str, Hypothesis]) -> dict[str, int]:
    """Count the elements of a tensor that each hypothesis reproduces bit for bit, in one walk."""
    import numpy as np

    counts = dict.fromkeys(tried, 0)
    for old, new in in_step(source, candidate, name):
        for hypothesis, predict in tried.items():
            counts[hypothesis] += int(np.count_nonzero(predict(old) == new))
    return counts


def in_step(source: CheckpointView, candidate: CheckpointView, name: str) -> Iterator[tuple[Words, Words]]:
    """Walk over both sides of a tensor, so many elements at a time, as words of their dtypes."""
    kinds = source.tensor(name).dtype, candidate.tensor(name).dtype
    step = min(ELEMENTS, max(-(-candidate.tensor(name).elements // 4), 1))  # never all of a tensor at once
    sizes = [step * view.tensor(name).unit[1] for view in (source, candidate)]
    pairs = zip(source.chunks(name, sizes[0]), candidate.chunks(name, sizes[1]), strict=True)
    for old, new in pairs:
        yield words(old, kinds[0]), words(new, kinds[1])


def transposed(source: CheckpointView, candidate: CheckpointView, name: str) -> int | None:
    """Count the elements that are where the transpose, value by value, would put them; None where there is none."""
    import numpy as np

    old, new = source.tensor(name), candidate.tensor(name)
    if len(old.shape) != 2 or old.shape != new.shape[::-1] or not castable(old.dtype, new.dtype):
        return None
    rows, columns = new.shape
    total = 0
    for row in range(0, rows, TILE):
        for column in range(0, columns, TILE):
            there = (row, min(row + TILE, rows)), (column, min(column + TILE, columns))
            expected = cast(_tile(source, old, *there[::-1]), old.dtype, new.dtype)
            total += int(np.count_nonzero(_tile(candidate, new, *there) == expected.T))
        source.forget(name)
        candidate.forget(name)
    return total


def _tile(view: CheckpointView, tensor: Tensor, rows: tuple[int, int], columns: tuple[int, int]) -> Words:
    import numpy as np

    _, size = tensor.unit
    width = tensor.shape[1]
    lines = [
        words(
            view.read(tensor.name, (row * width + columns[0]) * size, (row * width + columns[1]) * size), tensor.dtype
        )
        for row in range(*rows)
    ]
    return np.stack(lines)


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
