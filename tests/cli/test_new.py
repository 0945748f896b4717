"""`weighbridge new` writes what is needed and no more, and CONTRIBUTING leads from there to a kind that holds."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.consoles import Written, steps

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ weighbridge (.+)$", GUIDE, re.MULTILINE)
BLOCKS = re.findall(r"^`([^`\n]+)`:\n\n```(?:python|yaml)\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
PLUGIN_PAGE = (ROOT / "docs" / "tutorials" / "plugin.md").read_text(encoding="utf-8")
PLUGIN = {str(step.path): step.text for step in steps(PLUGIN_PAGE) if isinstance(step, Written)}
LONG = "a-name-of-forty-characters-which-is-long"


def copied(folder: Path) -> Path:
    """Copy the sources, the cards and what checks them into a folder."""
    for name in ("src", "gates", "verifiers", "words", "contracts", "templates", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "fixtures"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy that a test may write into."""
    return copied(tmp_path)


@pytest.fixture(scope="module")
def unwritten(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Return a copy that nothing is written into, and what it holds."""
    folder = copied(tmp_path_factory.mktemp("unwritten"))
    return folder, files(folder)


def python(checkout: Path, *words: str, where: str = ".") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    printed = subprocess.run(
        (sys.executable, "-m", *words),
        cwd=checkout / where,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "Traceback" not in printed.stderr, printed.stderr
    return printed


def weighbridge(checkout: Path, *words: str, where: str = ".") -> subprocess.CompletedProcess[str]:
    return python(checkout, "weighbridge", *words, where=where)


def files(checkout: Path) -> dict[str, str]:
    found = (path for path in checkout.rglob("*") if path.suffix in (".py", ".yaml"))
    return {str(path.relative_to(checkout)): path.read_text(encoding="utf-8") for path in found}


def wrong(checkout: Path, *names: str) -> list[str]:
    printed = weighbridge(checkout, "selftest", *names)
    found = [line.split(maxsplit=1)[1] for line in printed.stdout.splitlines() if line.startswith("wrong")]
    assert (printed.returncode != 0) is bool(found), printed.stdout
    return found


def sound(checkout: Path) -> Iterator[tuple[str, int]]:
    """Yield what must hold of a checkout even before new files are filled, each with its exit code."""
    written = [name for name in files(checkout) if name.endswith(".py") and not (ROOT / name).exists()]
    written += [f"src/weighbridge/{room}/__init__.py" for room in ("gates", "verifiers", "quantities")]
    yield "ruff check", python(checkout, "ruff", "check", "--no-cache", *written).returncode
    yield "ruff format", python(checkout, "ruff", "format", "--no-cache", "--check", "src/weighbridge").returncode
    yield "lint", weighbridge(checkout, "lint").returncode
    yield "schema", weighbridge(checkout, "schema").returncode


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["rule", "kind", "verifier --of=run", "verifier --of=checkpoint"])
def test_what_is_written_is_sound_and_fails_the_selftest_until_it_is_filled(checkout: Path, kind: str) -> None:
    before = files(checkout)
    noun, *of = kind.split()
    names = [name.replace("-", "_") if noun == "verifier" else name for name in ("b", "zz-top-9", LONG)]
    for name in names:
        printed = weighbridge(checkout, "new", noun, name, *of, where="tests")
        assert (printed.returncode, printed.stderr) == (0, "")
        after = files(checkout)
        changed = {path for path in after if after[path] != before.get(path)}
        assert len(changed) == (4 if noun == "verifier" else 3)
        assert {line.split()[1] for line in printed.stdout.splitlines()[:-1]} == {f"../{one}" for one in changed}
        assert printed.stdout.splitlines()[-1].startswith(f"next: weighbridge selftest {name}  #")
        before = after
    assert [what for what, code in sound(checkout) if code] == []
    failing = wrong(checkout, *names)
    assert {f"{name}: every word is written" for name in names} <= set(failing)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("name-taken", ("kind", "tensor-statistics")),
        ("name-taken", ("rule", "model-config")),  # a module of that name lies elsewhere
        ("name-taken", ("kind", "import")),
        ("name-taken", ("verifier", "facts")),  # a quantity whose modules are called otherwise
        ("name-taken", ("verifier", "coverage", "--of", "run")),  # a dataclass that is there
        ("name-taken", ("verifier", "canary")),  # a name that the module imports
        ("name-form", ("kind", "Loss-Floor")),
        ("name-form", ("kind", "loss_floor")),
        ("name-form", ("kind", f"{LONG}-indeed")),
        ("name-form", ("kind", "../loss")),
        ("name-form", ("verifier", "zero-bytes")),
    ],
)
def test_a_name_that_is_taken_or_of_another_form_is_refused_and_nothing_is_written(
    unwritten: tuple[Path, dict[str, str]], code: str, words: tuple[str, ...]
) -> None:
    checkout, before = unwritten
    printed = weighbridge(checkout, "new", *words)
    assert (printed.returncode, printed.stdout, printed.stderr.split()[0]) == (2, "", code)
    assert files(checkout) == before


def test_outside_of_a_checkout_nothing_is_written(workplace: Path) -> None:
    printed = subprocess.run(
        (sys.executable, "-m", "weighbridge", "new", "rule", "still-falling"),
        check=False,
        capture_output=True,
        text=True,
    )
    assert printed.returncode == 2
    assert "no-checkout" in printed.stderr
    assert "or: weighbridge new plugin NAME" in printed.stderr
    assert list(workplace.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("mark", ["a folder", "a file, as in a linked worktree"])
def test_a_repository_inside_a_checkout_is_none_of_it(unwritten: tuple[Path, dict[str, str]], mark: str) -> None:
    checkout, before = unwritten
    (inner := checkout / mark / "deeper").mkdir(parents=True)
    git = checkout / mark / ".git"
    git.mkdir() if mark == "a folder" else git.write_text("gitdir: elsewhere\n")
    for words in (("rule", "still-falling"), ("kind", "no-dead-rows"), ("verifier", "expert_load")):
        printed = weighbridge(checkout, "new", *words, where=str(inner.relative_to(checkout)))
        assert (printed.returncode, "no-checkout" in printed.stderr) == (2, True)
    assert files(checkout) == before


@pytest.mark.exhaustive
def test_the_pages_of_contributing_lead_to_a_kind_and_a_verifier_that_hold(checkout: Path) -> None:
    assert [command.split()[:3] for command in COMMANDS] == [
        ["new", "rule", "still-falling"], ["new", "verifier", "zero_bytes"]
    ]  # fmt: skip
    printed = "".join(weighbridge(checkout, *shlex.split(command)).stdout for command in COMMANDS)
    assert {line.split()[1] for line in printed.splitlines() if not line.startswith("next:")} <= set(
        re.findall(r"`([^`\n]+)`", GUIDE)
    ) | {"src/weighbridge/quantities/tensors.py"}
    added = ("still-falling", "zero_bytes")
    assert {name.partition(":")[0] for name in wrong(checkout, *added)} == set(added)
    for path, text in BLOCKS:
        assert (checkout / path).is_file() or "/figures/" in path, path
        (checkout / path).write_text(text, encoding="utf-8")
    assert len(BLOCKS) == 4
    assert wrong(checkout, *added) == []
    assert [what for what, code in sound(checkout) if code] == []
    generated = (
        "tests/gates/test_every_kind.py",
        "tests/clauses/test_weakened_clauses.py",
        "tests/cards/test_words.py",
    )
    kept = python(checkout, "pytest", "-q", "-p", "no:cacheprovider", *generated, "-k", "still-falling")
    assert kept.returncode == 0, kept.stdout
    assert int(re.findall(r"(\d+) passed", kept.stdout)[0]) >= 3


def test_a_plug_in_is_found_says_what_it_lacks_and_judges_once_it_lacks_nothing(tmp_path: Path) -> None:
    """Outside of a checkout there was nothing to begin with."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "src"), str(tmp_path / "site")))}
    command = (sys.executable, "-m", "weighbridge")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, cwd=tmp_path, env=environment, check=False, capture_output=True, text=True)

    begun = run(*command, "new", "plugin", "my-rule")
    printed = "next: pip install -e my-rule, then weighbridge selftest my-rule  # says what is missing"
    assert (begun.returncode, begun.stdout.splitlines()[-1]) == (0, printed)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-build-isolation", "--no-deps")
    assert run(*pip, "--target", str(tmp_path / "site"), "./my-rule").returncode == 0
    unfilled = "its card my-rule.yaml is not filled in: `weighbridge selftest my-rule` says what it lacks"
    assert unfilled in run(*command, "doctor").stdout
    tried = run(*command, "selftest", "my-rule")
    assert tried.returncode == 1
    assert "wrong   my-rule: every word is written" in tried.stdout.splitlines()
    assert "my-rule: name-taken this folder is there already" in run(*command, "new", "plugin", "my-rule").stderr
    assert "name-taken" in run(*command, "new", "plugin", "loss-spike").stderr
    assert "Python has a package weighbridge already" in run(*command, "new", "plugin", "weighbridge").stderr
    card = next(iter(PLUGIN.values()))
    (tmp_path / "site" / "my_rule" / "my-rule.yaml").write_text(card.replace("ends-well", "my-rule"))
    for name, text in PLUGIN.items():
        (tmp_path / Path(name).name).write_text(text.replace("ends-well", "my-rule"))
    ended = [run(*command, "verify", "evaluations.yaml", "--subject", f"run={at}.csv") for at in ("good", "bad")]
    assert run(*command, "selftest", "my-rule").stdout == "15 of 15 hold, 0 wrong, 0 not tried\n"
    assert [one.returncode for one in ended] == [0, 1], ended[0].stdout
    said = [next(line for line in one.stdout.splitlines() if "GATE-ENDS-WELL" in line) for one in ended]
    assert all(line in PLUGIN_PAGE for line in said)
    (tmp_path / "site" / "my_rule" / "my-rule.yaml").write_text("card: gate/v1\n")
    tried = run(*command, "selftest", "my-rule", "loss-spike", "--verbose")
    assert "wrong   my-rule: its card can be used" in tried.stdout.splitlines()
    assert any(line.startswith("holds   loss-spike") for line in tried.stdout.splitlines())
