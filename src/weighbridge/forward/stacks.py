"""What can run a model forward and write a trace: `Torch`, a PyTorch module, or `Stack`, what is not PyTorch."""

from __future__ import annotations

import copy
import inspect
import itertools
import re
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from weighbridge.core import NDArray, SubjectError, dataclass, field, np, replace, torch
from weighbridge.formats.tensor import numpy_dtype
from weighbridge.forward.between_traces import Again
from weighbridge.forward.points import CACHE, Points, Visit, visited
from weighbridge.forward.products import Products, rounded, said_of
from weighbridge.forward.reach import bounds_of, cache_parameter, drawn_size
from weighbridge.forward.trace_file import STORED, Device, Facts, Trace, TraceWriter, weight_digest

Tokens: TypeAlias = Sequence[Sequence[int]]  # [sequences, tokens]
Digests: TypeAlias = Mapping[str, str] | None  # of weights, by name; None where they are not made yet

TAP = re.compile(r"(?P<path>[\w.]*?)(?::(?P<side>in|out))?(?:\[(?P<start>\d+):(?P<stop>\d+)\])?")
DRAWN = (4, 24)  # sequences and tokens, where nobody gives any, and nothing asks for more


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack that is not PyTorch.

    run: maps tokens `[sequences, tokens]` to the values at each point, in the order of computing, as arrays
        `[sequences, tokens, channels]` in the dtype in which it computed them.
    dtype: what it computes in: `float32`, `bfloat16` or `float16`.
    products: what the factors of its products are rounded to, for all or by glob of the reference's module paths.
    partial: whether it may have no value for some points, as an exported graph; they are then left out, and counted.
    weights: its weights by the names that the reference has for them; left out, they are not compared.
    """

    run: Callable[[Tokens], Mapping[str, NDArray[Any]]]
    dtype: str = "float32"
    tokens: Tokens = ()
    device: str = "cpu"
    observed: str = ""
    products: str | Mapping[str, str] = ""
    partial: bool = False
    weights: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    checkpoint: str = ""
    name: str = "a stack of its own"

    def digests(self, dtype: str) -> Mapping[str, str]:
        """Return the digest of each weight in a dtype."""
        return digests_of(self.weights.items(), dtype)

    def capture(self, tokens: Tokens, path: Path | Again, _wanted: Points = None, weights: Digests = None) -> Trace:
        """Run it forward, and write a trace; the digests of the `weights` are made where they are not given."""
        with TraceWriter(path) if isinstance(path, Path) else nullcontext(path) as writer:
            for point, values in self.run(tokens).items():
                array = np.ascontiguousarray(values)
                writer.write(point, array.reshape(-1).view(np.uint8), array.shape, str(array.dtype))
            return _closed(writer, self, tokens, self.observed, weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """A PyTorch module with its inputs. The module is never changed.

    module: in evaluation it maps token ids `[sequences, tokens]` (int64) to anything; what its modules return is read.
    tokens: several sequences of several tokens; left out, four are drawn from the vocabulary by a fixed rule.
    dtype: what it computes in; left out, the dtype of most of its weights. Weights in another are cast in a copy.
    call: how to call the module, where `module(input_ids=ids)` or `module(ids)` does not do.
    taps: id → place, where points shall have names of their own, and these alone count: `path` is what a module
        returns, `path:in` its first input, `path[0:64]` some channels of it.
    decode: so many tokens at the end are computed one by one, from the cache, as in a generation.
    padded: so many tokens at the start of each sequence, none of the first one, are padding, which a mask hides (`call`
        masks it itself); what is computed there is not compared.
    products: what the factors of its products are rounded to, for all or by glob of module paths, where that is not
        what it holds; of a candidate.
    """

    module: torch.nn.Module
    tokens: Tokens = ()
    dtype: str = ""
    checkpoint: str = ""
    call: Callable[[torch.nn.Module, torch.Tensor], object] | None = None
    taps: Mapping[str, str] = field(default_factory=dict)
    decode: int = 0
    padded: Sequence[int] = ()
    products: str | Mapping[str, str] = ""
    name: str = ""

    @property
    def plain(self) -> Any:
        """Return the module itself, not what `torch.compile` wrapped around it."""
        return getattr(self.module, "_orig_mod", self.module)

    @property
    def device(self) -> str:
        """Return where its weights are."""
        first = next(itertools.chain(self.module.parameters(), self.module.buffers()), None)
        return str(first.device) if first is not None else "cpu"

    def prepared(self, dtype: str = "") -> Torch:
        """Return it ready to compute in a dtype: itself, or a copy whose stored weights are cast, and nothing else."""
        wanted = dtype or self.dtype
        lists = ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict")
        apart = {part for name in lists for part in getattr(self.plain, name, None) or ()}
        stored = set(self.plain.state_dict())
        named = itertools.chain(self.plain.named_parameters(), self.plain.named_buffers())
        floating = [(name, tensor) for name, tensor in named if name in stored and tensor.is_floating_point()]
        concerned = [tensor for name, tensor in floating if apart.isdisjoint(name.split("."))]
        if not wanted:
            sizes = Counter[str]()
            for tensor in concerned:
                sizes[str(tensor.dtype).removeprefix("torch.")] += tensor.numel()
            return replace(self, dtype=max(sizes, key=lambda name: sizes[name], default="float32"))
        kind = getattr(torch, wanted)
        if all(tensor.dtype is kind for tensor in concerned):
            return replace(self, dtype=wanted)
        patched = [path for path, part in self.plain.named_modules() if _keeps_original(part)]
        if patched:
            what = f"{patched[0] or 'the model'}.forward is a function that keeps the original, which a copy would run"
            remedy = f"give the module in {wanted}, or put a module with that forward in its place"
            raise SubjectError("patched-forward", what, remedy=remedy)
        cast: dict[int, Any] = {}
        for tensor in concerned:  # what is cast is not copied before
            if tensor.dtype is not kind:
                data = tensor.detach().to(kind)
                is_weight = isinstance(tensor, torch.nn.Parameter)
                cast[id(tensor)] = type(tensor)(data, tensor.requires_grad) if is_weight else data
        return replace(self, dtype=wanted, module=copy.deepcopy(self.plain, cast))

    def own_weights(self) -> Iterator[tuple[str, NDArray[Any]]]:
        """Yield its floating weights in float32, by name; what another library's stands for."""
        for name, stored in self.plain.state_dict().items():
            tensor = _plain(stored) if isinstance(stored, torch.Tensor) else None
            if tensor is not None and tensor.is_floating_point():
                yield name, tensor.detach().float().cpu().numpy()

    def with_weights(self, weights: Iterable[tuple[str, NDArray[Any]]]) -> Torch:
        """Return a copy that has other values in place of some weights, in the dtypes that it has."""
        own, taken = self.plain.state_dict(keep_vars=True), dict[int, Any]()
        for name, array in weights:
            if (old := own.get(name)) is not None and tuple(old.shape) == array.shape:
                new = torch.from_numpy(np.array(array)).to(old.device, old.dtype)
                taken[id(old)] = torch.nn.Parameter(new, False) if isinstance(old, torch.nn.Parameter) else new
        return replace(self, module=copy.deepcopy(self.plain, taken))

    def digests(self, dtype: str, other: Torch | None = None, known: Digests = None) -> Mapping[str, str]:
        """Return the digest of each weight in a dtype; of those with the bits of another model's, its `known` one."""
        kind = getattr(torch, dtype)
        theirs = other.plain.state_dict() if other is not None and known else {}
        found: dict[str, str] = {}
        seen: dict[Any, str] = {}  # tied weights have several names
        for name, stored in self.plain.state_dict().items():
            if not isinstance(stored, torch.Tensor) or (tensor := _plain(stored)) is None:
                continue
            key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
            if key not in seen and known and name in known and _same_bits(tensor, theirs.get(name)):
                seen[key] = known[name]
            elif key not in seen:
                kept = tensor.to(kind) if tensor.is_floating_point() else tensor
                seen[key] = weight_digest(tensor.shape, _bytes(kept))
            found[name] = seen[key]
        return found

    def capture(  # noqa: PLR0917 -- what a pass is about; most of it is left out
        self,
        tokens: Tokens,
        path: Path | Again,
        wanted: Points = None,
        weights: Digests = None,
        given: Trace | None = None,
        products: Products | None = None,
    ) -> Trace:
        """Run it forward, and write a trace of its points; each step goes on from what was `given`, or its own.

        Factors are rounded as `products` say. A compiled module has those points alone that are `wanted`; of another,
        such are written even where they are the very tensor of an earlier point.
        """
        devices: set[str] = set()
        kept: list[tuple[str, torch.Tensor]] = []
        compiled = self.module is not self.plain

        def write(point: str, rows: torch.Tensor) -> torch.Tensor | None:
            devices.add(rows.device.type)
            rows = self.unpadded(rows)
            writer.write(point, _bytes(rows), tuple(rows.shape), str(rows.dtype).removeprefix("torch."))
            if given is None or given.shape(point) != tuple(rows.shape):
                return None
            return captured(given, point, rows).to(rows.dtype)

        def keep(point: str, rows: torch.Tensor) -> None:  # to write a file would break the graph
            kept.append((point, rows.detach().clone()))

        if compiled and wanted is None:
            wanted = self.points(tokens)
        with TraceWriter(path) if isinstance(path, Path) else nullcontext(path) as writer:
            # The inputs of a step may be of other shapes than those of the whole: there, no more is wanted.
            those, more = (wanted, frozenset[str]()) if compiled else (wanted if self.decode else None, wanted)
            with rounded(self.plain, products or {}):
                self.forward(tokens, keep if compiled else write, those, more or frozenset())
            for point, rows in kept:
                write(point, rows)
            return _closed(writer, self, tokens, "+".join(sorted(devices)), weights)

    def points(self, tokens: Tokens) -> frozenset[str]:
        """Return the ids of its points, in a pass of its own."""
        found: list[str] = []
        replace(self, module=self.plain).forward(tokens, lambda point, _rows: found.append(point))
        return frozenset(found)

    def forward(self, tokens: Tokens, visit: Visit, wanted: Points = None, casts: frozenset[str] = frozenset()) -> None:
        """Run it forward, and call `visit` at each point with its rows; `casts` as in `visited`."""
        named = _taps(self.taps)

        def tapped(point: str, rows: torch.Tensor) -> torch.Tensor | None:
            for name, channels in named[point]:
                found = visit(name, rows[..., channels])
                if found is not None:
                    rows = rows.clone()
                    rows[..., channels] = found
            return rows

        if named:
            wanted, casts = frozenset(named), frozenset()
        ids = torch.tensor([list(row) for row in tokens], dtype=torch.int64, device=self.device)
        masks = self._masks(ids)
        total = ids.shape[1] if self.decode else 0
        seeing = visited(self.module, tapped if named else visit, len(tokens), wanted, casts, total=total)
        training = [part for part in self.plain.modules() if part.training]
        self.plain.eval()
        try:
            with torch.no_grad(), seeing:
                if self.decode:
                    _generate(self.module, ids, self.decode, masks)
                elif self.call:
                    self.call(self.module, ids)
                else:
                    called(self.module, ids, **masks)
        finally:
            for part in training:
                part.training = True

    def _masks(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the mask that hides the padding of some sequences, by its name; nothing where they have none."""
        pads = [*self.padded[: len(ids)], *[0] * (len(ids) - len(self.padded))]
        if pads[0] or max(pads) >= ids.shape[1] - self.decode:
            what = f"{max(pads)} of {ids.shape[1]} tokens of a sequence cannot be padding, nor any of the first one"
            raise SubjectError("padded", what, remedy="leave the first sequence whole, and tokens behind the padding")
        places = torch.arange(ids.shape[1], device=ids.device)
        return {"attention_mask": (places >= ids.new_tensor(pads)[:, None]).to(ids.dtype)} if any(pads) else {}

    def unpadded(self, rows: torch.Tensor) -> torch.Tensor:
        """Return rows with zeros where a sequence is padding."""
        some = [(at, many) for at, many in enumerate(self.padded[: len(rows)]) if 0 < many < rows.shape[1]]
        rows = rows.clone() if some else rows
        for at, many in some:
            rows[at, :many] = 0
        return rows

    def drawn(self) -> Tokens:
        """Return token ids by a fixed rule, below the size of the vocabulary."""
        # A model that sees states no vocabulary, or another part's.
        tables = (getattr(self.plain, "get_input_embeddings", lambda: None)(), *self.plain.modules())
        first = next((m.num_embeddings for m in tables if isinstance(m, torch.nn.Embedding)), 0)
        stated = int(getattr(getattr(self.plain, "config", None), "vocab_size", 0) or first)
        size = min(stated, first or stated)
        if size < 3:
            raise SubjectError("no-inputs", "the model says no vocabulary to draw tokens from", remedy="give `tokens`")
        rows, length = drawn_size(bounds_of(self.plain), DRAWN)
        some = size - 2  # 0 and 1 are left out: they are the padding of many vocabularies
        step = 7919 * length + 104729  # from one sequence to the next
        return [[2 + (row * step + n * (7919 + 31 * n)) % some for n in range(length)] for row in range(rows)]


def called(module: torch.nn.Module, ids: torch.Tensor, **masks: torch.Tensor) -> object:
    """Call a module with token ids, as its forward takes them."""
    accepted = inspect.signature(getattr(module, "_orig_mod", module).forward).parameters
    given = {"use_cache": False, "decoder_input_ids": ids}
    more: dict[str, Any] = {name: one for name, one in given.items() if name in accepted} | masks
    return module(input_ids=ids, **more) if "input_ids" in accepted else module(ids)


def _generate(module: torch.nn.Module, ids: torch.Tensor, steps: int, masks: Mapping[str, torch.Tensor]) -> None:
    if not 0 < steps < ids.shape[1]:
        what = f"{steps} of {ids.shape[1]} tokens cannot be decoded after others"
        raise SubjectError("decode-steps", what, remedy="decode fewer tokens than a sequence has")
    name = cache_parameter(getattr(module, "_orig_mod", module)) or "past_key_values"
    cache, given = None, ids.shape[1] - steps
    for start, stop in itertools.pairwise((0, *range(given, ids.shape[1] + 1))):
        seen: Any = {name: mask[:, :stop] for name, mask in masks.items()}
        cache = getattr(module(input_ids=ids[:, start:stop], use_cache=True, **{name: cache}, **seen), name)


def has_cuda() -> bool | None:
    """Ask PyTorch whether there is a CUDA device here; None where it is not loaded, so that nobody asked for it."""
    torch = sys.modules.get("torch")
    return None if torch is None else bool(torch.cuda.is_available())


def digests_of(weights: Iterable[tuple[str, NDArray[Any]]], dtype: str) -> Mapping[str, str]:
    """Return the digest of each weight in a dtype, by name."""
    kind, found = numpy_dtype(STORED[dtype]), {}
    for name, array in weights:
        data = array if array.dtype.kind in "iub" else array.astype(kind)
        found[name] = weight_digest(array.shape, np.ascontiguousarray(data))
    return found


def raised_at(problem: BaseException) -> str:
    """Return the last line outside of PyTorch at which a model's own code raised, without what it said, to be read."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "/torch/" not in frame.filename]
    return f"look at {Path(frames[-1].filename).name}:{frames[-1].lineno}; "


def _keeps_original(part: torch.nn.Module) -> bool:
    """Return whether a function in the place of a module's `forward` holds a module or tensor, as a closure does."""
    waiting: list[Any] = [vars(part).get("forward")]
    for function in waiting:  # which grows
        cells = function.__closure__ or () if inspect.isfunction(function) else ()
        for kept in (cell.cell_contents for cell in cells):
            if isinstance(getattr(kept, "__self__", kept), (torch.nn.Module, torch.Tensor)):
                return True
            if kept not in waiting:
                waiting.append(kept)
    return False


def _plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a weight as a plain tensor, what a quantised one stands for; None where it cannot say that."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    stands_for = getattr(tensor, "dequantize", None)
    try:
        found = stands_for() if stands_for else tensor.as_subclass(torch.Tensor)
    except Exception:  # noqa: BLE001 -- another library's tensor, which then counts as one that is not named
        return None
    return found if type(found) is torch.Tensor else None


def _taps(taps: Mapping[str, str]) -> dict[str, list[tuple[str, slice]]]:
    found: dict[str, list[tuple[str, slice]]] = {}
    for name, text in taps.items():
        if (match := TAP.fullmatch(text)) is None:
            what = f"{text[:80]!r} names no place in a module"
            raise SubjectError("tap", what, remedy="write path, path:in or path:out")
        channels = slice(int(match["start"]), int(match["stop"])) if match["start"] else slice(None)
        point = f"{match['path']}.{match['side'] or 'out'}" if match["path"] else "logits"
        found.setdefault(point, []).append((name, channels))
    return found


def _same_bits(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    if other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    ours, theirs = _bytes(one), _bytes(other)
    words = len(ours) // 8 * 8  # compared eight bytes at a time, which is faster
    mine, others = ((side[:words].view(np.uint64), side[words:]) for side in (ours, theirs))
    return all(np.array_equal(part, its) for part, its in zip(mine, others, strict=True))


def captured(trace: Trace, point: str, like: torch.Tensor) -> torch.Tensor:
    """Return a point's values of as many sequences as another tensor has, as they are stored, on its device."""
    values = trace.stored(point, 0, like.shape[0])
    if values.dtype.name == "bfloat16":
        return torch.from_numpy(values.view("int16")).view(torch.bfloat16).to(like.device)
    return torch.from_numpy(values).to(like.device)


def _bytes(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()


def _closed(
    writer: TraceWriter | Again, stack: Stack | Torch, tokens: Tokens, observed: str, weights: Digests
) -> Trace:
    if isinstance(writer, Again):
        return writer.first
    name, device = stack.name, Device(requested=stack.device, observed=observed)
    if not name:
        name = f"torch {torch.__version__}, {type(getattr(stack, 'plain', stack)).__name__}"
    ids, parts = tuple(tuple(map(int, row)) for row in tokens), writer.parts
    # What a cache holds was written last, and stands behind what the attention was given.
    pairs = ((one, f"{one.removesuffix('.in')}{CACHE}") for one in parts if not one.endswith(CACHE))
    order = tuple(dict.fromkeys((*(one for pair in pairs for one in pair if one in parts), *parts)))
    digests = stack.digests(stack.dtype) if weights is None else weights
    more: dict[str, Any] = {"order": order, "weights": digests, "products": said_of(stack.products)}
    more |= {"partial": getattr(stack, "partial", False), "decoded": getattr(stack, "decode", 0)}
    more["padded"] = tuple(getattr(stack, "padded", ()))
    return writer.close(Facts(stack=name, device=device, dtype=stack.dtype, tokens=ids, **more))
