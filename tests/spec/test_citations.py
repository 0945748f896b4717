from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence import drafts
from tests.ledgers import recorded, sealed
from weighbridge.amendment import Citation, agrees, citations, cite, draft, markdown, printed, resolve, standings, tally

from weighbridge.errors import BundleError, UsageError
from weighbridge.evidence.bundle import Bundle, seal
from weighbridge.judging import judge_contract
from weighbridge.ledger.fold import ACTIVE, DRAFT, PARTIAL, REGRESSED, Place, Standing
from weighbridge.ledger.store import Ledger
from weighbridge.model import Basis, Measurement, Origin, Rows
from weighbridge.quantities.facts import Fact

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


def test_every_cited_figure_equals_the_evidence_to_the_printed_digits(tmp_path: Path) -> None:
    for bundle in (sealed(tmp_path), with_facts(tmp_path)):
        text = draft(bundle, GATE)
        found = citations(text)
        assert len(found) == text.count("[ev:") >= 8
        for citation in found:
            assert bundle.id.startswith(citation.id)
            assert agrees(citation.text, resolve(bundle, citation)), citation


def test_a_transposed_figure_no_longer_agrees(tmp_path: Path) -> None:
    bundle = with_facts(tmp_path)
    forged = draft(bundle, GATE).replace("`512`", "`521`")
    wrong = [citation for citation in citations(forged) if not agrees(citation.text, resolve(bundle, citation))]
    assert [citation.pointer for citation in wrong] == ["/findings/0/facts/seq_len/value"]


def test_a_draft_has_all_its_parts_and_no_number(tmp_path: Path) -> None:
    text = draft(with_facts(tmp_path), GATE)
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [
        "## The import keeps every dtype",
        "### Command",
        "### Figures",
        "### Device",
        "### Impact, gate by gate",
        "### Evidence",
        "### What this section is not",
        "### Premises",
    ]
    assert "weighbridge verify contracts/checkpoint-import.yaml" in text
    assert "Half of a model was lost once." in text


def test_a_fail_on_a_fixture_says_what_it_is_not(tmp_path: Path) -> None:
    text = draft(sealed(tmp_path, bad=True, origin=Origin.FIXTURE), GATE)
    assert "- Live evidence: import[default] is a fixture subject." in text
    assert "- A pass on default: it is FAIL (dtype)." in text
    assert "expect: FAIL}" in text


def test_the_impact_table_names_every_gate(tmp_path: Path) -> None:
    bundle = sealed(tmp_path, given=drafts.contract())
    rows = [line for line in draft(bundle, GATE).splitlines() if line.startswith("| GATE-")]
    assert [row.split(" | ")[0] for row in rows] == ["| GATE-IMPORT-001", "| GATE-IMPORT-002"]
    assert rows[1].endswith("| pass | 2 of 2 |")


def test_a_device_fact_is_cited_from_its_measurement(tmp_path: Path) -> None:
    bundle: Any = with_facts(tmp_path)
    pointer = "/measured/measurement/value/rows/1/value"
    cited = f"`cuda:0` [ev:{bundle.id[:12]}/measurements/facts.source.default.json#{pointer}]"
    assert f"- facts.source.default, resolved_device: {cited}" in draft(bundle, GATE)


def test_a_gate_that_was_not_judged_cannot_be_drafted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown-gate bundle .* has no gate 'GATE-X'; it judged GATE-IMPORT"):
        draft(sealed(tmp_path), "GATE-X")


# --- Citations --------------------------------------------------------------------------------------------------------


@given(st.integers(-(10**12), 10**12) | st.floats() | st.booleans() | st.none() | st.text(alphabet="abc. -:"))
def test_whatever_is_printed_agrees_with_its_value(value: object) -> None:
    assert agrees(printed(value), value)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("264.74", 264.7412, True),
        ("246.74", 264.7412, False),
        ("264.7", 264.7412, True),
        ("265", 264.7412, True),
        ("264", 264.7412, False),
        ("0.12", 0.125, True),
        ("0.13", 0.125, True),
        ("0.14", 0.125, False),
        ("48", 48, True),
        ("45", 48, False),
        ("1e-05", 1e-5, True),
        ("nan", float("nan"), True),
        ("0", float("nan"), False),
        ("true", True, True),
        ("1", True, False),
        ("PASS", "PASS", True),
        ("FAIL", "PASS", False),
        ("ten", 10, False),
    ],
)
def test_a_number_must_equal_the_evidence_to_the_printed_digits(text: str, value: object, holds: bool) -> None:
    assert agrees(text, value) is holds


