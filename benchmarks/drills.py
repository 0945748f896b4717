"""Every drill as `weighbridge drill N` runs it: how long it took, what fired, and whether that was right.

python benchmarks/drills.py FOLDER > benchmarks/drills.md

What FOLDER holds already is not run again.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from weighbridge.drills.setups import Drill, drills

HEAD = """# Drills

Made by `benchmarks/drills.py`: each drill by `weighbridge drill N`, on one core. *Fired* are the rows of
`builtin:diagnostics` that FAIL; those in bold had to. *Green* are those that had to stay green, of how many were named.
Seconds are of a machine on which other work ran, too; alone, a run takes 12 to 20.

| drill | run | seconds | fired | green | right |
|---|---|---|---|---|---|"""
FOOT = """
{right} of {runs} runs came out as they had to, in {drills} drills of {minutes:.0f} minutes together. A healthy run must
have no FAIL.
"""


def ran(drill: Drill, folder: Path) -> tuple[dict[str, Any], float]:
    """Run a drill, and return what it says and how long it took."""
    file = folder / f"{drill.number}.json"
    if not file.exists():
        began = time.monotonic()
        command = (sys.executable, "-m", "weighbridge", "drill", str(drill.number), "--json")
        done = subprocess.run([*command, "--dir", str(folder / str(drill.number))], check=False, capture_output=True)
        file.write_text(json.dumps([json.loads(done.stdout), time.monotonic() - began]))
    told, seconds = json.loads(file.read_text())
    return told, seconds


def rows(drill: Drill, told: dict[str, Any], seconds: float) -> Iterator[str]:
    """Yield a line for each run of a drill."""
    for at, run in enumerate(told["runs"]):
        fired = [row for row, outcome in run["rows"].items() if outcome == "FAIL"]
        shown = " ".join(f"**{row}**" if row in run["had_to_fail"] else row for row in fired) or "-"
        named = len(run["had_to_pass"])
        green = f"{named - len(set(run['did_not_pass']) & set(run['had_to_pass']))} of {named}" if named else "-"
        wrong = [*run["did_not_fail"], *run["did_not_pass"]]
        name = f"{drill.number} {drill.title} ({seconds:.0f} s in all)" if not at else ""
        right = f"no: {' '.join(wrong)}" if wrong else "yes"
        yield f"| {name} | {run['name']} | {run['seconds']:.0f} | {shown} | {green} | {right} |"


def main(folder: Path) -> None:
    """Run all drills, and print the table."""
    folder.mkdir(parents=True, exist_ok=True)
    print(HEAD)
    found = [(drill, *ran(drill, folder)) for drill in drills()]
    for one in found:
        print(*rows(*one), sep="\n")
    runs = [run for _, told, _ in found for run in told["runs"]]
    right = sum(not (run["did_not_fail"] or run["did_not_pass"]) for run in runs)
    minutes = sum(seconds for _, _, seconds in found) / 60
    print(FOOT.format(right=right, runs=len(runs), drills=len(found), minutes=minutes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
