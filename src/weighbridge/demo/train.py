"""Train the demo's GPT on the standard library's text, recorded; run as `python -m weighbridge.demo.train FOLDER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file

from weighbridge.demo.gpt import GPT, SHAPE, loss_of, standard_library
from weighbridge.recorder import Recorder

SEED = 7
STEPS = 130
BATCH = 8
CORPUS_BYTES = 100 * BATCH * SHAPE.context  # so that the steps pass it once and begin again
LEARNING_RATE = 1e-3


class Batches:
    """One pass over the corpus in order: ids `[batch, context + 1]`, the last token of a row the first of the next."""

    def __init__(self, text: bytes) -> None:
        self.ids = torch.tensor(list(text), dtype=torch.long)
        self.rows = (len(text) - 1) // SHAPE.context

    def __iter__(self) -> Iterator[torch.Tensor]:
        for first in range(0, self.rows - BATCH + 1, BATCH):
            starts = range(first * SHAPE.context, (first + BATCH) * SHAPE.context, SHAPE.context)
            yield torch.stack([self.ids[start : start + SHAPE.context + 1] for start in starts])

    @property
    def tokens(self) -> int:
        """Count the tokens of one pass."""
        return self.rows // BATCH * BATCH * SHAPE.context


def train(folder: Path) -> None:
    """Train, record into `folder/run`, and save `folder/model.safetensors` as BF16."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the model is too small to share
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = GPT().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    batches = Batches(standard_library(CORPUS_BYTES + 1))
    with Recorder(
        folder / "run", model, optimizer, loader=batches, requested_device=device, corpus_tokens=batches.tokens,
        seq_len=SHAPE.context, batch_size=BATCH, vocab=SHAPE.vocab, seeds={"python": SEED},
    ) as recorder:  # fmt: skip
        for _, batch in zip(range(STEPS), recorder.cycle(), strict=False):
            optimizer.zero_grad()
            loss = loss_of(model, batch.to(device))
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            recorder.step(loss)
    state = {name: tensor.to(torch.bfloat16).cpu().contiguous() for name, tensor in model.state_dict().items()}
    save_file(state, folder / "model.safetensors")


if __name__ == "__main__":
    train(Path(sys.argv[1]))
