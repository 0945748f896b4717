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
    _require_little(file, members, root)
    pickle = members[root + PICKLE]
    zip_archive.content(file, pickle, MAX_PICKLE)
    described, behind = read_pickle(file, pickle.start, pickle.stop, torch_pickle.VOCABULARY)
    if behind != pickle.stop:
        refuse("trailing", f"{pickle.stop - behind} bytes follow the pickle in {quoted(pickle.name)}", file, behind)

    def find(key: str) -> Storage | None:
        member = members.get(f"{root}{DATA}{key}")
        return None if member is None else Storage(member.start, member.nbytes)

    tensors, metadata = torch_pickle.tensors_of(described, file, find)
    _require_read({root + DATA + told.key for told in torch_pickle.references(described, file)}, members, root, file)
    return Reading(format="torch", tensors=tensors, metadata=metadata, checksums=zip_archive.checksums(file, members))


def _require_little(file: ReadableFile, members: dict[str, Member], root: str) -> None:
    if root + BYTE_ORDER not in members:
        return
    order = bytes(zip_archive.content(file, members[root + BYTE_ORDER], 64))
    if order != LITTLE:
        what = f"its byte order is {quoted(order.decode('ascii', 'backslashreplace'))}, not 'little'"
        refuse("byteorder", what, file, members[root + BYTE_ORDER].start)


def _require_read(known: set[str], members: dict[str, Member], root: str, file: ReadableFile) -> None:
    """Require that every storage in the archive is one that the pickle refers to."""
    unread = next((name for name in members if name.startswith(root + DATA) and name not in known), None)
    if unread is not None:
        refuse("unread", f"no tensor looks into the storage {quoted(unread)}", file, members[unread].start)


def refuse(code: str, what: str, file: ReadableFile, at: int = 0) -> NoReturn:
    """Refuse a PyTorch file, naming the byte.

    Raises:
        SubjectError: `torch-…`.
    """
    raise SubjectError(f"torch-{code}", what, where=f"{file.name} at byte {at}", remedy=SAVE_AGAIN)
