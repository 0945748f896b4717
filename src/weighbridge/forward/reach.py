"""What only long or many inputs show of a model: windows, limits of positions, experts, a cache, padding."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from weighbridge.core import dataclass, np, torch
from weighbridge.forward.trace_file import Trace

MOST = 2048  # tokens of all sequences that are drawn: what lies beyond is not reached, and named
MARGIN = 8  # tokens behind a window or limit
DECODED, PADDED = 2, 6  # tokens that are decoded of each drawn sequence, and that are padding of the last one
LEAST = 12  # tokens that such sequences have
PER_EXPERT = 16  # choices that are drawn for each expert
SWITCHING = ("longrope", "su", "dynamic")  # rotary positions that change with the length
ROUTERS = ("gate.out", "router.out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a configuration says that inputs must cross; 0 where it has no such thing."""

    window: int = 0
    rope_limit: int = 0
    experts: int = 0
    chosen: int = 1
    positions: int = 0


def text_config(module: torch.nn.Module) -> Any:
    """Return the configuration of a model's text part, which may be the whole; None where it has none."""
    config: Any = getattr(module, "config", None)
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def head_channels(module: torch.nn.Module) -> int:
    """Return the channels of an attention head by a model's configuration, 0 where it says none."""
    config = text_config(module)
    heads, hidden = (getattr(config, name, 0) or 0 for name in ("num_attention_heads", "hidden_size"))
    return int(getattr(config, "head_dim", 0) or (hidden // heads if heads else 0))


def bounds_of(module: torch.nn.Module) -> Bounds | None:
    """Read a model's configuration; None where it has none."""
    config = text_config(module)
    if config is None:
        return None

    def said(*names: str) -> int:
        found = (getattr(config, name, None) for name in names)
        return next((one for one in found if type(one) is int and one > 0), 0)

    kinds = getattr(config, "layer_types", None) or ("sliding",)
    slides = getattr(config, "use_sliding_window", True) and any("full" not in kind for kind in kinds)
    ropes = [one for one in _ropes(config) if one.get("rope_type", one.get("type")) in SWITCHING]
    limits = [one.get("original_max_position_embeddings") or said("original_max_position_embeddings") for one in ropes]
    return Bounds(
        window=said("sliding_window", "attention_chunk_size", "window_size") if slides else 0,
        rope_limit=max(limits, default=0) or (said("max_position_embeddings") if ropes else 0),
        experts=said("num_experts", "num_local_experts", "n_routed_experts"),
        chosen=said("num_experts_per_tok", "moe_topk", "top_k") or 1,
        positions=said("max_position_embeddings", "n_positions"),
    )


def _ropes(config: Any) -> Iterator[Mapping[str, Any]]:
    for name in ("rope_parameters", "rope_scaling"):
        given = getattr(config, name, None)
        if isinstance(given, Mapping):
            yield given
            yield from (one for one in given.values() if isinstance(one, Mapping))  # by the type of a layer


def drawn_size(bounds: Bounds | None, plain: tuple[int, int]) -> tuple[int, int]:
    """Return how many sequences of how many tokens cross what can be crossed within `MOST` tokens."""
    if bounds is None:
        return plain
    rows, length = plain
    crossed = [one + MARGIN for one in (bounds.window, bounds.rope_limit) if one and 2 * (one + MARGIN) <= MOST]
    length = max(length, *crossed, -(-PER_EXPERT * bounds.experts // bounds.chosen // rows))
    if bounds.rope_limit < bounds.positions:  # which are learned, or all that is meant
        length = min(length, bounds.positions)
    rows = rows if rows * length <= MOST else 2
    return rows, min(length, MOST // rows)


class Form(NamedTuple):
    """How many tokens at the start of each sequence are padding, and how many at the end are decoded one by one."""

    padded: tuple[int, ...] = ()
    decode: int = 0


PLAIN = Form()


def drawn_form(modules: Iterable[torch.nn.Module], rows: int, length: int) -> Form:
    """Return the form in which drawn sequences are run: with padding and from a cache where all modules take them."""
    padded, decode = (*[0] * (rows - 1), PADDED), DECODED
    for module in modules:
        plain: Any = getattr(module, "_orig_mod", module)
        accepted, config = inspect.signature(plain.forward).parameters, text_config(plain)
        bounds, whole = bounds_of(plain) or Bounds(), not {"input_ids", "attention_mask"} - {*accepted}
        kinds = {one.get("rope_type", one.get("type")) for one in _ropes(config)}
        changes = "dynamic" in kinds or length - decode <= bounds.rope_limit < length  # what a cache holds already
        if rows < 2 or length < LEAST or not whole or getattr(config, "is_encoder_decoder", False):
            return PLAIN
        if plain is not module or changes or not cache_parameter(plain):  # each length is compiled by itself
            decode = 0
    return Form(padded, decode)


def cache_parameter(module: torch.nn.Module) -> str:
    """Return by which name a model takes its cache and gives it back, as its version of Transformers has it, or ""."""
    accepted = inspect.signature(module.forward).parameters
    return next((name for name in ("past_key_values", "cache") if name in accepted), "")


def reached(module: torch.nn.Module, trusted: Trace, decoded: int) -> Mapping[str, bool]:
    """Return what there is to reach, and whether a run did; what a model without configuration has is left out."""
    found, bounds, length = dict[str, bool](), bounds_of(module), len(trusted.facts.tokens[0])
    if bounds is not None:
        found = {"window": length > bounds.window, "rope-limit": length > bounds.rope_limit}
        found["expert"] = not bounds.experts or _all_chosen(trusted, bounds)
    accepted = inspect.signature(module.forward).parameters
    if decoded or cache_parameter(module):
        found["cache"] = decoded > 0
    if "attention_mask" in accepted:
        found["padding"] = any(trusted.facts.padded)
    return found


def _all_chosen(trusted: Trace, bounds: Bounds) -> bool:
    """Return whether every router chose every expert, as its indices say, or else its largest scores."""
    indices, scores = list[Any](), list[Any]()
    for name in trusted.facts.order:
        shape = trusted.shape(name) or ()
        if trusted.held_as(name) in {"int64", "int32"} and shape[-1] == bounds.chosen:
            indices.append(trusted.stored(name))
        elif name.endswith(ROUTERS) and shape[-1] == bounds.experts:
            scores.append(np.argsort(-trusted.stored(name).astype(np.float64), -1)[..., : bounds.chosen])
    chosen = indices or scores
    return bool(chosen) and all(len(np.unique(one)) >= bounds.experts for one in chosen)
