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
PARTS = re.compile(r"^(?=### )", re.MULTILINE)
PROGRAMS = {"weighbridge": (sys.executable, "-m", "weighbridge"), "python": (sys.executable,)}
AUTHOR = {f"GIT_{who}_{what}": "author@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
PARITY = ("reference=models.py:reference", "candidate=models.py:numpy_backend", "cuda=models.py:on_cuda")
TRAINED = (*(f"GATE-RUN-00{number}" for number in range(1, 6)), "GATE-MODEL-001", "GATE-MODEL-002")


def typed(program: str, *words: object, ends: int = 0) -> str:
    """Run a command, print it with its output, and return the output; stop where it does not end as it must."""
    argv = tuple(map(str, words))
    print(f"\n$ {shlex.join((program, *argv))}", flush=True)
    command = (*PROGRAMS.get(program, (program,)), *argv)
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    print(f"{done.stdout}{done.stderr}[exit {done.returncode}]", flush=True)
    if done.returncode != ends:
        sys.exit(f"exit {done.returncode}, expected {ends}")
    return done.stdout


def weighed(contract: str, *subjects: str, ends: int = 0) -> str:
    """Verify subjects against a contract, record it, and return the first digits of the bundle's id."""
    bound = [word for subject in subjects for word in ("--subject", subject)]
    blocked = ("--expect-blocked", "GATE-PARITY-CUDA") if contract == "gpt-parity" else ()
    told = typed("weighbridge", "verify", f"contracts/{contract}.yaml", *bound, *blocked, "--record", ends=ends)
    return str(re.findall(r"^evidence: .*-([0-9a-f]{12})$", told, re.MULTILINE)[0])


def amended(name: str, title: str, gates: tuple[str, ...], known: dict[str, str], cites: str, *more: str) -> str:
    """Draft a section, fill in the author's prose, land it, and return the id by which other texts cite it."""
    draft = DRAFTS / f"{name}.md"
    about = [word for bundle in cites.split() for word in ("--bundle", known[bundle])]
    about += [word for gate in gates for word in ("--gate", gate)]
    about += ["--title", title, "--author", "A. Author", *more]
    typed("weighbridge", "amend", "draft", *about, "--out", draft)
    prose = string.Template((HERE / "prose" / f"{name}.md").read_text()).substitute(known)
    text = filled(draft.read_text(), prose)
    draft.write_text(text)
    typed("weighbridge", "amend", "land", draft)
    return str(re.findall(r'^id: "(.*)"', text, re.MULTILINE)[0])


def filled(draft: str, prose: str) -> str:
    """Put what the author wrote in the place of the parts of a draft that have the same headings."""
    written = {part.partition("\n")[0]: f"{part.rstrip()}\n\n" for part in PARTS.split(prose)}
    return "".join(written.get(part.partition("\n")[0], part) for part in PARTS.split(draft))


def story() -> str:
    """Go from a promise to three amendments, and return the id of the first one's bundle."""
    typed("git", "init", "-q", "-b", "main")
    typed("git", "add", "-A")
    typed("git", "commit", "-qm", "Promise what a small GPT must be, before there is one")
    typed("weighbridge", "watch", "run", "--", sys.executable, "-m", "weighbridge.demo.train", ".")
    known = {"run": weighed("gpt-run", "run=run", "trained=model.safetensors")}
    amended("1-run", "The run trained as its log says", TRAINED, known, "run")
    to_gguf(Path("model.safetensors"), Path("model.gguf"))
    known["gguf"] = weighed("gpt-import", "trained=model.safetensors", "released@release=model.gguf")
    known["parity"] = weighed("gpt-parity", *PARITY)
    about: tuple[str, ...] = ("GATE-IMPORT-001",)
    known["second"] = amended("2-import", "The exporter is right", about, known, "gguf parity")
    typed("weighbridge", "status")
    mislabel(Path("model.safetensors"), Path("release.safetensors"))
    known["f16"] = weighed("gpt-import", "trained=model.safetensors", "released@release=release.safetensors", ends=1)
    title, about = "The exporter copies bytes under another dtype", (*about, "GATE-IMPORT-002", "GATE-PARITY-001")
    amended("3-release", title, about, known, "f16 parity", "--refutes", known["second"])
    for words in (("amend", "check"), ("amend", "render"), ("ledger", "check"), ("status",)):
        typed("weighbridge", *words)
    typed("git", "add", "-A")
    typed("git", "commit", "-qm", "Land three amendments")
    return known["run"]


def changed(bundle: str) -> None:
    """Change one byte of the evidence, show who sees it, and restore it."""
    (path,) = Path("evidence/bundles").glob(f"*-{bundle}/measurements/facts.run.default.json")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"value":130}', b'"value":131}', 1))
    typed("git", "diff", "--stat")
    for words, ends in ((("amend", "check"), 1), (("amend", "render"), 1), (("ledger", "check"), 1), (("status",), 0)):
        typed("weighbridge", *words, ends=ends)
    typed("git", "checkout", "-q", "evidence")
    typed("weighbridge", "amend", "check")


def main() -> None:
    """Make the folder, and run both parts in it."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp()) / "amendments"
    shutil.copytree(HERE, folder, ignore=shutil.ignore_patterns("run.py", "prose", "README.md"))
    shutil.copy(str(models.__file__), folder / "models.py")
    os.chdir(folder)
    os.environ.update(AUTHOR, GIT_CONFIG_GLOBAL=os.devnull, CUDA_VISIBLE_DEVICES="")  # the same story on every host
    changed(story())
    print(f"\nthe repository with its SPEC.md is in {folder}")


if __name__ == "__main__":
    main()
