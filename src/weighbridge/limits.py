"""Typed limits: one frozen dataclass gives the reader, the JSON Schema and the direction in which a limit tightens.

A field is `name: Annotated[type, Doc(...)]`. Types: bool, int, float, str, an enum, another such dataclass,
`tuple[T, ...]`, `tuple[T, T]`, `Mapping[str, T]`, `T | None`, a union of scalars, and object for anything at all. A
field without a default is required.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import functools
import json
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

Path = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """What a field means and what it may hold.

    `tight` is the direction in which it tightens, "up" or "down": of a number its size, of a list what it holds, of
    choices their order, of a switch true over false. `form` says in words what `pattern` demands.
    """

    text: str = dataclasses.field(default="", kw_only=False)
    unit: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    pattern: str | None = None
    form: str = ""
    keys: str | None = None  # the pattern of a mapping's keys
    choices: tuple[str, ...] = ()
    min_items: int = 0
    tight: str = ""
    name: str = ""  # the key in YAML where it is a Python keyword


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a value: a stable code, what was found, where, and the nearest right word."""

    code: str
    what: str
    path: Path
    at_key: bool = False


class LimitsError(Exception):
    """All problems of one value."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(f"{'.'.join(map(str, p.path))}: {p.what}" for p in self.problems))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a limits class, as read from its annotation."""

    name: str
    key: str
    type: Any
    doc: Doc
    required: bool
    default: Any


