"""Signatures: they change nothing that was sealed, others can check them, and nothing else is taken for one."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from hypothesis import given
from hypothesis import strategies as st
from securesystemslib.dsse import Envelope
from securesystemslib.signer import CryptoSigner, SSlibKey
from tests.cases import each
from tests.evidence import drafts
from tests.evidence.test_review import NOW

from weighbridge.core.canonical import dumps, sha256
from weighbridge.core.errors import BundleError, UsageError
from weighbridge.evidence import manifest, signatures
from weighbridge.evidence.bundle import Bundle, files_of, seal, whole
from weighbridge.evidence.disk import PackedFolder
from weighbridge.evidence.review import Answer, State, verify

K = "0123456789abcdef" * 4
OPENSSL = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("keys")
    for name in ("ada", "bob", "eve"):
        signatures.new_key(folder / name)
    return folder


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    return seal(drafts.draft(), tmp_path, drafts.REDACTOR)


def stated(bundle: Bundle) -> bytes:
    return (bundle.path / "statement.json").read_bytes()


def signed(bundle: Bundle, key: Path) -> Path:
    name, envelope = signatures.sign(stated(bundle), signatures.private_key(key))
    signatures.add(bundle.path, name, envelope)
    return bundle.path / name


def asked(bundle: Bundle, *keys: Path) -> Answer:
    named = {f"{key}.pub": signatures.public_key(Path(f"{key}.pub")) for key in keys}
    return verify(bundle.path, dataclasses.replace(NOW, keys=named)).authenticity


# --- What a signature is ----------------------------------------------------------------------------------------------


def test_a_signature_changes_nothing_that_was_sealed(bundle: Bundle, keys: Path) -> None:
    before = files_of(whole(bundle.path))
    added = {signed(bundle, keys / name).relative_to(bundle.path).as_posix() for name in ("ada", "bob")}
    after = files_of(whole(bundle.path))
    assert {name: data for name, data in after.items() if name not in added} == before
    assert after.keys() - before.keys() == added
    assert whole(bundle.path).id == bundle.id
    assert all(re.fullmatch(r"signatures/[0-9a-f]{64}\.dsse\.json", name) for name in added)


def test_signing_again_is_the_same_file(bundle: Bundle, keys: Path) -> None:
    first = signed(bundle, keys / "ada").read_bytes()
    name, envelope = signatures.sign(stated(bundle), signatures.private_key(keys / "ada"))
    assert (signatures.add(bundle.path, name, envelope), envelope) == (False, first)


def test_who_signed_is_known_by_the_keys_that_were_named(bundle: Bundle, keys: Path) -> None:
    assert asked(bundle).says == "NONE: not signed; who measured is not shown"
    ada = signed(bundle, keys / "ada").name[:16]
    assert asked(bundle, keys / "ada") == Answer(State.HOLDS, f"signed by {keys}/ada.pub ({ada})")
    bob = signed(bundle, keys / "bob").name[:16]
    one = asked(bundle, keys / "ada", keys / "eve")
    assert (one.state, one.says) == (State.HOLDS, f"signed by {keys}/ada.pub ({ada})")
    assert one.details == (f"not signed by {keys}/eve.pub", f"not checked: {bob}, whose key was not named")
    both = asked(bundle, keys / "ada", keys / "bob")
    assert both.details == ()
    assert all(f"{name}.pub" in both.says for name in ("ada", "bob"))


def test_without_a_key_a_signature_counts_for_nothing(bundle: Bundle, keys: Path) -> None:
    signed(bundle, keys / "ada")
    assert asked(bundle) == Answer(State.NONE, "NONE: signed, 1 signatures not checked: name a key by --key")


def test_a_key_that_did_not_sign_is_refused(bundle: Bundle, keys: Path) -> None:
    unsigned = asked(bundle, keys / "eve")
    assert (unsigned.state, unsigned.says) == (State.BROKEN, "the bundle: not-signed is not signed")
    ada = signed(bundle, keys / "ada").name[:16]
    other = asked(bundle, keys / "eve")
    says = f"the bundle: not-signed is signed by none of the keys named, only by {ada}"
    assert (other.state, other.says, len(other.details)) == (State.BROKEN, says, 1)
    named = dataclasses.replace(NOW, keys={"eve": signatures.public_key(keys / "eve.pub")})
    assert verify(bundle.path, named).exit_code == 1


def public(path: Path) -> SSlibKey:
    return SSlibKey.from_crypto(load_pem_public_key(path.read_bytes()))


# --- Others check it --------------------------------------------------------------------------------------------------


def test_the_envelope_is_verified_by_securesystemslib(bundle: Bundle, keys: Path) -> None:
    envelope = Envelope.from_dict(json.loads(signed(bundle, keys / "ada").read_text()))
    ada, eve = (public(keys / f"{name}.pub") for name in ("ada", "eve"))
    assert list(envelope.verify([ada], 1)) == [ada.keyid]
    with pytest.raises(Exception, match="do not match threshold"):
        envelope.verify([eve], 1)
    assert envelope.payload == stated(bundle)
    assert envelope.payload_type == "application/vnd.in-toto+json"


def test_an_envelope_that_securesystemslib_made_is_taken(bundle: Bundle, keys: Path) -> None:
    signer = signatures.private_key(keys / "ada")
    made = Envelope(stated(bundle), "application/vnd.in-toto+json", {})
    made.sign(signer)
    folder = bundle.path / "signatures"
    folder.mkdir()
    (folder / f"{signer.public_key.keyid}.dsse.json").write_bytes(dumps(made.to_dict()))
    assert asked(bundle, keys / "ada").state is State.HOLDS


@OPENSSL
def test_the_signature_is_verified_by_openssl_over_the_pre_authentication_encoding(
    bundle: Bundle, keys: Path, tmp_path: Path
) -> None:
    envelope = json.loads(signed(bundle, keys / "ada").read_text())
    payload, kind = base64.b64decode(envelope["payload"]), envelope["payloadType"].encode()
    encoded = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    (tmp_path / "sig").write_bytes(base64.b64decode(envelope["signatures"][0]["sig"]))
    for data, code in ((encoded, 0), (encoded + b" ", 1)):
        (tmp_path / "pae").write_bytes(data)
        words = ("pkeyutl", "-verify", "-pubin", "-inkey", keys / "ada.pub", "-rawin", "-in", "pae", "-sigfile", "sig")
        assert subprocess.run(("openssl", *words), cwd=tmp_path, check=False, capture_output=True).returncode == code


@OPENSSL
def test_keys_of_openssl_are_taken_and_ours_are_taken_by_openssl(bundle: Bundle, keys: Path, tmp_path: Path) -> None:
    def openssl(*words: str) -> bytes:
        return subprocess.run(("openssl", *words), cwd=tmp_path, check=True, capture_output=True).stdout

    openssl("genpkey", "-algorithm", "ed25519", "-out", "own")
    openssl("pkey", "-in", "own", "-pubout", "-out", "own.pub")
    signed(bundle, tmp_path / "own")
    assert asked(bundle, tmp_path / "own").state is State.HOLDS
    assert openssl("pkey", "-in", str(keys / "ada"), "-pubout") == (keys / "ada.pub").read_bytes()


# --- Damage -----------------------------------------------------------------------------------------------------------


def told(bundle: Bundle, envelope: bytes, name: str, *named: SSlibKey) -> str:
    """Return what is said of an envelope in the place of another: a refusal's code, or "unchecked" or "signed"."""
    try:
        found = signatures.signatures_in(PackedFolder(bundle.path.name, {name: envelope}), stated(bundle))
        if named:
            signatures.check(found, stated(bundle), {str(key.keyid): key for key in named})
    except BundleError as refused:
        assert refused.remedy
        return refused.code
    return "signed" if named else "unchecked"


