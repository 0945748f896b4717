"""`weighbridge watch`: start a command under a witness that judges its run at every row, and verify it at the end."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weighbridge.cli.contracts import contracts_named
from weighbridge.cli.options import PATH, Texts, debug, progress, repeated, settings, tell, verb
from weighbridge.cli.verify import RECORDED, lines_of
from weighbridge.contract.resolved import digests as contract_digests
from weighbridge.core import SubjectKind, UsageError, printable
from weighbridge.core.project import local
from weighbridge.evaluation.verification import VerifyRequest, code_of, load_all, verify
from weighbridge.report.rows import report_of
from weighbridge.watch.witness import NOT_FOUND, Asked, Unjudged, Witness, Witnessed

EXAMPLES = ("runs/a -- python train.py", "runs/a --contract c.yaml -- torchrun train.py", "runs/a --release 'lr fixed'")
DEFAULT_CONTRACT = "builtin:training-run"
GRACE = "How long what is asked to end may take before it is killed."
STOP_AT = "Stop at the first required gate that fails, or only write it down."
EVIDENCE = "The folder for bundles.  [default: the project's .weighbridge]"


@verb("watch", "Start a training run under a witness.", *EXAMPLES)
@click.argument("run", type=PATH)
@click.argument("words", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@repeated("--contract", "contracts", "CONTRACT", f"A file or builtin:NAME.  [default: {DEFAULT_CONTRACT}]")
@repeated("--subject", "subjects", "NAME=TARGET", "What else a contract looks at, as in verify.")
@repeated("--param", "params", "NAME=VALUE", "Override a parameter.")
@click.option(
    "--grace", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS", help="Until KILL."
)
@click.option(
    "--stop-at", type=click.Choice(("first", "never")), default="first", show_default=True, help="Which FAIL."
)
@click.option("--resume", is_flag=True, help="Add a segment to the book of a run that is there.")
@click.option("--release", "reason", metavar="REASON", help="Let a run that was stopped go on; starts nothing.")
@click.option("--evidence", type=PATH, help=EVIDENCE)
@debug
def command(run: Path, words: Texts, *, reason: str | None, **asked: Any) -> None:
    """Start CMD, which writes RUN, witness all that comes of it, and stop it at the first required gate that fails.

    RUN is the run directory, or the one file, that CMD writes. The book of the witness is RUN.watch/.

    Exit: as verify where CMD ended with 0; 1 where a gate stopped it; else CMD's own code, 128+N by signal N; 127: CMD
    cannot be started; 2: usage, or RUN exists; 4: the book cannot be begun. `verify --record` moves statuses.
    """
    from weighbridge.watch.launch import demand_linux, go_on_guarded

    demand_linux()
    run = Path(os.path.normpath(run))
    if reason is not None:
        _release(run, reason, words)
        return
    if not words:
        raise UsageError("no-command", "no command was given", remedy=f"weighbridge watch {run} -- CMD…")
    request = _request(run, asked)
    loaded = load_all(request.contracts, request.params)
    if shutil.which(words[0]) is None:
        tell([printable(f"{words[0]}: not found; nothing was started, and there is no book")], err=True)
        sys.exit(NOT_FOUND)
    go_on_guarded()
    wanted = Asked(
        run=run,
        command=words,
        contracts={one.contract.id: contract_digests(one.contract).whole for one in loaded},
        grace_s=asked["grace"],
        stops=asked["stop_at"] == "first",
        resume=asked["resume"],
    )
    ended = Witness(wanted, Unjudged(), lambda text: tell([printable(text)], err=True)).run()
    if ended.unsealed:
        tell([printable(f"{run} is reported, not witnessed: {ended.unsealed}")], err=True)
    if ended.asked or not ended.started:
        sys.exit(ended.exit)
    sys.exit(_verified(request, ended, run, named=bool(asked["contracts"])))


def _release(run: Path, reason: str, words: Texts) -> None:
    from weighbridge.watch.book_file import release

    if words or not reason.strip():
        what = "--release starts nothing" if words else "--release needs a reason"
        raise UsageError("release", what, remedy=f"weighbridge watch {run} --release REASON")
    release(run, reason)
    tell([printable(f"released: weighbridge watch {run} --resume -- CMD goes on")])


def _request(run: Path, asked: Mapping[str, Any]) -> VerifyRequest:
    """Return what to verify at the end: of each contract, RUN stands for the run or trace that nothing else does."""
    names = tuple(contracts_named(asked["contracts"])) or (DEFAULT_CONTRACT,)
    params = settings(asked["params"], "param")
    taken = {text.partition("=")[0].partition("@")[0] for text in asked["subjects"]}
    bound: dict[str, None] = {}
    for one in load_all(names, params):
        of_gates = {name for gate in one.contract.gates for name in gate.subjects.values()}
        written = ((name, of) for name, of in one.contract.subjects.items() if name in of_gates - taken and not of.path)
        mine = [name for name, of in written if of.kind in (SubjectKind.RUN, SubjectKind.TRACE)]
        if not mine:
            what = "no gate looks at a run or a trace that is not bound otherwise"
            raise UsageError("no-run", what, where=one.contract.id, remedy="name a contract with gates over runs")
        bound[f"{mine[0]}={run}"] = None
    return VerifyRequest(
        contracts=names,
        subjects=(*bound, *asked["subjects"]),
        params=params,
        evidence=asked["evidence"] or local(),
        ledger=Path(RECORDED) / "ledger",
        debug=asked["debug"],
    )


def _verified(request: VerifyRequest, ended: Witnessed, run: Path, *, named: bool) -> int:
    """Verify the run as `verify` does, print it, and return the exit code."""
    if run.is_file() and not named:
        tell([printable(f"{run}: witnessed, and judged by no contract")])
        return ended.exit
    with progress() as show:
        results = verify(request, show)
    code = code_of(results, request.excuses)
    tell(lines_of(results, report_of(results, code, request.excuses), request))
    return int(code) if ended.exit == 0 else ended.exit
