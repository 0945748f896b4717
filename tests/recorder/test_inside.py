"""What is looked at inside a model at a cadence, of whatever model, and that training is as if nobody looked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn

from tests.recorder.models import (  # noqa: E402
    BATCH,
    VOCAB,
    TinyGPT,
    batches,
    column,
    conv_net,
    hugging_loss,
    image_loss,
    language_loss,
)
from tests.recorder.scenarios import learnt, loop  # noqa: E402
from tests.recorder.test_bit_identity import WAYS, events  # noqa: E402

from weighbridge.core import Outcome  # noqa: E402
from weighbridge.drills.patterns import judged, rows_that  # noqa: E402
from weighbridge.recorder import Diagnostics, Recorder  # noqa: E402
from weighbridge.recorder.digests import state_sha  # noqa: E402
from weighbridge.recorder.passes.diagnostics import ClassLosses, Inside  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")
SIZES = {"vocab_size": VOCAB, "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4}
HEADS = {
    *("least_head_entropy", "head_entropy", "head_entropy_std", "redundant_heads_share", "dead_heads_share"),
    *("head_content", "largest_logit"),
}
LATE = {"neuron_kurtosis_change", "embedding_cka", "dead_neurons_share"}  # not at the first look
Loss = Callable[[Any, Any], Any]


def qwen(**more: Any) -> Any:
    config = transformers.Qwen2Config(**SIZES, intermediate_size=64, num_key_value_heads=2, **more)
    return transformers.Qwen2ForCausalLM(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=VOCAB, n_layer=3, n_embd=32, n_head=4, n_positions=64)
    return transformers.GPT2LMHeadModel(config)  # which has dropout


def bert() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, intermediate_size=64))


class OneLayer(nn.Module):  # type: ignore[misc,name-defined]
    """A model whose batch and output are tuples, with one layer and no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, 16)
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))])
        self.head = nn.Linear(16, VOCAB)

    def forward(self, ids: Any, targets: Any) -> Any:
        logits = self.head(self.layers[0](self.table(ids)))
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def by_name() -> list[dict[str, Any]]:
    return [{"input_ids": one, "labels": one} for one in batches(8)]


def masked() -> list[dict[str, Any]]:
    hidden = torch.arange(13) % 3 == 0
    return [{"input_ids": one.masked_fill(hidden, 0), "labels": one.masked_fill(~hidden, -100)} for one in batches(8)]


def images() -> list[Any]:
    drawn = torch.Generator().manual_seed(0)
    return [(torch.randn(BATCH, 3, 8, 8, generator=drawn), torch.randint(10, (BATCH,))) for _ in range(8)]


MODELS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any], Loss, bool, bool]] = {  # attention, labels are seen
    "Qwen2": (qwen, by_name, hugging_loss, True, True),
    "tied": (lambda: qwen(tie_word_embeddings=True), by_name, hugging_loss, True, True),
    "GPT-2": (gpt2, by_name, hugging_loss, True, True),
    "BERT": (bert, masked, hugging_loss, True, True),
    "nn.MultiheadAttention": (TinyGPT, lambda: batches(8), language_loss, True, False),
    "conv net": (conv_net, images, image_loss, False, False),
    "one layer": (
        OneLayer, lambda: [(one[:, :-1], one[:, 1:]) for one in batches(8)],
        lambda model, batch: model(*batch)[1], False, True,
    ),
}  # fmt: skip


