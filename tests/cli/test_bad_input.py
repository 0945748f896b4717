"""Bad input through the command line: one clear message, the right exit code, no traceback, nothing half-written."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import click
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli

from weighbridge.cli.options import broken, rate
from weighbridge.core.data import data_path

PARITY = "builtin:forward-parity"
IMPORT = "builtin:checkpoint-import"
REFUSAL = """
weighbridge: contract/v0
id: refusal
version: 1.0.0
title: Refuses
owner: o
subjects: {command: {kind: command}}
gates:
  - id: G-1
    title: refuses
    kind: device-refusal
    subjects: {command: command}
    measure: {timeout_s: 20}
    with: {exit: nonzero, within_s: 2, names: [DEVICE_UNAVAILABLE]}
"""
TIMED = """
weighbridge: contract/v0
id: timed
version: 1.0.0
title: Timed
owner: o
params: {budget: {type: number, default: 500}}
subjects: {run: {kind: run}}
gates:
  - id: G-1
    title: time
    kind: wall-time-budget
    subjects: {run: run}
    where: {steps: 12}
    with: {statistic: median, steps: [0, 9], below_ms: "${params.budget}", min_samples: 3}
"""


def checkpoint(name: str, value: float = 1.0, tensor: str = "a") -> str:
    save_file({tensor: np.array([value, 2.0], dtype=np.float32)}, name)
    return name


def timed(folder: Path) -> None:
    (folder / "c.yaml").write_text(TIMED)
    for name, base in (("good.jsonl", 100), ("slow.jsonl", 900)):
        rows = ({"step": step, "wall_ms": base * (1 + step // 11) + step * 7 % 5 + step / 9} for step in range(12))
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def judged(cli: Cli, factory: str, *more: str, reference: str = "") -> tuple[int, str]:
    Path("made.py").write_text(factory)
    Path("trusted.py").write_text(reference or factory)
    subjects = ("--subject", "reference=trusted.py:make", "--subject", "candidate=made.py:make")
    ended = cli("verify", PARITY, "--gate", "GATE-PARITY-001", *subjects, *more)
    assert ended.err == "" or "--json" in more
    return ended.code, ended.out


# --- A subject's own code ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "raised"),
    [
        ("import sys\ndef make(): sys.exit(0)", "SystemExit"),
        ("import sys\nsys.exit(0)", "SystemExit"),
        ("def make(): raise GeneratorExit", "GeneratorExit"),
        ("class Odd(BaseException): pass\ndef make(): raise Odd('password=hunter2hunter2')", "Odd"),
    ],
)
def test_a_factory_cannot_end_the_weighing_as_a_pass(cli: Cli, body: str, raised: str) -> None:
    code, out = judged(cli, body)
    assert code == 4
    assert f"trusted.py:make: the factory raised {raised} (factory-raised)" in out
    assert "hunter2" not in out


STACK = """
from weighbridge.forward.stacks import Stack
def run(tokens): {run}
def make(): return Stack(**{{"run": run, "tokens": ((1, 2, 3), (4, 5, 6)), **{more}}})
"""
MODULE = """
import torch
from collections import OrderedDict
def make():
    torch.manual_seed(0)
    return torch.nn.Sequential(OrderedDict(embed=torch.nn.Embedding(9, 4), head=torch.nn.Linear(4, 9)))