@pytest.mark.slow
def test_with_any_byte_changed_an_envelope_is_refused(bundle: Bundle, keys: Path) -> None:
    path = signed(bundle, keys / "ada")
    name, whole = path.relative_to(bundle.path).as_posix(), path.read_bytes()
    ada = signatures.public_key(keys / "ada.pub")
    assert told(bundle, whole, name, ada) == "signed"
    codes, unchecked = set(), set()
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :]
        codes.add(told(bundle, changed, name, ada))
        unchecked |= {at} if told(bundle, changed, name) == "unchecked" else set()
    assert codes == {"signature-form", "signature-of-another", "signature-wrong"}
    # Without a key, all is held but the signature itself: the payload, its type and the id of the key.
    sig = whole.index(b'"sig":"') + len(b'"sig":"')
    assert unchecked <= set(range(sig, sig + 86))


@pytest.mark.slow
def test_with_any_byte_less_or_more_an_envelope_is_refused(bundle: Bundle, keys: Path) -> None:
    path = signed(bundle, keys / "ada")
    name, whole = path.relative_to(bundle.path).as_posix(), path.read_bytes()
    for at in range(len(whole)):
        assert told(bundle, whole[:at], name).startswith("signature-")
        assert told(bundle, whole[:at] + whole[at + 1 :], name).startswith("signature-")
        assert told(bundle, whole[:at] + b" " + whole[at:], name).startswith("signature-")


