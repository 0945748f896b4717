"""`weighbridge evidence`: verify a bundle, show it, judge it again."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json
from weighbridge.contract.here import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.errors import WeighbridgeError
from weighbridge.evidence.rejudge import other_versions, rejudge
from weighbridge.evidence.review import Against, Answers, verify
from weighbridge.evidence.unseal import Bundle, unseal
from weighbridge.exit_code import ExitCode
from weighbridge.ledger.store import Ledger
from weighbridge.model import Json
from weighbridge.report.terminal import block, heading
from weighbridge.storage.local_files import is_folder

BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
QUESTIONS = ("integrity", "rederivation", "authenticity", "freshness", "coverage")


@click.group("evidence", epilog="\b\nExample: weighbridge evidence verify .weighbridge/bundles/2026-04-26-…")
def command() -> None:
    """Verify, show and re-judge evidence bundles. Tamper-evident after sealing; not proof of honest measuring."""


@command.command(
    "verify", epilog="\b\nExample: weighbridge evidence verify evidence/bundles/2026-04-26-… --require-anchor"
)
@BUNDLE
@click.option(
    "--require-anchor", is_flag=True, help="Demand that the ledger beside the bundles names this bundle's id."
)
@as_json
def verify_bundle(bundle: Path, *, require_anchor: bool, as_json: bool) -> None:
    """Answer five questions about BUNDLE, apart.

    Exit 0: it holds; 1: it does not; 3: it cannot be judged again here; 4: unreadable.
    """
    ledger = bundle.resolve().parent.parent / "ledger"
    recorded = Ledger(ledger).causes() if is_folder(ledger) else None
    against = Against(
        now=dt.datetime.now(dt.UTC), recorded=recorded, contract=_contract_now(bundle), anchored=require_anchor
    )
    answers = verify(bundle, against)
    if as_json:
        print_json({"id": answers.id, **{name: _answer(answers, name) for name in QUESTIONS}})
    else:
        click.echo(click.style(f"bundle {answers.id}", bold=True))
        for name in QUESTIONS:
            answer = getattr(answers, name)
            click.echo(f"  {name:<13} {answer.held:<11} {answer.says}")
            for detail in answer.details:
                click.echo(f"  {'':<25} {detail}")
    sys.exit(answers.exit_code)


def _contract_now(bundle: Path) -> str | None:
    """Digest the bundle's contract as it stands here now, where it stands here at all."""
    try:
        stated = unseal(bundle).contract.id
    except WeighbridgeError:
        return None  # whatever is wrong with the bundle, the five answers say it
    loaded = contracts_here().get(stated)
    return digests(loaded.contract).whole if loaded else None


def _answer(answers: Answers, name: str) -> Json:
    answer = getattr(answers, name)
    return {"held": str(answer.held), "says": answer.says, "details": list(answer.details)}


@command.command(
    "show",
    short_help="Say what a bundle holds, in words.",
    epilog="\b\nExample: weighbridge evidence show .weighbridge/bundles/2026-04-26-…",
)
@BUNDLE
def show(bundle: Path) -> None:
    """Say what BUNDLE holds: subjects, tool, host, and every finding in words."""
    sealed = unseal(bundle)
    stated = sealed.statement
    subjects = [f"{item.name}={item.path} ({item.origin})" for item in stated.subjects]
    click.echo(heading(sealed.contract, subjects))
    commit = f" at {stated.tool.commit[:12]}{' (changed)' if stated.tool.dirty else ''}" if stated.tool.commit else ""
    click.echo(f"bundle {sealed.id}")
    click.echo(f"{stated.finished} on {stated.host} by {stated.tool.name} {stated.tool.version}{commit}")
    click.echo(f"$ {' '.join(stated.command)}\n")
    titles = {gate.id: gate.title for gate in sealed.contract.gates}
    for finding in sealed.findings:
        for line in block(finding, titles[finding.gate], "", sealed.measured):
            click.echo(line)


@command.command("rejudge", epilog="\b\nExample: weighbridge evidence rejudge .weighbridge/bundles/2026-04-26-…")
@BUNDLE
@click.option("--print", "printed", is_flag=True, help="Print the verdicts that judging again gives, byte for byte.")
def rejudge_bundle(bundle: Path, *, printed: bool) -> None:
    """Judge BUNDLE again from its own bytes, measuring nothing.

    Exit 0: the same verdicts, byte for byte; 1: others; 3: judged by gate kinds of other versions; 4: unreadable.
    """
    sealed = unseal(bundle)
    others = other_versions(sealed)
    if others:
        click.echo(f"not re-derivable here: judged by {', '.join(others)}", err=True)
        sys.exit(ExitCode.BLOCKED)
    again = rejudge(sealed)
    if printed:
        click.echo(again, nl=False)
    same = again == sealed.verdicts
    click.echo(_told(sealed, same=same), err=True)
    sys.exit(ExitCode.PASSED if same else ExitCode.FAILED)


def _told(sealed: Bundle, *, same: bool) -> str:
    count = len(sealed.findings)
    if same:
        return f"the same {len(sealed.verdicts)} bytes: {count} of {count} findings follow from the measurements"
    return "other verdicts follow from these measurements: `weighbridge evidence verify` says which"
