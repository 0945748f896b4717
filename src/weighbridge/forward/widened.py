"""Float64 without rewriting a model: every operation is widened as it runs, and what did not become float64 is counted.

A weight is widened where an operation reads it. A module cast by `.double()` often still computes norms, softmax and
rotary angles in float32, which is no truth. Only operations of PyTorch in this thread are seen.

Computed constants (rotary frequencies) are made again in float64 for the truth, and compared with those of the model.
One that was cast to bfloat16 and back keeps them rounded for good. Parts that have their `config` make them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Annotated, Any, TypeAlias

from weighbridge.core import Doc, NDArray, dataclass, field, np, torch

LOWER = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
WIDER = {**dict.fromkeys(LOWER, "float64"), "complex64": "complex128"}
AT_ONCE = 1 << 19  # elements of a matrix of weights that are widened at a time, and stay in a core's cache
DIGITS = {8: "bfloat16", 11: "float16"}  # significant binary digits
DIGITS_PLAIN = 4  # a value of at most so many digits (0.5, 0.75, 8) tells nothing about rounding
TELLING = 4  # so many distinct values with more digits do
Way: TypeAlias = "Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]"  # of a function and what it is given
FLOAT32 = 2.0**-21  # relative: what a few operations in float32 leave


@dataclass(slots=True)
class Audit:
    """What a widened pass did: operations on floating tensors, those below float64, and what values came from."""

    operations: int = 0
    lower: int = 0
    first: str = ""
    sources: dict[int, frozenset[str]] = field(default_factory=dict)  # by storage, since each was last replaced
    makers: dict[int, frozenset[str]] = field(default_factory=dict)  # the same of the operations

    def made_from(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """Return the points that a tensor was made from, sorted."""
        return tuple(sorted(self.sources.get(tensor.untyped_storage().data_ptr(), ())))

    def made_by(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """Return the names of the operations that made a tensor of these points, sorted."""
        return tuple(sorted(self.makers.get(tensor.untyped_storage().data_ptr(), ())))

    def is_point(self, point: str, tensor: torch.Tensor) -> None:
        """Note that what is made of this tensor from now on is made from this point; other parts of it stay as well."""
        storage = tensor.untyped_storage()
        others = () if storage.nbytes() == tensor.nbytes else self.sources.get(storage.data_ptr(), ())
        self.sources[storage.data_ptr()] = frozenset((point, *others))
        self.makers.pop(storage.data_ptr(), None)


@contextmanager
def widened() -> Iterator[Audit]:
    """Compute every operation inside the block in float64: its arguments, the dtypes that it asks for, its factories.

    One that writes into a tensor below float64 is counted as lower. A view stays one of the same memory.
    """
    from torch.utils import _pytree

    low = {getattr(torch, name): getattr(torch, wide) for name, wide in WIDER.items() if hasattr(torch, name)}
    audit = Audit()
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)

    def wide(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.to(low[leaf.dtype]) if leaf.dtype in low else leaf
        return low.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf

    def operation(func: Any, args: Any, kwargs: Any) -> Any:
        given = tensors_in((args, kwargs))
        in_place = func._schema.is_mutable and any(leaf.dtype in low for leaf in given[:1])  # noqa: SLF001
        if func is torch.ops.aten.embedding.default:  # rows of a table are widened behind, not the whole table before
            result = wide(func(*args, **kwargs))
        elif func in products and args[-1].dtype in low:
            *bias, rows = (wide(one) for one in args[:-1])
            result = _with_bias(_product(rows, args[-1]), bias, **kwargs)
        else:
            if not in_place and not func.is_view:
                args, kwargs = _pytree.tree_map(wide, (args, kwargs))
            own = func.name() == "aten::_grouped_mm"  # whose kernel knows no float64
            result = (_grouped_mm if own else func)(*args, **kwargs)
        _audit(audit, func, tensors_in(result), given, in_place)
        return result

    def call(func: Any, args: Any, kwargs: Any) -> Any:
        if getattr(func, "__name__", "").startswith("conv"):  # these compare dtypes before they are dispatched
            args, kwargs = _pytree.tree_map(wide, (args, kwargs))
        return func(*args, **kwargs)

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with listening(operation, call):
            yield audit
    finally:
        torch.set_default_dtype(before)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in what an operation is given, or makes."""
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _with_bias(product: torch.Tensor, bias: list[torch.Tensor], *, alpha: float = 1, beta: float = 1) -> torch.Tensor:
    scaled = product if alpha == 1 else product.mul_(alpha)
    return scaled.add_(bias[0], alpha=beta) if bias else scaled


