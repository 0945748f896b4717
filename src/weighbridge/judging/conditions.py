"""What a verdict stands on besides its limits: `when:`, `where:`, `requires:`, and what the reader of a run noted."""

from __future__ import annotations

import math
import typing
from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import blocked
from weighbridge.core import GateDecl, Json, Measured, Measurement, Outcome, Scalar, Verdict, model, read, replace
from weighbridge.gates import KINDS
from weighbridge.judging.requests import facts_request, host_request
from weighbridge.quantities import facts as known_facts
from weighbridge.quantities.base import record_of, rows_of
from weighbridge.quantities.facts import ALL, ENDED, OF_COLUMNS, OF_STEPS, OF_WHOLE, RECORDER_FAILED, Fact, Host


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


def unmet(gate: GateDecl, facts: Mapping[str, Fact], measured: Mapping[str, Measured]) -> Verdict | None:
    """Hold the gate's conditions against what was found; a false, unknown or contradicted one holds it back."""
    if (lacking := lacking_here(gate, measured)) is not None:
        name, found = lacking
        return blocked("requires", {"requirement": name, "needed": gate.requires[name], "found": found})
    problems = (_unmet(WHERE, name, needed, facts.get(name)) for name, needed in sorted(gate.where.items()))
    return unmeant(gate, facts) or next(filter(None, problems), None)


def unmeant(gate: GateDecl, facts: Mapping[str, Fact]) -> Verdict | None:
    """Hold the gate's `when:` against what was found: None where all of it is true.

    One fact that was measured or derived and is false makes it NOT_APPLICABLE; anything else holds the gate back.
    """
    found = (_unmeant(name, needed, facts.get(name)) for name, needed in sorted(gate.when.items()))
    return min(filter(None, found), key=lambda one: one.outcome is not Outcome.NOT_APPLICABLE, default=None)


def _unmeant(name: str, needed: Scalar, fact: Fact | None) -> Verdict | None:
    problem = _unmet(WHEN, name, needed, fact)
    if problem is None or fact is None or problem.code != WHEN[-1]:
        return problem
    if not _comparable(fact.value, needed):  # it could never be true: a slip must not switch the gate off
        return replace(problem, code="when-incomparable")
    if fact.basis is model.Basis.REPORTED:  # or a run could excuse itself from a gate by what it says
        return replace(problem, code="when-reported")
    return replace(problem, outcome=Outcome.NOT_APPLICABLE, figures={**problem.figures, "basis": str(fact.basis)})


def lacking_here(gate: GateDecl, measured: Mapping[str, Measured]) -> tuple[str, Json] | None:
    """Return the first requirement that this host does not meet, with what was found, or None."""
    item = host_request(gate)
    host = measured.get(item.key) if item else None
    found = record_of(host, Host) if isinstance(host, Measurement) else None
    pairs = ((name, getattr(found, name, None)) for name in sorted(gate.requires))  # as in sealed JSON
    return next((pair for pair in pairs if pair[1] is not gate.requires[pair[0]]), None)


WHEN = ("when-unknown", "when-contradicted", "when-false")
WHERE = ("where-unknown", "where-contradicted", "where-false")


def _unmet(codes: tuple[str, str, str], name: str, needed: Scalar, fact: Fact | None) -> Verdict | None:
    unknown, contradicted, false = codes
    if fact is None or fact.value is None:
        return blocked(unknown, {"fact": name, "needed": needed})
    if fact.contradicted_by:
        return blocked(contradicted, {"fact": name, "needed": needed, "by": list(fact.contradicted_by)})
    if not _comparable(fact.value, needed) or fact.value != needed:
        return blocked(false, {"fact": name, "needed": needed, "found": _value(fact)})
    return None


def _comparable(found: object, needed: Scalar) -> bool:
    """Return whether both are true or false, both numbers, or both texts; NaN is none, and 1 is not true."""
    if isinstance(found, bool) or isinstance(needed, bool):
        return isinstance(found, bool) and isinstance(needed, bool)
    if isinstance(found, (int, float)):
        return isinstance(needed, (int, float)) and not math.isnan(found)
    return isinstance(found, str) and isinstance(needed, str)


# --- What is asked of every run, unless the gate's `when:` or `where:` says otherwise by name -------------------------

NOTED = (*OF_COLUMNS, *OF_STEPS, *OF_WHOLE, RECORDER_FAILED, "mapped_by_place", "unterminated", "banner_lines")
RUN_FACTS = (ENDED, "ended_by", "requested_steps", "steps", *NOTED)


def is_of_run(gate: GateDecl) -> bool:
    """Return whether a gate looks at a run."""
    return model.SubjectKind.RUN in KINDS[gate.kind].roles.values()


def unfit_run(gate: GateDecl, facts: Mapping[str, Fact]) -> Verdict | None:
    """Hold back a gate that stands on what the reader noted, or on a whole run that is not known to have ended."""
    kind = KINDS[gate.kind]
    limits, measure = read(kind.limits, gate.limits), read(typing.cast(type[Any], kind.measure), gate.measure)
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
