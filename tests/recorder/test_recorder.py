from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

from tests.recorder.scenarios import loop  # noqa: E402
from tests.recorder.training import BATCH, PASS, ROWS, SEQ, SHAPE, training  # noqa: E402

from weighbridge.core.errors import SubjectError  # noqa: E402
from weighbridge.recorder import Recorder  # noqa: E402
from weighbridge.recorder.columns import SEEN  # noqa: E402
from weighbridge.recorder.learning.updates import Norms  # noqa: E402
from weighbridge.run_logs.run_end import run_end  # noqa: E402
from weighbridge.views.run import open_run  # noqa: E402


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def events(path: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in rows(path / "events.jsonl") if event["event"] == name]


def recorded(path: Path, *, passes: int = 1, **options: Any) -> list[dict[str, Any]]:
    work = training()
    with Recorder(path, work.model, work.optimizer, loader=work.loader, on_fail="raise", **SHAPE, **options) as rec:
        work.run(rec.loader, rec.step, passes=passes)
    return rows(path / "steps.jsonl")


# --- Training is the same ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("probe_every", [1, 3, 1000])
def test_training_is_bit_for_bit_the_same_with_and_without_the_recorder(tmp_path: Path, probe_every: int) -> None:
    alone = training()
    alone.run(alone.loader, lambda _: None, passes=3)
    watched = training()
    with Recorder(
        tmp_path / "a", watched.model, watched.optimizer, loader=watched.loader, probe_every=probe_every
    ) as rec:
        watched.run(rec.loader, rec.step, passes=3)
    assert watched.losses == alone.losses
    assert all(torch.equal(one, other) for one, other in zip(alone.weights(), watched.weights(), strict=True))


def test_the_random_state_after_training_is_the_same_with_and_without_the_recorder(tmp_path: Path) -> None:
    alone = training()
    alone.run(alone.loader, lambda _: None)
    state = torch.get_rng_state()
    recorded(tmp_path / "a", probe_every=1)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_recorder_changes_five_lines_of_a_loop_at_most() -> None:
    plain = """
for batch in loader:
    loss = train(model, optimizer, batch)
"""
    watched = """
from weighbridge.recorder import Recorder
with Recorder("runs/a", model, optimizer, loader=loader, requested_device="cuda") as rec:
    for batch in rec.loader:
        loss = train(model, optimizer, batch)
        rec.step(loss)
"""
    kept = {line.strip() for line in plain.splitlines()}
    assert len([line for line in watched.splitlines() if line.strip() not in kept]) <= 5


# --- What is written --------------------------------------------------------------------------------------------------


def test_run_json_binds_the_run_to_process_host_commit_and_devices(tmp_path: Path) -> None:
    recorded(tmp_path / "a", requested_device="cuda", seeds={"data": 3})
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert run["schema"] == "weighbridge.run/v0"
    assert (run["requested_device"], run["resolved_device"], run["pid"]) == ("cuda", "cpu", os.getpid())
    assert run["model"] == {"parameters": 1650, "vocab": 50}
    assert run["data"] == {"seq_len": SEQ, "batch_size": BATCH, "corpus_tokens": ROWS * SEQ}
    assert run["seeds"] == {"torch": 0, "data": 3}
    assert run["versions"]["torch"] == torch.__version__
    assert run["host"].startswith("host-")
    assert run["started"].endswith("Z")
    assert run["dirty"] in (True, False, None)


@pytest.mark.parametrize(("asked", "ended"), [(PASS, "ended"), (PASS + 1, "early"), (None, "ended")])
def test_a_loop_that_is_left_before_its_steps_are_done_ended_early(
    asked: int | None, ended: str, tmp_path: Path
) -> None:
    assert len(recorded(tmp_path / "a", requested_steps=asked)) == PASS
    view = open_run(tmp_path / "a")
    assert view.facts.get("requested_steps") == asked
    assert run_end(view.facts, view.events, view.rows).ended == ended


