"""Bundles: sealed into a folder that cannot be changed unnoticed, read back without trust, removed from a store."""

import contextlib
import datetime as dt
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from weighbridge.contract.resolved import contract_from_json, contract_to_json, digests
from weighbridge.core import BundleError, CanaryResult, Contract, Fields, Finding, Measured, WeighbridgeError, plain
from weighbridge.core.canonical import build, closed, dumps, loads, sha256
from weighbridge.core.frozen import dataclass, field
from weighbridge.core.local_files import exists, is_file, is_folder
from weighbridge.core.plugins import Plugin, here
from weighbridge.evidence import codec, manifest, statement
from weighbridge.evidence.disk import STAGE, DiskFolder, disk_errors, read_regular, write_folder
from weighbridge.evidence.redact import Redactor, scan
from weighbridge.evidence.statement import BoundSubject, Companion, Predicate, Tool, utc

T = TypeVar("T")
BUNDLES = "bundles"  # the folder of bundles, in a store
FOLDER = re.compile(r"(?P<date>\d{4}-\d{2}-\d{2})-(?P<contract>.+)-(?P<id>[0-9a-f]{12})")
ID_SHOWN = 12
NAMED = re.compile(r"(?<![0-9a-f])[0-9a-f]{12,64}(?![0-9a-f])")  # an id in a text, or its first digits
LEFT_OUT = ("node_modules", "venv", "site-packages")
LOG_TAIL = 256 << 10
AS_DRAFTED = "tool", "host", "subjects", "instances", "command", "companions"
PLUGINS_SCHEMA = "weighbridge.plugins/v0"
# What may be sealed of the machine; nothing else is, whatever is handed in.
_SEALABLE = (
    "python implementation system machine weighbridge torch numpy safetensors gguf ml_dtypes cuda cudnn driver "
    "device_name device_capability visible_devices cpu_count deterministic matmul_precision default_dtype num_threads "
    "omp_num_threads mkl_num_threads locale timezone lane lane_paths"
)
SEALABLE = frozenset(_SEALABLE.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleDraft:
    """All that one bundle is to hold, redacted; times are UTC. `measured` is what was judged."""

    contract: Contract
    contract_yaml: bytes
    subjects: tuple[BoundSubject, ...]
    instances: Mapping[str, tuple[str, ...]]
    measured: Mapping[str, Measured]
    canaries: Mapping[str, CanaryResult]
    findings: tuple[Finding, ...]
    tool: Tool
    host: str
    started: dt.datetime
    finished: dt.datetime
    command: tuple[str, ...] = ()
    environment: Fields = field(default_factory=dict)
    plugins: tuple[Plugin, ...] = ()
    logs: Mapping[str, str] = field(default_factory=dict)
    companions: tuple[Companion, ...] = ()


def seal(draft: BundleDraft, into: Path, redactor: Redactor) -> "Bundle":
    """Write `DATE-CONTRACT-ID12/` into the folder `into`, and read it back; an error leaves nothing behind."""
    return unseal(_written(draft, into, redactor))  # what was written is let go of before it is read


def _written(draft: BundleDraft, into: Path, redactor: Redactor) -> Path:
    files = _files(draft, redactor)
    listed = manifest.to_bytes(files)
    predicate = Predicate(
        **{name: getattr(draft, name) for name in AS_DRAFTED},
        contract=digests(draft.contract),
        manifest=sha256(listed),
        started=utc(draft.started),
        finished=utc(draft.finished),
        overridden=draft.contract.overridden,
    )
    stated = statement.to_bytes(predicate)
    whole = {**files, manifest.FILE: listed, statement.FILE: stated}
    # Arrays hold nothing but numbers: reading the bundle back demands it.
    texts = ((name, data) for name, data in whole.items() if not name.endswith(".npy"))
    hits = {name: rule for name, data in texts if (rule := scan(data, redactor))}
    if hits:
        shown = "; ".join(f"{name} ({rule})" for name, rule in hits.items())
        what = f"{len(hits)} of {len(whole)} files would seal a secret, a name or an absolute path: {shown}"
        remedy = "take it out of the contract or the subject; nothing was sealed, and the value is not repeated here"
        raise BundleError("secret-found", what, where=next(iter(hits)), remedy=remedy)
    name = folder_name(predicate, sha256(stated))
    target = into / name
    if not target.exists():
        with disk_errors("the bundle", into):
            write_folder(into, name, whole)
    return target


def _files(draft: BundleDraft, redactor: Redactor) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    arrays: dict[str, bytes] = {}  # each stored once, whoever names it
    for key, item in draft.measured.items():
        body, named = codec.encode_measured(item)
        files[manifest.measurement_file(key)] = dumps({"key": key, "measured": body})
        arrays |= named
    for name, text in draft.logs.items():
        slug = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-") or "_"
        data = redactor.log(text).encode("utf-8", errors="replace")
        if len(data) > LOG_TAIL:  # its end is kept, in whole lines
            tail = data[-LOG_TAIL:].split(b"\n", 1)[-1]
            data = f"[{len(data) - len(tail)} bytes before this were cut]\n".encode() + tail
        files[f"{manifest.LOGS}{slug}.txt"] = data
    brought = {"schema": PLUGINS_SCHEMA, "plugins": [plain(one) for one in draft.plugins]}
    return {
        manifest.CONTRACT_YAML: draft.contract_yaml,
        manifest.CONTRACT_JSON: dumps(contract_to_json(draft.contract)),
        manifest.VERDICTS: codec.findings_to_bytes(draft.findings),
        manifest.CANARIES: codec.canaries_to_bytes(draft.canaries),
        manifest.ENVIRONMENT: dumps({key: draft.environment[key] for key in draft.environment if key in SEALABLE}),
        **({manifest.PLUGINS: dumps(brought)} if draft.plugins else {}),
        **files,
        **{f"{manifest.MEASUREMENTS}{digest}.npy": data for digest, data in arrays.items()},
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """One unsealed bundle. `id` is the sha256 of its statement; `verdicts` are the sealed bytes of its findings."""

    path: Path
    id: str
    statement: Predicate
    contract: Contract
    contract_yaml: bytes
    measured: Mapping[str, Measured]  # without what plugins measured that are not here
    canaries: Mapping[str, CanaryResult]
    findings: tuple[Finding, ...]
    verdicts: bytes
    environment: Fields
    plugins: tuple[Plugin, ...]
    logs: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A folder compared with its digests, whole without `problems`; `anchor` vouches for its id beyond its name."""

    path: Path
    folder: manifest.BundleFolder
    id: str
    anchor: str = ""
    statement: Predicate | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[BundleError, ...]


def open_bundle(
    path: Path, given: str = "", recorded: Collection[str] = (), folder: manifest.BundleFolder | None = None
) -> Opened:
    """Read a bundle's folder, or the archive of one, and check every byte; raise `not-a-bundle` where there is none.

    The statement itself is checked by the folder's name, and by the id, or its first digits, that was `given`. Under a
    name of another form it takes that one, or an id that the ledger has `recorded`. `folder` is one read already.
    """
    if folder is None and is_file(path):
        from weighbridge.evidence.archive import open_archive  # as long to load as a small bundle to read

        folder = open_archive(path, given)
    folder = folder or DiskFolder(path)
    if isinstance(folder, DiskFolder) and not exists(path / statement.FILE):
        what = f"there is no {statement.FILE} in it" if is_folder(path) else "is not a folder"
        what = what if exists(path) else "there is no such folder or archive"
        remedy = "name a bundle's folder: `verify` writes them to .weighbridge/bundles, --record to evidence/bundles"
        for one in stored(path, {})[:1]:
            what, remedy = f"{what}; bundles lie in it", f"name one of them, such as {one.path}"
        raise BundleError("not-a-bundle", what, where=str(path), remedy=remedy)
    data = folder.read(statement.FILE, manifest.MAX_FILE)
    read = partial(Opened, path=path, folder=folder, id=sha256(data))
    named = FOLDER.fullmatch(folder.name)
    try:
        stated, anchor = _stated(data, named, given, recorded)
    except WeighbridgeError as refused:
        return read(problems=(BundleError(refused.code, refused.what, where=statement.FILE, remedy=refused.remedy),))
    files, problems = manifest.read_folder(folder, stated.manifest)
    return read(anchor=anchor, statement=stated, files=files, problems=problems)


def _stated(data: bytes, named: re.Match[str] | None, given: str, recorded: Collection[str]) -> tuple[Predicate, str]:
    """Read a statement; return it, and what but its folder's name vouches for its id, "" for nothing."""
    found, anchor = sha256(data), ""
    for by, wanted in (("its folder", named["id"] if named else ""), ("--id", given)):
        if not found.startswith(wanted):
            why = "it was renamed, is another, or the statement was changed after sealing"
            what = f"has the id {found[:12]}, {by} says {wanted[:12]}: {why}"
            changed = BundleError("id-mismatch", what, remedy="fetch the bundle again from where it was recorded")
            raise manifest.changed_by_git(statement.FILE, data, wanted) or changed
    if found in recorded:
        anchor = "the ledger names this id"
    elif given:
        anchor = "it is the id that was given"
    elif named is None:
        what = "has no id in its folder's name to be compared with: name it as verify did, or evidence verify --id ID12"
        raise BundleError("not-anchored", what)
    stated = statement.from_bytes(data)
    if named is not None and not named[0].startswith(f"{stated.finished[:10]}-{stated.contract.id}-"):
        what = f"is of {stated.contract.id}, finished {stated.finished[:10]}: its folder's name says otherwise"
        remedy = f"name the folder {folder_name(stated, found)}"
        raise BundleError("folder-name", what, where=statement.FILE, remedy=remedy)
    return stated, anchor


def read_statement(path: Path) -> tuple[str, Predicate]:
    """Return the id and the statement of the bundle in a folder of its own name, or raise why it has none."""
    named = FOLDER.fullmatch(path.name)
    if named is None or path.is_symlink():
        remedy = "name it as it was sealed, DATE-CONTRACT-ID12, or take it out of the folder"
        raise BundleError("not-a-bundle", "is a link" if named else "is no bundle's name", remedy=remedy)
    data = read_regular(path / statement.FILE, statement.FILE, manifest.MAX_FILE)
    return sha256(data), _stated(data, named, "", ())[0]


def folder_name(stated: Predicate, found: str) -> str:
    """Return `DATE-CONTRACT-ID12`, the name of a bundle's folder."""
    return f"{stated.finished[:10]}-{stated.contract.id}-{found[:ID_SHOWN]}"


def whole(path: Path, given: str = "", folder: manifest.BundleFolder | None = None) -> Opened:
    """Open a bundle's folder or archive as `open_bundle` does, or raise the first file that is not as sealed."""
    opened = open_bundle(path, given, folder=folder)
    if opened.problems:
        raise opened.problems[0]
    return opened


def files_of(opened: Opened) -> dict[str, bytes]:
    """Return every file of a bundle, its signatures among them."""
    return {name: opened.folder.read(name, manifest.MAX_FILE) for name, _ in opened.folder.names()}


def unseal(path: Path, given: str = "") -> "Bundle":
    """Read a bundle's folder or archive, as `whole` does, and decode it."""
    return decode(whole(path, given))


def decode(opened: Opened) -> "Bundle":
    """Decode the files of a bundle that is whole, or raise `structure` with the file and the place in it."""
    files, stated = opened.files, opened.statement
    assert stated is not None
    contract = _read(files, manifest.CONTRACT_JSON, contract_from_json)
    brought: tuple[Plugin, ...] = ()
    if manifest.PLUGINS in files:
        with _inside(manifest.PLUGINS):
            given = closed(_json(files, manifest.PLUGINS), ("schema", "plugins"))
            if given["schema"] != PLUGINS_SCHEMA or not isinstance(given["plugins"], list):
                raise BundleError("structure", f"is not a list of {PLUGINS_SCHEMA}")
            brought = tuple(build(Plugin, one, at=("plugins", at)) for at, one in enumerate(given["plugins"]))
    return Bundle(
        path=opened.path,
        id=opened.id,
        statement=stated,
        contract=contract,
        contract_yaml=_file(files, manifest.CONTRACT_YAML),
        measured=_measured(files, {one.name for one in brought if one.what == "quantity" and here(one) != one}),
        canaries=_read(files, manifest.CANARIES, codec.canaries_from_json),
        findings=_read(files, manifest.VERDICTS, codec.findings_from_json),
        verdicts=_file(files, manifest.VERDICTS),
        environment=_json(files, manifest.ENVIRONMENT),
        plugins=brought,
        logs={name: data for name, data in files.items() if name.startswith(manifest.LOGS)},
    )


def _read(files: Mapping[str, bytes], name: str, decoder: Callable[[object], T]) -> T:
    with _inside(name):
        return decoder(_json(files, name))


@contextlib.contextmanager
def _inside(name: str) -> Iterator[None]:
    """Raise whatever is wrong inside a file with the name of the file."""
    try:
        yield
    except WeighbridgeError as problem:
        if problem.where:
            raise
        raise BundleError(problem.code, problem.what, where=name, remedy=problem.remedy) from None


def _measured(files: Mapping[str, bytes], foreign: Collection[str]) -> dict[str, Measured]:
    """Decode what was measured; a quantity in `foreign`, of a package that is not here as it was, may be unreadable."""
    inside = {name: data for name, data in files.items() if name.startswith(manifest.MEASUREMENTS)}
    arrays = {Path(name).stem: data for name, data in inside.items() if name.endswith(".npy")}
    for digest, data in arrays.items():
        if sha256(data) != digest:
            raise BundleError("structure", "is not named by its digest", where=f"{manifest.MEASUREMENTS}{digest}.npy")
    measured: dict[str, Measured] = {}
    for name in (name for name in inside if not name.endswith(".npy")):
        with _inside(name):
            given = closed(_json(files, name), ("key", "measured"))
            key = given["key"]
            if not isinstance(key, str) or manifest.measurement_file(key) != name:
                raise BundleError("structure", "is not named by its key", where=name)
            with contextlib.suppress(*([WeighbridgeError] if key.partition(".")[0] in foreign else [])):
                measured[key] = codec.decode_measured(given["measured"], arrays)
    return measured


def _file(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise BundleError("missing-file", "is not in this bundle", where=name)
    return files[name]


def _json(files: Mapping[str, bytes], name: str) -> Fields:
    data = loads(_file(files, name), where=name)
    if not isinstance(data, Mapping):
        raise BundleError("structure", "is not a mapping", where=name)
    return data


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One bundle in a store: when it was finished, to the day, and what it takes on the disk."""

    path: Path
    date: dt.date
    size: int
    cited_by: str = ""


def stored(store: Path, cited: Mapping[str, str]) -> tuple[Stored, ...]:
    """List the bundles of a store, newest first; `cited` says who names an id, or its first digits."""
    known = {id_[:ID_SHOWN]: who for id_, who in cited.items()}
    named = ((FOLDER.fullmatch(path.name), path) for path in (store.iterdir() if is_folder(store) else ()))
    found = [(path.stat().st_mtime_ns, match, path) for match, path in named if match and not path.is_symlink()]
    newest = sorted(found, key=lambda item: (item[1]["date"], item[0]), reverse=True)
    bundles = []
    for _, match, path in newest:
        date, cited_by = dt.date.fromisoformat(match["date"]), known.get(match["id"], "")
        size = sum(file.stat().st_size for file in path.rglob("*") if is_file(file))
        bundles.append(Stored(path=path, date=date, size=size, cited_by=cited_by))
    return tuple(bundles)


def cited_in(root: Path) -> dict[str, str]:
    """Return every id in a Markdown file below a folder, and in which it stands; folders with a dot are left out."""
    found: dict[str, str] = {}
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in LEFT_OUT]
        for path in (Path(folder, name) for name in names if name.endswith(".md")):
            text = path.read_text("utf-8", errors="replace") if is_file(path) else ""
            found |= dict.fromkeys(NAMED.findall(text), str(path.relative_to(root)))
    return found


def remove(bundle: Stored) -> None:
    """Remove a bundle in one step; what a crash leaves is no bundle, and the next writer there clears it away."""
    import shutil  # loads three compressors

    with disk_errors("the removal of the bundle", bundle.path):
        shutil.rmtree(bundle.path.rename(bundle.path.with_name(f"{STAGE}{os.urandom(8).hex()}")))
