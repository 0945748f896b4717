"""Every damage that is done to real conversions is refused in hand-built ones too, with the right mechanism."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from benchmarks.damages import DAMAGES, OF_CONVERTERS, QKV, Damage, each, thirds
from benchmarks.stored_tensors import Stored, read, write
from tests.comparison.conversions import CONFIG, KV, Arrays, converted, decoder, directory, gguf_file, weighed
from tests.comparison.fused import FUSED
from tests.formats.quantised import QUANTISED, VALUES
from tests.rows import typed

from weighbridge.gates.families.block_types import BOUND
from weighbridge.gates.families.tensor_pairs import MECHANISMS, UNEXPLAINED, explained

KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
FALCON = {"num_kv_heads": KV, "new_decoder_architecture": True}
FUSED_HERE = Damage(
    name="k before q, of a source that has them apart", change=each(thirds([1, 0, 2]), QKV), place=QKV,
    right="parts-swapped", model="qwen3",
)  # fmt: skip
TRIED = [*(damage for damage in (*DAMAGES, *OF_CONVERTERS) if damage.model != "llama3-rope"), FUSED_HERE]


def built(model: str, kind: Any) -> tuple[str, Arrays, Arrays]:
    """Give the architecture, the source's tensors, rounded to its dtype, and those of the conversion."""
    if model in FUSED:
        source, candidate = FUSED[model]()
        return model, source, candidate
    architecture = "llama" if model == "mixtral" else model
    source = {
        name: values.astype(kind).astype(np.float32) for name, values in decoder(experts=model == "mixtral").items()
    }
    if model == "gemma":
        source["lm_head.weight"] = source["model.embed_tokens.weight"]
    if model == "qwen2":
        source["model.layers.1.self_attn.q_proj.bias"] = np.arange(64, dtype=np.float32)
    arrays = converted(source, architecture)
    if model == "gemma":
        del arrays["output.weight"]
    return architecture, source, arrays


def made(folder: Path, damage: Damage) -> tuple[Path, Path, Mapping[str, Any]]:
    """Write the source and the conversion that a damage is done to, and give all their values."""
    kind = KINDS[damage.source]
    architecture, source, arrays = built(damage.model, kind)
    config = {**CONFIG, **(FALCON if damage.model == "falcon" else {})}
    hf = directory(folder / "hf", {name: values.astype(kind) for name, values in source.items()}, config)
    gguf_file(folder / "as meant.gguf", arrays, architecture, {"*": damage.outtype.upper()})
    return hf, folder / "as meant.gguf", arrays | source


@pytest.mark.parametrize("damage", TRIED, ids=lambda damage: damage.name)
def test_a_damage_is_refused_and_its_mechanism_named(tmp_path: Path, damage: Damage) -> None:
    source, candidate, known = made(tmp_path, damage)
    head, tensors = read(candidate)
    damage.change(tensors, known) if damage.known else damage.change(tensors)
    _, verdict = weighed(source, write(tmp_path / "m.gguf", head, tensors), damage.policy)
    (offence,) = [offence for offence in verdict.offences if offence.place == damage.place]
    if offence.code in ("missing", "extra"):
        assert offence.code == damage.right
    else:
        assert offence.figures["mechanism"] == damage.right
        assert damage.right in (UNEXPLAINED, *MECHANISMS)


MEANT = {"f32": "lossless", "f16": "rounded:F16", "bf16": "rounded:BF16", "q8_0": "requant:Q8_0"}
TWINS = {(damage.model, damage.source, damage.outtype): damage for damage in TRIED}


@pytest.mark.parametrize("damage", TWINS.values(), ids=map("-".join, TWINS))
def test_the_undamaged_twin_is_what_was_meant(tmp_path: Path, damage: Damage) -> None:
    source, candidate, _ = made(tmp_path, damage)
    _, verdict = weighed(source, write(tmp_path / "m.gguf", *read(candidate)), MEANT[damage.outtype])
    assert verdict.offences == ()
    assert verdict.outcome == "PASS"


# Named of tensors without a mapping, and tested there: another quantiser's blocks, a bare relabelling, exchanged sides;
# of a merge with an adapter, of packed weights, and of rows that were added.
ELSEWHERE = {
    "requantised", "relabelled", "swapped", "adapter-not-merged", "adapter-merged-twice", "adapter-scaled",
    "packing-keys", "padded-vocabulary",
}  # fmt: skip


def test_every_mechanism_is_the_right_one_of_some_damage() -> None:
    assert set(MECHANISMS) - ELSEWHERE == {damage.right for damage in TRIED} - {UNEXPLAINED, "missing", "extra"}


@pytest.mark.parametrize(
    ("wrong", "policy", "named"),
    [
        (1, "quantised:Q4_K_M", ["layer-before"]),
        (3, "quantised:Q4_K_M", [UNEXPLAINED]),
        (1, "quantised:Q6_K", ["quantised", "layer-before"]),
    ],
)
def test_blocks_without_an_exact_way_are_tried_under_other_makings_too(
    tmp_path: Path, wrong: int, policy: str, named: list[str]
) -> None:
    values = {at: np.roll(VALUES, 7 * at, 1) for at in range(4)}
    source = {f"model.layers.{at}.mlp.up_proj.weight": x for at, x in values.items()}
    hf = directory(tmp_path / "hf", source, {**CONFIG, "num_hidden_layers": 4})
    names = ("blk.0.ffn_up.weight", f"blk.{wrong}.ffn_up.weight")
    head, _ = read(gguf_file(tmp_path / "f32.gguf", {names[0]: VALUES}, "llama"))
    blocks = Stored("Q4_K", (2, 256), QUANTISED)
    rows, verdict = weighed(hf, write(tmp_path / "m.gguf", head, dict.fromkeys(names, blocks)), policy)
    assert [offence.figures["mechanism"] for offence in verdict.offences if offence.place in names] == named
    assert rows[names[0]].errors_otherwise == {}  # nothing is read again where every block is like its values


@pytest.mark.parametrize(("error", "named"), [(BOUND["Q4_K"], 512), (math.nextafter(BOUND["Q4_K"], 1), None)])
def test_another_making_explains_blocks_within_the_bound_of_their_type(error: float, named: int | None) -> None:
    printed = {
        "elements": 512,
        "candidate_dtype": "Q4_K",
        "reproduced": {},
        "errors_otherwise": {"layer-before": error},
    }
    row = typed("tensor_values", {"name": "a", **printed})
    assert explained(row, "layer-before") == named
    assert explained(row, "layer-after") is None
