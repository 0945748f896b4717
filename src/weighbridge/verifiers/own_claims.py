"""own_claims: what a checkpoint says of its files, packed weights and layers, and what in it contradicts that."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from weighbridge.comparison import adapters
from weighbridge.core import Fields, Measurement, SubjectKind, Unmeasured, replace
from weighbridge.model_config.model_keys import of_config, of_gguf
from weighbridge.packing.implausible_scales import implausible_scales, scales_of_blocks
from weighbridge.packing.packed_weights import by_names, is_left_out, listed, marked, packs_all, settings_of
from weighbridge.packing.packing_rules import ContradictionError, rule_of
from weighbridge.packing.unloadable import unloadable
from weighbridge.quantities.checkpoints import OwnClaim
from weighbridge.storage.readable import METADATA
from weighbridge.verifiers.verifier import Canary, Verifier, Views, rows_by_name, table
from weighbridge.views.checkpoint import CONFIG, CheckpointView, config_beside, json_beside

INDEX = (".index.json", METADATA)
SHARD = re.compile(r"(.*-)\d{5}(-of-(\d{5})\..+)")
LAYER = re.compile(r"((?:\d+\.)?(?:(?!\d+\.)[^.]+\.)*(?:[^.]*_)?(?:layers?|blocks?|blk|h))\.(\d{1,5})\.(.*)")
SENSES = re.compile(r"(?<![^._])(?:vision|visual|image|video|audio|speech|vit)")  # beside a model of text
AGAIN = re.compile(r".*(?:hidden_groups|loops?|cycles|repeats|recurrence|num_blocks)")  # of layers that are run
PARTIAL = re.compile(r".*\.lora_")  # an adapter may be one of few layers
NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
ALONE = "bound without weighbridge-00002-of-00002.safetensors"
MOST, SHOWN, MANY = 10_000, 3, 64  # layers, those that are named, and sizes that a configuration has of one kind
EMBEDDING = re.compile(r"(?:.*\.)?(?:embed_tokens|wte|word_embeddings|embed_in|tok_embeddings)\.weight")
LLAMA = r"(?:model\.|language_model\.)+layers\.\d+\."  # encoders have them without any of these
# Keys of sizes, and of more: a chance likeness is no finding.
WIDTH, WIDE = re.compile(r".*(?:hidden|emb|model|width|dim)"), re.compile(r".*(?:intermediate|ffn|ff_|ffw|mlp)")
HEADS, FEWER = (
    re.compile(r"(?:n_heads?|num_heads|.*attention_heads)$"),
    re.compile(r".*(?:key_value|kv)_heads|n_head_kv"),
)
HEAD_DIM, HIDDEN, WORDS = re.compile(r".*head_dim"), re.compile(r"hidden_size$"), re.compile(r"vocab_size$")
OTHERWISE_MADE = ("block_configs", "kv_lora_rank")  # layer by layer, or with heads of several parts
# No design leaves one layer alone without these, but one whose values are its keys (Gemma 4), and the first of EAGLE's.
CORE = re.compile(
    r"(?:self_attn\.(?:[qkvo]|qkv)_proj|mlp\.(?:gate|up|down|gate_up)_proj|(?:input|post_attention)_layernorm"
    r"|attn_(?:q|k|v|qkv|output)|ffn_(?:gate|up|down|norm))\."
)
PLAIN = ("F16", "BF16", "F32")
NORMED = re.compile(r"model\.layers\.\d+\.input_layernorm\.weight")  # so that there is a norm behind the layers
# What a causal model has besides its layers, and what it may be called.
OUTSIDE = {
    "model.embed_tokens.weight": r".*(?:emb|wte)", "model.norm.weight": r".*(?:norm|ln)",
    "lm_head.weight": r".*(?:head|out)",
}  # fmt: skip
OFTEN, FEW = 3, 4  # layers that are alike, and parts of what is in one: a module that a design leaves out is more


def measure(views: Views, _options: Fields) -> Measurement:
    """Describe every claim, with what contradicts it."""
    return table("own_claims", [row for each in (_files, _packed, *OTHERS) for row in each(views[0])])


def _files(view: CheckpointView) -> Iterator[OwnClaim]:
    own = sorted(Path(name).name for name in view.files)
    for name in own:
        part = None if any(one.endswith(INDEX) for one in own) else SHARD.fullmatch(name)
        each = [f"{part[1]}{number:05}{part[2]}" for number in range(1, int(part[3]) + 1)] if part else [name]
        absent = [one for one in each if one not in own]
        wrong = f"bound without {_first(absent)}" if absent else ""
        yield OwnClaim(name=f"file {name}", about="shard", says=f"one of {len(each)}", wrong=wrong)


def _packed(view: CheckpointView) -> Iterator[OwnClaim]:
    found = list(by_names(view))
    settings = settings_of(view) if found else {}
    scales = implausible_scales(view, (weight for weight, absent in found if not absent))
    unloaded = unloadable(view, settings, found)
    for weight, absent in found:
        wrong = scales.get(weight.codes.name, "")
        try:
            _ = absent or rule_of(weight, settings, lambda one: view.read(one.name, 0, one.nbytes))
        except ContradictionError as problem:
            wrong = str(problem)
        wrong = unloaded.get(weight.codes.name, wrong)
        yield OwnClaim(name=weight.codes.name, about="packing", says=weight.summary(settings), wrong=wrong)


def _plain(view: CheckpointView) -> Iterator[OwnClaim]:
    """Yield of each plain matrix like which others are packed, by a method that packs all, whether a list names it."""
    packed = {weight.name: NUMBER.sub("*", weight.name) for weight in marked(view)}
    settings = settings_of(view) if packed else {}
    like = Counter(packed.values()) if packs_all(settings) else {}
    alone = [one for name, one in view.tensors.items() if NUMBER.sub("*", name) in like and name not in packed]
    stated = of_config(config_beside(view) or {}, CONFIG).get("block_count") if alone else None
    count = stated.value if stated and isinstance(stated.value, int) else MOST
    for one in (one for one in alone if one.dtype in PLAIN and len(one.shape) == 2):
        name, inside = one.name, LAYER.fullmatch(one.name.removesuffix(".weight"))
        behind = f".{inside[2]}.{inside[3]}" if inside else name  # whatever a library calls the whole
        further = inside is not None and int(inside[2]) >= count  # it predicts further tokens
        meant = further or is_left_out(name, settings) or any(each.endswith(behind) for each in listed(settings))
        wrong = "" if meant else f"it is plain, {like[NUMBER.sub('*', name)]} like it are packed, and no list names it"
        yield OwnClaim(name=name, about="packing", says=f"{settings['quant_method']} packs all", wrong=wrong)


def _codeless(view: CheckpointView) -> Iterator[OwnClaim]:
    """Yield of zero points whose codes are not there what is lost."""
    for name in (one for one in view.names() if one.endswith(".qzeros")):
        if (lost := f"{name.removesuffix('qzeros')}qweight") not in view.tensors:
            yield OwnClaim(name=lost, about="packing", says=f"{name} goes with it", wrong=f"there is no {lost}")


def _blocks(view: CheckpointView) -> Iterator[OwnClaim]:
    for name, wrong in scales_of_blocks(view).items():
        yield OwnClaim(name=name, about="packing", says="Q8_0", wrong=wrong)


def _layers(view: CheckpointView) -> Iterator[OwnClaim]:
    names, gguf = view.weights(), view.format == "gguf"
    part = view.format == "onnx" or view.metadata.get("general.type", "model") != "model"
    config = {} if gguf or view.format == "apr" else config_beside(view) or {}
    if part or any(map(PARTIAL.match, names)) or any(map(AGAIN.fullmatch, config)):
        return
    stated = of_gguf(view.metadata, view.tensors) if gguf else of_config(config or view.metadata, CONFIG)
    count, more = (stated[one].value if one in stated else 0 for one in ("block_count", "nextn_predict_layers"))
    if isinstance(count, int) and isinstance(more, int) and 0 <= more < count < MOST:
        of, wrong = contradicted(lists_of(names), *((count - more, count) if gguf else (count, count + more)))
        says = f"{count} layers by {stated['block_count'].read}"
        yield from [OwnClaim(name=of, about="layers", says=says, wrong=wrong)] if of else ()


def _shapes(view: CheckpointView) -> Iterator[OwnClaim]:
    """Yield of each tensor whose shape config.json gives what that is; packed ones have shapes of their own."""
    known = [one for one in map(view.tensor, view.names()) if one.dtype in PLAIN and len(one.shape) == 2]
    of = [(one, [fact for fact in FACTS if fact.names.fullmatch(one.name)]) for one in known]
    config = config_beside(view) or {} if any(facts for _, facts in of) else {}
    sizes = {fact: sorted(fact.sizes(config)) for fact in FACTS if config}
    for one, facts in of:
        said = [fact for fact in facts if sizes.get(fact)]
        wrong = [fact for fact in said if not fact.allows(one.shape, sizes[fact])]
        for fact in (wrong or said)[:1]:
            says = f"{fact.says} in {CONFIG}: {_first(sizes[fact])}"
            yield OwnClaim(name=one.name, about="layers", says=says, wrong=f"its shape is {[*one.shape]}" * bool(wrong))


class Fact(NamedTuple):
    """One thing that config.json says of the shape of tensors: of which, in words, of which axis, and the sizes."""

    names: re.Pattern[str]
    says: str
    axis: int
    sizes: Callable[[Fields], set[int]]
    least: bool = False  # there may be more

    def allows(self, shape: Sequence[int], sizes: Sequence[int]) -> bool:
        """Return whether a shape is of one of the sizes."""
        return shape[self.axis] >= sizes[0] if self.least else shape[self.axis] in sizes


def _rows_of_heads(config: Fields, times: int = 1, fewer: re.Pattern[str] | None = None) -> set[int]:
    """Return how many rows heads have together, by any number of them and any size of one; there may be `fewer`."""
    sizes, heads, widths = ({*_ints(config, one)} - {0} for one in (HEAD_DIM, HEADS, HIDDEN))
    if any(one in config for one in OTHERWISE_MADE) or max(map(len, (sizes, heads, widths))) > MANY:
        return set()
    parts = any(isinstance(one, dict) and "num_attention_heads" in one for one in config.values())
    if parts or type(config.get("head_dim")) is not int:  # it may be of something else than this part
        sizes |= {wide // many for wide in widths for many in heads}
    heads |= {*_ints(config, fewer)} if fewer else set()
    return {many * size * by for many in heads for size in sizes for by in (1, times)}


# Queries may have a gate beside them, as those of Qwen3-Next.
FACTS = (
    Fact(EMBEDDING, "as wide as a width", 1, lambda config: {*_ints(config, WIDTH)}),
    Fact(EMBEDDING, "a row for each of vocab_size", 0, lambda config: {*_ints(config, WORDS)}, least=True),
    Fact(
        re.compile(LLAMA + r"self_attn\.q_proj\.weight"), "rows of its heads", 0,
        lambda config: _rows_of_heads(config, times=2),
    ),
    Fact(
        re.compile(LLAMA + r"self_attn\.[kv]_proj\.weight"), "rows of its key-value heads", 0,
        lambda config: _rows_of_heads(config, fewer=FEWER),
    ),
    Fact(
        re.compile(LLAMA + r"mlp\.(?:gate|up)_proj\.weight"), "as many rows as an intermediate size", 0,
        lambda config: set() if "block_configs" in config else {*_ints(config, WIDE)},
    ),
)  # fmt: skip


def _ints(value: object, keys: re.Pattern[str], key: str = "") -> Iterator[int]:
    if isinstance(value, dict):
        yield from (found for name, inner in value.items() for found in _ints(inner, keys, str(name)))
    elif isinstance(value, list):
        yield from (found for inner in value for found in _ints(inner, keys, key))
    elif type(value) is int and keys.match(key):
        yield value


def _outside(view: CheckpointView) -> Iterator[OwnClaim]:
    """Yield of a causal model of Llama's names what it has besides its layers: an embedding, a norm, and a head."""
    names = view.weights()
    config = config_beside(view) or {} if any(map(NORMED.fullmatch, names)) else {}
    kinds = config.get("architectures")
    made = [one for one in kinds if str(one).endswith("ForCausalLM")] if isinstance(kinds, list) else []
    if not made or any(map(PARTIAL.match, names)) or any(one.wrong for one in _files(view)):
        return
    besides = [name for name in names if not name.startswith("model.layers.")]
    for name, like in OUTSIDE.items():
        if "head" not in name or config.get("tie_word_embeddings") is False:
            wrong = "" if any(map(re.compile(like).match, besides)) else f"there is no {name}"
            says = f"{made[0]} by {CONFIG}"
            yield OwnClaim(name=name.removesuffix(".weight"), about="layers", says=says, wrong=wrong)


