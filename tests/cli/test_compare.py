"""`weighbridge compare`, as a person types it."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from weighbridge.data import data_path

HERE = data_path("verifiers") / "specimens" / "checkpoints"


def specimen(name: str) -> Path:
    return HERE / name


SOURCE = specimen("source.safetensors")


@pytest.mark.parametrize("name", ["source.safetensors", "import.gguf", "sharded", "widened.safetensors"])
def test_what_follows_from_the_source_is_the_same(cli: Cli, name: str) -> None:
    ended = cli("compare", SOURCE, specimen(name))
    assert ended.code == 0
    assert ended.lines[-1].startswith("SAME: ")


def test_a_widening_is_not_the_same_dtype(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("widened.safetensors"), "--policy", "same")
    assert ended.code == 1


def test_bf16_bytes_labelled_f16_are_refused_and_the_mechanism_is_named(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("relabelled.safetensors"))
    assert ended.code == 1
    assert "  model.norm.weight: BF16 -> F16; 6 of 6 elements explained: bf16-bits-as-f16" in ended.lines
    assert ended.lines[-1] == "DIFFERENT: 1 of 2 tensors: 1 label (bf16-bits-as-f16)"


def test_other_weights_are_different_content_and_no_mechanism_is_claimed(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("other-weights.safetensors"))
    assert ended.code == 1
    assert "different content" in ended.out
    assert "bits-as" not in ended.lines[1]


def test_one_flipped_bit_is_told_with_tensor_offset_and_both_values(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("flipped-bit.safetensors"))
    assert ended.code == 1
    assert ended.lines[1].startswith(
        "  embed: F32 -> F32, but 1 of 8 elements are not the source's: element 7 at byte 220 was -0.0 (0x80000000)"
        " and is -2.350988701644575e-38 (0x81000000)"
    )


def test_several_imports_are_answered_in_turn_and_the_worst_sets_the_code(cli: Cli) -> None:
    ended = cli("compare", SOURCE, specimen("import.gguf"), specimen("relabelled.safetensors"))
    assert ended.code == 1
    assert sum(line.startswith(("SAME", "DIFFERENT")) for line in ended.lines) == 2


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
