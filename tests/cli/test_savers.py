"""`weighbridge compare` of what trainers and converters write: averages, adapters and layouts of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.comparison.conversions import HEADS, KV, Arrays, decoder, directory, gguf_file

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

OWN = {
    "conv.weight": torch.arange(6.0).reshape(2, 3),
    "bn.bias": torch.ones(2),
    "bn.num_batches_tracked": torch.tensor(3),
}
EMA = {name: one * 2 for name, one in OWN.items()}
SECOND = "of {}, another set of weights beside {}, not compared; save it by itself to compare it"


def saved(path: Path, state: Any) -> Path:
    torch.save(state, path)
    return path


BESIDE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "timm's CheckpointSaver": ("state_dict", "state_dict_ema", EMA),
    "torchvision's references": (
        "model", "model_ema", {"n_averaged": torch.tensor(5), **{f"module.{name}": one for name, one in EMA.items()}},
    ),
    "BasicSR": ("params", "params_ema", EMA),
    "a loop": ("model_state_dict", "ema", EMA),
}  # fmt: skip


@pytest.mark.parametrize("by", BESIDE)
def test_averages_beside_a_model_are_left_out_by_name_and_the_model_is_compared(
    cli: Cli, tmp_path: Path, by: str
) -> None:
    holder, key, averages = BESIDE[by]
    optimizer = {"state": {0: {"momentum_buffer": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}
    both = {"epoch": 0, "arch": "x", "optimizer": optimizer, "metric": 0.5, holder: OWN, key: averages}
    whole, own = saved(tmp_path / "whole.pth", both), saved(tmp_path / "own.pth", OWN)
    for pair in ((whole, own), (own, whole)):
        ended = cli("compare", *pair)
        assert ended.code == 0
        assert f"  {len(averages)} left out: {SECOND.format(key, holder)}" in ended.lines
    ended = cli("compare", whole, saved(tmp_path / "ema.pth", EMA))
    assert (ended.code, ended.lines[-1].partition(":")[0]) == (1, "DIFFERENT")
    other = {**both, key: {**averages, [*averages][-1]: torch.tensor(4)}}
    assert "left out" not in cli("compare", whole, saved(tmp_path / "again.pth", both)).out
    assert cli("compare", whole, saved(tmp_path / "other.pth", other)).code == 1


NOT_BESIDE: dict[str, dict[str, Any]] = {
    "a part of the model that is called so": {"model": OWN, "ema": {"codebook": torch.ones(4)}},
    "averages of another shape": {"model": OWN, "ema": {**EMA, "bn.bias": torch.ones(3)}},
    "nothing that holds a model": {"encoder": OWN, "ema": EMA},
    "a key that is none of averages": {"model": OWN, "teacher": EMA},
}


@pytest.mark.parametrize("case", NOT_BESIDE)
def test_what_is_no_second_set_of_the_models_own_weights_is_missing(cli: Cli, tmp_path: Path, case: str) -> None:
    state = NOT_BESIDE[case]
    whole = saved(tmp_path / "whole.pth", state)
    first = next(iter(state))
    ended = cli("compare", whole, saved(tmp_path / "own.pth", {first: state[first]}))
    assert (ended.code, "missing" in ended.lines[-1]) == (1, True)


def test_averages_by_themselves_are_a_model(cli: Cli, tmp_path: Path) -> None:
    alone = saved(tmp_path / "ema.pth", {"state_dict_ema": EMA})
    ended = cli("compare", alone, saved(tmp_path / "bare.pth", EMA))
    assert (ended.code, ended.lines[-1].partition(" (")[0]) == (0, "SAME: 3 of 3 tensors")


def test_a_mapping_file_decides_which_of_two_sets_is_compared(cli: Cli, tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.pth", {"state_dict": OWN, "state_dict_ema": EMA})
    (tmp_path / "map.yaml").write_text('rename: [{from: "^state_dict_ema[.]", to: ""}]')
    ema = saved(tmp_path / "ema.pth", EMA)
    ended = cli("compare", whole, ema, "--map", tmp_path / "map.yaml")
    assert ended.lines[-1] == "DIFFERENT: 3 of 6 tensors: 3 missing"


def llama(width: int = 8, heads: int = 2, groups: int = 1) -> dict[str, Any]:
    """Return a decoder of two layers by Hugging Face's names."""
    made = torch.Generator().manual_seed(3)
    shapes = {"model.embed_tokens": (12, width), "model.norm": (width,), "lm_head": (12, width)}
    for at in range(2):
        rows = {"q": width, "k": width // heads * groups, "v": width // heads * groups, "o": width}
        shapes |= {f"model.layers.{at}.self_attn.{one}_proj": (many, width) for one, many in rows.items()}
        shapes |= {f"model.layers.{at}.mlp.{one}_proj": (16, width) for one in ("gate", "up")}
        shapes |= {f"model.layers.{at}.mlp.down_proj": (width, 16)}
        shapes |= {f"model.layers.{at}.{one}_layernorm": (width,) for one in ("input", "post_attention")}
    return {f"{name}.weight": torch.randn(shape, generator=made) for name, shape in shapes.items()}


LITGPT = {
    "model.embed_tokens": "transformer.wte", "model.norm": "transformer.ln_f", "model.layers": "transformer.h",
    "self_attn.o_proj": "attn.proj", "gate_proj": "fc_1", "up_proj": "fc_2", "down_proj": "proj",
    "input_layernorm": "norm_1", "post_attention_layernorm": "norm_2",
}  # fmt: skip
WHISPER = {
    "model.": "", "layers": "blocks", "fc1": "mlp.0", "fc2": "mlp.2", "final_layer_norm": "mlp_ln",
    "self_attn.q_proj": "attn.query", "self_attn.k_proj": "attn.key", "self_attn.v_proj": "attn.value",
    "self_attn_layer_norm": "attn_ln", "self_attn.out_proj": "attn.out", "encoder_attn_layer_norm": "cross_attn_ln",
    "encoder_attn.q_proj": "cross_attn.query", "encoder_attn.k_proj": "cross_attn.key",
    "encoder_attn.v_proj": "cross_attn.value", "encoder_attn.out_proj": "cross_attn.out",
    "decoder.layer_norm": "decoder.ln", "encoder.layer_norm": "encoder.ln_post", "embed_tokens": "token_embedding",
    "embed_positions.weight": "positional_embedding",
}  # fmt: skip


def renamed(tensors: dict[str, Any], words: dict[str, str]) -> dict[str, Any]:
    found = {}
    for name, one in tensors.items():
        for old, new in words.items():
            name = name.replace(old, new)  # noqa: PLW2901 -- one word after the other
        found[name] = one
    return found


def by_litgpt(source: dict[str, Any]) -> dict[str, Any]:
    found = renamed(source, LITGPT)
    for at in range(2):
        parts = [found.pop(f"transformer.h.{at}.self_attn.{one}_proj.weight") for one in "qkv"]
        found[f"transformer.h.{at}.attn.qkv.weight"] = torch.cat(parts)
    return found


def whisper() -> dict[str, Any]:
    """Return a small Whisper by Hugging Face's names."""
    names = ["model.encoder.conv1.weight", "model.encoder.conv1.bias", "model.decoder.embed_tokens.weight"]
    for half in ("encoder", "decoder"):
        names += [f"model.{half}.embed_positions.weight", f"model.{half}.layer_norm.weight"]
        layer = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias", "final_layer_norm.weight"]
        for one in ("self_attn", "encoder_attn") if half == "decoder" else ("self_attn",):
            layer += [f"{one}.{part}_proj.weight" for part in ("q", "k", "v", "out")] + [f"{one}_layer_norm.bias"]
        names += [f"model.{half}.layers.{at}.{one}" for at in range(2) for one in layer]
    made = torch.Generator().manual_seed(5)
    return {name: torch.randn((4, 4), generator=made) for name in names}


def test_litgpt_s_names_are_those_of_hugging_face_with_queries_keys_and_values_fused(cli: Cli, tmp_path: Path) -> None:
    source = llama()
    pair = saved(tmp_path / "hf.pth", source), saved(tmp_path / "lit_model.pth", by_litgpt(source))
    assert cli("compare", *pair).lines[-1].startswith("SAME: 17 of 17 tensors")
    stored = saved(tmp_path / "held.pth", {"model": by_litgpt(source), "iter_num": 3})
    assert cli("compare", pair[0], stored).lines[-1].startswith("SAME: 17 of 17 tensors")
    swapped = by_litgpt(source)
    one, other = (f"transformer.h.0.mlp.{name}.weight" for name in ("fc_1", "fc_2"))
    swapped[one], swapped[other] = swapped[other], swapped[one]
    assert cli("compare", pair[0], saved(tmp_path / "swapped.pth", swapped)).code == 1


def by_megatron(source: Arrays, groups: int) -> Arrays:
    """Return what Megatron-core saves with Transformer Engine: each group's queries, its key and its value in turn."""
    found = {
        "embedding.word_embeddings.weight": source["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": source["model.norm.weight"],
        "output_layer.weight": source["lm_head.weight"],
    }
    for at in range(2):
        of, into = f"model.layers.{at}", f"decoder.layers.{at}"
        parts = [source[f"{of}.self_attn.{one}_proj.weight"] for one in "qkv"]
        width = parts[0].shape[1]
        together = np.concatenate([one.reshape(groups, -1, width) for one in parts], 1).reshape(-1, width)
        gates = [source[f"{of}.mlp.{one}_proj.weight"] for one in ("gate", "up")]
        found |= {
            f"{into}.self_attention.linear_qkv.weight": together,
            f"{into}.self_attention.linear_qkv.layer_norm_weight": source[f"{of}.input_layernorm.weight"],
            f"{into}.self_attention.linear_proj.weight": source[f"{of}.self_attn.o_proj.weight"],
            f"{into}.mlp.linear_fc1.weight": np.concatenate(gates),
            f"{into}.mlp.linear_fc1.layer_norm_weight": source[f"{of}.post_attention_layernorm.weight"],
            f"{into}.mlp.linear_fc2.weight": source[f"{of}.mlp.down_proj.weight"],
        }
    return found


def test_megatron_core_s_names_are_those_of_hugging_face_by_the_groups_of_the_configuration(
    cli: Cli, tmp_path: Path
) -> None:
    arrays = {name: one.numpy() for name, one in llama(64, HEADS, KV).items()}
    source = directory(tmp_path / "hf", arrays)

    def megatron(groups: int) -> Path:
        tensors = {name: torch.from_numpy(one.copy()) for name, one in by_megatron(arrays, groups).items()}
        return saved(tmp_path / f"{groups}.pt", tensors)

    assert cli("compare", source, megatron(KV)).lines[-1].startswith("SAME: 15 of 15 tensors")
    assert cli("compare", source, megatron(1)).code == 1
    (source / "config.json").unlink()
    assert cli("compare", source, megatron(KV)).lines[-1].startswith("UNREADABLE: mapping: ")


@pytest.mark.parametrize("holder", ["", "model_state_dict"])
def test_openai_s_names_of_whisper_are_those_of_hugging_face_either_way(cli: Cli, tmp_path: Path, holder: str) -> None:
    source = whisper()
    state: dict[str, Any] = renamed(source, WHISPER)
    theirs = saved(tmp_path / "large.pt", {holder: state, "dims": {"n_mels": 80}} if holder else state)
    pair = saved(tmp_path / "hf.pth", source), theirs
    for one, other in (pair, pair[::-1]):
        assert cli("compare", one, other).lines[-1].startswith(f"SAME: {len(source)} of {len(source)} tensors")
    name = "model.decoder.layers.1.encoder_attn.k_proj.weight"
    damaged = saved(tmp_path / "damaged.pth", {**source, name: source[name] + 1})
    assert cli("compare", damaged, theirs).code == 1


def test_the_key_of_a_single_file_unet_is_taken_away(cli: Cli, tmp_path: Path) -> None:
    bare = {f"double_blocks.{at}.img_attn.qkv.weight": torch.full((2, 2), float(at)) for at in range(3)}
    whole = saved(tmp_path / "a.pth", {f"model.diffusion_model.{name}": one for name, one in bare.items()})
    ended = cli("compare", whole, saved(tmp_path / "b.pth", bare))
    assert ended.lines[-2:-1] == ["  names: renamed: 'model.diffusion_model.' taken away"]
    assert ended.code == 0


ATTENTION = "model.layers.{}.self_attn.q_proj"
PEFT = f"base_model.model.{ATTENTION}"
UNMAPPED: dict[str, tuple[list[str], str]] = {
    "LoRA": ([f"{PEFT}.lora_A.weight", f"{PEFT}.lora_B.weight"], "is a LoRA adapter (PEFT); compare what was merged"),
    "IA3": ([f"{PEFT}.ia3_l"], "is an IA3 adapter (PEFT); merge it"),
    "LoHa": ([f"{PEFT}.hada_w1_a", f"{PEFT}.hada_w2_b"], "is a LoHa adapter (PEFT, LyCORIS); merge it"),
    "LoKr": ([f"{PEFT}.lokr_w1", f"{PEFT}.lokr_w2"], "is a LoKr adapter (PEFT, LyCORIS); merge it"),
    "OFT": ([f"{PEFT}.oft_R.weight"], "is an adapter (PEFT); merge it"),
    "a prompt": (["prompt_embeddings"], "is a learned prompt (PEFT); it changes no weight"),
    "kohya": (["lora_unet_down_{}.lora_down.weight", "lora_unet_down_{}.lora_up.weight"], "is a LoRA adapter (kohya)"),
    "all of PEFT's state": (
        [f"{PEFT}.base_layer.weight", f"{PEFT}.lora_A.default.weight", "base_model.model.model.layers.{}.norm.weight"],
        "holds an adapter beside its base, not merged (PEFT); save what merge_and_unload returns",
    ),
    "Megatron-core": (["encoder.layers.{}.self_attention.linear_qkv.weight"], "has the names of Megatron-core"),
    "TensorRT-LLM": (["transformer.layers.{}.attention.qkv.weight"], "has the names of TensorRT-LLM"),
    "a single-file UNet": (["model.diffusion_model.input_blocks.{}.0.weight"], "has the names of a single-file UNet"),
    "torch's exporter": (["onnx::MatMul_10{}"], "has weights that torch's exporter named by their place"),
}


@pytest.mark.parametrize("name", UNMAPPED)
def test_an_adapter_or_a_layout_without_a_rule_is_reported_in_one_line_with_what_to_do(
    cli: Cli, tmp_path: Path, name: str
) -> None:
    names, printed = UNMAPPED[name]
    tensors = {one.format(at): torch.full((2, 2), float(at)) for one in names for at in range(2)}
    source, other = saved(tmp_path / "hf.pth", llama()), saved(tmp_path / "other.pth", tensors)
    for side, pair in (("import", (source, other)), ("source", (other, source))):
        ended = cli("compare", *pair)
        assert ended.code == 1
        assert ended.lines[1].startswith(f"  no rule: the {side} {printed}")
        assert "is in the source and not in" not in ended.out
        assert "is in the candidate and not in" not in ended.out
        assert "is in the candidate and not in" in cli("compare", *pair, "--all").out


def test_what_one_stray_adapter_tensor_lies_beside_is_still_listed(cli: Cli, tmp_path: Path) -> None:
    source = llama()
    stray = {**source, f"{PEFT}.lora_A.weight": torch.ones(2, 2)}
    ended = cli("compare", saved(tmp_path / "a.pth", source), saved(tmp_path / "b.pth", stray))
    assert (ended.code, "no rule: the" in ended.out) == (1, False)
    assert any("is in the candidate and not in the source" in line for line in ended.lines)


def test_a_changed_tensor_beside_names_without_a_rule_is_still_listed(cli: Cli, tmp_path: Path) -> None:
    source = llama()
    kept = {"model.embed_tokens.weight": source["model.embed_tokens.weight"] + 1}
    exported = {f"onnx::MatMul_10{at}": torch.ones(2, 2) for at in range(4)}
    ended = cli("compare", saved(tmp_path / "a.pth", source), saved(tmp_path / "b.pth", kept | exported))
    assert ended.lines[1].startswith("  no rule: the import has weights")
    assert ended.lines[2].startswith("  model.embed_tokens.weight: F32 -> F32, but 96 of 96 elements")


def test_a_lora_adapter_in_gguf_is_recognised_as_one(cli: Cli, tmp_path: Path) -> None:
    source = directory(tmp_path / "hf", decoder())
    adapter = {f"blk.0.attn_q.weight.lora_{end}": np.ones((4, 4), np.float32) for end in "ab"}
    ended = cli("compare", source, gguf_file(tmp_path / "lora.gguf", adapter, "llama"))
    assert ended.code == 1
    assert ended.lines[1].startswith("  no rule: the import is a LoRA adapter (GGUF); merge it (llama-export-lora)")
