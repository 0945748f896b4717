"""Train a small byte-level GPT on text that every machine has, recorded: `python -m weighbridge.demo.train FOLDER`."""

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from weighbridge.core import dataclass
from weighbridge.recorder import Recorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The sizes of the model; tokens are bytes."""

    vocab: int = 256
    context: int = 128
    width: int = 96
    heads: int = 4
    layers: int = 3


SHAPE = Shape()


class Attention(nn.Module):
    """Causal self-attention with biases on q, k and v; `[sequences, tokens, width]` to the same."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(SHAPE.width, SHAPE.width) for _ in "qkvo")

    def forward(self, x: Tensor) -> Tensor:
        """Attend to this token and the earlier ones."""
        q, k, v = (part(x).unflatten(-1, (SHAPE.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.o(mixed.transpose(1, 2).flatten(2))
        return out


class Block(nn.Module):
    """One transformer block, normalised before each part."""

    def __init__(self) -> None:
        super().__init__()
        self.attn_norm = nn.LayerNorm(SHAPE.width)
        self.attn = Attention()
        self.ffn_norm = nn.LayerNorm(SHAPE.width)
        self.up = nn.Linear(SHAPE.width, 4 * SHAPE.width)
        self.act = nn.GELU(approximate="tanh")
        self.down = nn.Linear(4 * SHAPE.width, SHAPE.width)

    def forward(self, x: Tensor) -> Tensor:
        """Add attention, then the feed-forward part."""
        x = x + self.attn(self.attn_norm(x))
        out: Tensor = x + self.down(self.act(self.up(self.ffn_norm(x))))
        return out


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(SHAPE.vocab, SHAPE.width)
        self.position = nn.Embedding(SHAPE.context, SHAPE.width)
        self.blocks = nn.ModuleList(Block() for _ in range(SHAPE.layers))
        self.norm = nn.LayerNorm(SHAPE.width)
        self.head = nn.Linear(SHAPE.width, SHAPE.vocab, bias=False)
        self.apply(_initialise)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids `[sequences, tokens]` to logits `[sequences, tokens, vocab]`."""
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def _initialise(module: nn.Module) -> None:
    """Draw weights from N(0, 0.02), so that the first loss is near ln(vocab); biases small, so that none is idle."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.normal_(module.bias, std=0.02)


def loss_of(model: nn.Module, batch: Tensor) -> Tensor:
    """Return the mean next-byte cross-entropy in nats over a batch of ids `[sequences, tokens + 1]`."""
    return functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1).float(), batch[:, 1:].flatten())


def standard_library(size: int) -> bytes:
    """Read the first `size` bytes of the standard library's top-level modules, in the order of their names."""
    folder = Path(sysconfig.get_path("stdlib"))
    text = bytearray()
    for path in sorted(folder.glob("*.py")):
        text += path.read_bytes()
        if len(text) >= size:
            return bytes(text[:size])
    return bytes(text)


SEED = 7
STEPS = 130
BATCH = 8
CORPUS_BYTES = 100 * BATCH * SHAPE.context  # so that the steps pass it once and begin again


class Batches:
    """One pass over the corpus in order: ids `[batch, context + 1]`, the last token of a row the first of the next."""

    def __init__(self, text: bytes) -> None:
        self.ids = torch.tensor(list(text), dtype=torch.long)
        self.rows = (len(text) - 1) // SHAPE.context

    def __iter__(self) -> Iterator[Tensor]:
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
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
