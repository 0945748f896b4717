"""The block types of quantised files: their sizes, what their errors may be, and the mixtures that are made of them."""

from __future__ import annotations

from collections.abc import Mapping

# Elements a block, by block type.
BLOCK: Mapping[str, int] = {
    **dict.fromkeys(("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4"), 32),
    "NVFP4": 64,
    **dict.fromkeys(("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0"), 256),
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"), 256),
}
REQUANTISED = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

# Of these, the types whose quantiser takes no importance matrix: their bytes follow from the values alone.
UNWEIGHTED = ("Q8_0", "TQ1_0", "TQ2_0", "MXFP4")

# Relative RMSE of normally distributed values in each type, measured. Real weights make up to 1.1 times as much, and
# about 1.4 times at most with an importance matrix (spec/conversions.md).
TYPICAL_ERROR: Mapping[str, float] = {
    "Q8_0": 0.0054, "Q6_K": 0.0178, "Q5_K": 0.0361, "Q5_1": 0.0378, "Q5_0": 0.0427, "Q4_K": 0.0713, "IQ4_NL": 0.0762,
    "IQ4_XS": 0.0768, "Q4_1": 0.0782, "Q4_0": 0.0859, "NVFP4": 0.103, "MXFP4": 0.114, "Q3_K": 0.151, "IQ3_S": 0.167,
    "IQ3_XXS": 0.214, "IQ2_S": 0.249, "Q2_K": 0.297, "IQ2_XS": 0.300, "IQ2_XXS": 0.344, "IQ1_M": 0.452,
    "IQ1_S": 0.486, "TQ1_0": 0.807, "TQ2_0": 0.807,
}  # fmt: skip
MARGIN = 1.5
BOUND: Mapping[str, float] = {dtype: MARGIN * error for dtype, error in TYPICAL_ERROR.items()}
LOST_SHARE = 1e-9  # of the squared values; one block of a large tensor is more, scales that underflow are far less

# Share of a tensor's codes that may not be the nearest to its values under the file's own scales, measured: above what
# the quantiser makes with any importances and of values rounded to BF16 before, below what 2 % of noise makes. Types
# that are not here have no nearest code; of those in SIGNED, the wrong signs are counted alone (spec/conversions.md).
NOT_NEAREST: Mapping[str, float] = {
    "Q8_0": 0.05, "Q6_K": 0.015, "Q5_K": 0.008, "Q5_1": 0.025, "Q5_0": 0.025, "Q4_K": 0.003, "IQ4_NL": 0.003,
    "IQ4_XS": 0.004, "Q4_1": 0.02, "Q4_0": 0.02, "NVFP4": 0.009, "MXFP4": 0.009, "Q3_K": 0.0015, "IQ3_S": 0.0005,
    "IQ3_XXS": 5e-5, "IQ2_S": 0.0005, "Q2_K": 0.0005, "IQ2_XS": 5e-5, "IQ2_XXS": 5e-5, "TQ1_0": 0.0015, "TQ2_0": 0.0015,
}  # fmt: skip
SIGNED = ("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "IQ2_XXS")

STANDS_IN: Mapping[str, str] = {"Q5_1": "Q5_K"}  # where a row is not whole blocks of 256, and less precise than it
TERNARY = ("TQ1_0", "TQ2_0")
HALVED_WITH_TERNARY = ("token_embd.weight", "output.weight")  # stored as F16 beside ternary tensors
