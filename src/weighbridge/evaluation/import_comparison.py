"""Compare checkpoints with their source: the gates of a policy, the evaluation of each import, which it would pass."""

import contextlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import ContractError, Fields, GateDecl, Measurement, SubjectError, UsageError, local_path, model
from weighbridge.core.frozen import dataclass, replace
from weighbridge.core.limits import LimitsError, Problem, read
from weighbridge.core.local_files import is_file, read_regular_file
from weighbridge.evaluation.binding import Binding, all_instances
from weighbridge.evaluation.runner import Announce, Evaluation, EvaluationSession
from weighbridge.gates import config_agreement
from weighbridge.gates.families import block_types
from weighbridge.gates.families.block_types import BOUND, RECIPES, ROUNDED_TYPES, TYPICAL_ERROR, UNWEIGHTED
from weighbridge.gates.families.harmless_keys import harmless
from weighbridge.gates.families.policies import CEILING, TARGETS
from weighbridge.gates.families.tensor_pairs import Look, is_exact, two_sided
from weighbridge.gates.value_preservation import KIND, Class, Limits, class_of, judge
from weighbridge.judging.requests import DEFAULT, all_requests, request_for
from weighbridge.packing.packed_weights import INPUT_SCALES, marked, settings_of
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.checkpoints import CONFIG_LISTS
from weighbridge.quantities.tensors import TensorPair
from weighbridge.scheduling.threads import HERE, Execution
from weighbridge.verifiers.file_structure import INDEX, beside, declared_bytes
from weighbridge.views import checkpoint

Opened: TypeAlias = checkpoint.CheckpointView | None
GATE, CONFIGURATION = "compare", "compare-configuration"
FILE_TYPE, HEAD = "general.file_type", "output.weight"
TENSORS = KIND.needs["pairs"].quantity
NOT_COMPARED = "not compared"
SAME = {Class.BYTES_EQUAL, Class.VALUE_EQUAL, Class.DROPPED, Class.GENERATED}  # nothing of the source's is lost
LOSSY = {Class.ROUNDED_EXACT, Class.REQUANT_EXACT, Class.NEAREST_CODES, Class.WITHIN_BOUND}
OF_POLICY = {"dtype", "packing", "unmade", "file-type", "content", "packed"}  # what another policy may accept
LOADED_AS = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What an import must be: the gate's limits, their name, and why they were chosen."""

    limits: Fields
    name: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportComparison:
    """What one import came to; `itself` where both are one file; `notes` say what the files of a side contradict."""

    path: str
    policy: Policy
    gate: GateDecl  # of the tensors
    evaluation: Evaluation
    itself: bool
    notes: tuple[str, ...]
    pairs: tuple[TensorPair, ...]  # none where nothing was compared
    classes: Mapping[str, str]  # of each of them, by name

    @property
    def is_same(self) -> bool:
        """Return whether nothing of the source's is lost, as far as it is known."""
        return {*self.classes.values()} <= SAME and not self.dropped

    @property
    def lossy(self) -> tuple[TensorPair, ...]:
        """Return the tensors of a type that holds less than the source's."""
        lossy = (row for row in self.pairs if self.classes[row.name] in LOSSY)
        return tuple(row for row in lossy if row.candidate_dtype != row.source_dtype)

    @property
    def dropped(self) -> Mapping[str, int]:
        """Count what the import leaves out by a rule alone: no other tensor has its bytes, and it is not all zeros."""
        left = (row for row in self.pairs if self.classes[row.name] == Class.DROPPED and row.drop_rule)
        return Counter(row.drop_rule for row in left if row.identical_to is None and row.nonzero)

    @property
    def uncompared(self) -> list[str]:
        """Return the keys of the configuration that were not compared and are not known to be harmless."""
        apart = self.evaluation.findings[1].verdict.figures.get("not_compared") or ()
        assert isinstance(apart, Sequence)
        names = [name for one in apart if not harmless(name := str(one).partition(" (")[0])]
        return sorted(names, key=lambda name: name not in CONFIG_LISTS)


