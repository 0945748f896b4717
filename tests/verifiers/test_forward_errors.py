"""forward_errors on real forward passes: an audited truth, honest inputs, both sides, and an instrument that sees."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.verifiers.stacks import REFERENCE, Ready, gpt, measured, named, rows, shown  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Fields, Measurement, Outcome, TrialResult, Unmeasured, Verdict  # noqa: E402
from weighbridge.evidence.codec import encode_measured  # noqa: E402
from weighbridge.forward import local_pass  # noqa: E402
from weighbridge.forward.stacks import Stack, Torch  # noqa: E402
from weighbridge.forward.trace_file import ROUNDOFF  # noqa: E402
from weighbridge.gates.families.local_errors import REACHED, Limits  # noqa: E402
from weighbridge.gates.forward_parity import KIND, judge  # noqa: E402
from weighbridge.judging.judging import falsify  # noqa: E402
from weighbridge.verifiers import forward_errors  # noqa: E402
from weighbridge.verifiers.forward_errors import VERIFIER, measure  # noqa: E402
from weighbridge.verifiers.verifier import Canary, NoCanary  # noqa: E402
from weighbridge.views.model_view import ModelView  # noqa: E402


def module() -> Any:
    return gpt.seeded(gpt.TinyGPT())


def tapped(**changes: Any) -> ModelView:
    """Return the plain stack as a candidate or a reference of its own, with its taps, but for these changes."""
    return shown(Torch(**{"module": module(), "taps": gpt.TAPS, "tokens": gpt.tokens(), **changes}))


@functools.cache
def sound() -> Measurement:
    """Measure one sound candidate, once for all tests that weaken nothing."""
    return measured(REFERENCE, named("fused"))


def judged(reference: ModelView, candidate: ModelView) -> Verdict:
    return judge({"points": measured(reference, candidate)}, Limits())


# --- The reference ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory_that_stays_in_float32_is_counted_and_blocks() -> None:
    found = measured(named("kept_in_float32"), named("fused"))
    run = rows(found)["logits"].run
    assert (run.lower_ops, run.first_lower_op) == (7, "aten.copy_.default in float32")
    verdict = judge({"points": found}, Limits())
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "reference-not-float64")


@pytest.mark.slow
def test_norms_that_go_through_float32_are_widened() -> None:
    found = rows(measured(named("float32_norms"), named("fused")))
    plain = rows(sound())
    assert found["logits"].run.lower_ops == 0
    assert found["L0.attn_norm.out"].truth_norm == plain["L0.attn_norm.out"].truth_norm


@pytest.mark.slow
def test_constants_that_were_once_bfloat16_are_reported_and_block() -> None:
    found = measured(named("rounded_frequencies"), named("fused"))
    run = rows(found)["embed"].run
    assert (run.constants, run.rounded_constants) == (3, 3)
    assert run.first_rounded_constant == "layers.0.attn.rotary.frequencies to bfloat16"
    assert run.lower_ops == 0
    assert judge({"points": found}, Limits()).code == "reference-not-float64"


@pytest.mark.slow
def test_a_clean_reference_is_audited_whole() -> None:
    run = rows(sound())["logits"].run
    assert (run.lower_ops, run.rounded_constants) == (0, 0)
    assert run.audited_ops > 100


@pytest.mark.slow
def test_a_stack_that_cannot_be_widened_is_no_reference() -> None:
    found = measure((named("numpy_stack", "tiny_gpt_numpy.py"), named("fused")), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "reference-not-torch"


@pytest.mark.slow
def test_a_reference_is_not_changed_by_its_runs_in_low_precision() -> None:
    reference = named("reference")
    before = rows(measured(reference, named("fused")))["logits"]
    measured(reference, named("fused_bfloat16"))
    assert rows(measured(reference, named("fused")))["logits"] == before


# --- Inputs -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "facts"),
    [
        ([[1, 2, 3], [1, 2, 3]], {"sequences": 1, "tokens": 3, "distinct_tokens": 3}),
        ([[5, 5, 5], [1, 2, 3]], {"sequences": 2, "tokens": 3, "distinct_tokens": 1}),
        ([[1], [2]], {"sequences": 2, "tokens": 1, "distinct_tokens": 1}),
    ],
)
def test_repeated_sequences_and_single_tokens_are_no_inputs_to_judge_on(tokens: list[list[int]], facts: Fields) -> None:
    view = tapped(tokens=tokens)
    found = measured(view, view)
    assert {key: getattr(rows(found)["logits"].run, key) for key in facts} == facts
    assert judge({"points": found}, Limits()).code == "one-token"


@pytest.mark.parametrize(
    ("reference", "candidate", "code"),
    [([[1, 2]], [[1, 3]], "inputs-differ"), ([[1], [2, 3]], [], "no-inputs"), ([[]], [], "no-inputs")],
)
def test_inputs_that_cannot_be_compared_are_unmeasured(reference: Any, candidate: Any, code: str) -> None:
    found = measure((tapped(tokens=reference), tapped(tokens=candidate)), {})
    assert isinstance(found, Unmeasured)
    assert found.code == code


@pytest.mark.slow
def test_where_nobody_gives_tokens_they_are_drawn_and_both_sides_get_them() -> None:
    run = rows(measured(tapped(tokens=()), tapped(tokens=())))["embed"].run
    assert (run.sequences, run.tokens) == (4, 24)
    assert run.distinct_tokens > 12


# --- The candidate ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_float64_candidate_cannot_be_distinguished_from_the_truth() -> None:
    found = measure((REFERENCE, tapped(dtype="float64")), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "dtype-unsupported"


@pytest.mark.slow
def test_a_side_that_needs_cuda_is_unmeasured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weighbridge.views.model_view.has_cuda", lambda: False)
    found = measure((REFERENCE, shown(Stack(run=lambda _tokens: {}, device="cuda"))), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "no-cuda"


@pytest.mark.slow
@pytest.mark.parametrize(("side", "code"), [("reference", "missing-reference"), ("candidate", "missing-candidate")])
def test_a_point_on_one_side_alone_fails_in_both_directions(side: str, code: str) -> None:
    less = tapped(taps={name: place for name, place in gpt.TAPS.items() if name != "L2.ffn.swiglu"})
    views = (less, named("fused")) if side == "reference" else (REFERENCE, less)
    found = measured(*views)
    assert found.examined == VERIFIER.extent(views, {}) == 42
    verdict = judge({"points": found}, Limits())
    assert [(o.place, o.code) for o in verdict.offences] == [("L2.ffn.swiglu", code)]


@pytest.mark.slow
def test_points_stand_in_the_order_of_computing_not_of_declaring() -> None:
    found = rows(measured(tapped(taps=dict(reversed(gpt.TAPS.items()))), named("fused")))
    assert list(found)[:3] == ["embed", "L0.attn_norm.out", "L0.attn.q.post_bias"]
    assert list(found)[-1] == "logits"


@pytest.mark.slow
def test_a_nan_in_the_candidate_is_reported_where_it_arises_and_not_where_it_was_handed_on() -> None:
    broken = module()
    with torch.no_grad():
        broken.layers[1].down.weight[3, 5] = math.nan
    found = measured(REFERENCE, shown(gpt.forward(broken)))
    assert rows(found)["L1.ffn.down"].nonfinite_candidate == gpt.SEQUENCES * gpt.LENGTH
    verdict = judge({"points": found}, Limits(other_weights=("layers.1.down.weight",)))
    assert [(offence.place, offence.code) for offence in verdict.offences] == [("L1.ffn.down", "nonfinite")]
    assert verdict.figures["last_in_order"] == "L1.ffn.swiglu"


def test_nan_on_both_sides_is_never_equal() -> None:
    broken = module()
    with torch.no_grad():
        broken.layers[1].down.weight[3, 5] = math.nan
    verdict = judged(shown(gpt.forward(broken)), shown(gpt.forward(broken)))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "nonfinite")
    assert verdict.offences[0].place == "L1.ffn.down"


def arrays(change: Mapping[str, Any]) -> ModelView:
    """Return the NumPy stack with some points changed."""
    whole = named("numpy_stack", "tiny_gpt_numpy.py").stack()
    assert isinstance(whole, Stack)

    def run(tokens: Any) -> Any:
        return {name: change[name](values) if name in change else values for name, values in whole.run(tokens).items()}

    return shown(replace(whole, run=run))


@pytest.mark.slow
def test_a_point_of_another_shape_is_named_and_not_compared() -> None:
    verdict = judged(REFERENCE, arrays({"L1.attn.q.post_bias": lambda values: values[:, :, :32].copy()}))
    assert [(o.place, o.code) for o in verdict.offences] == [("L1.attn.q.post_bias", "shape")]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda values: values[:, -1], "point-shape"),
        (lambda values: values.astype(np.int8), "point-shape"),
        (lambda values: values[:, :3], "trace-shape"),
    ],
)
def test_a_point_that_is_no_row_of_tokens_is_refused(change: Any, code: str) -> None:
    with pytest.raises(SubjectError) as caught:
        measure((REFERENCE, arrays({"logits": change})), {})
    assert caught.value.code == code


@pytest.mark.slow
def test_a_stack_that_captures_nothing_is_refused() -> None:
    with pytest.raises(SubjectError) as caught:
        measure((REFERENCE, shown(Stack(run=lambda _tokens: {}))), {})
    assert caught.value.code == "trace-empty"


@pytest.mark.slow
@pytest.mark.parametrize("raised", [IndexError("secret"), MemoryError(), SystemExit(0), RuntimeError("out of memory")])
def test_a_forward_that_raises_is_an_unreadable_subject(raised: BaseException) -> None:
    def run(_tokens: Any) -> Any:
        raise raised

    with pytest.raises(SubjectError, match=f"the forward pass in float32 raised {type(raised).__name__}\n"):
        measure((REFERENCE, shown(Stack(run=run))), {})


@pytest.mark.slow
def test_a_reference_that_raises_is_an_unreadable_subject() -> None:
    view = tapped(tokens=[[1, 10_000], [2, 3]])
    with pytest.raises(SubjectError, match="the forward pass in float32 raised IndexError\n  look at .*:\\d+; run"):
        measure((view, view), {})


@pytest.mark.slow
def test_another_structure_than_a_model_is_refused() -> None:
    with pytest.raises(SubjectError, match="the factory returned list") as caught:
        measure((REFERENCE, ModelView(spec="x:y", source=Ready([1]))), {})
    assert caught.value.code == "not-a-forward"


def test_a_bare_module_is_enough() -> None:
    verdict = judged(shown(module()), shown(module()))
    assert verdict.outcome is Outcome.PASS
    assert {"embed.out", "layers.1.attn.q.out", "layers.1.attn.rotary.call2.in", "head.out"} < set(verdict.looked)


class Casts(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A norm in float32 whose result is cast to the dtype of the head: in float64 both are one tensor."""

    class Norm(torch.nn.Module):  # type: ignore[name-defined,misc]
        def forward(self, hidden: Any) -> Any:
            return torch.nn.functional.normalize(hidden.float(), dim=-1)

    def __init__(self, error: float = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.head = torch.nn.Embedding(40, 16), self.Norm(), torch.nn.Linear(16, 40)
        self.error = error

    def forward(self, ids: Any) -> Any:
        return self.head((self.norm(self.embed(ids)) * (1 + self.error)).to(self.head.weight.dtype))


@pytest.mark.parametrize(("error", "wrong"), [(0.0, None), (0.02, "head.in")])
def test_a_cast_that_float64_does_not_make_is_a_point_and_is_compared(error: float, wrong: str | None) -> None:
    views = (shown(Torch(module=Casts())), shown(Torch(module=Casts(error), dtype="bfloat16")))
    verdict = judged(*views)
    assert [*verdict.looked] == ["embed.out", "norm.out", "head.in", "head.out"]
    assert len(verdict.looked) == VERIFIER.extent(views, {})
    assert verdict.figures.get("first") == wrong


EDGE = (1 + 2**-7, 2**-10)  # their sum is over 1; with one unit less in the first it is, and in bfloat16 it is not


class Tipping(torch.nn.Module):  # type: ignore[name-defined,misc]
    """A gate that lets through what is over an edge, as routers do, behind a module that may be off by one unit."""

    class Nudge(torch.nn.Module):  # type: ignore[name-defined,misc]
        off = False

        def forward(self, hidden: Any) -> Any:
            return torch.where(hidden == EDGE[0], 1.0, hidden) if self.off else hidden * 1

    class Gate(torch.nn.Module):  # type: ignore[name-defined,misc]
        edge = 1.0

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.eye(16))
            self.weight.data[0, 1] = 1

        def forward(self, hidden: Any) -> Any:
            sums = torch.nn.functional.linear(hidden, self.weight)
            return sums * (sums > self.edge)

    def __init__(self, edge: float = 1.0, *, off: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.nudge, self.gate = torch.nn.Embedding(40, 16), self.Nudge(), self.Gate()
        self.embed.weight.data[5, :2] = torch.tensor(EDGE)
        self.nudge.off, self.gate.edge = off, edge

    def forward(self, ids: Any) -> Any:
        return self.gate(self.nudge(self.embed(ids)))


@pytest.mark.parametrize(("edge", "wrong"), [(1.0, None), (1.5, "gate.out")])
def test_a_rounding_that_tips_a_choice_is_no_bug_and_another_edge_is(edge: float, wrong: str | None) -> None:
    tokens = [[*range(2, 14)], [*range(20, 32)]]
    candidate = Torch(module=Tipping(edge, off=True), dtype="bfloat16")
    found = measured(shown(Torch(module=Tipping(), tokens=tokens)), shown(candidate))
    row = rows(found)["gate.out"]
    assert (row.trusted.token or 0) < 0.01
    assert (row.candidate.token or 0) > 0.1
    assert judge({"points": found}, Limits()).figures.get("first") == wrong


# --- Weights ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_equal_weights_are_reported_by_digest_and_unequal_ones_by_name() -> None:
    same = rows(measured(REFERENCE, named("fused_bfloat16")))["embed"].run.weights
    assert (same.of, same.on_both_sides, same.differing) == (39, 39, ())
    other = rows(measured(REFERENCE, named("bias_dropped")))["embed"].run.weights
    assert other.differing == ("layers.1.attn.q.bias",)


@pytest.mark.slow
def test_weights_that_a_stack_does_not_name_are_not_compared_and_block() -> None:
    whole = named("numpy_stack", "tiny_gpt_numpy.py").stack()
    assert isinstance(whole, Stack)
    verdict = judged(REFERENCE, shown(replace(whole, weights={})))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "weights-not-compared")


