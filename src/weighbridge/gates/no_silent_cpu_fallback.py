"""no-silent-cpu-fallback: did a run do its work on the device that it asked for?

Its own books (tensors, op results, allocated memory) and somebody outside it must agree. What the books deny is FAIL on
every host; what nobody outside confirms is BLOCKED, never PASS.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from weighbridge.clauses.kind import Evidence, Kind, Mutation, Need, blocked, codes, failed, passed, rows_of
from weighbridge.clauses.mutations import Breaks, Change, table_moves
from weighbridge.core import Doc, Fields, Json, Offence, Outcome, SubjectKind, Verdict, dataclass, replace
from weighbridge.quantities.runs import DeviceProbe, Witness

CONTEXT = (re.compile(r"/dev/nvidia\d+"), re.compile(r"/dev/nvidia-uvm"))  # both are open while CUDA has a context
ROCM = (re.compile(r"/dev/kfd"), re.compile(r"/dev/dri/renderD\d+"))
UNPROBED_RUN: Fields = {"place": "run", "absent": "any probe of it"}
OUTSIDE = "kinds of witness outside the code that must confirm it"
UNPROBED = "most steps between one probe and the next, and after the last"
SHARE = "share of all ops of a probed step that give their result there, bookkeeping elsewhere counted"
HOST_OPS = "floating-point ops of a probed step that may give their result on the host"
Counts: TypeAlias = Mapping[str, int] | None
MIB = 1 << 20
CPU, AUTO = "cpu", "auto"
PARTS = ("parameters", "buffers", "gradients", "optimizer")  # bytes by device
OPS = 1 << 60  # so many that every share is one of them
OPEN_IN_CUDA = ("/dev/nvidia0", "/dev/nvidia-uvm")
FAILS = ("requested", "resolved", *PARTS, "ops", "memory")
BLOCKED = (
    *("recorder-failure", "steps-not-recorded", "outside-run", "few-probes", "no-probe", "not-audited", "few-ops"),
    "no-witness",
)
_breaks = Breaks(need="probes", row=DeviceProbe, blocked=BLOCKED, why="no probe")
_off_the_cpu = replace(_breaks, why="the CPU has no device memory", spares=lambda row, *_: row.resolved == CPU)


def _confirming(row: DeviceProbe, limits: Limits) -> tuple[Witness, ...]:
    files = Witness(by="device-files", pid=row.pid, used_mib=None, files=() if row.resolved == CPU else OPEN_IN_CUDA)
    driver = Witness(by="nvml", pid=row.pid, used_mib=limits.min_device_memory_mib, files=None)
    return (files,) if row.resolved == CPU else (files, driver)


def _instead(row: DeviceProbe, limits: Limits, by: str, **shown: Any) -> DeviceProbe:
    """Put a witness that confirms nothing in the place of one that is needed."""
    others = [one for one in _confirming(row, limits) if one.by != by][: limits.external_witnesses - 1]
    witness = Witness(**{"by": by, "pid": row.pid, "used_mib": None, "files": None, **shown})
    return replace(row, witnesses=(*others, witness))


def _little_memory(row: DeviceProbe, _limits: Limits, mib: float) -> Fields:
    """Leave one byte of parameters, so that only the limit asks for more memory."""
    return {"parameters": {row.resolved: 1}, "allocated_bytes": math.floor(mib * MIB)}


def _few_ops(row: DeviceProbe, _limits: Limits, share: float) -> DeviceProbe:
    there = max(int(share * OPS), 1)
    return replace(row, ops={row.resolved: there}, bookkeeping={"xla": OPS - there})


def _few_probes(rows: Sequence[DeviceProbe], count: int) -> list[DeviceProbe] | None:
    """Return probes of so many steps: the same ones again in place of the others."""
    steps = sorted({row.step for row in rows if row.step is not None})[:count]
    if not 0 < count == len(steps):
        return None
    run: Fields = {"last_step": steps[-1], "steps": 1000, "announced_steps": 1000}
    return [replace(row, step=steps[at % count], **run) for at, row in enumerate(rows)]  # type: ignore[arg-type]


def _long_after(rows: Sequence[DeviceProbe], steps: int) -> list[DeviceProbe]:
    last = max((row.step for row in rows if row.step is not None), default=0) + steps
    return [replace(row, last_step=last) for row in rows]


MEMORY = _off_the_cpu.beyond(
    ("less memory", "memory", _little_memory),
    ("less memory seen by the driver", "no-witness", lambda row, of, mib: _instead(row, of, "nvml", used_mib=mib)),
)
WITNESSES = _breaks.beyond(
    ("too few", "no-witness", lambda row, limits, kinds: replace(row, witnesses=_confirming(row, limits)[:kinds] * 2))
)
FEW_OPS = _breaks.beyond(("one op too few on it", "few-ops", _few_ops))
ON_THE_HOST = _off_the_cpu.beyond(("too many", "ops", lambda row, _, ops: {"ops": {**(row.ops or {}), CPU: ops}}))
PROBES = table_moves("too few", "few-probes", "probes", DeviceProbe, change=_few_probes, outcome=Outcome.BLOCKED)
LONG_AFTER = table_moves("at the end", "few-probes", "probes", DeviceProbe, change=_long_after, outcome=Outcome.BLOCKED)


def _other(row: DeviceProbe) -> str:
    """Return a device as near to the wanted one as can be, that is not it."""
    if row.resolved == CPU:
        return "cuda:0"
    return f"{row.requested}1" if ":" in row.requested else CPU


def _astray(counts: Counts, device: str) -> dict[str, int]:
    return {"xla": 0, device: 1, **{other: n for other, n in (counts or {}).items() if other != device}}


def _part_elsewhere(part: str) -> Change:
    return lambda row, _: {part: _astray(getattr(row, part), _other(row))}


def _less_than_parameters(row: DeviceProbe, limits: Limits) -> Fields:
    """Return as much memory as the limit asks for, and parameters of one byte more."""
    had = math.ceil(limits.min_device_memory_mib * MIB)
    return {"parameters": {row.resolved: had + 1}, "allocated_bytes": had}


def _on_another_make(row: DeviceProbe, _limits: Limits) -> DeviceProbe | None:
    """Move the whole run to a device of which the driver of another make can say nothing."""
    if row.requested != AUTO:
        return None
    parts: dict[str, Any] = {part: {"mps:0": 1} for part in (*PARTS, "ops", "bookkeeping")}
    driver = Witness(by="nvml", pid=row.pid, used_mib=1e9, files=None)
    return replace(row, resolved="mps:0", allocated_bytes=1 << 50, witnesses=(driver,), **parts)


def _of_another_process(row: DeviceProbe, _limits: Limits) -> DeviceProbe:
    pids = (row.pid - 1, row.pid + 1, None)
    return replace(row, witnesses=tuple(replace(one, pid=pid) for one in row.witnesses for pid in pids))


def _confirms_nothing(name: str, by: str, on: str = "", **shown: Any) -> Mutation[Any]:
    def change(row: DeviceProbe, limits: Limits) -> DeviceProbe | None:
        return _instead(row, limits, by, **shown) if on in ("", row.resolved.partition(":")[0]) else None

    return _breaks(name, "no-witness", change, f"not a run on {on}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was asked for, and what must show that it was had."""

    requested: Annotated[
        str, Doc("the device that the run is to have asked for", pattern=r"cpu|cuda(:[0-9]+)?|mps|auto")
    ]
    min_device_memory_mib: Annotated[
        float, Doc("memory that the device must have had", unit="MiB", ge=0.01, le=1e7, must="at least", moves=MEMORY)
    ] = 1.0
    external_witnesses: Annotated[int, Doc(OUTSIDE, ge=1, le=2, must="at least", moves=WITNESSES)] = 1
    min_probes: Annotated[
        int, Doc("different steps that must be probed", ge=1, le=1000, must="at least", moves=PROBES)
    ] = 2
    max_unprobed_steps: Annotated[int, Doc(UNPROBED, ge=1, le=100000, must="at most", moves=LONG_AFTER)] = 1000
    min_device_share: Annotated[float, Doc(SHARE, ge=0.01, le=1, must="at least", moves=FEW_OPS)] = 0.1
    allowed_host_ops: Annotated[int, Doc(HOST_OPS, ge=0, le=1000, must="at most", moves=ON_THE_HOST)] = 0


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
        return blocked("no-probe", UNPROBED_RUN)
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
    recorded: Fields = {"steps": run.steps, "announced": run.announced_steps, "failures": run.failures}
    if any(row.failures for row in rows):
        return "recorder-failure", recorded
    if any(row.announced_steps not in (None, row.steps) for row in rows):
        return "steps-not-recorded", recorded
    if all(row.step is None and row.parameters is None for row in rows):  # one row for a run without any
        return "no-probe", UNPROBED_RUN
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
    """Return how much the device must have had: the limit, and at least the parameters that are said to be on it."""
    return 0.0 if matches(_target(row), CPU) else max(limits.min_device_memory_mib * MIB, _total(row.parameters))


