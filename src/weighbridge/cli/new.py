"""`weighbridge new`: write the files of a gate kind or a verifier into a checkout; tests fail until they are filled."""

import importlib.util
import keyword
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from weighbridge.cli.options import tell, verb, verbs
from weighbridge.core import UsageError, data_path, exists
from weighbridge.gates import KINDS

LONGEST = 40  # characters of a name: longer ones break the lines of the templates otherwise
PACKAGE = Path("src", "weighbridge")
OF: dict[str, Any] = {"type": click.Choice(("run", "checkpoint")), "default": "checkpoint", "show_default": True}
QUANTITIES = {"run": ("runs", ', key="column"'), "checkpoint": ("tensors", "")}  # the file of the rows, and their key
VERIFIER = "Write a verifier: module, card, dataclass, a line in the table."
PLUGIN = "pip install -e {name}, then weighbridge selftest {name}  # says what is missing"
OF_THEIR_NAMES = "OF_THEIR_NAMES = (  # modules\n"  # in the table of gates
NEXT = 'weighbridge selftest {name}  # says what is missing; CONTRIBUTING.md, "{page}", goes through it'


@verbs("new", "Write the files of a new rule, gate kind, verifier or plug-in.", "rule still-falling")
def command() -> None:
    """Write the files of a new rule, gate kind or verifier into the checkout around the current folder, or a plug-in.

    They are whole and small: `weighbridge selftest` fails until they are filled.
    """


@verb("rule", "Write a rule: module, card, a line in the table.", "still-falling", of=command)
@click.argument("name")
def rule(name: str) -> None:
    """Write the rule NAME (in kebab-case): its module, its card, and its line in the table of kinds."""
    _write_kind(name, "rule", "Add a rule")


@verb("kind", "Write a gate kind over tensors: module, card, a line in the table.", "no-dead-rows", of=command)
@click.argument("name")
def kind(name: str) -> None:
    """Write the gate kind NAME (in kebab-case): its module, its card, and its line in the table of kinds."""
    _write_kind(name, "kind_over_checkpoint", "Add a kind")


@verb("plugin", "Write a package of your own that brings a rule.", "still-falling", of=command)
@click.argument("name")
def plugin(name: str) -> None:
    """Write the folder NAME (in kebab-case): a package that brings the rule NAME, with its card and entry point."""
    module, root = _module(name), data_path("templates").parent
    here = Path(name).exists()  # a plug-in that was written here and installed is all three
    if here or name in KINDS or importlib.util.find_spec(module):
        other = "there is a kind of that name already" if name in KINDS else f"Python has a package {module} already"
        what = "this folder is there already" if here else other
        raise UsageError("name-taken", what, where=name, remedy="take another name")
    words = {"new-kind": name, "new_kind": module}
    files = {"pyproject.toml": "plugin.toml", f"{module}/rule.py": "rule.py", f"{module}/{name}.yaml": "rule.yaml"}
    texts = {Path(name, path): _template(root, template, words) for path, template in files.items()}
    Path(name, module).mkdir(parents=True)
    _write(Path(), texts | {Path(name, module, "__init__.py"): f'"""The rule {name}."""\n'}, name, PLUGIN)


def _module(name: str, what: str = "kind", form: str = "kebab-case, as in still-falling", joint: str = "-") -> str:
    if not re.fullmatch(rf"[a-z][a-z0-9]*({joint}[a-z0-9]+)*", name) or len(name) > LONGEST:
        remedy = f"write {form}; at most {LONGEST} characters"
        raise UsageError("name-form", f"{name!r} is no name of a {what}", remedy=remedy)
    if keyword.iskeyword(name):
        raise UsageError("name-taken", f"{name!r} is a word of Python", remedy="take another name")
    return name.replace("-", "_")


def _write_kind(name: str, template: str, page: str) -> None:
    module, root = _module(name), _checkout()
    _require_free(root, module, Path("gates", f"{name}.yaml"))
    words = {"new-kind": name, "new_kind": module}
    table = PACKAGE / "gates" / "__init__.py"
    files = {
        PACKAGE / "gates" / f"{module}.py": _template(root, f"{template}.py", words),
        Path("gates", f"{name}.yaml"): _template(root, f"{template}.yaml", words),
        table: (root / table).read_text("utf-8").replace(OF_THEIR_NAMES, f'{OF_THEIR_NAMES}    "{name}",\n'),
    }
    _write(root, files, name, page)


