"""forward_errors on real forward passes: an audited truth, honest inputs, both sides, and an instrument that sees."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.verifiers.stacks import gpt, measured, named, rows, shown  # noqa: E402
from torch import nn  # noqa: E402

from weighbridge.errors import SubjectError  # noqa: E402
from weighbridge.evidence.codec import encode_measured  # noqa: E402
from weighbridge.gates.forward_parity import KIND, Limits, judge  # noqa: E402
from weighbridge.judging import falsify  # noqa: E402
from weighbridge.model import Fields, Measurement, Outcome, TrialResult, Unmeasured  # noqa: E402
from weighbridge.verifiers import forward_errors  # noqa: E402
from weighbridge.verifiers.forward_errors import ROUNDOFF, VERIFIER, measure  # noqa: E402
from weighbridge.verifiers.verifier import Canary, NoCanary  # noqa: E402
from weighbridge.views.forward_subject import ModelView  # noqa: E402
from weighbridge.views.torch_forward import TorchForward  # noqa: E402

# --- The reference ----------------------------------------------------------------------------------------------------


def test_a_hidden_float32_operation_in_the_truth_is_counted_and_blocks() -> None:
    found = measured(named("hidden_float32"), named("fused"))
    row = rows(found)["logits"]
    assert row.lower_ops != 0
    assert row.first_lower_op == "aten._to_copy.default in float32"
    verdict = judge({"points": found}, Limits())
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "reference-not-float64")


def test_constants_that_were_once_bfloat16_are_told_and_block() -> None:
    found = measured(named("rounded_frequencies"), named("fused"))
    row = rows(found)["embed"]
    assert (row.rounded_constants, row.first_rounded_constant) == (3, "layers.0.attn.rotary.frequencies")
    assert row.lower_ops == 0
    assert judge({"points": found}, Limits()).code == "reference-not-float64"


def test_a_clean_reference_is_audited_whole() -> None:
    row = rows(measured(named("reference"), named("fused")))["logits"]
    assert (row.lower_ops, row.rounded_constants) == (0, 0)
    assert isinstance(row.audited_ops, int)
    assert row.audited_ops > 100


def test_a_stack_that_no_audit_can_watch_is_no_reference() -> None:
    found = measured(named("numpy_stack", "tiny_gpt_numpy.py"), named("fused"))
    assert judge({"points": found}, Limits()).code == "reference-not-float64"


def test_a_reference_is_not_changed_by_its_runs_in_low_precision() -> None:
    reference = named("reference")
    before = rows(measured(reference, named("fused")))["logits"].truth_norm
    rows(measured(reference, named("fused_bfloat16")))
    again = rows(measured(named("reference"), named("fused")))["logits"].truth_norm
    assert before == again


# --- Inputs and sides -------------------------------------------------------------------------------------------------


def test_inputs_of_one_token_are_refused() -> None:
    found = measured(named("one_token"), named("one_token"))
    assert judge({"points": found}, Limits()).code == "one-token"


@pytest.mark.parametrize(
    ("tokens", "facts"),
    [
        ([[1, 2, 3], [1, 2, 3]], {"sequences": 1, "tokens": 3, "distinct_tokens": 3}),
        ([[7, 7, 7], [1, 2, 3]], {"sequences": 2, "tokens": 3, "distinct_tokens": 1}),
    ],
)
def test_repeated_sequences_and_tokens_are_not_counted_twice(tokens: list[list[int]], facts: Fields) -> None:
    stack = TorchForward(module=gpt.seeded(gpt.TinyGPT()), taps=gpt.TAPS, tokens=tokens, keep_constants=True)
    found = measured(shown(stack), shown(stack))
    assert {key: getattr(rows(found)["logits"], key) for key in facts} == facts
    assert judge({"points": found}, Limits()).code == "one-token"


@pytest.mark.parametrize(
    ("reference", "candidate", "code"),
    [
        ([[1, 2]], [[1, 3]], "inputs-differ"),
        ([], [], "no-inputs"),
        ([[1], [2, 3]], [], "no-inputs"),
        ([[]], [], "no-inputs"),
    ],
)
def test_inputs_that_cannot_be_compared_are_unmeasured(reference: Any, candidate: Any, code: str) -> None:
    module = gpt.seeded(gpt.TinyGPT())
    views = tuple(shown(TorchForward(module=module, taps=gpt.TAPS, tokens=given)) for given in (reference, candidate))
    found = measure(views, {})
    assert isinstance(found, Unmeasured)
    assert found.code == code


def test_a_float64_candidate_cannot_be_told_from_the_truth() -> None:
    found = measure((named("reference"), shown(gpt.forward(gpt.seeded(gpt.TinyGPT()), "float64"))), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "dtype-unsupported"


def test_a_side_that_needs_cuda_is_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.views.forward_subject.has_cuda", lambda: False)

    class OnCuda:
        make = staticmethod(lambda: TorchForward(module=nn.Identity(), taps={}, tokens=[[1, 2], [3, 4]], device="cuda"))

    found = measure((named("reference"), ModelView(OnCuda())), {})  # type: ignore[arg-type]
    assert isinstance(found, Unmeasured)
    assert found.code == "no-cuda"


@pytest.mark.parametrize(("side", "code"), [("reference", "missing-reference"), ("candidate", "missing-candidate")])
def test_a_point_on_one_side_alone_fails_in_both_directions(side: str, code: str) -> None:
    fewer = {name: place for name, place in gpt.TAPS.items() if name != "L2.ffn.swiglu"}
    module = gpt.seeded(gpt.TinyGPT())
    less = shown(TorchForward(module=module, taps=fewer, tokens=gpt.tokens(), keep_constants=True))
    views = (less, named("fused")) if side == "reference" else (named("reference"), less)
    found = measured(*views)
    assert found.examined == VERIFIER.extent(views, {}) == 42
    verdict = judge({"points": found}, Limits())
    assert [(o.place, o.code) for o in verdict.offences] == [("L2.ffn.swiglu", code)]


def test_a_declared_point_that_is_never_reached_is_missing() -> None:
    module = gpt.seeded(gpt.TinyGPT())
    module.unused = nn.Identity()
    stack = shown(TorchForward(module=module, taps={**gpt.TAPS, "L9.never.out": "unused"}, keep_constants=True))
    verdict = judge({"points": measured(named("reference"), stack)}, Limits())
    assert [(o.place, o.code) for o in verdict.offences] == [("L9.never.out", "missing-reference")]


def test_points_stand_in_the_order_of_computing_not_of_declaring() -> None:
    backwards = dict(reversed(gpt.TAPS.items()))
    stack = TorchForward(module=gpt.seeded(gpt.TinyGPT()), taps=backwards, tokens=gpt.tokens(), keep_constants=True)
    found = rows(measured(shown(stack), named("fused")))
    assert list(found)[:3] == ["embed", "L0.attn_norm.out", "L0.attn.q.post_bias"]
    assert list(found)[-1] == "logits"


def test_a_nan_in_the_candidate_is_counted_where_it_is() -> None:
    module = gpt.seeded(gpt.TinyGPT())
    with torch.no_grad():
        module.layers[1].down.weight[3, 5] = math.nan
    found = measured(named("reference"), shown(gpt.forward(module)))
    assert rows(found)["L1.ffn.down"].nonfinite_candidate == gpt.SEQUENCES * gpt.LENGTH
    verdict = judge({"points": found}, Limits())
    assert (verdict.code, verdict.offences[0].place) == ("nonfinite", "L1.ffn.down")


def test_equal_weights_are_told_by_digest_and_unequal_ones_by_name() -> None:
    same = rows(measured(named("reference"), named("fused_bfloat16")))["embed"].weights
    assert (same.of, same.on_both_sides, same.differing) == (39, 39, 0)
    other = rows(measured(named("reference"), named("bias_dropped")))["embed"].weights
    assert (other.differing, other.first_differing) == (1, "layers.1.attn.q.bias")


def test_rounding_the_weights_is_nobodys_error() -> None:
    found = rows(measured(named("reference"), named("fused_bfloat16")))
    assert found["embed"].rl2_candidate == found["embed"].rl2_reference == 0.0


def test_measuring_twice_gives_the_same_bytes() -> None:
    first, second = (encode_measured(measured(named("reference"), named("fused"))) for _ in range(2))
    assert first == second


def test_roundoff_is_half_the_gap_after_one() -> None:
    for dtype, u in ROUNDOFF.items():
        assert u == torch.finfo(getattr(torch, dtype)).eps / 2


# --- The canary and the trials ----------------------------------------------------------------------------------------


def blind_to(change: Callable[[Measurement, Measurement], Measurement], canary: Canary, whole: Measurement) -> bool:
    again = measure(canary.views, {})
    assert isinstance(again, Measurement)
    return not canary.seen(change(again, whole))


def laid() -> tuple[Canary, Measurement]:
    views = (named("reference"), named("fused"))
    found = measured(*views)
    canary = VERIFIER.canary(views, {}, found)
    assert isinstance(canary, Canary)
    return canary, found


def test_the_canary_is_seen_at_the_last_of_two_points() -> None:
    canary, _ = laid()
    assert canary.place == "logits"
    assert [view.points() for view in canary.views] == [("final_norm.out", "logits")] * 2
    assert canary.seen(measure(canary.views, {}))


def test_an_instrument_that_answers_always_the_same_is_blind() -> None:
    canary, whole = laid()
    assert blind_to(lambda _again, before: before, canary, whole)
    assert not canary.seen(Unmeasured(code="x", why="", remedy=""))


@pytest.mark.parametrize("part", [(slice(0, 1),), (slice(None), slice(0, 1)), (..., slice(0, 1))])
def test_an_instrument_that_reads_the_first_sequence_token_or_channel_only_is_blind(
    part: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = forward_errors._distance
    monkeypatch.setattr(forward_errors, "_distance", lambda truth, values: honest(truth[part], values[part]))
    canary, _ = laid()
    assert not canary.seen(measure(canary.views, {}))


def test_an_instrument_that_reads_its_first_point_only_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = forward_errors._compared
    seen: list[Fields] = []

    def first_only(*sides: Any) -> Fields:
        seen.append(seen[0] if seen else honest(*sides))
        return seen[0]

    monkeypatch.setattr(forward_errors, "_compared", first_only)
    canary, _ = laid()
    seen.clear()
    assert not canary.seen(measure(canary.views, {}))


def test_nothing_in_common_has_no_canary() -> None:
    stack = TorchForward(module=gpt.seeded(gpt.TinyGPT()), taps={"embed": "embed"}, keep_constants=True)
    reference = TorchForward(module=stack.module, taps={"logits": "head"}, tokens=gpt.tokens(), keep_constants=True)
    views = (shown(reference), shown(stack))
    assert isinstance(VERIFIER.canary(views, {}, measured(*views)), NoCanary)


def test_a_real_pass_survives_all_its_trials() -> None:
    limits = Limits(required=("L0.attn.q.rope", "logits"), dtype="float32", device="cpu", min_points=42)
    evidence = {"points": measured(named("reference"), named("fused"))}
    verdict = judge(evidence, limits)
    trials = list(falsify(KIND, evidence, limits, verdict))
    assert verdict.outcome is Outcome.PASS
    assert {trial.result for trial in trials} == {TrialResult.CAUGHT}
    assert {trial.code for trial in trials if trial.code} == set(KIND.codes)


def test_a_forward_that_raises_is_an_unreadable_subject() -> None:
    stack = TorchForward(module=gpt.seeded(gpt.TinyGPT()), taps=gpt.TAPS, tokens=[[1, 10_000], [2, 3]])
    with pytest.raises(SubjectError, match="the forward pass in float64 raised IndexError"):
        measure((shown(stack), shown(stack)), {})
