"""Look at a checkpoint's tensors without loading them, wherever it lies; lay damage over them without copying."""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NoReturn

from weighbridge.core import Origin, Scalar, SubjectError, dataclass, field, quoted, replace, table
from weighbridge.formats import detect
from weighbridge.formats.strict_json import strict_json
from weighbridge.formats.tensor import Checksum, Tensor, read_pieces, windows_of
from weighbridge.storage.mapped_file import locate
from weighbridge.storage.readable import Folder, ReadableFile, sha256

ORIGIN_KEY = "weighbridge.origin"  # a specimen carries it, so that it never counts as live
# Files beside a checkpoint say what it means. Each of a few fixed names is opened once, bounded, and kept with the
# view, so that what was read is what is digested as evidence.
OF_FOLDERS = "safetensors", "torch", "torch-legacy"  # the formats whose folder says more of a model
CONFIG, MAX_CONFIG = "config.json", 4 << 20
# Where the configuration of a larger model holds its text model's own, the first that is there; what it says itself.
TEXT_PARTS, OF_THE_WHOLE = ("text_config", "llm_config", "lm_config", "language_config"), ("tie_word_embeddings",)
# What of a bound folder a loader may read beside the tensors that are read.
TABLE = "views/beside_files"
ASIDE, OTHER, SETTINGS, STRUCTURE, WEIGHTS, UNKNOWN = "aside", "other", "settings", "structure", "weights", "unknown"
MODULES = "modules.json"

__all__ = ["CheckpointView", "Checksum", "Tensor", "open_checkpoint"]


