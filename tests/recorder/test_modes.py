"""Modules that evaluate while a step trains, and those that do so for good."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.models import Pooled, TinyGPT, batches, column, conv_net, image_loss, tokens, train  # noqa: E402


def images(count: int = 3) -> list[Any]:
    return [(torch.randn(4, 3, 8, 8), torch.randint(0, 10, (4,))) for _ in range(count)]


def test_a_healthy_run_has_no_module_that_evaluates(tmp_path: Path) -> None:
    assert column(train(tmp_path / "a", TinyGPT(), batches(6)), "evaluating_modules") == [0] * 6
    assert column(train(tmp_path / "b", conv_net(), images(), image_loss), "evaluating_modules") == [0] * 3


@pytest.mark.parametrize("at", [0, 2, 6])
def test_evaluation_that_was_not_left_is_seen_in_any_step(at: int, tmp_path: Path) -> None:
    model = TinyGPT()
    count = len(list(model.modules()))
    rows = train(tmp_path / "a", model, batches(8), before=lambda step: model.train(step < at))
    assert column(rows, "evaluating_modules") == [0] * at + [count] * (8 - at)


def test_an_evaluation_without_gradients_between_steps_is_none(tmp_path: Path) -> None:
    model = TinyGPT()

    def evaluate(step: int) -> None:
        with torch.no_grad():
            model.eval()(tokens(2)[:, :-1])
        model.train()

    rows = train(tmp_path / "a", model, batches(6), before=evaluate)
    assert column(rows, "evaluating_modules") == [0] * 6


def test_what_trains_nothing_may_evaluate_for_good_with_all_that_it_holds(tmp_path: Path) -> None:
    model = conv_net()
    model[1].eval().requires_grad_(False)
    assert column(train(tmp_path / "a", model, images(), image_loss), "evaluating_modules") == [0] * 3
    backbone = conv_net()
    backbone[:5].eval().requires_grad_(False)
    whole = torch.nn.Sequential(backbone[:5].eval(), backbone[5])
    assert column(train(tmp_path / "b", whole, images(), image_loss), "evaluating_modules") == [0] * 3


def test_batch_norm_that_trains_its_weights_by_old_statistics_is_counted(tmp_path: Path) -> None:
    model = conv_net()
    model[1].eval()
    assert column(train(tmp_path / "a", model, images(), image_loss), "evaluating_modules") == [1] * 3


@pytest.mark.parametrize("forgets", [True, False])
def test_an_evaluation_in_training_mode_is_counted_where_that_differs(forgets: bool, tmp_path: Path) -> None:
    model = conv_net()

    def evaluate(step: int) -> None:
        with torch.no_grad():
            model.train(forgets)(torch.randn(4, 3, 8, 8))
        model.train()

    rows = train(tmp_path / "a", model, images(), image_loss, before=evaluate)
    assert column(rows, "training_evaluations") == [int(forgets)] * 3
    plain = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))  # in no mode is it another

    def look(step: int) -> None:
        with torch.no_grad():
            plain(torch.randn(4, 3, 8, 8))

    assert column(train(tmp_path / "b", plain, images(), image_loss, before=look), "training_evaluations") == [0] * 3


def test_a_parameter_called_p_drops_nothing_out(tmp_path: Path) -> None:
    model = torch.nn.Sequential(Pooled(), torch.nn.Linear(3, 10))

    def look(step: int) -> None:
        with torch.no_grad():
            model(torch.randn(4, 3, 8, 8))

    rows = train(tmp_path / "a", model, images(), image_loss, before=look)
    assert column(rows, "training_evaluations") == [0] * 3
