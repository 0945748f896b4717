"""Who writes to weights, and whether an update does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.models import column  # noqa: E402
from tests.recorder.recorded import WIDTH, Language, images, recorded  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402
from weighbridge.recorder.channels import Watched  # noqa: E402
from weighbridge.recorder.learning.tensor_norms import bit_sums  # noqa: E402
from weighbridge.recorder.learning.weights import CountedWrites, parameters_sum  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8])
def test_one_bit_changes_the_sum_of_its_tensor_alone(dtype: Any) -> None:
    whole = torch.ones(4, 6).to(dtype)
    tensors = [torch.ones(3, 5).to(dtype), torch.ones(()).to(dtype), whole.t()]
    before = bit_sums(tensors)
    whole.view(torch.uint8)[0, -1] ^= 1
    assert (bit_sums(tensors) != before).tolist() == [False, False, True]
    assert before.dtype == torch.int64


def test_the_sum_of_all_is_a_whole_number_that_float64_holds() -> None:
    found = parameters_sum(bit_sums([torch.full((1000,), -1.5), torch.randn(1000)]))
    assert 0 <= found.item() < 2**53
    assert float(found) == found.item()


@pytest.mark.parametrize(
    "way",
    [{}, {"make": images}, {"passes": 2}, {"scaler": True, "autocast": torch.float16}, {"autocast": torch.bfloat16}],
    ids=["language", "images", "accumulation", "scaler", "bfloat16"],
)
def test_nobody_else_writes_and_every_update_moves_everything(way: dict[str, Any], tmp_path: Path) -> None:
    rows = recorded(tmp_path, **way)
    assert column(rows, "outside_writes") == [None, 0, 0]
    assert column(rows, "updates") == [1, 1, 1]
    assert column(rows, "unmoved") == [0, 0, 0]
    assert len(set(column(rows, "parameters_sum"))) == 3
    assert column(rows, "step_counter_lag") == [0, 0, 0]


def test_weights_of_float8_are_told_apart_beside_wider_ones() -> None:
    model: Any = torch.nn.Linear(3, 2)
    model.scales = torch.nn.Parameter(torch.ones(9).to(torch.float8_e4m3fn), requires_grad=False)
    channel = CountedWrites(Watched(model, None))
    channel.update_ended()
    channel.watched.step = 1
    with torch.no_grad():
        model.scales.zero_()
    channel.forward_begins((), {})
    assert channel.row() == {"outside_writes": 1}


def test_one_bit_written_between_updates_is_seen_in_the_next_step(tmp_path: Path) -> None:
    def flip(model: Any, _: Any) -> None:
        model.qkv.weight.data.view(torch.int32)[3, 3] ^= 1

    assert column(recorded(tmp_path, after_step=flip), "outside_writes") == [None, 1, 1]


def test_a_write_in_place_is_seen_in_every_step_and_one_around_torch_s_count_where_all_channels_look(
    tmp_path: Path,
) -> None:
    def scale(model: Any, _: Any) -> None:
        with torch.no_grad():
            model.head.weight *= 0.999

    def around(model: Any, _: Any) -> None:
        model.head.weight.data *= 0.999

    found = column(recorded(tmp_path / "a", steps=13, after_step=scale), "outside_writes")
    assert found == [None, *[1] * 12]
    found = column(recorded(tmp_path / "b", steps=13, after_step=around), "outside_writes")
    assert {step: value for step, value in enumerate(found) if value} == {1: 1, 2: 1, 3: 1, 11: 1}


def test_a_write_is_seen_in_weights_that_lie_elsewhere_since(tmp_path: Path) -> None:
    steps: list[int] = []

    def move_then_scale(model: Any, _: Any) -> None:
        steps.append(1)
        for one in model.parameters() if len(steps) == 5 else ():
            one.data = one.data.clone()
        if len(steps) == 7:
            with torch.no_grad():
                model.head.weight *= 0.999

    found = column(recorded(tmp_path, steps=10, after_step=move_then_scale), "outside_writes")
    assert {step: value for step, value in enumerate(found) if value} == {7: 1}


@pytest.mark.parametrize("training", [True, False])
def test_an_evaluation_in_training_mode_writes_to_the_statistics_of_norms_over_batches(
    training: bool, tmp_path: Path
) -> None:
    def evaluate(model: Any, _: Any) -> None:
        model.train(training)
        with torch.no_grad():
            model(torch.ones(4, 1, 8, 8))
        model.train()

    rows = recorded(tmp_path / "a", make=images, after_step=evaluate)
    assert column(rows, "outside_writes") == [None, *[int(training)] * 2]
    without = recorded(tmp_path / "b", make=images)
    assert training or column(rows, "parameters_sum") == column(without, "parameters_sum")


def test_a_pass_with_gradients_after_the_update_moves_running_means_by_rights(tmp_path: Path) -> None:
    critic: Any = images()
    optimizer = torch.optim.SGD(critic.parameters(), lr=0.1)
    with Recorder(tmp_path / "run", critic, optimizer, channels="all", on_fail="raise") as rec:
        for step in range(4):
            critic(torch.randn(4, 1, 8, 8)).square().mean().backward()
            optimizer.step()
            critic(torch.randn(4, 1, 8, 8)).mean().backward()  # what the generator learns from
            optimizer.zero_grad()
            rec.step(0.0)
            if step == 2:
                critic[-1].bias.data += 1
    rows = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert column(rows, "outside_writes") == [None, 0, 0, 1]


def test_weights_that_were_exchanged_and_put_back_are_left_open_where_bits_are_not_looked_at(tmp_path: Path) -> None:
    def exchange(model: Any, _: Any) -> None:
        own = {name: value.clone() for name, value in model.state_dict().items()}
        for state in ({name: torch.zeros_like(value) for name, value in own.items()}, own):
            model.load_state_dict(state)

    found = column(recorded(tmp_path, steps=13, after_step=exchange), "outside_writes")
    assert {step: value for step, value in enumerate(found) if value is not None} == {1: 0, 2: 0, 3: 0, 11: 0}


class Deep(Language):
    """The language model with five layers more: 16 tensors, the largest three in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(*[torch.nn.Linear(WIDTH, WIDTH) for _ in range(5)])

    def forward(self, ids: Any) -> Any:
        return super().forward(ids) + self.head(self.body(self.embedding(ids)))


