"""Read a pickle as data: what it would call, import or build is noted and never done.

A name that the reader's vocabulary does not hold is refused. Everything is bounded before anything is allocated.
"""

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, NamedTuple, NoReturn

from weighbridge.core import SubjectError, dataclass, field, quoted
from weighbridge.storage.readable import Readable

MAX_PICKLE = 64 << 20  # bytes
MAX_OPCODES, MAX_MADE = 1 << 23, 1 << 21
MAX_NAME = 1 << 10  # bytes in the name of a global
MAX_NUMBER = 255  # bytes
STRETCH = 1 << 20  # bytes looked at together
STOP = ord(".")
SAVE_AGAIN = "bind the file of the weights, or save them as safetensors, or only the state_dict() with torch.save"


class Vocabulary(NamedTuple):
    """The globals a pickle may name: to call, to fill like a dictionary, to build from a state, or only to name."""

    calls: frozenset[str] = frozenset()
    containers: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()


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


def read_pickle(file: Readable, start: int, stop: int, vocabulary: Vocabulary) -> tuple[object, int]:
    """Read the pickle that begins at byte `start`, and find the byte behind it; refuse with `pickle-…` and the byte."""
    machine = _Machine(file, start, min(stop, start + MAX_PICKLE), vocabulary)
    return machine.run(), machine.at


class _Machine:
    """A stack, its marks and a memo; `at` is the next byte of the file, `begun` the opcode's own."""

    __slots__ = ("at", "base", "begun", "data", "file", "made", "marks", "memo", "stack", "stop", "vocabulary")

    def __init__(self, file: Readable, start: int, stop: int, vocabulary: Vocabulary) -> None:
        self.file, self.at, self.stop, self.vocabulary = file, start, stop, vocabulary
        self.base, self.begun, self.data = start, start, memoryview(b"")
        self.stack: list[object] = []
        self.marks: list[int] = []
        self.memo: dict[int, object] = {}
        self.made = 0

    def run(self) -> object:
        for _ in range(MAX_OPCODES):
            self.begun = self.at
            at = self.step_over(1, "an opcode")
            if (code := self.data[at]) == STOP:
                return self.pop()
            if code not in STEPS:
                self.refuse("opcode", f"the opcode 0x{code:02x} has no place in a checkpoint")
            step, number, sized = STEPS[code]
            argument: Any = None
            if number is not None:
                at = self.step_over(number.size, "a number")
                (argument,) = number.unpack_from(self.data, at)
            if sized:
                if argument < 0:
                    self.refuse("length", f"a length of {argument}")
                at = self.step_over(argument, "a text")
                argument = self.data[at : at + argument]
            step(self, argument)
        return self.refuse("size", f"more than {MAX_OPCODES} opcodes")

    def refuse(self, code: str, what: str) -> NoReturn:
        raise SubjectError(f"pickle-{code}", what, where=f"{self.file.name} at byte {self.begun}", remedy=SAVE_AGAIN)

    def step_over(self, size: int, what: str) -> int:
        """Step over `size` bytes and return where they begin in the stretch that is looked at."""
        start, self.at = self.at, self.at + size
        if self.at > self.stop:
            self.refuse("truncated", f"{what} takes {size} bytes, {self.stop - start} are left")
        if self.at > self.base + len(self.data):
            self.base, self.data = start, self.file.read(start, max(self.at, min(start + STRETCH, self.stop)))
        return start - self.base

    def push(self, value: object) -> None:
        self.stack.append(value)

    def pop(self, _: object = None) -> object:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            self.refuse("stack", "takes more from the stack than was put on it")
        return self.stack.pop()

    def top(self) -> object:
        self.push(value := self.pop())
        return value

    def since_mark(self, _: object = None) -> list[object]:
        if not self.marks:
            self.refuse("stack", "goes back to a mark that was not set")
        at = self.marks.pop()
        values = self.stack[at:]
        del self.stack[at:]
        return values

    def text(self, data: memoryview) -> None:
        try:
            self.push(str(data, "utf-8"))
        except UnicodeDecodeError:
            self.refuse("text", "a text is not UTF-8")

    def data_of(self, data: memoryview) -> None:
        self.push(bytes(data))

    def long(self, data: memoryview) -> None:
        if len(data) > MAX_NUMBER:
            self.refuse("length", f"a number of {len(data)} bytes")
        self.push(int.from_bytes(data, "little", signed=True))

    def make(self, made: Made | list[object]) -> None:
        self.made += 1
        if self.made > MAX_MADE:
            self.refuse("size", f"more than {MAX_MADE} objects")
        self.push(made)

    def name_global(self, module: object, name: object) -> None:
        if not isinstance(name, str) or not isinstance(module, str):
            self.refuse("global", "names a global by something else than text")
        dotted = f"{module}.{name}"
        if not any(dotted in part for part in self.vocabulary):
            what = f"names {quoted(dotted)}, which no state dictionary needs; nothing was imported or called"
            self.refuse("global", what)
        self.push(Global(dotted))

    def line(self) -> str:
        rest = bytes(self.file.read(self.at, min(self.at + MAX_NAME, self.stop)))
        if (end := rest.find(b"\n")) < 0:
            self.refuse("truncated", "the name of a global has no end")
        self.at += end + 1
        return rest[:end].decode("utf-8", "backslashreplace")

    def call(self, *allowed: frozenset[str]) -> None:
        args, callee = self.pop(), self.pop()
        if not isinstance(callee, Global) or not isinstance(args, tuple):
            self.refuse("call", "calls what is no global, or with no tuple of arguments")
        if not any(callee.name in part for part in allowed):
            self.refuse("call", f"calls {quoted(callee.name)}, which is only ever named")
        self.make(Made(callee.name, args))

    def build(self, _: object) -> None:
        state, made = self.pop(), self.top()
        allowed = self.vocabulary.containers | self.vocabulary.classes
        if not isinstance(made, Made) or made.callee not in allowed or made.state is not None:
            self.refuse("call", "sets the state of what has none, or twice")
        made.state = state

    def set_items(self, values: list[object]) -> None:
        made = self.top()
        if not isinstance(made, Made) or made.callee not in self.vocabulary.containers | {DICTIONARY}:
            self.refuse("call", "puts items into what is no dictionary")
        if len(values) % 2:
            self.refuse("stack", "a key has no value")
        made.pairs.extend(zip(values[::2], values[1::2], strict=True))

    def append(self, values: list[object]) -> None:
        target = self.top()
        if not isinstance(target, list):
            self.refuse("call", "appends to what is no list")
        target.extend(values)

    def tuple_of(self, count: int) -> None:
        self.push(tuple([self.pop() for _ in range(count)][::-1]))

    def remember(self, key: int) -> None:
        self.memo[key] = self.top()

    def recall(self, key: int) -> None:
        if key not in self.memo:
            self.refuse("stack", f"recalls {key}, which was never remembered")
        self.push(self.memo[key])

    def protocol(self, version: int) -> None:
        if not 2 <= version <= 5:
            self.refuse("opcode", f"the pickle protocol {version}; 2 to 5 are read")

    def frame(self, length: int) -> None:
        if length > self.stop - self.at:
            self.refuse("truncated", f"a frame takes {length} bytes, {self.stop - self.at} are left")


