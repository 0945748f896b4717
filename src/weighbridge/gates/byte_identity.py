"""byte-identity: are the named tensors byte for byte the same, dtype and shape included?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated

from weighbridge.clauses.clause import listed
from weighbridge.clauses.kind import Evidence, Mutation, blocked, rows_of
from weighbridge.clauses.mutations import in_rows, only_rows, without_all_of_a_glob
from weighbridge.core.limits import Doc
from weighbridge.core.model import Fields, Outcome, Verdict
from weighbridge.gates.families.tensor_pairs import (
    NO_DTYPE,
    Change,
    columns_of,
    deeper,
    kind_of_pairs,
    longer,
    verdict_of,
)
from weighbridge.quantities.tensors import TensorPair

FIGURES = (
    "source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "source_bytes", "candidate_bytes",
    "differing_bytes", "first_difference",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which tensors must be the same."""

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors that must be the same", min_items=1, tight="up")] = (
        "*",
    )


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand the same dtype, shape and bytes of every named tensor; a glob that names none is a typo, not a pass."""
    pairs = rows_of(evidence, "pairs", TensorPair)
    named = [pair for pair in pairs if listed(pair.name, limits.tensors)]
    size = {"bytes": sum(pair.source_bytes for pair in named)}
    verdict = verdict_of([(pair, code_of(pair)) for pair in named], _figures, size, names=len(pairs))
    idle = [glob for glob in limits.tensors if not any(fnmatchcase(pair.name, glob) for pair in named)]
    if verdict.outcome is Outcome.PASS and idle:
        return blocked("names-nothing", {"globs": idle, "names": len(pairs)})
    return verdict


def code_of(pair: TensorPair) -> str:
    """Return what is not the same of a tensor, or nothing."""
    if not pair.candidate_dtype:
        return "missing"
    if not pair.source_dtype:
        return "extra"
    if pair.packed:
        return "packed"
    if pair.source_dtype != pair.candidate_dtype:
        return "dtype"
    if pair.source_shape != pair.candidate_shape:
        return "shape"
    if not pair.compared:
        return "not-compared"
    return "" if pair.differing_bytes == 0 else "bytes"


def _figures(pair: TensorPair, _code: str, _mechanism: str) -> Fields:
    return columns_of(pair, (*FIGURES, "packed", "no_rule"))


def _breaks(name: str, code: str, change: Change, outcome: Outcome = Outcome.FAIL) -> Mutation[Limits]:
    def of_named(pair: TensorPair, limits: Limits) -> TensorPair | None:
        return change(pair, limits) if listed(pair.name, limits.tensors) else None

    return in_rows(name, code, "pairs", TensorPair, of_named, why="no such tensor is named", outcome=outcome)


def _sets(name: str, code: str, outcome: Outcome = Outcome.FAIL, **changed: object) -> Mutation[Limits]:
    return _breaks(name, code, lambda pair, _: dataclasses.replace(pair, **changed), outcome)  # type: ignore[arg-type]


KIND = kind_of_pairs(
    "byte-identity",
    version=4,
    limits=Limits,
    judge=judge,
    fails=("bytes",),
    blocked=("names-nothing",),
    mutations=(
        _sets("one byte differs", "bytes", differing_bytes=1),
        _sets("bytes not counted", "bytes", differing_bytes=None),
        _sets("the same bytes under another dtype", "dtype", candidate_dtype=NO_DTYPE),
        _sets("another dtype in the source", "dtype", source_dtype=NO_DTYPE),
        _breaks("a dimension more", "shape", lambda pair, _: deeper(pair)),
        _breaks("one longer", "shape", lambda pair, _: longer(pair)),
        _sets("dropped", "missing", candidate_dtype=""),
        _sets("added", "extra", source_dtype=""),
        _sets("not compared", "not-compared", Outcome.BLOCKED, compared=False),
        _sets("packed on one side", "packed", Outcome.BLOCKED, packed="an unknown method"),
        _sets("dropped where no rule speaks", "no-rule", Outcome.BLOCKED, candidate_dtype="", no_rule="a family"),
        only_rows(
            "every tensor empty", "nothing-compared", "pairs", TensorPair,
            lambda pair, _: dataclasses.replace(pair, elements=0), why="there is no tensor",
        ),
        without_all_of_a_glob("names-nothing", "pairs", TensorPair, lambda limits: limits.tensors),
    ),
)  # fmt: skip
