"""`weighbridge init`: write a first contract, the job that runs it in CI, and what git must know of evidence."""

import re
import shlex
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import click

from weighbridge import __version__
from weighbridge.cli.options import Texts, repeated, settings, tell, verb
from weighbridge.contract.document import KEBAB
from weighbridge.contract.load import BUILTIN, LoadedContract, load_contract
from weighbridge.contract.strict_yaml import flow
from weighbridge.core import ContractError, SubjectError, SubjectKind, UsageError, bare, data_path, nearest
from weighbridge.core.git import answer
from weighbridge.core.local_files import is_here, local_path
from weighbridge.evidence.disk import disk_errors, write_new

STARTERS = {"import": "model-import", "run": "training-run", "parity": "forward-parity"}
PURPOSES = {**{purpose: (purpose,) for purpose in STARTERS}, "project": ("import", "run")}
PACKAGES = {"parity": f"'weighbridge[torch]=={__version__}' transformers"}  # beside the tool itself, as it wrote this
LOOKED_AT = {SubjectKind.MODEL: "hf:path/to/{name}", SubjectKind.RUN: "runs/a"}  # what stands for a subject not named
GITLAB = Path(".gitlab-ci.yml")
THERE = "edit it, or delete it first; --name NAME writes another"
CI = {"github": Path(".github", "workflows", "weighbridge.yml"), "gitlab": Path(".gitlab", "weighbridge.yml")}
INCLUDED = f"include: [{{local: {CI['gitlab']}}}]"
FOR_GIT = {
    Path(".gitattributes"): ("evidence/** -text",),  # evidence is digested byte for byte: no line end may change
    Path(".gitignore"): (".weighbridge/", "reports/", "evidence/ledger/.lock"),
}
PURPOSE = """What to check: a converted checkpoint (import), a training run, two ways of running one model (parity), or
imports and runs together (project)."""
GOOD_RUN = "A good run: take over its device and its step, and give its median step half as much time again."
ADAPTER, AGED = "adapter", "# gates: [{{id: {gate}, max_age: 30d}}]"
MERGED = """subjects: {{adapter: {{kind: checkpoint}}}}
gates:
  - id: {gate}
    title: Every tensor is the source's, with the adapter merged into it
    subjects: {{adapter: adapter}}
    relax: the import is the source with this adapter merged into it, and not the source"""
WHOSE_CI = "Whose CI runs it.  [default: gitlab beside a .gitlab-ci.yml, else github]"


