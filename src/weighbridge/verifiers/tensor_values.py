"""tensor_values: compare every tensor of a candidate with what it is meant to be made of, value by value.

One row a tensor that either side has. A count in `reproduced` is of elements, bit for bit: `identical`, `value-cast`
(rounded to nearest even) or `requantised` (by ggml's quantiser). Only what none of them explains is read again, for
errors and hypotheses. Knows no threshold and gives no class a name.
"""

import contextlib
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

from weighbridge.comparison import bytewise, value_errors
from weighbridge.comparison.adapters import AdaptedView, reproduced, update_of
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.attribution import attributed, errors_otherwise, head_counts
from weighbridge.comparison.casts import BLOCKS, ExactCast, decode, words
from weighbridge.core import Fields, Json, Measurement, SubjectError, SubjectKind, dataclass, replace, sha256
from weighbridge.formats.tensor import numpy_dtype
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.mapping.mapping_plan import NO_RULE, Pairing, Plan
from weighbridge.model_config.model_description import describe_model
from weighbridge.packing import unpacked_view
from weighbridge.packing.channel_factors import Channels
from weighbridge.packing.packing_rules import reads
from weighbridge.packing.stored_codes import CodeErrors
from weighbridge.packing.unpacked_view import UnpackedView, UnpackedWeight, both_unpacked, packed_parts, packed_weight
from weighbridge.packing.unpacking import Rule, floats
from weighbridge.quantities.tensors import OWN_KEYS, PADDED, TensorPair
from weighbridge.scheduling import threads
from weighbridge.scheduling.threads import HERE, Execution, JobSpec
from weighbridge.verifiers.damaged_tensors import canary_of_values
from weighbridge.verifiers.verifier import Canary, MeasurementJob, NoCanary, Verifier, Views, table
from weighbridge.views.checkpoint import CheckpointView

Place: TypeAlias = tuple[str, bool]  # a tensor's name, and whether it is the candidate's

QUANTITY = "tensor_values"
KEYS = "packing-keys"  # what gives elements whose codes and scales are the source's, byte for byte
OF_CACHE = (".k_scale", ".v_scale")
ZERO_BIAS = "a bias of zeros beside a packed weight, which adds nothing"
CACHE_SCALE = "a scale of the cache of keys and values, which no source has: it was not compared"
ABSENT: dict[str, Any] = {  # of a tensor whose content was not compared
    **dict.fromkeys(("differing_bytes", "first_difference", "relative_rmse", "max_error", "max_ulps", "lost_share")),
    **dict.fromkeys(("same_values", "identical_to", "generated_error", "other", "overflowed")),
    "compared": False,
    "reproduced": {},
    "errors_otherwise": {},
}


def measure(views: Views, options: Fields) -> Measurement:
    """Compare tensor by tensor, with `headers` dtypes and shapes alone; refuse `subject-changed` what is written to."""
    (found,) = batch([MeasurementJob(VERIFIER, views)], options, HERE)
    if isinstance(found, SubjectError):
        raise found
    return found


def batch(asked: Sequence[MeasurementJob], options: Fields, execution: Execution) -> list[Measurement | SubjectError]:
    """Compare several candidates with one source, each of its tensors beside all that is made of it."""
    jobs: dict[int, _Pair] = {}
    found: dict[int, Measurement | SubjectError] = {}
    for at, (_, views) in enumerate(asked):
        try:
            jobs[at] = pair(views, options)
        except SubjectError as error:
            found[at] = error
    prepared = [(job, JobSpec(pair, job.stored, options)) for job in jobs.values()]
    for at, rows in zip(jobs, threads.run_jobs(prepared, execution), strict=True):
        plan = jobs[at].plan.name
        found[at] = rows if isinstance(rows, SubjectError) else table(QUANTITY, rows, at=plan, unit="elements")
    return [found[at] for at in range(len(asked))]


def pair(views: Views, options: Fields) -> "_Pair":
    """Prepare the tasks, one a tensor."""
    source, candidate = both_unpacked(views)
    cut, plan = _of_old_rows(source, candidate, planned(source, candidate, options))
    plan = replace(plan, heads=tuple(dict.fromkeys((*plan.heads, *head_counts(source), *head_counts(candidate)))))
    rescaled = isinstance(candidate, UnpackedView) and candidate.rescaled
    rescaled = rescaled and not all(one.keys for one in candidate.packed.values())
    channels = Channels(source, candidate, plan) if rescaled else None
    return _Pair(views, source, cut, plan, bytewise.LookAlikes(source), not options.get("headers"), channels)