@pytest.mark.slow
def test_rounding_the_weights_is_nobodys_error() -> None:
    found = rows(measured(REFERENCE, named("fused_bfloat16")))["embed"]
    assert found.candidate.all == found.trusted.all == 0.0


@pytest.mark.slow
def test_measuring_twice_gives_the_same_bytes() -> None:
    first, second = (encode_measured(measured(named("reference"), named("fused"))) for _ in range(2))
    assert first == second


@pytest.mark.slow
def test_roundoff_is_half_the_gap_after_one() -> None:
    for dtype, u in ROUNDOFF.items():
        assert u == torch.finfo(getattr(torch, dtype)).eps / 2


# --- The canary and the trials ----------------------------------------------------------------------------------------


def trial(found: Measurement | None = None) -> tuple[Canary, Measurement]:
    views = (REFERENCE, named("fused"))
    found = found or sound()
    canary = VERIFIER.canary(views, {}, found)
    assert isinstance(canary, Canary)
    return canary, found


@pytest.mark.slow
def test_the_canary_is_seen_at_the_last_point_of_the_first_sequence() -> None:
    canary, _ = trial()
    assert canary.place == "logits"
    again = measure(canary.views, {})
    assert canary.seen(again)
    assert isinstance(again, Measurement)
    assert rows(again)["logits"].run.sequences == 1


