"""`weighbridge amend`: draft a section of a spec from an evidence bundle."""

from __future__ import annotations

from pathlib import Path

import click

from weighbridge.amendment import draft, markdown, standings, tally
from weighbridge.cli.options import LEDGER, tell
from weighbridge.errors import UsageError
from weighbridge.evidence.bundle import unseal
from weighbridge.ledger.store import Ledger
from weighbridge.storage.local_files import is_folder

STORES = (Path("evidence/bundles"), Path(".weighbridge/bundles"))
SHORTEST = 6


@click.group(
    "amend",
    short_help="Draft a spec section from an evidence bundle.",
    epilog="\b\nExample: weighbridge amend draft --bundle 2f6a7cfc0f86 --gate GATE-RUN-004",
)
def command() -> None:
    """Draft a spec section whose every number cites an evidence bundle."""


@command.command(
    "draft",
    short_help="Print the section for one gate, as Markdown.",
    epilog="\b\nExample: weighbridge amend draft --bundle 2f6a7cfc0f86 --gate GATE-RUN-004",
)
@click.option("--bundle", required=True, help="The bundle's folder, or at least 6 digits of its id.")
@click.option("--gate", required=True, help="The id of the gate.")
@LEDGER
def draft_section(bundle: str, gate: str, folder: Path) -> None:
    """Print a spec section for one gate, and the status of all gates, as Markdown."""
    section = f"{draft(unseal(find(bundle)), gate)}\n{markdown(tally(standings(Ledger(folder))))}"
    tell([section.removesuffix("\n")], whole=True)


def find(bundle: str) -> Path:
    """Return the folder of a bundle that is named by its folder or by the first digits of its id.

    Raises:
        UsageError: `unknown-bundle` or `ambiguous-bundle`.
    """
    if is_folder(Path(bundle)):
        return Path(bundle)
    stored = [path for store in STORES if store.is_dir() for path in store.iterdir()] if len(bundle) >= SHORTEST else []
    found = sorted(path for path in stored if path.name.rpartition("-")[2].startswith(bundle[:12]))
    if len(found) == 1:
        return found[0]
    where = ", ".join(map(str, STORES))
    if not found:
        remedy = "name its folder, or at least 6 digits of its id"
        raise UsageError("unknown-bundle", f"no bundle {bundle!r}", where=where, remedy=remedy)
    what = f"{len(found)} bundles begin with {bundle!r}"
    raise UsageError("ambiguous-bundle", what, where=where, remedy="give more digits")
