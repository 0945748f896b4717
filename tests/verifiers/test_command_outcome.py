from __future__ import annotations

import dataclasses
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from weighbridge.core.errors import SubjectError
from weighbridge.core.model import Measurement, Record
from weighbridge.evaluation.runner import lay_canary
from weighbridge.quantities.base import record_of
from weighbridge.quantities.commands import KEPT, CommandOutcome, Leftover
from weighbridge.verifiers.command_outcome import VERIFIER, left_behind
from weighbridge.views.command import CommandView

REFUSES = """
import os, sys
if os.environ["CUDA_VISIBLE_DEVICES"] == "":
    sys.exit("error: DEVICE_UNAVAILABLE: cuda was asked for and cannot be seen")
"""
FALLS_BACK = """
import pathlib
run = pathlib.Path("runs/a")
run.mkdir(parents=True)
(run / "steps.jsonl").write_text("{}")
print("training on cpu")
"""


def outcome(*argv: str, **options: Any) -> CommandOutcome:
    found = record_of(VERIFIER.measure((CommandView(argv),), options), CommandOutcome)
    assert found is not None
    return found


def python(code: str, **options: Any) -> CommandOutcome:
    return outcome(sys.executable, "-S", "-c", code, **options)


def test_a_trainer_that_refuses_is_measured_as_it_ended() -> None:
    seen = python(REFUSES)
    assert (seen.exit_code, seen.timed_out, seen.stdout, seen.left) == (1, False, "", ())
    assert seen.stderr == "error: DEVICE_UNAVAILABLE: cuda was asked for and cannot be seen\n"
    assert 0 < seen.wall_seconds < seen.timeout_s


def test_a_trainer_that_falls_back_is_measured_with_the_run_that_it_leaves() -> None:
    seen = python(FALLS_BACK)
    assert (seen.exit_code, seen.stdout) == (0, "training on cpu\n")
    assert seen.left == (
        Leftover(path="runs/a", what="run-directory"),
        Leftover(path="runs", what="directory"),
        Leftover(path="runs/a/steps.jsonl", what="file"),
    )


def test_a_run_written_right_where_it_ran_is_a_run_directory_too() -> None:
    seen = python("open('run.json', 'w').close()")
    assert seen.left[0] == Leftover(path=".", what="run-directory")