def _adapter(view: CheckpointView) -> Iterator[OwnClaim]:
    """Yield of each first matrix of LoRA whether its second one is there, and whether its rank is the stated one."""
    first, second = adapters.LINEAR
    of_it = [name for name in view.names() if name.endswith(first)]
    said = json_beside(view, adapters.CONFIG, adapters.MAX_CONFIG) or {} if of_it else {}
    for name in of_it:
        module = name.removesuffix(first).removeprefix(adapters.OUTER)
        rank = adapters.of_module(said, "rank_pattern", "r", module) if said.get("peft_type") == "LORA" else None
        other, has = name.removesuffix(first) + second, view.tensors[name].shape[:1]
        unlike = f"it has {has[0]} rows" if type(rank) is int and has and has[0] != rank else ""
        wrong = f"there is no {other}" if other not in view.tensors else unlike
        says = f"LoRA of rank {rank} by {adapters.CONFIG}" if rank else "LoRA"
        yield OwnClaim(name=name, about="layers", says=says, wrong=wrong)


def lists_of(names: Iterable[str]) -> dict[str, dict[int, set[str]]]:
    """Return what is in each layer of each list that names show, but those inside layers."""
    found: dict[str, dict[int, set[str]]] = {}
    for at in filter(None, map(LAYER.fullmatch, names)):
        found.setdefault(at[1], {}).setdefault(int(at[2]), set()).add(at[3])
    return {one: layers for one, layers in found.items() if not SENSES.search(one)} or found


