"""no-silent-cpu-fallback: did a run do its work on the device that it asked for?

Its own books (tensors, op results, allocated memory) and somebody outside it must agree. What the books deny is FAIL on
every host; what nobody outside confirms is BLOCKED, never PASS.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, blocked, codes, failed, passed, rows_of
from weighbridge.clauses.mutations import Way, in_rows, row_moves, table_moves
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict
from weighbridge.quantities.runs import DeviceProbe, Witness

MIB = 1 << 20
HELD = ("parameters", "buffers", "gradients", "optimizer")  # bytes by device
CPU, AUTO = "cpu", "auto"
CONTEXT = (re.compile(r"/dev/nvidia\d+"), re.compile(r"/dev/nvidia-uvm"))  # both are open while CUDA has a context
OPEN_IN_CUDA = ("/dev/nvidia0", "/dev/nvidia-uvm")
ROCM = (re.compile(r"/dev/kfd"), re.compile(r"/dev/dri/renderD\d+"))
Counts: TypeAlias = Mapping[str, int] | None


# --- How what a limit bounds is moved ---------------------------------------------------------------------------------


def _little_held(row: DeviceProbe, _limits: Limits, mib: float) -> DeviceProbe | None:
    """Leave one byte of parameters, so that only the limit asks for more memory."""
    held = math.floor(mib * MIB)
    return None if row.resolved == CPU else replace(row, parameters={row.resolved: 1}, allocated_bytes=held)


def _little_seen(row: DeviceProbe, limits: Limits, mib: float) -> DeviceProbe | None:
    driver = Witness(by="nvml", pid=row.pid, used_mib=mib, files=None)
    return None if row.resolved == CPU else _instead(row, limits, driver)


def _few_witnesses(row: DeviceProbe, limits: Limits, kinds: int) -> DeviceProbe:
    """Leave so many kinds of witness, each of them twice."""
    return replace(row, witnesses=_confirming(row, limits)[:kinds] * 2)


def _host_ops(row: DeviceProbe, _limits: Limits, ops: int) -> DeviceProbe | None:
    return None if row.resolved == CPU else replace(row, ops={**(row.ops or {}), CPU: ops})


def _few_probes(rows: Sequence[DeviceProbe], count: int) -> list[DeviceProbe] | None:
    """Return probes of so many steps: the same ones again in place of the others."""
    steps = sorted({row.step for row in rows if row.step is not None})[:count]
    if not 0 < count == len(steps):
        return None
    return [
        replace(row, step=steps[at % count], last_step=steps[-1], steps=1000, announced_steps=1000)
        for at, row in enumerate(rows)
    ]


def _long_after(rows: Sequence[DeviceProbe], steps: int) -> list[DeviceProbe]:
    """Return the probes of a run that goes on for so many steps after its last one."""
    last = max((row.step for row in rows if row.step is not None), default=0) + steps
    return [replace(row, last_step=last) for row in rows]


def _confirming(row: DeviceProbe, limits: Limits) -> tuple[Witness, ...]:
    """Return a witness of each kind that can confirm the device."""
    files = Witness(by="device-files", pid=row.pid, used_mib=None, files=() if row.resolved == CPU else OPEN_IN_CUDA)
    driver = Witness(by="nvml", pid=row.pid, used_mib=limits.min_device_memory_mib, files=None)
    return (files,) if row.resolved == CPU else (files, driver)


def _instead(row: DeviceProbe, limits: Limits, witness: Witness) -> DeviceProbe:
    """Put a witness that confirms nothing in the place of one that is needed."""
    others = [one for one in _confirming(row, limits) if one.by != witness.by][: limits.external_witnesses - 1]
    return replace(row, witnesses=(*others, witness))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was asked for, and what must show that it was had."""

    requested: Annotated[
        str, Doc("the device that the run is to have asked for", pattern=r"cpu|cuda(:[0-9]+)?|mps|auto")
    ]
    min_device_memory_mib: Annotated[
        float,
        Doc("memory that the device must have held", unit="MiB", ge=0.01, le=1e7, must="at least",
            moves=row_moves("probes", DeviceProbe, Way("less memory held", "memory", _little_held),
                          Way("less memory seen by the driver", "no-witness", _little_seen, Outcome.BLOCKED))),
    ] = 1.0  # fmt: skip
    external_witnesses: Annotated[
        int,
        Doc("kinds of witness outside the training code that must confirm it", ge=1, le=2,
            must="at least",
            moves=row_moves("probes", DeviceProbe, Way("too few", "no-witness", _few_witnesses, Outcome.BLOCKED))),
    ] = 1  # fmt: skip
    min_probes: Annotated[
        int,
        Doc("different steps that must have been probed", ge=1, le=1000, must="at least",
            moves=table_moves("too few", "few-probes", "probes", DeviceProbe, change=_few_probes,
                              outcome=Outcome.BLOCKED)),
    ] = 2  # fmt: skip
    max_unprobed_steps: Annotated[
        int,
        Doc("most steps between one probe and the next, and after the last", ge=1, le=100000,
            must="at most",
            moves=table_moves("at the end", "few-probes", "probes", DeviceProbe, change=_long_after,
                              outcome=Outcome.BLOCKED)),
    ] = 1000  # fmt: skip
    allowed_host_ops: Annotated[
        int,
        Doc("floating-point ops of a probed step that may give their result on the host", ge=0, le=1000,
            must="at most", moves=row_moves("probes", DeviceProbe, Way("too many", "ops", _host_ops))),
    ] = 0  # fmt: skip


