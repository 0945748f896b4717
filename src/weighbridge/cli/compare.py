"""`weighbridge compare`: compare checkpoints with their source. Needs no contract and writes nothing."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from weighbridge.binding import Bound
from weighbridge.clauses.tensor_pairs import Look
from weighbridge.cli.options import as_json, debug, print_json, progress, rate, tell
from weighbridge.errors import ContractError, SubjectError, UsageError
from weighbridge.exit_code import ExitCode, exit_code
from weighbridge.forward.trace_file import names_itself_trace
from weighbridge.gates import config_agreement
from weighbridge.gates.value_preservation import KIND, Limits
from weighbridge.judging import DEFAULT, all_requests
from weighbridge.limits import LimitsError, read
from weighbridge.model import Contract, Fields, GateDecl, Json, SubjectDecl, SubjectKind
from weighbridge.printable import printable
from weighbridge.report import comparison
from weighbridge.runner import Evaluation, judge, measure, seal
from weighbridge.scheduling.threads import Execution, Progress
from weighbridge.storage.local_files import local_path

if TYPE_CHECKING:
    from weighbridge.scheduling.engines import Engine
    from weighbridge.views.checkpoint import CheckpointView

OF_CHECKPOINTS = ("policy", "mapping", "headers", "may_differ", "tensors", "address")
GATE, CONFIGURATION = "compare", "compare-configuration"
PAUSE_S = 0.2  # between two lines of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an import must be: the gate's limits, their name, and why they were chosen."""

    limits: Fields
    told: str
    why: str = ""


@click.command(
    "compare",
    short_help="Compare a checkpoint with its source, or two traces.",
    epilog="\b\nExample: weighbridge compare model.safetensors model.gguf --policy rounded:F16",
)
@click.argument("source")
@click.argument("imports", nargs=-1, required=True)
@click.option(
    "--policy", metavar="POLICY",
    help="What the import should be: same, lossless, rounded:F16, rounded:BF16, requant:TYPE, quantised:FTYPE, or a "
    "YAML file of limits.  [default: lossless; for a block-quantised import, quantised:TYPE]",
)  # fmt: skip
@click.option(
    "--map", "mapping", metavar="FILE",
    help="A YAML file that maps tensor names: `names` (import name: source name) and `rename` (a list of {from, to} "
    "patterns).  [default: equal names, or the names of the import's architecture]",
)  # fmt: skip
@click.option(
    "--headers", is_flag=True, help="Compare stored dtypes and shapes only. Values are then BLOCKED (exit 3)."
)
@click.option(
    "--may-differ", metavar="FIELD", multiple=True, type=click.Choice(config_agreement.FIELDS),
    help="A configuration field that may differ, such as context_length. Repeatable.",
)  # fmt: skip
@click.option("--tensors", metavar="GLOB", default="*", help="Show only tensors whose name matches. All are compared.")
@click.option("--all", "everything", is_flag=True, help="List every tensor, not only those that differ.")
@click.option(
    "--engine", "address", metavar="URL",
    help="Compare on the workers of dask://HOST:PORT or ray://HOST:PORT, which must see the same files under the same "
    "paths. Needs weighbridge[cluster].",
)  # fmt: skip
@as_json
@debug
def command(
    source: str, imports: tuple[str, ...], *, policy: str | None, mapping: str | None, tensors: str,
    may_differ: tuple[str, ...], address: str | None, headers: bool, everything: bool, as_json: bool, debug: bool,
) -> None:  # fmt: skip
    """Compare IMPORTS with SOURCE, tensor by tensor, and explain what changed.

    Two traces are compared point by point, bit for bit.
    Model configurations (config.json, tokenizer, GGUF header) are compared where both sides have one.

    Exit 0: as the policy says; 1: different; 3: could not be compared; 4: unreadable.
    """
    # Nothing here multiplies large matrices, and idle threads of NumPy's BLAS spin beside the two that compare.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if _are_traces((source, *imports)):
        from weighbridge.cli.trace import compare as compare_traces

        asked = click.get_current_context().get_parameter_source
        if idle := [name for name in OF_CHECKPOINTS if asked(name) is not ParameterSource.DEFAULT]:
            raise UsageError("mixed-pair", f"--{idle[0]} is for checkpoints; traces are compared bit by bit")
        sys.exit(compare_traces(source, imports, everything=everything, as_json=as_json))
    given = _given(policy) if policy is not None else None
    look: Fields = ({"headers": True} if headers else {}) | (_mapping(mapping) if mapping is not None else {})
    paths = {f"import-{at}": path for at, path in enumerate(imports, 1)}
    with _engine(address) as engine:
        views = (
            {} if given else {name: view for name, path in paths.items() if (view := _opened(path, engine)) is not None}
        )
        chosen = {name: given or _declared(views.get(name)) for name in paths}
        gates = {name: _gates(name, chosen[name], look, may_differ) for name in paths}
        together, itself = _evaluate({"source": source, **paths}, gates, views, engine, debug=debug)
    answers = [(path, chosen[name], _alone(together, gates[name])) for name, path in paths.items()]
    if as_json:
        ran = {} if engine is None else {"engine": {"address": address, **engine.ran.counts()}}
        print_json([_json(source, *answer) | ran for answer in answers])
    else:
        for path, held_to, evaluation in answers:
            display = comparison.DisplayOptions(tensors=tensors, everything=everything, headers=headers)
            policy_of = printable(f"   policy: {held_to.told}{held_to.why}")
            tell([click.style(f"{printable(source)} -> {printable(path)}", bold=True) + policy_of])
            tell(["  both paths are the same file, so nothing can differ"] if path in itself else ())
            tell(comparison.comparison_lines(evaluation, display))
        if engine is not None and engine.ran.tasks:
            tell([click.style(f"{address}: {engine.ran.told()}", dim=True)])
    code = exit_code(("", finding) for *_, evaluation in answers for finding in comparison.counted(evaluation))
    sys.exit(ExitCode.BLOCKED if code is ExitCode.NOTHING_SHOWN else code)


