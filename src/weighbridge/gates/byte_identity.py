"""byte-identity: are the named tensors byte for byte the same, dtype and shape included?"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.kind import Evidence, Falsifier, Kind, blocked, each_row, failed, passed, rows_of
from weighbridge.clauses.pair_damage import blank_table, unlooked, variant
from weighbridge.clauses.pair_look import PAIRS, Look
from weighbridge.gates.dtype_preservation import listed
from weighbridge.limits import Doc, plain
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict

# For a falsifier alone: another dtype whose elements have the same size.
SAME_SIZE: Mapping[str, str] = {
    "F16": "BF16", "BF16": "F16", "I16": "U16", "U16": "I16", "F32": "I32", "I32": "F32", "U32": "I32", "U8": "I8",
    "F64": "I64", "I64": "F64", "U64": "I64", "F8_E4M3": "F8_E5M2", "F8_E5M2": "F8_E4M3",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Which tensors must be the same."""

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors that must be the same", min_items=1, tight="up")] = (
        "*",
    )


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Demand the same dtype, shape and bytes for every named tensor; a glob that names none is a typo, not a pass."""
    table = rows_of(evidence, "pairs")
    rows = [row for row in table if listed(str(row["name"]), limits.tensors)]
    idle = [glob for glob in limits.tensors if not any(listed(str(row["name"]), (glob,)) for row in rows)]
    codes = {str(row["name"]): _code(row) for row in rows}
    objected = [(row, code) for row in rows if (code := codes[str(row["name"])])]
    broken = [_offence(row, code) for row, code in objected if code != "not-compared"]
    if broken:
        return failed(broken, looked=tuple(codes), unit="tensors", figures=_size(rows))
    if objected:
        unread = [_offence(row, code) for row, code in objected]
        return blocked("not-compared", {"tensors": len(unread)}, offences=unread, of=len(rows))
    if not any(row["elements"] for row in rows):
        return blocked("nothing-compared", {"tensors": len(rows), "names": len(table)})
    if idle:
        return blocked("names-nothing", {"globs": idle, "names": len(table)})
    return passed(looked=tuple(codes), unit="tensors", figures=_size(rows))


def _size(rows: Sequence[Fields]) -> Fields:
    return {"bytes": sum(int(str(row["source_bytes"])) for row in rows)}


def _code(row: Fields) -> str:
    if not row["candidate_dtype"]:
        return "missing"
    if not row["source_dtype"]:
        return "extra"
    if row["source_dtype"] != row["candidate_dtype"]:
        return "dtype"
    if row["source_shape"] != row["candidate_shape"]:
        return "shape"
    if not row["compared"]:
        return "not-compared"
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
    return Offence(place=str(row["name"]), code=code, figures={key: plain(row[key]) for key in kept})


# --- Falsifiers -------------------------------------------------------------------------------------------------------


def _named(row: Fields, limits: Limits) -> bool:
    return any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.tensors)


def _one_byte(row: Fields, limits: Limits) -> Fields | None:
    return {**row, "differing_bytes": 1} if row["elements"] and _named(row, limits) else None


def _longer(row: Fields, _limits: Limits) -> Fields | None:
    shape = row["candidate_shape"]
    if not isinstance(shape, Sequence) or not shape:
        return None
    return {**row, "candidate_shape": [*shape[:-1], int(str(shape[-1])) + 1]}


def _deeper(row: Fields, _limits: Limits) -> Fields:
    shape = row["candidate_shape"]
    assert isinstance(shape, Sequence)
    return {**row, "candidate_shape": [1, *shape]}


def _all_named_by(glob_at: int) -> Falsifier[Limits]:
    """Take away all that one glob names; what the others name is still the same."""

    def change(row: Fields, limits: Limits) -> Fields | None:
        name = str(row["name"])
        mine = fnmatch.fnmatchcase(name, limits.tensors[glob_at])
        return row if not mine and row["elements"] and _named(row, limits) else None

    return blank_table("a glob that names nothing", change, why="no other tensor is named", code="names-nothing")


KIND = Kind(
    name="byte-identity",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"pairs": PAIRS},
    limits=Limits,
    measure=Look,
    codes={
        "bytes": Outcome.FAIL,
        "dtype": Outcome.FAIL,
        "shape": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "not-compared": Outcome.BLOCKED,
        "nothing-compared": Outcome.BLOCKED,
        "names-nothing": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        each_row("one byte differs", "bytes", "pairs", _one_byte, why="every tensor is empty"),
        unlooked("one byte differs elsewhere", "bytes", _one_byte, why="every named tensor was looked at"),
        variant("bytes not counted", "bytes", lambda row, _: {**row, "differing_bytes": None}, why="no tensors"),
        each_row(
            "the same bytes under another dtype",
            "dtype",
            "pairs",
            lambda row, _: {**row, "candidate_dtype": SAME_SIZE.get(str(row["source_dtype"]), "U8")},
            why="no tensors",
        ),
        each_row("a dimension more", "shape", "pairs", _deeper, why="no tensors"),
        variant("one longer", "shape", _longer, why="no tensor has a dimension"),
        each_row("dropped", "missing", "pairs", lambda row, _: {**row, "candidate_dtype": ""}, why="no tensors"),
        each_row("added", "extra", "pairs", lambda row, _: {**row, "source_dtype": ""}, why="no tensors"),
        each_row(
            "not compared",
            "not-compared",
            "pairs",
            lambda row, limits: {**row, "compared": False} if _named(row, limits) else None,
            why="no tensors",
            outcome=Outcome.BLOCKED,
        ),
        blank_table("every tensor empty", lambda row, _: {**row, "elements": 0}, why="there is no tensor"),
        _all_named_by(0),
        _all_named_by(-1),
    ),
)
