"""Recognise weights that are stored packed, by the names in `packings.yaml`, a row a packing. Knows no values."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.core import dataclass, table
from weighbridge.formats.tensor import Tensor, short
from weighbridge.quantities.checkpoints import beside_codes, is_named
from weighbridge.views.checkpoint import CheckpointView, config_beside

INPUT_SCALES = ".input_scale", ".activation_scale", ".input_activation_scale"
FP8 = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
SKIPPED = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")  # keys that list modules
OF_WEIGHTS = re.compile(r"(?!(?:.*[._])?(?:input|output|act)).*scale")  # endings
BYTES = ("U8", "I8", *FP8)
WORDS = ("I32", "U32", "I16", "U8", "I64")
SETTINGS = "quantization_config"


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


def recognised(view: CheckpointView, other: CheckpointView, *, apart: bool) -> dict[str, PackedWeight]:
    """Return a checkpoint's packed weights by name, without those whose codes another one has in dtype and shape.

    Where the two are read `apart`, by keys of their own, those are with them, and so is all else that may be codes.
    """
    known = {weight.name: weight for weight in marked(view)}
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


def by_names(view: CheckpointView) -> Iterator[tuple[PackedWeight, str]]:
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
    lists = (settings[key] for key in SKIPPED if isinstance(settings.get(key), list))
    globs = [str(one).removeprefix("re:").replace(".*", "*").rstrip("$") for listed in lists for one in listed]
    return is_named(f".{weight.removesuffix('.weight')}.", [f"*.{glob}.*" for glob in globs])


def stores_fp8(settings: Mapping[str, Any]) -> bool:
    """Return whether a configuration says that weights are F8_E4M3, with scales."""
    by_group = any((one.get("type"), one.get("num_bits")) == ("float", 8) for one in schemes(settings))
    said = (
        by_group
        or settings.get("quant_method") in ("fp8", "fbgemm_fp8")
        or str(settings.get("quant_algo")).startswith("FP8")
    )
    return said and str(settings.get("fmt", "e4m3")).lower() == "e4m3"


def schemes(settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return how compressed-tensors packs the weights of each group."""
    groups = settings.get("config_groups")
    found = [one.get("weights") for one in groups.values() if isinstance(one, dict)] if isinstance(groups, dict) else []
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
    """Return what config.json says of quantisation, MLX's own key over transformers'; nothing where it is silent."""
    config = config_beside(view) or {}
    both = (config.get(SETTINGS), config.get("quantization"))
    return {key: value for one in both if isinstance(one, dict) for key, value in one.items()}


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
