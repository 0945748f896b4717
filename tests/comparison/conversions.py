"""Tiny Hugging Face directories, and GGUF files in the layouts that llama.cpp's converter gives them. Own code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from benchmarks.damages import permuted
from tests.formats.files import safetensors

from weighbridge.clauses.kind import Kind
from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Verdict
from weighbridge.gates.value_preservation import KIND
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

Arrays = dict[str, Any]
HEADS, KV, HALF, WIDTH, INNER, VOCAB, EXPERTS = 4, 2, 8, 64, 96, 32, 4


def decoder(layers: int = 2, *, experts: bool = False) -> Arrays:
    """Make the tensors of a small decoder as Hugging Face names them."""
    rng = np.random.default_rng(3)

    def draw(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    found = {"model.embed_tokens.weight": draw(VOCAB, WIDTH), "lm_head.weight": draw(VOCAB, WIDTH)}
    found["model.norm.weight"] = draw(WIDTH)
    for at in range(layers):
        base = f"model.layers.{at}"
        found |= {
            f"{base}.input_layernorm.weight": draw(WIDTH), f"{base}.post_attention_layernorm.weight": draw(WIDTH),
            f"{base}.self_attn.q_proj.weight": draw(HEADS * 2 * HALF, WIDTH),
            f"{base}.self_attn.k_proj.weight": draw(KV * 2 * HALF, WIDTH),
            f"{base}.self_attn.v_proj.weight": draw(KV * 2 * HALF, WIDTH),
            f"{base}.self_attn.o_proj.weight": draw(WIDTH, HEADS * 2 * HALF),
        }  # fmt: skip
        if experts:
            moe = f"{base}.block_sparse_moe"
            found[f"{moe}.gate.weight"] = draw(EXPERTS, WIDTH)
            for one in range(EXPERTS):
                found[f"{moe}.experts.{one}.w1.weight"] = draw(INNER, WIDTH)
                found[f"{moe}.experts.{one}.w2.weight"] = draw(WIDTH, INNER)
                found[f"{moe}.experts.{one}.w3.weight"] = draw(INNER, WIDTH)
        else:
            found[f"{base}.mlp.gate_proj.weight"] = draw(INNER, WIDTH)
            found[f"{base}.mlp.up_proj.weight"] = draw(INNER, WIDTH)
            found[f"{base}.mlp.down_proj.weight"] = draw(WIDTH, INNER)
    return found


NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip
OUTER = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
MATRICES = {"w1": "ffn_gate_exps", "w2": "ffn_down_exps", "w3": "ffn_up_exps"}


def converted(source: Arrays, architecture: str) -> Arrays:
    """Give the tensors of a decoder as a GGUF file holds them."""
    found: Arrays = {}
    for name, values in source.items():
        stem, ending = name.rsplit(".", 1)
        if stem in OUTER:
            found[f"{OUTER[stem]}.{ending}"] = _plus(values, name, architecture)
            continue
        layer, inner = stem.removeprefix("model.layers.").split(".", 1)
        if inner == "block_sparse_moe.gate":
            found[f"blk.{layer}.ffn_gate_inp.weight"] = values
        elif inner in NAMES:
            turned = architecture == "llama" and inner.endswith(("q_proj", "k_proj"))
            kept = permuted(values, HEADS if inner.endswith("q_proj") else KV) if turned else values
            found[f"blk.{layer}.{NAMES[inner]}.{ending}"] = _plus(kept, name, architecture)
    for at in range(2):
        for matrix, target in MATRICES.items():
            names = [f"model.layers.{at}.block_sparse_moe.experts.{one}.{matrix}.weight" for one in range(EXPERTS)]
            if names[0] in source:
                found[f"blk.{at}.{target}.weight"] = np.stack([source[name] for name in names])
    return found


def _plus(values: Any, name: str, architecture: str) -> Any:
    return values + np.float32(1) if architecture.startswith("gemma") and name.endswith("norm.weight") else values


CONFIG = {
    "num_attention_heads": HEADS, "num_key_value_heads": KV, "num_hidden_layers": 2, "hidden_size": WIDTH,
    "vocab_size": VOCAB,
}  # fmt: skip


LABELS = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def directory(folder: Path, arrays: Arrays, config: Mapping[str, Any] = CONFIG) -> Path:
    """Write a Hugging Face directory."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = {name: (LABELS[values.dtype.name], values.shape, values.tobytes()) for name, values in arrays.items()}
    safetensors(folder / "model.safetensors", entries)
    (folder / "config.json").write_text(json.dumps(dict(config)))
    return folder


def gguf_file(  # noqa: PLR0917 (a file has as many)
    path: Path, arrays: Arrays, architecture: str, dtypes: Mapping[str, str] | None = None,
    heads: tuple[int, int] = (HEADS, KV), vocab_size: int = VOCAB,
) -> Path:  # fmt: skip
    """Write a GGUF file; `dtypes` names the type of single tensors, `*` that of all matrices; `heads` are as stated."""
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(2)
    writer.add_embedding_length(WIDTH)
    writer.add_vocab_size(vocab_size)
    writer.add_head_count(heads[0])
    writer.add_head_count_kv(heads[1])
    for name, values in arrays.items():
        dtype = (dtypes or {}).get(name, (dtypes or {}).get("*", "F32") if values.ndim > 1 else "F32")
        kind = gguf.GGMLQuantizationType[dtype]
        data = np.ascontiguousarray(values)
        writer.add_tensor(name, gguf.quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def weighed(
    source: Path, candidate: Path, policy: str = "lossless", *, kind: Kind[Any] = KIND, **options: Any
) -> tuple[dict[str, TensorPair], Verdict]:
    """Measure and judge a pair: the rows by name, and the verdict."""
    views = open_checkpoint(source), open_checkpoint(candidate)
    found = VERIFIER.measure(views, options)
    assert isinstance(found, Measurement)
    assert found.total == VERIFIER.extent(views, options)
    verdict = kind.judge({"pairs": found}, read(kind.limits, {"policy": policy}))
    return {row.name: row for row in rows_of(found, TensorPair)}, verdict
