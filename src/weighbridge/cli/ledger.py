"""`weighbridge ledger`: check the ledger against itself and against an older commit; join what diverged."""

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
    short_help="Check the ledger; reconcile what diverged.",
    epilog="\b\nExample: weighbridge ledger check --base origin/main",
)
def command() -> None:
    """Check the ledger, and reconcile what two branches appended apart."""


@command.command(
    "check",
    short_help="Check every entry and every move.",
    epilog="\b\nExample: weighbridge ledger check --base origin/main",
)
@LEDGER
@click.option("--base", metavar="REF", help="Demand that since REF evidence was only added to.")
def check_ledger(folder: Path, base: str | None) -> None:
    """Check every entry: its digest, its parents, its number, its move. Exit 0: whole; 1: not; 2: there is none."""
    if not is_folder(folder):
        remedy = "name its folder with --ledger, or make the first entry with verify --record"
        raise UsageError("no-ledger", "there is no ledger to be checked", where=str(folder), remedy=remedy)
    ledger = Ledger(folder)
    problems = check(ledger, Path(), base)
    tell(f"{problem.path}: {problem.code} {problem.what}" for problem in problems)
    if problems:
        tell([f"problems: {len(problems)}"])
        sys.exit(ExitCode.FAILED)
    places = ledger.places()
    count = sum(len(ledger.read(place)) for place in places)
    tell([f"whole: {count} entries of {len(places)} gates and instances"])


@command.command(
    "reconcile",
    short_help="Join two heads of a gate into one.",
    epilog="\b\nExample: weighbridge ledger reconcile training-run GATE-RUN-001 --reason 'both branches ran'",
)
@LEDGER
@click.argument("contract")
@click.argument("gate")
@click.option("--instance", default="default", show_default=True)
@click.option("--reason", required=True, help="Why the heads are joined, at the lower status.")
def reconcile_heads(folder: Path, contract: str, gate: str, instance: str, reason: str) -> None:
    """Join the two newest entries of GATE into one, at the lower status."""
    place = Place(contract=contract, gate=gate, instance=instance)
    digest = reconcile(Ledger(folder), place, reason=reason, now=dt.datetime.now(dt.UTC))
    tell([f"{place}: reconciled by {digest[:12]}"])
