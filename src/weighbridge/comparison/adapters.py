"""Compare weights with a base and a LoRA adapter that was merged into it: W + s·BA, within what rounding makes of it.

s, A and B are read as PEFT writes them, those of embeddings and DoRA's magnitudes, too. A tensor that the adapter saved
whole stands in the place of the base's. What has another algebra has no rule.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from weighbridge.comparison.aligned_tensor import ELEMENTS
from weighbridge.comparison.casts import decode, words
from weighbridge.comparison.value_errors import PRECISION, SMALLEST
from weighbridge.core import SubjectError, np
from weighbridge.core.frozen import dataclass, fields, replace
from weighbridge.mapping.mapping_plan import Pairing
from weighbridge.views.checkpoint import CheckpointView, json_beside
from weighbridge.views.module_patterns import is_quick

CONFIG, MAX_CONFIG = "adapter_config.json", 4 << 20
OUTER = "base_model.model."
LINEAR, EMBEDDED = (".lora_A.weight", ".lora_B.weight"), (".lora_embedding_A", ".lora_embedding_B")
MAGNITUDE, WRAPPED = ".lora_magnitude_vector", ".base_layer."
NO_RULE = ("use_qalora", "use_bdlora", "lora_bias", "layer_replication", "target_parameters", "trainable_token_indices")
ROUNDINGS = 3  # of the update before it is added: the product, the scale, the cast
NORM_ROUNDINGS = 4  # of DoRA's weight: the sum, its norm, the quotient of magnitude and norm, the product
MERGED, UNMERGED, TWICE, SCALED = "adapter-merged", "adapter-not-merged", "adapter-merged-twice", "adapter-scaled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """What an adapter adds to one weight: scale × high @ low, by the names of its tensors, transposed or not."""

    low: str
    high: str
    scale: float
    transposed: bool
    magnitude: str = ""  # the lengths that the rows of the sum are then brought to


@dataclass(frozen=True, slots=True, kw_only=True)
class AdaptedView(CheckpointView):
    """A base beside an adapter: what the adapter adds, by the base's names."""

    adapter: CheckpointView
    updates: Mapping[str, Update]


def adapted(base: CheckpointView, adapter: CheckpointView) -> AdaptedView:
    """Return a base with what an adapter adds to it; refuse with `adapter` what has no rule, or is another base's."""
    if (config := json_beside(adapter, CONFIG, MAX_CONFIG)) is None:
        refuse(adapter, f"there is no {CONFIG} beside it, which says its scale")
    kind, other = config.get("peft_type"), next((key for key in NO_RULE if config.get(key)), "")
    if kind != "LORA" or other:
        refuse(adapter, f"not compared: no rule for {other or kind if kind == 'LORA' else kind} of an adapter")
    ends = {name: end for name in adapter.names() for end in (LINEAR, EMBEDDED) if name.endswith(end[0])}
    updates = dict(_update(name, end, base, adapter, config) for name, end in ends.items())
    known = {one for update in updates.values() for one in (update.low, update.high, update.magnitude)}
    # What an adapter saved whole, by the base's names.
    others = [one for one in adapter.names() if one not in known]
    whole = {one.removeprefix(OUTER).replace(WRAPPED, "."): one for one in others}
    shapes = {name: base.tensor(at).shape if at in base.tensors else None for at, name in whole.items()}
    if unknown := [one for one in others if shapes.get(one) != adapter.tensor(one).shape]:  # or a name twice
        refuse(adapter, f"not compared: no rule for {len(unknown)} of its tensors, such as {unknown[0]}")
    if not adapter.tensors:
        refuse(adapter, "it has no tensors, so nothing can have been merged")
    saved = {at: replace(adapter.tensor(name), name=at) for at, name in whole.items()}
    as_it_is = {field.name: getattr(base, field.name) for field in fields(CheckpointView)}
    as_it_is |= {"tensors": {**base.tensors, **saved}, "files": {**base.files, **(adapter.files if saved else {})}}
    return AdaptedView(**as_it_is, adapter=adapter, updates=updates)


def _update(
    low: str, ends: tuple[str, str], base: CheckpointView, adapter: CheckpointView, config: Mapping[str, Any]
) -> tuple[str, Update]:
    """Return the weight that a pair of the adapter's tensors is added to, and what is added."""
    stem = low.removesuffix(ends[0])
    high, module = stem + ends[1], stem.removeprefix(OUTER)
    weight, magnitude = f"{module}.weight", stem + MAGNITUDE if stem + MAGNITUDE in adapter.tensors else ""
    if high not in adapter.tensors:
        refuse(adapter, f"{low} has no {high} beside it")
    if weight not in base.tensors:
        refuse(adapter, f"it changes {weight}, which the base does not have: another model's adapter, or other names")
    rank, turned = adapter.tensor(low).shape[0], ends is EMBEDDED or bool(config.get("fan_in_fan_out"))
    if bool(config.get("use_dora")) is not bool(magnitude) or (magnitude and turned):
        what = f"no rule for use_dora of {module}: its rows are no outputs, or have no magnitude"
        refuse(adapter, f"not compared: {what}")
    shape = adapter.tensor(high).shape[:1] + adapter.tensor(low).shape[1:]
    there = base.tensor(weight).shape
    if adapter.tensor(high).shape[1:] != (rank,) or there != (shape[::-1] if turned else shape):
        refuse(adapter, f"{low} and {high} give {list(shape)}, {weight} of the base is {list(there)}")
    alpha, given = (
        of_module(config, *keys, module) for keys in (("alpha_pattern", "lora_alpha"), ("rank_pattern", "r"))
    )
    if type(alpha) not in (int, float):
        refuse(adapter, f"{CONFIG} has no number lora_alpha, or a pattern of another form before it")
    if given not in (None, rank):  # by which lora_alpha is divided
        refuse(adapter, f"{CONFIG} says r = {given}, and {low} has {rank} rows")
    scale = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return weight, Update(low=low, high=high, scale=scale, transposed=turned, magnitude=magnitude)


