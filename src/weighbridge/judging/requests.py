"""What a gate asks for: measurements, facts, a host, and what must hold of them; and what it read, for who shows it."""

import math
from collections.abc import Mapping
from typing import Any, cast

from weighbridge.clauses.kind import Need, blocked
from weighbridge.core import GateDecl, Json, Measured, Measurement, dataclass, dumps, model, read, replace, sha256
from weighbridge.gates import KINDS
from weighbridge.quantities import facts as known_facts
from weighbridge.quantities.base import record_of, rows_of
from weighbridge.quantities.facts import ALL, ENDED, OF_COLUMNS, OF_STEPS, OF_WHOLE, RECORDER_FAILED, Fact, Host

DEFAULT = "default"
PLACES = 20
NOT_HERE = "not-here"  # nothing was run, because the host lacks what the gate requires
WHEN = ("when-unknown", "when-contradicted", "when-false")
WHERE = ("where-unknown", "where-contradicted", "where-false")


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
    subjects = tuple(gate.subjects[role] for role in need.of if role in gate.subjects)  # or it does without
    text = dumps(options).decode().strip()
    return Request(quantity=need.quantity, subjects=subjects, instance=instance, options=text)


def facts_request(gate: GateDecl, instance: str) -> Request | None:
    """Return the facts that a gate stands on: those of its first role, or None without conditions on what is no run."""
    role, kind = next(iter(KINDS[gate.kind].roles.items()))
    if not (gate.when or gate.where) and kind is not model.SubjectKind.RUN:
        return None
    named = sorted({*gate.when, *gate.where} - known_facts.OF_EVERY_RUN) if kind is model.SubjectKind.RUN else []
    options = dumps({"named": named}).decode().strip() if named else "{}"
    return Request(quantity="facts", subjects=(gate.subjects[role],), instance=instance, options=options)


def host_request(gate: GateDecl) -> Request | None:
    """Return the measurement of the host that a gate's `requires:` is about, or None without requirements."""
    return Request(quantity="host", subjects=(), instance=DEFAULT, options="{}") if gate.requires else None


def all_requests(gate: GateDecl, instance: str) -> tuple[Request, ...]:
    """List every measurement that a gate needs on one instance."""
    needs = [request_for(gate, need, instance) for need in KINDS[gate.kind].needed(gate.limits).values()]
    return (*needs, *(extra for extra in (facts_request(gate, instance), host_request(gate)) if extra is not None))


def keys_of(contract: model.Contract, finding: model.Finding) -> tuple[str, ...]:
    """Return the names of the measurements that a finding stands on."""
    gate = contract.gate(finding.gate)
    needs = KINDS[gate.kind].needed(gate.limits).values() if gate.kind in KINDS else ()
    return tuple(request_for(gate, need, finding.instance).key for need in needs)


def looked_at(contract: model.Contract, finding: model.Finding, measured: Mapping[str, Measured]) -> dict[str, Json]:
    """Return the column and the steps that a gate looked at, and 20 places at most, of those that offend if any."""
    gate = contract.gate(finding.gate)
    items = [one for key in keys_of(contract, finding) if isinstance(one := measured.get(key), Measurement)]
    series = next((one for one in items if isinstance(one.value, model.Series) and len(one.value.step)), None)
    places = [one.place for one in finding.verdict.offences[:PLACES]] or ([series.at] if series else [])
    if not places:
        first = [model.Rows(at.key, at.rows[:PLACES]) for item in items if isinstance(at := item.value, model.Rows)]
        places = [place for table in first for place in table.places()][:PLACES]
    found: dict[str, Json] = {"column": None, "from_step": None, "to_step": None, "places": places}
    if series is None:
        return found
    value: Any = series.value
    window: Any = gate.limits.get("steps") or (gate.limits.get("warmup_steps", value.step[0]), value.step[-1])
    first, last = max(window[0], value.step[0]), min(window[1], value.step[-1])
    return found | {"column": series.at, "from_step": first, "to_step": last}


def beyond(contract: model.Contract, finding: model.Finding, measured: Mapping[str, Measured]) -> tuple[list[int], int]:
    """Return the steps of the samples that are beyond a bound by themselves, of a FAIL of it, and of how many."""
    gate, kind, verdict = contract.gate(finding.gate), KINDS.get(finding.kind), finding.verdict
    if kind is None or kind.version != finding.kind_version or verdict.outcome is not model.Outcome.FAIL:
        return [], 0
    keys = zip(kind.needed(gate.limits), keys_of(contract, finding), strict=True)
    evidence = {name: item for name, key in keys if isinstance(item := measured.get(key), Measurement)}
    judged = kind.by_sample(evidence, read(kind.limits, gate.limits)) if verdict.code == next(iter(kind.codes)) else ()
    return [step for step, broken in judged if broken], len(judged)


# --- What a verdict stands on besides limits: `when:`, `where:`, `requires:`, and what the reader of a run noted ------


def facts_of(gate: GateDecl, instance: str, measured: Mapping[str, Measured]) -> dict[str, Fact]:
    """Return the facts that a gate stands on, by name, as far as they were measured."""
    item = facts_request(gate, instance)
    found = measured.get(item.key) if item else None
    return {fact.name: fact for fact in rows_of(found, Fact)} if isinstance(found, Measurement) else {}


def sealed(fact: Fact | None) -> Json:
    """Return a fact as verdicts seal it."""
    if fact is None:
        return None
    return {"value": _value(fact), "basis": str(fact.basis), "contradicted_by": list(fact.contradicted_by)}


def _value(fact: Fact | None) -> Any:  # any JSON
    return None if fact is None else fact.value


