"""Pages of the site that are not in docs/: pages of the repository, and the reference, written from cards and code.

A hook of mkdocs (`make docs`). Links between pages of the repository are kept. One to a file that is no page of the
site leads to the repository where WEIGHBRIDGE_REPOSITORY names it, and is text otherwise.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from weighbridge.cards.words import any_gate, code_card, gate_words, glossary
from weighbridge.clauses.kind import Kind
from weighbridge.cli import VERBS, main
from weighbridge.contract.load import builtin_names
from weighbridge.gates import KINDS
from weighbridge.verifiers import MODULES

ROOT = Path(__file__).resolve().parents[1]
MOVED = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md"}
TAKEN = (*sorted(str(path.relative_to(ROOT)) for path in (ROOT / "spec").glob("*.md") if path.name != "base.md"),
         "benchmarks/diagnostics.md", "benchmarks/drills.md", "benchmarks/mistakes.md", "benchmarks/peers.md",
         "benchmarks/published_logs.md", "benchmarks/training_faults/results.md")  # fmt: skip
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")
ADDRESS = os.environ.get("WEIGHBRIDGE_REPOSITORY", "").rstrip("/")


def on_config(config: Any) -> Any:
    """Add what stands nowhere in the navigation to the formats, under its own heading."""
    placed = str(config["nav"])
    (formats,) = (part["Formats"] for part in config["nav"] if "Formats" in part)
    formats += [page for page in TAKEN if page not in placed]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the repository and the generated ones."""
    from mkdocs.structure.files import File

    for name in (*MOVED, *TAKEN):
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, MOVED.get(name, name), content=linked(text, name)))
    for name, text in reference().items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead the links of a page of docs/ to where their pages are in the site."""
    return linked(markdown, f"docs/{page.file.src_uri}") if page.file.generated_by is None else markdown


def linked(text: str, name: str) -> str:
    """Return a page of the repository with its links as they are in the site."""
    here = Path(MOVED.get(name, name.removeprefix("docs/"))).parent

    def lead(match: re.Match[str]) -> str:
        sign, words, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target or ":" in target:
            return match[0]
        there = os.path.normpath(Path(name).parent / target)
        page = MOVED.get(there) or (there if there in TAKEN else None)
        page = page or (there.removeprefix("docs/") if there.startswith("docs/") else None)
        if page is not None:
            return f"{sign}[{words}]({os.path.relpath(page, here)}{anchor})"
        return f"[{words}]({ADDRESS}/blob/main/{there}{anchor})" if ADDRESS else f"{words} (`{there}`)"

    fences = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else LINK.sub(lead, part) for part in fences)


def reference() -> Mapping[str, str]:
    """Return the generated pages by name."""
    pages = {"commands": commands(), "kinds": kinds(), "codes": codes(), "contracts": contracts(),
             "measuring": measuring(), "words": words()}  # fmt: skip
    return {name: "\n".join(page) + "\n" for name, page in pages.items()}


def said(*typed: str) -> str:
    """Return what a command prints."""
    before, sys.argv = sys.argv, ["weighbridge", *typed]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main()
    finally:
        sys.argv = before
    return click.unstyle(printed.getvalue()).rstrip()


def fenced(language: str, text: str) -> str:
    """Return a text as it was printed."""
    return f"```{language}\n{text}\n```\n"


def commands() -> Iterator[str]:
    """Yield every command as its `--help` tells it."""
    yield "# Commands\n\nWhat `weighbridge COMMAND --help` prints.\n"
    yield fenced("text", said("--help"))
    for verb in VERBS:
        usage = said(verb, "--help")
        yield f"## {verb}\n\n{fenced('text', usage)}"
        inner = usage.partition("\nCommands:\n")[2]
        for name in re.findall(r"^ {2}([a-z][\w-]*) ", inner, re.MULTILINE):
            yield f"### {verb} {name}\n\n{fenced('text', said(verb, name, '--help'))}"


def kinds() -> Iterator[str]:
    """Yield every gate kind as `explain` tells it."""
    yield f"# Gate kinds\n\nThe {len(KINDS)} kinds, as `weighbridge explain KIND` prints them.\n"
    yield "| kind | asks |\n|---|---|"
    yield from (f"| [`{name}`](#{name}) | {cell(gate_words(name).asks)} |" for name in KINDS)
    for name in KINDS:
        yield f"\n## {name}\n\n{fenced('text', said('explain', name))}"


def codes() -> Iterator[str]:
    """Yield every code that a finding can have, with its hints."""
    yield "# Codes\n\nWhat a finding says, why that may be, and what to do first. Causes are hints and not proven.\n"
    yield "## Of any gate\n\n| code | says | likely cause | try first |\n|---|---|---|---|"
    for code, card in any_gate().items():
        yield row(code, card.says, card.cause, card.knob)
    for name in KINDS:
        kind: Kind[Any] = KINDS[name]
        yield f"\n## Of {name}\n\n| code | outcome | says | likely cause | try first |\n|---|---|---|---|---|"
        for code, outcome in kind.codes.items():
            words_of = code_card(name, code)
            yield row(
                code,
                str(outcome),
                *((words_of.says, words_of.cause, words_of.knob) if words_of is not None else ("", "", "")),
            )
    for group, listed in glossary("codes").items():
        yield f"\n## {group[0].upper()}{group[1:]}\n\n| code | means | what to do |\n|---|---|---|"
        yield from (row(word, meaning.means, meaning.do) for word, meaning in listed.items())


def contracts() -> Iterator[str]:
    """Yield the shipped contracts as they ship."""
    yield "# Shipped contracts\n\nAs `weighbridge show builtin:NAME` prints them. A contract of yours `extends:` one.\n"
    yield from (f"## {name}\n\n{fenced('yaml', said('show', f'builtin:{name}'))}" for name in builtin_names())


def measuring() -> Iterator[str]:
    """Yield how each quantity is measured."""
    yield "# How quantities are measured\n\nAs `weighbridge explain QUANTITY` prints it.\n"
    for quantity in sorted({quantity for quantity, _ in MODULES}):
        yield f"## {quantity}\n\n{fenced('text', said('explain', quantity))}"


def words() -> Iterator[str]:
    """Yield every word that the output uses."""
    yield "# Words\n\nWords of the output, as `weighbridge explain WORD` tells them."
    for group, listed in glossary("terms").items():
        yield f"\n## {group[0].upper()}{group[1:]}\n\n| word | means | what to do |\n|---|---|---|"
        yield from (row(word, meaning.means, meaning.do) for word, meaning in listed.items())


def row(first: str, *more: str) -> str:
    """Return a row of a table, its first cell as code."""
    return f"| {' | '.join((f'`{first}`', *map(cell, more)))} |"


def cell(text: str) -> str:
    """Return a text as a cell of a table: what stands in braces or angles is no markup."""
    return " ".join(text.split()).translate({ord(one): f"&#{ord(one)};" for one in "|<*_"})