def _are_traces(paths: Sequence[str]) -> bool:
    """Return whether all are traces; refuse traces beside checkpoints."""
    found = [names_itself_trace(path) for path in paths]
    if any(found) and not all(found):
        what = f"{paths[found.index(True)]} is a trace and {paths[found.index(False)]} is not"
        raise UsageError("mixed-pair", what, remedy="compare traces with traces, and checkpoints with checkpoints")
    return all(found)


def _given(text: str) -> Policy:
    """Return the policy that the command line names, or that a file of limits holds."""
    if Path(text).is_file():
        from weighbridge.contract import strict_yaml

        document = strict_yaml.load(Path(text).read_bytes(), where=text)
        limits = document.data
        told = f"{limits.get('policy') if isinstance(limits, Mapping) else limits} ({text})"
    else:
        limits, told = {"policy": text}, text
    try:
        read(Limits, limits)
    except LimitsError as error:
        raise ContractError("policy", f"this policy cannot be used: {error}", where=text) from None
    return Policy(limits=limits, told=told)


def _opened(path: str, engine: Engine | None) -> CheckpointView | None:
    """Return an open import, or None where it cannot be read; the evaluation then reports why."""
    from weighbridge.views.checkpoint import open_checkpoint

    try:
        return open_checkpoint(_found_anywhere(path, engine)) if path else None
    except SubjectError:
        return None


def _declared(view: CheckpointView | None) -> Policy:
    """Return the default policy: lossless, or for a block-quantised file the types that it declares."""
    from weighbridge.clauses.block_types import TYPICAL_ERROR

    dtypes = [tensor.dtype for tensor in view.tensors.values()] if view is not None else []
    blocks = [dtype for dtype in dtypes if dtype in TYPICAL_ERROR]
    if not blocks:
        return Policy(limits={"policy": "lossless"}, told="lossless")
    named = f"quantised:{max(blocks, key=TYPICAL_ERROR.__getitem__)}"
    counted = ", ".join(f"{dtypes.count(dtype)} {dtype}" for dtype in dict.fromkeys(sorted(dtypes)))
    return Policy(limits={"policy": named}, told=named, why=f" (the types that the file declares: {counted})")


def _mapping(path: str) -> dict[str, Json]:
    """Return the options that a mapping file gives."""
    from weighbridge.contract import strict_yaml

    if not Path(path).is_file():
        raise UsageError("map-missing", "there is no such mapping file", where=path)
    data = strict_yaml.load(Path(path).read_bytes(), where=path).data
    look = {"map": "table", **data} if isinstance(data, Mapping) else data
    try:
        read(Look, look)
    except LimitsError as error:
        raise ContractError("map", f"this mapping cannot be used: {error}", where=path) from None
    assert isinstance(look, dict)
    return look


