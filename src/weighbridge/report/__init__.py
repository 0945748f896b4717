"""Findings in the words of the cards, for all reports, and as a terminal shows them: a block a gate, and the tally."""

import enum
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from weighbridge.core import ExitCode, Finding, Outcome, Severity, Status, TrialResult, model, printable, singular
from weighbridge.core.canonical import grouped
from weighbridge.core.frozen import dataclass, field
from weighbridge.judging.requests import DEFAULT, RUN_FACTS
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact

if TYPE_CHECKING:
    from weighbridge.cards.words import CodeCard

K = TypeVar("K")
V = TypeVar("V")
LISTED, NAMED = 8, 3  # lines of a finding, and names of what is alike
ENOUGH = "would pass with"
HINTS = {"cause": "likely cause", "knob": "try first", "look": "look at"}  # by the field of a card
ELSEWHERE = re.compile(r"\$\{ELSEWHERE\}/dir-\w+/")  # a folder outside of the project, redacted
UNCOUNTED = "does not count while the condition is not met:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingText:
    """One finding in words: what it says, what it would have said, what would have passed, hints, and its trials.

    `brief` says the same shorter: of a PASS what was looked at, of anything else one line for all places of one cause.
    """

    lines: tuple[str, ...]
    brief: tuple[str, ...]
    uncounted: tuple[str, ...] = ()
    besides: str = ""
    enough: str = ""
    helps: tuple[tuple[str, str], ...] = ()  # each by the field of a card that says it; "" is to be tried
    trials: str = ""

    @property
    def hints(self) -> tuple[str, ...]:
        """Return the lines of what helps."""
        return tuple(f"{HINTS[word]}: {text}" if word else text for word, text in self.helps)


class Level(enum.StrEnum):
    """What a finding means for who reads a report: an error sets the exit code, a warning and a notice do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTICE = "notice"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finding as every report shows it: in words, where its gate is written, and how long measuring for it took.

    `why` is the gate's own, for a FAIL whose card knows no cause. `excused` says why a FAIL or a BLOCKED does not
    count, `unexcused` why it does after all, `unexpected` why an outcome fails that would not alone, and `elsewhere` on
    whose evidence it stands where another lane measured.
    """

    finding: Finding
    title: str
    said: FindingText
    why: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    excused: str = ""
    unexcused: str = ""
    elsewhere: str = ""
    unexpected: str = ""
    seconds: float = 0.0
    looked_at: model.Fields = field(default_factory=dict)

    @property
    def outcome(self) -> Outcome:
        """Return what the gate came to."""
        return self.finding.verdict.outcome

    @property
    def level(self) -> Level:
        """Return what the row means for the exit code."""
        if self.unexpected or self.outcome is Outcome.ERROR:
            return Level.ERROR
        if self.outcome is Outcome.PASS:
            return Level.NONE
        if self.excused or self.outcome is Outcome.NOT_APPLICABLE:
            return Level.NOTICE
        return Level.WARNING if self.finding.severity is Severity.ADVISORY else Level.ERROR

    @property
    def remarks(self) -> list[str]:
        """Return what makes the outcome count otherwise than it stands."""
        return [printable(why) for why in (self.excused, self.unexcused, self.elsewhere, self.unexpected) if why]

    def lines(self, *, everything: bool = False, alone: bool = True) -> list[str]:
        """Return what there is to say of the finding but its hints, eight lines at most of what it found.

        What it would have come to is left out where it is not said `alone`: that is counted for all together.
        """
        uncounted = self.finding.uncounted if alone else None
        otherwise = (f"{UNCOUNTED} {uncounted.outcome} {line}" for line in self.said.uncounted) if uncounted else ()
        without = self.why and self.outcome is Outcome.FAIL and "cause" not in dict(self.said.helps)
        lines = (
            *self.remarks,
            *(self.said.lines if everything else capped(self.said.brief)),
            *capped([*otherwise], 2),
            *([self.said.besides] if self.said.besides else []),
            *([f"why it is asked: {self.why}"] if without else []),
            *([f"{ENOUGH}: {self.said.enough}"] if self.said.enough else []),
        )
        return [*map(singular, lines)]


