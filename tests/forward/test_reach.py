"""What inputs reach of a model: windows, limits of positions, experts, a cache; and inputs drawn to reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.forward.tiny_models import CONFIGS, SMALL, saved  # noqa: E402
from tests.verifiers.stacks import gpt, shown  # noqa: E402

from weighbridge.core.model import Measurement, Outcome, Verdict  # noqa: E402
from weighbridge.forward import reach  # noqa: E402
from weighbridge.forward.reach import Bounds, bounds_of, drawn_size  # noqa: E402
from weighbridge.forward.stacks import DRAWN, Torch  # noqa: E402
from weighbridge.gates.families.local_errors import REACHED, Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.verifiers.forward_errors import measure  # noqa: E402
from weighbridge.views.model_view import open_model  # noqa: E402

LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 32, "factor": 8.0,
    "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
}  # fmt: skip


def loaded(name: str, **changes: Any) -> Any:
    """Return a model of three layers with other settings."""
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(name, **{**CONFIGS.get(name, SMALL), **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        weight.data *= 4 if weight.ndim > 1 else 1
    return model.eval()


def judged(reference: Any, candidate: Any, **limits: Any) -> Verdict:
    found = measure(
        tuple(one if hasattr(one, "spec") else shown(Torch(module=one)) for one in (reference, candidate)), {}
    )
    assert isinstance(found, Measurement)
    return judge({"points": found}, Limits(**limits))


# --- Drawing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "size"),
    [
        (None, DRAWN),
        (Bounds(), DRAWN),
        (Bounds(window=8), DRAWN),
        (Bounds(window=64, positions=4096), (4, 72)),
        (Bounds(window=512, positions=4096), (2, 520)),
        (Bounds(window=4096, positions=32768), DRAWN),  # which two sequences would take 8208 tokens to cross
        (Bounds(window=64, rope_limit=4096, positions=131072), (4, 72)),
        (Bounds(rope_limit=128, positions=1024), (4, 136)),
        (Bounds(window=64, positions=32), (4, 32)),
        (Bounds(experts=32, chosen=1, positions=4096), (4, 128)),
        (Bounds(experts=512, chosen=1, positions=4096), (2, 1024)),
    ],
)
def test_sequences_are_as_long_as_a_bound_asks_within_so_many_tokens(bounds: Bounds | None, size: Any) -> None:
    assert drawn_size(bounds, DRAWN) == size
    assert size[0] * size[1] <= reach.MOST


def test_bounds_are_read_from_the_configuration() -> None:
    assert bounds_of(gpt.TinyGPT()) is None
    assert bounds_of(loaded("gemma3_text", sliding_window=40)) == Bounds(window=40, positions=256)
    assert bounds_of(loaded("qwen2", use_sliding_window=False)).window == 0  # type: ignore[union-attr]
    assert bounds_of(loaded("qwen3_moe")) == Bounds(experts=4, chosen=2, positions=256)
    long = loaded("phi3", rope_parameters=LONG_ROPE, original_max_position_embeddings=32)
    assert bounds_of(long).rope_limit == 32  # type: ignore[union-attr]


# --- Faults that only such inputs show --------------------------------------------------------------------------------


def test_a_window_that_is_one_too_wide_is_found() -> None:
    reference = loaded("gemma3_text", sliding_window=64)
    verdict = judged(reference, loaded("gemma3_text", sliding_window=65))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")
    assert judged(reference, loaded("gemma3_text", sliding_window=64)).figures["not_reached"] == ["cache", "padding"]


def test_a_rotation_that_does_not_switch_is_found() -> None:
    given = {"original_max_position_embeddings": 32}
    other = loaded("phi3", rope_parameters={**LONG_ROPE, "long_factor": [1.0] * 8}, **given)
    assert judged(*(loaded("phi3", rope_parameters=LONG_ROPE, **given) for _ in range(2))).outcome is Outcome.PASS
    verdict = judged(loaded("phi3", rope_parameters=LONG_ROPE, **given), other)
    assert (verdict.outcome, verdict.figures["first"]) == (Outcome.FAIL, "model.rotary_emb.out")


def test_a_rotation_that_was_rounded_once_still_blocks() -> None:
    given = {"rope_parameters": LONG_ROPE, "original_max_position_embeddings": 32}
    reference = loaded("phi3", **given)
    reference.to(torch.bfloat16).float()
    assert judged(reference, loaded("phi3", **given), other_weights=("*",)).code == "reference-not-float64"


def test_an_expert_that_few_tokens_choose_is_tried() -> None:
    size = {"num_experts": 32, "num_experts_per_tok": 1}
    reference, candidate = loaded("qwen3_moe", **size), loaded("qwen3_moe", **size)
    verdict = judged(reference, candidate)
    assert verdict.outcome is Outcome.PASS
    few = judged(*(shown(Torch(module=one, tokens=[[2, 3, 4], [5, 6, 7]])) for one in (reference, candidate)))
    assert few.figures["not_reached"] == ["expert", "cache", "padding"]
    candidate.get_parameter("model.layers.1.mlp.experts.down_proj").data[31] *= 1.5
    assert judged(reference, candidate, other_weights=("*",)).outcome is Outcome.FAIL


# --- What a verdict says ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("qwen2", tmp_path_factory.mktemp("reach"))


@pytest.mark.parametrize("name", REACHED)
def test_what_is_asked_for_and_not_reached_blocks(name: str, folder: Path) -> None:
    view = open_model(f"hf:{folder}")
    verdict = judged(view, view, reach=(name,))
    never = name in {"cache", "padding"}
    assert verdict.code == (f"inputs-reach-no-{name}" if never else "pass")
    assert judged(view, view).outcome is Outcome.PASS


def test_a_model_that_says_nothing_of_itself_reaches_nothing() -> None:
    for name in REACHED:
        verdict = judged(gpt.seeded(gpt.TinyGPT()), gpt.seeded(gpt.TinyGPT()), reach=(name,))
        assert verdict.code == f"inputs-reach-no-{name}"


def test_a_decoded_candidate_reaches_the_cache(folder: Path) -> None:
    verdict = judged(open_model(f"hf:{folder}"), open_model(f"hf:{folder}?decode=8"), reach=("cache",))
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, ["padding"])


def test_a_bug_fails_though_the_inputs_do_not_reach_what_is_asked_for() -> None:
    candidate = loaded("qwen2")
    candidate.model.layers[1].self_attn.q_proj.bias.data += 1
    verdict = judged(loaded("qwen2"), candidate, reach=("cache",), other_weights=("*",))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")
