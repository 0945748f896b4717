"""`weighbridge status` and `weighbridge ledger` over real files: what a status rests on, and what moves it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.books import watched
from tests.cli.conftest import Cli, Ended
from tests.ledgers import git, section

from weighbridge.core.canonical import dumps, loads, sha256
from weighbridge.core.data import data_path
from weighbridge.evidence.statement import Tool
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.ledger.store import segment

CONTRACT = """\
weighbridge: contract/v0
id: mine
version: 1.0.0
title: An import keeps its bytes
owner: imports
subjects:
  source: {kind: checkpoint}
  import: {kind: checkpoint}
gates:
  - id: GATE-DTYPE
    title: Every dtype is kept
    kind: dtype-preservation
    subjects: {source: source, candidate: import}
    with: {policy: lossless}
    binds: [AC-1]
  - id: GATE-BYTES
    title: Every byte is kept
    kind: byte-identity
    subjects: {source: source, candidate: import}
    binds: [AC-1, AC-2]
    depends_on: [GATE-DTYPE]
"""
FILES = segment("b.safetensors+a.safetensors")  # the instance of files without a name
BOUND = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
REASON = "the second machine measured it otherwise"
Verify = Callable[..., Ended]


@pytest.fixture
def verify(cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """Write the candidate, whole or with another value in it, and record what it comes to, by an unchanged tool."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    (workplace / "contracts").mkdir()
    write(workplace, CONTRACT)
    save_file({"w": np.arange(6, dtype=np.float32)}, workplace / "a.safetensors")

    def run(*more: str, dtype: Any = np.float32) -> Ended:
        save_file({"w": np.arange(6).astype(dtype)}, workplace / "b.safetensors")
        return cli("verify", *BOUND, "--record", *more)

    return run


def write(workplace: Path, text: str) -> None:
    (workplace / "contracts" / "mine.yaml").write_text(text)


def entries(workplace: Path, gate: str = "GATE-DTYPE") -> list[Path]:
    return sorted((workplace / "evidence" / "ledger" / "mine" / gate / FILES).iterdir())


def typed(behind: Path, **change: Any) -> Path:
    """Write an entry by hand behind another, with a digest and a number that agree, as a careful forger would."""
    body = {**loads(behind.read_bytes()), "parents": [behind.stem.partition("-")[2]], **change}
    body["seq"] = int(behind.name[:6]) + 1
    data = dumps(body)
    path = behind.with_name(f"{body['seq']:06d}-{sha256(data)}.json")
    path.write_bytes(data)
    return path


def status(cli: Cli, *more: str) -> Any:
    return json.loads(cli("status", "--json", *more).out)


# --- A status cannot be typed -----------------------------------------------------------------------------------------


def test_what_was_recorded_is_whole(cli: Cli, verify: Verify) -> None:
    assert verify().code == 0
    assert cli("ledger", "check").lines == ["whole: 4 entries of 2 gates, counted by instance"]


