"""A comparison of two checkpoints in words: the worst first, the rest counted by class."""

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import click

from weighbridge.core import Faulted, Fields, Finding, Measurement, Offence, Outcome, TrialResult, printable
from weighbridge.core.canonical import grouped
from weighbridge.evaluation.import_comparison import NOT_COMPARED, TENSORS, ImportComparison, policy_that_passes
from weighbridge.evaluation.runner import Evaluation
from weighbridge.gates.families.block_types import BOUND, TYPICAL_ERROR
from weighbridge.gates.families.harmless_keys import PACKING
from weighbridge.gates.value_preservation import RANK, Class
from weighbridge.model_config.model_defaults import CONVERTER
from weighbridge.quantities.tensors import PADDED, MomentChanges, TensorPair
from weighbridge.report import COLOURS, LISTED, NAMED, by_cause, capped, finding_text, verdict_lines

Moments: TypeAlias = Mapping[str, MomentChanges]
Passes: TypeAlias = Callable[[Fields], bool]
SHOWN = 20
AUTOMATIC = ("renamed", "identity, ", "from gguf:auto")  # how a mapping is called that was found
WORST = (Class.DIFFERENT, Class.MISSING, Class.EXTRA, Class.LAYOUT_ONLY)
AS_MEANT = "{of} of {of} tensors are what was meant, {elements} elements ({classes})"  # as the card says it, unread
ONE_CONFIGURATION = "config-one-sided"
EMPTY = "config-empty"  # there is a config.json, which is no reason not to compare
SIDES = ("source", "candidate")
CONTAINERS = ("I32", "U32", "I64", "I16", "U8")  # of several codes each
LOST = "the converter is known to lose {}; `may_differ` in a contract accepts it, with reasons"
GROWN = "the vocabulary was padded, and every row that it had is compared: {}"
OF_VOCABULARY = ("vocab_size", "token_types", "tokens")
EXCHANGE, MEANT = "exchange the two? ", "meant? it passes with "
ALONE = "missing", "extra"  # of one side
MANY = 4  # tensors of one cause, which a line then tells together
UNSHOWN = "dropped by the converter's rule, not shown to be superfluous"
RENAMED = "names match after one rename: {matched} of the import's {of} tensors then have a source, {now} have one now"
IN_WORDS = {
    "not-read": "not read",
    "dtype": "wrong dtype",
    "shape": "wrong shape",
    "content": "changed",
    "bound": "beyond the error of its type",
    "packing": "packed unasked",
    "codes": "not the nearest codes",
    "distance": "codes too far off",
    "factor": "scales off by a factor",
    "groups": "scales of other groups",
    "outputs": "output channels of others",
    "adapter": "not as merged",
    "unmade": "not made as meant",
    "file-type": "of another file type",
    "unloadable": "that no loader unpacks",
}


