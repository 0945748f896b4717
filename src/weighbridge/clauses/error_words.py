"""What is said of an error at a capture point: where it lies, what relates it to the truth, what makes the step."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from weighbridge.core.data import table
from weighbridge.quantities.forward import ForwardError, Relation, Span

EXPLAINS = 0.1  # of an error is left over by a relation that explains it
WHOLE = 0.995  # of an error, from which on no share is said
MOST = 0.9  # of all channels, which are as good as all of them
FEW_BITS = 0.02  # relative: less than that may be rounding, more is none
RULES, WEIGHT, NAMED = ("tokens", "channels", "relation", "size"), {"relation": 4}, 3  # of causes: how many are named
EVERY_HEAD = "of every head"
ANY = "a bias, scale, mask, position, layout or weight that differs in the operation that makes this point"


def related(found: Relation, error: float, limit: float) -> str:
    """Return a relation in words where it explains nine tenths of an error, and leaves no more than twice the limit."""
    words = table("clauses/relations").get(found.name)
    if words is None or found.left is None or not found.left <= min(EXPLAINS * error, 2 * limit):
        return ""
    return "; " + str(words).format(to=found.to).replace(" ()", "")


def likely(row: ForwardError, relation: bool = False) -> str:
    """Return what is most often wrong with such a step, the likeliest first, without what the error rules out."""

    def made(names: Sequence[str]) -> bool:
        return all(any(fnmatchcase(one, name) for one in row.operations) for name in names)

    found = next((kind for kind in table("clauses/operations") if any(map(made, kind["made_by"]))), None)
    if found is None:
        return ANY
    kinds = {"size": {"small" if (row.candidate.all or 0) < FEW_BITS else "large"}, **_kinds(row)}
    kinds["relation"] = {row.relation.name if relation else ""}
    fits = [
        (sum(WEIGHT.get(name, 1) for name in RULES if name in cause and name in kinds), cause["cause"])
        for cause in found["likely"]
        if all(name not in cause or name not in kinds or kinds[name] & {*cause[name]} for name in RULES)
    ]
    if relation:  # it explains the error, so that what makes no such one has no part in it
        fits = [one for one in fits if one[0] >= WEIGHT["relation"]] or fits
    ranked = [cause for _, cause in sorted(fits, key=lambda one: -one[0])] or [ANY]
    first = row.extent.tokens.first if row.extent else 0
    return f"{found['name']}: {'; or '.join(ranked[:NAMED])}".replace("{first}", str(first))


def _kinds(row: ForwardError) -> dict[str, set[str]]:
    """Return what kind of place an error lies in, by dimension, as the table of causes names them."""
    if (extent := row.extent) is None:
        return {}
    rows, tokens, channels, head = extent.sequences, extent.tokens, extent.channels, _head(row)
    first, end = tokens.first, tokens.of - 1
    one_run = bool(tokens.wide and not tokens.every)
    when = {"of-some-sequences"} if rows.count < rows.of else set[str]()
    if tokens.count == tokens.of:
        when = when or {"all"}
    elif one_run and tokens.last == end:
        when.add("last" if first == end else "but-first" if first == 1 else "later")
        when |= {"decoded"} if row.run.decoded and first >= tokens.of - row.run.decoded else set()
    else:
        when.add("earlier" if one_run and not first else "some")
    if channels.count >= MOST * channels.of or ("all" not in when and not channels.wide):
        which = "all"
    elif channels.count <= 2:
        which = "pair" if channels.count > 1 else "one"
    else:
        in_heads = _in_heads(channels, head)
        which = "part-of-heads" if EVERY_HEAD in in_heads else "heads" if in_heads else "some"
    return {"tokens": when, "channels": {which}}


def _head(row: ForwardError) -> int:
    """Return the channels of a head where those of a point are heads, else 0."""
    return row.run.head if "att" in row.point and row.extent and not row.extent.channels.of % (row.run.head or 1) else 0


def place_of(row: ForwardError) -> str:
    """Return where the error at a point lies, in words; empty where it was not looked for."""
    if (extent := row.extent) is None:
        return ""
    channels, rows = extent.channels, extent.sequences
    when = _tokens(extent.tokens)
    which = _in_heads(channels, _head(row)) or _places(channels, "channel")
    if when and not channels.wide:  # of the few values of some tokens, some channels are off by chance
        which = ""
    if rows.of > 1 and (when or rows.count < rows.of):
        of = f"sequence {rows.first} alone" if rows.count == 1 else f"{rows.count} of {rows.of} sequences"
        when = f"{when or 'every token'} of {'every sequence' if rows.count == rows.of else of}"
    spans = ((text, span.share) for text, span in ((when, extent.tokens), (which, channels)) if text)
    places = [text if share > WHOLE else f"{text} ({share:.0%} of it)" for text, share in spans]
    return f"; it lies in {' and '.join(places)}" if places else "; every token and channel is off"


def _tokens(span: Span) -> str:
    """Return which tokens an error lies in, empty for all of them."""
    first, end = span.first, span.of - 1
    if not span.wide or span.every or span.count == span.of or first == span.last < end:
        return _places(span, "token")
    if first == end:
        return f"the last token, {end},"
    others = "none before" if span.last == end else "none after" if first == 0 else "no other"
    return f"tokens {first}-{span.last}, {others},"


def _in_heads(span: Span, head: int) -> str:
    """Return which heads an error lies in, or which channels of each; empty where it lies in all, or across them."""
    first, last, many = span.first, span.last, span.of // head if head else 0
    if head and span.every == head and span.count == span.wide * many:
        return f"channels {first}-{first + span.wide - 1} {EVERY_HEAD} of {head}"
    whole = span.wide and not span.every and last + 1 - first < span.of
    if not head or not whole or first % head or (last + 1) % head:
        return ""
    named = f"head {first // head}" if last - first < head else f"heads {first // head}-{last // head}"
    return f"channels {first}-{last} ({named} of {many})"


def _places(span: Span, noun: str) -> str:
    """Return a span in words: one, two, some side by side, some at one distance, or how many; empty for all of them."""
    first, last = span.first, span.last
    run = f"{noun}s {first}-{first + span.wide - 1}" if span.wide > 1 else f"{noun} {first}"
    if span.count == span.of or (span.wide == span.of and noun == "channel"):
        return ""
    if span.count == 2 and last - first > 1:
        return f"{noun}s {first} and {last}"
    if span.every:
        return f"every second {noun} from {first} on" if span.every == 2 else f"{run} of every {span.every}"
    return run if span.wide else f"{span.count} of {span.of} {noun}s, the first {first}"
