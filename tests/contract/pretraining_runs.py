"""Runs, epochs and trainers in the shape of a published project: what each gate of `pretraining` passes, and fails.

`SHOWN` is the table: by gate, what is bound to its subjects so that it passes, and what so that it does not.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

Rows: TypeAlias = list[dict[str, Any]]
Bound: TypeAlias = Callable[[Path], str]  # writes a subject into a folder, and returns what is bound

STEPS, TOKENS, WARMUP, CORPUS, PEAK = 120, 2048, 100, 100 * 2048, 3e-4
PARAMS = {"warmup_steps": str(WARMUP)}
DEVICE = "NVIDIA GeForce RTX 4090"
VOCAB = 50_257
LOSSES = (9.0, 6.0, 4.0, 3.0, 2.1)  # of five epochs: the last is the best, and below 2.2


# --- The log of steps -------------------------------------------------------------------------------------------------


def rows(seed: int = 7) -> Rows:
    """Return the steps of a healthy run: warm-up, a loss that falls, a utilisation that moves with the work."""
    chance, load, made = random.Random(seed), 92.0, []
    for step in range(STEPS):
        wall, load = 300 + chance.gauss(0, 4) + 150 * (step == 0), min(load + chance.gauss(0, 1), 100.0)
        made.append({
            "step": step, "loss": 7 + 3.8 * math.exp(-step / 40) + chance.gauss(0, 0.05), "wall_ms": wall,
            "grad_norm": 1 + math.exp(-step / 30) + chance.gauss(0, 0.05), "lr": PEAK * min(step, WARMUP) / WARMUP,
            "tokens": TOKENS, "tokens_per_sec": 1000 * TOKENS / wall, "gpu_util_pct": round(load),
            "corpus_position": step * TOKENS % CORPUS + TOKENS, "wraps": step * TOKENS // CORPUS,
        })  # fmt: skip
    return made


def probe(step: int, device: str, ops: str) -> dict[str, Any]:
    """Return a device event of a step of a run on a device, whose ops ran on one."""
    witness = {"by": "nvml", "pid": 4711, "device": 0, "used_mib": 6636.0}
    files = {"by": "device-files", "pid": 4711, "files": ["/dev/nvidia0"] if device != "cpu" else []}
    parts = {key: {device: 1 << 30} for key in ("parameters", "gradients", "optimizer")}
    return {
        "event": "device", "step": step, **parts, "buffers": {}, "ops": {ops: 959}, "bookkeeping": {"cpu": 9},
        "dispatch": "audited", "allocated_bytes": None if device == "cpu" else 1 << 32, "why": {},
        "witnesses": [files] if device == "cpu" else [witness, files],
    }  # fmt: skip


def run(
    change: Callable[[Rows], object] = lambda _rows: None, *, device: str = "cuda:0", ops: str = "", **facts: Any
) -> Bound:
    """Return what writes a run directory whose steps and facts are changed."""

    def write(folder: Path) -> str:
        made = rows()
        change(made)
        head = {
            "schema": "weighbridge.run/v0", "requested_device": device.partition(":")[0], "resolved_device": device,
            "pid": 4711, "host": "host-0123456789ab", "started": "2026-01-02T03:04:05Z", "device_name": DEVICE,
            "model": {"parameters": 370_000_000, "vocab": VOCAB}, "requested_steps": STEPS,
            "data": {"seq_len": TOKENS, "batch_size": 1, "corpus_tokens": CORPUS},
            "regime": "from_scratch", "lr_max": PEAK, "warmup_steps": WARMUP, **facts,
        }  # fmt: skip
        events = [probe(step, device, ops or device) for step in (0, 10, 100)]
        events += [
            {"event": "wrap", "step": 100, "wraps": 1},
            {"event": "end", "step": STEPS, "steps": STEPS, "by": ""},
        ]
        (folder / "run.json").write_text(json.dumps(head))
        for name, lines in (("steps", made), ("events", events)):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
        return str(folder)

    return write


def set_to(column: str, value: Callable[[int, float], float]) -> Callable[[Rows], None]:
    """Return the change of a column, by its step and what it was."""

    def change(made: Rows) -> None:
        for row in made:
            row[column] = value(row["step"], row[column])

    return change


def exhausted(made: Rows) -> None:
    """Let the iterator run dry where the corpus ends."""
    for row in made[100:]:
        row |= {"loss": 1.0, "grad_norm": 1.0, "wall_ms": 0.4 + row["step"] / 1e5}


def invented(_step: int, _was: float, chance: random.Random = random.Random(3)) -> float:  # noqa: B008
    """Return a utilisation as the published one came about."""
    return 50 + chance.uniform(-5, 5)


def again(made: Rows) -> None:
    """Let a replay differ as little as it may, and take other times."""
    for row in made:
        row |= {"loss": row["loss"] + 4e-7 * (row["step"] % 3), "wall_ms": row["wall_ms"] + row["step"] % 7}


NAN = set_to("loss", lambda step, was: math.nan if step == 60 else was)


def slow(made: Rows) -> None:
    """Let every step take twice as long."""
    for row in made:
        row |= {"wall_ms": 2 * row["wall_ms"], "tokens_per_sec": row["tokens_per_sec"] / 2}


FINETUNED = set_to("lr", lambda step, _: 5e-7 * min(step, 100))


# --- The epochs -------------------------------------------------------------------------------------------------------


def hashed(epoch: int, _tokens: int) -> str:
    """Return the digest of an optimizer's state."""
    return hashlib.sha256(b"the bytes of a state" * (epoch + 1)).hexdigest()


