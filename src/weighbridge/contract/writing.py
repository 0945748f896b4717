"""Contracts written as YAML: plain data that the strict reader reads back as it was."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from weighbridge.contract.strict_yaml import Path

# Needs no quotes.
_BARE = re.compile(r"\d+\.\d+\.\d+|[A-Za-z](?:[\w./-]|:(?=\w))*(?: [\w./(-](?:[\w./()-]|:(?=\w))*)*", re.ASCII)
_WORDS = ("true", "false", "null")


def flow(value: Any) -> str:
    """Return plain data as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _BARE.fullmatch(value) and value.casefold() not in _WORDS:
        return value
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


def block(value: Mapping[str, Any], remark: Callable[[Path], str], path: Path = ()) -> Iterator[str]:
    """Yield a mapping as lines of YAML, each value on one of its own with what `remark` says of its path."""
    for key, item in value.items():
        at, name = (*path, key), flow(key)
        if isinstance(item, Mapping) and item:
            yield f"{name}:"
            yield from (f"  {line}" for line in block(item, remark, at))
        elif isinstance(item, (list, tuple)) and item and all(isinstance(one, Mapping) and one for one in item):
            yield f"{name}:"
            for index, one in enumerate(item):
                lines = enumerate(block(one, remark, (*at, index)))
                yield from (f"{'    ' if more else '  - '}{line}" for more, line in lines)
        else:
            said = remark(at)
            yield f"{name}: {flow(item)}" + (f"  # {said}" if said else "")
