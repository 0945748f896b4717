"""Bind subjects: what stands for which on which instance; commands and factories run only where a person bound them."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from weighbridge.core import EXECUTED, GateDecl, Origin, SubjectKind, UsageError, exists, local_path, model, nearest
from weighbridge.core.frozen import dataclass, field, replace
from weighbridge.gates import KINDS
from weighbridge.judging.requests import DEFAULT

RANKS = "ranks"  # the instance of a folder of ranks as a whole

ARGUMENT = re.compile(r"(?s)(?P<name>[a-z][a-z0-9_-]*)(?:@(?P<instance>[A-Za-z0-9][A-Za-z0-9_-]*))?=(?P<target>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """One subject of one instance, and what stands for it; `by_hand` when it was named on the command line."""

    subject: str
    instance: str
    kind: SubjectKind
    target: str
    by_hand: bool
    columns: Mapping[str, str] = field(default_factory=dict, hash=False)
    units: Mapping[str, str] = field(default_factory=dict, hash=False)
    lines: str = ""
    is_rank: bool = False  # one of those in the folder that was bound

    @property
    def key(self) -> tuple[str, str]:
        """Return what it stands for: the subject, on its instance."""
        return self.subject, self.instance

    @property
    def looked_at_as(self) -> SubjectKind:
        """Return the kind whose verifiers look at it: a trace stands for the model that it was captured of."""
        return SubjectKind.MODEL if self.kind is SubjectKind.TRACE else self.kind

    @property
    def ranks(self) -> list[Path]:
        """Return the folders of the ranks that it stands for, none where it is no folder of ranks."""
        path = local_path(self.target) if self.kind is SubjectKind.RUN else None
        if path is None:
            return []
        from weighbridge.run_logs.json_log import ranks_inside

        return ranks_inside(path)

    def open(self) -> Any:
        """Open the view of this subject, or raise the SubjectError that says why it cannot be read."""
        match self.kind:
            case SubjectKind.CHECKPOINT:
                from weighbridge.views.checkpoint import open_checkpoint

                return open_checkpoint(self.target)
            case SubjectKind.RUN:
                from weighbridge.views.run import open_rank, open_ranks, open_run

                if self.is_rank:
                    return open_rank(Path(self.target), self.columns, self.units)
                if ranks := self.ranks:
                    return open_ranks(ranks, self.columns, self.units)
                return open_run(self.target, self.columns, self.units, self.lines)
            case SubjectKind.COMMAND:
                from weighbridge.views.command import open_command

                return open_command(self.target)
            case SubjectKind.REPORT:
                from weighbridge.views.test_cases import open_report

                return open_report(self.target)
            case SubjectKind.MODEL | SubjectKind.TRACE:
                from weighbridge.views.model_view import open_model, open_recorded

                return open_model(self.target) if self.kind is SubjectKind.MODEL else open_recorded(self.target)


def origin(bound: Binding, view: Any) -> Origin:
    """Return what a subject counts as: what its view knows it to be where a person named it, else FIXTURE."""
    known: Origin = view.origin
    return Origin.FIXTURE if not bound.by_hand and known in (Origin.LIVE, Origin.REPORTED) else known


def bind(contract: model.Contract, base: Path, arguments: Iterable[str]) -> tuple[Binding, ...]:
    """Bind a contract's subjects from `NAME[@INSTANCE]=TARGET` words and by `path:`; refuse what nothing looks at."""
    bound: dict[tuple[str, str], Binding] = {}
    for item in (item for argument in arguments for item in _by_hand(contract, argument)):
        if item.key in bound:
            remedy = f"name instances: {item.subject}@NAME=…"
            raise UsageError("bound-twice", f"{item.subject!r} is bound twice", remedy=remedy)
        bound[item.key] = item
    by_hand = {subject for subject, _ in bound}
    for name, declared in contract.subjects.items():
        if name not in by_hand and declared.kind not in EXECUTED:
            bound |= {item.key: item for item in _declared(name, declared, base)}
    items = tuple(bound.values())
    on = [(gate, instance) for gate in contract.gates for instance in instances(gate, items)]
    judged = [(gate, found(gate.subjects.values(), items, instance)) for gate, instance in on]
    looked = {item for _, mine in judged for item in mine}
    wanted = {name for gate in contract.gates for name in gate.subjects.values()}
    of_ranks = {item for item in items if item.is_rank or item.ranks}  # of a folder of ranks, all or each will do
    seen = {item.subject for item in of_ranks & looked}
    items = tuple(item for item in items if item in looked or item not in of_ranks or item.subject not in seen)
    for idle in (item for item in items if item.subject in wanted and item not in looked):
        others, remedy = "other bindings stand for", f"name its instance, {idle.subject}@NAME=…, or leave it out"
        what = f"no gate would look at {idle.subject}={idle.target}: {others} {idle.subject!r} everywhere"
        raise UsageError("never-looked-at", what, remedy=remedy)
    for gate, mine in judged:
        for one, other in itertools.combinations((item for item in mine if item.kind not in EXECUTED), 2):
            if one_file(one.target, other.target):
                refuse(gate, one, other)
    return items


