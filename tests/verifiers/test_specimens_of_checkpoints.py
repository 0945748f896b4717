"""The checkpoint specimens are what their scripts make, and small."""

from __future__ import annotations

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "verifiers" / "specimens"


def kept_in(folder: str) -> dict[str, bytes]:
    paths = [path for path in (FOLDER / folder).rglob("*") if path.is_file()]
    return {path.relative_to(FOLDER / folder).as_posix(): path.read_bytes() for path in paths}


def test_the_script_makes_the_very_files() -> None:
    made = runpy.run_path(str(FOLDER / "make_checkpoints.py"))
    files = made["good"]()
    files |= made["damaged"](files["source.safetensors"])
    assert kept_in("checkpoints") == files
    assert sum(map(len, files.values())) < 100 << 10


def test_the_script_of_further_formats_makes_the_very_files() -> None:
    made = runpy.run_path(str(FOLDER / "make_formats.py"))
    files = made["good"]() | made["damaged"]()
    assert kept_in("formats") == files
    assert sum(map(len, files.values())) < 100 << 10


def test_the_script_of_configurations_makes_the_very_files() -> None:
    made = runpy.run_path(str(FOLDER / "make_configs.py"))
    files = made["good"]() | made["damaged"]()
    assert kept_in("configs") == files
    assert sum(map(len, files.values())) < 100 << 10