def compare(
    source: str, imports: Sequence[str], *, policy: Policy | None = None, look: Fields = model.EMPTY,
    may_differ: tuple[str, ...] = (), may_ignore: tuple[str, ...] = (), adapter: str | None = None,
    execution: Execution = HERE, progress: Announce = lambda _text: None,
) -> tuple[ImportComparison, ...]:  # fmt: skip
    """Compare imports with their source, an `adapter` merged into that; without a policy, as each declares itself."""
    away = execution.engine is not None
    paths = {f"import-{at}": path for at, path in enumerate(imports, 1)}
    opened = {} if policy else {name: _opened(path, away=away) for name, path in paths.items()}
    views = {(name, DEFAULT): view for name, view in opened.items() if view is not None}
    if not all(imports):
        raise UsageError("subject-form", "an import without a path")
    chosen = {name: policy or _declared(opened.get(name), source) for name in paths}
    of_all = {"source": source} | ({} if adapter is None else {"adapter": adapter})
    sides = {name: {**{role: role for role in of_all}, "candidate": name} for name in paths}
    gates = {name: _gates(sides[name], chosen[name], look, may_differ, may_ignore) for name in paths}
    targets = {name: _found_anywhere(path, away=away) for name, path in (of_all | paths).items()}
    contract, bound = _promise(targets, itertools.chain.from_iterable(gates.values()))
    begin = partial(EvaluationSession, execution=execution, progress=progress, with_itself=True)
    on = all_instances(contract, tuple(bound.values()))
    session = begin(contract=contract, bound=tuple(bound.values()), on=on, views=views)
    together = session.evaluate()  # of all imports at once, so that the source is read once
    of_source, found = _notes(session, "source", "source"), []
    for name, path in paths.items():
        itself = adapter is None and session.is_one(bound["source"], bound[name])
        notes, alone = (*of_source, *_notes(session, name, "import")), _alone(together, gates[name])
        tables = (one for one in alone.measured.values() if isinstance(one, Measurement) and one.quantity == TENSORS)
        pairs = next((rows_of(one, TensorPair) for one in tables), ())
        classes = {row.name: str(class_of(row) or NOT_COMPARED) for row in pairs}
        of = partial(ImportComparison, path=path, policy=chosen[name], gate=gates[name][0], evaluation=alone)
        found.append(of(itself=itself, notes=notes, pairs=pairs, classes=classes))
    return tuple(found)


def _promise(targets: Mapping[str, str], gates: Iterable[GateDecl]) -> tuple[model.Contract, dict[str, Binding]]:
    kind = model.SubjectKind.CHECKPOINT
    subjects = dict.fromkeys(targets, model.SubjectDecl(kind=kind))
    contract = model.Contract(id=GATE, version="0.0.0", title="", owner="", subjects=subjects, gates=tuple(gates))
    bind = partial(Binding, instance=DEFAULT, kind=kind, by_hand=True)
    return contract, {name: bind(subject=name, target=target) for name, target in targets.items()}


def _notes(session: EvaluationSession, name: str, side: str) -> list[str]:
    """Return what the files of a side contradict; what cannot be read is reported where a gate needs it."""
    view = session.views.get((name, DEFAULT))
    with contextlib.suppress(SubjectError):
        return [f"{side}: {text}" for text in contradictions(view)] if view is not None else []
    return []


def policy_of(text: str) -> Policy:
    """Return the policy that the command line names, or that a file of limits holds."""
    if is_file(text) or text.endswith((".yaml", ".yml")):
        from weighbridge.contract import strict_yaml

        source = read_regular_file(Path(text), strict_yaml.MAX_BYTES, ContractError)
        limits = strict_yaml.load(source, where=text).data
        beside = f" ({text})"
    else:
        limits, beside = {"policy": text}, ""
    try:
        policy = read(Limits, limits).policy
    except LimitsError as error:
        raise ContractError("policy", str(error).removeprefix("policy: "), where=text) from None
    assert isinstance(limits, Mapping)
    return Policy(limits={**limits, "policy": policy}, name=f"{policy}{beside}")