def _gates(name: str, policy: Policy, look: Fields, may_differ: tuple[str, ...]) -> tuple[GateDecl, GateDecl]:
    roles = {"source": "source", "candidate": name}
    meant = [{"field": field, "why": "--may-differ"} for field in may_differ]
    return (
        GateDecl(
            id=f"{GATE}.{name}", kind=KIND.name, title="the import is what it was meant to be", limits=policy.limits,
            subjects=roles, measure=look,
        ),
        GateDecl(
            id=f"{CONFIGURATION}.{name}", kind=config_agreement.KIND.name, title="both say the same of their model",
            limits={"required": [], "may_differ": meant}, subjects=roles,
        ),
    )  # fmt: skip


def _evaluate(
    targets: Mapping[str, str], gates: Mapping[str, Sequence[GateDecl]], views: Mapping[str, CheckpointView],
    engine: Engine | None, *, debug: bool,
) -> tuple[Evaluation, frozenset[str]]:  # fmt: skip
    """Return the evaluation of all imports in one go, so that the source is read once; `views` are open already.

    Beside it, the targets that are the source itself.
    """
    if not all(targets[name] for name in gates):
        raise UsageError("subject-form", "an import without a path")
    kind = SubjectKind.CHECKPOINT
    contract = Contract(
        id=GATE, version="0.0.0", title="", owner="", subjects=dict.fromkeys(targets, SubjectDecl(kind=kind)),
        gates=tuple(itertools.chain.from_iterable(gates.values())),
    )  # fmt: skip
    bound = [
        Bound(subject=name, instance=DEFAULT, kind=kind, target=_found_anywhere(target, engine), by_hand=True)
        for name, target in targets.items()
    ]
    on = {gate.id: (DEFAULT,) for gate in contract.gates}
    opened = {(name, DEFAULT): view for name, view in views.items()}
    with progress() as show:
        session = measure(
            contract, bound, on, opened=opened, execution=Execution(engine=engine, on_progress=_rate(show)),
            progress=show, debug=debug, with_itself=True,
        )  # fmt: skip
        show("judging")
        source, *imports = bound
        itself = frozenset(targets[one.subject] for one in imports if session.is_one(source, one))
        return judge(seal(session, None)), itself


def _alone(evaluation: Evaluation, gates: Sequence[GateDecl]) -> Evaluation:
    """Return the part of one import, under the gate names that every import has."""
    ids = {gate.id: gate.id.partition(".")[0] for gate in gates}
    keys = {item.key for gate in gates for item in all_requests(gate, DEFAULT)}
    return dataclasses.replace(
        evaluation,
        findings=tuple(dataclasses.replace(one, gate=ids[one.gate]) for one in evaluation.findings if one.gate in ids),
        measured={key: item for key, item in evaluation.measured.items() if key in keys},
    )


def _found_anywhere(path: str, engine: Engine | None) -> str:
    """Return the path that a worker in another directory finds the file by; without an engine, the path as it is."""
    here = local_path(path)
    return path if engine is None or here is None else str(here.absolute())


@contextmanager
def _engine(address: str | None) -> Iterator[Engine | None]:
    """Connect to the engine that was asked for, and disconnect afterwards."""
    if address is None:
        yield None
        return
    from weighbridge.scheduling.clusters import reach
    from weighbridge.scheduling.engines import Engine

    engine = Engine(address, reach(address))
    try:
        yield engine
    finally:
        engine.cluster.close()


def _rate(show: Callable[[str], None]) -> Progress:
    """Return a callback that shows bytes compared, speed and time left."""
    started, last = time.monotonic(), 0.0

    def on_progress(done: int, whole: int) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PAUSE_S:
            last = now
            show(f"comparing {rate(done, whole, started)}")

    return on_progress


def _json(source: str, path: str, policy: Policy, evaluation: Evaluation) -> dict[str, Json]:
    from weighbridge.report.machine import finding_json

    finding, configuration = (finding_json(found, evaluation.measured) for found in evaluation.findings)
    return {
        "source": source, "import": path, "policy": dict(policy.limits), "finding": finding,
        "configuration": configuration, "classes": comparison.classes(evaluation),
    }  # fmt: skip
