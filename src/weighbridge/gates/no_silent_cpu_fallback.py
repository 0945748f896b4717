"""no-silent-cpu-fallback: did a run do its work on the device that it asked for?

Its own books (tensors, op results, allocated memory) and somebody outside it must agree. What the books deny is FAIL on
every host; what nobody outside confirms is BLOCKED, never PASS.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

from weighbridge.gates.gate_kind import Evidence, Falsifier, Kind, Need, blocked, each_row, failed, passed, rows_of
from weighbridge.limits import Doc
from weighbridge.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict

MIB = 1 << 20
HELD = ("parameters", "buffers", "gradients", "optimizer")  # bytes by device
CPU, AUTO = "cpu", "auto"
CONTEXT = (re.compile(r"/dev/nvidia\d+"), re.compile(r"/dev/nvidia-uvm"))  # both are open while CUDA has a context
ROCM = (re.compile(r"/dev/kfd"), re.compile(r"/dev/dri/renderD\d+"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was asked for, and what must show that it was had."""

    requested: Annotated[
        str, Doc("the device that the run is to have asked for", pattern=r"cpu|cuda(:[0-9]+)?|mps|auto")
    ]
    min_device_memory_mib: Annotated[
        float, Doc("memory that the device must have held", unit="MiB", gt=0, le=1e7, tight="up")
    ] = 1.0
    external_witnesses: Annotated[
        int, Doc("kinds of witness outside the training code that must confirm it", ge=1, le=2, tight="up")
    ] = 1
    allowed_host_ops: Annotated[
        int,
        Doc("floating-point ops of a probed step that may give their result on the host", ge=0, le=1000, tight="down"),
    ] = 0