def _product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Multiply rows by a matrix of weights, of which no float64 copy is made: some columns at a time are widened."""
    made = rows.new_empty(rows.shape[0], weight.shape[1])
    width = max(1, AT_ONCE // max(1, weight.shape[0]))
    for start in range(0, weight.shape[1], width):
        some = slice(start, start + width)
        torch.mm(rows, weight[:, some].to(rows.dtype), out=made[:, some])
    return made


def _grouped_mm(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, *_none: None, **_nothing: None) -> Any:
    stops = ends.tolist()
    groups = zip([0, *stops], stops, weights, strict=False)
    return torch.cat([rows[start:stop] @ weight for start, stop, weight in groups])


def _audit(audit: Audit, func: Any, made: list[torch.Tensor], given: list[torch.Tensor], in_place: bool) -> None:
    floating = [leaf for leaf in made if leaf.is_floating_point() or leaf.is_complex()]
    names = [str(leaf.dtype).removeprefix("torch.") for leaf in floating]
    below = [name for name in names if name not in ("float64", "complex128") and not func.is_view]
    audit.operations += bool(floating)
    if below or in_place:
        audit.lower += 1
        audit.first = audit.first or f"{func} in {(below or [str(given[0].dtype).removeprefix('torch.')])[0]}"
    storages = {leaf.untyped_storage().data_ptr() for leaf in given}
    name = frozenset() if func.is_view else frozenset((func.__name__.partition(".")[0].rstrip("_"),))
    for by_storage, own in ((audit.sources, frozenset()), (audit.makers, name)):
        known = own.union(*(by_storage.get(pointer, ()) for pointer in storages))
        # A view shares its storage with what it was made of; new storage may lie where an older one was freed.
        by_storage.update((leaf.untyped_storage().data_ptr(), known) for leaf in made)


@contextmanager
def unwatched() -> Iterator[None]:
    """Leave what is done inside the block out of every mode: neither widened nor counted."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C.DisableTorchFunction():  # noqa: SLF001 -- the one way to leave that mode
        yield


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """What the computed constants of a model are worth as a truth."""

    of: Annotated[int, Doc("computed floating constants")] = 0
    rebuilt: Annotated[int, Doc("of them, made again in float64 for the truth")] = 0
    rounded: Annotated[int, Doc("of them, those that only a lower precision than float32 could have made")] = 0
    first_rounded: Annotated[str, Doc("the first of those and what it was rounded to, empty where there is none")] = ""


@contextmanager
def rebuilt(module: torch.nn.Module) -> Iterator[Constants]:
    """Put float64 constants in the place of computed ones inside the block, and return what was found."""
    stored, parts = set(module.state_dict()), dict(module.named_modules())
    computed = ((name, current) for name, current in module.named_buffers() if name not in stored)
    names = [name for name, current in computed if current.is_floating_point() and current.numel()]
    before, made, rounded = list[tuple[torch.nn.Module, str, torch.Tensor]](), dict[str, Any](), list[str]()
    for part in parts.values():  # a pass over long inputs computes these, keeps them, and writes them over a constant
        for own in [own for own in vars(part) if own.endswith("long_inv_freq")]:
            before.append((part, own, getattr(part, own)))
            delattr(part, own)
    overwritten = {(part, own.replace("long_inv_freq", "inv_freq")) for part, own, _ in before}
    for name in names:
        path, _, own = name.rpartition(".")
        part = parts[path]
        if path not in made:
            made[path] = _made_again(part)
        again: Any = getattr(made[path], own, None)
        current, near = getattr(part, own), False
        if isinstance(again, torch.Tensor) and again.shape == current.shape:
            wide, exact = current.double(), again.to(current.device, torch.float64)
            near = (part, own) in overwritten or bool(((wide - exact).abs() <= FLOAT32 * exact.abs()).all())
        if near:
            before.append((part, own, current))
            setattr(part, own, again.to(current.device))
        elif lower := _lower(current):
            rounded.append(f"{name} to {lower}")
    try:
        many, first = len(before) - len(overwritten), next(iter(rounded), "")
        yield Constants(of=len(names), rebuilt=many, rounded=len(rounded), first_rounded=first)
    finally:
        for part, own, current in before:
            setattr(part, own, current)


def _made_again(part: torch.nn.Module) -> Any:
    """Return a part like this one, made in float64 from its configuration; None where it cannot be."""
    if (config := getattr(part, "config", None)) is None:
        return None
    try:
        with widened():
            return type(part)(config)
    except Exception:  # noqa: BLE001 -- any code may stand behind it; then it is as if there were no configuration
        return None


def _lower(current: torch.Tensor) -> str:
    """Return the lower precision that every value of a constant has, though they are not round numbers; else empty."""

    def to_digits(values: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
        mantissa, exponent = np.frexp(values)
        near: NDArray[np.float64] = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
        return near

    values = current.detach().cpu().double().numpy()
    finite = np.unique(values[np.isfinite(values)])
    telling = (finite != np.rint(finite)) & (finite != to_digits(finite, DIGITS_PLAIN))
    if int(np.count_nonzero(telling)) < TELLING:
        return ""
    return next((name for digits, name in DIGITS.items() if np.array_equal(finite, to_digits(finite, digits))), "")


# --- Modes of PyTorch in which every operation, or every call of a function, goes by way of another -------------------


@contextmanager
def listening(operation: Way | None = None, call: Way | None = None) -> Iterator[None]:
    """Let every operation of ATen inside the block be made by `operation`, and every function of PyTorch by `call`."""
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    def made(way: Way) -> Callable[..., Any]:
        return lambda _mode, func, _types, args=(), kwargs=None: way(func, args, kwargs or {})

    operations: Any = operation and type("Operations", (TorchDispatchMode,), {"__torch_dispatch__": made(operation)})
    calls: Any = call and type("Calls", (TorchFunctionMode,), {"__torch_function__": made(call)})
    with ExitStack() as modes:
        for mode in filter(None, (operations, calls)):
            modes.enter_context(mode())
        yield


@contextmanager
def passes_of(module: torch.nn.Module) -> Iterator[list[str]]:
    """Yield the paths of the parts whose forward passes are under way, the innermost last; the first is of none."""
    paths = [""]

    def begins(path: str, *_: object) -> None:
        paths.append(path)

    def ends(*_: object) -> None:
        paths.pop()

    with ExitStack() as hooks:
        for path, part in module.named_modules():
            hooks.callback(part.register_forward_pre_hook(partial(begins, path)).remove)
            hooks.callback(part.register_forward_hook(ends, always_call=True).remove)
        yield paths
