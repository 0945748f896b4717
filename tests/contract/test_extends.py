from __future__ import annotations

from pathlib import Path

import pytest
from tests.cases import each

from weighbridge.contract.load import LoadedContract, load_contract
from weighbridge.core.errors import ContractError

BASE = """\
weighbridge: contract/v0
id: base
version: 1.0.0
title: Steps are quick
owner: platform
params:
  budget_ms: {type: number, default: 500}
subjects:
  run: {kind: run, path: runs/a}
gates:
  - id: G-1
    title: Quick
    kind: wall-time-budget
    subjects: {run: run}
    where: {tokens_per_step: 2048}
    with: {steps: [20, 49], below_ms: "${params.budget_ms}", min_samples: 30}
    severity: required
    max_age: 30d
    stale_on: [commit]
"""
CHILD = "weighbridge: contract/v0\nid: child\nversion: 1.0.0\nextends: base.yaml\n"
REMEDY = "\n  keep the tighter value, or add `relax: REASON` to the gate"


def loaded(folder: Path, child: str, base: str = BASE) -> LoadedContract:
    (folder / "base.yaml").write_text(base)
    (folder / "child.yaml").write_text(child)
    return load_contract(folder / "child.yaml")


def refusal(folder: Path, child: str, base: str = BASE) -> list[str]:
    with pytest.raises(ContractError) as caught:
        loaded(folder, child, base)
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_a_child_has_what_the_base_has_under_its_own_name(tmp_path: Path) -> None:
    contract = loaded(tmp_path, CHILD).contract
    assert (contract.id, contract.title, contract.owner) == ("child", "Steps are quick", "platform")
    assert contract.gates[0].limits["below_ms"] == 500.0


def test_a_child_may_tighten_a_limit_a_parameter_and_a_condition(tmp_path: Path) -> None:
    gates = "gates:\n  - id: G-1\n    where: {device: cuda, ended: ended}\n    max_age: 7d\n"
    contract = loaded(tmp_path, CHILD + "params: {budget_ms: {default: 400}}\n" + gates).contract
    gate = contract.gates[0]
    assert gate.limits["below_ms"] == 400.0
    assert gate.where == {"tokens_per_step": 2048, "device": "cuda", "ended": "ended"}
    assert gate.max_age_days == 7.0


def test_for_whom_a_gate_is_meant_may_not_be_widened_without_a_reason(tmp_path: Path) -> None:
    base = BASE.replace("    where:", "    when: {ended: early}\n    where:")
    change = "gates:\n  - id: G-1\n    when: {ended: raised}\n"
    assert refusal(tmp_path, CHILD + change, base) == [
        f"child.yaml:7:19: loosened G-1: when ended was early, is raised{REMEDY}"
    ]
    child = loaded(tmp_path, f"{CHILD}{change}    relax: only raised runs are looked into\n", base)
    assert (child.contract.gates[0].when, child.warnings) == ({"ended": "raised"}, ())
    assert refusal(tmp_path, CHILD + "gates:\n  - {id: G-1, when: {steps: 60}}\n", base)


def test_a_child_may_add_gates_and_subjects_after_those_of_the_base(tmp_path: Path) -> None:
    more = """\
subjects:
  copy: {kind: checkpoint}
gates:
  - id: G-2
    title: Same
    kind: byte-identity
    subjects: {source: copy, candidate: copy}
"""
    contract = loaded(tmp_path, CHILD + more).contract
    assert [gate.id for gate in contract.gates] == ["G-1", "G-2"]
    assert list(contract.subjects) == ["run", "copy"]


