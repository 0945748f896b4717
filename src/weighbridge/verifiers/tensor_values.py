"""tensor_values: hold every tensor of a candidate against what it is meant to be made of, value by value.

One row a tensor that either side has. A count in `reproduced` is of elements, bit for bit: `identical` under one
dtype, `value-cast` as the source's value rounded to nearest even, `requantised` as ggml's quantiser gives it. Only a
tensor that none of them explains is read again, for errors and hypotheses; blocks that no quantiser gives again are
read once, for errors, and once more for each other making where some of them are not like their values. Knows no
threshold and gives no class a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from weighbridge.comparison import bytewise, hypotheses, identical_tensors, value_errors
from weighbridge.comparison.aligned_tensor import AlignedTensor
from weighbridge.comparison.attribution import attributed, errors_otherwise
from weighbridge.comparison.block_values import BLOCKS
from weighbridge.comparison.choose_mapping import planned
from weighbridge.comparison.exact_casts import ExactCast, find_exact_cast
from weighbridge.comparison.mapping_plan import Pairing, Plan
from weighbridge.errors import SubjectError
from weighbridge.model import Basis, Fields, Json, Measurement, Rows, SubjectKind
from weighbridge.scheduling import threads
from weighbridge.scheduling.job import JobSpec
from weighbridge.verifiers.canary_values import damage
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.checkpoint import CheckpointView

Place: TypeAlias = tuple[str, bool]  # a tensor's name, and whether it is the candidate's

QUANTITY = "tensor_values"
ABSENT: Fields = {
    "compared": False,
    "reproduced": {},
    "first_difference": None,
    "relative_rmse": None,
    "max_error": None,
    "max_ulps": None,
    "lost_share": None,
    "same_values": None,
    "generated_error": None,
    "other": None,
    "errors_otherwise": {},
}


def measure(views: Views, options: Fields) -> Measurement:
    """Compare source and candidate tensor by tensor, each in its mapping; with `headers`, their labels alone.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    (found,) = batch([views], options)
    if isinstance(found, SubjectError):
        raise found
    return found


def batch(several: Sequence[Views], options: Fields) -> tuple[Measurement | SubjectError, ...]:
    """Compare several candidates with one source, each of its tensors beside all that is made of it."""
    prepared = [_prepared(views, options) for views in several]
    jobs = [job for job in prepared if isinstance(job, _Pair)]
    specs = [JobSpec(pair, (job.source, job.candidate), options) for job in jobs]
    found = iter(zip(jobs, threads.run_jobs(list(zip(jobs, specs, strict=True))), strict=True))
    return tuple(job if isinstance(job, SubjectError) else _told(*next(found)) for job in prepared)


def _prepared(views: Views, options: Fields) -> _Pair | SubjectError:
    try:
        return pair(views, options)
    except SubjectError as error:
        return error


def _told(job: _Pair, rows: tuple[Fields, ...] | SubjectError) -> Measurement | SubjectError:
    if isinstance(rows, SubjectError):
        return rows
    return Measurement(
        quantity=QUANTITY,
        value=Rows("name", rows),
        by="weighbridge.verifiers.tensor_values/1",
        at=job.plan.name,
        unit="elements",
        basis=dict.fromkeys(rows[0], Basis.MEASURED) if rows else {},
        examined=len(rows),
        total=len(rows),
    )


def pair(views: Views, options: Fields) -> _Pair:
    """Prepare the tasks, one a tensor."""
    source, candidate = views
    plan = planned(source, candidate, options)
    return _Pair(source, candidate, plan, hypotheses.Namesakes(source), contents=not options.get("headers"))


