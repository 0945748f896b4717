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
from benchmarks.training_faults.program import STEPS, Program, run
from torch import nn

from weighbridge.integrations.transformers import Callback

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

    def __init__(self, seed: int) -> None:
        weights = pretrained()
        super().__init__(seed)
        self.model: Any = fresh()
        self.model.load_state_dict(weights)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3, weight_decay=0.01)
        self.scheduled(lambda step: 1 - step / (2 * STEPS))
        self.declare_decay()
        self.declare_rate(3e-3, "linear", 2 * STEPS)
        self.declare_clip(1.0)  # as the Trainer does unless it is told not to
        self.params["first"] = "0.95"  # of ln V: what was learnt is worth more than nothing, in few rows too
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
            evaluation = {"eval_strategy": "steps", "eval_steps": self.evaluate_every} if self.evaluate_every else {}
            arguments = transformers.TrainingArguments(
                output_dir=folder, max_steps=self.steps, report_to=[], save_strategy="no", use_cpu=True,
                disable_tqdm=True, remove_unused_columns=False, seed=self.seed, **evaluation, **self.settings,
            )  # fmt: skip
            trainer = Trainer(
                model=self.model,
                args=arguments,
                train_dataset=self.data,
                eval_dataset=self.held_out,
                data_collator=self.collate,
                optimizers=(self.optimizer, self.schedule),
                compute_loss_func=self.loss_function,
                callbacks=[Callback(directory, channels=channels, **self.declared), Turns(self)],
            )
            trainer.program = self
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()


class Trainer(transformers.Trainer):  # type: ignore[misc,unused-ignore]
    """The Trainer, which evaluates as the program does."""

    program: FineTune

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        loss = self.program.evaluate()
        found = {} if loss is None else {"eval_loss": float(loss)}
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, found)
        return found


class Turns(transformers.TrainerCallback):  # type: ignore[misc,unused-ignore]
    """Give a fault its turn at each point."""

    def __init__(self, program: FineTune) -> None:
        self.program = program

    def on_step_begin(self, _: Any, state: Any, *__: Any, **___: Any) -> None:
        self.program.step = state.global_step
        run(self.program.before_forward)

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        run(self.program.before_update)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        run(self.program.after_update)

    def on_step_end(self, *_: Any, **__: Any) -> None:
        run(self.program.between)
