"""What start-up does not wait for: methods of dataclasses, written at their first call, and large libraries."""

import dataclasses
import importlib
import operator
import os
import reprlib
from collections.abc import Callable
from dataclasses import MISSING, field, fields, replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

__all__ = ["Bytes", "Doubles", "Floats", "NDArray", "Values", "Words", "np", "torch"]
__all__ += ["dataclass", "field", "fields", "replace", "without_blas_threads"]

BLAS = "OPENBLAS_NUM_THREADS"

if TYPE_CHECKING:
    from dataclasses import dataclass

    import numpy as np
    import torch
    from numpy.typing import NDArray

    Words: TypeAlias = NDArray[np.unsignedinteger[Any]]  # as stored
    Values: TypeAlias = NDArray[Any]
    Bytes: TypeAlias = NDArray[np.uint8]
    Floats: TypeAlias = NDArray[np.float32]
    Doubles: TypeAlias = NDArray[np.float64]
else:

    class _OnFirstUse(ModuleType):
        """A library that is imported when it is first asked for something, which is then kept."""

        def __getattr__(self, name: str) -> Any:
            unset = {} if BLAS in os.environ else self.__dict__.get("environment", {})
            os.environ.update(unset)  # until it is imported: a program that is started later has its own threads
            try:
                self.__dict__[name] = getattr(importlib.import_module(self.__name__), name)
            finally:
                os.environ.pop(BLAS if unset else "", None)
            return self.__dict__[name]

    np, torch = _OnFirstUse("numpy"), _OnFirstUse("torch")
    NDArray = Words = Values = Bytes = Floats = Doubles = Any

    def dataclass(**asked: bool) -> Callable[[type], type]:
        """Make a dataclass as the standard library does, with its methods later."""
        frozen, slots = asked.get("frozen", False), asked.get("slots", False)
        of_frozen = {"__setattr__": _refuse, "__delattr__": _refuse} | ({"__setstate__": _set_state} if slots else {})
        shared = {"__repr__": _repr, **(of_frozen if frozen else {"__hash__": None})}

        def make(cls: type) -> type:
            cls.__doc__ = cls.__doc__ or cls.__name__  # else one is made of the signature
            inherits = frozen and any(map(dataclasses.is_dataclass, cls.__bases__))  # as what it inherits from
            bare = {"frozen": inherits, "init": False, "repr": False, "eq": False}
            made = dataclasses.dataclass(**{**asked, **bare})(cls)
            own = {name for name, value in made.__dict__.items() if value is not None}
            made.__dataclass_params__.frozen = frozen  # for those that inherit from it
            for name in ({"__init__", "__eq__", "__hash__"} | shared.keys()) - own:
                setattr(made, name, shared[name] if name in shared else _when_called(made, name))
            return made

        return make if asked.keys() <= {"frozen", "slots", "kw_only"} else dataclasses.dataclass(**asked)


def without_blas_threads() -> None:
    """Let NumPy start no threads of its BLAS: they spin, and no verb multiplies large matrices."""
    vars(np)["environment"] = {BLAS: "1"}


def _when_called(cls: Any, name: str) -> Callable[..., Any]:
    def first(self: object, *args: Any, **named: Any) -> Any:
        method = _init(cls) if name == "__init__" else _compared(cls, hashed=name == "__hash__")
        method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
        setattr(cls, name, method)
        return method(self, *args, **named)

    return first


def _init(cls: Any) -> Any:
    known: dict[str, Any] = {"_set": object.__setattr__, "_none": MISSING}
    placed, named, body = ["self"], ["*"], ["pass"]
    for item in fields(cls):
        name, of, made = item.name, f"_of_{item.name}", item.default_factory is not MISSING
        known[of] = item.default_factory if made else item.default
        value = f"{of}()" if made else of
        if item.init:
            default = "=_none" if made else "" if item.default is MISSING else f"={of}"
            (named if item.kw_only else placed).append(name + default)
            value = f"{value} if {name} is _none else {name}" if made else name
        if item.init or known[of] is not MISSING:
            body.append(f"_set(self, {name!r}, {value})")
    body += ["self.__post_init__()"] * hasattr(cls, "__post_init__")
    parameters = ", ".join(placed + named * (len(named) > 1))
    exec(f"def __init__({parameters}): {'; '.join(body)}", known)  # noqa: S102 -- as the standard library does
    return known["__init__"]


def _compared(cls: Any, *, hashed: bool) -> Callable[..., Any]:
    names = [one.name for one in fields(cls) if (one.hash if hashed and one.hash is not None else one.compare)]
    values: Any = operator.attrgetter(*names) if len(names) > 1 else lambda one: tuple(getattr(one, at) for at in names)
    if hashed:
        return lambda self: hash(values(self))
    return lambda self, other: values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{item.name}={getattr(self, item.name)!r}" for item in fields(self) if item.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse(_self: object, name: str, *value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot {'assign to' if value else 'delete'} field {name!r}")


def _set_state(self: object, state: tuple[None, dict[str, Any]]) -> None:
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
