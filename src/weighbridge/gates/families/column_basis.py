"""How a logged column came about, named from its statistics: constant, derived, indistinguishable from noise, measured.

Noise is what `base + uniform(-w, w)` writes: flat over its range, without memory, related to no other column. A column
is measured only where one of four statistics rules that out; of a utilisation finer than whole percents, memory or a
relation, for its shape shows nothing. A stretch of equal numbers is a placeholder where rounding
does not explain it. `spec/run-directory.md` says how often either is named by mistake.
"""

import enum
import math
import re
from collections.abc import Collection
from typing import Any

from weighbridge.core import dataclass, replace
from weighbridge.quantities.runs import INSIDE, QuickSteps, Recurrence, Relation, StepColumn, Stretch

NOISE_SAMPLES = 100
MAX_MEMORY = 3.3  # |lag-1 autocorrelation| × √n: 1 of 1,000 columns without memory lies beyond
MAX_UNEVENNESS = 1.6  # Kolmogorov–Smirnov distance to the uniform law × √n: 1 of 100 uniform columns lies beyond
MAX_RELATION = 4.0  # largest |rank correlation| × √n with any of up to a few dozen other columns
UNIFORM_RANGE = math.sqrt(12)  # range of a uniform law in standard deviations
RANGE_MARGIN = 0.35
LEAST_SAMPLES = 8  # below, nothing can be said

MOST_ROUNDED = 3.0  # units of the printed resolution: what moves by fewer repeats by rounding
BY_CHANCE = 1e-6  # how often rounding may be expected to give such a stretch in a whole column
LEAST_RECURRING, RECURRING_SHARE = 5, 0.1  # of the samples: a resumed run repeats fewer
CLIPPED = 1e-5  # of a clip limit: norms nearer to it were clipped
CONSTANT_SHARE = 0.9  # of the samples of what a step gives, that hold one value
QUICK_SHARE = 0.2  # of the least time of the other steps: quicker ones did no work
# A sensor of utilisation gives whole percents, and a mean of several moves with the work: it has memory or a relation.
SENSED = "util_pct"
# A loss of a part of the data, by a name that begins with which; a best or least one is infinite until there is one.
_SET = "(train(ing)?|val(id(ation)?)?|eval(uation)?|test|dev)"
_LOSS = re.compile(rf"(?i)(?!.*[^a-z](best|min)[^a-z]){_SET}[^a-z](.*[^a-z])?loss(.step|.epoch)?|loss[^a-z]{_SET}")
OF_A_STEP = ("loss", "grad_norm")  # what every step gives anew, besides its times and rates
# What the recorder saw as it looked: mostly the same number, by rights, or what a batch happens to hold, or a part of a
# step that may take no time. Rules of their own judge it.
LOOKED_AT = frozenset({
    "skipped", "idle_update", "gradients_finite", "grad_norm_used", "parameters_sum", "fetch_ms", "forward_ms",
    "backward_ms", "update_ms", "batch_crc", "batch_repeats", "repeated_rows_share", "top_token_share",
    "labels_active_share", "target_is_next_share", "loss_gradient_scale", "own_loss", "gradient_edit_ratio",
    "gradient_cosine", "stale_gradients", "zero_gradients", "unowned", "frozen", "unmoved", "outside_writes",
    "step_counter_lag", "evaluating_modules", "training_evaluations", "bf16_share", "weight_norm", "equal_rows",
    "equal_tensors", "init_std_max", "future_change", "evaluation_change", "weight_decay", "updates", "input_mean",
    "input_std", "evaluation_rows_trained", "order_repeats", "neighbour_change", "past_change", "padding_change",
    "target_seen_share", "cost_ms", "row_passes", "padding_targets_share", *INSIDE,
})  # fmt: skip
# A process drives one device, and the fastest of 2025 does 2e16 operations a second at 4 bits.
MOST_FLOPS_PER_S = 1e17
ABOVE_ZERO = ("wall_ms", "tokens", "tokens_per_sec")
NOT_BELOW_ZERO = (*ABOVE_ZERO, "cpu_ms", "lr", "grad_norm", "gpu_util_pct")
NOT_ALL_ZERO = ("lr", "tokens", "grad_norm", "cpu_ms")

RELATED_SAMPLES = 8
MAX_DEVIATION = 1e-3  # of a constant product or quotient: what three printed digits leave
MIN_CONTRAST = 20.0  # the column's own relative spread, in deviations of the relation
MIN_SHARE = 0.9  # of the samples over which a relation must have been measured

