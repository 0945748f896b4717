"""The README runs as printed, and what it claims is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Cli, cli
from tests.consoles import Typed, Written, follow, steps

from weighbridge.cli import VERBS
from weighbridge.cli.doctor import EXTRAS
from weighbridge.contract.load import builtin_names
from weighbridge.core.exit_code import ExitCode

__all__ = ["cli"]

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STEPS = tuple(steps(README))
TYPED = [step.line for step in STEPS if isinstance(step, Typed)]


# --- What can be typed ------------------------------------------------------------------------------------------------


def test_there_are_commands_to_type() -> None:
    assert TYPED[:3] == ["pip install weighbridge", "weighbridge demo --files try", "cd try"]
    assert [line.split()[0] for line in TYPED[3:]] == [*["weighbridge"] * 7, "pytest", *["weighbridge"] * 5]


@pytest.mark.slow
def test_every_command_runs_in_order_and_ends_and_prints_as_printed(cli: Cli) -> None:
    assert follow(README.replace("$ pip install weighbridge\n", ""), cli) == len(TYPED) - 1


def test_no_command_shows_more_than_five_lines() -> None:
    assert max(len(step.printed) for step in STEPS if isinstance(step, Typed)) <= 5


def test_the_page_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_workflow_uses_the_action_as_it_is() -> None:
    (workflow,) = (yaml.safe_load(step.text) for step in STEPS if isinstance(step, Written))
    *_, used = workflow["jobs"]["gates"]["steps"]
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert used["uses"].endswith("/weighbridge@v0")
    assert used["with"].keys() <= action["inputs"].keys()
    (init,) = (line for line in TYPED if line.startswith("weighbridge init"))
    assert all(f"--subject {bound}" in init for bound in used["with"]["subjects"].split())


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # theirs
def test_the_callback_is_used_as_printed(workplace: Path) -> None:
    for library in ("torch", "transformers", "accelerate", "lightning"):
        pytest.importorskip(library)
    from tests.integrations.test_transformers import ROWS, SEQ, trainer
    from tests.integrations.test_transformers import STEPS as UPDATES

    (snippet,) = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    given = {"N": ROWS * SEQ, "Trainer": lambda _, callbacks: trainer(workplace, *callbacks).train()}
    exec(snippet, given)
    assert len((workplace / "runs" / "a" / "steps.jsonl").read_text().splitlines()) == UPDATES
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
    (listed,) = re.findall(r"^\| contracts \| (.*) \|$", README, re.MULTILINE)
    assert tuple(re.findall(r"`([a-z-]+)`", listed)) == builtin_names()


def test_the_extras_are_all_named() -> None:
    (listed,) = re.findall(r"^Extras, as in (.*?)\n\n", README, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"`([a-z]+)`", listed)) == EXTRAS.keys()


def test_every_verb_that_is_named_exists() -> None:
    named = set(re.findall(r"(?:`|\$ )weighbridge ([a-z-]+)", README))
    assert named <= set(VERBS)
    assert {"lint", "explain", "schema", "selftest", "status", "evidence", "compare", "verify"} <= named


def test_every_link_and_page_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", README)
    assert len(links) >= 20
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_as_many_architectures_are_read_as_it_says() -> None:
    (said,) = re.findall(r"for (\d+) architectures", README)
    page = (ROOT / "spec" / "conversions.md").read_text(encoding="utf-8")
    table = page.partition("| family | architecture |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:]] for line in table.splitlines()[2:]]
    assert int(said) == len({row[1] for row in rows if row[2] != "0" and row[4] == "0"})
