"""What a section rests on, looked at again when it lands; a command runs only where the person landing it allows it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from weighbridge.contract.load import contracts_here
from weighbridge.contract.resolved import digests
from weighbridge.core import AmendmentError, WeighbridgeError, sha256
from weighbridge.core.git import answer
from weighbridge.evidence.disk import read_regular
from weighbridge.evidence.review import State, rederivation
from weighbridge.spec.amendments import Premise
from weighbridge.spec.citations import Bundles

SECONDS = 60
MAX_FILE = 1 << 30
IDENTICALLY = "re-judges identically"


def stale(premises: Iterable[Premise], bundles: Bundles, where: str, *, run_commands: bool) -> Iterator[AmendmentError]:
    """Look at every premise again, and yield each that does not hold."""
    for premise in premises:
        named = premise.id or " ".join(premise.argv)
        if premise.kind == "command" and not run_commands:
            what = f"the premise `{named}` was not executed"
            yield AmendmentError("premise-not-run", what, where=where, remedy="allow it with --run-commands")
            continue
        try:
            found = _found(premise, bundles)
        except WeighbridgeError as problem:
            found = f"{problem.code} {problem.what}"
        if found != premise.expect:
            what = f"{premise.kind} {named}: expected {premise.expect or 'nothing'}, found {found}"
            remedy = "measure again, or correct what the section says"
            yield AmendmentError("premise-stale", what, where=where, remedy=remedy)


def _found(premise: Premise, bundles: Bundles) -> str:
    match premise.kind:
        case "bundle":
            found = rederivation(bundles.get(premise.id))
            return IDENTICALLY if found.held is State.HOLDS else found.says
        case "verdict":
            bundle, _, named = premise.id.partition("/")
            outcomes = {f"{one.gate}[{one.instance}]": one.verdict.outcome for one in bundles.get(bundle).findings}
            return str(outcomes.get(named, "no such verdict"))
        case "contract":
            loaded = contracts_here().get(premise.id)
            return digests(loaded.contract).whole if loaded else "no such contract here"
        case "file":
            return sha256(read_regular(Path(premise.id), premise.id, MAX_FILE))
        case "commit":
            argv = ("merge-base", "--is-ancestor", premise.id, "HEAD")
            known = re.fullmatch(r"[0-9a-f]{7,64}", premise.id) and answer(Path(), *argv, seconds=SECONDS) is not None
            return "in history" if known else "not in the history of HEAD"
        case _:
            return _printed(premise.argv)


def _printed(argv: tuple[str, ...]) -> str:
    """Run a command; its output goes to a file, so that no process which it left behind can be waited for."""
    with tempfile.TemporaryFile() as out:
        try:
            where = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen(argv, start_new_session=True, **where)  # type: ignore[call-overload]
        except (OSError, ValueError, IndexError):
            return "a command that does not start"
        try:
            code = process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)  # it has not been waited for, so the group is still its own
            process.kill()
            process.wait()
            return f"nothing within {SECONDS} s"
        out.seek(0)
        return sha256(out.read(MAX_FILE)) if code == 0 else f"exit {code}"