# What is set or counted comes before what is timed, and that before what the model gives; a rate comes last.
PRIMARY = ("step", "tokens", "lr", "corpus_position", "wall_ms", "loss", "grad_norm")


class ColumnBasis(enum.StrEnum):
    """How a column came about."""

    MEASURED = "measured"
    CONSTANT = "constant"
    DERIVED = "derived"
    NOISE = "noise"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Provenance:
    """A column's basis; `how` is the relation of a derived one to its `partner`, or what ruled noise out."""

    basis: ColumnBasis
    how: str = ""
    partner: str = ""


def basis_of(row: StepColumn) -> Provenance:
    """Return the basis of a column, from its row of `step_columns`."""
    if row.finite >= LEAST_SAMPLES and is_constant(row):
        return Provenance(ColumnBasis.CONSTANT)
    for relation in row.relations:
        # The other column is what this one follows from, by rank, and of one rank the earlier.
        first = (_rank(relation.partner), not relation.earlier) < (_rank(row.column), True)
        enough = relation.over >= max(RELATED_SAMPLES, MIN_SHARE * row.finite)
        near = relation.deviation <= MAX_DEVIATION and relation.deviation * MIN_CONTRAST <= row.relative_spread
        if first and enough and near:
            return Provenance(ColumnBasis.DERIVED, relation.kind, relation.partner)
    if ruled_out := _rules_out_noise(row):
        return Provenance(ColumnBasis.MEASURED, ruled_out)
    return Provenance(ColumnBasis.NOISE if row.finite >= NOISE_SAMPLES else ColumnBasis.UNDECIDED)


def is_constant(row: StepColumn) -> bool:
    """Return whether a column holds one value; of what each step gives anew, all but few, or no more than two."""
    if row.min is None or row.max is None or row.min == row.max:
        return row.min is not None
    # A number so coarse that it has two values may be rounded, but nothing that is computed is a whole number.
    apart = row.max - row.min > MOST_ROUNDED * row.resolution or (row.resolution >= 1 and row.zeros == 0)
    near = row.recurrence.times if row.recurrence and not _is_clip(row, row.recurrence.value) else 0
    few = max(row.commonest, near) >= CONSTANT_SHARE * row.finite or row.distinct == 2
    return of_a_step(row.column) and apart and few


def of_a_step(column: str) -> bool:
    """Return whether each step gives this anew: a loss, a gradient norm, a time, a rate."""
    return column in OF_A_STEP or column.endswith(("_ms", "_per_sec"))


def must_be_finite(row: StepColumn) -> bool:
    """Return whether a column is the learning rate, or a loss of training or evaluation, by its name here or there."""
    return row.column in ("loss", "val_loss", "lr") or bool(_LOSS.fullmatch(row.logged_as))


def stands_for_absent(row: StepColumn) -> bool:
    """Return whether NaN says "not evaluated": where no cell is empty, before the first number or evenly between."""
    between, gaps = row.nan + row.infinite - row.begins_not_finite - row.ends_not_finite, row.finite - 1
    even = between >= gaps and row.ends_not_finite <= max(row.begins_not_finite, between / max(gaps, 1))
    return gaps >= 0 and not row.missing and (even or between == row.ends_not_finite == 0)


def placeholders(row: StepColumn) -> list[Stretch]:
    """Return the stretches of equal numbers that neither rounding nor clipping explains."""
    found = ((one, one.changes if of_a_step(row.column) else one.moves) for one in row.stretches)
    rare = [one for one, moves in found if not is_rounding(one.length, min(one.jump, moves), row.finite)]
    return [one for one in rare if not (one.dust and _is_clip(row, one.value))]


def _is_clip(row: StepColumn, value: float) -> bool:
    """Return whether a number is what gradients were clipped to, but for the dust that clipping leaves."""
    return row.column == "grad_norm" and row.max is not None and value >= row.max * (1 - CLIPPED)


def is_rounding(length: int, moves: float, samples: int, chance: float = BY_CHANCE) -> bool:
    """Return whether a repeat this long, of numbers that move by so many units, is expected `chance` times or more."""
    return moves <= MOST_ROUNDED or math.log(max(samples, 1)) - (length - 1) * math.log1p(moves) >= math.log(chance)


def recurring(row: StepColumn) -> Recurrence | None:
    """Return the number that a loss or a gradient norm comes back to, more often than those around it explain."""
    one = row.recurrence
    if one is None or _is_clip(row, one.value) or row.column not in OF_A_STEP or one.changes <= MOST_ROUNDED:
        return None
    if one.times < max(LEAST_RECURRING, RECURRING_SHARE * row.finite):
        return None
    more, expected = one.times - 1, row.finite / (1 + one.changes)
    # Chernoff's bound on so many of a Poisson law.
    chance = more - expected - more * math.log(more / expected) if more > expected else 0.0
    return one if math.log(row.finite) + chance < math.log(BY_CHANCE) else None


