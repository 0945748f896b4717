"""Find the folder and the file that a path or URL names, on this machine or elsewhere."""

from __future__ import annotations

from weighbridge.storage.folder import Place
from weighbridge.storage.local_files import is_folder, local_path
from weighbridge.storage.local_folder import LocalFolder
from weighbridge.storage.mapped_file import MappedFile


def locate(target: str) -> Place:
    """Find the folder and open the file that a path or URL names.

    Raises:
        SubjectError: where it cannot be read here.
    """
    path = local_path(target)
    if path is None:
        from weighbridge.storage import remote_folder  # nothing of what lies elsewhere is loaded for what lies here

        return remote_folder.locate(target)
    return Place(LocalFolder(path)) if is_folder(path) else Place(LocalFolder(path.parent), MappedFile(path))
