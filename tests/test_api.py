"""The Python API: its page runs as printed, and importing it costs nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli

import weighbridge
from weighbridge.core.data import data_path
from weighbridge.demo import mislabel, to_gguf
from weighbridge.evidence.bundle import unseal

__all__ = ["cli"]

PAGE = (Path(__file__).resolve().parents[1] / "spec" / "python-api.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
WIDTH = 96


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
    """Prepare a folder with the files that the page names."""
    rng = np.random.default_rng(0)
    model = {name: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for name, shape in shapes().items()}
    save_file(model, workplace / "model.safetensors")
    to_gguf(workplace / "model.safetensors", workplace / "model.gguf")
    mislabel(workplace / "model.safetensors", workplace / "mislabelled.safetensors")
    shutil.copytree(data_path("verifiers") / "specimens" / "runs" / "wrapped", workplace / "runs" / "a")
    return workplace


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_page_runs_as_printed() -> None:
    assert CODE.count("assert") >= 10
    exec(compile(CODE, "python-api.md", "exec"), {})


def test_every_name_is_there_and_on_the_page() -> None:
    names = set(weighbridge.__all__) - {"__version__"}
    assert {name for name in names if f"| `{name}" in PAGE} == names
    with pytest.raises(AttributeError, match="has no attribute 'verfy'"):
        getattr(weighbridge, "verfy")  # noqa: B009 -- mypy knows that it is not there


def test_importing_the_package_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import weighbridge; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run((sys.executable, "-c", code), check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["weighbridge"]


@pytest.mark.slow
def test_python_comes_to_what_the_command_line_comes_to(cli: Cli, folder: Path) -> None:
    source, other = folder / "model.safetensors", folder / "mislabelled.safetensors"
    ended = cli("compare", source, other)
    found = weighbridge.compare(source, other)
    assert (ended.lines[-1], found.passed) == (found.answer, False)
    assert found.report.splitlines() == [ended.lines[0].partition("   policy")[0], *ended.lines[1:]]
    words = ("--subject", "source=model.safetensors", "--subject", "import=mislabelled.safetensors")
    ended = cli("verify", "builtin:checkpoint-import", *words)
    done = weighbridge.verify(
        "builtin:checkpoint-import", subjects={"source": "model.safetensors", "import": other.name}
    )
    assert (done.exit_code, done.passed) == (ended.code, False)
    assert [line for line in done.report.splitlines() if not line.startswith("evidence: ")] == [
        line for line in ended.lines if not line.startswith("evidence: ")
    ]
    bundles = [unseal(path) for path in (folder / ".weighbridge" / "bundles").iterdir()]
    assert len({bundle.verdicts for bundle in bundles}) == 1
    assert {bundle.statement.command[0] for bundle in bundles} == {"weighbridge", "weighbridge.verify"}


def test_an_answer_is_neither_true_nor_false(folder: Path) -> None:
    found = weighbridge.compare(folder / "model.safetensors", "none.gguf")
    done = weighbridge.verify("builtin:checkpoint-import", subjects={"source": folder / "model.safetensors"})
    for answer in (found, done):
        with pytest.raises(TypeError, match="is neither true nor false: ask its `passed`"):
            assert answer


def test_the_answer_about_a_file_that_is_not_there_names_it(folder: Path) -> None:
    found = weighbridge.compare(folder / "model.safetensors", "none.gguf")
    assert (found.outcome, found.answer) == ("ERROR", "UNREADABLE: file-missing: none.gguf: there is no such file")
