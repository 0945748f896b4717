"""`weighbridge compare`: compare checkpoints with their source. Needs no contract and writes nothing."""

import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from weighbridge.cli.completion import policies
from weighbridge.cli.options import Texts, as_json, print_json, progress, rate, repeated, tell, verb
from weighbridge.core import ExitCode, Fields, Json, Outcome, UsageError, exit_code, printable
from weighbridge.evaluation.import_comparison import ImportComparison, compare, mapping_of, policy_of
from weighbridge.formats.trace_key import names_itself_trace
from weighbridge.gates.config_agreement import FIELDS
from weighbridge.quantities.checkpoints import is_key
from weighbridge.report import comparison
from weighbridge.scheduling.threads import Execution, Progress

if TYPE_CHECKING:
    from weighbridge.scheduling.engines import Engine

OF_CHECKPOINTS = ("policy", "mapping", "adapter", "headers", "may_differ", "may_ignore", "tensors", "address")
LOGS = "trainer_state.json", ".jsonl", ".csv"
POLICY = """What the import should be: same, lossless, packed, rounded:F16, rounded:BF16, requant:TYPE, quantised:FTYPE,
or a YAML file of limits.  [default: lossless; for a block-quantised import, quantised:TYPE; for packed weights,
packed]"""
MAPPING = """A YAML file that maps tensors: `names` (import name: source name), `rename` (a list of {from, to} patterns)
and `make` (how tensors are split, fused, stacked, permuted).  [default: equal names, after what wraps them; those of a
known layout, or of a GGUF file's architecture]"""
ADAPTER = "A LoRA adapter as PEFT saves it. Each import is then SOURCE with the adapter merged into it."
MAY_DIFFER = """A configuration field that may differ, such as context_length, or a key such as
config.json:rope_parameters.factor."""
MAY_IGNORE = "Files of a bound folder that may differ though nothing reads them, such as pytorch_model.bin."
HEADERS = "Compare stored dtypes and shapes only. Values are then BLOCKED (exit 3)."
ALL = "List every tensor, and mean, spread and extremes of those that differ."
ENGINE = """Compare on the workers of dask://HOST:PORT or ray://HOST:PORT, which must see the same files under the same
paths. Needs weighbridge[cluster]."""


class Field(click.Choice[str]):
    """A field of a configuration, or the name of a key, of which there are too many to list."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name; one that is neither is refused with the fields that there are."""
        return value if is_key(value) else super().convert(value, param, ctx)


@verb("compare", "Compare a checkpoint with its source, or two traces.")
@click.argument("source")
@click.argument("imports", nargs=-1, required=True)
@click.option("--policy", metavar="POLICY", shell_complete=policies, help=POLICY)
@click.option("--map", "mapping", metavar="FILE", help=MAPPING)
@click.option("--adapter", metavar="DIR", help=ADAPTER)
@click.option("--headers", is_flag=True, help=HEADERS)
@repeated("--may-differ", "may_differ", "FIELD", MAY_DIFFER, type=Field(FIELDS))
@repeated("--may-ignore", "may_ignore", "GLOB", MAY_IGNORE)
@click.option("--tensors", metavar="GLOB", default="*", help="Show only tensors whose name matches. All are compared.")
@click.option("--all", "everything", is_flag=True, help=ALL)
@click.option("--engine", "address", metavar="URL", help=ENGINE)
@as_json
def command(source: str, imports: Texts, *, headers: bool, everything: bool, as_json: bool, **given: Any) -> None:
    """Compare IMPORTS with SOURCE, tensor by tensor, and explain what changed.

    Example: weighbridge compare model.safetensors model.gguf --policy rounded:F16

    Two traces are compared point by point, bit for bit.
    Model configurations (config.json, tokenizer, GGUF header) are compared where both sides have one.

    Without a policy, a block-quantised import is compared with its own types, and shown as LOSSY.

    Exit 0: as the policy says; 1: different; 3: could not be compared; 4: unreadable.
    """
    if _are_traces((source, *imports)):
        from weighbridge.cli.trace import compare as compare_traces

        asked = click.get_current_context().get_parameter_source
        if idle := [name for name in OF_CHECKPOINTS if asked(name) is not ParameterSource.DEFAULT]:
            raise UsageError("mixed-pair", f"--{idle[0]} is for checkpoints; traces are compared bit by bit")
        sys.exit(compare_traces(source, imports, everything=everything, as_json=as_json))
    policy = policy_of(given["policy"]) if given["policy"] is not None else None
    mapping, address = given["mapping"], given["address"]
    if given["adapter"] is not None and address is not None:
        raise UsageError("adapter-engine", "--adapter is merged on this machine, and not on the workers of --engine")
    asked_of = mapping_of(mapping, source, imports) if mapping is not None else {}
    look: Fields = {**({"headers": True} if headers else {}), **asked_of}
    with _engine(address) as engine, progress() as show:
        execution = Execution(engine=engine, on_progress=_rate(show))
        meant = {"look": look, "policy": policy, **{one: given[one] for one in ("may_differ", "may_ignore", "adapter")}}
        answers = compare(source, imports, **meant, execution=execution, progress=show)
    if as_json:
        ran = {} if engine is None else {"engine": {"address": address, **engine.ran.counts()}}
        print_json([_json(source, answer) | ran for answer in answers])
    else:
        for one in answers:
            moments = _moments(source, one, look) if everything and not headers else {}
            passes = partial(_passes, partial(compare, source, [one.path], **meant), look)
            shown = {"everything": everything, "headers": headers, "moments": moments, "passes": passes}
            tell(_lines(source, one, tensors=given["tensors"], **shown))
        if engine is not None and engine.ran.tasks:
            tell([click.style(f"{address}: {engine.ran.summary()}", dim=True)])
    code = exit_code(("", finding) for one in answers for finding in comparison.counted(one.evaluation))
    sys.exit(ExitCode.BLOCKED if code is ExitCode.NOTHING_SHOWN else code)


