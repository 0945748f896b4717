"""The words of a mapping: a part of a source tensor, what a candidate's tensor is made of, and the plan of them all.

Never looks at a payload; says where values go, not whether they got there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Rows of one source tensor, in the order in which they are meant to stand.

    `view` splits the rows into dimensions, `take` keeps `start:stop` of one of them, `order` transposes them, `times`
    over; `transposed` exchanges a matrix's rows and columns instead.
    """

    source: str
    view: tuple[int, ...] = ()
    take: tuple[int, int, int] | None = None
    order: tuple[int, ...] = ()
    times: int = 1
    transposed: bool = False

    @property
    def plain(self) -> bool:
        """Tell whether the part is the whole tensor as it lies."""
        return not (self.view or self.take or self.order or self.transposed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """One tensor of the candidate: its parts, one after the other, its shape, and what is computed of each value.

    `arithmetic` is "" or one of `+1`, `+2`, `-exp`. `transform` says it in words.
    """

    candidate: str
    parts: tuple[Part, ...]
    shape: tuple[int, ...]
    arithmetic: str = ""
    transform: str = ""

    @property
    def plain(self) -> bool:
        """Tell whether the tensor is meant to hold one source tensor's words, as they lie."""
        return len(self.parts) == 1 and self.parts[0].plain and not self.arithmetic


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a whole source becomes a candidate.

    `tied` names the tensor that another one may repeat, on either side; `drop_rules` says why a source tensor may go;
    `generated` gives the values of tensors that have no source; `heads` are those of queries and of keys.
    """

    name: str
    pairings: Mapping[str, Pairing]
    tied: Mapping[str, str] = field(default_factory=dict)
    drop_rules: Mapping[str, str] = field(default_factory=dict)
    generated: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    heads: tuple[int, ...] = ()

    def used(self) -> set[str]:
        """Name the source tensors that some tensor of the candidate is made of."""
        return {part.source for pairing in self.pairings.values() for part in pairing.parts}


# A head that repeats the embedding, and embeddings that repeat the shared one.
HEADS = (
    "lm_head.weight",
    "output.weight",
    "embed_out.weight",
    "cls.predictions.decoder.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
)
EMBEDDINGS = (
    "model.embed_tokens.weight",
    "token_embd.weight",
    "shared.weight",
    "transformer.wte.weight",
    "transformer.word_embeddings.weight",
    "gpt_neox.embed_in.weight",
    "backbone.embeddings.weight",
    "wte.weight",
    "bert.embeddings.word_embeddings.weight",
)


def ties(names: Collection[str]) -> dict[str, str]:
    """Name, for each head, the embedding that it may be tied to, and for a lone embedding its head."""
    embedding = next((name for name in EMBEDDINGS if name in names), None)
    return {} if embedding is None else {name: embedding for name in HEADS if name in names and name != embedding}


def identity(source: Mapping[str, tuple[int, ...]], candidate: Collection[str]) -> Plan:
    """Pair tensors of one name; `source` gives shapes by name."""
    pairings = {
        name: Pairing(candidate=name, parts=(Part(source=name),), shape=source[name])
        for name in candidate
        if name in source
    }
    return Plan(name="identity", pairings=pairings, tied=ties({*source, *candidate}))
