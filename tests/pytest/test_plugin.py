"""Contracts as tests: what passes, what fails, what is blocked, and what the plugin costs everybody else."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.pytest.sessions import session

from weighbridge.contract.load import written_in
from weighbridge.core.data import data_path

pytestmark = pytest.mark.usefixtures("only_our_plugins")

CONTRACT = data_path("contracts") / "checkpoint-import.yaml"
HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD, WIDENED = (
    f"{HERE}/{name}" for name in ("source.safetensors", "import.gguf", "relabelled.safetensors", "widened.safetensors")
)


def run(folder: Path, *arguments: str, own: bool = False) -> tuple[int, str]:
    """Run pytest over a contract; `own` has its contract there."""
    (folder / "contracts").mkdir(exist_ok=True)
    if not own:
        (folder / "contracts" / "x.yaml").write_bytes(CONTRACT.read_bytes())
    return ended(folder, "-rA", "-v", "contracts/x.yaml", *arguments)


def ended(folder: Path, *arguments: str) -> tuple[int, str]:
    """Run pytest in this process, or in its own where it has workers."""
    if "-n" not in arguments:
        return session(folder, *arguments)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def subject(name: str, path: str) -> str:
    return f"--gate-subject={name}={path}"


@pytest.mark.slow
def test_a_gate_that_passes_is_a_test_that_passes(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", GOOD))
    assert code == 0
    assert "contracts/x.yaml::GATE-IMPORT-001 PASSED" in out


@pytest.mark.parametrize("text", ["", "\n", "# not written yet\n"])
def test_an_empty_file_among_contracts_is_an_error(tmp_path: Path, text: str) -> None:
    for name in ("contracts", "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "empty.yaml").write_text(text)
    (tmp_path / "test_it.py").write_text("def test_it():\n    assert True\n")
    code, out = session(tmp_path)
    assert (code, "ERROR contracts/empty.yaml" in out, "data/empty.yaml" in out) == (2, True, False), out


@pytest.mark.slow
def test_a_gate_that_fails_shows_its_finding_and_no_traceback(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", BAD))
    assert code == 1
    assert (
        "model.norm.weight: wrong dtype (BF16 bits stored as F16); 6 of 6 elements explained: bf16-bits-as-f16" in out
    )
    checked = f"checked: source={Path(SOURCE).name}, import={Path(BAD).name}, policy lossless"
    assert checked in re.sub(r"=\S+/", "=", out)
    assert "Traceback" not in out
    assert "def runtest" not in out


@pytest.mark.slow
def test_a_blocked_gate_fails_as_blocked(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE))
    assert code == 1
    assert "contracts/x.yaml::GATE-IMPORT-001 BLOCKED" in out
    assert "    the subject 'import' is not bound (unbound)\n    bind it: --gate-subject import=…\n" in out
    assert re.search(r"^=+ short test summary info", out, re.MULTILINE)
    assert "1 failed" in out


@pytest.mark.slow
def test_an_advisory_gate_that_fails_is_expected_to_and_one_that_broke_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    advisory = tmp_path / "contracts" / "x.yaml"
    text = CONTRACT.read_text(encoding="utf-8")
    assert "severity: required" in text
    advisory.write_text(text.replace("severity: required", "severity: advisory"), encoding="utf-8")
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", BAD), own=True)
    assert "contracts/x.yaml::GATE-IMPORT-001 XFAIL" in out
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(Path(SOURCE).read_bytes()[:-1])
    code, out = run(tmp_path, subject("source", SOURCE), subject("import", str(torn)), own=True)
    assert code == 1
    assert "contracts/x.yaml::GATE-IMPORT-001 ERROR" in out


@pytest.mark.exhaustive
def test_a_gate_that_a_worker_of_xdist_tries_ends_alike(tmp_path: Path) -> None:
    code, out = run(tmp_path, "-n", "1", subject("source", SOURCE))
    assert code == 1
    assert re.search(r"\[gw0\] \[ *[0-9]+%\] BLOCKED contracts/x\.yaml::GATE-IMPORT-001", out)


@pytest.mark.slow
def test_instances_are_tests_of_their_own(tmp_path: Path) -> None:
    code, out = run(tmp_path, subject("source", SOURCE), subject("import@good", GOOD), subject("import@bad", BAD))
    assert code == 1
    assert "x.yaml::GATE-IMPORT-001[good] PASSED" in out
    assert "x.yaml::GATE-IMPORT-001[bad] FAILED" in out


@pytest.mark.slow
def test_gates_are_chosen_by_k_and_the_first_that_fails_ends_the_run_with_x(tmp_path: Path) -> None:
    imports = (subject("import@bad", BAD), subject("import@worse", BAD), subject("import@good", GOOD))
    code, out = run(tmp_path, subject("source", SOURCE), *imports, "-k", "bad or worse", "-x")
    assert code == 1
    assert "stopping after 1 failures" in out
    assert "1 failed, 1 deselected in" in out


@pytest.mark.slow
def test_a_broken_contract_is_an_error_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "contracts").mkdir()
    path = tmp_path / "contracts" / "broken.yaml"
    path.write_text(CONTRACT.read_text().replace("severity:", "severty:"))
    code, out = run(tmp_path, "contracts/broken.yaml")
    assert code == 2
    assert "unknown-key unknown key 'severty'; did you mean 'severity'?" in out


TEXT = CONTRACT.read_text(encoding="utf-8")
KEY = "weighbridge: contract/v0\n"
WRITTEN = {
    "quoted": TEXT.replace(KEY, '"weighbridge": contract/v0\n'),
    "spaced": TEXT.replace(KEY, "weighbridge   :   contract/v0\n"),
    "quoted-value": TEXT.replace(KEY, "weighbridge: 'contract/v0'\n"),
    "explicit": TEXT.replace(KEY, "? weighbridge\n: contract/v0\n"),
    "escaped": TEXT.replace(KEY, '"\\x77eighbridge": contract/v0\n'),
    "last": TEXT.replace(KEY, "") + KEY,
    "marked": "---\n" + TEXT,
    "after-a-long-comment": "# long\n" * 2000 + TEXT,
    "with-crlf": TEXT.replace("\n", "\r\n"),
}
ALMOST = {
    "misspelt": TEXT.replace(KEY, "weighbrige: contract/v0\n"),
    "damaged-and-quoted": TEXT.replace(KEY, '"weighbridge": contract/v0\n') + "  ]\n",
    "without-its-key": TEXT.replace(KEY, ""),
    "without-a-gate": TEXT[: TEXT.index("gates:")],
}
OTHERS = {
    "compose": "services: {a: {image: contract}}\n",
    "anchored": "weigh: &a 1\nb: *a\n",
    "list": "- weighbridge\n",
}


def written(folder: Path, texts: Mapping[str, str]) -> None:
    (folder / "contracts" / "below").mkdir(parents=True)
    for number, (name, text) in enumerate(texts.items()):
        place = folder / "contracts" / ("below" if number % 2 else "") / f"{name}{('.yaml', '.yml')[number % 2]}"
        place.write_bytes(text.encode())


def collected(folder: Path, *arguments: str) -> tuple[int, str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        return ended(folder, "contracts", *arguments)


@pytest.mark.slow
def test_a_contract_is_known_however_its_yaml_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, WRITTEN)
    code, out = collected(tmp_path, "--collect-only", "-q")
    assert (code, out.count("::GATE-IMPORT-001")) == (0, len(WRITTEN))
    monkeypatch.chdir(tmp_path)
    assert len(written_in()) == len(WRITTEN)  # what `lint` and `verify` take without names


@pytest.mark.slow
def test_what_is_almost_a_contract_is_an_error_and_not_left_out(tmp_path: Path) -> None:
    written(tmp_path, {**ALMOST, "good": TEXT, **OTHERS})
    code, out = collected(tmp_path, subject("source", SOURCE), subject("import", GOOD))
    assert code == pytest.ExitCode.INTERRUPTED
    broken = [line.split()[1] for line in out.splitlines() if line.startswith("ERROR contracts/")]
    assert {Path(name).stem for name in broken} == {*ALMOST}
    assert not [name for name in OTHERS if name in out]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("--gate-subject=sorce=x", "did you mean 'source'?"),
        ("--gate-param=limit=1", ""),
        ("--gate-expect-blocked=GATE-IMPORT-01", "did you mean 'GATE-IMPORT-001'?"),
    ],
)
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.exhaustive)])
def test_what_no_contract_knows_is_refused(tmp_path: Path, option: str, hint: str, workers: tuple[str, ...]) -> None:
    written(tmp_path, {"good": TEXT})
    code, out = collected(tmp_path, subject("source", SOURCE), subject("import", GOOD), option, *workers)
    assert code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    assert f"{option.replace('=', ' ', 1)}: no contract that was collected knows it" in out
    assert hint in out
    assert "1 passed" not in out


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.exhaustive)])
def test_where_no_gate_passed_nothing_was_shown(tmp_path: Path, workers: tuple[str, ...]) -> None:
    written(tmp_path, {"advisory": TEXT.replace("severity: required", "severity: advisory")})
    (tmp_path / "contracts" / "test_other.py").write_text("def test_other():\n    pass\n")
    code, out = collected(tmp_path, subject("source", SOURCE), subject("import", BAD), *workers)
    assert code == 5
    assert "1 passed, 1 xfailed" in out
    assert "weighbridge: no gate passed, so nothing was shown (1 FAIL)" in out
    code, out = collected(tmp_path, subject("source", SOURCE), subject("import", GOOD), *workers)
    assert code == 0


@pytest.mark.slow
def test_a_gate_that_was_expected_to_be_blocked_and_passes_fails(tmp_path: Path) -> None:
    written(tmp_path, {"good": TEXT})
    bound = (subject("source", SOURCE), subject("import", GOOD))
    code, out = collected(tmp_path, *bound, "--gate-expect-blocked=GATE-IMPORT-001")
    assert code == 1
    assert "expected to be blocked, and PASS: take it off --gate-expect-blocked" in out
    bound = (subject("source", SOURCE), subject("import", BAD))
    code, out = collected(tmp_path, *bound, "--gate-expect-blocked=GATE-IMPORT-001")
    assert (code, "and FAIL: take it off" in out, "BF16 bits stored as F16" in out) == (1, True, True)


UNMEANT = """weighbridge: contract/v0
id: mine
version: 1.0.0
title: t
owner: me
subjects: {source: {kind: checkpoint}, import: {kind: checkpoint}}
gates:
  - id: G-ONE
    title: A file of one tensor is copied whole
    kind: byte-identity
    subjects: {source: source, candidate: import}
    when: {tensors: 1}
