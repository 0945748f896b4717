from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weighbridge.core import canonical
from weighbridge.core.canonical import build
from weighbridge.core.data import data_path
from weighbridge.core.errors import SubjectError
from weighbridge.core.limits import plain
from weighbridge.core.model import Measurement, Rows, Unmeasured
from weighbridge.evaluation.runner import lay_canary
from weighbridge.quantities.base import rows_of
from weighbridge.quantities.runs import DeviceProbe, Witness
from weighbridge.verifiers.device_evidence import COUNTS, VERIFIER
from weighbridge.verifiers.verifier import Views
from weighbridge.views.run import RunView, open_run

SPECIMENS = data_path("verifiers") / "specimens" / "device"


def measured(view: RunView) -> tuple[DeviceProbe, ...]:
    result = VERIFIER.measure((view,), {})
    assert isinstance(result, Measurement)
    assert result.examined == VERIFIER.extent((view,), {})
    return rows_of(result, DeviceProbe)


def run(tmp_path: Path, *events: dict[str, Any], **facts: Any) -> RunView:
    """Write a run directory with these device events."""
    head = {"schema": "weighbridge.run/v0", "pid": 7, "requested_device": "cuda", "resolved_device": "cpu", **facts}
    (tmp_path / "run.json").write_text(json.dumps(head))
    (tmp_path / "steps.jsonl").write_text('{"step": 0, "loss": 1.0}\n')
    (tmp_path / "events.jsonl").write_text("".join(json.dumps({"event": "device", **one}) + "\n" for one in events))
    return open_run(tmp_path)


def test_every_probe_is_a_row_and_other_events_are_not() -> None:
    rows = measured(open_run(SPECIMENS / "cuda"))
    assert [row.place for row in rows] == ["step 0", "step 1"]
    assert rows[1].parameters == {"cuda:0": 6200, "cpu": 400}


def test_a_run_without_a_probe_still_tells_what_was_asked_for() -> None:
    (row,) = measured(open_run(SPECIMENS / "unprobed"))
    assert (row.place, row.requested, row.resolved, row.parameters) == ("run", "cuda", "cuda:0", None)


@pytest.mark.parametrize(("costs", "blocks"), [({}, True), ({"costs": ["device"]}, True), ({"costs": ["loss"]}, False)])
def test_a_recorder_that_failed_where_this_evidence_is_made_leaves_it_unmeasured(
    costs: dict[str, Any], blocks: bool, tmp_path: Path
) -> None:
    failed = {"event": "recorder-failure", "step": 3, "what": "_probe: OSError: no", **costs}
    result = VERIFIER.measure((run(tmp_path, {"step": 0}, failed),), {})
    assert isinstance(result, Unmeasured) == blocks
    if isinstance(result, Unmeasured):
        assert (result.code, result.why) == ("recorder-failed", "the recorder failed at step 3: _probe: OSError: no")


def test_a_report_without_a_process_id_is_unmeasured() -> None:
    result = VERIFIER.measure((open_run(SPECIMENS / "report.jsonl"),), {})
    assert isinstance(result, Unmeasured)
    assert result.code == "no-pid"
    assert result.why == "the log carries no process id, so no outside witness can be bound to it"
    assert result.remedy.startswith(
        "record the run with weighbridge.recorder; a log of another trainer is for builtin:"
    )


@pytest.mark.parametrize("pid", [None, "7", True, 7.0])
def test_what_is_no_whole_number_is_no_process_id(tmp_path: Path, pid: Any) -> None:
    assert isinstance(VERIFIER.measure((run(tmp_path, {"step": 0}, pid=pid),), {}), Unmeasured)


def test_a_step_that_was_probed_twice_has_two_places(tmp_path: Path) -> None:
    rows = measured(run(tmp_path, {"step": 5}, {"step": 5}, {"step": 6}))
    assert [row.place for row in rows] == ["step 5", "step 5 (2)", "step 6"]


def test_what_a_probe_does_not_tell_is_absent_and_no_number(tmp_path: Path) -> None:
    (row,) = measured(run(tmp_path, {"step": 0}))
    assert (row.parameters, row.optimizer, row.ops, row.allocated_bytes) == (None, None, None, None)
    assert (row.witnesses, row.why, row.dispatch) == ((), {}, "")