def mapping_of(path: str, source: str, imports: Sequence[str]) -> dict[str, model.Json]:
    """Return the options that a mapping file gives for these checkpoints, or raise each thing wrong at its line."""
    from weighbridge.contract import strict_yaml

    document = strict_yaml.load(read_regular_file(Path(path), strict_yaml.MAX_BYTES, UsageError), where=path)
    look = {"map": "table", **document.data} if isinstance(document.data, Mapping) else document.data
    problems: list[Problem] = []
    try:
        options = read(Look, look)
    except LimitsError as error:
        problems += error.problems
    else:
        assert isinstance(look, dict)
        for at, rule in enumerate(options.rename):
            try:
                re.compile(rule.pattern)
            except re.error as wrong:
                problems.append(Problem("map", f"the pattern cannot be used: {wrong}", ("rename", at, "from")))
        opened = [_opened(one, away=False) for one in (source, *imports)] if options.make else [None]
        problems += _unfit(look.get("make") or (), opened[0], opened[1:])
    if problems:
        placed = ((one.what, document.at(one.path, at_key=one.at_key)) for one in problems)
        raise strict_yaml.collected(tuple(ContractError("map", what, where=at) for what, at in placed))
    return look


def _unfit(rules: Sequence[Any], source: Opened, imports: Sequence[Opened]) -> list[Problem]:
    from weighbridge.mapping.chosen_mapping import models, numbers
    from weighbridge.mapping.tensor_rules import RuleError, made, rule_of
    from weighbridge.packing.unpacked_view import both_unpacked

    pairs = [both_unpacked((source, one)) for one in imports if source is not None and one is not None]
    problems = []
    for at, rule in enumerate(map(rule_of, rules)):
        sides = [(models(old, new), models(new, old), partial(numbers, old, new)) for old, new in pairs]
        try:
            used = [made((rule,), there, here, there, known, strict=True) for here, there, known in sides]
            what = "" if any(used) or not sides else rule.unused(sides[0][1])
        except RuleError as problem:
            what = str(problem)
        if what:
            problems.append(Problem("map", what, ("make", at)))
    return problems


def _opened(path: str, *, away: bool) -> Opened:
    """Return an open import, or None where it cannot be read; the evaluation then reports why."""
    try:
        return checkpoint.open_checkpoint(_found_anywhere(path, away=away)) if path else None
    except SubjectError:
        return None


def contradictions(view: checkpoint.CheckpointView) -> Iterator[str]:
    """Yield where the files of a checkpoint contradict each other, so that another loader may take something else."""
    for name in view.files:
        total = declared_bytes(view, name) if name.endswith(INDEX) else None
        if total not in (None, view.nbytes):
            yield f"{name} says total_size {total}, and its tensors have {view.nbytes} bytes"
    for name in beside(view):
        yield f"{name} lies beside it and is no part of it; another loader may take it instead"
    if view.format in ("gguf", "apr"):
        yield from filter(None, [wrong_file_type(view)])
        return
    if many := sum(name.endswith(INPUT_SCALES) for name in view.tensors):
        yield f"not compared: {many} input_scale, which no source has; inspect judges each by itself"
    config = checkpoint.config_beside(view) or {}
    key = "dtype" if config.get("dtype") is not None else "torch_dtype"
    sizes = Counter(dict.fromkeys(LOADED_AS.values(), 0))
    packed = {one.name for weight in marked(view) for one in weight.members.values()}
    for tensor in (one for name, one in view.tensors.items() if name not in packed):
        sizes[tensor.dtype] += tensor.nbytes * (tensor.dtype in sizes)
    named, ((most, nbytes), *_) = LOADED_AS.get(str(config.get(key))), sizes.most_common()
    if named and nbytes and named != most:
        weights = "weights that are not packed" if packed else "weights"
        loads = f"most {weights} are {most}: transformers 5 loads them as {named}"
        yield f"{checkpoint.CONFIG} says {key} {config[key]}, and {loads}"


