from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.contract.load import LoadedContract, builtin_names, load_contract, reused
from weighbridge.contract.resolved import digests
from weighbridge.core.errors import ContractError
from weighbridge.core.limits import read
from weighbridge.core.model import GateDecl, Severity, SubjectKind
from weighbridge.gates import KINDS

WHOLE = """\
weighbridge: contract/v0
id: import
version: 1.0.0
title: An import keeps its source
owner: platform
params:
  policy: {type: string, default: lossless}
  glob: {type: string, default: lm_head}
subjects:
  source: {kind: checkpoint, path: models/source.safetensors}
  copy: {kind: checkpoint, for_each: "models/*.gguf"}
gates:
  - id: G-1
    title: Nothing but ${params.glob}* may go
    kind: dtype-preservation
    subjects: {source: source, candidate: copy}
    with: {policy: "${params.policy}", allow_missing: ["${params.glob}*"]}
    binds: [AC-1]
    max_age: 30d
"""


def written(folder: Path, text: str, name: str = "c.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def refusal(name: str, overrides: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(ContractError) as caught:
        load_contract(name, overrides or {})
    assert caught.value.exit_code == 2
    return [re.sub(r"^\S*/", "", str(problem)) for problem in caught.value.problems]


def test_a_contract_is_resolved_with_limits_and_defaults_written_out(tmp_path: Path) -> None:
    loaded = load_contract(written(tmp_path, WHOLE))
    contract = loaded.contract
    assert (contract.id, contract.version, contract.owner) == ("import", "1.0.0", "platform")
    assert contract.params == {"policy": "lossless", "glob": "lm_head"}
    assert contract.overridden == ()
    assert contract.subjects["source"].path == "models/source.safetensors"
    assert contract.subjects["copy"].for_each == "models/*.gguf"
    assert contract.subjects["copy"].kind is SubjectKind.CHECKPOINT
    assert contract.gates == (
        GateDecl(
            id="G-1",
            kind="dtype-preservation",
            title="Nothing but lm_head* may go",
            subjects={"source": "source", "candidate": "copy"},
            limits={
                "policy": "lossless",
                "allow": [],
                "allow_missing": ["lm_head*"],
                "allow_extra": [],
                "may_ignore": [],
            },
            measure={"headers": False, "map": "auto", "names": {}, "rename": [], "make": []},
            severity=Severity.REQUIRED,
            binds=("AC-1",),
            max_age_days=30.0,
        ),
    )
    assert loaded.source == WHOLE.encode()
    assert loaded.warnings == ()


def test_every_gate_and_limit_knows_its_line(tmp_path: Path) -> None:
    loaded = load_contract(written(tmp_path, WHOLE))
    gate, limit = loaded.gate_at("G-1"), loaded.layered.found(("gates", 0, "with", "policy"), "", "")
    assert (gate.line, gate.column) == (13, 5)
    assert (limit.line, limit.column) == (17, 20)


def test_the_limits_of_a_resolved_gate_read_back_the_same(tmp_path: Path) -> None:
    gate = load_contract(written(tmp_path, WHOLE)).contract.gates[0]
    kind = KINDS[gate.kind]
    assert read(kind.limits, gate.limits).allow_missing == ("lm_head*",)


def test_an_empty_contract_is_a_contract(tmp_path: Path) -> None:
    head = "weighbridge: contract/v0\nid: empty\nversion: 1.0.0\ntitle: Nothing\nowner: nobody\n"
    assert load_contract(written(tmp_path, head)).contract.gates == ()
    assert load_contract(written(tmp_path, head + "gates: []\n")).contract.gates == ()


def test_all_problems_are_reported_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = """\
weighbridge: contract/v0
id: My_Import
version: 1.10
title: x
owner: y
status: DISCHARGED
subjects:
  a: {kind: checkpoint, path: /x}
  b: {kind: run}
  c: {kind: command, path: x}
gates:
  - id: G-1
    titel: t
    kind: dtype-preservaton
    subjects: {source: a, candidate: a}
  - id: g-1
    title: t
    kind: dtype-preservation
    subjects: {sorce: a, candidate: b}
    with: {polcy: same, allow_missing: x}
    where: {n: 017}
    depends_on: [G-2]
    severty: advisory
    requires: {cuda: true}
  - id: G-3
    title: "${params.x}"
    kind: byte-identity
    subjects: {source: aa, candidate: c}
    verdict: pass
"""
    assert refusal(written(tmp_path, text)) == [
        "c.yaml:2:5: bad-form 'My_Import' is not lower-case words joined by hyphens",
        'c.yaml:3:10: wrong-type 1.1 is not a text\n  quote it, and give three parts: "1.10.0"',
        ("c.yaml:6:1: typed-status a status is never written by hand: 'status' is computed from the ledger\n"
        "  delete the key; see `weighbridge status`"),
        "c.yaml:8:31: absolute-path '/x' is not relative to this file\n  bind it with --subject a=PATH",
        ("c.yaml:10:22: executed-path a command runs only when the person at the keyboard names it\n"
        "  bind it with --subject c=…"),
        "c.yaml:13:5: unknown-key unknown key 'titel'; did you mean 'title'?",
        "c.yaml:14:11: unknown-kind there is no gate kind 'dtype-preservaton'; did you mean 'dtype-preservation'?",
        "c.yaml:16:9: doubled-gate the gate 'g-1' is there twice, first in line 12\n  give every gate an id of its own",
        "c.yaml:19:16: unknown-role dtype-preservation has no role 'sorce'; did you mean 'source'?",
        "c.yaml:19:37: subject-kind 'b' is a run, the role 'candidate' takes a checkpoint",
        "c.yaml:20:12: unknown-key unknown key 'polcy'; did you mean 'policy'?",
        "c.yaml:20:40: wrong-type 'x' is not a list\n  begin each item with `- `, or write [A, B]",
        ("c.yaml:21:16: yaml-leading-zero the number 017 has a leading zero\n"
        "  delete the zero, or quote it if a text is meant"),
        "c.yaml:22:18: unknown-gate there is no gate 'G-2'; did you mean 'G-3'?",
        "c.yaml:23:5: unknown-key unknown key 'severty'; did you mean 'severity'?",
        "c.yaml:24:5: requires-on-record dtype-preservation judges what is recorded, on any host\n  delete requires",
        ("c.yaml:26:12: unresolved '${params.x}' refers to no parameter\n"
        "  write ${params.NAME} for a name under params:"),
        "c.yaml:28:24: unknown-subject there is no subject 'aa'; did you mean 'a'?",
        "c.yaml:28:39: subject-kind 'c' is a command, the role 'candidate' takes a checkpoint",
        ("c.yaml:29:5: typed-status a status is never written by hand: 'verdict' is computed from the ledger\n"
        "  delete the key; see `weighbridge status`"),
    ]  # fmt: skip


def test_a_key_of_yaml_1_1_is_reported_as_the_key_that_it_is(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, WHOLE + "on: push\n"))[0].startswith("c.yaml:20:1: unknown-key unknown key 'on'")


