"""`weighbridge evidence`: the reviewer's questions, each answered by one command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cases import each
from tests.cli.conftest import Cli
from tests.evidence.test_review import resealed

from weighbridge.core.canonical import loads, sha256
from weighbridge.core.data import data_path
from weighbridge.evaluation import runner, verification
from weighbridge.evidence.statement import Tool
from weighbridge.gates import KINDS

HERE = data_path("verifiers") / "specimens" / "checkpoints"
SOURCE, GOOD, BAD = (HERE / name for name in ("source.safetensors", "import.gguf", "relabelled.safetensors"))
VERIFY = "verify", "builtin:checkpoint-import", "--subject", f"source={SOURCE}", "--subject"
LOG = "step 1 loss 10.8\npassword=correct-horse from 10.1.2.3\n"


def sealed(cli: Cli, imported: Path, *more: object) -> Path:
    before = set(Path(".weighbridge/bundles").glob("*"))
    cli(*VERIFY, f"import={imported}", *more)
    (bundle,) = set(Path(".weighbridge/bundles").glob("*")) - before
    return bundle


def test_a_bundle_that_passed_says_so_first(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    ended = cli("evidence", "verify", bundle, "--require-pass")
    assert (ended.code, ended.lines[1].split()[:2]) == (0, ["PASS", "GATE-IMPORT-001"])


@each("verb", ["show", "verify", "export --as svr", "pack", "rejudge", "sign --key ada.key", "diff"])
def test_a_bundle_that_is_kept_here_is_found_by_its_id(cli: Cli, verb: str) -> None:
    cli("evidence", "keygen", "ada.key")
    id12 = (bundle := sealed(cli, GOOD)).name[-12:]
    more = {"pack": ("one.tar",), "diff": (bundle,)}.get(verb, ())
    assert cli("evidence", *verb.split(), id12, *more).code == 0


def test_a_draft_names_a_command_that_shows_its_figures(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    draft = cli("amend", "draft", "--bundle", bundle, "--gate", "GATE-IMPORT-001").out
    (command,) = re.findall("`weighbridge (evidence show [0-9a-f]*)`", draft)
    whole = re.findall("(?m)^bundle ([0-9a-f]{64})$", cli(*command.split()).out)
    assert cli("evidence", "show", *whole).code == 0


def test_digits_that_no_kept_bundle_has_are_said_to_be_unknown(cli: Cli) -> None:
    id12 = sealed(cli, GOOD).name[-12:]
    for digits in ("0" * 12, id12 + "0" * 52):
        ended = cli("evidence", "show", digits)
        assert (ended.code, "unknown-bundle" in ended.err) == (2, True)


def test_a_bundle_of_a_fail_holds_and_says_first_that_it_failed(cli: Cli) -> None:
    bundle = sealed(cli, BAD)
    ended = cli("evidence", "verify", bundle)
    assert (ended.code, ended.lines[1].split()[:2]) == (0, ["FAIL", "GATE-IMPORT-001"])
    assert ended.lines[1].endswith("(dtype)")
    required = cli("evidence", "verify", bundle, "--require-pass", "--json")
    gate = {
        "gate": "GATE-IMPORT-001",
        "instance": "default",
        "severity": "required",
        "outcome": "FAIL",
        "code": "dtype",
    }
    assert (required.code, json.loads(required.out)["gates"]) == (1, [gate])


def test_a_forged_pass_is_not_shown_as_what_was_measured(cli: Cli) -> None:
    def forge(files: dict[str, bytes]) -> None:
        files["verdicts.json"] = (good / "verdicts.json").read_bytes()

    good, bad = sealed(cli, GOOD), sealed(cli, BAD)
    ended = cli("evidence", "verify", resealed(bad, forge))
    assert (ended.code, ended.lines[1]) == (1, "as sealed, which is not what the measurements give:")
    assert ended.lines[2].startswith("PASS")


def test_a_bundle_of_a_blocked_gate_did_not_pass(cli: Cli) -> None:
    cli(*VERIFY[:-1])
    (bundle,) = Path(".weighbridge/bundles").iterdir()
    assert cli("evidence", "verify", bundle, "--require-pass").code == 1
    assert cli("evidence", "verify", bundle).lines[1].split()[0] == "BLOCKED"


def test_under_another_name_the_id_that_was_reported_holds_a_bundle(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    shutil.copytree(bundle, "from-ci")
    unheld = cli("evidence", "verify", "from-ci")
    assert unheld.code == 1
    assert "evidence verify --id ID12" in unheld.out
    kept = cli("evidence", "verify", "from-ci", "--id", bundle.name[-12:], "--require-anchor")
    assert (kept.code, "it is the id that was given" in kept.out) == (0, True)
    assert cli("evidence", "verify", "from-ci", "--id", "0" * 12).code == 1
    assert cli("evidence", "show", "from-ci", "--id", bundle.name[-12:]).code == 0
    assert cli("evidence", "rejudge", "from-ci", "--id", bundle.name[-12:]).code == 0
    short = cli("evidence", "verify", "from-ci", "--id", "0346")
    assert (short.code, "id-form '0346' is no id of a bundle" in short.err) == (2, True)


@pytest.mark.parametrize(("old", "new"), [("checkpoint-import", "training-run"), ("20", "19")])
def test_a_folder_whose_name_lies_is_refused(cli: Cli, old: str, new: str) -> None:
    bundle = sealed(cli, GOOD)
    moved = bundle.rename(bundle.with_name(bundle.name.replace(old, new, 1)))
    ended = cli("evidence", "verify", moved, "--id", bundle.name[-12:])
    assert (ended.code, "its folder's name says otherwise" in ended.out) == (1, True)


@pytest.mark.slow
def test_the_file_that_was_measured_is_distinguished_from_another_by_its_digest(cli: Cli, workplace: Path) -> None:
    (workplace / "corpus.txt").write_text("once upon a time")
    bundle = sealed(cli, GOOD, "--input", "corpus=corpus.txt")
    shutil.copy(GOOD, "renamed.bin")
    same = cli("evidence", "verify", bundle, "--subject", "import=renamed.bin", "--subject", "corpus=corpus.txt")
    assert (same.code, same.out.count("as it was measured")) == (0, 2)
    (workplace / "corpus.txt").write_text("Once upon a time")
    for words in (("import", BAD), ("import@default", SOURCE), ("corpus", "corpus.txt")):
        other = cli("evidence", "verify", bundle, "--subject", "=".join(map(str, words)))
        assert (other.code, "is not" in other.lines[-1]) == (1, True)
    unknown = cli("evidence", "verify", bundle, "--subject", f"imprt={GOOD}")
    assert (unknown.code, "did you mean 'import'?" in unknown.err) == (2, True)
    assert cli("evidence", "verify", bundle, "--subject", "import=missing").code == 4
    assert cli("evidence", "verify", bundle, "--subject", "import").code == 2


CONFIG = '{"model_type": "llama", "hidden_size": 8}'


@pytest.fixture
def of_folder(cli: Cli, workplace: Path) -> Path:
    """Seal a source that is a folder of a file of tensors and its configuration."""
    for name in ("m", "n"):
        (workplace / name).mkdir()
        save_file({"w": np.arange(6, dtype=np.float32)}, workplace / name / "model.safetensors")
        (workplace / name / "config.json").write_text(CONFIG)
    assert cli("verify", "builtin:checkpoint-import", "--subject", "source=m", "--subject", "import=n").code == 0
    (bundle,) = Path(".weighbridge/bundles").iterdir()
    return bundle


def second_gguf(folder: Path) -> None:
    for name in ("a.gguf", "b.gguf"):
        shutil.copy(GOOD, folder / name)


ADDED: dict[str, Callable[[Path], object]] = {
    "adapter_config.json": lambda folder: (folder / "adapter_config.json").write_text("{}"),
    "adapter_model.bin": lambda folder: (folder / "adapter_model.bin").write_bytes(b"x"),
    "tokenizer.json": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    "generation_config.json": lambda folder: (folder / "generation_config.json").write_text("{}"),
    "": lambda folder: shutil.copy(folder / "model.safetensors", folder / "model-00002-of-00002.safetensors"),
    "a.gguf": second_gguf,
    "config.json": lambda folder: (folder / "config.json").write_text(CONFIG.replace("8", "9")),
    "model.safetensors": lambda folder: (folder / "model.safetensors").unlink(),
}


def test_a_folder_is_the_subject_where_every_file_of_it_is(cli: Cli, of_folder: Path) -> None:
    ended = cli("evidence", "verify", of_folder, "--subject", "source=m")
    assert (ended.code, "m is source@default as it was measured" in ended.lines[-1]) == (0, True), ended.out
    Path("m/README.md").write_text("which no loader reads")
    assert cli("evidence", "verify", of_folder, "--subject", "source=m").code == 0


@pytest.mark.parametrize("name", ADDED)
def test_a_folder_with_a_file_that_the_bundle_does_not_know_is_not_the_subject(
    cli: Cli, of_folder: Path, name: str
) -> None:
    ADDED[name](Path("m"))
    ended = cli("evidence", "verify", of_folder, "--subject", "source=m")
    row = next(line for line in ended.lines if line.startswith("  subject source"))
    assert (ended.code, "broken" in row, name in ended.out.partition("subject source")[2]) == (1, True, True), ended.out


def test_one_file_of_several_does_not_answer_for_the_others(cli: Cli, of_folder: Path) -> None:
    Path("config.json").write_text(CONFIG)
    for file in ("m/config.json", "config.json"):
        ended = cli("evidence", "verify", of_folder, "--subject", f"source={file}")
        row = next(line for line in ended.lines if line.startswith("  subject source"))
        assert (ended.code, "cannot say" in row) == (3, True), ended.out
        assert "model.safetensors: sha256 " in ended.lines[-1]
    Path("config.json").write_text("{}")
    assert cli("evidence", "verify", of_folder, "--subject", "source=config.json").code == 1
    assert cli("evidence", "verify", of_folder, "--subject", "source=m/model.safetensors").code == 0  # with its config
    Path("m/config.json").write_text("{}")
    assert cli("evidence", "verify", of_folder, "--subject", "source=m/model.safetensors").code == 1


def test_a_renamed_bundle_and_a_folder_of_bundles_say_so(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    several = cli("evidence", "verify", bundle.parent)
    assert (several.code, f"name one of them, such as {bundle}" in several.err) == (4, True), several.err
    ended = cli("evidence", "verify", bundle.rename(bundle.with_name(f"{bundle.name[:-12]}{'a' * 12}")))
    assert (ended.code, ended.out.count("its folder says aaaaaaaaaaaa")) == (1, 1), ended.out
    assert "it was renamed" in ended.out


def test_a_contract_did_not_change_because_a_parameter_was_given(cli: Cli, workplace: Path) -> None:
    mine = workplace / "contracts" / "mine.yaml"
    mine.parent.mkdir()
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text()
    assert "{policy: lossless}" in text
    policy = "params: {policy: {type: string, default: lossless}}\n"
    mine.write_text(text.replace("{policy: lossless}", '{policy: "${params.policy}"}') + policy)
    words = ("--subject", f"source={SOURCE}", "--subject", f"import={GOOD}", "--param", "policy=same")
    cli("verify", mine, *words)
    (bundle,) = Path(".weighbridge/bundles").iterdir()
    assert "has changed" not in cli("evidence", "verify", bundle).out
    mine.write_text(mine.read_text().replace("title: ", "title: Another "))
    assert "STALE: 0.0 days old; the contract has changed since" in cli("evidence", "verify", bundle).out


def test_what_is_attached_is_sealed_redacted_with_its_role_and_digest(cli: Cli, workplace: Path) -> None:
    (workplace / "train.log").write_text(LOG)
    bundle = sealed(cli, GOOD, "--attach", "log=train.log")
    text = (bundle / "logs" / "log.txt").read_bytes()
    assert text.startswith(b"step 1 loss 10.8\n")
    assert b"correct-horse" not in text
    assert b"10.1.2.3" not in text
    (one,) = loads((bundle / "statement.json").read_bytes())["predicate"]["companions"]
    wanted = {"role": "log", "name": "train.log", "sha256": sha256(LOG.encode()), "size": len(LOG), "sealed": True}
    assert one == wanted
    shown = cli("evidence", "show", bundle).out
    assert f"{wanted['sha256']}  log train.log attached" in shown
    (bundle / "logs" / "log.txt").write_bytes(text[:-1] + b"!")
    altered = cli("evidence", "verify", bundle)
    assert (altered.code, altered.lines[1]) == (1, "what its gates came to cannot be said: its integrity is broken")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--attach", "log"), 2), (("--attach", "../log=train.log"), 2), (("--attach", "log=missing"), 2),
        (("--attach", "a=train.log", "--input", "a=train.log"), 2), (("--attach", "log=."), 2),
        (("--input", "corpus=missing"), 4),
    ],
)  # fmt: skip
def test_what_cannot_be_attached_is_refused_before_anything_is_measured(
    cli: Cli, workplace: Path, words: tuple[str, ...], code: int
) -> None:
    (workplace / "train.log").write_text(LOG)
    assert cli(*VERIFY, f"import={GOOD}", *words).code == code
    assert not (workplace / ".weighbridge" / "bundles").exists()


def test_a_bundle_shows_kinds_limits_digests_trials_and_environment(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    out = cli("evidence", "show", bundle).out
    cited = f"cited by [ev:{bundle.name[-12:]}#/findings/0/NAME]: outcome PASS, counted 2, of 2, figures/elements "
    assert f"{cited}14\n" in out
    Path("notes.md").write_text(f"It holds 14 elements [ev:{bundle.name[-12:]}#/findings/0/figures/elements].\n")
    checked = cli("amend", "check", "notes.md").out  # by a tool under development, or a clean one
    assert {*re.findall(r"^notes.md:1:1: ([a-z-]+)", checked, re.MULTILINE)} <= {"dirty-tool"}, checked
    assert f"by dtype-preservation/{KINDS['dtype-preservation'].version}, limits policy: lossless" in out
    assert "caught" in out
    assert f"{sha256(GOOD.read_bytes())}  import@default import.gguf" in out
    assert f"numpy {np.__version__}" in out
    assert re.search(r"(?m)^tool   [0-9a-f]{64}$", out)


def test_two_bundles_differ_in_what_is_printed_and_in_nothing_else(cli: Cli) -> None:
    good, bad = sealed(cli, GOOD), sealed(cli, BAD)
    same = cli("evidence", "diff", good, good)
    assert (same.code, same.lines) == (
        0, ["no difference: same outcomes, figures, subjects, environment and contract"]
    )  # fmt: skip
    ended = cli("evidence", "diff", good, bad)
    assert (ended.code, [line for line in ended.lines if not line.startswith(" ")]) == (
        1, ["outcomes", "figures", "subjects"]
    )  # fmt: skip
    assert "  GATE-IMPORT-001[default]: 'PASS pass' -> 'FAIL dtype'" in ended.lines
    assert list(json.loads(cli("evidence", "diff", good, bad, "--json").out)) == ["figures", "outcomes", "subjects"]


def test_a_packed_bundle_is_the_same_file_from_a_folder_and_from_itself(cli: Cli, workplace: Path) -> None:
    bundle = sealed(cli, GOOD)
    assert cli("evidence", "pack", bundle, "a.tar").code == 0
    assert cli("evidence", "pack", "a.tar", "b.tar").code == 0
    assert (workplace / "a.tar").read_bytes() == (workplace / "b.tar").read_bytes()
    assert cli("evidence", "verify", "a.tar", "--require-pass").code == 0
    again = cli("evidence", "pack", bundle, "a.tar")
    assert (again.code, "disk the archive was not written: File exists" in again.err) == (4, True)


def test_a_full_disk_leaves_no_half_of_an_archive(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_handle: int, _data: bytes) -> int:
        raise OSError(28, os.strerror(28))

    bundle = sealed(cli, GOOD)
    before = set(Path().iterdir())
    with monkeypatch.context() as disk:
        disk.setattr("weighbridge.evidence.disk.os.write", full)
        ended = cli("evidence", "pack", bundle, "a.tar")
    assert (ended.code, "disk the archive was not written: No space left" in ended.err) == (4, True)
    assert set(Path().iterdir()) == before


# --- Merging ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Record a live PASS, and give the folder of its evidence."""
    monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0"))
    for name in ("a", "b"):
        save_file({"w": np.arange(6, dtype=np.float32)}, workplace / f"{name}.safetensors")
    words = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors", "--record")
    assert cli("verify", "builtin:checkpoint-import", *words).code == 0
    return workplace / "evidence"


