"""dtype-preservation keeps its promise."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.gates.mutation import table, unnoticed
from tests.gates.runs import passing

from weighbridge.clauses.mechanisms import MECHANISMS
from weighbridge.gates import dtype_preservation
from weighbridge.gates.dtype_preservation import KIND
from weighbridge.limits import read
from weighbridge.model import Outcome, Verdict


def row(name: str, source: str, candidate: str, reproduced: Mapping[str, int] | None = None, **more: Any) -> Any:
    shape: Sequence[int] = more.pop("shape", [2, 3])
    elements = math.prod(shape)
    counts = {"value-cast": elements} | ({"identical": elements} if source == candidate else {})
    return {
        "name": name, "source_dtype": source, "candidate_dtype": candidate, "source_shape": shape,
        "candidate_shape": shape, "elements": elements, "nonzero": True, "source_bytes": 0, "candidate_bytes": 0,
        "differing_bytes": None, "first_difference": None, "other": None,
        "reproduced": counts if reproduced is None else reproduced, **more,
    }  # fmt: skip


def judged(rows: Sequence[Any], **limits: Any) -> Verdict:
    return KIND.judge(table(rows), read(KIND.limits, limits))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F8_E4M3", "I8"])
def test_a_narrowing_smuggled_into_the_lossless_table_is_noticed(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    weakened = {**dtype_preservation.LOSSLESS, "F32": ("F64", dtype)}
    monkeypatch.setattr(dtype_preservation, "LOSSLESS", weakened)
    passes = passing("dtype-preservation")
    assert unnoticed(KIND, [passes["the same tensors pass"]])  # the table is idle under this policy
    assert not unnoticed(KIND, [passes["dtypes of every width, each kept or widened exactly, pass"]])


def relabelled(name: str, **more: Any) -> Any:
    counts = {"identical": 6, "value-cast": 0, "bf16-bits-as-f16": 6, "relabelled": 6, "truncated": 0}
    return row(name, "BF16", "F16", counts, **more)


def test_names_the_simplest_mechanism_that_explains_every_element() -> None:
    verdict = judged([relabelled("w"), row("a", "F32", "F32")])
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, "label", 1, 2)
    figures = verdict.offences[0].figures
    assert (figures["mechanism"], figures["explained"], figures["elements"]) == ("bf16-bits-as-f16", 6, 6)


def test_names_no_mechanism_that_leaves_one_element_of_one_offender_unexplained() -> None:
    almost = relabelled("x") | {"reproduced": {"bf16-bits-as-f16": 5, "relabelled": 5, "value-cast": 0}}
    verdict = judged([relabelled("w"), almost])
    assert [offence.figures["mechanism"] for offence in verdict.offences] == ["different content"] * 2
    assert [offence.figures["explained"] for offence in verdict.offences] == [0, 0]


def test_explains_each_change_of_dtype_by_itself() -> None:
    verdict = judged([relabelled("w"), row("a", "F32", "F16")])
    assert {o.place: o.figures["mechanism"] for o in verdict.offences} == {
        "a": "value-cast",
        "w": "bf16-bits-as-f16",
    }


def test_names_no_mechanism_from_zeros_alone() -> None:
    zeros = relabelled("z", nonzero=False) | {"reproduced": dict.fromkeys(MECHANISMS, 0) | {"bf16-bits-as-f16": 6}}
    assert judged([zeros]).offences[0].figures["mechanism"] == "different content"
    both = judged([zeros, relabelled("w")])
    assert [offence.figures["mechanism"] for offence in both.offences] == ["bf16-bits-as-f16"] * 2


def test_different_weights_under_a_wrong_label_are_different_content() -> None:
    counts = dict.fromkeys(("identical", "value-cast", "bf16-bits-as-f16", "relabelled", "truncated"), 0)
    verdict = judged([row("model.norm.weight", "BF16", "F16", counts)])
    assert verdict.offences[0].figures["mechanism"] == "different content"


def test_names_the_tensor_that_took_its_place() -> None:
    verdict = judged([row("a", "F32", "F32", {"identical": 0, "other-tensor": 6}, other="b")])
    assert verdict.offences[0].figures["other"] == "b"


def test_blocks_where_content_cannot_be_compared() -> None:
    verdict = judged([row("a", "F32", "Q4_0", {})], allow=[{"from": "F32", "to": "Q4_0"}])
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "not-compared")
    assert verdict.figures == {"tensors": 1, "changes": ["F32 -> Q4_0"]}


def test_blocks_where_nothing_was_compared() -> None:
    assert judged([]).code == "nothing-compared"
    assert judged([row("a", "F32", "")], allow_missing=["*"]).code == "nothing-compared"
    assert judged([row("a", "F32", "F32", shape=[0])]).code == "nothing-compared"


def test_renamed_so_that_nothing_matches_fails() -> None:
    verdict = judged([row("a", "F32", ""), row("b", "", "F32")])
    assert [offence.code for offence in verdict.offences] == ["missing", "extra"]
