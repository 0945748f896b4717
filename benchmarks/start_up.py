"""CPU time of starting up, each beside a peer in the same round: the best of all rounds of both, as a ratio.

`lint` and `verify` are of one contract that ships with the tool, where nothing was recorded yet; all six contracts, and
those of this checkout beside its ledger, are told without a budget. Whoever looks at tensors loads NumPy: beside `lint`
that is the floor of `verify`, told beside it, with NumPy as the tool loads it, without threads of its BLAS.
"""

from __future__ import annotations

import os
import resource
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from weighbridge.core.data import data_path

ROUNDS = 15
ROOT = Path(__file__).resolve().parents[1]
PASS, NUMPY = "pass", "import numpy"
ALONE = "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'; import numpy"
MAIN = "import sys; sys.argv[0] = 'weighbridge'; from weighbridge.__main__ import main; main()"  # as installed
SUBJECT = data_path("verifiers") / "specimens" / "checkpoints" / "source.safetensors"
CONVERTED = ROOT / "tests" / "cli" / "llama-by-the-converter"
# What is held to how many times its peer.
BUDGET = {
    "--version": (5.0, PASS), "lint": (10.0, PASS), "lint of six": (None, PASS), "lint by the ledger": (None, PASS),
    "compare": (2.0, NUMPY), "compare with GGUF": (3.0, NUMPY), "verify": (2.0, "lint"), "verify a log": (None, "lint"),
    "pytest": (1.02, "pytest without"),
}  # fmt: skip


def cpu_seconds(*arguments: str, cwd: str) -> float:
    """Run a Python process and return its user and system time; a gate that is blocked has run, too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, *arguments], cwd=cwd, check=False, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 3), arguments
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def commands(folder: Path) -> dict[str, tuple[str, ...]]:
    """Return what is timed: the arguments of Python, by name; writes the files that they read."""
    header = b'{"w":{"dtype":"F32","shape":[8],"data_offsets":[0,32]}}'
    paths = [folder / name for name in ("a.safetensors", "b.safetensors")]
    for path in paths:
        path.write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<8f", *range(1, 9)))
    (folder / "test_nothing.py").write_text("def test_nothing(): pass\n")
    log = folder / "log.jsonl"
    log.write_text("".join(f'{{"step": {n}, "loss": {5 / n**0.3 + 0.01 * (n * 37 % 11)}}}\n' for n in range(1, 201)))
    six = sorted(str(path) for path in data_path("contracts").glob("*.yaml"))
    health, ledger = "builtin:checkpoint-health", str(ROOT / "evidence" / "ledger")
    ours = {
        "--version": ("--version",),
        "lint": ("lint", health),
        "lint of six": ("lint", *six),
        "lint by the ledger": ("lint", *six, "--ledger", ledger),
        "compare": ("compare", *map(str, paths)),
        "compare with GGUF": ("compare", str(CONVERTED / "hf"), str(CONVERTED / "model.gguf")),
        "verify": ("verify", health, "--subject", f"checkpoint={SUBJECT}"),
        "verify a log": ("verify", "builtin:training-log", "--subject", f"run={log}"),
    }
    pytest = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_nothing.py")
    return {
        **{name: ("-c", name) for name in (PASS, NUMPY, ALONE)},
        **{name: ("-c", MAIN, *arguments) for name, arguments in ours.items()},
        "pytest without": (*pytest, "-p", "no:weighbridge"),
        "pytest": pytest,
    }


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as folder:
        timed = commands(Path(folder))
        for command in timed.values():
            cpu_seconds(*command, cwd=folder)  # so that bytecode and page cache are warm, as at any second start
        rounds = [{name: cpu_seconds(*one, cwd=folder) for name, one in timed.items()} for _ in range(ROUNDS)]
    best = {name: min(times[name] for times in rounds) for name in timed}
    for name, (most, peer) in BUDGET.items():
        held = f"budget {most:g}" if most else "no budget"
        of = f"python -c '{peer}'" if peer in (PASS, NUMPY) else peer
        print(f"{name:<18} {best[name] / best[peer]:6.2f} × {of} ({held})")
    floor = best["lint"] + best[ALONE] - best[PASS]
    print(f"{'floor of verify':<18} {floor / best['lint']:6.2f} × lint (lint and NumPy)")


if __name__ == "__main__":
    main()
