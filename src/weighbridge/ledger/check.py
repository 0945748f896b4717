"""A ledger checked against itself and against an older commit: evidence is only ever added.

Hash links show every edit and every hole; that the newest entry was taken away only an older commit can show.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from weighbridge.errors import UsageError
from weighbridge.ledger.store import Ledger, Problem

FROZEN = ("evidence", "spec/amendments")
LANDED = re.compile(r"spec/amendments/\d{4}-[^/]+\.md")
WORDS = {"M": "was changed", "D": "was deleted", "T": "became something else", "R": "was renamed"}
SECONDS = 60


def check(ledger: Ledger, repository: Path, base: str | None = None) -> tuple[Problem, ...]:
    """List what is wrong in the ledger and, with a base, in what was done to evidence since.

    Raises:
        UsageError: `base`, where git knows no such commit.
    """
    changed = () if base is None else tuple(changes(repository, base))
    return (*ledger.problems(), *changed)


def changes(repository: Path, base: str) -> Iterator[Problem]:
    """Find whatever was done to evidence and landed amendments since a commit other than adding to them."""
    since = _git(repository, "merge-base", base, "HEAD").strip()
    listed = _git(repository, "diff", "--no-renames", "--name-status", "-z", since, "--", *FROZEN)
    words = listed.split("\0")
    for status, path in zip(words[::2], words[1::2], strict=False):
        if status != "A" and (path.startswith("evidence/") or LANDED.fullmatch(path)):
            what = WORDS.get(status[:1], f"has the status {status}")
            yield Problem("not-added", f"{what} since {base}: evidence is only ever added", path)


def _git(repository: Path, *argv: str) -> str:
    command = ["git", "-C", str(repository), *argv]
    try:
        done = subprocess.run(command, capture_output=True, check=False, timeout=SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError("base", "git cannot be run here", remedy="leave out --base, or install git") from None
    if done.returncode != 0:
        raise UsageError("base", f"git does not know it: git {argv[0]} {argv[1]}", remedy="fetch it, or name another")
    return done.stdout.decode("utf-8", errors="surrogateescape")
