"""What the recorder says of batches: right on healthy data, and on each fault that data have."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.recorder.models import (  # noqa: E402
    BATCH,
    SEQ,
    TinyGPT,
    column,
    conv_net,
    hugging_loss,
    image_loss,
    language_loss,
    tokens,
    train,
)
from tests.recorder.models import batches as make  # noqa: E402

from weighbridge.recorder.channels import Watched  # noqa: E402
from weighbridge.recorder.passes import batches  # noqa: E402
from weighbridge.recorder.passes.batches import Batches, parts_of  # noqa: E402


def looked(*found: Any, **fields: Any) -> dict[str, Any]:
    """Show a step of some batches to the channel alone."""
    channel = Batches(Watched(torch.nn.Linear(1, 1), None, **fields))
    for batch in found:
        channel.batch(batch)
    return dict(channel.row())


# --- Healthy ----------------------------------------------------------------------------------------------------------


def test_batches_of_a_healthy_language_model_are_new_and_differ_in_their_rows(tmp_path: Path) -> None:
    rows = train(tmp_path / "a", TinyGPT(), make(6), passes=2)
    assert column(rows, "batch_repeats") == [0] * 12  # the second pass forgets the first
    assert column(rows, "batch_crc")[:6] == column(rows, "batch_crc")[6:]
    assert column(rows, "batch_crc")[0] == zlib.crc32(tokens(24)[:BATCH].numpy().tobytes())
    assert column(rows, "repeated_rows_share") == [0] * 12
    assert all(0 < share < 0.2 for share in column(rows, "top_token_share"))
    # Inputs and targets are one array: the logits' gradient tells, in the steps in which all channels look.
    assert column(rows, "labels_active_share") == [1 if step in (0, 1, 2, 3, 10, 11) else None for step in range(12)]


class SameOrder(torch.utils.data.RandomSampler):  # type: ignore[misc,name-defined]
    def __iter__(self) -> Any:
        self.generator.manual_seed(0)
        return super().__iter__()


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (SameOrder, [None] * 8 + [1] * 16),
        (torch.utils.data.RandomSampler, [None] * 8 + [0] * 16),
        (None, [None] * 24),  # whoever does not shuffle means the order
    ],
)
def test_a_loader_that_shuffles_repeats_its_order_where_its_generator_is_seeded_anew(
    tmp_path: Path, sampler: Any, expected: list[Any]
) -> None:
    data = list(tokens(32))
    order = sampler and sampler(data, generator=torch.Generator())
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=order)
    assert column(train(tmp_path / "a", TinyGPT(), loader, passes=3), "order_repeats") == expected


def test_the_ranks_sampler_repeats_its_order_until_its_epoch_is_set(tmp_path: Path) -> None:
    data = list(tokens(64))
    sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler)
    assert column(train(tmp_path / "a", TinyGPT(), loader, passes=2), "order_repeats")[8:] == [1] * 8

    def new_epoch(step: int) -> None:
        sampler.set_epoch(step // 8 + 1)

    rows = train(tmp_path / "b", TinyGPT(), loader, passes=2, before=new_epoch)
    assert column(rows, "order_repeats")[8:] == [0] * 8


def test_images_have_a_crc_rows_and_labels_but_no_tokens(tmp_path: Path) -> None:
    images, labels = torch.randn(12, 3, 8, 8), torch.randint(0, 10, (12,))
    loader = list(zip(torch.split(images, 4), torch.split(labels, 4), strict=True))
    rows = train(tmp_path / "a", conv_net(), loader, image_loss)
    assert column(rows, "batch_repeats") == column(rows, "repeated_rows_share") == [0, 0, 0]
    assert column(rows, "top_token_share") == [None] * 3
    assert column(rows, "labels_active_share") == [1, 1, 1]


def test_the_mean_of_inputs_is_that_of_what_goes_into_the_model_and_not_of_what_the_loader_gives(
    tmp_path: Path,
) -> None:
    def scaled(model: Any, batch: Any) -> Any:
        return image_loss(model, (batch[0] * 100, batch[1]))

    images = torch.rand(4, 3, 8, 8)
    (row,) = train(tmp_path / "a", conv_net(), [(images, torch.zeros(4, dtype=torch.long))], scaled)
    assert row["input_mean"] == pytest.approx(100 * images.mean().item(), rel=1e-5)
    assert row["input_std"] == pytest.approx(100 * images.std(correction=0).item(), rel=1e-5)


@pytest.mark.parametrize("watch", [True, False])
def test_a_masked_language_model_learns_from_some_of_its_labels(watch: bool, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    ids = tokens(8, length=10)
    labels = torch.where(torch.arange(10) % 5 == 0, ids, -100)
    batch = {"labels": labels, "attention_mask": torch.ones_like(ids), "input_ids": ids}
    rows = train(tmp_path / "a", transformers.BertForMaskedLM(config), [batch], hugging_loss, watch=watch)
    assert column(rows, "labels_active_share") == [0.2]
    assert column(rows, "batch_crc") == [zlib.crc32(labels.numpy().tobytes(), zlib.crc32(ids.numpy().tobytes()))]
    # Nobody knows of passes where no loader is watched.
    assert column(rows, "batch_repeats") == [0 if watch else None]


def test_accumulation_counts_over_the_batches_of_the_step() -> None:
    one, other = {"input_ids": tokens(4), "labels": tokens(4)}, {"input_ids": tokens(4, 1), "labels": tokens(4) - 100}
    found = looked(one, other)
    assert found["labels_active_share"] == 0.5
    assert found["batch_repeats"] == 0
    assert looked(one, one)["batch_repeats"] == 1


# --- Faults -----------------------------------------------------------------------------------------------------------


def test_a_batch_that_comes_again_in_its_pass_is_named(tmp_path: Path) -> None:
    one, other = make(2)
    rows = train(tmp_path / "a", TinyGPT(), [one, other, other.clone(), one])
    assert column(rows, "batch_repeats") == [0, 0, 1, 1]


def test_rows_that_two_workers_drew_alike_are_counted(tmp_path: Path) -> None:
    half = tokens(2)
    rows = train(tmp_path / "a", TinyGPT(), [torch.cat([half, half]), half[:1].repeat(4, 1)])
    assert column(rows, "repeated_rows_share") == [0.5, 0.75]


def test_constant_tokens_are_all_of_a_batch_and_padding_is_none_of_it(tmp_path: Path) -> None:
    rows = train(tmp_path / "a", TinyGPT(), [torch.full((BATCH, SEQ + 1), 7)])
    assert column(rows, "top_token_share") == [1]
    ids, mask = torch.zeros(2, 10, dtype=torch.long), torch.zeros(2, 10, dtype=torch.long)
    ids[:, :2], mask[:, :2] = torch.tensor([[1, 2], [3, 4]]), 1
    assert looked({"input_ids": ids, "attention_mask": mask})["top_token_share"] == 0.25
    assert "top_token_share" not in looked({"input_ids": ids, "attention_mask": mask * 0})


def test_pixels_are_no_tokens() -> None:
    assert "top_token_share" not in looked(torch.zeros(4, 3, 8, 8, dtype=torch.uint8))
    assert "top_token_share" not in looked(torch.zeros(4, 64, dtype=torch.uint8))


@pytest.mark.parametrize("ignored", [-100, -1])
def test_labels_that_are_all_ignored_are_named(ignored: int) -> None:
    ids = tokens(4)
    assert looked((ids, torch.full_like(ids, ignored)))["labels_active_share"] == 0
    assert looked((ids, ids))["labels_active_share"] == 1


# --- What could not be seen -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [None, "text", ["a", "b"], [], {}, torch.tensor(3.0), [[1, 2], [3, 4]]])
def test_a_batch_without_an_array_leaves_every_cell_out(batch: object) -> None:
    assert looked(batch) == {}


def test_a_mask_in_the_place_of_labels_is_no_label() -> None:
    ids = tokens(4)
    assert "labels_active_share" not in looked((ids, torch.ones_like(ids)))
    assert "labels_active_share" not in looked((ids, torch.ones_like(ids), ids))
    assert "labels_active_share" not in looked((ids, torch.rand(4)))


def test_a_batch_on_a_device_is_looked_at_in_steps_in_which_all_channels_look(monkeypatch: pytest.MonkeyPatch) -> None:
    far = torch.empty((4, 8), dtype=torch.long, device="meta")
    assert looked(far, early=False) == {}
    channel = Batches(Watched(torch.nn.Linear(1, 1), None))
    channel.batch(far)
    monkeypatch.setattr(batches, "_on_host", lambda array: np.arange(32).reshape(4, 8))
    assert channel.row()["repeated_rows_share"] == 0


def test_a_batch_that_was_not_looked_at_leaves_out_that_none_was_repeated() -> None:
    channel = Batches(Watched(torch.nn.Linear(1, 1), None))
    found = []
    for batch in (tokens(4), None, tokens(4, 1), tokens(4)):
        channel.batch(batch)
        found.append(channel.row().get("batch_repeats"))
    assert found == [0, None, None, 1]
    channel.watched.passes += 1
    channel.batch(tokens(4))
    assert channel.row()["batch_repeats"] == 0


def test_what_is_remembered_of_a_pass_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "REMEMBERED", 2)
    channel = Batches(Watched(torch.nn.Linear(1, 1), None))
    for seed in range(9):
        channel.batch(tokens(4, seed))
    assert len(channel._seen) == 2


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.bool])
def test_any_kind_of_number_is_read_and_none_is_written(kind: Any) -> None:
    batch = tokens(4).to(kind).t()[:12].t()  # not in one piece
    before = batch.clone()
    assert {"batch_crc", "batch_repeats", "repeated_rows_share"} <= set(looked(batch))
    assert torch.equal(batch, before)
    locked = tokens(4).numpy()
    locked.flags.writeable = False
    assert looked(locked)["repeated_rows_share"] == 0


def test_of_a_large_array_evenly_spaced_elements_are_looked_at() -> None:
    images = torch.rand(4, 3, 256, 256)
    found = looked(images)
    assert found["repeated_rows_share"] == 0
    images[1] = images[3]
    again = looked(images)
    assert (again["repeated_rows_share"], again["batch_crc"] == found["batch_crc"]) == (0.25, False)


def test_a_batch_of_a_named_tuple_of_arrays_is_read_in_its_order() -> None:
    parts = parts_of({"meta": "text", "pixel_values": torch.rand(2, 3), "label": torch.tensor([1, 2])})
    assert parts is not None
    assert (parts.inputs.shape, parts.labels is not None) == ((2, 3), True)


def test_a_loss_that_is_summed_reads_the_same_batches(tmp_path: Path) -> None:
    rows = train(tmp_path / "a", TinyGPT(), make(2), lambda model, batch: 9 * language_loss(model, batch))
    assert column(rows, "batch_repeats") == [0, 0]
