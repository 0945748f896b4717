"""Find the folders that ship with the tool: starter contracts, the cards, the glossary, and templates."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from weighbridge.core.errors import WeighbridgeError

FOLDERS: Final = ("contracts", "gates", "verifiers", "words", "templates")


def data_path(folder: str) -> Path:
    """Find a shipped folder: in the package where it is installed, in the checkout where it is not.

    Raises:
        WeighbridgeError: `installation` when it is in neither.
    """
    assert folder in FOLDERS
    package = Path(__file__).resolve().parents[1]
    for path in (package / "data" / folder, package.parents[1] / folder):
        if path.is_dir():
            return path
    raise WeighbridgeError(
        "installation",
        f"the folder {folder!r} that ships with weighbridge is missing",
        where=str(package / "data"),
        remedy="install weighbridge again",
    )
