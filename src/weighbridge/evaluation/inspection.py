"""Look at checkpoints and run logs by themselves: what values alone show, part by part, and two runs side by side."""

import fnmatch
import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.comparison import casts
from weighbridge.contract.load import BUILTIN, load_contract
from weighbridge.core import Fields, SubjectError, SubjectKind, UsageError, Verdict, model, nearest, np, plain, quoted
from weighbridge.core.frozen import dataclass, replace
from weighbridge.core.limits import read
from weighbridge.core.local_files import exists, is_file, local_path
from weighbridge.evaluation.binding import Binding, all_instances, bind
from weighbridge.evaluation.import_comparison import FILE_TYPE, wrong_file_type
from weighbridge.evaluation.runner import Announce, Evaluation, EvaluationSession
from weighbridge.formats import detect
from weighbridge.formats.tensor import INTEGERS
from weighbridge.gates import KINDS
from weighbridge.gates.families.column_basis import basis_of
from weighbridge.gates.label_plausibility import Limits, decide
from weighbridge.judging.requests import DEFAULT
from weighbridge.packing import packed_weights
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.runs import StepColumn
from weighbridge.quantities.tensors import TensorBits, TensorHealth, TensorMoments
from weighbridge.run_logs.formats import recognition
from weighbridge.run_logs.formats.framework_folder import SAVED, SETTINGS, checkpoints_in, log_in, version_in
from weighbridge.run_logs.json_log import is_run, runs_inside
from weighbridge.storage.mapped_file import is_open_folder
from weighbridge.storage.readable import METADATA
from weighbridge.verifiers import VERIFIERS, tensor_bits, tensor_health, tensor_moments, tensor_walk
from weighbridge.views.run import Column