def test_a_gate_without_a_kind_is_reported_once(tmp_path: Path) -> None:
    text = WHOLE.replace("    kind: dtype-preservation\n", "")
    printed = "c.yaml:13:5: missing-key missing key 'kind'\n  name its kind; `weighbridge explain` lists them"
    assert refusal(written(tmp_path, text)) == [printed]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "c.yaml:1:1: wrong-type the document is not a mapping"),
        ("just words", "c.yaml:1:1: wrong-type the document is not a mapping"),
        ("weighbridge: contract/v9", "c.yaml:1:1: missing-key missing key 'id'"),
        ("gates: 3", "c.yaml:1:1: missing-key missing key 'id'"),
    ],
)
def test_another_document_is_refused(tmp_path: Path, text: str, message: str) -> None:
    assert refusal(written(tmp_path, text))[0].splitlines()[0] == message


# --- Bad files --------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(str(tmp_path / "no.yaml")) == ["no.yaml: file-missing no such file\n  check the path"]


def test_a_directory_is_no_contract(tmp_path: Path) -> None:
    (tmp_path / "d.yaml").mkdir()
    message = "d.yaml: file-kind a directory, not a regular file\n  give a regular file"
    assert refusal(str(tmp_path / "d.yaml")) == [message]


def test_a_fifo_is_no_contract_and_nothing_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "f.yaml")
    assert refusal(str(tmp_path / "f.yaml")) == ["f.yaml: file-kind a FIFO, not a regular file\n  give a regular file"]


def test_an_empty_file_is_no_contract(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, "")) == ["c.yaml:1:1: yaml-empty nothing in it\n  write the document"]


