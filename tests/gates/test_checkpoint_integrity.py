"""checkpoint-integrity keeps its promise, clause by clause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from weighbridge.gates.checkpoint_integrity import KIND
from weighbridge.limits import read
from weighbridge.model import Measurement, Outcome, Rows, Verdict

Table = Sequence[Mapping[str, Any]]


def tensor(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "name_flaws": [], "dtype": "BF16", "shape": [64, 64], "elements": 4096, "bytes": 8192,
        "row_bytes": 128, "nan": 0, "infinite": 0, "all_zero": False, "constant": False, "zero_tail_bytes": 0,
        "repeats": None, **more,
    }  # fmt: skip


def file(name: str = "a.safetensors", **more: Any) -> dict[str, Any]:
    return {
        "name": f"file {name}", "role": "weights", "bytes": 9000, "tensor_bytes": 8192, "declared_bytes": None,
        "checksums": 0, "wrong_checksums": [], **more,
    }  # fmt: skip


def evidence(tensors: Table, files: Table) -> dict[str, Measurement]:
    tables = {"tensors": tuple(map(dict, tensors)), "files": tuple(map(dict, files))}
    return {
        name: Measurement(quantity=name, value=Rows("name", rows), by="test", examined=len(rows), total=len(rows))
        for name, rows in tables.items()
    }


def judged(*tensors: Mapping[str, Any], files: Table | None = None, **limits: Any) -> Verdict:
    return KIND.judge(evidence(tensors, [file()] if files is None else files), read(KIND.limits, limits))


ZEROS = {"all_zero": True, "constant": True, "zero_tail_bytes": 8192}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"nan": 1}, "not-finite"),
        ({"infinite": 1}, "not-finite"),
        ({"zero_tail_bytes": 4097}, "zero-tail"),
        ({**ZEROS}, "all-zero"),
        ({"repeats": "a"}, "repeated"),
        ({"name_flaws": ["a path"]}, "name"),
    ],
)
def test_a_broken_tensor_fails_with_its_code(change: dict[str, Any], code: str) -> None:
    verdict = judged(tensor("a"), tensor("b", **change))
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, code, 2, 3)
    assert [offence.place for offence in verdict.offences] == ["b"]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"declared_bytes": 8191}, "total-size"),
        ({"role": "beside"}, "beside"),
        ({"wrong_checksums": [{"place": "data/0", "stored": "0x1", "computed": "0x2"}]}, "checksum"),
    ],
)
def test_a_broken_file_fails_with_its_code(change: dict[str, Any], code: str) -> None:
    verdict = judged(tensor("a"), files=[file(**change)])
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, code)


def test_a_tensor_that_nobody_decoded_is_no_pass_unless_it_is_named() -> None:
    closed = tensor("b", nan=None, infinite=None, dtype="Q8_K")
    verdict = judged(tensor("a"), closed)
    assert (verdict.outcome, verdict.code) == (Outcome.BLOCKED, "not-decoded")
    assert [offence.place for offence in verdict.offences] == ["b"]
    assert judged(tensor("a"), closed, may_be_undecoded=["b"]).outcome is Outcome.PASS


def test_a_tensor_may_be_broken_in_more_ways_than_one() -> None:
    verdict = judged(tensor("a", nan=1, zero_tail_bytes=5000))
    assert [offence.code for offence in verdict.offences] == ["not-finite", "zero-tail"]


def test_only_one_of_two_tied_names_listed_is_a_copy() -> None:
    assert judged(tensor("lm_head.weight", repeats="x")).code == "repeated"
    assert judged(tensor("x", repeats="lm_head.weight")).code == "repeated"


def test_nothing_read_is_no_pass() -> None:
    assert judged().code == "nothing-read"
    assert judged(tensor("a", elements=0)).code == "nothing-read"
    assert judged(tensor("a"), files=[]).code == "nothing-read"
