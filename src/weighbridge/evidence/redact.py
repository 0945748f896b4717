"""Secrets, names and absolute paths taken out of evidence before it is judged; a scan of the whole bundle refuses."""

import contextlib
import dataclasses
import getpass
import json
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from weighbridge.core import BundleError, CanaryResult, bare, dataclass, exists, local_path
from weighbridge.core.data import table
from weighbridge.core.pseudonym import key_file, keyed, passing_key, read_key

TABLE = "evidence/secret_rules"  # the forms of secrets


@dataclass(frozen=True, slots=True)
class SecretRule:
    """A rule: its pattern is compiled and runs only where one of the lower-case `hints` stands in the text."""

    name: str
    hints: tuple[str, ...]
    form: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return the pattern of its form, which `re` keeps."""
        return re.compile(self.form)


@cache
def rules() -> tuple[SecretRule, ...]:
    """Return the rules of secrets, read when a text is first looked at: judging again reads no table."""
    rows = table(TABLE)
    tokens = ((name, starts, f"(?:{'|'.join(map(re.escape, starts))}){rest}") for name, starts, rest in rows["tokens"])
    forms = ((*row[:2], re.sub(r"<([A-Z]+)>", lambda one: str(rows["parts"][one[1]]), row[2])) for row in rows["forms"])
    alone = (
        (name, tuple(map(str.lower, starts)), rf"(?<![A-Za-z0-9_-]){form}(?![A-Za-z0-9_-])")
        for name, starts, form in tokens
    )
    return tuple(SecretRule(*row) for row in (*alone, *forms))


def suspected(lowered: str, among: Callable[[], tuple[SecretRule, ...]]) -> Iterator[SecretRule]:
    """Yield the rules of which a hint stands in a text, in their order."""
    at = {at for hint, at in _hints(among) if hint in lowered}
    return (among()[one] for one in sorted(at))


@cache
def _hints(among: Callable[[], tuple[SecretRule, ...]]) -> tuple[tuple[str, int], ...]:
    return tuple((hint, at) for at, rule in enumerate(among()) for hint in rule.hints)


@cache
def personal() -> tuple[SecretRule, ...]:
    """Return the rules of what names a person or a machine."""
    return tuple(SecretRule(*row) for row in table(TABLE)["personal"])


def withheld(text: str, key: bytes) -> str:
    """Return a text with `[withheld:RULE-<12 hex>]` in the place of every secret, another for each; URLs are bare."""

    def named(rule: str, secret: str) -> str:
        return f"[withheld:{keyed(rule, secret, key)}]"

    text = bare(text, lambda user: named("url-credentials", user))
    for rule in suspected(text.lower(), rules):
        text = rule.pattern.sub(lambda found, rule=rule: named(rule.name, found[0]), text)  # type: ignore[misc]
    return text


# The roots under which absolute paths are found by form; a name like `/model/layers.0/MatMul` is no path of these.
_ROOTS = (
    "home|homes|root|Users|users|mnt|tmp|var|opt|srv|usr|etc|media|private|scratch|gpfs|lustre|nfs|workspace"
    "|workspaces|work|Volumes|data|datasets|disk|project|projects|fsx|efs|ceph|cephfs|beegfs|raid|ssd|nvme"
    "|storage|export|app|kaggle|dbfs"
)
_PART = r"[^\s\"'`<>|:;,(){}\[\]\\/]"
ABSOLUTE = re.compile(
    rf"(?:(?<=file://)|(?<![\w.$}}~/-]))/(?:{_ROOTS})\d{{0,3}}(?:/{_PART}{{1,255}}){{1,64}}/?"
    r"|(?<![\w$}])[A-Za-z]:\\{1,2}Users\\{1,2}[^\s\"'<>|]{1,255}"
)
# A path that begins inside a name, as `layers./home/ada/x`; in a URL, or of another root, it may be no file's.
_INSIDE = re.compile(
    rf"(?:(?<=\w[._-])/(?:{_ROOTS})|(?<=\w)/(?:home|Users)(?=/{_PART}{{1,255}}/))(?:/{_PART}{{1,255}}){{1,64}}/?"
)
ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
# What stands before a version, or around an address: four small numbers alone are a version.
_VERSION = re.compile(r"(?:\bv|version|cuda|cudnn|nccl|driver|release|toolkit|[=<>~]=)[\s:=\"'v-]{0,4}$", re.IGNORECASE)
_ADDRESSED = re.compile(r"(?:@|//|addr\w{0,8}|host\w{0,8}|\bip\w{0,4}|\bfrom|\bto)[\s:=\"']{0,4}$", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redactor:
    """What to replace: path prefixes, the longest first, and names, each with its word; `key` makes pseudonyms."""

    paths: tuple[tuple[str, str], ...] = ()
    names: tuple[tuple[str, str], ...] = ()
    key: bytes

    def text(self, text: str) -> str:
        """Replace secrets, paths and names in a text."""
        text = withheld(text, self.key)
        for prefix, word in self.paths:
            if prefix in text:
                text = _path_pattern(prefix).sub(lambda _, word=word: word, text)  # type: ignore[misc]
        if "/" in text or "\\" in text:  # a substring search rules most texts out
            text = ABSOLUTE.sub(self._elsewhere, text)
            text = text if "://" in text else _INSIDE.sub(self._elsewhere, text)
        for name, word in self.names:
            if name in text:
                text = _name_pattern(name).sub(word, text)
        for rule in suspected(text.lower(), personal):
            text = rule.pattern.sub(lambda found, rule=rule: keyed(rule.name, found[0], self.key), text)  # type: ignore[misc]
        return ADDRESS.sub(self._address, text)

    def _address(self, at: re.Match[str]) -> str:
        parts = [int(part) for part in at[0].split(".")]
        before, after = at.string[max(0, at.start() - 24) : at.start()], at.string[at.end() : at.end() + 2]
        stated = _ADDRESSED.search(before) or re.match(r"[:/]\d", after)
        likely = parts[0] == 10 or max(parts) > 99
        sure = parts[0] not in (0, 127) and max(parts) <= 255 and (stated or (likely and not _VERSION.search(before)))
        return keyed("ip", at[0], self.key) if sure else at[0]

    def _elsewhere(self, at: re.Match[str]) -> str:
        *folder, name = re.split(r"[/\\]", at[0].rstrip("/\\"))
        return f"${{ELSEWHERE}}/{keyed('dir', '/'.join(folder), self.key)}/{name}"

    def log(self, text: str) -> str:
        """Replace what `text` does, and network addresses, which elsewhere look like version numbers."""
        return ADDRESS.sub(lambda match: keyed("ip", match[0], self.key), self.text(text))


def own_key() -> bytes:
    """Read the person's pseudonym key, made on demand for its owner alone; a passing one where none can be kept."""
    if (file := key_file(os.environ)) is None:
        return passing_key()
    try:
        return read_key(file)
    except OSError as problem:
        if not exists(file):
            return passing_key()
        what, remedy = f"cannot be read: {os.strerror(problem.errno or 0)}", "make it readable by you, or remove it"
    except ValueError:
        what, remedy = "is not a readable file of hexadecimal digits", "remove it"
    raise BundleError("pseudonym-key", what, where=str(file), remedy=remedy)


