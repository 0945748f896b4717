"""Recognise weights that are stored packed, by the names in `packings.yaml`, a row a packing. Knows no values."""

import functools
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from weighbridge.core import dataclass, table
from weighbridge.formats.tensor import Tensor, short
from weighbridge.quantities.checkpoints import beside_codes, is_named
from weighbridge.views.checkpoint import MAX_CONFIG, CheckpointView, config_beside, json_beside
from weighbridge.views.module_patterns import is_quick

INPUT_SCALES = ".input_scale", ".activation_scale", ".input_activation_scale"
FP8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
# Keys that list modules.
OF_TRANSFORMERS, BY_NAME = ("modules_to_not_convert", "llm_int8_skip_modules"), ("ignored_layers", "ignore")
SKIPPED = (*OF_TRANSFORMERS, *BY_NAME, "exclude_modules")
OF_WEIGHTS = re.compile(r"(?!(?:.*[._])?(?:input|output|act)).*scale")  # endings
BYTES = ("U8", "I8", *FP8)
WORDS = ("I32", "U32", "I16", "U8", "I64")
SETTINGS = "quantization_config"
OF_GPTQ = "quantize_config.json"  # where AutoGPTQ writes its own
PACK_ALL = ("fp8", "fbgemm_fp8", "awq", "gptq", "compressed-tensors")  # methods


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """One way of packing: the endings of what it stores of a weight, all behind the same stem."""

    name: str
    mark: str  # the ending that gives it away
    codes: str
    weight: str  # the ending that the unpacked weight has
    dtypes: tuple[str, ...]  # of the codes
    needs: tuple[str, ...] = ()  # what else has to be there
    may: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # globs of keys


@functools.cache
def packings() -> tuple[Packing, ...]:
    """Read the table of packings."""
    read = table("packing/packings")
    found = []
    for row in read["packings"]:
        given = {"codes": row["mark"], "weight": ".weight", **row}
        given["may"] = (*row.get("may", ()), *(read["activations"] if given.pop("activations", False) else ()))
        given["dtypes"] = {"bytes": BYTES, "fp8": FP8, "words": WORDS}.get(row["dtypes"], row["dtypes"])
        found.append(Packing(**given))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """One weight that is stored packed: the weight's name, its packing where it is known, its tensors by ending."""

    name: str
    packing: Packing | None
    members: Mapping[str, Tensor]

    @property
    def codes(self) -> Tensor:
        """Return the tensor of its codes, or of several unknown ones the largest."""
        if self.packing is not None:
            return self.members[self.packing.codes]
        return max(self.members.values(), key=lambda one: one.nbytes)

    @property
    def scales(self) -> list[Tensor]:
        """Return the tensors of scales that go with the codes, the one that gives the packing away first."""
        return [one for end, one in self.members.items() if OF_WEIGHTS.match(end)]

    def summary(self, settings: Mapping[str, Any]) -> str:
        """Return the packing in words: its method, and the figures that the configuration gives."""

        def said(*keys: str) -> str:
            return next((str(value) for key in keys if (value := short(settings.get(key)))), "")

        method = said("quant_method", "quant_algo") or (self.packing.name if self.packing else "an unknown method")
        form = said("format", "bnb_4bit_quant_type") or ("int8" if ".SCB" in self.members else "")
        bits, group = said("bits", "w_bit"), said("group_size", "q_group_size")
        figures = [form, f"{bits} bits" if bits else "", f"groups of {group}" if group else ""]
        beside = ", ".join(figure for figure in figures if figure)
        return f"{method} ({beside})" if beside else method


Named: TypeAlias = tuple[PackedWeight, str]  # one that was found by the names of its tensors, and what is not there


