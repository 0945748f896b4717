"""Names of tensors between Hugging Face checkpoints and GGUF files: gguf's own map, its gaps completed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

SUFFIXES = (".weight", ".bias")
PREFIXES = ("bert.", "roberta.", "model.language_model.", "language_model.")
OLD_ENDINGS = {".gamma": ".weight", ".beta": ".bias"}

# One expert of a layer: its place, and which of the three matrices it is.
EXPERTS = r"(?:.*\.)?layers\.(\d+)\.(?:block_sparse_moe|mlp|feed_forward)\.experts\."
EXPERT = re.compile(EXPERTS + r"(\d+)\.(\w+)\.weight")
STACKED = re.compile(EXPERTS + r"(gate_up_proj|down_proj)")
MATRIX = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}
ROUTER = re.compile(r"(?:.*\.)?layers\.(\d+)\.(?:block_sparse_moe|mlp)\.gate\.weight")

MASK = "a causal mask"

# What llama.cpp's converter leaves out by rule, whatever it holds.
LEFT_OUT = {
    r".*\.(attention|attn)\.(masked_bias|bias)": MASK,
    r".*rotary_emb\.inv_freq": "a table that the loader computes",
    r"(bert\.|roberta\.)?embeddings\.position_ids": "a table of whole numbers",
    r"(bert\.|roberta\.)?pooler\.dense\.(weight|bias)": "the pooler, which embedding models do not use",
    r"cls\.(predictions|seq_relationship)\..*": "a training head",
}


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert's matrix among those of a layer."""

    layer: int
    place: int
    matrix: str


def expert(name: str) -> Expert | None:
    """Tell which expert's matrix a source tensor is."""
    found = EXPERT.fullmatch(name)
    if found is None or found[3] not in MATRIX:
        return None
    return Expert(int(found[1]), int(found[2]), MATRIX[found[3]])


def left_out(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Say, for each source tensor that a rule leaves out, what it is; a mask must have a mask's shape."""
    found = ((name, why) for name in shapes for rule, why in LEFT_OUT.items() if re.fullmatch(rule, name))
    return {name: why for name, why in found if why != MASK or _masks(shapes[name])}


def _masks(shape: tuple[int, ...]) -> bool:
    """Tell whether a tensor is shaped as a causal mask is, or as the one value that stands for minus infinity."""
    return shape in ((), (1,)) or (len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3])


def gguf_names(architecture: str, blocks: int, names: Iterable[str]) -> Mapping[str, str] | None:
    """Name the GGUF tensor of each source tensor that has one, or None for an unknown architecture."""
    import gguf

    known = {name: arch for arch, name in gguf.MODEL_ARCH_NAMES.items()}
    if architecture not in known:
        return None
    table = gguf.get_tensor_name_map(known[architecture], blocks)
    found = {name: _named(name, table) for name in names}
    return {name: new for name, new in found.items() if new is not None}


def _named(name: str, table: object) -> str | None:
    for spelled in _spellings(name):
        new: str | None = table.get_name(spelled, try_suffixes=SUFFIXES)  # type: ignore[attr-defined]
        if new is not None:
            return new
    router = ROUTER.fullmatch(name)
    return f"blk.{router[1]}.ffn_gate_inp.weight" if router else None


def _spellings(name: str) -> Iterable[str]:
    """Spell a name as the map may know it: with old endings replaced, without a wrapper's prefix, or with the usual."""
    for old, new in OLD_ENDINGS.items():
        if name.endswith(old):
            name = name.removesuffix(old) + new
    yield name
    for prefix in PREFIXES:
        if name.startswith(prefix):
            yield name.removeprefix(prefix)
            yield "model." + name.removeprefix(prefix)
    yield "model." + name