"""


def candidate(cli: Cli, run: str, **more: object) -> tuple[int, str]:
    pytest.importorskip("torch")
    return judged(cli, STACK.format(run=run, more=more), reference=MODULE)


@pytest.mark.parametrize(
    ("run", "printed"),
    [
        ("raise SystemExit(0)", "raised SystemExit (forward-raised)"),
        ("raise MemoryError", "raised MemoryError (forward-raised)"),
        ("return 3", "raised AttributeError (forward-raised)"),
        ("return {}", "the trace holds no point (trace-empty)"),
        (
            "return {'q': __import__('numpy').zeros((2, 3, 1))}",
            "the capture point 'q' does not say its state (point-id)",
        ),
    ],
)
def test_a_forward_pass_cannot_end_the_weighing_as_a_pass(cli: Cli, run: str, printed: str) -> None:
    code, out = candidate(cli, run)
    assert code == 4
    assert printed in " ".join(out.split())


@pytest.mark.parametrize("more", [{"device": None}, {"dtype": 3}, {"tokens": 3}, {"tokens": [["a"]]}, {"name": b"x"}])
def test_a_stack_with_fields_of_wrong_types_is_reported_as_the_subjects_fault(cli: Cli, more: Any) -> None:
    code, out = candidate(cli, "return {}", **more)
    assert code == 4
    assert "the factory returned Stack, with fields of another type (not-a-forward)" in " ".join(out.split())


def test_a_factory_that_returns_another_structure_is_reported_as_the_subjects_fault(cli: Cli) -> None:
    code, out = judged(cli, "def make(): return [1, 2]")
    assert code == 4
    assert "the factory returned list, which cannot be run forward (not-a-forward)" in " ".join(out.split())


def test_what_a_factory_prints_stays_out_of_the_json(cli: Cli) -> None:
    code, out = judged(cli, "print('noise')\ndef make():\n    print('noise')\n    return 3", "--json")
    assert code == 4
    assert json.loads(out)[0]["exit_code"] == 4


def test_a_command_line_with_an_open_quotation_is_refused(cli: Cli, workplace: Path) -> None:
    (workplace / "c.yaml").write_text(REFUSAL)
    ended = cli("verify", "c.yaml", "--subject", "command=sh -c 'open")
    assert ended.code == 4
    assert "the command cannot be split into words: no closing quotation (command-form)" in ended.out


def test_an_argument_longer_than_any_file_name_is_an_argument(cli: Cli, workplace: Path) -> None:
    (workplace / "c.yaml").write_text(REFUSAL)
    ended = cli("verify", "c.yaml", "--subject", f"command=sh -c 'echo DEVICE_UNAVAILABLE; exit 3 # {'a.b/' * 200}'")
    assert (ended.code, ended.err) == (0, "")


# --- Bindings ---------------------------------------------------------------------------------------------------------


def test_a_binding_that_no_gate_would_look_at_is_refused(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    ended = cli("verify", "c.yaml", "--subject", "run@a=good.jsonl", "--subject", "run=slow.jsonl")
    assert ended.code == 2
    assert ended.err == (
        "never-looked-at no gate would look at run=slow.jsonl: other bindings stand for 'run' everywhere\n"
        "  name its instance, run@NAME=…, or leave it out\n"
    )


@pytest.mark.parametrize("other", ["a.safetensors", "./a.safetensors", "link"])
def test_a_file_is_not_compared_with_itself(cli: Cli, workplace: Path, other: str) -> None:
    checkpoint("a.safetensors")
    (workplace / "link").symlink_to("a.safetensors")
    ended = cli("verify", IMPORT, "--subject", "source=a.safetensors", "--subject", f"import={other}")
    assert ended.code == 2
    assert ended.err.startswith("same-subject GATE-IMPORT-001 would compare a.safetensors with itself")
    assert not Path(".weighbridge/bundles").exists()


def linked(folder: Path, way: str) -> tuple[Path, Path]:
    """Return a checkpoint in shards, and another way to the same ones."""
    source, other = folder / "source", folder / "other"
    shutil.copytree(data_path("verifiers") / "specimens" / "checkpoints" / "sharded", source)
    if way in ("shard", "index"):
        return source, next(source.glob("*-00001-*" if way == "shard" else "*.index.json"))
    other.mkdir()
    for file in source.iterdir():
        if way == "linked shards" and file.suffix == ".json":
            shutil.copy(file, other / file.name)
        elif way == "hard links":
            os.link(file, other / file.name)
        else:
            (other / file.name).symlink_to(file)
    return source, other


@pytest.mark.parametrize("way", ["shard", "index", "links", "hard links", "linked shards"])
def test_the_same_tensors_under_two_names_are_not_compared_with_themselves(cli: Cli, workplace: Path, way: str) -> None:
    source, other = linked(workplace, way)
    for one, two in ((source, other), (other, source)):
        ended = cli("verify", IMPORT, "--subject", f"source={one}", "--subject", f"import={two}")
        assert ended.code == 2
        assert ended.err.startswith("same-subject GATE-IMPORT-001 would compare ")
        assert "  both paths are the same file, so nothing can differ" in cli("compare", one, two).lines
    assert not Path(".weighbridge/bundles").exists()


def test_a_copy_of_the_same_tensors_is_no_such_thing(cli: Cli, workplace: Path) -> None:
    source, other = linked(workplace, "linked shards")
    for shard in other.glob("*.safetensors"):
        whole = shard.read_bytes()
        shard.unlink()
        shard.write_bytes(whole)
    assert cli("verify", IMPORT, "--subject", f"source={source}", "--subject", f"import={other}").code == 0


def test_compare_says_that_both_names_lead_to_one_file(cli: Cli) -> None:
    ended = cli("compare", checkpoint("a.safetensors"), "a.safetensors")
    assert ended.lines[1] == "  both paths are the same file, so nothing can differ"


def test_an_empty_contract_shows_nothing_in_any_company(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    (workplace / "empty.yaml").write_text(TIMED.partition("params")[0].replace("timed", "empty"))
    ended = cli("verify", "c.yaml", "empty.yaml", "--subject", "run=good.jsonl")
    assert ended.code == 5
    assert "no gate is declared: this contract shows nothing" in ended.lines
    assert "1 passed of 1 -> exit 5 (nothing shown)" in ended.lines


def test_a_parameter_given_twice_is_refused(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    ended = cli("verify", "c.yaml", "--subject", "run=slow.jsonl", "--param", "budget=10", "--param", "budget=9999")
    assert (ended.code, ended.err) == (2, "param-form --param budget is given twice\n  keep one of the two\n")


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--expect-blocked", "G-*"), "unknown-gate no gate is called 'G-*'; did you mean 'G-1'?"),
        (("--gate", "X*"), "unknown-gate no gate is called 'X*'; known: G-1"),
    ],
)
def test_what_chooses_no_gate_is_refused(cli: Cli, workplace: Path, more: tuple[str, ...], says: str) -> None:
    timed(workplace)
    ended = cli("verify", "c.yaml", "--subject", "run=good.jsonl", *more)
    assert (ended.code, ended.err.strip()) == (2, says)


def test_a_gate_that_is_not_judged_cannot_be_expected_to_be_blocked(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    (workplace / "c.yaml").write_text(TIMED + TIMED.partition("gates:\n")[2].replace("G-1", "G-2"))
    ended = cli("verify", "c.yaml", "--subject", "run=good.jsonl", "--gate", "G-2", "--expect-blocked", "G-1")
    assert ended.code == 2
    assert ended.err.startswith("unknown-gate no gate that is judged is called 'G-1'")


def test_a_failure_says_the_limit_that_would_have_sufficed(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    ended = cli("verify", "c.yaml", "--subject", "run=slow.jsonl")
    assert ended.code == 1
    assert "    would pass with: a median below 500 ms" in ended.lines


# --- Names ------------------------------------------------------------------------------------------------------------

HOSTILE = "x\x1b[31m\nPASS     GATE-IMPORT-001\u202e"
ESCAPED = "x\\x1b[31m\\nPASS     GATE-IMPORT-001\\u202e"


def test_a_hostile_file_name_writes_no_line_of_its_own(cli: Cli) -> None:
    ended = cli("compare", checkpoint(f"{HOSTILE}.safetensors"), checkpoint("b.safetensors", 3.0))
    assert ended.lines[0].startswith(f"{ESCAPED}.safetensors -> b.safetensors")
    assert cli("inspect", f"{HOSTILE}.safetensors").lines[0] == f"{ESCAPED}.safetensors: checkpoint"
    assert cli("inspect", f"{HOSTILE}.gguf").err.startswith(f"{ESCAPED}.gguf: file-missing")


def test_a_hostile_path_and_title_write_no_line_of_their_own(cli: Cli, workplace: Path) -> None:
    title = json.dumps(HOSTILE).replace("\\u001b", "\\e")
    (workplace / "c.yaml").write_text(TIMED.replace("title: time", f"title: {title}"))
    ended = cli("verify", "c.yaml", "--subject", f"run={HOSTILE}")
    assert ended.lines[0] == f"timed 1.0.0   run={ESCAPED}"
    assert ended.lines[1] == f"ERROR    G-1  {ESCAPED}"
    assert "\x1b" not in ended.out
    assert "\u202e" not in ended.out


@pytest.mark.parametrize("name", ["a\x1b\x08b", "a\ufffeb", "\U0001f600", "a]]>b&<c"])
def test_junit_is_xml_whatever_a_tensor_is_called(cli: Cli, name: str) -> None:
    source, imported = checkpoint("a.safetensors", tensor=name), checkpoint("b.safetensors", 3.0, tensor=name)
    subjects = ("--subject", f"source={source}", "--subject", f"import={imported}")
    assert cli("verify", IMPORT, *subjects, "--report", "junit:out.xml").code == 1
    (suite,) = ET.parse("out.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")


def test_junit_is_xml_where_a_path_is_not_unicode(cli: Cli) -> None:
    absent = os.fsdecode(b"absent-\xff")
    subjects = ("--subject", f"source={absent}", "--subject", f"import={absent}")
    assert cli("verify", IMPORT, *subjects, "--report", "junit:out.xml").code == 4
    assert ET.parse("out.xml").getroot()[0].get("errors") == "1"


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("inspect", "x" * 300), 4, "not-readable"),
        (("compare", "x" * 300, "y"), 4, "file-unreadable"),
        (("evidence", "verify", "x" * 300), 4, "not-a-bundle"),
        (("lint", "x" * 300), 2, "file-unreadable"),
    ],
)
def test_a_name_too_long_for_the_system_is_reported(cli: Cli, arguments: tuple[str, ...], code: int, says: str) -> None:
    ended = cli(*arguments)
    assert ended.code == code
    assert says in ended.out + ended.err
    assert "internal" not in ended.err


# --- Processes --------------------------------------------------------------------------------------------------------


def started(*arguments: str, shell: str = "") -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "weighbridge", *arguments]
    command = ["bash", "-c", f'"$@" {shell}', "bash", *words] if shell else words
    # A shell's background job ignores SIGINT, and so would what it starts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_weighing_leaves_nothing_behind(workplace: Path, how: signal.Signals) -> None:
    (workplace / "c.yaml").write_text(REFUSAL)
    (workplace / "slow.sh").write_text("#!/bin/sh\necho $$ > '" + str(workplace) + "/pid'\nsleep 60\n")
    (workplace / "slow.sh").chmod(0o755)
    process = started("verify", "c.yaml", "--subject", "command=./slow.sh", "--record")
    while not (workplace / "pid").exists() or not (workplace / "pid").read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(how)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said.strip()) == (130, "interrupted: unfinished work was discarded")
    assert not (workplace / "evidence").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((workplace / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_reader_that_leaves_early_changes_no_exit_code(workplace: Path) -> None:
    a, b = checkpoint("a.safetensors"), checkpoint("b.safetensors", 3.0)
    verify = ("verify", IMPORT, "--subject", f"source={a}", "--subject", f"import={b}")
    for arguments, code in ((verify, 1), (("compare", a, b), 1), (("explain", "forward-parity"), 0)):
        out, err = started(*arguments, shell="| head -c 1 > /dev/null; echo ${PIPESTATUS[0]}").communicate(timeout=60)
        assert (out, err) == (f"{code}\n", "")


@pytest.mark.slow
def test_output_that_cannot_be_written_is_no_pass() -> None:
    out, err = started("schema", shell="> /dev/full; echo $? >&2").communicate(timeout=60)
    assert out == ""
    assert err == ("system: standard output: No space left on device\n  run again with --debug for the traceback\n4\n")


def test_a_report_that_cannot_be_written_is_reported(cli: Cli, workplace: Path) -> None:
    timed(workplace)
    ended = cli("verify", "c.yaml", "--subject", "run=good.jsonl", "--report", f"junit:{workplace}")
    assert (ended.code, ended.err) == (2, f"report-form {workplace} is a folder\n  name a file in it\n")


# --- Runs -------------------------------------------------------------------------------------------------------------

HEAD = {
    "schema": "weighbridge.run/v0",
    "requested_device": "cpu",
    "resolved_device": "cpu",
    "pid": 12,
    "host": "host-aaaaaaaaaaaa",
    "commit": "abc",
    "dirty": False,
    "started": "2026-01-02T03:04:05.000Z",
}
DEVICE = """
weighbridge: contract/v0
id: device
version: 1.0.0
title: Device
owner: o
subjects: {run: {kind: run}}
gates:
  - id: G-1
    title: device
    kind: no-silent-cpu-fallback
    subjects: {run: run}
    with: {requested: cpu}
  - id: G-2
    title: metrics
    kind: step-metrics
    subjects: {run: run}
    with: {required: [loss]}
