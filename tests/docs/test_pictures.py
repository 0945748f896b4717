"""A picture shows what is printed today: it is drawn anew and compared."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> Any:
    """Import the script that draws."""
    spec = importlib.util.spec_from_file_location("terminal_picture", ROOT / "scripts" / "terminal_picture.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_pictures_are_what_the_terminal_shows(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "FOLDER", tmp_path)
    script.main()
    for name in script.TYPED:
        committed = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text("utf-8")
        assert (tmp_path / f"{name}.svg").read_text("utf-8") == committed, "make pictures"


def test_a_long_line_goes_on_in_the_next_row_and_a_line_that_is_written_over_is_gone(script: Any) -> None:
    def rows(text: str) -> list[str]:
        return ["".join(character for character, _ in row) for row in script.cells(text)]

    assert rows("x" * 100 + "\n") == ["x" * 80, "x" * 20]
    assert rows("1 s left\r\x1b[Kdone\n") == ["done"]


def test_colour_and_weight_become_style_and_text_stays_text(script: Any) -> None:
    picture = script.drawn(list(script.cells("  \x1b[31;1mFAIL\x1b[0m  a<b & c\n")), "typed")
    assert re.findall(r'style="([^"]+)">FAIL<', picture) == ["fill:#ff8a80;font-weight:700"]
    assert ">a&lt;b &amp; c<" in picture
