"""What a GGUF header says of each field of its model, and the keys under which it states it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from weighbridge.core import Json
from weighbridge.model_config.model_keys import Fields, Stated, canonical, digits, field_keys
from weighbridge.quantities.checkpoints import CONFIG_FIELDS, FieldKind

GATINGS = {1: "softmax", 2: "sigmoid", 3: "softmax_weight", 4: "sqrtsoftplus"}  # llama.cpp's numbers
TOKENIZER_MODEL = "tokenizer.ggml.model"


def gguf_keys(architecture: str) -> dict[str, tuple[str, ...]]:
    """Return GGUF's keys of each field, the first that is there."""
    found = {}
    for name, keys in field_keys().items():
        whole = (key if key.startswith(("general.", "tokenizer.")) else f"{architecture}.{key}" for key in keys.gguf)
        found[name] = tuple(whole)
    if architecture == "nemotron":  # whose loader reads the other one
        found["norm_epsilon"] = found["norm_epsilon"][::-1]
    return {name: keys for name, keys in found.items() if keys}


def of_gguf(metadata: Mapping[str, Json], tensors: Collection[str]) -> dict[str, Stated]:
    """Read the fields that a GGUF file's metadata states, and what its tensors say of rope scaling."""
    found = {}
    for name, keys in gguf_keys(str(metadata.get("general.architecture"))).items():
        key = next((key for key in keys if metadata.get(key) is not None), None)
        if key is not None:
            found[name] = Stated(value=canonical(metadata[key], CONFIG_FIELDS[name]), read=key)
    for tensor, kind in (("rope_factors_long.weight", "longrope"), ("rope_freqs.weight", "table")):
        if tensor in tensors:
            found["rope_scaling"] = Stated(value=kind, read=f"the tensor {tensor}", basis="derived")
    if "sliding_layers" in found and not isinstance(metadata[found["sliding_layers"].read], list):
        del found["sliding_layers"]  # a period, whose phase is the loader's
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
        value = GATINGS.get(number, gating.value) if type(number) is int else number
        more["expert_gating"] = replace(gating, value=value)
    recurrent = found.get("attention_layers")
    if recurrent is not None and isinstance(flags := metadata[recurrent.read], list):
        more["attention_layers"] = replace(recurrent, value=digits(not flag for flag in flags))
    for name in ("head_count_kv", "feed_forward_length"):  # of the layers that have any
        stated = found.get(name)
        if stated is not None and isinstance(each := metadata[stated.read], list) and 0 in each and any(each):
            more[name] = replace(stated, value=canonical([count for count in each if count], FieldKind.COUNT))
            if name == "head_count_kv":
                more["attention_layers"] = Stated(value=digits(map(bool, each)), read=stated.read, basis="derived")
    blocks, nextn = (found.get(name) for name in ("block_count", "nextn_predict_layers"))
    if blocks and nextn and isinstance(blocks.value, int) and isinstance(nextn.value, int) and nextn.value:
        less = blocks.value - nextn.value
        more["block_count"] = replace(blocks, also=((less, f"{blocks.read} less {nextn.read}"),))
        for name in ("sliding_layers", "attention_layers"):
            if (one := more.get(name)) and isinstance(one.value, str) and len(one.value) == blocks.value:
                more[name] = replace(one, also=((one.value[:less], f"{one.read}, less them"),))
    return more
