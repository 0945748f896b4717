"""label-plausibility: from one file alone, can each tensor's bits be what its label says that they are?

Weights have zero-centred magnitudes of a few octaves; under a wrong reading of their bits they have not. What is not
like weights (norms, constants, rotary tables, tiny tensors) cannot be decided so, and is told as undecided.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from weighbridge.clauses.implausible_bits import FALSIFIERS
from weighbridge.clauses.kind import Evidence, Kind, Need, blocked, failed, passed, rows_of
from weighbridge.gates.dtype_preservation import listed
from weighbridge.limits import Doc
from weighbridge.model import Fields, Offence, Outcome, SubjectKind, Verdict

READING: Mapping[str, str] = {"F16": "F16", "BF16": "BF16", "F32": "BF16"}  # of F32 the upper half is read
OTHER: Mapping[str, str] = {"F16": "BF16", "BF16": "F16"}
OK, UNDECIDED = "ok", "undecided"
WRONG = ("mislabelled", "byte-swapped", "pairs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a reading of the bits counts as plausible, and what share of the file may be otherwise.

    The numbers are those whose error rates `benchmarks/label_plausibility.py` measures.
    """

    tensors: Annotated[tuple[str, ...], Doc("globs of the tensors to look at", min_items=1, tight="up")] = ("*",)
    wrong_at_most_share: Annotated[
        float, Doc("of the decided elements, how many may be mislabelled, swapped or pairs", ge=0, lt=1, tight="down")
    ] = 0.0
    implausible_at_most_share: Annotated[
        float, Doc("of the decided elements, how many may fit no reading", ge=0, lt=1, tight="down")
    ] = 0.5
    trailing_zero_bits_at_most: Annotated[
        Mapping[str, int],
        Doc("by dtype, how many last bits of the mantissa may be unused: 12 of F32 refuses F16 and BF16 values in F32",
            ge=0, le=51, keys="^(F64|F32|F16|BF16)$", tight="down"),
    ] = field(default_factory=dict)  # fmt: skip
    min_nonzero: Annotated[int, Doc("sampled elements that a decision takes", ge=64, le=65536)] = 256
    min_symbols: Annotated[int, Doc("different magnitudes that a decision takes", ge=2, le=128)] = 6
    one_sign_at_most_share: Annotated[float, Doc("of either sign; beyond it nothing is decided", gt=0.5, lt=1)] = 0.9
    fits_below_bits: Annotated[float, Doc("excess of a reading that fits", unit="bits", gt=0, le=8)] = 0.5
    fits_not_above_bits: Annotated[float, Doc("excess of a reading that does not", unit="bits", gt=0, le=8)] = 1.0
    apart_above_bits: Annotated[
        float, Doc("that a reading which fits is better than the other", unit="bits", gt=0, le=8)
    ] = 0.5
    implausible_above_bits: Annotated[float, Doc("excess of both readings", unit="bits", gt=0, le=16)] = 1.5
    halves_alike_below_bits: Annotated[
        float, Doc("divergence of upper and lower halves of words that are pairs", unit="bits", gt=0, lt=1)
    ] = 0.3
    random_from_bits: Annotated[float, Doc("entropy of halves that are noise, not pairs", unit="bits", gt=0, le=8)] = (
        7.7
    )


class Decision(NamedTuple):
    """What one tensor came to, and, where nothing can be decided, why."""

    verdict: str
    why: str = ""


def decide(row: Any, limits: Limits) -> Decision:
    """Hold one tensor's bits against its label."""
    dtype, stored, swapped = str(row["dtype"]), row["as_stored"], row["byte_swapped"]
    if not stored:
        return Decision(UNDECIDED, _unread(dtype))
    fits, turned = _excess(stored, READING[dtype]), _excess(swapped, READING[dtype])
    if not _doubt(row, swapped, limits) and fits > limits.fits_not_above_bits and turned < limits.fits_below_bits:
        return Decision("byte-swapped")
    doubt = _doubt(row, stored, limits)
    if doubt:
        return Decision(UNDECIDED, doubt)
    alike = _number(row["half_divergence"]) < limits.halves_alike_below_bits
    if alike and _number(row["half_entropy"]) < limits.random_from_bits:
        return Decision("pairs")
    rival = _excess(stored, OTHER[dtype]) if dtype in OTHER else turned
    return _between(fits, rival, dtype, limits)


