"""Read trackio's SQLite database of a project with one run: each row of `metrics` is JSON, at a step."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final
from urllib.parse import quote

from weighbridge.core import SubjectError
from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import raw_blocks, several_runs
from weighbridge.run_logs.log_table import Log, StepTable

SIGN: Final = b"SQLite format 3\0"
MAX_LENGTH: Final = 1 << 20  # bytes of one row
EXPORT: Final = "export one run as JSONL, a row a line, and bind that"


def read_trackio(path: Path, digests: dict[str, str]) -> Log:
    """Read the one run of a database; refuse with `several-runs`, `unknown-format` or `log-syntax`."""
    beside = path.with_name(f"{path.name}-wal")  # what was logged last, until the writer closes
    waiting = beside.exists() and beside.stat().st_size > 0
    for file in (path, beside) if waiting else (path,):
        for _block in raw_blocks(file, digests):
            pass
    uri = f"file:{quote(str(path.absolute()))}?mode=ro{'' if waiting else '&immutable=1'}"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as database:
            database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_LENGTH)
            database.execute("PRAGMA trusted_schema = OFF")
            return _run(path, database)
    except sqlite3.Error as problem:
        what = f"SQLite cannot read this database: {problem}"
        raise SubjectError("log-syntax", what, where=str(path), remedy=EXPORT) from None


def _run(path: Path, database: sqlite3.Connection) -> Log:
    columns = {row[1] for row in database.execute("PRAGMA table_info(metrics)")}
    form = database.execute("SELECT type FROM sqlite_master WHERE name = 'metrics'").fetchone()
    if form != ("table",) or not {"run_name", "step", "metrics"} <= columns:
        what = "an SQLite database without the table `metrics` that trackio writes"
        raise SubjectError("unknown-format", what, where=str(path), remedy=EXPORT)
    one = "run_id" if "run_id" in columns else "run_name"
    names = [str(row[0]) for row in database.execute(f"SELECT MIN(run_name) FROM metrics GROUP BY {one} LIMIT 1000")]  # noqa: S608
    if len(names) > 1:
        raise several_runs(path, names, EXPORT)
    table = StepTable(path)
    for number, (step, text) in enumerate(database.execute("SELECT step, metrics FROM metrics ORDER BY id"), 1):
        row, why = None, "it is no object, {…}, at a whole step"
        try:
            row = decode(text.decode("utf-8") if isinstance(text, bytes) else str(text))
        except ValueError as problem:
            why = f"not JSON: {problem}"
        if not isinstance(row, Mapping) or type(step) is not int:
            raise SubjectError("log-syntax", why, where=f"{path}, row {number} of metrics", remedy=EXPORT)
        table.add(step, {name: cell for name, cell in row.items() if not isinstance(cell, (dict, list))})
    return table.log(facts={}, notes={}, units={})
