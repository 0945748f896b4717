"""A contract against the one that it extends: it may tighten; what it loosens needs a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weighbridge.contract.layers import Layered
from weighbridge.contract.problems import Found
from weighbridge.gates import KINDS
from weighbridge.limits import loosened, read
from weighbridge.model import Contract, Fields, GateDecl, Severity

NO_AGE = float("inf")


def loosenings(base: Contract, child: Contract, layered: Layered) -> Iterator[Found]:
    """Find the gates that are looser than in the base: an error without `relax:`; and reasons given for nothing."""
    before = {gate.id: gate for gate in base.gates}
    for index, gate in enumerate(child.gates):
        path = ("gates", index)
        old = before.get(gate.id)
        looser = dict(_looser(old, gate)) if old is not None else {}
        relax = layered.data["gates"][index].get("relax")
        if relax and not looser:
            what = f"{gate.id} is no looser than in what it extends"
            yield layered.found((*path, "relax"), "needless-relax", what, "delete relax", at_key=True, warning=True)
        elif not relax:
            for place, what in looser.items():
                remedy = "keep the tighter value, or give the reason in relax:"
                yield layered.found((*path, *place), "loosened", f"{gate.id}: {what}", remedy)


def _looser(old: GateDecl, new: GateDecl) -> Iterator[tuple[tuple[str, ...], str]]:
    """List what is not known to be as tight as before: where it is written, and what changed."""
    if old.kind != new.kind:
        yield ("kind",), f"was {old.kind}, is {new.kind}"
        return
    limits = KINDS[new.kind].limits
    for key in loosened(read(limits, old.limits), read(limits, new.limits)):
        yield ("with", key), f"{key} was {_shown(old.limits[key])}, is {_shown(new.limits[key])}"
    for section in ("subjects", "measure", "where", "requires"):
        yield from _changed(section, getattr(old, section), getattr(new, section))
    if old.severity is Severity.REQUIRED and new.severity is not Severity.REQUIRED:
        yield ("severity",), f"was {old.severity}, is {new.severity}"
    if (new.max_age_days or NO_AGE) > (old.max_age_days or NO_AGE):
        yield ("max_age",), f"was {old.max_age_days:g} days, is {new.max_age_days:g} days"


def _changed(section: str, old: Fields, new: Fields) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield changed and added entries, which make another promise; a further `where:` only narrows, and is allowed."""
    for key in new:
        if key in old and old[key] != new[key]:
            yield (section, key), f"{section} {key} was {_shown(old[key])}, is {_shown(new[key])}"
        elif key not in old and section != "where":
            yield (section, key), f"{section} {key} is new"


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_shown(item) for item in value) + "]"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
