"""A judge that goes row by row says FAIL at the very row from which on the judge of all rows together says it."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import pytest
from tests.gates.runs import column

from weighbridge.cards.card_checks import examples
from weighbridge.cards.words import gate_card
from weighbridge.clauses.kind import Evidence, Kind, series_of, with_value
from weighbridge.core.limits import plain, read
from weighbridge.core.model import Basis, Measurement, Outcome, Rows, Series
from weighbridge.gates import KINDS
from weighbridge.quantities.facts import Fact

SAMPLES = "samples"
VARIED = {"warmup_steps": (0, 10, 60), "violations": (0, 1, 3)}
OF_COLUMNS = ("column-", "no-basis", "not-in-ms", "beyond-hardware", "placeholder-rows")
RULES = [name for name, kind in KINDS.items() if kind.tripwire and SAMPLES in kind.needs]
FIGURED = [name for name in RULES if (figure := KINDS[name].figure) and figure.running]


def prefix(evidence: Evidence, count: int) -> Evidence:
    """Return the evidence of the first samples; what they are compared with is as far as it is then logged."""
    series = series_of(evidence, SAMPLES)
    last = series.step[count - 1]
    cut = with_value(evidence, SAMPLES, Series(series.step[:count], series.value[:count]))
    if "other" in evidence:
        other = series_of(evidence, "other")
        kept = [(step, value) for step, value in zip(other.step, other.value, strict=True) if step <= last]
        cut = with_value(cut, "other", Series([step for step, _ in kept], [value for _, value in kept]))
    return cut


def first_of_all(kind: Kind[Any], evidence: Evidence, limits: Any) -> tuple[int, str] | None:
    """Return the first count of samples of which the judge says FAIL with a code that no later one mends."""
    for count in range(1, len(series_of(evidence, SAMPLES).step) + 1):
        verdict = kind.judge(prefix(evidence, count), limits)
        if verdict.outcome is Outcome.FAIL and verdict.code in kind.final:
            return count, verdict.code
    return None


def first_by_row(kind: Kind[Any], evidence: Evidence, limits: Any, measure: Any) -> tuple[int, str] | None:
    assert kind.tripwire
    state = kind.tripwire(evidence, limits, measure)
    series, at = series_of(evidence, SAMPLES), evidence[SAMPLES].at
    beside: Mapping[int, float] = {}
    if "other" in evidence:
        other = series_of(evidence, "other")
        beside = dict(zip(other.step, other.value, strict=True))
    for count, (step, value) in enumerate(zip(series.step, series.value, strict=True), 1):
        numbers = {at: value} | ({evidence["other"].at: beside[step]} if step in beside else {})
        if state and (found := state.row(float(step), numbers)):
            return count, found.code
    return None


def agree(kind: Kind[Any], evidence: Evidence, limits: Any) -> tuple[int, str] | None:
    measure: Any = read(cast(type[Any], kind.measure), {})
    expected = first_of_all(kind, evidence, limits)
    assert first_by_row(kind, evidence, limits, measure) == expected, kind.name
    return expected


def shown(kind: Kind[Any]) -> Iterator[tuple[str, Evidence, Any]]:
    for example in examples(gate_card(kind.name), kind):
        evidence = example.evidence
        usable = SAMPLES in evidence and isinstance(evidence[SAMPLES].value, Series)
        # What the columns say of themselves, and not of their samples, holds a rule back whatever they are.
        if usable and not kind.judge(evidence, example.limits).code.startswith(OF_COLUMNS):
            yield example.name, evidence, example.limits


@pytest.mark.parametrize("name", RULES)
def test_the_examples_of_a_card_fail_at_the_same_sample_either_way(name: str) -> None:
    kind = KINDS[name]
    seen = [agree(kind, evidence, limits) for _, evidence, limits in shown(kind)]
    assert len(seen) >= 2
    if kind.figure and kind.figure.running:
        assert {code for one in seen if one for code in one[1:]} & {*kind.final} - {"not-finite"}


def evidence_of(kind: Kind[Any], at: str, values: Sequence[float], other: Sequence[float], every: int) -> Evidence:
    """Return a drawn log of a run whose vocabulary is 64."""
    steps = range(0, every * len(values), every)
    facts = (Fact(name="vocab", value=64, basis=Basis.REPORTED, contradicted_by=()),)
    series: dict[str, Any] = {
        SAMPLES: (at, values),
        "other": ("own_loss" if at == "loss" else "loss", other),
        "baseline": (at, other),
    }
    made = {
        need: Measurement(quantity="step_series", value=Series([*steps][: len(of)], of), by="test", at=name, examined=1,
                          total=1)
        for need, (name, of) in series.items()
    }  # fmt: skip
    tables: dict[str, Any] = {"columns": Rows("column", (column(at),)), "facts": Rows("name", facts)}
    made |= {name: Measurement(quantity=name, value=of, by="test", examined=1, total=1) for name, of in tables.items()}
    return {need: made[need] for need in kind.needs}


def drawn(draw: random.Random) -> list[float]:
    """Return a log with what rules look for: noise, humps, spikes, plateaus, numbers that are none, and zeros."""
    values = [draw.choice((0.0, 0.5, 1.0, 2.0)) + draw.choice((0, 0.01, 0.3)) * draw.random() for _ in range(1)]
    for _ in range(draw.randint(2, 160)):
        values.append(draw.choice((values[-1], values[-1] * draw.uniform(0.9, 1.1), round(draw.random(), 2))))
    for _ in range(draw.randint(0, 6)):
        at = draw.randrange(len(values))
        length = draw.randint(1, 20)
        values[at : at + length] = [one * draw.choice((1.5, 4, 20, -1, 0)) for one in values[at : at + length]]
    if draw.random() < 0.15:
        values[draw.randrange(len(values))] = draw.choice((float("nan"), float("inf"), float("-inf")))
    return values


@functools.cache
def drawn_logs(name: str) -> list[tuple[Evidence, Any]]:
    """Return drawn logs for a rule, each with limits of its card."""
    kind, draw = KINDS[name], random.Random(name)
    given: list[Any] = [plain(one.limits) for one in examples(gate_card(name), kind)]
    found = []
    for _ in range(20):
        values = drawn(draw)
        limits = draw.choice(given)
        limits |= {name: draw.choice(some) for name, some in VARIED.items() if name in limits}
        limits = read(kind.limits, limits)
        other = [abs(one) + draw.choice((0.0, 0.2)) for one in values]
        at = {"series-bound": "loss", "peak-share": "wall_ms"}.get(name, "grad_norm")
        found.append((evidence_of(kind, at, values, other, draw.choice((1, 10))), limits))
    return found


@functools.cache
def known(name: str) -> list[tuple[Evidence, Any, tuple[int, str] | None]]:
    """Return the examples of a rule's card and drawn logs, with where the judge of all samples first fails."""
    logs = [(evidence, limits) for _, evidence, limits in shown(KINDS[name])] + drawn_logs(name)
    return [(evidence, limits, first_of_all(KINDS[name], evidence, limits)) for evidence, limits in logs]


