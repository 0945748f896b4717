"""Waivers: what they excuse and for how long, what is said of them, and what they never touch."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from junitparser import JUnitXml
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli
from tests.pytest.sessions import session

from weighbridge.contract import strict_yaml
from weighbridge.core.data import data_path
from weighbridge.core.errors import ContractError
from weighbridge.evidence.statement import Tool
from weighbridge.lanes.waivers import Waivers, read_waivers, waivers_schema

__all__ = ["cli"]

HERE = data_path("verifiers") / "specimens" / "checkpoints"
TODAY = dt.datetime.now(dt.UTC).date()
CONTRACT = """
weighbridge: contract/v0
id: mine
version: 1.0.0
title: Our import is whole and keeps every dtype
owner: me
subjects:
  source: {kind: checkpoint}
  import: {kind: checkpoint}
gates:
  - id: GATE-DTYPE
    title: Every tensor keeps its dtype
    why: BF16 bytes stored as F16 load without an error.
    kind: dtype-preservation
    subjects: {source: source, candidate: import}
    with: {policy: lossless}
  - id: GATE-WHOLE
    title: Every tensor is complete
    why: A file that was overwritten while it was mapped opens without an error.
    kind: checkpoint-integrity
    subjects: {candidate: import}
"""
SAID = "by Ada until {until}: The converter is mended in 2.4 (https://example.org/17)"


def waiver(*, begins: int = -1, ends: int = 30, **other: str) -> str:
    """Write one waiver of a file that begins and ends so many days from today."""
    body = {
        "contract": "mine", "gate": "GATE-DTYPE", "covers": "FAIL", "reason": "The converter is mended in 2.4",
        "owner": "Ada", "created": str(day(begins)), "expires": str(day(ends)), "issue": "https://example.org/17",
    }  # fmt: skip
    return "  - {" + ", ".join(f"{key}: {json.dumps(value)}" for key, value in {**body, **other}.items()) + "}\n"


def day(distance: int) -> dt.date:
    return TODAY + dt.timedelta(days=distance)


@pytest.fixture(autouse=True)
def one_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every command read waivers on the day on which this file began, whatever day has begun since."""

    def on_that_day(path: Path, now: dt.datetime, clock: dt.datetime | None = None) -> Waivers:
        later = (clock or now).astimezone(dt.UTC).date() - TODAY
        return read_waivers(path, now - later, clock and clock - later)

    monkeypatch.setattr("weighbridge.lanes.waivers.read_waivers", on_that_day)


def write(folder: Path, *waivers: str) -> None:
    (folder / "waivers.yaml").write_text("weighbridge: waivers/v0\nwaivers:\n" + "".join(waivers))


@pytest.fixture
def project(workplace: Path) -> Path:
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "mine.yaml").write_text(CONTRACT)
    return workplace


def arguments(imported: str = "relabelled.safetensors", *more: str) -> tuple[str, ...]:
    files = {"source": HERE / "source.safetensors", "import": HERE / imported}
    return "verify", *(word for name, file in files.items() for word in ("--subject", f"{name}={file}")), *more


# --- What is excused --------------------------------------------------------------------------------------------------


def test_a_waived_fail_is_printed_as_what_it_is_with_who_why_and_until_when(cli: Cli, project: Path) -> None:
    assert cli(*arguments()).code == 1
    write(project, waiver())
    ended = cli(*arguments("relabelled.safetensors", "--report", "junit:r.xml"))
    assert (ended.code, ended.err) == (0, "")
    assert "FAIL     GATE-DTYPE  Every tensor keeps its dtype" in ended.lines
    assert f"    waived: FAIL of GATE-DTYPE, {SAID.format(until=day(30))}" in ended.lines
    assert "1 failed, 1 passed of 2, 1 excused -> exit 0 (passed)" in ended.lines
    (suite,) = JUnitXml.fromfile(str(project / "r.xml"))
    assert (suite.tests, suite.failures, suite.errors, suite.skipped) == (2, 0, 0, 1)
    assert "by Ada until" in next(case.result[0].message for case in suite if case.name == "GATE-DTYPE")
    (report,) = json.loads(cli(*arguments("relabelled.safetensors", "--json")).out)
    assert [(one["outcome"], one["excused"][:6]) for one in report["findings"]] == [("FAIL", "waived"), ("PASS", "")]


