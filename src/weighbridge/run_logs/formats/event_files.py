"""Read TensorBoard's event files, one or a folder of them: scalars, by `simple_value` or as a tensor.

A record is its length, the length's masked CRC32C, its bytes and their masked CRC32C. A writer that dies, or is still
at work, leaves a torn one at the end; a sum that is wrong anywhere is damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from weighbridge.core import SubjectError
from weighbridge.run_logs.formats import wire_fields
from weighbridge.run_logs.formats.wire_fields import float_of, part, signed
from weighbridge.run_logs.log_file import raw_blocks, several_runs
from weighbridge.run_logs.log_table import Log
from weighbridge.run_logs.step_table import Sample, joined

PATTERN = "*tfevents*"
MAX_RECORD = 256 << 20  # pictures are records, too
HEAD, SUM = 12, 4
# Kinds of numbers in a tensor: how its content is packed, and the field that holds it otherwise.
PACKED = {1: ("<f", 5), 2: ("<d", 6), 3: ("<i", 7), 9: ("<q", 10), 19: ("<e", 13)}
TABLE = list(range(256))
for _bit in range(8):
    TABLE = [crc >> 1 ^ 0x82F63B78 if crc & 1 else crc >> 1 for crc in TABLE]


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
    for at, data in records(file, prefix, digests, notes):
        try:
            event = wire_fields.of(data)
            step, when = signed(event.get(2, 0)), float_of(part(event, 1) or bytes(8))
            for value in [value for number, value in wire_fields.fields(part(event, 5)) if number == 1]:
                found = wire_fields.of(value if isinstance(value, bytes) else b"")
                if (number := scalar(found)) is not None:
                    yield when, step, prefix + part(found, 1).decode("utf-8"), number
        except ValueError as problem:
            raise _damaged(file, at, f"a record is no event: {problem}") from None


def records(file: Path, prefix: str, digests: dict[str, str], notes: dict[str, int]) -> Iterator[tuple[int, bytes]]:
    """Yield each record with where it begins; a torn one at the end is put into `notes`."""
    found: dict[str, str] = {}
    rest, at = b"", 0
    for block in chain(raw_blocks(file, found), [b""]):
        rest, taken = rest + block, 0
        while len(rest) - taken >= HEAD:
            size, check = struct.unpack_from("<QI", rest, taken)
            if check != masked(rest[taken : taken + 8]):
                raise _damaged(file, at + taken, "the CRC32C of a record's length is wrong")
            if size > MAX_RECORD:
                raise _damaged(file, at + taken, f"a record of {size} bytes, at most {MAX_RECORD} are read")
            end = taken + HEAD + size
            if len(rest) < end + SUM:
                break
            data = rest[taken + HEAD : end]
            if masked(data) != int.from_bytes(rest[end : end + SUM], "little"):
                raise _damaged(file, at + taken, "the CRC32C of a record is wrong")
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
    tensor = wire_fields.of(part(value, 8))
    form, kept = PACKED.get(signed(tensor.get(1, 0)), ("", 0))
    if not form or wire_fields.of(part(tensor, 2)):
        return None
    packed = part(tensor, 4) or (part(tensor, kept) if form in ("<f", "<d") else b"")
    if len(packed) == struct.calcsize(form):
        return float(struct.unpack(form, packed)[0])
    whole = tensor.get(kept)
    if form in ("<i", "<q") and whole is not None:
        return float(signed(whole if isinstance(whole, int) else wire_fields.varint(whole, 0)[0]))
    return None


def _damaged(file: Path, at: int, what: str) -> SubjectError:
    remedy = "fetch the file again; what a writer has flushed is whole but for its end"
    return SubjectError("event-damaged", what, where=f"{file} at byte {at}", remedy=remedy)
