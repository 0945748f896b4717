"""tensor_pairs: compare two checkpoints tensor by tensor, and count what each hypothesis about dtypes reproduces.

One row a name that either side has. `differing_bytes` is null where the sides have different sizes. A count in
`reproduced` is of elements, bit for bit, NaN included; one in a block that differs anywhere is not counted.
`first_difference` is the first differing byte under one label, and under two labels the first element that the
source's value, cast to the candidate's dtype, does not give. Knows no threshold and gives no mechanism a name.
"""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.comparison import bytewise, hypotheses
from weighbridge.comparison.casts import cast, castable, shown
from weighbridge.model import Basis, Fields, Json, Measurement, Rows, SubjectKind
from weighbridge.scheduling import threads
from weighbridge.verifiers.canary_pairs import damage
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views
from weighbridge.views.checkpoint import CheckpointView, Tensor

QUANTITY = "tensor_pairs"
ABSENT: Fields = {
    "differing_bytes": None,
    "first_difference": None,
    "reproduced": {},
    "other": None,
}


def measure(views: Views, _options: Fields) -> Measurement:
    """Compare source and candidate tensor by tensor.

    Raises:
        SubjectError: `subject-changed`, when a file was written to meanwhile.
    """
    source, candidate = views
    pair = _Pair(source, candidate, hypotheses.Namesakes(source))
    rows = threads.map_in_order(pair.row, pair.sizes())
    return Measurement(
        quantity=QUANTITY,
        value=Rows("name", rows),
        by="weighbridge.verifiers.tensor_pairs/1",
        unit="elements",
        basis=dict.fromkeys(rows[0], Basis.MEASURED) if rows else {},
        examined=len(rows),
        total=len(rows),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    source: CheckpointView
    candidate: CheckpointView
    namesakes: hypotheses.Namesakes

    def sizes(self) -> dict[str, int]:
        """Give the bytes of every name that either side has, the candidate's where it has it."""
        tensors = {**self.source.tensors, **self.candidate.tensors}
        return {name: tensors[name].nbytes for name in sorted(tensors)}

    def row(self, name: str) -> Fields:
        """Describe one name on both sides."""
        old, new = self.source.tensors.get(name), self.candidate.tensors.get(name)
        seen = new or old
        assert seen is not None
        try:
            return self._row(name, old, new, seen)
        finally:
            for view in (self.source, self.candidate):
                if name in view.tensors:
                    view.forget(name)

    def _row(self, name: str, old: Tensor | None, new: Tensor | None, seen: Tensor) -> Fields:
        return {
            "name": name,
            "source_dtype": old.dtype if old else "",
            "candidate_dtype": new.dtype if new else "",
            "source_shape": list(old.shape) if old else [],
            "candidate_shape": list(new.shape) if new else [],
            "elements": seen.elements,
            "nonzero": bytewise.any_nonzero(self.candidate if new else self.source, name),
            "source_bytes": old.nbytes if old else 0,
            "candidate_bytes": new.nbytes if new else 0,
            **(self._compared(old, new) if old and new else ABSENT),
        }

    def _compared(self, old: Tensor, new: Tensor) -> Fields:
        counts: dict[str, int] = {}
        found = differing = None
        if old.nbytes == new.nbytes:
            bytes_found = bytewise.compare(self.source, self.candidate, new.name, new.unit[1])
            differing, found = bytes_found.differing_bytes, bytes_found.first
            if old.unit == new.unit and old.shape == new.shape:
                counts["identical"] = bytes_found.equal_units * new.unit[0]
        if old.shape == new.shape and castable(old.dtype, new.dtype):
            if old.dtype == new.dtype:
                counts["value-cast"] = counts["identical"]
            else:
                counts["value-cast"], found = self._cast(old, new)
        other = None if _explained(old, new, counts) else self._attribute(old, new, counts)
        return {
            "differing_bytes": differing,
            "first_difference": None if found is None else self._difference(old, new, found),
            "reproduced": counts,
            "other": other,
        }

    def _cast(self, old: Tensor, new: Tensor) -> tuple[int, int | None]:
        """Count the elements that a value cast gives, and find the first byte of the first that it does not give."""
        import numpy as np

        at, equal, first = 0, 0, None
        for stored, found in hypotheses.in_step(self.source, self.candidate, new.name):
            expected = cast(stored, old.dtype, new.dtype)
            if bytewise.equal(expected, found):
                equal += len(found)
            else:
                same = expected == found
                equal += int(np.count_nonzero(same))
                first = (at + int(same.argmin())) * new.unit[1] if first is None else first
            at += len(found)
        return equal, first

    def _attribute(self, old: Tensor, new: Tensor, counts: dict[str, int]) -> str | None:
        """Try every other hypothesis on a tensor that its source's values do not explain."""
        tried = hypotheses.elementwise(old, new)
        if tried and old.shape == new.shape:
            counts.update(hypotheses.count(self.source, self.candidate, new.name, tried))
        turned = hypotheses.transposed(self.source, self.candidate, new.name)
        if turned is not None:
            counts["transposed"] = turned
        other = self.namesakes.of(self.candidate, new.name)
        if other is not None:
            counts["other-tensor"] = new.elements
        return other

    def _difference(self, old: Tensor, new: Tensor, offset: int) -> Json:
        per, size = new.unit
        index = offset // size * per
        there = _unit(self.candidate, new, index, offset)
        here = _unit(self.source, old, index, offset)
        return {
            "offset": offset,
            "file_offset": new.file_offset(offset),
            "index": index,
            "source_hex": "0x" + here[::-1].hex(),
            "candidate_hex": "0x" + there[::-1].hex(),
            "source_value": shown(here, old.dtype),
            "candidate_value": shown(there, new.dtype),
        }


def _unit(view: CheckpointView, tensor: Tensor, index: int, offset: int) -> bytes:
    """Take the word of an element, or the one byte at `offset` where elements share their storage."""
    per, size = tensor.unit
    if per > 1:
        return bytes(view.read(tensor.name, offset, offset + 1))
    return bytes(view.read(tensor.name, index * size, (index + 1) * size))


def _explained(old: Tensor, new: Tensor, counts: dict[str, int]) -> bool:
    expected = "identical" if old.dtype == new.dtype else "value-cast"
    return counts.get(expected) == new.elements


def extent(views: Views, _options: Fields) -> int:
    """Count the names that either side has."""
    return len(set(views[0].names()) | set(views[1].names()))


def canary(views: Views, options: Fields, _measurement: Measurement) -> Canary | NoCanary:
    """Flip one bit in the last byte of the last of two tensors that can be compared."""
    return damage(views, lambda cut: measure(cut, options))


VERIFIER = Verifier(
    quantity=QUANTITY,
    kinds=(SubjectKind.CHECKPOINT, SubjectKind.CHECKPOINT),
    measure=measure,
    extent=extent,
    canary=canary,
)