def test_a_waiver_is_no_evidence_and_moves_no_status(cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    for name, dtype in (("a", np.float32), ("b", np.float16)):
        save_file({"w": np.arange(1, 65, dtype=dtype)}, project / f"{name}.safetensors")
    live = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors", "--record")
    write(project, waiver())
    ended = cli("verify", *live)
    assert (ended.code, "moved: none -> REGRESSED" in ended.out) == (0, True)
    sealed = [path for path in (project / "evidence").rglob("*") if path.is_file()]
    assert sealed
    assert not [path for path in sealed if b"waive" in path.read_bytes() or b"mended" in path.read_bytes()]
    row = next(line for line in cli("status").lines if "GATE-DTYPE" in line)
    assert row.split()[:3] == ["mine", "GATE-DTYPE", "REGRESSED"]
    assert row.endswith(f"(waived: FAIL of GATE-DTYPE, {SAID.format(until=day(30))})")


def test_a_waived_block_is_excused_and_where_nothing_passed_nothing_was_shown(cli: Cli, project: Path) -> None:
    write(project, waiver(covers="BLOCKED"), waiver(covers="BLOCKED", gate="GATE-WHOLE"))
    assert cli("verify", "--subject", f"import={HERE / 'import.gguf'}").code == 0
    ended = cli("verify")
    assert (ended.code, "2 blocked of 2, 2 excused -> exit 5 (nothing shown)" in ended.lines) == (5, True)


def test_a_waiver_is_of_one_instance(cli: Cli, project: Path) -> None:
    write(project, waiver(instance="a"))
    source = ("--subject", f"source={HERE / 'source.safetensors'}")
    both = [word for name in "ab" for word in ("--subject", f"import@{name}={HERE / 'relabelled.safetensors'}")]
    ended = cli("verify", *source, *both)
    assert (ended.code, sum(line.startswith("    waived: FAIL of GATE-DTYPE[a]") for line in ended.lines)) == (1, 1)


def test_a_waiver_is_good_until_the_end_of_its_last_day_in_utc(tmp_path: Path) -> None:
    write(tmp_path, waiver(begins=0, ends=2))
    last = dt.datetime.combine(day(2), dt.time(23, 59, 59), tzinfo=dt.UTC)
    kiritimati = dt.timezone(dt.timedelta(hours=14))
    assert read_waivers(tmp_path / "waivers.yaml", last).good
    assert read_waivers(tmp_path / "waivers.yaml", last.astimezone(kiritimati)).good
    assert not read_waivers(tmp_path / "waivers.yaml", last + dt.timedelta(seconds=1)).good


@pytest.mark.parametrize("command", ["verify", "lint", "status"])
def test_years_of_waivers_cannot_be_written_at_once(cli: Cli, project: Path, command: str) -> None:
    argv = arguments() if command == "verify" else (command,)
    assert cli("verify", "--record").code == 3
    write(project, waiver(begins=-10, ends=79), waiver(begins=80, ends=169))  # one renewal, already written
    assert cli(*argv).code == 0
    write(project, *(waiver(begins=start, ends=start + 89) for start in range(-10, 60 * 90 - 10, 90)))
    ended = cli(*argv)
    assert (ended.code, ended.err.count("waiver-ahead it begins on")) == (2, 58)
    write(project, *(waiver(begins=start, ends=start + 9) for start in (-10, 0, 10, 20)))
    ended = cli(*argv)
    assert (ended.code, ended.err.count("waiver-ahead it begins on")) == (2, 1)
    write(project, waiver(begins=0, ends=5), waiver(begins=91, ends=100))  # no renewal: nobody knows yet
    assert "waivers.yaml:4:" in cli(*argv).err
    write(project, waiver(begins=0, ends=5), waiver(begins=90, ends=100), waiver(begins=90, ends=100, covers="BLOCKED"))
    assert cli(*argv).code == 0


def test_looking_back_refuses_no_renewal_that_was_written_since(cli: Cli, project: Path) -> None:
    assert cli("verify", "--record").code == 3
    write(project, waiver(begins=-200, ends=-111), waiver(begins=-110, ends=-21), waiver(begins=-20, ends=60))
    then = dt.datetime.now(dt.UTC) - dt.timedelta(days=190)
    assert cli("status", "--as-of", f"{then:%Y-%m-%d}").code == 0


@pytest.mark.parametrize("command", ["verify", "status"])
def test_a_midnight_that_passes_while_these_tests_run_ends_and_begins_no_waiver_of_theirs(
    cli: Cli, project: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    assert cli(*arguments(), "--record").code == 1
    monkeypatch.setattr(f"{__name__}.TODAY", day(-1))
    write(project, waiver(begins=0, ends=0), waiver(begins=1, ends=1))
    ended = cli(*(arguments() if command == "verify" else (command,)))
    assert (ended.code, f"waived: FAIL of GATE-DTYPE, {SAID.format(until=day(0))}" in ended.out) == (0, True)


# --- What is said -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(
    ("days", "imported", "code", "said"),
    [
        ((-30, -1), "relabelled.safetensors", 1, "waiver-expired the waiver of Ada for GATE-DTYPE ended with"),
        ((1, 20), "relabelled.safetensors", 1, "waiver-not-begun the waiver of Ada for GATE-DTYPE begins on"),
        ((-1, 14), "relabelled.safetensors", 0, "waiver-ends-soon the waiver of Ada for GATE-DTYPE ends in 14 days"),
        (
            (-1, 15),
            "import.gguf",
            0,
            "waiver-unused the waiver of Ada for GATE-DTYPE covers a FAIL, and the gate came to",
        ),
        ((-1, 15), "relabelled.safetensors", 0, ""),
    ],
)
def test_what_is_to_be_known_of_a_waiver_is_said_at_its_line(
    cli: Cli, days: tuple[int, int], imported: str, code: int, said: str
) -> None:
    write(Path(), waiver(begins=days[0], ends=days[1]))
    ended = cli(*arguments(imported))
    assert ended.code == code
    assert (f": warning: {said}" in ended.err) if said else ended.err == ""
    assert not said or ended.err.startswith("waivers.yaml:3:")
    lint = cli("lint")
    assert (lint.code, "warning" in lint.err) == (0, bool(said) and "unused" not in said)


@pytest.mark.slow
def test_an_expired_waiver_stands_beside_the_status_until_another_replaces_it(cli: Cli, project: Path) -> None:
    cli(*arguments("relabelled.safetensors", "--record"))
    write(project, waiver(begins=-30, ends=-1))
    assert f"EXPIRED_WAIVER: FAIL of GATE-DTYPE until {day(-1)}" in cli("status").out
    (gate, _) = json.loads(cli("status", "--json").out)["gates"]
    assert gate["waivers"] == [f"EXPIRED_WAIVER: FAIL of GATE-DTYPE until {day(-1)}"]
    write(project, waiver(begins=-30, ends=-1), waiver(begins=0))
    assert "EXPIRED_WAIVER" not in cli("status").out


# --- What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (
            {"gate": "GATE-DTPYE"},
            "3:30: waives-nothing there is no gate 'GATE-DTPYE' in mine; did you mean 'GATE-DTYPE'?",
        ),
        ({"contract": "mien"}, "3:16: waives-nothing there is no contract 'mien'; did you mean 'mine'?"),
        ({"instance": "falcon"}, "waives-nothing there is no instance 'falcon' of GATE-DTYPE; known: default"),
    ],
)
def test_a_waiver_of_what_is_not_there_is_2_and_nothing_is_measured(
    cli: Cli, project: Path, name: dict[str, str], printed: str
) -> None:
    ((key, value),) = name.items()
    write(project, waiver(**{key: value}))  # type: ignore[arg-type]
    ended = cli(*arguments())
    assert (ended.code, ended.out, (project / ".weighbridge").exists()) == (2, "", False)
    assert printed in ended.err
    assert "instance" in name or cli("lint").code == 2


