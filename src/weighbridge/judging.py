"""From measurements and limits to findings: judge, try to falsify every pass, and check that instruments can see.

All that judging again needs: pure functions of decoded evidence. Imports no view, no verifier, no torch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from weighbridge.canonical import dumps, sha256
from weighbridge.clauses.faults import derived
from weighbridge.clauses.kind import Evidence, Falsifier, Kind, Need, NotApplicable, blocked
from weighbridge.gates import KINDS
from weighbridge.limits import read
from weighbridge.model import (
    CanaryResult,
    Contract,
    Faulted,
    Finding,
    GateDecl,
    Json,
    Measured,
    Measurement,
    Outcome,
    Record,
    Rows,
    Scalar,
    Series,
    SubjectKind,
    Trial,
    TrialResult,
    Unmeasured,
    Value,
    Verdict,
)
from weighbridge.quantities.base import record_of, rows_of
from weighbridge.quantities.facts import ALL, COUNTED, ENDED, OF_COLUMNS, OF_STEPS, OF_WHOLE, RECORDER_FAILED, Fact
from weighbridge.quantities.hosts import Host

HOST = "host"
DEFAULT = "default"
NOT_HERE = "not-here"  # nothing was run, because the host lacks what the gate requires


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Request:
    """One measurement that a contract needs: a quantity of subjects, with options. Its `key` names it in evidence."""

    quantity: str
    subjects: tuple[str, ...]
    instance: str
    options: str  # canonical JSON, so that the value can be hashed and ordered

    @property
    def key(self) -> str:
        """Return the name of this measurement: unique, and fit for a file name."""
        named = ".".join((self.quantity, *self.subjects, self.instance))
        return named if self.options == "{}" else f"{named}.{sha256(self.options.encode())[:8]}"


def request_for(gate: GateDecl, need: Need, instance: str) -> Request:
    """Return the measurement that a gate's need is, on one instance."""
    options: dict[str, Json] = {key: gate.measure[key] for key in need.options if key in gate.measure}
    options |= need.of_limits(gate.limits)
    subjects = tuple(gate.subjects[role] for role in need.of)
    return Request(
        quantity=need.quantity, subjects=subjects, instance=instance, options=dumps(options).decode().strip()
    )


def facts_request(gate: GateDecl, instance: str) -> Request | None:
    """Return the facts that a gate stands on: those of its first role, or None without conditions on what is no run."""
    role, kind = next(iter(KINDS[gate.kind].roles.items()))
    if not gate.where and kind is not SubjectKind.RUN:
        return None
    return Request(quantity="facts", subjects=(gate.subjects[role],), instance=instance, options="{}")


def host_request(gate: GateDecl) -> Request | None:
    """Return the measurement of the host that a gate's `requires:` is about, or None without requirements."""
    return Request(quantity=HOST, subjects=(), instance=DEFAULT, options="{}") if gate.requires else None


def all_requests(gate: GateDecl, instance: str) -> tuple[Request, ...]:
    """List every measurement that a gate needs on one instance."""
    needs = [request_for(gate, need, instance) for need in KINDS[gate.kind].needs.values()]
    return (*needs, *(extra for extra in (facts_request(gate, instance), host_request(gate)) if extra is not None))


def judge_contract(
    contract: Contract,
    instances: Mapping[str, Sequence[str]],
    measured: Mapping[str, Measured],
    canaries: Mapping[str, CanaryResult],
) -> tuple[Finding, ...]:
    """Judge every gate of a contract on each of its instances; `instances` is by gate id."""
    return tuple(
        judge_gate(gate, instance, measured, canaries) for gate in contract.gates for instance in instances[gate.id]
    )


