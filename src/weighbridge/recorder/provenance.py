"""Where a run comes from: process, host pseudonym, commit, versions, seeds. Never a name of a person or a machine."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import platform
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import torch

from weighbridge import __version__
from weighbridge.pseudonym import default_key_file, pseudonym

GIT_SECONDS = 5.0


def provenance() -> dict[str, Any]:
    """Collect the facts that bind a run to one process on one host at one commit."""
    return {
        "pid": os.getpid(),
        "host": host(),
        "commit": commit(),
        "dirty": is_dirty(),
        "started": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "versions": versions(),
    }


def host() -> str:
    """Return this host's pseudonym, or "" where no key can be kept."""
    with contextlib.suppress(OSError, ValueError):
        return pseudonym("host", socket.gethostname(), default_key_file(Path.cwd(), os.environ))
    return ""


def commit() -> str:
    """Return the commit that is checked out where the process runs, or "" outside a repository."""
    return (_git("rev-parse", "HEAD") or "").strip()


def is_dirty() -> bool | None:
    """Return whether a tracked file differs from the commit, or Python lies beside it untracked; None if unknown."""
    changed = _git("status", "--porcelain", "--", ":/")
    if changed is None:
        return None
    return any(not line.startswith("??") or line.rstrip('"').endswith(".py") for line in changed.splitlines())


def _git(*words: str) -> str | None:
    """Return what git answers where the process runs; None without git, without a repository, or when it is slow."""
    git = shutil.which("git")
    if git is None:
        return None
    try:
        asked = subprocess.run([git, *words], capture_output=True, text=True, timeout=GIT_SECONDS, check=False)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return asked.stdout if asked.returncode == 0 else None


def versions() -> dict[str, str]:
    """List what ran: Python, torch, the CUDA or ROCm that torch was built for, and the recorder."""
    found = {"python": platform.python_version(), "torch": torch.__version__, "weighbridge": __version__}
    built_for = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    return found | {name: version for name, version in built_for.items() if version}
