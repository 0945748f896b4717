"""The structure of a contract as it is written: the reader and the JSON Schema both come from these classes.

They say what may stand where. What the words mean together (roles, kinds, references) is for `lint.py`.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, TypeAlias

from weighbridge.limits import Doc
from weighbridge.model import Severity, SubjectKind

FORMAT: Final = "contract/v0"
KEBAB: Final = r"(?!.{65})[a-z][a-z0-9]*(-[a-z0-9]+)*"
VERSION: Final = r"(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}"
NAME: Final = r"[a-z][a-z0-9_-]{0,63}"
PARAMETER: Final = r"[a-z][a-z0-9_]{0,63}"
GATE_ID: Final = r"(?!.{81})[A-Za-z0-9]+([._-][A-Za-z0-9]+)*"
AGE: Final = r"[1-9][0-9]{0,3}d"

Plain: TypeAlias = str | int | float | bool


class ParamType(enum.StrEnum):
    """What a parameter may be."""

    NUMBER = "number"
    INTEGER = "integer"
    STRING = "string"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamDocument:
    """One parameter of a contract."""

    type: Annotated[ParamType, Doc("what its value must be")]
    default: Annotated[Plain, Doc("its value, unless --param gives another")]
    unit: Annotated[str, Doc("unit of its value")] = ""
    doc: Annotated[str, Doc("what it is for")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectDocument:
    """One thing to measure."""

    kind: Annotated[SubjectKind, Doc("what it is")]
    path: Annotated[str, Doc("where it is, relative to this file, unless --subject binds it")] = ""
    columns: Annotated[Mapping[str, str], Doc("standard column name to the name in the log")] = field(
        default_factory=dict
    )
    for_each: Annotated[str, Doc("glob, relative to this file: every file that it finds is an instance")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GateDocument:
    """One promise."""

    id: Annotated[str, Doc("name of this gate for ever", pattern=GATE_ID, form="letters, digits and single -, _ or .")]
    title: Annotated[str, Doc("the promise in one sentence")]
    why: Annotated[str, Doc("what went wrong, or would")] = ""
    kind: Annotated[str, Doc("gate kind")]
    subjects: Annotated[Mapping[str, str], Doc("role to the name of a subject")]
    limits: Annotated[Mapping[str, object], Doc("what the kind judges by", name="with")] = field(default_factory=dict)
    measure: Annotated[Mapping[str, object], Doc("what the verifiers are to measure")] = field(default_factory=dict)
    where: Annotated[Mapping[str, Plain], Doc("facts of the subject that must hold, or the gate is BLOCKED")] = field(
        default_factory=dict
    )
    requires: Annotated[Mapping[str, bool], Doc("what this host must have, or the gate is BLOCKED")] = field(
        default_factory=dict
    )
    severity: Annotated[Severity, Doc("whether the outcome sets the exit code")] = Severity.REQUIRED
    binds: Annotated[tuple[str, ...], Doc("acceptance criteria that this gate proves")] = ()
    depends_on: Annotated[tuple[str, ...], Doc("gates that this one builds on")] = ()
    max_age: Annotated[
        str | None, Doc("evidence older than this is stale", pattern=AGE, form='a number of days, such as "30d"')
    ] = None
    relax: Annotated[str, Doc("why this gate is looser than in the contract that it extends")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractDocument:
    """A whole contract."""

    weighbridge: Annotated[str, Doc("format of this file", choices=(FORMAT,))]
    id: Annotated[str, Doc("name of this contract", pattern=KEBAB, form="lower-case words joined by hyphens")]
    version: Annotated[str, Doc("version of this contract", pattern=VERSION, form="three numbers, such as 1.0.0")]
    title: Annotated[str, Doc("what it promises, in one sentence")]
    owner: Annotated[str, Doc("who answers for it")]
    extends: Annotated[str, Doc("a contract that this one tightens: a path beside it, or builtin:NAME")] = ""
    params: Annotated[
        Mapping[str, ParamDocument],
        Doc("named values, used as ${params.NAME}", keys=PARAMETER, form="a lower-case word"),
    ] = field(default_factory=dict)
    subjects: Annotated[
        Mapping[str, SubjectDocument], Doc("the things to measure", keys=NAME, form="a lower-case word")
    ] = field(default_factory=dict)
    gates: Annotated[tuple[GateDocument, ...], Doc("the promises")] = ()
