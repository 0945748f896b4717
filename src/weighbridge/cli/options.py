"""Options that several verbs share, and how verbs print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from weighbridge.canonical import dumps
from weighbridge.model import Json
from weighbridge.urls import bare

F = TypeVar("F", bound=Callable[..., Any])


def as_json(command: F) -> F:
    """Add `--json`: one JSON document on standard output, for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document, for machines.")(command)


def debug(command: F) -> F:
    """Add `--debug`: show tracebacks of what broke inside the tool."""
    return click.option("--debug", is_flag=True, help="Show tracebacks of faults in the tool.")(command)


def print_json(value: Json) -> None:
    """Print a value as canonical JSON."""
    tell([dumps(value).decode().rstrip("\n")])


def tell(lines: Iterable[str]) -> None:
    """Print lines, URLs in them without secrets; a reader that leaves early, as `head` does, changes no exit code."""
    try:
        for line in lines:
            click.echo(bare(line))
    except BrokenPipeError:
        leave_unread()


def leave_unread() -> None:
    """Send what is still to be printed nowhere: nobody reads standard output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def colourless() -> bool:
    """Tell whether this person wants no colour: NO_COLOR is set (no-color.org), or the terminal can show none."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def progress() -> Callable[[str], None]:
    """Tell what is going on, on a terminal only, and on standard error, so that it never mixes with the answer."""
    if colourless() or not sys.stderr.isatty():
        return lambda _text: None
    return lambda text: click.echo(f"\r\x1b[2K{click.style(text, dim=True)}…", nl=False, err=True)


def end_progress() -> None:
    """Clear the line that `progress` wrote."""
    if sys.stderr.isatty() and not colourless():
        click.echo("\r\x1b[2K", nl=False, err=True)
