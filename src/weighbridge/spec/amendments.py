"""Amendments as they are written, landed in their order, and what they rest on."""

import json
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.core import AmendmentError, WeighbridgeError, fields, plain, sha256
from weighbridge.core.git import answer
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.review import State
from weighbridge.ledger.sections import LANDED, RAISES, Amendment, Premise, Section, section_of
from weighbridge.spec.citations import Bundles

MAX_FILE = 1 << 30
SECONDS = 60  # for a command
IDENTICALLY = "re-judges identically"


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
