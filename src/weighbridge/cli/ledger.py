"""`weighbridge ledger`: check it, also against an older commit; record bundles; join what diverged; retire a gate."""

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from weighbridge.cli.completion import recorded_gates
from weighbridge.cli.options import LEDGER, progress, tell, verb, verbs
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.core import AmendmentError, ExitCode, LedgerError, UsageError, WeighbridgeError, is_folder, printable
from weighbridge.evidence.bundle import ID_SHOWN, unseal
from weighbridge.evidence.disk import digest_regular
from weighbridge.evidence.manifest import CONTRACT_YAML
from weighbridge.evidence.review import Answer
from weighbridge.judging.requests import DEFAULT
from weighbridge.ledger.audit import OTHER_VERSION, check
from weighbridge.ledger.causes import Causes
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.ledger.record import reconcile, record, recorded_contracts, retire
from weighbridge.ledger.store import Ledger

PLACE = click.argument("place", metavar="CONTRACT/GATE[/INSTANCE]", shell_complete=recorded_gates)
CAUSE = "The counter-evidence by at least 12 digits of its id, or the gate that replaces it."
TO_RECONCILE = """my-import/GATE-DTYPE \\
           --reason 'both branches recorded a PASS'"""
TO_RETIRE = """my-import/GATE-DTYPE \\
           --reason 'replaced by a gate over all shards' --cause GATE-SHARDS"""


@verbs("ledger", "Check or record the ledger, join entries, retire a gate.", "check --base origin/main")
def command() -> None:
    """Check the ledger, record bundles, join the entries of two branches that diverged, or retire a gate."""


@verb("check", "Check every entry of the ledger, and its evidence.", "--base origin/main", of=command)
@LEDGER
@click.option("--base", metavar="REF", help="Also check that evidence was only added since this commit.")
def check_ledger(folder: Path, base: str | None) -> None:
    """Check every entry of the ledger, and that it follows from its evidence.

    Each bundle beside the ledger is judged again, and each landed section that discharges a gate is drafted again.

    Exit 0: whole; 1: not; 2: there is no ledger; 3: a bundle cannot be judged again by this version.
    """
    if not is_folder(folder):
        remedy = "name its folder with --ledger, or make the first entry with verify --record"
        raise UsageError("no-ledger", "there is no ledger here", where=str(folder), remedy=remedy)
    ledger = Ledger(folder)
    now = dt.datetime.now(dt.UTC)
    judged: dict[str, Answer] = {}
    problems = [*check(ledger, now, base, judged), *_discharging(ledger, now, judged)]
    tell(map(str, problems))
    if problems:
        tell([f"problems: {len(problems)}"])
        sys.exit(ExitCode.BLOCKED if {one.code for one in problems} == {OTHER_VERSION} else ExitCode.FAILED)
    chains = ledger.chains()
    tell([f"whole: {sum(map(len, chains.values()))} entries of {len(chains)} gates, counted by instance"])


def _discharging(ledger: Ledger, now: dt.datetime, judged: dict[str, Answer]) -> Iterator[WeighbridgeError]:
    """Yield what is wrong with the landed sections that discharge a gate: an entry goes by what they say."""
    from weighbridge.spec.amendments import landed
    from weighbridge.spec.citations import Bundles
    from weighbridge.spec.landing import Here, check_landed
    from weighbridge.spec.rendering import AMENDMENTS

    spec = ledger.root.absolute().parent.parent / "spec"
    here = Here(spec=spec, ledger=ledger, now=now, bundles=Bundles(judged=judged))
    try:
        sections = landed(here.spec / AMENDMENTS)
        for one in (one for one in sections if one.about.landing.discharges):
            yield from (found.error for found in check_landed(here, one, sections).problems if not found.warning)
    except AmendmentError as problem:
        yield problem


