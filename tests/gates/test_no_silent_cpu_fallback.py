from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest

from weighbridge.cards import example_evidence, gate_card
from weighbridge.gates.no_silent_cpu_fallback import KIND, Limits, check, judge, matches
from weighbridge.judging import falsify
from weighbridge.limits import LimitsError, read
from weighbridge.model import Measurement, Outcome, Rows, TrialResult, Verdict

MIB = 1 << 20
PID = 4711
NVML: dict[str, Any] = {"by": "nvml", "pid": PID, "used_mib": 1.0}
FILES: dict[str, Any] = {"by": "device-files", "pid": PID, "files": ["/dev/nvidia-uvm", "/dev/nvidia0"]}
CUDA: dict[str, Any] = {
    "place": "step 0",
    "requested": "cuda",
    "resolved": "cuda:0",
    "pid": PID,
    "parameters": {"cuda:0": 6600},
    "buffers": {},
    "gradients": {"cuda:0": 6600},
    "optimizer": {"cuda:0": 13200},
    "optimizer_scalars": {"cpu": 12},
    "ops": {"cuda:0": 56},
    "bookkeeping": {"cpu": 16},
    "op_names": {},
    "dispatch": "audited",
    "allocated_bytes": MIB,
    "witnesses": [NVML, FILES],
    "why": {},
}


def judged(*changes: Mapping[str, Any], base: Mapping[str, Any] = CUDA, **limits: Any) -> Verdict:
    rows = [{**copy.deepcopy(dict(base)), "place": f"step {n}", **change} for n, change in enumerate(changes or ({},))]
    return judge(evidence(rows), Limits(**{"requested": "cuda", **limits}))


def evidence(rows: list[dict[str, Any]]) -> dict[str, Measurement]:
    value = Rows("place", tuple(rows))
    return {"probes": Measurement(quantity="device_evidence", value=value, by="test", examined=1, total=1)}


def test_limits_and_witnesses_that_are_just_met_pass_and_every_trial_is_caught() -> None:
    verdict = judged({}, {}, external_witnesses=2)
    assert (verdict.outcome, verdict.counted, verdict.of) == (Outcome.PASS, 2, 2)
    probes = evidence([{**CUDA, "place": f"step {n}"} for n in (0, 1)])
    trials = list(falsify(KIND, probes, Limits(requested="cuda"), verdict))
    assert [trial.name for trial in trials if trial.result is TrialResult.SURVIVED] == []
    assert {trial.code for trial in trials if trial.result is TrialResult.CAUGHT} >= set(KIND.codes)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"requested": "cpu", "resolved": "cpu"}, "requested"),
        ({"resolved": "cpu"}, "resolved"),
        ({"resolved": "cudax:0"}, "resolved"),
        ({"parameters": {"cuda:0": 6599, "cpu": 1}}, "parameters"),
        ({"buffers": {"meta": 1}}, "buffers"),
        ({"gradients": {"cpu": 6600}}, "gradients"),
        ({"optimizer": {"cuda:0": 13200, "cpu": 4}}, "optimizer"),
        ({"ops": {"cuda:0": 56, "cpu": 1}}, "ops"),
        ({"ops": {"cuda:0": 56, "mps:0": 1}}, "ops"),
        ({"allocated_bytes": MIB - 1}, "memory"),
        ({"parameters": {"cuda:0": MIB + 1}}, "memory"),
    ],
)
def test_what_the_runs_own_books_deny_fails_in_whichever_probe(change: dict[str, Any], code: str) -> None:
    clean: dict[str, Any] = {}
    for rows in ((change, clean, clean), (clean, clean, change)):
        verdict = judged(*rows)
        assert (verdict.outcome, verdict.code) == (Outcome.FAIL, code)
        assert [offence.place for offence in verdict.offences] == [f"step {rows.index(change)}"]
        assert (verdict.counted, verdict.of) == (2, 3)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"parameters": {}}, "no-probe"),
        ({"parameters": None}, "no-probe"),
        ({"optimizer": None}, "no-probe"),
        ({"allocated_bytes": None}, "no-probe"),
        ({"dispatch": "not-audited"}, "not-audited"),
        ({"ops": None}, "not-audited"),
        ({"ops": {"cuda:0": 0}}, "not-audited"),
        ({"witnesses": []}, "no-witness"),
        ({"witnesses": [{**NVML, "pid": PID + 1}, {**FILES, "pid": None}]}, "no-witness"),
        ({"witnesses": [{**NVML, "used_mib": 0.999}]}, "no-witness"),
        ({"witnesses": [{**NVML, "used_mib": None}]}, "no-witness"),
        ({"witnesses": [{**FILES, "files": ["/dev/nvidiactl"]}]}, "no-witness"),
        ({"witnesses": [{**FILES, "files": "/dev/nvidia0 /dev/nvidia-uvm"}]}, "no-witness"),
        ({"witnesses": [{"by": "self-reported", "pid": PID, "gpu_util_pct": 99.0}]}, "no-witness"),
    ],
)
def test_what_nobody_showed_blocks_in_whichever_probe(change: dict[str, Any], code: str) -> None:
    clean: dict[str, Any] = {}
    for rows in ((change, clean), (clean, change)):
        verdict = judged(*rows)
        assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, code)


