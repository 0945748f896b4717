"""Parse a header or index in JSON, refusing what two readers would read in two ways. Reads no file itself."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.canonical import loads
from weighbridge.errors import SubjectError, WeighbridgeError
from weighbridge.storage.readable import ReadableFile

REMEDY = "write the file again, or fetch it again and compare its size with the source's"


def strict_json(data: memoryview, code: str, file: ReadableFile, at: int = 0) -> object:
    """Parse JSON in UTF-8 without doubled keys or lone surrogates.

    Raises:
        SubjectError: with `code`.
    """
    where = f"{file.name} at byte {at}"
    try:
        text = str(data, "utf-8")
        value: object = loads(text)
        if "\\ud" in text or "\\uD" in text:
            repr_safe(value)
    except UnicodeDecodeError as problem:
        where = f"{file.name} at byte {at + problem.start}"
        raise SubjectError(code, "not UTF-8", where=where, remedy=REMEDY) from None
    except UnicodeEncodeError:
        raise SubjectError(code, "an escaped half of a surrogate pair", where=where, remedy=REMEDY) from None
    except WeighbridgeError as problem:
        raise SubjectError(code, problem.what, where=where, remedy=REMEDY) from None
    return value


def repr_safe(value: object) -> None:
    """Require that every text in a parsed value can be written as UTF-8.

    Raises:
        UnicodeEncodeError: for a lone surrogate, which would break whoever prints the name later.
    """
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            repr_safe(key)
            repr_safe(item)
    elif isinstance(value, list):
        for item in value:
            repr_safe(item)
