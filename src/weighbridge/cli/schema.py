"""`weighbridge schema`: the JSON Schema of contracts, generated from the gate kinds' limits, for editors."""

from __future__ import annotations

import json

import click

from weighbridge.cli.options import tell
from weighbridge.contract.document import contract_schema


@click.command("schema", epilog="\b\nExample: weighbridge schema > contract.schema.json")
def command() -> None:
    """Print the JSON Schema (2020-12) of a contract."""
    tell([json.dumps(contract_schema(), indent=2, ensure_ascii=False)], whole=True)
