"""`weighbridge evidence keygen`, `sign` and `verify --key`, as signer and reviewer type them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.cli.conftest import Cli
from tests.cli.test_evidence import BAD, GOOD, sealed

KEYS = "--key", "ada.key.pub", "--key", "bob.key.pub"
OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture
def keys(cli: Cli) -> None:
    for name in ("ada", "bob"):
        assert cli("evidence", "keygen", f"{name}.key").code == 0


def signed(cli: Cli, *names: str) -> Path:
    bundle = sealed(cli, GOOD)
    for name in names:
        assert cli("evidence", "sign", bundle, "--key", f"{name}.key").code == 0
    return bundle


def authenticity(printed: str) -> str:
    (line,) = re.findall(r"^  authenticity +(.*)$", printed, re.MULTILINE)
    return re.sub(r"[0-9a-f]{16,64}", "ID", line)


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_a_signed_bundle_names_its_signers_and_keeps_its_id(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    before = cli("evidence", "verify", bundle, "--json")
    first = cli("evidence", "sign", bundle, "--key", "ada.key")
    assert re.fullmatch(r"[0-9a-f]{12} signed by [0-9a-f]{16}: .*\.dsse\.json\n", first.out)
    assert "was signed already" in cli("evidence", "sign", bundle, "--key", "ada.key").out
    assert cli("evidence", "sign", bundle, "--key", "bob.key").code == 0
    ended = cli("evidence", "verify", bundle, "--key", "bob.key.pub", "--key", "ada.key.pub")
    assert (ended.code, authenticity(ended.out)) == (0, "holds       signed by bob.key.pub (ID), ada.key.pub (ID)")
    after = json.loads(cli("evidence", "verify", bundle, "--json").out)
    assert {**after, "authenticity": None, "freshness": None} == {
        **json.loads(before.out), "authenticity": None, "freshness": None
    }  # fmt: skip
    assert after["authenticity"]["state"] == "none"
    assert after["authenticity"]["says"] == "NONE: signed, 2 signatures not checked: name a key by --key"


@pytest.mark.usefixtures("keys")
def test_a_key_that_signed_nothing_fails_with_what_to_do(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    unsigned = cli("evidence", "verify", bundle, "--key", "ada.key.pub")
    assert (unsigned.code, authenticity(unsigned.out)) == (1, "broken      the bundle: not-signed is not signed")
    assert "fetch the signed bundle, or name the key of who signed it" in unsigned.out
    cli("evidence", "sign", bundle, "--key", "ada.key")
    other = cli("evidence", "verify", bundle, "--key", "bob.key.pub")
    assert other.code == 1
    assert "not-signed is signed by none of the keys named, only by" in other.out
    assert cli("evidence", "verify", bundle, "--key", "bob.key.pub", "--key", "ada.key.pub").code == 0


@pytest.mark.usefixtures("keys")
def test_a_verdict_is_signed_as_it_is_and_a_signature_makes_no_pass_of_it(cli: Cli) -> None:
    bundle = sealed(cli, BAD)
    assert cli("evidence", "sign", bundle, "--key", "ada.key").code == 0
    ended = cli("evidence", "verify", bundle, "--key", "ada.key.pub", "--require-pass")
    assert (ended.code, ended.lines[1].split()[0], "signed by ada.key.pub" in ended.out) == (1, "FAIL", True)


@pytest.mark.usefixtures("keys")
def test_a_bundle_that_does_not_hold_is_not_signed(cli: Cli) -> None:
    bundle = sealed(cli, GOOD)
    verdicts = bundle / "verdicts.json"
    verdicts.write_bytes(verdicts.read_bytes().replace(b"PASS", b"FAIL", 1))
    ended = cli("evidence", "sign", bundle, "--key", "ada.key")
    assert (ended.code, "not-whole" in ended.err, (bundle / "signatures").exists()) == (4, True, False)


@pytest.mark.usefixtures("keys")
def test_a_signature_that_has_no_form_is_passed_on_by_nobody(cli: Cli, workplace: Path) -> None:
    bundle = signed(cli, "ada")
    (envelope,) = (bundle / "signatures").iterdir()
    envelope.write_bytes(envelope.read_bytes() + b"\n")
    assert cli("evidence", "verify", bundle).code == 1
    for words in (
        ("sign", bundle, "--key", "bob.key"),
        ("merge", bundle, "--into", "all"),
        ("export", bundle, "--as", "svr"),
    ):
        ended = cli("evidence", *words)
        assert (ended.code, "not-whole" in ended.err) == (4, True), words
        assert "signature-form" in ended.err
    assert not (workplace / "all").exists()


def test_keys_that_are_none_are_refused(cli: Cli, workplace: Path, keys: None) -> None:
    bundle = sealed(cli, GOOD)
    (workplace / "none.key").write_text("no key")
    for words in (("sign", "none.key"), ("sign", "ada.key.pub"), ("sign", "nowhere"), ("verify", "ada.key")):
        ended = cli("evidence", words[0], bundle, "--key", words[1])
        assert (ended.code, ended.err.split()[1]) == (2, "key-file"), words
        assert "openssl pkey" in ended.err or "evidence keygen" in ended.err
    again = cli("evidence", "keygen", "ada.key")
    assert (again.code, again.err) == (2, "ada.key: key-exists is there already\n  name a new file\n")
    assert cli("evidence", "sign", bundle).err.startswith("missing-argument --key FILE is missing\n")


@OPENSSL
def test_a_key_that_openssl_made_signs(cli: Cli, workplace: Path) -> None:
    bundle = sealed(cli, GOOD)
    for words in ("genpkey -algorithm ed25519 -out own.key", "pkey -in own.key -pubout -out own.pub"):
        subprocess.run(("openssl", *words.split()), cwd=workplace, check=True, capture_output=True)
    assert cli("evidence", "sign", bundle, "--key", "own.key").code == 0
    assert cli("evidence", "verify", bundle, "--key", "own.pub").code == 0


# --- Passed on --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("keys")
def test_archives_carry_signatures(cli: Cli, workplace: Path) -> None:
    bundle = signed(cli, "ada", "bob")
    cli("evidence", "pack", bundle, "ours.tar")
    with zipfile.ZipFile("ci.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in bundle.rglob("*"):
            archive.write(path, Path("artifact", bundle.name, path.relative_to(bundle)))
    subprocess.run(("tar", "-C", bundle.parent, "-czf", workplace / "gnu.tar.gz", bundle.name), check=True)
    for name in ("ours.tar", "ci.zip", "gnu.tar.gz"):
        ended = cli(
            "evidence", "verify", name, "--id", bundle.name[-12:], "--key", "ada.key.pub", "--key", "bob.key.pub"
        )
        assert (ended.code, authenticity(ended.out)[:5]) == (0, "holds"), name
    refused = cli("evidence", "sign", "ours.tar", "--key", "ada.key")
    assert (refused.code, refused.err) == (2, "ours.tar: sign-archive is an archive\n  sign the folder, then pack it\n")


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
def test_merging_brings_the_signatures_of_all_sources(cli: Cli, workplace: Path) -> None:
    bundle = sealed(cli, GOOD)
    for name in ("ada", "bob"):
        copy = workplace / name / "bundles" / bundle.name
        shutil.copytree(bundle, copy)
        cli("evidence", "sign", copy, "--key", f"{name}.key")
    merged = cli("evidence", "merge", "ada", "bob", "--into", "at-once")
    assert (merged.code, merged.lines[-1]) == (0, "1 bundle new, 0 there already; 0 ledger entries new")
    cli("evidence", "merge", bundle, "--into", "one-by-one")
    for name in ("ada", "bob"):
        last = cli("evidence", "merge", name, "--into", "one-by-one").lines[-1]
        assert last == "0 bundles new, 1 there already; 0 ledger entries new, 1 signature new"
        again = cli("evidence", "merge", name, "--into", "one-by-one").lines[-1]
        assert again == "0 bundles new, 1 there already; 0 ledger entries new"
    for into in ("at-once", "one-by-one"):
        ended = cli("evidence", "verify", workplace / into / "bundles" / bundle.name, *KEYS)
        assert (ended.code, authenticity(ended.out)) == (0, "holds       signed by ada.key.pub (ID), bob.key.pub (ID)")


@pytest.mark.usefixtures("keys")
def test_merging_never_replaces_a_signature(cli: Cli, workplace: Path) -> None:
    bundle = signed(cli, "ada")
    shutil.copytree(bundle, workplace / "all" / "bundles" / bundle.name)
    (there,) = (workplace / "all" / "bundles" / bundle.name / "signatures").iterdir()
    forged = re.sub(rb'"sig":"."', b'"sig":"', there.read_bytes())
    forged = re.sub(rb'"sig":".', lambda found: b'"sig":"' + (b"B" if found[0].endswith(b"A") else b"A"), forged)
    there.write_bytes(forged)
    ended = cli("evidence", "merge", bundle, "--into", "all")
    assert (ended.code, "other-bytes" in ended.err, there.read_bytes()) == (4, True, forged)
    printed = cli("evidence", "verify", there.parent.parent, "--key", "ada.key.pub")
    assert (printed.code, "signature-wrong is not by ada.key.pub, under whose id it stands" in printed.out) == (1, True)


# --- Without the extra ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("library", ["securesystemslib", "cryptography"])
def test_without_the_extra_all_but_keys_works_and_the_message_says_what_to_install(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    bundle = signed(cli, "ada")
    for name in {library, *(name for name in sys.modules if name.startswith(f"{library}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    printed = cli("evidence", "verify", bundle, "--require-pass")
    assert (printed.code, "NONE: signed, 1 signature not checked: name a key by --key" in printed.out) == (0, True)
    for words in (
        ("verify", bundle, "--key", "ada.key.pub"),
        ("sign", bundle, "--key", "ada.key"),
        ("keygen", "new.key"),
    ):
        refused = cli("evidence", *words)
        needed = "extra-missing keys and signatures need securesystemslib and cryptography"
        assert (refused.code, refused.err) == (2, f"{needed}\n  pip install 'weighbridge[sign]'\n")