Step = Callable[[_Machine, Any], object]


def _steps(form: str, steps: Mapping[str, Step], *, sized: bool = False) -> dict[int, tuple[Step, Struct | None, bool]]:
    """List steps by opcode: what to do with the number of this form, or with as many bytes as it counts."""
    return {ord(code): (step, Struct(form) if form else None, sized) for codes, step in steps.items() for code in codes}


# Steps without a number behind them; what is made as a set keeps its items in order.
ALONE: Mapping[str, Step] = {
    "(": lambda machine, _: machine.marks.append(len(machine.stack)),
    "0": _Machine.pop,
    "1": _Machine.since_mark,
    "2": lambda machine, _: machine.push(machine.top()),
    "N": _Machine.push,
    "\x88": lambda machine, _: machine.push(True),
    "\x89": lambda machine, _: machine.push(False),
    "}": lambda machine, _: machine.make(Made(DICTIONARY)),
    "]\x8f": lambda machine, _: machine.make([]),
    ")": lambda machine, _: machine.push(()),
    "a": lambda machine, _: machine.append([machine.pop()]),
    "e\x90": lambda machine, _: machine.append(machine.since_mark()),
    "s": lambda machine, _: machine.set_items([machine.pop(), machine.pop()][::-1]),
    "u": lambda machine, _: machine.set_items(machine.since_mark()),
    "t\x91": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "l": lambda machine, _: machine.make(machine.since_mark()),
    "\x85": lambda machine, _: machine.tuple_of(1),
    "\x86": lambda machine, _: machine.tuple_of(2),
    "\x87": lambda machine, _: machine.tuple_of(3),
    "c": lambda machine, _: machine.name_global(machine.line(), machine.line()),
    "\x93": lambda machine, _: machine.name_global(*[machine.pop(), machine.pop()][::-1]),
    "R": lambda machine, _: machine.call(machine.vocabulary.calls, machine.vocabulary.containers),
    "\x81": lambda machine, _: machine.call(machine.vocabulary.classes),
    "b": _Machine.build,
    "\x94": lambda machine, _: machine.remember(len(machine.memo)),
    "Q": lambda machine, _: machine.make(Made(REFERENCE, (machine.pop(),))),
}
STEPS: Mapping[int, tuple[Step, Struct | None, bool]] = {
    **_steps("", ALONE),
    **_steps("<B", {"\x80": _Machine.protocol, "K": _Machine.push, "q": _Machine.remember, "h": _Machine.recall}),
    **_steps("<H", {"M": _Machine.push}),
    **_steps("<i", {"J": _Machine.push}),
    **_steps("<I", {"r": _Machine.remember, "j": _Machine.recall}),
    **_steps("<Q", {"\x95": _Machine.frame}),
    **_steps(">d", {"G": _Machine.push}),
    **_steps("<B", {"\x8cU": _Machine.text, "C": _Machine.data_of, "\x8a": _Machine.long}, sized=True),
    **_steps("<i", {"T": _Machine.text, "\x8b": _Machine.long}, sized=True),
    **_steps("<I", {"X": _Machine.text, "B": _Machine.data_of}, sized=True),
    **_steps("<Q", {"\x8d": _Machine.text, "\x8e": _Machine.data_of}, sized=True),
}