def recognised(
    view: CheckpointView, other: CheckpointView, named: Iterable[Named], *, apart: bool, wrong: Collection[str]
) -> dict[str, PackedWeight]:
    """Return a checkpoint's packed weights by name, without those whose codes another one has in dtype and shape.

    Where the two are read `apart`, by keys of their own, those are with them, and so is all else that may be codes.
    What lacks its scales is none, but where its codes are known to be `wrong`.
    """
    known = {weight.name: weight for weight, absent in named if not absent or weight.codes.name in wrong}
    found = known | {weight.name: weight for weight in _unmarked(view, other, known)}
    if not apart:
        return {name: weight for name, weight in found.items() if not alike(weight.codes, other)}
    taken = {one.name for weight in found.values() for one in weight.members.values()}
    rest = ((name, one) for name, one in view.tensors.items() if name not in taken and alike(one, other))
    codes = {name: one for name, one in rest if one.dtype in (*BYTES, *WORDS)}
    return found | {name: PackedWeight(name=name, packing=None, members={"": one}) for name, one in codes.items()}


def alike(tensor: Tensor, other: CheckpointView) -> bool:
    """Return whether another checkpoint has a tensor of the same name, dtype and shape."""
    there = other.tensors.get(tensor.name)
    return there is not None and (there.dtype, there.shape) == (tensor.dtype, tensor.shape)


def marked(view: CheckpointView) -> Iterator[PackedWeight]:
    """Yield each weight whose tensors have the names and dtypes of a known packing."""
    return (weight for weight, absent in by_names(view) if not absent)


def by_names(view: CheckpointView) -> Iterator[Named]:
    """Yield the same with the name of what is not there, for those whose codes say what they are by their own name."""
    taken: set[str] = set()
    codes = any(one.dtype in (*BYTES, *WORDS) for one in view.tensors.values())
    marks = tuple(packing.mark for packing in packings()) if codes else ()
    named = [name for name in view.tensors if name.endswith(marks)]
    for packing in packings() if named else ():
        for name in (name for name in named if name.endswith(packing.mark)):
            stem = name.removesuffix(packing.mark)
            endings = dict.fromkeys((packing.codes, packing.mark, *packing.needs, *packing.may))
            members = {end: view.tensors[stem + end] for end in endings if stem + end in view.tensors}
            absent = next((stem + end for end in packing.needs if end not in members), "")
            there = packing.codes in members and not (absent and packing.codes != packing.mark)
            if there and name not in taken and members[packing.codes].dtype in packing.dtypes:
                taken |= set() if absent else {one.name for one in members.values()}
                yield PackedWeight(name=stem + packing.weight, packing=packing, members=members), absent


