from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.cases import each

import weighbridge
from weighbridge.cards.words import glossary

SOURCE = Path(weighbridge.__file__).parent
RAISING = (
    SOURCE / "core" / "limits.py",
    SOURCE / "core" / "local_files.py",
    *sorted((SOURCE / "contract").glob("*.py")),
)
# Which argument of a call is a code; methods have a dot.
CODE_AT = {
    ".note": 0,
    "ContractError": 0,
    "Problem": 0,
    "error": 0,
    ".error": 0,
    "._problem": 0,
    "._error": 0,
    ".found": 1,
}
ERRORS, WARNINGS = glossary("codes")["code of a contract"], glossary("codes")["warning of a contract"]
CODES = {**ERRORS, **WARNINGS}
PAGE = SOURCE.parents[1] / "spec" / "contract.md"


def codes_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield from texts(code_of(node))


def code_of(call: ast.Call) -> ast.expr | None:
    name = f".{call.func.attr}" if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name == "Found":
        return next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
    at = CODE_AT.get(name)
    return None if at is None else call.args[at]


def texts(code: ast.expr | None) -> Iterator[str]:
    """Give the texts that a code may be; one chosen by a condition is two."""
    if isinstance(code, ast.IfExp):
        yield from (*texts(code.body), *texts(code.orelse))
    elif isinstance(code, ast.Constant) and isinstance(code.value, str) and code.value:
        yield code.value


def test_every_code_that_is_raised_is_explained_and_no_other() -> None:
    assert {code for path in RAISING for code in codes_in(path)} == set(CODES)


@each("code", CODES)
def test_an_explanation_is_whole_sentences(code: str) -> None:
    entry = CODES[code]
    for text in (entry.means, entry.example, entry.do):
        assert text.strip() == text
        assert text
    assert entry.means.endswith(".")
    assert entry.do.endswith((".", "/train.sh"))


def test_the_page_lists_every_code_with_its_meaning() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.split("`")[1] in CODES] == [
        f"| `{code}` | {'warning' if code in WARNINGS else 'error'} | {entry.means} | {entry.do} |"
        for code, entry in CODES.items()
    ]
