"""Subjects as others bring them: points of their own, patched modules, foreign tensors, graphs with fewer values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.verifiers.stacks import REFERENCE, Layered, gpt, measured, rows, shown, weighed  # noqa: E402
from torch import nn  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Outcome  # noqa: E402
from weighbridge.forward.stacks import Stack, Torch  # noqa: E402
from weighbridge.forward.trace_file import TraceWriter, open_trace  # noqa: E402
from weighbridge.gates.families.local_errors import Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.verifiers.forward_errors import VERIFIER  # noqa: E402
from weighbridge.views.model_view import ModelView, open_model  # noqa: E402

ALIAS, SAME = "layers.0.feed.out", "layers.0.feed.down.out"


class Feed(nn.Module):
    """A part that returns the very tensor of its last part."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.feed = nn.LayerNorm(32), Feed()

    def forward(self, x: Any) -> Any:
        return x + self.feed(self.norm(x))


class Small(Layered):
    def __init__(self) -> None:
        super().__init__(32, Layer)


def small() -> Any:
    torch.manual_seed(3)
    return Small()


def view(module: Any, **more: Any) -> ModelView:
    return shown(Torch(module=module, **more))


def judged(candidate: ModelView, **limits: Any) -> Any:
    return judge({"points": measured(view(small()), candidate)}, Limits(**{"other_weights": ("*",), **limits}))


def values(of: ModelView, dtype: str = "float32") -> dict[str, Any]:
    stack = of.stack()
    assert isinstance(stack, Torch)
    trace = of.capture(stack.drawn(), dtype)
    return {name: trace.stored(name) for name in trace.facts.order}


# --- Points of its own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_trace_may_name_a_module_that_returns_the_tensor_of_an_earlier_point(tmp_path: Path, factor: float) -> None:
    reference, path = view(small()), tmp_path / "engine.trace"
    stack = reference.stack()
    assert isinstance(stack, Torch)
    trace = reference.capture(stack.drawn(), "float32")
    order: list[str] = []
    with TraceWriter(path) as writer:
        for name in trace.facts.order:
            for point, by in ((name, 1.0), *([(ALIAS, factor)] if name == SAME else [])):
                array = (trace.stored(name) * np.float32(by)).astype("float32")
                writer.write(point, array.tobytes(), array.shape, "float32")
                order.append(point)
        writer.close(replace(trace.facts, order=tuple(order)))
    verdict = judged(open_model(str(path)))
    if factor == 1:
        assert verdict.outcome is Outcome.PASS
        assert ALIAS in verdict.looked
    else:  # what follows was not made from it
        assert (verdict.code, [offence.place for offence in verdict.offences]) == ("other-basis", [ALIAS])


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_point_that_a_wrapper_adds_to_a_live_candidate_is_compared(factor: float) -> None:
    module = small()
    module.layers[0].feed.register_forward_hook(lambda _module, _given, made: made * factor)
    verdict = judged(view(module))
    assert ALIAS in verdict.looked
    assert verdict.outcome is (Outcome.PASS if factor == 1 else Outcome.FAIL)
    assert factor == 1 or verdict.figures["first"] == ALIAS


def test_a_point_of_the_candidate_alone_fails_in_a_live_one_too() -> None:
    module = small()
    module.head = nn.Sequential(module.head, nn.Identity(), nn.Hardtanh(-1e9, 1e9))
    verdict = judged(view(module))
    assert {offence.code for offence in verdict.offences} >= {"missing-reference"}


def test_the_canary_sees_a_candidate_with_points_of_its_own() -> None:
    module = small()
    module.layers[0].feed.register_forward_hook(lambda _module, _given, made: made * 1.0)
    views = (view(small()), view(module))
    canary: Any = VERIFIER.canary(views, {}, measured(*views))
    assert canary.seen(measured(*canary.views))


# --- Fewer values -----------------------------------------------------------------------------------------------------


def lacking(*points: str, partial: bool = True, **changed: Any) -> ModelView:
    """Return a stack that has no value for some points."""
    given = {name: one for name, one in {**values(view(small())), **changed}.items() if name not in points}
    return shown(Stack(run=lambda _tokens: given, partial=partial))


def test_what_a_graph_has_no_value_for_is_counted_and_what_is_made_of_it_compared() -> None:
    verdict = judged(lacking("layers.0.norm.out", "layers.1.feed.up.out"))
    assert verdict.outcome is Outcome.PASS
    assert verdict.figures["unseen"] == "; 2 points have no value in the candidate: layers.0.norm.out, …"
    assert not {"layers.0.norm.out", "layers.1.feed.up.out"} & {*verdict.looked}


