"""The rules by which llama.cpp's converter makes a GGUF file, `gguf_rules.yaml`, and what a tensor becomes by them."""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from weighbridge.core import dataclass, table
from weighbridge.mapping.mapping_plan import Pairing, Part, Shape
from weighbridge.model_config.model_keys import at_path

LAYER = r"(?:.*\.)?(?:layers|h|blocks)\.(\d{1,6})\."
EXPERTS = LAYER + r"(?:mlp|feed_forward|block_sparse_moe)\.experts\."


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What the converter does with source tensors of these names, `of` some architectures or of all."""

    names: str
    to: tuple[str, ...] = ()
    layout: str = "apart"  # of `LAYOUTS`
    of: tuple[str, ...] = ()
    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A difference that the converter is known to make: of which tensors, by its code or mechanism, and why."""

    of: tuple[str, ...]
    names: str
    found: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The whole table; what the rows of each kind do stands above them there."""

    tensors: tuple[Rule, ...]
    respelled: tuple[Rule, ...]
    stacks: tuple[Rule, ...]
    in_header: tuple[Rule, ...]
    plus_one: tuple[Rule, ...]
    faults: tuple[Fault, ...]
    further: Mapping[str, str]
    left_out: Mapping[str, str]
    zero_biases: str
    multiplied: Mapping[str, tuple[str, ...]]
    permuted: tuple[str, ...]
    of_sections: tuple[str, ...]
    interleaved: tuple[str, ...]
    turned: tuple[str, ...]
    cut_vocabulary: tuple[str, ...]
    padded_vocabulary: tuple[str, ...]
    proven: tuple[str, ...]
    prefixes: tuple[str, ...]
    encoder: str
    speaker: str


@functools.cache
def rules() -> Rules:
    """Read the table."""
    read = table("mapping/gguf_rules")
    kinds = ("tensors", "respelled", "stacks", "in_header", "plus_one")

    def rule(row: Mapping[str, Any]) -> Rule:
        return Rule(**{**row, "names": row["names"].replace("<experts>", EXPERTS).replace("<layer>", LAYER)})

    of_names = {kind: tuple(map(rule, read[kind])) for kind in kinds}
    return Rules(**{**read, **of_names, "faults": tuple(Fault(**row) for row in read["faults"])})


# --- Layouts ----------------------------------------------------------------------------------------------------------

Sizes: TypeAlias = Callable[[str], int]  # a number of the configuration by its key, 0 where there is none
Making: TypeAlias = tuple[tuple[Part, ...], Shape, str]
OF_VECTORS = ("apart", "tiled", "tiled-after-keys")


def pairings(layout: str, targets: Sequence[str], name: str, shape: Shape, sizes: Sizes) -> list[Pairing]:
    """Return what a source tensor becomes, one a target; none where its shape does not fit."""
    if len(shape) < (1 if layout in OF_VECTORS else 2):
        return []
    made = list(LAYOUTS[layout](name, shape, len(targets), sizes))
    if len(made) != len(targets):
        return []
    pairs = zip(targets, made, strict=True)
    return [Pairing(candidate=one, parts=parts, shape=there, transform=how) for one, (parts, there, how) in pairs]


def _apart(name: str, shape: Shape, count: int, _sizes: Sizes) -> Iterator[Making]:
    if count == 1:
        yield (Part(source=name),), shape, ""
        return
    rows, *width = shape[-2:] if len(shape) > 1 else shape
    stack = shape[:-2]
    view = (math.prod(stack), count, rows // count)
    for at in range(count if rows % count == 0 else 0):
        yield (Part(source=name, view=view, take=(1, at, at + 1)),), (*stack, rows // count, *width), _share(at, count)


def _turned(name: str, shape: Shape, count: int, sizes: Sizes) -> Iterator[Making]:
    *stack, rows, columns = shape
    each, width = columns // count, sizes("hidden_size")
    if width and (rows if count > 1 else columns) != width:  # stored turned already
        return
    for at in range(count if columns % count == 0 else 0):
        part = Part(source=name, transposed=True, columns=(at * each, (at + 1) * each, 1) if count > 1 else None)
        yield (part,), (*stack, each, rows), "transposed" if count == 1 else f"{_share(at, count)}, transposed"


def _interleaved(name: str, shape: Shape, count: int, _sizes: Sizes) -> Iterator[Making]:
    *stack, columns = shape
    for at in range(count if columns % count == 0 else 0):
        how = f"every {count}nd column from {at} on"
        if len(stack) == 1:
            part = Part(source=name, view=(*stack, columns // count, count), take=(2, at, at + 1))
            yield (part,), (*stack, columns // count), how
        else:
            part = Part(source=name, transposed=True, columns=(at, columns, count))
            yield (part,), (*stack[:-1], columns // count, stack[-1]), f"{how}, transposed"


def _share(at: int, count: int) -> str:
    return f"part {at + 1} of {count}"


def _flat(name: str, shape: Shape, _count: int, sizes: Sizes, *, turned: bool = False) -> Iterator[Making]:
    experts = sizes("ffn_config.moe_num_experts")
    if experts and len(shape) == 2 and shape[0] % experts == 0:
        rows, columns = shape[0] // experts, shape[1]
        if turned:
            part = Part(source=name, view=(experts, rows), transposed=True)
            yield (part,), (experts, columns, rows), f"{experts} experts, transposed"
        else:
            yield (Part(source=name),), (experts, rows, columns), f"{experts} experts"


def _latent(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    heads, keys, values = (sizes(key) for key in ("num_attention_heads", "qk_nope_head_dim", "v_head_dim"))
    if not heads or shape[0] != heads * (keys + values):
        return
    view = heads, keys + values
    part = Part(source=name, view=view, take=(1, 0, keys), transposed=True)
    yield (part,), (heads, shape[1], keys), f"keys of {heads} heads, transposed"
    part = Part(source=name, view=view, take=(1, keys, keys + values))
    yield (part,), (heads, values, shape[1]), f"values of {heads} heads"


def _by_key_head(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    heads, many, size = _value_heads(sizes)
    keys, values = sizes("linear_key_head_dim"), many * size
    each = 2 * keys + 2 * values
    if not heads or shape[0] != heads * each:
        return
    cuts = (0, keys), (keys, 2 * keys), (2 * keys, 2 * keys + values)
    q_k_v = tuple(Part(source=name, view=(heads, each), take=(1, *cut)) for cut in cuts)
    yield q_k_v, (heads * (each - values), *shape[1:]), f"q, k and v of {heads} key heads put apart"
    z = Part(source=name, view=(heads, each), take=(1, each - values, each))
    yield (z,), (heads * values, *shape[1:]), f"z of {heads} key heads"


def _value_heads(sizes: Sizes) -> tuple[int, int, int]:
    """Return the key heads, the value heads of each, and their size."""
    keys = sizes("linear_num_key_heads")
    return keys, sizes("linear_num_value_heads") // max(keys, 1), sizes("linear_value_head_dim")


def _tiled(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    heads, many, _ = _value_heads(sizes)
    if heads and many and shape[0] % (heads * many) == 0:
        part = Part(source=name, view=(heads, many, shape[0] // (heads * many)), order=(1, 0, 2))
        yield (part,), shape, _tiling(heads, many)


def _tiled_after_keys(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    heads, many, size = _value_heads(sizes)
    first = shape[0] - heads * many * size
    if heads and first == 2 * heads * sizes("linear_key_head_dim"):
        behind = Part(source=name, rows=(first, shape[0]), view=(heads, many, size), order=(1, 0, 2))
        yield (Part(source=name, rows=(0, first)), behind), shape, _tiling(heads, many)


def _tiled_columns(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    heads, many, size = _value_heads(sizes)
    if heads and shape[-1] == heads * many * size:
        yield (Part(source=name, view=(shape[0], heads, many), order=(0, 2, 1)),), shape, _tiling(heads, many)


def _tiling(heads: int, many: int) -> str:
    return f"{many} value heads of each of {heads} key heads tiled"


# How the values of one source tensor stand in what it becomes, by the word of a row.
LAYOUTS: Mapping[str, Callable[[str, Shape, int, Sizes], Iterator[Making]]] = {
    "apart": _apart,  # equal stretches of rows, one after the other; each matrix of a stack for itself
    "turned": _turned,  # equal stretches of columns, rows and columns exchanged
    "interleaved": _interleaved,  # every second column, rows and columns exchanged; of a bias, every second value
    "flat": _flat,  # experts under one another become a stack
    "flat-turned": functools.partial(_flat, turned=True),  # the same, with rows and columns exchanged
    "latent": _latent,  # of each head the keys' rows, exchanged with columns, and the values'
    "by-key-head": _by_key_head,  # q, k, v and z of each key head become q, k and v of all, and z of all
    "tiled": _tiled,  # value heads grouped by key head are tiled over the key heads
    "tiled-after-keys": _tiled_after_keys,  # the same, behind the rows of queries and keys
    "tiled-columns": _tiled_columns,  # the same, of the columns
}


def size_of(config: Mapping[str, Any], path: str) -> int:
    """Return a number of a configuration by its key, which may lead into an object of it; 0 where there is none."""
    value = at_path(config, path)
    return value if isinstance(value, int) and value > 0 else 0


# --- Generated tables -------------------------------------------------------------------------------------------------

DEFAULTS = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
MOST_LAYERS = 1 << 10
UNROTATED = 1e30  # a factor that leaves a dimension unrotated (gemma.py:759)


def generated(config: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Compute the tables that a configuration asks for, by the GGUF tensor's name; none that its values do not give."""
    try:
        return _generated(config)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
        return {}


