"""The action, the hooks and the CI templates: their steps run as a runner runs them, in a repository made for it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.test_wheel import place, wheel

from weighbridge.core.data import data_path

__all__ = ["place", "wheel"]
pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
HOOKS = {hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
HERE = data_path("verifiers") / "specimens" / "checkpoints"
EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class Step:
    code: int
    out: str
    outputs: Mapping[str, str]


@pytest.fixture
def repository(workplace: Path) -> Path:
    """Make a repository with a contract in contracts/, the checkpoints that it names, and a folder below it."""
    (workplace / "model" / "contracts").mkdir(parents=True)
    text = (data_path("contracts") / "checkpoint-import.yaml").read_text(encoding="utf-8")
    for role, name in (("source", "source.safetensors"), ("import", "import.gguf")):
        shutil.copy(HERE / name, workplace / "model" / name)
        text = text.replace(f"  {role}: {{kind: checkpoint}}", f"  {role}: {{kind: checkpoint, path: ../{name}}}")
    assert text.count("path: ../") == 2
    (workplace / "model" / "contracts" / "import.yaml").write_text(text, encoding="utf-8")
    subprocess.run(("git", "init", "--quiet"), check=True)
    return workplace


@pytest.fixture(scope="module")
def packages(wheel: Path) -> dict[str, str]:
    """Return an environment in which pip installs the wheel alone, into a folder, and asks no index."""
    target = wheel.parent / "target"
    path = f"{target / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    pip = {"PIP_TARGET": str(target), "PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1",
           "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_UPGRADE": "1"}  # fmt: skip
    return {**os.environ, **pip, "PATH": path, "PYTHONPATH": str(target)}


def bash(script: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a script as the runner of GitHub Actions does."""
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True, text=True)


def act(repository: Path, packages: Mapping[str, str], **inputs: str) -> Step:
    """Run the `run:` steps of the action with inputs, until one ends with another code than 0."""
    known = {f"inputs.{name}": about.get("default", "") for name, about in ACTION["inputs"].items()}
    known |= {f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()}
    known |= {"github.action_path": str(ROOT)}
    outputs, said, code = repository / "output", "", 0
    outputs.touch()
    runner = {
        "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(repository), "GITHUB_OUTPUT": str(outputs),
        "GITHUB_STEP_SUMMARY": str(repository / "summary"), "RUNNER_TEMP": str(repository), "CI": "true",
    }  # fmt: skip
    for step in ACTION["runs"]["steps"]:
        if "run" in step and code == 0:
            given = {name: resolved(text, known) for name, text in step["env"].items()}
            folder = repository / resolved(step.get("working-directory", "."), known)
            ended = bash(step["run"], folder, {**packages, **runner, **given})
            code, said = ended.returncode, said + ended.stdout + ended.stderr
    return Step(code, said, read(outputs.read_text()))


def resolved(text: str, known: Mapping[str, str]) -> str:
    return EXPRESSION.sub(lambda match: known[match[1]], text)


def read(text: str) -> dict[str, str]:
    """Read what steps wrote as outputs: NAME=VALUE, or NAME<<END, lines, END."""
    several = {
        name: value for name, _, value in re.findall(r"^(\S+)<<(\S+)\n(.*?)\n\2$", text, re.MULTILINE | re.DOTALL)
    }
    return several | dict(re.findall(r"^([\w-]+)=(.*)$", text, re.MULTILINE))


def test_no_script_of_the_action_holds_an_input_that_could_be_a_command() -> None:
    steps = ACTION["runs"]["steps"]
    assert [step["name"] for step in steps if EXPRESSION.search(step.get("run", ""))] == []
    named = {name for step in steps for name in re.findall(r"inputs\.([\w-]+)", str(step))}
    assert named == set(ACTION["inputs"])


