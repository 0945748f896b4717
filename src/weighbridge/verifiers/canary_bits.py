"""Lay a known pattern over a tensor, and say what a seeing instrument must now report of its bits.

The checkpoint is cut down first, so that the trial costs little whatever its size. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weighbridge.comparison import bit_laws
from weighbridge.model import Fields, Measurement, Rows, Unmeasured
from weighbridge.verifiers.verifier import Canary, NoCanary
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
    names = chosen(view, elements)
    if not names:
        return NoCanary(NOTHING)
    cut, name = view.cut(names, elements), names[-1]
    tensor = cut.tensor(name)
    size = tensor.unit[1]
    most, last = (word.to_bytes(size, "little") for word in ONES[tensor.dtype])
    damaged = cut.overlaid(name, 0, most * (tensor.elements - 1) + last)
    before = {**_rows(measure(cut))[name], **expected(tensor, sample)}
    after = _rows(measure(damaged))

    def seen(found: Measurement | Unmeasured) -> bool:
        told = _rows(found)
        return told.get(name) == before and told == after

    return Canary(name="ones, and one word unlike them", place=name, views=(damaged,), seen=seen)


def chosen(view: CheckpointView, elements: int) -> tuple[str, ...]:
    """Choose a small tensor of floating words, and after it in order another one, the largest that is cheap."""
    names = [name for name in view.names() if view.tensor(name).dtype in ONES and view.tensor(name).elements]
    later = names[1:] or names
    if not later:
        return ()
    last = max(reversed(later), key=lambda name: min(view.tensor(name).elements, elements))
    earlier = names[: names.index(last)]
    return (*sorted(earlier, key=lambda name: view.tensor(name).elements)[:1], last)


def expected(tensor: Tensor, sample: int) -> Fields:
    """Say what the pattern must measure as."""
    most, last = ONES[tensor.dtype]
    stride = -(-tensor.elements // sample)
    sampled = (tensor.elements - 1) // stride + 1
    told: Fields = {
        "zeros": 0,
        "or_word": f"{most | last if tensor.elements > 1 else last:#x}",
        "trailing_zero_bits": 0,
        "sampled": sampled,
        "nonzero": sampled,
    }
    if tensor.dtype == "F64":
        return told
    return {**told, "as_stored": _reading(0x7F if tensor.dtype != "F16" else 0x78, sampled), "half_divergence": 1.0}


def _reading(symbol: int, sampled: int) -> Fields:
    import numpy as np

    counts = np.zeros(bit_laws.SYMBOLS, np.int64)
    counts[symbol] = sampled
    return {"negative": 1, "symbols": 1, "excess": bit_laws.excess(counts)}


def _rows(found: Measurement | Unmeasured) -> dict[str, dict[str, object]]:
    assert isinstance(found, Measurement)
    assert isinstance(found.value, Rows)
    left_out = ("byte_swapped", "half_entropy")
    return {str(row["name"]): {key: row[key] for key in row if key not in left_out} for row in found.value.rows}
