"""Trace files: what is read back is what was written, and what lies is refused with what, where and what to do."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.forward.traces import TOKENS, entry, facts, trace, written

from weighbridge.cards.words import glossary
from weighbridge.core.errors import SubjectError
from weighbridge.core.limits import plain
from weighbridge.formats.trace_key import KEY, is_trace, names_itself_trace
from weighbridge.forward.trace_file import (
    RESERVED,
    Device,
    Facts,
    TraceWriter,
    open_trace,
    save,
)

SAID = Facts(stack="s", device=Device(requested="cpu"), dtype="float32", tokens=((1, 2, 3),), order=("embed", "logits"))


def write(path: Path, said: Facts, **points: list[np.ndarray[Any, Any]]) -> None:
    writer = TraceWriter(path)
    for at in range(max(map(len, points.values()))):
        for name, parts in points.items():
            writer.write(name, parts[at].tobytes(), parts[at].shape, parts[at].dtype.name)
    writer.close(said)


# --- What is written is read ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_what_a_writer_wrote_is_read_bit_for_bit(tmp_path: Path, dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    values = np.random.default_rng(0).standard_normal((2, 5, 3)).astype(kind)
    found = trace(tmp_path / "a.trace", {"embed": values, "logits": values + kind.type(1)})
    assert found.held_as("embed") == dtype
    assert found.stored("embed").tobytes() == values.tobytes()
    assert found.cut(1).stored("embed").tobytes() == values[:1].tobytes()
    few = found.cut(2, 3)
    assert (few.shape("embed"), len(few.facts.tokens[1])) == ((2, 3, 3), 3)
    assert few.stored("embed", 1, 2).tobytes() == values[1:, :3].tobytes()


def test_steps_are_joined_along_tokens(tmp_path: Path) -> None:
    whole = np.arange(24, dtype="f4").reshape(2, 3, 4)
    parts = [whole[:, :1], whole[:, 1:2], whole[:, 2:]]
    said = Facts(**{**vars_of(SAID), "tokens": ((1, 2, 3), (4, 5, 6))})
    write(tmp_path / "a.trace", said, embed=parts, logits=[part * 2 for part in parts])
    found = open_trace(tmp_path / "a.trace")
    assert (found.stored("embed") == whole).all()
    assert (found.stored("logits") == 2 * whole).all()


def vars_of(said: Facts) -> dict[str, Any]:
    return {name: getattr(said, name) for name in said.__slots__}


def test_a_header_longer_than_what_was_reserved_moves_the_values(tmp_path: Path) -> None:
    names = tuple(f"layer.{n}.a_long_name_of_a_point_{'x' * 80}.out" for n in range(600))
    writer = TraceWriter(tmp_path / "a.trace")
    for n, name in enumerate(names):
        writer.write(name, np.full((1, 3, 2), n, "f4").tobytes(), (1, 3, 2), "float32")
    writer.close(Facts(**{**vars_of(SAID), "order": names}))
    assert (tmp_path / "a.trace").stat().st_size > 600 * 24 + RESERVED
    found = open_trace(tmp_path / "a.trace")
    assert [float(found.stored(name)[0, 0, 0]) for name in names] == list(range(600))


def test_facts_can_be_said_again_over_the_same_values(tmp_path: Path) -> None:
    first = open_trace(written(tmp_path / "a.trace"))
    noise = {"logits": 1e-7, "embed": None}
    said = Facts(**{**vars_of(first.facts), "noise": noise, "files": {"w.safetensors": "0" * 64}})
    save(first, said, tmp_path / "b.trace")
    again = open_trace(tmp_path / "b.trace")
    assert plain(again.facts) == plain(said)
    assert all((again.stored(name) == first.stored(name)).all() for name in said.order)


# --- What lies is refused ---------------------------------------------------------------------------------------------

NO_CHANNELS = {"dtype": "F32", "shape": [2, 5, 0], "data_offsets": [0, 0]}
HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "no metadata": ("trace-facts", {"metadata": {}}),
    "several keys": ("trace-facts", {"metadata": {KEY: json.dumps(facts()), "format": "pt"}}),
    "another key": ("trace-facts", {"metadata": {"facts": json.dumps(facts())}}),
    "facts that are no JSON": ("trace-facts", {"said": "stack: an engine"}),
    "facts given twice": ("trace-facts", {"said": json.dumps(facts())[:-1] + ', "dtype": "float16"}'}),
    "facts nested too deep": ("trace-facts", {"said": "[" * 100_000}),
    "facts that are a list": ("trace-facts", {"said": []}),
    "an unknown fact": ("trace-facts", {"said": facts(seed=3)}),
    "a missing fact": ("trace-facts", {"said": facts(stack=None)}),
    "another format": ("trace-facts", {"said": facts(format="trace/v9")}),
    "a dtype of no roundoff": ("trace-facts", {"said": facts(dtype="float8")}),
    "a negative token": ("trace-facts", {"said": facts(tokens=[[1, 2], [3, -4]])}),
    "a token beyond 32 bits": ("trace-facts", {"said": facts(tokens=[[1, 2], [3, 2**40]])}),
    "a token that is a text": ("trace-facts", {"said": facts(tokens=[["1", 2], [3, 4]])}),
    "a NaN of noise": ("trace-facts", {"said": json.dumps(facts(noise={"embed": float("nan")}))}),
    "negative noise": ("trace-facts", {"said": facts(noise={"embed": -1.0})}),
    "a digest that is none": ("trace-facts", {"said": facts(weights={"w": "yes"})}),
    "tokens of different lengths": ("trace-tokens", {"said": facts(tokens=[[1, 2, 3, 4, 5], [1, 2]])}),
    "no tokens": ("trace-tokens", {"said": facts(tokens=[])}),
    "empty sequences": ("trace-tokens", {"said": facts(tokens=[[], []])}),
    "no points": ("trace-empty", {"said": facts(order=[]), "embed": None, "logits": None, "body": b""}),
    "an order that names another point": ("trace-order", {"said": facts(order=["embed", "final.out"])}),
    "an order that leaves one out": ("trace-order", {"said": facts(order=["embed"])}),
    "a doubled point": ("trace-order", {"said": facts(order=["embed", "logits", "logits"])}),
    "a point of no state": ("point-id", {"said": facts(order=["q", "logits"]), "embed": None, "q": entry(4, 0)}),
    "noise of another point": ("trace-order", {"said": facts(noise={"L9.out": 0.5})}),
    "a dtype of no number": ("trace-dtype", {"embed": entry(4, 0, "I8", [2, 5, 16])}),
    "two dimensions": ("trace-shape", {"embed": entry(4, 0, shape=[10, 4])}),
    "tokens first": ("trace-shape", {"embed": entry(4, 0, shape=[5, 2, 4])}),
    "three sequences": ("trace-shape", {"embed": entry(6, 0, shape=[3, 5, 4]), "logits": entry(4, 240)}),
    "no channels": ("trace-shape", {"embed": NO_CHANNELS, "logits": entry(10, 0)}),
    "a shape that lies": ("safetensors-span", {"embed": entry(4, 0, shape=[2, 5, 400])}),
    "a shape beyond counting": ("safetensors-span", {"embed": entry(4, 0, shape=[2**40, 2**40, 4])}),
    "a dtype that lies": ("safetensors-span", {"embed": entry(4, 0, "F16")}),
    "overlapping offsets": ("safetensors-overlap", {"logits": entry(6, 80)}),
    "a truncated file": ("safetensors-truncated", {"body": b"\0" * 300}),
    "bytes behind the end": ("safetensors-trailing", {"body": b"\0" * 500}),
}


@each("name", HOSTILE)
def test_a_trace_that_lies_is_refused_with_what_where_and_what_to_do(tmp_path: Path, name: str) -> None:
    code, changes = HOSTILE[name]
    path = written(tmp_path / "a.trace", **changes)
    with pytest.raises(SubjectError) as refused:
        open_trace(path)
    assert refused.value.code == code
    assert refused.value.where.startswith(str(path))
    assert refused.value.what
    assert refused.value.remedy


def test_every_code_of_a_trace_is_explained_and_no_other() -> None:
    raised = {code for code, _ in HOSTILE.values() if code.startswith("trace-")} | {
        "trace-steps",
        "trace-step",
        "trace-points",
    }
    assert set(glossary("codes")["code of a trace"]) == raised


@pytest.mark.slow
def test_a_million_points_are_refused_before_they_are_built(tmp_path: Path) -> None:
    entries = ",".join(f'"p.{n}":{{"dtype":"F32","shape":[1,1,1],"data_offsets":[0,4]}}' for n in range(1_000_000))
    raw = f'{{"__metadata__":{{"{KEY}":"{{}}"}},{entries}}}'.encode()
    (tmp_path / "a.trace").write_bytes(struct.pack("<Q", len(raw)) + raw + bytes(4))
    with pytest.raises(SubjectError, match="safetensors-header the header says 6"):
        open_trace(tmp_path / "a.trace")


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_trace_is_refused_or_still_one(tmp_path: Path, data: st.DataObject) -> None:
    raw = bytearray(written(tmp_path / "a.trace").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 401))] = data.draw(st.integers(0, 255))
    (tmp_path / "b.trace").write_bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) - 1, 40, 7]))])
    try:
        found = open_trace(tmp_path / "b.trace")
    except SubjectError as refused:
        assert refused.remedy
    else:
        assert all(np.prod(found.shape(name) or ()) for name in found.facts.order)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.slow
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from([*facts(), "weights", "files", "noise", "format"]), value=json_values)
def test_any_fact_of_another_form_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = written(tmp_path / "a.trace", {**facts(), key: value})
    try:
        found = open_trace(path)
    except SubjectError as refused:
        assert refused.code in ("trace-facts", "trace-tokens", "trace-empty", "trace-order", "point-id", "trace-shape")
    else:
        assert found.facts.order == ("embed", "logits")
        assert len(found.facts.tokens[0]) == len(TOKENS[0])


def test_values_that_are_nan_are_read_for_a_judge_to_see(tmp_path: Path) -> None:
    found = open_trace(written(tmp_path / "a.trace", body=np.full(100, np.nan, "<f4").tobytes()))
    assert np.isnan(found.stored("embed")).all()


# --- What is a trace --------------------------------------------------------------------------------------------------


def test_a_trace_is_known_by_its_key_and_no_checkpoint_is_one(tmp_path: Path) -> None:
    path = written(tmp_path / "a.trace")
    other = written(tmp_path / "b", metadata={"format": "pt"}, said="weighbridge.trace")
    named = written(tmp_path / "c", metadata={"format": KEY})
    assert names_itself_trace(str(path))
    assert not any(names_itself_trace(str(one)) for one in (other, named, tmp_path, tmp_path / "none"))


def test_to_ask_whether_a_fifo_is_a_trace_does_not_wait(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "fifo")
    assert not is_trace(str(tmp_path / "fifo"))
