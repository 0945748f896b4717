"""A run that was begun again: its attempts, joined into the log of one run."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weighbridge.core import Fields, Json, SubjectError, quoted
from weighbridge.run_logs.json_log import read_run_directory
from weighbridge.run_logs.log_file import no_rows
from weighbridge.run_logs.log_table import STEP, Cells, Log
from weighbridge.run_logs.run_end import run_end

ATTEMPT = re.compile(r"attempt-([1-9][0-9]{0,5})")
OF_ONE_RUN = ("model", "data")  # what differs in no attempt that goes on with the steps of another
OF_EACH = ("attempt", "first_step", "pid", "started")  # and what does by nature


def read_attempts(path: Path, digests: dict[str, str]) -> Log:
    """Read a run directory and its attempts: the rows of each stand for those of the earlier ones from its first on.

    Raises SubjectError where an attempt is missing, is one of another run, or goes on with another model or corpus.
    """
    folders = {int(found[1]): at for at in path.glob("attempt-*") if (found := ATTEMPT.fullmatch(at.name))}
    if not folders:
        return read_run_directory(path, digests)
    if missing := next((number for number in range(2, max(folders)) if number not in folders), 0):
        raise _refused(path, f"attempt-{missing} is missing, and attempt-{max(folders)} is there", "put it back")
    parts: list[Log] = []
    for at in (path, *(folders[number] for number in sorted(folders))):
        own: dict[str, str] = {}
        parts.append(read_run_directory(at, own, may_be_empty=True))
        digests.update({f"{at.name}/{name}" if at != path else name: digest for name, digest in own.items()})
        runs = [str(part.facts["run"]) for part in parts if "run" in part.facts]
        if runs and runs[-1] != runs[0]:
            what = f"{at.name} is of the run {quoted(runs[-1])}, the first attempt of {quoted(runs[0])}"
            raise _refused(path, what, "take it away")
    if not any(part.rows for part in parts):
        raise no_rows(path)
    return joined(parts, path)


def _refused(path: Path, what: str, remedy: str) -> SubjectError:
    return SubjectError("attempts", what, where=str(path), remedy=f"{remedy}, or bind one attempt by itself")


def joined(parts: Sequence[Log], path: Path) -> Log:
    """Join the attempts of a run, in their order; refuse where one goes on with another model or corpus."""
    last, before = parts[-1], math.inf
    kept: list[tuple[Log, list[int], float]] = []
    for part in reversed(parts):
        steps = part.columns.get(STEP, Cells(part.rows))
        rows = [row for row in range(part.rows) if before == math.inf or steps.values[row] < before]
        kept.insert(0, (part, rows, before))
        before = min((before, *steps.numbers()))
        other = next((name for name in OF_ONE_RUN if part.facts.get(name) != last.facts.get(name)), "")
        if rows and other:
            what = f"attempt {len(parts) + 1 - len(kept)} and the last one are joined, and their `{other}` differs"
            raise _refused(path, what, "record another model or corpus into another directory")
    ends = [run_end(part.facts, part.events, part.rows).ended for part in parts]
    joins = any(rows for _, rows, _ in kept[:-1])  # then the log begins before the first step of the last
    facts = {name: fact for name, fact in last.facts.items() if name != "first_step" or not joins}
    early = [(part, event, end) for part, _, end in kept for event in part.events if event.get("event") != "end"]
    of_step = ((event, event.get("step"), end) for part, event, end in early if part is not last)
    events = [event for event, step, end in of_step if isinstance(step, int) and step < end] + [*last.events]
    each = [dict(stated(part.facts)) for part in parts]
    names = sorted({name for one in each for name in one if one[name] != {}})
    parted = [name for name in names if any(one.get(name) != each[0].get(name) for one in each)]
    changed = [name for name in parted if name.rpartition(".")[2] not in OF_EACH]
    notes = {**last.notes, "attempts": len(parts), "attempts_ended": ", ".join(ends)}
    notes |= {"changed_between_attempts": ", ".join(changed)} if changed else {}
    more: dict[str, Any] = {"facts": facts, "events": tuple(events), "notes": notes}
    columns = {name: Cells() for part in parts for name in part.columns}
    for name, joined in columns.items():
        for part, rows, _ in kept:
            joined.add_rows(part.columns.get(name) or Cells(part.rows), rows)
    count = sum(len(rows) for _, rows, _ in kept)
    given = [part for part, rows, _ in kept if rows]
    more["heads"] = tuple(head for part in given for head in part.heads) if all(part.heads for part in given) else ()
    return dataclasses.replace(last, rows=count, columns=columns, **more)


def stated(facts: Fields, within: str = "") -> Iterator[tuple[str, Json]]:
    """Yield the facts of `run.json`, those of a section with its name before theirs; an empty section is one."""
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            yield from stated(value, f"{within}{name}.")
        else:
            yield f"{within}{name}", value