@dataclass(frozen=True, slots=True)
class _Pair:
    source: CheckpointView
    candidate: CheckpointView
    plan: Plan
    namesakes: hypotheses.Namesakes
    contents: bool

    def sizes(self) -> dict[Place, int]:
        """Give the bytes of what there is to describe: the candidate's tensors, then the source's that make none."""
        used = self.plan.used()
        places = [(name, True) for name in self.candidate.names()]
        places += [(name, False) for name in self.source.names() if name not in used]
        views = {True: self.candidate, False: self.source}
        return {place: views[place[1]].tensor(place[0]).nbytes * self.contents for place in places}

    def locality(self, place: Place) -> str:
        """Name the source's tensor that is read, or the candidate's where it has none."""
        name, new = place
        pairing = self.plan.pairings.get(name) if new else None
        return name if pairing is None else pairing.parts[0].source

    def fingerprint(self) -> str:
        """Digest the mapping and what there is to describe."""
        return hashlib.sha256(repr((self.plan, self.sizes())).encode()).hexdigest()

    def row(self, place: Place) -> Fields:
        """Describe one tensor."""
        name, new = place
        if new:
            return self._made(name) if name in self.plan.pairings else self._alone(name, self.candidate, name)
        return self._alone(f"{name} (source)" if name in self.candidate.tensors else name, self.source, name)

    def _alone(self, place: str, view: CheckpointView, name: str) -> Fields:
        """Describe a tensor that one side has alone, and the tensor of that side that it repeats."""
        tensor, here = view.tensor(name), view is self.source
        found = {
            "name": place, "sources": [name] if here else [], "made": "",
            "source_dtype": tensor.dtype if here else "", "candidate_dtype": "" if here else tensor.dtype,
            "source_shape": list(tensor.shape) if here else [], "candidate_shape": [] if here else list(tensor.shape),
            "elements": tensor.elements, "nonzero": not self.contents or bytewise.any_nonzero(view, name),
            "source_bytes": tensor.nbytes if here else 0, "candidate_bytes": 0 if here else tensor.nbytes,
            "twin": self._twin(view, name), "listed": self.plan.listed.get(name, "") if here else "", **ABSENT,
            **self._generated(name, here=here),
        }  # fmt: skip
        view.forget(name)
        return found

    def _generated(self, name: str, *, here: bool) -> Fields:
        """Measure how far a tensor without a source is from what its configuration gives."""
        meant = self.plan.generated.get(name)
        if here or meant is None or not self.contents:
            return {}
        return {
            "made": "from the configuration",
            "generated_error": value_errors.from_table(self.candidate, name, meant),
        }

    def _twin(self, view: CheckpointView, name: str) -> str | None:
        other = self.plan.tied.get(name)
        if other is None or other not in view.tensors:
            return None
        return other if not self.contents or identical_tensors.same((view, other), (view, name)) else None

    def _made(self, name: str) -> Fields:
        pairing = self.plan.pairings[name]
        aligned = AlignedTensor(self.source, self.candidate, pairing)
        new = aligned.new
        old = [self.source.tensor(part.source) for part in pairing.parts]
        try:
            return {
                "name": name, "sources": list(dict.fromkeys(tensor.name for tensor in old)), "made": pairing.made,
                "source_dtype": aligned.dtype, "candidate_dtype": new.dtype, "source_shape": list(pairing.shape),
                "candidate_shape": list(new.shape), "elements": new.elements,
                "nonzero": not self.contents or bytewise.any_nonzero(self.candidate, name),
                "source_bytes": sum(tensor.nbytes for tensor in old), "candidate_bytes": new.nbytes,
                "twin": None, "listed": "", **(self._compared(aligned, pairing) if self.contents else ABSENT),
            }  # fmt: skip
        finally:
            self.candidate.forget(name)

    def _compared(self, aligned: AlignedTensor, pairing: Pairing) -> Fields:
        new = aligned.new
        found: dict[str, Json] = dict(ABSENT)
        counts: dict[str, int] = {}
        if pairing.shape == new.shape and aligned.dtype:
            found |= self._along(
                aligned, find_exact_cast(aligned.dtype, new.dtype, computed=bool(pairing.arithmetic)), counts
            )
        if found["lost_share"] and new.dtype in BLOCKS:
            found["errors_otherwise"] = errors_otherwise(aligned, self.plan)
        if new.elements and new.elements not in counts.values():
            tried, other = attributed(aligned, self.plan, self.namesakes)
            counts |= tried
            found["other"] = other
        return found | {"reproduced": counts}

    def _along(self, aligned: AlignedTensor, exact_cast: ExactCast | None, counts: dict[str, int]) -> dict[str, Json]:
        """Count what the plainest exact cast gives; where it gives not all, or there is none, measure the errors."""
        first = None
        if exact_cast is not None:
            counts[exact_cast.name], first = value_errors.count(aligned, exact_cast)
            if exact_cast.name == "identical" and exact_cast.cast:
                counts["value-cast"] = counts["identical"]
        if exact_cast is not None and counts[exact_cast.name] == aligned.new.elements:
            return {"compared": True}
        told = value_errors.errors(aligned, exact_cast, first)
        return {"compared": exact_cast is not None or bool(told)} | told


def extent(views: Views, options: Fields) -> int:
    """Count the tensors of the candidate, and those of the source that make none of them."""
    source, candidate = views
    return len(candidate.names()) + len(set(source.names()) - planned(source, candidate, options).used())


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Flip one bit in the last byte of the last of two tensors that can be compared."""
    if options.get("headers"):
        return NoCanary("no content was looked at")
    source, candidate = views
    return damage(views, planned(source, candidate, options), lambda cut: measure(cut, options))


VERIFIER = Verifier(
    quantity=QUANTITY,
    kinds=(SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT),
    measure=measure,
    extent=extent,
    canary=canary,
    batch=batch,
)
