"""value-preservation: is every tensor what the policy says that it was meant to become, exactly where that can be told?

Every tensor falls into one class of an ordered lattice, from counts that were measured; the policy says which class
each tensor must reach under its dtypes. A tensor of a format's own fallback (rows that are not whole blocks, heads
that repeat the embedding) is accepted as the format declares it, and only with proof.
"""

from __future__ import annotations

import collections
import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from weighbridge.clauses.kind import Evidence, Kind, blocked, failed, passed, rows_of
from weighbridge.clauses.mechanisms import (
    QUANTISED,
    UNEXPLAINED,
    explained,
    explained_together,
    mechanism,
    reproduced,
)
from weighbridge.clauses.pair_look import PAIRS, Look
from weighbridge.clauses.value_classes import (
    BLOCK,
    BOUND,
    EXPONENTIAL,
    EXPONENTIAL_ULPS,
    GENERATED_ERROR,
    HALVED_WITH_TERNARY,
    LOST_SHARE,
    MIXTURES,
    POLICY,
    RANK,
    ROUNDED_FIRST,
    STANDS_IN,
    TERNARY,
    TYPICAL_ERROR,
    UNWEIGHTED,
    Class,
    elements,
    last_dimension,
)
from weighbridge.clauses.value_damage import FALSIFIERS
from weighbridge.gates.dtype_preservation import LOSSLESS, Allowed, listed
from weighbridge.limits import Doc, plain
from weighbridge.model import Fields, Json, Offence, Outcome, SubjectKind, Verdict

