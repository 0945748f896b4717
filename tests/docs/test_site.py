"""The site: its reference is whole, links lead where they should, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from weighbridge.cards.words import any_gate, glossary
from weighbridge.cli import VERBS
from weighbridge.contract.load import builtin_names
from weighbridge.gates import KINDS
from weighbridge.verifiers import MODULES

ROOT = Path(__file__).resolve().parents[2]


def imported(path: Path) -> Any:
    """Import a script by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site() -> Any:
    """Import the script that writes pages."""
    return imported(ROOT / "scripts" / "site_pages.py")


@pytest.fixture(scope="module")
def reference(site: Any) -> Any:
    """Write the reference once."""
    return site.reference()


# --- The reference ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_command_kind_contract_quantity_and_word_has_its_section(reference: Any) -> None:
    def sections(page: str, rank: str = "##") -> set[str]:
        return set(re.findall(rf"^{rank} (\S+)$", reference[page], re.MULTILINE))

    assert sections("commands") == set(VERBS)
    assert {"evidence verify", "amend land", "new rule"} <= set(
        re.findall(r"^### (.+)$", reference["commands"], re.MULTILINE)
    )
    assert sections("kinds") == set(KINDS)
    assert sections("contracts") == set(builtin_names())
    assert sections("measuring") == {quantity for quantity, _ in MODULES}
    named = set(re.findall(r"^\| `(\S+)` \|", reference["words"], re.MULTILINE))
    assert named >= {word for words in glossary("terms").values() for word in words if " " not in word}


@pytest.mark.slow
def test_every_code_of_every_kind_is_reported_with_its_outcome(reference: Any) -> None:
    parts = dict(re.findall(r"^## Of ([a-z-]+)\n(.*?)(?=^## |\Z)", reference["codes"], re.MULTILINE | re.DOTALL))
    for name, kind in KINDS.items():
        printed = dict(re.findall(r"^\| `(\S+)` \| ([A-Z_]+) \|", parts[name], re.MULTILINE))
        assert printed == {code: str(outcome) for code, outcome in kind.codes.items()}
    assert all(f"| `{code}` |" in reference["codes"] for code in any_gate())


@pytest.mark.slow
def test_the_reference_is_what_the_commands_print_and_nothing_stands_in_it_unsaid(reference: Any) -> None:
    assert "Did the loss fall by a share of what it was at first?" in " ".join(reference["kinds"].split())
    assert "--policy POLICY" in reference["commands"]
    assert "no-such" not in reference["codes"]
    assert all("\x1b" not in page for page in reference.values())


# --- Links ------------------------------------------------------------------------------------------------------------


def test_a_link_leads_to_the_page_in_the_site_and_to_no_file_that_is_none(site: Any) -> None:
    def lead(link: str, page: str) -> str:
        return str(site.linked(link, page))

    assert lead("[a](spec/contract.md#4-gates)", "README.md") == "[a](spec/contract.md#4-gates)"
    assert lead("[a](../../README.md#in-ci)", "docs/how-to/ci.md") == "[a](../index.md#in-ci)"
    assert lead("![a](docs/pictures/terminal.svg)", "README.md") == "![a](pictures/terminal.svg)"
    assert lead("[a](../CONTRIBUTING.md)", "spec/checkpoints.md") == "[a](../contributing.md)"
    assert lead("[a](../../examples/plugin)", "docs/tutorials/plugin.md") == "a (`examples/plugin`)"
    assert lead("[a](https://example.org)", "README.md") == "[a](https://example.org)"
    assert lead("```\n[a](b)\n```", "README.md") == "```\n[a](b)\n```"


def test_every_page_of_the_folder_and_of_the_repository_has_its_place_in_the_navigation(site: Any) -> None:
    config = site.on_config(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8")))
    placed = set(re.findall(r"[\w/-]+\.md", yaml.safe_dump(config["nav"])))
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    taken = {site.MOVED.get(name, name) for name in (*site.MOVED, *site.TAKEN)}
    assert placed == pages | taken | {f"reference/{name}.md" for name in placed_references(placed)}


def placed_references(placed: set[str]) -> set[str]:
    found = {Path(one).stem for one in placed if one.startswith("reference/")}
    assert found == {"codes", "commands", "contracts", "kinds", "measuring", "words"}
    return found


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    build = (sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site"))
    done = subprocess.run(build, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = [path.read_text("utf-8") for path in (tmp_path / "site").rglob("*.html")]
    assert len(pages) > 40
    assert [one for page in pages for one in re.findall(r'(?:src|<link[^>]*href)="(https?://[^"]+)', page)] == []


# --- The package index ------------------------------------------------------------------------------------------------


def test_the_package_index_shows_absolute_links_or_none() -> None:
    hook = imported(ROOT / "hatch_build.py")
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = hook.absolute(readme, "https://example.org/a/weighbridge")
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(links) >= 20
    assert all(link.startswith("https://example.org/a/weighbridge/") for link in links)
    assert "https://example.org/a/weighbridge/raw/main/docs/pictures/terminal.svg" in links
    assert "](" not in hook.absolute(readme, "")


def test_no_address_is_named_that_nobody_gave() -> None:
    hook = imported(ROOT / "hatch_build.py")
    assert hook.addresses("", "") == {}
    assert set(hook.addresses("https://example.org/a/w", "https://docs.example.org")) == {
        "Documentation", "Repository", "Issues", "Changelog",
    }  # fmt: skip