def redactor_here(key: bytes, *, run: Path, home: Path | None = None, named: Iterable[str] = ()) -> Redactor:
    """Return the redactor of this machine: its user, its host, its folders, and those of the files that are `named`."""
    home = home or Path.home()
    host, user = platform.node(), ""
    with contextlib.suppress(OSError, KeyError, ImportError):  # a container's user may have no name
        user = getpass.getuser()
    names = {host: "host", host.partition(".")[0]: "host", user: "user"}
    telling = [word for word in names if len(word) >= 4 and not word.isdigit()]
    shared = table(TABLE)["shared"].split()  # names that hide nobody
    kept = {word: names[word] for word in telling if word.lower() not in shared}
    own = {form: word for path, word in ((home, "${HOME}"), (run, "${RUN}")) for form in _forms(path)}
    given = (local_path(word.rpartition("=")[2]) for word in named)
    folders_named = {path.parent for path in given if path is not None and path.is_absolute()}
    words = {folder: f"${{ELSEWHERE}}/{keyed('dir', os.path.realpath(folder), key)}" for folder in folders_named}
    elsewhere = {form: word for folder, word in words.items() for form in _forms(folder)}
    folders = {form: word for form, word in elsewhere.items() if not form.startswith(tuple(own))} | own
    pseudonyms = ((name, keyed(kind, name, key)) for name, kind in kept.items())
    by_length = (sorted(pairs, key=lambda pair: (-len(pair[0]), pair[0])) for pairs in (folders.items(), pseudonyms))
    paths, own_names = map(tuple, by_length)
    return Redactor(paths=paths, names=own_names, key=key)


def _forms(path: Path) -> set[str]:
    return {os.path.realpath(path), str(path)} - {"/"}


def host_pseudonym(key: bytes) -> str:
    """Return this host's pseudonym, `host-<12 hex>`."""
    return keyed("host", platform.node(), key)


def redact_json(value: Any, redactor: Redactor) -> Any:
    """Redact every text in plain JSON, or raise `redaction-collides` where two keys would become the same."""
    text = cache(redactor.text)

    def walk(item: Any) -> Any:
        if isinstance(item, str):
            return text(item)
        if isinstance(item, Mapping):
            changed = {text(key): walk(inner) for key, inner in item.items()}
            if len(changed) != len(item):
                raise BundleError("redaction-collides", "two names become the same once redacted", remedy="rename one")
            return changed
        return [walk(inner) for inner in item] if isinstance(item, Sequence) else item

    return walk(value)


def redact_canary(item: CanaryResult, redactor: Redactor) -> CanaryResult:
    """Return a canary's result as it will stand in the bundle: its place is the name of a tensor or a column."""
    return dataclasses.replace(item, place=redactor.text(item.place), why=redactor.text(item.why))


def scan(data: bytes, redactor: Redactor) -> str | None:
    """Return by which rule redaction should have taken something out of a file of a bundle; never repeat the value."""
    text = data.decode("utf-8", errors="replace")
    for rule in suspected(text.lower(), rules):
        if rule.pattern.search(text):
            return rule.name
    if any(prefix in text and _path_pattern(prefix).search(text) for prefix, _ in redactor.paths):
        return "known-path"
    if ABSOLUTE.search(text):
        return "absolute-path"
    forms = (form for word, _ in redactor.names for form in {word, json.dumps(word)[1:-1]})
    if any(form in text and _name_pattern(form).search(text) for form in forms):
        return "known-name"
    return None


def _path_pattern(prefix: str) -> re.Pattern[str]:
    """Match a folder wherever it stands, `-I/home/ada` too; one of a single part, `/root`, only where a path starts."""
    start = "" if prefix.count("/") > 1 else r"(?<![\w.$}~/-])"
    return re.compile(rf"{start}{re.escape(prefix)}(?![\w.-])")


def _name_pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9_]){re.escape(name)}(?![A-Za-z0-9_])")
