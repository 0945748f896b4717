"""init begins: a contract that lints clean, CI that runs it, evidence that git leaves alone; nothing is overwritten."""

from __future__ import annotations

import io
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from safetensors.numpy import save_file
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import HERE
from tests.cli.test_suggestions import Asked, of_blocks, of_gguf, packed, stating
from tests.verifiers.logs_of_others import trainer_state

from weighbridge import __version__
from weighbridge.contract.load import load_contract
from weighbridge.core.data import data_path
from weighbridge.core.printable import singular

CONVERTED = Path(__file__).parent / "llama-by-the-converter"
GITHUB, GITLAB = Path(".github/workflows/weighbridge.yml"), Path(".gitlab/weighbridge.yml")


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())


RUN_GATES = len(load_contract("builtin:training-run").contract.gates)


def next_command(printed: list[str]) -> list[str]:
    (line,) = [line for line in printed if line.startswith("next: weighbridge ")]
    return shlex.split(line)[2:]


@pytest.mark.parametrize(
    ("purpose", "gates"), [("import", {"import": 2}), ("run", {"run": RUN_GATES}), ("parity", {"parity": 2}),
                           ("project", {"import": 2, "run": RUN_GATES})]
)  # fmt: skip
@pytest.mark.usefixtures("workplace")
def test_every_purpose_gives_contracts_that_lint_clean_and_ci_that_verifies_them(
    cli: Cli, purpose: str, gates: dict[str, int]
) -> None:
    ended = cli("init", "--for", purpose)
    assert (ended.code, ended.err) == (0, "")
    linted = cli("lint")
    assert (linted.err, linted.out) == ("", singular(f"{len(gates)} of {len(gates)} contracts are usable\n"))
    assert {name: len(load_contract(f"contracts/{name}.yaml").contract.gates) for name in gates} == gates
    steps = yaml.safe_load(GITHUB.read_text())["jobs"]["gates"]["steps"]
    (ran,) = [step["run"] for step in steps if "verify" in step.get("run", "")]
    verify, _, reports = ran.partition(" \\\n")
    assert shlex.split(verify)[1:] == next_command(ended.lines)
    assert reports.split()[:2] == ["--report", "junit:reports/weighbridge.xml"]


def test_two_commands_lead_from_a_conversion_to_a_gate_that_is_right(cli: Cli, workplace: Path) -> None:
    shutil.copytree(CONVERTED, workplace, dirs_exist_ok=True)
    begun = cli("init", "--for", "import", "--subject", "source=hf", "--subject", "import=model.gguf")
    verified = cli(*next_command(begun.lines))
    assert (verified.code, verified.err) == (0, "")
    assert "2 passed of 2 -> exit 0 (passed)" in verified.lines


