"""Read a file of torch.save, a ZIP archive or the five pickles and storages of before 1.6; never imports torch."""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from weighbridge.core import Scalar, SubjectError, dataclass, field, quoted, replace, table
from weighbridge.formats import pickle_machine, zip_archive
from weighbridge.formats.pickle_machine import DICTIONARY, REFERENCE, SAVE_AGAIN, Global, Made, Vocabulary, read_pickle
from weighbridge.formats.tensor import UNITS, Reading, Tensor, short, span, strides_of
from weighbridge.formats.zip_archive import Member
from weighbridge.storage.readable import Readable, refuse_at

WHOLE = "tensor"  # the name of the one tensor of a file that holds nothing else
MAX_RANK = 32  # NumPy before 2 reads no more
MAX_SIZES = 1 << 10
MAX_DEPTH = 64
MAX_VISITS = 1 << 20  # of dictionaries, lists and their entries, each as often as it is referred to
MAX_ELEMENTS = 1 << 24  # of lists, likewise
MAX_KEY = 1 << 16  # characters
MAX_NAMES = 1 << 26  # characters in all names together
MAX_REPEATS = 16  # times that the file's bytes may be looked at through its views
NAMES = table("formats/torch_names")
DTYPES: Mapping[str, str] = NAMES["dtypes"]
BY_GLOBAL = {f"torch.{at}{name}Storage": dtype for at in ("", "cuda.") for name, dtype in NAMES["storages"].items()}
BY_GLOBAL |= {f"torch.{name}": dtype for name, dtype in DTYPES.items()}
UNTYPED = "torch.storage.UntypedStorage"
V1, V2, V3 = (f"torch._utils._rebuild_tensor{suffix}" for suffix in ("", "_v2", "_v3"))
PARAMETERS = frozenset({"torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state"})
FROM_TYPE = "torch._tensor._rebuild_from_type_v2"
VOCABULARY = Vocabulary(
    calls=frozenset({V1, V2, V3, *PARAMETERS, FROM_TYPE, *NAMES["calls"]}),
    containers=frozenset({"collections.OrderedDict", "collections.Counter"}),
    classes=frozenset({"numpy.dtype"}),
    names=frozenset({*BY_GLOBAL, UNTYPED, "torch.Tensor", "torch.nn.parameter.Parameter"}),
)
DICTIONARIES = VOCABULARY.containers | {DICTIONARY}
TRAINING_STATE = frozenset(NAMES["training_state"])
OPTIMIZER = {"state", "param_groups"}  # the keys of torch.optim's own state, whatever it is saved under
# What a loop counts and draws by, saved by itself beside a model that one of these keys holds.
COUNTERS, HOLDERS = {"epoch", "global_step", "iteration", "step", *TRAINING_STATE}, frozenset(NAMES["holders"])
STATEFUL = "app"  # the key under which PyTorch's own examples of distributed checkpoints save all of it
PICKLE, CONSTANTS, BYTE_ORDER, DATA = "data.pkl", "constants.pkl", "byteorder", "data/"
LEGACY_MAGIC = b"\x8a\x0a" + bytes.fromhex("6cfc9c46f9206aa85019")  # a whole number of ten bytes
PROTOCOL_AND_FRAME = 2, 11  # bytes before it: with the protocol only, or with a frame as well
LEGACY_PROTOCOL = 1001
SIZE = 8  # bytes before each storage
NOTHING = Vocabulary()
refuse = partial(refuse_at, form="torch", remedy=SAVE_AGAIN)


