"""Quantise converted models to every mixture that llama.cpp's quantiser has, and weigh each against its source.

Needs what `conversions.py` needs, and llama.cpp's library, built from the same sources (target `llama`):

    python -m benchmarks.quantised_conversions --converter …/vendor/llama.cpp --library …/libllama.so \\
        --work /tmp/quantised [--imatrix …/llama-imatrix] [--only llama] [--source DIRECTORY] [--ftypes Q4_K_M,IQ4_XS]

Each mixture is made without an importance matrix; with a drawn one (log-normal, a spread of e², wider than most); and,
given the tool, with one that llama.cpp measures over a text. Prints a line for each; then, type by type, how far the
relative RMSE of the tensors is from the one that value-preservation's table gives normally distributed values.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from benchmarks import families
from click.testing import CliRunner

from weighbridge.cli.compare import command as compare
from weighbridge.core.model import Measurement
from weighbridge.gates.families.block_types import BOUND, TYPICAL_ERROR
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import TensorPair
from weighbridge.verifiers.tensor_values import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Importances = Mapping[str, NDArray[Any]]
    Errors = dict[tuple[str, str], list[float]]

VARIANTS = ("plain", "drawn", "measured")
# File types by the names that policies use: llama.h's numbers.
FTYPES: Mapping[str, int] = {
    "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13,
    "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21,
    "IQ3_XS": 22, "IQ3_XXS": 23, "IQ1_S": 24, "IQ4_NL": 25, "IQ3_S": 26, "IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29,
    "IQ4_XS": 30, "IQ1_M": 31, "TQ1_0": 36, "TQ2_0": 37, "MXFP4_MOE": 38,
}  # fmt: skip
SUMS = ".in_sum2"
SPREAD = 2.0  # of the logarithm of a drawn importance

WIDE = {"hidden_size": 256, "num_hidden_layers": 2, "intermediate_size": 512, "num_attention_heads": 4}
ROTARY = {**WIDE, "head_dim": 64, "num_key_value_heads": 2, "max_position_embeddings": 128}
CHANGED = {
    "llama": ROTARY,
    "llama-odd": {
        **ROTARY,
        "hidden_size": 320,
        "head_dim": 80,
        "intermediate_size": 400,
    },  # not whole blocks of 256, nor of 32
    "llama-tied": ROTARY,
    "qwen2": ROTARY,
    "qwen3": {**ROTARY, "head_dim": 64},
    "mixtral": {**ROTARY, "num_local_experts": 8},
    "gemma": {**ROTARY, "head_dim": 64},
    "gpt2": {"n_embd": 256},
    "gptneox": WIDE,
    "falcon": {**WIDE, "num_kv_heads": 2, "ffn_hidden_size": 512},
    "phi3": ROTARY,
    "bert": WIDE,
    "t5": {"d_model": 256, "d_kv": 64, "d_ff": 512},
    "mamba": {"hidden_size": 256, "intermediate_size": 512},
}


class Imatrix(ctypes.Structure):
    """llama.h: `llama_model_imatrix_data`."""

    _fields_ = (("name", ctypes.c_char_p), ("data", ctypes.POINTER(ctypes.c_float)), ("size", ctypes.c_size_t))


class Parameters(ctypes.Structure):
    """llama.h: `llama_model_quantize_params`."""

    _fields_ = (
        ("nthread", ctypes.c_int32), ("ftype", ctypes.c_int), ("output_tensor_type", ctypes.c_int),
        ("token_embedding_type", ctypes.c_int), ("allow_requantize", ctypes.c_bool),
        ("quantize_output_tensor", ctypes.c_bool), ("only_copy", ctypes.c_bool), ("pure", ctypes.c_bool),
        ("keep_split", ctypes.c_bool), ("dry_run", ctypes.c_bool), ("imatrix", ctypes.POINTER(Imatrix)),
        ("kv_overrides", ctypes.c_void_p), ("tt_overrides", ctypes.c_void_p), ("prune_layers", ctypes.c_void_p),
        ("max_buf_size", ctypes.c_size_t),
    )  # fmt: skip


LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)


@dataclass(slots=True)
class Quantiser:
    """llama.cpp's library, and what it said last."""

    path: Path
    said: list[str] = field(default_factory=list)
    _library: ctypes.CDLL = field(init=False)
    _log: object = field(init=False)

    def __post_init__(self) -> None:
        """Load the library and listen to what it says."""
        self._library = ctypes.CDLL(str(self.path))
        self._library.llama_model_quantize_default_params.restype = Parameters
        self._library.llama_model_quantize.restype = ctypes.c_uint32
        self._log = LOG(lambda _level, text, _user: self.said.append(text.decode(errors="replace")))
        self._library.llama_log_set(self._log, None)
        self._library.llama_backend_init()

    def quantise(self, source: Path, target: Path, ftype: int, importances: Importances) -> str:
        """Quantise one file, and give the library's last words where it refuses."""
        self.said.clear()
        given = self._library.llama_model_quantize_default_params()
        given.ftype, given.nthread = ftype, 2
        kept = {name: np.ascontiguousarray(values, np.float32) for name, values in importances.items()}
        pointer = ctypes.POINTER(ctypes.c_float)
        listed = [Imatrix(name.encode(), v.ctypes.data_as(pointer), v.size) for name, v in kept.items()]
        if listed:
            given.imatrix = (Imatrix * (len(listed) + 1))(*listed, Imatrix())
        failed = self._library.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(given))
        if failed:
            target.unlink(missing_ok=True)
        return (next((line for line in reversed(self.said) if line.strip()), "") or "refused") if failed else ""


