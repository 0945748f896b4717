"""`weighbridge drill`: break one thing of a small training on purpose, and see which gates say so; keep patterns."""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from weighbridge.cli.demo import new_folder
from weighbridge.cli.options import PATH, Resolved, as_json, print_json, progress, tell, verb, verbs
from weighbridge.core import ExitCode, Outcome, WeighbridgeError, plain
from weighbridge.drills.setups import TRANSFORMERS, Drill, drills, named, row_of
from weighbridge.report import capped, finding_text

if TYPE_CHECKING:
    from weighbridge.drills.drilling import Drilled

NAMED = 6  # rows that FAIL besides, with what they say
COUNTED = {Outcome.PASS: "passed", Outcome.FAIL: "failed", Outcome.BLOCKED: "could not look"}
SHORT = "Break one thing of a small training, see what fires."
EXAMPLES = ("", "4", "keep dead-mlp runs/a", "match runs/b")
FOLDER = "The folder to create and train in.  [default: .weighbridge/drill-N-TIME]"


class Drills(click.Group):
    """A group in which a number, or a name, is a drill to run."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Resolved:
        """Take what is no verb as the drill to run."""
        known = args[0] in self.commands or args[0].startswith("-")
        return super().resolve_command(ctx, args if known else ["run", *args])


@verbs("drill", SHORT, *EXAMPLES, cls=Drills, invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """List the drills; with a number or a name, run one. Needs weighbridge[torch].

    A drill trains a small model as it should be, and again with one variable changed. Then it says what the gates said.
    """
    if context.invoked_subcommand is None:
        tell(f"{one.number:>3}  {one.name:<22} {one.title}" for one in drills())


@verb("run", "Run a drill by its number or its name.", "4 --dir /tmp/drill-4", of=command)
@click.argument("drill")
@click.option("--dir", "folder", type=PATH, help=FOLDER)
@as_json
def run(drill: str, folder: Path | None, as_json: bool) -> None:
    """Train and judge each run of DRILL, about half a minute each; say which gates fired, and draw a page.

    Exit 0: every gate that had to fire fired; 1: not; 2: no such drill; 4: a library is missing, or a training broke.
    """
    chosen = named(drill)
    if not all(map(importlib.util.find_spec, ("torch", "safetensors"))):
        what = "a drill trains a model, and PyTorch or safetensors is not installed"
        raise WeighbridgeError("no-torch", what, remedy="pip install 'weighbridge[torch]'")
    if chosen.arms[0].setup.attention == TRANSFORMERS and importlib.util.find_spec("transformers") is None:
        what = f"drill {chosen.number} looks at attention in a model of Transformers, which is not installed"
        raise WeighbridgeError("no-transformers", what, remedy="pip install transformers, or choose another drill")
    from weighbridge.drills.drilling import drilled

    folder = new_folder(folder, f"drill-{chosen.number}")
    with progress() as show:
        found = list(drilled(chosen, folder, show))
    right = not any(one.silent or one.turned for one in found)
    if as_json:
        runs = [
            {"name": one.arm.name, "run": str(one.run), "seconds": round(one.seconds, 1), "rows": dict(one.outcomes),
             "had_to_fail": one.arm.fails, "did_not_fail": one.silent, "had_to_pass": one.arm.passes,
             "did_not_pass": one.turned, "page": str(one.page or "")}
            for one in found
        ]  # fmt: skip
        print_json({"drill": chosen.name, "right": right, "runs": plain(runs)})
    else:
        tell(lines_of(chosen, found))
    sys.exit(ExitCode.PASSED if right else ExitCode.FAILED)


def lines_of(drill: Drill, found: "list[Drilled]") -> Iterator[str]:
    """Yield what a drill came to: what each run changed, what fired, what it teaches, and where to look."""
    from weighbridge.drills.drilling import changed, rises

    yield click.style(f"drill {drill.number}, {drill.name}: {drill.title}", bold=True)
    for one in found:
        yield ""
        yield f"{one.arm.name}: {changed(one.arm, drill)}"
        many = ", ".join(f"{len(one.of(outcome))} {word}" for outcome, word in COUNTED.items())
        yield f"  {'judged':<14} {many}; trained in {one.seconds:.0f} s"
        yield from _fired(one)
        yield f"  {'page':<14} {one.page or 'none: pip install weighbridge[report]'}"
    yield ""
    if drill.ranked:
        yield from (f"  loss rises by {rise:+.3f} nats  {name}" for rise, name in rises(drill, found))
        yield ""
    yield drill.teaches
    wrong = [f"{one.arm.name}: {row} did not FAIL" for one in found for row in one.silent]
    wrong += [f"{one.arm.name}: {row} did not stay green" for one in found for row in one.turned]
    yield from (click.style(line, fg="red") for line in wrong)
    yield "not as it had to be: see above" if wrong else "every gate that had to fire fired, what had to stay green did"


def _fired(one: "Drilled") -> Iterator[str]:
    """Yield the rows that had to fire with what they say, what helps, those besides, and those that stayed green."""
    evaluation = one.result.evaluation
    says = {row_of(of.gate): finding_text(of, evaluation.measured) for of in evaluation.findings}
    for row in one.arm.fails:
        said = says[row]
        yield f"  {('no FAIL ' if row in one.silent else 'FAIL ') + row:<14} {said.brief[0]}"
        hints = said.hints if row == one.arm.fails[0] and row not in one.silent else ()
        yield from (f"  {'':<14} {hint}" for hint in hints)
    besides = [row for row in one.of(Outcome.FAIL) if row not in one.arm.fails]
    yield from capped([f"  {'besides ' + row:<14} {says[row].brief[0]}" for row in besides], NAMED)
    if green := [row for row in one.arm.passes if row not in one.turned]:
        yield f"  {'stayed green':<14} {' '.join(green)}"


KEPT = "Where patterns are kept."
PATTERNS = click.option("--patterns", "folder", type=PATH, default="patterns", show_default=True, help=KEPT)
SAYS = "The diagnosis.  [default: the likely cause of the first FAIL]"


@verb("keep", "Keep what the gates say of a run as a pattern.", "dead-mlp runs/a", of=command)
@click.argument("name")
@click.argument("run", type=PATH)
@click.option("--says", metavar="TEXT", default="", help=SAYS)
@PATTERNS
def keep_pattern(name: str, run: Path, says: str, folder: Path) -> None:
    """Judge RUN by builtin:diagnostics, and keep the evidence under NAME, to be matched against other runs.

    Exit 0: kept; 2: no gate FAILs of it, or the name is taken; 4: unreadable.
    """
    from weighbridge.drills.patterns import keep

    found = keep(name, run, says, folder)
    tell([f"{found.where}: FAIL {len(found.fails)}, PASS {len(found.passes)}: {found.says}"])


@verb("match", "Say which patterns a run looks like.", "runs/b", of=command)
@click.argument("run", type=PATH)
@PATTERNS
@as_json
def match(run: Path, folder: Path, as_json: bool) -> None:
    """Judge RUN by builtin:diagnostics, and compare what failed with the drills and with the patterns kept here.

    Exit 0: compared; 4: a pattern does not hold any more, or RUN is unreadable.
    """
    from weighbridge.drills.patterns import judged, kept, likenesses, rows_that, shipped

    findings = judged(run)
    found = likenesses([*shipped(), *kept(folder)], findings)
    if as_json:
        patterns = [
            {"name": one.pattern.name, "says": one.pattern.says, "where": one.pattern.where, "alike": one.alike,
             "holds": one.holds, "fails": (one.fails, len(one.pattern.fails)),
             "passes": (one.passes, len(one.pattern.passes))}
            for one in found
        ]  # fmt: skip
        print_json({"run": str(run), "patterns": plain(patterns)})
        return
    fails = sorted(rows_that(findings, Outcome.FAIL))
    tell([click.style(f"{run}: FAIL {len(fails)}{': ' * bool(fails)}{' '.join(fails)}", bold=True)])
    alike = [one for one in found if one.holds]
    for one in alike or found[:1] if fails else ():
        pattern = one.pattern
        same = f"{one.fails} of {len(pattern.fails)} of its FAILs, {one.passes} of {len(pattern.passes)} of its PASSes"
        how = "looks like" if one.holds else "nearest is"
        tell([f"  {how} {pattern.name}: {pattern.says}", f"    {same} say the same"])
    if not alike:
        tell([f"  looks like none of {len(found)} patterns"])
