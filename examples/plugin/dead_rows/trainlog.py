"""A reader of run logs: lines of `step=1 loss=2.5`, in files that end in .trainlog."""

from __future__ import annotations

from pathlib import Path

from weighbridge.core.errors import SubjectError
from weighbridge.run_logs.log_file import batches
from weighbridge.run_logs.log_table import Log, LogFormat, TableBuilder


def read(path: Path, digests: dict[str, str]) -> Log:
    """Read a log; `batches` digests what it reads into `digests`, by the file's name."""
    table = TableBuilder(str(path))
    for batch in batches(path, digests):
        for at, line in enumerate(batch.lines, batch.first):
            cells = dict(word.partition("=")[::2] for word in line.split())
            if cells and not all(cells.values()):
                raise SubjectError("log-syntax", "a word is not NAME=VALUE", where=f"{path}:{at}")
            table.add_texts(tuple(cells), [tuple(cells.values())] if cells else [])
    return Log(table.rows, table.columns)


TRAINLOG = LogFormat("trainlog", read)
