"""tensor-coverage keeps its promise, where its card cannot show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.rows import typed

from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, TrialResult
from weighbridge.gates import tensor_coverage
from weighbridge.gates.tensor_coverage import KIND, spelled
from weighbridge.judging.judging import falsify


def evidence(*tensors: Any) -> dict[str, Measurement]:
    value = Rows("name", tuple(typed("tensor_health", row) for row in tensors))
    return {"tensors": Measurement(quantity="tensor_health", value=value, by="test", examined=1, total=1)}


def test_ranges_are_written_out_both_ends_included() -> None:
    assert list(spelled(["a", "l.{9..11}.w", "{0..1}.{2..3}"])) == [
        *("a", "l.9.w", "l.10.w", "l.11.w", "0.2", "0.3", "1.2", "1.3"),
    ]


@pytest.mark.parametrize("tensors", [[{"name": "norm"}], [{"name": "norm"}, {"name": "head"}], [{"name": ""}]])
def test_a_tied_tensor_stands_for_another_only_where_the_contract_ties_it(tensors: list[Any]) -> None:
    limits = read(KIND.limits, {"expected": ["embed", "head"], "tied": {"head": "embed"}, "allow_extra": ["*"]})
    verdict = KIND.judge(evidence(*tensors), limits)
    assert (verdict.outcome, verdict.offences[0].place, verdict.code) == (Outcome.FAIL, "embed", "missing")


class Looked(tuple[str, ...]):
    """Places that nobody may search one by one."""

    __slots__ = ()

    def __contains__(self, place: object) -> bool:
        raise AssertionError(f"every place was searched for {place}")


def test_trials_of_a_long_table_neither_write_ranges_out_nor_search_all_places_for_each_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[object] = []

    def counted(names: Iterable[str]) -> Iterator[str]:
        written.append(names)
        return spelled(names)

    monkeypatch.setattr(tensor_coverage, "spelled", counted)
    limits, found = read(KIND.limits, {"expected": ["{0..499}"]}), evidence(*({"name": str(at)} for at in range(500)))
    verdict = KIND.judge(found, limits)
    trials = list(falsify(KIND, found, limits, replace(verdict, looked=Looked(verdict.looked))))
    assert {trial.result for trial in trials} == {TrialResult.CAUGHT, TrialResult.UNTRIED}
    assert len(written) < 100


@pytest.mark.slow
def test_limits_that_cannot_be_met_are_named() -> None:
    def wrong(**given: Any) -> list[str]:
        return list(KIND.check(read(KIND.limits, given), None))

    assert wrong(expected=["a"], tied={"b": "a"}) == ["tied: 'b' is not expected"]
    assert wrong(expected=["x.{3..1}"]) == ["expected: 'x.{3..1}' stands for no name"]
    assert wrong(expected=["{0..999}.{0..999}.{0..9}"]) == ["expected stands for more than 1000000 names"]
