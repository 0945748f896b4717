"""A contract with rules in prose: what maps to a gate with certainty, what does not and why, and that it lints."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from import_contract.foreign import drafted
from tests.cli.conftest import Cli, cli

from weighbridge.contract.load import load_contract, read_contract
from weighbridge.contract.strict_yaml import load
from weighbridge.core import plugins

__all__ = ["cli"]

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "import_contract"


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the example with its entry points, from where it lies."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    about = tmp_path_factory.mktemp("site") / "example.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = ((f"[{group}]", *map(" = ".join, found.items())) for group, found in project["entry-points"].items())
    (about / "entry_points.txt").write_text("\n".join(line for group in groups for line in group))
    monkeypatch.syspath_prepend(about.parent)
    plugins.entry_points.cache_clear()
    yield
    plugins.entry_points.cache_clear()
    plugins._LOADED.clear()


OTHER = """\
contract_id: C-DEMO-DEVICE
version: 1.6.0
status: PROPOSED
metadata:
  version: "1.6.0"
  author: Some Team
  description: >
    A device that was asked for
    is the one that trains.
device_dispatch: {grammar: "^(cpu|auto)$"}
invariants:
  - id: INV-DEMO-001
    description: No silent fallback.
    falsifier: Ask for a device that is not there, and look at the exit code.
gates:
  - id: GATE-DEMO-001
    rule: "The grammar holds: ${HOME} is no device"
    verdict: pass
    binds_to: AC-DEMO-003
    harness_discharged_by:
      - "crates/demo/src/device.rs::tests::falsify_demo_001_accepts_cpu"
      - "crates/demo/src/device.rs::tests::falsify_demo_001_rejects_typo"
  - id: GATE-DEMO-002
    rule: A build says what it can do.
    command: apr --version --json
falsification_tests:
  - id: FALSIFY-DEMO-001
    rule: "1e-5"
    test: cargo test -p demo --lib -- falsify_demo_002 --exact
    if_fails: the grammar grew
  - {id: FALSIFY-DEMO-002, rule: twice, test: "cargo test -p demo | grep ok"}
  - {id: FALSIFY-DEMO-003, rule: prose, test: Train twice and compare.}
  - {id: GATE-DEMO-001, rule: again, test: cargo test again}
