"""device_evidence: what the recorder's probes of a run found of the device, one row a probe; asks no device itself."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from weighbridge.core import Basis, Fields, Measurement, SubjectError, SubjectKind, Unmeasured, plain, replace
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import DeviceProbe, Witness
from weighbridge.verifiers.corpus_progress import announced_steps
from weighbridge.verifiers.run_facts import failures
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.run import STEP, RunView

DEVICE = "device"
COUNTS = ("parameters", "buffers", "gradients", "optimizer", "optimizer_scalars", "updated", "ops", "bookkeeping")
SHOWN = 200


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Describe every probe of the run; refuse with `device-event` one of another form than the recorder's."""
    facts, events = views[0].facts, _probes(views[0].events)
    pid = facts.get("pid")
    if type(pid) is not int:
        why = "the log carries no process id, so no outside witness can be bound to it"
        remedy = "record the run with weighbridge.recorder; a log of another trainer is for builtin:training-log"
        return Unmeasured(code="no-pid", why=why, remedy=remedy)
    if failure := next(failures(views[0], DEVICE), None):
        why = f"the recorder failed at step {failure.get('step')}: {_text(failure.get('what')) or 'no reason'}"
        remedy = "mend what the recorder-failure event in events.jsonl names, and record the run again"
        return Unmeasured(code="recorder-failed", why=why, remedy=remedy)
    seen: Counter[str] = Counter()
    rows, of_run = [], _of_run(views[0])
    for event in events or [{}]:
        place = f"step {event.get('step')}" if event else "run"
        seen[place] += 1
        name = place if seen[place] == 1 else f"{place} ({seen[place]})"
        of = event.get("pid", pid)  # of a run that was started again, that of the attempt
        rows.append(_probe(event, facts, {**of_run, "pid": of if type(of) is int else pid, "place": name}))
    found = table("device_evidence", rows, at="end of the probed step")
    return replace(found, by="recorder", basis=dict.fromkeys(("requested", "resolved"), Basis.REPORTED))


def _probes(events: Sequence[Fields]) -> list[Fields]:
    return [event for event in events if event.get("event") == DEVICE]


def _of_run(view: RunView) -> Mapping[str, Any]:
    """Return what every probe of a run is compared with: the steps that were logged, and failures of the recorder."""
    steps = logged.step if (logged := view.column(STEP)) is not None else ()
    span = {"first_step": min(steps, default=None), "last_step": max(steps, default=None), "steps": len(set(steps))}
    return {**span, "announced_steps": announced_steps(view), "failures": sum(1 for _ in failures(view, DEVICE))}


def _probe(event: Fields, facts: Fields, known: Mapping[str, Any]) -> DeviceProbe:
    size, names, why, step = event.get("allocated_bytes"), event.get("op_names"), event.get("why"), event.get("step")
    named = names if isinstance(names, Mapping) else {}
    found: dict[str, Any] = {name: _text(facts.get(f"{name}_device")) for name in ("requested", "resolved")}
    found |= {"dispatch": _text(event.get("dispatch")), "step": step if type(step) is int else None}
    found |= {name: _counted(event, name) for name in COUNTS}
    found["op_names"] = {device: tuple(map(_text, ops)) for device, ops in named.items() if isinstance(ops, Mapping)}
    found["allocated_bytes"] = None if size is None else _whole(event, "allocated_bytes", size)
    found["witnesses"] = tuple(_witness(event, witness) for witness in _listed(event, "witnesses"))
    found["why"] = {_text(name): _text(reason) for name, reason in why.items()} if isinstance(why, Mapping) else {}
    return DeviceProbe(**known, **found)


def _refuse(event: Fields, key: str, form: str) -> SubjectError:
    what = f"{key} of the device event at step {event.get('step')} is not {form}"
    remedy = "write device events as weighbridge.recorder does (spec/run-directory.md)"
    return SubjectError("device-event", what, where="events.jsonl", remedy=remedy)


def _counted(event: Fields, key: str) -> Mapping[str, int] | None:
    counts = event.get(key)
    if counts is None:
        return None
    if not isinstance(counts, Mapping):
        raise _refuse(event, key, "whole numbers by device")
    return {device: _whole(event, key, n) for device, n in counts.items()}


def _whole(event: Fields, key: str, number: object) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise _refuse(event, key, "a whole number, or whole numbers by device")
    return number


def _listed(event: Fields, key: str) -> Sequence[Any]:
    listed = event.get(key, ())
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise _refuse(event, key, "a list")
    return listed


def _witness(event: Fields, witness: object) -> Witness:
    if not isinstance(witness, Mapping) or not isinstance(witness.get("by"), str):
        raise _refuse(event, "witnesses", "a list of witnesses with a name each (by)")
    pid, inside = witness.get("pid"), {**witness, "step": event.get("step")}
    used: Any = witness.get("used_mib")
    used = used if type(used) in (int, float) and 0 <= used < math.inf else None
    files = tuple(map(_text, _listed(inside, "files"))) if "files" in witness else None
    return Witness(by=_text(witness["by"]), pid=pid if type(pid) is int else None, used_mib=used, files=files)


def _text(value: object) -> str:
    return value[:SHOWN] if isinstance(value, str) else ""


def extent(views: Views, _options: Fields) -> int:
    """Count the run's probes; a run without one is one place that shows so."""
    return len(_probes(views[0].events)) or 1


def canary(views: Views, _options: Fields, measured: Measurement) -> Canary:
    """Replace the last of a few probes by one that found everything elsewhere, and the facts' device by another."""
    view = views[0]
    kept = _probes(view.events)[-3:]
    step = kept[-1].get("step") if kept else 0
    counts: dict[str, Any] = {name: {"cpu": 3, "meta": 1 + place, "xla": 5} for place, name in enumerate(COUNTS)}
    witness = Witness(by="canary", pid=1, used_mib=0.5, files=("/dev/null",))
    found: Mapping[str, Any] = {**counts, "dispatch": "canary", "allocated_bytes": 1, "op_names": {}, "why": {}}
    probe = {"event": DEVICE, "step": step, **found, "witnesses": [plain(witness)]}
    damaged = view.with_events([*kept[:-1], probe])
    facts = {**view.facts, "requested_device": "canary", "resolved_device": "meta", "pid": 1}
    # Written by hand: an expectation from this instrument's own code would be as blind as the instrument.
    of_probe: dict[str, Any] = {**_of_run(damaged), **found, "step": step if type(step) is int else None}
    expected = DeviceProbe(place="", witnesses=(witness,), requested="canary", resolved="meta", pid=1, **of_probe)

    def seen(result: Measurement | Unmeasured) -> bool:
        rows = rows_of(result, DeviceProbe)
        if len(rows) != max(len(kept), 1) or replace(rows[-1], place="") != expected:
            return False
        others = zip(rows[:-1], kept[:-1], strict=True)
        return all(getattr(row, name) == probe.get(name) for row, probe in others for name in COUNTS)

    place, views = [*rows_by_name(measured)][-1], (replace(damaged, facts=facts),)
    return Canary(name="a probe that found everything elsewhere", place=place, views=views, seen=seen)


VERIFIER = Verifier(quantity="device_evidence", kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
