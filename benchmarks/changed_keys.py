"""Change every key of a configuration, one at a time, and tell what a comparison says of each.

Of each family a tiny model is saved by transformers and converted by llama.cpp's own converter, which is not ours and
not shipped (see `benchmarks/conversions.py`). Then each key of config.json is changed and held against the directory
as it was and against the GGUF file, and each key of the GGUF header against the file as it was and the directory:

    python -m benchmarks.changed_keys --converter …/vendor/llama.cpp --work /tmp/keys [--only llama]

Prints a line a family and pair, and every key whose change nobody would see. There must be none.
"""

from __future__ import annotations

import argparse
import json
import shutil
import struct
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.conversions import COMMON, ROTARY, VOCABULARY, convert, models, save

from weighbridge.clauses.harmless_keys import harmless
from weighbridge.formats.gguf_file import ARRAY, SCALARS, STRING, LongValues
from weighbridge.gates.config_agreement import KIND, Limits
from weighbridge.model import Measurement
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.checkpoints import ConfigField
from weighbridge.verifiers.model_config import VERIFIER
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

NOTICED, HARMLESS, NOT_COMPARED, SILENT = "noticed", "harmless", "not compared", "SILENT"
WAYS = (NOTICED, HARMLESS, NOT_COMPARED, SILENT)
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32,
        "beta_fast": 32.0, "beta_slow": 1.0, "attention_factor": 1.1}  # fmt: skip
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True}
SCALES = {"logits_scaling": 4.0, "embedding_multiplier": 3.0, "residual_multiplier": 0.5, "attention_multiplier": 0.2}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1, "moe_intermediate_size": 32,
          "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5}  # fmt: skip
