"""Names for things that evidence must tell apart but never name: one host gives one word that nobody reads back.

A pseudonym is an HMAC under a key that stays on the machine; the key is made on demand, readable by its owner alone.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

DIGITS = 12
KEY_BYTES = 32
KEY_NAME = "pseudonym.key"
LOCAL = ".weighbridge"


def pseudonym(kind: str, value: str, key_file: Path) -> str:
    """Return a value as `KIND-<12 hexadecimal digits>`, creating the key where there is none.

    Raises:
        OSError: if the key can be neither read nor made.
        ValueError: if the key file holds no key.
    """
    return keyed(kind, value, read_key(key_file))


def keyed(kind: str, value: str, key: bytes) -> str:
    """Return a value as `KIND-<12 hexadecimal digits>` under a key that was read before."""
    return f"{kind}-{hmac.new(key, f'{kind}:{value}'.encode(), hashlib.sha256).hexdigest()[:DIGITS]}"


def default_key_file(folder: Path, environment: Mapping[str, str]) -> Path:
    """Return where the key is: in the project's `.weighbridge/` where it has one, else in the person's state folder."""
    local = folder / LOCAL
    if local.is_dir():
        return local / KEY_NAME
    state = environment.get("XDG_STATE_HOME") or str(Path(environment.get("HOME", "/nonexistent")) / ".local" / "state")
    return Path(state) / "weighbridge" / KEY_NAME


def read_key(key_file: Path) -> bytes:
    """Read the key, creating it where there is none.

    Raises:
        OSError: if the key can be neither read nor made.
        ValueError: if the key file holds no key.
    """
    if not key_file.exists():
        _make(key_file)
    key = bytes.fromhex(key_file.read_text("ascii").strip())
    if not key:
        raise ValueError(f"{key_file} holds no key")
    return key


def _make(key_file: Path) -> None:
    """Write a new key beside its place and link it there, so that of two processes one wins and neither reads half."""
    key_file.parent.mkdir(parents=True, exist_ok=True)
    fresh = key_file.with_name(f".{key_file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_hex(KEY_BYTES).encode() + b"\n")
        os.fsync(descriptor)
        os.close(descriptor)
        key_file.hardlink_to(fresh)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
