from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tests.evidence import drafts
from tests.ledgers import FILES, sealed

from weighbridge.core.errors import UsageError
from weighbridge.core.model import Basis, Measurement, Origin, Rows, TrialResult
from weighbridge.evidence.bundle import Bundle, seal
from weighbridge.judging.judging import judge_contract
from weighbridge.quantities.facts import Fact
from weighbridge.spec.citations import agrees, citations, resolve
from weighbridge.spec.drafting import AuthorNotes, draft

GATE = "GATE-IMPORT-001"
FACTS = Measurement(
    quantity="facts",
    value=Rows(
        "name",
        (
            Fact(name="seq_len", value=512, basis=Basis.MEASURED, contradicted_by=()),
            Fact(name="resolved_device", value="cuda:0", basis=Basis.REPORTED, contradicted_by=()),
        ),
    ),
    by="facts/1",
    examined=2,
    total=2,
)


def with_facts(folder: Path) -> Bundle:
    given = drafts.contract(drafts.gate(where={"seq_len": 512}, why="Half of a model was lost once."))
    key = "facts.source.default"
    rows = drafts.pairs(drafts.pair("a"), drafts.pair("b", candidate_dtype="F16", reproduced={"bf16-bits-as-f16": 6}))
    canaries = {name: drafts.seen()[drafts.PAIRS] for name in (key, drafts.PAIRS)}
    first = drafts.draft({key: FACTS, drafts.PAIRS: rows}, given)
    findings = judge_contract(given, first.instances, first.measured, canaries)
    return seal(dataclasses.replace(first, canaries=canaries, findings=findings), folder, drafts.REDACTOR)


def drafted(*bundles: Bundle, gates: tuple[str, ...] = (GATE,)) -> str:
    return draft(bundles, gates, AuthorNotes(at=drafts.NOON, author="Ada"), {}, frozenset())


def test_every_cited_figure_equals_the_evidence_to_the_printed_digits(tmp_path: Path) -> None:
    for bundle in (sealed(tmp_path), with_facts(tmp_path)):
        text = drafted(bundle)
        found = citations(text)
        assert len(found) == text.count("[ev:") >= 7
        for citation in found:
            assert bundle.id.startswith(citation.id)
            assert agrees(citation.text, resolve(bundle, citation)), citation


def test_a_transposed_figure_no_longer_agrees(tmp_path: Path) -> None:
    bundle = with_facts(tmp_path)
    forged = drafted(bundle).replace("`512`", "`521`")
    wrong = [citation for citation in citations(forged) if not agrees(citation.text, resolve(bundle, citation))]
    assert [citation.pointer for citation in wrong] == ["/findings/0/facts/seq_len/value"]


def test_a_draft_has_all_its_parts_and_no_number(tmp_path: Path) -> None:
    text = drafted(with_facts(tmp_path))
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "## The import keeps every dtype: FAIL",
        "### Claim",
        "### Why, gate by gate",
        "### Command",
        "### Figures",
        "### Device",
        "### Impact, gate by gate",
        "### Hypotheses",
        "### Next experiment",
        "### Evidence",
        "### What this section is not",
    ]
    assert "weighbridge verify contracts/checkpoint-import.yaml" in text
    assert "Half of a model was lost once." in text


def test_a_fail_on_a_fixture_says_what_it_is_not(tmp_path: Path) -> None:
    text = drafted(sealed(tmp_path, bad=True, origin=Origin.FIXTURE))
    assert "- Live evidence: import[default] is a fixture subject." in text
    assert "- A pass of `GATE-IMPORT-001` on default: it is FAIL (dtype)." in text
    assert '[default]", "expect": "FAIL"}' in text


def test_the_title_of_a_fail_does_not_claim_what_its_gate_promises(tmp_path: Path) -> None:
    assert "\n## The import keeps every dtype: FAIL\n" in drafted(sealed(tmp_path, bad=True))
    assert "\n## The import keeps every dtype\n" in drafted(sealed(tmp_path))


