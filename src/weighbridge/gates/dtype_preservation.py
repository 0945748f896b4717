"""dtype-preservation: does every tensor keep its source dtype, and does its content agree with its label?

Where content does not follow from the source, the mechanism that explains every bit is named, the simplest first: the
one that explains all offenders of the same change of dtype. It is never named from all-zero tensors alone, and it is
"different content" when none explains everything.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated

from weighbridge.clauses.kind import Evidence, Falsifier, Kind, blocked, each_row, failed, passed, rows_of
from weighbridge.clauses.mechanisms import explained_together, reproduced
from weighbridge.clauses.pair_damage import blank_table, deeper, longer, unlooked, variant
from weighbridge.clauses.pair_look import PAIRS, Look
from weighbridge.limits import Doc, plain
from weighbridge.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict

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

EXPLAINED = ("label", "content", "shape")  # codes of tensors that are on both sides

# For the falsifiers alone: changes that lose values, by the source's dtype, and a label that no contract can mean.
NARROWER: Mapping[str, tuple[str, ...]] = {
    "F64": ("F32", "BF16", "F16", "F8_E4M3", "I8"),
    "F32": ("BF16", "F16", "F8_E4M3", "I8"),
    "BF16": ("F16", "F8_E4M3", "I8"),
    "F16": ("BF16", "F8_E4M3", "I8"),
    "I64": ("F32", "I8"),
    "I32": ("F32", "I8"),
    "I16": ("I8",),
}
NO_DTYPE = "another dtype"


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


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every tensor's dtype against the policy and its content against its label."""
    rows = rows_of(evidence, "pairs")
    codes = {str(row["name"]): _code(row, limits) for row in rows}
    objected = [(row, code) for row in rows if (code := codes[str(row["name"])])]
    broken = _offences([(row, code) for row, code in objected if code != "not-compared"])
    if broken:
        return failed(broken, looked=tuple(codes), unit="tensors", figures=_summary(rows))
    if objected:
        return blocked("not-compared", _not_compared(objected), offences=_offences(objected), of=len(rows))
    if not any(_both(row) and row["elements"] for row in rows):
        return blocked("nothing-compared", {"tensors": len(rows)})
    return passed(looked=tuple(codes), unit="tensors", figures=_summary(rows))


def _offences(codes: Sequence[tuple[Fields, str]]) -> list[Offence]:
    """Describe the offenders, those of the same change of dtype explained together."""
    named = explained_together([row for row, code in codes if code in EXPLAINED])
    return [Offence(place=str(row["name"]), code=code, figures=_figures(row, code, named)) for row, code in codes]


def _not_compared(codes: Sequence[tuple[Fields, str]]) -> Fields:
    changes = sorted({f"{row['source_dtype']} -> {row['candidate_dtype']}" for row, _ in codes})
    return {"tensors": len(codes), "changes": changes}


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
    follows = reproduced(row).get(_expected(row))
    if follows is None:
        return "not-compared"
    return "" if follows == row["elements"] else "content"


def _expected(row: Fields) -> str:
    """Name the count that says how many elements the source's values give under the candidate's label."""
    kept = row["source_dtype"] == row["candidate_dtype"] and "identical" in reproduced(row)  # not where it is computed
    return "identical" if kept else "value-cast"


def _both(row: Fields) -> bool:
    return bool(row["source_dtype"] and row["candidate_dtype"])


def listed(name: str, globs: tuple[str, ...]) -> bool:
    """Tell whether a tensor's name matches one of the globs, letter case included."""
    return any(fnmatch.fnmatchcase(name, glob) for glob in globs)


