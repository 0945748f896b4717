"""Make the specimens of models' configurations, good and damaged: `python verifiers/specimens/make_configs.py`.

Directories as Hugging Face lays them out, and GGUF headers, written byte by byte without any library. Deterministic.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "configs"
ORIGIN = {"weighbridge.origin": "fixture"}
HEADER = {"__metadata__": ORIGIN, "w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9
TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}"
PIECES = ["<s>", "</s>", "a", "b", "ab", "\u0120a", "[X]"]
MERGES = ["a b", "\u0120 a"]
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "##s"]


def safetensors() -> bytes:
    """Lay out a file of one tensor: what it holds does not matter here."""
    header = json.dumps(HEADER, separators=(",", ":")).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def text(value: str) -> bytes:
    """Write a GGUF string."""
    return struct.pack("<Q", len(value.encode())) + value.encode()


def typed(value: Any) -> bytes:
    """Write a GGUF value with its type."""
    match value:
        case bool():
            return struct.pack("<I?", BOOL, value)
        case int():
            return struct.pack("<II", UINT32, value)
        case float():
            return struct.pack("<If", FLOAT32, value)
        case str():
            return struct.pack("<I", STRING) + text(value)
        case list() if value and isinstance(value[0], str):
            return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(text(item) for item in value)
    return struct.pack(f"<IIQ{len(value)}I", ARRAY, UINT32, len(value), *value)


def gguf(keys: Mapping[str, Any], tensors: Sequence[str] = ("output.weight",)) -> bytes:
    """Lay keys and tensors of one element out as a GGUF file of version 3."""
    told = {**keys, **ORIGIN}
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(told))
    head += b"".join(text(key) + typed(value) for key, value in told.items())
    for at, name in enumerate(tensors):
        head += text(name) + struct.pack("<IQIQ", 1, 1, 0, 32 * at)
    return head + bytes(-len(head) % 32) + bytes(32 * len(tensors))


LLAMA = {
    "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "intermediate_size": 16,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": 8,
    "rms_norm_eps": 1e-06, "rope_theta": 500000.0, "rope_scaling": None, "hidden_act": "silu",
    "tie_word_embeddings": False, "bos_token_id": 0, "eos_token_id": [1, 6],
}  # fmt: skip
LLAMA_KEYS: dict[str, Any] = {
    "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 8,
    "llama.feed_forward_length": 16, "llama.attention.head_count": 4, "llama.attention.head_count_kv": [2, 2],
    "llama.context_length": 128, "llama.vocab_size": 8, "llama.attention.layer_norm_rms_epsilon": 1e-06,
    "llama.rope.freq_base": 500000.0, "llama.rope.dimension_count": 2, "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.tokens": [*PIECES, "[PAD7]"], "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 6, "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": TEMPLATE,
}  # fmt: skip
ADDED = [{"id": at, "content": PIECES[at], "special": True} for at in (0, 1, 6)]
FRAME = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}]}
TOKENIZER = {
    "added_tokens": ADDED, "post_processor": FRAME,
    "model": {"type": "BPE", "vocab": {piece: at for at, piece in enumerate(PIECES[:6])},
              "merges": [merge.split(" ") for merge in MERGES]},
}  # fmt: skip
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": TEMPLATE}

BERT = {
    "model_type": "bert", "num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2,
    "max_position_embeddings": 16, "vocab_size": 6, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip
BERT_KEYS: dict[str, Any] = {
    "general.architecture": "bert", "bert.block_count": 1, "bert.embedding_length": 8, "bert.feed_forward_length": 16,
    "bert.attention.head_count": 2, "bert.context_length": 16, "bert.attention.layer_norm_epsilon": 1e-12,
    "tokenizer.ggml.model": "bert", "tokenizer.ggml.padding_token_id": 0,
    "tokenizer.ggml.tokens": [*WORDS[:4], "\u2581the", "s"],
}  # fmt: skip


def piece(value: str) -> bytes:
    """Write one piece of a sentencepiece model, with a score and a type."""
    raw = value.encode()
    message = b"\x0a" + bytes([len(raw)]) + raw + b"\x15" + struct.pack("<f", -1.0) + b"\x18\x01"
    return b"\x0a" + bytes([len(message)]) + message


def directory(name: str, config: Any, **more: Any) -> dict[str, bytes]:
    """Lay a model's directory out; texts are written as they are, anything else as JSON."""
    files = {"config.json": config, **{key.replace("__", "."): value for key, value in more.items()}}
    told = {key: value if isinstance(value, (str, bytes)) else json.dumps(value) for key, value in files.items()}
    raw = {key: value if isinstance(value, bytes) else value.encode() for key, value in told.items()}
    return {f"{name}/{key}": value for key, value in {"model.safetensors": safetensors(), **raw}.items()}


def good() -> dict[str, bytes]:
    """Make the specimens that can be read, by file name; some say other things than their sources."""
    spelled = {**LLAMA_KEYS, "tokenizer.ggml.tokens": [*PIECES[:2], "b", "a", *PIECES[4:], "[PAD7]"]}
    silent = {key: value for key, value in LLAMA_KEYS.items() if key != "tokenizer.ggml.add_bos_token"}
    sentencepiece = b"".join(piece(one) for one in ("<s>", "</s>", "\u2581a"))
    plain = {key: LLAMA[key] for key in ("model_type", "num_hidden_layers", "hidden_size")}
    of_pieces: dict[str, Any] = {
        "general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 8,
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<s>", "</s>", "\u2581a", "[PAD3]"],
    }  # fmt: skip
    return {
        **directory("llama", LLAMA, tokenizer__json=TOKENIZER, tokenizer_config__json=SETTINGS),
        **directory("llama-again", {**LLAMA, "rope_theta": 10000}, tokenizer__json=TOKENIZER,
                    tokenizer_config__json={**SETTINGS, "chat_template": "other"}),
        **directory("bert", BERT, vocab__txt="\n".join(WORDS) + "\n"),
        **directory("sentencepiece", plain, tokenizer__model=sentencepiece),
        **directory("silent", {}),
        "llama.gguf": gguf(LLAMA_KEYS),
        "wrong-base.gguf": gguf({**LLAMA_KEYS, "llama.rope.freq_base": 10000.0}),
        "swapped-tokens.gguf": gguf(spelled),
        "no-add-bos.gguf": gguf(silent),
        "bert.gguf": gguf(BERT_KEYS),
        "sentencepiece.gguf": gguf(of_pieces),
    }  # fmt: skip


def damaged() -> dict[str, bytes]:
    """Make the specimens that must be refused, by file name."""
    far = {"model": {"type": "BPE", "vocab": {"a": 2**40}}}
    return {
        **directory("damaged/not-a-number", '{"rope_theta": NaN}'),
        **directory("damaged/twice", '{"rope_theta": 1.0, "rope_theta": 2.0}'),
        **directory("damaged/a-list", []),
        **directory("damaged/deep", "[" * 20000),
        **directory("damaged/id-2-40", LLAMA, tokenizer__json=far),
    }


def main() -> None:
    """Write every specimen into its place."""
    for name, data in {**good(), **damaged()}.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
