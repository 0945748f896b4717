"""Read files of records that hold protobuf messages: TensorBoard's event files, and the file of one W&B run.

TensorBoard's record is its length, the length's masked CRC32C, its bytes and their masked CRC32C; scalars are given by
`simple_value` or as a tensor, in one file or a folder of them. The records of W&B (`run-ID.wandb`: what was logged, and
the exit code that the run came to) lie in blocks of 32 KiB, whole or in fragments, each with its CRC32. A writer that
dies, or is still at work, leaves a torn record at the end; a sum that is wrong anywhere is damage.
"""

import operator
import struct
import zlib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from weighbridge.core import SubjectError, replace
from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import raw_blocks, several_runs
from weighbridge.run_logs.log_table import MISSING, STEP, Cells, Log, Sample, StepTable, joined

MAX_RECORD = 256 << 20  # pictures are records, too
PATTERN = "*tfevents*"
HEAD, SUM = 12, 4
# Kinds of numbers in a tensor: how its content is packed, and the field that holds it otherwise.
PACKED = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}
TABLE = list(range(256))
for _bit in range(8):
    TABLE = [crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1 for crc in TABLE]

SIGN = b":W&B"
BLOCK, BEFORE = 1 << 15, 7  # bytes of a block; before the first fragment, and before what each holds
FULL, FIRST, LAST = 1, 2, 4
HISTORY, EXIT = 2, 18
GLOBAL_STEPS = ("trainer/global_step", "train/global_step")  # W&B's own step counts calls, evaluations among them

VARINT, LENGTH = 0, 2  # wire types
SIZES = {1: 8, 5: 4}  # of the fixed ones


def masked(data: bytes) -> int:
    """Return the CRC32C of bytes as records hold it."""
    crc, table = 0xFFFFFFFF, TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def is_events(head: bytes) -> bool:
    """Return whether a file of these first bytes holds records."""
    return len(head) >= HEAD and masked(head[:8]) == int.from_bytes(head[8:HEAD], "little")


def event_files(path: Path) -> list[Path]:
    """List the event files in a folder, at most three folders deep."""
    return sorted(chain.from_iterable(path.glob(f"{'*/' * depth}{PATTERN}") for depth in range(4)))


def read_events(path: Path, digests: dict[str, str]) -> Log:
    """Read an event file, or a run's; refuse with `event-damaged` and the offset, `several-runs` or `no-rows`."""
    files = event_files(path) if path.is_dir() else [path]
    folders = sorted({file.parent for file in files}, key=lambda folder: (len(folder.parts), folder))
    # `add_scalars` writes each curve into a folder below its run's, under the same tag.
    if apart := [folder for folder in folders[1:] if folders[0] not in folder.parents]:
        raise several_runs(path, [folder.relative_to(path).as_posix() for folder in (folders[0], *apart)])
    below = [file.parent.relative_to(folders[0]).as_posix() for file in files]
    within = ["" if folder == "." else f"{folder}/" for folder in below]
    notes: dict[str, int] = {}  # filled as the records are read
    series = [_samples(file, prefix, digests, notes) for file, prefix in zip(files, within, strict=True)]
    return joined(path, series, facts={}, notes=notes)


def _samples(file: Path, prefix: str, digests: dict[str, str], notes: dict[str, int]) -> Iterator[Sample]:
    for at, data in _events(file, prefix, digests, notes):
        try:
            event = message(data)
            step, when = signed(event.get(2, 0)), float_of(part(event, 1) or bytes(8))
            for value in [value for number, value in fields(part(event, 5)) if number == 1]:
                found = message(value if isinstance(value, bytes) else b"")
                if (number := scalar(found)) is not None:
                    yield when, step, prefix + part(found, 1).decode("utf-8"), number
        except ValueError as problem:
            raise _damaged_events(file, at, f"a record is no event: {problem}") from None


def _events(file: Path, prefix: str, digests: dict[str, str], notes: dict[str, int]) -> Iterator[tuple[int, bytes]]:
    """Yield each record with where it begins; a torn one at the end is put into `notes`."""
    found: dict[str, str] = {}
    rest, at = b"", 0
    for block in chain(raw_blocks(file, found), [b""]):
        rest, taken = rest + block, 0
        while len(rest) - taken >= HEAD:
            size, check = struct.unpack_from("<QI", rest, taken)
            if check != masked(rest[taken : taken + 8]):
                raise _damaged_events(file, at + taken, "the CRC32C of a record's length is wrong")
            if size > MAX_RECORD:
                raise _damaged_events(file, at + taken, f"a record of {size} bytes, at most {MAX_RECORD} are read")
            end = taken + HEAD + size
            if len(rest) < end + SUM:
                break
            data = rest[taken + HEAD : end]
            if masked(data) != int.from_bytes(rest[end : end + SUM], "little"):
                raise _damaged_events(file, at + taken, "the CRC32C of a record is wrong")
            yield at + taken, data
            taken = end + SUM
        rest, at = rest[taken:], at + taken
    if rest:
        notes["torn_last_record_at"] = at
    digests[prefix + file.name] = found[file.name]


def scalar(value: dict[int, int | bytes]) -> float | None:
    """Return the number of a summary's value; None where it is a text, a picture, a histogram or a longer tensor."""
    if 2 in value:
        return float_of(part(value, 2))
    tensor = message(part(value, 8))
    form, kept = PACKED.get(signed(tensor.get(1, 0)), ("", 0))
    if not form or message(part(tensor, 2)):
        return None
    packed = part(tensor, 4) or (part(tensor, kept) if form in ("<f", "<d") else b"")
    if len(packed) == struct.calcsize(form):
        return float(struct.unpack(form, packed)[0])
    whole = tensor.get(kept)
    if form in ("<i", "<q") and whole is not None:
        return float(signed(whole if isinstance(whole, int) else varint(whole, 0)[0]))
    return None


