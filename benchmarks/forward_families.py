"""Families of transformers as they are: the model against itself by another attention, swapped rows, and decoding."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from torch import nn

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement, Outcome, Verdict
from weighbridge.forward import stacks
from weighbridge.forward.reach import cache_parameter
from weighbridge.gates.families.local_errors import Limits
from weighbridge.gates.forward_parity import judge
from weighbridge.verifiers.forward_errors import VERIFIER
from weighbridge.views.model_view import ModelView, open_model

COMMON: Mapping[str, Any] = {
    "vocab_size": 128, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
KV: Mapping[str, Any] = {"intermediate_size": 96, "num_key_value_heads": 2, "max_position_embeddings": 256}
HEAD: Mapping[str, Any] = {**KV, "head_dim": 16}
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "Qwen2": KV, "Qwen3": HEAD, "Llama": KV, "Mistral": {**KV, "sliding_window": 8}, "Gemma": HEAD,
    "Gemma2": {**HEAD, "sliding_window": 8}, "Gemma3Text": {**HEAD, "sliding_window": 8}, "Phi3": KV, "Phi": KV,
    "Olmo2": KV, "GPT2": {"n_positions": 256}, "GPTNeoX": {"intermediate_size": 96, "max_position_embeddings": 256},
    "OPT": {"ffn_dim": 96, "max_position_embeddings": 256, "word_embed_proj_dim": 64},
    "Mixtral": {**KV, "num_local_experts": 4, "num_experts_per_tok": 2},
    "Qwen3Moe": {**HEAD, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48},
    "Mamba": {"state_size": 8}, "Bloom": {}, "Falcon": {}, "StableLm": KV, "Cohere": KV, "Granite": KV, "SmolLM3": KV,
    "Starcoder2": KV, "GPTJ": {"n_positions": 256, "rotary_dim": 8},
}  # fmt: skip
DECODING = ("Qwen2", "Llama", "Mistral", "GPT2", "Gemma3Text", "Falcon", "OPT")
EAGER_ALONE = ("Mamba", "Bloom", "GPTJ", "Gemma2")  # these have no other attention, or compute another thing by it


def saved(family: str, root: str) -> Path:
    """Write a small model with drawn weights as `save_pretrained` does."""
    folder = Path(root) / family
    if not folder.is_dir():
        torch.manual_seed(1)
        made = transformers.AutoModelForCausalLM.from_config(
            getattr(transformers, f"{family}Config")(**COMMON, **FAMILIES[family])
        )
        for name, weight in made.named_parameters():
            if name.endswith("bias"):
                nn.init.normal_(weight, std=0.1)
            elif weight.ndim == 1:
                weight.add_(0.1 * torch.randn_like(weight))
            elif family != "Mamba":
                weight.mul_(4)  # so that attention attends
        made.save_pretrained(folder)
    return folder


def judged(folder: Path, candidate: ModelView, **limits: Any) -> Verdict:
    """Return the verdict on a candidate, against the model that attends eagerly."""
    reference = open_model(f"hf:{folder}?attn_implementation=eager")
    found = VERIFIER.measure((reference, candidate), {})
    assert isinstance(found, Measurement), found
    return judge({"points": found}, Limits(**limits))


def other(folder: Path, family: str, dtype: str, more: str = "") -> str:
    """Return the model by another attention, where it has one."""
    attention = "" if family in EAGER_ALONE else "&attn_implementation=sdpa"
    return f"hf:{folder}?dtype={dtype}{more}{attention}"


def swapped(spec: str, path: str) -> Any:
    """Return the model with two rows of a linear swapped."""
    stack: Any = open_model(spec).stack()
    part = stack.module.get_submodule(path)
    weight = part.weight if isinstance(part, nn.Linear) else part.weight.T
    weight[[0, 5]] = weight[[5, 0]].clone()
    return stack


@torch.no_grad()
def try_families(_seeds: int, dtypes: tuple[str, ...]) -> None:
    """Judge each family against itself, then with two rows swapped in every linear of its middle layer."""
    sums = {"pass": 0, "of": 0, "exact": 0, "swaps": 0}
    with tempfile.TemporaryDirectory() as root:
        for family in FAMILIES:
            folder = saved(family, root)
            stack: Any = open_model(f"hf:{folder}").stack()
            linear = (nn.Linear, transformers.pytorch_utils.Conv1D)
            paths = [path for path, part in stack.module.named_modules() if ".1." in path and isinstance(part, linear)]
            for dtype in dtypes:
                spec = other(folder, family, dtype)
                verdict = judged(folder, open_model(spec))
                sums["pass"] += verdict.outcome is Outcome.PASS
                sums["of"] += 1
                exact = []
                for path in paths:
                    bug = ModelView(spec="swap", source=SimpleNamespace(make=lambda p=path, s=spec: swapped(s, p)))
                    wrong = judged(folder, bug, other_weights=("*",))
                    exact.append(wrong.outcome is Outcome.FAIL and wrong.figures.get("first") == f"{path}.out")
                    if not exact[-1]:
                        print(f"    {path}: {wrong.outcome.name} {wrong.code} {wrong.figures.get('first')}")
                sums["exact"] += sum(exact)
                sums["swaps"] += len(exact)
                share = float(str(verdict.figures.get("budget_used") or 0))
                print(f"  {family:12}{dtype:10}{len(verdict.looked):4} points, {verdict.code} at {share:.0%} of the "
                      f"limit; {sum(exact)} of {len(exact)} swaps exact", flush=True)  # fmt: skip
    print(f"Families: {sums['pass']} of {sums['of']} pass, {sums['exact']} of {sums['swaps']} swaps exact", flush=True)


@torch.no_grad()
def try_saved(work: Path, dtypes: tuple[str, ...]) -> None:
    """Judge every model that `families.py` saved, as `hf:DIR` without a file of the user's, by another attention."""
    counts = Counter[str]()
    for folder in sorted(work.glob("*-float32")):
        for dtype in dtypes:
            try:
                verdict = judged(folder, open_model(f"hf:{folder}?dtype={dtype}"))
                share = float(str(verdict.figures.get("budget_used") or 0))
                told = f"{len(verdict.looked)} points, at {share:.0%} of the limit: {verdict.code}"
                counts[verdict.outcome.name] += 1
            except SubjectError as problem:
                told = f"{problem.code}: {problem}".replace("\n", " ")[:200]
                counts[problem.code] += 1
            print(f"  {folder.name.removesuffix('-float32'):28}{dtype:10}{told}", flush=True)
    print(f"Saved: {dict(counts)}", flush=True)


