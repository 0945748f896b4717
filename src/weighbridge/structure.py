"""Frozen values to plain JSON and back: every field written, every field demanded, nothing unknown let through.

For values of ours whose JSON has one form. It never guesses, never fills in a default, and never converts a type.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from weighbridge.errors import BundleError
from weighbridge.model import Json

T = TypeVar("T")
Pointer = tuple[str | int, ...]
Omitted = Mapping[type, frozenset[str]]
NOTHING: Omitted = types.MappingProxyType({})
SCALARS = (str, int, float, bool, type(None))


def plain(value: Any, omitted: Omitted = NOTHING) -> Any:
    """Turn dataclasses, enums and tuples into mappings, strings and lists, without the fields `omitted`."""
    if type(value) in SCALARS:
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        left_out = omitted.get(type(value), frozenset())
        return {name: plain(getattr(value, name), omitted) for name, _ in _hints(type(value)) if name not in left_out}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: plain(item, omitted) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(item, omitted) for item in value]
    return value


def build(cls: type[T], data: object, omitted: Omitted = NOTHING, at: Pointer = ()) -> T:
    """Build a dataclass from what `plain` wrote.

    Raises:
        BundleError: `structure`, with a JSON pointer to a missing or unknown key or a value of another type.
    """
    hints = dict(_hints(typing.cast(Any, cls)))
    left_out = omitted.get(cls, frozenset())
    given = closed(data, [name for name in hints if name not in left_out], at)
    made = {name: _build(hints[name], item, omitted, (*at, name)) for name, item in given.items()}
    return cls(**made)


def closed(data: object, keys: typing.Collection[str], at: Pointer = ()) -> Mapping[str, Any]:
    """Take a mapping that has exactly these keys."""
    if not isinstance(data, Mapping):
        raise wrong("is not a mapping", at)
    missing = next((key for key in keys if key not in data), None)
    if missing is not None:
        raise wrong(f"lacks the key {missing!r}", at)
    extra = next((key for key in data if key not in keys), None)
    if extra is not None:
        raise wrong(f"has the unknown key {extra!r}", at)
    return data


def wrong(what: str, at: Pointer) -> BundleError:
    """Say what is wrong with the value at a JSON pointer."""
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in at)
    return BundleError("structure", f"the value at {pointer or 'the root'} {what}")


@functools.cache
def _hints(cls: Any) -> tuple[tuple[str, Any], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((item.name, hints[item.name]) for item in dataclasses.fields(cls))


def _build(kind: Any, data: Any, omitted: Omitted, at: Pointer) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _build_union(args, data, omitted, at)
    if origin is tuple:
        return tuple(_build(args[0], item, omitted, (*at, i)) for i, item in enumerate(_list(data, at)))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: _build(args[1], item, omitted, (*at, key)) for key, item in _mapping(data, at).items()}
    if dataclasses.is_dataclass(kind):
        return build(typing.cast(type, kind), data, omitted, at)
    if issubclass(kind, enum.Enum):
        return _member(kind, data, at)
    return _scalar((kind,), data, at)


def _build_union(args: tuple[Any, ...], data: Any, omitted: Omitted, at: Pointer) -> Any:
    """Read `T | None`, a scalar, or any JSON; no other union is ours."""
    others = [kind for kind in args if kind is not type(None)]
    if len(others) == 1:
        return None if data is None else _build(others[0], data, omitted, at)
    if all(kind in SCALARS for kind in args):
        return _scalar(args, data, at)
    return data


def _scalar(kinds: tuple[Any, ...], data: Any, at: Pointer) -> Any:
    accepted = (*kinds, int) if float in kinds else kinds
    if not isinstance(data, accepted) or (isinstance(data, bool) and bool not in kinds):
        raise wrong(f"is not of type {' | '.join(kind.__name__ for kind in kinds)}", at)
    return data


def _member(kind: type[enum.Enum], data: Any, at: Pointer) -> enum.Enum:
    found = next((member for member in kind if member.value == data), None)
    if found is None:
        raise wrong(f"is not one of {', '.join(str(member.value) for member in kind)}", at)
    return found


def _list(data: Any, at: Pointer) -> Sequence[Any]:
    if not isinstance(data, list):
        raise wrong("is not a list", at)
    return data


def _mapping(data: Any, at: Pointer) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise wrong("is not a mapping", at)
    return data


def json_value(data: object) -> Json:
    """Demand that a value is plain JSON, so that what is sealed is what was measured.

    Raises:
        BundleError: `structure`, with a JSON pointer to what is not.
    """
    if not _is_json(data):
        raise next(_not_json(data, ()))
    return typing.cast(Json, data)


def _is_json(data: object) -> bool:
    if type(data) in SCALARS:
        return True
    if isinstance(data, Mapping):
        return all(isinstance(key, str) and _is_json(item) for key, item in data.items())
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return all(map(_is_json, data))
    return isinstance(data, SCALARS)


def _not_json(data: object, at: Pointer) -> Iterator[BundleError]:
    if isinstance(data, Mapping):
        for key, item in data.items():
            if not isinstance(key, str):
                yield wrong(f"has the key {key!r}, which is not a text", at)
            yield from _not_json(item, (*at, key))
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        for index, item in enumerate(data):
            yield from _not_json(item, (*at, index))
    elif not isinstance(data, SCALARS):
        yield wrong(f"is a {type(data).__name__}, not plain JSON", at)