@given(st.binary(max_size=300))
def test_what_is_no_envelope_is_refused(data: bytes) -> None:
    folder = PackedFolder("x", {f"signatures/{K}.dsse.json": data})
    with pytest.raises(BundleError, match="signature-form"):
        signatures.signatures_in(folder, b"{}\n")


def reworded(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def write(envelope: bytes) -> bytes:
        value = json.loads(envelope)
        change(value)
        return dumps(value)

    return write


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def spare_bits(envelope: bytes) -> bytes:
    """Set a bit of the last digit that no byte of the signature comes from."""
    return re.sub(rb'([A-Za-z0-9+/])=="\}', lambda found: bytes([found[1][0] + 1]) + b'=="}', envelope)


HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "huge": lambda whole: whole + b" " * (2 << 20),
    "empty": lambda _: b"",
    "no JSON": lambda _: b"-----BEGIN PGP SIGNATURE-----",
    "nested deep": lambda _: b"[" * 100_000,
    "a key twice": lambda whole: b'{"payload":"",' + whole[1:],
    "another order": lambda whole: compact(dict(reversed(json.loads(whole).items()))),
    "spaces": lambda whole: json.dumps(json.loads(whole)).encode(),
    "CRLF": lambda whole: whole.replace(b"\n", b"\r\n"),
    "no base64": reworded(lambda value: value.update(payload="§" * 8)),
    "URL-safe base64": lambda whole: whole.replace(b"+", b"-").replace(b"/", b"_"),
    "spare bits in base64": spare_bits,
    "another payload type": reworded(lambda value: value.update(payloadType="application/json")),
    "no signature": reworded(lambda value: value["signatures"].clear()),
    "two signatures": reworded(lambda value: value["signatures"].append(value["signatures"][0])),
    "an algorithm of its own": reworded(lambda value: value["signatures"][0].update(alg="none")),
    "a longer signature": reworded(lambda value: value["signatures"][0].update(sig="A" * 120)),
    "numbers for texts": reworded(lambda value: value["signatures"][0].update(keyid=1, sig=2)),
}


@each("form", HOSTILE)
def test_a_hostile_envelope_is_refused_with_and_without_a_key(bundle: Bundle, keys: Path, form: str) -> None:
    shutil.rmtree(bundle.path / "signatures", ignore_errors=True)
    path = signed(bundle, keys / "ada")
    path.write_bytes(HOSTILE[form](path.read_bytes()))
    for named in ((), (keys / "ada",)):
        answer = asked(bundle, *named)
        code = "too-large" if form == "huge" else "signature-form"
        assert (answer.state, answer.says.split()[1]) == (State.BROKEN, code)
    assert verify(bundle.path, NOW).exit_code == 1


def test_a_signature_of_another_bundle_is_none_of_this_one(bundle: Bundle, keys: Path, tmp_path: Path) -> None:
    other = seal(drafts.draft(host="host-000000000000"), tmp_path, drafts.REDACTOR)
    shutil.copytree(signed(other, keys / "ada").parent, bundle.path / "signatures")
    for named in ((), (keys / "ada",)):
        answer = asked(bundle, *named)
        assert answer.state is State.BROKEN
        assert answer.says.endswith(": signature-of-another signs another statement than this bundle's")


def test_a_signature_under_the_id_of_another_key_is_refused(bundle: Bundle, keys: Path) -> None:
    ada = signed(bundle, keys / "ada")
    _, envelope = signatures.sign(stated(bundle), signatures.private_key(keys / "eve"))
    forged = re.sub(rb'"keyid":"\w+"', re.search(rb'"keyid":"\w+"', ada.read_bytes())[0], envelope)  # type: ignore[index]
    ada.write_bytes(forged)
    answer = asked(bundle, keys / "ada")
    assert (answer.state, answer.says.split()[1]) == (State.BROKEN, "signature-wrong")
    signed(bundle, keys / "bob")
    assert asked(bundle, keys / "ada", keys / "bob").state is State.BROKEN  # one that is good does not excuse it


def test_an_envelope_under_another_name_is_refused(bundle: Bundle, keys: Path) -> None:
    path = signed(bundle, keys / "ada")
    path.rename(path.with_name(f"{K}.dsse.json"))
    assert asked(bundle).says.split()[1] == "signature-form"


