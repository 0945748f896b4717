"""`weighbridge amend`: draft what a spec says from what a bundle shows."""

from __future__ import annotations

from pathlib import Path

import click

from weighbridge.amendment.draft import draft
from weighbridge.amendment.tally import tally
from weighbridge.cli.status import LEDGER
from weighbridge.evidence.unseal import unseal
from weighbridge.ledger_store import Ledger


@click.group(
    "amend", epilog="Example: weighbridge amend draft --bundle evidence/bundles/2026-04-26-… --gate GATE-GPUTRAIN-004"
)
def command() -> None:
    """Draft amendments of a spec, whose every figure cites the evidence."""
