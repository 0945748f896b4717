"""`weighbridge verify`: check subjects against contracts, seal the evidence, record which statuses move."""

import datetime as dt
import shlex
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weighbridge.cli import options
from weighbridge.cli.completion import contracts, gates
from weighbridge.cli.contracts import contracts_named, instead
from weighbridge.cli.options import PATH, Texts, as_json, on_github, repeated, settings, tell, verb
from weighbridge.contract.load import BUILTIN, PROJECT, WAIVERS, LoadedContract, written_in
from weighbridge.core import ExitCode, UsageError, grouped, is_folder, nearest, printable
from weighbridge.core.project import LOCAL, local
from weighbridge.evaluation.verification import ContractResult, UnsealedError, VerifyRequest, code_of, verify
from weighbridge.evidence.disk import disk_errors, make_folders, replace_file
from weighbridge.judging.requests import DEFAULT, all_requests
from weighbridge.lanes.waivers import waivers_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorPair
from weighbridge.report import INDENT, Row, bound_as, heading, run_told, status_word
from weighbridge.report.formats import BROUGHT, FORMS, data_of, rendered
from weighbridge.report.rows import Report, report_of
from weighbridge.report.terminal import blocks, signed, summary

if TYPE_CHECKING:
    from weighbridge.evaluation.runner import Evaluation
    from weighbridge.ledger.record import Move

RECORDED = "evidence"
STDOUT = Path("-")
QUIET = ("already-", "verdict-")  # refusals that leave a person nothing to do
OVERRIDE = "Override a parameter. No status changes then; a line under params: of a contract is for good."
LACKING = "Accept that this host lacks what the gate requires."
EXEMPT = f"Dated exemptions for a FAIL or a BLOCKED.  [default: {WAIVERS}, where there is one]"
STORE = f"The folder for bundles.  [default: the project's {LOCAL}, or {RECORDED} with --record]"
SEALED = "Seal the text of a log, CSV or test report into the bundle, redacted."


@verb("verify", "Check subjects against contracts; write a bundle.")
@click.argument("contracts", nargs=-1, shell_complete=contracts)
@repeated("--subject", "subjects", "NAME[@INSTANCE]=TARGET", "The path, URL, command or factory to check.")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help=OVERRIDE)
@repeated("--gate", "gates", "GLOB", "Check only gates whose id matches.", shell_complete=gates)
@click.option("--expect-blocked", multiple=True, metavar="GATE-ID", shell_complete=gates, help=LACKING)
@click.option("--waivers", type=PATH, metavar="FILE", help=EXEMPT)
@click.option("--lane", metavar="NAME", default="", help=f"Measure the gates of this lane of {PROJECT}.")
@click.option("--evidence", type=PATH, help=STORE)
@click.option("--no-evidence", is_flag=True, help="Judge only: keep no bundle.")
@click.option("--record", is_flag=True, help="Append status changes to the ledger.")
@repeated("--attach", "attach", "ROLE=FILE", SEALED)
@repeated("--input", "input", "ROLE=FILE", "Seal the digest of a corpus, tokenizer or configuration.")
@repeated("--report", "reports", "FORM:FILE", f"Write a report: {', '.join(FORMS)}; - prints it.")
@click.option("-v", "--verbose", is_flag=True, help="Show every finding whole, with its trials.")
@as_json
def command(reports: Texts, *, as_json: bool, verbose: bool, **given: Any) -> None:
    """Check subjects against CONTRACTS, and write what was found into an evidence bundle.

    Example: weighbridge verify builtin:training-run --subject run=runs/a

    CONTRACTS are files or builtin:NAME. Default: those in contracts/ and below.

    Exit 0: passed; 1: a required gate failed; 2: invalid contract or usage; 3: a required gate is blocked; 4: error;
    5: nothing was shown.
    """
    asked = _asked_for(given)
    files = _reports(reports, as_json=as_json)
    unsealed = None
    with options.progress() as show:
        try:
            results = verify(asked, show)
        except UnsealedError as error:
            results, unsealed = error.results, error
    code = ExitCode.ERROR if unsealed else code_of(results, asked.excuses)
    report = report_of(results, code, asked.excuses)
    judged = {(suite.contract, row.finding.gate, row.finding.instance): row.outcome for suite, row in report.rows}
    tell((line for remark in asked.waivers.remarks(judged) for line in str(remark).splitlines()), err=True)
    if as_json:
        _write(STDOUT, data_of("json", report))
    else:
        columns = options.columns_of(sys.stderr if STDOUT in files else sys.stdout)
        lines = lines_of(results, report, asked, everything=verbose, columns=columns)
        tell(map(signed, lines) if columns else lines, err=STDOUT in files)
        if kept := [str(one.bundle.path) for one in results if one.bundle and options.columns_of(sys.stdout)]:
            tell([printable(f"to look at it: weighbridge report {shlex.join(kept)} -o report.html")], whole=True)
    if on_github():
        from weighbridge.report import github

        if files.get(STDOUT) != "github":  # else they are printed anyway
            tell(rendered("github", report).splitlines(), err=as_json or STDOUT in files, whole=True)
        github.summarise(report)
    for path, form in files.items():
        _write(path, data_of(form, report))
    if unsealed:
        raise unsealed
    sys.exit(code)


