"""Read a checkpoint in the format that its first bytes tell: one file, or shards and their index; name all others."""

import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple, NoReturn

from weighbridge.core import FAULTS, PluginError, SubjectError, WeighbridgeError, dataclass, quoted, replace, table
from weighbridge.core.plugins import Brought, OnDemand
from weighbridge.formats import safetensors_file
from weighbridge.formats.strict_json import strict_json
from weighbridge.formats.tensor import Reading, Tensor
from weighbridge.storage.readable import DISTCP, INDEX, INDEXES, METADATA, TORCH_NAMES, Folder, ReadableFile, is_plain

HEAD = 32  # bytes
LEAST_MAGIC = 4
LENGTH = 8  # bytes before the header of safetensors
MODEL_PARALLEL = TORCH_NAMES[-1], "consolidated.01.pth"
NAMED = 4  # files of a folder, in a message
MAX_INDEX = 32 << 20
SAFETENSORS = ".safetensors"
READ = "safetensors, GGUF, PyTorch (torch.save and distributed), APR, ONNX and NumPy files"
ONE_READER = "uninstall one of the packages: `weighbridge doctor` names them"
DOWNLOAD_AGAIN = "fetch the whole directory again, index and shards of one revision"
SHARD = re.compile(r"-(\d{5})-of-(\d{5})\.safetensors$")
MODEL = ("describes a model, and holds no weights", "name the folder that it lies in")
LOG = ("is the log of a Trainer, and holds no weights", "`weighbridge inspect {}` shows it")
JSON = ("is a JSON document that holds no tensors", "bind the folder that it lies in")
OTHER_JSON = {b'"log_history"': LOG, b'"architectures"': MODEL, b'"model_type"': MODEL}  # by keys that these hold
# A reader is imported when a file begins so; most commands meet one format.
GGUF = b"GGUF"
FILES = {GGUF: "gguf_file", b"APR\0": "apr_file", b"\x93NUMPY": "npy_file"}
READERS: Mapping[bytes, Callable[[ReadableFile], Reading]] = OnDemand(__package__, "read", FILES)
OWN = ("safetensors", "gguf", "torch", "torch-legacy", "torch-dcp", "apr", "onnx", "npy", "npz")
BROUGHT: "Brought[Format]" = Brought("reader of checkpoints", OWN)
ZIPPED = b"PK\x03\x04", b"PK\x05\x06"  # the second: an archive without members


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A checkpoint format of another package: the bytes that its files begin with, and how one file is read."""

    name: str
    magic: bytes
    read: Callable[[ReadableFile], Reading]

    def __post_init__(self) -> None:
        if not LEAST_MAGIC <= len(self.magic) <= HEAD:
            raise ValueError(f"a format is known by its first {LEAST_MAGIC} to {HEAD} bytes")


def parse(file: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read a checkpoint and its files by name, from its file, index or `.metadata`; refuse with code and reason."""
    head = bytes(file.read(0, HEAD))
    if head.lstrip().startswith(b"{") and 0 not in head[:8]:  # of a safetensors file's length the last byte is zero
        return _sharded(file, folder)
    if head.startswith(b"\x80"):  # a pickle
        from weighbridge.formats import dcp_directory

        if dcp_directory.begins(head):
            return dcp_directory.parse(file, folder)
    if head.startswith(GGUF):  # which may be one part of several
        from weighbridge.formats import gguf_file

        return gguf_file.parse(file, folder)
    if reader_of(head) is _onnx:  # which may keep data in files beside it
        from weighbridge.formats import onnx_file

        return onnx_file.parse(file, folder)
    return read(file), {file.name: file}


def read(file: ReadableFile) -> Reading:
    """Read one file that is a checkpoint, or a shard of one, by itself."""
    head = bytes(file.read(0, HEAD))
    if (reader := reader_of(head)) is not None:
        return reader(file)
    found = _unread(file)  # what is of no format that is known, but called safetensors, may be a damaged one
    beyond = int.from_bytes(head[:LENGTH], "little") > file.size or not file.name.endswith(SAFETENSORS)
    if found is None and beyond and head[LENGTH : LENGTH + 1] not in (b"", b"{"):
        found = Unread(f"of no format that is known, by its first bytes {quoted(head[:8].decode('latin-1'))}", SAVE)
    if found:
        what = f"is {found.what}; {READ} are read"
        raise SubjectError("checkpoint-format", what, where=file.name, remedy=found.remedy)
    return safetensors_file.read(file)


