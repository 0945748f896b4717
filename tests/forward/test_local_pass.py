"""Local errors: those of one step, over all, a token and a channel; NaN equals nothing; relations are found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.forward.local_pass import NOTHING, compare, end_to_end, local_errors  # noqa: E402
from weighbridge.forward.relations import Neighbours  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402

MADE = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(2, 3, 4) + 0.01


def test_an_error_is_measured_over_all_the_worst_token_and_the_worst_channel() -> None:
    captured = MADE.clone()
    captured[1, 2, 3] += 0.5
    found = compare(MADE, captured)
    assert found.all == pytest.approx(0.5 / MADE.norm())
    assert found.token == pytest.approx(0.5 / MADE[1, 2].norm())
    assert found.channel == pytest.approx(0.5 / MADE[:, :, 3].norm())
    assert (found.worst_token, found.worst_channel, found.elements) == ("sequence 1, token 2", 3, 24)
    assert (found.absolute, found.truth_norm) == pytest.approx((0.5, float(MADE.norm())))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 40, 70), (1, 70, 5000)])
def test_tiles_come_to_what_the_whole_comes_to(shape: tuple[int, ...], dtype: Any) -> None:
    drawn = torch.Generator().manual_seed(0)
    made, noise = (torch.randn(shape, generator=drawn, dtype=torch.float64) for _ in range(2))
    captured = (made * (1 + 0.01 * noise)).to(dtype)
    found, error = compare(made, captured), captured.double() - made
    assert found.all == pytest.approx(float(error.norm() / made.norm()))
    assert found.token == pytest.approx(float((error.norm(dim=2) / made.norm(dim=2)).max()))
    by_channel = error.flatten(0, 1).norm(dim=0) / made.flatten(0, 1).norm(dim=0)
    assert found.channel == pytest.approx(float(by_channel.max()))
    assert found.worst_channel == int(by_channel.argmax())


@pytest.mark.parametrize(
    ("made", "value", "odd"),
    [
        *((1.0, math.nan, 1), (math.nan, math.nan, 1), (math.nan, 1.0, 1)),
        *((math.inf, math.inf, 0), (-math.inf, math.inf, 1)),
    ],
)
def test_what_is_not_finite_is_counted_unless_both_are_the_same_infinity(made: float, value: float, odd: int) -> None:
    one, other = MADE.clone(), MADE.clone()
    one[0, 0, 0], other[0, 0, 0] = made, value
    found = compare(one, other)
    assert (found.nonfinite, found.truth_nonfinite, found.elements) == (odd, int(math.isnan(made)), 23)
    assert found.all == 0.0


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_no_square_overflows_or_vanishes(scale: float) -> None:
    found = compare(MADE * scale, MADE * scale * 1.01)
    assert (found.all, found.token) == pytest.approx((0.01, 0.01))


@pytest.mark.parametrize("scale", [1e-157, 1e-159, 1e-120, 1e120, 1e153])
def test_squares_that_keep_only_some_of_their_digits_are_not_used(scale: float) -> None:
    captured = MADE * scale
    captured[1, 2, 3] *= 1.01
    found = compare(MADE * scale, captured)
    assert found.all == pytest.approx(float(0.01 * MADE[1, 2, 3] / MADE.norm()), rel=1e-9)


def test_a_truth_of_zeros_has_no_relative_error_but_an_absolute_one() -> None:
    found = compare(MADE * 0, MADE)
    assert (found.all, found.token, found.channel, found.truth_norm) == (None, None, None, 0.0)
    assert found.absolute == pytest.approx(float(MADE.norm()))


class Chain(nn.Module):
    """Three products, one after another."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(16, 8)
        self.one, self.two, self.three = (nn.Linear(8, 8) for _ in range(3))

    def forward(self, ids: Any) -> Any:
        return self.three(self.two(self.one(self.embed(ids))))


TOKENS = [[1, 2, 3], [4, 5, 6]]