@pytest.mark.exhaustive
def test_the_action_passes_a_good_import_and_hands_on_its_bundle(
    repository: Path, packages: dict[str, str], wheel: Path
) -> None:
    step = act(repository, packages, version=str(wheel), working_directory="model")
    assert (step.code, step.outputs["exit-code"]) == (0, "0"), step.out
    assert (repository / step.outputs["bundle"] / "statement.json").is_file()
    upload, _ = (one["with"] for one in ACTION["runs"]["steps"] if "upload-artifact" in one.get("uses", ""))
    assert upload["path"] == ACTION["outputs"]["bundle"]["value"]
    assert upload["include-hidden-files"] is True
    assert "1 passed of 1" in (repository / "summary").read_text()


@pytest.mark.exhaustive
def test_the_action_fails_a_bad_import_with_an_annotation_and_its_evidence(
    repository: Path, packages: dict[str, str], wheel: Path
) -> None:
    names = (f"import@bad={HERE}/relabelled.safetensors", f"import@good={HERE}/import.gguf", "")
    subjects = f"source={HERE}/source.safetensors\r\n\n  " + "\n".join(names)
    step = act(repository, packages, version=str(wheel), working_directory="model", subjects=subjects,
               contracts="contracts/import.yaml", arguments="--report=sarif:reports/a b.sarif")  # fmt: skip
    assert (step.code, step.outputs["exit-code"]) == (1, "1"), step.out
    assert "::error file=model/contracts/import.yaml,line=11,col=5,title=FAIL GATE-IMPORT-001[bad]::" in step.out
    assert (repository / "model" / "reports" / "a b.sarif").is_file()
    assert (repository / step.outputs["bundle"]).is_dir()


@pytest.mark.exhaustive
def test_the_action_says_where_a_contract_is_wrong_and_has_no_bundle(
    repository: Path, packages: dict[str, str], wheel: Path
) -> None:
    step = act(repository, packages, version=str(wheel), contracts="model/contracts/imprt.yaml")
    assert (step.code, step.outputs) == (2, {"exit-code": "2"})
    assert "::error " in step.out


def template(name: str) -> Any:
    """Read a template with its two words in capitals filled in."""
    text = (data_path("templates") / "ci" / name).read_text(encoding="utf-8")
    filled = text.replace("WEIGHBRIDGE_PACKAGES", "weighbridge").replace("WEIGHBRIDGE_VERIFY", "weighbridge verify")
    assert "WEIGHBRIDGE" not in filled
    return yaml.safe_load(filled)


def scripts() -> dict[str, list[str]]:
    github = template("github.yml")["jobs"]["gates"]["steps"]
    return {
        "github": [step["run"] for step in github if "run" in step],
        "gitlab": template("gitlab.yml")["weighbridge"]["script"],
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_a_template_installs_lints_verifies_and_leaves_what_it_uploads(
    repository: Path, packages: dict[str, str], name: str
) -> None:
    subprocess.run(("git", "init", "--quiet", "model"), check=True)  # a job runs at the top of its repository
    ended = bash("\n".join(scripts()[name]), repository / "model", packages)
    assert ended.returncode == 0, ended.stderr
    assert "1 of 1 contract is usable" in ended.stdout
    artifacts = template("gitlab.yml")["weighbridge"]["artifacts"]
    (upload,) = (step["with"]["path"] for step in template("github.yml")["jobs"]["gates"]["steps"] if "if" in step)
    left = {"github": upload.split(), "gitlab": [*artifacts["paths"], *artifacts["reports"].values()]}[name]
    assert [path for path in left if not (repository / "model" / path).exists()] == []


def test_the_hooks_run_verbs_that_are_there_and_lint_only_contracts(repository: Path, packages: dict[str, str]) -> None:
    hook = HOOKS["weighbridge-lint"]
    assert re.search(hook["files"], "contracts/sub/a.yml")
    assert not re.search(hook["files"], "docs/contracts/a.yaml")
    assert bash("python -m weighbridge verify --record", repository / "model", packages).returncode == 0
    for one, files in ((hook, "contracts/import.yaml"), (HOOKS["weighbridge-ledger-check"], "")):
        ended = bash(f"python -m {one['entry']} {files}", repository / "model", packages)
        assert ended.returncode == 0, ended.stdout + ended.stderr