def made_up(epoch: int, tokens: int) -> str:
    """Return the digest that the published project gave of none."""
    numbers = b"".join(number.to_bytes(8, "little") for number in (42, epoch, tokens))
    return hashlib.sha256(b"aprender-train:pretrain:optstate:v1:" + numbers).hexdigest()


def epochs(
    losses: tuple[float, ...] = LOSSES, *, without: str = "", state: Callable[[int, int], str] = hashed
) -> Bound:
    """Return what writes a folder of checkpoints and their metadata."""

    def write(folder: Path) -> str:
        for epoch, loss in enumerate(losses):
            head = {
                "epoch": epoch, "train_loss": loss - 0.1 - epoch / 90, "val_loss": loss,
                "train_ppl": math.exp(loss - 0.1 - epoch / 90), "val_ppl": math.exp(loss), "vocab": VOCAB,
                "optimizer_state_sha": state(epoch, 9_830_400 * (epoch + 1)), "wall_seconds": 499.1 + epoch % 3,
                "tokens_seen": 9_830_400 * (epoch + 1), "grad_norm_max": 1.2 + epoch % 2 / 7,
            }  # fmt: skip
            (folder / f"epoch-{epoch:03d}.metadata.json").write_text(json.dumps(head))
            (folder / f"epoch-{epoch:03d}.apr").write_bytes(b"APRN")
        if without:
            (folder / without).unlink()
        return str(folder)

    return write


# --- The trainer ------------------------------------------------------------------------------------------------------

TRAINER = """
import json, re, sys
if "--version" in sys.argv:
    print(json.dumps({"cuda_feature": False, "cuda_runtime_available": False, VISIBLE}))
    sys.exit()
device = sys.argv[sys.argv.index("--device") + 1]
if not re.fullmatch(GRAMMAR, device):
    sys.exit(f"error: {device!r} is no device: cpu, cuda[:N] or auto")
if device == "auto":
    print("WARN no CUDA here: auto falls back to cpu", file=sys.stderr)
"""
DEVICES = "cpu|cuda(:[0-9]|:1[0-5])?|auto"


def program(text: str) -> Bound:
    """Return what writes a program."""

    def write(folder: Path) -> str:
        (folder / "trainer.py").write_text(text)
        return shlex.join((sys.executable, "-I", "-S", str(folder / "trainer.py")))

    return write


def trainer(grammar: str = DEVICES, visible: str = '"visible_devices": []') -> Bound:
    """Return what writes a trainer that knows these devices, and names these fields of its version."""
    return program(TRAINER.replace("GRAMMAR", repr(grammar)).replace("VISIBLE", visible))


def ends(code: int, says: str) -> Bound:
    """Return what writes a trainer that says something and ends so."""
    return program(f"import sys\nprint({says!r})\nsys.exit({code})\n")


# --- The table --------------------------------------------------------------------------------------------------------

