"""Factors of products, rounded as engines round them: what each rounding leaves, and where it is applied."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from weighbridge.core.data import table  # noqa: E402
from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.forward.products import ROUNDINGS, rounded, rounding_of, said_of  # noqa: E402
from weighbridge.forward.trace_file import ROUNDED_TO  # noqa: E402


def drawn(*shape: int, seed: int = 1) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_every_rounding_that_a_trace_may_name_is_known() -> None:
    assert {*ROUNDINGS, "float32", "autocast_bfloat16", "autocast_float16"} == {*ROUNDED_TO}
    assert {*table("forward/products")["ggml"].values()} <= {*ROUNDED_TO}


def test_a_block_of_ggml_is_32_codes_of_one_scale_in_half_precision() -> None:
    values = torch.zeros(1, 64)
    values[0, :32] = torch.linspace(-3.1, 2.9, 32)
    scale = torch.tensor(3.1 / 127)
    codes = (values[0, :32] * (127 / torch.tensor(3.1))).round()
    made = ROUNDINGS["q8_0"](values)
    assert torch.equal(made[0, :32], codes * scale.half().float())
    assert torch.equal(made[0, 32:], torch.zeros(32))  # a block of zeros has no scale


def test_a_k_block_is_256_codes_of_one_scale_in_float32() -> None:
    values = drawn(3, 512)
    made = ROUNDINGS["q8_k"](values)
    for row, its in zip(values, made, strict=True):
        for start in (0, 256):
            largest = row[start : start + 256].abs().max()
            codes = its[start : start + 256] / (largest / 127)
            assert torch.allclose(codes, codes.round(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("q8_0", 1e-3, 1e-2), ("q8_k", 1e-3, 1.2e-2), ("fp8_e4m3", 0.01, 0.04)]
)
def test_a_rounding_leaves_the_error_of_its_type(name: str, least: float, most: float) -> None:
    values = drawn(64, 256)
    assert least < float((ROUNDINGS[name](values) - values).norm() / values.norm()) < most


@pytest.mark.parametrize("name", sorted(ROUNDINGS))
def test_what_is_rounded_already_stays(name: str) -> None:
    once = ROUNDINGS[name](drawn(8, 256))
    assert float((ROUNDINGS[name](once) - once).norm() / once.norm()) < 1e-3


def test_a_width_that_no_block_divides_is_rounded_with_a_shorter_last_block() -> None:
    values = drawn(2, 40)
    assert torch.equal(ROUNDINGS["q8_0"](values)[:, :32], ROUNDINGS["q8_0"](values[:, :32]))
    assert ROUNDINGS["q8_0"](values).shape == values.shape


def test_the_longest_glob_that_fits_says_what_a_module_takes() -> None:
    products = {"*": "q8_0", "*.self_attn": "float16", "model.layers.1.*": "float32"}
    assert rounding_of("model.layers.0.mlp", products) == "q8_0"
    assert rounding_of("model.layers.0.self_attn", products) == "float16"
    assert rounding_of("model.layers.1.self_attn", products) == "float32"
    assert rounding_of("anything", {}) == "float32"


@pytest.mark.parametrize("shape", [(5, 64), (2, 5, 64)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_rounds_its_input_and_not_a_weight_that_stands_for_blocks(shape: tuple[int, ...], bias: bool) -> None:
    part, given = nn.Linear(64, 32, bias=bias), drawn(*shape)
    with torch.no_grad():
        wanted = part(ROUNDINGS["q8_0"](given))
        with rounded(part, {"*": "q8_0"}):
            assert torch.equal(part(given), wanted)
        assert not torch.equal(part(given), wanted)  # and nothing stays


def test_both_factors_are_rounded_to_a_float() -> None:
    part, given = nn.Linear(64, 32, bias=False), drawn(5, 64)
    with torch.no_grad(), rounded(part, {"*": "bfloat16"}):
        made = part(given)
    assert torch.equal(made, given.bfloat16().float() @ part.weight.bfloat16().float().T)


class Two(nn.Module):
    """Attention by one kernel, then a linear."""

    def __init__(self) -> None:
        super().__init__()
        self.attn, self.out = Attend(), nn.Linear(32, 32, bias=False)

    def forward(self, x: Any) -> Any:
        return self.out(self.attn(x))


class Attend(nn.Module):
    def forward(self, x: Any) -> Any:
        return functional.scaled_dot_product_attention(x, x, x)


def test_attention_rounds_scores_factors_and_shares_where_its_module_is_named() -> None:
    part, given = Two(), drawn(1, 2, 6, 32)
    half = ROUNDINGS["float16"]
    shares = (half(given) @ half(given).transpose(-1, -2) * 32**-0.5).softmax(-1)
    with torch.no_grad():
        wanted = part.out(half(shares) @ half(given))
        with rounded(part, {"attn": "float16"}):
            assert torch.allclose(part(given), wanted, atol=1e-6)
        assert not torch.allclose(part(given), wanted, atol=1e-6)


def test_a_module_that_raises_leaves_the_path_of_the_next_one_right() -> None:
    part = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8))
    with torch.no_grad(), rounded(part, {"0": "q8_0"}):
        with pytest.raises(RuntimeError):
            part[0](drawn(2, 3))
        plain = part[1](drawn(2, 64))
    assert torch.equal(plain, part[1](drawn(2, 64)))


def test_an_unknown_rounding_is_refused() -> None:
    assert said_of("q8_0") == {"*": "q8_0"}
    for odd in ("q9", {"*": "int3"}):
        with pytest.raises(SubjectError) as refused:
            said_of(odd)
        assert refused.value.code == "products"