def is_left_out(weight: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a configuration lists a weight's module, what it is in, or the end of either, as not packed."""
    globs = [one.removeprefix("re:").replace(".*", "*").rstrip("$") for one in listed(settings)]
    named = is_named(f".{weight.removesuffix('.weight')}.", [f"*.{glob}.*" for glob in globs])
    return named or skips(settings)(weight)


def skips(settings: Mapping[str, Any]) -> Callable[[str], bool]:
    """Return what says of a weight whether a loader takes its module for a plain one.

    transformers lists what a name begins with, up to a dot, or ends with; compressed-tensors whole names, or `re:`.
    """
    ends, whole = listed(settings, *OF_TRANSFORMERS), listed(settings, *BY_NAME)
    parts = [rf"(?:{one})(?:(?<=\.)|(?=\.|$))" for one in filter(is_quick, ends)]
    parts += filter(is_quick, (one.removeprefix("re:") for one in whole if one.startswith("re:")))
    begins = [re.compile(part) for part in parts]

    def is_skipped(weight: str) -> bool:
        module = weight.removesuffix(".weight")
        return module.endswith(ends) or module in whole or any(one.match(module) for one in begins)

    return is_skipped


def listed(settings: Mapping[str, Any], *keys: str) -> tuple[str, ...]:
    """Return the modules that a configuration lists as not packed."""
    lists = (settings[key] for key in keys or SKIPPED if isinstance(settings.get(key), list))
    return tuple(str(one) for each in lists for one in each)


def stores_fp8(settings: Mapping[str, Any]) -> bool:
    """Return whether a configuration says that weights are F8_E4M3, with scales."""
    by_group = any((one.get("type"), one.get("num_bits")) == ("float", 8) for one in schemes(settings))
    said = (
        by_group
        or settings.get("quant_method") in ("fp8", "fbgemm_fp8")
        or str(settings.get("quant_algo")).startswith("FP8")
    )
    return said and str(settings.get("fmt", "e4m3")).lower() == "e4m3"


def packs_all(settings: Mapping[str, Any]) -> bool:
    """Return whether a loader packs every linear layer that no list names."""
    groups = settings.get("config_groups") or {}
    linear = isinstance(groups, dict) and all(one == {**one, "targets": ["Linear"]} for one in groups.values())
    return linear and settings.get("quant_method") in PACK_ALL and not settings.keys() & {"dynamic", "extra_config"}


def schemes(settings: Mapping[str, Any], of: str = "weights") -> list[Mapping[str, Any]]:
    """Return how compressed-tensors packs the weights of each group, or what goes into them."""
    groups = settings.get("config_groups")
    found = [one.get(of) for one in groups.values() if isinstance(one, dict)] if isinstance(groups, dict) else []
    return [one for one in found if isinstance(one, dict)]


def _unmarked(view: CheckpointView, other: CheckpointView, known: Mapping[str, PackedWeight]) -> Iterator[PackedWeight]:
    """Yield the other side's weights that this one has under longer names, or as codes, if it says it is quantised."""
    taken = {one.name for weight in known.values() for one in weight.members.values()}
    extra = [name for name in view.tensors if name not in other.tensors and name not in taken]
    if not (extra and settings_of(view)):
        return
    stems = {name.removesuffix(".weight"): name for name in other.tensors if name not in known}
    members: dict[str, dict[str, Tensor]] = {}
    for name in extra:
        parts = name.split(".")
        before = (".".join(parts[:many]) for many in range(len(parts) - 1, 0, -1))  # each dot, the longest first
        stem = next((one for one in before if one in stems), "")
        codes = view.tensors.get(stems[stem]) if stem else None
        if stem and (codes is None or codes.dtype in (*BYTES, *WORDS)):
            found = members.setdefault(stems[stem], {} if codes is None else {".weight": codes})
            found[name.removeprefix(stem)] = view.tensors[name]
    for weight, found in members.items():
        yield PackedWeight(name=weight, packing=None, members=found)


def settings_of(view: CheckpointView) -> Mapping[str, Any]:
    """Return what config.json says of quantisation, MLX's own key over transformers', else AutoGPTQ's own file."""
    config = config_beside(view) or {}
    parts = (config.get(key) for key in ("compression_config", SETTINGS, "quantization"))
    said = {key: value for one in parts if isinstance(one, dict) for key, value in one.items()}
    may_be_gptq = not said and any(name.endswith(".qweight") for name in view.tensors)
    of_gptq = json_beside(view, OF_GPTQ, MAX_CONFIG) if may_be_gptq else None
    return {"quant_method": "gptq", **of_gptq} if of_gptq else said


def unlike_keys(source: CheckpointView, candidate: CheckpointView) -> dict[str, str]:
    """Return the keys of two quantised checkpoints that may read codes otherwise, each with both of its values."""
    if config_beside(source) is None or config_beside(candidate) is None:
        return {}  # codes are then compared as they are stored
    settings = settings_of(source), settings_of(candidate)
    if not all(settings):
        return {SETTINGS: f"{SETTINGS} on one side alone"} if any(settings) else {}
    sides = [dict(_leaves(one)) for one in settings]
    names = (name for name in dict.fromkeys((*sides[0], *sides[1])) if not beside_codes(name))
    values = ((name, *(side.get(name, "unsaid") for side in sides)) for name in names)
    return {name: f"{name} {old} -> {new}" for name, old, new in values if old != new}


def _leaves(settings: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{before}{key}.")
        elif value is not None:
            yield f"{before}{key}", value if isinstance(value, str) else json.dumps(value)