GATES = ("checkpoint-integrity", "label-plausibility")
SPREAD = "tensor-statistics"
HUGE = {"bounds": [{"tensors": "*", "statistic": "absmax", "at_most": 1e6}]}  # no trained weight; masks are no weights
HOLDS_TENSORS = ".safetensors", ".gguf"
OF_MODEL = ".safetensors.index.json", ".bin.index.json", METADATA, "config.json"
RECORDED, LOGGED = "training-run", "training-log"
MOMENTS = "mean", "std", "min", "max"
COMPARED = ("batch_crc", "lr", "tokens", "loss", "grad_norm", "val_loss", "weight_norm", "parameters_sum")
Words: TypeAlias = Callable[[str, Verdict], Sequence[str]]
Cells: TypeAlias = Iterable[tuple[Any, Any]]  # a step and its number; without one, None
LOSS, LAST = "loss", 10  # of so many steps of both, a tenth is the end
JUDGED_BY, ALIKE = ("val_loss", LOSS), 0.05  # nearer ones may be two seeds of one training
MODELS = ("*.safetensors", "*.gguf", "pytorch_model*.bin")  # a Trainer's own; its optimizer.pt is none
LOG, MODEL, SHOWN = "log", "model", 6
SETTING = re.compile(r"(?m)^(\w+): ([^\s!&*{\[|>].*)$")  # of one plain value


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What one file shows: facts, and tensors or columns, by name; `report` is None of a run or of headers alone."""

    target: str
    kind: SubjectKind
    facts: Fields
    table: Mapping[str, Fields]
    report: "CheckpointReport | None"
    judged: Evaluation | None = None  # of a run: what holds of every training, by the gates that ship


def inspect(
    target: str, words: Words, *, headers: bool = False, moments: bool = False, progress: Announce = lambda _text: None
) -> Inspection:
    """Look at a checkpoint, at its `headers` alone or its `moments` too, or at a run log; `words` say a verdict."""
    kind = kind_of(target)
    view = whole = opened(target, kind)
    if kind is SubjectKind.RUN and view.ranks:
        view = view.ranks[0]  # what it holds, the others hold, too; all are judged
    facts = {row.pop("name"): row for row in map(plain, rows_of(_measure("facts", kind, view), Fact))}
    if kind is SubjectKind.RUN:
        table: dict[str, Fields] = {}
        for row in rows_of(_measure("step_columns", kind, view), StepColumn):
            basis = basis_of(row)
            by = f" ({basis.how} of {basis.partner})" if basis.partner else ""
            counted = {"samples": row.samples, "missing": row.missing, "min": row.min, "max": row.max}
            table[row.column] = {**counted, "basis": f"{basis.basis}{by}"}
        progress(f"reading {target}")
        judged = _judged(target, whole)
        return Inspection(target=target, kind=kind, facts=facts, table=table, report=None, judged=judged)
    table = _tensors(view)
    progress(f"reading {target}")
    report = None if headers else look(view, table, words, moments=moments)
    return Inspection(target=target, kind=kind, facts=facts, table=report.tensors if report else table, report=report)


def _judged(target: str, view: Any) -> Evaluation:
    """Judge a run by what needs no declaration: the gates for any log, and those on what a recorder looked at."""
    of_log, of_recorder = (load_contract(f"{BUILTIN}{name}").contract for name in (LOGGED, RECORDED))
    asked = [(gate.kind, gate.measure) for gate in of_log.gates]
    whole = {"as_logged": True}  # also of a run that goes on
    others = (gate for gate in of_recorder.gates if gate.when and (gate.kind, gate.measure) not in asked)
    more = [replace(gate, where=whole) for gate in others]
    contract = replace(of_log, gates=(*of_log.gates, *more))
    bound = bind(contract, Path(), [f"run={target}"])
    views = {} if view.ranks else {bound[0].key: view}
    return EvaluationSession(contract=contract, bound=bound, on=all_instances(contract, bound), views=views).evaluate()


def contract_of(run: str) -> tuple[str, dict[str, str]]:
    """Return the name of the contract for a run, and the parameters under which this one passes."""
    contract = load_contract(f"{BUILTIN}{RECORDED}").contract
    bound = bind(contract, Path(), [f"run={run}"])
    if any("pid" not in one.open().facts for one in bound):
        return LOGGED, {}
    found = EvaluationSession(contract=contract, bound=bound, on=all_instances(contract, bound)).evaluate()
    facts = next((item for key, item in found.measured.items() if key.startswith("facts.run.")), None)
    said = {fact.name: str(fact.value) for fact in rows_of(facts, Fact)} if isinstance(facts, model.Measurement) else {}
    known = {"device": said.get("requested_device"), "tokens_per_step": said.get("tokens_per_step")}
    timed = next(one for one in found.findings if one.kind == "wall-time-budget")
    median = (timed.uncounted or timed.verdict).measured  # what another shape than the contract's took, too
    if isinstance(median, (int, float)):
        known["budget_ms"] = str(math.ceil(1.5 * median))  # half as much again, as --from-run says
    return RECORDED, {name: value for name, value in known.items() if value is not None}


def opened(target: str, kind: SubjectKind) -> Any:
    """Open the view of what is looked at, bound by hand."""
    return Binding(subject="file", instance=DEFAULT, kind=kind, target=target, by_hand=True).open()


def first_values(target: str, count: int, glob: str) -> dict[str, Fields]:
    """Return the tensors whose names match, each with its first values; None of a dtype that nothing reads."""
    if kind_of(target) is SubjectKind.RUN:
        raise UsageError("values", "is a run log, and --values is for checkpoints", where=target)
    view = opened(target, SubjectKind.CHECKPOINT)
    table = _tensors(view)
    if not (found := [name for name in table if fnmatch.fnmatchcase(name, glob)]):
        what = f"none of {len(table)} names matches {quoted(glob)}{nearest(glob, table)}"
        raise UsageError("values", what, where=target, remedy="`weighbridge inspect --headers --all` lists them")
    shown: dict[str, Fields] = {}
    for name in found:
        tensor = view.tensor(name)
        elements, size = tensor.unit
        stored = view.read(name, 0, -(-count // elements) * size) if tensor.elements else b""
        values = casts.values(np.frombuffer(stored, np.uint8), tensor.dtype) if stored else ()
        number = int if tensor.dtype in INTEGERS else float  # with the digits that tell it from others of its dtype
        first = None if values is None else [number(str(value)) for value in values[:count]]
        shown[name] = {**table[name], "values": first}
    return shown


def kind_of(target: str) -> SubjectKind:
    """Return whether a target is a checkpoint or a run, by what is in it; runs are read on this machine only."""
    if (path := local_path(target)) is None:
        return SubjectKind.CHECKPOINT
    if is_open_folder(path):
        runs = runs_inside(path) and not any(one.suffix in HOLDS_TENSORS for one in path.iterdir() if is_file(one))
        return SubjectKind.RUN if is_run(path) or runs or recognition.is_log(path) else SubjectKind.CHECKPOINT
    if path.suffix in HOLDS_TENSORS or path.name.endswith(OF_MODEL):
        return SubjectKind.CHECKPOINT
    if not is_file(path) or recognition.is_log(path):
        return SubjectKind.RUN
    with path.open("rb") as file:
        head = file.read(detect.BLOCK)
    binary = b"\0" in head or detect.reader_of(head) is not None  # no log holds a zero byte
    return SubjectKind.CHECKPOINT if binary or detect.begins_unread(head) else SubjectKind.RUN


def _measure(quantity: str, kind: SubjectKind, view: Any) -> model.Measurement:
    result = VERIFIERS[quantity, (kind,)].measure((view,), {})
    if isinstance(result, model.Unmeasured):
        raise SubjectError(result.code, result.why, remedy=result.remedy)
    return result


def _tensors(view: Any) -> dict[str, Fields]:
    tensors = {name: view.tensor(name) for name in view.names()}
    return {name: {"dtype": t.dtype, "shape": list(t.shape), "bytes": t.nbytes} for name, t in tensors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What a checkpoint shows by itself: problems as a gate would report them, figures, and every tensor."""

    findings: tuple[Mapping[str, str], ...]
    packed: Mapping[str, int]  # how many weights, by how they are packed
    labels: Fields
    health: Fields
    tensors: Mapping[str, Fields]
    unseen: tuple[str, ...] = ()  # why a gate over values could not look
    undecided: tuple[str, ...] = ()  # why too few dtypes could be decided