def _denial(row: DeviceProbe, limits: Limits) -> Offence | None:
    def denied(code: str, **figures: Json) -> Offence:
        asked: Fields = {"requested": row.requested, "resolved": row.resolved, "contract": limits.requested}
        return Offence(place=row.place, code=code, figures={**asked, **figures})

    if not matches(row.requested, limits.requested):
        return denied("requested")
    if not matches(row.resolved, _target(row)):
        return denied("resolved")
    for part in PARTS:
        counts: Counts = getattr(row, part)
        elsewhere = _elsewhere(counts, _target(row))
        if elsewhere:
            return denied(part, elsewhere=elsewhere, bytes=_total(elsewhere), of=_total(counts))
    strays = _elsewhere(row.ops, _target(row))
    if strays and (strays.keys() - {CPU} or strays[CPU] > limits.allowed_host_ops):
        named = {device: row.op_names[device] for device in strays if device in row.op_names}
        of, allowed = _total(row.ops), limits.allowed_host_ops
        return denied("ops", elsewhere=strays, ops=_total(strays), of=of, named=named, allowed=allowed)
    needed, had = _needed_bytes(row, limits), row.allocated_bytes
    if had is not None and had < needed:
        return denied("memory", held_mib=had / MIB, needed_mib=needed / MIB)
    return None


