"""The block types of quantised files: their sizes, what their errors may be, and the mixtures that are made of them."""

import itertools
import re
from collections.abc import Mapping
from typing import NamedTuple

# By type: the elements of a block; the relative RMSE of normally distributed values, measured (real weights make up to
# 1.1 times as much, and about 1.4 times at most with an importance matrix); the share of a tensor's codes that may not
# be the nearest to its values under the file's own scales, measured (above what the quantiser makes with any
# importances and of values rounded to BF16 before, below what 2 % of noise makes; none where there is no nearest code);
# and what stands in where rows are not whole blocks of 256, in newer and older versions, else IQ4_NL
# (spec/conversions.md).
TYPES = """
Q8_0 32 0.0054 0.05; Q6_K 256 0.0178 0.015 Q8_0; Q5_K 256 0.0361 0.008 Q5_1; Q5_1 32 0.0378 0.025;
Q5_0 32 0.0427 0.025; Q4_K 256 0.0713 0.003 Q5_0; IQ4_NL 32 0.0762 0.003; IQ4_XS 256 0.0768 0.004;
Q4_1 32 0.0782 0.02; Q4_0 32 0.0859 0.02; NVFP4 64 0.103 0.009; MXFP4 32 0.114 0.009;
Q3_K 256 0.151 0.0015 Q4_0 IQ4_NL; IQ3_S 256 0.167 0.0005; IQ3_XXS 256 0.214 5e-5; IQ2_S 256 0.249 0.0005;
Q2_K 256 0.297 0.0005 Q4_0 IQ4_NL; IQ2_XS 256 0.3 5e-5; IQ2_XXS 256 0.344 5e-5; IQ1_M 256 0.452 -; IQ1_S 256 0.486 -;
TQ1_0 256 0.807 0.0015 Q4_0 IQ4_NL; TQ2_0 256 0.807 0.0015 Q4_0 IQ4_NL
"""
_BY_TYPE = {dtype: figures for dtype, *figures in map(str.split, TYPES.split(";"))}
BLOCK: Mapping[str, int] = {dtype: int(one[0]) for dtype, one in _BY_TYPE.items()}
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

