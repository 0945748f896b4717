from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.evidence import drafts

from weighbridge.contract.resolved import check_limits, contract_from_json, contract_to_json, digests
from weighbridge.core.canonical import dumps, loads, sha256
from weighbridge.core.errors import BundleError
from weighbridge.core.model import Contract, GateDecl, Severity, SubjectDecl, SubjectKind

texts = st.text(max_size=6)
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | texts
keys = texts.filter(lambda key: key != "$num")
gates = st.builds(
    GateDecl,
    id=texts,
    kind=texts,
    title=texts,
    subjects=st.dictionaries(keys, texts, max_size=2),
    limits=st.dictionaries(keys, plain | st.lists(plain, max_size=2), max_size=2),
    measure=st.dictionaries(keys, plain, max_size=2),
    when=st.dictionaries(keys, plain, max_size=2),
    where=st.dictionaries(keys, plain, max_size=2),
    requires=st.dictionaries(keys, st.booleans(), max_size=2),
    severity=st.sampled_from(Severity),
    why=texts,
    binds=st.lists(texts, max_size=2).map(tuple),
    depends_on=st.lists(texts, max_size=2).map(tuple),
    max_age_days=st.none() | st.floats(0, 99) | st.integers(0, 99),
)
contracts = st.builds(
    Contract,
    id=texts,
    version=texts,
    title=texts,
    owner=texts,
    subjects=st.dictionaries(
        keys,
        st.builds(
            SubjectDecl,
            kind=st.sampled_from(SubjectKind),
            path=texts,
            columns=st.dictionaries(keys, texts, max_size=2),
        ),
        max_size=2,
    ),
    gates=st.lists(gates, max_size=2).map(tuple),
    params=st.dictionaries(keys, plain, max_size=2),
    overridden=st.lists(texts, max_size=2).map(tuple),
)


@pytest.mark.slow
@given(contracts)
def test_a_contract_comes_back_equal(contract: Contract) -> None:
    assert contract_from_json(loads(dumps(contract_to_json(contract)))) == contract


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body.update(schema="x"), "/schema: not 'weighbridge.contract.resolved/v0'"),
        (lambda body: body["contract"].update(status="ACTIVE"), "/contract: unknown key 'status'"),
        (lambda body: body["contract"].pop("version"), "/contract: missing key 'version'"),
        (lambda body: body["contract"]["gates"][0].update(binds="AC-1"), "/contract/gates/0/binds: "),
        (lambda body: body["contract"]["gates"][0].update(requires={"cuda": 1}), "/requires/cuda: "),
        (lambda body: body["contract"]["gates"][0].update(where={"x": []}), "/contract/gates/0/where/x: "),
        (lambda body: body["contract"]["gates"][0].update(when={"x": []}), "/contract/gates/0/when/x: "),
        (lambda body: body["contract"]["gates"][0].update(when={}), "the key 'when' says nothing"),
        (lambda body: body["contract"]["gates"][0].pop("where"), "missing key 'where'"),
        (lambda body: body["contract"]["gates"][0].update(severity="blocker"), "is not one of required, advisory"),
    ],
)
def test_what_is_no_resolved_contract_is_refused_by_its_pointer(change: Callable[[Any], Any], message: str) -> None:
    body = loads(dumps(contract_to_json(drafts.contract())))
    change(body)
    with pytest.raises(BundleError) as caught:
        contract_from_json(body)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "dtype-preservatoin"}, "the kind 'dtype-preservatoin' is not known here"),
        (
            {"limits": {"polcy": "same"}},
            "limits/polcy: refused by its kind: unknown key 'polcy'",
        ),
        ({"measure": {"column": "loss"}}, "/contract/gates/0/measure/column: refused by its kind"),
        ({"subjects": {"source": "source"}}, "does not fill the roles source, candidate"),
    ],
)
def test_limits_are_read_by_their_kind_before_judging(change: Any, message: str) -> None:
    with pytest.raises(BundleError) as caught:
        check_limits(drafts.contract(dataclasses.replace(drafts.gate(), **change)))
    assert message in str(caught.value)
    check_limits(drafts.contract())


def test_a_gate_without_a_when_has_the_bytes_and_digests_that_it_had_before_there_was_one() -> None:
    (frozen,) = (Path(__file__).parents[2] / "evidence" / "frozen" / "v0").iterdir()
    sealed = (frozen / "contract.json").read_bytes()
    contract = contract_from_json(loads(sealed))
    assert dumps(contract_to_json(contract)) == sealed
    assert digests(contract).whole == sha256(sealed)
    assert {gate.id for gate in contract.gates if gate.when} == set()
    meant = dataclasses.replace(contract, gates=(dataclasses.replace(contract.gates[0], when={"tensors": 1}),))
    assert contract_from_json(loads(dumps(contract_to_json(meant)))) == meant


def test_words_change_the_whole_and_neither_part() -> None:
    old, new = digests(drafts.contract()), digests(drafts.contract(title="Other words"))
    assert old.whole != new.whole
    assert (old.collect, old.judge) == (new.collect, new.judge)


@pytest.mark.parametrize(
    ("change", "collect", "judge"),
    [
        ({"limits": {"policy": "lossless"}}, False, True),
        ({"when": {"tied": True}}, False, True),
        ({"where": {"tied": True}}, False, True),
        ({"severity": Severity.ADVISORY}, False, True),
        ({"max_age_days": 3.0}, False, True),
        ({"measure": {"column": "loss"}}, True, False),
        ({"subjects": {"source": "import", "candidate": "source"}}, True, False),
        ({"why": "other words", "title": "other words"}, False, False),
    ],
)
def test_a_change_shows_in_the_part_that_it_changes(change: Any, collect: bool, judge: bool) -> None:
    old = digests(drafts.contract(drafts.gate()))
    new = digests(drafts.contract(dataclasses.replace(drafts.gate(), **change)))
    assert (old.collect != new.collect, old.judge != new.judge) == (collect, judge)