def drawn(path: Path) -> Importances:
    """Draw the importance of each column of each matrix, for every expert."""
    rng = np.random.default_rng(7)
    found = {}
    for name, tensor in open_checkpoint(path).tensors.items():
        if len(tensor.shape) > 1 and name.endswith(".weight"):
            experts = tensor.shape[0] if len(tensor.shape) == 3 else 1
            found[name] = np.exp(SPREAD * rng.standard_normal(experts * tensor.shape[-1]))
    return found


def measured(tool: Path, path: Path) -> Importances:
    """Let llama.cpp measure the mean square of each column's activations; none where it cannot run the model."""
    text, target = path.with_suffix(".txt"), path.with_suffix(".imatrix.gguf")
    text.write_text(families.TEXT * 200)
    command = [str(tool), "-m", str(path), "-f", str(text), "-o", str(target), "-c", "64", "--chunks", "20", "-t", "1"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or not target.exists():
        return {}
    tensors = {tensor.name: tensor.data for tensor in gguf.GGUFReader(target).tensors}
    sums = {name.removesuffix(SUMS): data for name, data in tensors.items() if name.endswith(SUMS)}
    counts = {name: tensors[name + ".counts"].reshape(-1, 1) for name in sums}
    # An expert that no token reached has no activations; the quantiser's own reader takes ones.
    return {
        name: np.where(counts[name] > 0, sums[name].reshape(len(counts[name]), -1) / np.maximum(counts[name], 1), 1.0)
        for name in sums
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighed:
    """What weighing one file gave: outcome, classes, types, and the errors of each type."""

    outcome: str
    told: str
    errors: Sequence[tuple[str, float]]


def weigh(source: Path, target: Path, ftype: str) -> Weighed:
    """Compare a quantised file with the source that it was converted from."""
    done = CliRunner().invoke(compare, [str(source), str(target), "--json", "--policy", f"quantised:{ftype}"])
    if not done.stdout.startswith("["):
        return Weighed(outcome="ERROR", told=done.output, errors=())
    (answer,) = json.loads(done.stdout)
    rows = _rows(source, target)
    types = Counter(row.candidate_dtype for row in rows if row.candidate_dtype)
    classes = Counter(answer["classes"].values())
    errors = [(row.candidate_dtype, row.relative_rmse) for row in rows
              if row.candidate_dtype in TYPICAL_ERROR and row.relative_rmse]  # fmt: skip
    said = answer["finding"]["says"] if answer["finding"]["outcome"] != "PASS" else []
    told = ", ".join(f"{count} {name}" for name, count in sorted(classes.items()))
    held = " ".join(f"{name}:{count}" for name, count in sorted(types.items()))
    lines = "\n    ".join((f"{told} [{held}]", *said))
    return Weighed(outcome=answer["finding"]["outcome"], told=lines, errors=errors)


def _rows(source: Path, target: Path) -> Sequence[TensorPair]:
    found = VERIFIER.measure((open_checkpoint(source), open_checkpoint(target)), {})
    assert isinstance(found, Measurement)
    return rows_of(found, TensorPair)


def sources(given: argparse.Namespace) -> Iterator[Path]:
    """Give the directories of the models to quantise, made where they are not there."""
    if given.source:
        yield given.source
        return
    for name in given.only or CHANGED:
        folder = given.work / name
        if not (folder / "config.json").exists():
            families.build(name.removesuffix("-odd"), "float32", folder, changed=CHANGED[name])
        yield folder


def tell(errors: Errors) -> None:
    """Print, for each type, the errors of its tensors as multiples of the typical one."""
    print(
        f"{'type':8} {'typical':>8} {'bound':>8}" + "".join(f" | {name + ': tensors, ratios':>30}" for name in VARIANTS)
    )
    for dtype in sorted({dtype for dtype, _ in errors}, key=TYPICAL_ERROR.__getitem__):
        cells = [
            _ratios([error / TYPICAL_ERROR[dtype] for error in errors.get((dtype, name), ())]) for name in VARIANTS
        ]
        print(
            f"{dtype:8} {TYPICAL_ERROR[dtype]:8.4f} {BOUND[dtype]:8.4f}" + "".join(f" | {cell:>30}" for cell in cells)
        )


def _ratios(found: list[float]) -> str:
    """Give the count, the least, the median and the most."""
    return f"{len(found)}: {min(found):.3f} {statistics.median(found):.3f} {max(found):.3f}" if found else "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workshop:
    """The converter's and the quantiser's places, what has been counted, and the errors found."""

    converter: Path
    quantiser: Quantiser
    tool: Path | None
    outcomes: Counter[str]
    errors: Errors

    def weighed(self, folder: Path, ftypes: Sequence[str], via: str) -> Iterator[str]:
        """Quantise one model to each mixture, in each way, and tell what weighing it gave."""
        failed = families.convert(self.converter, folder, [via])
        if failed:
            raise SystemExit(f"{folder.name}: {failed}")
        path = folder / f"{via}.gguf"
        ways = {"plain": {}, "drawn": drawn(path), "measured": measured(self.tool, path) if self.tool else {}}
        for ftype, (way, importances) in itertools.product(ftypes, ways.items()):
            if importances or way == "plain":
                found = self._one(folder, path, ftype, importances)
                self.outcomes[found.outcome] += 1
                for dtype, error in found.errors:
                    self.errors.setdefault((dtype, way), []).append(error)
                yield f"{folder.name:10} {ftype:9} {way:8} {found.outcome:7} {found.told}"

    def _one(self, folder: Path, path: Path, ftype: str, importances: Importances) -> Weighed:
        target = folder / "quantised.gguf"
        refused = self.quantiser.quantise(path, target, FTYPES[ftype], importances)
        if refused:
            return Weighed(outcome="REFUSED", told=refused.strip().rpartition(": ")[2], errors=())
        try:
            return weigh(folder, target, ftype)
        finally:
            target.unlink()


def main() -> None:
    """Quantise and weigh all that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("--converter", "--library", "--work"):
        parser.add_argument(name, type=Path, required=True)
    for name in ("--imatrix", "--source"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--ftypes", default=",".join(FTYPES))
    parser.add_argument("--via", choices=("f32", "f16", "bf16"), default="f32")
    given = parser.parse_args()
    shop = Workshop(
        converter=given.converter, quantiser=Quantiser(given.library), tool=given.imatrix, outcomes=Counter(), errors={}
    )
    for folder in sources(given):
        for line in shop.weighed(folder, given.ftypes.split(","), given.via):
            print(line, flush=True)
    tell(shop.errors)
    print(", ".join(f"{count} {outcome}" for outcome, count in shop.outcomes.items()))


if __name__ == "__main__":
    main()
