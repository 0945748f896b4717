"""What llama.cpp's converter writes of its own, whatever a source says, and what it is known to lose. Data.

One row a fact, with the line of the converter that makes it (llama-cpp-python 0.3.36, below `conversion/`).
Architectures are GGUF's names. A field that a fact covers is told and not compared; what is lost stays a difference,
and says where it is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weighbridge.core.model import Json
from weighbridge.model_config.model_keys import Model, head_dim
from weighbridge.quantities.checkpoints import CONFIG_FIELDS

CONVERTER = "of llama.cpp's converter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a converter does with fields of some architectures; `unsaid` holds where a directory does not state them.

    Of what is lost, `makes` is what the import then holds, as multiples of its fields (of 1 under no name; nothing
    where it is empty), `whose` the `model_type` of the source and `said` its value, where these tell it.
    """

    of: tuple[str, ...]
    fields: tuple[str, ...]
    why: str
    line: str
    unsaid: bool = False
    makes: tuple[tuple[str, float], ...] = ()
    whose: str = ""
    said: Json = None

    @property
    def told(self) -> str:
        """Return the reason, with the converter's line."""
        return f"{self.why} ({self.line} {CONVERTER})"


NO_ATTENTION = "context_length", "feed_forward_length", "head_count", "head_count_kv", "head_dim", "rope_dimensions"
COMPRESSED = "the import's attention is laid out compressed, with one key-value head of another size"
UNUSED = "the import holds a placeholder, which no loader of this architecture reads"
NO_POSITIONS = "2^20 is written where no position is turned"
NOT_MEANT: tuple[Fact, ...] = (
    Fact(of=("mamba", "mamba2"), fields=NO_ATTENTION, why=UNUSED, line="mamba.py:63"),
    Fact(of=("rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"), fields=NO_ATTENTION, why=UNUSED, line="rwkv.py:31"),
    Fact(of=("deepseek2", "deepseek32", "glm-dsa", "kimi-linear"), fields=("head_count_kv",), why=COMPRESSED,
         line="deepseek.py:350"),
    Fact(of=("falcon",), fields=("context_length",), why="2048 is written for every model", line="falcon.py:27"),
    Fact(of=("granitehybrid",), fields=("context_length",), why=NO_POSITIONS, line="granite.py:521"),
    Fact(of=("nemotron_h", "nemotron_h_moe"), fields=("context_length",), why=NO_POSITIONS, line="granite.py:521"),
    Fact(of=("gemma3", "gemma4"), fields=("vocab_size",), line="gemma.py:161, base.py:1581",
         why="rows beyond the tokenizer's are cut; the tensors tell"),
    Fact(of=("gemma4",), fields=("rope_dimensions",), line="gemma.py:898",
         why="the share that turns is in rope_freqs.weight, compared as a tensor"),
    Fact(of=("bloom",), fields=("context_length",), unsaid=True, line="bloom.py:25",
         why="the width is written where no seq_length is stated"),
    Fact(of=("chatglm", "glm4", "glm4moe", "glm-dsa", "deepseek2"), fields=("bos_token_id", "unk_token_id"),
         unsaid=True, line="base.py:2363",
         why="[GMASK] and <|endoftext|> are written where a tokenizer names no such token"),
    Fact(of=("nemotron",), fields=("pad_token_id", "unk_token_id"), unsaid=True, line="nemotron.py:162",
         why="0 and 1 are written where a tokenizer names no such token"),
    Fact(of=("qwen3vl",), fields=("chat_template",), unsaid=True, line="qwen3vl.py:387",
         why="ChatML is written for Qwen3-ASR"),
    Fact(of=("gemma4",), fields=("add_bos_token",), unsaid=True, line="gemma.py:669",
         why="it is written for every model"),
)  # fmt: skip

