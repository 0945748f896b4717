"""Files beside a checkpoint are read once, bounded, as regular files only, and digested with it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tests.cli.conftest import Cli, cli
from tests.comparison.conversions import CONFIG, converted, decoder, directory, gguf_file

from weighbridge.core.errors import SubjectError
from weighbridge.model_config.model_description import describe_model
from weighbridge.model_config.vocabulary import MODELS
from weighbridge.views.checkpoint import (
    MAX_CONFIG,
    CheckpointView,
    config_beside,
    json_beside,
    names_beside,
    open_checkpoint,
    text_beside,
)

__all__ = ["cli"]


@pytest.fixture
def view(tmp_path: Path) -> CheckpointView:
    return open_checkpoint(directory(tmp_path / "hf", decoder(1)))


def sidecars(view: CheckpointView) -> Path:
    return Path(next(iter(view.files))).parent


def test_whatever_is_read_by_a_fixed_name_lies_beside_a_file_that_was_bound_alone(tmp_path: Path) -> None:
    folder = directory(tmp_path / "hf", decoder(1))
    names = {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json", "vocab.txt"}
    names |= {"vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "params.json", *MODELS}
    names |= {"adapter_config.json", "modules.json", "model.safetensors.index.json"}
    for name in {*names, "README.md", "setup.py", "other.safetensors", "notes.txt"} - {"config.json"}:
        (folder / name).write_text("{}")
    assert set(names_beside(open_checkpoint(folder / "model.safetensors"))) == names


def test_further_parts_lie_beside_shards_that_were_bound_by_their_index(tmp_path: Path) -> None:
    folder = directory(tmp_path / "hf", decoder(1))
    shards = {}
    for number in (1, 2):
        name = f"model-0000{number}-of-00002.safetensors"
        save_file({f"w{number}": np.ones(4, np.float32)}, folder / name)
        shards[f"w{number}"] = name
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    (folder / "results.json").write_text("{}")
    assert names_beside(open_checkpoint(index)) == ("config.json", "model.safetensors")


def test_what_was_read_is_digested_and_nothing_else(view: CheckpointView) -> None:
    (sidecars(view) / "README.md").write_text("unread")
    assert set(view.digest()) == {"model.safetensors"}
    config_beside(view)
    assert set(view.digest()) == {"model.safetensors", "config.json"}
    printed = hashlib.sha256((sidecars(view) / "config.json").read_bytes()).hexdigest()
    assert view.digest()["config.json"] == printed
    assert view.cut([]).digest()["config.json"] == printed


def test_a_file_that_is_replaced_after_it_was_read_is_digested_as_it_was_read(view: CheckpointView) -> None:
    config_beside(view)
    before = view.digest()
    (sidecars(view) / "new").write_text("{}")
    (sidecars(view) / "new").rename(sidecars(view) / "config.json")
    assert config_beside(view) == CONFIG
    assert view.digest() == before


def test_a_file_that_is_written_to_after_it_was_read_is_an_error(view: CheckpointView) -> None:
    config_beside(view)
    (sidecars(view) / "config.json").write_text("{}")
    with pytest.raises(SubjectError, match="subject-changed"):
        view.digest()
    with pytest.raises(SubjectError, match="subject-changed"):
        config_beside(view)


def test_a_fifo_a_folder_and_a_link_to_nothing_are_errors_and_never_hang(view: CheckpointView) -> None:
    home = sidecars(view) / "config.json"
    made: tuple[tuple[Callable[[], None], str], ...] = (
        (lambda: os.mkfifo(home), "file-kind"),
        (home.mkdir, "file-kind"),
        (lambda: home.symlink_to("nowhere"), "file-missing"),
        (lambda: home.symlink_to("config.json"), "file-unreadable"),
        (home.touch, "empty-file"),
    )
    for make, code in made:
        home.unlink(missing_ok=True) if not home.is_dir() else home.rmdir()
        make()
        with pytest.raises(SubjectError) as raised:
            config_beside(view)
        assert raised.value.code == code


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "is not an object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1, "a": 2}', "the key 'a' is given twice"),
        (b"\xff", "not UTF-8"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a": ' + b"9" * 100 + b"}", "an integer of 100 digits"),
        (b" " * (MAX_CONFIG + 1), f"more than the {MAX_CONFIG} that are read"),
    ],
)
def test_hostile_json_is_a_clear_error(view: CheckpointView, content: bytes, message: str) -> None:
    (sidecars(view) / "config.json").write_bytes(content)
    with pytest.raises(SubjectError) as raised:
        json_beside(view, "config.json", MAX_CONFIG)
    assert raised.value.code == "config"
    assert message in str(raised.value)
    assert "config.json" in raised.value.where


def test_a_text_that_is_none_is_an_error(view: CheckpointView) -> None:
    (sidecars(view) / "chat_template.jinja").write_bytes(b"ab\xff")
    with pytest.raises(SubjectError, match="is not UTF-8 at byte 2"):
        text_beside(view, "chat_template.jinja", 100)
    assert text_beside(view, "vocab.txt", 100) is None


def test_everything_that_a_description_was_read_from_is_digested(view: CheckpointView) -> None:
    names = {"generation_config.json", "tokenizer_config.json", "chat_template.jinja", "vocab.txt"}
    for name in names:
        (sidecars(view) / name).write_text("{}" if name.endswith("json") else "a\n")
    describe_model(view)
    assert set(view.digest()) == {*names, "config.json", "model.safetensors"}


def test_a_bundle_names_the_configuration_that_a_mapping_was_made_from(cli: Cli, workplace: Path) -> None:
    source = decoder()
    hf = directory(workplace / "hf", source)
    file = gguf_file(workplace / "m.gguf", converted(source, "llama"), "llama")
    bound = ("--subject", f"source={hf}", "--subject", f"import={file}")
    assert cli("verify", "builtin:model-import", *bound, "--evidence", "ev").code == 0
    (statement,) = (workplace / "ev" / "bundles").glob("*/statement.json")
    digests = {one["name"]: one["digest"]["sha256"] for one in json.loads(statement.read_text())["subject"]}
    assert digests["config.json"] == hashlib.sha256((hf / "config.json").read_bytes()).hexdigest()
    assert set(digests) == {"model.safetensors", "config.json", "m.gguf"}
