"""Measurements, verdicts, findings and canaries as JSON and back: what is judged is what these bytes decode to."""

import array
import dataclasses
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

from weighbridge.core import Measured, build, closed, dataclass, dumps, json_value, model, plain, sha256, wrong
from weighbridge.core.canonical import npy, read_npy
from weighbridge.core.limits import Omitted
from weighbridge.core.limits import Path as Pointer
from weighbridge.quantities import QUANTITIES
from weighbridge.quantities.base import Form

Arrays: TypeAlias = Mapping[str, bytes]  # `.npy` bytes by their digest

UNSEALED: Omitted = {model.Verdict: frozenset({"looked"})}
VERDICT = tuple(item.name for item in dataclasses.fields(model.Verdict) if item.name not in UNSEALED[model.Verdict])
FINDING = tuple(item.name for item in dataclasses.fields(model.Finding) if item.name != "verdict")
VERDICTS_SCHEMA = "weighbridge.verdicts/v0"
CANARIES_SCHEMA = "weighbridge.canaries/v0"
SEALED_AS = {model.TrialResult.UNTRIED.value: "n/a"}  # the word of the first bundles, which follow byte for byte


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A measurement without its value."""

    quantity: str
    by: str
    at: str
    unit: str
    basis: Mapping[str, model.Basis]
    examined: int
    total: int


UNREAD: Mapping[str, type[model.Unmeasured | model.Faulted]]
UNREAD = {"unmeasured": model.Unmeasured, "faulted": model.Faulted}
TAGS = ("measurement", *UNREAD)
_KEPT: "MutableMapping[str, array.array[Any]]" = WeakValueDictionary()  # by digest, while somebody has them
HEAD = tuple(item.name for item in dataclasses.fields(_Head))


def encode_measured(item: Measured) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Write what a verifier gave, under one key that says what it is, and the arrays that it names by digest."""
    if not isinstance(item, model.Measurement):
        return {"unmeasured" if isinstance(item, model.Unmeasured) else "faulted": plain(item)}, {}
    arrays: dict[str, bytes] = {}
    written: dict[str, Any]
    match item.value:
        case model.Record(value=record):
            written = {"record": json_value(plain(record))}
        case model.Rows(rows=rows):
            written = {"rows": [json_value(plain(row)) for row in rows]}
        case model.Series(step=step, value=values):
            written = {"series": {"step": _put("q", step, arrays), "value": _put("d", values, arrays)}}
    return {"measurement": {name: plain(getattr(item, name)) for name in HEAD} | {"value": written}}, arrays


def decode_measured(data: object, arrays: Arrays) -> Measured:
    """Read what `encode_measured` wrote, or raise `structure` for anything else."""
    if not isinstance(data, Mapping) or len(data) != 1 or next(iter(data)) not in TAGS:
        raise wrong(f"not one of {', '.join(TAGS)}", ())
    word, body = next(iter(data.items()))
    if word != "measurement":
        return build(UNREAD[word], body, at=(word,))
    given = closed(body, ("value", *HEAD), (word,))
    head = build(_Head, {key: given[key] for key in HEAD}, at=(word,))
    value = _value_from_json(head.quantity, given["value"], arrays, (word, "value"))
    return model.Measurement(value=value, **{name: getattr(head, name) for name in HEAD})


def _put(code: str, values: Sequence[float], arrays: MutableMapping[str, bytes]) -> str:
    data = npy(values if isinstance(values, array.array) and values.typecode == code else array.array(code, values))
    digest = sha256(data)
    arrays[digest] = data
    return digest


