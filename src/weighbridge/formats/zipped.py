"""Tell what a ZIP archive holds, by its members, and have it read by the reader of that."""

from __future__ import annotations

from weighbridge.errors import SubjectError
from weighbridge.formats import npy_file, torch_file
from weighbridge.formats.contents import Reading
from weighbridge.storage import zip_archive
from weighbridge.storage.readable import ReadableFile


def read(file: ReadableFile) -> Reading:
    """Read a PyTorch archive, or one of NumPy arrays.

    Raises:
        SubjectError: `checkpoint-format` for any other archive, or what its reader refuses.
    """
    members = zip_archive.members(file)
    root = torch_file.root_of(members)
    if root is not None:
        return torch_file.parse(file, members, root)
    if npy_file.holds_arrays(members):
        return npy_file.parse(file, members)
    raise SubjectError(
        "checkpoint-format",
        f"is a ZIP archive of {len(members)} members, not one that torch.save or numpy.savez wrote",
        where=file.name,
        remedy="bind a file that one of them wrote, or save the weights as safetensors",
    )
