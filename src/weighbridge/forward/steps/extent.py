"""Where in a tensor an error lies: which sequences, tokens and channels stand out, as spans."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weighbridge.core import torch
from weighbridge.quantities.forward import Extent, Span

STANDS_OUT = 2  # times the error of a trusted run's worst token or channel
PEAK = 0.1  # of the largest error: where all stands out, those of more may hold nearly all of it
NEARLY_ALL = 0.9  # of the squares of an error
FILLED = 0.9  # of a span whose gaps are chance


def span_of(marked: Sequence[bool], share: float = 1.0) -> Span | None:
    """Return the span of what is marked: one run, runs of one length at one distance, or neither; None for none."""
    at = [place for place, mark in enumerate(marked) if mark]
    if not at:
        return None
    starts = [place for place in at if place == 0 or not marked[place - 1]]
    ends = [place + 1 for place in at if place + 1 == len(marked) or not marked[place + 1]]
    widths = {end - start for start, end in zip(starts, ends, strict=True)}
    apart = {after - before for before, after in itertools.pairwise(starts)}
    hull = at[-1] + 1 - at[0]
    every, wide = 0, hull if len(at) >= FILLED * hull else 0
    if len(widths) == len(apart) == 1:
        (every,), (wide,) = apart, widths
    return Span(first=at[0], last=at[-1], every=every, wide=wide, count=len(at), of=len(marked), share=share)


def extent_of(tokens: torch.Tensor, channels: torch.Tensor, levels: tuple[float, float], u: float) -> Extent | None:
    """Return where relative errors by token `[sequences, tokens]` and by channel stand out from a trusted run's worst.

    Where all does, and those near the largest hold nearly all of the error, it is they.
    """
    floors = [STANDS_OUT * max(level, u) for level in levels]
    found = _above(tokens, channels, floors[0], floors[1])
    if found is None or found.tokens.count < found.tokens.of or found.channels.count < found.channels.of:
        return found
    # Of values of all sizes, no order is chance.
    peaks = [max(PEAK * float(one.max()), floor) for one, floor in zip((tokens, channels), floors, strict=True)]
    narrow = _above(tokens, channels, peaks[0], peaks[1])
    ordered = narrow and all(one.wide and one.share >= NEARLY_ALL for one in (narrow.tokens, narrow.channels))
    return narrow if ordered else found


def _above(tokens: torch.Tensor, channels: torch.Tensor, of_token: float, of_channel: float) -> Extent | None:
    rows, columns = tokens > of_token, channels > of_channel
    marked = ((tokens, rows), (channels, columns))
    of_rows, of_columns = (float(side[mark].square().sum() / side.square().sum()) for side, mark in marked)
    lines = span_of(rows.any(1).tolist()), span_of(rows.any(0).tolist(), of_rows)
    if lines[0] is None or lines[1] is None or (across := span_of(columns.tolist(), of_columns)) is None:
        return None
    return Extent(sequences=lines[0], tokens=lines[1], channels=across)
