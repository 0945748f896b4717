"""From measurements and limits to findings: judge, try to falsify every pass, and check that instruments can see.

All that judging again needs: pure functions of decoded evidence. Imports no view, no verifier, no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from weighbridge.clauses.kind import Kind, blocked
from weighbridge.core import Finding, GateDecl, Measured, Measurement, Outcome, Trial, TrialResult, Verdict, model, read
from weighbridge.gates import KINDS
from weighbridge.judging.conditions import RUN_FACTS, facts_of, is_of_run, sealed, unfit_run, unmeant, unmet
from weighbridge.judging.requests import NOT_HERE, all_requests, facts_request, request_for
from weighbridge.judging.trials import answer, falsify
from weighbridge.quantities.facts import Fact

Trials: TypeAlias = tuple[Trial, ...]


def judge_contract(
    contract: model.Contract,
    instances: Mapping[str, Sequence[str]],
    measured: Mapping[str, Measured],
    canaries: Mapping[str, model.CanaryResult],
) -> tuple[Finding, ...]:
    """Judge every gate of a contract on each of its instances; `instances` is by gate id."""
    return tuple(
        judge_gate(gate, instance, measured, canaries) for gate in contract.gates for instance in instances[gate.id]
    )


def judge_gate(
    gate: GateDecl, instance: str, measured: Mapping[str, Measured], canaries: Mapping[str, model.CanaryResult]
) -> Finding:
    """Judge one gate on one instance, with its trials and its conditions."""
    kind, facts = KINDS[gate.kind], facts_of(gate, instance, measured)
    canary_trials = tuple(
        _canary_trial(item.key, canaries.get(item.key))
        for item in all_requests(gate, instance)
        if isinstance(measured.get(item.key), Measurement)
    )
    uncounted, not_meant = None, unmeant(gate, facts)
    of_facts = facts_request(gate, instance)
    if of_facts and not_meant and not_meant.outcome is Outcome.NOT_APPLICABLE:
        trials = tuple(trial for trial in canary_trials if trial.name == of_facts.key)
        verdict = _partial(measured[of_facts.key]) or _blind(trials) or _unseeing(trials) or not_meant
    else:
        verdict, trials, uncounted = _under_conditions(gate, instance, facts, measured, canary_trials)
    of_run = [name for name in RUN_FACTS if name in facts] if is_of_run(gate) else []
    return Finding(
        gate=gate.id,
        instance=instance,
        kind=kind.name,
        kind_version=kind.version,
        severity=gate.severity,
        verdict=verdict,
        facts={name: sealed(facts.get(name)) for name in (*gate.when, *gate.where, *of_run)},
        trials=trials,
        uncounted=uncounted,
    )


def _under_conditions(
    gate: GateDecl, instance: str, facts: Mapping[str, Fact], measured: Mapping[str, Measured], canary_trials: Trials
) -> tuple[Verdict, Trials, Verdict | None]:
    """Return the verdict of a gate, its trials, and what is not counted where a condition holds it back."""
    kind = KINDS[gate.kind]
    keys = {name: request_for(gate, need, instance).key for name, need in kind.needed(gate.limits).items()}
    verdict, trials = _judged(kind, read(kind.limits, gate.limits), keys, measured, canary_trials)
    held_back = unmet(gate, facts, measured)
    if held_back is None and verdict.outcome is Outcome.PASS and is_of_run(gate):
        held_back = unfit_run(gate, facts)  # what is broken beyond doubt is broken however the run ended
    uncounted = verdict if held_back is not None and verdict.outcome in (Outcome.PASS, Outcome.FAIL) else None
    if verdict.outcome is Outcome.ERROR or (verdict.outcome is Outcome.BLOCKED and verdict.code != NOT_HERE):
        held_back = None  # what kept the gate from looking says more than the conditions it would have stood under
    return held_back or verdict, trials, uncounted


def _judged(
    kind: Kind[Any], limits: object, keys: Mapping[str, str], measured: Mapping[str, Measured], canary_trials: Trials
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


def _evidence(
    kind: Kind[Any], keys: Mapping[str, str], measured: Mapping[str, Measured]
) -> dict[str, Measurement] | Verdict:
    """Return what the kind needs, or the verdict where something of it is not there."""
    evidence: dict[str, Measurement] = {}
    for name, key in keys.items():
        need, item = kind.needs[name], measured.get(key, NEVER_MEASURED)
        if isinstance(item, model.Faulted):
            return Verdict(outcome=Outcome.ERROR, code=item.code, figures={"measurement": key})
        if isinstance(item, model.Unmeasured):
            if need.optional:
                continue
            return blocked(item.code, {"measurement": key})
        if (partial := _partial(item)) is not None:
            return partial
        evidence[name] = item
    return evidence


def _partial(item: Measured) -> Verdict | None:
    if isinstance(item, Measurement) and item.examined < item.total:
        return blocked("partial-look", {"examined": item.examined, "total": item.total})
    return None


NEVER_MEASURED = model.Unmeasured(
    code="never-measured", why="no verifier measured it", remedy="bind the gate's subjects"
)


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
