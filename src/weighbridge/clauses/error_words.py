"""What is said of an error at a capture point: where it lies, what relates it to the truth, what makes the step."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from weighbridge.core.data import table
from weighbridge.quantities.forward import ForwardError, Relation, Span

EXPLAINS = 0.1  # of an error is left over by a relation that explains it
WHOLE = 0.995  # of an error, from which on no share is said
ANY = "a bias, scale, mask, position, layout or weight that differs in the operation that makes this point"
RELATIONS = {
    "scale": "it is the right value times {to}",
    "bias": "it is the right value but for a bias ({to})",
    "channel-scale": "it is the right value but for a factor in each channel ({to})",
    "permutation": "it is the right value with {to}",
    "neighbour": "it equals {to}: the step between was skipped",
    "residual": "it is the right value {to}",
    "shift": "it is the right value {to}",
}


def related(found: Relation, error: float, limit: float) -> str:
    """Return a relation in words where it explains nine tenths of an error, and leaves no more than twice the limit."""
    if found.name not in RELATIONS or found.left is None or not found.left <= min(EXPLAINS * error, 2 * limit):
        return ""
    return "; " + RELATIONS[found.name].format(to=found.to or "of no weight")


def likely(operations: Sequence[str]) -> str:
    """Return what is most often wrong with the kind of step that these operations make."""

    def made(names: Sequence[str]) -> bool:
        return all(any(fnmatchcase(one, name) for one in operations) for name in names)

    kinds = (row for row in table("clauses/operations") if any(map(made, row["made_by"])))
    found = next(kinds, None)
    return ANY if found is None else f"{found['name']}: {found['likely']}"


def place_of(row: ForwardError) -> str:
    """Return where the error at a point lies, in words; empty where it was not looked for."""
    if (extent := row.extent) is None:
        return ""
    channels, rows = extent.channels, extent.sequences
    head = row.run.head if "att" in row.point and row.run.head and channels.of % row.run.head == 0 else 0
    when, which = _tokens(extent.tokens), _channels(channels, head)
    if when and not channels.wide:  # of the few values of some tokens, some channels are off by chance
        which = ""
    if rows.of > 1 and (when or rows.count < rows.of):
        of = f"sequence {rows.first} alone" if rows.count == 1 else f"{rows.count} of {rows.of} sequences"
        when = f"{when or 'every token'} of {'every sequence' if rows.count == rows.of else of}"
    places = [f"{text}{_share(span)}" for text, span in ((when, extent.tokens), (which, channels)) if text]
    return f"; it lies in {' and '.join(places)}" if places else "; every token and channel is off"


def _share(span: Span) -> str:
    return "" if span.share > WHOLE else f" ({span.share:.0%} of it)"


def _tokens(span: Span) -> str:
    """Return which tokens an error lies in, empty for all of them."""
    first, end = span.first, span.of - 1
    if not span.wide or span.every or span.count == span.of or first == span.last < end:
        return _places(span, "token")
    if first == end:
        return f"the last token, {end},"
    others = "none before" if span.last == end else "none after" if first == 0 else "no other"
    return f"tokens {first}-{span.last}, {others},"


def _channels(span: Span, head: int) -> str:
    """Return which channels an error lies in, as heads where they are some of that size; empty for all of them."""
    first, last, many = span.first, span.last, span.of // head if head else 0
    if head and span.every == head and span.count == span.wide * many:
        return f"channels {first}-{first + span.wide - 1} of every head of {head}"
    whole = head and span.wide and not span.every and first % head == 0 and (last + 1) % head == 0
    if not whole or span.count == span.of:
        return _places(span, "channel")
    named = f"head {first // head}" if last - first < head else f"heads {first // head}-{last // head}"
    return f"channels {first}-{last} ({named} of {many})"


def _places(span: Span, noun: str) -> str:
    """Return a span in words: one, two, some side by side, some at one distance, or how many; empty for all of them."""
    first, last = span.first, span.last
    run = f"{noun}s {first}-{first + span.wide - 1}" if span.wide > 1 else f"{noun} {first}"
    if span.count == span.of:
        return ""
    if span.count == 2 and last - first > 1:
        return f"{noun}s {first} and {last}"
    if span.every:
        return f"every second {noun} from {first} on" if span.every == 2 else f"{run} of every {span.every}"
    return run if span.wide else f"{span.count} of {span.of} {noun}s, the first {first}"
