"""What samples are compared with: another column, the same column of a baseline run, or ln V of a known vocabulary."""

import bisect
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias

from weighbridge.clauses import kind
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, Need, Numbers, rows_of, series_of
from weighbridge.core import Doc, Outcome, Series, dataclass, field
from weighbridge.gates.families.run_columns import SAMPLES
from weighbridge.quantities.facts import Fact

OTHER, BASELINE, FACTS = "other", "baseline", "facts"
COLUMN, LN_VOCAB, VOCAB = "column:", "ln_vocab", "vocab"
FORM = "value, first, previous, baseline, ln_vocab or column:NAME"
RELATIVE_TO = (str, Doc(FORM, pattern=r"value|first|previous|baseline|ln_vocab|column:[^\n]+"), "value")
REFERENCES: Mapping[str, Need] = {
    OTHER: Need("step_series", of=("run",), of_limits=lambda of: {"column": str(of["relative_to"])[len(COLUMN) :]},
                when=lambda of: str(of.get("relative_to", "")).startswith(COLUMN)),
    BASELINE: Need("step_series", of=("baseline",), options=("column",),
                   when=lambda of: of.get("relative_to") == BASELINE),
    FACTS: Need("facts", of=("run",), when=lambda of: of.get("relative_to") == LN_VOCAB),
}  # fmt: skip


# What a sample is compared with: nothing, a number, or None for a sample that is not compared.
Compared: TypeAlias = Callable[[int, float, Numbers], tuple[float, ...] | None]


def reference(evidence: Evidence) -> list[Series]:
    """Return the series that samples are compared with; none where the vocabulary that it follows from is unknown."""
    if FACTS not in evidence:
        return [series_of(evidence, need) for need in (OTHER, BASELINE) if need in evidence]
    known = {fact.name: fact for fact in rows_of(evidence, FACTS, Fact) if not fact.contradicted_by}
    vocab = known[VOCAB].value if VOCAB in known else None
    if not isinstance(vocab, int) or vocab < 2:
        return []
    steps = series_of(evidence, SAMPLES).step
    return [Series(steps, [float(Decimal(vocab).ln())] * len(steps))]


def beside(one: Series, steps: Sequence[int], *, latest: bool) -> Sequence[float]:
    """Return a series at these steps, NaN where it has none; the `latest` sample stands for the steps after it."""
    known = dict(zip(one.step, one.value, strict=True))
    if latest and known:
        there = sorted(known)  # some evaluate before they train: the first sample stands for the steps before it, too
        steps = [there[max(bisect.bisect_right(there, step) - 1, 0)] for step in steps]
    return [known.get(step, math.nan) for step in steps]


def _zeroed(evidence: Evidence, limits: Any, _places: object) -> Mutated | str:
    need = next((need for need in (OTHER, BASELINE) if need in evidence), SAMPLES)
    if getattr(limits, "relative_to", OTHER) in ("value", LN_VOCAB):
        return "nothing that is logged is its reference"
    at = _first(evidence, need, limits)
    series = series_of(evidence, need)
    values = [*series.value[:at], 0.0, *series.value[at + 1 :]]
    return Mutated(kind.with_value(evidence, need, Series(series.step, values)))


def _left_out(evidence: Evidence, limits: Any, _places: object) -> Mutated | str:
    if (need := next((need for need in (OTHER, BASELINE) if need in evidence), None)) is None:
        return "it is compared with no other series"
    at, series = _first(evidence, need, limits), series_of(evidence, need)
    steps, values = ([*part[:at], *part[at + 1 :]] for part in (series.step, series.value))
    return Mutated(kind.with_value(evidence, need, Series(tuple(map(int, steps)), values)))


def _first(evidence: Evidence, need: str, limits: Any) -> int:
    first = (limits.steps or (-math.inf,))[0]
    steps, judged = series_of(evidence, need).step, [s for s in series_of(evidence, SAMPLES).step if s >= first]
    both = next((step for step in judged if step in set(steps)), judged[0])
    return max(bisect.bisect_right(steps, both) - 1, 0)