@verb("verifier", VERIFIER, "expert_load --of checkpoint", of=command)
@click.argument("quantity")
@click.option("--of", **OF, help="What it measures: each column of a run, or each tensor of a checkpoint.")
def verifier(quantity: str, of: str) -> None:
    """Write the verifier of QUANTITY (in snake_case): module, card, the dataclass of a row, and a line in the table."""
    _module(quantity, "quantity", "snake_case, as in expert_load", "_")
    root, row = _checkout(), quantity.title().replace("_", "")
    _require_free(root, quantity, Path("verifiers", f"{quantity}.yaml"))
    words = {"new_quantity": quantity, "NewQuantity": row}
    table, (stem, key) = PACKAGE / "verifiers" / "__init__.py", QUANTITIES[of]
    rows = PACKAGE / "quantities" / f"{stem}.py"
    beside = (root / rows).read_text("utf-8")
    if re.search(rf"\b{row}\b", beside + (root / "templates" / f"verifier_of_{of}.py").read_text("utf-8")):
        what = f"its dataclass would be called {row}, as something else is"
        raise UsageError("name-taken", what, remedy="take another name")
    dataclass = _template(root, f"quantity_of_{of}.py", words).partition("\n\n\n")[2]
    beside = beside.replace("\nQUANTITIES = (\n", f"\n{dataclass}\n\nQUANTITIES = (\n")
    line = f'    ("{quantity}", _{of.upper()}): "{quantity}",'
    files = {
        PACKAGE / "verifiers" / f"{quantity}.py": _template(root, f"verifier_of_{of}.py", words),
        Path("verifiers", f"{quantity}.yaml"): _template(root, f"verifier_of_{of}.yaml", words),
        rows: _listed(beside, r'^    \w+\((?:name=)?"(\w+)".*\),$', quantity, f'    rows("{quantity}", {row}{key}),'),
        table: _listed((root / table).read_text("utf-8"), r'^    \("(\w+)", \S.*",$', quantity, line),
    }
    _write(root, files, quantity, "Add a verifier")


def _checkout() -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / PACKAGE / "gates" / "__init__.py").is_file() and (folder / "templates").is_dir():
            return folder
        if exists(folder / ".git"):  # what lies around another repository is none of its
            break
    what = "there is no checkout of weighbridge here, and an installed one is not written to"
    raise UsageError("no-checkout", what, where=str(here), remedy="type it in a clone, or: weighbridge new plugin NAME")


def _require_free(root: Path, module: str, card: Path) -> None:
    taken = [path.relative_to(root) for path in sorted((root / PACKAGE).rglob("*.py")) if path.stem == module]
    taken += [card] if (root / card).exists() else []
    table = PACKAGE / "verifiers" / "__init__.py"
    taken += [table] if f'"{module}"' in (root / table).read_text("utf-8") else []
    if taken:
        raise UsageError("name-taken", f"{module!r} is there already: {taken[0]}", remedy="take another name")


def _template(root: Path, name: str, words: Mapping[str, str]) -> str:
    text = (root / "templates" / name).read_text("utf-8")
    for word, written in words.items():
        text = text.replace(word, written)
    return text


def _listed(text: str, pattern: str, name: str, line: str) -> str:
    found = list(re.finditer(pattern, text, re.MULTILINE))
    after = [match for match in found if match[1] < name]
    at = after[-1].end() + 1 if after else found[0].start()
    return f"{text[:at]}{line}\n{text[at:]}"


def _write(root: Path, files: Mapping[Path, str], name: str, page: str) -> None:
    done = []
    for path, text in files.items():
        done.append(f"{'changed' if (root / path).exists() else 'written'} {os.path.relpath(root / path)}")
        (root / path).write_text(text, "utf-8")
    tell([*done, f"next: {(PLUGIN if page == PLUGIN else NEXT).format(name=name, page=page)}"], whole=True)