def matches(device: str, wanted: str) -> bool:
    """Tell whether a device is the one wanted; a kind without index (`cuda`) wants any of its devices."""
    return wanted in (device, device.partition(":")[0])


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every probe of the run against the device that was asked for."""
    rows = rows_of(evidence, "probes")
    looked = [str(row["place"]) for row in rows]
    if not rows:
        return blocked("no-probe", {"absent": "any probe of the run"})
    broken = [offence for row in rows if (offence := _broken(row, limits)) is not None]
    if broken:
        return failed(broken, looked=looked, unit="probes")
    unseen = [offence for row in rows if (offence := _unseen(row, limits)) is not None]
    if unseen:
        return blocked(unseen[0].code, offences=unseen, counted=len(rows) - len(unseen), of=len(rows), unit="probes")
    return passed(looked=looked, unit="probes", figures=_summary(rows, limits))


def target(row: Fields) -> str:
    """Name the device that the work must be on: the one asked for, or where `auto` was asked, the one resolved to."""
    return str(row["resolved"]) if row["requested"] == AUTO else str(row["requested"])


# --- What the run's own books deny ------------------------------------------------------------------------------------


def _broken(row: Fields, limits: Limits) -> Offence | None:
    code, figures = _denial(row, limits)
    if not code:
        return None
    told = {"requested": row["requested"], "resolved": row["resolved"], "contract": limits.requested}
    return Offence(place=str(row["place"]), code=code, figures=told | dict(figures))


def _denial(row: Fields, limits: Limits) -> tuple[str, Fields]:
    wanted = target(row)
    if not matches(str(row["requested"]), limits.requested):
        return "requested", {}
    if not matches(str(row["resolved"]), wanted):
        return "resolved", {}
    for part in HELD:
        elsewhere = _elsewhere(row[part], wanted)
        if elsewhere:
            return part, {"elsewhere": elsewhere, "bytes": sum(elsewhere.values()), "of": _total(row[part])}
    strays = _elsewhere(row["ops"], wanted)
    if strays and (strays.keys() - {CPU} or strays[CPU] > limits.allowed_host_ops):
        return "ops", _stray_ops(row, strays, limits)
    needed, held = needed_bytes(row, limits), row["allocated_bytes"]
    if isinstance(held, int) and held < needed:
        return "memory", {"held_mib": held / MIB, "needed_mib": needed / MIB}
    return "", {}


def _elsewhere(counts: Json, wanted: str) -> dict[str, int]:
    return {device: n for device, n in _counts(counts).items() if n and not matches(device, wanted)}


def _counts(counts: Json) -> dict[str, int]:
    return {str(device): int(str(n)) for device, n in counts.items()} if isinstance(counts, Mapping) else {}


def _total(counts: Json) -> int:
    return sum(_counts(counts).values())


def _stray_ops(row: Fields, strays: Mapping[str, int], limits: Limits) -> Fields:
    names = row["op_names"]
    named = {device: names[device] for device in strays if device in names} if isinstance(names, Mapping) else {}
    ops = sum(strays.values())
    return {
        "elsewhere": strays,
        "ops": ops,
        "of": _total(row["ops"]),
        "named": named,
        "allowed": limits.allowed_host_ops,
    }


def needed_bytes(row: Fields, limits: Limits) -> float:
    """Say how much the device must have held: the limit, and at least the parameters that are said to be on it."""
    if matches(target(row), CPU):
        return 0.0
    return max(limits.min_device_memory_mib * MIB, float(_total(row["parameters"])))


# --- What nobody showed -----------------------------------------------------------------------------------------------


def _unseen(row: Fields, limits: Limits) -> Offence | None:
    absent = _absent(row, limits)
    if absent:
        return _offence(row, "no-probe", {"absent": absent})
    wanted = target(row)
    done = sum(n for device, n in _counts(row["ops"]).items() if matches(device, wanted))
    if row["dispatch"] != "audited" or not done:
        return _offence(row, "not-audited", {"ops": done, "target": wanted})
    heard = sorted({str(w["by"]) for w in _witnesses(row) if _confirms(w, row, limits)})
    if len(heard) < limits.external_witnesses:
        silent: dict[str, Json] = {
            "heard": heard,
            "count": len(heard),
            "needed": limits.external_witnesses,
            "pid": row["pid"],
        }
        return _offence(row, "no-witness", silent)
    return None


def _offence(row: Fields, code: str, figures: Fields) -> Offence:
    return Offence(
        place=str(row["place"]), code=code, figures={**figures, "why": row["why"] or "no reason is recorded"}
    )


def _absent(row: Fields, limits: Limits) -> str:
    if not _total(row["parameters"]):
        return "where the parameters are"
    if row["optimizer"] is None:
        return "where the optimizer's state is"
    if needed_bytes(row, limits) and row["allocated_bytes"] is None:
        return "how much memory the device held"
    return ""


def _witnesses(row: Fields) -> tuple[Fields, ...]:
    witnesses = row["witnesses"]
    assert isinstance(witnesses, Sequence)
    return tuple(witness for witness in witnesses if isinstance(witness, Mapping))


def _confirms(witness: Fields, row: Fields, limits: Limits) -> bool:
    if type(row["pid"]) is not int or witness.get("pid") != row["pid"]:
        return False
    wanted = target(row).partition(":")[0]
    if witness["by"] == "nvml" and wanted == "cuda":
        used = witness.get("used_mib")
        return isinstance(used, (int, float)) and used >= limits.min_device_memory_mib
    return witness["by"] == "device-files" and _files_confirm(witness.get("files"), wanted)


def _files_confirm(files: Json, wanted: str) -> bool:
    if not isinstance(files, Sequence) or isinstance(files, str):
        return False
    if wanted == CPU:
        return not files
    return any(all(any(form.fullmatch(str(file)) for file in files) for form in forms) for forms in (CONTEXT, ROCM))


def _summary(rows: Sequence[Fields], limits: Limits) -> Fields:
    heard = {str(w["by"]) for row in rows for w in _witnesses(row) if _confirms(w, row, limits)}
    return {
        "asked": sorted({str(row["requested"]) for row in rows}),
        "resolved": sorted({str(row["resolved"]) for row in rows}),
        "ops": sum(_total(row["ops"]) for row in rows),
        "witnesses": sorted(heard),
        "pid": sorted({int(str(row["pid"])) for row in rows}),
    }


# --- Lint and falsifiers ----------------------------------------------------------------------------------------------


def check(limits: Limits, _measure: object) -> list[str]:
    """Say what no run could satisfy."""
    if limits.requested == CPU and limits.external_witnesses > 1:
        return ["external_witnesses: a run on the CPU has one outside witness, its list of open device files"]
    if limits.requested == "mps":
        return ["requested: no outside witness is known for mps, so every run would be BLOCKED"]
    return []


def _other(row: Fields) -> str:
    """Name a device as near to the wanted one as can be, that is not it."""
    wanted = target(row)
    if wanted == CPU:
        return "cuda:0"
    return f"{wanted}1" if ":" in wanted else CPU


Change: TypeAlias = Callable[[Fields, Limits], Fields | None]
NOWHERE = "xla"  # a device that the books list and that holds nothing
NO_MEMORY = "the CPU has no device memory"
OPEN_IN_CUDA = ("/dev/nvidia0", "/dev/nvidia-uvm")


def _among(counts: Json, device: str) -> Fields:
    """Put one byte or op on a device, neither first nor last among the devices."""
    return {NOWHERE: 0, device: 1, **{other: n for other, n in _counts(counts).items() if other != device}}


def _moved(part: str) -> Falsifier[Limits]:
    def change(row: Fields, _limits: Limits) -> Fields:
        return {**row, part: _among(row[part], _other(row))}

    return _fails(f"one byte of {part} on another device", part, change)


def _asked_otherwise(row: Fields, limits: Limits) -> Fields:
    return {**row, "requested": "cuda" if limits.requested == CPU else CPU}


def _resolved_otherwise(row: Fields, _limits: Limits) -> Fields | None:
    return None if row["requested"] == AUTO else {**row, "resolved": _other(row)}


def _third_device(row: Fields, _limits: Limits) -> Fields:
    return {**row, "ops": _among(row["ops"], "meta")}


def _memory_unknown(row: Fields, limits: Limits) -> Fields | None:
    return {**row, "allocated_bytes": None} if needed_bytes(row, limits) else None


def _host_ops(row: Fields, limits: Limits) -> Fields | None:
    if target(row) == CPU:
        return None
    return {**row, "ops": {**_counts(row["ops"]), CPU: limits.allowed_host_ops + 1}}


def _host_ops_alone(row: Fields, limits: Limits) -> Fields | None:
    if target(row) == CPU or not limits.allowed_host_ops:
        return None
    return {**row, "ops": {CPU: limits.allowed_host_ops}}


def _less_than_limit(row: Fields, limits: Limits) -> Fields | None:
    """Leave one parameter byte and one byte too little memory, so that only the limit asks for more."""
    held = math.ceil(limits.min_device_memory_mib * MIB) - 1
    return None if target(row) == CPU else {**row, "parameters": {str(row["resolved"]): 1}, "allocated_bytes": held}


def _less_than_parameters(row: Fields, limits: Limits) -> Fields | None:
    """Leave as much memory as the limit asks for, and parameters of one byte more."""
    held = math.ceil(limits.min_device_memory_mib * MIB)
    size = {str(row["resolved"]): held + 1}
    return None if target(row) == CPU else {**row, "parameters": size, "allocated_bytes": held}


def _fewer(row: Fields, limits: Limits) -> Fields:
    """Leave one kind of witness fewer than is asked for, each of them twice."""
    kept = _others(row, limits, "")
    return {**row, "witnesses": [*kept, *kept]}


def _others(row: Fields, limits: Limits, by: str) -> list[Fields]:
    """Pick witnesses that confirm the device, of one kind fewer than is asked for, none of them of kind `by`."""
    confirming = [w for w in _witnesses(row) if w["by"] != by and _confirms(w, row, limits)]
    kinds = sorted({str(w["by"]) for w in confirming})[: limits.external_witnesses - 1]
    return [w for w in confirming if w["by"] in kinds]


def _witness(name: str, by: str, testimony: Fields, on: str = "") -> Falsifier[Limits]:
    """Put testimony that confirms nothing, on this kind of device, in the place of one witness that is needed."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        if on and target(row).partition(":")[0] != on:
            return None
        return {**row, "witnesses": [*_others(row, limits, by), {"by": by, "pid": row["pid"], **testimony}]}

    return _blocked(name, "no-witness", change, f"not a run on {on}")


