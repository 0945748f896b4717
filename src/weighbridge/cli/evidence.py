"""`weighbridge evidence`: verify bundles, show, compare, pack, merge, sign, export and prune them, judge them again."""

import datetime as dt
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import click

from weighbridge.cli import options
from weighbridge.cli.options import PATH, Paths, Texts, as_json, pairs, print_json, repeated, tell, verb, verbs
from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.core import ExitCode, Json, Outcome, UsageError, exit_code, is_folder, plain, printable
from weighbridge.core import show as shown
from weighbridge.core.canonical import dumps, json_value, sha256
from weighbridge.core.project import local, root
from weighbridge.evidence import review, signatures, statement
from weighbridge.evidence.archive import pack
from weighbridge.evidence.bundle import BUNDLES, cited_in, decode, files_of, folder_name, remove, stored, unseal, whole
from weighbridge.evidence.codec import finding_to_json
from weighbridge.evidence.disk import PackedFolder, disk_errors, link_new
from weighbridge.evidence.review import Against, Answer, Answers, State, differences
from weighbridge.ledger.merge import merge
from weighbridge.ledger.store import Ledger
from weighbridge.report import INDENT, bound_as, capped, heading
from weighbridge.report.exports import about, model_card, svr, test_result
from weighbridge.report.rows import rows_of_bundle
from weighbridge.report.terminal import block, outcome_line

BUNDLE = click.argument("bundle", type=options.BUNDLE)
ID = re.compile(r"(?:[0-9a-f]{12,64})?")


def _id(_context: click.Context, _option: click.Parameter, text: str) -> str:
    if not ID.fullmatch(text):
        what, remedy = f"{text!r} is no id of a bundle", "give its first 12 hexadecimal digits, or more"
        raise UsageError("id-form", what, remedy=remedy)
    return text


KNOWN = "The bundle's id as you know it, 12 digits or more."
IDENTITY = click.option("--id", "given", default="", metavar="ID12", callback=_id, help=KNOWN)
FORMS = {
    "test-result": lambda found: dumps(test_result(found)).decode(),
    "svr": lambda found: dumps(svr(found)).decode(),
    "model-card": model_card,
}
ANCHORED = "Fail unless --id or the ledger next to the bundles holds the bundle's id."
SIGNED = "Fail unless the key in this file signed the bundle: ed25519, public, PEM. Repeatable; one suffices."
QUESTIONS = ("integrity", "rederivation", "authenticity", "freshness", "coverage")


@verbs("evidence", "Verify, show, sign, pack, merge, export, prune evidence.", "verify BUNDLE")
def command() -> None:
    """Verify, show, compare, sign, pack, merge, export, prune or re-judge evidence bundles.

    Every change after sealing is detected. That the measurement was honest is not proved.
    """


@verb("verify", "Check that a bundle is unchanged and gives its verdicts.", of=command)
@BUNDLE
@IDENTITY
@click.option("--require-pass", is_flag=True, help="Fail unless all gates of the contract as it is written passed.")
@click.option("--require-anchor", is_flag=True, help=ANCHORED)
@click.option("--key", "keys", multiple=True, type=PATH, metavar="FILE", help=SIGNED)
@repeated("--subject", "subjects", "NAME=FILE", "Is this the file (or folder) that was measured?")
@as_json
def verify_bundle(
    bundle: Path, *, given: str, require_pass: bool, require_anchor: bool, keys: Paths, subjects: Texts, as_json: bool
) -> None:
    """Show the outcome of every gate of BUNDLE, and whether the bundle can be trusted.

    Example: weighbridge evidence verify BUNDLE --require-anchor

    BUNDLE is a folder, a zip or tar that holds one, or the first digits of the id of one that is kept here. Its
    integrity, re-derivation, authenticity, freshness and coverage are answered apart.

    Exit 0: unchanged, same verdicts; 1: not, or not what was required; 3: cannot be said here; 4: unreadable.
    """
    ledger = bundle.resolve().parent.parent / "ledger"
    against = Against(
        now=dt.datetime.now(dt.UTC),
        given=given,
        recorded=Ledger(ledger).causes() if is_folder(ledger) else None,
        contracts={name: digests(one.contract).whole for name, one in contracts_here().items()},
        anchored=require_anchor,
        keys={str(key): signatures.public_key(key) for key in keys},
    )
    with options.progress() as show:
        show("judging again")
        answers = review.verify(bundle, against)
    found: dict[str, Answer] = {name: getattr(answers, name) for name in QUESTIONS}
    if (sealed := answers.bundle) is not None:
        for name, path in pairs(subjects, "subject"):
            found[f"subject {name}"] = review.subject(sealed.statement, name, path, _checkpoint)
    findings = sealed.findings if sealed else ()
    if as_json:
        of_gate = ("gate", "instance", "severity", "outcome", "code")
        shown = [{key: gate[key] for key in of_gate} for gate in map(finding_to_json, findings)]
        stated = sealed.statement.subjects if sealed else ()
        reported = {f"{one.name}@{one.instance}": one.unwitnessed for one in stated if one.unwitnessed}
        print_json({"id": answers.id, "gates": shown, "reported": reported, **plain(found)})
    else:
        tell(_lines(answers, found))
    asked = {one.state for name, one in found.items() if name not in QUESTIONS}
    passed = exit_code(("", one) for one in findings) is ExitCode.PASSED and answers.coverage.state is State.HOLDS
    other = State.BROKEN in asked or (require_pass and not passed)
    sys.exit(answers.exit_code or ExitCode(1 if other else 3 if State.CANNOT_SAY in asked else 0))


