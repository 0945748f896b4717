"""How trials break no-silent-cpu-fallback: the figure of each limit moved, and one line for all else that it denies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from weighbridge.clauses.kind import Mutation
from weighbridge.clauses.mutations import Breaks, Change, table_moves
from weighbridge.core import Fields, Outcome
from weighbridge.quantities.runs import DeviceProbe, Witness

Limits: TypeAlias = Any  # those of no-silent-cpu-fallback, which imports this module
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
ON_THE_CPU = "the CPU has no device memory"
_breaks = Breaks(need="probes", row=DeviceProbe, blocked=BLOCKED, why="no probe")
_off_the_cpu = Breaks(
    need="probes", row=DeviceProbe, blocked=BLOCKED, why=ON_THE_CPU, spares=lambda row, *_: row.resolved == CPU
)


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
SHARE = _breaks.beyond(("one op too few on it", "few-ops", _few_ops))
HOST_OPS = _off_the_cpu.beyond(("too many", "ops", lambda row, _, ops: {"ops": {**(row.ops or {}), CPU: ops}}))
PROBES = table_moves("too few", "few-probes", "probes", DeviceProbe, change=_few_probes, outcome=Outcome.BLOCKED)
UNPROBED = table_moves("at the end", "few-probes", "probes", DeviceProbe, change=_long_after, outcome=Outcome.BLOCKED)


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


def _host_ops_alone(_row: DeviceProbe, limits: Limits) -> Fields | None:
    allowed = limits.allowed_host_ops
    return {"ops": {CPU: allowed}} if allowed else None


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


CHANGED: tuple[tuple[str, str, Change], ...] = (
    ("asked for another device", "requested", lambda _, of: {"requested": "cuda" if of.requested == CPU else CPU}),
    ("one op on a third device, none on the host", "ops", lambda row, _: {"ops": _astray({row.resolved: 1}, "meta")}),
    *((f"one byte of {part} on another device", part, _part_elsewhere(part)) for part in PARTS),
    ("a step more than was recorded", "steps-not-recorded", lambda row, _: {"announced_steps": row.steps + 1}),
    ("a probe after the run", "outside-run", lambda row, _: {"step": (row.last_step or 0) + 1}),
    ("a probe before the run", "outside-run", lambda row, _: {"step": (row.first_step or 0) - 1}),
    ("witnesses of another process, or of none", "no-witness", _of_another_process),
)
SET: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("parameters not looked at", "no-probe", {"parameters": {}}),
    ("gradients not looked at", "no-probe", {"gradients": None}),
    ("no gradient found", "no-probe", {"gradients": {}}),
    ("buffers not looked at", "no-probe", {"buffers": None}),
    ("optimizer not looked at", "no-probe", {"optimizer": None}),
    ("an optimizer of nothing", "no-probe", {"optimizer": {}, "optimizer_scalars": {}, "updated": {}}),
    ("the recorder failed once", "recorder-failure", {"failures": 1}),
    ("a probe of no step", "outside-run", {"step": None}),
    ("ops not audited", "not-audited", {"dispatch": "not-audited"}),
    ("an audit without a result", "not-audited", {"dispatch": ""}),
    ("an audit that saw no op", "not-audited", {"ops": {}}),
)
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
    *(_breaks(name, code, change) for name, code, change in CHANGED),
    *(_breaks(name, code, **fields) for name, code, fields in SET),
    *(_confirms_nothing(name, by, on, **shown) for name, by, on, shown in CONFIRMS_NOTHING),
    _breaks(
        "resolved to another device",
        "resolved",
        lambda row, _: None if row.requested == AUTO else {"resolved": _other(row)},
        "auto may resolve to any device",
    ),
    _off_the_cpu("one byte less than the parameters", "memory", _less_than_parameters),
    _off_the_cpu("device memory not looked at", "no-probe", allocated_bytes=None),
    _off_the_cpu("ops on the host alone", "not-audited", _host_ops_alone, "no op may be on the host alone"),
    _breaks("the driver, of a run on another make", "no-witness", _on_another_make, "the device is not left open"),
)
