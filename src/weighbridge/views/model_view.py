"""Look at a model's forward pass: of a factory, a Hugging Face directory or a trace. Runs none before it is needed."""

from __future__ import annotations

import importlib
import importlib.util
import math
import shutil
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from weighbridge.core import NDArray, Origin, SubjectError, Unmeasured, dumps, is_file, nearest, quoted
from weighbridge.core import sha256 as canonical_sha256
from weighbridge.formats.trace_key import is_trace
from weighbridge.forward.between_traces import Again
from weighbridge.forward.hugging_face import Directory
from weighbridge.forward.onnx_runtime import OnnxFile
from weighbridge.forward.products import Products, rough, said_of
from weighbridge.forward.reach import PLAIN, Form
from weighbridge.forward.stacks import Stack, Tokens, Torch, digests_of, has_cuda, raised_at
from weighbridge.forward.trace_file import ROUNDOFF, Trace, open_trace
from weighbridge.run_logs.book import read_book
from weighbridge.storage.mapped_file import MappedFile
from weighbridge.storage.readable import sha256

NO_CODE = Unmeasured(
    code="no-code",
    why="a trace holds values, and no code that could be run again in float64",
    remedy="bind the model itself as the reference; a trace may stand for the candidate",
)
NO_CUDA = Unmeasured(
    code="no-cuda",
    why="the model computes on CUDA and this host has none",
    remedy="run it on a host with CUDA, or write `requires: {cuda: true}`; a factory that returns None says the same",
)


@dataclass(frozen=True, slots=True)
class Factory:
    """A function in a file or a module, not yet imported."""

    place: str
    function: str
    in_file: bool  # else in a module

    @classmethod
    def named(cls, spec: str) -> Factory:
        """Read `module:function` or `path/to/file.py:function`; refuse with `factory-spec` or `no-file`."""
        place, _, function = spec.rpartition(":")
        if not place or not function.isidentifier():
            remedy = "write hf:DIR, onnx:FILE, module:function or path/to/file.py:function"
            raise SubjectError("factory-spec", f"{spec[:80]!r} names no factory", remedy=remedy)
        in_file = place.endswith(".py")
        if in_file and not is_file(Path(place)):
            raise SubjectError("no-file", "no such file", where=place, remedy="check the path before the colon")
        return cls(place, function, in_file)

    def make(self) -> object | None:
        """Call it; None where it wants CUDA and there is none; refuse with `no-factory` or `factory-raised`."""
        # It may import its neighbours, as `python file.py` and `python -m module` would.
        added = str(Path(self.place).resolve().parent if self.in_file else Path.cwd())
        sys.path.insert(0, added)
        try:
            return self._found()()
        except (SubjectError, KeyboardInterrupt):
            raise
        except BaseException as problem:
            # Its own code may even call sys.exit(0), which must not end this process as a pass.
            words = str(problem).lower()
            if ("cuda" in words or "nvidia" in words) and not has_cuda():
                return None
            what, where = f"the factory raised {type(problem).__name__}", f"{self.place}:{self.function}"
            remedy = "call it from Python; --debug shows the traceback"
            raise SubjectError("factory-raised", what, where=where, remedy=remedy) from problem
        finally:
            sys.path.remove(added)

    def digest(self, *others: Path | None) -> Mapping[str, str]:
        """Digest its source file, once known, and other files: name → sha256."""
        module = sys.modules.get(self.place)
        source = self.place if self.in_file else module.__file__ if module is not None else None
        files = filter(None, (Path(source) if source else None, *others))
        return {path.name: sha256(MappedFile(path)) for path in files}

    def _found(self) -> Callable[[], object]:
        module = _from_file(Path(self.place)) if self.in_file else importlib.import_module(self.place)
        found = getattr(module, self.function, None)
        if callable(found):
            return found  # type: ignore[no-any-return]
        own = (item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__)
        near = nearest(self.function, [item.__name__ for item in own if isinstance(item, FunctionType)])
        raise SubjectError("no-factory", f"no function {self.function!r}{near}", where=self.place)


def _from_file(path: Path) -> ModuleType:
    """Import one file under a name of its own, so that two files of one name stay apart."""
    name = f"weighbridge_factory_{canonical_sha256(str(path.resolve()).encode())[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def open_recorded(spec: str) -> ModelView:
    """Open a trace file and nothing else, so that nothing can run."""
    return ModelView(spec=spec, trace=open_trace(spec))


