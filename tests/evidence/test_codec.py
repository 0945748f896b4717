from __future__ import annotations

import array
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence import drafts

from weighbridge.canonical import dumps, loads
from weighbridge.errors import WeighbridgeError
from weighbridge.evidence.codec import (
    canaries_from_json,
    canaries_to_bytes,
    decode_measured,
    encode_measured,
    findings_from_json,
    findings_to_bytes,
    verdict_from_json,
    verdict_to_json,
)
from weighbridge.model import (
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

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | texts
keys = texts.filter(lambda key: key != "$num")
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=6
)
fields = st.dictionaries(keys, json_values, max_size=4)


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    places = draw(st.lists(texts, unique=True, max_size=4))
    return Rows("name", tuple(draw(fields) | {"name": place} for place in places))


@st.composite
def columns(draw: st.DrawFn) -> Series:
    steps = draw(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=8))
    values = draw(st.lists(st.floats(), min_size=len(steps), max_size=len(steps)))
    return Series(array.array("q", steps), array.array("d", values))


measurements = st.builds(
    Measurement,
    quantity=texts,
    value=fields.map(Record) | tables() | columns(),
    by=texts,
    at=texts,
    unit=texts,
    basis=st.dictionaries(texts, st.sampled_from(Basis), max_size=2),
    examined=st.integers(0, 9),
    total=st.integers(0, 9),
)
measured_values: st.SearchStrategy[Measured] = (
    measurements
    | st.builds(Unmeasured, code=texts, why=texts, remedy=texts)
    | st.builds(Faulted, code=texts, why=texts, remedy=texts)
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
canaries = st.builds(CanaryResult, name=texts, place=texts, applied=st.booleans(), seen=st.booleans())


def bits(value: Any) -> Any:
    """Show floats by their bits, so that NaN equals NaN and -0.0 is not 0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    return [bits(item) for item in value] if isinstance(value, list) else (type(value), value)


def again(item: Measured) -> Measured:
    body, arrays = encode_measured(item)
    return decode_measured(loads(dumps(body)), arrays)


@given(measured_values)
def test_whatever_was_measured_comes_back_with_the_same_bits(item: Measured) -> None:
    first, second = encode_measured(item), encode_measured(again(item))
    assert bits(first[0]) == bits(second[0])
    assert first[1] == second[1]
    assert type(again(item)) is type(item)


@given(columns())
def test_a_series_keeps_every_bit_of_every_value(series: Series) -> None:
    item = Measurement(quantity="column", value=series, by="column/1", examined=1, total=1)
    value = again(item).value  # type: ignore[union-attr]
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


@given(verdicts)
def test_a_verdict_comes_back_without_the_places_it_looked_at(verdict: Verdict) -> None:
    assert "looked" not in verdict_to_json(verdict)
    once = dumps(verdict_to_json(verdict))
    assert dumps(verdict_to_json(verdict_from_json(loads(once)))) == once


@given(st.lists(findings, max_size=3))
def test_findings_come_back_byte_for_byte(items: list[Finding]) -> None:
    data = findings_to_bytes(items)
    assert findings_to_bytes(findings_from_json(loads(data))) == data


@given(
    st.dictionaries(keys, st.builds(CanaryResult, name=texts, place=texts, applied=st.booleans(), seen=st.booleans()))
)
def test_canaries_come_back_equal(items: dict[str, CanaryResult]) -> None:
    assert canaries_from_json(loads(canaries_to_bytes(items))) == items


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
            "/findings/0/verdict/counted: 1.0 is not a whole number",
        ),
        (lambda body: body["findings"][0].update(outcome="OK"), "is not one of PASS, FAIL, BLOCKED, ERROR"),
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
        ({"guess": {}}, "is not one of measurement, unmeasured, faulted"),
        ({"unmeasured": {"code": "x", "why": "y"}}, "lacks the key 'remedy'"),
        ({"measurement": {}}, "lacks the key 'value'"),
    ],
)
def test_what_is_no_measured_value_is_refused(body: Any, message: str) -> None:
    with pytest.raises(WeighbridgeError, match=message):
        decode_measured(body, {})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"rows": {"key": "name", "rows": [{"name": "a"}, {"name": "a"}]}}, "rows without a place of their own"),
        ({"rows": {"key": "name", "rows": [{"other": "a"}]}}, "rows without a place of their own"),
        ({"series": {"step": "00", "value": "00"}}, "names no array of this bundle"),
        ({"table": {}}, "is not one of record, rows, series"),
    ],
)
def test_a_value_that_is_not_whole_is_refused(value: Any, message: str) -> None:
    body, arrays = encode_measured(_column(Series((), ())))
    with pytest.raises(WeighbridgeError, match=message):
        decode_measured({"measurement": body["measurement"] | {"value": value}}, arrays)


def test_steps_and_values_of_different_length_or_type_are_refused() -> None:
    body, arrays = encode_measured(_column(Series([1, 2], [1.0, 2.0])))
    short, more = encode_measured(_column(Series([1], [1.0])))
    named, other = body["measurement"]["value"]["series"], short["measurement"]["value"]["series"]
    mixed = body["measurement"] | {"value": {"series": named | {"value": other["value"]}}}
    with pytest.raises(WeighbridgeError, match="has 2 steps and 1 values"):
        decode_measured({"measurement": mixed}, arrays | more)
    swapped = body["measurement"] | {"value": {"series": {"step": named["value"], "value": named["step"]}}}
    with pytest.raises(WeighbridgeError, match="names an array of the other type"):
        decode_measured({"measurement": swapped}, arrays)


def test_a_value_that_is_not_plain_json_is_a_fault_of_the_verifier() -> None:
    item = Measurement(quantity="q", value=Record({"dtypes": [b"BF16"]}), by="x", examined=1, total=1)
    with pytest.raises(WeighbridgeError, match="/dtypes/0: a bytes is not plain JSON"):
        encode_measured(item)


def test_a_mapping_that_would_be_read_back_as_a_number_is_refused() -> None:
    with pytest.raises(WeighbridgeError, match="would be read back as a number"):
        dumps({"facts": {"$num": "nan"}})


def _column(series: Series) -> Measurement:
    return Measurement(quantity="column", value=series, by="column/1", examined=1, total=1)
