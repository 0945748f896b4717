"""The instruments over a model, each against what it is by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn

from weighbridge.diagnosis import activations, attention_maps, fixed_batch, looking, matrices  # noqa: E402

SIZES = {"vocab_size": 50, "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4}
IDS = torch.arange(48).reshape(2, 24) % 50


class Passing(nn.Module):  # type: ignore[misc,name-defined]
    """What returns what it is given, and has a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, given: Any) -> Any:
        return given


class Labelled(Passing):
    """What may be given labels besides."""

    def forward(self, given: Any, targets: Any = None) -> Any:
        return given if targets is None else (given, targets)


def qwen(**more: Any) -> Any:
    torch.manual_seed(0)
    config = transformers.Qwen2Config(**SIZES, intermediate_size=64, num_key_value_heads=2, **more)
    return transformers.Qwen2ForCausalLM(config).eval()


def bert() -> Any:
    return transformers.BertForMaskedLM(transformers.BertConfig(**SIZES, intermediate_size=64)).eval()


def by_name(model: Any) -> dict[str, activations.Activation]:
    return {one.name: one for one in looking.look(model, {"input_ids": IDS}).activations}


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_the_weights_of_attention_are_those_that_transformers_itself_returns(implementation: str) -> None:
    model = qwen(attn_implementation=implementation)
    maps = looking.look(model, {"input_ids": IDS}).attention
    model.set_attn_implementation("eager")
    with torch.no_grad():
        known = model(input_ids=IDS, output_attentions=True).attentions
    assert [one.name for one in maps] == [f"model.layers.{layer}.self_attn" for layer in range(3)]
    for one, weights in zip(maps, known, strict=True):
        rows = weights.transpose(1, 2).flatten(0, 1)
        assert torch.allclose(one.weights, rows, atol=1e-6)
        entropy = -(rows * rows.clamp_min(1e-38).log()).sum(-1)
        keys = torch.arange(1, 25).repeat(2)
        assert one.keys.tolist() == keys.tolist()
        share = (entropy[keys > 1] / keys[keys > 1].log()[:, None]).mean(0)
        assert one.entropy == pytest.approx(share.tolist(), abs=1e-5)


def test_a_model_that_sees_all_tokens_has_as_many_keys_for_each_row() -> None:
    (one, *_) = looking.look(bert(), {"input_ids": IDS}).attention
    assert set(one.keys.tolist()) == {24}
    assert one.grid.shape == (4, 24, 24)


def test_padding_is_no_key_and_a_saturated_softmax_still_has_all_its_keys() -> None:
    mask = torch.ones_like(IDS)
    mask[:, 16:] = 0
    (one, *_) = looking.look(bert(), {"input_ids": IDS, "attention_mask": mask}).attention
    assert set(one.keys.tolist()) == {16}
    model = qwen()
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight *= 1e4
    (one, *_) = looking.look(model, {"input_ids": IDS}).attention
    assert one.keys.tolist() == torch.arange(1, 25).repeat(2).tolist()
    assert max(one.entropy) < 0.5
    assert one.largest_logit > 50


def test_heads_that_are_copies_of_each_other_are_redundant_and_others_are_not() -> None:
    model = bert()
    assert attention_maps.redundant(looking.look(model, {"input_ids": IDS}).attention) == 0
    with torch.no_grad():
        for layer in model.bert.encoder.layer:
            for part in (layer.attention.self.query, layer.attention.self.key):
                part.weight.copy_(part.weight[:8].repeat(4, 1))
    assert attention_maps.redundant(looking.look(model, {"input_ids": IDS}).attention) == 1


def test_what_looks_at_attention_leaves_the_interface_as_it_was() -> None:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    before = dict(vars(ALL_ATTENTION_FUNCTIONS))
    model = qwen()
    model.lm_head.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        looking.look(model, {"input_ids": IDS})
    assert dict(vars(ALL_ATTENTION_FUNCTIONS)) == before
    assert not any(one._forward_hooks for one in model.model.layers)


class Attending(nn.Module):  # type: ignore[misc,name-defined]
    """One layer of attention by PyTorch's own kernel, as small trainers write it."""

    def __init__(self, **how: Any) -> None:
        super().__init__()
        self.qkv, self.how = nn.Linear(8, 24), how

    def parts(self, given: Any) -> Any:
        return self.qkv(given).view(*given.shape[:2], 3, 2, 4).permute(2, 0, 3, 1, 4)

    def forward(self, given: Any) -> Any:
        query, key, value = self.parts(given)
        return nn.functional.scaled_dot_product_attention(query, key, value, **self.how).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("how", [{"is_causal": True}, {"is_causal": True, "scale": 3.0}, {}])