def test_a_step_is_written_with_what_the_optimizer_was_given(tmp_path: Path) -> None:
    work = training()
    norms = []
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, **SHAPE) as rec:
        for batch in rec.loader:
            loss = work.step(batch)
            norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in work.model.parameters()])))
            rec.step(loss)
    steps = rows(tmp_path / "a" / "steps.jsonl")
    assert [row["step"] for row in steps] == list(range(PASS))
    assert [row["loss"] for row in steps] == work.losses
    assert [row["grad_norm"] for row in steps] == norms
    assert {(row["lr"], row["tokens"], row["wraps"]) for row in steps} == {(1e-2, BATCH * SEQ, 0)}
    assert [row["corpus_position"] for row in steps] == [BATCH * SEQ * n for n in range(1, PASS + 1)]
    assert all(row["wall_ms"] > 0 for row in steps)


def test_a_norm_from_before_clipping_is_taken_over_the_norm_that_the_optimizer_was_given(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer) as rec:
        loss = work.step(next(iter(work.loader)))
        rec.step(loss, grad_norm=torch.tensor(7.5), tokens=11)
    (row,) = rows(tmp_path / "a" / "steps.jsonl")
    assert (row["grad_norm"], row["tokens"]) == (7.5, 11)
    assert "wraps" not in row


def test_a_skipped_update_leaves_the_norm_out_instead_of_making_one_up(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader) as rec:
        next(iter(rec.loader))
        rec.step(float("nan"))
    (row,) = rows(tmp_path / "a" / "steps.jsonl")
    assert "grad_norm" not in row
    assert row["loss"] != row["loss"]


def test_a_batch_without_a_shape_leaves_tokens_and_position_out(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=[object()], on_fail="raise") as rec:
        for _ in rec.loader:
            rec.step(1.0)
    (row,) = rows(tmp_path / "a" / "steps.jsonl")
    assert "tokens" not in row
    assert "corpus_position" not in row


def test_a_loop_that_draws_its_batches_elsewhere_has_no_tokens_no_position_and_no_audit(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, on_fail="raise") as rec:
        work.run(work.loader, rec.step)
    for row in rows(tmp_path / "a" / "steps.jsonl"):
        assert "tokens" not in row
        assert "corpus_position" not in row
    (probe,) = events(tmp_path / "a", "device")
    assert (probe["dispatch"], probe["ops"]) == ("not-audited", {})
    assert probe["why"]["dispatch"].startswith("no batch of this step came from recorder.loader")


# --- Wraps ------------------------------------------------------------------------------------------------------------


def test_each_pass_after_a_dry_one_is_one_wrap_logged_with_its_step(tmp_path: Path) -> None:
    steps = recorded(tmp_path / "a", passes=3)
    wraps = events(tmp_path / "a", "wrap")
    assert [(wrap["step"], wrap["wraps"], wrap["corpus_position"]) for wrap in wraps] == [
        (PASS, 1, ROWS * SEQ),
        (2 * PASS, 2, ROWS * SEQ),
    ]
    assert [row["wraps"] for row in steps] == [0] * PASS + [1] * PASS + [2] * PASS
    assert steps[PASS]["corpus_position"] == BATCH * SEQ


def test_cycling_wraps_as_often_as_the_loader_runs_dry(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, **SHAPE) as rec:
        for _, batch in zip(range(2 * PASS + 1), rec.cycle(), strict=False):
            rec.step(work.step(batch))
    assert [wrap["step"] for wrap in events(tmp_path / "a", "wrap")] == [PASS, 2 * PASS]


def test_a_pass_that_is_broken_off_restarts_and_does_not_wrap(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, **SHAPE) as rec:
        for _ in range(2):
            rec.step(work.step(next(iter(rec.loader))))
    assert events(tmp_path / "a", "wrap") == []
    assert [(one["step"], one["corpus_position"]) for one in events(tmp_path / "a", "restart")] == [(1, BATCH * SEQ)]


