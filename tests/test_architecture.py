"""The house's walls: who may import whom, what stays out of judges, and what stays out of start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import weighbridge

SOURCE = Path(weighbridge.__file__).parent
IMPURE = {
    "torch",
    "numpy",
    "random",
    "time",
    "datetime",
    "os",
    "io",
    "pathlib",
    "subprocess",
    "socket",
    "safetensors",
    "gguf",
}
HEAVY = {"torch", "numpy", "gguf", "ml_dtypes", "jsonschema", "rich", "safetensors"}

# What judging again rests on, from the floor up: each floor may import itself and the floors before it.
FLOORS = (
    {"model", "limits", "canonical", "errors", "printable"},
    {"gates", "structure"},
    {"contract", "data", "files"},
    {"judging"},
    {"evidence", "pseudonym"},
    {"ledger", "amendment"},
)


def modules(*rooms: str) -> list[Path]:
    paths = [SOURCE / f"{room}.py" for room in rooms] + [p for room in rooms for p in (SOURCE / room).rglob("*.py")]
    return [path for path in paths if path.exists()]


def imported(path: Path, *, top_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_only else list(ast.walk(tree))
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def rooms_of(names: set[str]) -> set[str]:
    return {name.split(".")[1] for name in names if name.startswith("weighbridge.")}


@pytest.mark.parametrize("path", modules("gates"), ids=lambda path: path.stem)
def test_a_judge_imports_nothing_that_measures(path: Path) -> None:
    names = imported(path)
    assert not {name.split(".")[0] for name in names} & IMPURE
    assert not rooms_of(names) & {"verifiers", "views", "runner", "recorder"}


@pytest.mark.parametrize("path", modules("mapping"), ids=lambda path: path.stem)
def test_a_mapping_looks_at_no_file(path: Path) -> None:
    names = imported(path)
    assert not {name.split(".")[0] for name in names} & (IMPURE - {"gguf"})
    assert rooms_of(names) <= {"mapping", "model"}


@pytest.mark.parametrize("path", modules("verifiers", "views"), ids=lambda path: path.stem)
def test_a_verifier_never_imports_a_gate(path: Path) -> None:
    assert not rooms_of(imported(path)) & {"gates", "judging", "runner", "evidence"}


@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_imports_go_downwards(floor: int) -> None:
    below = set().union(*FLOORS[: floor + 1])
    upward = {
        (path.name, room)
        for path in modules(*FLOORS[floor])
        for room in rooms_of(imported(path))
        if room in set().union(*FLOORS) - below or room in {"views", "verifiers", "runner", "cli", "report", "binding"}
    }
    assert not upward


@pytest.mark.parametrize(
    "path", modules("gates", "contract", "evidence", "mapping", "views", "verifiers", "cli", "report"), ids=str
)
def test_heavy_libraries_are_imported_where_they_are_needed(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path, top_only=True)} & HEAVY


def test_starting_up_imports_no_heavy_library() -> None:
    code = "import sys, weighbridge.cli, weighbridge.cli.lint, weighbridge.judging; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY
