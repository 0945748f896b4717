"""Witnesses outside the training code of whether this process works on an accelerator: the driver and the kernel.

One that cannot be asked, or that speaks of another pid, is no witness: the reason is kept in its place, never a number.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeAlias

Testimony: TypeAlias = tuple[list[dict[str, Any]], dict[str, str]]  # witnesses; reasons by the one that is absent

# A CUDA context holds a numbered device and unified memory open; /dev/nvidiactl alone is only a query of the driver.
ACCELERATOR = re.compile(r"/dev/(?:nvidia\d+|nvidia-uvm|kfd|dri/renderD\d+|dxg)")
LIBRARY = re.compile(r"libcuda\.so[.\d]*|libamdhip64\.so[.\d]*|libhsa-runtime64\.so[.\d]*")
FIRST_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel: the host's own namespace
MIB = 1 << 20


def testimony() -> Testimony:
    """Ask every witness about this process."""
    asked = [ask() for ask in (driver, device_files, libraries)]
    why = {name: reason for _, reasons in asked for name, reason in reasons.items()}
    return [one for found, _ in asked for one in found], why


def device_files(proc: Path = Path("/proc/self")) -> Testimony:
    """List the accelerator files that this process holds open; an empty list says that it was looked and none is."""
    try:
        links = [_link(entry) for entry in (proc / "fd").iterdir()]
    except OSError as problem:
        return [], {"device-files": f"open files cannot be listed: {type(problem).__name__}"}
    files = sorted({link for link in links if ACCELERATOR.fullmatch(link)})
    return [{"by": "device-files", "pid": os.getpid(), "files": files}], {}


def _link(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""  # closed since it was listed


def libraries(proc: Path = Path("/proc/self")) -> Testimony:
    """List the driver libraries mapped into this process: a sign that a driver was loaded, not that it worked."""
    try:
        maps = (proc / "maps").read_text("utf-8", "replace")
    except OSError as problem:
        return [], {"libraries": f"memory maps cannot be read: {type(problem).__name__}"}
    return [{"by": "libraries", "pid": os.getpid(), "files": sorted(set(LIBRARY.findall(maps)))}], {}


def driver(proc: Path = Path("/proc/self")) -> Testimony:
    """Ask NVML which processes compute on each device and how much memory each holds, and find this one."""
    listed = on_devices()
    return ([], {"nvml": listed}) if isinstance(listed, str) else matched(listed, proc)


def on_devices() -> list[tuple[int, int, int | None]] | str:
    """Ask NVML for `(device, pid, bytes)` of every process that computes, or return why it cannot be asked."""
    try:
        import pynvml
    except ImportError:
        return "nvidia-ml-py is not installed: pip install 'weighbridge[torch]'"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return f"NVML does not start: {type(problem).__name__}"
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses
        devices = [(at, pynvml.nvmlDeviceGetHandleByIndex(at)) for at in range(pynvml.nvmlDeviceGetCount())]
        return [(at, one.pid, one.usedGpuMemory) for at, handle in devices for one in running(handle)]
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as problem:
        return f"NVML does not list processes: {type(problem).__name__}"
    finally:
        pynvml.nvmlShutdown()


def matched(processes: Iterable[tuple[int, int, int | None]], proc: Path = Path("/proc/self")) -> Testimony:
    """Find this process among `(device, pid, bytes)` by its pids in every namespace that can be seen from here."""
    listed, pids = list(processes), namespace_pids(proc)
    # The driver counts in the host's namespace: where outer pids are hidden, an equal number proves nothing.
    if len(pids) == 1 and _link(proc / "ns" / "pid") != FIRST_PID_NAMESPACE:
        why = f"NVML lists {len(listed)} processes by host pid; this container's pid is not mapped to one"
        return [], {"nvml": why}
    if not (mine := [(device, pid, used) for device, pid, used in listed if pid in pids]):
        return [], {"nvml": f"NVML lists {len(listed)} processes and this one is not among them"}
    if any(used is None for _, _, used in mine):
        return [], {"nvml": "NVML lists this process without its memory"}
    this = {"by": "nvml", "pid": os.getpid()}
    return [this | {"host_pid": pid, "device": at, "used_mib": (used or 0) / MIB} for at, pid, used in mine], {}


def namespace_pids(proc: Path = Path("/proc/self")) -> tuple[int, ...]:
    """Read this process's pid in each namespace from the outermost visible one inwards, or only its own pid."""
    try:
        status = (proc / "status").read_text("ascii", "replace")
    except OSError:
        return (os.getpid(),)
    match = re.search(r"^NSpid:\s+([\d\s]+?)$", status, re.MULTILINE)
    return tuple(int(pid) for pid in match[1].split()) if match else (os.getpid(),)
