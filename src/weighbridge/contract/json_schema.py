"""The JSON Schema (2020-12) of contracts, for editors: generated from the same classes that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from weighbridge import limits
from weighbridge.clauses.kind import Kind
from weighbridge.contract.document import FORMAT, ContractDocument, GateDocument, ParamDocument, SubjectDocument
from weighbridge.gates import KINDS

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
REFERENCE: Final = {"type": "string", "pattern": r"^\$\{params\.[a-z][a-z0-9_]*\}$"}
_MERGED: Final = ("id",)  # what a gate must say where the rest may come from the contract that it extends
_INHERITED: Final = ("title", "owner")


def contract_schema() -> dict[str, Any]:
    """Describe a whole contract, with the limits of every gate kind under its name."""
    body = limits.schema(ContractDocument)
    properties = body["properties"]
    properties["subjects"]["additionalProperties"] = {"$ref": "#/$defs/subject"}
    properties["params"]["additionalProperties"] = {"$ref": "#/$defs/param"}
    properties["gates"]["items"] = {"type": "object"}
    whole = {"required": [*_INHERITED], "properties": {"gates": {"items": {"$ref": "#/$defs/gate"}}}}
    part = {"properties": {"gates": {"items": {"$ref": "#/$defs/gate-over-another"}}}}
    return {
        "$schema": DIALECT,
        "title": f"weighbridge {FORMAT}",
        **body,
        "required": [key for key in body["required"] if key not in _INHERITED],
        "if": {"required": ["extends"]},
        "then": part,
        "else": whole,
        "$defs": _definitions(),
    }


def _definitions() -> dict[str, Any]:
    plain = limits.schema(GateDocument)
    gate = _referable(plain)
    gate["properties"]["id"] = plain["properties"]["id"]
    gate["properties"]["kind"] = {"type": "string", "enum": list(KINDS), "description": "gate kind"}
    over = {**gate, "required": list(_MERGED)}
    kinds = {f"kind-{name}": _kind(kind) for name, kind in KINDS.items()}
    return {
        "gate": {**gate, "allOf": [_branch(name) for name in KINDS]},
        "gate-over-another": over,
        "subject": _referable(limits.schema(SubjectDocument)),
        "param": limits.schema(ParamDocument),
        "reference": REFERENCE,
        **kinds,
    }


def _branch(name: str) -> dict[str, Any]:
    chosen = {"required": ["kind"], "properties": {"kind": {"const": name}}}
    return {"if": chosen, "then": {"$ref": f"#/$defs/kind-{name}"}}


def _kind(kind: Kind[Any]) -> dict[str, Any]:
    """Describe what only this kind asks of a gate: its roles, its limits, what it has measured."""
    roles = {
        role: {"type": "string", "description": f"a subject of kind {taken}"} for role, taken in kind.roles.items()
    }
    needed = limits.schema(kind.limits).get("required")
    return {
        **({"required": ["with"]} if needed else {}),
        "properties": {
            "subjects": {"properties": roles, "required": list(roles), "additionalProperties": False},
            "with": _referable(limits.schema(kind.limits)),
            "measure": _referable(limits.schema(kind.measure)),
        },
    }


def _referable(body: dict[str, Any]) -> dict[str, Any]:
    """Let a parameter stand wherever a value may stand."""
    return {key: _inside(key, value) for key, value in body.items()}


def _inside(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _or_reference(item) for name, item in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, Mapping):
        return _or_reference(dict(value))
    return value


def _or_reference(body: dict[str, Any]) -> dict[str, Any]:
    inside = _referable(body)
    if inside.get("type") in (None, "object") and "anyOf" not in inside:
        return inside
    if inside.get("type") == "string" and not inside.keys() & {"pattern", "enum"}:
        return inside
    described = {"description": inside.pop("description")} if "description" in inside else {}
    return {**described, "anyOf": [inside, {"$ref": "#/$defs/reference"}]}
