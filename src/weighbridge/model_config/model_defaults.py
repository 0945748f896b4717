"""What a loader takes where a configuration says nothing, and which fields two formats cannot be compared in. Pure.

A default is only ever held against what the other side states; where neither side states a field, nothing is compared.
Sources: the defaults of transformers' configuration classes, and those of llama.cpp's loader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weighbridge.core.model import Json
from weighbridge.model_config.conversion_facts import WRITTEN
from weighbridge.model_config.model_keys import GGUF, Model, Stated, head_dim

PLAIN: Mapping[str, Json] = {
    "rope_base": 10000.0, "rope_scaling": "none", "rope_scaling_factor": 1.0, "sliding_window": 0,
    "attn_logit_softcap": 0.0, "final_logit_softcap": 0.0, "expert_count": 0, "expert_used_count": 0,
}  # fmt: skip
# By `model_type`, of transformers' classes, and by `general.architecture`, of llama.cpp's loader.
OF_MODEL_TYPE: Mapping[str, Mapping[str, Json]] = {
    "falcon": {"context_length": 2048},
    # Epsilons that the classes hard-code.
    "olmo": {"norm_epsilon": 1e-5},
    "dbrx": {"norm_epsilon": 1e-5},
    "mpt": {"norm_epsilon": 1e-5},
    "distilbert": {"norm_epsilon": 1e-12, "causal": False},
    **{encoder: {"causal": False} for encoder in ("bert", "roberta", "xlm-roberta", "modernbert", "nomic_bert")},
    "gemma": {"head_dim": 256},
    "gemma2": {"head_dim": 256, "attn_logit_softcap": 50.0, "final_logit_softcap": 30.0},
    "gemma3_text": {"head_dim": 256, "rope_base": 1_000_000.0},
    "mixtral": {"rope_base": 1_000_000.0},
    "qwen3": {"head_dim": 128},
    **{one: {"context_length": 512} for one in ("t5", "mt5", "umt5")},
}
OF_ARCHITECTURE: Mapping[str, Mapping[str, Json]] = {
    "gemma2": {"attn_logit_softcap": 50.0, "final_logit_softcap": 30.0},
    "gemma3": {"rope_base_local": 10000.0},
}
FOUR_TIMES_AS_WIDE = ("gpt2", "falcon", "bloom", "gptj", "codegen", "gpt_bigcode", "starcoder")
# By the tokenizer's kind: GGUF's name of it, or the class in tokenizer_config.json.
SENTENCEPIECE: Mapping[str, Json] = {"add_bos_token": True, "add_eos_token": False}
OF_TOKENIZER: Mapping[str, Mapping[str, Json]] = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0, **SENTENCEPIECE},
    "t5": {"eos_token_id": 1, "unk_token_id": 2, "pad_token_id": 0, "add_bos_token": False, "add_eos_token": True},
    **dict.fromkeys(("LlamaTokenizer", "LlamaTokenizerFast", "GemmaTokenizer", "GemmaTokenizerFast"), SENTENCEPIECE),
}
# Activations that llama.cpp computes (src/models/*.cpp), whatever the configuration says, by its names.
COMPUTED: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "silu": (
            "afmoe baichuan chatglm cohere2 cohere2moe command-r dbrx deepseek deepseek2 deepseek32 dots1 ernie4_5 "
            "ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon-h1 glm-dsa glm4 glm4moe granite granite_swa "
            "granitehybrid granitemoe hrm_text hunyuan-moe hy_v3 internlm2 jamba kimi-linear laguna lfm2 llama llama4 "
            "mamba mamba2 mellum mimo2 minicpm minicpm3 minimax-m2 mistral3 nomic-bert olmo olmo2 olmoe phi3 qwen2 "
            "qwen2moe qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen4exp seed_oss smollm3 stablelm xverse"
        ),
        "gelu": (
            "gpt2 gptneox falcon bloom bert modern-bert starcoder starcoder2 gemma gemma2 gemma3 gemma4 "
            "gemma-embedding phi2 mpt codeshell"
        ),
        "relu2": "arcee jais2 nemotron nemotron_h nemotron_h_moe",
    }.items()
    for name in names.split()
}
SAME_FAMILY = {
    "swish": "silu", "gelu_new": "gelu", "gelu_pytorch_tanh": "gelu", "gelu_fast": "gelu", "gelu_python": "gelu",
}  # fmt: skip
ENCODERS = ("bert", "nomic-bert", "jina-bert-v2", "t5encoder")  # they have no head that could be tied

SAID_BY_NONE = {
    "tied_embeddings": "a head of its own, or none at all: the tensors tell",
    "activation": "GGUF does not say it, and what a loader computes is not known here",
}
# What a side may leave out for its loader to know; then it is told, and no difference.
UNLESS_SAID = frozenset({
    "rope_attn_factor", "rope_ext_factor", "rope_beta_fast", "rope_beta_slow", "value_dim", "q_lora_rank",
    "kv_lora_rank", "sliding_layers", "attention_layers", "expert_feed_forward_length",
    "expert_shared_feed_forward_length", "expert_shared_count", "expert_group_count", "expert_group_used_count",
    "leading_dense_block_count", "nextn_predict_layers", "expert_weights_norm", "expert_weights_scale", "expert_gating",
    "ssm_conv_kernel", "ssm_inner_size", "ssm_state_size", "ssm_time_step_rank", "ssm_group_count", "logit_scale",
    "embedding_scale", "residual_scale", "attention_scale", "clamp_kqv", "parallel_residual", "causal",
    "tokenizer_model", "token_types",
    "head_dim_local",
})  # fmt: skip
IN_TENSORS = "the factors are a tensor of the import, and compared as one"


def default(name: str, model: Model) -> Stated | None:
    """Return what a loader takes for a field that this side does not state, or None where that is not known."""
    if model.form == GGUF and name in GGUF_ONLY:
        return GGUF_ONLY[name](model)
    if name in model.taken:
        return _taken(model.taken[name], "the sentencepiece model's own")
    by_architecture = OF_ARCHITECTURE if model.form == GGUF else OF_MODEL_TYPE
    for table, key in ((by_architecture, model.architecture), (OF_TOKENIZER, model.tokenizer)):
        if name in table.get(key, {}):
            return _taken(table[key][name], f"the default of {key}")
    if name in COMPUTED_FROM:
        value, how = COMPUTED_FROM[name](model)
        return None if value is None else _taken(value, how)
    return _taken(PLAIN[name], "the default") if name in PLAIN else None


def _taken(value: Json, how: str) -> Stated:
    return Stated(value=value, read=f"nothing said; {how}", basis="default")


def _value(model: Model, name: str) -> Json:
    stated = model.fields.get(name)
    return None if stated is None else stated.value


def _head_dim(model: Model) -> tuple[Json, str]:
    own = OF_MODEL_TYPE.get(model.architecture, {}).get("head_dim") if model.form != GGUF else None
    if own is not None and "head_dim" not in model.fields:
        return own, f"the default of {model.architecture}"
    return head_dim(model.fields), "embedding_length / head_count"


def _value_dim(model: Model) -> tuple[Json, str]:
    """Compute it from the width where GGUF does not state it, whatever the size of a key."""
    stated = {name: one for name, one in model.fields.items() if name != "head_dim"} if model.form == GGUF else None
    return (head_dim(stated), "embedding_length / head_count") if stated is not None else _head_dim(model)


def _feed_forward(model: Model) -> tuple[Json, str]:
    width = _value(model, "embedding_length")
    fits = model.architecture in FOUR_TIMES_AS_WIDE and isinstance(width, int)
    return (4 * width if fits and isinstance(width, int) else None), "4 x embedding_length"


COMPUTED_FROM: Mapping[str, Callable[[Model], tuple[Json, str]]] = {
    "head_dim": _head_dim,
    "rope_dimensions": _head_dim,
    "value_dim": _value_dim,
    "head_count_kv": lambda model: (_value(model, "head_count"), "head_count"),
    "rope_original_context": lambda model: (_value(model, "context_length"), "context_length"),
    "feed_forward_length": _feed_forward,
}


def _tied(model: Model) -> Stated | None:
    if "output.weight" in model.tensors or model.architecture in ENCODERS:
        return None
    return Stated(value=True, read="no tensor output.weight", basis="default")


def _computed(model: Model) -> Stated | None:
    kind, read = COMPUTED.get(model.architecture), f"what a loader of {model.architecture} computes"
    return None if kind is None else Stated(value=kind, read=read, basis="default")


GGUF_ONLY: Mapping[str, Callable[[Model], Stated | None]] = {"tied_embeddings": _tied, "activation": _computed}


def family(value: Json) -> Json:
    """Return an activation as loosely as GGUF's loaders know it: all approximations of GELU are one."""
    return SAME_FAMILY.get(str(value), value)


def incomparable(name: str, source: Model, candidate: Model) -> str:
    """Return why a field of these two sides cannot be compared, or nothing."""
    if name == "architecture":
        return "" if source.form == candidate.form else "the two formats name architectures differently"
    if source.form == candidate.form:
        return ""
    file, other = (candidate, source) if candidate.form == GGUF else (source, candidate)
    if file.form != GGUF:
        return ""
    written = WRITTEN.get((file.architecture, name))
    if written is not None and not (written.unsaid and name in other.fields):
        return written.told
    in_tensors = _value(file, "rope_scaling") in ("table", "longrope")
    if in_tensors and name in ("rope_scaling_factor", "rope_original_context"):
        return IN_TENSORS if name not in file.fields else ""
    if name in GGUF_ONLY and name in other.fields and name not in file.fields and default(name, file) is None:
        return SAID_BY_NONE[name]
    # An id that no token has is left out by a converter.
    value, size = _value(other, name), _value(other, "vocab_size")
    outside = name.endswith("_token_id") and isinstance(value, int) and isinstance(size, int) and value >= size
    return "the id lies outside the vocabulary" if outside and name not in file.fields else ""
