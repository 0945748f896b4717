"""The README runs as printed, and what it claims is so."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli
from tests.verifiers.logs_of_others import trainer_state

from weighbridge.cli import VERBS
from weighbridge.contract.load import builtin_names
from weighbridge.core.data import data_path
from weighbridge.core.exit_code import ExitCode
from weighbridge.demo import mislabel, to_gguf
from weighbridge.evidence import signatures

__all__ = ["cli"]

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ELSEWHERE = re.compile(r"^## Our own evidence\n.*?(?=^## )", re.MULTILINE | re.DOTALL)  # test_own_evidence.py runs it
RUNS = data_path("verifiers") / "specimens" / "runs"
WIDTH = 96


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", ELSEWHERE.sub("", README), re.MULTILINE | re.DOTALL)


CONSOLE = [line for block in blocks("console") for line in block.replace("\\\n", " ").splitlines()]
COMMANDS = [line.removeprefix("$ ").partition("  #")[0].rstrip() for line in CONSOLE if line.startswith("$ ")]
CONTRACTS = {contract.split()[3]: contract for contract in blocks("yaml")}
TYPED = [command for command in COMMANDS if not command.startswith("make ")]
ENDS = {"init": ExitCode.PASSED, "show": ExitCode.PASSED, "compare": ExitCode.FAILED,
        "verify builtin:checkpoint-import": ExitCode.PASSED,
        "verify builtin:training-run": ExitCode.BLOCKED, "verify builtin:forward-parity": ExitCode.PASSED,
        "verify my-fine-tune.yaml": ExitCode.PASSED,
        "evidence": ExitCode.PASSED, "amend": ExitCode.PASSED}  # fmt: skip


def shapes() -> dict[str, tuple[int, ...]]:
    """Give the names and shapes of the demo's model, as its import has them."""
    linear = {f"attn.{part}": (WIDTH, WIDTH) for part in "qkvo"}
    linear |= {"up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
    block: dict[str, tuple[int, ...]] = {}
    for name, (out, into) in linear.items():
        block |= {f"{name}.weight": (out, into), f"{name}.bias": (out,)}
    for name in ("attn_norm", "ffn_norm"):
        block |= {f"{name}.weight": (WIDTH,), f"{name}.bias": (WIDTH,)}
    ends: dict[str, tuple[int, ...]] = {
        "token.weight": (256, WIDTH),
        "position.weight": (128, WIDTH),
        "head.weight": (256, WIDTH),
    }
    ends |= {"norm.weight": (WIDTH,), "norm.bias": (WIDTH,)}
    return ends | {f"blocks.{layer}.{name}": shape for layer in range(3) for name, shape in block.items()}


@pytest.fixture
def folder(workplace: Path) -> Path:
    """Prepare a folder with the files that the README names."""
    rng = np.random.default_rng(0)
    model = {name: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for name, shape in shapes().items()}
    save_file(model, workplace / "model.safetensors")
    to_gguf(workplace / "model.safetensors", workplace / "model.gguf")
    mislabel(workplace / "model.safetensors", workplace / "mislabelled.safetensors")
    shutil.copytree(data_path("contracts"), workplace / "contracts")
    shutil.copytree(RUNS / "wrapped", workplace / "runs" / "a")
    (workplace / "out").mkdir()
    trainer_state(workplace / "out" / "trainer_state.json")
    signatures.new_key(workplace / "ada.key")
    for name, contract in CONTRACTS.items():
        (workplace / f"{name}.yaml").write_text(contract, encoding="utf-8")
    return workplace


# --- What can be typed ------------------------------------------------------------------------------------------------


def test_there_are_commands_to_type() -> None:
    assert [command.split()[0] for command in TYPED] == [*["weighbridge"] * 5, "pytest", *["weighbridge"] * 7]
    assert [command for command in COMMANDS if command not in TYPED] == ["make demo", "make test"]


@pytest.mark.slow
@pytest.mark.parametrize("command", [command for command in TYPED if command.startswith("weighbridge")])
def test_every_command_runs_as_printed(cli: Cli, folder: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    if "builtin:forward-parity" in words:
        transformers = pytest.importorskip("transformers")
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=64, bos_token_id=0, eos_token_id=0)
        transformers.utils.logging.disable_progress_bar()
        transformers.GPT2LMHeadModel(config).save_pretrained(folder / "model")
    if "BUNDLE" in words:
        cli(
            "verify",
            "builtin:checkpoint-import",
            "--subject",
            "source=model.safetensors",
            "--subject",
            "import=model.gguf",
        )
        (bundle,) = (folder / ".weighbridge" / "bundles").iterdir()
        words = [str(bundle) if word == "BUNDLE" else word for word in words]
    ended = cli(*words)
    (expected,) = [code for begins, code in ENDS.items() if " ".join(words).startswith(begins)]
    assert ended.code == expected
    assert ended.err == "" or words[1] == "rejudge", ended.err
    assert not any(word.startswith("junit:") for word in words) or (folder / "report.xml").is_file()


@pytest.mark.slow
def test_what_a_command_prints_is_what_is_printed_here(cli: Cli, folder: Path) -> None:
    assert folder.is_dir()
    (block,) = [block for block in blocks("console") if "weighbridge compare" in block]
    command, *printed = block.splitlines()
    said = cli(*shlex.split(command)[2:]).out
    pattern = "".join("(?:.*\n)+?" if line.strip() == "…" else f"{re.escape(line)}\n" for line in printed)
    assert re.fullmatch(pattern, said), said


@pytest.mark.slow
def test_the_contract_is_collected_by_pytest_as_printed(folder: Path) -> None:
    (command,) = [command for command in TYPED if command.startswith("pytest")]
    argv = (sys.executable, "-m", *shlex.split(command), "-p", "no:cacheprovider")
    ended = subprocess.run(argv, cwd=folder, check=False, capture_output=True, text=True)
    assert (ended.returncode, "1 passed" in ended.stdout) == (0, True), ended.stdout


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_contract_lints_clean(cli: Cli, name: str) -> None:
    ended = cli("lint", f"{name}.yaml")
    assert (ended.code, ended.out, ended.err) == (0, "1 of 1 contract is usable\n", "")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_contract_passes_a_good_import_and_fails_a_mislabelled_one(cli: Cli) -> None:
    bound = ("verify", "my-import.yaml", "--subject", "source=model.safetensors", "--subject")
    assert cli(*bound, "import=model.gguf").code == ExitCode.PASSED
    assert cli(*bound, "import=mislabelled.safetensors").code == ExitCode.FAILED


def test_the_recorder_is_used_as_printed(workplace: Path) -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: object) -> object:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    snippet, _ = blocks("python")
    names = {"model": model, "optimizer": optimizer, "device": "cpu", "N": 12, "train_step": train_step}
    exec(snippet, names | {"loader": [torch.ones(3, 2)] * 4})
    assert len((workplace / "runs" / "a" / "steps.jsonl").read_text().splitlines()) == 4


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # theirs
def test_the_callback_is_used_as_printed(workplace: Path) -> None:
    for library in ("torch", "transformers", "accelerate", "lightning"):
        pytest.importorskip(library)
    from tests.integrations.test_transformers import ROWS, SEQ, STEPS, trainer

    _, snippet = blocks("python")
    given = {"N": ROWS * SEQ, "Trainer": lambda _, callbacks: trainer(workplace, *callbacks).train()}
    exec(snippet, given)
    assert len((workplace / "runs" / "a" / "steps.jsonl").read_text().splitlines()) == STEPS
    exec(snippet.replace(".transformers", ".lightning"), given | {"Trainer": lambda _, callbacks: None})


