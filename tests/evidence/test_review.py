from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.evidence import drafts

from weighbridge.contract.load import read_contract
from weighbridge.core.canonical import dumps, loads, sha256
from weighbridge.core.errors import BundleError
from weighbridge.core.model import Contract, Severity, Unmeasured
from weighbridge.evidence import manifest
from weighbridge.evidence.bundle import Bundle, seal, unseal
from weighbridge.evidence.review import Against, State, verify
from weighbridge.gates import KINDS

NOW = Against(now=drafts.NOON + timedelta(days=2))
MEASUREMENT = f"measurements/{drafts.PAIRS}.json"


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    measured = {drafts.PAIRS: drafts.pairs(drafts.pair("a"), drafts.pair("b")), "column.run.default": drafts.series()}
    return seal(drafts.draft(measured), tmp_path, drafts.REDACTOR)


def resealed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """Change files and repair every digest below the statement and in it, then rename the folder to the new id."""
    names = [p.relative_to(path).as_posix() for p in path.rglob("*") if p.is_file()]
    files = {name: (path / name).read_bytes() for name in names if name not in (manifest.FILE, "statement.json")}
    change(files)
    listed = manifest.to_bytes(files)
    stated = loads((path / "statement.json").read_bytes())
    stated["predicate"]["manifest"] = sha256(listed)
    whole = files | {manifest.FILE: listed, "statement.json": dumps(stated)}
    forged = path.with_name(f"{path.name[:-12]}{sha256(whole['statement.json'])[:12]}")
    for name, data in whole.items():
        (forged / name).parent.mkdir(parents=True, exist_ok=True)
        (forged / name).write_bytes(data)
    return forged


def test_a_whole_bundle_is_answered_five_times(bundle: Bundle) -> None:
    answers = verify(
        bundle.path,
        dataclasses.replace(
            NOW, recorded={bundle.id}, contracts={"checkpoint-import": bundle.statement.contract.whole}
        ),
    )
    assert answers.integrity.says == f"12 of 12 files as sealed, id {bundle.id[:12]}; the ledger names this id"
    assert answers.rederivation.says == "judged again: 2 of 2 verdicts follow, byte for byte"
    assert answers.authenticity.says == "NONE: not signed; who measured is not shown"
    assert answers.authenticity.state is State.NONE
    assert answers.freshness.says == "2.0 days old"
    assert answers.coverage.says == "1 of 1 required gates counted"
    assert answers.exit_code == 0


def test_without_a_ledger_it_is_said_that_nothing_anchors_the_id(bundle: Bundle) -> None:
    assert "NOT ANCHORED: no ledger was given" in verify(bundle.path, NOW).integrity.says
    other = dataclasses.replace(NOW, recorded={"0" * 64})
    assert "NOT ANCHORED: the ledger does not name this id" in verify(bundle.path, other).integrity.says
    assert verify(bundle.path, other).exit_code == 0
    assert verify(bundle.path, dataclasses.replace(other, anchored=True)).exit_code == 1


def test_a_flipped_byte_of_every_file_is_seen_and_its_file_named(bundle: Bundle) -> None:
    """Every byte in its turn: benchmarks/robustness.py."""
    for path in sorted(p for p in bundle.path.rglob("*") if p.is_file()):
        name = path.relative_to(bundle.path).as_posix()
        data = path.read_bytes()
        handle = os.open(path, os.O_WRONLY)
        for at in {0, len(data) - 1, *range(0, len(data), 97)}:
            os.pwrite(handle, bytes([data[at] ^ (1 << at % 8)]), at)
            with pytest.raises(BundleError) as caught:
                unseal(bundle.path)
            assert caught.value.where == name, (name, at)
            os.pwrite(handle, data[at : at + 1], at)
        os.close(handle)
    assert verify(bundle.path, NOW).exit_code == 0