def _checkpoint(path: Path, was: Collection[str]) -> statement.SubjectFiles:
    from weighbridge.evaluation.runner import files_of  # what measures loads as long as the rest
    from weighbridge.views.checkpoint import open_checkpoint

    return files_of(open_checkpoint(path), was=was)


def _lines(answers: Answers, found: Mapping[str, Answer]) -> Iterator[str]:
    yield click.style(f"bundle {answers.id}", bold=True)
    if answers.rederivation.state is State.BROKEN:
        yield "as sealed, which is not what the measurements give:"
    if answers.bundle is None:
        yield "what its gates came to cannot be said: its integrity is broken"
    else:
        titles = {gate.id: gate.title for gate in answers.bundle.contract.gates}
        for finding in answers.bundle.findings:
            code = "" if finding.verdict.outcome is Outcome.PASS else f"  ({printable(finding.verdict.code)})"
            yield outcome_line(finding, titles.get(finding.gate, "")) + code
        bound = (one for one in answers.bundle.statement.subjects if one.unwitnessed)
        yield from (printable(f"  {bound_as(at.name, at.instance, at.path)} is {at.said}") for at in bound)
    for name, one in found.items():
        yield printable(f"  {name:<13} {one.state:<11} {one.says}")
        yield from (printable(f"  {'':<25} {detail}") for detail in one.details if detail not in one.says)


@verb("show", "Print what a bundle holds.", "BUNDLE", of=command)
@BUNDLE
@IDENTITY
@as_json
def show(bundle: Path, *, given: str, as_json: bool) -> None:
    """Print the findings of BUNDLE with kinds, limits and trials, its subjects with their digests, and its origin.

    BUNDLE is as of `evidence verify`. With --json, findings are as in a report of `verify`.
    """
    sealed = unseal(bundle, given)
    stated, tool = sealed.statement, sealed.statement.tool
    if as_json:
        from weighbridge.report.machine import row_json

        about = {"id": sealed.id, "contract": stated.contract.id, "version": stated.contract.version}
        found: Json = [row_json(row) for row in rows_of_bundle(sealed)]
        print_json({**about, "statement": json_value(plain(stated)), "findings": found})
        return
    subjects = [f"{bound_as(one.name, one.instance, one.path)} ({one.said})" for one in stated.subjects]
    made = f"{stated.finished} on {stated.host} by {tool.name} {tool.version}{_commit(tool.commit, tool.dirty)}"
    environment = ", ".join(f"{name} {value}" for name, value in sealed.environment.items())
    tell((heading(sealed.contract, subjects), f"bundle {sealed.id}", made, f"$ {' '.join(stated.command)}", ""))
    for at, row in enumerate(rows_of_bundle(sealed)):
        finding, gate = row.finding, sealed.contract.gate(row.finding.gate)
        limits = ", ".join(f"{name}: {value}" for name, value in gate.limits.items() if value not in (None, [], {}))
        tell(block(row, everything=True))
        verdict = finding.verdict
        named = [(name, getattr(verdict, name)) for name in ("outcome", "measured", "limit", "counted", "of")]
        named += [(f"figures/{name}", one) for name, one in verdict.figures.items() if type(one) in (int, float, str)]
        cited = ", ".join(f"{name} {value}" for name, value in named if value not in (None, ""))
        tell([printable(f"{INDENT}cited by [ev:{sealed.id[:12]}#/findings/{at}/NAME]: {cited}")])
        tell([printable(f"{INDENT}by {finding.kind}/{finding.kind_version}, limits {limits or 'none'}")])
    measured = [(one, file, digest) for one in stated.subjects for file, digest in one.digests.items()]
    digested = [(f"{s.name}@{s.instance}", *of, _commit(s.commit, s.dirty)) for s, *of in measured]
    digested += [(one.role, one.name, one.sha256, " attached" if one.sealed else "") for one in stated.companions]
    tell(printable(f"sha256 {digest}  {name} {file}{rest}") for name, file, digest, rest in digested)
    tell((f"tool   {tool.digest or 'unknown'}", printable(f"environment: {environment}")))
    tell(printable(f"plug-in: {one} of {one.of}") for one in sealed.plugins)


