"""Every hint of `weighbridge compare` that names an option is tried on the input that caused it, and then passes."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import ml_dtypes
import numpy as np
import pytest
from benchmarks.stored_tensors import Stored, read, write
from safetensors.numpy import load_file
from tests.cli.conftest import Cli
from tests.cli.test_compare_packed import HERE, NAMES
from tests.comparison.conversions import CONFIG, converted, decoder, directory, gguf_file
from tests.comparison.test_damaged_conversions import TRIED, made
from tests.formats.files import safetensors
from tests.formats.quantised import QUANTISED, VALUES

from weighbridge.core.data import data_path

pytestmark = pytest.mark.slow

Asked: TypeAlias = tuple[Path, Path, Sequence[str]]  # source, import and options
BF16, F8 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
UP, DOWN, NORM = "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.down_proj.weight", "model.norm.weight"
RNG = np.random.default_rng(11)
ARRAYS = {UP: RNG.normal(0, 0.02, (64, 64)), DOWN: RNG.normal(0, 0.02, (64, 64)), NORM: RNG.normal(1, 0.1, 64)}


def stored(path: Path, arrays: Mapping[str, Any], **dtypes: Any) -> Path:
    """Write arrays, each in the dtype of `all`, but for a norm in that of `norm` and DOWN in that of `down`."""
    of = {NORM: dtypes.get("norm"), DOWN: dtypes.get("down")}
    kept = {name: values.astype(of.get(name) or dtypes["all"]) for name, values in arrays.items()}
    return safetensors(path, {name: (NAMES[one.dtype], one.shape, one.tobytes()) for name, one in kept.items()})


def of_dtypes(options: Sequence[str] = (), **dtypes: Any) -> Callable[[Path], Asked]:
    def build(folder: Path) -> Asked:
        source = stored(folder / "source.safetensors", ARRAYS, all=BF16)
        exact = {name: values.astype(BF16) for name, values in ARRAYS.items()}
        return source, stored(folder / "import.safetensors", exact, **dtypes), options

    return build


def packed(name: str, options: Sequence[str] = (), source: Path = HERE / "source-32") -> Callable[[Path], Asked]:
    """Take what a library packed, and round the rest to F16, as nearly all that is published has it."""

    def build(folder: Path) -> Asked:
        shutil.copytree(source.parent / name, folder / "packed")
        tensors = load_file(folder / "packed" / "model.safetensors")
        halves = {key: one.astype(np.float16) if one.dtype == BF16 else one for key, one in tensors.items()}
        entries = {key: (NAMES[one.dtype], one.shape, one.tobytes()) for key, one in halves.items()}
        safetensors(folder / "packed" / "model.safetensors", entries)
        return source, folder / "packed", options

    return build


def of_gguf(
    options: Sequence[str] = (), *, dtype: str = "F32", kind: int | None = None, **config: Any
) -> Callable[[Path], Asked]:
    """Convert a small Llama; its header states the file type that is given."""

    def build(folder: Path) -> Asked:
        source = {name: values.astype(BF16) for name, values in decoder().items()}
        exact = {name: values.astype(np.float32) for name, values in source.items()}
        hf = directory(folder / "hf", source, {**CONFIG, "rope_theta": 10000, **config})
        return (
            hf,
            stating(gguf_file(folder / "m.gguf", converted(exact, "llama"), "llama", {"*": dtype}), kind),
            options,
        )

    return build


def stating(path: Path, kind: int | None) -> Path:
    """Write a GGUF file again with a file type in its header."""
    if kind is None:
        return path
    reader = gguf.GGUFReader(path)
    writer = gguf.GGUFWriter(path.with_name("stating.gguf"), "llama")
    for key in ("block_count", "embedding_length", "vocab_size", "attention.head_count", "attention.head_count_kv"):
        writer.add_uint32(f"llama.{key}", reader.fields[f"llama.{key}"].contents())
    writer.add_file_type(kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.with_name("stating.gguf")


def of_blocks(folder: Path) -> Asked:
    """Quantise one matrix to Q4_K by ggml."""
    hf = directory(folder / "hf", {UP: VALUES})
    head, _ = read(gguf_file(folder / "f32.gguf", {"blk.0.ffn_up.weight": VALUES}, "llama"))
    blocks = {"blk.0.ffn_up.weight": Stored("Q4_K", (2, 256), QUANTISED)}
    return hf, write(folder / "m.gguf", head, blocks), ("--policy", "lossless")


def renamed(folder: Path) -> Asked:
    source = stored(folder / "source.safetensors", {f"tower.{name}": one for name, one in ARRAYS.items()}, all=BF16)
    return source, stored(folder / "import.safetensors", ARRAYS, all=BF16), ()


def multiplied(folder: Path, dtype: str = "F16") -> Asked:
    """Fold multipliers into two matrices, as Falcon-H1's conversion does, and round the products."""
    names = {"model.embed_tokens.weight": ("token_embd.weight", 5.6), "lm_head.weight": ("output.weight", 0.3)}
    names["model.layers.0.input_layernorm.weight"] = ("blk.0.attn_norm.weight", 1.0)
    source = {name: values.astype(BF16) for name, values in decoder().items() if name in names}
    config = {**CONFIG, "model_type": "falcon_h1", "embedding_multiplier": 5.6, "lm_head_multiplier": 0.3}
    products = {new: source[name].astype(np.float32) * np.float32(by) for name, (new, by) in names.items()}
    file = gguf_file(folder / f"{dtype}.gguf", products, "falcon-h1", {"*": dtype})
    return directory(folder / "hf", source, config), file, ()


