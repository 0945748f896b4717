"""Findings in words: the lines that all reports share; the words come from the cards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weighbridge.cards import CodeCard, besides, code_card, fill, gate_words, numbers, render
from weighbridge.glossary import glossary
from weighbridge.model import Faulted, Finding, Measured, Outcome, Trial, TrialResult, Unmeasured, Verdict
from weighbridge.printable import printable

TOLD = 8
MECHANISMS_TOLD = 3
ENOUGH = "would pass with"
UNCOUNTED = "not counted (condition not met); otherwise:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingText:
    """One finding in words: what it says, what it would have said, what would have passed, hints, and its trials."""

    lines: tuple[str, ...]
    uncounted: tuple[str, ...] = ()
    besides: str = ""
    enough: str = ""
    hints: tuple[str, ...] = ()
    trials: str = ""


def finding_text(finding: Finding, measured: Mapping[str, Measured]) -> FindingText:
    """Return a finding in words, from the card of its kind."""
    card, verdict = gate_words(finding.kind), finding.verdict
    words = None if verdict.outcome is Outcome.PASS else code_card(finding.kind, verdict.code)
    first = verdict.offences[0] if verdict.offences else None
    figures = numbers(verdict) | ({**first.figures, "place": first.place} if first else {})
    item = measured.get(str(verdict.figures.get("measurement", "")))
    missing = item if isinstance(item, (Unmeasured, Faulted)) and item.code == verdict.code else None
    if words:
        told = list(_hints(words, verdict, figures))
    else:
        told = [printable(missing.remedy)] if missing and missing.remedy else []
    return FindingText(
        lines=(printable(f"{missing.why} ({missing.code})"),) if missing else tuple(render(card, verdict)),
        uncounted=tuple(render(card, finding.uncounted)) if finding.uncounted else (),
        besides=besides(card, verdict),
        enough=fill(words.enough, figures) if words and words.enough else "",
        hints=tuple(told),
        trials=trials_told(finding.trials),
    )


def hints(words: CodeCard) -> Mapping[str, str]:
    """Return what helps with a code, by what the hint is."""
    return {"likely cause": words.cause, "try first": words.knob, "look at": words.look}


def _hints(words: CodeCard, verdict: Verdict, figures: Mapping[str, object]) -> Iterator[str]:
    """Yield what the mechanisms that were found say of the cause, the most frequent first; else what the code says."""
    counted = Counter(str(o.figures["mechanism"]) for o in verdict.offences if o.figures.get("mechanism"))
    known = glossary("terms")["mechanism"] if counted else {}
    found = {name: known[name] for name, _ in counted.most_common() if name in known and known[name].do}
    for name, meaning in itertools.islice(found.items(), MECHANISMS_TOLD):
        yield f"likely cause: {name}: {meaning.means}"
        yield f"try first: {meaning.do}"
    of_code = [offence for offence in verdict.offences if offence.code == verdict.code]
    if not found or any(offence.figures.get("mechanism") not in found for offence in of_code):
        yield from (f"{label}: {fill(text, figures)}" for label, text in hints(words).items() if text)


def trials_told(trials: Sequence[Trial]) -> str:
    """Return how many trials were caught, and how many did not apply."""
    caught = sum(trial.result is TrialResult.CAUGHT for trial in trials)
    skipped = sum(trial.result is TrialResult.NOT_APPLICABLE for trial in trials)
    if not trials:
        return ""
    return f"{caught}/{len(trials) - skipped} caught" + (f", {skipped} n/a" if skipped else "")


def capped(lines: Sequence[str], limit: int = TOLD) -> list[str]:
    """Return the first lines and how many more there are."""
    more = len(lines) - limit
    return [*lines[:limit], *([f"+{more} more"] if more > 0 else [])]
