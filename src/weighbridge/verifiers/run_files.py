"""The files that a run announced in its events, as they are now: analysis checkpoints, checkpoints, its probes."""

import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, WeighbridgeError, data, quoted, replace
from weighbridge.core.canonical import loads, sha256
from weighbridge.core.local_files import files_sha256, is_folder, read_regular_file
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import ANALYSIS, SNAPSHOT, FileState, RunFile
from weighbridge.run_logs.log_table import IS_NUMBER
from weighbridge.verifiers.verifier import Canary, NoCanary, Verifier, Views, table
from weighbridge.views.run import STEP, RunView

QUANTITY = "run_files"
MAX_BYTES, MAX_FILES, MAX_SAID = 64 << 20, 100_000, 200
PLACE = re.compile(rf"(?:attempt-[1-9][0-9]{{0,5}}/)?{ANALYSIS}/step-[0-9]{{7,16}}\.json")
SHORT = 4  # numbers of a long list of them that the schema is tried on: the others are of one type and between two
Found: TypeAlias = tuple[FileState, str]
Event: TypeAlias = Mapping[str, Any]
WHOLE: Found = (FileState.WHOLE, "")
LACKING = data.table("verifiers/lacking_files")


def measure(views: Views, options: Fields) -> Measurement | Unmeasured:
    """Return every file of `what` that an event names, and every analysis checkpoint that none does."""
    view, what = views[0], str(options["what"])
    if what == ANALYSIS and importlib.util.find_spec("jsonschema") is None:
        why = "analysis checkpoints are checked by jsonschema, which is not installed"
        return Unmeasured(code="needs-extra", why=why, remedy="pip install 'weighbridge[torch]'")
    found = {one.place: one for one in _rows(view, what)}
    if not found:
        code, why, call = LACKING[what]
        return Unmeasured(code=code, why=why, remedy=f"record it with {call}")
    return table(QUANTITY, list(found.values()), basis=view.basis)


def _rows(view: RunView, what: str) -> Iterator[RunFile]:
    look: Callable[..., Iterator[tuple[Event, str, Found]]]
    look = {"analysis": _snapshots, "checkpoint": _checkpoints, "probes": _probes}[what]
    cells = view.dense(STEP)
    steps = [int(step) for step, known in zip(cells.values, cells.state.translate(IS_NUMBER), strict=True) if known]
    for event, place, (state, why) in look(view, _events(view, what)):
        said = event.get("reasons")
        yield RunFile(
            place=place, step=event[STEP], state=state, why=why,
            reasons=tuple(str(one)[:MAX_SAID] for one in said[:8]) if isinstance(said, list) else (),
            first_step=min(steps, default=0), last_step=max(steps, default=0),
            earlier=_whole(event, "earlier"), probes=_whole(event, "probes"),
            latest=event["latest"] if type(event.get("latest")) is bool else None,
        )  # fmt: skip


def _whole(event: Event, name: str) -> int | None:
    return value if type(value := event.get(name)) is int else None


def _events(view: RunView, what: str) -> list[Event]:
    mine = [one for one in view.events if one.get("event") == what and type(one.get(STEP)) is int]
    named = (one for one in mine if isinstance(one.get("name"), str) and _whole(one, "earlier") is not None)
    return list(named) if what == "checkpoint" else mine


def _snapshots(view: RunView, events: list[Event]) -> Iterator[tuple[Event, str, Found]]:
    named = set()
    for event in events:
        place = str(event.get("file", f"step {event[STEP]}"))
        named.add(place)
        if refused := event.get("refused"):
            yield event, place, (FileState.OVER_BUDGET, str(refused)[:MAX_SAID])
        elif not PLACE.fullmatch(place) or view.folder is None:
            yield event, quoted(place[:MAX_SAID]), (FileState.DAMAGED, "is no file of a run directory")
        else:
            yield event, place, _snapshot(view.folder, place, event, view.facts)
    strange = sorted(set(_there(view.folder)) - named) if view.folder else []
    for place in strange[:MAX_FILES]:
        yield {STEP: -1}, place, (FileState.OF_ANOTHER, "no event of the run announces it")


def _there(folder: Path) -> Iterator[str]:
    for inside in (folder, *folder.glob("attempt-*")):
        if is_folder(inside / ANALYSIS):
            home = "" if inside == folder else f"{inside.name}/"
            names = (one.name for one in os.scandir(inside / ANALYSIS))
            yield from (f"{home}{ANALYSIS}/{name}" for name in names if not name.startswith("."))


def _snapshot(folder: Path, place: str, event: Event, facts: Fields) -> Found:
    """Return what one file is now, by the first thing that is wrong with it."""
    path = folder / place
    if path.is_symlink() or path.parent.is_symlink():
        return FileState.DAMAGED, "it is a link"
    try:
        data = read_regular_file(path, MAX_BYTES, WeighbridgeError)
        content = loads(data, spelled=False)
    except WeighbridgeError as problem:
        return (FileState.GONE, "it is gone") if problem.code == "file-missing" else (FileState.DAMAGED, problem.what)
    version = content.get("schema_version") if isinstance(content, Mapping) else None
    if version != SNAPSHOT:
        return FileState.OTHER_VERSION, f"its schema_version is {quoted(str(version)[:64])}, and {SNAPSHOT} is read"
    for wrong in _schema().iter_errors(_shortened(content)):
        at = "/".join(map(str, wrong.absolute_path)) or "the whole"
        return FileState.DAMAGED, f"{at[:MAX_SAID]}: {wrong.message[:MAX_SAID]}"
    if (own := facts.get("run")) != content["run"]:
        return FileState.OF_ANOTHER, f"it is of the run {content['run']}, and this is {quoted(str(own)[:64])}"
    if content[STEP] != event[STEP]:
        return FileState.OF_ANOTHER, f"it is of step {content[STEP]}, and was announced at step {event[STEP]}"
    same = sha256(data) == event.get("sha256")
    return WHOLE if same else (FileState.CHANGED, "its SHA-256 is not the one that the run announced")


