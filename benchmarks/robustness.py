"""Try every case of every row that evidence, ledger and spec must withstand, and write the table of spec/robustness.md.

python benchmarks/robustness.py [R1 R7 …] [--write]

A line a row: how many cases were tried, how many held, were undetected, corrupted something, or hung. Half an hour;
the page is written after every row.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.robustness.apart import Told
from tests.robustness.faults import mountable
from tests.robustness.rows import ROWS, Elsewhere, Row

MARK = r" \*"
PAGE = Path(__file__).parents[1] / "spec" / "robustness.md"
HEAD = """\
# Robustness

What was done to bundles, archives, the ledger and landed sections, and to the files that they are of. This page is
written by `python benchmarks/robustness.py --write`; a sample of every row is a test (`tests/robustness/`).

A case *held* where the change was refused by an error that has a name, or where what was left is the old state or the
new one, the same act done again reaches its end, and nothing is left over that the next writer does not remove. It is
*undetected* where a change was accepted, *corrupted* where what was left is neither, *hung* where there was no answer
within seconds. Of the rows marked \\* a case is a test.

| | what is done | cases | held | undetected | corrupted | hung |
|---|---|---:|---:|---:|---:|---:|
"""
TAIL = """
Not tried: power cuts (flushes are ordered, as their tests hold, but no power was cut), locks of network
file systems (R5 stands for one that has none), other operating systems, file systems that fold letter case (names that
differ in letter case alone are refused). That the newest entry was deleted is seen against an older commit alone.
"""


Table = dict[str, tuple[int, ...]]


def title(row: Row | Elsewhere) -> str:
    """Return the first two columns of a row."""
    return f"{row.name} | {row.says}{'' if isinstance(row, Row) else MARK}"


def counts_of(row: Row | Elsewhere) -> tuple[int, ...]:
    """Try all of a row, and return how many cases there were, and what became of them."""
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(row, Row) and row.mounts and not mountable(Path(folder)):
            sys.exit(f"{row.name}: nobody can mount a disk here: {row.says}")
        tally = row.cases(Path(folder), True)
    return tally.total(), *(tally[told] for told in Told)


def kept() -> Table:
    """Return the table of the page as it was written last."""
    found = re.findall(
        r"^\| (R\d+ \| .*?)((?: \| [\d,]+){5}) \|$", PAGE.read_text() if PAGE.exists() else "", re.MULTILINE
    )
    return {says: tuple(int(count) for count in counts.replace(",", "").split(" | ")[1:]) for says, counts in found}


def page(table: Table) -> str:
    """Return the page: a line for each row, and one for all of them."""
    whole = tuple(map(sum, zip(*table.values(), strict=True)))
    rows = {**table, " | all": whole}
    return "".join(
        (HEAD, *(f"| {says} | {' | '.join(f'{one:,}' for one in counts)} |\n" for says, counts in rows.items()), TAIL)
    )


def main() -> None:
    """Try the rows, and write the page where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="R1, R7, …; all where none is named")
    parser.add_argument("--write", action="store_true", help="write spec/robustness.md; rows that are not named stay")
    asked = parser.parse_args()
    wrong = 0
    for row in (one for one in ROWS if not asked.rows or one.name in asked.rows):
        began = time.monotonic()
        cases, held, *_ = counts = counts_of(row)
        wrong += cases - held
        print(title(row), *counts, f"{time.monotonic() - began:.0f} s", sep=" | ", flush=True)
        if asked.write:
            table = kept() | {title(row): counts}
            PAGE.write_text(page({title(one): table[title(one)] for one in ROWS if title(one) in table}))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