# --- What is claimed --------------------------------------------------------------------------------------------------


def test_the_exit_codes_are_those_of_the_tool() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE)
    assert [int(code) for code, _ in rows] == [int(code) for code in ExitCode]
    words = {"PASSED": "passed", "FAILED": "failed", "INVALID": "invalid", "BLOCKED": "BLOCKED", "ERROR": "error",
             "NOTHING_SHOWN": "nothing was shown", "INTERRUPTED": "interrupted"}  # fmt: skip
    for (_, meaning), code in zip(rows, ExitCode, strict=True):
        assert words[code.name] in meaning


def test_the_shipped_contracts_are_all_named() -> None:
    listed = re.search(r"contracts ship with the tool:\s(.*?)\.\n", README, re.DOTALL)
    assert listed
    assert tuple(re.findall(r"`builtin:([a-z-]+)`", listed[1])) == builtin_names()


def test_every_verb_that_is_named_exists() -> None:
    named = set(re.findall(r"`weighbridge ([a-z-]+)", README)) | {
        command.split()[1] for command in TYPED if command.startswith("weighbridge")
    }
    assert named <= set(VERBS)
    assert {"lint", "explain", "schema", "selftest", "status", "evidence", "compare", "verify"} <= named


def test_every_link_and_page_is_there() -> None:
    links = re.findall(r"\]\(([^)]+)\)", README) + re.findall(r"`(spec/[^`]+)`", README)
    assert len(links) >= 6
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_the_two_set_up_commands_are_targets() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test", "test-fast", "lint", "bench", "evidence"} <= set(targets)