def test_a_conversion_that_was_not_meant_fails_with_the_line_that_would_mean_it(cli: Cli, workplace: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    save_file({"a": values}, workplace / "a.safetensors")
    save_file({"a": values.astype(np.float16)}, workplace / "b.safetensors")
    begun = cli("init", "--for", "import", "--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    verify = (*next_command(begun.lines), "--gate", "GATE-MODEL-001")
    failed = cli(*verify)
    shown = "    meant? the tensors pass with `policy: rounded:F16` in {}:10"
    contract = workplace / "contracts" / "import.yaml"
    assert (failed.code, shown.format("contracts/import.yaml") in failed.lines) == (1, True)
    lines = contract.read_text().splitlines()
    lines[9] = "  policy: rounded:F16"
    contract.write_text("\n".join(lines))
    assert cli(*verify).code == 0


def test_a_shipped_contract_that_fails_so_says_how_to_write_one(cli: Cli, workplace: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float32)
    save_file({"a": values}, workplace / "a.safetensors")
    save_file({"a": values.astype(np.float16)}, workplace / "b.safetensors")
    pair = ("--subject", "source=a.safetensors", "--subject", "import=b.safetensors")
    shown = "the tensors pass in the contract that `weighbridge init --for import --param policy=rounded:F16` writes"
    for name in ("model-import", "checkpoint-import"):
        assert shown in cli("verify", f"builtin:{name}", *pair).out


def test_a_policy_that_no_file_states_is_said_to_be_a_guess(cli: Cli, workplace: Path) -> None:
    shutil.copytree(CONVERTED, workplace, dirs_exist_ok=True)
    missing = cli("init", "--for", "import", "--subject", "source=hf", "--subject", "import=absent.gguf")
    assert "guessed import: no file says what was meant, so policy: lossless is a guess" in missing.lines
    alone = cli("init", "--for", "import", "--subject", "import=model.gguf", "--name", "c")
    assert "guessed import: without its source no file is asked, so policy: lossless is a guess" in alone.lines
    for name, more in (("a", ("--subject", "import=model.gguf")), ("b", ("--param", "policy=same"))):
        assert "guess" not in cli("init", "--for", "import", "--subject", "source=hf", "--name", name, *more).out


def test_the_workflow_runs_once_for_a_pull_request_with_the_version_that_wrote_it(cli: Cli, workplace: Path) -> None:
    assert cli("init", "--for", "parity").code == 0
    text = GITHUB.read_text()
    assert "\non: {pull_request: {}, push: {branches: [main, master]}}\n" in text
    assert f"pip install 'weighbridge[torch]=={__version__}' transformers\n" in text
    assert cli("init", "--for", "import", "--ci", "gitlab").code == 0
    assert f"pip install weighbridge=={__version__}\n" in Path(".gitlab", "weighbridge.yml").read_text()


def test_a_policy_is_a_committed_line_in_the_letters_that_are_kept(cli: Cli, workplace: Path) -> None:
    assert cli("init", "--for", "import", "--param", "policy=ROUNDED:f16").code == 0
    text = (workplace / "contracts" / "import.yaml").read_text()
    assert "\n  policy: rounded:F16  # what the conversion was meant to do: " in text
    assert load_contract("contracts/import.yaml").contract.overridden == ()


def test_a_path_that_github_would_fill_in_is_refused(cli: Cli, workplace: Path) -> None:
    ended = cli("init", "--for", "import", "--subject", "import=${{ github.token }}.gguf")
    assert (ended.code, "ci-expression" in ended.err, list(workplace.iterdir())) == (2, True, [])


def test_a_contract_is_never_overwritten_and_other_files_only_grow(cli: Cli, workplace: Path) -> None:
    GITHUB.parent.mkdir(parents=True)
    GITHUB.write_text("mine\n")
    (workplace / ".gitignore").write_text("build/\n.weighbridge/")
    first = cli("init", "--for", "run")
    assert f"kept    {GITHUB}: let it run the command below, too" in first.lines
    assert GITHUB.read_text() == "mine\n"
    assert (workplace / ".gitignore").read_text() == "build/\n.weighbridge/\nreports/\nevidence/ledger/.lock\n"
    assert (workplace / ".gitattributes").read_text() == "evidence/** -text\n"
    before = sorted(path for path in workplace.rglob("*") if path.is_file())
    again = cli("init", "--for", "run", "--param", "device=cuda")
    shown = "contracts/run.yaml: file-exists this contract is there already\n  edit it, or delete it first; --name"
    assert (again.code, again.err) == (2, f"{shown} NAME writes another\n")
    assert sorted(path for path in workplace.rglob("*") if path.is_file()) == before
    assert cli("init", "--for", "run", "--name", "nightly").code == 0
    assert (workplace / ".gitattributes").read_text() == "evidence/** -text\n"


def test_ci_is_that_of_the_repository(cli: Cli, workplace: Path) -> None:
    (workplace / ".gitlab-ci.yml").write_text("test: {script: [make]}\n")
    shown = cli("init", "--for", "run").lines
    assert f"kept    .gitlab-ci.yml: add `include: [{{local: {GITLAB}}}]` to it" in shown
    assert yaml.safe_load(GITLAB.read_text())["weighbridge"]["script"][-1].startswith("weighbridge verify ")
    assert not GITHUB.exists()
    assert cli("init", "--for", "import", "--ci", "none").code == 0
    assert sorted(path.name for path in workplace.iterdir()) == [
        ".gitattributes", ".gitignore", ".gitlab", ".gitlab-ci.yml", "contracts"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ("", "purpose nothing says what is to be checked\n  write --for import|run|parity|project\n"),
        ("--for run --subject rum=a", "unknown-subject there is no subject 'rum' here; did you mean 'run'?\n"),
        ("--for run --param devic=cpu", "unknown-param there is no parameter 'devic' here; did you mean 'device'?\n"),
        ("--for run --name Run", "name-form 'Run' cannot name a contract\n  leave --name out, or write lower-case "
         "words joined by hyphens\n"),
        ("--for import --param policy=bf16", "--param policy=bf16: unknown-choice 'bf16' is not same, lossless, "
         "packed, rounded:TYPE, requant:TYPE, quantised:FTYPE or at-most:POLICY, joined by +; did you mean "
         "'rounded:BF16'?\n"),
    ],
)  # fmt: skip
def test_what_cannot_be_begun_writes_nothing(cli: Cli, workplace: Path, asked: str, shown: str) -> None:
    ended = cli("init", *asked.split())
    assert (ended.code, ended.err) == (2, shown)
    assert list(workplace.iterdir()) == []


def test_a_path_that_is_not_there_is_reported(cli: Cli, workplace: Path) -> None:
    ended = cli("init", "--for", "run", "--subject", "run=nowhere")
    assert (ended.code, ended.lines[0]) == (0, "missing run: nowhere is not there")
    assert "missing" not in cli("init", "--for", "import", "--subject", "source=https://example.org/a.gguf").out


def test_a_folder_that_cannot_be_written_is_reported(cli: Cli, workplace: Path, as_anybody: None) -> None:
    workplace.chmod(0o555)
    ended = cli("init", "--for", "run")
    workplace.chmod(0o755)
    first, second = ended.err.splitlines()
    assert (ended.code, first) == (4, "contracts/run.yaml: disk the file was not written: Permission denied (EACCES)")
    assert second.endswith("or choose a folder that you can write")


def test_no_secret_of_a_url_is_written(cli: Cli, workplace: Path) -> None:
    begun = cli("init", "--for", "import", "--subject", "import=https://me:pw@host/model.gguf?token=xyz")
    assert "import=https://host/model.gguf" in begun.lines[-1]
    assert not [path for path in workplace.rglob("*.y*ml") if re.search("pw|xyz", path.read_text())]


def test_inside_of_a_repository_it_is_sent_to_the_root_but_for_a_contract_without_ci(
    cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(("git", "init", "-q"), check=True)
    (workplace / "deep").mkdir()
    monkeypatch.chdir(workplace / "deep")
    ended = cli("init", "--for", "run")
    assert (ended.code, ended.err.splitlines()[-1]) == (2, f"  type it in {workplace.resolve()}, or add --ci none")
    assert list((workplace / "deep").iterdir()) == []
    assert cli("init", "--for", "run", "--ci", "none").code == 0
    assert Path("contracts", "run.yaml").is_file()


def test_a_good_run_gives_the_parameters_under_which_it_passes(cli: Cli, workplace: Path) -> None:
    run = data_path("verifiers") / "specimens" / "runs" / "wrapped"
    begun = cli("init", "--from-run", run, "--param", "device=cpu")
    params = load_contract(workplace / "contracts" / "run.yaml").contract.params
    assert params == {"device": "cpu", "budget_ms": 152, "tokens_per_step": 512, "row_passes": 40, "floor_share": 0.4}
    timed = cli(*next_command(begun.lines), "--gate", "GATE-RUN-004")
    assert (timed.code, "median" in timed.out) == (0, True)
    assert load_contract("builtin:training-run").contract.params["tokens_per_step"] == 1024


@pytest.mark.parametrize(("asked", "code"), [("--for import --from-run x", 2), ("--from-run nothing", 4)])
def test_a_run_that_says_nothing_is_refused(cli: Cli, workplace: Path, asked: str, code: int) -> None:
    assert cli("init", *asked.split()).code == code
    assert list(workplace.iterdir()) == []


@pytest.mark.slow
def test_on_a_terminal_it_asks(workplace: Path) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, b"import\nhf\nmodel.gguf\nrounded:F16\n")
    argv = (sys.executable, "-m", "weighbridge", "init", "--ci", "none")
    ended = subprocess.run(argv, stdin=theirs, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert next_command(ended.stdout.splitlines())[2:] == ["--subject", "source=hf", "--subject", "import=model.gguf"]
    assert load_contract(workplace / "contracts" / "import.yaml").contract.params == {"policy": "rounded:F16"}


def to_blocks(folder: Path) -> Asked:
    hf, file, _ = of_blocks(folder)
    return hf, stating(file, 15), ()


IMPORTS: Mapping[str, tuple[Callable[[Path], Asked], str]] = {
    "F32": (of_gguf(kind=0), "lossless"),
    "F16": (of_gguf(dtype="F16", kind=1), "rounded:F16"),
    "Q8_0": (of_gguf(dtype="Q8_0", kind=7), "requant:Q8_0"),
    "Q4_0, the head too": (of_gguf(dtype="Q4_0", kind=2), "at-most:quantised:Q4_0"),
    "Q4_K_M": (to_blocks, "quantised:Q4_K_M"),
    "GPTQ": (packed("gptq-4"), "packed+rounded:F16"),
    "AWQ": (packed("awq-gemm"), "packed+rounded:F16"),
    "GPTQ of its own dtype": (lambda _: (HERE / "source-32", HERE / "gptq-4", ()), "packed"),
}  # fmt: skip


@pytest.mark.parametrize("made", IMPORTS)
def test_the_policy_is_what_the_import_states_and_passes_on_it(cli: Cli, workplace: Path, made: str) -> None:
    build, policy = IMPORTS[made]
    source, candidate, _ = build(workplace)
    begun = cli("init", "--for", "import", "--subject", f"source={source}", "--subject", f"import={candidate}")
    assert begun.lines[0].endswith(f"says policy: {policy}"), begun.err
    ended = cli(*next_command(begun.lines), "--gate", "GATE-MODEL-001")
    assert ended.code == 0, ended.out


LOSSES = [2 + 4 * 0.97**at + 0.01 * (at * 7919 % 13) for at in range(60)]


def by_lightning(folder: Path) -> Path:
    (folder / "version_0").mkdir(parents=True)
    rows = "".join(f"{at // 30},{at},{loss}\n" for at, loss in enumerate(LOSSES))
    (folder / "version_0" / "metrics.csv").write_text(f"epoch,step,train_loss\n{rows}")
    return folder / "version_0"


def by_console(folder: Path) -> Path:
    """Write what nanoGPT prints."""
    lines = (
        f"iter {at}: loss {loss:.4f}, time {100 + at % 7}.00ms, mfu {3 + at % 5 / 10:.2f}%\n"
        for at, loss in enumerate(LOSSES)
    )
    (folder / "log.txt").write_text("".join(lines))
    return folder / "log.txt"


LOGS: Mapping[str, tuple[Callable[[Path], Path], str]] = {
    "a Trainer's": (lambda folder: trainer_state(folder / "trainer_state.json"), "training-log"),
    "a Trainer's folder": (lambda folder: trainer_state(folder / "trainer_state.json").parent, "training-log"),
    "Lightning's": (by_lightning, "training-log"),
    "a console": (by_console, "training-log"),
}


@pytest.mark.parametrize("made", LOGS)
def test_the_contract_is_the_one_that_fits_the_run_and_passes_on_a_good_one(
    cli: Cli, workplace: Path, made: str
) -> None:
    build, fits = LOGS[made]
    (workplace / "out").mkdir()
    begun = cli("init", "--for", "run", "--subject", f"run={build(workplace / 'out')}")
    assert begun.lines[0] == f"read    run: builtin:{fits} fits it", begun.err
    ended = cli(*next_command(begun.lines))
    assert (ended.code, ended.err) == (0, ""), ended.out


@pytest.mark.slow
def test_a_recorded_run_passes_the_contract_that_is_written_for_it(cli: Cli, workplace: Path) -> None:
    torch = pytest.importorskip("torch")
    from weighbridge.recorder import Recorder

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(32, 16), torch.nn.Linear(16, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    rows = [(torch.randint(0, 32, (8, 1)) + 3 * torch.arange(17)) % 32 for _ in range(80)]
    shape: dict[str, Any] = {"seq_len": 16, "batch_size": 8, "vocab": 32, "requested_steps": 80}
    with Recorder(workplace / "runs" / "a", model, optimizer, loader=rows, requested_device="cpu", **shape) as rec:
        for batch in rec.loader:
            loss = torch.nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            rec.step(loss)
            optimizer.zero_grad()
    begun = cli("init", "--for", "run", "--subject", "run=runs/a")
    assert begun.lines[0] == "read    run: builtin:training-run fits it", begun.err
    ended = cli(*next_command(begun.lines))
    assert (ended.code, ended.err) == (0, ""), ended.out


@pytest.mark.parametrize(
    "log", ["step,loss\n", "", '{"log_history": [], "global_step": 40, "max_steps": 40, "logging_steps": 500}']
)
def test_of_a_log_without_a_step_the_contract_is_a_guess_and_its_gates_are_blocked(
    cli: Cli, tmp_path: Path, log: str
) -> None:
    path = tmp_path / ("log.json" if log.startswith("{") else "log.csv")
    path.write_text(log)
    ended = cli("verify", "builtin:training-log", "--subject", f"run={path}")
    gates = len(load_contract("builtin:training-log").contract.gates)
    said = f"{gates} blocked (5 as advice) of {gates} -> exit 3 (blocked)"
    assert (ended.code, ended.lines[-1]) == (3, said), ended.out
    begun = cli("init", "--for", "run", "--subject", f"run={path}", "--ci", "none")
    assert (begun.code, begun.err) == (0, "")
    assert re.fullmatch("guessed run: .*, so builtin:training-log is a guess", begun.lines[0])
    assert cli(*next_command(begun.lines)).code == 3
    ended = cli("init", "--from-run", path, "--name", "b", "--ci", "none")
    assert (ended.code, "bind a log" in ended.err or "logging_steps=1" in ended.err) == (4, True)


def test_of_a_recorders_run_without_a_step_the_contract_is_that_of_a_recorded_run(cli: Cli, workplace: Path) -> None:
    (workplace / "a").mkdir()
    (workplace / "a" / "run.json").write_text('{"schema": "weighbridge.run/v0", "pid": 1}')
    (workplace / "a" / "steps.jsonl").touch()
    begun = cli("init", "--for", "run", "--subject", "run=a", "--ci", "none")
    assert begun.lines[0] == "guessed run: the file is empty, so builtin:training-run is a guess", begun.err
