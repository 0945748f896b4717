"""What inputs reach of a model: windows, limits of positions, experts, a cache; and inputs drawn to reach it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.forward.tiny_models import CONFIGS, SMALL, saved  # noqa: E402
from tests.verifiers.stacks import gpt, shown  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Measurement, Outcome, Verdict  # noqa: E402
from weighbridge.forward import reach  # noqa: E402
from weighbridge.forward.reach import Bounds, bounds_of, cache_parameter, drawn_form, drawn_size  # noqa: E402
from weighbridge.forward.stacks import DRAWN, Torch  # noqa: E402
from weighbridge.gates.families.local_errors import REACHED, Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.verifiers.forward_errors import measure  # noqa: E402
from weighbridge.views.model_view import ModelView, open_model  # noqa: E402

LONG_ROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 32, "factor": 8.0,
    "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
}  # fmt: skip


def loaded(name: str, **changes: Any) -> Any:
    """Return a model of two layers with other settings."""
    torch.manual_seed(1)
    config = transformers.AutoConfig.for_model(name, **{**CONFIGS.get(name, SMALL), "num_hidden_layers": 2, **changes})
    model = transformers.AutoModelForCausalLM.from_config(config)
    for weight in model.parameters():
        weight.data *= 4 if weight.ndim > 1 else 1
    return model.eval()


@pytest.fixture(scope="module")
def qwen() -> ModelView:
    """Return a reference that no test changes: its runs are made once."""
    return shown(Torch(module=loaded("qwen2")))


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
    assert judged(reference, loaded("gemma3_text", sliding_window=64)).figures["not_reached"] == []


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


# --- Padding and a cache ----------------------------------------------------------------------------------------------


def blind(made: Any) -> None:
    """Let a model take no notice of its mask."""
    plain = type(made)

    @functools.wraps(plain.forward)
    def forward(self: Any, *args: Any, attention_mask: Any = None, **named: Any) -> Any:
        return plain.forward(self, *args, **named)

    made.__class__ = type(plain.__name__, (plain,), {"forward": forward})


def one_too_far(made: Any) -> None:
    """Turn what is decoded by the angle of the next position."""

    plain = made.model.rotary_emb.forward
    made.model.rotary_emb.forward = lambda x, position_ids: plain(x, position_ids + (position_ids.shape[1] == 1))


def on_decoding(part: Any, change: Callable[[Any], None]) -> None:
    """Change what a cache holds for layer 1, before an attention decodes from it."""

    def before(_module: Any, _args: Any, named: Any) -> None:
        if named["hidden_states"].shape[1] == 1:
            change(next(named[name] for name in ("past_key_values", "cache") if name in named).layers[1])

    part.register_forward_pre_hook(before, with_kwargs=True)


def wrong_slot(made: Any) -> None:
    """Write the value of one token where that of the token before it is."""

    def change(layer: Any) -> None:
        layer.values[:, :, 5] = layer.values[:, :, 6]

    on_decoding(made.model.layers[1].self_attn, change)


def rolled_keys(made: Any) -> None:
    """Write every key of one head one slot too far."""

    def change(layer: Any) -> None:
        layer.keys[:, 1] = layer.keys[:, 1].roll(1, 1)

    on_decoding(made.model.layers[1].self_attn, change)


def short(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **named: Any) -> Any:
    """Attend, where one token is decoded by a marked module, to all keys but the last."""
    if getattr(module, "short", False) and query.shape[2] == 1:
        key, value, attention_mask = key[:, :, :-1], value[:, :, :-1], attention_mask[..., :-1]
    plain = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
    return plain(module, query, key, value, attention_mask, **named)


def last_key_left_out(made: Any) -> None:
    """Attend in one layer to all but the token itself."""
    transformers.AttentionInterface.register("short", short)
    transformers.AttentionMaskInterface.register("short", transformers.masking_utils.sdpa_mask)
    made.config._attn_implementation = "short"
    made.model.layers[1].self_attn.short = True


FAULTS = (
    (blind, "model.layers.0.self_attn.o_proj.in"),
    (one_too_far, "model.rotary_emb.out"),
    (wrong_slot, "model.layers.1.self_attn.attention.value.cache"),
    (rolled_keys, "model.layers.1.self_attn.attention.key.cache"),
    (last_key_left_out, "model.layers.1.self_attn.o_proj.in"),
)


@pytest.mark.parametrize(
    ("fault", "place", "dtype"),
    [
        pytest.param(
            fault, place, dtype, id=f"{fault.__name__}-{dtype}", marks=[pytest.mark.exhaustive] * (at % 2 != other)
        )
        for at, (fault, place) in enumerate(FAULTS)
        for other, dtype in enumerate(("float32", "bfloat16"))
    ],
)
def test_what_only_padding_or_a_cache_shows_is_found_where_it_is(
    qwen: ModelView, fault: Callable[[Any], None], place: str, dtype: str
) -> None:
    candidate = loaded("qwen2").to(getattr(torch, dtype))
    fault(candidate)
    verdict = judged(qwen, candidate)
    assert (verdict.outcome, verdict.code, verdict.figures.get("first")) == (Outcome.FAIL, "diverged", place)


@pytest.mark.parametrize("fault", [one for one, _ in FAULTS])
def test_inputs_of_ones_own_do_not_show_them_and_that_is_said(fault: Callable[[Any], None]) -> None:
    tokens = [[(7 * n + row) % 120 + 2 for n in range(24)] for row in range(3)]
    reference, candidate = loaded("qwen2"), loaded("qwen2")
    fault(candidate)
    verdict = judged(*(shown(Torch(module=one, tokens=tokens)) for one in (reference, candidate)))
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, ["cache", "padding"])


@pytest.mark.parametrize("fault", [pytest.param(wrong_slot, marks=pytest.mark.exhaustive), last_key_left_out])
def test_a_reference_whose_own_cache_is_wrong_reaches_none(fault: Callable[[Any], None]) -> None:
    sides = [loaded("qwen2"), loaded("qwen2")]
    for one in sides:
        fault(one)
    verdict = judged(*sides)
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, ["cache"])
    assert judged(*sides, reach=("cache",)).code == "inputs-reach-no-cache"
    fault(sides[0])
    sides[1] = loaded("qwen2")
    assert judged(*sides, reach=("cache",)).code == "inputs-reach-no-cache"


def test_a_bug_is_found_beside_a_cache_that_is_wrong_on_both_sides() -> None:
    sides = [loaded("qwen2"), loaded("qwen2")]
    for one in sides:
        wrong_slot(one)
    sides[1].model.layers[1].self_attn.q_proj.bias.data += 1
    verdict = judged(*sides, other_weights=("*",))
    assert (verdict.outcome, verdict.figures["first"]) == (Outcome.FAIL, "model.layers.1.self_attn.q_proj.out")


def test_a_model_that_raises_on_a_mask_or_a_cache_is_compared_without(qwen: ModelView) -> None:
    candidate = loaded("qwen2")

    def before(_module: Any, _args: Any, named: Any) -> None:
        assert not named.get("use_cache"), "no cache here"

    candidate.register_forward_pre_hook(before, with_kwargs=True)
    verdict = judged(qwen, candidate)
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, ["cache"])


@pytest.mark.parametrize(
    ("name", "missed"),
    [("bert", []), ("t5", ["cache", "padding"]), ("mamba", []), ("bloom", ["cache"]), ("gemma3_text", [])],
)
def test_each_kind_of_model_is_run_in_the_form_that_it_takes(name: str, missed: list[str], tmp_path: Path) -> None:
    if name == "mamba" and cache_parameter(transformers.MambaForCausalLM):  # its state has that name since 5.24
        missed = ["cache"]
    view = open_model(f"hf:{saved(name, tmp_path)}")
    verdict = judged(view, view)
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, missed)


def test_angles_that_change_with_the_length_are_not_decoded() -> None:
    given = {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}}
    sides = [loaded("llama", **{**SMALL, **given, "max_position_embeddings": 32}) for _ in range(2)]
    assert drawn_form(sides, 4, 24).decode == 0
    assert judged(*sides).figures["not_reached"] == ["cache"]


@pytest.mark.parametrize("padded", [(6, 0), (0, 27)])
def test_padding_that_leaves_nothing_to_compare_with_is_refused(padded: tuple[int, ...]) -> None:
    stack = shown(
        Torch(module=loaded("qwen2"), tokens=[list(range(2, 30)), list(range(30, 58))], padded=padded, decode=1)
    )
    with pytest.raises(SubjectError) as refused:
        judged(stack, stack)
    assert refused.value.code == "padded"


def test_a_trace_says_what_of_it_is_padding_and_the_reference_is_run_so(tmp_path: Path) -> None:
    tokens = [list(range(2, 30)), list(range(30, 58))]
    stack = Torch(module=loaded("qwen2"), tokens=tokens, padded=(0, 6), decode=3, dtype="float32")
    trace = stack.capture(tokens, tmp_path / "it.trace")
    assert (trace.facts.padded, trace.facts.decoded) == ((0, 6), 3)
    plain = shown(Torch(module=loaded("qwen2"), tokens=tokens))
    assert judged(plain, open_model(str(tmp_path / "it.trace")), reach=("cache", "padding")).outcome is Outcome.PASS
    other = Torch(module=loaded("qwen2"), tokens=tokens, dtype="float32")
    other.capture(tokens, tmp_path / "unpadded.trace")
    verdict = judged(plain, open_model(str(tmp_path / "unpadded.trace")))
    assert verdict.figures["not_reached"] == ["cache", "padding"]


# --- What a verdict says ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("qwen2", tmp_path_factory.mktemp("reach"))


def test_drawn_inputs_reach_all_that_a_plain_decoder_has(folder: Path) -> None:
    view = open_model(f"hf:{folder}")
    assert judged(view, view, reach=REACHED).outcome is Outcome.PASS


@pytest.mark.parametrize("name", ["cache", "padding"])
def test_what_is_asked_for_and_not_reached_blocks(name: str) -> None:
    given = shown(Torch(module=loaded("qwen2"), tokens=[list(range(2, 30)), list(range(30, 58))]))
    assert judged(given, given, reach=(name,)).code == f"inputs-reach-no-{name}"
    verdict = judged(given, given)
    assert (verdict.outcome, verdict.figures["unreached"]) == (Outcome.PASS, "; not reached: cache, padding")


def test_a_model_that_says_nothing_of_itself_reaches_nothing() -> None:
    for name in REACHED:
        verdict = judged(gpt.seeded(gpt.TinyGPT()), gpt.seeded(gpt.TinyGPT()), reach=(name,))
        assert verdict.code == f"inputs-reach-no-{name}"


def test_a_decoded_candidate_reaches_the_cache(folder: Path) -> None:
    verdict = judged(open_model(f"hf:{folder}"), open_model(f"hf:{folder}?decode=8"), reach=("cache",))
    assert (verdict.outcome, verdict.figures["not_reached"]) == (Outcome.PASS, [])


def test_a_bug_fails_though_the_inputs_do_not_reach_what_is_asked_for(qwen: ModelView) -> None:
    candidate = loaded("qwen2")
    candidate.model.layers[1].self_attn.q_proj.bias.data += 1
    verdict = judged(qwen, candidate, reach=("cache",), other_weights=("*",))
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, "diverged")
