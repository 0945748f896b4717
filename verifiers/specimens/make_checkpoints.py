"""Make the checkpoint specimens, good and damaged, byte by byte: `python verifiers/specimens/make_checkpoints.py`.

Uses no checkpoint library, so that the readers are held against bytes that none of them wrote. Deterministic.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).parent / "checkpoints"
ORIGIN = {"weighbridge.origin": "fixture"}

Entry = tuple[str, Sequence[int], bytes]

NORM = (7.5625, 8.0, 7.21875, 7.3125, 7.46875, 7.375)
OTHER_NORM = (7.0625, 7.125, 7.0, 7.0625, 6.75, 6.875)
EXACT = (0.5, -1.25, 3.0, 0.0078125, -96.0, 1.0, 2.5, -0.0)
INEXACT = (0.1, -0.2, 3.14159274, 1e-3, -2.71828175, 1.00390625, 1.01171875, 65535.0)


def f32(values: Sequence[float]) -> bytes:
    """Store values as float32, little-endian."""
    return struct.pack(f"<{len(values)}f", *values)


def f16(values: Sequence[float]) -> bytes:
    """Store values as float16, rounded to nearest even."""
    return struct.pack(f"<{len(values)}e", *values)


def bf16(values: Sequence[float], *, cut: bool = False) -> bytes:
    """Store values as bfloat16, rounded to nearest even, or cut towards zero."""
    words = struct.unpack(f"<{len(values)}I", f32(values))
    rounded = [(word + (0 if cut else 0x7FFF + (word >> 16 & 1))) >> 16 for word in words]
    return struct.pack(f"<{len(values)}H", *rounded)


def safetensors(tensors: Mapping[str, Entry], metadata: Mapping[str, str] = ORIGIN) -> bytes:
    """Lay tensors out as a safetensors file."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    return framed(json.dumps(header, separators=(",", ":")).encode(), body)


def framed(header: bytes, body: bytes) -> bytes:
    """Put the length before a header and the payload after it."""
    return struct.pack("<Q", len(header)) + header + body


def text(value: str) -> bytes:
    """Write a GGUF string."""
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(tensors: Mapping[str, tuple[int, Sequence[int], bytes]], architecture: str = "specimen") -> bytes:
    """Lay tensors out as a GGUF file of version 3; the type ids are ggml's."""
    texts = {"general.architecture": architecture, **ORIGIN}
    keys = b"".join(text(key) + struct.pack("<I", 8) + text(value) for key, value in texts.items())
    infos, body = b"", b""
    for name, (kind, shape, data) in tensors.items():
        infos += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), kind, len(body))
        body += data + bytes(-len(data) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(texts)) + keys + infos
    return head + bytes(-len(head) % 32) + body


CODEBOOK = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)  # of IQ4_NL


def blocks() -> dict[str, bytes]:
    """Make a source whose values block types hold exactly, its quantised import, and one with a block lost."""
    steps = tuple(float(value) for value in range(-127, 1, 4))
    codes = tuple(float(value) for value in CODEBOOK * 4)
    one, pairs = f16((1.0,)), bytes(index | index << 4 for index in range(16))
    eights = one + struct.pack("<32b", *(int(step) for step in steps))
    # A block's low nibbles are its first 16 elements, its high ones the last 16.
    source: dict[str, Entry] = {"e": ("F32", (32,), f32(steps)), "n": ("F32", (2, 32), f32(codes))}
    lost = eights[:-1] + b"\x7f"
    return {
        "blocks.safetensors": safetensors(source),
        "blocks.gguf": gguf({"e": (8, (32,), eights), "n": (20, (2, 32), 2 * (one + pairs))}),
        "blocks-lost.gguf": gguf({"e": (8, (32,), lost), "n": (20, (2, 32), one + pairs + bytes(18))}),
    }


