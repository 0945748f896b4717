from __future__ import annotations

import array
import dataclasses
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cases import each
from tests.evidence import drafts
from tests.rows import typed

from weighbridge.core.canonical import dumps, loads
from weighbridge.core.errors import BundleError, WeighbridgeError
from weighbridge.core.model import (
    Basis,
    CanaryResult,
    Faulted,
    Finding,
    Measured,
    Measurement,
    Offence,
    Outcome,
    Record,
    Rows,
    Series,
    Severity,
    Trial,
    TrialResult,
    Unmeasured,
    Verdict,
)
from weighbridge.evidence.codec import (
    canaries_from_json,
    canaries_to_bytes,
    decode_measured,
    encode_measured,
    finding_to_json,
    findings_from_json,
    findings_to_bytes,
)
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.base import Form, Quantity

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | texts
keys = texts.filter(lambda key: key != "$num")
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
fields = st.dictionaries(keys, json_values, max_size=4)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63),
    float: st.floats(),
    str: texts,
    object: json_values,
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Return whatever a field of this type may hold."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return values(args[0])
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*map(values, args))
    if origin is tuple:
        assert args[1:] == (...,)
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is Mapping:
        return st.dictionaries(keys, values(args[1]), max_size=3)
    if dataclasses.is_dataclass(hint):
        return rows(hint)
    return PLAIN[hint] if hint in PLAIN else st.sampled_from(hint)


def rows(row: Any) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(row, include_extras=True)
    return st.builds(row, **{item.name: values(hints[item.name]) for item in dataclasses.fields(row)})


@st.composite
def columns(draw: st.DrawFn) -> Series:
    steps = draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
    logged = draw(st.lists(st.floats(), min_size=len(steps), max_size=len(steps)))
    return Series(array.array("q", steps), array.array("d", logged))


def values_of(known: Quantity) -> st.SearchStrategy[Any]:
    match known.form:
        case Form.RECORD:
            return rows(known.row).map(Record)
        case Form.ROWS:
            table = st.lists(rows(known.row), unique_by=lambda row: getattr(row, known.key), max_size=3)
            return table.map(lambda some: Rows(known.key, tuple(some)))
        case Form.SERIES:
            return columns()


def measurements(known: Quantity) -> st.SearchStrategy[Measurement]:
    return st.builds(
        Measurement,
        quantity=st.just(known.name),
        value=values_of(known),
        by=texts,
        at=texts,
        unit=texts,
        basis=st.dictionaries(texts, st.sampled_from(Basis), max_size=2),
        examined=st.integers(0, 9),
        total=st.integers(0, 9),
    )


unmeasured: st.SearchStrategy[Measured] = st.builds(Unmeasured, code=texts, why=texts, remedy=texts) | st.builds(
    Faulted, code=texts, why=texts, remedy=texts
)
verdicts = st.builds(
    Verdict,
    outcome=st.sampled_from(Outcome),
    code=texts,
    counted=st.integers(0, 9),
    of=st.integers(0, 9),
    measured=scalars,
    limit=scalars,
    enough=scalars,
    unit=texts,
    offences=st.lists(st.builds(Offence, place=texts, code=texts, figures=fields), max_size=2).map(tuple),
    figures=fields,
)
findings = st.builds(
    Finding,
    gate=texts,
    instance=texts,
    kind=texts,
    kind_version=st.integers(1, 9),
    severity=st.sampled_from(Severity),
    verdict=verdicts,
    facts=fields,
    trials=st.lists(
        st.builds(Trial, kind=texts, name=texts, code=texts, result=st.sampled_from(TrialResult), why=texts), max_size=2
    ).map(tuple),
    uncounted=st.none() | verdicts,
)


def again(item: Measured) -> Measured:
    body, arrays = encode_measured(item)
    return decode_measured(loads(dumps(body)), arrays)


def sealed(item: Measured) -> tuple[bytes, dict[str, bytes]]:
    """Return what stands in a bundle of it."""
    body, arrays = encode_measured(item)
    return dumps(body), arrays


@pytest.mark.slow
@pytest.mark.parametrize("quantity", QUANTITIES)
@settings(max_examples=8)
@given(data=st.data())
def test_whatever_was_measured_comes_back_equal_and_to_the_same_bytes(quantity: str, data: st.DataObject) -> None:
    item = data.draw(measurements(QUANTITIES[quantity]))
    back = again(item)
    assert sealed(back) == sealed(item)
    if b'{"$num":"nan"}' not in sealed(item)[0] and QUANTITIES[quantity].form is not Form.SERIES:
        assert back == item


@given(unmeasured)
def test_what_could_not_be_measured_comes_back_equal(item: Measured) -> None:
    assert again(item) == item


@given(columns())
def test_a_series_keeps_every_bit_of_every_value(series: Series) -> None:
    value = again(_column(series)).value  # type: ignore[union-attr]
    assert isinstance(value, Series)
    assert isinstance(value.value, array.array)
    assert isinstance(series.value, array.array)
    assert value.value.tobytes() == series.value.tobytes()
    assert list(value.step) == list(series.step)


