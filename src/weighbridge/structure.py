"""Our own frozen values to plain JSON and back, exactly: a bundle or a ledger entry of another form is refused.

Reading is `limits.read` with `exact`: it never guesses, never fills in a default, and never converts a type.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from weighbridge.errors import BundleError
from weighbridge.limits import NOTHING, LimitsError, Omitted, plain, read
from weighbridge.limits import Path as Pointer
from weighbridge.model import Json

__all__ = ["NOTHING", "Omitted", "Pointer", "build", "closed", "json_value", "plain", "wrong"]

T = TypeVar("T")
SCALARS = (str, int, float, bool, type(None))


def build(cls: type[T], data: object, omitted: Omitted = NOTHING, at: Pointer = ()) -> T:
    """Return the dataclass that `plain` wrote.

    Raises:
        BundleError: `structure`, with a JSON pointer to a missing or unknown key or a value of another type.
    """
    try:
        return read(cls, data, at, exact=True, omitted=omitted)
    except LimitsError as error:
        first = error.problems[0]
        raise wrong(first.what, first.path[:-1] if first.at_key else first.path) from None


def closed(data: object, keys: Collection[str], at: Pointer = ()) -> Mapping[str, Any]:
    """Return a mapping that has exactly these keys."""
    if not isinstance(data, Mapping):
        raise wrong("not a mapping", at)
    missing = next((key for key in keys if key not in data), None)
    if missing is not None:
        raise wrong(f"missing key {missing!r}", at)
    extra = next((key for key in data if key not in keys), None)
    if extra is not None:
        raise wrong(f"unknown key {extra!r}", at)
    return data


def wrong(what: str, at: Pointer) -> BundleError:
    """Return the error that says what is wrong at a JSON pointer."""
    pointer = "".join(f"/{str(step).replace('~', '~0').replace('/', '~1')}" for step in at)
    return BundleError("structure", f"{pointer or 'the root'}: {what}")


def json_value(data: object) -> Json:
    """Return a value that is plain JSON, so that what is sealed is what was measured.

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
                yield wrong(f"the key {key!r} is not a text", at)
            yield from _not_json(item, (*at, key))
    elif isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        for index, item in enumerate(data):
            yield from _not_json(item, (*at, index))
    elif not isinstance(data, SCALARS):
        yield wrong(f"a {type(data).__name__} is not plain JSON", at)