def reader_of(head: bytes) -> Callable[[ReadableFile], Reading] | None:
    """Return the reader that these first bytes call for, or none."""
    magic = next((magic for magic in READERS if head.startswith(magic)), None)
    if magic is not None:
        return READERS[magic]
    if head.startswith(ZIPPED):
        return _zipped
    if head[LENGTH : LENGTH + 1] == b"{" and struct.unpack_from("<Q", head)[0] <= safetensors_file.MAX_HEADER:
        return safetensors_file.read
    from weighbridge.formats import onnx_file, torch_file

    if torch_file.begins_legacy(head):
        return torch_file.read_legacy
    if onnx_file.begins(head):
        return None if begins_unread(head) else _onnx
    found = [one for one in BROUGHT.values() if head.startswith(one.magic)]
    if len(found) > 1:
        names = " and ".join(one.name for one in found)
        raise PluginError("plugin-twice", f"a file of these first bytes is of the formats {names}", remedy=ONE_READER)
    return partial(_read_brought, found[0]) if found else None


def _read_brought(form: "Format", file: ReadableFile) -> Reading:
    try:
        return replace(form.read(file), format=form.name)
    except WeighbridgeError:
        raise
    except FAULTS as error:  # somebody else's code may raise anything
        what = f"the reader of {form.name} checkpoints raised {type(error).__name__}: {error}"
        raise SubjectError("reader-raised", what, where=file.name, remedy="tell whoever wrote that reader") from None


def _onnx(file: ReadableFile) -> Reading:
    from weighbridge.formats import onnx_file

    return onnx_file.parse(file, None)[0]


def _zipped(file: ReadableFile) -> Reading:
    from weighbridge.formats import npy_file, torch_file, zip_archive

    members = zip_archive.members(file)
    if (root := torch_file.root_of(members)) is not None:
        return torch_file.parse(file, members, root)
    if members and all(name.endswith(npy_file.SUFFIX) for name in members):
        return npy_file.parse(file, members)
    keras = "model.weights.h5" in members
    what = "is a Keras model (.keras)" if keras else f"is a ZIP archive of {len(members)} members"
    what += ", not one that torch.save or numpy.savez wrote"
    raise SubjectError("checkpoint-format", what, where=file.name, remedy=SAVE if keras else _unpack(members))


def checkpoint_in(folder: Folder) -> str:
    """Return the name of the one checkpoint in a folder; refuse with `checkpoint-none` or `checkpoint-ambiguous`."""
    for index in (one for one in (*INDEXES, *TORCH_NAMES) if one.endswith(".json")):
        whole = index.removesuffix(".index.json")
        if folder.holds(index) and folder.holds(whole) and {*homes(folder.open(index)).values()} != {whole}:
            what = f"{whole} beside {index}: transformers loads the first, other loaders the shards of the second"
            remedy = "bind the one that is meant by its name, or delete the one that was left over"
            raise SubjectError("checkpoint-ambiguous", what, where=folder.name, remedy=remedy)
    indexes = [index for index in INDEXES if folder.holds(index)]
    if len(indexes) == 1:
        return indexes[0]
    found = sorted(name for name in folder.names() if name.endswith(SAFETENSORS))
    if len(found) == 1:
        if (shard := SHARD.search(found[0])) and int(shard[2]) > 1:
            what = f"{quoted(found[0])} is part {int(shard[1])} of {int(shard[2])}, and no other part is beside it"
            raise SubjectError("shard-missing", what, where=folder.name, remedy=DOWNLOAD_AGAIN)
        return found[0]
    from weighbridge.formats import gguf_file

    older = next((name for name in (METADATA, *TORCH_NAMES) if folder.holds(name)), "")
    split = [older] if older else gguf_file.wholes(folder.names())
    if older == MODEL_PARALLEL[0] and folder.holds(MODEL_PARALLEL[1]):
        what = f"{MODEL_PARALLEL[0]} and more are parts of tensors, as model parallelism cut them; no rule joins them"
        remedy = "bind the model in Hugging Face's format, or one that was saved for one device"
        raise SubjectError("checkpoint-ambiguous", what, where=folder.name, remedy=remedy)
    if not found and len(split) == 1:
        return split[0]
    raise _no_checkpoint(folder, found, [] if found else split)


