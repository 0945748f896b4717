"""Layouts that are known by their names, as rules in both directions: experts stacked or apart, Meta's and Mistral's.

Data: `numbers` of the rules are heads and kv_heads, from either side's configuration.
"""

from __future__ import annotations

from collections.abc import Iterator

from weighbridge.mapping.tensor_rules import Rule

# transformers 5 stacks the experts of a layer, gate and up in one tensor, where transformers 4 saved each by itself
# (conversion_mapping.py there, `qwen2_moe` and `mixtral`).
EXPERTS = (
    ("<...>.experts", "<...>.experts", ("gate_proj", "up_proj", "down_proj")),
    ("<...>.experts", "<...>.experts", ("w1", "w3", "w2")),
    ("<...>.block_sparse_moe.experts", "<...>.mlp.experts", ("w1", "w3", "w2")),
)
ROUTERS = (("<...>.block_sparse_moe.gate.weight", "<...>.mlp.gate.weight"),)

# Meta's consolidated files, and Mistral's, beside Hugging Face's names (convert_llama_weights_to_hf.py).
META = (
    ("tok_embeddings.weight", "model.embed_tokens.weight"),
    ("norm.weight", "model.norm.weight"),
    ("output.weight", "lm_head.weight"),
    ("layers.<layer>.attention.wv.weight", "model.layers.<layer>.self_attn.v_proj.weight"),
    ("layers.<layer>.attention.wo.weight", "model.layers.<layer>.self_attn.o_proj.weight"),
    ("layers.<layer>.feed_forward.w1.weight", "model.layers.<layer>.mlp.gate_proj.weight"),
    ("layers.<layer>.feed_forward.w2.weight", "model.layers.<layer>.mlp.down_proj.weight"),
    ("layers.<layer>.feed_forward.w3.weight", "model.layers.<layer>.mlp.up_proj.weight"),
    ("layers.<layer>.attention_norm.weight", "model.layers.<layer>.input_layernorm.weight"),
    ("layers.<layer>.ffn_norm.weight", "model.layers.<layer>.post_attention_layernorm.weight"),
)
# Meta interleaves the two halves of each head, Hugging Face puts one after the other.
META_ROTATED = (
    ("layers.<layer>.attention.wq.weight", "model.layers.<layer>.self_attn.q_proj.weight", "heads"),
    ("layers.<layer>.attention.wk.weight", "model.layers.<layer>.self_attn.k_proj.weight", "kv_heads"),
)
# vLLM, and models that fuse as it does: queries, keys and values one after the other, and gate and up.
FUSED = tuple(
    (f"<...>.{fused}.{ending}", tuple(f"<...>.{one}.{ending}" for one in each))
    for ending in ("weight", "bias")
    for fused, each in {
        "qkv_proj": ("q_proj", "k_proj", "v_proj"), "mlp.gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
    }.items()
)  # fmt: skip

# What the converter makes of encoders in an mmproj file besides other names: (its tensor, the source's, what is done).
ENCODERS = (
    *(  # conversion/qwenvl.py:100
        Rule(
            tensor=f"v.blk.<layer>.attn_{one}.{ending}",
            of=(f"visual.blocks.<layer>.attn.qkv.{ending}",),
            view=(3, -1),
            index=(at,),
        )
        for ending in ("weight", "bias")
        for at, one in enumerate("qkv")
    ),
    *(  # the two frames of a patch: conversion/qwenvl.py:113, qwen3vl.py:129
        Rule(
            tensor=f"v.patch_embd.weight{end}",
            of=("visual.patch_embed.proj.weight",),
            view=(-1, 2, "dim3"),
            index=(":", at),
        )
        for at, end in enumerate(("", ".1"))
    ),
    Rule(tensor="v.patch_embd.bias", of=("visual.patch_embed.proj.bias",)),
    # conversion/qwen3vl.py:108
    *(
        Rule(tensor=f"{mine}.{ending}", of=(f"visual.merger.{other}.{ending}",))
        for mine, other in (("mm.0", "linear_fc1"), ("mm.2", "linear_fc2"), ("v.post_ln", "norm"))
        for ending in ("weight", "bias")
    ),
    # conversion/gemma.py:308
    Rule(tensor="mm.soft_emb_norm.weight", of=("multi_modal_projector.mm_soft_emb_norm.weight",), add=1),
    Rule(tensor="mm.input_projection.weight", of=("multi_modal_projector.mm_input_projection_weight",)),
    *(  # the rope permutation of Pixtral's queries and keys: conversion/llava.py:115
        Rule(
            tensor=f"v.blk.<layer>.attn_{one}.weight",
            of=(f"vision_tower.transformer.layers.<layer>.attention.{one}_proj.weight",),
            view=("heads", 2, -1),
            permute=(0, 2, 1),
        )
        for one in "qk"
    ),
    *(
        Rule(tensor=f"{mine}.{ending}", of=(f"{other}.{ending}",))
        for ending in ("weight", "bias")
        for mine, other in (
            ("mm.<at>", "multi_modal_projector.linear_<at>"),  # conversion/llava.py
            ("mm.a.mlp.<at>", "multi_modal_projector.linear_<at>"),  # conversion/ultravox.py: Voxtral, Audio Flamingo
            ("mm.a.fc", "multi_modal_projector.linear"),  # conversion/ultravox.py: Qwen2-Audio
            ("a.conv1d.<at>", "audio_tower.conv<at>"),  # conversion/ultravox.py:120
            ("mm.model.fc", "model.connector.modality_projection.proj"),  # conversion/smolvlm.py
            ("mm.model.fc", "connector.modality_projection.proj"),
            ("mm.model.fc", "multi_modal_projector.linear_1"),  # conversion/llama4.py:45
            ("mm.model.mlp.<at>", "vision_model.vision_adapter.mlp.fc<at>"),
        )
    ),
    Rule(tensor="v.position_embd.weight", of=("vision_model.positional_embedding_vlm",)),
)

# Projectors of mmproj files whose conversions were accepted; of another one nothing is said (spec/mappings.md).
PROJECTORS = (
    "gemma3 glm4v idefics3 llama4 musicflamingo pixtral qwen2a qwen2vl_merger qwen2.5vl_merger qwen3vl_merger voxtral"
)


def _built_in() -> Iterator[Rule]:
    for apart, stacked, (gate, up, down) in EXPERTS:
        one = f"{apart}.<each>", f"{apart}.<expert>"
        both, down_all = f"{stacked}.gate_up_proj", f"{stacked}.down_proj"
        yield Rule(tensor=both, of=(f"{one[0]}.{gate}.weight", f"{one[0]}.{up}.weight"))
        yield Rule(tensor=down_all, of=(f"{one[0]}.{down}.weight",))
        for half, matrix in enumerate((gate, up)):
            yield Rule(
                tensor=f"{one[1]}.{matrix}.weight", of=(both,), view=("dim0", 2, -1), index=("<expert>", half)
            )  # fmt: skip
        yield Rule(tensor=f"{one[1]}.{down}.weight", of=(down_all,), view=("dim0", -1), index=("<expert>",))
    for mine, other in (*ROUTERS, *META):
        yield Rule(tensor=mine, of=(other,))
        yield Rule(tensor=other, of=(mine,))
    for meta, hugging_face, heads in META_ROTATED:
        yield Rule(tensor=meta, of=(hugging_face,), view=(heads, 2, -1), permute=(0, 2, 1))
        yield Rule(tensor=hugging_face, of=(meta,), view=(heads, -1, 2), permute=(0, 2, 1))
    yield from (Rule(tensor=fused, of=each) for fused, each in FUSED)


BUILT_IN = tuple(_built_in())
