"""Signatures of a bundle: DSSE envelopes of one form over its statement, one file for each signer, added after it."""

import base64
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weighbridge.core import BundleError, UsageError, dumps, exists
from weighbridge.evidence import manifest
from weighbridge.evidence.disk import disk_error, disk_errors, link_new, make_folders, read_regular

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner, SSlibKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
FORM = re.compile(
    rb'\{"payload":"(?P<payload>[A-Za-z0-9+/]*={0,2})","payloadType":"application/vnd\.in-toto\+json",'
    rb'"signatures":\[\{"keyid":"(?P<keyid>[0-9a-f]{64})","sig":"(?P<sig>[A-Za-z0-9+/]{86}==)"\}\]\}\n'
)
ALGORITHM = "ed25519"
LONGER = 1 << 20  # by which an envelope of another bundle may be longer than ours, to be refused as one
REMOVE = "remove it, and have its signer sign again: weighbridge evidence sign BUNDLE --key FILE"
PUBLIC = "name an ed25519 public key: openssl pkey -in KEY -pubout -out KEY.pub"
PRIVATE = "name an ed25519 private key without a password; `weighbridge evidence keygen FILE` makes one"


def to_bytes(stated: bytes, keyid: str, signature: bytes) -> bytes:
    """Write the envelope of a statement with one signature."""
    signed = {"keyid": keyid, "sig": _base64(signature)}
    return dumps({"payload": _base64(stated), "payloadType": PAYLOAD_TYPE, "signatures": [signed]})


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _file(keyid: str) -> str:
    return f"{manifest.SIGNATURES}{keyid}.dsse.json"


def signatures_in(folder: manifest.BundleFolder, stated: bytes) -> dict[str, bytes]:
    """Return a bundle's signatures, none of them checked, by the id of the key that each says it is by."""
    limit = len(to_bytes(stated, "0" * 64, bytes(64))) + LONGER
    names = sorted(name for name, _ in folder.names() if manifest.SIGNATURE.fullmatch(name))
    signed: dict[str, bytes] = {}
    for name in names:
        data = folder.read(name, limit)
        if (found := FORM.fullmatch(data)) is None:
            what = f"is no DSSE envelope of {PAYLOAD_TYPE} with one {ALGORITHM} signature, in its one form"
            raise BundleError("signature-form", what, where=name, remedy=REMOVE)
        keyid, signature = found["keyid"].decode(), base64.b64decode(found["sig"])
        if found["payload"].decode() != _base64(stated):
            what = "signs another statement than this bundle's"
            raise BundleError("signature-of-another", what, where=name, remedy=REMOVE)
        if to_bytes(stated, keyid, signature) != data or _file(keyid) != name:
            what = "is not named after its key, or not in its one form"
            raise BundleError("signature-form", what, where=name, remedy=REMOVE)
        signed[keyid] = signature
    return signed


def add(bundle: Path, name: str, data: bytes) -> bool:
    """Write a signature into a bundle's folder, and return whether it is new; another is never replaced."""
    target = bundle / name
    with disk_errors("the signature", target):
        make_folders(target.parent)
        if not exists(target):
            link_new(target, data)
            return True
    if read_regular(target, name, len(data) + LONGER) != data:
        raise BundleError("other-bytes", "is another signature under the same key", where=str(target), remedy=REMOVE)
    return False


def _libraries() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from securesystemslib import signer
    except ImportError:
        what = "keys and signatures need securesystemslib and cryptography"
        raise UsageError("extra-missing", what, remedy="pip install 'weighbridge[sign]'") from None
    return serialization, signer


def sign(stated: bytes, signer: "CryptoSigner") -> tuple[str, bytes]:
    """Return a signature of a statement: the name of its file in the bundle's folder, and its envelope."""
    from securesystemslib.dsse import Envelope

    made = Envelope(stated, PAYLOAD_TYPE, {}).sign(signer)
    return _file(made.keyid), to_bytes(stated, made.keyid, bytes.fromhex(made.signature))


def check(found: Mapping[str, bytes], stated: bytes, keys: "Mapping[str, SSlibKey]") -> tuple[str, ...]:
    """Return the files of the keys that signed; raise `signature-wrong` for a forged one, `not-signed` for none."""
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError
    from securesystemslib.signer import Signature

    signed = tuple(file for file, key in keys.items() if key.keyid in found)
    for file in signed:
        key = keys[file]
        signatures = {key.keyid: Signature(key.keyid, found[key.keyid].hex())}
        try:
            Envelope(stated, PAYLOAD_TYPE, signatures).verify([key], 1)
        except VerificationError:
            what = f"is not by {file}, under whose id it stands"
            raise BundleError("signature-wrong", what, where=_file(key.keyid), remedy=REMOVE) from None
    if not signed:
        others = ", ".join(keyid[:16] for keyid in found)
        what = f"is signed by none of the keys named, only by {others}" if found else "is not signed"
        remedy = "fetch the signed bundle, or name the key of who signed it"
        raise BundleError("not-signed", what, where="the bundle", remedy=remedy)
    return signed


def public_key(path: Path) -> "SSlibKey":
    """Read an ed25519 public key in PEM, or raise `key-file` or `extra-missing`."""
    forms, signer = _libraries()
    return _key(path, lambda pem: signer.SSlibKey.from_crypto(forms.load_pem_public_key(pem)), PUBLIC)


def private_key(path: Path) -> "CryptoSigner":
    """Read an ed25519 private key in PEM without a password, or raise `key-file` or `extra-missing`."""
    forms, signer = _libraries()
    return _key(path, lambda pem: signer.CryptoSigner(forms.load_pem_private_key(pem, None)), PRIVATE)


def _key(path: Path, read: Callable[[bytes], Any], remedy: str) -> Any:
    try:
        key = read(read_regular(path.resolve(), str(path), 1 << 16))
    except BundleError as problem:
        raise UsageError("key-file", problem.what, where=str(path), remedy=remedy) from None
    except Exception:  # noqa: BLE001 -- whatever the libraries say of a file, it is not the key that is needed
        raise UsageError("key-file", f"holds no such {ALGORITHM} key in PEM", where=str(path), remedy=remedy) from None
    if (algorithm := getattr(key, "public_key", key).keytype) != ALGORITHM:
        raise UsageError("key-file", f"is a key of {algorithm}, not of {ALGORITHM}", where=str(path), remedy=remedy)
    return key


def new_key(path: Path) -> str:
    """Write a new private key, which only its owner reads, and its public key; return its id, and replace no key."""
    forms, signer = _libraries()
    public = path.with_name(f"{path.name}.pub")
    for one in (path, public):
        if exists(one):
            raise UsageError("key-exists", "is there already", where=str(one), remedy="name a new file")
    made = signer.CryptoSigner.generate_ed25519()
    shown = forms.load_pem_private_key(made.private_bytes, None).public_key()
    try:
        link_new(public, shown.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo))
        link_new(path, made.private_bytes, 0o600)
    except OSError as problem:
        public.unlink(missing_ok=True)
        raise disk_error(problem, "the key", path) from None
    return str(made.public_key.keyid)
