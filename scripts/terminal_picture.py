"""Draw what commands print on a terminal of 80 columns, colours and all, into docs/pictures: `make pictures`.

The commands are run for real, over the files of `weighbridge demo --files`, on a terminal of their own.
"""

from __future__ import annotations

import fcntl
import html
import itertools
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "pictures"
IMPORT = "weighbridge verify builtin:model-import --no-evidence --subject source=hf"
TYPED = {
    "terminal": ("weighbridge compare hf mislabelled.gguf", "weighbridge compare hf model.gguf"),
    "pass": (f"{IMPORT} --subject import=model.gguf",),
    "fail": (f"{IMPORT} --subject import=mislabelled.gguf",),
    "blocked": (IMPORT,),
    "mixed": ("weighbridge verify builtin:training-log --no-evidence --subject run=out",),
}
COLUMNS, ROWS = 80, 24
CELL, LINE, MARGIN, BAR = 8.4, 19, 16, 30
SEQUENCE = re.compile(r"\x1b\[([\d;]*)([A-Za-z])")
COLOURS = {31: "#ff8a80", 32: "#7ee787", 33: "#e3b341", 34: "#79c0ff", 35: "#d2a8ff", 36: "#76e3ea", 90: "#9da7b1"}
STYLES = {1: "font-weight:700", 2: "opacity:.75", 4: "text-decoration:underline"}


def printed(command: str, folder: str) -> str:
    """Run a command as a person at a terminal would, and return what the terminal was sent."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    hidden = {"COLUMNS", "LINES", "NO_COLOR", "CI", "GITHUB_ACTIONS"}
    known = {name: value for name, value in os.environ.items() if name not in hidden} | {"TERM": "xterm-256color"}
    words = (sys.executable, "-m", *shlex.split(command))
    running = subprocess.Popen(words, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=known)
    os.close(slave)
    parts = []
    while part := _read(master):
        parts.append(part)
    running.wait()
    os.close(master)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(master: int) -> bytes:
    try:
        return os.read(master, 65536)
    except OSError:  # the last program has closed the terminal
        return b""


def cells(text: str) -> Iterator[list[tuple[str, str]]]:
    """Yield the rows of the terminal: each a list of characters with their style; long lines go on in the next row."""
    row: list[tuple[str, str]] = []
    kept: dict[str, str] = {}
    place = 0
    for match in re.finditer(r"\x1b\[[\d;]*[A-Za-z]|[\s\S]", text):
        if sequence := SEQUENCE.fullmatch(match[0]):
            if sequence[2] == "m":
                _styled(kept, [int(one or 0) for one in sequence[1].split(";")])
            elif sequence[2] == "K":
                del row[place:]
        elif match[0] == "\r":
            place = 0
        elif match[0] == "\n":
            yield row
            row, place = [], 0
        else:
            if place == COLUMNS:
                yield row
                row, place = [], 0
            row[place : place + 1] = [(match[0], ";".join(kept.values()))]
            place += 1


def _styled(kept: dict[str, str], codes: list[int]) -> None:
    for code in codes:
        if code == 0:
            kept.clear()
        elif code in COLOURS or code - 60 in COLOURS:
            kept["colour"] = f"fill:{COLOURS.get(code) or COLOURS[code - 60]}"
        elif code in STYLES:
            kept[str(code)] = STYLES[code]
        elif code in (22, 24, 39):
            for name in {22: ("1", "2"), 24: ("4",), 39: ("colour",)}[code]:
                kept.pop(name, None)


def drawn(rows: list[list[tuple[str, str]]], title: str) -> str:
    """Return the rows as an SVG that needs no font of its own, with the text as text."""
    width, height = round(COLUMNS * CELL + 2 * MARGIN), BAR + len(rows) * LINE + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">',
        f"<title>{html.escape(title)}, at {COLUMNS} columns</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>',
        *(f'<circle cx="{MARGIN + 4 + 16 * at}" cy="16" r="5" fill="#484f58"/>' for at in range(3)),
        '<g font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14" fill="#e6edf3">',
    ]
    for number, row in enumerate(rows):
        at = 0
        for style, group in itertools.groupby(row, key=lambda cell: cell[1]):
            text = "".join(one for one, _ in group)
            lines += _run(text, at, BAR + 14 + number * LINE, style)
            at += len(text)
    return "\n".join((*lines, "</g>", "</svg>", ""))


def _run(text: str, at: int, y: int, style: str) -> Iterator[str]:
    """Yield the characters of one style, from a column on; a renderer folds spaces, so those around are a place."""
    bare = text.strip()
    if bare:
        x, length = MARGIN + (at + len(text) - len(text.lstrip())) * CELL, len(bare) * CELL
        shape = f'x="{x:.1f}" y="{y}" textLength="{length:.1f}" lengthAdjust="spacingAndGlyphs"'
        look = f' style="{style}"' if style else ""
        yield f"<text {shape}{look}>{html.escape(bare).replace('  ', '&#160;&#160;')}</text>"


def main() -> None:
    """Run the commands and write the pictures."""
    with tempfile.TemporaryDirectory() as place:
        folder = f"{place}/try"
        made = (sys.executable, "-m", "weighbridge", "demo", "--files", folder)
        subprocess.run(made, check=True, capture_output=True)
        for name, typed in TYPED.items():
            shown = "".join(f"\x1b[2m$\x1b[0m \x1b[1m{one}\x1b[0m\n{printed(one, folder)}\n" for one in typed)
            target = FOLDER / f"{name}.svg"
            target.write_text(drawn(list(cells(shown.rstrip("\n") + "\n")), ", ".join(typed)), encoding="utf-8")
            print(target)


if __name__ == "__main__":
    main()