def test_an_iterator_that_goes_on_where_it_was_neither_wraps_nor_restarts(tmp_path: Path) -> None:
    work = training()
    stream = iter(list(work.loader))
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=stream, **SHAPE) as rec:
        for _ in range(2):
            rec.step(work.step(next(iter(rec.loader))))
    assert [row["corpus_position"] for row in rows(tmp_path / "a" / "steps.jsonl")] == [BATCH * SEQ, 2 * BATCH * SEQ]
    assert events(tmp_path / "a", "restart") == []


def test_a_stream_that_has_run_dry_for_good_is_reported_and_never_made_up(tmp_path: Path) -> None:
    work = training()
    stream = iter(list(work.loader))

    def train() -> None:
        with Recorder(tmp_path / "a", work.model, work.optimizer, loader=stream, **SHAPE) as rec:
            work.run(rec.cycle(), rec.step)

    with pytest.raises(RuntimeError, match="ran dry and gave no batch"):
        train()
    assert len(rows(tmp_path / "a" / "steps.jsonl")) == PASS
    assert [event["step"] for event in events(tmp_path / "a", "exhausted")] == [PASS]
    assert events(tmp_path / "a", "end")[0]["by"] == "RuntimeError"


def test_the_watched_loader_is_otherwise_the_loader(tmp_path: Path) -> None:
    work = training()
    rec = Recorder(tmp_path / "a", work.model, loader=work.loader)
    assert len(rec.loader) == len(work.loader)
    assert rec.loader.batch_size == BATCH


# --- Probes -----------------------------------------------------------------------------------------------------------


def test_a_probe_tells_where_tensors_and_results_are_and_who_saw_it(tmp_path: Path) -> None:
    recorded(tmp_path / "a", requested_device="cuda", probe_every=3)
    probes = events(tmp_path / "a", "device")
    assert [probe["step"] for probe in probes] == [0, 3]
    for probe in probes:
        assert probe["parameters"] == probe["gradients"] == {"cpu": 6600}
        assert probe["optimizer"] == {"cpu": 13200}
        assert probe["optimizer_scalars"] == {"cpu": 12}
        assert probe["dispatch"] == "audited"
        assert probe["ops"]["cpu"] > 20
        assert (
            any(name.startswith("aten.addmm") for name in probe["op_names"]["cpu"])
            or len(probe["op_names"]["cpu"]) == 8
        )
        assert {"by": "device-files", "pid": os.getpid(), "files": []} in probe["witnesses"]
        assert probe["why"]["allocated"] == "cpu has no device memory"


def test_an_audit_counts_the_step_and_not_the_making_of_batches(tmp_path: Path) -> None:
    work = training()

    def batches() -> Any:
        for batch in work.loader:
            yield (batch.double().sigmoid() * 0).long() + batch  # floating-point work on the host

    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=list(batches()), probe_every=1) as rec:
        work.run(rec.loader, rec.step)
    made = training()

    class Making:
        def __iter__(self) -> Any:
            return batches()

    with Recorder(tmp_path / "b", made.model, made.optimizer, loader=Making(), probe_every=1) as rec:
        made.run(rec.loader, rec.step)
    ready, making = (events(tmp_path / name, "device") for name in ("a", "b"))
    assert [probe["ops"] for probe in ready[1:]] == [probe["ops"] for probe in making[1:]]


def test_gradients_that_are_gone_by_the_probe_were_seen_before_the_update(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader) as rec:
        for batch in rec.loader:
            loss = work.step(batch)
            work.optimizer.zero_grad(set_to_none=True)
            rec.step(loss)
    assert events(tmp_path / "a", "device")[0]["gradients"] == {"cpu": 6600}


