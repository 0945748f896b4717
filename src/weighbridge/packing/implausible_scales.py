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
TYPICAL = 32.0  # the same of most weights of a model: of trained ones it is around 1, whatever single layers have
FEWEST, APART, BEYOND = 4, 32.0, 256.0  # that have a median; times that of the same weight, and of all weights
SAMPLE = 1 << 12  # blocks
NUMBER = re.compile(r"\.\d+\.")
UPPER = 0x77  # of the bits of a code without its sign: 240, which codes reach that were scaled, and weights do not
# Bits of BF16 that are read as F16: eight octaves become one, around 1; nine in ten scales of weights lie below 0.1.
ENOUGH, LEAST, MOST, ALIKE = 32, 0.6, 1.4, 1.25
TINY = 1e-10  # bits of F16 that are read as BF16


def implausible_scales(view: CheckpointView, weights: Iterable[PackedWeight]) -> dict[str, str]:
    """Return what is wrong with scales, by the names of the codes that they go with."""
    wrong, known, largest = dict[str, str](), dict[str, float](), dict[str, float]()
    for weight in weights:
        for one in (one for one in weight.scales if one.elements and (reads(one) or one.dtype == "U8")):
            values, codes = floats(view.read(one.name, 0, one.nbytes), one.dtype), weight.codes
            of_fp8 = any(each.dtype in FP8 for each in (codes, *weight.scales))
            alone = codes if len(weight.scales) == 1 and codes.dtype == "F8_E4M3" else None
            if said := _mislabelled(values, one.dtype) or (_of_fp8(view, values, alone) if of_fp8 else ""):
                wrong.setdefault(codes.name, f"its scales {said}")
            elif alone or (len(weight.scales) == 1 and reads(one) and values.max() > 0):
                known[codes.name] = most = float(values.max())
                largest |= {codes.name: most * _largest_code(view, codes, TYPICAL / most)} if alone else {}
    return _too_large(largest) | _far_off(known) | wrong


def scales_of_blocks(view: CheckpointView) -> dict[str, str]:
    """Return of each matrix of Q8_0 in a layer how far its first scales are from those of other layers, if they are."""
    known = dict[str, float]()
    for one in (one for one in view.tensors.values() if one.dtype == "Q8_0" and NUMBER.search(one.name)):
        stored = np.frombuffer(view.read(one.name, 0, SAMPLE * one.unit[1]), np.uint8).reshape(-1, one.unit[1])
        known[one.name] = float(np.abs(stored[:, :2].copy().view("<f2")).max(initial=0))
    return dict.fromkeys(known, "") | _far_off({name: most for name, most in known.items() if 0 < most < np.inf})


def _far_off(known: Mapping[str, float]) -> dict[str, str]:
    """Return what is said of weights whose largest scale is far from that of the same weight in other layers."""
    wrong, layers = dict[str, str](), dict[str, list[float]]()
    for name, most in known.items():
        for place in ("", NUMBER.sub(".*.", name, count=1)):
            layers.setdefault(place, []).append(most)
    # Of two in the middle the lower one: of as many that are small and large, the large ones are named.
    medians = {place: statistics.median_low(all_of) for place, all_of in layers.items() if len(all_of) >= FEWEST}
    for name, most in known.items():
        for place, least, beyond in ((NUMBER.sub(".*.", name, count=1), 1 / APART, APART), ("", 0, BEYOND)):
            median, many = medians.get(place, most), len(layers[place])
            if not median * least < most < median * beyond:
                of = f"{many} {'layers' if place else 'weights'}"
                wrong.setdefault(name, f"its scales go up to {most:.4g}, where the median of {of} is {median:.4g}")
    return wrong


def _too_large(largest: Mapping[str, float]) -> dict[str, str]:
    """Return what is said of weights that are larger than trained ones, where most of the file's are."""
    large = {name: size for name, size in largest.items() if size > TYPICAL}
    if len(largest) < FEWEST or 2 * len(large) <= len(largest):
        return {}
    share = f"as of {len(large)} of {len(largest)} weights: those of trained models lie far below"
    return {name: f"its scales make weights up to {size:.4g}, {share}" for name, size in large.items()}


def _largest_code(view: CheckpointView, codes: Tensor, least: float) -> float:
    """Return the largest of the first codes of FP8; 0 without a look where none can be as large as `least`."""
    if least >= LARGEST_F8 or not codes.elements:
        return 0.0
    stored = np.frombuffer(view.read(codes.name, 0, 1 << 20), np.uint8) & 0x7F
    return float(floats(memoryview(stored[stored < 0x7F].max(keepdims=True, initial=0)), "F8_E4M3")[0])


def _mislabelled(scales: Floats, dtype: str) -> str:
    sizes = np.abs(scales[(scales != 0) & np.isfinite(scales)])
    if sizes.size < ENOUGH or dtype not in ("F16", "BF16"):
        return ""
    least, median, most = map(float, np.quantile(sizes, (0.05, 0.5, 0.95)))
    other = "F16" if dtype == "BF16" else "BF16"
    wrong = median < TINY if dtype == "BF16" else LEAST < least < most < MOST and most < least * ALIKE
    return f"in {dtype} are around {median:.4g}, where bits of {other} lie under that label" if wrong else ""


def _of_fp8(view: CheckpointView, scales: Floats, codes: Tensor | None) -> str:
    least, most = float(scales.min()), float(scales.max())
    if not (least >= 0 and 0 < most < np.inf):  # also of NaN
        return f"are from {least:.4g} to {most:.4g}, which no quantiser writes"
    if codes is not None and most * LARGEST_F8 > LARGEST:
        return f"go up to {most:.4g} and make weights up to {most * LARGEST_F8:.4g}: their inverse may be meant"
    stored = view.chunks(codes.name, 1 << 20) if codes is not None and least == most == 1 else ()
    if any(((np.frombuffer(chunk, np.uint8) & 0x7F) >= UPPER).any() for chunk in stored):
        return "are all 1, and codes above 224 are those of weights that were scaled"
    return ""
