"""A fine-tune of a tiny GPT-2 on another dialect, under the Trainer of Transformers."""

from __future__ import annotations

import functools
import tempfile
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.training_faults.language import VOCAB, rows
from benchmarks.training_faults.program import Program, recorder, run
from torch import nn

from weighbridge.recorder import Recorder

WIDTH, LENGTH, EXAMPLES, PROMPT, BATCH = 32, 24, 320, 3, 8
PAD, IGNORED = 0, -100

transformers.logging.set_verbosity_error()  # type: ignore[no-untyped-call,unused-ignore]


def fresh() -> Any:
    """Make a model that knows nothing."""
    shape = {"vocab_size": VOCAB, "n_positions": 32, "n_embd": WIDTH, "n_layer": 2, "n_head": 2}
    config = transformers.GPT2Config(**shape, bos_token_id=PAD, eos_token_id=PAD, pad_token_id=PAD, use_cache=False)
    return transformers.GPT2LMHeadModel(config)


@functools.cache
def pretrained() -> Mapping[str, torch.Tensor]:
    """Train a model on the first dialect, once; return its weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fresh()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for batch in rows(8 * 200, LENGTH, seed=99).split(8):  # type: ignore[no-untyped-call]
            optimizer.zero_grad()
            model(input_ids=batch, labels=batch).loss.backward()
            optimizer.step()
    return dict(model.state_dict())


def examples(count: int, seed: int) -> list[dict[str, torch.Tensor]]:
    """Write examples of several lengths whose prompt is not learnt."""
    lengths = torch.randint(10, LENGTH + 1, (count,), generator=torch.Generator().manual_seed(2000 + seed))
    found = []
    for row, length in zip(rows(count, LENGTH, seed, dialect=1), lengths.tolist(), strict=True):
        labels = row[:length].clone()
        labels[:PROMPT] = IGNORED
        found.append({"input_ids": row[:length], "labels": labels})
    return found


class FineTune(Program):
    name = "fine-tune"
    pad_label = IGNORED
    side, mask_padding = "right", True
    loss_function: Callable[..., torch.Tensor] | None = None
    trainer: Any = None

    def __init__(self, seed: int) -> None:
        weights = pretrained()
        super().__init__(seed)
        self.model: Any = fresh()
        self.model.load_state_dict(weights)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.01)
        self.scheduled(lambda step: 1 - step / (2 * self.steps))
        self.declare_rate(3e-3, "linear", 2 * self.steps)
        self.params["first"] = "0.9"  # of ln V: what was learnt before is worth more than nothing
        self.data, self.held_out = examples(EXAMPLES, seed), examples(32, seed + 10_000)
        self.settings: dict[str, Any] = {"per_device_train_batch_size": BATCH, "logging_strategy": "no"}
        self.declared |= {"seq_len": LENGTH, "batch_size": BATCH, "vocab": VOCAB}

    @property
    def middle(self) -> nn.Module:
        found: nn.Module = self.model.transformer.h[1].mlp.c_fc
        return found

    def collate(self, items: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Pad a batch to its longest example."""
        pad = functools.partial(nn.utils.rnn.pad_sequence, batch_first=True, padding_side=self.side)
        ids = pad([one["input_ids"] for one in items], padding_value=PAD)
        labels = pad([one["labels"] for one in items], padding_value=self.pad_label)
        mask = (ids != PAD).long() if self.mask_padding else torch.ones_like(ids)
        found: dict[str, torch.Tensor] = self.batch({"input_ids": ids, "labels": labels, "attention_mask": mask})
        return found

    def evaluation_loss(self) -> torch.Tensor:
        loss: torch.Tensor = self.model(**self.collate(self.held_out)).loss
        return loss

    def train(self, directory: Path, channels: str) -> None:
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            arguments = transformers.TrainingArguments(
                output_dir=folder, max_steps=self.steps, report_to=[], save_strategy="no", use_cpu=True,
                disable_tqdm=True, remove_unused_columns=False, seed=self.seed, **self.settings,
            )  # fmt: skip
            watch = Watch(self, directory, channels)
            self.trainer = Watched(
                model=self.model,
                args=arguments,
                train_dataset=self.data,
                data_collator=self.collate,
                optimizers=(self.optimizer, self.schedule),
                compute_loss_func=self.loss_function,
                callbacks=[watch],
            )
            self.trainer.watch = watch
            self.trainer.remove_callback(transformers.PrinterCallback)
            self.trainer.train()


class Watched(transformers.Trainer):  # type: ignore[misc,unused-ignore]
    """The Trainer, whose losses are handed to the recorder: it gives no callback its own."""

    watch: Watch

    def compute_loss(self, model: Any, inputs: dict[str, torch.Tensor], *args: Any, **named: Any) -> Any:
        tokens = int(inputs["attention_mask"].sum())
        loss = super().compute_loss(model, inputs, *args, **named)
        self.watch.saw((loss[0] if isinstance(loss, tuple) else loss).detach(), tokens)
        return loss


class Watch(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Record each update, and give a fault its turn at each point."""

    rec: Recorder

    def __init__(self, program: FineTune, directory: Path, channels: str) -> None:
        self.program, self.directory, self.channels = program, directory, channels
        self.losses: list[torch.Tensor] = []
        self.tokens = 0

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.rec = recorder(self.directory, self.program, self.channels).__enter__()

    def saw(self, loss: torch.Tensor, tokens: int) -> None:
        self.losses.append(loss)
        self.tokens += tokens

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        self.program.step = state.global_step
        run(self.program.before_forward)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        run(self.program.before_update)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        run(self.program.after_update)

    def on_step_end(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        due = self.program.evaluate_every and state.global_step % self.program.evaluate_every == 0
        evaluated = self.program.evaluate() if due else None
        self.rec.step(torch.stack(self.losses).sum(), tokens=self.tokens, val_loss=evaluated)
        self.losses, self.tokens = [], 0
        run(self.program.between)

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.rec.__exit__(None, None, None)
