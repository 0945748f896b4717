"""Say of scales what no quantiser writes: bits of another dtype, and of FP8's what is inverted, lost or far off."""

import re
import statistics
from collections.abc import Iterable, Mapping

from weighbridge.core import Floats, np
from weighbridge.formats.tensor import Tensor
from weighbridge.packing.packed_weights import FP8, PackedWeight
from weighbridge.packing.packing_rules import reads
from weighbridge.packing.unpacking import LARGEST_F8, floats
from weighbridge.views.checkpoint import CheckpointView

LARGEST = 1000.0  # of a weight: trained ones are far below, and the inverse of a scale is far above
FEWEST = 4  # layers, or weights, that have a median
APART, BEYOND = 32.0, 256.0  # times the median of the same weight in other layers; times that of all weights
NUMBER = re.compile(r"\.\d+\.")
UPPER = 0x77  # of the bits of a code without its sign: 240, which codes reach that were scaled, and weights do not
STEP = 1 << 20  # bytes
ENOUGH = 32  # scales that tell a dtype
# Bits of BF16 that are read as F16: eight octaves become one, around 1; nine in ten scales of weights lie below 0.1.
AROUND, ALIKE = (0.6, 1.4), 1.25
TINY = 1e-10  # bits of F16 that are read as BF16
SCALE_FIRST = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL")  # blocks that begin with a scale in F16


def implausible_scales(view: CheckpointView, weights: Iterable[PackedWeight]) -> dict[str, str]:
    """Return what is wrong with scales of FP8, by the names of the codes that they go with."""
    wrong, known = dict[str, str](), dict[str, float]()
    layers: dict[str, list[float]] = {"": []}
    for weight in weights:
        for one in weight.scales:
            if not one.elements or not (reads(one) or one.dtype == "U8"):
                continue
            values, alone = floats(view.read(one.name, 0, one.nbytes), one.dtype), len(weight.scales) == 1
            if said := mislabelled(values, one.dtype):
                wrong.setdefault(weight.codes.name, said)
            if not any(each.dtype in FP8 for each in (weight.codes, *weight.scales)):
                continue
            codes = weight.codes if alone and weight.codes.dtype == "F8_E4M3" else None
            if said := _by_itself(view, values, codes):
                wrong.setdefault(weight.codes.name, f"its scales {said}")
            if codes is not None and 0 < (most := float(values.max())) < np.inf:
                known[codes.name] = most
                layers[""].append(most)
                layers.setdefault(_place(codes.name), []).append(most)
    return {name: said for name, most in known.items() if (said := _beside(most, layers, _place(name)))} | wrong


def scales_of_blocks(view: CheckpointView, tensor: Tensor) -> str:
    """Return what is wrong with the scales of the first of ggml's blocks, which a quantiser stores in F16."""
    size = tensor.unit[1]
    data = np.frombuffer(view.read(tensor.name, 0, STEP // size * size), np.uint8).reshape(-1, size)
    return mislabelled(floats(memoryview(data[:, :2].tobytes()), "F16"), "F16")


def mislabelled(scales: Floats, dtype: str) -> str:
    """Return that scales lie as bits of the other dtype of 16 bits do; empty where they do not."""
    sizes = np.abs(scales[(scales != 0) & np.isfinite(scales)])
    if sizes.size < ENOUGH or dtype not in ("F16", "BF16"):
        return ""
    least, median, most = map(float, np.quantile(sizes, (0.05, 0.5, 0.95)))
    around = AROUND[0] < least < most < AROUND[1] and most < least * ALIKE
    if median < TINY if dtype == "BF16" else around:
        other = "F16" if dtype == "BF16" else "BF16"
        return f"its scales in {dtype} are around {median:.4g}, where bits of {other} lie under that label"
    return ""


def _place(name: str) -> str:
    return NUMBER.sub(".*.", name, count=1)


def _by_itself(view: CheckpointView, scales: Floats, codes: Tensor | None) -> str:
    least, most = float(scales.min()), float(scales.max())
    if not (least >= 0 and 0 < most < np.inf):  # also of NaN
        return f"are from {least:.4g} to {most:.4g}, which no quantiser writes"
    if codes is not None and most * LARGEST_F8 > LARGEST:
        return f"go up to {most:.4g} and make weights up to {most * LARGEST_F8:.4g}: their inverse may be meant"
    if codes is not None and least == most == 1:
        chunks = view.chunks(codes.name, STEP)
        if any(((np.frombuffer(chunk, np.uint8) & 0x7F) >= UPPER).any() for chunk in chunks):
            return "are all 1, and codes above 224 are those of weights that were scaled"
    return ""


def _beside(most: float, layers: Mapping[str, list[float]], place: str) -> str:
    for alike, least, beyond, what in ((layers[place], 1 / APART, APART, "layers"), (layers[""], 0, BEYOND, "weights")):
        # Of two in the middle the lower one: of as many that are small and large, the large ones are named.
        median = statistics.median_low(alike)
        if len(alike) >= FEWEST and not median * least < most < median * beyond:
            return f"its scales go up to {most:.4g}, where the median of {len(alike)} {what} is {median:.4g}"
    return ""