def _elsewhere(counts: Counts, wanted: str) -> dict[str, int]:
    return {device: n for device, n in (counts or {}).items() if n and not matches(device, wanted)}


def _unseen(row: DeviceProbe, limits: Limits) -> Offence | None:
    def unseen(code: str, **figures: Json) -> Offence:
        return Offence(place=row.place, code=code, figures={**figures, "why": row.why or "no reason is recorded"})

    stateless = not (_total(row.optimizer) or _total(row.optimizer_scalars))
    lacking = {
        "where the parameters are": not _total(row.parameters),
        "where the buffers are": row.buffers is None,
        "where the gradients are": not _total(row.gradients),
        "where the optimizer's state is": row.optimizer is None,
        "what the optimizer updates, which has no state": stateless and not _total(row.updated),
        "how much memory the device had": _needed_bytes(row, limits) and row.allocated_bytes is None,
    }
    if absent := next((what for what, lacks in lacking.items() if lacks), ""):
        return unseen("no-probe", absent=absent)
    done = sum(n for device, n in (row.ops or {}).items() if matches(device, _target(row)))
    if row.dispatch != "audited" or not done:
        return unseen("not-audited", ops=done, target=_target(row))
    of = done + _total(_elsewhere(row.ops, _target(row))) + _total(_elsewhere(row.bookkeeping, _target(row)))
    if done < limits.min_device_share * of:
        return unseen("few-ops", ops=done, of=of, target=_target(row), needed=limits.min_device_share)
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


