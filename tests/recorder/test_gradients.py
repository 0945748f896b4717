"""What was done to gradients between their arrival and the update, and which tensors have none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from tests.recorder.models import column  # noqa: E402
from tests.recorder.recorded import Language, images, recorded  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402

COLUMNS = ("gradient_edit_ratio", "gradient_cosine", "stale_gradients", "zero_gradients", "unowned", "frozen")


def clip(model: Any, _: Any) -> None:
    nn.utils.clip_grad_norm_(model.parameters(), 0.01)


@pytest.mark.parametrize(
    "way",
    [
        {},
        {"make": images},
        {"passes": 2},
        {"before_update": clip},
        {"before_update": clip, "scaler": True, "autocast": torch.float16},
        {"before_update": clip, "autocast": torch.bfloat16, "passes": 2},
        {"make": lambda: Language().bfloat16(), "before_update": clip},
        {"optimizer_of": lambda model: torch.optim.SGD(model.parameters(), lr=0.1)},
    ],
    ids=["language", "images", "accumulation", "clipped", "scaler", "bfloat16", "narrow", "sgd"],
)
def test_gradients_that_nobody_edits_are_used_as_they_arrived(way: dict[str, Any], tmp_path: Path) -> None:
    for row in recorded(tmp_path, channels="all", **way):
        found = [row[name] for name in COLUMNS]
        assert found == pytest.approx([1, 1, 0, 0, 0, 0], abs=5e-3 if "make" in way else 1e-4)


@pytest.mark.parametrize(
    ("edit", "name", "value"),
    [
        (lambda grad: grad.mul_(1000), "gradient_edit_ratio", 1000.0),
        (lambda grad: grad.zero_(), "gradient_edit_ratio", float("inf")),
        (lambda grad: grad.data.mul_(1.02), "gradient_edit_ratio", 1.02),
        (lambda grad: grad.neg_(), "gradient_cosine", -1.0),
        (lambda grad: grad.zero_(), "zero_gradients", 1.0),
    ],
)
def test_an_edit_of_one_tensor_shows(edit: Any, name: str, value: float, tmp_path: Path) -> None:
    rows = recorded(tmp_path, before_update=lambda model, _: edit(model.qkv.weight.grad))
    assert column(rows, name) == pytest.approx([value] * 3, rel=1e-4)


def test_noise_on_one_tensor_turns_its_gradient(tmp_path: Path) -> None:
    def noise(model: Any, _: Any) -> None:
        gradient = model.qkv.weight.grad
        gradient += torch.linspace(-1, 1, gradient.numel()).view_as(gradient) * gradient.std()

    assert max(column(recorded(tmp_path, before_update=noise), "gradient_cosine")) < 0.99


def test_a_gradient_taken_away_is_a_tensor_without_one(tmp_path: Path) -> None:
    rows = recorded(tmp_path, before_update=lambda model, _: setattr(model.qkv.weight, "grad", None))
    assert column(rows, "zero_gradients") == [1.0] * 3
    assert column(rows, "gradient_edit_ratio") == [None] * 3


def test_gradients_that_are_not_cleared_are_stale_in_the_next_step(tmp_path: Path) -> None:
    assert column(recorded(tmp_path, clear=False), "stale_gradients") == [0, 6, 6]


def test_gradients_cleared_to_zeros_are_not_stale(tmp_path: Path) -> None:
    def zeros(_: Any, optimizer: Any) -> None:
        optimizer.zero_grad(set_to_none=False)

    assert column(recorded(tmp_path, clear=False, after_step=zeros), "stale_gradients") == [0, 0, 0]


def test_a_layer_that_is_detached_has_no_gradient(tmp_path: Path) -> None:
    class Detached(Language):
        def forward(self, ids: Any) -> Any:
            return self.head(self.norm(self.embedding(ids).detach()))

    assert column(recorded(tmp_path, make=Detached), "zero_gradients") == [3.0] * 3


def test_what_no_optimizer_holds_and_what_is_frozen_are_counted(tmp_path: Path) -> None:
    def frozen() -> Any:
        model = Language()
        model.norm.requires_grad_(False)
        return model

    rows = recorded(tmp_path, make=frozen, optimizer_of=lambda model: torch.optim.SGD(model.qkv.parameters(), lr=0.1))
    assert column(rows, "unowned") == [2.0] * 3
    assert column(rows, "frozen") == [2.0] * 3
    assert column(rows, "zero_gradients") == [0.0] * 3


@pytest.mark.parametrize("kept", ["list", "mapping", "moved", "module"])
def test_what_is_trained_beside_the_parameters_is_in_no_optimizer(tmp_path: Path, kept: str) -> None:
    class Beside(Language):
        def __init__(self) -> None:
            super().__init__()
            shift, layer = torch.nn.Parameter(torch.zeros(1)), torch.nn.Linear(1, 1, bias=False)
            self.shifts: Any = {"list": [shift], "mapping": {"a": shift}, "moved": shift.double(), "module": [layer]}[
                kept
            ]

        def forward(self, ids: Any) -> Any:
            shifts = self.shifts if kept == "moved" else self.shifts["a"] if kept == "mapping" else self.shifts[0]
            self.last = logits = super().forward(ids)  # which is of this pass, and no parameter
            return logits + (shifts.weight[0] if kept == "module" else shifts)

    assert column(recorded(tmp_path / "a", make=Beside), "unowned") == [1.0] * 3
    if kept == "list":

        def of_all(model: Any) -> Any:
            return torch.optim.SGD([*model.parameters(), *model.shifts], lr=0.1)

        assert column(recorded(tmp_path / "b", make=Beside, optimizer_of=of_all), "unowned") == [0.0] * 3


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
def test_a_teacher_in_a_list_and_a_weight_that_is_made_of_parameters_are_no_parameters_that_lack(
    tmp_path: Path,
) -> None:
    class Taught(Language):
        def __init__(self) -> None:
            super().__init__()
            self.teacher = [Language()]
            torch.nn.utils.weight_norm(self.head)

        def forward(self, ids: Any) -> Any:
            with torch.no_grad():
                self.teacher[0](ids)
            return super().forward(ids)

    assert column(recorded(tmp_path, make=Taught), "unowned") == [0.0] * 3


def test_an_optimizer_of_another_model_holds_nothing_and_one_of_float32_copies_is_not_judged(tmp_path: Path) -> None:
    def other(_: Any) -> Any:
        return torch.optim.SGD(Language().parameters(), lr=0.1)

    assert column(recorded(tmp_path, optimizer_of=other), "unowned") == [6.0] * 3
    narrow = recorded(tmp_path / "narrow", make=lambda: Language().bfloat16(), optimizer_of=other)
    assert column(narrow, "unowned") == [None] * 3


def test_complex_weights_are_looked_at(tmp_path: Path) -> None:
    class Phases(Language):
        def __init__(self) -> None:
            super().__init__()
            self.phase = nn.Parameter(torch.randn(40, dtype=torch.complex64))

        def forward(self, ids: Any) -> Any:
            return super().forward(ids) * (self.phase * self.phase).real

    for row in recorded(tmp_path, make=Phases):
        assert [row[name] for name in COLUMNS] == pytest.approx([1, 1, 0, 0, 0, 0], abs=1e-4)
        assert row["unmoved"] == 0


def test_sparse_gradients_are_looked_at(tmp_path: Path) -> None:
    def sparse() -> Any:
        model = Language()
        model.embedding = nn.Embedding(40, 16, sparse=True)
        return model

    def sgd(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    rows = recorded(tmp_path, make=sparse, optimizer_of=sgd)
    assert column(rows, "gradient_edit_ratio") == pytest.approx([1.0] * 3)


class TwoHeads(nn.Module):  # type: ignore[misc,name-defined]
    """A pass back reaches the second head first, before the logits of the first."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 2)

    def forward(self, given: Any) -> Any:
        hidden = self.trunk(given).relu()
        return self.first(hidden), self.second(hidden)


def of_two_heads(folder: Path, clear: Any) -> list[Any]:
    """Return the tensors of each step that held a gradient of the step before."""
    torch.manual_seed(0)
    model = TwoHeads()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Recorder(folder, model, optimizer, channels="all") as recorder:
        for _ in range(3):
            one, other = model(torch.randn(5, 4))
            loss = one.square().mean() + other.square().mean()
            clear(optimizer)
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    return column(map(json.loads, (folder / "steps.jsonl").read_text().splitlines()), "stale_gradients")


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_of_a_head_that_a_pass_reaches_first_are_not_of_the_step_before(
    to_none: bool, tmp_path: Path
) -> None:
    assert of_two_heads(tmp_path / "a", lambda optimizer: optimizer.zero_grad(set_to_none=to_none)) == [0, 0, 0]
    assert of_two_heads(tmp_path / "b", lambda _: None) == [0, 4, 4]  # those of the second head were written to since