@pytest.mark.slow
@settings(max_examples=150)
@given(data=st.data())
def test_a_cut_grown_or_swapped_file_is_seen_and_named(bundle: Bundle, data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(sorted(p for p in bundle.path.rglob("*") if p.is_file())))
    old = path.read_bytes()
    low = data.draw(st.integers(0, len(old)))
    high = data.draw(st.integers(low, len(old)))
    new = data.draw(
        st.sampled_from([old[:low], old[:low] + old[high:], old + old[low:high] + b"\n", old[low:] + old[:low], b""])
    )
    path.write_bytes(new)
    answers = verify(bundle.path, NOW)
    path.write_bytes(old)
    if new != old:
        assert answers.exit_code == 1
        assert answers.integrity.details[0].startswith(f"{path.relative_to(bundle.path).as_posix()}: ")


def test_a_missing_and_an_extra_file_are_named(bundle: Bundle) -> None:
    (bundle.path / "canaries.json").unlink()
    (bundle.path / "logs" / "more.txt").write_text("x")
    (bundle.path / ".git").mkdir()
    (bundle.path / ".git" / "HEAD").write_text("x")
    details = verify(bundle.path, NOW).integrity.details
    assert details == (
        ".git/HEAD: is not in the manifest",
        "logs/more.txt: is not in the manifest",
        "canaries.json: is missing",
    )


def test_a_link_a_pipe_and_a_folder_in_the_place_of_a_file_are_named(bundle: Bundle) -> None:
    real = bundle.path / "canaries.json"
    moved = bundle.path.parent / "canaries.json"
    real.rename(moved)
    real.symlink_to(moved)
    assert verify(bundle.path, NOW).integrity.details == ("canaries.json: is a symbolic link",)
    real.unlink()
    os.mkfifo(real)
    assert verify(bundle.path, NOW).integrity.details == ("canaries.json: is not a regular file",)
    real.unlink()
    real.mkdir()
    assert verify(bundle.path, NOW).integrity.details == ("canaries.json: is not a regular file",)
    real.rmdir()
    moved.rename(real)
    os.mkfifo(bundle.path / "logs" / "pipe")
    (bundle.path / "logs" / "up").symlink_to("..")
    details = verify(bundle.path, NOW).integrity.details
    assert details == ("logs/pipe: is neither a file nor a folder", "logs/up: is neither a file nor a folder")


def test_a_linked_folder_is_named(bundle: Bundle) -> None:
    (bundle.path / "logs").rename(bundle.path.parent / "logs")
    (bundle.path / "logs").symlink_to(bundle.path.parent / "logs")
    assert "logs: is neither a file nor a folder" in verify(bundle.path, NOW).integrity.details


@pytest.mark.parametrize("name", ["contract.json", "MANIFEST.json", "statement.json"])
def test_line_endings_changed_by_git_are_reported_as_such(bundle: Bundle, name: str) -> None:
    path = bundle.path / name
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert verify(bundle.path, NOW).integrity.details[0].startswith(f"{name}: has CRLF line endings")


def test_an_lfs_pointer_is_reported_as_such(bundle: Bundle) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    for name in ("verdicts.json", "statement.json"):
        (bundle.path / name).write_bytes(pointer)
        assert verify(bundle.path, NOW).integrity.details == (f"{name}: is a Git LFS pointer, not the file",)


def test_a_file_beyond_its_bound_is_not_read(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "MAX_FILE", 8_000)
    os.truncate(bundle.path / "canaries.json", 1 << 30)
    details = verify(bundle.path, NOW).integrity.details
    assert details == ("canaries.json: has 1073741824 bytes, at most 8000 are read",)


def test_a_folder_without_an_id_in_its_name_vouches_for_nothing(bundle: Bundle) -> None:
    moved = bundle.path.rename(bundle.path.with_name("bundle"))
    assert "has no id in its folder's name" in verify(moved, NOW).integrity.says


