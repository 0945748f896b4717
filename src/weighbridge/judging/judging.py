"""From measurements and limits to findings: judge, try to falsify every pass, and check that instruments can see.

All that judging again needs: pure functions of decoded evidence. Imports no view, no verifier, no torch.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from weighbridge.clauses.kind import Evidence, Kind, Mutation, blocked
from weighbridge.clauses.mutations import of_limits
from weighbridge.core import GateDecl, Measured, Measurement, Outcome, Trial, TrialResult, Verdict, model, read, replace
from weighbridge.core.errors import FAULTS, show_traceback
from weighbridge.core.plugins import used
from weighbridge.gates import KINDS
from weighbridge.judging import requests
from weighbridge.judging.requests import NOT_HERE, RUN_FACTS, all_requests, facts_of, facts_request, is_of_run, unmeant
from weighbridge.quantities.facts import Fact

Trials: TypeAlias = tuple[Trial, ...]
AllMeasured: TypeAlias = Mapping[str, Measured]  # by the keys of requests, as are the results of canaries
Canaries: TypeAlias = Mapping[str, model.CanaryResult]
FEW_ROWS = 16


def judge_contract(
    contract: model.Contract, instances: Mapping[str, Sequence[str]], measured: AllMeasured, canaries: Canaries
) -> tuple[model.Finding, ...]:
    """Judge every gate of a contract on each of its instances; `instances` is by gate id."""
    on = ((gate, instance) for gate in contract.gates for instance in instances[gate.id])
    return tuple(judge_gate(gate, instance, measured, canaries) for gate, instance in on)


def judge_gate(gate: GateDecl, instance: str, measured: AllMeasured, canaries: Canaries) -> model.Finding:
    """Judge one gate on one instance, with its trials and its conditions."""
    kind, facts = KINDS[gate.kind], facts_of(gate, instance, measured)
    keys = (item.key for item in all_requests(gate, instance) if isinstance(measured.get(item.key), Measurement))
    canary_trials = tuple(_canary_trial(key, canaries.get(key)) for key in keys)
    uncounted, not_meant = None, unmeant(gate, facts)
    of_facts = facts_request(gate, instance)
    if of_facts and not_meant and not_meant.outcome is Outcome.NOT_APPLICABLE:
        trials = tuple(trial for trial in canary_trials if trial.name == of_facts.key)
        verdict = _partial(measured[of_facts.key]) or _blind(trials) or _unseeing(trials) or not_meant
    else:
        verdict, trials, uncounted = _under_conditions(gate, instance, facts, measured, canary_trials)
    of_run = [name for name in RUN_FACTS if name in facts] if is_of_run(gate) else []
    return model.Finding(
        gate=gate.id,
        instance=instance,
        kind=kind.name,
        kind_version=kind.version,
        severity=gate.severity,
        verdict=verdict,
        facts={name: requests.sealed(facts.get(name)) for name in (*gate.when, *gate.where, *of_run)},
        trials=trials,
        uncounted=uncounted,
    )


def _under_conditions(
    gate: GateDecl, instance: str, facts: Mapping[str, Fact], measured: AllMeasured, canary_trials: Trials
) -> tuple[Verdict, Trials, Verdict | None]:
    """Return the verdict of a gate, its trials, and what is not counted where a condition holds it back."""
    kind = KINDS[gate.kind]
    keys = {name: requests.request_for(gate, need, instance).key for name, need in kind.needed(gate.limits).items()}
    verdict, trials = _judged(kind, read(kind.limits, gate.limits), keys, measured, canary_trials)
    kept_back = requests.unmet(gate, facts, measured)
    if kept_back is None and verdict.outcome is Outcome.PASS and is_of_run(gate):
        kept_back = requests.unfit_run(gate, facts)  # what is broken beyond doubt is broken however the run ended
    uncounted = verdict if kept_back is not None and verdict.outcome in (Outcome.PASS, Outcome.FAIL) else None
    if verdict.outcome is Outcome.ERROR or (verdict.outcome is Outcome.BLOCKED and verdict.code != NOT_HERE):
        kept_back = None  # what kept the gate from looking says more than the conditions it would have stood under
    return kept_back or verdict, trials, uncounted


def _judged(
    kind: Kind[Any], limits: object, keys: Mapping[str, str], measured: AllMeasured, canary_trials: Trials
) -> tuple[Verdict, Trials]:
    evidence = _evidence(kind, keys, measured)
    if isinstance(evidence, Verdict):
        return evidence, ()
    verdict = answer(kind, evidence, limits)
    if verdict.outcome is Outcome.ERROR:
        return verdict, ()
    if (blind := _blind(canary_trials)) is not None:
        return blind, canary_trials
    if verdict.outcome is not Outcome.PASS:
        return verdict, canary_trials
    trials = tuple(falsify(kind, evidence, limits, verdict))
    survivor = next((trial for trial in trials if trial.result is TrialResult.SURVIVED), None)
    if survivor is not None:
        verdict = blocked("vacuous", {"survivor": survivor.name, "clause": survivor.code})
    elif not any(trial.kind == "mutation" and trial.result is TrialResult.CAUGHT for trial in trials):
        verdict = blocked("nothing-falsified", {"trials": len(trials)})
    else:
        verdict = _unseeing(canary_trials) or verdict
    return verdict, (*trials, *canary_trials)


def _evidence(kind: Kind[Any], keys: Mapping[str, str], measured: AllMeasured) -> dict[str, Measurement] | Verdict:
    """Return what the kind needs, or the verdict where something of it is not there."""
    evidence: dict[str, Measurement] = {}
    for name, key in keys.items():
        need, item = kind.needs[name], measured.get(key)
        if isinstance(item, model.Faulted):
            return Verdict(outcome=Outcome.ERROR, code=item.code, figures={"measurement": key})
        if item is None or isinstance(item, model.Unmeasured):
            if need.optional:
                continue
            return blocked(item.code if item else "never-measured", {"measurement": key})
        if (partial := _partial(item)) is not None:
            return partial
        evidence[name] = item
    return evidence


def _partial(item: Measured) -> Verdict | None:
    if isinstance(item, Measurement) and item.examined < item.total:
        return blocked("partial-look", {"examined": item.examined, "total": item.total})
    return None


def _canary_trial(key: str, canary: model.CanaryResult | None) -> Trial:
    """Turn a canary's result into a trial; an instrument without a canary has not been shown to see."""
    if canary is None:
        return Trial(kind="canary", name=key, code="", result=TrialResult.UNTRIED, why="no canary was measured")
    seen = TrialResult.CAUGHT if canary.seen else TrialResult.SURVIVED
    result = seen if canary.applied else TrialResult.UNTRIED
    return Trial(kind="canary", name=key, code=canary.place, result=result, why=canary.why)