def judge_gate(
    gate: GateDecl, instance: str, measured: Mapping[str, Measured], canaries: Mapping[str, CanaryResult]
) -> Finding:
    """Judge one gate on one instance, with its trials and its conditions."""
    kind = KINDS[gate.kind]
    limits = read(kind.limits, gate.limits)
    keys = {name: request_for(gate, need, instance).key for name, need in kind.needs.items()}
    facts = facts_of(gate, instance, measured)
    canary_trials = tuple(
        _canary_trial(item.key, canaries.get(item.key))
        for item in all_requests(gate, instance)
        if isinstance(measured.get(item.key), Measurement)
    )
    verdict, trials = _judged(kind, limits, keys, measured, canary_trials)
    of_run = [name for name in RUN_FACTS if name in facts]
    held_back = _conditions(gate, facts, measured)
    if held_back is None and verdict.outcome is Outcome.PASS and _is_of_run(gate):
        held_back = _unfit_run(gate, facts)  # what is broken beyond doubt is broken however the run ended
    uncounted = verdict if held_back is not None and verdict.outcome in (Outcome.PASS, Outcome.FAIL) else None
    if verdict.outcome is Outcome.ERROR or (verdict.outcome is Outcome.BLOCKED and verdict.code != NOT_HERE):
        held_back = None  # what kept the gate from looking says more than the conditions it would have stood under
    return Finding(
        gate=gate.id,
        instance=instance,
        kind=kind.name,
        kind_version=kind.version,
        severity=gate.severity,
        verdict=held_back or verdict,
        facts={name: _sealed(facts.get(name)) for name in (*gate.where, *(of_run if _is_of_run(gate) else ()))},
        trials=trials,
        uncounted=uncounted,
    )


# --- One verdict ------------------------------------------------------------------------------------------------------


def _judged(
    kind: Kind[Any],
    limits: object,
    keys: Mapping[str, str],
    measured: Mapping[str, Measured],
    canary_trials: tuple[Trial, ...],
) -> tuple[Verdict, tuple[Trial, ...]]:
    evidence = _evidence(kind, keys, measured)
    if isinstance(evidence, Verdict):
        return evidence, ()
    verdict = _call(kind, evidence, limits)
    if verdict.outcome is Outcome.ERROR:
        return verdict, ()
    blind = next((trial for trial in canary_trials if trial.result is TrialResult.SURVIVED), None)
    if blind is not None:
        return Verdict(
            outcome=Outcome.ERROR, code="blind", figures={"instrument": blind.name, "place": blind.code}
        ), canary_trials
    if verdict.outcome is not Outcome.PASS:
        return verdict, canary_trials
    trials = tuple(falsify(kind, evidence, limits, verdict))
    return _shown_able_to_fail(verdict, trials, canary_trials), (*trials, *canary_trials)


def _evidence(
    kind: Kind[Any], keys: Mapping[str, str], measured: Mapping[str, Measured]
) -> dict[str, Measurement] | Verdict:
    """Return what the kind needs, or the verdict where something of it is not there."""
    evidence: dict[str, Measurement] = {}
    for name, need in kind.needs.items():
        item = measured.get(keys[name], NEVER_MEASURED)
        if isinstance(item, Faulted):
            return Verdict(outcome=Outcome.ERROR, code=item.code, figures={"measurement": keys[name]})
        if isinstance(item, Unmeasured):
            if need.optional:
                continue
            return blocked(item.code, {"measurement": keys[name]})
        if item.examined < item.total:
            return blocked("partial-look", {"examined": item.examined, "total": item.total})
        evidence[name] = item
    return evidence


NEVER_MEASURED = Unmeasured(code="never-measured", why="no verifier measured it", remedy="bind the gate's subjects")


def _call(kind: Kind[Any], evidence: Evidence, limits: object) -> Verdict:
    try:
        return kind.judge(evidence, limits)
    except Exception:  # noqa: BLE001 -- a judge that breaks is a tool fault, whatever it raised; its text is never sealed
        return Verdict(outcome=Outcome.ERROR, code="judge-raised")


def _canary_trial(key: str, canary: CanaryResult | None) -> Trial:
    """Turn a canary's result into a trial; an instrument without a canary has not been shown to see."""
    if canary is None:
        return Trial(kind="canary", name=key, code="", result=TrialResult.NOT_APPLICABLE, why="no canary was measured")
    result = TrialResult.CAUGHT if canary.seen else TrialResult.SURVIVED
    if not canary.applied:
        result = TrialResult.NOT_APPLICABLE
    return Trial(kind="canary", name=key, code=canary.place, result=result, why=canary.why)


def _shown_able_to_fail(verdict: Verdict, trials: Sequence[Trial], canary_trials: Sequence[Trial]) -> Verdict:
    survivor = next((trial for trial in trials if trial.result is TrialResult.SURVIVED), None)
    if survivor is not None:
        return blocked("vacuous", {"survivor": survivor.name, "clause": survivor.code})
    falsified = any(trial.kind == "falsifier" and trial.result is TrialResult.CAUGHT for trial in trials)
    if not falsified:
        return blocked("nothing-falsified", {"trials": len(trials)})
    unseeing = next((trial for trial in canary_trials if trial.result is not TrialResult.CAUGHT), None)
    if unseeing is not None:
        return blocked("no-canary", {"instrument": unseeing.name, "why": unseeing.why})
    return verdict