def test_a_waiver_of_an_instance_of_another_gate_waives_nothing(cli: Cli, project: Path) -> None:
    assert cli("verify", "--record", "--gate", "GATE-WHOLE", "--subject", f"import@a={HERE / 'import.gguf'}").code == 0
    write(project, waiver(gate="GATE-WHOLE", instance="a"))
    assert cli(*arguments("import.gguf")).code == 0  # the ledger knows it
    write(project, waiver(gate="GATE-WHOLE", instance="a"), waiver(instance="a"))
    ended = cli(*arguments("import.gguf"))
    assert (ended.code, "waives-nothing there is no instance 'a' of GATE-DTYPE" in ended.err) == (2, True)


def test_a_waiver_of_a_contract_that_is_not_judged_now_is_left_alone(cli: Cli, project: Path) -> None:
    write(
        project, waiver(contract="checkpoint-health", gate="GATE-HEALTH-001", instance="any"), waiver(contract="other")
    )
    (project / "other.yaml").write_text(CONTRACT.replace("id: mine", "id: other"))
    ended = cli(*arguments("import.gguf"))
    assert (ended.code, "waives-nothing there is no contract 'other'" in ended.err) == (2, True)
    (project / "weighbridge.toml").write_text('[lanes.one]\ncontracts = ["*.yaml", "*/*.yaml"]\ndecides = ["*"]\n')
    (project / "waivers.yaml").rename(project / "exempt.yml")
    ended = cli(*arguments("import.gguf", "--waivers", "exempt.yml"))
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize(
    ("body", "printed"),
    [
        (waiver(ends=90), "waiver-dates it lasts 91 days"),
        (waiver(ends=-2), "waiver-dates it lasts -1 days"),
        (waiver(created="2026-02-30"), "waiver-dates 2026-02-30"),
        (waiver(created="22.11.2026"), "bad-form '22.11.2026' is not a date, such as 2026-11-22"),
        (waiver(covers="ERROR"), "unknown-choice 'ERROR' is not one of FAIL, BLOCKED"),
        (waiver(reason=" "), "bad-form ' ' is not a line of text"),
        (waiver(onwer="Bo"), "unknown-key unknown key 'onwer'"),
        (waiver().replace('"owner": "Ada", ', "").replace('owner: "Ada", ', ""), "missing-key missing key 'owner'"),
        (waiver() + waiver(begins=0, ends=40), "waiver-twice another waiver covers the same FAIL of GATE-DTYPE"),
        (waiver(ends=5) + waiver(begins=5, ends=40), "waiver-twice another waiver covers the same FAIL of GATE-DTYPE"),
        ("  - nothing\n", "wrong-type 'nothing' is not a mapping"),
    ],
)
def test_what_is_no_waiver_is_reported_with_its_place(tmp_path: Path, body: str, printed: str) -> None:
    write(tmp_path, body)
    with pytest.raises(ContractError) as refused:
        read_waivers(tmp_path / "waivers.yaml", dt.datetime.combine(TODAY, dt.time(), tzinfo=dt.UTC))
    assert printed in str(refused.value)
    assert f"{tmp_path}/waivers.yaml:{3 + (body.count(chr(10)) > 1)}:" in str(refused.value)


