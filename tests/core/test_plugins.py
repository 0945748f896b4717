"""What other packages bring: used, sealed, judged again without them; and refused where it cannot be used."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cli, cli

from weighbridge.cards.words import gate_card, gate_words
from weighbridge.core import plugins

__all__ = ["cli"]

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "plugin"
NAME = "weighbridge-dead-rows"
SEALED = {
    *(("kind", "no-dead-rows"), ("quantity", "dead_rows"), ("verifier", "dead_rows")),
    *(("reader of checkpoints", "flat"), ("reader of run logs", "trainlog")),
}


# --- A package that is installed --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the example's wheel and install it into a folder of its own."""
    project, folder = tmp_path_factory.mktemp("plugin") / "project", tmp_path_factory.mktemp("site")
    shutil.copytree(EXAMPLE, project)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps")
    subprocess.run((*pip, "--target", str(folder), str(project)), check=True, capture_output=True)
    return folder


Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(workplace: Path) -> Run:
    """Run the command line in a process that finds the packages of some folders, in a folder with a model and a log."""
    shutil.copytree(EXAMPLE / "contracts", workplace / "contracts")
    shutil.copy(EXAMPLE / "dead_rows" / "specimens" / "dead.flat", workplace / "model.flat")
    log = [f"step={step} loss={9 - step / 20 + (step * 7 % 5) / 10}" for step in range(120)]
    (workplace / "a.trainlog").write_text("\n".join(log) + "\n", encoding="utf-8")

    def run(*words: object, sites: tuple[Path, ...] = ()) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join(map(str, (ROOT / "src", *sites)))
        argv = (sys.executable, "-m", "weighbridge", *map(str, words))
        env = {**os.environ, "PYTHONPATH": path}
        return subprocess.run(argv, cwd=workplace, env=env, check=False, capture_output=True, text=True)

    return run


VERIFY = ("verify", "--subject", "model=model.flat", "--subject", "run=a.trainlog")


@pytest.mark.exhaustive
def test_a_package_is_used_sealed_and_judged_again_without_it(run: Run, site: Path, workplace: Path) -> None:
    shown = run("selftest", "no-dead-rows", "dead_rows", sites=(site,))
    assert (shown.returncode, shown.stdout) == (0, "11 of 11 hold, 0 wrong, 0 not tried\n")
    ended = run(*VERIFY, "--report", "tsv:report.tsv", sites=(site,))
    assert (ended.returncode, "1 of 1 tensor has at most 2 dead rows" in ended.stdout) == (0, True), ended
    report = (workplace / "report.tsv").read_text("utf-8")
    assert report == "embedding\tGATE-ROWS\tPASS\nembedding\tGATE-LOSS\tPASS\n"
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    sealed = json.loads((bundle / "plugins.json").read_bytes())["plugins"]
    assert {(one["what"], one["name"]) for one in sealed} == SEALED
    assert {(one["package"], one["version"], len(one["digest"])) for one in sealed} == {(NAME, "1.0.0", 64)}
    again = run("evidence", "verify", bundle, sites=(site,))
    assert (again.returncode, "judged again: 2 of 2 verdicts follow, byte for byte\n" in again.stdout) == (0, True)

    without = run("evidence", "verify", bundle)
    printed = f"not re-derivable here: kind no-dead-rows comes with {NAME} 1.0.0 (digest {sealed[0]['digest'][:12]}…)"
    assert (without.returncode, f"{printed}: install it\n" in without.stdout) == (3, True), without.stdout
    assert "integrity     holds" in without.stdout
    assert "coverage      holds       2 of 2 required gates counted" in without.stdout
    assert run("evidence", "rejudge", bundle).returncode == 3
    assert "GATE-ROWS  Two rows of padding, and no more\n    pass\n" in run("evidence", "show", bundle).stdout
    (bundle / "measurements" / "dead_rows.model.default.json").write_bytes(b"{}\n")
    assert run("evidence", "verify", bundle).returncode == 1


