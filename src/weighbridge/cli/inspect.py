"""`weighbridge inspect`: what one file alone tells; judges nothing, writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from weighbridge.binding import Bound
from weighbridge.cards import fill
from weighbridge.cli.options import as_json, print_json
from weighbridge.errors import SubjectError
from weighbridge.files import exists, is_file, is_folder
from weighbridge.gates.column_basis import basis_of
from weighbridge.judging import DEFAULT
from weighbridge.model import Fields, Json, Measurement, Record, Rows, SubjectKind, Unmeasured
from weighbridge.printable import printable
from weighbridge.report.lines import capped
from weighbridge.verifiers import VERIFIERS
from weighbridge.views import formats

TENSORS_SHOWN = 20
RUN_FILES = ("run.json", "steps.jsonl")


@click.command(
    "inspect",
    short_help="Tell what one checkpoint or run log holds.",
    epilog="\b\nExample: weighbridge inspect model.gguf\nExample: weighbridge inspect runs/a",
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="List every tensor.")
@as_json
def command(file: Path, *, everything: bool, as_json: bool) -> None:
    """Tell what FILE holds: the facts and tensors of a checkpoint, or the facts and columns of a run log.

    Exit 0: read; 4: unreadable.
    """
    kind = kind_of(file)
    view = Bound(subject="file", instance=DEFAULT, kind=kind, target=str(file), by_hand=True).open()
    facts = _measure("facts", kind, view)
    table = _columns(view) if kind is SubjectKind.RUN else _tensors(view)
    if as_json:
        print_json({"file": str(file), "kind": kind, "facts": facts, "table": table})
        return
    click.echo(click.style(printable(f"{file}: {kind}"), bold=True))
    for name, fact in facts.items():
        click.echo(f"  {name:<18} {_fact(fact)}")
    lines = list(_lines(kind, table))
    for line in lines if everything or kind is SubjectKind.RUN else capped(lines, TENSORS_SHOWN):
        click.echo(f"  {line}")


def kind_of(path: Path) -> SubjectKind:
    """Tell a checkpoint from a run log by what is in it, not by its name."""
    if is_folder(path):
        run = any(exists(path / name) for name in RUN_FILES)
        return SubjectKind.RUN if run else SubjectKind.CHECKPOINT
    if path.suffix in {".safetensors", ".gguf"} or _looks_like_a_checkpoint(path):
        return SubjectKind.CHECKPOINT
    return SubjectKind.RUN


def _looks_like_a_checkpoint(path: Path) -> bool:
    if not is_file(path):
        return path.name.endswith(".safetensors.index.json")
    if path.name.endswith(".safetensors.index.json"):
        return True
    with path.open("rb") as file:
        return formats.reader_of(file.read(formats.HEAD)) is not None


def _measure(quantity: str, kind: SubjectKind, view: Any) -> Fields:
    result = VERIFIERS[quantity, (kind,)].measure((view,), {})
    if isinstance(result, Unmeasured):
        raise SubjectError(result.code, result.why, remedy=result.remedy)
    assert isinstance(result, Measurement)
    match result.value:
        case Record(fields):
            return fields
        case Rows(key, rows):
            return {str(row[key]): row for row in rows}
    raise AssertionError(quantity)


def _columns(view: Any) -> Fields:
    rows = _measure("step_columns", SubjectKind.RUN, view)
    told: dict[str, Json] = {}
    for name, row in rows.items():
        assert isinstance(row, Mapping)
        found = basis_of(row)
        by = f" ({found.how} of {found.partner})" if found.partner else ""
        told[name] = {**{key: row[key] for key in ("samples", "missing", "min", "max")}, "basis": f"{found.basis}{by}"}
    return told


def _tensors(view: Any) -> Fields:
    told: dict[str, Json] = {}
    for name in view.names():
        tensor = view.tensor(name)
        told[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "bytes": tensor.nbytes}
    return told


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
            yield fill("{name:<40} {dtype:<8} [{shape}]  {bytes} bytes", shown)
