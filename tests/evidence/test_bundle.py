from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.disks import failing
from tests.evidence import drafts

from weighbridge.core.canonical import loads, sha256
from weighbridge.core.errors import BundleError
from weighbridge.core.model import Faulted, Measured, Unmeasured
from weighbridge.evidence.bundle import seal, unseal

EFFECTS = ("open", "write", "fsync", "rename", "mkdir")


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_bundle_holds_exactly_these_files(tmp_path: Path) -> None:
    bundle = seal(drafts.draft({drafts.PAIRS: drafts.pairs(drafts.pair("a"))}), tmp_path, drafts.REDACTOR)
    assert bundle.path.name == f"2026-04-26-checkpoint-import-{bundle.id[:12]}"
    assert names(bundle.path) == [
        "MANIFEST.json",
        "canaries.json",
        "contract.json",
        "contract.yaml",
        "environment.json",
        "logs/verify.txt",
        f"measurements/{drafts.PAIRS}.json",
        "statement.json",
        "verdicts.json",
    ]
    assert sha256((bundle.path / "statement.json").read_bytes()) == bundle.id


def test_what_was_sealed_is_what_is_read_back(tmp_path: Path) -> None:
    measured: dict[str, Measured] = {
        drafts.PAIRS: drafts.pairs(drafts.pair("a"), drafts.pair("b")),
        "column.run.default": drafts.series(),
        "facts.run.Falcon": Unmeasured(code="unbound", why="not bound", remedy="bind it"),
        "host.default": Faulted(code="torn", why="cut short", remedy="again"),
    }
    draft = drafts.draft(measured)
    bundle = seal(draft, tmp_path, drafts.REDACTOR)
    assert bundle.measured == {**draft.measured, "column.run.default": bundle.measured["column.run.default"]}
    assert bundle.contract == draft.contract
    assert bundle.contract_yaml == draft.contract_yaml
    assert bundle.canaries == draft.canaries
    assert [finding.verdict.outcome for finding in bundle.findings] == ["PASS", "PASS"]
    assert bundle.environment == {"python": "3.11.9", "torch": "2.13.0"}
    assert bundle.logs == {"logs/verify.txt": b"measured 2 of 2 tensors\n"}


def test_the_statement_names_every_file_of_every_subject(tmp_path: Path) -> None:
    bundle = seal(drafts.draft(), tmp_path, drafts.REDACTOR)
    stated: Any = loads((bundle.path / "statement.json").read_bytes())
    assert stated["_type"] == "https://in-toto.io/Statement/v1"
    assert stated["subject"][1] == {
        "name": "import.safetensors",
        "digest": {"sha256": b"import".hex().ljust(64, "0")},
        "annotations": {"subject": "import", "instance": "default", "origin": "live", "size": 12},
    }


def test_an_array_is_stored_once_whoever_names_it(tmp_path: Path) -> None:
    measured = {"column.a.default": drafts.series(), "column.b.default": drafts.series()}
    bundle = seal(drafts.draft(measured), tmp_path, drafts.REDACTOR)
    assert len(list((bundle.path / "measurements").glob("*.npy"))) == 2


def test_keys_that_differ_in_letter_case_get_different_files(tmp_path: Path) -> None:
    column = drafts.series()
    measured = {"column.a.Falcon": column, "column.a.falcon": column, "column.a.../../x": column}
    bundle = seal(drafts.draft(measured), tmp_path, drafts.REDACTOR)
    files = [name.lower() for name in names(bundle.path / "measurements") if name.endswith(".json")]
    assert len(set(files)) == 3
    assert set(bundle.measured) == set(measured)


def test_a_long_log_keeps_its_tail_and_says_what_was_cut(tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(60_000))
    bundle = seal(drafts.draft(logs={"train": text}), tmp_path, drafts.REDACTOR)
    kept = bundle.logs["logs/train.txt"]
    first, _, rest = kept.partition(b"\n")
    assert first == f"[{len(text) - len(rest)} bytes before this were cut]".encode()
    assert rest.startswith(b"line ")
    assert rest.endswith(b"line 59999\n")
    assert len(rest) <= 256 << 10


