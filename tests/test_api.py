"""The Python API: its page runs as printed, and importing it costs nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli
from tests.test_readme import folder

import weighbridge
from weighbridge.evidence.bundle import unseal

__all__ = ["cli", "folder"]

PAGE = (Path(__file__).resolve().parents[1] / "spec" / "python-api.md").read_text(encoding="utf-8")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


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
    assert ended.lines[-1] == weighbridge.compare(source, other).answer
    words = ("--subject", "source=model.safetensors", "--subject", "import=mislabelled.safetensors")
    ended = cli("verify", "builtin:checkpoint-import", *words)
    done = weighbridge.verify(
        "builtin:checkpoint-import", subjects={"source": "model.safetensors", "import": other.name}
    )
    assert (done.exit_code, done.passed) == (ended.code, False)
    bundles = [unseal(path) for path in (folder / ".weighbridge" / "bundles").iterdir()]
    assert len({bundle.verdicts for bundle in bundles}) == 1
    assert {bundle.statement.command[0] for bundle in bundles} == {"weighbridge", "weighbridge.verify"}
