"""Read a pickle as data: what it would call, import or build is written down and never done.

Parses untrusted bytes. Nothing named in a pickle is ever imported or called; a name that the reader's vocabulary does
not hold is refused at once. Numbers of opcodes and objects, and every length, are bounded before anything is allocated.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from weighbridge.errors import SubjectError
from weighbridge.formats.tensor import quoted
from weighbridge.storage.readable import ReadableFile

MAX_PICKLE = 64 << 20  # bytes
MAX_OPCODES = 1 << 23
MAX_MADE = 1 << 21
MAX_NAME = 1 << 10  # bytes in the name of a global
MAX_NUMBER = 255  # bytes
STRETCH = 1 << 20  # bytes looked at together
PROTOCOLS = range(2, 6)
STOP = ord(".")
SAVE_AGAIN = "save it again as safetensors, or only the state_dict() with torch.save"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """The globals a pickle may name: to call, to fill like a dictionary, to build from a state, or only to name."""

    calls: frozenset[str]
    containers: frozenset[str]
    classes: frozenset[str]
    names: frozenset[str]

    def holds(self, name: str) -> bool:
        """Tell whether a pickle may name this global."""
        return any(name in part for part in (self.calls, self.containers, self.classes, self.names))


class Global(NamedTuple):
    """A global that was named, as `module.name`; never imported."""

    name: str


@dataclass(slots=True, eq=False)
class Made:
    """What a pickle would make by calling `callee` with `args`; a dictionary's `pairs` in the order they are set."""

    callee: str
    args: tuple[object, ...] = ()
    pairs: list[tuple[object, object]] = field(default_factory=list)
    state: object = None


DICTIONARY = "dict"
REFERENCE = "persistent reference"


def read_pickle(file: ReadableFile, start: int, stop: int, vocabulary: Vocabulary) -> tuple[object, int]:
    """Read the pickle that begins at byte `start`: what it describes, and the byte behind it.

    Raises:
        SubjectError: `pickle-…` with the byte offset and the reason.
    """
    machine = _Machine(file, start, min(stop, start + MAX_PICKLE), vocabulary)
    return machine.run(), machine.at


