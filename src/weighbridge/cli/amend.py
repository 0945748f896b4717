"""`weighbridge amend`: draft sections of a spec from evidence, land them, hold any text against evidence, render."""

import datetime as dt
import sys
from pathlib import Path

import click

from weighbridge.cli.options import LEDGER, PATH, Texts, as_json, print_json, repeated, tell, verb, verbs
from weighbridge.contract.layers import Found
from weighbridge.core import ExitCode, UsageError, plain
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.disk import write_new
from weighbridge.ledger.store import Ledger
from weighbridge.spec.amendments import landed, versions
from weighbridge.spec.citations import find
from weighbridge.spec.drafting import AuthorNotes, cited, draft
from weighbridge.spec.landing import Here, check_file, check_spec, earned, land
from weighbridge.spec.rendering import AMENDMENTS, SPEC, render
from weighbridge.spec.tally import block, discharged, history

SPEC_FOLDER = click.option("--spec", type=PATH, default=Path("spec"), show_default=True, help="The folder of the spec.")
BUNDLE = "The bundle's folder, or at least 6 digits of its id. Repeatable."


@verbs("amend", "Draft, land and check sections of a spec.", "draft --bundle 2f6a7cfc0f86 --gate GATE-RUN-004")
def command() -> None:
    """Draft a spec section whose every number cites an evidence bundle, land it, and check any text."""


TO_DRAFT = """--bundle 2f6a7cfc0f86 --gate GATE-RUN-004 \\
           --author 'A. Lovelace' --out spec/amendments/drafts/step-time.md"""


@verb("draft", "Write the section for some gates, as Markdown.", TO_DRAFT, of=command)
@click.option("--bundle", "bundles", multiple=True, required=True, help=BUNDLE)
@click.option("--gate", "gates", multiple=True, required=True, help="The id of a gate. Repeatable.")
@click.option("--out", type=PATH, help="The new file to write.  [default: standard output]")
@click.option("--title", default="", help="The title.  [default: that of the first gate, and what it came to]")
@click.option("--author", default="", help="Who answers for the section.")
@repeated("--supersedes", "supersedes", "ID", "A section that this one replaces.")
@repeated("--refutes", "refutes", "ID", "A section that this one shows to be wrong.")
@repeated("--depends-on", "depends_on", "ID", "A section that this one rests on.")
@SPEC_FOLDER
@LEDGER
def draft_section(bundles: Texts, gates: Texts, out: Path | None, spec: Path, folder: Path, **given: object) -> None:
    """Write a spec section for some gates: command, figures, statuses, evidence, and places for the author."""
    unsealed = [unseal(find(bundle)) for bundle in bundles]
    now, stood = dt.datetime.now(dt.UTC), history(Ledger(folder).chains())
    places = earned(cited(unsealed, gates), stood, now)
    known = tuple(one.about.id for one in landed(spec / AMENDMENTS))
    text = draft(unsealed, gates, AuthorNotes(at=now, landed=known, **given), stood, places)  # type: ignore[arg-type]
    text += f"\n{block(discharged(stood, map(str, places)))}"
    if out is None:
        tell([text.removesuffix("\n")], whole=True)
        return
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_new(out, text.encode())
    except OSError as problem:
        raise UsageError("out", f"cannot be written: {problem.strerror}", where=str(out)) from None
    tell([f"drafted: {out}", f"fill in what is left to the author, then: weighbridge amend land {out}"])


@verb("land", "Make a draft a numbered section of the spec.", "spec/amendments/drafts/step-time.md", of=command)
@click.argument("file", type=PATH)
@click.option("--run-commands", is_flag=True, help="Execute the commands that the draft names as premises.")
@SPEC_FOLDER
@LEDGER
def land_section(file: Path, spec: Path, folder: Path, *, run_commands: bool) -> None:
    """Land the draft FILE: check all that it says, execute its premises, number it, discharge what it earns.

    Exit 0: landed; 1: refused, and nothing was written; 2: invalid; 4: unreadable.
    """
    section, problems = land(_here(spec, folder), file, run_commands=run_commands)
    tell(map(str, problems))
    if section is None:
        tell([f"refused: {sum(not one.warning for one in problems)} problems, nothing was written"], err=True)
        sys.exit(ExitCode.FAILED)
    sections = landed(spec / AMENDMENTS)
    after = versions(sections)[[one.digest for one in sections].index(section.digest)]
    tell([f"landed: §{section.number} {section.about.title}, version {after}", str(section.path)])
    tell([] if file.exists() else [f"{file} was taken into it, and is gone"])
    tell(f"discharged: {place}" for place in section.about.landing.discharges)


@verb("check", "Check a spec, or any Markdown, against evidence.", "README.md docs/results.md", of=command)
@click.argument("files", nargs=-1, type=PATH)
@SPEC_FOLDER
@LEDGER
@as_json
def check_texts(files: tuple[Path, ...], spec: Path, folder: Path, *, as_json: bool) -> None:
    """Check every citation, status word, count and sum of FILES; without any, of the landed sections of the spec.

    Exit 0: all hold; 1: one does not; 4: unreadable; 5: there is nothing that could be checked.
    """
    here = _here(spec, folder)
    looked = [check_file(here, file) for file in files] or [check_spec(here)]
    problems: list[Found] = [problem for one in looked for problem in one.problems]
    counted = {name: sum(one.counted.get(name, 0) for one in looked) for one in looked for name in one.counted}
    wrong = sum(not problem.warning for problem in problems)
    if as_json:
        print_json({"problems": plain(problems), "looked_at": counted})
    else:
        tell(map(str, problems))
        listed = ", ".join(f"{number} {name}" for name, number in counted.items() if number) or "nothing"
        tell([f"looked at: {listed}; wrong: {wrong}, warnings: {len(problems) - wrong}"])
    sys.exit(ExitCode.FAILED if wrong else ExitCode.PASSED if any(counted.values()) else ExitCode.NOTHING_SHOWN)


@verb("render", "Write SPEC.md of the landed sections.", "", of=command)
@SPEC_FOLDER
@LEDGER
def render_spec(spec: Path, folder: Path) -> None:
    """Write SPEC.md: every landed section as it landed, with banners on those that were refuted or superseded.

    Exit 0: written, and all that it says holds; 1: written, and something does not hold; 4: unreadable.
    """
    if not (spec / AMENDMENTS).is_dir():
        raise UsageError("no-sections", "nothing has landed here", where=str(spec / AMENDMENTS), remedy="land a draft")
    render(spec)
    tell([f"rendered: {spec / SPEC}"])
    if wrong := sum(not problem.warning for problem in check_spec(_here(spec, folder)).problems):
        tell([f"it does not hold: {wrong} problems, see: weighbridge amend check"], err=True)
        sys.exit(ExitCode.FAILED)


def _here(spec: Path, folder: Path) -> Here:
    return Here(spec=spec, ledger=Ledger(folder), now=dt.datetime.now(dt.UTC))