def contradicted(lists: dict[str, dict[int, set[str]]], least: int, most: int) -> tuple[str, str]:
    """Return a list that should have at least and at most so many layers, and what is wrong; "" where none is meant."""
    sized = sorted(lists, key=lambda one: -sum(map(len, lists[one].values())))
    for one in sized:  # one that has them is enough, for that of a decoder or of an encoder may be shorter
        if lists[one].keys() in (set(range(least)), set(range(most))):
            return one, _uneven([lists[one][number] for number in range(least)])
    for one in sized:
        inside = [lists[one].get(number) for number in range(least)]
        absent = [number for number, layer in enumerate(inside) if not layer]
        beyond = {number: layer for number, layer in sorted(lists[one].items()) if number >= most}
        if absent and not beyond:
            return one, f"no tensor is of layer {_first(absent)}"
        if beyond and not absent and all(layer in inside for layer in beyond.values()):
            return one, f"there is a layer {_first([*beyond])}, too"
    return "", ""


def _uneven(layers: list[set[str]]) -> str:
    """Return what one inner layer lacks that its like have; the first and the last may lack some by design."""
    plain = [frozenset(one for one in layer if one.endswith((".weight", ".bias"))) for layer in layers]
    for at, own in enumerate(plain):
        for whole in {*plain[:at]} & {*plain[at + 1 :]}:
            absent, many = sorted(whole - own), plain.count(whole)
            if own < whole and FEW * len(absent) <= len(whole) and plain.count(own) == 1 and many >= OFTEN:
                return f"layer {at} has no {_first(absent)}, which {many} others have"
    return _alone(layers)


