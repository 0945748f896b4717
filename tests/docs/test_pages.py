"""The pages of docs/ can be followed as printed, their figures are those of committed pages, and no link is dead."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import Cli, cli
from tests.consoles import Typed, follow, steps

from weighbridge.cards.words import any_gate, glossary
from weighbridge.evidence.statement import Tool
from weighbridge.gates import KINDS

__all__ = ["cli"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    str(path.relative_to(ROOT / "docs")): path.read_text("utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))
}
CHECKOUT = re.compile(r"^## Our own evidence\n.*?(?=^## )", re.MULTILINE | re.DOTALL)  # test_own_evidence.py runs it
FOLLOWED = {name: CHECKOUT.sub("", page) for name, page in PAGES.items() if "```console" in page}
OTHERS = ROOT / "tests" / "cli"
GIVEN = {  # what the reader has already
    "how-to/packed-weights.md": {
        "bf16": "packed_by_others/source-32", "gptq": "packed_by_others/gptq-4", "awq": "scaled_by_awq/packed",
        "unscaled": "scaled_by_awq/source",
    },
    "how-to/lora.md": {
        "adapter": "adapter_by_peft/adapter", "base": "adapter_by_peft/model", "merged": "adapter_by_peft/model",
        **{f"{name}/model.safetensors": f"adapter_by_peft/{name}.safetensors" for name in ("base", "merged")},
    },
}  # fmt: skip
SIGNED = "tutorials/evidence.md"


@pytest.mark.slow
@pytest.mark.parametrize("name", FOLLOWED)
def test_a_page_is_followed_as_printed(cli: Cli, workplace: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name == SIGNED:
        pytest.importorskip("securesystemslib")
        monkeypatch.setattr("weighbridge.evaluation.verification.tool", lambda: Tool(version="0", dirty=False))
    for here, there in GIVEN.get(name, {}).items():
        copy = shutil.copytree if (OTHERS / there).is_dir() else shutil.copyfile
        copy(OTHERS / there, workplace / here)
    assert follow(FOLLOWED[name], cli) == sum(isinstance(step, Typed) for step in steps(FOLLOWED[name])) > 0


def test_every_tutorial_says_how_its_files_are_made_or_needs_none() -> None:
    pages = {name: page for name, page in FOLLOWED.items() if name.startswith("tutorials/")}
    assert len(pages) >= 6
    assert [name for name, page in pages.items() if "$ weighbridge demo --files try\n$ cd try\n" not in page] == []


@pytest.mark.parametrize("name", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(name: str) -> None:
    for target, heading in re.findall(r"\]\(([^)#:]*)(?:#([^)]+))?\)", PAGES[name]):
        there = (ROOT / "docs" / name).parent / target if target else ROOT / "docs" / name
        if "reference" in there.parts:
            continue  # written when the site is built, which is strict
        assert there.exists(), target
        headings = re.findall(r"^#+ (.+)$", there.read_text("utf-8"), re.MULTILINE) if heading else []
        known = {re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings}
        assert not heading or heading in known, (target, heading)


def figures(path: str, pattern: str) -> tuple[str, ...]:
    """Return what the groups of a pattern hold where it first fits a line of a committed page."""
    found = re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    assert found, pattern
    return found.groups()


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

    (snippet,) = re.findall(
        r"^```python\n(from weighbridge\.recorder .*?)^```$", PAGES["runs.md"], re.MULTILINE | re.DOTALL
    )
    names = {"model": model, "optimizer": optimizer, "device": "cpu", "N": 12, "train_step": train_step}
    exec(snippet, names | {"loader": [torch.ones(3, 2)] * 4})
    assert len((workplace / "runs" / "a" / "steps.jsonl").read_text().splitlines()) == 4


@pytest.mark.exhaustive
def test_the_loop_that_answers_most_questions_passes_all_that_look(cli: Cli, workplace: Path) -> None:
    pytest.importorskip("torch")
    (loop,) = re.findall(r"^```python\n(.*?)^```$", PAGES["how-to/diagnostics.md"], re.MULTILINE | re.DOTALL)
    subprocess.run([sys.executable, "-W", "ignore", "-c", loop], check=True, cwd=workplace)
    ended = cli("verify", "builtin:training-run", "builtin:diagnostics", "--subject", "run=runs/a")
    assert ended.code == 0, ended.out
    assert not [line for line in ended.lines if line.startswith(("FAIL", "ERROR"))]


def test_the_figures_are_those_of_the_committed_pages() -> None:
    page = PAGES["why.md"]
    (cases,) = figures("spec/robustness.md", r"^\| +\| all \| ([\d,]+) \| \1 \| 0 \| 0 \| 0 \|$")
    assert f"of {cases} cases none" in page
    tried, honest = figures("spec/damaged-families.md", r"^\| all \| +\| +\| (\d+) \| \d+ \| (\d+) \| 0 \|$")
    assert f"of {tried} none was accepted or called something else; {honest} are refused without a cause" in page
    (accepted,) = figures("spec/conversions.md", r"^\| compared, and accepted \| (\d+) \|")
    (classes,) = figures("spec/conversions.md", r"^\| all \| (\d+) \| \|$")
    assert f"{accepted} of {classes} classes" in page
    pattern = r"^\| all \| (\d+) \| \d+ \| (\d+) \| (\d+) \| (\d+) \| \d+ \|$"
    logs = figures("benchmarks/published_logs.md", pattern)
    assert "of {} logs {} are said right; {} are held back, {} are said wrong".format(*logs) in page
    (caught,) = figures("benchmarks/training_faults/results.md", r"^- caught: (\d+ of \d+ runs)")
    (clean,) = figures("benchmarks/training_faults/results.md", r"^- false alarms: (\d+ of \d+)")
    assert f"{caught} are caught, and {clean} sound ones are" in page


def test_the_codes_that_are_explained_exist() -> None:
    codes = {code for kind in KINDS.values() for code in kind.codes} | set(any_gate())
    codes |= {code for listed in glossary("codes").values() for code in listed}
    table = PAGES["faq.md"].partition("| code |")[2].partition("\n\n")[0]
    named = [code for line in table.splitlines()[2:] for code in re.findall(r"`([a-z-]+)`", line.split(" | ")[0])]
    assert len(named) >= 6
    assert [code for code in named if code not in codes] == []


def test_nothing_that_is_built_is_committed() -> None:
    listed = subprocess.run(("git", "ls-files", "site", "docs/reference"), cwd=ROOT, check=True, capture_output=True)
    assert listed.stdout == b""
