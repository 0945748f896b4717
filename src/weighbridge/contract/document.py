"""The structure of a contract as it is written, not its meaning: the source of the reader and of the JSON Schema."""

import enum
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from weighbridge.clauses.kind import Kind
from weighbridge.core import Doc, Severity, SubjectKind, dataclass, field, limits
from weighbridge.gates import KINDS

FORMAT: Final = "contract/v0"
KEBAB: Final = r"(?!.{65})[a-z][a-z0-9]*(-[a-z0-9]+)*"
VERSION: Final = r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}"
NAME: Final = r"[a-z][a-z0-9_-]{0,63}"
PARAMETER: Final = r"[a-z][a-z0-9_]{0,63}"
GATE_ID: Final = r"(?!.{81})[A-Za-z0-9]+([._-][A-Za-z0-9]+)*"
AGE: Final = r"[1-9][0-9]{0,3}d"
REQUIREMENT: Final = r"^(cuda|hidden)$"  # what the instrument `host` tells with yes or no

UNITS: Final = (
    *("ns", "us", "ms", "s", "min", "h", "1/s", "1/ms", "tok/s", "%", "1"),
    *("B", "kB", "KB", "MB", "GB", "KiB", "MiB", "GiB"),
)

Plain: TypeAlias = str | int | float | bool


