"""The checkpoint specimens are what their script makes, and small."""

from __future__ import annotations

import runpy
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "verifiers" / "specimens"


def test_the_script_makes_the_very_files() -> None:
    made = runpy.run_path(str(FOLDER / "make_checkpoints.py"))
    files = made["good"]()
    files |= made["damaged"](files["source.safetensors"])
    kept = {path.relative_to(FOLDER / "checkpoints").as_posix(): path.read_bytes()
            for path in (FOLDER / "checkpoints").rglob("*") if path.is_file()}  # fmt: skip
    assert kept == files
    assert sum(map(len, kept.values())) < 100 << 10
