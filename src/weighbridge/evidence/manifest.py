"""The files of a bundle: their names, and a manifest of sizes and digests; the folder holds these and nothing else."""

import re
from collections.abc import Collection, Mapping
from typing import TypeAlias

from weighbridge.core import BundleError, WeighbridgeError, build, dataclass, dumps, loads, plain, sha256
from weighbridge.evidence import statement
from weighbridge.evidence.disk import DiskFolder, PackedFolder

BundleFolder: TypeAlias = DiskFolder | PackedFolder  # of files, on a disk or in an archive
FILE = "MANIFEST.json"
CONTRACT_YAML = "contract.yaml"
CONTRACT_JSON = "contract.json"
VERDICTS = "verdicts.json"
CANARIES = "canaries.json"
ENVIRONMENT = "environment.json"
PLUGINS = "plugins.json"
MEASUREMENTS = "measurements/"
LOGS = "logs/"
SCHEMA = "weighbridge.manifest/v0"
SIGNATURES = "signatures/"
MAX_FILE = 256 << 20
MAX_BUNDLE = 1 << 30
MAX_FILES = 4096
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9._-]{0,99}){0,2}")
SIGNATURE = re.compile(rf"{SIGNATURES}[0-9a-f]{{64}}\.dsse\.json")  # named by the id of the key
LFS_POINTER = b"version https://git-lfs.github.com/spec/"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestEntry:
    """One file of a bundle."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All files of a bundle but the manifest, the statement and signatures, sorted by path."""

    schema: str
    files: tuple[ManifestEntry, ...]


def measurement_file(key: str) -> str:
    """Return the file of a measurement; a key that is no safe name in any letter case gets its digest."""
    slug = re.sub(r"[^A-Za-z0-9._-]", "_", key)[:80]
    safe = slug == key and key == key.lower() and re.match(r"[a-z0-9_]", key) is not None
    return f"{MEASUREMENTS}{slug if safe else f'm_{slug}.{sha256(key.encode())[:8]}'}.json"


def to_bytes(files: Mapping[str, bytes]) -> bytes:
    """Write the manifest of these files; refuse what could not be read back as `too-large` or `file-name`."""
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BUNDLE:
        raise BundleError("too-large", f"a bundle holds at most {MAX_FILES} files and {MAX_BUNDLE >> 20} MiB")
    for name, data in files.items():
        if len(data) > MAX_FILE:
            raise BundleError("too-large", f"has more than {MAX_FILE >> 20} MiB", where=name)
    _check_names(files)
    found = sorted(files.items())
    entries = tuple(ManifestEntry(path=name, size=len(data), sha256=sha256(data)) for name, data in found)
    return dumps(plain(Manifest(schema=SCHEMA, files=entries)))


def from_bytes(data: bytes) -> Manifest:
    """Read a manifest back, or raise a BundleError where it is not exactly what `to_bytes` writes."""
    manifest = build(Manifest, loads(data, where=FILE))
    names = [entry.path for entry in manifest.files]
    if manifest.schema != SCHEMA or dumps(plain(manifest)) != data or names != sorted(set(names)):
        raise BundleError("not-canonical", f"is not {SCHEMA} in its one form", where=FILE)
    if len(names) > MAX_FILES or sum(entry.size for entry in manifest.files) > MAX_BUNDLE:
        raise BundleError("too-large", f"names more than {MAX_FILES} files or {MAX_BUNDLE >> 20} MiB", where=FILE)
    _check_names(names)
    return manifest


def _check_names(names: Collection[str]) -> None:
    for name in names:
        if not NAME.fullmatch(name) or name in (FILE, statement.FILE) or name.startswith(SIGNATURES):
            raise BundleError("file-name", f"{name!r} is no name for a file of a bundle", where=FILE)
    if len({name.lower() for name in names}) != len(names):
        raise BundleError("file-name", "two files differ only in letter case", where=FILE)


def read_folder(folder: BundleFolder, manifest_digest: str) -> tuple[dict[str, bytes], tuple[BundleError, ...]]:
    """Return what a bundle's folder holds by its manifest: the files that are whole, and every problem, worst first."""
    try:
        listed = _listed(folder, manifest_digest)
    except BundleError as problem:
        return {}, (problem,)
    files: dict[str, bytes] = {}
    problems: list[BundleError] = []
    for name, regular in folder.names():
        if name in listed or name in (FILE, statement.FILE):
            continue  # read, and checked, by name
        if not regular:
            problems.append(BundleError("not-regular", "is neither a file nor a folder", where=name))
        elif not SIGNATURE.fullmatch(name):
            problems.append(BundleError("extra-file", "is not in the manifest", where=name))
    for name, entry in listed.items():
        try:
            files[name] = _as_sealed(folder, name, entry.sha256, entry.size)
        except BundleError as problem:
            problems.append(problem)
    return files, tuple(problems)


def read_file(folder: BundleFolder, manifest_digest: str, name: str) -> bytes:
    """Return one file as the manifest lists it, or raise what was done to either."""
    if (entry := _listed(folder, manifest_digest).get(name)) is None:
        raise BundleError("missing-file", "is not in this bundle", where=name)
    return _as_sealed(folder, name, entry.sha256, entry.size)


def _listed(folder: BundleFolder, manifest_digest: str) -> dict[str, ManifestEntry]:
    data = _as_sealed(folder, FILE, manifest_digest)
    try:
        return {entry.path: entry for entry in from_bytes(data).files}
    except WeighbridgeError as problem:
        raise BundleError(problem.code, problem.what, where=FILE) from None


def _as_sealed(folder: BundleFolder, name: str, digest: str, size: int | None = None) -> bytes:
    """Return a file, or raise in what way it is not the one that was sealed; the usual innocent causes have names."""
    data = folder.read(name, MAX_FILE)
    if size in (None, len(data)) and sha256(data) == digest:
        return data
    what = f"has sha256 {sha256(data)[:12]}…, sealed as {digest[:12]}…"
    what = what if size in (None, len(data)) else f"has {len(data)} bytes, sealed with {size}"
    raise changed_by_git(name, data, digest) or BundleError("altered", what, where=name)


def changed_by_git(name: str, data: bytes, digest: str) -> BundleError | None:
    """Return which of the two innocent changes of a checkout was made; `digest` may be the first digits of one."""
    if data.startswith(LFS_POINTER):
        return BundleError("lfs-pointer", "is a Git LFS pointer, not the file", where=name, remedy="git lfs pull")
    if sha256(data.replace(b"\r\n", b"\n")).startswith(digest):
        remedy = "put `evidence/** -text` into .gitattributes and check the folder out again"
        return BundleError("line-endings", "has CRLF line endings, sealed with LF", where=name, remedy=remedy)
    return None
