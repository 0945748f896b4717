"""`weighbridge verify`: check subjects against contracts, seal the evidence, show which statuses would move."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from weighbridge.binding import Bound
from weighbridge.cli.options import as_json, debug, in_github_actions, pairs, progress, tell
from weighbridge.contract.load import written_in
from weighbridge.errors import UsageError
from weighbridge.evidence.disk import disk_error, make_folders, replace_file
from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.judging import DEFAULT
from weighbridge.ledger.record import Move
from weighbridge.limits import nearest
from weighbridge.model import Outcome
from weighbridge.printable import printable
from weighbridge.report import INDENT, STATUS_WORDS, block, heading, run_told
from weighbridge.report.formats import FORMS, rendered
from weighbridge.report.rows import Report, Suite, report_of
from weighbridge.runner import Evaluation
from weighbridge.verification import Asked, Result, verify

STORE = ".weighbridge"
RECORDED = "evidence"
LEDGER = "ledger"
STDOUT = Path("-")
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
@click.option(
    "--report", "reports", multiple=True, metavar="FORM:FILE",
    help=f"Write a report: {', '.join(FORMS)}; - prints it. Repeatable.",
)  # fmt: skip
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
    files = _reports(reports, as_json=as_json)
    with progress() as show:
        results = verify(asked, show)
    findings = [finding for result in results for finding in result.evaluation.findings]
    code = exit_code(findings, asked.expect_blocked)
    if code is ExitCode.PASSED and any(not result.evaluation.contract.gates for result in results):
        code = ExitCode.NOTHING_SHOWN  # a contract without a gate has shown nothing, whatever passed beside it
    report = report_of(results, code, asked.expect_blocked)
    if as_json:
        _write(STDOUT, rendered("json", report))
    else:
        tell(told(results, report, asked), err=STDOUT in files)
    if in_github_actions():
        from weighbridge.report import github

        if files.get(STDOUT) != "github":  # else they are printed anyway
            tell(rendered("github", report).splitlines(), err=as_json or STDOUT in files, whole=True)
        github.summarise(report)
    for path, form in files.items():
        _write(path, rendered(form, report))
    sys.exit(code)


def _asked_for(context: click.Context) -> Asked:
    given = context.params
    record: bool = given["record"]
    evidence: Path | None = given["evidence"]
    contracts = given["contracts"] or written_in()
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


def _reports(texts: Sequence[str], *, as_json: bool) -> dict[Path, str]:
    """Return the form of each file, of which no two are one; the folders are made now, before hours of measuring."""
    files: dict[Path, str] = {}
    for text in texts:
        form, colon, name = text.partition(":")
        path = Path(name)
        if form not in FORMS or not colon or not name:
            what = f"{text!r} names no report{nearest(form, FORMS)}"
            raise UsageError(
                "report-form", what, remedy=f"write one of {', '.join(FORMS)}, then :FILE, or :- to print it"
            )
        if path in files or (as_json and path == STDOUT):
            raise UsageError(
                "report-form", f"two reports would be written into {name}", remedy="give each its own file"
            )
        files[path] = form
    for path in files:
        try:
            make_folders(path.parent)
        except OSError as problem:
            raise disk_error(problem, "the folder of the report", path.parent) from None
    return files


def _write(path: Path, text: str) -> None:
    if path == STDOUT:
        tell(text.rstrip("\n").split("\n"), whole=True)
        return
    try:
        replace_file(path, text.encode(errors="backslashreplace"))
    except OSError as problem:
        raise disk_error(problem, "the report", path) from None


# --- Telling ----------------------------------------------------------------------------------------------------------


def told(results: Sequence[Result], report: Report, asked: Asked) -> Iterator[str]:
    """Yield the lines of every result, the tally, and where the evidence is."""
    for result, suite in zip(results, report.suites, strict=True):
        yield from _told_one(result, suite)
    yield report.tally
    for result in results:
        yield printable(f"evidence: {result.bundle.path}")
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


def _told_one(result: Result, suite: Suite) -> Iterator[str]:
    contract, evaluation = result.loaded.contract, result.evaluation
    yield heading(contract, [_subject(item, evaluation) for item in evaluation.bound])
    yield from (str(warning) for warning in result.loaded.warnings)
    if not contract.gates:
        yield "no gate is declared: this contract shows nothing"
    for item in evaluation.bound:
        yield from run_told(evaluation.measured.get(f"facts.{item.subject}.{item.instance}"))
    refused: set[tuple[str, ...]] = set()  # a subject that cannot be read is told once, not once a gate
    for row in suite.rows:
        first, *rest = block(row)
        said = tuple(rest[:-1]) if row.outcome is Outcome.ERROR else ()
        yield from (first, f"{INDENT}as above") if said in refused else (first, *rest)
        refused |= {said} if said else set()
    yield ""


def _subject(item: Bound, evaluation: Evaluation) -> str:
    instance = "" if item.instance == DEFAULT else f"@{item.instance}"
    origin = evaluation.origins.get((item.subject, item.instance))
    return f"{item.subject}{instance}={item.target}" + (f" ({origin})" if origin else "")
