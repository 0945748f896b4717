"""checkpoint-integrity keeps its promise, where several of its clauses meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.rows import typed

from weighbridge.core.canonical import dumps
from weighbridge.core.limits import read
from weighbridge.core.model import Measurement, Outcome, Rows, Verdict
from weighbridge.gates.checkpoint_integrity import KIND

FILE = {"name": "file a.pt"}
CLOSED = {"name": "b", "nan": None, "infinite": None, "dtype": "Q8_K"}


def table(quantity: str, rows: tuple[Mapping[str, Any], ...]) -> Measurement:
    value = Rows("name", tuple(typed(quantity, row) for row in rows))
    return Measurement(quantity=quantity, value=value, by="test", examined=1, total=1)


def judged(
    *tensors: Mapping[str, Any],
    files: tuple[Mapping[str, Any], ...] = (FILE,),
    claims: tuple[Mapping[str, Any], ...] = (FILE,),
    **limits: Any,
) -> Verdict:
    evidence = {"tensors": table("tensor_health", tensors), "files": table("file_structure", files)}
    evidence["claims"] = table("own_claims", claims)
    return KIND.judge(evidence, read(KIND.limits, limits))


def test_a_broken_tensor_is_one_place_out_of_order_however_many_ways_it_is_broken() -> None:
    verdict = judged({"name": "a", "nan": 1, "zero_tail_bytes": 5000, "row_bytes": 128}, {"name": "b"})
    assert [(one.place, one.code) for one in verdict.offences] == [("a", "not-finite"), ("a", "zero-tail")]
    assert (verdict.outcome, verdict.code, verdict.counted, verdict.of) == (Outcome.FAIL, "not-finite", 2, 3)


def test_offences_stand_in_the_order_of_the_tensors() -> None:
    verdict = judged({"name": "a", "name_flaws": ["a path"]}, {"name": "b", "nan": 1})
    assert [(one.place, one.code) for one in verdict.offences] == [("a", "name"), ("b", "not-finite")]


def test_what_nobody_decoded_is_reported_tensor_by_tensor_and_only_where_nothing_is_broken() -> None:
    verdict = judged({"name": "a"}, CLOSED, {**CLOSED, "name": "c"})
    assert (verdict.outcome, verdict.code, verdict.of) == (Outcome.BLOCKED, "not-decoded", 4)
    assert [offence.place for offence in verdict.offences] == ["b", "c"]
    assert judged({"name": "a", "nan": 1}, CLOSED).code == "not-finite"
    assert judged({**CLOSED, "elements": 0}).code == "nothing-read"


def test_only_one_of_two_tied_names_listed_is_a_copy() -> None:
    assert judged({"name": "lm_head.weight", "repeats": "x"}).code == "repeated"
    assert judged({"name": "x", "repeats": "lm_head.weight"}).code == "repeated"


def test_nothing_read_is_no_pass() -> None:
    assert judged().code == "nothing-read"
    assert judged({"name": "a"}, files=()).code == "nothing-read"
    assert judged({"name": "a"}, claims=()).code == "nothing-read"


def test_a_tensor_without_elements_is_in_order_whatever_rows_it_has() -> None:
    empty = {"shape": [0], "elements": 0, "bytes": 0, "row_bytes": 0, "all_zero": True, "constant": True}
    verdict = judged(
        {"name": "a"}, {**empty, "name": "b"}, {**empty, "name": "c", "shape": [4, 0]}, zero_tail_below_bytes=1
    )
    assert (verdict.outcome, verdict.figures["tensors"]) == (Outcome.PASS, 3)


def test_what_the_checkpoint_says_of_itself_is_broken_under_a_code_of_its_own_unless_it_may_be() -> None:
    for about in ("shard", "layers", "packing"):
        claim = {"name": "model.layers", "about": about, "wrong": "it is not so"}
        assert judged({"name": "a"}, claims=(claim,)).code == about
        assert judged({"name": "a"}, claims=(claim,), may_disagree=["model.*"]).outcome is Outcome.PASS


def test_what_an_offence_tells_can_be_sealed() -> None:
    wrong = {"place": "data/0", "stored": "0x1", "computed": "0x2"}
    verdict = judged({"name": "a"}, files=({**FILE, "wrong_checksums": [wrong, wrong]},))
    figures = verdict.offences[0].figures
    assert (verdict.code, figures["wrong"], figures["first"]) == ("checksum", 2, wrong)
    assert dumps(figures)