def test_a_typed_status_is_shown_as_unverified_and_not_counted(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    first, second = entries(workplace)
    said = {"step": "discharge", "before": "ACTIVE_WITH_LIVE_EVIDENCE", "after": "DISCHARGED", "cause": "b" * 64}
    typed(second, **said)
    row = cli("status").lines[1].split(maxsplit=3)
    assert row == [
        "mine",
        "GATE-DTYPE",
        "UNVERIFIED",
        f"(no-amendment no amendment in spec/amendments has the digest {'b' * 12})",
    ]
    printed = status(cli)
    assert printed["discharged"] == {"gates": 0, "of": 2}
    assert printed["gates"][1]["instances"][0]["recorded"] == "DISCHARGED"
    ended = cli("ledger", "check")
    assert (ended.code, ended.lines[-1]) == (1, "problems: 1")
    shutil.rmtree(first.parent)


def test_a_hand_written_chain_that_names_a_bundle_that_is_not_there_is_not_whole(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    first, second = entries(workplace)
    body = loads(second.read_bytes())
    second.unlink()
    typed(first, **{**body, "parents": [first.stem.partition("-")[2]], "cause": "b" * 64})
    ended = cli("ledger", "check")
    assert ended.code == 1
    assert f"no-bundle bundle {'b' * 12} is not in bundles/ beside the ledger" in ended.out
    assert cli("status").lines[1].split()[2] == "UNVERIFIED"


def test_a_real_bundle_cannot_be_made_to_say_more_than_it_shows(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify(dtype=np.float16)
    *_, newest = entries(workplace)
    body = loads(newest.read_bytes())
    assert body["after"] == "REGRESSED"
    newest.unlink()
    said = {"outcome": "PASS", "after": "ACTIVE_WITH_LIVE_EVIDENCE"}
    typed(entries(workplace)[0], **{**body, **said})
    ended = cli("ledger", "check")
    assert ended.code == 1
    assert f"unearned says PASS of {body['evidence_at']}; bundle {body['cause'][:12]} came to FAIL" in ended.out


@pytest.mark.parametrize("part", ["", "verdicts.json"])
def test_a_ledger_whose_bundles_were_deleted_or_damaged_is_not_whole(
    cli: Cli, workplace: Path, verify: Verify, part: str
) -> None:
    verify()
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    shutil.rmtree(bundle) if not part else (bundle / part).write_bytes(b"{}")
    ended = cli("ledger", "check")
    assert (ended.code, "no-bundle" in ended.out) == (1, True)
    assert {gate["status"] for gate in status(cli)["gates"]} == {"UNVERIFIED"}


def test_a_bundle_that_is_another_is_told_once_and_what_fails_on_it(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    stated = bundle / "statement.json"
    stated.write_bytes(stated.read_bytes().replace(b'"owner"', b'"Owner"').replace(b'"host":"', b'"host":"x'))
    shown = cli("status")
    assert shown.out.count(f"(no-bundle bundle {bundle.name[-12:]} is not whole: it has the id ") == 2
    assert (shown.out.count("has the id"), "STALE" in shown.out) == (2, False)
    ending = "discharged: 0 of 2; UNVERIFIED ends `ledger check` with 1, not `status`"
    assert (shown.code, shown.lines[-1].endswith(ending), cli("ledger", "check").code) == (0, True, 1)


def test_an_empty_ledger_is_not_whole(cli: Cli, workplace: Path) -> None:
    (workplace / "evidence" / "ledger").mkdir(parents=True)
    ended = cli("ledger", "check")
    assert (ended.code, ended.lines[0].split()[0]) == (1, "empty-ledger")


def test_an_entry_of_another_kind_version_or_contract_than_judged_does_not_follow(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    first, second = entries(workplace)
    body = loads(second.read_bytes())
    for change in ({"kind_version": body["kind_version"] + 1}, {"contract_digest": "c" * 64}):
        second.unlink(missing_ok=True)
        forged = typed(first, **{**body, **change})
        ended = cli("ledger", "check")
        assert (ended.code, "was judged under another contract or kind version" in ended.out) == (1, True), ended.out
        forged.unlink()


def test_a_discharge_cites_the_pass_of_its_own_moment(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    place = LedgerPlace(contract="mine", gate="GATE-DTYPE", instance="b.safetensors+a.safetensors")
    digest = section(workplace, bundle.name[-12:], gates=("GATE-DTYPE",), places=(place,))
    _, second = entries(workplace)
    body = {key: one for key, one in loads(second.read_bytes()).items() if key != "parents"}
    said = {"step": "discharge", "before": body["after"], "after": "DISCHARGED", "cause": digest}
    other = "000Z" if "000Z" not in body["evidence_at"] else "001Z"
    for at, code in ((body["evidence_at"], 0), (body["evidence_at"][:-4] + other, 1)):
        forged = typed(second, **{**body, **said, "kind_version": 0, "evidence_at": at, "reason": "section 1"})
        ended = cli("ledger", "check")
        assert ("the amendment has no evidence of" in ended.out) == bool(code), ended.out
        forged.unlink()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"evidence_at": "2099-01-01T00:00:00.000Z"}, "future"),
        ({"contract_digest": ""}, "no-cause"),
        ({"cause": "x"}, "no-cause"),
        ({"step": "retire", "after": "RETIRED", "outcome": None, "evidence_at": "", "reason": "bad"}, "no-reason"),
        (
            {"step": "retire", "after": "RETIRED", "outcome": None, "evidence_at": "", "reason": REASON, "cause": ""},
            "no-cause",
        ),
    ],
)
def test_an_entry_that_cannot_be_is_refused_on_reading(
    cli: Cli, workplace: Path, verify: Verify, change: dict[str, Any], code: str
) -> None:
    verify()
    first, second = entries(workplace)
    body = loads(second.read_bytes())
    second.unlink()
    typed(first, **{**body, **change})
    ended = cli("status")
    assert (ended.code, ended.err.split()[1]) == (4, code)


def test_what_was_recorded_in_the_future_is_unverified(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    first, second = entries(workplace)
    body = loads(second.read_bytes())
    second.unlink()
    typed(first, **{**body, "recorded_at": "2099-01-01T00:00:00.000Z"})
    assert "UNVERIFIED    (future was recorded 2099-01-01" in cli("status").lines[1]
    assert cli("ledger", "check").code == 1


def test_a_bundle_of_other_kind_versions_is_neither_whole_nor_broken(
    cli: Cli, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses

    from weighbridge.gates import KINDS

    verify()
    newer = {name: dataclasses.replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    for module in ("evidence.review", "ledger.overview"):
        monkeypatch.setattr(f"weighbridge.{module}.KINDS", newer)
    ended = cli("ledger", "check")
    assert (ended.code, ended.lines[0].split()[1]) == (3, "other-version")
    assert "STALE: kind changed: judged by byte-identity/" in cli("status").lines[0]
    monkeypatch.setattr("weighbridge.judging.judging.KINDS", newer)
    verify()
    assert "STALE" not in cli("status").out


def test_names_from_an_entry_print_no_lines_of_their_own(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    first, _ = entries(workplace)
    gate = "G\nmine  GATE-REAL  DISCHARGED\x1b[2K"
    body = {**loads(first.read_bytes()), "place": {"contract": "mine", "gate": gate, "instance": "default"}}
    folder = workplace / "evidence" / "ledger" / "mine" / f"_{sha256(gate.encode())[:16]}" / "default"
    folder.mkdir(parents=True)
    data = dumps(body)
    (folder / f"000001-{sha256(data)}.json").write_bytes(data)
    for argv in (("status",), ("status", "why", gate), ("ledger", "check")):
        out = cli(*argv).out
        assert "\x1b[2K" not in out
        assert not any(line.startswith("mine  GATE-REAL") for line in out.splitlines())


# --- Contracts --------------------------------------------------------------------------------------------------------


def test_a_version_with_other_content_is_refused_by_lint_and_by_recording(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    assert cli("lint").code == 0
    write(workplace, CONTRACT.replace("lossless", "same"))
    before = entries(workplace)
    linted, ended = cli("lint"), verify()
    for one in (linted, ended):
        assert one.code == 2
        assert "reused-version mine 1.0.0 has another content in the ledger" in one.err
    assert linted.lines == ["0 of 1 contract is usable"]
    assert entries(workplace) == before
    write(workplace, CONTRACT.replace("lossless", "same").replace("1.0.0", "2.0.0"))
    assert (cli("lint").code, verify().code) == (0, 0)


def test_a_kind_with_a_new_limit_is_nobody_s_new_content(
    cli: Cli, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dataclasses
    from typing import Annotated

    from weighbridge.core.limits import Doc
    from weighbridge.gates import KINDS

    verify()
    kind = KINDS["dtype-preservation"]
    more = Annotated[int, Doc("new")]
    limits = dataclasses.make_dataclass("More", [("more", more, 1)], bases=(kind.limits,), frozen=True, kw_only=True)
    newer = {**KINDS, kind.name: dataclasses.replace(kind, version=kind.version + 1, limits=limits)}
    for module in (
        "contract.load",
        "contract.resolved",
        "contract.checks",
        "judging.requests",
        "judging.judging",
        "evidence.review",
        "ledger.overview",
    ):
        monkeypatch.setattr(f"weighbridge.{module}.KINDS", newer)
    assert cli("lint").code == 0
    gates = {gate["gate"]: gate["stale"] for gate in status(cli)["gates"]}
    assert gates["GATE-DTYPE"][-1].startswith("kind changed: judged by dtype-preservation/")
    assert verify().code == 0
    assert {gate["gate"]: gate["stale"] for gate in status(cli)["gates"]} == {"GATE-BYTES": [], "GATE-DTYPE": []}


@pytest.mark.parametrize("how", ["moved", "broken"])
def test_a_contract_that_moved_or_no_longer_parses_makes_its_gates_stale(
    cli: Cli, workplace: Path, verify: Verify, how: str
) -> None:
    aged = CONTRACT.replace("    binds: [AC-1]\n", "    binds: [AC-1]\n    max_age: 30d\n")
    write(workplace, aged)
    verify()
    path = workplace / "contracts" / "mine.yaml"
    path.rename(workplace / "mine.yaml") if how == "moved" else path.write_text("weighbridge: [")
    for gate in status(cli)["gates"]:
        assert gate["stale"] == ["its contract mine is not in contracts/, or cannot be used"]
    later = status(cli, "--as-of", "2090-01-01")["gates"][1]["stale"]
    assert later[1].endswith("days old, at most 30")
    if how == "moved":
        assert [gate["stale"] for gate in status(cli, "--contract", "mine.yaml")["gates"]] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "printed"),
    [
        ("policy: lossless", "policy: same", ["judge part changed: with"]),
        ("policy: same", "policy: lossless", ["judge part changed: with", "loosened: policy was same, is lossless"]),
        ("candidate: import}\n    with", "candidate: source}\n    with", ["collect part changed: subjects"]),
        ("Every dtype is kept", "Each dtype is kept", []),
        ("id: GATE-DTYPE", "id: GATE-OTHER", ["the contract no longer has this gate"]),
    ],
)
def test_what_changed_since_is_reported_by_name(
    cli: Cli, verify: Verify, old: str, new: str, printed: list[str]
) -> None:
    workplace = Path.cwd()
    text = CONTRACT.replace("depends_on: [GATE-DTYPE]", "")
    write(workplace, text if old in text else text.replace(new, old))
    verify()
    write(workplace, (workplace / "contracts" / "mine.yaml").read_text().replace(old, new))
    found = {gate["gate"]: gate["stale"] for gate in status(cli)["gates"]}["GATE-DTYPE"]
    assert [why for why in found if not why.startswith("loosened: subjects")] == printed


# --- Roll-ups ---------------------------------------------------------------------------------------------------------


def test_a_criterion_stands_where_its_lowest_gate_stands_and_what_waits_is_reported(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    more = "  - id: GATE-LATE\n    title: t\n    kind: byte-identity\n"
    more += "    subjects: {source: source, candidate: import}\n    depends_on: [GATE-BYTES]\n    binds: [AC-2]\n"
    verify(dtype=np.float16)
    write(workplace, CONTRACT + more)
    printed = status(cli)
    assert {gate["gate"]: gate["status"] for gate in printed["gates"]} == {
        "GATE-BYTES": "REGRESSED", "GATE-DTYPE": "REGRESSED", "GATE-LATE": "none",
    }  # fmt: skip
    assert printed["criteria"] == {
        "AC-1": {"gates": ["GATE-BYTES", "GATE-DTYPE"], "status": "REGRESSED"},
        "AC-2": {"gates": ["GATE-LATE", "GATE-BYTES"], "status": "none"},
    }
    assert printed["blockers"] == [
        {"contract": "mine", "gate": "GATE-DTYPE", "holds_back": ["GATE-BYTES", "GATE-LATE"]}
    ]
    assert printed["tally"] == {"REGRESSED": 2, "none": 1}
    assert "GATE-DTYPE holds back GATE-BYTES, GATE-LATE" in cli("status").lines
    assert cli("status").lines[-1] == "gates: 3, of which 2 REGRESSED, 1 none; discharged: 0 of 3"


@pytest.mark.slow
def test_as_of_shows_what_was_recorded_by_then(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    between = loads(entries(workplace)[-1].read_bytes())["recorded_at"]
    verify(dtype=np.float16)
    assert {gate["status"] for gate in status(cli)["gates"]} == {"REGRESSED"}
    assert {gate["status"] for gate in status(cli, "--as-of", between)["gates"]} == {"ACTIVE_WITH_LIVE_EVIDENCE"}
    assert status(cli, "--as-of", "2020-01-01")["gates"] == []


def test_an_unknown_contract_is_2(cli: Cli, verify: Verify) -> None:
    verify()
    assert (cli("status", "--contract", "mien").code, cli("status", "--contract", "mine").code) == (2, 0)


# --- Verbs ------------------------------------------------------------------------------------------------------------


def test_why_a_status_is_unverified_comes_in_lines_with_what_to_do(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    shutil.rmtree(workplace / "evidence" / "bundles")
    story = cli("status", "why", "GATE-DTYPE")
    assert "         restore it from the history of the repository" in story.lines
    assert "\\n" not in story.out


@pytest.mark.slow
def test_the_story_of_a_gate_tells_each_entry_and_what_is_needed_next(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    verify(dtype=np.float16)
    failed_at = loads(entries(workplace)[-1].read_bytes())["evidence_at"]
    story = cli("status", "why", "GATE-DTYPE").lines
    moves = [line[7:].split("  ")[0] for line in story if "->" in line]
    assert moves == ["none -> DRAFT", "DRAFT -> live", "live -> REGRESSED"]
    assert sum("judged again: the same" in line for line in story) == 2
    assert story[-2:] == ["  now: REGRESSED", f"  next: a live PASS measured later than {failed_at}"]
    verify()
    assert cli("status", "why", "GATE-DTYPE").lines[-2] == "  now: live"


SUCCESSORS = """\
  - id: GATE-DTYPE-2
    title: Every dtype is kept, as we say it now
    kind: dtype-preservation
    subjects: {source: source, candidate: import}
    with: {policy: lossless}
  - id: GATE-DTYPE-OF-ANOTHER
    title: Every dtype of another file is kept
    kind: dtype-preservation
    subjects: {source: source, candidate: other}
    with: {policy: lossless}
"""


@pytest.mark.slow
def test_a_gate_is_retired_by_a_bundle_or_a_successor_and_by_nothing_else(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    write(workplace, CONTRACT.replace("gates:", "  other: {kind: checkpoint}\ngates:") + SUCCESSORS)
    save_file({"w": np.arange(6, dtype=np.float32)}, workplace / "c.safetensors")
    other = ("--subject", "other=c.safetensors")
    verify(*other)
    (passed,) = (workplace / "evidence" / "bundles").iterdir()
    verify(*other, dtype=np.float16)
    (failed,) = set((workplace / "evidence" / "bundles").iterdir()) - {passed}
    retire = ("ledger", "retire", "mine/GATE-DTYPE", "--reason", REASON, "--cause")
    refused = {
        "GATE-NOWHERE": "'GATE-NOWHERE' is neither a bundle beside the ledger nor another gate in it, live, of this",
        "GATE-DTYPE": "'GATE-DTYPE' is neither",
        "GATE-BYTES": "'GATE-BYTES' is neither",  # it promises something else
        "GATE-DTYPE-OF-ANOTHER": "'GATE-DTYPE-OF-ANOTHER' is neither",  # the same, of another file
        "GATE-DTYPE-2": "'GATE-DTYPE-2' is neither",  # the same of the same file, and REGRESSED as well
        passed.name[-12:]: f"bundle {passed.name[-12:]} came to PASS of it",
    }
    for cause, printed in refused.items():
        assert cli(*retire, cause).err.startswith(f"no-cause {printed}"), cause
    assert cli("ledger", "retire", "mine", "--reason", REASON, "--cause", "x").code == 2
    verify(*other)
    for gate, cause in (("GATE-DTYPE", "GATE-DTYPE-2"), ("GATE-BYTES", failed.name[-12:])):
        again = ("ledger", "retire", f"mine/{gate}", "--reason", REASON, "--cause", cause)
        assert [cli(*again).code, cli(*again).code] == [0, 0]
    assert cli("ledger", "check").code == 0
    now = status(cli)
    assert now["tally"] == {"ACTIVE_WITH_LIVE_EVIDENCE": 2, "RETIRED": 2}
    assert now["discharged"] == {"gates": 0, "of": 2}  # what is RETIRED can be discharged no more
    assert f"     reason: {REASON}" in "\n".join(cli("status", "why", "GATE-DTYPE").lines)
    assert "not moved: retired: stays at RETIRED" in verify(*other).out
    verify(*other, dtype=np.float16)  # that the successor failed later takes nothing back
    assert cli("ledger", "check").code == 0


def test_a_fail_under_another_parameter_or_of_another_gate_is_no_counter_evidence(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    params = "params:\n  p: {type: string, default: lossless}\nsubjects:"
    write(workplace, CONTRACT.replace("subjects:", params, 1).replace("policy: lossless", 'policy: "${params.p}"'))
    save_file({"w": np.arange(6, dtype=np.float16)}, workplace / "a.safetensors")  # it is widened exactly
    verify()
    assert verify("--param", "p=same").code == 1
    (overridden,) = (
        path.parent
        for path in workplace.glob("evidence/bundles/*/statement.json")
        if '"overridden":["p"]' in path.read_text()
    )
    argv = ("ledger", "retire", "mine/GATE-DTYPE", "--reason", REASON, "--cause", overridden.name[-12:])
    assert "came to FAIL of it, under other parameters" in cli(*argv).err
    verify("--gate", "GATE-BYTES")
    newest = max((workplace / "evidence" / "bundles").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert f"bundle {newest.name[-12:]} did not judge it" in cli(*argv[:-1], newest.name[-12:]).err


# --- Files that have no name are told apart ---------------------------------------------------------------------------


def test_a_pass_of_another_file_heals_no_fail_and_a_mended_file_does(cli: Cli, workplace: Path, verify: Verify) -> None:
    assert verify(dtype=np.float16).code == 1
    save_file({"w": np.arange(6, dtype=np.float32)}, workplace / "c.safetensors")
    other = ("verify", "--record", *BOUND[:3], "import=c.safetensors")
    assert cli(*other).code == 0
    gate = status(cli)["gates"][1]
    assert (gate["gate"], gate["status"]) == ("GATE-DTYPE", "REGRESSED")
    assert [(one["instance"], one["status"]) for one in gate["instances"]] == [
        ("b.safetensors+a.safetensors", "REGRESSED"),
        ("c.safetensors+a.safetensors", "ACTIVE_WITH_LIVE_EVIDENCE"),
    ]
    why = cli("status", "why", "GATE-DTYPE").out
    for name in ("b", "c"):
        digest = sha256((workplace / f"{name}.safetensors").read_bytes())
        assert f"import={name}.safetensors: {name}.safetensors sha256 {digest}" in why
    assert verify().code == 0  # the file that failed, mended
    assert {one["status"] for one in status(cli)["gates"]} == {"ACTIVE_WITH_LIVE_EVIDENCE"}
    assert cli("ledger", "check").code == 0


def test_a_fact_of_files_without_a_name_makes_their_gate_stale(cli: Cli, workplace: Path, verify: Verify) -> None:
    write(workplace, CONTRACT.replace("    binds: [AC-1]\n", "    stale_on: [tensors]\n    where: {tensors: 1}\n"))
    verify()
    assert status(cli)["gates"][1]["stale"] == []
    for name in "ab":
        arrays = {key: np.arange(6, dtype=np.float32) + at for at, key in enumerate("wv")}
        save_file(arrays, workplace / f"{name}.safetensors")
    assert cli("verify", "--record", *BOUND).code == 3  # it moves nothing
    assert status(cli)["gates"][1]["stale"] == ["tensors changed: was 1, newer evidence has 2"]


def test_the_two_sides_exchanged_heal_nothing(cli: Cli, workplace: Path, verify: Verify) -> None:
    assert verify(dtype=np.float16).code == 1
    exchanged = ("--subject", "source=b.safetensors", "--subject", "import=a.safetensors")
    assert cli("verify", "--record", "--gate", "GATE-DTYPE", *exchanged).code == 0  # it is widened exactly
    assert status(cli)["gates"][1]["status"] == "REGRESSED"


def test_a_file_is_the_same_however_it_is_named_from_wherever_in_the_project(
    cli: Cli, workplace: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(workplace, "init", "-q")
    assert verify(dtype=np.float16).code == 1
    (workplace / "deep").mkdir()
    save_file({"w": np.arange(6, dtype=np.float32)}, workplace / "b.safetensors")
    monkeypatch.chdir(workplace / "deep")
    spelled = ("--subject", "source=.././a.safetensors", "--subject", f"import={workplace / 'b.safetensors'}")
    assert cli("verify", "../contracts/mine.yaml", "--record", "--evidence", "../evidence", *spelled).code == 0
    monkeypatch.chdir(workplace)
    assert [len(one["instances"]) for one in status(cli)["gates"]] == [1, 1]
    assert {one["status"] for one in status(cli)["gates"]} == {"ACTIVE_WITH_LIVE_EVIDENCE"}


def test_a_file_outside_is_not_another_of_the_same_name(
    cli: Cli, workplace: Path, verify: Verify, tmp_path_factory: pytest.TempPathFactory
) -> None:
    verify()
    for dtype, code in ((np.float16, 1), (np.float32, 0)):
        outside = tmp_path_factory.mktemp("outside") / "b.safetensors"
        save_file({"w": np.arange(6).astype(dtype)}, outside)
        assert cli("verify", "--record", *BOUND[:3], f"import={outside}").code == code
    assert status(cli)["gates"][1]["status"] == "REGRESSED"


def test_a_path_that_reads_like_the_name_of_an_instance_is_not_that_instance(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    for name, dtype in (("falcon", np.float16), ("good.safetensors", np.float32)):
        save_file({"w": np.arange(6).astype(dtype)}, workplace / name)
    assert cli("verify", "--record", *BOUND[:3], "import=falcon").code == 1
    assert cli("verify", "--record", *BOUND[:3], "import@falcon=good.safetensors").code == 0
    instances = {one["instance"]: one["status"] for one in status(cli)["gates"][1]["instances"]}
    assert instances["./falcon+a.safetensors"] == "REGRESSED"
    assert instances["falcon"] == "ACTIVE_WITH_LIVE_EVIDENCE"


def test_a_gate_that_was_declared_before_its_files_were_bound_stands_by_them(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    assert cli("verify", "--record").code == 3
    assert cli("verify", "--record", *BOUND[:2]).code == 3  # one of two
    assert [one["status"] for one in status(cli)["gates"]] == ["DRAFT", "DRAFT"]
    verify()
    assert [len(one["instances"]) for one in status(cli)["gates"]] == [1, 1]
    assert [one["status"] for one in status(cli)["gates"]] == ["ACTIVE_WITH_LIVE_EVIDENCE"] * 2
    assert cli("ledger", "check").code == 0


# --- Entries from before files were told apart ------------------------------------------------------------------------


def as_before(workplace: Path) -> None:
    """Write every entry anew as of the instance `default`, as it was recorded before files were told apart."""
    for folder in [one for one in workplace.glob("evidence/ledger/mine/*/*") if one.name != "default"]:
        renamed: dict[str, str] = {}
        for path in sorted(folder.iterdir()):
            body = loads(path.read_bytes())
            body["place"]["instance"] = "default"
            body["parents"] = [renamed[parent] for parent in body["parents"]]
            data = dumps(body)
            renamed[path.stem[7:]] = sha256(data)
            (folder.parent / "default").mkdir(exist_ok=True)
            (folder.parent / "default" / f"{path.stem[:7]}{sha256(data)}.json").write_bytes(data)
        shutil.rmtree(folder)


def test_older_entries_of_default_stay_whole_and_an_instance_of_their_own(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify(dtype=np.float16)
    verify()
    as_before(workplace)
    assert cli("ledger", "check").lines == ["whole: 6 entries of 2 gates, counted by instance"]
    assert {one["status"] for one in status(cli)["gates"]} == {"ACTIVE_WITH_LIVE_EVIDENCE"}
    verify()
    assert cli("ledger", "check").code == 0
    assert [one["instance"] for one in status(cli)["gates"][0]["instances"]] == [
        "b.safetensors+a.safetensors", "default",
    ]  # fmt: skip
    argv = ("ledger", "retire", "mine/GATE-DTYPE/default", "--reason", REASON, "--cause")
    assert cli(*argv, "mine/GATE-DTYPE/b.safetensors+a.safetensors").code == 0
    assert cli("ledger", "check").code == 0


def test_an_older_fail_of_default_is_healed_by_no_other_file(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify(dtype=np.float16)
    as_before(workplace)
    folder = workplace / "evidence" / "ledger" / "mine" / "GATE-DTYPE" / "default"
    save_file({"w": np.arange(6, dtype=np.float32)}, workplace / "c.safetensors")
    assert cli("verify", "--record", *BOUND[:3], "import=c.safetensors").code == 0
    (healed,) = (workplace / "evidence/ledger/mine/GATE-DTYPE" / segment("c.safetensors+a.safetensors")).glob(
        "000002-*"
    )
    body = loads(healed.read_bytes())
    said = {key: body[key] for key in ("cause", "contract_digest", "evidence_at", "kind_version", "recorded_at")}
    active = {"before": "REGRESSED", "after": "ACTIVE_WITH_LIVE_EVIDENCE", "outcome": "PASS", "step": "move"}
    typed(max(folder.iterdir()), **said, **active)
    ended = cli("ledger", "check")
    printed = "passed on c.safetensors+a.safetensors, what failed was b.safetensors+a.safetensors"
    assert (ended.code, printed in ended.out) == (1, True), ended.out


# --- What no entry names ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_live_fail_that_no_entry_names_is_reported_until_it_is_recorded(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify()
    ledger = workplace / "evidence" / "ledger"
    shutil.copytree(ledger, workplace / "before")
    verify(dtype=np.float16)
    shutil.rmtree(ledger)
    shutil.copytree(workplace / "before", ledger)  # the FAIL's entries are gone, and its bundle lies there
    ended = cli("ledger", "check")
    assert (ended.code, ended.out.count("unrecorded-fail mine/GATE-")) == (1, 2)
    (id12,) = set(re.findall(r"weighbridge ledger record (\w{12})", ended.out))
    assert cli("status").out.count(f"STALE: a live FAIL is not recorded: weighbridge ledger record {id12}") == 2
    assert status(cli)["discharged"] == {"gates": 0, "of": 2}
    assert "not moved" not in cli("ledger", "record", id12).out
    assert cli("ledger", "check").code == 0
    assert {gate["status"] for gate in status(cli)["gates"]} == {"REGRESSED"}
    assert "already-recorded" in cli("ledger", "record", id12).out


def test_a_fail_no_later_than_a_recorded_one_is_not_left_out(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify(dtype=np.float16)
    ledger, first = workplace / "evidence" / "ledger", entries(workplace)[-1].read_bytes()
    shutil.rmtree(ledger)
    verify(dtype=np.float16)
    assert first not in [path.read_bytes() for path in entries(workplace)]
    assert cli("ledger", "check").code == 0


def test_a_fail_no_later_than_one_of_older_entries_of_default_is_not_left_out(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    verify(dtype=np.float16)
    shutil.rmtree(workplace / "evidence" / "ledger")
    verify(dtype=np.float16)
    as_before(workplace)
    assert len(list((workplace / "evidence" / "bundles").iterdir())) == 2
    ended = cli("ledger", "check")
    assert (ended.code, ended.lines) == (0, ["whole: 4 entries of 2 gates, counted by instance"])


def test_a_damaged_bundle_that_no_entry_names_is_reported(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    verify()
    (last,) = (path for path in (workplace / "evidence" / "bundles").iterdir()
               if path.name[-12:].encode() not in b"".join(one.read_bytes() for one in entries(workplace)))  # fmt: skip
    (last / "verdicts.json").write_bytes(b"{}")
    ended = cli("ledger", "check")
    assert (ended.code, f"bundles/{last.name}: no-bundle" in ended.out) == (1, True)


def test_a_bundle_that_was_measured_elsewhere_is_merged_and_recorded(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    (workplace / "evidence").rename(workplace / "there")
    (there,) = (workplace / "there" / "bundles").iterdir()
    assert cli("evidence", "merge", there, "--into", "evidence").code == 0
    assert cli("ledger", "record", "0" * 12).err.startswith("no-bundle")
    assert cli("ledger", "record", there.name).out.count("none -> ACTIVE_WITH_LIVE_EVIDENCE") == 2
    assert cli("ledger", "check").code == 0
    write(workplace, CONTRACT.replace("lossless", "same"))
    shutil.rmtree(workplace / "evidence" / "ledger")
    assert cli("ledger", "record", there.name[-12:]).out.count("not moved: contract-changed") == 2
    assert cli("ledger", "check").code == 0


# --- Diverged ---------------------------------------------------------------------------------------------------------


def diverged(cli: Cli, workplace: Path, verify: Verify) -> None:
    """Record one failure on each of two branches, and merge them."""
    verify()
    (workplace / ".gitattributes").write_text("evidence/** -text\n")
    (workplace / ".gitignore").write_text(".weighbridge/\n*.safetensors\n.lock\n")
    git(workplace, "init", "-q", "-b", "main")
    for branch in ("main", "left", "right"):
        if branch != "main":
            git(workplace, "checkout", "-q", "-b", branch, "main")
            verify(dtype=np.float16)
        git(workplace, "add", "-A")
        git(workplace, "commit", "-q", "-m", branch)
    git(workplace, "merge", "-q", "-m", "merge", "left")


@pytest.mark.slow
def test_recording_on_a_diverged_gate_says_why_it_refuses_and_what_to_do(
    cli: Cli, workplace: Path, verify: Verify
) -> None:
    diverged(cli, workplace, verify)
    before = entries(workplace)
    ended = verify()
    assert entries(workplace) == before
    assert "not moved: diverged: stays at REGRESSED (2 entries are each the newest; the lower counts; " in ended.out
    assert "weighbridge ledger reconcile" in ended.out
    assert "reconcile mine/GATE-DTYPE --reason" in cli("status", "why", "GATE-DTYPE").lines[-1]
    assert "DIVERGED" in cli("status").lines[0]
    for gate in ("GATE-DTYPE", "GATE-BYTES"):
        assert cli("ledger", "reconcile", f"mine/{gate}", "--reason", REASON).code == 0
    assert cli("ledger", "check", "--base", "main").code == 0
    verify()
    assert {gate["status"] for gate in status(cli)["gates"]} == {"ACTIVE_WITH_LIVE_EVIDENCE"}


# --- Against an older commit, wherever the ledger lies ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["evidence", "proj/evidence", "proj/kept"])
def test_a_deleted_newest_entry_is_seen_wherever_the_ledger_lies(
    cli: Cli, workplace: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    verify()
    verify(dtype=np.float16)
    (workplace / "proj").mkdir()
    if folder != "evidence":
        shutil.move(workplace / "evidence", workplace / folder)
    git(workplace, "init", "-q", "-b", "main")
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "recorded")
    inside = workplace / folder
    monkeypatch.chdir(inside.parent)
    argv = ("ledger", "check", "--base", "main", "--ledger", f"{inside.name}/ledger")
    assert cli(*argv).code == 0
    newest = max((inside / "ledger" / "mine" / "GATE-DTYPE" / FILES).glob("*.json"))
    newest.unlink()
    ended = cli(*argv)
    assert ended.code == 1
    assert f"{newest.relative_to(workplace)}: not-added was deleted since main" in ended.out


@pytest.mark.slow
def test_a_frozen_bundle_is_only_ever_added(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    frozen = workplace / "evidence" / "frozen"
    (bundle,) = (workplace / "evidence" / "bundles").iterdir()
    shutil.copytree(bundle, frozen / "v1" / bundle.name)
    git(workplace, "init", "-q", "-b", "main")
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "released")
    shutil.copytree(bundle, frozen / "v2" / bundle.name)
    git(workplace, "add", "-A")
    assert cli("ledger", "check", "--base", "main").code == 0
    changed = frozen / "v1" / bundle.name / "verdicts.json"
    changed.write_bytes(changed.read_bytes() + b" ")
    ended = cli("ledger", "check", "--base", "main")
    assert ended.lines[0].startswith(f"{changed.relative_to(workplace)}: not-added was changed since main")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bundles", "frozen", "ledger", "."])
def test_a_link_hides_no_deleted_evidence(cli: Cli, workplace: Path, verify: Verify, name: str) -> None:
    verify()
    verify(dtype=np.float16)
    (workplace / "evidence" / "frozen").mkdir()
    (workplace / "evidence" / "frozen" / "note").touch()
    git(workplace, "init", "-q", "-b", "main")
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "recorded")
    assert cli("ledger", "check", "--base", "main").code == 0
    moved, linked = workplace / "moved", workplace / "evidence" / name
    shutil.move(linked, moved)
    linked.symlink_to(moved)
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "moved")
    ended = cli("ledger", "check", "--base", "HEAD~1")
    where = (Path("evidence") / name).as_posix()
    printed = f"{where}: linked is a link, and nothing behind it is compared with HEAD~1"
    assert (ended.code, printed in ended.lines, f"{where}/" in ended.out) == (1, True, True), ended.out


def test_bundles_behind_a_link_are_no_evidence(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    inside = workplace / "evidence" / "bundles"
    shutil.move(inside, workplace / "moved")
    inside.symlink_to(workplace / "moved")
    ended = cli("ledger", "check")
    assert (ended.code, "bundles: linked is a link" in ended.out) == (1, True)
    assert status(cli)["gates"][0]["stale"] == ["bundles/ cannot be read: is a link"]


def test_git_of_another_repository_in_the_environment_is_not_asked(
    cli: Cli, workplace: Path, verify: Verify, monkeypatch: pytest.MonkeyPatch
) -> None:
    verify()
    git(workplace, "init", "-q", "-b", "main")
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "recorded")
    other = workplace.parent / f"{workplace.name}-other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    assert cli("ledger", "check", "--base", "main").code == 0
    entries(workplace)[-1].unlink()
    assert cli("ledger", "check", "--base", "main").code == 1


def test_a_ledger_that_was_moved_to_lose_an_entry_is_seen(cli: Cli, workplace: Path, verify: Verify) -> None:
    verify()
    verify(dtype=np.float16)
    git(workplace, "init", "-q", "-b", "main")
    git(workplace, "add", "-A")
    git(workplace, "commit", "-q", "-m", "recorded")
    (workplace / "elsewhere").mkdir()
    git(workplace, "mv", "evidence", "elsewhere/evidence")
    max((workplace / "elsewhere/evidence/ledger/mine/GATE-DTYPE" / FILES).iterdir()).unlink()
    ended = cli("ledger", "check", "--base", "main", "--ledger", "elsewhere/evidence/ledger")
    assert (ended.code, "not-added was deleted since main" in ended.out) == (1, True)


# --- Runs -------------------------------------------------------------------------------------------------------------


RUN = """\
weighbridge: contract/v0
id: runs
version: 1.0.0
title: A run keeps its time
owner: training
subjects:
  run: {kind: run}
gates:
  - id: GATE-STEPS
    title: Steps are fast
    kind: wall-time-budget
    subjects: {run: run}
    where: {seq_len: 128}
    with: {statistic: median, steps: [0, 39], below_ms: 500, min_samples: 30}
    stale_on: [commit, resolved_device]
"""
Ran = Callable[..., Ended]


@pytest.fixture
def ran(cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """Record a run that began on some day of January, fast or slow, of some commit, with some sequence length."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    (workplace / "contracts").mkdir()
    (workplace / "contracts" / "runs.yaml").write_text(RUN)
    specimen = data_path("verifiers") / "specimens" / "runs" / "wrapped"

    def run(day: int, *, slow: bool = False, commit: str = "a", seq_len: int = 128, watch: bool = True) -> Ended:
        folder = workplace / f"run-{day}-{slow}-{commit}-{seq_len}"
        shutil.copytree(specimen, folder, dirs_exist_ok=True)
        head = json.loads((folder / "run.json").read_text()) | {"commit": commit * 40, "dirty": False}
        head["started"] = f"2026-01-{day:02}T03:04:05Z"
        head["data"]["seq_len"] = seq_len
        (folder / "run.json").write_text(json.dumps(head))
        rows = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
        slowed = [row | {"wall_ms": row["wall_ms"] * (9 if slow else 1)} for row in rows]
        (folder / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in slowed))
        if watch:
            watched(folder)
        return cli("verify", "--subject", f"run={folder}", "--record")

    return run


@pytest.mark.slow
def test_a_run_that_began_before_the_failing_one_heals_nothing(cli: Cli, ran: Ran) -> None:
    assert "moved: none -> live" in ran(2).out
    assert "moved: live -> REGRESSED" in ran(5, slow=True).out
    ended = ran(4)
    assert "not moved: older-than-fail: stays at REGRESSED (the PASS is not later than the last FAIL; " in ended.out
    assert "next: a live PASS measured later than 2026-01-05T03:04:05.000Z" in cli("status", "why", "GATE-STEPS").out
    assert "moved: REGRESSED -> live" in ran(6).out
    assert cli("ledger", "check").code == 0


@pytest.mark.slow
def test_newer_evidence_of_another_commit_makes_a_status_stale_until_it_is_renewed(cli: Cli, ran: Ran) -> None:
    ran(2)
    assert status(cli)["gates"][0]["stale"] == []
    assert "BLOCKED" in ran(3, commit="b", seq_len=64).out
    assert status(cli)["gates"][0]["stale"] == [f"commit changed: was {'a' * 40}, newer evidence has {'b' * 40}"]
    assert status(cli)["discharged"] == {"gates": 0, "of": 1}
    ran(4, commit="b")
    assert status(cli)["gates"][0]["stale"] == []
    assert cli("ledger", "check").lines == ["whole: 3 entries of 1 gate, counted by instance"]


@pytest.mark.slow
def test_a_pass_of_a_run_that_only_recorded_itself_is_reported_and_heals_nothing(cli: Cli, ran: Ran) -> None:
    ended = ran(2, watch=False)
    assert "moved: none -> reported: GATE-STEPS" in ended.out
    why = "no book of a witness: start it with `weighbridge watch run-2-False-a-128 -- CMD`"
    assert f"    reported: {why}".replace("run-2", f"{Path.cwd()}/run-2") in ended.lines
    assert cli("status").lines[0].split() == ["runs", "GATE-STEPS", "reported"]
    assert status(cli)["tally"] == {"PARTIAL_ALGORITHM_LEVEL": 1}
    printed = cli("status", "why", "GATE-STEPS").out
    assert "DRAFT -> reported  (move)" in printed
    assert "next: a PASS on a run or trace that a witness saw: start it with `weighbridge watch RUN -- CMD`" in printed
    assert "moved: reported -> live" not in ran(3, watch=False).out
    assert "moved: reported -> live" in ran(4).out
    assert "moved: live -> REGRESSED" in ran(5, slow=True).out
    ended = ran(6, watch=False)
    assert "not moved: not-live: stays at REGRESSED (a PASS of a reported run or trace moves nothing from " in ended.out
    assert status(cli)["tally"] == {"REGRESSED": 1}
    assert cli("ledger", "check").code == 0


@pytest.mark.slow
def test_a_fail_of_a_run_that_only_recorded_itself_regresses_like_a_live_one(cli: Cli, ran: Ran) -> None:
    assert "moved: none -> live" in ran(2).out
    assert "moved: live -> REGRESSED" in ran(3, slow=True, watch=False).out
    assert "moved: REGRESSED -> live" in ran(4).out
    assert cli("ledger", "check").code == 0


@pytest.mark.slow
def test_a_reported_fail_that_no_entry_names_is_reported_by_check_and_status(
    cli: Cli, ran: Ran, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(2)
    ran(3, slow=True, watch=False)
    (entry,) = (workplace / "evidence" / "ledger" / "runs" / "GATE-STEPS" / "default").glob("000003-*")
    entry.unlink()
    ended = cli("ledger", "check")
    assert (ended.code, "a reported FAIL is not recorded" in ended.out + ended.err) == (1, True)
    assert "STALE: a reported FAIL is not recorded" in cli("status").out


@pytest.mark.slow
def test_an_entry_that_calls_a_reported_pass_live_follows_from_nothing(cli: Cli, ran: Ran, workplace: Path) -> None:
    ran(2, watch=False)
    (entry,) = (workplace / "evidence" / "ledger" / "runs" / "GATE-STEPS" / "default").glob("000002-*")
    body = loads(entry.read_bytes()) | {"after": "ACTIVE_WITH_LIVE_EVIDENCE"}
    entry.unlink()
    entry.with_name(f"000002-{sha256(dumps(body))}.json").write_bytes(dumps(body))
    ended = cli("ledger", "check")
    assert ended.code == 1
    assert "earns a move to PARTIAL_ALGORITHM_LEVEL" in ended.out + ended.err
    assert "UNVERIFIED" in cli("status").out
