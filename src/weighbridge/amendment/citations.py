"""Citations: `264.74 ms [ev:2f6a7cfc0f86#/findings/0/measured]` must equal the evidence to the printed digits.

A pointer is a JSON pointer as a URI fragment (RFC 6901); one without a file is into `verdicts.json`, and
`[ev:ID12/environment.json#/torch]` names another file of the bundle.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any
from urllib.parse import quote, unquote

from weighbridge.canonical import loads
from weighbridge.errors import BundleError
from weighbridge.evidence import layout, manifest
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.unseal import Bundle

SIGNIFICANT = 6
WIDE = Context(prec=400)  # the whole range of a double, digit by digit
CITED = re.compile(
    r"`(?P<text>[^`]*)` \[ev:(?P<id>[0-9a-f]{12,64})(?:/(?P<file>[A-Za-z0-9._/-]+))?#(?P<pointer>(?:/[^\]\s]*)?)\]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A printed text, and where in which bundle its value stands."""

    text: str
    id: str
    file: str
    pointer: str


def cite(bundle: Bundle, pointer: str, value: object, file: str = "") -> str:
    """Print a value with its citation; a number to six significant digits at most."""
    named = f"/{file}" if file else ""
    return f"`{printed(value)}` [ev:{bundle.id[:12]}{named}#{quote(pointer, safe='/~')}]"


def printed(value: object) -> str:
    """Print a value as a person reads it, and as `agrees` accepts it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    if isinstance(value, float) and math.isfinite(value):
        return f"{Decimal(repr(value)):.{SIGNIFICANT}g}"
    return str(value).replace("`", "'").replace("|", "¦").replace("\n", " ")


def citations(text: str) -> tuple[Citation, ...]:
    """Find every citation in a text."""
    return tuple(
        Citation(
            text=match["text"], id=match["id"], file=match["file"] or layout.VERDICTS, pointer=unquote(match["pointer"])
        )
        for match in CITED.finditer(text)
    )


def resolve(bundle: Bundle, citation: Citation) -> Any:
    """Return the cited value from the bundle's bytes.

    Raises:
        BundleError: `bad-pointer`, where there is none.
    """
    if not manifest.NAME.fullmatch(citation.file):
        raise BundleError("bad-pointer", f"{citation.file!r} is no name for a file of a bundle", where=str(bundle.path))
    data = read_regular(bundle.path / citation.file, citation.file, manifest.MAX_FILE)
    value = loads(data, where=citation.file)
    for step in citation.pointer.split("/")[1:]:
        value = _step(value, step.replace("~1", "/").replace("~0", "~"), citation)
    return value


def agrees(text: str, value: object) -> bool:
    """Return whether a printed text equals a value to the printed digits, rounded half up or half to even."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return text == printed(value)
    try:
        shown, exact = Decimal(text), Decimal(repr(value))
        last = Decimal(1).scaleb(int(shown.as_tuple().exponent), WIDE)
        return shown in (exact.quantize(last, rounding, WIDE) for rounding in (ROUND_HALF_EVEN, ROUND_HALF_UP))
    except (InvalidOperation, ValueError):
        return False


def _step(value: Any, step: str, citation: Citation) -> Any:
    if isinstance(value, Mapping) and step in value:
        return value[step]
    if isinstance(value, Sequence) and not isinstance(value, str) and step.isdecimal() and int(step) < len(value):
        return value[int(step)]
    raise BundleError("bad-pointer", f"has nothing at {citation.pointer}", where=citation.file)