"""


@pytest.mark.parametrize(
    ("parameters", "why"),
    [
        ('{"$num": 3}', "a mapping whose only key is '$num' would be read back as a number"),
        ('{"cpu": 1' + "0" * 90 + "}", "not strict JSON: an integer of 91 digits"),
        ('{"https://host/a?x=1": 1, "https://host/a?y=2": 2}', "two names become the same once redacted"),
    ],
)
def test_what_no_bundle_can_hold_breaks_its_own_gate_alone(
    cli: Cli, workplace: Path, parameters: str, why: str
) -> None:
    (workplace / "c.yaml").write_text(DEVICE)
    (workplace / "run").mkdir()
    (workplace / "run/run.json").write_text(json.dumps(HEAD))
    rows = ({"step": step, "loss": 5 - (step / 9) ** 0.5} for step in range(12))
    (workplace / "run/steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (workplace / "run/events.jsonl").write_text(
        '{"event": "device", "step": 0, "ops": {"cpu": 1}, "optimizer": {"cpu": 1}, "dispatch": "audited", '
        f'"witnesses": [], "why": {{}}, "allocated_bytes": 0, "parameters": {parameters}}}\n'
        '{"event": "end", "step": 12, "steps": 12, "by": ""}\n'
    )
    ended = cli("verify", "c.yaml", "--subject", "run=run")
    assert ended.code == 4
    assert f"    what was measured cannot be sealed: {why} (not-sealable)" in ended.lines
    assert any(line.startswith("PASS     G-2  ") for line in ended.lines)
    assert "hunter" not in ended.out + ended.err


def test_nothing_tried_is_no_passed_selftest(cli: Cli, workplace: Path) -> None:
    (workplace / "gates").mkdir()
    (workplace / "verifiers").mkdir()
    card = Path(data_path("verifiers") / "step_series.yaml").read_text("utf-8").partition("specimens:")[0]
    specimen = "specimens: [{name: a, subjects: [a], needs: no_such_package, expects: {step: []}}]\n"
    (workplace / "verifiers/step_series.yaml").write_text(card + specimen)
    ended = cli("selftest", "--cards", workplace)
    assert (ended.code, ended.lines[-1]) == (1, "0 of 1 hold, 0 wrong, 1 not tried")


# --- Terminals --------------------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """Run on a terminal of its own, and give all that is shown there."""
    ours, theirs = pty.openpty()
    plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM")}
    words = [sys.executable, "-m", "weighbridge", *arguments]
    process = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env={**plain, **environment})
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # the terminal is gone once its last process is
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    process.wait(timeout=30)
    return shown


@pytest.mark.slow
def test_colour_and_progress_are_for_terminals_that_want_them(workplace: Path) -> None:
    assert workplace == Path.cwd()
    a, b = checkpoint("a.safetensors"), checkpoint("b.safetensors", 3.0)
    assert b"\x1b[31m" in on_a_terminal("compare", a, b, TERM="xterm")
    assert b"\x1b" not in on_a_terminal("compare", a, b, TERM="xterm", NO_COLOR="1")
    assert b"\x1b" not in on_a_terminal("compare", a, b, TERM="dumb")
    bound = ("--subject", f"source={a}", "--subject", f"import={b}", "--no-evidence")
    printed = on_a_terminal("verify", "builtin:model-import", *bound, TERM="xterm", NO_COLOR="1").decode()
    assert ("✗ FAIL     GATE-MODEL-001" in printed, "… BLOCKED" in printed) == (True, True)


def test_a_ledger_that_is_not_there_is_not_whole(cli: Cli, workplace: Path) -> None:
    ended = cli("ledger", "check", "--ledger", workplace / "typo")
    assert ended.code == 2
    assert ended.err.startswith(f"{workplace}/typo: no-ledger there is no ledger here")


def test_a_line_is_broken_between_words_only_and_its_rest_is_indented() -> None:
    styled = f"    {click.style('a name/that/is/longer/than/the/terminal', fg='red')} and some more words"
    parts = list(broken(styled, 20))
    assert [click.unstyle(part) for part in parts] == [
        "    a", "        name/that/is/longer/than/the/terminal", "        and some", "        more words"
    ]  # fmt: skip
    assert (list(broken("", 20)), list(broken("  x" + "y" * 30, 20))) == ([""], ["  x" + "y" * 30])


def test_progress_says_how_much_how_fast_and_how_long_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 12.0)
    assert rate(2 << 30, 5 << 30, 10.0) == "2.00 of 5.00 GiB, 1024 MiB/s, 3 s left"
    assert rate(0, 5 << 30, 12.0) == "0.00 of 5.00 GiB, 0 MiB/s"


@pytest.mark.slow
def test_lines_are_as_wide_as_the_terminal_and_whole_where_there_is_none(workplace: Path) -> None:
    assert workplace == Path.cwd()
    a, b = checkpoint("a.safetensors"), checkpoint("b.safetensors", 3.0)
    shown = on_a_terminal("compare", a, b, NO_COLOR="1", TERM="xterm", COLUMNS="50").decode()
    whole = on_no_terminal("compare", a, b).stdout.decode()
    assert max(map(len, shown.split("\r\n"))) <= 50 < max(map(len, whole.splitlines()))
    assert shown.split() == whole.split()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_what_an_encoding_lacks_is_written_in_ascii(workplace: Path, encoding: str) -> None:
    assert workplace == Path.cwd()
    ended = on_no_terminal("explain", "wall-time-budget", PYTHONIOENCODING=encoding)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert "(> 0, <= 1e+07, default null)" in ended.stdout.decode(encoding)


def on_no_terminal(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "weighbridge", *arguments]
    return subprocess.run(words, capture_output=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize("words", [("trace", "capture", "m.py:make", "o.trace"), ("inspect", "m.py:make")])
def test_debug_is_known_to_every_verb_and_shows_what_raised(cli: Cli, words: tuple[str, ...]) -> None:
    Path("m.py").write_text("def make():\n    raise ValueError('the shape is wrong')\n")
    asked = cli(*words, "--debug")
    assert asked.code != 0
    assert "No such option" not in asked.err
    assert ("the shape is wrong" in asked.err) == (words[0] == "trace")
    assert "the shape is wrong" not in cli(*words).err
