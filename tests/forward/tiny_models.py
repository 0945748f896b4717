"""Hugging Face models of three layers, saved as `save_pretrained` saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIZES: dict[str, Any] = {"vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 3}
TOKEN_IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 1}
COMMON: dict[str, Any] = {"num_attention_heads": 4, "max_position_embeddings": 256, **TOKEN_IDS}
SMALL: dict[str, Any] = {**SIZES, **COMMON, "intermediate_size": 96, "num_key_value_heads": 2, "eos_token_id": 1}
GPT2 = {"vocab_size": 128, "n_embd": 64, "n_layer": 3, "n_head": 4, "n_positions": 256, "bos_token_id": 1}
OPT: dict[str, Any] = {**SIZES, **COMMON, "ffn_dim": 96, "word_embed_proj_dim": 64}
EXPERTS = {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
CONFIGS: dict[str, dict[str, Any]] = {
    "qwen2": SMALL,
    "gemma3_text": {**SMALL, "head_dim": 16, "sliding_window": 8},
    "gpt2": {**GPT2, "eos_token_id": 1},
    "opt": {**OPT, "eos_token_id": 1},
    "bloom": {"vocab_size": 128, "hidden_size": 64, "n_layer": 3, "n_head": 4},
    "qwen3_moe": {**SMALL, **EXPERTS},
    "bert": SMALL,
    "t5": {"vocab_size": 128, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4},
    "mamba": {**SIZES, "state_size": 8},
}
MODEL_CLASSES: dict[str, str] = {"bert": "AutoModelForMaskedLM", "t5": "AutoModelForSeq2SeqLM"}


def saved(name: str, folder: Path) -> Path:
    """Save a model of random weights, its vectors (biases, norms) of noticeable size."""
    import torch
    import transformers

    torch.manual_seed(1)
    library: Any = getattr(transformers, MODEL_CLASSES.get(name, "AutoModelForCausalLM"))
    model = library.from_config(transformers.AutoConfig.for_model(name, **CONFIGS[name]))
    for weight in model.parameters():
        if weight.ndim == 1:
            weight.data += 0.1 * torch.randn_like(weight)
        elif name == "qwen3_moe":
            weight.data *= 4  # so that routers hesitate less than always
    model.save_pretrained(folder / name)
    return folder / name
