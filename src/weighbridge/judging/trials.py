"""Try to make a pass fail: break each limit and each clause, then take all away. A survivor is a vacuous pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weighbridge.clauses.kind import Evidence, Kind, Mutation
from weighbridge.clauses.mutations import of_limits
from weighbridge.core import Measurement, Outcome, Rows, Trial, TrialResult, Verdict, model, replace, show_traceback


def answer(kind: Kind[Any], evidence: Evidence, limits: object) -> Verdict:
    """Return what a kind comes to; where its judge breaks, an ERROR."""
    try:
        return kind.judge(evidence, limits)
    except Exception as error:  # noqa: BLE001 -- a judge that breaks is a tool fault; its text is never sealed
        show_traceback(error)
        return Verdict(outcome=Outcome.ERROR, code="judge-raised")


def falsify(kind: Kind[Any], evidence: Evidence, limits: object, verdict: Verdict) -> Iterable[Trial]:
    """Try to make a pass fail: break each limit and each clause, then take all away.

    Trials of a long measurement run on a cut of it that was first seen to pass; the first mutation, those that find
    nothing to break in the cut, and the taking away run on the whole.
    """
    if not verdict.looked or verdict.of == 0:
        yield Trial(kind="mutation", name="looked at nothing", code="", result=TrialResult.SURVIVED)
    cut, within, cut_verdict = _cut(kind, evidence, limits, verdict)
    for at, mutation in enumerate((*kind.mutations, *of_limits(within))):
        trial = _try(kind, mutation, cut, within, cut_verdict)
        on_whole = trial.result is TrialResult.UNTRIED or (at == 0 and trial.result is TrialResult.CAUGHT)
        if cut is not evidence and on_whole:
            trial = _try(kind, mutation, evidence, limits, verdict)
        yield trial
    for name in evidence:
        if not kind.needs[name].optional:
            yield _nothing_left(kind, evidence, limits, (name,))
    if len(evidence) > 1:
        yield _nothing_left(kind, evidence, limits, tuple(evidence))


def _cut(kind: Kind[Any], evidence: Evidence, limits: object, verdict: Verdict) -> tuple[Evidence, object, Verdict]:
    """Return a smaller measurement that passes, too, with its limits and verdict; the whole where there is none."""
    whole = evidence, limits, verdict
    try:
        cut, within = kind.cut({name: _few_rows(item) for name, item in evidence.items()}, limits)
    except Exception:  # noqa: BLE001 -- a cut that breaks costs time only: the whole is tried instead
        return whole
    if all(cut[name] is item for name, item in evidence.items()):
        return whole
    passed = answer(kind, cut, within)
    return (cut, within, passed) if passed.outcome is Outcome.PASS else whole


def _few_rows(item: Measurement) -> Measurement:
    if not isinstance(item.value, Rows) or len(item.value.rows) <= FEW_ROWS:
        return item
    rows, last = item.value.rows, len(item.value.rows) - 1
    kept = tuple(rows[last * at // (FEW_ROWS - 1)] for at in range(FEW_ROWS))
    return replace(item, value=Rows(item.value.key, kept))


FEW_ROWS = 16


def _try(kind: Kind[Any], mutation: Mutation[Any], evidence: Evidence, limits: object, verdict: Verdict) -> Trial:
    """Break one clause everywhere, at the first and the last place alone, and where nobody said that they looked."""
    survived = Trial(kind="mutation", name=mutation.name, code=mutation.code, result=TrialResult.SURVIVED)
    caught, why = False, ""
    everywhere, looked = verdict.looked, frozenset(verdict.looked)
    tables = (item.value.places() for item in evidence.values() if isinstance(item.value, Rows))
    elsewhere = tuple(place for places in tables for place in places if place not in looked)
    for places in dict.fromkeys((everywhere, everywhere[-1:], everywhere[:1], *([elsewhere] if elsewhere else []))):
        try:
            broken = mutation(evidence, limits, places)
        except Exception as error:  # noqa: BLE001 -- one that breaks itself on what passed has shown nothing
            show_traceback(error)
            return survived
        if isinstance(broken, str):
            why = why or broken
            continue
        if not _objects(answer(kind, broken.evidence, limits), mutation, broken.places):
            return survived
        caught = True
    if caught:
        return replace(survived, result=TrialResult.CAUGHT)
    return replace(survived, result=TrialResult.UNTRIED, why=why)


def _objects(came_to: Verdict, mutation: Mutation[Any], places: frozenset[str]) -> bool:
    if came_to.outcome is not mutation.outcome:
        return False
    if came_to.outcome is Outcome.BLOCKED:
        return came_to.code == mutation.code
    return bool(places) and places <= {o.place for o in came_to.offences if o.code == mutation.code}


def _nothing_left(kind: Kind[Any], evidence: Evidence, limits: object, names: Sequence[str]) -> Trial:
    emptied = {
        name: replace(item, value=_emptied(item.value), examined=0) if name in names else item
        for name, item in evidence.items()
    }
    caught = answer(kind, emptied, limits).outcome is Outcome.BLOCKED
    result = TrialResult.CAUGHT if caught else TrialResult.SURVIVED
    return Trial(kind="nothing-left", name="without " + " and ".join(names), code="", result=result)


def _emptied(value: model.Value) -> model.Value:
    if isinstance(value, Rows):
        return Rows(value.key, ())
    return model.Series((), ()) if isinstance(value, model.Series) else model.Record(None)
