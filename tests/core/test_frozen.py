"""Dataclasses of ours do what those of the standard library do."""

from __future__ import annotations

import copy
import dataclasses
import functools
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from weighbridge.core.frozen import BLAS, dataclass, field

NAN = float("nan")


def shapes(dataclass: Any) -> dict[str, Any]:
    """Return classes of every shape that the tool uses, made by one decorator."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        first: float
        second: str = "b"
        made: list[int] = field(default_factory=list, hash=False)
        apart: int = field(default=0, compare=False)
        unseen: int = field(default=0, repr=False)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        first: float
        of: Any = None

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Further(Named):
        third: int = 3
        placed: int = field(default=0, kw_only=False)

    @dataclass(frozen=True, slots=True)
    class Checked:
        first: float

        def __post_init__(self) -> None:
            object.__setattr__(self, "first", abs(self.first))

        def __repr__(self) -> str:
            return "checked"

        def __hash__(self) -> int:
            return 7

    @dataclass(frozen=True, slots=True)
    class Empty:
        pass

    @dataclass(frozen=True, kw_only=True)
    class Loose(Named):
        fourth: int = 4

    @dataclass(slots=True)
    class Changing:
        first: float
        of: list[int] = field(default_factory=list)

    @dataclass(kw_only=True)
    class Open(Changing):
        third: int = 3
        late: int = field(init=False)
        given: int = field(init=False, default=7)
        fresh: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            self.late = self.third + self.given

    return {one.__name__: one for one in (Plain, Named, Further, Checked, Empty, Loose, Changing, Open)}


OURS, THEIRS = shapes(dataclass), shapes(dataclasses.dataclass)


def said(act: Callable[[], Any]) -> str:
    """Return what comes of an act, or the type and the words of what it raises."""
    try:
        return repr(act())
    except Exception as error:
        return repr(error)


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    *(((), {}), ((1,), {}), ((NAN,), {}), ((-1, "c"), {}), ((1,) * 9, {}), ((1, "b", [1], 5, 6), {})),
    *(((), {"first": 1}), ((), {"first": NAN, "of": [2]}), ((), {"first": 1, "no": 2})),
    *(((1, "b"), {"unseen": 8, "apart": 9}), ((2,), {"first": 3})),
]
ASKED: list[Callable[[Any], Any]] = [
    *(repr, dataclasses.asdict, dataclasses.astuple, copy.copy, copy.deepcopy, dataclasses.replace),
    lambda one: hash(one) == hash(copy.copy(one)),
    lambda one: {one: 1}[one],
    lambda one: setattr(copy.copy(one), dataclasses.fields(one)[0].name, 1),
    lambda one: delattr(copy.copy(one), dataclasses.fields(one)[0].name),
    lambda one: dataclasses.replace(one, first=-5),
    lambda one: dataclasses.replace(one, none=-5),
]


def answers(cls: Any) -> list[object]:
    """Return what a class and its instances answer to everything that a dataclass can be asked."""
    found = [cls.__match_args__, getattr(cls, "__slots__", None), [str(item) for item in dataclasses.fields(cls)]]
    made = []
    for given, named in CALLS:
        try:
            made.append(cls(*given, **named))
        except TypeError as error:
            found.append(str(error))
    for one in made:
        found += [one == other for other in (*made, copy.copy(one), copy.deepcopy(one), 1)]
        found += [said(functools.partial(ask, one)) for ask in ASKED]
    return found


@pytest.mark.parametrize("name", OURS)
def test_a_dataclass_answers_as_one_of_the_standard_library(name: str) -> None:
    assert answers(OURS[name]) == answers(THEIRS[name])


def test_a_dataclass_that_may_change_cannot_inherit_from_a_frozen_one() -> None:
    for named in (OURS["Named"], THEIRS["Named"]):
        with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
            dataclass(slots=True)(type("Changing", (named,), {}))


@dataclass(frozen=True, slots=True)
class Sent:
    """What another process is sent."""

    value: int
    of: tuple[int, ...] = ()


def test_a_frozen_dataclass_goes_to_another_process() -> None:
    assert pickle.loads(pickle.dumps(Sent(1, (2, 3)))) == Sent(1, (2, 3))


def test_a_value_that_holds_itself_is_shown_once() -> None:
    held: list[object] = []
    held.append(OURS["Named"](first=1, of=held))
    assert repr(held[0]).endswith("Named(first=1, of=[...])")


def test_methods_are_written_when_they_are_first_called() -> None:
    later: Any = dataclass(frozen=True, slots=True)(type("Later", (), {"__annotations__": {"value": int}}))
    assert later.__init__.__name__ == "first"
    assert later(1).value == 1
    assert later.__init__.__name__ == "__init__"


def test_numpy_is_loaded_without_threads_of_its_own_and_what_is_started_later_has_its(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(BLAS, raising=False)
    said = f"""if True:
        import os
        from weighbridge.core.frozen import np, without_blas_threads
        without_blas_threads()
        np.zeros(1)
        print(len(os.listdir("/proc/self/task")), "{BLAS}" in os.environ)"""
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False"]
