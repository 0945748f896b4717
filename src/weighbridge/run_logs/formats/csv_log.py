"""Read CSV logs, nvidia-smi's among them: without a header, columns are named by their place, from "1"."""

import csv
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.run_logs.log_file import bad_line, batches, no_rows, suffix
from weighbridge.run_logs.log_table import NUMBER, Log, TableBuilder, read_cell

CHUNK = 8192
Rows: TypeAlias = Iterator[tuple[int, list[str]]]
Notes: TypeAlias = dict[str, int]  # `unterminated`, where the last line has no end
_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*$")


def read_csv(path: Path, digests: dict[str, str]) -> Log:
    """Read a comma- or tab-separated log; refuse with `log-syntax` and the line, or `no-rows`."""
    torn: Notes = {}  # filled as the lines are read
    text = _lines(path, digests, torn)
    head = next(text, "")
    tabs = suffix(path) == ".tsv" or ("\t" in head and "," not in head)
    reader = csv.reader(chain([head], text), delimiter="\t" if tabs else ",", skipinitialspace=True, strict=True)
    rows = _rows(reader, path, torn)
    if (first := next(rows, None)) is None:
        raise no_rows(path)
    headed, names, units = header(first[1], path)
    table = TableBuilder(str(path))
    table.open(dict.fromkeys(names), 0)
    # nvidia-smi that is called again and again writes its header again and again.
    rest = (row for row in rows if row[1] != first[1]) if headed else chain([first], rows)
    short = _fill(table, names, rest, path, torn)
    if not table.rows:
        raise no_rows(path)
    notes = ({} if headed else {"no_header": True}) | ({"torn_last_line": short} if short else {})
    return Log(table.rows, table.columns, notes=notes | torn, units=units)


def _lines(path: Path, digests: dict[str, str], torn: Notes) -> Iterator[str]:
    """Yield the lines of a file, and note where the last has no end; a first line of JSON is a comment."""
    for batch in batches(path, digests):
        torn |= {} if batch.terminated else {"unterminated": True}
        for at, line in enumerate(batch.lines, batch.first):
            if at > 1 or not line.startswith("#{"):  # which stable-baselines3 writes above the episodes
                # On Windows it writes `\r\r\n`, of which git can leave `\r` alone.
                yield from (row + "\n" for row in line.split("\r")) if "\r" in line else (line + "\n",)


def header(first: list[str], path: Path) -> tuple[bool, list[str], dict[str, str]]:
    """Return whether a first row is a header, the names of its columns, and their units; a number makes it none."""
    headed = not any(read_cell(cell)[0] == NUMBER for cell in first)
    names = [str(place + 1) for place in range(len(first))]
    if headed:
        names = [_UNIT.sub("", cell).strip() or place for cell, place in zip(first, names, strict=True)]
    if len(set(names)) < len(names):
        doubled = next(name for name, count in Counter(names).items() if count > 1)
        raise bad_line(path, 1, f"two columns are called {doubled[:60]!r}")
    found = zip(names, map(_UNIT.search, first if headed else ()), strict=False)
    return headed, names, {name: unit[1].strip() for name, unit in found if unit}


def _rows(reader: Any, path: Path, torn: Notes) -> Rows:
    """Yield each row that is not blank with the number of its line; a row that breaks off at the end is empty."""
    try:
        yield from ((reader.line_num, row) for row in reader if row)
    except csv.Error as problem:
        if "end of data" not in str(problem) or not torn:
            raise bad_line(path, reader.line_num, f"not a row of CSV: {problem}") from None
        yield reader.line_num, []


def _fill(table: TableBuilder, names: list[str], rows: Rows, path: Path, torn: Notes) -> int:
    """Add all rows, and return the number of a torn last line, or 0."""
    chunk: list[list[str]] = []
    short = 0
    for line, row in rows:
        if short or len(row) > len(names):
            raise bad_line(path, short or line, f"a row of another length than the {len(names)} columns")
        if len(row) < len(names):
            short = line
            continue
        chunk.append(row)
        if len(chunk) == CHUNK:
            table.add_texts(names, chunk)
            chunk = []
    if chunk:
        table.add_texts(names, chunk)
    if short and not torn:
        raise bad_line(path, short, f"a row shorter than the {len(names)} columns")
    return short