def look(view: Any, table: Mapping[str, Fields], words: Words, *, moments: bool = False) -> "CheckpointReport":
    """Return what a checkpoint's values show, with what each tensor of its table looks like."""
    of_files = [_measure(one, SubjectKind.CHECKPOINT, view) for one in ("file_structure", "own_claims")]
    instruments = [one.VERIFIER for one in (tensor_bits, tensor_health, *([tensor_moments] if moments else []))]
    read_once = tensor_walk.walk(view, [(one.quantity, one.reading) for one in instruments])
    measured = {found.quantity: found for found in (*of_files, *read_once)}
    verdicts, findings = {}, list[Mapping[str, str]]()
    for gate in GATES:
        evidence = {name: measured[need.quantity] for name, need in KINDS[gate].needs.items()}
        verdict = verdicts[gate] = KINDS[gate].judge(evidence, read(KINDS[gate].limits, {}))
        findings += _found(gate, verdict, words)
    odd = [row.name for row in rows_of(measured["tensor_health"], TensorHealth) if row.beyond_f16]
    if huge := [name for name in odd if "mask" not in name]:  # of these few the size is measured, which takes its time
        spread_of = tensor_walk.walk(view.cut(huge), [("tensor_moments", tensor_moments.VERIFIER.reading)])[0]
        findings += _found(SPREAD, KINDS[SPREAD].judge({"moments": spread_of}, read(KINDS[SPREAD].limits, HUGE)), words)
    if stated := wrong_file_type(view):
        findings.append({"place": FILE_TYPE, "gate": "label-plausibility", "code": "file-type", "says": stated})
    rows: dict[str, dict[str, Any]] = {}
    for row in rows_of(measured["tensor_bits"], TensorBits):
        decision, unused, all_bits = decide(row, Limits()), row.trailing_zero_bits, row.mantissa_bits
        used = None if unused is None or all_bits is None else all_bits - unused
        label = {"label": decision.verdict, "why": decision.why, "used_bits": used, "mantissa_bits": all_bits}
        rows[row.name] = {**table[row.name], **label}
    for spread in rows_of(measured["tensor_moments"], TensorMoments) if moments else ():
        rows[spread.name] |= {name: getattr(spread, name) for name in MOMENTS}
    wrong = {finding["place"] for finding in findings}
    health, labels = (verdicts[gate].figures for gate in GATES)
    tensors = {name: rows[name] for name in sorted(rows, key=lambda name: (name not in wrong, name))}
    settings = packed_weights.settings_of(view)
    packed = Counter(weight.summary(settings) for weight in packed_weights.marked(view))
    blocked = {gate: one for gate, one in verdicts.items() if one.outcome is model.Outcome.BLOCKED}
    unseen, undecided = (tuple(words(gate, blocked[gate])) if gate in blocked else () for gate in GATES)
    of_values: dict[str, Any] = {"labels": labels, "health": health, "tensors": tensors, "unseen": unseen}
    return CheckpointReport(findings=tuple(findings), packed=packed, undecided=undecided, **of_values)


