"""What was looked at without a contract, in lines: what it is, what could not be told, and last what looks wrong."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click

from weighbridge.cards.words import fill
from weighbridge.core import Fields, Finding, Outcome, Severity, SubjectKind, printable
from weighbridge.core.frozen import dataclass, replace
from weighbridge.evaluation.inspection import Inspection
from weighbridge.evaluation.parts import MODEL, Part
from weighbridge.evaluation.two_runs import Beside
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import capped, finding_text

LINES, CODES = 12, 5  # of one checkpoint; of these, so many codes
NOT_FINITE = ("not-finite", "non-finite")
EMPTY = "there is no tensor, so nothing was looked at"
ABSENT = ", {many} need what this log has not (--all lists them)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One thing that looks wrong: how grave, in which lines, what helps, and from which step on."""

    grave: tuple[bool, bool, bool]  # advisory, finite, of a checkpoint: the least is the gravest
    lines: tuple[str, ...]
    hints: tuple[str, ...] = ()
    step: int | None = None
    places: int = 1


def lines_of(found: Inspection, *, everything: bool) -> Iterator[str]:
    """Yield all that one file shows: of a checkpoint in twelve lines, unless everything is asked for."""
    run = found.kind is SubjectKind.RUN
    first = [click.style(printable(f"{found.target}: {found.kind}"), bold=True)]
    if run or everything:
        first += (f"  {name:<18} {_fact(fact, basis=True)}" for name, fact in found.facts.items())
    else:
        shown = (f"{name} {_fact(fact)}" for name, fact in found.facts.items())
        first += [f"  {', '.join(shown)}"]
    first += _looked_at(found)
    unknown, wrong = _unknown(found), _wrong(found, everything=everything)
    nothing = EMPTY if found.report and not found.report.tensors else "nothing"
    last = [*_passed(found, everything=everything), *_ended(unknown, wrong, _next(found), nothing)]
    table = list(_rows(found))
    room = max(LINES - len(first) - len(last), 1)
    most = len(table) if everything else 20 if run else room - (len(table) > room)
    yield from first
    yield from (f"  {line}" for line in (capped(table, most) if most else [f"{len(table)} tensors (--all lists them)"]))
    yield from last


def lines_of_parts(target: str, parts: Sequence[Part], *, everything: bool) -> Iterator[str]:
    """Yield what a folder of training shows: a line a part, then what looks wrong in any, and the last good one."""
    yield click.style(printable(f"{target}: a folder of training, {len(parts)} parts"), bold=True)
    width = max(len(part.name) for part in parts)
    unknown, wrong = list[str](), list[Wrong]()
    good, bad = "", False
    for part in parts:
        yield f"  {printable(part.name):<{width}}  {_part(part)}"
        own, left = _of_part(part, everything=everything)
        unknown += left
        wrong += own
        saved = part.name != MODEL and not part.says and (part.found is None or part.found.judged is None)
        good, bad = part.name if saved and not own and not bad else good, bad or bool(saved and own)
    if bad and good:
        yield f"  last in order      {printable(good)}"
    yield from _ended(unknown, wrong, _next_of(target, parts))


def _of_part(part: Part, *, everything: bool) -> tuple[list[Wrong], list[str]]:
    before = f"{printable(part.name)}: "
    if part.refused is not None:
        line = before + printable(f"{part.refused.what} ({part.refused.code}); {part.refused.remedy}")
        told = part.refused.code == "several-runs"
        return ([] if told else [Wrong(grave=(False, True, True), lines=(line,))]), ([line] if told else [])
    if part.found is None:
        return [], []
    found = _wrong(part.found, everything=everything)
    named = [replace(one, lines=tuple(before + line for line in one.lines)) for one in found]
    return named, [before + line for line in _unknown(part.found)] + (
        [before + EMPTY] if part.found.report and not part.found.report.tensors else []
    )