def of_module(config: Mapping[str, Any], patterns: str, key: str, module: str) -> Any:
    """Return what a configuration says of a module, by the end of its name as PEFT does; None by a pattern unread."""
    given = config.get(patterns)
    rows = given if isinstance(given, dict) else {}
    if not all(map(is_quick, rows)):
        return None
    return next((one for name, one in rows.items() if re.fullmatch(rf"(.*\.)?({name})", module)), config.get(key))


def update_of(source: CheckpointView, pairing: Pairing) -> Update | None:
    """Return what an adapter adds to what a tensor is made of, or None where it adds nothing."""
    if not isinstance(source, AdaptedView):
        return None
    return next((source.updates[part.source] for part in pairing.parts if part.source in source.updates), None)


def reproduced(
    source: AdaptedView, candidate: CheckpointView, pairing: Pairing, update: Update
) -> tuple[dict[str, int], float | None]:
    """Count the elements that each hypothesis gives within roundings, and the update's share; none without a rule."""
    name, weight = pairing.candidate, pairing.parts[0].source
    dtypes = source.tensor(weight).dtype, candidate.tensor(name).dtype
    if not pairing.plain or pairing.shape != candidate.tensor(name).shape or not {*dtypes} <= PRECISION.keys():
        return {}, None
    sides = _Sides(source, candidate, pairing, update, dtypes)
    with np.errstate(all="ignore"):  # of infinite weights: they are within no bound, and their share is no number
        shares = {MERGED: 1.0, UNMERGED: 0.0, TWICE: 2.0, SCALED: (share := sides.share())}
        return dict(zip(shares, sides.within([*shares.values()]), strict=True)), share


@dataclass(frozen=True, slots=True)
class _Sides:
    source: AdaptedView
    candidate: CheckpointView
    pairing: Pairing
    update: Update
    dtypes: tuple[str, str]

    def share(self) -> float:
        """Return how many times the update is in the candidate, by least squares; 1 where nothing is added."""
        # So one is found that is smaller than the roundings, which elements by themselves do not tell.
        along = whole = 0.0
        for base, new, added, _ in self._steps():
            along += float(((new - base) * added).sum())
            whole += float((added * added).sum())
        return along / whole if whole else 1.0

    def within(self, shares: list[float]) -> list[int]:
        """Count the elements that are so many updates from the base, within what rounding makes of it."""
        counts = [0] * len(shares)
        unit, least = (max(of.get(dtype, 0.0) for dtype in self.dtypes) for of in (PRECISION, SMALLEST))
        for base, new, added, size in self._steps():
            for at, share in enumerate(shares):
                meant, off = base + share * added, abs(share) * size + least / 2
                bound = unit * (abs(meant) * (1 + unit) + ROUNDINGS * abs(share * added)) + off
                counts[at] += int(((abs(new - meant) <= bound * max(1.0, share)) & np.isfinite(bound)).sum())
        return counts

    def _steps(self) -> Any:
        """Yield base, candidate, update, and the error of a product in float32, some rows at a time, in float64."""
        adapter = self.source.adapter
        names = (self.update.low, self.update.high)
        low, high = (_rows(adapter, name, 0, adapter.tensor(name).shape[0]) for name in names)
        first, second = (low.T, high.T) if self.update.transposed else (high, low)
        error = (low.shape[0] + 4) * PRECISION["F32"] * abs(self.update.scale)
        weight, name = self.pairing.parts[0].source, self.pairing.candidate
        unit = max(PRECISION[dtype] for dtype in self.dtypes)
        rows, columns = self.pairing.shape
        step = max(ELEMENTS // 4 // max(columns, 1), 1)
        for at in range(0, rows, step):
            stop = min(at + step, rows)
            base, new = (_rows(view, one, at, stop) for view, one in ((self.source, weight), (self.candidate, name)))
            part = first[at:stop]
            added, size = self.update.scale * (part @ second), error * (np.abs(part) @ np.abs(second))
            if self.update.magnitude:
                meant = base + added
                factor = _rows(adapter, self.update.magnitude, at, stop) / np.linalg.norm(meant, axis=1, keepdims=True)
                added = meant * factor - base
                size = size * np.abs(factor) + NORM_ROUNDINGS * unit * np.abs(meant * factor)
            yield base, new, added, size
        self.source.forget(weight)
        self.candidate.require_unchanged(name)
        for one in names:
            adapter.require_unchanged(one)


def _rows(view: CheckpointView, name: str, start: int, stop: int) -> Any:
    tensor = view.tensor(name)
    size = math.prod(tensor.shape[1:]) * tensor.unit[1]
    stored = words(view.read(name, start * size, stop * size), tensor.dtype)
    return decode(stored, tensor.dtype).astype("f8").reshape(stop - start, -1)


def refuse(adapter: CheckpointView, what: str) -> NoReturn:
    """Refuse an adapter, with `adapter`."""
    where, remedy = next(iter(adapter.files), ""), "bind the adapter's directory, and the base that it was trained on"
    raise SubjectError("adapter", what, where=where, remedy=remedy)
