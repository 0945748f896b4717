"""Landing: a draft becomes a section of the spec, once, where everything that it says and rests on holds.

Its number is taken under a lock and stands in the file's name alone; two that were taken on two branches are told apart
after the merge by renaming one file. What it discharges is written into it first and into the ledger after it, so that
no status rests on a section that is not there; landing a landed file again does what a crash left undone.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from weighbridge.canonical import sha256
from weighbridge.contract.checks import looser
from weighbridge.contract.layers import Found
from weighbridge.errors import LedgerError, WeighbridgeError
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.disk import disk_error, link_new, make_folders
from weighbridge.evidence.statement import DAY_S, utc
from weighbridge.ledger.fold import ACTIVE, DISCHARGED, Place
from weighbridge.ledger.record import bundle_evidence, discharge, place_of
from weighbridge.ledger.store import LOCK, Ledger
from weighbridge.model import Contract, Outcome
from weighbridge.spec.amendments import Landing, Section, landed, section_of, slug, written
from weighbridge.spec.citations import STORES, Bundles
from weighbridge.spec.claims import Known, Looked, look
from weighbridge.spec.drafting import AUTHOR, Cited, cited
from weighbridge.spec.premises import stale
from weighbridge.spec.rendering import AMENDMENTS, SPEC, page, render, taken_back
from weighbridge.spec.tally import BEGIN, END, Stood, discharged, history, markdown, tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """Where a spec, its ledger and its evidence are, and what time it is."""

    spec: Path
    ledger: Ledger
    now: datetime
    bundles: Bundles = field(default_factory=Bundles)


def earned(mine: Iterable[Cited], stood: Mapping[Place, Stood], now: datetime) -> frozenset[Place]:
    """Return the places that a section about these findings discharges: ACTIVE ones, by a fresh live PASS."""
    found = set()
    for one in mine:
        seen, place = bundle_evidence(one.bundle, one.finding), place_of(one.bundle, one.finding)
        standing = stood[place].standing if place in stood else None
        if standing is None or standing.status is not ACTIVE or standing.diverged:
            continue
        sound = seen.outcome is Outcome.PASS and seen.live and not seen.dirty and not seen.overridden
        later = standing.failed_at is None or seen.at > standing.failed_at
        fresh = seen.max_age_days is None or (now - seen.at).total_seconds() <= seen.max_age_days * DAY_S
        if sound and later and fresh and seen.contract_digest == standing.contract_digest:
            found.add(place)
    return frozenset(found)


def land(here: Here, path: Path, *, run_commands: bool = False) -> tuple[Section | None, tuple[Found, ...]]:
    """Return the section that a draft has become, or None, and what was found in it.

    Raises:
        WeighbridgeError: where the draft, a landed section or the ledger cannot be read, or the disk refuses.
    """
    from filelock import FileLock

    folder = here.spec / AMENDMENTS
    draft = section_of(path)
    try:
        make_folders(folder)
        with FileLock(folder / LOCK):
            section, problems = draft, tuple[Found, ...]()
            if draft.about.landed is None:
                section, problems = _judged(here, draft, landed(folder), run_commands=run_commands)
                if any(not one.warning for one in problems):
                    return None, problems
                link_new(section.path, section.text.encode())
            try:
                _discharge(here, section)
            except LedgerError:
                if draft.about.landed is None:
                    section.path.unlink()  # a move of the ledger came between: nobody has seen this section
                raise
            render(here.spec)
            if draft.about.landed is None:
                path.unlink()
            return section, problems
    except OSError as problem:
        raise disk_error(problem, "the section", folder) from None


def _judged(
    here: Here, draft: Section, sections: Sequence[Section], *, run_commands: bool
) -> tuple[Section, tuple[Found, ...]]:
    """Return the section as it would land, and everything that is wrong with it."""
    where, before = str(draft.path), history(here.ledger)
    problems = [*structure(sections), *_about(draft, sections)]
    mine: tuple[Cited, ...] = ()
    try:
        bundles = [here.bundles.get(id_) for id_ in draft.about.evidence]
        mine = cited(bundles, draft.about.gates)
    except WeighbridgeError as problem:
        bundles = []
        problems.append(_found(where, problem.code, problem.what, problem.remedy))
    for bundle in bundles:
        if STORES[1].parts[0] in bundle.path.parts:
            remedy = f"move it into {STORES[0]}, or make it with verify --record"
            what = f"bundle {bundle.id[:12]} is in a folder that git ignores"
            problems.append(_found(where, "evidence-not-kept", what, remedy))
    places = tuple(sorted(map(str, earned(mine, before, here.now))))
    after = discharged(before, places)
    body = re.sub(rf"\n*{re.escape(BEGIN)}.*?{re.escape(END)}\n*", "\n", draft.body, flags=re.DOTALL).rstrip()
    known = Known(bundles=here.bundles, stood=after, refuted=_refuted(sections, draft), strict=True)
    problems += look(body, where, known, _first_line(draft)).problems
    problems += look("\n".join(f"- [ev:{id_}]" for id_ in draft.about.evidence), where, known).problems
    for error in stale(draft.about.premises, here.bundles, where, run_commands=run_commands):
        problems.append(_found(where, error.code, error.what, error.remedy))
    landing = Landing(
        at=utc(here.now),
        raises=_raises(here, draft, bundles, sections),
        previous=sections[-1].digest if sections else "",
        heads={str(place): stood.standing.heads for place, stood in before.items()},
        discharges=places,
    )
    block = markdown(tally({place: stood.standing for place, stood in after.items()}))
    text = written(replace(draft.about, landed=landing), f"{body}\n\n{block}")
    digest, number = sha256(text.encode()), 1 + max((one.number for one in sections), default=0)
    target = here.spec / AMENDMENTS / f"{number:04d}-{slug(draft.about.title)}-{digest[:12]}.md"
    about = replace(draft.about, landed=landing)
    return Section(path=target, about=about, body=body, digest=digest, text=text), tuple(dict.fromkeys(problems))


def _about(draft: Section, sections: Sequence[Section]) -> Iterator[Found]:
    """Hold the front matter of a draft against itself and against what has landed."""
    about, where = draft.about, str(draft.path)
    known = {one.about.id: one for one in sections}
    takes_back = {*about.refutes, *about.supersedes}
    if about.id in known:
        yield _found(where, "already-landed", f"{about.id} is §{known[about.id].number}", "delete this draft")
    if not about.author.strip():
        yield _found(where, "front-matter", "names no author", "write author:")
    if AUTHOR in draft.body:
        line = _first_line(draft) + draft.body[: draft.body.index(AUTHOR)].count("\n")
        yield _found(where, "unfilled", "has a place that is left to the author", "fill it and delete its line", line)
    needs = {"correction": bool(takes_back), "editorial": not (about.gates or about.evidence), "record": True}
    if not needs[about.kind] or (takes_back and about.kind != "correction"):
        what = f"is of the kind {about.kind}, which its refutes, supersedes, gates and evidence contradict"
        yield _found(where, "front-matter", what, "a correction takes sections back, an editorial has no evidence")
    if takes_back and not about.evidence:
        yield _found(where, "no-evidence", "takes a section back and names no evidence against it", "add evidence:")
    for name in sorted({*about.depends_on, *takes_back} - known.keys()):
        yield _found(where, "not-landed", f"{name} has not landed", "land it first")
    for name in sorted({*about.depends_on} & known.keys()):
        for how, by in taken_back(known[name], sections):
            yield _found(where, "refuted", f"depends on {name}, {how} by §{by.number}", "rest it on the later section")


def _raises(here: Here, draft: Section, bundles: Sequence[Bundle], sections: Sequence[Section]) -> str:
    """Return which part of the version a section raises."""
    if draft.about.refutes or draft.about.supersedes:
        return "major"
    for bundle in bundles:
        ids = (id_ for one in reversed(sections) for id_ in one.about.evidence)
        earlier = (here.bundles.get(id_).contract for id_ in ids)
        before = next((contract for contract in earlier if contract.id == bundle.contract.id), None)
        if before is not None and _loosened(before, bundle.contract):
            return "major"
    return "minor" if bundles or draft.about.gates else "patch"


def _loosened(before: Contract, now: Contract) -> bool:
    gates = {gate.id: gate for gate in now.gates}
    return any(gate.id not in gates or any(looser(gate, gates[gate.id])) for gate in before.gates)


def _discharge(here: Here, section: Section) -> None:
    """Append what a landed section discharges; what is in the ledger already stays as it is."""
    mine = cited((here.bundles.get(id_) for id_ in section.about.evidence), section.about.gates)
    done = set()
    for one in mine:
        place = place_of(one.bundle, one.finding)
        passed = one.finding.verdict.outcome is Outcome.PASS
        if str(place) in section.about.landing.discharges and passed and place not in done:
            done.add(place)
            if not any(entry.cause == section.digest for entry in here.ledger.read(place).values()):
                reason = f"§{section.number} {section.about.title}"
                about = {"amendment": section.digest, "reason": reason}
                discharge(here.ledger, one.bundle, one.finding, now=here.now, **about)


# --- Checking ---------------------------------------------------------------------------------------------------------


def check_spec(here: Here) -> Looked:
    """Hold every landed section as of its landing, their order, and the page that is made of them."""
    sections = landed(here.spec / AMENDMENTS)
    problems = [*structure(sections)]
    counted: dict[str, int] = {"sections": len(sections)}
    for one in sections:
        try:
            stood = discharged(history(here.ledger, one.about.landing.heads), one.about.landing.discharges)
        except WeighbridgeError as problem:
            problems.append(_found(str(one.path), problem.code, problem.what, problem.remedy))
            continue
        known = Known(bundles=here.bundles, stood=stood, refuted=_refuted(sections, one), strict=True, frozen=True)
        looked = look(one.body, str(one.path), known, _first_line(one))
        problems += [*looked.problems, *_undischarged(here, one)]
        counted = {name: counted.get(name, 0) + looked.counted.get(name, 0) for name in {**counted, **looked.counted}}
    problems += _resting(here, sections)
    spec = here.spec / SPEC
    if sections and (not spec.is_file() or spec.read_bytes() != page(here.spec).encode()):
        problems.append(_found(str(spec), "not-rendered", "is not what the sections give", "weighbridge amend render"))
    return Looked(problems=tuple(sorted(set(problems))), counted=counted)


def check_file(here: Here, path: Path) -> Looked:
    """Hold one Markdown file, anybody's, against the bundles and the ledger as they are now."""
    from weighbridge.evidence.disk import read_regular
    from weighbridge.spec.amendments import MAX_TEXT, SCHEMA

    text = read_regular(path, str(path), MAX_TEXT).decode("utf-8", errors="replace")
    sections = landed(here.spec / AMENDMENTS)
    if text.startswith("---\n") and SCHEMA in text.partition("\n---\n")[0]:
        draft = section_of(path)
        section, problems = _judged(here, draft, sections, run_commands=False)
        rest = tuple(one for one in problems if one.code not in ("premise-not-run", "evidence-not-kept"))
        return Looked(problems=rest, counted={"drafts": 1, "citations": section.text.count("[ev:")})
    known = Known(bundles=here.bundles, stood=history(here.ledger), refuted=_refuted(sections, None))
    return look(text, str(path), known)


