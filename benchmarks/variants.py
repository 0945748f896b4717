"""Convert families with one switch of their configuration turned, and tell which of them `compare` does not accept.

    python -m benchmarks.variants --converter …/vendor/llama.cpp --work /tmp/variants [--only llama] > variants

A switch is turned where the class of transformers has it and it was not so before. Each model is converted from F32 to
F32. Prints a line for each that is not accepted, and a table of how many are, by switch.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from benchmarks import families
from benchmarks.conversions import TOLD, weigh

OFTEN = (
    "llama mistral mixtral qwen2 qwen2-moe qwen3 qwen3-moe qwen3-next gemma gemma2 gemma3 phi phi3 gpt2 gptneox falcon "
    "bloom starcoder2 stablelm deepseek-v2 deepseek-v3 olmo olmo2 olmoe granite granitemoe cohere cohere2 glm4 "
    "glm4-moe gpt-oss bert roberta lfm2 mamba mamba2 nemotron exaone4 smollm3 ernie4-5-moe dots1 t5"
)  # fmt: skip
LINEAR = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
SWITCHES: Mapping[str, Any] = {
    "attention_bias": (True, False), "mlp_bias": (True,), "bias": (True, False), "use_bias": (True, False),
    "use_qkv_bias": (True, False), "qkv_bias": (True, False), "attention_out_bias": (True, False),
    "tie_word_embeddings": (True, False), "use_qk_norm": (True, False), "qk_layernorm": (True,),
    "use_parallel_residual": (True, False), "parallel_attn": (False,), "alibi": (True,), "multi_query": (True, False),
    "new_decoder_architecture": (False,), "n_shared_experts": (0, 2), "q_lora_rank": (None,),
    "shared_expert_intermediate_size": (32,), "num_key_value_heads": (1, 4), "head_dim": (24,),
    "first_k_dense_replace": (0, 2), "mlp_only_layers": ([0],), "decoder_sparse_step": (2,), "norm_topk_prob": (True,),
    "sliding_window": (None,), "use_sliding_window": (True,), "clip_qkv": (8.0,), "use_conv_bias": (False,),
    "rope_parameters": (families.LLAMA3, families.YARN, LINEAR), "num_hidden_layers": (1, 3), "use_cache": (False,),
    "feed_forward_proj": ("gated-gelu", "relu"), "partial_rotary_factor": (0.5,), "conv_bias": (True,),
    "position_embedding_type": ("absolute",), "moe_num_shared_experts": (0,), "type_vocab_size": (1,),
}  # fmt: skip


def tried(name: str, change: Mapping[str, Any], folder: Path) -> tuple[str, str]:
    """Build, convert and weigh one variant, and return what came of it."""
    shutil.rmtree(folder, ignore_errors=True)
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            families.build(name, "float32", folder, change)
        except Exception as problem:  # noqa: BLE001 (told, whatever it is)
            return "not built", f"{type(problem).__name__}: {' '.join(str(problem).split())[:120]}"
        failed = families.converted(folder, ["f32"])
        outcome, told = ("not converted", failed) if failed else weigh(folder, "f32")
    return TOLD.get(outcome, outcome), told


def main() -> None:
    """Try every switch of every family that has it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--converter", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    families.load(given.converter)
    import transformers

    counted: dict[str, Counter[str]] = {}
    for name in given.only or OFTEN.split():
        family = families.FAMILIES[name]
        known = families.small(getattr(transformers, family.kind).config_class, family.changed).to_dict()
        turned = [(key, value) for key in SWITCHES if key in known for value in SWITCHES[key] if value != known[key]]
        for key, value in turned:
            outcome, told = tried(name, {key: deepcopy(value)}, given.work / name)
            counted.setdefault(key, Counter())[outcome] += 1
            if outcome != "accepted":
                print(f"{name} {key}={value}: {outcome}: {told}", flush=True)
    for key, found in counted.items():
        print(f"| {key} | " + " | ".join(str(found[one]) for one in ("accepted", "no rule", "refused")) + " |")
    whole = sum(counted.values(), Counter[str]())
    print(f"{whole.total()} variants: " + ", ".join(f"{count} {one}" for one, count in whole.items()))


if __name__ == "__main__":
    main()
