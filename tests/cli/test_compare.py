"""`weighbridge compare`, as a person types it."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli
from tests.comparison.conversions import CONFIG, directory, gguf_file
from tests.formats.files import safetensors, safetensors_bytes

from weighbridge.cards.words import gate_words
from weighbridge.core.data import data_path
from weighbridge.quantities.tensors import TensorPair
from weighbridge.report.comparison import AS_MEANT
from weighbridge.verifiers import tensor_values
from weighbridge.views import checkpoint

HERE = data_path("verifiers") / "specimens" / "checkpoints"


def specimen(name: str) -> Path:
    return HERE / name


SOURCE = specimen("source.safetensors")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("source.safetensors", "SAME"),
        ("import.gguf", "SAME"),
        ("sharded", "SAME"),
        ("widened.safetensors", "SAME VALUES"),
    ],
)
def test_what_follows_from_the_source_is_the_same_or_has_its_values(cli: Cli, name: str, word: str) -> None:
    ended = cli("compare", SOURCE, specimen(name))
    assert ended.code == 0
    assert re.fullmatch(rf"{word}: 2 of 2 tensors \(([1-9]\d*) of \1 planted faults were caught\)", ended.lines[-1])


def test_what_explains_all_but_a_few_elements_is_named_with_their_number(cli: Cli, tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 64, dtype=np.float16).reshape(8, 8)
    source = safetensors(tmp_path / "a", {"w": ("F32", (8, 8), values.astype("<f4").tobytes())})
    values[3, 3] *= -1
    candidate = safetensors(tmp_path / "b", {"w": ("F16", (8, 8), values.tobytes())})
    said = "63 of 64 elements explained by value-cast, the rest: different content"
    assert said in cli("compare", source, candidate).lines[1]


def test_one_cause_is_one_line_and_all_lists_each_tensor(cli: Cli, tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 16, dtype=np.float32)
    names = [
        "lm_head.weight",
        *(f"model.layers.{at}.{norm}.weight" for at in range(3) for norm in ("q_norm", "k_norm")),
    ]
    source = safetensors(tmp_path / "a", {name: ("F32", (4, 4), values.tobytes()) for name in names})
    rounded = {name: ("F16", (4, 4), values.astype(np.float16).tobytes()) for name in names}
    pair = source, safetensors(tmp_path / "b", rounded)
    said = "wrong dtype (F32 values stored as F16); every element explained: value-cast"
    named = "lm_head.weight, 3 model.layers.*.k_norm.weight, 3 model.layers.*.q_norm.weight"
    assert cli("compare", *pair).lines[1] == f"  7 of 7 tensors: {said} ({named})"
    each = [line for line in cli("compare", *pair, "--all").lines if "16 of 16 elements explained: value-cast" in line]
    assert len(each) == len(names)
    alone = cli("compare", *pair, "--tensors", "lm*").lines[1]
    assert alone == f"  lm_head.weight: {said.replace('every element', '16 of 16 elements')}"
    none = cli("compare", *pair, "--tensors", "nope*").lines[1]
    assert none == "  --tensors 'nope*' matches none of 7 names, so no tensor is listed"


def test_a_widening_is_not_the_same_dtype(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("widened.safetensors"), "--policy", "same")
    assert ended.code == 1


@pytest.mark.parametrize("lost", ["bn1.bias", "bn1.weight"])
def test_zeros_that_a_copy_of_one_format_leaves_out_are_missing(cli: Cli, tmp_path: Path, lost: str) -> None:
    kept = {name: ("F32", (4,), bytes(16)) for name in ("a.bias", "bn1.bias", "bn1.weight")}
    kept["w"] = ("F32", (4,), np.arange(4, dtype="<f4").tobytes())
    source = safetensors(tmp_path / "source", kept)
    copy = safetensors(tmp_path / "copy", {name: one for name, one in kept.items() if name != lost})
    ended = cli("compare", source, copy)
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 4 tensors: 1 missing")


def test_bf16_bytes_labelled_f16_are_refused_and_the_mechanism_is_named(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("relabelled.safetensors"))
    assert ended.code == 1
    said = "wrong dtype (BF16 bits stored as F16); 6 of 6 elements explained: bf16-bits-as-f16"
    assert f"  model.norm.weight: {said}" in ended.lines
    assert ended.lines[-1] == "DIFFERENT: 1 of 2 tensors: 1 wrong dtype (bf16-bits-as-f16)"


def test_a_rounding_that_is_meant_and_makes_a_weight_infinite_is_not_as_meant(cli: Cli, tmp_path: Path) -> None:
    values = np.array([0.5, 65520.0, -1e6, 65519.0], "<f4")
    source = safetensors(tmp_path / "source", {"w": ("F32", (4,), values.tobytes())})
    with np.errstate(over="ignore"):
        rounded = safetensors(tmp_path / "f16", {"w": ("F16", (4,), values.astype("<f2").tobytes())})
    ended = cli("compare", source, rounded, "--policy", "rounded:F16")
    assert ended.code == 1
    assert ended.lines[1] == "  w: F32 -> F16 makes 2 of 4 elements infinite that are finite in the source"
    assert ended.lines[2].startswith("  likely cause: F16, in which most blocks store their scales, too, ends at 65504")
    assert ended.lines[-1] == "DIFFERENT: 1 of 1 tensor: 1 overflow"


@pytest.mark.parametrize("policy", [(), ("--policy", "requant:Q8_0")])
def test_blocks_whose_scale_is_infinite_are_not_as_meant(cli: Cli, tmp_path: Path, policy: tuple[str, ...]) -> None:
    values = np.ones((2, 64), np.float32)
    values[1, 3] = 1e8
    source = directory(tmp_path / "source", {"token_embd.weight": values})
    with np.errstate(over="ignore"):
        candidate = gguf_file(tmp_path / "m.gguf", {"token_embd.weight": values}, "llama", {"*": "Q8_0"})
    ended = cli("compare", source, candidate, *policy)
    assert (ended.code, ended.lines[-1]) == (1, "DIFFERENT: 1 of 1 tensor: 1 overflow")
    assert "token_embd.weight: F32 -> Q8_0 makes 32 of 128 elements infinite that are finite" in ended.lines[1]


@pytest.mark.parametrize(("head", "answer"), [(False, "AS MEANT: 2 of 2"), (True, "DIFFERENT: 1 of 3")])
def test_a_pooler_that_is_dropped_is_never_the_same_and_missing_where_a_classifier_stands_on_it(
    cli: Cli, tmp_path: Path, head: bool, answer: str
) -> None:
    values, pooler = np.ones((4, 64), np.float32), "pooler.dense.weight"
    tensors = {"embeddings.word_embeddings.weight": values, pooler: values}
    arrays = {"token_embd.weight": values}
    if head:
        tensors["classifier.out_proj.weight"] = arrays["cls.output.weight"] = values
    source = directory(tmp_path / "source", tensors, {**CONFIG, "model_type": "bert", "vocab_size": 4})
    ended = cli("compare", source, gguf_file(tmp_path / "m.gguf", arrays, "bert"), "--may-differ", "vocab_size")
    assert ended.lines[-1].startswith(answer)
    rule = "dropped by the converter's rule, not shown to be superfluous: the pooler, which embedding models do not use"
    missing = f"  {pooler}: F32 [4, 64] is in the source and not in the candidate"
    assert (f"  1 {rule}" in ended.lines, missing in ended.lines) == (not head, head)


def test_a_pooler_of_zeros_that_is_dropped_is_nothing_lost(cli: Cli, tmp_path: Path) -> None:
    values = np.ones((4, 64), np.float32)
    tensors = {"embeddings.word_embeddings.weight": values, "pooler.dense.weight": 0 * values}
    source = directory(tmp_path / "source", tensors, {**CONFIG, "model_type": "bert", "vocab_size": 4})
    candidate = gguf_file(tmp_path / "m.gguf", {"token_embd.weight": values}, "bert")
    ended = cli("compare", source, candidate, "--may-differ", "vocab_size")
    assert (ended.code, "not shown to be superfluous" in ended.out) == (0, False)


def test_other_weights_are_different_content_and_no_mechanism_is_claimed(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("other-weights.safetensors"))
    assert ended.code == 1
    assert "different content" in ended.out
    assert "bits-as" not in ended.lines[1]


def test_hints_follow_the_mechanisms_that_were_found_and_the_code_where_none_was(cli: Cli) -> None:
    def hints(source: str, candidate: str) -> list[str]:
        lines = cli("compare", specimen(source), specimen(candidate)).lines
        return [line.strip() for line in lines if line.startswith(("  likely cause:", "  try first:", "  look at:"))]

    assert hints("values.safetensors", "swapped-and-turned.safetensors") == [
        "likely cause: other-tensor: Another tensor of the source, which is named.",
        "try first: Check the converter's map of names; this tensor's place was taken by another.",
        "likely cause: transposed: A matrix that is transposed, or is not, against what was meant.",
        "try first: Check the converter's rule for this tensor; Conv1D weights are stored the other way round.",
    ]
    assert hints("source.safetensors", "flipped-bit.safetensors")[0] == (
        "likely cause: a damaged file where few elements differ, other weights where most do"
    )


def test_one_flipped_bit_is_reported_with_tensor_offset_and_both_values(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("flipped-bit.safetensors"))
    assert ended.code == 1
    assert ended.lines[1].startswith(
        "  embed: F32 -> F32, but 1 of 8 elements is not the source's: element 7 at byte 220 was -0.0 (0x80000000)"
        " and is -2.350988701644575e-38 (0x81000000)"
    )


def test_several_imports_are_answered_in_turn_and_the_worst_sets_the_code(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("import.gguf"), specimen("relabelled.safetensors"))
    assert ended.code == 1
    assert sum(line.startswith(("SAME", "DIFFERENT")) for line in ended.lines) == 2


def test_several_imports_are_compared_tensor_by_tensor_so_that_the_source_is_read_once(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    row = tensor_values._Pair.row

    def seen(pair: tensor_values._Pair, place: tensor_values.Place) -> TensorPair:
        read.append(place[0])
        return row(pair, place)

    monkeypatch.setattr(tensor_values._Pair, "row", seen)
    assert cli("compare", SOURCE, SOURCE, specimen("widened.safetensors"), specimen("sharded")).code == 0
    assert read[:6] == ["embed"] * 3 + ["model.norm.weight"] * 3  # the canaries come after


def test_an_import_that_cannot_be_read_leaves_the_others_their_answers(cli: Cli) -> None:
    imports = SOURCE, specimen("damaged/empty.safetensors"), specimen("relabelled.safetensors")
    ended = cli("compare", SOURCE, *imports)
    assert ended.code == 4
    answers = [line.partition(":")[0] for line in ended.lines if not line.startswith(" ") and " -> " not in line]
    assert answers == ["SAME", "UNREADABLE", "DIFFERENT"]
    alone = [line for path in imports for line in cli("compare", SOURCE, path).lines]
    assert ended.lines == alone


def test_compare_answers_machines_in_json(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("relabelled.safetensors"), "--json")
    (answer,) = json.loads(ended.out)
    assert answer["finding"]["outcome"] == "FAIL"
    assert answer["finding"]["offences"][0]["figures"]["mechanism"] == "bf16-bits-as-f16"


def test_compare_writes_nothing(cli: Cli, workplace: Path) -> None:
    cli("compare", SOURCE, specimen("relabelled.safetensors"))
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize("path", sorted((HERE / "damaged").iterdir()), ids=lambda path: path.name)
def test_a_damaged_file_ends_in_one_message_and_4(cli: Cli, path: Path) -> None:
    ended = cli("compare", SOURCE, path)
    assert ended.code == 4
    assert ended.lines[-1].startswith("UNREADABLE: ")
    assert "Traceback" not in ended.out + ended.err


def test_a_fifo_a_folder_and_nothing_end_in_4_without_hanging(cli: Cli, workplace: Path) -> None:
    os.mkfifo(workplace / "fifo")
    (workplace / "folder").mkdir()
    watchdog = threading.Timer(60, os._exit, args=(99,))
    watchdog.start()
    assert [cli("compare", SOURCE, name).code for name in ("fifo", "folder", "nothing")] == [4, 4, 4]
    watchdog.cancel()


def test_a_block_quantised_import_is_bound_to_the_types_that_it_declares(cli: Cli) -> None:
    ended = cli("compare", specimen("blocks.safetensors"), specimen("blocks.gguf"))
    assert ended.code == 0
    assert ended.lines[0].endswith(
        "policy: at-most:quantised:IQ4_NL (the types that the file declares: 1 IQ4_NL, 1 Q8_0)"
    )
    assert ended.lines[1].endswith("(1 VALUE_EQUAL, 1 REQUANT_EXACT)")
    lost = "  lost: 1 of 2 tensors is of a type that holds less: 1 F32 -> Q8_0"
    assert ended.lines[2] == lost
    assert ended.lines[-2] == "  meant? it passes with --policy at-most:quantised:IQ4_NL"
    assert ended.lines[-1].startswith("LOSSY: 2 of 2 tensors (")
    asked = cli(
        "compare", specimen("blocks.safetensors"), specimen("blocks.gguf"), "--policy", "at-most:quantised:IQ4_NL"
    )
    assert asked.code == 0
    assert asked.lines[-1].startswith("AS MEANT: 2 of 2 tensors (")
    assert cli("compare", specimen("blocks.safetensors"), specimen("blocks-lost.gguf")).code == 1


def test_quantising_is_refused_where_it_was_not_meant(cli: Cli) -> None:
    ended = cli("compare", specimen("blocks.safetensors"), specimen("blocks.gguf"), "--policy", "lossless")
    assert ended.code == 1
    assert "  e: wrong dtype (F32 values stored as Q8_0); 32 of 32 elements explained: requantised" in ended.lines


def test_a_rounding_passes_under_the_policy_that_means_it(cli: Cli) -> None:
    pair = specimen("values.safetensors"), specimen("rounded.safetensors")
    printed = "  a: wrong dtype (F32 values stored as BF16); 8 of 8 elements explained: value-cast"
    assert printed in cli("compare", *pair).lines
    ended = cli("compare", *pair, "--policy", "rounded:BF16")
    assert "  1 ROUNDED_EXACT, 2 MISSING" in ended.lines


def test_what_would_pass_under_another_policy_is_asked_about(cli: Cli, workplace: Path) -> None:
    printed = "  meant? it passes with `policy: rounded:BF16` in the file of --policy"
    pair = specimen("values.safetensors"), specimen("rounded.safetensors")
    assert printed not in cli("compare", *pair).lines  # two tensors are missing, too
    limits = "policy: lossless\nallow_missing: [b, w]\n"
    (workplace / "meant.yaml").write_text(limits)
    assert printed in cli("compare", *pair, "--policy", "meant.yaml").lines
    assert not any(
        line.startswith("  meant?") for line in cli("compare", SOURCE, specimen("relabelled.safetensors")).lines
    )


def test_a_policy_may_be_a_file_of_limits(cli: Cli, workplace: Path) -> None:
    (workplace / "meant.yaml").write_text("policy: rounded:BF16\nallow_missing: [b, w]\n")
    ended = cli("compare", specimen("values.safetensors"), specimen("rounded.safetensors"), "--policy", "meant.yaml")
    assert ended.code == 0
    assert ended.lines[0].endswith("policy: rounded:BF16 (meant.yaml)")


@pytest.mark.parametrize("policy", ["roundd:F16", "quantised:Q9_K", ""])
def test_an_unknown_policy_is_a_usage_error(cli: Cli, policy: str) -> None:
    ended = cli("compare", SOURCE, SOURCE, "--policy", policy)
    assert ended.code == 2
    assert f"policy {policy!r} is no" in ended.err


def test_a_tied_head_may_go_and_an_untied_one_may_not(cli: Cli) -> None:
    headless = specimen("headless.safetensors")
    ended = cli("compare", specimen("tied.safetensors"), headless)
    assert (ended.code, "(1 BYTES_EQUAL, 1 DROPPED)" in ended.out) == (0, True)
    ended = cli("compare", specimen("untied.safetensors"), headless)
    assert ended.code == 1
    assert "  lm_head.weight: F32 [2, 4] is in the source and not in the candidate" in ended.lines


def test_the_wider_side_as_the_import_asks_whether_the_sides_are_exchanged(cli: Cli) -> None:
    ended = cli("compare", specimen("rounded.safetensors"), specimen("values.safetensors"))
    assert ended.code == 1
    assert "  exchange the two? rounding the import gives the source: the import is the wider one" in ended.lines


def test_a_quantised_source_of_an_import_that_is_not_asks_the_same(cli: Cli, tmp_path: Path) -> None:
    decoded = specimen("blocks.safetensors").read_bytes()
    assert cli("compare", specimen("blocks.gguf"), specimen("blocks.safetensors"), "--policy", "lossless").code == 0
    (tmp_path / "other.safetensors").write_bytes(decoded[:-1] + bytes([decoded[-1] ^ 1]))
    ended = cli("compare", specimen("blocks.gguf"), tmp_path / "other.safetensors", "--policy", "lossless")
    assert "  exchange the two? the source is quantised (IQ4_NL) and the import is not" in ended.lines
    assert "exchange" not in cli("compare", specimen("blocks.safetensors"), specimen("blocks-lost.gguf")).out


def test_a_gguf_file_as_the_source_of_what_it_is_made_of_asks_before_a_policy_is_proposed(cli: Cli) -> None:
    folder = Path(__file__).parent / "llama-by-the-converter"
    printed = cli("compare", folder / "model.gguf", folder / "hf").lines
    asked = "  exchange the two? the source is a GGUF file, which is made of a checkpoint such as the import"
    assert printed.index(asked) < printed.index("  meant? it passes with --policy rounded:BF16")
    assert "exchange" not in cli("compare", folder / "hf", folder / "model.gguf").out


@pytest.mark.parametrize("policy", ["ROUNDED:bf16", "Rounded:BF16"])
def test_a_policy_is_reported_as_it_is_kept_however_it_was_typed(cli: Cli, policy: str) -> None:
    ended = cli("compare", specimen("values.safetensors"), specimen("rounded.safetensors"), "--policy", policy)
    assert ended.lines[0].endswith("policy: rounded:BF16")


def test_headers_alone_are_never_a_pass(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("flipped-bit.safetensors"), "--headers")
    assert ended.code == 3
    assert ended.lines[1:] == [
        "  stored dtypes and shapes are what was meant; content was not compared",
        "BLOCKED: not-compared: 2 not-compared",
    ]
    assert cli("compare", SOURCE, specimen("relabelled.safetensors"), "--headers").code == 1


def test_all_lists_every_tensor_and_a_glob_chooses_what_is_shown(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("widened.safetensors"), "--all", "--tensors", "model.*")
    assert ended.lines[2:] == ["  VALUE_EQUAL   model.norm.weight: BF16 -> F32 [6]", ended.lines[-1]]


def test_the_worst_comes_first(cli: Cli) -> None:
    ended = cli("compare", specimen("values.safetensors"), specimen("swapped-and-turned.safetensors"))
    assert [line.split(":")[0].strip() for line in ended.lines[1:4]] == ["a", "b", "w"]
    assert "  1 LAYOUT_ONLY, 2 DIFFERENT" in ended.lines


def test_each_file_is_opened_once(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []

    def counted(path: str) -> checkpoint.CheckpointView:
        opened.append(path)
        return open_checkpoint(path)

    open_checkpoint = checkpoint.open_checkpoint
    monkeypatch.setattr(checkpoint, "open_checkpoint", counted)
    imports = specimen("widened.safetensors"), specimen("flipped-bit.safetensors")
    assert cli("compare", SOURCE, *imports).code == 1
    assert sorted(opened) == sorted(map(str, (SOURCE, *imports)))


def test_a_pass_is_reported_in_the_words_of_the_card() -> None:
    assert gate_words("value-preservation").passes == AS_MEANT


def test_files_that_contradict_each_other_are_noted_and_do_not_decide(cli: Cli, workplace: Path) -> None:
    data = safetensors_bytes({"w": ("BF16", (2,), bytes(4))})
    for name, dtype, total in (("a", "bfloat16", 4), ("b", "float32", 5)):
        (workplace / name).mkdir()
        (workplace / name / "model-00001-of-00001.safetensors").write_bytes(data)
        (workplace / name / "config.json").write_text(json.dumps({"torch_dtype": dtype, "hidden_size": 2}))
        index = {"metadata": {"total_size": total}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}
        (workplace / name / "model.safetensors.index.json").write_text(json.dumps(index))
    (workplace / "b" / "spare.safetensors").write_bytes(data)
    assert cli("compare", "a", "b").lines[-1] == "BLOCKED: not-read: 1 not read"
    ended = cli("compare", "a", "b", "--may-ignore", "spare.*")
    assert ended.code == 0
    assert [line for line in ended.lines if line.startswith("  note: ")] == [
        "  note: import: b/model.safetensors.index.json says total_size 5, and its tensors have 4 bytes",
        "  note: import: spare.safetensors lies beside it and is no part of it; another loader may take it instead",
        "  note: import: config.json says torch_dtype float32, and most weights are BF16: "
        "transformers 5 loads them as F32",
    ]
    assert json.loads(cli("compare", "b", "a", "--json").out)[0]["notes"][0].startswith("source: b/model")


def test_a_header_that_names_a_type_of_no_tensor_is_noted(cli: Cli, workplace: Path) -> None:
    folder = Path(__file__).parent / "llama-by-the-converter"
    data, key = bytearray((folder / "model.gguf").read_bytes()), b"general.file_type"
    at = data.index(key) + len(key) + 4
    data[at : at + 4] = (7).to_bytes(4, "little")
    (workplace / "forged.gguf").write_bytes(data)
    ended = cli("compare", folder / "hf", "forged.gguf")
    assert ended.lines[1].startswith("  note: import: general.file_type is Q8_0, and no tensor is Q8_0: there are ")
    assert "note:" not in cli("compare", folder / "hf", folder / "model.gguf").out


def test_scales_of_inputs_are_said_not_to_be_compared(cli: Cli, workplace: Path) -> None:
    (workplace / "a.safetensors").write_bytes(safetensors_bytes({"w": ("BF16", (2,), bytes(4))}))
    both = {"w": ("BF16", (2,), bytes(4)), "w.input_scale": ("F32", (1,), bytes(4))}
    (workplace / "b.safetensors").write_bytes(safetensors_bytes(both))
    printed = cli("compare", "a.safetensors", "b.safetensors").lines
    assert "  note: import: not compared: 1 input_scale, which no source has; inspect judges each by itself" in printed
