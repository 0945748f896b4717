"""Typed limits: one frozen dataclass gives the reader, the JSON Schema and the direction in which a limit tightens.

A field is `name: Annotated[type, Doc(...)]`. Types: bool, int, float, str, an enum, another such dataclass,
`tuple[T, ...]`, `tuple[T, T]`, `Mapping[str, T]`, `T | None`, a union of scalars or of one and such a dataclass, and
object for anything at all. A field without a default is required.
"""

import dataclasses
import enum
import functools
import json
import math
import operator
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

from weighbridge.core.frozen import dataclass
from weighbridge.core.model import LATER
from weighbridge.core.printable import SHOWN, quoted

Path = tuple[str | int, ...]
Omitted = Mapping[type, frozenset[str]]
NOTHING: Omitted = types.MappingProxyType({})
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Doc:
    """What a field means and what it may hold."""

    text: str = dataclasses.field(default="", kw_only=False)
    unit: str = ""
    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None
    pattern: str | None = None
    form: str = ""  # in words what `pattern` or `choices` demand
    keys: str | None = None  # the pattern of a mapping's keys
    choices: tuple[str, ...] = ()
    any_case: bool = False  # choices are read in any letter case; what is kept is the choice as it stands here
    spelled: Callable[[str], str] | None = None  # how a text is kept; a ValueError says what is wrong with one
    min_items: int = 0
    # Where it tightens, "up" or "down": of a number its size, of a list what it holds, of choices their order, of a
    # switch true over false; of what a figure `must` be, it follows.
    tight: str | None = None
    name: str = ""  # the key in YAML where it is a Python keyword
    must: str = ""  # what the figure that this limit bounds must be: "at most", "at least", "below" or "above" it
    moves: Any = None  # how trials move that figure (`weighbridge.clauses.mutations.Moves`)
    only_with: tuple[str, str] | None = None  # the key, and its value, without which this one would be ignored
    typical: Any = None  # of a quantity's field: what examples have where they name no value

    def __post_init__(self) -> None:
        if self.tight is None:
            object.__setattr__(self, "tight", {"at most": "down", "below": "down", "": ""}.get(self.must, "up"))


# Each bound of a number: its name in `Doc`, its sign, when it holds, and its word in JSON Schema.
BOUNDS = (
    ("gt", ">", operator.gt, "exclusiveMinimum"),
    ("ge", "≥", operator.ge, "minimum"),
    ("lt", "<", operator.lt, "exclusiveMaximum"),
    ("le", "≤", operator.le, "maximum"),
)


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
    later: bool


def _fields(cls: Any) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    found = []
    for item in dataclasses.fields(cls):
        hint, doc = hints[item.name], Doc()
        if typing.get_origin(hint) is Annotated:
            hint, doc = typing.get_args(hint)[:2]
        default = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        required, later = default is dataclasses.MISSING, LATER in item.metadata
        found.append(Field(item.name, doc.name or item.name, hint, doc, required, default, later))
    return tuple(found)


fields: Callable[[Any], tuple[Field, ...]] = functools.cache(_fields)  # so typed, any class will do


@dataclass(slots=True)
class _Reading:
    """One value being read; an exact reading converts nothing, fills in nothing and knows no bounds."""

    exact: bool
    omitted: Omitted
    problems: list[Problem] = dataclasses.field(default_factory=list)

    def note(self, code: str, what: str, path: Path, *, at_key: bool = False) -> None:
        self.problems.append(Problem(code, what, path, at_key))


def read(cls: type[T], data: object, path: Path = (), *, exact: bool = False, omitted: Omitted = NOTHING) -> T:
    """Return a value of a dataclass, read from plain data, or raise one LimitsError with every problem found.

    With `exact` every field is demanded as `plain` writes it, but `omitted` and later ones: no default, no conversion.
    """
    reading = _Reading(exact, omitted)
    value = typing.cast(T, _read_class(cls, data, path, reading))
    if reading.problems:
        raise LimitsError(reading.problems)
    return value