def test_a_file_that_is_named_must_be_there(cli: Cli, project: Path) -> None:
    assert project.is_dir()
    ended = cli(*arguments("import.gguf", "--waivers", "exemptions.yaml"))
    assert (ended.code, ended.err) == (2, "exemptions.yaml: file-missing no such file\n  check the path\n")


def test_the_schema_takes_what_the_reader_takes(cli: Cli, tmp_path: Path) -> None:
    write(tmp_path, waiver(), waiver(gate="GATE-WHOLE", instance="a"))
    validator = Draft202012Validator(waivers_schema())
    data = strict_yaml.load((tmp_path / "waivers.yaml").read_bytes(), "").data
    assert list(validator.iter_errors(data)) == []
    assert list(validator.iter_errors({**data, "waivers": [{**data["waivers"][0], "covers": "ERROR"}]}))
    assert json.loads(cli("schema", "--waivers").out) == waivers_schema()


# --- Under pytest -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_under_pytest_a_waived_gate_is_a_skip_with_its_reason_and_the_file_is_no_contract(project: Path) -> None:
    write(project, waiver(ends=3))
    files = {"source": HERE / "source.safetensors", "import": HERE / "relabelled.safetensors"}
    bound = [f"--gate-subject={name}={file}" for name, file in files.items()]
    code, said = session(project, "-rs", ".", *bound)
    assert (code, "1 passed, 1 skipped" in said) == (0, True), said
    assert f"waived: FAIL of GATE-DTYPE, {SAID.format(until=day(3))}" in said
    assert "warning: waiver-ends-soon" in said
    write(project, waiver(gate="GATE-DTPYE"))
    code, said = session(project, "-rs", ".", *bound)
    assert (code, "did you mean 'GATE-DTYPE'?" in said) == (4, True), said
