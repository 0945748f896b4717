"""Where a model's work is: bytes of its tensors by device, where a step's ops put their results, what kernels ran."""

import collections
import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from weighbridge.recorder.channels import Channel, Watched
from weighbridge.recorder.witnesses import testimony

NAMED = 8  # op names kept per device
SAMPLED, LONGEST = 64, 200  # names that are kept of a sample, and how much of each
BYTES = re.compile(r'"bytes": ?(\d+)')
TO_HOST = "Memcpy DtoH"
EARLY_PROBES = (10, 100)  # so that a short run, too, is probed after its first step


def bytes_by_device(tensors: Iterable[torch.Tensor]) -> dict[str, int]:
    """Add up the bytes of tensors by device, each tensor once."""
    found = collections.Counter[str]()
    for tensor in {id(one): one for one in tensors}.values():
        found[str(tensor.device)] += tensor.numel() * tensor.element_size()
    return dict(sorted(found.items()))


def model_bytes(model: torch.nn.Module) -> dict[str, dict[str, int]]:
    """Add up the bytes of parameters, buffers and gradients by device."""
    gradients = (one.grad for one in model.parameters() if one.grad is not None)
    found = {"parameters": model.parameters(), "buffers": model.buffers(), "gradients": gradients}
    return {name: bytes_by_device(tensors) for name, tensors in found.items()}


def optimizer_bytes(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, int]]:
    """Add up the bytes of what an optimizer updates, and of its state; scalars apart: step counts live on the host."""
    tensors = [value for state in optimizer.state.values() for value in _tensors(state)]
    return {
        "optimizer": bytes_by_device(tensor for tensor in tensors if tensor.dim()),
        "optimizer_scalars": bytes_by_device(tensor for tensor in tensors if not tensor.dim()),
        "updated": bytes_by_device(tensor for group in optimizer.param_groups for tensor in group.get("params", ())),
    }


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return (value,)
    items = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return (tensor for item in items for tensor in _tensors(item))


def on_host(cells: Mapping[str, torch.Tensor | float | None]) -> dict[str, float]:
    """Bring what is known of a step to the host, tensors of one device in one transfer."""
    found: dict[str, float] = {}
    apart: dict[str, torch.Tensor] = {}
    for name, value in cells.items():
        if isinstance(value, torch.Tensor) and not value.is_cpu:
            found[name], apart[name] = math.nan, value
        elif value is not None:
            found[name] = float(value.item() if isinstance(value, torch.Tensor) else value)
    if len({tensor.device for tensor in apart.values()}) == 1:
        wide = torch.float32 if next(iter(apart.values())).is_mps else torch.float64
        together = torch.stack([one.detach().reshape(()).to(wide) for one in apart.values()])
        return found | dict(zip(apart, together.tolist(), strict=True))
    return found | {name: float(one.item()) for name, one in apart.items()}


def resolved_device(model: torch.nn.Module) -> str:
    """Return the device that holds most of the parameters' bytes, or "" for a model without parameters."""
    found = bytes_by_device(model.parameters())
    return max(found, key=lambda device: found[device]) if found else ""


def allocated_bytes(device: str) -> tuple[int | None, str]:
    """Return the most bytes that the device's allocator has taken, or None and why there is no such number."""
    kind = device.partition(":")[0]
    if kind == "cuda":
        return int(torch.cuda.max_memory_allocated(device)), ""
    if kind == "mps":
        return int(torch.mps.driver_allocated_memory()), ""
    return None, f"{device or 'a model without parameters'} has no device memory"


def not_auditable(model: torch.nn.Module) -> str:
    """Return why a step cannot be audited, or ""; compiled code shows few ops, and some modes stop dynamo for good."""
    if not hasattr(TorchDispatchMode, "ignore_compile_internals"):
        return f"torch {torch.__version__} would compile nothing more after an audit"
    found = compiled(model)
    return found and f"{found}, and an audit does not see into compiled code"


def compiled(model: torch.nn.Module) -> str:
    """Return what is compiled, or ""."""
    if (dynamo := sys.modules.get("torch._dynamo")) is None:
        return ""
    if any(isinstance(module, dynamo.OptimizedModule) or module._compiled_call_impl for module in model.modules()):  # noqa: SLF001
        return "the model is compiled"
    return "something was compiled in this process" if compiled_frames() else ""


def compiled_frames() -> int:
    """Count the frames that dynamo has compiled, or tried to, in this process."""
    compiled = sys.modules.get("torch._dynamo")
    return int(compiled.utils.counters.get("frames", {}).get("total", 0)) if compiled else 0


