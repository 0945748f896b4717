"""A contract's data with the place of every part: what is found wrong there, and one contract over another."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from weighbridge.contract.strict_yaml import Document, Path, collected
from weighbridge.core import ContractError, dataclass, replace

MOST: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Found:
    """One problem, or with `warning` one remark that stops nothing, at its place; lines and columns count from 1."""

    file: str
    line: int
    column: int
    code: str
    what: str
    remedy: str = ""
    warning: bool = False

    @property
    def error(self) -> ContractError:
        """Return it as an error that can be raised."""
        return ContractError(self.code, self.what, where=f"{self.file}:{self.line}:{self.column}", remedy=self.remedy)

    def __str__(self) -> str:
        text = str(self.error)
        return text.replace(f": {self.code} ", f": warning: {self.code} ", 1) if self.warning else text


def from_errors(errors: Iterable[ContractError]) -> tuple[Found, ...]:
    """Return problems from errors whose `where` ends in line and column."""
    problems = []
    for one in errors:
        at = re.fullmatch(r"(.*):(\d+):(\d+)", one.where, re.DOTALL)
        file, line, column = (at[1], int(at[2]), int(at[3])) if at else (one.where, 1, 1)
        problems.append(Found(file=file, line=line, column=column, code=one.code, what=one.what, remedy=one.remedy))
    return tuple(problems)


def first_errors(problems: Iterable[Found]) -> Iterator[Found]:
    """Yield problems until there are more errors than are shown."""
    errors = 0
    for problem in problems:
        yield problem
        errors += not problem.warning
        if errors > MOST:
            return


def raise_errors(problems: Iterable[Found]) -> None:
    """Raise all that are no warnings as one ContractError: the first hundred, sorted by place."""
    errors = sorted({problem for problem in problems if not problem.warning})
    if len(errors) > MOST:
        errors[MOST - 1 :] = [replace(errors[MOST - 1], remedy="there is more; only the first hundred are listed")]
    if errors:
        raise collected(tuple(problem.error for problem in errors))


Written: TypeAlias = tuple[Document, Path]
OWN: Final = ("weighbridge", "id", "version", "extends")  # never taken over from the contract that is extended


@dataclass(frozen=True, slots=True)
class Layered:
    """Plain data of one or more documents; `written` maps a path to the document and path that it comes from."""

    data: Any
    written: Mapping[Path, Written]

    def source(self, path: Path) -> Written:
        """Return where the part at a path is written."""
        length = next(length for length in range(len(path), -1, -1) if path[:length] in self.written)
        document, start = self.written[path[:length]]
        return document, (*start, *path[length:])

    def found(
        self, path: Path, code: str, what: str, remedy: str = "", *, at_key: bool = False, warning: bool = False
    ) -> Found:
        """Return a problem at the place where a part is written."""
        document, written = self.source(path)
        line, column = document.position(written, at_key=at_key)
        said = {"code": code, "what": what, "remedy": remedy}
        return Found(file=document.where, line=line, column=column, warning=warning, **said)


def moved(base: Layered, folder: str) -> Layered:
    """Return a contract that was read without a problem with its paths made relative to a folder that extends it."""
    if not folder or "subjects" not in base.data:
        return base
    there = {
        name: {**body, **{key: posixpath.join(folder, body[key]) for key in ("path", "for_each") if key in body}}
        for name, body in base.data["subjects"].items()
    }
    return Layered({**base.data, "subjects": there}, base.written)


def merge(base: Layered, child: Layered) -> Layered:
    """Put a contract over what it extends: mappings by key, gates by id, plain values as a parameter's new default."""
    under, over = {key: value for key, value in base.data.items() if key not in OWN}, _Over(base, child)
    if "gates" in under:  # the base's own reasons for being loose excuse nothing further down
        under["gates"] = [{key: gate[key] for key in gate if key != "relax"} for gate in under["gates"]]
    return Layered(over.mapping(under, child.data, (), ()), over.written)


class _Over:
    """One merge in progress: what is written where in its result, in which every part of the base keeps its path."""

    def __init__(self, base: Layered, child: Layered) -> None:
        self.base, self.child = base, child
        self.written: dict[Path, Written] = {}

    def mapping(self, under: Any, over: Any, at_child: Path, path: Path) -> Any:
        """Merge two mappings by key, or take the child's value whole."""
        if not (isinstance(under, dict) and isinstance(over, dict)):
            return self.take(self.child, over, at_child, path)
        self.written[path] = self.child.source(at_child)
        merged = {}
        for key in dict.fromkeys((*under, *over)):
            place, there = (*path, key), (*at_child, key)
            if key not in over:
                merged[key] = self.take(self.base, under[key], place, place)
            elif place == ("gates",):
                merged[key] = self.gates(under.get(key), over[key])
            elif path == ("params",) and key in under and not isinstance(over[key], dict):
                merged[key] = {**self.take(self.base, under[key], place, place), "default": over[key]}
                self.written[*place, "default"] = self.child.source(there)
            else:
                merged[key] = self.mapping(under.get(key), over[key], there, place)
        return merged

    def gates(self, under: Any, over: Any) -> Any:
        """Merge two lists of gates by id: those of the base in its order, then what is new."""
        if not (isinstance(under, list) and isinstance(over, list)):
            return self.take(self.child, over, ("gates",), ("gates",))
        self.written["gates",] = self.child.source(("gates",))
        mine = {name: index for index, gate in reversed(list(enumerate(over))) if (name := _id(gate)) is not None}
        merged: list[Any] = []
        for index, gate in enumerate(under):
            path, own = ("gates", index), mine.get(_id(gate) or "")
            if own is None:
                merged.append(self.take(self.base, gate, path, path))
            else:
                merged.append(self.mapping(gate, over[own], ("gates", own), path))
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
