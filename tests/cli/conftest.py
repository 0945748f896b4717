"""Run the command line in this process, as `weighbridge ARGUMENTS` would run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from weighbridge.cli import main


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Cli = Callable[..., Ended]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], workplace: Path) -> Cli:
    assert workplace.is_dir()

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["weighbridge", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Ended(int(ended.value.code or 0), captured.out, captured.err)

    return run
