"""Tables that a GGUF file holds and no checkpoint does, computed from the configuration as its converter does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

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