class _Machine:
    """A stack, its marks and a memo; `at` is the next byte of the file."""

    __slots__ = ("at", "base", "data", "file", "made", "marks", "memo", "stack", "stop", "vocabulary")

    def __init__(self, file: ReadableFile, start: int, stop: int, vocabulary: Vocabulary) -> None:
        self.file, self.at, self.stop, self.vocabulary = file, start, stop, vocabulary
        self.base, self.data = start, memoryview(b"")
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.made = 0

    def run(self) -> object:
        left = MAX_OPCODES
        while (code := self.look(1, "an opcode")[0]) != STOP:
            step = STEPS.get(code)
            if step is None:
                self.refuse("opcode", f"the opcode 0x{code:02x} has no place in a checkpoint", self.at - 1)
            step(self)
            left -= 1
            if left == 0:
                self.refuse("size", f"more than {MAX_OPCODES} opcodes")
        return self.pop()

    def refuse(self, code: str, what: str, at: int | None = None) -> NoReturn:
        where = f"{self.file.name} at byte {self.at if at is None else at}"
        raise SubjectError(f"pickle-{code}", what, where=where, remedy=SAVE_AGAIN)

    def look(self, size: int, what: str) -> memoryview:
        """Step over `size` bytes and look at them."""
        start, stop = self.at, self.at + size
        if stop > self.stop:
            self.refuse("truncated", f"{what} takes {size} bytes, {self.stop - start} are left")
        if stop > self.base + len(self.data):
            self.base, self.data = start, self.file.read(start, max(stop, min(start + STRETCH, self.stop)))
        self.at = stop
        return self.data[start - self.base : stop - self.base]

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.look(struct.calcsize(form), "a number"))[0]
        return value

    def take(self, form: str) -> memoryview:
        """Look at the bytes whose length, in this form, stands before them."""
        at = self.at
        length = self.number(form)
        if length < 0:
            self.refuse("length", f"a length of {length}", at)
        return self.look(length, "a text")

    def text(self, form: str) -> str:
        at = self.at
        try:
            return str(self.take(form), "utf-8")
        except UnicodeDecodeError:
            self.refuse("text", "a text is not UTF-8", at)

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.refuse("stack", "takes more from the stack than was put on it")
        return self.stack.pop()

    def top(self) -> object:
        self.push(value := self.pop())
        return value

    def mark(self) -> None:
        self.marks.append(len(self.stack))

    def since_mark(self) -> list[object]:
        if not self.marks:
            self.refuse("stack", "goes back to a mark that was not set")
        at = self.marks.pop()
        values = self.stack[at:]
        del self.stack[at:]
        return values

    def make(self, callee: str, args: tuple[object, ...] = ()) -> None:
        self.made += 1
        if self.made > MAX_MADE:
            self.refuse("size", f"more than {MAX_MADE} objects")
        self.push(Made(callee, args))

    def new_list(self, values: list[object]) -> None:
        self.made += 1
        if self.made > MAX_MADE:
            self.refuse("size", f"more than {MAX_MADE} objects")
        self.push(values)

    def name_global(self, name: str, at: int) -> None:
        if not self.vocabulary.holds(name):
            what = f"names {quoted(name)}, which no state dictionary needs; nothing was imported or called"
            self.refuse("global", what, at)
        self.push(Global(name))

    def global_line(self) -> None:
        at = self.at
        module, name = self.line(), self.line()
        self.name_global(f"{module}.{name}", at)

    def line(self) -> str:
        rest = bytes(self.file.read(self.at, min(self.at + MAX_NAME, self.stop)))
        end = rest.find(b"\n")
        if end < 0:
            self.refuse("truncated", "the name of a global has no end")
        self.at += end + 1
        return rest[:end].decode("utf-8", "backslashreplace")

    def global_from_stack(self) -> None:
        name, module = self.pop(), self.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            self.refuse("global", "names a global by something else than text")
        self.name_global(f"{module}.{name}", self.at - 1)

    def call(self, allowed: frozenset[str]) -> None:
        args, callee = self.pop(), self.pop()
        if not isinstance(callee, Global) or not isinstance(args, tuple):
            self.refuse("call", "calls what is no global, or with no tuple of arguments", self.at - 1)
        if callee.name not in allowed:
            self.refuse("call", f"calls {quoted(callee.name)}, which is only ever named", self.at - 1)
        self.make(callee.name, args)

    def build(self) -> None:
        state, made = self.pop(), self.top()
        allowed = self.vocabulary.containers | self.vocabulary.classes
        if not isinstance(made, Made) or made.callee not in allowed or made.state is not None:
            self.refuse("call", "sets the state of what has none, or twice", self.at - 1)
        made.state = state

    def set_items(self, values: list[object]) -> None:
        made = self.top()
        if not isinstance(made, Made) or made.callee not in self.vocabulary.containers | {DICTIONARY}:
            self.refuse("call", "puts items into what is no dictionary", self.at - 1)
        if len(values) % 2:
            self.refuse("stack", "a key has no value", self.at - 1)
        made.pairs.extend(zip(values[::2], values[1::2], strict=True))

    def append(self, values: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list):
            self.refuse("call", "appends to what is no list", self.at - 1)
        target.extend(values)

    def tuple_of(self, count: int) -> None:
        values = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def remember(self, key: int) -> None:
        self.memo[key] = self.top()

    def recall(self, key: int) -> None:
        if key not in self.memo:
            self.refuse("stack", f"recalls {key}, which was never remembered", self.at - 1)
        self.push(self.memo[key])

    def long(self, form: str) -> None:
        at = self.at
        data = self.take(form)
        if len(data) > MAX_NUMBER:
            self.refuse("length", f"a number of {len(data)} bytes", at)
        self.push(int.from_bytes(data, "little", signed=True))

    def protocol(self) -> None:
        version = self.number("<B")
        if version not in PROTOCOLS:
            self.refuse("opcode", f"the pickle protocol {version}; 2 to 5 are read", self.at - 1)

    def frame(self) -> None:
        length = self.number("<Q")
        if length > self.stop - self.at:
            self.refuse("truncated", f"a frame takes {length} bytes, {self.stop - self.at} are left")


