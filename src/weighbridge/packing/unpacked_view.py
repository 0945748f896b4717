"""Look at a checkpoint with each packed weight, by its name, in place of what is stored of it."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.comparison.aligned_tensor import ELEMENTS, AlignedTensor
from weighbridge.comparison.casts import BLOCKS, DECODED
from weighbridge.core import Words, np
from weighbridge.core.frozen import dataclass, fields, replace
from weighbridge.formats.tensor import Tensor
from weighbridge.mapping.mapping_plan import Pairing
from weighbridge.packing.packed_weights import alike, by_names, recognised, settings_of, unlike_keys
from weighbridge.packing.packing_rules import ContradictionError, rule_of
from weighbridge.packing.unloadable import unloadable
from weighbridge.packing.unpacking import Blocks, Rule
from weighbridge.quantities.checkpoints import is_named
from weighbridge.views.checkpoint import CheckpointView

F32 = 4  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedWeight:
    """One weight that is stored packed: how, in words; its codes; the rule that reads it, None where there is none."""

    packed: str
    codes: Tensor
    stored: tuple[str, ...]
    rule: Rule | Blocks | None = None
    contradicts: bool = False  # codes and scales cannot belong together
    turned: bool = False  # shown with the last two dimensions exchanged, as a source's that is stored so
    unloadable: str = ""  # why no loader unpacks it
    keys: str = ""  # with their values: those by which the other side's codes, stored alike, may be read otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedView(CheckpointView):
    """A checkpoint with its packed weights as tensors, by name; `stored` is what it was made of."""

    packed: Mapping[str, UnpackedWeight]
    stored: CheckpointView
    rescaled: bool  # its packer scales channels, and undoes it in norms and in the layers before

    def chunks(self, name: str, size: int) -> Iterator[memoryview]:
        """Walk over a tensor's bytes in steps of `size`, unpacked where a rule reads it."""
        rule, whole = self._rule(name), self.tensors[name].nbytes
        if rule is None:
            yield from CheckpointView.chunks(self, name, size)
            return
        self.require_unchanged(name)
        step = math.prod(rule.shape[-2:]) * F32 if self.packed[name].turned else size
        for at in range(0, whole, step):  # a turned matrix is read once
            part = self.read(name, at, at + step)
            yield from (part[start : start + size] for start in range(0, len(part), size))
            self.forget(name)
        self.require_unchanged(name)

    def read(self, name: str, start: int, stop: int) -> memoryview:
        """Look at bytes `start` to `stop` of a tensor, unpacked where a rule reads it."""
        if (rule := self._rule(name)) is None:
            return CheckpointView.read(self, name, start, stop)
        tensor = self.tensors[name]
        stop, width = min(stop, tensor.nbytes), tensor.unit[1]
        first, last = start // width, -(-stop // width)
        if not self.packed[name].turned or isinstance(rule, Blocks):
            return rule.decoded(self.stored, first, last).data.cast("B")[start - first * width :][: stop - start]
        size = math.prod(rule.shape[-2:])
        matrices = [self._matrix(rule, at) for at in range(first // size, -(-last // size))]
        whole = matrices[0] if len(matrices) == 1 else memoryview(b"".join(matrices))
        return whole[start - first // size * size * width :][: stop - start]

    def _matrix(self, rule: Rule, at: int) -> memoryview:
        """Return one matrix of a stack, with rows and columns exchanged."""
        rows, columns = rule.shape[-2:]
        turned, step = np.empty((columns, rows), np.uint32), max(ELEMENTS // columns, 1)
        for row in range(0, rows, step):
            first, last = at * rows + row, at * rows + min(row + step, rows)
            part = rule.decoded(self.stored, first * columns, last * columns)
            turned[:, row : row + step] = part.reshape(-1, columns).T
        return turned.data.cast("B")

    def forget(self, name: str) -> None:
        """Release the memory that reading a tensor took."""
        for stored in stored_as(self, name):
            self.stored.forget(stored)

    def require_unchanged(self, name: str) -> None:
        """Raise `subject-changed` where a file that holds some of a tensor is not what it was when it was opened."""
        for stored in stored_as(self, name):
            self.stored.require_unchanged(stored)

    def _rule(self, name: str) -> Rule | Blocks | None:
        return self.packed[name].rule if name in self.packed else None


def unpacked(view: CheckpointView, other: CheckpointView, *, source: bool) -> CheckpointView:
    """Return the view with packed weights in place of tensors that the other side does not store or read alike."""
    gguf = view.format == "gguf"
    apart = {} if gguf else unlike_keys(*((view, other) if source else (other, view)))
    named = () if gguf else tuple(by_names(view))
    wrong = unloadable(view, settings_of(view), named) if named and other.tensors and not source else {}
    found = {} if gguf else recognised(view, other, named, apart=bool(apart), wrong=wrong)
    packed = dict(_blocks(view, other)) if source and gguf else {}
    if not (found or packed):
        return view
    settings = settings_of(view) if found else {}
    for name, weight in found.items():
        stored = tuple(one.name for one in weight.members.values())
        keys = apart if alike(weight.codes, other) else {}
        reads = weight.packing.reads if weight.packing else ()
        said, why, lost = weight.summary(settings), ", ".join(keys.values()), wrong.get(weight.codes.name, "")
        one = UnpackedWeight(packed=said, codes=weight.codes, stored=stored, keys=why, unloadable=lost)
        try:
            known = not lost and all(is_named(key, reads) for key in keys)
            rule = rule_of(weight, settings, lambda one: view.read(one.name, 0, one.nbytes)) if known else None
            why = ", and no quantization_config says how" if rule is None and reads and not (settings or lost) else ""
            turned = source and rule is not None and rule.turned
            packed[name] = replace(one, packed=one.packed + why, rule=rule, turned=turned)
        except ContradictionError as problem:
            packed[name] = replace(one, packed=f"{one.packed}, but {problem}", contradicts=True)
    replaced = {stored for one in packed.values() for stored in one.stored}
    tensors = {name: tensor for name, tensor in view.tensors.items() if name not in replaced}
    tensors |= {name: _tensor(name, one) for name, one in packed.items()}
    as_it_is = {field.name: getattr(view, field.name) for field in fields(CheckpointView)} | {"tensors": tensors}
    return UnpackedView(**as_it_is, packed=packed, stored=view, rescaled=settings.get("quant_method") == "awq")


def packed_alone(view: CheckpointView) -> tuple[CheckpointView, Mapping[str, UnpackedWeight]]:
    """Return a checkpoint with its packed weights in place of what is stored of them, and these by name."""
    whole = unpacked(view, view.cut(()), source=False)
    return whole, whole.packed if isinstance(whole, UnpackedView) else {}


def both_unpacked(views: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return both sides with their packed weights in place of what is stored of them."""
    source, candidate = views
    return unpacked(source, candidate, source=True), unpacked(candidate, source, source=False)


def _blocks(view: CheckpointView, other: CheckpointView) -> Iterator[tuple[str, UnpackedWeight]]:
    """Yield ggml's blocks that the other side holds as plain values: under the same name, or in another format."""
    for name, tensor in view.tensors.items():
        there = other.tensors.get(name)
        if tensor.dtype in BLOCKS and (other.format != "gguf" if there is None else there.dtype not in BLOCKS):
            rule = Blocks(tensor=tensor) if tensor.dtype in DECODED else None
            yield name, UnpackedWeight(packed=tensor.dtype, codes=tensor, stored=(name,), rule=rule)


def widened(view: CheckpointView, name: str) -> CheckpointView:
    """Return the view with one weight computed in F32; the very view where it is."""
    found = packed_weight(view, name)
    rule = found.rule if found is not None else None
    if not isinstance(view, UnpackedView) or found is None or not isinstance(rule, Rule) or rule.dtype == "F32":
        return view
    wide = replace(found, rule=replace(rule, widened=True))
    return replace(view, packed={**view.packed, name: wide}, tensors={**view.tensors, name: _tensor(name, wide)})


def packed_weight(view: CheckpointView, name: str) -> UnpackedWeight | None:
    """Return how a weight is packed, or None where it is not."""
    return view.packed.get(name) if isinstance(view, UnpackedView) else None


def stored_as(view: CheckpointView, name: str) -> tuple[str, ...]:
    """Return the names of what is stored of a tensor, the codes of a packed weight first."""
    found = packed_weight(view, name)
    return (name,) if found is None else tuple(dict.fromkeys((found.codes.name, *found.stored)))


def packed_parts(source: CheckpointView, candidate: CheckpointView, pairing: Pairing) -> tuple[UnpackedWeight, ...]:
    """Return what is packed of a weight on either side."""
    sides = [(source, part.source) for part in pairing.parts] + [(candidate, pairing.candidate)]
    return tuple(weight for side in sides if (weight := packed_weight(*side)) is not None)


def as_stored(pairing: Pairing, weight: UnpackedWeight) -> Pairing:
    """Return the pairing with the last two dimensions exchanged, where a weight's packing stores them so."""
    if weight.rule is None or not weight.rule.turned or len(pairing.parts) != 1 or not pairing.parts[0].plain:
        return pairing
    *stack, rows, columns = pairing.shape
    return replace(pairing, parts=(replace(pairing.parts[0], transposed=True),), shape=(*stack, columns, rows))


def row_stretches(aligned: AlignedTensor, rule: Rule) -> Iterator[Words]:
    """Walk over the words of what a weight is meant to be, whole rows at a time, or raise `subject-changed`."""
    name, columns, rest = aligned.new.name, rule.codes.columns, None
    aligned.candidate.require_unchanged(name)
    for stretch in aligned.predicted():
        words = stretch if rest is None else np.concatenate([rest, stretch])
        whole = words.size // columns * columns
        yield words[:whole].reshape(-1, columns)
        rest = words[whole:].copy() if whole < words.size else None
        aligned.candidate.forget(name)
    aligned.candidate.require_unchanged(name)


def _tensor(name: str, weight: UnpackedWeight) -> Tensor:
    tensor = replace(weight.codes, name=name)
    if weight.rule is None:
        return tensor
    shape = weight.rule.shape
    if weight.turned:
        shape = (*shape[:-2], shape[-1], shape[-2])
    unpacked = replace(tensor, dtype=weight.rule.dtype, shape=shape, strides=None, pieces=None)
    return replace(unpacked, nbytes=math.prod(shape) * unpacked.unit[1])