def test_an_error_counts_at_the_step_that_made_it_and_only_there(tmp_path: Path) -> None:
    reference, broken = Torch(module=Chain(), dtype="float32"), Chain()
    with torch.no_grad():
        broken.two.bias.add_(1)
    trace = Torch(module=broken, dtype="float32").capture(TOKENS, tmp_path / "a.trace")
    steps, audit, _ = local_errors(reference, TOKENS, trace)
    errors = {name: step.distance.all or 0.0 for name, step in steps.items()}
    assert errors["two.out"] > 0.5
    assert max(error for name, error in errors.items() if name != "two.out") < 1e-6
    made_from = [steps[name].made_from for name in ("one.out", "two.out", "three.out")]
    assert made_from == [("embed.out",), ("one.out",), ("two.out",)]
    assert audit.lower == 0
    whole = end_to_end(reference, TOKENS, {"a": trace})["a"]
    assert whole["one.out"] < 1e-6
    assert min(whole["two.out"], whole["three.out"]) > 0.1


def test_a_capture_of_another_shape_is_no_capture_of_that_point(tmp_path: Path) -> None:
    wider = Chain()
    wider.two, wider.three = nn.Linear(8, 16), nn.Linear(16, 8)
    reference, trace = (
        Torch(module=Chain(), dtype="float32"),
        Torch(module=wider, dtype="float32").capture(TOKENS, tmp_path / "a.trace"),
    )
    steps, _, _ = local_errors(reference, TOKENS, trace)
    assert (steps["two.out"].distance, steps["two.out"].shape) == (NOTHING, (2, 3, 8))
    assert steps["one.out"].distance.all is not None
    whole = end_to_end(reference, TOKENS, {"a": trace})["a"]
    assert ("two.out" in whole, "one.out" in whole) == (False, True)


# --- Relations --------------------------------------------------------------------------------------------------------


def related(captured: Any, *before: tuple[str, Any]) -> tuple[str, str]:
    module = nn.Linear(4, 4)
    nn.init.constant_(module.bias, 0.25)
    near = Neighbours(module)
    for name, tensor in before:
        near.note(name, tensor)
    found = near.relation("x.out", MADE, captured)
    assert found is not None
    assert found.left is not None
    assert found.left < 1e-6
    return found.name, found.to


def test_each_relation_is_found_where_it_holds() -> None:
    other = MADE.flip(0).cos()
    assert related(MADE * 0.125) == ("scale", "0.125")
    assert related(MADE + 0.25) == ("bias", "bias")
    assert related(MADE - 0.25) == ("bias", "-bias")
    assert related(MADE * torch.tensor([1.0, -2, 3, 0.5]))[0] == "channel-scale"
    assert related(MADE * torch.arange(1.0, 1 + MADE.shape[1])[:, None]) == ("token-scale", f"1 to {MADE.shape[1]}")
    assert related(MADE[:, :, [1, 0, 3, 2]].clone()) == ("permutation", "4 channels moved")
    assert related(MADE.roll(1, 1)) == ("shift", "one token late")
    assert related(other, ("near.out", other)) == ("neighbour", "near.out")
    assert related(MADE - other, ("near.out", other)) == ("residual", "without near.out")


def test_what_is_not_finite_has_no_relation() -> None:
    assert Neighbours(nn.Linear(4, 4)).relation("x", MADE, MADE * math.nan) is None


class Router(nn.Module):
    """Returns scores and which of them are the two largest."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Parameter(torch.randn(4, 8, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Any) -> Any:
        scores = x @ self.score.T
        return scores, scores.topk(2).indices + self.off

    off = 0


class Experts(nn.Module):
    """Adds to the embedding what the chosen experts hold."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.gate, self.captured = nn.Embedding(16, 8), Router(), nn.Embedding(8, 8)
        self.last = nn.Linear(8, 16)
        with torch.no_grad():
            self.gate.score[1] = self.gate.score[0]  # two experts always tie

    def forward(self, ids: Any) -> Any:
        x = self.embed(ids)
        return self.last(x + self.captured(self.gate(x)[1]).sum(2))