def _read_class(cls: type, data: object, path: Path, reading: _Reading) -> object:
    if not isinstance(data, Mapping):
        reading.note("wrong-type", f"{show(data)} is not a mapping", path)
        return None
    left_out = reading.omitted.get(cls, frozenset())
    known = {item.key: item for item in fields(cls) if item.name not in left_out}
    unknown = [key for key in data if key not in known]
    free = [key for key in known if key not in data] if unknown else []
    near = [_unknown(key, free, known, path, reading) for key in unknown]
    values = {}
    for item in known.values():
        if item.key in data:
            values[item.name] = _read(item.type, item.doc, data[item.key], (*path, item.key), reading)
            if item.later and reading.exact and data[item.key] == item.default:  # `plain` would have left it out
                reading.note("unknown-key", f"the key {item.key!r} says nothing", (*path, item.key), at_key=True)
        elif (item.required or (reading.exact and not item.later)) and item.key not in near:
            reading.note("missing-key", f"missing key {item.key!r}", path)
    if not reading.exact:
        given = (one for one in known.values() if values.get(one.name, one.default) != one.default)
        for item, (other, needed) in ((one, one.doc.only_with) for one in given if one.doc.only_with):
            if values.get(other, known[other].default) != needed:
                what = f"{item.key} is ignored without {other}: {needed}"
                reading.note("ignored-key", what, (*path, item.key), at_key=True)
    return None if reading.problems else cls(**values)


def _unknown(key: object, free: Sequence[str], known: Mapping[str, Field], path: Path, reading: _Reading) -> str:
    """Note an unknown key; return the missing one that it seems to mean, so that one slip is reported once."""
    near = closest(str(key), free) if len(reading.problems) < SUGGESTED else []
    hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(sorted(known))}" if known else ""
    reading.note("unknown-key", f"unknown key {show(key)}{hint}", (*path, str(key)), at_key=True)
    return near[0] if near else ""


def nearest(word: str, known: typing.Iterable[str]) -> str:
    """Return the nearest known word as `; did you mean 'x'?`, or a list of what is known when none is near."""
    candidates = list(known)
    if near := closest(word, candidates):
        return f"; did you mean {near[0]!r}?"
    more = f", +{len(candidates) - SUGGESTED} more" if len(candidates) > SUGGESTED else ""
    return f"; known: {', '.join(sorted(candidates)[:SUGGESTED])}{more}" if 0 < len(candidates) <= LISTED else ""


def closest(word: str, candidates: Sequence[str], alike: float = 0.6) -> list[str]:
    """Return the nearest word, where it can be found quickly: what is read may be hostile."""
    if len(word) > SHOWN or len(candidates) > LISTED:
        return []
    import difflib

    return difflib.get_close_matches(word, candidates, n=1, cutoff=alike)


def _read(kind: Any, doc: Doc, data: Any, path: Path, reading: _Reading) -> Any:
    if isinstance(kind, type) and kind in _NAMES:
        return _read_scalar(kind, doc, data, path, reading)  # most of what is read
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _read(args[0], args[1], data, path, reading)
    if origin in (typing.Union, types.UnionType):
        return _read_union(args, doc, data, path, reading)
    if origin is tuple:
        return _read_tuple(args, doc, data, path, reading)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _read_mapping(args[1], doc, data, path, reading)
    if dataclasses.is_dataclass(kind):
        return _read_class(typing.cast(type, kind), data, path, reading)
    return _read_scalar(kind, doc, data, path, reading)


def _read_union(args: tuple[Any, ...], doc: Doc, data: Any, path: Path, reading: _Reading) -> Any:
    """Read `T | None` or a union of scalars; any other union is plain JSON, and anything."""
    kinds = [kind for kind in args if kind is not type(None)]
    if data is None and len(kinds) < len(args):
        return None
    if len(kinds) > 1 and any(map(dataclasses.is_dataclass, kinds)):
        kinds = [kind for kind in kinds if dataclasses.is_dataclass(kind) is isinstance(data, Mapping)]
    if len(kinds) == 1:
        return _read(kinds[0], doc, data, path, reading)
    if not all(kind in _NAMES for kind in kinds):
        return data
    if int in kinds and float not in kinds and not reading.exact:
        data = _as_number(int, data)
    if type(data) not in kinds and not (reading.exact and type(data) is int and float in kinds):
        reading.note("wrong-type", f"{show(data)} is none of: {', '.join(_NAMES[kind] for kind in kinds)}", path)
        return None
    return _read_scalar(type(data), doc, data, path, reading)


