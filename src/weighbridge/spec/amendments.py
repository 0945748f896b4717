"""An amendment: front matter and a body of Markdown, as a draft or landed under its digest; what it rests on."""

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from weighbridge.contract import strict_yaml
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.core import AmendmentError, Doc, LimitsError, WeighbridgeError, dataclass, field, fields, plain, sha256
from weighbridge.core.git import answer
from weighbridge.core.limits import read
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.review import State
from weighbridge.spec.citations import Bundles

SCHEMA = "amendment/v0"
KINDS = ("record", "correction", "editorial")
RAISES = ("major", "minor", "patch")
PREMISES = ("bundle", "verdict", "contract", "file", "commit", "command")
MAX_TEXT, MAX_FILE = 1 << 20, 1 << 30
SECONDS = 60  # for a command
IDENTICALLY = "re-judges identically"
LANDED = re.compile(r"(?P<section>\d{4,})-(?P<slug>[a-z0-9-]+)-(?P<digest>[0-9a-f]{12})\.md")
ID = r"A-\d{8}-[a-z0-9-]{1,60}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Premise:
    """What must hold when the section lands: `id` names it (a command has its argv instead), `expect` is its value."""

    kind: Annotated[str, Doc(choices=PREMISES)]
    id: str = ""
    argv: tuple[str, ...] = ()
    expect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Landing:
    """What landing added: when, which part of the version it raises, the section before, the newest entries."""

    at: str
    raises: Annotated[str, Doc(choices=RAISES)]
    previous: str
    heads: Mapping[str, tuple[str, ...]]
    discharges: tuple[str, ...]  # the places that this section has moved to DISCHARGED


@dataclass(frozen=True, slots=True, kw_only=True)
class Amendment:
    """The front matter: what a section is about, and what it rests on."""

    weighbridge: Annotated[str, Doc(choices=(SCHEMA,))] = SCHEMA
    id: Annotated[str, Doc(pattern=ID)]
    title: Annotated[str, Doc(pattern=r".*\S.*")]
    author: str
    kind: Annotated[str, Doc(choices=KINDS)]
    gates: tuple[str, ...] = ()
    evidence: tuple[Annotated[str, Doc(pattern="[0-9a-f]{12,64}")], ...] = ()
    premises: tuple[Premise, ...] = ()
    supersedes: tuple[str, ...] = ()
    refutes: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    landed: Landing | None = None

    @property
    def landing(self) -> Landing:
        """Return what landing added, of a section that has landed."""
        assert self.landed is not None
        return self.landed


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """An amendment's file: its front matter, its body, and the digest of its bytes."""

    path: Path
    about: Amendment
    body: str
    digest: str
    text: str = field(repr=False)

    @property
    def number(self) -> int:
        """Return the number of a landed section, which is in its file's name alone; a draft has 0."""
        named = LANDED.fullmatch(self.path.name)
        return int(named["section"]) if named else 0

    @property
    def first_line(self) -> int:
        """Return the line of the file on which the body begins."""
        return 3 + self.text.partition("\n---\n")[0].count("\n")


def section_of(path: Path) -> Section:
    """Read an amendment; raise `front-matter`, or `altered` for a landed one without the digest in its name."""
    data = read_regular(path, str(path), MAX_TEXT)
    text = data.decode("utf-8", errors="replace")
    named, digest = LANDED.fullmatch(path.name), sha256(data)
    if named is not None and not digest.startswith(named["digest"]):
        what = f"has sha256 {digest[:12]}…, its name says {named['digest']}: a landed section is never edited"
        raise AmendmentError("altered", what, where=str(path), remedy="restore it, and land a correction")
    front, marker, body = text.removeprefix("---\n").partition("\n---\n")
    if not text.startswith("---\n") or not marker:
        what = "does not begin with front matter between two lines of ---"
        raise AmendmentError("front-matter", what, where=str(path), remedy="begin with: weighbridge amend draft")
    document = strict_yaml.load(f"\n{front}\n", str(path))
    try:
        about: Amendment = read(Amendment, document.data)
    except LimitsError as error:
        first = error.problems[0]
        raise AmendmentError("front-matter", first.what, where=document.at(first.path, first.at_key)) from None
    if (named is None) != (about.landed is None):
        what = "has a landed section's front matter under another name, or its name without having landed"
        raise AmendmentError("front-matter", what, where=str(path), remedy="restore NNNN-title-DIGEST.md")
    return Section(path=path, about=about, body=body, digest=digest, text=text)


