"""dtype-preservation: does every tensor keep its source dtype, and does its content agree with its label?

Where content does not follow from the source, the mechanism that explains every bit is named, the simplest first; it
is never named from all-zero tensors, and it is "different content" when none explains everything.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from weighbridge.gates.base import Evidence, Kind, Need, blocked, each_row, failed, passed, rows_of
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict

LOSSLESS: Mapping[str, tuple[str, ...]] = {
    "BF16": ("F32", "F64"),
    "F16": ("F32", "F64"),
    "F32": ("F64",),
    "F8_E4M3": ("F16", "BF16", "F32", "F64"),
    "F8_E5M2": ("F16", "BF16", "F32", "F64"),
    "I8": ("I16", "I32", "I64", "F16", "BF16", "F32", "F64"),
    "U8": ("I16", "U16", "I32", "U32", "I64", "U64", "F16", "F32", "F64"),
    "I16": ("I32", "I64", "F32", "F64"),
    "U16": ("I32", "U32", "I64", "U64", "F32", "F64"),
    "I32": ("I64", "F64"),
    "U32": ("I64", "U64", "F64"),
}

# Simplest first: the order in which a mechanism is offered as the explanation.
MECHANISMS: tuple[str, ...] = (
    "value-cast",
    "bf16-bits-as-f16",
    "f16-bits-as-bf16",
    "relabelled",
    "truncated",
    "byte-swapped",
    "through-f16",
    "through-bf16",
    "transposed",
    "other-tensor",
)
UNEXPLAINED = "different content"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """One change of dtype that is meant."""

    tensors: Annotated[str, Doc("glob over tensor names")] = "*"
    source: Annotated[str, Doc("dtype in the source", name="from")]
    candidate: Annotated[str, Doc("dtype in the candidate", name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may become of a dtype."""

    policy: Annotated[
        str,
        Doc(
            "same: the very dtype; lossless: the same or an exact widening", choices=("same", "lossless"), tight="down"
        ),
    ] = "same"
    allow: Annotated[tuple[Allowed, ...], Doc("further changes that are meant", tight="down")] = ()
    allow_missing: Annotated[tuple[str, ...], Doc("globs of source tensors that may be absent", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of tensors that may be new", tight="down")] = ()


def accepts(limits: Limits, row: Fields) -> bool:
    """Tell whether the policy accepts this pair of dtypes for this tensor."""
    source, candidate = str(row["source_dtype"]), str(row["candidate_dtype"])
    if source == candidate or (limits.policy == "lossless" and candidate in LOSSLESS.get(source, ())):
        return True
    return any(
        (source, candidate) == (allowed.source, allowed.candidate)
        and fnmatch.fnmatchcase(str(row["name"]), allowed.tensors)
        for allowed in limits.allow
    )


def mechanism(row: Fields) -> str:
    """Name the simplest mechanism that reproduces every element of the candidate, or "different content"."""
    if not row["nonzero"]:
        return UNEXPLAINED
    counts = _reproduced(row)
    return next((name for name in MECHANISMS if counts.get(name) == row["elements"]), UNEXPLAINED)


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every tensor's dtype against the policy and its content against its label."""
    rows = rows_of(evidence, "pairs")
    looked = [str(row["name"]) for row in rows]
    offences = [offence for row in rows if (offence := _row(row, limits)) is not None]
    broken = [offence for offence in offences if offence.code != "not-compared"]
    if broken:
        return failed(broken, looked=looked, unit="tensors", figures=_summary(rows))
    if offences:
        return blocked("not-compared", {"tensors": len(rows)}, offences=offences)
    if not any(_both(row) and row["elements"] for row in rows):
        return blocked("nothing-compared", {"tensors": len(rows)})
    return passed(looked=looked, unit="tensors", figures=_summary(rows))


def _row(row: Fields, limits: Limits) -> Offence | None:
    code = _code(row, limits)
    return Offence(place=str(row["name"]), code=code, figures=_figures(row)) if code else None


def _code(row: Fields, limits: Limits) -> str:
    name = str(row["name"])
    if not row["candidate_dtype"]:
        return "" if listed(name, limits.allow_missing) else "missing"
    if not row["source_dtype"]:
        return "" if listed(name, limits.allow_extra) else "extra"
    if row["source_shape"] != row["candidate_shape"]:
        return "shape"
    if not accepts(limits, row):
        return "label"
    follows = _reproduced(row).get(_expected(row))
    if follows is None:
        return "not-compared"
    return "" if follows == row["elements"] else "content"


def _expected(row: Fields) -> str:
    """Name the count that says how many elements the source's values give under the candidate's label."""
    return "identical" if row["source_dtype"] == row["candidate_dtype"] else "value-cast"


def _reproduced(row: Fields) -> Fields:
    counts = row["reproduced"]
    assert isinstance(counts, Mapping)
    return counts


def _both(row: Fields) -> bool:
    return bool(row["source_dtype"] and row["candidate_dtype"])


def listed(name: str, globs: tuple[str, ...]) -> bool:
    """Tell whether a tensor's name matches one of the globs, letter case included."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _figures(row: Fields) -> Fields:
    named = mechanism(row) if _both(row) else ""
    reproduced = _reproduced(row).get(named, 0)
    kept = ("source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "elements", "first_difference")
    return {key: row[key] for key in kept} | {"mechanism": named, "reproduced": reproduced}


def _summary(rows: tuple[Fields, ...]) -> Fields:
    moves = collections.Counter(f"{row['source_dtype']} -> {row['candidate_dtype']}" for row in rows if _both(row))
    return {"elements": sum(int(str(row["elements"])) for row in rows), "dtypes": dict(sorted(moves.items()))}


def _relabel(row: Fields, limits: Limits) -> Fields | None:
    if not _both(row):
        return None
    others = ({**row, "candidate_dtype": dtype} for dtype in ("F16", "BF16", "I16", "F32"))
    return next((other for other in others if not accepts(limits, other)), None)


def _change_content(row: Fields, _limits: Limits) -> Fields | None:
    if not _both(row) or not row["elements"]:
        return None
    counts = {**_reproduced(row), _expected(row): int(str(row["elements"])) - 1}
    return {**row, "reproduced": counts}


KIND = Kind(
    name="dtype-preservation",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"pairs": Need("tensor_pairs", of=("source", "candidate"))},
    limits=Limits,
    codes={
        "label": Outcome.FAIL,
        "content": Outcome.FAIL,
        "shape": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "not-compared": Outcome.BLOCKED,
        "nothing-compared": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=(
        each_row("the label changed", "label", "pairs", _relabel, why="the policy accepts every other dtype"),
        each_row("one element changed", "content", "pairs", _change_content, why="every tensor is empty"),
        each_row(
            "a dimension more",
            "shape",
            "pairs",
            lambda row, _: {**row, "candidate_shape": [1, row["candidate_shape"]]} if _both(row) else None,
            why="no tensor is in both",
        ),
        each_row(
            "dropped from the candidate",
            "missing",
            "pairs",
            lambda row, limits: (
                None if listed(str(row["name"]), limits.allow_missing) else {**row, "candidate_dtype": ""}
            ),
            why="the contract lets every tensor be missing",
        ),
        each_row(
            "absent from the source",
            "extra",
            "pairs",
            lambda row, limits: (
                None
                if listed(str(row["name"]), limits.allow_extra) or not row["candidate_dtype"]
                else {**row, "source_dtype": ""}
            ),
            why="the contract lets every tensor be extra",
        ),
        each_row(
            "not comparable",
            "not-compared",
            "pairs",
            lambda row, _: {**row, "reproduced": {}} if _both(row) and row["elements"] else None,
            why="no tensor is in both",
            outcome=Outcome.BLOCKED,
        ),
    ),
)