def _read_tuple(args: tuple[Any, ...], doc: Doc, data: Any, path: Path, reading: _Reading) -> Any:
    if not isinstance(data, Sequence) or isinstance(data, str):
        reading.note("wrong-type", f"{show(data)} is not a list", path)
        return ()
    endless = args[-1] is Ellipsis
    if not endless and len(data) != len(args):
        reading.note("wrong-length", f"a list of {len(data)}, not of {len(args)}", path)
        return ()
    if len(data) < doc.min_items:
        reading.note("wrong-length", f"a list of {len(data)}, at least {doc.min_items} needed", path)
    kinds = [args[0]] * len(data) if endless else args
    return tuple(_read(kind, doc, data[at], (*path, at), reading) for at, kind in enumerate(kinds))


def _read_mapping(kind: Any, doc: Doc, data: Any, path: Path, reading: _Reading) -> Any:
    if not isinstance(data, Mapping):
        reading.note("wrong-type", f"{show(data)} is not a mapping", path)
        return {}
    for key in data:
        if doc.keys and not re.fullmatch(doc.keys, str(key)):
            what = f"the name {show(key)} is not {doc.form or f'of the form {doc.keys}'}"
            reading.note("bad-form", what, (*path, str(key)), at_key=True)
    return {str(key): _read(kind, doc, item, (*path, str(key)), reading) for key, item in data.items()}


def _read_scalar(kind: Any, doc: Doc, data: Any, path: Path, reading: _Reading) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        chosen = _read_choice(doc, [str(member.value) for member in kind], data, path, reading)
        return None if chosen is None else kind(chosen)
    if reading.exact:
        if kind is not object and not (type(data) is kind or (kind is float and type(data) is int)):
            reading.note("wrong-type", f"{show(data)} is not {_NAMES[kind]}", path)
        return data
    data = _as_number(kind, data)
    if kind is not object and (not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool)):
        reading.note("wrong-type", f"{show(data)} is not {_NAMES[kind]}", path)
        return data
    if doc.spelled:
        try:
            return doc.spelled(data)
        except ValueError as refused:
            reading.note("unknown-choice", str(refused), path)
            return None
    if doc.choices:
        return _read_choice(doc, doc.choices, data, path, reading)
    if wrong := _out_of_bounds(doc, data):
        reading.note("bad-form" if isinstance(data, str) else "out-of-bounds", f"{show(data)} is not {wrong}", path)
    return data


def _as_number(kind: Any, data: object) -> object:
    """Return 30 as a float and 30.0 as a whole number where these are wanted, as JSON Schema does."""
    if kind is float and isinstance(data, int) and not isinstance(data, bool) and abs(data) <= sys.float_info.max:
        return float(data)
    if kind is int and isinstance(data, float) and data.is_integer():
        return int(data)
    return data


def _read_choice(doc: Doc, choices: Sequence[str], data: object, path: Path, reading: _Reading) -> str | None:
    if isinstance(data, str) and data in choices:
        return data
    if same := [one for one in choices if doc.any_case and one.casefold() == str(data).casefold()]:
        return same[0]
    near = closest(str(data), choices)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    wanted = doc.form or f"one of {', '.join(choices)}"
    reading.note("unknown-choice", f"{show(data)} is not {wanted}{hint}", path)
    return None