class DispatchAudit(TorchDispatchMode):
    """Count the ops of a step by the device of their results, or of their arguments where they give no tensor.

    Scalars (step counts, the logged loss) and integers (token ids being sliced) are bookkeeping, not work: they may
    live on the host in an honest step.
    """

    supports_higher_order_operators = True  # else one that runs under an audit raises into training

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return that dynamo may compile as if this mode were not there; else it skips every frame for good."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.live = self.entered = False
        self.restart()

    def restart(self) -> None:
        """Forget what was counted."""
        self.ops: collections.Counter[str] = collections.Counter()
        self.bookkeeping: collections.Counter[str] = collections.Counter()
        self.names: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.failure = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the op as it is, then count it."""
        result = func(*args, **(kwargs or {}))
        if not self.live:
            return result
        try:
            tensors = list(_tensors(result)) or list(_tensors((args, kwargs)))
            work = {str(t.device) for t in tensors if t.dim() and (t.is_floating_point() or t.is_complex())}
            self.bookkeeping.update({str(tensor.device) for tensor in tensors} if not work else ())
            self.ops.update(work)
            for device in work:
                self.names[device][str(func)] += 1
        except Exception as problem:  # noqa: BLE001 -- counting must never end a training step
            self.failure = type(problem).__name__
        return result

    def resume(self) -> None:
        """Go on counting."""
        if not self.entered:
            self.__enter__()  # type: ignore[no-untyped-call]
            self.entered = True
        self.live = True

    def pause(self) -> None:
        """Stop counting, and leave the stack of modes, at the latest when this is paused as the topmost one."""
        self.live = False
        if self.entered and _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
            self.entered = False

    def found(self) -> dict[str, Any]:
        """Return the counts, and the names of the commonest ops by device."""
        return {
            "ops": dict(sorted(self.ops.items())),
            "bookkeeping": dict(sorted(self.bookkeeping.items())),
            "op_names": {device: dict(names.most_common(NAMED)) for device, names in sorted(self.names.items())},
        }


class KernelSample:
    """A sample by torch's profiler of the last step of each `every`, warm, in which no channel looks; none with 0."""

    def __init__(self, model: torch.nn.Module, every: int) -> None:
        self._model, self._every, self._frames = model, every, 0
        self._profile: torch.profiler.profile | None = None
        self._why = ""

    def begin(self, step: int) -> None:
        """Begin where this step is sampled; not under another profiler, nor where something was compiled."""
        if not self._every or (step + 1) % self._every:
            return
        self._why = compiled(self._model)
        self._why = self._why or ("another profiler is on" if torch._C._autograd._profiler_enabled() else "")  # noqa: SLF001
        if self._why:
            return
        activity, on_cuda = torch.profiler.ProfilerActivity, resolved_device(self._model).startswith("cuda")
        self._frames = compiled_frames()
        try:
            self._profile = torch.profiler.profile(activities=[activity.CPU, *([activity.CUDA] if on_cuda else [])])
            self._profile.start()
        except RuntimeError as problem:  # a driver that allows nobody to look
            self._profile, self._why = None, type(problem).__name__

    def end(self) -> dict[str, Any]:
        """Return the fields of the event, none where nothing was to be sampled."""
        why, self._why = self._why, ""
        profile, self._profile = self._profile, None
        if profile is not None:
            try:
                profile.stop()
                found: Any = profile.profiler
                events = [one for one in found.kineto_results.events() if not one.is_user_annotation()]
                if compiled_frames() == self._frames:
                    return _counted(events)
                why = "something was compiled in this step"
            except RuntimeError as problem:
                why = type(problem).__name__
        return {"why": {"kernels": why}} if why else {}


def _counted(events: list[Any]) -> dict[str, Any]:
    host = [one.name() for one in events if one.device_type().name == "CPU"]
    device = [one for one in events if one.device_type().name != "CPU"]
    copied = [BYTES.search(one.metadata_json()) for one in device if one.name().startswith(TO_HOST)]
    names = {"ops": host, "kernels": [one.name() for one in device]}
    counts = ((of, collections.Counter(name[:LONGEST] for name in some)) for of, some in names.items())
    found: dict[str, Any] = {of: dict(sorted(count.most_common(SAMPLED))) for of, count in counts}
    found |= {"of": {of: len(some) for of, some in names.items()}, "device_to_host_bytes": None, "why": {}}
    if not device:
        found["why"] = {"kernels": "no device of this step has a profiler"}
    elif not all(copied):
        found["why"] = {"device_to_host_bytes": "the profiler does not tell the size of every copy"}
    else:
        found["device_to_host_bytes"] = sum(int(one[1]) for one in copied if one)
    return found


class DeviceAudit(Channel):
    """What is probed every so many steps, the first included; a loop may drop gradients before its step ends."""

    columns = ("device",)

    def __init__(self, watched: Watched, every: int) -> None:
        super().__init__(watched)
        self.ops, self.period = DispatchAudit(), every
        self._audited, self._unaudited, self._frames = False, "", 0
        self._gradients: dict[str, int] = {}

    def update_ended(self) -> None:
        """Add up the gradients."""
        self._gradients = bytes_by_device(self.watched.gradients())

    def due(self) -> bool:
        """Return whether the step under way is probed."""
        return self.watched.step % self.period == 0 or self.watched.step in EARLY_PROBES

    def resume(self) -> None:
        """Count the ops of a step that is probed."""
        if not self.due() or self._unaudited:
            return
        if not self._audited:
            self._unaudited = not_auditable(self.watched.model)
            self._frames = compiled_frames()
        if not self._unaudited:
            self._audited = True
            self.ops.resume()

    def fields(self) -> dict[str, Any]:
        """Return the fields of the event, and begin anew."""
        model, optimizer = self.watched.model, self.watched.optimizer
        if self._audited and compiled_frames() != self._frames:
            self._unaudited = "something was compiled in this step, and an audit does not see into compiled code"
            self.ops.restart()
        witnesses, why = testimony()
        found: dict[str, Any] = model_bytes(model)
        found["gradients"] = found["gradients"] or self._gradients
        if optimizer is not None:
            found |= optimizer_bytes(optimizer)
        allocated, no_memory = allocated_bytes(resolved_device(model))
        undrawn = "no batch of this step came from recorder.loader, so no op of it was counted"
        unaudited = self._unaudited or self.ops.failure or ("" if self._audited else undrawn)
        no_optimizer = "" if optimizer is not None else "the recorder was given no optimizer"
        reasons = {"allocated": no_memory, "dispatch": unaudited, "optimizer": no_optimizer}
        why |= {name: reason for name, reason in reasons.items() if reason}
        found |= {**self.ops.found(), "dispatch": "not-audited" if unaudited else "audited"}
        self.ops.restart()
        self._audited, self._unaudited, self._gradients = False, "", {}
        return {**found, "allocated_bytes": allocated, "witnesses": witnesses, "why": why}
