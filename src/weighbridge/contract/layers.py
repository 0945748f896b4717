"""A contract's data laid over that of the contract that it extends; every part still knows where it is written."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from weighbridge.contract.problems import Found
from weighbridge.contract.strict_yaml import Document, Path

Written: TypeAlias = tuple[Document, Path]
OWN: Final = ("weighbridge", "id", "version", "extends")  # never taken over from the contract that is extended


@dataclass(frozen=True, slots=True)
class Layered:
    """Plain data of one or more documents; `written` maps a path to the document and path that it comes from."""

    data: Any
    written: Mapping[Path, Written]

    def source(self, path: Path) -> Written:
        """Return where the part at a path is written."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.written:
                document, start = self.written[path[:length]]
                return document, (*start, *path[length:])
        raise KeyError(path)

    def found(
        self, path: Path, code: str, what: str, remedy: str = "", *, at_key: bool = False, warning: bool = False
    ) -> Found:
        """Return a problem at the place where a part is written."""
        document, written = self.source(path)
        line, column = document.position(written, at_key=at_key)
        told = {"code": code, "what": what, "remedy": remedy}
        return Found(file=document.where, line=line, column=column, warning=warning, **told)


def single(document: Document) -> Layered:
    """Return one document as it is."""
    return Layered(document.data, {(): (document, ())})


def moved(base: Layered, folder: str) -> Layered:
    """Return a contract with its paths made relative to the folder of the contract that extends it."""
    subjects = base.data.get("subjects")
    if not folder or not isinstance(subjects, Mapping):
        return base
    there = dict(subjects)
    for name, body in subjects.items():
        inside = body if isinstance(body, Mapping) else {}
        paths = {key: inside[key] for key in ("path", "for_each") if isinstance(inside.get(key), str)}
        if paths:
            there[name] = {**body, **{key: posixpath.join(folder, path) for key, path in paths.items()}}
    return Layered({**base.data, "subjects": there}, base.written)


def merge(base: Layered, child: Layered) -> Layered:
    """Lay a contract over the one that it extends: mappings by key, gates by id, all else replaced."""
    under = {key: _unrelaxed(value) if key == "gates" else value for key, value in base.data.items() if key not in OWN}
    over = _Over(base, child)
    return Layered(over.mapping(under, (), child.data, (), ()), over.written)


def _unrelaxed(gates: Any) -> Any:
    """Drop the base's own reasons for being loose: they excuse nothing further down."""
    if not isinstance(gates, list):
        return gates
    return [{key: gate[key] for key in gate if key != "relax"} if isinstance(gate, dict) else gate for gate in gates]


class _Over:
    """One merge in progress: what is written where in its result."""

    def __init__(self, base: Layered, child: Layered) -> None:
        self.base = base
        self.child = child
        self.written: dict[Path, Written] = {}

    def mapping(self, under: Any, at_base: Path, over: Any, at_child: Path, path: Path) -> Any:
        """Merge two mappings by key, or take the child's value whole."""
        if not (isinstance(under, dict) and isinstance(over, dict)):
            return self.take(self.child, over, at_child, path)
        self.written[path] = self.child.source(at_child)
        merged = {}
        for key in dict.fromkeys((*under, *over)):
            place = (*path, key)
            if key not in over:
                merged[key] = self.take(self.base, under[key], (*at_base, key), place)
            elif key not in under:
                merged[key] = self.take(self.child, over[key], (*at_child, key), place)
            elif place == ("gates",):
                merged[key] = self.gates(under[key], over[key])
            else:
                merged[key] = self.mapping(under[key], (*at_base, key), over[key], (*at_child, key), place)
        return merged

    def gates(self, under: Any, over: Any) -> Any:
        """Merge two lists of gates by id: those of the base in its order, then what is new."""
        if not (isinstance(under, list) and isinstance(over, list)):
            return self.take(self.child, over, ("gates",), ("gates",))
        self.written["gates",] = self.child.source(("gates",))
        mine = {name: index for index, gate in reversed(list(enumerate(over))) if (name := _id(gate)) is not None}
        merged: list[Any] = []
        for index, gate in enumerate(under):
            at_base, path = ("gates", index), ("gates", len(merged))
            own = mine.get(_id(gate) or "")
            if own is None:
                merged.append(self.take(self.base, gate, at_base, path))
            else:
                merged.append(self.mapping(gate, at_base, over[own], ("gates", own), path))
        shared = {mine[name] for gate in under if (name := _id(gate)) in mine}
        for index, gate in enumerate(over):
            if index not in shared:
                merged.append(self.take(self.child, gate, ("gates", index), ("gates", len(merged))))
        return merged

    def take(self, layer: Layered, value: Any, start: Path, path: Path) -> Any:
        """Return a part whole, and note where all of it is written."""
        self.written[path] = layer.source(start)
        for known, written in layer.written.items():
            if known[: len(start)] == start:
                self.written[(*path, *known[len(start) :])] = written
        return value


def _id(gate: Any) -> str | None:
    name = gate.get("id") if isinstance(gate, dict) else None
    return name if isinstance(name, str) else None
