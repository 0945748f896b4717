"""Where an error lies: what was planted is found, as spans, and values that do not stand out are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from weighbridge.forward.relations import extent_of, span_of  # noqa: E402

U = 2.0**-24


def expanded(span: object) -> set[int]:
    """Return the places of a span that has an order."""
    of = vars_of(span)
    starts = range(of["first"], of["last"] + 1, of["every"] or of["last"] + 1)
    return {start + n for start in starts for n in range(of["wide"])}


def vars_of(span: object) -> dict[str, int]:
    return {name: getattr(span, name) for name in ("first", "last", "every", "wide", "count", "of")}


@given(st.integers(0, 40), st.integers(1, 8), st.integers(1, 8), st.integers(1, 6), st.integers(0, 40))
def test_a_planted_order_is_found_exactly(first: int, wide: int, gap: int, runs: int, after: int) -> None:
    planted = {first + run * (wide + gap) + n for run in range(runs) for n in range(wide)}
    of = max(planted) + 1 + after
    found = span_of([place in planted for place in range(of)])
    assert found is not None
    assert expanded(found) == planted
    assert (found.count, found.of, found.last) == (len(planted), of, max(planted))


@given(st.sets(st.integers(0, 60), max_size=40))
def test_what_has_no_order_is_counted_and_never_given_one(marked: set[int]) -> None:
    found = span_of([place in marked for place in range(61)])
    assert (found is None) == (not marked)
    if found is None:
        return
    assert (found.first, found.last, found.count) == (min(marked), max(marked), len(marked))
    if found.every:
        assert expanded(found) == marked
    elif found.wide:
        assert expanded(found) >= marked
        assert len(marked) >= 0.9 * found.wide


@given(st.data())
def test_a_planted_box_of_a_tensor_is_found(data: st.DataObject) -> None:
    rows, tokens, channels = 3, 20, 24
    start, stop = sorted(data.draw(st.sets(st.integers(0, tokens), min_size=2, max_size=2)))
    left, right = sorted(data.draw(st.sets(st.integers(0, channels), min_size=2, max_size=2)))
    off = torch.full((rows, tokens, channels), 1e-9)
    off[:, start:stop, left:right] = 0.1
    found = extent_of(off.norm(dim=2), off.flatten(0, 1).norm(dim=0), (1e-7, 1e-7), U)
    assert found is not None
    assert (found.tokens.first, found.tokens.last, found.sequences.count) == (start, stop - 1, rows)
    assert (found.channels.first, found.channels.last) == (left, right - 1)
    assert found.tokens.share > 0.99


def test_where_nothing_stands_out_from_the_trusted_runs_worst_nothing_is_said() -> None:
    assert extent_of(torch.full((2, 5), 1e-7), torch.full((8,), 1e-7), (6e-8, 6e-8), U) is None


def test_where_all_stands_out_the_channels_that_hold_nearly_all_are_named() -> None:
    channels = torch.full((64,), 0.02)
    channels[32:48] = 0.5
    found = extent_of(torch.full((2, 5), 1e-2), channels, (1e-7, 1e-7), U)
    assert found is not None
    assert (found.channels.first, found.channels.last, found.tokens.count) == (32, 47, 5)
    assert 0.99 < found.channels.share < 1


@given(st.lists(st.floats(0.001, 1.0), min_size=64, max_size=64))
def test_errors_of_all_sizes_are_everywhere_unless_a_run_holds_nearly_all(sizes: list[float]) -> None:
    found = extent_of(torch.full((2, 5), 1e-2), torch.tensor(sizes), (1e-7, 1e-7), U)
    assert found is not None
    assert found.channels.count == 64 or (found.channels.wide and found.channels.share >= 0.9)