def refuse(gate: GateDecl, one: Binding, other: Binding) -> NoReturn:
    """Raise `same-subject`: a gate would compare a file with itself."""
    what = f"{gate.id} would compare {one.target} with itself, as {one.subject!r} and {other.subject!r}"
    raise UsageError("same-subject", what, remedy="bind the two that are to be compared")


def one_file(one: str, other: str) -> bool:
    """Return whether two paths lead to one and the same file, or two URLs are the same."""
    here, there = local_path(one), local_path(other)
    if here is None or there is None:
        return one == other
    return exists(here) and exists(there) and here.samefile(there)


def _declared(name: str, declared: model.SubjectDecl, base: Path) -> Iterator[Binding]:
    files = [(DEFAULT, base / declared.path)] if declared.path else []
    each = sorted(base.glob(declared.for_each)) if declared.for_each else []
    files += [(re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem).strip("-_") or DEFAULT, path) for path in each]
    names = [instance for instance, _ in files]
    for instance, path in files:
        if names.count(instance) > 1:
            raise UsageError("bound-twice", f"two files of {declared.for_each!r} give the instance {instance!r}")
        yield from _bound(name, instance, str(path), declared, by_hand=False)


def _bound(name: str, instance: str, target: str, declared: model.SubjectDecl, *, by_hand: bool) -> Iterator[Binding]:
    """Yield what a target stands for: a folder of ranks for each of them, by its name, and as `ranks` for the whole."""
    logged: dict[str, Any] = {"columns": declared.columns, "units": declared.units, "lines": declared.lines}
    whole = Binding(subject=name, instance=instance, kind=declared.kind, target=target, by_hand=by_hand, **logged)
    ranks, within = whole.ranks, "" if instance == DEFAULT else f"{instance}-"
    for one in ranks:
        yield replace(whole, instance=f"{within}{one.name}", target=str(one), is_rank=True)
    yield replace(whole, instance=f"{within}{RANKS}") if ranks else whole


def _by_hand(contract: model.Contract, argument: str) -> Iterator[Binding]:
    if (match := ARGUMENT.fullmatch(argument)) is None:
        remedy = "write --subject NAME=PATH or NAME@INSTANCE=PATH; a name has no capitals"
        raise UsageError("subject-form", f"{argument!r} binds nothing", remedy=remedy)
    name, instance = match["name"], match["instance"] or DEFAULT
    if (declared := contract.subjects.get(name)) is None:
        raise UsageError("unknown-subject", f"{contract.id} has no subject {name!r}{nearest(name, contract.subjects)}")
    return _bound(name, instance, match["target"], declared, by_hand=True)


def instances(gate: GateDecl, bound: Sequence[Binding]) -> tuple[str, ...]:
    """List the instances of a gate: those that its subjects are bound under, or the default one."""
    spared = "is_rank" if KINDS[gate.kind].of_ranks else "ranks"
    mine = {item.instance for item in bound if item.subject in gate.subjects.values() and not getattr(item, spared)}
    return tuple(sorted(mine - {DEFAULT})) or (DEFAULT,)


def all_instances(contract: model.Contract, bound: Sequence[Binding]) -> dict[str, tuple[str, ...]]:
    """List the instances of every gate of a contract."""
    return {gate.id: instances(gate, bound) for gate in contract.gates}


def find(bound: Sequence[Binding], subject: str, instance: str) -> Binding | None:
    """Return what is bound as a subject on an instance, or on all."""
    by_instance = {item.instance: item for item in bound if item.subject == subject}
    return by_instance.get(instance) or by_instance.get(DEFAULT)


def found(names: Iterable[str], bound: Sequence[Binding], instance: str) -> tuple[Binding, ...]:
    """Return what is bound as these subjects on an instance."""
    return tuple(one for name in names if (one := find(bound, name, instance)) is not None)
