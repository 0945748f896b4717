"""`explain` knows every word that the code can print or refuse with, and reads its cards only when it is asked."""

from __future__ import annotations

import ast
import datetime as dt
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cases import each
from tests.cli.conftest import Cli

import weighbridge
from weighbridge.cards.words import any_gate, glossary
from weighbridge.cli.evidence import QUESTIONS
from weighbridge.contract.load import builtin_names
from weighbridge.core.data import data_path
from weighbridge.core.exit_code import ExitCode
from weighbridge.core.limits import fields
from weighbridge.core.model import Status
from weighbridge.gates import KINDS
from weighbridge.gates.families.column_basis import ColumnBasis
from weighbridge.gates.families.tensor_pairs import MECHANISMS, QUANTISED, UNEXPLAINED
from weighbridge.lanes.waivers import read_waivers
from weighbridge.report import status_word
from weighbridge.verifiers import VERIFIERS

SOURCE = Path(weighbridge.__file__).parent
CHECKPOINTS = data_path("verifiers") / "specimens" / "checkpoints"
# What a contract alone spells, which `explain KIND` lists with the key that it is a value of.
YAML_ONLY = {"ParamType", "Statistic", "FileState"}
CODED = {"Problem", "Found", "Unmeasured", "Faulted", "Offence", "Verdict", "blocked"}
ELSEWHERE = {
    "required", "advisory", "live", "reported", "fixture", "synthetic", "STALE", "DIVERGED", "EXPIRED_WAIVER",
    "unbound", "no-pid", "trials", "canary", "mutation", "vacuous", "blind", "bundle", "evidence", "instance",
    "subject", "origin", "gate", "kind", "verifier", "quantity", "contract", "waiver", "amendment", "ledger",
    "transition", "stored dtype", "epoch", "requires", "enough", "SAME", "AS MEANT", "UNREADABLE", "not compared",
    "not counted", "NOT ANCHORED",
}  # fmt: skip