def beside_the_model(paths: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the names of what is, by the keys that it stands under, a trainer's state and no weight of its model."""
    bare = {name: tuple(path[1:] if path[:1] == [STATEFUL] else path) for name, path in paths.items()}
    kept = any(len(path) > 1 and path[0] in HOLDERS for path in bare.values())
    counted = {name for name, path in bare.items() if kept and len(path) == 1 and path[0] in COUNTERS}
    return frozenset(counted | {name for name, path in paths.items() if not TRAINING_STATE.isdisjoint(path[:-1][:2])})


class Storage(NamedTuple):
    """Where a storage lies: its first byte in the file, and how many there are."""

    start: int
    nbytes: int


Layout = tuple[tuple[int, ...], tuple[int, ...]]  # a view's shape, and its steps


class Reference(NamedTuple):
    """What a pickle says about a storage: its key, dtype ("" for untyped) and size in bytes."""

    key: str
    dtype: str
    nbytes: int


def references(root: object, file: Readable) -> Iterator[Reference]:
    """Walk over the references to storages in what a pickle describes, over every object once."""
    reader, waiting, seen = _Walk(file=file, storages={}), [root], set[int]()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, (list, tuple, Made)) or id(value) in seen:
            continue
        seen.add(id(value))
        if not isinstance(value, Made):
            waiting += value
            continue
        if value.callee == REFERENCE:
            yield reader.reference(value)
        waiting += [*value.args, value.state, *(part for pair in value.pairs for part in pair)]


def reading_of(form: str, root: object, file: Readable, storages: Mapping[str, Storage]) -> Reading:
    """Read the tensors in what a pickle describes, by name, and the scalars beside them; refuse with `torch-…`."""
    walk = _Walk(file=file, storages=storages)
    walk.visit((), root, 0)
    shown = sum(tensor.nbytes for tensor in walk.tensors.values())
    if shown > MAX_REPEATS * file.size:
        many = f"more than {MAX_REPEATS} times over"
        walk.refuse("expanded", f"{shown} bytes of tensors look into a file of {file.size}, {many}")
    beside = beside_the_model(walk.paths)
    tensors = {name: replace(one, weight=one.weight and name not in beside) for name, one in walk.tensors.items()}
    return Reading(format=form, tensors=tensors, metadata=walk.metadata)