@verb("init", "Begin: write a contract and the CI job that runs it.")
@click.option("--for", "purpose", type=click.Choice(tuple(PURPOSES)), help=PURPOSE)
@click.option("--from-run", "run", metavar="RUN", help=GOOD_RUN)
@click.option("--name", help="The contract's id, and the name of its file.  [default: as --for]")
@repeated("--subject", "subjects", "NAME=TARGET", "The path or model to check.")
@repeated("--param", "params", "NAME=VALUE", "A parameter, such as policy=rounded:F16.")
@click.option("--ci", type=click.Choice((*CI, "none")), help=WHOSE_CI)
def command(purpose: str | None, *, run: str | None, name: str | None, ci: str | None, **asked: Texts) -> None:
    """Write a first contract, the CI job that runs it, and what git must know.

    Example: weighbridge init --for import --param policy=quantised:Q4_K_M

    On a terminal it asks for what is not given. Nothing is overwritten.
    """
    asking = sys.stdin.isatty()
    if run is not None and purpose not in (None, "run", "project"):
        raise UsageError("purpose", f"--from-run is for runs, and --for says {purpose}", remedy="leave one of them out")
    purpose = purpose or (None if run is None else "run")
    if purpose is None and not asking:
        raise UsageError("purpose", "nothing says what is to be checked", remedy=f"write --for {'|'.join(PURPOSES)}")
    parts = PURPOSES[purpose or click.prompt("What is to be checked?", type=click.Choice(tuple(PURPOSES)))]
    _demand_place(parts, name, ci)
    of_run = {} if run is None else {"run": run}
    loaded = {name or part: load_contract(f"{BUILTIN}{STARTERS[part]}") for part in parts}
    targets, unnamed = _bound(loaded.values(), of_run | settings(asked["subjects"], "subject"), asking=asking)
    stated, looked_at = dict[str, str](), list[str]()
    named = ((name, one) for name, one in targets.items() if one not in unnamed and "parity" not in parts)
    looked_at += [f"missing {name}: {one} is not there" for name, one in named if local_path(one) and not is_here(one)]
    if run is not None or ("run" in parts and is_here(targets["run"])):
        fits, stated, said = _fitting(targets["run"], may_guess=run is None)
        loaded[name or "run"] = load_contract(f"{BUILTIN}{fits}")
        looked_at.append(said)
    if "import" in parts and is_here(targets["source"]) and is_here(targets["import"]):
        from weighbridge.evaluation.import_comparison import stated_policy

        policy, where = stated_policy(targets["source"], targets["import"])
        stated |= {"policy": policy} if policy else {}
        looked_at += [f"read    import: {where} says policy: {policy}"] if policy else []
    stated |= settings(asked["params"], "param")
    given = _values(loaded.values(), stated, asking=asking)
    if "import" in parts and "policy" not in stated and not asking:
        lacks = "no file says what was meant" if is_here(targets["source"]) else "without its source no file is asked"
        looked_at.append(f"guessed import: {lacks}, so policy: {given['policy']} is a guess")
    files = {Path("contracts", f"{one}.yaml"): _contract(one, base, given, targets) for one, base in loaded.items()}
    verify = _command(tuple(files), loaded.values(), targets)
    ci = ci or ("gitlab" if GITLAB.exists() else "github")
    if ci != "none":
        text = (data_path("templates") / "ci" / f"{ci}.yml").read_text("utf-8").replace("WEIGHBRIDGE_VERIFY", verify)
        packages = next((PACKAGES[part] for part in parts if part in PACKAGES), f"weighbridge=={__version__}")
        files[CI[ci]] = text.replace("WEIGHBRIDGE_PACKAGES", packages)
        files |= {GITLAB: f"{INCLUDED}\n"} if ci == "gitlab" else {}
    done = [*looked_at, *_write(files), *_append()]
    done += [f"change  {', '.join(unnamed)}: put what is to be checked there, in CI and below"] if unnamed else []
    tell([*done, f"next: {verify}"], whole=True)


def _fitting(run: str, *, may_guess: bool) -> tuple[str, dict[str, str], str]:
    """Return the contract for a run, its parameters, and how they were found; of a log without a step, by a guess."""
    from weighbridge.evaluation.inspection import LOGGED, RECORDED, contract_of
    from weighbridge.run_logs.json_log import is_run
    from weighbridge.run_logs.log_file import NO_STEP

    try:
        fits, stated = contract_of(run)
    except SubjectError as lacks:
        if not may_guess or lacks.code not in NO_STEP:
            raise
        fits = RECORDED if is_run(Path(run)) else LOGGED
        return fits, {}, f"guessed run: {lacks.what}, so builtin:{fits} is a guess"
    return fits, stated, f"read    run: builtin:{fits} fits it"


def _demand_place(parts: Sequence[str], name: str | None, ci: str | None) -> None:
    if name is not None and (len(parts) > 1 or not re.fullmatch(KEBAB, name)):
        what = f"{name!r} cannot name {'two contracts' if len(parts) > 1 else 'a contract'}"
        raise UsageError("name-form", what, remedy="leave --name out, or write lower-case words joined by hyphens")
    for path in (Path("contracts", f"{name or part}.yaml") for part in parts):
        if path.exists():
            what = "this contract is there already"
            raise UsageError("file-exists", what, where=str(path), remedy=THERE)
    root = "" if ci == "none" else (answer(Path(), "rev-parse", "--show-toplevel") or "").strip()
    if root and Path(root).resolve() != Path.cwd().resolve():
        raise UsageError("not-the-root", "CI jobs lie at the root", remedy=f"type it in {root}, or add --ci none")


def _bound(bases: Iterable[LoadedContract], given: dict[str, str], *, asking: bool) -> tuple[dict[str, str], list[str]]:
    """Return what each subject is, as given, as answered or as it usually is, and those that nobody named."""
    kinds = {name: decl.kind for base in bases for name, decl in base.contract.subjects.items()}
    kinds |= {ADAPTER: SubjectKind.CHECKPOINT} if ADAPTER in given and "source" in kinds else {}
    usual = {name: LOOKED_AT.get(kind, "path/to/{name}").format(name=name) for name, kind in kinds.items()}
    for name in given.keys() - usual.keys():
        raise UsageError("unknown-subject", f"there is no subject {name!r} here{nearest(name, usual)}")
    asked = [name for name in usual if name not in given] if asking else []
    named = {**given, **{name: click.prompt(f"Which one is the {name}?", usual[name]) for name in asked}}
    targets = {name: named.get(name) or target for name, target in usual.items()}
    return targets, [target for name, target in targets.items() if name not in named]