def _little_memory(row: Fields, limits: Limits) -> Fields | None:
    used = math.nextafter(limits.min_device_memory_mib, 0.0)
    witness: Fields = {"by": "nvml", "pid": row["pid"], "used_mib": used}
    return None if target(row) == CPU else {**row, "witnesses": [*_others(row, limits, "nvml"), witness]}


def _on_another_make(row: Fields, _limits: Limits) -> Fields | None:
    """Move the whole run to a device of which the driver of another tells nothing."""
    if row["requested"] != AUTO:
        return None
    held = {part: {"mps:0": _total(row[part])} for part in (*HELD, "ops")}
    witness: Fields = {"by": "nvml", "pid": row["pid"], "used_mib": 1e9}
    return {**row, **held, "resolved": "mps:0", "allocated_bytes": 1 << 50, "witnesses": [witness]}


def _other_pid(row: Fields, _limits: Limits) -> Fields:
    pid = int(str(row["pid"]))
    return {**row, "witnesses": [{**w, "pid": pid + off} for w in _witnesses(row) for off in (-1, 1)]}


def _nobody(row: Fields, _limits: Limits) -> Fields:
    return {**row, "pid": None, "witnesses": [{**w, "pid": None} for w in _witnesses(row)]}


def _fails(name: str, code: str, change: Change, why: str = "no probe") -> Falsifier[Limits]:
    return each_row(name, code, "probes", change, why=why)