def written_once(write: Any) -> Any:
    steps: list[int] = []

    def after_step(model: Any, _: Any) -> None:
        steps.append(1)
        with torch.no_grad():
            if len(steps) == 6:
                write(model)

    return after_step


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("first", [1, 2, 8, 15, 16])
def test_a_write_in_place_is_counted_whatever_the_share_of_tensors(first: int, dtype: Any, tmp_path: Path) -> None:
    halve = written_once(lambda model: [one.mul_(0.5) for one in list(model.parameters())[:first]])
    rows = recorded(tmp_path, make=lambda: Deep().to(dtype), steps=9, after_step=halve)
    assert column(rows, "outside_writes") == [None, *[0] * 5, first, 0, 0]


@pytest.mark.parametrize(
    "write",
    [
        lambda model: model.body[2].weight.neg_(),
        lambda model: model.body[1].weight.copy_(model.body[1].weight.flip(0)),
        lambda model: model.body[1].weight.mul_(0.5).add_(0.01),
    ],
    ids=["the sign", "the order of rows", "two writes"],
)
def test_a_write_in_place_to_one_of_many_tensors_is_counted_whatever_it_writes(write: Any, tmp_path: Path) -> None:
    found = column(recorded(tmp_path, make=Deep, steps=9, after_step=written_once(write)), "outside_writes")
    assert found == [None, *[0] * 5, 1, 0, 0]


def test_a_write_beside_parameters_that_came_or_went_is_counted(tmp_path: Path) -> None:
    def grow(model: Any) -> None:
        model.body[1].weight.mul_(0.5)
        model.more = torch.nn.Linear(4, 4)

    def shrink(model: Any) -> None:
        model.body[1].weight.mul_(0.5)
        model.body[2].bias = None

    for change in (grow, shrink):
        rows = recorded(tmp_path / change.__name__, make=Deep, steps=9, after_step=written_once(change))
        assert column(rows, "outside_writes") == [None, *[0] * 5, 1, 0, 0]


def test_a_write_beside_weights_of_eight_bits_is_counted(tmp_path: Path) -> None:
    def make() -> Any:
        model = Deep()
        model.scales = torch.nn.Parameter(torch.ones(9, dtype=torch.int8), requires_grad=False)
        return model

    write = written_once(lambda model: model.body[1].bias.add_(1))
    found = column(recorded(tmp_path, make=make, steps=9, after_step=write), "outside_writes")
    assert found == [None, *[0] * 5, 1, 0, 0]


@pytest.mark.parametrize("way", [{"foreach": True}, {"fused": True}, {"foreach": False}], ids=str)
def test_averages_weights_in_common_and_writes_of_what_is_there_are_no_write(way: Any, tmp_path: Path) -> None:
    averages: list[Any] = []

    def make() -> Any:
        model = Deep()
        model.head.weight = model.embedding.weight
        return model

    def optimizer_of(model: Any) -> Any:
        averages.append(torch.optim.swa_utils.AveragedModel(model))
        return torch.optim.AdamW(model.parameters(), **way)

    def harmless(model: Any, _: Any) -> None:
        averages[0].update_parameters(model)
        model.body[1].load_state_dict(model.body[1].state_dict())
        with torch.no_grad():
            model.head.weight.clamp_(-1e9, 1e9)

    rows = recorded(tmp_path, make=make, optimizer_of=optimizer_of, steps=9, after_step=harmless)
    assert {*column(rows, "outside_writes")} <= {None, 0}