def _found(gate: str, verdict: Verdict, words: Words) -> list[Mapping[str, str]]:
    """Return what a gate finds wrong, each with its words."""
    said = zip(verdict.offences, words(gate, verdict), strict=True) if verdict.outcome is model.Outcome.FAIL else ()
    return [{"place": one.place, "gate": gate, "code": one.code, "says": says} for one, says in said]


# --- A folder that a framework trained into: its log, its settings, its model and every checkpoint --------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a folder: what it showed, or why it could not be read, or what it says of itself."""

    name: str
    target: str
    found: Inspection | None = None
    refused: SubjectError | None = None
    says: str = ""


def run_in(target: str) -> str:
    """Return the log in a folder that a framework trained into, else the target itself."""
    path = _of_a_framework(target)
    return str((log_in(path) if path else None) or target)


def _of_a_framework(target: str) -> Path | None:
    path = local_path(target)
    return path if path is not None and is_open_folder(path) and not is_run(path) else None


def parts_of(target: str) -> list[tuple[str, Path]]:
    """List the parts of a folder of training by their names, the log first; none where it is one log or checkpoint."""
    if (path := _of_a_framework(target)) is None:
        return []
    try:
        log = log_in(path) or (path if recognition.is_log(path) else None)
    except SubjectError:
        log = path  # whoever reads it is refused again, and says so
    home = log.parent if log not in (None, path) else version_in(path) or path
    settings = [home / SETTINGS] if log is not None and exists(home / SETTINGS) else []
    trained = [path] if any(next(path.glob(ending), None) for ending in MODELS) else []
    saved = [*checkpoints_in(path), *(sorted(home.glob(SAVED)) if is_open_folder(home / "checkpoints") else ())]
    found = [*([log] if log is not None else []), *settings, *trained, *saved]
    named = [(MODEL if one in trained else one.relative_to(path).as_posix(), one) for one in found]
    named = [(LOG if one == log == path else name, one) for name, one in named]
    return named if len(named) > 1 and (log is not None or saved) else []


def look_at(parts: list[tuple[str, Path]], words: Words, progress: Announce, **how: bool) -> Iterator[Part]:
    """Look at each part by itself; one that cannot be read keeps no other from being looked at."""
    for name, path in parts:
        part: dict[str, Any] = {"name": name, "target": str(path)}
        if path.name == SETTINGS:
            pairs = SETTING.findall(path.read_text("utf-8", "replace")[: 1 << 16])
            yield Part(**part, says=", ".join(f"{key}: {value.strip()}" for key, value in pairs[:SHOWN]) or "none")
            continue
        try:
            if name == LOG:
                log_in(path)
            yield Part(**part, found=inspect(str(path), words, progress=progress, **how))
        except SubjectError as problem:
            yield Part(**part, refused=problem)


