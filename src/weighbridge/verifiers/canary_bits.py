"""Lay a known pattern over a tensor, and say what a seeing instrument must now report of its bits.

The checkpoint is cut down first, so that the trial costs little whatever its size. Decides nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from weighbridge.comparison import bit_laws
from weighbridge.model import Measurement, Unmeasured
from weighbridge.quantities.tensors import BitReading, TensorBits
from weighbridge.verifiers.verifier import Canary, NoCanary, rows_by_name, two_of
from weighbridge.views.checkpoint import CheckpointView, Tensor

NOTHING = "no tensor holds floating words"
# One, and minus the next number after it: the last word alone sets the sign and the last bit.
ONES: Mapping[str, tuple[int, int]] = {
    "F16": (0x3C00, 0xBC01),
    "BF16": (0x3F80, 0xBF81),
    "F32": (0x3F800000, 0xBF800001),
    "F64": (0x3FF0000000000000, 0xBFF0000000000001),
}


def damage(
    view: CheckpointView, elements: int, sample: int, measure: Callable[[CheckpointView], Measurement]
) -> Canary | NoCanary:
    """Overlay the last of two tensors with ones, and its last word with minus the next number after one."""
    names = [name for name in view.names() if view.tensor(name).dtype in ONES and view.tensor(name).elements]
    kept = two_of(names, lambda name: min(view.tensor(name).elements, elements))
    if not kept:
        return NoCanary(NOTHING)
    cut, name = view.cut(kept, elements), kept[-1]
    tensor = cut.tensor(name)
    most, last = (word.to_bytes(tensor.unit[1], "little") for word in ONES[tensor.dtype])
    damaged = cut.overlaid(name, 0, most * (tensor.elements - 1) + last)
    after = _told(measure(damaged))
    wanted = dataclasses.replace(_told(measure(cut))[name], **expected(tensor, sample))

    def seen(found: Measurement | Unmeasured) -> bool:
        told = _told(found)
        return told.get(name) == wanted and told == after

    return Canary(name="ones, and one word unlike them", place=name, views=(damaged,), seen=seen)


def expected(tensor: Tensor, sample: int) -> dict[str, Any]:
    """Say what the pattern must measure as."""
    import numpy as np

    most, last = ONES[tensor.dtype]
    sampled = (tensor.elements - 1) // -(-tensor.elements // sample) + 1
    told: dict[str, Any] = {
        "zeros": 0,
        "or_word": f"{most | last if tensor.elements > 1 else last:#x}",
        "trailing_zero_bits": 0,
        "sampled": sampled,
        "nonzero": sampled,
    }
    if tensor.dtype == "F64":
        return told
    counts = np.zeros(bit_laws.SYMBOLS, np.int64)
    counts[0x78 if tensor.dtype == "F16" else 0x7F] = sampled
    reading = BitReading(negative=1, symbols=1, excess=bit_laws.excess(counts))
    return {**told, "as_stored": reading, "half_divergence": 1.0}


def _told(found: Measurement | Unmeasured) -> dict[str, TensorBits]:
    """Take the rows without what the pattern does not foretell."""
    return {
        name: dataclasses.replace(row, byte_swapped=None, half_entropy=None)
        for name, row in rows_by_name(found).items()
    }