def heads() -> dict[str, bytes]:
    """Make sources with a tied and an untied head, and the import that has none."""
    embedding, other = ("F32", (2, 4), f32(EXACT)), ("F32", (2, 4), f32(INEXACT))
    name, head = "model.embed_tokens.weight", "lm_head.weight"
    return {
        "tied.safetensors": safetensors({name: embedding, head: embedding}),
        "untied.safetensors": safetensors({name: embedding, head: other}),
        "headless.safetensors": safetensors({name: embedding}),
    }


def long() -> dict[str, bytes]:
    """Make a tensor of more than one step, and its widening whose very last element is wrong."""
    values = tuple(float(at) for at in range(-256, 256))
    wrong = bytearray(f32(values))
    wrong[-1] ^= 1
    return {
        "long.safetensors": safetensors({"w": ("BF16", (512,), bf16(values))}),
        "long-last-wrong.safetensors": safetensors({"w": ("F32", (512,), bytes(wrong))}),
    }


def converted() -> dict[str, bytes]:
    """Make a model's directory, its import with queries permuted, and one whose queries were left as they were."""
    config = {"num_attention_heads": 1, "num_key_value_heads": 1, "num_hidden_layers": 1, "hidden_size": 2}
    rows = [(float(row), row + 0.5) for row in range(8)]
    queries = [value for row in rows for value in row]
    turned = [value for row in (0, 4, 1, 5, 2, 6, 3, 7) for value in rows[row]]  # halves of one head, interleaved
    norm = f32((0.25, -0.5))
    name = "model.layers.0.self_attn.q_proj.weight"
    import_ = {"blk.0.attn_q.weight": (0, (8, 2), f32(turned)), "output_norm.weight": (0, (2,), norm)}
    plain = {**import_, "blk.0.attn_q.weight": (0, (8, 2), f32(queries))}
    source: dict[str, Entry] = {name: ("F32", (8, 2), f32(queries)), "model.norm.weight": ("F32", (2,), norm)}
    return {
        "hf/config.json": json.dumps(config).encode() + b"\n",
        "hf/model.safetensors": safetensors(source),
        "permuted.gguf": gguf(import_, "llama"),
        "unpermuted.gguf": gguf(plain, "llama"),
        "plus-one.gguf": gguf({**plain, "output_norm.weight": (0, (2,), f32((1.25, 0.5)))}, "gemma"),
    }


def contradicted() -> dict[str, bytes]:
    """Make a model that says two layers and codes of eight bits, and has one layer of four bits."""
    packed = {"quant_method": "gptq", "bits": 8, "group_size": 8}
    config = {"model_type": "llama", "num_hidden_layers": 2, "quantization_config": packed}
    words = struct.pack("<8I", *range(1, 9))
    stem = "model.layers.0.self_attn.q_proj."
    tensors: dict[str, Entry] = {
        f"{stem}qweight": ("I32", (1, 8), words),
        f"{stem}qzeros": ("I32", (1, 1), words[:4]),
        f"{stem}scales": ("F16", (1, 8), f16(EXACT)),
    }
    return {
        "contradicted/config.json": json.dumps(config).encode() + b"\n",
        "contradicted/model.safetensors": safetensors(tensors),
    }


def of_parts(folder: str, dense: Sequence[float], note: str) -> dict[str, bytes]:
    """Make a folder of a model with a further module, the same model for another loader, and a page for people."""
    modules = [{"path": "", "type": "Transformer"}, {"path": "2_Dense", "type": "Dense"}]
    return {
        f"{folder}/README.md": note.encode(),
        f"{folder}/config.json": json.dumps({"num_hidden_layers": 1, "hidden_size": 2}).encode() + b"\n",
        f"{folder}/model.safetensors": safetensors({"w": ("F32", (2,), f32((0.25, -0.5)))}),
        f"{folder}/modules.json": json.dumps(modules, indent=len(note)).encode() + b"\n",
        f"{folder}/2_Dense/model.safetensors": safetensors({"linear.weight": ("F32", (2,), f32(dense))}),
    }


def swapped(data: bytes, size: int) -> bytes:
    """Store words with their bytes in the other order."""
    return b"".join(data[at : at + size][::-1] for at in range(0, len(data), size))