def test_a_section_has_another_id_than_what_landed_or_what_it_refutes_on_the_same_day(tmp_path: Path) -> None:
    bundle, id_ = sealed(tmp_path), f"A-{drafts.NOON:%Y%m%d}-same"
    for taken, refutes, wanted in (
        ((id_,), (id_,), f"{id_}-2"),
        ((id_, f"{id_}-2"), (f"{id_}-2",), f"{id_}-3"),
        ((id_,), (), f"{id_}-2"),
        ((), (id_,), id_),
    ):
        notes = AuthorNotes(at=drafts.NOON, title="Same", landed=taken, refutes=refutes)
        assert f'\nid: "{wanted}"\n' in draft((bundle,), (GATE,), notes, {}, frozenset())


def test_the_impact_table_names_every_gate(tmp_path: Path) -> None:
    bundle = sealed(tmp_path, given=drafts.contract())
    rows = [line for line in drafted(bundle).splitlines() if line.startswith("| GATE-")]
    assert len(rows) == 2
    assert [row.split(" | ")[0] for row in rows] == [f"| GATE-IMPORT-001[{FILES}]", f"| GATE-IMPORT-002[{FILES}]"]
    assert rows[1].endswith("| advisory | none | none |")


def test_each_gate_is_a_row_of_the_figures_that_matter_and_the_rest_is_in_the_bundle(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    text, at = drafted(bundle), f"[ev:{bundle.id[:12]}#/findings/0"
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{GATE}`"))
    caught = sum(trial.result is TrialResult.CAUGHT for trial in bundle.findings[0].trials)
    assert 0 < caught < len(bundle.findings[0].trials)  # what had nothing to break is not counted as caught
    looked = f"`2` {at}/counted] of `2` {at}/of]"
    assert row == f"| `{GATE}` | `PASS` {at}/outcome] |  |  | {looked} | {caught} of {caught} caught |"
    assert f"weighbridge evidence show {bundle.id[:12]}" in text


def test_a_gate_that_did_not_pass_says_by_which_code_and_where(tmp_path: Path) -> None:
    bundle = sealed(tmp_path, bad=True)
    at = f"[ev:{bundle.id[:12]}#/findings/0"
    assert f"`FAIL` {at}/outcome], `dtype` {at}/code] |" in drafted(bundle)
    assert f"- offence against `{GATE}`: `" in drafted(bundle)


def test_the_figures_say_how_many_passed_of_those_looked_at_and_how_many_offences_are_left_out(tmp_path: Path) -> None:
    bundle = with_facts(tmp_path)
    (finding,) = bundle.findings
    assert "| passing of looked at |" in (text := drafted(bundle))
    at = f"[ev:{bundle.id[:12]}#/findings/0"
    assert (f"`1` {at}/counted] of `2` {at}/of]" in text, "more" in text) == (True, False)
    verdict = dataclasses.replace(finding.verdict, offences=finding.verdict.offences * 16)
    many = dataclasses.replace(bundle, findings=(dataclasses.replace(finding, verdict=verdict),))
    lines = [line for line in drafted(many).splitlines() if line.startswith("- offence")]
    assert (len(lines), lines[-1]) == (4, f"- offence against `{GATE}`: +13 more")


def test_a_fact_that_several_gates_share_is_reported_once(tmp_path: Path) -> None:
    text = drafted(with_facts(tmp_path))
    assert len([line for line in text.splitlines() if line.startswith("- seq_len: `512`")]) == 1


def test_a_device_fact_is_cited_from_its_measurement(tmp_path: Path) -> None:
    bundle: Any = with_facts(tmp_path)
    pointer = "/measured/measurement/value/rows/1/value"
    cited = f"`cuda:0` [ev:{bundle.id[:12]}/measurements/facts.source.default.json#{pointer}]"
    assert f"- facts.source.default, resolved_device: {cited}" in drafted(bundle)


def test_a_device_fact_that_is_measured_under_several_options_is_reported_once(tmp_path: Path) -> None:
    bundle = with_facts(tmp_path)
    again = {"facts.source.default": FACTS, "facts.source.default.00c37f7a": FACTS}
    several = dataclasses.replace(bundle, measured={**bundle.measured, **again})
    assert drafted(several).count("- facts.source.default, resolved_device: `cuda:0`") == 1


def test_a_gate_that_was_not_judged_cannot_be_drafted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown-gate bundle .* has no gate 'GATE-X'; known: GATE-IMPORT-001"):
        drafted(sealed(tmp_path), gates=("GATE-X",))
