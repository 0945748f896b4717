"""`weighbridge inspect`: show what one file contains; judges nothing, writes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import click

from weighbridge.binding import Bound
from weighbridge.cards import fill
from weighbridge.clauses.column_basis import basis_of
from weighbridge.cli.checkpoint_alone import CheckpointReport, look
from weighbridge.cli.options import as_json, end_progress, print_json, progress, tell
from weighbridge.errors import SubjectError
from weighbridge.formats import dcp_metadata, detect
from weighbridge.judging import DEFAULT
from weighbridge.limits import plain
from weighbridge.model import Fields, Json, Measurement, SubjectKind, Unmeasured
from weighbridge.printable import printable
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.runs import StepColumn
from weighbridge.report.lines import capped
from weighbridge.storage.local_files import exists, is_file, is_folder, local_path
from weighbridge.verifiers import VERIFIERS

TENSORS_SHOWN = 20
INDEXES = ".safetensors.index.json", ".bin.index.json", dcp_metadata.NAME
RUN_FILES = ("run.json", "steps.jsonl")


@click.command(
    "inspect",
    short_help="Show what a checkpoint or run log contains.",
    epilog="\b\nExample: weighbridge inspect model.gguf\nExample: weighbridge inspect runs/a",
)
@click.argument("file")
@click.option("--all", "everything", is_flag=True, help="List every tensor and every problem.")
@click.option("--headers", is_flag=True, help="Read only the headers of a checkpoint, not its values.")
@as_json
def command(file: str, *, everything: bool, headers: bool, as_json: bool) -> None:
    """Show the tensors of a checkpoint FILE, or the columns of a run log FILE.

    For a checkpoint, also show what looks wrong without its source: stored dtypes that the bits contradict, NaN,
    zeros in place of values, files that do not belong together. This is no verdict.

    Exit 0: read; 4: unreadable.
    """
    kind = kind_of(file)
    view = Bound(subject="file", instance=DEFAULT, kind=kind, target=file, by_hand=True).open()
    facts = _facts(kind, view)
    table = _columns(view) if kind is SubjectKind.RUN else _tensors(view)
    progress()(f"reading {printable(file)}")
    try:
        report = None if headers or kind is SubjectKind.RUN else look(view, table)
    finally:
        end_progress()
    table = report.tensors if report else table
    if as_json:
        found: dict[str, Json] = {"file": file, "kind": kind, "facts": facts, "table": table}
        if report:
            found |= {"findings": [*map(dataclasses.asdict, report.findings)], "labels": report.labels}
            found |= {"health": report.health}
        print_json(found)
        return
    tell([click.style(printable(f"{file}: {kind}"), bold=True)])
    tell(f"  {name:<18} {_fact(fact)}" for name, fact in facts.items())
    if report:
        tell(_told_alone(report, everything=everything))
    lines = list(_lines(kind, table))
    tell(f"  {line}" for line in (lines if everything or kind is SubjectKind.RUN else capped(lines, TENSORS_SHOWN)))


def _told_alone(report: CheckpointReport, *, everything: bool) -> Iterator[str]:
    if not report.tensors:
        yield click.style("  looks wrong        there is no tensor, so nothing was looked at", fg="red")
        return
    yield fill("  stored dtypes      {vote}: {decided} of {tensors} tensors decided; undecided: {why}", report.labels)
    yield fill("  precision          {precision}", report.labels)
    says = [finding.says for finding in report.findings]
    yield click.style(f"  looks wrong        {len(says) or 'nothing'}", fg="red" if says else None)
    yield from (f"    {line}" for line in (says if everything else capped(says)))


def kind_of(target: str) -> SubjectKind:
    """Return whether a target is a checkpoint or a run, by what is in it; runs are read on this machine only."""
    path = local_path(target)
    if path is None:
        return SubjectKind.CHECKPOINT
    if is_folder(path):
        run = any(exists(path / name) for name in RUN_FILES)
        return SubjectKind.RUN if run else SubjectKind.CHECKPOINT
    if path.suffix in {".safetensors", ".gguf"} or path.name.endswith(INDEXES):
        return SubjectKind.CHECKPOINT
    if not is_file(path):
        return SubjectKind.RUN
    with path.open("rb") as file:
        head = file.read(detect.HEAD)
    binary = b"\0" in head or detect.reader_of(head) is not None  # no log holds a zero byte
    return SubjectKind.CHECKPOINT if binary else SubjectKind.RUN


def _measure(quantity: str, kind: SubjectKind, view: Any) -> Measurement:
    result = VERIFIERS[quantity, (kind,)].measure((view,), {})
    if isinstance(result, Unmeasured):
        raise SubjectError(result.code, result.why, remedy=result.remedy)
    return result


def _facts(kind: SubjectKind, view: Any) -> Fields:
    rows = [plain(fact) for fact in rows_of(_measure("facts", kind, view), Fact)]
    return {row.pop("name"): row for row in rows}


def _columns(view: Any) -> Fields:
    rows: Any = rows_of(_measure("step_columns", SubjectKind.RUN, view), StepColumn)
    told: dict[str, Json] = {}
    for row in rows:
        found = basis_of(row)
        by = f" ({found.how} of {found.partner})" if found.partner else ""
        counted = {"samples": row.samples, "missing": row.missing, "min": row.min, "max": row.max}
        told[row.column] = {**counted, "basis": f"{found.basis}{by}"}
    return told


def _tensors(view: Any) -> Fields:
    tensors = {name: view.tensor(name) for name in view.names()}
    return {name: {"dtype": t.dtype, "shape": list(t.shape), "bytes": t.nbytes} for name, t in tensors.items()}


def _fact(fact: Json) -> str:
    if not isinstance(fact, Mapping):
        return str(fact)
    contradicted = f", contradicted by {fact['contradicted_by']}" if fact.get("contradicted_by") else ""
    return fill("{value}", {"value": fact.get("value")}) + f"  ({fact.get('basis')}{contradicted})"


def _lines(kind: SubjectKind, table: Fields) -> Iterator[str]:
    if kind is SubjectKind.RUN:
        yield f"{'column':<18} {'samples':>8} {'missing':>8} {'min':>14} {'max':>14}  basis"
    for name, row in table.items():
        assert isinstance(row, Mapping)
        shown = {key: row[key] for key in row} | {"name": name}
        if kind is SubjectKind.RUN:
            yield fill("{name:<18} {samples:>8} {missing:>8} {min:>14.6g} {max:>14.6g}  {basis}", shown)
        else:
            more = "  {used_bits} of {mantissa_bits} bits used" if shown.get("used_bits") is not None else ""
            label = "  stored dtype {label}" if shown.get("label", "undecided") != "undecided" else ""
            yield fill("{name:<40} {dtype:<8} [{shape}]  {bytes} bytes" + more + label, shown)
