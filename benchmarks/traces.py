"""Two traces compared, with worst token and channel: ours against a plain NumPy read and norm, as ratios in one run.

    python benchmarks/traces.py [--mib 512] [--rounds 5]

Each figure is a process of its own, one thread. GB/s counts the bytes of both files by CPU time; peak memory is above
that of the same command on tiny files. Goals: 0.8 GB/s in bfloat16, 1.5 GB/s in float32, 256 MiB.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.compare import MIB, Peer

TOKENS, CHANNELS = 1024, 4096

# What a careful script does: read a point of both files, and take the norm of the difference and of the first.
PLAIN = """
import sys
import numpy as np
from weighbridge.forward.trace_file import open_trace
one, other = map(open_trace, sys.argv[1:3])
for name in one.facts.order:
    first, second = (side.stored(name).astype(np.float32) for side in (one, other))
    error = second - first
    print(name, np.linalg.norm(error) / np.linalg.norm(first))
"""


def write(path: Path, dtype: str, points: int, tokens: int, flipped: int) -> None:
    """Write a trace of random values, of which every so manieth has its last bit flipped."""
    from weighbridge.forward.trace_file import Device, Facts, TraceWriter

    writer = TraceWriter(path)
    kind = "u4" if dtype == "float32" else "u2"
    for at in range(points):
        words = np.random.default_rng(at).standard_normal((4, tokens, CHANNELS), "f4").view("u4")
        words = (words if dtype == "float32" else words >> 16).astype(kind)
        if flipped:
            words.reshape(-1)[::flipped] ^= 1
        writer.write(f"layer.{at}.out", words.tobytes(), words.shape, dtype)
    ids = tuple(tuple(range(row, row + tokens)) for row in range(4))
    order = tuple(writer.parts)
    writer.close(Facts(stack="s", device=Device(requested="cpu"), dtype=dtype, tokens=ids, order=order))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mib", type=int, default=512, help="MiB of each of the two files")
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    ours = (sys.executable, "-c", "import sys; from weighbridge.cli import main; main()", "compare")
    plain = (sys.executable, "-c", PLAIN)
    # `compare` ends with 1 where traces differ, so that it is run through a shell that expects it.
    shell = ["sh", "-c", '"$@"; test $? -le 1', "sh"]
    print(f"two traces of {chosen.mib} MiB, one thread, medians of {chosen.rounds} rounds")
    print(f"{'':32}{'GB/s':>8}{'CPU s':>8}{'plain / it':>12}{'MiB above':>11}")
    for dtype, size in (("bfloat16", 2), ("float32", 4)):
        with tempfile.TemporaryDirectory() as folder:
            points = max(1, chosen.mib * MIB // (4 * TOKENS * CHANNELS * size))
            large = [Path(folder) / name for name in ("one", "other")]
            tiny = [Path(folder) / name for name in ("tiny", "tiny2")]
            for path, many, tokens, flipped in ((large[0], points, TOKENS, 0), (large[1], points, TOKENS, 3),
                                                (tiny[0], 1, 2, 0), (tiny[1], 1, 2, 3)):  # fmt: skip
                # Elsewhere: the greatest memory of a command is at least that of the process which started it.
                writer = multiprocessing.get_context("spawn").Process(
                    target=write, args=(path, dtype, many, tokens, flipped)
                )
                writer.start()
                writer.join()
            peers = {name: Peer([*shell, *words, *tiny], [*shell, *words, *large])
                     for name, words in (("plain NumPy", plain), ("weighbridge compare", ours))}  # fmt: skip
            for _ in range(chosen.rounds):
                for peer in peers.values():
                    peer.once()
            nbytes = sum(path.stat().st_size for path in large)
            for name, peer in peers.items():
                cpu = statistics.median(peer.beyond("cpu"))
                ratio = statistics.median(
                    a / b for a, b in zip(peers["plain NumPy"].beyond("cpu"), peer.beyond("cpu"), strict=True)
                )
                row = f"{nbytes / cpu / 1e9:8.2f}{cpu:8.2f}{ratio:12.2f}{peer.above():11.1f}"
                print(f"{f'{name}, {dtype}':32}{row}")


if __name__ == "__main__":
    main()
