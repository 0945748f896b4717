"""What a loader takes where a configuration says nothing, and which fields two formats cannot be compared in. Pure.

A default is only ever compared with what the other side states; where neither side states a field, nothing is.
Sources: the defaults of transformers' configuration classes, those of llama.cpp's loader, and `conversion_facts.yaml`:
what its converter writes of its own, and what it loses, one row a fact.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

from weighbridge.core import Json, dataclass, replace, table
from weighbridge.model_config.model_keys import GGUF, Model, Stated, field_keys, head_dim

CONVERTER = "of llama.cpp's converter"
DEFAULTS = "model_config/model_defaults"
FOUR_TIMES_AS_WIDE = ("gpt2", "falcon", "bloom", "gptj", "codegen", "gpt_bigcode", "starcoder")
ENCODERS = ("bert", "nomic-bert", "jina-bert-v2", "t5encoder")  # they have no head that could be tied

SAID_BY_NONE = {
    "tied_embeddings": "a head of its own, or none at all: the tensors tell",
    "activation": "GGUF does not say it, and what a loader computes is not known here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a converter does with fields of some architectures, with its line."""

    of: tuple[str, ...]
    fields: tuple[str, ...]
    why: str
    line: str
    unsaid: bool = False
    makes: tuple[tuple[str, Any], ...] = ()
    whose: str = ""
    said: Json = None

    @property
    def text(self) -> str:
        """Return the reason, with the converter's line."""
        return f"{self.why} ({self.line} {CONVERTER})"

    def made(self, file: Model) -> list[Json]:
        """Return what the file then has: multiples of its fields, or values as they are."""
        numbers: dict[str, Json] = {key: one.value for key, one in file.fields.items()}
        numbers |= {"": 1, "head_dim": head_dim(file.fields)}
        return [times * one for key, times in self.makes if isinstance(one := numbers.get(key), (int, float))]


def written(name: str, file: Model, other: Model) -> str:
    """Return why this field of a GGUF file is the converter's own and not compared; nothing where it is another's."""
    fact = _facts("written").get((file.architecture, name))
    if fact is None or (fact.unsaid and name in other.fields):
        return ""
    own = not fact.makes or name not in file.fields or file.fields[name].value in fact.made(file)
    return fact.text if own else ""


@functools.cache
def _facts(kind: str) -> Mapping[tuple[str, str], Fact]:
    facts = [Fact(**row) for row in table("model_config/conversion_facts")[kind]]
    return {(one, field): fact for fact in facts for one in fact.of for field in fact.fields}


def own_value(name: str, file: Model) -> Stated | None:
    """Return the one value that the converter writes in a field of its own, where there is one."""
    fact = _facts("written").get((file.architecture, name))
    made = fact.made(file) if fact is not None else []
    return Stated(value=made[0], read=f"nothing said; {fact.text}", basis="default") if fact and made else None


def lost(name: str, value: Json, source: Model, candidate: Model) -> str:
    """Return what is known to be lost where a GGUF file holds this value of a field, or nothing."""
    fact = _facts("lost").get((candidate.architecture, name))
    if fact is None or fact.whose not in ("", source.architecture) or fact.said not in (None, source.value(name)):
        return ""
    fits = value in made if (made := fact.made(candidate)) else fact.whose or value is None
    return fact.text if fits else ""


@functools.cache
def computed_activations() -> Mapping[str, str]:
    """Return the activation that llama.cpp computes for an architecture, whatever the configuration says."""
    return {name: kind for kind, names in table(DEFAULTS)["computed"].items() for name in names}


def all_known(file: Model) -> bool:
    """Return whether each key that a converter writes for this GGUF file's architecture is known to these tables."""
    return file.form == GGUF and file.architecture in table(DEFAULTS)["converted"]


def common(name: str, value: Json, *sides: Model) -> Json:
    """Return a value as loosely as two formats both know it."""
    file = next((side.architecture for side in sides if side.form == GGUF), "")
    if name == "architecture" and value in table(DEFAULTS)["converted"].get(file, ()):
        return file
    return family(value) if name == "activation" else value


def optional(name: str) -> bool:
    """Return whether a side may leave a field out for its loader to know."""
    return name in field_keys() and field_keys()[name].optional


