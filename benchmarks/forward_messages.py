"""Twelve bugs in a forward pass, and what `forward-parity` says of each, in full.

    python benchmarks/forward_messages.py > benchmarks/forward_messages.md

Qwen2, Llama and GPT-2 of transformers as in `forward_parity.py`; a window, a cache and a router of Mistral, Qwen2 and
Qwen3-MoE. A message is what `verify --verbose` prints of the finding.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.forward_damages import bugs
from benchmarks.forward_families import COMMON, FAMILIES, saved
from benchmarks.forward_models import TOKENS as OF_SMALL
from benchmarks.forward_models import Site, kernels, model
from benchmarks.forward_parity import judged as judged_small
from benchmarks.forward_parity import view

from weighbridge.core.model import Finding, Measurement, Severity, Verdict
from weighbridge.forward.stacks import Torch
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.forward_parity import judge
from weighbridge.report import ENOUGH, HINTS, finding_text
from weighbridge.verifiers.forward_errors import VERIFIER

SMALL = (
    ("qwen2", "float32", 1, "no k bias"),
    ("qwen2", "bfloat16", 1, "two q rows swapped"),
    ("llama", "float32", 1, "rope of half the channels"),
    ("llama", "bfloat16", 1, "mask off by one"),
    ("qwen2", "bfloat16", 1, "grouped heads tiled"),
    ("llama", "float32", 1, "eps ten times"),
    ("gpt2", "bfloat16", 1, "another activation"),
    ("gpt2", "bfloat16", 1, "last token 5 % off"),
    ("qwen2", "bfloat16", 1, "layer's residual dropped"),
)
TOKENS = [[(37 * n + 11 * n * n + 29 * row) % 126 + 2 for n in range(40)] for row in range(4)]


@torch.no_grad()
def small(family: str, dtype: str, layer: int, bug: str) -> Verdict:
    """Return the verdict on a bug of `forward_damages.py`."""
    made = kernels(model(family), attends="softmax in float32")
    next(bring for name, bring, _ in bugs(Site(made, family, layer)) if name == bug)()
    candidate = Torch(module=made, tokens=OF_SMALL, dtype=dtype)
    return judged_small(family, dtype, 0, "drawn", candidate)


@torch.no_grad()
def changed(family: str, root: str, change: Callable[[Any], object], decode: int = 0) -> Verdict:
    """Return the verdict on a saved model with a change, against itself, in float32."""

    def stack(decode: int = 0) -> Torch:
        config = getattr(transformers, f"{family}Config")(**COMMON, **FAMILIES[family])
        made = transformers.AutoModelForCausalLM.from_pretrained(saved(family, root), config=config)
        return Torch(module=made.eval(), tokens=TOKENS, decode=decode)

    other = stack(decode)
    change(other.plain)
    found = VERIFIER.measure((view(stack()), view(other)), {})
    assert isinstance(found, Measurement), found
    return judge({"points": found}, Limits(other_weights=("*",)))


def wider_window(made: Any) -> None:
    """Let every layer see one token more than the window."""
    made.config.sliding_window += 1


def old_row(made: Any) -> None:
    """Let one layer's attention read a row of the cache that an earlier token wrote."""
    attention = made.model.layers[1].self_attn
    made.config._attn_implementation = "stale"  # noqa: SLF001 -- no other way
    attention.stale = True


def attend_stale(module: Any, query: Any, key: Any, value: Any, *args: Any, **named: Any) -> Any:
    """Attend to a copy of the keys in which one row is another's, where one token is decoded."""
    if getattr(module, "stale", False) and query.shape[2] == 1:
        key = key.clone()
        key[:, :, 7] = key[:, :, 6]
    eager = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
    return eager(module, query, key, value, *args, **named)


transformers.AttentionInterface.register("stale", attend_stale)


def not_renormalised(made: Any) -> None:
    """Leave the shares of the chosen experts as they came out of the softmax."""
    for part in made.modules():
        if hasattr(part, "norm_topk_prob"):
            part.norm_topk_prob = not part.norm_topk_prob


def message(verdict: Verdict) -> Iterator[str]:
    """Yield the lines that `verify --verbose` prints."""
    finding = Finding(
        gate="GATE", instance="", kind="forward-parity", kind_version=5, severity=Severity.REQUIRED, verdict=verdict
    )
    said = finding_text(finding, {})
    yield f"{verdict.outcome}  {verdict.code}"
    yield from said.lines[:4]
    if len(said.lines) > 4:
        yield f"({len(said.lines) - 4} more points)"
    yield from ([said.besides] if said.besides else [])
    yield f"{ENOUGH}: {said.enough}"
    yield from (f"{HINTS.get(label, label)}: {text}" for label, text in said.helps)


TITLE = """# Twelve messages

Written by `python benchmarks/forward_messages.py`: a bug, and what `forward-parity` says of it."""
OTHERS: tuple[tuple[str, str, Callable[[Any], object], int], ...] = (
    ("Mistral", "a window of 9 for 8", wider_window, 0),
    ("Qwen2", "8 tokens decoded: an old row of the cache", old_row, 8),
    ("Qwen3Moe", "shares of experts not renormalised", not_renormalised, 0),
)


def main() -> None:
    """Print the page."""
    print(TITLE)
    with tempfile.TemporaryDirectory() as root:
        judged: dict[str, Callable[[], Verdict]] = {}
        for family, dtype, layer, bug in SMALL:
            judged[f"{family}, {dtype}, layer {layer}: {bug}"] = partial(small, family, dtype, layer, bug)
        for family, bug, change, decode in OTHERS:
            judged[f"{family}, float32: {bug}"] = partial(changed, family, root, change, decode)
        for name, run in judged.items():
            print(f"\n## {name}\n\n```text", *message(run()), "```", sep="\n", flush=True)


if __name__ == "__main__":
    main()
