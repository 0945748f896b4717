"""`weighbridge inspect`: show what files contain and what looks wrong in them; writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from weighbridge.cards.words import fill
from weighbridge.cli.inspected import lines_of, lines_of_parts, lines_of_two
from weighbridge.cli.options import as_json, print_json, progress, tell, verb
from weighbridge.core import ExitCode, Json, Outcome, UsageError, plain
from weighbridge.evaluation.inspection import Inspection, Part, beside, first_values, inspect, look_at, parts_of, run_in
from weighbridge.judging.requests import looked_at
from weighbridge.report import finding_text, verdict_lines
from weighbridge.report.machine import finding_json

EXAMPLES = ("model.gguf", "out", "runs/a runs/b", "model.gguf --values 8 'blk.0.*'")
ALL = "List every tensor and every problem, with statistics."
VALUES = "Show the first N values of the tensors whose names match, decoded, and nothing else."
STRICT = "Exit 1 where something looks wrong, 3 where nothing could be looked at."


@verb("inspect", "Show what a checkpoint or run log contains.", *EXAMPLES)
@click.argument("files", metavar="FILE [OTHER]", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help=ALL)
@click.option("--headers", is_flag=True, help="Read only the headers of a checkpoint, not its values.")
@click.option("--values", type=(click.IntRange(1, 10_000), str), metavar="N GLOB", help=VALUES)
@click.option("--strict", is_flag=True, help=STRICT)
@as_json
@click.pass_context
def command(
    context: click.Context, files: tuple[str, ...], *, everything: bool, headers: bool,
    values: tuple[int, str] | None, strict: bool, as_json: bool,
) -> None:  # fmt: skip
    """Show the tensors of a checkpoint FILE, the columns of a run log FILE, or each part of a folder of training.

    For a checkpoint, also show what looks wrong without its source: stored dtypes that the bits contradict, NaN,
    zeros in place of values, files that do not belong together. For a run log, judge what holds of every training.
    For two runs, show where they part and which ends worse.

    Exit 0: read; 1 and 3: with --strict; 4: unreadable.
    """
    file, *others = files
    if values is not None and not others:
        _show_values(file, values, as_json=as_json)
        return
    if len(files) > 2 or (others and values is not None):
        raise UsageError("two-files", "two runs at most are looked at together", remedy="leave the others out")
    with progress() as show:
        parts = [] if others else parts_of(file)
        looked = list(look_at(parts, verdict_lines, show, headers=headers, moments=everything))
        how: Any = {"headers": headers, "moments": everything, "progress": show}
        targets = [] if parts else list(map(run_in, files)) if others else [file]
        found = [inspect(one, verdict_lines, **how) for one in targets]
    two = beside(found[0], found[1]) if others else None
    if as_json and (parts or two):
        each = {"parts": list(map(_part, looked))} if parts else {"runs": list(map(_document, found))}
        print_json({"file": list(files), **each, **({"beside": plain(two)} if two else {})})
    elif as_json:
        print_json(_document(found[0]))
    else:
        of_several = lines_of_two(found, two) if two else None
        lines = lines_of_parts(file, looked, everything=everything) if parts else of_several
        *said, again = lines or lines_of(found[0], everything=everything)
        tell(said)
        tell([again], whole=True)  # to be copied
    looked = looked or [Part(name=one.target, target=one.target, found=one) for one in found]
    if strict and (code := _strict(looked)) is not ExitCode.PASSED:
        context.exit(code)


def _show_values(file: str, values: tuple[int, str], *, as_json: bool) -> None:
    decoded = first_values(file, *values)
    if as_json:
        print_json({"file": file, "values": decoded})
    for name, row in decoded.items() if not as_json else ():
        first = row["values"]
        shown = ", ".join(map(str, first)) or "no value" if isinstance(first, list) else "not decoded"
        tell([fill("{name:<40} {dtype:<8} [{shape}]  {shown}", {**row, "name": name, "shown": shown})])


def _document(found: Inspection) -> dict[str, Json]:
    document: dict[str, Json] = {
        "file": found.target, "kind": found.kind, "facts": found.facts, "table": found.table
    }  # fmt: skip
    if report := found.report:
        document |= {"findings": report.findings, "labels": report.labels, "health": report.health}
    if judged := found.judged:
        document["judged"] = [
            finding_json(one, finding_text(one, judged.measured), looked_at(judged.contract, one, judged.measured))
            for one in judged.findings
        ]
    return document


def _part(part: Part) -> dict[str, Json]:
    refused = {"refused": {"code": part.refused.code, "what": part.refused.what}} if part.refused else {}
    return {"name": part.name, "says": part.says, **refused, **(_document(part.found) if part.found else {})}


def _strict(parts: Sequence[Part]) -> ExitCode:
    """Return whether something looks wrong in any part, and whether each of them could be looked at."""
    refused = any(part.refused and part.refused.code != "several-runs" for part in parts)
    found = [part.found for part in parts if part.found]
    failed = (one for of in found if of.judged for one in of.judged.findings if one.verdict.outcome is Outcome.FAIL)
    if refused or any(failed) or any(one.report and one.report.findings for one in found):
        return ExitCode.FAILED
    looked = all(part.found is not None and _was_looked_at(part.found) for part in parts if not part.says)
    return ExitCode.PASSED if looked else ExitCode.BLOCKED


def _was_looked_at(found: Inspection) -> bool:
    """Return whether a checkpoint's values were, or a log's steps and their loss, by the first of its gates."""
    if found.judged is None:
        return bool(found.report and found.report.tensors)
    first = [one.verdict.outcome for one in found.judged.findings if one.gate == found.judged.findings[0].gate]
    return all(outcome is Outcome.PASS for outcome in first)
