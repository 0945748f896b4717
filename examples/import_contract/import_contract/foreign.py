"""Read a contract of another style, with rules in prose, into a draft of ours: only what maps with certainty.

A command line that runs tests becomes `test-report`, another one `command-succeeds`; their subjects are bound by hand.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from weighbridge.contract.document import FORMAT, GATE_ID, KEBAB, VERSION
from weighbridge.contract.strict_yaml import Document, Path

ITEMS: Final = ("gates", "falsification_tests", "invariants", "proof_obligations")
STATUS: Final = ("status", "verdict", "discharge_status", "discharged_at", "status_history", "verification_summary")
TITLE: Final = ("title", "rule", "description", "property")
WHY: Final = ("why", "if_fails", "motivation")
BINDS: Final = ("binds_to", "binds")
COMMAND: Final = ("command", "cmd")  # a command line, whatever it begins with
RUNNER: Final = ("test", "harness")  # prose, unless it begins with a test runner
RUST: Final = "harness_discharged_by"
ANYTHING: Final = r".*\S.*"
NAME: Final = re.compile(r"[A-Za-z][A-Za-z_]*(?:[/-][A-Za-z0-9]+)*")
WORD_OF_YAML: Final = re.compile("true|false|null|yes|no|on|off|y|n", re.IGNORECASE)
SHELL: Final = re.compile(r"[|&;<>`$*?~\n]|^\w+=")
TEST: Final = re.compile(r"[A-Za-z0-9_:.-]+")
RUST_TEST: Final = re.compile(r"[^\s:]+\.rs::(?P<name>\w+(?:::\w+)*)")
PYTHON_TEST: Final = re.compile(r"(?P<file>[\w/-]+)\.py(?:::(?P<group>\w+))?::(?P<name>\w+)")
CARGO_TAKES: Final = ("-p", "--package", "--test", "--bin", "--features", "--manifest-path")
CARGO_PARTS: Final = ("--lib", "--bins", "--tests", "--workspace")
CARGO_ALONE: Final = (*CARGO_PARTS, "--release", "--all-features", "--no-fail-fast", "-q")
WITHIN: Final = ("--exact", "--nocapture", "--test-threads=1")  # what changes no test, given to the tests themselves


class Line(NamedTuple):
    """What one place of the other contract came to: to what it maps, or why it does not."""

    path: Path
    maps: bool
    what: str


class Promise(NamedTuple):
    """The gate that a command line is: its kind, the subject to bind, and its limits."""

    kind: str
    subject: str
    limits: Mapping[str, Any]


Read: TypeAlias = Promise | str  # or why it is none


@dataclass(slots=True)
class Draft:
    """A contract under way, and what each place of the other one came to."""

    head: dict[str, Any]
    subjects: dict[str, dict[str, str]] = field(default_factory=dict)
    gates: list[dict[str, Any]] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)

    def text(self) -> str:
        """Return it as YAML that reads back to the same values."""
        body = {**self.head, "subjects": self.subjects, "gates": self.gates}
        return yaml.dump(body, Dumper=_Quoting, sort_keys=False, allow_unicode=True, width=1 << 16)


class _Quoting(yaml.SafeDumper):
    """Quotes every text but names, so that no reader takes it for something else."""


def _represented(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    plain = NAME.fullmatch(text) and not WORD_OF_YAML.fullmatch(text)
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if plain else '"')


_Quoting.add_representer(str, _represented)


def drafted(document: Document, name: str) -> Draft:
    """Return the draft of a contract of another style; `name` is what it is called where its own id is none."""
    data = document.data
    metadata = data.get("metadata")
    parts: dict[Path, Any] = {(key,): value for key, value in data.items()}
    parts |= {("metadata", key): value for key, value in metadata.items()} if isinstance(metadata, Mapping) else {}
    used: set[Path] = {("metadata",)} if isinstance(metadata, Mapping) else set()
    draft = Draft({"weighbridge": FORMAT})
    for key, keys, form, change, otherwise in (
        ("id", ("contract_id", "id"), KEBAB, str.lower, name),
        ("version", ("version",), VERSION, str, "0.1.0"),
        ("title", ("title", "description", "summary"), ANYTHING, _one_line, name),
        ("owner", ("owner", "author"), ANYTHING, _one_line, "nobody yet"),
    ):
        path, draft.head[key] = _first(parts, keys, form, change) or ((), otherwise)
        used.add(path)
        absent = f"no {key} in our form is there, so it is {otherwise!r}"
        draft.lines.append(Line(path, bool(path), f"{'.'.join(map(str, path))} to {key}" if path else absent))
    for path, value in parts.items():
        if path[0] in ITEMS and isinstance(value, list):
            for at, item in enumerate(value):
                _add(draft, (*path, at), item)
        elif path not in used:
            what = f"{path[-1]}: the draft has another" if path[-1] in draft.head else _unmapped(path[-1])
            draft.lines.append(Line(path, False, what))
    draft.lines.sort(key=lambda line: document.position(line.path, at_key=True))
    return draft


def _first(
    parts: Mapping[Path, Any], keys: Sequence[str], form: str, change: Callable[[str], str]
) -> tuple[Path, str] | None:
    """Return the first of some keys, of the top before the metadata, whose text has the form that is needed."""
    paths = (path for key in keys for path in ((key,), ("metadata", key)) if isinstance(parts.get(path), str))
    texts = ((path, change(parts[path])) for path in paths)
    return next(((path, text) for path, text in texts if re.fullmatch(form, text)), None)


def _one_line(text: str) -> str:
    return " ".join(text.replace("${", "$ {").split())


def _unmapped(key: object) -> str:
    why = "a status is computed from the ledger" if key in STATUS else "prose or data, which no gate reads"
    return f"{key}: {why}"


# --- One promise ------------------------------------------------------------------------------------------------------


def _add(draft: Draft, path: Path, item: object) -> None:
    """Add the gate that one promise is, or say why it is none; then say what of it does not map."""
    name = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(item, Mapping) or not isinstance(name, str) or not re.fullmatch(GATE_ID, name):
        draft.lines.append(Line(path, False, "a promise without an id of letters, digits and single -, _ or ."))
        return
    read = dict(_commands(item))
    key, found = next(((key, one) for key, one in read.items() if isinstance(one, Promise)), ("", None))
    if found is None:
        reasons = "; ".join(f"{one}: {why}" for one, why in read.items())
        none = "it names no command and no test; its rule is prose"
        draft.lines.append(Line(path, False, f"{name}: {reasons or none}"))
        return
    if name.casefold() in (gate["id"].casefold() for gate in draft.gates):
        draft.lines.append(Line(path, False, f"{name}: a gate of this id is there already"))
        return
    role = "report" if found.kind == "test-report" else "command"
    used, words = _words(item)
    gate = {"id": name, "title": name, **words, "kind": found.kind, "subjects": {role: found.subject}}
    draft.gates.append({**gate, "with": found.limits})
    draft.subjects[found.subject] = {"kind": role}
    draft.lines.append(Line(path, True, f"{name} to {found.kind} of {found.subject!r}"))
    for other in (one for one in item if one not in {"id", key, *used}):
        also = read.get(other, "")
        why = "one gate is made of one" if isinstance(also, Promise) else also
        draft.lines.append(Line((*path, other), False, f"{name}: {f'{other}: {why}' if why else _unmapped(other)}"))


def _words(item: Mapping[str, Any]) -> tuple[set[str], dict[str, Any]]:
    """Return which keys of a promise are words of a gate, and these words."""
    used, words = set[str](), dict[str, Any]()
    for name, keys in (("title", TITLE), ("why", WHY)):
        for key in keys:
            if name not in words and isinstance(item.get(key), str) and item[key].strip():
                used.add(key)
                words[name] = _one_line(item[key])
    for key in BINDS:
        bound = [item[key]] if isinstance(item.get(key), str) else item.get(key)
        if isinstance(bound, list) and bound and all(isinstance(one, str) for one in bound):
            used.add(key)
            words["binds"] = [*words.get("binds", ()), *map(_one_line, bound)]
    return used, words


def _commands(item: Mapping[str, Any]) -> Iterator[tuple[str, Read]]:
    """Yield what each key with a command line, or with tests, is."""
    for key in (*COMMAND, *RUNNER):
        if isinstance(item.get(key), str):
            yield key, _line(item[key], any_program=key in COMMAND)
    if isinstance(item.get(RUST), list):
        tests = [RUST_TEST.fullmatch(str(one)) for one in item[RUST]]
        names = list(dict.fromkeys(test["name"] for test in tests if test))
        promise = Promise("test-report", "cargo-test", {"tests": names, "at_least": len(tests)})
        yield RUST, promise if names and all(tests) else "not all are as in src/lib.rs::tests::it_holds"


def _line(line: str, *, any_program: bool) -> Read:
    """Return the gate that a command line is, or why it is none."""
    try:
        words = shlex.split(line)
    except ValueError:
        return "a quotation is not closed"
    runner = words[0] if words and (words[0] == "pytest" or words[:2] == ["cargo", "test"]) else ""
    if not words or not (runner or any_program):
        return "may be prose; it begins with no test runner"
    if SHELL.search(line):
        return "needs a shell: put it into a script, and bind that"
    if runner:
        return _cargo(words[2:]) if runner == "cargo" else _pytest(words[1:])
    return Promise("command-succeeds", _name(words[0].rpartition("/")[2]), {"cases": [{"args": words[1:]}]})


def _cargo(words: list[str]) -> Read:
    """Read the arguments of `cargo test`: a filter is a part of a test's name, with --exact all of it."""
    at = words.index("--") if "--" in words else len(words)
    ahead, within, chosen = words[:at], words[at + 1 :], ["cargo test"]
    filters = [word for word in within if not word.startswith("-")]
    odd = [word for word in within if word.startswith("-") and word not in WITHIN]
    while ahead:
        word = ahead.pop(0)
        if word in CARGO_TAKES and ahead:
            chosen += [word, ahead.pop(0)]
        elif word in CARGO_ALONE:
            chosen.append(word)
        else:
            (odd if word.startswith("-") else filters).append(word)
    if odd or not all(map(TEST.fullmatch, filters)):
        return f"not sure which tests these words choose: {' '.join(odd or filters)}"
    names = filters if "--exact" in within else [f"*{word}*" for word in filters]
    return Promise("test-report", _name(" ".join(chosen)), {"tests": names or ["*"]})


def _pytest(words: list[str]) -> Read:
    tests = [PYTHON_TEST.fullmatch(word) for word in words]
    if not tests or not all(tests):
        return "not sure which tests these words choose; only file.py::test is read"
    found = [(test["file"].replace("/", "."), test["group"], test["name"]) for test in tests if test]
    names = [f"{file}.{group}::{name}" if group else f"{file}::{name}" for file, group, name in found]
    return Promise("test-report", "pytest", {"tests": names})


def _name(words: str) -> str:
    """Return the name of a subject: words in lower case, joined by hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")[:60]
    return name if name[:1].isalpha() else f"command-{name}".rstrip("-")