def test_merging_brings_bundles_and_entries_once(cli: Cli, workplace: Path, recorded: Path) -> None:
    first = cli("evidence", "merge", recorded, "--into", "all")
    assert (first.code, first.lines[-1]) == (0, "1 bundle new, 0 there already; 2 ledger entries new")
    again = cli("evidence", "merge", recorded, "--into", "all")
    assert again.lines == ["0 bundles new, 1 there already; 0 ledger entries new"]
    (bundle,) = (workplace / "all" / "bundles").iterdir()
    assert cli("evidence", "verify", bundle, "--require-anchor", "--require-pass").code == 0
    assert cli("ledger", "check", "--ledger", "all/ledger").code == 0


def test_an_archive_is_unpacked_by_merging_it(cli: Cli, workplace: Path, recorded: Path) -> None:
    (bundle,) = (recorded / "bundles").iterdir()
    cli("evidence", "pack", bundle, "one.tar")
    assert cli("evidence", "merge", "one.tar", "--into", "all").lines[0] == f"new: {bundle.name}"
    cli("evidence", "pack", workplace / "all" / "bundles" / bundle.name, "two.tar")
    assert (workplace / "one.tar").read_bytes() == (workplace / "two.tar").read_bytes()


def test_an_archive_of_many_bundles_is_merged_whole_and_one_with_a_ledger_is_refused(
    cli: Cli, workplace: Path, recorded: Path
) -> None:
    (bundle,) = (recorded / "bundles").iterdir()
    words = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors", "--evidence", "evidence")
    assert cli("verify", "builtin:checkpoint-import", *words).code == 0
    shutil.make_archive(str(workplace / "all"), "zip", recorded, "bundles")
    merged = cli("evidence", "merge", "all.zip", "--into", "other")
    assert (merged.code, merged.lines[-1]) == (0, "2 bundles new, 0 there already; 0 ledger entries new")
    for one in (workplace / "other" / "bundles").iterdir():
        assert {path.name: path.read_bytes() for path in one.rglob("*.json")} == {
            path.name: path.read_bytes() for path in (recorded / "bundles" / one.name).rglob("*.json")
        }
    shutil.make_archive(str(workplace / "with-ledger"), "zip", recorded)
    refused = cli("evidence", "merge", "with-ledger.zip", "--into", "third")
    assert (refused.code, "archive-member holds an entry of a ledger" in refused.err) == (4, True)
    (bundle / "verdicts.json").write_bytes(b"{}")
    shutil.make_archive(str(workplace / "damaged"), "zip", recorded, "bundles")
    assert cli("evidence", "merge", "damaged.zip", "--into", "third").code == 4
    assert not (workplace / "third").exists()