def finding_text(finding: Finding, measured: Mapping[str, model.Measured], early: str = "") -> FindingText:
    """Return a finding in words, from the card of its kind; a PASS begins with where it looked, if `early` says so."""
    from weighbridge.cards.words import code_card, fill, gate_words, numbers, render, said_of

    card, verdict = gate_words(finding.kind), finding.verdict
    words = None if verdict.outcome is Outcome.PASS else code_card(finding.kind, verdict.code)
    first = verdict.offences[0] if verdict.offences else None
    figures = said_of(first, numbers(verdict)) if first else numbers(verdict)
    if wrong := [one.figures for one in verdict.offences if one.code == "dtype"]:
        as_values = all(str(one.get("held")).startswith("values") for one in wrong)
        meant = ("" if as_values else "their values converted, under ") + "a policy that means"
        # An entry of `allow:` asks for what the source's values give, and for no less.
        cast = all(one.get("mechanism") == "value-cast" for one in wrong)
        figures |= {"allow": "`allow:`"} if cast else {"policy": meant}
    item = measured.get(str(verdict.figures.get("measurement", "")))
    missing = item if isinstance(item, (model.Unmeasured, model.Faulted)) and item.code == verdict.code else None
    hinted = [("", printable(missing.remedy))] if missing and missing.remedy else []
    why = ELSEWHERE.sub("…/", f"{missing.why} ({missing.code})") if missing else ""
    lines = (printable(why),) if missing else tuple(render(card, verdict))
    brief = lines
    if verdict.offences and not missing:
        of_files, of_tensors = verdict.unit == "places", OF_TENSORS & verdict.offences[0].figures.keys()
        noun = "tensors and files" if of_files else "tensors" if of_tensors else "places"
        brief = tuple(by_cause(zip((one.place for one in verdict.offences), lines, strict=True), verdict.of, noun))
    elif verdict.outcome is Outcome.PASS:
        brief = (early + (fill(card.briefly, figures) if card.briefly else lines[0]), *lines[1:])
    return FindingText(
        lines=lines,
        brief=brief,
        uncounted=tuple(render(card, finding.uncounted)) if finding.uncounted else (),
        besides=fill(card.besides, numbers(verdict)) if verdict.outcome is Outcome.FAIL else "",
        enough=fill(words.enough, figures) if words and words.enough else "",
        helps=(
            *_left_chance(verdict, measured),
            *(_rarely_logged(verdict, measured) or (_helps(words, verdict, figures) if words else hinted)),
        ),
        trials=trials_summary(finding.trials),
    )


OF_TENSORS = {"elements", "dtype", "source_dtype"}  # figures that only a tensor has
NUMBER = re.compile(r"(?<![\w.])-?\d[\w.+-]*")
NEARLY = 4  # tensors whose lines differ in numbers alone, from which on the first one stands for all
WHOLE = re.compile(r"\b([1-9]\d*) of \1 elements explained")


def by_cause(said: Iterable[tuple[str, str]], of: int, noun: str, alone: int = 2) -> Iterator[str]:
    """Yield the line of each place; where so many as are not left `alone` have one cause, one line for all of them."""
    stripped = ((place, line, line.removeprefix(f"{printable(place)}: ")) for place, line in said)
    each = [(place, line, WHOLE.sub("every element explained", cause)) for place, line, cause in stripped]
    near = Counter(NUMBER.sub("", cause) for *_, cause in each if noun == "tensors")
    keys = ((NUMBER.sub("", one[2]), one) for one in each)
    for alike in grouped((key if near[key] >= max(alone, NEARLY) else one[2], one) for key, one in keys).values():
        first, line, cause = alike[0]
        if len(alike) < alone or line == cause:
            yield from dict.fromkeys(line for _, line, _ in alike)
            continue
        names = grouped((re.sub(r"(?<=\.)\d+(?=\.)", "*", place), place) for place, *_ in alike)
        named = [printable(one[0] if len(one) == 1 else f"{len(one)} {name}") for name, one in names.items()]
        many = f"{len(alike)} of {of}" if of >= len(alike) else len(alike)
        of_first = f", first {printable(first)}" * any(one[2] != cause for one in alike)
        yield f"{many} {noun}{of_first}: {cause} ({', '.join(capped(named, NAMED))})"