def parts(name: str, kind: Kind[Any]) -> bool:
    """Return whether a kind, row by row, says anything else than the judge of this name of all samples together."""
    try:
        return any(first_by_row(kind, evidence, limits, None) != said for evidence, limits, said in known(name))
    except Exception:  # a kind that was weakened on purpose may raise
        return True


@pytest.mark.parametrize("name", RULES)
def test_drawn_logs_fail_at_the_same_sample_either_way(name: str) -> None:
    assert [agree(KINDS[name], evidence, limits) for evidence, limits in drawn_logs(name)]


def test_every_rule_whose_breach_no_later_row_mends_has_a_form_that_goes_row_by_row() -> None:
    whole = {"beyond-chance", "ends-at-best", "learning-progress", "clip-share", "share-within", "steady-rate"}
    whole |= {"logits-sanity", "spent-schedule"}
    whole |= {"stopped-beyond-noise", "stops-in-time", "summary-bound", "validation-parting", "wall-time-budget"}
    whole |= {"peak-share"}
    rules = {name for name, kind in KINDS.items() if kind.figure and SAMPLES in kind.needs}
    assert rules - {*FIGURED} <= whole
    assert len(FIGURED) > 30


def test_a_second_row_of_a_step_silences_a_rule_as_it_leaves_the_judge_without_a_verdict() -> None:
    kind = KINDS["series-bound"]
    limits = read(kind.limits, {"at_most": 1.0})
    made = evidence_of(kind, "loss", [0.5, 0.6, 0.7, 9.0], [], 1)
    again = with_value(made, SAMPLES, dataclasses.replace(series_of(made, SAMPLES), step=[0, 1, 1, 2]))
    assert agree(kind, again, limits) is None
    assert agree(kind, made, limits) == (4, "beyond")
