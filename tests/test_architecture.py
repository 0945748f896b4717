"""The house's walls: who may import whom, what stays out of judges, and what stays out of start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

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
HEAVY = {"torch", "numpy", "gguf", "ml_dtypes", "jsonschema", "filelock", "safetensors", "fsspec", "aiohttp", "onnx",
         "securesystemslib", "cryptography"}  # fmt: skip

MEASURING = {
    *("views", "verifiers", "run_logs", "comparison", "scheduling", "formats", "model_config"),
    *("storage", "runner", "recorder", "forward"),
}
LOCAL_FILES = "storage/local_files"  # the one module of its room that judging again may read with

# What judging again rests on, from the floor up: each floor may import itself and the floors before it.
FLOORS = (
    {"model", "limits", "canonical", "errors", "printable"},
    {"quantities", "clauses", "gates"},
    {"contract", "data", LOCAL_FILES},
    {"judging"},
    {"evidence", "pseudonym", "project"},
    {"ledger", "spec"},
)


def modules(*rooms: str) -> list[Path]:
    paths = [SOURCE / f"{room}.py" for room in rooms] + [p for room in rooms for p in (SOURCE / room).rglob("*.py")]
    return sorted(path for path in paths if path.exists())


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
    own = {name.removeprefix("weighbridge.").replace(".", "/") for name in names if name.startswith("weighbridge.")}
    return {LOCAL_FILES if name.startswith(LOCAL_FILES) else name.split("/")[0] for name in own - {"storage"}}


def import_graph() -> dict[str, set[str]]:
    """Return what each module imports anywhere, also inside functions.

    Importing a module of a package counts for that module alone, importing another name for the package's `__init__`.
    """
    paths = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    named = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph: dict[str, set[str]] = {}
    for name, path in named.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found = {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                within = {f"{node.module}.{alias.name}" for alias in node.names}
                found = within if within <= set(named) else {node.module} | within
            else:
                continue
            graph.setdefault(name, set()).update((found & set(named)) - {name})
    return graph


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Return the first circle of a graph, or nothing."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


@pytest.mark.slow
def test_no_module_imports_itself_by_way_of_others_even_inside_functions() -> None:
    assert circle(import_graph()) == []


@pytest.mark.slow
def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circle(import_graph() | {"weighbridge.errors": {"weighbridge.cli.verify"}})


def test_no_two_modules_share_a_file_name() -> None:
    names = Counter(path.name for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize("path", modules("gates", "clauses", "quantities"), ids=lambda path: path.stem)
def test_a_judge_imports_nothing_that_measures(path: Path) -> None:
    names = imported(path)
    assert not {name.split(".")[0] for name in names} & IMPURE
    assert not rooms_of(names) & MEASURING


# What knows only names, keys and shapes, and looks at no file.
PLAIN = (
    *("model_config/model_keys", "model_config/header_keys", "model_config/model_defaults"),
    "model_config/conversion_facts",
    *("comparison/gguf_mapping", "comparison/mapping_plan", "comparison/gguf_rules", "comparison/gguf_names"),
    *("comparison/gguf_layouts", "comparison/generated_tables"),
)


@pytest.mark.parametrize("path", modules(*PLAIN), ids=lambda path: path.stem)
def test_a_mapping_looks_at_no_file(path: Path) -> None:
    names = imported(path)
    assert not {name.split(".")[0] for name in names} & (IMPURE - {"gguf"})
    own = {name for name in names if name.startswith("weighbridge.")}
    assert own <= {name for name in own if name.split(".")[1] in ("model", "quantities") or in_plain(name)}


def in_plain(name: str) -> bool:
    return any(name.startswith(f"weighbridge.{plain.replace('/', '.')}") for plain in PLAIN)


def test_every_mapping_is_there() -> None:
    assert len(modules(*PLAIN)) == len(PLAIN)


@pytest.mark.parametrize("path", modules(*MEASURING - {"runner"}), ids=lambda path: path.stem)
def test_what_measures_never_imports_a_judge(path: Path) -> None:
    assert not rooms_of(imported(path)) & {"gates", "judging", "runner", "evidence"}


# What measuring rests on: each room, and the rooms it may import from; single modules like `errors` are free to all.
ALLOWED = {
    "quantities": set(),
    "storage": set(),
    "formats": {"storage"},
    "run_logs": {"storage", "views", "quantities"},
    "model_config": {"storage", "formats", "views", "quantities"},
    "comparison": {"formats", "storage", "model_config", "views", "quantities"},
    "scheduling": {"formats", "storage", "views"},
    "forward": {"storage", "formats", "comparison"},
    "views": {"storage", "formats", "run_logs", "forward"},
    "verifiers": {
        *("storage", "formats", "run_logs", "model_config", "comparison", "scheduling", "forward", "views"),
        "quantities",
    },
    "recorder": set(),
    "demo": {"forward", "recorder"},
}


@pytest.mark.parametrize("room", ALLOWED)
def test_a_room_that_measures_imports_only_the_rooms_it_rests_on(room: str) -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    found = {(path.name, other) for path in modules(room) for other in rooms_of(imported(path)) & folders}
    assert {(name, other) for name, other in found if other not in ALLOWED[room] | {room}} == set()


@pytest.mark.slow
@pytest.mark.parametrize("floor", range(len(FLOORS)))
def test_imports_go_downwards(floor: int) -> None:
    below = set().union(*FLOORS[: floor + 1])
    upward = {
        (path.name, room)
        for path in modules(*FLOORS[floor])
        for room in rooms_of(imported(path))
        if room in set().union(*FLOORS) - below or room in MEASURING | {"cli", "report", "binding"}
    }
    assert not upward


@pytest.mark.parametrize(
    "path", modules(*MEASURING - {"recorder", "runner"}, *set().union(*FLOORS), "cli", "report"), ids=str
)
def test_heavy_libraries_are_imported_where_they_are_needed(path: Path) -> None:
    assert not {name.split(".")[0] for name in imported(path, top_only=True)} & HEAVY


def test_starting_up_imports_no_heavy_library() -> None:
    code = "import sys, weighbridge.cli, weighbridge.cli.lint, weighbridge.judging; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY


@pytest.mark.slow
def test_comparing_two_safetensors_files_imports_no_other_reader_and_no_yaml(tmp_path: Path) -> None:
    for name in "ab":
        save_file({"w": np.arange(8, dtype=np.float32)}, tmp_path / f"{name}.safetensors")
    code = "import sys, weighbridge.cli as cli; sys.exit = lambda code: print(code, *sys.modules); cli.main()"
    paths = (str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors"))
    done = subprocess.run([sys.executable, "-c", code, "compare", *paths], check=True, capture_output=True, text=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert loaded >= {"0", "numpy", "weighbridge.formats.safetensors_file"}
    readers = {path.stem for path in modules("formats") if path.stem.endswith("_file")} - {"safetensors_file"}
    others = {f"weighbridge.formats.{stem}" for stem in readers} | {"weighbridge.quantities.runs", "weighbridge.cards"}
    assert not loaded & (others | HEAVY - {"numpy", "ml_dtypes"} | {"yaml", "weighbridge.contract.strict_yaml"})


def test_every_room_is_on_the_map_and_every_name_on_it_is_there() -> None:
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    rooms = {f"{path.name}/" if path.is_dir() else path.stem for path in SOURCE.iterdir() if _is_room(path)}
    told = [name for line in readme.splitlines() if line.startswith("| `") for name in _named(line.split("|")[1])]
    assert sorted(told) == sorted(rooms)
    first = [name for line in readme.splitlines() if line[:2].strip(".").isdigit() for name in _named(line)]
    assert [name for name in first if not (SOURCE / name).is_file()] == []
    assert len(readme.splitlines()) <= 36


def _is_room(path: Path) -> bool:
    return (path / "__init__.py").exists() or (path.suffix == ".py" and path.name != "__init__.py")


def _named(text: str) -> list[str]:
    return text.split("`")[1::2]