def comparison_lines(
    one: ImportComparison, *, tensors: str, everything: bool, headers: bool, moments: Moments, passes: Passes
) -> Iterator[str]:
    """Yield what broke, worst first, what remains by class, and the answer; `tensors` is a glob of names to list."""
    evaluation, rows = one.evaluation, one.pairs
    finding, _ = evaluation.findings
    figures: Any = finding.verdict.figures
    last = click.style(answer(one), fg=COLOURS[outcome(evaluation)], bold=True)
    if headers and finding.verdict.code == "not-compared":
        yield "  stored dtypes and shapes are what was meant; content was not compared"
        yield from (*_configuration(one, everything=everything), last)
        return
    if finding.verdict.outcome is Outcome.PASS:
        classes = ", ".join(map(str, figures["classes"]))
        whose = AS_MEANT.replace("was meant", "the file declares") if one.policy.why else AS_MEANT
        yield "  " + whose.format(of=finding.verdict.of, elements=figures["elements"], classes=classes)
    else:
        said = finding_text(finding, evaluation.measured)
        alone = len(finding.verdict.offences) + 1 if everything else MANY
        lines, whole = list(said.lines), unmapped(one)
        if finding.verdict.offences:
            lines = list(_by_cause(finding, tensors, alone, ALONE if whole and not everything else ()))
        yield from [click.style(f"  no rule: {printable(whole)}", bold=True)] if whole else ()
        yield from (f"  {line}" for line in (lines if everything else capped(lines, SHOWN)))
        yield from (click.style(f"  {hint}", dim=True) for hint in (said.hints if lines else ()))
        yield from (click.style(f"  {why}", bold=True) for why in exchanged(finding.verdict.offences, rows))
        yield from (click.style(f"  known: {fault}", bold=True) for fault in known_faults(evaluation))
    if rows and not fnmatch.filter((row.name for row in rows), tensors):
        yield printable(f"  --tensors {tensors!r} matches none of {len(rows)} names, so no tensor is listed")
    yield from (f"  {line}" for line in mapped(evaluation))
    aside = Counter(row.left_out for row in rows if row.left_out)
    yield from (printable(f"  {count} left out: {why}") for why, count in aside.items())
    noted = figures.get("beside") or ()
    yield from (f"  not read: {printable(str(one))}" for one in (noted if everything else capped([*map(str, noted)])))
    if finding.verdict.outcome is not Outcome.PASS:
        yield from (click.style(f"  {line}", bold=True) for line in renamed(rows, passes))
    if everything:
        yield from (f"  {line}" for line in _table(one, tensors, moments))
    if rows and finding.verdict.outcome is not Outcome.PASS:  # a pass has said so
        counts = Counter(one.classes.values())
        yield "  " + ", ".join(f"{counts[name]} {name}" for name in (*map(str, Class), NOT_COMPARED) if counts[name])
    yield from (f"  {count} {UNSHOWN}: {what}" for what, count in one.dropped.items())
    if lost := losses(one):
        yield f"  lost: {lost}"
    yield from _configuration(one, everything=everything)
    if options := _meant(one):
        yield click.style(f"  {MEANT}{options}", bold=True)
    yield last


def _meant(one: ImportComparison) -> str:
    (finding, configuration), limits = one.evaluation.findings, one.policy.limits
    options: list[str] = []
    passed = finding.verdict.outcome is Outcome.PASS
    if finding.verdict.outcome is Outcome.FAIL or (passed and one.lossy and one.policy.why):
        policy = policy_that_passes(one.evaluation, one.gate, finding.instance, finding.verdict)
        alone = f"--policy {policy}" if [*limits] == ["policy"] else f"`policy: {policy}` in the file of --policy"
        options = [alone] if policy else []
    if not passed and not options:
        return ""
    if configuration.verdict.outcome is Outcome.FAIL:  # judged field by field, so it passes without those that differ
        known = {*_lost(configuration), *_grown(one.evaluation, configuration)}
        names = [f"--may-differ {name.place}" for name in configuration.verdict.offences if name.place in known]
        options = [*options, *names] if len(known) == len(configuration.verdict.offences) else []
    return " ".join(options)


def _lost(configuration: Finding) -> list[str]:
    read = {one.place: [one.figures.get(f"{side}_read") for side in SIDES] for one in configuration.verdict.offences}
    return [place for place, how in read.items() if any(CONVERTER in str(one) for one in how)]


def _grown(evaluation: Evaluation, configuration: Finding) -> list[str]:
    padded = any(how.endswith(PADDED) for how in mapped(evaluation))
    return [one.place for one in configuration.verdict.offences if padded and one.place in OF_VOCABULARY]


def losses(one: ImportComparison) -> str:
    """Return how many tensors are of a type that holds less than the source's, by their types; "" without any."""
    lossy, of = one.lossy, len(one.pairs)
    kinds = Counter(f"{row.source_dtype} -> {_type(row)}" for row in lossy)
    worst = max((row.relative_rmse for row in lossy if row.relative_rmse), default=None)
    error = f"; relative error up to {worst:.2g}" if worst else ""
    counted = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{len(lossy)} of {of} tensors are of a type that holds less: {counted}{error}" if lossy else ""


def _type(row: TensorPair) -> str:
    packed = row.packed.rpartition(" and ")[2] if row.candidate_dtype in CONTAINERS else ""
    bits = re.match(r"(\S+) \((\d+) bits", packed)
    return printable(f"{bits[2]}-bit {bits[1].upper()}" if bits else packed or row.candidate_dtype or "nothing")


