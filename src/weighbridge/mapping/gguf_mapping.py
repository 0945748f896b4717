"""gguf:auto: which Hugging Face tensors make which tensor of a GGUF file, by the rows of `gguf_rules`."""

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from typing import Any

from weighbridge.core import dataclass, replace
from weighbridge.mapping.gguf_names import Names, by_layer
from weighbridge.mapping.gguf_rules import LAYER, generated, pairings, rules, size_of
from weighbridge.mapping.mapping_plan import Pairing, Part, Plan, Shape, Shapes, rope_order, ties, whole
from weighbridge.model_config.model_keys import field_keys

MATRIX = {"w1": "gate", "w2": "down", "w3": "up", "gate_proj": "gate", "down_proj": "down", "up_proj": "up"}
# One expert of a layer: its place, and which of the three matrices it is.
EXPERT = re.compile(
    LAYER + rf"(?:block_sparse_moe|mlp|feed_forward|mixer)\.experts\.(\d{{1,6}})\.({'|'.join(MATRIX)})\.weight"
)
OF_LAYER = re.compile(LAYER + r".*")

MASK = "a causal mask"
POOLER = "the pooler, which embedding models do not use"
PADDING = 64  # rows at most that pad an embedding beyond its vocabulary


def left_out(shapes: Shapes) -> dict[str, str]:
    """Return what a rule leaves out of a source: masks that are shaped so, no pooler that a classifier stands on."""
    found = ((name, why) for name in shapes for rule, why in rules().left_out.items() if re.fullmatch(rule, name))
    kept = POOLER if any(name.startswith("classifier.") for name in shapes) else ""  # a head over what it gives
    # A causal mask, or the one value that stands for minus infinity.
    masks = {name for name, shape in shapes.items() if shape in ((), (1,))}
    masks |= {name for name, shape in shapes.items() if len(shape) == 4 and shape == (1, 1, shape[2], shape[2])}
    return {name: why for name, why in found if why != kept and (why != MASK or name in masks)}


@dataclass(frozen=True, kw_only=True)
class Sides:
    """What a plan is made from: architecture, the source's configuration, and shapes by name on both sides."""

    architecture: str
    config: Mapping[str, Any]
    source: Shapes
    candidate: Shapes
    numbers: Callable[[str], Any] = lambda _key: None  # an array of numbers in the file's header, by its key
    projectors: tuple[str, ...] = ()  # that the file's header names

    def number(self, what: str) -> int:
        """Find a number in the configuration under any of its names, or 0."""
        found = (self.config.get(key) for key in field_keys()[what].config)
        return next((value for value in found if isinstance(value, int) and value > 0), 0)

    @property
    def heads(self) -> tuple[int, int]:
        """Return the source's head counts, never the import's own: a permutation by wrong ones is to be found."""
        heads = self.number("head_count")
        return heads, self.number("head_count_kv") or heads

    @property
    def blocks(self) -> int:
        """Return how many layers the configuration states."""
        kinds = self.config.get("layers_block_type")
        return self.number("block_count") or (len(kinds) if isinstance(kinds, list) else 0)

    @cached_property
    def by_layer(self) -> Mapping[str, str]:
        """Return the source's names by those that they have among the numbered layers."""
        stack = self.config.get("num_layers_per_stack")
        return by_layer(self.source, stack if isinstance(stack, int) else self.blocks)

    def is_one_of(self, architectures: Collection[str]) -> bool:
        """Return whether a rule is for this architecture; one of none is for all."""
        return not architectures or self.architecture in architectures


