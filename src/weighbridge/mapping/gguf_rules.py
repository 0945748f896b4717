"""The rules by which llama.cpp's converter makes a GGUF file: one row a rule, with its families and its source.

`source` names the line of the converter (llama-cpp-python 0.3.36, `conversion/`) that the row restates. A row without
families holds for all of them. Names are patterns of whole names; group 1 is the layer.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

LAYER = r"(?:.*\.)?(?:layers|h|blocks)\.(\d{1,6})\."


class Layout(enum.Enum):
    """How the values of one source tensor are laid out in what it becomes."""

    APART = enum.auto()  # equal stretches of rows, one after the other; each matrix of a stack for itself
    TURNED = enum.auto()  # equal stretches of columns, rows and columns exchanged
    INTERLEAVED = enum.auto()  # every second column, rows and columns exchanged; of a bias, every second value
    FLAT = enum.auto()  # experts under one another become a stack
    FLAT_TURNED = enum.auto()  # the same, with rows and columns exchanged
    LATENT = enum.auto()  # of each head the keys' rows, exchanged with columns, and the values'
    BY_KEY_HEAD = enum.auto()  # q, k, v and z of each key head become q, k and v of all, and z of all
    TILED = enum.auto()  # value heads grouped by key head are tiled over the key heads
    TILED_AFTER_KEYS = enum.auto()  # the same, behind the rows of queries and keys
    TILED_COLUMNS = enum.auto()  # the same, of the columns


class Rule(NamedTuple):
    """What one source tensor becomes; targets are separated by blanks, and `{}` is the layer."""

    names: str
    targets: str
    layout: Layout
    families: str
    source: str


GATE_AND_UP = "blk.{}.ffn_gate_exps.weight blk.{}.ffn_up_exps.weight"
STACK = LAYER + r"(?:mlp|feed_forward|block_sparse_moe)\.experts\."
LINEAR = LAYER + r"linear_attn\."
VALUE_HEADS = "qwen35 qwen35moe qwen4exp"  # _LinearAttentionVReorderBase

# The first row of a family whose targets the file has counts; where it has none of them, the first one.
RULES = (
    Rule(STACK + "gate_up_proj", GATE_AND_UP, Layout.TURNED, "llama4", "llama.py:402"),
    Rule(STACK + "down_proj", "blk.{}.ffn_down_exps.weight", Layout.TURNED, "llama4", "llama.py:412"),
    Rule(STACK + "gate_up_proj", GATE_AND_UP, Layout.TURNED, "qwen3vlmoe", "qwen3vl.py:330"),
    Rule(STACK + "down_proj", "blk.{}.ffn_down_exps.weight", Layout.TURNED, "qwen3vlmoe", "qwen3vl.py:324"),
    Rule(STACK + "gate_up_proj", GATE_AND_UP, Layout.INTERLEAVED, "gpt-oss", "gpt_oss.py:112"),
    Rule(STACK + "down_proj", "blk.{}.ffn_down_exps.weight", Layout.TURNED, "gpt-oss", "gpt_oss.py:95"),
    Rule(STACK + "gate_up_proj_bias", GATE_AND_UP.replace("weight", "bias"), Layout.INTERLEAVED, "gpt-oss",
         "gpt_oss.py:104"),
    Rule(STACK + "down_proj_bias", "blk.{}.ffn_down_exps.bias", Layout.APART, "gpt-oss", "gpt_oss.py:92"),
    Rule(STACK + r"gate_up_proj(?:\.weight)?", GATE_AND_UP, Layout.APART, "", "qwen.py:103"),
    Rule(STACK + r"gate_up_proj(?:\.weight)?", "blk.{}.ffn_gate_up_exps.weight", Layout.APART, "", "granite.py:141"),
    Rule(STACK + r"down_proj(?:\.weight)?", "blk.{}.ffn_down_exps.weight", Layout.APART, "", "qwen.py:97"),
    Rule(LAYER + r"block_sparse_moe\.input_linear\.weight", GATE_AND_UP, Layout.APART, "", "granite.py:201"),
    Rule(LAYER + r"block_sparse_moe\.input_linear\.weight", "blk.{}.ffn_gate_up_exps.weight", Layout.APART,
         "granite_swa", "granite.py:155"),
    Rule(LAYER + r"shared_mlp\.input_linear\.weight", "blk.{}.ffn_up_shexp.weight", Layout.APART, "granite_swa",
         "granite.py:164"),
    Rule(LAYER + r"shared_mlp\.input_linear\.weight", "blk.{}.ffn_gate_shexp.weight blk.{}.ffn_up_shexp.weight",
         Layout.APART, "", "granite.py:211"),
    Rule(LAYER + r"shared_mlp\.input_linear\.weight", "blk.{}.ffn_gate.weight blk.{}.ffn_up.weight", Layout.APART, "",
         "granite.py:219"),
    Rule(LAYER + r"ffn\.experts\.mlp\.w1", "blk.{}.ffn_gate_exps.weight", Layout.FLAT, "dbrx", "dbrx.py:50"),
    Rule(LAYER + r"ffn\.experts\.mlp\.v1", "blk.{}.ffn_up_exps.weight", Layout.FLAT, "dbrx", "dbrx.py:52"),
    Rule(LAYER + r"ffn\.experts\.mlp\.w2", "blk.{}.ffn_down_exps.weight", Layout.FLAT_TURNED, "dbrx", "dbrx.py:51"),
    Rule(LAYER + r"self_attn\.kv_b_proj\.weight", "blk.{}.attn_k_b.weight blk.{}.attn_v_b.weight", Layout.LATENT, "",
         "deepseek.py:433"),
    Rule(LINEAR + r"in_proj_qkvz\.weight", "blk.{}.attn_qkv.weight blk.{}.attn_gate.weight", Layout.BY_KEY_HEAD,
         "qwen3next", "qwen.py:404"),
    Rule(LINEAR + r"in_proj_qkv\.weight", "blk.{}.attn_qkv.weight", Layout.TILED_AFTER_KEYS, VALUE_HEADS,
         "qwen.py:592"),
    Rule(LINEAR + r"conv1d\.weight", "blk.{}.ssm_conv1d.weight", Layout.TILED_AFTER_KEYS, VALUE_HEADS, "qwen.py:620"),
    Rule(LINEAR + r"in_proj_z\.weight", "blk.{}.attn_gate.weight", Layout.TILED, VALUE_HEADS, "qwen.py:603"),
    Rule(LINEAR + r"in_proj_a\.weight", "blk.{}.ssm_alpha.weight", Layout.TILED, VALUE_HEADS, "qwen.py:607"),
    Rule(LINEAR + r"in_proj_b\.weight", "blk.{}.ssm_beta.weight", Layout.TILED, VALUE_HEADS, "qwen.py:607"),
    Rule(LINEAR + "A_log", "blk.{}.ssm_a", Layout.TILED, VALUE_HEADS, "qwen.py:611"),
    Rule(LINEAR + "dt_bias", "blk.{}.ssm_dt.bias", Layout.TILED, VALUE_HEADS, "qwen.py:611"),
    Rule(LINEAR + r"out_proj\.weight", "blk.{}.ssm_out.weight", Layout.TILED_COLUMNS, VALUE_HEADS, "qwen.py:629"),
    Rule(LAYER + r"attn\.gqkv_proj\.weight",
         "blk.{}.attn_gate.weight blk.{}.attn_q.weight blk.{}.attn_k.weight blk.{}.attn_v.weight", Layout.APART,
         "hrm_text", "hrm_text.py:63"),
    Rule(LAYER + r"pre_feedforward_layernorm\.weight", "blk.{}.ffn_norm.weight", Layout.APART, "muse-glimmer",
         "muse_glimmer.py:54"),
    Rule(LAYER + r"post_attention_layernorm\.weight", "blk.{}.post_attention_norm.weight", Layout.APART, "muse-glimmer",
         "muse_glimmer.py:54"),
    Rule(LAYER + r"mlp\.gate_up_proj\.weight", "blk.{}.ffn_gate.weight blk.{}.ffn_up.weight", Layout.APART, "hrm_text",
         "hrm_text.py:69"),
)  # fmt: skip


class Respelled(NamedTuple):
    """A spelling that the converter replaces before it looks a name up."""

    pattern: str
    spelled: str
    source: str


RESPELLED = (
    Respelled(r"\.gamma$", ".weight", "bert.py: names of TensorFlow"),
    Respelled(r"\.beta$", ".bias", "bert.py: names of TensorFlow"),
    Respelled(r"\.experts\.0\.", ".", "jamba.py:77, of a layer that has one expert"),
    Respelled(r"e_score_correction_bias$", "e_score_correction.bias", "base.py:593"),
    Respelled(r"\.expert_bias$", ".expert_bias.bias", "afmoe.py:45, lfm2.py:125"),
    Respelled(r"\.dt_bias$", ".dt_proj.bias", "mamba.py:173, qwen.py:397, kimi_linear.py:167, nemotron.py:447"),
    Respelled(r"\.(sinks|attention_sink_bias)$", r".\1.weight", "gpt_oss.py:84, mimo.py:265"),
    Respelled(r"\.(layer_scalar|per_dim_scale|correct_output_scale)$", r".\1.weight", "gemma.py:574, gemma.py:795"),
    Respelled(r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1", "bert.py:97"),
    Respelled(r"\.attn\.o_proj\.", ".self_attn.o_proj.", "hrm_text.py:75"),
    Respelled(r"\.mlp\.router\.gate\.", ".mlp.gate.", "hunyuan.py:363"),
    Respelled(r"\.mlp\.experts\.e_score_correction\.", ".mlp.e_score_correction.", "laguna.py:174"),
    Respelled(r"\.block_sparse_moe\.router\.weight$", ".block_sparse_moe.router.layer.weight", "granite.py:108"),
    Respelled(r"^model\.z_L_init$", "hrm.z_l_init", "hrm_text.py:50"),
    Respelled(r"\.hc_norm\.", ".norm.", "qwen4exp.py: hyper-connections"),
    Respelled(r"\.input_mix_weight_(down|up)\.", r".\1.", "qwen4exp.py: hyper-connections"),
    Respelled(r"\.block_inject_weight\.", ".inject.", "qwen4exp.py: hyper-connections"),
    Respelled(
        r"^model\.(?:language_model\.)?layers\.(\d+)\.attn_hyper_connection\.",
        r"blk.\1.hc_attn_",
        "qwen4exp.py: hyper-connections",
    ),
    Respelled(
        r"^model\.(?:language_model\.)?layers\.(\d+)\.mlp_hyper_connection\.",
        r"blk.\1.hc_ffn_",
        "qwen4exp.py: hyper-connections",
    ),
    Respelled(r"^model\.(?:language_model\.)?hyper_connection_mixer\.", "output_hc_", "qwen4exp.py: hyper-connections"),
)

# The layer that predicts further tokens: its own four tensors, by where the converter's table knows them.
MTP = {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "shared_head.norm"}

# Tensors of one number each, or of several numbers in their order, that one tensor holds.
STACKS = (
    (r"(?:.*\.)?altup_projections\.(\d+)\.weight", "altup_proj.weight", "gemma.py:628"),
    (r"(?:.*\.)?altup_unembed_projections\.(\d+)\.weight", "altup_unembd_proj.weight", "gemma.py:606"),
)

# Learned numbers that stand in the header instead, one a layer.
IN_HEADER = (
    (LAYER + r"mlp\.act_fn\.(alpha_n|alpha_p|beta|eps)", "xielu.{}", "apertus", "llama.py:444"),
)  # fmt: skip

# Queries and keys whose heads' halves are interleaved (LlamaModel.undo_permute and copies of it).
PERMUTED = (
    "llama llama-embed deci arcee smollm3 granite granitemoe granitehybrid granite_swa minicpm olmo xverse arctic "
    "bailingmoe deepseek llada mistral3 muse-glimmer nemotron_h nemotron_h_moe"
)  # fmt: skip
OF_SECTIONS = "glm4"  # where rope_parameters has an mrope_section, a head's turning half in pairs (glm.py:54)
INTERLEAVED = ("gptneox", "bloom")  # queries, keys and values of one head after the other (gptneox.py, bloom.py:46)
TURNED = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")  # of gpt2 (gpt2.py:33)

# One is added to norms: families, what their names end in, and what they do not.
PLUS_ONE = (
    ("gemma gemma2 gemma3 gemma-embedding", r".*norm\.weight", "gemma.py:67, gemma.py:119, gemma.py:131"),
    ("nemotron", r".*norm\.weight", "nemotron.py:192"),
    ("muse-glimmer", r".*layernorm\.weight", "muse_glimmer.py:33"),
    ("qwen3next qwen35 qwen35moe qwen4exp", r"(?!.*linear_attn\.norm\.weight).*norm\.weight", "qwen.py:401"),
    ("qwen4exp", r".*\.(ple\.norm_(key|query|conv)|indexer\.[qk]_layernorm)\.weight", "qwen4exp.py:134"),
)

# Numbers of the configuration that are multiplied into weights, one after the other: falcon_h1.py:60.
MULTIPLIED = (
    (r".*\.down_proj\.weight", "mlp_multipliers.1"),
    (r".*\.gate_proj\.weight", "mlp_multipliers.0"),
    (r".*\.k_proj\.(weight|bias)", "key_multiplier attention_in_multiplier"),
    (r".*\.[qv]_proj\.(weight|bias)", "attention_in_multiplier"),
    (r".*\.o_proj\.weight", "attention_out_multiplier"),
    (r".*\.out_proj\.weight", "ssm_out_multiplier"),
    (r"lm_head\.weight", "lm_head_multiplier"),
    (r".*embed_tokens\.weight", "embedding_multiplier"),
)


class Fault(NamedTuple):
    """A difference that the converter is known to make: of which tensors, by its code or mechanism, and why."""

    families: str
    names: str
    found: str
    why: str


FAULTS = (
    Fault("granitehybrid", r"blk\.\d+\.attn_[qk]\.(weight|bias)", "permutation-missing",
          "llama.cpp's converter permutes layers called `attention`, which transformers 5 calls `full_attention` "
          "(granite.py:443): the import is wrong; convert with `attention` in layer_types, as transformers 4 wrote"),
    Fault("olmo", r"blk\.\d+\.attn_[qk]\.bias", "permutation-missing",
          "llama.cpp's converter permutes weights of queries and keys, and not their biases (olmo.py:34): the import "
          "is wrong, and no setting of the converter makes it right"),
    Fault("qwen3vlmoe", r"blk\.\d+\.ffn_(gate|up|down)_exps\.weight", "shape",
          "llama.cpp's converter turns experts as the published checkpoints hold them (qwen3vl.py:330), and "
          "transformers 5 may save them turned already: the import is wrong; convert a directory whose gate_up_proj is "
          "[experts, hidden, 2 x width]"),
    Fault("bert", r"(bert\.)?pooler\.dense\.(weight|bias)", "missing",
          "llama.cpp's converter leaves out the pooler of every BERT, also where a classifier stands on it "
          "(bert.py:83): the import scores without it; where that is meant, `allow_missing: ['*pooler.dense.*']`"),
)  # fmt: skip

CUT_VOCABULARY = ("gemma3", "gemma4")  # gemma.py:163
PADDED_VOCABULARY = "gemma3n"  # with zeros, for tokens of images and sound: gemma.py:574

# Architectures whose conversions were accepted (spec/conversions.md): what no rule speaks of there is missing or extra.
# Of any other one it is not compared.
PROVEN = (
    "afmoe apertus arcee bert bloom chatglm clip cohere2 cohere2moe command-r dbrx deepseek2 deepseek32 dots1 "
    "ernie4_5 ernie4_5-moe eurobert exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2 gemma3 gemma3n "
    "gemma4 glm-dsa glm4 glm4moe gpt-oss gpt2 gptneox granite granite_swa granitehybrid granitemoe hrm_text "
    "hunyuan-dense hunyuan-moe hunyuan_vl hy_v3 jais2 jamba kimi-linear laguna lfm2 lfm2moe llama llama4 mamba mamba2 "
    "mellum mimo2 minicpm3 minimax-m2 mistral3 modern-bert mpt muse-glimmer nemotron nemotron_h_moe nomic-bert olmo "
    "olmo2 olmoe paddleocr phi2 phi3 phimoe qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next qwen3vl "
    "qwen3vlmoe qwen4exp seed_oss smollm3 stablelm starcoder starcoder2 t5 t5encoder"
)  # fmt: skip
