"""What a device can compute at most, and how much of it a run says that it had."""

import math
from typing import Any

from weighbridge.core import Series, table
from weighbridge.figures.figure import FigureValue, figure

PEAKS: Any = table("figures/device_peaks")


@figure(
    "flops_per_parameter × parameters × tokens_per_step / shortest wall_ms / (devices × peak)",
    source="6 FLOPs a parameter and token: Kaplan et al. 2020; peaks: figures/device_peaks.yaml",
)
def share_of_peak(times: Series, limits: Any) -> FigureValue:
    """Return which share of what its devices compute at most the fastest step needed."""
    shortest, peak = min(times.value), PEAKS[limits.device][limits.dtype]
    flops = limits.flops_per_parameter * limits.parameters * limits.tokens_per_step
    share = flops / (shortest / 1e3) / (limits.devices * peak * 1e12) if shortest > 0 else math.inf
    named = {"device": limits.device, "dtype": limits.dtype, "devices": limits.devices, "peak_tflops": peak}
    return FigureValue(share, {**named, "wall_ms": shortest, "step": times.step[times.value.index(shortest)]})
