"""Parse a header or index in JSON, refusing what two readers would read in two ways. Reads no file itself."""

import json

from weighbridge.core import SubjectError, WeighbridgeError, loads
from weighbridge.storage.readable import ReadableFile

REMEDY = "write the file again, or fetch it again and compare its size with the source's"


def strict_json(data: memoryview, code: str, file: ReadableFile, at: int = 0, *, lenient: bool = False) -> object:
    """Return what JSON in UTF-8 says; refuse doubled keys, lone surrogates and, unless `lenient`, a bare Infinity."""
    try:
        text = str(data, "utf-8")
        value: object = loads(text, spelled=False, lenient=lenient)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()  # a lone half would break whoever prints the name later
    except UnicodeDecodeError as problem:
        what, at = "not UTF-8", at + problem.start
    except UnicodeEncodeError:
        what = "an escaped half of a surrogate pair"
    except WeighbridgeError as problem:
        what = problem.what
    else:
        return value
    raise SubjectError(code, what, where=f"{file.name} at byte {at}", remedy=REMEDY)
