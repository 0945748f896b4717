"""What the words of a contract mean together, looked at as plain data, so that a slip in one place hides no other."""

import graphlib
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from weighbridge.clauses.kind import Kind
from weighbridge.contract.layers import Found, Layered
from weighbridge.contract.strict_yaml import Path
from weighbridge.core import Doc, LimitsError, Problem, closest, fields, model, nearest, read, show
from weighbridge.core.data import table
from weighbridge.gates import KINDS
from weighbridge.quantities.facts import ACCEPTED, ENDED, ENDS

TIMES: Final = ("s", "ms")
SHOWN: Final = 8
TYPED_STATUS: Final = ("status", "verdict", "discharge_status")
NO_AGE: Final = float("inf")
Gates: TypeAlias = Sequence[tuple[Path, Mapping[str, Any]]]  # each with its path


def lint(layered: Layered) -> Iterator[Found]:
    """Find what is wrong, or worth a warning, beyond the structure of the document."""
    subjects = _mapping(layered.data, "subjects")
    for name in subjects:
        yield from _subject(layered, name, _mapping(subjects, name))
    listed = enumerate(_list(layered.data, "gates"))
    gates = [(("gates", index), gate) for index, gate in listed if isinstance(gate, Mapping)]
    for path, gate in gates:
        yield from _gate(layered, path, gate, subjects)
    yield from _doubled(layered, gates)
    yield from _dependencies(layered, gates)
    if not gates:
        what = "no gate is declared, so it shows nothing"
        yield layered.found(("id",), "no-gates", what, "add a gate under gates:", warning=True)
    used = {subject for _, gate in gates for subject in map(str, _mapping(gate, "subjects").values())}
    for name in (name for name in subjects if name not in used):
        what, remedy = f"no gate looks at the subject {show(name)}", "delete it, or use it"
        yield layered.found(("subjects", name), "unused-subject", what, remedy, at_key=True, warning=True)


def structural(layered: Layered, problem: Problem, path: Path = ()) -> Found:
    """Place a problem that the typed reader found, with what helps where that is known."""
    place = (*path, *problem.path)
    if problem.code == "unknown-key" and place[-1] in TYPED_STATUS:
        what = f"a status is never written by hand: {place[-1]!r} is computed from the ledger"
        return layered.found(place, "typed-status", what, "delete the key; see `weighbridge status`", at_key=True)
    if len(place) == 2 and place[0] == "params" and problem.code == "wrong-type":
        if extends := layered.data.get("extends"):
            known = [key for key, body in layered.data["params"].items() if isinstance(body, Mapping)]
            what = f"{show(place[1])} is no parameter of {extends}{nearest(str(place[1]), known)}"
            return layered.found(place, "unknown-param", what, at_key=True)
        remedy = "declare it: {type: string, default: VALUE}; a plain value is for a contract that extends another one"
        return layered.found(place, problem.code, problem.what, remedy)
    said = f"{place}: {problem.what}"
    remedy = next((do for pattern, do in table("contract/what_to_do").items() if re.search(pattern, said)), "")
    return layered.found(place, problem.code, problem.what, remedy, at_key=problem.at_key)


def _subject(layered: Layered, name: str, body: Mapping[str, Any]) -> Iterator[Found]:
    path = ("subjects", name)
    for key in ("path", "for_each"):
        if key in body and body.get("kind") in model.EXECUTED:
            what = f"a {body['kind']} runs only when the person at the keyboard names it"
            yield layered.found((*path, key), "executed-path", what, f"bind it with --subject {name}=…", at_key=True)
        elif str(body.get(key, "")).startswith(("/", "~")):
            what = f"{show(body[key])} is not relative to this file"
            yield layered.found((*path, key), "absolute-path", what, f"bind it with --subject {name}=PATH")
    if body.get("path") and body.get("for_each"):
        what = f"{show(name)} has both path and for_each"
        yield layered.found((*path, "for_each"), "path-and-glob", what, "keep one of the two", at_key=True)