def test_what_is_no_bundle_is_an_error_not_an_answer(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"not-a-bundle there is no such folder or archive"):
        verify(tmp_path / "nowhere", NOW)
    with pytest.raises(BundleError, match=r"not-a-bundle there is no statement.json in it\n  name a bundle's folder"):
        verify(tmp_path, NOW)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda files: files.reverse(), "is not weighbridge.manifest/v0 in its one form"),
        (lambda files: files.append(files[-1]), "is not weighbridge.manifest/v0 in its one form"),
        (lambda files: files[0].update(path="../canaries.json"), "'../canaries.json' is no name for a file"),
        (lambda files: files[0].update(path="MANIFEST.json"), "'MANIFEST.json' is no name for a file"),
        (lambda files: files.insert(0, {**files[0], "path": "CANARIES.json"}), "two files differ only in letter case"),
        (lambda files: files[0].update(size=1 << 40), "names more than 4096 files or 1024 MiB"),
        (lambda files: files[0].update(mode=493), "/files/0: unknown key 'mode'"),
    ],
)
def test_a_manifest_has_one_form_and_names_nothing_outside(bundle: Bundle, change: Any, message: str) -> None:
    listed = loads((bundle.path / manifest.FILE).read_bytes())
    change(listed["files"])
    assert message in verify(with_manifest(bundle, dumps(listed)), NOW).integrity.details[0]


def with_manifest(bundle: Bundle, data: bytes) -> Path:
    """Put another manifest in, and repair the statement and the folder's name."""
    stated = loads((bundle.path / "statement.json").read_bytes())
    stated["predicate"]["manifest"] = sha256(data)
    (bundle.path / manifest.FILE).write_bytes(data)
    (bundle.path / "statement.json").write_bytes(dumps(stated))
    return bundle.path.rename(bundle.path.with_name(f"{bundle.path.name[:-12]}{sha256(dumps(stated))[:12]}"))


def test_a_manifest_with_a_space_more_is_not_in_its_one_form(bundle: Bundle) -> None:
    spaced = (bundle.path / manifest.FILE).read_bytes().replace(b",", b", ")
    answers = verify(with_manifest(bundle, spaced), NOW)
    assert answers.integrity.details == ("MANIFEST.json: is not weighbridge.manifest/v0 in its one form",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body.update(predicateType="urn:weighbridge:evidence:v9"), "this version reads"),
        (lambda body: body["subject"][0].update(name="other.safetensors"), "is not in its one form"),
        (lambda body: body["predicate"]["subjects"][0].update(origin="real"), "is not one of live, reported, fixture,"),
        (lambda body: body["predicate"]["subjects"][0].update(book=None), "the key 'book' says nothing"),
        (lambda body: body["predicate"].update(status="ACTIVE"), "/predicate: unknown key 'status'"),
    ],
)
def test_a_statement_says_nothing_twice_differently(bundle: Bundle, change: Any, message: str) -> None:
    stated = loads((bundle.path / "statement.json").read_bytes())
    change(stated)
    (bundle.path / "statement.json").write_bytes(dumps(stated))
    forged = bundle.path.rename(bundle.path.with_name(f"{bundle.path.name[:-12]}{sha256(dumps(stated))[:12]}"))
    details = verify(forged, NOW).integrity.details
    assert details[0].startswith("statement.json: ")
    assert message in details[0]


# --- Judged again -----------------------------------------------------------------------------------------------------


