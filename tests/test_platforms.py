"""What works where the system has nothing of POSIX: played here by taking it away, for no other system is at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import weighbridge
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
from weighbridge.verifiers import command_outcome
command_outcome.PROC = Path("no-proc")
from weighbridge.cli import main
import json
ended = []
for words in json.loads(sys.argv[1]):
    sys.argv[1:] = words
    try:
        main()
    except SystemExit as one:
        ended.append(one.code or 0)
        print("\\0", flush=True)
print(json.dumps(ended))
"""


def run(*commands: Sequence[object], cwd: Path) -> tuple[list[int], list[str], str]:
    """Return the exit codes of commands of one process, what each wrote, and all that was written to standard error."""
    typed = json.dumps([[str(word) for word in words] for words in commands])
    argv = (sys.executable, "-W", "ignore", "-c", WITHOUT, typed)
    ended = subprocess.run(argv, cwd=cwd, check=False, capture_output=True, text=True, env=os.environ)
    assert "Traceback" not in ended.stderr
    assert "internal:" not in ended.stderr, ended.stderr
    *out, codes = ended.stdout.split("\0\n")
    return json.loads(codes), out, ended.stderr


@pytest.mark.slow
def test_without_posix_checkpoints_and_runs_are_verified_sealed_recorded_and_judged_again(tmp_path: Path) -> None:
    bound = ("--subject", f"source={SOURCE}", "--subject", f"import={IMPORT}")
    verify = ("verify", "builtin:checkpoint-import", *bound, "--record")
    assert run(("lint", "builtin:checkpoint-import"), ("compare", SOURCE, IMPORT), verify, cwd=tmp_path)[0] == [0, 0, 0]
    (bundle,) = (tmp_path / "evidence" / "bundles").iterdir()
    again = ("evidence", "verify", bundle, "--require-pass", "--require-anchor")
    training = ("verify", "builtin:training-run", "--subject", f"run={SPECIMENS / 'runs' / 'wrapped'}")
    codes, printed, _ = run(again, ("ledger", "check"), training, cwd=tmp_path)
    assert (codes, "2 blocked (1 as advice), 39 not applicable, 10 passed of 51" in printed[-1]) == ([0, 0, 3], True)


@pytest.mark.slow
def test_without_posix_a_link_in_a_bundle_is_still_refused(tmp_path: Path) -> None:
    weighbridge.verify("builtin:checkpoint-health", subjects={"checkpoint": SOURCE}, evidence=tmp_path / "evidence")
    (bundle,) = (tmp_path / "evidence" / "bundles").iterdir()
    (bundle / "verdicts.json").rename(tmp_path / "verdicts.json")
    (bundle / "verdicts.json").symlink_to(tmp_path / "verdicts.json")
    codes, (printed,), said = run(("evidence", "verify", bundle), cwd=tmp_path)
    assert (codes, "is a symbolic link" in printed + said or "not-regular" in printed + said) == ([1], True), (
        printed + said
    )


@pytest.mark.slow
def test_without_linux_a_gate_over_a_command_is_blocked_and_nothing_is_run(tmp_path: Path) -> None:
    program = f"{sys.executable} -c \"open('{tmp_path}/ran', 'w')\""
    gate = ("--gate", "GATE-GPUTRAIN-002", "--json", "--subject", f"refusal={program}")
    codes, (printed,), _ = run(("verify", "builtin:pretraining", *gate), cwd=tmp_path)
    (finding,) = json.loads(printed)[0]["findings"]
    assert (codes, finding["outcome"]) == ([3], "BLOCKED")
    assert "only be found on Linux" in printed
    assert not (tmp_path / "ran").exists()
