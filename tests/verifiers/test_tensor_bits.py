"""tensor_bits sees every bit of every tensor, in files that their own libraries wrote."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.verifiers.tensors import view_of

from weighbridge.core.model import Measurement
from weighbridge.evaluation.runner import lay_canary
from weighbridge.gates.label_plausibility import Limits, decide
from weighbridge.verifiers import tensor_bits
from weighbridge.verifiers.tensor_bits import VERIFIER, Bits
from weighbridge.verifiers.verifier import NoCanary, rows_by_name
from weighbridge.views.checkpoint import CheckpointView, open_checkpoint

BF16 = ml_dtypes.bfloat16
WEIGHTS = 0.02 * np.random.default_rng(0).standard_normal((40, 50))


def rows_of(view: CheckpointView) -> dict[str, Any]:
    return rows_by_name(VERIFIER.measure((view,), {}))


def test_effective_precision_is_read_from_every_word(tmp_path: Path) -> None:
    single = WEIGHTS.astype("<f4")
    rows = rows_of(
        view_of(
            tmp_path,
            native=single,
            brain=single.astype(BF16).astype("<f4"),
            half=single.astype("<f2").astype("<f4"),
            eight=(30 * single).astype(ml_dtypes.float8_e4m3fn).astype("<f2"),
            ones=np.ones(3, "<f8"),
            zeros=-np.zeros(3, "<f4"),
        )
    )
    bits = {name: row.trailing_zero_bits for name, row in rows.items()}
    assert bits == {"native": 0, "brain": 16, "half": 13, "eight": 7, "ones": 52, "zeros": None}
    assert rows["zeros"].zeros == 3


def test_what_the_bits_are_is_distinguished_in_gguf_too(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "x.gguf"), arch="llama")
    half = WEIGHTS.astype("<f2")
    writer.add_tensor("right", half)
    writer.add_tensor("wrong", WEIGHTS.astype(BF16).view("<f2"))
    q8_0 = gguf.GGMLQuantizationType.Q8_0
    writer.add_tensor("blocks", gguf.quants.quantize(np.ones((2, 32), np.float32), q8_0), raw_dtype=q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    rows = rows_of(open_checkpoint(tmp_path / "x.gguf"))
    verdicts = {name: decide(row, Limits()).verdict for name, row in rows.items()}
    assert verdicts == {"right": "ok", "wrong": "mislabelled", "blocks": "undecided"}


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 300), st.integers(1, 40), st.integers(2, 64))
def test_the_sample_is_evenly_spaced_and_holds_the_last_word(elements: int, sample: int, step: int) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tensor_bits, "SAMPLE", sample)
        words = np.arange(1, elements + 1, dtype="<u2")
        view = view_of(Path(folder), w=words.view("<f2"))
        found = Bits(view.tensor("w"))
        for chunk in view.chunks("w", 2 * step):
            found.take(chunk)
    stride, kept = -(-elements // sample), np.concatenate(found.kept)
    assert kept.tolist() == words[(elements - 1) % stride :: stride].tolist()
    assert kept[-1] == words[-1]
    assert (found.occurring, found.zeros) == (int(np.bitwise_or.reduce(words)), 0)


@pytest.mark.parametrize("dtype", ["<f2", BF16, "<f4", "<f8"])
def test_the_canary_is_seen_and_lies_in_the_last_of_two_tensors(tmp_path: Path, dtype: Any) -> None:
    view = view_of(tmp_path, a=WEIGHTS.astype(dtype), b=WEIGHTS.astype(dtype), c=np.zeros(4, "<i4"))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    canary = lay_canary(VERIFIER, (view,), {}, found)
    assert (canary.place, canary.seen) == ("b", True)


@pytest.mark.parametrize("blind", ["constant", "first tensor only", "first chunk only", "no fit", "label for bits"])
def test_a_blind_instrument_is_seen_to_be_blind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blind: str) -> None:
    big = np.resize(WEIGHTS, (600, 500)).astype("<f2")
    view = view_of(tmp_path, a=WEIGHTS.astype(BF16), b=big)
    right, whole, look = VERIFIER.measure((view,), {}), Bits.row, Bits.take
    assert isinstance(right, Measurement)
    kept = rows_of(view)

    def first_chunk(self: Bits, chunk: memoryview) -> None:
        if not self.kept:
            look(self, chunk)

    made: dict[str, Any] = {
        "constant": lambda self: kept[self.tensor.name],
        "first tensor only": lambda self: whole(self) if self.tensor.name == "a" else kept[self.tensor.name],
        "first chunk only": whole,
        "no fit": lambda self: dataclasses.replace(whole(self), as_stored=kept[self.tensor.name].as_stored),
        "label for bits": lambda self: dataclasses.replace(whole(self), or_word="0xffff"),
    }
    monkeypatch.setattr(Bits, "row", made[blind])
    if blind == "first chunk only":
        monkeypatch.setattr(Bits, "take", first_chunk)
    canary = VERIFIER.canary((view,), {}, right)
    assert not isinstance(canary, NoCanary)
    assert not canary.seen(VERIFIER.measure(canary.views, {}))


def test_a_file_without_floating_words_has_no_canary(tmp_path: Path) -> None:
    view = view_of(tmp_path, a=np.zeros(4, "<i4"))
    found = VERIFIER.measure((view,), {})
    assert isinstance(found, Measurement)
    assert VERIFIER.canary((view,), {}, found) == NoCanary("no tensor holds floating words")
    assert VERIFIER.extent((view,), {}) == 1