@dataclass(frozen=True, slots=True)
class SidecarFiles:
    """Files beside a checkpoint, by name, and what was read from them, once for all views that are cut from one."""

    files: dict[str, ReadableFile] = field(default_factory=dict)
    read: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointView:
    """A checkpoint as it lies on disk, or with damage overlaid.

    `metadata` is short values only; `files` lie in `folder`; `checksums` are those that the files carry of themselves;
    `sidecars` were read to know what the tensors mean; `url` may hold credentials and is never shown. It is `whole`
    where its folder was bound, and all that a loader reads there is meant.
    """

    format: str
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Scalar]
    files: Mapping[str, ReadableFile]
    folder: Folder
    origin: Origin
    checksums: tuple[Checksum, ...] = ()
    patches: Mapping[str, tuple[tuple[int, bytes], ...]] = field(default_factory=dict)
    sidecars: SidecarFiles = field(default_factory=SidecarFiles)
    url: str = field(default="", repr=False)
    whole: bool = False

    def names(self) -> tuple[str, ...]:
        """Return the names of all tensors, sorted."""
        return tuple(sorted(self.tensors))

    def weights(self) -> tuple[str, ...]:
        """Return the names of the model's tensors, sorted: without those of an optimizer or a callback beside it."""
        return tuple(name for name in self.names() if self.tensors[name].weight)

    @property
    def size(self) -> int:
        """Return how many bytes all files have."""
        return sum(file.size for file in self.files.values())

    @property
    def nbytes(self) -> int:
        """Return how many bytes all tensors have."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def tensor(self, name: str) -> Tensor:
        """Return one tensor as its header describes it; a KeyError where there is none."""
        return self.tensors[name]

    def chunks(self, name: str, size: int) -> Iterator[memoryview]:
        """Walk over a tensor's bytes in steps of `size`; what lies behind is given back, so hold on to no chunk."""
        tensor = self.tensors[name]
        if tensor.pieces or tensor.strides:
            windows = windows_of(self.files, tensor, size)
        else:
            windows = self.files[tensor.file].windows(*tensor.extent, size)
        if name not in self.patches:
            return windows
        return (self._patched(name, at, window) for at, window in zip(itertools.count(0, size), windows, strict=False))

    def read(self, name: str, start: int, stop: int) -> memoryview:
        """Look at bytes `start` to `stop` of a tensor; `forget` it when done with a large one."""
        tensor = self.tensors[name]
        stop = min(stop, tensor.nbytes)
        if tensor.pieces or tensor.strides:
            window = read_pieces(self.files, tensor, start, stop)
        else:
            window = self.files[tensor.file].read(tensor.offset + start, tensor.offset + stop)
        return self._patched(name, start, window)

    def forget(self, name: str) -> None:
        """Release the memory that reading a tensor took."""
        for stored in self.tensors[name].stored:
            self.files[stored.file].release(*stored.extent)

    def require_unchanged(self, name: str) -> None:
        """Raise `subject-changed` where a file that holds some of a tensor is not what it was when it was opened."""
        for stored in self.tensors[name].stored:
            self.files[stored.file].require_unchanged()

    def digest(self) -> dict[str, str]:
        """Return the digest of every file, those beside it that were used included: `{file name: sha256}`."""
        files = {**self.sidecars.files, **{Path(name).name: file for name, file in self.files.items()}}
        return {name: sha256(file) for name, file in sorted(files.items())}

    def lies_in(self, other: CheckpointView) -> bool:
        """Return whether all bytes of this one's tensors lie in files of another, under whatever names and links."""
        mine = self._identities()
        return bool(mine) and mine <= other._identities()

    def _identities(self) -> set[str]:
        return {self.files[stored.file].identity for one in self.tensors.values() for stored in one.stored}

    def cut(self, names: Iterable[str], elements: int | None = None) -> CheckpointView:
        """Keep only these tensors; a longer one as its last `elements` (a multiple of 256), in one dimension."""
        tails = {name: _tail(self.tensors[name], elements) for name in names}
        moved = {name: self.tensors[name].nbytes - tail.nbytes for name, tail in tails.items()}
        kept = {name: parts for name, parts in self.patches.items() if name in tails}
        patches = {name: tuple((at - moved[name], data) for at, data in parts) for name, parts in kept.items()}
        return replace(self, tensors=tails, patches=patches, origin=Origin.SYNTHETIC)

    def of_rows(self, rows: Mapping[str, int]) -> CheckpointView:
        """Keep the first rows of some tensors, which lie in one piece."""
        cut = {
            name: replace(old, shape=(many, *old.shape[1:]), nbytes=old.nbytes // old.shape[0] * many)
            for name, many in rows.items()
            if (old := self.tensors[name]).pieces is None and old.strides is None
        }
        return replace(self, tensors={**self.tensors, **cut})

    def overlaid(self, name: str, offset: int, replacement: bytes) -> CheckpointView:
        """Return the view with other bytes over a tensor, from byte `offset` of it on; they must lie inside it."""
        if not 0 <= offset <= offset + len(replacement) <= self.tensors[name].nbytes:
            raise ValueError("the replacement does not lie inside the tensor")
        patches = {**self.patches, name: (*self.patches.get(name, ()), (offset, replacement))}
        return replace(self, patches=patches, origin=Origin.SYNTHETIC)

    def _patched(self, name: str, start: int, window: memoryview) -> memoryview:
        copy: bytearray | None = None
        for at, data in self.patches.get(name, ()):
            first, last = max(at - start, 0), min(at - start + len(data), len(window))
            if first < last:
                copy = copy or bytearray(window)
                copy[first:last] = data[first - at + start : last - at + start]
        return window if copy is None else memoryview(copy)


def _tail(tensor: Tensor, elements: int | None) -> Tensor:
    if elements is None or tensor.elements <= elements:
        return tensor
    per, size = tensor.unit
    nbytes = elements // per * size
    skipped = tensor.nbytes - nbytes
    cut = replace(tensor, shape=(elements,), nbytes=nbytes)
    if cut.pieces:
        return replace(cut, pieces=replace(cut.pieces, first=cut.pieces.first + skipped // size))
    if cut.strides:
        return replace(cut, strides=replace(cut.strides, first=cut.strides.first + skipped // size))
    return replace(cut, offset=cut.offset + skipped)


def open_checkpoint(path: str | os.PathLike[str]) -> CheckpointView:
    """Open one file of any format read here, or several by directory or index, by path or URL; refuse with a code."""
    place = locate(os.fspath(path))
    found, files = detect.parse(place.file or place.folder.open(detect.checkpoint_in(place.folder)), place.folder)
    for each in files.values():
        each.require_unchanged()
    # A checkpoint is all that there is to know about it, once it is digested; only its maker can call it less.
    origin = Origin.FIXTURE if found.metadata.get(ORIGIN_KEY) == Origin.FIXTURE else Origin.LIVE
    kept: dict[str, Any] = {name: getattr(found, name) for name in ("format", "tensors", "metadata", "checksums")}
    whole = place.file is None and re.split("[+]|-sharded", found.format)[0] in OF_FOLDERS
    return CheckpointView(**kept, files=files, folder=place.folder, origin=origin, url=place.url, whole=whole)


def open_sidecar(view: CheckpointView, name: str, most: int) -> ReadableFile | None:
    """Return a file beside a checkpoint, or None; refuse one of more than `most` bytes or that has changed since."""
    if name in view.sidecars.files:
        view.sidecars.files[name].require_unchanged()
        return view.sidecars.files[name]
    if not view.folder.is_visible(name):
        return None
    file = view.folder.open(name)
    if file.size > most:
        refuse(f"has {file.size} bytes, more than the {most} that are read", file)
    view.sidecars.files[name] = file
    return file


def json_beside(view: CheckpointView, name: str, most: int) -> dict[str, Any] | None:
    """Read a JSON object beside a checkpoint (transformers writes bare Infinity), or None; refuse what is no object."""
    if (file := open_sidecar(view, name, most)) is None:
        return None
    data = strict_json(file.read(0, file.size), "config", file, lenient=True)
    file.require_unchanged()
    if not isinstance(data, dict):
        refuse("is not an object", file)
    return data


def config_beside(view: CheckpointView) -> Mapping[str, Any] | None:
    """Read the `config.json` beside a checkpoint's files, with a text model's own part over it, or None."""
    data = json_beside(view, CONFIG, MAX_CONFIG)
    thinker = data.get("thinker_config") if data else None  # Qwen3-Omni's
    data = {**data, **thinker} if data and isinstance(thinker, dict) else data
    inner = next((data[part] for part in TEXT_PARTS if isinstance(data.get(part), dict)), None) if data else None
    if data is None or inner is None:
        return data
    return {**data, **inner, **{key: data[key] for key in OF_THE_WHOLE if data.get(key) is not None}}


def text_beside(view: CheckpointView, name: str, most: int) -> str | None:
    """Read a text in UTF-8 that lies beside a checkpoint, or None; what is no such text is refused."""
    if (file := open_sidecar(view, name, most)) is None:
        return None
    try:
        text = str(file.read(0, file.size), "utf-8")
    except UnicodeDecodeError as problem:
        refuse(f"is not UTF-8 at byte {problem.start}", file)
    file.require_unchanged()
    return text


def role_of(name: str, *, of_module: bool = False) -> str:
    """Return what a file is, by its path in the folder; one of a module is never aside for the folder that it is in."""
    folded = name.casefold()
    for role, globs in table(TABLE).items():
        for glob in globs:
            anywhere = glob.startswith("*") or "/" in glob
            free = of_module and "/" in glob and role in (ASIDE, OTHER)
            may_fit = all(part in folded for part in glob.split("*"))  # else no expression need be made of it
            if may_fit and (anywhere or "/" not in folded) and not free and fnmatchcase(folded, glob):
                return str(role)
    return UNKNOWN


def beside(view: CheckpointView) -> Mapping[str, str]:
    """Return the role of each file that some loader may read, by its path; none where no folder was bound."""
    if not view.whole:
        return {}
    known: Mapping[str, str] | None = view.sidecars.read.get(TABLE)
    if known is None:
        known = view.sidecars.read[TABLE] = _beside(view)
    return known


def _beside(view: CheckpointView) -> Mapping[str, str]:
    own = {Path(name).name for name in view.files}
    modules = document_beside(view, MODULES)
    paths = [str(one["path"]).casefold() for one in modules.values() if isinstance(one, dict) and one.get("path")]
    for path in paths:
        if path.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", path):
            what = f"{MODULES} names the module {quoted(path)}, which lies outside the folder"
            refuse(what, view.sidecars.files[MODULES])
    within = tuple(posixpath.normpath(path) + "/" for path in paths)
    found = {name: role_of(name, of_module=name.casefold().startswith(within)) for name in view.folder.below()}
    return {name: role for name, role in found.items() if name not in own and role != ASIDE}


def names_beside(view: CheckpointView) -> tuple[str, ...]:
    """Return what lies beside its files and may decide what is read; of one elsewhere, bound alone, what was read."""
    if view.whole:
        return tuple(sorted(beside(view)))
    own = {Path(name).name for name in view.files}
    ends = [Path(name).suffix or name for name in own if not name.endswith(".json")] if len(own) > 1 else []
    parts = tuple(ends or [".safetensors.index.json"])
    found = set(view.sidecars.files if view.url else view.folder.names()) - own
    fixed = {one for one in found if role_of(one) in (SETTINGS, STRUCTURE) and not one.endswith(".py")}
    return tuple(sorted(fixed | {one for one in found if one.endswith(parts)}))


def document_beside(view: CheckpointView, name: str) -> Mapping[str, Any]:
    """Read a JSON file beside a checkpoint, an entry of a list by its number; empty where there is none."""
    file = open_sidecar(view, name, MAX_CONFIG)
    data = strict_json(file.read(0, file.size), "config", file, lenient=True) if file is not None else {}
    if isinstance(data, list):
        return {str(at): entry for at, entry in enumerate(data)}
    return data if isinstance(data, dict) else {"": data}


def refuse(what: str, file: ReadableFile) -> NoReturn:
    """Refuse a file beside a checkpoint, with `config`."""
    raise SubjectError("config", what, where=file.name, remedy="fetch the model's directory again")
