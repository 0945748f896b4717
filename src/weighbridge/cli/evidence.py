"""`weighbridge evidence`: verify a bundle, show it, or judge it again."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json, tell
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.errors import WeighbridgeError
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.review import Against, Answer, other_versions, rejudge, verify
from weighbridge.exit_code import ExitCode
from weighbridge.ledger.store import Ledger
from weighbridge.report import block, heading
from weighbridge.storage.local_files import is_folder

BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
QUESTIONS = ("integrity", "rederivation", "authenticity", "freshness", "coverage")


@click.group(
    "evidence",
    short_help="Verify, show or re-judge an evidence bundle.",
    epilog="\b\nExample: weighbridge evidence verify .weighbridge/bundles/2026-04-26-…",
)
def command() -> None:
    """Verify, show or re-judge an evidence bundle.

    Every change after sealing is detected. That the measurement was honest is not proved.
    """


@command.command(
    "verify",
    short_help="Check that a bundle is unchanged and gives its verdicts.",
    epilog="\b\nExample: weighbridge evidence verify evidence/bundles/2026-… --require-anchor",
)
@BUNDLE
@click.option(
    "--require-anchor", is_flag=True, help="Fail unless the ledger next to the bundles holds this bundle's id."
)
@as_json
def verify_bundle(bundle: Path, *, require_anchor: bool, as_json: bool) -> None:
    """Check integrity, re-derivation, authenticity, freshness and coverage of BUNDLE.

    Exit 0: unchanged, same verdicts; 1: not; 3: cannot be judged again here; 4: unreadable.
    """
    ledger = bundle.resolve().parent.parent / "ledger"
    recorded = Ledger(ledger).causes() if is_folder(ledger) else None
    against = Against(
        now=dt.datetime.now(dt.UTC), recorded=recorded, contract=_contract_now(bundle), anchored=require_anchor
    )
    answers = verify(bundle, against)
    found: dict[str, Answer] = {name: getattr(answers, name) for name in QUESTIONS}
    if as_json:
        told = {name: {"held": one.held, "says": one.says, "details": one.details} for name, one in found.items()}
        print_json({"id": answers.id, **told})
    else:
        tell([click.style(f"bundle {answers.id}", bold=True)])
        for name, one in found.items():
            tell((f"  {name:<13} {one.held:<11} {one.says}", *(f"  {'':<25} {detail}" for detail in one.details)))
    sys.exit(answers.exit_code)


def _contract_now(bundle: Path) -> str | None:
    """Return the digest of the bundle's contract as it is here now, or None where it is not here."""
    try:
        stated = unseal(bundle).contract.id
    except WeighbridgeError:
        return None  # whatever is wrong with the bundle, the five answers say it
    loaded = contracts_here().get(stated)
    return digests(loaded.contract).whole if loaded else None


@command.command(
    "show",
    short_help="Print the findings of a bundle.",
    epilog="\b\nExample: weighbridge evidence show .weighbridge/bundles/2026-04-26-…",
)
@BUNDLE
def show(bundle: Path) -> None:
    """Print the subjects, tool, host and findings of BUNDLE."""
    sealed = unseal(bundle)
    stated = sealed.statement
    subjects = [f"{item.name}={item.path} ({item.origin})" for item in stated.subjects]
    commit = f" at {stated.tool.commit[:12]}{' (changed)' if stated.tool.dirty else ''}" if stated.tool.commit else ""
    made = f"{stated.finished} on {stated.host} by {stated.tool.name} {stated.tool.version}{commit}"
    tell((heading(sealed.contract, subjects), f"bundle {sealed.id}", made, f"$ {' '.join(stated.command)}", ""))
    titles = {gate.id: gate.title for gate in sealed.contract.gates}
    for finding in sealed.findings:
        tell(block(finding, titles[finding.gate], "", sealed.measured))


@command.command(
    "rejudge",
    short_help="Judge a bundle again from its own bytes.",
    epilog="\b\nExample: weighbridge evidence rejudge .weighbridge/bundles/2026-04-26-…",
)
@BUNDLE
@click.option("--print", "printed", is_flag=True, help="Print the new verdicts, byte for byte.")
def rejudge_bundle(bundle: Path, *, printed: bool) -> None:
    """Judge BUNDLE again from its own bytes, without its subjects.

    Exit 0: the same verdicts, byte for byte; 1: others; 3: gate kinds have other versions here; 4: unreadable.
    """
    sealed = unseal(bundle)
    others = other_versions(sealed)
    if others:
        tell([f"not re-derivable here: judged by {', '.join(others)}"], err=True)
        sys.exit(ExitCode.BLOCKED)
    again = rejudge(sealed)
    if printed:
        click.echo(again, nl=False)  # bytes as they are sealed
    if again != sealed.verdicts:
        tell(["these measurements give other verdicts: `weighbridge evidence verify` shows which"], err=True)
        sys.exit(ExitCode.FAILED)
    count = len(sealed.findings)
    tell([f"the same {len(again)} bytes: {count} of {count} findings follow from the measurements"], err=True)
    sys.exit(ExitCode.PASSED)
