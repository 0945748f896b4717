"""Many cases of one claim, in one test."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str, cases: Iterable[Any], ids: Iterable[str] = ()) -> Callable[[Test], Test]:
    """Try a test with each case in turn, and name every case that fails; each has a folder of its own."""
    arguments, tried = names.replace(",", " ").split(), list(cases)
    called = list(ids) or [f"case {number}" for number in range(len(tried))]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def whole(**fixtures: Any) -> None:
            failed = []
            for number, (name, case) in enumerate(zip(called, tried, strict=True)):
                given = dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True))
                try:
                    test(**_apart(fixtures, number), **given)
                except (Exception, BaseExceptionGroup, pytest.fail.Exception) as error:
                    error.add_note(f"{name}: {', '.join(f'{key} = {value!r:.100}' for key, value in given.items())}")
                    failed.append(error)
            if failed:
                raise BaseExceptionGroup(f"{len(failed)} of {len(tried)} cases", failed)
            assert tried

        signature = inspect.signature(test)
        fixtures = [given for name, given in signature.parameters.items() if name not in arguments]
        whole.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        whole.cases = len(tried) * getattr(test, "cases", 1)  # type: ignore[attr-defined]
        return whole

    return decorate


def _apart(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    if "tmp_path" not in fixtures:
        return fixtures
    own = fixtures["tmp_path"] / f"case-{number}"
    own.mkdir()
    return fixtures | {"tmp_path": own}
