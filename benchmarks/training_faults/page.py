"""Write the page of results from what runs of this package left as JSON.

    python -m benchmarks.training_faults.page --default D.json --all A.json > benchmarks/training_faults/results.md

Files of one cadence are joined: their runs are of other programs or seeds.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.training_faults.judged import Said
from benchmarks.training_faults.programs import Answer, Case
from benchmarks.training_faults.tables import (
    Gates,
    alarm_lines,
    blocked,
    caught_by,
    first_by,
    held_back,
    tally,
    useless,
)

HEAD = """# Faults of training

Written by `benchmarks/training_faults`: small programs, a GPT and a convolutional net by hand, a fine-tune of a tiny
GPT-2 under the Trainer of Transformers, and the GPT on two ranks, of 120 steps at most. Each fault is a small patch of
a program, recorded and judged as any run is, by `builtin:training-run` (the ranks together by `replica-consistency`),
and where a fault is one against what was declared alone, by a contract that declares it.

A fault is caught by a gate that FAILs and that does not on most clean runs. `after` is the most steps, over the
seeds, from the first step that a fault touches to the last one that the gate must see; `end` needs the whole run.
"""

DECLARING = tuple(
    f"BENCH-{name}"
    for name in ["SCHEDULE", "FIRST", "SHRUNK", "GROWN", "CLIP", "USED", "LABELS", "TOKENS", "INPUT", "DECAY"]
)
Cell = tuple[str, str, str]  # group, fault, program


def read(paths: Sequence[Path]) -> list[Answer]:
    """Read all answers; of two to one case, the later one counts."""
    found = [answer(one) for path in paths for one in json.loads(path.read_text())]
    return list({one.case: one for one in found}.values())


def answer(found: Mapping[str, Any]) -> Answer:
    parts = {"case": Case(**found["case"]), "said": [Said(**one) for one in found["said"]]}
    return Answer(**{**found, **parts})


def cells(answers: Sequence[Answer]) -> dict[Cell, list[Answer]]:
    found: dict[Cell, list[Answer]] = defaultdict(list)
    for one in answers:
        if one.case.onset is not None:
            found[one.case.group, one.case.name, one.case.program].append(one)
    return found


def without_declarations(answers: Sequence[Answer], not_these: Gates) -> Gates:
    declaring = {said.gate for one in answers for said in one.said if said.gate.startswith(DECLARING)}
    return {one.case.program: not_these.get(one.case.program, set()) | declaring for one in answers}


def told(answers: Sequence[Answer], not_these: Gates) -> str:
    """Write how one fault in one program was caught: in how many seeds, by what, after how many steps."""
    if not answers:
        return " | | "
    found = [caught_by(one, not_these) for one in answers]
    said, after = first_by(found)
    return f"{sum(map(bool, found))} of {len(found)} | {said or blocked(answers)} | {after}"


def lines(columns: Mapping[str, list[Answer]]) -> Iterator[str]:
    yield HEAD
    cases = len({cell for of in columns.values() for cell in cells(of)})
    clean = {name: useless([one for one in of if one.case.name == "clean"]) for name, of in columns.items()}
    for name, of in columns.items():
        yield f"## {name}\n"
        if len(cells(of)) < cases:
            yield f"- run on {len(cells(of))} of {cases} faults and programs: those that the other cadence missed"
        faulty = [one for one in of if one.case.onset is not None]
        for line in tally(faulty, clean[name]):
            yield f"- {line}"
        *_, alone = tally(faulty, without_declarations(of, clean[name]))
        yield f"- without what only the declaring contract finds, {alone}"
        for line in dict.fromkeys(held_back(faulty, clean[name])):
            yield f"- {line}"
        for line in alarm_lines([one for one in of if one.case.onset is None]):
            yield f"- {line.strip()}"
        yield ""
    yield "## By fault\n"
    yield "| | fault | program | " + " | ".join(f"{name} | by | after" for name in columns) + " |"
    yield "|---" * (3 + 3 * len(columns)) + "|"
    by = {name: cells(of) for name, of in columns.items()}
    for cell in dict.fromkeys(cell for found in by.values() for cell in found):
        group, fault, program = cell
        parts = " | ".join(told(by[name].get(cell, []), clean[name]) for name in columns)
        yield f"| {group} | {fault.replace('_', ' ')} | {program} | {parts} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--default", nargs="*", type=Path, default=[])
    parser.add_argument("--all", nargs="*", type=Path, default=[])
    given = parser.parse_args()
    columns = {"default cadence": read(given.default), "every channel": read(given.all)}
    print("\n".join(lines({name: of for name, of in columns.items() if of})))


if __name__ == "__main__":
    main()
