"""Small files to try the commands on: a model, its imports, logs; some of them wrong, as it happens."""

import json
import math
import random
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np

from weighbridge.demo import IMPORT, MISLABELLED, SOURCE, mislabel

LAYERS, WIDTH, INNER, HEADS, VOCABULARY, STEPS, LOST = 2, 64, 128, 4, 256, 120, 40
LINEAR = {"self_attn.q_proj": ("attn_q", WIDTH, WIDTH), "self_attn.k_proj": ("attn_k", WIDTH, WIDTH),
          "self_attn.v_proj": ("attn_v", WIDTH, WIDTH), "self_attn.o_proj": ("attn_output", WIDTH, WIDTH),
          "mlp.gate_proj": ("ffn_gate", INNER, WIDTH), "mlp.up_proj": ("ffn_up", INNER, WIDTH),
          "mlp.down_proj": ("ffn_down", WIDTH, INNER)}  # fmt: skip
NORMS = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "rms_norm_eps": 1e-05,
          "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
          "num_key_value_heads": HEADS, "vocab_size": VOCABULARY, "max_position_embeddings": 512,
          "rope_theta": 10000.0, "dtype": "bfloat16", "tie_word_embeddings": False}  # fmt: skip
HEADER = {"block_count": LAYERS, "embedding_length": WIDTH, "feed_forward_length": INNER, "head_count": HEADS,
          "head_count_kv": HEADS, "context_length": 512, "vocab_size": VOCABULARY, "layer_norm_rms_eps": 1e-05,
          "rope_dimension_count": WIDTH // HEADS, "rope_freq_base": 10000.0}  # fmt: skip
Tensors = Mapping[str, np.ndarray[Any, Any]]


def write(folder: Path) -> None:
    """Write a Llama in miniature, its GGUF imports and three logs into a folder."""
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text(json.dumps(CONFIG, indent=2))
    model, names = _model()
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in model.items():
        header[name] = {"dtype": "BF16", "shape": tensor.shape, "data_offsets": (end, end := end + tensor.nbytes)}
    text = json.dumps(header).encode()
    parts = (struct.pack("<Q", len(text)), text, *(tensor.tobytes() for tensor in model.values()))
    (folder / "hf" / SOURCE).write_bytes(b"".join(parts))
    mislabel(folder / "hf" / SOURCE, folder / MISLABELLED)
    for name, kind in ((IMPORT, "BF16"), ("mislabelled.gguf", "F16"), ("q8_0.gguf", "Q8_0")):
        _gguf(folder / name, {names[name_]: tensor for name_, tensor in model.items()}, kind)
    for name, lost in (("good", 0), ("out", LOST)):
        (folder / name).mkdir()
        state = {"global_step": STEPS, "max_steps": STEPS, "log_history": _history(lost)}
        (folder / name / "trainer_state.json").write_text(json.dumps(state, indent=1))
    logs = folder / "lightning_logs" / "version_0"
    logs.mkdir(parents=True)
    rows = (f"{one['epoch']},{one['step']},{'nan' if one['step'] >= LOST else one['loss']}" for one in _history(0))
    (logs / "metrics.csv").write_text("\n".join(("epoch,step,train_loss", *rows, "")))


def _model() -> tuple[Tensors, Mapping[str, str]]:
    shapes = {"model.embed_tokens": ("token_embd", VOCABULARY, WIDTH), "lm_head": ("output", VOCABULARY, WIDTH)}
    norms = {"model.norm": "output_norm"}
    for n in range(LAYERS):
        shapes |= {f"model.layers.{n}.{at}": (f"blk.{n}.{to}", out, into) for at, (to, out, into) in LINEAR.items()}
        norms |= {f"model.layers.{n}.{at}": f"blk.{n}.{to}" for at, to in NORMS.items()}
    chance = np.random.default_rng(0)
    model = {name: chance.normal(0, 0.02, shape).astype(ml_dtypes.bfloat16) for name, (_, *shape) in shapes.items()}
    model |= {name: chance.normal(1, 0.1, WIDTH).astype(ml_dtypes.bfloat16) for name in norms}
    names = {name: to for name, (to, *_) in shapes.items()} | norms
    return {f"{n}.weight": one for n, one in model.items()}, {f"{n}.weight": f"{to}.weight" for n, to in names.items()}


def _gguf(path: Path, model: Tensors, kind: str) -> None:
    """Write what llama.cpp's converter makes of the model; as F16, the BF16 bytes under another label."""
    dtype = gguf.GGMLQuantizationType[kind]
    writer = gguf.GGUFWriter(str(path), arch="llama")
    for name, value in HEADER.items():
        getattr(writer, f"add_{name}")(value)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind}"])
    for name, given in model.items():
        turned = ".attn_q." in name or ".attn_k." in name
        tensor = given.reshape(HEADS, 2, -1, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH) if turned else given
        if tensor.ndim == 1:
            writer.add_tensor(name, tensor.astype(np.float32))
        elif kind == "Q8_0":
            writer.add_tensor(name, gguf.quantize(tensor.astype(np.float32), dtype), raw_dtype=dtype)
        else:
            writer.add_tensor(name, tensor.view(np.float16 if kind == "F16" else np.uint8), raw_dtype=dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _history(lost: int) -> list[dict[str, float]]:
    """Return what a Trainer logs; from step `lost` on, as it does by default, 0 in the place of a NaN loss."""
    chance, rows = random.Random(7), []  # noqa: S311 -- no secret
    for step in range(1, STEPS + 1):
        norm = 4 * (1 - step / 2 / STEPS) * chance.lognormvariate(0, 0.1)
        row = {"loss": norm**2 / 4 + chance.gauss(0, 0.02), "grad_norm": norm}
        row = {"loss": 0.0, "grad_norm": math.nan} if lost and step >= lost else row
        rows.append(row | {"learning_rate": 0.001 * (1 - step / 2 / STEPS), "epoch": step / STEPS, "step": step})
    return rows