def _commit(commit: str, dirty: bool | None) -> str:
    state = {True: " (changed)", False: "", None: " (unknown whether changed)"}[dirty]
    return f" at {commit[:12]}{state}" if commit else ""


@verb("diff", "Print what differs between two bundles.", "BUNDLE OTHER", of=command)
@click.argument("one", type=options.BUNDLE)
@click.argument("other", type=options.BUNDLE)
@as_json
def diff(one: Path, other: Path, *, as_json: bool) -> None:
    """Print what differs between the bundles ONE and OTHER: outcomes, figures, subjects, environment, contract.

    Exit 0: nothing; 1: something; 4: one of them is unreadable or not as sealed.
    """
    found = differences(unseal(one), unseal(other))
    if as_json:
        print_json(found)
    else:
        for matter, places in found.items():
            tell([click.style(matter, bold=True)])
            lines = [f"{at}: {shown(old)} -> {shown(new)}" for at, (old, new) in places.items()]
            tell(printable(f"  {line}") for line in capped(lines, 20))
        tell([] if found else ["no difference: same outcomes, figures, subjects, environment and contract"])
    sys.exit(ExitCode.FAILED if found else ExitCode.PASSED)


@verb("pack", "Write a bundle into one file.", "BUNDLE import.tar", of=command)
@BUNDLE
@click.argument("archive", type=PATH)
@IDENTITY
def pack_bundle(bundle: Path, archive: Path, *, given: str) -> None:
    """Write BUNDLE, a folder or archive, into the new file ARCHIVE: a tar that is the same for the same bundle."""
    opened = whole(bundle, given)
    assert opened.statement is not None
    data = pack(PackedFolder(folder_name(opened.statement, opened.id), files_of(opened)))
    with disk_errors("the archive", archive):
        link_new(archive, data)
    tell([printable(f"{archive}: {len(data)} bytes, sha256 {sha256(data)}")])


@verb("merge", "Bring bundles and ledgers together.", "nightly.zip --into evidence", of=command)
@click.argument("sources", nargs=-1, required=True, type=PATH)
@click.option("--into", required=True, type=PATH, help="The folder of evidence that grows.")
def merge_evidence(sources: Paths, into: Path) -> None:
    """Copy the bundles and signatures of SOURCES that are missing, and the entries of their ledgers.

    A source is a folder of evidence, a bundle, or an archive of bundles. Each is verified; nothing is ever replaced.
    """
    merged = merge(sources, into, Against(now=dt.datetime.now(dt.UTC)))
    tell(printable(f"new: {name}") for name in merged.bundles)
    signed = f", {merged.signatures} signatures new" if merged.signatures else ""
    there = f"{len(merged.bundles)} bundles new, {merged.present} there already"
    tell([f"{there}; {merged.entries} ledger entries new{signed}"])


@verb("prune", "Remove old bundles that nothing cites.", "--older-than 30 --keep-last 20 --dry-run", of=command)
@click.option("--older-than", "days", type=click.IntRange(min=0), metavar="DAYS", help="Only bundles of so many days.")
@click.option("--keep-last", "last", type=click.IntRange(min=0), metavar="N", help="Never the newest N bundles.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; say what would be.")
def prune_bundles(days: int | None, last: int | None, *, dry_run: bool) -> None:
    """Remove bundles from the project's .weighbridge/, where nobody commits them; evidence/ is never touched.

    One that the ledger or a Markdown file of the project names is kept, whatever its age.
    """
    if days is None and last is None:
        remedy = "give --older-than DAYS, --keep-last N, or both"
        raise UsageError("prune-what", "nothing says which bundles are to go", remedy=remedy)
    here, store = root(Path()), local()
    cited = cited_in(here)
    for ledger in (Ledger(folder / "ledger") for folder in (here / "evidence", store) if is_folder(folder / "ledger")):
        cited |= dict.fromkeys(ledger.causes(), "the ledger")
    bundles = stored(store / BUNDLES, cited)
    before = None if days is None else dt.datetime.now(dt.UTC).date() - dt.timedelta(days=days)
    old = [one for one in bundles[last or 0 :] if before is None or one.date < before]
    going = [one for one in old if not one.cited_by]
    for one in going:
        if not dry_run:
            remove(one)
        tell([printable(f"{'would remove' if dry_run else 'removed'} {one.path}: {one.size} bytes")])
    tell(printable(f"kept {one.path}: named in {one.cited_by}") for one in old if one.cited_by)
    done, size = "would be removed" if dry_run else "removed", sum(one.size for one in going)
    tell([printable(f"{len(going)} of {len(bundles)} bundles in {store / BUNDLES} {done}, {size} bytes")])


