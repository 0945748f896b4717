"""`weighbridge trace`: write what a model holds at its capture points into a file, look at one, or pack one."""

import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from weighbridge.cli import options
from weighbridge.cli.options import PATH, Texts, as_json, print_json, progress, repeated, tell, verb, verbs
from weighbridge.core import ExitCode, Json, Origin, SubjectError, Unmeasured, UsageError, loads, plain
from weighbridge.core.data import table
from weighbridge.core.local_files import is_folder, read_regular_file
from weighbridge.core.printable import printable, quoted
from weighbridge.report import capped

if TYPE_CHECKING:
    from weighbridge.forward.trace_file import Facts, Trace

OUT = click.argument("out", type=PATH)
DTYPES = ("float32", "bfloat16", "float16")
POINTS_SHOWN = 20
APART = ("token", "worst_token", "channel", "worst_channel", "equal_share", "nonfinite")
MAX_TEXT = 64 << 20
PART = re.compile(r"(?P<point>.+?)(?:\.step-(?P<step>\d{3,6}))?\.npy")


@verbs("trace", "Capture a forward pass into a file, check one, or pack one.", "capture hf:models/qwen gpu.trace")
def command() -> None:
    """Capture, check or pack a trace: what a forward pass had at each capture point.

    `verify` takes a trace wherever it takes a candidate; `compare` compares two.
    """


@verb("capture", "Run a model forward and write a trace.", "hf:qwen gpu.trace --dtype bfloat16", of=command)
@click.argument("model")
@OUT
@click.option("--tokens", metavar="FILE", help="A JSON file of token ids, a list of equally long lists.")
@click.option("--dtype", type=click.Choice(DTYPES), help="What to compute in.  [default: as the model says]")
def capture(model: str, out: Path, *, tokens: str | None, dtype: str | None) -> None:
    """Run MODEL forward twice and write what the first run had to OUT.

    MODEL is module:function, path/to/file.py:function or hf:DIR, as in verify. How far the second run lies from the
    first is written beside.

    Exit 0: written; 2: usage; 3: this host cannot run it; 4: the model broke.
    """
    from weighbridge.forward.stacks import Stack
    from weighbridge.forward.trace_file import save
    from weighbridge.views.model_view import Runs, open_model

    given = _tokens(tokens) if tokens else None
    with _beside(out) as path:
        view = replace(open_model(model), runs=Runs(folder=path.parent))
        if view.trace is not None:
            remedy = "name a factory or hf:DIR; `weighbridge trace check` shows a trace"
            raise UsageError("already-a-trace", "a trace is captured already", where=model, remedy=remedy)
        stated = view.dtype_and_tokens()
        if isinstance(stated, Unmeasured):
            tell([f"BLOCKED  {stated.code} {stated.why}", f"  {stated.remedy}"], err=True)
            sys.exit(ExitCode.BLOCKED)
        stack: Any = view.stack()
        if dtype and isinstance(stack, Stack) and dtype != stack.dtype:
            raise UsageError("dtype-fixed", f"this stack computes in {stack.dtype}", remedy="leave --dtype out")
        inputs = given or stated[1] or (() if isinstance(stack, Stack) else stack.drawn())
        if not inputs:
            raise UsageError("no-inputs", "the model gives no tokens", where=model, remedy="name a file by --tokens")
        with progress() as show:
            show(f"running {printable(model)} twice")
            computed_in = dtype or stated[0]
            trace = view.capture(inputs, computed_in)
            apart = view.noise(inputs, computed_in, None) or {}
            noise = {name: far if math.isfinite(far) else None for name, far in apart.items() if far}
        save(trace, replace(trace.facts, noise=noise, files=view.digest() if view.origin is Origin.LIVE else {}), path)
    again = f"run twice, {len(noise)} points differ" if noise else "run twice with equal bits"
    tell([f"{out}: {len(trace.facts.order)} points in {trace.facts.dtype} on {_device(trace.facts)}; {again}"])