def test_an_edited_measurement_with_all_digests_repaired_no_longer_gives_the_verdict(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        files[MEASUREMENT] = files[MEASUREMENT].replace(b'"identical":6', b'"identical":5', 1)

    forged = resealed(bundle.path, edit)
    answers = verify(forged, dataclasses.replace(NOW, recorded={bundle.id}, anchored=True))
    assert "the ledger does not name this id" in answers.integrity.says
    assert answers.rederivation.says == "1 of 2 verdicts no longer follow from the measurements"
    assert answers.rederivation.details[0].startswith(
        "GATE-IMPORT-001[default]: sealed PASS (pass), judged again FAIL (content); "
    )
    assert answers.exit_code == 1


def test_an_edited_measurement_under_the_old_name_no_longer_has_the_id(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        files[MEASUREMENT] = files[MEASUREMENT].replace(b'"identical":6', b'"identical":5', 1)

    forged = resealed(bundle.path, edit)
    shutil.rmtree(bundle.path)
    forged.rename(bundle.path)
    answers = verify(bundle.path, NOW)
    assert "the statement was changed after sealing" in answers.integrity.says
    assert answers.rederivation.state is State.CANNOT_SAY
    assert answers.exit_code == 1


def test_a_verdict_written_by_hand_does_not_follow(tmp_path: Path) -> None:
    broken = drafts.pairs(drafts.pair("a", candidate_dtype="F16"), drafts.pair("b"))
    bundle = seal(drafts.draft({drafts.PAIRS: broken}), tmp_path, drafts.REDACTOR)

    def edit(files: dict[str, bytes]) -> None:
        files["verdicts.json"] = files["verdicts.json"].replace(b'"outcome":"FAIL"', b'"outcome":"PASS"')

    answers = verify(resealed(bundle.path, edit), NOW)
    assert answers.rederivation.details[0].endswith("sealed PASS (dtype), judged again FAIL (dtype); outcome")


def test_a_statement_that_hides_an_overridden_parameter_is_not_whole(tmp_path: Path) -> None:
    given = drafts.contract(params={"budget": 5}, overridden=("budget",))
    bundle = seal(drafts.draft(given=given), tmp_path, drafts.REDACTOR)
    stated = loads((bundle.path / "statement.json").read_bytes())
    stated["predicate"]["overridden"] = []
    data = dumps(stated)
    (bundle.path / "statement.json").write_bytes(data)
    forged = bundle.path.rename(bundle.path.with_name(f"{bundle.path.name[:-12]}{sha256(data)[:12]}"))
    answers = verify(forged, NOW)
    assert "contract.json: has other parameters overridden than stated" in answers.integrity.details


def test_loosened_limits_are_not_the_contract_stated(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        body = loads(files["contract.json"])
        body["contract"]["gates"][0]["limits"] = {"policy": "lossless"}
        files["contract.json"] = dumps(body)

    answers = verify(resealed(bundle.path, edit), NOW)
    assert answers.integrity.details == (
        "contract.json: is not the contract stated (whole part)",
        "contract.json: is not the contract stated (judge part)",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": "2.0.0"}, "contract.json: has another id or version than stated"),
        ({"id": "other"}, "contract.json: has another id or version than stated"),
        ({"collect": "0" * 64}, "contract.json: is not the contract stated (collect part)"),
    ],
)
def test_a_statement_about_another_contract_is_noticed(bundle: Bundle, change: dict[str, str], message: str) -> None:
    stated = loads((bundle.path / "statement.json").read_bytes())
    stated["predicate"]["contract"].update(change)
    (bundle.path / "statement.json").write_bytes(dumps(stated))
    about = stated["predicate"]["contract"]["id"]
    forged = bundle.path.rename(bundle.path.with_name(f"2026-04-26-{about}-{sha256(dumps(stated))[:12]}"))
    assert verify(forged, NOW).integrity.details == (message,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"{", b"garbage: [", "is no contract that can be judged (yaml-syntax)"),
        (b"checkpoint-import", b"checkpoint-export", "is another contract or version than was judged"),
        (b'"policy":"same"', b'"policy":"lossless"', "is not the contract that was judged"),
        (b"The import keeps", b"Our import keeps", "is not the contract that was judged"),
    ],
)
def test_a_contract_yaml_that_is_not_what_was_judged_is_noticed(
    bundle: Bundle, old: bytes, new: bytes, message: str
) -> None:
    def edit(files: dict[str, bytes]) -> None:
        assert old in files["contract.yaml"]
        files["contract.yaml"] = files["contract.yaml"].replace(old, new, 1)

    assert verify(resealed(bundle.path, edit), NOW).integrity.details == (f"contract.yaml: {message}",)


