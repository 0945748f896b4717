"""`weighbridge watch`: start a command under a witness that judges its run at every row, and verify it at the end."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from weighbridge.cli.contracts import contracts_named
from weighbridge.cli.options import PATH, Texts, repeated, settings, tell, verb
from weighbridge.cli.verify import RECORDED, lines_of
from weighbridge.contract.resolved import digests
from weighbridge.core import ExitCode, UsageError, lexists, printable
from weighbridge.core.project import local
from weighbridge.evaluation.verification import VerifyRequest, code_of
from weighbridge.report import verdict_lines
from weighbridge.report.rows import report_of

EXAMPLES = ("runs/a --contract c.yaml -- torchrun train.py", "runs/a --release 'lr fixed'")
GRACE = "How long what is asked to end may take before it is killed."
STOP_AT = "Stop at the first required gate that fails, or only write it down."


@verb("watch", "Start a training run under a witness.", *EXAMPLES)
@click.argument("run", type=PATH)
@click.argument("words", metavar="-- CMD...", nargs=-1, type=click.UNPROCESSED)
@repeated("--contract", "contracts", "CONTRACT", "A file or builtin:NAME.  [default: builtin:training-run]")
@repeated("--subject", "subjects", "NAME=TARGET", "What else a contract looks at, as in verify.")
@repeated("--param", "params", "NAME=VALUE", "Override a parameter.")
@click.option("--grace", type=click.FloatRange(0), default=30.0, show_default=True, metavar="SECONDS", help=GRACE)
@click.option("--stop-at", type=click.Choice(("first", "never")), default="first", show_default=True, help=STOP_AT)
@click.option("--resume", is_flag=True, help="Add a segment to the book of a run that is there.")
@click.option("--release", "reason", metavar="REASON", help="Let a run that was stopped go on; starts nothing.")
@click.option("--evidence", type=PATH, help="The folder for bundles.  [default: the project's .weighbridge]")
def command(run: Path, words: Texts, *, reason: str | None, **asked: Any) -> None:
    """Start CMD, which writes RUN, witness all that comes of it, and stop it at the first required gate that fails.

    Example: weighbridge watch runs/a -- python train.py

    RUN is the run directory, or the one file, that CMD writes. The book of the witness is RUN.watch/.

    Exit: as verify where CMD ended with 0; 1 where a gate stopped it; else CMD's own code, 128+N by signal N; 127: CMD
    cannot be started; 2: usage, or RUN exists; 4: the book cannot be begun. `verify --record` moves statuses.
    """
    from weighbridge.watch.launch import demand_linux

    demand_linux()
    run = run.resolve() if run.name in ("", "..") else Path(os.path.normpath(run))  # its book needs a name
    if reason is not None:
        from weighbridge.watch.book_file import release

        if words or not reason.strip():
            what = "--release starts nothing" if words else "--release needs a reason"
            raise UsageError("release-form", what, remedy=f"weighbridge watch {run} --release REASON")
        release(run, reason)
        tell([printable(f"released: weighbridge watch {run} --resume -- CMD goes on")])
        return
    if not words:
        raise UsageError("no-command", "no command was given", remedy=f"weighbridge watch {run} -- CMD…")
    request = VerifyRequest(
        contracts=tuple(contracts_named(asked["contracts"])),
        subjects=asked["subjects"],
        params=settings(asked["params"], "param"),
        evidence=asked["evidence"] or local(),
        ledger=Path(RECORDED) / "ledger",
    )
    sys.exit(_watched(run, words, request, asked) or ExitCode.PASSED)


def _watched(run: Path, words: Texts, request: VerifyRequest, asked: dict[str, Any]) -> int:
    """Witness the command, verify what it wrote, print that, and return the exit code."""
    from weighbridge.watch.book_file import demand_contracts
    from weighbridge.watch.judges import Judges
    from weighbridge.watch.launch import go_on_guarded
    from weighbridge.watch.witness import Asked, Witness

    judges = Judges(request, run, verdict_lines)
    contracts = {one.contract.id: digests(one.contract).whole for one in judges.loaded}
    if asked["resume"] and not request.contracts:
        demand_contracts(run, contracts)
    _rehearse(request)
    go_on_guarded()
    how = {"grace_s": asked["grace"], "stops": asked["stop_at"] == "first", "resume": asked["resume"]}
    wanted = Asked(run=run, command=words, contracts=contracts, **how)
    if wanted.resume:
        judges.begin_again()
    witness = Witness(wanted, judges, _say, live=sys.stderr.isatty())
    ended = witness.run()
    if ended.unsealed:
        _say(f"{run} is reported, not witnessed: {ended.unsealed}")
    if not ended.started:
        return ended.exit
    code = ExitCode.PASSED
    if not ended.asked and not lexists(run):
        seen = ", ".join(witness.mapped.write_roots()[:5]) or "none (a look every 10 s)"
        tell([printable(f"the command wrote no {run}: nothing is verified; folders that it was seen to write: {seen}")])
        code = ExitCode.ERROR
    elif not ended.asked and (request.contracts or not run.is_file()):
        results = judges.finish()
        code = code_of(results, request.excuses)
        tell(lines_of(results, report_of(results, code, request.excuses), request))
    tell(map(printable, _last(run, ended, witness.stop, witness.end)))
    return ended.exit or int(code)


def _last(run: Path, ended: Any, stop: Any, end: Any) -> Iterator[str]:
    """Yield how the command ended where that is the exit code, and what keeps a stopped run from going on."""
    from weighbridge.watch.book_file import stop_of

    how = "runs on" if end is None else f"ended with code {end.code}"
    how = f"was ended by signal {end.signal}" if end and end.signal else how
    if ended.asked:
        yield f"interrupted: the command {how}; {run} is not verified, and the exit code is {ended.exit}"
    elif ended.exit and not stop:
        yield f"the command {how}: the exit code here is {ended.exit}"
    seen = [(name, run if run.is_file() else run / name, was.size) for name, was in end.files.items()] if end else []
    if stop and (grown := [name for name, at, size in seen if at.is_file() and at.stat().st_size != size]):
        yield f"{run} is written by others, too: {grown[0]} grew after the last process of the command had ended"
    if stop and (lies := stop_of(run)):
        at = "" if stop.step is None else f" at step {stop.step}"
        begins = f"{stop.gate} failed{at}: {lies} keeps {run} from going on"
        yield f"{begins} until you let it, by `weighbridge watch {run} --release REASON`"


def _rehearse(request: VerifyRequest) -> None:
    """Judge a run that breaks: what judges load at the first row and at the first FAIL is loaded before a real one."""
    from weighbridge.watch.judges import Judges

    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(Exception):
        rows = [f'{{"step": {step}, "loss": {"NaN" if step > 15 else 4 - step / 9}}}\n' for step in range(20)]
        (Path(folder) / "steps.jsonl").write_text("".join(rows), encoding="ascii")
        Judges(request, Path(folder), verdict_lines).look(0.0)


def _say(text: str) -> None:
    tell([printable(text)], err=True)