def faulty(spec: str) -> ModelView:
    """Return a model that a faulty generation is for; its reference generates as it should."""
    view = open_model(spec)
    stack: Any = view.stack()
    stack.module.faulty = True
    return view


@contextmanager
def decoding(how: str) -> Iterator[None]:
    """Generate with positions one too far, or with one wrong row in the cache."""
    plain: Callable[..., None] = stacks._generate  # noqa: SLF001 -- a bug is put in its place

    def generate(module: Any, ids: torch.Tensor, steps: int, masks: Mapping[str, Any]) -> None:
        if not getattr(module, "faulty", False):
            plain(module, ids, steps, masks)
            return
        first = ids.shape[1] - steps
        rows = len(ids) if "OPT" in type(module).__name__ else 1  # as its own positions are
        given: Any = {name: one[:, :first] for name, one in masks.items()}
        name = cache_parameter(module)
        cache = getattr(module(input_ids=ids[:, :first], use_cache=True, **given), name)
        for at in range(first, ids.shape[1]):
            if how == "one wrong row of the cache" and at == first:
                cache.layers[1].values[:, :, 5] = cache.layers[1].values[:, :, 6]
            more = {"position_ids": torch.full((rows, 1), at + 1)} if how == "position one too far" else {}
            mask = {name: one[:, : at + 1] for name, one in masks.items()}
            cache = getattr(module(input_ids=ids[:, at : at + 1], **{name: cache}, **more, **mask), name)

    stacks._generate = plain if how == "clean" else generate  # noqa: SLF001
    try:
        yield
    finally:
        stacks._generate = plain  # noqa: SLF001


@torch.no_grad()
def try_decode(_seeds: int, dtypes: tuple[str, ...]) -> None:
    """Judge eight tokens decoded one by one against the whole sequence computed at once."""
    with tempfile.TemporaryDirectory() as root:
        for family in DECODING:
            folder = saved(family, root)
            for dtype in dtypes:
                for how in ("clean", "position one too far", "one wrong row of the cache"):
                    with decoding(how):
                        verdict = judged(folder, faulty(other(folder, family, dtype, "&decode=8")))
                    first = verdict.figures.get("first", "")
                    print(f"  {family:12}{dtype:10}{how:28}{verdict.outcome.name} {verdict.code} {first}", flush=True)
