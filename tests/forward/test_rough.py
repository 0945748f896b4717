"""A rough run: the same operations, as far off as right kernels may be and no farther."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional  # noqa: E402

from weighbridge.forward.products import rough  # noqa: E402


def normal(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


def error(made: Any, truth: Any) -> float:
    return float((made.double() - truth).norm() / truth.norm())


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"is_causal": True},
        {"scale": 0.5},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()},
        {"attn_mask": normal(5, 5)},
        {"enable_gqa": True, "is_causal": True},
    ],
    ids=["plain", "causal", "scale", "mask", "bias", "groups"],
)
def test_attention_taken_apart_is_the_same_attention(more: dict[str, Any]) -> None:
    heads = 2 if "enable_gqa" in more else 4
    query, key, value = normal(2, 4, 5, 8), normal(2, heads, 5, 8), normal(2, heads, 5, 8)
    plain = functional.scaled_dot_product_attention(query, key, value, **more)
    with rough():
        apart = functional.scaled_dot_product_attention(query, key, value, **more)
    assert error(apart, plain) < 1e-14


def test_attention_taken_apart_rounds_its_scores_to_the_dtype() -> None:
    query, key, value = (20 * normal(1, 1, 16, 8).bfloat16() for _ in range(3))
    truth = functional.scaled_dot_product_attention(*(one.double() for one in (query, key, value)))
    plain = functional.scaled_dot_product_attention(query, key, value)
    with rough():
        apart = functional.scaled_dot_product_attention(query, key, value)
    assert error(plain, truth) < 2**-8
    assert error(apart, truth) > 8 * error(plain, truth)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("features", [3, 64, 100])
def test_a_product_is_as_far_off_as_rounded_partial_sums(dtype: Any, features: int) -> None:
    given, weight, bias = normal(40, features, dtype=dtype), normal(30, features, dtype=dtype), normal(30, dtype=dtype)
    truth = functional.linear(given.double(), weight.double(), bias.double())
    with rough():
        made = functional.linear(given, weight, bias)
        bare = functional.linear(given, weight)
    u = torch.finfo(dtype).eps / 2
    assert made.dtype is dtype
    assert 0.6 * u < error(made, truth) < 1.5 * u
    assert 0.6 * u < error(bare, given.double() @ weight.double().T) < 1.5 * u


def test_the_factors_of_a_sum_of_products_count() -> None:
    bias, one, other = normal(3, 2), normal(3, 4), normal(4, 2)
    with rough():
        made = torch.addmm(bias, one, other, beta=2.0, alpha=-0.5)
    assert error(made, 2 * bias - one @ other / 2) < 1e-14


def test_a_product_that_cancels_is_off_by_what_it_was_summed_from() -> None:
    given = torch.ones(1, 64, dtype=torch.bfloat16)
    weight = torch.ones(32, 64, dtype=torch.bfloat16)
    weight[:, 32:] = -0.96875  # 32 - 31 = 1: rounding of partial sums near 32 is left over
    with rough():
        made = functional.linear(given, weight)
    truth = given.double() @ weight.double().T
    assert float(truth.mean()) == 1.0
    assert error(made, truth) > 20 * 2**-8


def test_functions_in_float32_are_off_by_what_libraries_leave() -> None:
    given = normal(50, dtype=torch.float32)
    for function in (torch.tanh, torch.exp, torch.erf, torch.sigmoid):
        truth = function(given.double())
        with rough():
            made, low = function(given), function(given.bfloat16())
        assert 1.5 * 2**-24 < error(made, truth) < 3 * 2**-24
        assert torch.equal(low, function(given.bfloat16()))


def test_it_is_the_same_every_time_and_leaves_nothing_behind() -> None:
    given, weight = normal(8, 16, dtype=torch.bfloat16), normal(8, 16, dtype=torch.bfloat16)
    plain = functional.linear(given, weight)
    with rough():
        one, other = functional.linear(given, weight), functional.linear(given, weight)
    assert torch.equal(one, other)
    assert not torch.equal(one, plain)
    assert torch.equal(functional.linear(given, weight), plain)
