"""Read MLPerf's `:::MLLOG` lines, wherever they stand in a console's output. A row is a step, as its metadata count."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.run_logs.json_log import decode
from weighbridge.run_logs.log_file import bad_line, batches
from weighbridge.run_logs.log_table import Log, StepTable

MARK = ":::MLLOG "
AXES = ("step_num", "samples_count", "epoch_num")  # what metadata count by; the one that most values have is the step
STOP = "run_stop"
# What one line logs: numbers by name, what its metadata count, and all numbers of those.
Event: TypeAlias = tuple[Mapping[str, object], Mapping[str, int], Mapping[str, object]]


def read_mllog(path: Path, digests: dict[str, str]) -> Log:
    """Read all lines; refuse with `log-syntax` and the line. How the run ended is the status of its `run_stop`."""
    facts, notes = dict[str, Any](), dict[str, int]()
    events = list(_events(path, digests, facts, notes))
    logged = Counter(axis for _numbers, counts, _beside in events for axis in counts)
    axis = max(AXES, key=lambda name: (logged[name], -AXES.index(name))) if logged else ""
    table = StepTable(path)
    for numbers, counts, beside in events:
        if axis in counts or not axis:  # a share of an epoch is no step
            others = {name: count for name, count in beside.items() if name != axis and name not in numbers}
            table.add(counts.get(axis), numbers, others)
    if elsewhere := sum(axis not in counts for _numbers, counts, _beside in events) if axis else 0:
        notes["rows_not_by_that"] = elsewhere
    return table.log(facts=facts, notes={**({"steps_are": axis} if axis else {}), **notes}, units={})


def _events(path: Path, digests: dict[str, str], facts: dict[str, Any], notes: dict[str, int]) -> Iterator[Event]:
    """Yield what was logged with a count; what has none is a fact."""
    for batch in batches(path, digests):
        for number, line in enumerate(batch.lines, batch.first):
            if (at := line.find(MARK)) < 0:
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
            key, value, metadata = said["key"], said.get("value"), said.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            facts |= {"status": str(metadata.get("status", ""))} if key == STOP else {}
            counts = {axis: metadata[axis] for axis in AXES if type(metadata.get(axis)) is int}
            beside = {name: one for name, one in metadata.items() if type(one) in (int, float) and name != "lineno"}
            many = value if isinstance(value, dict) else {key: value}
            numbers = {name: one for name, one in many.items() if type(one) in (int, float)}
            interval = str(said.get("event_type")).startswith("INTERVAL")  # whose value is its own number
            if numbers and not interval and any(axis in beside for axis in AXES):
                yield numbers, counts, beside
            elif isinstance(value, (str, int, float)) and key not in facts:
                facts[key] = value
