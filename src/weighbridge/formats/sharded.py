"""Read a checkpoint in shards: its index must agree with what the shards hold, name by name.

A shard's name in an index is untrusted: only a plain file name beside the index is ever opened.
"""

from __future__ import annotations

from typing import NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats import dcp_metadata, detect
from weighbridge.formats.contents import Reading
from weighbridge.formats.strict_json import strict_json
from weighbridge.formats.tensor import Tensor, quoted
from weighbridge.storage.folder import INDEX, TORCH_NAMES, Folder, is_plain
from weighbridge.storage.readable import ReadableFile

MAX_INDEX = 32 << 20
DOWNLOAD_AGAIN = "fetch the whole directory again, index and shards of one revision"


def checkpoint_in(folder: Folder) -> str:
    """Find the one checkpoint in a folder: an index or the only safetensors file, else what was usual before those.

    Raises:
        SubjectError: `checkpoint-none` or `checkpoint-ambiguous`.
    """
    if folder.holds(INDEX):
        return INDEX
    found = sorted(name for name in folder.names() if name.endswith(".safetensors"))
    if len(found) == 1:
        return found[0]
    older = next((name for name in (dcp_metadata.NAME, *TORCH_NAMES) if folder.holds(name)), "")
    if older and not found:
        return older
    code = "checkpoint-ambiguous" if found else "checkpoint-none"
    what = f"{len(found) or 'no'} .safetensors file{'s' if found else ''} and no {INDEX}"
    remedy = "bind the file itself, or write the index beside it"
    parts = 0 if found else sum(name.endswith(dcp_metadata.SUFFIX) for name in folder.names())
    if parts:
        what = f"{parts} {dcp_metadata.SUFFIX} files and no {dcp_metadata.NAME}, which is written last"
        remedy = "bind a checkpoint whose save was finished, with one .metadata of all ranks"
    raise SubjectError(code, what, where=folder.name, remedy=remedy)


def parse(index: ReadableFile, folder: Folder) -> tuple[Reading, dict[str, ReadableFile]]:
    """Read an index and all its shards: their tensors together, the first one's metadata, and the files by name.

    Raises:
        SubjectError: `index`, `shard-missing`, `shard-wrong` or `tensor-twice`, or what the shard's own header gives.
    """
    homes = _weight_map(index)
    files, tensors, readings = {index.name: index}, dict[str, Tensor](), list[Reading]()
    for shard in sorted(set(homes.values())):
        if not is_plain(shard):
            _refuse("index", f"{quoted(shard)} is not a plain file name", index)
        if not folder.holds(shard):
            _refuse("shard-missing", f"the shard {quoted(shard)} is not beside the index", index)
        file = folder.open(shard)
        files[file.name] = file
        readings.append(detect.read(file))
        for name, tensor in readings[-1].tensors.items():
            if name in tensors:
                _refuse("tensor-twice", f"{quoted(name)} is in {quoted(shard)} and in another shard", index)
            if homes.get(name) != shard:
                told = f"the index says {quoted(homes[name])}" if name in homes else "but not in the index"
                _refuse("shard-wrong", f"{quoted(name)} is in the shard {quoted(shard)}, {told}", index)
            tensors[name] = tensor
    absent = next((name for name in homes if name not in tensors), None)
    if absent is not None:
        _refuse("shard-wrong", f"the shard {quoted(homes[absent])} does not hold {quoted(absent)}", index)
    forms = sorted({reading.format for reading in readings}) or ["safetensors"]
    metadata = next((reading.metadata for reading in readings if reading.metadata), {})
    checksums = tuple(checksum for reading in readings for checksum in reading.checksums)
    form = f"{'+'.join(forms)}-sharded"
    return Reading(format=form, tensors=tensors, metadata=metadata, checksums=checksums), files


def _weight_map(index: ReadableFile) -> dict[str, str]:
    if index.size > MAX_INDEX:
        _refuse("index", f"the index has {index.size} bytes, more than the {MAX_INDEX} that are read", index)
    data = strict_json(index.read(0, index.size), "index", index)
    homes = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(homes, dict) or not all(isinstance(shard, str) for shard in homes.values()):
        _refuse("index", "weight_map is not a mapping of tensor names to shards", index)
    return homes


def _refuse(code: str, what: str, index: ReadableFile) -> NoReturn:
    raise SubjectError(code, what, where=index.name, remedy=DOWNLOAD_AGAIN)
