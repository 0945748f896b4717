"""Where reports go: into files whole or not at all, to standard output alone, and to GitHub by themselves."""

from __future__ import annotations

import errno
import json
import os
import re
from pathlib import Path

import click
import numpy as np
import pytest
from jsonschema import Draft202012Validator
from safetensors.numpy import save_file
from tests.cli.conftest import Cli
from tests.disks import failing

from weighbridge.cli.options import coloured
from weighbridge.core.data import data_path
from weighbridge.evidence.disk import replace_file
from weighbridge.report.github import SUMMARY

HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD = (HERE / name for name in ("source.safetensors", "import.gguf", "relabelled.safetensors"))
IMPORT = "builtin:checkpoint-import"


def bound(imported: Path) -> tuple[str, ...]:
    return "--subject", f"source={SOURCE}", "--subject", f"import={imported}"


@pytest.fixture
def own(workplace: Path) -> str:
    """Write a contract into the working directory, and return its name."""
    (workplace / "contracts").mkdir()
    text = (data_path("contracts") / "checkpoint-import.yaml").read_bytes()
    (workplace / "contracts" / "c.yaml").write_bytes(text)
    return "contracts/c.yaml"


@pytest.fixture
def summary(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Be a step of GitHub Actions, and return the file of its summary."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(workplace / "summary.md"))
    return workplace / "summary.md"


def test_reports_of_several_forms_are_written_into_folders_that_are_made(cli: Cli, workplace: Path) -> None:
    ended = cli("verify", IMPORT, *bound(GOOD), "--report", "junit:a/b/c.xml", "--report", "tap:a/c.tap")
    assert ended.code == 0
    assert sorted(path.name for path in (workplace / "a").rglob("*.*")) == ["c.tap", "c.xml"]


def test_a_report_on_standard_output_stands_there_alone(cli: Cli) -> None:
    ended = cli("verify", IMPORT, *bound(BAD), "--report", "sarif:-")
    assert json.loads(ended.out)["version"] == "2.1.0"
    assert (ended.code, "FAIL     GATE-IMPORT-001" in ended.err) == (1, True)


@pytest.mark.parametrize("more", [("--report", "tap:-"), ("--json",)])
def test_two_reports_in_one_place_are_refused_before_anything_is_measured(
    cli: Cli, workplace: Path, more: tuple[str, ...]
) -> None:
    ended = cli("verify", IMPORT, *bound(GOOD), "--report", "json:-", *more)
    assert (ended.code, ended.err.splitlines()[0]) == (2, "report-form two reports would be written into -")
    assert not (workplace / ".weighbridge").exists()


@pytest.mark.parametrize("effect", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_the_report_that_was_there(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, effect: str
) -> None:
    report = workplace / "report.xml"
    report.write_bytes(b"whole")
    monkeypatch.setattr(os, effect, failing(1, errno.ENOSPC, [0], getattr(os, effect)))
    with pytest.raises(OSError, match="No space left"):
        replace_file(report, b"another")
    assert [(path.name, path.read_bytes()) for path in workplace.iterdir()] == [("report.xml", b"whole")]


def test_a_link_and_a_device_stay_what_they_are(cli: Cli, workplace: Path) -> None:
    (workplace / "link.xml").symlink_to("real.xml")
    (workplace / "null").symlink_to("/dev/null")
    assert cli("verify", IMPORT, *bound(GOOD), "--report", "junit:link.xml", "--report", "tap:null").code == 0
    assert (workplace / "link.xml").is_symlink()
    assert (workplace / "real.xml").read_text().startswith("<?xml")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_the_schema_that_is_printed_is_that_of_the_report(cli: Cli, form: str) -> None:
    schema = json.loads(cli("schema", "--report", form).out)
    Draft202012Validator.check_schema(schema)
    (line,) = cli("verify", IMPORT, *bound(BAD), "--report", f"{form}:-").lines
    Draft202012Validator(schema).validate(json.loads(line))


# --- GitHub Actions ---------------------------------------------------------------------------------------------------


def test_in_github_actions_a_failure_is_annotated_and_summarised_unasked(cli: Cli, own: str, summary: Path) -> None:
    ended = cli("verify", own, *bound(BAD), "--report", "junit:report.xml")
    (annotation,) = (line for line in ended.lines if line.startswith("::"))
    assert annotation.startswith("::error file=contracts/c.yaml,line=11,col=5,title=FAIL GATE-IMPORT-001::")
    assert "| FAIL | GATE-IMPORT-001 |" in summary.read_text()
    assert Path("report.xml").is_file()
    assert ended.code == 1


def test_in_github_actions_a_pass_has_no_annotation_and_is_added_to_the_summary(
    cli: Cli, own: str, summary: Path
) -> None:
    summary.write_text("of another tool\n")
    ended = cli("verify", own, *bound(GOOD), "--json")
    assert json.loads(ended.out)[0]["exit_code"] == 0
    assert ended.err == ""
    assert summary.read_text().startswith("of another tool\n### weighbridge: 1 passed of 1")


def test_a_summary_that_is_full_is_left_as_it_is(cli: Cli, own: str, summary: Path) -> None:
    summary.write_bytes(b"x" * (SUMMARY - 100))
    assert cli("verify", own, *bound(GOOD)).code == 0
    assert summary.stat().st_size == SUMMARY - 100


@pytest.mark.parametrize("verb", [("lint",), ("verify", *bound(GOOD))])
def test_in_github_actions_a_mistake_in_a_contract_is_annotated_at_its_place(
    cli: Cli, own: str, summary: Path, verb: tuple[str, ...]
) -> None:
    Path(own).write_text(Path(own).read_text().replace("severity: required", "severty: required"))
    ended = cli(verb[0], own, *verb[1:])
    (annotation,) = (line for line in (*ended.lines, *ended.err.splitlines()) if line.startswith("::"))
    printed = "unknown key 'severty'; did you mean 'severity'?"
    assert annotation == f"::error file=contracts/c.yaml,line=17,col=5,title=unknown-key::{printed}"
    assert "### weighbridge: 1 problem\n" in summary.read_text()
    assert ended.code == 2


def test_in_github_actions_a_name_from_outside_is_no_command(cli: Cli, own: str, summary: Path) -> None:
    for name, value in (("a", 1.0), ("b", 2.0)):
        save_file({"::stop-commands::x": np.full(4, value, dtype=np.float32)}, f"{name}.safetensors")
    ended = cli("verify", own, "--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    assert "    \\::stop-commands::x: " in ended.out
    commands = [line for line in ended.lines if line.lstrip().startswith(("::", "##["))]
    assert [line.partition(" ")[0] for line in commands] == ["::error"]
    assert summary.is_file()


# --- Colours ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "colour"),
    [
        ({}, None),
        ({"CI": "true"}, None),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "", "NO_COLOR": ""}, None),
    ],
)
def test_colours_follow_the_variables_that_others_follow(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], colour: bool | None
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert coloured() is colour


def test_forced_colours_reach_a_pipe(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = cli("verify", IMPORT, *bound(BAD)).lines
    monkeypatch.setenv("FORCE_COLOR", "1")
    forced = cli("verify", IMPORT, *bound(BAD)).lines
    assert re.match("\x1b\\[31m\x1b\\[1mFAIL", forced[1])
    assert [click.unstyle(line) for line in forced[:6]] == plain[:6]


def test_the_head_line_names_the_policy_of_the_gate_that_has_one(cli: Cli) -> None:
    head = cli("verify", IMPORT, *bound(GOOD)).out.splitlines()[0]
    assert head.endswith("import.gguf (fixture)  policy lossless")