def test_attention_by_the_kernel_of_pytorch_is_seen_at_the_module_that_calls_it(how: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), Attending(**how)).eval()
    given = torch.randn(2, 6, 8)
    (one,) = looking.look(model, {0: given}).attention
    assert one.name == "1"
    with torch.no_grad():
        query, key, _ = model[1].parts(model[0](given))
    products = query @ key.mT * how.get("scale", 0.5)
    allowed = torch.ones(6, 6).tril().bool() if how else torch.ones(6, 6).bool()
    known = products.where(allowed, -math.inf).softmax(-1).transpose(1, 2).flatten(0, 1)
    assert torch.allclose(one.weights, known, atol=1e-6)
    assert one.largest_logit == pytest.approx(float(products[0].abs().amax()), rel=1e-5)


@pytest.mark.parametrize("ignored", [-100, -1])
def test_labels_below_zero_are_ignored_whatever_number_a_script_takes_for_them(ignored: int) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(2, 3, 5), torch.tensor([[0, 4, ignored], [ignored, 2, 1]])
    known = nn.functional.cross_entropy(logits.double().flatten(0, 1), labels.flatten(), ignore_index=ignored)
    found = looking.loss_of(Labelled(), {0: torch.ones(2, 3, 4), 1: labels}, logits)
    assert found == pytest.approx(float(known), abs=1e-12)


def test_the_second_thing_that_a_decoder_must_be_given_is_none_of_its_labels() -> None:
    logits, tokens = torch.randn(2, 3, 5), torch.tensor([[0, 4, 1], [3, 2, 1]])
    decoder = nn.Transformer(4, 2, 1, 1, 4, batch_first=True)
    assert looking.loss_of(decoder, {0: torch.ones(2, 3, 4), 1: tokens}, logits) is None
    assert looking.loss_of(decoder, {0: torch.ones(2, 3, 4), "labels": tokens}, logits) is not None


def test_attention_of_multi_head_attention_is_what_it_gives_by_itself() -> None:
    torch.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    given, mask = torch.randn(2, 6, 8), nn.Transformer.generate_square_subsequent_mask(6)
    (one,) = looking.look(model, {0: given, "src_mask": mask}).attention
    with torch.no_grad():
        known = model.self_attn(given, given, given, attn_mask=mask, average_attn_weights=False)[1]
    assert one.name == "self_attn"
    assert one.keys.tolist() == [1, 2, 3, 4, 5, 6] * 2
    assert torch.allclose(one.weights, known.transpose(1, 2).flatten(0, 1), atol=1e-6)


def test_without_the_interface_it_is_said_why_there_is_no_attention() -> None:
    seen = looking.look(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)), {0: torch.ones(2, 4)})
    assert not seen.attention
    assert [one.name for one in seen.activations] == ["0", "2", "2"]


@pytest.mark.parametrize("make", [qwen, bert])
def test_blocks_hidden_units_and_the_last_norm_are_found_by_structure(make: Any) -> None:
    found = by_name(make())
    kinds = [one.place.value for one in found.values()]
    assert (kinds.count("block"), kinds.count("hidden"), kinds.count("norm")) == (3, 3, 1)
    assert all(len(one.peaks) == 64 for one in found.values() if one.place is activations.Place.HIDDEN)


def test_moments_of_activations_are_those_of_the_finite_values() -> None:
    model = nn.Sequential(Passing(), nn.Linear(4, 4))
    given = torch.tensor([[1.0, 2.0, 0.0, math.nan], [3.0, -4.0, 0.0, math.inf]])
    with activations.watching(model) as found:
        model(given)
    known = torch.tensor([1.0, 2, 0, 3, -4, 0])
    one = found[0]
    assert (one.not_finite, one.absmax) == (2, 4)
    assert (one.mean, one.zeros) == pytest.approx((known.mean().item(), 2 / 6))
    assert one.std == pytest.approx(known.std(unbiased=False).item())


def test_units_that_never_fire_are_dead_and_a_layer_of_zeros_is_dead_as_a_whole() -> None:
    model = qwen()
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[:16] = 0
        model.model.layers[1].mlp.up_proj.weight.zero_()
    found = by_name(model)
    assert [int(found[f"model.layers.{at}.mlp.down_proj"].dead.sum()) for at in range(3)] == [16, 64, 0]


def test_a_block_is_outside_the_band_of_its_stack_wherever_it_is_and_one_never_seen_is_none() -> None:
    assert activations.outliers({"0": 50.0, "1": 1.0, "2": 1.1})["0"] == pytest.approx(50 / 1.1)
    assert activations.outliers({"0": 0.0, "1": 1.0, "2": 1.0})["0"] == math.inf
    assert activations.outliers({"0": math.nan, "1": 1.0, "2": 1.0}).keys() == {"1", "2"}
    assert activations.outliers({}) == {}