# --- Two runs beside each other: the first step at which they part, which one ends worse, and by what -----------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Two runs: the steps of both by column, where each column parts, the losses of both at the end, the worse one."""

    steps: Mapping[str, int]
    parts: Mapping[str, tuple[int, float, float]]
    above: tuple[int, int] | None  # since when the second's loss stays above the first's (1) or below it (-1)
    ends: Mapping[str, Sequence[float]]  # medians of the last tenth, by column
    worse: int | None
    by: str


def beside(one: Inspection, other: Inspection) -> Beside:
    """Compare the columns that both runs have at the steps that both logged, bit for bit."""
    if one.kind is not SubjectKind.RUN or other.kind is not SubjectKind.RUN:
        remedy = "`weighbridge compare SOURCE IMPORT` compares checkpoints"
        raise UsageError("two-files", "two files are looked at together where both are runs", remedy=remedy)
    views: list[Any] = [opened(found.target, found.kind) for found in (one, other)]
    mine, theirs = (view.ranks[0] if view.ranks else view for view in views)
    both = {name: rows for name in COMPARED if (rows := at_both(cells(mine.column(name)), cells(theirs.column(name))))}
    parts = {name: apart[0] for name, rows in both.items() if (apart := [row for row in rows if parts_at(row)])}
    known = {name: [row for row in both.get(name, []) if all(map(math.isfinite, row[1:]))] for name in JUDGED_BY}
    tenth = {name: rows[-max(len(rows) // LAST, 1) :] for name, rows in known.items() if rows}
    ends = {name: [statistics.median(row[side] for row in rows) for side in (1, 2)] for name, rows in tenth.items()}
    farther = (name for name, (here, there) in ends.items() if abs(here - there) > ALIKE * min(abs(here), abs(there)))
    failed, worse, by = [_failed(found) for found in (one, other)], None, ""
    if failed[0] != failed[1]:
        many, few = sorted(map(sum, failed), reverse=True)
        worse = int(failed[1] > failed[0])
        by = f"{many} gates fail, {few} of the other" if many != few else "a graver gate fails"
    elif name := next(farther, ""):
        here, there = ends[name]
        worse = int(there > here)
        by = f"{name} {max(here, there):.6g} against {min(here, there):.6g} at the end"
    steps = {name: len(rows) for name, rows in both.items()}
    return Beside(steps=steps, parts=parts, above=_above(known[LOSS]), ends=ends, worse=worse, by=by)


def cells(column: Column | None) -> Cells:
    """Yield the steps of a column with their numbers."""
    return zip(column.step, column.value, strict=True) if column else ()


def at_both(mine: Cells, theirs: Cells) -> list[tuple[Any, float, float]]:
    """Return the steps at which two columns both hold a number, each with both numbers."""
    here, there = ({step: value for step, value in one if None not in (step, value)} for one in (mine, theirs))
    return [(step, here[step], there[step]) for step in sorted(here.keys() & there.keys())]


def parts_at(both: tuple[Any, float, float]) -> bool:
    """Return whether two numbers of one step are not the same to the bit; NaN is NaN."""
    return repr(both[1]) != repr(both[2])


def _above(losses: list[tuple[int, float, float]]) -> tuple[int, int] | None:
    """Return the step since which one loss stays on its side of the other, and the side; None where they end equal."""
    sides = [(step, (there > here) - (there < here)) for step, here, there in losses]
    if not sides or not (side := sides[-1][1]):
        return None
    others = [at for at, (_, one) in enumerate(sides) if one != side]
    since = others[-1] + 1 if others else 0
    return (sides[since][0], side) if len(sides) - since >= len(sides) / LAST else None


def _failed(found: Inspection) -> tuple[int, int]:
    of = [one for one in found.judged.findings if one.verdict.outcome is model.Outcome.FAIL] if found.judged else []
    advisory = sum(one.severity is model.Severity.ADVISORY for one in of)
    return len(of) - advisory, advisory