def plan(sides: Sides) -> Plan:
    """Plan how a source became a GGUF file; an architecture that was never tried is planned by names alone."""
    made: dict[str, Pairing] = {}
    repeats: dict[str, str] = {}
    for one in sorted(_single(sides), key=lambda one: (one.candidate, one.parts[0].source)):
        if (first := made.setdefault(one.candidate, one)) is not one:
            repeats[one.parts[0].source] = first.parts[0].source
    made |= _stacks(sides)
    made |= _fused(sides, made)
    kept = {target: found for target, found in made.items() if target in sides.candidate}
    gone = {found.parts[0].source: target for target, found in made.items() if target not in sides.candidate}
    # A lost head may repeat the source's embedding, and a new head the candidate's.
    embedding = kept["token_embd.weight"].parts[0].source if "token_embd.weight" in kept else ""
    lost = {name: embedding for name, target in gone.items() if target == "output.weight" and embedding}
    planned = Plan(
        name=f"gguf:auto ({sides.architecture})",
        pairings={target: _reshaped(found, sides.candidate[target]) for target, found in kept.items()},
        tied={**ties(sides.candidate), **ties(sides.source), **lost, **repeats},
        drop_rules=left_out(sides.source) | _further(sides),
        zero_biases=rules().zero_biases,
        generated={name: values for name, values in generated(sides.config).items() if name in sides.candidate},
        in_header=_in_header(sides),
        heads=sides.heads,
    )
    if sides.is_one_of(rules().proven):
        return planned
    # No rule speaks of names that no table has, and of what was made of them.
    named = {part.source for pairing in made.values() for part in pairing.parts} | planned.tied.keys()
    unnamed = sides.source.keys() - named - planned.drop_rules.keys() - planned.in_header.keys()
    unmade = sides.candidate.keys() - planned.pairings.keys() - planned.generated.keys() - planned.tied.keys()
    return replace(planned, without_rule=frozenset(unnamed | unmade), untried=f"architecture {sides.architecture!r}")


def _single(sides: Sides) -> list[Pairing]:
    """Return what each source tensor becomes that is no expert's and none of a stack."""
    names = Names(sides.architecture, sides.candidate)
    found = []
    for spelled, name in sides.by_layer.items():
        if _stack_of(sides, spelled) is not None:
            continue
        target = names.target(spelled)
        # A table may name it with its suffix, or the file without one (hunyuan.py:363).
        written = (target, target.removesuffix(".bias"), f"{target}.{name.rpartition('.')[2]}") if target else ()
        wanted = next((one for one in written if one in sides.candidate), target)
        ways = _by_rule(sides, spelled, name), [] if wanted is None else [pairing(sides, wanted, name)]
        there = (made for made in ways if any(one.candidate in sides.candidate for one in made))
        found += [_computed(sides, spelled, one) for one in next(there, ways[0] or ways[1])]
    return found


def _by_rule(sides: Sides, spelled: str, name: str) -> list[Pairing]:
    """Return what the first rule makes whose targets the file has, else what the first rule makes."""
    found: list[list[Pairing]] = []
    for rule in rules().tensors:
        layer = re.fullmatch(rule.names, spelled)
        if layer is None or not sides.is_one_of(rule.of):
            continue
        targets = [f"blk.{layer[1]}.{one}" for one in rule.to]
        made = pairings(rule.layout, targets, name, sides.source[name], partial(size_of, sides.config))
        if any(one.candidate in sides.candidate for one in made):
            return made
        found.append(made)
    return next(filter(None, found), [])


def pairing(sides: Sides, target: str, name: str) -> Pairing:
    """Return how one source tensor makes one GGUF tensor; the first rule that applies counts."""
    plain = whole(target, name, sides.source)
    if (part := _attention(sides, target, name)) is not None:
        return replace(plain, parts=part[0], transform=part[1])
    if sides.architecture == "gpt2" and len(plain.shape) == 2 and target.endswith(rules().turned):
        turned = (Part(source=name, transposed=True),)
        return replace(plain, parts=turned, shape=plain.shape[::-1], transform="transposed")
    return _cut(sides, plain) or plain


def _attention(sides: Sides, target: str, name: str) -> tuple[tuple[Part, ...], str] | None:
    """Return queries and keys in the file's order, and how that is called; None where they stay as they are."""
    (heads, groups), (rows, *_) = sides.heads, (*sides.source[name], 0)
    stem = target.rsplit(".", 1)[0]
    if stem.endswith((".attn_q", ".attn_k")):
        heads = groups if stem.endswith(".attn_k") else heads
        if sides.is_one_of(rules().of_sections):
            return _of_sections(sides, name, heads, rows)
        if sides.is_one_of(rules().permuted) and heads and rows % (2 * heads) == 0:
            return (rope_order(name, heads, rows),), f"rope permutation of {heads} heads"
        return None
    if not heads or not stem.endswith(".attn_qkv"):
        return None
    if sides.architecture in rules().interleaved:
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


