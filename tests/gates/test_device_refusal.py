"""device-refusal: what its card does not show."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from weighbridge.core.limits import LimitsError, fields, read
from weighbridge.core.model import Measurement, Outcome, Record, Verdict
from weighbridge.gates.device_refusal import Limits, Measure, check, judge
from weighbridge.quantities.commands import CommandOutcome, Leftover

REFUSED = CommandOutcome(
    outlived=0, watched=(".", "~"),
    exit_code=3, timed_out=False, timeout_s=30.0, wall_seconds=2.0, stdout="", stderr="DEVICE_UNAVAILABLE: no cuda\n",
    stdout_bytes=0, stderr_bytes=28, left=(), left_total=0, hidden=(),
)  # fmt: skip
LIMITS = Limits(within_s=2.0, names=("DEVICE_UNAVAILABLE",))


def judged(limits: Limits = LIMITS, **changes: Any) -> Verdict:
    value = Record(replace(REFUSED, **changes))
    measured = Measurement(quantity="command_outcome", value=value, by="test", examined=1, total=1)
    return judge({"outcome": measured}, limits)


def offences(verdict: Verdict) -> list[tuple[str, str]]:
    return [(offence.place, offence.code) for offence in verdict.offences]


@pytest.mark.parametrize("changes", [{"wall_seconds": math.nan}, {"exit_code": None, "timed_out": True}])
def test_a_command_whose_time_is_not_known_or_that_was_stopped_is_too_late(changes: dict[str, Any]) -> None:
    assert offences(judged(**changes)) == [("time", "too-late")]


def test_all_five_things_are_listed_at_once() -> None:
    left = (Leftover(path="r", what="run-directory"),)
    verdict = judged(exit_code=0, wall_seconds=9.0, stderr="", left=left, outlived=2)
    assert offences(verdict) == [
        *(("exit", "exits-zero"), ("time", "too-late"), ("output", "says-nothing")),
        *(("processes", "left-running"), ("leftovers", "left-behind")),
    ]
    assert (verdict.outcome, verdict.counted, verdict.of) == (Outcome.FAIL, 0, 5)


def test_a_word_counts_in_either_stream_and_only_as_it_is_written() -> None:
    assert judged(stdout="DEVICE_UNAVAILABLE", stderr="").outcome is Outcome.PASS
    assert offences(judged(stderr="device_unavailable\n")) == [("output", "says-nothing")]


def test_only_what_the_contract_names_may_not_be_left() -> None:
    log = (Leftover(path="trainer.log", what="file"),)
    assert judged(left=log).outcome is Outcome.PASS
    assert offences(judged(replace(LIMITS, leaves_no=("run-directory", "file")), left=log)) == [
        ("leftovers", "left-behind")
    ]


@pytest.mark.parametrize(
    "limits",
    [
        *({"exit": 0}, {"exit": 256}, {"exit": "zero"}, {"exit": True}, {"exit": None}),
        *({"names": []}, {"within_s": 0}, {"leaves_no": ["anything"]}),
    ],
)
def test_limits_that_are_no_refusal_are_lint_errors(limits: dict[str, Any]) -> None:
    with pytest.raises(LimitsError):
        read(Limits, {"within_s": 2, "names": ["X"], **limits})


def test_every_limit_that_tightens_is_tried_just_beyond_it() -> None:
    assert [item.name for item in fields(Limits) if item.doc.tight and not (item.doc.must and item.doc.moves)] == []


def test_limits_that_no_command_could_meet_are_named() -> None:
    assert check(Limits(within_s=30.0, names=(" ",)), Measure()) == [
        "names: an empty word is in every output",
        "timeout_s: 30 s would stop the command before the 30 s are over",
    ]
    assert check(LIMITS, Measure()) == []
