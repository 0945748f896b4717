"""What a gate read, for who draws it or looks it up: its column, its steps, its places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weighbridge.core import Contract, Finding, Json, Measured, Measurement, Rows, Series
from weighbridge.gates import KINDS
from weighbridge.judging.requests import request_for

PLACES = 20


def keys_of(contract: Contract, finding: Finding) -> tuple[str, ...]:
    """Return the names of the measurements that a finding stands on."""
    gate = contract.gate(finding.gate)
    needs = KINDS[gate.kind].needed(gate.limits).values() if gate.kind in KINDS else ()
    return tuple(request_for(gate, need, finding.instance).key for need in needs)


def looked_at(contract: Contract, finding: Finding, measured: Mapping[str, Measured]) -> dict[str, Json]:
    """Return the column and the steps that a gate looked at, and 20 places at most, of those that offend if any."""
    gate = contract.gate(finding.gate)
    items = [one for key in keys_of(contract, finding) if isinstance(one := measured.get(key), Measurement)]
    series = next((one for one in items if isinstance(one.value, Series) and len(one.value.step)), None)
    places = [one.place for one in finding.verdict.offences[:PLACES]] or ([series.at] if series else [])
    if not places:
        first = [Rows(at.key, at.rows[:PLACES]) for item in items if isinstance(at := item.value, Rows)]
        places = [place for table in first for place in table.places()][:PLACES]
    found: dict[str, Json] = {"column": None, "from_step": None, "to_step": None, "places": places}
    if series is None:
        return found
    value: Any = series.value
    window: Any = gate.limits.get("steps") or (gate.limits.get("warmup_steps", value.step[0]), value.step[-1])
    first, last = max(window[0], value.step[0]), min(window[1], value.step[-1])
    return found | {"column": series.at, "from_step": first, "to_step": last}
