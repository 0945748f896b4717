"""byte-identity: are the named tensors byte for byte the same, dtype and shape included?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from weighbridge.gates.base import Evidence, Kind, Need, blocked, each_row, failed, passed, rows_of
from weighbridge.gates.dtype_preservation import listed
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which tensors must be the same."""

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors that must be the same", min_items=1, tight="up")] = (
        "*",
    )


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand the same dtype, shape and bytes for every named tensor."""
    rows = [row for row in rows_of(evidence, "pairs") if listed(str(row["name"]), limits.tensors)]
    if not any(row["elements"] for row in rows):
        return blocked("nothing-compared", {"tensors": len(rows)})
    looked = [str(row["name"]) for row in rows]
    offences = [_offence(row, code) for row in rows if (code := _code(row))]
    size = sum(int(str(row["source_bytes"])) for row in rows)
    if offences:
        return failed(offences, looked=looked, unit="tensors", figures={"bytes": size})
    return passed(looked=looked, unit="tensors", figures={"bytes": size})


def _code(row: Fields) -> str:
    if not row["candidate_dtype"]:
        return "missing"
    if not row["source_dtype"]:
        return "extra"
    if row["source_dtype"] != row["candidate_dtype"]:
        return "dtype"
    if row["source_shape"] != row["candidate_shape"]:
        return "shape"
    return "" if row["differing_bytes"] == 0 else "bytes"


def _offence(row: Fields, code: str) -> Offence:
    kept = (
        "source_dtype",
        "candidate_dtype",
        "source_shape",
        "candidate_shape",
        "source_bytes",
        "candidate_bytes",
        "differing_bytes",
        "first_difference",
    )
    return Offence(place=str(row["name"]), code=code, figures={key: row[key] for key in kept})


KIND = Kind(
    name="byte-identity",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"pairs": Need("tensor_pairs", of=("source", "candidate"))},
    limits=Limits,
    codes={
        "bytes": Outcome.FAIL,
        "dtype": Outcome.FAIL,
        "shape": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "nothing-compared": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        each_row(
            "one byte differs",
            "bytes",
            "pairs",
            lambda row, _: {**row, "differing_bytes": 1} if row["elements"] else None,
            why="every tensor is empty",
        ),
        each_row(
            "the same bytes under another dtype",
            "dtype",
            "pairs",
            lambda row, _: {**row, "candidate_dtype": "I16" if row["source_dtype"] != "I16" else "F16"},
            why="no tensors",
        ),
        each_row(
            "a dimension more",
            "shape",
            "pairs",
            lambda row, _: {**row, "candidate_shape": [1, row["candidate_shape"]]},
            why="no tensors",
        ),
        each_row("dropped", "missing", "pairs", lambda row, _: {**row, "candidate_dtype": ""}, why="no tensors"),
        each_row("added", "extra", "pairs", lambda row, _: {**row, "source_dtype": ""}, why="no tensors"),
    ),
)
