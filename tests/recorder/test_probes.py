"""What a few evaluations and the gradient of the logits tell of a run, and that they leave nothing behind."""

from __future__ import annotations

import copy
import functools
import json
import random
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
torch_optimizer = pytest.importorskip("torch.optim.optimizer")

from tests.recorder.models import (  # noqa: E402
    SEQ,
    VOCAB,
    Placed,
    TinyGPT,
    batches,
    column,
    conv_net,
    hugging_loss,
    image_loss,
    language_loss,
    tokens,
    train,
)
from tests.recorder.scenarios import learnt, loop  # noqa: E402
from tests.recorder.test_bit_identity import WAYS, probe  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402
from weighbridge.recorder.passes.probes import Evaluations  # noqa: E402

COLUMNS = ("evaluation_change", "future_change", "target_is_next_share")


def first(path: Path, model: Any, loader: Any, loss_of: Any = language_loss, **options: Any) -> list[Any]:
    """Train, and return what the probes said of step 0."""
    torch.manual_seed(0)
    rows = train(path, model, loader, loss_of, **options)
    return [rows[0].get(name) for name in COLUMNS]


def hugging(kind: str, **fields: Any) -> Any:
    transformers = pytest.importorskip("transformers")
    shape = {"vocab_size": VOCAB, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(0)
    if kind == "llama":
        config = transformers.LlamaConfig(**shape, intermediate_size=16, **fields)
        return transformers.LlamaForCausalLM(config)
    return transformers.BertForMaskedLM(transformers.BertConfig(**shape, intermediate_size=16, **fields))


# --- Healthy ----------------------------------------------------------------------------------------------------------


def test_a_healthy_causal_model_repeats_looks_at_nothing_ahead_and_learns_the_next_token(tmp_path: Path) -> None:
    change, future, share = first(tmp_path / "a", TinyGPT(), batches(4))
    assert (change, share) == (0, 1)
    assert 0 <= future <= 1e-5


class OneSize(TinyGPT):
    """A model whose batches have one size, as where a token is learnt for each row."""

    def forward(self, *args: Any) -> Any:
        torch.cat([args[0], torch.zeros(4, 1, dtype=torch.long)], dim=1)
        return super().forward(*args)


def test_a_model_that_takes_batches_of_one_size_is_evaluated_with_a_whole_one(tmp_path: Path) -> None:
    rows = train(tmp_path / "a", OneSize(), batches(4))
    assert [row.get("evaluation_change") for row in rows[:2]] == [None, 0]
    assert "recorder-failure" not in (tmp_path / "a" / "events.jsonl").read_text()


def test_targets_are_seen_where_the_mask_lets_the_next_token_in_and_not_where_they_are_other_tokens(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    ids = tokens(4)
    masked = {"input_ids": ids, "labels": torch.where(torch.arange(SEQ + 1) % 3 == 0, ids, -100)}
    found = {
        "causal": train(tmp_path / "a", TinyGPT(), batches(4), language_loss),
        "ahead": train(tmp_path / "b", TinyGPT(causal=False), batches(4), language_loss),
        "masked": train(tmp_path / "c", hugging("bert"), [masked], hugging_loss),
    }
    seen = {name: rows[0].get("target_seen_share") for name, rows in found.items()}
    assert (seen["causal"], seen["ahead"]) == (0, 1)
    assert 0 <= (seen["masked"] or 0) < 0.5


def test_a_hugging_face_model_that_shifts_labels_inside_is_read_as_it_is(tmp_path: Path) -> None:
    ids = tokens(4, length=100)
    labels = torch.where(torch.arange(100) < 70, -100, ids)  # an instruction that is not learnt
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}
    change, future, share = first(tmp_path / "a", hugging("llama"), [batch], hugging_loss)
    assert (change, share) == (0, 1)
    assert 0 <= future <= 1e-5


class Mixing(TinyGPT):
    """A model that takes a mean over the batch for one over time."""

    def forward(self, ids: Any) -> Any:
        logits = super().forward(ids)
        return logits + logits.mean(0, keepdim=True)


def test_a_row_changes_no_other_unless_the_model_mixes_them(tmp_path: Path) -> None:
    healthy = train(tmp_path / "a", TinyGPT(), batches(2))
    assert 0 <= healthy[0]["neighbour_change"] <= 1e-5
    assert train(tmp_path / "b", Mixing(), batches(2))[0]["neighbour_change"] > 0.01


class Forgetting(nn.Module):  # type: ignore[misc,name-defined]
    """A recurrent model; without `carried` the state of each place is made of the first one."""

    def __init__(self, *, carried: bool) -> None:
        super().__init__()
        self.embedding, self.cell, self.head = nn.Embedding(VOCAB, 8), nn.RNNCell(8, 8), nn.Linear(8, VOCAB)
        self.carried = carried

    def forward(self, ids: Any) -> Any:
        state, states = torch.zeros(len(ids), 8), []
        for token in self.embedding(ids).unbind(1):
            found = self.cell(token, state)
            state = found if self.carried else state
            states.append(found)
        return self.head(torch.stack(states, 1))


@pytest.mark.parametrize("carried", [True, False])
def test_earlier_tokens_change_later_logits_unless_a_state_is_not_carried_on(tmp_path: Path, carried: bool) -> None:
    rows = train(tmp_path / "a", Forgetting(carried=carried), batches(3))
    assert [change > 1e-3 for change in column(rows, "past_change")] == [carried] * 3
    assert column(rows, "future_change") == [0] * 3


def test_logits_that_compare_the_rows_of_a_batch_and_a_batch_of_one_row_are_not_asked(tmp_path: Path) -> None:
    class Comparing(nn.Linear):  # type: ignore[misc,name-defined]
        def forward(self, pictures: Any) -> Any:
            said = super().forward(pictures)
            return said @ said.T

    loader = [(torch.randn(4, 6), torch.arange(4)) for _ in range(2)]
    assert "neighbour_change" not in train(tmp_path / "a", Comparing(6, 5), loader, image_loss)[0]
    assert "neighbour_change" not in train(tmp_path / "b", TinyGPT(), list(tokens(2)[:, None]))[0]


def test_a_masked_language_model_looks_ahead_and_nothing_is_said_of_its_targets(tmp_path: Path) -> None:
    ids = tokens(4)
    batch = {"input_ids": ids, "labels": torch.where(torch.arange(SEQ + 1) % 3 == 0, ids, -100)}
    change, future, share = first(tmp_path / "a", hugging("bert"), [batch], hugging_loss)
    assert (change, share) == (0, None)
    assert future > 1e-5


def test_a_conv_net_repeats_and_keeps_its_running_statistics(tmp_path: Path) -> None:
    loader = [(torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))) for _ in range(3)]
    assert first(tmp_path / "a", conv_net(), loader, image_loss) == [0, None, None]


