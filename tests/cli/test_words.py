"""How verbs speak: help that is not cut, examples that can be pasted, words of YAML and not of Python."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.cases import each
from tests.cli.conftest import Cli

from weighbridge.cli import VERBS
from weighbridge.core.data import data_path
from weighbridge.gates import KINDS

SPECIMENS = data_path("verifiers") / "specimens"
SUBVERBS = (
    "status why", "ledger check", "ledger record", "ledger reconcile", "ledger retire",
    "evidence verify", "evidence show", "evidence rejudge", "evidence diff", "evidence pack", "evidence merge",
    "evidence prune",
    "amend draft", "amend land", "amend check", "amend render", "new kind", "new verifier",
    "trace capture", "trace check", "trace pack", "drill run", "drill keep", "drill match",
)  # fmt: skip


def test_every_verb_is_reported_in_one_whole_line(cli: Cli) -> None:
    for words in ((), ("ledger",), ("evidence",), ("amend",), ("status",), ("trace",), ("drill",)):
        listed = cli(*words, "--help").out.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        assert listed
        assert all(line.endswith(".") and not line.endswith("...") for line in listed), listed


@each("verb", [*VERBS, *SUBVERBS])
def test_every_example_can_be_pasted(cli: Cli, verb: str) -> None:
    examples = [line for line in cli(*verb.split(), "--help").lines if "Example:" in line]
    assert examples
    for example in examples:
        assert re.match(rf"  Example: weighbridge {verb.split(maxsplit=1)[0]}\b", example)


@each("verb", ["", *VERBS, *SUBVERBS])
def test_help_fits_a_terminal_of_80_columns(cli: Cli, verb: str) -> None:
    assert [line for line in cli(*verb.split(), "--help").lines if len(line) > 80] == []


@each("verb", [*VERBS, *SUBVERBS])
def test_the_first_screen_of_help_has_an_example(cli: Cli, verb: str) -> None:
    assert any("Example: weighbridge" in line for line in cli(*verb.split(), "--help").lines[:24])


def test_help_names_the_tool_as_it_is_typed(cli: Cli) -> None:
    assert cli("verify", "--help").lines[0] == "Usage: weighbridge verify [OPTIONS] [CONTRACTS]..."


def test_an_unknown_verb_is_2_with_the_nearest_one(cli: Cli) -> None:
    ended = cli("verfy")
    printed = "unknown-verb there is no verb 'verfy'; did you mean 'verify'?\n  see `weighbridge --help`\n"
    assert (ended.code, ended.out, ended.err) == (2, "", printed)


def test_without_a_verb_the_help_is_shown_and_nothing_was_done(cli: Cli) -> None:
    ended = cli()
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("Usage: weighbridge [OPTIONS] COMMAND [ARGS]...")


def test_doctor_tells_truth_values_as_yaml_writes_them(cli: Cli) -> None:
    printed = dict(line.split(maxsplit=1) for line in cli("doctor").lines)
    assert {printed["cuda"], printed["hidden"]} <= {"true", "false"}


@each("kind", KINDS)
def test_a_kind_is_explained_in_yaml_words_on_lines_of_100_columns_and_nothing_twice(cli: Cli, kind: str) -> None:
    lines = cli("explain", kind).lines
    assert not [line for line in lines if re.search(r"default .*(None|True|False|\(|<)", line)]
    assert max(map(len, lines)) <= 100
    damages = lines[lines.index("shown able to fail by") + 1 : lines.index("to copy into a contract")]
    assert len(damages) == len(set(damages)) > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("columns", [None, 60])
def test_a_kind_ends_with_a_gate_that_lints_clean_in_a_contract(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch, kind: str, columns: int | None
) -> None:
    monkeypatch.setattr("weighbridge.cli.explain.columns_of", lambda _stream: columns)
    lines = cli("explain", kind).lines
    copied = "\n".join(lines[lines.index("to copy into a contract") + 1 :])
    (workplace / "c.yaml").write_text(
        f"weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: t\nowner: o\n{copied}\n"
    )
    ended = cli("lint", "c.yaml")
    assert (ended.err, ended.code) == ("", 0)
    assert f"    kind: {kind}" in lines


def test_a_kind_is_explained_with_bounds_and_with_what_can_be_measured(cli: Cli) -> None:
    lines = cli("explain", "wall-time-budget").lines
    assert "  below_ms [ms]: the statistic of the window is below this (> 0, ≤ 1e+07, default null)" in lines
    assert lines[lines.index("options (measure:)") + 1] == (
        '  column: the column of step wall times in milliseconds (default "wall_ms")'
    )


def test_without_a_word_every_kind_is_listed_with_what_it_asks(cli: Cli) -> None:
    ended = cli("explain")
    kinds = ended.lines[1 : ended.lines.index("quantity")]
    assert (ended.code, [line.split()[0] for line in kinds if not line.startswith("   ")]) == (0, list(KINDS))
    assert max(map(len, ended.lines)) <= 100


def test_a_word_that_nothing_is_called_is_sent_to_the_list(cli: Cli) -> None:
    printed = "unknown-word nothing is called 'zzzz'\n  `weighbridge explain` lists every word\n"
    assert (cli("explain", "zzzz").code, cli("explain", "zzzz").err) == (2, printed)


def test_hints_stand_on_lines_of_their_own(cli: Cli) -> None:
    checkpoints = SPECIMENS / "checkpoints"
    lines = cli("compare", checkpoints / "source.safetensors", checkpoints / "mislabelled.gguf").lines
    assert [line.partition(":")[0] for line in lines[2:-3]] == ["  likely cause", "  try first"]


def test_an_empty_ledger_says_how_it_is_begun(cli: Cli) -> None:
    printed = "no gate is declared yet: `weighbridge verify --record` declares a contract's gates"
    assert (cli("status").code, cli("status").lines) == (0, [printed])


def test_a_full_ledger_is_a_table_as_wide_as_its_words(cli: Cli) -> None:
    cli("verify", "builtin:training-run", "--subject", f"run={SPECIMENS / 'runs' / 'wrapped'}", "--record")
    *rows, counted = cli("status").lines
    absent = "NOT_APPLICABLE: has:grad_norm:100 = False, meant for True"
    assert rows[0] == "training-run  GATE-RUN-001          fixture only"
    assert f"training-run  GATE-RUN-GROWTH       DRAFT         {absent}" in rows
    assert len({re.search(r"(fixture only|DRAFT)", row).start() for row in rows}) == 1  # type: ignore[union-attr]
    assert counted.startswith(f"gates: {len(rows)}, of which 10 fixture only, {len(rows) - 10} DRAFT; NOT_APPLICABLE: ")


def test_a_folder_that_is_no_bundle_is_said_to_be_none(cli: Cli) -> None:
    ended = cli("evidence", "verify", SPECIMENS)
    printed = f"{SPECIMENS}: not-a-bundle there is no statement.json in it\n"
    assert (ended.code, ended.err.startswith(f"{printed}  name a bundle's folder: ")) == (4, True)


def test_a_folder_without_cards_shows_nothing_and_is_2(cli: Cli) -> None:
    ended = cli("selftest", "--cards", SPECIMENS)
    assert (ended.code, ended.err.partition(":")[2].strip()) == (
        2, "no-cards there is no card in gates/ or verifiers/\n  name another"
    )  # fmt: skip


def test_a_card_that_is_not_there_is_wrong_and_one_that_is_named_is_checked_alone(cli: Cli) -> None:
    ended = cli("selftest", "tensor-coverge")
    assert (ended.code, ended.lines[-1]) == (1, "0 of 1 hold, 1 wrong, 0 not tried")
    checks = json.loads(cli("selftest", "tensor-coverage", "--json").out)
    assert {check["name"].partition(":")[0] for check in checks} == {"tensor-coverage"}


def test_a_torn_line_says_its_column_once(cli: Cli) -> None:
    ended = cli("inspect", SPECIMENS / "runs" / "torn-middle.jsonl")
    assert ended.code == 4
    assert "log-syntax not a row of JSON: unterminated string starting at column 13\n" in ended.err


def test_a_draft_gives_counts_no_unit_figures_their_unit_and_nothing_empty(cli: Cli, workplace: Path) -> None:
    run = SPECIMENS / "runs" / "report.json"
    cli("verify", "builtin:training-run", "--subject", f"run={run}", "--param", "tokens_per_step=8192")
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    lines = cli("amend", "draft", "--bundle", bundle, "--gate", "GATE-RUN-004").lines
    row = next(line for line in lines if line.startswith("| `GATE-RUN-004` | `PASS` "))
    for cell in (r"`265\.953` \[ev:[^ ]+\] ms", r"`30` \[ev:[^ ]+/counted\] of `30` \[ev:[^ ]+/of\]"):
        assert re.search(rf"\| {cell} \|", row), row
    assert not [line for line in lines if re.search("(?<!`)``(?!`)", line)]
    size = rf"`{run.stat().st_size}` \[ev:[0-9a-f]+/statement.json#/predicate/subjects/0/size\] bytes"
    assert any(re.search(f"report.json`, {size}$", line) for line in lines)


def test_the_size_of_a_subject_is_that_of_all_its_files(cli: Cli, workplace: Path) -> None:
    run = SPECIMENS / "runs" / "wrapped"
    cli("verify", "builtin:training-run", "--subject", f"run={run}")
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    (subject,) = json.loads((bundle / "statement.json").read_bytes())["predicate"]["subjects"]
    assert subject["size"] == sum(path.stat().st_size for path in run.iterdir())
