from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.recorder.training import training  # noqa: E402

from weighbridge.core import SubjectError, SubjectKind  # noqa: E402
from weighbridge.recorder import Recorder  # noqa: E402
from weighbridge.verifiers import VERIFIERS  # noqa: E402
from weighbridge.views.run import RunView, open_run  # noqa: E402


def recorded(path: Path, losses: list[float], *, fails: bool = False, vocab: int = 50, **more: Any) -> Path:
    work = training()
    rec = Recorder(path, work.model, work.optimizer, loader=work.loader, on_fail="raise", vocab=vocab, **more)
    with contextlib.suppress(LookupError), rec:
        for batch, loss in zip(rec.cycle(), losses, strict=False):
            work.step(batch)
            rec.step(loss)
        if fails:
            raise LookupError("a node was lost")
    return rec.directory


def facts(view: RunView) -> dict[str, Any]:
    measured = VERIFIERS["facts", (SubjectKind.RUN,)].measure((view,), {})
    return {fact.name: fact for fact in measured.value.rows}  # type: ignore[union-attr]


def losses(path: Path) -> list[float]:
    return [*open_run(path).dense("loss").values]


def test_a_run_is_never_recorded_over_another_and_the_next_attempt_is_the_run(tmp_path: Path) -> None:
    assert recorded(tmp_path / "a", [1.0, 2.0, 3.0], fails=True) == tmp_path / "a"
    assert recorded(tmp_path / "a", [4.0, 5.0]) == tmp_path / "a" / "attempt-2"
    view = open_run(tmp_path / "a")
    assert losses(tmp_path / "a") == [4.0, 5.0]
    found = facts(view)
    assert [found[name].value for name in ("ended", "attempts", "attempts_ended", "steps")] == [
        "ended",
        2,
        "raised, ended",
        2,
    ]
    assert "changed_between_attempts" not in found or found["changed_between_attempts"].value == ""
    assert {name for name in view.digests if "attempt-2" in name} == {
        f"attempt-2/{name}" for name in ("run.json", "steps.jsonl", "events.jsonl")
    }


def test_an_attempt_that_resumes_takes_the_place_of_what_it_repeats_and_of_no_more(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0, 3.0], fails=True, requested_steps=5)
    recorded(tmp_path / "a", [4.0, 5.0, 6.0], first_step=2, requested_steps=5)
    view = open_run(tmp_path / "a")
    assert (losses(tmp_path / "a"), [*view.dense("step").values]) == ([1.0, 2.0, 4.0, 5.0, 6.0], [0, 1, 2, 3, 4])
    assert (facts(view)["ended"].value, facts(view)["ended"].contradicted_by) == ("ended", ())


def test_what_an_attempt_saw_of_its_device_is_of_its_own_process(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0, 3.0, 4.0], fails=True)
    head = tmp_path / "a" / "run.json"
    pid = json.loads(head.read_text())["pid"]
    for path in (head, tmp_path / "a" / "events.jsonl"):  # as of a process that is gone
        path.write_text(
            path.read_text().replace(f'"pid":{pid}', f'"pid":{pid + 1}').replace(f'"pid": {pid}', f'"pid": {pid + 1}')
        )
    recorded(tmp_path / "a", [5.0, 6.0], first_step=2)
    found = VERIFIERS["device_evidence", (SubjectKind.RUN,)].measure((open_run(tmp_path / "a"),), {})
    probes = found.value.rows  # type: ignore[union-attr]
    assert [(one.step, one.pid) for one in probes] == [(0, pid + 1), (2, pid)]
    assert all(witness.pid == one.pid for one in probes for witness in one.witnesses)


def test_a_resumed_segment_in_a_directory_of_its_own_counts_the_steps_before_it(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [4.0, 5.0], first_step=3, requested_steps=5)
    found = facts(open_run(tmp_path / "a"))
    assert (found["ended"].value, found["ended"].contradicted_by, found["steps"].value) == ("ended", (), 2)


def test_a_step_between_two_attempts_that_is_in_neither_stays_a_gap(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0], fails=True)
    recorded(tmp_path / "a", [4.0, 5.0], first_step=3)
    assert [*open_run(tmp_path / "a").dense("step").values] == [0, 1, 3, 4]


