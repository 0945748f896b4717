"""Two tabs of a run directory: what happened at the step that a gate names, and what goes on inside the model."""

import itertools
import json
import math
import statistics
from collections.abc import Iterator
from typing import Any

from weighbridge.core import SubjectError, printable
from weighbridge.evaluation.around_step import AROUND, COST, GROUPS, MOST, Autopsy, Layers, autopsy, named_step
from weighbridge.evaluation.inspection import cells
from weighbridge.page.drawing import Line, Mark, Number, bars, curves, grids, heatmap, short
from weighbridge.page.sources import Judged, Sources
from weighbridge.page.tab import NOT_JUDGED, Part, Tab, said_by
from weighbridge.run_logs.json_log import DIAGNOSTICS
from weighbridge.run_logs.units import promised_unit
from weighbridge.verifiers.run_files import newest_snapshot
from weighbridge.views.run import RunView

NEAR, PICTURES = 30, 3  # steps before and after; columns that changed most
# Of what a row is, the number in it, what that is, and the columns of the run that gates read of it.
PICTURED = (
    ("activation", "std", "deviation of what each block puts out", {"activation_std_ratio", "activation_outlier"}),
    ("attention", "entropy", "entropy of each head over ln of its keys",
     {"least_head_entropy", "head_entropy", "head_entropy_std", "redundant_heads_share", "dead_heads_share"}),
    ("matrix", "spectral_norm", "spectral norm of each matrix", {"spectral_norm"}),
    ("class", "mean", "loss by class", {"class_tax"}),
)  # fmt: skip
COSTS = {"cost_ms"}
GRIDS, HEADS = "sampled_qk_grid_32x32_per_head", 64  # heads that are drawn


def spike(given: Sources, layers: Layers | None) -> Tab:
    """Return the step at which something happened: before, at and after, by column and by layer."""
    of_run = [one for one in given.judged if one.bundle is given.run_of]
    found = named_step(one.row.finding for one in of_run) if given.run else None
    named: Any = {"id": "spike", "question": "What happened at the step?"}
    if found is None or given.run is None:
        return Tab(**named, judged=())
    gate, step = found
    looked = autopsy(given.run, step, layers)
    farthest = [one.name for one in looked.columns if one.change > 0 and not one.name.endswith(COST)][:PICTURES]
    parts = [_near(given.run, name, gate, step, of_run) for name in farthest]
    more = f"Step {step} is the first that one names; farthest from before it: {', '.join(farthest) or 'nothing'}."
    judged = [one for one in of_run if one.row.finding.gate == gate]
    return Tab(**named, judged=judged, more=more, parts=[*parts, *_around(looked)])


def _near(run: RunView, name: str, gate: str, step: int, judged: list[Judged]) -> Part:
    rows = [(at, value) for at, value in cells(run.column(name)) if abs(at - step) <= NEAR]
    least: list[Number] = [value if math.isfinite(value) else None for _, value in rows]
    line = Line(name=name, step=[at for at, _ in rows], least=least, nan=[value is None for value in least])
    picture = curves(printable(name), promised_unit(name), [line], [Mark("hit", f"{gate}, step {step}", step)])
    said = said_by([one for one in judged if one.row.looked_at.get("column") == name])
    return Part(picture=picture, caption=f"{name}, {NEAR} steps before and after, from --run. {said}")


def _around(looked: Autopsy) -> Iterator[Part]:
    heads = ("column", f"median of {AROUND} before", "last", "at", "next", f"median of {AROUND} after", "at / before")
    each = ((one, (one.before, one.last, one.at, one.following, one.after, one.times)) for one in looked.columns)
    rows = tuple((one.name, *("-" if cell is None else short(cell) for cell in found)) for one, found in each)
    caption = f"Every column at step {looked.step}, what changed most first, from --run."
    yield Part(head=heads, rows=rows, caption=caption, filtered=True)
    if looked.layers:
        norms = [(one.name, one.at, one.before, "exactly 0" if one.at == 0 else "") for one in looked.layers]
        caption = f"Layers at recorded step {looked.layers_at}, what changed most first: solid is at the step, pale the"
        yield Part(picture=bars("layers at the step", norms), caption=f"{caption} median before. From layers.jsonl.")


