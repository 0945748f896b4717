"""Record this project's own evidence: train the demo, import it, run it in two stacks, and land what that earns.

`make evidence` measures the contracts whose gates are STALE or were never recorded, and lands a section about each.
`make evidence-anew` begins again from nothing, which is allowed until a release is tagged. Both need a checkout without
changes, and change it only after the last measurement of a file of it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from weighbridge import demo, git
from weighbridge.contract.load import contracts_here
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.statement import PREDICATE_TYPE
from weighbridge.ledger.fold import DISCHARGED, DRAFT
from weighbridge.ledger.overview import overview
from weighbridge.ledger.store import Ledger
from weighbridge.model import Outcome
from weighbridge.spec.drafting import EXPERIMENT, HYPOTHESES

EVIDENCE, SPEC, BUILD = Path("evidence"), Path("spec"), Path("build/evidence")
RUN, MODEL, IMPORT, STACKS = (BUILD / name for name in ("run", demo.SOURCE, demo.IMPORT, "models.py"))
CLAIMS = {
    "training-run": "The demo was trained on text of Python's standard library. Its log can be believed, its corpus "
    "wrapped where it was meant to, and it ran on the device that it was asked for.",
    "checkpoint-health": "The checkpoint that the demo saved is complete, and its bits fit its stored dtypes.",
    "checkpoint-import": "The GGUF import of the demo's checkpoint keeps every dtype and every value.",
    "model-import": "Every tensor of the demo's import is what a lossless conversion makes of it.",
    "forward-parity": "PyTorch on the demo's checkpoint and NumPy on its import compute the same at every point.",
}
SUBJECTS = {
    "training-run": (f"run={RUN}",),
    "checkpoint-health": (f"checkpoint={MODEL}",),
    "checkpoint-import": (f"source={MODEL}", f"import={IMPORT}"),
    "model-import": (f"source={MODEL}", f"import={IMPORT}"),
    "forward-parity": (f"reference={STACKS}:reference", f"candidate={STACKS}:numpy_backend", f"cuda={STACKS}:on_cuda"),
}
SPECIMENS = Path("verifiers/specimens")
FROZEN_SUBJECTS = (
    "trainer=python3 --no-such-option",
    f"reference={SPECIMENS}/models/tiny_gpt.py:reference",
    f"candidate={SPECIMENS}/models/tiny_gpt_numpy.py:numpy_stack",
)
COMPANIONS = (f"--attach=facts={SPECIMENS}/runs/wrapped/run.json", f"--input=log={SPECIMENS}/runs/wrapped/steps.jsonl")
CLAIM = re.compile("<!-- author: what .*?-->")
TABLES = re.compile(r"### Hypotheses\n.*?(?=### Evidence\n)", re.DOTALL)


def weighbridge(*words: object, ends: tuple[int, ...] = (0,)) -> str:
    """Run a command as a person would, and return what it prints; stop where it ends otherwise than it must."""
    typed = [str(word) for word in words]
    print("$ weighbridge", *typed)
    done = subprocess.run([sys.executable, "-m", "weighbridge", *typed], check=False, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    if done.returncode not in ends:
        sys.exit(f"stopped, for this ended with {done.returncode}; to begin again: git checkout {EVIDENCE} {SPEC}")
    return done.stdout


def verify(contract: Path, subjects: tuple[str, ...], *more: object, ends: tuple[int, ...]) -> Path:
    """Return the bundle that `verify` wrote."""
    bound = [f"--subject={subject}" for subject in subjects]
    (path,) = re.findall(r"^evidence: (.+)$", weighbridge("verify", contract, *bound, *more, ends=ends), re.MULTILINE)
    return Path(path)


def due() -> list[str]:
    """Return the contracts that are not shown now; a gate that is DRAFT waits for a host that can look."""
    contracts = {name: loaded.contract for name, loaded in contracts_here().items()}
    gates = overview(Ledger(EVIDENCE / "ledger"), contracts, dt.datetime.now(dt.UTC))
    shown = {name: [one.sound and one.status in (DISCHARGED, DRAFT) for one in gates if one.contract == name]
             for name in CLAIMS}  # fmt: skip
    return [name for name, each in shown.items() if not each or not all(each)]


def train() -> None:
    """Train the demo on the CPU, and import its checkpoint."""
    on_cpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    subprocess.run((sys.executable, "-m", "weighbridge.demo.train", str(BUILD)), check=True, env=on_cpu)
    demo.to_gguf(MODEL, IMPORT)
    shutil.copy(Path(demo.__file__).with_name(STACKS.name), STACKS)


def land(path: Path, again: str) -> None:
    """Draft the section about a bundle, fill in what is left to its author, and land it."""
    bundle = unseal(path)
    contract, draft = bundle.contract, BUILD / f"{bundle.contract.id}.md"
    title = contract.title + (f", measured again at {again}" if again else "")
    gates = [f"--gate={gate.id}" for gate in contract.gates]
    author = "--author=the maintainers of weighbridge"
    weighbridge("amend", "draft", "--bundle", path, *gates, f"--title={title}", author, "--out", draft)
    titles = {gate.id: gate.title for gate in contract.gates}
    unseen = [(one.gate, one.verdict.code) for one in bundle.findings if one.verdict.outcome is Outcome.BLOCKED]
    told = [CLAIMS[contract.id], *(f"`{gate}` could not look ({code}) and claims nothing." for gate, code in unseen)]
    open_ = [f"| H{at} | {titles[gate]} | OPEN | |" for at, (gate, _) in enumerate(unseen, 1)]
    next_ = [f"| H{at} | `{gate}` where it can look | PASS | FAIL |" for at, (gate, _) in enumerate(unseen, 1)]
    tables = "\n".join(("### Hypotheses", "", *HYPOTHESES, *open_, "", "### Next experiment", "", *EXPERIMENT, *next_))
    text = CLAIM.sub(" ".join(told), draft.read_text(encoding="utf-8"))
    draft.write_text(TABLES.sub(f"{tables}\n\n" if unseen else "", text), encoding="utf-8")
    weighbridge("amend", "land", draft)


def main(*, anew: bool) -> None:
    """Measure what is due, or everything; then land a section for each bundle, and check the whole."""
    if git.is_dirty(Path()) is not False:
        sys.exit("the checkout has changes, so nobody else could measure the same: commit them first")
    if anew and git.answer(Path(), "tag", "--list", "v[0-9]*"):
        sys.exit("a release is tagged: evidence is only ever added from then on, by `make evidence`")
    names = list(CLAIMS) if anew else due()
    again = "" if anew or not EVIDENCE.exists() else git.commit(Path())[:9]
    if names:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        train()
    store = BUILD / "recorded" if anew else EVIDENCE
    record = ("--record", "--evidence", store)
    bundles = [verify(Path(f"contracts/{name}.yaml"), SUBJECTS[name], *record, ends=(0, 3)) for name in names]
    if anew:
        frozen = verify(
            Path("scripts/frozen.yaml"), FROZEN_SUBJECTS, *COMPANIONS, "--evidence", BUILD / "frozen", ends=(1,)
        )
        for old in (EVIDENCE, SPEC / "amendments"):
            shutil.rmtree(old, ignore_errors=True)
        weighbridge("evidence", "merge", store, "--into", EVIDENCE)
        shutil.copytree(frozen, EVIDENCE / "frozen" / PREDICATE_TYPE.rpartition(":")[2] / frozen.name)
    for path in bundles:
        land(EVIDENCE / "bundles" / path.name, again)
    for words in (("ledger", "check"), ("amend", "check"), ("status",)):
        weighbridge(*words, ends=(0, 3))
    size = sum(path.stat().st_size for path in EVIDENCE.rglob("*") if path.is_file())
    print(f"{EVIDENCE}/ has {size / 1024:.0f} KiB; commit it with {SPEC}/" if names else "nothing is STALE or missing")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main(anew=sys.argv[1:] == ["--anew"])