def test_a_compiled_model_is_not_audited_and_the_reason_is_reported(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    work = training()
    request.addfinalizer(torch._dynamo.utils.counters.clear)
    compiled = torch.compile(work.model, backend="eager")
    with Recorder(tmp_path / "a", compiled, work.optimizer, loader=work.loader, on_fail="raise") as rec:
        work.run(rec.loader, rec.step)
    (probe,) = events(tmp_path / "a", "device")
    assert probe["dispatch"] == "not-audited"
    assert probe["why"]["dispatch"].startswith("the model is compiled")


def test_a_recorder_without_an_optimizer_says_that_it_has_none(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, loader=work.loader, on_fail="raise") as rec:
        work.run(rec.loader, rec.step)
    (probe,) = events(tmp_path / "a", "device")
    assert probe["why"]["optimizer"] == "the recorder was given no optimizer"
    assert "optimizer" not in probe


def test_somebody_elses_dispatch_mode_above_the_audit_is_left_alone(tmp_path: Path) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

    class Theirs(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    work = training()
    with Recorder(
        tmp_path / "a", work.model, work.optimizer, loader=work.loader, probe_every=1, on_fail="raise"
    ) as rec:
        for batch in rec.loader:
            with Theirs() as theirs:  # type: ignore[no-untyped-call]
                rec.step(work.step(batch))
                assert _get_current_dispatch_mode() is theirs
    assert _get_current_dispatch_mode() is None


# --- Failing ----------------------------------------------------------------------------------------------------------


def test_what_fails_in_the_recorder_is_written_down_warned_of_once_and_kept_out_of_training(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader) as rec:
        batches = iter(rec.loader)
        loss = work.step(next(batches))
        with pytest.warns(RuntimeWarning, match=r"failed in step: RuntimeError: .* 3 elements .*; training goes on"):
            rec.step(torch.zeros(3))  # no scalar, so no loss
        rec.step(torch.zeros(3))
        rec.step(loss)
    failures = events(tmp_path / "a", "recorder-failure")
    assert [event["what"] for event in failures] == [
        "step: RuntimeError: a Tensor with 3 elements cannot be converted to Scalar"
    ] * 2
    assert {"loss", "wall_ms", "grad_norm"} <= set(failures[0]["costs"])
    assert [row["step"] for row in rows(tmp_path / "a" / "steps.jsonl")] == [2]


def test_a_failure_is_raised_where_that_was_asked_for(tmp_path: Path) -> None:
    work = training()
    with (
        Recorder(tmp_path / "a", work.model, work.optimizer, on_fail="raise") as rec,
        pytest.raises(RuntimeError, match="3 elements cannot be converted"),
    ):
        rec.step(torch.zeros(3))


def test_a_directory_that_cannot_be_made_costs_the_record_and_not_the_training(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    work = training()
    with pytest.warns(RuntimeWarning, match="failed in _claim: NotADirectoryError: .* <path>; training"):  # noqa: SIM117
        with Recorder(tmp_path / "file" / "a", work.model, work.optimizer, loader=work.loader) as rec:
            work.run(rec.loader, rec.step)
    assert len(work.losses) == PASS


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:-1", "CUDA", ""])
def test_a_device_that_no_run_can_ask_for_is_refused_before_training(tmp_path: Path, device: str) -> None:
    with pytest.raises(ValueError, match="a run asks for cpu, cuda, cuda:N, mps or auto"):
        Recorder(tmp_path / "a", training().model, requested_device=device)


def test_each_rank_writes_a_directory_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert Recorder(tmp_path / "a", training().model).directory == tmp_path / "a" / "rank-1"
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert Recorder(tmp_path / "a", training().model).directory == tmp_path / "a"


# --- Being killed -----------------------------------------------------------------------------------------------------

KILLED = """
import sys
from pathlib import Path
from tests.recorder.training import training
from weighbridge.recorder import Recorder
work = training()
with Recorder(sys.argv[1], work.model, work.optimizer, loader=work.loader, seq_len=8) as rec:
    for number, batch in enumerate(rec.cycle()):
        rec.step(work.step(batch))
        print(number, flush=True)
"""


def started(*arguments: str, **more: Any) -> subprocess.Popen[str]:
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *arguments], env=environment, text=True, **more)


@pytest.mark.slow
def test_a_killed_run_leaves_a_log_that_can_be_read_and_lost_the_step_under_way_at_most(tmp_path: Path) -> None:
    process = started("-c", KILLED, str(tmp_path / "a"), stdout=subprocess.PIPE)
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == 70:
                process.send_signal(signal.SIGKILL)
                break
        last = int([line, *process.stdout.read().splitlines()][-1])
    assert process.returncode == -signal.SIGKILL
    run = open_run(tmp_path / "a")
    assert run.facts["pid"] == process.pid
    assert last + 1 <= run.rows <= last + 2
    assert not run.notes.get("torn_last_line")
    assert [event["event"] for event in run.events][:2] == ["device", "wrap"]
    assert "end" not in [event["event"] for event in run.events]


# --- Wrong calls ------------------------------------------------------------------------------------------------------


def test_a_call_that_could_never_have_worked_is_raised_in_the_first_step(tmp_path: Path) -> None:
    work = training()
    with (
        Recorder(tmp_path / "a", work.model, work.optimizer) as rec,
        pytest.raises(TypeError, match="too many positional arguments|takes 2 positional"),
    ):
        rec.step(1.0, 2.0)  # type: ignore[call-arg]


def test_a_scalar_is_a_column_and_one_that_the_recorder_writes_itself_is_refused(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer) as rec:
        with pytest.raises(TypeError, match="the recorder writes wall_ms itself; give yours another name"):
            rec.step(1.0, wall_ms=2.0)
        rec.step(1.0, val_loss=torch.tensor(2.5), accuracy=None, **{"eval/bleu": 7})
    row = rows(tmp_path / "a" / "steps.jsonl")[-1]
    assert (row["val_loss"], row["eval/bleu"], row.get("accuracy", "none")) == (2.5, 7.0, "none")


def test_a_script_that_updates_by_hand_logs_its_own_rate(tmp_path: Path) -> None:
    with Recorder(tmp_path / "a", training().model) as rec:
        rec.step(1.0, lr=0.5)
    assert [row["lr"] for row in rows(tmp_path / "a" / "steps.jsonl")] == [0.5]


def test_a_wrong_call_later_on_is_a_failure_on_record_and_shifts_no_step(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer) as rec:
        rec.step(1.0)
        with pytest.warns(RuntimeWarning, match="TypeError"):
            rec.step(1.0, 2.0)  # type: ignore[call-arg]
        rec.step(3.0)
    (failure,) = events(tmp_path / "a", "recorder-failure")
    assert (failure["step"], failure["what"][:16]) == (1, "step: TypeError:")
    assert [row["step"] for row in rows(tmp_path / "a" / "steps.jsonl")] == [0, 2]


# --- Updates ----------------------------------------------------------------------------------------------------------


def test_a_norm_is_reported_as_it_arrived_and_as_the_clipped_update_used_it(tmp_path: Path) -> None:
    work = training()
    arrived: list[float] = []
    with Recorder(tmp_path / "a", work.model, work.optimizer, on_fail="raise") as rec:
        for batch in work.loader:
            for part in batch.chunk(2):  # accumulated over two backward passes
                logits = work.model(part[:, :-1])
                (nn.functional.cross_entropy(logits.flatten(0, 1), part[:, 1:].flatten()) / 2).backward()
            arrived.append(nn.utils.clip_grad_norm_(work.model.parameters(), 0.1).item())
            work.optimizer.step()
            work.optimizer.zero_grad()
            rec.step(1.0)
    found = rows(tmp_path / "a" / "steps.jsonl")
    assert [row["grad_norm"] for row in found] == arrived
    assert [row["grad_norm_used"] for row in found] == pytest.approx([0.1] * len(found), rel=1e-4)


def test_a_norm_is_reported_in_the_units_of_the_loss_whatever_a_scaler_multiplied_by(tmp_path: Path) -> None:
    norms: list[list[float]] = []
    for scaler in (torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2), None):
        work = training()
        directory = tmp_path / str(scaler is None)
        with Recorder(directory, work.model, work.optimizer, on_fail="raise") as rec:
            for batch in work.loader:
                logits = work.model(batch[:, :-1])
                loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
                (scaler.scale(loss) if scaler else loss).backward()
                if scaler:
                    scaler.step(work.optimizer)
                    scaler.update()
                else:
                    work.optimizer.step()
                work.optimizer.zero_grad()
                rec.step(loss)
        found = rows(directory / "steps.jsonl")
        norms += [[row[name] for row in found] for name in ("grad_norm", "grad_norm_used")]
    assert norms[0] == pytest.approx(norms[2], rel=1e-5)
    assert norms[1] == pytest.approx(norms[2], rel=1e-5)