@functools.cache
def nodes() -> tuple[ast.AST, ...]:
    """Return every node of the source."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py")))
    return tuple(node for tree in trees for node in ast.walk(tree))


def errors() -> set[str]:
    """Name every exception class of the tool, so that a new one is held too."""
    named = {"WeighbridgeError"}
    for _ in range(3):
        named |= {
            node.name
            for node in nodes()
            if isinstance(node, ast.ClassDef) and any(getattr(base, "id", "") in named for base in node.bases)
        }
    return named


def texts(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.IfExp):
        yield from (*texts(node.body), *texts(node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value:
        yield node.value


def codes() -> Iterator[str]:
    """Collect the codes that the source gives as texts; those put together of a prefix are held in tests/views."""
    raised = errors()
    for node in nodes():
        name = getattr(node.func, "id", "") if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in raised | CODED:
            by_name = next((keyword.value for keyword in node.keywords if keyword.arg == "code"), None)
            yield from texts(by_name or (node.args[0] if node.args else None))


def enumerated() -> Iterator[str]:
    for node in nodes():
        if isinstance(node, ast.ClassDef) and "enum.StrEnum" in map(ast.unparse, node.bases):
            values = [line.value for line in node.body if isinstance(line, ast.Assign)]
            yield from (text for value in values for text in texts(value) if node.name not in YAML_ONLY)


def policies() -> Iterator[str]:
    for kind in ("dtype-preservation", "value-preservation"):
        limits: type = KINDS[kind].limits
        doc = next(item.doc for item in fields(limits) if item.key == "policy")
        yield from doc.choices or re.split(", | or ", doc.form.removesuffix(", joined by +"))


MOVES_NOTHING = {"verdict-blocked", "verdict-error", "verdict-not-applicable"}  # made of the outcome


def words() -> set[str]:
    carded = {word for name in ("codes", "terms") for group in glossary(name).values() for word in group}
    kinds = {code for kind in KINDS.values() for code in (kind.name, *kind.codes, *(f.code for f in kind.mutations))}
    listed = {*map(status_word, Status), *MECHANISMS, UNEXPLAINED, QUANTISED, *QUESTIONS, *ELSEWHERE}
    named = {quantity for quantity, _ in VERIFIERS} | {f"builtin:{name}" for name in builtin_names()}
    counted = {f"exit {int(code)}" for code in ExitCode} | MOVES_NOTHING
    return {*carded, *kinds, *listed, *named, *counted, *any_gate(), *codes(), *enumerated(), *policies()}


@pytest.mark.exhaustive
def test_every_word_that_is_printed_or_refused_with_is_explained(cli: Cli) -> None:
    found = words()
    assert len(found) > 500
    assert [word for word in sorted(found) if cli("explain", *word.split()).code != 0] == []


@pytest.mark.slow
def test_no_code_is_explained_that_the_source_does_not_know() -> None:
    there = {node.value for node in nodes() if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    groups = glossary("codes")
    kept = {code for group in ("measurement", "command line", "bundle") for code in groups[f"code of a {group}"]}
    known = kept | set(groups["code of the ledger"]) | set(groups["code of an amendment"]) | set(any_gate())
    there |= {f"column-{basis}" for basis in ColumnBasis}
    assert known - there == MOVES_NOTHING


def test_every_mechanism_says_what_to_do_about_it() -> None:
    known = glossary("terms")["mechanism"]
    assert [name for name in (*MECHANISMS, QUANTISED) if not known[name].do] == []
    assert not known[UNEXPLAINED].do  # the code's own hints stand there


def test_every_meaning_is_whole_sentences_on_few_lines() -> None:
    for name in ("codes", "terms"):
        for group in glossary(name).values():
            for word, meaning in group.items():
                assert meaning.means.strip(), word
                assert meaning.means.endswith((".", ")")), word
                assert len(meaning.means) <= 300, word


def test_a_word_is_found_in_any_letter_case_and_in_every_sense(cli: Cli) -> None:
    assert cli("explain", "stale").lines[0] == cli("explain", "STALE").lines[0] == "STALE (status)"
    assert "stale (code of the ledger)" in cli("explain", "Stale").lines
    assert cli("explain", "rounded:F16").lines[0] == "rounded:TYPE (policy)"
    assert cli("explain", "outside_writes").lines[0] == "outside-writes (version 1)"  # a column, as a gate prints it


MEANT = {
    "undecided": ("(basis)", "(subject)"),
    "too-few-elements": ("(subject)", "forward-parity: BLOCKED"),
    "too few elements": ("(subject)", "forward-parity: BLOCKED"),
    "precision": ("(subject)",),
    "looks wrong": ("(report)",),
    "expect-blocked": ("(gate)",),
    "planted faults": ("(trial)",),
    "broken": ("(evidence)", "(gate)"),
}


@each("word", MEANT)
def test_a_word_that_the_tool_prints_is_explained_in_each_of_its_meanings(cli: Cli, word: str) -> None:
    printed = cli("explain", *word.split())
    assert printed.code == 0
    assert [sense for sense in MEANT[word] if sense not in printed.out] == []


def test_a_lane_and_a_waiver_are_explained_with_a_file_that_can_be_copied(cli: Cli, workplace: Path) -> None:
    known = {word: meaning.example for group in glossary("terms").values() for word, meaning in group.items()}
    lane, waiver = known["lane"], known["waiver"]
    for word in ("lane", "waiver"):
        assert "".join(f"  {line}".rstrip() + "\n" for line in known[word].splitlines()) in re.sub(
            " +\n", "\n", cli("explain", word).out
        )
    (workplace / "waivers.yaml").write_text(waiver)
    assert read_waivers(workplace / "waivers.yaml", dt.datetime(2026, 11, 2, tzinfo=dt.UTC)).good
    assert tomllib.loads(lane)["lanes"]["pull-request"]["accepts"] == {"nightly": {"max_age": "36h"}}


def test_an_uncited_figure_of_the_author_is_explained_as_an_error(cli: Cli) -> None:
    assert "an error" in " ".join(cli("explain", "uncited").lines)


def test_a_near_word_is_suggested_as_it_is_written(cli: Cli) -> None:
    printed = "unknown-word nothing is called 'regresed'; did you mean 'REGRESSED'?\n"
    assert (cli("explain", "regresed").code, cli("explain", "regresed").err) == (2, printed)


def test_without_a_word_every_word_is_listed(cli: Cli) -> None:
    listed = re.sub(r"\s+", " ", cli("explain").out)
    assert [word for group in glossary("terms").values() for word in group if word not in listed] == []


def test_a_starter_contract_is_explained_with_what_to_type(cli: Cli) -> None:
    lines = cli("explain", "builtin:checkpoint-import").lines
    printed = (
        "Type: weighbridge verify builtin:checkpoint-import --subject source=CHECKPOINT --subject import=CHECKPOINT"
    )
    assert lines[-1] == printed


def test_a_gate_of_a_starter_contract_is_explained_and_of_none_it_is_said(cli: Cli) -> None:
    lines = cli("explain", "gate-diag-4.5").lines
    assert lines[:2] == ["GATE-DIAG-4.5 (builtin:diagnostics, advisory)", "Are activations healthy?"]
    assert lines[-1] == "Type: weighbridge explain series-bound"
    ended = cli("explain", "GATE-NOPE")
    assert (ended.code, "nothing is called 'GATE-NOPE'" in ended.err) == (2, True)


def test_a_gate_of_a_contract_here_is_explained_beside_one_that_cannot_be_used(cli: Cli, workplace: Path) -> None:
    folder = workplace / "contracts"
    folder.mkdir()
    (folder / "broken.yaml").write_text("- [", encoding="utf-8")
    (folder / "c.yaml").write_text(
        "{weighbridge: contract/v0, id: c, version: 1.0.0, title: t, owner: me, subjects: {a: {kind: checkpoint}},"
        " gates: [{id: GATE-MINE, title: It is sound, kind: checkpoint-integrity, subjects: {candidate: a}}]}",
        encoding="utf-8",
    )
    printed = [
        "GATE-MINE (contracts/c.yaml, required)",
        "It is sound",
        "Type: weighbridge explain checkpoint-integrity",
    ]
    assert cli("explain", "gate-mine").lines == printed


def test_a_quantity_is_explained_for_each_kind_of_subject(cli: Cli) -> None:
    headings = [line for line in cli("explain", "facts").lines if not line.startswith(" ")]
    assert headings == ["facts (quantity of checkpoint)", "facts (quantity of run)"]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["--version", "lint"])
def test_starting_up_reads_no_words(verb: str) -> None:
    run = f"import sys; sys.argv = ['weighbridge', {verb!r}]; from weighbridge.cli import main; main()"
    ask = f"try: exec({run!r})\nexcept SystemExit: print('weighbridge.cards.words' in sys.modules)"
    done = subprocess.run((sys.executable, "-c", ask), check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_pass_reads_no_words_for_what_any_gate_can_come_to(cli: Cli) -> None:
    any_gate.cache_clear()
    assert cli("compare", CHECKPOINTS / "source.safetensors", CHECKPOINTS / "sharded").code == 0
    assert any_gate.cache_info().misses == 0
