"""What one source tensor becomes under each layout of `gguf_rules`; nothing where its shape does not fit the sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from weighbridge.mapping.gguf_rules import Layout
from weighbridge.mapping.mapping_plan import Pairing, Part, Shape

Sizes: TypeAlias = Callable[[str], int]  # a number of the configuration by its key, 0 where there is none
Making: TypeAlias = tuple[tuple[Part, ...], Shape, str]
OF_VECTORS = (Layout.APART, Layout.TILED, Layout.TILED_AFTER_KEYS)


def pairings(layout: Layout, targets: Sequence[str], name: str, shape: Shape, sizes: Sizes) -> list[Pairing]:
    """Return what a source tensor becomes, one a target; none where its shape does not fit."""
    if len(shape) < (1 if layout in OF_VECTORS else 2):
        return []
    made = list(MAKINGS[layout](name, shape, len(targets), sizes))
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


def _flat(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    experts = sizes("ffn_config.moe_num_experts")
    if experts and len(shape) == 2 and shape[0] % experts == 0:
        yield (Part(source=name),), (experts, shape[0] // experts, *shape[1:]), f"{experts} experts"


def _flat_turned(name: str, shape: Shape, _count: int, sizes: Sizes) -> Iterator[Making]:
    for _, (experts, rows, columns), how in _flat(name, shape, 1, sizes):
        part = Part(source=name, view=(experts, rows), transposed=True)
        yield (part,), (experts, columns, rows), f"{how}, transposed"


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


MAKINGS: Mapping[Layout, Callable[[str, Shape, int, Sizes], Iterator[Making]]] = {
    Layout.APART: _apart,
    Layout.TURNED: _turned,
    Layout.INTERLEAVED: _interleaved,
    Layout.FLAT: _flat,
    Layout.FLAT_TURNED: _flat_turned,
    Layout.LATENT: _latent,
    Layout.BY_KEY_HEAD: _by_key_head,
    Layout.TILED: _tiled,
    Layout.TILED_AFTER_KEYS: _tiled_after_keys,
    Layout.TILED_COLUMNS: _tiled_columns,
}


def sizes_of(config: Mapping[str, Any]) -> Sizes:
    """Return how a number of a configuration is found by its key, which may lead into an object of it."""

    def size(path: str) -> int:
        value: Any = config
        for key in path.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value if isinstance(value, int) and value > 0 else 0

    return size