def test_a_step_that_a_scaler_skipped_says_that_its_gradients_were_not_finite(tmp_path: Path) -> None:
    work = training()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126)
    with Recorder(tmp_path / "a", work.model, work.optimizer, on_fail="raise") as rec:
        for batch in work.loader:
            logits = work.model(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            work.optimizer.zero_grad()
            scaler.scale(loss * 100).backward()
            scaler.step(work.optimizer)
            scaler.update()
            rec.step(loss)
    with Recorder(tmp_path / "b", work.model, work.optimizer, on_fail="raise") as rec:
        work.step(batch)
        rec.step(1.0)
        work.model(batch[:, :-1]).sum().backward()
        rec.step(1.0)
    first = rows(tmp_path / "a" / "steps.jsonl")[0]
    assert (first["skipped"], first["gradients_finite"], "grad_norm" in first) == (True, 0.0, False)
    last = rows(tmp_path / "b" / "steps.jsonl")[1]
    assert (last["skipped"], last["gradients_finite"]) == (True, 1.0)


def test_every_row_has_the_time_of_day_a_clock_that_is_never_set_and_the_phases_of_its_step(tmp_path: Path) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, on_fail="raise", **SHAPE) as rec:
        work.run(rec.loader, rec.step)
    found = rows(tmp_path / "a" / "steps.jsonl")
    for row in found:
        phases = [row[name] for name in ("fetch_ms", "forward_ms", "backward_ms", "update_ms")]
        assert min(phases) > 0
        assert sum(phases) < row["wall_ms"] + phases[0]
        for lasted in (*phases, row["wall_ms"], row["cpu_ms"]):
            assert lasted == round(lasted, 6)  # whole nanoseconds, so that a tick said twice is no placeholder
        assert row["tokens_per_sec"] == pytest.approx(row["tokens"] / row["wall_ms"] * 1e3)
    assert [row["monotonic_s"] for row in found] == sorted(row["monotonic_s"] for row in found)
    assert abs(found[0]["time"] - time.time()) < 3600


