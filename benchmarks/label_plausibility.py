"""Measure how often label-plausibility is right, wrong and undecided, over generated weights of known bits.

    python benchmarks/label_plausibility.py [--seeds 6]

Weights follow eight laws at nine scales and five sizes, and thirteen families that are not like weights; each is stored
as F16, BF16 and F32, and in every wrong way that the gate names. Files are written by the safetensors library, read by
our reader, measured by `tensor_bits` and decided under the gate's default limits.
"""

from __future__ import annotations

import argparse
import collections
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from weighbridge.gates.label_plausibility import Limits, decide
from weighbridge.verifiers.tensor_bits import Bits
from weighbridge.verifiers.tensor_walk import STEP
from weighbridge.views.checkpoint import open_checkpoint

Array = Any
SCALES = tuple(float(scale) for scale in np.geomspace(3e-4, 3, 9))
SIZES = (256, 1024, 4096, 16384, 262144)

WEIGHTS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.uniform(-1, 1, n),
    "laplace": lambda rng, n: rng.laplace(size=n),
    "student-t 3": lambda rng, n: rng.standard_t(3, n),
    "truncated normal": lambda rng, n: np.clip(rng.standard_normal(n), -2, 2),
    "two scales": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.5, 1, 0.2),
    "scaled rows": lambda rng, n: rng.standard_normal((n // 64, 64)) * rng.lognormal(0, 0.5, (n // 64, 1)),
    "half pruned": lambda rng, n: rng.standard_normal(n) * (rng.random(n) < 0.5),
}
OTHERS: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "norm of ones": lambda _rng, n: np.ones(n),
    "norm near one": lambda rng, n: 1 + 0.1 * rng.standard_normal(n),
    "norm near seven": lambda rng, n: 7 + 0.4 * rng.standard_normal(n),
    "zero bias": lambda _rng, n: np.zeros(n),
    "A_log": lambda _rng, n: np.log(np.arange(n) % 16 + 1.0),
    "rotary frequencies": lambda _rng, n: 10000.0 ** (-np.arange(n) / n),
    "rotary table": lambda _rng, n: np.cos(np.arange(n) * 0.01),
    "ALiBi slopes": lambda _rng, n: -(2.0 ** (-np.arange(n) % 8)),
    "Adam's second moment": lambda rng, n: (1e-4 * rng.standard_normal(n)) ** 2,
    "Adam's first moment": lambda rng, n: 1e-4 * rng.standard_normal(n) * 10 ** rng.uniform(-4, 0, n),
    "int4 grid": lambda rng, n: rng.integers(-8, 8, n) * 0.03,
    "positions": lambda _rng, n: np.arange(n, dtype=np.float64) % 2048,
    "ternary": lambda rng, n: rng.integers(-1, 2, n) * 0.02,
}  # fmt: skip

BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2


def stored(x: Array) -> Iterator[tuple[str, str, Array]]:
    """Store values in every right and wrong way: what it is, what the gate should say, and the array as labelled."""
    half, brain, single = x.astype("<f2"), x.astype(BF16), x.astype("<f4")
    yield "F16", "ok", half
    yield "BF16", "ok", brain
    yield "F32", "ok", single
    yield "F32 of BF16 values", "ok", brain.astype("<f4")
    yield "F32 of F16 values", "ok", half.astype("<f4")
    yield "BF16 labelled F16", "mislabelled", brain.view("<f2")
    yield "F16 labelled BF16", "mislabelled", half.view(BF16)
    yield "F16 byte-swapped", "byte-swapped", half.byteswap()
    yield "BF16 byte-swapped", "byte-swapped", brain.view("<u2").byteswap().view(BF16)
    yield "F32 byte-swapped", "byte-swapped", single.byteswap()
    yield "F32 of BF16 byte-swapped", "byte-swapped", brain.astype("<f4").byteswap()
    amax = np.abs(x).max() or 1.0
    for name, kind, top in (("E4M3", E4M3, 448.0), ("E5M2", E5M2, 57344.0)):
        eight = (x / amax * top).astype(kind)
        for label, view in (("F16", "<f2"), ("BF16", BF16)):
            yield f"{name} pairs labelled {label}", "pairs", eight.view(view)
    whole = np.round(x / amax * 127).astype(np.int8)
    for label, view in (("F16", "<f2"), ("BF16", BF16)):
        yield f"INT8 pairs labelled {label}", "pairs", whole.view(view)
    yield "F16 pairs labelled F32", "pairs", half.view("<f4")
    yield "BF16 pairs labelled F32", "pairs", brain.view("<f4")


