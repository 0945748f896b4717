"""Real processes under a real witness, and what its book says of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TRAINER = (sys.executable, str(Path(__file__).with_name("trainer.py")))
PATHS = {"PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")))}


@dataclass(frozen=True)
class Watched:
    """One run under the witness: how it ended, what it printed, and where it lies."""

    code: int
    out: str
    err: str
    run: Path

    @property
    def book(self) -> list[dict[str, Any]]:
        text = self.run.with_name(f"{self.run.name}.watch").joinpath("book.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def lines(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.book if line["kind"] == kind]

    def rows(self, rank: str = "") -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.run / rank / "steps.jsonl").read_text().splitlines()]

    @property
    def sealed(self) -> bool:
        return self.run.with_name(f"{self.run.name}.watch").joinpath("seal").exists()


Watch = Callable[..., Watched]
Words = tuple[str, ...]


def stopping(run: Path, *command: str, grace: float = 10, stop_at: str = "first", resume: bool = False) -> list[str]:
    more = ["--resume"] * resume
    words = (sys.executable, "-m", "tests.watch.stopping", run, grace, stop_at, *more, "--", *command)
    return list(map(str, words))


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    """Run a command under the witness with the judge of `stopping.py`; by default the trainer with these options."""

    def run(*options: str, command: Words = (), under: Words = (), env: Any = None, **more: Any) -> Watched:
        at = tmp_path / "run"
        words = [*under, *stopping(at, *(command or (*TRAINER, str(at), *options)), **more)]
        done = subprocess.run(
            words, check=False, cwd=tmp_path, env={**os.environ, **PATHS, **(env or {})}, capture_output=True, text=True
        )
        return Watched(done.returncode, done.stdout, done.stderr, at)

    return run