def _out_of_bounds(doc: Doc, data: object) -> str:
    if isinstance(data, str):
        fits = not doc.pattern or re.fullmatch(doc.pattern, data)
        return "" if fits else doc.form or f"of the form {doc.pattern}"
    if isinstance(data, bool) or not isinstance(data, (int, float)):
        return ""
    if isinstance(data, float) and not math.isfinite(data):
        return "finite"
    bounds = ((getattr(doc, name), sign, holds) for name, sign, holds, _ in BOUNDS)
    broken = (f"{sign} {limit:g}" for limit, sign, holds in bounds if limit is not None and not holds(data, limit))
    return next(broken, "")


def show(data: object) -> str:
    """Show a value in a message, cut to a readable length."""
    if isinstance(data, str):
        return quoted(data)
    if isinstance(data, (Mapping, Sequence)):
        return "a mapping" if isinstance(data, Mapping) else "a list"
    return json.dumps(data) if data is None or isinstance(data, bool) else repr(data)


LISTED, SUGGESTED = 100, 20
_NAMES: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


# --- Schema, and plain data -------------------------------------------------------------------------------------------


def schema(cls: type) -> dict[str, Any]:
    """Describe a limits class as a JSON Schema (2020-12) object that accepts what `read` does, in one letter case."""
    properties = {item.key: _described(_schema(item.type, item.doc), item.doc) for item in fields(cls)}
    required = [item.key for item in fields(cls) if item.required]
    body: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return body | ({"required": required} if required else {})


def _described(body: dict[str, Any], doc: Doc) -> dict[str, Any]:
    text = f"{doc.text} [{doc.unit}]" if doc.unit else doc.text
    return body | ({"description": text.strip()} if text.strip() else {})


def _schema(kind: Any, doc: Doc) -> dict[str, Any]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _described(_schema(args[0], args[1]), args[1])
    if origin in (typing.Union, types.UnionType):
        kinds = [kind for kind in args if kind is not type(None)]
        null = ["null"] if len(kinds) < len(args) else []
        if len(kinds) > 1 and all(kind in _JSON_TYPES for kind in kinds):
            return {"type": sorted({_JSON_TYPES[kind] for kind in kinds}) + null, **_bounds_schema(doc)}
        several = [_schema(one, doc) for one in kinds] + [{"type": one} for one in null]
        return {"anyOf": several} if len(several) > 1 else several[0]
    if origin is tuple:
        count = {"minItems": doc.min_items} if doc.min_items else {}
        count = count if args[-1] is Ellipsis else {"minItems": len(args), "maxItems": len(args)}
        return {"type": "array", "items": _schema(args[0], doc), **count}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        names = {"propertyNames": {"pattern": _WHOLE.format(doc.keys)}} if doc.keys else {}
        return {"type": "object", "additionalProperties": _schema(args[1], doc)} | names
    if dataclasses.is_dataclass(kind):
        return schema(typing.cast(type, kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"type": "string", "enum": [str(member.value) for member in kind]}
    return _bounds_schema(doc) if kind is object else {"type": _JSON_TYPES[kind], **_bounds_schema(doc)}


def _bounds_schema(doc: Doc) -> dict[str, Any]:
    """Describe bounds; each word of JSON Schema binds values of its own type only, as the reader's do."""
    body = {word: limit for name, _, _, word in BOUNDS if (limit := getattr(doc, name)) is not None}
    body |= {"enum": list(doc.choices)} if doc.choices else {}
    return body | ({"pattern": _WHOLE.format(doc.pattern)} if doc.pattern else {})


_WHOLE = r"^(?:{})$(?!\n)"  # of a text; Python's $ alone lets a line end follow
_JSON_TYPES: dict[Any, str] = {bool: "boolean", int: "integer", float: "number", str: "string"}


def plain(value: Any, omitted: Omitted = NOTHING) -> Any:
    """Return a value as the plain data that `read` reads, defaults filled in and the fields `omitted` left out."""
    if value is None or type(value) in _NAMES:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out = omitted.get(type(value), frozenset())
        kept = ((item, getattr(value, item.name)) for item in fields(type(value)) if item.name not in left_out)
        return {item.key: plain(one, omitted) for item, one in kept if not (item.later and one == item.default)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(item, omitted) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [plain(item, omitted) for item in value]
    return value
