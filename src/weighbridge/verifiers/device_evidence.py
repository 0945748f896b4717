"""device_evidence: what a run's probes found of the device that its work was on, one row a probe.

Reads what the recorder wrote while the process lived; it asks no device itself and decides nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from weighbridge.core.errors import SubjectError
from weighbridge.core.limits import plain
from weighbridge.core.model import Basis, Fields, Measurement, Rows, SubjectKind, Unmeasured
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import DeviceProbe, Witness
from weighbridge.verifiers.corpus_progress import announced_steps
from weighbridge.verifiers.verifier import Canary, Verifier, Views
from weighbridge.views.run import STEP, RunView

DEVICE = "device"
FAILURE = "recorder-failure"
COUNTS = ("parameters", "buffers", "gradients", "optimizer", "optimizer_scalars", "ops", "bookkeeping")
NO_PROBE = "run"  # the place of a run that was never probed
CANARY_PROBES = 3
SHOWN = 200


def measure(views: Views, _options: Fields) -> Measurement | Unmeasured:
    """Lay out every probe of the run, with what was asked for and what it resolved to.

    Raises:
        SubjectError: `device-event` for a probe that is not of the form that the recorder writes.
    """
    facts, events = views[0].facts, _probes(views[0].events)
    pid = facts.get("pid")
    if type(pid) is not int:
        return Unmeasured(
            code="no-pid",
            why="the log carries no process id, so no outside witness can be bound to it",
            remedy="record the run with weighbridge.recorder",
        )
    failure = next((event for event in views[0].events if _costs_evidence(event)), None)
    if failure is not None:
        return Unmeasured(
            code="recorder-failed",
            why=f"the recorder failed at step {failure.get('step')}: {_text(failure.get('what')) or 'no reason'}",
            remedy="mend what the recorder-failure event in events.jsonl names, and record the run again",
        )
    seen: Counter[str] = Counter()
    rows, of_run = [], _of_run(views[0])
    for event in events or [{}]:
        place = f"step {event.get('step')}" if event else NO_PROBE
        seen[place] += 1
        name = place if seen[place] == 1 else f"{place} ({seen[place]})"
        rows.append(dataclasses.replace(_probe(event, facts, pid, name), **of_run))
    return Measurement(
        quantity="device_evidence",
        value=Rows("place", tuple(rows)),
        by="recorder",
        at="end of the probed step",
        basis={"requested": Basis.REPORTED, "resolved": Basis.REPORTED},
        examined=len(rows),
        total=len(rows),
    )


def _probes(events: Sequence[Fields]) -> list[Fields]:
    return [event for event in events if event.get("event") == DEVICE]


def _costs_evidence(event: Fields) -> bool:
    costs = event.get("costs")
    spared = isinstance(costs, Sequence) and not isinstance(costs, str) and DEVICE not in costs
    return event.get("event") == FAILURE and not spared


def _of_run(view: RunView) -> Mapping[str, Any]:
    """Return what every probe of a run is held against: the steps that were logged, and failures of the recorder."""
    logged = view.column(STEP)
    steps = logged.step if logged is not None else ()
    return {
        "first_step": min(steps, default=None),
        "last_step": max(steps, default=None),
        "failures": sum(event.get("event") == "recorder-failure" for event in view.events),
        "steps": len(set(steps)),
        "announced_steps": announced_steps(view),
    }


def _probe(event: Fields, facts: Fields, pid: int, place: str) -> DeviceProbe:
    size, names, why = event.get("allocated_bytes"), event.get("op_names"), event.get("why")
    step: Any = event.get("step")
    named = names if isinstance(names, Mapping) else {}
    return DeviceProbe(
        place=place,
        step=step if type(step) is int else None,
        first_step=None,
        last_step=None,
        steps=0,
        announced_steps=None,
        failures=0,
        requested=_text(facts.get("requested_device")),
        resolved=_text(facts.get("resolved_device")),
        pid=pid,
        **{name: _counted(event, name) for name in COUNTS},
        op_names={device: tuple(map(_text, ops)) for device, ops in named.items() if isinstance(ops, Mapping)},
        dispatch=_text(event.get("dispatch")),
        allocated_bytes=None if size is None else _whole(event, "allocated_bytes", size),
        witnesses=tuple(_witness(event, witness) for witness in _listed(event, "witnesses")),
        why={_text(name): _text(reason) for name, reason in why.items()} if isinstance(why, Mapping) else {},
    )


def _refuse(event: Fields, key: str, form: str) -> SubjectError:
    return SubjectError(
        "device-event",
        f"{key} of the device event at step {event.get('step')} is not {form}",
        where="events.jsonl",
        remedy="write device events as weighbridge.recorder does (spec/run-directory.md)",
    )


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
    return Witness(
        by=_text(witness["by"]),
        pid=pid if type(pid) is int else None,
        used_mib=used if type(used) in (int, float) and 0 <= used < math.inf else None,
        files=tuple(map(_text, _listed(inside, "files"))) if "files" in witness else None,
    )


def _text(value: object) -> str:
    return value[:SHOWN] if isinstance(value, str) else ""


def extent(views: Views, _options: Fields) -> int:
    """Count the run's probes; a run without one is one place that shows so."""
    probes = sum(event.get("event") == DEVICE for event in views[0].events)
    return max(int(probes), 1)


def canary(views: Views, _options: Fields, measured: Measurement) -> Canary:
    """Lay a probe that found everything elsewhere over the last of a few probes, and another device over the facts."""
    view = views[0]
    kept = _probes(view.events)[-CANARY_PROBES:]
    step = kept[-1].get("step") if kept else 0
    counts: dict[str, Any] = {name: {"cpu": 3, "meta": 1 + place, "xla": 5} for place, name in enumerate(COUNTS)}
    witness = Witness(by="canary", pid=1, used_mib=0.5, files=("/dev/null",))
    found: Fields = {**counts, "dispatch": "canary", "allocated_bytes": 1, "witnesses": [plain(witness)]}
    laid = view.with_events([*kept[:-1], {"event": DEVICE, "step": step, **found, "op_names": {}, "why": {}}])
    facts = {**view.facts, "requested_device": "canary", "resolved_device": "meta", "pid": 1}
    # Written by hand: an expectation from this instrument's own code would be as blind as the instrument.
    expected = DeviceProbe(
        place="", requested="canary", resolved="meta", pid=1, **counts, op_names={}, dispatch="canary",
        allocated_bytes=1, witnesses=(witness,), why={}, step=step if type(step) is int else None, **_of_run(laid),
    )  # fmt: skip

    def seen(result: Measurement | Unmeasured) -> bool:
        rows = rows_of(result, DeviceProbe) if isinstance(result, Measurement) else ()
        if len(rows) != max(len(kept), 1) or dataclasses.replace(rows[-1], place="") != expected:
            return False
        others = zip(rows[:-1], kept[:-1], strict=True)
        return all(getattr(row, name) == probe.get(name) for row, probe in others for name in COUNTS)

    return Canary(
        name="a probe that found everything elsewhere",
        place=measured.value.places()[-1] if isinstance(measured.value, Rows) else "",
        views=(dataclasses.replace(laid, facts=facts),),
        seen=seen,
    )


VERIFIER = Verifier(quantity="device_evidence", kinds=(SubjectKind.RUN,), measure=measure, extent=extent, canary=canary)
