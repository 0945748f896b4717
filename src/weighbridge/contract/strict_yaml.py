"""YAML read strictly, as `spec/contract.md` has it, with the position of every key and value; runs no code."""

import copy
import functools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import yaml

from weighbridge.core import ContractError, dataclass, field, replace

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 20_000
MAX_PROBLEMS: Final = 20
MAX_DIGITS: Final = 64
SHOWN: Final = 40

Path: TypeAlias = tuple[str | int, ...]
Position: TypeAlias = tuple[int, int]  # line and column, from 1
_Places: TypeAlias = dict[Path, tuple[Position | None, Position]]  # of a key, if it has one, and of its value

# Line ends other than LF and CRLF are refused with the control characters, so that lines count as editors count them.
_REFUSED_IN_ASCII = re.compile("\r(?!\n)|[^\n\r\x20-\x7e]")
# Compiled where it is needed: that takes as long as reading a contract.
_REFUSED = "\r(?!\n)|[^\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_SURROGATE = re.compile("[\ud800-\udfff]")
_CONSTANTS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+")
_HEX_OR_OCTAL = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL_FLOAT = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document's plain data (dict, list, str, int, float, bool, None), and where each part of it stands."""

    data: Any
    where: str
    _places: _Places = field(repr=False)

    def position(self, path: Path, *, at_key: bool = False) -> Position:
        """Return line and column of the value at a path, or of its key; for an absent path, those of what holds it."""
        while path and path not in self._places:
            path, at_key = path[:-1], False
        of_key, of_value = self._places[path]
        return of_key if at_key and of_key else of_value

    def at(self, path: Path, at_key: bool = False) -> str:
        """Return `position` as `file:line:col`."""
        line, column = self.position(path, at_key=at_key)
        return f"{self.where}:{line}:{column}"


def load(text: str | bytes, where: str) -> Document:
    """Read one YAML document, or raise one ContractError with every problem (up to 20), each at its `file:line:col`."""
    document, problems = read(text, where)
    if document is None or problems:
        raise collected(problems)
    return document


def read(text: str | bytes, where: str) -> tuple[Document | None, tuple[ContractError, ...]]:
    """Read one YAML document, and list its problems; the document is None where the text is no YAML at all."""
    document, problems = _read(text, where)
    return document and replace(document, data=copy.deepcopy(document.data)), problems


@functools.lru_cache(maxsize=64)  # each section of a spec asks for every contract again
def _read(text: str | bytes, where: str) -> tuple[Document | None, tuple[ContractError, ...]]:
    composer = _Composer(where)
    try:
        data = composer.compose(_decoded(text, where))
    except ContractError as problem:
        return None, (*composer.problems, problem)
    return Document(data=data, where=where, _places=composer.places), tuple(composer.problems)


def collected(problems: tuple[ContractError, ...]) -> ContractError:
    """Return one error of several."""
    first = problems[0]
    return ContractError(first.code, first.what, where=first.where, remedy=first.remedy, problems=problems)


