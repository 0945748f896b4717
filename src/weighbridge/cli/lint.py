"""`weighbridge lint`: check contracts for mistakes; measures nothing."""

import datetime as dt
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from weighbridge.cli.completion import contracts as complete
from weighbridge.cli.contracts import contracts_named, instead
from weighbridge.cli.options import LEDGER, as_json, on_github, print_json, tell, verb
from weighbridge.contract import load
from weighbridge.contract.layers import Found, from_errors
from weighbridge.contract.load import BUILTIN, LoadedContract
from weighbridge.contract.resolved import digests
from weighbridge.core import ContractError, ExitCode, is_file, is_folder


@verb("lint", "Check contracts for mistakes.", "contracts/*.yaml")
@click.argument("contracts", nargs=-1, shell_complete=complete)
@LEDGER
@as_json
def command(contracts: tuple[str, ...], folder: Path, *, as_json: bool) -> None:
    """Check CONTRACTS for mistakes, and report each with its line and column.

    A contract that has the id and version of one in the ledger must have its content, too: another content needs
    another version. The lanes in weighbridge.toml and the waivers in waivers.yaml are checked, where they are: no gate
    may be left out by all lanes.

    CONTRACTS are files, folders or builtin:NAME. Default: those in contracts/ and below; without any, those that ship
    with the tool are checked.

    Exit 0: all can be used; 2: not; 5: there is none of your own.
    """
    names = tuple(contracts_named(contracts)) or load.written_in()
    shipped = () if names else tuple(f"{BUILTIN}{name}" for name in load.builtin_names())
    names += shipped
    named, problems = load.load_each(names)
    loaded = [one for _, one in named]
    beside = [one for one in dict.fromkeys(_beside(loaded)) if str(one) not in set(map(str, problems))]
    problems += [found.error for found in beside if not found.warning]
    known: Mapping[tuple[str, str], frozenset[str]] = {}
    if is_folder(folder):
        from weighbridge.ledger.record import recorded_contracts  # what reads bundles loads twice as long as linting
        from weighbridge.ledger.store import Ledger

        known = recorded_contracts(Ledger(folder))
    compared = loaded if known or len(loaded) > 1 else ()
    reused = tuple(load.reused(((one, digests(one.contract).whole) for one in compared), known))
    problems += [found.error for found in reused]
    warnings = [warning for one in loaded for warning in one.warnings] + [found for found in beside if found.warning]
    if as_json:
        levels = [("error", problem) for problem in problems] + [("warning", found.error) for found in warnings]
        said = ("code", "what", "where", "remedy")
        print_json([{"level": level, **{key: getattr(one, key) for key in said}} for level, one in levels])
    else:
        tell((line for one in (*problems, *warnings) for line in str(one).splitlines()), err=True)
        if shipped:
            tell([f"no contract of yours was checked: contracts/ holds none; {instead('lint')}"], err=True)
        of = "contracts that ship with weighbridge" if shipped else "contracts"
        tell([f"{len(loaded) - len(reused)} of {len(names)} {of} are usable"])
    if on_github():
        from weighbridge.report import Level, github

        found = [(Level.ERROR, problem) for problem in problems] + [(Level.WARNING, one.error) for one in warnings]
        tell(github.of_problems(found).splitlines(), err=as_json, whole=True)
        github.summarise_problems(found)
    sys.exit(ExitCode.INVALID if problems else ExitCode.NOTHING_SHOWN if shipped else ExitCode.PASSED)


def _beside(loaded: Sequence[LoadedContract]) -> Iterator[Found]:
    try:
        if is_file(load.PROJECT):
            from weighbridge.lanes.lanes import load_project

            load_project()
    except ContractError as error:
        yield from from_errors(error.problems)
    try:
        if is_file(load.WAIVERS):
            from weighbridge.lanes.lanes import known_contracts
            from weighbridge.lanes.waivers import waivers_of

            waivers = waivers_of(None, dt.datetime.now(dt.UTC))
            known = known_contracts() | {one.contract.id: one.contract for one in loaded}
            waivers.demand_known({name: dict.fromkeys(gate.id for gate in one.gates) for name, one in known.items()})
            yield from waivers.remarks({})
    except ContractError as error:
        yield from from_errors(error.problems)