def _pair(machine: _Machine) -> None:
    value, key = machine.pop(), machine.pop()
    machine.set_items([key, value])


STEPS: Mapping[int, Callable[[_Machine], object]] = {
    0x80: _Machine.protocol,
    0x95: _Machine.frame,
    ord("("): _Machine.mark,
    ord("0"): _Machine.pop,
    ord("1"): _Machine.since_mark,
    ord("2"): lambda machine: machine.push(machine.top()),
    ord("N"): lambda machine: machine.push(None),
    0x88: lambda machine: machine.push(True),
    0x89: lambda machine: machine.push(False),
    ord("J"): lambda machine: machine.push(machine.number("<i")),
    ord("K"): lambda machine: machine.push(machine.number("<B")),
    ord("M"): lambda machine: machine.push(machine.number("<H")),
    0x8A: lambda machine: machine.long("<B"),
    0x8B: lambda machine: machine.long("<i"),
    ord("G"): lambda machine: machine.push(machine.number(">d")),
    ord("X"): lambda machine: machine.push(machine.text("<I")),
    0x8C: lambda machine: machine.push(machine.text("<B")),
    0x8D: lambda machine: machine.push(machine.text("<Q")),
    ord("T"): lambda machine: machine.push(machine.text("<i")),
    ord("U"): lambda machine: machine.push(machine.text("<B")),
    ord("B"): lambda machine: machine.push(bytes(machine.take("<I"))),
    ord("C"): lambda machine: machine.push(bytes(machine.take("<B"))),
    0x8E: lambda machine: machine.push(bytes(machine.take("<Q"))),
    ord("}"): lambda machine: machine.make(DICTIONARY),
    ord("]"): lambda machine: machine.new_list([]),
    0x8F: lambda machine: machine.new_list([]),  # a set; its items are kept in order
    ord(")"): lambda machine: machine.push(()),
    ord("a"): lambda machine: machine.append([machine.pop()]),
    ord("e"): lambda machine: machine.append(machine.since_mark()),
    0x90: lambda machine: machine.append(machine.since_mark()),
    ord("s"): _pair,
    ord("u"): lambda machine: machine.set_items(machine.since_mark()),
    ord("t"): lambda machine: machine.push(tuple(machine.since_mark())),
    ord("l"): lambda machine: machine.new_list(machine.since_mark()),
    0x91: lambda machine: machine.push(tuple(machine.since_mark())),
    0x85: lambda machine: machine.tuple_of(1),
    0x86: lambda machine: machine.tuple_of(2),
    0x87: lambda machine: machine.tuple_of(3),
    ord("c"): _Machine.global_line,
    0x93: _Machine.global_from_stack,
    ord("R"): lambda machine: machine.call(machine.vocabulary.calls | machine.vocabulary.containers),
    0x81: lambda machine: machine.call(machine.vocabulary.classes),
    ord("b"): _Machine.build,
    ord("q"): lambda machine: machine.remember(machine.number("<B")),
    ord("r"): lambda machine: machine.remember(machine.number("<I")),
    0x94: lambda machine: machine.remember(len(machine.memo)),
    ord("h"): lambda machine: machine.recall(machine.number("<B")),
    ord("j"): lambda machine: machine.recall(machine.number("<I")),
    ord("Q"): lambda machine: machine.make(REFERENCE, (machine.pop(),)),
}
