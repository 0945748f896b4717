"""One logged cell, as a number: units stripped, timestamps as seconds, NaN kept, a missing cell kept apart from both.

Never guesses: what is not plainly a number is unreadable, and counted as such.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from datetime import UTC, datetime

MISSING, NUMBER, UNREADABLE = 0, 1, 2

_QUANTITY = re.compile(
    r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(?:%|[KMGT]i?B|B|[mk]?W|C|[KMG]?Hz|[mun]?s|tok/s)?\s*", re.ASCII
)
_TIME = re.compile(
    r"\s*(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?(Z|[+-]\d\d:\d\d)?\s*", re.ASCII
)
_WORDS = frozenset({"nan", "+nan", "-nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"})
_ABSENT = frozenset({"", "n/a", "[n/a]", "[not supported]", "[unknown error]", "null", "none"})
_NUMBERS = frozenset({int, float})
_LONGEST = 64


class Cells:
    """One column `[rows]`: a float64 and a state a row."""

    __slots__ = ("state", "values")

    def __init__(self, rows: int = 0) -> None:
        """Start with `rows` missing cells."""
        self.values = array("d", bytes(8 * rows))
        self.state = bytearray(rows)

    def pad(self, rows: int) -> None:
        """Add missing cells."""
        self.values.frombytes(bytes(8 * rows))
        self.state.extend(bytes(rows))

    def add(self, cells: Sequence[object]) -> None:
        """Add cells as JSON gave them."""
        if not (_NUMBERS.issuperset(map(type, cells)) and self._all_at_once(cells)):
            self._one_by_one(cells)

    def add_texts(self, cells: Sequence[str]) -> None:
        """Add cells as CSV gave them."""
        together = "".join(cells)
        plain = together.isascii() and "_" not in together
        if not (plain and self._all_at_once(cells)):
            self._one_by_one(cells)

    def _all_at_once(self, cells: Sequence[object]) -> bool:
        before = len(self.values)
        try:
            self.values.extend(map(float, cells))  # type: ignore[arg-type]
        except (ValueError, OverflowError):
            del self.values[before:]
            return False
        self.state.extend(b"\x01" * len(cells))
        return True

    def _one_by_one(self, cells: Sequence[object]) -> None:
        for cell in cells:
            state, value = read_cell(cell)
            self.state.append(state)
            self.values.append(value)


def read_cell(cell: object) -> tuple[int, float]:
    """Read one cell as (state, number); the number is 0.0 where there is none."""
    if cell is None:
        return MISSING, 0.0
    if isinstance(cell, str):
        return _read_text(cell)
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return UNREADABLE, 0.0
    try:
        return NUMBER, float(cell)
    except OverflowError:
        return UNREADABLE, 0.0


def _read_text(text: str) -> tuple[int, float]:
    word = text.strip().lower()
    if word in _ABSENT:
        return MISSING, 0.0
    if len(word) > _LONGEST:
        return UNREADABLE, 0.0
    if word in _WORDS:
        return NUMBER, float(word)
    match = _QUANTITY.fullmatch(text)
    if match:
        return NUMBER, float(match[1])
    return _read_time(text)


def _read_time(text: str) -> tuple[int, float]:
    match = _TIME.fullmatch(text)
    if match is None:
        return UNREADABLE, 0.0
    year, month, day, clock, fraction, zone = match.groups()
    try:
        moment = datetime.fromisoformat(f"{year}-{month}-{day}T{clock}.{(fraction or '0').ljust(6, '0')}{zone or 'Z'}")
        return NUMBER, moment.astimezone(UTC).timestamp()
    except (ValueError, OverflowError):
        return UNREADABLE, 0.0