def test_a_channel_that_fails_costs_its_columns_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise ArithmeticError("no such moment")

    monkeypatch.setattr(Norms, "backward_ended", broken)
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer) as rec, pytest.warns(RuntimeWarning, match="Norms"):
        work.run(work.loader, rec.step)
    plain = training()
    plain.run(plain.loader, lambda _: None)
    assert all(map(torch.equal, work.weights(), plain.weights()))
    (failure,) = events(tmp_path / "a", "recorder-failure")
    assert failure["what"] == "Norms.backward_ended: ArithmeticError: no such moment"
    assert failure["costs"] == list(Norms.columns)
    assert all("time" in row and "grad_norm" not in row for row in rows(tmp_path / "a" / "steps.jsonl"))


def test_a_norm_is_taken_after_the_closure_of_its_own_step(tmp_path: Path) -> None:
    work = training()
    norms: list[float] = []
    with Recorder(tmp_path / "a", work.model, work.optimizer, on_fail="raise") as rec:
        for batch in work.loader:

            def closure(batch: Any = batch) -> Any:
                work.optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(
                    work.model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten()
                )
                loss.backward()
                norms.append(float(torch.nn.utils.get_total_norm([p.grad for p in work.model.parameters()])))
                return loss

            rec.step(work.optimizer.step(closure))
    assert [row["grad_norm"] for row in rows(tmp_path / "a" / "steps.jsonl")] == norms


