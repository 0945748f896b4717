"""The quantities that verifiers measure and judges read: one dataclass each, listed at the end of the file it is in."""

from __future__ import annotations

from collections.abc import Mapping

from weighbridge.quantities import checkpoints, commands, facts, forward, hosts, runs, tensors
from weighbridge.quantities.base import Quantity

QUANTITIES: Mapping[str, Quantity] = {
    quantity.name: quantity
    for room in (checkpoints, commands, facts, forward, hosts, runs, tensors)
    for quantity in room.QUANTITIES
}
