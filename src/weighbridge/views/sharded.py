"""Read a checkpoint in shards: its index must agree with what the shards hold, name by name.

A shard's name in an index is untrusted: only a plain file name beside the index is ever opened.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from weighbridge.errors import SubjectError
from weighbridge.files import exists
from weighbridge.views import dcp_metadata, formats
from weighbridge.views.mapped_file import MappedFile
from weighbridge.views.reading import Reading
from weighbridge.views.strict_json import strict_json
from weighbridge.views.tensor import Tensor, quoted

INDEX = "model.safetensors.index.json"
TORCH_NAMES = "pytorch_model.bin.index.json", "pytorch_model.bin"
MAX_INDEX = 32 << 20
DOWNLOAD_AGAIN = "fetch the whole directory again, index and shards of one revision"


def checkpoint_in(directory: Path) -> Path:
    """Find the one checkpoint in a directory: an index or the only safetensors file, else the first of PyTorch's names.

    Raises:
        SubjectError: `checkpoint-none` or `checkpoint-ambiguous`.
    """
    if exists(directory / INDEX):
        return directory / INDEX
    found = sorted(directory.glob("*.safetensors"))
    if len(found) == 1:
        return found[0]
    older = next((name for name in (dcp_metadata.NAME, *TORCH_NAMES) if exists(directory / name)), "")
    if older and not found:
        return directory / older
    raise _no_checkpoint(directory, len(found))


def _no_checkpoint(directory: Path, files: int) -> SubjectError:
    """Say why a directory with so many safetensors files has no one checkpoint."""
    code = "checkpoint-ambiguous" if files else "checkpoint-none"
    what = f"{files} .safetensors files and no {INDEX}" if files else f"no .safetensors file and no {INDEX}"
    remedy = "bind the file itself, or write the index beside it"
    parts = 0 if files else sum(1 for _ in directory.glob(f"*{dcp_metadata.SUFFIX}"))
    if parts:
        what = f"{parts} {dcp_metadata.SUFFIX} files and no {dcp_metadata.NAME}, which is written last"
        remedy = "bind a checkpoint whose save was finished, with one .metadata of all ranks"
    return SubjectError(code, what, where=str(directory), remedy=remedy)


def parse(index: MappedFile, directory: Path) -> tuple[Reading, dict[str, MappedFile]]:
    """Read an index and all its shards: their tensors together, the first one's metadata, and the files by name.

    Raises:
        SubjectError: `index`, `shard-missing`, `shard-wrong` or `tensor-twice`, or what the shard's own header gives.
    """
    homes = _weight_map(index)
    files, tensors, readings = {index.name: index}, dict[str, Tensor](), list[Reading]()
    for shard in sorted(set(homes.values())):
        file = _shard(shard, directory, index)
        files[file.name] = file
        readings.append(formats.read(file))
        for name, tensor in readings[-1].tensors.items():
            _require_home(name, shard, homes, tensors, index)
            tensors[name] = tensor
    absent = next((name for name in homes if name not in tensors), None)
    if absent is not None:
        _refuse("shard-wrong", f"the shard {quoted(homes[absent])} does not hold {quoted(absent)}", index)
    return _together(readings, tensors), files


def _together(readings: Sequence[Reading], tensors: dict[str, Tensor]) -> Reading:
    forms = sorted({reading.format for reading in readings}) or ["safetensors"]
    return Reading(
        format=f"{'+'.join(forms)}-sharded",
        tensors=tensors,
        metadata=next((reading.metadata for reading in readings if reading.metadata), {}),
        checksums=tuple(checksum for reading in readings for checksum in reading.checksums),
    )


def _require_home(
    name: str, shard: str, homes: Mapping[str, str], seen: Mapping[str, Tensor], index: MappedFile
) -> None:
    if name in seen:
        _refuse("tensor-twice", f"{quoted(name)} is in {quoted(shard)} and in another shard", index)
    if name not in homes:
        _refuse("shard-wrong", f"{quoted(name)} is in the shard {quoted(shard)}, but not in the index", index)
    if homes[name] != shard:
        what = f"{quoted(name)} is in the shard {quoted(shard)}, the index says {quoted(homes[name])}"
        _refuse("shard-wrong", what, index)


def _weight_map(index: MappedFile) -> dict[str, str]:
    if index.size > MAX_INDEX:
        _refuse("index", f"the index has {index.size} bytes, more than the {MAX_INDEX} that are read", index)
    data = strict_json(index.read(0, index.size), "index", index)
    homes = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(homes, dict) or not all(isinstance(shard, str) for shard in homes.values()):
        _refuse("index", "weight_map is not a mapping of tensor names to shards", index)
    return homes


def _shard(name: str, directory: Path, index: MappedFile) -> MappedFile:
    if name in ("", ".", "..") or any(sign in name for sign in "/\\\0"):
        _refuse("index", f"{quoted(name)} is not a plain file name", index)
    if not exists(directory / name):
        _refuse("shard-missing", f"the shard {quoted(name)} is not beside the index", index)
    return MappedFile(directory / name)


def _refuse(code: str, what: str, index: MappedFile) -> NoReturn:
    raise SubjectError(code, what, where=index.name, remedy=DOWNLOAD_AGAIN)
