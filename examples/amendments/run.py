"""Train, import and weigh a small GPT, and land three amendments on what was found, the third refuting the second.

Run as `python examples/amendments/run.py [FOLDER]` from a checkout without changes, with weighbridge[torch] installed.
FOLDER must not be there; without it a temporary one is made. Every command is printed with its output.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile
from pathlib import Path

from weighbridge.demo import mislabel, models, to_gguf

HERE = Path(__file__).parent
DRAFTS = Path("spec/amendments/drafts")
IGNORED = "run/\n*.safetensors\n*.gguf\n.weighbridge/\n__pycache__/\n"
FROZEN = "evidence/** -text\nspec/amendments/** -text\n"
PARITY = ("reference=models.py:reference", "candidate=models.py:numpy_backend", "cuda=models.py:on_cuda")
PARTS = re.compile(r"^(?=### )", re.MULTILINE)
RUN_GATES = (*(f"GATE-RUN-00{number}" for number in range(1, 6)), "GATE-MODEL-001", "GATE-MODEL-002")


class UnexpectedExitError(Exception):
    """A step that did not end as it must."""


def typed(*words: object, ends: int = 0, program: tuple[str, ...] = ("weighbridge",)) -> str:
    """Run a command, print it with its output, and return the output.

    Raises:
        UnexpectedExitError: where it does not end with the exit code that it must have.
    """
    argv = tuple(map(str, words))
    print(f"\n$ {shlex.join((*program, *argv))}", flush=True)
    command = (sys.executable, "-m", *program) if program[0] == "weighbridge" else program
    done = subprocess.run((*command, *argv), check=False, capture_output=True, text=True)
    print(f"{(done.stdout + done.stderr).rstrip()}\n[exit {done.returncode}]", flush=True)
    if done.returncode != ends:
        raise UnexpectedExitError(f"exit {done.returncode}, expected {ends}")
    return done.stdout


def git(*words: str) -> None:
    """Run git, with an identity of the example's own."""
    identity = ("-c", "user.name=example", "-c", "user.email=example@example.org", "-c", "commit.gpgsign=false")
    typed(*words, program=("git", *identity))


def weighed(contract: str, *subjects: str, ends: int = 0) -> str:
    """Verify subjects against a contract, record it, and return the first digits of the bundle's id."""
    bound = [word for subject in subjects for word in ("--subject", subject)]
    blocked = ("--expect-blocked", "GATE-PARITY-CUDA") if contract == "gpt-parity" else ()
    told = typed("verify", f"contracts/{contract}.yaml", *bound, *blocked, "--record", ends=ends)
    return re.findall(r"^evidence: .*-([0-9a-f]{12})$", told, re.MULTILINE)[0]


def amended(name: str, title: str, gates: tuple[str, ...], known: dict[str, str], *more: str, cites: str) -> str:
    """Draft a section, fill in the author's prose, land it, and return the id by which other texts cite it."""
    draft = DRAFTS / f"{name}.md"
    bundles = [word for bundle in cites.split() for word in ("--bundle", known[bundle])]
    about = [word for gate in gates for word in ("--gate", gate)]
    typed("amend", "draft", *bundles, *about, "--title", title, "--author", "A. Author", *more, "--out", draft)
    prose = string.Template((HERE / "prose" / f"{name}.md").read_text()).substitute(known)
    text = filled(draft.read_text(), prose)
    draft.write_text(text)
    typed("amend", "land", draft)
    return re.findall(r'^id: "(.*)"', text, re.MULTILINE)[0]


def filled(draft: str, prose: str) -> str:
    """Put what the author wrote in the place of the parts of a draft that have the same headings."""
    written = {part.partition("\n")[0]: f"{part.rstrip()}\n\n" for part in PARTS.split(prose)}
    return "".join(written.get(part.partition("\n")[0], part) for part in PARTS.split(draft))


def story() -> None:
    """Go from a promise to three amendments, and then change one byte of their evidence."""
    Path(".gitignore").write_text(IGNORED)
    Path(".gitattributes").write_text(FROZEN)
    git("init", "-q", "-b", "main")
    git("add", "-A")
    git("commit", "-qm", "Promise what a small GPT must be, before there is one")
    typed(".", program=(sys.executable, "-m", "weighbridge.demo.train"))
    to_gguf(Path("model.safetensors"), Path("model.gguf"))
    known = {"run": weighed("gpt-run", "run=run", "trained=model.safetensors")}
    amended("1-run", "The run trained as its log says", RUN_GATES, known, cites="run")
    known["gguf"] = weighed("gpt-import", "trained=model.safetensors", "released=model.gguf")
    known["parity"] = weighed("gpt-parity", *PARITY)
    second = ("GATE-IMPORT-001", "GATE-PARITY-001")
    known["second"] = amended("2-import", "The exporter is right", second, known, cites="gguf parity")
    typed("status")
    mislabel(Path("model.safetensors"), Path("release.safetensors"))
    known["f16"] = weighed("gpt-import", "trained=model.safetensors", "released=release.safetensors", ends=1)
    third = ("GATE-IMPORT-001", "GATE-IMPORT-002", "GATE-PARITY-001")
    back = ("--refutes", known["second"])
    amended("3-release", "The exporter copies bytes under another dtype", third, known, *back, cites="f16 parity")
    for command in (("amend", "check"), ("amend", "render"), ("ledger", "check"), ("status",)):
        typed(*command)
    git("add", "-A")
    git("commit", "-qm", "Land three amendments")


def main() -> None:
    """Make the folder and run the story in it."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp()) / "amendments"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("run.py", "prose", "README.md"))
    shutil.copy(str(models.__file__), folder / "models.py")
    os.chdir(folder)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # so that the story is the same on every host
    story()


if __name__ == "__main__":
    main()