def _no_loss(evidence: Evidence, _limits: object, _places: object) -> Mutated:
    return Mutated(kind.with_value(evidence, OTHER, Series((), ())))


def _unknown_vocabulary(evidence: Evidence, _limits: object, _places: object) -> Mutated | str:
    if FACTS not in evidence:
        return "the vocabulary is not its reference"
    others = [one for one in rows_of(evidence, FACTS, Fact) if one.name != VOCAB]
    return Mutated(kind.with_rows(evidence, FACTS, others))


def _itself(evidence: Evidence, _limits: object, _places: object) -> Mutated | str:
    if BASELINE not in evidence:
        return "there is no baseline"
    return Mutated(kind.with_value(evidence, BASELINE, series_of(evidence, SAMPLES)))


_ZEROED = Mutation("a reference of zero", "no-reference", _zeroed, Outcome.BLOCKED)
_LEFT_OUT = Mutation("a step that has no reference", "no-reference", _left_out, Outcome.BLOCKED)
_NO_LOSS = Mutation("no loss at all", "no-reference", _no_loss, Outcome.BLOCKED)
_UNKNOWN = Mutation("an unknown vocabulary", "no-reference", _unknown_vocabulary, Outcome.BLOCKED)
_ITSELF = Mutation("the run as its own baseline", "same-run", _itself, Outcome.BLOCKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What a rule needs to compare its column, and how trials take that away; `to` is what its limits need not say."""

    needs: Mapping[str, Need] = field(default_factory=dict)
    mutations: tuple[Mutation[Any], ...] = ()
    codes: tuple[str, ...] = ("no-reference",)
    family: str
    to: str = ""
    sparse: bool = False  # what is judged is where there is a reference
    latest: bool = False  # whether a sample of the reference stands for the steps after it

    def given(self, limits: Any) -> str:
        """Return what samples are compared with under these limits."""
        return self.to or str(limits.relative_to)

    def compared(self, limits: Any, evidence: Evidence) -> Compared | None:
        """Return what each sample is compared with; None where that cannot be known yet."""
        given = self.given(limits)
        kept: list[float] = []
        if given == "value":
            return lambda _step, _value, _numbers: ()
        if given in ("first", "previous"):
            return lambda _step, value, _numbers: _own(kept, value, first=given == "first")
        if FACTS in evidence:
            known = [one.value[0] for one in reference(evidence) if one.value]
            return (lambda _step, _value, _numbers: (known[0],)) if known else None
        absent = None if self.sparse else (math.nan,)
        if BASELINE in evidence:
            (base,) = reference(evidence)
            by_step = dict(zip(base.step, base.value, strict=True))
            return lambda step, _value, _numbers: (by_step[step],) if step in by_step else absent
        name = evidence[OTHER].at if OTHER in evidence else given[len(COLUMN) :]
        return lambda _step, _value, numbers: (numbers[name],) if name in numbers else absent


def _with_column(column: str, *mutations: Mutation[Any], **more: Any) -> Comparison:
    needs = {OTHER: Need("step_series", of=("run",), of_limits=lambda _limits: {"column": column})}
    return Comparison(needs=needs, mutations=(_ZEROED, *mutations), to=f"{COLUMN}{column}", **more)


ALONE = Comparison(codes=(), family="", to="value")
AS_GIVEN = Comparison(
    needs=REFERENCES,
    mutations=(_ZEROED, _LEFT_OUT, _UNKNOWN, _ITSELF),
    codes=("no-reference", "same-run"),
    family="relative",
)
WITH_VOCABULARY = Comparison(
    needs={FACTS: Need("facts", of=("run",))}, mutations=(_UNKNOWN,), family="vocabulary", to=LN_VOCAB
)
WITH_LOSS = _with_column("loss", _NO_LOSS, family="beside-loss", latest=True)
WHERE_LOOKED = _with_column("own_loss", family="beside-own-loss", sparse=True)


def _own(kept: list[float], value: float, *, first: bool) -> tuple[float, ...] | None:
    """Return the first sample, or the one before this; the very first has none before it."""
    found = tuple(kept)
    kept[:] = kept[:1] if first and kept else [value]
    return found or ((value,) if first else None)
