"""`weighbridge compare` of folders that hold more than the tensors that are read."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cases import each
from tests.cli.conftest import Cli
from tests.comparison.conversions import converted, decoder, directory, gguf_file
from tests.formats.files import safetensors

pytestmark = pytest.mark.slow

MODULES = [
    {"path": "", "type": "Transformer"},
    {"path": "1_Pooling", "type": "Pooling"},
    {"path": "2_Dense", "type": "Dense"},
]
Change = Callable[[Path], object]


def folder(path: Path) -> Path:
    """Write what sentence-transformers saves, beside what people and trainers add."""
    for inner in ("1_Pooling", "2_Dense"):
        (path / inner).mkdir(parents=True)
    safetensors(path / "model.safetensors", {"w": ("F32", (2,), bytes(range(8)))})
    safetensors(path / "2_Dense" / "model.safetensors", {"linear.weight": ("F32", (1,), bytes(4))})
    config = {"model_type": "bert", "hidden_size": 2, "num_hidden_layers": 1, "architectures": ["BertModel"]}
    written = {
        "config.json": config,
        "modules.json": MODULES,
        "1_Pooling/config.json": {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True},
        "2_Dense/config.json": {"in_features": 1, "out_features": 1},
        "preprocessor_config.json": {"image_mean": [0.5, 0.5]},
        "special_tokens_map.json": {"bos_token": "<s>"},
        "README.md": {"of": str(path)},
    }
    for name, said in written.items():
        (path / name).write_text(json.dumps(said))
    return path


def laid(name: str, text: str = "x") -> Change:
    def change(path: Path) -> None:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)

    return change


def said(name: str, **more: object) -> Change:
    return lambda path: (path / name).write_text(json.dumps(json.loads((path / name).read_text()) | more))


def linked(path: Path) -> None:
    shutil.move(path / "2_Dense", path.parent / "elsewhere")
    (path / "2_Dense").symlink_to("../elsewhere")
    (path / "loop").symlink_to(".")


def moved_into(inner: str) -> Change:
    def change(path: Path) -> None:
        (path / "2_Dense").rename(path / inner)
        (path / "modules.json").write_text(json.dumps(MODULES).replace("2_Dense", inner))

    return change


AS_IT_WAS: dict[str, Change] = {
    "nothing": lambda _path: None,
    "a page for people": lambda path: (path / "README.md").unlink(),
    "the same written otherwise": lambda path: (path / "modules.json").write_text(json.dumps(MODULES, indent=4)),
    "a module behind a link, and a link that leads round": linked,
    "what a trainer resumes from": lambda path: [
        laid(name)(path)
        for name in ("optimizer.pt", "rng_state.pth", "training_args.bin", "runs/a/events.out.tfevents.1",
                     "checkpoint-5/model.safetensors", "trainer_state.json", "logs/a.log")
    ],
    "tokens with their flags": said("special_tokens_map.json", bos_token={"content": "<s>", "lstrip": False}),
}  # fmt: skip
OTHERWISE: dict[str, tuple[int, Change]] = {
    "the weights of a module": (3, laid("2_Dense/model.safetensors")),
    "no module": (1, lambda path: shutil.rmtree(path / "2_Dense")),
    "the pooling": (1, said("1_Pooling/config.json", pooling_mode_cls_token=True)),
    "no list of modules": (1, lambda path: (path / "modules.json").unlink()),
    "a list under another case": (1, lambda path: (path / "modules.json").rename(path / "MODULES.JSON")),
    "another preprocessor": (1, said("preprocessor_config.json", image_mean=[0.5, 0.4])),
    "another class": (1, said("config.json", architectures=["BertForMaskedLM"])),
    "other code": (1, said("config.json", auto_map={"AutoModel": "modeling_x.X"})),
    "code beside": (1, laid("modeling_x.py")),
    "a tokenizer's own file": (
        1,
        lambda path: [laid("spiece.model", one.name)(one) for one in (path, path.parent / "a")],
    ),
    "an adapter": (3, laid("adapter_model.bin")),
    "an adapter that is empty": (3, laid("adapter_model.safetensors.bin", "")),
    "weights for another loader": (3, laid("pytorch_model.bin")),
    "weights where nobody looks": (3, laid(".hidden/model.safetensors")),
    "a link that leads nowhere": (3, lambda path: (path / "extra.bin").symlink_to("nowhere")),
    "a FIFO": (3, lambda path: os.mkfifo(path / "extra.bin")),
    "what no table names": (3, laid("notes.txt")),
    "a damaged list of modules": (4, laid("modules.json", "[{")),
    "a module outside the folder": (4, laid("modules.json", json.dumps(MODULES).replace("2_Dense", "../x"))),
}


@each("change", AS_IT_WAS.values(), AS_IT_WAS)
def test_what_no_loader_reads_for_values_decides_nothing(cli: Cli, tmp_path: Path, change: Change) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    change(copy)
    assert cli("compare", source, copy).lines[-1].startswith("SAME: 1 of 1 tensor (")


@each("expected, change", OTHERWISE.values(), OTHERWISE)
def test_what_a_loader_may_read_is_compared_or_listed_as_not_read(
    cli: Cli, tmp_path: Path, expected: int, change: Change
) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    change(copy)
    assert cli("compare", source, copy).code == expected
    assert cli("compare", copy, source).code == expected


def test_a_module_in_a_folder_of_a_trainers_name_is_a_module(cli: Cli, tmp_path: Path) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    for path in (source, copy):
        moved_into("runs")(path)
    assert cli("compare", source, copy).code == 0
    laid("runs/model.safetensors")(copy)
    assert cli("compare", source, copy).lines[-1] == "BLOCKED: not-read: 1 not read"


def test_a_file_that_is_not_read_is_named_with_an_option_that_leaves_it_out(cli: Cli, tmp_path: Path) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    laid("2_Dense/model.safetensors")(copy)
    ended = cli("compare", source, copy)
    assert "  2_Dense/model.safetensors: differs from the source's and is not read (weights)" in ended.lines
    (option,) = {part for line in ended.lines for part in line.split("`") if part.startswith("--may-ignore")}
    ignored = cli("compare", source, copy, *option.replace("'", "").split())
    assert (ignored.code, ignored.lines[2]) == (0, "  not read: 2_Dense/model.safetensors (--may-ignore)")
    assert cli("compare", source, copy, "--may-ignore", "1_*").code == 3


@pytest.mark.parametrize("code", [0, 3])
def test_a_contract_over_tensors_alone_holds_the_folders_other_weights(cli: Cli, tmp_path: Path, code: int) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    if code:
        laid("2_Dense/model.safetensors")(copy)
    bound = ("--subject", f"source={source}", "--subject", f"import={copy}")
    assert cli("verify", "builtin:checkpoint-import", *bound, "--evidence", tmp_path / "evidence").code == code
    (bundle,) = (tmp_path / "evidence").glob("**/statement.json")
    assert cli("evidence", "verify", bundle.parent).code == 0
    assert bundle.read_text().count('"2_Dense/model.safetensors":') == 2


def test_one_file_is_compared_without_what_lies_beside_it(cli: Cli, tmp_path: Path) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    laid("2_Dense/model.safetensors")(copy)
    assert cli("compare", source / "model.safetensors", copy / "model.safetensors").code == 0


@pytest.mark.parametrize("beside", ["2_Dense/model.safetensors", "adapter_model.safetensors.bin"])
def test_a_gguf_file_has_no_further_weights_and_a_folders_other_files_are_noted(
    cli: Cli, tmp_path: Path, beside: str
) -> None:
    arrays = decoder()
    source = directory(tmp_path / "source", arrays)
    file = gguf_file(tmp_path / "import.gguf", converted(arrays, "llama"), "llama")
    for name in ("README.md", "pytorch_model.bin", "modules.json", "special_tokens_map.json"):
        laid(name, "[]" if name.endswith("json") else "x")(source)
    laid("special_tokens_map.json", '{"bos_token": "<s>"}')(source)
    laid("preprocessor_config.json", '{"image_mean": 1}')(source)
    ended = cli("compare", source, file)
    assert ended.code == 0
    assert "  not read: pytorch_model.bin (the import is one file, and has nothing beside it)" in ended.lines
    assert any("preprocessor_config.json" in line for line in ended.lines if "not compared" in line)
    laid(beside)(source)
    assert cli("compare", source, file).lines[-1] == "BLOCKED: not-read: 1 not read"


WEIGHTS = {"a.weight": ("F32", (2,), bytes(range(8))), "b.weight": ("F32", (1,), bytes(4))}


def diffusers_part(path: Path, how: str) -> Path:
    """Write one model as diffusers saves it: whole, in shards, or by torch.save; they may be called by a variant."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"_class_name": "UNet2DConditionModel", "sample_size": 8}))
    name = "diffusion_pytorch_model"
    shards = {f"{name}-{at:05}-of-00002.safetensors": one for at, one in enumerate(WEIGHTS, 1)}
    match how:
        case "whole":
            safetensors(path / f"{name}.safetensors", WEIGHTS)
        case "shards":
            for shard, one in shards.items():
                safetensors(path / shard, {one: WEIGHTS[one]})
            index = {"metadata": {"total_size": 12}, "weight_map": {one: shard for shard, one in shards.items()}}
            (path / f"{name}.safetensors.index.json").write_text(json.dumps(index))
        case "torch":
            torch = pytest.importorskip("torch")
            arrays = {
                one: torch.frombuffer(bytearray(data), dtype=torch.float32) for one, (_, _, data) in WEIGHTS.items()
            }
            torch.save(arrays, path / f"{name}.bin")
    return path


