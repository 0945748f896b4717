"""From a file to a contract: read strictly, merge over what it extends, fill in parameters, report all problems."""

import contextlib
import math
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from weighbridge.contract import layers, strict_yaml
from weighbridge.contract.checks import freed, lint, loosenings, structural
from weighbridge.contract.document import ContractDocument, GateDocument, ParamDocument, ParamType
from weighbridge.contract.layers import Found, Layered, first_errors, from_errors, merge, moved, raise_errors
from weighbridge.core import ContractError, LimitsError, data_path, model, nearest, plain, read_regular_file, sha256
from weighbridge.core.errors import PluginError
from weighbridge.core.frozen import dataclass, field, fields, replace
from weighbridge.core.limits import closest, read, show
from weighbridge.gates import KINDS

BUILTIN: Final = "builtin:"
PROJECT: Final = "weighbridge.toml"  # read by `weighbridge.lanes.lanes`
WAIVERS: Final = "waivers.yaml"  # read by `weighbridge.lanes.waivers`
MAX_EXTENDS: Final = 8
_REFERENCE = re.compile(r"\$\{([^}]*)\}?")
_VERBATIM: Final = (*layers.OWN, "params")
NAMES: Final = ("id", "kind")  # what a gate is cannot hang on a parameter
_TYPES: Final = dict(zip(ParamType, ((int, float), (int,), (str,), (bool,), (str,)), strict=True))
_FORMS: Final = {
    ParamType.NUMBER: re.compile(r"[-+]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([eE][-+]?[0-9]{1,3})?"),
    ParamType.INTEGER: re.compile(r"[-+]?[0-9]{1,64}"),
    ParamType.STRING: re.compile(r".*", re.DOTALL),
    ParamType.BOOLEAN: re.compile(r"true|false"),
    ParamType.LIST: re.compile(r"[^\n]*"),  # texts, with commas between them
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedContract:
    """A contract ready to be judged, the bytes that it was read from, and where its parts are written."""

    contract: model.Contract
    source: bytes
    path: Path
    warnings: tuple[Found, ...]
    layered: Layered = field(repr=False)

    def gate_at(self, gate: str) -> Found:
        """Return where a gate is written; one of a shipped contract where it is taken over: the line of `extends`."""
        at = self.layered.found(("gates", [decl.id for decl in self.contract.gates].index(gate)), "", "")
        taken_over = at.file.startswith(BUILTIN) and "extends" in self.layered.data
        return self.layered.found(("extends",), "", "") if taken_over else at

    def limit_at(self, gate: str, limit: str) -> Found | None:
        """Return where the value of a gate's limit is written, be it that of a parameter; None where it is not."""
        index = [decl.id for decl in self.contract.gates].index(gate)
        given = self.layered.data["gates"][index].get("with", {})
        if limit not in given:
            return None
        whole = _REFERENCE.fullmatch(given[limit]) if isinstance(given[limit], str) else None
        path = ("params", _name(whole), "default") if whole else ("gates", index, "with", limit)
        return self.layered.found(path, "", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """What was read: the data over what it extends, and what is wrong with it as YAML."""

    path: Path
    source: bytes
    layered: Layered
    base: LoadedContract | None
    problems: tuple[Found, ...]


def load_contract(name: str | Path, overrides: Mapping[str, str] = MappingProxyType({})) -> LoadedContract:
    """Read a contract file, or `builtin:NAME`, with values of `--param`, or raise every problem found, at its place."""
    return _load(str(name), overrides, ())


def load_each(
    names: Iterable[str], overrides: Mapping[str, str] = MappingProxyType({})
) -> tuple[list[tuple[str, LoadedContract]], list[ContractError]]:
    """Return those of several contracts that can be loaded, each with its name, and the problems of all others.

    Of several, each takes the overrides of its own parameters; one that is of none is a problem of each.
    """
    loaded, problems = list[tuple[str, LoadedContract]](), list[ContractError]()
    for name in names:
        try:
            loaded.append((name, _load(str(name), overrides, (), shared=True)))
        except ContractError as error:
            problems += error.problems
    known = {param for _, one in loaded for param in one.contract.params}
    stray = {param: text for param, text in overrides.items() if param not in known}
    for name, _ in loaded if stray else ():
        try:
            load_contract(name, stray)
        except ContractError as error:
            problems += error.problems
    return loaded, problems


def read_contract(source: bytes, name: str, overrides: model.Fields) -> tuple[str, str, model.Contract | None]:
    """Return the id and version of a contract's bytes, and the contract unless it extends one that is not there."""
    file = _parsed(Path(name), name, source)
    texts = {key: str(one).lower() if isinstance(one, bool) else str(one) for key, one in overrides.items()}
    found, version = (str(file.layered.data.get(key)) for key in ("id", "version"))
    return found, version, None if "extends" in file.layered.data else _resolved(file, texts).contract


def builtin_names() -> tuple[str, ...]:
    """List the contracts that ship with the tool."""
    return tuple(sorted(path.stem for path in data_path("contracts").glob("*.yaml")))


def written_in(folder: Path = Path("contracts")) -> tuple[str, ...]:
    """List the contracts of a folder and those below it, by path, as pytest collects them."""
    found = (path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml"))
    return tuple(str(path) for path in sorted(found) if "/." not in f"/{path.relative_to(folder).as_posix()}")


def locate(name: str) -> Path:
    """Find the file of a contract that is named by its path or as `builtin:NAME`, or raise `unknown-builtin`."""
    word, known = name.removeprefix(BUILTIN), builtin_names()
    if not name.startswith(BUILTIN):
        near = [f"--subject {name}"] if "=" in name else [f"{BUILTIN}{one}" for one in closest(name, known)]
        if near and not Path(name).exists():
            raise ContractError("file-missing", f"no such file; did you mean {near[0]}?", where=name)
        return Path(name)
    if word not in known:
        raise ContractError("unknown-builtin", f"no contract {word!r} ships with weighbridge{nearest(word, known)}")
    return data_path("contracts") / f"{word}.yaml"


def _load(
    name: str, overrides: Mapping[str, str], extending: tuple[Path, ...], *, shared: bool = False
) -> LoadedContract:
    file = _read(name, extending)
    loaded = _resolved(file, {})
    if shared:  # with other contracts, which may have the rest
        overrides = {param: text for param, text in overrides.items() if param in loaded.contract.params}
    base = _as_chosen(file.base, file.layered) if file.base else loaded.contract
    placed = substitute(file.layered, read_parameters(file.layered, {})) if file.base else file.layered
    under = file.base.layered if file.base else file.layered
    looser = (*freed(under, file.layered), *loosenings(base, loaded.contract, placed))
    raise_errors(looser)
    loaded = replace(loaded, warnings=tuple(sorted((*loaded.warnings, *looser))))
    if overrides:  # compared with the base as it is written: an override is sealed as one, and moves no status
        try:
            return replace(_resolved(file, overrides), warnings=loaded.warnings)
        except ContractError as error:
            first, given = error.problems[0], " ".join(f"--param {name}={text}" for name, text in overrides.items())
            where = first.where if first.where.startswith("--param") else given
            raise ContractError(first.code, first.what, where=where, remedy=first.remedy) from None
    return loaded


def _as_chosen(base: LoadedContract, child: Layered) -> model.Contract:
    """Return what a contract extends, with the values that it gives to the parameters that are free there."""
    declared, given = base.layered.data.get("params", {}), child.data.get("params", {})
    params = {
        name: {**body, "default": given[name]["default"]} if body.get("free") is True else body
        for name, body in declared.items()
    }
    if params == declared:
        return base.contract
    chosen = Layered({**base.layered.data, "params": params}, base.layered.written)
    return _resolved(_File(path=base.path, source=b"", layered=chosen, base=None, problems=()), {}).contract


def _read(name: str, extending: tuple[Path, ...]) -> _File:
    path = locate(name)
    if path.resolve() in extending or len(extending) > MAX_EXTENDS:
        what = f"it extends itself in turn, or is the last of more than {MAX_EXTENDS}"
        raise ContractError("extends-itself", what, where=name, remedy="extend a contract that stands on its own")
    file = _parsed(path, name, read_regular_file(path, strict_yaml.MAX_BYTES, ContractError))
    extends = file.layered.data.get("extends")
    if not isinstance(extends, str) or not extends:
        return file
    builtin = extends.startswith(BUILTIN)
    try:
        base = _load(extends if builtin else str(path.parent / extends), {}, (*extending, path.resolve()))
    except ContractError as error:
        if error.problems != (error,) or re.search(r":\d+:\d+$", error.where):
            raise
        what = f"{extends}: {error.what}"
        raise file.layered.found(("extends",), error.code, what, error.remedy).error from None
    under = moved(base.layered, "" if builtin else posixpath.dirname(extends))
    problems = (*file.problems, *_strangers(under, file.layered, extends))
    return replace(file, layered=merge(under, file.layered), base=base, problems=problems)


def _strangers(base: Layered, child: Layered, extends: str) -> Iterator[Found]:
    """Yield the gates without a kind that the contract below has not: their ids are misspelt."""
    ids, mine = [str(gate["id"]) for gate in base.data.get("gates", ())], child.data.get("gates")
    for index, gate in enumerate(mine if isinstance(mine, list) else ()):
        if isinstance(gate, dict) and "kind" not in gate and (name := str(gate.get("id"))) not in ids:
            what = f"{extends} has no gate {name!r}{nearest(name, ids)}"
            remedy = "name one of its gates, or give kind, title and subjects of your own"
            yield child.found(("gates", index), "unknown-gate", what, remedy)


def _parsed(path: Path, name: str, source: bytes) -> _File:
    document, errors = strict_yaml.read(source, name)
    if document is None:
        raise strict_yaml.collected(errors)
    if not isinstance(document.data, dict):
        remedy = "write `weighbridge: contract/v0` and the rest of a contract"
        raise ContractError("wrong-type", "the document is not a mapping", where=document.at(()), remedy=remedy)
    layered = Layered(document.data, {(): (document, ())})
    return _File(path=path, source=source, layered=layered, base=None, problems=from_errors(errors))


# --- Parameters: `${params.NAME}` is replaced after parsing, so no value becomes more than a list ---------------------


@dataclass(slots=True)
class Parameters:
    """The values of a contract's parameters, which of them are used, and which references could not be replaced."""

    values: dict[str, model.Scalar] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    overridden: tuple[str, ...] = ()
    lists: set[str] = field(default_factory=set)
    used: set[str] = field(default_factory=set)
    broken: list[strict_yaml.Path] = field(default_factory=list)
    problems: list[Found] = field(default_factory=list)  # of the declarations
    unresolved: list[Found] = field(default_factory=list)  # of the references
    # Where the value of a reference is written that a contract took over from the one that it extends.
    chosen: dict[strict_yaml.Path, layers.Written] = field(default_factory=dict)


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


def _override(name: str, param: ParamDocument, text: str) -> model.Scalar:
    value: model.Scalar = text
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


def _filled(value: str, path: strict_yaml.Path, layered: Layered, parameters: Parameters) -> model.Scalar | list[str]:
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
    if whole := _REFERENCE.fullmatch(value):
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


# --- Resolving --------------------------------------------------------------------------------------------------------


def _resolved(file: _File, overrides: Mapping[str, str]) -> LoadedContract:
    parameters = read_parameters(file.layered, overrides)
    layered = substitute(file.layered, parameters)
    document: ContractDocument | None = None
    structure: tuple[Found, ...] = ()
    try:
        document = read(ContractDocument, layered.data)
    except LimitsError as error:
        structure = tuple(structural(layered, problem) for problem in error.problems)
    unused: list[Found] = []
    for name in (name for name in parameters.declared if name not in parameters.used):
        what, remedy = f"nothing uses the parameter {name!r}", "delete it, or use it"
        unused.append(layered.found(("params", name), "unused-param", what, remedy, at_key=True, warning=True))
    later = (*parameters.problems, *structure, *first_errors(lint(layered)), *unused)
    # A later problem at a place that could not be read in the first place is not one of its own.
    earlier = (*file.problems, *parameters.unresolved)
    broken = (layered.found(path, "", "") for path in parameters.broken)
    spoilt = {(problem.file, problem.line, problem.column) for problem in (*earlier, *broken)}
    problems = [*earlier, *(one for one in later if (one.file, one.line, one.column) not in spoilt)]
    raise_errors(problems)
    assert document is not None
    subjects = {}
    for name, body in document.subjects.items():
        columns = {key: one if isinstance(one, str) else one.logged for key, one in body.columns.items()}
        units = {key: one.unit for key, one in body.columns.items() if not isinstance(one, str)}
        where = {"path": body.path, "for_each": body.for_each, "lines": body.lines}
        subjects[name] = model.SubjectDecl(kind=body.kind, **where, columns=columns, units=units)
    head: dict[str, Any] = {name: getattr(document, name) for name in ("id", "version", "title", "owner")}
    head |= {"params": parameters.values, "overridden": parameters.overridden}
    here = layered.found((), "", "").file
    return LoadedContract(
        contract=model.Contract(**head, subjects=subjects, gates=tuple(map(_gate, document.gates))),
        source=file.source,
        path=file.path,
        warnings=tuple(sorted({problem for problem in problems if problem.file == here})),  # not what a base says
        layered=file.layered,
    )


SAME: Final = {item.name for item in fields(GateDocument)} - {"limits", "measure", "max_age", "relax"}


def _gate(gate: GateDocument) -> model.GateDecl:
    """Resolve a gate; its limits and options are written out with their defaults, so that judging again needs none."""
    kind = KINDS[gate.kind]
    limits, measure = plain(read(kind.limits, gate.limits)), plain(read(kind.measure, gate.measure))
    days = float(gate.max_age.removesuffix("d")) if gate.max_age else None
    same = {name: getattr(gate, name) for name in SAME}
    return model.GateDecl(**same, limits=limits, measure=measure, max_age_days=days)


def reused(
    contracts: Iterable[tuple[LoadedContract, str]], known: Mapping[tuple[str, str], Collection[str]]
) -> Iterator[Found]:
    """Find contracts, each with the digest of its resolved form, whose id and version have another content already.

    `known` has the digests on record, of that form and of the file: a kind with a new limit changes only the one.
    """
    first = {key: (set(digests), "the ledger") for key, digests in known.items()}
    for loaded, digest in contracts:
        contract = loaded.contract
        mine = {digest} if "extends" in loaded.layered.data else {digest, sha256(loaded.source)}
        before, where = first.setdefault((contract.id, contract.version), (mine, str(loaded.path)))
        if not before & mine:
            what = f"{contract.id} {contract.version} has another content in {where}"
            yield loaded.layered.found(("version",), "reused-version", what, "raise the version")


def contracts_here(folder: Path = Path("contracts")) -> dict[str, LoadedContract]:
    """Load the starter contracts and those of a folder, which go before; what cannot be used is left out."""
    found = dict[str, LoadedContract]()
    for name in (*(f"{BUILTIN}{name}" for name in builtin_names()), *written_in(folder)):
        with contextlib.suppress(ContractError, PluginError):
            loaded = load_contract(name)
            found[loaded.contract.id] = loaded
    return found