def test_two_columns_with_the_same_steps_share_one_array() -> None:
    step = array.array("q", [1, 2])
    one, first = encode_measured(_column(Series(step, array.array("d", [1.0, 2.0]))))
    two, second = encode_measured(_column(Series(step, array.array("d", [3.0, 4.0]))))
    assert len(first | second) == 3
    assert one["measurement"]["value"]["series"]["step"] == two["measurement"]["value"]["series"]["step"]


@pytest.mark.slow
@settings(max_examples=40)
@given(st.lists(findings, max_size=3))
def test_findings_come_back_byte_for_byte_without_the_places_that_were_looked_at(items: list[Finding]) -> None:
    data = findings_to_bytes(items)
    assert all("looked" not in finding for finding in loads(data)["findings"])
    assert findings_to_bytes(findings_from_json(loads(data))) == data


@pytest.mark.slow
@given(
    st.dictionaries(keys, st.builds(CanaryResult, name=texts, place=texts, applied=st.booleans(), seen=st.booleans()))
)
def test_canaries_come_back_equal(items: dict[str, CanaryResult]) -> None:
    assert canaries_from_json(loads(canaries_to_bytes(items))) == items


def test_a_trial_that_could_not_be_made_is_sealed_as_in_the_first_bundles() -> None:
    trial = Trial(kind="falsifier", name="two are exchanged", code="bytes", result=TrialResult.UNTRIED, why="one only")
    finding = dataclasses.replace(drafts.draft().findings[0], trials=(trial,))
    data = findings_to_bytes([finding])
    assert (b'"result":"n/a"' in data, b"untried" in data) == (True, False)
    assert findings_from_json(loads(data)) == (dataclasses.replace(finding, verdict=unlooked(finding)),)
    assert finding_to_json(finding)["trials"][0]["result"] == "untried"  # as reports say


def unlooked(finding: Finding) -> Verdict:
    return dataclasses.replace(finding.verdict, looked=())


@pytest.mark.parametrize("trials", ["n/a", [["n/a"]], [{"result": ["n/a"]}], [{"result": {"n/a": 1}}], [None], {}])
def test_what_is_no_list_of_trials_is_refused(trials: Any) -> None:
    body = loads(findings_to_bytes(drafts.draft().findings))
    body["findings"][0]["trials"] = trials
    with pytest.raises(WeighbridgeError):
        findings_from_json(body)


