"""Read all parts of a GGUF checkpoint as one, as gguf-split writes them; each one's name and header must agree."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from weighbridge.core import SubjectError, quoted
from weighbridge.formats import gguf_file
from weighbridge.formats.tensor import Reading, Tensor
from weighbridge.storage.readable import Folder, ReadableFile

SUFFIX = ".gguf"
PART = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
COUNT, NUMBER, TENSORS = "split.count", "split.no", "split.tensors.count"
MAX_PARTS = 1 << 10
NAMED = 3  # parts, in a message


def wholes(names: Iterable[str]) -> list[str]:
    """Return the GGUF checkpoints among files, sorted: of one in parts, the first part that is there."""
    found = dict[tuple[str, str], str]()
    for name in sorted(name for name in names if name.endswith(SUFFIX)):
        part = PART.fullmatch(name)
        found.setdefault((part["stem"], part["count"]) if part else (name, ""), name)
    return list(found.values())


def parse(file: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read a file, or all parts of which it is one, with the first's metadata; refuse with `gguf-…`, `shard-…`."""
    part, reading = PART.fullmatch(Path(file.name).name), gguf_file.read(file)
    many = reading.metadata.get(COUNT, 0)
    if (not isinstance(many, int) or many < 2) and (part is None or int(part["count"]) < 2):
        return reading, {file.name: file}
    if part is None or int(part["count"]) != many:
        by_name = f"part {int(part['number'])} of {int(part['count'])}" if part else "no part"
        says = f"its header says {COUNT} {many}" if COUNT in reading.metadata else f"its header has no {COUNT}"
        _refuse("shard-wrong", f"by its name it is {by_name}, and {says}", file)
    if many > MAX_PARTS:
        _refuse("shard-wrong", f"{COUNT} is {many}, more than the {MAX_PARTS} parts that are read", file)
    names = [f"{part['stem']}-{at:05}-of-{part['count']}{SUFFIX}" for at in range(1, int(part["count"]) + 1)]
    if absent := [name for name in names if not folder.holds(name)]:
        listed = ", ".join(map(quoted, absent[:NAMED])) + (", …" if len(absent) > NAMED else "")
        _refuse("shard-missing", f"{len(absent)} of {many} parts are not beside it: {listed}", file)
    files = [file if name == part[0] else folder.open(name) for name in names]
    readings = [reading if part is file else gguf_file.read(part) for part in files]
    whole = Reading(format=reading.format, tensors=_together(files, readings), metadata=readings[0].metadata)
    return whole, {part.name: part for part in files}


def _together(files: list[ReadableFile], readings: list[Reading]) -> dict[str, Tensor]:
    """Return the tensors of all parts, each of which must be the one that its name says."""
    tensors = dict[str, Tensor]()
    for number, (part, reading) in enumerate(zip(files, readings, strict=True)):
        said = reading.metadata.get(NUMBER), reading.metadata.get(COUNT)
        if said != (number, len(files)):
            what = f"its header says {NUMBER} {said[0]} (from 0) and {COUNT} {said[1]}"
            _refuse("shard-wrong", f"by its name it is part {number + 1} of {len(files)}, and {what}", part)
        if twice := reading.tensors.keys() & tensors.keys():
            _refuse("tensor-twice", f"{quoted(min(twice))} is in this part and in another", part)
        tensors |= reading.tensors
    declared = readings[0].metadata.get(TENSORS)
    if declared != len(tensors):
        _refuse("shard-wrong", f"{len(files)} parts hold {len(tensors)} tensors, {TENSORS} is {declared}", files[0])
    return tensors


def _refuse(code: str, what: str, file: ReadableFile) -> NoReturn:
    remedy = "fetch all parts of one split again, under the names that they had"
    raise SubjectError(code, what, where=file.name, remedy=remedy)
