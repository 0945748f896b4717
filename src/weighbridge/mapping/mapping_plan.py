"""Parts of source tensors, what a mapping makes of them, the plan of all, and its inverse. Reads no payload."""

import itertools
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from weighbridge.core import dataclass, field, replace

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Mapping[str, Shape]  # of tensors, by name
Of = TypeVar("Of")
NO_RULE = "no rule"  # for what was computed
MAX_NAME = 512  # letters of a name that a pattern is tried on


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one source tensor, in the order in which they are meant to stand."""

    source: str
    view: tuple[int, ...] = ()  # the dimensions that the rows are split into
    take: tuple[int, int, int] | None = None  # one of these, and what is kept of it: `start:stop`
    order: tuple[int, ...] = ()  # in which these are transposed, `times` over
    times: int = 1
    transposed: bool = False  # whether a matrix's rows and columns are exchanged instead
    rows: tuple[int, int] | None = None  # of which `start:stop` is kept
    columns: tuple[int, int, int] | None = None  # of which, transposed, `start:stop:step` is kept
    factors: tuple[float, ...] = ()  # that values are multiplied by, in turn

    @property
    def plain(self) -> bool:
        """Return whether the part is the whole tensor as it lies."""
        return not (self.view or self.take or self.order or self.transposed or self.rows or self.columns)


def rope_order(name: str, heads: int, rows: int) -> Part:
    """Interleave the halves of each head: `[heads, 2, half]` becomes `[heads, half, 2]`."""
    return Part(source=name, view=(heads, 2, rows // heads // 2), order=(0, 2, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One tensor of the candidate: its parts, one after the other, its shape, and what is computed of each value."""

    candidate: str
    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    arithmetic: str = ""  # or `+1`, `+2` (one twice), `-exp`, a constant that is added, as `-1.0`, or NO_RULE
    transform: str = ""  # the same in words
    zeros: int = 0  # that follow the parts

    @property
    def plain(self) -> bool:
        """Return whether the tensor is meant to hold one source tensor's words, as they lie."""
        return len(self.parts) == 1 and self.parts[0].plain and not (self.computed or self.zeros)

    @property
    def computed(self) -> bool:
        """Return whether the tensor holds other values than its sources do."""
        return bool(self.arithmetic) or any(part.factors for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a whole source becomes a candidate."""

    name: str
    pairings: Mapping[str, Pairing]
    tied: Mapping[str, str] = field(default_factory=dict)  # the tensor that another may repeat, on either side
    left_out: Mapping[str, str] = field(default_factory=dict)  # what it is of that the other side is not meant to hold
    drop_rules: Mapping[str, str] = field(default_factory=dict)  # why a source tensor may go
    zero_biases: str = ""  # why a source's bias may go that holds only zeros
    generated: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # values of tensors without a source
    heads: tuple[int, ...] = ()  # the head counts that either side states
    # The key and the value that the candidate's header has in place of a source tensor.
    in_header: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    untried: str = ""  # what was never compared with a conversion, an architecture most often
    without_rule: frozenset[str] = frozenset()  # its tensors that no rule speaks of

    def used(self) -> set[str]:
        """Return the source tensors that some tensor of the candidate is made of."""
        return {part.source for pairing in self.pairings.values() for part in pairing.parts}

    def of(self, names: Mapping[str, str]) -> "Plan":
        """Return the plan for a source that stores its tensors under these names, by those that it was made for."""

        def stored(pairing: Pairing) -> Pairing:
            return replace(pairing, parts=tuple(replace(part, source=names[part.source]) for part in pairing.parts))

        def renamed(by_name: Mapping[str, Of]) -> dict[str, Of]:
            return {names.get(name, name): what for name, what in by_name.items()}

        pairings = {name: stored(pairing) for name, pairing in self.pairings.items()}
        tied = {name: names.get(other, other) for name, other in renamed(self.tied).items()}
        without = frozenset(names.get(name, name) for name in self.without_rule)
        moved = replace(self, pairings=pairings, tied=tied, without_rule=without, drop_rules=renamed(self.drop_rules))
        return replace(moved, left_out=renamed(self.left_out), in_header=renamed(self.in_header))


# A head that repeats the embedding, and embeddings that repeat the shared one.
HEADS = (
    *("lm_head.weight", "output.weight", "embed_out.weight", "cls.predictions.decoder.weight"),
    *("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"),
)
EMBEDDINGS = (
    *("model.embed_tokens.weight", "token_embd.weight", "shared.weight", "transformer.wte.weight"),
    *("transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", "backbone.embeddings.weight", "wte.weight"),
    *("bert.embeddings.word_embeddings.weight", "tok_embeddings.weight"),
)


def ties(names: Collection[str]) -> dict[str, str]:
    """Return, for each head, the embedding that it may be tied to, and for a lone embedding its head."""
    embedding = next((name for name in EMBEDDINGS if name in names), None)
    return {} if embedding is None else {name: embedding for name in HEADS if name in names and name != embedding}


def identity(source: Shapes, candidate: Collection[str]) -> "Plan":
    """Pair tensors of one name; `source` gives shapes by name."""
    return _paired("identity", source, candidate, {name: name for name in source})


def table(
    source: Shapes, candidate: Collection[str], *, names: Mapping[str, str], rename: Sequence[tuple[str, str]]
) -> "Plan":
    """Pair tensors by a table of candidate's to source's names; the others by rewriting the source's names in turn."""
    patterns = [(re.compile(pattern), new) for pattern, new in rename]
    origin = {rewritten(name, patterns): name for name in sorted(source, reverse=True)}
    origin |= {new: old for new, old in names.items() if old in source}
    return _paired("table", source, candidate, origin)


def whole(new: str, old: str, source: Shapes) -> Pairing:
    """Return how a tensor is made of another one, as it lies."""
    return Pairing(candidate=new, parts=(Part(source=old),), shape=source[old])


def _paired(name: str, source: Shapes, candidate: Collection[str], origin: Mapping[str, str]) -> "Plan":
    """Pair each tensor of the candidate with its origin, where it has one."""
    pairings = {new: whole(new, origin[new], source) for new in candidate if new in origin}
    return Plan(name=name, pairings=pairings, tied=ties({*source, *candidate}))


def rewritten(name: str, patterns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Return a name after all patterns, in turn; one that is too long as it is."""
    if len(name) > MAX_NAME:
        return name
    for pattern, new in patterns:
        name = pattern.sub(new, name)
    return name


# --- The inverse of a plan --------------------------------------------------------------------------------------------

# How the tensors that were converted come back from what they became. Rows go back where they came from, and a one that
# was added is taken away. What else was computed, or cut, has no rule.

COMPUTED = "a table that the loader computes"
BACK = {"": "", "+1": "-1.0"}


class _Use(NamedTuple):
    """Where rows of one source tensor went: the pairing, the part of it, and the first row there."""

    pairing: Pairing
    part: Part
    first: int


def inverse(plan: "Plan", there: Shapes) -> "Plan":
    """Return the plan by which the sources of another, of these shapes, are made of its candidate."""
    uses: dict[str, list[_Use]] = {}
    for pairing in plan.pairings.values():
        first = 0
        for part in pairing.parts:
            uses.setdefault(part.source, []).append(_Use(pairing, part, first))
            axis, start, stop = part.take or (0, 0, _rows(there[part.source]))
            first += (stop - start) * (math.prod(part.view) // part.view[axis] if part.take and part.view else 1)
    return Plan(
        name=plan.name.replace("gguf:auto", "from gguf:auto"),
        pairings={name: _back(name, there[name], used) for name, used in uses.items()},
        tied={name: plan.tied[name] for name in plan.tied if name in there and name not in uses},
        left_out={**plan.left_out, **plan.drop_rules, **dict.fromkeys(plan.generated, COMPUTED)},
        heads=plan.heads,
        without_rule=plan.without_rule | plan.in_header.keys(),
        untried=plan.untried or ("a number that stands in the header" if plan.in_header else ""),
    )


def _back(name: str, shape: Shape, used: Sequence[_Use]) -> Pairing:
    """Return how a tensor is made of what became of it."""
    (arithmetic, *others) = {BACK.get(use.pairing.arithmetic, NO_RULE) for use in used}
    parts = tuple(_whole(shape, used[0]) if len(used) == 1 else _apart(used))
    # Nothing was done to the rows but what is undone here.
    plain = (replace(use.part, view=(), take=None, order=(), transposed=False) for use in used)
    known = all(part == Part(source=part.source) for part in plain) and not any(use.pairing.zeros for use in used)
    if not parts or others or not known:
        arithmetic, parts = NO_RULE, (Part(source=used[0].pairing.candidate),)
    done = ", ".join(dict.fromkeys(use.pairing.transform for use in used if use.pairing.transform))
    transform = f"back from {done}" if done else ""
    return Pairing(candidate=name, parts=parts, shape=shape, arithmetic=arithmetic, transform=transform)


def _whole(shape: Shape, use: _Use) -> Iterator[Part]:
    """Yield the one stretch of rows that a whole tensor went into, in its old order; nothing where rows were cut."""
    pairing, part, first = use
    if part.take is not None:
        return
    name, rows, many = pairing.candidate, _rows(pairing.shape), _rows(shape)
    if part.transposed:
        yield from [Part(source=name, transposed=True)] if len(pairing.parts) == 1 else []
        return
    sizes = tuple(part.view[axis] for axis in part.order)
    order = tuple(sorted(range(len(part.order)), key=part.order.__getitem__))
    if len(pairing.parts) == 1:
        yield Part(source=name, view=sizes, order=order)
        return
    each = math.prod(sizes[1:])
    view = (rows // each, *sizes[1:]) if sizes else (rows,)
    if part.order[:1] in ((), (0,)) and rows % each == first % each == 0:
        yield Part(source=name, view=view, take=(0, first // each, (first + many) // each), order=order)


def _apart(used: Sequence[_Use]) -> Iterator[Part]:
    """Yield, group for group, the rows that were put apart by one dimension; nothing where some of them are lost."""
    cuts = sorted((use for use in used if use.part.take is not None), key=lambda use: use.part.take or ())
    views, takes = {use.part.view for use in used}, [use.part.take for use in cuts if use.part.take]
    ends = [0, *(stop for _, _, stop in takes)]
    view = next(iter(views))
    alone = len(views) == 1 and len(view) == 3 and len(takes) == len(used) and not any(use.part.order for use in used)
    if not alone or takes != [(1, *cut) for cut in itertools.pairwise(ends)] or ends[-1] != view[1]:
        return
    for group in range(view[0]):
        for use, (_, start, stop) in zip(cuts, takes, strict=True):
            many = (stop - start) * view[2]
            first = use.first + group * many
            yield Part(source=use.pairing.candidate, view=(_rows(use.pairing.shape),), take=(0, first, first + many))


def _rows(shape: Shape) -> int:
    return math.prod(shape[:-1]) if len(shape) > 1 else math.prod(shape)
