"""moment_changes: how far mean, spread and extremes of each tensor are from those of what it is meant to be made of."""

from collections.abc import Collection, Mapping
from typing import Any

from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.casts import values
from weighbridge.core import Fields, Measurement, Unmeasured
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.mapping.mapping_plan import NO_RULE, Plan
from weighbridge.packing.unpacked_view import both_unpacked, packed_parts
from weighbridge.quantities.tensors import STATISTICS, MomentChanges
from weighbridge.verifiers import tensor_values
from weighbridge.verifiers.damaged_tensors import ENOUGH, canary_of_codes
from weighbridge.verifiers.tensor_moments import Moments
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, rows_by_name, table, two_of
from weighbridge.views.checkpoint import CheckpointView

QUANTITY = "moment_changes"
UNKNOWN: Mapping[str, Any] = {"source": {}, "candidate": {}, **dict.fromkeys((*STATISTICS, "finite"))}
LARGEST = 1e300  # a change from zero


def measure(views: Views, options: Fields) -> Measurement:
    """Measure the tensors of both sides, each in its mapping; refuse with `mapping` names that nothing maps."""
    source, candidate = both_unpacked(views)
    plan = planned(source, candidate, options)
    rows = [_row(source, candidate, plan, name) for name in candidate.names()]
    for name in sorted(set(source.names()) - plan.used()):
        tensor, place = source.tensor(name), f"{name} (source)" if name in candidate.tensors else name
        dtypes = {"source_dtype": tensor.dtype, "candidate_dtype": ""}
        rows.append(MomentChanges(name=place, elements=tensor.elements, **dtypes, **UNKNOWN))
    return table(QUANTITY, rows, at=plan.name)


def of_tensors(views: Views, options: Fields, names: Collection[str]) -> dict[str, MomentChanges]:
    """Measure some of the candidate's tensors alone, by name."""
    source, candidate = both_unpacked(views)
    plan = planned(source, candidate, options)
    return {name: _row(source, candidate, plan, name) for name in names if name in candidate.tensors}


def _row(source: CheckpointView, candidate: CheckpointView, plan: Plan, name: str) -> MomentChanges:
    pairing, new = plan.pairings.get(name), candidate.tensor(name)
    old = source.tensor(pairing.parts[0].source).dtype if pairing else ""
    alike = pairing is not None and pairing.shape == new.shape and pairing.arithmetic != NO_RULE
    found = _changes(AlignedTensor(source, candidate, pairing)) if pairing and alike else UNKNOWN
    return MomentChanges(name=name, source_dtype=old, candidate_dtype=new.dtype, elements=new.elements, **found)


def _changes(aligned: AlignedTensor) -> Mapping[str, Any]:
    """Return the statistics of both sides and the changes; nothing where values cannot be read."""

    def change(was: float | None, now: float | None) -> float | None:
        if was is None or now is None or was == now:
            return None if was is None or now is None else 0.0
        return min(abs(now - was) / abs(was), LARGEST) if was else LARGEST

    old, new = Moments(aligned.new), Moments(aligned.new)
    for _, stored, there in aligned.steps() if aligned.dtype else ():
        before, after = values(stored.view("u1"), aligned.dtype), values(there, aligned.new.dtype)
        if before is None or after is None:
            return UNKNOWN
        old.merge(before)
        new.merge(after)
    was, now = ({"finite": float(one.count), **one.statistics()} for one in (old, new))
    changes = {name: change(was[name], now[name]) for name in was}
    return {"source": was, "candidate": now, **changes} if old.count or new.count else UNKNOWN


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Cut a few tensors out of both sides and overlay the last one of the candidate with zeros."""
    source, candidate = both_unpacked(views)
    plan = planned(source, candidate, options)
    # What is unpacked has no bytes of its own.
    stored = ((name, one) for name, one in plan.pairings.items() if not packed_parts(source, candidate, one))
    fits = sorted(name for name, one in stored if one.plain and one.shape == candidate.tensor(name).shape)
    names = two_of(fits, lambda name: min(candidate.tensor(name).elements, ENOUGH))
    source, candidate = views
    cut = source.cut(tuple(plan.pairings[name].parts[0].source for name in names)), candidate.cut(names)
    before = rows_by_name(measure(cut, options))
    last = next((name for name in reversed(names) if before[name].candidate.get("rms")), "")
    if not last:
        return canary_of_codes(views, options, measure)
    damaged = cut[1].overlaid(last, 0, bytes(cut[1].tensor(last).nbytes))

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        others = all(after.get(name) == row for name, row in before.items() if name != last)
        row = after[last]
        zeros = (row.candidate.get("rms"), row.candidate.get("zero_share"), row.rms) == (0.0, 1.0, 1.0)
        return others and zeros and row.source == before[last].source

    return Canary(name="a tensor of zeros", place=last, views=(cut[0], damaged), seen=seen)


KINDS, extent = tensor_values.KINDS, tensor_values.extent
VERIFIER = Verifier(quantity=QUANTITY, kinds=KINDS, measure=measure, extent=extent, canary=canary)