def wrong_file_type(view: Any) -> str:
    """Say which type a GGUF header names, where no tensor is of it and a matrix could be."""
    name, stored = block_types.FILE_TYPES.get(view.metadata.get(FILE_TYPE), ""), [*view.tensors.values()]
    dtype = block_types.RECIPES[name].default if name in block_types.RECIPES else name
    dtypes, block = [one.dtype for one in stored], block_types.BLOCK.get(dtype, 1)
    matrices = (one.shape[-1] for one in stored if len(one.shape) > 1 and not block_types.KEPT.fullmatch(one.name))
    if dtype in ("", *dtypes, *block_types.EXPERTS_ALONE) or all(row % block for row in matrices):
        return ""
    there = ", ".join(f"{many} {one}" for one, many in Counter(dtypes).most_common())
    return f"{FILE_TYPE} is {name}, and no tensor is {dtype}: there are {there}"


def _declared(view: Opened, source: str) -> Policy:
    """Return the default policy: lossless, or for a quantised file the types that it declares."""
    dtypes = [tensor.dtype for tensor in view.tensors.values()] if view is not None else []
    blocks = [dtype for dtype in dtypes if dtype in TYPICAL_ERROR]
    if not blocks and view is not None and any(True for _ in marked(view)):
        named = "packed"
        with contextlib.suppress(SubjectError):  # of a source that cannot be read, comparing says so
            named = _stated(view, checkpoint.open_checkpoint(source))[0] or named
        return Policy(limits={"policy": named}, name=named, why=" (the file holds codes and their scales)")
    if not blocks:
        return Policy(limits={"policy": "lossless"}, name="lossless")
    named = f"at-most:quantised:{max(blocks, key=TYPICAL_ERROR.__getitem__)}"
    counted = ", ".join(f"{dtypes.count(dtype)} {dtype}" for dtype in dict.fromkeys(sorted(dtypes)))
    return Policy(limits={"policy": named}, name=named, why=f" (the types that the file declares: {counted})")


def stated_policy(source: str, candidate: str) -> tuple[str, str]:
    """Return what a file states that it was made to be, as a policy, and where it states it; "" where it does not."""
    return _stated(checkpoint.open_checkpoint(candidate), checkpoint.open_checkpoint(source))


def _stated(made: checkpoint.CheckpointView, of: checkpoint.CheckpointView) -> tuple[str, str]:
    floats = {*LOADED_AS.values()}
    before = floats & {one.dtype for one in of.tensors.values()}
    number = made.metadata.get(FILE_TYPE)
    rounded = next((name for name, one in ROUNDED_TYPES.items() if one == number), "")
    states = f"{FILE_TYPE} {number}"
    if (settings := settings_of(made)) and any(marked(made)):  # packers store what they leave in one dtype
        kept = {} if any(marked(of)) else of.tensors  # what was packed before has kept its own
        both = (one.dtype for name, one in made.tensors.items() if name in kept and one.dtype in floats)
        rounded = next((dtype for dtype in both if dtype in ROUNDED_TYPES and before - {dtype}), "")
        states = f"quantization_config {settings.get('quant_method') or settings.get('bits')}"
        return "packed" + (f"+rounded:{rounded}" if rounded else ""), states
    if rounded and before - {rounded}:
        return f"rounded:{rounded}", states
    mixture = next((name for name, one in RECIPES.items() if one.number == number), "")
    if not mixture:
        return ("lossless", states) if isinstance(number, int) else ("", "")
    alone, head = {one.dtype for one in made.tensors.values()} - floats == {mixture}, made.tensors.get(HEAD)
    if alone and head is not None and mixture not in block_types.types_of(mixture, HEAD, head.shape[-1]):
        return f"at-most:quantised:{mixture}", states  # all of one type, as llama-quantize's --pure makes it
    return f"{'requant' if alone and mixture in UNWEIGHTED else 'quantised'}:{mixture}", states