def _unread(dtype: str) -> str:
    return "all zeros" if dtype in READING else "not a dtype of this test"


def _between(fits: float, rival: float, dtype: str, limits: Limits) -> Decision:
    """Decide between the label's reading and the rival one."""
    if dtype in OTHER and fits > limits.fits_not_above_bits and rival < limits.fits_below_bits:
        return Decision("mislabelled")
    if fits < limits.fits_below_bits and rival - fits > limits.apart_above_bits:
        return Decision(OK)
    if fits > limits.implausible_above_bits and rival > limits.implausible_above_bits:
        return Decision("implausible")
    return Decision(UNDECIDED, "like weights under neither reading, or under both")


def _doubt(row: Fields, reading: Any, limits: Limits) -> str:
    """Say why these words cannot be told from anything else, or nothing."""
    nonzero = _number(row["nonzero"])
    if nonzero < limits.min_nonzero:
        return "too few elements"
    if reading["symbols"] < limits.min_symbols:
        return "too few magnitudes"
    if max(reading["negative"], nonzero - reading["negative"]) > limits.one_sign_at_most_share * nonzero:
        return "of one sign, as norms are"
    return ""


def _excess(reading: Any, name: str) -> float:
    return float(reading["excess"][name])


def _number(value: Any) -> float:
    return float(value)


def judge(evidence: Evidence, limits: Limits) -> Verdict:
    """Refuse what is decided against its label, beyond the shares that are allowed; undecided tensors are only told."""
    table = rows_of(evidence, "bits")
    rows = [row for row in table if listed(str(row["name"]), limits.tensors)]
    decisions = {str(row["name"]): decide(row, limits) for row in rows}
    looked = [name for name, decision in decisions.items() if decision.verdict != UNDECIDED]
    votes = _votes(rows, decisions)
    offences = _offences(rows, decisions, votes, limits)
    figures = _figures(rows, decisions, votes)
    if offences:
        return failed(offences, looked=looked, of=len(rows), unit="tensors", figures=figures)
    idle = [glob for glob in limits.tensors if not any(listed(str(row["name"]), (glob,)) for row in rows)]
    if not looked:
        return blocked("nothing-decided", figures)
    if idle:
        return blocked("names-nothing", {"globs": idle, "names": len(table)})
    return passed(looked=looked, unit="tensors", figures=figures)


def _votes(rows: Sequence[Fields], decisions: Mapping[str, Decision]) -> Mapping[str, int]:
    """Count the elements of every verdict."""
    votes: collections.Counter[str] = collections.Counter()
    for row in rows:
        votes[decisions[str(row["name"])].verdict] += int(_number(row["elements"]))
    return votes


def _offences(
    rows: Sequence[Fields], decisions: Mapping[str, Decision], votes: Mapping[str, int], limits: Limits
) -> list[Offence]:
    """Describe the tensors that are not what their labels say; the verdict that most elements give comes first."""
    refused = _refused(votes, limits)
    found = [
        Offence(place=str(row["name"]), code=verdict, figures=_offence(row, votes))
        for row in rows
        if (verdict := decisions[str(row["name"])].verdict) in refused
    ]
    found += [
        Offence(place=str(row["name"]), code="unused-bits", figures=_offence(row, votes))
        for row in rows
        if _unused(row, limits)
    ]
    return sorted(found, key=lambda offence: -votes.get(offence.code, 0))


