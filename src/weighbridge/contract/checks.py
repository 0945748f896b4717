"""What the words of a contract mean together: kinds, roles, references, and limits that contradict each other.

Looks at plain data, so that a slip in one place hides none in another.
"""

from __future__ import annotations

import graphlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from weighbridge.clauses.kind import Kind
from weighbridge.contract.layers import Layered
from weighbridge.contract.problems import Found
from weighbridge.contract.strict_yaml import Path
from weighbridge.gates import KINDS
from weighbridge.limits import LimitsError, Problem, nearest, read, show
from weighbridge.model import SubjectKind

EXECUTED: Final = (SubjectKind.COMMAND, SubjectKind.MODEL)
TIMED: Final = ("wall-time-budget",)
SHOWN: Final = 8
TYPED_STATUS: Final = ("status", "verdict", "discharge_status")


def lint(layered: Layered) -> Iterator[Found]:
    """Find what is wrong, or worth a warning, beyond the structure of the document."""
    subjects = _mapping(layered.data, "subjects")
    for name, body in subjects.items():
        yield from _subject(layered, name, body)
    gates = [
        (("gates", index), gate) for index, gate in enumerate(_list(layered.data, "gates")) if isinstance(gate, Mapping)
    ]
    for path, gate in gates:
        yield from _gate(layered, path, gate, subjects)
    yield from _doubled(layered, gates)
    yield from _dependencies(layered, gates)
    yield from _unused(layered, subjects, gates)


def structural(layered: Layered, problem: Problem, path: Path = ()) -> Found:
    """Place a problem that the typed reader found, with what helps where that is known."""
    place = (*path, *problem.path)
    if problem.code == "unknown-key" and place[-1] in TYPED_STATUS:
        what = f"a status is never written by hand: {place[-1]!r} is computed from the ledger"
        return layered.found(place, "typed-status", what, "delete the key; see `weighbridge status`", at_key=True)
    unquoted = place == ("version",) and problem.code == "wrong-type"
    remedy = 'quote it, and give three parts: "1.10.0"' if unquoted else ""
    return layered.found(place, problem.code, problem.what, remedy, at_key=problem.at_key)


# --- Subjects ---------------------------------------------------------------------------------------------------------


def _subject(layered: Layered, name: str, body: object) -> Iterator[Found]:
    if not isinstance(body, Mapping):
        return
    path = ("subjects", name)
    for key in ("path", "for_each"):
        if key in body and body.get("kind") in EXECUTED:
            what = f"a {body['kind']} runs only when the person at the keyboard names it"
            yield layered.found((*path, key), "executed-path", what, f"bind it with --subject {name}=…", at_key=True)
        elif str(body.get(key, "")).startswith(("/", "~")):
            what = f"{show(body[key])} is not relative to this file"
            yield layered.found((*path, key), "absolute-path", what, f"bind it with --subject {name}=PATH")
    if body.get("path") and body.get("for_each"):
        what = f"{show(name)} has both path and for_each"
        yield layered.found((*path, "for_each"), "path-and-glob", what, "keep one of the two", at_key=True)


def _unused(
    layered: Layered, subjects: Mapping[str, Any], gates: Sequence[tuple[Path, Mapping[str, Any]]]
) -> Iterator[Found]:
    used = {subject for _, gate in gates for subject in map(str, _mapping(gate, "subjects").values())}
    for name in subjects:
        if name not in used:
            what = f"no gate looks at the subject {show(name)}"
            yield layered.found(
                ("subjects", name), "unused-subject", what, "delete it, or use it", at_key=True, warning=True
            )


# --- One gate ---------------------------------------------------------------------------------------------------------


def _gate(layered: Layered, path: Path, gate: Mapping[str, Any], subjects: Mapping[str, Any]) -> Iterator[Found]:
    named = gate.get("kind")
    if not isinstance(named, str):
        return
    kind = KINDS.get(named)
    if kind is None:
        what = f"there is no gate kind {show(named)}{nearest(named, KINDS)}"
        yield layered.found((*path, "kind"), "unknown-kind", what)
        return
    yield from _roles(layered, (*path, "subjects"), kind, _mapping(gate, "subjects"), subjects)
    yield from _limits(layered, path, kind, gate)
    if gate.get("requires") and not any(role in EXECUTED for role in kind.roles.values()):
        what = f"{kind.name} judges what is recorded, on any host"
        yield layered.found((*path, "requires"), "requires-on-record", what, "delete requires", at_key=True)
    if kind.name in TIMED and not gate.get("where"):
        what = "a time is measured on whatever shape the run had"
        remedy = "say the shape that the budget is for, such as where: {tokens_per_step: 2048}"
        yield layered.found(path, "time-without-where", what, remedy, warning=True)


def _roles(
    layered: Layered, path: Path, kind: Kind[Any], roles: Mapping[str, Any], subjects: Mapping[str, Any]
) -> Iterator[Found]:
    free = [role for role in kind.roles if role not in roles]
    for role, subject in roles.items():
        if role not in kind.roles:
            what = f"{kind.name} has no role {show(role)}{nearest(role, free or kind.roles)}"
            yield layered.found((*path, role), "unknown-role", what, at_key=True)
        else:
            yield from _filled(layered, (*path, role), kind.roles[role], subject, subjects)
    if roles.keys() <= kind.roles.keys():  # else the unknown one is probably the one that is missing
        for role in free:
            what = f"nothing fills the role {show(role)} of {kind.name}"
            yield layered.found(
                path, "missing-role", what, f"add {role}: NAME, for a subject of kind {kind.roles[role]}"
            )


def _filled(
    layered: Layered, path: Path, needed: SubjectKind, subject: object, subjects: Mapping[str, Any]
) -> Iterator[Found]:
    if not isinstance(subject, str):
        return
    if subject not in subjects:
        what = f"there is no subject {show(subject)}{nearest(subject, subjects)}"
        yield layered.found(path, "unknown-subject", what)
        return
    given = _mapping(subjects, subject).get("kind")
    if given in tuple(SubjectKind) and given != needed:
        what = f"{show(subject)} is a {given}, the role {path[-1]!r} takes a {needed}"
        yield layered.found(path, "subject-kind", what)


def _limits(layered: Layered, path: Path, kind: Kind[Any], gate: Mapping[str, Any]) -> Iterator[Found]:
    values: list[Any] = []
    for key, cls in (("with", kind.limits), ("measure", kind.measure)):
        place = (*path, key)
        try:
            values.append(read(cls, gate.get(key, {})))
        except LimitsError as error:
            yield from (structural(layered, problem, place) for problem in error.problems)
    if len(values) == 2:
        for what in kind.check(*values):
            yield layered.found((*path, "with"), "inconsistent-limits", what)


# --- Gates among each other -------------------------------------------------------------------------------------------


def _doubled(layered: Layered, gates: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[Found]:
    first: dict[str, Found] = {}
    for path, gate in gates:
        name = gate.get("id")
        if isinstance(name, str):
            here = layered.found((*path, "id"), "doubled-gate", "")
            before = first.setdefault(name.casefold(), here)
            if before is not here:
                what = f"the gate {show(name)} is there twice, first in line {before.line}"
                yield layered.found((*path, "id"), "doubled-gate", what, "give every gate an id of its own")


def _dependencies(layered: Layered, gates: Sequence[tuple[Path, Mapping[str, Any]]]) -> Iterator[Found]:
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


def _mapping(data: object, key: str) -> Mapping[str, Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def _list(data: object, key: str) -> Sequence[Any]:
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, list) else ()
