"""One layer's parts of models that only a converter makes whole: fused tensors, transposes, exponentials. Own code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tests.comparison.conversions import HEADS, KV, Arrays

WIDTH, SIZE = 64, 16
EACH = HEADS // KV  # queries a group
Made = tuple[Arrays, Arrays]  # the source's tensors, and the GGUF file's


def _draw(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def _gptneox() -> Made:
    """Heads one after the other, each with its query, key and value."""
    heads = [[_draw(SIZE, WIDTH) * (3 * head + one + 1) for one in range(3)] for head in range(HEADS)]
    fused = np.concatenate([np.concatenate(three) for three in heads])
    apart = np.concatenate([heads[head][one] for one in range(3) for head in range(HEADS)])
    return {"gpt_neox.layers.1.attention.query_key_value.weight": fused}, {"blk.1.attn_qkv.weight": apart}


def _falcon() -> Made:
    """Groups one after the other, each with its queries, its key and its value."""
    groups = [[_draw(SIZE, WIDTH) * (9 * group + one + 1) for one in range(EACH + 2)] for group in range(KV)]
    order = [(group, one) for kinds in (range(EACH), [EACH], [EACH + 1]) for group in range(KV) for one in kinds]
    fused = np.concatenate([np.concatenate(pieces) for pieces in groups])
    apart = np.concatenate([groups[group][one] for group, one in order])
    return {"transformer.h.1.self_attention.query_key_value.weight": fused}, {"blk.1.attn_qkv.weight": apart}


def _gpt2() -> Made:
    fused, out = _draw(WIDTH, 3 * WIDTH), _draw(WIDTH, WIDTH)
    source = {"h.1.attn.c_attn.weight": fused, "h.1.attn.c_proj.weight": out}
    return source, {"blk.1.attn_qkv.weight": fused.T, "blk.1.attn_output.weight": out.T}


def _qwen3() -> Made:
    """Queries, keys and values of their own in the source, and one tensor of them all in the file."""
    three = {one: _draw(WIDTH, WIDTH) * factor for factor, one in enumerate("qkv", 1)}
    source = {f"model.layers.1.self_attn.{one}_proj.weight": values for one, values in three.items()}
    return source, {"blk.1.attn_qkv.weight": np.concatenate(list(three.values()))}


def _mamba() -> Made:
    logs = np.log(np.abs(_draw(2 * WIDTH, SIZE)) + np.float32(1))
    return {"backbone.layers.1.mixer.A_log": logs}, {"blk.1.ssm_a": -np.exp(logs.astype(float)).astype(np.float32)}


def _phi3() -> Made:
    both = _draw(2 * WIDTH, WIDTH)
    return {"model.layers.1.mlp.gate_up_proj.weight": both}, {"blk.1.ffn_up.weight": both}


def _bert() -> Made:
    q, k, positions = _draw(WIDTH, WIDTH), 2 * _draw(WIDTH, WIDTH), _draw(WIDTH + 1, WIDTH)
    source = {f"encoder.layer.1.attention.self.{name}.weight": one for name, one in (("query", q), ("key", k))}
    candidate = {"blk.1.attn_q.weight": q, "blk.1.attn_k.weight": k, "position_embd.weight": positions}
    return source | {"embeddings.position_embeddings.weight": positions}, candidate


def _t5() -> Made:
    one, other = _draw(WIDTH, WIDTH), 2 * _draw(WIDTH, WIDTH)
    source = {f"{side}.block.1.layer.0.SelfAttention.q.weight": x for side, x in (("encoder", one), ("decoder", other))}
    return source, {"enc.blk.1.attn_q.weight": one, "dec.blk.1.attn_q.weight": other}


FUSED: dict[str, Callable[[], Made]] = {
    "gptneox": _gptneox, "falcon": _falcon, "gpt2": _gpt2, "mamba": _mamba, "phi3": _phi3, "bert": _bert, "t5": _t5,
    "qwen3": _qwen3,
}  # fmt: skip