def _of_old_rows(source: CheckpointView, candidate: CheckpointView, plan: Plan) -> tuple[CheckpointView, Plan]:
    """Cut a padded vocabulary to the rows that the source has, where both sides state as many as their tensors hold."""
    pairs = [(one, candidate.tensor(one.candidate)) for one in plan.pairings.values() if one.plain and one.shape]
    longer = [(one, new) for one, new in pairs if new.shape[1:] == one.shape[1:] and new.shape[:1] > one.shape[:1]]
    sizes: list[Json] = []
    with contextlib.suppress(SubjectError):  # reported where configurations are compared
        stated = [describe_model(view).model.fields for view in (source, candidate) if longer]
        sizes += [fields["vocab_size"].value for fields in stated if "vocab_size" in fields]
    longer = [(one, new) for one, new in longer if sizes == [one.shape[0], new.shape[0]]]
    view = candidate.of_rows({new.name: one.shape[0] for one, new in longer if not packed_weight(candidate, new.name)})
    cut = [new.name for _, new in longer if view.tensor(new.name) != new]
    if not cut:
        return candidate, plan
    rows = f"{sizes[0]} of {sizes[1]} rows"
    made = {name: replace(plan.pairings[name], transform=rows) for name in cut}
    name = f"{plan.name}, {' and '.join(cut)}: {rows} {PADDED}"
    return view, replace(plan, name=name, pairings={**plan.pairings, **made})