def test_a_figure_of_a_finding_has_a_short_pointer() -> None:
    finding = drafts.draft().findings[0]
    body = loads(findings_to_bytes([finding]))
    assert body["findings"][0]["counted"] == 2
    assert body["findings"][0]["outcome"] == "PASS"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body["findings"][0].update(extra=1), "/findings/0: unknown key 'extra'"),
        (lambda body: body["findings"][0].pop("code"), "/findings/0: missing key 'code'"),
        (lambda body: body["findings"][0].update(looked=[]), "/findings/0: unknown key 'looked'"),
        (
            lambda body: body["findings"][0].update(counted=True),
            "/findings/0/verdict/counted: true is not a whole number",
        ),
        (
            lambda body: body["findings"][0].update(outcome="OK"),
            "is not one of PASS, FAIL, BLOCKED, NOT_APPLICABLE, ERROR",
        ),
        (lambda body: body.update(schema="weighbridge.verdicts/v9"), "/schema: not"),
    ],
)
def test_an_unknown_or_missing_field_is_refused_by_its_pointer(change: Any, message: str) -> None:
    body = loads(findings_to_bytes(drafts.draft().findings))
    change(body)
    with pytest.raises(WeighbridgeError) as caught:
        findings_from_json(body)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"guess": {}}, "the root: not one of measurement, unmeasured, faulted"),
        ({"unmeasured": {}, "faulted": {}}, "the root: not one of measurement, unmeasured, faulted"),
        ([], "the root: not one of measurement, unmeasured, faulted"),
        ({"unmeasured": {"code": "x", "why": "y"}}, "/unmeasured: missing key 'remedy'"),
        ({"measurement": {}}, "/measurement: missing key 'value'"),
    ],
)
def test_what_is_no_measured_value_is_refused(body: Any, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        decode_measured(body, {})


@each(
    "change, message",
    [
        (lambda head: head.update(more=1), "/measurement: unknown key 'more'"),
        (lambda head: head.pop("by"), "/measurement: missing key 'by'"),
        (lambda head: head.update(examined="2"), "/measurement/examined: '2' is not a whole number"),
        (lambda head: head.update(quantity="guesses"), "/measurement/value: the quantity 'guesses' is not known here"),
        (lambda head: head.update(basis={"x": "guessed"}), "'guessed' is not one of measured, derived, reported"),
        (lambda head: head.update(value={"record": {}}), "/measurement/value: missing key 'rows'"),
        (lambda head: head["value"].update(record={}), "/measurement/value: unknown key 'record'"),
        (lambda head: head["value"].update(rows={}), "/measurement/value/rows: not a list of rows"),
        (lambda head: head["value"]["rows"].append(1), "/measurement/value/rows/2: 1 is not a mapping"),
        (lambda head: head["value"]["rows"][0].update(more=1), "/measurement/value/rows/0: unknown key 'more'"),
        (lambda head: head["value"]["rows"][1].pop("name"), "/measurement/value/rows/1: missing key 'name'"),
        (lambda head: head["value"]["rows"][0].pop("reproduced"), "/value/rows/0: missing key 'reproduced'"),
        (lambda head: head["value"]["rows"][0].update(elements="6"), "/rows/0/elements: '6' is not a whole number"),
        (lambda head: head["value"]["rows"][0].update(nonzero=1), "/rows/0/nonzero: 1 is not true or false"),
        (
            lambda head: head["value"]["rows"][0]["reproduced"].update(identical=0.5),
            "/reproduced/identical: 0.5 is not",
        ),
        (
            lambda head: head["value"]["rows"][1].update(name="a"),
            "/measurement/value/rows: two rows have the same 'name'",
        ),
    ],
)
def test_a_row_that_is_not_of_its_quantity_is_refused_by_its_pointer(change: Any, message: str) -> None:
    body = encode_measured(drafts.pairs(drafts.pair("a"), drafts.pair("b")))[0]
    change(body["measurement"])
    with pytest.raises(BundleError, match=re.escape(message)) as caught:
        decode_measured(loads(dumps(body)), {})
    assert caught.value.code == "structure"


@each("quantity", [name for name, known in QUANTITIES.items() if known.form is not Form.SERIES])
def test_a_row_of_any_quantity_with_a_field_more_or_less_is_refused(quantity: str) -> None:
    known = QUANTITIES[quantity]
    typical = typed(quantity, {})
    value = Record(typical) if known.form is Form.RECORD else Rows(known.key, (typical,))
    body = encode_measured(Measurement(quantity=quantity, value=value, by="x/1", examined=1, total=1))[0]
    stored = body["measurement"]["value"][str(known.form)]
    row = stored if known.form is Form.RECORD else stored[0]
    for field in list(row):
        kept = row.pop(field)
        with pytest.raises(BundleError, match=f"missing key '{field}'"):
            decode_measured(body, {})
        row[field] = kept
    assert decode_measured(body, {}).value == value  # type: ignore[union-attr]
    row["more"] = None
    with pytest.raises(BundleError, match="unknown key 'more'"):
        decode_measured(body, {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"series": {"step": "00", "value": "00"}}, "/measurement/value/series/step: no array of this bundle"),
        ({"series": {"step": "00"}}, "/measurement/value/series: missing key 'value'"),
        ({"table": {}}, "/measurement/value: missing key 'series'"),
        ([], "/measurement/value: not a mapping"),
    ],
)
def test_a_series_that_is_not_whole_is_refused(value: Any, message: str) -> None:
    body, arrays = encode_measured(_column(Series((), ())))
    with pytest.raises(BundleError, match=message):
        decode_measured({"measurement": body["measurement"] | {"value": value}}, arrays)


def test_steps_and_values_of_different_length_or_type_are_refused() -> None:
    body, arrays = encode_measured(_column(Series([1, 2], [1.0, 2.0])))
    short, more = encode_measured(_column(Series([1], [1.0])))
    named, other = body["measurement"]["value"]["series"], short["measurement"]["value"]["series"]
    mixed = body["measurement"] | {"value": {"series": named | {"value": other["value"]}}}
    with pytest.raises(BundleError, match="/measurement/value/series: 2 steps and 1 values"):
        decode_measured({"measurement": mixed}, arrays | more)
    swapped = body["measurement"] | {"value": {"series": {"step": named["value"], "value": named["step"]}}}
    with pytest.raises(BundleError, match="/measurement/value/series/step: an array of the other type"):
        decode_measured({"measurement": swapped}, arrays)


def test_a_value_that_is_not_plain_json_is_a_fault_of_the_verifier() -> None:
    fact = dataclasses.replace(typed("facts", {}), value={"dtypes": [b"BF16"]})
    item = Measurement(quantity="facts", value=Rows("name", (fact,)), by="x", examined=1, total=1)
    with pytest.raises(BundleError, match="/value/dtypes/0: a bytes is not plain JSON"):
        encode_measured(item)


def test_a_mapping_that_would_be_read_back_as_a_number_is_refused() -> None:
    with pytest.raises(WeighbridgeError, match="would be read back as a number"):
        dumps({"facts": {"$num": "nan"}})


def _column(series: Series) -> Measurement:
    return Measurement(quantity="step_series", value=series, by="step_series/1", examined=1, total=1)
