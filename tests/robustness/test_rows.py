"""A sample of every row of spec/robustness.md; `benchmarks/robustness.py` tries all of it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.robustness.apart import Tally, Told, apart
from tests.robustness.faults import mountable
from tests.robustness.rows import ROOT, ROWS, Elsewhere, Row

MARK = r" \*"  # on the page: a case is a test
OWN = {f"{row.name}: {row.says}": row for row in ROWS if isinstance(row, Row)}
SLOW = ("R1", "R2")  # of which tests in one process try the most that can be tried in seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    "says", [pytest.param(says, marks=[pytest.mark.exhaustive] * (row.name in SLOW)) for says, row in OWN.items()]
)
def test_nothing_is_undetected_corrupted_or_hung(says: str, tmp_path: Path) -> None:
    row = OWN[says]
    if row.mounts and not mountable(tmp_path):
        pytest.skip("nobody can mount a disk here")
    tally = row.cases(tmp_path, False)
    assert tally.keys() == {Told.HELD}
    assert tally[Told.HELD] >= 4


def test_a_row_that_other_tests_hold_names_files_that_are_there() -> None:
    named = [name for row in ROWS if isinstance(row, Elsewhere) for name in row.files]
    assert [name for name in named if not (ROOT / "tests" / name).exists()] == []


def test_the_page_holds_the_rows_that_are_tried_and_the_docs_their_sum() -> None:
    page, why = ((ROOT / name).read_text() for name in ("spec/robustness.md", "docs/why.md"))
    lines = re.findall(r"^\| (R\d+ \| .*?| \| all)((?: \| [\d,]+){5}) \|$", page, re.MULTILINE)
    table = {says: [int(count.replace(",", "")) for count in counts.split(" | ")[1:]] for says, counts in lines}
    whole = table.pop(" | all")
    assert set(table) == {f"{row.name} | {row.says}{'' if isinstance(row, Row) else MARK}" for row in ROWS}
    assert whole == [sum(each) for each in zip(*table.values(), strict=True)]
    assert whole[2:] == [0, 0, 0]
    assert f"of {whole[0]:,} cases none was undetected, corrupted anything or hung" in why


def test_the_rows_count_what_goes_wrong(tmp_path: Path) -> None:
    def dies() -> list[Told]:
        os._exit(3)

    def hangs() -> list[Told]:
        while True:
            pass

    assert apart(lambda: [Told.HELD, Told.UNDETECTED], tmp_path) == Tally({Told.HELD: 1, Told.UNDETECTED: 1})
    assert apart(dies, tmp_path) == {Told.CORRUPTED: 1}
    assert apart(hangs, tmp_path, 0.1) == {Told.HUNG: 1}