@each(
    "change, message",
    [
        ("with: {below_ms: 501}", "7:22: loosened G-1: below_ms was 500, is 501"),
        ("with: {min_samples: 29}", "7:25: loosened G-1: min_samples was 30, is 29"),
        ("with: {steps: [0, 49]}", "7:19: loosened G-1: steps was [20, 49], is [0, 49]"),
        ("with: {statistic: mean}", "7:23: loosened G-1: statistic was median, is mean"),
        ("where: {tokens_per_step: 512}", "7:30: loosened G-1: where tokens_per_step was 2048, is 512"),
        ("when: {ended: early}", "7:19: loosened G-1: when ended is new"),
        ("when: {tokens_per_step: 2048}", "7:29: loosened G-1: when tokens_per_step is new"),
        ("measure: {column: step_ms}", "7:23: loosened G-1: measure column was wall_ms, is step_ms"),
        ("severity: advisory", "7:15: loosened G-1: was required, is advisory"),
        ("max_age: 31d", "7:14: loosened G-1: was 30 days, is 31 days"),
        ("stale_on: []", "7:15: loosened G-1: stale_on was [commit], is []"),
        ("max_age: null", "7:14: loosened G-1: was 30 days, is unlimited"),
        ("where: {ended: raised}", "7:20: loosened G-1: where ended is new"),
        ("where: {last_step: 49}", "7:24: loosened G-1: where last_step is new"),
        ("where: {torn_last_line: 50}", "7:29: loosened G-1: where torn_last_line is new"),
    ],
)
def test_what_is_looser_needs_a_reason_beside_it(tmp_path: Path, change: str, message: str) -> None:
    child = CHILD + f"gates:\n  - id: G-1\n    {change}\n"
    assert refusal(tmp_path, child) == [f"child.yaml:{message}{REMEDY}"]
    assert loaded(tmp_path, child + "    relax: the new fleet is slower\n").warnings == ()


@pytest.mark.parametrize(
    ("subject", "message"),
    [
        ("columns: {wall_ms: fast_ms}", "5:27: loosened G-1: columns of run were {}, are {wall_ms: fast_ms}"),
        ("path: runs/fast", "5:24: loosened G-1: run was {path: runs/a}, is {path: runs/fast}"),
        ("path: '', for_each: fast-*", "5:38: loosened G-1: run was {path: runs/a}, is {for_each: fast-*}"),
    ],
)
def test_a_gate_that_looks_elsewhere_needs_a_reason(tmp_path: Path, subject: str, message: str) -> None:
    child = CHILD + f"subjects: {{run: {{{subject}}}}}\n"
    assert refusal(tmp_path, child) == [f"child.yaml:{message}{REMEDY}"]
    relaxed = child + "gates:\n  - id: G-1\n    relax: the new logger has another name for it\n"
    assert loaded(tmp_path, relaxed).warnings == ()


def test_the_same_path_from_another_folder_is_no_other(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text(BASE)
    for path in ("", "path: ../runs/a"):
        child = CHILD.replace("base.yaml", "../base.yaml") + f"subjects: {{run: {{{path}}}}}\n"
        (tmp_path / "deep" / "c.yaml").write_text(child)
        assert load_contract(tmp_path / "deep" / "c.yaml").contract.subjects["run"].path == "../runs/a"


def test_a_first_path_only_spares_a_binding(tmp_path: Path) -> None:
    base = BASE.replace(", path: runs/a", "")
    assert loaded(tmp_path, CHILD + "subjects: {run: {path: runs/a}}\n", base).contract.subjects["run"].path


def test_a_parameter_that_loosens_is_reported_where_its_value_is_given(tmp_path: Path) -> None:
    child = CHILD + "params: {budget_ms: {default: 600}}\n"
    assert refusal(tmp_path, child) == [
        ("child.yaml:5:31: loosened G-1: below_ms was 500, is 600\n"
        "  keep the tighter value, or add `relax: REASON` to the gate")
    ]  # fmt: skip


FREE = BASE.replace("default: 500}", "default: 500, free: true}")
PLAIN = CHILD + "params: {budget_ms: 600}\n"


def test_a_plain_value_gives_a_parameter_another_default(tmp_path: Path) -> None:
    contract = loaded(tmp_path, PLAIN.replace("600", "400")).contract
    assert (contract.params, contract.overridden) == ({"budget_ms": 400}, ())
    assert contract.gates[0].limits["below_ms"] == 400.0


def test_a_free_parameter_may_be_set_either_way_and_any_other_needs_a_reason(tmp_path: Path) -> None:
    assert loaded(tmp_path, PLAIN, FREE).contract.gates[0].limits["below_ms"] == 600.0
    assert refusal(tmp_path, PLAIN) == [f"child.yaml:5:21: loosened G-1: below_ms was 500, is 600{REMEDY}"]


def test_a_free_parameter_excuses_no_limit_beside_it(tmp_path: Path) -> None:
    limit = "gates:\n  - id: G-1\n    with: {below_ms: 700}\n"
    assert refusal(tmp_path, PLAIN + limit, FREE) == [
        f"child.yaml:8:22: loosened G-1: below_ms was 600, is 700{REMEDY}",
    ]


def test_only_the_contract_that_declares_a_parameter_makes_it_free(tmp_path: Path) -> None:
    child = CHILD + "params: {budget_ms: {free: true}}\n"
    printed = "child.yaml:5:28: loosened the parameter budget_ms is free, and was not\n  delete free"
    assert refusal(tmp_path, child) == [printed]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("{budget: 400}", "5:10: unknown-param 'budget' is no parameter of base.yaml; did you mean 'budget_ms'?"),
        ("{budget_ms: fast}", "5:21: wrong-type the default of 'budget_ms' is not of the type number"),
        ("{budget_ms: -1}", "5:21: out-of-bounds -1.0 is not > 0"),
    ],
)
def test_a_value_that_cannot_be_is_reported_where_it_is_given(tmp_path: Path, params: str, message: str) -> None:
    printed = refusal(tmp_path, CHILD + f"params: {params}\n")
    assert printed[0] == f"child.yaml:{message}"


