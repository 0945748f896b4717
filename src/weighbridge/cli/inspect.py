"""`weighbridge inspect`: show what one file contains; judges nothing, writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping

import click

from weighbridge.cards.words import fill
from weighbridge.cli.options import as_json, print_json, progress, tell, verb
from weighbridge.core import ExitCode, Fields, Finding, Json, Outcome, Severity, SubjectKind, printable
from weighbridge.evaluation.inspection import CheckpointReport, Inspection, first_values, inspect
from weighbridge.evaluation.runner import Evaluation
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import FindingText, capped, finding_text, verdict_lines
from weighbridge.report.machine import finding_json

EXAMPLES = ("model.gguf", "runs/a", "model.gguf --values 8 'blk.0.*'")
ALL = "List every tensor, with mean, spread, least and largest value, and every problem."
VALUES = "Show the first N values of the tensors whose names match, decoded, and nothing else."
STRICT = "Exit 1 where something looks wrong, 3 where nothing could be looked at."


@verb("inspect", "Show what a checkpoint or run log contains.", *EXAMPLES)
@click.argument("file")
@click.option("--all", "everything", is_flag=True, help=ALL)
@click.option("--headers", is_flag=True, help="Read only the headers of a checkpoint, not its values.")
@click.option("--values", type=(click.IntRange(1, 10_000), str), metavar="N GLOB", help=VALUES)
@click.option("--strict", is_flag=True, help=STRICT)
@as_json
@click.pass_context
def command(
    context: click.Context, file: str, *, everything: bool, headers: bool, values: tuple[int, str] | None,
    strict: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the tensors of a checkpoint FILE, or the columns of a run log FILE.

    For a checkpoint, also show what looks wrong without its source: stored dtypes that the bits contradict, NaN,
    zeros in place of values, files that do not belong together. For a run log, judge what holds of every training.

    Exit 0: read; 1 and 3: with --strict; 4: unreadable.
    """
    if values is not None:
        decoded = first_values(file, *values)
        if as_json:
            print_json({"file": file, "values": decoded})
        for name, row in decoded.items() if not as_json else ():
            first = row["values"]
            shown = ", ".join(map(str, first)) or "no value" if isinstance(first, list) else "not decoded"
            tell([fill("{name:<40} {dtype:<8} [{shape}]  {shown}", {**row, "name": name, "shown": shown})])
        return
    with progress() as show:
        found = inspect(file, verdict_lines, headers=headers, moments=everything, progress=show)
    kind, report, table = found.kind, found.report, found.table
    if as_json:
        document: dict[str, Json] = {"file": file, "kind": kind, "facts": found.facts, "table": table}
        if report:
            document |= {"findings": report.findings, "labels": report.labels, "health": report.health}
        if found.judged:
            document["judged"] = [finding_json(one, _said(found.judged, one)) for one in found.judged.findings]
        print_json(document)
    else:
        _show(found, everything=everything)
    if strict and (code := _strict(found)) is not ExitCode.PASSED:
        context.exit(code)


def _show(found: Inspection, *, everything: bool) -> None:
    kind, report, table, file = found.kind, found.report, found.table, found.target
    tell([click.style(printable(f"{file}: {kind}"), bold=True)])
    for name, fact in found.facts.items():
        said = str(fact)
        if isinstance(fact, Mapping):
            contradicted = f", contradicted by {fact['contradicted_by']}" if fact.get("contradicted_by") else ""
            said = fill("{value}", {"value": fact.get("value")}) + f"  ({fact.get('basis')}{contradicted})"
        tell([f"  {name:<18} {said}"])
    if report:
        tell(_looked_at(report, everything=everything))
    lines = list(_lines(kind, table))
    tell(f"  {line}" for line in (lines if everything else capped(lines, 20)))
    if found.judged:
        contract = "training-run" if "pid" in found.facts else "training-log"
        again = f"weighbridge verify builtin:{contract} --subject run={shlex.quote(file)}"
        tell(_judged(found.judged, again, everything=everything))


