"""Whether the rows of an evaluation are ones that were trained on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from weighbridge.recorder import Recorder, channels  # noqa: E402
from weighbridge.recorder.passes import batches  # noqa: E402

ROWS = torch.arange(48).view(8, 6)
OTHERS = ROWS + 100


class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 3)

    def forward(self, input_ids: Any, attention_mask: Any = None) -> Any:
        return self.layer(input_ids.float().mean(1, keepdim=True))


def shares(
    path: Path, evaluate: Callable[[Any, int], object], steps: int = 3, *,
    of: str = "evaluation_rows_trained", rows: Any = ROWS, **options: Any,
) -> list[float | None]:  # fmt: skip
    """Train on two rows a step, evaluate before each, and return the column."""
    model = Masked()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    with Recorder(path / "run", model, optimizer, on_fail="raise", **options) as rec:
        for step in range(steps):
            model.eval()
            with torch.no_grad():
                evaluate(model, step)
            model.train()
            at = 2 * step % len(rows)
            loss = model(rows[at : at + 2]).sum()
            loss.backward()
            optimizer.step()
            rec.step(loss.detach())
    logged = [json.loads(line) for line in (path / "run" / "steps.jsonl").read_text().splitlines()]
    return [row.get(of) for row in logged]


def test_rows_that_are_batches_are_none_that_were_trained_on(tmp_path: Path) -> None:
    assert shares(tmp_path, lambda model, _: model(OTHERS)) == [None, 0, 0]


def test_an_evaluation_in_inference_mode_is_one(tmp_path: Path) -> None:
    def evaluate(model: Any, _: int) -> None:
        with torch.inference_mode():
            model(ROWS.clone())

    assert shares(tmp_path, evaluate) == [None, 2 / 6, 4 / 6]


def test_the_share_of_evaluated_rows_that_were_trained_on_grows_with_the_pass(tmp_path: Path) -> None:
    # Those of the step under way are left out of it: who looks at the batch of the step evaluates nothing held out.
    assert shares(tmp_path, lambda model, _: model(ROWS)) == [None, 2 / 6, 4 / 6]


def test_a_share_of_several_batches_is_of_all_their_rows_each_once(tmp_path: Path) -> None:
    def evaluate(model: Any, _: int) -> None:
        for part in (ROWS[:2], OTHERS[:4], OTHERS[2:6]):
            model(part)

    assert shares(tmp_path, evaluate) == [None, 0.25, 0.25]


def test_a_row_is_what_its_mask_leaves_in_however_it_is_padded(tmp_path: Path) -> None:
    def evaluate(model: Any, _: int) -> None:
        padded = torch.nn.functional.pad(ROWS[:1], (3, 2))
        model(padded, attention_mask=(padded > -1) * torch.tensor([0] * 3 + [1] * 6 + [0] * 2))

    assert shares(tmp_path, evaluate) == [None, 1, 1]


def test_the_batch_of_a_step_evaluated_in_it_is_none_that_was_batches(tmp_path: Path) -> None:
    assert shares(tmp_path, lambda model, step: model(ROWS[2 * step : 2 * step + 2])) == [None, None, None]


def test_passes_without_gradients_in_training_mode_and_short_rows_are_no_evaluation(tmp_path: Path) -> None:
    def moved(model: Any, _: int) -> None:
        model.train()
        model(ROWS)

    assert shares(tmp_path / "a", moved) == [None, None, None]
    assert shares(tmp_path / "b", lambda model, _: model(ROWS[:, :3])) == [None, None, None]


def test_rows_of_every_step_are_remembered_however_seldom_all_channels_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "EARLY", (0,))

    def evaluate(model: Any, step: int) -> None:
        if step in (7, 8):
            model(torch.cat([ROWS[2:6], OTHERS[:1]]))

    found = shares(tmp_path, evaluate, steps=9, probe_every=100)
    assert {step: share for step, share in enumerate(found) if share is not None} == {7: 0.8, 8: 0.8}


def test_where_half_of_the_rows_are_remembered_what_is_found_counts_twice_and_nothing_found_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "ROWS", 1)  # of the two of a step

    def evaluate(rows: Any) -> Callable[[Any, int], object]:
        return lambda model, _: [model(row[None]) for row in rows]

    mixed = torch.cat([ROWS[:2], OTHERS[:6]])
    assert shares(tmp_path / "a", evaluate(mixed)) == [None, 0.25, 0.25]
    assert shares(tmp_path / "b", evaluate(OTHERS)) == [None, None, None]


def test_what_is_remembered_and_looked_at_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "REMEMBERED", 2)
    assert shares(tmp_path / "a", lambda model, _: model(ROWS[:4])) == [None, 1, 1]
    monkeypatch.setattr(batches, "PASSES", 1)

    def evaluate(model: Any, _: int) -> None:
        for part in (OTHERS, ROWS):
            model(part)

    assert shares(tmp_path / "b", evaluate) == [None, 0, None]


def test_rows_that_are_wide_or_not_in_a_row_are_read_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "WIDTH", 8)

    def read(rows: Any) -> set[int]:
        kept: list[Any] = []
        batches._keep(kept, batches.Parts(rows, None, None))
        return set(batches._hashes(kept))

    wide = torch.randn(5, 3, 10, 10)
    assert len(read(wide)) == 5
    assert read(wide.to(memory_format=torch.channels_last)) == read(wide)
    assert read(ROWS.t().contiguous().t()) == read(ROWS)
    assert len(read(wide.bfloat16())) == 5


@pytest.mark.parametrize(
    ("rows", "passes"),
    [
        (ROWS, [1, 1, 1, 1, 5 / 4, 6 / 4, 7 / 4, 2]),
        (ROWS[:2], [1, 2, 3, 4, 5, 6, 7, 8]),
        (ROWS.float(), [None] * 8),  # pictures are trained on for hundreds of passes
        (ROWS.byte(), [None] * 8),
    ],
)
def test_how_often_a_row_of_tokens_was_trained_on_is_counted(tmp_path: Path, rows: Any, passes: list[Any]) -> None:
    assert shares(tmp_path, lambda model, step: None, steps=8, of="row_passes", rows=rows) == passes


def test_rows_of_a_device_that_were_looked_at_seldom_count_no_more_passes_than_were_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "REMEMBERED", 2)
    assert shares(tmp_path, lambda model, step: None, steps=8, of="row_passes") == [1] * 8