def test_what_the_books_deny_outweighs_what_nobody_showed() -> None:
    assert judged({"witnesses": []}, {"resolved": "cpu"}).outcome is Outcome.FAIL


def test_no_probe_at_all_blocks() -> None:
    verdict = judge(evidence([]), Limits(requested="cuda"))
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "no-probe")


def test_a_kind_of_witness_counts_once_however_many_devices_it_speaks_of() -> None:
    assert judged({"witnesses": [NVML, NVML]}, external_witnesses=2).code == "no-witness"


def test_scalars_of_the_optimizer_and_bookkeeping_may_be_on_the_host() -> None:
    assert judged({"optimizer_scalars": {"cpu": 10**6}, "bookkeeping": {"cpu": 10**6}}).outcome is Outcome.PASS


def test_ops_on_the_host_are_allowed_up_to_their_limit_and_on_a_third_device_never() -> None:
    assert judged({"ops": {"cuda:0": 56, "cpu": 3}}, allowed_host_ops=3).outcome is Outcome.PASS
    assert judged({"ops": {"cuda:0": 56, "cpu": 4}}, allowed_host_ops=3).code == "ops"
    assert judged({"ops": {"cuda:0": 56, "meta": 1}}, allowed_host_ops=3).code == "ops"


def test_a_run_on_the_cpu_is_confirmed_by_open_files_without_an_accelerator_only() -> None:
    cpu = {
        **CUDA,
        "requested": "cpu",
        "resolved": "cpu",
        "allocated_bytes": None,
        **{part: {"cpu": 1} for part in ("parameters", "gradients", "optimizer", "ops")},
    }
    looked = {"witnesses": [{**FILES, "files": []}]}
    assert judged(looked, base=cpu, requested="cpu").outcome is Outcome.PASS
    unlisted, other = {"by": "device-files", "pid": PID}, {"by": "libraries", "pid": PID, "files": []}
    for witnesses in ([], [FILES], [NVML], [unlisted], [other]):
        assert judged({"witnesses": witnesses}, base=cpu, requested="cpu").code == "no-witness"


@pytest.mark.parametrize(
    ("device", "wanted", "held"),
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
def test_a_device_is_the_one_wanted_or_any_of_its_kind(device: str, wanted: str, held: bool) -> None:
    assert matches(device, wanted) is held


@pytest.mark.parametrize("requested", ["gpu", "cuda:", "cuda:-1", "CUDA", ""])
def test_a_device_that_nobody_can_ask_for_is_a_lint_error(requested: str) -> None:
    with pytest.raises(LimitsError, match="is not of the form"):
        read(Limits, {"requested": requested})


@pytest.mark.parametrize("limits", [{"min_device_memory_mib": 0}, {"external_witnesses": 0}, {"allowed_host_ops": -1}])
def test_a_limit_that_would_ask_for_nothing_is_a_lint_error(limits: dict[str, Any]) -> None:
    with pytest.raises(LimitsError):
        read(Limits, {"requested": "cuda", **limits})


def test_limits_that_no_run_can_meet_are_told() -> None:
    assert check(Limits(requested="cpu", external_witnesses=2), None) == [
        "external_witnesses: a run on the CPU has one outside witness, its list of open device files"
    ]
    assert check(Limits(requested="mps"), None) == [
        "requested: no outside witness is known for mps, so every run would be BLOCKED"
    ]


def test_every_example_that_passes_can_be_made_to_fail() -> None:
    for example in gate_card(KIND.name).examples:
        if example.outcome is Outcome.PASS:
            built, limits = example_evidence(KIND, example.evidence), read(Limits, example.limits)
            results = [trial.result for trial in falsify(KIND, built, limits, judge(built, limits))]
            assert TrialResult.SURVIVED not in results
