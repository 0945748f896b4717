"""What works where the system has nothing of POSIX: played here by taking it away, for no other system is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from weighbridge.core.data import data_path

SPECIMENS = data_path("verifiers") / "specimens"
SOURCE, IMPORT = (SPECIMENS / "checkpoints" / name for name in ("source.safetensors", "import.gguf"))
# What Windows does not have is taken from the modules that weighbridge finds; the standard library has its own by now.
WITHOUT = """
import asyncio, ctypes, getpass, mmap, os, shutil, signal, subprocess, sys, tempfile, threading, uuid
import numpy
for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_NOFOLLOW", "O_DIRECTORY", "killpg", "setsid", "fork", "getuid"):
    delattr(os, name)
for name in [name for name in dir(mmap) if name.startswith(("MADV_", "PROT_", "MAP_"))]:
    delattr(mmap, name)
del signal.SIGKILL
sys.modules["fcntl"] = sys.modules["resource"] = sys.modules["pwd"] = None
from pathlib import Path
from weighbridge.verifiers import descendants
descendants.PROC = Path("no-proc")
from weighbridge.cli import main
main()
"""


def run(*words: object, cwd: Path) -> tuple[int, str]:
    argv = (sys.executable, "-W", "ignore", "-c", WITHOUT, *map(str, words))
    ended = subprocess.run(argv, cwd=cwd, check=False, capture_output=True, text=True, env=os.environ)
    assert "Traceback" not in ended.stderr
    assert "internal:" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.slow
def test_without_posix_checkpoints_and_runs_are_verified_sealed_recorded_and_judged_again(tmp_path: Path) -> None:
    assert run("lint", cwd=tmp_path)[0] == 0
    assert run("compare", SOURCE, IMPORT, cwd=tmp_path)[0] == 0
    bound = ("--subject", f"source={SOURCE}", "--subject", f"import={IMPORT}")
    assert run("verify", "builtin:checkpoint-import", *bound, "--record", cwd=tmp_path)[0] == 0
    (bundle,) = (tmp_path / "evidence" / "bundles").iterdir()
    assert run("evidence", "verify", bundle, "--require-pass", "--require-anchor", cwd=tmp_path)[0] == 0
    assert run("ledger", "check", cwd=tmp_path)[0] == 0
    wrapped = ("--subject", f"run={SPECIMENS / 'runs' / 'wrapped'}")
    code, told = run("verify", "builtin:training-run", *wrapped, cwd=tmp_path)
    assert (code, "2 blocked, 29 not applicable, 8 passed of 39" in told) == (3, True)


@pytest.mark.slow
def test_without_posix_a_link_in_a_bundle_is_still_refused(tmp_path: Path) -> None:
    health = ("builtin:checkpoint-health", "--subject", f"checkpoint={SOURCE}")
    run("verify", *health, cwd=tmp_path)
    (bundle,) = (tmp_path / ".weighbridge" / "bundles").iterdir()
    (bundle / "verdicts.json").rename(tmp_path / "verdicts.json")
    (bundle / "verdicts.json").symlink_to(tmp_path / "verdicts.json")
    code, told = run("evidence", "verify", bundle, cwd=tmp_path)
    assert (code, "is a symbolic link" in told or "not-regular" in told) == (1, True), told


@pytest.mark.slow
def test_without_linux_a_gate_over_a_command_is_blocked_and_nothing_is_run(tmp_path: Path) -> None:
    program = f"{sys.executable} -c \"open('{tmp_path}/ran', 'w')\""
    code, told = run(
        "verify", "builtin:pretraining", "--gate", "GATE-GPUTRAIN-002", "--json",
        "--subject", f"refusal={program}", cwd=tmp_path,
    )  # fmt: skip
    (finding,) = json.loads(told)[0]["findings"]
    assert (code, finding["outcome"]) == (3, "BLOCKED")
    assert "only be found on Linux" in told
    assert not (tmp_path / "ran").exists()
