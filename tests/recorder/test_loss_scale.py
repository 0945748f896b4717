"""What the gradient of the logits tells of the loss, with no label and nothing declared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.models import column  # noqa: E402
from tests.recorder.recorded import SEQ, VOCAB, Language, images, plain, recorded  # noqa: E402
from torch.nn import functional  # noqa: E402

IGNORED = -100


def some_ignored(logits: Any, labels: Any) -> Any:
    return plain(logits, labels.masked_fill(labels % 3 > 0, IGNORED))


def over_classes_first(logits: Any, labels: Any) -> Any:
    return functional.cross_entropy(logits.transpose(1, 2), labels)


HEALTHY: dict[str, dict[str, Any]] = {
    "language": {},
    "images": {"make": images},
    "clipped": {"before_update": lambda model, _: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)},
    "accumulation": {"passes": 2},
    "scaler": {"scaler": True, "autocast": torch.float16},
    "bfloat16": {"autocast": torch.bfloat16},
    "scaler and accumulation": {"scaler": True, "passes": 4},
    "ignored labels": {"loss_of": some_ignored},
    "classes first": {"loss_of": over_classes_first},
    "zeros for cleared gradients": {"optimizer_of": lambda model: torch.optim.SGD(model.parameters(), lr=0.1)},
}


@pytest.mark.parametrize("way", HEALTHY)
def test_the_scale_of_a_right_loss_is_1_and_its_entropy_is_the_loss(way: str, tmp_path: Path) -> None:
    rows = recorded(tmp_path, channels="all", **HEALTHY[way])
    narrow = "autocast" in HEALTHY[way]
    assert column(rows, "loss_gradient_scale") == pytest.approx([1.0] * 3, abs=2e-3 if narrow else 1e-5)
    assert column(rows, "own_loss") == pytest.approx(column(rows, "loss"), rel=1e-3 if narrow else 1e-5)


def saturated() -> Any:
    model = Language()
    with torch.no_grad():
        model.head.weight *= 1e4
    return model


def some_certain(logits: Any, labels: Any) -> Any:
    return plain(logits, torch.where(torch.arange(SEQ) % 4 == 0, logits.argmax(-1), labels))


@pytest.mark.parametrize("passes", [1, 2])
def test_targets_of_all_the_probability_are_not_taken_for_ignored_ones(passes: int, tmp_path: Path) -> None:
    for row in recorded(tmp_path, make=saturated, loss_of=some_certain, passes=passes):
        assert row.get("loss_gradient_scale", 1) == pytest.approx(1, abs=1e-3)
        assert row.get("own_loss", row["loss"]) == pytest.approx(row["loss"], rel=1e-3)
        assert "labels_active_share" not in row or row["labels_active_share"] == 1


def test_a_scale_that_no_certain_target_explains_is_told_beside_them(tmp_path: Path) -> None:
    rows = recorded(tmp_path / "a", make=saturated, loss_of=lambda logits, labels: 8 * some_certain(logits, labels))
    assert min(column(rows, "loss_gradient_scale")) > 4
    rows = recorded(tmp_path / "b", make=saturated, loss_of=lambda logits, labels: some_certain(logits, labels) / 8)
    assert max(column(rows, "loss_gradient_scale")) < 0.2


def test_ignored_labels_are_told_from_certain_targets_by_the_scale(tmp_path: Path) -> None:
    def improbable(logits: Any, labels: Any) -> Any:
        return some_ignored(logits, torch.where(labels % 3 > 0, labels, logits.argmin(-1) // 3 * 3))

    rows = recorded(tmp_path, make=saturated, loss_of=improbable)
    assert column(rows, "loss_gradient_scale") == pytest.approx([1.0] * 3, abs=1e-5)
    assert column(rows, "own_loss") == pytest.approx(column(rows, "loss"), rel=1e-5)


def test_the_gradient_that_float32_leaves_beside_a_certain_target_names_no_other_one(tmp_path: Path) -> None:
    gap = torch.tensor([-200.0, 20.0, 0.0, *[-200.0] * (VOCAB - 3)])  # the target's gradient is 0, the second's is not

    class Certain(Language):
        def forward(self, ids: Any) -> Any:
            return super().forward(ids) + gap * (torch.arange(SEQ) % 4 == 0)[:, None]

    def certain(logits: Any, labels: Any) -> Any:
        return plain(logits, labels.masked_fill(torch.arange(SEQ) % 4 == 0, 1))

    rows = recorded(tmp_path, make=Certain, loss_of=certain)
    assert column(rows, "own_loss") == pytest.approx(column(rows, "loss"), rel=1e-5)


@pytest.mark.parametrize(
    ("loss_of", "scale"),
    [
        (lambda logits, labels: plain(logits, labels) / 2, 0.5),
        (lambda logits, labels: plain(logits, labels) * labels.numel(), 48.0),
        (lambda logits, labels: -plain(logits, labels), -1.0),
        (lambda logits, labels: -plain(logits, labels) * 8, -8.0),
    ],
    ids=["half", "a sum for a mean", "negated", "negated and scaled"],
)
def test_a_loss_that_is_off_by_a_factor_says_so_at_step_0(loss_of: Any, scale: float, tmp_path: Path) -> None:
    rows = recorded(tmp_path, loss_of=loss_of)
    assert column(rows, "loss_gradient_scale") == pytest.approx([scale] * 3, rel=1e-4)
    assert rows[0]["own_loss"] > 0


def test_passes_that_are_not_divided_by_their_number_add_up(tmp_path: Path) -> None:
    rows = recorded(tmp_path, passes=2, loss_of=lambda logits, labels: 2 * plain(logits, labels))
    assert column(rows, "loss_gradient_scale") == pytest.approx([2.0] * 3, rel=1e-4)


def test_passes_whose_gradients_were_cleared_do_not_count(tmp_path: Path) -> None:
    def lost(logits: Any, labels: Any) -> Any:
        models[0].zero_grad()
        return plain(logits, labels)

    models: list[Any] = []

    def make() -> Any:
        models[:] = [Language()]
        return models[0]

    rows = recorded(tmp_path, passes=2, make=make, loss_of=lost)
    assert column(rows, "loss_gradient_scale") == pytest.approx([0.5] * 3, rel=1e-4)


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda logits, labels: plain(logits.softmax(-1), labels),
        lambda logits, labels: functional.nll_loss(logits.softmax(-1).flatten(0, 1), labels.flatten()),
    ],
    ids=["softmax twice", "no logarithm"],
)
def test_a_loss_of_probabilities_has_the_scale_of_a_probability(loss_of: Any, tmp_path: Path) -> None:
    rows = recorded(tmp_path, loss_of=loss_of)
    assert all(0 < scale < 0.1 for scale in column(rows, "loss_gradient_scale"))
    assert rows[0]["own_loss"] == pytest.approx(recorded(tmp_path / "right")[0]["loss"], rel=1e-5)


@pytest.mark.parametrize(
    "loss_of",
    [
        lambda z, y: functional.cross_entropy(z.flatten(0, 1), y.flatten(), label_smoothing=0.1),
        lambda z, y: functional.cross_entropy(z.flatten(0, 1), y.flatten(), label_smoothing=0.02),
        lambda z, y: functional.cross_entropy(z.flatten(0, 1), y.flatten(), weight=torch.linspace(0.5, 2, VOCAB)),
        lambda z, y: plain(z, y) + 0.01 * z.logsumexp(-1).square().mean(),
        lambda z, y: plain(z, y) + plain(z.flip(0), y),
        lambda z, y: z.square().mean(),
        lambda z, y: z.sum() * 0,
    ],
    ids=["smoothing", "little smoothing", "class weights", "penalty", "two targets", "squares", "nothing"],
)
def test_a_loss_that_is_no_multiple_of_the_cross_entropy_has_no_scale(loss_of: Any, tmp_path: Path) -> None:
    for row in recorded(tmp_path, loss_of=loss_of):
        assert "loss_gradient_scale" not in row
        assert "own_loss" not in row


def test_a_head_of_zeros_cannot_tell_smoothing_from_a_scale_and_is_reported_once_it_has_moved(tmp_path: Path) -> None:
    def make() -> Any:
        model = Language()
        torch.nn.init.zeros_(model.head.weight)
        return model

    rows = recorded(tmp_path, make=make)
    assert "loss_gradient_scale" not in rows[0]
    assert column(rows[1:], "loss_gradient_scale") == pytest.approx([1.0] * 2, abs=1e-3)


def test_logits_that_two_passes_share_or_nobody_updates_are_left_out(tmp_path: Path) -> None:
    def twice(model: Any, _: Any) -> None:
        first, second = (model(torch.zeros(2, 3, dtype=torch.int64)) for _ in range(2))
        (first.logsumexp(-1) + second.logsumexp(-1)).sum().backward()

    assert all("own_loss" not in row for row in recorded(tmp_path, before_update=twice))


def test_a_model_of_transformers_with_labels_inside_has_scale_1(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=VOCAB, n_positions=16, n_embd=16, n_layer=1, n_head=2)

    class Inside(Language):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.inner = transformers.GPT2LMHeadModel(config)

        def forward(self, ids: Any) -> Any:
            return self.inner(input_ids=ids, labels=ids)

    rows = recorded(tmp_path, make=Inside, loss_of=lambda output, _: output.loss, passes=2)
    assert column(rows, "loss_gradient_scale") == pytest.approx([1.0] * 3, abs=1e-4)
    assert column(rows, "own_loss") == pytest.approx(column(rows, "loss"), rel=1e-5)


def test_no_logits_are_kept_once_their_gradient_was_there(tmp_path: Path) -> None:
    import gc
    import weakref

    kept: list[Any] = []

    def loss_of(logits: Any, labels: Any) -> Any:
        kept.append(weakref.ref(logits))
        return plain(logits, labels)

    def gone(_: Any, __: Any) -> None:
        gc.collect()
        assert [one() for one in kept] == [None] * len(kept)

    recorded(tmp_path, loss_of=loss_of, before_update=gone)
    assert len(kept) == 3


def test_the_share_of_rows_that_count_is_read_from_the_gradient_where_no_label_is_seen(tmp_path: Path) -> None:
    def masked(logits: Any, labels: Any) -> Any:
        return plain(logits, torch.where(torch.arange(SEQ) % 4 == 0, labels, -100))

    assert column(recorded(tmp_path / "a", loss_of=masked), "labels_active_share") == [0.25] * 3
    assert column(recorded(tmp_path / "b", loss_of=masked, passes=2), "labels_active_share") == [0.25] * 3

    def smooth(logits: Any, labels: Any) -> Any:
        return functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), label_smoothing=0.1)

    other = recorded(tmp_path / "c", loss_of=smooth)
    assert column(other, "labels_active_share") == [None] * 3  # a loss that is not known may leave out no row at all