def _no_checkpoint(folder: Folder, found: list[str], gguf: list[str]) -> SubjectError:
    names, several = folder.names(), found or gguf
    parts = 0 if found else sum(name.endswith(DISTCP) for name in names)
    unread = {} if several or parts else dict(_unread_in(folder))
    files = several or sorted(name for name in set(names) - unread.keys() if name.endswith(WEIGHTS))
    within = [] if files or parts or unread else _folders_with_weights(folder)
    some = files or within
    listed = ", ".join(map(quoted, some[:NAMED])) + (", …" if len(some) > NAMED else "")
    remedy = f"bind one file of it ({listed})" if files else "bind the file that holds the weights"
    remedy += ", or the folder of one checkpoint, such as a trainer's checkpoint-N; shards need their index beside them"
    if within:
        remedy = f"bind one of its folders that hold weights ({listed}); compare each with its own part"
    what = f"{len(found) or 'no'} .safetensors file{'s' if found else ''} and no {INDEX}"
    what = what if names or within else "no file lies in this folder"
    if gguf:
        what = f"{len(gguf)} .gguf checkpoints"
    elif parts:
        what = f"{parts} {DISTCP} files and no {METADATA}, which is written last"
        remedy = "bind a checkpoint whose save was finished, with one .metadata of all ranks"
    elif "steps.jsonl" in names:
        what, remedy = f"{what}; this is a run directory", "bind a checkpoint; `weighbridge inspect` shows a run"
    elif unread:
        name, first = next(iter(unread.items()))
        what = f"{what}; {quoted(name)} is {first.what}"
        files = [] if name == SAVED_MODEL else files
        remedy = f"{first.remedy}; or {remedy}" if files else first.remedy
    code = "checkpoint-ambiguous" if several else "checkpoint-none"
    return SubjectError(code, what, where=folder.name, remedy=remedy)


def homes(index: ReadableFile) -> dict[str, str]:
    """Return which file holds each tensor, as an index says; refuse what is none with `index`."""
    if index.size > MAX_INDEX:
        _refuse("index", f"the index has {index.size} bytes, more than the {MAX_INDEX} that are read", index)
    text = bytes(index.read(0, index.size))
    said = [] if b'"weight_map"' in text else [one for key, one in OTHER_JSON.items() if key in text]
    for what, remedy in said or [JSON] * (b'"weight_map"' not in text and not index.name.endswith(".index.json")):
        raise SubjectError("checkpoint-format", what, where=index.name, remedy=remedy.format(index.name))
    data = strict_json(memoryview(text), "index", index)
    named = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(named, dict) or not all(isinstance(shard, str) for shard in named.values()):
        _refuse("index", "weight_map is not a mapping of tensor names to shards", index)
    return named


