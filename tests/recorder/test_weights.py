"""How large and how precise weights are, whether they were drawn apart, and what `layers.jsonl` tells of each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from tests.recorder.models import column  # noqa: E402
from tests.recorder.recorded import Language, images, recorded  # noqa: E402

FIRST = ("equal_rows", "equal_tensors", "init_std_max")


@pytest.mark.parametrize("make", [Language, images], ids=["language", "images"])
def test_weights_drawn_apart_have_no_equal_rows_and_no_equal_tensors(make: Any, tmp_path: Path) -> None:
    first, *others = recorded(tmp_path, make=make)
    assert (first["equal_rows"], first["equal_tensors"]) == (0, 0)
    assert 0.05 < first["init_std_max"] < 1.5
    assert not [name for row in others for name in FIRST if name in row]


def test_ones_have_equal_rows_zeros_are_meant_so_and_copies_are_a_pair(tmp_path: Path) -> None:
    def make() -> Any:
        model: Any = Language()
        nn.init.ones_(model.qkv.weight)
        model.head.weight = nn.Parameter(model.embedding.weight.detach().clone())
        model.more = nn.Linear(16, 16, bias=False)
        nn.init.zeros_(model.more.weight)
        return model

    first = recorded(tmp_path, make=make)[0]
    assert (first["equal_rows"], first["equal_tensors"]) == (1, 1)


def test_tied_weights_are_one_tensor(tmp_path: Path) -> None:
    def make() -> Any:
        model = Language()
        model.head.weight = model.embedding.weight
        return model

    assert recorded(tmp_path, make=make)[0]["equal_tensors"] == 0


def test_biases_of_layers_that_torch_copies_are_meant_so(tmp_path: Path) -> None:
    def make() -> Any:
        model: Any = Language()
        model.more = nn.ModuleList([nn.Linear(64, 64), nn.Linear(64, 64)])
        model.more[1].bias = nn.Parameter(model.more[0].bias.detach().clone())
        return model

    assert recorded(tmp_path, make=make)[0]["equal_tensors"] == 0


def test_weights_drawn_wide_have_that_deviation(tmp_path: Path) -> None:
    def make() -> Any:
        model = Language()
        nn.init.normal_(model.head.weight, std=50.0)
        return model

    assert recorded(tmp_path, make=make)[0]["init_std_max"] == pytest.approx(50, rel=0.1)


def test_weights_rounded_to_bfloat16_after_each_update_are_seen_to_be(tmp_path: Path) -> None:
    def rounded(model: Any, _: Any) -> None:
        with torch.no_grad():
            for one in model.parameters():
                one.copy_(one.bfloat16())

    def narrow_update(model: Any, optimizer: Any) -> None:
        optimizer.register_step_post_hook(lambda *_: rounded(model, None))

    assert max(column(recorded(tmp_path), "bf16_share")) < 0.05
    assert column(recorded(tmp_path / "b", before_update=narrow_update), "bf16_share") == [1.0] * 3
    narrow = recorded(tmp_path / "c", make=lambda: Language().bfloat16())
    assert column(narrow, "bf16_share") == [None] * 3


def test_the_norm_of_all_weights_is_reported_after_each_step(tmp_path: Path) -> None:
    norms: list[float] = []

    def take(model: Any, _: Any) -> None:
        norms.append(torch.cat([one.detach().flatten() for one in model.parameters()]).norm().item())

    assert column(recorded(tmp_path, after_step=take), "weight_norm") == pytest.approx(norms)


@pytest.mark.parametrize("scaler", [False, True])
def test_layers_has_the_norms_of_each_tensor_at_cadence(scaler: bool, tmp_path: Path) -> None:
    norms_taken: list[dict[str, Any]] = []
    state: dict[str, Any] = {}

    def before(model: Any, _: Any) -> None:
        state["arrived"] = {name: one.grad.norm().item() for name, one in model.named_parameters()}
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        state["before"] = {name: one.detach().clone() for name, one in model.named_parameters()}
        state["used"] = {name: one.grad.norm().item() for name, one in model.named_parameters()}

    def after(model: Any, _: Any) -> None:
        for name, one in model.named_parameters():
            norms = {"grad": state["arrived"][name], "grad_used": state["used"][name], "weight": one.norm().item()}
            norms_taken.append({"name": name, **norms, "update": (one - state["before"][name]).norm().item()})

    recorded(tmp_path, steps=6, before_update=before, after_step=after, scaler=scaler, channels="all")
    found = [json.loads(line) for line in (tmp_path / "run" / "layers.jsonl").read_text().splitlines()]
    assert [row.pop("step") for row in found] == [step for step in range(4) for _ in range(6)]
    for row, right in zip(found, norms_taken, strict=False):
        assert row.pop("name") == right.pop("name")
        assert row == pytest.approx(right, rel=1e-4)


def test_a_frozen_tensor_has_no_row_and_one_without_a_gradient_only_its_weight(tmp_path: Path) -> None:
    class Part(Language):
        def __init__(self) -> None:
            super().__init__()
            self.norm.requires_grad_(False)
            self.unused = nn.Parameter(torch.ones(3))

    recorded(tmp_path, steps=1, make=Part)
    lines = (tmp_path / "run" / "layers.jsonl").read_text().splitlines()
    found = {row.pop("name"): row for row in map(json.loads, lines)}
    assert found["unused"] == {"step": 0, "weight": pytest.approx(3**0.5), "update": 0.0}
    assert not [name for name in found if name.startswith("norm")]


def test_weights_that_are_too_large_to_hold_twice_have_no_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weighbridge.recorder.learning.updates.MOST_COPIED", 100)
    recorded(tmp_path, steps=1)
    lines = (tmp_path / "run" / "layers.jsonl").read_text().splitlines()
    assert all("update" not in json.loads(line) and "weight" in json.loads(line) for line in lines)