def _figures(row: Fields, code: str, named: Mapping[tuple[object, object], str]) -> Fields:
    name = named[row["source_dtype"], row["candidate_dtype"]] if code in EXPLAINED else ""
    kept = ("source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "elements", "first_difference")
    more: dict[str, Json] = {"other": row["other"]} if name == "other-tensor" else {}
    if code == "content":
        more["differing"] = int(str(row["elements"])) - int(str(reproduced(row)[_expected(row)]))
    return (
        {key: plain(row[key]) for key in kept} | {"mechanism": name, "explained": reproduced(row).get(name, 0)} | more
    )


def _summary(rows: tuple[Fields, ...]) -> Fields:
    moves = collections.Counter(f"{row['source_dtype']} -> {row['candidate_dtype']}" for row in rows if _both(row))
    return {"elements": sum(int(str(row["elements"])) for row in rows), "dtypes": dict(sorted(moves.items()))}


# --- Falsifiers: by rules of their own, so that a weakened rule of the judge cannot weaken them too -------------------


def _follows(row: Fields) -> Fields:
    """Make the content follow from the source under any label, so that only another clause can object."""
    return {**row, "reproduced": {"identical": row["elements"], "value-cast": row["elements"]}}


def _relabel(row: Fields, _limits: Limits) -> Fields | None:
    return _follows({**row, "candidate_dtype": NO_DTYPE}) if _both(row) else None


def _narrow(label: str) -> Falsifier[Limits]:
    def change(row: Fields, limits: Limits) -> Fields | None:
        meant = any((allowed.source, allowed.candidate) == (row["source_dtype"], label) for allowed in limits.allow)
        if not _both(row) or meant or label not in NARROWER.get(str(row["source_dtype"]), ()):
            return None
        return _follows({**row, "candidate_dtype": label})

    return variant(f"narrowed to {label}", "label", change, why=f"no tensor is wider, or {label} is meant")


def _widen(row: Fields, limits: Limits) -> Fields | None:
    meant = any((allowed.source, allowed.candidate) == (row["source_dtype"], "F64") for allowed in limits.allow)
    if limits.policy != "same" or not _both(row) or meant or row["source_dtype"] == "F64":
        return None
    return _follows({**row, "candidate_dtype": "F64"})


def _allowed_elsewhere(row: Fields, limits: Limits) -> Fields | None:
    for allowed in limits.allow:
        meant = any(
            (other.source, other.candidate) == (allowed.source, allowed.candidate)
            and fnmatch.fnmatchcase(str(row["name"]), other.tensors)
            for other in limits.allow
        )
        exact = limits.policy == "lossless" and allowed.candidate not in NARROWER.get(allowed.source, ())
        if _both(row) and not meant and not exact and allowed.source != allowed.candidate:
            return _follows({**row, "source_dtype": allowed.source, "candidate_dtype": allowed.candidate})
    return None


def _one_fewer(row: Fields, _limits: Limits) -> Fields | None:
    if not _both(row) or not row["elements"]:
        return None
    broken = "identical" if row["source_dtype"] == row["candidate_dtype"] else "value-cast"
    counts = {"identical": row["elements"], "value-cast": row["elements"], broken: int(str(row["elements"])) - 1}
    return {**row, "reproduced": counts}


def _one_more(row: Fields, _limits: Limits) -> Fields | None:
    if not _both(row):
        return None
    more = int(str(row["elements"])) + 1
    return {**row, "reproduced": {"identical": more, "value-cast": more}}


def _drop(row: Fields, limits: Limits) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_missing)
    return None if meant else {**row, "candidate_dtype": ""}


def _add(row: Fields, limits: Limits) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_extra)
    return None if meant or not row["candidate_dtype"] else {**row, "source_dtype": ""}


def _emptied(row: Fields, _limits: Limits) -> Fields:
    return {**row, "elements": 0, "reproduced": {"identical": 0, "value-cast": 0}}


def _left_out(row: Fields, limits: Limits) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_missing)
    return {**row, "candidate_dtype": ""} if meant and row["source_dtype"] else None


KIND = Kind(
    name="dtype-preservation",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"pairs": PAIRS},
    limits=Limits,
    measure=Look,
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
        each_row("another label", "label", "pairs", _relabel, why="no tensor is in both"),
        unlooked("another label elsewhere", "label", _relabel, why="every tensor in both was looked at"),
        *(_narrow(label) for label in ("F32", "BF16", "F16", "F8_E4M3", "I8")),
        variant("widened", "label", _widen, why="the policy accepts a widening"),
        variant("allowed for other tensors", "label", _allowed_elsewhere, why="nothing is allowed elsewhere"),
        each_row("one element changed", "content", "pairs", _one_fewer, why="no tensor in both has elements"),
        variant("more elements than there are", "content", _one_more, why="no tensor is in both"),
        each_row("a dimension more", "shape", "pairs", deeper, why="no tensor is in both"),
        variant("one longer", "shape", longer, why="no tensor in both has a dimension"),
        each_row("dropped from the candidate", "missing", "pairs", _drop, why="every tensor may be missing"),
        each_row("absent from the source", "extra", "pairs", _add, why="every tensor may be extra"),
        each_row(
            "not comparable",
            "not-compared",
            "pairs",
            lambda row, _: {**row, "reproduced": {}} if _both(row) else None,
            why="no tensor is in both",
            outcome=Outcome.BLOCKED,
        ),
        blank_table("every tensor empty", _emptied, why="there is no tensor"),
        blank_table("only what may be missing", _left_out, why="nothing may be missing"),
    ),
)