def _of_sections(sides: Sides, name: str, heads: int, rows: int) -> tuple[tuple[Part, ...], str] | None:
    """Return every second row of what turns of each head, then the others, then what does not turn."""
    rope = sides.config.get("rope_parameters") or sides.config.get("rope_scaling")
    if not isinstance(rope, Mapping) or "mrope_section" not in rope or not heads or rows % heads:
        return None
    each, share = rows // heads, rope.get("partial_rotary_factor", 0.5)
    turning = int(each * share) if isinstance(share, (int, float)) and 0 < share <= 1 else 0
    if turning < 2 or turning % 2:
        return None
    parts = []
    for begin in range(0, rows, each):
        parts.append(Part(source=name, rows=(begin, begin + turning), view=(turning // 2, 2), order=(1, 0)))
        if turning < each:
            parts.append(Part(source=name, rows=(begin + turning, begin + each)))
    return tuple(parts), f"pairs of {heads} heads put apart"


def _cut(sides: Sides, plain: Pairing) -> Pairing | None:
    """Keep or add the rows that the vocabulary has, or keep the positions after the padding."""
    target, there = plain.candidate, sides.candidate.get(plain.candidate, ())
    rows = plain.shape[0] if plain.shape else 0
    if len(there) != 2 or there[0] == rows:
        return None
    if there[0] > rows:
        padded = sides.is_one_of(rules().padded_vocabulary) and target.endswith("token_embd.weight")
        if not padded or len(plain.shape) != len(there) or there[0] != sides.number("vocab_size"):
            return None
        zeros = (there[0] - rows) * plain.shape[1]
        return replace(plain, shape=(there[0], plain.shape[1]), zeros=zeros, transform=f"zeros from row {rows} on")
    offset, family = int(sides.config.get("pad_token_id") or 0) + 1, str(sides.config.get("model_type"))
    embedding = target in ("token_embd.weight", "output.weight")
    if sides.architecture in rules().cut_vocabulary and embedding and rows - there[0] <= PADDING:
        take, transform = (0, 0, there[0]), f"{there[0]} of {rows} rows"
    elif target == "position_embd.weight" and there[0] == rows - offset and "roberta" in family:
        take, transform = (0, offset, rows), f"rows from {offset} on"
    else:
        return None
    part = Part(source=plain.parts[0].source, take=take)
    return replace(plain, parts=(part,), shape=(there[0], *plain.shape[1:]), transform=transform)


def _computed(sides: Sides, spelled: str, made: Pairing) -> Pairing:
    """Add what is computed of each value: a constant, an exponential, or multipliers of the configuration."""
    if any(sides.is_one_of(rule.of) and re.fullmatch(rule.names, spelled) for rule in rules().plus_one):
        return replace(made, arithmetic="+1", transform="+1")
    if spelled.endswith(".A_log"):
        return replace(made, arithmetic="-exp", transform="-exp")
    if sides.architecture != "falcon-h1":
        return made
    keys = next((keys for names, keys in rules().multiplied.items() if re.fullmatch(names, spelled)), ())
    if spelled.endswith("mamba.in_proj.weight"):
        return _multiplied_apart(sides, made)
    stated = [_factor(sides.config, key) for key in keys]
    factors = tuple(factor for factor in stated if factor is not None)
    if len(factors) < len(stated) or set(factors) <= {1.0}:
        return made
    parts = tuple(replace(part, factors=factors) for part in made.parts)
    times = " ".join(f"x {factor:g}" for factor in factors if factor != 1.0)
    return replace(made, parts=parts, transform=", ".join(filter(None, (made.transform, times))))


def _multiplied_apart(sides: Sides, made: Pairing) -> Pairing:
    """Multiply z, x, B, C and dt by a number each: falcon_h1.py:78."""
    (part,), rows = made.parts, made.shape[0] if made.shape else 0
    sizes = partial(size_of, sides.config)
    width, states = sizes("mamba_d_ssm"), sizes("mamba_n_groups") * sizes("mamba_d_state")
    ends = (width, 2 * width, 2 * width + states, 2 * (width + states), rows)
    keys = ("ssm_in_multiplier", *(f"ssm_multipliers.{at}" for at in range(len(ends))))
    factors = [factor for key in keys if (factor := _factor(sides.config, key)) is not None]
    if len(factors) != len(keys) or list(ends) != sorted(ends):
        return made
    cuts = zip((0, *ends), ends, factors[1:], strict=False)
    parts = tuple(replace(part, rows=(begin, end), factors=(factors[0], factor)) for begin, end, factor in cuts)
    return replace(made, parts=parts, transform="z, x, B, C and dt multiplied")


def _factor(config: Mapping[str, Any], path: str) -> float | None:
    key, _, at = path.partition(".")
    value = config.get(key)
    value = value[int(at)] if at and isinstance(value, list) and int(at) < len(value) else value
    return float(value) if isinstance(value, (int, float)) else None


def _stack_of(sides: Sides, spelled: str) -> tuple[str, int] | None:
    """Return the stack that an expert's matrix belongs to, and its place there; None for what belongs to none."""
    found = EXPERT.fullmatch(spelled)
    matrix = f"blk.{int(found[1])}.ffn_{MATRIX[found[3]]}" if found else ""
    if found is None or f"{matrix}.weight" in sides.candidate:  # one alone may be stored as no expert (jamba.py:64)
        return None
    return f"{matrix}_exps.weight", int(found[2])


def _stacks(sides: Sides) -> dict[str, Pairing]:
    """Stack tensors of one number each, such as the experts of a layer, in the order of their numbers."""
    found: dict[str, dict[int, str]] = {}
    for spelled, name in sides.by_layer.items():
        matched = ((rule.to[0], re.fullmatch(rule.names, spelled)) for rule in rules().stacks)
        by_rule = ((target, int(number[1])) for target, number in matched if number is not None)
        if (one := _stack_of(sides, spelled) or next(by_rule, None)) is not None:
            found.setdefault(one[0], {})[one[1]] = name
    stacks = {}
    for target, names in found.items():
        parts = tuple(Part(source=names[place]) for place in sorted(names))
        shape = len(parts), *sides.source[parts[0].source]
        what = "experts" if target.startswith("blk.") else "tensors"
        stacks[target] = Pairing(candidate=target, parts=parts, shape=shape, transform=f"{len(parts)} {what} stacked")
    return stacks


def _fused(sides: Sides, made: Mapping[str, Pairing]) -> dict[str, Pairing]:
    """Put queries, keys and values one after the other where the file holds them in one tensor."""
    found = {}
    for target in sides.candidate:
        if target in made or ".attn_qkv." not in target:
            continue
        three = [made[name] for one in "qkv" if (name := target.replace("attn_qkv", f"attn_{one}")) in made]
        if len(three) == 3:
            parts = tuple(part for one in three for part in one.parts)
            shape = sum(one.shape[0] for one in three), *three[0].shape[1:]
            found[target] = Pairing(candidate=target, parts=parts, shape=shape, transform="q, k and v fused")
    return found


def _reshaped(pairing: Pairing, there: Shape) -> Pairing:
    """Return a pairing in the file's own shape where dimensions of one come or go, or a norm is split by groups."""
    alike = [size for size in pairing.shape if size != 1] == [size for size in there if size != 1]
    norm = pairing.candidate.endswith(".ssm_norm.weight") and len(there) == 2  # mamba.py:193
    return replace(pairing, shape=there) if alike or (norm and pairing.shape == (there[0] * there[1],)) else pairing


# --- What is in no tensor of the file ---------------------------------------------------------------------------------


def _further(sides: Sides) -> dict[str, str]:
    """Return the tensors of layers that predict further tokens, where the file has nothing of such a layer."""
    layers = {spelled: int(layer[1]) for spelled in sides.by_layer if (layer := OF_LAYER.fullmatch(spelled))}
    there = {name.split(".")[1] for name in sides.candidate if name.startswith("blk.")}
    ends = tuple(f".{name}.weight" for name in rules().further.values())
    own = {layer for spelled, layer in layers.items() if spelled.endswith(ends)}
    beyond = {layer for layer in own if layer >= sides.blocks > 0 and str(layer) not in there}
    why = "a layer that predicts further tokens, which the file has none of"
    return {sides.by_layer[spelled]: why for spelled, layer in layers.items() if layer in beyond}


def _in_header(sides: Sides) -> dict[str, tuple[str, float]]:
    """Return the header's key and value for each learned number that stands there."""
    found: dict[str, tuple[str, float]] = {}
    for rule in rules().in_header:
        for spelled, name in sides.by_layer.items() if sides.is_one_of(rule.of) else ():
            if (layer := re.fullmatch(rule.names, spelled)) is None:
                continue
            key, at = rule.to[0].format(layer[2]), int(layer[1])
            values = sides.numbers(key)
            if isinstance(values, (list, tuple)) and at < len(values):
                found[name] = key, float(values[at])
    return found