def check(limits: Limits, _measure: object) -> list[str]:
    """Return what no run could satisfy."""
    if limits.requested == CPU and limits.external_witnesses > 1:
        return ["external_witnesses: a run on the CPU has one outside witness, its list of open device files"]
    if limits.requested == "mps":
        return ["requested: no outside witness is known for mps, so every run would be BLOCKED"]
    return []


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Return FAIL where the books of a probe deny its device, BLOCKED where nobody confirms it, PASS otherwise."""
    rows = rows_of(evidence, "probes", DeviceProbe)
    if not rows:
        return blocked("no-probe", {"absent": "any probe of the run"})
    looked = [row.place for row in rows]
    denied = [found for row in rows if (found := _denial(row, limits))]
    if denied:
        return failed(denied, looked=looked, unit="probes")
    gap = _unprobed(rows, limits)
    if gap:
        return blocked(*gap)
    unseen = [found for row in rows if (found := _unseen(row, limits))]
    if unseen:
        return blocked(unseen[0].code, offences=unseen, counted=len(rows) - len(unseen), of=len(rows), unit="probes")
    summary: Fields = {
        "asked": sorted({row.requested for row in rows}),
        "resolved": sorted({row.resolved for row in rows}),
        "ops": sum(_total(row.ops) for row in rows),
        "witnesses": sorted({by for row in rows for by in _heard(row, limits)}),
        "pid": sorted({row.pid for row in rows}),
    }
    return passed(looked=looked, unit="probes", figures=summary)


def _unprobed(rows: Sequence[DeviceProbe], limits: Limits) -> tuple[str, Fields] | None:
    """Return how the probes do not tell of the whole run: what was not recorded, and steps that none is near."""
    run = rows[0]
    told: Fields = {"steps": run.steps, "announced": run.announced_steps, "failures": run.failures}
    if any(row.failures for row in rows):
        return "recorder-failure", told
    if any(row.announced_steps not in (None, row.steps) for row in rows):
        return "steps-not-recorded", told
    outside = [row.place for row in rows if not _ends(row)]
    if outside:
        return "outside-run", {"probes": outside, "first_step": run.first_step, "last_step": run.last_step}
    marks = sorted(mark for row in rows for mark in _ends(row))
    apart = max(after - before for before, after in itertools.pairwise(marks))
    probed = len({row.step for row in rows})
    if probed < min(limits.min_probes, run.steps) or apart > limits.max_unprobed_steps:
        needed: Fields = {"needed": limits.min_probes, "allowed": limits.max_unprobed_steps}
        return "few-probes", {"probes": probed, "apart": apart, **needed}
    return None


def _ends(row: DeviceProbe) -> tuple[int, ...]:
    """Return the first step of the run, the probed one and the last, or nothing where the run did not log it."""
    if row.first_step is None or row.step is None or row.last_step is None:
        return ()
    ends = row.first_step, row.step, row.last_step
    return ends if row.first_step <= row.step <= row.last_step else ()


def matches(device: str, wanted: str) -> bool:
    """Return whether a device is the one wanted; a kind without index (`cuda`) wants any of its devices."""
    return wanted in (device, device.partition(":")[0])


def _target(row: DeviceProbe) -> str:
    """Return the device that the work must be on: the one asked for, or the one that `auto` resolved to."""
    return row.resolved if row.requested == AUTO else row.requested


def _total(counts: Counts) -> int:
    return sum((counts or {}).values())


def _needed_bytes(row: DeviceProbe, limits: Limits) -> float:
    """Return how much the device must have held: the limit, and at least the parameters that are said to be on it."""
    return 0.0 if matches(_target(row), CPU) else max(limits.min_device_memory_mib * MIB, _total(row.parameters))


def _denial(row: DeviceProbe, limits: Limits) -> Offence | None:
    """Return what the run's own books deny of the device."""

    def denied(code: str, **figures: Json) -> Offence:
        asked: Fields = {"requested": row.requested, "resolved": row.resolved, "contract": limits.requested}
        return Offence(place=row.place, code=code, figures={**asked, **figures})

    if not matches(row.requested, limits.requested):
        return denied("requested")
    if not matches(row.resolved, _target(row)):
        return denied("resolved")
    for part in HELD:
        counts: Counts = getattr(row, part)
        elsewhere = _elsewhere(counts, _target(row))
        if elsewhere:
            return denied(part, elsewhere=elsewhere, bytes=_total(elsewhere), of=_total(counts))
    strays = _elsewhere(row.ops, _target(row))
    if strays and (strays.keys() - {CPU} or strays[CPU] > limits.allowed_host_ops):
        named = {device: row.op_names[device] for device in strays if device in row.op_names}
        of, allowed = _total(row.ops), limits.allowed_host_ops
        return denied("ops", elsewhere=strays, ops=_total(strays), of=of, named=named, allowed=allowed)
    needed, held = _needed_bytes(row, limits), row.allocated_bytes
    if held is not None and held < needed:
        return denied("memory", held_mib=held / MIB, needed_mib=needed / MIB)
    return None


