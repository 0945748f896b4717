"""Write distributed checkpoints of PyTorch byte by byte, the damaged ones too, which no library would write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from verifiers.specimens.make_formats import Raw, View, called, named, opcodes, pickled, torch_zip

PLACE = "torch.distributed.checkpoint"
WORDS = {"BF16": (2, "BFloat16", "bfloat16"), "F32": (4, "Float", "float32"), "U8": (1, "Byte", "uint8")}


def new(name: str, state: Any) -> Raw:
    """Make an object of a class, and set its state."""
    return Raw(named(name).opcodes + b")\x81" + opcodes(state) + b"b")


def size(*values: Any) -> Raw:
    return called("torch.Size", tuple(values))


def filled(pairs: Sequence[tuple[Any, Any]]) -> Raw:
    """Make a dictionary whose keys no Python dictionary of this process could hold."""
    return Raw(b"}(" + b"".join(opcodes(part) for pair in pairs for part in pair) + b"u")


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece of a tensor as the metadata describes it, and the item that holds it."""

    at: Sequence[Any]
    sizes: Sequence[Any]
    data: bytes
    file: str = "__0_0.distcp"
    steps: Sequence[int] | None = None


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A tensor, or with no dtype something else that was saved as bytes."""

    dtype: str = ""
    shape: Sequence[Any] = ()
    chunks: Sequence[Chunk] = ()


Pairs: TypeAlias = list[tuple[Any, Any]]


@dataclass(frozen=True, kw_only=True)
class Damage:
    """What to write instead of an item's bytes, of fields of where it lies, of the places, and of the descriptions."""

    item: Callable[[bytes], bytes] = field(default=lambda data: data)
    fields: Mapping[str, Any] = field(default_factory=dict)
    entries: Callable[[Pairs], Pairs] = field(default=lambda entries: entries)
    tensors: Callable[[Pairs], Pairs] = field(default=lambda tensors: tensors)


NONE = Damage()


def archived(saved: Saved, chunk: Chunk) -> bytes:
    """Write an item as torch.save does."""
    width, storage, _ = WORDS[saved.dtype]
    steps = chunk.steps if chunk.steps is not None else contiguous(chunk.sizes)
    view = View(storage, "0", len(chunk.data) // width, chunk.sizes, steps)
    return torch_zip(view, {"0": chunk.data})


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1]
    for one in shape[:0:-1]:
        steps.append(steps[-1] * one)
    return tuple(reversed(steps))[: len(shape)]


def write(folder: Path, saved: Mapping[str, Saved], damage: Damage = NONE) -> Path:
    """Write `.metadata` and the .distcp files into a new folder."""
    folder.mkdir()
    files: dict[str, bytes] = {}
    entries = []
    for name, tensor in saved.items():
        for chunk in tensor.chunks if tensor.dtype else [Chunk(at=(), sizes=(), data=b"")]:
            data = damage.item(archived(tensor, chunk)) if tensor.dtype else torch_zip({"any": 1}, {})
            before = files.get(chunk.file, b"")
            offset = size(*chunk.at) if tensor.dtype else None
            entries.append((index(name, offset), storage(chunk.file, len(before), len(data), damage.fields)))
            files[chunk.file] = before + data
    tensors = [(name, described(tensor) if tensor.dtype else bytes_of()) for name, tensor in saved.items()]
    (folder / ".metadata").write_bytes(metadata(damage.tensors(tensors), damage.entries(entries)))
    for file, data in files.items():
        if "/" not in file:
            (folder / file).write_bytes(data)
    return folder


def metadata(tensors: Sequence[tuple[Any, Any]], entries: Sequence[tuple[Any, Any]]) -> bytes:
    state = {"state_dict_metadata": filled(tensors), "planner_data": None, "storage_data": filled(entries)}
    return pickled(new(f"{PLACE}.metadata.Metadata", {**state, "storage_meta": None, "version": "1.0.0"}))


def index(name: Any, offset: Any) -> Raw:
    return new(f"{PLACE}.metadata.MetadataIndex", {"fqn": name, "index": 0, "offset": offset})


def storage(path: str, offset: int, length: int, changes: Mapping[str, Any]) -> Raw:
    printed = {"relative_path": path, "offset": offset, "length": length, **changes}
    return new(f"{PLACE}.filesystem._StorageInfo", printed)


def bytes_of() -> Raw:
    return Raw(named(f"{PLACE}.metadata.BytesStorageMetadata").opcodes + b")\x81")


def described(saved: Saved) -> Raw:
    properties = named(f"torch.{WORDS[saved.dtype][2]}"), None, False, None, False
    chunks = [chunk_of(chunk.at, chunk.sizes) for chunk in saved.chunks]
    return tensor_of(new(f"{PLACE}.metadata.TensorProperties", properties), size(*saved.shape), chunks)


def tensor_of(properties: Any, shape: Any, chunks: Any) -> Raw:
    return new(f"{PLACE}.metadata.TensorStorageMetadata", {"properties": properties, "size": shape, "chunks": chunks})


def chunk_of(at: Sequence[Any], sizes: Sequence[Any]) -> Raw:
    return new(f"{PLACE}.metadata.ChunkStorageMetadata", {"offsets": size(*at), "sizes": size(*sizes)})
