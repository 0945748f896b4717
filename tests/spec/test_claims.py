from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cases import each

from weighbridge.spec.citations import Bundles
from weighbridge.spec.claims import look
from weighbridge.spec.reading import Known

KNOWN = Known(bundles=Bundles(), stood={}, refuted={"A-20260101-a": "was refuted"}, strict=True)
PIECES = (
    *(
        "A-",
        "GATE-A-1",
        "[",
        "]",
        "[ev:",
        "0123456789ab",
        "#/findings/0",
        "`",
        "1,",
        "1.",
        "1",
        " + ",
        " = ",
        "ln ",
        "(",
        ")",
    ),
    *(
        "DISCHARGED",
        "PARTIAL",
        " is ",
        "not ",
        "7/7 ",
        "|",
        "\n",
        "\n\n",
        "```",
        "<!-- ",
        " -->",
        " ",
        "ms",
        "nats",
        "files:",
    ),
    *(
        "<!-- weighbridge:tally begin",
        "<!-- weighbridge:tally end -->",
        "| id | hypothesis | state | evidence |\n",
        "OPEN",
        "*",
    ),
)


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_is_judged_without_breaking(text: str) -> None:
    looked = look(text, "x.md", KNOWN)
    assert all(1 <= problem.line <= 1 + text.count("\n") for problem in looked.problems)


@pytest.mark.exhaustive
@each("piece", [*PIECES, "A-A", "G-1[", "1 s ", "1 + ", "9" * 50, "<!--", "ln 1 ", "1 s [=ln 2] "])
def test_no_text_takes_long_to_hold(piece: str) -> None:
    """A reader whose time grows with the square of the text would take minutes over this one, not a second."""
    look(piece * (50_000 // len(piece)), "x.md", KNOWN)


def test_problems_stand_at_the_lines_of_their_sentences() -> None:
    text = "# Title\n\nTrue.\nln(2) = 1.0.\n\n```\nln(2) = 3.0\n```\n<!-- ln(2) = 4.0\n -->\n- ln(2) = 5.0\n"
    assert [problem.line for problem in look(text, "x.md", KNOWN, first_line=10).problems] == [13, 20]
