"""The house's walls: who may import whom, what stays out of judges, and what stays out of start-up."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import weighbridge

SOURCE = Path(weighbridge.__file__).parent
IMPURE = {
    *("torch", "numpy", "random", "time", "datetime", "os", "io", "pathlib", "subprocess", "socket"),
    *("safetensors", "gguf"),
}
HEAVY = {
    *("torch", "numpy", "gguf", "ml_dtypes", "jsonschema", "filelock", "safetensors", "fsspec", "aiohttp", "onnx"),
    *("securesystemslib", "cryptography"),
}

# What measures, and the rooms of ours that each may import from; `core` and `quantities` are free to all of them.
MEASURING: Mapping[str, set[str]] = {
    "storage": set(),
    "formats": {"storage"},
    "run_logs": {"storage", "views"},
    "model_config": {"storage", "formats", "views"},
    "comparison": {"formats", "storage", "model_config", "views", "mapping"},
    "mapping": {"formats", "model_config", "views"},
    "packing": {"formats", "comparison", "mapping", "views"},
    "scheduling": {"formats", "storage", "views"},
    "forward": {"storage", "formats"},
    "views": {"storage", "formats", "run_logs", "forward"},
    "verifiers": {
        *("storage", "formats", "run_logs", "model_config", "comparison", "mapping", "packing", "scheduling"),
        *("forward", "views"),
    },
    "diagnosis": {"forward"},
    "recorder": {"diagnosis"},
    "integrations": {"recorder", "diagnosis"},
    "demo": {"forward", "recorder"},
}

# What judging again rests on, from the floor up: each floor may import itself and the floors before it.
FLOORS = (
    {"core"},
    {"quantities"},
    {"figures"},
    {"clauses", "gates"},
    {"contract"},
    {"judging"},
    {"evidence"},
    {"ledger", "spec"},
)

# What knows only names, keys and shapes, and looks at no file but the tables that ship beside it (`core/data.py`).
PLAIN = (
    *("model_config.model_keys", "model_config.model_defaults"),
    *("mapping.gguf_mapping", "mapping.mapping_plan", "mapping.gguf_rules", "mapping.gguf_names"),
    "mapping.tensor_rules",
)


@dataclass(frozen=True, slots=True)
class Module:
    """One module of ours: what it imports anywhere, and what as it is imported itself."""

    name: str
    room: str
    imports: frozenset[str]
    at_once: frozenset[str]

    @property
    def rooms(self) -> set[str]:
        return {name.split(".")[1] for name in self.imports if name.startswith("weighbridge.")} - {self.room}

    @property
    def libraries(self) -> set[str]:
        return {name.split(".")[0] for name in self.imports}


def imported(nodes: list[ast.AST]) -> frozenset[str]:
    """Return what these nodes import, a module of a package rather than the package where only such are named."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            within = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= within if within <= set(names()) else {node.module} | within
    return frozenset(found)


@functools.cache
def names() -> Mapping[str, Path]:
    paths = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in SOURCE.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in paths.items()}


@functools.cache
def modules() -> tuple[Module, ...]:
    found = []
    for name, path in sorted(names().items()):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        room = path.relative_to(SOURCE).parts[0].removesuffix(".py")
        found.append(Module(name, room, imported(list(ast.walk(tree))), imported(list(tree.body))))
    return tuple(found)


def of(*rooms: str) -> Iterator[Module]:
    return (module for module in modules() if module.room in rooms)


def import_graph() -> dict[str, set[str]]:
    return {module.name: (set(module.imports) & set(names())) - {module.name} for module in modules()}


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


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert circle(import_graph() | {"weighbridge.core.errors": {"weighbridge.cli.verify"}})


def test_no_two_modules_share_a_file_name() -> None:
    count = Counter(path.name for path in names().values() if path.name != "__init__.py")
    assert [name for name, times in count.items() if times > 1] == []


def test_only_three_modules_lie_outside_the_rooms() -> None:
    assert sorted(path.name for path in SOURCE.glob("*.py")) == ["__init__.py", "__main__.py", "api.py"]


def test_a_room_has_at_most_thirteen_files_where_it_is_not_one_file_a_thing() -> None:
    rooms = Counter(path.parent for path in names().values() if path.name != "__init__.py")
    full = {room.name for room, files in rooms.items() if files > 13}
    assert full <= {"gates", "verifiers", "cli", "formats"}


def test_the_floor_imports_nothing_of_ours() -> None:
    assert {(module.name, room) for module in of("core") for room in module.rooms} == set()


def test_a_judge_imports_nothing_that_measures() -> None:
    judges = list(of("gates", "clauses", "figures", "quantities"))
    assert len(judges) > 30
    assert [(one.name, found) for one in judges if (found := one.libraries & IMPURE)] == []
    assert [(one.name, found) for one in judges if (found := one.rooms & {*MEASURING, "evaluation"})] == []


