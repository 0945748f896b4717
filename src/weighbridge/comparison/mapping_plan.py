"""The words of a mapping: a part of a source tensor, what a candidate's tensor is made of, and the plan of them all.

Never looks at a payload; says where values go, not whether they got there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one source tensor, in the order in which they are meant to stand.

    `rows` keeps `start:stop` of them, `view` splits those into dimensions, `take` keeps `start:stop` of one of these,
    `order` transposes them, `times` over. `transposed` exchanges a matrix's rows and columns instead, of which
    `columns` keeps `start:stop:step`. Values are multiplied by `factors`, in turn.
    """

    source: str
    view: tuple[int, ...] = ()
    take: tuple[int, int, int] | None = None
    order: tuple[int, ...] = ()
    times: int = 1
    transposed: bool = False
    rows: tuple[int, int] | None = None
    columns: tuple[int, int, int] | None = None
    factors: tuple[float, ...] = ()

    @property
    def plain(self) -> bool:
        """Return whether the part is the whole tensor as it lies."""
        return not (self.view or self.take or self.order or self.transposed or self.rows or self.columns)


def rope_order(name: str, heads: int, rows: int) -> Part:
    """Interleave the halves of each head: `[heads, 2, half]` becomes `[heads, half, 2]`."""
    return Part(source=name, view=(heads, 2, rows // heads // 2), order=(0, 2, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One tensor of the candidate: its parts, one after the other, its shape, and what is computed of each value.

    `arithmetic` is "" or one of `+1`, `+2`, `-exp`. So many `zeros` follow the parts. `transform` says it in words.
    """

    candidate: str
    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    arithmetic: str = ""
    transform: str = ""
    zeros: int = 0

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
    """How a whole source becomes a candidate.

    `tied` names the tensor that another one may repeat, on either side; `drop_rules` says why a source tensor may go;
    `generated` gives the values of tensors that have no source; `heads` are those of queries and of keys. `in_header`
    gives the key and the value that the candidate's header has in place of a source tensor. `untried` names an
    architecture whose rules were never held against a conversion; no rule speaks of its tensors `without_rule`.
    """

    name: str
    pairings: Mapping[str, Pairing]
    tied: Mapping[str, str] = field(default_factory=dict)
    drop_rules: Mapping[str, str] = field(default_factory=dict)
    generated: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    heads: tuple[int, ...] = ()
    in_header: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    untried: str = ""
    without_rule: frozenset[str] = frozenset()

    def used(self) -> set[str]:
        """Return the source tensors that some tensor of the candidate is made of."""
        return {part.source for pairing in self.pairings.values() for part in pairing.parts}


# A head that repeats the embedding, and embeddings that repeat the shared one.
HEADS = (
    "lm_head.weight", "output.weight", "embed_out.weight", "cls.predictions.decoder.weight",
    "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
)  # fmt: skip
EMBEDDINGS = (
    "model.embed_tokens.weight", "token_embd.weight", "shared.weight", "transformer.wte.weight",
    "transformer.word_embeddings.weight", "gpt_neox.embed_in.weight", "backbone.embeddings.weight", "wte.weight",
    "bert.embeddings.word_embeddings.weight",
)  # fmt: skip


def ties(names: Collection[str]) -> dict[str, str]:
    """Return, for each head, the embedding that it may be tied to, and for a lone embedding its head."""
    embedding = next((name for name in EMBEDDINGS if name in names), None)
    return {} if embedding is None else {name: embedding for name in HEADS if name in names and name != embedding}


def identity(source: Mapping[str, tuple[int, ...]], candidate: Collection[str]) -> Plan:
    """Pair tensors of one name; `source` gives shapes by name."""
    return _paired("identity", source, candidate, {name: name for name in source})


MAX_NAME = 512  # letters of a name that a pattern is tried on


def table(
    source: Mapping[str, tuple[int, ...]],
    candidate: Collection[str],
    *,
    names: Mapping[str, str],
    rename: Sequence[tuple[str, str]],
) -> Plan:
    """Pair tensors by a table of candidate's to source's names; the others by rewriting the source's names in turn.

    Raises:
        re.error: a pattern that is none.
    """
    patterns = [(re.compile(pattern), new) for pattern, new in rename]
    origin = {rewritten(name, patterns): name for name in sorted(source, reverse=True)}
    origin |= {new: old for new, old in names.items() if old in source}
    return _paired("table", source, candidate, origin)


def _paired(
    name: str, source: Mapping[str, tuple[int, ...]], candidate: Collection[str], origin: Mapping[str, str]
) -> Plan:
    """Pair each tensor of the candidate with its origin, where it has one."""
    pairings = {
        new: Pairing(candidate=new, parts=(Part(source=origin[new]),), shape=source[origin[new]])
        for new in candidate
        if new in origin
    }
    return Plan(name=name, pairings=pairings, tied=ties({*source, *candidate}))


def rewritten(name: str, patterns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    """Return a name after all patterns, in turn; one that is too long as it is."""
    if len(name) > MAX_NAME:
        return name
    for pattern, new in patterns:
        name = pattern.sub(new, name)
    return name


HEADED = re.compile(r".*(attn_q|attn_k|q_proj|k_proj)\.(weight|bias)")
NORM = re.compile(r".*norm\d?\.weight")
LAYER = re.compile(r"(.*?\.)(\d+)(\..*)")


def alternatives(plan: Plan, meant: Pairing) -> dict[str, Pairing]:
    """List other makings of one tensor, the likeliest first, by mechanism."""
    found: dict[str, Pairing] = {}
    for name, made in (*_ordered(plan, meant), *_computed(meant), *_turned(meant), *_matched(plan, meant)):
        if made != meant:
            found.setdefault(name, made)
    return found


def _ordered(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    if part.order or (len(meant.parts) > 1 and len({one.source for one in meant.parts}) == 1):
        yield "permutation-missing", replace(meant, parts=(Part(source=part.source),))
    if not HEADED.fullmatch(meant.candidate) or len(meant.parts) != 1 or not meant.shape:
        return
    rows = meant.shape[0]
    for heads in dict.fromkeys(heads for heads in plan.heads if heads and rows % (2 * heads) == 0):
        other = rope_order(part.source, heads, rows)
        if not part.order:
            yield "permuted-unasked", replace(meant, parts=(other,))
        elif other.view != part.view:
            yield "wrong-head-count", replace(meant, parts=(other,))
    if part.order and len(part.view) == 3 and part.view[1] == 2:
        yield "permutation-twice", replace(meant, parts=(replace(part, times=2),))
        back = replace(part, view=(part.view[0], part.view[2], 2))
        yield "permutation-inverse", replace(meant, parts=(back,))


def _computed(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    if meant.arithmetic == "+1":
        yield "plus-one-missing", replace(meant, arithmetic="")
        yield "plus-one-twice", replace(meant, arithmetic="+2")
    elif meant.arithmetic == "-exp":
        yield "minus-exp-missing", replace(meant, arithmetic="")
    elif NORM.fullmatch(meant.candidate):
        yield "plus-one-unasked", replace(meant, arithmetic="+1")


def _turned(meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    part = meant.parts[0]
    if len(meant.parts) == 1 and len(meant.shape) == 2 and not (part.order or part.take):
        turned = replace(part, transposed=not part.transposed)
        yield "transposed", replace(meant, parts=(turned,), shape=meant.shape[::-1])


def _matched(plan: Plan, meant: Pairing) -> Iterator[tuple[str, Pairing]]:
    """Yield what another tensor of the candidate was meant to be: gate for up, or the neighbour layer's."""
    found = LAYER.fullmatch(meant.candidate)
    if found is None:
        return
    for one, other in (("ffn_gate", "ffn_up"), ("gate_proj", "up_proj")):
        for old, new in ((one, other), (other, one)):
            if f".{old}" in found[3]:
                yield from _other(plan, meant, "gate-and-up-swapped", found[1] + found[2] + found[3].replace(old, new))
    for step, name in ((-1, "layer-before"), (1, "layer-after")):
        yield from _other(plan, meant, name, f"{found[1]}{int(found[2]) + step}{found[3]}")


def _other(plan: Plan, meant: Pairing, name: str, candidate: str) -> Iterator[tuple[str, Pairing]]:
    other = plan.pairings.get(candidate)
    if other is not None and other.shape == meant.shape:
        yield name, replace(other, candidate=meant.candidate)
