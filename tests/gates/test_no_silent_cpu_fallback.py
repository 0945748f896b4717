"""no-silent-cpu-fallback: what its card does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from weighbridge.core.canonical import build
from weighbridge.core.limits import LimitsError, fields, plain, read
from weighbridge.core.model import Measurement, Outcome, Rows, TrialResult, Verdict
from weighbridge.gates.no_silent_cpu_fallback import KIND, Limits, check, judge, matches
from weighbridge.judging.judging import falsify
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.runs import DeviceProbe, Witness

MIB = 1 << 20
PID = 4711
NVML = Witness(by="nvml", pid=PID, used_mib=1.0, files=None)
FILES = Witness(by="device-files", pid=PID, used_mib=None, files=("/dev/nvidia-uvm", "/dev/nvidia0"))
TYPICAL = build(DeviceProbe, plain(QUANTITIES["device_evidence"].typical()))
CUDA = replace(TYPICAL, allocated_bytes=MIB, witnesses=(NVML, FILES))
ON_CPU: dict[str, Any] = {part: {"cpu": 1} for part in ("parameters", "gradients", "optimizer", "ops")}
CPU = replace(CUDA, requested="cpu", resolved="cpu", allocated_bytes=None, **ON_CPU)
CLEAN: dict[str, Any] = {}


def evidence(*changes: Mapping[str, Any], base: DeviceProbe = CUDA) -> dict[str, Measurement]:
    rows = tuple(replace(base, place=f"step {n}", **change) for n, change in enumerate(changes))
    return {
        "probes": Measurement(quantity="device_evidence", value=Rows("place", rows), by="test", examined=1, total=1)
    }


def judged(*changes: Mapping[str, Any], base: DeviceProbe = CUDA, **limits: Any) -> Verdict:
    return judge(evidence(*(changes or (CLEAN,)), base=base), Limits(**{"requested": "cuda", **limits}))


def test_limits_and_witnesses_that_are_just_met_pass_and_every_code_has_a_trial_that_is_caught() -> None:
    verdict = judged(CLEAN, CLEAN, external_witnesses=2)
    assert (verdict.outcome, verdict.counted, verdict.of) == (Outcome.PASS, 2, 2)
    trials = list(falsify(KIND, evidence(CLEAN, CLEAN), Limits(requested="cuda"), verdict))
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    assert {trial.code for trial in trials if trial.result is TrialResult.CAUGHT} >= set(KIND.codes)


def test_the_probe_that_the_books_deny_is_reported_and_the_others_count() -> None:
    denied = {"resolved": "cudax:0"}
    for rows in ((denied, CLEAN, CLEAN), (CLEAN, CLEAN, denied)):
        verdict = judged(*rows)
        assert [(one.place, one.code) for one in verdict.offences] == [(f"step {rows.index(denied)}", "resolved")]
        assert (verdict.outcome, verdict.counted, verdict.of) == (Outcome.FAIL, 2, 3)


@pytest.mark.parametrize("ops", [None, {"cuda:0": 0}, {"mps:0": 0}])
def test_ops_that_were_not_counted_or_that_are_none_are_no_audit(ops: Mapping[str, int] | None) -> None:
    verdict = judged(CLEAN, {"ops": ops})
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.BLOCKED, "not-audited", 1, 2)


def test_what_the_books_deny_outweighs_what_nobody_showed() -> None:
    assert judged({"witnesses": ()}, {"resolved": "cpu"}).outcome is Outcome.FAIL


def test_no_probe_at_all_blocks() -> None:
    verdict = judge(evidence(), Limits(requested="cuda"))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "no-probe")


def test_scalars_of_the_optimizer_and_bookkeeping_may_be_on_the_host() -> None:
    assert judged({"optimizer_scalars": {"cpu": 10**6}, "bookkeeping": {"cpu": 500}}).outcome is Outcome.PASS


def test_a_million_ops_elsewhere_beside_a_few_on_the_device_are_no_work_there() -> None:
    assert judged({"bookkeeping": {"cpu": 10**6}}).code == "few-ops"
    one = {"ops": {"cuda:0": 1}}
    assert judged({**one, "bookkeeping": {"cpu": 10**6}}).code == "few-ops"
    assert judged({**one, "bookkeeping": {"cuda:0": 10**6}}).outcome is Outcome.PASS
    assert judged({"ops": {"cuda:0": 1, "cpu": 1000}}, allowed_host_ops=1000).code == "few-ops"


def test_an_optimizer_of_nothing_has_no_state_and_neither_has_plain_sgd() -> None:
    empty: dict[str, object] = {"optimizer": {}, "optimizer_scalars": {}}
    assert [judged({**empty, "updated": updated}).code for updated in (None, {}, {"cuda:0": 0}, {"cuda:0": 6600})] == [
        *["no-probe"] * 3, "pass"
    ]  # fmt: skip


def test_a_run_on_the_cpu_is_confirmed_by_open_files_without_an_accelerator_only() -> None:
    looked = replace(FILES, files=())
    assert judged({"witnesses": (looked,)}, base=CPU, requested="cpu").outcome is Outcome.PASS
    for witnesses in ((), (FILES,), (NVML,), (replace(FILES, files=None),), (replace(looked, by="libraries"),)):
        assert judged({"witnesses": witnesses}, base=CPU, requested="cpu").code == "no-witness"


@pytest.mark.parametrize(
    ("device", "wanted", "same"),
    [
        ("cuda:0", "cuda", True),
        ("cuda", "cuda", True),
        ("cuda:1", "cuda:1", True),
        ("cuda:11", "cuda:1", False),
        ("cuda", "cuda:1", False),
        ("cudax", "cuda", False),
        ("cpu", "cuda", False),
        ("", "cuda", False),
    ],
)
def test_a_device_is_the_one_wanted_or_any_of_its_kind(device: str, wanted: str, same: bool) -> None:
    assert matches(device, wanted) is same


@pytest.mark.parametrize(
    "limits",
    [
        *({"requested": device} for device in ("gpu", "cuda:", "cuda:-1", "CUDA", "")),
        {"min_device_memory_mib": 1e-300},
        {"external_witnesses": 0},
        {"allowed_host_ops": -1},
    ],
)
def test_a_device_that_nobody_can_ask_for_and_a_limit_that_asks_for_nothing_are_lint_errors(limits: Any) -> None:
    with pytest.raises(LimitsError):
        read(Limits, {"requested": "cuda", **limits})


def test_every_limit_that_tightens_is_tried_just_beyond_it() -> None:
    assert [item.name for item in fields(Limits) if item.doc.tight and not (item.doc.must and item.doc.moves)] == []


def test_limits_that_no_run_can_meet_are_named() -> None:
    assert check(Limits(requested="cpu", external_witnesses=2), None) == [
        "external_witnesses: a run on the CPU has one outside witness, its list of open device files"
    ]
    assert check(Limits(requested="mps"), None) == [
        "requested: no outside witness is known for mps, so every run would be BLOCKED"
    ]
