"""The examples of a gate card: what all start from (`given`) is said once, and each says only what is otherwise.

    given: {with: {below_ms: 110}, times: {at: wall_ms, values: [100.0, 101.0]}, columns: {wall_ms: {}}}
    examples: [{PASS: under the budget}, {FAIL: one outlier, times: {"1": 190.0}, says: "…"}]

`with` gives limits. A table maps places to fields, over the typical row of its quantity; `null` takes a place away, and
`"*"` stands for every place; of a field that is a record itself, only what is named changes. A record gives fields over
the typical record. A series has its column's name (`at`), its `values` and their `steps` (else from 0 on); a whole
number as key is a step whose value is another, or `null` for none. A need that is `null` has nothing in it. `says` are
the exact words, demanded of one example a code.

What a family of kinds asks is shown once, in `gates/families/`: a kind runs those of its codes over its own `given`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, get_args, get_type_hints

from weighbridge.cards.words import GateCard
from weighbridge.clauses.kind import Kind
from weighbridge.contract import strict_yaml
from weighbridge.core import ContractError, Measurement, Outcome, Record, Rows, Series, Value, build, data_path, plain
from weighbridge.core.limits import read
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.base import Form, Quantity

EVERY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One judgement that must come out as told: the limits, the evidence by need, the outcome and its words."""

    name: str
    limits: Any
    evidence: Mapping[str, Measurement]
    outcome: Outcome
    says: tuple[str, ...] | None  # None where no words are demanded
    shared: bool  # of a family, not of the card


def examples(card: GateCard, kind: Kind[Any]) -> Iterator[Example]:
    """Yield the examples of a card and of its families, or raise `card` for one that kind or quantity refuses."""
    yield from _examples(card, kind, card.given, card.examples, shared=False)
    for family in kind.families:
        path, judged = data_path("gates") / "families" / f"{family}.yaml", _mapping(card.given.get("samples")).get("at")
        shown = strict_yaml.load(path.read_bytes().replace(b"<judged>", str(judged).encode()), where=str(path)).data
        over = {need: {**_mapping(card.given.get(need)), **given} for need, given in shown["given"].items()}
        for bodies in (bodies for code, bodies in shown["examples"].items() if code in kind.codes):
            yield from _examples(card, kind, {**card.given, **over}, bodies, shared=True)


def _examples(
    card: GateCard, kind: Kind[Any], given: Mapping[str, Any], bodies: Sequence[Mapping[str, Any]], *, shared: bool
) -> Iterator[Example]:
    for body in bodies:
        outcome = next((outcome for outcome in Outcome if outcome in body), None)
        if outcome is None:
            raise ContractError("card", f"an example of {card.kind} begins with none of {', '.join(Outcome)}")
        name = str(body[outcome])
        if unknown := sorted(set(body) - {outcome, "with", "says", *kind.needs}):
            raise ContractError("card", f"{card.kind}: {name}: unknown key {unknown[0]!r}")
        says = body.get("says")
        yield Example(
            name=name,
            limits=read(kind.limits, {**_mapping(given.get("with")), **_mapping(body.get("with"))}),
            evidence={
                need: _measured(QUANTITIES[wanted.quantity], given.get(need), body.get(need, {}))
                for need, wanted in kind.needs.items()
                if need in given or need in body
            },
            outcome=outcome,
            says=None if says is None else (says,) if isinstance(says, str) else tuple(says),
            shared=shared,
        )


def _mapping(data: Any) -> Mapping[Any, Any]:
    return data if isinstance(data, Mapping) else {}


def _measured(known: Quantity, given: Any, changed: Any) -> Measurement:
    given, changed, nothing = _mapping(given), _mapping(changed), changed is None
    value: Value
    match known.form:
        case Form.RECORD if nothing:
            value = Record(None)
        case Form.ROWS:
            value = Rows(known.key, tuple(_rows(known, given, changed)))
        case Form.RECORD:
            value = Record(_typed(known, {**given, **changed}))
        case Form.SERIES:
            value = _series({**given, **changed})
    at = {**given, **changed}.get("at", "") if known.form is Form.SERIES else ""
    return Measurement(quantity=known.name, value=value, by="example", at=str(at), examined=1, total=1)


def _rows(known: Quantity, given: Mapping[str, Any], changed: Mapping[str, Any]) -> Iterator[Any]:
    every = changed.get(EVERY, {})
    kept = given.items() if every is not None else ()
    places: dict[str, Any] = {place: {**_mapping(row), **every} for place, row in kept}
    for place, row in changed.items():
        if place != EVERY:
            places[place] = None if row is None else _changed(places.get(place, {}), row, known.row)
    return (_typed(known, {**row, known.key: place}) for place, row in places.items() if row is not None)


def _series(body: Mapping[str, Any]) -> Series:
    values = body.get("values", ())
    samples = dict(zip(body.get("steps", range(len(values))), values, strict=True))
    if len(samples) != len(values):  # steps that repeat or fall: as they stand
        return Series(tuple(body["steps"]), tuple(map(float, values)))
    changed = {int(step): value for step, value in body.items() if str(step).lstrip("-").isdigit()}
    samples = {step: value for step, value in {**samples, **changed}.items() if value is not None}
    order = sorted(samples) if changed else samples
    return Series(tuple(order), tuple(float(samples[step]) for step in order))


def _typed(known: Quantity, body: Mapping[str, Any]) -> Any:
    return build(known.row, _changed(plain(known.typical()), body, known.row))


def _changed(fields: Mapping[str, Any], body: Mapping[str, Any], cls: Any) -> dict[str, Any]:
    """Return fields with some changed; of a field that is a dataclass, or may be one, only what is named."""
    parts = _parts(cls)
    within = {key for key, value in body.items() if parts.get(key) and isinstance(value, Mapping)}
    return {**fields, **body, **{key: _changed(_mapping(fields.get(key)), body[key], parts[key]) for key in within}}


@functools.cache
def _parts(cls: Any) -> Mapping[str, Any]:
    """Return the dataclass that each field is, or may be."""
    hints = get_type_hints(cls)
    return {key: next(filter(is_dataclass, (hint, *get_args(hint))), None) for key, hint in hints.items()}
