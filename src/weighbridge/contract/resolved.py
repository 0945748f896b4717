"""A resolved contract as JSON and back, and its digests: what the judge used, free of YAML, comments and parameters."""

from typing import Any

from weighbridge.core import Contract, LimitsError, build, closed, dataclass, dumps, plain, read, sha256, wrong
from weighbridge.gates import KINDS

SCHEMA = "weighbridge.contract.resolved/v0"
COLLECTED = ("id", "kind", "subjects", "measure", "requires")
JUDGED = ("id", "kind", "limits", "when", "where", "requires", "severity", "max_age_days", "stale_on")


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractRef:
    """Which contract this is, and its digests: of all of it, of the part that says what is measured, what is judged."""

    id: str
    version: str
    whole: str
    collect: str
    judge: str


def contract_to_json(contract: Contract) -> dict[str, Any]:
    """Write a resolved contract."""
    return {"schema": SCHEMA, "contract": plain(contract)}


def contract_from_json(data: object) -> Contract:
    """Read what `contract_to_json` wrote, or raise `structure`; its kinds need not be known: no limits are read."""
    given = closed(data, ("schema", "contract"))
    if given["schema"] != SCHEMA:
        raise wrong(f"not {SCHEMA!r}", ("schema",))
    return build(Contract, given["contract"], at=("contract",))


def check_limits(contract: Contract) -> None:
    """Raise `structure` for a gate whose kind is not known here, or does not read the gate's limits and options."""
    for index, gate in enumerate(contract.gates):
        at, kind = ("contract", "gates", index), KINDS.get(gate.kind)
        if kind is None:
            raise wrong(f"the kind {gate.kind!r} is not known here", at)
        if {*gate.subjects} - {*kind.optional_roles} != {*(filled := kind.filled(gate.limits))}:
            raise wrong(f"the gate does not fill the roles {', '.join(filled)}", (*at, "subjects"))
        try:
            read(kind.limits, gate.limits, ("limits",))
            read(kind.measure, gate.measure, ("measure",))
        except LimitsError as problem:
            first = problem.problems[0]
            raise wrong(f"refused by its kind: {first.what}", (*at, *first.path)) from None


def digests(contract: Contract) -> ContractRef:
    """Digest a contract: the whole, what is measured, and what is judged; titles and reasons are in neither part."""
    whole = plain(contract)
    gates, both = whole["gates"], (COLLECTED, JUDGED)
    collect, judge = ([{key: gate[key] for key in keys if key in gate} for gate in gates] for keys in both)
    return ContractRef(
        id=contract.id,
        version=contract.version,
        whole=sha256(dumps(contract_to_json(contract))),
        collect=sha256(dumps({"subjects": whole["subjects"], "gates": collect})),
        judge=sha256(dumps({"gates": judge})),
    )
