"""What the reader of a format gives back: tensors, short metadata, and the checksums that a file carries of itself."""

import functools
import itertools
import math
import operator
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.core import NDArray, Scalar, dataclass, field, np
from weighbridge.storage.readable import WINDOW, ReadableFile

Block = tuple[tuple[int, ...], tuple[int, ...]]  # in words: where it starts, and how far it reaches
MAX_ELEMENTS = 2**63 - 1
MAX_TEXT = 1 << 10  # characters of a text in metadata
# dtype: (elements, bytes) of the smallest whole unit that is stored.
SAFETENSORS_UNITS: Mapping[str, tuple[int, int]] = (
    {"F4": (2, 1), "F6_E2M3": (4, 3), "F6_E3M2": (4, 3)}
    | dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), (1, 1))
    | dict.fromkeys(("I16", "U16", "F16", "BF16"), (1, 2))
    | dict.fromkeys(("I32", "U32", "F32"), (1, 4))
    | dict.fromkeys(("C64", "F64", "I64", "U64"), (1, 8))
)
# GGUF type id: (dtype, elements, bytes), from ggml's type traits.
GGUF_TYPES: Mapping[int, tuple[str, int, int]] = (
    {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22)}
    | {7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110)}
    | {12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292)}
    | {16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50)}
    | {20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136)}
    | {24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8)}
    | {29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66)}
    | {39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18), 42: ("Q2_0", 64, 18)}
)
UNITS = {**SAFETENSORS_UNITS, **{name: (elements, size) for name, elements, size in GGUF_TYPES.values()}}
# NumPy's names of what reads stored words.
EXTENDED = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu"}
EXTENDED |= {"F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz"}
FLOATS = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
INTEGERS = {f"{letter}{8 * size}": f"<{letter.lower()}{size}" for size in (1, 2, 4, 8) for letter in "IU"}


