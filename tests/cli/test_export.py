"""`weighbridge evidence export`: what other tools read, by their own parsers, and never more than passed."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import model_index_to_eval_results
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from tests.cli.conftest import Cli
from tests.cli.test_evidence import BAD, GOOD, SOURCE, sealed
from tests.evidence import drafts

from weighbridge.core.canonical import sha256
from weighbridge.core.model import Severity
from weighbridge.evidence.bundle import Bundle, seal
from weighbridge.judging.judging import judge_contract
from weighbridge.report import exports
from weighbridge.report.exports import about, model_card, svr

GATE = "checkpoint-import/GATE-IMPORT-001"


def in_toto(text: str) -> dict[str, Any]:
    """Read a statement as in-toto's own library reads and validates it, and return its predicate."""
    parsed = json_format.Parse(text, statement_pb2.Statement())
    Statement.copy_from_pb(parsed).validate()
    assert parsed.type == "https://in-toto.io/Statement/v1"
    predicate: dict[str, Any] = json_format.MessageToDict(parsed.predicate)
    return predicate


def exported(cli: Cli, bundle: Path, form: str, *more: object) -> str:
    ended = cli("evidence", "export", bundle, "--as", form, *more)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


def test_a_test_result_is_one_of_in_toto(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    text = exported(cli, bundle, "test-result")
    parsed = json_format.ParseDict(in_toto(text), test_result_pb2.TestResult())
    assert (parsed.result, list(parsed.passed_tests), list(parsed.warned_tests), list(parsed.failed_tests)) == (
        "PASSED", [GATE], [], []
    )  # fmt: skip
    (configuration,) = parsed.configuration
    assert dict(configuration.digest) == {"sha256": sha256((bundle / "contract.json").read_bytes())}
    assert parsed.url == f"urn:weighbridge:bundle:{sha256((bundle / 'statement.json').read_bytes())}"
    subjects = {one["name"]: one["digest"]["sha256"] for one in json.loads(text)["subject"]}
    assert subjects == {path.name: sha256(path.read_bytes()) for path in (SOURCE, GOOD)}
    assert text == exported(cli, bundle, "test-result")


def test_a_test_result_of_a_fail_is_failed(cli: Cli) -> None:
    predicate = in_toto(exported(cli, sealed(cli, BAD), "test-result"))
    assert (predicate["result"], predicate["passedTests"], predicate["failedTests"]) == ("FAILED", [], [GATE])


def test_a_verification_result_lists_what_passed_and_cites_the_bundle(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    predicate = in_toto(exported(cli, bundle, "svr"))
    assert predicate.keys() == {"verifier", "timeCreated", "properties"}
    assert predicate["properties"] == [f"WEIGHBRIDGE_{GATE}"]
    assert predicate["verifier"]["evidence"] == {
        "name": bundle.name,
        "digest": {"sha256": sha256((bundle / "statement.json").read_bytes())},
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", predicate["timeCreated"])
    assert in_toto(exported(cli, sealed(cli, BAD), "svr"))["properties"] == []


def card_of(text: str) -> tuple[str, dict[str, Any], str]:
    """Read a card as the Hub's own library reads it: the model's name, its metrics by name, and the text."""
    card = ModelCard(text)
    name, results = model_index_to_eval_results(card.data.to_dict()["model-index"])
    assert all(one.task_type == "other" for one in results)
    return name, {one.metric_name: one for one in results}, card.text


def test_a_model_card_is_one_of_hugging_face(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    text = exported(cli, bundle, "model-card", "--about", "import")
    name, metrics, section = card_of(text)
    whole = sha256((bundle / "statement.json").read_bytes())
    (one,) = metrics.values()
    assert (name, one.metric_name, one.metric_type, one.metric_value) == (
        "import", "GATE-IMPORT-001", "dtype-preservation", "PASS"
    )  # fmt: skip
    assert (one.dataset_name, one.dataset_args["bundle"]) == ("contract checkpoint-import 1.0.0", whole)
    assert one.dataset_revision == sha256((bundle / "contract.json").read_bytes())
    assert "**1 of 1 gates passed**, 1 of the 1 required ones" in section
    assert sha256(GOOD.read_bytes()) in section
    assert sha256(SOURCE.read_bytes()) not in section
    assert f"weighbridge evidence verify BUNDLE --id {whole[:12]} --require-pass" in section
    assert str(ModelCard(text)).count("GATE-IMPORT-001") == 2


# --- What did not pass is reported as nothing else ------------------------------------------------------------------


@pytest.fixture
def mixed(tmp_path: Path) -> Bundle:
    """Seal a PASS, a BLOCKED gate that is required, one that is advisory, and a gate that nobody judged."""
    contract = drafts.contract(
        drafts.gate("GATE-1-PASS", "byte-identity"),
        drafts.gate("GATE-2-BLOCKED", "byte-identity", requires={"cuda": True}),
        drafts.gate("GATE-3-ADVISORY", "byte-identity", requires={"cuda": True}, severity=Severity.ADVISORY),
        drafts.gate("GATE-4-DRAFT", "byte-identity"),
    )
    draft = drafts.draft(given=contract)
    instances = {**draft.instances, "GATE-4-DRAFT": ()}
    draft = dataclasses.replace(draft, instances=instances, findings=draft.findings[:3])
    assert [one.verdict.outcome.value for one in draft.findings] == ["PASS", "BLOCKED", "BLOCKED"]
    return seal(draft, tmp_path, drafts.REDACTOR)


def test_in_toto_hears_that_only_the_pass_passed(mixed: Bundle) -> None:
    result: Any = exports.test_result(about(mixed, ()))["predicate"]
    assert (result["result"], result["passedTests"]) == ("FAILED", ["checkpoint-import/GATE-1-PASS"])
    assert result["warnedTests"] == ["checkpoint-import/GATE-3-ADVISORY"]
    assert result["failedTests"] == ["checkpoint-import/GATE-2-BLOCKED", "checkpoint-import/GATE-4-DRAFT"]
    properties: Any = svr(about(mixed, ()))["predicate"]
    assert properties["properties"] == ["WEIGHBRIDGE_checkpoint-import/GATE-1-PASS"]


def test_the_hub_hears_what_every_gate_came_to(mixed: Bundle) -> None:
    _, metrics, section = card_of(model_card(about(mixed, ())))
    assert {name: one.metric_value for name, one in metrics.items()} == {
        "GATE-1-PASS": "PASS", "GATE-2-BLOCKED": "BLOCKED", "GATE-3-ADVISORY": "BLOCKED", "GATE-4-DRAFT": "DRAFT"
    }  # fmt: skip
    assert "**1 of 4 gates passed**, 1 of the 3 required ones" in section
    assert "| GATE-4-DRAFT | The import keeps every dtype | byte-identity | required | DRAFT | not judged |" in section


def test_an_advisory_gate_that_did_not_pass_is_a_warning(tmp_path: Path) -> None:
    contract = drafts.contract(
        drafts.gate("GATE-1", "byte-identity"),
        drafts.gate("GATE-2", "byte-identity", requires={"cuda": True}, severity=Severity.ADVISORY),
    )
    bundle = seal(drafts.draft(given=contract), tmp_path, drafts.REDACTOR)
    result: Any = exports.test_result(about(bundle, ()))["predicate"]
    assert (result["result"], result["failedTests"]) == ("WARNED", [])


def test_a_broken_instrument_is_no_warning_and_without_a_pass_nothing_passed(tmp_path: Path) -> None:
    contract = drafts.contract(drafts.gate("GATE-1", "byte-identity", severity=Severity.ADVISORY))
    draft = drafts.draft(given=contract)
    blind = {key: dataclasses.replace(one, seen=False) for key, one in draft.canaries.items()}
    findings = judge_contract(contract, draft.instances, draft.measured, blind)
    bundle = seal(dataclasses.replace(draft, canaries=blind, findings=findings), tmp_path, drafts.REDACTOR)
    result: Any = exports.test_result(about(bundle, ()))["predicate"]
    assert (result["result"], result["failedTests"], result["warnedTests"]) == (
        "FAILED",
        ["checkpoint-import/GATE-1"],
        [],
    )
    unmet = drafts.contract(drafts.gate("GATE-1", requires={"cuda": True}, severity=Severity.ADVISORY))
    bundle = seal(drafts.draft(given=unmet), tmp_path, drafts.REDACTOR)
    result = exports.test_result(about(bundle, ()))["predicate"]
    assert (result["result"], result["failedTests"], result["warnedTests"]) == (
        "FAILED",
        [],
        ["checkpoint-import/GATE-1"],
    )


@pytest.mark.slow
def test_a_property_is_reported_of_no_subject_that_its_gate_did_not_judge(cli: Cli) -> None:
    bound = (f"source={SOURCE}", f"import@good={GOOD}", f"import@bad={BAD}")
    assert cli("verify", "builtin:checkpoint-import", *(word for one in bound for word in ("--subject", one))).code == 1
    (bundle,) = Path(".weighbridge/bundles").iterdir()
    found = {}
    for name in ("import@good", "import@bad", "import", "source"):
        found[name] = in_toto(exported(cli, bundle, "svr", "--about", name))["properties"]
    passed = [f"WEIGHBRIDGE_{GATE}[good]"]
    assert found == {"import@good": passed, "import@bad": [], "import": [], "source": passed}
    assert in_toto(exported(cli, bundle, "svr"))["properties"] == []
    results = (in_toto(exported(cli, bundle, "test-result", *more)) for more in (("--about", "import@good"), ()))
    assert [(one["result"], one["passedTests"], one["failedTests"]) for one in results] == [
        ("PASSED", [f"{GATE}[good]"], []), ("FAILED", [f"{GATE}[good]"], [f"{GATE}[bad]"])
    ]  # fmt: skip
    refused = cli("evidence", "export", bundle, "--as", "svr", "--about", "imprt")
    assert (refused.code, refused.err.splitlines()[0]) == (
        2, "unknown-subject the bundle has no subject 'imprt'; did you mean 'import'?"
    )  # fmt: skip


def test_text_of_a_bundle_is_no_markup_in_a_card(tmp_path: Path) -> None:
    title = "x | PASS |\n---\n<script>alert(1)</script> [a](http://evil) `code` **PASS** \x1b[2J"
    contract = drafts.contract(dataclasses.replace(drafts.gate(), title=title), title=title)
    bundle = seal(drafts.draft(given=contract), tmp_path, drafts.REDACTOR)
    text = model_card(about(bundle, ()))
    card_of(text)
    (row,) = (line for line in text.splitlines() if line.startswith("| GATE-IMPORT-001"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 7
    assert not re.search(r"(?<!\\)[<>`*\[\]]", row)
    assert text.isprintable() or all(line.isprintable() for line in text.splitlines())
    assert text.count("\n---\n") == 1


def test_overridden_parameters_are_reported(tmp_path: Path) -> None:
    bundle = seal(drafts.draft(), tmp_path, drafts.REDACTOR)
    stated = dataclasses.replace(bundle.statement, overridden=("budget_ms",))
    result = model_card(about(dataclasses.replace(bundle, statement=stated), ()))
    assert "this is not the contract as written: budget\\_ms." in result
    assert "as written" not in model_card(about(bundle, ()))


def test_what_has_no_file_or_does_not_hold_is_not_exported(cli: Cli) -> None:
    ended = cli("verify", "builtin:checkpoint-import", "--subject", f"source={SOURCE}")
    assert ended.code == 3
    (bundle,) = Path(".weighbridge/bundles").iterdir()
    nothing = seal(dataclasses.replace(drafts.draft(), subjects=()), Path(), drafts.REDACTOR)
    refused = cli("evidence", "export", nothing.path, "--as", "svr")
    assert (refused.code, "no-digest" in refused.err) == (4, True)
    (bundle / "verdicts.json").write_bytes(b"{}\n")
    broken = cli("evidence", "export", bundle, "--as", "svr")
    assert (broken.code, broken.out, "not-whole" in broken.err) == (4, "", True)


def test_an_archive_is_exported_by_the_id_that_was_reported(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    cli("evidence", "pack", bundle, "any name.tar")
    shutil.copytree(bundle, "renamed")
    for named in ("any name.tar", "renamed"):
        assert exported(cli, Path(named), "svr", "--id", bundle.name[-12:]) == exported(cli, bundle, "svr")
