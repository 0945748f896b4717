"""config-agreement keeps its promise, where its card cannot show it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tests.rows import typed

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, Verdict
from weighbridge.gates.config_agreement import KIND, Limits, Meant, check


def field(name: str, source: Any, candidate: Any, **more: Any) -> dict[str, Any]:
    bases = ["" if value is None else "reported" for value in (source, candidate)]
    row = {"name": name, "source": source, "candidate": candidate, **more}
    return {**row, "source_basis": bases[0], "candidate_basis": bases[1]}


SHAPES = (field("block_count", 2, 2), field("embedding_length", 8, 8))


def judged(*rows: dict[str, Any], **limits: Any) -> Verdict:
    value = Rows("name", tuple(typed("model_config", row) for row in rows))
    found = Measurement(quantity="model_config", value=value, by="test", examined=1, total=1)
    return KIND.judge({"fields": found}, read(Limits, limits))


@pytest.mark.parametrize(
    "values", [(10000.0, math.nextafter(10000.0, math.inf)), (math.nan, math.nan), ("none", "yarn")]
)
def test_values_agree_only_where_they_are_the_same(values: tuple[Any, Any]) -> None:
    verdict = judged(*SHAPES, field("rope_base", *values))
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, "differs", 2, 3)


def test_a_field_that_one_side_alone_states_counts_among_those_compared() -> None:
    verdict = judged(*SHAPES, field("pad_token_id", 0, None), field("add_bos_token", None, True))
    assert ([one.code for one in verdict.offences], verdict.counted, verdict.of) == (["missing", "extra"], 2, 4)


@pytest.mark.parametrize(
    ("rows", "limits", "code"),
    [
        ((), {}, "not-compared"),
        ((), {"required": []}, "nothing-compared"),
        (SHAPES[:1], {}, "not-compared"),
        ((field("rope_base", 1.0, None),), {"required": [], "allow_missing": ["*"]}, "nothing-compared"),
        (
            (field("rope_base", 1.0, 2.0),),
            {"required": [], "may_differ": [{"field": "rope_base", "why": "x"}]},
            "nothing-compared",
        ),
    ],
)
def test_nothing_compared_is_never_a_pass(rows: Any, limits: Any, code: str) -> None:
    verdict = judged(*rows, **limits)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, code)


def test_a_name_that_is_no_field_is_found_when_the_contract_is_read() -> None:
    limits = Limits(required=("rope_bse", "block_count"), may_differ=(Meant(field="block_count", why="cut"),))
    assert check(limits, None) == [
        "'rope_bse' is no field of a configuration; did you mean 'rope_base'?",
        "'block_count' is required to agree and meant to differ",
    ]
    assert check(Limits(), None) == []