def verdict_lines(kind: str, verdict: model.Verdict) -> list[str]:
    """Return what a verdict of a kind says, a line for each place that it names."""
    from weighbridge.cards.words import gate_words, render

    return render(gate_words(kind), verdict)


def hints(words: "CodeCard") -> Mapping[str, str]:
    """Return what helps with a code, by what the hint is called."""
    return {label: getattr(words, word) for word, label in HINTS.items()}


def _helps(words: "CodeCard", verdict: model.Verdict, figures: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield what the mechanisms that were found say of the cause, the most frequent first; else what the code says."""
    from weighbridge.cards.words import fill, glossary

    counted = Counter(str(o.figures["mechanism"]) for o in verdict.offences if o.figures.get("mechanism"))
    known = glossary("terms")["mechanism"] if counted else {}
    found = {name: known[name] for name, _ in counted.most_common() if name in known and known[name].do}
    for name, meaning in itertools.islice(found.items(), 3):
        yield "cause", f"{name}: {meaning.means}"
        yield "knob", meaning.do
    of_code = [offence for offence in verdict.offences if offence.code == verdict.code]
    if not found or any(offence.figures.get("mechanism") not in found for offence in of_code):
        yield from ((word, fill(text, figures)) for word in HINTS if (text := getattr(words, word)))


OVER_CHANCE = "ln_vocab", "at most"
TOO_FAST = "too high a learning rate, most often: the loss began at {:.6g}, so initialisation and tokenizer are right"
TOO_FEW = ("too-few-steps", "too-few-samples", "column-undecided")


def _rarely_logged(verdict: model.Verdict, measured: Mapping[str, model.Measured]) -> tuple[tuple[str, str], ...]:
    """Return what helps where steps are few because the log itself says that most are left out; else nothing."""
    facts = (item for key, item in measured.items() if key.startswith("facts.") and isinstance(item, model.Measurement))
    said = {fact.name: fact.value for item in facts for fact in rows_of(item, Fact)} if verdict.code in TOO_FEW else {}
    every, steps = said.get("logging_steps"), said.get("requested_steps", "its")
    if not isinstance(every, int) or every < 2:
        return ()
    why = f"logging_steps is {every}, so that most of {steps} steps were not logged"
    return ("cause", why), ("knob", "train with logging_steps=1")


def _left_chance(verdict: model.Verdict, measured: Mapping[str, model.Measured]) -> Iterator[tuple[str, str]]:
    """Yield the likely cause of a loss that began within its bound by ln V, and left it: none from the start."""
    figures, most = verdict.figures, verdict.limit
    if verdict.outcome is not Outcome.FAIL or (figures.get("relative_to"), figures.get("bound")) != OVER_CHANCE:
        return
    losses = (one.value for one in measured.values() if isinstance(one, model.Measurement) and one.at == "loss")
    first = max((one.value[0] for one in losses if isinstance(one, model.Series) and len(one.value)), default=math.inf)
    if isinstance(of := figures["reference"], float) and isinstance(most, (int, float)) and first <= most * of:
        yield "cause", TOO_FAST.format(first)


def trials_summary(trials: Sequence[model.Trial]) -> str:
    """Return how many trials were caught, and how many could not be made."""
    results = Counter(trial.result for trial in trials)
    untried = results[TrialResult.UNTRIED]
    summary = f"{results[TrialResult.CAUGHT]}/{len(trials) - untried} caught"
    return "" if not trials else f"{summary}, {untried} untried" if untried else summary


def capped(lines: Sequence[str], limit: int = LISTED) -> list[str]:
    """Return the first lines and how many more there are."""
    more = len(lines) - limit
    return [*lines[:limit], *([f"+{more} more"] if more > 0 else [])]


COLOURS = dict(zip(Outcome, ("green", "red", "yellow", "blue", "magenta"), strict=True))
SIGNS: Mapping[str, str] = dict(zip(Outcome, "✓✗…–✗", strict=True))
INDENT = " " * 4


def status_word(status: str | None, *, reported: bool = False) -> str:
    """Return a status as a terminal shows it: what is PARTIAL by a run that recorded itself is reported."""
    if status == Status.PARTIAL_ALGORITHM_LEVEL:
        return "reported" if reported else "fixture only"
    return "live" if status == Status.ACTIVE_WITH_LIVE_EVIDENCE else status or "none"


def heading(contract: model.Contract, subjects: Sequence[str]) -> str:
    """Return the line that names a contract, the subjects compared with it, and its policies and parameters."""
    name = click.style(f"{contract.id} {contract.version}", bold=True)
    return f"{name}   {'  '.join(map(printable, (*subjects, *_terms(contract))))}".rstrip()


def checked(contract: model.Contract, subjects: Iterable[tuple[str, str, str, str]]) -> str:
    """Return what was checked, on which terms: subjects by name, instance, redacted path, and why none saw it."""
    bound, named = [], set[str]()
    for name, instance, path, unwitnessed in subjects:
        why = f" ({model.Origin.REPORTED}{'' if unwitnessed in named else f': {unwitnessed}'})" if unwitnessed else ""
        bound.append(bound_as(name, instance, ELSEWHERE.sub("…/", path)) + why)
        named.add(unwitnessed)
    return ", ".join(map(printable, (*bound, *_terms(contract)))) or "no subject"


def bound_as(name: str, instance: str, target: str) -> str:
    """Return a subject as the command line binds it."""
    return f"{name}{'' if instance == DEFAULT else f'@{instance}'}={target}"


def _terms(contract: model.Contract) -> Iterator[str]:
    named = dict.fromkeys(f"policy {gate.limits['policy']}" for gate in contract.gates if "policy" in gate.limits)
    yield from (one for one in named if one.replace(" ", "=", 1) not in contract.overrides)
    yield from (f"--param {one}" for one in contract.overrides)  # not as the contract is written


def run_told(facts: model.Measured | None) -> Iterator[str]:
    """Yield how a run ended and what the reader noted of its log; nothing of what is no run."""
    found = {fact.name: fact for fact in rows_of(facts, Fact)} if isinstance(facts, model.Measurement) else {}
    if "ended" in found:
        said = [f"{name}: {found[name].value}" for name in RUN_FACTS if name in found]
        said += [f"contradicted: {why}" for why in found["ended"].contradicted_by]
        yield f"{INDENT}{printable(', '.join(said))}"


def gate_name(finding: Finding) -> str:
    """Return a gate's name, with its instance where it has one."""
    return finding.gate if finding.instance == DEFAULT else f"{finding.gate}[{finding.instance}]"


def tally(findings: Sequence[Finding], code: ExitCode, excused: int = 0, left_out: int = 0) -> str:
    """Return how many findings came to which outcome, are excused, or gates are not judged here; and the exit code."""
    counts = Counter(finding.verdict.outcome for finding in findings)
    words = {Outcome.ERROR: "broken", Outcome.FAIL: "failed", Outcome.BLOCKED: "blocked"}
    words |= {Outcome.NOT_APPLICABLE: "not applicable", Outcome.PASS: "passed"}
    advice = [one.verdict.outcome for one in findings if one.severity is model.Severity.ADVISORY]
    red = (Outcome.FAIL, Outcome.BLOCKED)
    of: Mapping[Outcome, str] = {one: f" ({advice.count(one)} as advice)" for one in red if one in advice}
    counted = ", ".join(f"{counts[one]} {word}{of.get(one, '')}" for one, word in words.items() if counts[one])
    counted = f"{counted or 'nothing judged'} of {len(findings)}{f', {excused} excused' if excused else ''}"
    counted += f", {left_out} not judged" if left_out else ""
    return f"{counted} -> exit {code.value} ({code.name.lower().replace('_', ' ')})"