@verb("sign", "Sign a bundle.", "BUNDLE --key ada.key", of=command)
@BUNDLE
@IDENTITY
@click.option("--key", required=True, type=PATH, metavar="FILE", help="Your private key, in PEM.")
def sign_bundle(bundle: Path, *, given: str, key: Path) -> None:
    """Add a signature to BUNDLE, a folder: you say that its statement is yours. Its id stays the same.

    The key is an ed25519 key in a file, of `evidence keygen` or `openssl genpkey -algorithm ed25519`; keyless signing
    is not offered. A bundle that does not hold is not signed.
    """
    signer = signatures.private_key(key)
    opened = review.sound(bundle, Against(now=dt.datetime.now(dt.UTC), given=given))
    if not is_folder(bundle):
        raise UsageError("sign-archive", "is an archive", where=str(bundle), remedy="sign the folder, then pack it")
    assert opened.statement is not None
    name, envelope = signatures.sign(statement.to_bytes(opened.statement), signer)
    done = "signed" if signatures.add(bundle, name, envelope) else "was signed already"
    tell([printable(f"{opened.id[:12]} {done} by {signer.public_key.keyid[:16]}: {bundle / name}")])


@verb("keygen", "Make a key to sign with.", "ada.key", of=command)
@click.argument("file", type=PATH)
def keygen(file: Path) -> None:
    """Write a new ed25519 key into FILE, readable by you alone, and its public key into FILE.pub."""
    keyid = signatures.new_key(file)
    tell([printable(f"key {keyid[:16]}: {file} signs and stays with you; {file}.pub goes to who verifies")])


@verb("export", "Tell other tools what a bundle came to.", "BUNDLE --as svr --about import", of=command)
@BUNDLE
@IDENTITY
@click.option("--as", "form", required=True, type=click.Choice(list(FORMS)), help="in-toto's two, or Hugging Face's.")
@repeated("--about", "names", "NAME", "Only this subject, and the gates on it.")
def export(bundle: Path, *, given: str, form: str, names: Texts) -> None:
    """Print what the gates of BUNDLE came to, in the form of another tool, citing the bundle.

    test-result and svr are statements of in-toto; svr lists the gates that passed and nothing else. model-card is the
    YAML and the section of a README on the Hugging Face Hub.
    """
    sealed = decode(review.sound(bundle, Against(now=dt.datetime.now(dt.UTC), given=given)))
    tell([FORMS[form](about(sealed, names)).rstrip("\n")], whole=True)


@verb("rejudge", "Judge a bundle again from its own bytes.", "BUNDLE", of=command)
@BUNDLE
@IDENTITY
@click.option("--print", "printed", is_flag=True, help="Print the new verdicts, byte for byte.")
def rejudge_bundle(bundle: Path, *, given: str, printed: bool) -> None:
    """Judge BUNDLE again from its own bytes, without its subjects.

    Exit 0: the same verdicts, byte for byte; 1: others; 3: gate kinds have other versions here; 4: unreadable.
    """
    sealed = unseal(bundle, given)
    if others := review.other_versions(sealed):
        why = "; ".join(review.brought_otherwise(sealed)) or f"judged by {', '.join(others)}"
        tell([f"not re-derivable here: {why}"], err=True)
        sys.exit(ExitCode.BLOCKED)
    with options.progress() as show:
        show(f"judging {len(sealed.findings)} findings again")
        again = review.rejudge(sealed)
    if printed:
        click.echo(again, nl=False)  # bytes as they are sealed
    if again != sealed.verdicts:
        tell(["these measurements give other verdicts: `weighbridge evidence verify` shows which"], err=True)
        sys.exit(ExitCode.FAILED)
    count = len(sealed.findings)
    tell([f"the same {len(again)} bytes: {count} of {count} findings follow from the measurements"], err=True)
