"""One `verify`: load contracts, bind subjects, measure, judge, seal the evidence, and show or record what moves."""

from __future__ import annotations

import dataclasses
import fnmatch
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from weighbridge import __version__, git
from weighbridge.binding import ARGUMENT, Bound, bind, instances
from weighbridge.canonical import dumps, sha256
from weighbridge.contract.load import LoadedContract, load_contract, reused
from weighbridge.contract.resolved import digests
from weighbridge.contract.strict_yaml import collected
from weighbridge.errors import ContractError, LaneError, UsageError
from weighbridge.evidence.bundle import Bundle, Draft
from weighbridge.evidence.bundle import seal as write_bundle
from weighbridge.evidence.disk import digest_regular
from weighbridge.evidence.redact import Redactor, host_pseudonym, project_key, redactor_here
from weighbridge.evidence.statement import BoundSubject, Companion, Tool
from weighbridge.exit_code import Excuses
from weighbridge.lane_evidence import LANE, LANE_PATHS, LaneEvidence, Wanted, lane_evidence, paths_told
from weighbridge.lanes import Project, known_contracts
from weighbridge.ledger.causes import BUNDLES, recorded_contracts
from weighbridge.ledger.fold import Place
from weighbridge.ledger.record import Move, propose, record
from weighbridge.ledger.store import Ledger
from weighbridge.limits import nearest
from weighbridge.model import EMPTY, EXECUTED, Contract, Fields, GateDecl, Origin, SubjectKind
from weighbridge.quantities.base import record_of
from weighbridge.quantities.hosts import Host
from weighbridge.runner import Evaluation, judge, measure, seal
from weighbridge.storage.local_files import is_file, is_folder, read_regular_file
from weighbridge.waivers import Waivers

