from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("torch")

from weighbridge.recorder.witnesses import (
    FIRST_PID_NAMESPACE,
    MIB,
    device_files,
    driver,
    libraries,
    matched,
    namespace_pids,
    testimony,
)

testimony.__test__ = False  # type: ignore[attr-defined]  # a word of the trade, not a test


def proc(
    folder: Path, *, nspid: str = "4711", namespace: str = FIRST_PID_NAMESPACE, files: tuple[str, ...] = ()
) -> Path:
    """Lay out the parts of a process's folder under /proc that a witness reads."""
    (folder / "fd").mkdir(parents=True)
    (folder / "ns").mkdir()
    (folder / "ns" / "pid").symlink_to(namespace)
    for number, file in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(file)
    (folder / "status").write_text(f"Name:\tpython\nPid:\t1\nNSpid:\t{nspid}\nThreads:\t3\n")
    (folder / "maps").write_text("7f00-7f01 r-xp 0 0 0  /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.03\n")
    return folder


def test_a_context_shows_in_the_open_files_of_the_process(tmp_path: Path) -> None:
    kept = ("/dev/null", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-modeset")
    (witness,), why = device_files(proc(tmp_path, files=kept))
    assert witness == {"by": "device-files", "pid": os.getpid(), "files": ["/dev/nvidia-uvm", "/dev/nvidia0"]}
    assert why == {}


def test_the_control_file_alone_is_no_device(tmp_path: Path) -> None:
    (witness,), _ = device_files(proc(tmp_path, files=("/dev/nvidiactl",)))
    assert witness["files"] == []


def test_a_rocm_context_shows_too(tmp_path: Path) -> None:
    (witness,), _ = device_files(proc(tmp_path, files=("/dev/kfd", "/dev/dri/renderD128")))
    assert witness["files"] == ["/dev/dri/renderD128", "/dev/kfd"]


def test_files_that_cannot_be_listed_are_no_witness_with_the_reason(tmp_path: Path) -> None:
    assert device_files(tmp_path / "none") == (
        [],
        {"device-files": "open files cannot be listed: FileNotFoundError"},
    )


def test_this_process_looks_at_its_own_files() -> None:
    with Path("/dev/null").open() as _:
        (witness,), why = device_files()
    assert (witness["pid"], why) == (os.getpid(), {})


def test_a_mapped_driver_library_is_reported(tmp_path: Path) -> None:
    (witness,), _ = libraries(proc(tmp_path))
    assert witness["files"] == ["libcuda.so.580.159.03"]


def test_the_driver_finds_this_process_by_its_host_pid(tmp_path: Path) -> None:
    (witness,), why = matched([(0, 12, 5 * MIB), (1, 4711, 512 * MIB)], proc(tmp_path))
    assert witness == {"by": "nvml", "pid": os.getpid(), "host_pid": 4711, "device": 1, "used_mib": 512.0}
    assert why == {}


def test_a_pid_mapped_through_namespaces_is_found_by_its_outer_number(tmp_path: Path) -> None:
    (witness,), _ = matched([(0, 90210, MIB)], proc(tmp_path, nspid="90210\t17", namespace="pid:[4026532001]"))
    assert (witness["pid"], witness["host_pid"]) == (os.getpid(), 90210)


def test_a_container_whose_pid_is_not_mapped_has_no_witness_even_where_a_number_is_equal(tmp_path: Path) -> None:
    found, why = matched([(0, 17, MIB)], proc(tmp_path, nspid="17", namespace="pid:[4026532001]"))
    assert found == []
    assert why == {"nvml": "NVML lists 1 processes by host pid; this container's pid is not mapped to one"}


def test_a_process_that_the_driver_does_not_list_has_no_witness(tmp_path: Path) -> None:
    assert matched([(0, 1, MIB)], proc(tmp_path)) == (
        [],
        {"nvml": "NVML lists 1 processes and this one is not among them"},
    )


def test_a_driver_that_tells_no_memory_is_no_witness(tmp_path: Path) -> None:
    assert matched([(0, 4711, None)], proc(tmp_path)) == ([], {"nvml": "NVML lists this process without its memory"})


def test_the_driver_that_cannot_be_asked_is_reported_and_never_a_number() -> None:
    found, why = driver()
    assert bool(found) != bool(why)


def test_a_process_without_a_status_is_known_by_its_own_pid(tmp_path: Path) -> None:
    assert namespace_pids(tmp_path) == (os.getpid(),)


def test_every_witness_speaks_of_this_process_or_says_why_it_does_not() -> None:
    found, why = testimony()
    assert {witness["by"] for witness in found} | set(why) == {"nvml", "device-files", "libraries"}
    assert {witness["pid"] for witness in found} <= {os.getpid()}