@dataclass(slots=True, kw_only=True)
class _Walk:
    file: Readable
    storages: Mapping[str, Storage]
    tensors: dict[str, Tensor] = field(default_factory=dict)
    metadata: dict[str, Scalar] = field(default_factory=dict)
    paths: dict[str, Sequence[str]] = field(default_factory=dict)
    optimizers: set[tuple[str, ...]] = field(default_factory=set)
    visits: int = 0
    elements: int = 0
    characters: int = 0

    def refuse(self, code: str, what: str) -> NoReturn:
        raise SubjectError(f"torch-{code}", what, where=self.file.name, remedy=SAVE_AGAIN)

    def visit(self, path: tuple[str, ...], value: object, depth: int) -> None:
        self.visits += 1
        if depth > MAX_DEPTH or self.visits > MAX_VISITS:
            self.refuse("nested", f"is nested more than {MAX_DEPTH} deep, or refers to itself, at {_shown(path)}")
        if isinstance(value, Made):
            self._visit_made(path, value, depth)
        elif isinstance(value, (list, tuple)) and not isinstance(value, Global):
            self.elements += len(value)
            if self.elements > MAX_ELEMENTS:
                self.refuse("nested", f"lists refer to more than {MAX_ELEMENTS} elements, at {_shown(path)}")
            for at, part in enumerate(value):
                if isinstance(part, (Made, list, tuple)):
                    self.visit((*path, str(at)), part, depth + 1)

    def _visit_made(self, path: tuple[str, ...], made: Made, depth: int) -> None:
        if made.callee in DICTIONARIES:
            entries = [*self._given(made), *made.pairs]
            if {key for key, _ in entries if isinstance(key, str)} >= OPTIMIZER:
                self.optimizers.add(path)
            for key, value in entries:
                if not isinstance(key, (str, int, float, bool)) and key is not None:
                    self.refuse("name", f"a key under {_shown(path)} is neither text nor number")
                if isinstance(key, str) and len(key) > MAX_KEY:
                    self.refuse("name", f"a key under {_shown(path)} has {len(key)} characters, more than {MAX_KEY}")
                inner, before = (*path, str(key)), len(self.tensors)
                self.visit(inner, value, depth + 1)
                nested = isinstance(value, Made) and value.callee in DICTIONARIES
                if not nested and len(self.tensors) == before:
                    self.metadata[self._named(inner)] = short(value)
        elif made.callee in (V1, V2, V3, REFERENCE):
            tensor = self._tensor(path, made)
            if tensor.name in self.tensors:
                self.refuse("twice", f"two tensors are called {quoted(tensor.name)} once names are joined with dots")
            self.tensors[tensor.name] = tensor
        elif made.callee in PARAMETERS or made.callee == FROM_TYPE:
            self._visit_wrapped(path, made, depth)
        else:
            self.visit(path, made.args, depth + 1)
        self.visit(path, made.state, depth + 1)

    def _visit_wrapped(self, path: tuple[str, ...], made: Made, depth: int) -> None:
        """Visit what a parameter, or a tensor with attributes, is made from, and then its attributes."""
        args, inner = made.args, made.args[0] if made.args else None
        if made.callee == FROM_TYPE:
            if len(args) != 4 or not isinstance(inner, Global) or not isinstance(args[2], tuple):
                self.refuse("tensor", f"{_shown(path)} is made in a way that is not known")
            inner = Made(inner.name, args[2])
        elif not isinstance(inner, Made):
            self.refuse("tensor", f"{_shown(path)} is a parameter without a tensor")
        for part in (inner, *args[3:]):
            self.visit(path, part, depth + 1)

    def _given(self, made: Made) -> list[tuple[object, object]]:
        """Return the entries that a dictionary is called with."""
        given = made.args[0] if made.args else ()
        if isinstance(given, Made) and given.callee == DICTIONARY:
            return given.pairs
        pairs = given if isinstance(given, (list, tuple)) and len(made.args) < 2 else [None]
        found = [(pair[0], pair[1]) for pair in pairs if isinstance(pair, (list, tuple)) and len(pair) == 2]
        if len(found) != len(pairs):
            self.refuse("tensor", "a dictionary is made from what is no list of pairs")
        return found

    def _named(self, path: tuple[str, ...]) -> str:
        name = ".".join(path) if path else WHOLE
        self.characters += len(name)
        if self.characters > MAX_NAMES:
            self.refuse("name", f"the names together have more than {MAX_NAMES} characters")
        return name

    def reference(self, made: Made) -> Reference:
        """Read `("storage", type, key, location, size, [view])`."""
        named = made.args[0]
        if not isinstance(named, tuple) or len(named) < 5 or named[0] != "storage" or named[5:] not in ((), (None,)):
            self.refuse("storage", "a reference is to no storage, or to a part of one as PyTorch before 0.4 wrote it")
        kind, key, size = named[1], named[2], named[4]
        if not isinstance(kind, Global) or not isinstance(key, str) or type(size) is not int or size < 0:
            self.refuse("storage", "a reference to a storage has no type, key and size")
        dtype = "" if kind.name == UNTYPED else BY_GLOBAL.get(kind.name, "?")
        if dtype == "?":
            self.refuse("dtype", f"{quoted(kind.name)} is no storage")
        return Reference(key, dtype, size * (UNITS[dtype][1] if dtype else 1))

    def _located(self, path: tuple[str, ...], value: object) -> tuple[str, Storage]:
        if not isinstance(value, Made) or value.callee != REFERENCE:
            self.refuse("storage", f"{_shown(path)} looks into no storage")
        reference = self.reference(value)
        if (storage := self.storages.get(reference.key)) is None:
            self.refuse("storage", f"{_shown(path)} looks into the storage {quoted(reference.key)}, which is not there")
        if storage.nbytes != reference.nbytes:
            what = f"{_shown(path)}: the storage {quoted(reference.key)} has {storage.nbytes} bytes"
            self.refuse("span", f"{what}, its reference says {reference.nbytes}")
        return reference.dtype, storage

    def _tensor(self, path: tuple[str, ...], made: Made) -> Tensor:
        args = made.args
        if made.callee == REFERENCE:  # a storage that was saved by itself
            dtype, storage = self._located(path, made)
            count = storage.nbytes // UNITS[dtype or "U8"][1]
            return self._placed(path, dtype or "U8", storage, 0, ((count,), (1,)))
        least = {V1: 4, V2: 6, V3: 7}[made.callee]
        if len(args) not in (least, least + (made.callee != V1)):
            self.refuse("tensor", f"{_shown(path)} is made from {len(args)} arguments")
        dtype, storage = self._located(path, args[0])
        if made.callee == V3:
            dtype = BY_GLOBAL.get(args[6].name, "") if isinstance(args[6], Global) else ""
        if not dtype:
            self.refuse("dtype", f"{_shown(path)} has a dtype that is not known")
        marks = args[least] if len(args) > least else None
        if isinstance(marks, Made) and any(value for _, value in marks.pairs):
            self.refuse("tensor", f"{_shown(path)} is a view with its sign or imaginary part turned, not plain values")
        shape, steps, first = whole(args[2]), whole(args[3]), args[1]
        if shape is None or steps is None or len(shape) != len(steps) or type(first) is not int or first < 0:
            self.refuse("tensor", f"{_shown(path)}: size, stride or offset are not whole numbers")
        if len(shape) > MAX_RANK:
            self.refuse("tensor", f"{_shown(path)} has {len(shape)} dimensions, at most {MAX_RANK} are read")
        return self._placed(path, dtype, storage, first, (shape, steps))

    def _placed(self, path: tuple[str, ...], dtype: str, storage: Storage, first: int, layout: Layout) -> Tensor:
        """Place a view in its storage, which must hold all of it."""
        shape, steps = layout
        size = UNITS[dtype][1]  # PyTorch's elements are whole bytes: one of float4_e2m1fn_x2 holds two values
        strides = strides_of(shape, steps)
        if dtype == "F4":
            if strides is not None or not shape:
                self.refuse("tensor", f"{_shown(path)} is a view of packed 4-bit values that are not in order")
            shape = in_values(dtype, shape)
        nbytes = span(dtype, shape)
        reach = 0 if 0 in shape else (strides.reach if strides else math.prod(layout[0]))
        if nbytes is None or (nbytes and (first + reach) * size > storage.nbytes):
            what = f"{_shown(path)}: {dtype} {list(shape)[:8]} at element {first}, steps {list(steps)[:8]}"
            self.refuse("span", f"{what}, reaches beyond its storage of {storage.nbytes} bytes")
        if nbytes > self.file.size:
            what = f"{_shown(path)}: {nbytes} bytes out of a storage of {storage.nbytes}"
            self.refuse("expanded", f"{what}: an expanded view, whose elements are not stored")
        name = self._named(path)
        offset = storage.start + (first * size if nbytes else 0)
        self.paths[name] = [*path]
        weight = not any(path[:many] in self.optimizers for many in range(3))
        stored = Tensor(name=name, dtype=dtype, shape=shape, nbytes=nbytes, offset=offset, file=self.file.name)
        return replace(stored, strides=strides, weight=weight)


