"""dtype-preservation keeps its promise, beyond what its card shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.gates.runs import table

from weighbridge.cards.card_checks import examples
from weighbridge.cards.words import gate_card
from weighbridge.core.limits import read
from weighbridge.core.model import Outcome, TrialResult, Verdict
from weighbridge.gates.dtype_preservation import KIND
from weighbridge.gates.families import tensor_pairs
from weighbridge.judging.judging import falsify


def row(name: str, source: str, candidate: str, reproduced: Mapping[str, int] | None = None, **more: Any) -> Any:
    counts = {"value-cast": 6} | ({"identical": 6} if source == candidate else {})
    given = counts if reproduced is None else reproduced
    return {"name": name, "source_dtype": source, "candidate_dtype": candidate, "reproduced": given, **more}


def judged(rows: Sequence[Any], **limits: Any) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, limits))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E4M3", "I8"])
def test_a_narrowing_smuggled_into_the_lossless_table_is_noticed(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    monkeypatch.setattr(tensor_pairs, "LOSSLESS", {**tensor_pairs.LOSSLESS, "F32": ("F64", dtype)})
    example = next(one for one in examples(gate_card(KIND.name), KIND) if "kept or widened" in one.name)
    verdict = KIND.judge(example.evidence, example.limits)
    trials = falsify(KIND, example.evidence, example.limits, verdict)
    survived = [trial.name for trial in trials if trial.result is TrialResult.SURVIVED]
    assert (verdict.outcome, survived) == (Outcome.PASS, [f"narrowed to {dtype}"])


def test_explains_each_change_of_dtype_by_itself() -> None:
    bits = {"value-cast": 0, "bf16-bits-as-f16": 6, "relabelled": 6}
    verdict = judged([row("w", "BF16", "F16", bits), row("a", "F32", "F16")])
    explained = {one.place: (one.figures["mechanism"], one.figures["held"]) for one in verdict.offences}
    assert explained == {"a": ("value-cast", "values"), "w": ("bf16-bits-as-f16", "bits")}


def test_names_the_tensor_that_took_its_place() -> None:
    verdict = judged([row("a", "F32", "F32", {"identical": 0, "other-tensor": 6}, other="b")])
    assert verdict.offences[0].figures["other"] == "b"


def test_blocks_with_the_changes_that_could_not_be_compared() -> None:
    verdict = judged([row("a", "F32", "Q4_0", {})], allow=[{"from": "F32", "to": "Q4_0"}])
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "not-compared")
    assert verdict.figures == {"tensors": 1, "changes": ["F32 -> Q4_0"]}


def test_blocks_where_nothing_on_both_sides_has_elements() -> None:
    assert judged([row("a", "F32", "")], allow_missing=["*"]).code == "nothing-compared"
    empty = row("a", "F32", "F32", {"identical": 0}, elements=0)
    assert judged([empty, row("b", "F32", "")], allow_missing=["b"]).code == "nothing-compared"