CONFIRMS_NOTHING: tuple[tuple[str, str, str, dict[str, Any]], ...] = (  # what is shown, by whom, on which device
    ("self-reported utilisation only", "self-reported", "", {"used_mib": 1e9}),
    ("the driver, of a run on the CPU", "nvml", CPU, {"used_mib": 1e9}),
    ("memory that the driver does not show", "nvml", "", {}),
    ("open files that were not listed", "device-files", "", {}),
    ("another list in place of the open files", "libraries", CPU, {"files": ()}),
    ("other books of device files", "books", "cuda", {"files": OPEN_IN_CUDA}),
    ("another list of device files", "libraries", "cuda", {"files": OPEN_IN_CUDA}),
    ("the driver's library only", "libraries", "", {"files": ("libcuda.so.1",)}),
    ("the driver's control file only", "device-files", "", {"files": ("/dev/nvidiactl",)}),
    ("a device without its memory", "device-files", "", {"files": ("/dev/nvidia0",)}),
    ("memory without its device", "device-files", "", {"files": ("/dev/nvidia-uvm",)}),
    ("no device file", "device-files", "cuda", {"files": ()}),
)
MUTATIONS: tuple[Mutation[Any], ...] = (
    _breaks("asked for another device", "requested",
            lambda _, of: {"requested": "cuda" if of.requested == CPU else CPU}),
    _breaks("one op on a third device, none on the host", "ops",
            lambda row, _: {"ops": _astray({row.resolved: 1}, "meta")}),
    *(_breaks(f"one byte of {part} on another device", part, _part_elsewhere(part)) for part in PARTS),
    _breaks("a step more than was recorded", "steps-not-recorded", lambda row, _: {"announced_steps": row.steps + 1}),
    _breaks("a probe after the run", "outside-run", lambda row, _: {"step": (row.last_step or 0) + 1}),
    _breaks("a probe before the run", "outside-run", lambda row, _: {"step": (row.first_step or 0) - 1}),
    _breaks("witnesses of another process, or of none", "no-witness", _of_another_process),
    _breaks("parameters not looked at", "no-probe", parameters={}),
    _breaks("gradients not looked at", "no-probe", gradients=None),
    _breaks("no gradient found", "no-probe", gradients={}),
    _breaks("buffers not looked at", "no-probe", buffers=None),
    _breaks("optimizer not looked at", "no-probe", optimizer=None),
    _breaks("an optimizer of nothing", "no-probe", optimizer={}, optimizer_scalars={}, updated={}),
    _breaks("the recorder failed once", "recorder-failure", failures=1),
    _breaks("a probe of no step", "outside-run", step=None),
    _breaks("ops not audited", "not-audited", dispatch="not-audited"),
    _breaks("an audit without a result", "not-audited", dispatch=""),
    _breaks("an audit that saw no op", "not-audited", ops={}),
    *(_confirms_nothing(name, by, on, **shown) for name, by, on, shown in CONFIRMS_NOTHING),
    _breaks("resolved to another device", "resolved",
            lambda of, _: None if of.requested == AUTO else {"resolved": _other(of)}, "auto may resolve to any device"),
    _off_the_cpu("one byte less than the parameters", "memory", _less_than_parameters),
    _off_the_cpu("device memory not looked at", "no-probe", allocated_bytes=None),
    _off_the_cpu("ops on the host alone", "not-audited",
                 lambda _, of: {"ops": {CPU: of.allowed_host_ops}} if of.allowed_host_ops else None,
                 "no op may be on the host alone"),
    _breaks("the driver, of a run on another make", "no-witness", _on_another_make, "the device is not left open"),
)  # fmt: skip

KIND = Kind(
    name="no-silent-cpu-fallback", version=6, roles={"run": SubjectKind.RUN},
    needs={"probes": Need("device_evidence", of=("run",), of_rows=False)}, limits=Limits,
    codes=codes(*FAILS, blocked=BLOCKED), judge=judge, check=check, mutations=MUTATIONS, final=FAILS,
)  # fmt: skip