def outcome(evaluation: Evaluation) -> Outcome:
    """Return the worst of what counts."""
    counts = [found.verdict.outcome for found in counted(evaluation)]
    return next(one for one in (Outcome.ERROR, Outcome.FAIL, *counts) if one in counts)


def known_faults(evaluation: Evaluation) -> Iterator[str]:
    """Yield what the converter is known to do wrong, where that is what was found."""
    from weighbridge.mapping.gguf_rules import rules

    plans = " ".join(one.at for one in evaluation.measured.values() if isinstance(one, Measurement))
    found = [(one.place, {one.code, one.figures.get("mechanism")}) for one in evaluation.findings[0].verdict.offences]
    for fault in rules().faults if found else ():
        known = any(fault.found in how and re.fullmatch(fault.names, place) for place, how in found)
        if known and any(f"gguf:auto ({family})" in plans for family in fault.of):
            yield fault.why


def exchanged(offences: Sequence[Offence], rows: Sequence[TensorPair]) -> Iterator[str]:
    """Yield what makes it likely that source and import were named in the wrong order; a hint, never a verdict."""
    if any(offence.figures.get("mechanism") == "swapped" for offence in offences):
        if not any(row.packed or (row.candidate_dtype in BOUND and row.source_dtype not in BOUND) for row in rows):
            yield EXCHANGE + "rounding the import gives the source: the import is the wider one"
        else:
            yield "the import was made of a wider original, which rounds to this source: compare it with that one"
    lost = set()
    for offence in offences:  # plain numbers stand where blocks were, and are not those that the blocks decode to
        packed, dtype = offence.figures.get("packed"), offence.figures.get("source_dtype")
        was = dtype if offence.code == "dtype" else packed
        if was in TYPICAL_ERROR and offence.figures.get("candidate_dtype") not in TYPICAL_ERROR:
            lost.add(str(packed or dtype))
    yield from (f"{EXCHANGE}the source is quantised ({dtype}) and the import is not" for dtype in sorted(lost)[:1])
    of_gguf = any(name.startswith("blk.") and not row.name.startswith("blk.") for row in rows for name in row.sources)
    if of_gguf and not lost and {offence.figures.get("mechanism") for offence in offences} == {"value-cast"}:
        yield EXCHANGE + "the source is a GGUF file, which is made of a checkpoint such as the import"


def renamed(rows: Sequence[TensorPair], passes: Passes) -> Iterator[str]:
    """Yield after which rename the names would match, and how to ask for it where the import then passes."""
    from weighbridge.mapping.renaming import renamings

    rows = [row for row in rows if not row.left_out]
    paired = sum(bool(row.sources and row.candidate_dtype) for row in rows)
    candidate = {row.name for row in rows if row.candidate_dtype}
    if paired == len(candidate):
        return
    found = renamings({name for row in rows for name in row.sources}, candidate, more_than=paired)
    if len(found) > 1:
        named = "; ".join(sorted(one.summary for one in found))
        yield f"names match after either of these renames, so none is made: {named}"
    elif found:
        yield RENAMED.format(matched=len(found[0].origin), of=len(candidate), now=paired)
    for one in found:
        if passes({"map": "table", "rename": [{"from": pattern, "to": new} for pattern, new in one.patterns]}):
            yield f"echo '{one.yaml}' > map.yaml; then add --map map.yaml"


