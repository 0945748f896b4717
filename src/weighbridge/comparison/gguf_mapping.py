"""gguf:auto: which Hugging Face tensors make which tensor of a GGUF file, by architecture and configuration.

Head counts are the source's, never the import's own: a permutation with the wrong ones is what has to be found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from weighbridge.comparison.generated_tensors import generated
from weighbridge.comparison.gguf_names import STACKED, expert, gguf_names, left_out
from weighbridge.comparison.mapping_plan import Pairing, Part, Plan, ties
from weighbridge.model_config.model_keys import CONFIG_KEYS

Shape = tuple[int, ...]

# Architectures whose queries and keys are stored with the halves of each head interleaved.
PERMUTED = (
    "llama", "llama-embed", "deci", "arcee", "smollm3", "granite", "granitemoe", "granitehybrid", "minicpm", "olmo",
    "xverse", "arctic", "bailingmoe", "deepseek", "llada",
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
        """Give the head counts of queries and of keys."""
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
    return Plan(
        name=f"gguf:auto ({sides.architecture})",
        pairings={target: _squeezed(found, sides.candidate[target]) for target, found in kept.items()},
        tied=_tied(sides, kept, gone, repeats),
        drop_rules=left_out(sides.source),
        generated={name: values for name, values in generated(sides.config).items() if name in sides.candidate},
        heads=sides.heads,
    )


def _tied(
    sides: Sides, made: Mapping[str, Pairing], gone: Mapping[str, str], repeats: Mapping[str, str]
) -> dict[str, str]:
    """Name what a lost head may repeat: the source's embedding; and what a new head may: the candidate's."""
    embedding = made["token_embd.weight"].parts[0].source if "token_embd.weight" in made else ""
    lost = {name: embedding for name, target in gone.items() if target == "output.weight" and embedding}
    return {**ties(sides.candidate), **ties(sides.source), **lost, **repeats}


def pairing(sides: Sides, target: str, name: str) -> Pairing:
    """Say how one source tensor makes one GGUF tensor."""
    shape = sides.source[name]
    plain = Pairing(candidate=target, parts=(Part(source=name),), shape=shape)
    for rule in (_permuted, _interleaved, _grouped, _turned, _plus_one, _minus_exp, _cut):
        found = rule(sides, target, plain)
        if found is not None:
            return found
    return plain


Rule = Callable[[Sides, str, Pairing], Pairing | None]


def rope_order(name: str, heads: int, rows: int) -> Part:
    """Interleave the halves of each head: `[heads, 2, half]` becomes `[heads, half, 2]`."""
    return Part(source=name, view=(heads, 2, rows // heads // 2), order=(0, 2, 1))


def _ends(target: str, *names: str) -> bool:
    return target.rsplit(".", 1)[0].endswith(names)


def _permuted(sides: Sides, target: str, plain: Pairing) -> Pairing | None:
    if sides.architecture not in PERMUTED or not _ends(target, ".attn_q", ".attn_k"):
        return None
    heads = sides.heads[_ends(target, ".attn_k")]
    if not heads or plain.shape[0] % (2 * heads):
        return None
    part = rope_order(plain.parts[0].source, heads, plain.shape[0])
    return replace(plain, parts=(part,), transform=f"rope permutation of {heads} heads")


def _interleaved(sides: Sides, target: str, plain: Pairing) -> Pairing | None:
    heads = sides.heads[0]
    if sides.architecture not in INTERLEAVED or not _ends(target, ".attn_qkv") or not heads:
        return None
    view = heads, 3, plain.shape[0] // (3 * heads)
    part = Part(source=plain.parts[0].source, view=view, order=(1, 0, 2))
    return replace(plain, parts=(part,), transform=f"q, k and v of {heads} heads put apart")


def _grouped(sides: Sides, target: str, plain: Pairing) -> Pairing | None:
    heads, groups = sides.heads
    if sides.architecture != "falcon" or not _ends(target, ".attn_qkv") or not heads:
        return None
    if sides.config.get("multi_query") and not sides.config.get("new_decoder_architecture"):
        groups = 1
    each, name = heads // groups, plain.parts[0].source
    view = groups, each + 2, plain.shape[0] // (groups * (each + 2))
    cuts = (1, 0, each), (1, each, each + 1), (1, each + 1, each + 2)
    parts = tuple(Part(source=name, view=view, take=cut) for cut in cuts)
    return replace(plain, parts=parts, transform=f"q, k and v of {groups} groups put apart")


def _turned(sides: Sides, target: str, plain: Pairing) -> Pairing | None:
    if sides.architecture != "gpt2" or len(plain.shape) != 2 or not target.endswith(TURNED):
        return None
    return replace(
        plain,
        parts=(Part(source=plain.parts[0].source, transposed=True),),
        shape=plain.shape[::-1],
        transform="transposed",
    )


def _plus_one(sides: Sides, _target: str, plain: Pairing) -> Pairing | None:
    if sides.architecture not in PLUS_ONE or not plain.parts[0].source.endswith("norm.weight"):
        return None
    return replace(plain, arithmetic="+1", transform="+1")


def _minus_exp(_sides: Sides, _target: str, plain: Pairing) -> Pairing | None:
    return replace(plain, arithmetic="-exp", transform="-exp") if plain.parts[0].source.endswith(".A_log") else None


def _cut(sides: Sides, target: str, plain: Pairing) -> Pairing | None:
    """Keep the rows that the vocabulary has, or the positions after the padding."""
    there, name = sides.candidate.get(target, ()), plain.parts[0].source
    rows = plain.shape[0] if plain.shape else 0
    if len(there) != 2 or not there[0] < rows:
        return None
    embedding = target in ("token_embd.weight", "output.weight")
    if sides.architecture in CUT_VOCABULARY and embedding and rows - there[0] <= PADDING:
        part = Part(source=name, take=(0, 0, there[0]))
        return replace(plain, parts=(part,), shape=(there[0], *plain.shape[1:]), transform=f"{there[0]} of {rows} rows")
    offset = int(sides.config.get("pad_token_id") or 0) + 1
    roberta = "roberta" in str(sides.config.get("model_type"))
    if roberta and target == "position_embd.weight" and there[0] == rows - offset:
        part = Part(source=name, take=(0, offset, rows))
        return replace(plain, parts=(part,), shape=(there[0], *plain.shape[1:]), transform=f"rows from {offset} on")
    return None


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
    """Take experts that are stacked already, gate and up apart."""
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
    """Give a tensor the file's own shape where only dimensions of one come or go."""
    if [size for size in pairing.shape if size != 1] == [size for size in there if size != 1]:
        return replace(pairing, shape=there)
    return pairing


def looks_converted(source: Collection[str], candidate: Collection[str]) -> bool:
    """Tell whether names changed so much that they were meant to: fewer than half of them are on both sides."""
    return 2 * len(set(source) & set(candidate)) < len(candidate) and math.prod((len(source), len(candidate))) > 0