def _elsewhere(counts: Counts, wanted: str) -> dict[str, int]:
    return {device: n for device, n in (counts or {}).items() if n and not matches(device, wanted)}


def _unseen(row: DeviceProbe, limits: Limits) -> Offence | None:
    """Return what nobody showed of the device."""

    def unseen(code: str, **figures: Json) -> Offence:
        return Offence(place=row.place, code=code, figures={**figures, "why": row.why or "no reason is recorded"})

    if not _total(row.parameters):
        return unseen("no-probe", absent="where the parameters are")
    if row.buffers is None:
        return unseen("no-probe", absent="where the buffers are")
    if not _total(row.gradients):
        return unseen("no-probe", absent="where the gradients are")
    if row.optimizer is None:
        return unseen("no-probe", absent="where the optimizer's state is")
    if _needed_bytes(row, limits) and row.allocated_bytes is None:
        return unseen("no-probe", absent="how much memory the device held")
    done = sum(n for device, n in (row.ops or {}).items() if matches(device, _target(row)))
    if row.dispatch != "audited" or not done:
        return unseen("not-audited", ops=done, target=_target(row))
    heard = _heard(row, limits)
    if len(heard) < limits.external_witnesses:
        return unseen("no-witness", heard=heard, count=len(heard), needed=limits.external_witnesses, pid=row.pid)
    return None


