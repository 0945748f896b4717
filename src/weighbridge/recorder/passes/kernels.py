"""A sample of one step by torch's profiler, where it is asked for: which ops and kernels ran, and what was copied."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import torch

from weighbridge.recorder import residency

NAMED, LONGEST = 64, 200  # names that are kept, and how much of each
BYTES = re.compile(r'"bytes": ?(\d+)')
TO_HOST = "Memcpy DtoH"


class KernelSample:
    """The last step of each `every` is sampled, none with 0: it is warm, and no step in which channels look."""

    def __init__(self, model: torch.nn.Module, every: int) -> None:
        self._model, self._every, self._frames = model, every, 0
        self._profile: torch.profiler.profile | None = None
        self._why = ""

    def begin(self, step: int) -> None:
        """Begin where this step is sampled; not under another profiler, nor where something was compiled."""
        if not self._every or (step + 1) % self._every:
            return
        self._why = residency.compiled(self._model)
        self._why = self._why or ("another profiler is on" if torch._C._autograd._profiler_enabled() else "")  # noqa: SLF001
        if self._why:
            return
        activity, on_cuda = torch.profiler.ProfilerActivity, residency.resolved_device(self._model).startswith("cuda")
        self._frames = residency.compiled_frames()
        try:
            self._profile = torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if on_cuda else [])])
            self._profile.start()
        except RuntimeError as problem:  # a driver that allows nobody to look
            self._profile, self._why = None, type(problem).__name__

    def end(self) -> dict[str, Any]:
        """Return the fields of the event, none where nothing was to be sampled."""
        why, self._why = self._why, ""
        if self._profile is None:
            return {"why": {"kernels": why}} if why else {}
        profile, self._profile = self._profile, None
        try:
            profile.stop()
            found: Any = profile.profiler
            events = [one for one in found.kineto_results.events() if not one.is_user_annotation()]
            if residency.compiled_frames() == self._frames:
                return _counted(events)
            why = "something was compiled in this step"
        except RuntimeError as problem:
            why = type(problem).__name__
        return {"why": {"kernels": why}}


def _counted(events: list[Any]) -> dict[str, Any]:
    host = [one.name() for one in events if one.device_type().name == "CPU"]
    device = [one for one in events if one.device_type().name != "CPU"]
    copied = [BYTES.search(one.metadata_json()) for one in device if one.name().startswith(TO_HOST)]
    found: dict[str, Any] = {"ops": _commonest(host), "kernels": _commonest([one.name() for one in device])}
    found |= {"of": {"ops": len(host), "kernels": len(device)}, "device_to_host_bytes": None, "why": {}}
    if not device:
        found["why"] = {"kernels": "no device of this step has a profiler"}
    elif not all(copied):
        found["why"] = {"device_to_host_bytes": "the profiler does not tell the size of every copy"}
    else:
        found["device_to_host_bytes"] = sum(int(one[1]) for one in copied if one)
    return found


def _commonest(names: list[str]) -> dict[str, int]:
    return dict(sorted(Counter(name[:LONGEST] for name in names).most_common(NAMED)))