def evaluate(model: Any) -> None:
    with torch.no_grad():
        model.eval()(torch.zeros(2, 3, dtype=torch.int64))
    model.train()


@pytest.mark.parametrize("around", [False, True], ids=["in place", "around torch's count"])
def test_a_write_to_any_tensor_is_seen_from_an_evaluation_on(around: bool, tmp_path: Path) -> None:
    steps: list[int] = []

    def writes(model: Any, _: Any) -> None:
        steps.append(1)
        if len(steps) == 5:
            evaluate(model)
            weight = model.norm.weight.data if around else model.norm.weight.detach()
            weight.mul_(1.5)

    assert column(recorded(tmp_path, steps=8, after_step=writes), "outside_writes") == [None, *[0] * 4, 1, 0, 0]


@pytest.mark.parametrize("around", [False, True], ids=["in place", "around torch's count"])
def test_an_average_that_is_evaluated_in_the_place_of_weights_and_put_back_is_no_write(
    around: bool, tmp_path: Path
) -> None:
    def averaged(model: Any, _: Any) -> None:
        own = [one.detach().clone() for one in model.parameters()]
        weights = [one.data if around else one.detach() for one in model.parameters()]
        for one in weights:
            one.mul_(0.9)
        evaluate(model)
        for one, was in zip(weights, own, strict=True):
            one.copy_(was)

    assert not any(column(recorded(tmp_path, steps=24, after_step=averaged), "outside_writes")[1:])


def test_a_tensor_that_an_update_leaves_is_unmoved_unless_its_learning_rate_is_zero(tmp_path: Path) -> None:
    def stuck(model: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-12)
        optimizer.add_param_group({"params": torch.zeros(1)})
        return optimizer

    def zero(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.0)

    assert min(column(recorded(tmp_path, optimizer_of=stuck), "unmoved")) >= 3
    assert column(recorded(tmp_path / "zero", optimizer_of=zero), "unmoved") == [0, 0, 0]


def test_counters_lag_by_the_updates_that_an_optimizer_forgot(tmp_path: Path) -> None:
    steps: list[int] = []

    def forget(_: Any, optimizer: Any) -> None:
        steps.append(1)
        if len(steps) == 2:
            optimizer.state.clear()

    assert column(recorded(tmp_path, steps=4, after_step=forget), "step_counter_lag") == [0, 0, 2, 2]


def test_counters_go_on_from_where_they_were_and_a_tensor_without_gradient_does_not_lag(tmp_path: Path) -> None:
    def resumed(model: Any) -> Any:
        optimizer = torch.optim.AdamW(model.parameters())
        for one in model.parameters():
            one.grad = torch.ones_like(one)
        for _ in range(5):
            optimizer.step()
        optimizer.zero_grad()
        return optimizer

    steps: list[int] = []

    def sometimes(model: Any, _: Any) -> None:
        steps.append(1)
        if len(steps) == 2:
            model.qkv.weight.grad = None

    rows = recorded(tmp_path, optimizer_of=resumed, before_update=sometimes)
    assert column(rows, "step_counter_lag") == [0, 0, 0]


def test_an_optimizer_without_counters_has_none_to_compare(tmp_path: Path) -> None:
    rows = recorded(tmp_path, optimizer_of=lambda model: torch.optim.SGD(model.parameters(), lr=0.1))
    assert column(rows, "step_counter_lag") == [None] * 3


@pytest.mark.filterwarnings("default")  # torch warns of itself while it compiles
@pytest.mark.slow
def test_updates_that_run_compiled_are_not_counted_and_not_judged(tmp_path: Path) -> None:
    def compiled(model: Any) -> Any:
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.step = torch.compile(optimizer.step, backend="eager")
        return optimizer

    rows = recorded(tmp_path, make=Language, optimizer_of=compiled)
    assert column(rows, "step_counter_lag") == [None] * 3
    assert column(rows, "unmoved") == [None] * 3


def test_momentum_that_is_forgotten_lags_by_all_updates(tmp_path: Path) -> None:
    def forget(_: Any, optimizer: Any) -> None:
        optimizer.state.clear()

    def momentum(model: Any) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    assert column(recorded(tmp_path / "a", optimizer_of=momentum), "step_counter_lag") == [0, 0, 0]
    assert column(recorded(tmp_path / "b", optimizer_of=momentum, after_step=forget), "step_counter_lag")[1:] == [1, 2]
