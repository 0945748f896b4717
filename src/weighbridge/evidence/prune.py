"""Bundles that nothing cites and nobody needs any longer, taken out of `.weighbridge/`; no other folder is touched."""

from __future__ import annotations

import datetime as dt
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from weighbridge.core import dataclass, is_file, is_folder
from weighbridge.evidence.bundle import FOLDER, ID_SHOWN
from weighbridge.evidence.disk import STAGE, disk_errors

ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{12,64}(?![0-9a-f])")
LEFT_OUT = ("node_modules", "venv", "site-packages")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One bundle in a store: when it was finished, to the day, and what it takes on the disk."""

    path: Path
    date: dt.date
    size: int
    cited_by: str = ""


def stored(store: Path, cited: Mapping[str, str]) -> tuple[Stored, ...]:
    """List the bundles of a store, newest first; `cited` says who names an id, or its first digits."""
    known = {id_[:ID_SHOWN]: who for id_, who in cited.items()}
    named = ((FOLDER.fullmatch(path.name), path) for path in (store.iterdir() if is_folder(store) else ()))
    found = [(path.stat().st_mtime_ns, match, path) for match, path in named if match and not path.is_symlink()]
    newest = sorted(found, key=lambda item: (item[1]["date"], item[0]), reverse=True)
    bundles = []
    for _, match, path in newest:
        date, cited_by = dt.date.fromisoformat(match["date"]), known.get(match["id"], "")
        size = sum(file.stat().st_size for file in path.rglob("*") if is_file(file))
        bundles.append(Stored(path=path, date=date, size=size, cited_by=cited_by))
    return tuple(bundles)


def cited_in(root: Path) -> dict[str, str]:
    """Return every id in a Markdown file below a folder, and in which it stands; folders with a dot are left out."""
    found: dict[str, str] = {}
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if not name.startswith(".") and name not in LEFT_OUT]
        for path in (Path(folder, name) for name in names if name.endswith(".md")):
            text = path.read_text("utf-8", errors="replace") if is_file(path) else ""
            found |= dict.fromkeys(ID.findall(text), str(path.relative_to(root)))
    return found


def remove(bundle: Stored) -> None:
    """Remove a bundle in one step; what a crash leaves is no bundle, and the next writer there clears it away."""
    with disk_errors("the removal of the bundle", bundle.path):
        shutil.rmtree(bundle.path.rename(bundle.path.with_name(f"{STAGE}{secrets.token_hex(8)}")))