def bits() -> bytes:
    """Lay out weights under right and wrong labels, and what cannot be told from its bits alone."""
    source = random.Random(0)
    weights = [source.gauss(0, 0.02) for _ in range(512)]
    brain, half = bf16(weights), f16(weights)
    return safetensors(
        {
            "a.bf16": ("BF16", (512,), brain),
            "b.f16": ("F16", (512,), half),
            "c.f32-of-bf16": ("F32", (16, 16), b"".join(bytes(2) + brain[at : at + 2] for at in range(0, 512, 2))),
            "d.bf16-as-f16": ("F16", (512,), brain),
            "e.f16-swapped": ("F16", (512,), swapped(half, 2)),
            "f.int8-pairs": ("F16", (256,), bytes(round(1500 * weight) & 0xFF for weight in weights)),
            "g.norm": ("F16", (300,), f16([1.0 + abs(weight) for weight in weights[:300]])),
            "h.zeros": ("F32", (4,), bytes(16)),
            "i.whole": ("I32", (2,), bytes(8)),
            "z.few": ("F64", (2,), struct.pack("<2d", 1.0, -0.5)),
        }
    )


def unhealthy() -> bytes:
    """Lay out tensors that were written over in the ways that a look at values alone shows."""
    words = bf16((1.0, float("inf"), float("-inf"), float("nan")))
    return safetensors(
        {
            "../a": ("BF16", (4,), words),
            "b.q": ("U8", (3, 4), bytes((1, 2, 3, 4, 5, 6, 7)) + bytes(5)),
            "c.zero": ("F32", (2, 2), bytes(16)),
            "d.ones": ("F32", (2,), f32((1.0, 1.0))),
            "e.ones": ("F32", (2,), f32((1.0, 1.0))),
            "f": ("F32", (2,), f32((1.0, 2.0))),
            "g": ("F32", (2,), f32((1.0, 2.0))),
            "h.fp8": ("F8_E4M3", (4,), bytes((0x38, 0x7F, 0x7E, 0x01))),
        }
    )


def sharded(first: bytes, second: bytes, folder: str, total: int) -> dict[str, bytes]:
    """Lay out two shards and their index."""
    names = [f"model-{shard:05}-of-00002.safetensors" for shard in (1, 2)]
    index = {
        "metadata": {"total_size": total},
        "weight_map": {"embed": names[0], "model.norm.weight": names[1]},
    }
    return {
        f"{folder}/{names[0]}": first,
        f"{folder}/{names[1]}": second,
        f"{folder}/model.safetensors.index.json": json.dumps(index, indent=2).encode() + b"\n",
    }


def adapted() -> dict[str, bytes]:
    """Lay out a base, LoRA adapters of it, and what was merged: of `a` and `b` each row is x·EXACT[:4]·2 more."""
    low, rows = EXACT[:4], {"a": (1.0, -0.5), "b": (2.0, 0.25)}

    def file(share: float) -> bytes:
        entries: dict[str, Entry] = {"norm": ("F32", (2,), f32(NORM[:2]))}
        for name, high in rows.items():
            sums = [base + share * 2 * x * one for x, base in zip(high, NORM, strict=False) for one in low]
            entries[f"{name}.weight"] = ("F32", (2, 4), f32(sums))
        return safetensors(entries)

    pairs: dict[str, Entry] = {}
    for name, high in rows.items():
        pairs[f"base_model.model.{name}.lora_A.weight"] = ("F32", (1, 4), f32(low))
        pairs[f"base_model.model.{name}.lora_B.weight"] = ("F32", (2, 1), f32(high))
    config = b'{"peft_type": "LORA", "r": 1, "lora_alpha": 2}\n'
    return {
        **{f"merge/{name}.safetensors": file(share) for name, share in (("base", 0), ("merged", 1), ("scaled", 1.5))},
        **{f"merge/{name}/adapter_config.json": config for name in ("adapter", "empty")},
        "merge/adapter/adapter_model.safetensors": safetensors(pairs),
        "merge/empty/adapter_model.safetensors": safetensors({}),
    }


