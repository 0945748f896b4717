"""Logs as their authors published them, through `inspect` and `builtin:training-log`: is what is said right?

python benchmarks/published_logs.py LIST CLONES > benchmarks/published_logs.md

LIST has a log a line, by tabs: format, owner/name, commit, path, what its numbers show (good, bad, parts, open), and in
words. That was decided from the numbers before any verdict was seen. CLONES has a clone of each, `owner+name/repo`.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

PROGRAM = [sys.executable, "-m", "weighbridge"]
VERIFY = ("verify", "builtin:training-log", "--no-evidence", "--json", "--subject")
REFUSED = "refused"
PARTED = "PARTING parted"
HEAD = """# Published logs

Logs as their authors published them, by repository and commit, and what `weighbridge verify builtin:training-log` says
of each. What is right was decided from a log's numbers alone, before its verdict was seen: *good* learns and stays,
*bad* does not, *parts* learns while its evaluation rises from its best, and *open* does not tell. *Held back* is
BLOCKED, which is neither green nor red. Readers and rules were then mended by what some of these logs showed, so that
the table is a regression test of them and no estimate for other logs. Made by `benchmarks/published_logs.py` from
`benchmarks/published_logs.tsv`.
"""


class Log(NamedTuple):
    """A line of the list."""

    format: str
    repository: str
    commit: str
    path: str
    right: str
    shows: str


class Said(NamedTuple):
    """What is said of a log: how many rows, whether it is good, and by which required gates it is not."""

    rows: str
    word: str
    by: str


def main(listed: Path, clones: Path) -> None:
    """Print the table and its counts."""
    logs = [Log(*line.split("\t")) for line in listed.read_text().splitlines()]
    said = [told(log, clones) for log in logs]
    found = [(log, one, judged(log, one)) for log, one in zip(logs, said, strict=True)]
    print(HEAD)
    counts(found)
    print("\n| log | format | rows | said | right | its numbers | so |\n|---|---|---|---|---|---|---|")
    for log, one, so in found:
        name = f"{log.repository}@{log.commit[:10]} `{log.path}`"
        print(
            f"| {name} | {log.format} | {one.rows} | {one.word} {one.by}".rstrip(),
            f"| {log.right} | {log.shows} | {so} |",
        )


def told(log: Log, clones: Path) -> Said:
    """Return what is said of a log as it was committed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / Path(log.path).name
        clone = clones / log.repository.replace("/", "+") / "repo"
        shown = subprocess.run(
            ["git", f"--git-dir={clone}", "show", f"{log.commit}:{log.path}"], capture_output=True, check=True
        )
        file.write_bytes(shown.stdout)
        seen = answer("inspect", str(file), "--json")
        gates = [one for verified in answer(*VERIFY, f"run={file}") for one in verified["findings"]]
    rows = str(seen["facts"]["rows"]["value"]) if isinstance(seen, dict) and "facts" in seen else ""
    return summed(rows, [one for one in gates if one["severity"] == "required"])


def answer(*arguments: str) -> Any:
    """Return what the program prints as JSON; nothing where it prints none."""
    printed = subprocess.run([*PROGRAM, *arguments], check=False, capture_output=True, text=True).stdout
    with contextlib.suppress(json.JSONDecodeError):
        return json.loads(printed)
    return {}


def summed(rows: str, gates: list[Any]) -> Said:
    """Return the gravest outcome of the required gates, and which gates have it."""
    for outcome, word in (("ERROR", REFUSED), ("FAIL", "FAIL"), ("BLOCKED", "held back"), ("PASS", "PASS")):
        mine = [one for one in gates if one["outcome"] == outcome]
        if mine:
            named = dict.fromkeys(f"{one['gate'].removeprefix('GATE-LOG-')} {one['code']}" for one in mine)
            by = {REFUSED: mine[0]["code"], "PASS": f"({len(mine)} gates)"}.get(word, ", ".join(named))
            return Said(rows, word, by)
    return Said(rows, "nothing", "")


def judged(log: Log, said: Said) -> str:
    """Return whether that is right; of an open log, only what cannot be said of it is wrong."""
    if said.word == REFUSED:
        return "right" if log.right == "open" else "not read"
    if said.word == "held back":
        return "held back"
    if log.right == "open":
        return "open"
    if log.right == "parts":
        return "right" if said.by == PARTED else "parting not looked at" if said.word == "PASS" else "wrong"
    return "right" if (said.word == "FAIL") == (log.right == "bad") else "wrong"


def counts(found: list[tuple[Log, Said, str]]) -> None:
    """Print how many of each format are read, and right."""
    print("| format | logs | read | right | held back | wrong | other |\n|---|---|---|---|---|---|---|")
    for name in [*dict.fromkeys(log.format for log, _, _ in found), "all"]:
        mine = [(said, so) for log, said, so in found if name in (log.format, "all")]
        of = Counter(so for _, so in mine)
        read = sum(said.word != REFUSED for said, _ in mine)
        other = len(mine) - of["right"] - of["held back"] - of["wrong"]
        print(f"| {name} | {len(mine)} | {read} | {of['right']} | {of['held back']} | {of['wrong']} | {other} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