def _part(part: Part) -> str:
    if part.found is None:
        return printable(part.says) if part.refused is None else "not read"
    fact = {name: _fact(one) for name, one in part.found.facts.items()}
    if part.found.kind is SubjectKind.CHECKPOINT:
        return f"{fact.get('tensors')} tensors, {fact.get('bytes')} bytes, {fact.get('dtypes')}"
    asked = f" of {fact['requested_steps']}" if "requested_steps" in fact else ""
    loss = part.found.table.get("loss")
    between = fill(", loss between {min:.6g} and {max:.6g}", loss) if loss and loss["min"] is not None else ""
    return f"{fact.get('steps')} steps, the last {fact.get('last_step')}{asked}{between}"


def _fact(fact: Any, *, basis: bool = False) -> str:
    if not isinstance(fact, Mapping):
        return str(fact)
    contradicted = f", contradicted by {fact['contradicted_by']}" if fact.get("contradicted_by") else ""
    said = fill("{value}", {"value": fact.get("value")})
    return f"{said}  ({fact.get('basis')}{contradicted})" if basis else said + contradicted


def _looked_at(found: Inspection) -> Iterator[str]:
    report = found.report
    if report is None or not report.tensors:
        return
    for how, many in report.packed.items():
        yield f"  packed weights     {many} by {printable(how)}"
    if report.labels["decided"] or not report.packed:  # codes and scales are nothing that this could be told of
        says = "  stored dtypes      {vote}: {decided} of {tensors} tensors decided; undecided: {why}"
        yield fill(says, report.labels)
    yield fill("  precision          {precision}", report.labels)


def _passed(found: Inspection, *, everything: bool) -> Iterator[str]:
    if found.judged is None:
        return
    by = [one.verdict.outcome for one in found.judged.findings]
    absent = [one for one in found.judged.findings if one.verdict.outcome is Outcome.NOT_APPLICABLE]
    yield f"  gates              {by.count(Outcome.PASS)} passed" + (ABSENT.format(many=len(absent)) if absent else "")
    for one in absent if everything else ():
        yield f"    {one.kind:<22} {', '.join(finding_text(one, found.judged.measured).lines)}"


def _unknown(found: Inspection) -> list[str]:
    if found.judged is None:
        return ["the values, which --headers leaves unread"] if found.report is None else []
    held = [one for one in found.judged.findings if one.verdict.outcome in (Outcome.BLOCKED, Outcome.ERROR)]
    said = (f"{_rank(one)}{one.kind}: {finding_text(one, found.judged.measured).lines[0]}" for one in held)
    every = found.facts.get("logging_steps")
    seldom = [f"it was logged every {_fact(every)} steps: train with logging_steps=1"] if every else []
    return [*dict.fromkeys(said), *seldom]


def _rank(one: Finding) -> str:
    return f"[{one.instance}] " if one.instance != DEFAULT else ""


def _wrong(found: Inspection, *, everything: bool) -> list[Wrong]:
    if found.judged is None:
        return [*_wrong_tensors(found, everything=everything)] if found.report else []
    wrong = []
    for one in (one for one in found.judged.findings if one.verdict.outcome is Outcome.FAIL):
        said = finding_text(one, found.judged.measured)
        lines = said.lines if everything else capped(said.lines, 3)
        grave = one.severity is Severity.ADVISORY, one.verdict.code not in NOT_FINITE, False
        lines = tuple(_rank(one) + line for line in lines)
        wrong.append(Wrong(grave=grave, lines=lines, hints=said.hints, step=_step(one)))
    return wrong


def _step(one: Finding) -> int | None:
    steps = (of.figures.get("first_step", of.figures.get("step")) for of in one.verdict.offences)
    return min((step for step in steps if isinstance(step, int)), default=None)


def _wrong_tensors(found: Inspection, *, everything: bool) -> Iterator[Wrong]:
    """Yield what looks wrong of each code: the first place and how many more there are, or all places."""
    assert found.report is not None
    by_code: dict[str, list[str]] = {}
    for one in found.report.findings:
        by_code.setdefault(one["code"], []).append(one["says"])
    for code, says in by_code.items():
        more = f" (+{len(says) - 1} more {code})" if len(says) > 1 else ""
        lines = says if everything else [says[0] + more]
        yield Wrong(grave=(False, code not in NOT_FINITE, True), lines=tuple(lines), places=len(says))