@pytest.mark.parametrize(
    ("event", "what"),
    [
        ({"parameters": {"cpu": "6600"}}, "parameters of the device event at step 3 is not a whole number"),
        ({"parameters": {"cpu": -1}}, "parameters of the device event at step 3 is not a whole number"),
        ({"ops": {"cpu": True}}, "ops of the device event at step 3 is not a whole number"),
        ({"ops": 5}, "ops of the device event at step 3 is not whole numbers by device"),
        ({"allocated_bytes": 1.5}, "allocated_bytes of the device event at step 3 is not a whole number"),
        ({"witnesses": "nvml"}, "witnesses of the device event at step 3 is not a list"),
        ({"witnesses": [{"pid": 7}]}, "witnesses of the device event at step 3 is not a list of witnesses"),
        ({"witnesses": [{"by": "x", "files": 3}]}, "files of the device event at step 3 is not a list"),
    ],
)
def test_a_probe_of_another_form_is_refused_with_its_step(tmp_path: Path, event: dict[str, Any], what: str) -> None:
    with pytest.raises(SubjectError) as refused:
        VERIFIER.measure((run(tmp_path, {"step": 3, **event}),), {})
    assert refused.value.code == "device-event"
    assert refused.value.what.startswith(what)


def test_what_a_witness_says_of_another_type_confirms_nothing(tmp_path: Path) -> None:
    strange = {"by": "nvml", "pid": True, "used_mib": True, "gpu_util_pct": 99.0}
    (row,) = measured(run(tmp_path, {"step": 0, "witnesses": [strange]}))
    assert row.witnesses == (Witness(by="nvml", pid=None, used_mib=None, files=None),)


def test_texts_of_others_are_cut(tmp_path: Path) -> None:
    (row,) = measured(run(tmp_path, {"step": 0, "why": {"nvml": "x" * 10_000}}))
    assert row.why == {"nvml": "x" * 200}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["step", *COUNTS, "op_names", "dispatch", "allocated_bytes", "witnesses", "why"]


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_a_probe_of_any_form_is_measured_or_refused_and_never_breaks_the_instrument(event: dict[str, Any]) -> None:
    view = open_run(SPECIMENS / "fallback").with_events([{**event, "event": "device"}])
    try:
        (row,) = measured(view)
    except SubjectError as refused:
        assert refused.code == "device-event"
    else:
        assert build(DeviceProbe, canonical.loads(canonical.dumps(plain(row)))) == row


def constant(views: Views, _options: Any) -> Any:
    return VERIFIER.measure((open_run(SPECIMENS / "cuda"),), {})


def first_only(views: Views, options: Any) -> Any:
    result = VERIFIER.measure(views, options)
    assert isinstance(result, Measurement)
    assert isinstance(result.value, Rows)
    return dataclasses.replace(result, value=Rows("place", result.value.rows[:1]))


def events_only(views: Views, options: Any) -> Any:
    return VERIFIER.measure((dataclasses.replace(views[0], facts=open_run(SPECIMENS / "cuda").facts),), options)


@pytest.mark.parametrize("measure", [constant, first_only, events_only])
def test_an_instrument_that_does_not_look_is_seen_to_be_blind(measure: Callable[..., Any]) -> None:
    views = (open_run(SPECIMENS / "cuda"),)
    honest = VERIFIER.measure(views, {})
    assert isinstance(honest, Measurement)
    assert lay_canary(VERIFIER, views, {}, honest).seen
    blind = dataclasses.replace(VERIFIER, measure=measure)
    assert not lay_canary(blind, views, {}, honest).seen


@pytest.mark.parametrize("name", ["fallback", "unprobed"])
def test_the_canary_is_seen_on_runs_with_one_probe_and_with_none(name: str) -> None:
    views = (open_run(SPECIMENS / name),)
    honest = VERIFIER.measure(views, {})
    assert isinstance(honest, Measurement)
    assert lay_canary(VERIFIER, views, {}, honest).seen
