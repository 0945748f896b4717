"""Read a folder of checkpoints that each have a `*.metadata.json`: one row an epoch.

`checkpoints` is the number of what else bears the epoch's name. A checkpoint without metadata is a row, too, so that
one that is missing beside the other leaves a hole.
"""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weighbridge.core import SubjectError
from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import decoded, read_whole
from weighbridge.run_logs.log_table import Log, TableBuilder

NUMBER = re.compile(r"\d{1,18}")
PATTERN = "*.metadata.json"
MAX_FILES, MAX_FILE = 100_000, 1 << 20


def read_epochs(path: Path, digests: dict[str, str]) -> Log:
    """Read the files in the order of the numbers in their names; refuse with `log-syntax` or `too-large`."""
    files = {file.name.removesuffix(PATTERN[1:]): file for file in path.glob(PATTERN)}
    if len(files) > MAX_FILES:
        raise SubjectError("too-large", f"{len(files)} files", where=str(path), remedy=f"at most {MAX_FILES} are read")
    beside, shapes = Counter[str](), {NUMBER.sub("0", name) for name in files}
    for one in path.iterdir():
        name = one.name.rpartition(".")[0] or one.name
        beside[name] += not one.match(PATTERN) and NUMBER.sub("0", name) in shapes and one.exists()
    table = TableBuilder(str(path))
    for name in sorted({*files, *+beside}, key=lambda name: [int(word) for word in NUMBER.findall(name)]):
        row = _row(files[name], digests) if name in files else {"epoch": int(NUMBER.findall(name)[-1])}
        table.add_mappings([{**row, **({"checkpoints": beside[name]} if beside[name] else {})}])
    return Log(table.rows, table.columns)


def _row(file: Path, digests: dict[str, str]) -> Mapping[str, Any]:
    row, why = None, "must be an object, {…}"
    try:
        row = decode(decoded(read_whole(file, digests, MAX_FILE), file, 1))
    except ValueError as problem:
        why = f"not JSON: {problem}"
    if not isinstance(row, Mapping):
        raise SubjectError("log-syntax", why, where=str(file), remedy="write it again")
    return row