GOOD = run()
ON_CPU = run(device="cpu")
SHOWN: Mapping[str, tuple[Mapping[str, Bound], Mapping[str, Bound], str]] = {  # the last is the code of the second
    "GATE-TRAIN-001": ({"run": GOOD}, {"run": run(set_to("gpu_util_pct", invented))}, "noise"),
    "GATE-TRAIN-002": ({"epochs": epochs()}, {"epochs": epochs(without="epoch-003.apr")}, "missing"),
    "GATE-TRAIN-002-DIGEST": ({"epochs": epochs()}, {"epochs": epochs(state=made_up)}, "formula"),
    "GATE-TRAIN-003": ({"epochs": epochs()}, {"epochs": epochs((9.0, 6.0, 4.0, 3.0, 2.21))}, "beyond"),
    "GATE-TRAIN-003-LATER": ({"epochs": epochs((9.0, 8.0, 7.0, 6.0, 4.6))}, {"epochs": epochs((9.9,) * 5)}, "beyond"),
    "GATE-TRAIN-004": (
        {"epochs": epochs((9.0, 6.0, 4.0, 4.1, 4.2))}, {"epochs": epochs((9.0, 4.0, 4.1, 4.2, 4.3))}, "went-on"
    ),
    "GATE-TRAIN-005-FIRST": (
        {"epochs": epochs((10.31, 6.0, 4.0, 3.0, 2.1))}, {"epochs": epochs((21.66, 6.0, 4.0, 3.0, 2.1))}, "beyond"
    ),
    "GATE-TRAIN-005": ({"epochs": epochs()}, {"epochs": epochs((9.0, 3.0, 6.01, 3.0, 2.1))}, "beyond"),
    "GATE-TRAIN-006": (
        {"run": GOOD, "replay": run(again, pid=4712)},
        {"run": GOOD, "replay": run(set_to("loss", lambda step, was: was - 1e-4 * (step == 50)), pid=4712)}, "parts",
    ),
    "GATE-TRAIN-007": (
        {"poisoned": ends(3, "NUMERICAL_INSTABILITY at step 7")}, {"poisoned": ends(0, "loss nan")}, "wrong-exit"
    ),
    "GATE-TRAIN-007-LOG": ({"run": GOOD}, {"run": run(NAN)}, "non-finite"),
    "GATE-TRAIN-008": ({"run": GOOD}, {"run": run(set_to("gpu_util_pct", lambda step, was: was + step))}, "impossible"),
    "GATE-TRAIN-009": ({"run": GOOD}, {"run": run(FINETUNED, regime="finetune")}, "off-schedule"),
    "GATE-TRAIN-009-REGIME": ({"run": GOOD}, {"run": run(set_to("lr", lambda _step, _was: math.nan))}, "non-finite"),
    "GATE-TRAIN-010": (
        {"without_corpus": ends(2, "no corpus at train.bin")}, {"without_corpus": ends(0, "epoch 0: val_loss 3.96")},
        "wrong-exit",
    ),
    "GATE-TRAIN-EXHAUST": ({"run": GOOD}, {"run": run(exhausted)}, "placeholder"),
    "GATE-GPUTRAIN-001": ({"trainer": trainer()}, {"trainer": trainer(".*")}, "wrong-exit"),
    "GATE-GPUTRAIN-002": (
        {"refusal": ends(1, "DEVICE_UNAVAILABLE: cuda")}, {"refusal": ends(0, "no cuda: on the cpu")}, "exits-zero"
    ),
    "GATE-GPUTRAIN-003": ({"run": GOOD}, {"run": run(ops="cpu")}, "ops"),
    "GATE-GPUTRAIN-004": ({"run": GOOD}, {"run": run(slow)}, "over-budget"),
    "GATE-GPUTRAIN-005": ({"cpu_run": ON_CPU}, {"cpu_run": GOOD}, "requested"),
    "GATE-GPUTRAIN-005-METRICS": ({"cpu_run": ON_CPU}, {"cpu_run": run(NAN, device="cpu")}, "non-finite"),
    "GATE-GPUTRAIN-006": ({"trainer": trainer()}, {"trainer": trainer(visible='"devices": []')}, "wrong-json"),
}  # fmt: skip


def bind(folder: Path, given: Mapping[str, Bound]) -> dict[str, str]:
    """Write the subjects, each into a folder of its own, and return what is bound."""
    for name in given:
        (folder / name).mkdir(parents=True)
    return {name: write(folder / name) for name, write in given.items()}