def _value_from_json(quantity: str, data: object, arrays: Arrays, at: Pointer) -> model.Value:
    if (known := QUANTITIES.get(quantity)) is None:
        raise wrong(f"the quantity {quantity!r} is not known here", at)
    body = closed(data, (str(known.form),), at)[str(known.form)]
    at = (*at, str(known.form))
    match known.form:
        case Form.RECORD:
            return model.Record(build(known.row, body, at=at))
        case Form.ROWS:
            if not isinstance(body, list):
                raise wrong("not a list of rows", at)
            table = model.Rows(known.key, tuple(build(known.row, row, at=(*at, i)) for i, row in enumerate(body)))
            if len(set(table.places())) != len(table.rows):
                raise wrong(f"two rows have the same {known.key!r}", at)
            return table
        case Form.SERIES:
            given = closed(body, ("step", "value"), at)
            step = _take("q", given["step"], arrays, (*at, "step"))
            value = _take("d", given["value"], arrays, (*at, "value"))
            if len(step) != len(value):
                raise wrong(f"{len(step)} steps and {len(value)} values", at)
            return model.Series(step, value)


def _take(code: str, digest: object, arrays: Arrays, at: Pointer) -> "array.array[Any]":
    if not isinstance(digest, str) or digest not in arrays:
        raise wrong("no array of this bundle", at)
    if (values := _KEPT.get(digest)) is None:  # many columns have the same steps
        _KEPT[digest] = values = read_npy(arrays[digest], where=f"measurements/{digest}.npy")
    if values.typecode != code:
        raise wrong("an array of the other type", at)
    return values


def finding_to_json(finding: model.Finding) -> dict[str, Any]:
    """Write a finding with its verdict flat beside it, so that `/findings/0/measured` is a figure's pointer."""
    body: dict[str, Any] = plain(finding, UNSEALED)
    verdict: dict[str, Any] = body.pop("verdict")
    return body | verdict


def findings_to_bytes(findings: Sequence[model.Finding]) -> bytes:
    """Write `verdicts.json`: the bytes that judging again must give."""
    sealed = [_reworded(finding_to_json(finding), SEALED_AS) for finding in findings]
    return dumps({"schema": VERDICTS_SCHEMA, "findings": sealed})


def findings_from_json(data: object) -> tuple[model.Finding, ...]:
    """Read what `verdicts.json` holds."""
    items = _inside(data, VERDICTS_SCHEMA, "findings")
    if not isinstance(items, list):
        raise wrong("not a list", ("findings",))
    words = {sealed: word for word, sealed in SEALED_AS.items()}
    found = []
    for index, item in enumerate(items):
        at = ("findings", index)
        given = closed(_reworded(item, words), (*FINDING, *VERDICT), at)
        nested = {key: given[key] for key in FINDING} | {"verdict": {key: given[key] for key in VERDICT}}
        found.append(build(model.Finding, nested, UNSEALED, at))
    return tuple(found)


def _reworded(finding: Any, words: Mapping[str, str]) -> Any:
    """Return a finding as JSON with other words for the results of its trials; what is no finding stays as it is."""
    trials = finding.get("trials") if isinstance(finding, Mapping) else None
    if not isinstance(trials, list) or not all(isinstance(one, Mapping) for one in trials):
        return finding
    reworded = [{**one, "result": words[one["result"]]} if one.get("result") in [*words] else one for one in trials]
    return {**finding, "trials": reworded}


def canaries_to_bytes(canaries: Mapping[str, model.CanaryResult]) -> bytes:
    """Write `canaries.json`, by the key of the measurement whose instrument was tried."""
    return dumps({"schema": CANARIES_SCHEMA, "canaries": {key: plain(item) for key, item in canaries.items()}})


def canaries_from_json(data: object) -> dict[str, model.CanaryResult]:
    """Read what `canaries.json` holds."""
    items = _inside(data, CANARIES_SCHEMA, "canaries")
    if not isinstance(items, Mapping):
        raise wrong("not a mapping", ("canaries",))
    return {key: build(model.CanaryResult, item, at=("canaries", key)) for key, item in items.items()}


def _inside(data: object, schema: str, key: str) -> object:
    given = closed(data, ("schema", key))
    if given["schema"] != schema:
        raise wrong(f"not {schema!r}", ("schema",))
    return given[key]