@pytest.mark.parametrize(("off", "found"), [(0, False), (1, True)])
def test_a_tie_between_experts_may_fall_either_way_and_another_choice_may_not(
    off: int, found: bool, tmp_path: Path
) -> None:
    torch.manual_seed(2)
    model, tokens = Experts(), [[1, 2, 3, 4], [5, 6, 7, 8]]
    reference = Torch(module=model)
    trace = reference.prepared("bfloat16").capture(tokens, tmp_path / "a.trace")
    model.gate.off = off
    steps, _, _ = local_errors(reference.prepared("bfloat16"), tokens, trace)
    assert ((steps["gate.out.1"].distance.all or 0) > 2**-6) is found
    assert (steps["last.out"].distance.all or 0) < 2**-7  # it goes on with what was chosen
    assert trace.held_as("gate.out.1") == "int64"


def test_a_reference_that_cannot_run_in_float64_is_refused(tmp_path: Path) -> None:
    class Picky(Chain):
        def forward(self, ids: Any) -> Any:
            if torch.get_default_dtype() is torch.float64:
                raise RuntimeError
            return super().forward(ids)

    reference = Torch(module=Picky()).prepared("float32")
    trace = reference.capture([[1, 2], [3, 4]], tmp_path / "a.trace")
    with pytest.raises(SubjectError) as refused:
        local_errors(reference, [[1, 2], [3, 4]], trace)
    assert refused.value.code == "forward-raised"


def test_of_relations_that_explain_all_but_rounding_the_simplest_is_named() -> None:
    made = torch.randn(2, 48, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    norm = nn.LayerNorm(64, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.5, 2, 64))
        norm.bias.copy_(torch.linspace(-1, 1, 64))
    for captured, name in (
        (made * 0.25, "scale"),
        (made.unflatten(2, (2, 32)).transpose(2, 3).flatten(2), "permutation"),
        ((made - norm.bias) / norm.weight, "channel-scale"),
    ):
        found = Neighbours(norm).relation("x.out", made, captured.detach().bfloat16().double())
        assert found is not None
        assert found.left is not None
        assert found.name == name
        assert found.to == "weight" if name == "channel-scale" else found.left < 0.004


def test_one_factor_in_every_channel_is_no_weight_that_happens_to_be_near_it() -> None:
    made = torch.randn(2, 48, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    norm = nn.LayerNorm(64, dtype=torch.float64)
    with torch.no_grad():
        norm.weight.copy_(torch.linspace(0.97, 1.03, 64))
        norm.bias.copy_(torch.linspace(-1, 1, 64))
    bias = norm.bias.detach()
    found = Neighbours(norm).relation("x.out", made + bias, made * 0.992 + bias)
    assert found is not None
    assert (found.name, found.to) == ("channel-scale", "")


class Parts(nn.Module):
    """Three parts of one product, each looked at."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.fused = nn.Embedding(32, 8), nn.Linear(8, 24)
        self.one, self.two, self.three = nn.Identity(), nn.Identity(), nn.Identity()
        self.end = nn.Linear(8, 8)

    def forward(self, ids: Any) -> Any:
        one, two, three = self.fused(self.embed(ids)).chunk(3, -1)
        return self.end(self.one(one) * self.two(two) + self.three(three))


def test_parts_of_one_tensor_are_distinguished_by_what_is_made_from_them(tmp_path: Path) -> None:
    subject = Torch(module=Parts(), tokens=((1, 2, 3), (4, 5, 6)), dtype="float32")
    trace = subject.capture(subject.tokens, tmp_path / "a.trace")
    steps, _, _ = local_errors(subject, subject.tokens, trace)
    parts = ("one.in", "three.in", "two.in")
    assert steps["end.in"].made_from == parts
    assert all("fused.out" in steps[part].made_from for part in parts)
