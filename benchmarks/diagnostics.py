"""The rows of `builtin:diagnostics` on four healthy models, and on runs with one fault each: what is said of each.

python benchmarks/diagnostics.py FOLDER > benchmarks/diagnostics.md

Qwen2, GPT-2, BERT and OPT of Transformers, 6 layers of 64, begun at random, train 150 steps on the text of Python's
standard library, with a warm-up of 50, three seeds each. Then one of them trains once for each fault, which changes one
thing. Runs that FOLDER holds already are not made again.
"""

import collections
import contextlib
import itertools
import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import transformers

from weighbridge.demo.train import standard_library
from weighbridge.diagnosis.attention_maps import content, redundant
from weighbridge.diagnosis.finite_differences import differences
from weighbridge.diagnosis.fixed_batch import run
from weighbridge.diagnosis.looking import attention, look, losses
from weighbridge.diagnosis.matrices import PowerIteration, alignment
from weighbridge.recorder import Diagnostics, Recorder
from weighbridge.recorder.beside.snapshots import gradient_statistics, statistics
from weighbridge.recorder.channels import Watched
from weighbridge.recorder.passes.diagnostics import of_chance
from weighbridge.recorder.passes.probes import copied

STEPS, WARMUP, BATCH, LENGTH, VOCAB, MASK, LR, CLIP = 150, 50, 8, 64, 257, 256, 1e-3, 1.0
SIZES = {"vocab_size": VOCAB, "num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4}
MAKE: Mapping[str, Callable[[], Any]] = {
    "Qwen2": lambda: transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        **SIZES, intermediate_size=256, num_key_value_heads=4, max_position_embeddings=LENGTH)),
    "GPT-2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_layer=6, n_embd=64, n_head=4, n_positions=LENGTH)),
    "BERT": lambda: transformers.BertForMaskedLM(transformers.BertConfig(
        **SIZES, intermediate_size=256, max_position_embeddings=LENGTH)),
    "OPT": lambda: transformers.OPTForCausalLM(transformers.OPTConfig(
        **SIZES, ffn_dim=256, max_position_embeddings=LENGTH, word_embed_proj_dim=64)),
}  # fmt: skip
SEEDS, OF_FAULTS = (0, 1, 2), "Qwen2"
HEAD = """# Diagnostics on healthy runs, and on runs with one fault

Made by `benchmarks/diagnostics.py`: {runs} healthy runs of {models}, {seeds} seeds each, and {faults} runs of {of}
with one fault each. *P* is PASS, *F* FAIL, *B* BLOCKED (it could not look) and *-* not applicable; one letter a seed.
A letter in brackets is of an advisory gate.
"""


class Fault(NamedTuple):
    """One thing that is other than in a healthy run, and the rows that must FAIL of it."""

    says: str
    rows: str
    at_first: Callable[[Any], object] = lambda _model: None
    before_update: Callable[[Any, Any, int], object] = lambda _model, _optimizer, _step: None
    loss: Callable[[int], float] = lambda _step: 1.0  # by what it is multiplied for the backward pass
    left_out: str = ""  # of the optimizer, by name
    rate: float = 1.0
    clip: float = CLIP
    warmup: bool = True
    text: str = "text"  # or one word, noise, noise at two steps, or in every other row
    logged: float = 1.0  # by what the loss is multiplied for the log
    every: int = 50  # steps between two looks inside the model
    gradients: bool = False  # held against differences of the loss, which takes some 20 steps once
    beside: str = ""  # the role that the first healthy run is bound to


def scaled(by: float) -> Callable[[Any], object]:
    """Return what multiplies every matrix."""
    return lambda model: [one.data.mul_(by) for one in model.parameters() if one.dim() > 1]


def gradients(pattern: str, by: float) -> Callable[[Any, Any, int], object]:
    """Return what multiplies the gradients of tensors before an update."""

    def change(model: Any, _optimizer: Any, _step: int) -> None:
        for name, one in model.named_parameters():
            if re.search(pattern, name):
                one.grad.mul_(by)

    return change


def arriving(pattern: str, by: float) -> Callable[[Any], object]:
    """Return what multiplies the gradients of tensors as they arrive."""
    return lambda model: [
        one.register_hook(lambda gradient: gradient * by)
        for name, one in model.named_parameters()
        if re.search(pattern, name)
    ]


def matrices(pattern: str, by: float, at: int = -1) -> Any:
    """Return what multiplies matrices, as a model begins or at one step."""

    def change(model: Any, _optimizer: object = None, step: int = -1) -> None:
        for name, one in model.named_parameters():
            if step == at and one.dim() > 1 and re.search(pattern, name):
                one.data.mul_(by)

    return change


