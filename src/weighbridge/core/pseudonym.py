"""Names for what evidence must tell apart but never name: an HMAC under a key that its owner alone can read."""

import functools
import hashlib
import hmac
import os
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path

from weighbridge.core.local_files import exists

DIGITS = 12
KEY_BYTES = 32
KEY_NAME = "pseudonym.key"


def pseudonym(kind: str, value: str, file: Path) -> str:
    """Return a value as `KIND-<12 hexadecimal digits>` under the key of a file, which `read_key` reads or creates."""
    return keyed(kind, value, read_key(file))


def keyed(kind: str, value: str, key: bytes) -> str:
    """Return a value as `KIND-<12 hexadecimal digits>` under a key that was read before."""
    return f"{kind}-{hmac.new(key, f'{kind}:{value}'.encode(), hashlib.sha256).hexdigest()[:DIGITS]}"


def key_file(environment: Mapping[str, str], platform: str = sys.platform) -> Path | None:
    """Return where the person's key is: in the state folder of the platform, never in a tree; None without one."""
    home = environment.get("HOME", "")
    folders = {"win32": environment.get("LOCALAPPDATA", ""), "darwin": home and f"{home}/Library/Application Support"}
    states = environment.get("XDG_STATE_HOME", ""), folders.get(platform, home and f"{home}/.local/state")
    return next((Path(state) / "weighbridge" / KEY_NAME for state in states if Path(state).is_absolute()), None)


def read_key(file: Path) -> bytes:
    """Read the key, creating it where there is none; an OSError where that fails, a ValueError where it holds none."""
    # It is written beside its place and linked there: one of two processes wins, and neither reads half.
    if not exists(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_hex(KEY_BYTES).encode() + b"\n")
            os.fsync(descriptor)
            os.close(descriptor)
            file.hardlink_to(fresh)
        except FileExistsError:
            pass
        finally:
            fresh.unlink()
    if not (key := bytes.fromhex(file.read_text("ascii").strip())):
        raise ValueError(f"{file} holds no key")
    return key


def kept_key() -> bytes | None:
    """Return the person's key, None where none is kept yet; raises as `read_key`."""
    file = key_file(os.environ)
    return read_key(file) if file is not None and exists(file) else None


def seal_of(data: bytes, purpose: str, key: bytes) -> str:
    """Return the HMAC of bytes for one purpose under a key derived from the person's, in hexadecimal."""
    return hmac.new(hmac.digest(key, f"seal:{purpose}".encode(), "sha256"), data, hashlib.sha256).hexdigest()


@functools.cache
def passing_key() -> bytes:
    """Return a key that ends with this process, for one that can keep none: nobody else ever has its pseudonyms."""
    return secrets.token_bytes(KEY_BYTES)