def _tokens(path: str) -> list[list[int]]:
    data = loads(read_regular_file(Path(path), MAX_TEXT, UsageError), where=path)
    rows = data if isinstance(data, list) else []
    whole = all(isinstance(row, list) and all(type(one) is int and 0 <= one < 2**31 for one in row) for row in rows)
    if not whole or len({len(row) for row in rows}) != 1 or not rows[0]:
        what = "no list of equally long lists of token ids"
        raise UsageError("no-inputs", what, where=path, remedy="write [[12, 7, 99], [5, 6, 7]]")
    return rows


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """Yield a path in a folder beside `out`, whose file takes its place at the end; nothing stays where that fails."""
    if not is_folder(out.absolute().parent) or is_folder(out):
        remedy = "name a file in a folder that exists"
        raise UsageError("out", "no file can be written there", where=str(out), remedy=remedy)
    with tempfile.TemporaryDirectory(prefix=".weighbridge-", dir=out.absolute().parent) as folder:
        path = Path(folder) / "written"
        yield path
        with path.open("rb") as file:
            os.fsync(file.fileno())
        path.replace(out)


@verb("check", "Check that a file is a trace, and show it.", "gpu.trace", of=command)
@click.argument("file")
@click.option("--all", "everything", is_flag=True, help="List every point.")
@as_json
def check_file(file: str, *, everything: bool, as_json: bool) -> None:
    """Check that FILE is a trace, and show its facts, points, shapes and dtypes. Judges no value.

    Exit 0: a trace; 4: not one, or it contradicts itself.
    """
    from weighbridge.views.model_view import open_recorded

    view = open_recorded(file)
    trace = view.trace
    assert trace is not None
    facts, noise = trace.facts, trace.facts.noise
    points: dict[str, Any] = {}
    for name in facts.order:
        points[name] = {"dtype": trace.held_as(name), "shape": list(trace.shape(name) or ())}
    if as_json:
        print_json({"file": file, "facts": plain(facts), "points": points})
        return
    tell([click.style(printable(f"{file}: trace"), bold=True)])
    needed = {"weights": facts.weights, "files": facts.files, "observed device": facts.device.observed}
    lacking = " and no ".join(name for name, said in needed.items() if not said)
    origin = f"reported: {view.unwitnessed}" if view.unwitnessed else "live where it is bound by hand"
    shown = {
        "stack": printable(facts.stack),
        "device": _device(facts),
        "dtype": facts.dtype,
        "inputs": f"{len(facts.tokens)} sequences of {len(facts.tokens[0])} tokens",
        "points": str(len(facts.order)),
        "weights": f"{len(facts.weights)} digests" if facts.weights else "no digests, so they cannot be compared",
        "files": ", ".join(printable(name) for name in facts.files) or "none named",
        "second run": "not said" if noise is None else f"{len(noise)} points differ" if noise else "equal bits",
        "origin": f"synthetic: it names no {lacking}" if lacking else origin,
    }
    tell(f"  {name:<10} {said}" for name, said in shown.items())
    width = max(map(len, points))
    lines = [f"  {name:<{width}}  {one['dtype']:<8}  {one['shape']}" for name, one in points.items()]
    tell(lines if everything else capped(lines, POINTS_SHOWN))


def _device(facts: "Facts") -> str:
    requested, observed = printable(facts.device.requested), printable(facts.device.observed)
    return f"{observed} (asked for {requested})" if observed else f"{requested}, not observed"


@verb("pack", "Pack NumPy arrays and a file of facts into a trace.", "dumped/ engine.trace", of=command)
@click.argument("folder", type=PATH)
@OUT
def pack(folder: Path, out: Path) -> None:
    """Pack FOLDER into the trace OUT: facts.json, and POINT.npy for each point that its `order` names.

    An array is [sequences, tokens, channels]; one of uint16 holds bfloat16. POINT.step-000.npy and those after it are
    joined along tokens, as the steps of a generation.

    Exit 0: written; 2: usage; 4: the folder contradicts itself.
    """
    from weighbridge.formats import npy_file
    from weighbridge.forward.trace_file import HELD_AS, TraceWriter, facts_of, open_trace
    from weighbridge.storage.mapped_file import MappedFile

    if not is_folder(folder):
        raise UsageError("pack-folder", "there is no such folder", where=str(folder), remedy="name one with facts.json")
    path = str(folder / "facts.json")
    facts = facts_of(loads(read_regular_file(Path(path), MAX_TEXT, SubjectError), where=path), path)
    parts = _parts(folder, facts)
    with _beside(out) as packed:
        writer = TraceWriter(packed)
        for point, one in parts:
            file = MappedFile(one)
            (array,) = npy_file.read(file).tensors.values()
            dtype = HELD_AS.get(array.dtype, "bfloat16" if array.dtype == "U16" else array.dtype)
            if array.strides is not None:
                what = "the array lies in memory channels first (Fortran order)"
                raise SubjectError("trace-shape", what, where=str(one), remedy="save numpy.ascontiguousarray of it")
            writer.write(point, file.read(array.offset, array.offset + array.nbytes), array.shape, dtype)
        writer.close(facts)
        open_trace(packed, name=str(folder))
    tell([f"{out}: {len(facts.order)} points in {facts.dtype} on {_device(facts)}"])


