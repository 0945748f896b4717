"""`weighbridge amend`: draft what a spec says from what a bundle shows."""

from __future__ import annotations

from pathlib import Path

import click

from weighbridge.amendment import draft, markdown, standings, tally
from weighbridge.cli.options import tell
from weighbridge.cli.status import LEDGER
from weighbridge.errors import UsageError
from weighbridge.evidence.unseal import unseal
from weighbridge.ledger.store import Ledger
from weighbridge.storage.local_files import is_folder

STORES = (Path("evidence/bundles"), Path(".weighbridge/bundles"))
SHORTEST = 6


@click.group(
    "amend",
    short_help="Draft a section of a spec from a bundle.",
    epilog="\b\nExample: weighbridge amend draft --bundle 2f6a7cfc0f86 --gate GATE-GPUTRAIN-004",
)
def command() -> None:
    """Draft amendments of a spec: every figure cites the evidence that it stands on."""


@command.command(
    "draft",
    short_help="Write the section of one gate, and the tally.",
    epilog="\b\nExample: weighbridge amend draft --bundle 2f6a7cfc0f86 --gate GATE-GPUTRAIN-004",
)
@click.option("--bundle", required=True, help="A bundle's folder, or the first digits of its id.")
@click.option("--gate", required=True, help="The gate that the section is about.")
@LEDGER
def draft_section(bundle: str, gate: str, folder: Path) -> None:
    """Write the unnumbered section of one gate, and the tally of all gates, as Markdown."""
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
