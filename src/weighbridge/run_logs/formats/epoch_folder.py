"""Read a folder of checkpoints that each have a `*.metadata.json`: one row an epoch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from weighbridge.core import SubjectError
from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import decoded, read_whole
from weighbridge.run_logs.log_table import Log, TableBuilder

PATTERN = "*.metadata.json"
MAX_FILES, MAX_FILE = 100_000, 1 << 20


def read_epochs(path: Path, digests: dict[str, str]) -> Log:
    """Read the files in the order of the numbers in their names; refuse with `log-syntax` or `too-large`."""
    files = sorted(path.glob(PATTERN), key=lambda file: [int(word) for word in re.findall(r"\d{1,18}", file.name)])
    if len(files) > MAX_FILES:
        raise SubjectError("too-large", f"{len(files)} files", where=str(path), remedy=f"at most {MAX_FILES} are read")
    table = TableBuilder(str(path))
    for file in files:
        row, why = None, "must be an object, {…}"
        try:
            row = decode(decoded(read_whole(file, digests, MAX_FILE), file, 1))
        except ValueError as problem:
            why = f"not JSON: {problem}"
        if not isinstance(row, Mapping):
            raise SubjectError("log-syntax", why, where=str(file), remedy="write it again")
        table.add_mappings([row])
    return Log(table.rows, table.columns)
