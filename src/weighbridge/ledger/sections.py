"""An amendment: front matter and a body of Markdown, as a draft or landed under its digest."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from weighbridge.contract import strict_yaml
from weighbridge.core import AmendmentError, Doc, LimitsError, sha256
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.limits import read
from weighbridge.evidence.disk import read_regular

SCHEMA = "amendment/v0"
KINDS = ("record", "correction", "editorial")
RAISES = ("major", "minor", "patch")
PREMISES = ("bundle", "verdict", "contract", "file", "commit", "command")
MAX_TEXT = 1 << 20
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
