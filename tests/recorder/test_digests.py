"""Digests of checkpoints: of the states themselves, the same wherever the state is the same, and of nothing else."""

from __future__ import annotations

import copy
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.recorder.models import TinyGPT, batches, language_loss  # noqa: E402

from weighbridge.core.local_files import files_sha256  # noqa: E402
from weighbridge.recorder import Recorder, digests  # noqa: E402
from weighbridge.recorder.digests import random_state_sha, state_sha  # noqa: E402
from weighbridge.views.run import open_run  # noqa: E402


def checkpointed(path: Path, work: Any, steps: int = 3, **options: Any) -> list[dict[str, Any]]:
    """Train with a checkpoint after each step, and return what was logged of them."""
    model, optimizer = work
    with Recorder(path, model, optimizer, **options) as rec:
        for batch in batches(steps):
            optimizer.zero_grad()
            loss = language_loss(model, batch)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            rec.step(loss)
            torch.save(model.state_dict(), path / "model.pt")
            rec.checkpoint(path / "model.pt")
    return events(path, "checkpoint")


def work(seed: int = 0) -> Any:
    torch.manual_seed(seed)
    model = TinyGPT()
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def events(path: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def test_a_checkpoint_is_logged_with_digests_of_what_was_trained_and_of_its_file(tmp_path: Path) -> None:
    model, optimizer = work()
    found = checkpointed(tmp_path / "a", (model, optimizer))
    assert [event["step"] for event in found] == [1, 2, 3]
    last = found[-1]
    assert last["model_sha"] == state_sha(torch.load(tmp_path / "a" / "model.pt"))
    assert last["optimizer_state_sha"] == state_sha(copy.deepcopy(optimizer.state_dict()))
    assert last["rng_sha"] == random_state_sha()
    assert last["files"] == {"checkpoint": hashlib.sha256((tmp_path / "a" / "model.pt").read_bytes()).hexdigest()}
    for name in ("model_sha", "optimizer_state_sha", "rng_sha"):
        assert len({event[name] for event in found}) == 3
    assert open_run(tmp_path / "a").events


def test_two_runs_that_are_the_same_have_the_same_digests_and_another_seed_others(tmp_path: Path) -> None:
    names = ("model_sha", "optimizer_state_sha", "rng_sha")
    one, same, other = (
        [[event[name] for name in names] for event in checkpointed(tmp_path / name, work(seed))]
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert one == same
    assert not {sha for event in one for sha in event} & {sha for event in other for sha in event}


def test_training_and_its_random_numbers_are_the_same_with_and_without_checkpoints(tmp_path: Path) -> None:
    model, optimizer = work()
    checkpointed(tmp_path / "a", (model, optimizer))
    watched = state_sha([model.state_dict(), optimizer.state_dict()]), random_state_sha()
    model, optimizer = work()
    for batch in batches(3):
        optimizer.zero_grad()
        language_loss(model, batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (state_sha([model.state_dict(), optimizer.state_dict()]), random_state_sha()) == watched


@pytest.mark.parametrize("change", ["bit", "shape", "dtype", "name", "value", "order"])
def test_any_change_of_a_state_is_another_digest_and_the_order_of_names_is_none(change: str) -> None:
    first: dict[str, Any] = {"a": torch.zeros(2, 3), "b": {"step": 1.0, "of": [torch.ones(2), None]}}
    other = copy.deepcopy(first)
    if change == "bit":
        other["b"]["of"][0][1] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    elif change == "shape":
        other["a"] = torch.zeros(3, 2)
    elif change == "dtype":
        other["a"] = torch.zeros(2, 3, dtype=torch.int32)
    elif change == "name":
        other["c"] = other.pop("a")
    elif change == "value":
        other["b"]["step"] = 2.0
    else:
        other = dict(reversed(other.items()))
    assert (state_sha(first) == state_sha(other)) == (change == "order")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int64, torch.complex64])
def test_a_state_is_hashed_in_pieces_whatever_its_layout(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(24).reshape(4, 6).to(dtype)
    whole = state_sha(tensor)
    monkeypatch.setattr(digests, "CHUNK", 5)
    assert state_sha(tensor) == state_sha(tensor.t().contiguous().t()) == whole
    assert state_sha([torch.tensor(3).to(dtype), torch.empty(0, 3).to(dtype)]) != state_sha([])


def test_what_python_numpy_and_torch_draw_from_is_in_the_digest_of_random_numbers() -> None:
    seen = {random_state_sha()}
    for draw in (random.random, np.random.random, lambda: torch.rand(1)):
        draw()
        seen.add(random_state_sha())
    assert len(seen) == 4


def test_a_folder_is_hashed_by_its_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a" / "deep").mkdir(parents=True)
    (tmp_path / "a" / "deep" / "x").write_text("1")
    first = files_sha256(tmp_path / "a")
    (tmp_path / "a" / "deep" / "x").rename(tmp_path / "a" / "deep" / "y")
    assert files_sha256(tmp_path / "a") != first


def test_run_json_has_the_digests_of_files_that_the_run_rests_on(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    files = {"tokenizer": tmp_path / "tokenizer.json", "corpus": tmp_path / "nowhere"}
    with pytest.warns(RuntimeWarning, match="_digest"):
        checkpointed(tmp_path / "a", work(), files=files)
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert run["digests"] == {"tokenizer": hashlib.sha256(b"{}").hexdigest()}
    assert [event["costs"] for event in events(tmp_path / "a", "recorder-failure")] == [["digests"]]


def test_a_checkpoint_that_is_not_there_costs_its_event_and_no_training(tmp_path: Path) -> None:
    model, optimizer = work()
    recorder = Recorder(tmp_path / "a", model, optimizer)

    def run() -> None:
        with recorder:
            recorder.step(1.0)
            recorder.checkpoint(tmp_path / "nowhere")
            recorder.step(1.0)

    with pytest.warns(RuntimeWarning, match="checkpoint"):
        run()
    assert [event["costs"] for event in events(tmp_path / "a", "recorder-failure")] == [["checkpoint"]]
    assert not events(tmp_path / "a", "checkpoint")
    assert len((tmp_path / "a" / "steps.jsonl").read_text().splitlines()) == 2


def test_of_a_model_that_would_gather_its_shards_no_digest_is_taken(tmp_path: Path) -> None:
    model, _ = work()
    model.head.__class__ = type("FullyShardedDataParallel", (torch.nn.Linear,), {})
    with Recorder(tmp_path / "a", model) as rec:
        rec.checkpoint()
    (event,) = events(tmp_path / "a", "checkpoint")
    assert set(event) == {"event", "step", "rng_sha", "files"}
