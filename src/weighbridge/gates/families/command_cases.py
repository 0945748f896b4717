"""What a command must do with one list of arguments, and what is otherwise of a run: its end, its words, its files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any

from weighbridge.core import Doc, Fields, WeighbridgeError, at_pointer, dataclass, field, loads
from weighbridge.quantities.commands import KEPT, CommandRun

NONZERO = "nonzero"
TEXT = "a text in one line of the output, in which `*` stands for anything"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A text that must be in so many lines of the output, no more and no fewer."""

    text: Annotated[str, Doc(TEXT)]
    times: Annotated[int, Doc("lines that have it", ge=1, le=10_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonField:
    """What a field of the JSON output must hold; without either key it must be there."""

    one_of: Annotated[tuple[object, ...], Doc("the values that it may have")] = ()
    matches: Annotated[str | None, Doc("a glob that its text must fit")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One list of arguments, and what the command must do with it."""

    args: Annotated[tuple[str, ...], Doc("arguments that follow those that were bound")] = ()
    exit: Annotated[int | str, Doc("the exit code, or nonzero", pattern=NONZERO, ge=0, le=255)] = 0
    says: Annotated[tuple[str | Said, ...], Doc(f"what it must say: {TEXT}")] = ()
    never_says: Annotated[tuple[str, ...], Doc(f"what it must not say: {TEXT}")] = ()
    json: Annotated[
        Mapping[str, str | int | float | bool | JsonField],
        Doc("JSON pointer into its standard output to the value there", keys="(/.*)", form="a JSON pointer (/a/b)"),
    ] = field(default_factory=dict)
    files: Annotated[tuple[str, ...], Doc("globs of files that it must leave in the folder that it ran in")] = ()


def lines_of(run: CommandRun) -> list[str]:
    """Return the lines of both streams."""
    return f"{run.stdout}\n{run.stderr}".splitlines()


def cut_short(timeout_s: float, within_s: float | None) -> list[str]:
    """Return the problem of a command that is stopped before the time that it may take is over."""
    if within_s is None or timeout_s > within_s:
        return []
    return [f"timeout_s: {timeout_s:g} s would stop the command before the {within_s:g} s are over"]


def wrong_exit(case: Case, run: CommandRun) -> Fields | None:
    """Return the exit code that it must not have ended with."""
    code = run.exit_code
    # A negative code is the signal that killed it, and a process that crashed refused nothing.
    as_it_must = code is not None and (code > 0 if case.exit == NONZERO else code == case.exit)
    if as_it_must or run.timed_out:
        return None
    lines = [line.strip() for line in lines_of(run) if line.strip()]
    return {"exit_code": code, "expected": case.exit, "last": lines[-1][:200] if lines else "nothing"}


def has(line: str, text: str) -> bool:
    """Return whether a line has a text, in which `*` stands for anything: each part is looked for once."""
    at = 0
    for part in text.split("*"):
        found = line.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def count(run: CommandRun, text: str) -> int:
    """Return how many lines have a text."""
    return sum(has(line, text) for line in lines_of(run))


def unsaid(case: Case, run: CommandRun) -> list[str]:
    """Return the texts that too few or too many lines have."""
    found = []
    for one in case.says:
        many, times = count(run, text_of(one)), one.times if isinstance(one, Said) else None
        if not many if times is None else many != times:
            found.append(f"{text_of(one)!r} in {many} lines" + ("" if times is None else f", not {times}"))
    return found


def forbidden(case: Case, run: CommandRun) -> list[str]:
    """Return the texts that some line has, and none may."""
    return [text for text in case.never_says if count(run, text)]


def text_of(said: str | Said) -> str:
    """Return the text that must be said."""
    return said.text if isinstance(said, Said) else said


def document(run: CommandRun) -> Any:
    """Return the JSON of the whole standard output; raises WeighbridgeError where it is none."""
    return loads(run.stdout, spelled=False)


def _odd_fields(case: Case, run: CommandRun) -> list[str]:
    found_in = document(run)
    odd = []
    for pointer, wanted in case.json.items():
        try:
            found = at_pointer(found_in, pointer)
        except KeyError:
            odd.append(f"nothing at {pointer}")
            continue
        if not _fits(found, wanted):
            odd.append(f"{json.dumps(found)[:80]} at {pointer}")
    return odd


def _fits(found: object, wanted: object) -> bool:
    if not isinstance(wanted, JsonField):
        return isinstance(found, bool) is isinstance(wanted, bool) and found == wanted
    if wanted.one_of and not any(_fits(found, one) for one in wanted.one_of):
        return False
    return wanted.matches is None or (isinstance(found, str) and fnmatchcase(found, wanted.matches))


def not_left(case: Case, run: CommandRun) -> list[str]:
    """Return the globs that no file fits that it left."""
    files = [item.path for item in run.left if item.what == "file"]
    return [glob for glob in case.files if not any(fnmatchcase(path, glob) for path in files)]


def kept_in_part(case: Case, run: CommandRun) -> str:
    """Return what was kept only in part, where the whole would be needed to judge it."""
    if run.stdout_bytes > KEPT and case.json:
        return "standard output"
    counted = any(isinstance(one, Said) for one in case.says)
    if max(run.stdout_bytes, run.stderr_bytes) > KEPT and (case.never_says or counted or unsaid(case, run)):
        return "output"
    return "list of files" if run.left_total > len(run.left) and not_left(case, run) else ""


def wrong_json(case: Case, run: CommandRun) -> Fields | None:
    """Return the fields of its JSON that are not as they must be."""
    if not case.json:
        return None
    try:
        odd = _odd_fields(case, run)
    except WeighbridgeError as problem:
        odd = [problem.what]
    return {"odd": odd} if odd else None