def test_spectral_norms_are_those_of_a_decomposition_or_say_that_they_are_not_known() -> None:
    torch.manual_seed(0)
    named = [(f"w{size}", torch.randn(size, 64)) for size in (64, 257, 8)]
    power = matrices.PowerIteration()
    for _ in range(2):
        found = power.measure(named)
    for (_, matrix), one in zip(named, found, strict=True):
        exact = torch.linalg.matrix_norm(matrix, 2).item()
        assert one.value <= exact * (1 + 1e-5)
        assert not one.known or one.value > exact * 0.97
    top = max(found, key=lambda one: one.value)
    assert (top.name, top.known, top.iterations) == ("w257", True, 3)
    assert {one.iterations for one in found} == {3}
    assert power.measure([("zero", torch.zeros(4, 4))])[0] == matrices.SpectralNorm("zero", 0.0, 0.0, 10)
    assert not power.measure([("nan", torch.full((4, 4), math.nan))])[0].known
    assert not matrices.SpectralNorm("w", 1.0, 0.5, 60).known


def test_alignment_is_one_of_what_was_turned_or_scaled_and_less_of_what_moved() -> None:
    torch.manual_seed(0)
    rows, turn = torch.randn(64, 16), torch.linalg.qr(torch.randn(16, 16))[0]
    assert matrices.alignment(rows, 3 * rows @ turn + 1) == pytest.approx(1)
    assert matrices.alignment(rows, torch.randn(64, 16)) < 0.5
    common = matrices.commonest(torch.tensor([[3, 3, 1, *range(10, 18)]]), 3)
    assert common is not None
    assert common.tolist() == [3, 1, 10]
    assert matrices.commonest(torch.tensor([[1, 2]])) is None


def test_moments_merge_to_those_of_all_and_hold_where_float32_fails() -> None:
    torch.manual_seed(0)
    values = torch.randn(10_000, dtype=torch.float64) + 1e8
    parts = [looking.moments(one) for one in values.split(999)]
    merged = looking.Moments()
    for one in parts:
        merged = merged.merged(one)
    whole = looking.moments(values)
    assert merged.count == 10_000
    assert merged.mean == pytest.approx(whole.mean, rel=1e-14)
    assert merged.std == pytest.approx(values.std().item(), rel=1e-9)
    assert looking.Moments().merged(looking.Moments()).count == 0


def test_labels_that_are_the_tokens_are_shifted_and_others_are_not() -> None:
    for model, call in (
        (qwen(), {"input_ids": IDS, "labels": IDS}),
        (qwen(), {"input_ids": IDS, "labels": IDS.clone().index_fill_(1, torch.arange(9), -100)}),
        (bert(), {"input_ids": IDS.clone().fill_(7), "labels": IDS}),
    ):
        with torch.no_grad():
            known = model(**call).loss.item()
        assert looking.look(model, call).loss == pytest.approx(known, rel=1e-5)
    assert looking.look(qwen(), {"input_ids": IDS}).loss is None


def test_labels_that_are_tokens_in_part_are_shifted_where_the_model_is_known_to_look_at_nothing_ahead() -> None:
    labels = torch.stack([IDS[0], (IDS[1] + 7) % 50])
    for model, causal in ((qwen(), True), (bert(), False)):
        call = {"input_ids": IDS, "labels": labels}
        with torch.no_grad():
            known = model(**call).loss.item()
        assert looking.look(model, call, causal).loss == pytest.approx(known, rel=1e-5)
        assert looking.look(model, call).loss is None
    model = bert()
    with torch.no_grad():
        known = model(input_ids=IDS, labels=IDS).loss.item()
    assert looking.look(model, {"input_ids": IDS, "labels": IDS}, causal=False).loss == pytest.approx(known, rel=1e-5)


def test_losses_of_classes_are_over_their_own_places() -> None:
    logits, labels = torch.randn(6, 5), torch.tensor([0, 1, -100, 3, 4, 0])
    found = looking.losses(logits, labels)
    classes = looking.spread_out(torch.tensor([0, 1]), labels)
    assert classes is not None
    assert classes.tolist() == [0, 0, 0, 1, 1, 1]
    of_class = looking.by_class(found, labels, classes)
    assert {kind: one.count for kind, one in of_class.items()} == {0: 2, 1: 3}
    assert of_class[1].mean == pytest.approx(nn.functional.cross_entropy(logits[3:], labels[3:]).item(), rel=1e-6)
    assert looking.spread_out(torch.zeros(4), labels) is None
    of_places = looking.spread_out(torch.arange(8).reshape(2, 4), labels)  # of labels that were shifted
    assert of_places is not None
    assert of_places.tolist() == [1, 2, 3, 5, 6, 7]


def test_a_batch_is_cut_by_rows_and_where_all_are_tokens_by_positions() -> None:
    call = fixed_batch.cut({"input_ids": IDS, "attention_mask": torch.ones_like(IDS)}, 1, 8)
    assert call is not None
    assert {tuple(one.shape) for one in call.values()} == {(1, 8)}
    images = fixed_batch.cut({0: torch.ones(4, 3, 8, 8)}, 2, 4)
    assert images is not None
    assert images[0].shape == (2, 3, 8, 8)
    assert fixed_batch.cut({0: IDS, "past": object()}, 1, 8) is None
