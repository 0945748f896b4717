"""Read MLPerf's `:::MLLOG` lines, wherever they stand in a console's output. A row is a step, as its metadata count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from weighbridge.run_logs.json_log import bad_line, decode
from weighbridge.run_logs.log_file import batches
from weighbridge.run_logs.log_table import Log
from weighbridge.run_logs.step_table import StepTable

MARK = ":::MLLOG "
AXES = ("step_num", "samples_count", "epoch_num")  # what metadata count by; the one that most values have is the step
STOP = "run_stop"


class Event(NamedTuple):
    """What one line logs: numbers by name, what its metadata count, and all their numbers."""

    numbers: Mapping[str, object]
    counts: Mapping[str, int]
    beside: Mapping[str, object]


def read_mllog(path: Path, digests: dict[str, str]) -> Log:
    """Read all lines; refuse with `log-syntax` and the line. How the run ended is the status of its `run_stop`."""
    facts: dict[str, Any] = {}
    notes: dict[str, int] = {}
    events = list(_events(path, digests, facts, notes))
    logged = Counter(axis for event in events for axis in event.counts)
    axis = max(AXES, key=lambda name: (logged[name], -AXES.index(name)))
    table = StepTable(path)
    for event in events:
        if axis in event.counts:
            others = {name: count for name, count in event.beside.items() if name != axis and name not in event.numbers}
            table.add(event.counts[axis], event.numbers, others)
    elsewhere = sum(axis not in event.counts for event in events)
    counted = {**notes, **({"rows_not_by_that": elsewhere} if elsewhere else {})}
    return table.log(facts=facts, notes={"steps_are": axis, **counted}, units={})


def _events(path: Path, digests: dict[str, str], facts: dict[str, Any], notes: dict[str, int]) -> Iterator[Event]:
    """Yield what was logged with a count; what has none is a fact."""
    for batch in batches(path, digests):
        for number, line in enumerate(batch.lines, batch.first):
            at = line.find(MARK)
            if at < 0:
                continue
            try:
                said = decode(line[at + len(MARK) :].strip())
            except ValueError as problem:
                if not batch.terminated:
                    notes["torn_last_line"] = number
                    continue
                raise bad_line(path, number, f"not an MLLOG line: {problem}") from None
            if not isinstance(said, dict) or not isinstance(said.get("key"), str):
                raise bad_line(path, number, "not an MLLOG line: it has no key")
            yield from _event(said, facts)


def _event(said: Mapping[str, Any], facts: dict[str, Any]) -> Iterator[Event]:
    key, value, metadata = said["key"], said.get("value"), said.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if key == STOP:
        facts["status"] = str(metadata.get("status", ""))
    counts = {axis: metadata[axis] for axis in AXES if type(metadata.get(axis)) is int}
    beside = {name: one for name, one in metadata.items() if type(one) in (int, float) and name != "lineno"}
    many = value if isinstance(value, dict) else {key: value}
    numbers = {name: one for name, one in many.items() if type(one) in (int, float)}
    if counts and numbers:
        yield Event(numbers, counts, beside)
    elif isinstance(value, (str, int, float)) and key not in facts:
        facts[key] = value
