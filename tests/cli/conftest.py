"""Run the command line in this process, as `weighbridge ARGUMENTS` would run."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
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


@pytest.fixture
def as_anybody() -> Iterator[None]:
    """Take from root what the modes of files forbid others, in this thread and those that it starts."""
    if os.geteuid():
        yield
        return
    libc = ctypes.CDLL(None)
    header, data = (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    before = data[0]
    data[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, data) == 0
    yield
    data[0] = before
    assert libc.capset(header, data) == 0
