"""Recognise weights that are stored packed, by the names in `packings.yaml`, a row a packing. Knows no values."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weighbridge.core import table
from weighbridge.formats.tensor import Tensor, short
from weighbridge.views.checkpoint import CheckpointView, config_beside

BYTES = ("U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
WORDS = ("I32", "U32", "I16", "U8", "I64")


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


@functools.cache
def packings() -> tuple[Packing, ...]:
    """Read the table of packings."""
    read = table("packing/packings")
    found = []
    for row in read["packings"]:
        given = {"codes": row["mark"], "weight": ".weight", **row}
        given["may"] = (*row.get("may", ()), *(read["activations"] if given.pop("activations", False) else ()))
        given["dtypes"] = {"bytes": BYTES, "words": WORDS}.get(row["dtypes"], row["dtypes"])
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

    def summary(self, settings: Mapping[str, Any]) -> str:
        """Return the packing in words: its method, and the figures that the configuration gives."""

        def said(*keys: str) -> str:
            found = (short(settings.get(key)) for key in keys)
            return next((str(value) for value in found if value), "")

        method = said("quant_method", "quant_algo") or (self.packing.name if self.packing else "an unknown method")
        form = said("format", "bnb_4bit_quant_type") or ("int8" if ".SCB" in self.members else "")
        bits, group = said("bits", "w_bit"), said("group_size", "q_group_size")
        figures = [form, f"{bits} bits" if bits else "", f"groups of {group}" if group else ""]
        beside = ", ".join(figure for figure in figures if figure)
        return f"{method} ({beside})" if beside else method


def recognised(view: CheckpointView, other: CheckpointView) -> dict[str, PackedWeight]:
    """Return a checkpoint's packed weights by name, without those whose codes another one has in dtype and shape."""
    known = {weight.name: weight for weight in marked(view)}
    unknown = {weight.name: weight for weight in _left_over(view, other, known)}
    forms = {name: (one.dtype, one.shape) for name, one in other.tensors.items()}
    codes = ((weight, weight.codes) for weight in (known | unknown).values())
    return {weight.name: weight for weight, one in codes if forms.get(one.name) != (one.dtype, one.shape)}


def marked(view: CheckpointView) -> Iterator[PackedWeight]:
    """Yield each weight whose tensors have the names and dtypes of a known packing."""
    taken: set[str] = set()
    codes = any(one.dtype in (*BYTES, *WORDS) for one in view.tensors.values())
    for packing in packings() if codes else ():
        for name in (name for name in view.tensors if name.endswith(packing.mark)):
            stem = name.removesuffix(packing.mark)
            endings = dict.fromkeys((packing.codes, packing.mark, *packing.needs, *packing.may))
            members = {end: view.tensors[stem + end] for end in endings if stem + end in view.tensors}
            whole = {packing.codes, *packing.needs} <= members.keys()
            if whole and name not in taken and members[packing.codes].dtype in packing.dtypes:
                taken |= {one.name for one in members.values()}
                yield PackedWeight(name=stem + packing.weight, packing=packing, members=members)


def _left_over(
    view: CheckpointView, other: CheckpointView, known: Mapping[str, PackedWeight]
) -> Iterator[PackedWeight]:
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
    """Return what the configuration says of quantisation; nothing where it says none."""
    config = config_beside(view) or {}
    found = config.get("quantization_config") or config.get("quantization")
    return found if isinstance(found, dict) else {}
