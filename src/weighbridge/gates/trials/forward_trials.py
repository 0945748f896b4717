"""How a pass of forward-parity is made to fail where no limit is the reason, and with which code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutated, Mutation, codes, rows_of, with_rows
from weighbridge.clauses.mutations import without_all_of_a_glob
from weighbridge.core import Fields, Outcome
from weighbridge.gates.families.local_errors import BLOCKED, REACHED, Limits, breaks, compared
from weighbridge.quantities.forward import NOT_TRIED, ForwardError, LocalError, Taken

CODES = codes(
    *("weights-differ", "weights-unlike", "diverged", "missing-candidate", "missing-reference", "missing-required"),
    *("shape", "nonfinite", "zero-truth"),
    blocked=BLOCKED,
)
ANY_WEIGHT = "the contract lets every weight differ"
NO_SIGNAL: dict[str, Any] = {"truth_norm": 0.0, "candidate": NOT_TRIED, "trusted": NOT_TRIED}


def _run(name: str, code: str, asked: str = "", **fields: Any) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
        return {"run": replace(row.run, **fields)} if not asked or getattr(limits, asked) else None

    return breaks(name, code, change, f"the contract names no {asked}")


def _misnamed(name: str, form: str) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> Fields | None:
        other = form.format(row.point)
        return {"point": other} if row.point in limits.required and listed(other, limits.points) else None

    return breaks(name, "missing-required", change, "the contract requires no such point")


def _weights(name: str, code: str, place: str, why: str, **fields: Any) -> Mutation[Limits]:
    """Return the mutation of what the candidate's weights are, which the judge says at the place of a weight."""

    def apply(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
        rows = list(rows_of(evidence, "points", ForwardError))
        mine = [at for at, row in enumerate(rows) if row.point in places and compared(row, limits)]
        if not mine or ("differing" in fields and listed(place, limits.other_weights)):
            return why
        for at in mine:
            run = rows[at].run
            rows[at] = replace(rows[at], run=replace(run, weights=replace(run.weights, **fields)))
        return Mutated(with_rows(evidence, "points", rows), frozenset({place}))

    return Mutation(name, code, apply)


def _unlike(name: str, whole: float, row: float) -> Mutation[Limits]:
    return _weights(
        name, "weights-unlike", "matrix", "no point is compared", taken=(Taken(name="matrix", all=whole, row=row),)
    )


def _without_weights(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
    weights = replace(row.run.weights, on_both_sides=0)
    return None if limits.other_weights else {"run": replace(row.run, weights=weights)}


def _rounded_factors(row: ForwardError, _limits: Limits) -> dict[str, Any] | None:
    run = replace(row.run, products_like="bfloat16", products_at=row.point, products_left=0.0)
    odd = replace(row.candidate, all=1e9)
    return {"run": run, "candidate": odd, "made_from": (), "candidate_end_to_end": 0.0} if row.truth_norm else None


def _unreached(name: str) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> dict[str, Any] | None:
        others = tuple(one for one in REACHED if one != name)
        return {"run": replace(row.run, reached=others)} if name in limits.reach else None

    return breaks(f"inputs that reach no {name}", f"inputs-reach-no-{name}", change, "the contract does not ask for it")


def _not_captured(row: ForwardError, _limits: Limits) -> dict[str, Any]:
    return {"candidate_shape": None, "run": replace(row.run, partial=False)}


def _stored_otherwise(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "points", ForwardError)
    if not any(row.trusted_held_as == row.run.dtype for row in rows):
        return "the trusted run stores nothing in the dtype"
    return Mutated(with_rows(evidence, "points", [replace(row, held_as="another") for row in rows]))


def _rounded_less(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    rows = rows_of(evidence, "points", ForwardError)
    if rows[0].run.dtype != "float32":
        return "only values in float32 are finer than rounded factors"
    said, exact = replace(rows[0].run, products="q8_0"), LocalError(all=0.0, token=0.0, channel=0.0)
    if not any(row.truth_norm for row in rows):
        return "all points hold zeros"
    coarse = LocalError(all=0.01, token=0.02, channel=0.02)
    changed = [replace(row, run=said, candidate=exact, trusted=coarse) if row.truth_norm else row for row in rows]
    return Mutated(with_rows(evidence, "points", changed))


NO_ERRORS = {
    "was never computed": None,
    "is not a number": math.nan,
    "has no bound": math.inf,
    "lies below zero": -5e-324,
}


def _no_error(column: str, code: str, who: str) -> Iterator[Mutation[Limits]]:
    for what, value in NO_ERRORS.items():
        for of in ("all", "token", "channel"):

            def change(row: ForwardError, _limits: Limits, of: str = of, value: Any = value) -> Fields | None:
                broken = {column: replace(getattr(row, column), **{of: value})}
                return {"made_from": (), **broken} if row.truth_norm else None

            yield breaks(f"an error of the {who} over {of} that {what}", code, change, "all points hold zeros")


MUTATIONS: tuple[Mutation[Limits], ...] = (
    *_no_error("candidate", "nonfinite", "candidate"),
    breaks("one value not finite", "nonfinite", nonfinite_candidate=1, made_from=()),
    breaks("a layout turned over", "shape", candidate_shape=(2, 3), reference_shape=(3, 2)),
    breaks("a layout turned over, the other way", "shape", candidate_shape=(3, 2), reference_shape=(2, 3)),
    breaks("an error as of factors rounded otherwise", "products-unsaid", _rounded_factors, "all points hold zeros"),
    breaks("not captured in the candidate", "missing-candidate", _not_captured),
    breaks("not captured in the reference", "missing-reference", reference_shape=None),
    breaks("no zero where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=5e-324),
    breaks("no number where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=math.nan),
    _misnamed("a required point under a longer name", "{}.x"),
    _misnamed("a required point under a longer name, at its end", "x.{}"),
    _weights("a weight that differs", "weights-differ", "weight", ANY_WEIGHT, differing=("weight",)),
    _unlike("a matrix that is another one", 1.4, 1.5),
    _unlike("a row of a matrix that is another one", 0.03, 0.7),
    _unlike("a matrix that is no number", math.nan, math.nan),
    without_all_of_a_glob("names-nothing", "points", ForwardError, lambda limits: limits.points),
    _run("one token, repeated", "one-token", distinct_tokens=1),
    _run("one operation below float64", "reference-not-float64", lower_ops=1),
    _run("no operation audited", "reference-not-float64", audited_ops=0),
    _run("a rounded constant", "reference-not-float64", rounded_constants=1),
    *map(_unreached, REACHED),
    _run("another dtype", "other-dtype", "dtype", dtype="another"),
    _run("a dtype of no name", "other-dtype", "dtype", dtype="unknown"),
    _run("another device", "other-device", "device", device="another"),
    breaks("no weight compared", "weights-not-compared", _without_weights, "the contract lets weights differ"),
    *_no_error("trusted", "no-trusted-run", "trusted run"),
    breaks("one value of the reference not finite", "reference-nonfinite", nonfinite_reference=1),
    Mutation("products that round nothing", "products-otherwise", _rounded_less, Outcome.BLOCKED),
    Mutation("all stored in another dtype", "held-otherwise", _stored_otherwise, Outcome.BLOCKED),
)