@pytest.mark.exhaustive
def test_another_version_that_judges_alike_is_reported_and_one_that_does_not_is_no_mismatch(
    run: Run, site: Path, workplace: Path, tmp_path: Path
) -> None:
    run(*VERIFY, sites=(site,))
    (bundle,) = (workplace / ".weighbridge" / "bundles").iterdir()
    other = tmp_path / "other"
    shutil.copytree(site, other, ignore=shutil.ignore_patterns("__pycache__"))
    (module,) = other.glob("dead_rows/no_dead_rows.py")
    module.write_text(module.read_text("utf-8") + "\n# mended\n", encoding="utf-8")
    alike = run("evidence", "verify", bundle, sites=(other,))
    printed = f"kind no-dead-rows came with {NAME} 1.0.0 (digest "
    assert (alike.returncode, "verdicts follow" in alike.stdout, printed in alike.stdout) == (0, True, True)
    module.write_text(module.read_text("utf-8").replace("row.dead,", "row.dead + 1,"), encoding="utf-8")
    differs = run("evidence", "verify", bundle, sites=(other,))
    assert (differs.returncode, f"not re-derivable here: {printed}" in differs.stdout) == (3, True)
    module.write_text("import nonexistent\n", encoding="utf-8")
    for contracts in ("contracts", "none"):  # of the project, which are asked for freshness alone
        (workplace / "contracts").rename(workplace / contracts)
        broken = run("evidence", "verify", bundle, sites=(other,))
        assert (broken.returncode, "integrity     holds" in broken.stdout) == (3, True), broken
        assert f"not re-derivable here: {NAME} 1.0.0 brings the gate 'no-dead-rows', which cannot" in broken.stdout


@pytest.mark.exhaustive
def test_words_and_lists_have_what_is_installed(run: Run, site: Path, workplace: Path) -> None:
    assert run("explain", "no-dead-rows", sites=(site,)).stdout.startswith("no-dead-rows (version 1)\n")
    assert run("explain", "dead_rows", sites=(site,)).stdout.startswith("dead_rows (quantity of checkpoint)\n")
    assert (
        "no-dead-rows" in json.loads(run("schema", sites=(site,)).stdout)["$defs"]["gate"]["properties"]["kind"]["enum"]
    )
    assert re.search(
        r"^kind no-dead-rows +weighbridge-dead-rows 1.0.0$", run("doctor", sites=(site,)).stdout, re.MULTILINE
    )
    assert "unknown-kind there is no gate kind 'no-dead-rows'" in run("lint").stderr
    contract = workplace / "contracts" / "embedding.yaml"
    contract.write_text(contract.read_text("utf-8").replace("no-dead-rows", "no-ded-rows"), encoding="utf-8")
    assert "did you mean 'no-dead-rows'?" in run("lint", sites=(site,)).stderr
    (workplace / "broken.flat").write_bytes(b"FLAT\x00")
    assert "flat-header it ends before its header" in run("inspect", "broken.flat", sites=(site,)).stderr
    assert run(*VERIFY, "--report", "tvs:r").stderr.startswith("report-form 'tvs:r' names no report")


# --- A package that cannot be used ------------------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install packages of one module each; what is known of entry points is forgotten before and after."""

    def forget() -> None:
        plugins.entry_points.cache_clear()
        plugins._LOADED.clear()
        gate_card.cache_clear()
        gate_words.cache_clear()

    def install(package: str, group: str, entry: str, source: str) -> None:
        info = tmp_path / f"{package}-2.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 2.1\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[weighbridge.{group}]\n{entry}\n", encoding="utf-8")
        (tmp_path / f"{package}.py").write_text(source, encoding="utf-8")
        forget()

    monkeypatch.syspath_prepend(tmp_path)
    yield install
    forget()


KIND = "from weighbridge.gates.byte_identity import KIND\n"
CONTRACT = """weighbridge: contract/v0
id: c
version: 1.0.0
title: t
owner: me
subjects: {a: {kind: checkpoint}}
gates: [{id: GATE-A, title: t, kind: acme, subjects: {candidate: a}}]
"""


RENAMED = f'{KIND}import dataclasses\nKIND = dataclasses.replace(KIND, name="acme")\n'
UNUSABLE = {
    "import acme_lacks_this\n": "plugin-broken cannot be imported: ModuleNotFoundError: No module named",
    "raise SystemExit(0)\n": "plugin-broken cannot be imported: SystemExit: 0",
    "other = 1\n": "plugin-broken cannot be imported: AttributeError: module 'acmepack1' has no attribute 'KIND'",
    "KIND = 1\n": "plugin-shape is of the type int, not Kind or Quantity",
    KIND: "plugin-shape calls itself 'byte-identity'",
}


@pytest.mark.slow
@pytest.mark.parametrize("source", UNUSABLE)
def test_a_broken_package_is_reported_by_name_and_version_and_is_never_silently_missing(
    cli: Cli, install: Callable[..., None], workplace: Path, source: str
) -> None:
    sys.modules.pop("acmepack1", None)
    install("acmepack1", "gates", "acme = acmepack1:KIND", source)
    code, _, why = UNUSABLE[source].partition(" ")
    what = "kind" if source == KIND else "gate"  # what cannot be imported, or is neither, is of no type that is known
    printed = f"acmepack1 2.1 brings the {what} 'acme', which {why}"
    (workplace / "c.yaml").write_text(CONTRACT, encoding="utf-8")
    ended = cli("lint", "c.yaml")
    assert (ended.code, f"acmepack1:KIND: {code} {printed}" in ended.err, "Traceback" in ended.err) == (4, True, False)
    assert (cli("explain", "acme").code, cli("explain", "byte-identity").code) == (4, 0)
    assert f"{what} acme          {code}: {printed}" in cli("doctor").out
    assert (cli("selftest", "byte-identity").code, cli("lint", "builtin:checkpoint-import").code) == (1, 0)


