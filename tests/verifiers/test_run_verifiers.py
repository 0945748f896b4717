"""The instruments over runs: every specimen measured as its card says, every canary seen, published figures found."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.core.canonical import dumps, loads
from weighbridge.core.limits import plain
from weighbridge.core.model import Basis, Measurement, SubjectKind
from weighbridge.gates.families.column_basis import ColumnBasis, basis_of
from weighbridge.quantities.base import record_of, rows_of
from weighbridge.quantities.facts import Fact
from weighbridge.quantities.runs import CorpusEpoch, CorpusProgress, StepColumn
from weighbridge.verifiers import VERIFIERS
from weighbridge.verifiers.run_facts import _there
from weighbridge.verifiers.verifier import Canary
from weighbridge.views.run import RunView, open_run

VERIFIERS_FOLDER = Path(__file__).parents[2] / "verifiers"
RUNS = VERIFIERS_FOLDER / "specimens" / "runs"
QUANTITIES = ("step_series", "step_columns", "facts", "corpus_progress", "corpus_epochs")


def measured(quantity: str, view: RunView) -> Measurement:
    result = VERIFIERS[quantity, (SubjectKind.RUN,)].measure((view,), {})
    assert isinstance(result, Measurement)
    return result


def by_column(view: RunView) -> dict[str, Any]:
    return {row.column: row for row in rows_of(measured("step_columns", view), StepColumn)}


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_an_instrument_that_answers_the_same_to_everything_is_blind(quantity: str) -> None:
    verifier, view = VERIFIERS[quantity, (SubjectKind.RUN,)], open_run(RUNS / "wrapped")
    result = measured(quantity, view)
    canary = verifier.canary((view,), {}, result)
    assert isinstance(canary, Canary)
    assert canary.seen(verifier.measure(canary.views, {}))
    assert not canary.seen(result)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_an_instrument_that_looks_at_the_first_row_only_is_blind(quantity: str) -> None:
    verifier, view = VERIFIERS[quantity, (SubjectKind.RUN,)], open_run(RUNS / "wrapped")
    canary = verifier.canary((view,), {}, measured(quantity, view))
    assert isinstance(canary, Canary)
    assert not canary.seen(verifier.measure((canary.views[0].cut([0]).with_events([]),), {}))


@pytest.mark.parametrize(
    ("name", "near"),
    [("grad_nrm", "grad_norm"), ("grad_norm:two", "grad_norm"), ("grad_norm", ""), ("reward", ""), ("loss_scale", "")],
)
def test_what_a_condition_asks_for_is_contradicted_by_a_name_of_which_it_is_a_slip(
    name: str, near: str, tmp_path: Path
) -> None:
    (tmp_path / "log.jsonl").write_text("".join(f'{{"step":{n},"loss":{9 - n},"grad_norm":{n}}}\n' for n in range(9)))
    (fact,) = _there(open_run(tmp_path / "log.jsonl"), f"has:{name}", ())
    assert fact.value is (name == "grad_norm")
    assert fact.contradicted_by == ((f"a name so near it, {near}",) if near else ())


@pytest.mark.parametrize(("names", "found"), [
    (("h.0.w", "h.1.w", "h.1.b", "wte"), {1: True, 2: True, 3: False}),
    (("w", "b"), {1: None, 3: None}),  # names that number no layer tell of none
    ((), {1: None}),
])  # fmt: skip
def test_how_many_layers_were_looked_at_is_a_fact_where_names_number_them(
    tmp_path: Path, names: tuple[str, ...], found: dict[int, bool | None]
) -> None:
    (tmp_path / "steps.jsonl").write_text("".join(f'{{"step":{n},"loss":{9 - n}}}\n' for n in range(9)))
    rows = [f'{{"step":{step},"name":"{name}","grad":1.0}}\n' for step in (0, 1) for name in names]
    (tmp_path / "layers.jsonl").write_text("".join(rows))
    view = open_run(tmp_path)
    for count, there in found.items():
        assert [fact.value for fact in _there(view, f"has:layers:{count}", ())] == ([] if there is None else [there])


def test_the_published_figures_are_found_again() -> None:
    view = open_run(RUNS / "report.json")
    wall = view.column("wall_ms")
    assert wall is not None
    assert statistics.median(wall.value) == pytest.approx(264.720, abs=1e-9)
    assert statistics.median(wall.value[20:50]) == pytest.approx(265.953, abs=1e-9)
    fact = Fact(name="tokens_per_step", value=8192, basis=Basis.DERIVED, contradicted_by=())
    assert fact in rows_of(measured("facts", view), Fact)


def test_invented_utilisation_is_noise_and_nothing_else_is() -> None:
    found = {name: basis_of(row).basis for name, row in by_column(open_run(RUNS / "report.json")).items()}
    assert [name for name, basis in found.items() if basis is ColumnBasis.NOISE] == ["gpu_util_pct"]
    assert [name for name, basis in found.items() if basis is ColumnBasis.DERIVED] == ["lr", "tokens_per_sec"]


@pytest.mark.parametrize("quantity", ["step_series", "step_columns"])
def test_a_column_of_nan_alone_is_measured_and_its_canary_is_seen(quantity: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"step": {step}, "wall_ms": NaN}}\n' for step in range(12)))
    verifier, view = VERIFIERS[quantity, (SubjectKind.RUN,)], open_run(path)
    canary = verifier.canary((view,), {}, measured(quantity, view))
    assert isinstance(canary, Canary)
    assert canary.seen(verifier.measure(canary.views, {}))


def test_steps_that_no_whole_number_holds_are_measured_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1e300, "loss": 1}\n{"step": 99999999999999999999999, "loss": 2}\n')
    steps = by_column(open_run(path))["step"]
    assert (steps.order.first_step, steps.order.last_step) == (1e23, 1e300)
    assert loads(dumps(plain(steps))) == plain(steps)


@pytest.mark.slow
def test_the_partner_of_a_column_is_found_among_hundreds(tmp_path: Path) -> None:
    path, columns = tmp_path / "a.csv", 300
    rows = [[step, *(math.sin(step * (place + 2)) + 3 for place in range(columns))] for step in range(40)]
    header = ["step", *(f"c{place}" for place in range(columns)), "twice"]
    lines = [",".join(map(str, header)), *(",".join(map(str, [*row, 2 * row[-1]])) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    last = by_column(open_run(path))["twice"]
    assert last.correlated_with == "c299"
    assert last.rank_correlation_root_n == pytest.approx(math.sqrt(40))
    assert ("quotient", "c299", 2.0) in [(one.kind, one.partner, one.constant) for one in last.relations]


def test_columns_logged_in_other_rows_are_correlated_on_the_rows_they_share(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"step": step, "a": step * step, **({"b": -step} if step % 2 else {})} for step in range(20)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = by_column(open_run(path))
    assert [found[name].correlated_with for name in "ab"] == ["step", "step"]
    assert found["a"].rank_correlation_root_n == pytest.approx(math.sqrt(20))
    assert found["b"].rank_correlation_root_n == pytest.approx(math.sqrt(10))


def test_a_position_that_falls_at_all_begins_an_epoch(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,corpus_position\n0,4\n1,5\n2,4\n3,4\n4,3.5\n")
    epochs = rows_of(measured("corpus_epochs", open_run(path)), CorpusEpoch)
    assert [(one.first_step, one.last_step, one.complete) for one in epochs] == [
        (0, 1, True),
        (2, 3, True),
        (4, 4, False),
    ]


@pytest.mark.parametrize(
    ("cells", "begins"),
    [
        ("0,4,4 1,4,4 2,4,4", [0, 1, 2]),  # a pass each
        ("0,4,4 1,5,5 2,4,4", [0, 1, 2]),
        ("0,4,4 1,8,4 2,4,4 3,8,4", [0, 2]),
        ("0,0,4 1,4,4 2,8,4", [0]),  # the position before each step
        ("0,4,4 0,4,4 1,8,4 2,4,4 2,4,4", [0, 2]),  # an evaluation beside a step
        ("0,4,3 1,4,3", [0]),  # a position that is not moved
    ],
)
def test_a_position_of_the_tokens_of_its_step_alone_begins_an_epoch(
    tmp_path: Path, cells: str, begins: list[int]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(("step,corpus_position,tokens", *cells.split())) + "\n")
    epochs = rows_of(measured("corpus_epochs", open_run(path)), CorpusEpoch)
    assert [one.first_step for one in epochs] == begins


@pytest.mark.slow
@given(st.lists(st.integers(1, 8), min_size=1, max_size=20))
def test_an_epoch_begins_when_the_corpus_is_used_up_and_something_follows(tmp_path: Path, tokens: list[int]) -> None:
    path, rows = tmp_path / "a.json", [{"step": step, "tokens": count} for step, count in enumerate(tokens)]
    path.write_text(json.dumps({"corpus_tokens": 8, "rows": rows}))
    epochs = rows_of(measured("corpus_epochs", open_run(path)), CorpusEpoch)
    assert len(epochs) == math.ceil(sum(tokens) / 8)


def test_coverage_that_stands_still_from_a_row_without_a_step_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("step,coverage\n0,0.5\n,1.0\n2,1.0\n")
    progress = record_of(measured("corpus_progress", open_run(path)), CorpusProgress)
    assert progress is not None
    assert [(end.still, end.since_step) for end in progress.coverage] == [(2, None)]
