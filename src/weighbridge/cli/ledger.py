"""`weighbridge ledger`: check the ledger, also against an older commit; join entries that diverged."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click

from weighbridge.cli.options import tell
from weighbridge.cli.status import LEDGER
from weighbridge.errors import UsageError
from weighbridge.exit_code import ExitCode
from weighbridge.ledger.fold import Place
from weighbridge.ledger.record import reconcile
from weighbridge.ledger.store import Ledger, check
from weighbridge.storage.local_files import is_folder


@click.group(
    "ledger",
    short_help="Check the ledger, or join entries that diverged.",
    epilog="\b\nExample: weighbridge ledger check --base origin/main",
)
def command() -> None:
    """Check the ledger, or join the entries of two branches that diverged."""


@command.command(
    "check",
    short_help="Check every entry of the ledger.",
    epilog="\b\nExample: weighbridge ledger check --base origin/main",
)
@LEDGER
@click.option("--base", metavar="REF", help="Also check that evidence was only added since this commit.")
def check_ledger(folder: Path, base: str | None) -> None:
    """Check the digest, parents, number and status change of every entry.

    Exit 0: intact; 1: not; 2: there is no ledger.
    """
    if not is_folder(folder):
        remedy = "name its folder with --ledger, or make the first entry with verify --record"
        raise UsageError("no-ledger", "there is no ledger here", where=str(folder), remedy=remedy)
    ledger = Ledger(folder)
    problems = check(ledger, Path(), base)
    tell(map(str, problems))
    if problems:
        tell([f"problems: {len(problems)}"])
        sys.exit(ExitCode.FAILED)
    places = ledger.places()
    count = sum(len(ledger.read(place)) for place in places)
    tell([f"whole: {count} entries of {len(places)} gates and instances"])


@command.command(
    "reconcile",
    short_help="Join the newest entries of a gate after a merge.",
    epilog="\b\nExample: weighbridge ledger reconcile my-import GATE-DTYPE \\\n"
    "           --reason 'both branches recorded a PASS'",
)
@LEDGER
@click.argument("contract")
@click.argument("gate")
@click.option("--instance", default="default", show_default=True, help="The instance of the gate.")
@click.option("--reason", required=True, help="Why the entries are joined.")
def reconcile_heads(folder: Path, contract: str, gate: str, instance: str, reason: str) -> None:
    """Join the newest entries of GATE in CONTRACT into one, at the lower status."""
    place = Place(contract=contract, gate=gate, instance=instance)
    digest = reconcile(Ledger(folder), place, reason=reason, now=dt.datetime.now(dt.UTC))
    tell([f"{place}: reconciled by {digest[:12]}"])