def test_a_binary_file_is_no_contract(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_bytes(b"\x80\x00\x01GGUF")
    assert refusal(str(tmp_path / "b.yaml"))[0].startswith("b.yaml:1:1: yaml-encoding byte 0x80 at offset 0")


def test_a_file_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "l.yaml").open("wb") as file:
        file.truncate(1 << 40)
    assert refusal(str(tmp_path / "l.yaml")) == ["l.yaml: file-size more than 1048576 bytes\n  give a smaller file"]


def test_deep_nesting_is_one_error(tmp_path: Path) -> None:
    assert refusal(written(tmp_path, "gates: " + "[" * 100_000)) == [
        "c.yaml:1:71: yaml-depth nested deeper than 64\n  flatten it"
    ]


# --- The shipped contracts --------------------------------------------------------------------------------------------


def test_the_starter_contracts_ship() -> None:
    assert builtin_names() == (
        "checkpoint-health",
        "checkpoint-import",
        "diagnostics",
        "forward-parity",
        "model-import",
        "pretraining",
        "recorded-parity",
        "training-log",
        "training-run",
    )


def test_an_unknown_builtin_is_answered_with_the_nearest() -> None:
    message = "unknown-builtin no contract 'chekpoint-import' ships with weighbridge; did you mean 'checkpoint-import'?"
    assert refusal("builtin:chekpoint-import") == [message]


@pytest.mark.parametrize("name", builtin_names())
def test_a_shipped_contract_loads_without_a_warning_and_binds_no_path(name: str) -> None:
    loaded = load_contract(f"builtin:{name}")
    assert loaded.contract.id == name
    assert loaded.warnings == ()
    assert not any(subject.path or subject.for_each for subject in loaded.contract.subjects.values())


def test_loading_contracts_imports_nothing_heavy() -> None:
    program = (
        "import sys; from weighbridge.contract.load import load_contract;"
        "load_contract('builtin:checkpoint-import');"
        "print(sorted({'torch', 'numpy', 'gguf', 'jsonschema', 'rich', 'hypothesis'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# --- Any damage -------------------------------------------------------------------------------------------------------

JUNK: st.SearchStrategy[Any] = st.sampled_from(
    ["", "null", "3", "-1.5", "x", "[]", "[1]", "{}", "{a: b}", "${params.no}"]
)


@pytest.mark.slow
@given(line=st.integers(0, WHOLE.count("\n") - 1), junk=JUNK)
def test_any_value_replaced_is_read_or_refused_with_a_place(tmp_path: Path, line: int, junk: str) -> None:
    lines = WHOLE.splitlines()
    lines[line] = lines[line].partition(":")[0] + ": " + junk
    name = written(tmp_path, "\n".join(lines))
    try:
        load_contract(name)
    except ContractError as error:
        assert all(re.search(r":\d+:\d+$", problem.where) for problem in error.problems), str(error)


# --- One id and version -----------------------------------------------------------------------------------------------


HEAD = "weighbridge: contract/v0\nid: c\nversion: 1.0.0\ntitle: {}\nowner: o\n"


def loaded(folder: Path, name: str, title: str) -> tuple[LoadedContract, str]:
    (folder / name).write_text(HEAD.format(title))
    contract = load_contract(folder / name)
    return contract, digests(contract.contract).whole


def test_one_id_and_version_with_two_contents_is_reported_at_the_version(tmp_path: Path) -> None:
    first, second = loaded(tmp_path, "a.yaml", "one"), loaded(tmp_path, "b.yaml", "two")
    assert [str(found).replace(f"{tmp_path}/", "") for found in reused([first, second], {})] == [
        "b.yaml:3:10: reused-version c 1.0.0 has another content in a.yaml\n  raise the version"
    ]


def test_a_copy_with_other_comments_is_the_same_content(tmp_path: Path) -> None:
    first = loaded(tmp_path, "a.yaml", "one")
    second = loaded(tmp_path, "b.yaml", "one # more")
    assert list(reused([first, second], {})) == []


def test_a_version_that_the_ledger_knows_with_another_content_is_reported(tmp_path: Path) -> None:
    one = loaded(tmp_path, "a.yaml", "one")
    assert list(reused([one], {("c", "1.0.0"): {one[1]}})) == []
    (found,) = reused([one], {("c", "1.0.0"): {"0" * 64}})
    assert found.what == "c 1.0.0 has another content in the ledger"