LATENT = {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
STATES = {"layer_types": ["mamba", "attention"], "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16,
          "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 64}  # fmt: skip
ROUNDED = {"intermediate_size": 97, "block_multiple_of": 32}  # one more is another width, after rounding
WINDOW = {"sliding_window": 16, "head_dim": 16}
MORE: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "yarn": ("Qwen2ForCausalLM", {**ROTARY, "rope_parameters": YARN}, "bpe"),
    "qwen3-moe": ("Qwen3MoeForCausalLM", {**ROTARY, **EXPERTS, "head_dim": 32}, "bpe"),
    "granite": ("GraniteForCausalLM", {**ROTARY, **SCALES}, "bpe"),
    "cohere2": ("Cohere2ForCausalLM", {**ROTARY, **WINDOW, "logit_scale": 0.25, "rotary_pct": 1.0}, "bpe"),
    "olmo": ("OlmoForCausalLM", {**ROTARY, "clip_qkv": 8.0}, "bpe"),
    "starcoder2": ("Starcoder2ForCausalLM", {**ROTARY, "sliding_window": None}, "bpe"),
    "roberta": ("RobertaModel", {**COMMON, "max_position_embeddings": 130, "pad_token_id": 1}, "bpe"),
    "lfm2": ("Lfm2ForCausalLM", {**ROTARY, **ROUNDED, "layer_types": ["conv", "full_attention"]}, "bpe"),
    "dots1": ("Dots1ForCausalLM", {**ROTARY, **ROUTED, "head_dim": 16}, "bpe"),
    "deepseek-v3": ("DeepseekV3ForCausalLM", {**ROTARY, **ROUTED, **LATENT, "num_key_value_heads": 4}, "bpe"),
    "granite-hybrid": ("GraniteMoeHybridForCausalLM", {**ROTARY, **SCALES, **STATES}, "bpe"),
    "gpt-oss": ("GptOssForCausalLM", {**ROTARY, **WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}, "bpe"),
}


def main() -> None:
    """Make the pairs that are not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--converter", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--only", action="append", default=[])
    given = parser.parse_args()
    families = {**models(VOCABULARY), **MORE}
    print(f"{'family':12} {'changed, held against':32} " + " ".join(f"{way:>12}" for way in WAYS))
    silent = 0
    for name in given.only or families:
        kind, config, words = families[name]
        folder = given.work / name
        if not (folder / "model.safetensors").exists():
            folder.mkdir(parents=True, exist_ok=True)
            save(kind, {"vocab_size": VOCABULARY, **config}, words, "float32", folder, seed=1)
        problem = convert(given.converter, folder, ["f32"])
        if problem:
            print(f"{name:12} not converted: {problem}")
            continue
        silent += table(name, folder)
    raise SystemExit(silent > 0)


def table(name: str, folder: Path) -> int:
    """Print the lines of one family; return how many changes nobody would see."""
    silent = 0
    for told, of, against in pairs(folder):
        source = open_checkpoint(against)
        before = told_of(source, open_checkpoint(folder if of is configs else folder / "f32.gguf"))
        found = {key: way(told_of(source, changed), before, key) for key, changed in of(folder)}
        counts = Counter(found.values())
        print(f"{name:12} {told:32} " + " ".join(f"{counts[one]:12}" for one in WAYS))
        if before.offences:
            print(f"{'':12} differs as converted: {', '.join(sorted(place for place, *_ in before.offences))}")
        unseen = [key for key, one in found.items() if one == SILENT]
        silent += len(unseen)
        if unseen:
            print(f"{'':12} {SILENT}: {', '.join(unseen)}")
    return silent


def pairs(folder: Path) -> Iterator[tuple[str, Any, Path]]:
    """Yield what is changed, by what, and what it is held against."""
    yield "config.json, config.json", configs, folder
    yield "config.json, header", configs, folder / "f32.gguf"
    yield "header, header", headers, folder / "f32.gguf"
    yield "header, config.json", headers, folder


def configs(folder: Path) -> Iterator[tuple[str, CheckpointView]]:
    """Yield each key of config.json, and the directory with that key changed."""
    whole = json.loads((folder / "config.json").read_text())
    beside = folder.with_name(f"{folder.name}-changed")
    shutil.copytree(folder, beside, ignore=shutil.ignore_patterns("*.gguf", "*-changed"), dirs_exist_ok=True)
    for path in list(leaves(whole, ())):
        copy = json.loads(json.dumps(whole))
        inner = copy
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other(inner[path[-1]])
        (beside / "config.json").write_text(json.dumps(copy))
        yield "config.json:" + ".".join(path), open_checkpoint(beside)


def leaves(value: Mapping[str, Any], before: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each value; an object is no value, and null says nothing that could be changed."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from leaves(inner, (*before, key))
        elif inner is not None:
            yield (*before, key)


def other(value: Any) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return f"{value}x"
    if isinstance(value, dict):
        return {**value, "x": 1}
    if isinstance(value, list):
        return [*value[:-1], other(value[-1])] if value else ["x"]
    return value + 1 if isinstance(value, int) else value * 1.5 + 0.25


def headers(folder: Path) -> Iterator[tuple[str, CheckpointView]]:
    """Yield each key of the header, and the file with that key's value changed in its bytes."""
    path, beside = folder / "f32.gguf", folder.with_name(f"{folder.name}-changed.gguf")
    view = open_checkpoint(path)
    places = LongValues(next(iter(view.files.values()))).places
    for key, at in places.items():
        if key in ("general.architecture", "general.alignment"):
            continue  # another reader's affair: nothing else of the header is found then
        data = bytearray(path.read_bytes())
        change(data, at)
        beside.write_bytes(data)
        yield key, open_checkpoint(beside)


def change(data: bytearray, at: int) -> None:
    """Change the value whose type stands at `at`: its first entry, or its last letter."""
    (kind,) = struct.unpack_from("<I", data, at)
    at += 4
    if kind == ARRAY:
        kind, _ = struct.unpack_from("<IQ", data, at)
        at += 12
    if kind == STRING:
        (length,) = struct.unpack_from("<Q", data, at)
        data[at + 8 + length - 1] ^= 1
    else:
        form = f"<{SCALARS[kind]}"
        (value,) = struct.unpack_from(form, data, at)
        struct.pack_into(form, data, at, other(value))


def way(told: Told, before: Told, key: str) -> str:
    """Return how a comparison tells that a key was changed: by its verdict, or by a row that says why it does not."""
    if told.offences != before.offences:
        return NOTICED
    name = key.replace(":", " ", 1)
    rows = [row for row in told.rows if name in (row.source_read, row.candidate_read, *read_also(row))]
    if any(harmless(row.name) for row in rows):
        return HARMLESS
    return NOT_COMPARED if any(row.why or row.also for row in rows) else SILENT


def read_also(row: ConfigField) -> list[str]:
    """Return where else a side says a field."""
    return [said.rpartition(" (")[2].removesuffix(")") for said in row.also]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a comparison comes to: its rows, and what it objects to."""

    rows: tuple[ConfigField, ...]
    offences: frozenset[tuple[str, str, str, str]]


def told_of(source: CheckpointView, candidate: CheckpointView) -> Told:
    """Compare two configurations."""
    found = VERIFIER.measure((source, candidate), {})
    if not isinstance(found, Measurement):  # two views of one directory: nothing differs
        return Told(rows=(), offences=frozenset())
    verdict = KIND.judge({"fields": found}, Limits(required=()))
    objected = (
        (one.place, one.code, str(one.figures.get("source")), str(one.figures.get("candidate")))
        for one in verdict.offences
    )
    return Told(rows=rows_of(found, ConfigField), offences=frozenset(objected))


if __name__ == "__main__":
    main()