def noise(rng: np.random.Generator, n: int) -> Iterator[tuple[str, str, Array]]:
    """Store bytes that mean nothing under any label."""
    for label, view in (("F16", "<f2"), ("BF16", BF16), ("F32", "<f4")):
        yield f"noise labelled {label}", "implausible", rng.integers(0, 256, 4 * n, np.uint8).view(view)


def cases(seed: int) -> Iterator[tuple[str, str, str, Array]]:
    """Generate the cases of one seed: the group, the storage, what is right, and the array."""
    rng = np.random.default_rng(seed)
    for n in SIZES[: 4 if seed else 5]:  # the largest size once
        for scale in SCALES:
            for make in WEIGHTS.values():
                x = (make(rng, n) * scale).reshape(-1)
                yield from (("weights", *case) for case in stored(x))
        for name, other in OTHERS.items():
            told = [case for case in stored(other(rng, n)) if case[1] == "ok" or name != "zero bias"]
            yield from (("not like weights", *case) for case in told)
        yield from (("noise", *case) for case in noise(rng, n))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=6)
    seeds = parser.parse_args().seeds
    told: dict[tuple[str, str, str], collections.Counter[str]] = collections.defaultdict(collections.Counter)
    spent = read = 0.0
    for seed in range(seeds):
        for group, storage, right, found, cpu, nbytes in weighed(seed):
            told[group, storage, right][found] += 1
            spent, read = spent + cpu, read + nbytes
    show(told, sum(sum(counts.values()) for counts in told.values()), spent, read)


def weighed(seed: int) -> Iterator[tuple[str, str, str, str, float, int]]:
    """Write the cases of one seed to a file, and decide each."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.safetensors"
        kept = {f"{at:06}": case for at, case in enumerate(cases(seed))}
        save_file({name: np.ascontiguousarray(case[3]) for name, case in kept.items()}, path)
        view, limits = open_checkpoint(path), Limits()
        for name, (group, storage, right, _) in kept.items():
            began = time.process_time()
            tensor = view.tensor(name)
            bits = Bits(tensor)
            for chunk in view.chunks(name, STEP * tensor.unit[1]):
                bits.take(chunk)
            decision = decide(bits.row(), limits)
            yield group, storage, right, decision.verdict, time.process_time() - began, view.tensor(name).nbytes


def outcome(right: str, found: str) -> str:
    """Tell right, wrong and undecided; that nothing fits is no wrong answer about a label, but no right one either."""
    if found == "undecided":
        return "undecided"
    return "right" if found == right else "implausible" if found == "implausible" else "wrong"


def show(
    told: dict[tuple[str, str, str], collections.Counter[str]], cases_seen: int, spent: float, read: float
) -> None:
    print(f"{'stored as':44}{'right':>8}{'wrong':>8}{'undecided':>11}{'implausible':>13}")
    for group in ("weights", "noise", "not like weights"):
        total: collections.Counter[str] = collections.Counter()
        print(group)
        for (of, storage, right), counts in told.items():
            if of == group:
                came = collections.Counter(dict.fromkeys(("right", "wrong", "undecided", "implausible"), 0))
                for found, count in counts.items():
                    came[outcome(right, found)] += count
                total += came
                line("  " + storage, came)
                wrong = {found: count for found, count in counts.items() if outcome(right, found) == "wrong"}
                if wrong:
                    print(f"      wrong: {wrong}")
        line("  all", total)
    print(f"{cases_seen} tensors, {1000 * spent / cases_seen:.2f} ms of CPU time each, {read / spent / 1e9:.2f} GB/s")


def line(name: str, came: collections.Counter[str]) -> None:
    print(f"{name:44}{came['right']:8}{came['wrong']:8}{came['undecided']:11}{came['implausible']:13}")


if __name__ == "__main__":
    main()