def _parts(folder: Path, facts: "Facts") -> list[tuple[str, Path]]:
    """Return the files of the points in the order of computing; refuse what is left over, missing or out of step."""
    parts: dict[str, list[tuple[int, Path]]] = {name: [] for name in facts.order}
    for path in sorted(folder.iterdir()):
        if (found := PART.fullmatch(path.name)) is None:
            continue
        if found["point"] not in parts:
            what = f"{quoted(path.name)} is of no point that `order` names"
            raise SubjectError("trace-order", what, where=str(folder), remedy="name it in facts.json, or remove it")
        parts[found["point"]].append((-1 if found["step"] is None else int(found["step"]), path))
    for name, steps in parts.items():
        numbers = [number for number, _ in sorted(steps)]
        if numbers not in ([-1], list(range(len(steps)))) or not steps:
            what = f"{quoted(name)} has {'no file' if not steps else f'the steps {numbers[:8]}'}"
            remedy = "write POINT.npy, or POINT.step-000.npy, POINT.step-001.npy, …"
            raise SubjectError("trace-steps", what, where=str(folder), remedy=remedy)
    return [(name, path) for name, steps in parts.items() for _, path in sorted(steps)]


@verb("points", "List the capture points of an architecture.", "hf:models/qwen", of=command)
@click.argument("model")
@click.option("--all", "everything", is_flag=True, help="List every layer.")
@as_json
def points(model: str, *, everything: bool, as_json: bool) -> None:
    """List the capture points of MODEL, hf:DIR, of its configuration alone, and what other engines call them.

    Layers that are alike are listed once, as {n}.

    Exit 0: listed; 2: usage; 4: its code cannot be followed without weights.
    """
    from weighbridge.forward.hugging_face import LAYER, NAMES, Directory, channels_of, names_of

    if not model.startswith("hf:"):
        raise UsageError("points-model", f"{quoted(model)} is no hf:DIR", remedy="name a directory: hf:models/qwen")
    found, tried = channels_of(Directory.named(model)), table(NAMES)["tried"]
    if as_json:
        listed: Json = [
            {"point": one, "channels": wide, "of_all_sequences": once, "names": dict(names_of(one))}
            for one, (wide, once) in found.items()
        ]
        print_json({"points": listed, "tried": tried})
        return
    shown = {one if everything else LAYER.sub("{n}", one, count=1): wide for one, wide in found.items()}
    tell([click.style(printable(f"{model}: {len(found)} points"), bold=True)])
    for point, (wide, once) in shown.items():
        names = (f"      {engine}: {name}" for engine, name in names_of(point).items())
        tell([f"  {point}  [{1 if once else 'sequences'}, tokens, {wide}]", *names])
    tell(["names tried:", *(f"  {engine}: {said}" for engine, said in tried.items())])