def _decoded(text: str | bytes, where: str) -> str:
    size = len(text) if isinstance(text, bytes) else len(text.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise ContractError("yaml-size", f"{size} bytes, at most {MAX_BYTES} are read", where=where)
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as problem:
            start = problem.start
            what = f"byte 0x{problem.object[start]:02x} at offset {start} is not UTF-8"
            at = _end_of(problem.object[:start].decode("utf-8", errors="replace"), where)
            raise ContractError("yaml-encoding", what, where=at, remedy="save the file as UTF-8 text") from None
    refused = _REFUSED_IN_ASCII.search(text) if text.isascii() else re.search(_REFUSED, text)
    if refused is None:
        return text
    named = {
        "\t": ("a tab", "indent and align with spaces; in a quoted text write \\t"),
        "\0": ("a NUL byte", "this is not a text file, or a damaged one"),
        "\ufeff": ("a byte order mark", "save the file as UTF-8 without a byte order mark"),
        "\r": ("a carriage return without a line feed", "end lines with LF or CRLF"),
    }
    other = (f"the character U+{ord(refused[0]):04X}", "delete it; in a quoted text write it as an escape")
    what, remedy = named.get(refused[0], other)
    at = _end_of(text[: refused.start()], where)
    raise ContractError("yaml-character", f"{what} is not allowed", where=at, remedy=remedy)


def _end_of(before: str, where: str) -> str:
    return f"{where}:{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"


# --- Events -----------------------------------------------------------------------------------------------------------


class _Composer:
    """Build plain data from events, noting positions and problems."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.places: _Places = {}
        self.problems: list[ContractError] = []
        self._values = 0

    def compose(self, text: str) -> Any:
        """Read the text's one document; a ContractError where reading cannot go on."""
        source: Any = yaml.SafeLoader(text)  # its events alone; the C loader crashes on deep nesting
        self._next = source.get_event
        root = None
        try:
            while source.check_event():
                if isinstance(event := self._next(), yaml.DocumentStartEvent):
                    self._begin(event)
                    root = self._value(self._next(), ())
        except (ValueError, OverflowError):  # PyYAML lets an escape beyond Unicode reach chr()
            at, what = f"{self.where}:{source.line + 1}:{source.column + 1}", "an escape beyond U+10FFFF"
            raise ContractError("yaml-character", what, where=at, remedy="write a code point that exists") from None
        except yaml.MarkedYAMLError as problem:
            of_key = "simple key" in (problem.context or "")  # found at the next line to be none
            mark = (problem.context_mark if of_key else None) or problem.problem_mark or problem.context_mark
            at = f"{mark.line + 1}:{mark.column + 1}" if mark else "1:1"
            what = ", ".join(part for part in (problem.context, problem.problem) if part)
            remedy = next(hint for words, hint in _HINTS.items() if words in what)
            raise ContractError("yaml-syntax", what, where=f"{self.where}:{at}", remedy=remedy) from None
        if root is None:
            raise ContractError("yaml-empty", "nothing in it", where=f"{self.where}:1:1", remedy="write the document")
        return root

    def _begin(self, event: Any) -> None:
        if self.places:
            raise self._error("yaml-documents", "a second document", event, "keep one document in a file")
        if event.version or event.tags:
            self._problem("yaml-directive", "directives are not allowed", event, "delete the line that starts with %")

    def _value(self, event: Any, path: Path | None, key_at: Position | None = None, depth: int = 0) -> Any:
        """Read the value that begins with an event; without a path it is that of a refused key, and goes nowhere."""
        self._look_at(event, depth)
        value: Any = None
        if isinstance(event, yaml.ScalarEvent):
            value = self._plain(event) if _is_plain(event) else event.value
        self._values += 1
        if self._values > MAX_VALUES:
            raise self._error("yaml-values", f"more than {MAX_VALUES} values", event, "split the file")
        if path is not None:
            self.places[path] = key_at, _position(event)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path, depth + 1)
        return self._list(path, depth + 1) if isinstance(event, yaml.SequenceStartEvent) else value

    def _list(self, path: Path | None, depth: int) -> list[Any]:
        found: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            found.append(self._value(event, None if path is None else (*path, len(found)), depth=depth))
        return found

    def _mapping(self, path: Path | None, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        lines: dict[str, int] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            self._look_at(event, depth, as_key=True)
            kept, (line, column) = self._is_kept(event, lines), _position(event)
            inside = (*path, event.value) if kept and path is not None else None
            value = self._value(self._next(), inside, (line, column), depth)
            if kept:
                found[event.value], lines[event.value] = value, line
        return found

    def _is_kept(self, key: Any, lines: dict[str, int]) -> bool:
        """Note what is wrong with a key, and return whether its value is kept."""
        text, plain = key.value, _is_plain(key)
        merges = plain and text == "<<"
        if merges:
            self._problem("yaml-merge-key", "the merge key << is not allowed", key, "write the keys out")
        elif plain and not isinstance(self._plain(key), str):
            self._problem("yaml-key", f"the key {_cut(text) or 'null'} is not a text", key, f'write "{_cut(text)}"')
        if text in lines:
            what = f"the key {_cut(text)!r} is given twice, first in line {lines[text]}"
            self._problem("yaml-doubled-key", what, key, "keep one of the two")
        return not merges and text not in lines

    def _look_at(self, event: Any, depth: int, *, as_key: bool = False) -> None:
        """Note what no value and no key may have, and refuse what cannot be read on from."""
        if isinstance(event, yaml.AliasEvent):
            what = f"the alias *{_cut(str(event.anchor))} is not allowed"
            if as_key:
                raise self._error("yaml-alias", what, event, "write the key out")
            self._problem("yaml-alias", what, event, "write the value out")
            return
        if event.tag is not None:
            self._problem("yaml-tag", f"the tag {_cut(event.tag)} is not allowed", event, "delete the tag")
        if event.anchor is not None:
            self._problem("yaml-alias", f"the anchor &{_cut(event.anchor)} is not allowed", event, "delete the anchor")
        if isinstance(event, yaml.ScalarEvent):
            if _SURROGATE.search(event.value):
                what = "half a surrogate pair is not allowed"
                self._problem("yaml-character", what, event, "write \\U and the code point")
        elif depth >= MAX_DEPTH:
            raise self._error("yaml-depth", f"nested deeper than {MAX_DEPTH}", event, "flatten it")
        elif as_key:
            raise self._error("yaml-key", "a mapping or list as a key", event, "use a text as the key")

    def _plain(self, event: Any) -> Any:
        """Read an unquoted scalar as YAML 1.2's core schema does."""
        text: str = event.value
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        if _SPECIAL_FLOAT.fullmatch(text):
            return float(text.lower().replace(".", ""))
        if _HEX_OR_OCTAL.fullmatch(text):
            return self._bounded(text, event)
        if not _FLOAT.fullmatch(text):
            return text
        if _LEADING_ZERO.match(text):
            what = f"the number {_cut(text)} has a leading zero"
            self._problem("yaml-leading-zero", what, event, "delete the zero, or quote it if a text is meant")
            return text
        if _INT.fullmatch(text):
            return self._bounded(text, event)
        if math.isinf(value := float(text)):
            self._problem("yaml-number", f"{_cut(text)} overflows a 64-bit float", event, "quote it if a text is meant")
        return value

    def _bounded(self, text: str, event: Any) -> int:
        if len(text) > MAX_DIGITS:
            what = f"a whole number of {len(text)} characters"
            self._problem("yaml-number", what, event, f"write at most {MAX_DIGITS}")
            return 0
        return int(text, 0)

    def _problem(self, code: str, what: str, event: Any, remedy: str) -> None:
        problem = self._error(code, what, event, remedy)
        if len(self.problems) + 1 >= MAX_PROBLEMS:
            raise problem
        self.problems.append(problem)

    def _error(self, code: str, what: str, event: Any, remedy: str) -> ContractError:
        line, column = _position(event)
        return ContractError(code, what, where=f"{self.where}:{line}:{column}", remedy=remedy)


def _is_plain(event: Any) -> bool:
    return event.implicit[0] or (event.tag is not None and event.style is None)


def _position(event: Any) -> Position:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


_HINTS: Final = {  # what usually helps; the parser's own words name the place, not the cure
    "mapping values are not allowed": 'quote a text that contains ": ", and indent keys of one mapping alike',
    "cannot start any token": "quote a text that starts with @, ` or %",
    "expected the node content": "check brackets, braces and commas up to here",
    "expected ',' or": "check brackets, braces and commas up to here",
    "simple key": 'every key needs ": " and a value on its line',
    "": "check indentation and quotes up to here",
}


# --- Written ----------------------------------------------------------------------------------------------------------

# Needs no quotes.
_BARE = re.compile(r"\d+\.\d+\.\d+|[A-Za-z](?:[\w./-]|:(?=\w))*(?: [\w./(-](?:[\w./()-]|:(?=\w))*)*", re.ASCII)


def flow(value: Any) -> str:
    """Return plain data as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str) and _BARE.fullmatch(value) and value.casefold() not in ("true", "false", "null"):
        return value
    return json.dumps(value, ensure_ascii=not str(value).isprintable())


def block(value: Mapping[str, Any], remark: Callable[[Path], str], path: Path = ()) -> Iterator[str]:
    """Yield a mapping as lines of YAML, each value on one of its own with what `remark` says of its path."""
    for key, item in value.items():
        at, name = (*path, key), flow(key)
        if isinstance(item, Mapping) and item:
            yield f"{name}:"
            yield from (f"  {line}" for line in block(item, remark, at))
        elif isinstance(item, (list, tuple)) and item and all(isinstance(one, Mapping) and one for one in item):
            yield f"{name}:"
            for index, one in enumerate(item):
                lines = enumerate(block(one, remark, (*at, index)))
                yield from (f"{'    ' if more else '  - '}{line}" for more, line in lines)
        else:
            said = remark(at)
            yield f"{name}: {flow(item)}" + (f"  # {said}" if said else "")
