"""Git, asked about the repository around a folder."""

import os
import subprocess
from pathlib import Path

from weighbridge.core.canonical import sha256

SECONDS = 10.0
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR")  # they name a repository; asked is the one around the folder


def ask(folder: Path, *arguments: str, seconds: float = SECONDS) -> str | None:
    """Return what git prints, or None where it refuses; an OSError or TimeoutExpired where it cannot run or is slow."""
    argv = ("git", "-C", str(folder), *arguments)
    environ = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    done = subprocess.run(argv, capture_output=True, check=False, timeout=seconds, env=environ)
    return done.stdout.decode("utf-8", errors="surrogateescape") if done.returncode == 0 else None


def answer(folder: Path, *arguments: str, seconds: float = SECONDS) -> str | None:
    """Return what git prints; None without git, without a repository, where it refuses, or when it is slow."""
    try:
        return ask(folder, *arguments, seconds=seconds)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None


def commit(folder: Path, seconds: float = SECONDS) -> str:
    """Return the commit that is checked out around a folder, or "" outside a repository."""
    return (answer(folder, "rev-parse", "HEAD", seconds=seconds) or "").strip()


def is_dirty(folder: Path, seconds: float = SECONDS, within: str = ":/") -> bool | None:
    """Return whether a tracked file `within` differs from the commit, or Python is untracked there; None if unknown."""
    found = changed(folder, seconds, within)
    return None if found is None else bool(found)


def changed(folder: Path, seconds: float = SECONDS, within: str = ":/") -> list[str] | None:
    """Return which tracked files `within` differ from the commit, and untracked Python there; None if unknown."""
    listed = answer(folder, "status", "--porcelain", "--", within, seconds=seconds)
    if listed is None:
        return None
    return [line[3:] for line in listed.splitlines() if line[:2] != "??" or line.rstrip('"').endswith(".py")]


def tree(folder: Path, within: str, left_out: tuple[str, ...] = ()) -> str | None:
    """Return the digest of the tracked files that a pathspec matches: of each its mode, content and name.

    Files whose names begin with what is `left_out` do not count. It is "" where there is no file, and None where it
    cannot be known: outside a repository, or where a file was changed since the commit.
    """
    listed = answer(folder, "ls-files", "--stage", "-z", "--", within)
    if listed is None or is_dirty(folder, within=within) is not False:
        return None
    kept = [line for line in listed.split("\0") if line and not line.partition("\t")[2].startswith(left_out)]
    return sha256("\n".join(kept).encode("utf-8", errors="surrogateescape")) if kept else ""
