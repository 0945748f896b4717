"""What a GGUF header says of each field of its model, and the keys under which it states it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weighbridge.core.model import Json
from weighbridge.model_config.model_keys import TOKENIZER_KINDS, Fields, Stated, canonical, digits
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, FieldKind

GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_weight", 4: "sqrtsoftplus"}  # llama.cpp's numbers
SLIDING, TOKENIZER_MODEL = "{arch}.attention.sliding_window_pattern", "tokenizer.ggml.model"


def gguf_keys(architecture: str) -> dict[str, tuple[str, ...]]:
    """Return GGUF's keys of each field, the first that is there."""
    from gguf.constants import Keys

    llm, attention, rope, ssm, tokenizer = Keys.LLM, Keys.Attention, Keys.Rope, Keys.SSM, Keys.Tokenizer
    found = {
        "architecture": (Keys.General.ARCHITECTURE,), "block_count": (llm.BLOCK_COUNT,),
        "embedding_length": (llm.EMBEDDING_LENGTH,), "feed_forward_length": (llm.FEED_FORWARD_LENGTH,),
        "context_length": (llm.CONTEXT_LENGTH,), "vocab_size": (llm.VOCAB_SIZE,),
        "head_count": (attention.HEAD_COUNT,), "head_count_kv": (attention.HEAD_COUNT_KV,),
        "head_dim": (attention.KEY_LENGTH_MLA, attention.KEY_LENGTH), "head_dim_local": (attention.KEY_LENGTH_SWA,),
        "rope_base": (rope.FREQ_BASE,), "rope_base_local": (rope.FREQ_BASE_SWA,),
        "rope_dimensions": (rope.DIMENSION_COUNT,), "rope_scaling": (rope.SCALING_TYPE,),
        "rope_scaling_factor": (rope.SCALING_FACTOR,), "rope_original_context": (rope.SCALING_ORIG_CTX_LEN,),
        "norm_epsilon": (attention.LAYERNORM_RMS_EPS, attention.LAYERNORM_EPS),
        "activation": ("{arch}.hidden_activation",), "expert_count": (llm.EXPERT_COUNT,),
        "expert_used_count": (llm.EXPERT_USED_COUNT,), "sliding_window": (attention.SLIDING_WINDOW,),
        "attn_logit_softcap": (llm.ATTN_LOGIT_SOFTCAPPING,), "final_logit_softcap": (llm.FINAL_LOGIT_SOFTCAPPING,),
        "bos_token_id": (tokenizer.BOS_ID,), "eos_token_id": (tokenizer.EOS_ID,), "pad_token_id": (tokenizer.PAD_ID,),
        "unk_token_id": (tokenizer.UNK_ID,), "add_bos_token": (tokenizer.ADD_BOS,),
        "add_eos_token": (tokenizer.ADD_EOS,),
        "rope_attn_factor": (rope.SCALING_YARN_ATTN_FACTOR,), "rope_ext_factor": (rope.SCALING_YARN_EXT_FACTOR,),
        "rope_beta_fast": (rope.SCALING_YARN_BETA_FAST,), "rope_beta_slow": (rope.SCALING_YARN_BETA_SLOW,),
        "value_dim": (attention.VALUE_LENGTH_MLA, attention.VALUE_LENGTH), "q_lora_rank": (attention.Q_LORA_RANK,),
        "kv_lora_rank": (attention.KV_LORA_RANK,), "sliding_layers": (attention.SLIDING_WINDOW_PATTERN,),
        "expert_feed_forward_length": (llm.EXPERT_FEED_FORWARD_LENGTH,),
        "expert_shared_feed_forward_length": (llm.EXPERT_SHARED_FEED_FORWARD_LENGTH,),
        "expert_shared_count": (llm.EXPERT_SHARED_COUNT,), "expert_group_count": (llm.EXPERT_GROUP_COUNT,),
        "expert_group_used_count": (llm.EXPERT_GROUP_USED_COUNT,),
        "leading_dense_block_count": (llm.LEADING_DENSE_BLOCK_COUNT,),
        "nextn_predict_layers": (llm.NEXTN_PREDICT_LAYERS,), "expert_weights_norm": (llm.EXPERT_WEIGHTS_NORM,),
        "expert_weights_scale": (llm.EXPERT_WEIGHTS_SCALE,), "expert_gating": (llm.EXPERT_GATING_FUNC,),
        "ssm_conv_kernel": (ssm.CONV_KERNEL,), "ssm_inner_size": (ssm.INNER_SIZE,), "ssm_state_size": (ssm.STATE_SIZE,),
        "ssm_time_step_rank": (ssm.TIME_STEP_RANK,), "ssm_group_count": (ssm.GROUP_COUNT,),
        "logit_scale": (llm.LOGIT_SCALE,), "embedding_scale": (llm.EMBEDDING_SCALE,),
        "residual_scale": (llm.RESIDUAL_SCALE,), "attention_scale": (attention.SCALE,),
        "clamp_kqv": (attention.CLAMP_KQV,), "parallel_residual": (llm.USE_PARALLEL_RESIDUAL,),
        "causal": (attention.CAUSAL,), "tokenizer_model": (tokenizer.MODEL,),
    }  # fmt: skip
    if architecture == "nemotron":  # whose loader reads the other one
        found["norm_epsilon"] = found["norm_epsilon"][::-1]
    return {name: tuple(key.format(arch=architecture) for key in keys) for name, keys in found.items()}


