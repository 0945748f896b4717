"""Read the file of one W&B run (`run-ID.wandb`): what was logged, and the exit code that the run came to.

Records lie in blocks of 32 KiB, whole or in fragments, each with its CRC32. A torn one at the end is normal.
"""

from __future__ import annotations

import operator
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weighbridge.core import SubjectError, replace
from weighbridge.run_logs.formats import wire_fields
from weighbridge.run_logs.formats.wire_fields import part, signed
from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import raw_blocks
from weighbridge.run_logs.log_table import MISSING, STEP, Cells, Log
from weighbridge.run_logs.step_table import StepTable

SIGN = b":W&B"
HEADER, BLOCK, HEAD = 7, 1 << 15, 7
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
MAX_RECORD = 256 << 20
HISTORY, EXIT = 2, 18
GLOBAL_STEPS = ("trainer/global_step", "train/global_step")  # W&B's own step counts calls, evaluations among them


def read_wandb(path: Path, digests: dict[str, str]) -> Log:
    """Read a run's file; refuse with `wandb-damaged` and the offset, or `no-rows`."""
    table, facts, notes = StepTable(path), dict[str, Any](), dict[str, int]()
    for at, data in _records(path, digests, notes):
        try:
            found = wire_fields.of(data)
            if HISTORY in found:
                _add(table, part(found, HISTORY))
            if EXIT in found:
                failed = signed(wire_fields.of(part(found, EXIT)).get(1, 0))
                facts = {"status": "failed" if failed else "finished"}
        except ValueError as problem:
            raise _damaged(path, at, f"a record is none of W&B's: {problem}") from None
    log = table.log(facts=facts, notes=notes, units={})
    counted = any(_counts_on(log.columns[name]) for name in GLOBAL_STEPS if name in log.columns)
    columns = {name: cells for name, cells in log.columns.items() if name != STEP or not counted}
    return replace(log, columns=columns)


def _counts_on(steps: Cells) -> bool:
    """Return whether every row has a step, the last a later one than the first, and none falls, as in a second run."""
    values = steps.values
    return MISSING not in steps.state and values[0] < values[-1] and all(map(operator.le, values, values[1:]))


def _add(table: StepTable, history: bytes) -> None:
    """Add one row: items by name, those inside others by dots."""
    cells, step = dict[str, object](), None
    for number, value in wire_fields.fields(history):
        if number == 2:
            step = signed(wire_fields.of(value if isinstance(value, bytes) else b"").get(1, 0))
        elif number == 1 and isinstance(value, bytes):
            names = [one for key, one in wire_fields.fields(value) if key in (1, 2) and isinstance(one, bytes)]
            cell = _cell(wire_fields.of(value))
            if isinstance(cell, (int, float, str)):
                cells[b".".join(names).decode("utf-8")] = cell
    table.add(step, {name: cell for name, cell in cells.items() if name != "_step"})


def _cell(item: dict[int, int | bytes]) -> object:
    if 5 in item:
        whole = item[5]
        return (whole >> 1) ^ -(whole & 1) if isinstance(whole, int) else None
    if 6 in item:
        return wire_fields.float_of(part(item, 6))
    text = part(item, 16) or part(item, 8)
    return decode(text.decode("utf-8")) if text else None


def _records(path: Path, digests: dict[str, str], notes: dict[str, int]) -> Iterator[tuple[int, bytes]]:
    """Yield each record with where it begins, its fragments joined."""
    begun, whole = 0, b""
    for at, kind, data in _fragments(path, digests, notes):
        if kind in (FULL, FIRST):
            begun, whole = at, b""
        whole += data
        if len(whole) > MAX_RECORD:
            raise _damaged(path, begun, f"a record of more than {MAX_RECORD} bytes")
        if kind in (FULL, LAST):
            yield begun, whole
            whole = b""
    if whole:
        notes.setdefault("torn_last_record_at", begun)


def _fragments(path: Path, digests: dict[str, str], notes: dict[str, int]) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    for block in raw_blocks(path, digests, BLOCK):
        inside = HEADER if at == 0 else 0
        if at == 0 and not block.startswith(SIGN + b"\xe1\xbe\x00"):
            raise _damaged(path, 0, "the file does not begin as version 0 of a W&B run does")
        while inside + HEAD <= len(block):
            check, size, kind = struct.unpack_from("<IHB", block, inside)
            end = inside + HEAD + size
            if end > len(block):
                break
            if zlib.crc32(block[inside + 6 : end]) != check or not FULL <= kind <= LAST:
                raise _damaged(path, at + inside, "the CRC32 of a record is wrong")
            yield at + inside, kind, block[inside + HEAD : end]
            inside = end
        if inside + HEAD <= len(block) == BLOCK:
            raise _damaged(path, at + inside, "a record does not fit into its block")
        if inside < len(block) < BLOCK:
            notes["torn_last_record_at"] = at + inside
        at += len(block)


def _damaged(path: Path, at: int, what: str) -> SubjectError:
    remedy = "fetch the file again, or bind the history that W&B exports (wandb-history.jsonl, or CSV)"
    return SubjectError("wandb-damaged", what, where=f"{path} at byte {at}", remedy=remedy)
