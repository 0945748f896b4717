"""The project that a command is run in: where it begins, and `.weighbridge/` there, for what nobody commits."""

import contextlib
import os
from pathlib import Path

from weighbridge.core.local_files import exists, local_path

LOCAL = ".weighbridge"
MARKS = ((".git",), ("weighbridge.toml", "pyproject.toml"))  # a linked worktree's `.git` is a file


def root(here: Path) -> Path:
    """Return the top level of the repository around a folder, else the nearest folder with a configuration, else it."""
    here = here.absolute()
    around = ((folder, marks) for marks in MARKS for folder in (here, *here.parents))
    return next((folder for folder, marks in around if any(exists(folder / mark) for mark in marks)), here)


def in_project(target: str) -> str:
    """Return a path, or `PATH:FUNCTION`, as it is from the project's root; one outside that is absolute, as it is."""
    head, colon, name = target.rpartition(":") if not exists(Path(target)) else (target, "", "")
    path = local_path(head)
    if not head or path is None or not exists(path):
        return target
    found = os.path.relpath(path.absolute(), root(Path()))
    outside = path.is_absolute() and found.startswith("..")
    return target if outside else f"{Path(found).as_posix()}{colon}{name}"


def local() -> Path:
    """Return `.weighbridge` at the project's root, as it is named from where the command runs."""
    return Path(os.path.relpath(root(Path()) / LOCAL))


def make_local(folder: Path) -> None:
    """Make a folder that git leaves alone, whatever its `.gitignore` says; an OSError if the disk refuses."""
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
        file.write("*\n")
