"""Scalars of a step, brought from the device to the host."""

from __future__ import annotations

import torch


def on_host(values: tuple[torch.Tensor | float | None, ...]) -> list[float | None]:
    """Bring scalars to the host, those on one device in one transfer."""
    tensors = [value.detach().reshape(()) for value in values if isinstance(value, torch.Tensor)]
    if len({tensor.device for tensor in tensors}) == 1:
        wide = torch.float32 if tensors[0].device.type == "mps" else torch.float64
        found = iter(torch.stack([tensor.to(wide) for tensor in tensors]).tolist())
    else:
        found = iter([tensor.item() for tensor in tensors])
    plain = (None if value is None else value if isinstance(value, torch.Tensor) else float(value) for value in values)
    return [next(found) if isinstance(value, torch.Tensor) else value for value in plain]