def _alone(layers: list[set[str]]) -> str:
    """Return what one layer alone lacks, the first or the last too, of what each is made of, where others are alike."""
    whole = max(layers, key=len, default=set())
    odd = [at for at, one in enumerate(layers) if one != whole]
    if len(odd) != 1 or len(layers) < OFTEN or not layers[odd[0]] < whole:
        return ""
    absent = sorted(whole - layers[odd[0]])
    stems = tuple(found[0] if (found := CORE.match(one)) else "" for one in absent)
    designed = stems == ("self_attn.v_proj.",) or (odd == [0] and "input_layernorm." in stems)
    if designed or any(one.startswith(stems) for one in layers[odd[0]]):  # packed otherwise, or nothing that is known
        return ""
    return f"layer {odd[0]} has no {_first(absent)}, which {len(layers) - 1} others have"


def _first(found: Sequence[object]) -> str:
    return ", ".join([*map(str, found[:SHOWN]), *["…"] * (len(found) > SHOWN)])


OTHERS = (_plain, _codeless, _blocks, _layers, _shapes, _outside, _adapter)  # claims than of files and packed weights


def extent(views: Views, _options: Fields) -> int:
    """Count the files, the packed weights and matrices of Q8_0, the claim of layers, and what else config.json says."""
    return len(views[0].files) + sum(1 for each in (by_names, *OTHERS) for _ in each(views[0]))


def canary(views: Views, options: Fields, measured: Measurement) -> Canary:
    """Call a file one of two shards, and where the layers are right, take the first of several away."""
    view, place = views[0], "file weighbridge-00001-of-00002.safetensors"
    lists, rows = lists_of(view.weights()), rows_by_name(measured).values()
    right = any(row.about == "layers" and not row.wrong and len(lists.get(row.name, ())) > 1 for row in rows)
    gone = tuple(f"{one}.0." for one in lists) if right else ()
    files = {one: file for one, file in view.files.items() if not one.endswith(INDEX)}
    files[place.removeprefix("file ")] = next(iter(files.values()))
    cut = replace(view.cut(one for one in view.names() if not one.startswith(gone)), files=files)

    def seen(found: Measurement | Unmeasured) -> bool:
        after = rows_by_name(found)
        named = [one for one, row in after.items() if row.wrong == ALONE]
        lost = any(row.about == "layers" and row.wrong for row in after.values())
        return named == [place] and (lost or not right) and len(after) == extent((cut,), options)

    return Canary(name="a layer taken away, a file called one of two", place=place, views=(cut,), seen=seen)


OF = (SubjectKind.CHECKPOINT,)
VERIFIER = Verifier(quantity="own_claims", kinds=OF, measure=measure, extent=extent, canary=canary)