def of_gguf(metadata: Mapping[str, Json], tensors: frozenset[str]) -> dict[str, Stated]:
    """Read the fields that a GGUF file's metadata states, and what its tensors say of rope scaling."""
    found = {}
    for name, keys in gguf_keys(str(metadata.get("general.architecture"))).items():
        key = next((key for key in keys if metadata.get(key) is not None), None)
        if key is not None:
            found[name] = Stated(value=canonical(metadata[key], CONFIG_FIELDS[name]), read=key)
    for tensor, kind in (("rope_factors_long.weight", "longrope"), ("rope_freqs.weight", "table")):
        if tensor in tensors:
            found["rope_scaling"] = Stated(value=kind, read=f"the tensor {tensor}", basis="derived")
    if not isinstance(metadata.get(SLIDING.format(arch=metadata.get("general.architecture"))), list):
        found.pop("sliding_layers", None)  # a period, whose phase is the loader's
    if metadata.get(TOKENIZER_MODEL) not in TOKENIZER_KINDS.values():
        found.pop("tokenizer_model", None)
    return found | _of_arrays(metadata, found)


def _of_arrays(metadata: Mapping[str, Json], found: Fields) -> dict[str, Stated]:
    """Return what a header states a layer at a time, or by a number, as a directory states it."""
    more = {}
    pattern, gating = (found.get(name) for name in ("sliding_layers", "expert_gating"))
    if pattern is not None and isinstance(flags := metadata[pattern.read], list):
        more["sliding_layers"] = replace(pattern, value=digits(map(bool, flags)))
        if not any(flags):  # a window that no layer has
            more["sliding_window"] = Stated(value=0, read=pattern.read, basis="derived")
    if gating is not None:
        number = metadata[gating.read]
        more["expert_gating"] = replace(
            gating, value=GATINGS.get(number, gating.value) if type(number) is int else number
        )
    for name in ("head_count_kv", "feed_forward_length"):  # of the layers that have any
        stated = found.get(name)
        if stated is not None and isinstance(each := metadata[stated.read], list) and 0 in each and any(each):
            told = canonical([count for count in each if count], FieldKind.COUNT)
            more[name] = replace(stated, value=told)
            if name == "head_count_kv":
                more["attention_layers"] = Stated(value=digits(map(bool, each)), read=stated.read, basis="derived")
    blocks, nextn = (found.get(name) for name in ("block_count", "nextn_predict_layers"))
    if blocks and nextn and isinstance(blocks.value, int) and isinstance(nextn.value, int) and nextn.value:
        less = blocks.value - nextn.value
        more["block_count"] = replace(blocks, also=((less, f"{blocks.read} less {nextn.read}"),))
        if pattern is not None and isinstance(layers := more["sliding_layers"].value, str):
            more["sliding_layers"] = replace(
                pattern, value=layers, also=((layers[:less], f"{pattern.read}, less them"),)
            )
    return more