def _gates(
    sides: Mapping[str, str], policy: Policy, look: Fields, may_differ: tuple[str, ...], may_ignore: tuple[str, ...]
) -> tuple[GateDecl, GateDecl]:
    name, both = sides["candidate"], {role: sides[role] for role in config_agreement.KIND.roles}
    title, same = "the import is what it was meant to be", "both say the same of their model"
    limits: Fields = {"required": [], "may_differ": [{"field": one, "why": "--may-differ"} for one in may_differ]}
    ignored: Any = (*policy.limits.get("may_ignore", ()), *({"file": one, "why": "--may-ignore"} for one in may_ignore))  # type: ignore[misc]
    meant = {**policy.limits, **({"may_ignore": ignored} if ignored else {})}
    return (
        GateDecl(id=f"{GATE}.{name}", kind=KIND.name, title=title, limits=meant, measure=look, subjects=sides),
        GateDecl(
            id=f"{CONFIGURATION}.{name}", kind=config_agreement.KIND.name, title=same, limits=limits, subjects=both
        ),
    )


def _alone(evaluation: Evaluation, gates: Sequence[GateDecl]) -> Evaluation:
    ids = {gate.id: gate.id.partition(".")[0] for gate in gates}
    keys = {item.key for gate in gates for item in all_requests(gate, DEFAULT)}
    findings = (replace(one, gate=ids[one.gate]) for one in evaluation.findings if one.gate in ids)
    measured = {key: item for key, item in evaluation.measured.items() if key in keys}
    named = (replace(gate, id=ids[gate.id]) for gate in evaluation.contract.gates if gate.id in ids)
    contract = replace(evaluation.contract, gates=tuple(named))
    return replace(evaluation, contract=contract, findings=tuple(findings), measured=measured)


def _found_anywhere(path: str, *, away: bool) -> str:
    """Return the path that a worker in another directory finds the file by; where there is none, the path as it is."""
    here = local_path(path)
    return str(here.absolute()) if away and here is not None else path


# --- Which policy an import would pass under: each is tried on what was measured --------------------------------------


def policy_that_passes(evaluation: Evaluation, gate: GateDecl, instance: str, verdict: model.Verdict) -> str:
    """Return the plainest policy under which what a gate judged passes, under its other limits; "" without one."""
    keys = {name: request_for(gate, need, instance).key for name, need in KIND.needs.items()}
    found = {name: evaluation.measured.get(key) for name, key in keys.items()}
    evidence = {name: item for name, item in found.items() if isinstance(item, Measurement)}
    canary = evaluation.canaries.get(keys["pairs"])
    if {offence.code for offence in verdict.offences} - OF_POLICY or canary is None or not canary.seen:
        return ""
    others = ("allow", "allow_missing", "allow_extra", "may_ignore")
    allowed, asked = {name: gate.limits[name] for name in others if name in gate.limits}, str(gate.limits.get("policy"))
    for policy in _policies(rows_of(evidence["pairs"], TensorPair), f"{CEILING}{asked.removeprefix(CEILING)}"):
        try:
            tried = read(Limits, {**allowed, "policy": policy})
        except LimitsError:  # a ceiling over what has none
            continue
        if judge(evidence, tried).outcome is model.Outcome.PASS:
            return policy
    return ""


def _policies(rows: Iterable[TensorPair], ceiling: str) -> Iterator[str]:
    """Yield what could have made these dtypes: results before ceilings, the one that was asked for first of these."""
    changed = [row for row in rows if two_sided(row) and (row.packed or not is_exact(row))]
    found = {row.candidate_dtype for row in changed}
    blocks = sorted(found & set(BOUND), key=TYPICAL_ERROR.__getitem__)
    stated = {row.file_type for row in changed}
    mixtures = [name for name, one in RECIPES.items() if one.number in stated]
    exact = [f"requant:{dtype}" for dtype in blocks if dtype in TARGETS["requant"]]
    of_blocks = [*exact, *(f"quantised:{name}" for name in (*mixtures, *blocks[-1:]))] if blocks else []
    packed = ["packed"] if any(row.packed for row in changed) else []
    rounded = [f"rounded:{dtype}" for dtype in TARGETS["rounded"] if dtype in found]
    classes = ([*kind, ""] for kind in (packed, rounded, of_blocks))
    joined = ["+".join(filter(None, parts)) for parts in itertools.product(*classes)]
    ordered = sorted(filter(None, joined), key=lambda policy: policy.count("+"))
    yield from (*ordered, "lossless", ceiling, *(f"{CEILING}{policy}" for policy in ordered))
