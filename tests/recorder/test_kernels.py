"""Samples of torch's profiler: opt-in, of the steps that are due, counted as they are, and in nobody's way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.training import training  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402
from weighbridge.recorder.residency import SAMPLED, _counted  # noqa: E402


def sampled(folder: Path, steps: int = 8, **options: Any) -> list[dict[str, Any]]:
    work = training()
    with Recorder(folder, work.model, work.optimizer, loader=work.loader, **options) as rec:
        for _, batch in zip(range(steps), rec.cycle(), strict=False):
            rec.step(work.step(batch))
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text("utf-8").splitlines()]
    assert not [one for one in events if one["event"] == "recorder-failure"]
    return [one for one in events if one["event"] == "kernels"]


class Event:
    """What the profiler tells of one thing that it saw, of the fields that are read."""

    def __init__(self, name: str, device: str, printed: str = "") -> None:
        self._name, self._printed = name, printed
        self._device = getattr(torch._C._autograd.DeviceType, device)

    def name(self) -> str:
        return self._name

    def device_type(self) -> Any:
        return self._device

    def metadata_json(self) -> str:
        return self._printed


def test_no_step_is_sampled_unless_it_is_asked_for_and_then_the_last_of_every_so_many(tmp_path: Path) -> None:
    assert sampled(tmp_path / "a") == []
    assert [one["step"] for one in sampled(tmp_path / "b", kernels_every=3)] == [2, 5]
    assert [one["step"] for one in sampled(tmp_path / "c", kernels_every=3, first_step=4)] == [5, 8, 11]


def test_ops_are_counted_by_name_and_no_device_is_no_zero(tmp_path: Path) -> None:
    (one,) = sampled(tmp_path / "a", kernels_every=8)
    assert (one["ops"]["aten::embedding"], one["ops"]["aten::linear"]) == (1, 1)
    assert sum(one["ops"].values()) <= one["of"]["ops"]
    assert (one["kernels"], one["of"]["kernels"], one["device_to_host_bytes"]) == ({}, 0, None)
    assert one["why"] == {"kernels": "no device of this step has a profiler"}


def test_under_another_profiler_nothing_is_sampled_and_that_one_goes_on(tmp_path: Path) -> None:
    with torch.profiler.profile() as theirs:
        (one,) = sampled(tmp_path / "a", kernels_every=8)
    assert one["why"] == {"kernels": "another profiler is on"}
    assert "ops" not in one
    assert any(event.name == "aten::embedding" for event in theirs.events())


def test_kernels_and_bytes_to_the_host_are_those_of_the_device() -> None:
    copy = "Memcpy DtoH (Device -> Pageable)"
    events = [
        *(Event("aten::mm", "CPU"), Event("aten::mm", "CPU"), Event("gemm<float>", "CUDA")),
        *(Event(copy, "CUDA", '"device": 0, "bytes": 4, "x": 1'), Event(copy, "CUDA", '"bytes": 4096')),
        Event("Memcpy HtoD (Pageable -> Device)", "CUDA", '"bytes": 77'),
    ]
    found = _counted(events)
    assert (found["ops"], found["kernels"]["gemm<float>"], found["kernels"][copy]) == ({"aten::mm": 2}, 1, 2)
    assert (found["of"], found["device_to_host_bytes"]) == ({"ops": 2, "kernels": 4}, 4100)
    untold = _counted([*events, Event(copy, "CUDA")])
    assert (untold["device_to_host_bytes"], *untold["why"]) == (None, "device_to_host_bytes")


def test_the_commonest_names_are_kept_and_all_are_counted() -> None:
    events = [Event(f"k{n:03}", "CUDA") for n in range(200)] + [Event("often" * 100, "CUDA")] * 2
    found = _counted(events)
    assert (len(found["kernels"]), found["kernels"][("often" * 100)[:200]], found["of"]["kernels"]) == (SAMPLED, 2, 202)