def open_model(spec: str) -> ModelView:
    """Open a trace file, `hf:DIR`, or a factory, which runs when it is first needed."""
    if is_trace(spec):
        return open_recorded(spec)
    source: Any = Directory if spec.startswith("hf:") else OnnxFile if spec.startswith("onnx:") else Factory
    return ModelView(spec=spec, source=source.named(spec))


@dataclass(slots=True, weakref_slot=True)
class Runs:
    """What a model was asked for already, shared by all views of it: the stack that was made, and its traces."""

    folder: Path | None = None
    made: Stack | Torch | Unmeasured | None = None
    asked: tuple[str, Tokens] | None = None
    checkpoint: str = ""
    prepared: dict[Any, Any] = field(default_factory=dict)
    traces: dict[Any, Trace] = field(default_factory=dict)
    noise: dict[Any, Mapping[str, float]] = field(default_factory=dict)
    products: Products | None = None
    taken: dict[Any, Any] = field(default_factory=dict)  # from a candidate, by the run of it
    own: dict[Any, Mapping[str, str]] = field(default_factory=dict)  # digests of what its file holds
    forms: dict[int, tuple[list[Form], Any]] = field(default_factory=dict)  # to be run in, by the run of a reference
    digests: Mapping[str, str] | None = None  # of a trace, and whether a witness saw it: its book, and why it does not
    witness: tuple[str, str] | None = None

    def path(self, name: str) -> Path:
        """Return the path of a trace to be written; it is gone when no view is left."""
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="weighbridge-trace-"))
            weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        return self.folder / name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelView:
    """A model seen at its capture points. Its runs are kept as traces, so that a cut or damaged view costs no other."""

    spec: str
    source: Any = None
    trace: Trace | None = None
    part: tuple[int, int] | None = None  # how many of its sequences, and tokens of these, are looked at
    damage: tuple[str, float] | None = None  # a value over one point
    products: Products = field(default_factory=dict)  # whose factors it rounds as a trusted run
    weights: str = ""  # the name under which its weights were taken from a candidate
    form: Form = PLAIN  # of its inputs, where that says anything, instead of its own
    runs: Runs = field(default_factory=Runs)

    def stack(self) -> Stack | Torch | Unmeasured:
        """Return what the factory made, once; Unmeasured `no-code` for a trace, `no-cuda` where CUDA is lacking."""
        if self.trace is not None:
            return NO_CODE
        if self.runs.made is None:
            self.runs.made = self._made()
            self.runs.checkpoint = getattr(self.runs.made, "checkpoint", "")
        return self.runs.made

    def dtype_and_tokens(self) -> tuple[str, Tokens] | Unmeasured:
        """Return what it computes in and its inputs, as it says itself."""
        if self.trace is not None:
            return self.trace.facts.dtype, self.trace.facts.tokens
        if self.runs.asked is None:
            stack = self.stack()
            if isinstance(stack, Unmeasured):
                return stack
            self.runs.asked = stack.dtype or self.prepared("").dtype, stack.tokens
        return self.runs.asked

    def said_products(self) -> Products:
        """Return what the factors of its products are rounded to, as it says itself, by glob."""
        if self.trace is not None:
            return self.trace.facts.products
        if self.runs.products is None:  # asked again, it is not made again
            stack = self.stack()
            self.runs.products = said_of(stack.products) if isinstance(stack, (Stack, Torch)) else {}
        return self.runs.products

    def weights_file(self) -> Path | None:
        """Return the file that a trace or a stack without code read its weights from; refuse with `weights-file`."""
        if self.trace is None:
            return self._checkpoint() if isinstance(self.stack(), Stack) else None
        name, files = self.trace.facts.checkpoint, self.trace.facts.files
        if not name:
            return None
        path = Path(self.spec).parent / name
        if Path(name).name != name or not is_file(path) or sha256(MappedFile(path)) != files.get(name, ""):
            what = f"{quoted(name)} is not beside the trace with the bytes that `files` says"
            remedy = "put the file that the stack read beside the trace, and its sha256 into `files`"
            raise SubjectError("weights-file", what, where=self.spec, remedy=remedy)
        return path

    def taking(self, weights: Mapping[str, NDArray[Any]], dtype: str) -> ModelView:
        """Return it with other weights in a dtype, which are kept under their digest."""
        name = canonical_sha256(dumps(digests_of(weights.items(), dtype)))
        self.runs.prepared[dtype, name] = self.prepared(dtype).with_weights(weights.items())
        return replace(self, weights=name)

    def prepared(self, dtype: str) -> Any:
        """Return the stack, ready to compute in a dtype, or in its own."""
        key: Any = (dtype, self.weights) if self.weights else dtype
        if key not in self.runs.prepared:
            stack = self.stack()
            assert not isinstance(stack, Unmeasured)
            self.runs.prepared[dtype] = stack.prepared(dtype) if isinstance(stack, Torch) else stack
        said: Any = {name: one for name, one in self.form._asdict().items() if one}
        return replace(self.runs.prepared[key], **said) if said else self.runs.prepared[key]

    def capture(
        self, tokens: Tokens, dtype: str, points: frozenset[str] | None = None, beside: ModelView | None = None
    ) -> Trace:
        """Return the trace of a run in a dtype; `points` are those of the other side, as `Torch.capture` takes them.

        Weights with the bits of those of a model `beside` it, which ran on these tokens, are not digested again.
        """
        trace = self.trace or self._captured(tokens, dtype, points, "first", beside)
        return replace(trace if self.part is None else trace.cut(*self.part), damage=self.damage)

    def rough(self, tokens: Tokens, dtype: str) -> Trace:
        """Return the trace of a run in a dtype by the roughest kernels that are right."""
        with rough():
            trace = self._captured(tokens, dtype, None, "rough")
        return trace if self.part is None else trace.cut(*self.part)

    def stepwise(self, tokens: Tokens, dtype: str, given: Trace) -> Trace:
        """Return the trace of a run in a dtype in which each step starts from the values of another run."""
        path = self.runs.path(f"{len(self.runs.traces)}-stepwise.trace")
        path.unlink(missing_ok=True)  # an older one may still be open
        stack: Torch = replace(self.prepared(dtype), decode=0)
        return stack.capture(tokens, path, weights={}, given=given, products=self.products)

    def noise(self, tokens: Tokens, dtype: str, points: frozenset[str] | None) -> Mapping[str, float] | None:
        """Return by point how far a second run is from the first, relative L2: infinite where one is not finite."""
        if self.trace is not None:
            facts, said = self.trace.facts, self.trace.facts.noise
            if said is None:
                return None
            return {name: math.inf if (found := said.get(name, 0.0)) is None else found for name in facts.order}
        if (key := self._key(tokens, dtype, points)) not in self.runs.noise:
            again = Again(self._captured(tokens, dtype, points, "first"))
            self._captured(tokens, dtype, points, again)
            self.runs.noise[key] = {name: again.noise(name) for name in again.seen if name in again.first.tensors}
        return self.runs.noise[key]

    def _key(self, tokens: Tokens, dtype: str, points: frozenset[str] | None) -> tuple[Any, ...]:
        return tuple(map(tuple, tokens)), dtype, points, tuple(sorted(self.products.items())), self.weights, self.form

    def _captured(
        self, tokens: Tokens, dtype: str, points: frozenset[str] | None, which: str | Again,
        beside: ModelView | None = None,
    ) -> Trace:  # fmt: skip
        key = (*self._key(tokens, dtype, points), which)
        if isinstance(which, Again) or key not in self.runs.traces:
            path = which if isinstance(which, Again) else self.runs.path(f"{len(self.runs.traces)}-{which}.trace")
            before = next((trace.facts.weights for (_, of, *_), trace in self.runs.traces.items() if of == dtype), None)
            try:
                stack = self.prepared(dtype)
                if before is None and beside is not None and isinstance(stack, Torch):
                    known = beside.capture(tokens, dtype).facts.weights
                    before = stack.digests(dtype, beside.prepared(dtype), known)
                more: dict[str, Any] = {"products": self.products} if self.products else {}
                trace: Trace = stack.capture(tokens, path, points, before, **more)
            except (SubjectError, KeyboardInterrupt):
                raise
            except BaseException as problem:
                what = f"the forward pass in {dtype} raised {type(problem).__name__}"
                remedy = f"{raised_at(problem)}run the model alone in that dtype; --debug shows the traceback"
                raise SubjectError("forward-raised", what, where=self.spec, remedy=remedy) from problem
            if isinstance(which, Again):
                return trace
            self.runs.traces[key] = trace
        return self.runs.traces[key]

    def release(self) -> None:
        """Let go of the model, whose runs are kept; it is made again where it is asked for again."""
        self.runs.prepared.clear()
        if not isinstance(self.runs.made, Unmeasured):
            self.runs.made = None

    def cut(self, sequences: int, tokens: int) -> ModelView:
        """Return a view of the first sequences alone, and of these the first tokens."""
        return replace(self, part=(sequences, tokens))

    def overlaid(self, point: str, value: float) -> ModelView:
        """Lay a value over the last channel of the last token of the first sequence at a point."""
        return replace(self, damage=(point, value))

    @property
    def origin(self) -> Origin:
        """Return LIVE once weights are known to come from a file; a trace must say so, and a witness have seen it."""
        if self.trace is None:
            return Origin.LIVE if self._checkpoint() is not None else Origin.SYNTHETIC
        facts = self.trace.facts
        if not (facts.weights and facts.files and facts.device.observed):
            return Origin.SYNTHETIC
        return Origin.REPORTED if self.unwitnessed else Origin.LIVE

    @property
    def book(self) -> str | None:
        """Return the digest of the witness's book that stands for a trace, "" where none does; None without a trace."""
        return None if self.trace is None else self._witnessed()[0]

    @property
    def unwitnessed(self) -> str:
        """Return why no witness's book stands for a trace; "" where one does."""
        return self._witnessed()[1]

    def _witnessed(self) -> tuple[str, str]:
        if self.runs.witness is None:
            book = read_book(Path(self.spec))
            assert self.trace is not None
            why = book.why or book.doubt(self.digest(), device=self.trace.facts.device.observed)
            self.runs.witness = "" if why else book.digest, why
        return self.runs.witness

    def digest(self) -> Mapping[str, str]:
        """Digest the trace, or the factory's source file and, once it has run, the checkpoint that it read: sha256."""
        if self.trace is None:
            digests: Mapping[str, str] = self.source.digest(self._checkpoint())
            return digests
        if self.runs.digests is None:
            self.runs.digests = {Path(self.spec).name: sha256(self.trace.file)}
        return self.runs.digests

    def _checkpoint(self) -> Path | None:
        named = self.runs.checkpoint
        return Path(named) if named and is_file(Path(named)) else None

    def _made(self) -> Any:
        if (made := self.source.make()) is None:
            return NO_CUDA
        if type(made).__module__ != Torch.__module__ and hasattr(made, "named_modules"):
            made = Torch(module=made)
        if not isinstance(made, (Stack, Torch)) or not _typed(made):
            odd = "with fields of another type" if isinstance(made, (Stack, Torch)) else "which cannot be run forward"
            what = f"the factory returned {type(made).__name__}, {odd}"
            remedy = "return an nn.Module, weighbridge.forward.stacks.Torch or weighbridge.forward.stacks.Stack"
            raise SubjectError("not-a-forward", what, where=self.spec, remedy=remedy)
        if made.dtype and made.dtype not in ROUNDOFF:
            what = f"a candidate in {made.dtype} cannot be distinguished from a float64 truth"
            return Unmeasured(code="dtype-unsupported", why=what, remedy=f"compute in one of {', '.join(ROUNDOFF)}")
        return NO_CUDA if made.device.startswith("cuda") and has_cuda() is False else made


def _typed(made: Stack | Torch) -> bool:
    rows: Any = made.tokens
    listed = isinstance(rows, (list, tuple)) and all(isinstance(row, (list, tuple)) for row in rows)
    said: Any = made.products if isinstance(made.products, dict) else {"*": made.products}
    listed = listed and all(isinstance(one, str) for pair in said.items() for one in pair)
    whole = listed and all(type(token) is int and token >= 0 for row in rows for token in row)
    return whole and all(isinstance(one, str) for one in (made.dtype, made.device, made.checkpoint, made.name))