@pytest.mark.slow
def test_a_command_is_stopped_with_everything_that_it_started() -> None:
    seen = outcome("sh", "-c", "sleep 60 & echo $!; wait", timeout_s=1)
    assert (seen.exit_code, seen.timed_out) == (None, True)
    assert gone(int(seen.stdout))


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_in_the_midst_of_the_start_ends_the_command_too(
    monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    start, started = subprocess.Popen, list[int]()

    def interrupted(*arguments: Any, **options: Any) -> Any:
        process = start(*arguments, **options)
        started.append(process.pid)
        signal.raise_signal(how)
        return process

    def ended(_signal: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(how, ended)
    try:
        with pytest.raises(KeyboardInterrupt):
            outcome("sleep", "60")
        assert signal.getsignal(how) is ended
    finally:
        signal.signal(how, before)
    assert gone(*started)


@pytest.mark.slow
def test_what_a_command_left_running_is_ended_after_it() -> None:
    code = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)"
    seen = python(code)
    assert (seen.exit_code, seen.timed_out) == (0, False)
    assert seen.wall_seconds < 30
    assert gone(int(seen.stdout))


def gone(pid: int) -> bool:
    """Tell whether a process has ended; it may take a moment to be reaped."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.01)
    return False


def test_only_the_end_of_a_flood_of_output_is_kept() -> None:
    seen = python("import sys; sys.stdout.write('x' * 300_000 + 'END'); sys.stderr.write('y' * 300_000 + 'END')")
    assert len(seen.stdout) == len(seen.stderr) == KEPT
    assert seen.stdout.endswith("xEND")
    assert (seen.stdout_bytes, seen.stderr_bytes) == (300_003, 300_003)


def test_output_that_is_no_text_is_shown_as_far_as_it_is_one() -> None:
    assert python("import os; os.write(1, b'a\\xffb')").stdout == "a\ufffdb"


def test_no_accelerator_can_be_seen_and_no_input_is_given() -> None:
    code = "import os, sys; print(*[repr(os.environ[n]) for n in sys.argv[1:]], repr(sys.stdin.read()))"
    names = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
    assert outcome(sys.executable, "-S", "-c", code, *names).stdout == "'' '-1' '-1' ''\n"


def test_each_command_runs_in_an_empty_folder_of_its_own(workplace: Path) -> None:
    (workplace / "here").write_text("")
    seen = python("import os; print(os.listdir('.')); open('left', 'w').close()")
    assert seen.stdout == "[]\n"
    assert [path.name for path in workplace.iterdir()] == ["here"]


def test_scratch_files_are_not_left_behind() -> None:
    assert python("import tempfile; tempfile.mkstemp()").left == ()


def test_a_script_named_from_where_the_person_stands_is_found(workplace: Path) -> None:
    (workplace / "train.py").write_text(REFUSES)
    assert outcome(sys.executable, "train.py").exit_code == 1


def test_a_module_named_from_where_the_person_stands_is_found(workplace: Path) -> None:
    (workplace / "trainer.py").write_text(REFUSES)
    assert outcome(sys.executable, "-m", "trainer").exit_code == 1


def test_a_program_that_is_not_there_is_refused() -> None:
    with pytest.raises(SubjectError, match="'no-such-program' is not a program that can be run"):
        outcome("no-such-program")


def test_a_program_that_cannot_start_is_refused(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF nonsense")
    broken.chmod(0o755)
    with pytest.raises(SubjectError, match="the command does not start: OSError"):
        outcome(str(broken))


def test_a_signal_is_distinguished_from_an_exit_code() -> None:
    assert python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)").exit_code == -signal.SIGSEGV


REFUSING = (CommandView((sys.executable, "-S", "-c", REFUSES)),)


@pytest.fixture(scope="module")
def refused() -> Measurement:
    """Measure a command that refuses, once."""
    found = VERIFIER.measure(REFUSING, {})
    assert isinstance(found, Measurement)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [{}, {"exit_code": 0}, {"timed_out": True}, {"stdout": ""}, {"stderr": ""}, {"left": ()}, {"wall_seconds": 0.0}],
)
def test_an_instrument_that_does_not_look_is_seen_to_be_blind(refused: Measurement, change: dict[str, Any]) -> None:
    honest = refused

    def measure(asked: Any, options: Any) -> Measurement:
        seen = VERIFIER.measure(asked, options) if change else honest
        assert isinstance(seen, Measurement)
        found = record_of(seen, CommandOutcome)
        assert found is not None
        return dataclasses.replace(seen, value=Record(dataclasses.replace(found, **change)))

    assert not lay_canary(dataclasses.replace(VERIFIER, measure=measure), REFUSING, {}, honest).seen


@pytest.mark.slow
def test_an_instrument_that_looks_is_seen_to(refused: Measurement) -> None:
    assert lay_canary(VERIFIER, REFUSING, {}, refused).seen


def test_the_environment_of_the_person_is_otherwise_the_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_TEST", "kept")
    assert python("import os; print(os.environ['WEIGHBRIDGE_TEST'])").stdout == "kept\n"


def test_folders_nested_too_deep_to_look_into_are_no_clean_leaving(tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d"] * 18)
    folder.mkdir(parents=True)
    with pytest.raises(SubjectError, match="folders nested deeper than 16") as caught:
        list(left_behind(tmp_path, tmp_path))
    assert caught.value.code == "left-unlisted"


def test_a_folder_that_its_maker_closed_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "closed" / "run").mkdir(parents=True)
    (tmp_path / "closed" / "run" / "run.json").touch()
    (tmp_path / "closed").chmod(0)
    listed = Path.iterdir

    def refusing(path: Path) -> Iterator[Path]:  # root is refused nothing
        if path.stat().st_mode & 0o700 == 0:
            raise PermissionError
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refusing)
    assert Leftover(path="closed/run", what="run-directory") in list(left_behind(tmp_path, tmp_path))


DETACHED = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True, env={},
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
"""


@pytest.mark.slow
def test_a_child_in_a_session_of_its_own_is_counted_and_ended() -> None:
    seen = python(DETACHED)
    assert (seen.exit_code, seen.outlived) == (0, 1)
    assert gone(int(seen.stdout))


def test_what_ends_by_itself_in_a_moment_did_not_outlive_the_command() -> None:
    assert outcome("sh", "-c", "setsid sleep 0.2 & exit 3").outlived == 0


RUN = "import os, pathlib; at = pathlib.Path({place}) / 'new'; at.mkdir(parents=True); (at / 'run.json').touch()"


@pytest.mark.slow
@pytest.mark.parametrize(
    "place", ["os.environ['TMPDIR']", "'..'", "os.environ['HOME']", "os.environ['RUNS'] + '/deep/er'"]
)
def test_a_run_elsewhere_is_found_and_one_from_before_is_not(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name, variable in (("home", "HOME"), ("runs", "RUNS")):
        (workplace / name / "old").mkdir(parents=True)
        (workplace / name / "old" / "steps.jsonl").write_text("{}\n")
        monkeypatch.setenv(variable, str(workplace / name))
    roots = (str(workplace / "runs"),)
    assert python("pass", run_roots=roots).left == ()
    (left,) = {Path(item.path).name for item in python(RUN.format(place=place), run_roots=roots).left}
    assert left == "new"
    again = "import os; open(os.environ['RUNS'] + '/old/steps.jsonl', 'a').write('{}')"
    assert [Path(item.path).name for item in python(again, run_roots=roots).left] == ["old"]
    (named,) = python(RUN.format(place="os.environ['RUNS'] + '/named'"), run_roots=("$RUNS",)).left
    assert named.path.endswith("$RUNS/named/new")  # a sealed contract holds no path of somebody's machine
    with pytest.raises(SubjectError, match="NO_RUNS/a names a variable that is not set"):
        python("pass", run_roots=("$NO_RUNS/a",))


def test_a_checkpoint_left_under_a_named_root_is_found_and_what_was_there_is_not(workplace: Path) -> None:
    (workplace / "ckpt" / "old").mkdir(parents=True)
    (workplace / "ckpt" / "old" / "epoch-000.apr").write_text("old")
    at, roots = str(workplace / "ckpt"), ("ckpt", ".")
    leaves = "import pathlib; at = pathlib.Path({at!r}); (at / 'empty').mkdir(); (at / 'epoch-001.apr').write_text('')"
    assert python("pass", run_roots=roots).left == ()
    assert [(item.path, item.what) for item in python(leaves.format(at=at), run_roots=roots).left] == [
        ("ckpt/epoch-001.apr", "file"), ("ckpt/empty", "directory")
    ]  # fmt: skip
    again = f"open({at + '/old/epoch-000.apr'!r}, 'a').write('more')"
    assert [item.path for item in python(again, run_roots=roots).left] == ["ckpt/old/epoch-000.apr"]
    assert python(leaves.format(at=at).replace("empty", "new").replace("001", "002")).left == ()  # nobody named it
