"""Count what a loader hands out, untouched and in order, and see when it begins again: a wrap where it ran dry."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from weighbridge.core import dataclass


@dataclass(slots=True)
class CorpusPosition:
    """How far into the corpus a run is; a batch of unknown tokens, or none, leaves its step and its pass unknown."""

    position: int | None = None
    step_tokens: int | None = None
    wraps: int = 0
    drawn: bool = False  # whether a batch was drawn for this step
    passing: bool = False  # and whether one was in this pass

    def add(self, tokens: int | None) -> None:
        """Count one batch."""
        self.position = _sum(self.position if self.passing else 0, tokens)
        self.step_tokens = _sum(self.step_tokens if self.drawn else 0, tokens)
        self.drawn = self.passing = True

    def take_step(self) -> int | None:
        """Return the tokens drawn since the last step, and start the next."""
        tokens, self.step_tokens, self.drawn = self.step_tokens, None, False
        return tokens

    def begin_pass(self, *, dry: bool) -> int | None:
        """Start a new pass, and give the tokens of the one that ended; it is a wrap if that one ran dry."""
        ended, self.position, self.passing = self.position, None, False
        self.wraps += dry
        return ended


def _sum(tokens: int | None, more: int | None) -> int | None:
    return None if tokens is None or more is None else tokens + more


class WatchedLoader:
    """A loader that calls a recorder, which may not raise, for every batch and pass; all else is the wrapped one's."""

    def __init__(self, loader: Iterable[Any], watcher: Any) -> None:
        self.loader, self.watcher = loader, watcher
        self.begun = self.dry = False

    def __iter__(self) -> Iterator[Any]:
        return _Pass(self)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]  # a TypeError here is the wrapped loader's own answer

    def __getattr__(self, name: str) -> Any:
        if name == "loader":  # asked for before it is there, by copying
            raise AttributeError(name)
        return getattr(self.loader, name)

    def cycle(self) -> Iterator[Any]:
        """Hand out batches for ever, beginning again; raise a RuntimeError where a new pass gives no batch."""
        while True:
            batch = None
            for batch in self:
                yield batch
            if batch is None:
                raise RuntimeError("the loader ran dry and gave no batch when it was asked to begin again")


class _Pass(Iterator[Any]):
    def __init__(self, owner: WatchedLoader) -> None:
        self._owner = owner
        self._iterator = iter(owner.loader)
        # An iterator that is its own loader goes on where it was: breaking off and asking again repeats nothing.
        self._again = owner.begun and (owner.dry or self._iterator is not owner.loader)
        self._empty = True

    def __next__(self) -> Any:
        owner = self._owner
        owner.watcher.fetching()
        try:
            batch = next(self._iterator)
        except StopIteration:
            if self._empty:
                owner.watcher.gave_nothing()
            owner.dry = True
            raise
        if self._empty and self._again:
            owner.watcher.pass_began(dry=owner.dry)
        self._empty, owner.begun, owner.dry = False, True, False
        owner.watcher.batch_drawn(batch)
        return batch


def shuffles(loader: object) -> bool:
    """Return whether a loader's sampler says that it gives each pass another order."""
    sampler = getattr(loader, "sampler", None)
    return isinstance(sampler, torch.utils.data.RandomSampler) or getattr(sampler, "shuffle", False) is True


def token_count(seq_len: int | None, batch: Any) -> int | None:
    """Return a count of a batch's tokens: the elements of its first array, None of a batch without a shape."""
    if not (shape := _shape(batch)):
        return None
    both = seq_len is not None and shape[-1] == seq_len + 1  # inputs and targets, of `seq_len` tokens each
    return math.prod(shape[:-1]) * (shape[-1] - both)


def _shape(batch: Any) -> tuple[int, ...]:
    if (shape := getattr(batch, "shape", None)) is not None:
        return tuple(map(int, shape))
    if isinstance(batch, Mapping):
        batch = batch.get("input_ids", next(iter(batch.values()), None))
        return _shape(batch) if batch is not None else ()
    if isinstance(batch, Sequence) and not isinstance(batch, (str, bytes)) and batch:
        return _shape(batch[0]) if not isinstance(batch[0], (int, float)) else (len(batch),)
    return ()
