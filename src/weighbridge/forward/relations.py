"""What relates a captured value to the one that was made there: a bias, a scale, a permutation, another point.

And where in a tensor an error lies: which sequences, tokens and channels stand out, as spans.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence

from weighbridge.core import torch
from weighbridge.quantities.forward import Extent, Relation, Span

RECENT = 8  # points whose values are kept to be compared with
LARGE = 1 << 22  # elements: a larger point is not kept
WIDE = 1 << 12  # channels: among more, no order is looked for
NEAR, EQUAL = 0.1, 1e-3  # of its norm: a weight that lies farther is not named, nor one where a constant is nearer
STANDS_OUT = 2  # times the error of a trusted run's worst token or channel
PEAK = 0.1  # of the largest error: where all stands out, those of more may hold nearly all of it
NEARLY_ALL = 0.9  # of the squares of an error
FILLED = 0.9  # of a span whose gaps are chance


class Neighbours:
    """The captured values of the last points, as they are stored, the model's weights, and its inputs' padding."""

    def __init__(self, module: torch.nn.Module, padded: Sequence[int] = ()) -> None:
        self.module, self.padded = module, padded
        self.recent: deque[tuple[str, torch.Tensor]] = deque(maxlen=RECENT)

    def note(self, point: str, values: torch.Tensor) -> None:
        """Keep the values of a point."""
        if values.numel() <= LARGE:
            self.recent.append((point, values))

    def scores(self, point: str) -> torch.Tensor | None:
        """Return the values of the first output of the module whose output a point is; None where they are gone."""
        return dict(self.recent).get(point.rpartition(".")[0])

    def relation(self, point: str, made: torch.Tensor, captured: torch.Tensor) -> Relation | None:
        """Return the simplest relation among those that leave least over; None where nothing is finite."""
        if made.shape != captured.shape or not bool(torch.isfinite(made).all() and torch.isfinite(captured).all()):
            return None
        near = [(name, self._kept(values).double()) for name, values in self.recent if values.shape == made.shape]
        made, captured = self._kept(made), self._kept(captured)
        norm = float(captured.norm()) or 1.0

        def related(name: str, to: str, rest: torch.Tensor) -> Relation:
            return Relation(name=name, to=to, left=float(rest.norm()) / norm)

        fitted = [related(*one) for one in self._simple(made, captured)]
        for name, other in near:
            fitted.append(related("neighbour", name, captured - other))
            for how, sign in (("without", -1), ("with", 1)):  # it is missing from the sum, or in it twice
                fitted.append(related("residual", f"{how} {name}", captured - made - sign * other))
        # A factor for each channel always leaves a little less over than one factor that explains all.
        least = min(one.left or 0.0 for one in fitted)
        return next(one for one in fitted if (one.left or 0.0) <= 2 * least)

    def _kept(self, rows: torch.Tensor) -> torch.Tensor:
        """Return what is no padding, as one sequence where any is."""
        some = any(self.padded) and len(rows) > 1
        return torch.cat([row[many:] for row, many in zip(rows, self.padded, strict=True)])[None] if some else rows

    def _simple(self, made: torch.Tensor, captured: torch.Tensor) -> Iterator[tuple[str, str, torch.Tensor]]:
        flat_made, flat_captured = made.flatten(0, 1), captured.flatten(0, 1)
        factor = float((captured * made).sum() / (made * made).sum().clamp(min=1e-300))
        yield "scale", f"{factor:.6g}", captured - factor * made
        offset = (flat_captured - flat_made).mean(0)
        yield "bias", self._weight(offset), flat_captured - flat_made - offset
        one, other = flat_made - flat_made.mean(0), flat_captured - flat_captured.mean(0)  # a norm may have a bias too
        gains = (one * other).sum(0) / one.square().sum(0).clamp(min=1e-300)
        yield "channel-scale", self._weight(gains) or self._weight(1 / gains), other - one * gains
        if made.shape[2] > 1:
            factors = (flat_captured * flat_made).sum(1) / flat_made.square().sum(1).clamp(min=1e-300)
            of = f"{float(factors.min()):.6g} to {float(factors.max()):.6g}"
            yield "token-scale", of, flat_captured - factors[:, None] * flat_made
        if 1 < made.shape[2] <= WIDE:
            one, other = (flat / flat.norm(dim=0).clamp(min=1e-300) for flat in (flat_made, flat_captured))
            order = (one.T @ other).argmax(0)
            moved = int((order != torch.arange(len(order), device=order.device)).sum())
            yield "permutation", f"{moved} channels moved", flat_captured - flat_made[:, order]
        for name, step in (("one token early", -1), ("one token late", 1)):
            yield "shift", name, captured - made.roll(step, 1)

    def _weight(self, vector: torch.Tensor) -> str:
        """Return the weight nearest to a vector or its negative; empty where none is near, or a constant is nearer."""
        found = []
        for name, weight in self.module.named_parameters():
            if weight.numel() == vector.numel() and weight.ndim == 1:
                wide = weight.detach().to(vector)
                for sign in (1, -1):
                    rest = float((vector - sign * wide).norm()) / max(float(vector.norm()), 1e-300)
                    found.append((rest, name if sign > 0 else f"-{name}"))
        near = min(found, default=(1.0, ""))
        constant = float((vector - vector.mean()).norm()) / max(float(vector.norm()), 1e-300)
        return near[1] if near[0] < NEAR and near[0] <= max(constant, EQUAL) else ""


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
    """Return where errors by token `[sequences, tokens]` and by channel stand out from a trusted run's worst."""
    floors = [STANDS_OUT * max(level, u) for level in levels]
    found = _above(tokens, channels, floors[0], floors[1])
    if found is None or found.tokens.count < found.tokens.of or found.channels.count < found.channels.of:
        return found
    # All stand out: it is those near the largest, if they hold nearly all. Of values of all sizes, no order is chance.
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