def _damaged_events(file: Path, at: int, what: str) -> SubjectError:
    remedy = "fetch the file again; what a writer has flushed is whole but for its end"
    return SubjectError("event-damaged", what, where=f"{file} at byte {at}", remedy=remedy)


def read_wandb(path: Path, digests: dict[str, str]) -> Log:
    """Read a run's file; refuse with `wandb-damaged` and the offset, or `no-rows`."""
    table, facts, notes = StepTable(path), dict[str, Any](), dict[str, int]()
    for at, data in _records(path, digests, notes):
        try:
            found = message(data)
            if HISTORY in found:
                _add(table, part(found, HISTORY))
            if EXIT in found:
                failed = signed(message(part(found, EXIT)).get(1, 0))
                facts = {"status": "failed" if failed else "finished"}
        except ValueError as problem:
            raise _damaged_wandb(path, at, f"a record is none of W&B's: {problem}") from None
    log = table.log(facts=facts, notes=notes, units={})
    counted = any(_counts_on(log.columns[name]) for name in GLOBAL_STEPS if name in log.columns)
    return replace(log, columns={name: one for name, one in log.columns.items() if name != STEP or not counted})


def _counts_on(steps: Cells) -> bool:
    """Return whether every row has a step, the last a later one than the first, and none falls, as in a second run."""
    values = steps.values
    return MISSING not in steps.state and values[0] < values[-1] and all(map(operator.le, values, values[1:]))


def _add(table: StepTable, history: bytes) -> None:
    """Add one row: items by name, those inside others by dots."""
    cells, step = dict[str, object](), None
    for number, value in fields(history):
        if number == 2:
            step = signed(message(value if isinstance(value, bytes) else b"").get(1, 0))
        elif number == 1 and isinstance(value, bytes):
            names = [one for key, one in fields(value) if key in (1, 2) and isinstance(one, bytes)]
            cell = _cell(message(value))
            if isinstance(cell, (int, float, str)):
                cells[b".".join(names).decode("utf-8")] = cell
    table.add(step, {name: cell for name, cell in cells.items() if name != "_step"})


def _cell(item: dict[int, int | bytes]) -> object:
    if 5 in item:
        whole = item[5]
        return (whole >> 1) ^ -(whole & 1) if isinstance(whole, int) else None
    if 6 in item:
        return float_of(part(item, 6))
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
            raise _damaged_wandb(path, begun, f"a record of more than {MAX_RECORD} bytes")
        if kind in (FULL, LAST):
            yield begun, whole
            whole = b""
    if whole:
        notes.setdefault("torn_last_record_at", begun)


def _fragments(path: Path, digests: dict[str, str], notes: dict[str, int]) -> Iterator[tuple[int, int, bytes]]:
    at = 0
    for block in raw_blocks(path, digests, BLOCK):
        inside = BEFORE if at == 0 else 0
        if at == 0 and not block.startswith(SIGN + b"\xe1\xbe\x00"):
            raise _damaged_wandb(path, 0, "the file does not begin as version 0 of a W&B run does")
        while inside + BEFORE <= len(block):
            check, size, kind = struct.unpack_from("<IHB", block, inside)
            if (end := inside + BEFORE + size) > len(block):
                break
            if zlib.crc32(block[inside + 6 : end]) != check or not FULL <= kind <= LAST:
                raise _damaged_wandb(path, at + inside, "the CRC32 of a record is wrong")
            yield at + inside, kind, block[inside + BEFORE : end]
            inside = end
        if inside + BEFORE <= len(block) == BLOCK:
            raise _damaged_wandb(path, at + inside, "a record does not fit into its block")
        if inside < len(block) < BLOCK:
            notes["torn_last_record_at"] = at + inside
        at += len(block)


def _damaged_wandb(path: Path, at: int, what: str) -> SubjectError:
    remedy = "fetch the file again, or bind the history that W&B exports (wandb-history.jsonl, or CSV)"
    return SubjectError("wandb-damaged", what, where=f"{path} at byte {at}", remedy=remedy)


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield each field's number with its value: a number of a varint, else bytes; a ValueError says what is broken."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == VARINT:
            value, at = varint(data, at)
            yield number, value
            continue
        size = SIZES.get(wire, -1)
        if wire == LENGTH:
            size, at = varint(data, at)
        if not 0 <= size <= len(data) - at:
            raise ValueError(f"the field {number} is broken")
        yield number, data[at : at + size]
        at += size


def message(data: bytes) -> dict[int, int | bytes]:
    """Return fields by number, the last of each."""
    return dict(fields(data))


def part(found: dict[int, int | bytes], number: int) -> bytes:
    """Return a field of bytes, or nothing."""
    value = found.get(number, b"")
    return value if isinstance(value, bytes) else b""


def signed(value: int | bytes) -> int:
    """Return a varint as the 64-bit number with a sign that it is."""
    return (value ^ 1 << 63) - (1 << 63) if isinstance(value, int) else 0


def float_of(data: bytes) -> float:
    """Return eight bytes as a double and four as a float; a ValueError where they are neither."""
    if len(data) not in (4, 8):
        raise ValueError(f"{len(data)} bytes are no floating-point number")
    return float(struct.unpack("<d" if len(data) == 8 else "<f", data)[0])


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, the lowest first, and find the byte behind it."""
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value & (1 << 64) - 1, at + place + 1
    raise ValueError("a number has no end")