def _blind(canary_trials: Sequence[Trial]) -> Verdict | None:
    blind = next((trial for trial in canary_trials if trial.result is TrialResult.SURVIVED), None)
    figures = {"instrument": blind.name, "place": blind.code} if blind else {}
    return Verdict(outcome=Outcome.ERROR, code="blind", figures=figures) if blind else None


def _unseeing(canary_trials: Sequence[Trial]) -> Verdict | None:
    unseeing = next((trial for trial in canary_trials if trial.result is not TrialResult.CAUGHT), None)
    return blocked("no-canary", {"instrument": unseeing.name, "why": unseeing.why}) if unseeing else None


# --- Trials: break each limit and each clause of a pass, then take all away; a survivor is a vacuous pass -------------


def answer(kind: Kind[Any], evidence: Evidence, limits: object) -> Verdict:
    """Return what a kind comes to; where its judge breaks, an ERROR."""
    try:
        return kind.judge(evidence, limits)
    except FAULTS as error:  # a fault of who brings the judge; its text is never sealed
        show_traceback(error)
        whose = {"kind": kind.name, "package": brought[0].package} if (brought := used("kind", (kind.name,))) else {}
        return Verdict(outcome=Outcome.ERROR, code="judge-raised", figures=whose)


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
    each: list[tuple[str, ...]] = [(name,) for name in evidence if not kind.needs[name].optional]
    for names in [*each, tuple(evidence)] if len(evidence) > 1 else each:
        yield _nothing_left(kind, evidence, limits, names)