def too_quick(row: StepColumn) -> QuickSteps | None:
    """Return the steps that took less than a share of what every other step took."""
    return row.quick if row.quick is not None and row.quick.below_ms < QUICK_SHARE * row.quick.above_ms else None


def tells_speed(column: str, columns: Collection[str]) -> bool:
    """Return whether a column tells how quick a step was: the CPU time, where it is logged."""
    return column.endswith("_ms") and (column != "wall_ms" or "cpu_ms" not in columns)


def impossible(row: StepColumn) -> str:
    """Return what a column holds that it cannot, in a word, or an empty text."""
    if row.column in NOT_BELOW_ZERO and row.negative:
        return "negative"
    if row.column == "gpu_util_pct" and row.max is not None and row.max > 100:
        return "above 100 %"
    if row.column in ABOVE_ZERO and row.zeros:
        return "zero"
    return "zero throughout" if row.column in NOT_ALL_ZERO and row.zeros and row.zeros == row.finite else ""


def _rules_out_noise(row: StepColumn) -> str:
    if row.finite < LEAST_SAMPLES:
        return ""
    if _fisher(row.lag1_root_n, row.finite) > MAX_MEMORY:
        return "memory"
    if _fisher(row.rank_correlation_root_n, row.finite) > MAX_RELATION:
        return "relation"
    if row.column.endswith(SENSED) and row.resolution < 1:
        return ""
    if row.uniform_ks_root_n > MAX_UNEVENNESS:
        return "unevenness"
    few = max(NOISE_SAMPLES / row.finite, 1.0) - 1.0  # of few samples a range lies farther off by chance
    low, high = RANGE_MARGIN + 0.12 * min(few, 7.0) ** 0.9, RANGE_MARGIN + 0.2 * min(few, 1.5)
    return "" if -low <= row.range_over_std - UNIFORM_RANGE <= high else "range"


def _fisher(root_n: float, samples: int) -> float:
    """Return a correlation × √n so that few samples speak as clearly as many; as it is from `NOISE_SAMPLES` on."""
    r = min(root_n / math.sqrt(samples), 1.0)
    if samples >= NOISE_SAMPLES:
        return root_n
    return math.inf if r == 1.0 else math.atanh(r) * math.sqrt(samples - 3)


def _rank(name: str) -> int:
    return PRIMARY.index(name) if name in PRIMARY else len(PRIMARY) + ("_per_" in name)


# --- What trials lay over a row: each statistic at its limit, each relation that does not count short by one clause ---

OTHER, OTHER_RATE = "other", "other_per_other"  # columns of the two last ranks
PERFECT = Relation(kind="linear", partner="step", earlier=True, over=NOISE_SAMPLES, deviation=0.0, constant=1.0)


def as_constant(row: StepColumn) -> StepColumn:
    """Return the row of a column of one value throughout."""
    return replace(row, finite=max(row.finite, LEAST_SAMPLES), min=1.0, max=1.0, whole_passes=False)


def as_noise(row: StepColumn) -> StepColumn:
    """Return the row of the least obvious noise; its relations are too loose, too short, or the other way round."""
    loose = replace(PERFECT, deviation=math.nextafter(MAX_DEVIATION, 1.0))
    short = replace(PERFECT, over=math.ceil(MIN_SHARE * NOISE_SAMPLES) - 1)
    same = replace(PERFECT, partner=_peer(row.column), earlier=False)
    if row.column in PRIMARY:
        backwards = [replace(PERFECT, partner=(*PRIMARY, OTHER)[PRIMARY.index(row.column) + 1])]
    else:
        backwards = [same] if "_per_" in row.column else [same, replace(PERFECT, partner=OTHER_RATE)]
    return _noise(row, relative_spread=1.0, relations=(loose, short, *backwards))


def as_shaped_noise(row: StepColumn) -> StepColumn | None:
    """Return the row of a utilisation from a generator of another shape."""
    uneven = math.nextafter(MAX_UNEVENNESS, math.inf)
    shaped = replace(as_noise(row), uniform_ks_root_n=uneven, range_over_std=5.0, resolution=1e-6)
    return shaped if row.column.endswith(SENSED) else None