@pytest.mark.parametrize(
    "name", ["ada.sig", f"deep/{K}.dsse.json", f"{K.upper()}.dsse.json", f"{K[:16]}.dsse.json", ".hidden"]
)
def test_beside_signatures_there_is_nothing_else(bundle: Bundle, name: str) -> None:
    path = bundle.path / "signatures" / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}")
    answers = verify(bundle.path, NOW)
    assert answers.exit_code == 1
    assert answers.integrity.details == (f"signatures/{name}: is not in the manifest",)


def test_a_link_in_the_place_of_a_signature_is_not_followed(bundle: Bundle, keys: Path, tmp_path: Path) -> None:
    path = signed(bundle, keys / "ada")
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    assert "neither a file nor a folder" in verify(bundle.path, NOW).integrity.says


def test_no_manifest_lists_a_signature() -> None:
    with pytest.raises(BundleError, match="file-name"):
        manifest.to_bytes({f"signatures/{K}.dsse.json": b""})


def test_another_signature_is_never_replaced(bundle: Bundle, keys: Path) -> None:
    path = signed(bundle, keys / "ada")
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(BundleError, match="other-bytes is another signature under the same key"):
        signed(bundle, keys / "ada")


# --- Keys -------------------------------------------------------------------------------------------------------------


def test_a_new_key_is_its_owners_alone_and_replaces_none(tmp_path: Path) -> None:
    signatures.new_key(tmp_path / "key")
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"key": 0o600, "key.pub": 0o644}
    (tmp_path / "key").unlink()
    with pytest.raises(UsageError, match="key-exists"):
        signatures.new_key(tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_a_full_disk_leaves_no_half_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes, mode: int = 0o644) -> None:
        if not path.name.endswith(".pub"):
            raise OSError(28, os.strerror(28))
        path.write_bytes(data)

    monkeypatch.setattr(signatures, "link_new", full)
    with pytest.raises(BundleError, match="No space left on device"):
        signatures.new_key(tmp_path / "key")
    assert list(tmp_path.iterdir()) == []


def pems() -> Iterator[tuple[str, bytes, bytes]]:
    """Yield pairs of keys that are not ed25519: their algorithm, the private and the public one."""
    made: Sequence[tuple[str, Any]] = (
        ("P-256", ec.generate_private_key(ec.SECP256R1())),
        ("RSA", rsa.generate_private_key(65537, 2048)),
        ("ed448", ed448.Ed448PrivateKey.generate()),
        ("x25519", x25519.X25519PrivateKey.generate()),
    )
    for name, key in made:
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        yield name, private, key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def test_keys_of_other_algorithms_are_refused(tmp_path: Path) -> None:
    told = {"P-256": "is a key of ecdsa, not of ed25519", "RSA": "is a key of rsa, not of ed25519"}
    for name, private, public in pems():
        for read, pem in ((signatures.private_key, private), (signatures.public_key, public)):
            (tmp_path / name).write_bytes(pem)
            with pytest.raises(UsageError, match="key-file") as refused:
                read(tmp_path / name)
            assert refused.value.what == told.get(name, "holds no such ed25519 key in PEM")
            assert refused.value.remedy


def test_what_is_no_key_is_refused(keys: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "huge").write_bytes(b"-----BEGIN PRIVATE KEY-----\n" * 10_000)
    (tmp_path / "cut").write_bytes((keys / "ada").read_bytes()[:60])
    private = load_pem_private_key((keys / "ada").read_bytes(), None)
    locked = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))
    (tmp_path / "locked").write_bytes(locked)
    named = [*(tmp_path / name for name in ("empty", "huge", "cut", "locked", "nowhere", ".")), Path("/dev/zero")]
    for path in (*named, keys / "ada.pub"):
        with pytest.raises(UsageError, match="key-file"):
            signatures.private_key(path)
    for path in (*named, keys / "ada"):
        with pytest.raises(UsageError, match="key-file"):
            signatures.public_key(path)


def test_the_id_of_a_key_is_the_one_that_securesystemslib_gives_it(keys: Path) -> None:
    raw = load_pem_public_key((keys / "ada.pub").read_bytes()).public_bytes_raw()
    form = f'{{"keytype":"ed25519","keyval":{{"public":"{raw.hex()}"}},"scheme":"ed25519"}}'
    assert signatures.public_key(keys / "ada.pub").keyid == sha256(form.encode())
    assert isinstance(signatures.private_key(keys / "ada"), CryptoSigner)