def written(about: Amendment, body: str) -> str:
    """Write an amendment; every value is JSON, which YAML reads as what it is."""
    lines = []
    for item in fields(Amendment):
        value: Any = plain(getattr(about, item.name))
        if item.name == "premises" and value:
            shown = [json.dumps({key: one[key] for key in one if one[key]}, ensure_ascii=False) for one in value]
            lines += [f"{item.name}:", *(f"- {one}" for one in shown)]
        elif value is not None:
            lines.append(f"{item.name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(("---", *lines, "---", body))


def landed(folder: Path) -> tuple[Section, ...]:
    """Read every landed section, in the order of their numbers, or raise the first that is not as it landed."""
    paths = sorted(folder.glob("[0-9]*.md"))
    for path in (path for path in paths if not LANDED.fullmatch(path.name)):
        what = "is named as a landed section and has no digest in its name"
        raise AmendmentError("front-matter", what, where=str(path), remedy="keep drafts in drafts/, and land them")
    sections = [section_of(path) for path in paths]
    return tuple(sorted(sections, key=lambda one: (one.number, one.about.landing.at, one.digest)))


def versions(sections: Iterable[Section]) -> tuple[str, ...]:
    """Return the version of the spec after each section, in their order."""
    parts, found = [0, 0, 0], []
    for one in sections:
        at = RAISES.index(one.about.landing.raises)
        parts = [*parts[:at], parts[at] + 1, *[0] * (2 - at)]
        found.append(".".join(map(str, parts)))
    return tuple(found)


def slug(title: str) -> str:
    """Return a title as part of a file's name."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:48].strip("-") or "section"


def stale(premises: Iterable[Premise], bundles: Bundles, where: str, *, run_commands: bool) -> Iterator[AmendmentError]:
    """Look at every premise again, and yield each that does not hold."""
    for premise in premises:
        named = premise.id or " ".join(premise.argv)
        if premise.kind == "command" and not run_commands:
            what = f"the premise `{named}` was not executed"
            yield AmendmentError("premise-not-run", what, where=where, remedy="allow it with --run-commands")
            continue
        try:
            found = _found(premise, bundles)
        except WeighbridgeError as problem:
            found = f"{problem.code} {problem.what}"
        if found != premise.expect:
            what = f"{premise.kind} {named}: expected {premise.expect or 'nothing'}, found {found}"
            remedy = "measure again, or correct what the section says"
            yield AmendmentError("premise-stale", what, where=where, remedy=remedy)


def _found(premise: Premise, bundles: Bundles) -> str:
    match premise.kind:
        case "bundle":
            found = bundles.rederivation(premise.id)
            return IDENTICALLY if found.state is State.HOLDS else found.says
        case "verdict":
            bundle, _, named = premise.id.partition("/")
            outcomes = {f"{one.gate}[{one.instance}]": one.verdict.outcome for one in bundles.get(bundle).findings}
            return str(outcomes.get(named, "no such verdict"))
        case "contract":
            loaded = contracts_here().get(premise.id)
            return digests(loaded.contract).whole if loaded else "no such contract here"
        case "file":
            return sha256(read_regular(Path(premise.id), premise.id, MAX_FILE))
        case "commit":
            argv = ("merge-base", "--is-ancestor", premise.id, "HEAD")
            known = re.fullmatch(r"[0-9a-f]{7,64}", premise.id) and answer(Path(), *argv, seconds=SECONDS) is not None
            return "in history" if known else "not in the history of HEAD"
        case _:
            return _printed(premise.argv)


def _printed(argv: tuple[str, ...]) -> str:
    """Run a command; its output goes to a file, so that no process which it left behind can be waited for."""
    with tempfile.TemporaryFile() as out:
        try:
            where = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(argv, start_new_session=True, **where)  # type: ignore[call-overload]
        except (OSError, ValueError, IndexError):
            return "a command that does not start"
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # it has not been waited for, so the group is still its own
            process.kill()
            process.wait()
            return f"nothing within {SECONDS} s"
        out.seek(0)
        return sha256(out.read(MAX_FILE)) if code == 0 else f"exit {code}"
