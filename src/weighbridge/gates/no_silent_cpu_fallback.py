"""no-silent-cpu-fallback: did a run do its work on the device that it asked for?

Its own books (tensors, op results, allocated memory) and somebody outside it must agree. What the books deny is FAIL on
every host; what nobody outside confirms is BLOCKED, never PASS.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Annotated

from weighbridge.clauses.kind import Evidence, Kind, Need, blocked, codes, failed, passed, rows_of
from weighbridge.core import Doc, Fields, Json, Offence, SubjectKind, Verdict, dataclass
from weighbridge.gates.trials import device_trials as trials
from weighbridge.gates.trials.device_trials import AUTO, CPU, MIB, PARTS, Counts
from weighbridge.quantities.runs import DeviceProbe, Witness

CONTEXT = (re.compile(r"/dev/nvidia\d+"), re.compile(r"/dev/nvidia-uvm"))  # both are open while CUDA has a context
ROCM = (re.compile(r"/dev/kfd"), re.compile(r"/dev/dri/renderD\d+"))
UNPROBED_RUN: Fields = {"place": "run", "absent": "any probe of it"}
OUTSIDE = "kinds of witness outside the code that must confirm it"
UNPROBED = "most steps between one probe and the next, and after the last"
SHARE = "share of all ops of a probed step that give their result there, bookkeeping elsewhere counted"
HOST_OPS = "floating-point ops of a probed step that may give their result on the host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What was asked for, and what must show that it was had."""

    requested: Annotated[
        str, Doc("the device that the run is to have asked for", pattern=r"cpu|cuda(:[0-9]+)?|mps|auto")
    ]
    min_device_memory_mib: Annotated[
        float,
        Doc("memory that the device must have had", unit="MiB", ge=0.01, le=1e7, must="at least", moves=trials.MEMORY),
    ] = 1.0
    external_witnesses: Annotated[int, Doc(OUTSIDE, ge=1, le=2, must="at least", moves=trials.WITNESSES)] = 1
    min_probes: Annotated[
        int, Doc("different steps that must be probed", ge=1, le=1000, must="at least", moves=trials.PROBES)
    ] = 2
    max_unprobed_steps: Annotated[int, Doc(UNPROBED, ge=1, le=100000, must="at most", moves=trials.UNPROBED)] = 1000
    min_device_share: Annotated[float, Doc(SHARE, ge=0.01, le=1, must="at least", moves=trials.SHARE)] = 0.1
    allowed_host_ops: Annotated[int, Doc(HOST_OPS, ge=0, le=1000, must="at most", moves=trials.HOST_OPS)] = 0


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


KIND = Kind(
    name="no-silent-cpu-fallback", version=6, roles={"run": SubjectKind.RUN},
    needs={"probes": Need("device_evidence", of=("run",), of_rows=False)}, limits=Limits,
    codes=codes(*trials.FAILS, blocked=trials.BLOCKED), judge=judge, check=check, mutations=trials.MUTATIONS,
    final=trials.FAILS,
)  # fmt: skip
