"""How far the captures of one trace lie from those of another, point by point, in constant memory. Needs no torch.

Sums are taken in float32 within a core's cache, and in float64 across; what float32 cannot square is computed again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self, TypeAlias

from weighbridge.core import NDArray, dataclass, field, np
from weighbridge.forward.trace_file import Trace

Floats: TypeAlias = "NDArray[np.floating[Any]]"
Sums: TypeAlias = "NDArray[np.float64]"
AT_ONCE = 1 << 16  # elements whose float32 of both sides stay in a core's cache
SMALL = 1e-3  # of the mean norm: a token or channel of less is measured against so much, as for local errors
TOO_SMALL = 1e-30  # of a sum of squares: below it, float32 may have lost some


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """How far a point of one trace lies from another's, relative L2; over the elements that are finite in both."""

    all: float
    token: float
    channel: float
    worst_token: str
    worst_channel: int
    equal_share: float
    nonfinite: int

    @property
    def same(self) -> bool:
        """Return whether all bits are equal."""
        return self.equal_share == 1.0


def apart(one: Trace, other: Trace, point: str) -> Apart | None:
    """Return how far a point of the second trace lies from the first's; None where it has not one shape in both."""
    if (shape := one.shape(point)) is None or other.shape(point) != shape:
        return None
    rows, tokens, channels = shape
    sums = _Sums(np.zeros((2, rows * tokens)), np.zeros((2, channels)))
    for at, mine, theirs in _blocks(one, other, point):
        sums.add(at, mine, theirs)
    roots = np.sqrt(sums.tokens), np.sqrt(sums.channels)
    by_token, by_channel = (off / np.maximum(long, float(long.mean()) * SMALL or 1.0) for long, off in roots)
    norm, error = (math.sqrt(float(part.sum())) for part in sums.tokens)
    worst = int(by_token.argmax())
    found: dict[str, Any] = {"all": error / norm if norm else error, "token": float(by_token[worst])}
    found |= {"worst_token": f"sequence {worst // tokens}, token {worst % tokens}"}
    found |= {"channel": float(by_channel.max()), "worst_channel": int(by_channel.argmax())}
    return Apart(equal_share=sums.equal / (rows * tokens * channels), nonfinite=sums.nonfinite, **found)


@dataclass(slots=True)
class Again:
    """A second run, held as it comes against the trace of the first, which is all that is kept of it."""

    first: Trace
    seen: dict[str, int] = field(default_factory=dict)  # tokens that came
    squares: dict[str, float] = field(default_factory=dict)  # of differences

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        """Keep nothing open."""

    def write(self, point: str, data: Any, shape: tuple[int, ...], dtype: str) -> None:
        """Compare values `[sequences, tokens, channels]` of a point with those of the first run at the same tokens."""
        since = self.seen.get(point, 0)
        self.seen[point] = till = since + shape[1]
        rows, tokens, channels = self.first.shape(point) or (0, 0, 0)
        alike = dtype == self.first.held_as(point) if rows else False
        if not alike or till > tokens or shape[2] != channels or (shape[0] not in {1, rows} and rows > 1):
            self.squares[point] = math.inf
            return
        mine = self.first.stored(point, since=since, till=till)
        theirs = np.frombuffer(data, mine.dtype).reshape(shape)
        words = f"u{mine.itemsize}"
        equal = bool((mine.view(words) == theirs.view(words)).all())
        with np.errstate(all="ignore"):  # what is not finite has no distance
            off = 0.0 if equal else float(np.square(theirs.astype(np.float64) - mine).sum())
        self.squares[point] = self.squares.get(point, 0.0) + (off if math.isfinite(off) else math.inf)

    def noise(self, point: str) -> float:
        """Return how far it lies from the first run at a point, relative L2; infinite where either is not finite."""
        if self.seen[point] != (self.first.shape(point) or (0, 0))[1]:
            return math.inf
        off = math.sqrt(self.squares[point])
        return off if off in {0, math.inf} else off / float(np.linalg.norm(self.first.stored(point).astype(np.float64)))


def _blocks(one: Trace, other: Trace, point: str) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    rows, tokens, channels = one.shape(point) or (0, 0, 0)
    step = max(1, AT_ONCE // channels)
    yield from zip(range(0, rows * tokens, step), *(side.windows(point, step) for side in (one, other)), strict=True)


@dataclass(slots=True)
class _Sums:
    """Sums of squares of the first side and of the difference, by token and by channel, and what was counted."""

    tokens: Sums
    channels: Sums
    equal: int = 0
    nonfinite: int = 0
    scratch: NDArray[np.uint32] | None = None

    def add(self, at: int, mine: NDArray[Any], theirs: NDArray[Any]) -> None:
        words = f"u{mine.itemsize}"
        alike = mine.view(words) == theirs.view(words) if mine.dtype == theirs.dtype else None
        self.equal += int(np.count_nonzero(alike)) if alike is not None else 0
        squares = self._narrow(mine, theirs)
        by_token = squares and [values @ np.ones(values.shape[1], values.dtype) for values in squares]
        if not squares or not by_token or not _exact(by_token, mine, theirs):
            with np.errstate(all="ignore"):
                first, second = mine.astype(np.float64), theirs.astype(np.float64)
                finite = np.isfinite(first) & np.isfinite(second)
                squares = np.where(finite, first, 0) ** 2, np.where(finite, second - first, 0) ** 2
            self.nonfinite += int(np.count_nonzero(~finite if alike is None else ~finite & ~alike))
            by_token = [values.sum(1) for values in squares]
        for side, values in enumerate(squares):
            self.tokens[side, at : at + len(mine)] += by_token[side]
            self.channels[side] += np.ones(len(values), values.dtype) @ values

    def _narrow(self, mine: NDArray[Any], theirs: NDArray[Any]) -> tuple[Floats, Floats] | None:
        """Return the first side and the difference, squared in float32; None where their dtypes are no such."""
        if mine.dtype != theirs.dtype or mine.dtype.name not in ("float32", "bfloat16", "float16"):
            return None
        if self.scratch is None or self.scratch[0].shape != mine.shape:
            self.scratch = np.empty((2, *mine.shape), np.uint32)
        norm, error = sides = [words.view(np.float32) for words in self.scratch]
        for at, (values, words) in enumerate(zip((mine, theirs), self.scratch, strict=True)):
            if values.dtype.name == "bfloat16":
                words[...] = values.view(np.uint16)
                np.left_shift(words, 16, out=words)
            elif values.dtype.name == "float16":
                sides[at][...] = values
            else:
                sides[at] = values
        first, second = sides
        with np.errstate(all="ignore"):
            np.subtract(second, first, out=error)
            np.multiply(first, first, out=norm)
            return norm, np.multiply(error, error, out=error)


def _exact(by_token: Sequence[Floats], mine: NDArray[Any], theirs: NDArray[Any]) -> bool:
    norm, error = (float(part.sum()) for part in by_token)
    if not all(math.isfinite(total) and (total > TOO_SMALL or total == 0) for total in (norm, error)):
        return False
    return bool(norm or not mine.any()) and bool(error or np.array_equal(mine, theirs))
