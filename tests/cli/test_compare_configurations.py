"""compare tells where the configurations differ, after the tensors, and answers for both."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.conftest import Cli, cli
from tests.comparison.conversions import CONFIG, VOCAB, WIDTH, converted, decoder, directory, gguf_file

from weighbridge.core.data import data_path

__all__ = ["cli"]

SPECIMENS = data_path("verifiers") / "specimens"
CONFIGS = SPECIMENS / "configs"


@pytest.fixture
def model(workplace: Path) -> tuple[Path, Path]:
    source = decoder()
    file = gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama")
    return directory(workplace / "hf", source, {**CONFIG, "rope_theta": 10000}), file


def rewritten(folder: Path, **changed: object) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changed}))


def test_agreement_is_reported_in_one_line(cli: Cli, model: tuple[Path, Path]) -> None:
    ended = cli("compare", *model)
    assert ended.code == 0
    assert ended.lines[-2:-1] == ["  configuration: 6 fields agree; 1 not compared: architecture (--all says why)"]
    assert ended.lines[-1].startswith("SAME: 21 of 21 tensors (")


def test_a_wrong_rope_base_alone_makes_the_import_different(cli: Cli, model: tuple[Path, Path]) -> None:
    rewritten(model[0], rope_theta=500000)
    ended = cli("compare", *model)
    assert ended.code == 1
    assert ended.lines[-3:] == [
        "  configuration: rope_base: 500000 (config.json rope_theta) became 10000 (nothing said; the default)",
        "  configuration: 1 not compared: architecture (--all says why)",
        "DIFFERENT: 21 of 21 tensors are what was meant, but 1 of 6 configuration fields differs: rope_base",
    ]


def test_what_the_converter_is_known_to_lose_can_be_accepted_by_name(cli: Cli, model: tuple[Path, Path]) -> None:
    rewritten(model[0], rope_theta=10000, sliding_window=8)
    ended = cli("compare", *model)
    assert ended.code == 1
    printed = "the converter is known to lose sliding_window; `may_differ` in a contract accepts it, with reasons"
    assert f"  configuration: {printed}" in ended.lines
    assert ended.lines[-2] == "  meant? it passes with --may-differ sliding_window"
    assert cli("compare", *model, "--may-differ", "sliding_window").code == 0


def test_a_known_fault_of_the_converter_is_reported_where_it_is_what_was_found(cli: Cli, workplace: Path) -> None:
    source = decoder()
    folder = directory(workplace / "hf", source, CONFIG)
    hybrid = gguf_file(workplace / "h.gguf", converted(source, "qwen2"), "granitehybrid")
    assert "known: llama.cpp's converter permutes layers called `attention`" in cli("compare", folder, hybrid).out
    llama = gguf_file(workplace / "l.gguf", converted(source, "qwen2"), "llama")
    ended = cli("compare", folder, llama)
    assert "permutation-missing" in ended.out
    assert "known:" not in ended.out


@pytest.mark.slow
def test_what_is_meant_to_differ_does_not(cli: Cli, model: tuple[Path, Path]) -> None:
    rewritten(model[0], rope_theta=500000)
    assert cli("compare", *model, "--may-differ", "rope_base").code == 0
    assert cli("compare", *model, "--may-differ", "vocab_size").code == 1
    assert cli("compare", *model, "--may-differ", "rope_bse").code == 2


@pytest.mark.slow
def test_keys_of_two_directories_decide_unless_they_are_harmless_or_meant_to_differ(
    cli: Cli, workplace: Path, model: tuple[Path, Path]
) -> None:
    other = directory(workplace / "other", decoder(), {**CONFIG, "attention_bias": True, "rope_theta": 10000})
    ended = cli("compare", model[0], other)
    assert ended.code == 1
    assert ended.lines[-1].endswith("fields differs: config.json:attention_bias")
    assert cli("compare", model[0], other, "--may-differ", "config.json:attention_bias").code == 0
    other = directory(workplace / "again", decoder(), {**CONFIG, "use_cache": True, "rope_theta": 10000})
    ended = cli("compare", model[0], other)
    assert ended.code == 0
    printed = "config.json:use_cache (how a library calls the model, not what the model is)"
    assert f"  configuration: different, and known to be harmless: {printed}" in ended.lines


def test_labels_alone_leave_the_configuration_to_be_compared(cli: Cli, model: tuple[Path, Path]) -> None:
    assert cli("compare", *model, "--headers").code == 3
    rewritten(model[0], rope_theta=500000)
    ended = cli("compare", *model, "--headers")
    assert ended.code == 1
    answer = "DIFFERENT: 1 of 6 configuration fields differs: rope_base; BLOCKED: not-compared"
    assert ended.lines[-1].startswith(answer)


def test_both_halves_stand_in_one_answer(cli: Cli) -> None:
    ended = cli("compare", CONFIGS / "llama", CONFIGS / "wrong-base.gguf")
    assert ended.code == 1
    answer = "DIFFERENT: 2 of 2 tensors: 1 extra, 1 missing; 1 of 19 configuration fields differs: rope_base"
    assert ended.lines[-1] == answer


def test_what_could_not_be_compared_is_named_and_listed_with_all(cli: Cli) -> None:
    pair = CONFIGS / "llama", CONFIGS / "llama.gguf"
    printed = "  configuration: 19 fields agree; 2 not compared: token_types, tied_embeddings (--all says why)"
    assert printed in cli("compare", *pair).lines
    assert "  configuration: no rule reads 1 key of tokenizer.json: post_processor" in cli("compare", *pair).lines
    listed = [line for line in cli("compare", *pair, "--all").lines if "was not compared" in line]
    assert listed == [
        "  configuration: token_types (the import does not state it, and its loader is not asked) was not compared",
        "  configuration: tied_embeddings (a head of its own, or none at all: the tensors tell) was not compared",
    ]


def test_a_side_that_says_nothing_is_reported_and_does_not_decide(cli: Cli) -> None:
    plain = SPECIMENS / "checkpoints" / "source.safetensors"
    ended = cli("compare", plain, SPECIMENS / "checkpoints" / "mislabelled.gguf")
    printed = "  no config.json beside the source: configurations not compared"
    assert printed in ended.lines
    assert not [line for line in cli("compare", plain, plain).lines if "configuration" in line]


def test_one_folder_for_both_is_reported_and_does_not_decide(cli: Cli) -> None:
    ended = cli("compare", CONFIGS / "llama", CONFIGS / "llama" / "model.safetensors")
    printed = (
        "  configuration: both sides read one and the same config.json, which always agrees with itself (config-same)"
    )
    assert printed in ended.lines
    assert ended.code == 0


@pytest.mark.parametrize("name", ["not-a-number", "twice", "a-list", "deep", "id-2-40"])
def test_a_configuration_that_cannot_be_read_is_no_sameness(cli: Cli, name: str) -> None:
    ended = cli("compare", CONFIGS / "damaged" / name, CONFIGS / "llama")
    assert (ended.code, ended.lines[-1].split(": ")[:2]) == (4, ["UNREADABLE", "config"])


def test_the_machine_s_form_has_both_findings(cli: Cli, model: tuple[Path, Path]) -> None:
    rewritten(model[0], rope_theta=500000)
    ended = cli("compare", *model, "--json")
    (answer,) = json.loads(ended.out)
    assert answer["finding"]["outcome"] == "PASS"
    assert answer["configuration"]["outcome"] == "FAIL"
    assert answer["configuration"]["says"] == [
        "rope_base: 500000 (config.json rope_theta) became 10000 (nothing said; the default)"
    ]
    assert ended.code == 1


def padded(arrays: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    """Add rows to embedding and head, as `resize_token_embeddings` does: the mean of those that are there."""
    return {
        name: np.concatenate([one, np.repeat(one.mean(0, keepdims=True), rows, 0)])
        if name.startswith(("model.embed_tokens", "lm_head"))
        else one
        for name, one in arrays.items()
    }


def test_a_padded_vocabulary_is_compared_in_the_rows_that_there_were(cli: Cli, workplace: Path) -> None:
    config = {**CONFIG, "rope_theta": 10000}
    source = directory(workplace / "hf", decoder(), config)
    longer = padded(decoder(), 8)
    said = directory(workplace / "said", longer, {**config, "vocab_size": VOCAB + 8})
    file = gguf_file(workplace / "said.gguf", converted(longer, "llama"), "llama", vocab_size=VOCAB + 8)
    for candidate in (said, file):
        ended = cli("compare", source, candidate)
        assert ended.code == 1
        assert f"{VOCAB} of {VOCAB + 8} rows of a padded vocabulary" in ended.out
        assert "21 of 21 tensors are what was meant" in ended.out
        assert any("the vocabulary was padded" in line for line in ended.lines)
        flags = ended.lines[-2].partition("meant? it passes with ")[2].split()
        assert flags == ["--may-differ", "vocab_size"]
        assert cli("compare", source, candidate, *flags).code == 0


def test_an_old_row_that_changed_differs_however_many_were_added(cli: Cli, workplace: Path) -> None:
    longer = padded(decoder(), 8)
    longer["lm_head.weight"][3, 5] += 1
    source = directory(workplace / "hf", decoder(), CONFIG)
    said = directory(workplace / "said", longer, {**CONFIG, "vocab_size": VOCAB + 8})
    ended = cli("compare", source, said, "--may-differ", "vocab_size")
    assert ended.code == 1
    assert "lm_head.weight: F32 -> F32, but 1 of 2048 elements is not the source's" in ended.out


@pytest.mark.parametrize("said", [VOCAB, 9 << 12])
def test_a_large_vocabulary_is_compared_in_stretches(cli: Cli, workplace: Path, said: int) -> None:
    old = {"lm_head.weight": np.random.default_rng(5).standard_normal((1 << 15, WIDTH)).astype(np.float32)}
    new = {"lm_head.weight": np.concatenate([old["lm_head.weight"], old["lm_head.weight"][: 1 << 12]])}
    source = directory(workplace / "hf", old, {**CONFIG, "vocab_size": 1 << 15})
    ended = cli("compare", source, directory(workplace / "x", new, {**CONFIG, "vocab_size": said}))
    assert ended.code == 1
    assert ("32768 of 36864 rows" if said != VOCAB else "explained: padded-vocabulary") in ended.out


def test_rows_that_no_configuration_speaks_of_are_named_and_not_accepted(cli: Cli, workplace: Path) -> None:
    source = directory(workplace / "hf", decoder(), CONFIG)
    ended = cli("compare", source, directory(workplace / "unsaid", padded(decoder(), 8), CONFIG))
    assert ended.code == 1
    assert ended.lines[-1] == "DIFFERENT: 2 of 21 tensors: 2 wrong shape (padded-vocabulary)"
    changed = padded(decoder(), 8)
    changed["lm_head.weight"][3, 5] += 1
    ended = cli("compare", source, directory(workplace / "changed", changed, CONFIG))
    assert "1 wrong shape (different content), 1 wrong shape (padded-vocabulary)" in ended.lines[-1]
    directory(workplace / "unsaid", padded(decoder(), 8), {**CONFIG, "vocab_size": VOCAB + 8})  # as the words say
    assert cli("compare", source, workplace / "unsaid", "--may-differ", "vocab_size").code == 0


SAYS_NOTHING = {
    "nothing": {},
    "a class alone": {"model_type": "llama", "transformers_version": "5.0"},
    "another key": {"a": 1},
}


@pytest.mark.parametrize("tokenizer", [False, True])
@pytest.mark.parametrize("said", SAYS_NOTHING.values(), ids=SAYS_NOTHING)
def test_a_config_that_states_no_size_is_another_than_one_that_does(
    cli: Cli, model: tuple[Path, Path], said: dict[str, object], *, tokenizer: bool
) -> None:
    full, file = model
    empty = directory(full.parent / "empty", decoder(), said)
    rewritten(full, rope_theta=10000, transformers_version="4.57")
    for folder in (full, empty) if tokenizer else ():
        (folder / "tokenizer.json").write_text((CONFIGS / "llama" / "tokenizer.json").read_text())
    for pair in ((full, empty), (empty, full)):
        ended = cli("compare", *pair)
        assert ended.code == 1
        assert "block_count" in ended.lines[-1]
    assert cli("compare", empty, file).code in (1, 4)


def test_two_configs_that_say_nothing_are_not_compared(cli: Cli, workplace: Path) -> None:
    folders = [directory(workplace / name, decoder(), {}) for name in ("a", "b")]
    ended = cli("compare", *folders)
    assert (ended.code, ended.lines[-1]) == (3, "BLOCKED: config-empty")