def test_an_optimizer_that_cannot_be_watched_costs_its_columns_and_no_clock(tmp_path: Path) -> None:
    class Odd:
        param_groups = ({"lr": 0.5},)
        state: types.MappingProxyType[str, Any] = types.MappingProxyType({})

    with pytest.warns(RuntimeWarning, match="AttributeError: 'Odd' object has no attribute 'register_step_pre_hook'"):  # noqa: SIM117
        with Recorder(tmp_path / "a", training().model, Odd()) as rec:  # type: ignore[arg-type]
            rec.step(1.0)
    (row,) = rows(tmp_path / "a" / "steps.jsonl")
    assert 0 < row["wall_ms"] < 60_000
    assert "skipped" not in row
    assert events(tmp_path / "a", "recorder-failure")[0]["costs"] == [*SEEN, "skipped"]


def test_a_step_without_a_start_has_no_duration(tmp_path: Path) -> None:
    rec = Recorder(tmp_path / "a", training().model)
    rec._claim()
    rec.step(1.0)
    rec._close(None)
    (row,) = rows(tmp_path / "a" / "steps.jsonl")
    assert not {"wall_ms", "cpu_ms"} & set(row)


def test_steps_that_the_scaler_skipped_are_reported_and_have_no_norm(tmp_path: Path) -> None:
    loop(tmp_path / "a", autocast=torch.float16, scaler=True)
    found = rows(tmp_path / "a" / "steps.jsonl")
    skipped = [row["step"] for row in found if row.get("skipped")]
    assert 0 < len(skipped) < len(found)
    assert [row["step"] for row in found if "grad_norm" not in row] == skipped
    assert events(tmp_path / "a", "recorder-failure") == []


# --- Tokens -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [torch.ones, lambda *shape: {"input_ids": torch.ones(*shape)}, lambda *s: [torch.ones(*s)]]
)
def test_rows_of_one_more_token_than_the_context_count_the_context(make: Any, tmp_path: Path) -> None:
    loader = [make(BATCH, SEQ + 1)]
    with Recorder(tmp_path / "a", training().model, loader=loader, on_fail="raise", **SHAPE) as rec:
        for _ in rec.loader:
            rec.step(1.0)
    assert [row["tokens"] for row in rows(tmp_path / "a" / "steps.jsonl")] == [BATCH * SEQ]


@pytest.mark.parametrize("by", ["sampler", "word"])
def test_sampled_batches_count_tokens_and_make_no_passes(by: str, tmp_path: Path) -> None:
    ids = torch.ones(ROWS, SEQ + 1)
    sampler = torch.utils.data.RandomSampler(ids, replacement=True) if by == "sampler" else None
    loader = torch.utils.data.DataLoader(ids, batch_size=BATCH, sampler=sampler)
    with Recorder(
        tmp_path / "a", training().model, loader=loader, on_fail="raise", sampled=by == "word", **SHAPE
    ) as rec:
        for _, _batch in zip(range(2 * PASS), rec.cycle(), strict=False):
            rec.step(1.0)
    found = rows(tmp_path / "a" / "steps.jsonl")
    assert [row["tokens"] for row in found] == [BATCH * SEQ] * 2 * PASS
    assert not any({"corpus_position", "wraps"} & set(row) for row in found)
    assert events(tmp_path / "a", "wrap") == []
    assert json.loads((tmp_path / "a" / "run.json").read_text())["data"]["sampled"] is True


# --- A disk that is full, warnings that are errors, other recorders ---------------------------------------------------

FULL = """
import resource, sys
from tests.recorder.training import training
from weighbridge.recorder import Recorder
work = training()
with Recorder(sys.argv[1], work.model, work.optimizer, loader=work.loader, seq_len=8) as rec:
    for number, batch in zip(range(40), rec.cycle()):
        if number in (10, 30):
            size = rec._logs["steps.jsonl"]._whole + 20 if number == 10 else resource.RLIM_INFINITY
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        rec.step(work.step(batch))
"""


