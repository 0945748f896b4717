"""The parameters of a contract: `${params.NAME}` is replaced after parsing, so no value becomes more than a list."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Final

from weighbridge.contract import strict_yaml
from weighbridge.contract.document import ParamDocument, ParamType
from weighbridge.contract.layers import OWN, Found, Layered, Written
from weighbridge.core import ContractError, LimitsError, Scalar, dataclass, field, nearest, read, show

_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
_VERBATIM: Final = (*OWN, "params")
NAMES: Final = ("id", "kind")  # what a gate is cannot hang on a parameter
_TYPES: Final = dict(zip(ParamType, ((int, float), (int,), (str,), (bool,), (str,)), strict=True))
_FORMS: Final = {
    ParamType.NUMBER: re.compile(r"[-+]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([eE][-+]?[0-9]{1,3})?"),
    ParamType.INTEGER: re.compile(r"[-+]?[0-9]{1,64}"),
    ParamType.STRING: re.compile(r".*", re.DOTALL),
    ParamType.BOOLEAN: re.compile(r"true|false"),
    ParamType.LIST: re.compile(r"[^\n]*"),  # texts, with commas between them
}


@dataclass(slots=True)
class Parameters:
    """The values of a contract's parameters, which of them are used, and which references could not be replaced."""

    values: dict[str, Scalar] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    lists: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    broken: list[strict_yaml.Path] = field(default_factory=list)
    problems: list[Found] = field(default_factory=list)  # of the declarations
    unresolved: list[Found] = field(default_factory=list)  # of the references
    # Where the value of a reference is written that a contract took over from the one that it extends.
    chosen: dict[strict_yaml.Path, Written] = field(default_factory=dict)


def read_parameters(layered: Layered, overrides: Mapping[str, str]) -> Parameters:
    """Read the declared parameters, those of the command line with its values."""
    declared = layered.data.get("params", {})
    if not isinstance(declared, Mapping):
        return Parameters()
    parameters = Parameters(declared=tuple(declared), overridden=tuple(sorted(overrides)))
    for name, body in declared.items():
        try:
            param = read(ParamDocument, body)
        except LimitsError:
            continue  # reported when the whole document is read
        of_type = isinstance(param.default, _TYPES[param.type])
        if not of_type or isinstance(param.default, bool) != (param.type is ParamType.BOOLEAN):
            what = f"the default of {name!r} is not of the type {param.type}"
            parameters.problems.append(layered.found(("params", name, "default"), "wrong-type", what))
            continue
        if param.type is ParamType.LIST:
            parameters.lists.add(name)
        parameters.values[name] = _override(name, param, overrides[name]) if name in overrides else param.default
    for name in overrides:
        if name not in declared:
            what = f"{name!r} is no parameter of this contract{nearest(name, declared)}"
            raise ContractError("unknown-param", what, where=f"--param {name}={overrides[name]}")
    return parameters


def _override(name: str, param: ParamDocument, text: str) -> Scalar:
    value: Scalar = text
    if not _FORMS[param.type].fullmatch(text):
        value = math.inf
    elif param.type is ParamType.BOOLEAN:
        value = text == "true"
    elif param.type not in (ParamType.STRING, ParamType.LIST):
        value = int(text) if _FORMS[ParamType.INTEGER].fullmatch(text) else float(text)
    if isinstance(value, float) and not math.isfinite(value):
        what = f"{text!r} is not of the type {param.type}"
        raise ContractError("wrong-type", what, where=f"--param {name}", remedy="give another value")
    return value


def substitute(layered: Layered, parameters: Parameters) -> Layered:
    """Replace every reference outside the contract's own head; a reference that is the whole value keeps its type."""

    def replaced(value: Any, path: strict_yaml.Path) -> Any:
        if isinstance(value, Mapping):
            kept = NAMES if len(path) == 2 and path[0] == "gates" else ()
            return {key: item if key in kept else replaced(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [replaced(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        return _filled(value, path, layered, parameters)

    data = {key: value if key in _VERBATIM else replaced(value, (key,)) for key, value in layered.data.items()}
    return Layered(data, {**layered.written, **parameters.chosen})


def _filled(value: str, path: strict_yaml.Path, layered: Layered, parameters: Parameters) -> Scalar | list[str]:
    parameters.used.update(map(_name, _REFERENCE.finditer(value)))
    wrong = next((match for match in _REFERENCE.finditer(value) if _name(match) not in parameters.values), None)
    if wrong is not None:
        parameters.broken.append(path)
        if _name(wrong) not in parameters.declared:  # one that is itself broken is reported where it is declared
            known = [f"params.{each}" for each in parameters.declared]
            what = f"{show(wrong[0])} refers to no parameter{nearest(wrong[1], known)}"
            remedy = "write ${params.NAME} for a name under params:"
            parameters.unresolved.append(layered.found(path, "unresolved", what, remedy))
        return value
    whole = _REFERENCE.fullmatch(value)
    if whole:
        value_at = layered.source(("params", _name(whole), "default"))
        if value_at[0] is not layered.source(path)[0] and _name(whole) not in parameters.overridden:
            parameters.chosen[path] = value_at
        given = parameters.values[_name(whole)]
        listed = (one.strip() for one in str(given).split(","))
        return [one for one in listed if one] if _name(whole) in parameters.lists else given
    texts = {name: str(one).lower() if isinstance(one, bool) else str(one) for name, one in parameters.values.items()}
    return _REFERENCE.sub(lambda match: texts[_name(match)], value)


def _name(match: re.Match[str]) -> str:
    """Return the parameter that a reference names, or what stands there instead, which no parameter is called."""
    closed = match[0].endswith("}") and match[1].startswith("params.")
    return match[1].removeprefix("params.") if closed else match[0]


def value_at(layered: Layered, path: strict_yaml.Path) -> Found | None:
    """Return where the value at a path is written: where its parameter is given a value, where it is one."""
    value = layered.data
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    whole = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    return layered.found(("params", _name(whole), "default") if whole else path, "", "")
