"""Read a PyTorch file as torch.save has written it since 1.6: a ZIP archive of one pickle and the storages.

Storages are mapped where they lie. The pickle is read as data by `pickle_machine`; torch is never imported.
"""

from __future__ import annotations

from typing import NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats import torch_pickle
from weighbridge.formats.contents import Reading
from weighbridge.formats.pickle_machine import MAX_PICKLE, SAVE_AGAIN, read_pickle
from weighbridge.formats.tensor import quoted
from weighbridge.formats.torch_pickle import Storage
from weighbridge.storage import zip_archive
from weighbridge.storage.readable import ReadableFile
from weighbridge.storage.zip_archive import Member

PICKLE, CONSTANTS, BYTE_ORDER, DATA = "data.pkl", "constants.pkl", "byteorder", "data/"
LITTLE = b"little"


def root_of(members: dict[str, Member]) -> str | None:
    """Find the folder, with its slash, that holds the one pickle of a PyTorch archive; None where there is none."""
    roots = {name.removesuffix(PICKLE) for name in members if name == PICKLE or name.endswith("/" + PICKLE)}
    outer = [root for root in roots if root.count("/") <= 1]
    return outer[0] if len(outer) == 1 else None


def parse(file: ReadableFile, members: dict[str, Member], root: str) -> Reading:
    """Read the tensors by dotted name, and the scalars beside them.

    Raises:
        SubjectError: `torch-…`, `pickle-…` or `zip-…` with the place and the reason.
    """
    if root + CONSTANTS in members:
        refuse("script", "is a TorchScript program, whose classes are code", file)
    if (order := members.get(root + BYTE_ORDER)) is not None:
        told = bytes(zip_archive.content(file, order, 64))
        if told != LITTLE:
            shown = quoted(told.decode("ascii", "backslashreplace"))
            refuse("byteorder", f"its byte order is {shown}, not 'little'", file, order.start)
    pickle = members[root + PICKLE]
    zip_archive.content(file, pickle, MAX_PICKLE)
    described, behind = read_pickle(file, pickle.start, pickle.stop, torch_pickle.VOCABULARY)
    if behind != pickle.stop:
        refuse("trailing", f"{pickle.stop - behind} bytes follow the pickle in {quoted(pickle.name)}", file, behind)
    data = root + DATA
    storages = {
        name.removeprefix(data): Storage(member.start, member.nbytes)
        for name, member in members.items()
        if name.startswith(data)
    }
    tensors, metadata = torch_pickle.tensors_of(described, file, storages)
    known = {told.key for told in torch_pickle.references(described, file)}
    unread = next((key for key in storages if key not in known), None)
    if unread is not None:
        what = f"no tensor looks into the storage {quoted(data + unread)}"
        refuse("unread", what, file, storages[unread].start)
    return Reading(format="torch", tensors=tensors, metadata=metadata, checksums=zip_archive.checksums(file, members))


def refuse(code: str, what: str, file: ReadableFile, at: int = 0) -> NoReturn:
    """Refuse a PyTorch file with `torch-…` and the byte."""
    raise SubjectError(f"torch-{code}", what, where=f"{file.name} at byte {at}", remedy=SAVE_AGAIN)