def test_under_accumulation_the_targets_of_every_micro_batch_count(tmp_path: Path) -> None:
    def halves(model: Any, batch: Any) -> Any:
        (language_loss(model, batch[:2], shift=2) / 2).backward()  # type: ignore[no-untyped-call]
        return language_loss(model, batch[2:]) / 2

    assert 0.4 < first(tmp_path / "a", TinyGPT(), batches(1), halves)[2] < 0.6


def test_logits_that_accelerate_hands_out_as_a_copy_are_seen_where_the_loss_took_them(tmp_path: Path) -> None:
    operations = pytest.importorskip("accelerate.utils.operations")
    model = hugging("llama")
    model.forward = types.MethodType(operations.convert_outputs_to_fp32(type(model).forward), model)

    def cast(model: Any, batch: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return 100 * model(input_ids=batch, labels=batch).loss

    def clip(*_: Any) -> None:
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    clipping = torch_optimizer.register_optimizer_step_pre_hook(clip)
    rows = train(tmp_path / "a", model, batches(2), cast)
    clipping.remove()
    assert column(rows, "target_is_next_share") == [1, 1]
    assert all(row["grad_norm"] > 2 * row["grad_norm_used"] for row in rows)


# --- Faults -----------------------------------------------------------------------------------------------------------


def test_attention_that_looks_ahead_is_measured(tmp_path: Path) -> None:
    change, future, share = first(tmp_path / "a", TinyGPT(causal=False), batches(4))
    assert (change, share) == (0, None)
    assert future > 1e-3


def test_dropout_that_stays_on_in_evaluation_is_measured(tmp_path: Path) -> None:
    assert first(tmp_path / "a", TinyGPT(drop_always=True), batches(4))[0] > 1e-3


@pytest.mark.parametrize("shift", [0, 2])
def test_labels_that_are_not_shifted_or_twice_are_measured(shift: int, tmp_path: Path) -> None:
    assert (
        first(tmp_path / "a", TinyGPT(), batches(4), lambda model, batch: language_loss(model, batch, shift))[2] < 0.2
    )


def test_labels_shifted_before_a_model_that_shifts_them_are_measured(tmp_path: Path) -> None:
    ids = tokens(4)
    batch = {"input_ids": ids, "labels": torch.roll(ids, -1, 1)}
    assert first(tmp_path / "a", hugging("llama"), [batch], hugging_loss)[2] < 0.2


# --- What could not be seen -------------------------------------------------------------------------------------------


def test_only_padding_after_a_token_says_nothing_of_what_lies_ahead(tmp_path: Path) -> None:
    ids, mask = tokens(4), torch.ones(4, SEQ + 1, dtype=torch.long)
    mask[:, 3:] = 0
    batch = {"input_ids": ids, "attention_mask": mask, "labels": torch.where(mask > 0, ids, -100)}
    assert first(tmp_path / "a", hugging("llama"), [batch], hugging_loss) == [0, None, None]

    def by_place(model: Any, batch: Any) -> Any:
        return model(batch["input_ids"], batch["attention_mask"], labels=batch["labels"]).loss

    assert first(tmp_path / "b", hugging("llama"), [batch], by_place) == [0, None, None]


def test_smoothed_labels_are_read_where_their_gradient_tells_them(tmp_path: Path) -> None:
    def smoothed(amount: float) -> Any:
        def loss(model: Any, batch: Any) -> Any:
            logits = model(batch[:, :-1]).flatten(0, 1)
            return nn.functional.cross_entropy(logits, batch[:, 1:].flatten(), label_smoothing=amount)

        return loss

    assert first(tmp_path / "a", TinyGPT(), batches(4), smoothed(0.01))[2] == 1
    assert first(tmp_path / "b", TinyGPT(), batches(4), smoothed(0.99))[2] is None


def test_classes_of_tokens_are_no_targets_among_tokens(tmp_path: Path) -> None:
    tagging = nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, 5))
    found = first(tmp_path / "b", tagging, batches(4), lambda model, batch: model(batch).square().mean())
    assert found == [0, 0, None]