def test_an_attempt_that_died_before_its_first_step_costs_nothing(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0, 3.0], fails=True)
    recorded(tmp_path / "a", [], fails=True)
    recorded(tmp_path / "a", [4.0, 5.0], first_step=3)
    assert losses(tmp_path / "a") == [1.0, 2.0, 3.0, 4.0, 5.0]
    assert facts(open_run(tmp_path / "a"))["attempts_ended"].value == "raised, raised, ended"


def test_a_last_attempt_that_failed_is_how_the_run_ended(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0])
    recorded(tmp_path / "a", [4.0], first_step=2, fails=True)
    assert facts(open_run(tmp_path / "a"))["ended"].value == "raised"


def test_what_changed_between_attempts_is_named(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0], fails=True, seeds={"data": 1})
    recorded(tmp_path / "a", [2.0], first_step=1, seeds={"data": 2}, requested_device="cpu")
    assert facts(open_run(tmp_path / "a"))["changed_between_attempts"].value == "requested_device, seeds.data"


def test_the_attempt_of_another_run_is_refused(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [9.0, 9.0], fails=True)
    recorded(tmp_path / "b", [1.0], fails=True)
    recorded(tmp_path / "b", [2.0, 1.0])
    shutil.copytree(tmp_path / "b" / "attempt-2", tmp_path / "a" / "attempt-2")
    with pytest.raises(SubjectError, match="attempt-2 is of the run .*, the first attempt of"):
        open_run(tmp_path / "a")


def test_an_attempt_that_is_gone_is_missed(tmp_path: Path) -> None:
    for loss in (1.0, 2.0, 3.0):
        recorded(tmp_path / "a", [loss])
    shutil.rmtree(tmp_path / "a" / "attempt-2")
    with pytest.raises(SubjectError, match="attempt-2 is missing, and attempt-3 is there"):
        open_run(tmp_path / "a")


def test_another_model_takes_over_no_steps_of_this_one(tmp_path: Path) -> None:
    recorded(tmp_path / "a", [1.0, 2.0], fails=True)
    recorded(tmp_path / "a", [3.0], first_step=2, vocab=60)
    with pytest.raises(SubjectError, match="attempt 1 and the last one are joined, and their `model` differs"):
        open_run(tmp_path / "a")


@pytest.mark.parametrize("damage", ["{", '{"schema": "other"}', "[]"])
def test_a_damaged_attempt_is_an_error_and_hides_behind_no_other(tmp_path: Path, damage: str) -> None:
    recorded(tmp_path / "a", [1.0])
    recorded(tmp_path / "a", [2.0])
    (tmp_path / "a" / "attempt-2" / "run.json").write_text(damage)
    with pytest.raises(SubjectError, match=r"attempt-2/run\.json"):
        open_run(tmp_path / "a")


def test_early_steps_are_looked_at_in_a_resumed_segment_too(tmp_path: Path) -> None:
    own = recorded(tmp_path / "a", [1.0] * 12, first_step=5_007)
    probed = [
        event["step"]
        for event in map(json.loads, (own / "events.jsonl").read_text().splitlines())
        if event["event"] == "device"
    ]
    assert probed == [5_007, 5_017]


RESTARTED = """
import os, sys, time
from pathlib import Path
from tests.recorder.training import training
from weighbridge.recorder import Recorder
work = training()
with Recorder(sys.argv[1], work.model, work.optimizer, loader=work.loader, requested_steps=5) as rec:
    for batch in rec.loader:
        rec.step(work.step(batch))
        if rec.directory.name != "attempt-2" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            while len([*Path(sys.argv[1]).rglob("steps.jsonl")]) < int(os.environ["WORLD_SIZE"]):
                time.sleep(0.05)  # or the other rank is stopped before it began
            raise RuntimeError("fails once")
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", [1, 2])
def test_torchrun_restarts_a_script_that_fails_once_and_both_attempts_are_on_record(tmp_path: Path, ranks: int) -> None:
    (tmp_path / "train.py").write_text(RESTARTED)
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "--monitor-interval", "0.1", str(tmp_path / "train.py"), str(tmp_path / "a")],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    for at in [tmp_path / "a"] if ranks == 1 else [tmp_path / "a" / f"rank-{rank}" for rank in range(ranks)]:
        view = open_run(at)
        found = facts(view)
        assert [found[name].value for name in ("ended", "attempts", "steps")] == ["ended", 2, 5]
        assert [*view.dense("step").values] == [0, 1, 2, 3, 4]