def _heard(row: DeviceProbe, limits: Limits) -> list[str]:
    """Return the kinds of witness that confirm the device; each counts once, however many devices it speaks of."""
    return sorted({witness.by for witness in row.witnesses if _confirms(witness, row, limits)})


def _confirms(witness: Witness, row: DeviceProbe, limits: Limits) -> bool:
    wanted = _target(row).partition(":")[0]
    if witness.pid != row.pid:
        return False
    if witness.by == "nvml" and wanted == "cuda":
        return witness.used_mib is not None and witness.used_mib >= limits.min_device_memory_mib
    if witness.by != "device-files" or witness.files is None:
        return False
    if wanted == CPU:
        return not witness.files
    return any(all(any(form.fullmatch(file) for file in witness.files) for form in forms) for forms in (CONTEXT, ROCM))


# --- How what no limit bounds is broken -------------------------------------------------------------------------------

Change: TypeAlias = Callable[[DeviceProbe, Limits], DeviceProbe | None]


def _other(row: DeviceProbe) -> str:
    """Return a device as near to the wanted one as can be, that is not it."""
    if row.resolved == CPU:
        return "cuda:0"
    return f"{row.requested}1" if ":" in row.requested else CPU


def _one_elsewhere(counts: Counts, device: str) -> dict[str, int]:
    """Return the counts with a device that holds one thing, neither first nor last."""
    return {"xla": 0, device: 1, **{other: n for other, n in (counts or {}).items() if other != device}}


def _less_than_parameters(row: DeviceProbe, limits: Limits) -> DeviceProbe | None:
    """Leave as much memory as the limit asks for, and parameters of one byte more."""
    held = math.ceil(limits.min_device_memory_mib * MIB)
    return None if row.resolved == CPU else replace(row, parameters={row.resolved: held + 1}, allocated_bytes=held)


def _host_ops_alone(row: DeviceProbe, limits: Limits) -> DeviceProbe | None:
    allowed = limits.allowed_host_ops
    return replace(row, ops={CPU: allowed}) if allowed and row.resolved != CPU else None


def _on_another_make(row: DeviceProbe, _limits: Limits) -> DeviceProbe | None:
    """Move the whole run to a device of which the driver of another make can say nothing."""
    if row.requested != AUTO:
        return None
    held: dict[str, Any] = {part: {"mps:0": 1} for part in (*HELD, "ops")}
    driver = Witness(by="nvml", pid=row.pid, used_mib=1e9, files=None)
    return replace(row, resolved="mps:0", allocated_bytes=1 << 50, witnesses=(driver,), **held)


def _of_another_process(row: DeviceProbe, _limits: Limits) -> DeviceProbe:
    pids = (row.pid - 1, row.pid + 1, None)
    return replace(row, witnesses=tuple(replace(one, pid=pid) for one in row.witnesses for pid in pids))


def _breaks(name: str, code: str, change: Change, why: str = "no probe") -> Mutation[Limits]:
    return in_rows(name, code, "probes", DeviceProbe, change, why=why, outcome=CODES[code])


def _told(name: str, code: str, **columns: Any) -> Mutation[Limits]:
    return _breaks(name, code, lambda row, _: replace(row, **columns))


def _confirms_nothing(
    name: str, by: str, *, files: tuple[str, ...] | None = None, used_mib: float | None = None, on: str = ""
) -> Mutation[Limits]:
    def change(row: DeviceProbe, limits: Limits) -> DeviceProbe | None:
        if on not in ("", row.resolved.partition(":")[0]):
            return None
        return _instead(row, limits, Witness(by=by, pid=row.pid, used_mib=used_mib, files=files))

    return _breaks(name, "no-witness", change, f"not a run on {on}")