def test_of_two_passes_before_one_backward_nothing_is_said_of_targets(tmp_path: Path) -> None:
    def both(model: Any, batch: Any) -> Any:
        return language_loss(model, batch) + language_loss(model, batch)

    assert first(tmp_path / "a", TinyGPT(), batches(4), both)[2] is None


def test_a_batch_whose_rows_or_positions_cannot_be_distinguished_is_not_evaluated(tmp_path: Path) -> None:
    def placed(places: Any, length: int) -> Any:
        def loss(model: Any, batch: Any) -> Any:
            return model(batch, places).flatten(0, 1).logsumexp(1).mean()

        path = tmp_path / f"{tuple(places.shape)}-{length}"
        return first(path, Placed(), [tokens(4, length=length)], loss)

    assert placed(torch.zeros(7), 9) == [None] * 3
    assert placed(torch.zeros(4, 1), 100) == [None] * 3
    assert placed(torch.zeros(4, 1), 9)[:2] == placed(torch.full((4, 100), 2.0), 100)[:2] == [0, 0]


@pytest.mark.parametrize("hide", ["max_norm", "parallel", "subclass", "closure", "compiled"])
def test_a_model_that_cannot_be_called_aside_is_left_alone(hide: str, tmp_path: Path) -> None:
    model = TinyGPT()
    if hide == "max_norm":  # it writes to the weights that it looks up
        model.embedding.max_norm = 1.0
    elif hide == "parallel":
        model.head.__class__ = type("ColumnParallelLinear", (nn.Linear,), {})
    elif hide == "subclass":
        model.head.weight.__class__ = type("Quantised", (nn.Parameter,), {})
    elif hide == "closure":
        forward = model.forward
        vars(model)["forward"] = functools.partial(forward)
    else:
        model.head.compile(backend="eager")
    assert first(tmp_path / "a", model, batches(2)) == [None] * 3


def test_a_probe_that_raises_costs_its_own_columns_and_no_training(tmp_path: Path) -> None:
    class Locked(TinyGPT):
        def forward(self, ids: Any) -> Any:
            if not self.training:
                raise RuntimeError("never evaluated")
            return super().forward(ids)

    optimizer = torch.optim.SGD((model := Locked()).parameters(), lr=0.1)
    recorder = Recorder(tmp_path / "a", model, optimizer)

    def run() -> None:
        with recorder:
            for batch in batches(2):
                loss = language_loss(model, batch)
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                recorder.step(loss)

    with pytest.warns(RuntimeWarning, match="never evaluated"):
        run()
    events = [json.loads(line) for line in (tmp_path / "a" / "events.jsonl").read_text().splitlines()]
    (failure,) = [event for event in events if event["event"] == "recorder-failure"]
    assert failure["costs"] == list(Evaluations.columns)
    assert len((tmp_path / "a" / "steps.jsonl").read_text().splitlines()) == 2


