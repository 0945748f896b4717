"""Ordinary tests that discharge a gate: judged over what they came to, and never by more than they showed."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cases import each
from tests.cli.conftest import Cli, cli
from tests.pytest.sessions import session

__all__ = ["cli"]

pytestmark = pytest.mark.usefixtures("only_our_plugins")

CONTRACT = """weighbridge: contract/v0
id: kernels
version: 1.0.0
title: The kernels are what their formulas say
owner: me
subjects:
  rope: {kind: report}
  norm: {kind: report}
gates:
  - id: GATE-ROPE
    title: Rotating by zero changes nothing
    kind: test-report
    subjects: {report: rope}
    with: {tests: ["test_rope*"], at_least: 2}
  - id: GATE-NORM
    title: A norm has no negative entry
    kind: test-report
    subjects: {report: norm}
"""
TESTS = """
import pytest

rope = pytest.mark.gate("GATE-ROPE", contract="contracts/kernels.yaml")

@rope
@pytest.mark.parametrize("angle", [0, "1::2"])
def test_rope(angle):
    assert True

def test_plain():
    pass
"""


@pytest.fixture
def project(workplace: Path) -> Path:
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "kernels.yaml").write_text(CONTRACT, encoding="utf-8")
    (workplace / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n", encoding="utf-8")
    return workplace


def run(project: Path, tests: str, *words: str) -> tuple[int, str]:
    (project / "test_kernels.py").write_text(tests, encoding="utf-8")
    given = ("-q", "test_kernels.py", *words)
    if "-n" not in words:
        return session(project, *given)
    argv = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *given)
    ended = subprocess.run(argv, cwd=project, check=False, capture_output=True, text=True)
    return ended.returncode, ended.stdout + ended.stderr


def outcomes(project: Path) -> dict[str, str]:
    (bundle,) = (project / "out" / "bundles").iterdir()
    return {one["gate"]: one["outcome"] for one in json.loads((bundle / "verdicts.json").read_bytes())["findings"]}


@pytest.mark.slow
@pytest.mark.parametrize("words", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_tests_that_pass_discharge_their_gate_at_the_algorithm_level(
    project: Path, cli: Cli, words: tuple[str, ...]
) -> None:
    code, said = run(project, TESTS, "--gate-evidence", "evidence", *words)
    assert (code, "PASS     GATE-ROPE  2 of 2 tests in the report are named by test_rope*" in said) == (0, True), said
    assert "3 passed" in said
    (bundle,) = (project / "evidence" / "bundles").iterdir()
    assert cli("evidence", "verify", bundle).code == 0
    whole = cli("evidence", "verify", bundle, "--require-pass")  # no test is of the other gate
    assert (whole.code, "1 of 2 required gates counted; not: GATE-NORM: not judged" in whole.out) == (1, True)
    (subject,) = json.loads((bundle / "statement.json").read_bytes())["predicate"]["subjects"]
    assert (subject["name"], subject["origin"]) == ("rope", "fixture")
    assert cli("ledger", "record", bundle.name[-12:]).code == 0
    assert "GATE-ROPE  fixture only" in cli("status").out
    assert str(project) not in "".join(path.read_text() for path in bundle.rglob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["@pytest.mark.skip(reason='no GPU')", "@pytest.mark.xfail(reason='no GPU')"])
def test_one_that_was_skipped_or_may_fail_blocks_it_and_the_session_fails(project: Path, mark: str) -> None:
    third = f"\n@rope\n{mark}\ndef test_rope_on_device():\n    pass\n"
    code, said = run(project, TESTS + third, "--gate-evidence", "out")
    marked = f"test_rope_on_device: skipped (marked {mark[13:].partition('(')[0]}: no GPU)\n"
    assert (code, "BLOCKED  GATE-ROPE" in said, marked in said) == (1, True, True), said
    assert outcomes(project) == {"GATE-ROPE": "BLOCKED"}


@pytest.mark.slow
def test_a_mark_without_a_reason_is_named_alone_and_what_skips_itself_says_why(project: Path) -> None:
    more = "".join(
        f"\n@rope\n{mark}\ndef test_rope_{at}():\n    {does}\n"
        for at, (mark, does) in enumerate(
            [
                ("@pytest.mark.skip", "pass"),
                ("@pytest.mark.xfail", "assert 0"),
                ("", "pytest.skip('no GPU')"),
                ("", "pytest.xfail('slow')"),
            ]
        )
    )
    _, said = run(project, TESTS + more)
    for at, why in enumerate(("marked skip", "marked xfail", "no GPU", "slow")):
        assert f"test_rope_{at}: skipped ({why})\n" in said
    assert "likely cause: it is marked to be left out or to fail, or the host lacks what it needs" in said


@pytest.mark.slow
@each(
    "empty",
    [
        "\n@pytest.mark.gate('GATE-NORM', contract='contracts/kernels.yaml')\nclass TestNorm:\n    pass\n",
        "\n@pytest.mark.gate('GATE-NORM', contract='contracts/kernels.yaml')\nclass TestNorm:\n"
        "    def __init__(self):\n        pass\n    def test_norm(self):\n        pass\n",
        "\n@pytest.mark.gate('GATE-NORM', contract='contracts/kernels.yaml')\nclass TestNorm:\n"
        "    class TestMore:\n        def norm(self):\n            pass\n",
    ],
)
def test_a_marked_class_without_a_test_blocks_its_gate(project: Path, empty: str) -> None:
    ignored = ("-W", "ignore::pytest.PytestCollectionWarning")
    code, said = run(project, TESTS + empty, *ignored)
    assert (code, "BLOCKED  GATE-NORM" in said, "PASS     GATE-ROPE" in said) == (1, True, True), said
    code, said = run(project, "import pytest\n" + empty, *ignored)
    assert (code != 0, "BLOCKED  GATE-NORM" in said) == (True, True), said


@pytest.mark.exhaustive
def test_a_marked_module_without_a_test_blocks_its_gate(project: Path) -> None:
    code, said = run(project, TESTS.partition("@rope")[0].replace("rope =", "pytestmark ="))
    assert (code != 0, "BLOCKED  GATE-ROPE" in said) == (True, True), said


@pytest.mark.slow
def test_one_that_failed_or_broke_in_its_set_up_fails_it(project: Path) -> None:
    broken = "\n@pytest.fixture\ndef device():\n    raise OSError('no device')\n"
    broken += "\n@rope\ndef test_rope_b(device):\n    pass\n"
    code, said = run(project, TESTS + broken, "--gate-evidence", "out")
    assert (code, "FAIL     GATE-ROPE" in said, "no device" in said) == (1, True, True)
    assert outcomes(project) == {"GATE-ROPE": "FAIL"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"), [(("-k", "test_plain"), 0), (("-k", "plain or 0"), 1), (("-x",), 1)], ids=["all", "some", "-x"]
)
def test_one_that_was_deselected_or_never_run_blocks_it(project: Path, words: tuple[str, ...], code: int) -> None:
    first = "def test_a():\n    assert '-x' not in __import__('sys').argv\n"
    found, said = run(project, first + TESTS, *words, "--gate-evidence", "out")
    assert (found, "BLOCKED  GATE-ROPE" in said) == (code, True), said
    assert outcomes(project) == {"GATE-ROPE": "BLOCKED"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mark", "says"),
    [
        ('"GATE-ROP", contract="contracts/kernels.yaml"', "has no gate 'GATE-ROP'; did you mean 'GATE-ROPE'?"),
        ('"GATE-ROPE"', 'write @pytest.mark.gate("GATE-ID", contract="contracts/FILE.yaml")'),
        ('"GATE-ROPE", contract="contracts/kernel.yaml"', "contracts/kernel.yaml: file-missing no such file"),
        ('"GATE-X", contract="contracts/x.yaml"', "GATE-X is of the kind dtype-preservation; tests discharge gates of"),
    ],
)
def test_a_mark_that_names_no_gate_is_an_error_at_collection(project: Path, mark: str, says: str) -> None:
    other = CONTRACT.partition("subjects:")[0] + (
        "subjects: {a: {kind: checkpoint}, b: {kind: checkpoint}}\n"
        "gates: [{id: GATE-X, title: t, kind: dtype-preservation, subjects: {source: a, candidate: b}}]\n"
    )
    (project / "contracts" / "x.yaml").write_text(other, encoding="utf-8")
    code, said = run(project, f"import pytest\n\n@pytest.mark.gate({mark})\ndef test_a():\n    pass\n")
    assert (code, f"ERROR: test_kernels.py:3: {says}" in said or says in said) == (4, True), said


@pytest.mark.slow
def test_a_refused_mark_fails_its_tests_under_xdist(project: Path) -> None:
    code, said = run(project, TESTS.replace("GATE-ROPE", "GATE-ROP"), "-n", "2")
    assert (code, "has no gate 'GATE-ROP'" in said) == (1, True)


@pytest.mark.slow
def test_a_contract_that_is_collected_too_leaves_the_gate_to_the_tests(project: Path) -> None:
    code, said = run(project, TESTS, "contracts/kernels.yaml", "-k", "ROPE or rope")
    assert (code, "PASS     GATE-ROPE" in said, "2 passed" in said) == (0, True, True), said


WAIVER = """weighbridge: waivers/v0
waivers:
  - contract: kernels
    gate: GATE-ROPE
    covers: FAIL
    reason: The kernel is mended in the next release
    owner: Ada
    created: "{today}"
    expires: "{today}"
"""


@pytest.mark.slow
def test_a_waiver_excuses_a_gate_of_marked_tests_and_is_reported(project: Path) -> None:
    failing = TESTS.replace("assert True", "assert angle")
    assert run(project, failing)[0] == 1
    (project / "waivers.yaml").write_text(WAIVER.format(today=dt.datetime.now(dt.UTC).date()), encoding="utf-8")
    printed = run(project, failing, "--deselect", "test_kernels.py::test_plain")[1]
    assert "waived: FAIL of GATE-ROPE, by Ada" in printed