NOT_WHOLE = ("recorder-failure", "steps-not-recorded", "outside-run", "few-probes")
CODES = codes(
    "requested", "resolved", *HELD, "ops", "memory", blocked=(*NOT_WHOLE, "no-probe", "not-audited", "no-witness")
)  # fmt: skip
ON_THE_CPU = "the CPU has no device memory"

KIND = Kind(
    name="no-silent-cpu-fallback",
    version=3,
    roles={"run": SubjectKind.RUN},
    needs={"probes": Need("device_evidence", of=("run",), of_rows=False)},
    limits=Limits,
    codes=CODES,
    judge=judge,
    check=check,
    mutations=(
        _breaks("asked for another device", "requested",
                lambda row, limits: replace(row, requested="cuda" if limits.requested == CPU else CPU)),
        _breaks("resolved to another device", "resolved",
                lambda row, _: None if row.requested == AUTO else replace(row, resolved=_other(row)),
                "auto may resolve to any device"),
        *(_breaks(f"one byte of {part} on another device", part,
                  lambda row, _, part=part: replace(row, **{part: _one_elsewhere(getattr(row, part), _other(row))}))  # type: ignore[misc]
          for part in HELD),
        _breaks("one op on a third device, none on the host", "ops",
                lambda row, _: replace(row, ops=_one_elsewhere({row.resolved: 1}, "meta"))),
        _breaks("one byte less than the parameters", "memory", _less_than_parameters, ON_THE_CPU),
        _told("parameters not looked at", "no-probe", parameters={}),
        _told("gradients not looked at", "no-probe", gradients=None),
        _told("no gradient found", "no-probe", gradients={}),
        _told("buffers not looked at", "no-probe", buffers=None),
        _told("the recorder failed once", "recorder-failure", failures=1),
        _breaks("a step more than was recorded", "steps-not-recorded",
                lambda row, _: replace(row, announced_steps=row.steps + 1)),
        _breaks("a probe after the run", "outside-run", lambda row, _: replace(row, step=(row.last_step or 0) + 1)),
        _breaks("a probe before the run", "outside-run", lambda row, _: replace(row, step=(row.first_step or 0) - 1)),
        _told("a probe of no step", "outside-run", step=None),
        _told("optimizer not looked at", "no-probe", optimizer=None),
        _breaks("device memory not looked at", "no-probe",
                lambda row, _: None if row.resolved == CPU else replace(row, allocated_bytes=None), ON_THE_CPU),
        _told("ops not audited", "not-audited", dispatch="not-audited"),
        _told("an audit without a result", "not-audited", dispatch=""),
        _told("an audit that saw no op", "not-audited", ops={}),
        _breaks("ops on the host alone", "not-audited", _host_ops_alone, "no op may be on the host alone"),
        _breaks("witnesses of another process, or of none", "no-witness", _of_another_process),
        _breaks("the driver, of a run on another make", "no-witness", _on_another_make, "the device is not left open"),
        _confirms_nothing("self-reported utilisation only", "self-reported", used_mib=1e9),
        _confirms_nothing("the driver, of a run on the CPU", "nvml", used_mib=1e9, on=CPU),
        _confirms_nothing("memory that the driver does not show", "nvml"),
        _confirms_nothing("open files that were not listed", "device-files"),
        _confirms_nothing("another list in place of the open files", "libraries", files=(), on=CPU),
        _confirms_nothing("other books of device files", "books", files=OPEN_IN_CUDA, on="cuda"),
        _confirms_nothing("another list of device files", "libraries", files=OPEN_IN_CUDA, on="cuda"),
        _confirms_nothing("the driver's library only", "libraries", files=("libcuda.so.1",)),
        _confirms_nothing("the driver's control file only", "device-files", files=("/dev/nvidiactl",)),
        _confirms_nothing("a device without its memory", "device-files", files=("/dev/nvidia0",)),
        _confirms_nothing("memory without its device", "device-files", files=("/dev/nvidia-uvm",)),
        _confirms_nothing("no device file", "device-files", files=(), on="cuda"),
    ),
)  # fmt: skip
