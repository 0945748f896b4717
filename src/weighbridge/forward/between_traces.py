"""How far the captures of one trace lie from those of another, point by point, in constant memory. Needs no torch."""

import math
from typing import Any

from weighbridge.core import NDArray, dataclass, field, np
from weighbridge.forward.trace_file import Trace
from weighbridge.quantities.forward import Outcome

AT_ONCE = 1 << 16  # elements that stay in a core's cache
SMALL = 1e-3  # of the mean norm: a token or channel of less is measured against so much, as for local errors


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
    # Of the first side and of the difference.
    of_tokens, of_channels = np.zeros((2, rows * tokens)), np.zeros((2, channels))
    equal = nonfinite = 0
    step = max(1, AT_ONCE // channels)
    windows = (side.windows(point, step) for side in (one, other))
    for at, mine, theirs in zip(range(0, rows * tokens, step), *windows, strict=True):
        words = f"u{mine.itemsize}"
        alike = mine.view(words) == theirs.view(words) if mine.dtype == theirs.dtype else np.zeros(mine.shape, bool)
        equal += int(np.count_nonzero(alike))
        with np.errstate(all="ignore"):
            first, second = mine.astype(np.float64), theirs.astype(np.float64)
            finite = np.isfinite(first) & np.isfinite(second)
            squares = np.where(finite, first, 0) ** 2, np.where(finite, second - first, 0) ** 2
        nonfinite += int(np.count_nonzero(~finite & ~alike))
        for side, values in enumerate(squares):
            of_tokens[side, at : at + len(mine)] += values.sum(1)
            of_channels[side] += values.sum(0)
    roots = np.sqrt(of_tokens), np.sqrt(of_channels)
    by_token, by_channel = (off / np.maximum(long, float(long.mean()) * SMALL or 1.0) for long, off in roots)
    norm, error = (math.sqrt(float(part.sum())) for part in of_tokens)
    worst = int(by_token.argmax())
    found: dict[str, Any] = {"all": error / norm if norm else error, "token": float(by_token[worst])}
    found |= {"worst_token": f"sequence {worst // tokens}, token {worst % tokens}"}
    found |= {"channel": float(by_channel.max()), "worst_channel": int(by_channel.argmax())}
    return Apart(equal_share=equal / (rows * tokens * channels), nonfinite=nonfinite, **found)


@dataclass(slots=True)
class Again:
    """A second run, compared as it comes with the trace of the first, which is all that is kept of it."""

    first: Trace
    seen: dict[str, int] = field(default_factory=dict)  # tokens that came
    squares: dict[str, float] = field(default_factory=dict)  # of differences

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


def equal_share(trusted: Trace, found: Trace, point: str) -> float | None:
    """Return the share of elements with the same bits; None where shapes or dtypes differ."""
    if trusted.shape(point) != found.shape(point) or trusted.held_as(point) != found.held_as(point):
        return None
    same = of = 0
    for at in range((found.shape(point) or (0,))[0]):
        pair = (side.sequence(point, at) for side in (trusted, found))
        ours, theirs = (one.view(f"u{one.itemsize}") for one in pair)
        same, of = same + int(np.count_nonzero(ours == theirs)), of + ours.size
    return same / of


def outcome_of(trusted: Trace, found: Trace) -> Outcome:
    """Compare the last point of both, as logits, where it spans the vocabulary of the inputs."""
    point = found.facts.order[-1]
    shape = found.shape(point) or ()
    if trusted.shape(point) != shape or shape[-1] <= max(map(max, found.facts.tokens)):
        return Outcome(point=point, kl_mean=None, kl_max=None, flips=0, of=0, widest_flip=None)
    divergences, leads = list[float](), list[float]()
    for at in range(shape[0]):
        pair = (side.sequence(point, at) for side in (trusted, found))
        for ours, theirs in zip(*pair, strict=True):
            divergences.append(_divergence(ours.astype(np.float64), theirs.astype(np.float64)))
            if ours.argmax() != theirs.argmax():
                second, best = np.partition(ours.astype(np.float64), -2)[-2:]
                leads.append(float(best - second))
    widest, finite = max(leads, default=None), bool(np.isfinite(divergences).all())
    mean, most = (float(np.mean(divergences)), max(divergences)) if finite else (None, None)
    return Outcome(point=point, kl_mean=mean, kl_max=most, flips=len(leads), of=len(divergences), widest_flip=widest)


def _divergence(ours: "NDArray[np.float64]", theirs: "NDArray[np.float64]") -> float:
    """Return how far the probabilities that logits stand for diverge from ours; NaN where they are not finite."""
    with np.errstate(invalid="ignore"):
        one, other = ours - ours.max(), theirs - theirs.max()
        chances = np.exp(one)
        total = chances.sum()
        return float(chances @ (one - other) / total + np.log(np.exp(other).sum() / total))
