"""What llama.cpp's converter writes of a configuration agrees with it, but for what it is known to lose.

`by_the_converter.json` holds the config.json of tiny random models of transformers 5.23, without what speaks of their
tokenizers, the keys of the header that the converter of llama-cpp-python 0.3.36 made of each, with their types, and
which of the tensors that tell something it wrote.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from tests.formats.files import safetensors

from weighbridge.core.model import Measurement
from weighbridge.gates.config_agreement import KIND, Limits
from weighbridge.verifiers.model_config import VERIFIER
from weighbridge.views.checkpoint import open_checkpoint

CONVERTED = json.loads(Path(__file__).with_name("by_the_converter.json").read_text())
LOST = {
    "bamba": {"rope_dimensions": "granite.py:510"},
    "glm": {"context_length": "chatglm.py:140", "norm_epsilon": "chatglm.py:146"},
    "phi": {"feed_forward_length": "gpt2.py:22, phi.py:29", "head_count_kv": "phi.py:32"},
}
BY_SHAPES = ("ssm_inner_size", "deepseek2.attention.*")  # shapes of tensors say these, and here each has one number


def judged(folder: Path, name: str, **changed: Any) -> dict[str, Any]:
    """Return what is objected to in a conversion, one key of its header changed, by field."""
    printed = CONVERTED[name]
    (folder / "hf").mkdir()
    (folder / "hf" / "config.json").write_text(json.dumps(printed["config"]))
    safetensors(folder / "hf" / "model.safetensors", {"w": ("F32", (1,), bytes(4))})
    writer = gguf.GGUFWriter(folder / "x.gguf", printed["architecture"])
    for key, (types, value) in printed["header"].items():
        kinds = [gguf.GGUFValueType[kind] for kind in types]
        writer.add_key_value(key, changed.get(key.partition(".")[2].replace(".", "_"), value), *kinds)
    for tensor in printed["tensors"] or ["w"]:
        writer.add_tensor(tensor, np.zeros(1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = VERIFIER.measure((open_checkpoint(folder / "hf"), open_checkpoint(folder / "x.gguf")), {})
    assert isinstance(found, Measurement)
    limits = Limits(required=("block_count", "embedding_length"), allow_extra=BY_SHAPES)
    offences = KIND.judge({"fields": found}, limits).offences
    return {one.place: one.figures for one in offences}


@pytest.mark.parametrize("name", CONVERTED)
def test_a_right_conversion_differs_in_what_the_converter_loses_and_names_its_line(tmp_path: Path, name: str) -> None:
    found = judged(tmp_path, name)
    assert found.keys() == LOST.get(name, {}).keys()
    for field, line in LOST.get(name, {}).items():
        assert f"({line} of llama.cpp's converter)" in found[field]["candidate_read"]


@pytest.mark.parametrize(
    ("name", "key", "value", "field"),
    [
        ("dbrx", "expert_used_count", 3, "expert_used_count"),
        ("deepseek-v3", "attention_key_length_mla", 40, "head_dim"),
        ("gemma4", "attention_key_length_swa", 8, "head_dim_local"),
        ("glm", "attention_layer_norm_rms_epsilon", 2e-5, "norm_epsilon"),
        ("llama4", "feed_forward_length", 96, "feed_forward_length"),
        ("mimo-v2-flash", "attention_sliding_window_pattern", [True, False, True, True, True], "sliding_layers"),
        ("mpt", "feed_forward_length", 512, "feed_forward_length"),
        ("nemotron-h", "block_count", 5, "block_count"),
    ],
)
def test_a_wrong_one_differs_there_and_no_line_is_named(
    tmp_path: Path, name: str, key: str, value: Any, field: str
) -> None:
    found = judged(tmp_path, name, **{key: value})
    assert found.keys() == LOST.get(name, {}).keys() | {field}
    assert "converter" not in found[field]["candidate_read"]
