"""Compare two large checkpoints: ours against memcmp, GNU cmp, torch.equal and sha256sum, as ratios in one run.

    python benchmarks/compare.py [--gib 2] [--rounds 9] [--cold 3] [--memory 0.5 2]

Every figure is a subprocess of its own. Rounds are interleaved, and each holds a command's run on tiny files beside
that on large ones: "beyond" start-up is the median of their differences, "cmp / it" the median of each round's ratio,
by wall and by CPU time (the steadier one on a busy machine). Peak memory is the process's high-water mark, file pages
included, above that of the same command on tiny files. Cold rounds drop the files from the page cache first.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

MIB, GIB = 1 << 20, 1 << 30
COMPARE, WIDENING, READING = "weighbridge compare", "tensor_values, BF16 to F32", "reading those, OR of all words"

MEASURE = """
import os, sys
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint
views = tuple(open_checkpoint(path) for path in sys.argv[1:3])
found = VERIFIER.measure(views, {})
assert all(row.reproduced["value-cast"] == row.elements for row in found.value.rows)
"""

WITH_CANARY = (
    MEASURE
    + """
canary = VERIFIER.canary(views, {}, found)
assert canary.seen(VERIFIER.measure(canary.views, {}))
"""
)

TORCH = """
import sys, torch
from safetensors import safe_open
with safe_open(sys.argv[1], "pt") as old, safe_open(sys.argv[2], "pt") as new:
    assert all(torch.equal(old.get_tensor(name), new.get_tensor(name)) for name in old.keys())
"""

READ = """
import mmap, sys
import numpy as np
for path in sys.argv[1:3]:
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        whole = len(mapped) // 8
        for at in range(0, whole, 1 << 20):
            words = np.frombuffer(mapped, "<u8", min(1 << 20, whole - at), 8 * at)
            np.bitwise_or.reduce(words)
            mapped.madvise(mmap.MADV_DONTNEED, 8 * at, words.nbytes)
            del words
"""

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
        os.fsync(file.fileno())  # only what is on disk can be dropped from the page cache


def patterns() -> tuple[bytes, bytes]:
    """Make one MiB of BF16 numbers, and the same numbers in F32."""
    import numpy as np

    words = np.random.default_rng(0).standard_normal(MIB // 2).astype("<f4").view("<u4") >> 16
    return words.astype("<u2").tobytes(), (words << 16).astype("<u4").tobytes()


@dataclass(frozen=True)
class Used:
    """What one process used: wall and CPU seconds, and its greatest memory in KiB."""

    wall: float
    cpu: float
    peak: int


def run(argv: Sequence[str | Path]) -> Used:
    """Run a command to its end."""
    words = [str(word) for word in argv]
    began = time.perf_counter()
    quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    pid = os.posix_spawnp(words[0], words, os.environ, file_actions=quiet)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{words[:4]} ended with {os.waitstatus_to_exitcode(status)}")
    return Used(wall=wall, cpu=used.ru_utime + used.ru_stime, peak=used.ru_maxrss)


@dataclass
class Peer:
    """One command, on tiny files and on large ones, round after round."""

    tiny: list[str | Path]
    large: list[str | Path]
    small: list[Used] = field(default_factory=list)
    whole: list[Used] = field(default_factory=list)

    def once(self) -> None:
        self.small.append(run(self.tiny))
        self.whole.append(run(self.large))

    def beyond(self, what: str) -> list[float]:
        """Give what the large files took beyond the tiny ones, round by round."""
        return [getattr(large, what) - getattr(tiny, what) for tiny, large in zip(self.small, self.whole, strict=True)]

    def above(self) -> float:
        """Give the peak memory above the tiny files', in MiB."""
        return (max(used.peak for used in self.whole) - max(used.peak for used in self.small)) / 1024


