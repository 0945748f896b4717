"""The step of every point of a model runs alone and makes the same, however many operations it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.forward.tiny_models import saved  # noqa: E402

from weighbridge.core import SubjectError  # noqa: E402
from weighbridge.forward.hugging_face import Directory  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402
from weighbridge.forward.step_script import step_of  # noqa: E402

TOKENS = [[(7 * n + 11 * row) % 120 + 2 for n in range(9)] for row in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    [
        pytest.param("qwen2", marks=pytest.mark.exhaustive),
        "gpt2",
        pytest.param("gemma3_text", marks=pytest.mark.exhaustive),
        "bloom",
        "qwen3_moe",
    ],
)
def test_every_step_of_a_model_is_reported_and_makes_the_same(tmp_path: Path, family: str) -> None:
    stack = Directory.named(f"hf:{saved(family, tmp_path)}").make()
    assert isinstance(stack, Torch)
    trace = stack.prepared("bfloat16").capture(TOKENS, tmp_path / "a.trace")
    whole = [
        point for point in trace.facts.order if "experts" not in point and not trace.held_as(point).startswith("int")
    ]
    readable = 0
    for point in trace.facts.order:
        if point not in whole:  # choices have no error; grouped products have no kernel in float64
            with pytest.raises(SubjectError, match="trace-step"):
                step_of(stack, TOKENS, trace, point, ())
            continue
        step = step_of(stack, TOKENS, trace, point, ())
        readable += len(step.lines) <= 20
        try:
            near = step.made(torch.bfloat16, torch.float32).double()
        except RuntimeError:  # of a kernel that takes no two dtypes
            assert "baddbmm" in "".join(step.lines)
            continue
        assert float((near - step.truth).norm() / step.truth.norm()) < 0.02, point
    assert readable > 0.9 * len(whole)