def structure(sections: Sequence[Section]) -> Iterator[Found]:
    """Hold the order of landed sections: numbers without gap or double, each after the one that it landed on."""
    followed = {one.about.landing.previous for one in sections}
    for number, group in itertools.groupby(sections, key=lambda one: one.number):
        taken = sorted(group, key=lambda one: one.digest not in followed)
        for one in taken[1:]:
            name = re.sub(r"^\d+", f"{1 + max(other.number for other in sections):04d}", one.path.name)
            what = f"§{number} is {taken[0].about.id} and {one.about.id}, as after a merge"
            remedy = f"git mv {one.path} {one.path.with_name(name)}, then: weighbridge amend render"
            yield _found(str(one.path), "section-taken", what, remedy)
    for before, one in zip((0, *(one.number for one in sections)), sections, strict=False):
        if one.number > before + 1:
            yield _found(
                str(one.path), "section-gap", f"there is no §{one.number - 1} before it", "restore the section"
            )
    numbers = {one.digest: one.number for one in sections}
    for one in sections:
        previous = one.about.landing.previous
        if previous and not numbers.get(previous, one.number) < one.number:
            what = f"landed on the section with sha256 {previous[:12]}…, which is not before it"
            yield _found(str(one.path), "section-gap", what, "restore that section, or its number")


