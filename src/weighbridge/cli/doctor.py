"""`weighbridge doctor`: show what this installation and this host can measure, and what each part lacks."""

import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from weighbridge.cards.card_checks import plugin_checks
from weighbridge.cards.words import fill
from weighbridge.cli import brought
from weighbridge.cli.options import as_json, print_json, tell, verb
from weighbridge.core import ExitCode, Json, Measurement, Record, __version__, data_path, exists, plain, printable
from weighbridge.core.data import FOLDERS, table
from weighbridge.core.project import local
from weighbridge.core.pseudonym import key_file
from weighbridge.evaluation.verification import version_of
from weighbridge.verifiers import VERIFIERS

PACKAGES = ("torch", "numpy", "safetensors", "gguf", "ml_dtypes", "fsspec", "nvidia-ml-py", "PyYAML", "click")
EXTRAS: Mapping[str, str] = table("cli/doctor")["extras"]
COMPLETIONS: Mapping[str, tuple[str, str]] = table("cli/doctor")["completions"]  # a file and a line of it, by shell


@verb("doctor", "Show what is installed here, and what is missing.", "--json")
@as_json
def command(as_json: bool) -> None:
    """Show versions, extras, the folders that are read and written, the key, CUDA, and what each lacks.

    Exit 0: all that other packages bring can be used; 1: not.
    """
    checks = [(*check.name.rpartition(": ")[::2], "; ".join(check.wrong)) for check in plugin_checks(brought())]
    found, broken = facts(), {name: wrong for name, _, wrong in checks if wrong}
    found |= {name: package for name, package, wrong in checks if not wrong}
    if as_json:
        print_json({**found, **broken})
    else:
        _tell(found)
        if broken:
            tell(["", click.style("cannot be used", bold=True)])
            _tell(broken)
    sys.exit(ExitCode.FAILED if broken else ExitCode.PASSED)


def _tell(found: Mapping[str, Json]) -> None:
    for name, value in found.items():
        rows: dict[str, Json] = {name: printable(value) if isinstance(value, str) else value}
        if isinstance(value, dict):
            said = {key: _lacking(key, one["lacks"]) if isinstance(one, dict) else one for key, one in value.items()}
            rows = {f"{name.removesuffix('s')} {key}": one for key, one in said.items()}
        tell(fill("{name:<18} {value}", {"name": label, "value": one}) for label, one in rows.items())


def facts() -> dict[str, Json]:
    """Return versions, extras, folders, and the measured facts of this host."""
    host = VERIFIERS["host", ()].measure((), {})
    measured = host.value if isinstance(host, Measurement) else None
    found: dict[str, Json] = plain(measured.value) if isinstance(measured, Record) else {"cuda": "unknown"}
    evidence = Path("evidence")
    folders: dict[str, Json] = {}
    for name, path in {"store": local(), "evidence": evidence, "ledger": evidence / "ledger"}.items():
        can = os.access(next(one for one in (path.absolute(), *path.absolute().parents) if exists(one)), os.W_OK)
        state = "writable" if exists(path) else "not there yet, can be made"
        folders[name] = f"{path}: {state if can else 'cannot be written; give another with --evidence'}"
    return {
        "weighbridge": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        **{name: version_of(name) or "not installed" for name in PACKAGES},
        "extras": {name: {"gives": gives, "lacks": _lacks(name)} for name, gives in EXTRAS.items()},
        **{name: str(data_path(name)) for name in FOLDERS},
        "folders": folders,
        "key": _key(),
        "completion": _completion(),
        **found,
    }


def _lacks(extra: str) -> list[str] | None:
    """Return the packages of an extra that are missing; None where weighbridge is not installed as a package."""
    try:
        required = importlib.metadata.requires("weighbridge") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    mine = [one for one in required if re.search(rf"extra == ['\"]{extra}['\"]", one)]
    packages = [found[0] for one in mine if (found := re.match(r"[\w.-]+", one))]
    return [package for package in packages if not version_of(package)]


def _lacking(extra: str, lacks: list[str] | None) -> str:
    if lacks is None:
        return f"unknown, for weighbridge is not installed as a package: {EXTRAS[extra]}"
    if lacks:
        return f"lacks {', '.join(lacks)}: {EXTRAS[extra]}; pip install 'weighbridge[{extra}]'"
    return f"installed: {EXTRAS[extra]}"


def _key() -> str:
    if (file := key_file(os.environ)) is None:
        return "none can be kept, for there is no home folder: pseudonyms hold for one run; set XDG_STATE_HOME"
    if exists(file):
        kept = "kept" if os.access(file, os.R_OK) else "cannot be read; make it readable by you, or remove it"
        return f"{file}: {kept}"
    can = os.access(next(one for one in file.parents if exists(one)), os.W_OK)
    return f"{file}: {'made with the first evidence' if can else 'cannot be made: pseudonyms hold for one run'}"


def _completion() -> str:
    """Return whether the shell completes words of this tool, as far as the file that it starts with tells."""
    if (shell := Path(os.environ.get("SHELL", "")).name) not in COMPLETIONS:
        return f"bash, zsh and fish complete words of this tool; {shell or 'the shell'} is not known"
    file, line = COMPLETIONS[shell]
    place = Path(os.environ.get("HOME", "")) / file
    on = place.is_file() and "_WEIGHBRIDGE_COMPLETE" in place.read_text("utf-8", errors="replace")
    return f"on in {shell}" if on else f"off in {shell}; add to ~/{file}: {line}"
