"""Contracts as they are named to `verify` and `lint`: files, folders of files, and not what a contract judges."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path

from weighbridge.contract.load import BUILTIN, written_in
from weighbridge.core import ContractError, SubjectError, SubjectKind, exists, is_file, is_folder, printable, scheme_of

SAYS_SO = re.compile(rb"weighbridge[\"']?\s*:\s*[\"']?contract")  # the first key of every contract
HEAD = 1 << 16
FITS = {SubjectKind.RUN: ("training-log", "run"), SubjectKind.CHECKPOINT: ("checkpoint-health", "checkpoint")}


def contracts_named(names: Iterable[str]) -> Iterator[str]:
    """Yield contracts as they are named, of a folder each one in it; refuse a URL, and what a contract would judge."""
    for name in names:
        path = Path(name)
        if name.startswith(BUILTIN):
            yield name
        elif name.startswith("="):
            raise ContractError("subject-form", "there is a blank before =", remedy="write --subject NAME=PATH")
        elif scheme_of(name) and not exists(path):
            what = "a contract is a file on this machine, and this is a URL"
            raise ContractError("no-contract", what, where=printable(name), remedy="fetch it first")
        elif is_folder(path) and any(says_so(Path(one)) for one in written_in(path)):
            yield from written_in(path)
        elif is_folder(path) or (is_file(path) and path.suffix not in (".yaml", ".yml") and not says_so(path)):
            raise _judged_by_one(name)
        else:
            yield name


def says_so(path: Path) -> bool:
    """Return whether a file says that it is a contract, or cannot be opened."""
    try:
        with path.open("rb") as file:
            return bool(SAYS_SO.search(file.read(HEAD)))
    except OSError:  # reading it as a contract says why
        return True


def instead(verb: str) -> str:
    """Return what to do where contracts/ holds none: name a folder here, or above, that does; else write one."""
    here = (one for one in sorted(Path().iterdir()) if is_folder(one) and not one.name.startswith("."))
    folders = (*here, Path("..", "contracts"), Path("..", "..", "contracts"))
    found = " ".join(str(one) for one in folders if any(map(says_so, one.glob("*.y*ml"))))
    return f"name the folder: weighbridge {verb} {found}" if found else "write one: weighbridge init"


def _judged_by_one(name: str) -> ContractError:
    from weighbridge.evaluation.inspection import kind_of, opened

    kind = kind_of(name)
    try:
        opened(name, kind)
    except SubjectError as problem:
        if problem.code == "checkpoint-none":
            return ContractError("no-contract", "no .yaml file in it is a contract", where=name, remedy=instead("lint"))
        if problem.code in ("unknown-format", "checkpoint-format", "no-rows"):
            return ContractError("no-contract", "this is no contract", where=name, remedy=f"name one, or {BUILTIN}NAME")
        if problem.code == "several-runs":
            remedy = f"a contract judges one of them: weighbridge verify {BUILTIN}training-log --subject run=ONE"
            return ContractError("no-contract", f"no contract, but {problem.what}", where=name, remedy=remedy)
    builtin, role = FITS[kind]
    what = f"this is no contract; it looks like a {kind} that one would judge"
    quoted = shlex.quote(name)
    remedy = f"a contract comes first: weighbridge verify {BUILTIN}{builtin} --subject {role}={quoted}"
    remedy += f"; `weighbridge inspect {quoted}` needs none"
    return ContractError("no-contract", what, where=name, remedy=remedy)
