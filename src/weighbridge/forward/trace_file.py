"""A trace: the values of a forward pass at its capture points, in one safetensors file that any stack can write."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self

from weighbridge.core import Doc, LimitsError, SubjectError, dumps, plain, quoted, sha256
from weighbridge.core.frozen import NDArray, dataclass, field, np, replace
from weighbridge.core.limits import read
from weighbridge.formats import safetensors_file
from weighbridge.formats.strict_json import strict_json
from weighbridge.formats.tensor import Tensor, numpy_dtype
from weighbridge.formats.trace_key import KEY
from weighbridge.storage.mapped_file import MappedFile

FORMAT = "trace/v0"
ROUNDOFF: Mapping[str, float] = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24}
STORED = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16", "int64": "I64", "int32": "I32"}
HELD_AS = {stored: name for name, stored in STORED.items()}
ROUNDED_TO = (
    *("float32", "bfloat16", "float16", "q8_0", "q8_1", "q8_k", "int8_per_token", "fp8_e4m3", "fp8_e4m3_per_token"),
    *("autocast_bfloat16", "autocast_float16"),
)
PRODUCTS = (*ROUNDED_TO, "ggml")  # `ggml`: by the types in the checkpoint
DIGEST, HEX = r"[0-9a-f]{64}", "64 hexadecimal digits"
RESERVED = 1 << 16  # bytes for a header that is written last; a longer one moves what lies behind it
COPIED = 8 << 20
ALIGNED = 8  # bytes at a multiple of which the values begin

WHOLE = frozenset({"embed", "logits"})  # the two points whose state one word says
STATELESS = frozenset({"q", "k", "v", "qkv"})  # before the bias, after it, or after the rotation?
POINT = re.compile(r"(?!.{201})[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*")

Tokens = tuple[tuple[Annotated[int, Doc(ge=0, le=2**31 - 1)], ...], ...]


def check_point(name: str, where: str = "") -> None:
    """Refuse with `point-id` a bare word other than `embed` and `logits`, and an id that ends in q, k or v."""
    if POINT.fullmatch(name) and (name in WHOLE or ("." in name and name.rpartition(".")[2] not in STATELESS)):
        return
    remedy = "name what was captured, as in L0.attn.q.matmul or L0.attn.q.post_bias; bare are only embed and logits"
    what = f"the capture point {name[:60]!r} does not say its state"
    raise SubjectError("point-id", what, where=where, remedy=remedy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where a stack was asked to compute, and where it did."""

    requested: Annotated[str, Doc("what was asked for: `cpu`, `cuda:0`")]
    observed: Annotated[str, Doc("where the captured values lay: `cpu`, `cuda`; empty where it cannot tell")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a trace says of its run besides the tensors."""

    format: Annotated[str, Doc("version of the format", choices=(FORMAT,))] = FORMAT
    stack: Annotated[str, Doc("what computed it, with its version: `transformers 5.2.0`")]
    device: Annotated[Device, Doc("where it was asked to compute, and where it did")]
    dtype: Annotated[str, Doc("what it computes in", choices=tuple(ROUNDOFF))]
    tokens: Annotated[Tokens, Doc("token ids `[sequences, tokens]`, equally many in each")]
    order: Annotated[tuple[str, ...], Doc("the ids of the points in the order of computing")]
    weights: Annotated[
        Mapping[str, Annotated[str, Doc(pattern=DIGEST, form=HEX)]],
        Doc("sha256 of each weight's shape, as JSON without spaces, and its little-endian bytes in `dtype`, by name"),
    ] = field(default_factory=dict, hash=False)
    files: Annotated[
        Mapping[str, Annotated[str, Doc(pattern=DIGEST, form=HEX)]],
        Doc("sha256 of each file that the model was made from, its checkpoint among them; without it no trace is live"),
    ] = field(default_factory=dict, hash=False)
    products: Annotated[
        Mapping[str, Annotated[str, Doc(choices=PRODUCTS)]],
        Doc("what the factors of products are rounded to, by glob of module paths; left out, to nothing"),
    ] = field(default_factory=dict, hash=False)
    checkpoint: Annotated[
        str, Doc("the file beside the trace that its weights were read from, one of `files`; they are compared with it")
    ] = ""
    decoded: Annotated[
        int, Doc("how many tokens at the end of each sequence were computed one by one, from a cache", ge=0)
    ] = 0
    padded: Annotated[
        tuple[Annotated[int, Doc(ge=0)], ...],
        Doc("how many tokens at the start of each sequence are padding; left out, none; none of the first one"),
    ] = ()
    partial: Annotated[
        bool, Doc("whether the stack may have no value for some points, as an exported graph; left out, it has all")
    ] = False
    noise: Annotated[
        Mapping[str, Annotated[float, Doc(ge=0)] | None] | None,
        Doc(
            "how far a second run lay from this one at each point that differed, relative L2, null where that was not "
            "finite; left out where it ran once"
        ),
    ] = field(default=None, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace file, opened: its facts, and where each point's values lie."""

    facts: Facts
    file: MappedFile
    tensors: Mapping[str, Tensor]
    damage: tuple[str, float] | None = None  # replaces the first sequence's last channel of the last token at a point

    def cut(self, sequences: int, tokens: int | None = None) -> Trace:
        """Return the first sequences alone, and of these the first tokens."""
        kept = tuple(row[:tokens] for row in self.facts.tokens[:sequences])
        decoded = max(0, self.facts.decoded - len(self.facts.tokens[0]) + len(kept[0]))
        padded = self.facts.padded[:sequences]
        return replace(self, facts=replace(self.facts, tokens=kept, decoded=decoded, padded=padded))

    @property
    def at_once(self) -> tuple[int, int]:
        """Return how many sequences come before one with padding, and how many tokens of them were computed at once."""
        rows = next((at for at, many in enumerate(self.facts.padded) if many), len(self.facts.tokens))
        return rows, len(self.facts.tokens[0]) - self.facts.decoded

    def sequence(self, point: str, at: int) -> NDArray[Any]:
        """Return the values of one sequence `[tokens, channels]`, behind its padding."""
        whole: NDArray[Any] = self.stored(point, at, at + 1)[0]
        return whole[self.facts.padded[at] :] if at < len(self.facts.padded) else whole

    def only(self, points: Collection[str]) -> Trace:
        """Return it without the points that are not among these."""
        return replace(self, tensors={name: one for name, one in self.tensors.items() if name in points})

    def shape(self, point: str) -> tuple[int, ...] | None:
        """Return the shape of a point's values, None where it was not captured."""
        if point not in self.tensors:
            return None
        rows, tokens, channels = self.tensors[point].shape
        return (min(rows, len(self.facts.tokens)), min(tokens, len(self.facts.tokens[0])), channels)

    def held_as(self, point: str) -> str:
        """Return the dtype in which the stack captured a point."""
        return HELD_AS[self.tensors[point].dtype]

    def windows(self, point: str, step: int) -> Iterator[NDArray[Any]]:
        """Yield its values `[tokens, channels]` as they are stored, not copied, some tokens at a time."""
        tensor, dtype = self.tensors[point], _dtype(self.tensors[point].dtype)
        rows, tokens, channels = self.shape(point) or (0, 0, 0)
        assert tokens == tensor.shape[1]  # of cut tokens, no two sequences lie side by side
        width = channels * dtype.itemsize
        for window in self.file.windows(tensor.offset, tensor.offset + rows * tokens * width, step * width):
            yield np.frombuffer(window, dtype=dtype).reshape(-1, channels)

    def stored(
        self, point: str, start: int = 0, stop: int | None = None, since: int = 0, till: int = -1
    ) -> NDArray[Any]:
        """Return values `[sequences, tokens, channels]` as they are stored, copied: of some of them, or of all."""
        tensor, dtype = self.tensors[point], _dtype(self.tensors[point].dtype)
        rows, tokens, _ = self.shape(point) or (0, 0, 0)
        start, stop = min(start, rows), min(rows if stop is None else stop, rows)
        till, width = tokens if till < 0 else till, tensor.shape[2] * dtype.itemsize
        values: NDArray[Any] = np.empty((stop - start, till - since, tensor.shape[2]), dtype)
        for row in range(start, stop):
            at = tensor.offset + (row * tensor.shape[1] + since) * width
            end = at + (till - since) * width
            values[row - start] = np.frombuffer(self.file.read(at, end), dtype=dtype).reshape(values.shape[1:])
            self.file.release(at, end)
        if self.damage is not None and self.damage[0] == point and start == 0:
            with np.errstate(over="ignore"):
                values[0, -1, -1] = self.damage[1]
        return values


def open_trace(path: str | Path, name: str = "") -> Trace:
    """Open a trace file, called `name` in messages; refuse with `safetensors-…` or `trace-…` what is none."""
    file = MappedFile(path, name)
    reading = safetensors_file.read(file)
    metadata = dict(reading.metadata)
    if set(metadata) != {KEY}:
        remedy = "write one metadata key with the facts as JSON; `weighbridge trace pack` does"
        found = ", ".join(sorted(metadata)[:3]) or "none"
        what = f"a trace has the metadata key {KEY!r} alone, this file has {found}"
        raise SubjectError("trace-facts", what, where=file.name, remedy=remedy)
    data = strict_json(memoryview(str(metadata[KEY]).encode()), "trace-facts", file)
    trace = Trace(facts=facts_of(data, file.name), file=file, tensors=reading.tensors)
    _check(trace)
    return trace


def facts_of(data: object, where: str) -> Facts:
    """Return facts from plain data; refuse with `trace-facts` the first thing that is wrong."""
    try:
        return read(Facts, data)
    except LimitsError as problem:
        first = problem.problems[0]
        at = ".".join(map(str, first.path)) or "the facts"
        raise SubjectError("trace-facts", f"{at}: {first.what}", where=where, remedy="see spec/trace.md") from None


def _check(trace: Trace) -> None:
    facts, where = trace.facts, trace.file.name

    def refuse(code: str, what: str, remedy: str) -> None:
        raise SubjectError(f"trace-{code}", what, where=where, remedy=remedy)

    if not facts.order:
        refuse("empty", "the trace holds no point", "capture at least the logits")
    lengths = {len(row) for row in facts.tokens}
    if len(lengths) != 1 or 0 in lengths:
        refuse("tokens", "`tokens` is not a list of equally long lists of token ids", "write the inputs of the run")
    for name in facts.order:
        check_point(name, where)
    if len(set(facts.order)) != len(facts.order) or set(facts.order) != set(trace.tensors):
        odd, *_ = sorted(set(facts.order) ^ set(trace.tensors)) or ["a name that stands there twice"]
        refuse("order", f"`order` and the tensors do not name the same points: {quoted(odd)}", "list each tensor once")
    if strange := sorted(set(facts.noise or ()) - set(facts.order)):
        what = f"`noise` names {quoted(strange[0])}, which `order` does not"
        refuse("order", what, "name points of this trace alone")
    form = (len(facts.tokens), *lengths)
    for name, tensor in trace.tensors.items():
        if tensor.dtype not in HELD_AS:
            refuse("dtype", f"{name} is {tensor.dtype}", f"write one of {', '.join(HELD_AS)}")
        if len(tensor.shape) != 3 or tensor.shape[:2] not in (form, (1, form[1])) or not tensor.nbytes:
            what = f"{name} has shape {list(tensor.shape)}, not [{form[0]} sequences, {form[1]} tokens, channels]"
            refuse("shape", what, "write sequences, tokens and channels, in that order")


@dataclass(slots=True)
class TraceWriter:
    """Write a trace as it comes, in constant memory; the steps of a generation are joined along tokens."""

    path: Path
    parts: dict[str, list[tuple[int, tuple[int, ...]]]] = field(default_factory=dict)  # offset and shape, as they came
    dtypes: dict[str, str] = field(default_factory=dict)
    _file: BinaryIO = field(init=False)
    _end: int = RESERVED

    def __post_init__(self) -> None:
        self._file = self.path.open("w+b")
        self._file.seek(RESERVED)

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # a pass that raised leaves it open
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self._file.close()

    def write(self, point: str, data: Any, shape: tuple[int, ...], dtype: str) -> None:
        """Append values `[sequences, tokens, channels]` of a point, given as contiguous bytes."""
        check_point(point)
        if len(shape) != 3 or dtype not in STORED or self.dtypes.setdefault(point, dtype) != dtype:
            what = f"{point} holds {dtype} {list(shape)}, not one dtype of {', '.join(STORED)} in three dimensions"
            raise SubjectError("point-shape", what, remedy="capture sequences, tokens and channels, in that order")
        self.parts.setdefault(point, []).append((self._end, shape))
        self._end += self._file.write(data)

    def close(self, facts: Facts) -> Trace:
        """Write the header, and return the trace that the file is from then on."""
        if any(len(parts) > 1 for parts in self.parts.values()):
            self._join()
        entries = {}
        for name, ((offset, shape),) in self.parts.items():
            stored, start = STORED[self.dtypes[name]], offset - RESERVED
            span = [start, start + math.prod(shape) * _dtype(stored).itemsize]
            entries[name] = {"dtype": stored, "shape": list(shape), "data_offsets": span}
        header = header_of(facts, entries)
        start = max(RESERVED, len(header) + 8)
        at = self._end if start > RESERVED else RESERVED
        while at > RESERVED:  # make room for a long header: move all that lies behind it, from the end on
            begin = max(RESERVED, at - COPIED)
            self._file.seek(begin)
            data = self._file.read(at - begin)
            self._file.seek(begin + start - RESERVED)
            self._file.write(data)
            at = begin
        self._file.seek(0)
        self._file.write(struct.pack("<Q", start - 8) + header.ljust(start - 8))
        self._file.close()
        return open_trace(self.path)

    def _join(self) -> None:
        other = TraceWriter(self.path.with_suffix(".joined"))
        for name, parts in self.parts.items():
            rows, channels = max(shape[0] for _, shape in parts), parts[0][1][2]
            if any(shape[0] not in (1, rows) or shape[2] != channels for _, shape in parts):
                what = f"{name} has another number of sequences or channels from step to step"
                raise SubjectError("point-shape", what, remedy="capture the same point in every step")
            steps: list[NDArray[Any]] = []
            size = _dtype(STORED[self.dtypes[name]]).itemsize
            for start, shape in parts:
                self._file.seek(start)
                words = np.frombuffer(self._file.read(math.prod(shape) * size), f"u{size}")
                steps.append(np.broadcast_to(words.reshape(shape), (rows, *shape[1:])))
            whole = np.concatenate(steps, 1)
            if any(shape[0] == 1 for _, shape in parts) and bool((whole == whole[:1]).all()):
                whole = whole[:1]  # one for all sequences, though some steps say it for each
            other.write(name, np.ascontiguousarray(whole).data, whole.shape, self.dtypes[name])
        self._file.close()
        other.path.replace(self.path)
        self._file, self._end, self.parts = other._file, other._end, other.parts
        del other._file  # which its end would close


def save(trace: Trace, facts: Facts, path: Path) -> None:
    """Write a trace again, with other facts about the same values, which are copied in order."""
    entries, at = {}, 0
    for name in facts.order:
        tensor = trace.tensors[name]
        entries[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + tensor.nbytes]}
        at += tensor.nbytes
    header = header_of(facts, entries)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for name in facts.order:
            tensor = trace.tensors[name]
            for window in trace.file.windows(tensor.offset, tensor.offset + tensor.nbytes, COPIED):
                file.write(window)


def _dtype(stored: str) -> np.dtype[Any]:
    dtype = numpy_dtype(stored)
    assert dtype is not None
    return dtype


def header_of(facts: Facts, entries: Mapping[str, Any]) -> bytes:
    """Return a safetensors header with the facts as its one metadata key."""
    metadata = {KEY: dumps(plain(facts)).decode().rstrip("\n")}
    text = json.dumps({"__metadata__": metadata, **entries}, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % ALIGNED)


def weight_digest(shape: Sequence[int], data: Any) -> str:
    """Return the digest of one weight: sha256 of its shape as JSON and its bytes."""
    digest = hashlib.sha256(json.dumps(list(shape), separators=(",", ":")).encode())
    digest.update(data)
    return digest.hexdigest()


def inputs_digest(tokens: Tokens) -> str:
    """Return the digest of the token ids."""
    return sha256(dumps([list(row) for row in tokens]))
