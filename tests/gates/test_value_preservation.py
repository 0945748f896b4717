"""value-preservation keeps its promise, beyond what its card shows."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.quantised_conversions import FTYPES
from tests.gates.runs import table
from tests.rows import typed

from weighbridge.comparison import casts, nearest_codes
from weighbridge.core.limits import LimitsError, read, schema
from weighbridge.core.model import Outcome, TrialResult, Verdict
from weighbridge.gates.families.block_types import (
    BLOCK,
    BOUND,
    LOST_SHARE,
    MIXTURES,
    NOT_NEAREST,
    RECIPES,
    REQUANTISED,
    SIGNED,
    TYPICAL_ERROR,
    recipe,
    types_of,
)
from weighbridge.gates.families.policies import POLICIES
from weighbridge.gates.value_preservation import KIND, RANK, Class, class_of
from weighbridge.judging.judging import falsify


def row(name: str, source: str, candidate: str, reproduced: Mapping[str, int] | None = None, **more: Any) -> Any:
    shape: Sequence[int] = more.pop("shape", (2, 256))
    elements = math.prod(shape)
    counts = {"value-cast": elements} | ({"identical": elements} if source == candidate else {})
    return {
        "name": name,
        "source_dtype": source,
        "candidate_dtype": candidate,
        "source_shape": shape,
        "candidate_shape": shape,
        "elements": elements,
        "reproduced": counts if reproduced is None else reproduced,
        **more,
    }


def requantised(name: str, candidate: str, source: str = "F32") -> Any:
    return row(name, source, candidate, {"requantised": 512})


def bounded(name: str, candidate: str, error: float | None = None, lost: float | None = 0.0, **more: Any) -> Any:
    rmse = BOUND[candidate] if error is None else error
    counts = more.pop("reproduced", {})
    figures = {"relative_rmse": rmse, "lost_share": lost, "max_error": 0.5, "not_nearest": 0, **more}
    return row(name, "F32", candidate, counts, **figures)


def judged(rows: Sequence[Any], policy: str, **limits: Any) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, {"policy": policy, **limits}))


TIED = row("lm_head.weight", "F32", "", {}, identical_to="model.embed_tokens.weight")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (row("a", "F32", "F32"), Class.BYTES_EQUAL),
        (row("a", "BF16", "F32"), Class.VALUE_EQUAL),
        (row("a", "F32", "F32", {"value-cast": 512}, transform="+1"), Class.VALUE_EQUAL),
        (row("a", "F32", "F16"), Class.ROUNDED_EXACT),
        (row("a", "F32", "F32", {"value-cast": 500}, transform="-exp", max_ulps=1), Class.VALUE_EQUAL),
        (row("a", "F32", "F16", {"value-cast": 500}, transform="-exp", max_ulps=1), Class.ROUNDED_EXACT),
        (row("a", "F32", "F32", {"value-cast": 500}, transform="-exp", max_ulps=2), Class.DIFFERENT),
        (requantised("a", "Q8_0"), Class.REQUANT_EXACT),
        (bounded("a", "Q4_K"), Class.NEAREST_CODES),
        (bounded("a", "Q4_K", not_nearest=1), Class.NEAREST_CODES),
        (bounded("a", "Q4_K", not_nearest=2), Class.DIFFERENT),
        (bounded("a", "Q4_K", not_nearest=None), Class.DIFFERENT),
        (bounded("a", "IQ3_S"), Class.WITHIN_BOUND),  # by the signs of its values alone
        (bounded("a", "IQ3_S", not_nearest=1), Class.DIFFERENT),
        (bounded("a", "IQ1_S", not_nearest=None), Class.WITHIN_BOUND),
        (bounded("a", "Q4_K", math.nextafter(BOUND["Q4_K"], 1)), Class.DIFFERENT),
        (bounded("a", "Q4_K", lost=math.nextafter(LOST_SHARE, 1)), Class.DIFFERENT),
        (bounded("a", "Q4_K", lost=1.1e-9), Class.DIFFERENT),  # one block of 2^20 that is not like its values
        (
            row("a", "F32", "TQ2_0", {"requantised-through-f16": 512}, relative_rmse=0.8, lost_share=0.1),
            Class.WITHIN_BOUND,
        ),
        (
            row("a", "F32", "TQ2_0", {"requantised-through-f16": 511}, relative_rmse=0.8, lost_share=0.1),
            Class.DIFFERENT,
        ),
        (row("a", "F32", "F32", {"identical": 0}, same_values=True), Class.LAYOUT_ONLY),
        (row("a", "F32", "F32", {"identical": 511}, same_values=False), Class.DIFFERENT),
        (row("a", "F32", "F32", candidate_shape=(256, 2)), Class.DIFFERENT),
        (row("a", "F32", "", {}), Class.MISSING),
        (row("a", "", "F32", {}), Class.EXTRA),
        (TIED, Class.DROPPED),
        (row("a.bias", "F32", "", {}, nonzero=False), Class.MISSING),
        (row("a.bias", "F32", "", {}, nonzero=False, drop_rule="a rule"), Class.DROPPED),
        (row("a.weight", "F32", "", {}, nonzero=False), Class.MISSING),
        (row("a", "", "F32", {}, identical_to="b"), Class.GENERATED),
        (row("a", "F64", "I8", {}, compared=False), None),
    ],
)
def test_each_class_follows_from_the_counts(found: Any, expected: Class | None) -> None:
    assert class_of(typed("tensor_values", found)) is expected


def test_the_lattice_is_ordered_best_first() -> None:
    lattice = "BYTES_EQUAL VALUE_EQUAL ROUNDED_EXACT REQUANT_EXACT NEAREST_CODES MERGED WITHIN_BOUND LAYOUT_ONLY"
    assert sorted(RANK, key=RANK.__getitem__)[:8] == lattice.split()


@pytest.mark.parametrize(
    ("policy", "found", "code"),
    [
        ("lossless", row("a", "F32", "F16"), "dtype"),
        ("same", row("a", "BF16", "F32"), "dtype"),
        ("rounded:F16", row("a", "F32", "BF16"), "dtype"),
        ("requant:Q8_0", row("a", "F32", "F16"), "dtype"),
        ("requant:Q8_0", requantised("a", "Q4_0"), "dtype"),
        ("requant:Q8_0", bounded("a", "Q8_0", 0.001), "content"),
        ("requant:Q8_0", bounded("a", "Q8_0", 0.001, reproduced={"requantised-through-f16": 512}), "content"),
        ("quantised:Q8_0", bounded("a", "Q8_0", 0.001), "content"),
        ("quantised:Q6_K", bounded("a", "Q5_K"), "dtype"),
        ("quantised:Q6_K", bounded("a", "Q6_K", 0.0268), "bound"),
        ("quantised:Q6_K", bounded("a", "Q6_K", not_nearest=8), "codes"),
        ("quantised:Q6_K", bounded("a", "Q6_K", 0.0268, not_nearest=8), "bound"),
        ("lossless", row("a", "F32", "F32", {"identical": 511}), "content"),
    ],
)
def test_a_policy_refuses_what_it_does_not_mean(policy: str, found: Any, code: str) -> None:
    verdict = judged([found, row("n", "F32", "F32")], policy)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, code)


@pytest.mark.parametrize("policy", ["", "rounded", "rounded:F32", "requant:Q4_K", "quantised:Q9", "same "])
def test_an_unknown_policy_is_refused(policy: str) -> None:
    with pytest.raises(LimitsError):
        read(KIND.limits, {"policy": policy})


@pytest.mark.parametrize(
    ("written", "policy"),
    [("Lossless", "lossless"), ("ROUNDED:f16", "rounded:F16"), ("Quantised:q4_k_m", "quantised:Q4_K_M")],
)
def test_a_policy_is_read_in_any_letter_case_and_kept_in_one(written: str, policy: str) -> None:
    assert read(KIND.limits, {"policy": written}).policy == policy


@pytest.mark.parametrize(
    ("written", "policy"),
    [
        ("bf16", "rounded:BF16"),
        ("rounded:bfloat16", "rounded:BF16"),
        ("fp16", "rounded:F16"),
        ("roundd:F16", "rounded:F16"),
        ("q8_0", "requant:Q8_0"),
        ("quantized:Q4-K-M", "quantised:Q4_K_M"),
    ],
)
def test_a_policy_in_other_words_is_refused_with_the_one_that_it_means(written: str, policy: str) -> None:
    with pytest.raises(LimitsError, match=rf"{re.escape(repr(written))} is .*; did you mean '{re.escape(policy)}'"):
        read(KIND.limits, {"policy": written})


@pytest.mark.parametrize(
    ("written", "printed"),
    [
        (
            "packed+rounded:F61",
            "'rounded:F61' (part 2 of 'packed+rounded:F61') is no rounded:TYPE; TYPE is one of BF16, F16, F8_E4M3 "
            "F8_E5M2; did you mean 'packed+rounded:F16'?",
        ),
        ("at-most:quantised:Q4_M", "Q3_K Q3_K_L Q3_K_M Q3_K_S, Q4_0 Q4_1 Q4_K Q4_K_M Q4_K_S, Q5_0 "),
        ("at-most:quantised:Q4_M", "did you mean 'at-most:quantised:Q4_K_M'?"),
        ("rounded:F16+rounded:BF16", "rounded:F16 and rounded:BF16 both say the rounding; one part a class"),
        ("requant:Q8_0+quantised:Q8_0", "both say the blocks; one part a class"),
        ("packed+same", "'packed+same': same stands alone"),
        ("at-most:lossless", "'at-most:lossless': lossless stands alone"),
        ("packed+" * 9 + "packed", "10 parts; one part a class"),
        ("packed+", "'' (part 2 of 'packed+') is not same, lossless, packed, "),
        ("gptq", "did you mean 'packed'?"),
    ],
)
def test_a_wrong_part_is_reported_with_its_place_what_may_stand_there_and_what_is_near(
    written: str, printed: str
) -> None:
    with pytest.raises(LimitsError) as raised:
        read(KIND.limits, {"policy": written})
    assert printed in str(raised.value)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("rounded:f16+PACKED", "packed+rounded:F16"),
        ("At-Most:Quantised:q4_k_m+rounded:f16", "at-most:rounded:F16+quantised:Q4_K_M"),
        ("rounded:f8_e4m3", "rounded:F8_E4M3"),
    ],
)
def test_parts_are_joined_in_one_order_and_the_schema_takes_what_is_kept(written: str, kept: str) -> None:
    assert read(KIND.limits, {"policy": written}).policy == kept
    assert re.fullmatch(schema(KIND.limits)["properties"]["policy"]["pattern"], kept)


@pytest.mark.parametrize("policy", [one for one in POLICIES if ":" in one])
def test_a_file_that_nobody_converted_is_no_result_of_any_conversion_and_below_every_ceiling(policy: str) -> None:
    """The word of a policy stood for a ceiling, so that a BF16 file passed for a quantised one."""
    kept = "F32" if policy == "rounded:BF16" else "BF16"
    rows = [row("blk.0.attn_q.weight", kept, kept), row("blk.0.ffn_up_exps.weight", kept, kept, shape=(4, 2, 256))]
    verdict = judged(rows, policy)
    assert (verdict.outcome, {one.code for one in verdict.offences}) == (Outcome.FAIL, {"unmade"})
    assert judged(rows, f"at-most:{policy}").outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("mixture", "name", "columns", "types"),
    [
        ("Q4_K_M", "blk.0.attn_q.weight", 256, "Q4_K"),
        ("Q4_K_M", "blk.9.attn_v.weight", 256, "Q4_K Q5_K Q6_K Q8_0"),
        ("Q4_K_M", "blk.9.ffn_down_exps.weight", 256, "Q4_K Q5_K Q6_K"),
        ("Q4_K_M", "blk.9.ffn_down.weight", 96, "Q5_0 Q5_1 Q8_0"),
        ("Q4_K_M", "blk.9.ffn_down.weight", 100, "F16"),
        ("Q4_K_M", "output.weight", 256, "Q6_K Q8_0"),
        ("Q4_K_M", "token_embd.weight", 256, "Q4_K Q6_K Q8_0"),
        ("Q4_K", "blk.0.attn_v.weight", 256, "Q4_K Q5_K Q6_K Q8_0"),
        ("Q8_0", "output.weight", 256, "Q8_0"),
        ("Q4_0", "token_embd.weight", 256, "Q4_0 Q6_K Q8_0"),
        ("Q2_K", "blk.0.attn_output.weight", 256, "Q2_K Q3_K Q5_K"),
        ("Q2_K", "blk.0.attn_q.weight", 96, "Q4_0 IQ4_NL"),
        ("IQ2_M", "token_embd.weight", 256, "IQ2_S IQ3_S Q5_K Q8_0"),
        ("IQ3_XXS", "blk.0.attn_k.weight", 256, "IQ3_XXS IQ2_S Q8_0"),
        ("IQ1_S", "blk.0.attn_v.weight", 256, "IQ1_S Q2_K Q4_K"),
        ("TQ2_0", "output.weight", 256, "Q6_K Q8_0 F16"),
        ("MXFP4_MOE", "output.weight", 256, "Q8_0"),
    ],
)
def test_a_recipe_makes_the_types_that_the_quantiser_makes(mixture: str, name: str, columns: int, types: str) -> None:
    assert " ".join(types_of(mixture, name, columns)) == types


def test_every_mixture_has_a_recipe_whose_types_are_none_less_precise_than_it_may_be() -> None:
    for mixture, least in MIXTURES.items():
        made = [dtype for kind in ("attn_v", "attn_k", "attn_q", "attn_output", "ffn_up", "ffn_gate", "ffn_down", "x")
                for dtype in types_of(mixture, f"blk.0.{kind}.weight", 256)]  # fmt: skip
        assert all(TYPICAL_ERROR[dtype] <= TYPICAL_ERROR[least] for dtype in made), mixture
    assert {recipe(name).number for name in FTYPES} == set(FTYPES.values())


def test_a_contract_must_name_its_policy() -> None:
    with pytest.raises(LimitsError, match="missing key 'policy'"):
        read(KIND.limits, {})


def test_judge_and_instrument_mean_the_same_block_types() -> None:
    assert REQUANTISED == casts.REQUANTISED
    assert set(NOT_NEAREST) == {*nearest_codes.CODES, *nearest_codes.SIGNED}
    assert set(SIGNED) == set(nearest_codes.SIGNED)
    assert set(BLOCK) == set(TYPICAL_ERROR) == set(casts.BLOCKS) - set(casts.UNREAD)
    assert set(MIXTURES.values()) <= set(TYPICAL_ERROR)


def test_an_offender_of_its_own_kind_keeps_its_own_mechanism() -> None:
    broken = {"value-cast": 0, "bf16-bits-as-f16": 0}
    rows = [row("a", "BF16", "F16", {**broken, "bf16-bits-as-f16": 512}), row("b", "BF16", "F16", broken)]
    assert [offence.figures["mechanism"] for offence in judged(rows, "lossless").offences] == [
        "bf16-bits-as-f16",
        "different content",
    ]


def test_a_rounding_that_is_allowed_by_name_stands_beside_a_mixture_too() -> None:
    """A rule for F16 was not read where a policy has rules of its own for it."""
    allow = [{"tensors": "v", "from": "F32", "to": "F16"}]
    rows = [row("v", "F32", "F16"), bounded("a", "Q4_K")]
    assert judged(rows, "quantised:Q4_K").code == "dtype"
    assert judged(rows, "quantised:Q4_K", allow=allow).outcome is Outcome.PASS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "allow", "found"),
    [
        ("at-most:requant:Q8_0", [], row("scalar", "F32", "F16", shape=())),
        ("lossless", [{"from": "F32", "to": "Q8_0"}], row("a", "F32", "F32")),
    ],
)
def test_no_trial_breaks_what_the_policy_means(policy: str, allow: list[Any], found: Any) -> None:
    limits = read(KIND.limits, {"policy": policy, "allow": allow})
    evidence = table([row("first", "F32", "F32"), found])
    verdict = KIND.judge(evidence, limits)
    trials = list(falsify(KIND, evidence, limits, verdict))
    assert (verdict.outcome, [trial for trial in trials if trial.result is TrialResult.SURVIVED]) == (Outcome.PASS, [])


def test_every_type_that_the_quantiser_made_of_a_family_is_of_the_mixture_s_recipe() -> None:
    """The page lists the types of each mixture over the families that were quantised."""
    page = (Path(__file__).parents[2] / "spec" / "conversions.md").read_text().partition("\n## Quantised\n")[2]
    listed = dict(re.findall(r"^\| (\w+) (?:\| [^|]+ ){3}\| ([^|]+) \|$", page, re.MULTILINE))
    assert {*RECIPES} - {"NVFP4"} <= {*listed}
    kinds = [
        f"blk.0.{kind}.weight" for kind in ("attn_v", "attn_k", "attn_q", "attn_output", "ffn_gate", "ffn_down", "x")
    ]
    for mixture in {*RECIPES} & {*listed}:
        names = ("output.weight", "token_embd.weight", *kinds)
        made = {dtype for name in names for row in (256, 96, 100) for dtype in types_of(mixture, name, row)}
        assert set(listed[mixture].split(", ")) <= made | {"F32", "F16"}, mixture
