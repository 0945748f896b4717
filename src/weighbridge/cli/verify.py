"""`weighbridge verify`: check subjects against contracts, seal the evidence, show which statuses would move."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from weighbridge.binding import Bound
from weighbridge.cli.options import as_json, debug, pairs, print_json, progress, tell
from weighbridge.contract.load import PROJECT, WAIVERS, written_in
from weighbridge.errors import UsageError
from weighbridge.evidence.disk import disk_error
from weighbridge.exit_code import Excuses, ExitCode, exit_code
from weighbridge.judging import DEFAULT
from weighbridge.lane_evidence import UNCOMMITTED, paths_read
from weighbridge.lanes import load_project, refuse_contracts
from weighbridge.ledger.record import Move
from weighbridge.model import Finding, Outcome
from weighbridge.printable import printable
from weighbridge.report import INDENT, STATUS_WORDS, block, heading, run_told, tally
from weighbridge.runner import Evaluation
from weighbridge.storage.local_files import is_folder
from weighbridge.verification import Asked, Result, verify
from weighbridge.waivers import waivers_of

STORE = ".weighbridge"
RECORDED = "evidence"
LEDGER = "ledger"
FORMATS = ("junit",)
QUIET = ("already-", "verdict-")  # refusals that leave a person nothing to do
EXAMPLE = "\b\nExample: weighbridge verify builtin:training-run --subject run=runs/a"


@click.command("verify", short_help="Check subjects against contracts; write a bundle.", epilog=EXAMPLE)
@click.argument("contracts", nargs=-1)
@click.option(
    "--subject", "subjects", multiple=True, metavar="NAME[@INSTANCE]=TARGET",
    help="The path, URL, command or factory to check. Repeatable.",
)  # fmt: skip
@click.option(
    "--param", "params", multiple=True, metavar="NAME=VALUE", help="Override a parameter. No status changes then."
)
@click.option("--gate", "gates", multiple=True, metavar="GLOB", help="Check only gates whose id matches. Repeatable.")
@click.option(
    "--expect-blocked", multiple=True, metavar="GATE-ID", help="Accept that this host lacks what the gate requires."
)
@click.option(
    "--waivers", type=click.Path(path_type=Path), metavar="FILE",
    help=f"Dated exemptions for a FAIL or a BLOCKED.  [default: {WAIVERS}, where there is one]",
)  # fmt: skip
@click.option("--lane", metavar="NAME", default="", help=f"Measure the gates of this lane of {PROJECT}.")
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    help=f"The folder for bundles.  [default: {STORE}, or {RECORDED} with --record]",
)
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
    findings = [(result.loaded.contract.id, one) for result in results for one in result.evaluation.findings]
    code = exit_code(findings, asked.excuses)
    judged = {(contract, one.gate, one.instance): one.verdict.outcome for contract, one in findings}
    tell((line for remark in asked.waivers.remarks(judged) for line in str(remark).splitlines()), err=True)
    if code is ExitCode.PASSED and any(not result.evaluation.contract.gates for result in results):
        code = ExitCode.NOTHING_SHOWN  # a contract without a gate has shown nothing, whatever passed beside it
    for path in files:
        _write_junit(path, results, asked.excuses)
    if as_json:
        from weighbridge.report.machine import contract_report

        print_json([contract_report(one, asked.excuses, code) for one in results])
    else:
        tell(told(results, [finding for _, finding in findings], asked, code))
    sys.exit(code)


def _asked_for(context: click.Context) -> Asked:
    given = context.params
    record: bool = given["record"]
    evidence: Path | None = given["evidence"]
    lane: str = given["lane"]
    refuse_contracts(lane, given["contracts"])
    project = load_project() if lane else None
    contracts = given["contracts"] or (project.names(lane) if project else written_in())
    if not contracts:
        raise UsageError("no-contracts", "no contract was named, and contracts/ holds no .yaml or .yml file")
    return Asked(
        contracts=contracts,
        subjects=given["subjects"],
        params=_params(given["params"]),
        gates=given["gates"],
        expect_blocked=frozenset(given["expect_blocked"]),
        evidence=evidence or Path(RECORDED if record else STORE),
        ledger=(evidence or Path(RECORDED)) / LEDGER,
        attached=tuple(pairs(given["attached"], "attach")),
        inputs=tuple(pairs(given["inputs"], "input")),
        record=record,
        debug=given["debug"],
        waivers=waivers_of(given["waivers"], dt.datetime.now(dt.UTC)),
        lane=lane,
        project=project,
    )


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


def told(results: Sequence[Result], findings: Sequence[Finding], asked: Asked, code: ExitCode) -> Iterator[str]:
    """Yield the lines of every result, the tally, and where the evidence is."""
    for result in results:
        yield from _told_one(result, asked)
    excused = sum(bool(asked.excuses.of(r.loaded.contract.id, one)) for r in results for one in r.evaluation.findings)
    yield tally(findings, code, excused)
    for result in results:
        if result.bundle:
            yield printable(f"evidence: {result.bundle.path}")
            unknown = [path for path, digest in paths_read(result.bundle.environment).items() if not digest]
            yield from (printable(f"no lane will accept it: of {path}, {UNCOMMITTED}") for path in unknown)
        yield from _moved(result.moves, recorded=asked.record)


def _moved(moves: Sequence[Move], *, recorded: bool) -> Iterator[str]:
    """Yield which statuses move, and which do not though there is a verdict, those that do alike in one line."""
    alike: dict[str, list[str]] = {}
    for move in moves:
        if move.before == move.after and (move.code.startswith(QUIET) or move.moved):
            continue
        before, after = (STATUS_WORDS[status] if status else "none" for status in (move.before, move.after))
        moved, change = ("moved" if recorded else "would move"), f"{before} -> {after}"
        why = f" ({move.says})" if move.code else ""
        if move.before == move.after:
            moved, change = ("not moved" if recorded else "would not move"), f"{move.code}: stays at {after}"
            why = f" ({move.says}{f'; {move.remedy}' if move.remedy else ''})"
        instance = "" if move.place.instance == DEFAULT else f"[{move.place.instance}]"
        alike.setdefault(f"{moved}: {change}{why}", []).append(f"{move.place.gate}{instance}")
    for change, places in alike.items():
        yield printable(f"{change}: {', '.join(places)}")


def _told_one(result: Result, asked: Asked) -> Iterator[str]:
    contract, evaluation = result.loaded.contract, result.evaluation
    yield heading(contract, [_subject(item, evaluation) for item in evaluation.bound])
    yield from (str(warning) for warning in result.loaded.warnings)
    if not contract.gates:
        yield "no gate is declared: this contract shows nothing"
    others = [gate.id for gate in contract.gates if asked.project and not asked.decider(contract, gate)]
    yield from [f"not of lane {asked.lane}: {', '.join(others)}"] if others else ()
    for item in evaluation.bound:
        yield from run_told(evaluation.measured.get(f"facts.{item.subject}.{item.instance}"))
    titles = {gate.id: gate.title for gate in contract.gates}
    refused: set[tuple[str, ...]] = set()  # a subject that cannot be read is told once, not once a gate
    for finding in evaluation.findings:
        at = result.loaded.gate_at(finding.gate)
        first, *rest = block(finding, titles[finding.gate], f"{at.file}:{at.line}", evaluation.measured)
        said = tuple(rest[:-1]) if finding.verdict.outcome is Outcome.ERROR else ()
        yield from (first, f"{INDENT}as above") if said in refused else (first, *rest)
        besides = (result.elsewhere.get((finding.gate, finding.instance)), asked.excuses.of(contract.id, finding))
        yield from (f"{INDENT}{printable(line)}" for line in besides if line)
        refused |= {said} if said else set()
    yield ""


def _subject(item: Bound, evaluation: Evaluation) -> str:
    instance = "" if item.instance == DEFAULT else f"@{item.instance}"
    origin = evaluation.origins.get((item.subject, item.instance))
    return f"{item.subject}{instance}={item.target}" + (f" ({origin})" if origin else "")


def _write_junit(path: Path, results: Sequence[Result], excuses: Excuses) -> None:
    from weighbridge.report.machine import junit

    suites = [
        (r.evaluation.contract, str(r.loaded.path), r.evaluation.findings, r.evaluation.measured) for r in results
    ]
    try:
        path.write_bytes(junit(suites, excuses))
    except OSError as problem:
        raise disk_error(problem, "the report", path) from None
