"""gguf:auto: which Hugging Face tensors make which tensor of a GGUF file, by architecture and configuration.

Head counts are the source's, never the import's own: a permutation with the wrong ones is what has to be found.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from weighbridge.comparison.mapping_plan import Pairing, Part, Plan, rope_order, ties
from weighbridge.model_config.model_keys import CONFIG_KEYS

SUFFIXES = (".weight", ".bias")
PREFIXES = ("bert.", "roberta.", "model.language_model.", "language_model.")  # wrappers are gone before
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


class Expert(NamedTuple):
    """One expert's matrix among those of a layer."""

    layer: int
    place: int
    matrix: str


def expert(name: str) -> Expert | None:
    """Return which expert's matrix a source tensor is."""
    found = EXPERT.fullmatch(name)
    known = found is not None and found[3] in MATRIX
    return Expert(int(found[1]), int(found[2]), MATRIX[found[3]]) if found and known else None


def left_out(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, str]:
    """Return, for each source tensor that a rule leaves out, what it is; a mask must have a mask's shape."""
    found = ((name, why) for name in shapes for rule, why in LEFT_OUT.items() if re.fullmatch(rule, name))
    return {name: why for name, why in found if why != MASK or _masks(shapes[name])}


def _masks(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor is shaped as a causal mask is, or as the one value that stands for minus infinity."""
    return shape in ((), (1,)) or (len(shape) == 4 and shape[:2] == (1, 1) and shape[2] == shape[3])


def gguf_names(architecture: str, blocks: int, names: Iterable[str]) -> Mapping[str, str] | None:
    """Return the GGUF tensor of each source tensor that has one, or None for an unknown architecture."""
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


Shape = tuple[int, ...]

# Architectures whose queries and keys are stored with the halves of each head interleaved.
PERMUTED = (
    "llama", "llama-embed", "deci", "arcee", "smollm3", "granite", "granitemoe", "granitehybrid", "minicpm", "olmo",
    "xverse", "arctic", "bailingmoe", "deepseek", "llada"
)  # fmt: skip
INTERLEAVED = ("gptneox", "bloom")  # queries, keys and values of one head after the other
PLUS_ONE = ("gemma", "gemma2", "gemma3", "nemotron")
CUT_VOCABULARY = ("gemma3",)
PADDING = 64  # rows at most that pad an embedding beyond its vocabulary
TURNED = ("attn_qkv.weight", "attn_output.weight", "ffn_up.weight", "ffn_down.weight")  # of gpt2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What a plan is made from: architecture, the source's configuration, and shapes by name on both sides."""

    architecture: str
    config: Mapping[str, Any]
    source: Mapping[str, Shape]
    candidate: Mapping[str, Shape]

    def number(self, what: str) -> int:
        """Find a number in the configuration under any of its names, or 0."""
        found = (self.config.get(key) for key in CONFIG_KEYS[what])
        return next((value for value in found if isinstance(value, int) and value > 0), 0)

    @property
    def heads(self) -> tuple[int, int]:
        """Return the head counts of queries and of keys."""
        heads = self.number("head_count")
        return heads, self.number("head_count_kv") or heads


def plan(sides: Sides) -> Plan | None:
    """Plan how a source became a GGUF file, or None where the architecture is unknown."""
    names = gguf_names(sides.architecture, max(sides.number("block_count"), 1), sides.source)
    if names is None:
        return None
    made: dict[str, Pairing] = {}
    repeats: dict[str, str] = {}
    for name in sorted(names, key=lambda name: (names[name], name)):
        target = names[name]
        if target in made:
            repeats[name] = made[target].parts[0].source
        elif expert(name) is None:
            made[target] = pairing(sides, target, name)
    made |= _stacks(sides) | _stacked(sides)
    made |= _fused(sides, made)
    kept = {target: found for target, found in made.items() if target in sides.candidate}
    gone = {found.parts[0].source: target for target, found in made.items() if target not in sides.candidate}
    # A lost head may repeat the source's embedding, and a new head the candidate's.
    embedding = kept["token_embd.weight"].parts[0].source if "token_embd.weight" in kept else ""
    lost = {name: embedding for name, target in gone.items() if target == "output.weight" and embedding}
    return Plan(
        name=f"gguf:auto ({sides.architecture})",
        pairings={target: _squeezed(found, sides.candidate[target]) for target, found in kept.items()},
        tied={**ties(sides.candidate), **ties(sides.source), **lost, **repeats},
        drop_rules=left_out(sides.source),
        generated={name: values for name, values in generated(sides.config).items() if name in sides.candidate},
        heads=sides.heads,
    )


def pairing(sides: Sides, target: str, name: str) -> Pairing:
    """Return how one source tensor makes one GGUF tensor; the first rule that applies counts."""
    plain = Pairing(candidate=target, parts=(Part(source=name),), shape=sides.source[name])
    part = _attention(sides, target, name)
    if part is not None:
        return replace(plain, parts=part[0], transform=part[1])
    if sides.architecture == "gpt2" and len(plain.shape) == 2 and target.endswith(TURNED):
        turned = (Part(source=name, transposed=True),)
        return replace(plain, parts=turned, shape=plain.shape[::-1], transform="transposed")
    if sides.architecture in PLUS_ONE and name.endswith("norm.weight"):
        return replace(plain, arithmetic="+1", transform="+1")
    if name.endswith(".A_log"):
        return replace(plain, arithmetic="-exp", transform="-exp")
    return _cut(sides, plain) or plain


def _attention(sides: Sides, target: str, name: str) -> tuple[tuple[Part, ...], str] | None:
    """Return queries and keys in the file's order, and how that is called; None where they stay as they are."""
    (heads, groups), (rows, *_) = sides.heads, (*sides.source[name], 0)
    stem = target.rsplit(".", 1)[0]
    if sides.architecture in PERMUTED and stem.endswith((".attn_q", ".attn_k")):
        heads = groups if stem.endswith(".attn_k") else heads
        if heads and rows % (2 * heads) == 0:
            return (rope_order(name, heads, rows),), f"rope permutation of {heads} heads"
    if not heads or not stem.endswith(".attn_qkv"):
        return None
    if sides.architecture in INTERLEAVED:
        part = Part(source=name, view=(heads, 3, rows // (3 * heads)), order=(1, 0, 2))
        return (part,), f"q, k and v of {heads} heads put apart"
    if sides.architecture != "falcon":
        return None
    if sides.config.get("multi_query") and not sides.config.get("new_decoder_architecture"):
        groups = 1
    each = heads // groups
    view = groups, each + 2, rows // (groups * (each + 2))
    cuts = (1, 0, each), (1, each, each + 1), (1, each + 1, each + 2)
    return tuple(Part(source=name, view=view, take=cut) for cut in cuts), f"q, k and v of {groups} groups put apart"


def _cut(sides: Sides, plain: Pairing) -> Pairing | None:
    """Keep the rows that the vocabulary has, or the positions after the padding."""
    target, there = plain.candidate, sides.candidate.get(plain.candidate, ())
    rows = plain.shape[0] if plain.shape else 0
    if len(there) != 2 or not there[0] < rows:
        return None
    offset = int(sides.config.get("pad_token_id") or 0) + 1
    embedding = target in ("token_embd.weight", "output.weight")
    if sides.architecture in CUT_VOCABULARY and embedding and rows - there[0] <= PADDING:
        take, transform = (0, 0, there[0]), f"{there[0]} of {rows} rows"
    elif (
        "roberta" in str(sides.config.get("model_type"))
        and target == "position_embd.weight"
        and there[0] == rows - offset
    ):
        take, transform = (0, offset, rows), f"rows from {offset} on"
    else:
        return None
    part = Part(source=plain.parts[0].source, take=take)
    return replace(plain, parts=(part,), shape=(there[0], *plain.shape[1:]), transform=transform)


def _stacks(sides: Sides) -> dict[str, Pairing]:
    """Stack the experts of each layer, one tensor each, in the order of their numbers."""
    found: dict[str, dict[int, str]] = {}
    for name in sides.source:
        one = expert(name)
        if one is not None:
            found.setdefault(f"blk.{one.layer}.ffn_{one.matrix}_exps.weight", {})[one.place] = name
    stacks = {}
    for target, names in found.items():
        parts = tuple(Part(source=names[place]) for place in sorted(names))
        shape = len(parts), *sides.source[parts[0].source]
        stacks[target] = Pairing(candidate=target, parts=parts, shape=shape, transform=f"{len(parts)} experts stacked")
    return stacks


def _stacked(sides: Sides) -> dict[str, Pairing]:
    """Pair experts that are stacked already, gate and up apart."""
    found: dict[str, Pairing] = {}
    for name, shape in sides.source.items():
        one = STACKED.fullmatch(name)
        if one is None or len(shape) != 3:
            continue
        down, gate, up = (f"blk.{one[1]}.ffn_{matrix}_exps.weight" for matrix in ("down", "gate", "up"))
        if one[2] == "down_proj":
            found[down] = Pairing(candidate=down, parts=(Part(source=name),), shape=shape)
            continue
        experts, both, width = shape
        for half, target in enumerate((gate, up)):
            part = Part(source=name, view=(experts, 2, both // 2), take=(1, half, half + 1))
            found[target] = Pairing(
                candidate=target, parts=(part,), shape=(experts, both // 2, width), transform="half of gate and up"
            )
    return found


def _fused(sides: Sides, made: Mapping[str, Pairing]) -> dict[str, Pairing]:
    """Put queries, keys and values one after the other where the file holds them in one tensor."""
    found = {}
    for target in sides.candidate:
        if target in made or ".attn_qkv." not in target:
            continue
        three = [made.get(target.replace("attn_qkv", f"attn_{one}")) for one in "qkv"]
        if all(three):
            parts = tuple(part for one in three if one for part in one.parts)
            rows = sum(one.shape[0] for one in three if one)
            tail = three[0].shape[1:] if three[0] else ()
            found[target] = Pairing(candidate=target, parts=parts, shape=(rows, *tail), transform="q, k and v fused")
    return found


def _squeezed(pairing: Pairing, there: Shape) -> Pairing:
    """Return a pairing in the file's own shape where only dimensions of one come or go."""
    if [size for size in pairing.shape if size != 1] == [size for size in there if size != 1]:
        return replace(pairing, shape=there)
    return pairing


def generated(config: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Compute the tables that a configuration asks for, by the GGUF tensor's name."""
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope = rope.get("full_attention", rope) if isinstance(rope, Mapping) else {}
    kind = str(rope.get("rope_type") or rope.get("type") or "").lower()
    found: dict[str, tuple[float, ...]] = {}
    if kind == "llama3":
        found["rope_freqs.weight"] = llama3(config, rope)
    for length in ("long", "short"):
        factors = rope.get(f"{length}_factor")
        if isinstance(factors, (list, tuple)) and all(isinstance(one, (int, float)) for one in factors):
            found[f"rope_factors_{length}.weight"] = tuple(float(one) for one in factors)
    return found


def llama3(config: Mapping[str, Any], rope: Mapping[str, Any]) -> tuple[float, ...]:
    """Compute Llama 3's factors, `[head_dim / 2]`: 1 for short wavelengths, `factor` for long ones, a ramp between."""
    base = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
    size = int(config.get("head_dim") or 0) or int(config["hidden_size"]) // int(config["num_attention_heads"])
    factor, low, high = (float(rope.get(key, value)) for key, value in DEFAULTS.items())
    context = float(rope.get("original_max_position_embeddings", 8192))

    def scaled(wave: float) -> float:
        if wave < context / high:
            return 1.0
        if wave > context / low:
            return factor
        smooth = (context / wave - low) / (high - low)
        return 1 / ((1 - smooth) / factor + smooth)

    return tuple(scaled(2 * math.pi * base ** (at / size)) for at in range(0, size, 2))


DEFAULTS = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