def in_values(dtype: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Count values where PyTorch counts bytes: one element of its float4_e2m1fn_x2 holds two."""
    return (*shape[:-1], shape[-1] * 2) if dtype == "F4" and shape else shape


def whole(value: object) -> tuple[int, ...] | None:
    """Read a tuple of whole numbers from 0 on, as a torch.Size or bare; None where it is none."""
    if isinstance(value, Made) and value.callee == "torch.Size" and value.args:
        value = value.args[0]
    if not isinstance(value, tuple) or len(value) > MAX_SIZES:  # many tensors may share one
        return None
    return value if all(type(item) is int and item >= 0 for item in value) else None


def _shown(path: tuple[str, ...]) -> str:
    return quoted(".".join(path) if path else WHOLE)


def root_of(members: dict[str, Member]) -> str | None:
    """Find the folder, with its slash, that holds the one pickle of a PyTorch archive; None where there is none."""
    roots = {name.removesuffix(PICKLE) for name in members if name == PICKLE or name.endswith("/" + PICKLE)}
    outer = [root for root in roots if root.count("/") <= 1]
    return outer[0] if len(outer) == 1 else None


def parse(file: Readable, members: dict[str, Member], root: str) -> Reading:
    """Read tensors by dotted name and scalars beside them; refuse with `torch-…`, `pickle-…` or `zip-…`."""
    if root + CONSTANTS in members:
        refuse("script", "is a TorchScript program, whose classes are code", file)
    if (order := members.get(root + BYTE_ORDER)) is not None:
        byte_order = bytes(zip_archive.content(file, order, 64))
        if byte_order != b"little":
            shown = quoted(byte_order.decode("ascii", "backslashreplace"))
            refuse("byteorder", f"its byte order is {shown}, not 'little'", file, order.start)
    pickle = members[root + PICKLE]
    zip_archive.content(file, pickle, pickle_machine.MAX_PICKLE)
    described, behind = read_pickle(file, pickle.start, pickle.stop, VOCABULARY)
    if behind != pickle.stop:
        refuse("trailing", f"{pickle.stop - behind} bytes follow the pickle in {quoted(pickle.name)}", file, behind)
    data = root + DATA
    places = {name: Storage(member.start, member.nbytes) for name, member in members.items() if name.startswith(data)}
    storages = {name.removeprefix(data): place for name, place in places.items()}
    reading = reading_of("torch", described, file, storages)
    known = {reference.key for reference in references(described, file)}
    if (unread := next((key for key in storages if key not in known), None)) is not None:
        refuse("unread", f"no tensor looks into the storage {quoted(data + unread)}", file, storages[unread].start)
    return replace(reading, checksums=zip_archive.checksums(file, members))


def begins_legacy(head: bytes) -> bool:
    """Return whether a file begins with the magic number of the format before 1.6, whatever its pickle protocol."""
    return head.startswith(b"\x80") and any(head.startswith(LEGACY_MAGIC, at) for at in PROTOCOL_AND_FRAME)


def read_legacy(file: Readable) -> Reading:
    """Read tensors by dotted name and scalars beside them; refuse with `torch-…` or `pickle-…` and the place."""
    _, at = read_pickle(file, 0, file.size, NOTHING)
    version, at = read_pickle(file, at, file.size, NOTHING)
    if version != LEGACY_PROTOCOL:
        refuse("version", f"the protocol is not {LEGACY_PROTOCOL}", file, at)
    system, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(system, Made) or system.callee != DICTIONARY or ("little_endian", True) not in system.pairs:
        refuse("byteorder", "does not say that it is little-endian", file, at)
    described, at = read_pickle(file, behind, file.size, VOCABULARY)
    keys, behind = read_pickle(file, at, file.size, NOTHING)
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys) or len(set(keys)) != len(keys):
        refuse("storage", "the keys of the storages are no list of different texts", file, at)
    known = {one.key: one for one in references(described, file)}
    storages, at = dict[str, Storage](), behind  # to the end of the file, each behind its count of elements
    for key in keys:
        if (reference := known.get(key)) is None:
            refuse("unread", f"no tensor looks into the storage {quoted(key)}", file, at)
        if at + SIZE > file.size:
            refuse("truncated", f"the size of the storage {quoted(key)} is missing", file, at)
        (count,) = struct.unpack("<Q", file.read(at, at + SIZE))
        nbytes = count * (UNITS[reference.dtype][1] if reference.dtype else 1)
        if nbytes > file.size - at - SIZE:
            what = f"the storage {quoted(key)} takes {nbytes} bytes, {file.size - at - SIZE} are left"
            refuse("truncated", what, file, at)
        storages[key] = Storage(at + SIZE, nbytes)
        at += SIZE + nbytes
    if at < file.size:
        refuse("trailing", f"{file.size - at} bytes after the last storage", file, at)
    return reading_of("torch-legacy", described, file, storages)
