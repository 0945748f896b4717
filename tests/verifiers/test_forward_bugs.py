"""What a kernel may change passes; what a bug changes fails, at the first point that it touches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.verifiers.stacks import gpt, measured, named, shown, weighed  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from weighbridge.clauses.error_words import ANY  # noqa: E402
from weighbridge.core.model import Outcome  # noqa: E402
from weighbridge.forward.stacks import Stack, Torch  # noqa: E402
from weighbridge.gates.families.local_errors import Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402

DTYPES = ("float32", "bfloat16")
ONE_OF_BOTH = (pytest.param("float32", marks=pytest.mark.exhaustive), "bfloat16")  # of which nothing hangs on the dtype

# --- Kernels that may differ ------------------------------------------------------------------------------------------


class SplitK(nn.Linear):
    """A product summed in four parts, each rounded to the dtype."""

    def forward(self, x: Any) -> Any:
        parts = zip(x.chunk(4, -1), self.weight.chunk(4, -1), strict=True)
        total = sum(part @ weight.T for part, weight in parts)
        bias = self._parameters["bias"]
        return total if bias is None else total + bias


def softmax_in_the_dtype(_self: Any, q: Any, k: Any, v: Any) -> Any:
    """Scale before the product, and round scores and shares to the dtype."""
    scores = (q / math.sqrt(gpt.HEAD)) @ k.transpose(-1, -2)
    ahead = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).triu(1)
    scores = scores.masked_fill(ahead, -math.inf)
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    return (shares / shares.sum(-1, keepdim=True)) @ v


ROUNDED_SOFTMAX: Any = type("RoundedSoftmax", (gpt.Attention,), {"attend": softmax_in_the_dtype})


def split_k(module: Any) -> Any:
    for part in module.modules():
        if type(part) is nn.Linear:
            part.__class__ = SplitK
    return module


KERNELS: Mapping[str, Callable[[], Any]] = {
    "sdpa": lambda: gpt.TinyGPT(gpt.FusedAttention),
    "fused norm": lambda: gpt.TinyGPT(gpt.Attention, gpt.FusedNorm),
    "sdpa, fused qkv and norm": lambda: gpt.TinyGPT(gpt.FusedAttention, gpt.FusedNorm),
    "split-K": lambda: split_k(gpt.TinyGPT()),
    "split-K, fused": lambda: split_k(gpt.TinyGPT(gpt.FusedAttention, gpt.FusedNorm)),
    "softmax in the dtype": lambda: gpt.TinyGPT(ROUNDED_SOFTMAX),
    "softmax in the dtype, split-K": lambda: split_k(gpt.TinyGPT(ROUNDED_SOFTMAX, gpt.FusedNorm)),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kernel", KERNELS)
def test_another_kernel_of_the_same_model_passes(kernel: str, dtype: str) -> None:
    verdict = weighed(gpt.seeded(KERNELS[kernel]()), dtype)
    assert verdict.outcome is Outcome.PASS
    assert isinstance(verdict.figures["budget_used"], float)
    assert verdict.figures["budget_used"] < 0.8


def large_biases(attention: Any, **changes: Any) -> Any:
    """Return a stack whose keys have biases as large as some trained models have."""
    module = gpt.seeded(gpt.TinyGPT(type("Changed", (attention,), changes)))
    with torch.no_grad():
        for layer in module.layers:
            layer.attn.k.bias.mul_(40)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ONE_OF_BOTH)
def test_a_kernel_that_rounds_scores_passes_against_one_that_does_not(dtype: str) -> None:
    reference = shown(gpt.forward(large_biases(gpt.FusedAttention)))
    found = measured(reference, shown(gpt.forward(large_biases(gpt.Attention), dtype)))
    assert judge({"points": found}, Limits()).outcome is Outcome.PASS
    found = measured(reference, shown(gpt.forward(large_biases(gpt.FusedAttention, attend=unscaled), dtype)))
    assert judge({"points": found}, Limits()).figures["first"] == "L0.attn.ctx"


# --- Bugs -------------------------------------------------------------------------------------------------------------


def damaged(change: Callable[[Any], None], *, attention: Any = gpt.FusedAttention, norm: Any = gpt.FusedNorm) -> Any:
    module = gpt.seeded(gpt.TinyGPT(attention, norm))
    with torch.no_grad():
        change(module.layers[1])
    return module


def instead(method: str, function: Callable[..., Any], part: str = "attn") -> Callable[[Any], None]:
    """Let one layer compute something else."""

    def change(layer: Any) -> None:
        owner = layer.get_submodule(part)
        kind = type(owner)
        owner.__class__ = type(kind.__name__, (kind,), {method: function})

    return change


def swap_rows(layer: Any) -> None:
    layer.attn.q.weight[[0, 1]] = layer.attn.q.weight[[1, 0]].clone()
    layer.attn.q.bias[[0, 1]] = layer.attn.q.bias[[1, 0]].clone()


def swap_qk(layer: Any) -> None:
    layer.attn.q, layer.attn.k = layer.attn.k, layer.attn.q


def interleaved_pairs(rotary: Any, x: Any) -> Any:
    """Rotate pairs that lie side by side, and leave them so."""
    angles = rotary.angles(x)[None, :, None, :]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)


def base_500000(layer: Any) -> None:
    steps = torch.arange(0, gpt.HEAD, 2, dtype=torch.float64) / gpt.HEAD
    layer.attn.rotary.frequencies.copy_(500_000.0**-steps)


def unscaled(_self: Any, q: Any, k: Any, v: Any) -> Any:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0)


def looks_ahead(_self: Any, q: Any, k: Any, v: Any) -> Any:
    seen = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(1)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def gelu(layer: Any, x: Any) -> Any:
    x = layer.resid_attn(x + layer.attn(layer.attn_norm(x)))
    wide = layer.ffn_norm(x)
    return x + layer.down(functional.gelu(layer.gate(wide)) * layer.up(wide))


def captured_before_the_bias(self: Any, x: Any) -> Any:
    """Compute the same, but with the tap named post_bias before the bias of q."""
    q, k, v = self.q_post_bias(x @ self.q.weight.T) + self.q.bias, self.k_post_bias(self.k(x)), self.v(x)
    self.v_post_bias(v)
    q, k, v = (part.unflatten(-1, (gpt.HEADS, gpt.HEAD)) for part in (q, k, v))
    q, k = self.q_rope(self.rotary(q)), self.k_rope(self.rotary(k))
    mixed = self.attend(*(part.transpose(1, 2) for part in (q, k, v)))
    return self.o(self.ctx(mixed.transpose(1, 2).flatten(2)))


PRE_BIAS: Any = type("PreBias", (gpt.Attention,), {"forward": captured_before_the_bias})


def transpose_o(layer: Any) -> None:
    layer.attn.o.weight.copy_(layer.attn.o.weight.T.clone())


BUGS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "q bias dropped": (lambda: damaged(lambda layer: layer.attn.q.bias.zero_()), "L1.attn.q.post_bias"),
    "k bias dropped": (lambda: damaged(lambda layer: layer.attn.k.bias.zero_()), "L1.attn.k.post_bias"),
    "v bias dropped": (lambda: damaged(lambda layer: layer.attn.v.bias.zero_()), "L1.attn.v.post_bias"),
    "two rows of q swapped": (lambda: damaged(swap_rows), "L1.attn.q.post_bias"),
    "q and k swapped": (lambda: damaged(swap_qk), "L1.attn.q.post_bias"),
    "rope interleaved": (lambda: damaged(instead("forward", interleaved_pairs, "attn.rotary")), "L1.attn.q.rope"),
    "rope base 500000": (lambda: damaged(base_500000), "L1.attn.q.rope"),
    "softmax scale forgotten": (lambda: damaged(instead("attend", unscaled)), "L1.attn.ctx"),
    "mask off by one": (lambda: damaged(instead("attend", looks_ahead)), "L1.attn.ctx"),
    "o transposed": (lambda: damaged(transpose_o), "L1.attn.o.matmul"),
    "GELU for SiLU": (lambda: damaged(instead("forward", gelu, "")), "L1.ffn.swiglu"),
    "norm weight lost": (lambda: damaged(lambda layer: layer.ffn_norm.weight.fill_(1.0)), "L1.ffn_norm.out"),
    "weights 5 % too large": (lambda: damaged(lambda layer: layer.down.weight.mul_(1.05)), "L1.ffn.down"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_fails_at_the_first_point_that_it_touches(bug: str, dtype: str) -> None:
    build, first = BUGS[bug]
    verdict = weighed(build(), dtype)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")
    assert verdict.figures["first"] == verdict.offences[0].place == first
    assert str(verdict.offences[0].figures["extent"]).startswith("; ")
    assert verdict.offences[0].figures["likely"] != ANY


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ONE_OF_BOTH)
def test_a_capture_of_another_state_is_distinguished_from_a_bug(dtype: str) -> None:
    verdict = weighed(gpt.seeded(gpt.TinyGPT(PRE_BIAS)), dtype)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "capture-mismatch")
    assert [offence.place for offence in verdict.offences] == [f"L{n}.attn.q.post_bias" for n in range(3)]
    assert "bias (-layers.0.attn.q.bias)" in str(verdict.offences[0].figures["relation"])


@pytest.mark.slow
def test_what_is_rounded_at_every_step_is_a_bug_and_no_capture_of_another_state() -> None:
    model = gpt.seeded(gpt.TinyGPT())
    for part in model.modules():
        if not list(part.children()):
            part.register_forward_hook(lambda _part, _given, made: made.bfloat16().float())
    verdict = weighed(model)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")


def rotated_to_pairs(rotary: Any, x: Any) -> Any:
    """Rotate as the reference does, and lay the two halves of a head side by side."""
    return torch.stack(gpt.Rotary.forward(rotary, x).chunk(2, dim=-1), dim=-1).flatten(-2)


@pytest.mark.slow
def test_another_layout_that_attention_undoes_is_reported_in_float32() -> None:
    change = instead("forward", rotated_to_pairs, "attn.rotary")
    verdict = weighed(damaged(change))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "other-basis")
    assert {offence.place for offence in verdict.offences} == {"L1.attn.q.rope", "L1.attn.k.rope"}
    assert "channels moved" in str(verdict.offences[0].figures["relation"])
    assert weighed(damaged(change), "bfloat16").outcome is Outcome.FAIL


@pytest.mark.slow
def test_a_bug_under_bfloat16s_rounding_is_seen_in_float32() -> None:
    def small(layer: Any) -> None:
        layer.down.weight.mul_(1.001)

    assert weighed(damaged(small), "bfloat16").outcome is Outcome.PASS
    assert weighed(damaged(small), "float32").figures["first"] == "L1.ffn.down"


@pytest.mark.slow
def test_a_numpy_stack_passes_and_its_forgotten_bias_fails() -> None:
    assert weighed(named("numpy_stack", "tiny_gpt_numpy.py")).outcome is Outcome.PASS
    verdict = weighed(named("numpy_bias_dropped", "tiny_gpt_numpy.py"))
    assert (verdict.code, verdict.figures["first"]) == ("diverged", "L0.attn.k.post_bias")


# --- Passes that should not be passes ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_declared_bfloat16_and_computed_in_float32_is_no_pass() -> None:
    module = gpt.seeded(gpt.TinyGPT())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(parameter.bfloat16())
    upcast = gpt.forward(module)
    state = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    verdict = weighed(shown(Stack(run=in_memory(upcast), dtype="bfloat16", weights=state)), other_weights=())
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "held-otherwise")


def in_memory(stack: Any) -> Callable[[Any], Any]:
    """Return a run of a PyTorch stack that hands over arrays, as another stack would."""

    def run(tokens: Any) -> Any:
        found: dict[str, Any] = {}
        stack.forward(tokens, lambda point, rows: found.update({point: rows.numpy().copy()}))
        return found

    return run


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ONE_OF_BOTH)
def test_one_weight_that_was_int8_is_named(dtype: str) -> None:
    def quantize(layer: Any) -> None:
        step = layer.up.weight.abs().amax(1, keepdim=True) / 127
        layer.up.weight.copy_((layer.up.weight / step).round() * step)

    verdict = weighed(damaged(quantize), dtype, other_weights=())
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "weights-differ")
    assert verdict.offences[0].place == "layers.1.up.weight"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ONE_OF_BOTH)
def test_one_token_that_is_wrong_in_one_mlp_is_named_with_its_place(dtype: str) -> None:
    def last_token(self: Any, x: Any) -> Any:
        out = functional.linear(x, self.weight)
        out[2, -1] *= 1.05
        return out

    verdict = weighed(damaged(instead("forward", last_token, "down")), dtype)
    assert (verdict.code, verdict.figures["first"]) == ("diverged", "L1.ffn.down")
    assert verdict.offences[0].figures["where"] == " in sequence 2, token 23, the worst"
    extent = str(verdict.offences[0].figures["extent"])
    assert extent.startswith("; it lies in the last token, 23, of sequence 2 alone")
    assert str(verdict.offences[0].figures["likely"]).startswith("linear: ")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_candidate_that_differs_from_run_to_run_is_no_pass(dtype: str) -> None:
    def noisy(self: Any, x: Any) -> Any:
        out = functional.linear(x, self.weight)
        return out * (1 + noise[dtype] * torch.randn(out.shape, generator=chance).to(out))

    noise, chance = {"float32": 1.5e-7, "bfloat16": 0.002}, torch.Generator().manual_seed(1)
    verdict = weighed(damaged(instead("forward", noisy, "down")), dtype)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "not-repeatable")
    assert verdict.offences[0].place == "L1.ffn.down"


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ONE_OF_BOTH)
def test_rope_frequencies_that_are_a_thousandth_too_small_fail(dtype: str) -> None:
    tokens = [[(7 * n + 3 * n * n + row) % gpt.VOCAB for n in range(128)] for row in range(2)]
    module = damaged(lambda layer: layer.attn.rotary.frequencies.mul_(0.999))
    sides = [
        Torch(module=one, taps=gpt.TAPS, tokens=tokens, dtype=dtype) for one in (gpt.seeded(gpt.TinyGPT()), module)
    ]
    verdict = judge({"points": measured(shown(sides[0]), shown(sides[1]))}, Limits())
    assert (verdict.code, verdict.figures["first"]) == ("diverged", "L1.attn.q.rope")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_constants_that_both_sides_have_rounded_are_no_truth(dtype: str) -> None:
    rounded = gpt.seeded(gpt.TinyGPT().to(getattr(torch, dtype)).float())
    sides = shown(gpt.forward(rounded)), shown(gpt.forward(rounded))
    verdict = judge({"points": measured(*sides)}, Limits())
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "reference-not-float64")
    assert verdict.figures["first_rounded_constant"] == f"layers.0.attn.rotary.frequencies to {dtype}"
