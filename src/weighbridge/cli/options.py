"""Options that several verbs share, and the one place where verbs print: in ASCII what the encoding lacks."""

import codecs
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click

from weighbridge.core import Json, UsageError, bare, bare_json, dumps, singular, uncommanded

F = TypeVar("F", bound=Callable[..., Any])
Texts: TypeAlias = tuple[str, ...]  # of an option or argument that may be given again
Paths: TypeAlias = tuple[Path, ...]
Resolved: TypeAlias = tuple[str | None, click.Command | None, list[str]]  # by a group of its arguments

WIDEST = 100  # columns of running text, which `explain` breaks in a pipe, too
HANGING = 4  # columns by which the rest of a broken line is indented further
IN_ASCII = dict(
    zip("≤≥≠×−–…→·σ✓✗", ["<=", ">=", "!=", "x", "-", "-", "...", "->", "*", "sigma", "+", "x"], strict=True)
)

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")
PATH = click.Path(path_type=Path)
OF_LEDGER = "The folder of the ledger."
LEDGER = click.option("--ledger", "folder", type=PATH, default="evidence/ledger", show_default=True, help=OF_LEDGER)


class _Bundle(click.Path):
    """A bundle by its path, or by its id or the first digits of it where it is kept in this project."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return its path."""
        if not re.fullmatch("[0-9a-f]{6,64}", str(value)) or os.path.lexists(value):
            return super().convert(value, param, ctx)
        from weighbridge.spec.citations import Bundles, find

        return find(value) if len(value) <= 12 else Bundles().get(value).path


BUNDLE = _Bundle(path_type=Path)


def verb(
    name: str, short: str, *examples: str, of: click.Group | None = None, **more: Any
) -> Callable[[F], click.Command]:
    """Make a command of a function, or one `of` a group, with its line among verbs and what to write after it."""
    command: Callable[..., Callable[[F], click.Command]] = of.command if of else click.command
    made = command(name, short_help=short, epilog=_to_copy(f"{of.name} {name}" if of else name, examples), **more)

    def verb_of(function: F) -> click.Command:
        found, text = made(function), "Show tracebacks of internal errors."
        found.params.append(click.Option(["--debug"], is_flag=True, expose_value=False, help=text))
        return found

    return verb_of


def verbs(name: str, short: str, *examples: str, **more: Any) -> Callable[[F], click.Group]:
    """Make a group of commands of a function."""
    return click.group(name, short_help=short, epilog=_to_copy(name, examples), **more)


def repeated(flag: str, name: str, metavar: str, text: str, **more: Any) -> Callable[[F], F]:
    """Add an option that may be given again."""
    return click.option(flag, name, multiple=True, metavar=metavar, help=f"{text} Repeatable.", **more)


def _to_copy(verb: str, examples: Iterable[str]) -> str:
    return "\n".join(("\b", *(f"Example: weighbridge {verb} {one}".rstrip() for one in examples)))


def pairs(texts: Iterable[str], option: str) -> Iterator[tuple[str, Path]]:
    """Yield each `NAME=FILE` of an option; `pair-form` for another form."""
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name or not path:
            raise UsageError("pair-form", f"{text!r} names no file", remedy=f"write --{option} NAME=FILE")
        yield name, Path(path)


def settings(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return what each `NAME=VALUE` of an option sets; `param-form` where none, or one is set twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError("param-form", f"{text!r} sets nothing", remedy=f"write --{option} NAME=VALUE")
        if name in found:
            raise UsageError("param-form", f"--{option} {name} is given twice", remedy="keep one of the two")
        found[name] = value
    return found


def fit_encoding() -> None:
    """Make standard output and error write in ASCII what their encoding lacks, instead of failing."""
    codecs.register_error("in-ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="in-ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lacking = error.object[error.start : error.end]
    written = (IN_ASCII.get(char) or char.encode("ascii", "backslashreplace").decode() for char in lacking)
    return "".join(written), error.end


def print_json(value: Json) -> None:
    """Print a value as canonical JSON; where it stands in a text alone, more of a URL is known than among others."""
    tell([dumps(bare_json(value)).decode().rstrip("\n").replace("##", "#\\u0023")], whole=True)


def tell(lines: Iterable[str], *, err: bool = False, whole: bool = False) -> None:
    """Print lines, URLs in them without secrets; a terminal breaks those not `whole`, for machines or pasting."""
    stream = sys.stderr if err else sys.stdout
    columns = columns_of(stream)
    try:
        for line in map(bare, lines):
            line = line if whole else singular(uncommanded(line))  # noqa: PLW2901 -- a name from outside commands nothing
            for part in [line] if whole or columns is None else broken(line, columns):
                click.echo(part, file=stream)
    except BrokenPipeError:  # a reader that leaves early, as `head` does, changes no exit code
        leave_unread()


def columns_of(stream: Any) -> int | None:
    """Return how many columns the terminal behind a stream has, or None where there is no terminal."""
    if not stream.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def broken(line: str, columns: int) -> Iterator[str]:
    """Yield the parts of a line of at most so many columns each, broken between words only; styles take no column."""
    plain = click.unstyle(line)
    indent = " " * (len(plain) - len(plain.lstrip()) + HANGING)
    begun = ""
    for part in re.findall(r"\s*\S+", line) if len(plain) > columns else (line,):
        if click.unstyle(begun).strip() and len(click.unstyle(begun + part)) > columns:
            yield begun
            begun = indent + part.lstrip()
        else:
            begun += part
    yield begun


def leave_unread() -> None:
    """Send what is still to be printed nowhere: nobody reads standard output any more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def coloured() -> bool | None:
    """Return whether output has colour: NO_COLOR wins over FORCE_COLOR, that over TERM; None: where a terminal is."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return False if os.environ.get("TERM") == "dumb" else None


def on_github() -> bool:
    """Return whether this is a step of GitHub Actions, which reads commands from what is printed."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows a line of progress on standard error, on a terminal only; clear it at the end."""
    columns = columns_of(sys.stderr)
    if coloured() is False or columns is None or os.environ.get("CI"):
        yield lambda _text: None
        return

    def show(text: str) -> None:
        click.echo("\r\x1b[2K" + text, nl=False, file=sys.stderr)

    try:
        yield lambda text: show(click.style(text[: columns - 2], dim=True) + "…")
    finally:
        show("")


def rate(done: int, whole: int, started: float) -> str:
    """Return how many of the bytes are done since `started` (monotonic), how fast, and how long the rest will take."""
    speed = done / max(time.monotonic() - started, 1e-9)
    left = f", {(whole - done) / speed:.0f} s left" if done else ""
    return f"{done / 2**30:.2f} of {whole / 2**30:.2f} GiB, {speed / 2**20:.0f} MiB/s{left}"
