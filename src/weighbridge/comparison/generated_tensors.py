"""Tables that a converter computes from a configuration, and that no source tensor holds. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def generated(config: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Compute the tables that a configuration asks for, by the GGUF tensor's name."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope) if isinstance(rope, Mapping) else {}
    kind = str(rope.get("rope_type") or rope.get("type") or "").lower()
    found: dict[str, tuple[float, ...]] = {}
    if kind == "llama3":
        found["rope_freqs.weight"] = llama3(config, rope)
    for length in ("long", "short"):
        factors = rope.get(f"{length}_factor")
        if isinstance(factors, (list, tuple)) and all(isinstance(one, (int, float)) for one in factors):
            found[f"rope_factors_{length}.weight"] = tuple(float(one) for one in factors)
    return found


def llama3(config: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[float, ...]:
    """Compute Llama 3's factors, `[head_dim / 2]`: 1 for short wavelengths, `factor` for long ones, a ramp between."""
    base = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    size = int(config.get("head_dim") or 0) or int(config["hidden_size"]) // int(config["num_attention_heads"])
    factor, low, high = (float(rope.get(key, value)) for key, value in DEFAULTS.items())
    context = float(rope.get("original_max_position_embeddings", 8192))
    ramp = Ramp(factor=factor, low=low, high=high, context=context)
    return tuple(_scaled(2 * math.pi * base ** (at / size), ramp) for at in range(0, size, 2))


DEFAULTS = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """How much longer the long wavelengths become, and between which shares of the context they are."""

    factor: float
    low: float
    high: float
    context: float


def _scaled(wave: float, ramp: Ramp) -> float:
    if wave < ramp.context / ramp.high:
        return 1.0
    if wave > ramp.context / ramp.low:
        return ramp.factor
    smooth = (ramp.context / wave - ramp.low) / (ramp.high - ramp.low)
    return 1 / ((1 - smooth) / ramp.factor + smooth)
