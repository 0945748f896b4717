"""What this project has shown of itself: held as it is committed, without torch, and red where it does not follow.

A gate that is STALE, or that another version of its kind has judged, is told by `status` and is no failure here.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli, Ended, cli
from tests.ledgers import git

from weighbridge.core.model import Outcome, Record, Rows, Series
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.redact import Redactor, scan
from weighbridge.evidence.review import Against, State, other_versions, verify
from weighbridge.evidence.statement import PREDICATE_TYPE
from weighbridge.gates import KINDS
from weighbridge.spec.amendments import landed

__all__ = ["cli"]

ROOT = Path(__file__).resolve().parents[1]
BUNDLES = sorted((ROOT / "evidence" / "bundles").glob("*-*"))
FROZEN = sorted((ROOT / "evidence" / "frozen").glob("*/*"))
CONTRACTS = {path.stem for path in (ROOT / "contracts").glob("*.yaml")}
HOLDS = (0, 3)  # 3: judged by another version of a kind
MIB = 1 << 20


@pytest.fixture
def ours(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands in the checkout, which none of them changes."""
    monkeypatch.chdir(ROOT)
    return cli


@pytest.fixture
def copy(cli: Cli, workplace: Path) -> Cli:
    """Run commands in a copy of what is committed, which may be changed."""
    for folder in ("evidence", "contracts", "spec"):
        shutil.copytree(ROOT / folder, workplace / folder)
    return cli


def gates(cli: Cli) -> dict[str, Any]:
    return {gate["gate"]: gate for gate in json.loads(cli("status", "--json").out)["gates"]}


def checked(cli: Cli) -> dict[str, Ended]:
    return {verb: cli(verb, "check") for verb in ("ledger", "amend")}


# --- As it is committed -----------------------------------------------------------------------------------------------


def test_no_contract_has_another_content_than_the_ledger_has_of_its_version(ours: Cli) -> None:
    ended = ours("lint")
    assert ended.code == 0, ended.out + ended.err


def test_every_contract_that_is_shown_has_a_bundle() -> None:
    assert {unseal(path).contract.id for path in BUNDLES} == CONTRACTS


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.name)
def test_a_bundle_is_as_it_was_sealed_a_landed_section_names_it_and_it_judges_again(ours: Cli, bundle: Path) -> None:
    sections = landed(ROOT / "spec" / "amendments")
    (named,) = {id_ for one in sections for id_ in one.about.evidence if id_.startswith(bundle.name[-12:])}
    ended = ours("evidence", "verify", bundle.relative_to(ROOT), "--id", named, "--require-anchor")
    assert ended.code in HOLDS, ended.out


@pytest.mark.slow
def test_ledger_and_sections_follow_from_the_bundles_and_the_page_from_the_sections(ours: Cli) -> None:
    ended = checked(ours)
    assert ended["ledger"].code in HOLDS, ended["ledger"].out
    assert ended["amend"].code == 0, ended["amend"].out


@pytest.mark.slow
def test_every_gate_of_every_contract_has_a_status_that_its_evidence_earns(ours: Cli) -> None:
    found = gates(ours)
    declared = [gate.id for path in BUNDLES for gate in unseal(path).contract.gates]
    assert set(declared) <= found.keys()
    assert {name for name, gate in found.items() if gate["status"] == "UNVERIFIED" or gate["diverged"]} == set()


def test_the_evidence_is_small_and_names_no_machine() -> None:
    texts = [
        path for folder in ("evidence", "spec/amendments") for path in (ROOT / folder).rglob("*") if path.is_file()
    ]
    assert sum(path.stat().st_size for path in texts) < 2.25 * MIB  # of 169 gates
    bare = Redactor(key=b"any")
    assert [(path, rule) for path in texts if path.suffix != ".npy" if (rule := scan(path.read_bytes(), bare))] == []


