"""`weighbridge inspect`: show what files contain and what looks wrong in them; writes nothing."""

import shlex
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import click

from weighbridge.cards.words import fill
from weighbridge.cli.options import Texts, as_json, print_json, progress, tell, verb
from weighbridge.comparison.adapters import LINEAR
from weighbridge.core import ExitCode, Fields, Json, Outcome, Severity, SubjectKind, UsageError, plain, printable
from weighbridge.core.frozen import dataclass
from weighbridge.evaluation import inspection
from weighbridge.gates.label_plausibility import CODES, OK, UNDECIDED
from weighbridge.judging.requests import DEFAULT
from weighbridge.report import NAMED, capped, finding_text, verdict_lines
from weighbridge.report.machine import finding_json
from weighbridge.report.rows import row_of

EXAMPLES = ("model.gguf", "out", "runs/a runs/b", "model.gguf --values 8 'blk.0.*'")
VALUES = "Show the first N values of the tensors whose names match, decoded, and nothing else."
STRICT = "Exit 1 where something looks wrong, 3 where too little could be looked at. --strict=all counts advice, too."
HEALTH = "checkpoint-health"
LINES, RUN_LINES = 12, 20  # of one checkpoint; of the columns of a run
IMPLAUSIBLE, FEW = "implausible", "looks wrong where more than half of the elements are so"
NOT_FINITE, UNTOLD = ("not-finite", "non-finite", "non-finite-beside"), ("several-runs", "no-rows", "unknown-format")
EMPTY, UNREAD = "there is no tensor, so nothing was looked at", "the values, which --headers leaves unread"
WIDEST = 34  # columns for a name, from which on those behind it move
TABLE = f"{{column}} {'samples':>7} {'missing':>7} {'min':>12} {'max':>12}  basis"
COLUMN = "{name} {samples:>7} {missing:>7} {min:>12.6g} {max:>12.6g}  {basis}"