def peers(files: Mapping[str, Path]) -> dict[str, Peer]:
    """List what is timed."""
    python = (sys.executable, "-c")
    tiny, large = (files["tiny"], files["tiny2"]), (files["old"], files["new"])
    ours = (sys.executable, "-m", "weighbridge", "compare")
    found = {"cmp": Peer(["cmp", *tiny], ["cmp", *large])}
    if importlib.util.find_spec("torch"):
        found["torch.equal, safe_open"] = Peer([*python, TORCH, *tiny], [*python, TORCH, *large])
    return found | {
        "sha256sum, one of them": Peer(["sha256sum", tiny[0]], ["sha256sum", large[0]]),
        "tensor_values": Peer([*python, MEASURE, *tiny], [*python, MEASURE, *large]),
        "tensor_values and canary": Peer([*python, WITH_CANARY, *tiny], [*python, WITH_CANARY, *large]),
        COMPARE: Peer([*ours, *tiny], [*ours, *large]),
        WIDENING: Peer(
            [*python, MEASURE, files["tiny"], files["tiny-f32"]], [*python, MEASURE, files["half"], files["f32"]]
        ),
        READING: Peer([*python, READ, files["tiny"], files["tiny-f32"]], [*python, READ, files["half"], files["f32"]]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--cold", type=int, default=3, help="rounds with the files dropped from the page cache")
    parser.add_argument("--memory", type=float, nargs="*", default=[0.5, 2.0], help="GiB to take peak memory at")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        files = written(Path(folder), int(chosen.gib * GIB))
        warm(files, chosen.gib, chosen.rounds)
        if chosen.cold:
            cold(files, chosen.gib, chosen.cold)
        for name in ("old", "new", "half", "f32"):
            files[name].unlink()
        memory(files, Path(folder), chosen.memory)


def written(folder: Path, size: int) -> dict[str, Path]:
    """Write the files: two alike of `size` bytes, one of half of it in BF16 and in F32, and tiny ones."""
    narrow, wide = patterns()
    files = {
        name: folder / f"{name}.safetensors" for name in ("tiny", "tiny2", "tiny-f32", "old", "new", "half", "f32")
    }
    for name, of, dtype, pattern in (
        ("tiny", MIB // 8, "BF16", narrow), ("tiny2", MIB // 8, "BF16", narrow), ("tiny-f32", MIB // 8, "F32", wide),
        ("old", size, "BF16", narrow), ("new", size, "BF16", narrow),
        ("half", size // 2, "BF16", narrow), ("f32", size // 2, "F32", wide),
    ):  # fmt: skip
        write(files[name], of, dtype, pattern)
    return files


def warm(files: Mapping[str, Path], gib: float, rounds: int) -> None:
    """Time all peers with the files in the page cache."""
    timed = peers(files)
    per_byte = []
    for _ in range(rounds):
        for peer in timed.values():
            peer.once()
        done = subprocess.run([sys.executable, "-c", MEMCMP], capture_output=True, text=True, check=True)
        per_byte.append(float(done.stdout))
    limit = statistics.median(per_byte) * gib * GIB
    print(f"{gib:g} GiB against {gib:g} GiB, page cache warm, medians of {rounds} rounds; BF16 to F32: half of it")
    print(f"memcmp on resident buffers, two of that size: {limit:.3f} s")
    print(f"{'':30}{'start-up':>10}{'beyond':>16}{'x memcmp':>10}{'cmp / it':>16}{'MiB above':>11}")
    print(f"{'':30}{'wall s':>10}{'wall':>8}{'CPU':>8}{'CPU':>10}{'wall':>8}{'CPU':>8}")
    for name, peer in timed.items():
        start = statistics.median(used.wall for used in peer.small)
        wall, cpu = (statistics.median(peer.beyond(what)) for what in ("wall", "cpu"))
        ratios = "".join(f"{_ratio(timed['cmp'], peer, what):8.2f}" for what in ("wall", "cpu"))
        print(f"{name:30}{start:10.3f}{wall:8.3f}{cpu:8.3f}{cpu / limit:10.2f}{ratios}{peer.above():11.1f}")
    share = [_ratio(timed[READING], timed[WIDENING], what) for what in ("wall", "cpu")]
    print(f"BF16 to F32 runs at {share[0]:.0%} of read bandwidth by wall time, {share[1]:.0%} by CPU time\n")


def _ratio(one: Peer, other: Peer, what: str) -> float:
    return statistics.median(a / b for a, b in zip(one.beyond(what), other.beyond(what), strict=True))


def cold(files: Mapping[str, Path], gib: float, rounds: int) -> None:
    """Time what reads the two large files, by wall time, each with the page cache emptied of them first."""
    timed = {name: peer for name, peer in peers(files).items() if name not in (WIDENING, READING)}
    taken: dict[str, list[float]] = {name: [] for name in timed}
    for _ in range(rounds):
        for name, peer in timed.items():
            drop(files["old"], files["new"])
            taken[name].append(run(peer.large).wall)
    print(f"{gib:g} GiB against {gib:g} GiB, page cache cold, medians of {rounds} rounds: the disk decides")
    print(f"{'':30}{'wall s':>10}{'cmp / it':>10}")
    for name, walls in taken.items():
        ratio = statistics.median(a / b for a, b in zip(taken["cmp"], walls, strict=True))
        print(f"{name:30}{statistics.median(walls):10.3f}{ratio:10.2f}")
    print()


def drop(*paths: Path) -> None:
    """Drop files from the page cache."""
    for path in paths:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def memory(files: Mapping[str, Path], folder: Path, sizes: Sequence[float]) -> None:
    """Take the peak memory of a whole compare at each size."""
    words = (sys.executable, "-m", "weighbridge", "compare")
    idle = run([*words, files["tiny"], files["tiny2"]]).peak
    narrow, _ = patterns()
    for gib in sizes:
        pair = folder / "one.safetensors", folder / "other.safetensors"
        for path in pair:
            write(path, int(gib * GIB), "BF16", narrow)
        peak = run([*words, *pair]).peak
        print(f"compare of {gib:g} GiB against {gib:g} GiB: {(peak - idle) / 1024:.1f} MiB above tiny files")
        for path in pair:
            path.unlink()


if __name__ == "__main__":
    main()
