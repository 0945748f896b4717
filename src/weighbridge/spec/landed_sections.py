"""What has landed: each section checked as of its landing, the order of all, and the page that is made of them."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path

from weighbridge.contract.layers import Found
from weighbridge.core import WeighbridgeError, dataclass, field
from weighbridge.evidence.statement import moment
from weighbridge.ledger.causes import bundle_evidence
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, Chains, LedgerPlace, Standing
from weighbridge.ledger.overview import stands_on
from weighbridge.ledger.store import Ledger
from weighbridge.spec.amendments import Section, landed
from weighbridge.spec.citations import Bundles
from weighbridge.spec.claims import look
from weighbridge.spec.drafting import Cited, cited
from weighbridge.spec.hypotheses import contradicted
from weighbridge.spec.reading import Known, Looked, found
from weighbridge.spec.rendering import AMENDMENTS, SPEC, page, taken_back
from weighbridge.spec.tally import Stood, discharged, history, place_in


@dataclass(kw_only=True)
class Here:
    """Where a spec, its ledger and its evidence are, and what time it is; the ledger is read once."""

    spec: Path
    ledger: Ledger
    now: datetime
    bundles: Bundles = field(default_factory=Bundles)

    @cached_property
    def chains(self) -> Chains:
        """Return the entries of every place, as they were when they were first asked for."""
        return self.ledger.chains()


def earned(
    mine: Iterable[Cited], stood: Mapping[LedgerPlace, Stood], now: datetime, *, then: bool = False
) -> frozenset[LedgerPlace]:
    """Return the places that a section about these findings discharges: ACTIVE ones, by a fresh live PASS."""
    places = set()
    for one in mine:
        seen, place = bundle_evidence(one.bundle, one.finding), place_in(one.bundle, one.finding, stood)
        seen = seen.as_sealed if then else seen
        standing = stood[place].standing if place in stood else Standing()
        later = standing.failed_at is None or seen.at > standing.failed_at
        current = seen.sound and later and seen.fresh(now) and seen.contract_digest == standing.contract_digest
        if current and standing.status is ACTIVE and not standing.diverged:
            places.add(place)
    return frozenset(places)


def check_spec(here: Here) -> Looked:
    """Check every landed section as of its landing, their order, and the page that is made of them."""
    sections = landed(here.spec / AMENDMENTS)
    problems = [*structure(sections)]
    counted: Counter[str] = Counter(sections=len(sections))
    for one in sections:
        wrong, looked = check_landed(here, one, sections)
        problems += wrong
        counted.update(looked)
    refuted = {one.digest: (one, by) for one in sections for how, by in taken_back(one, sections) if how == "refuted"}
    for place, stood in history(here.chains).items():
        entries = here.chains[place]
        causes = {entries[digest].cause for digest in stands_on(entries, stood.standing.heads)}
        for digest in sorted(causes & refuted.keys()) if stood.standing.status is DISCHARGED else ():
            one, by = refuted[digest]
            later = (other for other in sections if other.number > by.number and other.digest not in refuted)
            if not any(place in _passed(here, other) for other in later):
                what = f"{place} is DISCHARGED by §{one.number}, which §{by.number} refuted"
                remedy = "record the FAIL with verify --record, or land a section about it that cites its PASS"
                problems.append(found(str(one.path), "rests-on-refuted", what, remedy))
    spec = here.spec / SPEC
    if sections and (not spec.is_file() or spec.read_bytes() != page(here.spec).encode()):
        problems.append(found(str(spec), "not-rendered", "is not what the sections give", "weighbridge amend render"))
    return Looked(problems=tuple(sorted(set(problems))), counted=counted)


def check_landed(here: Here, one: Section, sections: Sequence[Section]) -> tuple[tuple[Found, ...], Mapping[str, int]]:
    """Check a landed section as of its landing; return what is wrong, and how much was looked at."""
    landing, where = one.about.landing, str(one.path)
    if one.digest not in {other.digest for other in sections}:
        return (found(where, "not-landed", "is not among the landed sections", f"they are in {AMENDMENTS}/"),), {}
    try:
        before = history(here.chains, landing.heads)
        mine = cited((here.bundles.get(id_) for id_ in one.about.evidence), one.about.gates)
    except WeighbridgeError as problem:
        return (found(where, problem.code, problem.what, problem.remedy),), {}
    stood = discharged(before, landing.discharges)
    since = taken_before(sections, one)
    known = Known(bundles=here.bundles, stood=stood, at=landing.at, refuted=since, strict=True, frozen=True)
    looked = look(one.body, where, known, one.first_line)
    problems = [*looked.problems, *contradicted(one, _landed_on(one, sections), known)]
    due = set(map(str, earned(mine, before, moment(landing.at), then=True)))
    for name in landing.discharges:
        place = next((place for place in before if str(place) == name), None)
        entries = here.chains[place].values() if place else ()
        if name not in due:
            what = f"says that it discharged {name}, which its evidence did not earn"
            problems.append(found(where, "unearned", what, "take it out of the spec and of the ledger"))
        elif not any(entry.cause == one.digest for entry in entries):
            what = f"the ledger does not have that it discharged {name}"
            remedy = f"finish its landing: weighbridge amend land {one.path}"
            problems.append(found(where, "not-discharged", what, remedy))
    return tuple(problems), looked.counted


def _landed_on(one: Section, sections: Sequence[Section]) -> list[Section]:
    """Return the sections that were there when one landed, in their order; none of a branch that was merged since."""
    by_digest, before = {other.digest: other for other in sections}, list[Section]()
    while one.about.landing.previous in by_digest:
        one = by_digest[one.about.landing.previous]
        before.append(one)
    return before[::-1]


def structure(sections: Sequence[Section]) -> Iterator[Found]:
    """Check the order of landed sections: numbers without gap or double, each after the one that it landed on."""
    followed = {one.about.landing.previous for one in sections}
    for number, group in itertools.groupby(sections, key=lambda one: one.number):
        taken = sorted(group, key=lambda one: one.digest not in followed)
        for free, one in enumerate(taken[1:], start=1 + max(other.number for other in sections)):
            name = re.sub(r"^\d+", f"{free:04d}", one.path.name)
            what = f"§{number} is {taken[0].about.id} and {one.about.id}, as after a merge"
            remedy = f"git mv {one.path} {one.path.with_name(name)}, then: weighbridge amend render"
            yield found(str(one.path), "section-taken", what, remedy)
    for before, one in zip((0, *(one.number for one in sections)), sections, strict=False):
        if one.number > before + 1:
            yield found(str(one.path), "section-gap", f"there is no §{one.number - 1} before it", "restore the section")
    numbers = {one.digest: one.number for one in sections}
    for one in sections:
        previous = one.about.landing.previous
        if previous and not numbers.get(previous, one.number) < one.number:
            what = f"landed on the section with sha256 {previous[:12]}…, which is not before it"
            yield found(str(one.path), "section-gap", what, "restore that section, or its number")


def _passed(here: Here, one: Section) -> Iterator[LedgerPlace]:
    with contextlib.suppress(WeighbridgeError):  # evidence that cannot be read is reported with its section
        for each in cited((here.bundles.get(id_) for id_ in one.about.evidence), one.about.gates):
            if bundle_evidence(each.bundle, each.finding).as_sealed.sound:
                yield place_in(each.bundle, each.finding, history(here.chains))


def taken_before(sections: Sequence[Section], reader: Section | None) -> dict[str, str]:
    """Return what a text may no longer build on: sections taken back before it landed, by others than itself."""
    number = (reader.number if reader else 0) or 1 + len(sections)
    names: dict[str, str] = {}
    for one in sections:
        for how, by in taken_back(one, sections):
            if one.number < number and by.number < number:
                shown = (one.about.id, f"§{one.number}") if reader else (one.about.id,)
                names |= dict.fromkeys(shown, f"was {how} by §{by.number}")
    return names