def _undischarged(here: Here, section: Section) -> Iterator[Found]:
    places = {str(place): place for place in here.ledger.places()}
    for name in section.about.landing.discharges:
        entries = here.ledger.read(places[name]).values() if name in places else ()
        if not any(entry.cause == section.digest for entry in entries):
            what = f"the ledger does not have that it discharged {name}"
            remedy = f"finish its landing: weighbridge amend land {section.path}"
            yield _found(str(section.path), "not-discharged", what, remedy)


def _resting(here: Here, sections: Sequence[Section]) -> Iterator[Found]:
    """Find what is DISCHARGED by a section that was refuted since."""
    refuted = {one.digest: (one, by) for one in sections for how, by in taken_back(one, sections) if how == "refuted"}
    for place, stood in history(here.ledger).items():
        causes = {here.ledger.read(place)[head].cause for head in stood.standing.heads}
        for digest in sorted(causes & refuted.keys()) if stood.standing.status is DISCHARGED else ():
            one, by = refuted[digest]
            what = f"{place} is DISCHARGED by §{one.number}, which §{by.number} refuted"
            yield _found(str(one.path), "rests-on-refuted", what, "record the FAIL: weighbridge verify --record")


def _refuted(sections: Sequence[Section], reader: Section | None) -> dict[str, str]:
    """Return what a text may no longer build on: sections taken back before it landed, by others than itself."""
    number = (reader.number if reader else 0) or 1 + len(sections)
    names: dict[str, str] = {}
    for one in sections:
        for how, by in taken_back(one, sections):
            if one.number < number and by.number < number:
                shown = (one.about.id, f"§{one.number}") if reader else (one.about.id,)
                names |= dict.fromkeys(shown, f"was {how} by §{by.number}")
    return names


def _first_line(section: Section) -> int:
    return 1 + section.text[: len(section.text) - len(section.body)].count("\n")


def _found(where: str, code: str, what: str, remedy: str = "", line: int = 1) -> Found:
    return Found(file=where, line=line, column=1, code=code, what=what, remedy=remedy)
