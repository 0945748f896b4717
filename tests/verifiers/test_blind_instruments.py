"""Blind each instrument and weigh what passes: a frozen, half-blind or short-sighted one must let no PASS come out.

The blinded instrument stands in the runner's table of verifiers; everything else is as in `weighbridge verify`. It
lies about how much it looked at, so that its canary, its extent and the judge's trials have to notice.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.weighing import CASES, Case, outcome

import weighbridge.verifiers as package
from weighbridge import runner
from weighbridge.model import Fields, Measurement, Outcome, Record, Rows, Series, SubjectKind, Unmeasured
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.base import Verifier, Views

Key = tuple[str, tuple[SubjectKind, ...]]
Measured = Measurement | Unmeasured
Measure = Callable[[Views, Fields], Measured]

RUN, CHECKPOINT = SubjectKind.RUN, SubjectKind.CHECKPOINT
KEYS: dict[str, Key] = {
    "tensor_pairs": ("tensor_pairs", (CHECKPOINT, CHECKPOINT)),
    "tensor_pairs, widened": ("tensor_pairs", (CHECKPOINT, CHECKPOINT)),
    "facts-checkpoint": ("facts", (CHECKPOINT,)),
    "step_columns": ("step_columns", (RUN,)),
    "step_series": ("step_series", (RUN,)),
    "corpus_progress": ("corpus_progress", (RUN,)),
    "corpus_passes": ("corpus_passes", (RUN,)),
    "device_evidence": ("device_evidence", (RUN,)),
    "facts-run": ("facts", (RUN,)),
    "host": ("host", ()),
    "command_outcome": ("command_outcome", (SubjectKind.COMMAND,)),
    "forward_errors": ("forward_errors", (SubjectKind.MODEL, SubjectKind.MODEL)),
}


@pytest.fixture
def case(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Case:
    if request.param == "forward_errors":
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    return CASES[request.param](tmp_path)


def with_instrument(monkeypatch: pytest.MonkeyPatch, key: Key, instrument: Verifier) -> None:
    monkeypatch.setattr(runner, "VERIFIERS", {**VERIFIERS, key: instrument})


def refused(case: Case, folder: Path) -> bool:
    return outcome(case.weigh(folder))[0] is not Outcome.PASS


def test_every_verifier_is_blinded() -> None:
    assert set(KEYS) == set(CASES)
    assert set(KEYS.values()) == set(VERIFIERS)


@pytest.mark.parametrize("case", CASES, indirect=True)
def test_what_is_weighed_passes_with_instruments_that_see(case: Case, tmp_path: Path) -> None:
    assert outcome(case.weigh(tmp_path)) == (Outcome.PASS, "pass")


# --- Answers that are cut, or always the same -------------------------------------------------------------------------


def frozen(measure: Measure) -> Measure:
    """Answer the first measurement for ever."""
    kept: list[Measured] = []

    def look(views: Views, options: Fields) -> Measured:
        kept.append(measure(views, options)) if not kept else None
        return kept[0]

    return look


def keeping(part: slice) -> Callable[[Measure], Measure]:
    """Keep a part of the answer, and say that all was looked at."""

    def blinded(measure: Measure) -> Measure:
        def look(views: Views, options: Fields) -> Measured:
            found = measure(views, options)
            return dataclasses.replace(found, value=_cut(found.value, part)) if isinstance(found, Measurement) else found

        return look

    return blinded


def _cut(value: Any, part: slice) -> Any:
    match value:
        case Rows(key, rows):
            return Rows(key, rows[part])
        case Series(step, values):
            return Series(step[part], values[part])
        case Record(fields):
            return Record(dict(list(fields.items())[part]))


def repeating(at: int) -> Callable[[Measure], Measure]:
    """Look at one place, and say the same of every other."""

    def blinded(measure: Measure) -> Measure:
        def look(views: Views, options: Fields) -> Measured:
            found = measure(views, options)
            return dataclasses.replace(found, value=_spread(found.value, at)) if isinstance(found, Measurement) else found

        return look

    return blinded


def _spread(value: Any, at: int) -> Any:
    match value:
        case Rows(key, rows) if rows:
            return Rows(key, tuple({**rows[at], key: row[key]} for row in rows))
        case Series(step, values) if values:
            return Series(step, [values[at]] * len(values))
        case _:
            return Record({})


BLINDED: dict[str, Callable[[Measure], Measure]] = {
    "a constant": frozen,
    "the first place only": keeping(slice(1)),
    "the last place only": keeping(slice(-1, None)),
    "all but the last place": keeping(slice(-1)),
    "all but the first place": keeping(slice(1, None)),
    "the first place for all": repeating(0),
    "the last place for all": repeating(-1),
}


@pytest.mark.parametrize("how", BLINDED)
@pytest.mark.parametrize(("case", "name"), [(name, name) for name in CASES], indirect=["case"])
def test_a_blinded_instrument_lets_no_pass_come_out(
    case: Case, name: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = VERIFIERS[KEYS[name]]
    with_instrument(monkeypatch, KEYS[name], dataclasses.replace(real, measure=BLINDED[how](real.measure)))
    assert refused(case, tmp_path)


# --- Looks that are cut -----------------------------------------------------------------------------------------------


def seeing(look: Callable[[Any], Any]) -> Callable[[Measure], Measure]:
    """Measure a part of every view, and say that all was looked at."""

    def blinded(measure: Measure) -> Measure:
        def short(views: Views, options: Fields) -> Measured:
            found = measure(tuple(look(view) for view in views), options)
            full = measure(views, options)
            assert isinstance(full, Measurement)
            return dataclasses.replace(found, examined=full.examined) if isinstance(found, Measurement) else found

        return short

    return blinded


def rows(part: slice) -> Callable[[Any], Any]:
    return lambda view: dataclasses.replace(view.cut(list(range(view.rows))[part]), events=view.events)


def columns(part: slice) -> Callable[[Any], Any]:
    def look(view: Any) -> Any:
        names = ["step", *[name for name in view.cells if name != "step"][part]]
        return dataclasses.replace(view, cells={name: view.cells[name] for name in names})

    return look


def events(part: slice) -> Callable[[Any], Any]:
    return lambda view: view.with_events(list(view.events)[part])


PARTS = {"first": slice(1), "last": slice(-1, None), "all but the last": slice(-1), "the first half": slice(60)}
LOOKS: dict[str, Callable[[Any], Any]] = {
    **{f"{name} row": rows(part) for name, part in PARTS.items()},
    **{f"{name} column": columns(part) for name, part in PARTS.items()},
    **{f"{name} event": events(part) for name, part in PARTS.items() if name != "the first half"},
}
OF_RUNS = [name for name, key in KEYS.items() if key[1] == (RUN,)]