MAX_ATTACHED = 64 << 20
ROLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")
PACKAGES = ("torch", "numpy", "safetensors", "gguf", "ml_dtypes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the person at the keyboard asked for."""

    contracts: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    params: Mapping[str, str] = dataclasses.field(default_factory=dict)
    gates: tuple[str, ...] = ()
    expect_blocked: frozenset[str] = frozenset()
    attached: tuple[tuple[str, Path], ...] = ()
    inputs: tuple[tuple[str, Path], ...] = ()
    evidence: Path
    ledger: Path
    record: bool = False
    debug: bool = False
    waivers: Waivers = dataclasses.field(default_factory=Waivers)
    lane: str = ""
    project: Project | None = None  # with a lane: the lanes that there are

    @property
    def excuses(self) -> Excuses:
        """Return what excuses a finding."""
        return Excuses(expect_blocked=self.expect_blocked, waived=self.waivers.good)

    def decider(self, contract: Contract, gate: GateDecl) -> str:
        """Return the lane that decides a gate for the one that was asked for; without lanes all are of "", the only."""
        return self.project.decider(self.lane, contract.id, gate.id) if self.project else self.lane


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What one contract came to, and where its evidence is.

    `elsewhere` says, by gate and instance, what the findings stand on that another lane measured: they are in the
    evaluation, and not in the bundle. There is no bundle of a contract of which the lane measures nothing.
    """

    loaded: LoadedContract
    evaluation: Evaluation
    bundle: Bundle | None
    moves: tuple[Move, ...]
    elsewhere: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict)


def verify(asked: Asked, progress: Callable[[str], None]) -> tuple[Result, ...]:
    """Verify every contract that was asked for; nothing is measured before all of them are read and bound.

    Raises:
        ContractError, UsageError: where something asked for cannot be.
        BundleError: where evidence cannot be sealed.
    """
    loaded = load_all(asked.contracts, asked.params)
    if asked.record:
        _demand_own_version(loaded, Ledger(asked.ledger))
    bound = bind_all(loaded, asked.subjects)
    _check_gates(loaded, asked)
    judged = [(one.contract, subjects) for one, subjects in zip(loaded, bound, strict=True)]
    demand_known(asked.waivers, judged, Ledger(asked.ledger))
    told, others = _begin_lane(asked) if asked.project else (EMPTY, None)
    targets = (item.target for items in bound for item in items)
    named = (*_command_line(), *targets, *(str(one.path) for one in loaded))
    redactor = redactor_here(project_key(Path()), run=Path.cwd(), named=named)
    texts = {role: read_regular_file(path, MAX_ATTACHED, UsageError) for role, path in asked.attached}
    companions = tuple(_companions(asked, texts, redactor))
    results = []
    for one, subjects in zip(loaded, bound, strict=True):
        gates = one.contract.gates
        mine = [
            gate for gate in gates if _wanted(gate.id, asked.gates) and asked.decider(one.contract, gate) == asked.lane
        ]
        on = {gate.id: instances(gate, subjects) if gate in mine else () for gate in gates}
        session = measure(one.contract, subjects, on, progress=progress, debug=asked.debug)
        sealed = seal(session, redactor)
        progress("judging")
        evaluation = judge(sealed)
        progress("sealing")
        attached = {role: data.decode(errors="replace") for role, data in texts.items()}
        bundle, moves = None, tuple[Move, ...]()
        if mine or others is None:
            words, into = _command_line(), asked.evidence
            bundle = keep(
                evaluation, one.source, redactor, into, words, logs=attached, companions=companions, told=told
            )
            move, digest = record if asked.record else propose, digests(one.contract).whole
            moves = move(bundle, Ledger(asked.ledger), now=evaluation.finished, contract_digest=digest)
        result = Result(loaded=one, evaluation=evaluation, bundle=bundle, moves=moves)
        results.append(_with_others(result, asked, subjects, others) if others else result)
    return tuple(results)


def load_all(names: Sequence[str], params: Mapping[str, str]) -> tuple[LoadedContract, ...]:
    """Return every contract, loaded, or raise the problems of all of them together.

    Raises:
        ContractError: with every problem of every contract.
    """
    loaded: list[LoadedContract] = []
    problems: list[ContractError] = []
    for name in names:
        try:
            loaded.append(load_contract(name, params))
        except ContractError as error:
            problems += error.problems
    if problems:
        raise collected(tuple(problems))
    return tuple(loaded)


def _demand_own_version(loaded: Sequence[LoadedContract], ledger: Ledger) -> None:
    """Refuse to record under an id and version that the ledger knows with another content."""
    written = ((one, digests(one.contract).whole) for one in loaded if not one.contract.overridden)
    found = tuple(problem.error for problem in reused(written, recorded_contracts(ledger)))
    if found:
        raise collected(found)


def bind_all(loaded: Sequence[LoadedContract], arguments: Sequence[str]) -> tuple[tuple[Bound, ...], ...]:
    """Bind each argument in every contract that declares its subject.

    Raises:
        UsageError: for an argument that no contract knows, or that is of no form.
    """
    known = {name for contract in loaded for name in contract.contract.subjects}
    names = {text: match["name"] if (match := ARGUMENT.fullmatch(text)) else None for text in arguments}
    for name in names.values():
        if name is not None and name not in known:
            raise UsageError("unknown-subject", f"no contract has a subject {name!r}{nearest(name, known)}")
    return tuple(
        bind(
            one.contract, one.path.parent, [text for text in arguments if names[text] in {None, *one.contract.subjects}]
        )
        for one in loaded
    )


def _check_gates(loaded: Sequence[LoadedContract], asked: Asked) -> None:
    """Refuse a glob that chooses no gate, and an expected block, by its very id, of a gate that is not judged."""
    known = [gate.id for contract in loaded for gate in contract.contract.gates]
    unmatched = (glob for glob in asked.gates if not any(_wanted(gate, (glob,)) for gate in known))
    judged = {gate for gate in known if _wanted(gate, asked.gates)}
    for name in (*unmatched, *sorted(asked.expect_blocked - judged)):
        among = " that is judged" if name in known else ""
        raise UsageError("unknown-gate", f"no gate{among} is called {name!r}{nearest(name, known)}")


def _wanted(gate: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(gate, glob) for glob in globs)


def demand_known(waivers: Waivers, judged: Iterable[tuple[Contract, Sequence[Bound]]], ledger: Ledger) -> None:
    """Demand that waivers are of what there is: in these contracts of instances that are bound or in the ledger.

    Raises:
        ContractError: `waives-nothing`.
    """
    if not waivers.given:
        return
    places = {Place(contract=one.contract, gate=one.gate, instance=one.instance) for one in waivers.given}
    recorded = {place for place in places if is_folder(ledger.folder(place))}
    known: dict[str, dict[str, Collection[str] | None]] = {
        contract.id: {
            gate.id: {
                *instances(gate, subjects),
                *(one.instance for one in recorded if (one.contract, one.gate) == (contract.id, gate.id)),
            }
            for gate in contract.gates
        }
        for contract, subjects in judged
    }
    others = known_contracts() if {one.contract for one in places} - known.keys() else {}
    waivers.demand_known({name: dict.fromkeys(gate.id for gate in one.gates) for name, one in others.items()} | known)


# --- Lanes ------------------------------------------------------------------------------------------------------------


def _begin_lane(asked: Asked) -> tuple[Fields, LaneEvidence]:
    """Return what is sealed of a lane, its name and the files that its results depend on; and others' evidence.

    Raises:
        LaneError: `lane-host`, where this host lacks what the lane requires.
    """
    assert asked.project is not None
    lane = asked.project.lane(asked.lane)
    if lane.requires:
        from weighbridge.verifiers import host

        found = record_of(host.measure((), EMPTY), Host)
        assert found is not None
        for name, needed in lane.requires.items():
            if getattr(found, name) is not needed:
                what = f"lane {asked.lane} requires {name}: {str(needed).lower()}, and this host has not ({found.why})"
                raise LaneError("lane-host", what, remedy="run it on a host that has it; nothing was measured")
    others = lane_evidence(asked.project, asked.lane, Ledger(asked.ledger), datetime.now(UTC))
    return {LANE: asked.lane, LANE_PATHS: paths_told(lane.trees())}, others


def _with_others(result: Result, asked: Asked, subjects: Sequence[Bound], others: LaneEvidence) -> Result:
    """Return a result with what other lanes' evidence says of the gates that they decide, in the contract's order."""
    contract, findings = result.loaded.contract, list(result.evaluation.findings)
    measured, elsewhere = dict(result.evaluation.measured), {}
    for gate in contract.gates:
        by = asked.decider(contract, gate)
        if by in ("", asked.lane) or not _wanted(gate.id, asked.gates):
            continue
        is_bound = any(item.subject in gate.subjects.values() for item in subjects)
        named = () if is_bound else others.instances(contract.id, gate.id)
        for instance in named or instances(gate, subjects):
            decided = others.decide(Wanted(contract, gate, instance, by))
            findings.append(decided.finding)
            measured |= decided.lacking
            elsewhere[gate.id, instance] = "" if decided.lacking else decided.says
    order = [gate.id for gate in contract.gates]
    findings.sort(key=lambda finding: order.index(finding.gate))
    evaluation = dataclasses.replace(result.evaluation, findings=tuple(findings), measured=measured)
    return dataclasses.replace(result, evaluation=evaluation, elsewhere=elsewhere)


# --- Sealing ----------------------------------------------------------------------------------------------------------


def _companions(asked: Asked, texts: Mapping[str, bytes], redactor: Redactor) -> Iterator[Companion]:
    """Yield the files given beside the subjects, with the digests of what was read of them."""
    roles = [role for role, _ in (*asked.attached, *asked.inputs)]
    wrong = next((role for role in roles if roles.count(role) > 1 or not ROLE.fullmatch(role)), None)
    if wrong is not None:
        remedy = "give each file a role of its own, of letters, digits, - and _"
        raise UsageError("role", f"{wrong!r} is given twice, or is no role", remedy=remedy)
    for role, path in (*asked.attached, *asked.inputs):
        data = texts.get(role)
        yield Companion(
            role=role,
            name=redactor.text(path.name),
            sha256=digest_regular(path) if data is None else sha256(data),
            size=path.stat().st_size if data is None else len(data),
            sealed=data is not None,
        )


def keep(
    evaluation: Evaluation,
    source: bytes,
    redactor: Redactor,
    folder: Path,
    command: Iterable[str],
    *,
    logs: Mapping[str, str] = MappingProxyType({}),
    companions: tuple[Companion, ...] = (),
    told: Fields = EMPTY,
) -> Bundle:
    """Write a bundle of an evaluation.

    `source` is the contract's own bytes, `logs` and `companions` are what was attached, and `told` is said of the
    environment besides.

    Raises:
        BundleError: where it cannot be written.
    """
    draft = Draft(
        contract=evaluation.contract,
        contract_yaml=source,
        subjects=tuple(_subject(item, evaluation, redactor) for item in evaluation.bound),
        instances=evaluation.instances,
        measured=evaluation.measured,
        canaries=evaluation.canaries,
        findings=evaluation.findings,
        tool=tool(),
        host=host_pseudonym(redactor.key),
        started=evaluation.started,
        finished=evaluation.finished,
        command=tuple(redactor.text(word) for word in command),
        environment={**environment(), **told},
        logs=logs,
        companions=companions,
    )
    return write_bundle(draft, folder / BUNDLES, redactor)


def _subject(item: Bound, evaluation: Evaluation, redactor: Redactor) -> BoundSubject:
    key = (item.subject, item.instance)
    found: Mapping[str, str] = evaluation.digests.get(key, {})
    commit, dirty = evaluation.programs.get(key) or _program(item)
    return BoundSubject(
        commit=commit,
        dirty=dirty,
        name=item.subject,
        instance=item.instance,
        kind=item.kind,
        path=redactor.text(item.target),
        origin=evaluation.origins.get(key, Origin.FIXTURE),
        digests={redactor.text(name): digest for name, digest in found.items()},
        started=evaluation.starts.get(key, ""),
        size=evaluation.sizes.get(key) or _size(item, found),
    )


def _program(item: Bound) -> tuple[str, bool | None]:
    """Return the commit that a command or factory was run from, and whether the tree has changed since."""
    place = Path(item.target.rpartition(":")[0])
    root = place.parent if item.kind is SubjectKind.MODEL and place.suffix == ".py" else Path()
    commit = git.commit(root) if item.kind in EXECUTED else ""
    return commit, git.is_dirty(root) if commit else None


def _size(item: Bound, digests: Mapping[str, str]) -> int:
    """Sum the bytes of a subject's files; what is executed is no file of its own."""
    path = Path(item.target)
    files = [path] if is_file(path) else [path / name for name in digests]
    return 0 if item.kind in EXECUTED else sum(file.stat().st_size for file in files if is_file(file))


def environment() -> Fields:
    """Return the versions that measuring rested on; only what is on the bundle's allow-list is sealed."""
    versions = {name: version_of(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "weighbridge": __version__,
        "cpu_count": os.cpu_count(),
        **{name: version for name, version in versions.items() if version},
    }


def version_of(name: str) -> str:
    """Return the installed version of a package, empty where there is none."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def tool() -> Tool:
    """Return which build of this tool is running: version, digest of its source, and its commit in a checkout."""
    package = Path(__file__).parent
    source = {path.relative_to(package).as_posix(): sha256(path.read_bytes()) for path in package.rglob("*.py")}
    root = Path(__file__).resolve().parents[2]
    commit = git.commit(root) if (root / ".git").exists() else ""
    changed = ("status", "--porcelain", "--untracked-files=no", "--", "src", "gates", "verifiers")
    dirty = bool(commit) and git.answer(root, *changed) != ""
    return Tool(version=__version__, digest=sha256(dumps(source)), commit=commit, dirty=dirty)


def _command_line() -> tuple[str, ...]:
    """Return the command as it was typed, the program by its name alone."""
    return ("weighbridge", *sys.argv[1:])
