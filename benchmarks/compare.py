"""Compare two large checkpoints: ours against GNU cmp and against memcmp, as ratios in one run.

    python benchmarks/compare.py [--gib 2] [--rounds 5]

Every figure is a subprocess of its own, rounds are interleaved, the least of each is taken; "beyond" start-up has the
same command's time on tiny files taken off, by wall and by CPU time (the steadier one on a busy machine). Peak memory
is the process's high-water mark (file pages included) above that of the same command on tiny files.
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

MIB = 1 << 20

MEASURE = """
import sys
from weighbridge.verifiers.tensor_pairs import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint
views = tuple(open_checkpoint(path) for path in sys.argv[1:3])
found = VERIFIER.measure(views, {})
assert all(row["reproduced"]["value-cast"] == row["elements"] for row in found.value.rows)
"""

WITH_CANARY = (
    MEASURE
    + """
canary = VERIFIER.canary(views, {}, found)
assert canary.seen(VERIFIER.measure(canary.views, {}))
"""
)

MEMCMP = """
import ctypes, sys, time
import numpy as np
memcmp = ctypes.CDLL(None).memcmp
memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
size, old, new = 256 << 20, np.ones(256 << 20, np.uint8), np.ones(256 << 20, np.uint8)
memcmp(old.ctypes.data, new.ctypes.data, size)
began = time.process_time()
assert memcmp(old.ctypes.data, new.ctypes.data, size) == 0
print((time.process_time() - began) / size)
"""


def layout(size: int) -> list[tuple[str, list[int]]]:
    """Lay out a model of about `size` bytes of BF16: blocks of matrices, each with its norms."""
    width = 2048 if size >= 256 * MIB else 64
    tensors: list[tuple[str, list[int]]] = []
    block = [("attn", [width, 4 * width]), ("mlp.up", [4 * width, width]), ("norm", [width])]
    while sum(2 * shape[0] * [*shape, 1][1] for _, shape in tensors) < size:
        tensors += [(f"layers.{len(tensors) // 3:03}.{name}.weight", shape) for name, shape in block]
    return tensors


def write(path: Path, size: int, dtype: str, pattern: bytes) -> None:
    """Write a checkpoint of these tensors whose payload repeats `pattern`, which is one MiB of one dtype."""
    wide = len(pattern) // MIB
    header, at = {}, 0
    for name, shape in layout(size):
        nbytes = 2 * wide * shape[0] * [*shape, 1][1]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + nbytes]}
        at += nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.flush()
        for start in range(0, at, 4 * len(pattern)):  # as large as a writer's own writes, which shape the page cache
            rest = at - start
            os.writev(file.fileno(), [pattern[: max(rest - part * len(pattern), 0)] for part in range(4)])


def patterns() -> tuple[bytes, bytes]:
    """Make one MiB of BF16 numbers, and the same numbers in F32."""
    import numpy as np

    words = np.random.default_rng(0).standard_normal(MIB // 2).astype("<f4").view("<u4") >> 16
    return words.astype("<u2").tobytes(), (words << 16).astype("<u4").tobytes()


class Run:
    """One command, run again and again: its least wall and CPU time, and its greatest memory."""

    def __init__(self, *argv: str | Path) -> None:
        self.argv = [str(word) for word in argv]
        self.wall = self.cpu = float("inf")
        self.peak = 0

    def once(self) -> None:
        began = time.perf_counter()
        pid = os.posix_spawnp(
            self.argv[0], self.argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        )
        _, status, used = os.wait4(pid, 0)
        self.wall = min(self.wall, time.perf_counter() - began)
        if os.waitstatus_to_exitcode(status) != 0:
            sys.exit(f"{self.argv[:4]} ended with {os.waitstatus_to_exitcode(status)}")
        self.cpu = min(self.cpu, used.ru_utime + used.ru_stime)
        self.peak = max(self.peak, used.ru_maxrss)


def commands(pair: tuple[Path, Path]) -> dict[str, Run]:
    """List what is timed on a pair of files."""
    python = (sys.executable, "-c")
    found = {
        "cmp": Run("cmp", *pair),
        "tensor_pairs": Run(*python, MEASURE, *pair),
        "tensor_pairs and its canary": Run(*python, WITH_CANARY, *pair),
    }
    whole = [sys.executable, "-m", "weighbridge", "compare", *map(str, pair)]
    if subprocess.run(whole, capture_output=True, check=False).returncode == 0:
        found["weighbridge compare"] = Run(*whole)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        compare(Path(folder), int(chosen.gib * (1 << 30)), chosen.rounds)


def compare(folder: Path, size: int, rounds: int) -> None:
    narrow, wide = patterns()
    files = {
        name: folder / f"{name}.safetensors" for name in ("tiny", "tiny2", "old", "new", "half", "tiny-f32", "f32")
    }
    for name, of, dtype, pattern in (
        ("tiny", MIB // 8, "BF16", narrow), ("tiny2", MIB // 8, "BF16", narrow), ("tiny-f32", MIB // 8, "F32", wide),
        ("old", size, "BF16", narrow), ("new", size, "BF16", narrow),
        ("half", size // 2, "BF16", narrow), ("f32", size // 2, "F32", wide),
    ):  # fmt: skip
        write(files[name], of, dtype, pattern)
    tiny, large = commands((files["tiny"], files["tiny2"])), commands((files["old"], files["new"]))
    widening = "tensor_pairs, BF16 to F32"
    tiny[widening] = Run(sys.executable, "-c", MEASURE, files["tiny"], files["tiny-f32"])
    large[widening] = Run(sys.executable, "-c", MEASURE, files["half"], files["f32"])
    memcmp = float("inf")
    for _ in range(rounds):
        for run in (*tiny.values(), *large.values()):
            run.once()
        done = subprocess.run([sys.executable, "-c", MEMCMP], capture_output=True, text=True, check=True)
        memcmp = min(memcmp, float(done.stdout))
    show(size, tiny, large, lambda nbytes: memcmp * nbytes)


def show(size: int, tiny: dict[str, Run], large: dict[str, Run], memcmp: Callable[[int], float]) -> None:
    limit = memcmp(size)
    least = large["cmp"].wall - tiny["cmp"].wall, large["cmp"].cpu - tiny["cmp"].cpu
    print(f"{size / (1 << 30):.1f} GiB against {size / (1 << 30):.1f} GiB, page cache warm; BF16 to F32: half of it")
    print(f"memcmp on resident buffers, two of that size: {limit:.3f} s")
    print(f"{'':28}{'start-up':>22}{'whole':>16}{'beyond':>16}{'x memcmp':>10}{'cmp / it':>16}{'MiB above':>11}")
    print(
        f"{'':28}{'wall s':>14}{'CPU s':>8}{'wall':>8}{'CPU':>8}{'wall':>8}{'CPU':>8}{'CPU':>10}{'wall':>8}{'CPU':>8}"
    )
    for name, run in large.items():
        start = tiny[name]
        wall, cpu = run.wall - start.wall, run.cpu - start.cpu
        print(
            f"{name:28}{start.wall:14.3f}{start.cpu:8.3f}{run.wall:8.3f}{run.cpu:8.3f}{wall:8.3f}{cpu:8.3f}"
            f"{cpu / limit:10.2f}{least[0] / wall:8.2f}{least[1] / cpu:8.2f}{(run.peak - start.peak) / 1024:11.1f}"
        )


if __name__ == "__main__":
    main()