def test_a_kind_without_a_card_is_reported_where_it_would_be_explained(cli: Cli, install: Callable[..., None]) -> None:
    install("acmepack6", "gates", "acme = acmepack6:KIND", RENAMED)
    printed = "plugin-card: acmepack6 2.1 brings the kind 'acme', which lacks acme.yaml beside its module acmepack6"
    assert printed in " ".join(cli("explain").out.split())
    assert printed in cli("doctor").out


RAISES = f"""{KIND}import dataclasses
def judge(_evidence, _limits):
    raise AN_ERROR
KIND = dataclasses.replace(KIND, name="acme", judge=judge)
"""
RAISED = {
    "acmepack12": ('ValueError("boom")', "ValueError: boom"),
    "acmepack15": ("SystemExit(0)", "SystemExit: 0"),  # which ended the tool, with 0
}
CARD = (ROOT / "gates" / "byte-identity.yaml").read_text("utf-8").replace("kind: byte-identity", "kind: acme")


@pytest.mark.parametrize("package", RAISED)
def test_a_judge_that_raises_is_the_fault_of_its_package_and_ends_no_other_check(
    cli: Cli, install: Callable[..., None], workplace: Path, package: str
) -> None:
    error, said = RAISED[package]
    install(package, "gates", f"acme = {package}:KIND", RAISES.replace("AN_ERROR", error))
    (workplace / "acme.yaml").write_text(CARD, encoding="utf-8")
    ended = cli("selftest", "acme", "dtype-preservation")
    assert f"wrong   acme: its code runs ({package} 2.1 (digest " in ended.out
    assert (ended.code, f"        {said}" in ended.lines) == (1, True)
    assert re.search(r"^[1-9]\d+ of \d+ hold, 1 wrong, 0 not tried$", ended.lines[-1])
    two = CONTRACT.replace("{a: {", "{b: {kind: checkpoint}, a: {").replace("candidate: a", "candidate: a, source: b")
    (workplace / "c.yaml").write_text(two, encoding="utf-8")
    model = ROOT / "tests" / "cli" / "adapter_by_peft" / "base.safetensors"
    shutil.copy(model, workplace / "b.safetensors")
    ended = cli("verify", "c.yaml", "--subject", f"a={model}", "--subject", "b=b.safetensors")
    printed = f"the judge broke; this is a fault of {package}, which brings the kind acme"
    assert (ended.code, printed in ended.out) == (4, True), ended


