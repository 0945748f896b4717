"""Findings in words: the lines that every report shares; the words come from the cards."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from weighbridge.cards import CodeCard, besides, code_card, fill, gate_words, numbers, render
from weighbridge.glossary import glossary
from weighbridge.model import Faulted, Finding, Measured, Offence, Outcome, Trial, TrialResult, Unmeasured, Verdict
from weighbridge.printable import printable

TOLD = 8
MECHANISMS_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingText:
    """One finding in words: what it says, what it would have said, what would have sufficed, hints, and its trials."""

    lines: tuple[str, ...]
    uncounted: tuple[str, ...] = ()
    besides: str = ""
    enough: str = ""
    hints: tuple[str, ...] = ()
    trials: str = ""


def finding_text(finding: Finding, measured: Mapping[str, Measured]) -> FindingText:
    """Put a finding into words."""
    card = gate_words(finding.kind)
    words = _words(finding)
    figures = numbers(finding.verdict) | _first(finding.verdict.offences)
    return FindingText(
        lines=tuple(_unmeasured(finding.verdict, measured) or render(card, finding.verdict)),
        uncounted=tuple(render(card, finding.uncounted)) if finding.uncounted else (),
        besides=besides(card, finding.verdict),
        enough=fill(words.enough, figures) if words and words.enough else "",
        hints=tuple(_hints(words, finding.verdict, figures) if words else _remedy(finding.verdict, measured)),
        trials=trials_told(finding.trials),
    )


def _words(finding: Finding) -> CodeCard | None:
    return None if finding.verdict.outcome is Outcome.PASS else code_card(finding.kind, finding.verdict.code)


def _first(offences: Sequence[Offence]) -> dict[str, object]:
    return {**offences[0].figures, "place": offences[0].place} if offences else {}


def _not_measured(verdict: Verdict, measured: Mapping[str, Measured]) -> Unmeasured | Faulted | None:
    item = measured.get(str(verdict.figures.get("measurement", "")))
    return item if isinstance(item, (Unmeasured, Faulted)) and item.code == verdict.code else None


def _unmeasured(verdict: Verdict, measured: Mapping[str, Measured]) -> list[str]:
    item = _not_measured(verdict, measured)
    return [printable(f"{item.why} ({item.code})")] if item else []


def _remedy(verdict: Verdict, measured: Mapping[str, Measured]) -> list[str]:
    item = _not_measured(verdict, measured)
    return [printable(item.remedy)] if item and item.remedy else []


def _hints(words: CodeCard, verdict: Verdict, figures: Mapping[str, object]) -> Iterator[str]:
    """Yield what the mechanisms that were found say of the cause, the most frequent first; else what the code says."""
    counted = Counter(str(o.figures["mechanism"]) for o in verdict.offences if o.figures.get("mechanism"))
    known = glossary("terms")["mechanism"] if counted else {}
    found = {name: known[name] for name, _ in counted.most_common() if name in known and known[name].do}
    for name, meaning in itertools.islice(found.items(), MECHANISMS_TOLD):
        yield f"likely: {name}: {meaning.means}"
        yield f"first: {meaning.do}"
    of_code = [offence for offence in verdict.offences if offence.code == verdict.code]
    if not found or any(offence.figures.get("mechanism") not in found for offence in of_code):
        named = (("likely", words.cause), ("first", words.knob), ("look", words.look))
        yield from (f"{label}: {fill(text, figures)}" for label, text in named if text)


def trials_told(trials: Sequence[Trial]) -> str:
    """Say how many trials were caught, and how many did not apply."""
    caught = sum(trial.result is TrialResult.CAUGHT for trial in trials)
    skipped = sum(trial.result is TrialResult.NOT_APPLICABLE for trial in trials)
    if not trials:
        return ""
    return f"{caught}/{len(trials) - skipped} caught" + (f", {skipped} n/a" if skipped else "")


def capped(lines: Sequence[str], limit: int = TOLD) -> list[str]:
    """Keep the first lines and count the rest."""
    more = len(lines) - limit
    return [*lines[:limit], *([f"+{more} more"] if more > 0 else [])]