def _values(bases: Collection[LoadedContract], given: Mapping[str, str], *, asking: bool) -> dict[str, object]:
    """Return the value of each parameter as the gates read it, each tried in the contract that declares it."""
    values: dict[str, object] = {}
    for name in given:
        known = [known for base in bases for known in base.contract.params]
        if name not in known:
            raise UsageError("unknown-param", f"there is no parameter {name!r} here{nearest(name, known)}")
    for base in bases:
        for name, usual in base.contract.params.items():
            doc = base.layered.data["params"][name].get("doc", "")
            text = given.get(name) or (click.prompt(f"{name}: {doc}", str(usual)) if asking else None)
            values[name] = usual
            if text is None:
                continue
            try:
                chosen = load_contract(f"{BUILTIN}{base.path.stem}", {name: text}).contract
            except ContractError as error:
                first = error.problems[0]
                raise UsageError(first.code, first.what, where=f"--param {name}={text}", remedy=first.remedy) from None
            read = (value for gate in chosen.gates for value in gate.limits.values() if isinstance(value, str))
            values[name] = next((one for one in read if one.casefold() == text.casefold()), chosen.params[name])
    return values


def _contract(name: str, base: LoadedContract, params: Mapping[str, object], targets: Collection[str]) -> str:
    declared = base.layered.data.get("params", {})
    mine = {key: value for key, value in params.items() if key in base.contract.params}
    lines = [f"  {key}: {flow(value)}  # {declared[key].get('doc', '')}" for key, value in mine.items()]
    given = "".join(f"{line}\n" for line in ["params:", *lines] if lines)
    title, gate = flow(base.contract.title), base.contract.gates[0].id
    where = {"base": f"{BUILTIN}{base.path.stem}", "path": f"contracts/{name}.yaml"}
    more = (MERGED if ADAPTER in targets and "source" in base.contract.subjects else AGED).format(gate=gate)
    template = (data_path("templates") / "contract.txt").read_text("utf-8")
    return template.format(**where, id=name, title=title, params=given, more=more)


def _command(contracts: Iterable[Path], bases: Iterable[LoadedContract], targets: Mapping[str, str]) -> str:
    """Return the command that verifies the contracts, without secrets; a host without CUDA is expected to lack it."""
    words = ["weighbridge", "verify", *map(str, contracts)]
    for target in (one for one in targets.values() if "${{" in one):
        raise UsageError("ci-expression", f"{target!r} would be filled in by GitHub", remedy="name it without ${{")
    words += [word for name, target in targets.items() for word in ("--subject", f"{name}={target}")]
    lacking = [gate.id for base in bases for gate in base.contract.gates if gate.requires]
    words += [word for gate in lacking for word in ("--expect-blocked", gate)]
    return shlex.join(map(bare, words))


def _write(files: Mapping[Path, str]) -> Iterator[str]:
    for path, text in files.items():
        if not path.exists():
            with disk_errors("the file", path):
                path.parent.mkdir(parents=True, exist_ok=True)
                write_new(path, text.encode())
            yield f"written {path}"
        elif path != GITLAB:
            yield f"kept    {path}: let it run the command below, too"
        elif str(CI["gitlab"]) not in path.read_text("utf-8", errors="replace"):
            yield f"kept    {path}: add `{INCLUDED}` to it"


def _append() -> Iterator[str]:
    for path, wanted in FOR_GIT.items():
        text = path.read_text("utf-8", errors="surrogateescape") if path.exists() else ""
        if lacking := [line for line in wanted if line not in text.splitlines()]:
            begin = "" if not text or text.endswith("\n") else "\n"
            with disk_errors("the line", path), path.open("a", encoding="utf-8") as file:
                file.write(begin + "".join(f"{line}\n" for line in lacking))
            yield f"added   {', '.join(lacking)} to {path}"
