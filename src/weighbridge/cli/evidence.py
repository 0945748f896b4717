"""`weighbridge evidence`: verify a bundle, show it, or judge it again."""

from __future__ import annotations

import datetime as dt
import re
import sys
from pathlib import Path

import click

from weighbridge.cli.options import as_json, pairs, print_json, tell
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.errors import UsageError
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.codec import finding_to_json
from weighbridge.evidence.review import Against, Answer, Held, other_versions, rejudge, subject, verify
from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.ledger.store import Ledger
from weighbridge.report import block, heading, outcome_line
from weighbridge.storage.local_files import is_folder

BUNDLE = click.argument("bundle", type=click.Path(path_type=Path))
ID = re.compile(r"(?:[0-9a-f]{12,64})?")


def _id(_context: click.Context, _option: click.Parameter, text: str) -> str:
    if not ID.fullmatch(text):
        what, remedy = f"{text!r} is no id of a bundle", "give its first 12 hexadecimal digits, or more"
        raise UsageError("id-form", what, remedy=remedy)
    return text


IDENTITY = click.option(
    "--id", "given", default="", metavar="ID12", callback=_id, help="The id that you were told."
)  # fmt: skip
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
@IDENTITY
@click.option("--require-pass", is_flag=True, help="Fail unless the gates passed: as `verify` would, with exit 0.")
@click.option(
    "--require-anchor", is_flag=True, help="Fail unless --id or the ledger next to the bundles holds the bundle's id."
)
@click.option(
    "--subject", "subjects", multiple=True, metavar="NAME=FILE",
    help="Is this the file (or folder) that was measured? Repeatable.",
)  # fmt: skip
@as_json
def verify_bundle(
    bundle: Path, *, given: str, require_pass: bool, require_anchor: bool, subjects: tuple[str, ...], as_json: bool
) -> None:
    """Show the outcome of every gate of BUNDLE, and whether the bundle can be trusted.

    BUNDLE is a folder, or a zip or tar that holds one. Its integrity, re-derivation, authenticity, freshness and
    coverage are answered apart.

    Exit 0: unchanged, same verdicts; 1: not, or not what was required; 3: cannot be judged again here; 4: unreadable.
    """
    ledger = bundle.resolve().parent.parent / "ledger"
    against = Against(
        now=dt.datetime.now(dt.UTC),
        given=given,
        recorded=Ledger(ledger).causes() if is_folder(ledger) else None,
        contracts={name: digests(one.contract).whole for name, one in contracts_here().items()},
        anchored=require_anchor,
    )
    answers = verify(bundle, against)
    found: dict[str, Answer] = {name: getattr(answers, name) for name in QUESTIONS}
    sealed = answers.bundle
    if sealed is not None:
        found |= {f"subject {name}": subject(sealed.statement, name, path) for name, path in pairs(subjects, "subject")}
    findings = sealed.findings if sealed else ()
    titles = {gate.id: gate.title for gate in sealed.contract.gates} if sealed else {}
    if as_json:
        gates = [finding_to_json(one) for one in findings]
        shown = [{key: gate[key] for key in ("gate", "instance", "severity", "outcome", "code")} for gate in gates]
        told = {name: {"held": one.held, "says": one.says, "details": one.details} for name, one in found.items()}
        print_json({"id": answers.id, "gates": shown, **told})
    else:
        tell([click.style(f"bundle {answers.id}", bold=True)])
        tell(f"{outcome_line(one, titles.get(one.gate, ''))}  {one.verdict.code}".rstrip() for one in findings)
        for name, one in found.items():
            tell((f"  {name:<13} {one.held:<11} {one.says}", *(f"  {'':<25} {detail}" for detail in one.details)))
    other = any(one.held is Held.BROKEN for name, one in found.items() if name not in QUESTIONS)
    wanted = other or (require_pass and exit_code(findings) is not ExitCode.PASSED)
    sys.exit(answers.exit_code or int(wanted))


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
