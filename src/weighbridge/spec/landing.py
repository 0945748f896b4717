"""Landing: a draft becomes a section of the spec, once, where all of it holds; what has landed, checked."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from pathlib import Path

from weighbridge.contract.checks import looser
from weighbridge.contract.layers import Found
from weighbridge.core import LedgerError, Outcome, WeighbridgeError, dataclass, field, grouped, sha256
from weighbridge.core.project import LOCAL
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.disk import disk_errors, link_new, make_folders, read_regular, sweep
from weighbridge.evidence.statement import moment, utc
from weighbridge.ledger.causes import Causes, bundle_evidence
from weighbridge.ledger.fold import DISCHARGED, Chains, LedgerPlace, Standing, fold
from weighbridge.ledger.overview import stands_on
from weighbridge.ledger.record import discharge
from weighbridge.ledger.sections import MAX_TEXT, SCHEMA, Landing, Section, section_of
from weighbridge.ledger.store import LOCK, Ledger, file_name
from weighbridge.spec import amendments
from weighbridge.spec.amendments import landed, slug, written
from weighbridge.spec.citations import KEPT, Bundles
from weighbridge.spec.claims import contradicted, look
from weighbridge.spec.drafting import AUTHOR, Cited, Earned, Places, changed, cited
from weighbridge.spec.reading import Known, Looked, found, units_of
from weighbridge.spec.rendering import AMENDMENTS, not_rendered, render, taken_back
from weighbridge.spec.tally import TALLY, block, discharged, history, place_in

STATED = {"statuses", "counts", "tallies"}  # what is said of the ledger, of all that is counted


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

    @cached_property
    def unverified(self) -> tuple[Found, ...]:
        """Return what stands in the ledger and does not follow from its cause: no text holds by an entry typed."""
        return tuple(
            found(where, code, f"{place} is UNVERIFIED{f', and {len(more)} more' if more else ''}: {what}", remedy)
            for (code, what, remedy), ((where, place), *more) in grouped(self._refused()).items()
        )

    def _refused(self) -> Iterator[tuple[tuple[str, str, str], tuple[str, LedgerPlace]]]:
        causes = Causes(ledger=self.ledger, chains=self.chains, judged=self.bundles.judged)
        for place, entries in self.chains.items():
            newest = stands_on(entries, fold(entries).heads)
            for digest, refused in itertools.islice(causes.refuted(entries, newest, self.now), 1):
                where = self.ledger.folder(place) / file_name(entries[digest].seq, digest)
                yield (refused.code, refused.what, refused.remedy), (str(where), place)


def earned(mine: Iterable[Cited], stood: Places, now: datetime, *, then: bool = False) -> Earned:
    """Return the places that a section about these findings discharges: ACTIVE ones, by a fresh live PASS."""
    places = set()
    for one in mine:
        seen, place = bundle_evidence(one.bundle, one.finding), place_in(one.bundle, one.finding, stood)
        seen = seen.as_sealed if then else seen
        standing = stood[place].standing if place in stood else Standing()
        if seen.discharges(standing, now):
            places.add(place)
    return frozenset(places)


def check_spec(here: Here) -> Looked:
    """Check every landed section as of its landing, their order, and the page that is made of them."""
    sections = landed(here.spec / AMENDMENTS)
    problems = [*structure(sections), *here.unverified]
    counted: Counter[str] = Counter(sections=len(sections))
    for one in sections:
        looked = check_landed(here, one, sections)
        problems += looked.problems
        counted.update(looked.counted)
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
    problems += not_rendered(here.spec, sections)
    return Looked(problems=tuple(sorted(set(problems))), counted=counted)


def check_landed(here: Here, one: Section, sections: Sequence[Section]) -> Looked:
    """Check a landed section as of its landing."""
    landing, where = one.about.landing, str(one.path)
    if one.digest not in {other.digest for other in sections}:
        wrong = found(where, "not-landed", "is not among the landed sections", f"they are in {AMENDMENTS}/")
        return Looked(problems=(wrong,), counted={})
    try:
        before = history(here.chains, landing.heads)
        bundles = [here.bundles.get(id_) for id_ in one.about.evidence]
        mine = cited(bundles, one.about.gates)
    except WeighbridgeError as problem:
        return Looked(problems=(found(where, problem.code, problem.what, problem.remedy),), counted={})
    due = earned(mine, before, moment(landing.at), then=True)
    named = {str(place): place for place in before if str(place) in landing.discharges}
    looked = _checked(here, one, sections, bundles=bundles, before=before, due=frozenset(named.values()))
    problems = [*looked.problems]
    for name in landing.discharges:
        entries = here.chains[named[name]].values() if name in named else ()
        if named.get(name) not in due:
            what = f"says that it discharged {name}, which its evidence did not earn"
            problems.append(found(where, "unearned", what, "take it out of the spec and of the ledger"))
        elif not any(entry.cause == one.digest for entry in entries):
            what = f"the ledger does not have that it discharged {name}"
            remedy = f"finish its landing: weighbridge amend land {one.path}"
            problems.append(found(where, "not-discharged", what, remedy))
    return Looked(problems=tuple(problems), counted=looked.counted)


def _checked(
    here: Here, one: Section, sections: Sequence[Section], *, bundles: Sequence[Bundle], before: Places, due: Earned
) -> Looked:
    """Check all that a section says, and that what was drafted of it follows from its bundles."""
    where, landing, gates = str(one.path), one.about.landed, one.about.gates
    at, frozen = (landing.at, True) if landing else (utc(here.now), False)
    stood, since = discharged(before, map(str, due)), taken_before(sections, one)
    known = Known(bundles=here.bundles, stood=stood, at=at, refuted=since, strict=True, gates=gates, frozen=frozen)
    looked = look(one.body, where, known, one.first_line)
    problems = [*looked.problems, *contradicted(one, _landed_on(one, sections) if landing else sections, known)]
    line = 1 + one.text[: one.text.find("\nevidence:") + 1].count("\n")
    problems += look(" ".join(f"[ev:{id_}]" for id_ in one.about.evidence), where, known, line).problems
    said = {problem.line for problem in problems if not problem.warning}
    again = changed(one, bundles, before, due) if bundles else ()
    return replace(looked, problems=(*problems, *(problem for problem in again if problem.line not in said)))


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


def land(here: Here, path: Path, *, run_commands: bool = False) -> tuple[Section | None, tuple[Found, ...]]:
    """Return the section that a draft has become, or None, and what was found in it."""
    from filelock import FileLock

    folder = here.spec / AMENDMENTS
    draft = section_of(path)
    with disk_errors("the section", folder):
        make_folders(folder)
        with FileLock(folder / LOCK):
            for place in (folder, here.spec):
                sweep(place)
            sections = landed(folder)
            if draft.about.landed is not None:  # landed again: what a crash left undone is done
                looked = check_landed(here, draft, sections)
                problems = tuple(one for one in looked.problems if one.code != "not-discharged")
                if any(not one.warning for one in problems):
                    return None, problems
                _discharge(here, draft)
                render(here.spec)
                return draft, problems
            section, problems = _judged(here, draft, sections, run_commands=run_commands)
            if any(not one.warning for one in problems):
                return None, problems
            link_new(section.path, section.text.encode())  # before the ledger: no status rests on what is not there
            try:
                _discharge(here, section)
            except LedgerError:
                section.path.unlink()  # a move of the ledger came between: nobody has seen this section
                raise
            render(here.spec)
            path.unlink()
            return section, problems


def _judged(
    here: Here, draft: Section, sections: Sequence[Section], *, run_commands: bool
) -> tuple[Section, tuple[Found, ...]]:
    """Return the section as it would land, and everything that is wrong with it."""
    where, before = str(draft.path), history(here.chains)
    problems = [*structure(sections), *_about(draft, sections), *here.unverified]
    mine: tuple[Cited, ...] = ()
    try:
        bundles = [here.bundles.get(id_) for id_ in draft.about.evidence]
        mine = cited(bundles, draft.about.gates)
    except WeighbridgeError as problem:
        bundles = []
        problems.append(found(where, problem.code, problem.what, problem.remedy))
    for bundle in bundles:
        if LOCAL in bundle.path.parts:
            what, remedy = "is in a folder that git ignores", f"move it into {KEPT}, or make it with verify --record"
            problems.append(found(where, "evidence-not-kept", f"bundle {bundle.id[:12]} {what}", remedy))
    due = earned(mine, before, here.now)
    places = tuple(sorted(map(str, due)))
    causes = Causes(ledger=here.ledger, chains=here.chains, judged=here.bundles.judged)
    beside = list(causes.unread.items()) if places else []
    beside += [(str(place), why) for place, _, why in causes.left_out(here.now) if str(place) in places]
    problems += (found(where, one.code, f"may discharge nothing: {at}: {one.what}", one.remedy) for at, one in beside)
    after = discharged(before, places)
    body = re.sub(rf"\n*{TALLY.pattern}\n*", "\n", draft.body, flags=re.DOTALL).rstrip()
    problems += _checked(here, replace(draft, body=body), sections, bundles=bundles, before=before, due=due).problems
    for error in amendments.stale(draft.about.premises, here.bundles, where, run_commands=run_commands):
        problems.append(found(where, error.code, error.what, error.remedy))
    landing = Landing(
        at=utc(here.now),
        raises=_raises(here, draft, bundles, sections),
        previous=sections[-1].digest if sections else "",
        heads={str(place): stood.standing.heads for place, stood in before.items()},
        discharges=places,
    )
    about = replace(draft.about, landed=landing)
    text = written(about, f"{body}\n\n{block(after)}")
    digest, number = sha256(text.encode()), 1 + max((one.number for one in sections), default=0)
    target = here.spec / AMENDMENTS / f"{number:04d}-{slug(draft.about.title)}-{digest[:12]}.md"
    return Section(path=target, about=about, body=body, digest=digest, text=text), tuple(dict.fromkeys(problems))


def _about(draft: Section, sections: Sequence[Section]) -> Iterator[Found]:
    about, where = draft.about, str(draft.path)
    known = {one.about.id: one for one in sections}
    takes_back = {*about.refutes, *about.supersedes}
    if about.id in known:
        yield found(where, "already-landed", f"{about.id} is §{known[about.id].number}", "delete this draft")
    if not about.author.strip():
        yield found(where, "front-matter", "names no author", "write author:")
    for index, line in enumerate(draft.body.split("\n")):
        if AUTHOR in line:
            what, at = "has a place that is left to the author", draft.first_line + index
            yield found(where, "unfilled", what, "fill it and delete its line", at)
    if about.evidence and "Claim" not in {one.head for one in units_of(draft.body)}:
        what = "has no heading ### Claim, under which a section says what it claims"
        yield found(where, "unfilled", what, "write it before the drafted parts", draft.first_line)
    needs = {"correction": takes_back, "editorial": not (about.gates or about.evidence), "record": about.evidence}
    if not needs[about.kind] or (takes_back and about.kind != "correction"):
        what = f"is of the kind {about.kind}, which its refutes, supersedes, gates and evidence contradict"
        yield found(where, "front-matter", what, "a correction takes sections back, an editorial has no evidence")
    if takes_back and not about.evidence:
        yield found(where, "no-evidence", "takes a section back and names no evidence against it", "add evidence:")
    for name in sorted({*about.depends_on, *takes_back} - known.keys()):
        yield found(where, "not-landed", f"{name} has not landed", "land it first")
    for name in sorted({*about.depends_on} & known.keys()):
        for how, by in taken_back(known[name], sections):
            yield found(where, "refuted", f"depends on {name}, {how} by §{by.number}", "rest it on the later section")


def _raises(here: Here, draft: Section, bundles: Sequence[Bundle], sections: Sequence[Section]) -> str:
    if draft.about.refutes or draft.about.supersedes:
        return "major"
    for bundle in bundles:
        ids = (id_ for one in reversed(sections) for id_ in one.about.evidence)
        earlier = (here.bundles.get(id_).contract for id_ in ids)
        before = next((contract.gates for contract in earlier if contract.id == bundle.contract.id), ())
        now = {gate.id: gate for gate in bundle.contract.gates}
        if any(gate.id not in now or any(looser(gate, now[gate.id])) for gate in before):
            return "major"
    return "minor" if bundles or draft.about.gates else "patch"


def _discharge(here: Here, section: Section) -> None:
    """Append what a landed section discharges; what is in the ledger already stays as it is."""
    mine = cited((here.bundles.get(id_) for id_ in section.about.evidence), section.about.gates)
    stood, done = history(here.chains), set[LedgerPlace]()
    for one in mine:
        place = place_in(one.bundle, one.finding, stood)
        passed = one.finding.verdict.outcome is Outcome.PASS
        if str(place) in section.about.landing.discharges and passed and place not in done:
            done.add(place)
            if not any(entry.cause == section.digest for entry in here.ledger.read(place).values()):
                about = {"amendment": section.digest, "reason": f"§{section.number} {section.about.title}"}
                discharge(here.ledger, one.bundle, one.finding, now=here.now, **about)


def check_file(here: Here, path: Path) -> Looked:
    """Compare one Markdown file, anybody's, with the bundles and the ledger as they are now."""
    text = read_regular(path, str(path), MAX_TEXT).decode("utf-8", errors="replace")
    sections = landed(here.spec / AMENDMENTS)
    if text.startswith("---\n") and SCHEMA in text.partition("\n---\n")[0]:
        draft = section_of(path)
        if draft.about.landed is not None:
            return check_landed(here, draft, sections)
        section, problems = _judged(here, draft, sections, run_commands=False)
        rest = tuple(one for one in problems if one.code not in ("premise-not-run", "evidence-not-kept"))
        return Looked(problems=rest, counted={"drafts": 1, "citations": section.text.count("[ev:")})
    since, stood = taken_before(sections, None), history(here.chains)
    looked = look(text, str(path), Known(bundles=here.bundles, stood=stood, at=utc(here.now), refuted=since))
    of_ledger = here.unverified if STATED & looked.counted.keys() else ()
    return replace(looked, problems=(*looked.problems, *of_ledger))