# Of these, the types whose quantiser takes no importance matrix: their bytes follow from the values alone.
UNWEIGHTED = ("Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

TYPICAL_ERROR: Mapping[str, float] = {dtype: float(one[1]) for dtype, one in _BY_TYPE.items()}
MARGIN = 1.5
BOUND: Mapping[str, float] = {dtype: MARGIN * error for dtype, error in TYPICAL_ERROR.items()}
LOST_SHARE = 1e-9  # of the squared values; one block of a large tensor is more, scales that underflow are far less

NOT_NEAREST: Mapping[str, float] = {dtype: float(one[2]) for dtype, one in _BY_TYPE.items() if one[2] != "-"}
SIGNED = ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")  # of whose codes the wrong signs are counted alone

STANDS_IN: Mapping[str, str] = {"Q5_1": "Q5_K"}  # where a row is not whole blocks of 256, and less precise than it
TERNARY = ("TQ1_0", "TQ2_0")
HALVED_WITH_TERNARY = ("token_embd.weight", "output.weight")  # stored as F16 beside ternary tensors

# --- What llama.cpp's quantiser and its converter make of each tensor, by the mixture that was asked for --------------

# By mixture: its number in a header, its default type, and what a kind of tensors may get besides: by the layer, the
# number of experts or of heads that share keys, and the version (llama-quant.cpp, `llama_tensor_get_type`).
TABLE = """
Q4_0 2 Q4_0 down:Q4_1; Q4_1 3 Q4_1; Q8_0 7 Q8_0; Q5_0 8 Q5_0 down:Q5_1; Q5_1 9 Q5_1;
Q2_K 10 Q2_K v:Q3_K,Q4_K,Q5_K down:Q3_K o:Q3_K,Q5_K; Q3_K_S 11 Q3_K v:Q5_K o:Q5_K;
Q3_K_M 12 Q3_K v:Q4_K,Q5_K down:Q4_K,Q5_K o:Q4_K,Q5_K; Q3_K_L 13 Q3_K v:Q4_K,Q5_K down:Q4_K,Q5_K o:Q4_K,Q5_K;
Q4_K_S 14 Q4_K v:Q5_K down:Q5_K o:Q5_K; Q4_K_M 15 Q4_K v:Q5_K,Q6_K down:Q5_K,Q6_K o:Q5_K; Q5_K_S 16 Q5_K;
Q5_K_M 17 Q5_K v:Q6_K down:Q6_K; Q6_K 18 Q6_K;
IQ2_XXS 19 IQ2_XXS head:Q5_K embd:Q2_K v:Q2_K,Q4_K k:Q4_K down:Q2_K o:Q5_K;
IQ2_XS 20 IQ2_XS head:Q5_K embd:Q2_K v:Q2_K,Q4_K k:Q4_K down:Q2_K o:Q5_K; Q2_K_S 21 Q2_K v:Q4_K,Q5_K down:Q4_K;
IQ3_XS 22 IQ3_S v:Q4_K,Q5_K k:IQ3_XXS q:IQ3_XXS gate:IQ3_XXS up:IQ3_XXS o:Q5_K;
IQ3_XXS 23 IQ3_XXS head:Q5_K embd:IQ3_S v:IQ3_S,Q4_K,Q5_K k:IQ2_S q:IQ2_S down:Q3_K,Q4_K o:IQ3_S,Q5_K;
IQ1_S 24 IQ1_S head:Q5_K embd:Q2_K v:Q2_K,Q4_K k:Q4_K down:Q2_K o:IQ2_XXS,Q5_K;
IQ4_NL 25 IQ4_NL v:Q5_K down:Q5_K o:Q5_K; IQ3_S 26 IQ3_S v:Q4_K,Q5_K o:Q5_K;
IQ3_M 27 IQ3_S v:Q4_K,Q5_K down:Q4_K o:Q4_K,Q5_K;
IQ2_S 28 IQ2_XS head:Q5_K embd:IQ3_S v:IQ3_S,Q4_K k:Q4_K down:IQ3_S o:IQ3_S,Q5_K;
IQ2_M 29 IQ2_S head:Q5_K embd:IQ3_S v:IQ3_S,Q4_K k:Q4_K down:IQ3_S o:IQ3_S,Q5_K;
IQ4_XS 30 IQ4_XS v:Q5_K down:Q5_K o:Q5_K;
IQ1_M 31 IQ1_M head:Q5_K embd:Q2_K v:Q2_K,Q4_K k:Q4_K down:Q2_K o:IQ2_XXS,Q5_K; TQ1_0 36 TQ1_0 embd:Q4_K;
TQ2_0 37 TQ2_0 embd:Q4_K; MXFP4_MOE 38 MXFP4; NVFP4 39 NVFP4
"""
ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "MXFP4": "MXFP4_MOE"}  # as llama-quantize takes them
ROUNDED_TYPES = {"F16": 1, "BF16": 32}  # numbers of files that are rounded throughout
FALLBACK = {dtype: tuple(one[3:]) for dtype, one in _BY_TYPE.items() if one[3:]}
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
    besides: Mapping[str, tuple[str, ...]]


RECIPES = {
    name: Recipe(int(number), default, {one.split(":")[0]: tuple(one.split(":")[1].split(",")) for one in kinds})
    for name, number, default, *kinds in map(str.split, TABLE.split(";"))
}
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
    instead = {dtype: FALLBACK.get(dtype, ("IQ4_NL",)) if row % 32 == 0 else ("F16",) for dtype in types}
    fitting = [one for dtype in types for one in ((dtype,) if row % BLOCK[dtype] == 0 else instead[dtype])]
    return tuple(dict.fromkeys((*fitting, *(("F16",) if halved else ()))))