@functools.cache
def numpy_dtype(dtype: str) -> "np.dtype[Any] | None":
    """Return the NumPy type that reads this dtype's words, or None for blocks, packed bits, booleans and complex."""
    if dtype in EXTENDED:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, EXTENDED[dtype]))
        return extended
    plain = FLOATS.get(dtype) or INTEGERS.get(dtype)
    return np.dtype(plain) if plain else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """A view in another order than row-major, in elements; `first` counts those before the tensor's own, row-major."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    first: int = 0

    @property
    def reach(self) -> int:
        """Return how many elements lie from the first stored one to the last, those between included."""
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.steps, strict=True))

    def position(self, index: int) -> int:
        """Return where the element of this row-major index lies, in elements."""
        return int(np.dot(np.unravel_index(self.first + index, self.shape), self.steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A rectangular block of a tensor that is stored by itself; `at` and `sizes` are in words, one a dimension."""

    at: tuple[int, ...]
    sizes: tuple[int, ...]
    stored: "Tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """The blocks that a tensor is stored in, which fill `shape` without overlap, each in a file of its own or not."""

    shape: tuple[int, ...]  # in words, the smallest whole units stored
    blocks: tuple[Piece, ...]
    first: int = 0  # words before the tensor's own

    def holder(self, word: int) -> tuple[Piece, int]:
        """Return the piece that holds the word of this row-major index, and the word's index in the piece."""
        along = tuple(map(int, np.unravel_index(self.first + word, self.shape)))
        inside = ((piece, tuple(map(operator.sub, along, piece.at))) for piece in self.blocks)
        return next(
            (piece, sum(map(operator.mul, steps, row_major(piece.sizes))))
            for piece, steps in inside
            if all(0 <= step < size for step, size in zip(steps, piece.sizes, strict=True))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One tensor as its header describes it; `offset` and `nbytes` are in bytes of `file`, shape is row-major.

    `nbytes` counts its elements; they lie together from `offset` on, in order, unless `strides` or `pieces` says
    otherwise; `file` and `offset` are then the first piece's. `name` and `file` are data from the outside: escape them
    when shown, never use them as a path. One that is no `weight` was saved beside the model.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    file: str
    strides: Strides | None = None
    pieces: Pieces | None = None
    weight: bool = True

    @property
    def elements(self) -> int:
        """Return how many elements it has."""
        return math.prod(self.shape)

    @property
    def unit(self) -> tuple[int, int]:
        """Return elements and bytes of the smallest whole stored unit: `(1, 2)` for BF16, `(32, 18)` for Q4_0."""
        return UNITS[self.dtype]

    @property
    def stored(self) -> "tuple[Tensor, ...]":
        """Return what is stored of it, each in one file: itself, or its pieces."""
        return tuple(piece.stored for piece in self.pieces.blocks) if self.pieces else (self,)

    @property
    def extent(self) -> tuple[int, int]:
        """Return the first byte of the file that belongs to a tensor in one piece, and the byte behind its last."""
        assert self.pieces is None
        return self.offset, self.offset + (self.strides.reach * self.unit[1] if self.strides else self.nbytes)

    def file_offset(self, at: int) -> int:
        """Return the byte that holds byte `at` of the tensor in row-major order, in its file or that of its piece."""
        size = self.unit[1]
        word, inside = divmod(at, size)
        if self.pieces:
            piece, index = self.pieces.holder(word)
            return piece.stored.file_offset(index * size + inside)
        return self.offset + (self.strides.position(word) if self.strides else word) * size + inside


@dataclass(frozen=True, slots=True, kw_only=True)
class Checksum:
    """A CRC-32 that a file carries of parts of itself, each `(start, stop)`; `place` and `file` are not trusted."""

    place: str
    file: str
    parts: tuple[tuple[int, int], ...]
    stored: int

    def found(self, file: ReadableFile) -> int:
        """Compute the CRC-32 of the parts as they are; reads each byte once, in constant memory."""
        crc = 0
        for start, stop in self.parts:
            for window in file.windows(start, stop, WINDOW):
                crc = zlib.crc32(window, crc)
        return crc


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One file, read: its format, tensors by name, metadata (None for what is long or no scalar), and checksums."""

    format: str
    tensors: "Mapping[str, Tensor]"
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    checksums: tuple[Checksum, ...] = ()


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the steps, in elements, of an array that lies in row-major order."""
    return tuple(itertools.accumulate(shape[:0:-1], operator.mul, initial=1))[::-1] if shape else ()


def strides_of(shape: tuple[int, ...], steps: tuple[int, ...]) -> Strides | None:
    """Return a view by its steps, in elements; None where its elements lie together in row-major order."""
    dimensions = zip(shape, steps, row_major(shape), strict=True)
    if 0 in shape or all(step == expected for size, step, expected in dimensions if size > 1):
        return None
    # The step of a dimension of one is never taken, and may be anything.
    taken = tuple(step if size > 1 else 0 for size, step in zip(shape, steps, strict=True))
    return Strides(shape=shape, steps=taken)


def span(dtype: str, shape: tuple[int, ...]) -> int | None:
    """Return how many bytes a tensor takes, or None where they overflow or do not fill whole units."""
    elements, size = UNITS[dtype]
    count = 1
    for dimension in shape:  # one at a time, so that a thousand huge dimensions stay cheap
        count *= dimension
        if count > MAX_ELEMENTS:
            return 0 if 0 in shape else None
    return None if count % elements else count // elements * size


def short(value: object) -> Scalar:
    """Return a value of a file's metadata, or None for a long text and for what is no scalar."""
    if isinstance(value, (bool, int, float)):
        return value
    return value if isinstance(value, str) and len(value) <= MAX_TEXT else None


# A tensor in pieces, or strided, which is one piece in another order, is read in row-major order, a window at a time. A
# window is cut into boxes, each filled from the pieces that it meets in the order in which their elements lie: shards
# cost one pass, and a transposed matrix one pass a window, in constant memory.


def windows_of(files: Mapping[str, ReadableFile], tensor: "Tensor", size: int) -> Iterator[memoryview]:
    """Yield the tensor's bytes in row-major order, in steps of `size`; refuse with `subject-changed`."""
    many = max(WINDOW // size, 1) * size
    for start in range(0, tensor.nbytes, many):
        window = read_pieces(files, tensor, start, min(start + many, tensor.nbytes))
        for at in range(0, len(window), size):
            yield window[at : at + size]
    for stored in tensor.stored:
        files[stored.file].require_unchanged()


def read_pieces(files: Mapping[str, ReadableFile], tensor: "Tensor", start: int, stop: int) -> memoryview:
    """Return bytes `start` to `stop` of the tensor in row-major order; refuse with `subject-changed`."""
    size, tiled = tensor.unit[1], tensor.pieces
    if tiled is None:
        assert tensor.strides is not None
        shape = tensor.strides.shape
        whole = Piece(at=(0,) * len(shape), sizes=shape, stored=tensor)
        tiled = Pieces(shape=shape, blocks=(whole,), first=tensor.strides.first)
    first, last = start // size, -(-stop // size)
    gathered = np.empty(last - first, f"<u{size}")
    done = 0
    for at, sizes in boxes(tiled.shape, tiled.first + first, last - first):
        many = math.prod(sizes)
        for piece in tiled.blocks:
            _fill(gathered[done : done + many].reshape(sizes), at, piece, files[piece.stored.file])
        done += many
    return gathered.data.cast("B")[start - first * size : stop - first * size]


def boxes(shape: tuple[int, ...], first: int, many: int) -> Iterator[Block]:
    """Cut a stretch of `many` words in row-major order, from the `first` on, into boxes, at most two a dimension."""
    if not shape:
        yield (), ()
        return
    row = math.prod(shape[1:])
    while many:
        index, inside = divmod(first, row)
        rows = many // row
        taken = min(row - inside, many) if inside or not rows else rows * row
        if inside or not rows:
            for at, sizes in boxes(shape[1:], inside, taken):
                yield (index, *at), (1, *sizes)
        else:
            yield (index, *(0 for _ in shape[1:])), (rows, *shape[1:])
        first, many = first + taken, many - taken


def _fill(out: "NDArray[Any]", first: tuple[int, ...], piece: Piece, file: ReadableFile) -> None:
    """Copy into a box, from its `first` word on, what a piece holds of it, in bands along its longest step."""
    sides = zip(first, out.shape, piece.at, piece.sizes, strict=True)
    ranges = [(max(mine, its), min(mine + long, its + its_long)) for mine, long, its, its_long in sides]
    if any(start >= stop for start, stop in ranges):
        return
    file.require_unchanged()
    stored, size = piece.stored, piece.stored.unit[1]
    steps = [step * size for step in (stored.strides.steps if stored.strides else row_major(piece.sizes))]
    words = np.ndarray(piece.sizes, f"<u{size}", file.gather(*stored.extent), strides=steps)
    source, target = words[_inside(ranges, piece.at)], out[_inside(ranges, first)]
    skipped = ((start - at) * step for (start, _), at, step in zip(ranges, piece.at, steps, strict=True))
    offset = stored.offset + sum(skipped)
    axis = max(range(source.ndim), key=lambda axis: source.strides[axis])
    many = max(WINDOW // max(steps[axis], 1), 1)
    for at in range(0, source.shape[axis], many):
        band = (slice(None),) * axis + (slice(at, at + many),)  # which is given back once it was read
        target[band] = source[band]
        begin, shape = offset + at * steps[axis], source[band].shape
        file.release(begin, begin + size + sum((side - 1) * step for side, step in zip(shape, steps, strict=True)))


def _inside(ranges: list[tuple[int, int]], at: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(start - base, stop - base) for (start, stop), base in zip(ranges, at, strict=True))
