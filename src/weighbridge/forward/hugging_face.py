"""A Hugging Face directory as a model: `hf:DIR`, or `hf:DIR?dtype=bfloat16&decode=8`; no code in it is ever run.

And the capture points of its architecture, of its configuration alone: no weight is read, and nothing is computed.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from weighbridge.core import SubjectError, dataclass, field, torch
from weighbridge.core.data import table
from weighbridge.core.local_files import files_sha256
from weighbridge.forward.points import visited
from weighbridge.forward.stacks import Torch, called, has_cuda
from weighbridge.forward.widened import listening

KNOWN = ("dtype", "attn_implementation", "device", "compile", "experts_implementation", "decode", "products")
LAYER = re.compile(r"(?<=\.)(\d+)(?=\.)")
NAMES = "forward/engine_names"
SHAPE = (2, 5)  # sequences and tokens, which no configuration has of anything else


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory with a configuration and weights, and how to load it."""

    spec: str
    path: Path
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def named(cls, spec: str) -> "Directory":
        """Read `hf:DIR?key=value&…`; refuse with `hf-option` or `no-file`."""
        place, _, asked = spec.removeprefix("hf:").partition("?")
        options = dict(parse_qsl(asked, keep_blank_values=True))
        if odd := sorted(set(options) - set(KNOWN)):
            raise SubjectError("hf-option", f"unknown option {odd[0]!r}", where=spec, remedy=f"use {', '.join(KNOWN)}")
        if not options.get("decode", "0").isdecimal():
            raise SubjectError("hf-option", "`decode` is no number of tokens", where=spec, remedy="write decode=8")
        if not (Path(place) / "config.json").is_file():
            remedy = "name a directory as `save_pretrained` writes it"
            raise SubjectError("no-file", "no config.json there", where=place, remedy=remedy)
        return cls(spec=spec, path=Path(place), options=options)

    def make(self) -> object | None:
        """Return the model, loaded; None where it wants CUDA and there is none."""
        try:
            import torch
            import transformers
            from transformers.utils import logging
        except ImportError as problem:
            what, remedy = f"{problem.name} is not installed", "pip install torch transformers"
            raise SubjectError("no-transformers", what, where=self.spec, remedy=remedy) from None
        if self.options.get("device", "").startswith("cuda") and not has_cuda():
            return None
        named: dict[str, Any] = {key: one for key, one in self.options.items() if key.endswith("_implementation")}
        named |= {"dtype": self.options.get("dtype", "auto"), "output_loading_info": True}
        files_alone: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        logging.disable_progress_bar()  # the report is what is shown
        model: Any
        try:
            config = transformers.AutoConfig.from_pretrained(self.path, **files_alone)
            known = getattr(transformers, next(iter(config.architectures or ()), ""), transformers.AutoModelForCausalLM)
            model, loaded = known.from_pretrained(self.path, **files_alone, **named)
            model = model.to(self.options.get("device", "cpu"))
        except Exception as problem:  # whatever a configuration that does not fit, or too little memory, raises
            what = f"transformers cannot load it: {type(problem).__name__}: {problem}"
            remedy = "load it with transformers alone"
            raise SubjectError("hf-load", what[:400], where=self.spec, remedy=remedy) from problem
        if drawn := sorted(loaded["missing_keys"]):
            what = f"{len(drawn)} weights are not in its files, so transformers draws them: {drawn[0]}"
            remedy = "save the model whose class `architectures` in config.json names"
            raise SubjectError("hf-load", what, where=self.spec, remedy=remedy)
        if "compile" in self.options:
            model = torch.compile(model)
        weights = sorted(self.path.glob("*.safetensors")) or sorted(self.path.glob("*.bin"))
        checkpoint, decode = str(weights[0]) if weights else "", int(self.options.get("decode", "0"))
        dtype, products = (self.options.get(name, "") for name in ("dtype", "products"))
        return Torch(module=model, dtype=dtype, checkpoint=checkpoint, decode=decode, products=products)

    def digest(self, *_others: Path | None) -> Mapping[str, str]:
        """Digest the files of the directory that a model is made of: name → sha256."""
        files = sorted(one for one in self.path.iterdir() if one.suffix in (".safetensors", ".bin", ".json"))
        return {one.name: files_sha256(one) for one in files}


def channels_of(directory: Directory) -> dict[str, tuple[int, bool]]:
    """Return a configuration's points in order: their widths, and whether one value is of all sequences."""
    with suppress(Exception):
        return _visited(directory, torch.float32)
    try:  # grouped products of experts know no other dtype where there are no values
        return _visited(directory, torch.bfloat16)
    except Exception as problem:  # whatever code of a model raises that asks what a value is
        what = f"its points cannot be told without weights: {type(problem).__name__}: {problem}"
        remedy = "`weighbridge trace capture` runs the model, and `trace check FILE --all` lists its points"
        raise SubjectError("trace-points", what[:300], where=directory.spec, remedy=remedy) from problem


def _visited(directory: Directory, dtype: "torch.dtype") -> dict[str, tuple[int, bool]]:
    import transformers

    found: dict[str, tuple[int, bool]] = {}
    config = transformers.AutoConfig.from_pretrained(directory.path, local_files_only=True, trust_remote_code=False)
    kind: Any = getattr(transformers, next(iter(config.architectures or ()), ""), transformers.AutoModelForCausalLM)

    def visit(point: str, rows: "torch.Tensor") -> None:
        found.setdefault(point, (rows.shape[2], len(rows) < SHAPE[0]))

    with torch.device("meta"), listening(_without_values), torch.no_grad():
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


def _without_values(func: Any, args: Any, kwargs: Any) -> Any:
    """Answer what asks for one value of a tensor without any by zero, which no point hangs on."""
    if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001
        return args[0].dtype.is_floating_point * 0.0 if args[0].dtype is not torch.bool else False
    return func(*args, **kwargs)
