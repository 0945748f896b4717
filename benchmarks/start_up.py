"""CPU time of starting up, each beside a peer in the same round: the best of all rounds of both, as a ratio."""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from weighbridge.data import data_path

ROUNDS = 15
PASS, NUMPY = "pass", "import numpy"
BUDGET = {"--version": (8, PASS), "lint": (16, PASS), "compare": (2, NUMPY)}


def cpu_seconds(*arguments: str) -> float:
    """Run a Python process and return its user and system time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    contracts = sorted(str(path) for path in data_path("contracts").glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        header = b'{"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
        paths = [Path(folder, name) for name in ("a.safetensors", "b.safetensors")]
        for path in paths:
            path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<8f", *range(1, 9)))
        commands: dict[str, tuple[str, ...]] = {name: ("-c", name) for name in (PASS, NUMPY)}
        arguments = {"--version": (), "lint": contracts, "compare": map(str, paths)}
        commands |= {name: ("-m", "weighbridge", name, *more) for name, more in arguments.items()}
        for command in commands.values():
            cpu_seconds(*command)  # so that bytecode and page cache are warm, as at any second start
        rounds = [{name: cpu_seconds(*command) for name, command in commands.items()} for _ in range(ROUNDS)]
    best = {name: min(times[name] for times in rounds) for name in commands}
    for name, (most, peer) in BUDGET.items():
        print(f"{name:<10} {best[name] / best[peer]:5.2f} × python -c '{peer}' (budget {most})")


if __name__ == "__main__":
    main()
