"""Probes and what a recorder keeps beside the rows, on healthy models, and on runs with one fault each.

python -m benchmarks.probes FOLDER > benchmarks/probes.md

Models of `benchmarks/diagnostics.py` learn to count: rows begin at even numbers, in order, and those that are held out
at odd ones. Then Qwen2 trains once for each fault, which changes one thing. Runs that FOLDER holds already are not made
again.
"""

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from benchmarks.diagnostics import LENGTH, MAKE, VOCAB, judged

from weighbridge.recorder import Analysis, Probes, Recorder

STEPS, SEEDS, BATCH, PROMPT, REST, PROBES, LR = 601, (0, 1, 2), 8, 8, 8, 20, 1e-3
ROWS = ("4.1-KEPT", "5.5", "6.1-REPEATS", "6.2", "6.5", "7.1", "7.2", "7.2-KEPT", "7.3", "7.3-500", "7.4")
HEAD = """# Probes on healthy runs, and on runs with one fault

Made by `benchmarks/probes.py`: {seeds} seeds each, {steps} steps, {probes} probes that were trained on and as many that
were held out. *P* is PASS, *F* FAIL, *B* BLOCKED (it could not look); one letter a seed.
"""


class Fault(NamedTuple):
    """One thing that is other than in a healthy run, and the rows that must FAIL of it."""

    says: str
    rows: str
    by_heart: bool = False  # what follows is drawn, and the same each time
    backwards: int = STEPS  # from this step on
    at: Callable[[Path, int], object] = lambda _probes, _step: None
    pruned_early: bool = False


def exchanged(probes: Path, step: int) -> None:
    """Exchange the file of probes for another one."""
    if step == 60:
        probes.write_text(probes.read_text().replace("held-out", "train"))


FAULTS = {
    "exchanged": Fault("probes exchanged at step 60", "7.1", at=exchanged),
    "forgets": Fault("counting backwards from step 300 on", "5.5 6.2 6.5 7.2 7.3 7.3-500", backwards=300),
    "by-heart": Fault("rows that no rule gives", "6.2 7.4", by_heart=True),
    "early": Fault("checkpoints that are pruned before the next is whole", "7.2-KEPT", pruned_early=True),
}


def texts(of: str, *, by_heart: bool) -> list[list[int]]:
    """Return rows of numbers in order, by the evenness of the first; by heart, with a rest that was drawn."""
    drawn, odd = random.Random(of), int(of != "train")
    rows = [[(2 * at + odd + step) % VOCAB for step in range(PROMPT + REST)] for at in drawn.sample(range(100), PROBES)]
    return [row[:PROMPT] + [drawn.randrange(VOCAB) for _ in range(REST)] for row in rows] if by_heart else rows


def train(folder: Path, name: str, seed: int, fault: Fault) -> Path:
    """Train one model, recorded."""
    run, probes = folder / "run", folder / "probes.jsonl"
    if run.exists():
        return run
    folder.mkdir(parents=True, exist_ok=True)
    asked = {of: texts(of, by_heart=fault.by_heart) for of in ("train", "held-out")}
    lines = [{"class": of, "prompt": row[:PROMPT], "continuation": row[PROMPT:]} for of in asked for row in asked[of]]
    probes.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    transformers.set_seed(seed)
    torch.set_num_threads(1)
    model: Any = MAKE[name]()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    data, drawn = torch.tensor(asked["train"]), torch.Generator().manual_seed(seed)
    if not fault.by_heart:
        data = torch.arange(0, 2 * (VOCAB // 2), 2)[:, None].add(torch.arange(PROMPT + REST)).remainder(VOCAB)
    grids = ("*.self_attn",) if name == "Qwen2" else ()
    with Recorder(run, model, optimizer, vocab=VOCAB, seq_len=LENGTH, batch_size=BATCH, requested_steps=STEPS,
                  sampled=True, requested_device="cpu", analysis=Analysis(grids=grids),
                  probes=Probes(path=probes)) as recorder:  # fmt: skip
        for step in range(STEPS):
            optimizer.zero_grad()
            ids = data[torch.randint(0, len(data), (BATCH,), generator=drawn)]
            ids = ids.flip(1) if step >= fault.backwards else ids
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            fault.at(probes, step)
            recorder.step(loss)
            if step % 200 == 199:
                save(folder, model, recorder, step, early=fault.pruned_early)
    return run


def save(folder: Path, model: Any, recorder: Recorder, step: int, *, early: bool) -> None:
    """Write a checkpoint, and prune the one before it, once this one is whole or before."""
    before = folder / f"step-{step - 200}.pt"
    if early:
        before.unlink(missing_ok=True)
    torch.save(model.state_dict(), folder / f"step-{step}.pt")
    recorder.checkpoint(folder / f"step-{step}.pt")
    before.unlink(missing_ok=True)


def main(root: Path) -> None:
    """Train what is not there yet, and print both tables."""
    healthy = Fault("nothing", "")
    print(HEAD.format(seeds=len(SEEDS), steps=STEPS, probes=PROBES))
    found = {name: [judged(train(root / f"{name}-{seed}", name, seed, healthy)) for seed in SEEDS] for name in MAKE}
    print(f"| row | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for row in ROWS:
        print(f"| {row} | {' | '.join(''.join(one[row][0] for one in runs) for runs in found.values())} |")
    print("\n| fault | must FAIL | does not | FAIL besides | the first that must says |\n|---|---|---|---|---|")
    for name, fault in FAULTS.items():
        rows = judged(train(root / name, "Qwen2", 0, fault))
        fails, must = [row for row in ROWS if rows[row][0] == "F"], fault.rows.split()
        lacking, besides = [row for row in must if row not in fails], [row for row in fails if row not in must]
        says = rows[must[0]][2].replace("|", "\\|")
        print(f"| {fault.says} | {' '.join(must)} | {' '.join(lacking)} | {' '.join(besides)} | {says} |", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
