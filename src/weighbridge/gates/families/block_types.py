"""The block types of quantised files: their sizes, what their errors may be, and the mixtures that are made of them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

from weighbridge.core.data import table

TABLE = table("gates/families/block_types")  # measured errors, and what llama.cpp makes of each tensor
BLOCK: Mapping[str, int] = {dtype: one["elements"] for dtype, one in TABLE["types"].items()}
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

# Of these, the types whose quantiser takes no importance matrix: their bytes follow from the values alone.
UNWEIGHTED = ("Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

TYPICAL_ERROR: Mapping[str, float] = {dtype: one["error"] for dtype, one in TABLE["types"].items()}
MARGIN = 1.5
BOUND: Mapping[str, float] = {dtype: MARGIN * error for dtype, error in TYPICAL_ERROR.items()}
LOST_SHARE = 1e-9  # of the squared values; one block of a large tensor is more, scales that underflow are far less

NOT_NEAREST: Mapping[str, float] = {
    dtype: one["not_nearest"] for dtype, one in TABLE["types"].items() if "not_nearest" in one
}
SIGNED = ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")  # of whose codes the wrong signs are counted alone

STANDS_IN: Mapping[str, str] = {"Q5_1": "Q5_K"}  # where a row is not whole blocks of 256, and less precise than it
TERNARY = ("TQ1_0", "TQ2_0")
HALVED_WITH_TERNARY = ("token_embd.weight", "output.weight")  # stored as F16 beside ternary tensors

ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}  # as llama-quantize takes them
ROUNDED_TYPES = {"F16": 1, "BF16": 32}  # numbers of files that are rounded throughout
EXPERTS_ALONE = ("MXFP4", "NVFP4")  # of which a mixture is made, and the rest is Q8_0 or stays as it is
KINDS = (  # first that fits
    *((r"output\.weight", "head"), (r"(per_layer_)?token_embd\.weight", "embd"), (r".*attn_(v|qkv|kv_b)\.weight", "v")),
    *((rf".*attn_{one}\.weight", one) for one in "kq"),
    (r".*attn_output\.weight", "o"),
    *((rf".*ffn_{one}.*", one) for one in ("up", "gate", "down")),
)
# What the quantiser or the converter leaves in F32, or as it was: names of GGUF files, and all that is no `.weight`.
KEPT = re.compile(
    r"(?:blk|enc|dec|v|a|mm|mtp)\..*(?<!\.weight)|.*(?:_norm|posnet\.\d+\.(?:norm|attn_norm)\d*)\.weight"
    r"|.*(?:ffn_gate_inp|ffn_gate_tid2eid|altup|laurel|per_layer_model_proj|position_embd|pos_embd|token_types"
    r"|ssm_conv1d|shortconv\.conv|indexer|time_mix_(?:first|lerp_fused|decay_w\d|[wvag]\d)|attn_rel_b|rel_pos"
    r"|patch_embd|patch_merger|codebook|code_embd|sam\.|hc_|(?:^|\.)conv).*"
)


class Recipe(NamedTuple):
    """One mixture: its number in a header, its default type, and the types of single kinds of tensors."""

    number: int
    default: str
    besides: Mapping[str, tuple[str, ...]] = {}


RECIPES = {name: Recipe(**one) for name, one in TABLE["mixtures"].items()}
NUMBERED = {"F32": 0, **ROUNDED_TYPES, **{name: one.number for name, one in reversed(RECIPES.items())}}
FILE_TYPES: Mapping[object, str] = {number: name for name, number in NUMBERED.items()}
# The least precise type that a mixture holds; a type of its own is one, too.
MIXTURES: Mapping[str, str] = {dtype: dtype for dtype in TYPICAL_ERROR} | {
    name: max((one.default, *itertools.chain(*one.besides.values())), key=TYPICAL_ERROR.__getitem__)
    for name, one in RECIPES.items()
}


def recipe(mixture: str) -> Recipe:
    """Return the recipe of a mixture, or of the one that a type stands for."""
    return RECIPES[ALIASES.get(mixture, mixture)]


def types_of(mixture: str, name: str, row: int) -> tuple[str, ...]:
    """Return the types that a mixture may give a matrix of this name, whose rows have so many values."""
    made = recipe(mixture)
    kind = next((kind for pattern, kind in KINDS if re.fullmatch(pattern, name)), "")
    types = made.besides.get(kind, ())
    if kind in ("head", "embd"):  # an embedding that is the head, too, has the head's type
        head = made.besides.get("head", ("Q6_K",)) if made.default not in ("Q8_0", *EXPERTS_ALONE) else ()
        types = tuple(dict.fromkeys((*types, *head, "Q8_0")))
    elif kind in ("v", "k") and not made.default.startswith(("IQ1", "IQ2")):
        types = (*types, "Q8_0")  # beside eight experts
    types = types if kind == "head" else (made.default, *types)
    halved = made.default in TERNARY and name in HALVED_WITH_TERNARY
    fitting = [one for dtype in types for one in _fitting(dtype, row)]
    return tuple(dict.fromkeys((*fitting, *(("F16",) if halved else ()))))


def _fitting(dtype: str, row: int) -> tuple[str, ...]:
    """Return a type, or those that stand in for it where rows are not whole blocks."""
    if row % BLOCK[dtype] == 0:
        return (dtype,)
    instead: tuple[str, ...] = TABLE["types"][dtype].get("instead", ("IQ4_NL",))
    return instead if row % 32 == 0 else ("F16",)