def as_undecided(row: StepColumn) -> StepColumn:
    """Return the row of noise that is one sample too short to be called so."""
    short = replace(as_noise(row), finite=NOISE_SAMPLES - 1, relations=())
    return replace(short, lag1_root_n=0.0, rank_correlation_root_n=0.0)


def as_nearly_constant(row: StepColumn) -> StepColumn | None:
    """Return the row of a column that holds one value but for the fewest samples that are too few."""
    if not of_a_step(row.column):
        return None
    most = math.ceil(CONSTANT_SHARE * NOISE_SAMPLES)
    return replace(row, min=1.0, max=2.0, finite=NOISE_SAMPLES, distinct=11, commonest=most, resolution=1e-6)


def as_stretch(row: StepColumn) -> StepColumn:
    """Return the row with the shortest stretch that rounding does not explain, between two that it does."""
    moves, samples = 100.0, max(row.finite, 2)
    length = math.floor(1 + math.log(samples / BY_CHANCE) / math.log1p(moves)) + 1
    long = Stretch(first_step=7, last_step=6 + length, length=length, value=1.0, jump=moves, moves=moves, changes=moves)
    rounded = replace(long, length=samples, jump=MOST_ROUNDED, moves=MOST_ROUNDED)
    return replace(row, finite=samples, stretches=(*row.stretches, rounded, long, replace(long, length=2)))


def as_recurring(row: StepColumn) -> StepColumn | None:
    """Return the row of a loss or a norm that comes back to its least number just too often for chance."""
    if row.column not in OF_A_STEP:
        return None
    often = Recurrence(value=1.0, times=round(RECURRING_SHARE * NOISE_SAMPLES), changes=1e4)
    return _noise(row, recurrence=often, relations=(), relative_spread=1.0)


def as_quick(row: StepColumn) -> StepColumn | None:
    """Return the row of times with three steps just too quick to have been ones."""
    if not row.column.endswith("_ms"):
        return None
    below = math.nextafter(QUICK_SHARE * 100.0, 0.0)
    return replace(row, quick=QuickSteps(first_step=7, last_step=9, length=3, below_ms=below, above_ms=100.0))


def as_faint_noise(row: StepColumn) -> StepColumn:
    """Return the row of noise that moves less than a relation that happens to be close would need to show."""
    close = replace(PERFECT, deviation=math.nextafter(MAX_DEVIATION / 2, 1.0))
    return _noise(row, relative_spread=MAX_DEVIATION * MIN_CONTRAST / 2, relations=(close,))


def as_derived(row: StepColumn) -> StepColumn:
    """Return the row of a column that just follows from the last one before it, between two that it does not follow."""
    if row.column in PRIMARY:
        at = PRIMARY.index(row.column)
        return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=PRIMARY[max(at - 1, 0)], earlier=at == 0)
    partner = OTHER if "_per_" in row.column else PRIMARY[-1]
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=partner, earlier=False)


def as_derived_with_holes(row: StepColumn) -> StepColumn:
    """Return the row of a column whose relation was measured over the least share of its samples."""
    samples = 10 * RELATED_SAMPLES
    return _derived(row, samples, round(MIN_SHARE * samples), partner="step", earlier=False)


def as_copy(row: StepColumn) -> StepColumn | None:
    """Return the row of a column that follows from an earlier one of its rank, or None where there is no such rank."""
    if row.column in PRIMARY:
        return None
    return _derived(row, RELATED_SAMPLES, RELATED_SAMPLES, partner=_peer(row.column), earlier=True)


def _peer(column: str) -> str:
    return OTHER_RATE if "_per_" in column else OTHER


def _noise(row: StepColumn, **more: Any) -> StepColumn:
    return replace(
        row, min=1.0, max=2.0, finite=NOISE_SAMPLES, distinct=NOISE_SAMPLES, commonest=1,
        lag1_root_n=MAX_MEMORY, uniform_ks_root_n=MAX_UNEVENNESS,
        rank_correlation_root_n=MAX_RELATION, range_over_std=UNIFORM_RANGE + RANGE_MARGIN * (1 - 1e-12),
        **{"recurrence": None, **more},
    )  # fmt: skip


def _derived(row: StepColumn, finite: int, over: int, *, partner: str, earlier: bool) -> StepColumn:
    close = replace(PERFECT, partner=partner, earlier=earlier, over=over, deviation=MAX_DEVIATION)
    loose, spread = replace(close, deviation=1.0), MAX_DEVIATION * MIN_CONTRAST
    row = replace(row, min=1.0, max=2.0, finite=finite, distinct=finite, commonest=1, recurrence=None)
    return replace(row, relative_spread=spread, relations=(loose, close, loose))
