"""tensor_values of a merge: each tensor of a candidate beside its source with an adapter merged into it."""

from collections.abc import Sequence

from weighbridge.comparison.adapters import MERGED, TWICE, UNMERGED, adapted, refuse, update_of
from weighbridge.core import Fields, Measurement, SubjectError, SubjectKind, Unmeasured
from weighbridge.mapping.chosen_mapping import planned
from weighbridge.packing.unpacked_view import both_unpacked
from weighbridge.scheduling.threads import HERE, Execution
from weighbridge.verifiers import tensor_values
from weighbridge.verifiers.verifier import Canary, Found, MeasurementJob, NoCanary, Verifier, Views, rows_by_name

EXPONENT = 0x40  # of the last byte of a float: its highest bit, so that what it stands for is far off, 0 too


def measure(views: Views, options: Fields) -> Measurement:
    """Compare tensor by tensor; refuse with `adapter` what has no rule."""
    (found,) = batch([MeasurementJob(VERIFIER, views)], options, HERE)
    if isinstance(found, SubjectError):
        raise found
    assert isinstance(found, Measurement)
    return found


def batch(asked: Sequence[MeasurementJob], options: Fields, execution: Execution) -> Sequence[Found]:
    """Compare several candidates with one source and one adapter."""
    try:
        jobs = [MeasurementJob(job.verifier, _sides(job.views)) for job in asked]
    except SubjectError as refused:
        return [refused] * len(asked)
    return tensor_values.batch(jobs, options, execution)


def _sides(views: Views) -> Views:
    """Return both sides, the source with what the adapter adds to it; those of a canary are so already."""
    if len(views) < len(KINDS):
        return views
    source, candidate = adapted(*views[:-1]), views[-1]
    if both_unpacked((source, candidate))[0] is not source:  # which would forget the adapter
        refuse(source.adapter, "not compared: no rule for an adapter of a base whose weights are packed")
    return source, candidate


def extent(views: Views, options: Fields) -> int:
    """Count the tensors of the candidate, and those of the source that make none of them."""
    return tensor_values.extent(_sides(views), options)


def canary(views: Views, options: Fields, measurement: Measurement) -> Canary | NoCanary:
    """Damage the last element of a merged weight; where no whole update explains it, what no adapter changes."""
    source, candidate = sides = _sides(views)
    pairings = [one for one in planned(source, candidate, options).pairings.values() if update_of(source, one)]
    pairings = sorted(pairings, key=lambda one: (candidate.tensor(one.candidate).nbytes, one.candidate))[:2]
    names = [one.candidate for one in pairings]
    cut = source.cut(part.source for one in pairings for part in one.parts), candidate.cut(names)
    before, name = rows_by_name(tensor_values.measure(cut, options)), next(reversed(names), "")
    counts = before[name].reproduced if name in before else {}
    whole = (one for one in (MERGED, UNMERGED, TWICE) if one in counts and counts[one] == before[name].elements > 0)
    how = next(whole, "")
    if not how:
        return tensor_values.canary(sides, options, measurement)
    last = candidate.tensor(name).nbytes - 1
    damaged = cut[1].overlaid(name, last, bytes([candidate.read(name, last, last + 1)[0] ^ EXPONENT]))

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        others = all(before[one] == after[one] for one in before if one != name)
        return before.keys() == after.keys() and others and after[name].reproduced[how] == counts[how] - 1

    return Canary(name="one damaged element", place=name, views=(cut[0], damaged), seen=seen)


KINDS = (SubjectKind.CHECKPOINT,) * 3
VERIFIER = Verifier(
    quantity=tensor_values.QUANTITY, kinds=KINDS, measure=measure, extent=extent, canary=canary, batch=batch
)
