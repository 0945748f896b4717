"""Which measurements a gate needs: its quantities, the facts that it stands on, and its host."""

from __future__ import annotations

from dataclasses import dataclass

from weighbridge.clauses.kind import Need
from weighbridge.core import GateDecl, Json, SubjectKind, dumps, sha256
from weighbridge.gates import KINDS
from weighbridge.quantities.facts import OF_EVERY_RUN

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