def test_a_verb_that_code_of_others_ends_without_an_error_is_no_success(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from weighbridge.cli import schema

    def left(**_given: object) -> None:
        raise SystemExit

    monkeypatch.setattr(schema.command, "callback", left)
    ended = cli("schema")
    assert (ended.code, ended.err.startswith("plugin-broken code of another package called sys.exit")) == (4, True)


def test_what_is_wrong_with_a_card_is_said_with_its_file(
    cli: Cli, install: Callable[..., None], tmp_path: Path
) -> None:
    install("acmepack13", "gates", "acme = acmepack13:KIND", RENAMED)
    file, examples = tmp_path / "acme.yaml", CARD.index("\ngiven:")
    says = {
        CARD.replace("kind: acme", "kind: acmee"): f"its card {file} says kind: acmee; what is brought is acme",
        CARD.replace("asks:", "askz:"): f"its card cannot be used: {file}:3:1: card unknown key 'askz'",
        CARD + "  - [\n": f"its card cannot be used: {file}:",
        f"{CARD[:examples]}\ngiven: {{}}\nexamples: []\n": "its card acme.yaml is not filled in: `weighbridge self",
    }
    for card, said in says.items():
        file.write_text(card, encoding="utf-8")
        tried = cli("selftest", "acme")
        assert (tried.code, said in tried.out, r"\n" in tried.out) == (1, True, False), (card[-99:], tried)
        assert said in cli("doctor").out
    file.write_text(CARD.replace("kind: acme", "kind: acmee"), encoding="utf-8")
    assert "no gate kind 'acmee'; did you mean 'acme'?" in cli("selftest", "acme").out


def test_a_package_that_cannot_be_imported_is_not_said_to_lack_its_card(cli: Cli, install: Callable[..., None]) -> None:
    install("acmepack14", "gates", "acme = acmepack14:KIND", "import acme_lacks_this\n")
    ended = cli("selftest", "acme")
    assert (ended.code, "cannot be imported" in ended.out, "there is no card" in ended.out) == (1, True, False)


def test_a_name_of_ours_cannot_be_replaced_nor_two_packages_bring_one(
    cli: Cli, install: Callable[..., None], workplace: Path
) -> None:
    install("acmepack2", "gates", "byte-identity = acmepack2:KIND", KIND)
    install("acmepack3", "gates", "acme = acmepack3:KIND", KIND)
    install("acmepack4", "gates", "acme = acmepack4:KIND", KIND)
    printed = "\n".join(cli("doctor").lines)
    assert (
        "plugin-name: acmepack2 2.1 brings the kind 'byte-identity', which is a name of weighbridge itself" in printed
    )
    assert "plugin-twice: acmepack3 2.1 brings the kind 'acme', which is brought by acmepack4 2.1, too" in printed
    (workplace / "c.yaml").write_text(CONTRACT, encoding="utf-8")
    ended = cli("lint", "c.yaml")
    assert (ended.code, "plugin-twice" in ended.err) == (4, True)
    assert cli("selftest", "tensor-coverage").code == 1


def test_a_group_that_is_misspelt_is_reported(cli: Cli, install: Callable[..., None]) -> None:
    install("acmepack5", "gate", "acme = acmepack5:KIND", KIND)
    ended = cli("doctor")
    assert ended.lines[-2] == "cannot be used"
    assert "there is no group weighbridge.gate; did you mean 'gates'?" in ended.lines[-1]
    assert (ended.code, cli("doctor", "--json").code) == (1, 1)


VERB = """
import click
@click.command("weigh-twice", short_help="Weigh again.")
def command():
    click.echo("weighed")
"""


def test_a_click_command_becomes_a_verb_that_help_and_the_nearest_name_know(
    cli: Cli, install: Callable[..., None]
) -> None:
    install("acmepack7", "formats", "weigh-twice = acmepack7:command", VERB)
    install("acmepack8", "formats", "broken = acmepack8:command", "import acme_lacks_this\n")
    assert (cli("weigh-twice").code, cli("weigh-twice").out) == (0, "weighed\n")
    helped = cli("--help")
    assert (helped.code, "weigh-twice  Weigh again." in helped.out, "broken" in helped.out) == (0, True, False)
    assert "there is no verb 'weigh-twic'; did you mean 'weigh-twice'?" in cli("weigh-twic").err
    ended = cli("broken")
    assert (ended.code, "plugin-broken acmepack8 2.1 brings the format 'broken'" in ended.err) == (4, True)
    assert "verb weigh-twice   acmepack7 2.1\n" in cli("doctor").out


def test_a_verb_of_ours_cannot_be_replaced(cli: Cli, install: Callable[..., None]) -> None:
    install("acmepack9", "formats", "verify = acmepack9:command", VERB.replace("weigh-twice", "verify"))
    printed = "plugin-name: acmepack9 2.1 brings the verb 'verify', which is a name of weighbridge itself"
    assert printed in cli("doctor").out
    assert "weighed" not in cli("verify").out


def test_things_of_one_name_in_one_group_are_distinguished_by_type(install: Callable[..., None]) -> None:
    report = "from weighbridge.report.formats import ReportFormat\nFORM = ReportFormat('weigh-twice', bytes)\n"
    install("acmepack10", "formats", "weigh-twice = acmepack10:command", VERB)
    install("acmepack11", "formats", "weigh-twice = acmepack11:FORM", report)
    verbs, reports = plugins.Brought[Any]("verb"), plugins.Brought[Any]("report format")
    assert (list(verbs), list(reports), list(plugins.Brought("reader of run logs"))) == (*[["weigh-twice"]] * 2, [])
    assert (verbs["weigh-twice"].short_help, reports["weigh-twice"].write) == ("Weigh again.", bytes)


@pytest.mark.parametrize("form", plugins.FORMS.values(), ids=plugins.FORMS)
def test_what_may_be_brought_is_a_class_with_a_name(form: plugins.Form) -> None:
    module, _, name = form.of.rpartition(".")
    found = getattr(importlib.import_module(module), name)
    fields = getattr(found, "__dataclass_fields__", inspect.signature(found).parameters)
    assert (found.__module__, form.named in fields) == (module, True)


@pytest.mark.slow
def test_entry_points_are_not_read_for_names_of_ours() -> None:
    code = """
import sys
from weighbridge import cli
sys.argv = ["weighbridge", "lint", "builtin:checkpoint-import"]
sys.exit = lambda code: print(code, *sys.modules)
cli.main()
"""
    done = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    assert "importlib.metadata" not in done.stdout.split()
    assert "weighbridge.core.plugins" in done.stdout.split()
