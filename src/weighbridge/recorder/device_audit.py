"""The audit of a step's devices: where tensors and ops are, and what witnesses outside the training say."""

from __future__ import annotations

from typing import Any

from weighbridge.recorder import residency
from weighbridge.recorder.channels import Channel, Watched
from weighbridge.recorder.witnesses import testimony

EARLY_PROBES = (10, 100)  # so that a short run, too, is probed after its first step


class DeviceAudit(Channel):
    """What is probed every so many steps, the first included; a loop may drop gradients before its step ends."""

    columns = ("device",)

    def __init__(self, watched: Watched, every: int) -> None:
        super().__init__(watched)
        self.ops, self.period = residency.DispatchAudit(), every
        self._audited, self._unaudited, self._frames = False, "", 0
        self._gradients: dict[str, int] = {}

    def update_ended(self) -> None:
        """Add up the gradients."""
        self._gradients = residency.bytes_by_device(self.watched.gradients())

    def due(self) -> bool:
        """Return whether the step under way is probed."""
        return self.watched.step % self.period == 0 or self.watched.step in EARLY_PROBES

    def resume(self) -> None:
        """Count the ops of a step that is probed."""
        if not self.due() or self._unaudited:
            return
        if not self._audited:
            self._unaudited = residency.not_auditable(self.watched.model)
            self._frames = residency.compiled_frames()
        if not self._unaudited:
            self._audited = True
            self.ops.resume()

    def fields(self) -> dict[str, Any]:
        """Return the fields of the event, and begin anew."""
        model, optimizer = self.watched.model, self.watched.optimizer
        if self._audited and residency.compiled_frames() != self._frames:
            self._unaudited = "something was compiled in this step, and an audit does not see into compiled code"
            self.ops.restart()
        witnesses, why = testimony()
        found: dict[str, Any] = residency.model_bytes(model)
        found["gradients"] = found["gradients"] or self._gradients
        if optimizer is not None:
            found |= residency.optimizer_bytes(optimizer)
        allocated, no_memory = residency.allocated_bytes(residency.resolved_device(model))
        undrawn = "no batch of this step came from recorder.loader, so no op of it was counted"
        unaudited = self._unaudited or self.ops.failure or ("" if self._audited else undrawn)
        no_optimizer = "" if optimizer is not None else "the recorder was given no optimizer"
        reasons = {"allocated": no_memory, "dispatch": unaudited, "optimizer": no_optimizer}
        why |= {name: reason for name, reason in reasons.items() if reason}
        found |= {**self.ops.found(), "dispatch": "not-audited" if unaudited else "audited"}
        self.ops.restart()
        self._audited, self._unaudited, self._gradients = False, "", {}
        return {**found, "allocated_bytes": allocated, "witnesses": witnesses, "why": why}
