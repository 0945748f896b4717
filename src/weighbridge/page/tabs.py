"""The tabs of the page, each a question: what it comes to, its pictures with what judged them, its tables."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from weighbridge.core import Measurement, Outcome, printable, show, singular
from weighbridge.evaluation.around_step import Layers, layers_of
from weighbridge.evaluation.inspection import COMPARED, at_both, cells, parts_at
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.review import differences
from weighbridge.page.drawing import Line, Mark, bars, curves, heatmap, short
from weighbridge.page.insides import insides, spike
from weighbridge.page.sources import Judged, Sources, checked_by, courses_of, of_the_same
from weighbridge.page.tab import NOT_JUDGED, WORST, Part, Tab, by_outcome, said_by
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.forward import ForwardError
from weighbridge.quantities.runs import StepCourse
from weighbridge.quantities.tensors import TensorPair
from weighbridge.report import HINTS, NAMED, capped, gate_name
from weighbridge.report.machine import hints_by_word
from weighbridge.run_logs.json_log import stated
from weighbridge.run_logs.units import promised_unit

NOT_SEALED = "no bundle seals: the gates above read columns of steps.jsonl instead."
FIRST = ("loss", "val_loss", "lr", "grad_norm")
PICTURES, POINTS, TENSORS, DIFFERENT = 8, 120, 5000, 200
RANKED = 12  # tensors that went farthest, and as many that went least far
OF_GRADIENTS = {"gradient-reach", "silent-layers", "faint-gradients", "vanishing-gradients", "pinched-layers"}
OF_UPDATES = {"moving-tensors", "update-jump"}
OF_MOVEMENT = {"contributing-layers", "moving-matrices"}
OF_TENSORS = ("tensor_values", "tensor_health", "tensor_bits", "moment_changes", "files_beside", "model_config")


def tabs(given: Sources) -> tuple[Tab, ...]:
    """Return every tab of the page but the board; one without gates and without parts is not shown."""
    layers = layers_of(given.run) if given.run else None
    first = _training(given), spike(given, layers), _layers(given, layers), insides(given)
    return *first, _parity(given), *_tensors(given), _changed(given)


def hints_of(one: Judged) -> Iterator[tuple[str, str]]:
    """Yield the hints of a finding with their labels."""
    return ((HINTS[word].capitalize(), text) for word, texts in hints_by_word(one.row.said).items() for text in texts)


def _of(given: Sources, *quantities: str) -> list[Judged]:
    return [one for one in given.judged if not {*quantities}.isdisjoint(key.partition(".")[0] for key in one.keys)]


def _about_gradients(column: str) -> bool:
    return "grad" in column or column in ("frozen", "unmoved", "unowned", "update_ratio")


def _column(one: Judged) -> str:
    return str(one.row.looked_at.get("column") or "")


def _reads(one: Judged, column: str) -> bool:
    if one.outcome is Outcome.NOT_APPLICABLE:  # it has looked at nothing
        return False
    return column == _column(one) if _column(one) else column in dict[str, Any](one.row.looked_at)["places"]


def _training(given: Sources) -> Tab:
    all_of_run = _of(given, "step_series", "step_columns", "corpus_progress", "corpus_epochs", "device_evidence")
    judged = [one for one in all_of_run if not _about_gradients(_column(one))]
    courses, bundle = given.courses()
    of_bundle = [one for one in all_of_run if one.bundle is bundle]
    failing = [_column(one) for one in of_bundle if one.outcome in WORST[:2]]
    names = [name for name in dict.fromkeys((*FIRST, *failing)) if name in courses]
    names = names if len(courses) > PICTURES else [*names, *(name for name in courses if name not in names)]
    parts = [_curve(given, courses[name], [one for one in of_bundle if _reads(one, name)], bundle) for name in names]
    rest = [course for name, course in courses.items() if name not in names]
    parts += [_table_of(rest, of_bundle)] if rest else []
    return Tab(id="training", question="Is it training?", judged=judged, parts=parts)


def _curve(given: Sources, course: StepCourse, judged: Sequence[Judged], bundle: Bundle | None) -> Part:
    unit, marks = promised_unit(course.column), list[Mark]()
    for one in judged:
        verdict, at = one.row.finding.verdict, dict[str, Any](one.row.looked_at)
        steps = course.step[0] or 0, course.step[-1] or 0
        windows = sum(mark.kind == "window" for mark in marks)
        if at["from_step"] is not None and at["from_step"] > steps[0] and not windows:
            marks.append(Mark("window", f"{one.row.finding.gate} looks here", at["from_step"], at["to_step"]))
        if unit and verdict.unit == unit and isinstance(verdict.limit, (int, float)):
            marks.append(Mark("limit", f"limit of {one.row.finding.gate}: {verdict.limit:g} {unit}", verdict.limit))
        if one.outcome is Outcome.FAIL:
            found = {**verdict.figures, **(verdict.offences[0].figures if verdict.offences else {})}
            steps_of = (found.get(name) for name in ("worst_step", "step", "slowest_step", "first_step"))
            hit = next((step for step in steps_of if isinstance(step, (int, float))), None)
            marks += [Mark("hit", f"{one.row.finding.gate}, step {hit}", hit)] if hit is not None else []
    if course.column == "loss":
        items = (item for one in given.bundles for key, item in one.measured.items() if key.startswith("facts."))
        facts = (fact for item in items if isinstance(item, Measurement) for fact in rows_of(item, Fact))
        known = [one.value for one in facts if one.name == "vocab" and type(one.value) is int and one.value > 1][:1]
        marks += [Mark("limit", f"ln {vocab}: a model that knows nothing", math.log(vocab)) for vocab in known]
    picture = curves(printable(course.column), unit, [_line(course, "")], marks)
    return Part(picture=picture, caption=_caption(course, judged, bundle), of=judged)


def _caption(course: StepCourse, judged: Sequence[Judged], bundle: Bundle | None) -> str:
    counts = {"not finite": course.nan, "exactly 0": course.zeros, "missing": course.missing}
    absent = [f"{sum(found)} {word}" for word, found in counts.items() if any(found)]
    each = f"{course.rows} rows, {course.rows_each} to a place" if course.rows_each > 1 else f"{course.rows} rows"
    of_bundle = f" Bundle {bundle.id[:12]}." if bundle else ""
    return f"{course.column}: {', '.join((each, *absent))}. {said_by(judged)}{of_bundle}"


def _line(course: StepCourse, name: str) -> Line:
    step = [index * course.rows_each if one is None else one for index, one in enumerate(course.step)]
    named = {key: getattr(course, key) for key in ("least", "median", "greatest", "nan", "zeros", "missing")}
    return Line(name=name or printable(course.column), step=step, **named)


def _table_of(courses: Sequence[StepCourse], judged: Sequence[Judged]) -> Part:
    rows, bad = [], set()
    for index, course in enumerate(courses):
        mine = by_outcome([one for one in judged if _reads(one, course.column)])
        known = [value for value in course.least if value is not None]
        top = [value for value in (course.greatest or course.least) if value is not None]
        counts = [str(sum(found)) for found in (course.nan, course.zeros, course.missing)]
        by = said_by(mine).removesuffix(".") if mine else "not judged"
        last = (course.median or course.least)[-1]
        rows.append((course.column, *map(short, (min(known, default=None), max(top, default=None), last)), *counts, by))
        bad |= {index} if mine and mine[0].outcome in WORST[:2] else set()
    head = ("column", "least", "greatest", "last", "not finite", "exactly 0", "missing", "judged by")
    caption = singular(f"{len(rows)} more columns of the run, as they are sealed.")
    of = [one for one in judged if any(_reads(one, course.column) for course in courses)]
    return Part(head=head, rows=tuple(rows), caption=caption, bad=frozenset(bad), filtered=True, of=of)


def _layers(given: Sources, layers: Layers | None) -> Tab:
    judged = [one for one in _of(given, "step_series") if _about_gradients(_column(one))]
    of_tensors = _of(given, "layer_course")
    judged += of_tensors
    named: Any = {"id": "layers", "question": "Do gradients reach every layer?", "judged": judged}
    if layers is None or not layers.steps:
        why = "layers.jsonl was not recorded." if given.run else "No run directory was given: --run DIR draws it."
        return Tab(**named, parts=[Part(caption=why)] if judged or given.run else ())
    every, still, rows = len(layers.steps), _still(layers), list[tuple[str, Sequence[float | None]]]()
    said = [f"{_together(at[0], names)} at {at[1]} of {every} recorded steps" for at, names in still.items()]
    odd = " Some of them are no numbers." * any(not math.isfinite(one or 0) for row in layers.grad for one in row)
    more = f"{'; '.join(capped(said, NAMED)) or 'Every tensor has a gradient at every recorded step'}.{odd}"
    for name, row in zip(layers.names, layers.grad, strict=True):
        silent = still.get((name, every), ())  # which the others of its group would hide
        rows += [(name, row), *([(f"{name}: {len(silent)} at 0", (0.0,) * every)] if silent else [])]
    caption = f"2-norm of the gradients that the update used, by group of layers, at {len(layers.steps)} steps. "
    caption += f"From layers.jsonl of --run, which {'the gates above read.' if of_tensors else NOT_SEALED}"
    names, cells = zip(*rows, strict=True)
    picture = heatmap("gradient norm by layer and step", names, layers.steps, cells)
    return Tab(**named, more=more, parts=(Part(picture=picture, caption=caption), *_bars_of(layers, judged)))


def _still(layers: Layers) -> Mapping[tuple[str, int], Sequence[str]]:
    """Return what gets no gradient: groups, and tensors of one group at as many steps."""
    counts = {name: sum(value == 0 for value in row) for name, row in zip(layers.names, layers.grad, strict=True)}
    groups, found = tuple(f"{name}." for name, count in counts.items() if count), dict[tuple[str, int], list[str]]()
    alone = {name: count for name, count in layers.zero.items() if not name.startswith(groups)}
    for name, count in (counts | alone).items():
        if count:
            group = next((one for one in layers.names if name.startswith(f"{one}.")), "")
            found.setdefault((group, count), []).append(name)
    return found


def _together(group: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is without a gradient"
    short = capped([name.removeprefix(f"{group}.") for name in names], PICTURES)
    return f"{len(names)} {f'tensors of {group}' if group else 'layers'} ({', '.join(short)}) are without a gradient"


def _bars_of(layers: Layers, judged: Sequence[Judged]) -> Iterator[Part]:
    """Yield the last norms of every group, the updates over steps, and which tensors went farthest and least far."""
    at = f"at step {layers.steps[-1]:g}"
    more = f" {layers.more} groups are left out." if layers.more else ""
    grad, change = f"Gradient norm {at}, first layer on top.", f"Update over weight {at}; 1e-3 is usual."
    pictures = (
        ("gradient norm by layer", layers.grad, "gets no gradient", grad, OF_GRADIENTS),
        ("update over weight by layer", layers.change, "does not move", change, OF_UPDATES),
    )
    for title, norms, at_zero, caption, kinds in pictures:
        ends = zip(layers.names, (row[-1] for row in norms), strict=True)
        last = [(name, norm, None, at_zero if norm == 0 else "") for name, norm in ends]
        if any(value is not None for row in norms for value in row):
            of = [one for one in judged if one.row.finding.kind in kinds]
            yield Part(picture=bars(title, last), caption=f"{caption} {said_by(of)}{more}")
    if layers.moved:
        of = [one for one in judged if one.row.finding.kind in OF_MOVEMENT]
        yield Part(
            picture=heatmap("update over weight by layer and step", layers.names, layers.steps, layers.change),
            caption=f"Update over weight, by group of layers. {said_by(of)}",
        )
        ranked = sorted(layers.moved.items(), key=lambda one: -one[1])
        shown = ranked if len(ranked) <= 2 * RANKED else ranked[:RANKED] + ranked[-RANKED:]
        rows = [(name, way, None, "did not move" if way == 0 else "") for name, way in shown]
        many = f"{len(shown)} of {len(ranked)} tensors, the farthest and the least far"
        caption = f"How far each tensor went: its updates over its weight, added up over the recorded steps; {many}."
        yield Part(picture=bars("ranking of movement", rows), caption=f"{caption} {said_by(of)}")


def _judged_by(one: Judged) -> str:
    return f"{one.word} {gate_name(one.row.finding)} of bundle {one.bundle.id[:12]}: {one.checked}."


def _parity(given: Sources) -> Tab:
    judged, parts, first = _of(given, "forward_errors"), [], list[str]()
    for one in by_outcome(judged):
        item = next((one.bundle.measured.get(key) for key in one.keys), None)
        if isinstance(item, Measurement):
            rows = sorted(rows_of(item, ForwardError), key=lambda row: row.order)
            parts.append(_waterfall(one, rows))
            wrong = {offence.place: offence.figures for offence in one.row.finding.verdict.offences}
            first += [f"First at {row.point}{_size(wrong[row.point])}." for row in rows if row.point in wrong][:1]
    more = " ".join(dict.fromkeys(first))
    return Tab(id="parity", question="Where do the two sides part?", judged=judged, more=more, parts=parts)


def _size(figures: Mapping[str, Any]) -> str:
    known = isinstance(figures.get("limit"), float)
    return f": error {figures['error']:.3g}, limit {figures['limit']:.3g}" if known else ""


def _waterfall(one: Judged, rows: Sequence[ForwardError]) -> Part:
    known = {offence.place: offence.figures for offence in one.row.finding.verdict.offences}
    at = [index for index, row in enumerate(rows) if row.point in known]
    kept = {near for index in at for near in range(index - 5, index + 6)} or set(range(POINTS))
    own = [(row.candidate.all, row.candidate.token, row.candidate.channel) for row in rows]
    limit = known[rows[at[0]].point].get("limit") if at else None
    first = f"first point that parts{f', its limit {limit:.3g}' if isinstance(limit, float) else ''}"
    shown = [(row.point, max((one for one in own[index] if one is not None), default=None), row.candidate_end_to_end,
              (first if index == at[0] else "parts") if row.point in known else "")
             for index, row in enumerate(rows) if index in kept][:POINTS]  # fmt: skip
    many = f"{len(shown)} of {len(rows)} points" if len(shown) < len(rows) else f"{len(rows)} points"
    caption = f"{_judged_by(one)} {many} in the order of computing: solid is the "
    caption += "error that an operation adds (the largest of all, worst token, worst channel), pale what arrived at it."
    return Part(picture=bars("error of each capture point", shown), caption=caption, of=[one])


def _tensors(given: Sources) -> Iterator[Tab]:
    """Yield the gates that read tensors, those of one checkpoint by itself apart from those that hold it to another."""
    judged, tables = _of(given, *OF_TENSORS), dict[int, tuple[Measurement, list[Judged]]]()
    for one in by_outcome(judged):  # several gates read one table
        item = next((one.bundle.measured.get(key) for key in one.keys if key.startswith("tensor_values.")), None)
        if isinstance(item, Measurement):
            tables.setdefault(id(item), (item, []))[1].append(one)
    parts = [_table_of_pairs(readers, rows_of(item, TensorPair)) for item, readers in tables.values()]
    of_one, of_two = ([one for one in judged if (len(one.subjects) > 1) is many] for many in (False, True))
    yield Tab(id="tensors", question="Is every tensor its source's?", judged=of_two, parts=parts)
    yield Tab(id="sound", question="Are the tensors sound?", judged=of_one)


def _table_of_pairs(judged: Sequence[Judged], pairs: Sequence[TensorPair]) -> Part:
    one = judged[0]
    offences = {offence.place: offence for offence in one.row.finding.verdict.offences}
    rows = []
    for pair in sorted(pairs, key=lambda pair: pair.name not in offences)[:TENSORS]:
        offence = offences.get(pair.name)
        happened = str(offence.figures.get("mechanism") or offence.code) if offence else "as its source"
        wrong = "-" if pair.differing_bytes is None else f"{pair.differing_bytes:,}"
        sides = (_side(pair.source_dtype, pair.source_shape), _side(pair.candidate_dtype, pair.candidate_shape))
        rows.append((pair.name, *sides, f"{pair.elements:,}", wrong, happened))
    bad = frozenset(index for index, row in enumerate(rows) if row[0] in offences)
    head = ("tensor", "source", "here", "elements", "differing bytes", "what happened")
    many = f"{len(rows)} of {len(pairs)} tensors" if len(rows) < len(pairs) else singular(f"{len(rows)} tensors")
    caption = f"{_judged_by(one)} {many}{', those that fail first' if 0 < len(bad) < len(rows) else ''}."
    if any(row[4] == "-" for row in rows):
        caption += " Bytes are not counted (-) where sizes differ or a cast explains every element."
    return Part(head=head, rows=tuple(rows), bad=bad, filtered=True, caption=caption, of=judged)


def _side(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype} [{', '.join(map(str, shape))}]" if dtype else "none"


def _changed(given: Sources) -> Tab:
    judged, parts, more = _of(given, "column_agreement", "fact_agreement"), list[Part](), ""
    found: list[tuple[float, str, Part]] = []  # at which step, in words, as a picture
    if given.base is not None:
        (here, _), there = given.courses(), courses_of(given.base)
        for name in [name for name in COMPARED if name in FIRST and name in here and name in there]:
            lines = [_line(there[name], printable(given.base_name)), _line(here[name], "this run")]
            said, at = _parting(given, here, there, name)
            marks = [] if at is None else [Mark("hit", f"differs from step {at} on", at)]
            picture = curves(name, promised_unit(name), lines, marks)
            part = Part(picture=picture, caption=f"{name}: {said} {NOT_JUDGED}")
            found.append((math.inf if at is None else at, f"{name}: {said}", part))
        found.sort(key=lambda one: one[0])  # what parts first may be why others do
        parts += [part for _, _, part in found]
        said_here, said_there = [dict(stated(one.facts)) for one in (given.run, given.base)] if given.run else ({}, {})
        names = [one for one in {**said_there, **said_here} if said_here.get(one) != said_there.get(one)]
        if facts := tuple((one, show(said_there.get(one)), show(said_here.get(one))) for one in names):
            head = ("fact", given.base_name, "this run")
            parts.append(Part(head=head, rows=facts, caption="What the two say of themselves."))
        more = found[0][1] if found else "No column is in both runs."
        first = [said.partition(":")[0] for at, said, _ in found if at == found[0][0] < math.inf]
        more = f"{' and '.join(first)} part first. {more}" if len(first) > 1 else more
        columns = ((one, given.run.column(one), given.base.column(one)) for one in COMPARED if given.run)
        both = {name: at_both(cells(mine), cells(theirs)) for name, mine, theirs in columns}
        same = ", ".join(name for name, rows in both.items() if found and rows and not any(map(parts_at, rows)))
        more += f" The same throughout: {same}." if same else ""
    pairs = ((one, other) for one, other in combinations(reversed(given.bundles), 2)
             if one.contract.id == other.contract.id and of_the_same(one, other))  # fmt: skip
    if newest := next(pairs, None):
        parts.append(_between(*reversed(newest)))
    return Tab(id="changed", question="What changed since the last good run?", judged=judged, more=more, parts=parts)


def _between(one: Bundle, other: Bundle) -> Part:
    """Return what differs between two bundles of one contract and one subject, figures apart."""
    apart = [(matter, at, both) for matter, places in differences(one, other).items() for at, both in places.items()]
    found = [(matter, at, *(side if isinstance(side, str) else show(side) for side in both))
             for matter, at, both in apart if matter != "figures"]  # fmt: skip
    caption = singular(f"{len(found)} places differ between the two newest bundles of {checked_by(other)}.")
    head = ("matter", "place", f"older, {one.id[:12]}", f"newer, {other.id[:12]}")
    return Part(head=head, rows=tuple(found[:DIFFERENT]), caption=caption, filtered=True)


def _parting(
    given: Sources, here: Mapping[str, StepCourse], there: Mapping[str, StepCourse], name: str
) -> tuple[str, float | None]:
    """Return in words where a column differs, to the bit where both runs are there, and the first such step."""
    one, other = (view.column(name) if view else None for view in (given.run, given.base))
    exact = one is not None and other is not None
    courses = (zip(course.step, course.least, strict=True) for course in (here[name], there[name]))
    rows = at_both(cells(one), cells(other)) if exact else at_both(*courses)
    apart, how = list(filter(parts_at, rows)), "to the bit" if exact else "to six digits"
    if not apart:
        return f"equal to the earlier run, {given.base_name}, {how} at every step that both have.", None
    far = {step: math.inf if math.isnan(a - b) else abs(a - b) for step, a, b in apart}
    where, (step, mine, theirs) = max(far, key=lambda one: far[one]), apart[0]
    both = [short(mine), short(theirs)]
    both = both if len({*both}) > 1 else [repr(mine), repr(theirs)]
    said = f"differs from step {step} on: {both[0]} here, {both[1]} in the earlier run, {given.base_name}; "
    before = f"equal {how} until then; " if rows[0] != apart[0] else ""
    return f"{said}{before}largest difference {far[where]:.4g} at step {where}.", step