def test_what_diffusers_saves_is_read_in_each_form_and_its_configuration_key_by_key(cli: Cli, tmp_path: Path) -> None:
    forms = [diffusers_part(tmp_path / how, how) for how in ("whole", "shards", "torch")]
    for source in forms:
        for other in forms:
            ended = cli("compare", source, other)
            assert (ended.code, ended.lines[-1].partition(" (")[0]) == (0, "SAME: 2 of 2 tensors")
    said("config.json", sample_size=9)(forms[1])
    assert cli("compare", *forms[:2]).lines[-1].endswith("configuration fields differs: config.json:sample_size")
    (forms[1] / "diffusion_pytorch_model-00002-of-00002.safetensors").unlink()
    assert cli("compare", *forms[:2]).lines[-1].startswith("UNREADABLE: shard-missing: ")


def test_a_pipeline_is_compared_by_its_parts_and_says_so(cli: Cli, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline"
    parts = [diffusers_part(pipeline / part, how) for part, how in (("unet", "shards"), ("vae", "torch"))]
    (pipeline / "model_index.json").write_text(json.dumps({"_class_name": "StableDiffusionPipeline"}))
    ended = cli("compare", pipeline, pipeline)
    assert (ended.code, ended.lines[-1].split(": ")[:2]) == (4, ["UNREADABLE", "checkpoint-none"])
    assert "bind one of its folders that hold weights ('unet', 'vae')" in ended.out
    assert cli("compare", *parts).code == 0


def test_a_saved_model_of_tensorflow_has_no_file_that_could_be_bound(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_bytes(bytes.fromhex("080112180a0a0a0178") + bytes(20))
    (tmp_path / "fingerprint.pb").write_bytes(b"\x08\x99\x12aa")
    ended = cli("compare", tmp_path, tmp_path)
    assert ended.code == 4
    assert "  bind the checkpoint that it was converted from, or export its weights as safetensors" in ended.lines


MODEL, INDEX = "model.safetensors", "model.safetensors.index.json"


def indexed(path: Path, homes: object) -> Path:
    """Write one file of weights and an index beside it, as mlx-lm does of every model."""
    folder(path)
    (path / INDEX).write_text(json.dumps({"metadata": {"total_size": 8}, "weight_map": homes}))
    return path


def test_an_index_that_names_the_one_file_beside_it_alone_is_of_that_checkpoint(cli: Cli, tmp_path: Path) -> None:
    source, copy = folder(tmp_path / "a"), indexed(tmp_path / "b", {"w": MODEL})
    for pair in ((source, copy), (copy, source), (source / MODEL, copy / MODEL)):
        ended = cli("compare", *pair)
        assert ended.code == 0
        assert "note:" not in ended.out


@each("verb", ("inspect", "verify", "compare"))
def test_one_shard_of_two_is_no_checkpoint(cli: Cli, tmp_path: Path, verb: str) -> None:
    half = folder(tmp_path / "half")
    (half / MODEL).rename(half / "model-00001-of-00002.safetensors")
    words = {"inspect": (half, "--strict"), "compare": (half, half / "model-00001-of-00002.safetensors"),
             "verify": ("builtin:checkpoint-health", "--subject", f"checkpoint={half}")}  # fmt: skip
    ended = cli(verb, *words[verb])
    assert ended.code == 4
    assert "'model-00001-of-00002.safetensors' is part 1 of 2, and no other part is beside it" in ended.out + ended.err


OTHER_INDEXES: dict[str, tuple[object, str]] = {
    "another file": ({"w": "model-00001-of-00001.safetensors"}, "checkpoint-ambiguous"),
    "this file and another": ({"w": MODEL, "x": "other.safetensors"}, "checkpoint-ambiguous"),
    "none": ({}, "checkpoint-ambiguous"),
    "another tensor in it": ({"v": MODEL}, "shard-wrong"),
    "a number": ({"w": 1}, "index"),
}


@each("homes, code", OTHER_INDEXES.values(), OTHER_INDEXES)
def test_an_index_that_names_other_files_or_tensors_is_refused(
    cli: Cli, tmp_path: Path, homes: object, code: str
) -> None:
    source, copy = folder(tmp_path / "a"), indexed(tmp_path / "b", homes)
    ended = cli("compare", source, copy)
    assert (ended.code, ended.lines[-1].split(": ")[:2]) == (4, ["UNREADABLE", code])
    printed = "note: import: model.safetensors.index.json lies beside it" in cli("compare", source, copy / MODEL).out
    assert printed is (code != "shard-wrong")


WRITTEN_DOWN = {
    "mergekit": ("mergekit_config.yml", "mergekit_moe_config.yml"),
    "llm-compressor": ("recipe.yaml",),
    "Lightning": ("hparams.yaml", "metrics.csv"),
    "DeepSpeed": ("zero_to_fp32.py", "latest"),
    "a Trainer": ("training_args.bin", "training_args.json", "all_results.json"),
    "LLaMA-Factory": ("trainer_log.jsonl", "training_args.yaml", "training_loss.png"),
    "llama.cpp and ollama": ("model.imatrix", "imatrix.dat", "Modelfile"),
    "people": ("LICENSE.txt", "USE_POLICY.md", "README.md", "card.png"),
}


@pytest.mark.parametrize("by", WRITTEN_DOWN)
def test_what_was_done_to_the_weights_and_is_written_beside_them_decides_nothing(
    cli: Cli, tmp_path: Path, by: str
) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    for name in WRITTEN_DOWN[by]:
        laid(name)(copy)
    assert cli("compare", source, copy).code == 0
    assert cli("compare", copy, source).code == 0


@pytest.mark.parametrize("name", ["training_args.safetensors", "recipe.pt", "mergekit_config.py", "hparams.bin"])
def test_weights_and_code_under_the_name_of_a_note_are_still_compared(cli: Cli, tmp_path: Path, name: str) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    laid(name)(copy)
    assert cli("compare", source, copy).code in (1, 3, 4)


def test_what_auto_round_says_again_beside_the_configuration_is_compared_key_by_key(cli: Cli, tmp_path: Path) -> None:
    source, copy = folder(tmp_path / "a"), folder(tmp_path / "b")
    laid("quantization_config.json", '{"bits": 4}')(copy)
    assert cli("compare", source, copy).code == 0
    laid("quantization_config.json", '{"bits": 8}')(source)
    assert cli("compare", source, copy).lines[-1].endswith("fields differs: quantization_config.json:bits")
