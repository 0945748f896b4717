"""Other makings are tried whatever the mapping, with the head counts that either side states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from benchmarks.damages import flipped, permuted, unpermuted
from tests.comparison.conversions import CONFIG, HEADS, KV, converted, decoder, directory, gguf_file, weighed

from weighbridge.gates.families.tensor_pairs import UNEXPLAINED

Q, K = (f"model.layers.1.self_attn.{one}_proj.weight" for one in "qk")


def named(source: Path, candidate: Path, **options: Any) -> dict[str, str]:
    _, verdict = weighed(source, candidate, **options)
    return {offence.place: str(offence.figures["mechanism"]) for offence in verdict.offences}


@pytest.mark.parametrize("stating", ["source", "candidate"])
@pytest.mark.parametrize(
    ("place", "change", "right"),
    [
        (Q, lambda x: permuted(x, HEADS), "permuted-unasked"),
        (K, lambda x: permuted(x, KV), "permuted-unasked"),
        (K, lambda x: permuted(x, HEADS), "permuted-unasked"),
        (K, lambda x: unpermuted(x, KV), "permutation-inverse"),
        (K, lambda x: x[::-1], UNEXPLAINED),
    ],
)
def test_one_directory_against_another(
    tmp_path: Path, stating: str, place: str, change: Callable[[Any], Any], right: str
) -> None:
    tensors, silent = decoder(), {"model_type": "llama"}
    configs: dict[str, dict[str, Any]] = {"source": silent, "candidate": silent, stating: CONFIG}
    source = directory(tmp_path / "source", tensors, configs["source"])
    candidate = directory(tmp_path / "candidate", tensors | {place: change(tensors[place])}, configs["candidate"])
    assert named(source, candidate) == {place: right}


def test_names_of_another_scheme(tmp_path: Path) -> None:
    tensors = decoder()
    theirs = {name.replace("self_attn.", "attention.w").replace("_proj", ""): x for name, x in tensors.items()}
    places = {"attention.wk": KV, "attention.wq": HEADS}
    turned = {name: permuted(x, places[name[-19:-7]]) for name, x in theirs.items() if name[-19:-7] in places}
    source, candidate = directory(tmp_path / "hf", tensors), directory(tmp_path / "meta", theirs | turned)
    renamed = {"map": "table", "rename": [{"from": r"self_attn\.(.)_proj", "to": r"attention.w\1"},
                                          {"from": r"mlp\.(\w+)_proj", "to": r"mlp.\1"}]}  # fmt: skip
    assert named(source, candidate, **renamed) == dict.fromkeys(turned, "permuted-unasked")


def test_keys_made_with_a_head_count_that_the_import_alone_states(tmp_path: Path) -> None:
    tensors = decoder()
    arrays = converted(tensors, "llama")
    arrays["blk.1.attn_k.weight"] = permuted(tensors[K], 8)
    source = directory(tmp_path / "hf", tensors)
    assert named(source, gguf_file(tmp_path / "m.gguf", arrays, "llama", heads=(HEADS, 8))) == {
        "blk.1.attn_k.weight": "wrong-head-count"
    }


@pytest.mark.parametrize(("wide", "right"), [(True, "swapped"), (False, UNEXPLAINED)])
def test_sides_are_called_exchanged_where_most_values_differ_and_not_for_one_bit(
    tmp_path: Path, wide: bool, right: str
) -> None:
    values = np.random.default_rng(1).standard_normal((8, 64)).astype(np.float32)
    narrow = values.astype(ml_dtypes.bfloat16)
    source = directory(tmp_path / "source", {"a": narrow})
    candidate = directory(tmp_path / "candidate", {"a": values if wide else flipped(narrow.astype(np.float32))})
    _, verdict = weighed(source, candidate)
    (offence,) = verdict.offences
    assert (offence.figures["mechanism"], offence.figures["differing"]) == (right, 512 if wide else 1)
