"""tensor_health: what is odd about the values of each tensor of one checkpoint, one row a tensor."""

import functools
from collections.abc import Callable
from typing import Any

from weighbridge.comparison import bytewise
from weighbridge.comparison.casts import DECODED, not_finite
from weighbridge.core import NDArray, dataclass, np, replace
from weighbridge.formats.tensor import EXTENDED, FLOATS, INTEGERS, numpy_dtype
from weighbridge.packing.packed_weights import by_names
from weighbridge.quantities.tensors import TensorHealth
from weighbridge.verifiers.tensor_walk import Damage, instrument, is_alike
from weighbridge.views.checkpoint import CheckpointView, Tensor

# The bits of the exponent; where they are all set the word is infinite or NaN.
EXPONENT = {"F16": 0x7C00, "BF16": 0x7F80, "F32": 0x7F800000, "F64": 0x7FF0000000000000}
BEYOND = {"BF16": (127 + 16) << 7, "F32": (127 + 16) << 23, "F64": (1023 + 16) << 52}  # 65536, which F16 cannot hold
PARTS = {"C64": "F32"}  # real and imaginary parts are words of their own
FINITE = (*INTEGERS, "BOOL", "F4", "F6_E2M3", "F6_E3M2")  # no word of these is NaN or infinite
ZEROS = 3  # units at the end, where a canary damages a tensor
BODY = 3  # units before them that are unlike the rest: an infinity, a NaN, and one more


def flaws(name: str) -> tuple[str, ...]:
    """Return what a name holds that breaks tools which print it or use it as a path."""
    found = ["it is empty"] if not name else []
    found += ["a control character"] if any(not char.isprintable() for char in name) else []
    parts = name.replace("\\", "/").split("/")
    return (*found, *(["a path"] if name.startswith(("/", "\\")) or ".." in parts else []))


