"""Sentences of gates against a ledger: one table of lies and one of truths and plain English."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cases import each
from tests.ledgers import NOW, sealed
from tests.spec.sentences import (
    FALSE,
    MADE_UP,
    NO_FIGURES,
    NO_SUCCESS,
    NOT_OF_ITS_GATE,
    NOT_OF_OTHERS,
    OF_ITS_GATE,
    OF_OTHERS,
    SUCCESS,
    TRUE,
)

from weighbridge.ledger.fold import (
    ACTIVE,
    DISCHARGED,
    DRAFT,
    PARTIAL,
    REGRESSED,
    RETIRED,
    LedgerPlace,
    Standing,
)
from weighbridge.spec.citations import Bundles
from weighbridge.spec.claims import look
from weighbridge.spec.drafting import TABLES, WRITTEN, AuthorNotes, draft
from weighbridge.spec.reading import Known, Looked
from weighbridge.spec.tally import Stood

STATUSES = {
    "GATE-A": (DRAFT, PARTIAL),
    "GATE-B": (DRAFT, ACTIVE),
    "GATE-C": (DRAFT, ACTIVE, DISCHARGED, REGRESSED),
    "GATE-D": (DRAFT, ACTIVE, DISCHARGED),
    "GATE-E": (DRAFT, RETIRED),
    "GATE-GPUTRAIN-001": (DRAFT,),
    "GATE-GPUTRAIN-002": (DRAFT, ACTIVE, DISCHARGED),
    "GATE-IMPORT-001": (DRAFT, ACTIVE),
}
STOOD = {
    LedgerPlace(contract="c", gate=gate, instance="default"): Stood(
        standing=Standing(status=past[-1]), past=frozenset(past)
    )
    for gate, past in STATUSES.items()
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> tuple[Known, dict[str, str]]:
    folder = tmp_path_factory.mktemp("bundles")
    found = {"GOOD": sealed(folder), "BAD": sealed(folder, bad=True, hours=1)}
    bundles = Bundles(found={bundle.id[:12]: bundle for bundle in found.values()})
    return Known(bundles=bundles, stood=STOOD), {name: bundle.id[:12] for name, bundle in found.items()}


def looked(text: str, known: tuple[Known, dict[str, str]]) -> Looked:
    for name, id_ in known[1].items():
        text = text.replace(f"[ev:{name}", f"[ev:{id_}")
    return look(text, "x.md", known[0])


@each("sentence", FALSE)
def test_a_sentence_that_the_ledger_does_not_bear_out_is_a_problem(
    workplace: Path, known: tuple[Known, dict[str, str]], sentence: str
) -> None:
    assert [one for one in looked(f"{sentence}\n", known).problems if not one.warning], sentence
    beside = looked(f"So 1 + 1 = 2.\n\n{sentence}\n\nGATE-D is DISCHARGED.\n", known)
    assert [one for one in beside.problems if not one.warning], sentence


@pytest.mark.parametrize("none", ["No gate", "Not one gate", "None of the gates"])
def test_that_no_gate_has_a_status_is_true_where_none_has(
    known: tuple[Known, dict[str, str]], none: str, workplace: Path
) -> None:
    stood = {place: one for place, one in STOOD.items() if one.standing.status in (ACTIVE, DISCHARGED)}
    without = replace(known[0], stood=stood)
    assert [str(one) for one in look(f"{none} has regressed.\n\n{none} is RETIRED.\n", "x.md", without).problems] == []
    assert len(look(f"{none} is discharged.\n", "x.md", without).problems) == 1


def test_what_tells_why_is_a_command_for_that_very_gate(workplace: Path, known: tuple[Known, dict[str, str]]) -> None:
    (problem,) = looked("GATE-D is RETIRED.\n", known).problems
    assert problem.remedy == "see: weighbridge status why GATE-D"


@each("sentence", TRUE)
def test_a_true_sentence_and_plain_english_are_no_problem(
    workplace: Path, known: tuple[Known, dict[str, str]], sentence: str
) -> None:
    assert [str(one) for one in looked(f"{sentence}\n", known).problems] == []


def test_the_table_is_as_large_as_what_it_stands_for() -> None:
    assert len(set(FALSE)) >= 110
    assert len(set(TRUE)) >= 60


# --- The author's own prose in a section ------------------------------------------------------------------------------

FIGURES = "### Figures\n\n- counted: `2` [ev:GOOD#/findings/0/counted]\n- of: `2` [ev:GOOD#/findings/0/of]\n"


def wrong_in_section(
    claim: str, known: tuple[Known, dict[str, str]], head: str = "### Claim", figures: str = FIGURES
) -> list[tuple[int, str]]:
    text = f"## Title\n\n{head}\n\nFirst.\n{claim}\n\n{figures}"
    strict = replace(known[0], strict=True), known[1]
    return [(one.line, one.code) for one in looked(text, strict).problems if not one.warning]


@each(
    "claim",
    [
        "23 of 22 tensors were kept.",
        "It kept 23 tensors.",
        "It kept 3 of 2 tensors.",
        "It kept 2 of 3 tensors.",
        "It kept 2 tensors in 7 files.",
        "The error was 0.5 at most.",
        "The median is 264.74 ms.",
    ],
)
@each("head", ["### Claim", "### What we claim", "### Notes", "#### More", "## Results", "# Results"])
def test_a_number_that_is_neither_cited_nor_a_figure_is_a_problem_at_its_own_line(
    known: tuple[Known, dict[str, str]], claim: str, head: str
) -> None:
    assert wrong_in_section(claim, known, head) == [(6, "uncited")]


@each("claim", ["```\nppl 3.71\n```", "~~~text\nppl 3.71\n~~~"])
@each("frozen", [False, True])
def test_a_number_in_a_fence_is_one_of_the_author_until_it_landed(
    known: tuple[Known, dict[str, str]], claim: str, frozen: bool
) -> None:
    draft = replace(known[0], frozen=frozen, gates=("GATE-B",)), known[1]
    assert wrong_in_section(claim, draft) == ([] if frozen else [(7, "uncited")])
    assert wrong_in_section(claim, draft, head="### Command") == []


@each(
    "claim, codes",
    [
        ("It is DISCHARGED and the gate came to FAIL.", ["status-mismatch"]),
        ("The gate FAILED, it is BLOCKED.", ["status-mismatch"]),
        ("It is ACTIVE_WITH_LIVE_EVIDENCE.", []),
        ("A run may FAIL later.", []),
        ("It failed once in our hands.", []),
    ],
)
def test_a_status_in_capitals_without_an_id_is_that_of_the_gates_of_the_draft(
    known: tuple[Known, dict[str, str]], claim: str, codes: list[str]
) -> None:
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    assert [code for _, code in wrong_in_section(claim, draft)] == codes
    assert wrong_in_section(claim, known) == []


@each("claim", OF_ITS_GATE)
def test_what_a_draft_says_of_its_own_gate_without_an_id_is_held_until_it_landed(
    known: tuple[Known, dict[str, str]], claim: str
) -> None:
    draft = replace(known[0], gates=("GATE-B",))
    assert wrong_in_section(claim, (draft, known[1])) == [(6, "status-mismatch")]
    assert wrong_in_section(claim, (replace(draft, frozen=True), known[1])) == []


@each("claim", NOT_OF_ITS_GATE)
def test_what_is_true_of_a_gate_or_is_not_said_of_it_is_no_problem(
    known: tuple[Known, dict[str, str]], claim: str
) -> None:
    assert wrong_in_section(claim, (replace(known[0], gates=("GATE-B",)), known[1])) == []


@each("claim", SUCCESS)
@each("gate", ["GATE-GPUTRAIN-001", "GATE-C"])
def test_no_word_says_success_of_a_draft_s_own_gate_that_could_not_look_or_failed(
    known: tuple[Known, dict[str, str]], claim: str, gate: str
) -> None:
    draft = replace(known[0], gates=(gate,)), known[1]
    said = claim.replace("GATE-GPUTRAIN-001", gate)
    assert {code for _, code in wrong_in_section(said, draft)} == {"status-mismatch"}


@each("claim", NO_SUCCESS)
def test_a_draft_may_say_that_its_gate_could_not_look(known: tuple[Known, dict[str, str]], claim: str) -> None:
    assert wrong_in_section(claim, (replace(known[0], gates=("GATE-GPUTRAIN-001",)), known[1])) == []


@each("claim, true", [*((one, False) for one in OF_OTHERS), *((one, True) for one in NOT_OF_OTHERS)])
def test_a_draft_speaks_of_the_other_gates_and_of_its_whole_contract_as_the_ledger_does(
    known: tuple[Known, dict[str, str]], claim: str, true: bool
) -> None:
    stood = {place: one for place, one in STOOD.items() if place.gate in ("GATE-B", "GATE-D")}
    draft = replace(known[0], gates=("GATE-D",), stood=stood), known[1]
    assert (wrong_in_section(claim, draft) == []) is true


SIZED = FIGURES + "- size: `12` [ev:GOOD/statement.json#/predicate/subjects/0/size] bytes\n- trials: 20 of 20 caught\n"


@each("claim", MADE_UP)
def test_a_made_up_figure_is_a_problem_in_backticks_in_words_and_as_a_multiple(
    known: tuple[Known, dict[str, str]], claim: str
) -> None:
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    assert set(wrong_in_section(claim, draft, figures=SIZED)) == {(6, "uncited")}


@each(
    "claim, landed",
    [("The error is ½.", []), ("The loss is 2.", []), ("20 pass.", []), ("It took 5.68 ms.", [(6, "uncited")])],
)
def test_a_landed_section_is_held_to_the_rules_of_numbers_that_it_landed_under(
    known: tuple[Known, dict[str, str]], claim: str, landed: list[tuple[int, str]]
) -> None:
    draft = replace(known[0], gates=("GATE-B",))
    assert wrong_in_section(claim, (draft, known[1])) == [(6, "uncited")]
    assert wrong_in_section(claim, (replace(draft, frozen=True), known[1])) == landed


@each("claim", NO_FIGURES)
def test_a_name_and_a_figure_are_no_problem_in_backticks(known: tuple[Known, dict[str, str]], claim: str) -> None:
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    assert wrong_in_section(claim, draft, figures=SIZED) == []


@each(
    "said, wrong",
    [("20 of 21", False), ("`20 of 21`", False), ("21 of 21", True), ("20 of 20", True), ("2 of 21", True)],
)
def test_a_count_and_a_whole_are_those_of_one_finding(
    known: tuple[Known, dict[str, str]], said: str, wrong: bool
) -> None:
    row = "- `{}` [ev:GOOD#/findings/{}/counted] of `{}` [ev:GOOD#/findings/{}/of]\n"
    figures = "### Figures\n\n" + row.format(20, 0, 21, 0) + row.format(2, 1, 2, 1)
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    assert ((6, "uncited") in wrong_in_section(f"It kept {said} tensors.", draft, figures=figures)) is wrong


@each(
    "said, wrong",
    [
        ("16 of 21 tensors are not what was meant.", False),
        ("16 tensors are broken.", False),
        ("16 of 21 tensors are what was meant.", True),
        ("16 of 21 tensors are not broken.", True),
        ("16 tensors are fine.", True),
        ("5 of 21 tensors are what was meant.", False),
        ("15 of 21 tensors are not what was meant.", True),
    ],
)
def test_those_that_did_not_pass_are_what_the_count_leaves_of_its_whole(
    known: tuple[Known, dict[str, str]], said: str, wrong: bool
) -> None:
    figures = "### Figures\n\n- `5` [ev:GOOD#/findings/0/counted] of `21` [ev:GOOD#/findings/0/of]\n"
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    assert ((6, "uncited") in wrong_in_section(said, draft, figures=figures)) is wrong


def test_the_whole_of_a_cited_count_is_that_of_its_finding(known: tuple[Known, dict[str, str]]) -> None:
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    cited = "[ev:GOOD#/findings/0/counted]"
    assert wrong_in_section(f"2 of 2 tensors agree {cited}.", draft, figures="") == []
    assert wrong_in_section(f"3 of 2 tensors agree {cited}.", draft, figures="") == [(6, "uncited")]


def test_a_figure_of_elements_is_no_count_of_tensors(known: tuple[Known, dict[str, str]]) -> None:
    draft = replace(known[0], gates=("GATE-B",)), known[1]
    figures = "### Figures\n\n- elements: `115008` [ev:GOOD#/findings/0/figures/elements]\n"
    assert (6, "uncited") in wrong_in_section("115008 tensors are equal.", draft, figures=figures)
    assert (6, "uncited") not in wrong_in_section("115008 elements are equal.", draft, figures=figures)


def test_a_size_in_another_unit_is_told_as_it_was_measured(known: tuple[Known, dict[str, str]]) -> None:
    size = "[ev:GOOD/statement.json#/predicate/subjects/0/size]"
    told = {one.code: one for one in looked(f"The file has 0.01 kB {size}.\n", known).problems}
    assert told["number-mismatch"].what.startswith("says 0.01, the evidence 12")
    assert told["unit-mismatch"].remedy == "write 12 bytes"


def test_more_than_the_whole_is_a_problem_though_both_are_figures(known: tuple[Known, dict[str, str]]) -> None:
    more = "It kept 7 [=log2 128] of 2.\nSo 7 of 2 tensors."
    assert (7, "uncited") in wrong_in_section(more, known)


@each(
    "claim",
    [
        "All tensors were kept.",
        "It kept 2 of 2 tensors, all 2 of them.",
        "It kept 2 tensors [ev:GOOD#/findings/0/counted].",
        "A fresh start is at 11.93 nats [=ln 151936], and 33 + 15 = 48.",
        "2 of 8 gates are DISCHARGED, of steps 20..49 and GATE-A.",
        "On 2026-11-23 version 1.2.3 wrote 16-bit floats, see §2 and `--steps 30`.",
    ],
)
def test_a_claim_whose_numbers_are_figures_is_no_problem(known: tuple[Known, dict[str, str]], claim: str) -> None:
    assert wrong_in_section(claim, known) == []


def test_only_what_was_drafted_may_hold_numbers_without_a_citation(tmp_path: Path) -> None:
    text = draft([sealed(tmp_path)], ["GATE-IMPORT-001"], AuthorNotes(at=NOW), {}, frozenset())
    heads = {head.removeprefix("### ") for head in re.findall("^### .*", text, re.MULTILINE)}
    assert heads == {"Claim", *TABLES, *WRITTEN}


def test_seven_of_ninety_nine_gates_is_another_number_of_gates(known: tuple[Known, dict[str, str]]) -> None:
    (problem,) = looked("2 of 99 gates are DISCHARGED.\n", known).problems
    assert (problem.code, "has 2 of 8 DISCHARGED" in problem.what) == ("tally-mismatch", True)


def test_a_sum_that_is_called_unchanged_has_the_terms_of_the_sum_before(known: tuple[Known, dict[str, str]]) -> None:
    same, other = (f"So 33 + 15 = 48.\n\nNow {terms}, unchanged." for terms in ("33 + 15 = 48", "15 + 33 = 48"))
    assert looked(same, known).problems == ()
    (problem,) = looked(other, known).problems
    assert "it was 33 + 15 = 48 and is 15 + 33 = 48" in problem.what


def test_a_problem_stands_at_the_line_of_its_sentence(known: tuple[Known, dict[str, str]]) -> None:
    text = "# Title\n\nOne.\nTwo holds, and\nso on.\nGATE-A is discharged.\n\n- three\n- GATE-B is\n  discharged\n"
    assert [one.line for one in looked(text, known).problems] == [6, 9]