def _cut(kind: Kind[Any], evidence: Evidence, limits: object, verdict: Verdict) -> tuple[Evidence, object, Verdict]:
    """Return a smaller measurement that passes, too, with its limits and verdict; the whole where there is none."""
    whole = evidence, limits, verdict
    try:
        cut, within = kind.cut({name: _few_rows(item) for name, item in evidence.items()}, limits)
    except FAULTS:  # a cut that breaks costs time only: the whole is tried instead
        return whole
    if all(cut[name] is item for name, item in evidence.items()):
        return whole
    passed = answer(kind, cut, within)
    return (cut, within, passed) if passed.outcome is Outcome.PASS else whole


def _few_rows(item: Measurement) -> Measurement:
    if not isinstance(item.value, model.Rows) or len(item.value.rows) <= FEW_ROWS:
        return item
    rows, last = item.value.rows, len(item.value.rows) - 1
    kept = tuple(rows[last * at // (FEW_ROWS - 1)] for at in range(FEW_ROWS))
    return replace(item, value=model.Rows(item.value.key, kept))


def _try(kind: Kind[Any], mutation: Mutation[Any], evidence: Evidence, limits: object, verdict: Verdict) -> Trial:
    """Break one clause everywhere, at the first and the last place alone, and where nobody said that they looked."""
    survived = Trial(kind="mutation", name=mutation.name, code=mutation.code, result=TrialResult.SURVIVED)
    caught, why = False, ""
    everywhere, looked = verdict.looked, frozenset(verdict.looked)
    tables = (item.value.places() for item in evidence.values() if isinstance(item.value, model.Rows))
    elsewhere = tuple(place for places in tables for place in places if place not in looked)
    for places in dict.fromkeys((everywhere, everywhere[-1:], everywhere[:1], *([elsewhere] if elsewhere else []))):
        try:
            broken = mutation(evidence, limits, places)
        except FAULTS as error:  # one that breaks itself on what passed has shown nothing
            show_traceback(error)
            return survived
        if isinstance(broken, str):
            why = why or broken
            continue
        if not _objects(answer(kind, broken.evidence, limits), mutation, broken.places):
            return survived
        caught = True
    return replace(survived, result=TrialResult.CAUGHT if caught else TrialResult.UNTRIED, why="" if caught else why)


def _objects(came_to: Verdict, mutation: Mutation[Any], places: frozenset[str]) -> bool:
    if came_to.outcome is not mutation.outcome:
        return False
    if came_to.outcome is Outcome.BLOCKED:
        return came_to.code == mutation.code
    return bool(places) and places <= {o.place for o in came_to.offences if o.code == mutation.code}


def _nothing_left(kind: Kind[Any], evidence: Evidence, limits: object, names: Sequence[str]) -> Trial:
    emptied = {name: replace(evidence[name], value=_emptied(evidence[name].value), examined=0) for name in names}
    caught = answer(kind, {**evidence, **emptied}, limits).outcome is Outcome.BLOCKED
    result = TrialResult.CAUGHT if caught else TrialResult.SURVIVED
    return Trial(kind="nothing-left", name="without " + " and ".join(names), code="", result=result)


def _emptied(value: model.Value) -> model.Value:
    if isinstance(value, model.Rows):
        return model.Rows(value.key, ())
    return model.Series((), ()) if isinstance(value, model.Series) else model.Record(None)