@dataclass(slots=True)
class Health:
    """What is known of a tensor so far; `last_set` is the offset of its last byte that is not zero."""

    alike: bytewise.LookAlikes
    helpers: frozenset[str]  # what stands beside codes and scales, and says the same of every weight
    tensor: Tensor
    at: int = 0
    nan: int | None = None
    infinite: int | None = None
    beyond_f16: int = 0
    last_set: int = -1
    constant: bool = True
    first: bytes = b""
    reads: bool = True
    row_bytes: int = 0
    zero_columns: int = 0  # at the end of every row so far, in whole units
    matrix: bool = False  # whose rows are whole units
    zero_rows: int = 0
    blank: bool = True  # whether the row that was begun is zero so far

    def __post_init__(self) -> None:
        shape, (per, size) = self.tensor.shape, self.tensor.unit
        self.row_bytes = (shape[-1] if shape else 1) * size // per
        self.matrix = sum(many > 1 for many in shape) > 1 and shape[-1] % per == 0
        self.zero_columns = self.row_bytes // size if self.matrix else 0
        if self.tensor.dtype in (*FLOATS, *EXTENDED, *PARTS, *FINITE, *DECODED):
            self.nan = self.infinite = 0

    def take(self, chunk: memoryview) -> None:
        """Look at the next bytes."""
        data = np.frombuffer(chunk, np.uint8)
        self.first = self.first or bytes(chunk[: self.tensor.unit[1]])
        if self.constant:
            self.constant = bool((data.reshape(-1, len(self.first)) == np.frombuffer(self.first, np.uint8)).all())
        if self.zero_columns:  # of most tensors the first bytes show that the last column is set
            self._look_at_columns(data, self.at % self.row_bytes)
        if self.matrix:
            self._look_at_rows(data, self.at % self.row_bytes)
        zeros = 0  # at the end of these bytes
        if not data[-1]:
            back = data[::-1] != 0
            zeros = int(back.argmax()) if back.any() else len(data)
        self.at += len(data)
        self.last_set = self.at - 1 - zeros if zeros < len(data) else self.last_set
        if self.nan is not None and self.infinite is not None:
            nan, infinite, beyond = _not_finite(data, self.tensor)
            self.beyond_f16 += beyond
            self.nan, self.infinite = self.nan + nan, self.infinite + infinite

    def _look_at_columns(self, data: "NDArray[np.uint8]", begun: int) -> None:
        """Look in what is left of a row that was begun, in whole rows, and in the first bytes of the last one."""
        wide, size = self.row_bytes, self.tensor.unit[1]
        known, rest = wide - self.zero_columns * size, data[wide - begun :]
        whole = rest[: len(rest) // wide * wide].reshape(-1, wide)[:, known:].max(0, initial=0)
        parts = (begun, data[: wide - begun]), (known, whole), (0, rest[len(rest) // wide * wide :])
        last = max(at + int(np.flatnonzero(part).max(initial=-1 - at)) for at, part in parts)
        self.zero_columns = min(self.zero_columns, (wide - 1 - last) // size)

    def _look_at_rows(self, data: "NDArray[np.uint8]", begun: int) -> None:
        """Count whole rows of zeros; most rows show by their first unit that they are none."""
        wide, size = self.row_bytes, self.tensor.unit[1]
        first, rest = data[: wide - begun], data[wide - begun :]
        self.blank = self.blank and not self._is_set(first).any()
        if begun + len(first) < wide:
            return
        whole = rest[: len(rest) // wide * wide].reshape(-1, wide)
        may_be = whole[~self._is_set(whole[:, :size]).any(1)]
        self.zero_rows += int(self.blank) + int(np.count_nonzero(~self._is_set(may_be).any(1)))
        self.blank = not self._is_set(rest[whole.size :]).any()

    def _is_set(self, data: "NDArray[np.uint8]") -> "NDArray[np.bool_]":
        """Return which words are no zero, of either sign."""
        words = data.view(f"<u{self.tensor.unit[1]}") << 1 if self.tensor.dtype in EXPONENT else data
        return np.not_equal(words, 0)

    def row(self) -> TensorHealth:
        """Describe the tensor; all tensors must be described in order."""
        tensor, (per, size) = self.tensor, self.tensor.unit
        repeats = self.alike.before(tensor.name) if tensor.nbytes and tensor.name not in self.helpers else None
        if repeats is not None and _is_one(self.alike.view.tensor(repeats), tensor):
            repeats = None  # one weight under two names, which torch.save stores once
        return TensorHealth(
            name=tensor.name, dtype=tensor.dtype, shape=tensor.shape, elements=tensor.elements, bytes=tensor.nbytes,
            name_flaws=flaws(tensor.name), row_bytes=self.row_bytes, zero_tail_columns=self.zero_columns * per,
            all_zero=self.last_set < 0, constant=self.constant, nan=self.nan, infinite=self.infinite, repeats=repeats,
            zero_tail_bytes=(tensor.nbytes - 1 - self.last_set) // size * size, zero_rows=self.zero_rows,
            beyond_f16=self.beyond_f16,
        )  # fmt: skip


def _is_one(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors lie in the very same bytes of a file."""
    here, there = ([(part.file, part.extent, part.strides) for part in tensor.stored] for tensor in (one, other))
    return here == there


def _not_finite(data: "NDArray[np.uint8]", tensor: Tensor) -> tuple[int, int, int]:
    """Return how many elements are NaN, how many infinite, and how many are finite and beyond F16."""
    if tensor.dtype in FINITE:
        return 0, 0, 0
    if tensor.dtype in DECODED:
        return *not_finite(data, tensor.dtype), 0
    dtype = PARTS.get(tensor.dtype, tensor.dtype)
    kind = numpy_dtype(dtype)
    assert kind is not None
    stored = data.view(f"<u{kind.itemsize}")
    mask = EXPONENT.get(dtype)
    if mask is None:  # eight bits
        values = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)
        counts = np.bincount(stored, minlength=256)
        return int(counts[np.isnan(values)].sum()), int(counts[np.isinf(values)].sum()), 0
    most, large, beyond = int((stored & mask).max()), BEYOND.get(dtype, mask), 0
    if most >= large:
        beyond = int(np.count_nonzero((stored & mask >= large) & (stored & mask < mask)))
    if most != mask:
        return 0, 0, beyond
    magnitude = stored & ((1 << 8 * kind.itemsize - 1) - 1)
    return int(np.count_nonzero(magnitude > mask)), int(np.count_nonzero(magnitude == mask)), beyond


def special(tensor: Tensor) -> tuple[bytes, int, int] | None:
    """Return an infinite unit and one that is NaN, and how many elements of both are NaN and infinite, if known."""
    elements, size = tensor.unit
    if tensor.dtype in EXPONENT:
        word = EXPONENT[tensor.dtype]
        return word.to_bytes(size, "little") + (word | 1).to_bytes(size, "little"), 1, 1
    full = b"\xff" * size  # a scale that is NaN, or the largest one
    if tensor.dtype == "MXFP4":
        return 2 * full, 0, 2 * elements
    if tensor.dtype in DECODED and tensor.dtype != "NVFP4":
        return 2 * full, 2 * elements, 0
    return None


def _damaged(cut: CheckpointView, last: Tensor) -> tuple[CheckpointView, dict[str, Any]]:
    """Write like units, an infinity and a NaN, a unit unlike both, and zeros; an earlier tensor may become a twin.

    Where they are even in number they become two rows, both of which end in zeros, or four, the first of which is zero.
    """
    (per, size), units = last.unit, special(last)
    many, least = last.nbytes // size, ZEROS + BODY
    rows = next(rows for rows in (4, 2, 1) if many % rows == 0 and many > rows * least)
    wide = many // rows
    like, unlike = b"\1" * size, b"\2" * size
    odd = units[0] if units else 2 * unlike
    row, blank = like * (wide - ZEROS) + bytes(ZEROS * size), bytes(wide * size) * (rows == 4)
    pattern = blank + row * (rows - 1 - (rows == 4)) + like * (wide - ZEROS - BODY) + odd + unlike + bytes(ZEROS * size)
    twin = next((name for name, one in cut.tensors.items() if is_alike(one, last) and not _is_one(one, last)), None)
    matrix = replace(last, shape=(rows, wide * per))
    damaged = replace(cut, tensors={**cut.tensors, last.name: matrix}).overlaid(last.name, 0, pattern)
    wanted = {"all_zero": False, "constant": False, "zero_tail_bytes": ZEROS * size, "repeats": twin}
    wanted |= {"zero_tail_columns": ZEROS * per * (rows > 1), "zero_rows": int(rows == 4)}
    wanted |= {"nan": units[1], "infinite": units[2]} if units else {}
    return damaged if twin is None else damaged.overlaid(twin, 0, pattern), wanted


DAMAGE = Damage(
    name="one NaN, one infinity, zeros at the end",
    fits=lambda tensor: tensor.nbytes // tensor.unit[1] > ZEROS + BODY,
    without="no tensor has room for the damage",
    lay=_damaged,
)


def _begin(view: CheckpointView) -> Callable[[Tensor], Health]:
    beside = ((weight.members, weight.packing.may) for weight, _ in by_names(view) if weight.packing)
    helpers = frozenset(members[end].name for members, may in beside for end in may if end in members)
    return functools.partial(Health, bytewise.LookAlikes(view), helpers)


VERIFIER = instrument("tensor_health", _begin, DAMAGE)
