"""config-agreement keeps its promise, clause by clause."""

from __future__ import annotations

import math
from typing import Any

import pytest

from weighbridge.gates.config_agreement import FIELDS, KIND, Limits, Meant, check
from weighbridge.limits import read
from weighbridge.model import Measurement, Outcome, Rows, Verdict
from weighbridge.model_config import model_fields
from weighbridge.verifiers import model_config


def field(name: str, source: Any, candidate: Any, **more: Any) -> dict[str, Any]:
    bases = ["" if value is None else "reported" for value in (source, candidate)]
    return {
        "name": name, "source": source, "candidate": candidate, "source_read": "a", "candidate_read": "b",
        "source_basis": bases[0], "candidate_basis": bases[1], "why": "", "also": [], "entries": None,
        "differing": None, "first_difference": None, **more,
    }  # fmt: skip


SHAPES = (field("block_count", 2, 2), field("embedding_length", 8, 8))


def judged(*rows: dict[str, Any], **limits: Any) -> Verdict:
    found = Measurement(quantity="model_config", value=Rows("name", rows), by="test", examined=1, total=1)
    return KIND.judge({"fields": found}, read(Limits, limits))


@pytest.mark.parametrize(
    ("row", "code"),
    [
        (field("rope_base", 500000.0, 10000.0), "differs"),
        (field("rope_base", 10000.0, math.nextafter(10000.0, math.inf)), "differs"),
        (field("norm_epsilon", math.nan, math.nan), "differs"),
        (field("rope_scaling", "none", "yarn"), "differs"),
        (field("tokens", "x", "y", entries=9, differing=1, first_difference={"index": 3}), "entries"),
        (field("pad_token_id", 0, None), "missing"),
        (field("add_bos_token", None, True), "extra"),
    ],
)
def test_a_field_that_does_not_agree_fails_with_its_code(row: dict[str, Any], code: str) -> None:
    verdict = judged(*SHAPES, row)
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, code, 2, 3)
    assert [offence.place for offence in verdict.offences] == [row["name"]]


def test_what_cannot_be_compared_is_told_and_does_not_count() -> None:
    verdict = judged(*SHAPES, field("activation", "silu", None, why="not said"), field("rope_base", None, None))
    assert (verdict.outcome, verdict.of, verdict.figures["not_compared"]) == (
        Outcome.PASS,
        2,
        ["activation (not said)"],
    )
    assert verdict.figures["unset_on_both"] == 1


@pytest.mark.parametrize(
    ("rows", "limits", "code"),
    [
        ((), {}, "not-compared"),
        ((), {"required": []}, "nothing-compared"),
        (SHAPES[:1], {}, "not-compared"),
        (SHAPES, {"required": ["rope_base"]}, "not-compared"),
        ((field("block_count", 2, 2, why="x"),), {"required": []}, "nothing-compared"),
        ((field("rope_base", None, None),), {"required": []}, "nothing-compared"),
        ((field("rope_base", 1.0, None),), {"required": [], "allow_missing": ["*"]}, "nothing-compared"),
        ((field("rope_base", 1.0, 2.0),), {"required": [], "may_differ": [{"field": "rope_base", "why": "x"}]},
         "nothing-compared"),
    ],
)  # fmt: skip
def test_nothing_compared_is_never_a_pass(rows: Any, limits: Any, code: str) -> None:
    verdict = judged(*rows, **limits)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, code)


def test_a_field_meant_to_differ_is_told_with_its_reason() -> None:
    meant = [{"field": "context_length", "why": "extended"}]
    verdict = judged(*SHAPES, field("context_length", 4096, 8192), may_differ=meant)
    assert (verdict.outcome, verdict.figures["meant"]) == (Outcome.PASS, ["context_length (extended)"])


def test_the_fields_of_judge_and_instrument_are_the_same() -> None:
    assert (*model_fields.FIELDS, *model_config.LISTS) == FIELDS


def test_a_name_that_is_no_field_is_found_when_the_contract_is_read() -> None:
    limits = Limits(required=("rope_bse", "block_count"), may_differ=(Meant(field="block_count", why="cut"),))
    assert check(limits, None) == [
        "'rope_bse' is no field of a configuration; did you mean 'rope_base'?",
        "'block_count' is required to agree and meant to differ",
    ]
    assert check(Limits(), None) == []
