"""`weighbridge verify`: check subjects against contracts, seal the evidence, record which statuses move."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weighbridge.binding import Bound
from weighbridge.cli.completion import contracts, gates
from weighbridge.cli.options import as_json, debug, pairs, print_json, progress, tell
from weighbridge.contract.load import written_in
from weighbridge.errors import UsageError
from weighbridge.evidence.disk import disk_error
from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.judging import DEFAULT
from weighbridge.model import Finding, Outcome
from weighbridge.printable import printable
from weighbridge.project import LOCAL, local
from weighbridge.report import INDENT, STATUS_WORDS, block, heading, run_told, tally
from weighbridge.runner import Evaluation
from weighbridge.storage.local_files import is_folder
from weighbridge.verification import Asked, Result, verify

if TYPE_CHECKING:
    from weighbridge.ledger.record import Move

RECORDED = "evidence"
LEDGER = "ledger"
FORMATS = ("junit",)
NAMED = {"attach": "attached", "input": "inputs"}  # options whose values are called otherwise
QUIET = ("already-", "verdict-")  # refusals that leave a person nothing to do
EXAMPLE = "\b\nExample: weighbridge verify builtin:training-run --subject run=runs/a"


@click.command("verify", short_help="Check subjects against contracts; write a bundle.", epilog=EXAMPLE)
@click.argument("contracts", nargs=-1, shell_complete=contracts)
@click.option(
    "--subject", "subjects", multiple=True, metavar="NAME[@INSTANCE]=TARGET",
    help="The path, URL, command or factory to check. Repeatable.",
)  # fmt: skip
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Override a parameter. No status changes then."
)
@click.option(
    "--gate", "gates", multiple=True, metavar="GLOB", shell_complete=gates,
    help="Check only gates whose id matches. Repeatable.",
)  # fmt: skip
@click.option(
    "--expect-blocked", multiple=True, metavar="GATE-ID", shell_complete=gates,
    help="Accept that this host lacks what the gate requires.",
)  # fmt: skip
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    help=f"The folder for bundles.  [default: the project's {LOCAL}, or {RECORDED} with --record]",
)
@click.option("--no-evidence", is_flag=True, help="Judge only: keep no bundle.")
@click.option("--record", is_flag=True, help="Append status changes to the ledger.")
@click.option(
    "--attach", "attached", multiple=True, metavar="ROLE=FILE",
    help="Seal the text of a log, CSV or test report into the bundle, redacted. Repeatable.",
)  # fmt: skip
@click.option(
    "--input", "inputs", multiple=True, metavar="ROLE=FILE",
    help="Seal the digest of a corpus, tokenizer or configuration. Repeatable.",
)  # fmt: skip
@click.option("--report", "reports", multiple=True, metavar="junit:FILE", help="Write a JUnit report.")
@as_json
@debug
@click.pass_context
def command(context: click.Context, /, reports: tuple[str, ...], *, as_json: bool, **_asked: object) -> None:
    """Check subjects against CONTRACTS, and write what was found into an evidence bundle.

    CONTRACTS are files or builtin:NAME. Default: those in contracts/ and below.

    Exit 0: passed; 1: a required gate failed; 2: invalid contract or usage; 3: a required gate is blocked; 4: error;
    5: nothing was shown.
    """
    asked = _asked_for(context)
    files = [_report_file(report) for report in reports]
    with progress() as show:
        results = verify(asked, show)
    findings = [finding for result in results for finding in result.evaluation.findings]
    code = exit_code(findings, asked.expect_blocked)
    if code is ExitCode.PASSED and any(not result.evaluation.contract.gates for result in results):
        code = ExitCode.NOTHING_SHOWN  # a contract without a gate has shown nothing, whatever passed beside it
    for path in files:
        _write_junit(path, results, asked.expect_blocked)
    if as_json:
        from weighbridge.report.machine import contract_report

        evaluation = [(one.evaluation, str(one.bundle.path) if one.bundle else "") for one in results]
        print_json([contract_report(w.contract, w.findings, w.measured, code, path) for w, path in evaluation])
    else:
        tell(told(results, findings, code))
    sys.exit(code)


def _asked_for(context: click.Context) -> Asked:
    given = context.params
    record: bool = given["record"]
    evidence: Path | None = given["evidence"]
    contracts = given["contracts"] or written_in()
    if not contracts:
        raise UsageError("no-contracts", "no contract was named, and contracts/ holds no .yaml or .yml file")
    if given["no_evidence"]:
        _refuse_to_keep(given)
    return Asked(
        contracts=contracts,
        subjects=given["subjects"],
        params=_params(given["params"]),
        gates=given["gates"],
        expect_blocked=frozenset(given["expect_blocked"]),
        evidence=None if given["no_evidence"] else evidence or (Path(RECORDED) if record else local()),
        ledger=(evidence or Path(RECORDED)) / LEDGER,
        attached=tuple(pairs(given["attached"], "attach")),
        inputs=tuple(pairs(given["inputs"], "input")),
        record=record,
        debug=given["debug"],
    )


def _refuse_to_keep(given: Mapping[str, object]) -> None:
    """Refuse what needs a bundle to stand in, where none is kept."""
    needs = [name for name in ("record", "attach", "input", "evidence") if given[NAMED.get(name, name)]]
    if needs:
        what = f"--{needs[0]} needs the bundle that --no-evidence does not keep"
        raise UsageError("not-kept", what, remedy=f"leave out --no-evidence, or --{needs[0]}")


def _params(texts: Sequence[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError("param-form", f"{text!r} sets nothing", remedy="write --param NAME=VALUE")
        if name in params:
            raise UsageError("param-form", f"the parameter {name!r} is given twice", remedy="keep one of the two")
        params[name] = value
    return params


def _report_file(text: str) -> Path:
    form, colon, path = text.partition(":")
    if form not in FORMATS or not colon or not path:
        remedy = f"write one of {', '.join(FORMATS)}, then :FILE"
        raise UsageError("report-form", f"{text!r} names no report", remedy=remedy)
    if not is_folder(Path(path).parent):
        raise UsageError("report-form", "the folder of the report is not there", where=path, remedy="make it first")
    return Path(path)


# --- Telling ----------------------------------------------------------------------------------------------------------


def told(results: Sequence[Result], findings: Sequence[Finding], code: ExitCode) -> Iterator[str]:
    """Yield the lines of every result, the tally, and where the evidence is."""
    for result in results:
        yield from _told_one(result)
    yield tally(findings, code)
    for result in results:
        yield printable(f"evidence: {result.bundle.path if result.bundle else 'none was kept (--no-evidence)'}")
        yield from _moved(result.moves)


def _moved(moves: Sequence[Move]) -> Iterator[str]:
    """Yield which statuses move, and which do not though there is a verdict, those that do alike in one line."""
    alike: dict[str, list[str]] = {}
    for move in moves:
        if move.before == move.after and (move.code.startswith(QUIET) or move.moved):
            continue
        before, after = (STATUS_WORDS[status] if status else "none" for status in (move.before, move.after))
        moved, change = "moved", f"{before} -> {after}"
        why = f" ({move.says})" if move.code else ""
        if move.before == move.after:
            moved, change = "not moved", f"{move.code}: stays at {after}"
            why = f" ({move.says}{f'; {move.remedy}' if move.remedy else ''})"
        instance = "" if move.place.instance == DEFAULT else f"[{move.place.instance}]"
        alike.setdefault(f"{moved}: {change}{why}", []).append(f"{move.place.gate}{instance}")
    for change, places in alike.items():
        yield printable(f"{change}: {', '.join(places)}")


def _told_one(result: Result) -> Iterator[str]:
    contract, evaluation = result.loaded.contract, result.evaluation
    yield heading(contract, [_subject(item, evaluation) for item in evaluation.bound])
    yield from (str(warning) for warning in result.loaded.warnings)
    if not contract.gates:
        yield "no gate is declared: this contract shows nothing"
    for item in evaluation.bound:
        yield from run_told(evaluation.measured.get(f"facts.{item.subject}.{item.instance}"))
    titles = {gate.id: gate.title for gate in contract.gates}
    refused: set[tuple[str, ...]] = set()  # a subject that cannot be read is told once, not once a gate
    for finding in evaluation.findings:
        at = result.loaded.gate_at(finding.gate)
        first, *rest = block(finding, titles[finding.gate], f"{at.file}:{at.line}", evaluation.measured)
        said = tuple(rest[:-1]) if finding.verdict.outcome is Outcome.ERROR else ()
        yield from (first, f"{INDENT}as above") if said in refused else (first, *rest)
        refused |= {said} if said else set()
    yield ""


def _subject(item: Bound, evaluation: Evaluation) -> str:
    instance = "" if item.instance == DEFAULT else f"@{item.instance}"
    origin = evaluation.origins.get((item.subject, item.instance))
    return f"{item.subject}{instance}={item.target}" + (f" ({origin})" if origin else "")


def _write_junit(path: Path, results: Sequence[Result], expect_blocked: frozenset[str]) -> None:
    from weighbridge.report.machine import junit

    suites = [
        (r.evaluation.contract, str(r.loaded.path), r.evaluation.findings, r.evaluation.measured) for r in results
    ]
    try:
        path.write_bytes(junit(suites, expect_blocked))
    except OSError as problem:
        raise disk_error(problem, "the report", path) from None
