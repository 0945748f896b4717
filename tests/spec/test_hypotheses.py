from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.spec.amendments import Amendment, Landing, Section
from weighbridge.spec.citations import Bundles
from weighbridge.spec.hypotheses import CONDITION, HEADS, contradicted
from weighbridge.spec.reading import Known

KNOWN = Known(bundles=Bundles(), stood={})
LANDED = Landing(at="2026-01-01T00:00:00.000Z", raises="minor", previous="", heads={}, discharges=())
ABOUT = Amendment(id="A-20260101-a", title="A", author="Ada", kind="record", landed=LANDED)
TABLES = "\n\n".join(f"| {' | '.join(head)} |\n|---|---|---|---|\n{{}}" for head in HEADS)


def section(hypothesis: str, experiment: str = "", number: int = 1) -> Section:
    body = TABLES.format(hypothesis, experiment)
    path = Path(f"{number:04d}-a-{'0' * 12}.md")
    return Section(path=path, about=ABOUT, body=body, digest="", text=f"---\n{body}")


def told(mine: Section, *earlier: Section) -> list[str]:
    return [problem.what for problem in contradicted(mine, earlier, KNOWN)]


@pytest.mark.parametrize(
    ("condition", "figure", "deserved"),
    [
        ("= 53 tensors", "53", True), ("= 53 tensors", "52", False), ("≥ 0.9", "0.9", True), (">= 0.9", "0.89", False),
        ("< 100 ms", "1,000", False), ("≤ 1e-5", "0.00001", True), ("> 1e9999", "5", False), ("<= 1_000", "999", True),
        ("faster than before", "5", True), ("between 1 and 2", "5", True),
    ],
)  # fmt: skip
def test_the_value_that_an_experiment_named_decides_its_hypothesis(
    condition: str, figure: str, *, deserved: bool
) -> None:
    opened = section("| H1 | fast | OPEN | |", f"| H1 | time | {condition} | x |")
    turned = replace(opened, body=opened.body.replace("OPEN", "CONFIRMED"), about=replace(ABOUT, id="A-20260101-b"))
    mine = section(f"| H1 | fast | CONFIRMED | `{figure}` tensors [ev:{'a' * 12}#/findings/0/counted] |", number=3)
    wrong = [what for what in told(mine, opened, turned) if "by nothing that was measured" not in what]
    assert wrong == ([] if deserved else [f"H1 is CONFIRMED by {figure}; the experiment said {condition}"])


@pytest.mark.parametrize("condition", ["= 53", "< 100 ms", "≥ 0.9 of all"])
def test_a_value_and_its_unit_are_a_condition(condition: str) -> None:
    assert CONDITION.fullmatch(condition)


@given(st.text(alphabet="|=<> 19e_,.[ev:]`OPENH\n", max_size=60), st.text(alphabet="|=<> 19e_,.-\n", max_size=30))
def test_any_table_is_held_without_breaking(row: str, experiment: str) -> None:
    told(section(row), section(row, experiment), section("| H1 | fast | OPEN | |", f"| H1 | time | {experiment} | x |"))
    mine = section(f"| H1 | fast | CONFIRMED | `{row}` [ev:{'a' * 12}#/findings/0/counted] |")
    assert all(re.match("H1 is ", what) for what in told(mine, section("| H1 | fast | OPEN | |", experiment)))
