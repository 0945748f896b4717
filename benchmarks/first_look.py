"""What `weighbridge inspect` says of files and folders of others, and whether that is right.

The list (`first_look.tsv`) names a repository, a commit, a path (two paths: two runs), what is right, and why: decided
from the numbers alone. `python benchmarks/first_look.py CLONES` prints the table; CLONES holds OWNER+NAME/repo.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SHOWN = 110
HEAD = """# A first look at files of others

What `weighbridge inspect --strict=all` says of 54 logs, folders and checkpoints as their authors published them. What
is right was decided from the numbers alone: *good* and *bad* trainings, *parts* where the evaluation rises from its
best, *open* where the file alone does not tell. *Held back* says that it could not be told, which is no verdict. Made
by `benchmarks/first_look.py` from `benchmarks/first_look.tsv`; the longer list is [published logs](published_logs.md).

| file | it is | inspect said | exit | so |
|---|---|---|---|---|"""


TAIL = """
What is not right: of the tomato leaves the evaluation moves by half of itself from epoch to epoch, and its median lies
above one lucky best. The gate is advice in the contract, and `--strict=all` counts advice. Of aigoncharov's run the
six evaluations stand in rows of their own names, so no gate looks at them. Held back are logs of five rows,
which are too few to tell a fall from noise, logs without a column that is called a loss, and two arrays of which no
dtype can be decided. Refused are two pickles
that would run their author's code, rightly, a model whose weights are not beside it, a pointer, and two consoles in
words of their own. An error of Elo that never changes is told as a placeholder, which it is not. The last fourteen
came later, chosen by their names alone. One of them is wrong: the means of ten epochs of Temporal-Link-Prediction
fall in each, by 2.8 % between medians of five, and a twentieth is asked. A log of six trainings and a table of one
experiment are no single run.

What this look showed was then mended: one weight under two names in a PyTorch file was told as a copy (sixteen of them
in version_27); a log of five rows counted as looked at; the Trainer's last two rows in W&B, which hold no loss, were
told as a hole in it; and bounds that a script logs beside its loss were told as placeholders. Of the last fourteen, a
console that prints a line for each epoch was refused, and `training loss` was no column of that name."""


class Look(NamedTuple):
    """A line of the list."""

    repository: str
    commit: str
    path: str
    right: str
    shows: str


def main(clones: Path) -> None:
    """Print the table."""
    print(HEAD)
    for line in (HERE / "first_look.tsv").read_text("utf-8").splitlines():
        look = Look(*line.split("\t"))
        code, said = told(look, clones / look.repository.replace("/", "+") / "repo")
        name = f"{look.repository}@{look.commit[:10]} `{look.path}`"
        print(f"| {name} | {look.right}: {look.shows} | {said} | {code} | {so(look, code)} |")
    print(TAIL)


def told(look: Look, clone: Path) -> tuple[int, str]:
    """Return the exit code and, in a line, what was said of the files as they were committed."""
    with tempfile.TemporaryDirectory() as folder:
        for path in look.path.split():
            written(clone, look.commit, path, Path(folder))
        command = (sys.executable, "-m", "weighbridge", "inspect", "--strict=all", *look.path.split())
        ended = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    lines = ended.stdout.splitlines()
    at = next((at for at, line in enumerate(lines) if line.startswith("  looks wrong ")), None)
    if at is None:
        return ended.returncode, ended.stderr.splitlines()[0][:SHOWN].replace("|", "/")
    count = lines[at].split()[2]
    unknown = next((line.split()[4] for line in lines if line.startswith("  could not be told")), "0")
    worse = "".join(f"; worse: {line.split()[1].rstrip(':')}" for line in lines if line.startswith("  worse "))
    first = re.sub(r"\s+", " ", lines[at + 1].strip())[:SHOWN] if count.isdigit() else ""
    said = f"looks wrong: {count}{f', first {first}' if first else ''}; could not be told: {unknown}{worse}"
    return ended.returncode, said.replace("|", "/")


def written(clone: Path, commit: str, path: str, folder: Path) -> None:
    """Write a file, or the files of a folder, as they were committed; what a clone lacks is left out, and said."""
    git = ("git", f"--git-dir={clone}")
    within = () if path == "." else (path,)
    listed = subprocess.run((*git, "ls-tree", "-r", "--name-only", commit, *within), check=True, capture_output=True)
    for name in listed.stdout.decode().splitlines():
        shown = subprocess.run((*git, "show", f"{commit}:{name}"), check=False, capture_output=True)
        if shown.returncode:
            print(f"lacking: {clone.parent.name} {name}", file=sys.stderr)
            continue
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(shown.stdout)


def so(look: Look, code: int) -> str:
    """Return whether that is right: nothing green of what is bad, nothing red of what is good."""
    if code not in (0, 1):
        return "held back" if code == 3 else "refused"
    if look.right == "open":
        return "open"
    if look.right == "parts" and code == 0:
        return "parting not looked at"
    return "right" if (code == 1) == (look.right != "good") else "wrong"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
