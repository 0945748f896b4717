"""Widening: every operation runs in float64, what cannot is counted, and what was made from which point is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from weighbridge.forward import widened as widening  # noqa: E402
from weighbridge.forward.widened import Audit, unwatched, widened  # noqa: E402


def audited(run: Callable[[Any], object]) -> Audit:
    given = torch.arange(4, dtype=torch.float32)
    with widened() as audit:
        run(given)
    return audit


@pytest.mark.parametrize(
    ("run", "lower"),
    [
        (lambda x: x * 2, 0),
        (lambda x: (x @ x).softmax(0), 0),
        (lambda x: (x.long() + 1).double(), 0),
        (lambda x: x.half().float() * x.to(torch.bfloat16), 0),
        (lambda x: x * torch.ones(4, dtype=torch.float32), 0),
        (lambda x: x.add_(1), 1),
        (lambda x: x[1:3].add_(1), 1),
        (lambda x: (x + 0).add_(1), 0),
    ],
    ids=["product", "softmax", "integers", "there and back", "made in float32", "in place", "in a view", "its own"],
)
def test_each_operation_that_stays_below_float64_is_counted(run: Callable[[Any], object], lower: int) -> None:
    audit = audited(run)
    assert audit.lower == lower
    assert audit.operations >= 1


def test_casts_inside_lose_nothing() -> None:
    third = torch.tensor([1.0]) / 3
    with widened():
        found = (torch.tensor([1.0]) / 3).half().float()
    assert found.dtype is torch.float64
    assert abs(float(found) - 1 / 3) < 1e-16 < abs(float(third) - 1 / 3)


@pytest.mark.parametrize("at_once", [11, 40, 1 << 21])
@pytest.mark.parametrize("turned", [False, True], ids=["as it lies", "turned"])
@pytest.mark.parametrize("bias", [(), (11,), (1, 11)], ids=["no bias", "a bias", "a row of bias"])
def test_a_matrix_of_weights_is_widened_in_parts_that_come_to_the_same(
    at_once: int, turned: bool, bias: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(widening, "AT_ONCE", at_once)
    drawn = torch.Generator().manual_seed(0)
    weight, rows = (torch.randn(*shape, generator=drawn).bfloat16() for shape in ((7, 11), (5, 7)))
    weight = weight.t().contiguous().t() if turned else weight
    more = (torch.randn(bias, generator=drawn).bfloat16(),) if bias else ()
    with widened() as audit:
        found = torch.addmm(*more, rows, weight, alpha=2, beta=3) if more else rows @ weight
    wide = rows.double() @ weight.double() * (2 if more else 1) + (3 * more[0].double() if more else 0)
    assert torch.allclose(found, wide, rtol=1e-14, atol=1e-14)
    assert audit.lower == 0


def test_what_is_written_through_a_view_is_not_lost() -> None:
    kept = torch.zeros(3)
    with widened():
        kept[1:].copy_(torch.ones(2))
        assert kept.sum() == 2


def test_nothing_is_seen_outside_the_block_or_where_it_is_unwatched() -> None:
    with widened() as audit:
        with unwatched():
            assert torch.ones(2, dtype=torch.float32).exp().dtype is torch.float32
        assert audit.operations == 0
    torch.ones(2)
    assert audit.operations == 0
    assert torch.get_default_dtype() is torch.float32


def test_what_was_made_from_which_point_is_known() -> None:
    with widened() as audit:
        one, other = torch.ones(2), torch.ones(2)
        audit.is_point("a", one)
        audit.is_point("b", other)
        total = one.view(1, 2) + other
        assert audit.made_from(total * 2) == ("a", "b")
        audit.is_point("c", total)
        assert audit.made_from(total.exp()) == ("c",)
        assert audit.made_from(torch.ones(3)) == ()


def test_kernels_that_refuse_float64_or_mixed_dtypes_are_widened_too() -> None:
    rows, ends = torch.randn(6, 16), torch.tensor([2, 2, 6], dtype=torch.int32)  # the second group is empty
    weights, kernel, bias = torch.randn(3, 16, 16), torch.randn(6, 1, 3), torch.randn(6)
    with widened() as audit:
        product = torch.nn.functional.grouped_mm(rows, weights, offs=ends)
        filtered = torch.nn.functional.conv1d(rows[None] + 0, kernel, bias, groups=6)
    wide = torch.cat([rows[:2].double() @ weights[0].double(), rows[2:].double() @ weights[2].double()])
    assert torch.equal(product, wide)
    expected = torch.nn.functional.conv1d(rows[None].double(), kernel.double(), bias.double(), groups=6)
    assert torch.allclose(filtered, expected, rtol=1e-14)
    assert audit.lower == 0
