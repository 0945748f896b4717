"""CPU time of starting up: `--version` and `lint` of the starter contracts, as multiples of `python -c pass`."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

from weighbridge.data import data_path

ROUNDS = 15
BUDGET = {"--version": 8, "lint": 16}


def cpu_seconds(*arguments: str) -> float:
    """Run a Python process and give its user and system time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    contracts = sorted(str(path) for path in data_path("contracts").glob("*.yaml"))
    commands = {"--version": ("-m", "weighbridge", "--version"), "lint": ("-m", "weighbridge", "lint", *contracts)}
    for command in commands.values():
        cpu_seconds(*command)  # so that bytecode and page cache are warm, as at any second start
    rounds = [
        (cpu_seconds("-c", "pass"), {name: cpu_seconds(*command) for name, command in commands.items()})
        for _ in range(ROUNDS)
    ]
    for name in commands:
        ratio = statistics.median(times[name] / bare for bare, times in rounds)
        print(f"{name:<10} {ratio:5.1f} × python -c pass (budget {BUDGET[name]})")


if __name__ == "__main__":
    main()