def _strict(found: Inspection) -> ExitCode:
    outcomes = {one.verdict.outcome for one in found.judged.findings} if found.judged else set[Outcome]()
    if Outcome.FAIL in outcomes or (found.report and found.report.findings):
        return ExitCode.FAILED
    looked = Outcome.PASS in outcomes or (found.report is not None and found.report.tensors)
    return ExitCode.PASSED if looked else ExitCode.BLOCKED


def _said(judged: Evaluation, one: Finding) -> FindingText:
    return finding_text(one, judged.measured)


def _placed(one: Finding, judged: Evaluation) -> str:
    return f"{_rank(one)}{one.kind}: {_said(judged, one).lines[0]}"


def _rank(one: Finding) -> str:
    return f"[{one.instance}] " if one.instance != DEFAULT else ""


def _judged(judged: Evaluation, again: str, *, everything: bool) -> Iterator[str]:
    """Yield what could not be told and what looks wrong, the worst first, and what to type next."""
    by = {outcome: [one for one in judged.findings if one.verdict.outcome is outcome] for outcome in Outcome}
    absent = by[Outcome.NOT_APPLICABLE]
    yield f"  gates              {len(by[Outcome.PASS])} passed" + (
        f", {len(absent)} need what this log has not (--all lists them)" if absent else ""
    )
    if everything:
        yield from (f"    {one.kind:<22} {', '.join(_said(judged, one).lines)}" for one in absent)
    if unknown := list(dict.fromkeys(_placed(one, judged) for one in (*by[Outcome.BLOCKED], *by[Outcome.ERROR]))):
        yield f"  could not be told  {len(unknown)}"
        yield from (f"    {line}" for line in unknown)
    wrong: dict[str, FindingText] = {}  # two gates may find one thing
    for one in sorted(by[Outcome.FAIL], key=lambda one: one.severity is Severity.ADVISORY):
        said = _said(judged, one)
        lines = said.lines if everything else capped(said.lines, 3)
        wrong.setdefault("\n".join(f"    {_rank(one)}{line}" for line in lines), said)
    yield click.style(f"  looks wrong        {len(wrong) or 'nothing'}", fg="red" if wrong else None)
    for found, said in wrong.items():
        yield from found.splitlines()
        yield from (click.style(f"      {hint}", dim=True) for hint in said.hints)
    yield f"  next               {printable(again)}"


def _looked_at(report: CheckpointReport, *, everything: bool) -> Iterator[str]:
    if not report.tensors:
        yield click.style("  looks wrong        there is no tensor, so nothing was looked at", fg="red")
        return
    for how, many in report.packed.items():
        yield f"  packed weights     {many} by {printable(how)}"
    if report.labels["decided"] or not report.packed:  # codes and scales are nothing that this could be told of
        says = "  stored dtypes      {vote}: {decided} of {tensors} tensors decided; undecided: {why}"
        yield fill(says, report.labels)
    yield fill("  precision          {precision}", report.labels)
    wrong = [finding["says"] for finding in report.findings]
    yield click.style(f"  looks wrong        {len(wrong) or 'nothing'}", fg="red" if wrong else None)
    yield from (f"    {line}" for line in (wrong if everything else capped(wrong)))


def _lines(kind: SubjectKind, table: Mapping[str, Fields]) -> Iterator[str]:
    if kind is SubjectKind.RUN:
        yield f"{'column':<18} {'samples':>8} {'missing':>8} {'min':>14} {'max':>14}  basis"
    for name, row in table.items():
        shown = {**row, "name": name}
        if kind is SubjectKind.RUN:
            yield fill("{name:<18} {samples:>8} {missing:>8} {min:>14.6g} {max:>14.6g}  {basis}", shown)
        else:
            more = "  {used_bits} of {mantissa_bits} bits used" if shown.get("used_bits") is not None else ""
            label = "  stored dtype {label}" if shown.get("label", "undecided") != "undecided" else ""
            if shown.get("mean") is not None:
                label += "  mean {mean:.4g}, std {std:.4g}, {min:.4g} to {max:.4g}"
            yield fill("{name:<40} {dtype:<8} [{shape}]  {bytes} bytes" + more + label, shown)
