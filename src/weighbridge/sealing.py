"""What was measured and judged, sealed into a bundle with all that a bundle holds."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from weighbridge import __version__
from weighbridge.binding import EXECUTED, Bound
from weighbridge.contract.resolved import digests
from weighbridge.evidence.redact import Redactor, host_pseudonym
from weighbridge.evidence.seal import Draft, seal
from weighbridge.evidence.statement import BoundSubject, Tool
from weighbridge.evidence.unseal import Bundle
from weighbridge.model import Fields, Origin
from weighbridge.runner import Evaluation
from weighbridge.storage.local_files import is_file

PACKAGES = ("torch", "numpy", "safetensors", "gguf", "ml_dtypes")


def keep(evaluation: Evaluation, source: bytes, into: Path, redactor: Redactor, command: tuple[str, ...]) -> Bundle:
    """Return one session's results, sealed; `source` is the contract's own bytes, `command` the argv.

    Raises:
        BundleError: where the bundle would hold a secret, or the disk refuses; nothing is left behind then.
    """
    draft = Draft(
        contract=evaluation.contract,
        contract_yaml=source,
        contract_digests=digests(evaluation.contract),
        subjects=tuple(_subject(item, evaluation, redactor) for item in evaluation.bound),
        instances=evaluation.instances,
        measured=evaluation.measured,
        canaries=evaluation.canaries,
        findings=evaluation.findings,
        tool=tool(),
        host=host_pseudonym(redactor.key),
        started=evaluation.started,
        finished=evaluation.finished,
        command=tuple(redactor.text(word) for word in command),
        environment=environment(),
    )
    return seal(draft, into, redactor)


def _subject(item: Bound, evaluation: Evaluation, redactor: Redactor) -> BoundSubject:
    key = (item.subject, item.instance)
    found: Mapping[str, str] = evaluation.digests.get(key, {})
    return BoundSubject(
        name=item.subject,
        instance=item.instance,
        kind=item.kind,
        path=redactor.text(item.target),
        origin=evaluation.origins.get(key, Origin.FIXTURE),
        digests={redactor.text(name): digest for name, digest in found.items()},
        size=evaluation.sizes.get(key) or _size(item, found),
    )


def _size(item: Bound, digests: Mapping[str, str]) -> int:
    """Sum the bytes of a subject's files; what is executed is no file of its own."""
    path = Path(item.target)
    files = [path] if is_file(path) else [path / name for name in digests]
    return 0 if item.kind in EXECUTED else sum(file.stat().st_size for file in files if is_file(file))


def environment() -> Fields:
    """Return the versions that measuring rested on; only what is on the bundle's allow-list is sealed."""
    versions = {name: version_of(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "weighbridge": __version__,
        "cpu_count": os.cpu_count(),
        **{name: version for name, version in versions.items() if version},
    }


def version_of(name: str) -> str:
    """Return the installed version of a package, empty where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def tool() -> Tool:
    """Return which build of this tool is running: its version, and its commit where it runs from a checkout."""
    root = Path(__file__).resolve().parents[2]
    commit = _git(root, "rev-parse", "HEAD") if (root / ".git").exists() else ""
    dirty = bool(
        commit and _git(root, "status", "--porcelain", "--untracked-files=no", "--", "src", "gates", "verifiers")
    )
    return Tool(version=__version__, commit=commit, dirty=dirty)


def _git(root: Path, *arguments: str) -> str:
    argv = ("git", "-C", str(root), *arguments)
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def command_line() -> tuple[str, ...]:
    """Return the command as it was typed, the program by its name alone."""
    return ("weighbridge", *sys.argv[1:])
