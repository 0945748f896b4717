"""What the scales beside codes of eight bits show without their source: signs, sizes, and those of the same place."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.comparison import casts
from weighbridge.core import np
from weighbridge.packing.packed_weights import marked
from weighbridge.packing.unpacking import LARGEST_F8

LARGEST = 1000.0  # of a weight: trained ones are far below, and the inverse of a scale is far above
APART, LAYERS = 32.0, 4  # times the median of the same weight in so many layers or more
NUMBER = re.compile(r"\.\d+\.")


def findings(view: Any) -> Iterator[Mapping[str, str]]:
    """Yield each weight of FP8 whose scales look wrong: not positive, inverted, or far from the other layers'."""
    found: dict[str, tuple[float, float]] = {}
    layers: dict[str, list[float]] = {}
    for weight in marked(view):
        scales = [one for end, one in weight.members.items() if "_scale" in end and "input" not in end]
        if not weight.codes.dtype.startswith("F8_E4M3") or len(scales) != 1 or not scales[0].elements:
            continue
        stored = np.frombuffer(view.read(scales[0].name, 0, scales[0].nbytes), np.uint8)
        if (values := casts.values(stored, scales[0].dtype)) is not None:
            found[scales[0].name] = float(values.min()), float(values.max())
            layers.setdefault(NUMBER.sub(".*.", scales[0].name, count=1), []).append(float(values.max()))
    for name, (least, most) in found.items():
        others = [one for one in layers[NUMBER.sub(".*.", name, count=1)] if 0 < one < np.inf]
        median, said = statistics.median(others) if len(others) >= LAYERS else most, ""
        if not (least >= 0 and 0 < most < np.inf):  # also of NaN
            said = f"scales from {least:.4g} to {most:.4g}, which no quantiser writes"
        elif most * LARGEST_F8 > LARGEST:
            said = f"scales up to {most:.4g} make weights up to {most * LARGEST_F8:.4g}: their inverse may be meant"
        elif not median / APART < most < median * APART:
            said = f"scales up to {most:.4g}, where the median of {len(others)} layers is {median:.4g}"
        if said:
            yield {"place": name, "gate": "label-plausibility", "code": "scales", "says": f"{name}: {said}"}
