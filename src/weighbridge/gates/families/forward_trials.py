"""How a pass of forward-parity is made to fail where no limit is the reason, and with which code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from weighbridge.clauses.kind import Evidence, Mutated, Mutation, rows_of, with_rows
from weighbridge.clauses.mutations import in_rows, without_all_of_a_glob
from weighbridge.core.model import Outcome
from weighbridge.gates.families.local_errors import NONE, Limits, among
from weighbridge.quantities.forward import ForwardError

CODES = {
    **dict.fromkeys(
        ("weights-differ", "diverged", "missing-candidate", "missing-reference", "missing-required", "shape",
         "nonfinite", "zero-truth"),
        Outcome.FAIL,
    ),
    **dict.fromkeys(
        ("names-nothing", "one-token", "reference-not-float64", "other-dtype", "weights-not-compared", "other-device",
         "capture-mismatch", "other-basis", "no-trusted-run", "reference-nonfinite", "too-few-elements", "too-coarse",
         "not-repeatable", "held-otherwise", "nothing-compared"),
        Outcome.BLOCKED,
    ),
}  # fmt: skip
NO_SIGNAL: dict[str, Any] = {"truth_norm": 0.0, "candidate": NONE, "trusted": NONE}
Change = Callable[[ForwardError, Limits], ForwardError | None]


def _breaks(
    name: str, code: str, change: Change | None = None, why: str = "no point", **fields: Any
) -> Mutation[Limits]:
    """Return the mutation that changes the rows that are compared, or puts these fields into all of them."""

    def changed(row: ForwardError, limits: Limits) -> ForwardError | None:
        if not among(row.point, limits.points):
            return None
        return change(row, limits) if change else replace(row, **fields)

    return in_rows(name, code, "points", ForwardError, changed, why=why, outcome=CODES[code])


def _run(name: str, code: str, asked: str = "", **fields: Any) -> Mutation[Limits]:
    """Return the mutation that puts these fields into the run, where the contract has asked for something."""

    def change(row: ForwardError, limits: Limits) -> ForwardError | None:
        return replace(row, run=replace(row.run, **fields)) if not asked or getattr(limits, asked) else None

    return _breaks(name, code, change, f"the contract names no {asked}")


def _misnamed(name: str, form: str) -> Mutation[Limits]:
    def change(row: ForwardError, limits: Limits) -> ForwardError | None:
        other = form.format(row.point)
        return replace(row, point=other) if row.point in limits.required and among(other, limits.points) else None

    return _breaks(name, "missing-required", change, "the contract requires no such point")


def _other_weights(evidence: Evidence, limits: Limits, places: tuple[str, ...]) -> Mutated | str:
    """Let a weight differ, as told at these places."""
    rows = list(rows_of(evidence, "points", ForwardError))
    told = [at for at, row in enumerate(rows) if row.point in places and among(row.point, limits.points)]
    if among("weight", limits.other_weights) or not told:
        return "the contract lets every weight differ"
    for at in told:
        run = rows[at].run
        rows[at] = replace(rows[at], run=replace(run, weights=replace(run.weights, differing=("weight",))))
    return Mutated(with_rows(evidence, "points", rows), frozenset({"weight"}))


def _not_compared(row: ForwardError, limits: Limits) -> ForwardError | None:
    weights = replace(row.run.weights, on_both_sides=0)
    return None if limits.other_weights else replace(row, run=replace(row.run, weights=weights))


def _held(evidence: Evidence, _limits: Limits, _places: tuple[str, ...]) -> Mutated | str:
    """Hold everything in another dtype."""
    rows = rows_of(evidence, "points", ForwardError)
    if not any(row.trusted_held_as == row.run.dtype for row in rows):
        return "the trusted run holds nothing in the dtype"
    return Mutated(with_rows(evidence, "points", [replace(row, held_as="another") for row in rows]))


def _no_error(column: str, code: str, who: str) -> Iterator[Mutation[Limits]]:
    for what, value in (
        ("was never computed", None), ("is not a number", math.nan), ("has no bound", math.inf),
        ("lies below zero", -5e-324),
    ):  # fmt: skip
        for of in ("all", "token", "channel"):

            def change(row: ForwardError, _limits: Limits, of: str = of, value: Any = value) -> ForwardError | None:
                broken = {column: replace(getattr(row, column), **{of: value})}
                return replace(row, made_from=(), **broken) if row.truth_norm else None

            yield _breaks(f"an error of the {who} over {of} that {what}", code, change, "all points hold zeros")


MUTATIONS: tuple[Mutation[Limits], ...] = (
    *_no_error("candidate", "nonfinite", "candidate"),
    _breaks("one value not finite", "nonfinite", nonfinite_candidate=1, made_from=()),
    _breaks("a layout turned over", "shape", candidate_shape=(2, 3), reference_shape=(3, 2)),
    _breaks("a layout turned over, the other way", "shape", candidate_shape=(3, 2), reference_shape=(2, 3)),
    _breaks("not captured in the candidate", "missing-candidate", candidate_shape=None),
    _breaks("not captured in the reference", "missing-reference", reference_shape=None),
    _breaks("no zero where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=5e-324),
    _breaks("no number where the truth is zero", "zero-truth", **NO_SIGNAL, candidate_error=math.nan),
    _misnamed("a required point under a longer name", "{}.x"),
    _misnamed("a required point under a longer name, at its end", "x.{}"),
    Mutation("a weight that differs", "weights-differ", _other_weights),
    without_all_of_a_glob("names-nothing", "points", ForwardError, lambda limits: limits.points),
    _run("one token, repeated", "one-token", distinct_tokens=1),
    _run("one operation below float64", "reference-not-float64", lower_ops=1),
    _run("no operation audited", "reference-not-float64", audited_ops=0),
    _run("a rounded constant", "reference-not-float64", rounded_constants=1),
    _run("another dtype", "other-dtype", "dtype", dtype="another"),
    _run("a dtype of no name", "other-dtype", "dtype", dtype="unknown"),
    _run("another device", "other-device", "device", device="another"),
    _breaks("no weight compared", "weights-not-compared", _not_compared, "the contract lets weights differ"),
    *_no_error("trusted", "no-trusted-run", "trusted run"),
    _breaks("one value of the reference not finite", "reference-nonfinite", nonfinite_reference=1),
    Mutation("all held in another dtype", "held-otherwise", _held, Outcome.BLOCKED),
)