def insides(given: Sources) -> Tab:
    """Return what a recorder saw inside the model, and what looking cost."""
    rows = _rows(given.run) if given.run else []
    asked = COSTS.union(*(names for *_, names in PICTURED))
    judged, parts = [one for one in given.judged if one.row.looked_at.get("column") in asked], list[Part]()
    for of, key, title, names in PICTURED:
        found = dict(_numbers([row for row in rows if row["of"] == of], key))
        places, steps = list(dict.fromkeys(place for place, _ in found))[:GROUPS], sorted({step for _, step in found})
        if places:
            picture = heatmap(title, places, steps, [[found.get((one, at)) for at in steps] for one in places])
            said = said_by([one for one in judged if one.row.looked_at.get("column") in names])
            parts.append(Part(picture=picture, caption=f"{title.capitalize()}, from {DIAGNOSTICS} of --run. {said}"))
    kept = [one for one in given.judged if one.row.finding.kind == "snapshot-cadence"]
    maps = _head_maps(given.run, kept)
    judged, parts = [*judged, *(kept if maps else ())], [*parts, *maps]
    courses, _ = given.courses()
    medians = ((name, course.median or course.least) for name, course in courses.items() if name.endswith("_ms"))
    known = [(name, [one for one in numbers if one is not None]) for name, numbers in medians]
    if not COSTS.isdisjoint(courses):
        picture = bars("milliseconds of a step", [(name, statistics.median(of), None, "") for name, of in known if of])
        said = said_by([one for one in judged if one.row.looked_at.get("column") in COSTS])
        parts.append(Part(picture=picture, caption=f"Median of a step in ms; cost_ms is what looking cost. {said}"))
    return Tab(id="insides", question="What goes on inside the model?", judged=judged if parts else (), parts=parts)


def _head_maps(run: RunView | None, kept: list[Judged]) -> list[Part]:
    """Return the head maps of the newest analysis checkpoint, layer after layer, where grids were asked for."""
    file, content = (run and newest_snapshot(run)) or ("", dict[str, Any]())
    layers = dict[str, Any](content).get("attention", {}).items()
    maps = {f"{layer} {head}": grid for layer, of in layers for head, grid in enumerate(of.get(GRIDS, ()))}
    if not maps:
        return []
    few = dict(itertools.islice(maps.items(), HEADS))
    many = f"{len(few)} of {len(maps)} heads" if len(few) < len(maps) else f"{len(maps)} heads"
    caption = f"Queries times keys of {many}, at most 32 x 32 of them, at step {content['step']}: {file} of --run, "
    caption += f"which is whole: {said_by(kept)}" if kept else NOT_JUDGED.lower()
    return [Part(picture=grids("queries times keys by head", few), caption=caption, of=kept)]


def _numbers(rows: list[dict[str, Any]], key: str) -> Iterator[tuple[tuple[str, int], float]]:
    """Yield each number with its place and step; of a list one for each of its places."""
    for row in rows:
        value = row.get(key)
        each = {f" {at}": one for at, one in enumerate(value)} if isinstance(value, list) else {"": value}
        numbers = ((at, one) for at, one in each.items() if isinstance(one, (int, float)))
        yield from (((f"{row.get('name')}{at}", int(row["step"])), float(one)) for at, one in numbers)


def _rows(run: RunView) -> list[dict[str, Any]]:
    file = run.folder / DIAGNOSTICS if run.folder else None
    if file is None or not file.is_file() or file.stat().st_size > MOST:
        return []
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [row for row in rows if isinstance(row["step"], int) and isinstance(row["of"], str)]
    except (ValueError, KeyError, TypeError) as problem:
        what = f"holds no row of a look inside ({problem})"
        raise SubjectError("layer-rows", what, where=DIAGNOSTICS, remedy="") from None