def newest_snapshot(view: RunView) -> tuple[str, Fields] | None:
    """Return the newest analysis checkpoint that the run announced, and its content; None where it is not whole."""
    places = [(one, str(one["file"])) for one in _events(view, ANALYSIS) if "file" in one]
    if not places or view.folder is None or importlib.util.find_spec("jsonschema") is None:
        return None
    event, place = places[-1]
    whole = PLACE.fullmatch(place) and _snapshot(view.folder, place, event, view.facts) == WHOLE
    return (place, loads(read_regular_file(view.folder / place, MAX_BYTES, WeighbridgeError))) if whole else None


@functools.cache
def _schema() -> Any:
    import jsonschema

    schema = loads((data.data_path("spec") / f"{SNAPSHOT}.schema.json").read_bytes(), spelled=False)
    return jsonschema.Draft202012Validator(schema)


def _shortened(value: Any) -> Any:
    """Return a value in which lists of numbers of one type are their least, their greatest and the first ones."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    plain = SHORT < len(value) <= 256 and {type(one) for one in value} in ({int}, {float})
    return [min(value), max(value), *value[: SHORT - 2]] if plain else [_shortened(one) for one in value]


def _checkpoints(view: RunView, events: list[Event]) -> Iterator[tuple[Event, str, Found]]:
    """Yield every checkpoint; only the newest is read."""
    for event in events:
        said = event.get("path")
        path = view.folder / said if view.folder and isinstance(said, str) else None
        place = f"{quoted(event['name'][:MAX_SAID])}, step {event[STEP]}"
        if event is not events[-1]:
            yield event, place, (FileState.UNREAD, "the newest alone is read")
        elif path is None:
            yield event, place, (FileState.UNKNOWN, "it lies outside of the folder that the run is in")
        else:
            files = event.get("files")
            wanted = files.get("checkpoint") if isinstance(files, Mapping) else None
            try:
                same = files_sha256(path) == wanted
            except OSError:
                yield event, place, (FileState.GONE, "it cannot be read")
            else:
                yield event, place, WHOLE if same else (FileState.CHANGED, "its SHA-256 is not the one that was logged")


def _probes(view: RunView, events: list[Event]) -> Iterator[tuple[Event, str, Found]]:
    """Yield what the file of probes was at each look, against the digest that was sealed."""
    sealed = view.facts.get("digests")
    seal = sealed.get("probes") if isinstance(sealed, Mapping) else None
    for event in events:
        now, place = event.get("sha256"), f"probes at step {event[STEP]}"
        if seal is None:
            yield event, place, (FileState.UNKNOWN, "run.json holds no digest of the probes")
        elif now != seal:
            was = str(now)[:12] if now else "not to be read"
            state = FileState.CHANGED if now else FileState.GONE
            yield event, place, (state, f"the file was {was}, and {str(seal)[:12]} was sealed")
        elif refused := event.get("refused"):
            yield event, place, (FileState.DAMAGED, str(refused)[:MAX_SAID])
        else:
            yield event, place, WHOLE


def extent(views: Views, options: Fields) -> int:
    """Count the files, by their names alone."""
    view, what = views[0], str(options["what"])
    events = _events(view, what)
    if what != "analysis":
        return len({(one.get("name"), one[STEP]) for one in events})
    named = {str(one.get("file", f"step {one[STEP]}")) for one in events}
    return len(named | set(_there(view.folder) if view.folder else ()))


def canary(views: Views, options: Fields, measured: Measurement) -> Canary | NoCanary:
    """Announce the last whole one with another digest, beside the one before it."""
    view, what = views[0], str(options["what"])
    rows, events = rows_of(measured, RunFile), _events(view, what)
    whole = [row for row in rows if row.state is FileState.WHOLE]
    if not whole:
        return NoCanary("none of its files is whole")
    last = whole[-1]
    at = max(number for number, one in enumerate(events) if one[STEP] == last.step)
    strange = {"sha256": "0" * 64} if what != "checkpoint" else {"files": {"checkpoint": "0" * 64}}
    damaged = view.with_events([*events[:at][-1:], {**events[at], **strange}])
    before = [row for row in rows if at and row.step == events[at - 1][STEP]]

    def seen(again: Measurement | Unmeasured) -> bool:
        found = {row.place: row for row in rows_of(again, RunFile)}
        changed = found[last.place]
        kept = all(found[row.place] == row for row in before)
        return kept and changed == replace(last, state=FileState.CHANGED, why=changed.why)

    return Canary(name="another digest of the last one", place=last.place, views=(damaged,), seen=seen)


VERIFIER = Verifier(quantity=QUANTITY, kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
