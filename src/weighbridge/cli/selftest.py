"""`weighbridge selftest`: judge every example, measure every specimen, falsify every pass, here and now."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json
from weighbridge.errors import UsageError
from weighbridge.exit_code import ExitCode
from weighbridge.selftest import Check, selftest


@click.command(
    "selftest",
    short_help="Show that this installation works.",
    epilog="\b\nExample: weighbridge selftest --cards ../another-implementation",
)
@click.option(
    "--cards", type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A folder with gates/ and verifiers/ cards to try instead of the shipped ones.",
)  # fmt: skip
@click.option("-v", "--verbose", is_flag=True, help="List what held, too.")
@as_json
def command(cards: Path | None, verbose: bool, as_json: bool) -> None:
    """Show that this installation works: cards, specimens, falsifiers and canaries. Exit 0: all hold; 1: not."""
    checks = list(selftest(cards))
    if not checks:
        raise UsageError(
            "no-cards", "there is no card in gates/ or verifiers/", where=str(cards), remedy="name another"
        )
    wrong = [check for check in checks if check.wrong]
    if as_json:
        print_json([{"name": check.name, "wrong": check.wrong, "skipped": check.skipped} for check in checks])
    else:
        for check in checks:
            _print(check, verbose=verbose)
        skipped = sum(bool(check.skipped) for check in checks)
        held = len(checks) - len(wrong) - skipped
        click.echo(f"{held} of {len(checks)} hold, {len(wrong)} wrong, {skipped} not tried")
    sys.exit(ExitCode.FAILED if wrong else ExitCode.PASSED)


def _print(check: Check, *, verbose: bool) -> None:
    if check.wrong:
        click.echo(f"{click.style('wrong', fg='red', bold=True)}   {check.name}")
        for line in check.wrong:
            click.echo(f"        {line}")
    elif check.skipped:
        click.echo(f"{click.style('skipped', fg='yellow')} {check.name}: {check.skipped}")
    elif verbose:
        click.echo(f"{click.style('holds', fg='green')}   {check.name}")