# --- Nothing is left behind -------------------------------------------------------------------------------------------


def state(model: Any) -> list[Any]:
    return [one.clone() for one in (*model.state_dict().values(), torch.get_rng_state())]


@pytest.mark.parametrize("drop_always", [False, True])
def test_buffers_attributes_random_numbers_and_weights_are_the_same_with_and_without(
    drop_always: bool, tmp_path: Path
) -> None:
    def run(recorded: bool) -> tuple[list[Any], Any, float, float]:
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)
        model = TinyGPT(drop_always=drop_always)
        if recorded:
            rows = train(tmp_path / "a", model, batches(12), channels="all")
            probed = [row["step"] for row in rows if "evaluation_change" in row and "future_change" in row]
            assert probed == [0, 1, 2, 3, 10, 11]
            assert None not in column(rows, "target_is_next_share")[4:] or drop_always
        else:
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            for batch in batches(12):
                optimizer.zero_grad()
                language_loss(model, batch).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        assert model.kept.requires_grad
        return [*state(model), model.kept], (model.calls, model.seen), random.random(), float(np.random.rand())

    alone, watched = run(recorded=False), run(recorded=True)
    assert all(torch.equal(one, other) for one, other in zip(alone[0], watched[0], strict=True))
    assert alone[1:] == watched[1:]


