"""`weighbridge watch` as a person types it: exit codes, what is printed, and what it leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.watch.conftest import PATHS, ROOT, TRAINER, Watched

from weighbridge.core import Origin
from weighbridge.views.run import open_run
from weighbridge.watch.book_file import begin_book

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a witness needs /proc and pidfd")

CONTRACT = """\
weighbridge: contract/v0
id: finite
version: 1.0.0
title: Losses are numbers
owner: training
subjects:
  run: {kind: run}
gates:
  - id: GATE-LOSS
    title: The loss is a number in every row
    kind: step-metrics
    subjects: {run: run}
    with: {required: [loss]}
    where: {ended: unknown}
"""
RESTARTED = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=2")
LATE = "  - {id: GATE-SNAPSHOTS, title: s, kind: snapshot-cadence, subjects: {run: run}}\n"
OVER_FILES = CONTRACT.replace("{kind: run}", "{kind: checkpoint}").replace("step-metrics", "checkpoint-integrity")
Typed = Callable[..., Watched]


@pytest.fixture
def typed(tmp_path: Path) -> Typed:
    """Type `weighbridge watch run …` in a folder with a contract."""
    (tmp_path / "c.yaml").write_text(CONTRACT)

    def run(*words: object, limit: str = "", env: dict[str, str] | None = None) -> Watched:
        command = [sys.executable, "-m", "weighbridge", "watch", "run", *map(str, words)]
        command = ["bash", "-c", f'{limit}; exec "$@"', "bash", *command] if limit else command
        environment = {**os.environ, **PATHS, "XDG_STATE_HOME": str(tmp_path / "state"), **(env or {})}
        done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return Watched(done.returncode, done.stdout, done.stderr, tmp_path / "run")

    return run


def trainer(*options: str) -> tuple[str, ...]:
    return ("--contract", "c.yaml", "--", *TRAINER, "run", *options)


def test_a_run_that_passes_exits_as_verify_does_and_is_sealed(typed: Typed) -> None:
    done = typed(*trainer("--rows=20"))
    assert done.code == 0, done.out + done.err
    assert "PASS" in done.out
    assert (done.sealed, done.book[-1]["kind"]) == (True, "end")


def test_a_broken_gate_stops_the_run_exits_1_and_keeps_it_from_going_on_until_released(typed: Typed) -> None:
    done = typed(*trainer("--rows=400", "--hz=20", "--nan=20"))
    assert (done.code, max(row["step"] for row in done.rows()) <= 21) == (1, True), done.err
    assert json.loads((done.run / "STOP.json").read_text())["gate"] == "GATE-LOSS"
    assert "GATE-LOSS" in done.err
    keeps = "GATE-LOSS failed at step 20: run/STOP.json keeps run from going on until you let it, by"
    assert done.out.splitlines()[-1] == f"{keeps} `weighbridge watch run --release REASON`"
    unnamed = typed("--resume", "--", "touch", "started")
    assert (unnamed.code, (done.run.parent / "started").exists()) == (2, False)
    assert "it was begun under finite (" in unnamed.err
    assert "by --contract" in unnamed.err
    again = typed("--resume", "--contract", "c.yaml", "--", "true")
    assert (again.code, "--release" in again.err) == (2, True)
    released = typed("--release", "data mended")
    assert (released.code, (done.run / "STOP.json").exists()) == (0, False), released.err
    assert released.lines("release")[0]["reason"] == "data mended"
    assert released.lines("release")[0]["stop"]["step"] == 20
    assert typed("--release", "again").code == 2
    resumed = typed("--resume", "--contract", "c.yaml", "--", "true")
    assert [line["segment"] for line in resumed.lines("end")] == [1, 2]
    assert (resumed.code, resumed.sealed) == (1, True)  # the NaN lies there still


def on_a_terminal(words: list[str], folder: Path) -> str:
    """Return what a command prints on a terminal."""
    ours, theirs = os.openpty()
    environment = {**os.environ, **PATHS, "XDG_STATE_HOME": str(folder / "state"), "COLUMNS": "200"}
    with subprocess.Popen(words, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        return b"".join(iter(lambda: _read(ours), b"")).decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # EIO: nobody holds the other end
        os.close(terminal)
        return b""


def test_what_is_pending_and_until_when_is_told_on_a_terminal_and_gates_that_wait_to_all(
    typed: Typed, tmp_path: Path
) -> None:
    waits = CONTRACT.replace("    with:", "    due: {step: 5}\n    with:") + LATE
    (tmp_path / "waits.yaml").write_text(waits)
    words = ["run", "--contract", "waits.yaml", "--", *TRAINER, "run", "--rows=30", "--hz=20"]
    said = on_a_terminal([sys.executable, "-m", "weighbridge", "watch", *words], tmp_path)
    assert "PENDING  gates: 1 until step 5, 1 until the run's end" in said
    assert said.index("until step 5") < said.index("PASS")
    late = "not judged before they are due: 1 of 2: GATE-SNAPSHOTS"
    assert late in said
    piped = typed("--resume", "--contract", "waits.yaml", "--", "true")
    assert ("PENDING" in piped.err, late in piped.err) == (False, True)
    assert [line["what"] for line in piped.lines("note") if line["why"] == late] == ["gates", "gates"]


def test_a_log_that_is_not_followed_is_told_and_booked_while_the_run_goes_on(typed: Typed) -> None:
    write = "mkdir run; echo none >run/steps.jsonl; sleep 1"
    done = typed("--contract", "c.yaml", "--", "sh", "-c", write)
    assert "is not followed: not a row of JSON" in done.err
    assert [line["what"] for line in done.lines("note")] == ["a log:"]


def test_usage_that_cannot_be_exits_2_and_starts_nothing(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "files.yaml").write_text(OVER_FILES)
    mark = ("--", "touch", "started")
    assert typed("--contract", "files.yaml", *mark).code == 2
    assert typed("--contract", "absent.yaml", *mark).code == 2
    assert typed("--contract", "c.yaml").code == 2
    assert typed("--release", "why", *mark).code == 2
    (tmp_path / "run").mkdir()
    there = typed("--contract", "c.yaml", *mark)
    assert (there.code, "--resume" in there.err) == (2, True)
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "run.watch").exists()


def test_a_command_that_is_not_there_is_127_and_leaves_no_book(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    denied = "cannot be executed: Permission denied"
    for command, why in (("no-such-command", "not found"), ("./train.py", denied), (str(tmp_path), denied)):
        done = typed("--contract", "c.yaml", "--", command)
        assert (done.code, list(tmp_path.glob("run*"))) == (127, [])
        assert f"{command}: {why}" in done.err


@pytest.mark.parametrize(
    ("ends", "code", "how"), [("3", 3, "ended with code 3"), ("KILL", 137, "was ended by signal 9")]
)
def test_a_code_that_is_the_command_s_own_is_said_last(typed: Typed, ends: str, code: int, how: str) -> None:
    done = typed(*trainer("--rows=20", f"--ends={ends}"))
    assert (done.code, done.out.splitlines()[-1]) == (code, f"the command {how}: the exit code here is {code}")


def test_a_run_that_the_command_never_wrote_is_one_line_and_where_it_wrote(typed: Typed, tmp_path: Path) -> None:
    said = "the command wrote no run: nothing is verified; folders that it was seen to write: "
    tries = (typed("--resume", "--", "sh", "-c", "exec 3>other; sleep 1") for _ in range(20))
    done = next(done for done in tries if str(tmp_path) in done.out)  # it may open the file after the look
    assert (done.code, done.out.startswith(said), len(done.out.splitlines())) == (4, True, 1)
    briefly = typed("--resume", "--", "sh", "-c", "exit 3")
    assert briefly.code == 3
    own = "the command ended with code 3: the exit code here is 3"
    assert briefly.out.splitlines() == [f"{said}none (a look every 10 s)", own]


def test_who_interrupts_is_answered_at_once_and_reads_at_the_end_what_became_of_it(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONTRACT)
    words = [sys.executable, "-m", "weighbridge", "watch", "run", *trainer("--rows=100000", "--hz=50")]
    environment = {**os.environ, **PATHS, "XDG_STATE_HOME": str(tmp_path / "state")}
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=pipe, stderr=pipe, text=True) as watching:
        while not (tmp_path / "run" / "steps.jsonl").exists():
            time.sleep(0.02)
        watching.send_signal(signal.SIGINT)
        out, err = watching.communicate(timeout=60)
    assert "interrupted: SIGTERM is sent, up to 30 s are given; again to kill" in err
    how = "interrupted: the command was ended by signal 15; run is not verified, and the exit code is 130"
    assert (watching.returncode, out.splitlines()) == (130, [how])


def test_who_trains_on_outside_of_the_command_is_said_to_write_the_run(typed: Typed, tmp_path: Path) -> None:
    waits = f'while [ ! -d {tmp_path}/run.watch ]; do sleep 0.1; done; exec "$@"'
    outside = ["sh", "-c", waits, "sh", *TRAINER, "run", "--rows=2000", "--hz=20", "--nan=5"]
    with subprocess.Popen(outside, cwd=tmp_path) as training:
        done = typed("--contract", "c.yaml", "--", "sleep", "300")
        training.kill()
    assert done.code == 1
    assert "run is written by others, too: steps.jsonl grew after the last process" in done.out


def test_a_run_that_cannot_become_live_is_named_at_its_start(typed: Typed, tmp_path: Path) -> None:
    why = "this run cannot become live: no commit is known here"
    assert why in typed(*trainer("--rows=20")).err
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    mine = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
    subprocess.run(["git", *mine, "commit", "-q", "--allow-empty", "-m", "a"], cwd=tmp_path, check=True)
    assert "cannot become live" not in typed("--resume", "--contract", "c.yaml", "--", "true").err
    (tmp_path / "new.py").touch()
    assert "live: the tree has changes" in typed("--resume", "--contract", "c.yaml", "--", "true").err


def test_a_book_that_cannot_be_begun_is_4_and_starts_nothing(typed: Typed, tmp_path: Path) -> None:
    done = typed("--contract", "c.yaml", "--", "touch", "started", limit="ulimit -f 0")
    assert (done.code, (tmp_path / "started").exists(), (tmp_path / "run.watch").exists()) == (4, False, False), (
        done.err
    )


def test_a_book_that_cannot_be_written_on_ends_no_training_and_leaves_it_reported(typed: Typed) -> None:
    done = typed(*trainer("--rows=20", "--hz=50", "--ranks=8"), limit="ulimit -f 2")
    assert len(done.rows("rank-1")) == 20
    assert "reported, not witnessed: the book could not be written: File too large" in done.err
    assert not done.sealed
    json.loads((done.run.with_name("run.watch") / "book.jsonl").read_text().splitlines()[-1])


def test_a_run_that_its_witness_did_not_begin_is_not_sealed_as_witnessed(typed: Typed, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "steps.jsonl").write_text('{"step": 0, "loss": 1.0}\n')
    done = typed("--resume", "--contract", "c.yaml", "--", "true")
    assert (done.sealed, "reported, not witnessed: what lay in the run before was not" in done.err) == (False, True)


def test_rows_typed_between_two_segments_are_not_sealed(typed: Typed) -> None:
    first = typed(*trainer("--rows=20"))
    with (first.run / "steps.jsonl").open("a") as log:
        log.write('{"step": 20, "loss": 3.0}\n')
    second = typed("--resume", "--contract", "c.yaml", "--", "true")
    assert "between two segments steps.jsonl changed" in second.err
    assert second.lines("end")[-1]["segment"] == 2
    assert open_run(str(second.run)).origin is not Origin.LIVE


def test_a_log_that_was_rewritten_where_it_had_been_judged_is_reported_in_the_book(typed: Typed) -> None:
    done = typed(*trainer("--rows=20", "--hz=20", "--log=rewrite"))
    assert [(line["what"], line["why"]) for line in done.lines("note")] == [
        ("steps.jsonl", "was written anew where its rows had been judged")
    ]


def test_two_witnesses_of_one_run_are_one_too_many(tmp_path: Path) -> None:
    book = begin_book(tmp_path / "run", resume=False)
    code = "import pathlib, weighbridge.watch.book_file as at; at.begin_book(pathlib.Path('run'), resume=True)"
    command = (sys.executable, "-c", code)
    environment = {**os.environ, **PATHS}
    done = subprocess.run(command, check=False, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert "another witness writes this book" in done.stderr
    book.close()


@pytest.mark.exhaustive
def test_a_rank_that_was_killed_is_restarted_by_torchrun_and_both_its_lives_are_witnessed(
    typed: Typed, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ends.yaml").write_text(CONTRACT.replace("    where: {ended: unknown}\n", ""))
    launch = (sys.executable, *RESTARTED, ROOT / "benchmarks" / "restarted.py", "run")
    env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}  # else the second life may meet the first
    done = typed("--contract", "ends.yaml", "--", *launch, env=env)
    assert done.code == 0, done.out + done.err
    lives = [[len(done.rows(f"rank-{rank}{life}")) for life in ("", "/attempt-2")] for rank in range(2)]
    assert [life for _, life in lives] == [80, 80]
    assert lives[1][0] == 41  # the rank that was killed; the other one may have been at its next step
    assert (done.sealed, done.book[-1]["code"], done.lines("signal")) == (True, 0, [])
    assert len(done.lines("process")) >= 5  # torchrun and two ranks, twice
