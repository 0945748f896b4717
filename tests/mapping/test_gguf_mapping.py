"""Known transforms are undone before comparing, and what was done instead is named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.damages import permuted
from tests.cases import each
from tests.comparison.conversions import (
    CONFIG,
    EXPERTS,
    HALF,
    HEADS,
    KV,
    WIDTH,
    converted,
    decoder,
    directory,
    gguf_file,
    weighed,
)

from weighbridge.comparison import value_errors
from weighbridge.core.model import Measurement, Outcome
from weighbridge.evaluation.runner import lay_canary
from weighbridge.gates import KINDS
from weighbridge.gates.value_preservation import class_of
from weighbridge.mapping.gguf_mapping import Sides, plan
from weighbridge.mapping.mapping_plan import Shape
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

Q, K, GATE, UP = (f"blk.1.{name}.weight" for name in ("attn_q", "attn_k", "ffn_gate", "ffn_up"))
STACK = "blk.0.ffn_gate_exps.weight"
NORM, EXPERT = "blk.1.attn_norm.weight", "blk.1.ffn_up_exps.weight"


@each("architecture", ["llama", "qwen2", "gemma"])
@each(
    "dtype, policy",
    [("F32", "lossless"), ("F16", "rounded:F16"), ("BF16", "rounded:BF16"), ("Q8_0", "requant:Q8_0")],
)
def test_a_conversion_is_what_was_meant(tmp_path: Path, architecture: str, dtype: str, policy: str) -> None:
    source = decoder()
    if architecture == "gemma":
        source["lm_head.weight"] = source["model.embed_tokens.weight"]
    arrays = converted(source, architecture)
    if architecture == "gemma":
        del arrays["output.weight"]
    gguf_file(tmp_path / "m.gguf", arrays, architecture, {"*": dtype})
    rows, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf", policy)
    assert verdict.offences == ()
    assert verdict.outcome == "PASS"
    if policy == "lossless":  # every kind of two checkpoints has one mapping, and one mind about what may go
        _, verdict = weighed(tmp_path / "hf", tmp_path / "m.gguf", kind=KINDS["dtype-preservation"])
        assert (verdict.outcome, verdict.offences) == ("PASS", ())
    if architecture == "llama":
        assert rows[K].transform == f"rope permutation of {KV} heads"
    if architecture == "gemma":
        assert (rows[NORM].transform, str(class_of(rows[NORM]))) == ("+1", "VALUE_EQUAL")
        assert str(class_of(rows["lm_head.weight"])) == "DROPPED"


def test_experts_are_stacked_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    source = decoder(experts=True)
    assert EXPERTS == 4
    gguf_file(tmp_path / "m.gguf", converted(source, "llama"), "llama", {"*": "Q8_0"})
    rows, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf", "requant:Q8_0")
    assert verdict.outcome == "PASS"
    assert (rows[EXPERT].transform, rows[EXPERT].reproduced) == (
        "4 experts stacked",
        {"requantised": 4 * 96 * 64},
    )


def test_ten_experts_and_more_are_stacked_by_number() -> None:
    names = {place: f"model.layers.0.block_sparse_moe.experts.{place}.w1.weight" for place in range(12)}
    shapes = dict.fromkeys(sorted(names.values()), (2, 2))
    found = plan(Sides(architecture="llama", config=CONFIG, source=shapes, candidate={STACK: (12, 2, 2)}))
    assert found is not None
    assert [part.source for part in found.pairings[STACK].parts] == [names[place] for place in range(12)]


def test_biases_of_queries_and_keys_are_permuted_with_their_weights(tmp_path: Path) -> None:
    source, attention = decoder(), "model.layers.1.self_attn"
    biases = {f"{one}_proj.bias": np.arange(heads * 16, dtype=np.float32) for one, heads in (("q", HEADS), ("k", KV))}
    source |= {f"{attention}.{name}": values for name, values in biases.items()}
    hf, arrays = directory(tmp_path / "hf", source), converted(source, "llama")
    rows, verdict = weighed(hf, gguf_file(tmp_path / "m.gguf", arrays, "llama"))
    assert (verdict.outcome, rows["blk.1.attn_k.bias"].transform) == (Outcome.PASS, f"rope permutation of {KV} heads")
    arrays["blk.1.attn_k.bias"] = biases["k_proj.bias"]
    _, verdict = weighed(hf, gguf_file(tmp_path / "n.gguf", arrays, "llama"))
    assert [(one.place, one.figures["mechanism"]) for one in verdict.offences] == [
        ("blk.1.attn_k.bias", "permutation-missing")
    ]


def test_a_missing_plus_one_is_named(tmp_path: Path) -> None:
    source = decoder()
    arrays = converted(source, "gemma")
    arrays[NORM] = source["model.layers.1.input_layernorm.weight"]
    source["lm_head.weight"] = source["model.embed_tokens.weight"]
    del arrays["output.weight"]
    gguf_file(tmp_path / "m.gguf", arrays, "gemma")
    _, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf")
    assert {offence.place: offence.figures["mechanism"] for offence in verdict.offences} == {NORM: "plus-one-missing"}


def test_an_untied_head_that_the_converter_dropped_is_missing(tmp_path: Path) -> None:
    source = decoder()
    arrays = converted(source, "gemma")
    del arrays["output.weight"]
    gguf_file(tmp_path / "m.gguf", arrays, "gemma")
    _, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf")
    assert [(offence.place, offence.code) for offence in verdict.offences] == [("lm_head.weight", "missing")]


@pytest.mark.parametrize(
    ("shape", "code"), [((1, 1, 8, 8), ""), ((1,), ""), ((8,), "missing"), ((1, 2, 8, 8), "missing")]
)
def test_a_mask_may_go_and_a_bias_that_is_named_like_one_may_not(tmp_path: Path, shape: Shape, code: str) -> None:
    source = decoder()
    gguf_file(tmp_path / "m.gguf", converted(source, "qwen2"), "qwen2")
    source["model.layers.0.attn.bias"] = np.ones(shape, np.float32)
    rows, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf")
    assert [offence.code for offence in verdict.offences] == [code] * bool(code)
    assert bool(rows["model.layers.0.attn.bias"].drop_rule) is not bool(code)


@pytest.mark.parametrize(("kept", "refused"), [(36, False), (35, True)])
def test_an_embedding_may_lose_its_padding_and_no_more(tmp_path: Path, kept: int, refused: bool) -> None:
    source = decoder()
    source["model.embed_tokens.weight"] = np.random.default_rng(5).standard_normal((100, WIDTH)).astype(np.float32)
    source["lm_head.weight"] = source["model.embed_tokens.weight"]
    arrays = converted(source, "gemma3")
    del arrays["output.weight"]
    arrays["token_embd.weight"] = arrays["token_embd.weight"][:kept]
    gguf_file(tmp_path / "m.gguf", arrays, "gemma3")
    _, verdict = weighed(directory(tmp_path / "hf", source), tmp_path / "m.gguf")
    assert ("token_embd.weight" in {offence.place for offence in verdict.offences}) is refused


def test_head_counts_are_the_sources_never_the_imports(tmp_path: Path) -> None:
    source = decoder()
    gguf_file(tmp_path / "m.gguf", converted(source, "llama"), "llama")
    lying = {**CONFIG, "num_key_value_heads": HEADS}
    _, verdict = weighed(directory(tmp_path / "hf", source, lying), tmp_path / "m.gguf")
    assert {offence.place for offence in verdict.offences} == {"blk.0.attn_k.weight", "blk.1.attn_k.weight"}


LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 64}


def test_a_generated_table_is_compared_with_the_configuration(tmp_path: Path) -> None:
    source = decoder()
    config = {**CONFIG, "head_dim": 16, "rope_parameters": LLAMA3}
    arrays = converted(source, "llama")
    # By the definition in the paper's code: short waves stay, long ones are stretched, a ramp lies between.
    factors = []
    for at in range(0, 16, 2):
        wave = 2 * np.pi * 5e5 ** (at / 16)
        smooth = (64 / wave - 1) / 3
        factors.append(1.0 if wave < 16 else 8.0 if wave > 64 else 1 / ((1 - smooth) / 8 + smooth))
    arrays["rope_freqs.weight"] = np.array(factors, np.float32)
    hf = directory(tmp_path / "hf", source, config)
    rows, verdict = weighed(hf, gguf_file(tmp_path / "m.gguf", arrays, "llama"))
    assert verdict.outcome == "PASS"
    assert str(class_of(rows["rope_freqs.weight"])) == "GENERATED"
    assert weighed(hf, tmp_path / "m.gguf", kind=KINDS["dtype-preservation"])[1].outcome == "PASS"
    good = arrays["rope_freqs.weight"]
    for wrong in (np.where(good == good[-1], np.float32(np.nan), good), good[:-1], np.append(good, good[-1])):
        made = gguf_file(tmp_path / "o.gguf", {**arrays, "rope_freqs.weight": wrong}, "llama")
        for kind in (KINDS["value-preservation"], KINDS["dtype-preservation"]):
            assert [(one.place, one.code) for one in weighed(hf, made, kind=kind)[1].offences] == [
                ("rope_freqs.weight", "extra")
            ]
    arrays["rope_freqs.weight"] = arrays["rope_freqs.weight"] * np.float32(1.00001)
    rows, verdict = weighed(hf, gguf_file(tmp_path / "n.gguf", arrays, "llama"))
    assert [(offence.place, offence.code) for offence in verdict.offences] == [("rope_freqs.weight", "extra")]


@pytest.mark.parametrize("length", ["long", "short"])
def test_factors_that_a_configuration_lists_are_compared_with_it(tmp_path: Path, length: str) -> None:
    source, factors = decoder(), np.linspace(1, 9, HALF)
    printed = {"rope_type": "longrope", f"{length}_factor": factors.tolist()}
    hf = directory(tmp_path / "hf", source, {**CONFIG, "rope_scaling": printed})
    for factor, outcome in ((1.0, Outcome.PASS), (1.01, Outcome.FAIL)):
        table = {f"rope_factors_{length}.weight": (factor * factors).astype(np.float32)}
        made = gguf_file(tmp_path / "m.gguf", {**converted(source, "llama"), **table}, "llama")
        assert weighed(hf, made)[1].outcome is outcome


def test_a_table_that_is_not_compared_with_its_configuration_is_a_blind_instrument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = decoder()
    printed = {"rope_type": "longrope", "short_factor": [2.0] * HALF}
    hf = directory(tmp_path / "hf", source, {**CONFIG, "rope_scaling": printed})
    arrays = {**converted(source, "llama"), "rope_factors_short.weight": np.full(HALF, 2, np.float32)}
    views = open_checkpoint(hf), open_checkpoint(gguf_file(tmp_path / "m.gguf", arrays, "llama"))
    measured = VERIFIER.measure(views, {})
    assert isinstance(measured, Measurement)
    assert lay_canary(VERIFIER, views, {}, measured).seen
    monkeypatch.setattr(value_errors, "from_table", lambda *_given: 0.0)
    assert not lay_canary(VERIFIER, views, {}, measured).seen


@pytest.mark.parametrize("said", [1, 2, HEADS, 16])
def test_a_permutation_is_undone_with_the_source_s_head_counts_whatever_the_import_says(
    tmp_path: Path, said: int
) -> None:
    source = decoder()
    hf = directory(tmp_path / "hf", source)
    right = gguf_file(tmp_path / "right.gguf", converted(source, "llama"), "llama", heads=(said, said))
    rows, verdict = weighed(hf, right)
    assert (verdict.outcome, rows[Q].transform) == (Outcome.PASS, f"rope permutation of {HEADS} heads")
    wrong = converted(source, "llama")
    wrong[Q] = permuted(source["model.layers.1.self_attn.q_proj.weight"], 2)
    _, verdict = weighed(hf, gguf_file(tmp_path / "wrong.gguf", wrong, "llama", heads=(2, KV)))
    assert [(one.place, one.figures["mechanism"]) for one in verdict.offences] == [(Q, "wrong-head-count")]