def _gate(layered: Layered, path: Path, gate: Mapping[str, Any], subjects: Mapping[str, Any]) -> Iterator[Found]:
    named = gate.get("kind")
    if not isinstance(named, str):
        return
    if (kind := KINDS.get(named)) is None:
        what = f"there is no gate kind {show(named)}{nearest(named, KINDS)}"
        remedy = "" if closest(named, list(KINDS)) else "where another package brings it, install that package"
        yield layered.found((*path, "kind"), "unknown-kind", what, remedy)
        return
    yield from _roles(layered, path, kind, gate, subjects)
    yield from _limits(layered, path, kind, gate)
    ended = _mapping(gate, "when").get(ENDED, ENDED)
    # A slip would switch the gate off.
    if ended not in ENDS and next(iter(kind.roles.values())) is model.SubjectKind.RUN:
        what = f"{show(ended)} is none of {', '.join(ENDS)}{nearest(str(ended), ENDS)}"
        yield layered.found((*path, "when", ENDED), "unknown-choice", what)
    due, place = _mapping(gate, "due"), (*path, "due")
    if due and model.SubjectKind.RUN not in kind.roles.values():
        what = f"{kind.name} judges no run, and nothing of it comes later"
        yield layered.found(place, "needless-due", what, "delete due", at_key=True)
    elif len(due) > 1:
        yield layered.found(place, "needless-due", "it names a step and a time", "keep one of the two", at_key=True)
    if gate.get("requires") and not any(role in model.EXECUTED for role in kind.roles.values()):
        what = f"{kind.name} judges what is recorded, on any host"
        yield layered.found((*path, "requires"), "requires-on-record", what, "delete requires", at_key=True)
    if is_timed(kind) and not (gate.get("where") or gate.get("when")):
        what = "a time is measured on whatever shape the run had"
        remedy = "say the shape that the budget is for, such as where: {tokens_per_step: 2048}"
        yield layered.found(path, "time-without-where", what, remedy, warning=True)


def is_timed(kind: Kind[Any]) -> bool:
    """Return whether a kind judges times of a record, which say nothing without the shape of the run."""
    executed = any(role in model.EXECUTED for role in kind.roles.values())
    return not executed and any(item.doc.unit in TIMES for item in fields(kind.limits))


def _roles(
    layered: Layered, gate_path: Path, kind: Kind[Any], gate: Mapping[str, Any], subjects: Mapping[str, Any]
) -> Iterator[Found]:
    path, roles, filled = (*gate_path, "subjects"), _mapping(gate, "subjects"), kind.filled(_mapping(gate, "with"))
    free = [role for role in filled if role not in roles]
    for role, subject in roles.items():
        needed, place = kind.roles.get(role), (*path, role)
        given = _mapping(subjects, str(subject)).get("kind")
        fits = given == needed or (given == model.SubjectKind.TRACE and role in kind.recordable)
        if needed is None:
            what = f"{kind.name} has no role {show(role)}{nearest(role, free or kind.roles)}"
            yield layered.found(place, "unknown-role", what, at_key=True)
        elif role not in (*filled, *kind.optional_roles):
            what = f"nothing that this gate limits is of the role {show(role)}"
            yield layered.found(place, "idle-role", what, "delete it, or say what is relative to it", at_key=True)
        elif isinstance(subject, str) and subject not in subjects:
            what = f"there is no subject {show(subject)}{nearest(subject, subjects)}"
            remedy = "" if subjects else f"declare it in the contract: subjects: {{{subject}: {{kind: {needed}}}}}"
            yield layered.found(place, "unknown-subject", what, remedy)
        elif isinstance(subject, str) and given in tuple(model.SubjectKind) and not fits:
            what = f"{show(subject)} is a {given}, the role {role!r} takes a {needed}"
            remedy = "a trace has no code to run in float64; bind the model here" if kind.recordable else ""
            yield layered.found(place, "subject-kind", what, remedy if given == model.SubjectKind.TRACE else "")
    if roles.keys() <= kind.roles.keys():  # else the unknown one is probably the one that is missing
        for role in free:
            what = f"nothing fills the role {show(role)} of {kind.name}"
            remedy = f"add {role}: NAME, for a subject of kind {kind.roles[role]}"
            yield layered.found(path, "missing-role", what, remedy)


