"""Walk over a source's values in the order in which a candidate's tensor is meant to hold them, beside that tensor.

Gives stored words and computes what a mapping says is computed; never compares, never copies a whole tensor.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from weighbridge.comparison.casts import ExactCast, decode, encode, find_exact_cast, words
from weighbridge.core import Bytes, NDArray, Words, dataclass, np
from weighbridge.formats.tensor import numpy_dtype
from weighbridge.mapping.mapping_plan import Pairing, Part
from weighbridge.views.checkpoint import CheckpointView, Tensor

ELEMENTS = 1 << 19  # in one step; whole blocks
BLOCK = 256  # elements: a multiple of every dtype's block
BEHIND = 8 << 20  # bytes read before they are given back


@dataclass(frozen=True, slots=True)
class AlignedTensor:
    """One tensor of the candidate beside what it is meant to be made of."""

    source: CheckpointView
    candidate: CheckpointView
    pairing: Pairing

    @property
    def new(self) -> Tensor:
        """Describe the candidate's tensor."""
        return self.candidate.tensor(self.pairing.candidate)

    @property
    def stored_dtype(self) -> str:
        """Return the dtype that the sources are stored in; "" where they have several."""
        found = {self.source.tensor(part.source).dtype for part in self.pairing.parts}
        return found.pop() if len(found) == 1 else ""

    @property
    def dtype(self) -> str:
        """Return the dtype of the words that `steps` gives: the stored one, or the one that is computed in."""
        if not self.pairing.computed:
            return self.stored_dtype
        return self.stored_dtype if self.stored_dtype in ("F16", "F64") else "F32"

    @property
    def exact_cast(self) -> ExactCast | None:
        """Return the plainest exact way to the candidate's dtype, or None where there is none."""
        return find_exact_cast(self.dtype, self.new.dtype, computed=self.pairing.computed) if self.dtype else None

    def steps(self) -> Iterator[tuple[int, Words, Bytes]]:
        """Return first element, source's words and candidate's bytes by stretches, or raise `subject-changed`."""
        at, behind, new, (per, size) = 0, 0, self.new, self.new.unit
        self.candidate.require_unchanged(new.name)
        for stored, elements in self._stored():
            stop = at + elements
            yield at, stored, words(self.candidate.read(new.name, at // per * size, stop // per * size), "U8")
            at, behind = stop, behind + elements // per * size
            if behind >= BEHIND:
                self.candidate.forget(new.name)
                behind = 0
        self.candidate.forget(new.name)
        self.candidate.require_unchanged(new.name)

    def predicted(self) -> Iterator[Words]:
        """Return the source's words alone, a stretch at a time."""
        return (stored for stored, _ in self._stored())

    def _stored(self) -> Iterator[tuple[Words, int]]:
        for part in self.pairing.parts:
            tensor = self.source.tensor(part.source)
            per, size = tensor.unit
            for stored in _part(self.source, tensor, part):
                yield self._computed(stored, tensor.dtype, part.factors), stored.nbytes // size * per
        per, size = self.source.tensor(self.pairing.parts[-1].source).unit
        for left in range(self.pairing.zeros, 0, -ELEMENTS):
            stretch = min(left, ELEMENTS) // per * per
            yield _words(memoryview(bytes(stretch // per * size)), self.dtype), stretch

    def _computed(self, stored: Words, dtype: str, factors: tuple[float, ...]) -> Words:
        """Compute what the mapping says, in float32, or in the source's own dtype where converters do so."""
        if not self.pairing.computed:
            return stored
        kind = numpy_dtype(self.dtype)
        with np.errstate(all="ignore"):
            values = decode(stored, dtype).astype(kind, copy=False)
            for factor in factors:  # a half is multiplied by a float32, and rounded once
                values = (values * np.float32(factor)).astype(kind)
            done, constant = COMPUTED.get(self.pairing.arithmetic), self.pairing.arithmetic
            return encode(done(values) if done else values + values.dtype.type(constant), self.dtype)


COMPUTED: Mapping[str, Callable[[Any], Any]] = {  # a constant that is added has no name
    "": lambda values: values,
    "+2": lambda values: values + values.dtype.type(1) + values.dtype.type(1),
    "-exp": lambda values: -np.exp(values.astype(np.float64)).astype(values.dtype),  # rounded once
}


def _words(data: memoryview, dtype: str) -> Words:
    return words(data, "U8" if numpy_dtype(dtype) is None else dtype)


def _part(view: CheckpointView, tensor: Tensor, part: Part) -> Iterator[Words]:
    per, size = tensor.unit
    if part.plain:
        # Never all of a tensor at once, so that an instrument that stops early is seen to do so; but whole blocks.
        blocks = max(-(-tensor.elements // (4 * BLOCK)), 1)
        step = min(ELEMENTS, blocks * BLOCK) // per * size
        return (_words(chunk, tensor.dtype) for chunk in view.chunks(tensor.name, step))
    return _transposed(view, tensor, part) if part.transposed else _gathered(view, tensor, part)


def _row_order(tensor: Tensor, part: Part) -> "NDArray[np.intp]":
    begin, end = part.rows or (0, tensor.shape[0])
    shape = part.view or (end - begin,)
    rows = np.arange(begin, begin + math.prod(shape)).reshape(shape)
    if part.take is not None:
        axis, start, stop = part.take
        rows = rows.take(np.arange(start, stop), axis)
    order = rows.reshape(-1)
    for _ in range(part.times if part.order else 0):
        order = order.reshape(rows.shape).transpose(part.order).reshape(-1)
    return order


def _gathered(view: CheckpointView, tensor: Tensor, part: Part) -> Iterator[Words]:
    """Gather rows, some at a time, each of them `width` elements."""
    order = _row_order(tensor, part)
    all_rows = tensor.shape[0] if part.rows else math.prod(part.view or tensor.shape[:1])
    data = _words(view.read(tensor.name, 0, tensor.nbytes), tensor.dtype).reshape(all_rows, -1)
    step, behind = max(ELEMENTS // data.shape[1], 1), 0
    for start in range(0, len(order), step):
        for left in range(0, data.shape[1], ELEMENTS):
            taken = data[order[start : start + step], left : left + ELEMENTS].reshape(-1)
            yield taken
            behind += taken.nbytes
            if behind >= BEHIND:
                view.forget(tensor.name)
                behind = 0
    view.forget(tensor.name)


def _transposed(view: CheckpointView, tensor: Tensor, part: Part) -> Iterator[Words]:
    """Walk over each matrix by columns, some rows at a time; one alone may have its rows in another order first."""
    all_rows = part.view[-1] if part.view and not part.order else tensor.shape[-2]
    size = tensor.nbytes // tensor.elements * all_rows * tensor.shape[-1] if tensor.elements else 1
    chosen = slice(*part.take[1:]) if part.take is not None else slice(None)
    matrices = (  # one after the other, for what is unpacked is computed as it is read
        _words(view.read(tensor.name, at, at + size), tensor.dtype).reshape(all_rows, -1)[chosen]
        for at in range(0, tensor.nbytes, size)
    )
    order = _row_order(tensor, part) if part.order else None
    for whole in matrices:
        data = whole[:, slice(*part.columns)] if part.columns else whole
        rows, columns = data.shape
        wide, high = max(ELEMENTS // rows, 1), max(BEHIND // (columns * data.itemsize), 1)
        for left in range(0, columns, wide):
            turned = np.empty((min(wide, columns - left), rows), data.dtype)
            for top in range(0, rows, high):
                taken = slice(top, top + high) if order is None else order[top : top + high]
                turned[:, top : top + high] = data[taken, left : left + wide].T
                view.forget(tensor.name)
            yield turned.reshape(-1)
