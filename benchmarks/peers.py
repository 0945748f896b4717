"""Tools that check other things of a model, beside this one: what each costs, and what it says of ten files.

`python benchmarks/peers.py FOLDER` installs each from the package index into an environment of its own in FOLDER, and
prints the page `peers.md`. The files are those of `weighbridge demo --files`, and damages of them. A tool is asked
about the kinds of files that it reads, by the command that its documentation begins with.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = """\
# Beside other tools

Written by `benchmarks/peers.py` on {day}, {python} on {machine}. Each tool was installed from the package index into an
environment of its own, without a cache; weighbridge from this checkout. They answer other questions: a dash says that a
tool does not read such a file, which is no fault of it.

| tool | asks | commands to a verdict | install s | MB | packages | start, CPU ms |
|---|---|---|---:|---:|---:|---:|
"""
LOG, PAIR, CONTRACT = "log", "checkpoint", "contract"
BROUGHT = ("pip", "setuptools", "pkg_resources", "distutils", "_distutils_hack")  # by every environment
NO_VERDICT = re.compile("could not be parsed|NOT judged")


@dataclass(frozen=True)
class Case:
    """One file, what it was made from, and whether it is sound."""

    name: str
    kind: str
    file: str
    sound: bool
    source: str = "hf/model.safetensors"
    policy: str = ""


@dataclass(frozen=True)
class Peer:
    """One tool: what to install, what it asks, how many commands a first verdict takes, and how it is asked."""

    name: str
    install: tuple[str, ...]
    program: str
    asks: str
    commands: str
    ask: Callable[[Case], tuple[str, ...] | None]


CASES = (
    Case("log: gradient norms NaN from step 40, loss then 0", LOG, "out/trainer_state.json", sound=False),
    Case("log: loss 0 from step 40, norms finite", LOG, "zeros/trainer_state.json", sound=False),
    Case("log: sound", LOG, "good/trainer_state.json", sound=True),
    Case("GGUF: BF16 bits under the label F16", PAIR, "mislabelled.gguf", sound=False, source="hf"),
    Case("safetensors: the same", PAIR, "mislabelled.safetensors", sound=False),
    Case("safetensors: cut short", PAIR, "cut.safetensors", sound=False),
    Case("safetensors: one bit flipped", PAIR, "flipped.safetensors", sound=False),
    Case("GGUF: a right conversion", PAIR, "model.gguf", sound=True, source="hf"),
    Case("GGUF: Q8_0, as was meant", PAIR, "q8_0.gguf", sound=True, source="hf", policy="requant:Q8_0"),
    Case("contract: a misspelt key", CONTRACT, "misspelt.yaml", sound=False),
)


def ours(case: Case) -> tuple[str, ...]:
    """Ask as the README does."""
    if case.kind == LOG:
        return ("weighbridge", "verify", "builtin:training-log", "--subject", f"run={case.file}", "--no-evidence")
    if case.kind == CONTRACT:
        return ("weighbridge", "lint", case.file)
    policy = ("--policy", case.policy) if case.policy else ()
    return ("weighbridge", "compare", case.source, case.file, *policy)


def schema(case: Case) -> tuple[str, ...] | None:
    """Ask check-jsonschema, with our schema of contracts; there is none of logs."""
    return ("check-jsonschema", "--schemafile", "contract.schema.json", case.file) if case.kind == CONTRACT else None


def signature(case: Case) -> tuple[str, ...] | None:
    """Ask whether the file is the one that was signed; a conversion is another file, which nobody signed."""
    if case.kind != PAIR or case.file.endswith(".gguf"):
        return None
    folder = f"signed-{Path(case.file).stem}"
    return ("model_signing", "verify", "key", folder, "--signature", "model.sig", "--public_key", "key.pub")


PEERS = (
    Peer("weighbridge", (str(ROOT),), "weighbridge", "is it what was promised?", "1", ours),
    Peer("trainproof", ("trainproof",), "trainproof", "is this training healthy?", "1",
         lambda case: ("trainproof", "doctor", case.file) if case.kind == LOG else None),
    Peer("check-jsonschema", ("check-jsonschema",), "check-jsonschema", "has this file its form?", "1, with a schema",
         schema),
    Peer("model-signing", ("model-signing", "pyOpenSSL"), "model_signing", "is it what was signed?",
         "4: key, its public half, sign, verify", signature),  # it imports OpenSSL and does not ask for it
    Peer("polygraphy", ("polygraphy",), "polygraphy", "do two backends compute alike?",
         "an ONNX model and a backend first", lambda _: None),
)  # fmt: skip


def main(place: str) -> None:
    """Install, measure, ask, and print the page."""
    folder = Path(place).resolve()
    files = folder / "files"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    costs = [cost(peer, folder) for peer in PEERS]
    prepare(files, folder)
    python = f"CPython {platform.python_version()}"
    print(HEAD.format(day=dt.datetime.now(dt.UTC).date(), python=python, machine=platform.machine()), end="")
    print("\n".join(costs))
    print(f"\n## What each says of ten files\n\n| file | is | {' | '.join(peer.name for peer in PEERS)} |")
    print("|---|---|" + "---|" * len(PEERS))
    for case in CASES:
        told = (answer(peer, case, files, folder) for peer in PEERS)
        print(f"| {case.name} | {'sound' if case.sound else 'wrong'} | {' | '.join(told)} |")
    print("\n*seen*, *missed*, *accepted* and *refused* are by exit code, which stands beside.")


def cost(peer: Peer, folder: Path) -> str:
    """Install a tool and return its row."""
    python = folder / peer.name / "bin" / "python"
    run((sys.executable, "-m", "venv", str(python.parents[1])), folder)
    began = time.monotonic()
    done = run((str(python), "-m", "pip", "install", "--quiet", "--no-cache-dir", *peer.install), folder)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    listed = json.loads(run((str(python), "-m", "pip", "list", "--format=json"), folder).stdout)
    packages = {one["name"]: one["version"] for one in listed if one["name"] not in BROUGHT}
    (site,) = (folder / peer.name / "lib").glob("python*/site-packages")
    own = [path for path in site.rglob("*") if path.relative_to(site).parts[0].partition("-")[0] not in BROUGHT]
    size = sum(path.stat().st_size for path in own if path.is_file()) / 1e6
    start = min(cpu((str(python.parent / peer.program), "--version"), folder) for _ in range(5))
    figures = f"{seconds:.0f} | {size:.1f} | {len(packages)} | {start:.0f}"
    return f"| {peer.name} {packages[peer.name]} | {peer.asks} | {peer.commands} | {figures} |"


def run(command: tuple[str, ...], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing of Python's from around it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, env=kept)


def cpu(command: tuple[str, ...], folder: Path) -> float:
    """Return the CPU time of a command, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command, folder)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def prepare(files: Path, folder: Path) -> None:
    """Write the ten files, the schema, and the signature of the source."""

    def told(program: str, *words: str) -> str:
        done = run((str(folder / program / "bin" / program.replace("model-s", "model_s")), *words), files)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run((str(folder / "weighbridge" / "bin" / "weighbridge"), "demo", "--files", str(files)), folder)
    state = json.loads((files / "good" / "trainer_state.json").read_text())
    for row in state["log_history"][39:]:
        row["loss"] = 0.0
    (files / "zeros").mkdir()
    (files / "zeros" / "trainer_state.json").write_text(json.dumps(state))
    source = (files / "hf" / "model.safetensors").read_bytes()
    (files / "cut.safetensors").write_bytes(source[: len(source) // 2])
    flipped = bytearray(source)
    flipped[len(source) // 2] ^= 1
    (files / "flipped.safetensors").write_bytes(flipped)
    (files / "misspelt.yaml").write_text(
        told("weighbridge", "show", "builtin:checkpoint-import").replace("owner:", "onwer:")
    )
    (files / "contract.schema.json").write_text(told("weighbridge", "schema"))
    for made in ("ecparam -name prime256v1 -genkey -noout -out key", "ec -in key -pubout -out key.pub"):
        assert run(("openssl", *made.split()), files).returncode == 0
    (files / "signed").mkdir()
    shutil.copy(files / "hf" / "model.safetensors", files / "signed")
    told("model-signing", "sign", "key", "signed", "--signature", "model.sig", "--private_key", "key")
    for case in CASES:
        if (asked := signature(case)) is not None:
            (files / asked[3]).mkdir()
            shutil.copy(files / case.file, files / asked[3] / "model.safetensors")


def answer(peer: Peer, case: Case, files: Path, folder: Path) -> str:
    """Return what a tool said of a file, in a word, with its exit code."""
    asked = peer.ask(case)
    if asked is None:
        return "–"
    done = run((str(folder / peer.name / "bin" / asked[0]), *asked[1:]), files)
    if NO_VERDICT.search(done.stdout):
        return f"no verdict ({done.returncode})"
    words = ("accepted", "refused") if case.sound else ("missed", "seen")
    return f"{words[done.returncode != 0]} ({done.returncode})"


if __name__ == "__main__":
    main(*sys.argv[1:])