class Bidirectional(torch.nn.Module):  # type: ignore[misc,name-defined]
    """Tokens that see all others, also later ones, and so other values where these are cut off."""

    def __init__(self, length: int = 0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.mixed, self.head = torch.nn.Embedding(40, 16), torch.nn.Identity(), torch.nn.Linear(16, 40)
        self.length = length

    def forward(self, ids: Any) -> Any:
        assert not self.length or ids.shape[1] == self.length
        values = self.embed(ids)
        return self.head(self.mixed(values + values.sum(1, keepdim=True)))


@pytest.mark.parametrize("length", [0, 20], ids=["of any length", "of one length"])
def test_the_canary_is_seen_in_a_model_that_cannot_do_without_its_later_tokens(length: int) -> None:
    tokens = [[(7 * at + 3 * row) % 40 for at in range(20)] for row in range(2)]
    views = tuple(shown(Torch(module=Bidirectional(length), tokens=tokens, dtype=kind)) for kind in ("", "bfloat16"))
    canary = VERIFIER.canary(views, {}, measured(*views))
    assert isinstance(canary, Canary)
    again = measured(*canary.views)
    assert rows(again)["head.out"].run.tokens == (length or forward_errors.CANARY_TOKENS)
    assert ((rows(again)["mixed.in"].trusted.all or 0) > 0.01) is not bool(length)
    assert canary.seen(again)


class Loud(torch.nn.Module):  # type: ignore[misc,name-defined]
    """What leaves out a root, and so makes values of many times their size."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.times = times

    def forward(self, values: Any) -> Any:
        return self.times * values


@pytest.mark.parametrize(("dtype", "times"), [("float32", 50), ("float16", 50), ("float16", 4000)])
def test_the_canary_is_seen_beside_an_error_of_many_times_the_values(dtype: str, times: float) -> None:
    tokens = [[(7 * at + 3 * row) % 40 for at in range(20)] for row in range(2)]
    sound, loud = Bidirectional(), Bidirectional()
    loud.mixed = Loud(times)
    views = tuple(shown(Torch(module=module, tokens=tokens, dtype=dtype)) for module in (sound, loud))
    found = measured(*views)
    assert (rows(found)["mixed.out"].candidate.all or 0) == pytest.approx(times - 1, rel=1e-3)
    canary = VERIFIER.canary(views, {}, found)
    assert isinstance(canary, Canary)
    assert canary.seen(measured(*canary.views))


@pytest.mark.slow
def test_a_canary_costs_no_rough_run() -> None:
    canary, _ = trial()
    again = rows(measured(*canary.views))
    assert (again["logits"].candidate.all or 0) > 1.5
    assert {row.rough.all for row in again.values()} == {None}


@pytest.mark.slow
def test_bits_that_are_equal_up_to_the_last_point_are_judged_in_one_pass_and_others_in_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[Any] = []
    honest = local_pass.local_errors

    def counted(*given: Any, **more: Any) -> Any:
        passes.append(1)
        return honest(*given, **more)

    monkeypatch.setattr(local_pass, "local_errors", counted)
    same = rows(measured(REFERENCE, named("reference")))
    assert len(passes) == 1
    assert all(row.candidate == row.trusted and row.equal_share == 1 for row in same.values())
    passes.clear()
    last = rows(measured(REFERENCE, named("reference").overlaid("logits", 1e3)))
    assert len(passes) == 1
    assert [name for name, row in last.items() if row.candidate != row.trusted] == ["logits"]
    assert (last["logits"].candidate.all or 0) > 1
    passes.clear()
    rows(measured(REFERENCE, named("reference").overlaid("L2.ffn.swiglu", 1e-3)))
    assert len(passes) > 1


def test_errors_end_to_end_are_measured_where_one_step_or_a_second_run_is_off_and_nowhere_else() -> None:
    quiet = rows(sound())
    assert all(row.candidate_end_to_end is row.trusted_end_to_end is None for row in quiet.values())
    for broken in (named("bias_dropped"), named("reference").overlaid("L2.ffn.swiglu", 1e3)):
        assert all(row.trusted_end_to_end is not None for row in rows(measured(REFERENCE, broken)).values())
    drifting = module()
    last = [part for part in drifting.modules() if isinstance(part, torch.nn.Linear)][-1]
    last.register_forward_hook(lambda _part, _given, made: made + 1e-7 * torch.rand(1))
    noisy = rows(measured(REFERENCE, tapped(module=drifting)))
    assert any(row.noise for row in noisy.values())
    assert all(row.candidate_end_to_end is not None for row in noisy.values())


def test_an_instrument_that_answers_always_the_same_is_blind() -> None:
    canary, whole = trial()
    assert not canary.seen(whole)
    assert not canary.seen(Unmeasured(code="x", why="", remedy=""))


@pytest.mark.slow
@pytest.mark.parametrize("part", [(slice(None), slice(0, 1)), (..., slice(0, 1))])
def test_an_instrument_that_reads_the_first_token_or_channel_only_is_blind(
    part: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = local_pass.compare
    monkeypatch.setattr(local_pass, "compare", lambda made, values: honest(made[part], values[part]))
    canary, _ = trial(measured(REFERENCE, named("fused")))
    assert not canary.seen(measure(canary.views, {}))


@pytest.mark.slow
def test_an_instrument_that_reads_its_first_point_only_is_blind(monkeypatch: pytest.MonkeyPatch) -> None:
    canary, _ = trial()
    honest = local_pass.compare
    seen: list[Any] = []

    def first_only(made: Any, values: Any) -> Any:
        seen.append(seen[0] if seen else honest(made, values))
        return seen[0]

    monkeypatch.setattr(local_pass, "compare", first_only)
    assert not canary.seen(measure(canary.views, {}))


@pytest.mark.slow
def test_nothing_in_common_has_no_canary() -> None:
    views = (tapped(taps={"logits": "head"}), tapped(taps={"embed": "embed"}))
    assert isinstance(VERIFIER.canary(views, {}, measured(*views)), NoCanary)


@pytest.mark.slow
def test_a_real_pass_survives_all_its_trials() -> None:
    limits = Limits(required=("L0.attn.q.rope", "logits"), dtype="float32", device="cpu", min_points=42)
    evidence = {"points": sound()}
    verdict = judge(evidence, limits)
    trials = list(falsify(KIND, evidence, limits, verdict))
    assert verdict.outcome is Outcome.PASS
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    unasked = [f"inputs that reach no {name}" for name in REACHED]
    untried = [trial.name for trial in trials if trial.result is TrialResult.UNTRIED]
    assert sorted(untried) == sorted(["a glob that names nothing", *unasked])


@pytest.mark.slow
def test_the_logits_are_compared_with_the_trusted_runs() -> None:
    outcome = rows(measured(REFERENCE, named("bias_dropped")))["logits"].run.outcome
    assert (outcome.point, outcome.of) == ("logits", gpt.SEQUENCES * gpt.LENGTH)
    assert outcome.flips > 0
    assert (outcome.kl_max or 0) >= (outcome.kl_mean or 0) > 1e-3
    same = rows(measured(REFERENCE, named("reference")))["logits"].run.outcome
    assert (same.kl_mean, same.flips, same.widest_flip) == (0.0, 0, None)


@pytest.mark.slow
def test_runs_leave_no_file_behind(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    views = named("reference"), named("fused")
    assert isinstance(forward_errors.measure(views, {}), Measurement)
    assert len(list(tmp_path.rglob("*.trace"))) == 2
    del views
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_factory_that_finds_no_device_is_unmeasured() -> None:
    found = measure((REFERENCE, shown(None)), {})
    assert isinstance(found, Unmeasured)
    assert found.code == "no-cuda"