def trained(path: Path, model: Any, fed: Any, loss_of: Loss, asked: Any, *, steps: int = 8) -> str:
    """Train, and return a digest of all that training is made of."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    modes = []
    with Recorder(path, model, optimizer, diagnostics=asked, probe_every=10**6, requested_steps=steps) as recorder:
        for step in range(steps):
            optimizer.zero_grad()
            loss = loss_of(model, fed[step % len(fed)])
            loss.backward()
            modes.append([one.training for one in model.modules()])
            optimizer.step()
            recorder.step(loss)
    grads = [one.grad for one in model.parameters()]
    return state_sha([model.state_dict(), optimizer.state_dict(), grads, torch.get_rng_state(), modes])


def rows(path: Path, name: str = "steps.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.exhaustive] * (name in ("tied", "BERT"))) for name in MODELS]
)
def test_training_is_the_same_to_the_bit_and_what_can_be_seen_is_there(name: str, tmp_path: Path) -> None:
    make, feed, loss_of, attends, labelled = MODELS[name]
    found = []
    for at, asked in enumerate((None, Diagnostics(every=3))):
        torch.manual_seed(0)
        model = make()
        found.append(trained(tmp_path / str(at), model, feed(), loss_of, asked))
        assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())
    assert found[0] == found[1]
    assert not any(set(one) & set(Inside.columns) for one in rows(tmp_path / "0"))
    assert not (tmp_path / "0" / "diagnostics.jsonl").exists()
    assert not events(tmp_path / "1", "recorder-failure")
    looked = [one for one in rows(tmp_path / "1") if "activation_absmax" in one]
    assert [one["step"] for one in looked] == [0, 3, 6, 7]
    assert (set(looked[-1]) & HEADS) == (HEADS if attends else set())
    assert ("slice_ppl" in looked[0], "loss_float64" in looked[0]) == (labelled, labelled)
    assert all(one["loss"] == pytest.approx(one["loss_float64"], rel=1e-5) for one in looked if labelled)
    assert all(math.isfinite(value) for one in looked for value in one.values())
    assert attends == (not any(one.get("why") for one in rows(tmp_path / "1", "diagnostics.jsonl")))


@pytest.mark.parametrize("way", [way for way in WAYS if "compiled" not in way])
def test_ways_of_training_are_the_same_with_and_without(way: str, tmp_path: Path) -> None:
    recorded = learnt(lambda: loop(tmp_path / "a", diagnostics=Diagnostics(every=2), **WAYS[way]))
    assert recorded == learnt(lambda: loop(None, **WAYS[way]))


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", [way for way in WAYS if "compiled" in way])
def test_what_is_compiled_is_not_audited_and_the_same(way: str, tmp_path: Path) -> None:
    asked = Diagnostics(every=1)
    recorded = learnt(lambda: loop(tmp_path / "a", diagnostics=asked, **WAYS[way]))
    assert recorded == learnt(lambda: loop(None, **WAYS[way]))
    (event,) = events(tmp_path / "a", "diagnostics")
    assert event["found"] == "not-audited"
    assert "compiled" in event["why"]


@pytest.fixture
def alone() -> Iterator[None]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_model_in_distributed_data_parallel_is_looked_into_and_its_loss_is_left_to_the_ranks(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(qwen())
    trained(tmp_path / "a", model, by_name(), hugging_loss, Diagnostics(every=3))
    last = rows(tmp_path / "a")[-1]
    assert set(last) >= set(Inside.columns)
    assert "loss_float64" not in last


def test_values_that_are_not_finite_are_counted_and_figures_made_of_them_are_no_numbers(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = qwen()
    with torch.no_grad():
        model.model.layers[1].self_attn.q_proj.weight[0, 0] = math.nan
    trained(tmp_path / "a", model, by_name(), hugging_loss, Diagnostics(every=3), steps=2)
    first = rows(tmp_path / "a")[0]
    assert all(math.isnan(first[name]) for name in (*HEADS, "spectral_norm"))
    with torch.no_grad():  # the kernel of a processor returns 0 of queries that are NaN, but not of values
        model.model.layers[1].self_attn.v_proj.weight[0, 0] = math.nan
    trained(tmp_path / "b", model, by_name(), hugging_loss, Diagnostics(every=3), steps=2)
    assert rows(tmp_path / "b")[0]["activations_not_finite"] > 0
    assert math.isnan(rows(tmp_path / "b")[0]["slice_ppl"])


def test_attention_that_is_nowhere_a_number_is_none_in_every_column(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = qwen()
    with torch.no_grad():
        model.model.embed_tokens.weight.fill_(math.nan)
    trained(tmp_path / "a", model, by_name(), hugging_loss, Diagnostics(every=3), steps=2)
    assert {name for name, value in rows(tmp_path / "a")[0].items() if math.isnan(value)} >= HEADS


def test_units_that_die_while_training_goes_on_are_dead_three_looks_later(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, given = qwen(), by_name()

    def loss_of(one: Any, batch: Any) -> Any:
        if batch is given[4]:
            one.model.layers[1].mlp.up_proj.weight.data.zero_()
        return hugging_loss(one, batch)

    model.model.layers[1].mlp.up_proj.requires_grad_(False)
    trained(tmp_path / "a", model, given, loss_of, Diagnostics(every=1), steps=8)
    assert column(rows(tmp_path / "a"), "dead_neurons_share") == [None, None, 0, 0, 0, 0, *[pytest.approx(1 / 3)] * 2]


def test_a_batch_that_is_given_is_the_one_that_is_looked_at(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, fed = qwen(), by_name()
    with torch.no_grad():
        expected = math.exp(model.eval()(**fed[5]).loss)
    trained(tmp_path / "a", model.train(), fed, hugging_loss, Diagnostics(batch=fed[5], every=100))
    assert rows(tmp_path / "a")[0]["slice_ppl"] == pytest.approx(expected, rel=1e-5)


class Wrong(torch.autograd.Function):  # type: ignore[misc,name-defined]
    """What squares, and forgets the factor of its derivative."""

    @staticmethod
    def forward(context: Any, given: Any) -> Any:
        context.save_for_backward(given)
        return given * given

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * context.saved_tensors[0]


class Squaring(nn.Module):  # type: ignore[misc,name-defined]
    """A layer that squares by an operation of its own, or by the usual one."""

    def __init__(self, square: Callable[[Any], Any]) -> None:
        super().__init__()
        self.square = square

    def forward(self, given: Any) -> Any:
        return self.square(given)


def opt() -> Any:
    named = {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64}
    return transformers.OPTForCausalLM(transformers.OPTConfig(**SIZES, **named))


@pytest.mark.parametrize(
    ("name", "make"),
    [
        pytest.param("Qwen2", qwen, marks=pytest.mark.exhaustive),
        ("GPT-2", gpt2),
        pytest.param("BERT", bert, marks=pytest.mark.exhaustive),
        pytest.param("OPT", opt, marks=pytest.mark.exhaustive),
        ("nn.MultiheadAttention", TinyGPT),
        ("nn.MultiheadAttention", lambda: TinyGPT(drop_always=True)),
    ],
)
def test_gradients_of_sound_models_are_those_of_central_differences(
    name: str, make: Callable[[], Any], tmp_path: Path
) -> None:
    feed, loss_of = MODELS[name if name in MODELS else "GPT-2"][1:3]
    found = []
    for at, asked in enumerate((Diagnostics(every=3), Diagnostics(every=3, gradients=True))):
        torch.manual_seed(0)
        found.append(trained(tmp_path / str(at), make(), feed(), loss_of, asked, steps=3))
    assert found[0] == found[1]
    assert "gradient_error" not in rows(tmp_path / "0")[0]
    (error,) = [one["gradient_error"] for one in rows(tmp_path / "1") if "gradient_error" in one]
    assert error < 1e-4
    assert "1.4-BACKWARD" in rows_that(judged(tmp_path / "1"), Outcome.PASS)


@pytest.mark.parametrize("square", [Wrong.apply, torch.square, torch.detach])
def test_a_backward_that_is_not_the_derivative_of_its_forward_fails(square: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, feed, loss_of = OneLayer(), MODELS["one layer"][1], MODELS["one layer"][2]
    model.layers[0][1] = Squaring(square)
    trained(tmp_path / "a", model, feed(), loss_of, Diagnostics(gradients=True), steps=2)
    came = Outcome.PASS if square is torch.square else Outcome.FAIL
    assert "1.4-BACKWARD" in rows_that(judged(tmp_path / "a"), came)
    of = [one for one in rows(tmp_path / "a", "diagnostics.jsonl") if one["of"] == "gradient"]
    right = {one["name"] for one in of if one["error"] < 1e-3}
    assert {"head.weight", "layers.0.2.weight"} <= right  # what comes after it
    assert ("layers.0.0.weight" in right) is (came is Outcome.PASS)


def only_float32(given: Any) -> Any:
    if given.dtype is torch.float64:
        raise TypeError("this kernel knows float32 alone")
    return given.relu()


def test_an_operation_that_knows_no_float64_costs_the_check_of_gradients_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, feed, loss_of = OneLayer(), MODELS["one layer"][1], MODELS["one layer"][2]
    model.layers[0][1] = Squaring(only_float32)
    with pytest.warns(RuntimeWarning, match=r"GradientCheck\.forward_begins: TypeError"):
        trained(tmp_path / "a", model, feed(), loss_of, Diagnostics(gradients=True), steps=2)
    assert torch.get_default_dtype() is torch.float32
    assert "activation_absmax" in rows(tmp_path / "a")[0]
    assert "1.4-BACKWARD" in rows_that(judged(tmp_path / "a"), Outcome.BLOCKED)


def test_the_tax_of_a_class_is_its_loss_above_that_of_the_regular_one(tmp_path: Path) -> None:
    torch.manual_seed(0)
    regular, drawn = torch.arange(13).repeat(2, 1), torch.Generator().manual_seed(0)
    fed = []
    for _ in range(60):
        ids = torch.cat([regular, torch.randint(0, VOCAB, (2, 13), generator=drawn)])
        fed.append({"input_ids": ids, "labels": ids})
    asked = Diagnostics(every=20, classes=lambda batch: (batch["input_ids"][:, 1] != 1).long())
    trained(tmp_path / "a", qwen(), fed, hugging_loss, asked, steps=60)
    taxes = [one for one in column(rows(tmp_path / "a"), "class_tax") if one is not None]
    assert abs(taxes[0]) < 0.3
    assert taxes[-1] > 2
    of_class = [one for one in rows(tmp_path / "a", "diagnostics.jsonl") if one["of"] == "class"]
    assert [one["name"] for one in of_class[:2]] == ["0", "1"]
    assert {one["count"] for one in of_class} == {24}


def test_a_callable_that_fails_costs_the_columns_of_classes_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with pytest.warns(RuntimeWarning, match=r"ClassLosses\.forward_ended: KeyError"):
        trained(tmp_path / "a", qwen(), by_name(), hugging_loss, Diagnostics(every=3, classes=lambda batch: batch[0]))
    (event,) = events(tmp_path / "a", "recorder-failure")
    assert tuple(event["costs"]) == ClassLosses.columns
    assert set(rows(tmp_path / "a")[-1]) >= set(Inside.columns)


def test_a_script_may_log_a_column_of_these_names_itself(tmp_path: Path) -> None:
    model = conv_net()
    with Recorder(tmp_path / "a", model, diagnostics=Diagnostics()) as recorder:
        recorder.step(1.0, slice_ppl=7.0, class_tax=0.5)
    assert column(rows(tmp_path / "a"), "slice_ppl") == [7.0]


def test_every_row_says_what_looking_cost_it(tmp_path: Path) -> None:
    torch.manual_seed(0)
    trained(tmp_path / "a", qwen(), by_name(), hugging_loss, Diagnostics(every=4))
    assert all(one["cost_ms"] > 0 for one in rows(tmp_path / "a"))


def test_activations_of_which_none_is_a_number_are_no_calm_ones(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = gpt2()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with Recorder(tmp_path / "a", model, optimizer, diagnostics=Diagnostics(every=2)) as rec:
        for step, batch in enumerate(by_name()):
            if step == 4:
                with torch.no_grad():
                    model.transformer.wte.weight.fill_(math.nan)
            loss = model(**batch).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            rec.step(loss=loss)
    ratios = [one for one in column(rows(tmp_path / "a"), "activation_std_ratio") if one is not None]
    assert [math.isnan(one) for one in ratios[:4]] == [False, False, True, True]
    assert {"4.5", "4.5-FINITE"} <= rows_that(judged(tmp_path / "a"), Outcome.FAIL)


def test_a_loss_whose_sum_is_divided_by_what_the_trainer_counts_is_the_one_in_float64(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = qwen()
    with Recorder(tmp_path / "a", model, diagnostics=Diagnostics(every=1)) as rec:
        for batch in by_name()[:3]:
            loss = model(**batch, num_items_in_batch=torch.tensor(batch["labels"].numel())).loss
            loss.backward()
            model.zero_grad()
            rec.step(loss=loss)
    for row in rows(tmp_path / "a"):
        assert row["loss_float64"] == pytest.approx(row["loss"], rel=1e-5)


@pytest.mark.parametrize(("moved", "known"), [(0.0, True), (0.01, False), (0.3, True)])
def test_embeddings_that_hardly_moved_have_no_alignment_yet(tmp_path: Path, moved: float, known: bool) -> None:
    torch.manual_seed(0)
    model = qwen()
    optimizer, table = torch.optim.SGD(model.parameters(), lr=0.0), model.get_input_embeddings().weight
    asked = Diagnostics(every=1)
    with Recorder(tmp_path / "a", model, optimizer, diagnostics=asked, requested_steps=2) as recorder:
        for _ in range(2):
            loss: Any = hugging_loss(model, by_name()[0])
            loss.backward()
            optimizer.step()
            recorder.step(loss)
            with torch.no_grad():
                table += moved * table.std() * torch.randn(table.shape)
    found = [row["embedding_cka"] for row in rows(tmp_path / "a") if "embedding_cka" in row]
    assert len(found) == known
    assert all((value > 0.999) == (moved == 0) for value in found)
