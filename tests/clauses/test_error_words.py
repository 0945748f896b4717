"""The words for an error: where it lies, what relates it to the truth, what is most often wrong with such a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from weighbridge.clauses.error_words import ANY, likely, place_of, related
from weighbridge.core.canonical import build
from weighbridge.core.data import table
from weighbridge.core.limits import plain
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.forward import Extent, ForwardError, Relation, Span

ROW = build(ForwardError, plain(QUANTITIES["forward_errors"].typical()))


def span(of: int, first: int = 0, last: int | None = None, **changes: int) -> Span:
    last = of - 1 if last is None else last
    run = Span(first=first, last=last, every=0, wide=last + 1 - first, count=last + 1 - first, of=of, share=1.0)
    return replace(run, **changes)


ALL = span(48)
CASES = {
    "it lies in tokens 16-47, none before, of every sequence": ({"tokens": span(48, 16)}, "L0.attn.o.in"),
    "it lies in the last token, 47, of every sequence": ({"tokens": span(48, 47)}, "L0.attn.o.in"),
    "it lies in tokens 0-46, none after, of every sequence": ({"tokens": span(48, 0, 46)}, "L0.attn.o.in"),
    "it lies in tokens 5-9, no other, of every sequence": ({"tokens": span(48, 5, 9)}, "L0.attn.o.in"),
    "it lies in token 7 of every sequence": ({"tokens": span(48, 7, 7)}, "L0.attn.o.in"),
    "it lies in every token of sequence 2 alone": ({"sequences": span(4, 2, 2)}, "L0.attn.o.in"),
    "it lies in token 7 of sequence 2 alone": ({"sequences": span(4, 2, 2), "tokens": span(48, 7, 7)}, "L0.attn.o.in"),
    "it lies in every token of 2 of 4 sequences": ({"sequences": span(4, 1, 2)}, "L0.attn.o.in"),
    "it lies in channels 32-47 (head 2 of 4)": ({"channels": span(64, 32, 47)}, "L0.attn.o.in"),
    "it lies in channels 32-63 (heads 2-3 of 4)": ({"channels": span(64, 32, 63)}, "L0.attn.o.in"),
    "it lies in channels 32-47": ({"channels": span(64, 32, 47)}, "L0.mlp.down.out"),
    "it lies in channels 8-15 of every head of 16": (
        {"channels": span(64, 8, 63, every=16, wide=8, count=32)},
        "L0.attn.attention.query.in",
    ),
    "it lies in every second channel from 1 on": (
        {"channels": span(64, 1, 63, every=2, wide=1, count=32)},
        "L0.mlp.down.out",
    ),
    "it lies in channels 2 and 9": ({"channels": span(64, 2, 9, every=7, wide=1, count=2)}, "L0.attn.o.in"),
    "it lies in channel 63": ({"channels": span(64, 63)}, "L0.mlp.down.out"),
    "it lies in 30 of 64 channels, the first 3": (
        {"channels": span(64, 3, 60, wide=0, count=30)},
        "L0.mlp.down.out",
    ),
    "every token and channel is off": ({}, "L0.mlp.down.out"),
}


@pytest.mark.parametrize("words", CASES)
def test_an_extent_is_said_as_an_engineer_would(words: str) -> None:
    changes, point = CASES[words]
    whole = {"sequences": span(4), "tokens": ALL, "channels": span(64), **changes}
    row = replace(typical(point), extent=Extent(**whole))
    assert place_of(row) == f"; {words}"


def typical(point: str) -> ForwardError:
    return replace(ROW, point=point, run=replace(ROW.run, head=16))


def test_where_no_extent_was_looked_for_none_is_said() -> None:
    assert place_of(typical("logits")) == ""


def test_a_relation_is_reported_only_where_it_explains_nine_tenths_of_the_error() -> None:
    scale = Relation(name="scale", to="1", left=1e-3)
    assert related(scale, 1.05e-3, 1e-3) == ""  # rounding, of which a factor of one explains nothing
    assert related(replace(scale, to="0.98", left=1e-9), 0.02, 1e-7) == "; it is the right value times 0.98"
    assert related(replace(scale, to="0.98", left=1e-3), 0.02, 1e-7) == ""  # more than the limit is left
    assert related(replace(scale, left=None), 0.5, 1e-7) == ""
    assert related(replace(scale, left=float("nan")), 0.5, 1e-7) == ""
    near = Relation(name="neighbour", to="lm_head.out", left=0.0)
    assert related(near, 0.5, 1e-7) == "; it equals lm_head.out: the step between was skipped"
    assert related(replace(near, name=""), 0.5, 1e-7) == ""


STEPS = {
    "linear": ("addmm",), "attention": ("bmm", "_softmax", "mul"), "norm": ("mean", "mul", "pow", "rsqrt"),
    "rotation": ("add", "cat", "mul", "neg"), "rotary frequencies": ("bmm", "cat", "cos", "sin"),
    "activation": ("mul", "silu"), "router": ("_softmax", "div", "topk"), "sum": ("add",), "embedding": ("embedding",),
}  # fmt: skip


def step(kind: str, relation: str = "", error: float = 0.5, **places: Span) -> str:
    """Return the causes that are told of a step whose error lies where the places say."""
    extent = Extent(**{"sequences": span(4), "tokens": ALL, "channels": span(64), **places})
    found = Relation(name=relation, to="", left=0.0)
    row = replace(typical("L0.attn.o.in"), operations=STEPS[kind], extent=extent, relation=found)
    row = replace(row, candidate=replace(row.candidate, all=error), run=replace(row.run, decoded=8))
    return likely(row, bool(relation)).removeprefix(f"{kind}: ")


@pytest.mark.parametrize("kind", STEPS)
def test_the_cause_names_the_operations_own_candidates(kind: str) -> None:
    assert likely(replace(ROW, operations=STEPS[kind])).startswith(f"{kind}: ")


def test_of_an_operation_that_is_not_in_the_table_the_general_cause_is_told() -> None:
    assert likely(ROW) == likely(replace(ROW, operations=("_fft_c2c",))) == ANY


def test_every_row_of_the_table_can_be_reached() -> None:
    for row in table("clauses/operations"):
        names = tuple(name.replace("*", "x") for name in row["made_by"][0])
        assert likely(replace(ROW, operations=names)).startswith(f"{row['name']}: ")


HALVES = span(64, 8, 63, every=16, wide=8, count=32)  # the second half of each head
PLACES: dict[str, tuple[str, dict[str, Any], str]] = {
    "a mask that shows what comes later": ("attention", {"tokens": span(48, 0, 46)}, "the causal mask"),
    "a window": ("attention", {"tokens": span(48, 16)}, "the mask's window, which ends near token 16"),
    "a row of a cache": ("attention", {"tokens": span(48, 40)}, "the cache"),
    "grouped heads": ("attention", {"channels": span(64, 16, 47)}, "grouped heads"),
    "a scale, which one token alone does not show": ("attention", {"tokens": span(48, 1)}, "the scale"),
    "heads that are cut otherwise": ("attention", {}, "the layout of heads"),
    "padding": ("attention", {"sequences": span(4, 3)}, "the mask of padding"),
    "a bias": ("linear", {"relation": "bias"}, "the bias"),
    "two rows": ("linear", {"channels": span(64, 2, 9, every=7, wide=1, count=2)}, "rows of the weight exchanged"),
    "the last token": ("linear", {"tokens": span(48, 47), "error": 0.005}, "what these tokens alone have"),
    "rounding": ("linear", {"error": 0.005}, "inputs or weights rounded"),
    "a turned matrix": ("linear", {}, "the weight transposed"),
    "half a head": ("rotation", {"tokens": span(48, 1), "channels": HALVES}, "how many channels"),
    "positions from elsewhere": ("rotation", {}, "the positions' offset"),
    "eps": ("norm", {"error": 1e-5}, "eps"),
    "another root": ("norm", {"relation": "token-scale"}, "eps, or the root"),
    "a norm's weight": ("norm", {"relation": "channel-scale"}, "the weight"),
    "a stream": ("sum", {"relation": "residual"}, "a stream that is missing"),
}  # fmt: skip


@pytest.mark.parametrize("error", PLACES)
def test_the_cause_that_fits_where_an_error_lies_comes_first(error: str) -> None:
    kind, places, cause = PLACES[error]
    assert step(kind, **places).startswith(cause)


def test_a_cause_that_the_place_of_the_error_contradicts_is_left_out() -> None:
    assert "window" not in step("attention", tokens=span(48, 0, 46))
    assert "bias" not in step("linear")  # which would leave nothing over
    assert step("linear", relation="bias") == "the bias, not added or another one"
    assert "mean" not in step("norm", error=1e-5)
    assert step("linear", tokens=span(48, 47), error=0.005).count("; or") == 0
    assert step("norm", channels=span(64, 2, 40, wide=0, count=9), error=1e-5) == ANY


def test_where_no_place_is_known_every_cause_may_be_told() -> None:
    row = replace(ROW, operations=STEPS["attention"], candidate=replace(ROW.candidate, all=0.5))
    assert likely(row).count("; or") == 2