class ParamType(enum.StrEnum):
    """What a parameter may be."""

    NUMBER = "number"
    INTEGER = "integer"
    STRING = "string"
    BOOLEAN = "boolean"
    LIST = "list"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamDocument:
    """One parameter of a contract."""

    type: Annotated[ParamType, Doc("what its value must be")]
    default: Annotated[Plain, Doc("its value, unless --param gives another")]
    unit: Annotated[str, Doc("unit of its value")] = ""
    doc: Annotated[str, Doc("what it is for")] = ""
    free: Annotated[bool, Doc("a contract that extends this one may give it any value, without a reason")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnDocument:
    """A logged column and the unit that it is logged in."""

    logged: Annotated[str, Doc("its name in the log", name="from")]
    unit: Annotated[str, Doc("its unit in the log", choices=UNITS)]


LINES = Doc(
    "pattern of the rows of a text log, with a named group for each column: step (?P<step>[0-9]+).*loss (?P<loss>[^ ]+)"
)
COLUMNS = Doc("standard column name to the name in the log, with its unit where that name does not end in it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDocument:
    """One thing to measure."""

    kind: Annotated[SubjectKind, Doc("what it is")]
    path: Annotated[str, Doc("where it is, relative to this file, unless --subject binds it")] = ""
    columns: Annotated[Mapping[str, str | ColumnDocument], COLUMNS] = field(default_factory=dict)
    lines: Annotated[str, LINES] = ""
    for_each: Annotated[str, Doc("glob, relative to this file: every file that it finds is an instance")] = ""


WORDS = r"[\s\S]*\S[\s\S]*"  # none of them being an empty title
WHEN = Doc("facts of the subjects that the gate is meant for; of others it is NOT_APPLICABLE")
WHERE = Doc("facts of the subject that must hold, or the gate is BLOCKED")
REQUIRES = Doc(
    "what this host must have, or the gate is BLOCKED", keys=REQUIREMENT, form="what a host is asked for: cuda"
)
MAX_AGE = Doc("evidence older than this is stale", pattern=AGE, form='a number of days, such as "30d"')
STALE_ON = Doc("facts of the subject, such as commit: once newer evidence has others, this is stale")
DUE = Doc(
    "when a watch judges it of what is logged so far: with a `step`, or `after_s` seconds; else with the end of its "
    "window, or of the run",
    keys=r"^(step|after_s)$",
    form="step or after_s",
)
RELAX = Doc(
    "why this gate is looser than in the contract that it extends",
    pattern=r"\s*\S[\s\S]{18,}\S\s*",
    form="a reason of at least 20 letters",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDocument:
    """One promise."""

    id: Annotated[str, Doc("name of this gate for ever", pattern=GATE_ID, form="letters, digits and single -, _ or .")]
    title: Annotated[str, Doc("the promise in one sentence", pattern=WORDS, form="one sentence")]
    why: Annotated[str, Doc("what went wrong, or would")] = ""
    kind: Annotated[str, Doc("gate kind")]
    subjects: Annotated[Mapping[str, str], Doc("role to the name of a subject")]
    limits: Annotated[Mapping[str, object], Doc("what the kind judges by", name="with")] = field(default_factory=dict)
    measure: Annotated[Mapping[str, object], Doc("what the verifiers are to measure")] = field(default_factory=dict)
    when: Annotated[Mapping[str, Plain], WHEN] = field(default_factory=dict)
    where: Annotated[Mapping[str, Plain], WHERE] = field(default_factory=dict)
    requires: Annotated[Mapping[str, bool], REQUIRES] = field(default_factory=dict)
    severity: Annotated[Severity, Doc("whether the outcome sets the exit code")] = Severity.REQUIRED
    binds: Annotated[tuple[str, ...], Doc("acceptance criteria that this gate proves")] = ()
    depends_on: Annotated[tuple[str, ...], Doc("gates that this one builds on")] = ()
    max_age: Annotated[str | None, MAX_AGE] = None
    stale_on: Annotated[tuple[str, ...], STALE_ON] = ()
    relax: Annotated[str, RELAX] = ""
    due: Annotated[Mapping[str, Annotated[int | float, Doc(ge=0, le=1e12)]], DUE] = field(default_factory=dict)


PARAMS = Doc("named values, used as ${params.NAME}", keys=PARAMETER, form="a lower-case word")
SUBJECTS = Doc("the things to measure", keys=NAME, form="a lower-case word")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractDocument:
    """A whole contract."""

    weighbridge: Annotated[str, Doc("format of this file", choices=(FORMAT,))]
    id: Annotated[str, Doc("name of this contract", pattern=KEBAB, form="lower-case words joined by hyphens")]
    version: Annotated[str, Doc("version of this contract", pattern=VERSION, form="three numbers, such as 1.0.0")]
    title: Annotated[str, Doc("what it promises, in one sentence", pattern=WORDS, form="one sentence")]
    owner: Annotated[str, Doc("who answers for it")]
    extends: Annotated[str, Doc("a contract that this one tightens: a path beside it, or builtin:NAME")] = ""
    params: Annotated[Mapping[str, ParamDocument], PARAMS] = field(default_factory=dict)
    subjects: Annotated[Mapping[str, SubjectDocument], SUBJECTS] = field(default_factory=dict)
    gates: Annotated[tuple[GateDocument, ...], Doc("the promises")] = ()


# --- JSON Schema, for editors -----------------------------------------------------------------------------------------


DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
REFERENCE: Final = {"type": "string", "pattern": r"^\$\{params\.[a-z][a-z0-9_]*\}$"}
_INHERITED: Final = ("title", "owner")


def contract_schema() -> dict[str, Any]:
    """Describe a whole contract, with the limits of every gate kind under its name."""
    body = limits.schema(ContractDocument)
    properties = body["properties"]
    properties["subjects"]["additionalProperties"] = {"$ref": "#/$defs/subject"}
    properties["params"]["additionalProperties"] = {}
    properties["gates"]["items"] = {"type": "object"}
    plain, param = limits.schema(GateDocument), limits.schema(ParamDocument)
    gate = _referable(plain)
    gate["properties"]["id"] = plain["properties"]["id"]
    gate["properties"]["kind"] = {"type": "string", "enum": list(KINDS), "description": "gate kind"}
    kinds = {f"kind-{name}": _kind(kind) for name, kind in KINDS.items()}
    chosen = {name: {"required": ["kind"], "properties": {"kind": {"const": name}}} for name in KINDS}
    branches = [{"if": test, "then": {"$ref": f"#/$defs/kind-{name}"}} for name, test in chosen.items()]
    return {
        "$schema": DIALECT,
        "title": f"weighbridge {FORMAT}",
        **body,
        "required": [key for key in body["required"] if key not in _INHERITED],
        "if": {"required": ["extends"]},
        "then": {"properties": _of_two("gate-over-another", "param-over-another")},
        "else": {"required": [*_INHERITED], "properties": _of_two("gate", "param")},
        "$defs": {
            "gate": {**gate, "allOf": branches},
            "gate-over-another": {**gate, "required": ["id"]},  # the rest may come from the contract that it extends
            "subject": _referable(limits.schema(SubjectDocument)),
            "param": param,
            "param-over-another": {"anyOf": [{**param, "required": []}, {"type": ["string", "number", "boolean"]}]},
            "reference": REFERENCE,
            **kinds,
        },
    }


def _of_two(gate: str, param: str) -> dict[str, Any]:
    return {
        "gates": {"items": {"$ref": f"#/$defs/{gate}"}},
        "params": {"additionalProperties": {"$ref": f"#/$defs/{param}"}},
    }


def _kind(kind: Kind[Any]) -> dict[str, Any]:
    words = {role: f"a subject of kind {taken}" for role, taken in kind.roles.items()}
    roles = {role: {"type": "string", "description": description} for role, description in words.items()}
    return {
        **({"required": ["with"]} if "required" in limits.schema(kind.limits) else {}),
        "properties": {
            "subjects": {"properties": roles, "required": kind.filled({}), "additionalProperties": False},
            "with": _referable(limits.schema(kind.limits)),
            "measure": _referable(limits.schema(kind.measure)),
        },
    }


def _referable(body: dict[str, Any]) -> dict[str, Any]:
    """Let a parameter stand wherever a value may stand."""
    inside = dict(body)
    if "properties" in body:
        inside["properties"] = {name: _or_reference(item) for name, item in body["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(body.get(key), Mapping):
            inside[key] = _or_reference(dict(body[key]))
    if "anyOf" in body:
        inside["anyOf"] = [_referable(one) for one in body["anyOf"]]
    return inside


def _or_reference(body: dict[str, Any]) -> dict[str, Any]:
    inside = _referable(body)
    if inside.get("type") in (None, "object") and "anyOf" not in inside:
        return inside
    if inside.get("type") == "string" and not inside.keys() & {"pattern", "enum"}:
        return inside
    described = {"description": inside.pop("description")} if "description" in inside else {}
    return {**described, "anyOf": [inside, {"$ref": "#/$defs/reference"}]}
