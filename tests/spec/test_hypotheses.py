from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence import drafts
from tests.ledgers import sealed

from weighbridge.ledger.sections import Amendment, Landing, Section
from weighbridge.spec.citations import Bundles
from weighbridge.spec.claims import CONDITION, contradicted, look
from weighbridge.spec.drafting import HEADS
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


@pytest.mark.parametrize("state", ["REFUTED", "ELIMINATED"])
@pytest.mark.parametrize(("figure", "deserved"), [("120", True), ("50", False)])
def test_what_would_refute_a_hypothesis_refutes_or_eliminates_it(state: str, figure: str, *, deserved: bool) -> None:
    opened = section("| H1 | fast | OPEN | |", "| H1 | time | < 100 ms | ≥ 100 ms |")
    mine = section(f"| H1 | fast | {state} | `{figure}` ms [ev:{'a' * 12}#/findings/0/measured] |", number=3)
    wrong = [what for what in told(mine, opened) if "by nothing that was measured" not in what]
    assert wrong == ([] if deserved else [f"H1 is {state} by {figure}; the experiment said ≥ 100 ms"])


@pytest.mark.parametrize(("began", "counts"), [("2025-12-31T00:00:00.000Z", False), ("2026-01-02T00:00:00.000Z", True)])
def test_a_run_that_began_before_the_experiment_was_written_decides_nothing(
    tmp_path: Path, began: str, *, counts: bool
) -> None:
    subjects = (drafts.bound("source"), replace(drafts.bound("import"), started=began))
    bundle = sealed(tmp_path, subjects=subjects)  # sealed in April, whenever its run began
    opened = section("| H1 | fast | OPEN | |", "| H1 | time | < 100 ms | ≥ 100 ms |")
    mine = section(f"| H1 | fast | CONFIRMED | `2` tensors [ev:{bundle.id[:12]}#/findings/0/counted] |", number=3)
    known = replace(KNOWN, bundles=Bundles(found={bundle.id[:12]: bundle}))
    late = [one for one in contradicted(mine, (opened,), known) if "by nothing that was measured after" in one.what]
    assert bool(late) is not counts


@pytest.mark.parametrize("words", ["It is slow. Why?", "Is it slow? It is.", "fast; and slow"])
def test_a_hypothesis_of_several_sentences_is_read_as_one(words: str) -> None:
    open_ = TABLES.format(f"| H1 | {words} | OPEN | |", "")
    (problem,) = look(open_, "x.md", KNOWN).problems
    assert (problem.code, problem.line, "no experiment says" in problem.what) == ("hypothesis", 3, True)
    planned = TABLES.format(f"| H1 | {words} | OPEN | |", "| H1 | time. Of what? | < 1 ms. Not more. | > 1 ms. |")
    assert look(planned, "x.md", replace(KNOWN, strict=True)).problems == ()
    (other,) = told(section("| H1 | fast. | OPEN | |", number=3), section(f"| H1 | {words} | OPEN | |"))
    assert other == f"H1 is another hypothesis in §1: {words}"


@pytest.mark.parametrize("condition", ["= 53", "< 100 ms", "≥ 0.9 of all"])
def test_a_value_and_its_unit_are_a_condition(condition: str) -> None:
    assert CONDITION.fullmatch(condition)


@given(st.text(alphabet="|=<> 19e_,.[ev:]`OPENH\n", max_size=60), st.text(alphabet="|=<> 19e_,.-\n", max_size=30))
def test_any_table_is_judged_without_breaking(row: str, experiment: str) -> None:
    told(section(row), section(row, experiment), section("| H1 | fast | OPEN | |", f"| H1 | time | {experiment} | x |"))
    mine = section(f"| H1 | fast | CONFIRMED | `{row}` [ev:{'a' * 12}#/findings/0/counted] |")
    assert all(re.match("H1 is ", what) for what in told(mine, section("| H1 | fast | OPEN | |", experiment)))
