"""What differs between two bundles: outcomes, figures, subjects, environment, contract. Judges and reads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weighbridge.contract.resolved import contract_to_json
from weighbridge.core import Json, dumps, plain
from weighbridge.evidence.bundle import Bundle
from weighbridge.evidence.codec import finding_to_json

FIGURES = ("measured", "limit", "enough", "counted", "of", "figures")
ABSENT = "absent"


def differences(one: Bundle, other: Bundle) -> dict[str, dict[str, tuple[Json, Json]]]:
    """Return what differs, by subject matter and place; what one of the two does not have is `absent` there."""
    here, there = _matters(one), _matters(other)
    found: dict[str, dict[str, tuple[Json, Json]]] = {}
    for matter, left in here.items():
        old, new = dict(_leaves(left, "")), dict(_leaves(there[matter], ""))
        places = [place for place in {**old, **new} if dumps(old.get(place, ABSENT)) != dumps(new.get(place, ABSENT))]
        found |= {matter: {at: (old.get(at, ABSENT), new.get(at, ABSENT)) for at in places}} if places else {}
    return found


def _matters(bundle: Bundle) -> dict[str, Any]:
    findings = {f"{one.gate}[{one.instance}]": finding_to_json(one) for one in bundle.findings}
    stated: Any = plain(bundle.statement)
    contract = dict(contract_to_json(bundle.contract)["contract"])
    return {
        "outcomes": {name: " ".join(filter(None, (one["outcome"], one["code"]))) for name, one in findings.items()},
        "figures": {name: {key: one[key] for key in FIGURES} for name, one in findings.items()},
        "subjects": {f"{one['name']}@{one['instance']}": one for one in stated["subjects"]}
        | {one["role"]: one["sha256"] for one in stated["companions"]},
        "environment": {**bundle.environment, "host": stated["host"], "tool": stated["tool"]},
        "contract": contract | {"gates": {gate["id"]: gate for gate in contract["gates"]}},
    }


def _leaves(value: Json, at: str) -> Iterator[tuple[str, Json]]:
    """Yield every value that holds no other, by its place; an empty list or mapping is one, too."""
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{at}/{key}" if at else key)
    elif isinstance(value, Sequence) and value and not isinstance(value, str):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{at}/{index}")
    else:
        yield at, value
