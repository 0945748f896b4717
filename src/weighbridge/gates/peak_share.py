"""peak-share: do the times of a run need no more than its devices can compute?"""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.peaks import PEAKS, share_of_peak
from weighbridge.gates.families.levers import divide
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import FINITE, GENUINE, RISING
from weighbridge.gates.families.timed_window import IN_MS

DTYPES = tuple(dict.fromkeys(name for row in PEAKS.values() for name in row if name != "source"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a step computes, and on what."""

    device: Annotated[str, Doc("the device, as `figures/device_peaks.yaml` calls it", choices=tuple(PEAKS))]
    dtype: Annotated[str, Doc("in which its products are", choices=DTYPES)]
    devices: Annotated[int, Doc("how many the tokens of a step were spread over", ge=1, le=10**6)] = 1
    parameters: Annotated[int, Doc("that a token goes through; `where: {parameters: …}` holds them to the run", ge=1)]
    tokens_per_step: Annotated[int, Doc("`where: {tokens_per_step: …}` holds them to the run", ge=1)]
    flops_per_parameter: Annotated[float, Doc("and token: 6, or 4 where weights are frozen", gt=0, le=16)] = 6.0


KIND = Rule(
    name="peak-share", column="wall_ms", means="the column of step wall times in milliseconds", figure=share_of_peak,
    code="impossible", must=("at most",), bound=1.0, gt=0, ge=None, le=1.0, min_samples=20, options=Options,
    doc="the share of its devices' peak that the fastest step needed", guards=(IN_MS, GENUINE, RISING, FINITE),
    checks=lambda of: [] if of.dtype in PEAKS[of.device] else [f"dtype: no peak of {of.device} in {of.dtype} is known"],
    own_levers={"the last shorter": divide(-1), "the first shorter": divide(0)},
).kind()  # fmt: skip