@dataclass(frozen=True, slots=True)
class _Pair:
    stored: Views
    source: CheckpointView
    candidate: CheckpointView
    plan: Plan
    alike: bytewise.LookAlikes
    contents: bool
    channels: Channels | None

    def sizes(self) -> dict[Place, int]:
        """Return the bytes of both sides to describe: the candidate's tensors, then the source's that make none."""
        used = self.plan.used()
        pairs = ((name, one.parts) for name, one in self.plan.pairings.items())
        made_of = {name: sum(self.source.tensor(part.source).nbytes for part in parts) for name, parts in pairs}
        found = {(name, True): self.candidate.tensor(name) for name in self.candidate.names()}
        found |= {(name, False): self.source.tensor(name) for name in self.source.names() if name not in used}
        both = ((place, one.nbytes + made_of.get(place[0], 0) * place[1]) for place, one in found.items())
        return {place: size * self.contents for place, size in both}

    def locality(self, place: Place) -> str:
        """Return the source's tensor that is read, or the candidate's where it has none."""
        pairing = self.plan.pairings.get(place[0]) if place[1] else None
        return place[0] if pairing is None else pairing.parts[0].source

    def fingerprint(self) -> str:
        """Digest the mapping and what there is to describe."""
        return sha256(repr((self.plan, self.sizes())).encode())

    def row(self, place: Place) -> TensorPair:
        """Describe one tensor."""
        name, new = place
        if not new:
            return self._alone(f"{name} (source)" if name in self.candidate.tensors else name, self.source, name)
        pairing = self.plan.pairings.get(name)
        if pairing is None:
            return self._alone(name, self.candidate, name)
        update = update_of(self.source, pairing)
        if update is not None:  # a weight that an adapter was meant to be merged into
            row = replace(self._by_name(pairing), source_shape=pairing.shape, transform="W + s·BA")
            assert isinstance(self.source, AdaptedView)
            found, share = reproduced(self.source, self.candidate, pairing, update) if self.contents else ({}, None)
            self.candidate.forget(name)
            return replace(row, compared=bool(found), reproduced=found, adapter_share=share)
        packed = packed_parts(self.source, self.candidate, pairing)
        row = self._packed(pairing, packed) if packed else self._made(pairing)
        if self.channels is None:
            return row
        same = row.elements in row.reproduced.values() or not row.compared
        return replace(row, rescaled=True, channels_off=None if same else self.channels.off(row.name))

    def _alone(self, place: str, view: CheckpointView, name: str) -> TensorPair:
        """Describe a tensor that one side has alone: what it repeats, and how far it is from what was generated."""
        tensor, here, plan = view.tensor(name), view is self.source, self.plan
        side, other = ("source", "candidate") if here else ("candidate", "source")
        found: dict[str, Any] = ABSENT | {f"{other}_dtype": "", f"{other}_shape": (), f"{other}_bytes": 0}
        found |= {f"{side}_dtype": tensor.dtype, f"{side}_shape": tensor.shape, f"{side}_bytes": tensor.nbytes}
        found |= {"sources": (name,) if here else (), "drop_rule": plan.drop_rules.get(name, "") if here else ""}
        found |= {"transform": "", "left_out": plan.left_out.get(name, "")}
        if not here and self.contents and (meant := plan.generated.get(name)) is not None:
            error = value_errors.from_table(self.candidate, name, meant)
            found |= {"transform": "from the configuration", "generated_error": error}
        tied = "" if here and isinstance(view, AdaptedView) and name in view.updates else plan.tied.get(name, "")
        if tied in view.tensors and (not self.contents or bytewise.same((view, tied), (view, name))):
            found["identical_to"] = tied
        if here and (key := self._moved(name)):
            found["identical_to"] = key
        found["nonzero"] = not self.contents or bytewise.any_nonzero(view, name)
        if here and not found["nonzero"] and name.endswith("bias"):
            found["drop_rule"] = found["drop_rule"] or plan.zero_biases
        found["left_out"] = found["left_out"] or ("" if here or not self.contents else self._by_a_packer(name))
        view.forget(name)
        no_rule = plan.untried if name in plan.without_rule else ""
        return TensorPair(name=place, elements=tensor.elements, no_rule=no_rule, **found)

    def _by_a_packer(self, name: str) -> str:
        """Return why a packer adds a tensor that no source has and that changes no weight; "" where none does so."""
        view, tensor = self.candidate, self.candidate.tensor(name)
        if name.endswith(".bias") and packed_weight(view, f"{name.removesuffix('bias')}weight") is not None:
            return "" if bytewise.any_nonzero(view, name) else ZERO_BIAS
        if not (isinstance(view, UnpackedView) and name.endswith(OF_CACHE) and reads(tensor)):
            return ""
        values = floats(view.read(name, 0, tensor.nbytes), tensor.dtype)
        return CACHE_SCALE if ((values > 0) & (values < math.inf)).all() else ""

    def _moved(self, name: str) -> str:
        """Return the key of the candidate's header that has a learned number; "" where none has, or another one."""
        key, value = self.plan.in_header.get(name, ("", 0.0))
        if key and self.contents:
            tensor = self.source.tensor(name)
            stored = words(self.source.read(name, 0, tensor.nbytes), tensor.dtype)
            return key if decode(stored, tensor.dtype).tolist() == [value] else ""
        return key

    def _packed(self, pairing: Pairing, packed: Sequence[UnpackedWeight]) -> TensorPair:
        """Describe a weight that is packed on some side: codes against the source's values, or values unpacked."""
        new = packed_weight(self.candidate, pairing.candidate)
        if new is not None and new.unloadable:
            row = replace(self._by_name(pairing), unloadable=new.unloadable)
        elif new is not None and new.keys:
            row = self._by_own_keys(unpacked_view.as_stored(pairing, new), packed)
        elif new is not None and new.contradicts:
            row = self._by_name(pairing)
            row = replace(row, compared=self.contents, not_nearest=row.elements)
        elif any(weight.rule is None for weight in packed):
            row = self._by_name(pairing)
        elif new is not None:
            row = self._by_codes(unpacked_view.as_stored(pairing, new), new)
        else:
            row = self._unpacked(pairing)
        keys = f"{OWN_KEYS}{new.keys}" if new is not None and new.keys else ""
        return replace(row, packed=" and ".join(dict.fromkeys(weight.packed for weight in packed)) + keys)

    def _by_own_keys(self, pairing: Pairing, packed: Sequence[UnpackedWeight]) -> TensorPair:
        """Describe codes that both sides store alike, each side's read by its own keys."""
        contradicts = any(weight.contradicts for weight in packed)
        if not self.contents or any(weight.rule is None and not weight.contradicts for weight in packed):
            return self._by_name(pairing)
        row = replace(self._by_name(pairing), reproduced={"identical": 0}) if contradicts else self._made(pairing)
        row = replace(row, compared=True, first_difference=None, candidate_dtype=row.source_dtype)
        old, new = self.stored
        names = packed[0].stored if len({weight.stored for weight in packed}) == 1 else ()
        if names and all(bytewise.same((old, one), (new, one)) for one in names):
            row = replace(row, differing_bytes=0, reproduced={**row.reproduced, KEYS: row.elements})
        return row

    def _unpacked(self, pairing: Pairing) -> TensorPair:
        """Describe what was made of packed weights, which one library computes in 16 bits and another in F32."""
        row, source = self._made(pairing), self.source
        for part in pairing.parts:
            source = unpacked_view.widened(source, part.source)
        if source is self.source or row.elements in row.reproduced.values():
            return row
        other = replace(self, source=source)._made(pairing)  # noqa: SLF001 -- its own kind
        return other if other.elements in other.reproduced.values() else row

    def _by_codes(self, pairing: Pairing, weight: UnpackedWeight) -> TensorPair:
        row, aligned = self._by_name(pairing), AlignedTensor(self.source, self.candidate, pairing)
        rule, shape, fits = weight.rule, aligned.new.shape, pairing.shape == aligned.new.shape
        row = replace(row, source_shape=pairing.shape, candidate_shape=shape, candidate_dtype=weight.codes.dtype)
        if not (self.contents and fits and isinstance(rule, Rule) and numpy_dtype(aligned.dtype) is not None):
            return row
        assert isinstance(self.candidate, UnpackedView)
        fitted = None if self.channels is None else self.channels.fitted(row.name)
        found = CodeErrors(rule, self.candidate.stored, fitted and (fitted[0].values, fitted[1].values))
        for rows in unpacked_view.row_stretches(aligned, rule):
            found.add(rows, aligned.dtype)
        row = replace(row, relative_rmse=found.relative_rmse, error_in_steps=found.error_in_steps, **found.fitted)
        return replace(row, compared=True, not_nearest=found.not_nearest)

    def _by_name(self, pairing: Pairing) -> TensorPair:
        """Describe a tensor without its values; codes have a shape of their own, so they get the other side's."""
        name = pairing.candidate
        new, old = self.candidate.tensor(name), [self.source.tensor(part.source) for part in pairing.parts]
        shape = new.shape if packed_weight(self.candidate, name) is None else pairing.shape
        found: dict[str, Any] = ABSENT | {"transform": pairing.transform, "drop_rule": ""}
        found |= {"source_shape": shape, "candidate_shape": shape}
        found |= {"source_dtype": old[0].dtype, "source_bytes": sum(tensor.nbytes for tensor in old)}
        found |= {"candidate_dtype": new.dtype, "candidate_bytes": new.nbytes}
        found["nonzero"] = not self.contents or bytewise.any_nonzero(self.candidate, name)
        stated = self.candidate.metadata.get("general.file_type")
        found["file_type"] = stated if isinstance(stated, int) else None
        sources = tuple(dict.fromkeys(tensor.name for tensor in old))
        return TensorPair(name=name, sources=sources, elements=math.prod(shape), **found)

    def _made(self, pairing: Pairing) -> TensorPair:
        row = self._by_name(pairing)
        if pairing.arithmetic == NO_RULE:
            return row
        aligned = AlignedTensor(self.source, self.candidate, pairing)
        # A product is rounded to a dtype anyway: one in the source's own keeps all that the source's dtype holds.
        dtype = aligned.dtype if pairing.arithmetic else aligned.stored_dtype
        found: dict[str, Any] = {"source_dtype": dtype, "source_shape": pairing.shape}
        found |= {"candidate_shape": aligned.new.shape, "elements": aligned.new.elements}
        try:
            return replace(row, **found, **(self._compared(aligned) if self.contents else {}))
        finally:
            self.candidate.forget(aligned.new.name)

    def _compared(self, aligned: AlignedTensor) -> dict[str, Any]:
        new, pairing, counts, found = aligned.new, aligned.pairing, dict[str, int](), dict[str, Any]()
        if pairing.shape == new.shape and aligned.dtype:
            found |= self._along(aligned, aligned.exact_cast, counts)
        if found.get("lost_share") and new.dtype in BLOCKS:
            found["errors_otherwise"] = errors_otherwise(aligned, self.plan)
        explained = not new.elements or new.elements in counts.values()
        if not explained and self.plan.untried:
            found["no_rule"] = self.plan.untried
        elif not explained:
            tried, found["other"] = attributed(aligned, self.plan, self.alike)
            counts |= tried
        old = self.source.tensor(pairing.parts[0].source)
        alike = len(pairing.parts) == 1 and pairing.parts[0].plain and old.nbytes == new.nbytes
        if found.get("differing_bytes") is None and alike and (old.dtype == new.dtype or not explained):
            found["differing_bytes"] = bytewise.differing((self.source, old.name), (self.candidate, new.name))
        return found | {"reproduced": counts}

    def _along(self, aligned: AlignedTensor, exact_cast: ExactCast | None, counts: dict[str, int]) -> dict[str, Any]:
        """Count what the plainest exact_cast gives; where no exact_cast is exact, or it is not, measure the errors."""
        if exact_cast is None:
            found = value_errors.errors(aligned, None)
            return found | {"compared": bool(found)}
        counted = value_errors.count(aligned, exact_cast)
        counts[exact_cast.name] = counted.elements
        if exact_cast.name == "identical" and exact_cast.cast:
            counts["value-cast"] = counted.elements
        found = {} if counted.elements == aligned.new.elements else value_errors.errors(aligned, exact_cast)
        found |= {"first_difference": counted.first, "differing_bytes": counted.differing_bytes}
        return found | {"overflowed": counted.overflowed, "compared": True}


def extent(views: Views, options: Fields) -> int:
    """Count the tensors of the candidate, and those of the source that make none of them."""
    source, candidate = both_unpacked(views)
    return len(candidate.names()) + len(set(source.names()) - planned(source, candidate, options).used())


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Damage the candidate's last unit, where contents are compared."""
    return NoCanary("no content was looked at") if options.get("headers") else canary_of_values(views, options, measure)


KINDS = (SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT)
VERIFIER = Verifier(quantity=QUANTITY, kinds=KINDS, measure=measure, extent=extent, canary=canary, batch=batch)