def test_a_damaged_bundle_is_merged_nowhere(cli: Cli, workplace: Path, recorded: Path) -> None:
    (bundle,) = (recorded / "bundles").iterdir()
    shutil.copytree(recorded, "good")
    (bundle / "verdicts.json").write_bytes((bundle / "verdicts.json").read_bytes() + b" ")
    ended = cli("evidence", "merge", "good", recorded, "--into", "all")
    assert (ended.code, "not-whole" in ended.err) == (4, True)
    assert not (workplace / "all").exists()


def test_entries_whose_bundle_is_nowhere_are_not_merged(cli: Cli, workplace: Path, recorded: Path) -> None:
    shutil.rmtree(recorded / "bundles")
    ended = cli("evidence", "merge", recorded, "--into", "all")
    assert (ended.code, "no-bundle" in ended.err) == (1, True)
    assert not (workplace / "all").exists()


# --- Hostile folders and disks ----------------------------------------------------------------------------------------


def test_names_in_a_bundle_print_no_lines_of_their_own(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    (bundle / "x\nPASS     GATE-FORGED\x1b[2J").write_text("")
    ended = cli("evidence", "verify", bundle)
    assert ended.code == 1
    assert "\x1b[2J" not in ended.out
    assert not any(line.startswith("PASS") for line in ended.lines)


def test_a_name_that_is_no_text_is_reported_and_not_printed_raw(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    (bundle / os.fsdecode(b"\xff")).write_text("")
    ended = cli("evidence", "verify", bundle)
    assert (ended.code, r"\udcff: is not in the manifest" in ended.out) == (1, True)
    assert cli("evidence", "verify", bundle, "--json").code == 1


def test_a_folder_that_is_not_there_is_named_and_nothing_is_left(cli: Cli, workplace: Path) -> None:
    ended = cli("evidence", "pack", sealed(cli, GOOD), "none/a.tar")
    assert (ended.code, "none/a.tar: disk the archive was not written" in ended.err) == (4, True)
    assert not (workplace / "none").exists()


def test_a_subject_rewritten_between_measuring_and_digesting_seals_nothing(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        save_file({"w": np.arange(6, dtype=np.float32)}, workplace / f"{name}.safetensors")
    path, real = workplace / "b.safetensors", runner.EvaluationSession.judged

    def rewriting(*arguments: Any) -> Any:
        before, data = path.stat(), path.read_bytes()
        path.write_bytes(data[:-1] + b"?")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        return real(*arguments)

    monkeypatch.setattr(runner.EvaluationSession, "judged", rewriting)
    words = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    ended = cli("verify", "builtin:checkpoint-import", *words)
    assert (ended.code, "subject-changed" in ended.err) == (4, True)
    assert not (workplace / ".weighbridge" / "bundles").exists()


# --- Whose evidence it is ---------------------------------------------------------------------------------------------


def predicate(bundle: Path) -> Any:
    return loads((bundle / "statement.json").read_bytes())["predicate"]


def test_the_statement_names_the_tool_by_the_digest_of_its_source(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    first = predicate(sealed(cli, GOOD))["tool"]["digest"]
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read(path) + b"#" * (path.name == "judging.py"))
    assert re.fullmatch(r"[0-9a-f]{64}", first)
    assert verification.tool().digest != first


@pytest.mark.slow
def test_the_statement_holds_the_commit_of_a_run_and_whether_its_tree_was_dirty(cli: Cli, workplace: Path) -> None:
    shutil.copytree(data_path("verifiers") / "specimens" / "runs" / "wrapped", workplace / "run")
    head = json.loads((workplace / "run" / "run.json").read_text())
    for commit, dirty in (("c" * 40, True), ("d" * 40, False), ("not a commit\n", False)):
        (workplace / "run" / "run.json").write_text(json.dumps(head | {"commit": commit, "dirty": dirty}))
        shutil.rmtree(workplace / ".weighbridge", ignore_errors=True)
        cli("verify", "builtin:training-run", "--subject", "run=run")
        (bundle,) = Path(".weighbridge/bundles").iterdir()
        (found,) = predicate(bundle)["subjects"]
        wanted = (commit, dirty) if len(commit) == 40 else ("", None)
        assert (found["commit"], found["dirty"]) == wanted


@pytest.mark.slow
def test_the_statement_holds_the_commit_that_a_command_was_run_from(cli: Cli, workplace: Path) -> None:
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    for words in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    for changed in (False, True):
        if changed:
            (workplace / "train.py").write_text("")
        shutil.rmtree(workplace / ".weighbridge", ignore_errors=True)
        cli("verify", "builtin:pretraining", "--subject", f"refusal={sys.executable} -c 'raise SystemExit(1)'")
        (bundle,) = Path(".weighbridge/bundles").iterdir()
        (found,) = (one for one in predicate(bundle)["subjects"] if one["kind"] == "command")
        assert (found["commit"], found["dirty"]) == (commit, changed)