def test_batch_norm_learns_the_same_statistics_with_and_without(tmp_path: Path) -> None:
    loader = [(torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))) for _ in range(4)]
    torch.manual_seed(0)
    watched = conv_net()
    alone = copy.deepcopy(watched)
    seed = torch.get_rng_state()
    train(tmp_path / "a", watched, loader, image_loss, channels="all")
    after = state(watched)
    torch.set_rng_state(seed)
    optimizer = torch.optim.AdamW(alone.parameters(), lr=1e-3)
    for batch in loader:
        optimizer.zero_grad()
        image_loss(alone, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert all(torch.equal(one, other) for one, other in zip(after, state(alone), strict=True))


@pytest.mark.parametrize("way", ["eager", "bfloat16", "scaler", "accumulation"])
def test_what_is_learnt_is_the_same_with_every_channel_in_every_step(way: str, tmp_path: Path) -> None:
    alone = learnt(lambda: loop(None, **WAYS[way]))
    assert learnt(lambda: loop(tmp_path / "a", channels="all", **WAYS[way])) == alone


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("default")  # torch warns of itself while it compiles
@pytest.mark.parametrize("way", [way for way in WAYS if "compiled" in way])
def test_what_is_compiled_is_the_same_with_every_channel_in_every_step(way: str, tmp_path: Path) -> None:
    alone = learnt(lambda: loop(None, **WAYS[way]))
    assert learnt(lambda: loop(tmp_path / "a", channels="all", **WAYS[way])) == alone
    assert probe(tmp_path / "a")["dispatch"] == "not-audited"


def test_a_loop_inside_autocast_casts_its_weights_with_gradients_after_a_probe(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Embedding(VOCAB, 8), nn.Linear(8, VOCAB))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with (
        torch.autocast("cpu", torch.bfloat16),
        Recorder(tmp_path / "a", model, optimizer, channels="all", on_fail="raise") as rec,
    ):
        for batch in batches(3):
            optimizer.zero_grad()
            loss = language_loss(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            assert all(parameter.grad is not None for parameter in model.parameters())
            optimizer.step()
            torch.clear_autocast_cache()
            rec.step(loss)


# --- Padding ----------------------------------------------------------------------------------------------------------

PAD = 0


def padded(side: str, *, masked: bool, mask: bool = True) -> dict[str, Any]:
    """Return a batch whose first row ends, or begins, with four padding tokens, and whose second with one."""
    ids = tokens(4).clamp(1)
    for row, count in enumerate((4, 1)):
        ids[row, :count] = PAD
    ids = ids if side == "left" else ids.flip(1)
    given = {"attention_mask": (ids != PAD).long() if masked else torch.ones_like(ids)} if mask else {}
    return {"input_ids": ids, "labels": torch.where(ids == PAD, -100, ids)} | given


def padding(path: Path, kind: str, batch: dict[str, Any], **fields: Any) -> Any:
    rows = train(path, hugging(kind, pad_token_id=PAD, **fields), [batch], hugging_loss)
    return rows[0].get("padding_change")


@pytest.mark.parametrize("kind", ["llama", "bert"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_that_the_mask_leaves_out_changes_nothing(kind: str, side: str, tmp_path: Path) -> None:
    assert padding(tmp_path, kind, padded(side, masked=True)) == 0


def test_padding_that_is_attended_to_changes_logits_unless_a_causal_model_has_passed_by(tmp_path: Path) -> None:
    assert padding(tmp_path / "a", "llama", padded("left", masked=False)) > 1e-4
    assert padding(tmp_path / "b", "llama", padded("right", masked=False)) <= 1e-5
    assert padding(tmp_path / "c", "bert", padded("right", masked=False)) > 1e-4


def test_where_nothing_pads_or_nobody_knows_what_does_nothing_is_said_of_padding(tmp_path: Path) -> None:
    assert padding(tmp_path / "a", "llama", padded("left", masked=False, mask=False)) is None
    whole = padded("left", masked=False) | {"input_ids": tokens(4).clamp(1)}
    assert padding(tmp_path / "b", "llama", whole) is None
    ids = tokens(4).clamp(1)
    ids[:, 0] = ids[:, -1] = PAD  # a text that this token begins and ends, as of a GPT-2
    ends = {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}
    assert padding(tmp_path / "c", "bert", ends) is None
    model = hugging("llama")
    model.config.pad_token_id = None
    rows = train(tmp_path / "d", model, [padded("left", masked=False)], hugging_loss)
    assert rows[0].get("padding_change") is None


class OfLambda(nn.Module):  # type: ignore[misc,name-defined]
    """What calls its parts by a lambda over them: a copy would go on with the first one's, which drops out."""

    def __init__(self) -> None:
        super().__init__()
        parts = self.parts = nn.ModuleDict({"embed": nn.Embedding(VOCAB, 16), "drop": nn.Dropout(0.5)})
        self.head = nn.Linear(16, VOCAB)
        self.inside: Any = lambda ids: parts["drop"](parts["embed"](ids))

    def forward(self, ids: Any) -> Any:
        return self.head(self.inside(ids))


def test_of_a_model_with_a_function_over_its_own_parts_there_is_no_copy_to_evaluate(tmp_path: Path) -> None:
    rows = train(tmp_path / "a", OfLambda(), batches(4), language_loss)
    assert not [name for row in rows for name in row if name in COLUMNS]


def half_padded(*, masked: bool, ignored: bool, rows: int = 4) -> dict[str, Any]:
    """Make a batch whose second half is padding, with or without a mask, learnt or not."""
    ids = tokens(rows, length=32).clamp(min=1)
    ids[:, 16:] = 0
    mask = (torch.arange(32) < 16).long().expand(rows, 32)
    batch = {"input_ids": ids, "labels": torch.where(mask == 1, ids, -100) if ignored else ids}
    return {**batch, "attention_mask": mask} if masked else batch


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize(("ignored", "share"), [(True, 0), (False, 16 / 31)])
def test_padding_that_the_loss_counts_is_a_share_of_the_targets(
    tmp_path: Path, masked: bool, ignored: bool, share: float
) -> None:
    batch = half_padded(masked=masked, ignored=ignored)
    rows = train(tmp_path / "a", hugging("llama"), [batch] * 3, hugging_loss)
    assert column(rows, "padding_targets_share") == pytest.approx([share] * 3)


def test_packed_rows_one_row_and_rows_that_end_in_one_token_hold_no_padding(tmp_path: Path) -> None:
    ended = tokens(4, length=32)
    ended[:, -1] = 0
    of_one = half_padded(masked=False, ignored=False, rows=1)
    for name, batch in {"packed": tokens(4, length=32), "ended": ended, "one": of_one["input_ids"]}.items():
        given = {"input_ids": batch, "labels": batch}
        rows = train(tmp_path / name, hugging("llama"), [given] * 3, hugging_loss)
        assert column(rows, "padding_targets_share") == [0] * 3, name


def test_padding_of_a_masked_model_and_of_labels_beside_the_tokens_is_seen_by_what_is_learnt(tmp_path: Path) -> None:
    batch = half_padded(masked=True, ignored=False)
    assert train(tmp_path / "a", hugging("bert"), [batch] * 3, hugging_loss)[0]["padding_targets_share"] > 0.4
    other = {**batch, "labels": tokens(4, seed=1, length=32).clamp(min=1)}  # labels of other tokens are none of it
    assert train(tmp_path / "b", hugging("bert"), [other] * 3, hugging_loss)[0]["padding_targets_share"] == 0