# --- Trials -----------------------------------------------------------------------------------------------------------


def falsify(kind: Kind[Any], evidence: Evidence, limits: object, verdict: Verdict) -> Iterable[Trial]:
    """Try to make a pass fail: break each limit and each clause, then take all away.

    Trials of a long measurement run on a cut of it that was first seen to pass; the first falsifier, those that find
    nothing to break in the cut, and the taking away run on the whole.
    """
    if not verdict.looked or verdict.of == 0:
        yield Trial(kind="falsifier", name="looked at nothing", code="", result=TrialResult.SURVIVED)
    cut, within, cut_verdict = _cut(kind, evidence, limits, verdict)
    falsifiers = (*kind.falsifiers, *derived(cut, within))
    for at, falsifier in enumerate(falsifiers):
        trial = _try(kind, falsifier, cut, within, cut_verdict)
        on_whole = trial.result is TrialResult.NOT_APPLICABLE or (at == 0 and trial.result is TrialResult.CAUGHT)
        if cut is not evidence and on_whole:
            trial = _try(kind, falsifier, evidence, limits, verdict)
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
    passed = _call(kind, cut, within)
    return (cut, within, passed) if passed.outcome is Outcome.PASS else whole


def _few_rows(item: Measurement) -> Measurement:
    """Return a measurement with the first, the last and some rows between of a long table."""
    if not isinstance(item.value, Rows) or len(item.value.rows) <= FEW_ROWS:
        return item
    rows, last = item.value.rows, len(item.value.rows) - 1
    kept = tuple(rows[last * at // (FEW_ROWS - 1)] for at in range(FEW_ROWS))
    return dataclasses.replace(item, value=Rows(item.value.key, kept))


FEW_ROWS = 16


def _try(kind: Kind[Any], falsifier: Falsifier[Any], evidence: Evidence, limits: object, verdict: Verdict) -> Trial:
    """Break one clause everywhere, at the first and the last place alone, and where nobody said that they looked."""
    survived = Trial(kind="falsifier", name=falsifier.name, code=falsifier.code, result=TrialResult.SURVIVED)
    caught, why = False, ""
    everywhere, looked = verdict.looked, frozenset(verdict.looked)
    tables = (item.value.places() for item in evidence.values() if isinstance(item.value, Rows))
    elsewhere = tuple(place for places in tables for place in places if place not in looked)
    for places in dict.fromkeys((everywhere, everywhere[-1:], everywhere[:1], *([elsewhere] if elsewhere else []))):
        try:
            damage = falsifier.damage(evidence, limits, places)
        except Exception:  # noqa: BLE001 -- one that breaks itself on what passed has shown nothing, whatever it raised
            return survived
        if isinstance(damage, NotApplicable):
            why = why or damage.why
            continue
        if not _objects(_call(kind, damage.evidence, limits), falsifier, damage.places):
            return survived
        caught = True
    if caught:
        return dataclasses.replace(survived, result=TrialResult.CAUGHT)
    return dataclasses.replace(survived, result=TrialResult.NOT_APPLICABLE, why=why)


def _objects(answer: Verdict, falsifier: Falsifier[Any], places: frozenset[str]) -> bool:
    if answer.outcome is not falsifier.outcome:
        return False
    if answer.outcome is Outcome.BLOCKED:
        return answer.code == falsifier.code
    return bool(places) and places <= {o.place for o in answer.offences if o.code == falsifier.code}


def _nothing_left(kind: Kind[Any], evidence: Evidence, limits: object, names: Sequence[str]) -> Trial:
    emptied = {
        name: dataclasses.replace(item, value=_emptied(item.value), examined=0) if name in names else item
        for name, item in evidence.items()
    }
    held = _call(kind, emptied, limits).outcome is Outcome.BLOCKED
    result = TrialResult.CAUGHT if held else TrialResult.SURVIVED
    return Trial(kind="nothing-left", name="without " + " and ".join(names), code="", result=result)


def _emptied(value: Value) -> Value:
    match value:
        case Rows():
            return Rows(value.key, ())
        case Series():
            return Series((), ())
        case Record():
            return Record(None)


# --- Conditions -------------------------------------------------------------------------------------------------------


def facts_of(gate: GateDecl, instance: str, measured: Mapping[str, Measured]) -> dict[str, Fact]:
    """Return the facts that a gate stands on, by name, as far as they were measured."""
    item = facts_request(gate, instance)
    found = measured.get(item.key) if item else None
    return {fact.name: fact for fact in rows_of(found, Fact)} if isinstance(found, Measurement) else {}


def _sealed(fact: Fact | None) -> Json:
    if fact is None:
        return None
    return {"value": _value(fact), "basis": str(fact.basis), "contradicted_by": list(fact.contradicted_by)}


def _value(fact: Fact | None) -> Any:  # any JSON
    return None if fact is None else fact.value


def _conditions(gate: GateDecl, facts: Mapping[str, Fact], measured: Mapping[str, Measured]) -> Verdict | None:
    """Hold the gate's conditions against what was found; a false, unknown or contradicted one holds it back."""
    if (lacking := lacking_here(gate, measured)) is not None:
        name, found = lacking
        return blocked("requires", {"requirement": name, "needed": gate.requires[name], "found": found})
    problems = (_unmet(name, needed, facts.get(name)) for name, needed in sorted(gate.where.items()))
    return next((problem for problem in problems if problem is not None), None)


def lacking_here(gate: GateDecl, measured: Mapping[str, Measured]) -> tuple[str, Json] | None:
    """Return the first requirement that this host does not meet, with what was found, or None."""
    item = host_request(gate)
    host = measured.get(item.key) if item else None
    found = record_of(host, Host) if isinstance(host, Measurement) else None
    told = ((name, getattr(found, name, None)) for name in sorted(gate.requires))  # as in sealed JSON
    return next((pair for pair in told if pair[1] is not gate.requires[pair[0]]), None)


def _unmet(name: str, needed: Scalar, fact: Fact | None) -> Verdict | None:
    if fact is None or fact.value is None:
        return blocked("where-unknown", {"fact": name, "needed": needed})
    if fact.contradicted_by:
        return blocked("where-contradicted", {"fact": name, "needed": needed, "by": list(fact.contradicted_by)})
    if fact.value != needed:
        return blocked("where-false", {"fact": name, "needed": needed, "found": _value(fact)})
    return None


# --- What is asked of every run, unless the gate's `where:` says otherwise by name ------------------------------------

NOTED = (*OF_COLUMNS, *OF_STEPS, *OF_WHOLE, RECORDER_FAILED, "mapped_by_place", "unterminated", "banner_lines")
RUN_FACTS = (ENDED, "ended_by", "requested_steps", "steps", *NOTED)


def _is_of_run(gate: GateDecl) -> bool:
    return SubjectKind.RUN in KINDS[gate.kind].roles.values()


def _unfit_run(gate: GateDecl, facts: Mapping[str, Fact]) -> Verdict | None:
    """Hold back a gate that stands on what the reader noted, or on a whole run that is not known to have ended."""
    whole = gate.measure.get("steps") is None and gate.limits.get("steps") is None
    rows = any(need.of_rows for need in KINDS[gate.kind].needs.values())
    noted = (*(OF_COLUMNS + OF_STEPS if rows else ()), *(OF_WHOLE if whole else ()))
    noted += (RECORDER_FAILED,) if _reads(gate, str(_value(facts.get(RECORDER_FAILED)) or "").split()) else ()
    for name in noted:
        if name in facts and name not in gate.where:
            return blocked("reader-noted", {"fact": name, "found": _value(facts[name])})
    if not whole or ENDED in gate.where:
        return None
    ended = facts.get(ENDED)
    found, contradicted_by = (_value(ended), list(ended.contradicted_by)) if ended else (None, [])
    counted = found == "unknown" and not gate.where.keys().isdisjoint(COUNTED)
    if counted or (found == ENDED and not contradicted_by):
        return None
    names = (ENDED, "ended_by", "requested_steps", "steps", "last_step")
    told = [f"{name}: {_value(facts[name])}" for name in names if name in facts] + contradicted_by
    return blocked("not-ended", {"ended": found, "steps": _value(facts.get("steps")), "told": told})


def _reads(gate: GateDecl, lost: Sequence[str]) -> bool:
    """Return whether a gate names one of these columns; one that names none says itself what it cannot do without."""
    required: Any = gate.limits.get("required", ())
    named = {*required, gate.measure.get("column")}
    return not named.isdisjoint(lost) or (ALL in lost and named != {None})