def alike(model: Any, _optimizer: object, _step: int) -> None:
    """Make all heads of each layer look where the first one does."""
    for name, one in model.named_parameters():
        if re.search(r"[qk]_proj\.(weight|bias)", name):
            one.data.copy_(one.data[: len(one) // 4].repeat(4, *[1] * (one.dim() - 1)))


def from_step(step: int, change: Callable[[Any], object]) -> Callable[[Any, Any, int], object]:
    """Return what changes the optimizer's groups in a step."""
    return lambda _model, optimizer, now: [change(group) for group in optimizer.param_groups if now == step]


class Halved(torch.autograd.Function):
    """The activation of a gated layer, whose backward gives half of its derivative."""

    @staticmethod
    def forward(context: Any, given: torch.Tensor) -> torch.Tensor:
        """Return SiLU of it."""
        context.save_for_backward(given)
        return torch.nn.functional.silu(given)

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        """Return half of what is right."""
        (given,) = context.saved_tensors
        gate = given.sigmoid()
        half: torch.Tensor = gradient * gate * (1 + given * (1 - gate)) / 2
        return half


class Halving(torch.nn.Module):
    """That activation as a part of a model."""

    def forward(self, given: torch.Tensor) -> Any:
        """Apply it."""
        return Halved.apply(given)  # type: ignore[no-untyped-call]


LAYER = r"layers\.2\."
FAULTS = {
    "healthy": Fault("nothing", ""),
    "init-100": Fault("matrices begin 100 times as large", "1.1 1.2", at_first=scaled(100)),
    # What layers' gradients come to at such a rate is chance: 25 × each other on one machine, 105 × on another.
    "rate-100": Fault("learning rate 100 times as large", "4.6", rate=100),
    "rate-0.001": Fault("learning rate a thousandth", "2.1 2.1-LOGITS 2.2 4.6-LEAST", rate=0.001),
    "no-warm-up": Fault("no warm-up", "4.6", warmup=False),
    "silent": Fault("gradients of a layer set to zero before the update", "1.2 1.2-SILENT 1.3 4.2 T1",
                    before_update=gradients(LAYER, 0.0)),
    "faint": Fault("gradients of one matrix cut off", "1.3", at_first=arriving(LAYER + "mlp.up_proj", 0.0)),
    "vanishing": Fault("gradients of the first layer a thousandth", "1.2 4.2",
                       before_update=gradients(r"layers\.0\.", 1e-3)),
    "pinched": Fault("gradients of a layer a tenth", "T1", before_update=gradients(LAYER, 0.1)),
    "left-out": Fault("one matrix in no group of the optimizer", "1.5 T5", left_out=LAYER + "mlp.down_proj"),
    "few-layers": Fault("layers 2 to 5 in no group of the optimizer", "1.5 2.6", left_out=r"layers\.[2-5]\."),
    "no-matrices": Fault("matrices of layers in no group of the optimizer", "1.5 3.4",
                         left_out=r"layers.*proj\.weight"),
    "offender": Fault("gradients of one matrix 1000 times as large", "1.2 4.2 4.4",
                      at_first=arriving(LAYER + "mlp.up_proj", 1e3)),
    "clip-0.01": Fault("clipped to a hundredth", "T3", clip=0.01),
    "burst": Fault("a learning rate of 100 times in one step", "4.6 T2",
                   before_update=from_step(110, lambda group: group.update(lr=group["lr"] * 100))),
    "rate-0": Fault("a learning rate of 0 from step 75 on", "4.6-IDLE", before_update=lambda _, optimizer, step: (
        [group.update(lr=0.0) for group in optimizer.param_groups if step >= 75])),
    "sum": Fault("a loss that is a sum over 512 tokens", "M8", loss=lambda _step: 512.0, clip=math.inf),
    "loss-scale": Fault("a loss of a thousandth", "M8-LEAST", loss=lambda _step: 1e-3),
    "bad-batch": Fault("a gradient of 50 times in one step", "M3", loss=lambda step: 50.0 if step == 120 else 1.0),
    "exploding": Fault("a gradient that grows by a tenth a step", "4.3", loss=lambda step: 1.1**step),
    "one-word": Fault("eight letters of text, over and over", "5.1 5.1-GAP", text="one word"),
    "bad-labels": Fault("labels that are noise at two steps", "4.1", text="noise at two steps"),
    "knocked": Fault("matrices five times as large from step 110 on", "4.1-RECOVERS",
                     before_update=lambda model, _, step: step == 110 and scaled(5)(model)),
    "noise": Fault("labels that are noise", "2.1", text="noise"),
    "nan": Fault("a weight that is NaN from step 100 on", "1.2 4.5-FINITE M1",
                 before_update=lambda model, _, step: step == 100 and next(model.parameters()).data.fill_(math.nan)),
    "blown": Fault("matrices of a layer 100 times as large from step 60 on", "4.5 4.5-BAND M5",
                   before_update=matrices(LAYER, 100, at=60)),
    "first-layer": Fault("the first layer's matrices begin 100 times as large", "4.5-BAND",
                         at_first=matrices(r"layers\.0\.mlp", 100)),
    "queries-0": Fault("queries begin at 0 and are in no group of the optimizer", "2.5 3.1 3.3",
                       at_first=matrices("q_proj", 0), left_out="q_proj"),
    "saturated": Fault("queries and keys begin 100 times as large", "T4 M6-HEADS",
                       at_first=matrices("[qk]_proj", 100)),
    "alike": Fault("heads whose queries and keys are copies of one another", "3.2", before_update=alike),
    "dead-neurons": Fault("feed-forward layers that begin at 0 and are in no group of the optimizer", "3.5 M6",
                          at_first=matrices("(up|gate)_proj", 0), left_out="(up|gate)_proj"),
    "embeddings": Fault("embeddings in no group of the optimizer", "3.6", left_out="embed_tokens"),
    "class": Fault("labels that are noise in every other row", "M7", text="noise in half"),
    "half-loss": Fault("a logged loss that is half of the real one", "M2", logged=0.5),
    "double-loss": Fault("a logged loss that is twice the real one", "M2-LEAST", logged=2.0),
    "every-step": Fault("a look inside the model at every step", "M9", every=1),
    "another-seed": Fault("another seed as its replay", "1.6", beside="replay"),
    "halved": Fault("an activation whose backward gives half of its derivative", "1.4-BACKWARD", gradients=True,
                    at_first=lambda model: setattr(model.model.layers[2].mlp, "act_fn", Halving())),
    "reference": Fault("another seed as its reference", "1.4", beside="reference"),
    "baseline": Fault("a learning rate of a twentieth, beside a healthy baseline", "2.3", rate=0.05, beside="baseline"),
}  # fmt: skip


def batches(seed: int, name: str, part: slice) -> Iterator[dict[str, torch.Tensor]]:
    """Yield batches of a part of the text; of a masked model, with a seventh of the tokens to be guessed."""
    words = torch.tensor(list(standard_library(1 << 20)[part]), dtype=torch.long)
    drawn = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(0, len(words) - LENGTH, (BATCH,), generator=drawn).tolist()
        ids = torch.stack([words[at : at + LENGTH] for at in starts])
        if name != "BERT":
            yield {"input_ids": ids, "labels": ids}
            continue
        hidden = torch.rand(ids.shape, generator=drawn) < 0.15
        yield {"input_ids": ids.masked_fill(hidden, MASK), "labels": ids.masked_fill(~hidden, -100)}


def rate(step: int) -> float:
    """Return the learning rate of a step, as a share of the peak: up, and down to a tenth."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))


def fed(seed: int, name: str, fault: Fault) -> Iterator[dict[str, torch.Tensor]]:
    """Yield what is trained on."""
    every = batches(seed, name, slice(0, 900_000))
    drawn, first = torch.Generator().manual_seed(seed), next(every)
    alone = {key: rows[:1, :8].repeat(BATCH, LENGTH // 8) for key, rows in first.items()}
    for step, batch in enumerate(itertools.chain([first], every)):
        noise = torch.randint(0, VOCAB, batch["labels"].shape, generator=drawn)
        noisy = {**batch, "labels": noise}
        half = {**batch, "labels": torch.where(torch.arange(BATCH)[:, None] % 2 == 1, noise, batch["labels"])}
        burst = noisy if step in (120, 121) else batch
        yield {
            "text": batch, "one word": alone, "noise": noisy, "noise at two steps": burst, "noise in half": half,
        }[fault.text]  # fmt: skip


def train(folder: Path, name: str, seed: int, fault: Fault) -> Path:
    """Train one model, recorded."""
    if folder.exists():
        return folder
    transformers.set_seed(seed)
    torch.set_num_threads(1)
    model = MAKE[name]()
    fault.at_first(model)
    held = [one for name, one in model.named_parameters() if not fault.left_out or not re.search(fault.left_out, name)]
    optimizer = torch.optim.AdamW(held, lr=LR * fault.rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate(step if fault.warmup else max(step, WARMUP))
    )
    training, held_out = fed(seed, name, fault), batches(99, name, slice(900_000, None))
    kept = [next(held_out) for _ in range(4)]
    diagnostics = Diagnostics(
        every=fault.every, classes=lambda _batch: torch.arange(BATCH) % 2, gradients=fault.gradients
    )
    with Recorder(folder, model, optimizer, vocab=VOCAB, seq_len=LENGTH, batch_size=BATCH, requested_steps=STEPS,
                  sampled=True, probe_every=5, requested_device="cpu",
                  diagnostics=diagnostics) as recorder:  # fmt: skip
        for step in range(STEPS):
            optimizer.zero_grad()
            loss = model(**next(training)).loss
            (loss * fault.loss(step)).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), fault.clip)
            fault.before_update(model, optimizer, step)
            optimizer.step()
            schedule.step()
            more: dict[str, Any] = {"lr_declared": LR * rate(step)}
            if step % 10 == 9:
                more["val_loss"] = evaluated(model, kept)
            recorder.step(loss * fault.logged, **more)
    return folder


def evaluated(model: Any, kept: list[dict[str, torch.Tensor]]) -> float:
    """Return the mean loss of the batches that are held out."""
    model.eval()
    with torch.no_grad():
        losses = [float(model(**batch).loss) for batch in kept]
    model.train()
    return sum(losses) / len(losses)


def judged(folder: Path, **beside: Path) -> dict[str, tuple[str, bool, str]]:
    """Return what every row comes to: a letter, whether it is advisory, and what it says."""
    bound = {"run": folder, **beside}
    subjects = [word for name, path in bound.items() for word in ("--subject", f"{name}={path}")]
    command = [
        sys.executable,
        "-m",
        "weighbridge",
        "verify",
        "builtin:diagnostics",
        "--no-evidence",
        "--json",
        *subjects,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    letters = {"NOT_APPLICABLE": "-"}
    return {
        one["gate"].removeprefix("GATE-DIAG-"): (
            letters.get(one["outcome"], one["outcome"][0]), one["severity"] == "advisory", one["says"][0]
        )
        for one in json.loads(done.stdout)[0]["findings"]
    }  # fmt: skip


def table(healthy: Mapping[str, list[dict[str, tuple[str, bool, str]]]]) -> Iterator[str]:
    """Yield a line for each row of the contract."""
    yield f"| row | {' | '.join(healthy)} |"
    yield f"|---|{'---|' * len(healthy)}"
    for row, (_, advisory, _) in next(iter(healthy.values()))[0].items():
        cells = ["".join(one[row][0] for one in runs) for runs in healthy.values()]
        yield f"| {row} | {' | '.join(f'({cell})' if advisory else cell for cell in cells)} |"


def cost(root: Path, every: int = 10, steps: int = 41) -> Iterator[str]:
    """Yield what looking costs: recorders with and without it train the same model in turns, by CPU time."""
    ids = torch.randint(0, VOCAB, (4, 128), generator=torch.Generator().manual_seed(0))
    spent: dict[str, list[float]] = {"without": [], "without, again": [], "with": []}
    with contextlib.ExitStack() as open_:
        sides = {}
        for name in spent:
            model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
                vocab_size=VOCAB, n_layer=4, n_embd=256, n_head=4, n_positions=128))  # fmt: skip
            optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
            asked = Diagnostics(every=every) if name == "with" else None
            folder = root / f"cost-{name}-{time.time_ns()}"
            sides[name] = model, optimizer, open_.enter_context(Recorder(folder, model, optimizer, diagnostics=asked))
        for _, (name, (model, optimizer, recorder)) in itertools.product(range(steps), sides.items()):
            began = time.process_time()
            optimizer.zero_grad()
            loss = model(input_ids=ids, labels=ids).loss
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            spent[name].append(time.process_time() - began)
    usual = median(spent["without"][every + 2 :])
    later = range(every, steps, every)
    looks = [spent["with"][at] - spent["without"][at] for at in later]
    again = median(spent["without, again"][every + 2 :]) / usual
    between = median(spent["with"][at] for at in range(every + 2, steps) if at % every) / usual
    size, least, most = sum(one.numel() for one in model.parameters()), min(looks) / usual, max(looks) / usual
    first, look = (spent["with"][0] - spent["without"][0]) / usual, median(looks) / usual
    yield f"{size:,} parameters, a step of {usual * 1e3:.0f} ms on one thread; CPU time, in turns in one process."
    yield f"Without diagnostics once more {again:.3f} × a step, with them between two looks {between:.3f} ×."
    yield f"The first look takes {first:.1f} steps, a later one {look:.2f} ({least:.2f} to {most:.2f}):"
    yield f"every 50 steps {1 + look / 50:.3f} × a step."


def by_instrument(times: int = 7) -> Iterator[str]:
    """Yield what each instrument takes alone beside a step of the model of `cost`, the median of so many times."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCAB, n_layer=4, n_embd=256, n_head=4, n_positions=128)
    model: Any = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    ids = torch.randint(0, VOCAB, (4, 128), generator=torch.Generator().manual_seed(0))
    call: dict[Any, Any] = dict.fromkeys(("input_ids", "labels"), ids[:, :64])

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()

    watched = Watched(model, optimizer)
    looked = copied(watched)
    assert looked is not None
    maps, rows = look(looked, call).attention, torch.randn(2, 64, 256)
    matrices, wide = PowerIteration(), [(name, one) for name, one in looked.named_parameters() if one.dim() > 1]
    logits, labels = model(input_ids=ids).logits.flatten(0, 1).detach(), ids.flatten()
    each: Mapping[str, Callable[[], object]] = {
        "a step of training": step,
        "a copy of the model, its parameters shared": lambda: copied(watched),
        "the evaluation alone, 4 x 64 tokens": lambda: run(looked, call),
        "with activations and attention": lambda: look(looked, call),
        "attention of the shuffled batch": lambda: attention(looked, call),
        "heads that are alike, and what a shuffle changes": lambda: (redundant(maps), content(maps, maps)),
        "spectral norms": lambda: matrices.measure(wide),
        "alignment of embeddings": lambda: alignment(*rows),
        "losses of a step in float64": lambda: losses(logits, labels),
        "logits of weights in another order, once": lambda: of_chance(looked, call),
        "gradients against differences, once and where asked": lambda: differences(looked, call),
        "weights and gradients of an analysis checkpoint": lambda: [
            (statistics(one, grid=False), gradient_statistics(one)) for one in model.parameters()
        ],
    }
    usual = 0.0
    yield "| instrument | ms | of a step | every 50 steps |\n|---|---|---|---|"
    with torch.no_grad():
        for name, measured in each.items():
            spent = []
            for _ in range(1 if "once and" in name else times):
                began = time.process_time()
                with torch.set_grad_enabled(measured is step):
                    measured()
                spent.append(time.process_time() - began)
            middle = median(spent)
            usual = usual or middle
            share = "once" if "once" in name else f"{1 + middle / usual / 50:.4f}" if measured is not step else "-"
            yield f"| {name} | {middle * 1e3:.1f} | {middle / usual:.3f} | {share} |"


def main(root: Path) -> None:
    """Train what is not there yet, and print both tables."""
    healthy = {
        name: [judged(train(root / f"{name}-{seed}", name, seed, FAULTS["healthy"])) for seed in SEEDS] for name in MAKE
    }
    faults = {name: fault for name, fault in FAULTS.items() if fault.rows}
    counts: dict[str, Any] = {
        "runs": len(SEEDS) * len(MAKE),
        "seeds": len(SEEDS),
        "faults": len(faults),
        "of": OF_FAULTS,
    }
    print(HEAD.format(models=", ".join(MAKE), **counts))
    print(*table(healthy), sep="\n")
    failed = collections.Counter(cell[0] for runs in healthy.values() for one in runs for cell in one.values())
    print(
        f"\nOf {failed.total()} verdicts on healthy runs, {failed['F']} are FAIL. Where none of so many runs has one,"
    )
    print(f"95 of 100 times fewer than {100 * (1 - 0.05 ** (1 / counts['runs'])):.0f} of 100 such runs have.\n")
    print("| fault | must FAIL | does not | FAIL besides | the first that must says |\n|---|---|---|---|---|")
    first = root / f"{OF_FAULTS}-{SEEDS[0]}"
    for name, fault in faults.items():
        folder = root / f"{OF_FAULTS}-{SEEDS[1]}" if fault.beside in ("replay", "reference") else root / name
        found = judged(train(folder, OF_FAULTS, SEEDS[0], fault), **({fault.beside: first} if fault.beside else {}))
        fails = [row for row, cell in found.items() if cell[0] == "F"]
        must = fault.rows.split()
        lacking, besides = [row for row in must if row not in fails], [row for row in fails if row not in must]
        says = found[must[0]][2].replace("|", "\\|")
        print(f"| {fault.says} | {' '.join(must)} | {' '.join(lacking)} | {' '.join(besides)} | {says} |", flush=True)
    print("\n## What looking inside the model costs\n")
    print(*cost(root), sep="\n")
    print("\nBy instrument, each alone:\n")
    print(*by_instrument(), sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
