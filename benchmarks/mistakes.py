"""Mistakes of first contact, typed one by one, with what each prints: `python benchmarks/mistakes.py FOLDER`.

It installs this checkout into FOLDER twice, without extras and with those of tests, and types each row of
`mistakes.tsv` in a folder of its own, as a new user would; it prints `mistakes.md`. A row as nobody needs root.
"""

from __future__ import annotations

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXTRAS = "[torch,remote,dev]"
LINES = 24  # of a message, which the page shows
HEAD = """\
# Mistakes of first contact

What is printed when somebody mistypes, binds the wrong thing, or stands in the wrong place: {count} mistakes, each
typed in the folder of `weighbridge demo --files`. Written by `benchmarks/mistakes.py`; a message says what was found,
where, and what to do.
"""
F32 = """\
from safetensors.torch import load_file, save_file
widened = {name: one.float() for name, one in load_file("hf/model.safetensors").items()}
save_file(widened, "f32.safetensors")
"""
ONE_ROW = """\
import json
row = {"epoch": 1.0, "step": 30, "train_loss": 2.1, "train_runtime": 3.0}
state = {"global_step": 30, "logging_steps": 500, "max_steps": 30, "log_history": [row]}
open("trainer_state.json", "w").write(json.dumps(state))
"""


def installed(folder: Path, what: str) -> None:
    """Make a new environment with this checkout in it."""
    subprocess.run((sys.executable, "-m", "venv", folder), check=True)
    subprocess.run((folder / "bin" / "pip", "install", "--quiet", f"{ROOT}{what}"), check=True)


def typed(row: dict[str, str], place: Path, programs: Path, wheel: Path) -> tuple[int, str]:
    """Type one mistake, and return its exit code and all that it printed."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    path = os.pathsep.join((str(programs), *os.environ["PATH"].split(os.pathsep)))
    environment = {**kept, "PATH": path, "COLUMNS": "80"}
    if given := row["given"]:
        subprocess.run(given, shell=True, cwd=place, env=environment, check=True)
    command = ["sh", "-c", row["typed"].replace("WHEEL", shlex.quote(str(wheel)))]
    command = ["setpriv", "--reuid=65534", "--clear-groups", *command] if row["as"] else command
    done = subprocess.run(
        command, cwd=place, env=environment, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return done.returncode, done.stdout.replace(f"{place}/", "")


def shown(at: int, row: dict[str, str], code: int, said: str) -> str:
    """Return a mistake as the page shows it."""
    lines = [line.rstrip() for line in said.rstrip().splitlines()]
    left = [f"… {len(lines) - LINES} lines more"] if len(lines) > LINES else []
    lines = [re.sub(r"\d{4}-\d\d-\d\d-([\w-]+)-[0-9a-f]{12}", r"DAY-\1-ID12", line) for line in (*lines[:LINES], *left)]
    program = " (without extras)" if row["in"] else ""
    text = "\n".join((f"$ {row['typed']}", *lines))
    head = f"## {at}. {row['mistake'][:1].upper()}{row['mistake'][1:]}{program}"
    return f"{head}\n\nExit {code}.\n\n```console\n{text}\n```\n"


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    if not (folder / "core").exists():
        installed(folder / "core", "")
        installed(folder / "full", EXTRAS)
        subprocess.run((sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT), check=True)
    (wheel,) = folder.glob("weighbridge-*.whl")
    programs = {name: folder / name / "bin" for name in ("core", "full")}
    start = folder / "start"
    shutil.rmtree(start, ignore_errors=True)
    ours = str(programs["full"] / "weighbridge")
    subprocess.run((ours, "demo", "--files", start), check=True, stdout=subprocess.DEVNULL)
    subjects = ("--subject", "source=hf", "--subject", "import=model.gguf")
    subprocess.run(
        (ours, "init", "--for", "import", *subjects, "--ci", "none"), cwd=start, check=True, capture_output=True
    )
    (start / "f32.py").write_text(F32)
    (start / "one_row.py").write_text(ONE_ROW)
    with (ROOT / "benchmarks" / "mistakes.tsv").open() as table:
        rows = list(csv.DictReader(table, delimiter="\t", quoting=csv.QUOTE_NONE))
    print(HEAD.format(count=len(rows)))
    for at, row in enumerate(rows, 1):
        place = folder / "place"
        if place.exists():
            place.chmod(0o755)
            shutil.rmtree(place)
        shutil.copytree(start, place)
        print(shown(at, row, *typed(row, place, programs[row["in"] or "full"], wheel)))


if __name__ == "__main__":
    main()
