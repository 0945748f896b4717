"""Damage the tensors of a converted model in the ways in which conversions have gone wrong.

`DAMAGES` lists them: where each applies, what it changes, at which tensor it is seen, and the mechanism that is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gguf
import ml_dtypes
import numpy as np
from benchmarks.stored_tensors import KINDS, Stored, Tensors

from weighbridge.gates.families.tensor_pairs import UNEXPLAINED

HEADS, KV = 4, 2  # of every model that is damaged here
Change = Callable[[Tensors], None]

Q, K, V, OUT = (f"blk.1.attn_{name}.weight" for name in ("q", "k", "v", "output"))
GATE, UP, DOWN = (f"blk.1.ffn_{name}.weight" for name in ("gate", "up", "down"))
NORM, FFN_NORM, LAST_NORM = "blk.1.attn_norm.weight", "blk.1.ffn_norm.weight", "output_norm.weight"
EMBEDDING, HEAD = "token_embd.weight", "output.weight"
GATES, UPS = "blk.1.ffn_gate_exps.weight", "blk.1.ffn_up_exps.weight"
QKV = "blk.1.attn_qkv.weight"
DECAY, A_LOG = "blk.1.ssm_a", "backbone.layers.1.mixer.A_log"


def permuted(rows: Any, heads: int) -> Any:
    """Interleave the halves of each head, by the definition: new row (h, i, s) is old row (h, s, i)."""
    half = len(rows) // heads // 2
    return rows[[h * 2 * half + s * half + i for h in range(heads) for i in range(half) for s in range(2)]]


def unpermuted(rows: Any, heads: int) -> Any:
    """Put the halves of each head one after the other again."""
    back = np.empty_like(rows)
    back[permuted(np.arange(len(rows)), heads)] = rows
    return back


def narrowed(values: Any, kind: Any, wide: Any = np.float32) -> Any:
    """Round values to a narrower dtype and back."""
    return values.astype(kind).astype(wide)


def cut(values: Any) -> Any:
    """Cut float32 values to bfloat16, towards zero."""
    return (values.view("<u4") >> 16).astype("<u2").view(ml_dtypes.bfloat16)


def cut_half(values: Any) -> Any:
    """Cut float32 values to float16, towards zero."""
    nearest = values.astype(np.float16)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(values.astype(np.float64))
    return (nearest.view("<u2") - beyond).astype("<u2").view(np.float16)


def each(new: Callable[[Any], Any], *places: str) -> Change:
    """Change the values of some tensors."""

    def change(tensors: Tensors) -> None:
        for place in places:
            tensors[place] = tensors[place].holding(new(tensors[place].values))

    return change


def exchanged(one: str, other: str) -> Change:
    """Exchange two tensors."""

    def change(tensors: Tensors) -> None:
        tensors[one], tensors[other] = tensors[other], tensors[one]

    return change


def labelled(place: str, dtype: str) -> Change:
    """Name another dtype for the bytes that are there."""

    def change(tensors: Tensors) -> None:
        tensors[place] = Stored(dtype, tensors[place].shape, tensors[place].data)

    return change


def misread(place: str, wrong: str) -> Change:
    """Write the values that a tensor's source words have when they are read as another dtype of sixteen bits."""

    def change(tensors: Tensors) -> None:
        stored = tensors[place]
        right = "BF16" if wrong == "F16" else "F16"
        words = stored.values.astype(KINDS[right]).view("<u2")
        with np.errstate(all="ignore"):
            tensors[place] = stored.holding(words.view(KINDS[wrong]).astype(np.float32))

    return change


def copied(place: str, other: str) -> Change:
    """Put a copy of another tensor in one's place."""

    def change(tensors: Tensors) -> None:
        tensors[place] = tensors[other]

    return change


def dropped(place: str) -> Change:
    """Leave a tensor out."""

    def change(tensors: Tensors) -> None:
        del tensors[place]

    return change


def added(place: str, like: str) -> Change:
    """Add a tensor that nothing asked for."""

    def change(tensors: Tensors) -> None:
        tensors[place] = tensors[like].holding(tensors[like].values * 3)

    return change


