"""Rules over step wall times: a declared statistic under a budget, and no more computed than devices can."""

from typing import Annotated

from weighbridge.core import Doc, dataclass
from weighbridge.figures.peaks import PEAKS, share_of_peak
from weighbridge.figures.whole import STATISTICS, statistic
from weighbridge.gates.families.levers import divide
from weighbridge.gates.families.rule import Rule
from weighbridge.gates.families.run_columns import FINITE, GENUINE, RISING, window_place
from weighbridge.gates.families.timed_window import IN_MS, TIMES, Window, check, middle_up

DTYPES = tuple(dict.fromkeys(name for row in PEAKS.values() for name in row if name != "source"))
MEANS = "the column of step wall times in milliseconds"


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed(Window):
    """Which times the statistic is of."""

    statistic: Annotated[str, Doc("what of the samples is compared with the budget", choices=tuple(STATISTICS))] = (
        "median"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """What a step computes, and on what."""

    device: Annotated[str, Doc("the device, as `figures/device_peaks.yaml` calls it", choices=tuple(PEAKS))]
    dtype: Annotated[str, Doc("in which its products are", choices=DTYPES)]
    devices: Annotated[int, Doc("how many the tokens of a step were spread over", ge=1, le=10**6)] = 1
    parameters: Annotated[int, Doc("that a token goes through; `where: {parameters: …}` holds them to the run", ge=1)]
    tokens_per_step: Annotated[int, Doc("`where: {tokens_per_step: …}` holds them to the run", ge=1)]
    flops_per_parameter: Annotated[float, Doc("and token: 6, or 4 where weights are frozen", gt=0, le=16)] = 6.0


RULES = (
    Rule(name="wall-time-budget", version=6, column="wall_ms", means=MEANS, figure=statistic, code="over-budget",
         must=("below", "at most"), gt=0, ge=None, le=1e7, doc="the statistic of the window", options=Timed,
         window=False, min_samples=None, guards=(IN_MS, GENUINE, TIMES), checks=check,
         own_levers={"at the end": middle_up(at_the_end=True), "at the beginning": middle_up(at_the_end=False)},
         place=lambda _, limits: window_place(limits.steps),
         reach=lambda limits: (limits.steps[0], limits.min_samples or 0)),
    Rule(name="peak-share", column="wall_ms", means=MEANS, figure=share_of_peak, code="impossible", must=("at most",),
         bound=1.0, gt=0, ge=None, le=1.0, min_samples=20, options=Computed, guards=(IN_MS, GENUINE, RISING, FINITE),
         doc="the share of its devices' peak that the fastest step needed",
         checks=lambda of: (
             [] if of.dtype in PEAKS[of.device] else [f"dtype: no peak of {of.device} in {of.dtype} is known"]),
         own_levers={"the last shorter": divide(-1), "the first shorter": divide(0)}),
)  # fmt: skip
KIND = {rule.name: rule.kind() for rule in RULES}