def test_a_contract_with_an_overridden_parameter_is_compared_with_its_yaml(tmp_path: Path) -> None:
    yaml = b"""
weighbridge: contract/v0
id: checkpoint-import
version: 1.0.0
title: An import keeps its bytes
owner: imports
params: {policy: {type: string, default: same}}
subjects: {source: {kind: checkpoint}, import: {kind: checkpoint}}
gates:
  - {id: G-1, kind: dtype-preservation, title: Kept, subjects: {source: source, candidate: import},
     with: {policy: "${params.policy}"}}
"""
    _, _, given = read_contract(yaml, "contract.yaml", {"policy": "lossless"})
    assert given is not None
    path = seal(drafts.draft(given=given, contract_yaml=yaml), tmp_path, drafts.REDACTOR).path
    assert verify(path, NOW).integrity.state is State.HOLDS
    assert verify(resealed(path, lambda files: files.update({"contract.yaml": yaml + b"# more\n"})), NOW).exit_code == 0


def test_a_verdict_left_out_is_noticed(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        body = loads(files["verdicts.json"])
        body["findings"].pop()
        files["verdicts.json"] = dumps(body)

    answers = verify(resealed(bundle.path, edit), NOW)
    assert answers.integrity.details == ("verdicts.json: do not stand for each gate on each instance, in order",)


def test_another_version_of_a_kind_is_not_a_mismatch(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {name: dataclasses.replace(kind, version=kind.version + 1) for name, kind in KINDS.items()}
    monkeypatch.setattr("weighbridge.evidence.review.KINDS", kinds)
    answers = verify(bundle.path, NOW)
    assert answers.rederivation.state is State.CANNOT_SAY
    judged = ", ".join(f"{name}/{KINDS[name].version}" for name in ("byte-identity", "dtype-preservation"))
    assert answers.rederivation.says == f"not re-derivable here: judged by {judged}, which this version does not have"
    assert answers.exit_code == 3


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["measured"]["measurement"]["value"]["rows"][0].pop("reproduced"),
        lambda body: body["measured"]["measurement"]["value"]["rows"][0].update(elements="many"),
        lambda body: body["measured"]["measurement"].update(value={"record": {}}),
        lambda body: body.update(measured={"unmeasured": {"code": "x", "why": "y", "remedy": "z"}}),
    ],
)
def test_a_crafted_measurement_breaks_an_answer_never_the_tool(bundle: Bundle, change: Any) -> None:
    def edit(files: dict[str, bytes]) -> None:
        body = loads(files[MEASUREMENT])
        change(body)
        files[MEASUREMENT] = dumps(body)

    assert verify(resealed(bundle.path, edit), NOW).exit_code == 1


@each("name", ["contract.json", "canaries.json", MEASUREMENT, "verdicts.json", "environment.json"])
@each("data", [b"", b"{}", b"[]\n", b"[" * 100_000, b'{"a":1,"a":2}', b"NaN", b"\xff\xfe"])
def test_a_crafted_file_is_named_whatever_it_holds(bundle: Bundle, name: str, data: bytes) -> None:
    answers = verify(resealed(bundle.path, lambda files: files.update({name: data})), NOW)
    if (name, data) == ("environment.json", b"{}"):
        assert answers.exit_code == 0
    else:
        assert answers.integrity.details[0].startswith(f"{name}: ")


