"""Pages that are typed as they are printed: their files are written, their commands run, their output compared."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cli.conftest import Cli

FENCE = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ENDS = re.compile(r"\s+#\s(?:exit (\d+))?.*$")


@dataclass(frozen=True)
class Typed:
    """One line that is typed, the exit code that the page states, and what the page prints below it."""

    line: str
    ends: int
    printed: tuple[str, ...]


@dataclass(frozen=True)
class Written:
    """One file that the page gives in full."""

    path: Path
    text: str


def steps(page: str) -> Iterator[Typed | Written]:
    """Yield what a reader of the page does, in its order."""
    for language, title, text in FENCE.findall(page):
        if title:
            yield Written(Path(title), text)
        elif language == "console":
            yield from _typed(text.replace("\\\n", " "))


def _typed(block: str) -> Iterator[Typed]:
    for command in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        line, *printed = command.splitlines()
        remark = ENDS.search(line)
        yield Typed(ENDS.sub("", line), int((remark and remark[1]) or 0), tuple(printed))


def follow(page: str, cli: Cli) -> int:
    """Do all that a page says in the current folder; return how many commands that were."""
    typed = 0
    for step in steps(page):
        if isinstance(step, Written):
            step.path.parent.mkdir(parents=True, exist_ok=True)
            step.path.write_text(step.text, encoding="utf-8")
            continue
        code, said = _run(step.line, cli)
        assert code == step.ends, f"$ {step.line}\n{said}"
        pattern = "".join("(?:.*\n)*?" if one.strip() == "…" else f"{re.escape(one)}\n" for one in step.printed)
        assert re.fullmatch(pattern or "(?s:.*)", said), f"$ {step.line}\n{said}"
        typed += 1
    return typed


def _run(line: str, cli: Cli) -> tuple[int, str]:
    words = shlex.split(line)
    bundles = sorted(Path(".weighbridge", "bundles").glob("*"), key=lambda path: path.stat().st_mtime_ns)
    if words[0] == "cd":
        os.chdir(words[1])
        return 0, ""
    if words[0] == "weighbridge" and not set(words) & {"|", ">", "&&"}:
        named = [str(bundles[-1]) if word == "BUNDLE" else word for word in words[1:]]
        found = (sorted(map(str, Path().glob(word))) if "*" in word else [] for word in named)
        ended = cli(*(one for word, files in zip(named, found, strict=True) for one in files or [word]))
        return ended.code, ended.out + ended.err
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    plain = {**os.environ, "PATH": path, "PYTEST_ADDOPTS": "-p no:cacheprovider"}
    done = subprocess.run(("bash", "-c", line), check=False, capture_output=True, text=True, env=plain)
    return done.returncode, done.stdout + done.stderr