def _passes(again: Callable[..., tuple[ImportComparison, ...]], look: Fields, other: Fields) -> bool:
    (found,) = again(look={**look, **other})
    return comparison.outcome(found.evaluation) is Outcome.PASS


def _lines(source: str, one: ImportComparison, **shown: Any) -> Iterator[str]:
    policy = printable(f"   policy: {one.policy.name}{one.policy.why}")
    yield click.style(f"{printable(source)} -> {printable(one.path)}", bold=True) + policy
    yield from ["  both paths are the same file, so nothing can differ"] if one.itself else ()
    yield from (f"  note: {printable(note)}" for note in one.notes)
    yield from comparison.comparison_lines(one, **shown)
    if source.endswith(LOGS) and one.path.endswith(LOGS):
        yield printable(f"two logs are compared by: weighbridge inspect {shlex.join((source, one.path))}")


def _moments(source: str, one: ImportComparison, look: Fields) -> comparison.Moments:
    from weighbridge.verifiers import moment_changes
    from weighbridge.views.checkpoint import open_checkpoint

    compared = {row.name for row in one.pairs if row.compared}
    names = [offence.place for offence in one.evaluation.findings[0].verdict.offences if offence.place in compared]
    return moment_changes.of_tensors((open_checkpoint(source), open_checkpoint(one.path)), look, names) if names else {}


def _are_traces(paths: Sequence[str]) -> bool:
    found = [names_itself_trace(path) for path in paths]
    if any(found) and not all(found):
        what = f"{paths[found.index(True)]} is a trace and {paths[found.index(False)]} is not"
        raise UsageError("mixed-pair", what, remedy="compare traces with traces, and checkpoints with checkpoints")
    return all(found)


@contextmanager
def _engine(address: str | None) -> "Iterator[Engine | None]":
    if address is None:
        yield None
        return
    from weighbridge.scheduling.engines import Engine, reach

    with closing(reach(address)) as cluster:
        yield Engine(address, cluster)


def _rate(show: Callable[[str], None]) -> Progress:
    started, last = time.monotonic(), 0.0

    def on_progress(done: int, whole: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= 0.2:  # seconds between two lines of progress
            last = now
            show(f"comparing both sides, {rate(done, whole, started)}")

    return on_progress


def _json(source: str, one: ImportComparison) -> dict[str, Json]:
    from weighbridge.report.machine import finding_json
    from weighbridge.report.rows import row_of

    contract, measured = one.evaluation.contract, one.evaluation.measured
    finding, configuration = (finding_json(row_of(contract, found, measured)) for found in one.evaluation.findings)
    judged = {"policy": dict(one.policy.limits), "finding": finding, "configuration": configuration}
    return {"source": source, "import": one.path, **judged, "classes": dict(one.classes), "notes": list(one.notes)}
