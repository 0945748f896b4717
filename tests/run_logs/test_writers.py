"""The writers of run directories in spec/examples/, compiled, run and judged."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from weighbridge.api import Verification, verify
from weighbridge.core import Basis, Origin, Outcome, sha256
from weighbridge.core.pseudonym import key_file, pseudonym
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.run_logs.json_log import read_run_directory
from weighbridge.run_logs.run_end import run_end
from weighbridge.verifiers import run_facts
from weighbridge.views.run import open_run

EXAMPLES = Path(__file__).parents[2] / "spec" / "examples"
CPP = ("-std=c++17", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function", "-O1", "-o")
RUST = ("--edition", "2021", "-D", "warnings", "-A", "dead_code", "-A", "unused_imports", "-O", "-o")
COMPILERS = {"cpp": (("g++", "clang++", "c++"), CPP), "rs": (("rustc",), RUST)}
THROWS = {
    "cpp": r"""
int main() try {
    Run run("run", {{"of", text("a \"b\"\n\\")}});
    run.step({{"loss", number(-HUGE_VAL)}});
    throw std::runtime_error("");
} catch (...) {}
""",
    "rs": r"""
fn main() {
    let mut run = Run::new("run", vec![("of", text("a \"b\"\n\\"))]).unwrap();
    run.step(vec![("loss", number(f64::NEG_INFINITY))]);
    panic!()
}
""",
}

pytestmark = pytest.mark.exhaustive


class Program(NamedTuple):
    language: str
    path: Path

    def __call__(self, *words: object, **how: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.run([self.path, *map(str, words)], check=False, capture_output=True, text=True, **how)


def compiled(language: str, source: Path, into: Path) -> Path:
    names, options = COMPILERS[language]
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        pytest.skip(f"no compiler here: apt-get install {names[0]}")
    subprocess.run([compiler, *options, into, source], check=True)
    return into


@pytest.fixture(scope="module", params=list(COMPILERS))
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    source, into = EXAMPLES / f"write_run.{request.param}", tmp_path_factory.mktemp("made") / "write_run"
    return Program(request.param, compiled(request.param, source, into))


def writer(language: str) -> str:
    text = (EXAMPLES / f"write_run.{language}").read_text(encoding="utf-8")
    return text[: text.index("// --- A trainer ---")]


def rows(folder: Path, name: str = "steps.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]


def judged(folder: Path) -> Verification:
    kept, params = folder.parent / "kept", {"tokens_per_step": "8"}
    return verify("builtin:training-run", subjects={"run": folder}, params=params, evidence=kept)


def outcomes(found: Verification) -> dict[str, set[str]]:
    return {str(one): {item.gate for item in found.findings if item.verdict.outcome is one} for one in Outcome}


def printed(text: str) -> list[tuple[float, ...]]:
    return [tuple(map(float, line.split())) for line in text.splitlines()]


def committed(folder: Path) -> str:
    us = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-C", str(folder))
    (folder / "trainer").write_text("1")
    for words in (("init", "-q"), ("add", "trainer"), ("commit", "-qm", "one")):
        subprocess.run(("git", *us, *words), check=True)
    return subprocess.run(("git", *us, "rev-parse", "HEAD"), check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("language", COMPILERS)
def test_a_writer_takes_sixty_lines(language: str) -> None:
    text = writer(language)
    assert len(text[text.index("// --- The writer ---") :].rstrip().splitlines()[1:]) <= 60


def test_a_run_holds_what_the_loop_computed_and_is_blocked_for_want_of_probes_alone(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = committed(tmp_path)
    monkeypatch.setenv("WEIGHBRIDGE_HOST", here())
    before = math.floor(time.time() * 1e3) / 1e3
    done = program("runs/a", 200, 0.1, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said, logged = printed(done.stdout), rows(tmp_path / "runs" / "a")
    assert [(row["step"], row["loss"], row["grad_norm"]) for row in logged] == said
    assert len(said) == 200
    assert (said[0][1] > 1, said[-1][1] < 0.02) == (True, True)  # it learnt the line: only the noise is left
    clock = [row["monotonic_s"] for row in logged]
    assert clock == sorted(clock)
    assert clock[-1] <= time.monotonic()
    events = rows(tmp_path / "runs" / "a", "events.jsonl")
    wraps = [(one["step"], one["wraps"]) for one in events if one["event"] == "wrap"]
    assert wraps == [(40, 1), (80, 2), (120, 3), (160, 4)]
    log = read_run_directory(tmp_path / "runs" / "a", {})
    assert (log.facts["commit"], log.facts["dirty"], log.facts["requested_steps"]) == (commit, False, 200)
    assert log.heads
    began = dt.datetime.fromisoformat(str(log.facts["started"])).timestamp()
    assert 0 <= logged[0]["time"] - began < 60
    assert began >= before  # to the millisecond: a witness that began before it in the same second saw it begin
    found = judged(tmp_path / "runs" / "a")
    assert outcomes(found)["BLOCKED"] == {"GATE-RUN-003"}
    (probes,) = [one for one in found.findings if one.verdict.outcome is Outcome.BLOCKED]
    assert probes.verdict.code == "no-probe"
    passed = ("001", "002", "004", "STEPS", "LEARNED", "STAYED", "JUMP", "GROWTH", "IDLE", "RATE", "SPENT", "SKIPS")
    assert outcomes(found)["PASS"] == {f"GATE-RUN-{name}" for name in passed}
    assert not outcomes(found)["FAIL"] | outcomes(found)["ERROR"]


def test_under_a_witness_it_is_live_and_the_program_that_ran_is_known(program: Program, tmp_path: Path) -> None:
    committed(tmp_path)
    watch = (sys.executable, "-m", "weighbridge", "watch", "run", "--contract", "builtin:training-run", "--")
    done = subprocess.run([*watch, program.path, "run", "200", "0.1"], cwd=tmp_path, check=False, capture_output=True)
    assert done.returncode == 3, done.stderr  # for want of probes
    view = open_run(tmp_path / "run")
    assert (view.origin, view.unwitnessed) == (Origin.LIVE, "")
    found = rows_of(run_facts.measure((view,), {"named": ("executable_sha256",)}), Fact)
    (ran,) = [one for one in found if one.name == "executable_sha256"]
    assert (ran.value, ran.basis) == (sha256(program.path.read_bytes()), Basis.MEASURED)


def test_a_loss_that_is_no_number_is_written_as_such_and_fails(program: Program, tmp_path: Path) -> None:
    done = program(tmp_path / "run", 400, 1000)
    text = (tmp_path / "run" / "steps.jsonl").read_text("utf-8")
    assert ('"loss":Infinity' in text, '"loss":NaN' in text) == (True, True)
    for row, (_, loss, norm) in zip(rows(tmp_path / "run"), printed(done.stdout), strict=True):
        for logged, computed in ((row["loss"], loss), (row["grad_norm"], norm)):
            assert logged == computed or (math.isnan(logged) and math.isnan(computed))
    assert "GATE-RUN-001" in outcomes(judged(tmp_path / "run"))["FAIL"]


def test_a_folder_that_holds_a_run_is_refused_and_left_as_it_is(program: Program, tmp_path: Path) -> None:
    program(tmp_path / "run", 3, 0.1)
    before = contents(tmp_path / "run")
    assert sorted(before) == ["events.jsonl", "run.json", "steps.jsonl"]
    done = program(tmp_path / "run", 5, 0.2)
    assert (done.returncode, "exists" in done.stderr) == (1, True)
    assert contents(tmp_path / "run") == before
    (tmp_path / "file").touch()
    assert program(tmp_path / "file", 5, 0.2).returncode == 1


def test_a_run_that_is_killed_leaves_whole_rows_and_is_known_as_killed(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIGHBRIDGE_HOST", here())
    steps = tmp_path / "run" / "steps.jsonl"
    child = subprocess.Popen([program.path, tmp_path / "run", "100000000", "0.1"], stdout=subprocess.DEVNULL)
    try:
        while child.poll() is None and not (steps.exists() and steps.stat().st_size > 100_000):
            time.sleep(0.01)
        child.send_signal(signal.SIGSTOP)  # it writes faster than anybody reads
        going = ended(tmp_path / "run")
    finally:
        child.kill()
        child.wait()
    assert going == "going"
    assert steps.read_bytes().endswith(b"}\n")
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(len(rows(tmp_path / "run"))))
    assert ended(tmp_path / "run") == "killed"


def test_a_full_disk_stops_no_training_and_tears_no_row_and_no_gate_passes_over_what_is_left(
    program: Program, tmp_path: Path
) -> None:
    def small() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    done = program(tmp_path / "run", 400, 0.1, preexec_fn=small)
    assert (done.returncode, len(printed(done.stdout))) == (0, 400)
    assert (tmp_path / "run" / "steps.jsonl").read_bytes().endswith(b"}\n")
    assert 50 < len(rows(tmp_path / "run")) < 150
    windows = {"GATE-RUN-004", "GATE-RUN-SKIPS"}  # which do not look at how a run ended
    assert outcomes(judged(tmp_path / "run"))["PASS"] <= windows


@pytest.mark.parametrize("language", COMPILERS)
def test_a_loop_that_is_left_by_an_exception_says_so_and_texts_come_back(language: str, tmp_path: Path) -> None:
    source = tmp_path / f"throws.{language}"
    source.write_text(writer(language) + THROWS[language], encoding="utf-8")
    made = compiled(language, source, tmp_path / "throws")
    subprocess.run([made], cwd=tmp_path, check=False, capture_output=True)
    (end,) = rows(tmp_path / "run", "events.jsonl")
    assert end == {"event": "end", "step": 1, "steps": 1, "by": {"cpp": "exception", "rs": "panic"}[language]}
    assert json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["of"] == 'a "b"\n\\'
    assert rows(tmp_path / "run")[0]["loss"] == -math.inf
    assert ended(tmp_path / "run") == "raised"


def ended(folder: Path) -> str:
    view = open_run(folder)
    return run_end(view.facts, view.events, view.rows).ended


def contents(folder: Path) -> Mapping[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


def here() -> str:
    key = key_file(os.environ)
    assert key is not None
    return pseudonym("host", socket.gethostname(), key)