@pytest.mark.exhaustive
def test_the_commands_of_the_page_run_as_printed() -> None:
    page = (ROOT / "docs" / "why.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Our own evidence\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    (block,) = re.findall(r"^```console\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    typed = [line.removeprefix("$ ") for line in block.splitlines()]
    assert typed.pop() == "make evidence"
    program = f'weighbridge() {{ "{sys.executable}" -m weighbridge "$@"; }}'
    for line in typed:
        ended = subprocess.run(
            ("bash", "-c", f"{program}\n{line}"), cwd=ROOT, check=False, capture_output=True, text=True
        )
        assert ended.returncode in HOLDS, (line, ended.stdout, ended.stderr)


@pytest.mark.slow
def test_nothing_is_measured_on_a_changed_checkout_nor_begun_again_after_a_release(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{ROOT}", str(clone))
    script = (sys.executable, clone / "scripts" / "record_evidence.py")
    git(clone, "tag", "v1.0.0")
    ended = subprocess.run((*script, "--anew"), check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.partition(":")[0]) == (1, "a release is tagged")
    (clone / "README.md").write_text("changed")
    ended = subprocess.run(script, check=False, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr.partition(",")[0]) == (1, "the checkout has changes")
    assert not (clone / "build").exists()


# --- What is red, and what is not -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_byte_that_changed_is_red_everywhere(copy: Cli) -> None:
    bundle = next(Path("evidence/bundles").glob("*-training-run-*"))
    figure = next((bundle / "measurements").glob("step_columns*"))
    figure.write_bytes(figure.read_bytes().replace(b"1", b"2", 1))
    assert copy("evidence", "verify", bundle).code == 1
    assert {verb: ended.code for verb, ended in checked(copy).items()} == {"ledger": 1, "amend": 1}
    assert gates(copy)["GATE-RUN-001"]["status"] == "UNVERIFIED"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["spec/SPEC.md", "spec/amendments/0001-*.md"])
def test_a_status_that_is_typed_is_red(copy: Cli, page: str) -> None:
    (path,) = Path().glob(page)
    path.write_text(path.read_text().replace("| DRAFT | ", "| DRAFT | 1"))
    assert copy("amend", "check").code != 0


@pytest.mark.exhaustive
def test_a_gate_whose_contract_changed_is_stale_by_name_and_nothing_is_red(copy: Cli) -> None:
    contract = Path("contracts/training-run.yaml")
    changed = contract.read_text().replace("min_samples: 30", "min_samples: 29")
    contract.write_text(re.sub(r"^version: .*", "version: 9.0.0", changed, count=1, flags=re.MULTILINE))
    found = gates(copy)
    assert found["GATE-RUN-004"]["stale"] == ["judge part changed: with", "loosened: min_samples was 30, is 29"]
    assert found["GATE-RUN-001"]["stale"] == found["GATE-HEALTH-001"]["stale"] == []
    ended = checked(copy)
    assert (copy("lint").code, ended["ledger"].code in HOLDS, ended["amend"].code) == (0, True, 0)
    assert copy("evidence", "verify", next(Path("evidence/bundles").glob("*-training-run-*"))).code in HOLDS


@pytest.mark.exhaustive
def test_a_gate_whose_kind_has_a_new_version_is_stale_by_name_and_nothing_is_red(
    copy: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = {name: dataclasses.replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    for module in ("evidence.review", "ledger.overview", "judging.requests", "judging.judging"):
        monkeypatch.setattr(f"weighbridge.{module}.KINDS", newer)
    assert all(copy("evidence", "verify", bundle).code == 3 for bundle in Path("evidence/bundles").iterdir())
    assert {verb: ended.code for verb, ended in checked(copy).items()} == {"ledger": 3, "amend": 0}
    assert gates(copy)["GATE-RUN-001"]["stale"][0].startswith("kind changed: judged by step-metrics/")


# --- Frozen -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("bundle", FROZEN, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_frozen_bundle_is_read_for_ever_and_judges_again_to_the_same_bytes(bundle: Path) -> None:
    answers = verify(bundle, Against(now=dt.datetime.now(dt.UTC), given=bundle.name[-12:], anchored=True))
    assert answers.bundle is not None, answers.integrity
    assert answers.integrity.state is State.HOLDS
    moved_on = State.CANNOT_SAY if other_versions(answers.bundle) else State.HOLDS
    assert answers.rederivation.state is moved_on, answers.rederivation


def test_the_format_of_today_is_frozen_in_every_form(ours: Cli) -> None:
    version = PREDICATE_TYPE.rpartition(":")[2]
    bundles = [unseal(path) for path in FROZEN if path.parent.name == version]
    assert {finding.verdict.outcome for bundle in bundles for finding in bundle.findings} >= {
        Outcome.PASS, Outcome.FAIL, Outcome.BLOCKED,
    }  # fmt: skip
    forms = {type(getattr(item, "value", item)) for bundle in bundles for item in bundle.measured.values()}
    assert forms >= {Record, Rows, Series}
    assert {one.sealed for bundle in bundles for one in bundle.statement.companions} == {True, False}