"""


def test_what_maps_is_written_and_what_does_not_is_reported_with_its_line(cli: Cli, workplace: Path) -> None:
    (workplace / "other.yaml").write_text(OTHER)
    ended = cli("import-contract", "other.yaml", "-o", "draft.yaml")
    assert (ended.code, ended.err) == (0, "")
    assert ended.lines == [
        "other.yaml:1:1: maps: contract_id to id",
        "other.yaml:2:1: maps: version to version",
        "other.yaml:3:1: does not map: status: a status is computed from the ledger",
        "other.yaml:5:3: does not map: version: the draft has another",
        "other.yaml:6:3: maps: metadata.author to owner",
        "other.yaml:7:3: maps: metadata.description to title",
        "other.yaml:10:1: does not map: device_dispatch: prose or data, which no gate reads",
        "other.yaml:12:5: does not map: INV-DEMO-001: it names no command and no test; its rule is prose",
        "other.yaml:16:5: maps: GATE-DEMO-001 to test-report of 'cargo-test'",
        "other.yaml:18:5: does not map: GATE-DEMO-001: verdict: a status is computed from the ledger",
        "other.yaml:23:5: maps: GATE-DEMO-002 to command-succeeds of 'apr'",
        "other.yaml:27:5: maps: FALSIFY-DEMO-001 to test-report of 'cargo-test-p-demo-lib'",
        "other.yaml:31:5: does not map: FALSIFY-DEMO-002: test: needs a shell: put it into a script, and bind that",
        "other.yaml:32:5: does not map: FALSIFY-DEMO-003: test: may be prose; it begins with no test runner",
        "other.yaml:33:5: does not map: GATE-DEMO-001: a gate of this id is there already",
        "gates: 3; 7 places map, 8 do not",
        "bind by hand: --subject cargo-test=… --subject apr=… --subject cargo-test-p-demo-lib=…",
    ]
    loaded = load_contract("draft.yaml")
    assert loaded.warnings == ()
    gates = {gate.id: gate for gate in loaded.contract.gates}
    assert (loaded.contract.id, loaded.contract.version) == ("c-demo-device", "1.6.0")
    assert gates["GATE-DEMO-001"].title == "The grammar holds: $ {HOME} is no device"
    assert gates["GATE-DEMO-001"].binds == ("AC-DEMO-003",)
    assert gates["GATE-DEMO-001"].limits == {
        "tests": ["tests::falsify_demo_001_accepts_cpu", "tests::falsify_demo_001_rejects_typo"], "at_least": 2,
    }  # fmt: skip
    assert (gates["FALSIFY-DEMO-001"].title, gates["FALSIFY-DEMO-001"].why) == ("1e-5", "the grammar grew")
    assert gates["FALSIFY-DEMO-001"].limits["tests"] == ["falsify_demo_002"]
    limits: Any = gates["GATE-DEMO-002"].limits
    assert [case["args"] for case in limits["cases"]] == [["--version", "--json"]]
    assert cli("verify", "draft.yaml").code == 3  # nothing is bound, and nothing ran


def test_a_draft_that_is_there_already_is_kept_and_without_a_name_it_is_printed(cli: Cli, workplace: Path) -> None:
    (workplace / "other.yaml").write_text(OTHER)
    printed = cli("import-contract", "other.yaml")
    assert read_contract(printed.out.encode(), "printed", {})[0] == "c-demo-device"
    assert printed.err.splitlines()[-2] == "gates: 3; 7 places map, 8 do not"
    (workplace / "draft.yaml").write_text("mine")
    assert cli("import-contract", "other.yaml", "-o", "draft.yaml").code == 2
    assert (workplace / "draft.yaml").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "code"),
    [("a: [1", "yaml-syntax"), ("- a", "foreign-form"), ("", "yaml-empty"), ("a: \x00", "yaml-character")],
)
def test_what_is_no_contract_at_all_is_2(cli: Cli, workplace: Path, text: str, code: str) -> None:
    (workplace / "other.yaml").write_text(text)
    ended = cli("import-contract", "other.yaml", "-o", "draft.yaml")
    assert (ended.code, code in ended.err, Path("draft.yaml").exists()) == (2, True, False)


def test_yaml_that_we_would_not_read_twice_alike_does_not_map_and_keeps_nothing_else_back(
    cli: Cli, workplace: Path
) -> None:
    (workplace / "other.yaml").write_text(OTHER.replace("version: 1.6.0", "version: &v 1.6.0"))
    ended = cli("import-contract", "other.yaml", "-o", "draft.yaml")
    assert (ended.code, ended.lines[0]) == (0, "other.yaml:2:10: does not map: the anchor &v is not allowed")
    assert len(load_contract("draft.yaml").contract.gates) == 3


def test_the_verb_is_listed_with_its_package(cli: Cli) -> None:
    assert "import-contract" in cli("--help").out
    assert "verb import-contract weighbridge-import-contract 1.0.0" in cli("doctor").out


@pytest.mark.parametrize(
    ("line", "tests", "subject"),
    [
        ("cargo test", ["*"], "cargo-test"),
        ("cargo test falsify_", ["*falsify_*"], "cargo-test"),
        ("cargo test -p a-b --test cli -- one two", ["*one*", "*two*"], "cargo-test-p-a-b-test-cli"),
        ("pytest tests/test_a.py::test_b a.py::TestC::test_d", ["tests.test_a::test_b", "a.TestC::test_d"], "pytest"),
        ("cargo test -- --ignored", None, "--ignored"),
        ("cargo test --package", None, "--package"),
        ("pytest -k gpu", None, "only file.py::test is read"),
        ("pytest 'tests/test_a.py::test_b[cpu]'", None, "only file.py::test is read"),
        ("cargo test 'a b'", None, "a b"),
        ("cargo test && rm -r x", None, "needs a shell"),
        ("cargo test 'a", None, "not closed"),
        ("make test", None, "prose"),
    ],
)
def test_only_lines_that_certainly_choose_these_tests_map(line: str, tests: list[str] | None, subject: str) -> None:
    given: Any = {"gates": [{"id": "G-1", "test": line}]}
    draft = drafted(load(json.dumps(given), "other.yaml"), "other")
    found = [gate["with"]["tests"] for gate in draft.gates]
    assert found == ([] if tests is None else [tests])
    assert subject in (draft.lines[-1].what if tests is None else " ".join(draft.subjects))
