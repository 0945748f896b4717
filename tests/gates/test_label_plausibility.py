"""label-plausibility keeps its promise, clause by clause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from weighbridge.gates.label_plausibility import KIND
from weighbridge.limits import read
from weighbridge.model import Measurement, Outcome, Rows, Verdict


def words(name: str, dtype: str = "BF16", label: float = 0.01, other: float = 3.0, **more: Any) -> dict[str, Any]:
    rival = {"BF16": "F16", "F16": "BF16", "F32": "F16"}[dtype]
    reading = "BF16" if dtype == "F32" else dtype
    swapped = more.pop("swapped", 9.0)
    told = {"negative": 500, "symbols": 20} | more.pop("stored", {})
    return {
        "name": name, "dtype": dtype, "elements": 1000, "zeros": 0, "or_word": "0xffff", "trailing_zero_bits": 0,
        "mantissa_bits": {"BF16": 7, "F16": 10, "F32": 23}[dtype], "sampled": 1000, "nonzero": 1000,
        "as_stored": {**told, "excess": {reading: label, rival: other}},
        "byte_swapped": {"negative": 500, "symbols": 250, "excess": {reading: swapped, rival: 4.0}},
        "half_divergence": 0.9, "half_entropy": 6.0, **more,
    }  # fmt: skip


def unread(name: str, dtype: str = "Q4_0") -> dict[str, Any]:
    nothing = dict.fromkeys(("zeros", "or_word", "trailing_zero_bits", "mantissa_bits", "as_stored", "byte_swapped"))
    return {"name": name, "dtype": dtype, "elements": 64, "sampled": 0, "nonzero": 0, "half_divergence": None,
            "half_entropy": None, **nothing}  # fmt: skip


def norm(name: str, dtype: str = "BF16") -> dict[str, Any]:
    return words(name, dtype, stored={"negative": 0})


def table(rows: Sequence[Mapping[str, Any]]) -> dict[str, Measurement]:
    kept = tuple(dict(row) for row in rows)
    value = Rows("name", kept)
    return {"bits": Measurement(quantity="tensor_bits", value=value, by="test", examined=len(kept), total=len(kept))}


def judged(*rows: Mapping[str, Any], **limits: Any) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, limits))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (words("w", "F16", label=1.3, other=0.01), "mislabelled"),
        (words("w", "BF16", label=12.5, other=0.01), "mislabelled"),
        (words("w", "F16", label=9.0, other=9.0, swapped=0.01), "byte-swapped"),
        (words("w", "F32", label=9.0, other=4.0, swapped=0.01), "byte-swapped"),
        (words("w", "F16", label=0.3, other=6.0, half_divergence=0.001), "pairs"),
        (words("w", "F16", label=9.0, other=9.0), "implausible"),
    ],
)
def test_what_is_decided_against_its_label_fails_with_its_code(row: dict[str, Any], code: str) -> None:
    verdict = judged(words("a", elements=10), row)
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, code, 1, 2)
    assert [offence.place for offence in verdict.offences] == ["w"]
    assert verdict.figures["vote"] == code


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (norm("w"), "of one sign, as norms are"),
        (words("w", nonzero=255), "too few elements"),
        (words("w", stored={"symbols": 5}), "too few magnitudes"),
        (words("w", label=0.6), "like weights under neither reading, or under both"),
        (unread("w"), "not a dtype of this test"),
        (unread("w", "F16"), "all zeros"),
    ],
)
def test_what_cannot_be_decided_is_told_and_never_a_pass_of_its_own(row: dict[str, Any], why: str) -> None:
    alone, beside = judged(row), judged(words("a"), row)
    assert (alone.outcome, alone.code, alone.figures["why"]) == (Outcome.BLOCKED, "nothing-decided", {why: 1})
    assert (beside.outcome, beside.looked, beside.figures["undecided"]) == (Outcome.PASS, ("a",), 1)


def test_noise_is_implausible_and_no_pairs() -> None:
    verdict = judged(words("w", "F16", label=3.9, other=8.9, half_divergence=0.002, half_entropy=7.998))
    assert verdict.code == "implausible"


def test_a_few_implausible_tensors_are_told_and_no_failure() -> None:
    verdict = judged(words("a"), words("rope", label=9.0, other=9.0, elements=900))
    assert (verdict.outcome, verdict.figures["vote"], verdict.counted) == (Outcome.PASS, "ok", 2)


def test_effective_precision_is_told_and_held_where_the_contract_holds_it() -> None:
    row = words("w", "F32", trailing_zero_bits=16)
    assert judged(row).figures["precision"] == {"F32 with 7 of 23 bits": 1}
    verdict = judged(row, trailing_zero_bits_at_most={"F32": 15})
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "unused-bits")


def test_limits_that_contradict_each_other_are_told() -> None:
    limits = read(KIND.limits, {"fits_below_bits": 2.0})
    expected = ["fits_below_bits, fits_not_above_bits and implausible_above_bits must rise in this order"]
    assert KIND.check(limits, None) == expected
    assert KIND.check(read(KIND.limits, {}), None) == []
