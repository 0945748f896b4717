"""Dataclasses whose methods are written as they are first called: writing all at once was half of start-up."""

from __future__ import annotations

import dataclasses
import operator
import reprlib
from collections.abc import Callable, Iterable
from dataclasses import MISSING, field, fields, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(**asked: bool) -> Callable[[type], type]:
        """Make a dataclass as the standard library does, with its methods later."""
        frozen, slots = asked.get("frozen", False), asked.get("slots", False)
        shared = {**_SHOWN, **(_FROZEN if frozen else _CHANGING), **(_SENT if frozen and slots else {})}

        def make(cls: type) -> type:
            own = {name for name, value in cls.__dict__.items() if value is not None}
            cls.__doc__ = cls.__doc__ or cls.__name__  # else one is made of the signature
            inherits = frozen and any(map(dataclasses.is_dataclass, cls.__bases__))  # as what it inherits from
            bare = {"frozen": inherits, "init": False, "repr": False, "eq": False}
            made = dataclasses.dataclass(**{**asked, **bare})(cls)
            made.__dataclass_params__.frozen = frozen  # for those that inherit from it
            for name in (_WRITTEN.keys() | shared.keys()) - own:
                setattr(made, name, shared[name] if name in shared else _when_called(made, name))
            return made

        return make if asked.keys() <= {"frozen", "slots", "kw_only"} else dataclasses.dataclass(**asked)


__all__ = ["dataclass", "field", "fields", "replace"]


def _when_called(cls: type, name: str) -> Callable[..., Any]:
    def first(self: object, *args: Any, **named: Any) -> Any:
        method = _WRITTEN[name](cls)
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **named)

    return first


def _init(cls: Any) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_none": MISSING}
    placed, named, body = ["self"], ["*"], []
    for item in fields(cls):
        name, of, made = item.name, f"_of_{item.name}", item.default_factory is not MISSING
        known[of] = item.default_factory if made else item.default
        parameter = f"{name}=_none" if made else name if item.default is MISSING else f"{name}={of}"
        value = f"{of}() if {name} is _none else {name}" if made else name
        if item.init:
            (named if item.kw_only else placed).append(parameter)
        else:
            value = f"{of}()" if made else of
        if item.init or known[of] is not MISSING:
            body.append(f"_set(self, {name!r}, {value})")
    body += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    parameters = ", ".join(placed + named * (len(named) > 1))
    exec(f"def __init__({parameters}): {'; '.join(body) or 'pass'}", known)  # noqa: S102 -- as the standard library does
    return known["__init__"]


def _eq(cls: Any) -> Callable[[Any, Any], Any]:
    values = _values(item.name for item in fields(cls) if item.compare)
    return lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented


def _hash(cls: Any) -> Callable[[Any], int]:
    values = _values(item.name for item in fields(cls) if (item.compare if item.hash is None else item.hash))
    return lambda self: hash(values(self))


def _values(names: Iterable[str]) -> Callable[[Any], Any]:
    of = tuple(names)
    return operator.attrgetter(*of) if len(of) > 1 else lambda one: tuple(getattr(one, name) for name in of)


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_self: object, name: str, *value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, item.name) for item in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for item, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, item.name, value)


_WRITTEN: dict[str, Callable[[type], Any]] = {"__init__": _init, "__eq__": _eq, "__hash__": _hash}
_SHOWN = {"__repr__": _repr}
_CHANGING = {"__hash__": None}
_FROZEN = {"__setattr__": _refuse, "__delattr__": _refuse}
_SENT = {"__getstate__": _state, "__setstate__": _set_state}
