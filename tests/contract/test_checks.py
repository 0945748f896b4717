from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cases import each

from weighbridge.contract.document import REQUIREMENT
from weighbridge.contract.load import load_contract
from weighbridge.core.errors import ContractError
from weighbridge.core.limits import fields
from weighbridge.quantities.facts import Host

HEAD = """\
weighbridge: contract/v0
id: c
version: 1.0.0
title: t
owner: o
subjects:
  run: {kind: run}
  a: {kind: checkpoint}
  b: {kind: checkpoint}
"""
TIME = """\
gates:
  - id: G-1
    title: t
    kind: wall-time-budget
    subjects: {run: run}
    where: {tokens_per_step: 2048}
    with: {steps: [20, 49], below_ms: 500, min_samples: 30}
"""
SAME = """\
  - id: G-2
    title: t
    kind: byte-identity
    subjects: {source: a, candidate: b}
"""


def told(folder: Path, text: str) -> list[str]:
    """Lint a text, and give what is said about it, errors or else warnings."""
    (folder / "c.yaml").write_text(text)
    try:
        found = map(str, load_contract(folder / "c.yaml").warnings)
    except ContractError as error:
        found = map(str, error.problems)
    return [line.replace(f"{folder}/", "") for line in found]


def test_a_contract_in_order_hears_nothing(tmp_path: Path) -> None:
    assert told(tmp_path, HEAD + TIME + SAME) == []


