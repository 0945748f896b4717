"""Record this project's own evidence: train the demo, import it, run it in two stacks, and land what that earns.

`make evidence` measures the contracts whose gates are STALE or were never recorded, or those named in CONTRACTS=, as on
a host with CUDA that can decide what others could not; then it lands a section about each.
`make evidence-anew` begins again from nothing, which is allowed until a release is tagged. Both need a checkout without
changes, and change it only after the last measurement of a file of it.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from weighbridge import demo
from weighbridge.contract.load import contracts_here
from weighbridge.core import git
from weighbridge.core.model import Outcome
from weighbridge.evidence.bundle import unseal
from weighbridge.evidence.statement import PREDICATE_TYPE
from weighbridge.ledger.fold import DISCHARGED, DRAFT
from weighbridge.ledger.overview import overview
from weighbridge.ledger.store import Ledger
from weighbridge.spec.drafting import EXPERIMENT, HYPOTHESES

EVIDENCE, SPEC, BUILD = Path("evidence"), Path("spec"), Path("build/evidence")
FORMAT = EVIDENCE / "frozen" / PREDICATE_TYPE.rpartition(":")[2]
RUN, MODEL, IMPORT, STACKS = (BUILD / name for name in ("run", demo.SOURCE, demo.IMPORT, "models.py"))
IMPORTED = (f"source={MODEL}", f"import={IMPORT}")
PARITY = (f"reference={STACKS}:reference", f"candidate={STACKS}:numpy_backend", f"cuda={STACKS}:on_cuda")
CLAIMS = {  # by contract: what is claimed of the demo, and what that means
    "training-run": (
        "The demo logged what it did, on the device that it was asked for. Its loss fell and stayed down, every "
        "gradient was used as it arrived, and nothing but the optimizer wrote the weights. So what the other "
        "sections say of its checkpoint is about a model that was trained as its log says."
    ),
    "checkpoint-health": (
        "The demo's checkpoint is complete, and its bits fit its dtypes. That is as much as one file can show by "
        "itself: whether it holds what was trained, only its source tells."
    ),
    "checkpoint-import": (
        "The GGUF import of the demo's checkpoint keeps every dtype and every value. An importer that copied BF16 "
        "bytes under the label F16 would be found here; such a file loads without an error."
    ),
    "model-import": (
        "Every tensor of the demo's import is what a lossless conversion makes of it. The configuration is "
        "another matter: perfect tensors under a wrong rope base are another model."
    ),
    "forward-parity": (
        "PyTorch on the checkpoint and NumPy on its import compute the same everywhere, at each capture point and "
        "not only at the end. Two stacks that share no code are not wrong in the same way by chance."
    ),
    "pretraining": (
        "The demo is trained on the CPU; this says beforehand what one on CUDA has to show. Nothing of it is "
        "claimed yet."
    ),
    "recorded-parity": (
        "The demo is computed on this host; this says beforehand what a trace of a host with CUDA has to show. "
        "Nothing of it is claimed yet."
    ),
    "training-log": (
        "The demo's log, read as any other, shows a loss that falls and stays down. The rules are those for logs "
        "of other people's tools: nothing was declared, and the recorder's own columns were not needed."
    ),
    "diagnostics": (
        "The demo's run answers what a diagnosis asks of its log. What a script must hand over, and what so few steps "
        "cannot show, is BLOCKED by name, and nothing of it is claimed."
    ),
}
OURS: dict[str, tuple[str, ...]] = {  # by contract: its subjects
    "training-run": (f"run={RUN}",),
    "checkpoint-health": (f"checkpoint={MODEL}",),
    "checkpoint-import": (*IMPORTED,),
    "model-import": (*IMPORTED,),
    "forward-parity": (*PARITY,),
    "pretraining": (),
    "recorded-parity": (),
    "training-log": (f"run={RUN}",),
    "diagnostics": (f"run={RUN}",),
}
MODELS, WRAPPED = "verifiers/specimens/models", "verifiers/specimens/runs/wrapped"
FROZEN = (
    "trainer=python3 --no-such-option",
    f"reference={MODELS}/tiny_gpt.py:reference",
    f"candidate={MODELS}/tiny_gpt_numpy.py:numpy_stack",
)
CLAIM = re.compile("<!-- author: what .*?-->")
TABLES = re.compile(r"### Hypotheses\n.*?(?=### Evidence\n)", re.DOTALL)


def weighbridge(*words: object, ends: tuple[int, ...] = (0, 3), env: Mapping[str, str] = os.environ) -> str:
    """Run a command as a person would, and return what it prints; stop where it ends otherwise: 3 is BLOCKED."""
    typed = [str(word) for word in words]
    print("$ weighbridge", shlex.join(typed))
    argv = [sys.executable, "-m", "weighbridge", *typed]
    done = subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True, env=env)
    print(done.stdout, flush=True)
    if done.returncode not in ends:
        sys.exit(f"stopped: that ended with {done.returncode}; what has changed so far: git status")
    return done.stdout


def verify(contract: str, subjects: tuple[str, ...], *more: object, ends: tuple[int, ...] = (0, 3)) -> Path:
    """Return the bundle that `verify` wrote."""
    printed = weighbridge("verify", contract, *(f"--subject={one}" for one in subjects), *more, ends=ends)
    return Path(re.findall(r"^evidence: (.+)$", printed, re.MULTILINE)[0])


def due() -> list[str]:
    """Return the contracts that are not shown now; a gate that is DRAFT waits for a host that can look."""
    contracts = {name: loaded.contract for name, loaded in contracts_here().items()}
    gates = overview(Ledger(EVIDENCE / "ledger"), contracts, dt.datetime.now(dt.UTC))
    wrong = {one.contract for one in gates if not one.sound or one.status not in (DISCHARGED, DRAFT)}
    return [name for name in OURS if name in wrong or name not in {one.contract for one in gates}]


def land(path: Path, again: str) -> None:
    """Draft the section about a bundle, fill in what is left to its author, and land it."""
    bundle = unseal(path)
    contract, draft = bundle.contract, BUILD / f"{bundle.contract.id}.md"
    unseen = [(one.gate, one.verdict.code) for one in bundle.findings if one.verdict.outcome is Outcome.BLOCKED]
    title = contract.title + (": not shown" if len(unseen) == len(bundle.findings) else "")
    title += f", measured again at {again}" if again else ""
    gates = [f"--gate={gate.id}" for gate in contract.gates]
    author = "--author=the maintainers of weighbridge"
    weighbridge("amend", "draft", "--bundle", path, *gates, f"--title={title}", author, "--out", draft)
    titles = {gate.id: gate.title for gate in contract.gates}
    claims, why = [CLAIMS[contract.id]], dict.fromkeys(code for _, code in unseen)
    claims += ["", "These could not look, for the reason named, and claim nothing:", ""] if unseen else []
    claims += [f"- {code}: {', '.join(f'`{gate}`' for gate, own in unseen if own == code)}" for code in why]
    named = [(gate, gate.replace("GATE", "H", 1)) for gate, _ in unseen]  # one id for one hypothesis, in every section
    open_ = [f"| {name} | {titles[gate]} | OPEN | |" for gate, name in named]
    next_ = [f"| {name} | `{gate}` where it can look | PASS | FAIL |" for gate, name in named]
    tables = "\n".join(("### Hypotheses", "", *HYPOTHESES, *open_, "", "### Next experiment", "", *EXPERIMENT, *next_))
    text = CLAIM.sub("\n".join(claims), draft.read_text(encoding="utf-8"))
    draft.write_text(TABLES.sub(f"{tables}\n\n" if unseen else "", text), encoding="utf-8")
    weighbridge("amend", "land", draft)


def main(*words: str) -> None:
    """Measure what is due, or named, or everything; then land a section for each bundle, and check the whole."""
    anew = words == ("--anew",)
    if not anew and (unknown := set(words) - OURS.keys()):
        sys.exit(f"not among {', '.join(OURS)}: {', '.join(unknown)}")
    if git.is_dirty(Path()) is not False:
        sys.exit("the checkout has changes, so nobody else could measure the same: commit them first")
    if anew and git.answer(Path(), "tag", "--list", "v[0-9]*"):
        sys.exit("a release is tagged: evidence is only ever added from then on, by `make evidence`")
    names = list(OURS) if anew else words or due()
    known = {name for name in names if not anew and (EVIDENCE / "ledger" / name).is_dir()}
    if names:
        shutil.rmtree(BUILD, ignore_errors=True)
        BUILD.mkdir(parents=True)
        on_cpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        trained = (sys.executable, "-m", "weighbridge.demo.train", BUILD)
        weighbridge("watch", RUN, "--evidence", BUILD / "watched", "--", *trained, env=on_cpu)  # or it is reported
        demo.to_gguf(MODEL, IMPORT)
        shutil.copy(Path(demo.__file__).with_name(STACKS.name), STACKS)
    store = BUILD / "recorded" if anew else EVIDENCE
    record = ("--record", "--evidence", store)
    bundles = [verify(f"contracts/{name}.yaml", OURS[name], *record) for name in names]
    if anew or not FORMAT.exists():
        beside = (f"--attach=facts={WRAPPED}/run.json", f"--input=log={WRAPPED}/steps.jsonl", "--evidence", BUILD)
        frozen = verify("scripts/frozen.yaml", FROZEN, *beside, ends=(1,))  # some of its gates fail, as they should
        if anew:
            for old in (*(EVIDENCE / name for name in ("bundles", "frozen", "ledger")), SPEC / "amendments"):
                shutil.rmtree(old, ignore_errors=True)
            weighbridge("evidence", "merge", store, "--into", EVIDENCE)
        shutil.copytree(frozen, FORMAT / frozen.name)
    for name, path in zip(names, bundles, strict=True):
        land(EVIDENCE / "bundles" / path.name, git.commit(Path())[:9] if name in known else "")
    for verb in (("ledger", "check"), ("amend", "check"), ("status",)):
        weighbridge(*verb)
    size = sum(path.stat().st_size for path in EVIDENCE.rglob("*") if path.is_file())
    print(f"{EVIDENCE}/ has {size / 1024:.0f} KiB; commit it with {SPEC}/" if names else "nothing is STALE or missing")


if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parents[1])
    main(*sys.argv[1:])
