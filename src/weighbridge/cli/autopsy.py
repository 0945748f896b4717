"""`weighbridge autopsy`: a run before, at and after a step, side by side."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from weighbridge.cli.options import as_json, print_json, tell, verb
from weighbridge.core import SubjectKind, UsageError, plain, printable
from weighbridge.drills.patterns import judged
from weighbridge.evaluation.around_step import AROUND, Around, Autopsy, autopsy, layers_of, named_step
from weighbridge.evaluation.inspection import opened, run_in

SHOWN, WIDTH = 16, 10
STEP = "The step to look at.  [default: the first that a failing gate names]"


@verb("autopsy", "Show a run before, at and after a step.", "runs/a", "runs/a --step 110")
@click.argument("run")
@click.option("--step", type=click.IntRange(min=0), help=STEP)
@click.option("--all", "everything", is_flag=True, help="List every column and every layer.")
@as_json
def command(run: str, step: int | None, everything: bool, as_json: bool) -> None:
    """Show every column of RUN around a step, what changed most first, and the norms of its layers.

    Medians are of 20 samples. Without --step, RUN is judged by builtin:diagnostics.

    Exit 0: shown; 2: no gate names a step, or the run has not that step; 4: unreadable.
    """
    target = run_in(run)
    found = ("--step", step) if step is not None else named_step(judged(Path(target)))
    if found is None:
        what = "no gate FAILs of something that happens at a step"
        raise UsageError("no-step", what, where=run, remedy="name one: --step N")
    (by, step), view = found, opened(target, SubjectKind.RUN)
    by += f", of the first of {len(view.ranks)} ranks" if view.ranks else ""
    view = view.ranks[0] if view.ranks else view
    looked = autopsy(view, step, layers_of(view))
    if as_json:
        print_json({"run": run, "by": by, **plain(looked)})
    else:
        tell(lines_of(run, looked, by, everything=everything))


def lines_of(run: str, looked: Autopsy, by: str, *, everything: bool) -> Iterator[str]:
    """Yield the columns, then the layers, in 80 columns."""
    yield click.style(printable(f"{run}: step {looked.step}, named by {by}"), bold=True)
    yield from _table("column", looked.step, looked.columns, everything=everything)
    if looked.layers_at is None:
        yield "  layers are not recorded: the recorder of weighbridge writes layers.jsonl"
        return
    yield f"  gradient: its norm; update: its norm over the weight's; at recorded step {looked.layers_at}"
    yield from _table("layer", looked.layers_at, looked.layers, everything=everything)


def _table(head: str, step: int, rows: Sequence[Around], *, everything: bool) -> Iterator[str]:
    heads = (f"{AROUND} before", "last", f"at {step}", "next", f"{AROUND} after", "at/before")
    yield "".join((f"{head:<20}", *(f"{one:>{WIDTH}}" for one in heads)))
    shown = rows if everything else [one for one in rows if one.change > 0][:SHOWN]
    for one in shown:
        cells = (one.before, one.last, one.at, one.following, one.after, one.times)
        name = printable(_brief(one.name))
        yield "".join((f"{name:<20}", *(f"{'-' if cell is None else f'{cell:.3g}':>{WIDTH}}" for cell in cells)))
    if len(rows) > len(shown):
        yield f"  {len(rows) - len(shown)} more, which changed less or not (--all lists them)"


def _brief(name: str) -> str:
    """Return a name in 19 columns: of a layer the last parts of its path."""
    kind, space, path = name.partition(" ")
    while len(name) > 19 and "." in path:
        path = path.partition(".")[2]
        name = kind + space + path
    return name if len(name) <= 19 else f"{name[:16]}..."