NO_WINDOW = "no window is written, and the loader of this architecture has none"
NOTHING = (("", 0),)
LOST: tuple[Fact, ...] = (
    Fact(of=("llama", "mistral3", "starcoder2", "qwen3vlmoe"), fields=("sliding_window",), why=NO_WINDOW,
         line="llama.py", makes=NOTHING),
    Fact(of=("nemotron_h", "nemotron_h_moe"), fields=("sliding_window",), why=NO_WINDOW, line="nemotron.py",
         makes=NOTHING),
    Fact(of=("nemotron_h", "nemotron_h_moe"), fields=("feed_forward_length",), line="nemotron.py:209", makes=NOTHING,
         why="layers called `mlp` have no width, only those of experts"),
    Fact(of=("chatglm",), fields=("norm_epsilon",), why="layernorm_epsilon alone is read", line="chatglm.py:146",
         makes=(("", 1e-5),)),
    Fact(of=("chatglm",), fields=("context_length",), why="seq_length alone is read", line="chatglm.py:140",
         makes=(("embedding_length", 1),)),
    Fact(of=("gpt2", "starcoder", "mpt", "bloom", "falcon", "phi2"), fields=("feed_forward_length",),
         why="four times the width is written for every model", line="gpt2.py:22, phi.py:29",
         makes=(("embedding_length", 4),)),
    Fact(of=("phi2",), fields=("head_count_kv",), why="head_count is written for it", line="phi.py:32",
         makes=(("head_count", 1),)),
    Fact(of=("granitehybrid",), fields=("head_count_kv",), line="granite.py:443", makes=NOTHING,
         why="layers called `attention` are counted, which transformers 5 calls `full_attention`"),
    Fact(of=("granitehybrid",), fields=("rope_dimensions",), line="granite.py:510", makes=(("head_dim", 1),),
         why="attn_rotary_emb is read, which transformers 5 writes as partial_rotary_factor"),
    Fact(of=("glm4", "glm4moe", "qwen3next", "qwen4exp"), fields=("rope_dimensions",),
         line="glm.py:26, glm.py:158, qwen.py:392", makes=(("head_dim", 0.5), ("head_dim", 0.25)),
         why="a half or a quarter is taken where no partial_rotary_factor is stated, and transformers takes all"),
    Fact(of=("laguna",), fields=("sliding_window",), line="laguna.py:87", makes=(("sliding_window", 1),), said=0,
         why="sliding_window is written though no layer of layer_types has one"),
    Fact(of=("bert",), fields=("context_length", "tokenizer_model"), line="bert.py:17", whose="camembert",
         why="a CamemBERT is written as a BERT, whose positions begin at 0 and whose tokenizer is WordPiece"),
    Fact(of=("cohere2moe",), fields=("feed_forward_length",), line="base.py:1445",
         why="prefix_dense_intermediate_size is read and is null"),
)  # fmt: skip


def lost(name: str, value: Json, source: Model, candidate: Model) -> str:
    """Return what is known to be lost where a GGUF file holds this value of a field, or nothing."""
    fact = LOSSES.get((candidate.architecture, name))
    stated = source.fields[name].value if name in source.fields else None
    if fact is None or fact.whose not in ("", source.architecture) or fact.said not in (None, stated):
        return ""
    numbers: dict[str, Json] = {key: one.value for key, one in candidate.fields.items()}
    numbers |= {"": 1, "head_dim": head_dim(candidate.fields)}
    made = [times * number for key, times in fact.makes if isinstance(number := numbers.get(key), (int, float))]
    fits = value in made if made else fact.whose or value is None
    return fact.told if fits else ""


def _by_field(facts: tuple[Fact, ...]) -> Mapping[tuple[str, str], Fact]:
    assert all(field in CONFIG_FIELDS for fact in facts for field in fact.fields)
    return {(one, field): fact for fact in facts for one in fact.of for field in fact.fields}


WRITTEN, LOSSES = _by_field(NOT_MEANT), _by_field(LOST)
