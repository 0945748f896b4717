"""`weighbridge doctor`: show what this installation and this host can measure."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator

import click

from weighbridge.card_checks import plugin_checks
from weighbridge.cards import fill
from weighbridge.cli.options import as_json, print_json, tell
from weighbridge.data import FOLDERS, data_path
from weighbridge.limits import plain
from weighbridge.model import Json, Measurement, Record
from weighbridge.verification import version_of
from weighbridge.verifiers import VERIFIERS
from weighbridge.version import __version__

PACKAGES = ("torch", "numpy", "safetensors", "gguf", "ml_dtypes", "fsspec", "nvidia-ml-py", "PyYAML", "click")


@click.command(
    "doctor",
    short_help="Show versions, folders and whether CUDA is available.",
    epilog="\b\nExample: weighbridge doctor --json",
)
@as_json
def command(as_json: bool) -> None:
    """Show versions, the folders of shipped cards and contracts, and whether CUDA is available."""
    found = facts()
    if as_json:
        print_json(found)
        return
    tell(fill("{name:<14} {value}", {"name": name, "value": value}) for name, value in found.items())


def facts() -> dict[str, Json]:
    """Return versions, folders, and the measured facts of this host."""
    host = VERIFIERS["host", ()].measure((), {})
    measured = host.value if isinstance(host, Measurement) else None
    found: dict[str, Json] = plain(measured.value) if isinstance(measured, Record) else {"cuda": "unknown"}
    versions = {name: version_of(name) or "not installed" for name in PACKAGES}
    folders = {name: str(data_path(name)) for name in FOLDERS}
    return {
        "weighbridge": __version__,
        "python": platform.python_version(),
        "platform": sys.platform,
        **versions,
        **folders,
        **found,
        **dict(_plugins()),
    }


def _plugins() -> Iterator[tuple[str, str]]:
    """Yield what other packages bring, with the package and its version, or what is wrong with it."""
    for check in plugin_checks():
        name, _, package = check.name.rpartition(": ")
        yield name, "; ".join(check.wrong) or package
