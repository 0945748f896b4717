"""moment_changes holds each tensor's statistics against those of what it is meant to be made of, in its mapping."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.comparison.conversions import converted, decoder, directory, gguf_file

from weighbridge.quantities.tensors import STATISTICS
from weighbridge.verifiers.moment_changes import LARGEST, VERIFIER
from weighbridge.verifiers.verifier import rows_by_name
from weighbridge.views.checkpoint import open_checkpoint

UP = "blk.1.ffn_up.weight"


def rows(source: Path, candidate: Path) -> dict[str, Any]:
    return rows_by_name(VERIFIER.measure((open_checkpoint(source), open_checkpoint(candidate)), {}))


@pytest.mark.parametrize("architecture", ["llama", "gemma"])
def test_what_a_mapping_permutes_or_computes_has_not_changed(tmp_path: Path, architecture: str) -> None:
    source = decoder()
    arrays = converted(source, architecture)
    arrays.pop("output.weight")  # a Gemma has none of its own
    found = rows(directory(tmp_path / "hf", source), gguf_file(tmp_path / "m.gguf", arrays, architecture))
    assert {getattr(found[name], statistic) for name in arrays for statistic in (*STATISTICS, "finite")} == {0.0}


@pytest.mark.parametrize(("dtype", "most"), [("Q8_0", 0.001), ("Q4_0", 0.02)])
def test_blocks_are_decoded_and_a_scale_is_seen_through_them(tmp_path: Path, dtype: str, most: float) -> None:
    source = decoder()
    arrays = converted(source, "qwen2")
    arrays[UP] = arrays[UP] * np.float32(1.25)
    found = rows(directory(tmp_path / "hf", source), gguf_file(tmp_path / "m.gguf", arrays, "qwen2", {"*": dtype}))
    changes = {name: found[name].std for name in arrays}
    assert changes.pop(UP) == pytest.approx(0.25, abs=2 * most)
    assert max(changes.values()) <= most


def test_one_side_alone_another_shape_and_a_source_of_zeros_are_reported_as_what_they_are(tmp_path: Path) -> None:
    ones, zeros = np.ones((4, 8), np.float32), np.zeros((4, 8), np.float32)
    source = directory(tmp_path / "source", {"gone": ones, "turned": ones, "zeros": zeros, "same": zeros})
    candidate = directory(tmp_path / "candidate", {"new": ones, "turned": ones.T, "zeros": ones, "same": zeros})
    found = rows(source, candidate)
    assert [found[name].std for name in ("gone", "new", "turned")] == [None] * 3
    assert (found["gone"].candidate_dtype, found["new"].source_dtype, found["turned"].source) == ("", "", {})
    assert (found["zeros"].mean, found["same"].mean) == (LARGEST, 0.0)


def test_what_no_rule_can_take_back_has_no_statistics_to_hold_it_to(tmp_path: Path) -> None:
    """The way back from GGUF: what was computed of A_log is not undone."""
    a_log, embedding = np.ones((4, 2), np.float32), np.ones((8, 4), np.float32)
    file = gguf_file(tmp_path / "m.gguf", {"blk.0.ssm_a": -np.exp(a_log), "token_embd.weight": embedding}, "mamba")
    saved = {"backbone.layers.0.mixer.A_log": a_log, "backbone.embeddings.weight": embedding}
    found = rows(file, directory(tmp_path / "hf", saved))
    assert (found["backbone.layers.0.mixer.A_log"].std, found["backbone.embeddings.weight"].std) == (None, 0.0)
