"""What a directory, a GGUF header or APR metadata says of each field of its model; null states nothing. Pure."""

import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from weighbridge.core import Json, dataclass, field, replace, table
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, FieldKind

HUGGING_FACE, GGUF, APR = "Hugging Face", "GGUF", "APR"
SHOWN = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What one side says of one field: the value, where it was read, and how it came about."""

    value: Json
    read: str
    basis: str = "reported"  # or `derived` from other values of this side, or a loader's `default`
    also: tuple[tuple[Json, str], ...] = ()  # other values that the same side states elsewhere, with their places


Fields: TypeAlias = Mapping[str, Stated]
Parsed: TypeAlias = Mapping[str, Any]  # a JSON object as it lies in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One side's configuration: the format, the architecture's name in it, its fields, and its tensors."""

    form: str
    architecture: str
    fields: Fields
    tensors: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of a GGUF file, with their shapes
    tokenizer: str = ""  # GGUF's name of the tokenizer's kind, or the class in tokenizer_config.json
    taken: Mapping[str, tuple[Json, str]] = field(default_factory=dict)  # what its files take where nothing is said

    def value(self, name: str) -> Json:
        """Return what it states of a field, None where it states nothing."""
        return self.fields[name].value if name in self.fields else None


def canonical(value: Json, kind: FieldKind) -> Json:
    """Return the one form of a value; what is of another kind becomes a text that says what it is."""
    if kind is FieldKind.COUNT and isinstance(value, (list, tuple)) and value:
        each = [canonical(item, kind) for item in value]
        return each[0] if all(item == each[0] for item in each) else each if len(each) <= SHOWN else text(each)
    if kind is FieldKind.SWITCH:
        return value if isinstance(value, bool) else text(value)
    if kind is FieldKind.WORD:
        return value if isinstance(value, str) and len(value) <= SHOWN else text(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return text(value)
    if kind is FieldKind.NUMBER:
        try:
            return float(value)
        except OverflowError:
            return text(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def text(value: Json) -> str:
    """Return a value of an unexpected kind in a few letters, unlike every other value's."""
    try:
        written = json.dumps(value, sort_keys=True)
    except (RecursionError, ValueError, TypeError):
        return "a value that cannot be written"
    return f"{shortened(written)} ({type(value).__name__})"


def shortened(text: str) -> str:
    """Return a text; of a long one its beginning and its digest."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return text if len(text) <= SHOWN else f"{text[:20]}… sha256:{digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldKeys:
    """The keys that state one field, as `model_keys.yaml` says, and what a loader takes where none does."""

    config: tuple[str, ...] = ()
    gguf: tuple[str, ...] = ()
    rope: str = ""
    default: Json = None
    optional: bool = False


@functools.cache
def field_keys() -> Mapping[str, FieldKeys]:
    """Read the table of keys, by field."""
    return {name: FieldKeys(**row) for name, row in table("model_config/model_keys")["fields"].items()}


PARTIAL = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent")
# Names of GGUF; `table` is a scaling whose factors are a tensor.
SCALINGS = {"default": "none", "mrope": "none", "su": "longrope", "llama3": "table", "proportional": "table"}
# Of tokenizer.json, by its model's type and whether unknown bytes have pieces of their own; others are not known.
TOKENIZER_KINDS = {("BPE", False): "gpt2", ("BPE", True): "llama", ("WordPiece", False): "bert"}
# Kinds of layers in transformers.
WINDOWED, WHOLE = ("sliding_attention", "chunked_attention"), ("full_attention", "attention")
RECURRENT = ("mamba", "conv", "linear_attention", "recurrent")
ELSE = ("moe", "mlp")  # a layer of its own
BEYOND_PADDING = ("roberta", "xlm-roberta", "camembert")  # whose positions begin behind the padding's id
TOKENS = ("bos", "eos", "pad", "unk", "sep", "mask")
GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_weight", 4: "sqrtsoftplus"}  # llama.cpp's numbers
TOKENIZER_MODEL = "tokenizer.ggml.model"
ALSO = {"eos": ("eod_token_id",)}  # Hunyuan's, which its converter writes
STANDS_FOR = {"bos": "cls", "eos": "sep"}  # where an encoder names no such token


def of_config(config: Mapping[str, Any], place: str) -> dict[str, Stated]:
    """Read the fields that a config.json, or the metadata of an APR file, states."""
    found: dict[str, Stated] = {}
    if not config:
        return found
    other = table("model_config/model_keys")["of_model_type"].get(str(config.get("model_type")), {})
    for name, keys in field_keys().items():
        key = next((key for key in other.get(name, keys.config) if at_path(config, key) is not None), None)
        if key is not None:
            found[name] = Stated(value=canonical(at_path(config, key), CONFIG_FIELDS[name]), read=f"{place} {key}")
    found |= _rope(config, place)
    found |= _partial(config, place, found)
    found |= _of_layers(config, place)
    if config.get("multi_query") is True and config.get("new_decoder_architecture") is not True:
        found["head_count_kv"] = Stated(value=1, read=f"{place} multi_query")
    if config.get("use_sliding_window") is False:
        found["sliding_window"] = Stated(value=0, read=f"{place} use_sliding_window")
    found |= {name: Stated(value=one, read=f"{place} {key}", basis="derived") for name, key, one in _computed(config)}
    found |= _head_sizes(config, place)
    # A class without a head has none that could be tied: `LlamaModel`, but not `GPT2LMHeadModel`.
    classes = config.get("architectures")
    names = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    if any(name.endswith("Model") and "Head" not in name for name in names):
        found.pop("tied_embeddings", None)
    return found


def at_path(config: Any, key: str) -> Any:
    """Return what stands under a key, which may lead into objects inside; None where there is nothing."""
    for step in key.split("."):
        config = config.get(step) if isinstance(config, Mapping) else None
    return config


def _computed(config: Mapping[str, Any]) -> Iterator[tuple[str, str, int]]:
    family, width = config.get("model_type"), config.get("d_model")
    if family == "lfm2" and config.get("block_auto_adjust_ff_dim") is True:
        key = "block_ff_dim" if "block_ff_dim" in config else "intermediate_size"
        # As its class and conversion/lfm2.py do.
        adjusted = _adjusted(*(config.get(one) for one in (key, "block_ffn_dim_multiplier", "block_multiple_of")))
        if adjusted is not None:
            yield "feed_forward_length", key, adjusted
    kinds = config.get("layers_block_type") or config.get("hybrid_override_pattern")
    experts = isinstance(kinds, (list, str)) and any(kind in ("moe", "E") for kind in kinds)
    if family == "nemotron_h" and experts and isinstance(one := config.get("moe_intermediate_size"), int):
        yield "feed_forward_length", "moe_intermediate_size", one
    times = config.get("expansion_ratio")
    if family == "mpt" and isinstance(times, int) and isinstance(width, int):
        yield "feed_forward_length", "expansion_ratio", times * width
    context, padding = (config.get(key) for key in ("max_position_embeddings", "pad_token_id"))
    if family in BEYOND_PADDING and isinstance(context, int) and isinstance(padding, int):
        yield "context_length", "max_position_embeddings", context - padding - 1


def _adjusted(width: Any, times: Any, step: Any) -> int | None:
    if not isinstance(width, int) or not isinstance(step, int) or step < 1:
        return None
    try:
        width = int(2 * width / 3)
        return -(-int(times * width if isinstance(times, (int, float)) else width) // step) * step
    except OverflowError:
        return None


def _head_sizes(config: Mapping[str, Any], place: str) -> dict[str, Stated]:
    fixed, turning = config.get("qk_nope_head_dim"), config.get("qk_rope_head_dim")
    if isinstance(fixed, int) and isinstance(turning, int):
        return {"head_dim": Stated(value=fixed + turning, read=f"{place} qk_nope_head_dim", basis="derived")}
    each, kinds = config.get("per_layer_config"), config.get("layer_types")
    if not isinstance(each, Mapping) or not isinstance(kinds, list):
        return {}
    for at in (str(at) for at, kind in enumerate(kinds) if kind in WHOLE):
        if isinstance(size := at_path(each, f"{at}.head_dim"), int):
            return {"head_dim": Stated(value=size, read=f"{place} per_layer_config.{at}.head_dim")}
    return {}


def _of_layers(config: Mapping[str, Any], place: str) -> dict[str, Stated]:
    key = next((key for key in ("layer_types", "layers_block_type") if isinstance(config.get(key), list)), "")
    kinds, read = config[key] if key else (), f"{place} {key}"
    found: dict[str, Stated] = {}
    counts = field_keys()["block_count"].config
    if kinds and key == "layers_block_type" and all(config.get(name) is None for name in counts):
        found["block_count"] = Stated(value=len(kinds), read=read, basis="derived")
    if not kinds or any(kind not in (*WINDOWED, *WHOLE, *RECURRENT, *ELSE) for kind in kinds):
        return found
    if any(kind in WINDOWED for kind in kinds):
        found["sliding_layers"] = Stated(value=digits(kind in WINDOWED for kind in kinds), read=read)
    elif "sliding_window" in config:
        found["sliding_window"] = Stated(value=0, read=read)
    if any(kind in (*RECURRENT, *ELSE) for kind in kinds):
        found["attention_layers"] = Stated(value=digits(kind in (*WINDOWED, *WHOLE) for kind in kinds), read=read)
    return found


def digits(flags: Iterable[bool]) -> Json:
    """Return a digit for each layer: 1 where it is meant."""
    return canonical("".join("1" if flag else "0" for flag in flags), FieldKind.WORD)


def _rope_of(config: Mapping[str, Any]) -> tuple[str, Any]:
    name = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
    inner = at_path(config, f"{name}.full_attention")
    return (f"{name}.full_attention", inner) if isinstance(inner, Mapping) else (name, config.get(name))


def _rope(config: Mapping[str, Any], place: str) -> dict[str, Stated]:
    name, rope = _rope_of(config)
    read = f"{place} {name}"
    if not isinstance(rope, Mapping):
        return {} if rope is None else {"rope_scaling": Stated(value=text(rope), read=read)}
    found = {
        field: Stated(value=canonical(rope[keys.rope], CONFIG_FIELDS[field]), read=f"{read}.{keys.rope}")
        for field, keys in field_keys().items()
        if keys.rope and rope.get(keys.rope) is not None
    }
    key = "rope_type" if rope.get("rope_type") is not None else "type"
    if rope.get(key) is not None:
        word = canonical(rope[key], FieldKind.WORD)
        found["rope_scaling"] = Stated(value=SCALINGS.get(str(word).lower(), word), read=f"{read}.{key}")
    local = f"{name.partition('.')[0]}.sliding_attention.rope_theta"
    if (base := at_path(config, local)) is not None:
        found["rope_base_local"] = Stated(value=canonical(base, FieldKind.NUMBER), read=f"{place} {local}")
    return found


def _partial(config: Mapping[str, Any], place: str, found: Fields) -> dict[str, Stated]:
    (name, _), size = _rope_of(config), head_dim(found)
    for key in (f"{name}.{PARTIAL[0]}", *PARTIAL):
        share = at_path(config, key)
        if isinstance(share, (int, float)) and 0 < share <= 1 and size is not None:
            return {"rope_dimensions": Stated(value=int(float(share) * size), read=f"{place} {key}", basis="derived")}
    return {}


def head_dim(found: Fields) -> int | None:
    """Return the size of a head: stated, or the width over the count of heads."""
    names = "head_dim", "embedding_length", "head_count"
    stated, width, many = (found[name].value if name in found else None for name in names)
    if isinstance(stated, int):
        return stated
    return width // many if isinstance(width, int) and isinstance(many, int) and many > 0 and not width % many else None


def of_tokenizer(config: Parsed, generation: Parsed, tokenizer: Parsed, known: Mapping[str, int]) -> dict[str, Stated]:
    """Read ids of special tokens and switches; `known` gives the ids of added tokens by their content.

    tokenizer_config.json names tokens, which tokenizer.json numbers, and comes before config.json and
    generation_config.json, which number them; what these say else is kept beside.
    """
    found = {}
    for token in TOKENS:
        stated = [*_named(token, tokenizer, known), *_numbered(token, config, "config.json")]
        stated += _numbered(token, generation, "generation_config.json")
        if stated:
            (value, read), *also = stated
            found[f"{token}_token_id"] = Stated(value=value, read=read, also=tuple(also))
    for name in ("add_bos_token", "add_eos_token"):
        if (value := tokenizer.get(name)) is not None:
            found[name] = Stated(value=canonical(value, FieldKind.SWITCH), read=f"tokenizer_config.json {name}")
    return found


def of_tokenizer_model(model: Any) -> dict[str, Stated]:
    """Read which kind of tokenizer a tokenizer.json holds, by GGUF's name of it."""
    model = model if isinstance(model, Mapping) else {}
    kind = TOKENIZER_KINDS.get((str(model.get("type")), model.get("byte_fallback") is True))
    return {} if kind is None else {"tokenizer_model": Stated(value=kind, read="tokenizer.json model.type")}


def _named(token: str, tokenizer: Mapping[str, Any], known: Mapping[str, int]) -> Iterator[tuple[Json, str]]:
    for name in (token, STANDS_FOR.get(token, "")):
        entry = tokenizer.get(f"{name}_token")
        content = entry.get("content") if isinstance(entry, Mapping) else entry
        if isinstance(content, str) and content in known:
            yield known[content], f"tokenizer_config.json {name}_token"
            return


def _numbered(token: str, config: Mapping[str, Any], place: str) -> Iterator[tuple[Json, str]]:
    for key in (f"{token}_token_id", *ALSO.get(token, ())):
        value = config.get(key)
        for one in value if isinstance(value, list) else [value]:
            if one is not None:
                yield canonical(one, FieldKind.COUNT), f"{place} {key}"


def of_post_processor(processor: Any, special: Mapping[str, str]) -> dict[str, Stated]:
    """Read whether a text begins and ends with special tokens; `special` gives the texts of `bos` and `eos`."""
    nested = processor.get("processors") if isinstance(processor, Mapping) else None
    found: dict[str, tuple[bool, str]] = {}
    for one in nested if isinstance(nested, list) else [processor]:
        kind = one.get("type") if isinstance(one, Mapping) else None
        if kind == "ByteLevel":
            found = {"bos": (False, kind), "eos": (False, kind), **found}
        elif kind == "RobertaProcessing":
            found |= {"bos": (True, kind), "eos": (True, kind)}
        elif kind == "TemplateProcessing":
            found |= {token: (value, kind) for token, value in _of_template(one.get("single"), special)}
    place = "tokenizer.json post_processor"
    return {f"add_{token}_token": Stated(value=one, read=f"{place} {kind}") for token, (one, kind) in found.items()}


def _of_template(template: Any, special: Mapping[str, str]) -> Iterator[tuple[str, bool]]:
    ends = (template[0], template[-1]) if isinstance(template, list) and len(template) > 1 else ()
    for token, piece in zip(("bos", "eos"), ends, strict=False):
        inner = piece.get("SpecialToken") if isinstance(piece, Mapping) else None
        if isinstance(inner, Mapping):
            yield token, inner.get("id") == special.get(token)


def gguf_keys(architecture: str) -> dict[str, tuple[str, ...]]:
    """Return GGUF's keys of each field, the first that is there."""
    own, whole = f"{architecture}.", ("general.", "tokenizer.")
    fields = ((name, keys.gguf) for name, keys in field_keys().items() if keys.gguf)
    found = {name: tuple(key if key.startswith(whole) else own + key for key in keys) for name, keys in fields}
    if architecture == "nemotron":  # whose loader reads the other one
        found["norm_epsilon"] = found["norm_epsilon"][::-1]
    return found


def of_gguf(metadata: Mapping[str, Json], tensors: Collection[str]) -> dict[str, Stated]:
    """Read the fields that a GGUF file's metadata states, and what its tensors say of rope scaling."""
    found = {}
    for name, keys in gguf_keys(str(metadata.get("general.architecture"))).items():
        if (key := next((one for one in keys if metadata.get(one) is not None), None)) is not None:
            found[name] = Stated(value=canonical(metadata[key], CONFIG_FIELDS[name]), read=key)
    for tensor, kind in (("rope_factors_long.weight", "longrope"), ("rope_freqs.weight", "table")):
        if tensor in tensors:
            found["rope_scaling"] = Stated(value=kind, read=f"the tensor {tensor}", basis="derived")
    if "sliding_layers" in found and not isinstance(metadata[found["sliding_layers"].read], list):
        del found["sliding_layers"]  # a period, whose phase is the loader's
    return found | _of_arrays(metadata, found)


def _of_arrays(metadata: Mapping[str, Json], found: Fields) -> dict[str, Stated]:
    more = {}
    pattern, gating = (found.get(name) for name in ("sliding_layers", "expert_gating"))
    if pattern is not None and isinstance(flags := metadata[pattern.read], list):
        more["sliding_layers"] = replace(pattern, value=digits(map(bool, flags)))
        if not any(flags):  # a window that no layer has
            more["sliding_window"] = Stated(value=0, read=pattern.read, basis="derived")
    if gating is not None:
        number = metadata[gating.read]
        known = GATINGS.get(number, gating.value) if type(number) is int else number
        more["expert_gating"] = replace(gating, value=known)
    if (recurrent := found.get("attention_layers")) is not None and isinstance(flags := metadata[recurrent.read], list):
        more["attention_layers"] = replace(recurrent, value=digits(not flag for flag in flags))
    for name in ("head_count_kv", "feed_forward_length"):  # of the layers that have any
        stated = found.get(name)
        if stated is not None and isinstance(each := metadata[stated.read], list) and 0 in each and any(each):
            more[name] = replace(stated, value=canonical([count for count in each if count], FieldKind.COUNT))
            if name == "head_count_kv":
                more["attention_layers"] = Stated(value=digits(map(bool, each)), read=stated.read, basis="derived")
    blocks, nextn = (found.get(name) for name in ("block_count", "nextn_predict_layers"))
    if blocks and nextn and isinstance(blocks.value, int) and isinstance(nextn.value, int) and nextn.value:
        less = blocks.value - nextn.value
        more["block_count"] = replace(blocks, also=((less, f"{blocks.read} less {nextn.read}"),))
        for name in ("sliding_layers", "attention_layers"):
            if (one := more.get(name)) and isinstance(one.value, str) and len(one.value) == blocks.value:
                more[name] = replace(one, also=((one.value[:less], f"{one.read}, less them"),))
    return more
