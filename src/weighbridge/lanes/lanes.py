"""Lanes: which job measures which gates, and whose evidence it accepts for others; `weighbridge.toml`."""

import dataclasses
import datetime as dt
import fnmatch
import re
import tomllib
from collections.abc import Iterator, Mapping
from glob import iglob
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Final

from weighbridge.contract import load
from weighbridge.contract.document import KEBAB, REQUIREMENT
from weighbridge.contract.layers import Found, from_errors, raise_errors
from weighbridge.contract.load import BUILTIN, PROJECT, WAIVERS, LoadedContract
from weighbridge.contract.strict_yaml import MAX_BYTES, collected
from weighbridge.core import Contract, ContractError, Doc, Origin, UsageError, git, is_file, nearest, read_regular_file
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.limits import LimitsError, read
from weighbridge.core.limits import Path as At

EVERYTHING: Final = ("**",)
NO_INPUT: Final = ("evidence/", WAIVERS)  # they follow from results

LIVE: Final = (Origin.LIVE.value,)
_GLOB: Final = Doc("relative to this file", pattern=r"[^/:~,][^,]*", form="relative to this file, without a comma")
_AGE: Final = Doc("no older than this", pattern=r"[1-9][0-9]{0,4}[hd]", form='hours or days, such as "36h"')
_NAMED: Final = Doc("by name", keys=KEBAB, form="lower-case words joined by hyphens")
_HAS: Final = Doc("what its host must have", keys=REQUIREMENT, form="what a host is asked for: cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts:
    """What evidence of another lane must be."""

    max_age: Annotated[str, _AGE]
    origin: Annotated[str, Doc("`live`: a PASS of runs and traces that no witness saw is not taken", choices=LIVE)] = ""

    @property
    def age(self) -> dt.timedelta:
        """Return the greatest age."""
        count = int(self.max_age[:-1])
        return dt.timedelta(hours=count) if self.max_age.endswith("h") else dt.timedelta(days=count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One lane: the gates that it measures itself, and whose evidence it accepts for others."""

    decides: Annotated[tuple[str, ...], Doc("globs of the gates that it measures itself, or none where it accepts")]
    contracts: Annotated[tuple[str, ...], _GLOB] = ()  # without any, those in contracts/ and below
    accepts: Annotated[Mapping[str, Accepts], _NAMED] = field(default_factory=dict)
    requires: Annotated[Mapping[str, bool], _HAS] = field(default_factory=dict)
    paths: Annotated[tuple[str, ...], _GLOB] = ()  # what its results depend on; without any, all that is tracked

    def measures(self, gate: str) -> bool:
        """Return whether it measures a gate of its contracts itself."""
        return any(fnmatch.fnmatchcase(gate, glob) for glob in self.decides)

    def trees(self) -> dict[str, str]:
        """Return the digest of what is tracked under each of its paths, "" where it is not known."""
        return {path: _tree(path) or "" for path in self.paths or EVERYTHING}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectDocument:
    """The file `weighbridge.toml`."""

    lanes: Annotated[Mapping[str, Lane], _NAMED]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The lanes of a project, and the contracts of each by the name that `verify` takes."""

    lanes: Mapping[str, Lane]
    contracts: Mapping[str, Mapping[str, LoadedContract]]

    def lane(self, name: str) -> Lane:
        """Return a lane, or raise `unknown-lane`."""
        if name not in self.lanes:
            raise UsageError("unknown-lane", f"{PROJECT} has no lane {name!r}{nearest(name, self.lanes)}")
        return self.lanes[name]

    def decider(self, lane: str, contract: str, gate: str) -> str:
        """Return the lane that decides a gate for a lane, itself or the first that it accepts; "" for neither."""
        for name in (lane, *self.lane(lane).accepts):
            of = {loaded.contract.id for loaded in self.contracts[name].values()}
            if contract in of and self.lanes[name].measures(gate):
                return name
        return ""

    def names(self, lane: str) -> tuple[str, ...]:
        """Return the contracts that a lane has a gate in, its own or one that it accepts, as `verify` names them."""
        self.lane(lane)
        known = {name: one.contract for of in self.contracts.values() for name, one in of.items()}
        gates = ((name, one.id, gate.id) for name, one in known.items() for gate in one.gates)
        return tuple(dict.fromkeys(name for name, contract, gate in gates if self.decider(lane, contract, gate)))


def known_contracts() -> dict[str, Contract]:
    """Return the contracts that are known here, by id: the starter contracts, those in contracts/, those of lanes."""
    of_lanes = load_project().contracts if is_file(PROJECT) else {}
    found = {name: one.contract for name, one in load.contracts_here().items()}
    return found | {one.contract.id: one.contract for named in of_lanes.values() for one in named.values()}


def refuse_contracts(lane: str, named: object) -> None:
    """Refuse contracts that are named beside a lane, as `lane-contracts`; a lane that is not there is refused first."""
    if named:
        load_project().lane(lane)
        what = f"the lane {lane} says in {PROJECT} which contracts are its"
        raise UsageError("lane-contracts", what, remedy="leave out either the contracts or the lane")


def load_project(path: Path = Path(PROJECT)) -> Project:
    """Read the lanes of a project and its contracts, or raise every problem of either."""
    try:
        written = _Written(str(path), read_regular_file(path, MAX_BYTES, ContractError).decode())
    except UnicodeDecodeError as problem:
        what = f"byte 0x{problem.object[problem.start]:02x} at offset {problem.start} is not UTF-8"
        raise ContractError("toml-syntax", what, where=str(path), remedy="save the file as UTF-8 text") from None
    try:
        lanes = read(ProjectDocument, written.data()).lanes
    except LimitsError as error:
        wrong = sorted(written.found(one.path, one.code, one.what) for one in error.problems)
        raise collected(tuple(problem.error for problem in wrong)) from None
    problems: list[Found] = []
    named: dict[str, list[str]] = {}
    for lane, body in lanes.items():
        named[lane] = [] if body.contracts else list(load.written_in())
        for index, glob in enumerate(body.contracts):
            builtin = glob.startswith(BUILTIN)
            found = [glob] if builtin else sorted(iglob(glob, recursive=True))  # noqa: PTH207 -- Path.glob raises
            named[lane] += found
            if not found:
                problems.append(written.matches_nothing(("lanes", lane, "contracts", index), glob, "file"))
    asked = dict.fromkeys((*(name for names in named.values() for name in names), *load.written_in()))
    each, errors = load.load_each(asked)
    loaded, problems = dict(each), [*problems, *from_errors(errors)]
    contracts = {lane: {name: loaded[name] for name in names if name in loaded} for lane, names in named.items()}
    project = Project(lanes=lanes, contracts=contracts)
    raise_errors((*problems, *_of_lanes(project, written, loaded)))
    return project


@dataclass(frozen=True, slots=True)
class _Written:
    """A TOML document as text: `tomllib` tells no places."""

    file: str
    text: str

    def data(self) -> object:
        """Parse it."""
        try:
            return tomllib.loads(self.text)
        except (tomllib.TOMLDecodeError, RecursionError) as problem:
            at = re.fullmatch(r"(.*) \(at line (\d+), column (\d+)\)", str(problem), re.DOTALL)
            what, line, column = at.groups() if at else ("it is no TOML that can be read", 1, 1)
            raise ContractError("toml-syntax", str(what), where=f"{self.file}:{line}:{column}") from None

    def found(self, path: At, code: str, what: str, remedy: str = "") -> Found:
        """Return a problem at the line where a part is written: of its table, and of its key where that is there."""
        lines = [line.partition("#")[0].replace('"', "").strip() for line in self.text.splitlines()]
        place = 1
        for depth in range(1, len(path) + 1):
            table = f"[{'.'.join(map(str, path[:depth]))}"
            starts = [at for at, line in enumerate(lines, 1) if line == f"{table}]" or line.startswith(f"{table}.")]
            if starts:
                place = starts[0]
                key = re.escape(str(path[depth])) if depth < len(path) else "$."
                inside = takewhile(lambda line: not line.startswith("["), lines[place:])
                keyed = (at for at, line in enumerate(inside, place + 1) if re.match(rf"{key}\s*[.=]", line))
                place = next(keyed, place)
        return Found(file=self.file, line=place, column=1, code=code, what=what, remedy=remedy)

    def matches_nothing(self, path: At, glob: str, what: str) -> Found:
        """Return the problem of a glob without a match."""
        return self.found(path, "glob-matches-nothing", f"{glob!r} matches no {what}", "mend the glob, or delete it")


def _tree(glob: str) -> str | None:
    """Return the digest of what is tracked under a path, as `git.tree` does; evidence and waivers are no input."""
    return git.tree(Path(), f":(glob){glob}", NO_INPUT)


def uncommitted(glob: str) -> str:
    """Return why what is tracked under a path has no digest here."""
    found = git.changed(Path(), within=f":(glob){glob}") or ()
    return f"changed since the commit: {', '.join(found)}" if found else "it is in no git repository"


def _of_lanes(project: Project, written: _Written, loaded: Mapping[str, LoadedContract]) -> Iterator[Found]:
    for name, lane in project.lanes.items():
        at: At = ("lanes", name)
        if not lane.decides and not lane.accepts:
            what = f"the lane {name} decides no gate, and accepts from no lane"
            remedy = "name a gate in `decides`, or a lane in `accepts`"
            yield written.found((*at, "decides"), "wrong-length", what, remedy)
        for other in lane.accepts:
            if other == name or other not in project.lanes:
                what = f"the lane {name} accepts from {other!r}, which is no other lane"
                what += nearest(other, sorted(project.lanes.keys() - {name}))
                yield written.found((*at, "accepts", other), "unknown-lane", what)
        gates = [gate.id for loaded in project.contracts[name].values() for gate in loaded.contract.gates]
        for index, glob in enumerate(lane.decides):
            if not fnmatch.filter(gates, glob):
                what = f"gate of the {len(project.contracts[name])} contracts of this lane"
                yield written.matches_nothing((*at, "decides", index), glob, what)
        for index, glob in enumerate(lane.paths):
            if _tree(glob) == "":
                yield written.matches_nothing((*at, "paths", index), glob, "file that git tracks")
    for name, one in loaded.items():
        lanes = [lane for lane, contracts in project.contracts.items() if name in contracts]
        for gate in one.contract.gates:
            if not any(project.lanes[lane].measures(gate.id) for lane in lanes):
                what = f"no lane decides {gate.id} of {name}: it would never be measured"
                remedy = f"name it in `decides` of a lane in {PROJECT}"
                yield dataclasses.replace(one.gate_at(gate.id), code="undecided-gate", what=what, remedy=remedy)