AWQ = Path(__file__).parent / "scaled_by_awq"
LOST, ROUNDED = "--may-differ sliding_window", ("--policy", "rounded:F16")
CASES: Mapping[str, tuple[Callable[[Path], Asked], str]] = {
    "rounded to F16": (of_dtypes(all=np.float16), "--policy rounded:F16"),
    "rounded to F16, norms kept": (of_dtypes(all=np.float16, norm=BF16), "--policy rounded:F16"),
    "rounded to F16, norms widened": (of_dtypes(all=np.float16, norm=np.float32), "--policy rounded:F16"),
    "one matrix left": (of_dtypes(ROUNDED, all=np.float16, down=BF16), "--policy at-most:rounded:F16"),
    "cast to FP8": (of_dtypes(all=F8, norm=BF16), "--policy rounded:F8_E4M3"),
    "GPTQ, the rest in F16": (packed("gptq-4"), "--policy packed+rounded:F16"),
    "GPTQ, rounding meant": (packed("gptq-4", ROUNDED), "--policy packed+rounded:F16"),
    "AWQ, the rest in F16": (packed("awq-gemm"), "--policy packed+rounded:F16"),
    "AWQ with scaled channels": (packed("packed", source=AWQ / "source"), "--policy packed+rounded:F16"),
    "packed unasked": (packed("gptq-8", ("--policy", "lossless")), "--policy packed+rounded:F16"),
    "nothing packed": (of_dtypes(("--policy", "packed"), all=BF16), "--policy lossless"),
    "nobody quantised": (of_gguf(("--policy", "quantised:Q4_K_M")), "--policy lossless"),
    "nobody rounded": (of_gguf(ROUNDED), "--policy lossless"),
    "blocks of Q8_0": (of_gguf(("--policy", "lossless"), dtype="Q8_0", kind=7), "--policy requant:Q8_0"),
    "a file of Q8_0": (of_gguf(dtype="Q8_0", kind=7), "--policy requant:Q8_0"),
    "blocks of Q4_K": (of_blocks, "--policy quantised:Q4_K"),
    "F16, in a header of BF16": (of_gguf(ROUNDED, dtype="F16", kind=32), "--policy at-most:rounded:F16"),
    "F16": (of_gguf(dtype="F16", kind=1), "--policy rounded:F16"),
    "a window that the converter loses": (of_gguf(sliding_window=8), LOST),
    "F16, and a window": (of_gguf(dtype="F16", kind=1, sliding_window=8), f"--policy rounded:F16 {LOST}"),
    "renamed": (renamed, "--map map.yaml"),
    "multiplied": (multiplied, "--policy rounded:F16"),
}  # fmt: skip


def offered(lines: Sequence[str], folder: Path) -> str:
    """Return the options that a hint names; of a mapping file, write the file, too."""
    (hint,) = [line for line in lines if "--" in line and line.startswith(("  meant? ", "  echo "))]
    if hint.startswith("  echo '"):
        (folder / "map.yaml").write_text(hint.split("'")[1])
        return hint.partition("; then add ")[2]
    return hint.partition("it passes with ")[2]


