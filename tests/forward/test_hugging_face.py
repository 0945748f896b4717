"""Unchanged Hugging Face models, without a factory: attention, decoding, compiling, and where a bug is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402
from tests.forward.tiny_models import saved  # noqa: E402
from tests.verifiers.stacks import shown  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.core.model import Measurement, Outcome, Verdict  # noqa: E402
from weighbridge.forward import stacks  # noqa: E402
from weighbridge.forward.reach import cache_parameter  # noqa: E402
from weighbridge.forward.stacks import Torch  # noqa: E402
from weighbridge.gates.families.local_errors import Limits  # noqa: E402
from weighbridge.gates.forward_parity import judge  # noqa: E402
from weighbridge.quantities.base import rows_of  # noqa: E402
from weighbridge.quantities.forward import ForwardError  # noqa: E402
from weighbridge.verifiers.forward_errors import measure  # noqa: E402
from weighbridge.views.model_view import ModelView, open_model  # noqa: E402

# Their libraries warn of what is theirs.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.fixture(autouse=True, scope="module")
def library() -> None:
    pytest.importorskip("transformers")


def weighed(folder: Path, candidate: ModelView) -> Verdict:
    found = measure((open_model(f"hf:{folder}?attn_implementation=eager"), candidate), {})
    assert isinstance(found, Measurement)
    assert rows_of(found, ForwardError)[0].run.lower_ops == 0
    return judge({"points": found}, Limits(other_weights=("*",)))


def changed(folder: Path, dtype: str, change: Callable[[Any], None]) -> ModelView:
    stack = open_model(f"hf:{folder}?dtype={dtype}").stack()
    assert isinstance(stack, Torch)
    with torch.no_grad():
        change(stack.module)
    return shown(stack)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "attention", "linear"),
    [
        ("qwen2", "sdpa", "model.layers.1.mlp.up_proj"),
        ("gemma3_text", "sdpa", "model.layers.1.self_attn.v_proj"),
        ("gpt2", "sdpa", "transformer.h.1.mlp.c_proj"),
        ("bloom", "eager", "transformer.h.1.self_attention.query_key_value"),
        ("qwen3_moe", "sdpa", "model.layers.1.self_attn.o_proj"),
        ("mamba", "", "backbone.layers.1.mixer.x_proj"),
        ("bert", "sdpa", "bert.encoder.layer.1.attention.self.query"),
        ("t5", "", "decoder.block.1.layer.1.EncDecAttention.k"),
    ],
)
def test_another_attention_passes_and_two_swapped_rows_are_found(
    name: str, attention: str, linear: str, dtype: str, tmp_path: Path
) -> None:
    folder = saved(name, tmp_path)
    other = f"&attn_implementation={attention}" if attention else ""
    assert weighed(folder, open_model(f"hf:{folder}?dtype={dtype}{other}")).outcome is Outcome.PASS

    def swap(model: Any) -> None:
        weight = model.get_submodule(linear).weight
        rows = weight.T if name == "gpt2" else weight  # a Conv1D holds it turned
        rows[[0, 5]] = rows[[5, 0]].clone()

    verdict = weighed(folder, changed(folder, dtype, swap))
    assert (verdict.outcome, verdict.offences[0].place) == (Outcome.FAIL, f"{linear}.out")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("qwen2", "float32"),
        pytest.param("qwen2", "bfloat16", marks=pytest.mark.exhaustive),
        pytest.param("opt", "float32", marks=pytest.mark.exhaustive),
        ("opt", "bfloat16"),
    ],
)
def test_decoding_agrees_with_the_whole_at_once(name: str, dtype: str, tmp_path: Path) -> None:
    folder = saved(name, tmp_path)
    assert weighed(folder, open_model(f"hf:{folder}?dtype={dtype}&decode=8")).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("position", "row", "first"), [(1, None, "transformer.wpe.out"), (0, 5, "transformer.h.1.attn.c_proj.in")]
)
def test_a_wrong_position_and_a_wrong_row_of_the_cache_are_found_where_they_first_show(
    position: int, row: int | None, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved("gpt2", tmp_path)

    def generate(module: Any, ids: Any, steps: int, masks: Any) -> None:
        def seen(stop: int) -> dict[str, Any]:
            return {name: mask[:, :stop] for name, mask in masks.items()}

        name = cache_parameter(module)
        cache = getattr(module(input_ids=ids[:, :-steps], use_cache=True, **seen(-steps)), name)
        if row is not None:
            cache.layers[1].values[:, :, row] = cache.layers[1].values[:, :, row + 1]
        for at in range(ids.shape[1] - steps, ids.shape[1]):
            place = torch.tensor([[at + position]])
            given = {name: cache, "position_ids": place, **seen(at + 1)}
            module(input_ids=ids[:, at : at + 1], use_cache=True, **given)

    monkeypatch.setattr(stacks, "_generate", generate)
    verdict = weighed(folder, open_model(f"hf:{folder}?decode=8"))
    assert (verdict.outcome, verdict.offences[0].place) == (Outcome.FAIL, first)


@pytest.mark.exhaustive
def test_hooks_break_no_compiled_graph_and_change_no_bit(tmp_path: Path) -> None:
    from torch._dynamo.utils import counters

    folder = saved("gpt2", tmp_path)
    stack = open_model(f"hf:{folder}?compile").stack()
    plain = open_model(f"hf:{folder}").stack()
    assert isinstance(stack, Torch)
    assert isinstance(plain, Torch)
    tokens = stack.drawn()
    with torch.no_grad():
        logits = stack.module(input_ids=torch.tensor(tokens), use_cache=False).logits
    counters.clear()
    trace = stack.prepared().capture(tokens, tmp_path / "compiled.trace")
    assert (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())) == (1, 0)
    assert trace.stored("lm_head.out").tobytes() == logits.numpy().tobytes()
    assert set(trace.facts.order) == plain.points(tokens)


def test_a_directory_whose_weights_do_not_fit_is_refused(tmp_path: Path) -> None:
    folder = saved("gpt2", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "n_embd": 96}))
    with pytest.raises(SubjectError) as refused:
        open_model(f"hf:{folder}").stack()
    assert refused.value.code == "hf-load"


def test_weights_that_transformers_would_draw_are_refused(tmp_path: Path) -> None:
    folder = saved("bert", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "architectures": ["BertForSequenceClassification"]}))
    with pytest.raises(SubjectError) as refused:
        open_model(f"hf:{folder}").stack()
    assert (refused.value.code, "4 weights are not in its files" in str(refused.value)) == ("hf-load", True)


def test_one_weight_that_transformers_would_draw_is_refused(tmp_path: Path) -> None:
    folder = saved("gpt2", tmp_path)
    weights = load_file(folder / "model.safetensors")
    save_file(
        {name: one for name, one in weights.items() if name != "transformer.ln_f.bias"},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    with pytest.raises(SubjectError) as refused:
        open_model(f"hf:{folder}").stack()
    assert (refused.value.code, "1 weights are not in its files" in str(refused.value)) == ("hf-load", True)


def test_a_number_of_steps_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SubjectError) as refused:
        open_model(f"hf:{saved('gpt2', tmp_path)}?decode=some")
    assert refused.value.code == "hf-option"
