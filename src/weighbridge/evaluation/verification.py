"""One `verify`: load contracts, bind subjects, measure, judge, seal the evidence, and show or record what moves."""

import fnmatch
import functools
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from weighbridge.contract.load import LoadedContract, load_each, reused
from weighbridge.contract.resolved import digests
from weighbridge.contract.strict_yaml import collected
from weighbridge.core import BundleError, UsageError, __version__, dumps, git, model, nearest, sha256
from weighbridge.core.exit_code import Excuses, ExitCode, exit_code
from weighbridge.core.frozen import dataclass, field, replace
from weighbridge.core.local_files import is_file, read_regular_file
from weighbridge.core.project import LOCAL, in_project, make_local
from weighbridge.evaluation.binding import ARGUMENT, Binding, all_instances, bind
from weighbridge.evaluation.runner import Announce, Evaluation, EvaluationSession
from weighbridge.evidence.bundle import BUNDLES, Bundle, BundleDraft, seal
from weighbridge.evidence.disk import digest_regular, disk_errors
from weighbridge.evidence.redact import Redactor, host_pseudonym, own_key, redactor_here
from weighbridge.evidence.statement import BoundSubject, Companion, SubjectFiles, Tool
from weighbridge.lanes.waivers import Waivers, demand_places

if TYPE_CHECKING:
    from weighbridge.lanes.lanes import Project
    from weighbridge.ledger.record import Move

