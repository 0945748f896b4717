"""`weighbridge lint`: read contracts strictly and say everything that is wrong with them; measures nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json, tell
from weighbridge.contract.load import BUILTIN, LoadedContract, builtin_names, load_contract
from weighbridge.contract.resolved import digests
from weighbridge.contract.versions import reused
from weighbridge.errors import ContractError
from weighbridge.exit_code import ExitCode


@click.command(
    "lint",
    short_help="Say everything that is wrong with contracts.",
    epilog="\b\nExample: weighbridge lint contracts/*.yaml",
)
@click.argument("contracts", nargs=-1)
@as_json
def command(contracts: tuple[str, ...], *, as_json: bool) -> None:
    """Check CONTRACTS (files or builtin:NAME; without any, contracts/*.yaml, or the starter contracts).

    Exit 0: usable; 2: not.
    """
    problems: list[ContractError] = []
    loaded: list[LoadedContract] = []
    names = contracts or _all()
    for name in names:
        try:
            loaded.append(load_contract(name))
        except ContractError as error:
            problems += error.problems
    problems += [found.error for found in reused(((one, digests(one.contract).whole) for one in loaded), {})]
    warnings = [warning for one in loaded for warning in one.warnings]
    if as_json:
        print_json([_json(problem, "error") for problem in problems] + [_json(w.error, "warning") for w in warnings])
    else:
        for line in (*map(str, problems), *map(str, warnings)):
            click.echo(line, err=True)
        tell([f"{len(loaded)} of {len(names)} contracts are usable"])
    sys.exit(ExitCode.INVALID if problems else ExitCode.PASSED)


def _all() -> tuple[str, ...]:
    here = tuple(str(path) for path in sorted(Path("contracts").glob("*.yaml")))
    return here or tuple(f"{BUILTIN}{name}" for name in builtin_names())


def _json(problem: ContractError, level: str) -> dict[str, str]:
    return {
        "level": level,
        "code": problem.code,
        "what": problem.what,
        "where": problem.where,
        "remedy": problem.remedy,
    }