def unmet(gate: GateDecl, facts: Mapping[str, Fact], measured: Mapping[str, Measured]) -> model.Verdict | None:
    """Hold the gate's conditions against what was found; a false, unknown or contradicted one holds it back."""
    if (lacking := lacking_here(gate, measured)) is not None:
        name, found = lacking
        return blocked("requires", {"requirement": name, "needed": gate.requires[name], "found": found})
    problems = (_unmet(WHERE, name, needed, facts.get(name)) for name, needed in sorted(gate.where.items()))
    return unmeant(gate, facts) or next(filter(None, problems), None)


def unmeant(gate: GateDecl, facts: Mapping[str, Fact]) -> model.Verdict | None:
    """Hold the gate's `when:` against what was found: None where all of it is true.

    One fact that was measured or derived and is false makes it NOT_APPLICABLE; anything else holds the gate back.
    """
    found = (_unmeant(name, needed, facts.get(name)) for name, needed in sorted(gate.when.items()))
    return min(filter(None, found), key=lambda one: one.outcome is not model.Outcome.NOT_APPLICABLE, default=None)


def _unmeant(name: str, needed: model.Scalar, fact: Fact | None) -> model.Verdict | None:
    problem = _unmet(WHEN, name, needed, fact)
    if problem is None or fact is None or problem.code != WHEN[-1]:
        return problem
    if not _comparable(fact.value, needed):  # it could never be true: a slip must not switch the gate off
        return replace(problem, code="when-incomparable")
    if fact.basis is model.Basis.REPORTED:  # or a run could excuse itself from a gate by what it says
        return replace(problem, code="when-reported")
    return replace(problem, outcome=model.Outcome.NOT_APPLICABLE, figures={**problem.figures, "basis": str(fact.basis)})


def lacking_here(gate: GateDecl, measured: Mapping[str, Measured]) -> tuple[str, Json] | None:
    """Return the first requirement that this host does not meet, with what was found, or None."""
    item = host_request(gate)
    host = measured.get(item.key) if item else None
    found = record_of(host, Host) if isinstance(host, Measurement) else None
    pairs = ((name, getattr(found, name, None)) for name in sorted(gate.requires))  # as in sealed JSON
    return next((pair for pair in pairs if pair[1] is not gate.requires[pair[0]]), None)


def _unmet(codes: tuple[str, str, str], name: str, needed: model.Scalar, fact: Fact | None) -> model.Verdict | None:
    unknown, contradicted, false = codes
    if fact is None or fact.value is None:
        return blocked(unknown, {"fact": name, "needed": needed})
    if fact.contradicted_by:
        return blocked(contradicted, {"fact": name, "needed": needed, "by": list(fact.contradicted_by)})
    if not _comparable(fact.value, needed) or fact.value != needed:
        return blocked(false, {"fact": name, "needed": needed, "found": _value(fact)})
    return None


def _comparable(found: object, needed: model.Scalar) -> bool:
    """Return whether both are true or false, both numbers, or both texts; NaN is none, and 1 is not true."""
    if isinstance(found, bool) or isinstance(needed, bool):
        return isinstance(found, bool) and isinstance(needed, bool)
    if isinstance(found, (int, float)):
        return isinstance(needed, (int, float)) and not math.isnan(found)
    return isinstance(found, str) and isinstance(needed, str)


# --- What is asked of every run, unless the gate's `when:` or `where:` says otherwise by name -------------------------

NOTED = (*OF_COLUMNS, *OF_STEPS, *OF_WHOLE, RECORDER_FAILED, "mapped_by_place", "unterminated", "banner_lines")
RUN_FACTS = ("started", ENDED, "ended_by", "requested_steps", "steps", *NOTED)


def is_of_run(gate: GateDecl) -> bool:
    """Return whether a gate looks at a run."""
    return model.SubjectKind.RUN in KINDS[gate.kind].roles.values()


def unfit_run(gate: GateDecl, facts: Mapping[str, Fact]) -> model.Verdict | None:
    """Hold back a gate that stands on what the reader noted, or on a whole run that is not known to have ended."""
    kind = KINDS[gate.kind]
    limits, measure = read(kind.limits, gate.limits), read(cast(type[Any], kind.measure), gate.measure)
    whole = kind.window(limits, measure) is None
    rows = any(need.of_rows for need in kind.needed(gate.limits).values())
    accepted = gate.when.keys() | gate.where.keys()
    whole, placed = (whole, OF_STEPS) if known_facts.AS_LOGGED not in accepted else (False, ())
    noted = (*(OF_COLUMNS + placed if rows else ()), *(OF_WHOLE if whole else ()))
    lost = str(_value(facts.get(RECORDER_FAILED)) or "").split()
    named = kind.columns(limits, measure)  # a gate that names none says itself what it cannot do without
    noted += (RECORDER_FAILED,) if not set(named).isdisjoint(lost) or (ALL in lost and named) else ()
    for name in noted:
        if name in facts and name not in accepted:
            return blocked("reader-noted", {"fact": name, "found": _value(facts[name])})
    if not whole or ENDED in accepted:
        return None
    ended = facts.get(ENDED)
    found, contradicted_by = (_value(ended), list(ended.contradicted_by)) if ended else (None, [])
    counted = found == "unknown" and not accepted.isdisjoint(known_facts.COUNTED)
    if counted or (found == ENDED and not contradicted_by):
        return None
    names = (ENDED, "ended_by", "requested_steps", "steps", "last_step")
    said = [f"{name}: {_value(facts[name])}" for name in names if name in facts] + contradicted_by
    return blocked("not-ended", {"ended": found, "steps": _value(facts.get("steps")), "said": said})