def _asked_for(given: Mapping[str, Any]) -> VerifyRequest:
    record, evidence, lane, project = given["record"], given["evidence"], given["lane"], None
    if lane:
        from weighbridge.lanes.lanes import load_project, refuse_contracts

        refuse_contracts(lane, given["contracts"])
        project = load_project()
    contracts = tuple(contracts_named(given["contracts"])) or (project.names(lane) if project else written_in())
    if not contracts:
        raise UsageError("no-contracts", "no contract was named, and contracts/ holds none", remedy=instead("verify"))
    needs = [name for name in ("record", "attach", "input", "evidence") if given[name]]
    if given["no_evidence"] and needs:
        what = f"--{needs[0]} needs the bundle that --no-evidence does not keep"
        raise UsageError("not-kept", what, remedy=f"leave out --no-evidence, or --{needs[0]}")
    return VerifyRequest(
        contracts=contracts,
        subjects=given["subjects"],
        params=settings(given["params"], "param"),
        gates=given["gates"],
        expect_blocked=frozenset(given["expect_blocked"]),
        evidence=None if given["no_evidence"] else evidence or (Path(RECORDED) if record else local()),
        ledger=(evidence or Path(RECORDED)) / "ledger",
        attached=tuple(options.pairs(given["attach"], "attach")),
        inputs=tuple(options.pairs(given["input"], "input")),
        record=record,
        waivers=waivers_of(given["waivers"], dt.datetime.now(dt.UTC)),
        lane=lane,
        project=project,
    )


def _reports(texts: Sequence[str], *, as_json: bool) -> dict[Path, str]:
    """Return the form of each file, of which no two are one; each can be written: asked before hours of measuring."""
    files: dict[Path, str] = {}
    for text in texts:
        form, colon, name = text.partition(":")
        path = Path(name)
        if not colon or not name or not (form in FORMS or form in BROUGHT):
            forms = (*FORMS, *BROUGHT)
            what = f"{text!r} names no {'file' if form in forms else 'report' + nearest(form, forms)}"
            remedy = f"write {form if form in forms else 'one of ' + ', '.join(forms)}, then :FILE, or :- to print it"
            raise UsageError("report-form", what, remedy=remedy)
        if is_folder(path):
            raise UsageError("report-form", f"{name} is a folder", remedy="name a file in it")
        if path in files or (as_json and path == STDOUT):
            what = f"two reports would be written into {name}"
            raise UsageError("report-form", what, remedy="give each its own file")
        files[path] = form
    for path in files.keys() - {STDOUT}:
        with disk_errors("the report", path):
            make_folders(path.parent)
            tempfile.TemporaryFile(dir=path.parent).close()
    return files


def _write(path: Path, data: bytes) -> None:
    if path == STDOUT:
        tell(data.decode(errors="replace").rstrip("\n").split("\n"), whole=True)
        return
    with disk_errors("the report", path):
        replace_file(path, data)


