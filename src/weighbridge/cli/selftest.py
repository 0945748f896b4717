"""`weighbridge selftest`: judge every example, measure every specimen and run every trial on this machine."""

import sys
from pathlib import Path

import click

from weighbridge.cards.card_checks import Check, selftest
from weighbridge.cli import brought
from weighbridge.cli.completion import cards as complete
from weighbridge.cli.options import as_json, print_json, progress, tell, verb
from weighbridge.core import ExitCode, UsageError, printable

CARDS = "Use the cards in gates/ and verifiers/ of this folder, not the shipped ones."


@verb("selftest", "Check that this installation works.", "", "loss-spike step_columns")
@click.argument("names", nargs=-1, shell_complete=complete)
@click.option("--cards", type=click.Path(path_type=Path, exists=True, file_okay=False), help=CARDS)
@click.option("-v", "--verbose", is_flag=True, help="Also list the checks that passed.")
@as_json
def command(names: tuple[str, ...], cards: Path | None, verbose: bool, as_json: bool) -> None:
    """Run every example and specimen of the cards, or of those NAMES, with mutations and canaries, on this machine.

    Exit 0: all gave what they must; 1: not.
    """
    checks: list[Check] = []
    with progress() as show:
        for check in selftest(cards, names, brought()):
            checks.append(check)
            show(f"{len(checks)}: {check.name}")
    if not checks:
        what = "there is no card in gates/ or verifiers/"
        raise UsageError("no-cards", what, where=str(cards), remedy="name another")
    wrong = [check for check in checks if check.wrong]
    whole = [check for check in checks if not check.wrong and not check.skipped]
    if as_json:
        print_json([{"name": check.name, "wrong": check.wrong, "skipped": check.skipped} for check in checks])
    else:
        for check in checks:
            if check.wrong:
                reasons = (f"        {printable(line)}" for line in check.wrong)
                tell((f"{click.style('wrong', fg='red', bold=True)}   {check.name}", *reasons))
            elif check.skipped:
                tell([f"{click.style('skipped', fg='yellow')} {check.name}: {check.skipped}"])
            elif verbose:
                tell([f"{click.style('holds', fg='green')}   {check.name}"])
        untried = len(checks) - len(wrong) - len(whole)
        tell([f"{len(whole)} of {len(checks)} hold, {len(wrong)} wrong, {untried} not tried"])
    sys.exit(ExitCode.PASSED if whole and not wrong else ExitCode.FAILED)