def test_a_citation_is_found_and_resolved(tmp_path: Path) -> None:
    bundle = sealed(tmp_path)
    kept, python = cite(bundle, "/findings/0/counted", 2), cite(bundle, "/python", "3", "environment.json")
    first, second = citations(f"It kept {kept} tensors on {python}.")
    assert first == Citation(text="2", id=bundle.id[:12], file="verdicts.json", pointer="/findings/0/counted")
    assert (resolve(bundle, first), resolve(bundle, second)) == (2, "3.11.9")


@given(st.text(max_size=9))
def test_any_key_of_json_can_be_pointed_at(key: str) -> None:
    pointer = "/" + key.replace("~", "~0").replace("/", "~1")
    bundle: Any = SimpleNamespace(id="a" * 64)
    (found,) = citations(cite(bundle, pointer, 1))
    assert found.pointer == pointer


@pytest.mark.parametrize("pointer", ["/findings/7", "/findings/0/none", "/findings/x", "/schema/0", "/findings/-1"])
def test_a_pointer_to_nothing_is_refused(tmp_path: Path, pointer: str) -> None:
    with pytest.raises(BundleError, match="bad-pointer has nothing at /"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file="verdicts.json", pointer=pointer))


@pytest.mark.parametrize("file", ["../secret.json", "/etc/passwd", "a/../../x"])
def test_a_citation_never_leaves_its_bundle(tmp_path: Path, file: str) -> None:
    with pytest.raises(BundleError, match="is no name for a file of a bundle"):
        resolve(sealed(tmp_path), Citation(text="1", id="0" * 12, file=file, pointer=""))


# --- The tally --------------------------------------------------------------------------------------------------------


def place(gate: str, instance: str = "default") -> Place:
    return Place(contract="c", gate=gate, instance=instance)


FOUND = {
    place("G-1"): Standing(status=ACTIVE, heads=("a",)),
    place("G-2", "falcon"): Standing(status=ACTIVE, heads=("b",)),
    place("G-2", "heron"): Standing(status=REGRESSED, heads=("c", "d"), diverged=True),
    place("G-3"): Standing(status=PARTIAL, heads=("e",)),
    place("G-4"): Standing(status=DRAFT, heads=("f",)),
}


def test_a_gate_counts_once_where_its_lowest_instance_stands() -> None:
    count = tally(FOUND)
    assert {status: number for status, number in count.counts.items() if number} == {
        ACTIVE: 1,
        PARTIAL: 1,
        DRAFT: 1,
        REGRESSED: 1,
    }
    assert (count.gates, count.instances) == (4, 5)
    assert sum(count.counts.values()) == count.gates


def test_a_tally_is_a_block_that_adds_up() -> None:
    lines = markdown(tally(FOUND)).splitlines()
    assert lines[0].startswith("<!-- weighbridge:tally begin heads=")
    assert lines[1:10] == [
        "| status | gates |",
        "|---|---|",
        "| DISCHARGED | 0 of 4 |",
        "| ACTIVE_WITH_LIVE_EVIDENCE | 1 of 4 |",
        "| PARTIAL_ALGORITHM_LEVEL | 1 of 4 |",
        "| DRAFT | 1 of 4 |",
        "| REGRESSED | 1 of 4 |",
        "| RETIRED | 0 of 4 |",
        "",
    ]
    assert lines[-2] == "DIVERGED, counted as the lower: c/G-2[heron]."
    assert lines[-1] == "<!-- weighbridge:tally end -->"


def test_the_same_ledger_gives_the_same_bytes_and_another_does_not(tmp_path: Path) -> None:
    ledger, copy = Ledger(tmp_path / "a"), Ledger(tmp_path / "b")
    recorded(ledger, sealed(tmp_path, hours=1))
    shutil.copytree(ledger.root, copy.root)
    assert markdown(tally(standings(ledger))) == markdown(tally(standings(copy)))
    recorded(copy, sealed(tmp_path, bad=True, hours=2))
    assert markdown(tally(standings(ledger))) != markdown(tally(standings(copy)))