@verb("record", "Record bundles that were sealed elsewhere.", "2f6a7cfc0f86", of=command)
@LEDGER
@click.argument("bundles", nargs=-1, required=True, metavar="BUNDLE...")
def record_bundles(folder: Path, bundles: tuple[str, ...]) -> None:
    """Append the status changes that bundles beside the ledger earn, the oldest first.

    For bundles that came from elsewhere, or were sealed without --record; a FAIL counts as much as a PASS.
    """
    ledger, now = Ledger(folder), dt.datetime.now(dt.UTC)
    bundles = tuple(Path(one).name.rpartition("-")[2] for one in bundles)  # a folder's name ends in its id
    causes = Causes(ledger=ledger, chains={})
    with progress() as show:
        for count, named in enumerate(bundles, 1):
            show(f"judging again: {count} of {len(bundles)}")
            causes.shown(named)  # whole, and judged again
    here = {name: digests(one.contract).whole for name, one in contracts_here().items()}
    for bundle in (unseal(causes.folders[one[:ID_SHOWN]]) for one in causes.stated if one.startswith(bundles)):
        about = bundle.statement.contract
        mine = {about.whole, digest_regular(bundle.path / CONTRACT_YAML)}
        if mine.isdisjoint(recorded_contracts(ledger).get((about.id, about.version), mine)):
            what = f"{about.id} {about.version} has another content in the ledger"
            raise LedgerError("reused-version", what, remedy="raise the version, and measure again")
        for move in record(bundle, ledger, now=now, contract_digest=here.get(about.id, about.whole)):
            change = f"{move.before or 'none'} -> {move.after}" if move.moved else f"not moved: {move.code} {move.says}"
            tell([printable(f"{bundle.id[:ID_SHOWN]}: {move.place}: {change}")])


@verb("reconcile", "Join the newest entries of a gate after a merge.", TO_RECONCILE, of=command)
@LEDGER
@PLACE
@click.option("--reason", required=True, help="Why the entries are joined.")
def reconcile_heads(folder: Path, place: str, reason: str) -> None:
    """Join the newest entries of a gate into one, at the lower status."""
    named = _place(Ledger(folder), place)
    digest = reconcile(Ledger(folder), named, reason=reason, now=dt.datetime.now(dt.UTC))
    tell([f"{named}: reconciled by {digest[:12]}"])


@verb("retire", "Retire a gate that was refuted or replaced.", TO_RETIRE, of=command)
@LEDGER
@PLACE
@click.option("--reason", required=True, help="Why it is retired.")
@click.option("--cause", required=True, metavar="BUNDLE|GATE", help=CAUSE)
def retire_gate(folder: Path, place: str, reason: str, cause: str) -> None:
    """Retire a gate for ever: it was refuted by a bundle, or another gate replaces it."""
    ledger, named = Ledger(folder), _place(Ledger(folder), place)
    stated = Causes(ledger=ledger, chains={}).stated if len(cause) >= ID_SHOWN else ()
    whole = next((one for one in stated if one.startswith(cause)), cause)
    digest = retire(ledger, named, reason=reason, cause=whole, now=dt.datetime.now(dt.UTC))
    tell([f"{named}: retired by {digest[:12]}"])


def _place(ledger: Ledger, text: str) -> LedgerPlace:
    """Return the place that is named; without an instance it is the only one that the ledger has, or `default`."""
    contract, _, rest = text.partition("/")
    gate, _, instance = rest.partition("/")
    if not contract or not gate:
        remedy = "write CONTRACT/GATE or CONTRACT/GATE/INSTANCE"
        raise UsageError("place-form", f"{text!r} names no gate", remedy=remedy)
    known = [one.instance for one in ledger.places() if (one.contract, one.gate) == (contract, gate)]
    if not instance and DEFAULT not in known and len(known) > 1:
        raise UsageError("place-form", f"{text} stands on {', '.join(known)}", remedy=f"write {text}/INSTANCE")
    return LedgerPlace(contract=contract, gate=gate, instance=instance or (known[0] if len(known) == 1 else DEFAULT))
