"""Norms of tensors: what is not of this run, was cut off or typed by hand is never green."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.verifiers.weighing import Case, of_tensors, outcome

from weighbridge.core import Measurement, Outcome, SubjectError, Unmeasured, sha256
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.tensors import Role, TensorCourse
from weighbridge.verifiers import layer_course
from weighbridge.verifiers.layer_course import VERIFIER, layer_of, role_of
from weighbridge.views.run import open_run

Row = dict[str, Any]


def a_run(folder: Path) -> Path:
    of_tensors(folder)
    return folder / "run"


def rewritten(run: Path, change: Callable[[list[Row]], list[Row]]) -> Path:
    """Write the rows of layers.jsonl anew."""
    path = run / "layers.jsonl"
    rows = change([json.loads(line) for line in path.read_text().splitlines()])
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return run


def each(**cells: Any) -> Callable[[list[Row]], list[Row]]:
    """Return what gives every row these cells; a cell may be a function of the row."""
    return lambda rows: [
        {**row, **{name: one(row) if callable(one) else one for name, one in cells.items()}} for row in rows
    ]


def measured(run: Path, **options: Any) -> Measurement | Unmeasured:
    return VERIFIER.measure((open_run(run),), options)


def judged(folder: Path, kind: str = "gradient-reach", **limits: Any) -> tuple[Outcome, str]:
    gate = {"kind": kind, "subjects": {"run": "run"}, "with": limits}
    return outcome(Case(gate=gate, subjects={"run": ("run", folder / "run")}).evaluate(folder))


def test_a_log_as_it_was_recorded_passes_and_its_digest_is_that_of_the_run(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    assert judged(tmp_path) == (Outcome.PASS, "pass")
    view = open_run(run)
    VERIFIER.measure((view,), {})
    assert view.digest()["layers.jsonl"] == sha256((run / "layers.jsonl").read_bytes())


def test_gradients_that_nobody_saw_arrive_are_compared_with_the_norm_of_those_that_were_used(tmp_path: Path) -> None:
    rewritten(a_run(tmp_path), lambda rows: [{**row, "grad": None, "grad_used": row["grad"]} for row in rows])
    assert judged(tmp_path) == (Outcome.PASS, "pass")
    rewritten(tmp_path / "run", each(grad_used=lambda row: row["grad_used"] * 1.5))
    assert judged(tmp_path) == (Outcome.BLOCKED, "layers-of-another")


HANDS: Mapping[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "of another run, at the same steps": (each(grad=lambda row: row["grad"] * 1.5), "layers-of-another"),
    "of a longer run": (lambda rows: rows + [{**row, "step": row["step"] + 1000} for row in rows], "layers-of-another"),
    "of no tensor": (lambda _rows: [], "no-layers"),
    "of one layer": (each(name=lambda row: f"h.0.{row['name']}"), "one-layer"),
    "of names that fit no layer": (each(name=lambda row: row["name"].replace(".", "_")), "one-layer"),
    "cut off in the middle": (lambda rows: [row for row in rows if row["step"] < 60], "steps-not-looked-at"),
    "with a hole": (lambda rows: [row for row in rows if not 40 <= row["step"] < 90], "steps-not-looked-at"),
    "of few steps": (lambda rows: [row for row in rows if row["step"] < 19], "too-few-steps"),
}


@pytest.mark.parametrize("hand", HANDS)
def test_a_log_that_somebody_changed_is_blocked(hand: str, tmp_path: Path) -> None:
    change, code = HANDS[hand]
    rewritten(a_run(tmp_path), change)
    assert judged(tmp_path) == (Outcome.BLOCKED, code)


def equal_norms(run: Path) -> None:
    """Type one gradient for every tensor, and a norm of all that fits."""
    rewritten(run, each(grad=1.0, grad_used=1.0))
    steps = [json.loads(line) | {"grad_norm": 6**0.5} for line in (run / "steps.jsonl").read_text().splitlines()]
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in steps))


@pytest.mark.parametrize("kind", ["gradient-reach", "silent-layers", "faint-gradients", "contributing-layers"])
def test_norms_that_are_equal_throughout_were_typed_by_hand(kind: str, tmp_path: Path) -> None:
    equal_norms(a_run(tmp_path))
    assert judged(tmp_path, kind) == (Outcome.BLOCKED, "norms-repeat")


def test_a_run_that_logs_no_norm_of_all_does_not_show_that_the_tensors_are_its_own(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    kept = [{name: cell for name, cell in row.items() if name != "grad_norm"} for row in steps]
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in kept))
    assert judged(tmp_path) == (Outcome.BLOCKED, "layers-of-another")


def test_without_the_file_the_line_that_records_it_is_named(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run / "layers.jsonl").unlink()
    found = measured(run)
    assert isinstance(found, Unmeasured)
    assert (found.code, "Recorder(…, probe_every=10)" in found.remedy) == ("no-layers", True)


def test_half_a_line_at_the_end_leaves_its_step_out_and_one_in_the_middle_is_refused(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    path = run / "layers.jsonl"
    text = path.read_text()
    path.write_text(text[:-20])
    found = measured(run)
    assert isinstance(found, Measurement)
    assert {row.step[-1] for row in rows_of(found, TensorCourse)} == {118}
    path.write_text(text[:20] + "\n" + text)
    with pytest.raises(SubjectError) as caught:
        measured(run)
    assert caught.value.code == "log-syntax"


BAD = {
    "a tensor twice in a step": lambda rows: rows[:1] + rows,
    "a step that falls": lambda rows: rows[6:] + rows[:6],
    "no name": each(name=None),
    "an empty name": each(name=""),
    "a step that is no whole number": each(step=1.5),
    "a step that is true": each(step=True),
    "a norm below zero": each(weight=-1.0),
    "a norm that is a text": each(grad="1.0"),
    "a norm that is true": each(update=True),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_is_none_is_refused_with_its_number(bad: str, tmp_path: Path) -> None:
    run = rewritten(a_run(tmp_path), BAD[bad])
    with pytest.raises(SubjectError) as caught:
        measured(run)
    assert caught.value.code == "layer-rows"
    assert "layers.jsonl, row " in str(caught.value)


def test_more_norms_than_are_sealed_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = a_run(tmp_path)
    monkeypatch.setattr(layer_course, "MAX_CELLS", 4 * 6 * 120 - 1)
    with pytest.raises(SubjectError, match="name fewer `steps`"):
        measured(run)
    assert isinstance(measured(run, steps=(0, 9)), Measurement)


@pytest.mark.parametrize("kind", ["gradient-reach", "moving-tensors"])
def test_a_norm_that_is_nan_fails_and_is_named(kind: str, tmp_path: Path) -> None:
    rewritten(a_run(tmp_path), each(weight=lambda row: float("nan") if row["step"] > 50 else row["weight"]))
    assert judged(tmp_path, kind) == (Outcome.FAIL, "norms-not-finite")


def test_a_layer_whose_gradients_were_set_to_zero_after_they_arrived_fails(tmp_path: Path) -> None:
    rewritten(a_run(tmp_path), each(grad_used=lambda row: 0.0 if row["name"] == "h.3.w" else row["grad"]))
    for kind in ("gradient-reach", "vanishing-gradients", "silent-layers", "faint-gradients", "pinched-layers"):
        assert judged(tmp_path, kind)[0] is Outcome.FAIL, kind


def test_a_layer_without_gradients_fails_though_the_norm_of_all_is_as_logged(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    silent = lambda row: 0.0 if row["name"] == "h.3.w" else row["grad"]  # noqa: E731
    rewritten(run, each(grad=silent))
    sums = dict[int, float]()
    for row in map(json.loads, (run / "layers.jsonl").read_text().splitlines()):
        sums[row["step"]] = sums.get(row["step"], 0.0) + row["grad"] ** 2
    steps = [json.loads(line) for line in (run / "steps.jsonl").read_text().splitlines()]
    rows = [row | {"grad_norm": sums[row["step"]] ** 0.5} for row in steps]
    (run / "steps.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for kind in ("gradient-reach", "vanishing-gradients", "silent-layers", "faint-gradients", "pinched-layers"):
        assert judged(tmp_path, kind)[0] is Outcome.FAIL, kind


NAMES = (
    ("model.layers.0.self_attn.q_proj.weight", "model.layers.0", Role.MATRIX),
    ("model.layers.10.self_attn.k_proj.bias", "model.layers.10", Role.KEY_BIAS),
    ("bert.encoder.layer.3.attention.self.key.bias", "bert.encoder.layer.3", Role.KEY_BIAS),
    ("bert.embeddings.LayerNorm.weight", "", Role.NORM),
    ("bert.embeddings.word_embeddings.weight", "", Role.EMBEDDING),
    ("transformer.h.2.ln_1.bias", "transformer.h.2", Role.NORM),
    ("transformer.h.2.attn.c_attn.bias", "transformer.h.2", Role.BIAS),
    ("transformer.wte.weight", "", Role.EMBEDDING),
    ("model.decoder.layers.1.self_attn_layer_norm.weight", "model.decoder.layers.1", Role.NORM),
    ("lm_head.weight", "", Role.HEAD),
    ("0.weight", "0", Role.MATRIX),
    ("layer1.0.conv1.weight", "layer1.0", Role.MATRIX),
    ("weight", "", Role.MATRIX),
)


@pytest.mark.parametrize(("name", "layer", "role"), NAMES)
def test_layer_and_role_follow_from_a_name(name: str, layer: str, role: Role) -> None:
    assert (layer_of(name), role_of(name)) == (layer, role)