def test_a_plain_value_without_a_base_hears_how_a_parameter_is_declared(tmp_path: Path) -> None:
    printed = refusal(tmp_path, BASE.replace("{type: number, default: 500}", "500"))
    remedy = "declare it: {type: string, default: VALUE}; a plain value is for a contract that extends another one"
    assert f"child.yaml:7:14: wrong-type 500 is not a mapping\n  {remedy}" in printed


def test_a_shipped_contract_takes_its_policy_in_one_line(tmp_path: Path) -> None:
    shipped = CHILD.replace("base.yaml", "builtin:model-import")
    contract = loaded(tmp_path, shipped + "params: {policy: ROUNDED:f16}\n").contract
    assert (contract.gates[0].limits["policy"], contract.overridden) == ("rounded:F16", ())
    (printed,) = refusal(tmp_path, shipped + "params: {policy: bf16}\n")
    assert printed.startswith("child.yaml:5:18: unknown-choice 'bf16' is not same, lossless, ")
    assert printed.endswith("; did you mean 'rounded:BF16'?")


@each("reason", ["''", "' '", "x", "slow", "'                         x'", "nineteen letters ok"])
def test_a_reason_for_being_looser_has_twenty_letters(tmp_path: Path, reason: str) -> None:
    child = CHILD + f"gates:\n  - id: G-1\n    with: {{below_ms: 600}}\n    relax: {reason}\n"
    assert any("bad-form" in one and "a reason of at least 20 letters" in one for one in refusal(tmp_path, child))
    twenty = child.replace(f"relax: {reason}", "relax: twenty letters of it")
    assert loaded(tmp_path, twenty).contract.gates[0].limits["below_ms"] == 600


@each(
    "change, said",
    [
        ("binds: []", "7:12: loosened G-1: binds was [AC-1, AC-2], is []"),
        ("binds: [AC-2]", "7:12: loosened G-1: binds was [AC-1, AC-2], is [AC-2]"),
        ("binds: [AC-3]", "7:12: loosened G-1: binds was [AC-1, AC-2], is [AC-3]"),
        ("depends_on: []", "7:17: loosened G-1: depends_on was [G-0], is []"),
    ],
)
def test_what_a_gate_proves_and_builds_on_is_not_dropped_without_a_reason(
    tmp_path: Path, change: str, said: str
) -> None:
    head, gates, rest = BASE.partition("gates:\n")
    zero = f"{gates}  - id: G-0\n    title: Before\n    kind: wall-time-budget\n    subjects: {{run: run}}\n"
    zero += "    where: {tokens_per_step: 2048}\n    with: {steps: [20, 49], below_ms: 500, min_samples: 30}\n"
    base = head + zero + rest.replace("    severity", "    binds: [AC-1, AC-2]\n    depends_on: [G-0]\n    severity")
    child = CHILD + f"gates:\n  - id: G-1\n    {change}\n"
    assert refusal(tmp_path, child, base) == [f"child.yaml:{said}{REMEDY}"]
    loaded(tmp_path, f"{child}    relax: the criterion was taken back\n", base)
    more = child.replace(change, "binds: [AC-1, AC-2, AC-3]")
    assert loaded(tmp_path, more, base).contract.gates[1].binds == ("AC-1", "AC-2", "AC-3")


def test_a_reason_excuses_no_further_loosening_down_the_line(tmp_path: Path) -> None:
    loaded(tmp_path, CHILD + "gates:\n  - id: G-1\n    with: {below_ms: 600}\n    relax: the new fleet is slower\n")
    grandchild = CHILD.replace("base.yaml", "child.yaml").replace("id: child", "id: grandchild")
    (tmp_path / "g.yaml").write_text(grandchild + "gates:\n  - id: G-1\n    with: {below_ms: 700}\n")
    with pytest.raises(ContractError, match="below_ms was 600, is 700"):
        load_contract(tmp_path / "g.yaml")