def good() -> dict[str, bytes]:
    """Make the specimens that can be read, by file name."""
    embed: Entry = ("F32", (2, 4), f32(EXACT))
    norm: Entry = ("BF16", (6,), bf16(NORM))
    flipped = bytearray(embed[2])
    flipped[-1] ^= 1
    square = f32(INEXACT[:4])
    turned = f32((INEXACT[0], INEXACT[2], INEXACT[1], INEXACT[3]))
    values: Entry = ("F32", (8,), f32(INEXACT))
    return {
        "source.safetensors": safetensors({"embed": embed, "model.norm.weight": norm}),
        "relabelled.safetensors": safetensors({"embed": embed, "model.norm.weight": ("F16", (6,), norm[2])}),
        "other-weights.safetensors": safetensors({"embed": embed, "model.norm.weight": ("F16", (6,), f16(OTHER_NORM))}),
        "flipped-bit.safetensors": safetensors({"embed": ("F32", (2, 4), bytes(flipped)), "model.norm.weight": norm}),
        "widened.safetensors": safetensors({"embed": embed, "model.norm.weight": ("F32", (6,), f32(NORM))}),
        "dropped.safetensors": safetensors({"embed": embed}),
        "values.safetensors": safetensors({"a": values, "b": ("F32", (8,), f32(EXACT)), "w": ("F32", (2, 2), square)}),
        "rounded.safetensors": safetensors({"a": ("BF16", (8,), bf16(INEXACT))}),
        "cut-to-bf16.safetensors": safetensors({"a": ("BF16", (8,), bf16(INEXACT, cut=True))}),
        "swapped-and-turned.safetensors": safetensors(
            {"a": ("F32", (8,), f32(EXACT)), "b": values, "w": ("F32", (2, 2), turned)}
        ),
        "bits.safetensors": bits(),
        "import.gguf": gguf({"embed": (0, (2, 4), embed[2]), "model.norm.weight": (30, (6,), norm[2])}),
        "mislabelled.gguf": gguf({"embed": (0, (2, 4), embed[2]), "model.norm.weight": (1, (6,), norm[2])}),
        **blocks(),
        **heads(),
        **converted(),
        **contradicted(),
        **long(),
        **adapted(),
        **of_parts("parts", (1.0, 2.0), "a"),
        **of_parts("parts-other", (-3.0, -6.0), "other"),
        "parts-other/flax_model.msgpack": b"\x81\xa1w\xc0",
        "unhealthy.safetensors": unhealthy(),
        **sharded(safetensors({"embed": embed}), safetensors({"model.norm.weight": norm}), "sharded", 44),
        **sharded(safetensors({"embed": embed}), safetensors({"model.norm.weight": norm}), "left-over", 56),
        "left-over/model.safetensors": safetensors({"embed": embed}),
    }


def entry(dtype: str, start: int) -> str:
    """Write a header's entry for two elements of two bytes."""
    return json.dumps({"dtype": dtype, "shape": [2], "data_offsets": [start, start + 4]})


def damaged(source: bytes) -> dict[str, bytes]:
    """Make the specimens that must be refused, by file name."""
    twice = f'{{"w":{entry("F16", 0)},"w":{entry("BF16", 0)}}}'
    overlap = f'{{"a":{entry("F16", 0)},"b":{entry("F16", 2)}}}'
    endless = text("tokens") + struct.pack("<IIQ", 9, 8, 2**40)
    return {
        "damaged/truncated.safetensors": source[:-1],
        "damaged/name-twice.safetensors": framed(twice.encode(), bytes(4)),
        "damaged/header-2-63.safetensors": struct.pack("<Q", 2**63) + b"{}",
        "damaged/overlapping.safetensors": framed(overlap.encode(), bytes(6)),
        "damaged/array-2-40.gguf": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + endless,
        "damaged/empty.safetensors": b"",
    }


def main() -> None:
    """Write every specimen into its place."""
    files = good()
    files |= damaged(files["source.safetensors"])
    for name, data in files.items():
        path = HERE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