def _sharded(index: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read an index and all its shards: their tensors together, the first one's metadata, and the files by name."""
    named = homes(index)
    files, tensors, readings = {index.name: index}, dict[str, Tensor](), list[Reading]()
    for shard in sorted(set(named.values())):
        if not is_plain(shard):
            _refuse("index", f"{quoted(shard)} is not a plain file name", index)
        if not folder.holds(shard):
            _refuse("shard-missing", f"the shard {quoted(shard)} is not beside the index", index)
        file = folder.open(shard)
        files[file.name] = file
        readings.append(read(file))
        for name, tensor in readings[-1].tensors.items():
            if name in tensors:
                _refuse("tensor-twice", f"{quoted(name)} is in {quoted(shard)} and in another shard", index)
            if named.get(name) != shard:
                homed = f"the index says {quoted(named[name])}" if name in named else "but not in the index"
                _refuse("shard-wrong", f"{quoted(name)} is in the shard {quoted(shard)}, {homed}", index)
            tensors[name] = tensor
    if (absent := next((name for name in named if name not in tensors), None)) is not None:
        _refuse("shard-wrong", f"the shard {quoted(named[absent])} does not hold {quoted(absent)}", index)
    forms = sorted({reading.format for reading in readings}) or ["safetensors"]
    metadata = next((reading.metadata for reading in readings if reading.metadata), {})
    checksums = tuple(checksum for reading in readings for checksum in reading.checksums)
    return Reading(format=f"{'+'.join(forms)}-sharded", tensors=tensors, metadata=metadata, checksums=checksums), files


def _refuse(code: str, what: str, index: ReadableFile) -> NoReturn:
    raise SubjectError(code, what, where=index.name, remedy=DOWNLOAD_AGAIN)


# --- Formats that are not read ----------------------------------------------------------------------------------------

BLOCK = 512  # bytes: a block of a tar archive
MAX_MEMBERS = 64  # of a tar archive, looked at for weights
MAX_FILES = 32  # of a folder
SAVED_MODEL = "saved_model.pb"  # of TensorFlow, whose other files are no checkpoints
WEIGHTS = (".safetensors", ".gguf", ".ckpt", ".pt", ".pth", ".bin", ".onnx", ".npz", ".distcp")
SAVE = "save the weights in one of these formats; safetensors is the safest"
UNPACK = "unpack it, and bind the file in it that holds the weights"
CONVERT = "bind the checkpoint that it was converted from, or {}"
EXPORT = CONVERT.format("export its weights as safetensors")
REMEDIES = {"save": SAVE, "unpack": UNPACK, "export": EXPORT, "convert": CONVERT.format("convert that to GGUF again")}
TAR = 257, b"ustar"
TABLE_END = bytes.fromhex("57fb808b247547db")  # of the index of a TensorFlow checkpoint, as of every LevelDB table


class Unread(NamedTuple):
    """What a file is that is not read, and what to do about it."""

    what: str
    remedy: str


def begins_unread(head: bytes) -> Unread | None:
    """Return what a file of these first bytes is; None where no sign is known."""
    rows = (row for row in table("formats/unread_signs") if re.match(row["begins"].encode(), head, re.DOTALL))
    return next((Unread(row["what"], REMEDIES.get(row["remedy"], row["remedy"])) for row in rows), None)


def _unread(file: ReadableFile) -> Unread | None:
    """Return what a file is that is of a known format and not read; None where it is of no such format."""
    head = bytes(file.read(0, BLOCK))
    found = begins_unread(head)
    if found and head[TAR[0] :].startswith(TAR[1]):
        return Unread(found.what, _unpack(_members(file)))
    if found is None and bytes(file.read(file.size - len(TABLE_END), file.size)) == TABLE_END:
        return Unread("the index of a TensorFlow checkpoint", SAVE)
    if found is None and re.search(r"\.data-\d{5}-of-\d{5}", file.name):
        return Unread("a part of a TensorFlow checkpoint, by its name", SAVE)
    return found


def _unpack(names: Iterable[str]) -> str:
    """Return the advice to unpack an archive, with the first member that a checkpoint may be."""
    found = next((name for name in names if name.endswith(WEIGHTS)), None)
    return UNPACK if found is None else f"unpack it, and bind {quoted(found)}"


def _unread_in(folder: Folder) -> Iterator[tuple[str, Unread]]:
    """Yield the files of a folder that are of a known format and not read, each with its name, sorted."""
    for name in sorted(folder.names())[:MAX_FILES]:
        with suppress(SubjectError):  # an empty file, or one that may not be opened
            if found := _unread(folder.open(name)):
                yield name, found


def _folders_with_weights(folder: Folder) -> list[str]:
    """Return the folders below this one that hold weights, as a pipeline's parts and a trainer's checkpoints do."""
    try:
        return sorted({name.rpartition("/")[0] for name in folder.below() if "/" in name and name.endswith(WEIGHTS)})
    except SubjectError as problem:
        if problem.code == "folder-unreadable":
            raise
        return []  # more than are looked at


def _members(file: ReadableFile) -> Iterator[str]:
    at = 0
    for _ in range(MAX_MEMBERS):
        block = bytes(file.read(at, at + BLOCK))
        size = block[124:135].strip(b" \0")
        if not re.fullmatch(rb"[0-7]+", size):  # the end, or a size that is written otherwise
            return
        yield str(block[:100].rstrip(b"\0"), "utf-8", "replace")
        at += BLOCK + -(-int(size, 8) // BLOCK) * BLOCK