@pytest.mark.parametrize("case", CASES)
def test_what_a_hint_names_passes_on_the_input_that_caused_it(cli: Cli, workplace: Path, case: str) -> None:
    build, expected = CASES[case]
    source, candidate, options = build(workplace)
    first = cli("compare", source, candidate, *options)
    options = shlex.split(offered(first.lines, workplace))
    assert " ".join(options) == expected
    assert cli("compare", source, candidate, *options).code == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage",
    [pytest.param(one, id=one.name, marks=[pytest.mark.exhaustive] * (at % 3 != 0)) for at, one in enumerate(TRIED)],
)
def test_no_damage_is_offered_a_way_to_pass_that_does_not(cli: Cli, workplace: Path, damage: Any) -> None:
    source, candidate, known = made(workplace, damage)
    head, tensors = read(candidate)
    damage.change(tensors, known) if damage.known else damage.change(tensors)
    pair = source, write(workplace / "m.gguf", head, tensors)
    ended = cli("compare", *pair, "--policy", damage.policy)
    assert ended.code == 1
    for line in ended.lines:
        if "it passes with " in line:
            assert cli("compare", *pair, *shlex.split(line.partition("it passes with ")[2])).code == 0
        assert "weighbridge " not in line.replace("`weighbridge compare --map FILE`", "")


def test_no_text_of_a_card_or_a_word_names_a_policy_of_its_own() -> None:
    """They were examples, and read as advice: rounded:F16 in one line and rounded:BF16 in the next."""
    for path in (
        *data_path("gates").glob("*.yaml"),
        data_path("words") / "terms.yaml",
        data_path("words") / "any-gate.yaml",
    ):
        hints = [line for line in path.read_text().splitlines() if line.lstrip().startswith(("do:", "knob:", "cause:"))]
        assert not any("--policy" in line or "--may-differ" in line for line in hints), path


def test_products_with_multipliers_are_rounded_to_the_dtype_of_their_source(cli: Cli, workplace: Path) -> None:
    """They were `wrong dtype (F32 values stored as BF16)` where source and import are BF16."""
    source, half, _ = multiplied(workplace)
    said = cli("compare", source, half).out
    assert "output.weight: wrong dtype (BF16 values, x 0.3, stored as F16); 2048 of 2048 elements explained" in said
    kept = multiplied(workplace, "BF16")[1]
    ended = cli("compare", source, kept)
    assert (ended.code, ended.lines[-1].partition(":")[0]) == (0, "SAME VALUES")


def test_a_file_of_a_wider_original_is_not_asked_to_change_places(cli: Cli, workplace: Path) -> None:
    wide = {UP: RNG.normal(0, 0.02, (64, 64)).astype(np.float32), NORM: RNG.normal(1, 0.1, 64).astype(np.float32)}
    hf = directory(workplace / "hf", {name: values.astype(BF16) for name, values in wide.items()})
    new = {"blk.0.ffn_up.weight": wide[UP], "output_norm.weight": wide[NORM]}
    ended = cli("compare", hf, gguf_file(workplace / "m.gguf", new, "llama", {"*": "Q4_0"}))
    assert "exchange the two?" not in ended.out
    printed = "  the import was made of a wider original, which rounds to this source: compare it with that one"
    assert printed in ended.lines


TWO_IMPORTS = """weighbridge: contract/v0
id: two
version: 1.0.0
title: Two imports of one model
owner: me
subjects:
  source: {kind: checkpoint}
  folder: {kind: checkpoint}
  file: {kind: checkpoint}
gates:
  - {id: GATE-A, title: The folder, kind: value-preservation, subjects: {source: source, candidate: folder},
     with: {policy: lossless}}
  - {id: GATE-B, title: The file, kind: value-preservation, subjects: {source: source, candidate: file},
     with: {policy: lossless}}
"""


def test_a_policy_is_tried_on_the_files_that_its_own_gate_judged(cli: Cli, workplace: Path) -> None:
    """What lies beside one import, and is not read, says nothing of another one."""
    stored(workplace / "source.safetensors", ARRAYS, all=BF16)
    (workplace / "folder" / "2_Dense").mkdir(parents=True)
    shutil.copy("source.safetensors", workplace / "folder" / "model.safetensors")
    (workplace / "folder" / "2_Dense" / "model.safetensors").write_bytes(b"unread")
    exact = {name: values.astype(BF16) for name, values in ARRAYS.items()}
    stored(workplace / "file.safetensors", exact, all=np.float16)
    (workplace / "two.yaml").write_text(TWO_IMPORTS)
    bound = [f"--subject={name}={path}" for name, path in {
        "source": "source.safetensors", "folder": "folder", "file": "file.safetensors",
    }.items()]  # fmt: skip
    ended = cli("verify", "two.yaml", *bound)
    assert [line.split()[0] for line in ended.lines if "GATE-" in line][:2] == ["BLOCKED", "FAIL"]
    assert [line for line in ended.lines if "meant?" in line and "rounded:F16" in line]