def default(name: str, model: Model) -> Stated | None:
    """Return what a loader takes for a field that this side does not state, or None where that is not known."""
    if model.form == GGUF and name in GGUF_ONLY:
        return GGUF_ONLY[name](model)
    architectures = "of_architecture" if model.form == GGUF else "of_model_type"
    for by, key in ((architectures, model.architecture), ("of_tokenizer", model.tokenizer)):
        own = table(DEFAULTS)[by].get(key, {})
        if name in own:
            return _taken(own[name], f"the default of {key}")
    if name in model.taken:
        return _taken(*model.taken[name])
    if name in COMPUTED_FROM:
        return _taken(*COMPUTED_FROM[name](model))
    return _taken(field_keys()[name].default if name in field_keys() else None, "the default")


def _taken(value: Json, how: str) -> Stated | None:
    return None if value is None else Stated(value=value, read=f"nothing said; {how}", basis="default")


def _head_dim(model: Model) -> tuple[Json, str]:
    own = {} if model.form == GGUF else table(DEFAULTS)["of_model_type"].get(model.architecture, {})
    if "head_dim" in own and "head_dim" not in model.fields:
        return own["head_dim"], f"the default of {model.architecture}"
    return head_dim(model.fields), "embedding_length / head_count"


def _value_dim(model: Model) -> tuple[Json, str]:
    if model.form == GGUF:  # which need not state it, whatever the size of a key
        model = replace(model, fields={name: one for name, one in model.fields.items() if name != "head_dim"})
    return _head_dim(model)


def _feed_forward(model: Model) -> tuple[Json, str]:
    width = model.value("embedding_length") if model.architecture in FOUR_TIMES_AS_WIDE else None
    return (4 * width if isinstance(width, int) else None), "4 x embedding_length"


COMPUTED_FROM: Mapping[str, Callable[[Model], tuple[Json, str]]] = {
    "head_dim": _head_dim,
    "rope_dimensions": _head_dim,
    "value_dim": _value_dim,
    "head_count_kv": lambda model: (model.value("head_count"), "head_count"),
    "rope_original_context": lambda model: (model.value("context_length"), "context_length"),
    "feed_forward_length": _feed_forward,
}


def _tied(model: Model) -> Stated | None:
    heads = "output.weight", *(name for name in model.tensors if name.endswith(("lm_head.weight", "embed_out.weight")))
    if any(name in model.tensors for name in heads) or model.architecture in ENCODERS:
        return None
    return Stated(value=True, read="no tensor output.weight", basis="default")


def _computed(model: Model) -> Stated | None:
    kind, read = computed_activations().get(model.architecture), f"what a loader of {model.architecture} computes"
    return None if kind is None else Stated(value=kind, read=read, basis="default")


GGUF_ONLY: Mapping[str, Callable[[Model], Stated | None]] = {"tied_embeddings": _tied, "activation": _computed}


def family(value: Json) -> Json:
    """Return an activation as loosely as GGUF's loaders know it: all approximations of GELU are one."""
    found: Json = table(DEFAULTS)["same_family"].get(str(value), value)
    return found


def incomparable(name: str, source: Model, candidate: Model) -> str:
    """Return why a field of these two sides cannot be compared, or nothing."""
    if source.form == candidate.form:
        return ""
    file, other = (candidate, source) if candidate.form == GGUF else (source, candidate)
    if name == "architecture":
        known = all_known(file) and any(other.architecture in some for some in table(DEFAULTS)["converted"].values())
        return "" if known else "the two formats name architectures differently"
    if file.form != GGUF:
        return ""
    if own := written(name, file, other):
        return own
    in_tensors = file.value("rope_scaling") in ("table", "longrope")
    if in_tensors and name in ("rope_scaling_factor", "rope_original_context"):
        return "" if name in file.fields else "the factors are a tensor of the import, and compared as one"
    if name in GGUF_ONLY and name in other.fields and name not in file.fields and default(name, file) is None:
        return SAID_BY_NONE[name]
    # An id that no token has is left out by a converter.
    value, size = other.value(name), other.value("vocab_size")
    outside = name.endswith("_token_id") and isinstance(value, int) and isinstance(size, int) and value >= size
    return "the id lies outside the vocabulary" if outside and name not in file.fields else ""