def test_a_problem_is_reported_in_the_file_where_it_is_written(tmp_path: Path) -> None:
    base = BASE.replace("severity: required", "severty: required")
    assert refusal(tmp_path, CHILD, base) == [
        "base.yaml:17:5: unknown-key unknown key 'severty'; did you mean 'severity'?"
    ]
    assert refusal(tmp_path, CHILD + "gates:\n  - id: G-1\n    with: {below: 400}\n")[0].startswith("child.yaml:7:12: ")


def test_an_override_is_compared_with_nothing_and_recorded(tmp_path: Path) -> None:
    loaded(tmp_path, CHILD)
    contract = load_contract(tmp_path / "child.yaml", {"budget_ms": "9000"}).contract
    assert contract.gates[0].limits["below_ms"] == 9000.0
    assert contract.overridden == ("budget_ms",)


def test_paths_of_the_base_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.yaml").write_text(BASE)
    (tmp_path / "child.yaml").write_text(CHILD.replace("base.yaml", "shared/base.yaml"))
    assert load_contract(tmp_path / "child.yaml").contract.subjects["run"].path == "shared/runs/a"


def test_a_base_may_have_no_gates(tmp_path: Path) -> None:
    gates, subjects = BASE[BASE.index("gates:") :], "subjects:\n  run: {kind: run}\n"
    assert loaded(tmp_path, f"{CHILD}{subjects}{gates}", BASE[: BASE.index("gates:")]).contract.gates[0].id == "G-1"


def test_a_shipped_contract_can_be_extended(tmp_path: Path) -> None:
    contract = loaded(tmp_path, CHILD.replace("base.yaml", "builtin:checkpoint-import")).contract
    assert (contract.id, contract.gates[0].id) == ("child", "GATE-IMPORT-001")


@pytest.mark.parametrize(
    ("extends", "message"),
    [
        ("no.yaml", "child.yaml:4:10: file-missing no.yaml: no such file\n  check the path"),
        ("builtin:no", ("child.yaml:4:10: unknown-builtin builtin:no: no contract 'no' ships with weighbridge; known: "
         "checkpoint-health, checkpoint-import, diagnostics, forward-parity, model-import, pretraining, "
         "recorded-parity, training-log, training-run")),
        ("child.yaml", ("child.yaml:4:10: extends-itself child.yaml: it extends itself in turn, or is the last of more "
         "than 8\n  extend a contract that stands on its own")),
    ],
)  # fmt: skip
def test_what_cannot_be_extended_is_reported_where_it_is_named(tmp_path: Path, extends: str, message: str) -> None:
    assert refusal(tmp_path, CHILD.replace("base.yaml", extends)) == [message]


def chain(folder: Path, length: int) -> Path:
    """Write a contract that extends `length` others in turn."""
    for number in range(length):
        (folder / f"c{number}.yaml").write_text(CHILD.replace("base.yaml", f"c{number + 1}.yaml"))
    (folder / f"c{length}.yaml").write_text(BASE)
    return folder / "c0.yaml"


def test_eight_contracts_may_be_extended_in_turn_and_no_more(tmp_path: Path) -> None:
    assert load_contract(chain(tmp_path, 8)).contract.gates[0].id == "G-1"
    with pytest.raises(ContractError) as caught:
        load_contract(chain(tmp_path, 9))
    assert caught.value.code == "extends-itself"
    assert caught.value.where == f"{tmp_path}/c8.yaml:4:10"


def test_a_misspelt_gate_of_the_base_is_named_with_the_gate_that_was_meant_and_nothing_else_is_said_of_it(
    tmp_path: Path,
) -> None:
    other = "  - {id: G-2, kind: wall-time-budgets, title: T, subjects: {run: run}, with: {below_ms: 1}}\n"
    assert refusal(tmp_path, f"{CHILD}gates:\n  - id: G-11\n    with: {{below_ms: 1}}\n{other}") == [
        "child.yaml:6:5: unknown-gate base.yaml has no gate 'G-11'; did you mean 'G-1'?\n"
        "  name one of its gates, or give kind, title and subjects of your own",
        "child.yaml:8:21: unknown-kind there is no gate kind 'wall-time-budgets'; did you mean 'wall-time-budget'?",
    ]
