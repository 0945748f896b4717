"""What a witness sees of real processes, what it stops, and what its book says after it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.watch.conftest import PATHS, TRAINER, Watch, Watched, stopping
from tests.watch.stopping import Finite

from weighbridge.watch.book_file import begin_book
from weighbridge.watch.judges import Judges, Stop
from weighbridge.watch.processes import Tree, descendants, read_process
from weighbridge.watch.witness import Asked, Witness


def root(tool: str) -> bool:
    """Return whether this is root on a machine that has a tool."""
    return os.geteuid() == 0 and shutil.which(tool) is not None


pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a witness needs /proc and pidfd")


def test_a_run_that_ends_well_has_a_sealed_book_from_begin_to_end(watch: Watch) -> None:
    done = watch("--rows=5")
    assert (done.code, done.sealed) == (0, True), done.err
    begin, end = done.book[0], done.book[-1]
    assert (begin["kind"], begin["run"], end["kind"], end["code"], end["exit"]) == ("begin", "run", "end", 0, 0)
    assert (begin["pid"], begin["start_ticks"]) in {(one["pid"], one["start_ticks"]) for one in done.lines("process")}
    assert end["files"]["steps.jsonl"]["size"] == (done.run / "steps.jsonl").stat().st_size
    assert done.lines("rows")[-1]["rows"] == 5
    assert any("python" in name for line in done.lines("libraries") for name in line["libraries"])


@pytest.mark.parametrize("how", [(), ("--ignore-term",), ("--detach",), ("--ranks=2",)], ids=" ".join)
def test_no_row_after_the_next_follows_the_row_that_breaks_a_gate(watch: Watch, how: tuple[str, ...]) -> None:
    done = watch("--rows=400", "--hz=20", "--nan=4", *how, grace=0.5)
    assert done.code == 1, done.err
    assert max(row["step"] for row in done.rows("rank-1" if "--ranks=2" in how else "")) <= 5
    (stop,), end = done.lines("stop"), done.book[-1]
    assert (stop["gate"], stop["step"], stop["confirmed"], end["exit"]) == ("GATE-FINITE", 4, True, 1)
    first = "SIGKILL" if "--ignore-term" in how else "SIGTERM"
    assert [line["signal"] for line in done.lines("signal")][:2] == ["SIGSTOP", first]
    assert done.sealed
    assert "STOP.json" in end["files"]
    assert not _alive(done.book)


def test_a_book_that_the_command_itself_wrote_into_is_not_sealed(watch: Watch, tmp_path: Path) -> None:
    meddler = tmp_path / "meddler.py"
    meddler.write_text(
        "import pathlib, time\n"
        "book = pathlib.Path('run.watch/book.jsonl')\n"
        "while b'sample' not in book.read_bytes():\n"
        "    time.sleep(0.05)\n"
        "with book.open('r+b') as file:\n"
        "    data = file.read()\n"
        "    file.seek(0)\n"
        "    file.write(data.replace(b'\"device_files\":{}', b'\"device_files\":[]'))\n"
    )
    done = watch(command=(sys.executable, str(meddler)))
    assert (done.code, done.sealed) == (0, False), done.err
    assert "a line of the book was changed while the command ran" in done.out + done.err


def test_what_a_walk_over_proc_missed_is_of_the_tree_all_the_same(watch: Watch, tmp_path: Path) -> None:
    missing = tmp_path / "missing.py"
    missing.write_text(
        "import runpy, sys\n"
        "from weighbridge.watch.processes import Tree\n"
        "alive, missed = Tree.alive, []\n"
        "def some(tree):\n"
        "    if tree.status is None or len(missed) >= 3:\n"
        "        return alive(tree)\n"
        "    missed.append(1)\n"  # forked between the listing and the reading, by one that ended between them
        "    return []\n"
        "Tree.alive = some\n"
        "del sys.argv[:3]\n"  # the interpreter and -m, which stand in its own command
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)\n"
    )
    done = watch("--rows=40", "--hz=20", "--nan=10", "--detach", under=(sys.executable, str(missing)), grace=0.5)
    assert done.code == 1, done.err
    assert [line["step"] for line in done.lines("stop")] == [10]
    assert not _alive(done.book)


def test_a_witness_that_was_made_to_stand_still_says_how_long_it_did_not_look(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "stopper.py").write_text(
        "import os, signal, subprocess, time\n"
        "witness = os.getppid()\n"
        "subprocess.Popen(['sh', '-c', f'sleep 2.2; kill -CONT {witness}'])\n"
        "os.kill(witness, signal.SIGSTOP)\n"
    )
    (note,) = watch(command=(sys.executable, str(tmp_path / "stopper.py"))).lines("note")
    assert note["what"] == "the witness"
    assert 2 < float(note["why"].removeprefix("did not look for ").removesuffix(" s")) < 20


def test_the_book_names_the_outermost_folders_that_the_command_wrote_into(watch: Watch, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    writer = tmp_path / "writer.py"
    writer.write_text(
        "import pathlib, time\n"
        f"inner = pathlib.Path({str(elsewhere / 'a' / 'b')!r})\n"
        "inner.mkdir(parents=True)\n"
        f"read = open({str(TRAINER[1])!r})\n"
        "files = [(folder / 'out.bin').open('w') for folder in (inner, inner.parent)]\n"
        "book = pathlib.Path('run.watch/book.jsonl')\n"
        "looks = lambda: book.read_text().count('\"sample\"')\n"
        "before = looks()\n"
        "pathlib.Path('run').mkdir()\n"
        "pathlib.Path('run/run.json').write_text('{}')\n"  # at which the witness looks
        "while looks() == before:\n"
        "    time.sleep(0.02)\n"
    )
    roots = watch(command=(sys.executable, str(writer))).book[-1]["write_roots"]
    assert [root.endswith("elsewhere/a") for root in roots].count(True) == 1
    assert not any(root.endswith("/b") or "tests/watch" in root for root in roots)


def test_a_gate_that_fails_is_booked_and_stops_nothing_where_nothing_is_to_be_stopped(watch: Watch) -> None:
    done = watch("--rows=9", "--nan=4", stop_at="never")
    assert (done.code, len(done.rows())) == (0, 9)
    assert [(line["gate"], line["step"]) for line in done.lines("finding")] == [("GATE-FINITE", 4)]


@pytest.mark.parametrize(
    ("ends", "code", "said"), [("3", 3, (3, None)), ("KILL", 137, (None, 9)), ("OOM", 1, (1, None))]
)
def test_a_run_that_ends_badly_has_its_own_code_and_a_killed_one_none_that_is_zero(
    watch: Watch, ends: str, code: int, said: tuple[int | None, int | None]
) -> None:
    done = watch(f"--ends={ends}")
    assert (done.code, (done.book[-1]["code"], done.book[-1]["signal"])) == (code, said)


CGROUPS = Path("/sys/fs/cgroup")
MEMORY = CGROUPS / "memory" if (CGROUPS / "memory").is_dir() else CGROUPS
LIMIT = "memory.limit_in_bytes" if (CGROUPS / "memory").is_dir() else "memory.max"


def test_a_run_that_the_kernel_kills_in_a_full_memory_cgroup_is_137_and_its_signal_is_in_the_book(watch: Watch) -> None:
    group = MEMORY / f"weighbridge-{os.getpid()}"
    try:
        group.mkdir()
        (group / LIMIT).write_text(str(96 << 20))
    except OSError:
        pytest.skip("no memory cgroup can be made here")
    try:
        enter = f'echo $$ > {group}/cgroup.procs; exec "$@"'
        done = watch(command=("sh", "-c", enter, "sh", *TRAINER, "run", "--ends=EAT"))
    finally:
        group.rmdir()
    assert (done.code, done.book[-1]["code"], done.book[-1]["signal"]) == (137, None, 9), done.err
    assert [line["signal"] for line in done.lines("gone")] == [9]


def test_what_the_command_left_behind_is_waited_for(watch: Watch) -> None:
    done = watch("--detach", "--rows=20")
    assert (done.code, len(done.rows()), done.sealed) == (0, 20, True)
    assert len(done.lines("process")) >= 2


@pytest.mark.parametrize(("how", "what"), [("truncate", "was shortened"), ("rotate", "was replaced by another file")])
def test_a_log_that_was_made_shorter_or_another_is_noted(watch: Watch, how: str, what: str) -> None:
    done = watch("--rows=6", "--hz=10", f"--log={how}")
    assert [line["what"] for line in done.lines("note") if what in line["why"]] == ["steps.jsonl"]


def test_a_command_that_is_not_there_leaves_no_book(watch: Watch, tmp_path: Path) -> None:
    script = tmp_path / "no-interpreter"
    script.write_text("#!/nowhere/python\n")
    script.chmod(0o755)
    for command in (str(tmp_path / "absent"), str(script)):
        done = watch(command=(command,))
        assert (done.code, done.run.with_name("run.watch").exists()) == (127, False), done.err


def test_a_judge_that_breaks_stops_nothing_and_is_noted(watch: Watch) -> None:
    done = watch("--nan=2", env={"JUDGE_BREAKS": "1"})
    assert (done.code, len(done.rows()), done.sealed) == (0, 5, True)
    assert [line["why"] for line in done.lines("note")] == ["broke: ValueError; judged again at the end"]


def test_a_stopped_run_goes_on_only_after_it_was_released_and_then_in_a_segment_of_its_own(watch: Watch) -> None:
    first = watch("--rows=9", "--nan=4", "--hz=20")
    assert first.code == 1
    refused = watch(resume=True, command=("true",))
    assert refused.code != 0
    assert "stopped" in refused.err
    assert len(refused.book) == len(first.book)


def test_who_kills_the_witness_ends_the_run_and_leaves_it_without_end_and_seal(tmp_path: Path) -> None:
    for number, whom in enumerate(("guard", "witness", "group")):
        run = tmp_path / str(number)
        words = stopping(run, *TRAINER, str(run), "--rows=100000", "--hz=50", "--detach")
        env = {**os.environ, **PATHS}
        watching = subprocess.Popen(words, cwd=tmp_path, env=env, start_new_session=True, stderr=subprocess.DEVNULL)
        until_there(run / "steps.jsonl")
        (witness,) = (one.pid for one in descendants(watching.pid) if one.parent == watching.pid)
        match whom:
            case "group":
                os.killpg(watching.pid, signal.SIGKILL)
            case _:
                os.kill(watching.pid if whom == "guard" else witness, signal.SIGKILL)
        assert watching.wait(20) in (-signal.SIGKILL, 128 + signal.SIGKILL)
        until_gone(witness)
        book = Watched(0, "", "", run)
        until(lambda book=book.book: not _alive(book))  # type: ignore[misc]
        assert (book.sealed, book.lines("end")) == (False, []), whom


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=str)
def test_who_ends_the_witness_ends_the_run_and_both_are_in_the_book(tmp_path: Path, number: int) -> None:
    run = tmp_path / "run"
    words = stopping(run, *TRAINER, str(run), "--rows=100000", "--hz=50", "--detach")
    watching = subprocess.Popen(words, cwd=tmp_path, env={**os.environ, **PATHS}, start_new_session=True)
    until_there(run / "steps.jsonl")
    watching.send_signal(number)
    assert watching.wait(20) == 128 + number
    book = Watched(0, "", "", run)
    assert book.lines("signal")[0]["signal"] == "SIGTERM"
    assert (book.sealed, book.book[-1]["exit"], _alive(book.book)) == (True, 128 + number, [])


@pytest.mark.slow
@pytest.mark.skipif(not root("unshare"), reason="only root mounts something over /proc")
def test_without_proc_the_child_is_stopped_all_the_same_and_the_book_has_no_seal(watch: Watch) -> None:
    blind = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc; exec "$@"', "sh")
    done = watch("--rows=400", "--hz=20", "--nan=4", under=blind)
    assert (done.code, done.rows()[-1]["step"] <= 5, done.sealed) == (1, True, False), done.err
    assert "there is no /proc: what came of the command was not seen" in done.out
    assert "processes" in done.book[0]["not_witnessed"]
    assert "exit" in done.book[0]["witnessed"]


@pytest.mark.slow
@pytest.mark.skipif(not root("setpriv"), reason="only root gives up the right to signal")
def test_a_process_that_takes_no_signal_of_this_user_is_counted_and_runs_on_unwitnessed(watch: Watch) -> None:
    may_not = ("setpriv", "--bounding-set", "-kill", "--inh-caps", "-kill")
    # Whoever runs on holds no end of what is read here, or the test would wait for it.
    silent = ("sh", "-c", 'exec "$@" >/dev/null 2>&1', "sh", *TRAINER, "run")
    trains_on = ("--rows=400", "--hz=20", "--nan=4", "--uid=65534")
    done = watch(command=(*silent, *trains_on), under=may_not, grace=0.2)
    assert (done.code, done.sealed, done.lines("end")) == (1, False, []), done.err
    assert {(line["processes"], line["refused"]) for line in done.lines("signal")} == {(0, 1)}
    assert "could not be ended and run on" in done.out
    for pid in _alive(done.book):
        os.kill(pid, signal.SIGKILL)


def test_a_stop_that_finds_no_process_says_that_the_command_had_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    (run := tmp_path / "run").mkdir()
    witness = Witness(Asked(run=run, command=("true",)), cast(Judges, Finite(run)), said.append)
    witness.book, witness.tree = begin_book(run, resume=True), Tree(child=0)
    monkeypatch.setattr(Tree, "send", lambda *_: (0, 0))
    witness._stop(Stop(gate="GATE-A", instance="default", step=19, code="non-finite", why="loss is nan"))
    ended = "found at step 19, and nothing was stopped: the command had ended by itself"
    assert said == [f"FAIL  GATE-A  loss is nan; {ended}"]
    assert (run / "STOP.json").exists()
    witness.book.close()


def test_what_came_of_others_is_not_asked_again_and_what_comes_of_this_process_is_seen_at_once() -> None:
    tree = Tree(child=0)
    before = {one.pid for one in tree.alive()}
    foreign = set(tree.foreign)
    assert str(os.getppid()) in foreign
    started = subprocess.Popen(("sleep", "60"))
    assert {one.pid for one in tree.alive()} - before == {started.pid}
    assert foreign & {str(one.pid) for one in descendants(os.getpid())} == set()
    tree.foreign |= {str(started.pid), "999999999"}  # numbers that were given again
    assert tree.send(0)[0] >= 1
    assert tree.foreign.isdisjoint({str(started.pid), "999999999"})
    started.kill()
    started.wait()


def until_there(path: Path) -> None:
    until(path.exists)


def until_gone(pid: int) -> None:
    until(lambda: read_process(pid) is None)


def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError


def _alive(book: list[dict[str, Any]]) -> list[int]:
    found = [read_process(line["pid"]) for line in book if line["kind"] == "process"]
    return [one.pid for one in found if one is not None and one.state != "Z"]
