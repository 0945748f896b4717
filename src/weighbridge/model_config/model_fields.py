"""The fields of a model's configuration, what a side says of each, and the form in which values are compared. Pure."""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.model import Json

HUGGING_FACE, GGUF, APR = "Hugging Face", "GGUF", "APR"
SHOWN = 80


class Kind(enum.Enum):
    """What a field holds; a value of another kind is compared as the text of it."""

    COUNT = enum.auto()
    NUMBER = enum.auto()
    WORD = enum.auto()
    SWITCH = enum.auto()


FIELDS: Mapping[str, Kind] = {
    "architecture": Kind.WORD,
    **dict.fromkeys(("block_count", "embedding_length", "feed_forward_length", "context_length"), Kind.COUNT),
    **dict.fromkeys(("vocab_size", "head_count", "head_count_kv", "head_dim"), Kind.COUNT),
    **dict.fromkeys(("rope_base", "rope_base_local"), Kind.NUMBER),
    "rope_dimensions": Kind.COUNT,
    "rope_scaling": Kind.WORD,
    "rope_scaling_factor": Kind.NUMBER,
    "rope_original_context": Kind.COUNT,
    "norm_epsilon": Kind.NUMBER,
    "activation": Kind.WORD,
    **dict.fromkeys(("expert_count", "expert_used_count", "sliding_window"), Kind.COUNT),
    **dict.fromkeys(("attn_logit_softcap", "final_logit_softcap"), Kind.NUMBER),
    "tied_embeddings": Kind.SWITCH,
    **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id"), Kind.COUNT),
    **dict.fromkeys(("add_bos_token", "add_eos_token"), Kind.SWITCH),
    "chat_template": Kind.WORD,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What one side says of one field: the value, where it was read, and how it came about.

    `basis` is `reported`, `derived` (from other values of this side) or `default` (what a loader takes where nothing
    is said). `also` are other values that the same side states elsewhere, with their places.
    """

    value: Json
    read: str
    basis: str = "reported"
    also: tuple[tuple[Json, str], ...] = ()


Fields = Mapping[str, Stated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One side's configuration: the format, the architecture's name in it, its fields, and its tensors' names."""

    form: str
    architecture: str
    fields: Fields
    tensors: frozenset[str] = frozenset()
    tokenizer: str = ""  # GGUF's name of the tokenizer's kind, or the class in tokenizer_config.json


def canonical(value: Json, kind: Kind) -> Json:
    """Return the one form of a value; what is of another kind becomes a text that says what it is."""
    if kind is Kind.COUNT and isinstance(value, (list, tuple)) and value:
        each = [canonical(item, kind) for item in value]
        return each[0] if all(item == each[0] for item in each) else each if len(each) <= SHOWN else text(each)
    if kind is Kind.SWITCH:
        return value if isinstance(value, bool) else text(value)
    if kind is Kind.WORD:
        return value if isinstance(value, str) and len(value) <= SHOWN else text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    if kind is Kind.NUMBER:
        try:
            return float(value)
        except OverflowError:
            return text(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text(value: Json) -> str:
    """Return a value of an unexpected kind in a few letters, unlike every other value's."""
    try:
        told = json.dumps(value, sort_keys=True)
    except (RecursionError, ValueError, TypeError):
        return "a value that cannot be written"
    if len(told) <= SHOWN:
        return f"{told} ({type(value).__name__})"
    return f"{told[:20]}… sha256:{hashlib.sha256(told.encode()).hexdigest()} ({type(value).__name__})"