ROLE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,59}")
AS_EVALUATED = ("contract", "instances", "measured", "canaries", "findings", "started", "finished", "plugins")
PACKAGES = ("torch", "numpy", "safetensors", "gguf", "ml_dtypes")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyRequest:
    """What the person at the keyboard asked for; without a folder for `evidence`, nothing is kept."""

    contracts: tuple[str, ...]
    subjects: tuple[str, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    gates: tuple[str, ...] = ()
    expect_blocked: frozenset[str] = frozenset()
    attached: tuple[tuple[str, Path], ...] = ()
    inputs: tuple[tuple[str, Path], ...] = ()
    evidence: Path | None
    ledger: Path
    record: bool = False
    command: tuple[str, ...] = ()  # without it, what was typed
    waivers: Waivers = field(default_factory=Waivers)
    lane: str = ""
    project: "Project | None" = None  # with a lane: the lanes that there are

    @property
    def excuses(self) -> Excuses:
        """Return what excuses a finding."""
        return Excuses(expect_blocked=self.expect_blocked, waived=self.waivers.good)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractResult:
    """What one contract came to, where its evidence is, and what was recorded of it."""

    loaded: LoadedContract
    evaluation: Evaluation
    bundle: Bundle | None  # None where nothing is kept, or the lane measures nothing of the contract
    subjects: tuple[tuple[str, str, str, str], ...]  # by name, instance, redacted target, and why no witness saw it
    moves: "tuple[Move, ...]" = ()
    # What findings stand on that another lane measured, by gate and instance: they are not in the bundle.
    elsewhere: Mapping[tuple[str, str], str] = field(default_factory=dict)


class UnsealedError(BundleError):
    """A bundle that could not be written, with the `results` that were measured all the same."""

    results: tuple[ContractResult, ...] = ()


def verify(request: VerifyRequest, progress: Announce) -> tuple[ContractResult, ...]:
    """Verify every contract that was asked for; nothing is measured before all of them are read and bound."""
    loaded = load_all(request.contracts, request.params)
    if request.record:
        _demand_own_version(loaded, request.ledger)
    bound = bind_all(loaded, request.subjects)
    _check_gates(loaded, request)
    everywhere = [all_instances(one.contract, subjects) for one, subjects in zip(loaded, bound, strict=True)]
    if request.waivers.given:
        judged = {one.contract.id: on for one, on in zip(loaded, everywhere, strict=True)}
        demand_places(request.waivers, judged, request.ledger)
    turn = None
    if request.project is not None:
        from weighbridge.evaluation.lane_turn import begin

        turn = begin(request.project, request.lane, request.ledger)
    targets = (item.target for items in bound for item in items)
    command = request.command or ("weighbridge", *sys.argv[1:])  # as it was typed, the program by its name alone
    named = (*command, *targets, *(str(one.path) for one in loaded))
    redactor = redactor_here(own_key(), run=Path.cwd(), named=named)
    texts = {role: read_regular_file(path, 64 << 20, UsageError) for role, path in request.attached}
    logs = {role: data.decode(errors="replace") for role, data in texts.items()}
    companions, lane = tuple(_companions(request, texts, redactor)), turn.sealed if turn else model.EMPTY
    results: list[ContractResult] = []
    unsealed: UnsealedError | None = None
    for one, subjects, instances in zip(loaded, bound, everywhere, strict=True):
        wanted = frozenset(gate for gate in instances if _wanted(gate, request.gates))
        mine = turn.of(one.contract, wanted) if turn else wanted
        on = {gate: names if gate in mine else () for gate, names in instances.items()}
        run = EvaluationSession(contract=one.contract, bound=subjects, on=on, progress=progress)
        evaluation = run.evaluate(redactor)
        reported = {key for key, one in evaluation.origins.items() if one is model.Origin.REPORTED}
        doubts = {key: redactor.text(why) for key, why in evaluation.unwitnessed.items() if key in reported}
        bound_as = tuple((*one.key, redactor.text(in_project(one.target)), doubts.get(one.key, "")) for one in subjects)
        result = ContractResult(loaded=one, evaluation=evaluation, bundle=None, subjects=bound_as)
        if request.evidence is not None and (mine or not turn):
            progress("sealing")
            try:
                result = _sealed(result, request, redactor, command, logs=logs, companions=companions, lane=lane)
            except BundleError as error:  # what was measured is shown first
                unsealed = UnsealedError(error.code, error.what, where=error.where, remedy=error.remedy)
        if turn:
            evaluation, elsewhere = turn.with_others(evaluation, wanted - mine)
            result = replace(result, evaluation=evaluation, elsewhere=elsewhere)
        results.append(result)
    if unsealed:
        unsealed.results = tuple(results)
        raise unsealed
    return tuple(results)


def _sealed(
    result: ContractResult, request: VerifyRequest, redactor: Redactor, command: tuple[str, ...], **more: Any
) -> ContractResult:
    assert request.evidence is not None
    one, evaluation = result.loaded, result.evaluation
    bundle = keep(evaluation, one.source, redactor, request.evidence, command, **more)
    moves: tuple[Move, ...] = ()
    if request.record:
        from weighbridge.ledger.record import record  # what reads bundles again loads as long as the rest
        from weighbridge.ledger.store import Ledger

        digest = digests(one.contract).whole
        moves = record(bundle, Ledger(request.ledger), now=evaluation.finished, contract_digest=digest)
    return replace(result, bundle=bundle, moves=moves)


def code_of(results: Sequence[ContractResult], excuses: Excuses) -> ExitCode:
    """Fold the results into one code; a contract without a gate has shown nothing, whatever passed beside it."""
    found = ((one.loaded.contract.id, finding) for one in results for finding in one.evaluation.findings)
    code = exit_code(found, excuses)
    empty = any(not result.evaluation.contract.gates for result in results)
    return ExitCode.NOTHING_SHOWN if code is ExitCode.PASSED and empty else code


def load_all(names: Sequence[str], params: Mapping[str, str]) -> tuple[LoadedContract, ...]:
    """Return every contract, loaded, or raise the problems of all of them together."""
    loaded, problems = load_each(names, params)
    if problems:
        raise collected(tuple(problems))
    return tuple(one for _, one in loaded)


def _demand_own_version(loaded: Sequence[LoadedContract], ledger: Path) -> None:
    from weighbridge.ledger.record import recorded_contracts
    from weighbridge.ledger.store import Ledger

    written = ((one, digests(one.contract).whole) for one in loaded if not one.contract.overridden)
    if found := tuple(problem.error for problem in reused(written, recorded_contracts(Ledger(ledger)))):
        raise collected(found)


def bind_all(loaded: Sequence[LoadedContract], arguments: Sequence[str]) -> tuple[tuple[Binding, ...], ...]:
    """Bind each argument in every contract that declares its subject; refuse one that no contract knows."""
    known = {name for contract in loaded for name in contract.contract.subjects}
    names = {text: match["name"] if (match := ARGUMENT.fullmatch(text)) else None for text in arguments}
    for name in names.values():
        if name is not None and name not in known:
            raise UsageError("unknown-subject", f"no contract has a subject {name!r}{nearest(name, known)}")
    mine = ([text for text in arguments if names[text] in {None, *one.contract.subjects}] for one in loaded)
    return tuple(bind(one.contract, one.path.parent, texts) for one, texts in zip(loaded, mine, strict=True))


def _check_gates(loaded: Sequence[LoadedContract], request: VerifyRequest) -> None:
    """Refuse a glob that chooses no gate, and an expected block, by its very id, of a gate that is not judged."""
    known = [gate.id for contract in loaded for gate in contract.contract.gates]
    unmatched = (glob for glob in request.gates if not any(_wanted(gate, (glob,)) for gate in known))
    judged = {gate for gate in known if _wanted(gate, request.gates)}
    for name in (*unmatched, *sorted(request.expect_blocked - judged)):
        among = " that is judged" if name in known else ""
        raise UsageError("unknown-gate", f"no gate{among} is called {name!r}{nearest(name, known)}")


def _wanted(gate: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatch.fnmatchcase(gate, glob) for glob in globs)


def _companions(request: VerifyRequest, texts: Mapping[str, bytes], redactor: Redactor) -> Iterator[Companion]:
    roles = [role for role, _ in (*request.attached, *request.inputs)]
    for role in roles:
        if roles.count(role) > 1 or not ROLE.fullmatch(role):
            remedy = "give each file a role of its own, of letters, digits, - and _"
            raise UsageError("role", f"{role!r} is given twice, or is no role", remedy=remedy)
    for role, path in (*request.attached, *request.inputs):
        data = texts.get(role)
        yield Companion(
            role=role,
            name=redactor.text(path.name),
            sha256=digest_regular(path) if data is None else sha256(data),
            size=path.stat().st_size if data is None else len(data),
            sealed=data is not None,
        )


def keep(
    evaluation: Evaluation, source: bytes, redactor: Redactor, folder: Path, command: Iterable[str], *,
    logs: Mapping[str, str] = MappingProxyType({}), companions: tuple[Companion, ...] = (),
    lane: model.Fields = model.EMPTY,
) -> Bundle:  # fmt: skip
    """Write a bundle of an evaluation; `source` is the contract's own bytes, `lane` is sealed with the environment."""
    draft = BundleDraft(
        **{name: getattr(evaluation, name) for name in AS_EVALUATED},
        contract_yaml=source,
        subjects=tuple(_subject(item, evaluation, redactor) for item in evaluation.bound),
        tool=tool(),
        host=host_pseudonym(redactor.key),
        command=tuple(redactor.text(word) for word in command),
        environment={**environment(), **lane},
        logs=logs,
        companions=companions,
    )
    if folder.name == LOCAL:
        with disk_errors("the bundle", folder):
            make_local(folder)
    return seal(draft, folder / BUNDLES, redactor)


def _subject(item: Binding, evaluation: Evaluation, redactor: Redactor) -> BoundSubject:
    read = evaluation.files.get(item.key, SubjectFiles())
    found = read.digests
    commit, dirty = evaluation.programs.get(item.key, ("", None))
    if item.kind in model.EXECUTED and item.key not in evaluation.programs:  # then it was run from a tree
        place = Path(item.target.rpartition(":")[0])
        root = place.parent if item.kind is model.SubjectKind.MODEL and place.suffix == ".py" else Path()
        commit = git.commit(root)
        dirty = git.is_dirty(root) if commit else None
    path = Path(item.target)
    files = [path] if is_file(path) else [path / name for name in found]
    nbytes = 0 if item.kind in model.EXECUTED else sum(file.stat().st_size for file in files if is_file(file))
    return BoundSubject(
        commit=commit,
        dirty=dirty,
        name=item.subject,
        instance=item.instance,
        kind=item.kind,
        path=redactor.text(in_project(item.target)),
        origin=evaluation.origins.get(item.key, model.Origin.FIXTURE),
        book=evaluation.books.get(item.key, "" if item.kind is model.SubjectKind.RUN else None),
        digests={redactor.text(name): digest for name, digest in found.items()},
        beside=tuple(sorted({redactor.text(name) for name in read.beside})),
        started=evaluation.starts.get(item.key, ""),
        size=evaluation.sizes.get(item.key) or nbytes,
    )


def environment() -> model.Fields:
    """Return the versions that measuring rested on; only what is on the bundle's allow-list is sealed."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "weighbridge": __version__,
        "cpu_count": os.cpu_count(),
        **{name: version for name in PACKAGES if find_spec(name) and (version := version_of(name))},
    }


def version_of(name: str) -> str:
    """Return the installed version of a package, empty where there is none."""
    if name in _installed():  # importlib.metadata takes as long to load as linting does to run
        return _installed()[name]
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


@functools.cache
def _installed() -> dict[str, str]:
    found = (path.stem.rpartition("-") for folder in reversed(sys.path) for path in Path(folder).glob("*.dist-info"))
    return {name: version for name, _, version in found}


def tool() -> Tool:
    """Return which build of this tool is running: version, digest of its source, and its commit in a checkout."""
    package = Path(__file__).resolve().parents[1]
    walked = ((Path(folder), name) for folder, _, names in os.walk(package) for name in names)
    files = (folder / name for folder, name in walked if name.endswith((".py", ".yaml")))
    source = {path.relative_to(package).as_posix(): sha256(path.read_bytes()) for path in files}
    root = package.parents[1]
    asked = ("status", "--porcelain=v2", "--branch", "--untracked-files=no", "--", "src", "gates", "verifiers")
    answer = (git.answer(root, *asked) or "") if (root / ".git").exists() else ""
    commit = "".join(re.findall("^# branch.oid ([0-9a-f]+)$", answer, re.MULTILINE))
    dirty = not all(line.startswith("# ") for line in answer.splitlines())
    return Tool(version=__version__, digest=sha256(dumps(source)), commit=commit, dirty=dirty)