@verb("repro", "Write the step of a point as a script.", "BUNDLE --point model.layers.1.mlp.down_proj.out", of=command)
@click.argument("bundle", type=options.BUNDLE)
@click.option("--point", default="", metavar="ID", help="Which point.  [default: the first that is wrong]")
@click.option("--gate", default="", metavar="ID", help="Which gate.  [default: the first that did not pass]")
@repeated("--subject", "subjects", "NAME=TARGET", "Where a subject is now, if not where it was bound.")
@click.option("--out", type=PATH, default=Path("repro.py"), help="The script.  [default: repro.py]")
def repro(bundle: Path, *, point: str, gate: str, subjects: Texts, out: Path) -> None:
    """Write what the reference computes at one point of BUNDLE as a script, and its values beside it.

    Both subjects run again: a bundle holds no values. The script starts from what the candidate held before the point,
    needs torch and safetensors alone, and prints how far the candidate is off.

    Exit 0: written; 2: usage; 4: a subject is not what was measured, or the step is unknown.
    """
    from weighbridge.cli.reproduction import finding_of, row_of, write
    from weighbridge.evidence.bundle import unseal

    sealed = unseal(bundle)
    finding, place = finding_of(sealed, gate, point)
    row = row_of(sealed, finding, place)
    with progress() as show:
        show("running both subjects")
        lines = write(sealed, finding, row, options.settings(subjects, "subject"), out)
    tell(lines)


def compare(source: str, others: Sequence[str], *, everything: bool, as_json: bool) -> ExitCode:
    """Compare traces with one, point by point, and print it; return whether all bits are equal."""
    from weighbridge.forward.trace_file import open_trace

    first = open_trace(source)
    answers = [{"source": source, "import": path, **_compared(first, open_trace(path), path)} for path in others]
    if as_json:
        print_json(answers)
    for answer in answers if not as_json else ():
        tell([click.style(printable(f"{source} -> {answer['import']}"), bold=True) + "   traces, bit by bit"])
        tell(_lines(answer, everything=everything))
    return ExitCode.PASSED if all(answer["same"] for answer in answers) else ExitCode.FAILED


def _compared(one: "Trace", other: "Trace", path: str) -> dict[str, Any]:
    from weighbridge.forward.between_traces import apart

    if one.facts.tokens != other.facts.tokens:
        what = "the two traces are of other token sequences"
        raise SubjectError("inputs-differ", what, where=path, remedy="capture both with the same --tokens")
    points: dict[str, dict[str, Json]] = {}
    for name in dict.fromkeys((*one.facts.order, *other.facts.order)):
        if (found := apart(one, other, name)) is None:
            shapes: list[Json] = [list(shape) if (shape := side.shape(name)) else None for side in (one, other)]
            points[name] = {"same": False, "shapes": shapes}
            continue
        dtypes: list[Json] = [side.held_as(name) for side in (one, other)]
        points[name] = {"same": found.same, "relative_l2": found.all, "dtypes": dtypes}
        points[name] |= {field: getattr(found, field) for field in APART}
    both = set(one.facts.weights) & set(other.facts.weights)
    weights = sum(one.facts.weights[name] != other.facts.weights[name] for name in both)
    first = next((name for name, found in points.items() if not found["same"]), None)
    shared = {"on_both_sides": len(both), "differing": weights}
    return {"same": first is None, "first": first, "points": points, "weights": shared}


def _lines(answer: Mapping[str, Any], *, everything: bool) -> Iterator[str]:
    points, weights = answer["points"], answer["weights"]
    same = sum(one["same"] for one in points.values())
    yield f"  {'SAME' if answer['same'] else 'DIFFERENT'}: {same} of {len(points)} points have equal bits"
    if answer["first"]:
        yield f"  the first in order of computing that differs is {printable(answer['first'])}"
    if weights["on_both_sides"]:
        yield f"  {weights['differing']} of {weights['on_both_sides']} weights differ"
    lines = [_line(name, one) for name, one in points.items() if everything or not one["same"]]
    yield from lines if everything else capped(lines, POINTS_SHOWN)


def _line(name: str, one: Mapping[str, Any]) -> str:
    if "shapes" in one:
        here, there = (shape if shape is not None else "not there" for shape in one["shapes"])
        return f"    {name}: {here} -> {there}"
    if one["same"]:
        return f"    {name}: equal bits"
    odd = f"; {one['nonfinite']} NaN or infinite on one side" if one["nonfinite"] else ""
    return (
        f"    {name}: relative L2 {one['relative_l2']:.3g}; {one['token']:.3g} at {one['worst_token']}; "
        f"{one['channel']:.3g} in channel {one['worst_channel']}; {one['equal_share']:.1%} of the elements equal{odd}"
    )