def lines_of(results: Sequence[ContractResult], report: Report, asked: VerifyRequest, **shown: Any) -> Iterator[str]:
    """Yield the lines of every result, where the evidence is, and last the table of what did not pass and the tally."""
    for result, suite in zip(results, report.suites, strict=True):
        contract, evaluation = result.loaded.contract, result.evaluation
        named = {one.key: bound_as(one.subject, one.instance, one.target) for one in evaluation.bound}
        origins = ((text, evaluation.origins.get(key)) for key, text in named.items())
        yield heading(contract, [f"{text} ({origin})" if origin else text for text, origin in origins])
        doubts = ((evaluation.origins[key], why) for key, why in evaluation.unwitnessed.items() if why)
        yield from (printable(f"{INDENT}{origin}: {why}") for origin, why in dict.fromkeys(doubts))
        yield from (str(warning) for warning in result.loaded.warnings)
        if not contract.gates:
            yield "no gate is declared: this contract shows nothing"
        if asked.project:
            others = [gate.id for gate in contract.gates if not asked.project.decider(asked.lane, contract.id, gate.id)]
            yield from [f"not of lane {asked.lane}: {', '.join(others)}"] if others else ()
        for item in evaluation.bound:
            yield from run_told(evaluation.measured.get(f"facts.{item.subject}.{item.instance}"))
        yield from blocks(suite.rows, partial(_doubts, result.loaded, evaluation), **shown)
        yield ""
    for result in results:
        if result.bundle or asked.evidence is None:
            yield printable(f"evidence: {result.bundle.path if result.bundle else 'none was kept (--no-evidence)'}")
        if asked.lane and result.bundle:
            from weighbridge.lanes.lane_evidence import paths_read
            from weighbridge.lanes.lanes import uncommitted

            unknown = [path for path, digest in paths_read(result.bundle.environment).items() if not digest]
            yield from (printable(f"no lane will accept it: {path}, {uncommitted(path)}") for path in unknown)
        yield from _moved(result.moves)
    yield from summary([row for _, row in report.rows])
    yield report.tally


def _moved(moves: "Sequence[Move]") -> Iterator[str]:
    """Yield which statuses move, and which do not though there is a verdict, those that do alike in one line."""
    shown = (move for move in moves if move.before != move.after or not (move.code.startswith(QUIET) or move.moved))
    for change, places in grouped(map(_move, shown)).items():
        yield printable(f"{change}: {', '.join(places)}")


def _move(move: "Move") -> tuple[str, str]:
    """Return how a status moves, or why it does not, and whose it is."""
    unnamed = move.place.instance == DEFAULT or move.place.is_of_files
    place = move.place.gate + ("" if unnamed else f"[{move.place.instance}]")
    after = status_word(move.after, reported=move.reported)
    if move.before == move.after:
        remedy = f"; {move.remedy}" if move.remedy else ""
        return f"not moved: {move.code}: stays at {after} ({move.says}{remedy})", place
    before = status_word(move.before, reported=move.was_reported)
    return f"moved: {before} -> {after}" + (f" ({move.says})" if move.code else ""), place


def _doubts(loaded: LoadedContract, evaluation: "Evaluation", row: Row) -> Iterator[str]:
    """Yield what the person may have meant instead: the sides exchanged, or another policy, with the line to change."""
    finding = row.finding
    if finding.kind not in ("value-preservation", "dtype-preservation") or not finding.verdict.offences:
        return
    from weighbridge.evaluation.import_comparison import policy_that_passes
    from weighbridge.report.comparison import exchanged

    gate = loaded.contract.gate(finding.gate)
    if (key := all_requests(gate, finding.instance)[0].key) not in evaluation.measured:
        return  # another lane measured it
    yield from exchanged(finding.verdict.offences, rows_of(evaluation.measured[key], TensorPair))
    policy = policy_that_passes(evaluation, gate, finding.instance, finding.verdict)
    at = loaded.limit_at(finding.gate, "policy") if policy else None
    if at is not None and finding.kind == "value-preservation" and not at.file.startswith(BUILTIN):
        yield printable(f"meant? the tensors pass with `policy: {policy}` in {at.file}:{at.line}")
    elif policy:
        command = f"weighbridge init --for import --param policy={policy}"
        yield f"meant? the tensors pass in the contract that `{command}` writes"