def counted(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the findings that decide the answer; a configuration that could not be compared decides nothing."""
    finding, configuration = evaluation.findings
    broken = configuration.verdict.outcome in (Outcome.FAIL, Outcome.ERROR)
    return (finding, configuration) if broken or configuration.verdict.code in (EMPTY, "vacuous") else (finding,)


BESIDES = {
    "unread": "no rule reads {what}",
    "blamed": "different, and packed weights are not what they were: {what}",
    "harmless": "different, and known to be harmless: {what}",
    "also_said": "said otherwise elsewhere: {what}",
    "not_compared": "{what} was not compared",
}


def _configuration(compared: ImportComparison, *, everything: bool) -> Iterator[str]:
    evaluation, names = compared.evaluation, compared.uncompared
    tensors, finding = evaluation.findings
    unreadable = finding.verdict.outcome is Outcome.ERROR and finding.verdict.code == tensors.verdict.code
    if finding.verdict.code == "config-none" or unreadable:  # the file itself, named with its tensors
        return
    if finding.verdict.code == ONE_CONFIGURATION:
        (why,) = finding_text(finding, evaluation.measured).lines
        yield f"  {why.removesuffix(f' ({ONE_CONFIGURATION})')}: configurations not compared"
        return
    uncompared = [f"{len(names)} not compared: {printable(', '.join(capped(names)))} (--all says why)"] if names else []
    if finding.verdict.outcome is Outcome.PASS:
        found = ["; ".join((f"{finding.verdict.of} fields agree", *uncompared))]
    else:
        said = finding_text(finding, evaluation.measured)
        lines = said.lines if everything else capped(said.lines, SHOWN)
        known = (LOST, _lost(finding)), (GROWN, _grown(evaluation, finding))
        found = [*lines, *(words.format(", ".join(names)) for words, names in known if names), *uncompared]
    yield from (f"  configuration: {line}" for line in found)
    figures: dict[str, Any] = dict(finding.verdict.figures)
    if {row.name for row in compared.pairs if row.packed} & {one.place for one in tensors.verdict.offences}:
        figures["blamed"] = [
            key for one in figures.get("harmless") or () if PACKING.match(key := one.partition(" (")[0])
        ]
        figures["harmless"] = [one for one in figures.get("harmless") or () if not PACKING.match(one)]
    for name, words in BESIDES.items():
        besides: Any = figures.get(name) or () if name != "not_compared" or everything else ()
        named = besides if everything or name != "harmless" else _by_reason([*map(str, besides)])
        if name == "blamed" and besides and not everything:
            named = [", ".join(capped(besides, NAMED))]
        lines = [f"  configuration: {printable(words.format(what=one))}" for one in named]
        yield from (lines if everything else capped(lines, LISTED))


def _by_reason(keys: Sequence[str]) -> Iterator[str]:
    for why, alike in grouped((why, key) for key, _, why in (one.rpartition(" (") for one in keys)).items():
        named = ", ".join(capped(alike, NAMED)) + (" (--all)" if len(alike) > NAMED else "")
        yield f"{len(alike)} keys ({why}: {named}" if len(alike) > 1 else f"{alike[0]} ({why}"


def unmapped(one: ImportComparison) -> str:
    """Return what a side is by its names, where most of them are on that side alone and no rule maps them."""
    from weighbridge.mapping.tensor_rules import unmapped as known

    for side, found, dtype in (("import", Class.EXTRA, "candidate_dtype"), ("source", Class.MISSING, "source_dtype")):
        names = [row.name for row in one.pairs if one.classes[row.name] == found]
        whole = sum(bool(getattr(row, dtype)) for row in one.pairs)
        if names and 2 * len(names) >= whole and (said := known(names)):
            return f"the {side} {said}"
    return ""


def _by_cause(finding: Finding, tensors: str, alone: int, without: Collection[str] = ()) -> Iterator[str]:
    """Yield a line a tensor, the worst first; where so many as are not left alone have one cause, a line for all."""
    lines = zip(finding.verdict.offences, verdict_lines(finding.kind, finding.verdict), strict=True)
    matching = [pair for pair in lines if pair[0].code not in without and fnmatch.fnmatchcase(pair[0].place, tensors)]
    said = ((one.place, line) for one, line in sorted(matching, key=lambda pair: _badness(pair[0])))
    yield from by_cause(said, finding.verdict.of, "tensors", alone)


def _badness(offence: Offence) -> tuple[int, float]:
    found = Class(str(offence.figures["class"])) if offence.figures.get("class") else None
    rank = WORST.index(found) if found in WORST else len(WORST) + (100 - RANK[found] if found else 0)
    if offence.code not in ("content", "bound"):  # of these the share of elements that differ says how bad it is
        return rank, 0.0
    return rank, -int(str(offence.figures["differing"])) / max(int(str(offence.figures["elements"])), 1)


def mapped(evaluation: Evaluation) -> Iterator[str]:
    """Yield how names were mapped, where nobody asked for it and they are not as they were."""
    found = [item for item in evaluation.measured.values() if isinstance(item, Measurement)]
    for how in {item.at for item in found if item.quantity == TENSORS}:
        if how.startswith(AUTOMATIC) or how.endswith(("taken away", PADDED)):  # more than the architecture's own
            yield printable(f"names: {how}")


def _table(one: ImportComparison, tensors: str, moments: Moments) -> Iterable[str]:
    from weighbridge.cards.words import fill

    for row in (row for row in one.pairs if fnmatch.fnmatchcase(row.name, tensors)):
        shape, made = row.candidate_shape or row.source_shape, f", {row.transform}" if row.transform else ""
        said: Fields = {"found": one.classes[row.name], "name": row.name, "shape": shape, "made": made}
        dtypes = {"old": row.source_dtype or "nothing", "new": _type(row)}
        yield fill("{found:13} {name}: {old} -> {new} [{shape}]{made}", {**said, **dtypes})
        if (found := moments.get(row.name)) and found.source:
            pairs = ((name, found.source[name], found.candidate[name]) for name in ("mean", "std", "min", "max"))
            changes = {name: ["none" if one is None else f"{one:.6g}" for one in both] for name, *both in pairs}
            yield " " * 16 + ", ".join(f"{name} {was} -> {now}" for name, (was, now) in changes.items())


def answer(one: ImportComparison) -> str:
    """Return the answer in one line: SAME, SAME VALUES, AS MEANT, LOSSY, DIFFERENT, BLOCKED or what broke."""
    evaluation = one.evaluation
    finding, configuration = evaluation.findings
    verdict, fields = finding.verdict, configuration.verdict
    mechanisms = ((IN_WORDS.get(bad.code, bad.code), bad.figures.get("mechanism")) for bad in verdict.offences)
    kinds = Counter(f"{word} ({mechanism})" if mechanism else word for word, mechanism in mechanisms)
    named = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    broken = next((found for found in evaluation.findings if found.verdict.outcome is Outcome.ERROR), None)
    if broken is not None:
        found = evaluation.measured.get(str(broken.verdict.figures.get("measurement")))
        of_tool = not isinstance(found, Faulted) or found.code == "verifier-raised" or found.code.startswith("engine-")
        why = f": {printable(found.why)}" if isinstance(found, Faulted) else ""  # it names the file
        return f"{'ERROR' if of_tool else 'UNREADABLE'}: {broken.verdict.code}{why}"
    names = ", ".join(offence.place for offence in fields.offences)
    differing = f"{len(fields.offences)} of {fields.of} configuration fields differ: {names}"
    besides = differing if fields.outcome is Outcome.FAIL else ""
    match verdict.outcome:
        case Outcome.FAIL:
            tensors = f"{verdict.of - verdict.counted} of {verdict.of} tensors: {named}"
            return f"DIFFERENT: {tensors}" + (f"; {besides}" if besides else "")
        case Outcome.PASS if besides:
            return f"DIFFERENT: {verdict.of} of {verdict.of} tensors are what was meant, but {besides}"
        case Outcome.PASS if len(counted(evaluation)) > 1:
            return f"BLOCKED: {fields.code}"
        case Outcome.PASS:
            results = Counter(trial.result for trial in finding.trials)
            caught, tried = results[TrialResult.CAUGHT], len(finding.trials) - results[TrialResult.UNTRIED]
            values = "SAME" if {*one.classes.values()} == {Class.BYTES_EQUAL} else "SAME VALUES"
            word = values if one.is_same else "LOSSY" if one.policy.why else "AS MEANT"  # LOSSY: nobody asked for it
            return f"{word}: {verdict.of} of {verdict.of} tensors ({caught} of {tried} planted faults were caught)"
    blocked = f"BLOCKED: {verdict.code}" + (f": {named}" if named else "")
    return f"DIFFERENT: {besides}; {blocked}" if besides else blocked