def _limits(layered: Layered, path: Path, kind: Kind[Any], gate: Mapping[str, Any]) -> Iterator[Found]:
    values: list[Any] = []
    for key, cls in (("with", kind.limits), ("measure", kind.measure)):
        try:
            values.append(read(cls, gate.get(key, {})))
        except LimitsError as error:
            yield from (structural(layered, problem, (*path, key)) for problem in error.problems)
    if len(values) == 2:
        for what in kind.check(*values):
            yield layered.found((*path, "with"), "inconsistent-limits", what)


def _doubled(layered: Layered, gates: Gates) -> Iterator[Found]:
    first: dict[str, Found] = {}
    for path, gate in gates:
        if isinstance(name := gate.get("id"), str):
            here = layered.found((*path, "id"), "doubled-gate", "")
            if (before := first.setdefault(name.casefold(), here)) is not here:
                what = f"the gate {show(name)} is there twice, first in line {before.line}"
                yield layered.found((*path, "id"), "doubled-gate", what, "give every gate an id of its own")


def _dependencies(layered: Layered, gates: Gates) -> Iterator[Found]:
    needs = {str(gate.get("id")): [str(name) for name in _list(gate, "depends_on")] for _, gate in gates}
    for path, gate in gates:
        for index, name in enumerate(_list(gate, "depends_on")):
            place = (*path, "depends_on", index)
            if name not in needs:
                yield layered.found(place, "unknown-gate", f"there is no gate {show(name)}{nearest(str(name), needs)}")
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        members: list[str] = error.args[1][:0:-1]
        first = members.index(min(members, key=list(needs).index))
        circle = [*members[first:], *members[: first + 1]]
        path = next(path for path, gate in gates if str(gate.get("id")) == circle[0])
        what = f"{' needs '.join(map(show, circle[:SHOWN]))}{' …' if len(circle) > SHOWN else ''}: a circle"
        yield layered.found((*path, "depends_on"), "circular-gate", what, "delete one of the dependencies", at_key=True)


