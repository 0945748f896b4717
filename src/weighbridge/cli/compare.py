"""`weighbridge compare`: is the import still the same tensors? No contract, one answer; writes nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator

import click

from weighbridge.binding import Bound, one_file
from weighbridge.cli.options import as_json, debug, end_progress, print_json, progress, tell
from weighbridge.errors import UsageError
from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.judging import DEFAULT
from weighbridge.model import (
    Contract,
    Faulted,
    Finding,
    GateDecl,
    Json,
    Measured,
    Offence,
    Outcome,
    SubjectDecl,
    SubjectKind,
)
from weighbridge.printable import printable
from weighbridge.report.lines import capped, say
from weighbridge.report.terminal import COLOURS
from weighbridge.runner import Weighed, weigh

GATE = "compare"


@click.command(
    "compare",
    short_help="Compare imports with their source, bit by bit.",
    epilog="\b\nExample: weighbridge compare model.safetensors model.gguf --policy lossless",
)
@click.argument("source")
@click.argument("imports", nargs=-1, required=True)
@click.option(
    "--policy", type=click.Choice(["same", "lossless"]), default="lossless", show_default=True,
    help="What the import was meant to keep: the very dtype, or the dtype or an exact widening.",
)  # fmt: skip
@click.option("--all", "everything", is_flag=True, help="List every difference, not only the first ones.")
@as_json
@debug
def command(
    source: str, imports: tuple[str, ...], policy: str, *, everything: bool, as_json: bool, debug: bool
) -> None:
    """Compare IMPORTS with SOURCE, tensor by tensor and bit by bit, and name the mechanism where something changed.

    Exit 0: the same under the policy; 1: not; 3: could not be compared; 4: unreadable.
    """
    answers = [(path, _weigh(source, path, policy, debug=debug)) for path in imports]
    findings = [weighed.findings[0] for _, weighed in answers]
    if as_json:
        print_json([_json(source, path, policy, weighed) for path, weighed in answers])
    else:
        for path, weighed in answers:
            tell(_told(source, path, policy, weighed, limit=sys.maxsize if everything else 20))
    code = exit_code(findings)
    sys.exit(ExitCode.BLOCKED if code is ExitCode.NOTHING_SHOWN else code)


def _weigh(source: str, path: str, policy: str, *, debug: bool) -> Weighed:
    if not path:
        raise UsageError("subject-form", "an import without a path")
    gate = GateDecl(
        id=GATE, kind="dtype-preservation", title="the import holds the source's tensors",
        subjects={"source": "source", "candidate": "import"}, limits={"policy": policy},
    )  # fmt: skip
    kind = SubjectDecl(kind=SubjectKind.CHECKPOINT)
    contract = Contract(
        id=GATE, version="0.0.0", title="", owner="", subjects={"source": kind, "import": kind}, gates=(gate,)
    )
    bound = [
        Bound(subject=name, instance=DEFAULT, kind=SubjectKind.CHECKPOINT, target=target, by_hand=True)
        for name, target in (("source", source), ("import", path))
    ]
    try:
        return weigh(contract, bound, {GATE: (DEFAULT,)}, redactor=None, progress=progress(), debug=debug)
    finally:
        end_progress()


def _told(source: str, path: str, policy: str, weighed: Weighed, *, limit: int) -> Iterator[str]:
    finding = weighed.findings[0]
    said = say(finding, weighed.measured)
    outcome = finding.verdict.outcome
    yield click.style(printable(f"{source} -> {path}"), bold=True) + f"   policy: {policy}"
    if one_file(source, path):
        yield "  both names lead to one file, which always agrees with itself"
    yield from (f"  {line}" for line in capped(said.lines, limit))
    yield from (click.style(f"  {hint}", dim=True) for hint in said.hints)
    yield click.style(_answer(finding, weighed.measured), fg=COLOURS[outcome], bold=True)


def _answer(finding: Finding, measured: dict[str, Measured] | object) -> str:
    verdict = finding.verdict
    kinds = Counter(_kind(offence) for offence in verdict.offences)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    match verdict.outcome:
        case Outcome.PASS:
            return f"SAME: {verdict.of} of {verdict.of} tensors ({_trials(finding)})"
        case Outcome.FAIL:
            return f"DIFFERENT: {verdict.of - verdict.counted} of {verdict.of} tensors: {told}"
        case Outcome.BLOCKED:
            return f"BLOCKED: {verdict.code}" + (f": {told}" if told else "")
    return f"UNREADABLE: {verdict.code}" if _unreadable(finding, measured) else f"ERROR: {verdict.code}"


def _kind(offence: Offence) -> str:
    """Name what one tensor's difference is, so that like ones can be counted."""
    mechanism = offence.figures.get("mechanism")
    return f"{offence.code} ({mechanism})" if mechanism else offence.code


def _unreadable(finding: Finding, measured: object) -> bool:
    found = measured.get(str(finding.verdict.figures.get("measurement"))) if isinstance(measured, dict) else None
    return isinstance(found, Faulted) and found.code != "verifier-raised"


def _trials(finding: Finding) -> str:
    from weighbridge.report.lines import trials_told

    return trials_told(finding.trials)


def _json(source: str, path: str, policy: str, weighed: Weighed) -> Json:
    from weighbridge.report.machine import finding_json

    finding = finding_json(weighed.findings[0], weighed.measured)
    return {"source": source, "import": path, "policy": policy, "finding": finding}