def test_sealing_the_same_twice_gives_the_same_bundle(tmp_path: Path) -> None:
    once = seal(drafts.draft(), tmp_path, drafts.REDACTOR)
    assert seal(drafts.draft(), tmp_path, drafts.REDACTOR) == once
    assert len(list(tmp_path.iterdir())) == 1


def test_a_bundle_is_refused_where_it_could_not_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.evidence.manifest.MAX_FILES", 3)
    with pytest.raises(BundleError, match="too-large a bundle holds at most 3 files"):
        seal(drafts.draft(), tmp_path, drafts.REDACTOR)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.slow)])
def test_a_disk_that_refuses_at_any_effect_leaves_no_bundle_or_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    draft = drafts.draft()
    at, after_rename = 0, 0
    while True:
        at += 1
        into = tmp_path / f"{number}-{at}"
        into.mkdir()
        counter = [0]
        with monkeypatch.context() as patch:
            for name in EFFECTS:
                patch.setattr(os, name, failing(at, number, counter, getattr(os, name)))
            with contextlib.suppress(BundleError):
                seal(draft, into, drafts.REDACTOR)
        if counter[0] < at:
            break
        left = list(into.iterdir())
        after_rename += len(left)
        assert [unseal(path).path for path in left] == left
        assert len(left) <= 1
        assert seal(draft, into, drafts.REDACTOR).path.parent == into
    assert at > 30
    assert after_rename > 0


@pytest.mark.slow
def test_a_process_that_dies_while_sealing_leaves_no_bundle_that_is_not_whole(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from tests.evidence import drafts\n"
        "from weighbridge.evidence.bundle import seal\n"
        "at, seen = int(sys.argv[2]), [0]\n"
        "def dying(real):\n"
        "    def effect(*args, **named):\n"
        "        seen[0] += 1\n"
        "        if seen[0] == at: os._exit(9)\n"
        "        return real(*args, **named)\n"
        "    return effect\n"
        "for name in ('write', 'fsync', 'rename'): setattr(os, name, dying(getattr(os, name)))\n"
        "seal(drafts.draft(), Path(sys.argv[1]), drafts.REDACTOR)\n"
    )
    for at in (1, 9, 17, 20, 22, 23):
        into = tmp_path / str(at)
        done = subprocess.run(
            [sys.executable, "-c", script, str(into), str(at)], cwd=Path(__file__).parents[2], check=False
        )
        left = [path for path in into.iterdir() if not path.name.startswith(".stage-")]
        assert done.returncode in (0, 9)
        assert [unseal(path).path for path in left] == left


@pytest.mark.parametrize(
    "change",
    [
        {"command": ("weighbridge", "verify", "--subject", "run=/home/ada/runs/a")},
        {"contract_yaml": b"# measured on ada's machine\n" + drafts.written(drafts.contract())},
        {"contract_yaml": b"# " + b"AKIA" + b"A1" * 8 + b"\n" + drafts.written(drafts.contract())},
        {"host": "ada"},
        {"subjects": (dataclasses.replace(drafts.bound("import"), path="/mnt/models/falcon/import.safetensors"),)},
        {"environment": {"python": "password=" + "hunter2hunter2"}},
        {"canaries": {drafts.PAIRS: dataclasses.replace(drafts.seen()[drafts.PAIRS], place="hf_" + "Ab1" * 12)}},
    ],
    ids=["path in argv", "name in a comment", "secret in a comment", "host", "subject path", "environment", "canary"],
)
def test_a_bundle_that_still_holds_a_secret_is_refused_without_repeating_it(tmp_path: Path, change: Any) -> None:
    with pytest.raises(BundleError) as caught:
        seal(drafts.draft(**change), tmp_path, drafts.REDACTOR)
    assert caught.value.code == "secret-found"
    assert not any(secret in str(caught.value) for secret in ("ada", "AKIA", "hunter2", "falcon", "Ab1"))
    assert list(tmp_path.iterdir()) == []