"""
WIDE = """  - id: G-WIDE
    title: Every tensor keeps its dtype
    kind: dtype-preservation
    subjects: {source: source, candidate: import}
    with: {policy: lossless}
"""


def test_a_gate_that_is_not_meant_for_the_subject_is_skipped_with_the_false_fact(tmp_path: Path) -> None:
    subjects = (subject("source", SOURCE), subject("import", WIDENED))
    (tmp_path / "contracts").mkdir()
    (tmp_path / "contracts" / "x.yaml").write_text(UNMEANT + WIDE)
    code, out = run(tmp_path, *subjects, own=True)
    assert (code, "1 passed, 1 skipped" in out) == (0, True)
    assert re.search(r"SKIPPED .*NOT_APPLICABLE G-ONE", out)
    assert re.search(r"tensors = \d+ \(measured\), and the gate is meant for 1", out)
    assert run(tmp_path, *subjects, "--gate-expect-blocked=G-ONE", own=True)[0] == 1
    (tmp_path / "contracts" / "x.yaml").write_text(UNMEANT)
    code, out = run(tmp_path, *subjects, own=True)
    assert (code, "no gate passed, so nothing was shown (1 NOT_APPLICABLE)" in out) == (5, True)


@pytest.mark.slow
def test_the_summary_has_the_finding_and_a_hint_has_the_option_of_pytest(tmp_path: Path) -> None:
    written(tmp_path, {"good": TEXT})
    code, out = collected(tmp_path, subject("source", SOURCE), subject("import", BAD), "-m", "required")
    assert code == 1
    last = next(line for line in out.splitlines() if line.startswith("FAILED "))
    assert "GATE-IMPORT-001 - model.norm.weight: wrong dtype (BF16 bits stored as F16)" in last
    code, out = collected(tmp_path, "--gate-subject=source", "-m", "advisory")
    assert "write --gate-subject NAME=PATH" in out


@pytest.mark.slow
def test_a_parameter_is_set_and_evidence_is_kept(tmp_path: Path) -> None:
    with_param = TEXT.replace("subjects:", "params: {policy: {type: string, default: lossless}}\nsubjects:", 1)
    written(tmp_path, {"good": with_param.replace("policy: lossless}\n", 'policy: "${params.policy}"}\n', 1)})
    bound = (subject("source", SOURCE), subject("import", WIDENED))
    for policy, code in (("lossless", 0), ("same", 1)):
        given = (*bound, f"--gate-param=policy={policy}", f"--gate-evidence=kept-{code}")
        assert collected(tmp_path, *given)[0] == code
        (bundle,) = (tmp_path / f"kept-{code}" / "bundles").iterdir()
        again = subprocess.run(
            [sys.executable, "-m", "weighbridge", "evidence", "verify", bundle, "--require-pass"], check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        assert again.returncode == code, again.stdout


@pytest.mark.slow
def test_a_junit_report_of_pytest_holds_no_absolute_path_of_ours(tmp_path: Path) -> None:
    inside = tmp_path / "project"
    (inside / "contracts").mkdir(parents=True)
    (inside / "contracts" / "broken.yaml").write_text("weighbridge: contract/v0\nid: broken\n")
    elsewhere = subject("source", f"{tmp_path}/absent.gguf"), subject("import", f"{inside}/absent.gguf")
    run(inside, "contracts", "--continue-on-collection-errors", "--junitxml=r.xml", *elsewhere)
    text = (inside / "r.xml").read_text()
    assert "../absent.gguf: there is no such file" in text
    assert "contracts/broken.yaml:1:1: missing-key" in text
    assert str(tmp_path) not in text


def test_other_yaml_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text("a: 1\n")
    (tmp_path / "contract.yaml").write_text(TEXT)  # as a bundle seals it
    (tmp_path / "MANIFEST.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "other.yaml", "contract.yaml"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    printed = done.stderr + done.stdout
    assert [printed.count("not found: ") + printed.count("found no collectors")] == [2]


def test_loading_the_plugin_imports_nothing_of_ours_but_itself() -> None:
    code = (
        "import sys, weighbridge.pytest.plugin; print(*sorted(m for m in sys.modules if m.startswith('weighbridge')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    own = ("pytest", "pytest.plugin")
    assert done.stdout.split() == ["weighbridge", *(f"weighbridge.{name}" for name in own)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), pytest.param(("-n", "1"), marks=pytest.mark.exhaustive)])
def test_addopts_bind_from_the_root_for_the_contracts_that_know_it_and_what_is_typed_goes_first(
    tmp_path: Path, workers: tuple[str, ...]
) -> None:
    bound = f"{subject('source', 'hf.safetensors')} --gate-subject import=bad.gguf"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {bound}\n", encoding="utf-8")
    for name, file in (("hf.safetensors", SOURCE), ("bad.gguf", BAD), ("good.gguf", GOOD)):
        (tmp_path / name).write_bytes(Path(file).read_bytes())
    (tmp_path / "contracts").mkdir()
    for name in ("checkpoint-import", "checkpoint-health"):
        (tmp_path / "contracts" / f"{name}.yaml").write_bytes(CONTRACT.with_name(f"{name}.yaml").read_bytes())
    assert "wrong dtype" in ended(tmp_path, "contracts/checkpoint-import.yaml", *workers)[1]
    assert ended(tmp_path, "contracts/checkpoint-import.yaml", subject("import", "good.gguf"), *workers)[0] == 0
    assert "'checkpoint' is not bound" in ended(tmp_path, "contracts/checkpoint-health.yaml", *workers)[1]
    assert "wrong dtype" in ended(tmp_path / "contracts", "checkpoint-import.yaml", *workers)[1]
