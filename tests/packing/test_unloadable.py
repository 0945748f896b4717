"""What a configuration lists as not packed is taken from the names as its loader takes it."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from weighbridge.packing.packed_weights import by_names, skips
from weighbridge.packing.unloadable import unloadable
from weighbridge.views.checkpoint import open_checkpoint

MODULES = [
    *("lm_head", "model.layers.1.mlp.gate", "model.layers.1.mlp.gate_proj", "model.layers.11.mlp.gate_proj"),
    *("model.layers.1.self_attn.o_proj", "visual.blocks.1.fc1", "fc1", "model.layers.1.mlp.experts.0.w1"),
]
LISTED = [
    *("lm_head", "gate", "mlp.gate", "model.layers.1", "model.layers.1.", "layers.1", "fc1", "visual", "proj"),
    *(r"model\.layers\.(1|2)\.", "model.layers.*gate", "model.lay", "o_proj|fc1", ".*", "nothing"),
]


def test_lists_of_transformers_are_taken_as_it_takes_them() -> None:
    rule = pytest.importorskip("transformers.quantizers.quantizers_utils").should_convert_module
    for module, listed in itertools.product(MODULES, LISTED):
        left = skips({"modules_to_not_convert": ["other", listed]})(f"{module}.weight")
        assert left is not rule(module, ["other", listed]), (module, listed)


@pytest.mark.parametrize(
    ("listed", "left"),
    [
        ("model.layers.1.mlp.gate", True),
        ("mlp.gate", False),
        ("model.layers.1", False),
        ("re:.*mlp.gate$", True),
        ("re:.*gate_proj", False),
        ("re:mlp.*", False),
        ("re:(", False),
        ("Linear", False),
        (7, False),
    ],
)
def test_lists_of_compressed_tensors_name_whole_modules_or_patterns(listed: Any, left: bool) -> None:
    assert skips({"ignore": [listed]})("model.layers.1.mlp.gate.weight") is left


@pytest.mark.parametrize("pattern", ["(a+)+$", "(?:a|a)*b", ".*a.*a.*a.*a.*a.*b", "a" * 10_000 + "*" * 9])
def test_a_pattern_that_takes_long_is_not_tried(pattern: str) -> None:
    began = time.monotonic()
    settings = {"ignore": [f"re:{pattern}"], "modules_to_not_convert": [pattern]}
    assert not skips(settings)("a" * 200)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("listed", [None, "lm_head", {"lm_head": 1}, []])
def test_what_is_no_list_lists_nothing(listed: Any) -> None:
    assert not skips({"modules_to_not_convert": listed, "ignore": listed})("lm_head.weight")


@pytest.mark.parametrize(("layers", "lost", "said"), [(4, 1, True), (4, 0, False), (4, 4, False), (3, 1, False)])
def test_zero_points_that_all_but_one_weight_have_are_missed(
    tmp_path: Path, layers: int, lost: int, said: bool
) -> None:
    tensors: dict[str, Any] = {}
    for at in range(layers):
        stem = f"model.layers.{at}.mlp.up_proj"
        parts = {"qweight": np.ones((8, 64), "<i4"), "scales": np.ones((1, 64), "<f2")}
        parts |= {"qzeros": np.ones((1, 8), "<i4")} if at >= lost else {}
        tensors |= {f"{stem}.{name}": one for name, one in parts.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 64}
    config = {"model_type": "llama", "quantization_config": settings}
    (tmp_path / "config.json").write_text(json.dumps(config))
    view = open_checkpoint(str(tmp_path))
    found = unloadable(view, settings, tuple(by_names(view)))
    missed = "there is no model.layers.0.mlp.up_proj.qzeros"
    assert found == ({"model.layers.0.mlp.up_proj.qweight": missed} if said else {})