class _Strict(click.Command):
    """A verb of which `--strict=all` is a flag beside `--strict`; as one option it would take the file behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, ["--strict-all" if one == "--strict=all" else one for one in args])


@verb("inspect", "Show what a checkpoint or run log contains.", *EXAMPLES, cls=_Strict)
@click.argument("files", metavar="FILE [OTHER]", nargs=-1, required=True)
@click.option("--all", "everything", is_flag=True, help="List every tensor and every problem, with statistics.")
@click.option("--headers", is_flag=True, help="Read only the headers of a checkpoint, not its values.")
@click.option("--values", type=(click.IntRange(1, 10_000), str), metavar="N GLOB", help=VALUES)
@click.option("--strict", is_flag=True, help=STRICT)
@click.option("--strict-all", is_flag=True, hidden=True)
@as_json
def command(
    files: Texts,
    *,
    everything: bool,
    headers: bool,
    values: tuple[int, str] | None,
    as_json: bool,
    strict: bool,
    strict_all: bool,
) -> None:
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
        parts = [] if others else inspection.parts_of(file)
        looked = list(inspection.look_at(parts, verdict_lines, show, headers=headers, moments=everything))
        how: Any = {"headers": headers, "moments": everything, "progress": show}
        targets = [] if parts else list(map(inspection.run_in, files)) if others else [file]
        found = [inspection.inspect(one, verdict_lines, **how) for one in targets]
    two = inspection.beside(found[0], found[1]) if others else None
    if as_json and (parts or two):
        each = {"parts": list(map(_part_json, looked))} if parts else {"runs": list(map(_document, found))}
        print_json({"file": list(files), **each, **({"beside": plain(two)} if two else {})})
    elif as_json:
        print_json(_document(found[0]))
    else:
        of_several = lines_of_two(found, two) if two else None
        lines = lines_of_parts(file, looked, everything=everything) if parts else of_several
        *said, again = lines or lines_of(found[0], everything=everything)
        tell(said)
        tell([again], whole=True)  # to be copied
    looked = looked or [inspection.Part(name=one.target, target=one.target, found=one) for one in found]
    if strict or strict_all:
        sys.exit(_strict(looked, advice=strict_all))


def _show_values(file: str, values: tuple[int, str], *, as_json: bool) -> None:
    decoded = inspection.first_values(file, *values)
    if as_json:
        print_json({"file": file, "values": decoded})
    for name, row in decoded.items() if not as_json else ():
        first = row["values"]
        shown = ", ".join(map(str, first)) or "no value" if isinstance(first, list) else "not decoded"
        tell([fill("{name:<40} {dtype:<8} [{shape}]  {shown}", {**row, "name": name, "shown": shown})])


def _document(found: inspection.Inspection) -> dict[str, Json]:
    document: dict[str, Json] = {"file": found.target, "kind": found.kind, "facts": found.facts, "table": found.table}
    if report := found.report:
        document |= {"findings": report.findings, "labels": report.labels, "health": report.health}
    if judged := found.judged:
        document["judged"] = [finding_json(row_of(judged.contract, one, judged.measured)) for one in judged.findings]
    return document


def _part_json(part: inspection.Part) -> dict[str, Json]:
    refused = {"refused": {"code": part.refused.code, "what": part.refused.what}} if part.refused else {}
    return {"name": part.name, "says": part.says, **refused, **(_document(part.found) if part.found else {})}


def _strict(parts: Sequence[inspection.Part], *, advice: bool) -> ExitCode:
    """Return whether something looks wrong in any part, as advice or not, and whether each could be looked at."""
    refused = any(part.refused and part.refused.code not in UNTOLD for part in parts)
    found = [part.found for part in parts if part.found]
    of_runs = (one for of in found if of.judged for one in of.judged.findings if one.verdict.outcome is Outcome.FAIL)
    failed = any(advice or one.severity is not Severity.ADVISORY for one in of_runs)
    if refused or failed or any(one.report and one.report.findings for one in found):
        return ExitCode.FAILED
    alone = len(parts) == 1
    looked = all(part.found is not None and _was_looked_at(part.found, alone) for part in parts if not part.says)
    return ExitCode.PASSED if looked else ExitCode.BLOCKED


def _was_looked_at(found: inspection.Inspection, alone: bool) -> bool:
    """Return whether a checkpoint was, with dtypes if it is `alone`, or steps and loss of a log by its first gate."""
    if found.judged is None:
        report = found.report
        return bool(report and not report.unseen and not (report.undecided if alone else not report.tensors))
    first = [one.verdict.outcome for one in found.judged.findings if one.gate == found.judged.findings[0].gate]
    return all(outcome is Outcome.PASS for outcome in first)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong:
    """One thing that looks wrong, at so many places: how grave, in which lines, what helps, and from which step on."""

    grave: tuple[bool, bool, bool]  # advisory, finite, of a checkpoint: the least is the gravest
    lines: tuple[str, ...]
    hints: tuple[str, ...] = ()
    step: int | None = None
    places: int = 1


Seen: TypeAlias = tuple[list[str], list[Wrong]]  # what could not be told of a part, and what looks wrong in it


def lines_of(found: inspection.Inspection, *, everything: bool) -> Iterator[str]:
    """Yield all that one file shows: of a checkpoint in twelve lines, unless everything is asked for."""
    run = found.kind is SubjectKind.RUN
    first = [click.style(printable(f"{found.target}: {found.kind}"), bold=True)]
    if run or everything:
        first += (f"  {name:<18} {_fact(fact, basis=True)}" for name, fact in found.facts.items() if _fact(fact))
    else:
        first.append(f"  {', '.join(f'{name} {_fact(fact)}' for name, fact in found.facts.items())}")
    first += _adapter(found)
    first += _dtypes(found.report) if found.report and found.report.tensors else ()
    nothing = EMPTY if found.report and not found.report.tensors else "nothing"
    of = inspection.Part(name="", target=found.target, found=found)
    last = [*_passed(found, everything=everything), *_ended([(of, _seen(of, everything=everything))], nothing)]
    wide = min(max([17, *map(len, found.table)]), WIDEST) + 1
    named = ({**one, "name": name.ljust(wide)} for name, one in found.table.items())
    rows = [*([TABLE.format(column="column".ljust(wide))] if run else []), *(_row(one, run=run) for one in named)]
    room = RUN_LINES if run else LINES - len(first) - len(last)
    most = len(rows) if everything else max(room - (len(rows) > room and not run), 0)
    yield from first
    yield from (f"  {line}" for line in (capped(rows, most) if most else [f"{len(rows)} tensors (--all lists them)"]))
    yield from last


def _adapter(found: inspection.Inspection) -> Iterator[str]:
    """Yield what an adapter is made for: alone it is no model, and no gate of one can say that it is whole."""
    shapes: list[Any] = [one["shape"] for name, one in found.table.items() if name.endswith(LINEAR[0])]
    if shapes:
        ranks = ", ".join(map(str, sorted({shape[0] for shape in shapes if shape})))
        base = "needs its base; compare BASE MERGED --adapter DIR"
        yield f"  adapter            LoRA of {len(shapes)} module{'s' * (len(shapes) > 1)}, rank {ranks}: {base}"


def lines_of_parts(target: str, parts: Sequence[inspection.Part], *, everything: bool) -> Iterator[str]:
    """Yield what a folder of training shows: a line a part, then what looks wrong in any, and the last good one."""
    yield click.style(printable(f"{target}: a folder of training, {len(parts)} parts"), bold=True)
    width = max(len(part.name) for part in parts)
    seen = [(part, _seen(part, everything=everything)) for part in parts]
    good, bad = "", False
    for part, (_, wrong) in seen:
        yield f"  {printable(part.name):<{width}}  {_part(part)}"
        if part.name != inspection.MODEL and not part.says and (part.found is None or part.found.judged is None):
            bad = bad or bool(wrong)
            good = good if bad else part.name
    if bad and good:
        yield f"  last in order      {printable(good)}"
    yield from _ended(seen, whole=target if any(part.found and part.found.judged for part in parts) else "")


def lines_of_two(both: Sequence[inspection.Inspection], found: inspection.Beside) -> Iterator[str]:
    """Yield where two runs part, what looks wrong in each, and last which one ends worse."""
    names = [printable(one.target) for one in both]
    yield click.style(f"{', '.join(names)}: two runs", bold=True)
    for name, many in found.steps.items():
        step, *values = found.parts.get(name, (None,))
        parted = f"parts at step {step} ({values[0]:.6g}, {values[1]:.6g})" if values else "the same throughout"
        yield f"  {name:<18} {many} steps of both: {parted}"
    if not found.steps:
        yield "  where they part    not known: no column that is compared is logged at a step of both"
    begins = [fill("{min:g}", one.table["step"]) if "step" in one.table else "" for one in both]
    if begins.count("0") == 1 and all(begins):  # a recorder counts what was done before, a Trainer what is done
        each = " and ".join(f"{at} in {name}" for at, name in zip(begins, names, strict=True))
        yield f"  first step         {each}: an update may have another number in each"
    if found.above:
        step, side = found.above
        yield f"  loss, for good     {names[side > 0]} is above the other from step {step} on"
    worse = found.worse or 0
    parts = [inspection.Part(name=one.target, target=one.target, found=one) for one in (both[worse], both[1 - worse])]
    *last, again = _ended([(part, _seen(part, everything=False)) for part in parts])
    yield from last
    yield f"  worse              {'neither' if found.worse is None else f'{names[worse]}: {found.by}'}"
    if found.parts:
        first = min(row[0] for row in found.parts.values())
        by = [name for name in found.steps if name in found.parts and found.parts[name][0] == first]
        same = [name for name in found.steps if name not in found.parts]
        yield f"  they part at       step {first}, by {', '.join(by)}{'; not by ' * bool(same)}{', '.join(same)}"
    yield again


def _seen(part: inspection.Part, *, everything: bool) -> Seen:
    """Return what could not be told of a part, and what looks wrong in it."""
    before, found = f"{printable(part.name)}: " if part.name else "", part.found
    if part.refused is not None:
        line = before + printable(f"{part.refused.what} ({part.refused.code}); {part.refused.remedy}")
        untold = part.refused.code in UNTOLD
        return [line] * untold, [Wrong(grave=(False, True, True), lines=(line,))] * (not untold)
    if found is None:
        return [], []
    if found.judged is None:
        if (report := found.report) is None:
            return [before + UNREAD], []
        unseen = [EMPTY] * bool(part.name and not report.tensors) + capped(report.unseen, 3)
        unseen += (f"stored dtypes: {line}" for line in report.undecided if report.tensors and not part.name)
        return [before + line for line in unseen], list(_tensors(report, before, everything=everything))
    unknown, wrong = list[str](), list[Wrong]()
    for one in found.judged.findings:
        said, rank = finding_text(one, found.judged.measured), f"[{one.instance}] " if one.instance != DEFAULT else ""
        if one.verdict.outcome in (Outcome.BLOCKED, Outcome.ERROR):
            unknown.append(f"{before}{rank}{one.kind}: {said.lines[0]}")
        if one.verdict.outcome is Outcome.FAIL:
            lines = tuple(before + rank + line for line in (said.lines if everything else capped(said.lines, 3)))
            grave = one.severity is Severity.ADVISORY, one.verdict.code not in NOT_FINITE, False
            steps = [of.figures.get("first_step", of.figures.get("step")) for of in one.verdict.offences]
            step = min((step for step in steps if isinstance(step, int)), default=None)
            wrong.append(Wrong(grave=grave, lines=lines, hints=said.hints, step=step))
    if every := found.facts.get("logging_steps"):
        unknown.append(f"{before}it was logged every {_fact(every)} steps: train with logging_steps=1")
    return list(dict.fromkeys(unknown)), wrong


def _tensors(report: inspection.CheckpointReport, before: str, *, everything: bool) -> Iterator[Wrong]:
    """Yield what looks wrong of each code: the first place and how many more there are, or all places."""
    for code in dict.fromkeys(one["code"] for one in report.findings):
        says = [before + one["says"] for one in report.findings if one["code"] == code]
        more = f" (+{len(says) - 1} more {code})" if len(says) > 1 else ""
        lines = tuple(says) if everything else (says[0] + more,)
        yield Wrong(grave=(False, code not in NOT_FINITE, True), lines=lines, places=len(says))


def _ended(seen: Sequence[tuple[inspection.Part, Seen]], nothing: str = "nothing", *, whole: str = "") -> Iterator[str]:
    """Yield what could not be told, what looks wrong, the worst first and no line twice, and where to look next."""
    if unknown := [line for _, (left, _) in seen for line in left]:
        yield f"  could not be told  {len(unknown)}"
        yield from (f"    {line}" for line in unknown)
    wrong = sorted((one for _, (_, of_part) in seen for one in of_part), key=lambda one: one.grave)
    lines, places = dict[str, str](), 0
    for one in wrong:
        new = [line for line in one.lines if line not in lines]
        places += one.places if new else 0
        hints = [hint for hint in one.hints if new and hint not in lines]
        lines |= {line: f"    {line}" for line in new}
        lines |= {hint: click.style(f"      {hint}", dim=True) for hint in hints}
    advice = sum(one.places for one in wrong if one.grave[0])
    said = f"{places or nothing}{f' ({advice} as advice)' if advice else ''}"
    yield click.style(f"  looks wrong        {said}", fg="red" if wrong or nothing == EMPTY else None)
    yield from lines.values()
    if steps := [one.step for one in wrong if one.step is not None]:
        yield f"  look at            step {min(steps)}"
    read = [(part.found, bool(wrong) and wrong[0] in mine) for part, (_, mine) in seen if part.found]
    found = max(read, key=lambda one: one[1])[0] if read else None  # the part of what is worst, else the first
    run = found is not None and found.judged is not None
    kind = (inspection.RECORDED if found and "pid" in found.facts else inspection.LOGGED) if run else HEALTH
    target = (whole if run else "") or (found.target if found else seen[0][0].target)
    subject = f"{'run' if run else 'checkpoint'}={shlex.quote(target)}"
    report = found.report if found and not wrong else None
    undecided: Any = report.labels["why"] if report and report.undecided else ()
    more = " --gate GATE-HEALTH-001" if undecided else ""  # the other one is BLOCKED
    asked = found.facts.get("requested_device") if found and kind == inspection.RECORDED else None
    if isinstance(asked, Mapping):
        more = f" --param device={printable(shlex.quote(str(asked['value'])))}"  # what resolved otherwise FAILs by it
    shown = f"verify builtin:{kind} --subject {printable(subject)}{more}"
    alone = found.report.findings if found and found.report else ()
    own = bool(alone) and all(one["code"] == "file-type" for one in alone)  # which no gate of a checkpoint looks at
    if own or CODES in undecided:  # of a quantised file its source tells more
        shown = f"compare SOURCE {printable(shlex.quote(target))}"
    yield f"  next               weighbridge {shown}"


def _part(part: inspection.Part) -> str:
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


def _dtypes(report: inspection.CheckpointReport) -> Iterator[str]:
    for how, many in report.packed.items():
        yield f"  packed weights     {many} by {printable(how)}"
    if report.labels["decided"] or not report.packed:  # codes and scales are nothing that this could be told of
        counts = Counter(row["label"] for row in report.tensors.values())
        why: Any = report.labels["why"]
        decided = sorted((one for one in counts.items() if one[0] != UNDECIDED), key=lambda one: one[0] != OK)
        counted = [f"{many} {label}" for label, many in decided]
        causes = fill("{why}" if len(why) > 1 else next(iter(why), ""), {"why": why})
        counted += [f"{counts[UNDECIDED]} undecided ({causes})"] if counts[UNDECIDED] else []
        yield f"  stored dtypes      {', '.join(counted)}"
        listed = {one["place"] for one in report.findings if one["code"] == IMPLAUSIBLE}
        odd = [name for name, row in report.tensors.items() if row["label"] == IMPLAUSIBLE and name not in listed]
        if odd:
            yield printable(f"  like no weights    {', '.join(capped(odd, NAMED))}: {FEW}")
    yield fill("  precision          {precision}", report.labels)


def _passed(found: inspection.Inspection, *, everything: bool) -> Iterator[str]:
    if (judged := found.judged) is None:
        return
    absent = [one for one in judged.findings if one.verdict.outcome is Outcome.NOT_APPLICABLE]
    lacking = f", {len(absent)} need what this log has not (--all lists them)" if absent else ""
    yield f"  gates              {sum(one.verdict.outcome is Outcome.PASS for one in judged.findings)} passed{lacking}"
    if everything:
        yield from (f"    {one.kind:<22} {', '.join(finding_text(one, judged.measured).lines)}" for one in absent)


def _row(shown: Fields, *, run: bool) -> str:
    if run:
        return fill(COLUMN, {**shown, "basis": str(shown["basis"]).removeprefix("derived (").removesuffix(")")})
    more = "  {used_bits} of {mantissa_bits} bits" if shown.get("used_bits") is not None else ""
    label = "  {label}" if shown.get("label", "undecided") != "undecided" else ""
    if shown.get("mean") is not None:
        label += "  mean {mean:.4g}, std {std:.4g}, {min:.4g} to {max:.4g}"
    return fill("{name} {dtype:<4} [{shape}]  {bytes} bytes" + more + label, shown)