def _blocked(name: str, code: str, change: Change, why: str = "no probe") -> Falsifier[Limits]:
    return each_row(name, code, "probes", change, why=why, outcome=Outcome.BLOCKED)


def _blocks(name: str, code: str, changed: Fields) -> Falsifier[Limits]:
    return _blocked(name, code, lambda row, _: {**row, **changed})


KIND = Kind(
    name="no-silent-cpu-fallback",
    version=1,
    roles={"run": SubjectKind.RUN},
    needs={"probes": Need("device_evidence", of=("run",))},
    limits=Limits,
    codes={
        "requested": Outcome.FAIL,
        "resolved": Outcome.FAIL,
        **dict.fromkeys(HELD, Outcome.FAIL),
        "ops": Outcome.FAIL,
        "memory": Outcome.FAIL,
        "no-probe": Outcome.BLOCKED,
        "not-audited": Outcome.BLOCKED,
        "no-witness": Outcome.BLOCKED,
    },
    judge=judge,
    check=check,
    falsifiers=(
        _fails("asked for another device", "requested", _asked_otherwise),
        _fails("resolved to another device", "resolved", _resolved_otherwise, "auto may resolve to any device"),
        *(_moved(part) for part in HELD),
        _fails("one op too many on the host", "ops", _host_ops, "the run asked for the CPU"),
        _fails("one op on a third device", "ops", _third_device),
        _fails("one byte less than the memory limit", "memory", _less_than_limit, NO_MEMORY),
        _fails("one byte less than the parameters", "memory", _less_than_parameters, NO_MEMORY),
        _blocks("parameters not looked at", "no-probe", {"parameters": {}}),
        _blocks("optimizer not looked at", "no-probe", {"optimizer": None}),
        _blocked("device memory not looked at", "no-probe", _memory_unknown, NO_MEMORY),
        _blocks("ops not audited", "not-audited", {"dispatch": "not-audited"}),
        _blocks("an audit that nothing tells of", "not-audited", {"dispatch": ""}),
        _blocks("an audit that saw no op", "not-audited", {"ops": {}}),
        _blocked("ops on the host alone", "not-audited", _host_ops_alone, "no op may be on the host alone"),
        _blocks("no witness at all", "no-witness", {"witnesses": []}),
        _blocked("one witness too few", "no-witness", _fewer),
        _blocked("witnesses of another process", "no-witness", _other_pid),
        _blocked("nobody's witnesses", "no-witness", _nobody),
        _blocked("the driver saw less memory than the limit", "no-witness", _little_memory, NO_MEMORY),
        _blocked("the driver, of a run on another make", "no-witness", _on_another_make, "the device is not left open"),
        _witness("self-reported utilisation only", "self-reported", {"gpu_util_pct": 99.0, "used_mib": 1e9}),
        _witness("the driver, of a run on the CPU", "nvml", {"used_mib": 1e9}, on="cpu"),
        _witness("open files that were not listed", "device-files", {}),
        _witness("a word for the list of open files", "device-files", {"files": ""}, on="cpu"),
        _witness("another list in place of the open files", "libraries", {"files": []}, on="cpu"),
        _witness("other books of device files", "books", {"files": OPEN_IN_CUDA}, on="cuda"),
        _witness("another list of device files", "libraries", {"files": OPEN_IN_CUDA}, on="cuda"),
        _witness("the driver's library only", "libraries", {"files": ["libcuda.so.1"]}),
        _witness("the driver's control file only", "device-files", {"files": ["/dev/nvidiactl"]}),
        _witness("a device without its memory", "device-files", {"files": ["/dev/nvidia0"]}),
        _witness("memory without its device", "device-files", {"files": ["/dev/nvidia-uvm"]}),
        _witness("no device file", "device-files", {"files": []}, on="cuda"),
    ),
)
