"""Which measurements a gate needs: its quantities, its facts, its host; and what it read of them, for who shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.clauses.kind import Need
from weighbridge.core import GateDecl, Json, Measured, Measurement, SubjectKind, dataclass, dumps, model, sha256
from weighbridge.gates import KINDS
from weighbridge.quantities.facts import OF_EVERY_RUN

HOST = "host"
DEFAULT = "default"
PLACES = 20
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
    subjects, text = tuple(gate.subjects[role] for role in need.of), dumps(options).decode().strip()
    return Request(quantity=need.quantity, subjects=subjects, instance=instance, options=text)


def facts_request(gate: GateDecl, instance: str) -> Request | None:
    """Return the facts that a gate stands on: those of its first role, or None without conditions on what is no run."""
    role, kind = next(iter(KINDS[gate.kind].roles.items()))
    if not (gate.when or gate.where) and kind is not SubjectKind.RUN:
        return None
    named = sorted({*gate.when, *gate.where} - OF_EVERY_RUN) if kind is SubjectKind.RUN else []
    options = dumps({"named": named}).decode().strip() if named else "{}"
    return Request(quantity="facts", subjects=(gate.subjects[role],), instance=instance, options=options)


def host_request(gate: GateDecl) -> Request | None:
    """Return the measurement of the host that a gate's `requires:` is about, or None without requirements."""
    return Request(quantity=HOST, subjects=(), instance=DEFAULT, options="{}") if gate.requires else None


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
