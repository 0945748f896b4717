"""Ways to damage a table of tensor values, each breaking one clause of value-preservation. Never judges.

By rules of their own, so that a weakened rule of the judge cannot weaken them too.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Sequence
from typing import Any

from weighbridge.clauses.kind import Falsifier, each_row
from weighbridge.clauses.pair_damage import blank_table, both, deeper, longer, unlooked, variant
from weighbridge.clauses.value_classes import (
    BLOCK,
    BOUND,
    EXPONENTIAL,
    EXPONENTIAL_ULPS,
    GENERATED_ERROR,
    HALVED_WITH_TERNARY,
    LOST_SHARE,
    MIXTURES,
    REQUANTISED,
    STANDS_IN,
    TERNARY,
    TYPICAL_ERROR,
    UNWEIGHTED,
)
from weighbridge.gates.dtype_preservation import NARROWER, NO_DTYPE
from weighbridge.model import Fields, Outcome

NOTHING_TOLD: Fields = {"relative_rmse": None, "max_error": None, "max_ulps": None, "lost_share": None}
EXACT = ("identical", "value-cast", "requantised")


def _follows(row: Fields, **changed: Any) -> Fields:
    """Make the content follow from the source in every way, so that only another clause can object."""
    return {**row, **changed, "reproduced": dict.fromkeys(EXACT, row["elements"])}


def _unlike(row: Fields, **changed: Any) -> Fields:
    """Make the content follow in no way, with no error told, except for what `changed` says."""
    none: Fields = {"reproduced": dict.fromkeys(EXACT, 0), "same_values": False, "compared": True}
    return {**row, **NOTHING_TOLD, **none, **changed}


# --- Labels -----------------------------------------------------------------------------------------------------------


def _relabel(row: Fields, _limits: Any) -> Fields | None:
    return _follows(row, candidate_dtype=NO_DTYPE) if both(row) else None


def _meant(row: Fields, limits: Any, label: str) -> bool:
    """Tell whether a policy means rounding this tensor to this label."""
    verb, _, target = limits.policy.partition(":")
    if any((rule.source, rule.candidate) == (row["source_dtype"], label) for rule in limits.allow):
        return True
    if verb in ("requant", "quantised") and label == "F16":
        shape = row["candidate_shape"]
        assert isinstance(shape, Sequence)
        halved = target in TERNARY and row["name"] in HALVED_WITH_TERNARY
        return halved or bool(shape and int(str(shape[-1])) % BLOCK[MIXTURES[target]])
    return bool(verb == "rounded" and target == label)


def _narrow(label: str) -> Falsifier[Any]:
    def change(row: Fields, limits: Any) -> Fields | None:
        narrower = label in NARROWER.get(str(row["source_dtype"]), ())
        return (
            _follows(row, candidate_dtype=label) if both(row) and narrower and not _meant(row, limits, label) else None
        )

    return variant(f"narrowed to {label}", "label", change, why=f"no tensor is wider, or {label} is meant")


def _widen(row: Fields, limits: Any) -> Fields | None:
    meant = any((rule.source, rule.candidate) == (row["source_dtype"], "F64") for rule in limits.allow)
    if limits.policy != "same" or not both(row) or meant or row["source_dtype"] == "F64":
        return None
    return _follows(row, candidate_dtype="F64")


def _allowed_elsewhere(row: Fields, limits: Any) -> Fields | None:
    for rule in limits.allow:
        meant = any(
            (other.source, other.candidate) == (rule.source, rule.candidate)
            and fnmatch.fnmatchcase(str(row["name"]), other.tensors)
            for other in limits.allow
        )
        if both(row) and not meant and not _free(rule.source, rule.candidate, row, limits):
            return _follows(row, source_dtype=rule.source, candidate_dtype=rule.candidate)
    return None


def _free(source: str, candidate: str, row: Fields, limits: Any) -> bool:
    """Tell whether a policy accepts a pair of dtypes without any rule of its own."""
    exact = limits.policy != "same" and candidate not in NARROWER.get(source, ())
    bare = _Bare(limits.policy)
    return source == candidate or exact or _meant({**row, "source_dtype": source}, bare, candidate)


class _Bare:
    """A policy without rules of its own."""

    allow = ()

    def __init__(self, policy: str) -> None:
        self.policy = policy


def _in_blocks(dtype: str) -> Falsifier[Any]:
    def change(row: Fields, limits: Any) -> Fields | None:
        verb, _, target = limits.policy.partition(":")
        if not both(row) or dtype in (row["source_dtype"], target if verb == "requant" else None):
            return None
        if verb == "quantised" and not _worse(dtype, MIXTURES[target]):
            return None
        return _follows(row, candidate_dtype=dtype, relative_rmse=0.0, lost_share=0.0)

    return variant(f"in blocks of {dtype}", "label", change, why=f"{dtype} is in the mixture that is meant")


def _worse(dtype: str, least: str) -> bool:
    return TYPICAL_ERROR[dtype] > TYPICAL_ERROR[least] and STANDS_IN.get(dtype) != least


# --- Content ----------------------------------------------------------------------------------------------------------


def _bounded(row: Fields, limits: Any) -> bool:
    """Tell whether errors of a block type are all that a policy asks for here."""
    verb, dtype = limits.policy.partition(":")[0], row["candidate_dtype"]
    return bool(verb == "quantised" and dtype in BOUND and dtype not in UNWEIGHTED and row["source_dtype"] != dtype)


def _content(change: Callable[[Fields], Fields]) -> Callable[[Fields, Any], Fields | None]:
    def damage(row: Fields, limits: Any) -> Fields | None:
        return change(row) if both(row) and row["elements"] and not _bounded(row, limits) else None

    return damage


def _one_fewer(row: Fields) -> Fields:
    fewer, computed = int(str(row["elements"])) - 1, row["transform"] == EXPONENTIAL
    ulps = EXPONENTIAL_ULPS + 1 if computed else EXPONENTIAL_ULPS
    return _unlike(row, reproduced=dict.fromkeys(EXACT, fewer), relative_rmse=0.0, lost_share=0.0, max_ulps=ulps)


def _no_ulps(row: Fields) -> Fields:
    return {**_one_fewer(row), "max_ulps": None}


def _one_more(row: Fields) -> Fields:
    more = int(str(row["elements"])) + 1
    return _unlike(row, reproduced=dict.fromkeys(EXACT, more), relative_rmse=0.0, lost_share=0.0)


def _reordered(row: Fields) -> Fields:
    return _unlike(row, same_values=True)


def _off(**changed: Callable[[float], float | None] | None) -> Callable[[Fields, Any], Fields | None]:
    def damage(row: Fields, limits: Any) -> Fields | None:
        if not both(row) or not row["elements"] or not _bounded(row, limits):
            return None
        bound = BOUND[str(row["candidate_dtype"])]
        told: dict[str, float | None] = {"relative_rmse": bound, "lost_share": LOST_SHARE}
        return _unlike(row, **{key: None if new is None else new(told[key] or 0.0) for key, new in changed.items()} | {
            key: value for key, value in told.items() if key not in changed
        })  # fmt: skip

    return damage


def _beyond(limit: float) -> float:
    return math.nextafter(limit, math.inf)


# --- Shape, names, nothing --------------------------------------------------------------------------------------------


def _drop(row: Fields, limits: Any) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_missing)
    return None if meant else {**row, "candidate_dtype": "", "identical_to": None, "drop_rule": "", "nonzero": True}


def _drop_zeros(row: Fields, limits: Any) -> Fields | None:
    dropped = _drop(row, limits)
    return None if dropped is None or str(row["name"]).endswith("bias") else {**dropped, "nonzero": False}


def _add(row: Fields, limits: Any) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_extra)
    if meant or not row["candidate_dtype"]:
        return None
    return {**row, "source_dtype": "", "identical_to": None, "generated_error": None}


def _miscomputed(row: Fields, limits: Any) -> Fields | None:
    added = _add(row, limits)
    return None if added is None else {**added, "generated_error": math.nextafter(GENERATED_ERROR, 1)}


def _unread(row: Fields, _limits: Any) -> Fields | None:
    return {**row, **NOTHING_TOLD, "compared": False, "reproduced": {}, "same_values": None} if both(row) else None


def _emptied(row: Fields, _limits: Any) -> Fields:
    return _follows({**row, "elements": 0})


def _left_out(row: Fields, limits: Any) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_missing)
    return {**row, "candidate_dtype": ""} if meant and row["source_dtype"] else None


def _new_only(row: Fields, limits: Any) -> Fields | None:
    meant = any(fnmatch.fnmatchcase(str(row["name"]), glob) for glob in limits.allow_extra)
    return {**row, "source_dtype": ""} if meant and row["candidate_dtype"] else None


FALSIFIERS: tuple[Falsifier[Any], ...] = (
    each_row("another label", "label", "pairs", _relabel, why="no tensor is in both"),
    unlooked("another label elsewhere", "label", _relabel, why="every tensor in both was looked at"),
    *(_narrow(label) for label in ("F32", "BF16", "F16", "F8_E4M3", "I8")),
    variant("widened", "label", _widen, why="the policy accepts a widening"),
    variant("allowed for other tensors", "label", _allowed_elsewhere, why="nothing is allowed elsewhere"),
    *(_in_blocks(dtype) for dtype in (*REQUANTISED, "Q5_K", "Q3_K", "IQ1_S")),
    each_row("one element changed", "content", "pairs", _content(_one_fewer), why="only errors are asked for"),
    variant("more elements than there are", "content", _content(_one_more), why="only errors are asked for"),
    variant("no distance told", "content", _content(_no_ulps), why="only errors are asked for"),
    variant("in another order", "content", _content(_reordered), why="only errors are asked for"),
    each_row("the error beyond its bound", "bound", "pairs", _off(relative_rmse=_beyond), why="no block is bounded"),
    variant("a block lost", "bound", _off(lost_share=_beyond), why="no block is bounded"),
    variant("an error that is not finite", "bound", _off(relative_rmse=None), why="no block is bounded"),
    variant("a share that is not finite", "bound", _off(lost_share=None), why="no block is bounded"),
    each_row("a dimension more", "shape", "pairs", deeper, why="no tensor is in both"),
    variant("one longer", "shape", longer, why="no tensor in both has a dimension"),
    each_row("dropped from the candidate", "missing", "pairs", _drop, why="every tensor may be missing"),
    variant("dropped as zeros", "missing", _drop_zeros, why="every tensor may be missing, or is a bias"),
    each_row("absent from the source", "extra", "pairs", _add, why="every tensor may be extra"),
    variant("computed otherwise", "extra", _miscomputed, why="every tensor may be extra"),
    each_row("not comparable", "not-compared", "pairs", _unread, why="no tensor is in both", outcome=Outcome.BLOCKED),
    blank_table("every tensor empty", _emptied, why="there is no tensor"),
    blank_table("only what may be missing", _left_out, why="nothing may be missing"),
    blank_table("only what may be extra", _new_only, why="nothing may be extra"),
)