def test_a_measurement_under_another_key_s_name_is_refused(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        files["measurements/other.json"] = files.pop(MEASUREMENT)

    assert verify(resealed(bundle.path, edit), NOW).integrity.details == (
        "measurements/other.json: is not named by its key",
    )


def test_a_bundle_may_be_reached_through_a_link(bundle: Bundle) -> None:
    link = bundle.path.with_name("latest")
    link.symlink_to(bundle.path)
    assert verify(link, NOW).exit_code == 0


def test_an_array_under_another_digest_is_refused(bundle: Bundle) -> None:
    def edit(files: dict[str, bytes]) -> None:
        first, second = sorted(name for name in files if name.endswith(".npy"))
        files[first], files[second] = files[second], files[first]

    assert "is not named by its digest" in verify(resealed(bundle.path, edit), NOW).integrity.says


@pytest.mark.slow
def test_judging_again_gives_the_same_bytes_under_another_locale_zone_and_hash_seed(bundle: Bundle) -> None:
    script = (
        "import sys; from pathlib import Path\n"
        "from weighbridge.evidence.review import rejudge\n"
        "from weighbridge.evidence.bundle import unseal\n"
        "sys.stdout.buffer.write(rejudge(unseal(Path(sys.argv[1]))))\n"
        "heavy = {'torch', 'numpy', 'gguf', 'yaml', 'weighbridge.views', 'weighbridge.verifiers'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    for seed, zone in (("0", "Asia/Kathmandu"), ("4242", "America/St_Johns")):
        env = os.environ | {"LC_ALL": "tr_TR.UTF-8", "TZ": zone, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", script, bundle.path], env=env, capture_output=True, check=True)
        assert done.stdout == bundle.verdicts


# --- Freshness and coverage -------------------------------------------------------------------------------------------


def aged(days: float | None, **more: Any) -> Contract:
    return drafts.contract(drafts.gate(max_age_days=days, **more))


def test_evidence_beyond_its_gate_s_age_is_stale(tmp_path: Path) -> None:
    path = seal(drafts.draft(given=aged(2.0)), tmp_path, drafts.REDACTOR).path
    assert verify(path, NOW).freshness.state is State.HOLDS
    later = verify(path, Against(now=NOW.now + timedelta(hours=12))).freshness
    assert later.says == "STALE: 2.5 days old; GATE-IMPORT-001: at most 2 days old, is 2.5"
    assert later.state is State.BROKEN


def test_a_contract_changed_since_makes_evidence_stale(bundle: Bundle) -> None:
    answer = verify(bundle.path, dataclasses.replace(NOW, contracts={"checkpoint-import": "0" * 64})).freshness
    assert answer.says == "STALE: 2.0 days old; the contract has changed since"


def test_evidence_from_the_future_is_not_fresh(bundle: Bundle) -> None:
    answer = verify(bundle.path, Against(now=drafts.NOON - timedelta(seconds=301))).freshness
    assert answer.says == "finished 2026-04-26T12:00:00.000Z, which is in the future"
    assert verify(bundle.path, Against(now=drafts.NOON - timedelta(seconds=299))).freshness.state is State.HOLDS


def test_a_blocked_required_gate_is_not_covered(tmp_path: Path) -> None:
    given = drafts.contract(drafts.gate(), drafts.gate("GATE-IMPORT-003", "byte-identity", where={"tied": True}))
    path = seal(drafts.draft(given=given), tmp_path, drafts.REDACTOR).path
    answer = verify(path, NOW).coverage
    assert answer.says == "1 of 2 required gates counted; not: GATE-IMPORT-003[default]: BLOCKED (where-unknown)"
    assert answer.state is State.BROKEN


def test_no_required_gate_is_no_coverage(tmp_path: Path) -> None:
    given = drafts.contract(drafts.gate(severity=Severity.ADVISORY))
    answer = verify(seal(drafts.draft(given=given), tmp_path, drafts.REDACTOR).path, NOW).coverage
    assert (answer.state, answer.says) == (State.BROKEN, "0 of 0 required gates: nothing was shown")


def test_an_unmeasured_gate_judges_again_to_the_same_bytes(tmp_path: Path) -> None:
    unmeasured = {drafts.PAIRS: Unmeasured(code="unbound", why="not bound", remedy="bind it")}
    path = seal(drafts.draft(unmeasured, canaries={}), tmp_path, drafts.REDACTOR).path
    assert verify(path, NOW).rederivation.state is State.HOLDS