def test_an_error_where_a_graph_has_no_value_is_found_at_the_next_point() -> None:
    module = small()
    module.layers[0].norm.weight.data[:4] = 0.9
    verdict = judged(lacking("layers.0.norm.out", **values(view(module))))
    assert (verdict.outcome, verdict.figures["first"]) == (Outcome.FAIL, "layers.0.feed.up.out")


@pytest.mark.parametrize(
    ("view", "limits"),
    [
        (lambda: lacking("layers.0.norm.out", partial=False), {}),
        (lambda: lacking("layers.0.norm.out"), {"required": ("layers.0.norm.out",)}),
        (lambda: lacking("head.out"), {}),
    ],
)
def test_a_missing_point_fails_where_nothing_is_made_of_it_or_the_contract_names_it(view: Any, limits: Any) -> None:
    verdict = judged(view(), **limits)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "missing-candidate")


def test_globs_that_name_only_what_a_graph_has_no_value_for_name_nothing() -> None:
    verdict = judged(lacking("layers.0.norm.out"), points=("layers.0.norm.*", "head.out"))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "names-nothing")


# --- Modules that were patched, tensors of others ---------------------------------------------------------------------


@pytest.mark.parametrize("path", ["", "layers.1.feed"])
def test_a_forward_that_keeps_the_original_is_refused_where_a_copy_is_needed(path: str) -> None:
    module = small()
    part = module.get_submodule(path)
    plain = part.forward
    part.forward = lambda given: plain(given)  # noqa: PLW0108 -- a closure, as people write it
    assert judged(view(module)).outcome is Outcome.PASS  # nothing is copied
    with pytest.raises(SubjectError, match="would run") as refused:
        judged(view(module, dtype="bfloat16"))
    assert refused.value.code == "patched-forward"


def test_a_forward_that_is_another_modules_method_is_copied_with_it() -> None:
    module = small()
    module.layers[0].feed.forward = type(module.layers[0].feed).forward.__get__(module.layers[0].feed)
    assert judged(view(module, dtype="bfloat16")).outcome is Outcome.PASS


class Halves(torch.Tensor):  # type: ignore[name-defined,misc]
    """A tensor that has no bytes of its own, as one of a quantisation library."""

    @staticmethod
    def __new__(cls, codes: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=torch.float32)

    def __init__(self, codes: Any) -> None:
        self.codes = codes

    def dequantize(self) -> Any:
        return self.codes.float() / 128

    @classmethod
    def __torch_dispatch__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        plain = [one.dequantize() if isinstance(one, Halves) else one for one in args]
        return func(*plain, **(kwargs or {}))


def test_a_weight_of_another_librarys_tensor_counts_as_what_it_stands_for() -> None:
    plain, packed = small(), small()
    codes = (128 * plain.head.weight).round().to(torch.int8)
    plain.head.weight = nn.Parameter(codes.float() / 128)
    packed.head.weight = nn.Parameter(Halves(codes), requires_grad=False)
    found = measured(view(plain), view(packed))
    weights = rows(found)["head.out"].run.weights
    assert (weights.on_both_sides, weights.differing) == (len(plain.state_dict()), ())
    assert judge({"points": found}, Limits()).outcome is Outcome.PASS


# --- Decoding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "rows_written"), [((3.0, 3.0), 1), ((3.0, 4.0), 2)])
def test_steps_that_say_for_each_sequence_what_another_says_for_all_are_joined(
    tmp_path: Path, steps: tuple[float, float], rows_written: int
) -> None:
    path = tmp_path / "decoded.trace"
    first, second = np.ones((1, 2, 4), "float32"), np.array(steps, "float32").reshape(2, 1, 1).repeat(4, 2)
    logits = np.ones((2, 3, 4), "float32")
    facts = weighed_facts()
    with TraceWriter(path) as writer:
        for point, part in (("a.out", first), ("a.out", second), ("logits", logits)):
            writer.write(point, part.tobytes(), part.shape, "float32")
        writer.close(facts)
    trace = open_trace(path)
    assert trace.shape("a.out") == (rows_written, 3, 4)
    assert trace.stored("a.out")[-1, :, 0].tolist() == [1.0, 1.0, steps[-1]]


def weighed_facts() -> Any:
    stack = REFERENCE.stack()
    assert isinstance(stack, Torch)
    facts = REFERENCE.capture(stack.tokens, "float32").facts
    return replace(facts, tokens=((1, 2, 3), (4, 5, 6)), order=("a.out", "logits"), noise=None)


def test_the_specimens_still_pass() -> None:
    assert weighed(gpt.seeded(gpt.TinyGPT(gpt.FusedAttention))).outcome is Outcome.PASS
