"""Landing: a draft becomes a section of the spec, once, where everything that it says and rests on holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from weighbridge.contract.checks import looser
from weighbridge.contract.layers import Found
from weighbridge.core import LedgerError, Outcome, WeighbridgeError, sha256
from weighbridge.core.project import LOCAL
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.disk import disk_error, link_new, make_folders, read_regular, sweep
from weighbridge.evidence.statement import utc
from weighbridge.ledger.causes import Causes
from weighbridge.ledger.fold import LedgerPlace
from weighbridge.ledger.record import discharge
from weighbridge.ledger.store import LOCK
from weighbridge.spec.amendments import MAX_TEXT, SCHEMA, Landing, Section, landed, section_of, slug, written
from weighbridge.spec.citations import KEPT
from weighbridge.spec.claims import look
from weighbridge.spec.drafting import AUTHOR, Cited, cited
from weighbridge.spec.hypotheses import contradicted
from weighbridge.spec.landed_sections import Here, check_landed, earned, structure, taken_before
from weighbridge.spec.premises import stale
from weighbridge.spec.reading import Known, Looked, found
from weighbridge.spec.rendering import AMENDMENTS, render, taken_back
from weighbridge.spec.tally import BEGIN, END, block, discharged, history, place_in


def land(here: Here, path: Path, *, run_commands: bool = False) -> tuple[Section | None, tuple[Found, ...]]:
    """Return the section that a draft has become, or None, and what was found in it."""
    from filelock import FileLock

    folder = here.spec / AMENDMENTS
    draft = section_of(path)
    try:
        make_folders(folder)
        with FileLock(folder / LOCK):
            for place in (folder, here.spec):
                sweep(place)
            sections = landed(folder)
            if draft.about.landed is not None:  # landed again: what a crash left undone is done
                problems, _ = check_landed(here, draft, sections)
                problems = tuple(one for one in problems if one.code != "not-discharged")
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
    except OSError as problem:
        raise disk_error(problem, "the section", folder) from None


def _judged(
    here: Here, draft: Section, sections: Sequence[Section], *, run_commands: bool
) -> tuple[Section, tuple[Found, ...]]:
    """Return the section as it would land, and everything that is wrong with it."""
    where, before = str(draft.path), history(here.chains)
    problems = [*structure(sections), *_about(draft, sections)]
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
    places = tuple(sorted(map(str, earned(mine, before, here.now))))
    causes = Causes(ledger=here.ledger, chains=here.chains)
    beside = list(causes.unread.items()) if places else []
    beside += [(str(place), why) for place, _, why in causes.left_out(here.now) if str(place) in places]
    problems += [
        found(where, one.code, f"may discharge nothing: {name}: {one.what}", one.remedy) for name, one in beside
    ]
    after = discharged(before, places)
    body = re.sub(rf"\n*{re.escape(BEGIN)}.*?{re.escape(END)}\n*", "\n", draft.body, flags=re.DOTALL).rstrip()
    since, now = taken_before(sections, draft), utc(here.now)
    known = Known(bundles=here.bundles, stood=after, at=now, refuted=since, strict=True)
    problems += look(body, where, known, draft.first_line).problems
    problems += contradicted(replace(draft, body=body), sections, known)
    line = 1 + draft.text[: draft.text.find("\nevidence:") + 1].count("\n")
    problems += look(" ".join(f"[ev:{id_}]" for id_ in draft.about.evidence), where, known, line).problems
    for error in stale(draft.about.premises, here.bundles, where, run_commands=run_commands):
        problems.append(found(where, error.code, error.what, error.remedy))
    landing = Landing(
        at=now,
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
    needs = {"correction": bool(takes_back), "editorial": not (about.gates or about.evidence), "record": True}
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
            problems, counted = check_landed(here, draft, sections)
            return Looked(problems=problems, counted=counted)
        section, problems = _judged(here, draft, sections, run_commands=False)
        rest = tuple(one for one in problems if one.code not in ("premise-not-run", "evidence-not-kept"))
        return Looked(problems=rest, counted={"drafts": 1, "citations": section.text.count("[ev:")})
    since, stood = taken_before(sections, None), history(here.chains)
    return look(text, str(path), Known(bundles=here.bundles, stood=stood, at=utc(here.now), refuted=since))