def _mapping(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return value if isinstance(value := data.get(key), Mapping) else {}


def _list(data: Mapping[str, Any], key: str) -> Sequence[Any]:
    return value if isinstance(value := data.get(key), list) else ()


# --- Against the contract that it extends -----------------------------------------------------------------------------


def freed(base: Layered, child: Layered) -> Iterator[Found]:
    """Find the parameters that are free to be chosen in a contract, and are not in the one that it extends."""
    declared = _mapping(base.data, "params")
    for name in (name for name, body in _mapping(child.data, "params").items() if body.get("free")):
        if name in declared and not declared[name].get("free"):
            what, remedy = f"the parameter {name} is free, and was not", "delete free"
            yield child.found(("params", name, "free"), "loosened", what, remedy)


def loosenings(base: model.Contract, child: model.Contract, layered: Layered) -> Iterator[Found]:
    """Find the gates that are looser than in the base: an error without `relax:`; and reasons given for nothing."""
    before = {gate.id: gate for gate in base.gates}
    extends = str(layered.data.get("extends", ""))
    folder = "" if extends.startswith("builtin:") else posixpath.dirname(extends)
    for index, gate in enumerate(child.gates):
        path = ("gates", index)
        old = before.get(gate.id)
        found: dict[Path, str] = {}
        if old is not None:
            found = {(*path, *place): what for place, what in looser(old, gate)}
            for name in {*gate.subjects.values()} & base.subjects.keys() & child.subjects.keys():
                found |= dict(_elsewhere(name, base.subjects[name], child.subjects[name], folder))
        relax = layered.data["gates"][index].get("relax")
        if relax and not found:
            what = f"{gate.id} is no looser than in what it extends"
            yield layered.found((*path, "relax"), "needless-relax", what, "delete relax", at_key=True, warning=True)
        elif not relax:
            for place, what in found.items():
                remedy = "keep the tighter value, or add `relax: REASON` to the gate"
                yield layered.found(place, "loosened", f"{gate.id}: {what}", remedy)


def _elsewhere(name: str, old: model.SubjectDecl, new: model.SubjectDecl, folder: str) -> Iterator[tuple[Path, str]]:
    """Yield what makes a gate look at other columns or files; a first path only spares the person a binding."""
    for key in ("columns", "lines"):
        if (before := getattr(old, key)) != (after := getattr(new, key)):
            yield ("subjects", name, key), f"{key} of {name} were {_shown(before)}, are {_shown(after)}"
    was, now = ({"path": one.path, "for_each": one.for_each} for one in (old, new))
    was = {key: posixpath.normpath(posixpath.join(folder, path)) for key, path in was.items() if path}
    now = {key: posixpath.normpath(path) for key, path in now.items() if path}
    if was and was != now:
        yield ("subjects", name, next(iter(now), "path")), f"{name} was {_shown(was)}, is {_shown(now)}"


def looser(old: model.GateDecl, new: model.GateDecl) -> Iterator[tuple[tuple[str, ...], str]]:
    """List what is not known to be as tight as before: where it is written, and what changed."""
    if old.kind != new.kind:
        yield ("kind",), f"was {old.kind}, is {new.kind}"
        return
    limits = KINDS[new.kind].limits
    for key in loosened(read(limits, old.limits), read(limits, new.limits)):
        yield ("with", key), f"{key} was {_shown(old.limits[key])}, is {_shown(new.limits[key])}"
    for section in ("subjects", "measure", "when", "where", "requires"):
        was, now = getattr(old, section), getattr(new, section)
        for key in now:
            if key in was and was[key] != now[key]:
                yield (section, key), f"{section} {key} was {_shown(was[key])}, is {_shown(now[key])}"
            # Of `where:` only what lets through what would be BLOCKED without it; any other only narrows.
            elif key not in was and (section != "where" or (key in ACCEPTED and (key, now[key]) != (ENDED, ENDED))):
                yield (section, key), f"{section} {key} is new"
    if old.severity is model.Severity.REQUIRED and new.severity is not model.Severity.REQUIRED:
        yield ("severity",), f"was {old.severity}, is {new.severity}"
    if (new.max_age_days or NO_AGE) > (old.max_age_days or NO_AGE):
        age = "unlimited" if new.max_age_days is None else f"{new.max_age_days:g} days"
        yield ("max_age",), f"was {old.max_age_days:g} days, is {age}"
    for key in ("stale_on", "binds", "depends_on"):
        was, now = getattr(old, key), getattr(new, key)
        if not {*was} <= {*now}:
            yield (key,), f"{key} was {_shown(was)}, is {_shown(now)}"


def loosened(old: Any, new: Any) -> tuple[str, ...]:
    """List the keys whose new value is not known to be as tight as the old one; both are of one limits class."""
    pairs = ((item, getattr(old, item.name), getattr(new, item.name)) for item in fields(type(old)))
    return tuple(item.key for item, before, after in pairs if not _as_tight(item.doc, before, after))


def _as_tight(doc: Doc, old: Any, new: Any) -> bool:
    if old == new or (old is None and doc.tight):  # a limit where there was none
        return True
    if new is None or not doc.tight:
        return False
    if doc.choices:
        old, new = doc.choices.index(old), doc.choices.index(new)
    elif isinstance(old, tuple):
        return all(item in new for item in old) if doc.tight == "up" else all(item in old for item in new)
    return bool(new >= old if doc.tight == "up" else new <= old)


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