def _refused(votes: Mapping[str, int], limits: Limits) -> tuple[str, ...]:
    """Tell which verdicts the file holds more of than is allowed."""
    decided = sum(count for verdict, count in votes.items() if verdict != UNDECIDED)
    wrong = sum(votes.get(verdict, 0) for verdict in WRONG)
    refused = WRONG if wrong > limits.wrong_at_most_share * decided else ()
    many = votes.get("implausible", 0) > limits.implausible_at_most_share * decided
    return (*refused, "implausible") if many else refused


def _unused(row: Fields, limits: Limits) -> bool:
    """Tell whether more of the mantissa's last bits are unused than is allowed of this dtype."""
    most = limits.trailing_zero_bits_at_most.get(str(row["dtype"]))
    if most is None or _number(row["nonzero"]) < limits.min_nonzero:
        return False
    return _number(row["trailing_zero_bits"]) > most


def _offence(row: Fields, votes: Mapping[str, int]) -> Fields:
    dtype = str(row["dtype"])
    stored: Any = row["as_stored"] or {"excess": {}}
    swapped: Any = row["byte_swapped"] or {"excess": {}}
    reading = READING.get(dtype, "")
    return {
        "dtype": dtype,
        "other": OTHER.get(dtype, ""),
        "sampled": row["sampled"],
        "fits_bits": stored["excess"].get(reading),
        "other_bits": stored["excess"].get(OTHER.get(dtype, "")),
        "swapped_bits": swapped["excess"].get(reading),
        "half_divergence": row["half_divergence"],
        "trailing_zero_bits": row["trailing_zero_bits"],
        "mantissa_bits": row["mantissa_bits"],
    }


def _figures(rows: Sequence[Fields], decisions: Mapping[str, Decision], votes: Mapping[str, int]) -> Fields:
    """Tell the file's own verdict, how much of the file it stands on, and what could not be decided."""
    decided = {verdict: count for verdict, count in sorted(votes.items()) if verdict != UNDECIDED}
    why = collections.Counter(decision.why for decision in decisions.values() if decision.why)
    elements = sum(votes.values())
    return {
        "vote": max(decided, key=lambda verdict: decided[verdict]) if decided else UNDECIDED,
        "tensors": len(rows),
        "decided": len(rows) - sum(why.values()),
        "undecided": sum(why.values()),
        "decided_percent": round(100 * sum(decided.values()) / elements, 2) if elements else 0.0,
        "why": dict(sorted(why.items())),
        "precision": _precision(rows),
    }


def _precision(rows: Sequence[Fields]) -> Fields:
    """Count the tensors by dtype and by how many bits of their mantissa are used."""
    told: collections.Counter[str] = collections.Counter()
    for row in rows:
        if row["trailing_zero_bits"] is not None:
            used = int(_number(row["mantissa_bits"]) - _number(row["trailing_zero_bits"]))
            told[f"{row['dtype']} with {used} of {row['mantissa_bits']} bits"] += 1
    return dict(sorted(told.items()))


def check(limits: Limits, _measure: object) -> list[str]:
    """Say which limits contradict each other."""
    steps = (limits.fits_below_bits, limits.fits_not_above_bits, limits.implausible_above_bits)
    if list(steps) == sorted(steps):
        return []
    return ["fits_below_bits, fits_not_above_bits and implausible_above_bits must rise in this order"]


KIND = Kind(
    name="label-plausibility",
    version=1,
    roles={"candidate": SubjectKind.CHECKPOINT},
    needs={"bits": Need("tensor_bits", of=("candidate",))},
    limits=Limits,
    codes={
        "mislabelled": Outcome.FAIL,
        "byte-swapped": Outcome.FAIL,
        "pairs": Outcome.FAIL,
        "implausible": Outcome.FAIL,
        "unused-bits": Outcome.FAIL,
        "nothing-decided": Outcome.BLOCKED,
        "names-nothing": Outcome.BLOCKED,
    },
    judge=judge,
    falsifiers=FALSIFIERS,
    check=check,
)