@each(
    "old, new, message",
    [
        (
            "min_samples: 30",
            "min_samples: 31",
            "c.yaml:16:11: inconsistent-limits min_samples: 31 samples cannot come from a window of 30 steps",
        ),
        (
            "steps: [20, 49]",
            "steps: [49, 20]",
            "c.yaml:16:11: inconsistent-limits steps: the window ends at 20, before it begins at 49",
        ),
        ("below_ms: 500", "below_ms: 1e308", "c.yaml:16:39: out-of-bounds 1e+308 is not ≤ 1e+07"),
        (
            "below_ms: 500",
            "below_ms: 1e-5, statistic: medain",
            "c.yaml:16:56: unknown-choice 'medain' is not one of median, mean, max; did you mean 'median'?",
        ),
        (
            "    where: {tokens_per_step: 2048}\n",
            "",
            ("c.yaml:11:5: warning: time-without-where a time is measured on whatever shape the run had\n"
            "  say the shape that the budget is for, such as where: {tokens_per_step: 2048}"),
        ),
        (
            "candidate: b}",
            "candidate: a}",
            "c.yaml:9:3: warning: unused-subject no gate looks at the subject 'b'\n  delete it, or use it",
        ),
        (
            "subjects: {source: a, candidate: b}",
            "subjects: {source: b}",
            ("c.yaml:20:15: missing-role nothing fills the role 'candidate' of byte-identity\n"
            "  add candidate: NAME, for a subject of kind checkpoint"),
        ),
        (
            "subjects: {run: run}",
            "subjects: {run: run, extra: a}",
            "c.yaml:14:26: unknown-role wall-time-budget has no role 'extra'; known: run",
        ),
        (
            "subjects: {run: run}",
            "subjects: {run: rnu}",
            "c.yaml:14:21: unknown-subject there is no subject 'rnu'; did you mean 'run'?",
        ),
        (
            "a: {kind: checkpoint}",
            "a: {kind: checkpoint, path: x, for_each: y}",
            "c.yaml:8:34: path-and-glob 'a' has both path and for_each\n  keep one of the two",
        ),
        (
            "a: {kind: checkpoint}",
            "a: {kind: checkpoint, for_each: ~/x}",
            "c.yaml:8:35: absolute-path '~/x' is not relative to this file\n  bind it with --subject a=PATH",
        ),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t\n    depends_on: [G-2]\n    kind: byte-identity",
            "c.yaml:19:5: circular-gate 'G-2' needs 'G-2': a circle\n  delete one of the dependencies",
        ),
        (
            "version: 1.0.0",
            "version: 01.0.0",
            "c.yaml:3:10: bad-form '01.0.0' is not three numbers, such as 1.0.0",
        ),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t\n    max_age: 30\n    kind: byte-identity",
            'c.yaml:19:14: wrong-type 30 is not a text\n  quote it, with its unit: "30d"',
        ),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t\n    depends_on: G-1\n    kind: byte-identity",
            "c.yaml:19:17: wrong-type 'G-1' is not a list\n  begin each item with `- `, or write [A, B]",
        ),
        (
            "below_ms: 500",
            "below_ms: '500'",
            "c.yaml:16:39: wrong-type '500' is not a number\n  write a number, without quotes",
        ),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t",
            "c.yaml:17:5: missing-key missing key 'kind'\n  name its kind; `weighbridge explain` lists them",
        ),
        ("subjects:\n", "subject:\n", "c.yaml:14:21: unknown-subject there is no subject 'run'\n"
         "  declare it in the contract: subjects: {run: {kind: run}}"),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t\n    max_age: 0d\n    kind: byte-identity",
            "c.yaml:19:14: bad-form '0d' is not a number of days, such as \"30d\"",
        ),
        (
            "    title: t\n    kind: byte-identity",
            "    title: t\n    relax: it is slow on the fleet\n    kind: byte-identity",
            "c.yaml:19:5: warning: needless-relax G-2 is no looser than in what it extends\n  delete relax",
        ),
        ("  run: {kind: run}", "  Run: {kind: run}", "c.yaml:7:3: bad-form the name 'Run' is not a lower-case word"),
    ],
)  # fmt: skip
def test_each_slip_is_reported_at_its_place(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = HEAD + TIME + SAME
    assert old in text
    assert message in told(tmp_path, text.replace(old, new))


def test_a_contract_without_gates_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(HEAD + "gates: []\n")
    assert [one.error.code for one in load_contract(str(path)).warnings] == ["no-gates"] + 3 * ["unused-subject"]


def test_gates_that_depend_on_each_other_in_a_circle_are_reported(tmp_path: Path) -> None:
    text = HEAD + TIME.replace("title: t", "title: t\n    depends_on: [G-2]")
    text += SAME.replace("title: t", "title: t\n    depends_on: [G-1]")
    assert told(tmp_path, text) == [
        "c.yaml:13:5: circular-gate 'G-1' needs 'G-2' needs 'G-1': a circle\n  delete one of the dependencies"
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("wrong", "more"), [(100, False), (101, True), (2000, True)])
def test_problems_are_reported_up_to_a_hundred_and_that_there_are_more(tmp_path: Path, wrong: int, more: bool) -> None:
    gate = "  - {id: G-%d, title: t, kind: no-such, subjects: {source: a, candidate: b}}\n"
    many = told(
        tmp_path, HEAD.replace("  run: {kind: run}\n", "") + "gates:\n" + "".join(gate % n for n in range(wrong))
    )
    assert len(many) == 100
    assert many[-1].endswith("\n  there is more; only the first hundred are listed") is more


def test_a_long_text_is_cut_in_a_message(tmp_path: Path) -> None:
    text = HEAD + TIME + SAME.replace("byte-identity", "x" * 500_000)
    assert max(map(len, told(tmp_path, text))) < 600


def test_many_warnings_hide_no_error(tmp_path: Path) -> None:
    quick = TIME.removeprefix("gates:\n").replace("    where: {tokens_per_step: 2048}\n", "")
    gates = "".join(quick.replace("G-1", f"G-{n}") for n in range(200))
    assert told(tmp_path, HEAD + "gates:\n" + gates + SAME.replace("byte-identity", "no-such").replace("G-2", "S-1"))[
        0
    ].startswith("c.yaml:1013:11: unknown-kind")


def test_a_requirement_is_for_what_runs_on_this_host(tmp_path: Path) -> None:
    parity = """\
  m: {kind: model}
  n: {kind: model}
gates:
  - id: G-1
    title: t
    kind: forward-parity
    subjects: {reference: m, candidate: n}
    requires: {cuda: true}
"""
    text = HEAD.replace("  run: {kind: run}\n  a: {kind: checkpoint}\n  b: {kind: checkpoint}\n", "") + parity
    assert told(tmp_path, text) == []


def test_a_warning_stops_nothing_and_an_error_hides_no_other(tmp_path: Path) -> None:
    text = (HEAD + TIME + SAME).replace("below_ms: 500", "below_ms: 0").replace("polcy", "").replace("G-2", "g-1")
    assert [line.split()[1] for line in told(tmp_path, text)] == ["out-of-bounds", "doubled-gate"]


@pytest.mark.parametrize(("gates", "shown"), [(7, "'G-6' needs 'G-0': a circle"), (8, "'G-7' …: a circle")])
def test_a_long_circle_is_cut(tmp_path: Path, gates: int, shown: str) -> None:
    circle = "".join(
        SAME.replace("G-2", f"G-{n}").replace("title: t", f"title: t\n    depends_on: [G-{(n + 1) % gates}]")
        for n in range(gates)
    )
    (message,) = told(tmp_path, HEAD.replace("  run: {kind: run}\n", "") + "gates:\n" + circle)
    assert shown in message


def test_a_time_wants_a_shape_where_it_is_recorded_and_none_where_a_command_is_run() -> None:
    loaded = load_contract("builtin:pretraining")
    assert "device-refusal" in {gate.kind for gate in loaded.contract.gates if not gate.where}
    assert [found for found in loaded.warnings if found.code == "time-without-where"] == []


@pytest.mark.parametrize(
    ("measure", "column", "message"),
    [
        ("{rename: [{from: a, to: b}]}", 15, "rename is ignored without map: table"),
        ("{map: identity, names: {a: b}}", 30, "names is ignored without map: table"),
    ],
)
def test_a_key_that_would_be_ignored_is_an_error(tmp_path: Path, measure: str, column: int, message: str) -> None:
    text = HEAD + TIME + SAME + f"    measure: {measure}\n"
    assert told(tmp_path, text) == [f"c.yaml:21:{column}: ignored-key {message}"]
    assert told(tmp_path, text.replace("measure: {", "measure: {map: table, ").replace("map: identity, ", "")) == []


def test_what_no_host_is_asked_for_cannot_be_required(tmp_path: Path) -> None:
    text = HEAD + TIME + SAME.replace("title: t", "title: t\n    requires: {nonsense: true}")
    assert "bad-form" in [line.split(" ", 2)[1] for line in told(tmp_path, text)]
    asked = {item.name for item in fields(Host) if item.type is bool}
    assert asked == {name for name in ("cuda", "hidden", "devices", "why") if re.match(REQUIREMENT, name)}