def _generated(config: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope) if isinstance(rope, Mapping) else {}
    kind = str(rope.get("rope_type") or rope.get("type") or "").lower()
    found: dict[str, tuple[float, ...]] = {}
    if kind in ("llama3", "proportional"):
        found["rope_freqs.weight"] = (llama3 if kind == "llama3" else proportional)(config, rope)
    scale = config.get("qk_scale_factor")
    if isinstance(scale, (int, float)):  # muse_glimmer.py:66
        for layer in range(min(int(config["num_hidden_layers"]), MOST_LAYERS)):
            found[f"blk.{layer}.attn_q_norm.weight"] = (float(scale),) * _head_size(config)
            found[f"blk.{layer}.attn_k_norm.weight"] = (1.0,) * _head_size(config)
    for length in ("long", "short"):
        factors = rope.get(f"{length}_factor")
        if isinstance(factors, (list, tuple)) and all(isinstance(one, (int, float)) for one in factors):
            found[f"rope_factors_{length}.weight"] = tuple(float(one) for one in factors)
    return found


def llama3(config: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[float, ...]:
    """Compute Llama 3's factors, `[head_dim / 2]`: 1 for short wavelengths, `factor` for long ones, a ramp between."""
    base = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    size = _head_size(config)
    factor, low, high = (float(rope.get(key, value)) for key, value in DEFAULTS.items())
    context = float(rope.get("original_max_position_embeddings", 8192))

    def scaled(wave: float) -> float:
        if wave < context / high:
            return 1.0
        if wave > context / low:
            return factor
        smooth = (context / wave - low) / (high - low)
        return 1 / ((1 - smooth) / factor + smooth)

    return tuple(scaled(2 * math.pi * base ** (at / size)) for at in range(0, size, 2))


def proportional(config: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[float, ...]:
    """Compute Gemma 4's factors of its global heads: 1 for the share that is rotated, a huge one for the others."""
    layers, kinds = config.get("per_layer_config") or {}, config.get("layer_types") or ()
    # A layer that sees everything may state the size of its heads for itself.
    own = (layers.get(str(at), {}).get("head_dim") for at, kind in enumerate(kinds) if kind == "full_attention")
    size = int(config.get("global_head_dim") or next((size for size in own if size), 0)) or _head_size(config)
    rotated = int(size * float(rope.get("partial_rotary_factor", 1.0)) / 2)
    return (1.0,) * rotated + (UNROTATED,) * (size // 2 - rotated)


def _head_size(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or 0) or int(config["hidden_size"]) // int(config["num_attention_heads"])