def reshaped(place: str) -> Change:
    """Name the dimensions in the other order over the same bytes."""

    def change(tensors: Tensors) -> None:
        stored = tensors[place]
        tensors[place] = Stored(stored.dtype, stored.shape[::-1], stored.data)

    return change


def quantised_from(kind: Any) -> Callable[[Tensors, Mapping[str, Any]], None]:
    """Quantise a matrix from values that were rounded before."""

    def change(tensors: Tensors, known: Mapping[str, Any]) -> None:
        stored = tensors[UP]
        there = gguf.GGMLQuantizationType[stored.dtype]
        data = gguf.quantize(narrowed(known[UP], kind), there)
        tensors[UP] = Stored(stored.dtype, stored.shape, data.tobytes())

    return change


def half_labelled_brain(tensors: Tensors, known: Mapping[str, Any]) -> None:
    """Round a matrix to F16 and name BF16 for its bytes."""
    tensors[UP] = Stored("BF16", tensors[UP].shape, known[UP].astype("<f2").tobytes())


def flipped(values: Any) -> Any:
    """Flip the lowest bit of the last element."""
    words = values.copy().reshape(-1).view(np.uint8)
    words[-values.dtype.itemsize] ^= 1
    return words.view(values.dtype).reshape(values.shape)


def with_tail_of_zeros(values: Any) -> Any:
    """Set the last quarter of the rows to zero."""
    return np.concatenate([values[: len(values) * 3 // 4], np.zeros_like(values[len(values) * 3 // 4 :])])


def first_block_last(values: Any) -> Any:
    """Put a copy of the first row, or block, in the last one's place."""
    return np.concatenate([values[:-1], values[:1]])


def with_nan(values: Any) -> Any:
    """Put one NaN where a value was."""
    new = values.copy()
    new.reshape(-1)[len(new) // 2] = math.nan
    return new


def clipped(values: Any) -> Any:
    """Clip small values away from zero, as converters to half precision have done."""
    return np.where(np.abs(values) < 1e-2, np.copysign(np.float32(1e-2), values), values)


def thirds(order: list[int]) -> Callable[[Any], Any]:
    """Put queries, keys and values in another order."""
    return lambda values: np.concatenate([np.split(values, 3)[at] for at in order])


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What was done to which conversion, where it is seen, and what names it rightly.

    `right` is a mechanism, or a code of value-preservation for a tensor of one side. `known` says that the change
    also needs the values of the same conversion in float32 and those of the source, by name.
    """

    name: str
    change: Callable[..., None]
    place: str
    right: str
    model: str = "llama"
    source: str = "float32"
    outtype: str = "f32"
    policy: str = "lossless"
    known: bool = False


def _(name: str, change: Callable[..., None], place: str, right: str, **where: Any) -> Damage:
    return Damage(name=name, change=change, place=place, right=right, **where)


BRAIN = {"source": "bfloat16", "outtype": "bf16"}
HALF = {"source": "float16", "outtype": "f16"}
TO_HALF, TO_BRAIN = {"outtype": "f16", "policy": "rounded:F16"}, {"outtype": "bf16", "policy": "rounded:BF16"}
BLOCKS = {"outtype": "q8_0", "policy": "requant:Q8_0"}

LABELS = (
    _("BF16 bytes labelled F16", labelled(UP, "F16"), UP, "bf16-bits-as-f16", **BRAIN),
    _("F16 bytes labelled BF16", labelled(UP, "BF16"), UP, "f16-bits-as-bf16", **HALF),
    _("BF16 bytes read as F16 and widened", misread(UP, "F16"), UP, "bf16-bits-as-f16", source="bfloat16"),
    _("BF16 bytes passed on as F16", labelled(UP, "F16"), UP, "bf16-bits-as-f16", **BRAIN | {"policy": "rounded:F16"}),
    _("F16 bytes read as BF16 and widened", misread(UP, "BF16"), UP, "f16-bits-as-bf16", source="float16"),
    _("values rounded to F16 and labelled BF16", half_labelled_brain, UP, "f16-bits-as-bf16", **TO_BRAIN, known=True),
    _("silent rounding to F16", each(lambda x: x, UP), UP, "value-cast", outtype="f16"),
    _("silent rounding to BF16", each(lambda x: x, UP), UP, "value-cast", outtype="bf16"),
)
BITS = (
    _("one bit flipped in F32", each(flipped, UP), UP, UNEXPLAINED),
    _("one bit flipped in F16", each(flipped, UP), UP, UNEXPLAINED, **TO_HALF),
    _("one bit flipped in BF16", each(flipped, UP), UP, UNEXPLAINED, **BRAIN),
    _("one bit flipped in BF16 that was widened", each(flipped, UP), UP, UNEXPLAINED, source="bfloat16"),
    _("one bit flipped in Q8_0", each(flipped, UP), UP, UNEXPLAINED, **BLOCKS),
    _("a tail of zeros", each(with_tail_of_zeros, UP), UP, UNEXPLAINED),
    _("a tail of zeros in Q8_0", each(with_tail_of_zeros, UP), UP, UNEXPLAINED, **BLOCKS),
    _("one block of Q8_0 replaced", each(first_block_last, UP), UP, UNEXPLAINED, **BLOCKS),
    _("every value one unit further", each(lambda x: np.nextafter(x, np.float32(9)), UP), UP, UNEXPLAINED),
    _("one NaN", each(with_nan, UP), UP, UNEXPLAINED),
    _("bytes swapped in F32", each(lambda x: x.byteswap(), UP), UP, "byte-swapped"),
    _("bytes swapped in F16", each(lambda x: x.byteswap(), UP), UP, "byte-swapped", **HALF),
    _("bytes swapped after rounding to F16", each(lambda x: x.byteswap(), UP), UP, "byte-swapped", **TO_HALF),
    _("a norm of zeros", each(lambda x: 0 * x, NORM), NORM, UNEXPLAINED),
)
ORDER = (
    _("a square matrix transposed", each(lambda x: x.T, OUT), OUT, "transposed"),
    _("a matrix transposed, shape and all", each(lambda x: x.T, UP), UP, "transposed"),
    _("permuted keys transposed, shape and all", each(lambda x: x.T, K), K, "transposed"),
    _("dimensions named in the other order", reshaped(UP), UP, UNEXPLAINED),
    _("vocabulary rows shifted by one", each(lambda x: np.roll(x, 1, 0), EMBEDDING), EMBEDDING, UNEXPLAINED),
    _("rope permutation missing, queries", each(lambda x: unpermuted(x, HEADS), Q), Q, "permutation-missing"),
    _("rope permutation missing, keys in F16", each(lambda x: unpermuted(x, KV), K), K, "permutation-missing",
      **TO_HALF),
    _("keys permuted with the queries' heads", each(lambda x: permuted(unpermuted(x, KV), HEADS), K), K,
      "wrong-head-count"),
    _("rope permutation twice", each(lambda x: permuted(x, HEADS), Q), Q, "permutation-twice"),
    _("rope permutation the other way", each(lambda x: unpermuted(unpermuted(x, HEADS), HEADS), Q), Q,
      "permutation-inverse"),
    _("rope permutation where none belongs", each(lambda x: permuted(x, HEADS), Q), Q, "permuted-unasked",
      model="qwen2"),
    _("rope permutation of keys where none belongs", each(lambda x: permuted(x, KV), K), K, "permuted-unasked",
      model="qwen2"),
)  # fmt: skip
PLACES = (
    _("the layer before", copied(UP, "blk.0.ffn_up.weight"), UP, "layer-before"),
    _("the layer after", copied("blk.0.ffn_up.weight", UP), "blk.0.ffn_up.weight", "layer-after"),
    _("two layers exchanged", exchanged("blk.0.ffn_up.weight", UP), "blk.0.ffn_up.weight", "other-tensor"),
    _("gate and up exchanged", exchanged(GATE, UP), GATE, "gate-and-up-swapped"),
    _("gate and up exchanged in Q8_0", exchanged(GATE, UP), UP, "gate-and-up-swapped", **BLOCKS),
    _("gate and up of the experts exchanged", exchanged(GATES, UPS), GATES, "gate-and-up-swapped", model="mixtral"),
    _("two experts exchanged", each(lambda x: x[[1, 0, 2, 3]], UPS), UPS, "experts-swapped", model="mixtral"),
    _("one expert twice", each(lambda x: x[[0, 0, 2, 3]], UPS), UPS, UNEXPLAINED, model="mixtral"),
    _("keys and values exchanged", exchanged(K, V), V, "other-tensor"),
    _("embedding and head exchanged", exchanged(EMBEDDING, HEAD), HEAD, "other-tensor"),
    _("two norms exchanged", exchanged(NORM, FFN_NORM), NORM, "other-tensor"),
)
NUMBERS = (
    _("silent round trip through BF16", each(lambda x: narrowed(x, ml_dtypes.bfloat16), UP), UP, "through-bf16"),
    _("silent round trip through F16", each(lambda x: narrowed(x, np.float16), UP), UP, "through-f16"),
    _("silent round trip through BF16 that was cut", each(lambda x: cut(x).astype("f4"), UP), UP,
      "truncated-through-bf16"),
    _("silent round trip through FP8", each(lambda x: narrowed(x, ml_dtypes.float8_e4m3fn), UP), UP, UNEXPLAINED),
    _("clipped away from zero", each(clipped, UP), UP, UNEXPLAINED),
    _("scaled by 1.01", each(lambda x: x * np.float32(1.01), UP), UP, "scaled"),
    _("scaled by 1.01 in F16", each(lambda x: x.astype("f4") * np.float32(1.01), UP), UP, "scaled", **TO_HALF),
    _("scaled by 1.01 in BF16", each(lambda x: x.astype("f4") * np.float32(1.01), UP), UP, "scaled", **BRAIN),
    _("the sign turned", each(lambda x: -x, UP), UP, "scaled"),
    _("one added twice", each(lambda x: x + np.float32(1), NORM), NORM, "plus-one-twice", model="gemma"),
    _("one not added to the last norm", each(lambda x: x - np.float32(1), LAST_NORM), LAST_NORM, "plus-one-missing",
      model="gemma", source="bfloat16"),
    _("one added where none belongs", each(lambda x: x + np.float32(1), NORM), NORM, "plus-one-unasked"),
)  # fmt: skip
ROUNDINGS = (
    _("cut to BF16 instead of rounded", lambda t, known: t.update({UP: t[UP].holding(cut(known[UP]))}), UP, "truncated",
      **TO_BRAIN, known=True),
    _("cut to F16 instead of rounded", lambda t, known: t.update({UP: t[UP].holding(cut_half(known[UP]))}), UP,
      "truncated", **TO_HALF, known=True),
    _("rounded to BF16, then to F16",
      lambda t, known: t.update({UP: t[UP].holding(narrowed(known[UP], ml_dtypes.bfloat16))}), UP, "through-bf16",
      **TO_HALF, known=True),
    _("rounded to F16, then quantised", quantised_from(np.float16), UP, "requantised-through-f16", **BLOCKS,
      known=True),
    _("rounded to BF16, then quantised", quantised_from(ml_dtypes.bfloat16), UP, "requantised-through-bf16", **BLOCKS,
      known=True),
)  # fmt: skip
NAMES = (
    _("a tensor dropped", dropped(DOWN), "model.layers.1.mlp.down_proj.weight", "missing"),
    _("an untied head dropped", dropped(HEAD), "lm_head.weight", "missing"),
    _("a tensor too many", added("blk.1.attn_q_norm.weight", NORM), "blk.1.attn_q_norm.weight", "extra"),
    _("a head that is not the embedding", added(HEAD, EMBEDDING), HEAD, "extra", model="gemma"),
)
DAMAGES = (*LABELS, *BITS, *ORDER, *PLACES, *NUMBERS, *ROUNDINGS, *NAMES)


# Of models that only a converter makes.
OF_CONVERTERS = (
    _("A_log copied, −exp missing", lambda t, known: t.update({DECAY: t[DECAY].holding(known[A_LOG])}), DECAY,
      "minus-exp-missing", model="mamba", known=True),
    _("exp without its minus", each(lambda x: -x, DECAY), DECAY, "scaled", model="mamba"),
    _("q, k and v of each head left together", each(
        lambda x: x.reshape(3, HEADS, -1, x.shape[-1]).swapaxes(0, 1).reshape(x.shape), QKV), QKV,
      "permutation-missing", model="gptneox"),
    _("k before q in a fused tensor", each(thirds([1, 0, 2]), QKV), QKV, "parts-swapped", model="gptneox"),
    _("k before q, not put apart before", each(thirds([1, 0, 2]), QKV), QKV, "parts-swapped", model="gpt2"),
    _("a Conv1D left transposed", each(lambda x: x.T, OUT), OUT, "transposed", model="gpt2"),
    _("queries and keys exchanged", exchanged(Q, K), Q, "other-tensor", model="bert"),
    _("positions shifted by one", each(lambda x: np.roll(x, -1, 0), "position_embd.weight"), "position_embd.weight",
      UNEXPLAINED, model="bert"),
    _("a bias of queries dropped", dropped("blk.1.attn_q.bias"), "model.layers.1.self_attn.q_proj.bias", "missing",
      model="qwen2"),
    _("a computed rope table scaled", each(lambda x: x * np.float32(1.001), "rope_freqs.weight"), "rope_freqs.weight",
      "extra", model="llama3-rope"),
    _("encoder and decoder exchanged", exchanged("enc.blk.1.attn_q.weight", "dec.blk.1.attn_q.weight"),
      "dec.blk.1.attn_q.weight", "other-tensor", model="t5"),
    _("gate and up of a fused tensor exchanged", each(lambda x: np.concatenate(np.split(x, 2)[::-1]), UP), UP,
      "parts-swapped", model="phi3"),
    _("q, k and v of each group left together", each(
        lambda x: together(x, KV, HEADS // KV), QKV), QKV, "permutation-missing", model="falcon"),
)  # fmt: skip


def stretched(blocks: Any) -> Any:
    """Multiply both scales of each block of Q4_K by 1.01."""
    new = blocks.copy()
    scales = new[:, :4].copy().view("<f2").astype(np.float32) * np.float32(1.01)
    new[:, :4] = scales.astype("<f2").view(np.uint8)
    return new


MIXED = {"outtype": "Q4_K_M", "policy": "quantised:Q4_K_M"}
UNSEEN = "nothing"

# Of what a quantiser makes of a model whose rows are whole blocks of 256, the queries one block a row.
OF_QUANTISERS = (
    _("rope permutation missing in Q4_K", each(lambda x: unpermuted(x, HEADS), Q), Q, "permutation-missing", **MIXED),
    _("rope permutation with the wrong head count in Q4_K", each(lambda x: permuted(unpermuted(x, KV), HEADS), K), K,
      "wrong-head-count", **MIXED),
    _("gate and up exchanged in Q4_K", exchanged(GATE, UP), GATE, "gate-and-up-swapped", **MIXED),
    _("the layer before in Q4_K", copied(UP, "blk.0.ffn_up.weight"), UP, "layer-before", **MIXED),
    _("one block of Q4_K of zeros", each(lambda x: np.concatenate([x[:-1], 0 * x[-1:]]), UP), UP, UNEXPLAINED, **MIXED),
    _("one block of Q4_K replaced", each(first_block_last, UP), UP, UNEXPLAINED, **MIXED),
    _("blocks of Q4_0 in a Q4_K_M file", each(lambda x: x, UP), UP, "requantised",
      outtype="Q4_0", policy="quantised:Q4_K_M"),
    _("scaled by 1.01 in Q4_K", each(stretched, UP), UP, "codes", **MIXED),
    _("one bit flipped in Q4_K", each(flipped, UP), UP, UNSEEN, **MIXED),
)  # fmt: skip


def together(rows: Any, groups: int, queries: int) -> Any:
    """Put the queries, key and value of each group together again."""
    size = len(rows) // (groups * (queries + 2))
    q, k, v = np.split(rows, [groups * queries * size, groups * (queries + 1) * size])
    pieces = zip(np.split(q, groups), np.split(k, groups), np.split(v, groups), strict=True)
    return np.concatenate([piece for group in pieces for piece in group])


def grouped(rows: Any) -> Any:
    """Put the value heads of each key head together again: two of each of two."""
    return rows.reshape(2, 2, len(rows) // 4, -1).swapaxes(0, 1).reshape(rows.shape)


LATENT, GATED, OWN = "blk.1.attn_k_b.weight", "blk.0.attn_gate.weight", "blk.2.nextn.enorm.weight"
SCALAR, ROUTING, GROUPS = "blk.1.layer_output_scale.weight", "blk.1.exp_probs_b.bias", "blk.0.ssm_norm.weight"
DOWNS, TABLE = "blk.1.ffn_down_exps.weight", "rope_freqs.weight"
LAYER = "model.layers.1."

# Of families whose rules no other one needs.
OF_FAMILIES = (
    _("keys of a latent not turned", each(lambda x: x.swapaxes(1, 2).reshape(x.shape), LATENT), LATENT, UNEXPLAINED,
      model="deepseek-v3"),
    _("keys of two heads exchanged", each(lambda x: x[[1, 0, 2, 3]], LATENT), LATENT, UNEXPLAINED, model="deepseek-v3"),
    _("a bias of the routing dropped", dropped(ROUTING), LAYER + "mlp.gate.e_score_correction_bias", "missing",
      model="deepseek-v3"),
    _("gate and up of interleaved experts exchanged", exchanged(GATES, UPS), GATES, "gate-and-up-swapped",
      model="gpt-oss"),
    _("experts not turned", each(lambda x: x.swapaxes(1, 2).reshape(x.shape), DOWNS), DOWNS, UNEXPLAINED,
      model="gpt-oss"),
    _("sinks of two layers exchanged", exchanged("blk.0.attn_sinks.weight", "blk.1.attn_sinks.weight"),
      "blk.1.attn_sinks.weight", "other-tensor", model="gpt-oss"),
    _("two turned experts exchanged", each(lambda x: x[[1, 0, 2, 3]], UPS), UPS, "experts-swapped", model="llama4"),
    _("value heads left grouped", each(grouped, GATED), GATED, "permutation-missing", model="qwen3-5"),
    _("one added to the norm of a linear attention", each(lambda x: x + np.float32(1), GROUPS), GROUPS,
      "plus-one-unasked", model="qwen3-5"),
    _("a norm of a further layer dropped", dropped(OWN), "mtp.pre_fc_norm_embedding.weight", "missing",
      model="qwen3-next"),
    _("a multiplier left out", each(lambda x: x / np.float32(0.75), K), K, "scaled", model="falcon-h1"),
    _("groups of a norm exchanged", each(lambda x: x[::-1], GROUPS), GROUPS, UNEXPLAINED, model="mamba2"),
    _("experts of one kind exchanged", each(lambda x: x[[1, 0, 2, 3]], UPS), UPS, "experts-swapped",
      model="nemotron-h"),
    _("gate and up of a fused tensor of experts exchanged", exchanged(GATES, UPS), UPS, "gate-and-up-swapped",
      model="granitemoe"),
    _("flat experts not turned", each(lambda x: x.swapaxes(1, 2).reshape(x.shape), DOWNS), DOWNS, UNEXPLAINED,
      model="dbrx"),
    _("a scalar of a layer dropped", dropped(SCALAR), LAYER + "layer_scalar", "missing", model="gemma4"),
    _("a proportional rope table scaled", each(lambda x: x * np.float32(1.001), TABLE), TABLE, "extra", model="gemma4"),
    _("a layer of a file with further ones dropped", dropped("blk.2.attn_q.weight"),
      "model.layers.2.self_attn.q_proj.weight", "missing", model="glm4-moe-mtp"),
    _("one bit flipped in stacked projections", each(flipped, "altup_proj.weight"), "altup_proj.weight", UNEXPLAINED,
      model="gemma3n"),
    _("rope permutation missing in a hybrid", each(lambda x: unpermuted(x, HEADS), "blk.2.attn_q.weight"),
      "blk.2.attn_q.weight", "permutation-missing", model="nemotron-h"),
)  # fmt: skip