EXPLAINED = ("label", "content", "bound", "shape")  # codes of tensors that are on both sides
FIGURES = (
    "transform", "source_dtype", "candidate_dtype", "source_shape", "candidate_shape", "elements", "first_difference",
    "relative_rmse", "lost_share", "max_error", "max_ulps",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What the candidate was meant to be."""

    policy: Annotated[
        str,
        Doc(
            "what was meant: same, lossless, rounded:F16|BF16, requant:TYPE or quantised:FTYPE",
            pattern=POLICY,
            form="same, lossless, rounded:F16, rounded:BF16, requant:TYPE or quantised:FTYPE",
        ),
    ]
    allow: Annotated[tuple[Allowed, ...], Doc("roundings that are meant besides", tight="down")] = ()
    allow_missing: Annotated[tuple[str, ...], Doc("globs of source tensors that may be absent", tight="down")] = ()
    allow_extra: Annotated[tuple[str, ...], Doc("globs of tensors that may be new", tight="down")] = ()


def class_of(row: Any) -> Class | None:
    """Tell the class of one tensor from what was measured; None where nothing could be compared."""
    if not row["candidate_dtype"]:
        return Class.DROPPED if _proven(row) else Class.MISSING
    if not row["source_dtype"]:
        return Class.GENERATED if _computed(row) else Class.EXTRA
    if row["source_shape"] != row["candidate_shape"]:
        return Class.DIFFERENT
    counts, whole = reproduced(row), row["elements"]
    if counts.get("identical") == whole:
        return Class.BYTES_EQUAL
    if counts.get("value-cast") == whole:
        return Class.VALUE_EQUAL if _widened(row) else Class.ROUNDED_EXACT
    if counts.get("requantised") == whole:
        return Class.REQUANT_EXACT
    return _inexact(row)


def _inexact(row: Fields) -> Class | None:
    if _as_computed(row):
        return Class.VALUE_EQUAL
    if _within(row) or _rounded_first(row):
        return Class.WITHIN_BOUND
    if row["same_values"]:
        return Class.LAYOUT_ONLY
    return Class.DIFFERENT if row["compared"] else None


def _as_computed(row: Fields) -> bool:
    """Tell whether an exponential is as near as two libraries' are to each other."""
    ulps = row["max_ulps"]
    return row["transform"] == EXPONENTIAL and ulps is not None and int(str(ulps)) <= EXPONENTIAL_ULPS


def _proven(row: Fields) -> bool:
    """Tell whether a dropped tensor is proven to say nothing: it repeats the embedding, a rule drops it, or zeros."""
    return (
        row["identical_to"] is not None
        or bool(row["drop_rule"])
        or (not row["nonzero"] and str(row["name"]).endswith("bias"))
    )


def _computed(row: Fields) -> bool:
    """Tell whether a tensor without a source repeats the embedding, or holds what its configuration gives."""
    error = row["generated_error"]
    return row["identical_to"] is not None or (error is not None and float(str(error)) <= GENERATED_ERROR)


def _widened(row: Fields) -> bool:
    source, candidate = str(row["source_dtype"]), str(row["candidate_dtype"])
    return source == candidate or candidate in LOSSLESS.get(source, ())


def _within(row: Fields) -> bool:
    """Tell whether a block type's errors are what that type makes, in the whole and in no block beyond repair."""
    bound, error, lost = BOUND.get(str(row["candidate_dtype"])), row["relative_rmse"], row["lost_share"]
    if bound is None or error is None or lost is None:
        return False
    return float(str(error)) <= bound and float(str(lost)) <= LOST_SHARE


def needed(limits: Limits, row: Fields) -> Class | None:
    """Tell the class that a tensor of these dtypes must reach under the policy, or None where it accepts none."""
    source, candidate = str(row["source_dtype"]), str(row["candidate_dtype"])
    verb, _, target = limits.policy.partition(":")
    if source == candidate or (verb != "same" and _widened(row)):
        return Class.VALUE_EQUAL
    if _rounding_meant(limits, row, verb, target):
        return Class.ROUNDED_EXACT
    if verb == "requant" and candidate == target:
        return Class.REQUANT_EXACT
    if verb == "quantised" and _in_mixture(candidate, target):
        return Class.REQUANT_EXACT if candidate in UNWEIGHTED and not _rounded_first(row) else Class.WITHIN_BOUND
    return None


def _rounded_first(row: Fields) -> bool:
    """Tell whether blocks are exactly those of the source's values rounded to sixteen bits before."""
    return any(reproduced(row).get(name) == row["elements"] for name in ROUNDED_FIRST)


def _rounding_meant(limits: Limits, row: Fields, verb: str, target: str) -> bool:
    source, candidate, name = str(row["source_dtype"]), str(row["candidate_dtype"]), str(row["name"])
    if verb == "rounded" and candidate == target:
        return True
    if verb in ("requant", "quantised") and candidate == "F16":
        ternary = target in TERNARY and name in HALVED_WITH_TERNARY
        return ternary or last_dimension(row) % BLOCK[MIXTURES[target]] != 0
    return any(
        (source, candidate) == (allowed.source, allowed.candidate) and fnmatch.fnmatchcase(name, allowed.tensors)
        for allowed in limits.allow
    )


def _in_mixture(candidate: str, target: str) -> bool:
    """Tell whether a type is at least as precise as the least precise one of a mixture, or stands in for it."""
    least = MIXTURES[target]
    error = TYPICAL_ERROR.get(candidate)
    if error is None:
        return False
    return error <= TYPICAL_ERROR[least] or STANDS_IN.get(candidate) == least


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Hold every tensor's class against the one that the policy needs."""
    rows = rows_of(evidence, "pairs")
    classes = [class_of(row) for row in rows]
    codes = {str(row["name"]): _code(row, found, limits) for row, found in zip(rows, classes, strict=True)}
    objected = [(row, code) for row in rows if (code := codes[str(row["name"])])]
    broken = [(row, code) for row, code in objected if code != "not-compared"]
    if broken:
        return failed(_offences(broken), looked=tuple(codes), unit="tensors", figures=_summary(rows, classes))
    if objected:
        return blocked("not-compared", _not_compared(objected), offences=_offences(objected), of=len(rows))
    if not any(_both(row) and row["elements"] for row in rows):
        return blocked("nothing-compared", {"tensors": len(rows)})
    return passed(looked=tuple(codes), unit="tensors", figures=_summary(rows, classes))


def _code(row: Fields, found: Class | None, limits: Limits) -> str:
    name = str(row["name"])
    if found in (Class.MISSING, Class.DROPPED):
        return "" if found is Class.DROPPED or listed(name, limits.allow_missing) else "missing"
    if found in (Class.EXTRA, Class.GENERATED):
        return "" if found is Class.GENERATED or listed(name, limits.allow_extra) else "extra"
    if found is Class.DIFFERENT and row["source_shape"] != row["candidate_shape"]:
        return "shape"
    wanted = needed(limits, row)
    if wanted is None:
        return "label"
    if found is None:
        return "not-compared"
    if RANK[found] <= RANK[wanted]:
        return ""
    return "bound" if wanted is Class.WITHIN_BOUND else "content"


def _both(row: Fields) -> bool:
    return bool(row["source_dtype"] and row["candidate_dtype"])


def _not_compared(codes: Sequence[tuple[Fields, str]]) -> Fields:
    changes = sorted({f"{row['source_dtype']} -> {row['candidate_dtype']}" for row, _ in codes})
    return {"tensors": len(codes), "changes": changes}


def _offences(codes: Sequence[tuple[Fields, str]]) -> list[Offence]:
    named = explained_together([row for row, code in codes if code in EXPLAINED])
    return [Offence(place=str(row["name"]), code=code, figures=_figures(row, code, named)) for row, code in codes]


def _figures(row: Fields, code: str, named: Mapping[tuple[object, object], str]) -> Fields:
    name, told = _explanation(row, code, named)
    counts, found = reproduced(row), class_of(row)
    exact = max((int(str(counts.get(name, 0))) for name in ("identical", "value-cast", "requantised")), default=0)
    more: dict[str, Json] = {"other": row["other"]} if name == "other-tensor" else {}
    return {key: plain(row[key]) for key in FIGURES} | {
        "class": None if found is None else str(found), "bound": BOUND.get(str(row["candidate_dtype"])),
        "mechanism": name, "explained": told, "differing": elements(row) - exact, **more,
    }  # fmt: skip


def _explanation(row: Fields, code: str, named: Mapping[tuple[object, object], str]) -> tuple[str, Json]:
    """Name what explains one offender, and count the elements that it explains."""
    together = named[row["source_dtype"], row["candidate_dtype"]] if code in EXPLAINED else ""
    # What explains all offenders of one change says most; where nothing does, each has its own.
    name = mechanism([row]) if together == UNEXPLAINED else together
    if code == "label" and name == UNEXPLAINED and class_of(row) is Class.WITHIN_BOUND:
        return QUANTISED, elements(row)
    return name, explained(row, name) or 0


def _summary(rows: Sequence[Fields], found: Sequence[Class | None]) -> Fields:
    classes = collections.Counter(found)
    return {
        "elements": sum(elements(row) for row in rows),
        "classes": [f"{classes[name]} {name}" for name in Class if classes[name]],
    }


KIND = Kind(
    name="value-preservation",
    version=1,
    roles={"source": SubjectKind.CHECKPOINT, "candidate": SubjectKind.CHECKPOINT},
    needs={"pairs": PAIRS},
    limits=Limits,
    measure=Look,
    codes={
        "label": Outcome.FAIL,
        "content": Outcome.FAIL,
        "bound": Outcome.FAIL,
        "shape": Outcome.FAIL,
        "missing": Outcome.FAIL,
        "extra": Outcome.FAIL,
        "not-compared": Outcome.BLOCKED,
        "nothing-compared": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=FALSIFIERS,
)
