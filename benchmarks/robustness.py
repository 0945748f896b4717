"""Try every case of every row that evidence, ledger and spec must withstand, and write the table of spec/robustness.md.

python benchmarks/robustness.py [R1 R7 …] [--write]

A line a row: how many cases were tried, how many held, were undetected, corrupted something, or hung. Half an hour.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.robustness.apart import Tally, Told
from tests.robustness.faults import mountable
from tests.robustness.rows import ROWS, Row

PAGE = Path(__file__).parents[1] / "spec" / "robustness.md"
HEAD = """\
# Robustness

What was done to bundles, archives, the ledger and landed sections, and to the files that they are of. This page is
written by `python benchmarks/robustness.py --write`; a sample of every row is a test (`tests/robustness/`).

A case *held* where the change was refused by an error that has a name, or where what was left is the old state or the
new one, the same act done again reaches its end, and nothing is left over. It is *undetected* where a change was
accepted, *corrupted* where what was left is neither, *hung* where there was no answer within seconds. Of the rows
marked \\* a case is a test.

| | what is done | cases | held | undetected | corrupted | hung |
|---|---|---:|---:|---:|---:|---:|
"""
TAIL = """
Not tried: power cuts (what is flushed is ordered, as its tests hold, but no power was cut), locks of network file
systems (R5 stands for one that has none), other operating systems, file systems that fold letter case (names that
differ in letter case alone are refused). That the newest entry was deleted is seen against an older commit alone.
"""


def line(name: str, says: str, tally: Tally) -> str:
    """Return a row of the table."""
    counts = (tally.total(), *(tally[told] for told in Told))
    return f"| {name} | {says} | {' | '.join(f'{count:,}' for count in counts)} |"


def tried(asked: list[str]) -> Iterator[tuple[str, Tally]]:
    """Try the rows that are asked for, and yield the line and the tally of each."""
    for row in ROWS:
        if asked and row.name not in asked:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(row, Row) and row.mounts and not mountable(Path(folder)):
                sys.exit(f"{row.name}: nobody can mount a disk here: {row.says}")
            tally = row.cases(Path(folder), True)
        told = line(row.name, row.says if isinstance(row, Row) else f"{row.says} \\*", tally)
        print(f"{told} {time.monotonic() - began:.0f} s", flush=True)
        yield told, tally


def main() -> None:
    """Try the rows, and write the page where that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", help="R1, R7, …; all where none is named")
    parser.add_argument("--write", action="store_true", help="write spec/robustness.md")
    asked = parser.parse_args()
    rows = list(tried(asked.rows))
    whole = sum((tally for _, tally in rows), Tally())
    table = [*(told for told, _ in rows), line("", "all", whole)]
    print(table[-1])
    if asked.write and not asked.rows:
        PAGE.write_text("".join((HEAD, *(f"{one}\n" for one in table), TAIL)))
    sys.exit(whole.total() != whole[Told.HELD])


if __name__ == "__main__":
    main()