def test_what_prints_calls_no_function_of_a_judge() -> None:
    called = []
    for path in (path for room in ("report", "cli", "pytest") for path in (SOURCE / room).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [one for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
        of_judges = [one for one in nodes if (one.module or "").startswith("weighbridge.gates")]
        named = {alias.asname or alias.name: (one.module, alias.name) for one in of_judges for alias in one.names}
        uses = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
        for name in uses & set(named):
            thing = getattr(importlib.import_module(str(named[name][0])), named[name][1], None)
            called += (
                [f"{path.name}: {name}"] if thing is None or inspect.isroutine(thing) or inspect.ismodule(thing) else []
            )
    assert called == []


def test_what_measures_never_imports_a_judge() -> None:
    judges = {"gates", "clauses", "figures", "judging", "evaluation", "evidence"}
    assert [(one.name, found) for one in of(*MEASURING) if (found := one.rooms & judges)] == []


def test_a_room_that_measures_imports_only_the_rooms_it_rests_on() -> None:
    loose = [
        (one.name, found)
        for one in of(*MEASURING)
        if (found := one.rooms - MEASURING[one.room] - {"core", "quantities"})
    ]
    assert loose == []


def test_a_mapping_looks_at_no_file() -> None:
    plain = {f"weighbridge.{name}" for name in PLAIN}
    found = [module for module in modules() if module.name in plain]
    assert len(found) == len(PLAIN)
    assert [one.name for one in found if one.libraries & (IMPURE - {"gguf"})] == []
    for one in found:
        own = {name for name in one.imports & set(names()) if name.split(".")[1:2] not in (["core"], ["quantities"])}
        assert own <= plain, one.name


def test_a_table_is_named_by_one_module_of_its_own_room() -> None:
    tables = {path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.glob("*/*.yaml")}
    assert len(tables) >= 7
    for table in tables:
        naming = {name for name, path in names().items() if f'"{table}"' in path.read_text(encoding="utf-8")}
        assert [name.split(".")[1] for name in naming] == [table.split("/")[0]], table


def test_what_drives_an_evaluation_imports_no_words_and_lanes_import_no_driver() -> None:
    assert [one.name for one in of("evaluation") if one.rooms & {"cards", "report", "cli", "pytest"}] == []
    assert [one.name for one in of("lanes") if "evaluation" in one.rooms] == []


def test_imports_go_downwards() -> None:
    above = {*MEASURING, "cli", "report", "evaluation"}
    for floor, rooms in enumerate(FLOORS):
        higher = set().union(*FLOORS[floor + 1 :]) | above
        assert [(one.name, found) for one in of(*rooms) if (found := one.rooms & higher)] == []


def test_heavy_libraries_are_imported_where_they_are_needed() -> None:
    light = (
        *(set(MEASURING) - {"diagnosis", "recorder", "integrations", "demo"}),
        *set().union(*FLOORS),
        "cli",
        "report",
    )
    assert [one.name for one in of(*light) if {name.split(".")[0] for name in one.at_once} & HEAVY] == []


def test_starting_up_imports_no_heavy_library() -> None:
    code = "import sys, weighbridge.cli, weighbridge.cli.lint, weighbridge.judging.judging; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {name.split(".")[0] for name in done.stdout.split()} & HEAVY


@pytest.mark.slow
def test_comparing_two_safetensors_files_imports_no_other_reader_and_no_yaml(tmp_path: Path) -> None:
    for name in "ab":
        save_file({"w": np.arange(8, dtype=np.float32)}, tmp_path / f"{name}.safetensors")
    loaded = _loaded_to_compare(tmp_path / "a.safetensors", tmp_path / "b.safetensors")
    assert loaded >= {"0", "numpy", "weighbridge.formats.safetensors_file"}
    readers = {one.name for one in of("formats") if one.name.endswith("_file")} - {
        "weighbridge.formats.safetensors_file"
    }
    others = readers | {"weighbridge.quantities.runs", "weighbridge.cards.words", "weighbridge.forward.trace_file"}
    assert not loaded & (others | HEAVY - {"numpy", "ml_dtypes"} | {"yaml", "weighbridge.contract.strict_yaml"})


@pytest.mark.slow
def test_comparing_a_model_with_its_gguf_file_imports_the_tables_of_names_alone_of_the_gguf_package() -> None:
    made = Path(__file__).parent / "cli" / "llama-by-the-converter"
    loaded = _loaded_to_compare(made / "hf", made / "model.gguf")
    assert loaded >= {"0", "weighbridge.mapping.gguf_tables.tensor_mapping"}
    assert not loaded & {"gguf", "numpy.typing", "weighbridge.forward.trace_file"}


def _loaded_to_compare(source: Path, candidate: Path) -> set[str]:
    """Return the exit code of a comparison, and the modules that it loaded."""
    code = "import sys, weighbridge.cli as cli; sys.exit = lambda code: print(code, *sys.modules); cli.main()"
    command = (sys.executable, "-c", code, "compare", str(source), str(candidate))
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


def test_every_room_is_on_the_map_and_every_name_on_it_is_there() -> None:
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    rooms = {f"{path.name}/" if path.is_dir() else path.stem for path in SOURCE.iterdir() if _is_room(path)}
    printed = [name for line in readme.splitlines() if line.startswith("| `") for name in _named(line.split("|")[1])]
    assert sorted(printed) == sorted(rooms)
    first = [name for line in readme.splitlines() if line[:2].strip(".").isdigit() for name in _named(line)]
    assert [name for name in first if not (SOURCE / name).is_file()] == []
    assert len(readme.splitlines()) <= 36


def _is_room(path: Path) -> bool:
    return (path / "__init__.py").exists() or (path.suffix == ".py" and path.name != "__init__.py")


def _named(text: str) -> list[str]:
    return text.split("`")[1::2]
