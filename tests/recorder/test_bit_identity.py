"""The recorder changes nothing that is trained, however it is trained, and switches no compiler off."""

from __future__ import annotations

import copy
import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.scenarios import learnt, loop  # noqa: E402

from weighbridge.recorder import Recorder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("default")  # torch warns of itself while it compiles

compiled = partial(torch.compile, backend="aot_eager")


class Wrapper(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Any) -> Any:
        return self.model(ids)


def in_place(model: Any) -> Any:
    wrapper = Wrapper(model)
    wrapper.compile(backend="aot_eager")
    return wrapper


def inner(model: Any) -> Any:
    model[2] = torch.compile(model[2], backend="aot_eager")
    return model


def function(model: Any) -> Any:
    def forward(ids: Any) -> Any:
        return model(ids)

    return torch.compile(forward, backend="aot_eager")


def events(path: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def probe(path: Path) -> dict[str, Any]:
    return events(path, "device")[0]


WAYS: dict[str, dict[str, Any]] = {
    "eager": {},
    "bfloat16": {"autocast": torch.bfloat16},
    "scaler": {"autocast": torch.float16, "scaler": True},
    "accumulation": {"micro_batches": 2},
    "evaluation": {"evaluate": True},
    "compiled, evaluation": {"wrap": compiled, "evaluate": True},
    "compiled, raw model given": {"wrap": compiled},
    "compiled, compiled model given": {"wrap": compiled, "given": lambda model: model},
    "compiled in place": {"wrap": in_place},
    "compiled inside": {"wrap": inner},
    "compiled function": {"wrap": function},
    "compiled, bfloat16, scaler": {"wrap": compiled, "autocast": torch.bfloat16, "scaler": True},
    "compiled update": {"compile_step": "aot_eager"},
    "compiled update and model": {"compile_step": "aot_eager", "wrap": compiled},
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("channels", ["default", "all"])
@pytest.mark.parametrize("way", WAYS)
def test_what_is_learnt_and_what_is_compiled_are_the_same_with_and_without(
    way: str, channels: str, tmp_path: Path
) -> None:
    alone = learnt(lambda: loop(None, **WAYS[way]))
    recorded = learnt(lambda: loop(tmp_path / "a", probe_every=1, kernels_every=1, channels=channels, **WAYS[way]))
    assert recorded == alone
    assert bool(alone.graphs) == ("compiled" in way)
    found = probe(tmp_path / "a")
    assert found["dispatch"] == ("not-audited" if "compiled" in way else "audited")
    assert ("compiled" in found["why"].get("dispatch", "")) == ("compiled" in way)
    assert bool(found["ops"]) == ("compiled" not in way)
    sampled = events(tmp_path / "a", "kernels")
    assert all(one["why"] for one in sampled)  # of the host alone no device tells
    assert [bool(one.get("ops")) for one in sampled][1:] == ["compiled" not in way] * (len(sampled) - 1)
    assert len(sampled) > 1


class Hooked(torch.nn.Linear):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        super().__init__(3, 3)
        self.register_forward_hook(doubled)


def doubled(_: object, __: object, output: Any) -> Any:
    return output * 2


def pickled(model: Any) -> Any:
    torch.save(model, file := io.BytesIO())
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("copied", [pickled, copy.deepcopy], ids=["pickled", "copied"])
def test_a_model_that_is_recorded_is_saved_and_copied_whole_and_the_copy_is_not_recorded(
    copied: Any, tmp_path: Path
) -> None:
    model, rows = Hooked(), torch.ones(2, 3)
    with Recorder(tmp_path / "run", model, torch.optim.SGD(model.parameters(), lr=0.1)) as recorder:
        other = copied(model)
        assert torch.equal(other(rows), model(rows))
        (loss := model(rows).sum()).backward()
        recorder.step(loss)
    assert len(other._forward_hooks) == 1
    assert not other._forward_pre_hooks
    assert "__getstate__" not in {**vars(other), **vars(model)}
    assert copied(model)._forward_hooks.keys() == model._forward_hooks.keys()