@functools.cache
def fields(cls: type) -> tuple[Field, ...]:
    """List the fields of a limits class, in order."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_field(item, hints[item.name]) for item in dataclasses.fields(cls))


def _field(item: dataclasses.Field[Any], hint: Any) -> Field:
    doc = Doc()
    if typing.get_origin(hint) is Annotated:
        hint, doc = typing.get_args(hint)[:2]
    default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
    return Field(item.name, doc.name or item.name, hint, doc, default is dataclasses.MISSING, default)


# --- Reading ----------------------------------------------------------------------------------------------------------


def read(cls: type[T], data: object, path: Path = ()) -> T:
    """Build a limits value from plain data.

    Raises:
        LimitsError: with every problem found: unknown or missing keys, wrong types, values out of bounds.
    """
    problems: list[Problem] = []
    value = _read_class(cls, data, path, problems)
    if problems:
        raise LimitsError(problems)
    return typing.cast(T, value)


def _read_class(cls: type, data: object, path: Path, problems: list[Problem]) -> object:
    if not isinstance(data, Mapping):
        problems.append(Problem("wrong-type", f"{show(data)} is not a mapping", path))
        return None
    known = {item.key: item for item in fields(cls)}
    free = [key for key in known if key not in data]
    near = [_unknown(key, free, known, path, problems) for key in data if key not in known]
    values = {}
    for item in known.values():
        if item.key in data:
            values[item.name] = _read(item.type, item.doc, data[item.key], (*path, item.key), problems)
        elif item.required and item.key not in near:
            problems.append(Problem("missing-key", f"missing key {item.key!r}", path))
    return None if problems else cls(**values)


def _unknown(key: object, free: Sequence[str], known: Mapping[str, Field], path: Path, problems: list[Problem]) -> str:
    """Note an unknown key, and give the missing one that it seems to mean, so that one slip is told once."""
    near = _close(str(key), free) if len(problems) < SUGGESTED else []
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}" if known else ""
    problems.append(Problem("unknown-key", f"unknown key {show(key)}{hint}", (*path, str(key)), at_key=True))
    return near[0] if near else ""


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """Suggest the nearest known word, as `; did you mean 'x'?`, or list what is known when none is near."""
    candidates = list(known)
    near = _close(word, candidates)
    if near:
        return f"; did you mean {near[0]!r}?"
    if len(candidates) > LISTED:
        return ""
    return f"; known: {', '.join(sorted(candidates))}" if candidates else ""


def _close(word: str, candidates: Sequence[str]) -> list[str]:
    """Find the nearest word, where it can be found quickly: what is read may be hostile."""
    if len(word) > SHOWN or len(candidates) > LISTED:
        return []
    return difflib.get_close_matches(word, candidates, n=1)


def _read(kind: Any, doc: Doc, data: object, path: Path, problems: list[Problem]) -> object:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _read(args[0], args[1], data, path, problems)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, doc, data, path, problems)
    if origin is tuple:
        return _read_tuple(args, doc, data, path, problems)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(args[1], doc, data, path, problems)
    if dataclasses.is_dataclass(kind):
        return _read_class(typing.cast(type, kind), data, path, problems)
    return _read_scalar(kind, doc, data, path, problems)


def _read_union(args: tuple[Any, ...], doc: Doc, data: object, path: Path, problems: list[Problem]) -> object:
    kinds = [kind for kind in args if kind is not type(None)]
    if data is None and len(kinds) < len(args):
        return None
    if len(kinds) == 1:
        return _read(kinds[0], doc, data, path, problems)
    if int in kinds and float not in kinds:
        data = _as_number(int, data)
    if type(data) not in kinds:
        named = ", ".join(_NAMES[kind] for kind in kinds)
        problems.append(Problem("wrong-type", f"{show(data)} is none of: {named}", path))
        return None
    return _read_scalar(type(data), doc, data, path, problems)


def _read_tuple(args: tuple[Any, ...], doc: Doc, data: object, path: Path, problems: list[Problem]) -> object:
    if not isinstance(data, Sequence) or isinstance(data, str):
        problems.append(Problem("wrong-type", f"{show(data)} is not a list", path))
        return ()
    if args[-1] is not Ellipsis and len(data) != len(args):
        problems.append(Problem("wrong-length", f"a list of {len(data)}, not of {len(args)}", path))
        return ()
    if len(data) < doc.min_items:
        problems.append(Problem("wrong-length", f"a list of {len(data)}, at least {doc.min_items} needed", path))
    return tuple(_read(args[0], doc, item, (*path, index), problems) for index, item in enumerate(data))


def _read_mapping(kind: Any, doc: Doc, data: object, path: Path, problems: list[Problem]) -> object:
    if not isinstance(data, Mapping):
        problems.append(Problem("wrong-type", f"{show(data)} is not a mapping", path))
        return {}
    for key in data:
        if doc.keys and not re.fullmatch(doc.keys, str(key)):
            what = f"the name {show(key)} is not {doc.form or f'of the form {doc.keys}'}"
            problems.append(Problem("bad-form", what, (*path, str(key)), at_key=True))
    return {str(key): _read(kind, doc, item, (*path, str(key)), problems) for key, item in data.items()}


def _read_scalar(kind: Any, doc: Doc, data: object, path: Path, problems: list[Problem]) -> object:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _read_choice([str(member.value) for member in kind], data, path, problems, kind)
    data = _as_number(kind, data)
    if kind is not object and (not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool)):
        problems.append(Problem("wrong-type", f"{show(data)} is not {_NAMES[kind]}", path))
        return data
    if doc.choices:
        return _read_choice(doc.choices, data, path, problems, str)
    wrong = _out_of_bounds(doc, data)
    if wrong:
        form = isinstance(data, str)
        problems.append(Problem("bad-form" if form else "out-of-bounds", f"{show(data)} is not {wrong}", path))
    return data


def _as_number(kind: Any, data: object) -> object:
    """Take 30 for a float and 30.0 for a whole number, as JSON Schema does."""
    if kind is float and isinstance(data, int) and not isinstance(data, bool) and abs(data) <= LARGEST:
        return float(data)
    if kind is int and isinstance(data, float) and data.is_integer():
        return int(data)
    return data


def _read_choice(choices: Sequence[str], data: object, path: Path, problems: list[Problem], make: Any) -> object:
    if isinstance(data, str) and data in choices:
        return make(data)
    problems.append(
        Problem("unknown-choice", f"{show(data)} is not one of {', '.join(choices)}{_near(data, choices)}", path)
    )
    return None


def _near(data: object, choices: Sequence[str]) -> str:
    near = _close(str(data), choices)
    return f"; did you mean {near[0]!r}?" if near else ""


def _out_of_bounds(doc: Doc, data: object) -> str:
    if isinstance(data, str):
        fits = not doc.pattern or re.fullmatch(doc.pattern, data)
        return "" if fits else doc.form or f"of the form {doc.pattern}"
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        return ""
    if isinstance(data, float) and not math.isfinite(data):
        return "finite"
    checks = (
        (doc.gt, operator.gt, ">"),
        (doc.ge, operator.ge, "≥"),
        (doc.lt, operator.lt, "<"),
        (doc.le, operator.le, "≤"),
    )
    broken = (f"{sign} {limit:g}" for limit, holds, sign in checks if limit is not None and not holds(data, limit))
    return next(broken, "")


def show(data: object) -> str:
    """Show a value in a message, cut to a readable length."""
    if isinstance(data, str):
        return repr(data if len(data) <= SHOWN else data[: SHOWN - 1] + "…")
    if isinstance(data, Mapping):
        return "a mapping"
    if isinstance(data, Sequence):
        return "a list"
    return json.dumps(data) if data is None or isinstance(data, bool) else repr(data)


SHOWN = 60
LISTED = 100
SUGGESTED = 20
LARGEST = sys.float_info.max
_NAMES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


# --- Schema -----------------------------------------------------------------------------------------------------------


def schema(cls: type) -> dict[str, Any]:
    """Describe a limits class as a JSON Schema (2020-12) object that accepts what `read` accepts."""
    items = fields(cls)
    required = [item.key for item in items if item.required]
    body: dict[str, Any] = {
        "type": "object",
        "properties": {item.key: _described(_schema(item.type, item.doc), item.doc) for item in items},
        "additionalProperties": False,
    }
    return body | ({"required": required} if required else {})


def _described(body: dict[str, Any], doc: Doc) -> dict[str, Any]:
    text = f"{doc.text} [{doc.unit}]" if doc.unit else doc.text
    return body | ({"description": text.strip()} if text.strip() else {})


def _schema(kind: Any, doc: Doc) -> dict[str, Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _described(_schema(args[0], args[1]), args[1])
    if origin in (typing.Union, types.UnionType):
        return _union_schema(args, doc)
    if origin is tuple:
        return _tuple_schema(args, doc)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        names = {"propertyNames": {"pattern": _whole(doc.keys)}} if doc.keys else {}
        return {"type": "object", "additionalProperties": _schema(args[1], doc)} | names
    if dataclasses.is_dataclass(kind):
        return schema(typing.cast(type, kind))
    return _scalar_schema(kind, doc)


def _union_schema(args: tuple[Any, ...], doc: Doc) -> dict[str, Any]:
    kinds = [kind for kind in args if kind is not type(None)]
    null = ["null"] if len(kinds) < len(args) else []
    if len(kinds) > 1:
        return {"type": sorted({_JSON_TYPES[kind] for kind in kinds}) + null, **_bounds_schema(doc)}
    inner = _schema(kinds[0], doc)
    return {"anyOf": [inner, {"type": "null"}]} if null else inner


def _tuple_schema(args: tuple[Any, ...], doc: Doc) -> dict[str, Any]:
    body: dict[str, Any] = {"type": "array", "items": _schema(args[0], doc)}
    if args[-1] is not Ellipsis:
        return body | {"minItems": len(args), "maxItems": len(args)}
    return body | ({"minItems": doc.min_items} if doc.min_items else {})


def _scalar_schema(kind: Any, doc: Doc) -> dict[str, Any]:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [str(member.value) for member in kind]}
    return _bounds_schema(doc) if kind is object else {"type": _JSON_TYPES[kind], **_bounds_schema(doc)}


def _bounds_schema(doc: Doc) -> dict[str, Any]:
    """Describe bounds; each word of JSON Schema binds values of its own type only, as the reader's do."""
    words = (("exclusiveMinimum", doc.gt), ("minimum", doc.ge), ("exclusiveMaximum", doc.lt), ("maximum", doc.le))
    body: dict[str, Any] = {word: limit for word, limit in words if limit is not None}
    body |= {"enum": list(doc.choices)} if doc.choices else {}
    return body | ({"pattern": _whole(doc.pattern)} if doc.pattern else {})


def _whole(pattern: str) -> str:
    """Make a pattern match whole texts only; Python's $ alone lets a line end follow."""
    return rf"^(?:{pattern})$(?!\n)"


_JSON_TYPES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


# --- Plain data and direction -----------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Write a limits value as the plain data that `read` reads, defaults filled in."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.key: plain(getattr(value, item.name)) for item in fields(type(value))}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return str(value.value) if isinstance(value, enum.Enum) else value


def loosened(old: Any, new: Any) -> tuple[str, ...]:
    """List the keys whose new value is not known to be as tight as the old one; both are of one limits class."""
    cls: type = type(old)
    return tuple(
        item.key for item in fields(cls) if not _as_tight(item.doc, getattr(old, item.name), getattr(new, item.name))
    )


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
