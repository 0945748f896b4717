"""The capture points of an architecture, of its configuration alone: no weight is read, and nothing is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from weighbridge.core import SubjectError, torch
from weighbridge.core.data import table
from weighbridge.forward.arithmetic.listening import listening
from weighbridge.forward.hugging_face import Directory
from weighbridge.forward.points import visited
from weighbridge.forward.stacks import called

LAYER = re.compile(r"(?<=\.)(\d+)(?=\.)")
NAMES = "forward/engine_names"
SHAPE = (2, 5)  # sequences and tokens, which no configuration has of anything else


def channels_of(directory: Directory) -> dict[str, int]:
    """Return the points of what a directory's configuration describes, in the order of computing, and their widths."""
    with suppress(Exception):
        return _visited(directory, torch.float32)
    try:  # grouped products of experts know no other dtype where there are no values
        return _visited(directory, torch.bfloat16)
    except Exception as problem:  # whatever code of a model raises that asks what a value is
        what = f"its points cannot be told without weights: {type(problem).__name__}: {problem}"
        remedy = "`weighbridge trace capture` runs the model, and `trace check FILE --all` lists its points"
        raise SubjectError("trace-points", what[:300], where=directory.spec, remedy=remedy) from problem


def _visited(directory: Directory, dtype: torch.dtype) -> dict[str, int]:
    import transformers

    found: dict[str, int] = {}
    config = transformers.AutoConfig.from_pretrained(directory.path, local_files_only=True)
    kind: Any = getattr(transformers, next(iter(config.architectures or ()), ""), transformers.AutoModelForCausalLM)

    def visit(point: str, rows: torch.Tensor) -> None:
        found.setdefault(point, rows.shape[2])

    with torch.device("meta"), _without_values(), torch.no_grad():
        make = getattr(kind, "_from_config", None) or kind.from_config
        model = make(config, dtype=dtype).eval()
        with visited(model, visit, SHAPE[0]):
            called(model, torch.zeros(SHAPE, dtype=torch.int64))
    return found


def names_of(point: str) -> Mapping[str, str]:
    """Return what each engine calls a point, or one of every layer `{n}`; nothing where no table names it."""
    named = table(NAMES)["points"].get(LAYER.sub("{n}", point, count=1), {})
    layer = next(iter(LAYER.findall(point)), "{n}")
    return {engine: str(name).replace("{n}", layer) for engine, name in named.items()}


@contextmanager
def _without_values() -> Iterator[None]:
    """Answer what asks for one value of a tensor without any by zero, which no point hangs on."""

    def operation(func: Any, args: Any, kwargs: Any) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001
            return args[0].dtype.is_floating_point * 0.0 if args[0].dtype is not torch.bool else False
        return func(*args, **kwargs)

    with listening(operation):
        yield