def _ended(unknown: list[str], wrong: list[Wrong], again: str, nothing: str = "nothing") -> Iterator[str]:
    """Yield what could not be told, what looks wrong, the worst first and no line twice, and where to look next."""
    if unknown:
        yield f"  could not be told  {len(unknown)}"
        yield from (f"    {line}" for line in unknown)
    lines, seen, places = list[str](), set[str](), 0
    for one in sorted(wrong, key=lambda one: one.grave):
        new = [line for line in one.lines if line not in seen]
        hints = [hint for hint in one.hints if hint not in seen] if new else []
        seen.update(new, hints)
        places += one.places if new else 0
        lines += [*(f"    {line}" for line in new), *(click.style(f"      {hint}", dim=True) for hint in hints)]
    yield click.style(f"  looks wrong        {places or nothing}", fg="red" if wrong or nothing == EMPTY else None)
    yield from lines
    if steps := [one.step for one in wrong if one.step is not None]:
        yield f"  look at            step {min(steps)}"
    yield f"  next               {printable(again)}"


def _next(found: Inspection) -> str:
    named = {SubjectKind.RUN: "training-run" if "pid" in found.facts else "training-log"}
    contract = named.get(found.kind, "checkpoint-health")
    return f"weighbridge verify builtin:{contract} --subject {found.kind}={shlex.quote(found.target)}"


def _next_of(target: str, parts: Iterable[Part]) -> str:
    log = next((one.found for one in parts if one.found and one.found.kind is SubjectKind.RUN), None)
    if log is not None:
        return f"weighbridge verify builtin:training-log --subject run={shlex.quote(target)}"
    saved = [one.target for one in parts if one.found and one.found.kind is SubjectKind.CHECKPOINT]
    return f"weighbridge verify builtin:checkpoint-health --subject checkpoint={shlex.quote((saved or [target])[-1])}"


def _rows(found: Inspection) -> Iterator[str]:
    run = found.kind is SubjectKind.RUN
    if run:
        yield f"{'column':<18} {'samples':>8} {'missing':>8} {'min':>14} {'max':>14}  basis"
    row: Callable[[Fields], str] = _column if run else _tensor
    yield from (row({**one, "name": name}) for name, one in found.table.items())


def _column(shown: Fields) -> str:
    return fill("{name:<18} {samples:>8} {missing:>8} {min:>14.6g} {max:>14.6g}  {basis}", shown)


def _tensor(shown: Fields) -> str:
    more = "  {used_bits} of {mantissa_bits} bits used" if shown.get("used_bits") is not None else ""
    label = "  stored dtype {label}" if shown.get("label", "undecided") != "undecided" else ""
    if shown.get("mean") is not None:
        label += "  mean {mean:.4g}, std {std:.4g}, {min:.4g} to {max:.4g}"
    return fill("{name:<40} {dtype:<8} [{shape}]  {bytes} bytes" + more + label, shown)


def lines_of_two(both: tuple[Inspection, Inspection], found: Beside) -> Iterator[str]:
    """Yield where two runs part, what looks wrong in each, and last which one ends worse."""
    first, second = (printable(one.target) for one in both)
    yield click.style(f"{first}, {second}: two runs", bold=True)
    for name, many in found.steps.items():
        step, *values = found.parts.get(name, (None,))
        parted = f"parts at step {step} ({values[0]:.6g}, {values[1]:.6g})" if values else "the same throughout"
        yield f"  {name:<18} {many} steps of both: {parted}"
    if found.above:
        step, side = found.above
        yield f"  {'loss, for good':<18} {second if side > 0 else first} is above the other from step {step} on"
    unknown = [] if found.steps else ["where they part: no column that is compared is logged at a step of both"]
    wrong = list[Wrong]()
    for one in both:
        own, left = _of_part(Part(name=one.target, target=one.target, found=one), everything=False)
        wrong, unknown = [*wrong, *own], [*unknown, *left]
    last = list(_ended(unknown, wrong, _next(both[found.worse or 0])))
    yield from last[:-1]
    yield f"  {'worse':<18} " + (
        f"{(first, second)[found.worse]}: {found.by}" if found.worse is not None else "neither"
    )
    steps = [row[0] for row in found.parts.values()]
    if steps:
        yield f"  {'they part at':<18} step {min(steps)}"
    yield last[-1]
