"""Say of packed weights why no loader unpacks them as they are stored: what config.json says of them, or does not."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weighbridge.packing.packed_weights import FP8, INPUT_SCALES, Named, PackedWeight, is_left_out, schemes, skips
from weighbridge.packing.packing_rules import reads
from weighbridge.packing.unpacking import floats
from weighbridge.views.checkpoint import CONFIG, CheckpointView, config_beside

OTHERWISE = ("marlin-24",)  # formats of compressed-tensors whose scales have another name
SCALE = ".weight_scale"
OWN_LOADERS = ("quanto",)  # of packings whose weights lie here with a map of their own
# Methods that no weight stored by another one loads as, and endings that a loader needs where others have them.
METHODS = ("gptq", "awq", "bitsandbytes", "mxfp4", "fp8")
NEEDED = (
    ".qzeros",
    ".weight_zero_point",
    ".weight.quant_map",
    *(f".weight.quant_state.bitsandbytes__{of}4" for of in ("nf", "fp")),
)
OF_BITSANDBYTES = {".weight.absmax": "load_in_4bit", ".SCB": "load_in_8bit"}
ELSEWHERE = ("quant_config.json", "hf_quant_config.json")  # AutoAWQ's and ModelOpt's own, which are not read


def unloadable(view: CheckpointView, settings: Mapping[str, Any], found: Sequence[Named]) -> dict[str, str]:
    """Return why no loader unpacks a weight, of those that were found by their names, by the names of codes."""
    unsaid = bool(found) and not settings and "model_type" in (config_beside(view) or {})
    unsaid = unsaid and not any(map(view.folder.is_visible, ELSEWHERE))
    scale, is_skipped, wrong = _scale_in(found, settings), skips(settings), dict[str, str]()
    of_all = _of_all(found)
    for weight, absent in found:
        packing, says = weight.packing, ""
        named = packing.name.split(" or ") if packing and settings.get("format") not in OTHERWISE else ()
        if absent and settings.get("quant_method") in named and not is_left_out(weight.name, settings):
            says = f"there is no {absent.replace(SCALE, scale)}"
        elif unsaid and packing and packing.reads and packing.name not in OWN_LOADERS and not absent:
            says = f"{CONFIG} has no quantization_config"
        elif is_skipped(weight.name) and not absent:
            says = "quantization_config lists its module as one that is not packed"
        elif packing and not absent:
            lost = next((one for one in of_all.get(packing.mark, ()) if one not in weight.members), "")
            says = (
                f"there is no {weight.name.removesuffix('.weight')}{lost}" if lost else _other_method(weight, settings)
            )
        says = says or _input_scale(view, weight, settings)
        wrong |= {weight.codes.name: says} if says else {}
    return wrong


def _of_all(found: Iterable[Named]) -> dict[str, list[str]]:
    """Return the endings that all weights of a packing have, or all but one of four and more, by its mark."""
    each = [(one.packing.mark, one.members) for one, absent in found if one.packing and not absent]
    many = Counter(mark for mark, _ in each)
    have = Counter((mark, end) for mark, members in each for end in NEEDED if end in members)
    return {mark: [end for end in NEEDED if have[mark, end] >= max(count - 1, 3)] for mark, count in many.items()}


def _other_method(weight: PackedWeight, settings: Mapping[str, Any]) -> str:
    """Return what a configuration says that a weight is packed by, where that is another method than it is."""
    packing, said = weight.packing, settings.get("quant_method")
    if packing is None or said not in METHODS:
        return ""
    key = OF_BITSANDBYTES.get(packing.mark, "") if said in packing.name else ""
    if settings.get(key) is False:
        return f"quantization_config says {key}: false"
    alike = said in packing.name.split(" or ") or (packing.name == "scaled" and said == "fp8")
    return "" if alike else f"quantization_config says {said}, and it is stored as by {packing.name}"


def _input_scale(view: CheckpointView, weight: PackedWeight, settings: Mapping[str, Any]) -> str:
    """Return what is wrong with the scale of what goes into a weight of FP8, which a static scheme has for each."""
    each = [one.get("dynamic") for one in schemes(settings, "input_activations")]
    static = settings.get("activation_scheme") == "static" or (each and all(one is False for one in each))
    known = weight.packing.may if weight.packing and weight.codes.dtype in FP8 and static else ()
    if INPUT_SCALES[0] not in known or is_left_out(weight.name, settings):
        return ""
    given = next((weight.members[one] for one in INPUT_SCALES if one in weight.members), None)
    if given is None:
        return (
            f"its inputs have a static scheme, and no {weight.name.removesuffix('.weight')}{INPUT_SCALES[0]} is there"
        )
    values = floats(view.read(given.name, 0, given.nbytes), given.dtype) if reads(given) else ()
    odd = [float(one) for one in values if not 0 < one < math.inf]  # also NaN
    return f"{given.name} is {odd[0]:.4g}, which no quantiser writes" if odd else ""


def _scale_in(found: Iterable[Named], settings: Mapping[str, Any]) -> str:
    """Return what most scales of FP8 are called here; where there is none, what its configuration has them called."""
    known = [weight.packing for weight, absent in found if not absent and weight.codes.dtype in FP8]
    named = [one.mark for one in known if one and one.codes == ".weight"]
    return statistics.mode([*named, f"{SCALE}_inv" if settings.get("weight_block_size") else SCALE])
