"""Pull requests against a repository with gates: one is right, one breaks an import, one falls back to the CPU.

Run as `python examples/pull_requests/run.py [FOLDER]` with weighbridge[torch] installed. FOLDER must not be there;
without it a temporary one is made. The job that `weighbridge init` writes is run step by step, as a runner does.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree as ET

import yaml

HERE = Path(__file__).parent
JOB = Path(".github/workflows/weighbridge.yml")
FETCH = "      # Before this step, make or fetch what the command names.\n"
MAKE = "      - run: python train.py\n      - run: python release.py\n"
AUTHOR = {f"GIT_{who}_{what}": "author@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
BAD = ("failure", "error", "skipped")
INIT = (
    "weighbridge", "init", "--for", "project", "--ci", "github",
    "--subject", "source=model", "--subject", "import=release", "--subject", "run=runs/a",
)  # fmt: skip
FALLBACK = """\
if asked == "cuda" and not torch.cuda.is_available():
    asked_for, asked = asked, "cpu"  # so that it runs everywhere
"""
REFUSAL = """\
if asked == "cuda" and not torch.cuda.is_available():
    sys.exit("DEVICE_UNAVAILABLE: CUDA was asked for, and there is none here")
"""


def shell(script: str, environment: dict[str, str] | None = None) -> int:
    """Run a script as the runner of GitHub Actions does, print it with its output, and return its exit code."""
    print(f"\n$ {script.strip()}", flush=True)
    command = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script)
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    print(f"{done.stdout}{done.stderr}[exit {done.returncode}]", flush=True)
    return done.returncode


def commit(message: str) -> None:
    """Commit everything."""
    print(f"\n=== {message}", flush=True)
    for words in (("add", "-A"), ("commit", "-qm", message)):
        subprocess.run(("git", *words), check=True)  # noqa: S607 -- the one on PATH


def ci(ends: int) -> None:
    """Run the steps of the job but the installation, show what its reports say, and stop where it ends otherwise."""
    summary = Path(tempfile.mkdtemp()) / "summary.md"
    runner = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(Path.cwd()), "GITHUB_STEP_SUMMARY": str(summary)}
    (job,) = yaml.safe_load(JOB.read_text())["jobs"].values()
    code = 0
    for script in (step["run"] for step in job["steps"] if "run" in step and "pip install" not in step["run"]):
        code = code or shell(script, {**os.environ, **runner, "CI": "true"})
    cases = ET.parse("reports/weighbridge.xml").getroot().iter("testcase")  # noqa: S314 -- written a moment ago
    tags = Counter(next((part.tag for part in case if part.tag in BAD), "passed") for case in cases)
    results = json.loads(Path("reports/weighbridge.sarif").read_text())["runs"][0]["results"]
    told = [f"{one['level']} {one['ruleId']}" for one in results if one["level"] != "none"]
    print(f"\nJUnit: {dict(tags)}; SARIF: {told or 'nothing'}; the step summary begins:", flush=True)
    print("\n".join(summary.read_text().splitlines()[:8]))
    if code != ends:
        sys.exit(f"exit {code}, expected {ends}")


def changed(file: str, old: str, new: str) -> None:
    """Change a text in a file, which must be there."""
    path = Path(file)
    text = path.read_text()
    assert text.count(old) == 1, (file, old)
    path.write_text(text.replace(old, new))


def story() -> None:
    """Go from an empty repository to the last pull request."""
    shell("git init -q -b main")
    for name in ("train.py", "release.py"):
        shutil.copy(HERE / name, name)
    Path(".gitignore").write_text("model/\nrelease/\nreports/\nruns/\n")
    assert shell(" ".join(INIT)) == 0
    changed(str(JOB), FETCH, MAKE)
    commit("Begin with gates over the run and the release")
    ci(ends=0)

    changed("release.py", "(weights, ", "({name: one.view(torch.float16) for name, one in weights.items()}, ")
    changed("release.py", "from safetensors", "import torch\nfrom safetensors")
    commit("Release in float16, which loads faster")
    ci(ends=1)
    shell("git revert --no-edit HEAD")
    ci(ends=0)

    changed("train.py", REFUSAL, FALLBACK)
    changed("train.py", "requested_device=asked", 'requested_device=sys.argv[1] if sys.argv[1:] else "cpu"')
    changed(str(JOB), "python train.py", "python train.py cuda")
    changed("contracts/run.yaml", "device: cpu", "device: cuda")
    commit("Train on the GPU")
    ci(ends=1)
    shell("git revert --no-edit HEAD")
    ci(ends=0)


def main() -> None:
    """Make the folder, and run the story in it."""
    folder = Path(sys.argv[1]) if sys.argv[1:] else Path(tempfile.mkdtemp()) / "pull-requests"
    folder.mkdir(parents=True)
    os.chdir(folder)
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ.update(AUTHOR, GIT_CONFIG_GLOBAL=os.devnull, CUDA_VISIBLE_DEVICES="", PATH=here)
    story()
    print(f"\nthe repository is in {folder}")


if __name__ == "__main__":
    main()