@pytest.mark.slow
def test_a_disk_that_is_full_for_a_while_costs_no_row_even_where_warnings_are_errors(tmp_path: Path) -> None:
    process = started("-W", "error::RuntimeWarning", "-c", FULL, str(tmp_path / "a"), stderr=subprocess.PIPE)
    said = process.communicate()[1]
    assert process.returncode == 0, said
    assert said.count("weighbridge recorder: the run directory cannot be written: OSError") == 1
    assert [row["step"] for row in rows(tmp_path / "a" / "steps.jsonl")] == list(range(40))
    assert [event["steps"] for event in events(tmp_path / "a", "end")] == [40]
    assert events(tmp_path / "a", "recorder-failure") == []


def test_rows_that_a_full_disk_cost_are_reported_and_the_log_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer, loader=work.loader, **SHAPE) as rec:
        batches = rec.cycle()
        assert rec._logs["steps.jsonl"] is not None
        rec.step(work.step(next(batches)))
        rec._logs["steps.jsonl"].lost = 3
        rec.step(work.step(next(batches)))
    (failure,) = events(tmp_path / "a", "recorder-failure")
    assert failure["what"] == "3 rows could not be written"
    assert {"loss", "device"} <= set(failure["costs"])


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_the_recorder_says_it_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = training()
    with Recorder(tmp_path / "a", work.model, work.optimizer) as rec:
        rec.step(torch.zeros(3))
    assert "failed in step: RuntimeError" in capsys.readouterr().err


def test_two_recorders_at_once_on_one_directory_never_share_a_file(tmp_path: Path) -> None:
    one, other = (Recorder(tmp_path / "a", training().model, on_fail="raise") for _ in range(2))
    with one, other:
        one.step(1.0)
        other.step(2.0)
    assert (one.directory, other.directory) == (tmp_path / "a", tmp_path / "a" / "attempt-2")
    assert [rows(at.directory / "steps.jsonl")[0]["loss"] for at in (one, other)] == [1.0, 2.0]


# --- Ranks ------------------------------------------------------------------------------------------------------------


@pytest.mark.exhaustive
def test_spawned_ranks_without_an_environment_write_a_directory_each_and_learn_the_same(tmp_path: Path) -> None:
    process = started("-m", "tests.recorder.spawned", str(tmp_path))
    assert process.wait() == 0
    for rank in (0, 1):
        assert len({(tmp_path / f"{name}-{rank}").read_text() for name in ("alone", "early", "late")}) == 1
        for name in ("early", "late"):
            path = tmp_path / name / f"rank-{rank}"
            assert [row["step"] for row in rows(path / "steps.jsonl")] == [0, 1]
            run = json.loads((path / "run.json").read_text())
            assert (run["rank"], run["world_size"]) == (rank, 2)
    assert sorted(path.name for path in (tmp_path / "early").iterdir()) == ["rank-0", "rank-1"]
    with pytest.raises(SubjectError, match="a run of 2 ranks: rank-0, rank-1"):
        open_run(tmp_path / "late")


def test_a_script_that_updates_by_hand_has_its_norms_and_no_step_that_is_taken_for_idle(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = torch.nn.Linear(4, 2), torch.randn(8, 4)
    with Recorder(tmp_path / "run", model) as recorder:
        for _ in range(4):
            model.zero_grad()
            (loss := model(rows).square().mean()).backward()
            norm = torch.nn.utils.get_total_norm([one.grad for one in model.parameters()])
            for one in model.parameters():
                one.data.add_(one.grad, alpha=-0.1)
            recorder.step(loss)
    found = [json.loads(line) for line in (tmp_path / "run" / "steps.jsonl").read_text().splitlines()]
    assert len(found) == 4
    assert not any("gradients_finite" in row for row in found)
    assert found[-1]["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
